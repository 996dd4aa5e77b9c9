"""Evaluation against scripted members: the table, what fails, and when a difference may be claimed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.test_training import Memory, declines, pool_of, right, wrong
from trinity_core.agents.recall import Recall
from trinity_core.coordinator.policy import RandomPolicy
from trinity_core.errors import AgentError, InputError
from trinity_core.tasks.task import Task
from trinity_core.training.evaluate import compare, evaluate, evaluation, sign_test, solved
from trinity_core.training.short import Short, longer, shorter
from trinity_core.types import AgentSpec, JobFinished, JobStarted, RunParams, Status, Validation

TASKS = [
    Task.make(f"What is 6 times 7 ({i})?", "42", grader="numeric", family="arithmetic", split="test")
    for i in range(12)
]


async def test_the_rows_are_coordinator_singles_random_and_ceiling() -> None:
    pool = pool_of(good=right, bad=wrong)
    found = await evaluate(RandomPolicy(), TASKS, pool, seed=3, params=RunParams(max_turns=3), replies=Memory())
    names = [row.name for row in found.rows]
    assert names == ["coordinator", "single good", "single bad", "random policy", "best agent per question"]
    assert [found.row(f"single {n}").accuracy for n in ("good", "bad")] == [1.0, 0.0]
    assert found.row("best agent per question").accuracy == 1.0
    assert found.best_single == "single good"
    assert found.against_single is not None
    assert found.against_single.verdict != "better"
    assert "coordinator" in found.table()


async def test_a_second_evaluation_calls_nobody() -> None:
    pool, replies = pool_of(good=right), Memory()
    await evaluate(RandomPolicy(), TASKS, pool, replies=replies)
    first = len(replies.known)
    again = await evaluate(RandomPolicy(), TASKS, pool, replies=replies)
    assert len(replies.known) == first
    assert all(row.calls == 0 for row in again.rows)


async def test_failed_questions_are_counted_and_not_wrong() -> None:
    def down(brief: Any) -> Exception:
        return AgentError("down", kind="transport")

    found = await evaluate(RandomPolicy(), TASKS, pool_of(gone=down))
    assert found.coordinator.n == 0
    assert found.coordinator.failed == len(TASKS)
    assert found.coordinator.accuracy is None
    assert "no verdict" in found.sentences()[0]
    assert "failed" in " ".join(found.notes())
    assert found.table()
    with pytest.raises(InputError, match="no tasks"):
        await evaluate(RandomPolicy(), [], pool_of(a=declines))


async def test_as_a_job_each_row_is_a_validation() -> None:
    events = [event async for event in evaluation(RandomPolicy(), TASKS[:3], Recall(pool_of(a=right), Memory()))]
    assert isinstance(events[0], JobStarted)
    assert events[0].kind == "eval"
    assert {e.name for e in events if isinstance(e, Validation)} >= {"coordinator", "single a", "random policy"}
    assert isinstance(events[-1], JobFinished)
    assert events[-1].status is Status.DONE


def test_a_difference_is_claimed_only_when_chance_is_unlikely() -> None:
    ids = [str(i) for i in range(120)]
    close = compare("router", {i: int(i) < 97 for i in ids}, "prior", {i: int(i) < 95 for i in ids})
    assert close.verdict == "inconclusive"
    assert "inconclusive" in str(close)
    far = compare("router", {i: int(i) < 97 for i in ids}, "prior", {i: int(i) < 60 for i in ids})
    assert far.verdict == "better"
    assert far.reduction == pytest.approx(37 / 60)
    assert far.low is not None
    assert far.low < 37 / 60
    assert compare("a", {i: int(i) < 60 for i in ids}, "b", {i: int(i) < 97 for i in ids}).verdict == "worse"
    perfect = compare("a", dict.fromkeys(ids, True), "b", dict.fromkeys(ids, True))
    assert (perfect.verdict, perfect.reduction) == ("inconclusive", None)
    assert compare("a", {}, "b", {"1": True}).n == 0
    assert sign_test(0, 0) == 1.0
    assert sign_test(8, 0) == pytest.approx(2 / 256)


def test_a_tie_over_repetitions_is_not_solved() -> None:
    assert [solved(runs) for runs in ([True, False], [True, True, False], [False], [True])] == [
        False,
        True,
        False,
        True,
    ]


def test_caps_are_lowered_for_training_and_raised_for_a_single_agent() -> None:
    local = AgentSpec("m", "smollm2", options={"max_tokens": 96})
    assert shorter(local, local_tokens=64).options["max_tokens"] == 64
    assert shorter(local, local_tokens=200) == local
    assert longer(AgentSpec("m", "openai", options={"max_tokens": 1024}), 5).options["max_tokens"] == 5120
    exact = AgentSpec("s", "symbolic")
    assert shorter(exact, local_tokens=8) == longer(exact, 5) == exact
    with pytest.raises(InputError, match="at least one"):
        Short(pool_of(a=right), local_tokens=0)
