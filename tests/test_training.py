"""Measured outcomes, remembered replies, the fit and the scores, against scripted agents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import numpy as np
import pytest

from tests.fakes import FakePool, ListedPolicy, ScriptedAgent, collect
from trinity_core.agents.recall import Recall
from trinity_core.agents.replies import ReplyStore, keepable
from trinity_core.coordinator.policy import RandomPolicy
from trinity_core.errors import AgentError
from trinity_core.session.loop import Situation
from trinity_core.tasks.task import Task
from trinity_core.training.baselines import Examples, Measure, explore, fit, role_for
from trinity_core.training.rollout import (
    best_per_question,
    move,
    play,
    play_single,
    score,
    wilson,
)
from trinity_core.types import AgentSpec, Finish, Message, Piece, Reply, Request, Reset, Role, RunParams

TASK = Task.make("What is 6 times 7?", "42", grader="numeric", family="arithmetic")
TWO_STEPS = Task.make("How many letters has 'abc'? Double that.", "6", grader="numeric", family="two_step")


class Memory(ReplyStore):
    """Replies in a dict."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, int], Reply] = {}

    def get_reply(self, key: str, sample: int) -> Reply | None:
        return self.known.get((key, sample))

    def put_reply(self, key: str, sample: int, request_json: Mapping[str, Any], reply: Reply) -> None:
        if keepable(reply):
            self.known.setdefault((key, sample), reply)


class RuleAgent:
    """Answers by a function of the brief; counts its calls."""

    def __init__(self, name: str, rule: Any) -> None:
        self.spec = AgentSpec(name, "rule")
        self.rule, self.calls = rule, 0

    async def stream(self, request: Request) -> AsyncIterator[Piece | Reset | Reply]:
        self.calls += 1
        made = self.rule(request.brief)
        if isinstance(made, Exception):
            raise made
        reply = made if isinstance(made, Reply) else Reply(made, Finish.STOP)
        yield Piece(reply.text)
        yield reply

    async def aclose(self) -> None:
        pass


def declines(brief: Any) -> Reply:
    return Reply("Not my subject.", Finish.REFUSED)


def right(brief: Any) -> str:
    return "Recomputed.\nVERDICT: ACCEPT" if brief.role is Role.VERIFIER else "Answer: 42"


def wrong(brief: Any) -> str:
    return "Hm.\nVERDICT: REVISE" if brief.role is Role.VERIFIER else "Answer: 41"


def pool_of(**rules: Any) -> FakePool:
    return FakePool(*(RuleAgent(name, rule) for name, rule in rules.items()))  # type: ignore[arg-type]


def start(task: Task = TASK) -> Situation:
    return Situation((Message("user", task.question),))


async def test_a_move_makes_the_request_that_the_loop_makes() -> None:
    agent = ScriptedAgent("a", "Answer: 42", "Answer: 42")
    pool = FakePool(agent)
    await collect(pool, ListedPolicy([("a", Role.WORKER)]), TASK.question, RunParams(max_turns=1))
    done = await move(pool, start(), "a", Role.WORKER)
    assert agent.requests[0].sent() == agent.requests[1].sent()
    assert (done.text, done.role, done.turn) == ("Answer: 42", Role.WORKER, 1)


async def test_equal_requests_call_the_agent_once() -> None:
    agent, store = RuleAgent("a", right), Memory()
    for _ in range(2):
        recall = Recall(FakePool(agent), store)  # type: ignore[arg-type]
        assert (await move(recall, start(), "a", Role.WORKER)).text == "Answer: 42"
    assert agent.calls == 1
    await move(Recall(FakePool(agent), store, sample=1), start(), "a", Role.WORKER)  # type: ignore[arg-type]
    assert agent.calls == 2


async def test_failed_and_empty_calls_are_not_remembered() -> None:
    store = Memory()
    broken = RuleAgent("a", lambda brief: AgentError("down"))
    with pytest.raises(AgentError):
        await move(Recall(FakePool(broken), store), start(), "a", Role.WORKER)  # type: ignore[arg-type]
    empty = RuleAgent("a", lambda brief: "")
    await move(Recall(FakePool(empty), store), start(), "a", Role.WORKER)  # type: ignore[arg-type]
    assert store.known == {}


async def test_a_failed_run_is_an_error_and_not_a_wrong_answer() -> None:
    pool = pool_of(a=lambda brief: AgentError("down"))
    with pytest.raises(AgentError):
        await play(TASK, pool, RandomPolicy())


async def test_roles_follow_from_the_state_of_the_answer() -> None:
    pool = pool_of(good=right, bad=wrong)
    begun = start()
    assert role_for(TASK, begun) is Role.WORKER
    assert role_for(TASK, begun.after(await move(pool, begun, "good", Role.WORKER))) is Role.VERIFIER
    assert role_for(TASK, begun.after(await move(pool, begun, "bad", Role.WORKER))) is Role.WORKER


async def test_values_rank_right_above_refusal_above_wrong() -> None:
    outcomes = await Measure(pool_of(good=right, bad=wrong, out=declines)).outcomes(TASK, start())
    assert outcomes.role is Role.WORKER
    assert outcomes.values["good"] == 1.0
    assert 1.0 > outcomes.values["out"] > outcomes.values["bad"] > 0.0


