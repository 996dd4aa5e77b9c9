"""The training manager with a scripted trainer over a real store: one at a time, pause, resume, crash, shutdown."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from storage.records import StoredCheckpoint, TrainingRun
from storage.store import Store
from trinity_core.errors import InputError, TrinityError
from trinity_core.training.plan import Plan, Preflight
from trinity_core.types import (
    AnyJobEvent,
    CheckpointSaved,
    Generation,
    JobFinished,
    JobNote,
    JobPaused,
    JobStarted,
    Progress,
    Status,
    Usage,
    Validation,
)
from trinity_core.wire import new_id
from ui.jobs import RunManager
from ui.training import TrainingManager

EACH = 64
"""Evaluations of one scripted generation: 4 candidates on 16 tasks."""


class Control:
    """Two flags, as the engine has them."""

    def __init__(self) -> None:
        self.paused, self.stopped = threading.Event(), threading.Event()

    def pause(self) -> None:
        self.paused.set()

    def stop(self) -> None:
        self.stopped.set()


class ScriptedTrainer:
    """Tells generations computed from (seed, number), stores them as the engine does, and obeys its control.

    `step_s` is the time of one generation. `deaf` ignores pause and stop; `dies_at` raises in that generation.
    """

    def __init__(self, store: Store, *, step_s: float = 0.01, problems: tuple[str, ...] = ()) -> None:
        self.store, self.step_s, self.problems = store, step_s, problems
        self.deaf = False
        self.dies_at: int | None = None
        self.error: Exception = TrinityError("The disk is full. Make room, then resume.")

    async def preflight(self, plan: Plan, owner: str | None) -> Preflight:
        problems = list(self.problems)
        if plan.evaluations < EACH:
            problems.append("The budget is below one generation. Raise the budget.")
        return Preflight(
            tuple(problems), ("There are 5 validation tasks.",), 120, 40, {"arithmetic": 70, "dates": 50}, 4032, 4,
            plan.evaluations // EACH, plan.evaluations, 900, 48_000, 0.0, 260.0,
        )  # fmt: skip

    async def run(
        self, plan: Plan, owner: str | None, control: Control, *, job_id: str | None = None
    ) -> AsyncIterator[AnyJobEvent]:
        job, seq = job_id or new_id(), iter(range(10**6))

        def common() -> dict[str, object]:
            return {"job_id": job, "seq": next(seq), "at": time.time()}

        params = {"plan": plan.to_json(), "pool": [], "backbone": "scripted"}
        await asyncio.to_thread(
            self.store.begin_training_run,
            TrainingRun(job, plan.method, seed=plan.seed, params=params, owner=owner, created_at=time.time()),
        )
        yield JobStarted(**common(), kind="train", params=params, seed=plan.seed)  # type: ignore[arg-type]
        for name, accuracy in (("random policy", 0.41), ("single symbolic", 0.52), ("best agent per question", 0.83)):
            if job_id is None:
                held = Validation(**common(), name=name, n=40, accuracy=accuracy, low=accuracy - 0.1,  # type: ignore[arg-type]
                                  high=accuracy + 0.1)  # fmt: skip
                self.store.add_validation(job, held)
                yield held
        yield JobNote(**common(), kind="note", message="<b>Two</b> tasks were left out.")  # type: ignore[arg-type]
        for number in range(len(self.store.generations(job)), plan.evaluations // EACH):
            yield Progress(**common(), done=number, total=plan.evaluations // EACH, unit="steps")  # type: ignore[arg-type]
            await asyncio.sleep(self.step_s)
            if number == self.dies_at:
                raise self.error
            generation = Generation(
                **common(), number=number, fitness=fitness(plan.seed, number), sigma=0.9**number,  # type: ignore[arg-type]
                spread=(1.1 * 0.9**number, 0.4 * 0.9**number), evaluations=EACH, agent_calls=10, failed_calls=1,
                usage=Usage(100, 20), cost=0.001, agent_shares={"symbolic": 0.6, "lexical": 0.4},
                role_shares={"worker": 0.7, "thinker": 0.1, "verifier": 0.2},
            )  # fmt: skip
            self.store.append_generation(job, generation, plan.seed)
            yield generation
            if number % 5 == 4:
                held = Validation(**common(), name="validation", n=40, accuracy=0.5 + 0.01 * number,  # type: ignore[arg-type]
                                  low=0.4, high=0.8, number=number)  # fmt: skip
                self.store.add_validation(job, held)
                yield held
            if self.deaf:
                continue
            if control.stopped.is_set() or control.paused.is_set():
                if control.stopped.is_set():
                    self.store.update_training_run(job, status=Status.CANCELLED)
                    yield JobFinished(**common(), status=Status.CANCELLED, message="Stopped.")  # type: ignore[arg-type]
                else:
                    self.store.update_training_run(job, status=Status.INTERRUPTED)
                    yield JobPaused(**common(), reason="Paused on request.")  # type: ignore[arg-type]
                return
        checkpoint = f"ck{plan.seed:02d}{job.replace('-', '')}"
        path = f"/checkpoints/{checkpoint}.safetensors"
        self.store.save_checkpoint(StoredCheckpoint(checkpoint, path, training_run_id=job, created_at=time.time()))
        yield CheckpointSaved(**common(), checkpoint_id=checkpoint, path=path)  # type: ignore[arg-type]
        share = {"accuracy": 0.79, "low": 0.71, "high": 0.85, "n": 120}
        result = {"checkpoint_id": checkpoint, "path": path, "evaluations": plan.evaluations, "validation": share}
        self.store.update_training_run(job, status=Status.DONE, checkpoint_id=checkpoint, result=result)
        yield JobFinished(**common(), status=Status.DONE, result=result)  # type: ignore[arg-type]


def fitness(seed: int, number: int) -> tuple[float, ...]:
    """Four candidates that differ and slowly get better."""
    return tuple(0.3 + 0.02 * number + 0.01 * ((7 * place + 3 * number + seed) % 5) for place in range(4))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'trinity.db'}")
    yield opened
    opened.close()


@pytest.fixture
def runs() -> Iterator[RunManager]:
    manager = RunManager(None, None)  # type: ignore[arg-type]  # answers nothing here
    yield manager
    manager.shutdown()


@pytest.fixture
def trainer(store: Store) -> ScriptedTrainer:
    return ScriptedTrainer(store)


@pytest.fixture
def manager(store: Store, runs: RunManager, trainer: ScriptedTrainer) -> Iterator[TrainingManager]:
    made = TrainingManager(trainer, store, runs.spawn, Control)
    yield made
    made.shutdown(2)


def until(true: Callable[[], object], timeout_s: float = 10.0) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def begin(manager: TrainingManager, evaluations: int = 6 * EACH, owner: str | None = "ann", seed: int = 1) -> str:
    job = asyncio.run(manager.start(Plan(evaluations=evaluations, seed=seed), owner))
    assert job is not None
    return job


def ended(manager: TrainingManager) -> None:
    until(lambda: not manager.status.busy)


def test_a_training_goes_on_with_nobody_watching_and_is_told_whole(manager: TrainingManager, store: Store) -> None:
    assert manager.status.state == "idle"
    job = begin(manager)
    ended(manager)
    record = manager.record(job)
    assert record is not None
    assert (record.state, record.owner) == ("done", "ann")
    assert [g.fitness for g in record.generations] == [fitness(1, n) for n in range(6)]
    assert (record.evaluations, record.usage, record.generations_planned) == (6 * EACH, Usage(600, 120), 6)
    assert record.cost == pytest.approx(0.006)
    assert record.checkpoint_id == record.result["checkpoint_id"]
    stored = TrainingManager(ScriptedTrainer(store), store, None, Control).record(job)  # type: ignore[arg-type]
    assert stored is not None
    assert [(g.number, g.fitness, g.sigma) for g in stored.generations] == [
        (g.number, g.fitness, g.sigma) for g in record.generations
    ]
    assert [(v.name, v.accuracy) for v in stored.validations] == [(v.name, v.accuracy) for v in record.validations]
    assert (stored.state, stored.checkpoint_id, stored.plan) == ("done", record.checkpoint_id, record.plan)


def test_the_tail_goes_on_where_it_was_left_and_leaves_progress_out(manager: TrainingManager) -> None:
    job = begin(manager)
    first = manager.tail(job)
    ended(manager)
    rest = manager.tail(job, first.position)
    together = [*first.events, *rest.events]
    assert [e.event for e in together].count("generation") == 6
    assert isinstance(together[0], JobStarted)
    assert isinstance(together[-1], JobFinished)
    assert not any(isinstance(event, Progress) for event in together)
    assert manager.tail(job, rest.position).events == ()
    assert manager.tail("another").events == ()


def test_a_second_start_is_refused_and_says_what_runs(manager: TrainingManager, trainer: ScriptedTrainer) -> None:
    trainer.step_s = 0.2
    job = begin(manager, 1000 * EACH)
    with pytest.raises(TrinityError, match=r"runs already \(evolve, linear head, running"):
        begin(manager, owner="bob")
    assert manager.status.job_id == job
    assert manager.status.state == "running"
    manager.stop("ann")
    ended(manager)
    assert begin(manager, owner="bob") != job  # and now there is room


def test_two_starts_at_the_same_moment_give_one_training(manager: TrainingManager, trainer: ScriptedTrainer) -> None:
    trainer.step_s = 0.2
    plan = Plan(evaluations=1000 * EACH)

    async def both() -> list[str | BaseException | None]:
        return list(await asyncio.gather(manager.start(plan, "a"), manager.start(plan, "b"), return_exceptions=True))

    outcomes = asyncio.run(both())
    assert sorted(type(one).__name__ for one in outcomes) == ["TrinityError", "str"]
    assert len(manager.records()) == 1


def test_only_the_owner_steers(manager: TrainingManager, trainer: ScriptedTrainer) -> None:
    trainer.step_s = 0.1
    job = begin(manager, 1000 * EACH)
    for act in (manager.pause, manager.stop):
        with pytest.raises(InputError, match="somebody else"):
            act("bob")
    with pytest.raises(InputError, match="somebody else"):
        manager.delete(job, "bob")
    with pytest.raises(InputError, match="still goes on"):
        manager.delete(job, "ann")
    assert manager.stop("ann")
    ended(manager)
    record = manager.record(job)
    assert record is not None
    assert record.state == "cancelled"
    assert record.message == "Stopped."
    assert not manager.stop("ann"), "nothing runs any more"
    manager.delete(job, "ann")
    assert manager.record(job) is None
    assert manager.records() == ()
    assert manager.status.state == "idle"


def test_pause_and_resume_give_the_curve_of_one_that_was_not_interrupted(
    manager: TrainingManager, trainer: ScriptedTrainer
) -> None:
    trainer.step_s = 0.03
    job = begin(manager, 20 * EACH)
    until(lambda: len((manager.record(job) or pytest.fail("no record")).generations) >= 3)
    assert manager.pause("ann")
    assert manager.status.state == "pausing"
    ended(manager)
    paused = manager.record(job)
    assert paused is not None
    assert paused.state == "paused"
    assert 3 <= len(paused.generations) < 20
    with pytest.raises(InputError, match="somebody else"):
        asyncio.run(manager.resume(job, "bob"))
    trainer.step_s = 0.0
    assert asyncio.run(manager.resume(job, "ann")) == job
    ended(manager)
    record = manager.record(job)
    assert record is not None
    assert record.state == "done"
    assert [g.fitness for g in record.generations] == [fitness(1, n) for n in range(20)]
    assert record.resumed_at == len(paused.generations)
    assert [v.name for v in record.validations].count("random policy") == 1
    with pytest.raises(InputError, match="only a paused or interrupted one"):
        asyncio.run(manager.resume(job, "ann"))


def test_after_a_crash_the_stored_training_is_interrupted_and_resumes(
    store: Store, runs: RunManager, trainer: ScriptedTrainer
) -> None:
    plan = Plan(evaluations=8 * EACH)
    job = new_id()
    row = TrainingRun(job, plan.method, params={"plan": plan.to_json()}, owner="ann", created_at=time.time())
    store.begin_training_run(row)
    for number in range(3):
        told = Generation(
            job_id=job, seq=number, at=time.time(), number=number, fitness=fitness(1, number), evaluations=EACH
        )
        store.append_generation(job, told, 1)
    store.update_training_run(job, status=Status.INTERRUPTED)  # what `recover` does at the next start
    manager = TrainingManager(trainer, store, runs.spawn, Control)
    (found,) = manager.records()
    assert (found.job_id, found.state) == (job, "interrupted")
    asyncio.run(manager.resume(job, "ann"))
    ended(manager)
    record = manager.record(job)
    assert record is not None
    assert [g.fitness for g in record.generations] == [fitness(1, n) for n in range(8)]


def test_problems_of_the_preflight_refuse_the_start(store: Store, runs: RunManager) -> None:
    manager = TrainingManager(ScriptedTrainer(store, problems=("No tasks. Add some.",)), store, runs.spawn, Control)
    with pytest.raises(InputError, match="cannot start: No tasks"):
        begin(manager)
    assert manager.status.state == "idle"
    assert manager.records() == ()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TrinityError("The disk is full."), "The disk is full."),
        (ValueError("secret sk-ant-REDACTED"), "Trinity itself failed (ValueError); the log has the details."),
    ],
)
def test_what_breaks_becomes_a_failed_training(
    manager: TrainingManager, trainer: ScriptedTrainer, error: Exception, said: str
) -> None:
    trainer.dies_at, trainer.error = 2, error
    job = begin(manager)
    ended(manager)
    record = manager.record(job)
    assert record is not None
    assert (record.state, record.message, len(record.generations)) == ("failed", said, 2)
    trainer.dies_at = None
    assert begin(manager) != job  # the next one may start


def test_shutdown_pauses(store: Store, runs: RunManager, trainer: ScriptedTrainer) -> None:
    trainer.step_s = 0.05
    manager = TrainingManager(trainer, store, runs.spawn, Control)
    job = begin(manager, 1000 * EACH)
    manager.shutdown(5)
    assert manager.status.state == "paused"
    stored = store.training_run(job, all_owners=True)
    assert stored is not None
    assert stored.status is Status.INTERRUPTED
    with pytest.raises(TrinityError, match="shutting down"):
        begin(manager)


def test_shutdown_cuts_off_what_does_not_pause_and_leaves_it_resumable(
    store: Store, runs: RunManager, trainer: ScriptedTrainer
) -> None:
    trainer.step_s, trainer.deaf = 0.05, True
    manager = TrainingManager(trainer, store, runs.spawn, Control)
    job = begin(manager, 1000 * EACH)
    started = time.monotonic()
    manager.shutdown(0.3)
    until(lambda: not manager.status.busy)
    assert time.monotonic() - started < 5
    stored = store.training_run(job, all_owners=True)
    assert stored is not None
    assert stored.status is Status.INTERRUPTED


def test_a_caller_that_goes_away_does_not_end_the_training(
    manager: TrainingManager, trainer: ScriptedTrainer
) -> None:
    trainer.step_s = 0.05

    async def leaves() -> None:
        starting = asyncio.create_task(manager.start(Plan(evaluations=3 * EACH), "ann"))
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)

    asyncio.run(leaves())
    ended(manager)
    (record,) = manager.records()
    assert record.state == "done"
    assert len(record.generations) == 3
