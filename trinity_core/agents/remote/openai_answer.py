"""How an answer in the OpenAI chat format is read: chunks of a stream or one body, from any server.

Shapes that are read: content as text, null or a list of parts; reasoning under any of its names, in parts or inside
the content; choices that are empty first and last, or of another index; usage in the last chunk, beside choices or in
`x_groq`; errors at the top, in a choice or in `x_groq`, as object or text. What is unknown is skipped.

Invariants: a reply without a finish reason is an error, also after `[DONE]`, because a proxy that loses its upstream
sends that too. A reply that stayed in the reasoning channel is empty, not an answer: servers leak unfinished thoughts
that way. Text and reasoning never appear twice, although some servers send reasoning under two names.
Not covered: calls of tools (none are offered, so one is an empty reply), several choices, log probabilities, sound.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trinity_core import wire
from trinity_core.agents.remote import faults
from trinity_core.agents.remote.servers import Server
from trinity_core.agents.remote.think import Parts, Splitter
from trinity_core.agents.remote.turns import token_count
from trinity_core.errors import AgentError
from trinity_core.types import Finish, Message, Piece, Reply, Request, Reset, Usage

_FINISHES = {
    **dict.fromkeys(("stop", "eos", "eos_token", "end_turn", "stop_sequence", "completed"), Finish.STOP),
    **dict.fromkeys(("tool_calls", "function_call", "tool_use"), Finish.STOP),
    **dict.fromkeys(("length", "max_tokens", "model_length", "max_output_tokens"), Finish.LENGTH),
    **dict.fromkeys(("content_filter", "safety"), Finish.BLOCKED),
    **dict.fromkeys(("error", "insufficient_system_resource"), Finish.ERROR),
}
"""Finish reasons of the family. A call of a tool is a natural end without text: the pool offers none."""


class OpenAIReader:
    """Reads one answer; see `formats.Reader`. `stops` end the text here too, in case the server does not."""

    def __init__(self, request: Request, server: Server, stops: Sequence[str] = ()) -> None:
        self.usage = Usage()
        self.started = False
        self._request = request
        self._server = server
        self._name = server.label if server.hosts or server.port else "The server"
        self._split = Splitter(stops)
        self._finish: str | None = None
        self._candidates = 0
        self._done = self._tools = self._fed = False
        self._refusal = ""
        self._cost: float | None = None
        self._id: str | None = None

    def event(self, data: str, event: str = "") -> Sequence[Piece | Reset]:
        if self._done or not data.strip():
            return ()
        if data.strip() == "[DONE]":
            self._done = True
            return self._held()
        named = event not in ("", "message", "error")
        try:
            chunk = faults.parse_json(data)
        except AgentError:
            if named or self._finish:  # a keep-alive, something newer than this, or a torn end after the reply's
                return ()
            if event == "error":
                raise faults.in_band(data, provider=self._name) from None
            raise
        if event == "error" and not (isinstance(chunk, Mapping) and chunk.get("error")):
            raise faults.in_band(chunk, provider=self._name)
        return self._chunk(chunk, "delta")

    def whole(self, body: Any) -> Sequence[Piece | Reset]:
        if isinstance(body, list) and len(body) == 1:
            body = body[0]
        if not isinstance(body, Mapping) or not ("choices" in body or _error(body)):
            raise faults.odd_answer(faults.read(wire.line(body).encode()).text)
        self._chunk(body, "message")
        self._held()
        # Nothing of it was shown before, so what turned out to be reasoning needs no Reset.
        parts = (Piece(self._split.reasoning, "reasoning"), Piece(self._split.text))
        return tuple(part for part in parts if part.text)

    def reply(self) -> Reply:
        text = self._split.text
        if not self._candidates:
            raise faults.odd_answer("" if self._done or self._fed else None)
        if self._finish is None and not self._split.cut:
            raise AgentError(
                "The reply broke off: it ended without a finish reason. Try again.", kind="truncated", retryable=True
            )
        finish = _FINISHES.get(self._finish or "stop", Finish.INCOMPLETE)
        if finish is Finish.ERROR:
            raise AgentError(
                f"{self._name} failed in the middle of its answer (finish reason {self._finish}). Try again.",
                kind="transient",
                retryable=True,
            )
        if self._split.cut and finish in (Finish.LENGTH, Finish.INCOMPLETE):
            finish = Finish.STOP  # whatever came after the stop text is not part of the reply
        if self._refusal and finish is Finish.STOP:
            finish = Finish.REFUSED
        elif finish is Finish.STOP and not text.strip():
            finish = Finish.EMPTY
        return Reply(
            text,
            finish,
            self._split.reasoning,
            self.usage,
            self._cost,
            request_id=self._id,
            warnings=tuple(self._warnings(finish)),
        )

    # --- one chunk ------------------------------------------------------------------------------------------

    def _chunk(self, chunk: Any, holder: str) -> Parts:
        if isinstance(chunk, list) and len(chunk) == 1:
            chunk = chunk[0]
        if not isinstance(chunk, Mapping):
            return []
        self._fed = True
        groq = chunk.get("x_groq")
        groq = groq if isinstance(groq, Mapping) else {}
        for usage in (groq.get("usage"), chunk.get("usage")):
            self._count(usage)
        if self._id is None and isinstance(chunk.get("id"), str):
            self._id = chunk["id"] or None
        error = _error(chunk) or groq.get("error")
        if error:
            raise faults.in_band(error, provider=self._name)
        choices = chunk.get("choices")
        out: Parts = []
        for place, choice in enumerate(choices if isinstance(choices, list) else ()):
            if isinstance(choice, Mapping) and first(choice.get("index"), place) in (0, "0"):
                out += self._choice(choice, holder)
        return out + self._held() if self._finish else out

    def _choice(self, choice: Mapping[str, Any], holder: str) -> Parts:
        self._candidates += 1
        if choice.get("error"):
            raise faults.in_band(choice["error"], provider=self._name)
        self._count(choice.get("usage"))
        delta = choice.get(holder)
        if delta is None and not self.started:  # a server that streams one whole message
            delta = choice.get("message")
        out: Parts = []
        if isinstance(delta, Mapping):
            out += self._split.thought(_reasoning(delta))
            for kind, text in _parts(delta.get("content")):
                if kind == "refusal":
                    self._refusal += text
                else:
                    out += self._split.thought(text) if kind == "reasoning" else self._split.content(text)
            refusal = delta.get("refusal")
            self._refusal += refusal if isinstance(refusal, str) else ""
            self._tools = self._tools or bool(delta.get("tool_calls") or delta.get("function_call"))
        self.started = self.started or bool(out)
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and finish.strip():
            self._end(finish.strip().lower())
        return out

    def _end(self, word: str) -> None:
        # Some proxies close every stream with a "stop" of their own, which must not hide that the reply was cut.
        cut = _FINISHES.get(self._finish or "") in (Finish.LENGTH, Finish.BLOCKED, Finish.ERROR)
        if word != "null" and not (cut and _FINISHES.get(word) is Finish.STOP):
            self._finish = word

    def _count(self, usage: Any) -> None:
        """Take over what `usage` says; figures are totals so far, so later ones replace earlier ones. A 0 after
        them is a gap."""
        if not isinstance(usage, Mapping):
            return
        known = self.usage
        self.usage = Usage(
            _later(_figure(usage, "prompt_tokens", "input_tokens"), known.input),
            _later(_figure(usage, "completion_tokens", "output_tokens"), known.output),
            _later(_detail(usage, "cached_tokens", "prompt_cache_hit_tokens"), known.cached),
            _later(_detail(usage, "reasoning_tokens"), known.reasoning),
        )
        self._cost = first(_cost(usage), self._cost)

    def _held(self) -> Parts:
        """What the splitter held back, now that nothing can follow."""
        out = self._split.end()
        self.started = self.started or bool(out)
        return out

    def _warnings(self, finish: Finish) -> Iterator[str]:
        if self._refusal:
            yield f"The model declined: {' '.join(self._refusal.split())[:300]}"
        if finish is Finish.INCOMPLETE:
            yield f"{self._name} ended the reply for a reason unknown here: {self._finish}."
        if finish is Finish.EMPTY and self._tools:
            yield "The model called a tool instead of answering, although it was offered none."
        read, least = self.usage.input, prompt_estimate(self._request.messages)
        # Some servers count cached tokens apart from the others.
        if read is not None and read >= _READ_LEAST and read + (self.usage.cached or 0) < _READ_SHARE * least:
            yield (
                f"{self._name} read only {read:,} tokens of a prompt that has more than {least:,}: it seems "
                "to have dropped the beginning, instructions included. To give the model all of it, "
                f"{self._server.context_setting}."
            )


def first(*values: Any) -> Any:
    """The first of `values` that is not None, else None."""
    return next((value for value in values if value is not None), None)


def _error(body: Mapping[str, Any]) -> Any:
    """The error that a body holds, or None. Some servers make the body itself the error, a few without saying so
    but for its status."""
    error = body.get("error")
    itself = body.get("object") == "error" or body.get("type") == "error"
    return error or (body if itself or ("choices" not in body and faults.names_status(body)) else None)


def _reasoning(delta: Mapping[str, Any]) -> str:
    """The reasoning in a message or delta. Servers that changed the field's name send it under both."""
    for name in ("reasoning_content", "reasoning"):
        if text := "".join(text for _, text in _parts(delta.get(name))):
            return text
    details = delta.get("reasoning_details")
    entries = [entry for entry in details if isinstance(entry, Mapping)] if isinstance(details, list) else []
    texts = [first(entry.get("text"), entry.get("summary")) for entry in entries]
    return "".join(text for text in texts if isinstance(text, str))


