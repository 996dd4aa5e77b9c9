"""The Anthropic Messages format (kind `anthropic`): requests as JSON, answers as events or as one JSON value.

`base_url` may end in a version (`https://api.anthropic.com/v1`) or not (`http://127.0.0.1:4040/anthropic`), as the
official client and its peers write it: `/v1` is added where it is missing. The key goes into `x-api-key` only.

Options of a member, all of which may be left out:

    max_tokens   most tokens of one reply, thinking included; the smaller of it and the request's holds
    effort       low, medium, high, xhigh or max (`output_config.effort`)
    thinking     a table sent as it is, such as {type = "adaptive", display = "summarized"}; see below
    temperature  0 to 1; with `top_p` also set, only the temperature is sent, because newer models refuse both
    top_p        0 to 1
    stop         a text or a list of texts (`stop_sequences`)
    version      the header `anthropic-version`
    extra_body   a table of further fields

The request's own sampling beats these. Version 2026-10-21 refuses any temperature, even the default, so it is sent
where none is set; where one is set, 2023-06-01 is sent, which accepts it on older models. A member whose `version` is
fixed at 2026-10-21 or later is never sent one. Models that refuse it on any version say so, and `AgentError.drop`
names the field. There is no seed. Efforts below low become low: newer models cannot be told not to think. A thinking
budget is lowered below `max_tokens`, and left out where less than the least (1,024) would remain.

A refusal is finish refused, with what was written before it; the provider's reason is a warning. A turn that stops
to call a tool is empty without text and incomplete with it, since no tool was offered.

Not covered: tools, images, citations, prompt caching, batches, and thinking that is sent back in later turns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trinity_core.agents.remote import faults, turns
from trinity_core.agents.remote.formats import Call, Format
from trinity_core.errors import AgentError, PoolError
from trinity_core.types import AgentSpec, Finish, Piece, Reply, Request, Sampling, Usage
from trinity_core.wire import redact

NEW_VERSION = "2026-10-21"
OLD_VERSION = "2023-06-01"
_NAME = "Anthropic"
_LEAST_BUDGET = 1024
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_OWNED = {
    "model": "Use the member's model.",
    "messages": "They are the conversation.",
    "system": "It is the role's prompt.",
    "stream": "Answers are always streamed.",
    "max_tokens": "Use the option max_tokens.",
}
_RULES: Mapping[str, turns.Rule] = {
    "max_tokens": turns.whole(1),
    "effort": turns.word(_EFFORTS),
    "thinking": turns.table,
    "temperature": turns.number(0, 1),
    "top_p": turns.number(0, 1),
    "stop": turns.stops(),
    "version": lambda v: None if isinstance(v, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", v) else "a date in quotes",
    "extra_body": turns.table,
}
_FINISH = {
    "end_turn": Finish.STOP,
    "stop_sequence": Finish.STOP,
    "max_tokens": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "refusal": Finish.REFUSED,
}
_EVENTS = ("message", "message_start", "content_block_start", "content_block_delta", "message_delta")
"""Names of events that carry a part of the answer."""
_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


class _Anthropic:
    kind = "anthropic"
    default_base_url: str | None = "https://api.anthropic.com/v1"

    def check(self, spec: AgentSpec) -> None:
        turns.check_options(spec, _RULES)
        turns.check_extra(spec, _OWNED)
        options = spec.options
        sampled = next((name for name in ("temperature", "top_p") if name in options), None)
        if sampled and str(options.get("version", "")) >= NEW_VERSION:
            raise PoolError(
                f"Agent {spec.name}: version {options['version']} accepts no {sampled}. Remove that option, or set "
                f'version = "{OLD_VERSION}" (older models only).'
            )
        budget = options.get("thinking", {}).get("budget_tokens")
        if budget is not None:
            if wanted := turns.whole(_LEAST_BUDGET)(budget):
                raise PoolError(f"Agent {spec.name}: thinking.budget_tokens must be {wanted}, not {budget!r}.")
            if budget >= options.get("max_tokens", budget + 1):
                raise PoolError(
                    f"Agent {spec.name}: thinking.budget_tokens ({budget}) must be below max_tokens "
                    f"({options['max_tokens']}). Raise max_tokens or lower the budget."
                )

    def call(self, request: Request, key: str | None, *, drop: frozenset[str] = frozenset()) -> Call:
        spec, settings = request.agent, turns.settled(request)
        system, messages = turns.strict(request.messages)
        body: dict[str, Any] = {
            "model": spec.model,
            "max_tokens": settings.max_tokens,
            "messages": [{"role": m.role, "content": m.content} for m in messages],
            "stream": True,
        }
        if system:
            body["system"] = system
        body = turns.merge_extra({**body, **_optional(spec.options, settings)}, spec.options)
        for name in drop - _OWNED.keys():
            body.pop(name, None)
        sampled = any(name in body for name in ("temperature", "top_p", "top_k"))
        version = spec.options.get("version") or (OLD_VERSION if sampled else NEW_VERSION)
        return Call(_address(spec.base_url or self.default_base_url, "messages"), _headers(key, version), body)

    def reader(self, request: Request) -> _Reader:
        return _Reader()

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> AgentError:
        error = faults.fault(status, headers, body, provider=_NAME)
        named = next((value for name, value in headers.items() if name.lower() == "request-id"), None)
        try:
            value = faults.parse_json(body)
        except AgentError:
            value = None
        return _specific(error, faults.read(body), status, named or _request_id(value))

    def models_call(self, base_url: str, key: str | None) -> Call:
        return Call(f"{_address(base_url, 'models')}?limit=1000", _headers(key, NEW_VERSION))

    def model_names(self, body: Any) -> tuple[str, ...]:
        listed = body.get("data") if isinstance(body, Mapping) else None
        entries = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
        return tuple(name for entry in entries if isinstance(name := entry.get("id"), str) and name)


ANTHROPIC: Format = _Anthropic()


# --- Writing a request -----------------------------------------------------------------------------------------


def _address(base_url: str | None, path: str) -> str:
    base = re.sub(r"/messages$", "", (base_url or "").strip().rstrip("/"))
    return f"{base}/{path}" if re.search(r"/v\d\w*$", base) else f"{base}/v1/{path}"


def _headers(key: str | None, version: str) -> dict[str, str]:
    return {"anthropic-version": version, **({"x-api-key": key} if key else {})}


def _optional(options: Mapping[str, Any], settings: Sampling) -> dict[str, Any]:
    """The fields that a server may refuse and that may then be left out."""
    fields: dict[str, Any] = {}
    if stop := turns.stop_list(options):
        fields["stop_sequences"] = stop
    if settings.effort is not None:
        fields["output_config"] = {"effort": settings.effort if settings.effort in _EFFORTS else "low"}
    if thinking := _thinking(options, settings.max_tokens):
        fields["thinking"] = thinking
    if str(options.get("version", "")) >= NEW_VERSION:
        return fields
    sampled = next((name for name in ("temperature", "top_p") if getattr(settings, name) is not None), None)
    if sampled:
        fields[sampled] = getattr(settings, sampled)
    return fields


def _thinking(options: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    thinking = dict(options.get("thinking", {}))
    if "budget_tokens" in thinking:
        thinking["budget_tokens"] = min(thinking["budget_tokens"], max_tokens - 1)
        if thinking["budget_tokens"] < _LEAST_BUDGET:
            return {}
    return thinking


# --- Reading an answer -----------------------------------------------------------------------------------------


class _Reader(turns.Collected):
    """Reads one answer. Blocks come one after the other, so their indexes do not matter."""

    def __init__(self) -> None:
        super().__init__()
        self._fed = False
        self._begun = False
        self._stop: str | None = None
        self._reason = ""
        self._id: str | None = None

    def event(self, data: str, event: str = "") -> Sequence[Piece]:
        if data.strip() in ("", "[DONE]"):
            return []
        try:
            value = faults.parse_json(data)
        except AgentError:
            if event == "error":
                raise faults.in_band(data, provider=_NAME) from None
            if self._stop or (event and event not in _EVENTS):  # torn after the end, or a keep-alive in plain words
                return []
            raise
        self._fed = True
        if not isinstance(value, Mapping):
            return []
        kind = value.get("type") or event
        if kind == "error" or value.get("error"):
            raise _reported(value)
        if kind == "message":
            return self._message(value)
        if kind == "message_start":
            return self._message(value.get("message"))
        if kind == "content_block_start":
            return self._block(value.get("content_block"))
        if kind == "content_block_delta":
            return self._block(value.get("delta"))
        if kind == "message_delta":
            self._end(value.get("delta"))
            self._usage(value.get("usage"))
        return []

    def whole(self, body: Any) -> Sequence[Piece]:
        self._fed = True
        if isinstance(body, list) and len(body) == 1:
            body = body[0]
        if isinstance(body, Mapping):
            if body.get("type") == "error" or body.get("error"):
                raise _reported(body)
            if "content" in body:
                return self._message(body)
        raise _foreign()

    def reply(self) -> Reply:
        if self._stop is None and self._fed and not self._begun:
            raise _foreign()
        if self._stop is None:
            raise AgentError(
                "The answer ended without a stop reason: it was cut off on the way. Try again.",
                kind="truncated",
                retryable=True,
            )
        text = "".join(self.text)
        finish = _FINISH.get(self._stop, Finish.INCOMPLETE)
        if not text.strip() and (finish is Finish.STOP or self._stop == "tool_use"):
            finish = Finish.EMPTY
        return Reply(
            text,
            finish,
            "".join(self.thought),
            usage=self.usage,
            request_id=self._id,
            warnings=self._warnings(finish),
        )

    def _message(self, message: Any) -> list[Piece]:
        if not isinstance(message, Mapping):
            return []
        self._begun = True
        if isinstance(message.get("id"), str) and message["id"]:
            self._id = message["id"]
        self._usage(message.get("usage"))
        self._end(message)
        content = message.get("content")
        if isinstance(content, str):
            return self.take(content)
        return [piece for block in content for piece in self._block(block)] if isinstance(content, list) else []

    def _block(self, block: Any) -> list[Piece]:
        """A block or a part of one. Signatures, redacted thinking and tool input are no text."""
        if not isinstance(block, Mapping):
            return []
        self._begun = True
        if block.get("type") in ("text", "text_delta"):
            return self.take(block.get("text"))
        if block.get("type") in ("thinking", "thinking_delta"):
            return self.take(block.get("thinking"), "reasoning")
        return []

    def _end(self, delta: Any) -> None:
        if not isinstance(delta, Mapping):
            return
        if isinstance(delta.get("stop_reason"), str) and delta["stop_reason"]:
            self._stop = delta["stop_reason"]
        details = delta.get("stop_details")
        if isinstance(details, Mapping):
            parts = (details.get("category"), details.get("explanation"))
            self._reason = ": ".join(part for part in parts if isinstance(part, str) and part)

    def _usage(self, usage: Any) -> None:
        self.count(usage, _COUNTS)
        details = usage.get("output_tokens_details") if isinstance(usage, Mapping) else None
        self.count(details, ("thinking_tokens",))
        counts = self.counts
        given = counts.get("input_tokens")
        cached = counts.get("cache_read_input_tokens")
        total = None if given is None else given + counts.get("cache_creation_input_tokens", 0) + (cached or 0)
        self.usage = Usage(total, counts.get("output_tokens"), cached, counts.get("thinking_tokens"))

    def _warnings(self, finish: Finish) -> tuple[str, ...]:
        if finish is Finish.REFUSED:
            return (f"The provider declined{f' ({redact(self._reason)[:300]})' if self._reason else ''}.",)
        if self._stop == "model_context_window_exceeded":
            return ("The reply ended because the model's context window was full.",)
        if self._stop not in _FINISH:
            return (f"The reply stopped for {self._stop!r}, before it was complete.",)
        return ()


# --- Errors ----------------------------------------------------------------------------------------------------


def _foreign() -> AgentError:
    return AgentError(
        "The server's answer holds no message in the Anthropic format. Check the member's kind and base URL.",
        kind="protocol",
        retryable=True,
    )


def _reported(value: Mapping[str, Any]) -> AgentError:
    """The error inside an answer whose status was 200."""
    error = value.get("error") or value
    said = faults.read(json.dumps(error).encode())
    return _specific(faults.in_band(error, provider=_NAME), said, None, _request_id(value))


def _specific(error: AgentError, said: faults.Said, status: int | None, request_id: str | None) -> AgentError:
    """`error` with what Anthropic alone says in its own way, and the request id that its support asks for."""
    message = str(error)
    if request_id:
        message = f"{message} (request id {redact(request_id)[:100]})"
    if status == 413 or "request_too_large" in said.codes:
        return turns.changed(error, message, kind="context_length", retryable=False, retry_after=None, drop=None)
    drop = None if error.drop in _OWNED else error.drop
    if error.kind == "bad_request" and drop is None:
        if re.search(r"support\w* the effort param", said.text):
            drop = "output_config"
        elif named := re.search(r"`?(temperature|top_p)`? (?:may|must|can) only be", said.text):
            drop = named[1]
    return turns.changed(error, message, drop=drop)


def _request_id(value: Any) -> str | None:
    found = value.get("request_id") if isinstance(value, Mapping) else None
    return found if isinstance(found, str) and found else None