async def test_verifying_a_right_answer_values_acceptance() -> None:
    pool = pool_of(good=right, bad=wrong, out=declines)
    answered = start().after(await move(pool, start(), "good", Role.WORKER))
    outcomes = await Measure(pool).outcomes(TASK, answered)
    assert outcomes.role is Role.VERIFIER
    assert outcomes.values["good"] == 1.0 > outcomes.values["bad"]
    assert outcomes.after["good"] is None  # accepted: the run is over
    assert outcomes.after["bad"] is not None


async def test_a_first_step_is_worth_what_it_makes_possible() -> None:
    def first(brief: Any) -> str | Reply:
        return "Result so far: 3" if brief.role is Role.WORKER and brief.answer is None else declines(brief)

    def second(brief: Any) -> str | Reply:
        return "Answer: 6" if brief.answer and "3" in brief.answer else declines(brief)

    outcomes = await Measure(pool_of(first=first, second=second)).outcomes(TWO_STEPS, start(TWO_STEPS))
    assert outcomes.values["first"] > outcomes.values["second"] > 0


async def test_nobody_can_means_no_value() -> None:
    outcomes = await Measure(pool_of(out=declines, bad=wrong)).outcomes(TASK, start())
    assert set(outcomes.values.values()) == {0.0}


async def test_exploring_starts_at_the_question_and_ends_where_runs_end() -> None:
    visits = await explore(Measure(pool_of(good=right, bad=wrong, out=declines)), TASK, np.random.default_rng(0))
    assert visits[0].situation == start()
    assert {len(v.situation.turns) for v in visits} >= {0, 1, 2}
    assert all(len(v.situation.turns) < 5 for v in visits)


async def test_playing_grades_what_the_run_answers() -> None:
    pool = pool_of(good=right)
    policy = ListedPolicy([("good", Role.WORKER), ("good", Role.VERIFIER)])
    played = await play(TASK, pool, policy)
    assert (played.correct, played.accepted, played.turns) == (True, True, 2)
    assert played.path == ("good:worker", "good:verifier")


async def test_without_acceptance_the_newest_answer_that_settles_counts() -> None:
    task = Task.make(
        "Which? A) x B) y C) z", "C", grader="choice", params={"choices": {"A": "x", "B": "y", "C": "z"}}
    )
    agent = ScriptedAgent("a", "Answer: C", "No.\nVERDICT: REVISE", "On reflection this is long and subtle.")
    policy = ListedPolicy([("a", Role.WORKER), ("a", Role.VERIFIER), ("a", Role.WORKER)] + [("a", Role.THINKER)] * 2)
    agent.queue += ["Hm.", "Hm."]
    assert (await play(task, FakePool(agent), policy)).correct


async def test_single_agents_and_the_best_of_them() -> None:
    pool = pool_of(good=right, bad=wrong)
    good, bad = [await play_single([TASK], pool, name) for name in ("good", "bad")]
    assert (good[0].correct, bad[0].correct, good[0].turns) == (True, False, 1)
    assert best_per_question([bad, good])[0].correct


def test_wilson_interval_against_known_values() -> None:
    low, high = wilson(8, 10)
    assert low == pytest.approx(0.4902, abs=1e-4)
    assert high == pytest.approx(0.9433, abs=1e-4)
    assert wilson(0, 10)[0] == 0.0
    assert wilson(10, 10)[1] == pytest.approx(1.0)


def test_scoring_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing"):
        score("x", [])


def test_fit_learns_soft_targets_and_ignores_weightless_rows() -> None:
    rng = np.random.default_rng(0)
    n, d = 400, 16
    states = rng.normal(3.0, 5.0, (n, d))
    truth = rng.normal(size=(3, d))
    best = np.argmax((states - states.mean(0)) @ truth.T, axis=1)
    agents = np.full((n, 3), 0.1)
    agents[np.arange(n), best] = 0.8
    roles = np.eye(3)[(states[:, 0] > 3.0).astype(int)]
    weights = np.ones(n)
    weights[::10] = 0.0
    agents[::10] = np.roll(agents[::10], 1, axis=1)  # misleading, but without weight
    w, mean, std = fit(Examples(states, agents, roles, weights), 1e-4)
    assert w.shape == (6, d)
    x = (states - mean) / std / np.sqrt(d)
    z = x @ w.T
    kept = weights > 0
    assert np.mean(np.argmax(z[kept, :3], axis=1) == best[kept]) > 0.93
    assert np.mean(np.argmax(z[:, 3:], axis=1) == np.argmax(roles, axis=1)) > 0.97
    probs = np.exp(z[kept, :3]) / np.exp(z[kept, :3]).sum(axis=1, keepdims=True)
    assert 0.6 < probs[np.arange(kept.sum()), best[kept]].mean() < 0.9  # soft, as the targets are


def test_a_larger_penalty_makes_smaller_weights() -> None:
    rng = np.random.default_rng(1)
    states, labels = rng.normal(size=(60, 8)), rng.integers(0, 3, 60)
    data = Examples(states, np.eye(3)[labels], np.eye(3)[labels], np.ones(60))
    sizes = [float(np.abs(fit(data, penalty)[0]).sum()) for penalty in (1e-4, 1e-2)]
    assert sizes[0] > sizes[1]
