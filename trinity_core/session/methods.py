"""Methods: how a question is answered. All of them yield the same events.

- `coordinator`: the loop with the learned policy (or, where no head fits, the untrained one, which says so).
- `random`: the loop with uniform choices.
- `fixed`: the loop as Thinker, Worker, Verifier in rotation.
- `single:NAME`: one Worker call to one agent, with the same role prompt as in the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import replace
from typing import Protocol

from trinity_core.agents.recall import Recall
from trinity_core.agents.replies import ReplyStore
from trinity_core.coordinator.policy import Choice, FixedPolicy, Policy, PolicySession, RandomPolicy
from trinity_core.errors import InputError, NoAgentError
from trinity_core.session import loop
from trinity_core.session.loop import RunRequest, check_messages, run
from trinity_core.types import AnyRunEvent, Decision, Limits, LoopState, Mode, Role

SINGLE = "single:"


class SinglePolicy:
    """Always the same agent as Worker: the baseline of asking one model, through the loop's own prompt."""

    name = "single"
    checkpoint_id: str | None = None
    transcript_version: str | None = None
    notice: str | None = None

    def __init__(self, agent: str) -> None:
        self._agent = agent

    def session(self, run_id: str, agents: Sequence[str], *, mode: Mode, seed: int) -> PolicySession:
        if self._agent not in agents:
            raise NoAgentError(f"The pool has no agent {self._agent!r}.")
        return self

    async def decide(self, state: LoopState) -> Choice:
        if (reason := state.masked_agents.get(self._agent)) is not None:
            raise NoAgentError(f"{self._agent} failed: {reason}")
        return Choice(Decision(self._agent, Role.WORKER, self._agent, Role.WORKER, Mode.FIXED), None)

    def close(self) -> None:
        """Nothing is kept for a run."""


class Members(loop.Members, Protocol):
    """The pool as the methods need it: it may be exchanged while runs go on."""

    @property
    def limits(self) -> Limits:
        """What one run may spend, unless its request says otherwise."""
        ...

    def lease(self) -> AbstractContextManager[loop.Members]:
        """The pool of now, for as long as one run lasts."""
        ...


class Methods:
    """Every method over one pool.

    `coordinator` returns the learned policy for these agents, waiting until it is loaded; it raises BackboneError or
    CheckpointError when it cannot be. With `replies` each reply is stored once, and a run that asks to reuse replies
    reads them first.
    """

    def __init__(
        self,
        pool: Members,
        coordinator: Callable[[Sequence[str]], Awaitable[Policy]],
        replies: ReplyStore | None = None,
    ) -> None:
        self.pool = pool
        self._coordinator = coordinator
        self._replies = replies

    @property
    def names(self) -> tuple[str, ...]:
        return ("coordinator", "random", "fixed", *(SINGLE + name for name in self.pool.names))

    def check(self, request: RunRequest) -> None:
        """Raise InputError when `request` cannot be run at all: unknown method, unusable messages or settings."""
        if request.method not in self.names:
            raise InputError(f"There is no method {request.method!r}. Choose one of: {', '.join(self.names)}.")
        if request.params.max_turns < 1:
            raise InputError(f"A run needs at least one turn, not {request.params.max_turns}.")
        if not -(2**63) <= request.seed < 2**63:
            raise InputError("The seed is too large. Use a whole number of at most 18 digits.")
        check_messages(request.messages)

    async def answer(self, request: RunRequest, stop: asyncio.Event) -> AsyncIterator[AnyRunEvent]:
        """Run `request`; see `session.loop.run`. Raises InputError before the first event, as `check` does."""
        self.check(request)
        params = request.params
        if params.limits == Limits():
            params = replace(params, limits=self.pool.limits)
        if request.method.startswith(SINGLE):
            params = replace(params, max_turns=1)
        with self.pool.lease() as pool:
            members: loop.Members = pool
            if self._replies is not None:
                members = Recall(pool, self._replies, read=params.reuse)
            policy = await self._policy(request.method, pool.names)
            async with aclosing(run(replace(request, params=params), members, policy, stop)) as events:
                async for event in events:
                    yield event

    async def _policy(self, method: str, agents: Sequence[str]) -> Policy:
        if method == "coordinator":
            return await self._coordinator(agents)
        if method == "random":
            return RandomPolicy()
        if method == "fixed":
            return FixedPolicy()
        return SinglePolicy(method.removeprefix(SINGLE))