def _parts(content: Any) -> Iterator[tuple[str, str]]:
    """(channel, text) for each part of a content that has some: channel is text, reasoning or refusal."""
    if isinstance(content, str):
        if content:
            yield "text", content
    elif isinstance(content, Mapping):
        kind = str(content.get("type", "text"))
        channel = "reasoning" if kind in ("thinking", "reasoning", "reasoning_text") else "text"
        if kind == "refusal":
            channel = "refusal"
        elif channel == "text" and kind not in ("text", "output_text"):
            return
        value = first(*(content.get(name) for name in (kind, "text", "thinking", "content", "value")))
        yield from ((channel, text) for _, text in _parts(value))
    elif isinstance(content, list):
        for part in content:
            yield from _parts(part)


def _figure(usage: Mapping[str, Any], *names: str) -> int | None:
    return first(*(token_count(usage.get(name)) for name in names))


def _later(new: int | None, known: int | None) -> int | None:
    return new if new or known is None else known


def _detail(usage: Mapping[str, Any], *names: str) -> int | None:
    """A figure that stands in one of the details, or beside the totals."""
    groups = ("prompt_tokens_details", "completion_tokens_details", "input_tokens_details", "output_tokens_details")
    for place in (*(usage.get(group) for group in groups), usage):
        found = _figure(place, *names) if isinstance(place, Mapping) else None
        if found is not None:
            return found
    return None


