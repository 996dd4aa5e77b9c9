"""One database: the engine, its transactions, bringing its schema up to date, and its errors in words.

SQLite: WAL, so readers never wait for the writer; foreign keys on in every connection; every write transaction
begins IMMEDIATE, because a transaction that starts by reading cannot be made to wait when it wants to write
later. The driver's own transaction control is off; BEGIN comes from here. `synchronous` is FULL: `kill -9` loses
no commit with NORMAL either, but a power cut would lose the newest ones, and each may be a paid-for reply. It
costs one fsync a commit, next to calls that take seconds. One lock per process orders its writers, so that
SQLite's busy handler, which is not fair, is only needed between processes.

PostgreSQL, through psycopg 3: reads see one snapshot (REPEATABLE READ); writers are ordered by the server.

Not covered: other engines (search and upserts are written for these two), and network file systems, on which WAL
does not work.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, Table, create_engine, event, exc
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import Insert as PostgresInsert
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import Insert as SqliteInsert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import StaticPool

from trinity_core import wire
from trinity_core.errors import StoreError

BUSY_S = 15.0
"""How long a writer waits for another process's write before it gives up."""

_MIGRATIONS = Path(__file__).parent / "migrations"
_MIGRATE_KEY = 0x7472696E69747921  # PostgreSQL advisory lock: one process migrates at a time
_MIGRATING = threading.Lock()  # Alembic's context and op modules are global to the process

_SQLITE_FIX = {
    "SQLITE_BUSY": "Another program is writing to it. Close it, or wait a moment and try again.",
    "SQLITE_LOCKED": "Another program is writing to it. Close it, or wait a moment and try again.",
    "SQLITE_READONLY": "It is read-only. Fix the permissions of the file and of its folder, or name another home "
    "folder with --home or TRINITY_HOME.",
    "SQLITE_FULL": "The disk is full. Free some space and try again; what was stored before is safe.",
    "SQLITE_IOERR": "The disk reported an error. Check its free space and health, then try again.",
    "SQLITE_CORRUPT": "The file is damaged. Move it away to start afresh, or save what can be read with "
    "`sqlite3 FILE .recover`.",
    "SQLITE_NOTADB": "The file is not a SQLite database. Move it away, or name another home folder with --home or "
    "TRINITY_HOME.",
    "SQLITE_CANTOPEN": "The file cannot be opened. Check that its folder exists and that you may write there.",
    "SQLITE_PERM": "Permission was denied. Fix the permissions of the file and of its folder.",
    "SQLITE_TOOBIG": "A text is too long for the database (1 GB).",
}
_POSTGRES_FIX = {
    "08": "The server cannot be reached. Check TRINITY_DB_URL and that the server runs.",
    "28": "The server refused the login. Check the user and password in TRINITY_DB_URL.",
    "3D": "There is no such database. Create it, or check TRINITY_DB_URL.",
    "25006": "The database is read-only. Connect to the primary server.",
    "42501": "The user may not do that. Grant CREATE on the database and its schema, and have an administrator run "
    "CREATE EXTENSION pg_trgm once.",
    "53": "The server is out of space, memory or connections. Free some and try again.",
    "55P03": "Another program holds a lock. Wait a moment and try again.",
    "57": "The server is shutting down or stopped the query. Try again.",
    "58P01": "The server lacks the extension pg_trgm. Install PostgreSQL's contrib package.",
    "0A000": "The server lacks the extension pg_trgm. Install PostgreSQL's contrib package.",
}


