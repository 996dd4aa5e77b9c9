"""Many runs at once against a server of which a share of the answers fails, in every way that it knows.

Each answer carries a number that no other has, so that a reply that is lost, doubled or mixed up shows. What fails
is drawn from a seed (see `faults`). Every twentieth run is stopped at a random moment. `storm` makes the runs (real
loop, adapters in all three formats, store) and reports; the report's `problems` are what must not happen.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from storage.records import RunQuery
from storage.store import Store
from tests.peers import Peer, connections, memory_mib
from tests.peers.faults import FAILING, Storm, fault_server
from trinity_core.agents.base import Wiring
from trinity_core.agents.keys import Keys
from trinity_core.agents.meter import Meter
from trinity_core.agents.pool import PoolFile, Roster
from trinity_core.coordinator.policy import Policy
from trinity_core.session.loop import RunRequest
from trinity_core.session.methods import Methods
from trinity_core.types import AgentSpec, AnyRunEvent, Message, RunFinished, Sampling, Source, Status, TurnFinished
from trinity_core.types import RunParams as Params

_MARK = re.compile(r"\[#(\d+)#\]")
_STOPPED_EVERY = 20
SERVICE = {
    "concurrency": 16,
    "retries": 1,
    "connect_s": 5,
    "first_token_s": 2.0,  # so long that a machine with much to do does not give up answers that come
    "between_tokens_s": 2.0,
    "total_s": 10,
    "rest_s": 0.5,
}


@dataclass(slots=True)
class Report:
    """What came of a storm. `problems` is empty when all is well; memory in MiB of resident set, after
    each tenth of the runs. `seen`: in how many turns each answer is, by its number."""

    runs: int
    seconds: float = 0.0
    ends: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    turns: int = 0
    calls: int = 0
    answers: int = 0
    lost: int = 0
    sockets: int = 0
    memory: tuple[float, ...] = ()
    problems: list[str] = field(default_factory=list)
    seen: Counter[int] = field(default_factory=Counter)


# --- The runs -------------------------------------------------------------------------------------------------


def members(peer: Peer) -> tuple[AgentSpec, ...]:
    """Two members of each format."""
    return tuple(
        AgentSpec(f"{kind}-{number}", kind, model=f"m{number}", base_url=base, service=SERVICE)
        for kind, base in peer.bases.items()
        for number in (1, 2)
    )


async def _no_coordinator(_: Sequence[str]) -> Policy:
    raise AssertionError("these methods need no coordinator")


def storm(runs: int, at_once: int, *, share: float = 0.3, seed: int = 7) -> Report:
    """Make `runs` runs, `at_once` at a time, and report."""
    with tempfile.TemporaryDirectory(prefix="trinity-storm-") as folder:
        log, url = Path(folder) / "said.jsonl", f"sqlite:///{Path(folder) / 'trinity.db'}"
        with fault_server(Storm(share, seed, log)) as peer:
            store = Store.open(url)
            try:
                report = asyncio.run(_storm(runs, at_once, seed, peer, store))
                _check_stored(report, store)
            finally:
                store.close()
        _check_answers(report, dict(json.loads(line) for line in log.read_text("utf-8").splitlines()))
        return report


async def _storm(runs: int, at_once: int, seed: int, peer: Peer, store: Store) -> Report:
    report, rng = Report(runs), random.Random(seed)
    roster = Roster(PoolFile(members(peer)), Wiring(Keys(use_keyring=False), Meter(store)))
    methods = Methods(roster, _no_coordinator, store)
    gate = asyncio.Semaphore(at_once)
    stops = {number: rng.uniform(0.0, 0.5) for number in range(runs) if number % _STOPPED_EVERY == 0}
    memory = list[float]()

    async def one(number: int) -> None:
        request = RunRequest(
            (Message("user", f"Question {number}: what is 6 times 7?"),),
            method="fixed" if number % 2 else "random",
            source=Source.CLI,
            params=Params(sampling=Sampling(max_tokens=64)),
            seed=seed + number,
        )
        async with gate:
            events = await _play(methods, store, request, stops.get(number))
        _check_run(report, number, events, stopped=number in stops)
        if sum(report.ends.values()) % max(1, runs // 10) == 0:
            memory.append(memory_mib())

    began = time.monotonic()
    await asyncio.gather(*(one(number) for number in range(runs)))
    report.seconds, report.memory = time.monotonic() - began, tuple(memory)
    await roster.aclose()
    report.sockets = await _sockets(peer.port)
    if report.sockets:
        report.problems.append(f"{report.sockets} sockets are still open")
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    if tasks:
        report.problems.append(f"{len(tasks)} tasks go on after the last run: {tasks[:2]}")
    return report


async def _play(methods: Methods, store: Store, request: RunRequest, stop_after: float | None) -> list[AnyRunEvent]:
    stop, events = asyncio.Event(), list[AnyRunEvent]()
    timer = asyncio.get_running_loop().call_later(stop_after, stop.set) if stop_after is not None else None
    async with aclosing(store.record(methods.answer(request, stop))) as recorded:
        async for event in recorded:
            if isinstance(event, TurnFinished | RunFinished):
                events.append(event)
    if timer:
        timer.cancel()
    return events


async def _sockets(port: int) -> int:
    deadline = time.monotonic() + 2.0
    while (held := connections(port)) and time.monotonic() < deadline:  # noqa: ASYNC110 - the kernel tells nobody
        await asyncio.sleep(0.05)
    return held


# --- What must hold -------------------------------------------------------------------------------------------


def _check_run(report: Report, number: int, events: list[AnyRunEvent], *, stopped: bool) -> None:
    """One run: exactly one end, of a kind that fits what happened in it, and in every finished turn one whole answer.
    Nothing of the run is kept but counts and the numbers of its answers, so that memory tells of the program."""
    ends = [event for event in events if isinstance(event, RunFinished)]
    turns = [event for event in events if isinstance(event, TurnFinished)]
    if len(ends) != 1 or not isinstance(events[-1], RunFinished):
        report.problems.append(f"run {number} has {len(ends)} ends")
        return
    end = ends[0]
    report.ends[f"{end.status}: {end.stop_reason}"] += 1
    report.calls += sum(turn.calls for turn in turns)
    report.failures.update(turn.error.kind for turn in turns if turn.error)
    report.turns += sum(turn.error is None for turn in turns)
    if end.totals.calls != sum(turn.calls for turn in turns):
        report.problems.append(f"run {number} tells {end.totals.calls} calls, its turns tell others")
    if end.status is Status.FAILED and (end.error is None or not end.error.message):
        report.problems.append(f"run {number} failed without a cause")
    if end.status is Status.CANCELLED and not stopped:
        report.problems.append(f"run {number} was cancelled by nobody")
    if end.status not in (Status.DONE, Status.FAILED, Status.CANCELLED):
        report.problems.append(f"run {number} ended as {end.status}")
    for turn in turns:
        if turn.error is None:
            _check_turn(report, number, turn)


def _check_turn(report: Report, number: int, turn: TurnFinished) -> None:
    marks = [int(mark) for mark in _MARK.findall(turn.text)]
    report.seen.update(marks)
    if len(marks) != 1:
        report.problems.append(f"a turn of run {number} holds the answers {marks}: {turn.text[:80]!r}")
    elif not turn.raw.rstrip().endswith(("Answer: 42", "VERDICT: ACCEPT", "VERDICT: REVISE")):
        report.problems.append(f"a turn of run {number} was cut: {turn.raw[-60:]!r}")


def _check_stored(report: Report, store: Store) -> None:
    page = store.list_runs(RunQuery(all_owners=True))
    if page.total != report.runs:
        report.problems.append(f"{page.total} runs are stored of {report.runs}")
    for status in (Status.RUNNING, Status.QUEUED, Status.INTERRUPTED):
        if left := store.list_runs(RunQuery(all_owners=True, status=status)).total:
            report.problems.append(f"{left} runs are stored as {status}")


def _check_answers(report: Report, given: dict[int, str]) -> None:
    """No answer is in two turns, none that failed is in any, and none that was given whole is missing. `given` tells
    how each answer was given, by its number."""
    report.answers = len(given)
    report.problems += [f"answer {mark} is in {times} turns" for mark, times in report.seen.items() if times > 1]
    report.problems += [
        f"answer {mark} failed and is in a turn" for mark in report.seen if given.get(mark) in FAILING
    ]
    report.lost = sum(fault not in FAILING and mark not in report.seen for mark, fault in given.items())
    stopped = report.ends["cancelled: cancelled"]
    if report.lost > stopped:  # a run that is stopped may have asked for an answer that nobody waits for any more
        report.problems.append(f"{report.lost} whole answers are in no turn, and {stopped} runs were stopped")


def memory_growth(report: Report) -> float:
    """MiB by which the resident set grew: the least of its last third less that of the middle one. The least, because
    an answer without end takes many megabytes for a moment."""
    third = max(1, len(report.memory) // 3)
    return min(report.memory[-third:]) - min(report.memory[-2 * third : -third])
