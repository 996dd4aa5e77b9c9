"""Playing tasks: single moves measured, whole runs graded.

Everything that training and evaluation ask of the pool goes through `agents.recall`, which calls an agent once for
each request and sample index and commits the reply before it is used, so an interrupted training loses no call. A
failed or empty call is never stored and never scored as a wrong answer.

Situations, prompts and post-processing are those of the loop itself (`session.loop.Situation`); a measured move
and a move in the browser are the same request.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from trinity_core.agents.base import Agent
from trinity_core.answers import final_answer
from trinity_core.coordinator.policy import Policy
from trinity_core.errors import AgentError
from trinity_core.session.loop import Members, RunRequest, Situation, finish_turn, run
from trinity_core.session.methods import SinglePolicy
from trinity_core.session.roles import render
from trinity_core.tasks.graders import answer_kind, grade
from trinity_core.tasks.task import Task
from trinity_core.types import (
    AnyRunEvent,
    Message,
    Mode,
    Reply,
    Request,
    Role,
    RunFinished,
    RunParams,
    Source,
    Status,
    StopReason,
    TurnFinished,
    Usage,
)


async def whole_reply(agent: Agent, request: Request) -> Reply:
    """The reply that `agent` ends its stream with. Raises AgentError when the call fails or ends without one."""
    async with aclosing(agent.stream(request)) as parts:  # type: ignore[type-var]
        async for part in parts:
            if isinstance(part, Reply):
                return part
    raise AgentError(f"{agent.spec.name} ended without a reply.", kind="truncated", retryable=True)


async def move(pool: Members, situation: Situation, name: str, role: Role) -> TurnFinished:
    """What agent `name` in `role` does in `situation`, as the loop would record it. Raises AgentError."""
    brief = situation.brief(role)
    agent = pool.agent(name)
    reply = await whole_reply(agent, Request(agent.spec, render(brief), brief))
    head = {"run_id": "", "seq": 0, "at": 0.0, "turn": len(situation.turns) + 1, "attempt": 1}
    return finish_turn(head, name, role, reply)


@dataclass(frozen=True, slots=True)
class Played:
    """One task answered by one method. `turns` counts finished turns, `calls` failed ones too."""

    task: Task
    correct: bool
    answer: str | None
    turns: int
    calls: int
    accepted: bool
    usage: Usage
    path: tuple[str, ...]
    """`agent:role` of each turn."""


async def complete(
    task: Task, pool: Members, policy: Policy, seed: int, params: RunParams
) -> tuple[RunFinished, list[TurnFinished]]:
    """Run the loop on `task` to its end: how it ended, and every call. Raises what `session.loop.run` does."""
    request = RunRequest((Message("user", task.question),), source=Source.TRAIN, params=params, seed=seed)
    done: list[TurnFinished] = []
    last: AnyRunEvent | None = None
    async with aclosing(run(request, pool, policy, asyncio.Event())) as events:
        async for event in events:
            last = event
            if isinstance(event, TurnFinished):
                done.append(event)
    assert isinstance(last, RunFinished)
    return last, done


def answer_of(task: Task, last: RunFinished, done: Sequence[TurnFinished]) -> str | None:
    """What is graded of a run: an accepted answer as it stands, otherwise the newest one that commits to something
    of the task's kind."""
    accepted = last.stop_reason is StopReason.ACCEPTED
    return last.answer if accepted else final_answer(done, answer_kind(task)).text


async def play(
    task: Task, pool: Members, policy: Policy, *, seed: int = 0, params: RunParams | None = None
) -> Played:
    """Run the loop on `task` and grade its answer.

    An accepted answer is graded as it stands; otherwise the newest one that commits to something of the task's
    kind. Raises AgentError when the run failed: that is a failed call, not a wrong answer.
    """
    last, done = await complete(task, pool, policy, seed, params or RunParams())
    if last.status is not Status.DONE:
        raise AgentError(last.error.message if last.error else f"The run ended as {last.status}.", kind="failed")
    answer = answer_of(task, last, done)
    turns = [turn for turn in done if turn.error is None]
    return Played(
        task=task,
        correct=answer is not None and grade(task, answer).correct,
        answer=answer,
        turns=last.totals.turns,
        calls=last.totals.calls,
        accepted=last.stop_reason is StopReason.ACCEPTED,
        usage=last.totals.usage,
        path=tuple(f"{turn.agent}:{turn.role}" for turn in turns),
    )


async def play_all(tasks: Sequence[Task], pool: Members, policy: Policy, *, seed: int = 0) -> tuple[Played, ...]:
    """Every task once; task i has the seed `seed + i`."""
    return tuple([await play(task, pool, policy, seed=seed + i) for i, task in enumerate(tasks)])


async def play_single(tasks: Sequence[Task], pool: Members, name: str) -> tuple[Played, ...]:
    """Every task by one Worker call to agent `name`."""
    policy, params = SinglePolicy(name), RunParams(max_turns=1, mode=Mode.ARGMAX)
    return tuple([await play(task, pool, policy, params=params) for task in tasks])


@dataclass(frozen=True, slots=True)
class Score:
    """Accuracy over `n` tasks with a 95 % Wilson interval, beside mean turns and tokens."""

    name: str
    n: int
    accuracy: float
    low: float
    high: float
    mean_turns: float
    mean_tokens: float

    def __str__(self) -> str:
        interval = f"[{100 * self.low:5.1f}, {100 * self.high:5.1f}]"
        return f"{self.name:<28} {100 * self.accuracy:5.1f} %  {interval}  n={self.n}  turns {self.mean_turns:.2f}"


def score(name: str, played: Sequence[Played]) -> Score:
    """Summarise `played`; raises ValueError when it is empty."""
    if not played:
        raise ValueError("nothing was played")
    n, right = len(played), sum(p.correct for p in played)
    low, high = wilson(right, n)
    tokens = [(p.usage.input or 0) + (p.usage.output or 0) for p in played]
    return Score(name, n, right / n, low, high, sum(p.turns for p in played) / n, sum(tokens) / n)


def wilson(right: float, n: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a proportion (E. B. Wilson, 1927)."""
    z = 1.959964
    p, scale = right / n, 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / scale
    return max(0.0, centre - half), min(1.0, centre + half)


def best_per_question(singles: Iterable[Sequence[Played]]) -> tuple[Played, ...]:
    """For each task the single agent that was right, if any: the ceiling of choosing one agent."""
    return tuple(max(column, key=lambda p: p.correct) for column in zip(*singles, strict=True))
