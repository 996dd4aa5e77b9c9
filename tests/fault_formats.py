"""What the fault server says in each wire format: streams as frames, whole answers, errors, lists of models.

The shapes are those of the providers' documentation. The numbers of tokens are always 12 in and 5 out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Part = Literal["start", "piece", "finish", "last"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One event. `part` says what would be missing without it: nothing visible, text, the finish reason, or only
    what the format puts after that."""

    data: Any
    event: str = ""
    part: Part = "start"

    def wire(self, end: str = "\n", indent: bool = False) -> bytes:
        """The event's bytes. With `indent` its JSON is spread over several data lines."""
        text = self.data if isinstance(self.data, str) else _json(self.data, 2 if indent else None)
        lines = [f"event: {self.event}"] if self.event else []
        lines += [f"data: {line}" for line in text.split("\n")]
        return (end.join(lines) + end + end).encode()


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _cut(text: str) -> list[str]:
    return [text[place : place + 4] for place in range(0, len(text), 4)]


def frames(
    format_: str, text: str, *, reasoning: str = "", usage: bool = True, finish: Literal["stop", "length"] = "stop"
) -> list[Frame]:
    """A whole stream."""
    make = {"openai": _openai, "anthropic": _anthropic, "gemini": _gemini}[format_]
    return list(make(_cut(text), _cut(reasoning), usage, finish))


def _openai(text: Sequence[str], reasoning: Sequence[str], usage: bool, finish: str) -> Iterable[Frame]:
    def chunk(delta: Any, reason: str | None = None, **more: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "choices": [choice], **more}

    yield Frame(chunk({"role": "assistant", "content": ""}))
    for part in reasoning:
        yield Frame(chunk({"reasoning_content": part, "content": None}), part="piece")
    for part in text:
        yield Frame(chunk({"content": part}), part="piece")
    yield Frame(chunk({}, finish), part="finish")
    if usage:
        counted = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
        yield Frame(chunk({}) | {"choices": [], "usage": counted}, part="finish")
    yield Frame("[DONE]", part="last")


def _anthropic(text: Sequence[str], reasoning: Sequence[str], usage: bool, finish: str) -> Iterable[Frame]:
    def named(kind: str, part: Part = "start", **more: Any) -> Frame:
        return Frame({"type": kind, **more}, kind, part)

    counted = {"input_tokens": 12, "output_tokens": 1} if usage else None
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
    yield named("message_start", message=message | ({"usage": counted} if counted else {}))
    blocks = [("thinking", "thinking_delta", reasoning)] if reasoning else []
    for place, (kind, delta, parts) in enumerate([*blocks, ("text", "text_delta", text)]):
        yield named("content_block_start", index=place, content_block={"type": kind, kind: ""})
        for part in parts:
            yield named("content_block_delta", "piece", index=place, delta={"type": delta, kind: part})
        yield named("content_block_stop", index=place)
    reason = {"stop": "end_turn", "length": "max_tokens"}[finish]
    after = {"usage": {"output_tokens": 5}} if usage else {}
    yield named("message_delta", "finish", delta={"stop_reason": reason, "stop_sequence": None}, **after)
    yield named("message_stop", "last")


def _gemini(text: Sequence[str], reasoning: Sequence[str], usage: bool, finish: str) -> Iterable[Frame]:
    def chunk(parts: Any, **more: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0, **more}], "responseId": "r"}

    for part in reasoning:
        yield Frame(chunk([{"text": part, "thought": True}]), part="piece")
    for part in text:
        yield Frame(chunk([{"text": part}]), part="piece")
    counted = {"usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 5, "totalTokenCount": 17}}
    reason = {"stop": "STOP", "length": "MAX_TOKENS"}[finish]
    yield Frame(chunk([{"text": ""}], finishReason=reason) | (counted if usage else {}), part="finish")


def whole(format_: str, text: str) -> dict[str, Any]:
    """The same reply as one JSON value."""
    if format_ == "openai":
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
        return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "choices": [choice], "usage": usage}
    if format_ == "anthropic":
        usage = {"input_tokens": 12, "output_tokens": 5}
        content = [{"type": "text", "text": text}]
        return {"id": "msg_1", "type": "message", "role": "assistant", "content": content} | {
            "stop_reason": "end_turn",
            "usage": usage,
        }
    candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 5}}


_GOOGLE = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 402: "RESOURCE_EXHAUSTED", 404: "NOT_FOUND"}
_GOOGLE |= {429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}


def error_body(format_: str, status: int, type_: str, message: str, param: str | None = None) -> dict[str, Any]:
    """An error as the provider would word it; `type_` in the words of OpenAI and Anthropic."""
    if format_ == "openai":
        return {"error": {"message": message, "type": type_, "param": param, "code": type_}}
    if format_ == "anthropic":
        kind = "invalid_request_error" if status == 400 else type_
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return {"error": {"code": status, "message": message, "status": _GOOGLE.get(status, "INTERNAL")}}


def error_frame(format_: str, status: int, type_: str, message: str) -> Frame:
    """An error in the middle of a stream."""
    body = error_body(format_, status, type_, message)
    return Frame(body, "error" if format_ == "anthropic" else "")


def listing(format_: str, names: Sequence[str]) -> dict[str, Any]:
    """The list of models."""
    if format_ == "gemini":
        return {"models": [{"name": f"models/{n}", "supportedGenerationMethods": ["generateContent"]} for n in names]}
    return {"object": "list", "data": [{"id": n, "object": "model", "created": 1, "owned_by": "us"} for n in names]}
