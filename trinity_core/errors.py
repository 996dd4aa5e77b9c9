"""Every error Trinity raises on purpose.

A message says what was wrong and what to do about it, in words a user can act on; it may be shown as it
stands in the browser, on the command line and in a trace. It never holds a key. Programming mistakes raise
the usual Python exceptions instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from trinity_core.types import Usage


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The sentence that names the nearest of the `known` words, with a blank before it; empty when none is near."""
    near = difflib.get_close_matches(word.lower(), list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


class TrinityError(Exception):
    """Base class. `str(error)` is the message for the user."""


class InputError(TrinityError):
    """A question, flag, file or other input from the user cannot be used as it is (exit code 2)."""


class ConfigError(TrinityError):
    """Settings, the home folder or the pool file do not fit together (exit code 2)."""


class PoolError(ConfigError):
    """The pool file names an unknown kind of agent, a name twice, a reserved name or nothing at all."""


class BackboneError(TrinityError):
    """The backbone is missing, half-converted, of an unsupported architecture or does not load."""


class CheckpointError(TrinityError):
    """A checkpoint is corrupt, not finite, or does not fit the backbone or the pool."""


class NoAgentError(TrinityError):
    """Every agent, or every role, is masked: there is nothing left to choose."""


class StoreError(TrinityError):
    """The database cannot be opened, read or written (read-only, full disk, locked, newer schema)."""


class Cancelled(TrinityError):
    """Work was stopped on request between two steps, for example between two chunks of a forward pass."""


class AgentError(TrinityError):
    """A call to an agent failed.

    `kind` is one of: rate_limit, billing, transient, transport, timeout, truncated, protocol, auth, bad_request,
    context_length, resting (too many failures lately), budget (the call was not made), internal. `retryable` says
    whether the same call may succeed later, `retry_after` how many seconds to wait at least. `drop` names the
    request field that the provider does not take, when leaving it out may help. `calls` counts the attempts that
    were made, `unpriced` those among them that may have cost something nobody told; `usage` and `cost` are what the
    others used and cost.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "internal",
        retryable: bool = False,
        retry_after: float | None = None,
        drop: str | None = None,
        calls: int = 1,
        unpriced: int = 0,
        usage: Usage | None = None,
        cost: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
        self.retry_after = retry_after
        self.drop = drop
        self.calls = calls
        self.unpriced = unpriced
        self.usage = usage or Usage()
        self.cost = cost
