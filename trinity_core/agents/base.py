"""What every member of the pool is: something that streams one reply to one request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from trinity_core.types import AgentSpec, Piece, Reply, Request, Reset

if TYPE_CHECKING:
    from trinity_core.agents.keys import Keys
    from trinity_core.agents.meter import Meter
    from trinity_core.agents.remote.breaker import Breaker


class Agent(Protocol):
    """One member of the pool.

    `stream` yields any number of Piece (and Reset) and, last, exactly one Reply whose text is the pieces of the
    text channel since the last Reset joined. It raises AgentError when the call fails; closing the iterator early
    stops the work within a second. An agent may be called concurrently; it queues calls itself where it must.
    """

    @property
    def spec(self) -> AgentSpec: ...

    def stream(self, request: Request) -> AsyncIterator[Piece | Reset | Reply]: ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Wiring:
    """What members that call somebody else share: keys, the day's spending, and who is resting after failures.

    `server_id` names this process in the header by which a Trinity that calls itself is noticed. `breakers` holds
    one for each remote member that was built, by name.
    """

    keys: Keys
    meter: Meter
    server_id: str = ""
    breakers: dict[str, Breaker] = field(default_factory=dict)
