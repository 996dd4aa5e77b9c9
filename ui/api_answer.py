"""Writing what clients of /v1 read: the events of a run as a chat completion or a response, whole or as a stream.

The turns are reasoning, the run's answer is content. An answer is only known to be one when its run ends, so a
stream carries the turns as they happen and then the answer; this holds for a single member too, whose attempts may
begin again. Beside the standard fields stands `trinity`: the run's id, how it ended, its turns, and what they cost.

Invariants: `content` is a text and all standard usage counts are whole numbers, where unknown counts are 0 (`trinity`
keeps them null). What a failed call said about itself is not part of the reasoning: it may hold addresses.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from trinity_core import wire
from trinity_core.types import (
    AnyRunEvent,
    Delta,
    Finish,
    Note,
    RunFinished,
    StopReason,
    TurnFinished,
    TurnReset,
    TurnStarted,
)
from ui.api_errors import ApiError, run_failed
from ui.api_request import Asked

_WORDS = re.compile(r"\s*\S+\s*")
_PIECE = 32
"""Characters of the answer that one event carries at least."""
_TOLD = ("untrained", "trimmed", "cleaned", "budget")
"""Notes that a client is told."""


class Account:
    """What is known of a run so far."""

    def __init__(self, asked: Asked, run_id: str) -> None:
        self.asked, self.run_id = asked, run_id
        self.turns: list[TurnFinished] = []
        self.notes: list[dict[str, Any]] = [{"kind": "left_out", "message": text} for text in asked.left_out]
        self.end: RunFinished | None = None
        self._channel = ""

    def take(self, event: AnyRunEvent) -> str:
        """Note an event, and return what it adds to the reasoning."""
        if isinstance(event, TurnStarted):
            self._channel = ""
            return _heading(event)
        if isinstance(event, Delta):
            switched = self._channel not in ("", event.channel)
            self._channel = event.channel
            return ("\n" if switched else "") + event.text
        if isinstance(event, TurnReset):
            return "\n[the reply starts again]\n"
        if isinstance(event, TurnFinished):
            self.turns.append(event)
            shown = "" if self._channel or event.error else event.text
            if event.error is not None:
                return f"{shown}\n[failed: {event.error.kind}]\n\n"
            return f"{shown}\n[verdict: {event.verdict.value}]\n\n" if event.verdict else f"{shown}\n\n"
        if isinstance(event, Note) and event.kind in _TOLD:
            self.notes.append({"kind": event.kind, "message": wire.redact(event.message)})
        if isinstance(event, RunFinished):
            self.end = event
        return ""

    def summary(self) -> list[str]:
        """The calls that were made, each as a text."""
        return [
            _heading(turn) + (f"[failed: {turn.error.kind}]" if turn.error is not None else turn.text)
            for turn in self.turns
        ]

    @property
    def answer(self) -> str:
        """The run's answer up to the first of the request's stop texts; where every member declined, what the last
        of them said. Raises ApiError when the run has none."""
        assert self.end is not None
        text = self.end.answer
        if text is None and self.end.stop_reason is StopReason.TURNS_EXHAUSTED:
            text = next((turn.text for turn in reversed(self.turns) if turn.finish is Finish.REFUSED), None)
        if self.end.error is not None or text is None or self.end.stop_reason is StopReason.CANCELLED:
            raise run_failed(self.end, self.turns)
        return text[: min((at for stop in self.asked.stop if (at := text.find(stop)) >= 0), default=len(text))]

    @property
    def cut(self) -> bool:
        """Whether the answer itself reached its limit of tokens."""
        end = self.end
        written = [turn for turn in self.turns if end is not None and turn.turn == end.answer_turn and not turn.error]
        return bool(written) and written[-1].finish is Finish.LENGTH

    @property
    def tokens(self) -> tuple[int, int, int, int]:
        """Input, output, cached and reasoning tokens of all calls; unknown counts are 0."""
        usage = self.end.totals.usage if self.end is not None else None
        if usage is None:
            return 0, 0, 0, 0
        return usage.input or 0, usage.output or 0, usage.cached or 0, usage.reasoning or 0

    @property
    def cost(self) -> float | None:
        """Dollars of the whole run; None when a call's cost is unknown."""
        return None if self.end is None or self.end.totals.unpriced else self.end.totals.cost

    def extra(self) -> dict[str, Any]:
        """The object `trinity`."""
        end = self.end
        assert end is not None
        made: dict[str, Any] = wire.plain(
            {
                "run_id": self.run_id,
                "status": end.status,
                "stop_reason": end.stop_reason,
                "flag": end.flag,
                "answer_turn": end.answer_turn,
                "turns": [_turn(turn) for turn in self.turns],
                "calls": end.totals.calls,
                "cost": end.totals.cost,
                "unpriced": end.totals.unpriced,
                "seconds": end.totals.seconds,
                "notes": self.notes,
            }
        )
        return made


