"""The program as it is shipped, served in a process of its own: the page, and the endpoint that others call."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.peers import Peer, child, free_port, python
from trinity_core.agents.pool import PoolFile
from trinity_core.agents.poolfile import write_pool
from trinity_core.types import AgentSpec

ROOT = Path(__file__).resolve().parent.parent.parent
LOG = "server.log"


@contextmanager
def trinity(
    home: Path, members: Sequence[AgentSpec], *flags: str, env: Mapping[str, str] | None = None, loaded: bool = True
) -> Iterator[Peer]:
    """Serve the pool of `members` from `home`, where its log is kept; ready when the coordinator is, if `loaded`."""
    write_pool(home / "pool.toml", PoolFile(tuple(members)))
    port = free_port()
    command = [python(), str(ROOT / "app.py"), "serve", "--port", str(port), "--home", str(home), *flags]

    def ready(said: str) -> bool:
        return "Trinity is at" in said and (not loaded or "is ready" in said or "is untrained" in said)

    with child(command, ready, limit_s=300, env=env, log=home / LOG) as pid:
        url = f"http://127.0.0.1:{port}"
        yield Peer("Trinity", url, {"openai": url + "/v1"}, pid)


def command(words: Sequence[str], env: Mapping[str, str]) -> bytes:
    """Everything that one of the program's commands says, on both streams, whether it succeeds or not."""
    called = [python(), str(ROOT / "app.py"), *words]
    done = subprocess.run(
        called, capture_output=True, env={**os.environ, **env}, timeout=120, stdin=subprocess.DEVNULL
    )
    return done.stdout + done.stderr
