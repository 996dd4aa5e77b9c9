"""What calls to remote members may use and have used: the worst case of one call, and the budget of the day.

`Meter` is asked before each call (`admit`, which sets the call's worst case aside) and told after it (`settle`). The
day is the local calendar day. A `Ledger`, where there is one, keeps what was spent beyond this process; without one
the count begins with the process.

Invariants: calls that go on at the same time never exceed a limit of the day together, because each one's worst case
is set aside until it is settled. What a call left unknown (tokens or cost that nobody told) stays set aside for the
rest of the day: it was used as far as anybody knows. Neither `admit` nor `settle` waits for the ledger: one thread
writes and reads it, in order, and what it could not write is counted here and tried again. `refusal`, which is asked
from a thread before each attempt, has it read.

Not covered: the budget of a run (the loop's, by the same `worst_case`), members inside this program, which charge
nothing and are not counted, and what was set aside for unknown calls before a restart. Another process's calls count
once they are over: calls that several processes make at the same moment may exceed a limit together.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from string import ascii_letters
from typing import Protocol

from trinity_core.agents import prices
from trinity_core.errors import AgentError, TrinityError
from trinity_core.types import AgentSpec, Limits, Message, Request, Usage

SPECIALISTS = frozenset({"symbolic", "lexical", "calendar"})
"""Kinds that use no tokens at all."""
FRESH_S = 5.0
"""Seconds after which the ledger is read again, for what other processes spent."""
LOOK_S = 1.0
"""Seconds that a call waits at most for the ledger to be read."""
_LETTERS = (ascii_letters + " ").encode()
_PER_MESSAGE = 8
"""Tokens that a chat template puts around a message; our own, generous figure."""
_MOST_TOKENS = 10**12
_UNLIMITED = Limits()
_CENT_DUST = 1e-9
"""Dollars by which sums of rounded numbers may differ."""


@dataclass(frozen=True, slots=True)
class Worst:
    """The most that one call can use. `cost` in dollars, None when the member's price is not known."""

    tokens: int
    cost: float | None


@dataclass(frozen=True, slots=True)
class Spent:
    """Calls made (failed ones too), input and output tokens that are known, dollars that are known, and the number
    of calls whose cost is not."""

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    unpriced: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.calls + other.calls,
            self.tokens + other.tokens,
            self.cost + other.cost,
            self.unpriced + other.unpriced,
        )


