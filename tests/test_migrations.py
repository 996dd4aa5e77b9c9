"""Opening a database: the migrated schema equals the models, and what cannot be opened says why."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import create_engine
from sqlalchemy import text as sql

import storage.database
from storage.database import Database
from storage.records import RunQuery
from storage.schema import in_models, metadata
from storage.store import Store
from tests.pg import Server, db_url, postgres_server, postgres_url
from trinity_core.agents.meter import Spent
from trinity_core.errors import StoreError
from trinity_core.types import Finish, Reply, Totals, Usage

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


def _at(db_url: str, revision: str) -> None:
    """Bring a database to an older or newer schema, as an older version of the program would have left it."""
    engine = create_engine(db_url)
    config = Config()
    config.set_main_option("script_location", str(Path(storage.database.__file__).parent / "migrations"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        current = MigrationContext.configure(connection).get_current_revision() or ""
        (command.upgrade if current < revision else command.downgrade)(config, revision)
    engine.dispose()


_OLD_RUN = (
    "INSERT INTO runs (id, source, method, status, question, roles, agents, turn_count, tokens, created_at, answer, "
    "messages, params, pool, totals) VALUES ('old', 'cli', 'coordinator', 'done', 'How many pears?', 'W', 'lexical', "
    '1, 7, 5.0, \'seven pears\', \'[{"role":"user","content":"How many pears?"}]\', \'{"max_turns":3}\', '
    '\'[{"name":"lexical","kind":"lexical"}]\', \'{"turns":1,"calls":1,"seconds":2.5}\')'
)
_OLD_TURN = (
    "INSERT INTO turns (id, run_id, turn, attempt, agent, role, finish, text, raw, reasoning) "
    "VALUES ('t1', 'old', 1, 1, 'lexical', 'worker', 'stop', 'counted pears', 'counted pears', '')"
)
_OLD_REPLY = (
    "INSERT INTO agent_replies (key, sample, request, text, finish, reasoning, seconds, created_at) "
    "VALUES ('k', 0, '{}', 'seven', 'stop', '', 0.5, 5.0)"
)


def test_an_older_database_is_brought_up_to_date(db_url: str) -> None:
    _at(db_url, "0001")
    engine = create_engine(db_url)
    with engine.begin() as connection:
        for statement in (_OLD_RUN, _OLD_TURN, _OLD_REPLY):
            connection.exec_driver_sql(statement)
    engine.dispose()
    store = Store.open(db_url)
    try:
        run = store.run("old")
        assert run is not None
        (turn,) = run.turns
        assert (turn.calls, turn.unpriced, turn.reused, turn.cost) == (1, 0, False, None)
        assert run.totals == Totals(turns=1, calls=1, seconds=2.5)
        assert [(row.cost, row.unpriced) for row in store.list_runs(RunQuery()).rows] == [(None, 0)]
        assert store.get_reply("k", 0) == Reply("seven", Finish.STOP, seconds=0.5)
        assert store.spent(0.0) == Spent()
        assert store.list_runs(RunQuery(search="counted PEARS")).total == 1
        assert store.add_runs([replace(run, id="new", answer="plums", turns=())]) == [True]
        assert store.list_runs(RunQuery(search="plums")).total == 1, "search goes on being kept in step"
    finally:
        store.close()


_OLD_TRAINING = (
    "INSERT INTO training_runs (id, method, status, seed, params, pool, validations, created_at) "
    "VALUES ('t', 'evolve', 'done', 3, '{\"lam\":8}', '[]', '[{\"name\":\"held out\"}]', 5.0)"
)
_OLD_GENERATION = (
    "INSERT INTO generations (training_run_id, number, seed, fitness, evaluations, agent_calls, failed_calls, at) "
    "VALUES ('t', 0, 3, '[0.5,null]', 4, 2, 1, 5.0)"
)


def test_a_training_from_before_is_kept(db_url: str) -> None:
    _at(db_url, "0002")
    engine = create_engine(db_url)
    with engine.begin() as connection:
        for statement in (_OLD_TRAINING, _OLD_GENERATION):
            connection.exec_driver_sql(statement)
    engine.dispose()
    for _ in range(2):
        store = Store.open(db_url)
        run = store.training_run("t")
        assert run is not None
        assert (run.params, run.notes, run.pool, run.paused) == ({"lam": 8}, (), (), False)
        assert store.training_runs() == (run,)
        (old,) = store.generations("t")
        assert (old.seed, old.fitness[0], old.evaluations, old.failed_calls) == (3, 0.5, 4, 1)
        assert (old.spread, old.accuracies, old.mean_turns, old.skipped, old.status) == (None, (), None, 0, "")
        store.put_states({"k": b"\0\0\0\0"})
        assert store.get_states(["k"]) == {"k": b"\0\0\0\0"}
        store.close()
        _at(db_url, "0002")  # and back again, which loses the states and nothing that 0002 had


def test_back_and_forth(db_url: str) -> None:
    Store.open(db_url).close()
    _at(db_url, "0001")
    with sqlite3.connect(db_url.removeprefix("sqlite:///")) if "sqlite" in db_url else nullcontext() as connection:
        if connection is not None:
            names = {row[1] for row in connection.execute("PRAGMA table_info(turns)")}
            assert not names & {"calls", "unpriced", "reused"}
    store = Store.open(db_url)
    store.add_spending(at=1.0, agent="a", run_id=None, usage=Usage(1, 2), cost=0.5, failed=False)
    assert store.spent(1.0) == Spent(1, 3, 0.5)
    store.close()


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
