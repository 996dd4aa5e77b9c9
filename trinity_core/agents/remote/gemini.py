"""The Gemini format (kind `gemini`, generateContent): requests as JSON, answers as events or as JSON.

`base_url` ends in the API version, as in `https://generativelanguage.googleapis.com/v1beta`; nothing is added to it.
A model is named with or without `models/`. The key goes into the header `x-goog-api-key`, never into an address.

Options of a member, all of which may be left out:

    max_tokens       most tokens of one reply, thinking included; the smaller of it and the request's holds
    effort           none, minimal, low, medium, high, xhigh or max; see below
    thinking_level   minimal, low, medium, high or xhigh, as the provider calls them (Gemini 3 and later)
    thinking_budget  tokens for thinking, 0 for none, -1 for as many as the model likes (Gemini 2.5)
    thoughts         true: ask for summaries of the thinking, which become the reply's reasoning
    temperature      0 to 2; Gemini 3 is meant to run at its default of 1
    top_p, seed, stop (a text or a list of at most five)
    extra_body       a table of further fields; a table in both, such as generationConfig, is merged

The request's own sampling beats these. Only one of effort, thinking_level and thinking_budget may be set. An effort
becomes a level (none: minimal, max: xhigh), and for Gemini 2.5 a budget, because each generation refuses the other's
field: none 0 (128 for Pro, which always thinks), minimal and low 1,024, medium 8,192, high 24,576, above that the
model's most. Gemini 2.0 and older do not think, so an effort of the request is left out for them.

A prompt or reply that a filter stopped is finish blocked, the filter's name being a warning. Without `alt=sse` the
service sends a JSON array; a gateway that loses the parameter makes `Reader.whole` read one.

Not covered: tools, images, cached content, several candidates, and thought signatures sent back in later turns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from trinity_core.agents.remote import faults, turns
from trinity_core.agents.remote.formats import Call, Format
from trinity_core.errors import AgentError, PoolError
from trinity_core.types import AgentSpec, Finish, Piece, Reply, Request, Usage
from trinity_core.wire import redact

_NAME = "Gemini"
_LEVELS = ("minimal", "low", "medium", "high", "xhigh")
_THINKING = ("effort", "thinking_level", "thinking_budget")
_OWNED = {
    "model": "Use the member's model.",
    "contents": "They are the conversation.",
    "systemInstruction": "It is the role's prompt.",
    "system_instruction": "It is the role's prompt.",
    "generation_config": "Write generationConfig.",
}
_OWNED_CONFIG = {
    **dict.fromkeys(("maxOutputTokens", "max_output_tokens"), "Use the option max_tokens."),
    **dict.fromkeys(("thinkingConfig", "thinking_config"), "Use thinking_level, thinking_budget or thoughts."),
    **dict.fromkeys(("candidateCount", "candidate_count"), "Only one reply is read."),
}
_RULES: Mapping[str, turns.Rule] = {
    "max_tokens": turns.whole(1),
    "effort": turns.word(turns.EFFORTS),
    "thinking_level": turns.word(_LEVELS),
    "thinking_budget": turns.whole(-1),
    "thoughts": turns.flag,
    "temperature": turns.number(0, 2),
    "top_p": turns.number(0, 1),
    "seed": turns.whole(-(2**31)),
    "stop": turns.stops(5),
    "extra_body": turns.table,
}
_FINISH = {
    "STOP": Finish.STOP,
    "MAX_TOKENS": Finish.LENGTH,
    "CONTINUATION": Finish.LENGTH,
    **dict.fromkeys(
        (
            *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "ESCALATION"),
            *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "PUP_LIMITED_DISABLED"),
            *("MODEL_ARMOR", "JAILBREAK"),
        ),
        Finish.BLOCKED,
    ),
}
_FAILED = re.compile(r"MALFORMED_\w+|OTHER|IMAGE_OTHER|NO_IMAGE|MISSING_THOUGHT_SIGNATURE")
_TOOL = ("UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS")
_COUNTS = (
    *("promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount", "thoughtsTokenCount"),
    *("toolUsePromptTokenCount", "totalTokenCount"),
)


class _Gemini:
    kind = "gemini"
    default_base_url: str | None = "https://generativelanguage.googleapis.com/v1beta"

    def check(self, spec: AgentSpec) -> None:
        turns.check_options(spec, _RULES)
        turns.check_extra(spec, _OWNED)
        turns.check_extra(spec, _OWNED_CONFIG, "generationConfig")
        chosen = [name for name in _THINKING if name in spec.options]
        if len(chosen) > 1:
            raise PoolError(
                f"Agent {spec.name}: {' and '.join(chosen)} exclude each other (the provider refuses both). "
                f"Keep one of them."
            )
        if chosen and not _thinks(spec.model):
            raise PoolError(
                f"Agent {spec.name}: model {spec.model} does not think. Remove {chosen[0]}, or use a newer model."
            )

    def call(self, request: Request, key: str | None, *, drop: frozenset[str] = frozenset()) -> Call:
        spec = request.agent
        system, messages = turns.strict(request.messages)
        roles = {"user": "user", "assistant": "model"}
        body: dict[str, Any] = {
            "contents": [{"role": roles[m.role], "parts": [{"text": m.content}]} for m in messages],
            "generationConfig": _config(request),
        }
        if system:
            body["systemInstruction"] = {"parts": [{"text": system}]}
        body = _without(turns.merge_extra(body, spec.options), drop)
        base = (spec.base_url or self.default_base_url or "").strip().rstrip("/")
        url = f"{base}/{_path(spec.model or '')}:streamGenerateContent?alt=sse"
        return Call(url, _headers(key), body)

    def reader(self, request: Request) -> _Reader:
        return _Reader()

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> AgentError:
        try:
            value = faults.parse_json(body)
        except AgentError:
            value = None
        value = value[0] if isinstance(value, list) and value else value
        error = faults.fault(status, headers, body, provider=_NAME)
        return _specific(error, value.get("error") if isinstance(value, Mapping) else None, status)

    def models_call(self, base_url: str, key: str | None) -> Call:
        return Call(f"{base_url.strip().rstrip('/')}/models?pageSize=1000", _headers(key))

    def model_names(self, body: Any) -> tuple[str, ...]:
        listed = body.get("models") if isinstance(body, Mapping) else None
        entries = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
        names = []
        for entry in entries:
            methods = entry.get("supportedGenerationMethods")
            able = not isinstance(methods, list) or "generateContent" in methods
            if able and isinstance(entry.get("name"), str) and entry["name"]:
                names.append(entry["name"].removeprefix("models/"))
        return tuple(names)


GEMINI: Format = _Gemini()


# --- Writing a request -----------------------------------------------------------------------------------------


def _path(model: str) -> str:
    named = model.strip()
    rooted = named.startswith(("models/", "tunedModels/"))
    return quote(named if rooted else f"models/{named}", safe="/")


def _headers(key: str | None) -> dict[str, str]:
    return {"x-goog-api-key": key} if key else {}


def _config(request: Request) -> dict[str, Any]:
    options, settings = request.agent.options, turns.settled(request)
    named = {"temperature": settings.temperature, "topP": settings.top_p, "seed": settings.seed}
    config: dict[str, Any] = {"maxOutputTokens": settings.max_tokens}
    config |= {name: value for name, value in named.items() if value is not None}
    if stop := turns.stop_list(options):
        config["stopSequences"] = stop
    thinking: dict[str, Any] = {"includeThoughts": True} if options.get("thoughts") else {}
    if settings.effort is not None:
        thinking |= _effort(request.agent.model, settings.effort)
    elif "thinking_level" in options:
        thinking["thinkingLevel"] = options["thinking_level"].upper()
    elif "thinking_budget" in options:
        thinking["thinkingBudget"] = options["thinking_budget"]
    if thinking:
        config["thinkingConfig"] = thinking
    return config


def _without(body: dict[str, Any], drop: frozenset[str]) -> dict[str, Any]:
    """`body` without the settings that `drop` names, in either spelling and by a part of thinkingConfig too."""
    unwanted = {"thinkingconfig" if name.startswith("thinking") else _plain(name) for name in drop}
    config = body["generationConfig"]
    kept = {n: v for n, v in config.items() if _plain(n) not in unwanted or n == "maxOutputTokens"}
    return {**body, "generationConfig": kept}


def _plain(name: str) -> str:
    """topP and top_p as one: the service takes both spellings, and names either in its errors."""
    return {"stop": "stopsequences"}.get(name, name.replace("_", "").lower())


def _generation(model: str | None) -> tuple[int, int] | None:
    """(2, 5) of gemini-2.5-flash; None for a name that does not say, such as gemini-flash-latest or a gateway's."""
    match = re.search(r"gemini-(\d+)(?:\.(\d+))?", (model or "").lower())
    return (int(match[1]), int(match[2] or 0)) if match else None


