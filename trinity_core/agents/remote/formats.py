"""What a wire format is: how one provider's request is written and how its answer is read.

A format does no input or output: it turns a `Request` into a `Call`, and what comes back into pieces and one
`Reply`. `remote.RemoteAgent` does the rest for all of them: sockets, deadlines, retries, limits, money.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from trinity_core.errors import AgentError
from trinity_core.types import AgentSpec, Piece, Reply, Request, Reset, Usage


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request. `headers` hold the key, so a Call is never stored, logged or shown. `body` None: a GET."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Mapping[str, Any] | None = None


class Reader(Protocol):
    """Reads one answer, fed in order: either events of a stream, or one whole JSON body. Then `reply` is asked.

    `usage` and `started` (whether any text or reasoning has come) are valid at any moment, also after a failure.
    """

    usage: Usage
    started: bool

    def event(self, data: str, event: str = "") -> Sequence[Piece | Reset]:
        """What one server-sent event adds. Raises AgentError for an error inside the stream, or for data that is no
        JSON (kind protocol)."""
        ...

    def whole(self, body: Any) -> Sequence[Piece | Reset]:
        """The same for an answer that came as one JSON value, of whatever type. Raises AgentError."""
        ...

    def reply(self) -> Reply:
        """The whole reply: text, reasoning, finish, usage, cost (the provider's own figure, else None), request id
        as far as the body has one, warnings. The caller adds times, headers' request id and prices.

        Raises AgentError: kind truncated (retryable) when no finish reason has come, protocol when there is no
        candidate at all, transient when the provider says that it failed."""
        ...


class Format(Protocol):
    """One wire format. Stateless."""

    kind: str
    default_base_url: str | None

    def check(self, spec: AgentSpec) -> None:
        """Raises PoolError, naming member, option and fix (with the nearest known name), when `spec.options` or its
        model do not fit."""
        ...

    def call(self, request: Request, key: str | None, *, drop: frozenset[str] = frozenset()) -> Call:
        """The streaming request; `drop` names body fields (as in `AgentError.drop`) that this member was found not
        to take."""
        ...

    def reader(self, request: Request) -> Reader: ...

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> AgentError:
        """The error that an answer with `status` of 400 or more means. Never raises; any body will do."""
        ...

    def models_call(self, base_url: str, key: str | None) -> Call:
        """The request that lists the models of a server."""
        ...

    def model_names(self, body: Any) -> tuple[str, ...]:
        """The names in its answer, as `AgentSpec.model` wants them; empty when the body is something else."""
        ...
