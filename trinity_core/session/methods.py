"""Methods: how a question is answered. All of them yield the same events.

- `coordinator`: the loop with the learned policy (or, where no head fits, the untrained one, which says so).
- `random`: the loop with uniform choices.
- `fixed`: the loop as Thinker, Worker, Verifier in rotation.
- `single:NAME`: one Worker call to one agent, with the same role prompt as in the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from trinity_core.coordinator.policy import Choice, FixedPolicy, Policy, PolicySession, RandomPolicy
from trinity_core.errors import InputError, NoAgentError
from trinity_core.session.loop import Members, RunRequest, check_messages, run
from trinity_core.types import AnyRunEvent, Decision, LoopState, Mode, Role

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


class Methods:
    """Every method over one pool.

    `coordinator` returns the learned policy, waiting until it is loaded; it raises BackboneError or
    CheckpointError when it cannot be.
    """

    def __init__(self, pool: Members, coordinator: Callable[[], Awaitable[Policy]]) -> None:
        self.pool = pool
        self._coordinator = coordinator

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
        if request.method.startswith(SINGLE):
            request = replace(request, params=replace(request.params, max_turns=1))
        policy = await self._policy(request.method)
        async with aclosing(run(request, self.pool, policy, stop)) as events:
            async for event in events:
                yield event

    async def _policy(self, method: str) -> Policy:
        if method == "coordinator":
            return await self._coordinator()
        if method == "random":
            return RandomPolicy()
        if method == "fixed":
            return FixedPolicy()
        return SinglePolicy(method.removeprefix(SINGLE))
