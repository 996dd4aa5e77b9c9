"""Circuit breaking: a member that keeps failing rests for a while, then one call tries whether it works again.

States: `closed` (calls go through), `open` (it rests), `half-open` (it has rested; one call may try it). A refused
key or spent credit opens at once, since the next call would fail the same way; other failures of the member open it
when enough of them come in a row. A request that the member answered but did not like says that it works.

Not covered: sharing the state between processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal

from trinity_core.errors import AgentError

State = Literal["closed", "open", "half-open"]
_AT_ONCE = frozenset(("auth", "billing"))
_IN_A_ROW = frozenset(("transient", "transport", "timeout", "truncated", "protocol", "rate_limit"))
_WORKS = frozenset(("bad_request", "context_length"))


class Breaker:
    """One member's breaker; may be used from any thread. `clock` counts seconds and never goes back."""

    def __init__(self, after: int, rest_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Opens after `after` failures in a row, for `rest_s` seconds."""
        self._after, self._rest_s, self._clock = after, rest_s, clock
        self._lock = threading.Lock()
        self._row = 0
        self._until: float | None = None
        self._trial = False
        self._why = ""

    @property
    def state(self) -> State:
        with self._lock:
            return self._state()

    def reason(self) -> str | None:
        """Why the member may not be called now, and what to do about it; None when it may."""
        with self._lock:
            return self._reason()

    def admit(self) -> bool:
        """Take leave to make a call. True: this call is the trial of a half-open breaker, and must end in
        `succeeded`, `failed` or `abandoned`. Raises AgentError (kind resting, no call made)."""
        with self._lock:
            reason = self._reason()
            if reason is not None:
                wait = max(0.0, (self._until or 0.0) - self._clock())
                raise AgentError(reason, kind="resting", retry_after=wait, calls=0)
            self._trial = self._state() == "half-open"
            return self._trial

    def succeeded(self) -> None:
        """A call ended well: calls go through again."""
        with self._lock:
            self._close()

    def failed(self, error: AgentError) -> None:
        """A call failed with `error`, whoever's fault it was. A failure of our own says nothing about the member."""
        with self._lock:
            if error.kind in _WORKS:
                self._close()
            if error.kind not in _AT_ONCE | _IN_A_ROW:
                return
            self._row += 1
            self._why = str(error)
            opens = error.kind in _AT_ONCE or self._row >= self._after
            # Calls that began before it opened fail for a while after; they do not make it rest longer.
            if self._state() == "half-open" or (self._until is None and opens):
                self._until = self._clock() + max(self._rest_s, error.retry_after or 0.0)
                self._trial = False

    def abandoned(self) -> None:
        """The trial was given up before it showed anything: another call may try."""
        with self._lock:
            self._trial = False

    def reset(self) -> None:
        """Forget all failures, because the member was changed."""
        with self._lock:
            self._close()

    def _state(self) -> State:
        if self._until is None:
            return "closed"
        return "half-open" if self._clock() >= self._until else "open"

    def _reason(self) -> str | None:
        state = self._state()
        if state == "closed" or (state == "half-open" and not self._trial):
            return None
        times = "once" if self._row == 1 else f"{self._row} times in a row"
        if state == "half-open":
            return f"It failed {times} ({self._why}) and is being tried by one call now. Ask again in a moment."
        seconds = max(1, round((self._until or 0.0) - self._clock()))
        return f"It failed {times} and rests for another {seconds} s. The last failure: {self._why}"

    def _close(self) -> None:
        self._row, self._until, self._trial, self._why = 0, None, False, ""
