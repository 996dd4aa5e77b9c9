"""Evaluation: rows, failures, repeats, comparisons, the job's events, caps on tokens. Scripted agents, no model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import FakePool
from tests.test_training import Memory, RuleAgent, declines, pool_of, right, wrong
from trinity_core.agents.local import LlamaAgent
from trinity_core.agents.pool import embedded_specs
from trinity_core.agents.recall import Recall
from trinity_core.agents.replies import reply_key
from trinity_core.coordinator.policy import RandomPolicy
from trinity_core.errors import AgentError, InputError
from trinity_core.session.methods import SinglePolicy
from trinity_core.tasks.task import Task
from trinity_core.training.evaluate import (
    Evaluation,
    compare,
    evaluate,
    evaluation,
    sign_test,
    solved,
)
from trinity_core.training.short import Respec, Short, cap_of, longer, shorter
from trinity_core.types import (
    AgentSpec,
    Brief,
    Finish,
    JobFinished,
    JobNote,
    JobStarted,
    Limits,
    Message,
    Piece,
    Progress,
    Reply,
    Request,
    Role,
    RunParams,
    Sampling,
    Status,
    Usage,
    Validation,
)
from trinity_core.wire import canonical, record


def tasks_of(count: int, family: str = "arithmetic") -> list[Task]:
    return [Task.make(f"Question {i}?", "42", grader="numeric", family=family) for i in range(count)]


class Heard(RuleAgent):
    """A rule agent of any spec that keeps its requests and tells usage."""

    def __init__(self, spec: AgentSpec, rule: Any = right, usage: Usage | None = None) -> None:
        super().__init__(spec.name, rule)
        self.spec, self.usage, self.requests = spec, usage or Usage(10, 5), list[Request]()
        self.now = self.most = 0

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        self.requests.append(request)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.002)
        self.now -= 1
        async for part in super().stream(request):
            yield replace(part, usage=self.usage) if isinstance(part, Reply) else part


def remote(name: str = "gpt", **fields: Any) -> AgentSpec:
    return AgentSpec(name, "openai", model="some-model", base_url="http://127.0.0.1:9/v1", **fields)


def pool(*agents: RuleAgent) -> FakePool:
    return FakePool(*agents)  # type: ignore[arg-type]


async def test_each_method_has_a_row_with_its_interval() -> None:
    found = await evaluate(SinglePolicy("good"), tasks_of(12), pool_of(good=right, bad=wrong))
    names = [row.name for row in found.rows]
    assert names == ["coordinator", "single good", "single bad", "random policy", "best agent per question"]
    assert found.row("single good").accuracy == found.row("best agent per question").accuracy == 1.0
    bad = found.row("single bad")
    assert (bad.accuracy, bad.n, bad.failed, bad.mean_turns) == (0.0, 12, 0, 1.0)
    assert bad.high == pytest.approx(0.2425, abs=1e-4)  # Wilson, 0 of 12
    assert found.best_single == "single good"
    assert found.against_single is not None
    assert found.against_single.verdict == "inconclusive"
    assert found.coordinator.mean_turns == 5.0  # a policy that only works never accepts
    assert found.coordinator.families == {"arithmetic": (12, 12)}
    for part in ("coordinator", "100.0 %", "0.0 to 24.2", "5.00"):
        assert part in found.table()
    assert record(Evaluation, found.to_json()) == found


async def test_a_failing_agent_is_tried_again_then_counted_apart_and_not_wrong() -> None:
    calls: dict[str, int] = {}

    def shaky(brief: Brief) -> Any:
        seen = calls[brief.question] = calls.get(brief.question, 0) + 1
        if brief.question == "Question 0?" and seen == 1:
            return AgentError("busy")
        return AgentError("down") if brief.question == "Question 1?" else right(brief)

    found = await evaluate(SinglePolicy("a"), tasks_of(4), pool_of(a=shaky), params=RunParams(max_turns=1))
    row = found.row("single a")
    assert calls["Question 1?"] >= 4  # twice as the coordinator, twice alone
    assert (row.n, row.failed, row.accuracy) == (3, 1, 1.0)
    assert found.coordinator.n == 3
    assert "down" in next(iter(row.reasons))
    assert any("single a: 1 question(s) failed" in note and "not wrong" in note for note in found.notes())
    assert found.row("best agent per question").failed == 1


async def test_with_nothing_scored_there_is_still_a_whole_result() -> None:
    broken = pool_of(a=lambda brief: AgentError("down"))
    events = [event async for event in evaluation(SinglePolicy("a"), tasks_of(3), broken)]
    last = events[-1]
    assert isinstance(last, JobFinished)
    assert last.status is Status.FAILED
    found = record(Evaluation, dict(last.result))
    assert (found.coordinator.n, found.coordinator.accuracy, found.coordinator.failed) == (0, None, 3)
    assert found.against_single is None
    assert "no verdict" in found.sentences()[0]
    assert "-" in found.table()
    assert any(isinstance(event, JobNote) and event.kind == "unscored" for event in events)
    assert not any(isinstance(event, Validation) for event in events)
    canonical(last.result)  # JSON without NaN


async def test_a_spent_budget_is_told_and_is_no_wrong_answer() -> None:
    params = RunParams(max_turns=2, limits=Limits(calls=0))
    found = await evaluate(SinglePolicy("a"), tasks_of(2), pool_of(a=right), params=params)
    assert (found.coordinator.n, found.coordinator.failed, found.coordinator.calls) == (0, 2, 0)
    assert "budget" in next(iter(found.coordinator.reasons))


async def test_tasks_that_cannot_be_graded_are_left_out_and_named() -> None:
    unknown = Task.make("Q?", "1", grader="oracle")
    badly = Task.make("Really?", "no number", grader="numeric")
    found = await evaluate(SinglePolicy("a"), [*tasks_of(2), unknown, badly], pool_of(a=right))
    assert found.left_out == {"the grader 'oracle' is not known": 1}
    assert (found.coordinator.n, found.coordinator.failed) == (2, 1)
    assert "no number" in next(iter(found.coordinator.reasons))


async def test_no_tasks_and_no_repeats_are_refused() -> None:
    with pytest.raises(InputError, match="no tasks"):
        await evaluate(RandomPolicy(), [], pool_of(a=right))
    with pytest.raises(InputError, match="repeats"):
        await evaluate(RandomPolicy(), tasks_of(1), pool_of(a=right), repeats=0)


# --- Repeats ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runs", "expected"),
    [([True, False], False), ([True, True], True), ([True, True, False], True), ([False], False), ([], None)],
)
def test_a_task_is_solved_by_a_strict_majority(runs: list[bool], expected: bool | None) -> None:
    assert solved(runs) is expected


async def test_a_tie_over_repeats_is_not_solved_and_repeats_are_other_samples() -> None:
    count = 0

    def every_other(brief: Brief) -> str:
        nonlocal count
        count += 1
        return right(brief) if count % 2 else wrong(brief)

    store = Memory()
    agents = pool_of(a=every_other)
    params = RunParams(max_turns=1)
    found = await evaluate(SinglePolicy("a"), tasks_of(1), agents, params=params, repeats=2, replies=store)
    assert (found.coordinator.accuracy, found.coordinator.n) == (0.0, 1)
    assert {sample for _, sample in store.known} == {0, 1}


# --- Tokens and money ---------------------------------------------------------------------------------------


async def test_a_single_agent_may_use_what_all_turns_could() -> None:
    one = Heard(remote())
    params = RunParams(max_turns=5, sampling=Sampling(max_tokens=1024))
    await evaluate(SinglePolicy("gpt"), tasks_of(1), pool(one), params=params)
    asked = [request.sampling.max_tokens for request in one.requests]
    assert asked[:5] == [1024] * 5
    assert asked[5] == 5120
    assert set(asked[6:]) <= {1024}  # random choices, in turns again


async def test_a_specialist_is_asked_alike_however_many_turns() -> None:
    one = Heard(AgentSpec("sums", "symbolic"))
    await evaluate(SinglePolicy("sums"), tasks_of(1), pool(one), params=RunParams(max_turns=3))
    assert {request.sampling.max_tokens for request in one.requests} == {4096}


async def test_a_second_evaluation_calls_nobody_and_says_the_same() -> None:
    price = {"price": {"input": 1.0, "output": 10.0}}
    one, store = Heard(remote(service=price)), Memory()
    params = RunParams(max_turns=2)
    first, second = [
        await evaluate(SinglePolicy("gpt"), tasks_of(3), pool(one), params=params, replies=store) for _ in range(2)
    ]
    called = len(one.requests)
    assert first.coordinator.calls > 0
    assert [row.calls for row in second.rows] == [0] * len(second.rows)
    assert len(one.requests) == called
    # 10 tokens in and 5 out a call: $0.00006, a hundred times, stored or not
    assert first.row("single gpt").cost_per_100 is None or first.row("single gpt").cost_per_100 == pytest.approx(
        0.006
    )
    assert second.row("single gpt").cost_per_100 == pytest.approx(0.006)
    assert second.row("single gpt").mean_tokens == first.row("single gpt").mean_tokens == 15
    assert [row.accuracy for row in first.rows] == [row.accuracy for row in second.rows]


async def test_money_and_tokens_that_nobody_told_are_unknown_not_zero() -> None:
    found = await evaluate(SinglePolicy("gpt"), tasks_of(2), pool(Heard(remote(), usage=Usage(None, None, cached=0))))
    assert (found.coordinator.cost_per_100, found.coordinator.mean_tokens) == (None, None)
    assert "unknown" in found.table()
    local = await evaluate(SinglePolicy("a"), tasks_of(2), pool_of(a=right))
    assert local.coordinator.cost_per_100 == 0.0


async def test_remote_runs_go_on_together_but_not_too_many_and_local_ones_alone() -> None:
    one = Heard(remote())
    await evaluate(SinglePolicy("gpt"), tasks_of(30), pool(one), params=RunParams(max_turns=1))
    assert 2 <= one.most <= 8
    alone = Heard(AgentSpec("sums", "symbolic"))
    await evaluate(SinglePolicy("sums"), tasks_of(5), pool(alone), params=RunParams(max_turns=1))
    assert alone.most == 1


# --- Comparing ----------------------------------------------------------------------------------------------


def outcomes(both: int, first: int, second: int, neither: int) -> tuple[dict[str, bool], dict[str, bool]]:
    """Two methods that solve `both` tasks, and each `first` and `second` alone."""
    a = [True] * both + [True] * first + [False] * second + [False] * neither
    b = [True] * both + [False] * first + [True] * second + [False] * neither
    return {f"{i:04}": x for i, x in enumerate(a)}, {f"{i:04}": x for i, x in enumerate(b)}


@pytest.mark.parametrize("overlap", [95, 85, 80])
def test_two_points_on_120_questions_are_inconclusive(overlap: int) -> None:
    a, b = outcomes(overlap, 97 - overlap, 95 - overlap, 120 - 97 - 95 + overlap)  # 81 % against 79 %
    found = compare("coordinator", a, "prior", b)
    assert (sum(a.values()), sum(b.values()), found.n) == (97, 95, 120)
    assert found.verdict == "inconclusive"
    assert "inconclusive" in str(found)


def test_a_clear_difference_is_better_one_way_and_worse_the_other() -> None:
    a, b = outcomes(60, 25, 5, 30)
    ahead, behind = compare("x", a, "y", b, seed=3), compare("y", b, "x", a, seed=3)
    assert (ahead.verdict, behind.verdict) == ("better", "worse")
    assert ahead.reduction == pytest.approx((55 - 35) / 55)
    assert ahead.low is not None
    assert ahead.high is not None
    assert ahead.reduction is not None
    assert 0 < ahead.low < ahead.reduction < ahead.high < 1
    assert ahead == compare("x", a, "y", b, seed=3)  # seeded
    assert ahead.low != compare("x", a, "y", b, seed=4).low


def test_only_questions_that_both_were_scored_on_are_compared() -> None:
    found = compare("x", {"1": True, "2": True}, "y", {"2": True, "3": False})
    assert (found.n, found.difference) == (1, 0.0)
    assert compare("x", {"1": True}, "y", {"3": False}).verdict == "inconclusive"


def test_without_errors_there_is_nothing_to_reduce() -> None:
    a, b = outcomes(10, 0, 0, 0)
    found = compare("x", a, "y", b)
    assert (found.reduction, found.low, found.high) == (None, None, None)
    assert "no error" in str(found)
    a, b = outcomes(9, 0, 1, 0)
    assert compare("x", a, "y", b).reduction is None
    a, b = outcomes(9, 1, 3, 1)  # some resamples leave y without an error: no lower bound
    assert compare("x", a, "y", b).low is None


@pytest.mark.parametrize(
    ("wins", "losses", "p"), [(0, 0, 1.0), (5, 0, 0.0625), (6, 0, 0.03125), (8, 2, 0.109375), (3, 3, 1.0)]
)
def test_the_sign_test_against_known_values(wins: int, losses: int, p: float) -> None:
    assert sign_test(wins, losses) == sign_test(losses, wins) == pytest.approx(p)


def test_the_sign_test_of_many_questions_does_not_overflow() -> None:
    assert 0 < sign_test(3000, 2900) < 1


# --- The job ------------------------------------------------------------------------------------------------


async def test_the_job_tells_its_progress_rows_and_result() -> None:
    events = [event async for event in evaluation(SinglePolicy("a"), tasks_of(3), pool_of(a=right, b=declines))]
    assert isinstance(events[0], JobStarted)
    assert events[0].kind == "eval"
    assert [event.seq for event in events] == list(range(len(events)))
    steps = [event for event in events if isinstance(event, Progress)]
    assert [step.done for step in steps] == list(range(1, 13))  # 4 methods on 3 tasks
    assert {step.total for step in steps} == {12}
    rows = [event.name for event in events if isinstance(event, Validation)]
    assert rows == ["coordinator", "single a", "single b", "random policy", "best agent per question"]
    assert isinstance(events[-1], JobFinished)
    assert events[-1].status is Status.DONE


async def test_closing_the_job_stops_the_calls_under_way() -> None:
    slow = Heard(remote())
    job = evaluation(SinglePolicy("gpt"), tasks_of(40), pool(slow), params=RunParams(max_turns=1))
    async for event in job:
        if isinstance(event, Progress):
            break
    await job.aclose()  # type: ignore[attr-defined]
    called = len(slow.requests)
    await asyncio.sleep(0.05)
    assert len(slow.requests) == called <= 16


# --- Caps ---------------------------------------------------------------------------------------------------

SMOL = embedded_specs()[0]


def request(agent: Any) -> Request:
    brief = Brief(Role.WORKER, (Message("user", "Hi?"),))
    return Request(agent.spec, brief.conversation, brief)


@pytest.mark.parametrize(
    ("spec", "cap"),
    [
        (SMOL, 64),
        (replace(SMOL, options={}), 64),
        (replace(SMOL, options={"max_tokens": 32}), 32),
        (AgentSpec("g", "gguf", model="x.gguf"), 64),
        (AgentSpec("t", "transformers", model="x"), 64),
        (AgentSpec("sums", "symbolic"), None),
        (remote(), 200),
        (remote(options={"max_tokens": 100}), 100),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_the_smaller_cap_holds_by_kind(spec: AgentSpec, cap: int | None) -> None:
    assert cap_of(shorter(spec, 64, 200)) == cap
    assert shorter(spec) == spec


def test_longer_multiplies_what_is_set_and_nothing_else() -> None:
    assert cap_of(longer(SMOL, 5)) == 480
    assert cap_of(longer(replace(SMOL, options={}), 5)) == 480
    assert longer(remote(), 5) == remote()
    assert cap_of(longer(remote(options={"max_tokens": 1024}), 5)) == 5120
    assert longer(SMOL, 1) == SMOL


async def test_a_short_pool_asks_under_another_key_and_the_agent_hears_the_cap() -> None:
    inner = Heard(SMOL)
    short = Short(pool(inner), local_tokens=64)
    assert short.names == ("smollm2",)
    assert short.specs[0].options["max_tokens"] == 64
    assert reply_key(request(short.agent("smollm2"))) != reply_key(request(inner))
    store = Memory()
    for members in (pool(inner), short):
        agent = Recall(members, store).agent("smollm2")
        async for _ in agent.stream(request(agent)):
            pass
    assert len(store.known) == 2
    assert [(r.agent.options["max_tokens"], r.sampling.max_tokens) for r in inner.requests] == [(96, 4096), (64, 64)]


async def test_llama_cpp_is_given_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, bodies = LlamaAgent(longer(SMOL, 5)), list[Any]()

    def work(self: LlamaAgent, asked: Request, started: float, put: Any, call: Any) -> None:
        bodies.append(self._body(asked, _form(asked)))
        put(Reply("x", Finish.STOP))

    monkeypatch.setattr(LlamaAgent, "_work", work)
    short = Respec(pool(agent), lambda spec: shorter(SMOL, 64))  # type: ignore[arg-type]
    try:
        for one in (short.agent("smollm2"), agent):
            parts = [part async for part in one.stream(request(one))]
            assert not isinstance(parts[-1], Piece)
    finally:
        await agent.aclose()
    assert [body["max_tokens"] for body in bodies] == [64, 480]


def _form(asked: Request) -> Any:
    from trinity_core.agents.contract import free

    return free(asked)


def test_a_cap_below_one_is_refused() -> None:
    with pytest.raises(InputError, match="local_tokens"):
        Short(pool_of(a=right), local_tokens=0)
