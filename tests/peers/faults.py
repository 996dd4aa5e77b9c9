"""The raw fault server of the tests as a peer in a process of its own, for what no other server can do wrong.

By itself the model's name says what happens. With a `Storm` a share of the answers fails whatever the model, drawn
from a seed, and every answer carries a number that no other has; the log tells how each was given.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tests.fault_server import FAULTS, FaultServer
from tests.peers import Peer, child, free_port, python

FAILING = tuple(name for name, fault in FAULTS.items() if fault.kinds)
WORKING = tuple(name for name, fault in FAULTS.items() if not fault.kinds and name not in ("length", "hold-open"))
"""Ways to give a whole reply, but for one that is cut by its limit and one that leaves the connection open."""
_ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, slots=True)
class Storm:
    """`share` of the answers fail. `log` gets a line of JSON for each answer: its number, and how it was given."""

    share: float
    seed: int
    log: Path


@contextmanager
def fault_server(storm: Storm | None = None) -> Iterator[Peer]:
    """Start one; about a second."""
    port = free_port()
    boot = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from tests.peers.faults import serve; serve()"
    drawn = [str(storm.share), str(storm.seed), str(storm.log)] if storm else []
    with child([python(), "-c", boot, str(port), *drawn], lambda said: "ready" in said, limit_s=60) as pid:
        url = f"http://127.0.0.1:{port}"
        yield Peer("raw faults", url, {"openai": url + "/v1", "anthropic": url, "gemini": url + "/v1beta"}, pid)


def serve() -> None:
    """Serve until killed. Arguments: the port, and for a storm its share, seed and log."""
    port, drawn = int(sys.argv[1]), sys.argv[2:]
    server = _stormy(port, Storm(float(drawn[0]), int(drawn[1]), Path(drawn[2]))) if drawn else FaultServer(port)

    async def run() -> None:
        async with server:
            print("ready", flush=True)
            await asyncio.Event().wait()

    asyncio.run(run())


def _stormy(port: int, storm: Storm) -> FaultServer:
    rng, numbers = random.Random(storm.seed), count(1)
    weights = [0.1 if name.startswith("huge") else 1.0 for name in FAILING]  # they move tens of megabytes each
    out = storm.log.open("a", encoding="utf-8", buffering=1)

    def choose(model: str, number: int) -> str:
        del server.requests[:-500]  # nobody else looks at them, and a storm is long
        if rng.random() < storm.share:
            return rng.choices(FAILING, weights)[0]
        return "ok" if rng.random() < 0.5 else rng.choice(WORKING)

    def answer(body: Any) -> str:
        number, fault = next(numbers), next(seen.fault for seen in server.requests if seen.body is body)
        out.write(json.dumps([number, fault]) + "\n")
        accepts = rng.random() < 0.5
        if "You check the answer" in json.dumps(body):
            return f"[#{number}#] Grüße ✓ I checked it.\nVERDICT: {'ACCEPT' if accepts else 'REVISE'}"
        return f"[#{number}#] Grüße ✓ two  blanks and\na line.\nAnswer: 42"

    server = FaultServer(port, answer=answer, choose=choose)  # the two find it when they are called
    return server