def _heading(turn: TurnStarted | TurnFinished) -> str:
    attempt = f", attempt {turn.attempt}" if turn.attempt > 1 else ""
    role = f" as {turn.role.value}" if turn.role else ""
    return f"[turn {turn.turn}{attempt}] {turn.agent}{role}\n"


def _turn(turn: TurnFinished) -> dict[str, Any]:
    return {
        "turn": turn.turn,
        "attempt": turn.attempt,
        "agent": turn.agent,
        "role": turn.role,
        "verdict": turn.verdict,
        "finish": turn.finish,
        "input_tokens": turn.usage.input,
        "output_tokens": turn.usage.output,
        "reasoning_tokens": turn.usage.reasoning,
        "cost": turn.cost,
        "unpriced": turn.unpriced,
        "calls": turn.calls,
        "reused": turn.reused,
        "seconds": turn.seconds,
        "error": turn.error.kind if turn.error else None,
    }


def pieces(text: str) -> Iterator[str]:
    """`text` in parts of some words; joined they are the text again."""
    part = ""
    for word in _WORDS.findall(text) or ([text] if text else []):
        part += word
        if len(part) >= _PIECE:
            yield part
            part = ""
    if part:
        yield part


class Writer(Protocol):
    """One format. `account` is fed with every event, by `event` (stream) or by the caller (whole)."""

    account: Account

    def begin(self) -> str: ...
    def event(self, event: AnyRunEvent) -> str:
        """The frames an event adds to a stream; the last event ends it. Raises ApiError when there is no answer."""
        ...

    def fail(self, error: ApiError) -> str:
        """The frames with which a stream that has begun ends in an error."""
        ...

    def whole(self) -> dict[str, Any]:
        """The answer as one object, once the run has ended. Raises ApiError when it has none."""
        ...


class ChatWriter:
    """`chat.completion` and its chunks."""

    def __init__(self, asked: Asked, run_id: str) -> None:
        self.account = Account(asked, run_id)
        self.created = int(time.time())

    def begin(self) -> str:
        return self._chunk({"role": "assistant", "content": ""})

    def event(self, event: AnyRunEvent) -> str:
        thought = self.account.take(event)
        if not isinstance(event, RunFinished):
            # Servers and clients know reasoning by one of these names or the other.
            return self._chunk({"reasoning_content": thought, "reasoning": thought}) if thought else ""
        frames = [self._chunk({"content": piece}) for piece in pieces(self.account.answer)]
        asked = self.account.asked
        last: dict[str, Any] = {"trinity": self.account.extra()}
        if not asked.include_usage:
            last["usage"] = self._usage()
        frames.append(self._chunk({}, "length" if self.account.cut else "stop", **last))
        if asked.include_usage:
            frames.append(_frame({**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage()}))
        return "".join([*frames, "data: [DONE]\n\n"])

    def fail(self, error: ApiError) -> str:
        # What x-should-retry says where there is a header: whatever could be tried again was.
        return _frame({"error": {**error.envelope()["error"], "should_retry": False}})

    def whole(self) -> dict[str, Any]:
        thought = "\n\n".join(self.account.summary())
        message: dict[str, Any] = {
            "role": "assistant",
            "content": self.account.answer,
            "reasoning_content": thought,
            "reasoning": thought,
            "refusal": None,
            "annotations": [],
        }
        finish = "length" if self.account.cut else "stop"
        return {
            **self._head("chat.completion"),
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
            "usage": self._usage(),
            "trinity": self.account.extra(),
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self.account.run_id}",
            "object": kind,
            "created": self.created,
            "model": self.account.asked.model,
            "system_fingerprint": None,
        }

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self.account.asked.include_usage else {}
        return _frame({**self._head("chat.completion.chunk"), "choices": [choice], **usage, **more})

    def _usage(self) -> dict[str, Any]:
        given, written, cached, reasoning = self.account.tokens
        return {
            "prompt_tokens": given,
            "completion_tokens": written,
            "total_tokens": given + written,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
            **_beyond(self.account),
        }


