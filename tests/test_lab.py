"""What training and the Tasks page keep, over both engines: hidden states, generations, training runs, jobs, tasks
and the queue of runs to label; and what is left when the disk is full."""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import event as sa_event
from sqlalchemy import func, select, update

from storage import joblog, lease
from storage.records import LabelQuery, StoredRun, StoredTask, TaskCount, TaskQuery, TrainingRun
from storage.schema import generations, states, training_runs
from storage.store import Store
from tests.pg import db_url, postgres_server, postgres_url
from trinity_core.errors import InputError, StoreError
from trinity_core.tasks.task import Task
from trinity_core.training.states import StateStore
from trinity_core.types import (
    AgentSpec,
    AnyJobEvent,
    CheckpointSaved,
    Failure,
    Generation,
    JobFinished,
    JobNote,
    JobPaused,
    JobStarted,
    Message,
    Progress,
    Source,
    Status,
    Validation,
)

__all__ = ["db_url", "postgres_server", "postgres_url"]

HEAD: dict[str, Any] = {"job_id": "j", "seq": 0, "at": 5.0}


@pytest.fixture
def store(db_url: str) -> Iterator[Store]:
    opened = Store.open(db_url)
    yield opened
    opened.close()


# --- Hidden states ------------------------------------------------------------------------------------------


def test_states_come_back_bit_for_bit_and_the_first_stays(store: Store, db_url: str) -> None:
    kept: StateStore = store
    odd = np.array([0.1, -0.0, math.inf, math.nan, 1e-45], "<f4").tobytes()
    kept.put_states({"a": odd, "b": b"\0\0\0\0"})
    kept.put_states({"a": b"\1\1\1\1", "c": b"\2\2\2\2"})
    kept.put_states({})
    other = Store.open(db_url)
    assert other.get_states(["c", "a", "nothing", "a"]) == {"a": odd, "c": b"\2\2\2\2"}
    assert other.get_states([]) == {}
    other.close()


def test_five_thousand_states_are_quick(store: Store) -> None:
    many = {f"{i:064x}": np.full(576, i, "<f4").tobytes() for i in range(5000)}
    began = time.perf_counter()
    store.put_states(many)
    assert store.get_states(list(many)) == many
    assert time.perf_counter() - began < 10.0


@pytest.mark.parametrize("bad", [b"", b"abc"])
def test_what_is_no_state_is_refused_and_nothing_is_stored(store: Store, bad: bytes) -> None:
    with pytest.raises(InputError, match="no float32 vector"):
        store.put_states({"good": b"\0\0\0\0", "bad": bad})
    assert store.get_states(["good", "bad"]) == {}


# --- Generations and training runs ---------------------------------------------------------------------------


def generation(number: int = 0, **changes: Any) -> Generation:
    return Generation(**HEAD | {"number": number, "fitness": (0.5, 1.0), "seed": 3} | changes)


def test_a_generation_keeps_all_it_said(store: Store) -> None:
    store.create_training_run(TrainingRun("j", "evolve"))
    told = generation(
        accuracies=(0.25, math.nan, 1 / 3), spread=(0.5, 0.125), mean_turns=1.75, skipped=2, status="flat_fitness"
    )
    store.append_generation("j", told)
    store.append_generation("j", generation(1, spread=(math.inf, 1.0), mean_turns=math.nan))
    first, second = store.generations("j")
    assert (first.seed, first.spread, first.mean_turns) == (3, (0.5, 0.125), 1.75)
    assert (first.skipped, first.status) == (2, "flat_fitness")
    assert (first.accuracies[0], first.accuracies[2]) == (0.25, 1 / 3)
    assert math.isnan(first.accuracies[1])
    assert (second.spread, second.mean_turns, second.accuracies, second.status) == (None, None, (), "")


def test_a_generation_told_again_must_be_the_same(store: Store) -> None:
    store.create_training_run(TrainingRun("j", "evolve"))
    store.append_generation("j", generation())
    store.append_generation("j", generation(cost=9.0))
    for other in (generation(seed=4), generation(fitness=(0.5, 0.5))):
        with pytest.raises(StoreError, match="another result"):
            store.append_generation("j", other)
    assert [(g.seed, g.fitness, g.cost) for g in store.generations("j")] == [(3, (0.5, 1.0), None)]


