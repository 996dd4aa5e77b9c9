"""What a run looks like so far: a reducer from events to plain records, the same for live and stored runs.

`RunView.apply` may be given events twice or from the start again; it keeps the ones it has not seen. Nothing is
escaped here: that is the renderer's work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from trinity_core.types import (
    AnyRunEvent,
    Decision,
    Delta,
    Failure,
    Finish,
    Message,
    Note,
    Role,
    RunFinished,
    RunStarted,
    Status,
    Suggestion,
    TurnFinished,
    TurnReset,
    TurnStarted,
    Usage,
    Verdict,
)


@dataclass(slots=True)
class CallView:
    """One call of one agent: attempt `attempt` of turn `turn`. `status` is running, done, failed or cancelled."""

    turn: int
    attempt: int
    agent: str
    role: Role | None = None
    decision: Decision | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    started_at: float = 0.0
    status: Status = Status.RUNNING
    text: str = ""
    reasoning: str = ""
    raw: str = ""
    verdict: Verdict | None = None
    suggestion: Suggestion | None = None
    usage: Usage = field(default_factory=Usage)
    finish: Finish | None = None
    cost: float | None = None
    first_token_s: float | None = None
    seconds: float | None = None
    request_id: str | None = None
    calls: int = 1
    unpriced: int = 0
    reused: bool = False
    error: Failure | None = None

    @property
    def followed(self) -> bool | None:
        """Whether this choice followed the Thinker's suggestion; None when there was none."""
        asked = self.decision.suggested if self.decision else None
        if asked is None or (asked.role is None and asked.agent is None):
            return None
        return (asked.role in (None, self.role)) and (asked.agent in (None, self.agent))


@dataclass(slots=True)
class RunView:
    """The state of one run after the events applied so far."""

    started: RunStarted | None = None
    calls: list[CallView] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    finished: RunFinished | None = None
    seq: int = -1
    version: int = 0

    @classmethod
    def of(cls, events: Iterable[AnyRunEvent]) -> Self:
        view = cls()
        view.extend(events)
        return view

    def extend(self, events: Iterable[AnyRunEvent]) -> None:
        for event in events:
            self.apply(event)

    def apply(self, event: AnyRunEvent) -> None:
        """Take one event in; one whose `seq` was seen already changes nothing."""
        if event.seq <= self.seq:
            return
        self.seq = event.seq
        self.version += 1
        match event:
            case RunStarted():
                self.started = event
            case TurnStarted():
                self.calls.append(
                    CallView(
                        event.turn,
                        event.attempt,
                        event.agent,
                        event.role,
                        event.decision,
                        event.request,
                        event.at,
                    )
                )
            case Delta():
                call = self._call(event.turn, event.attempt)
                if event.channel == "reasoning":
                    call.reasoning += event.text
                else:
                    call.text += event.text
            case TurnReset():
                call = self._call(event.turn, event.attempt)
                call.text = call.reasoning = ""
                self.notes.append(
                    Note(
                        run_id=event.run_id,
                        seq=event.seq,
                        at=event.at,
                        kind="retried",
                        message=event.reason,
                        turn=event.turn,
                    )
                )
            case TurnFinished():
                self._finish_call(event)
            case Note():
                self.notes.append(event)
            case RunFinished():
                self.finished = event
                for call in self.calls:
                    if call.status is Status.RUNNING:
                        call.status = Status.CANCELLED if event.status is Status.CANCELLED else Status.FAILED

    def _call(self, turn: int, attempt: int) -> CallView:
        for call in reversed(self.calls):
            if (call.turn, call.attempt) == (turn, attempt):
                return call
        call = CallView(turn, attempt, agent="")
        self.calls.append(call)
        return call

    def _finish_call(self, event: TurnFinished) -> None:
        call = self._call(event.turn, event.attempt)
        call.status = Status.DONE
        if event.error is not None:
            call.status = Status.CANCELLED if event.error.kind == "cancelled" else Status.FAILED
        for name in ("agent", "role", "text", "reasoning", "raw", "verdict", "suggestion", "usage", "finish", "cost",
                     "first_token_s", "seconds", "request_id", "calls", "unpriced", "reused", "error"):  # fmt: skip
            setattr(call, name, getattr(event, name))

    # --- Questions the page asks --------------------------------------------------------------------------

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.started.messages if self.started else ()

    @property
    def status(self) -> Status:
        return self.finished.status if self.finished else Status.RUNNING if self.started else Status.QUEUED

    @property
    def current(self) -> CallView | None:
        """The call under way, or None."""
        if self.calls and self.calls[-1].status is Status.RUNNING and self.finished is None:
            return self.calls[-1]
        return None

    @property
    def spent(self) -> tuple[float | None, int]:
        """Dollars so far as far as they are known (None: none are), and the number of calls of unknown cost."""
        if self.finished is not None:
            return self.finished.totals.cost, self.finished.totals.unpriced
        made = [call for call in self.calls if not call.reused]
        known = [call.cost for call in made if call.cost is not None]
        return sum(known) if known else None, sum(call.unpriced for call in made)

    @property
    def answer(self) -> str | None:
        return self.finished.answer if self.finished else None

    @property
    def turns(self) -> list[CallView]:
        """The newest attempt of every turn, in order."""
        newest: dict[int, CallView] = {}
        for call in self.calls:
            newest[call.turn] = call
        return [newest[turn] for turn in sorted(newest)]

    def conversation(self) -> tuple[Message, ...]:
        """The messages so far with this run's answer, as the next question's history."""
        if self.finished is None or not self.finished.answer:
            return self.messages
        return (*self.messages, Message("assistant", self.finished.answer))
