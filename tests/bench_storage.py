"""How fast the store is with 10,000 traces, and whether an export comes back byte for byte. Run by `make bench`."""

from __future__ import annotations

import io
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from storage.exchange import export_jsonl, import_jsonl
from storage.records import RunQuery, StoredRun, StoredTurn
from storage.store import Store
from trinity_core.types import (
    AgentSpec,
    Decision,
    Finish,
    Message,
    Mode,
    Role,
    Source,
    Status,
    StopReason,
    Totals,
    Usage,
    Verdict,
)

TRACES = 10_000
EXCHANGED = 10_000
_WORDS = ("river", "stone", "window", "number", "letter", "planet", "answer", "garden", "engine", "yellow")


def sample_run(n: int) -> StoredRun:
    """A made-up run of two to four turns, the same for the same `n`."""
    rng = random.Random(n)

    def words(count: int) -> str:
        return " ".join(rng.choice(_WORDS) for _ in range(count))

    planned = [Role.THINKER] if rng.random() < 0.5 else []
    roles = [*planned, *[Role.WORKER] * rng.randint(1, 2), Role.VERIFIER]
    at = 1_700_000_000.0 + n * 7.25
    turns = tuple(_turn(n, i + 1, role, words(60), rng, at + i) for i, role in enumerate(roles))
    return StoredRun(
        id=f"{n:08x}-bench",
        source=rng.choice(list(Source)),
        method="coordinator",
        status=Status.DONE,
        stop_reason=StopReason.ACCEPTED,
        messages=(Message("user", f"Question {n}: {words(20)}?"),),
        answer=words(30),
        answer_turn=len(roles) - 1,
        pool=(AgentSpec("alpha", "symbolic"), AgentSpec("beta", "gguf", options={"top": None})),
        seed=n,
        totals=Totals(len(roles), len(roles), Usage(100, 50), 0.01, seconds=rng.random() * 10),
        created_at=at,
        finished_at=at + 5,
        turns=turns,
    )


def _turn(n: int, turn: int, role: Role, text: str, rng: random.Random, at: float) -> StoredTurn:
    agent = rng.choice(["alpha", "beta"])
    logits = {"alpha": rng.gauss(0, 1), "beta": rng.gauss(0, 1)}
    return StoredTurn(
        id=f"{n:08x}-{turn}",
        turn=turn,
        agent=agent,
        role=role,
        verdict=Verdict.ACCEPT if role is Role.VERIFIER else None,
        finish=Finish.STOP,
        started_at=at,
        finished_at=at + 1,
        seconds=1.0,
        text=text,
        raw=text,
        decision=Decision(agent, role, agent, role, Mode.ARGMAX, logits, {"worker": 0.5}),
        request={"model": "m", "messages": [{"role": "user", "content": text}], "stop": None},
        usage=Usage(50, 25),
        hidden=rng.randbytes(1152),
    )


def _median_ms(work: Callable[[], object], times: int = 7) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append((time.perf_counter() - start) * 1e3)
    return statistics.median(taken)


def bench() -> list[str]:
    """Fill a SQLite store in a temporary folder, measure it, and return one line a result (milliseconds, medians)."""
    with tempfile.TemporaryDirectory(prefix="trinity-bench-") as folder:
        store = Store.open(f"sqlite:///{Path(folder) / 'a.db'}")
        copy = Store.open(f"sqlite:///{Path(folder) / 'b.db'}")
        try:
            return _measure(store, copy)
        finally:
            store.close()
            copy.close()


def _measure(store: Store, copy: Store) -> list[str]:
    start = time.perf_counter()
    for first in range(0, TRACES, 500):
        store.add_runs(sample_run(n) for n in range(first, first + 500))
    lines = [f"storage: {TRACES} traces stored in {time.perf_counter() - start:.1f} s"]
    middle = TRACES // 2
    for name, query in (
        ("newest page of the list", RunQuery()),
        ("page 100 of the list", RunQuery(page=100)),
        ("page sorted by seconds", RunQuery(sort="seconds")),
        ("page filtered by agent and roles", RunQuery(agent="beta", roles=(Role.WORKER, Role.VERIFIER))),
        ("substring search, one hit", RunQuery(search=f"uestion {middle}: ")),
        ("substring search, all hit", RunQuery(search="iver ston")),
        ("search for two letters", RunQuery(search="zq")),
    ):
        found = store.list_runs(query).total
        taken = _median_ms(partial(store.list_runs, query))
        lines.append(f"storage: {name}: {taken:.1f} ms ({found} runs)")
    run_id = f"{middle:08x}-bench"
    lines.append(f"storage: one whole trace: {_median_ms(lambda: store.run(run_id)):.1f} ms")
    return [*lines, *_exchange(store, copy)]


def _exchange(store: Store, copy: Store) -> list[str]:
    out, again = io.BytesIO(), io.BytesIO()
    query = RunQuery(all_owners=True, until=sample_run(EXCHANGED).created_at)
    start = time.perf_counter()
    count = export_jsonl(store, out, query)
    exported = time.perf_counter() - start
    start = time.perf_counter()
    report = import_jsonl(copy, io.BytesIO(out.getvalue()))
    imported = time.perf_counter() - start
    export_jsonl(copy, again, RunQuery(all_owners=True))
    same = "byte-equal" if out.getvalue() == again.getvalue() and not report.errors else "DIFFERENT"
    size = len(out.getvalue()) / 2**20
    return [
        f"storage: export of {count} traces, {size:.0f} MB: {exported:.1f} s",
        f"storage: import of {report.imported} traces: {imported:.1f} s; exported again: {same}",
    ]