class Ledger(Protocol):
    """Where spending is kept. Called from any thread; both methods may block on a disk and raise StoreError."""

    def spent(self, since: float) -> Spent:
        """All calls at `since` (epoch seconds) or later, of every process."""
        ...

    def add_spending(
        self, *, at: float, agent: str, run_id: str | None, usage: Usage, cost: float | None, failed: bool
    ) -> None:
        """Commit one call before returning."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """Leave to make one call, until it is settled."""

    agent: str
    worst: Worst
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    """One call as the ledger takes it."""

    at: float
    agent: str
    run_id: str | None
    usage: Usage
    cost: float | None
    failed: bool

    @property
    def spent(self) -> Spent:
        tokens = (self.usage.input or 0) + (self.usage.output or 0)
        return Spent(1, tokens, self.cost or 0.0, int(self.cost is None))


def prompt_tokens(messages: Iterable[Message]) -> int:
    """At most how many tokens `messages` make, estimated from their characters.

    Two letters or blanks a token, one digit or sign, one and a half bytes of any other script: more than a small
    vocabulary (SmolLM2's) needs for text in any language, though not always for letters and pictures without sense.
    """
    total = 0
    for message in messages:
        ascii_only = message.content.encode("ascii", "ignore")
        signs = len(ascii_only.translate(None, _LETTERS))
        other = len(message.content.encode("utf-8", "surrogatepass")) - len(ascii_only)
        total += _PER_MESSAGE + signs + -(-(len(ascii_only) - signs) // 2) + -(-2 * other // 3)
    return total


def worst_case(request: Request) -> Worst:
    """The most that one call (one attempt) can use: its prompt and as many tokens as the reply may have."""
    spec = request.agent
    if spec.kind in SPECIALISTS:
        return Worst(0, 0.0)
    prompt, reply = prompt_tokens(request.messages), _reply_tokens(request)
    return Worst(prompt + reply, prices.price(spec, Usage(prompt, reply)))


def _reply_tokens(request: Request) -> int:
    own = request.agent.options.get("max_tokens")
    if own is None and request.agent.kind == "smollm2":
        from trinity_core.agents.local import LlamaOptions

        own = LlamaOptions.read(request.agent).max_tokens
    return min(request.sampling.max_tokens, own) if isinstance(own, int) else request.sampling.max_tokens


def _sane(usage: Usage) -> Usage:
    """`usage` without counts that cannot be: a provider's slip may not lower what was spent, nor stop the ledger."""

    def count(tokens: int | None) -> int | None:
        return tokens if tokens is not None and 0 <= tokens <= _MOST_TOKENS else None

    return Usage(count(usage.input), count(usage.output), count(usage.cached), count(usage.reasoning))


def _sane_cost(cost: float | None) -> float | None:
    return cost if cost is not None and math.isfinite(cost) and cost >= 0 else None


def midnight(now: float) -> float:
    """When the local calendar day that `now` lies in began; both in epoch seconds."""
    return datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()


class Meter:
    """Counts the calls of the day and holds them to its limits. May be used from any thread.

    `day` are the limits and may be replaced at any time. Raises StoreError when the ledger cannot be read at first.
    """

    def __init__(
        self, ledger: Ledger | None = None, day: Limits = _UNLIMITED, clock: Callable[[], float] = time.time
    ) -> None:
        self.day = day
        self._ledger = ledger
        self._clock = clock
        self._lock = threading.RLock()
        self._books = ThreadPoolExecutor(1, "trinity-meter") if ledger is not None else None
        self._asked = False  # the thread has been asked to look at the ledger and has not begun
        self._open: set[Ticket] = set()
        self._unsaved: deque[_Entry] = deque()
        self._midnight = midnight(clock())
        self._saved = Spent() if ledger is None else ledger.spent(self._midnight)
        self._unknown_tokens, self._unknown_cost = 0, 0.0  # what calls may have used today besides what they told
        self._read_at = clock()

    # --- Before and after a call ----------------------------------------------------------------------------

    def refusal(self, request: Request) -> str | None:
        """Why the call may not be made now, with what to do about it; None when it may.

        Reads the ledger first, for what other processes spent. That may take `LOOK_S`: call it from a thread."""
        if not prices.remote(request.agent):
            return None
        self._look()
        worst = worst_case(request)
        with self._lock:
            return self._refusal(request.agent, worst)

    def admit(self, request: Request, *, run_id: str | None = None) -> Ticket:
        """Leave to make one call (one attempt), which must be settled. Raises AgentError, kind budget."""
        worst = worst_case(request)
        ticket = Ticket(request.agent.name, worst, run_id)
        if prices.remote(request.agent):
            with self._lock:
                reason = self._refusal(request.agent, worst)
                if reason is not None:
                    raise AgentError(reason, kind="budget", calls=0)
                self._open.add(ticket)
        return ticket

    def settle(
        self, ticket: Ticket, usage: Usage, cost: float | None, *, failed: bool = False, called: bool = True
    ) -> None:
        """The call is over. `called` False: nobody was called after all, and nothing is counted.

        `cost` is in dollars: None when it is not known, 0.0 when it is known that nothing is charged; a call that
        `failed` for 0.0 was turned away and used no tokens. Settling again changes nothing.
        """
        with self._lock:
            if ticket not in self._open:
                return
            self._open.discard(ticket)
            if not called:
                return
            entry = _Entry(self._today(), ticket.agent, ticket.run_id, _sane(usage), _sane_cost(cost), failed)
            self._set_aside(ticket.worst, entry)
            if self._ledger is None:
                self._saved += entry.spent
                return
            self._unsaved.append(entry)
        self._ask()

    def today(self) -> Spent:
        """What was spent since midnight, as far as it is known; calls that go on are not in it."""
        with self._lock:
            now = self._today()
            stale = abs(now - self._read_at) > FRESH_S
            spent = self._spent()
        if stale:
            self._ask()
        return spent

    def close(self) -> None:
        """Wait until everything is in the ledger. Call it before the ledger is closed."""
        if self._books is not None:
            self._books.shutdown(wait=True)

    # --- Counting; the lock is held ---------------------------------------------------------------------------

    def _today(self) -> float:
        """The time. On a new day the count begins anew, and the ledger is read for it."""
        now = self._clock()
        began = midnight(now)
        if began != self._midnight:
            self._midnight, self._saved, self._read_at = began, Spent(), -math.inf
            self._unknown_tokens, self._unknown_cost = 0, 0.0
        return now

    def _spent(self) -> Spent:
        return sum((entry.spent for entry in self._unsaved if entry.at >= self._midnight), self._saved)

    def _set_aside(self, worst: Worst, entry: _Entry) -> None:
        """Keep what a finished call left unknown at its worst."""
        if entry.cost is None:
            self._unknown_cost += worst.cost or 0.0
        turned_away = entry.failed and entry.cost == 0
        if not turned_away and (entry.usage.input is None or entry.usage.output is None):
            self._unknown_tokens += max(worst.tokens - entry.spent.tokens, 0)

    def _refusal(self, spec: AgentSpec, worst: Worst) -> str | None:
        limits = self.day
        if limits == _UNLIMITED:
            return None
        spent = self.today()
        going = len(self._open)
        tokens = self._unknown_tokens + sum(ticket.worst.tokens for ticket in self._open)
        dollars = self._unknown_cost + sum(ticket.worst.cost or 0.0 for ticket in self._open)
        if limits.calls is not None and spent.calls + going + 1 > limits.calls:
            return _reached(f"{limits.calls:,} calls", f"{spent.calls:,}", f"{going:,}" if going else "", "")
        if limits.tokens is not None and spent.tokens + tokens + worst.tokens > limits.tokens:
            return _reached(
                f"{limits.tokens:,} tokens",
                f"{spent.tokens:,}",
                f"{tokens:,}" if tokens else "",
                f"{spec.name} could use {worst.tokens:,}",
            )
        if limits.cost is None:
            return None
        if worst.cost is None:
            return (
                f"A day may cost ${limits.cost:.2f}, but what {spec.name} costs is not known. Give its price in the "
                "pool file, in dollars per million tokens (service = { price = { input = 1.0, output = 2.0 } }), or "
                "take out cost under [budget.day]."
            )
        if spent.cost + dollars + worst.cost > limits.cost + _CENT_DUST:
            return _reached(
                f"${limits.cost:.2f}",
                f"${spent.cost:.4f}",
                f"${dollars:.4f}" if dollars else "",
                f"{spec.name} could cost ${worst.cost:.4f}",
            )
        return None

    def _look(self) -> None:
        if self._books is None or self.day == _UNLIMITED:
            return
        with suppress(TimeoutError, RuntimeError):  # a slow disk, or closed already: the last numbers hold
            self._books.submit(self._keep_books).result(LOOK_S)

    # --- The ledger's thread ----------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Have the ledger written and read, soon and in its own thread."""
        if self._books is None:
            return
        with self._lock:
            if self._asked:
                return
            self._asked = True
        try:
            self._books.submit(self._keep_books)
        except RuntimeError:  # closed already: the last words are written here
            self._keep_books()

    def _keep_books(self) -> None:
        """Write what is unsaved and read the sum. Until both are done the old numbers hold, so that no call is
        counted twice or not at all; what fails stays unsaved."""
        assert self._ledger is not None
        with self._lock:
            self._asked = False
            waiting, since = tuple(self._unsaved), self._midnight
        written, spent = 0, None
        try:
            for entry in waiting:
                self._ledger.add_spending(
                    at=entry.at, agent=entry.agent, run_id=entry.run_id, usage=entry.usage, cost=entry.cost,
                    failed=entry.failed,
                )  # fmt: skip
                written += 1
            spent = self._ledger.spent(since)
        except TrinityError:
            pass  # the run's own recording meets the same trouble, and tells it
        with self._lock:
            done = [self._unsaved.popleft() for _ in range(written)]
            self._read_at = self._clock()
            if spent is not None and since == self._midnight:
                self._saved = spent
            else:
                self._saved = sum((entry.spent for entry in done if entry.at >= self._midnight), self._saved)


def _reached(limit: str, spent: str, going: str, call: str) -> str:
    """A refusal in words."""
    words = f"The budget of the day is {limit}, and {spent} are used"
    words += f" besides {going} set aside for calls that go on or whose use is not known" if going else ""
    words += f"; the next call, to {call}" if call else ""
    return f"{words}. Raise the limit under [budget.day] in the pool file, or go on tomorrow."
