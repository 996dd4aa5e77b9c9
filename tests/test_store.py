"""The store over both engines: recording, crashes, listing and search, deletion, labels, training and replies."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import event as sa_event
from sqlalchemy import func, select
from sqlalchemy import text as sql

from storage import lease
from storage.records import RunQuery, StoredCheckpoint, StoredRun, StoredTurn, TrainingRun
from storage.schema import agent_replies, runs, spending, turns
from storage.store import Store
from tests.pg import db_url, postgres_server, postgres_url
from trinity_core import wire
from trinity_core.agents.meter import Ledger, Spent
from trinity_core.agents.replies import ReplyStore, keepable, reply_key
from trinity_core.errors import AgentError, InputError, StoreError
from trinity_core.tasks.task import Task
from trinity_core.types import (
    AgentSpec,
    AnyJobEvent,
    AnyRunEvent,
    Brief,
    CheckpointSaved,
    Decision,
    Delta,
    Failure,
    Finish,
    Generation,
    JobFinished,
    JobStarted,
    Message,
    Mode,
    Note,
    Progress,
    Reply,
    Request,
    Role,
    RunFinished,
    RunParams,
    RunStarted,
    Sampling,
    Source,
    Status,
    StopReason,
    Suggestion,
    Totals,
    TurnFinished,
    TurnReset,
    TurnStarted,
    Usage,
    Validation,
    Verdict,
)

__all__ = ["db_url", "postgres_server", "postgres_url"]

HIDDEN = np.arange(8, dtype="<f2").tobytes()


@pytest.fixture
def store(db_url: str) -> Iterator[Store]:
    opened = Store.open(db_url)
    yield opened
    opened.close()


# --- Scripted runs ------------------------------------------------------------------------------------------


def started(run_id: str, question: str = "What is 2+2?", at: float = 1000.0, **changes: Any) -> RunStarted:
    fields: dict[str, Any] = {
        "messages": (Message("user", question),),
        "method": "coordinator",
        "source": Source.UI,
        "params": RunParams(max_turns=3, mode=Mode.SAMPLE, sampling=Sampling(temperature=0.5)),
        "pool": (AgentSpec("alpha", "symbolic", options={"depth": 2, "nothing": None}),),
        "seed": 7,
        "owner": None,
        "checkpoint_id": "c1",
        "transcript_version": "lines-v1",
        "prompt_version": "roles-v1",
    }
    return RunStarted(run_id=run_id, seq=0, at=at, **(fields | changes))


def turn_events(
    run_id: str,
    turn: int,
    role: Role | None = Role.WORKER,
    text: str = "4",
    *,
    agent: str = "alpha",
    attempt: int = 1,
    at: float = 1001.0,
    **finished: Any,
) -> list[AnyRunEvent]:
    decision = Decision(
        agent=agent,
        role=role or Role.WORKER,
        own_agent="beta",
        own_role=Role.THINKER,
        mode=Mode.SAMPLE,
        agent_logits={"zeta": 0.25, "alpha": -1.5},
        margin={"agent": 0.1},
        masked={"role:verifier": "no answer yet"},
        suggested=Suggestion(Role.WORKER, None, "go on"),
        draws=(0.1, 0.9),
        encode_ms=12.5,
    )
    common: dict[str, Any] = {"run_id": run_id, "seq": 0, "turn": turn, "attempt": attempt}
    fields: dict[str, Any] = {"usage": Usage(10, 5), "seconds": 0.5, "cost": 0.01} | finished
    return [
        TurnStarted(
            **common, at=at, agent=agent, role=role, decision=decision, request={"model": "m"}, hidden=HIDDEN
        ),
        Delta(**common, at=at, text="mull", channel="reasoning"),
        Delta(**common, at=at, text=text),
        TurnFinished(**common, at=at + 0.5, agent=agent, role=role, raw=text, text=text, reasoning="mull", **fields),
    ]


def finished(run_id: str, answer: str | None = "4", at: float = 1010.0, **changes: Any) -> RunFinished:
    fields: dict[str, Any] = {
        "status": Status.DONE,
        "stop_reason": StopReason.ACCEPTED,
        "answer": answer,
        "answer_turn": 2,
        "totals": Totals(turns=3, calls=4, usage=Usage(40, 20), cost=0.04, seconds=9.0, encode_ms=30.0),
    }
    return RunFinished(run_id=run_id, seq=0, at=at, **(fields | changes))


def whole(run_id: str, question: str = "What is 2+2?", at: float = 1000.0, **changes: Any) -> list[AnyRunEvent]:
    """Thinker, a failed attempt and a Worker, Verifier that accepts."""
    events: list[AnyRunEvent] = [
        started(run_id, question, at, **changes),
        *turn_events(run_id, 1, Role.THINKER, "Add them.", at=at + 1, suggestion=Suggestion(Role.WORKER, "alpha")),
        Note(run_id=run_id, seq=0, at=at + 1.7, kind="retried", message="beta failed", turn=2),
        *turn_events(
            run_id,
            2,
            Role.WORKER,
            "half",
            agent="beta",
            at=at + 2,
            finish=Finish.ERROR,
            error=Failure("transport", "reset", True),
        ),
        *turn_events(run_id, 2, Role.WORKER, "It is 4.", attempt=2, at=at + 3),
        *turn_events(run_id, 3, Role.VERIFIER, "accept: right", agent="gamma", at=at + 4, verdict=Verdict.ACCEPT),
        finished(run_id, "It is 4.", at + 5),
    ]
    return [replace(event, seq=seq) for seq, event in enumerate(events)]


async def play(events: list[AnyRunEvent]) -> AsyncIterator[AnyRunEvent]:
    for event in events:
        yield event


async def keep(store: Store, events: list[AnyRunEvent]) -> list[AnyRunEvent]:
    return [event async for event in store.record(play(events))]


def rows_in(store: Store, table: Any) -> int:
    with store._database.read() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


# --- Recording ----------------------------------------------------------------------------------------------


async def test_a_run_is_passed_through_and_stored_whole(store: Store) -> None:
    events = whole("r1", owner="ann", parent_run_id="r0", fork_turn=2)
    assert await keep(store, events) == events
    run = store.run("r1", "ann")
    assert run is not None
    begun = events[0]
    assert isinstance(begun, RunStarted)
    for name in ("messages", "method", "source", "params", "pool", "seed", "owner", "parent_run_id", "fork_turn"):
        assert getattr(run, name) == getattr(begun, name), name
    assert (run.status, run.stop_reason, run.answer, run.answer_turn) == (
        Status.DONE,
        StopReason.ACCEPTED,
        "It is 4.",
        2,
    )
    assert [(t.turn, t.attempt, t.agent) for t in run.turns] == [
        (1, 1, "alpha"),
        (2, 1, "beta"),
        (2, 2, "alpha"),
        (3, 1, "gamma"),
    ]
    first, failed, _, last = run.turns
    assert first.hidden == HIDDEN
    assert first.decision is not None
    assert list(first.decision.agent_logits) == ["zeta", "alpha"]  # in head order
    assert first.decision == events[1].decision  # type: ignore[union-attr]
    assert (first.request, first.suggestion) == ({"model": "m"}, Suggestion(Role.WORKER, "alpha"))
    assert (failed.error, failed.text) == (Failure("transport", "reset", True), "half")
    assert (last.verdict, last.usage, last.reasoning) == (Verdict.ACCEPT, Usage(10, 5), "mull")


async def test_stored_events_tell_the_same_as_live_ones(store: Store) -> None:
    live = await keep(store, whole("r1"))
    stored = store.events_of("r1")

    def essence(events: Any) -> list[AnyRunEvent]:
        return [replace(event, seq=0, at=0.0) for event in events]

    assert essence(stored) == essence(live)
    assert [event.seq for event in stored] == list(range(len(stored)))
    assert [event.at for event in stored] == sorted(event.at for event in stored)
    assert store.events_of("nothing") == ()


async def test_the_list_row_says_it_all(store: Store) -> None:
    await keep(store, whole("r1", question="q" * 200))
    (row,) = store.list_runs(RunQuery()).rows
    assert (row.question, row.roles, row.agents, row.turn_count) == (
        "q" * 80,
        "T·W·V",
        "alpha · alpha · gamma",
        3,
    )
    assert (row.verdict, row.seconds, row.tokens, row.cost) == (Verdict.ACCEPT, 9.0, 60, 0.04)
    assert row.unpriced == 0


async def test_calls_unknown_costs_and_reuse_are_stored(store: Store) -> None:
    live: list[AnyRunEvent] = [
        started("r1"),
        *turn_events("r1", 1, calls=3, unpriced=2),
        *turn_events("r1", 2, cost=None, reused=True, calls=0),
        finished("r1", totals=Totals(turns=2, calls=3, cost=0.01, unpriced=2)),
    ]
    await keep(store, live)
    run = store.run("r1")
    assert run is not None
    assert [(t.calls, t.unpriced, t.reused) for t in run.turns] == [(3, 2, False), (0, 0, True)]
    assert run.totals is not None
    assert (run.totals.calls, run.totals.unpriced) == (3, 2)
    assert [row.unpriced for row in store.list_runs(RunQuery()).rows] == [2]
    told = [event for event in store.events_of("r1") if isinstance(event, TurnFinished | RunFinished)]
    assert [replace(event, seq=0, at=0.0) for event in told] == [
        replace(event, seq=0, at=0.0) for event in live if isinstance(event, TurnFinished | RunFinished)
    ]


async def test_the_sums_so_far_leave_reused_replies_out(store: Store) -> None:
    events = [
        started("r1"),
        *turn_events("r1", 1, calls=2, unpriced=1),
        *turn_events("r1", 2, cost=0.5, reused=True),
        *turn_events("r1", 3, cost=None, unpriced=1),
    ]
    async with aclosing(store.record(play(events))) as recorded:
        async for event in recorded:
            if isinstance(event, TurnFinished) and event.turn == 3:
                break
    run = store.run("r1")
    assert run is not None
    assert run.totals is not None
    assert (run.totals.calls, run.totals.cost, run.totals.unpriced) == (3, 0.01, 2)
    assert run.totals.usage == Usage(20, 10)
    (row,) = store.list_runs(RunQuery()).rows
    assert (row.cost, row.unpriced) == (0.01, 2)


@pytest.mark.parametrize(("kind", "unpriced"), [("openai", 1), ("gemini", 1), ("symbolic", 0), (None, 0)])
async def test_nobody_knows_what_a_call_that_was_cut_off_cost(store: Store, kind: str | None, unpriced: int) -> None:
    begun = turn_events("r1", 1)[0]
    assert isinstance(begun, TurnStarted)
    begun = replace(begun, request={"kind": kind} if kind else {})
    async with aclosing(store.record(play([started("r1"), begun]))) as recorded:
        await anext(recorded)
        await anext(recorded)
    cut = StoredTurn("t", 1, request=begun.request, started_at=1.0)
    store.add_runs([StoredRun("r2", status=Status.RUNNING, turns=(cut,), created_at=1.0)])
    assert store.recover() == 1
    for run_id, status in (("r1", Status.CANCELLED), ("r2", Status.INTERRUPTED)):
        run = store.run(run_id)
        assert run is not None
        assert run.totals is not None
        assert (run.status, run.turns[0].unpriced, run.totals.unpriced) == (status, unpriced, unpriced)
    assert [row.unpriced for row in store.list_runs(RunQuery()).rows] == [unpriced] * 2


async def test_a_turn_is_committed_before_it_is_passed_on(store: Store, db_url: str) -> None:
    other = Store.open(db_url)
    try:
        async for event in store.record(play(whole("r1"))):
            seen = other.run("r1")
            assert seen is not None
            if isinstance(event, RunStarted):
                assert seen.status is Status.RUNNING
            if isinstance(event, TurnStarted):
                assert seen.turns[-1].decision == event.decision
            if isinstance(event, TurnFinished):
                assert (seen.turns[-1].text, seen.turns[-1].finish) == (event.text, event.finish)
    finally:
        other.close()


async def test_running_text_is_flushed_while_the_agent_says_no_more(store: Store) -> None:
    hold = asyncio.Event()

    async def events() -> AsyncIterator[AnyRunEvent]:
        yield started("r1")
        first, _, delta, _ = turn_events("r1", 1, text="so far")
        yield first
        yield Delta(run_id="r1", seq=0, at=0.0, turn=1, attempt=1, text="void")
        yield TurnReset(run_id="r1", seq=0, at=0.0, turn=1, attempt=1, reason="again")
        yield delta
        await hold.wait()

    async def partial() -> None:
        run = store.run("r1")
        while run is None or run.turns[0].raw != "so far":
            await asyncio.sleep(0.05)
            run = store.run("r1")
        assert run.turns[0].finish is None
        assert [e.event for e in store.events_of("r1")] == ["run_started", "turn_started", "delta"]

    async with aclosing(store.record(events())) as recorded:
        for _ in range(5):
            await anext(recorded)
        waiting = asyncio.ensure_future(anext(recorded))
        await asyncio.wait_for(partial(), 10)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


class Scripted:
    """Events with a memory of having been closed; `fail` is raised after them."""

    def __init__(self, events: list[AnyRunEvent], fail: Exception | None = None, hang: bool = False) -> None:
        self.events, self.fail, self.hang, self.closed = events, fail, hang, 0

    async def stream(self) -> AsyncIterator[AnyRunEvent]:
        try:
            for event in self.events:
                yield event
            if self.fail:
                raise self.fail
            if self.hang:
                await asyncio.sleep(3600)
        finally:
            self.closed += 1


@pytest.mark.parametrize("taken", [1, 2, 4, 5, 9])
async def test_closing_midway_closes_the_inner_one_and_cancels_the_run(store: Store, taken: int) -> None:
    script = Scripted(whole("r1"))
    async with aclosing(store.record(script.stream())) as events:
        for _ in range(taken):
            await anext(events)
    run = store.run("r1")
    assert run is not None
    assert script.closed == 1
    assert (run.status, run.stop_reason) == (Status.CANCELLED, StopReason.CANCELLED)
    assert run.finished_at is not None
    assert all(t.finish is not None for t in run.turns)
    if taken == 4:
        assert (run.turns[0].text, run.turns[0].finish) == ("Add them.", Finish.INCOMPLETE)
        assert run.turns[0].error is not None
        assert run.turns[0].error.kind == "cancelled"


async def test_closing_before_the_first_event_stores_nothing(store: Store) -> None:
    script = Scripted(whole("r1"))
    await store.record(script.stream()).aclose()
    assert store.list_runs(RunQuery()).total == 0


async def test_closing_after_the_end_leaves_the_run_done(store: Store) -> None:
    events = whole("r1")
    async with aclosing(store.record(play(events))) as recorded:
        for _ in events:
            await anext(recorded)
    run = store.run("r1")
    assert run is not None
    assert run.status is Status.DONE


async def test_cancelling_the_task_cancels_the_run(store: Store) -> None:
    script = Scripted(whole("r1")[:4], hang=True)
    reached = asyncio.Event()

    async def consume() -> None:
        async with aclosing(store.record(script.stream())) as events:
            async for event in events:
                if isinstance(event, Delta) and event.channel == "text":
                    reached.set()

    task = asyncio.create_task(consume())
    await asyncio.wait_for(reached.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    run = store.run("r1")
    assert run is not None
    assert (run.status, script.closed) == (Status.CANCELLED, 1)


async def test_cancelling_at_any_await_never_leaves_it_running(store: Store) -> None:
    async def consume(script: Scripted) -> None:
        async with aclosing(store.record(script.stream())) as events:
            async for _ in events:
                pass

    seen = set()
    for steps in range(0, 40, 3):
        task = asyncio.create_task(consume(Scripted(whole(f"r{steps}"))))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        store._writer.submit(lambda: None).result()  # a write may still be under way
        run = store.run(f"r{steps}")
        seen.add(run and run.status)
    assert Status.CANCELLED in seen
    assert seen <= {None, Status.CANCELLED, Status.DONE}


async def test_an_error_inside_fails_the_run_and_goes_on(store: Store) -> None:
    script = Scripted(whole("r1")[:5], fail=AgentError("no key sk-abcdefgh12345678 for you", kind="auth"))
    with pytest.raises(AgentError, match="no key"):
        [event async for event in store.record(script.stream())]
    run = store.run("r1")
    assert run is not None
    assert (run.status, run.stop_reason) == (Status.FAILED, StopReason.FAILED)
    assert run.error == Failure("auth", "no key [redacted] for you")
    assert len(run.turns) == 1


async def test_a_stream_that_just_ends_is_a_failure(store: Store) -> None:
    await keep(store, whole("r1")[:5])
    run = store.run("r1")
    assert run is not None
    assert run.status is Status.FAILED
    assert run.totals is not None
    assert run.totals.usage == Usage(10, 5)


async def test_calls_of_one_run_may_overlap(store: Store) -> None:
    a = turn_events("r1", 1, None, "A", agent="alpha")
    b = turn_events("r1", 2, None, "B", agent="beta")
    mixed = [event for pair in zip(a, b, strict=True) for event in pair]
    await keep(store, [started("r1"), *mixed, finished("r1")])
    run = store.run("r1")
    assert run is not None
    assert [(t.text, t.role) for t in run.turns] == [("A", None), ("B", None)]


async def test_a_full_disk_is_told_after_closing_and_keeps_what_was_there(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'a.db'}")
    events = whole("r1")
    huge = turn_events("r1", 2, Role.WORKER, "x" * 5_000_000)
    script = Scripted([*events[:5], *huge])

    def limit(connection: Any, _record: Any, _proxy: Any) -> None:
        connection.execute("PRAGMA max_page_count = 200")

    sa_event.listen(store._database.engine, "checkout", limit)
    try:
        with pytest.raises(StoreError, match=r"disk is full.*Free some space"):
            [event async for event in store.record(script.stream())]
        assert script.closed == 1
        run = store.run("r1")
        assert run is not None
        assert run.turns[0].text == "Add them."
        assert run.status is Status.FAILED
    finally:
        store.close()


async def test_recording_into_a_closed_store_is_told(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'a.db'}")
    store.close()
    with pytest.raises(StoreError, match="closed"):
        await keep(store, whole("r1"))


async def test_the_loop_is_not_held_up_by_a_locked_database(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = Store.open(f"sqlite:///{path}")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    recording = asyncio.ensure_future(keep(store, whole("r1")))
    ticks = 0
    for _ in range(20):
        await asyncio.sleep(0.01)
        ticks += 1
    assert ticks == 20
    assert not recording.done()
    other.execute("ROLLBACK")
    other.close()
    await asyncio.wait_for(recording, 30)
    store.close()


# --- Text that databases refuse -------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["ok \ud83d end", "ok \x00 end", "ok \udc00\ud800 end"])
async def test_odd_characters_do_not_lose_the_answer(store: Store, bad: str) -> None:
    events = [
        started("r1", f"q {bad}"),
        *turn_events("r1", 1, Role.WORKER, bad, request_id=bad, error=None),
        finished("r1", bad, error=Failure("internal", bad)),
    ]
    await keep(store, events)
    run = store.run("r1")
    assert run is not None
    for value in (run.answer, run.turns[0].text, run.turns[0].raw):
        assert value is not None
        assert value.startswith("ok ")
        assert value.endswith(" end")
        assert "\x00" not in value
        value.encode("utf-8")
    assert run.question.startswith("q ok ")
    store.set_label("r1", "note", bad)
    assert store.labels_of("r1")[0].value.startswith("ok ")


async def test_numbers_that_are_not_finite_become_null(store: Store) -> None:
    nan, inf = math.nan, math.inf
    events: list[AnyRunEvent] = [
        started("r1"),
        *turn_events("r1", 1, seconds=nan, cost=-inf, first_token_s=inf),
        finished("r1", totals=Totals(cost=nan, seconds=inf)),
    ]
    first = events[1]
    assert isinstance(first, TurnStarted)
    assert first.decision is not None
    events[1] = replace(first, decision=replace(first.decision, agent_logits={"a": nan, "b": 1.0}))
    await keep(store, events)
    run = store.run("r1")
    assert run is not None
    (turn,) = run.turns
    assert (turn.seconds, turn.cost, turn.first_token_s) == (None, None, None)
    assert turn.decision is not None
    assert turn.decision.agent_logits == {"b": 1.0}
    with store._database.read() as connection:
        assert connection.execute(select(runs.c.cost, runs.c.seconds)).one() == (None, None)


async def test_json_none_is_sql_null(store: Store) -> None:
    await keep(store, whole("r1"))
    with store._database.read() as connection:
        for column, found in (("suggestion", 3), ("error", 3), ("verdict", 3), ("decision", 0)):
            query = sql(f"SELECT count(*) FROM turns WHERE {column} IS NULL")
            assert connection.execute(query).scalar_one() == found, column


async def test_nothing_like_a_key_is_written(store: Store, tmp_path: Path) -> None:
    key = "sk-abcdefgh12345678"
    spec = AgentSpec("alpha", "gguf", options={"api_key": key, "base_url": f"https://h/v1?key={key}", "top": 1})
    events = whole("r1", pool=(spec,))
    begun = events[1]
    assert isinstance(begun, TurnStarted)
    events[1] = replace(
        begun, request={"headers": {"Authorization": key}, "options": {"extra": key}, "messages": [{"content": "x"}]}
    )
    last = events[-1]
    assert isinstance(last, RunFinished)
    events[-1] = replace(last, error=Failure("auth", f"Bearer {key} was refused"))
    await keep(store, events)
    store.put_reply("k", 0, {"agent": "alpha", "options": {"api_key": key, "x": key}}, Reply("hi", Finish.STOP))
    run = store.run("r1")
    assert key not in wire.canonical(run)
    assert run is not None
    assert run.pool[0].options["top"] == 1
    with store._database.read() as connection:
        assert key not in str(connection.execute(select(agent_replies)).all())


# --- Crashes ------------------------------------------------------------------------------------------------

_CHILD = """
import asyncio, sys
from storage.store import Store
from tests.test_store import started, turn_events, Delta

