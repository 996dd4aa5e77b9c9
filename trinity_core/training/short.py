"""A pool whose members are asked under other caps on the length of a reply.

Training asks small models for short replies, because most of its time is theirs; an evaluation may give a single
agent the tokens that several turns would have had. Both change a member's option `max_tokens`, which belongs to the
key of the reply store, so replies under different caps are never mixed up.

Invariants: everything but `max_tokens` stays as the pool file says. A cap is held to by every kind that writes text,
whatever its agent was built with, because it also lowers the request's own cap. A member that writes no text of a
model (the specialists) keeps its spec and its key.

Not covered: raising the cap of an agent that is built already; build a pool from the specs that `longer` gives.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace

from trinity_core.agents import prices
from trinity_core.agents.base import Agent
from trinity_core.agents.local import LlamaOptions
from trinity_core.agents.meter import SPECIALISTS
from trinity_core.errors import InputError
from trinity_core.session.loop import Members
from trinity_core.types import AgentSpec, Piece, Reply, Request, Reset


def cap_of(spec: AgentSpec) -> int | None:
    """The member's own cap on the tokens of a reply, or None where only the request caps it."""
    own = spec.options.get("max_tokens")
    if own is None and spec.kind == "smollm2":
        own = LlamaOptions.read(spec).max_tokens
    return own if isinstance(own, int) else None


def writes(spec: AgentSpec) -> bool:
    """Whether a model writes the member's replies, so that a cap on tokens shapes them."""
    return spec.kind not in SPECIALISTS


def with_cap(spec: AgentSpec, tokens: int) -> AgentSpec:
    """`spec` with `max_tokens` set, whatever it was."""
    return replace(spec, options={**spec.options, "max_tokens": tokens})


def shorter(spec: AgentSpec, local_tokens: int | None = None, remote_tokens: int | None = None) -> AgentSpec:
    """`spec` with at most `local_tokens` (a model in this program) or `remote_tokens` a reply; None: as it is."""
    cap, own = remote_tokens if prices.remote(spec) else local_tokens, cap_of(spec)
    if not writes(spec) or cap is None or (own is not None and own <= cap):
        return spec
    return with_cap(spec, cap)


def longer(spec: AgentSpec, times: int) -> AgentSpec:
    """`spec` with `times` its own cap; as it is where it has none."""
    own = cap_of(spec)
    return spec if times == 1 or own is None or not writes(spec) else with_cap(spec, own * times)


class Respec:
    """`pool`, each of whose members appears with the spec that `change` makes of its own, and is asked under it.

    Raises PoolError where `pool` does. Only caps may change: the agents stay those of `pool`.
    """

    def __init__(self, pool: Members, change: Callable[[AgentSpec], AgentSpec]) -> None:
        self._pool, self._change = pool, change

    @property
    def names(self) -> tuple[str, ...]:
        return self._pool.names

    @property
    def specs(self) -> tuple[AgentSpec, ...]:
        return tuple(self._change(spec) for spec in self._pool.specs)

    def agent(self, name: str) -> Agent:
        agent = self._pool.agent(name)
        return _Respecced(agent, self._change(agent.spec))

    def resting(self) -> Mapping[str, str]:
        return self._pool.resting()


class Short(Respec):
    """`pool` with replies of at most `local_tokens` from models in this program and `remote_tokens` from others.

    A member whose own cap is smaller keeps it; None caps nothing. Raises InputError for a cap below 1.
    """

    def __init__(self, pool: Members, *, local_tokens: int | None = None, remote_tokens: int | None = None) -> None:
        for name, cap in (("local_tokens", local_tokens), ("remote_tokens", remote_tokens)):
            if cap is not None and cap < 1:
                raise InputError(f"{name} is {cap}; a reply needs at least one token.")
        super().__init__(pool, lambda spec: shorter(spec, local_tokens, remote_tokens))


class _Respecced:
    """One member under another spec."""

    def __init__(self, agent: Agent, spec: AgentSpec) -> None:
        self._agent, self._spec, self._cap = agent, spec, cap_of(spec) if writes(spec) else None

    @property
    def spec(self) -> AgentSpec:
        return self._spec

    async def aclose(self) -> None:
        await self._agent.aclose()

    async def stream(self, request: Request) -> AsyncIterator[Piece | Reset | Reply]:
        sampling = request.sampling
        if self._cap is not None:  # an agent that was built before keeps to the cap of its own spec otherwise
            sampling = replace(sampling, max_tokens=min(sampling.max_tokens, self._cap))
        asked = replace(request, agent=self._spec, sampling=sampling)
        async with aclosing(self._agent.stream(asked)) as parts:  # type: ignore[type-var]
            async for part in parts:
                yield part