def _cost(usage: Mapping[str, Any]) -> float | None:
    """What the provider says the call cost, in dollars. With the user's own upstream key the router's fee and the
    upstream's price are separate."""
    details = usage.get("cost_details")
    amounts = [usage.get("cost")]
    if usage.get("is_byok") is True and isinstance(details, Mapping):
        amounts.append(details.get("upstream_inference_cost"))
    known = [dollars for amount in amounts if (dollars := _dollars(amount)) is not None]
    return sum(known) if known else None


def _dollars(value: Any) -> float | None:
    """An amount, also in quotes, as gateways write decimal numbers; None for what can be none."""
    try:
        amount = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    return amount if math.isfinite(amount) and amount >= 0 else None


# --- How long a prompt is ----------------------------------------------------------------------------------------

_READ_LEAST = 200
"""Prompt tokens below which a server's figure is no sign of a cut: no context window is so small."""
_READ_SHARE = 0.85
"""Part of the lower estimate that a server must report; below it the prompt was cut. Our choice."""
_DENSE = ((0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0x20000, 0x323AF))
"""Kana and Han: written without blanks between words."""


def prompt_estimate(messages: Sequence[Message]) -> int:
    """Tokens that `messages` have at the least, whatever the tokenizer; far below the truth for code and long words.

    One for each word between blanks and one for punctuation behind letters: tokens do not reach across blanks.
    Scripts without blanks count by what is left of them after compression, so that repetition does not count."""
    total = 0
    for message in messages:
        dense = "".join(c for c in message.content if any(low <= ord(c) <= high for low, high in _DENSE))
        words = [word for word in message.content.split() if any(map(str.isalnum, word))]
        total += len(words) + sum(word[-2:-1].isalpha() and not word[-1].isalnum() for word in words)
        total += len(zlib.compress(wire.clean_text(dense).encode())) // 4 if dense else 0
    return total