async def events():
    yield started("r1", owner=None)
    for turn in range(1, 100000):
        begun, _, _, ended = turn_events("r1", turn, text=f"text {turn}")
        yield begun
        for piece in range(3):
            yield Delta(run_id="r1", seq=0, at=0.0, turn=turn, attempt=1, text=f"{piece} ")
            await asyncio.sleep(0.001)
        yield ended

async def main():
    async for event in Store.open(sys.argv[1]).record(events()):
        if event.event == "turn_finished":
            print(event.turn, flush=True)
        if event.event == "turn_started" and event.turn == int(sys.argv[2]):
            await asyncio.sleep(3600)

asyncio.run(main())
"""


def child(url: str, hold_at: int = -1) -> subprocess.Popen[str]:
    root = Path(__file__).parent.parent
    command = [sys.executable, "-c", _CHILD, url, str(hold_at)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)


@pytest.mark.parametrize("after", [0.0, 0.013, 0.05])
def test_kill_9_keeps_every_turn_that_was_passed_on(db_url: str, after: float) -> None:
    process = child(db_url)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    told = 1 + len(process.stdout.read().split())
    process.wait()
    store = Store.open(db_url)
    try:
        before = store.run("r1")
        assert before is not None
        assert before.status is Status.RUNNING
        assert store.recover() == 1
        run = store.run("r1")
        assert run is not None
        assert run.status is Status.INTERRUPTED
        assert run.error is not None
        assert run.finished_at is not None
        done = [t for t in run.turns if t.counts]
        assert len(done) >= told
        assert [t.text for t in done] == [f"text {n}" for n in range(1, len(done) + 1)]
        for cut in run.turns[len(done) :]:
            assert (cut.finish, cut.error and cut.error.kind) == (Finish.INCOMPLETE, "interrupted")
        assert store.recover() == 0
        assert store.events_of("r1")[-1].event == "run_finished"
        assert store.list_runs(RunQuery(search="text 1")).total == 1
    finally:
        store.close()


def test_recover_leaves_a_living_process_alone(db_url: str) -> None:
    process = child(db_url, hold_at=2)
    store = Store.open(db_url)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert store.recover() == 0
        run = store.run("r1")
        assert run is not None
        assert run.status is Status.RUNNING
        process.kill()
        process.wait()
        assert store.recover() == 1
    finally:
        process.kill()
        process.wait()
        process.stdout.close() if process.stdout else None
        store.close()


async def test_recover_leaves_runs_of_this_process_alone(store: Store, db_url: str) -> None:
    other = Store.open(db_url)
    async with aclosing(store.record(play(whole("r1")))) as events:
        await anext(events)
        assert (store.recover(), other.recover()) == (0, 0)
    other.close()
    run = store.run("r1")
    assert run is not None
    assert run.status is Status.CANCELLED


def test_who_is_alive() -> None:
    me, now = lease.identity(), 1000.0
    place, pid, start = me.split("|")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert lease.alive(me, None, now)
    assert lease.alive(me, now - 1e6, now)  # busy or suspended, but here
    assert not lease.alive(None, now, now)
    assert not lease.alive("", now, now)
    assert not lease.alive("nonsense", None, now)
    assert lease.alive(f"elsewhere|{pid}|{start}", now - 5, now)
    assert not lease.alive(f"elsewhere|{pid}|{start}", now - 1000, now)
    if sys.platform == "linux":
        assert not lease.alive(f"{place}|{pid}|{int(start) + 1}", now, now)  # the id was given to another process
        assert not lease.alive(f"{place}|{gone.pid}|{start}", now, now)
    assert os.getpid() == int(pid)


# --- Listing ------------------------------------------------------------------------------------------------


@pytest.fixture
async def five(store: Store) -> Store:
    """Five runs: owners, roles, verdicts and times differ."""
    await keep(store, whole("a", "Alpha question", 100.0))
    await keep(store, whole("b", "Beta question", 200.0, owner="ann", source=Source.API))
    await keep(
        store,
        [
            started("c", "Gamma 100% _sure_", 300.0, owner="bob", checkpoint_id="c2"),
            *turn_events("c", 1, Role.WORKER, "Straße 日本語 text", agent="solo", seconds=1.0),
            finished(
                "c",
                "x",
                stop_reason=StopReason.TURNS_EXHAUSTED,
                totals=Totals(turns=1, seconds=1.0, usage=Usage(1, 1)),
            ),
        ],
    )
    revise = turn_events("d", 2, Role.VERIFIER, "revise", agent="gamma", verdict=Verdict.REVISE)
    await keep(store, [started("d", "Delta", 400.0, method="fixed"), *turn_events("d", 1), *revise, finished("d")])
    await keep(store, [started("e", "Epsilon", 500.0), finished("e", None, status=Status.FAILED)])
    return store


ALL = RunQuery(all_owners=True)


# Tables, each gone through on one database: filling it is what takes time.
FILTERS: list[tuple[RunQuery, str]] = [
    (ALL, "edcba"),
    (replace(ALL, descending=False), "abcde"),
    (RunQuery(), "eda"),
    (RunQuery(owner="ann"), "edba"),
    (RunQuery(owner="bob"), "edca"),
    (RunQuery(owner="nobody"), "eda"),
    (replace(ALL, status=Status.FAILED), "e"),
    (replace(ALL, stop_reason=StopReason.TURNS_EXHAUSTED), "c"),
    (replace(ALL, verdict=Verdict.REVISE), "d"),
    (replace(ALL, verdict=Verdict.ACCEPT), "ba"),
    (replace(ALL, agent="solo"), "c"),
    (replace(ALL, agent="beta"), "ba"),  # in a failed attempt
    (replace(ALL, agent="sol"), ""),
    (replace(ALL, roles=(Role.THINKER, Role.WORKER, Role.VERIFIER)), "ba"),
    (replace(ALL, roles=(Role.WORKER,)), "c"),
    (replace(ALL, roles=()), "e"),
    (replace(ALL, source=Source.API), "b"),
    (replace(ALL, method="fixed"), "d"),
    (replace(ALL, checkpoint_id="c2"), "c"),
    (replace(ALL, since=200.0, until=400.0), "cb"),
    (replace(ALL, page_size=2), "ed"),
    (replace(ALL, page_size=2, page=3), "a"),
    (replace(ALL, page_size=2, page=9), ""),
    (replace(ALL, sort="question", descending=False), "abdec"),
    (replace(ALL, sort="verdict", descending=False), "badec"),  # without a verdict last
    (replace(ALL, sort="verdict"), "dbaec"),
    (replace(ALL, sort="seconds", descending=False), "cedba"),
    (replace(ALL, sort="turn_count"), "badce"),
]
SEARCHES = [
    ("question", "ba"),
    ("QUESTION", "ba"),
    ("  Beta question ", "b"),
    ("uestio", "ba"),  # inside a word
    ("It is 4", "ba"),  # an answer
    ("add them", "ba"),  # a turn's text
    ("100%", "c"),
    ("0% _s", "c"),
    ("%_", ""),
    ("_s", "c"),
    ("%", "c"),
    ("_", "c"),
    ("straße", "c"),
    ("日本語", "c"),
    ("日本", "c"),
    ("本", "c"),
    ("ST", "cba"),  # shorter than a trigram
    ('"', ""),
    ('a" OR "b', ""),
    ("alpha OR beta", ""),
    ("question*", ""),
    ("question:", ""),
    ("answer:4", ""),
    ("NOT x", ""),
    ("(((", ""),
    ("'; DROP TABLE runs; --", ""),
    ("\\", ""),
    ("qu\x00", ""),
    ("\ud83d", ""),
    ("   ", "edcba"),
]


async def test_filters_sort_and_pages(five: Store) -> None:
    found = [(query, "".join(row.id for row in five.list_runs(query).rows)) for query, _ in FILTERS]
    assert found == FILTERS
    for query, _ in FILTERS:
        everything = five.list_runs(replace(query, page=1, page_size=50))
        assert five.list_runs(query).total == everything.total == len(everything.rows)


async def test_search_is_literal(five: Store) -> None:
    pages = {search: five.list_runs(replace(ALL, search=search)) for search, _ in SEARCHES}
    assert [(search, "".join(row.id for row in page.rows)) for search, page in pages.items()] == SEARCHES
    assert {search: page.total for search, page in pages.items()} == {search: len(ids) for search, ids in SEARCHES}


async def test_search_respects_owners_and_filters(five: Store) -> None:
    assert five.list_runs(RunQuery(search="straße", owner="ann")).total == 0
    assert five.list_runs(RunQuery(search="question", owner="ann", source=Source.API)).total == 1


@pytest.mark.parametrize("query", [replace(ALL, sort="answer; --"), replace(ALL, search="x" * 1001)])  # type: ignore[arg-type]
async def test_bad_queries_are_refused(store: Store, query: RunQuery) -> None:
    with pytest.raises(InputError):
        store.list_runs(query)


async def test_search_survives_vacuum_and_edits(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = Store.open(f"sqlite:///{path}")
    for name in "abc":
        await keep(store, whole(name, f"question {name * 5}"))
    store.delete_runs(["b"])
    store.purge_deleted(0)
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("VACUUM")
    store = Store.open(f"sqlite:///{path}")
    assert [row.id for row in store.list_runs(RunQuery(search="ccccc")).rows] == ["c"]
    assert store.list_runs(RunQuery(search="bbbbb")).total == 0
    with store._database.write() as connection:
        connection.execute(sql("UPDATE runs SET answer = 'changed wholly' WHERE id = 'c'"))
        for table in ("runs_fts", "turns_fts"):
            connection.execute(sql(f"INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 1)"))
    assert [row.id for row in store.list_runs(RunQuery(search="GED WHOL")).rows] == ["c"]
    store.close()


async def test_lists_read_no_bodies(five: Store) -> None:
    statements: list[str] = []

    def seen(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement.lower())

    sa_event.listen(five._database.engine, "before_cursor_execute", seen)
    five.list_runs(ALL)
    listed = " ".join(statements)
    assert "substr(runs.question" in listed
    for body in ("runs.answer", "runs.messages", "runs.pool", "turns.text", "turns.raw", "turns.hidden"):
        assert body not in listed


# --- Owners and deletion ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run_id", "owner", "seen"),
    [("a", None, True), ("a", "ann", True), ("b", "ann", True), ("b", None, False), ("b", "bob", False)],
)
async def test_owner_rule_for_one_run(five: Store, run_id: str, owner: str | None, seen: bool) -> None:
    assert (five.run(run_id, owner) is not None) is seen
    assert five.run(run_id, all_owners=True) is not None
    assert five.delete_runs([run_id], owner) == int(seen)
    assert five.restore_runs([run_id], owner) == int(seen)
    if not seen:
        with pytest.raises(InputError, match="no run"):
            five.set_label(run_id, "thumb", "up", owner=owner)


async def test_delete_is_soft_and_undone(five: Store) -> None:
    assert five.delete_runs(["a", "b", "nothing"], all_owners=True) == 2
    assert five.delete_runs(["a"]) == 0
    assert five.list_runs(ALL).total == 3
    assert five.list_runs(replace(ALL, search="question")).total == 0
    assert {row.id for row in five.list_runs(replace(ALL, deleted=True)).rows} == {"a", "b"}
    assert five.purge_deleted(3600) == 0
    assert five.restore_runs(["a", "b"], all_owners=True) == 2
    assert five.list_runs(ALL).total == 5


async def test_purge_leaves_no_orphans(five: Store) -> None:
    for run_id in "abcde":
        five.set_label(run_id, "thumb", "up", all_owners=True)
    first = five.run("a")
    assert first is not None
    five.set_label("a", "thumb", "up", turn_id=first.turns[0].id)
    five.delete_runs("abcde", all_owners=True)
    assert five.purge_deleted(0) == 5
    assert (rows_in(five, turns), rows_in(five, sql("labels"))) == (0, 0)
    if five._database.sqlite:
        with five._database.read() as connection:
            for table in ("runs_fts", "turns_fts"):
                # An external-content table lists its content's rows; its index is what must be empty.
                found = connection.execute(
                    sql(f"SELECT count(*) FROM {table} WHERE {table} MATCH 'ques OR tex OR add'")
                )
                assert found.scalar_one() == 0
                assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


async def test_a_bulk_delete_outside_the_store_takes_the_turns_along(five: Store) -> None:
    with five._database.write() as connection:
        connection.execute(sql("DELETE FROM runs WHERE id = 'a'"))
    orphans = sql("SELECT count(*) FROM turns WHERE run_id NOT IN (SELECT id FROM runs)")
    with five._database.read() as connection:
        assert connection.execute(orphans).scalar_one() == 0


async def test_more_ids_than_one_statement_takes(store: Store) -> None:
    await keep(store, whole("a"))
    assert store.delete_runs([*(f"x{i}" for i in range(70_000)), "a"]) == 1


# --- Labels -------------------------------------------------------------------------------------------------


async def test_labels_of_runs_and_turns(five: Store) -> None:
    run = five.run("a")
    assert run is not None
    turn = run.turns[0].id
    five.set_label("a", "thumb", "down", labeller="ann")
    up = five.set_label("a", "thumb", "up", labeller="ann")
    five.set_label("a", "reference", "4" * 200)
    five.set_label("a", "thumb", "up", labeller="ann", turn_id=turn)
    assert up is not None
    assert [(m.kind, m.value[:4], m.turn_id) for m in five.labels_of("a")] == [
        ("thumb", "up", None),
        ("reference", "4444", None),
        ("thumb", "up", turn),
    ]
    row = five.list_runs(RunQuery(label="thumb")).rows[0]
    assert row.labels == {"thumb": "up", "reference": "4" * 80}
    assert {r.id for r in five.list_runs(replace(ALL, label="thumb", unlabelled=True)).rows} == set("bcde")
    assert five.list_runs(replace(ALL, unlabelled=True)).total == 4
    again = five.run("a")
    assert again is not None
    assert again.labels == five.labels_of("a")
    assert five.set_label("a", "thumb", None, labeller="ann") is None
    assert len(five.labels_of("a")) == 2
    with pytest.raises(InputError, match="no turn"):
        five.set_label("d", "thumb", "up", turn_id=turn)


# --- Training -----------------------------------------------------------------------------------------------


def generation(number: int, fitness: tuple[float, ...]) -> Generation:
    return Generation(
        job_id="j",
        seq=0,
        at=5.0,
        number=number,
        fitness=fitness,
        sigma=0.1,
        evaluations=4,
        usage=Usage(1, 2),
        agent_shares={"z": 0.7, "a": 0.3},
    )


def test_training_runs_and_generations(store: Store) -> None:
    store.create_training_run(
        TrainingRun("t1", "evolve", seed=3, params={"lam": 8, "api_key": "x", "none": None}, created_at=1.0)
    )
    store.create_training_run(TrainingRun("t2", "sft", owner="ann", created_at=2.0))
    exact = (0.1 + 0.2, 1 / 3, 5e-324, -0.0, math.nan, math.inf)
    store.append_generation("t1", generation(0, exact), seed=2**40)
    store.append_generation("t1", generation(0, exact), seed=2**40)
    store.append_generation("t1", generation(1, (1.0,)), seed=2)
    first, second = store.generations("t1")
    assert np.array(first.fitness[:4]).tobytes() == np.array(exact[:4]).tobytes()
    assert math.isnan(first.fitness[4])
    assert math.isnan(first.fitness[5])
    assert (first.seed, first.usage, list(first.agent_shares)) == (2**40, Usage(1, 2), ["z", "a"])
    assert second.number == 1
    with pytest.raises(StoreError, match="another result"):
        store.append_generation("t1", generation(1, (0.5,)), seed=2)
    with pytest.raises(StoreError):
        store.append_generation("nothing", generation(0, ()), seed=1)
    store.add_validation(
        "t1", Validation(job_id="j", seq=1, at=1.0, name="coordinator", n=9, accuracy=0.5, low=0.2, high=0.8)
    )
    store.update_training_run("t1", status=Status.DONE, checkpoint_id="c1", result={"best": 1})
    run = store.training_run("t1")
    assert run is not None
    assert (run.status, run.result, run.params) == (Status.DONE, {"best": 1}, {"lam": 8, "none": None})
    assert (run.validations[0]["accuracy"], run.finished_at is not None) == (0.5, True)
    assert [t.id for t in store.training_runs()] == ["t1"]
    assert [t.id for t in store.training_runs("ann")] == ["t2", "t1"]
    with pytest.raises(StoreError, match="no training run"):
        store.update_training_run("nothing", status=Status.DONE)


def test_a_dead_training_run_is_interrupted_and_can_go_on(store: Store) -> None:
    store.create_training_run(TrainingRun("t1", "evolve"))
    store.create_training_run(TrainingRun("t2", "evolve"))
    with store._database.write() as connection:
        connection.execute(
            sql("UPDATE training_runs SET process = 'elsewhere|1|1', heartbeat_at = 5 WHERE id = 't1'")
        )
    store.recover()
    assert {t.id: t.status for t in store.training_runs()} == {"t1": Status.INTERRUPTED, "t2": Status.RUNNING}
    store.update_training_run("t1", status=Status.RUNNING)
    store.recover()
    resumed = store.training_run("t1")
    assert resumed is not None
    assert (resumed.status, resumed.error, resumed.finished_at) == (Status.RUNNING, None, None)


def job_events() -> list[AnyJobEvent]:
    common: dict[str, Any] = {"job_id": "j", "seq": 0, "at": 5.0}
    return [
        JobStarted(**common, kind="evolve", params={"lam": 8}, seed=3),
        Progress(**common, done=1, total=2, unit="tasks"),
        generation(0, (0.5, 1.0)),
        Validation(**common, name="held out", n=9, accuracy=0.5, low=0.2, high=0.8),
        CheckpointSaved(**common, checkpoint_id="c9", path="/c9"),
        JobFinished(**common, status=Status.DONE, result={"path": "/c9"}),
    ]


async def job_stream(events: list[AnyJobEvent], fail: Exception | None = None) -> AsyncIterator[AnyJobEvent]:
    for event in events:
        yield event
    if fail:
        raise fail


async def test_a_training_job_is_stored_as_it_goes(store: Store) -> None:
    events = job_events()
    assert [event async for event in store.record_job(job_stream(events))] == events
    run = store.training_run("j")
    assert run is not None
    assert (run.method, run.status, run.seed, run.checkpoint_id) == ("evolve", Status.DONE, 3, "c9")
    assert (run.result, len(run.validations)) == ({"path": "/c9"}, 1)
    assert [(g.number, g.fitness, g.seed) for g in store.generations("j")] == [(0, (0.5, 1.0), 3)]
    saved = store.checkpoint("c9")
    assert saved is not None
    assert (saved.path, saved.training_run_id) == ("/c9", "j")


async def test_a_training_job_that_is_closed_or_fails(store: Store) -> None:
    async with aclosing(store.record_job(job_stream(job_events()))) as recorded:
        for _ in range(3):
            await anext(recorded)
    stopped = store.training_run("j")
    assert stopped is not None
    assert (stopped.status, stopped.error) == (Status.CANCELLED, None)
    with pytest.raises(AgentError):
        [e async for e in store.record_job(job_stream(job_events()[:4], AgentError("no", kind="billing")))]
    failed = store.training_run("j")
    assert failed is not None
    assert (failed.status, failed.error) == (Status.FAILED, Failure("billing", "no"))
    assert len(store.generations("j")) == 1


def test_checkpoints(store: Store) -> None:
    for at, (name, path) in enumerate([("c1", "/a"), ("c2", "/b"), ("c1", "/moved")]):
        store.save_checkpoint(StoredCheckpoint(name, path, {"lambda": 8, "k": None}, created_at=1.0 + at))
    assert [c.id for c in store.checkpoints()] == ["c2", "c1"]
    assert store.checkpoint("c1") == StoredCheckpoint("c1", "/moved", {"lambda": 8, "k": None}, None, 1.0)
    assert store.checkpoint("c3") is None


async def test_tasks(store: Store) -> None:
    await keep(store, whole("r1"))
    one = Task.make("1+1?", "2", tags=("easy",), params={"tolerance": 0.1})
    two = Task.make("2+2?", "4")
    assert store.add_tasks([one, two, one], run_id="r1") == 2
    assert store.add_tasks([replace(one, family="sums")]) == 0
    assert store.add_tasks([one], owner="ann") == 1
    assert {(t.task.id, t.owner, t.task.family) for t in store.tasks("ann")} == {
        (one.id, None, "sums"),
        (two.id, None, ""),
        (one.id, "ann", ""),
    }
    assert [t.task for t in store.tasks() if t.task.id == two.id] == [two]
    assert len(store.tasks(split=one.split, source="")) >= 1
    store.delete_runs(["r1"])
    store.purge_deleted(0)
    assert {t.run_id for t in store.tasks(all_owners=True)} == {None}
    assert (store.delete_tasks([one.id], "ann"), store.delete_tasks([one.id], "bob")) == (1, 0)


# --- Replies ------------------------------------------------------------------------------------------------


def test_replies_are_kept_once_and_whole(store: Store, db_url: str) -> None:
    replies: ReplyStore = store
    reply = Reply("4 \x00 \ud800", Finish.LENGTH, "hm", Usage(1, 2, 3, 4), 0.1, 0.2, 0.3, "id")
    replies.put_reply("k", 0, {"agent": "a"}, reply)
    replies.put_reply("k", 0, {"agent": "a"}, Reply("other", Finish.STOP))
    replies.put_reply("k", 1, {"agent": "a"}, Reply("second", Finish.REFUSED))
    other = Store.open(db_url)
    assert other.get_reply("k", 0) == replace(reply, text="4 \ufffd \ufffd")
    other.close()
    second = replies.get_reply("k", 1)
    assert second is not None
    assert (second.text, second.finish, second.cost) == ("second", Finish.REFUSED, None)
    assert replies.get_reply("k", 2) is None


def test_a_stored_reply_tells_how_it_was_received(store: Store) -> None:
    key = "sk-abcdefgh12345678"
    reply = Reply("x", Finish.STOP, calls=3, unpriced=2, warnings=("No temperature.", f"Bearer {key}"))
    store.put_reply("k", 0, {}, replace(reply, reused=True))
    found = store.get_reply("k", 0)
    assert found is not None
    assert found.warnings[0] == "No temperature."
    assert key not in found.warnings[1]
    assert replace(found, warnings=reply.warnings) == reply, "whoever reads it says that it is used again"


@pytest.mark.parametrize(
    "reply",
    [
        Reply("", Finish.STOP),
        Reply(" \n", Finish.STOP),
        *(Reply("x", finish) for finish in (Finish.ERROR, Finish.EMPTY, Finish.BLOCKED, Finish.INCOMPLETE)),
        Reply("", Finish.REFUSED),
    ],
)
def test_failed_and_empty_replies_are_not_kept(store: Store, reply: Reply) -> None:
    assert not keepable(reply)
    store.put_reply("k", 0, {}, reply)
    assert store.get_reply("k", 0) is None
    assert rows_in(store, agent_replies) == 0


def test_the_key_holds_every_field_that_is_sent() -> None:
    brief = Brief(Role.WORKER, (Message("user", "q"),))
    spec = AgentSpec("a", "openai", "m")
    base = Request(spec, (Message("user", "q"),), brief)
    others = [
        *(
            replace(base, sampling=replace(Sampling(), **changes))
            for changes in (
                {"temperature": 0.0},
                {"temperature": 1.0},
                {"temperature": 0.0, "max_tokens": 16},
                {"max_tokens": 16},
                {"top_p": 0.5},
                {"top_p": 1.0},
                {"seed": 0},
                {"seed": 1},
                {"effort": "low"},
                {"effort": "high"},
            )
        ),
        replace(base, messages=(Message("user", "r"),)),
        replace(base, messages=(Message("system", "q"),)),
        replace(base, messages=(*base.messages, Message("user", "q"))),
        *(
            replace(base, agent=replace(spec, **changes))
            for changes in (
                {"name": "b"},
                {"kind": "anthropic"},
                {"model": "m2"},
                {"model": None},
                {"base_url": "http://127.0.0.1:1/v1"},
                {"base_url": "http://127.0.0.1:2/v1"},
                {"options": {"x": 1}},
                {"options": {"x": 2}},
                {"options": {"x": {"y": None}}},
            )
        ),
    ]
    assert len({reply_key(request) for request in [base, *others]}) == 1 + len(others)
    # How a call is made, and what is only said about a member, is not in the key.
    outside: dict[str, Any] = {
        "service": {"retries": 0, "price": {"input": 1.0, "output": 2.0}},
        "key_env": "ANOTHER_KEY",
        "enabled": False,
        "description": "other words",
    }
    for name, value in outside.items():
        assert reply_key(replace(base, agent=replace(spec, **{name: value}))) == reply_key(base), name
    for changes in ({"via": ("server-1",)}, {"max_calls": 1}, {"brief": replace(brief, plan="p")}):
        assert reply_key(replace(base, **changes)) == reply_key(base), changes
    # No field was forgotten here.
    looked_at = {name for other in others for name in Sampling.__dataclass_fields__
                 if getattr(other.sampling, name) != getattr(base.sampling, name)}  # fmt: skip
    assert looked_at == set(Sampling.__dataclass_fields__)
    varied = {name for other in others for name in AgentSpec.__dataclass_fields__
              if getattr(other.agent, name) != getattr(spec, name)}  # fmt: skip
    assert varied | set(outside) == set(AgentSpec.__dataclass_fields__)
    # Whatever the order of members, writer and reader agree.
    a, b = {"x": 1, "y": [1, {"p": 2, "q": "ü"}]}, {"y": [1, {"q": "ü", "p": 2}], "x": 1}
    assert wire.digest(a) == wire.digest(b)


# --- Spending -------------------------------------------------------------------------------------------------


def spend(store: Store, at: float, agent: str = "a", usage: Usage | None = None, **changes: Any) -> None:
    fields: dict[str, Any] = {"run_id": None, "cost": 0.25, "failed": False} | changes
    store.add_spending(at=at, agent=agent, usage=Usage(10, 5) if usage is None else usage, **fields)


def test_spending_is_summed_since_a_time(store: Store) -> None:
    ledger: Ledger = store
    assert ledger.spent(0.0) == Spent()
    spend(store, 100.0)
    spend(store, 200.0, cost=None, failed=True, usage=Usage())
    spend(store, 300.0, cost=0.0, usage=Usage(None, 7, 3, 2))
    assert ledger.spent(0.0) == Spent(3, 22, 0.25, 1)
    assert ledger.spent(200.0) == Spent(2, 7, 0.0, 1)
    assert ledger.spent(200.1) == Spent(1, 7, 0.0, 0)
    assert ledger.spent(300.1) == Spent()


def test_spending_takes_odd_text_and_large_numbers(store: Store) -> None:
    spend(store, 1.0, "a\x00\ud800", Usage(10**12, 10**12), run_id="r\x00", cost=1e-9)
    spend(store, 1.0, cost=math.nan)
    assert store.spent(1.0) == Spent(2, 2 * 10**12 + 15, 1e-9, 1)


async def test_deleting_runs_does_not_make_the_day_cheaper(store: Store) -> None:
    await keep(store, whole("r1"))
    spend(store, 1000.0, run_id="r1")
    spend(store, 1000.0, run_id="never stored")
    store.delete_runs(["r1"])
    assert store.purge_deleted(0.0) == 1
    assert store.spent(0.0) == Spent(2, 30, 0.5)
    assert rows_in(store, spending) == 2


def test_spending_is_read_in_one_statement_by_its_index(store: Store) -> None:
    spend(store, 1.0)
    seen: list[str] = []
    sa_event.listen(store._database.engine, "before_cursor_execute", lambda *args: seen.append(args[2]))
    store.spent(0.5)
    reads = [statement for statement in seen if statement.lstrip().upper().startswith("SELECT")]
    assert len(reads) == 1
    if store._database.sqlite:
        with store._database.read() as connection:
            plan = str(connection.execute(sql("EXPLAIN QUERY PLAN " + reads[0].replace("?", "0"))).all())
        assert "ix_spending_at" in plan


# --- One database, several users ------------------------------------------------------------------------------


async def test_readers_and_writers_at_once(store: Store) -> None:
    async def write(name: int) -> None:
        await keep(store, whole(f"r{name}"))

    async def read() -> None:
        for _ in range(10):
            await asyncio.to_thread(store.list_runs, ALL)

    await asyncio.gather(*(write(i) for i in range(8)), *(read() for _ in range(3)))
    page = store.list_runs(ALL)
    assert page.total == 8
    assert {row.status for row in page.rows} == {Status.DONE}


async def test_in_memory_database_is_one_for_all_threads() -> None:
    store = Store.open("sqlite://")
    await keep(store, whole("r1"))
    assert (await asyncio.to_thread(store.list_runs, ALL)).total == 1
    store.close()
