"""The expected fitness against enumeration by hand, the real loop, and a pool that fails."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.test_training import Memory, pool_of, right, wrong
from trinity_core.agents.recall import Recall
from trinity_core.coordinator.policy import ROLES, RandomPolicy
from trinity_core.errors import AgentError
from trinity_core.tasks.graders import Grade, grade
from trinity_core.tasks.task import Task
from trinity_core.training.fitness import BudgetReached, Fitness, Node, Outcomes, Trees, split_mass
from trinity_core.training.plan import Plan
from trinity_core.training.rollout import play
from trinity_core.training.states import Wanted
from trinity_core.types import Limits, Role, RunParams

TASKS = [Task.make(f"What is {n} times 7?", str(7 * n), grader="numeric", family="arithmetic") for n in (6, 8, 9)]
THETAS = np.random.default_rng(5).normal(0, 1.5, (6, 5, 4))
"""Six linear heads for two agents and three roles on four features."""


class Digests:
    """Hidden states made of a transcript's length and content; counts what it is asked for."""

    def __init__(self) -> None:
        self.asked = 0

    async def hidden(self, wanted: Sequence[Wanted], tick: Any = None) -> NDArray[np.float32]:
        self.asked += len(wanted)
        rows = []
        for one in wanted:
            text = one.messages[-1].content + "".join(t.agent + t.role + t.text for t in one.turns)
            rows.append(np.random.default_rng([len(text), *text.encode()]).normal(size=4))
        return np.array(rows, np.float32).reshape(-1, 4)


async def graded(task: Task, text: str) -> Grade:
    return grade(task, text)


def solves(brief: Any) -> str:
    """Right on the first question only; as Verifier it accepts whatever is right there."""
    if brief.role is Role.VERIFIER:
        return "Checked.\nVERDICT: " + ("ACCEPT" if "42" in (brief.answer or "") else "REVISE")
    return "Answer: 42"


def suggests(brief: Any) -> str:
    if brief.role is Role.THINKER:
        return "Let b do it.\nNEXT: worker b: multiply"
    return wrong(brief)


def trees(plan: Plan, *, limits: Limits | None = None, **rules: Any) -> Trees:
    pool = Recall(pool_of(**rules), Memory())
    outcomes = Outcomes(pool, graded, limits or Limits())
    return Trees(plan, outcomes, Digests(), tuple(rules))


def heads(thetas: NDArray[np.float64] = THETAS) -> Any:
    def logits(nodes: Sequence[Node]) -> NDArray[np.float64]:
        x = np.array([node.x for node in nodes])
        return np.einsum("md,crd->cmr", x, thetas)

    return logits


async def expect(made: Trees, thetas: NDArray[np.float64] = THETAS, generation: int = 0) -> Fitness:
    return await made.expect(heads(thetas), len(thetas), TASKS, generation, lambda said: None)


async def by_hand(made: Trees, thetas: NDArray[np.float64]) -> NDArray[np.float64]:
    """The whole expectation, by walking every branch one candidate at a time."""
    values = np.zeros(len(thetas))
    for c, theta in enumerate(thetas):
        for task in TASKS:
            stack = [(made.root(task), 1.0)]
            while stack:
                node, weight = stack.pop()
                if node.reward is not None:
                    values[c] += weight * made.value(node) / len(TASKS)
                    continue
                await made.featurise([node])
                z = theta @ node.x
                roles = [r for r in ROLES if r is not Role.VERIFIER or node.situation.answer is not None]
                suggested = node.situation.suggested
                agents = np.exp(z[:2]) / np.exp(z[:2]).sum()
                role_p = {r: np.exp(z[2 + ROLES.index(r)]) for r in roles}
                total = sum(role_p.values())
                for a, r in product(range(2), roles):
                    p = agents[a] * role_p[r] / total
                    if suggested is not None:
                        p = float(a == 1 and r is Role.WORKER)
                    if p > 0:
                        await made._edge(node, (a, ROLES.index(r)))
                        stack.append((node.children[a, ROLES.index(r)], weight * p))
    return values


