"""Servers that this project did not write, started on loopback so that adapters are tested over real sockets.

Each module starts one kind: `llmock` (three wire formats, faults and quotas on demand), `litellm` (the LiteLLM proxy,
whose translators speak all formats) and `llama` (llama.cpp with the embedded weights). All run in processes of their
own with their own logs, need no network, and are ended with everything they started. `Peer` says where each format
is served; `situations` lists what the adapters are tried in, for the tests and for `make bench ARGS=wire`.

Not covered: faults that none of them can produce; `tests.fault_server` makes those.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil  # type: ignore[import-untyped]

KEY = "sk-peer-9d41c2e8a7"
"""The key that the LiteLLM proxy asks for; the other peers take any."""


class Unavailable(Exception):
    """A peer cannot be started here; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A running server. `bases` maps a format's kind to the base URL under which a pool member reaches it."""

    name: str
    url: str
    bases: Mapping[str, str]
    pid: int
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def child(
    command: Sequence[str],
    ready: Callable[[str], bool],
    *,
    limit_s: float,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> Iterator[int]:
    """Run `command` until the block ends and yield its process id once `ready(output so far)` is true; its output is
    kept in `log` when one is named.

    Raises RuntimeError with the end of its output when it ends or is not ready within `limit_s` seconds. Its whole
    process group is killed, and whatever it started outside of that too. Where the system can do it, it also ends
    with a parent that was killed itself.
    """
    tied = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
    with log.open("w+b") if log else tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*tied, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "NO_PROXY": "*", **(env or {})},
            start_new_session=True,
        )

        def said() -> str:
            output.seek(0)
            return output.read().decode("utf-8", "replace")

        try:
            deadline = time.monotonic() + limit_s
            while not ready(said()):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command[0]} did not get ready: {said()[-2000:]}")
                time.sleep(0.05)
            yield process.pid
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        for started in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                started.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def answers(url: str) -> Callable[[str], bool]:
    """A test for `child`: whether a GET of `url` succeeds."""

    def ready(_: str) -> bool:
        try:
            return httpx.get(url, timeout=2, trust_env=False).is_success
        except httpx.HTTPError:
            return False

    return ready


def connections(port: int, pid: int | None = None) -> int:
    """Open TCP connections of process `pid` (default: this one) to or from `port` on this machine."""
    held = psutil.Process(pid or os.getpid()).net_connections("tcp")
    closed = (psutil.CONN_LISTEN, psutil.CONN_TIME_WAIT, psutil.CONN_CLOSE)
    ends = ((c.laddr.port if c.laddr else 0, c.raddr.port if c.raddr else 0) for c in held if c.status not in closed)
    return sum(port in pair for pair in ends)


def memory_mib() -> float:
    """This process's resident set."""
    resident: float = psutil.Process().memory_info().rss / 2**20
    return resident


def python() -> str:
    """The interpreter that runs the tests."""
    return sys.executable
