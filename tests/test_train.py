"""A training as a job: what it learns, how it ends, and that going on is the same as never having stopped."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from storage.resume import past_of
from storage.store import Store
from tests.test_training import Memory, pool_of
from trinity_core.coordinator.checkpoint import Checkpoint
from trinity_core.errors import AgentError, CheckpointError, InputError
from trinity_core.tasks.task import Task
from trinity_core.training.plan import Plan, preflight
from trinity_core.training.train import Control, Past, minibatch, train
from trinity_core.types import (
    AnyJobEvent,
    CheckpointSaved,
    Generation,
    JobFinished,
    JobNote,
    JobPaused,
    Limits,
    Role,
    Status,
    Validation,
)

TASKS = [
    Task.make(f"{kind} {n}", str(n), grader="numeric", family=kind)
    for kind in ("add", "spell")
    for n in range(100, 140)
]
PLAN = Plan(evaluations=3000, tasks_per_candidate=8, validate_every=3, seed=3, turn_cost=0.01)


class Words:
    """A backbone of 16 numbers: one direction for each kind of question, one once there is an answer, and noise."""

    id, revision, hidden_size, max_tokens = "words", "1", 16, 4096

    def __init__(self) -> None:
        self.tokenizer = SimpleNamespace(encode=lambda text: [ord(c) for c in text])

    def encode(self, tokens: list[int], suffix: list[int], **_: Any) -> Any:
        text = "".join(map(chr, tokens))
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        h = 0.1 * np.random.default_rng(seed).normal(size=16)
        h[0] += 1.0 if "user: add" in text else -1.0
        h[1] += 1.0 if "Answer:" in text else -1.0
        return SimpleNamespace(h=h.astype(np.float32))

    async def call(self, work: Callable[[], Any], stop: threading.Event) -> Any:
        return work()

    def drop(self, run_id: str) -> None:
        pass


def expert(kind: str) -> Callable[[Any], str]:
    def rule(brief: Any) -> str:
        word, number = brief.question.split()
        if brief.role is Role.VERIFIER:
            return "Checked.\nVERDICT: " + ("ACCEPT" if number in (brief.answer or "") else "REVISE")
        return f"Answer: {number if word == kind else 7}"

    return rule


def job(folder: Path, plan: Plan = PLAN, control: Control | None = None, **more: Any) -> AsyncIterator[AnyJobEvent]:
    rules = more.pop("rules", {"adder": expert("add"), "speller": expert("spell")})
    return train(
        plan,
        more.pop("tasks", TASKS),
        more.pop("pool", pool_of(**rules)),
        more.pop("replies", Memory()),
        None,
        more.pop("backbone", Words()),
        folder,
        control or Control(),
        **more,
    )


async def ended(events: AsyncIterator[AnyJobEvent]) -> list[AnyJobEvent]:
    return [event async for event in events]


def of(events: list[AnyJobEvent], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def test_evolution_learns_whom_to_ask_and_says_how_well(tmp_path: Path) -> None:
    events = await ended(job(tmp_path))
    last = events[-1]
    assert isinstance(last, JobFinished)
    assert last.status is Status.DONE
    final = [v for v in of(events, Validation) if v.name == "final"]
    single = [v.accuracy for v in of(events, Validation) if v.name.startswith("single")]
    assert final[0].accuracy > 0.9 > max(single)
    assert last.result["validation"]["accuracy"] == final[0].accuracy
    generations = of(events, Generation)
    assert [g.number for g in generations] == list(range(len(generations)))
    assert sum(g.evaluations for g in generations) == last.result["evaluations"] <= PLAN.evaluations
    assert len(generations[0].fitness) == len(generations[0].accuracies) == generations[0].evaluations // 8
    assert generations[-1].sigma is not None
    kept = Checkpoint.load(Path(last.result["path"]))
    assert kept.meta.population == len(generations[0].fitness)
    assert kept.meta.agents == ("adder", "speller")


async def test_random_search_is_the_same_job(tmp_path: Path) -> None:
    events = await ended(job(tmp_path, replace(PLAN, method="random", evaluations=800)))
    assert isinstance(events[-1], JobFinished)
    assert of(events, Generation)[0].sigma is None


async def recorded(store: Store, folder: Path, plan: Plan, stop_after: int | None = None, **more: Any) -> str:
    """Run a recorded training, cut off without a word after some generations; returns its id."""
    events = store.record_job(job(folder, plan, **more))
    seen, name = 0, ""
    async for event in events:
        name = event.job_id
        seen += isinstance(event, Generation)
        if seen == stop_after:
            break
    await events.aclose()
    return name


@pytest.mark.parametrize("stop_after", [1, 4, 7])
async def test_going_on_is_the_same_bit_for_bit(tmp_path: Path, stop_after: int) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/t.db")
    plan = replace(PLAN, evaluations=1200)
    whole = await recorded(store, tmp_path / "a", plan, replies=store)
    cut = await recorded(store, tmp_path / "b", plan, stop_after, replies=store)
    again, past = past_of(store, cut)
    assert len(past.fitness) == stop_after
    assert again == replace(plan, population=again.population)
    await recorded(store, tmp_path / "b", again, replies=store, job_id=cut, past=past)
    first, second = store.generations(whole), store.generations(cut)
    assert [g.fitness for g in first] == [g.fitness for g in second]
    assert [g.sigma for g in first] == [g.sigma for g in second]
    runs = [store.training_run(i, all_owners=True) for i in (whole, cut)]
    thetas = []
    for run in runs:
        assert run is not None
        assert run.status is Status.DONE
        assert run.result is not None
        thetas.append(Checkpoint.load(Path(run.result["path"])).theta.tobytes())
    assert thetas[0] == thetas[1]
    with pytest.raises(InputError, match="is done"):
        past_of(store, whole)
    with pytest.raises(InputError, match="no training run"):
        past_of(store, "nowhere")
    store.close()


async def test_pause_and_stop_end_after_the_step_under_way(tmp_path: Path) -> None:
    for act, kind in (("pause", JobPaused), ("stop", JobFinished)):
        control, seen = Control(), list[AnyJobEvent]()
        async for event in job(tmp_path, control=control):
            seen.append(event)
            if isinstance(event, Generation):
                getattr(control, act)()
        assert isinstance(seen[-1], kind)
        assert len(of(seen, Generation)) == 1
        if isinstance(seen[-1], JobFinished):
            assert seen[-1].status is Status.CANCELLED
            Checkpoint.load(Path(seen[-1].result["path"]))


@pytest.mark.parametrize("calls", [0, 3, 150, 400])
async def test_a_budget_of_calls_ends_it_with_a_report_and_a_checkpoint(tmp_path: Path, calls: int) -> None:
    rules = {"adder": expert("add"), "speller": expert("spell")}
    events = await ended(job(tmp_path, replace(PLAN, limits=Limits(calls=calls)), rules=rules))
    last = events[-1]
    assert isinstance(last, JobFinished)
    assert last.status is Status.DONE
    assert any(note.kind == "budget" for note in of(events, JobNote))
    assert sum(g.agent_calls for g in of(events, Generation)) <= calls
    assert "evaluations" in last.result
    if of(events, CheckpointSaved):
        Checkpoint.load(Path(last.result["path"]))


async def test_failed_calls_are_counted_and_said(tmp_path: Path) -> None:
    def broken(brief: Any) -> Any:
        return AgentError("down", kind="transport", retryable=True)

    plan = replace(PLAN, evaluations=200)
    events = await ended(job(tmp_path, plan, rules={"adder": expert("add"), "gone": broken}))
    assert of(events, Generation)[0].failed_calls > 0
    assert any(note.kind == "failed_calls" for note in of(events, JobNote))
    nobody = await ended(job(tmp_path, replace(plan, normalisation="none"), rules={"a": broken, "b": broken}))
    assert of(nobody, Generation)[0].skipped == 8
    assert of(nobody, Generation)[0].status == "flat_fitness"


async def test_a_disk_that_is_full_keeps_the_last_checkpoint(tmp_path: Path, monkeypatch: Any) -> None:
    seen: list[AnyJobEvent] = []
    save = Checkpoint.save

    def full(self: Checkpoint, folder: Path) -> Path:
        if len(of(seen, CheckpointSaved)) >= 1:
            raise CheckpointError("The checkpoint could not be written (No space left on device).")
        return save(self, folder)

    monkeypatch.setattr(Checkpoint, "save", full)

    async def watched() -> None:
        async for event in job(tmp_path):
            seen.append(event)

    with pytest.raises(CheckpointError, match="No space left"):
        await watched()
    Checkpoint.load(Path(of(seen, CheckpointSaved)[-1].path))


async def test_a_warm_start_must_read_the_same_transcripts(tmp_path: Path) -> None:
    first = await ended(job(tmp_path, replace(PLAN, evaluations=300)))
    kept = Checkpoint.load(Path(first[-1].result["path"]))  # type: ignore[union-attr]
    warmed = await ended(job(tmp_path, replace(PLAN, evaluations=300, sigma=1e-6), warm=kept))
    assert of(warmed, Generation)[0].accuracies[0] > 0.5
    other = replace(PLAN, evaluations=300, suffix="\nNext:")
    with pytest.raises(CheckpointError, match="suffix"):
        await ended(job(tmp_path, other, warm=kept))


def test_minibatches_follow_from_seed_and_generation() -> None:
    names = [[t.id for t in minibatch(TASKS, 8, seed, g)] for seed, g in ((1, 0), (1, 0), (1, 1), (2, 0))]
    assert names[0] == names[1]
    assert len({tuple(n) for n in names}) == 3
    assert len(minibatch(TASKS[:3], 8, 1, 0)) == 3


def test_preflight_refuses_what_cannot_work_and_says_why() -> None:
    pool = pool_of(a=expert("add"), b=expert("spell")).specs
    good = preflight(PLAN, TASKS, pool, 16)
    assert good.ready
    assert (good.dimension, good.population) == (80, 18)
    assert good.generations == 3000 // (18 * 8)
    assert good.cost is None  # of a kind whose price nobody knows
    same = [Task.make(f"q{i}", "1", grader="numeric") for i in range(40)]
    for plan, tasks, said in (
        (PLAN, [], "no training tasks"),
        (PLAN, TASKS[:4], "at least 8"),
        (PLAN, same, "same reference"),
        (replace(PLAN, evaluations=10), TASKS, "below one generation"),
        (replace(PLAN, leave_out="ad"), TASKS, "'add'"),
        (replace(PLAN, method="sft", svf=True), TASKS, "SVF"),
        (replace(PLAN, limits=Limits(cost=1.0)), TASKS, "price"),
    ):
        assert any(said in problem for problem in preflight(plan, tasks, pool, 16).problems), said
    assert "switched on" in " ".join(preflight(PLAN, TASKS, (), 16).problems)


@pytest.mark.parametrize(
    "field",
    [
        {"sigma": 0.0},
        {"sigma": float("nan")},
        {"method": "evolv"},
        {"population": 2},
        {"head": "liner"},
        {"branch": 2.0},
    ],
)
def test_a_plan_that_cannot_be_is_refused(field: dict[str, Any]) -> None:
    with pytest.raises((InputError, CheckpointError)):
        replace(PLAN, **field)
    assert Plan.from_json(PLAN.to_json()) == PLAN
    assert Past().fitness == ()
