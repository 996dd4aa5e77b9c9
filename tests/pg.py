"""A private PostgreSQL server for the tests, and a fresh database for each.

The server is started once per test session in a temporary folder, listens on a unix socket in it and on no port,
and is gone at the end. As root it runs as the user `postgres` (or `nobody`), because PostgreSQL refuses root.
Databases are copies of a template that has pg_trgm. Without PostgreSQL's programs the tests that need it are
skipped; with TRINITY_REQUIRE_POSTGRES=1 they fail instead.

Use: `from tests.pg import postgres_server, postgres_url` makes the fixtures known in a test module.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psycopg
import pytest

_DEBIAN = Path("/usr/lib/postgresql")


class Unavailable(Exception):
    """PostgreSQL cannot be started here."""


def binaries() -> Path:
    """The folder with initdb and postgres, the newest version first. Raises Unavailable."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    if _DEBIAN.is_dir():
        versions = (d for d in _DEBIAN.iterdir() if d.name.isdecimal())
        folders += [d / "bin" for d in sorted(versions, key=lambda d: int(d.name), reverse=True)]
    for folder in folders:
        if (folder / "initdb").is_file() and (folder / "postgres").is_file():
            return folder
    raise Unavailable("no initdb and postgres on the PATH or under /usr/lib/postgresql")


@dataclass
class Server:
    """A running server. `new_database` returns a SQLAlchemy URL; `drop` removes one."""

    folder: Path
    user: str
    bin: Path
    names: Iterator[int] = field(default_factory=count)

    @classmethod
    def start(cls) -> Server:
        """Raises Unavailable when there are no programs, or what they said when they fail."""
        bin = binaries()
        user = _user()
        # A socket's path may have about 100 characters, fewer than pytest's folders.
        folder = Path(tempfile.mkdtemp(prefix="tpg-", dir="/tmp"))
        if os.geteuid() == 0:
            entry = pwd.getpwnam(user)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
        server = cls(folder, user, bin)
        try:
            data = str(folder / "data")
            server._run("initdb", "-D", data, "-U", "trinity", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N")
            options = f"-k {folder} -c listen_addresses='' -c fsync=off -c max_connections=60"
            server._run("pg_ctl", "-D", data, "-w", "-t", "60", "-o", options, "-l", str(folder / "log"), "start")
            server._sql("CREATE DATABASE template_trinity", "postgres")
            server._sql("CREATE EXTENSION pg_trgm", "template_trinity")
        except BaseException:
            server.stop()
            raise
        return server

    def stop(self) -> None:
        """End the server and remove its folder."""
        try:
            if (self.folder / "data" / "postmaster.pid").exists():
                self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def new_database(self) -> str:
        name = f"t{next(self.names)}"
        self._sql(f"CREATE DATABASE {name} TEMPLATE template_trinity", "postgres")
        return f"postgresql+psycopg://trinity@/{name}?host={self.folder}"

    def drop(self, url: str) -> None:
        name = url.rpartition("/")[0].rpartition("@/")[2].partition("?")[0]
        self._sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", "postgres")

    def _sql(self, statement: str, database: str) -> None:
        with psycopg.connect(host=str(self.folder), user="trinity", dbname=database, autocommit=True) as connection:
            connection.execute(statement.encode())

    def _run(self, program: str, *args: str) -> None:
        command = [str(self.bin / program), *args]
        if os.geteuid() == 0:
            command = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", "--", *command]
        # Output goes to a file: the server would keep a pipe open and the wait would never end.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(command, stdout=output, stderr=output, cwd="/", timeout=120)
            if done.returncode:
                output.seek(0)
                raise RuntimeError(f"{program} failed: {output.read().decode('utf-8', 'replace')}")


def _user() -> str:
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    raise Unavailable("no user to run PostgreSQL as")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """The session's server; starts when a test first asks for it."""
    try:
        server = Server.start()
    except Unavailable as error:
        if os.environ.get("TRINITY_REQUIRE_POSTGRES") == "1":
            pytest.fail(f"PostgreSQL is required: {error}")
        pytest.skip(f"PostgreSQL is not installed: {error}")
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres_server: Server) -> Iterator[str]:
    """The URL of an empty database of its own, with pg_trgm."""
    url = postgres_server.new_database()
    yield url
    postgres_server.drop(url)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def db_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database on each engine in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'trinity.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url