def test_a_validation_told_again_takes_the_place_of_the_first(store: Store) -> None:
    store.create_training_run(TrainingRun("j", "evolve"))
    common: dict[str, Any] = HEAD | {"n": 9, "low": 0.1, "high": 0.9}
    for name, number, accuracy in [
        ("a", 10, 0.5),
        ("b", 10, 0.6),
        ("a", 20, 0.7),
        ("a", 10, 0.8),
        ("a", None, 0.9),
    ] * 2:
        store.add_validation("j", Validation(**common, name=name, number=number, accuracy=accuracy))
    run = store.training_run("j")
    assert run is not None
    found = [(v["name"], v["number"], v["accuracy"]) for v in run.validations]
    assert sorted(found, key=str) == sorted(
        [("a", None, 0.9), ("a", None, 0.9), ("a", 10, 0.8), ("a", 20, 0.7), ("b", 10, 0.6)], key=str
    )
    with pytest.raises(StoreError, match="no training run"):
        store.add_validation("other", Validation(**common, name="a", accuracy=0.5))


def test_the_list_of_trainings_reads_no_pools_and_notes(store: Store) -> None:
    pool = (AgentSpec("a", "symbolic"),)
    for i in range(300):
        store.create_training_run(TrainingRun(f"t{i}", "evolve", pool=pool, created_at=float(i + 1)))
    store.add_note("t7", "budget", "Spent.", 1.0)
    statements: list[str] = []

    def seen(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    sa_event.listen(store._database.engine, "before_cursor_execute", seen)
    began = time.perf_counter()
    listed = store.training_runs()
    assert time.perf_counter() - began < 1.0
    sa_event.remove(store._database.engine, "before_cursor_execute", seen)
    (statement,) = (s for s in statements if "training_runs" in s)
    assert "pool" not in statement
    assert "notes" not in statement
    assert [t.id for t in listed] == [f"t{i}" for i in reversed(range(300))]
    assert listed[0].pool == ()
    whole = store.training_run("t7")
    assert whole is not None
    assert (whole.pool, whole.notes) == (pool, ({"kind": "budget", "message": "Spent.", "at": 1.0},))


def test_deleting_a_training_takes_its_generations_and_is_refused_while_it_runs(store: Store) -> None:
    store.create_training_run(TrainingRun("j", "evolve", owner="ann"))
    store.append_generation("j", generation())
    with pytest.raises(InputError, match="Stop it first"):
        store.delete_training_run("j")
    store.update_training_run("j", status=Status.CANCELLED)
    assert (store.delete_training_run("j"), store.delete_training_run("j")) == (True, False)
    assert store.training_run("j", all_owners=True) is None
    with store._database.read() as connection:
        assert connection.execute(select(func.count()).select_from(generations)).scalar_one() == 0


def _written_by(store: Store, process: str, heartbeat_at: float) -> None:
    with store._database.write() as connection:
        connection.execute(update(training_runs).values(process=process, heartbeat_at=heartbeat_at))


def test_a_training_of_another_living_process_is_neither_taken_over_nor_deleted(store: Store) -> None:
    store.create_training_run(TrainingRun("j", "evolve"))
    _written_by(store, "elsewhere|1|1", time.time())
    with pytest.raises(StoreError, match="Another process"):
        store.begin_training_run(TrainingRun("j", "evolve"))
    with pytest.raises(InputError, match="Stop it first"):
        store.delete_training_run("j")
    _written_by(store, "elsewhere|1|1", 5.0)  # silent for long: dead
    store.begin_training_run(TrainingRun("j", "evolve"))
    _written_by(store, "elsewhere|1|1", 5.0)
    assert store.delete_training_run("j")


# --- Jobs ---------------------------------------------------------------------------------------------------

POOL = [
    {"name": "a", "kind": "symbolic", "options": {"depth": 2}},
    {"name": "b", "kind": "openai", "model": "m", "options": {"api_key": "sk-abcdefgh12345678"}},
]
PLAN = {"method": "random", "seed": 3, "remote_tokens": 4096, "token_cost": 0.5}
BEGUN = JobStarted(**HEAD, kind="train", params={"plan": PLAN, "pool": POOL, "backbone": "bb"}, seed=3)
PAUSED = JobPaused(**HEAD, reason="Paused after generation 1.")


async def stream(events: Sequence[AnyJobEvent], fail: Exception | None = None) -> AsyncIterator[AnyJobEvent]:
    for event in events:
        yield event
    if fail:
        raise fail


async def follow(
    store: Store, events: Sequence[AnyJobEvent], fail: Exception | None = None, **options: Any
) -> TrainingRun:
    assert [e async for e in store.record_job(stream(events, fail), **options)] == [*events]
    return stored(store)


def stored(store: Store) -> TrainingRun:
    run = store.training_run("j", all_owners=True)
    assert run is not None
    return run


async def test_a_job_tells_method_pool_and_backbone(store: Store) -> None:
    run = await follow(store, [BEGUN, JobFinished(**HEAD, status=Status.DONE)], owner="ann")
    assert (run.method, run.backbone, run.owner, run.seed) == ("random", "bb", "ann", 3)
    assert run.params == {"plan": PLAN, "backbone": "bb"}
    assert [(s.name, s.kind, s.model, s.options) for s in run.pool] == [
        ("a", "symbolic", None, {"depth": 2}),
        ("b", "openai", "m", {}),
    ]


@pytest.mark.parametrize("params", [{"pool": ["a", "b"]}, {"plan": "odd", "pool": 3, "backbone": {}}, {}])
async def test_a_job_that_tells_its_pool_in_another_way_keeps_its_params(
    store: Store, params: dict[str, Any]
) -> None:
    run = await follow(store, [replace(BEGUN, kind="eval", params=params), JobFinished(**HEAD, status=Status.DONE)])
    assert (run.method, run.pool, run.backbone, run.params) == ("eval", (), None, params)


async def test_a_paused_job_can_be_told_from_a_crash_and_goes_on(store: Store) -> None:
    paused = await follow(store, [BEGUN, generation(), PAUSED], owner="ann")
    assert (paused.status, paused.paused, paused.finished_at is not None) == (Status.INTERRUPTED, True, True)
    assert paused.error == Failure("paused", "Paused after generation 1.", retryable=True)
    store.recover()
    assert stored(store) == paused
    changed = replace(BEGUN, params={"plan": {"method": "evolve"}}, at=99.0)
    async with aclosing(store.record_job(stream([changed, generation(), generation(1)]))) as events:
        await anext(events)
        going = stored(store)
        assert (going.status, going.error, going.finished_at) == (Status.RUNNING, None, None)
        assert (going.params, going.owner, going.created_at) == (paused.params, "ann", 5.0)
        await anext(events)
        await anext(events)
    assert [g.number for g in store.generations("j")] == [0, 1]
    assert (stored(store).status, stored(store).paused) == (Status.CANCELLED, False)


async def test_a_generation_has_its_own_seed_or_else_the_job_s(store: Store) -> None:
    await follow(store, [BEGUN, generation(seed=2**62), generation(1, seed=0), PAUSED])
    assert [g.seed for g in store.generations("j")] == [2**62, 3]


async def test_closing_after_the_pause_leaves_it_paused(store: Store) -> None:
    async with aclosing(store.record_job(stream([BEGUN, PAUSED, JobNote(**HEAD, kind="x", message="y")]))) as events:
        await anext(events)
        await anext(events)
    assert stored(store).paused


async def test_a_job_that_finishes_as_interrupted_after_its_pause_stays_paused(store: Store) -> None:
    run = await follow(store, [BEGUN, PAUSED, JobFinished(**HEAD, status=Status.INTERRUPTED, result={"n": 1})])
    assert (run.paused, run.result) == (True, {"n": 1})


async def test_a_job_that_fails_after_its_pause_failed(store: Store) -> None:
    with pytest.raises(InputError):
        await follow(store, [BEGUN, PAUSED], InputError("no"))
    run = stored(store)
    assert (run.status, run.paused) == (Status.FAILED, False)


async def test_notes_are_kept_redacted_and_bounded(store: Store) -> None:
    notes = [JobNote(**HEAD | {"at": float(i)}, kind="skipped", message=f"{i} \x00") for i in range(205)]
    secret = JobNote(**HEAD, kind="failed_calls", message="Bearer sk-abcdefgh12345678")
    run = await follow(store, [BEGUN, *notes, secret, JobFinished(**HEAD, status=Status.DONE)])
    assert len(run.notes) == 200
    assert run.notes[0] == {"kind": "skipped", "message": "6 \ufffd", "at": 6.0}
    assert run.notes[-1]["kind"] == "failed_calls"
    assert "abcdefgh" not in run.notes[-1]["message"]


async def test_progress_renews_the_sign_of_life_now_and_then(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblog, "BEAT_S", 1000.0)
    ticks: list[AnyJobEvent] = [Progress(**HEAD, done=i, total=None, unit="task") for i in range(4)]
    async with aclosing(store.record_job(stream([BEGUN, *ticks, PAUSED, *ticks]))) as events:
        await anext(events)
        _written_by(store, lease.identity(), 5.0)
        await anext(events)
        assert _heartbeat(store) == 5.0, "too soon"
        monkeypatch.setattr(joblog, "BEAT_S", 0.0)
        await anext(events)
        beat = _heartbeat(store)
        assert beat is not None
        assert time.time() - beat < 60.0
        assert [e async for e in events] == [*ticks[2:], PAUSED, *ticks]
    assert _heartbeat(store) is None, "nobody is at work on a paused one"


def _heartbeat(store: Store) -> float | None:
    with store._database.read() as connection:
        return connection.execute(select(training_runs.c.heartbeat_at)).scalar_one()


async def test_a_checkpoint_of_a_deleted_training_stays(store: Store) -> None:
    saved = CheckpointSaved(**HEAD, checkpoint_id="c", path="/c")
    await follow(store, [BEGUN, saved, PAUSED])
    assert store.delete_training_run("j")
    checkpoint = store.checkpoint("c")
    assert checkpoint is not None
    assert (checkpoint.path, checkpoint.training_run_id) == ("/c", None)


# --- Tasks --------------------------------------------------------------------------------------------------


def run_of(run_id: str, at: float = 1.0, **changes: Any) -> StoredRun:
    fields: dict[str, Any] = {
        "messages": (Message("user", f"Q {run_id}?"),),
        "answer": f"A {run_id}",
        "created_at": at,
    }
    return StoredRun(run_id, **fields | changes)


ONE = Task.make("How many Äpfel?", "7", grader="numeric", family="fruit", source="mine")
TWO = Task.make("100% of_it\\?", "Ärger", family="odd", source="mine")
THREE = Task.make("What is 2+2?", "4", family="sums", source="builtin")


def found(store: Store, **query: Any) -> set[str]:
    return {s.task.id for s in store.task_page(TaskQuery(**query)).rows}


def test_tasks_are_found_by_each_filter(store: Store) -> None:
    store.add_tasks([ONE], owner="ann")
    store.add_tasks([TWO, THREE])
    assert found(store, owner="ann") == {ONE.id, TWO.id, THREE.id}
    assert found(store, owner="bob") == found(store) == {TWO.id, THREE.id}
    assert found(store, all_owners=True, family="fruit") == {ONE.id}
    assert found(store, all_owners=True, source="mine", grader="exact") == {TWO.id}
    assert found(store, all_owners=True, split=THREE.split) == {
        t.id for t in (ONE, TWO, THREE) if t.split == THREE.split
    }
    assert found(store, family="") == set()
    everything = {"owner": "ann"}
    for search, task in [("äPFEL", ONE), ("% OF_", TWO), ("_it\\", TWO), ("ärg", TWO), (" 2+2 ", THREE)]:
        assert found(store, search=search, **everything) == {task.id}, search
    assert found(store, search="%") == {TWO.id}
    assert found(store, search="nothing like it") == set()
    assert [s.task for s in store.tasks("ann", search="äpfel", family="fruit")] == [ONE]
    with pytest.raises(InputError, match="at most"):
        store.task_page(TaskQuery(search="x" * 1001))


def test_pages_of_tasks_are_newest_first_and_whole(store: Store) -> None:
    many = [Task.make(f"{i}?", "x", family="even" if i % 2 == 0 else "odd") for i in range(25)]
    store.add_stored_tasks([StoredTask(task, created_at=float(i + 1)) for i, task in enumerate(many)])
    pages = [store.task_page(TaskQuery(page=n, page_size=10)) for n in (1, 2, 3, 4)]
    assert [s.task for page in pages for s in page.rows] == many[::-1]
    assert [(p.total, p.page, p.page_size, len(p.rows)) for p in pages] == [
        (25, 1, 10, 10), (25, 2, 10, 10), (25, 3, 10, 5), (25, 4, 10, 0),
    ]  # fmt: skip
    assert store.task_page(TaskQuery(family="even", page_size=2)).total == 13


def test_tasks_are_counted(store: Store) -> None:
    store.add_tasks([ONE], owner="ann")
    store.add_tasks([TWO, THREE, Task.make("2+3?", "5", family="sums", source="builtin", split=THREE.split)])
    assert store.task_counts(TaskQuery(owner="ann")) == (
        TaskCount("fruit", ONE.split, "numeric", "mine", 1),
        TaskCount("odd", TWO.split, "exact", "mine", 1),
        TaskCount("sums", THREE.split, "exact", "builtin", 2),
    )
    assert [c.n for c in store.task_counts(TaskQuery(family="sums"))] == [2]
    assert [c.family for c in store.task_counts()] == ["odd", "sums"]


def test_deleting_tasks_is_undone(store: Store) -> None:
    store.add_runs([run_of("r")])
    store.add_tasks([ONE, TWO], owner="ann", run_id="r")
    before = store.tasks("ann")
    assert store.delete_tasks([ONE.id, TWO.id, "none", *map(str, range(2000))], "ann") == 2
    assert store.tasks("ann") == ()
    assert (store.add_stored_tasks(before), store.add_stored_tasks(before)) == (2, 0)
    assert store.tasks("ann") == before
    store.delete_tasks([ONE.id], "ann")
    store.delete_runs(["r"])
    store.purge_deleted(0)
    assert store.add_stored_tasks(before) == 1, "its run is gone by now"
    assert {s.run_id for s in store.tasks("ann")} == {None}


def test_one_task(store: Store) -> None:
    store.add_tasks([ONE])
    store.add_tasks([replace(ONE, family="hers")], owner="ann")
    theirs = [store.task(ONE.id, owner) for owner in ("ann", "bob", None)]
    assert [s and (s.owner, s.task.family) for s in theirs] == [("ann", "hers"), (None, "fruit"), (None, "fruit")]
    assert store.task("nothing") is None


def test_a_changed_task_keeps_its_run(store: Store) -> None:
    store.add_runs([run_of("r")])
    store.add_stored_tasks([StoredTask(ONE, "ann", "r", 7.0), StoredTask(THREE, "ann")])
    assert store.replace_task(ONE.id, TWO, "ann") == StoredTask(TWO, "ann", "r", 7.0)
    assert {s.task.id for s in store.tasks("ann")} == {TWO.id, THREE.id}
    same = replace(TWO, family="new", tags=("x",))
    assert store.replace_task(TWO.id, same, "ann").task == same
    merged = store.replace_task(TWO.id, THREE, "ann")
    assert (merged.task, merged.run_id) == (THREE, "r"), "the two became one"
    assert [s.task.id for s in store.tasks("ann")] == [THREE.id]
    for owner in ("bob", None):
        with pytest.raises(InputError, match="no such task"):
            store.replace_task(THREE.id, ONE, owner)
    assert [s.task.id for s in store.tasks("ann")] == [THREE.id]


def test_a_change_that_fails_loses_nothing(store: Store) -> None:
    store.add_tasks([ONE], owner="ann")

    def refuse(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT"):
            raise OverflowError("no room")

    sa_event.listen(store._database.engine, "before_cursor_execute", refuse)
    with pytest.raises(StoreError):
        store.replace_task(ONE.id, TWO, "ann")
    sa_event.remove(store._database.engine, "before_cursor_execute", refuse)
    assert [s.task for s in store.tasks("ann")] == [ONE]


# --- Labelling ----------------------------------------------------------------------------------------------


@pytest.fixture
def answered(store: Store) -> Store:
    """Runs a to f, oldest first; b up, c down, d down with a task, e up then down by another; and some that do not
    count."""
    two = (Message("user", "Q f?"), Message("assistant", "which?"), Message("user", "Q f, the second?"))
    runs = [run_of(name, at) for at, name in enumerate("abcde", 1)]
    store.add_runs([*runs, run_of("f", 6.0, messages=two, owner="ann")])
    hidden: list[dict[str, Any]] = [
        {"answer": None}, {"answer": ""}, {"source": Source.TRAIN}, {"owner": "bob"},
    ]  # fmt: skip
    store.add_runs([run_of(f"x{i}", 50.0, **change) for i, change in enumerate(hidden)])
    store.add_runs([run_of("binned", 60.0)])
    store.delete_runs(["binned"])
    for name, thumb in [("b", "up"), ("c", "down"), ("d", "down"), ("e", "up")]:
        store.set_label(name, "thumb", thumb, labeller="ann")
    time.sleep(0.002)
    store.set_label("e", "thumb", "down", labeller="bob")
    store.set_label("a", "note", "down")
    store.add_tasks([ONE], owner="ann", run_id="d")
    store.add_tasks([TWO], owner="bob", run_id="c")
    return store


def queue(store: Store, **query: Any) -> str:
    return "".join(row.run_id for row in store.labelling_queue(LabelQuery(**{"owner": "ann"} | query)).rows)


def test_the_queue_by_thumb(answered: Store) -> None:
    assert queue(answered) == "fedcba"
    assert queue(answered, thumb="unlabelled") == "fa"
    assert queue(answered, thumb="up") == "b"
    assert queue(answered, thumb="down") == "edc"
    assert queue(answered, thumb="down", without_task=True) == "ec", "bob's task is not hers"
    assert queue(answered, thumb="down", without_task=True, all_owners=True) == "e"
    assert queue(answered, thumb="up", labeller="ann") == "eb"
    assert queue(answered, labeller="nobody", thumb="unlabelled") == "fedcba"
    assert queue(answered, owner=None) == "edcba"
    assert queue(answered, search="q C") == "c"
    with pytest.raises(InputError, match="Unknown thumb"):
        queue(answered, thumb="sideways")


def test_a_row_of_the_queue_says_what_is_needed(answered: Store) -> None:
    page = answered.labelling_queue(LabelQuery(owner="ann"))
    rows = {row.run_id: row for row in page.rows}
    d, f = rows["d"], rows["f"]
    assert (d.question, d.answer, d.thumb, d.task_id, d.messages) == ("Q d?", "A d", "down", ONE.id, 1)
    assert (f.question, f.messages, f.owner, f.thumb, f.task_id) == ("Q f, the second?", 3, "ann", None, None)
    assert (page.total, page.counts) == (6, {"unlabelled": 2, "up": 1, "down": 3})
    second = answered.labelling_queue(LabelQuery(owner="ann", thumb="down", page=2, page_size=2))
    assert ([r.run_id for r in second.rows], second.total, second.counts["up"]) == (["c"], 3, 1)


def test_the_queue_moves_on(answered: Store) -> None:
    answered.set_label("a", "thumb", "up", labeller="ann")
    answered.add_tasks([THREE], owner="ann", run_id="a")
    assert queue(answered, thumb="unlabelled") == "f"
    assert queue(answered, thumb="up", without_task=True) == "b"
    answered.set_label("a", "thumb", None, labeller="ann")
    answered.delete_tasks([THREE.id], "ann")
    assert queue(answered, thumb="unlabelled", without_task=True) == "fa"


# --- A full disk ---------------------------------------------------------------------------------------------


def test_a_full_disk_stores_all_or_nothing(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'a.db'}")
    store.put_states({"first": b"\0\0\0\0"})
    store.add_tasks([ONE])
    limited = [True]

    def limit(connection: Any, _record: Any, _proxy: Any) -> None:
        connection.execute(f"PRAGMA max_page_count = {100 if limited[0] else 10**6}")

    sa_event.listen(store._database.engine, "checkout", limit)
    big = {f"k{i}": np.zeros(576, "<f4").tobytes() for i in range(2000)}
    tasks = [Task.make(f"{i} {'x' * 5000}", "y") for i in range(500)]
    works: list[Any] = [lambda: store.put_states(big), lambda: store.add_tasks(tasks)]
    works.append(lambda: store.replace_task(ONE.id, Task.make("x" * 10**6, "y")))
    for work in works:
        with pytest.raises(StoreError, match=r"disk is full.*Free some space"):
            work()
    assert store.get_states(["first", *big]) == {"first": b"\0\0\0\0"}
    assert [s.task for s in store.tasks()] == [ONE]
    limited[0] = False
    store.put_states(big)
    assert len(store.get_states(list(big))) == 2000
    store.close()


_FULL_COMMIT = """
import resource, signal, sys
from storage.store import Store
from trinity_core.errors import StoreError
store = Store.open(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
soft = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))
# Less than SQLite's cache, so that nothing is written before the commit.
many = {f"k{i}": bytes(2304) for i in range(400)}
try:
    store.put_states(many)
except StoreError as error:
    print(error)
print(len(store.get_states(list(many))))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.put_states(many)
print(len(store.get_states(list(many))))
"""


@pytest.mark.skipif(os.name != "posix", reason="needs a limit on the size of files")
def test_a_disk_that_is_full_when_it_commits(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    done = subprocess.run([sys.executable, "-c", _FULL_COMMIT, url, "400000"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said, after, again = done.stdout.splitlines()
    assert "free space" in said.lower()
    assert (after, again) == ("0", "400")
    store = Store.open(url)
    with store._database.read() as connection:
        assert connection.execute(select(func.count()).select_from(states)).scalar_one() == 400
    store.close()