class ResponsesWriter:
    """`response` and its events. Each call of an agent is one part of the summary of one reasoning item."""

    def __init__(self, asked: Asked, run_id: str) -> None:
        self.account = Account(asked, run_id)
        self.created = int(time.time())
        self._sequence = 0
        self._summary: list[str] = []
        self._open = False  # whether the newest part of the summary still grows

    def begin(self) -> str:
        response = self._response("in_progress", [])
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def event(self, event: AnyRunEvent) -> str:
        frames = []
        if isinstance(event, TurnStarted):
            if not self._summary:
                item = {"id": self._id("rs"), "type": "reasoning", "summary": [], "status": "in_progress"}
                frames.append(self._event("response.output_item.added", output_index=0, item=item))
            self._summary.append("")
            self._open = True
            frames.append(self._part("added", {"part": {"type": "summary_text", "text": ""}}))
        thought = self.account.take(event)
        if thought and self._open:
            self._summary[-1] += thought
            frames.append(self._thought("delta", {"delta": thought}))
        if isinstance(event, TurnFinished):
            frames.append(self._end_part())
        if isinstance(event, RunFinished):
            frames.append(self._finish(self.account.answer))
        return "".join(frames)

    def fail(self, error: ApiError) -> str:
        # Codes by which clients tell an error that a new attempt may mend from one that it cannot.
        code = {402: "insufficient_quota", 429: "rate_limit_exceeded"}.get(error.status)
        code = code or ("server_error" if error.status >= 500 else "invalid_prompt")
        failed = self._response("failed", [])
        failed["error"] = {"code": code, "message": str(error)}
        named = {"code": error.code, "message": str(error), "param": error.param}
        return self._event("response.failed", response=failed) + self._event("error", **named, **error.envelope())

    def whole(self) -> dict[str, Any]:
        return self._ended(self.account.summary(), self.account.answer)

    # --- Parts of a stream ----------------------------------------------------------------------------------

    def _finish(self, answer: str) -> str:
        frames = [self._end_part()]
        if self._summary:
            item = self._reasoning(self._summary)
            frames.append(self._event("response.output_item.done", output_index=0, item=item))
        index = 1 if self._summary else 0
        where = {"item_id": self._id("msg"), "output_index": index, "content_index": 0}
        empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        message = self._message(answer)
        begun = {**message, "status": "in_progress", "content": []}
        frames.append(self._event("response.output_item.added", output_index=index, item=begun))
        frames.append(self._event("response.content_part.added", **where, part=empty))
        for piece in pieces(answer):
            frames.append(self._event("response.output_text.delta", **where, delta=piece, logprobs=[]))
        frames.append(self._event("response.output_text.done", **where, text=answer, logprobs=[]))
        frames.append(self._event("response.content_part.done", **where, part={**empty, "text": answer}))
        frames.append(self._event("response.output_item.done", output_index=index, item=message))
        ended = self._ended(self._summary, answer)
        frames.append(self._event(f"response.{ended['status']}", response=ended))
        return "".join(frames)

    def _end_part(self) -> str:
        if not self._open:
            return ""
        self._open = False
        text = self._summary[-1] = self._summary[-1].rstrip()
        part = {"type": "summary_text", "text": text}
        return self._thought("done", {"text": text}) + self._part("done", {"part": part})

    def _thought(self, kind: str, more: dict[str, Any]) -> str:
        return self._event(f"response.reasoning_summary_text.{kind}", **self._where(), **more)

    def _part(self, kind: str, more: dict[str, Any]) -> str:
        return self._event(f"response.reasoning_summary_part.{kind}", **self._where(), **more)

    def _where(self) -> dict[str, Any]:
        return {"item_id": self._id("rs"), "output_index": 0, "summary_index": len(self._summary) - 1}

    def _event(self, kind: str, **fields: Any) -> str:
        self._sequence += 1
        return f"event: {kind}\n" + _frame({"type": kind, "sequence_number": self._sequence - 1, **fields})

    # --- Objects --------------------------------------------------------------------------------------------

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self.account.run_id}"

    def _reasoning(self, summary: Sequence[str]) -> dict[str, Any]:
        parts = [{"type": "summary_text", "text": text} for text in summary]
        return {"id": self._id("rs"), "type": "reasoning", "summary": parts, "status": "completed"}

    def _message(self, answer: str) -> dict[str, Any]:
        return {
            "id": self._id("msg"),
            "type": "message",
            "role": "assistant",
            "status": "incomplete" if self.account.cut else "completed",
            "content": [{"type": "output_text", "text": answer, "annotations": [], "logprobs": []}],
        }

    def _ended(self, summary: Sequence[str], answer: str) -> dict[str, Any]:
        output = [self._reasoning(summary)] if summary else []
        ended = self._response("incomplete" if self.account.cut else "completed", [*output, self._message(answer)])
        given, written, cached, reasoning = self.account.tokens
        ended["usage"] = {
            "input_tokens": given,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": given + written,
            **_beyond(self.account),
        }
        if self.account.cut:
            ended["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            ended["completed_at"] = int(time.time())
        ended["trinity"] = self.account.extra()
        return ended

    def _response(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id("resp"),
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self.account.asked.model,
            "output": output,
            "parallel_tool_calls": False,
            "store": True,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "truncation": "disabled",
            "usage": None,
            **self.account.asked.echo,
        }


def _beyond(account: Account) -> dict[str, Any]:
    """Keys beside the standard ones of a usage object, where clients keep what they do not know."""
    assert account.end is not None
    totals = account.end.totals
    return {"cost": account.cost, "turns": totals.turns, "calls": totals.calls}


def _frame(value: Any) -> str:
    return f"data: {wire.line(value)}\n\n"
