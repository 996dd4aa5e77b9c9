"""Opening a database: the migrated schema equals the models, and what cannot be opened says why."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text as sql

from storage.database import Database
from storage.records import RunQuery
from storage.schema import in_models, metadata
from storage.store import Store
from tests.pg import Server, db_url, postgres_server, postgres_url
from trinity_core.errors import StoreError

__all__ = ["db_url", "postgres_server", "postgres_url"]


def test_migrated_schema_equals_the_models(db_url: str) -> None:
    database = Database(db_url)
    try:
        with database.engine.connect() as connection:
            options = {"include_object": in_models, "compare_type": True, "compare_server_default": True}
            assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []
    finally:
        database.close()


def test_the_comparison_notices_a_difference(db_url: str) -> None:
    database = Database(db_url)
    try:
        with database.write() as connection:
            connection.execute(sql("ALTER TABLE labels ADD COLUMN extra TEXT"))
        with database.engine.connect() as connection:
            options = {"include_object": in_models}
            found = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
        assert [entry[0] for entry in found] == ["remove_column"]
    finally:
        database.close()


def test_opening_again_changes_nothing(db_url: str) -> None:
    Store.open(db_url).close()
    store = Store.open(db_url)
    assert store.list_runs(RunQuery()).total == 0
    store.close()


def test_every_connection_has_its_pragmas(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'a.db'}")
    wanted = {"foreign_keys": 1, "journal_mode": "wal", "synchronous": 2}
    try:
        with database.read() as first, database.read() as second, database.read() as third:
            for connection in (first, second, third):
                for name, value in wanted.items():
                    assert connection.exec_driver_sql(f"PRAGMA {name}").scalar() == value, name
                assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one() > 1000
    finally:
        database.close()


_OPEN = "import sys; from storage.store import Store; Store.open(sys.argv[1]).close()"


def test_processes_that_start_at_once_all_open_it(db_url: str) -> None:
    started = [subprocess.Popen([sys.executable, "-c", _OPEN, db_url], stderr=subprocess.PIPE) for _ in range(4)]
    failed = [stderr for p in started if (stderr := p.communicate(timeout=120)[1]) or p.returncode]
    assert failed == []


def test_threads_that_start_at_once_all_open_it(db_url: str) -> None:
    failures: list[Exception] = []

    def opened() -> None:
        try:
            Store.open(db_url).close()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=opened) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_newer_schema_is_refused_and_left_alone(db_url: str) -> None:
    database = Database(db_url)
    with database.write() as connection:
        connection.execute(sql("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    with pytest.raises(StoreError, match=r"newer version .*9999.*TRINITY_HOME"):
        Store.open(db_url)


def test_a_failed_migration_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE turns (x)")  # somebody else's
    with pytest.raises(StoreError, match="already exists"):
        Store.open(f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {"turns"}


def test_works_from_a_folder_with_odd_characters(tmp_path: Path) -> None:
    root = Path(__file__).parent.parent
    odd = tmp_path / "100% of it"
    for package in ("storage", "trinity_core"):
        shutil.copytree(root / package, odd / package, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-c", _OPEN, f"sqlite:///{tmp_path / 'a b%20c.db'}"], cwd=odd, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")


# --- What cannot be opened ----------------------------------------------------------------------------------


def test_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"this is no database, whatever its name says. " * 200)
    with pytest.raises(StoreError, match="not a SQLite database"):
        Store.open(f"sqlite:///{path}")


def test_read_only_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    Store.open(f"sqlite:///{path}").close()
    with pytest.raises(StoreError, match=r"read-only.*permissions"):
        Store.open(f"sqlite:///file:{path}?mode=ro&uri=true")


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="folder exists"):
        Store.open(f"sqlite:///{tmp_path / 'none' / 'a.db'}")


def test_locked_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.database.BUSY_S", 0.1)
    path = tmp_path / "a.db"
    Store.open(f"sqlite:///{path}").close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(StoreError, match="Another program"):
            Store.open(f"sqlite:///{path}").delete_runs(["x"])
    finally:
        other.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://u:p@h/db", "SQLite or PostgreSQL"),
        ("not a url", "TRINITY_DB_URL"),
        ("postgresql+nonesuch://h/db", "TRINITY_DB_URL|driver"),
        ("postgresql://u:hunter2secret@127.0.0.1:1/db", "cannot be reached"),
    ],
)
def test_bad_urls(url: str, said: str) -> None:
    with pytest.raises(StoreError, match=said) as caught:
        Store.open(url)
    assert "hunter2secret" not in str(caught.value)


@pytest.mark.postgres
def test_missing_postgres_database(postgres_server: Server) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        Store.open(f"postgresql://trinity@/nowhere?host={postgres_server.folder}")