def _thinks(model: str | None) -> bool:
    generation = _generation(model)
    return generation is None or generation >= (2, 5)


def _effort(model: str | None, effort: str) -> dict[str, Any]:
    """The fields of thinkingConfig that ask `model` for `effort`, as in the module's docstring."""
    if not _thinks(model):
        return {}
    if (_generation(model) or (3, 0)) >= (3, 0):
        return {"thinkingLevel": {"none": "MINIMAL", "max": "XHIGH"}.get(effort, effort.upper())}
    pro = "pro" in (model or "").lower()
    budgets = {"none": 128 if pro else 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24_576}
    return {"thinkingBudget": budgets.get(effort, 32_768 if pro else 24_576)}


# --- Reading an answer -----------------------------------------------------------------------------------------


class _Reader(turns.Collected):
    """Reads one answer: any number of chunks of one shape, streamed or in an array."""

    def __init__(self) -> None:
        super().__init__()
        self._fed = False
        self._candidate = False
        self._stop = ""
        self._said = ""
        self._blocked: str | None = None
        self._id: str | None = None

    def event(self, data: str, event: str = "") -> Sequence[Piece]:
        if data.strip() in ("", "[DONE]"):
            return []
        try:
            value = faults.parse_json(data)
        except AgentError as error:
            if event == "error":
                raise _advised(faults.in_band(data, provider=_NAME)) from None
            if self._stop or event not in ("", "message"):  # torn after the end, or a keep-alive in plain words
                return []
            raise _advised(error) from None
        return self._take(value)

    def whole(self, body: Any) -> Sequence[Piece]:
        self._fed = True
        return self._take(body)

    def reply(self) -> Reply:
        if not self._stop and self._blocked is not None:
            warning = f"The provider blocked the prompt ({self._blocked})."
            text, thought = "".join(self.text), "".join(self.thought)
            return Reply(text, Finish.BLOCKED, thought, self.usage, request_id=self._id, warnings=(warning,))
        if self._fed and not self._candidate:
            raise _foreign()
        if not self._stop:
            raise AgentError(
                "The answer ended without a finish reason: it was cut off on the way. Try again.",
                kind="truncated",
                retryable=True,
            )
        if _FAILED.fullmatch(self._stop):
            raise _failed(self._stop, self._said)
        text = "".join(self.text)
        finish = _FINISH.get(self._stop, Finish.INCOMPLETE)
        if not text.strip() and (finish is Finish.STOP or self._stop in _TOOL):
            finish = Finish.EMPTY
        return Reply(
            text,
            finish,
            "".join(self.thought),
            usage=self.usage,
            request_id=self._id,
            warnings=self._warnings(finish),
        )

    def _take(self, chunk: Any) -> list[Piece]:
        if isinstance(chunk, list):
            return [piece for part in chunk for piece in self._take(part)]
        self._fed = True
        if not isinstance(chunk, Mapping):
            raise _foreign()
        if chunk.get("error") is not None:
            raise _specific(faults.in_band(chunk["error"], provider=_NAME), chunk["error"], None)
        if isinstance(chunk.get("responseId"), str):
            self._id = chunk["responseId"]
        feedback = chunk.get("promptFeedback")
        reason = feedback.get("blockReason") if isinstance(feedback, Mapping) else None
        if isinstance(reason, str) and reason:
            self._blocked = reason
        self._usage(chunk.get("usageMetadata"))
        candidates = chunk.get("candidates")
        listed = candidates if isinstance(candidates, list) else []
        # Only the first is read. Its index is left out of the JSON where it is 0.
        first = next((each for each in listed if isinstance(each, Mapping) and not each.get("index")), None)
        return [] if first is None else list(self._parts(first))

    def _parts(self, candidate: Mapping[str, Any]) -> Iterator[Piece]:
        self._candidate = True
        stop = candidate.get("finishReason")
        if isinstance(stop, str) and stop and not (self._stop and stop == "FINISH_REASON_UNSPECIFIED"):
            self._stop = stop.upper()
        if isinstance(candidate.get("finishMessage"), str):
            self._said = candidate["finishMessage"]
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, Mapping) else None
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, Mapping):
                # The flag alone marks a thought: a signature also stands on parts of the answer.
                yield from self.take(part.get("text"), "reasoning" if part.get("thought") is True else "text")

    def _usage(self, usage: Any) -> None:
        self.count(usage, _COUNTS)
        counts = self.counts
        prompt, spoken = counts.get("promptTokenCount"), counts.get("candidatesTokenCount")
        thought, total = counts.get("thoughtsTokenCount"), counts.get("totalTokenCount")
        output = None if spoken is None and thought is None else (spoken or 0) + (thought or 0)
        tools = counts.get("toolUsePromptTokenCount", 0)
        if output is None and prompt is not None and total is not None:
            output = max(0, total - prompt - tools)  # counts of 0 are left out of the JSON
        given = None if prompt is None else prompt + tools
        self.usage = Usage(given, output, counts.get("cachedContentTokenCount"), thought)

    def _warnings(self, finish: Finish) -> tuple[str, ...]:
        if finish is Finish.BLOCKED:
            return (f"The provider's filter stopped the reply ({self._stop}).",)
        if self._stop not in _FINISH:
            return (f"The reply stopped for {self._stop!r}, before it was complete.",)
        return ()


