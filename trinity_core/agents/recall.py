"""Replies stored once: a pool whose members remember what they said.

Two policies. With `read` (training, replays, a run that asks for it) a stored reply is given instead of calling the
member; without (a run that asks afresh) the member is always called and its reply stored for later.

Invariants: a reply is committed before it is handed out, so whoever was interrupted finds it again; the first one
stored under a request stays. Failed, blocked, cut-off and empty replies are neither stored nor read. With `read`, of
equal requests under way at once (also of different runs, on one event loop) one calls and the others wait and read;
where that call fails, is cancelled or keeps nothing, the next one calls for itself. A store that fails loses no
reply: the member is called, its reply goes on, and says in a warning what could not be done (the log says it too, for
training has no reader of warnings). The store is asked in a thread, so a slow disk holds up nobody else.

Not covered: waiting for one another across processes or event loops; there the first reply that is stored wins.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol
from weakref import WeakKeyDictionary

from trinity_core.agents.base import Agent
from trinity_core.agents.replies import ReplyStore, keepable, reply_key
from trinity_core.errors import TrinityError
from trinity_core.types import AgentSpec, Piece, Reply, Request, Reset
from trinity_core.wire import redact

log = logging.getLogger(__name__)


class Members(Protocol):
    """The pool as it is asked for here: what `session.loop` asks of one."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def specs(self) -> tuple[AgentSpec, ...]: ...
    def agent(self, name: str) -> Agent: ...
    def resting(self) -> Mapping[str, str]: ...


class Recall:
    """`pool` behind the store `replies`. `sample` tells several replies to the same request apart."""

    def __init__(self, pool: Members, replies: ReplyStore, *, sample: int = 0, read: bool = True) -> None:
        self._pool, self._replies, self._sample, self._read = pool, replies, sample, read
        self._told: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        return self._pool.names

    @property
    def specs(self) -> tuple[AgentSpec, ...]:
        return self._pool.specs

    def agent(self, name: str) -> Agent:
        return _Recalled(self._pool.agent(name), self._replies, self._sample, self._read, self._told)

    def resting(self) -> Mapping[str, str]:
        return self._pool.resting()


class _Recalled:
    """One member behind the store. `told` are the troubles that the log has heard of."""

    def __init__(self, agent: Agent, replies: ReplyStore, sample: int, read: bool, told: set[str]) -> None:
        self._agent, self._replies, self._sample, self._read, self._told = agent, replies, sample, read, told

    @property
    def spec(self) -> AgentSpec:
        return self._agent.spec

    async def aclose(self) -> None:
        await self._agent.aclose()

    async def stream(self, request: Request) -> AsyncIterator[Piece | Reset | Reply]:
        key, troubles = reply_key(request), list[str]()
        stored: Reply | None = None
        fresh: Reply | None = None
        async with AsyncExitStack() as held:
            if self._read:
                await held.enter_async_context(_alone(self._replies, key, self._sample))
                stored = await self._stored(key, troubles)
            if stored is None:
                # Agents are asynchronous generators, whose aclose() frees the socket or the decoding slot.
                async with aclosing(self._agent.stream(request)) as parts:  # type: ignore[type-var]
                    async for part in parts:
                        if isinstance(part, Reply):
                            fresh = part
                            break
                        yield part
                if fresh is not None:
                    await self._keep(key, request, fresh, troubles)
        # Nobody waits any more, however slowly the rest is taken.
        if stored is not None:
            if stored.reasoning:
                yield Piece(stored.reasoning, "reasoning")
            if stored.text:
                yield Piece(stored.text)
            yield stored
        elif fresh is not None:
            yield replace(fresh, warnings=(*fresh.warnings, *troubles)) if troubles else fresh

    async def _stored(self, key: str, troubles: list[str]) -> Reply | None:
        """The stored reply as one that nobody was called for, or None. `seconds` are those of the look-up."""
        began = time.perf_counter()
        try:
            found = await asyncio.to_thread(self._replies.get_reply, key, self._sample)
        except Exception as error:  # whatever the store's trouble is, the member can still be asked
            troubles.append(self._trouble("The stored replies could not be read, so the member was asked", error))
            return None
        if found is None or not keepable(found):
            return None
        seconds = time.perf_counter() - began
        return replace(
            found, cost=None, unpriced=0, calls=0, first_token_s=None, seconds=seconds, reused=True, warnings=()
        )

    async def _keep(self, key: str, request: Request, reply: Reply, troubles: list[str]) -> None:
        if not keepable(reply):
            return
        try:
            await asyncio.to_thread(self._replies.put_reply, key, self._sample, request.sent(), reply)
        except Exception as error:  # a reply that was paid for is not thrown away because a disk is full
            troubles.append(self._trouble("This reply could not be stored, so it cannot be reused", error))

    def _trouble(self, what: str, error: Exception) -> str:
        """The sentence for the user; the log hears it once, with the place in the code where it is a bug."""
        bug = not isinstance(error, TrinityError | OSError)
        said = redact(f"{what} ({type(error).__name__ + ': ' if bug else ''}{str(error).rstrip('.')}).")
        if said not in self._told:
            self._told.add(said)
            log.warning(said, exc_info=error if bug else None)
        return said


@dataclass(slots=True)
class _Line:
    """Who waits for one request's reply."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


_lines: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[int, str, int], _Line]] = WeakKeyDictionary()
"""Requests under way, by event loop (a lock belongs to one), store (it lives while somebody asks it), key, sample."""


@asynccontextmanager
async def _alone(replies: ReplyStore, key: str, sample: int) -> AsyncIterator[None]:
    """Wait until nobody else asks for this request's reply, and keep the others waiting."""
    lines = _lines.setdefault(asyncio.get_running_loop(), {})
    place = (id(replies), key, sample)
    line = lines.setdefault(place, _Line())
    line.users += 1
    try:
        async with line.lock:
            yield
    finally:
        line.users -= 1
        if not line.users:
            del lines[place]
