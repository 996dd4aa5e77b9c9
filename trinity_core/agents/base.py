"""What every member of the pool is: something that streams one reply to one request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from trinity_core.types import AgentSpec, Piece, Reply, Request, Reset


class Agent(Protocol):
    """One member of the pool.

    `stream` yields any number of Piece (and Reset) and, last, exactly one Reply whose text is the pieces of the
    text channel joined. It raises AgentError when the call fails; closing the iterator early stops the work
    within a second. An agent may be called concurrently; it queues calls itself where it must.
    """

    @property
    def spec(self) -> AgentSpec: ...

    def stream(self, request: Request) -> AsyncIterator[Piece | Reset | Reply]: ...

    async def aclose(self) -> None: ...