@pytest.mark.parametrize("rules", [{"a": solves, "b": wrong}, {"a": suggests, "b": right}])
async def test_without_a_threshold_the_expectation_is_that_of_every_branch(rules: dict[str, Any]) -> None:
    plan = Plan(branch=0.0, max_turns=3)
    found = await expect(trees(plan, **rules))
    assert found.fitness == pytest.approx(await by_hand(trees(plan, **rules), THETAS), abs=1e-12)
    assert found.evaluations == 6 * 3
    assert sum(found.agent_shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(("estimator", "branch", "within"), [("expectation", 0.3, 0.02), ("sampled", 0.0, 0.04)])
async def test_what_is_drawn_is_unbiased(estimator: Any, branch: float, within: float) -> None:
    rules: dict[str, Any] = {"a": solves, "b": wrong}
    whole = (await expect(trees(Plan(branch=0.0), **rules))).fitness
    made = trees(Plan(estimator=estimator, branch=branch, runs=40), **rules)
    drawn = np.mean([(await expect(made, generation=g)).fitness for g in range(10)], axis=0)
    assert np.abs(drawn - whole).max() < within
    one = trees(Plan(estimator=estimator, branch=branch), **rules)
    assert np.abs((await expect(one)).fitness - whole).max() > 0.001  # a single draw differs


def test_splitting_a_mass_keeps_its_expectation() -> None:
    rng = np.random.default_rng(0)
    mass = np.array([[0.5, 0.3, 0.15, 0.05], [0.99, 0.004, 0.003, 0.003], [0.0, 0.0, 0.0, 0.0]])
    mean = np.mean([split_mass(mass, 0.2, *rng.random(2)) for _ in range(40_000)], axis=0)
    assert np.abs(mean - mass).max() < 0.004
    once = split_mass(mass, 0.2, 0.5, 0.999)
    assert (once[0] > 0).sum() == 3
    assert once[1].tolist() == [0.99, 0, 0, 0]


async def test_equal_seeds_draw_equally_and_generations_do_not() -> None:
    rules: dict[str, Any] = {"a": solves, "b": wrong}
    first = await expect(trees(Plan(branch=0.3), **rules), generation=3)
    again = await expect(trees(Plan(branch=0.3), **rules), generation=3)
    other = await expect(trees(Plan(branch=0.3), **rules), generation=4)
    assert first.fitness.tolist() == again.fitness.tolist() != other.fitness.tolist()


async def test_nothing_is_asked_twice() -> None:
    made = trees(Plan(branch=0.0), a=solves, b=wrong)
    await expect(made)
    calls, states = made.outcomes.spent.made, made._states.asked  # type: ignore[attr-defined]
    await expect(made, -THETAS, generation=1)
    assert (made.outcomes.spent.made, made._states.asked) == (calls, states)  # type: ignore[attr-defined]


async def test_a_failing_agent_is_masked_for_every_candidate_and_never_scored() -> None:
    def fails(brief: Any) -> Exception:
        return AgentError("no", kind="transport", retryable=True)

    found_trees = trees(Plan(branch=0.0), a=fails, b=right)
    found = await expect(found_trees)
    alone = await expect(trees(Plan(branch=0.0, agent_fixed="b"), a=right, b=right))
    assert found.agent_shares == {"a": 0.0, "b": 1.0}
    assert found.fitness == pytest.approx(alone.fitness)
    assert found_trees.outcomes.spent.failed > 0
    nobody = await expect(trees(Plan(branch=0.0), a=fails, b=fails))
    assert len(nobody.skipped) == 3
    assert np.isnan(nobody.fitness).all()


async def test_a_grader_that_cannot_say_takes_the_task_out_for_all() -> None:
    async def picky(task: Task, text: str) -> Grade:
        if task is TASKS[0]:
            raise RuntimeError("broken")
        return grade(task, text)

    made = trees(Plan(branch=0.0), a=solves, b=wrong)
    made.outcomes.grading = picky
    with pytest.raises(RuntimeError):  # a bug is a bug; only InputError means that the grader cannot say
        await expect(made)


async def test_a_candidate_that_is_not_finite_has_no_fitness() -> None:
    thetas = THETAS.copy()
    thetas[2] = np.nan
    found = await expect(trees(Plan(), a=solves, b=wrong), thetas)
    assert np.isnan(found.fitness).tolist() == [False, False, True, False, False, False]


async def test_limits_end_the_generation() -> None:
    with pytest.raises(BudgetReached, match="4 calls"):
        await expect(trees(Plan(), limits=Limits(calls=4), a=solves, b=wrong))


async def test_a_drawn_path_is_a_run_of_the_loop() -> None:
    """Uniform heads choose as the random policy does, so rates agree; a greedy path equals the loop's own."""
    rules: dict[str, Any] = {"a": solves, "b": wrong}
    made = trees(Plan(max_turns=3), **rules)
    zero = np.zeros((1, 5, 4))
    paths = [await made.follow_path(heads(zero), task, generation=g) for g in range(150) for task in TASKS]
    rate = float(np.mean([path.correct for path in paths if path]))
    pool = Recall(pool_of(**rules), Memory())
    played = [
        await play(task, pool, RandomPolicy(), seed=seed, params=RunParams(max_turns=3))
        for seed in range(150)
        for task in TASKS
    ]
    assert rate == pytest.approx(float(np.mean([p.correct for p in played])), abs=0.07)
    assert [len(path.steps) for path in paths if path] == [path.turns for path in paths if path]