# --- Errors ----------------------------------------------------------------------------------------------------


def _foreign() -> AgentError:
    return AgentError(
        "The server's answer holds no candidate in the Gemini format. Try again; if it stays so, check the member's "
        "kind and base URL.",
        kind="protocol",
        retryable=True,
    )


def _failed(stop: str, said: str) -> AgentError:
    words = f": {redact(said)[: faults.SHOWN]}" if said else ""
    if stop == "MISSING_THOUGHT_SIGNATURE":
        return AgentError(
            f"{_NAME} wants a thought signature in the conversation{words}, and none can be sent. Use another model.",
            kind="bad_request",
        )
    return AgentError(
        f"{_NAME} failed to finish its answer ({stop}){words}. Try again.", kind="transient", retryable=True
    )


def _advised(error: AgentError) -> AgentError:
    """`error` with the advice on base URLs that fits this format."""
    return turns.changed(error, str(error).replace("usually ends in /v1)", "ends in the API version, as in /v1beta)"))


def _specific(error: AgentError, value: Any, status: int | None) -> AgentError:
    """`error` with what Google alone says in its own way: how long to wait, and which quota is spent."""
    error = _advised(error)
    value = value if isinstance(value, Mapping) else {}
    if 413 in (status, value.get("code")):
        return turns.changed(error, kind="context_length", retryable=False, retry_after=None, drop=None)
    details = value.get("details")
    details = [detail for detail in details if isinstance(detail, Mapping)] if isinstance(details, list) else []
    if error.retryable:
        waits = [_seconds(detail.get("retryDelay")) for detail in details] + [error.retry_after]
        error = turns.changed(error, retry_after=max((wait for wait in waits if wait is not None), default=None))
        if error.kind == "rate_limit" and any("PerDay" in quota for detail in details for quota in _quotas(detail)):
            message = f"{error} The quota of the day is spent: use another model or member until tomorrow."
            return turns.changed(error, message, retryable=False)
    words = value.get("message")
    if error.kind == "bad_request" and error.drop is None and isinstance(words, str):
        return turns.changed(error, drop=_refused(words))
    return error


def _seconds(value: Any) -> float | None:
    """A protobuf duration: "17s", or an object with seconds."""
    if isinstance(value, Mapping):
        value = f"{value.get('seconds', 0)}s"
    return faults.duration(value) if isinstance(value, str) else None


def _quotas(detail: Mapping[str, Any]) -> list[str]:
    violations = detail.get("violations")
    found = [v for v in violations if isinstance(v, Mapping)] if isinstance(violations, list) else []
    return [str(v.get("quotaId", "")) for v in found]


def _refused(message: str) -> str | None:
    """The field of generationConfig that the model does not take, from the provider's words."""
    if re.search(
        r"(?i)thinking (?:level|budget)\b.* not supported|thinking mode|thinking can.?t be disabled", message
    ):
        return "thinkingConfig"
    unknown = re.search(r'Unknown name "(\w+)" at \'generation_config', message)
    return unknown[1] if unknown and unknown[1] not in _OWNED_CONFIG else None
