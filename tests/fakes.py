"""Test doubles, written once: agents that reply from a queue, a policy that follows a list, a loop runner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from trinity_core.agents.base import Agent
from trinity_core.coordinator.policy import Choice
from trinity_core.session.loop import RunRequest, run
from trinity_core.types import (
    AgentSpec,
    AnyRunEvent,
    Decision,
    Finish,
    Limits,
    LoopState,
    Message,
    Mode,
    Piece,
    Reply,
    Request,
    Reset,
    Role,
    RunParams,
    TurnFinished,
)

Script = str | Reply | Exception | float


class ScriptedAgent:
    """Replies from a queue: a text, a whole Reply, an exception to raise, or seconds to hang before the next."""

    def __init__(self, name: str, *replies: Script) -> None:
        self.spec = AgentSpec(name, "scripted")
        self.queue: list[Script] = list(replies)
        self.requests: list[Request] = []
        self.closed = 0

    async def stream(self, request: Request) -> AsyncIterator[Piece | Reset | Reply]:
        self.requests.append(request)
        try:
            while True:
                step = self.queue.pop(0)
                if isinstance(step, float):
                    yield Piece("partial ")
                    await asyncio.sleep(step)
                elif isinstance(step, Exception):
                    raise step
                else:
                    reply = step if isinstance(step, Reply) else Reply(step, Finish.STOP)
                    for word in reply.text.split(" "):
                        yield Piece(word + " ")
                    yield reply
                    return
        finally:
            self.closed += 1

    async def aclose(self) -> None:
        pass


class FakePool:
    """Agents by name, in order."""

    limits = Limits()

    def __init__(self, *agents: ScriptedAgent) -> None:
        self._agents = {agent.spec.name: agent for agent in agents}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._agents)

    @property
    def specs(self) -> tuple[AgentSpec, ...]:
        return tuple(agent.spec for agent in self._agents.values())

    def agent(self, name: str) -> Agent:
        return self._agents[name]

    def resting(self) -> dict[str, str]:
        return {}

    @contextmanager
    def lease(self) -> Iterator[FakePool]:
        yield self


@dataclass
class ListedPolicy:
    """Chooses (agent, role) from a list and remembers every state it was shown."""

    choices: list[tuple[str, Role]]
    delay: float = 0.0
    name: str = "listed"
    checkpoint_id: str | None = None
    transcript_version: str | None = "lines-v1"
    notice: str | None = None
    states: list[LoopState] = field(default_factory=list)
    closed: int = 0

    def session(self, run_id: str, agents: Sequence[str], *, mode: Mode, seed: int) -> ListedPolicy:
        return self

    async def decide(self, state: LoopState) -> Choice:
        if self.delay:
            await asyncio.sleep(self.delay)
        self.states.append(state)
        agent, role = self.choices.pop(0)
        return Choice(Decision(agent, role, agent, role, Mode.FIXED, suggested=state.suggested), None)

    def close(self) -> None:
        self.closed += 1


async def collect(
    pool: FakePool,
    policy: ListedPolicy,
    question: str = "What is 6 times 7?",
    params: RunParams | None = None,
    stop: asyncio.Event | None = None,
) -> list[AnyRunEvent]:
    """All events of one run."""
    request = RunRequest((Message("user", question),), params=params or RunParams())
    return [event async for event in run(request, pool, policy, stop or asyncio.Event())]


def finished(events: Sequence[AnyRunEvent]) -> list[TurnFinished]:
    return [event for event in events if isinstance(event, TurnFinished)]