class Database:
    """Engine plus transactions. `read()` and `write()` raise StoreError, never SQLAlchemy's errors."""

    def __init__(self, url: str) -> None:
        """Connect and migrate. Raises StoreError saying what to do about it."""
        self._url = _parse(url)
        self.sqlite = self._url.get_backend_name() == "sqlite"
        self._memory = self.sqlite and self._url.database in (None, "", ":memory:")
        self._lock = threading.RLock()
        self.where = _where(self._url)
        with self._errors():
            self.engine = self._make_engine()
        self._writer = self.engine.execution_options(immediate=True)
        self._reader = (
            self.engine
            if self.sqlite
            else self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        )
        try:
            self._migrate()
            self._probe()
        except BaseException:
            self.engine.dispose()
            raise

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that sees one snapshot."""
        # The in-memory database is one connection that threads take turns on.
        with self._lock if self._memory else nullcontext(), self._errors(), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that may write; committed when the block ends, rolled back when it raises."""
        with self._lock if self.sqlite else nullcontext(), self._errors(), self._writer.begin() as connection:
            yield connection

    @contextmanager
    def attempt(self, connection: Connection) -> Iterator[list[str]]:
        """Part of a transaction that may fail alone: its error's text ends up in the list, its changes are undone.

        Only errors about the data are caught; a full disk or a lost connection still ends the whole transaction.
        """
        trouble: list[str] = []
        try:
            with connection.begin_nested():
                yield trouble
        except (exc.IntegrityError, exc.DataError) as error:
            trouble.append(wire.redact(" ".join(str(error.orig).split())))
        except OverflowError:
            trouble.append("a whole number does not fit in 64 bits")

    def insert(self, table: Table) -> SqliteInsert | PostgresInsert:
        """An INSERT that knows `on_conflict_do_nothing` and `on_conflict_do_update`."""
        return sqlite_insert(table) if self.sqlite else postgres_insert(table)

    # --- Opening --------------------------------------------------------------------------------------------

    def _make_engine(self) -> Engine:
        options: dict[str, Any] = {
            "json_serializer": _json,
            # A failed statement's parameters hold users' texts; they do not belong in messages.
            "hide_parameters": True,
        }
        if self._memory:
            options |= {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
        elif self.sqlite:
            options |= {"pool_size": 8, "max_overflow": 24, "connect_args": {"timeout": BUSY_S}}
        else:
            options |= {"pool_size": 8, "max_overflow": 8, "pool_pre_ping": True}
            options |= {"connect_args": {"connect_timeout": 10}}
        engine = create_engine(self._url, **options)
        if self.sqlite:
            event.listen(engine, "connect", _set_up_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _migrate(self) -> None:
        config = Config()
        # Alembic reads options through ConfigParser, to which a per cent sign is special.
        config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
        script = ScriptDirectory.from_config(config)
        known = {revision.revision for revision in script.walk_revisions()}
        with self.read() as connection:
            if self._up_to_date(connection, script, known):
                return
        # Looked at again under the write lock: another process may have migrated meanwhile.
        with _MIGRATING, self.write() as connection:
            if not self.sqlite:
                connection.execute(sql("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATE_KEY})
            if self._up_to_date(connection, script, known):
                return
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except CommandError as error:
                raise StoreError(f"{self.where} cannot be brought up to date: {error}") from None

    def _probe(self) -> None:
        """Write a byte that changes nothing: a read-only file opens without complaint until then."""
        if self.sqlite:
            with self.write() as connection:
                connection.exec_driver_sql("PRAGMA user_version = 0")

    def _up_to_date(self, connection: Connection, script: ScriptDirectory, known: set[str]) -> bool:
        current = set(MigrationContext.configure(connection).get_current_heads())
        if newer := current - known:
            raise StoreError(
                f"{self.where} was made by a newer version of Trinity (schema {', '.join(sorted(newer))}). Update "
                "Trinity, or name another home folder with --home or TRINITY_HOME."
            )
        return current == set(script.get_heads())

    # --- Errors ---------------------------------------------------------------------------------------------

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (exc.SQLAlchemyError, sqlite3.Error, OverflowError, ModuleNotFoundError) as error:
            raise StoreError(self._explain(error)) from error

    def _explain(self, error: Exception) -> str:
        cause = error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error
        said = str(cause).strip() or type(cause).__name__
        if isinstance(cause, ModuleNotFoundError | exc.NoSuchModuleError):
            fix = "The driver it names is not installed; use postgresql+psycopg:// or sqlite:///."
        elif isinstance(cause, OverflowError):
            fix = "A number is too large; whole numbers must fit in 64 bits."
        elif isinstance(cause, sqlite3.Error):
            name = getattr(cause, "sqlite_errorname", "")
            fix = next((fix for known, fix in _SQLITE_FIX.items() if name.startswith(known)), "")
            if "no such module" in said or "no such tokenizer" in said:
                fix = "Trinity needs SQLite 3.35 or newer with FTS5; this Python has " + sqlite3.sqlite_version + "."
        else:
            # psycopg has no state for a connection that was never made.
            state = getattr(cause, "sqlstate", None) or ("08" if isinstance(error, exc.OperationalError) else "")
            fix = next((fix for known, fix in _POSTGRES_FIX.items() if state.startswith(known)), "")
        said = wire.redact(" ".join(said.split()))
        if self._url.password:
            said = said.replace(str(self._url.password), wire.REDACTED)
        return f"{self.where} cannot be used ({said}). {fix}".rstrip()


def _json(value: Any) -> str:
    """ASCII, keys as they come; `rows.json_value` has seen to the rest. Raises ValueError for NaN."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError):
        raise StoreError(
            "TRINITY_DB_URL is not a database URL. Use sqlite:////path/to/file.db or "
            "postgresql://user:password@host/database."
        ) from None
    if parsed.drivername in ("postgres", "postgresql"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise StoreError(
            f"Trinity stores its traces in SQLite or PostgreSQL, not in {parsed.get_backend_name()}. "
            "Change TRINITY_DB_URL."
        )
    return parsed


def _where(url: URL) -> str:
    if url.get_backend_name() == "sqlite":
        return f"The database {url.database or ':memory:'}"
    return f"The database {url.set(query={}).render_as_string(hide_password=True)}"


def _set_up_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None
    connection.execute(f"PRAGMA busy_timeout = {int(BUSY_S * 1000)}")
    _use_wal(connection)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _use_wal(connection: sqlite3.Connection) -> None:
    # Changing the journal mode needs the file alone and does not always call the busy handler.
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _begin_sqlite(connection: Connection) -> None:
    immediate = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")
