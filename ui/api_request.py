"""Reading what clients of /v1 send: a chat completion's or a response's body as the conversation and its settings.

What is understood is text. A part of a message that is something else, and a setting that asks for what cannot be
done here (several choices, JSON by schema, log-probabilities, a forced tool, background work), is an ApiError that
names the field; an unknown field is left alone, as other servers do. Tools are not called: their definitions are
ignored, earlier calls and results become text of the conversation.

The newest question comes last: a system message that follows it is put before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trinity_core.types import Message, Mode, RunParams, Sampling
from ui.api_errors import ApiError

MOST_TURNS = 100
"""Most turns that a request may ask for; our own choice."""
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_TEXT_PARTS = ("text", "input_text", "output_text")
_SYSTEM = ("system", "developer")
_TERMINAL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")
_ABSENT = ("item_reference",)
_SILENT = ("reasoning", "compaction", "compaction_summary", "compaction_trigger", "context_compaction")
"""Items that another model left for itself; they hold nothing that could be read here."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, checked. `param` is the field that holds the conversation; `left_out` says what was not used.

    `messages` may be empty only together with `previous`, the id of an earlier response. `echo` are fields that the
    answer repeats.
    """

    model: str
    messages: tuple[Message, ...]
    param: str
    params: RunParams = field(default_factory=RunParams)
    seed: int = 0
    stream: bool = False
    include_usage: bool = False
    stop: tuple[str, ...] = ()
    previous: str | None = None
    instructions: str | None = None
    left_out: tuple[str, ...] = ()
    echo: Mapping[str, Any] = field(default_factory=dict)


def parse(data: bytes) -> dict[str, Any]:
    """The JSON object in a request's body. Raises ApiError."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not a JSON number")

    try:
        body = json.loads(data, parse_constant=refuse)
    except UnicodeDecodeError:
        raise ApiError("The body is not UTF-8. Send JSON in UTF-8.", code="invalid_json") from None
    except RecursionError:
        raise ApiError("The body is nested too deeply. Send a flatter one.", code="invalid_json") from None
    except ValueError as error:
        raise ApiError(
            f"The body is not valid JSON: {error}. Correct it and send it again.", code="invalid_json"
        ) from None
    if not isinstance(body, dict):
        raise ApiError(f"The body must be a JSON object, not {_named(body)}.", code="invalid_json")
    return body


def read_chat(body: Mapping[str, Any]) -> Asked:
    """The body of `POST /v1/chat/completions`. Raises ApiError naming the field."""
    if body.get("n") is not None and (body["n"] != 1 or isinstance(body["n"], bool)):
        raise ApiError("n must be 1: a run has one answer. Send the request again for another one.", param="n")
    _refuse_what_cannot_be(body)
    _refuse_format(body.get("response_format"), "response_format")
    options = _object(body, "stream_options")
    _require(body, "messages")
    names: dict[str, str] = {}
    messages: list[Message] = []
    for number, item in enumerate(_list(body, "messages")):
        messages += _chat_message(item, f"messages[{number}]", names)
    tokens = _first_whole(body, "max_completion_tokens", "max_tokens")
    return Asked(
        model=_model(body),
        messages=_ordered(messages, "messages"),
        param="messages",
        params=_params(body, tokens, _text(body, "reasoning_effort"), "reasoning_effort"),
        seed=_seed(body),
        stream=_flag(body, "stream"),
        include_usage=_flag(options, "include_usage", "stream_options.include_usage"),
        stop=_stop(body.get("stop")),
    )


def read_responses(body: Mapping[str, Any]) -> Asked:
    """The body of `POST /v1/responses`. Raises ApiError naming the field."""
    _refuse_what_cannot_be(body)
    for name in ("background", "conversation", "prompt"):
        if body.get(name):
            raise ApiError(f"{name} is not supported here. Leave it out and send the whole input.", param=name)
    _refuse_format(_object(body, "text").get("format"), "text.format")
    previous, instructions = _text(body, "previous_response_id"), _text(body, "instructions")
    left_out: dict[str, None] = {}
    messages = [Message("system", instructions)] if instructions and instructions.strip() else []
    given = body.get("input")
    if isinstance(given, str):
        messages.append(Message("user", given))
    else:
        _require(body, "input")
        names: dict[str, str] = {}
        for number, item in enumerate(_list(body, "input")):
            messages += _item(item, f"input[{number}]", names, left_out)
    reasoning = _object(body, "reasoning")
    effort = _text(reasoning, "effort", "reasoning.effort")
    tokens = _first_whole(body, "max_output_tokens")
    return Asked(
        model=_model(body),
        messages=_ordered(messages, "input"),
        param="input",
        params=_params(body, tokens, effort, "reasoning.effort"),
        seed=_seed(body),
        stream=_flag(body, "stream"),
        previous=previous or None,
        instructions=instructions,
        left_out=tuple(f"Items of type {kind} were left out." for kind in left_out),
        echo={
            "instructions": instructions,
            "max_output_tokens": tokens,
            "metadata": _object(body, "metadata"),
            "previous_response_id": previous or None,
            "reasoning": {"effort": effort, "summary": reasoning.get("summary")},
            "temperature": body.get("temperature"),
            "top_p": body.get("top_p"),
            "user": body.get("user"),
        },
    )


# --- The conversation ---------------------------------------------------------------------------------------


def _chat_message(item: Any, where: str, names: dict[str, str]) -> list[Message]:
    """One chat message. `names` collects which tool a call id belongs to."""
    if not isinstance(item, Mapping):
        raise ApiError(f"{where} must be an object with role and content, not {_named(item)}.", param=where)
    role = item.get("role")
    content = content_text(item.get("content"), f"{where}.content", strict=role not in ("tool", "function"))
    if role in ("tool", "function"):
        tool = item.get("name") or names.get(str(item.get("tool_call_id")))
        return [_tool_result(tool, content)]
    if role in _SYSTEM:
        return [Message("system", content)]
    if role == "user":
        return [Message("user", content)]
    if role != "assistant":
        raise ApiError(
            f"{where}.role must be system, developer, user, assistant or tool, not {_named(role)}.",
            param=f"{where}.role",
        )
    lines = [content, item["refusal"] if isinstance(item.get("refusal"), str) else ""]
    calls = item.get("tool_calls")
    for call in [*(calls if isinstance(calls, list) else []), {"function": item.get("function_call")}]:
        function = call.get("function") or call.get("custom") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            names[str(call.get("id"))] = str(function.get("name"))
            lines.append(_tool_call(function.get("name"), function.get("arguments", function.get("input"))))
    return [Message("assistant", "\n".join(line for line in lines if line))]


def _item(item: Any, where: str, names: dict[str, str], left_out: dict[str, None]) -> list[Message]:
    """One item of a response's input."""
    if isinstance(item, str):
        return [Message("user", item)]
    if not isinstance(item, Mapping):
        raise ApiError(f"{where} must be an object, not {_named(item)}.", param=where)
    kind = str(item.get("type") or "message")
    if kind == "message":
        return _chat_message(item, where, names)
    if kind in _ABSENT:
        raise ApiError(f"{where} refers to an item that is not kept here. Send the item itself.", param=where)
    if kind.endswith("_call_output"):
        output = item.get("output")
        text = output if isinstance(output, str | list) or output is None else json.dumps(output, ensure_ascii=False)
        return [
            _tool_result(names.get(str(item.get("call_id"))), content_text(text, f"{where}.output", strict=False))
        ]
    if kind.endswith("_call"):
        name = str(item.get("name") or kind.removesuffix("_call"))
        names[str(item.get("call_id"))] = name
        return [Message("assistant", _tool_call(name, item.get("arguments", item.get("input", item.get("action")))))]
    if kind not in _SILENT:
        left_out[kind[:40]] = None
    return []


def content_text(content: Any, where: str, *, strict: bool = True) -> str:
    """The text of a message's content: a text, nothing, or a list of parts, which become lines.

    A part that is no text raises ApiError. What a tool gave is not `strict`: nobody can take its picture out by hand,
    so a note stands in its place."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ApiError(f"{where} must be a text or a list of parts, not {_named(content)}.", param=where)
    return "\n".join(_part(part, f"{where}[{number}]", strict) for number, part in enumerate(content))


def _part(part: Any, where: str, strict: bool) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    field_name = "refusal" if kind == "refusal" else "text"
    if kind not in (*_TEXT_PARTS, "refusal"):
        if not strict:
            return f"[{str(kind)[:40]}: only text can be passed on]"
        raise ApiError(
            f"{where} is of type {_named(kind)}, but only text is understood here. Leave it out, or describe it in "
            "words.",
            param=where,
            code="unsupported_content",
        )
    if not isinstance(part.get(field_name), str):
        raise ApiError(f"{where}.{field_name} must be a text, not {_named(part.get(field_name))}.", param=where)
    return str(part[field_name])


def _tool_call(name: Any, arguments: Any) -> str:
    said = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return _printable(f"Called the tool {name} with: {said}")


def _tool_result(name: Any, text: str) -> Message:
    """What a tool gave: colours of a terminal and other control characters do not make it unusable."""
    return Message("user", _printable(f"Result of the tool{f' {name}' if name else ''}:\n{text}"))


def _printable(text: str) -> str:
    return _CONTROL.sub("", _TERMINAL.sub("", text))


def _ordered(messages: Sequence[Message], param: str) -> tuple[Message, ...]:
    """Without empty messages, the newest question last. Raises ApiError when there is no question."""
    kept = [message for message in messages if message.role == "user" or message.content.strip()]
    after: list[Message] = []
    while kept and kept[-1].role == "system":
        after.insert(0, kept.pop())
    if not kept:
        raise ApiError(
            f"There is no user message in {param}, so there is nothing to answer. Add one as the last.", param=param
        )
    if kept[-1].role != "user":
        raise ApiError(
            f"The last message of {param} is the assistant's. End with the user message to be answered.", param=param
        )
    if not kept[-1].content.strip():
        raise ApiError(f"The last user message of {param} is empty. Put the question there.", param=param)
    return (*kept[:-1], *after, kept[-1])


# --- Settings -----------------------------------------------------------------------------------------------


def _params(body: Mapping[str, Any], tokens: int | None, effort: str | None, effort_name: str) -> RunParams:
    if effort is not None and effort not in EFFORTS:
        raise ApiError(f"{effort_name} must be one of {', '.join(EFFORTS)}, not {_named(effort)}.", param=effort_name)
    seed = _whole(body, "seed", -(2**63), 2**63 - 1)
    sampling = Sampling(
        max_tokens=tokens or Sampling().max_tokens,
        temperature=_number(body, "temperature", 0, 2),
        top_p=_number(body, "top_p", 0, 1),
        seed=seed,
        effort=effort,
    )
    own = _object(body, "trinity")
    for name in own:
        if name not in ("max_turns", "mode", "reuse"):
            raise ApiError(f"trinity.{name} is unknown. Known: max_turns, mode, reuse.", param=f"trinity.{name}")
    mode = own.get("mode", Mode.ARGMAX.value)
    if mode not in (Mode.ARGMAX.value, Mode.SAMPLE.value):
        raise ApiError(f"trinity.mode must be argmax or sample, not {_named(mode)}.", param="trinity.mode")
    turns = _whole(own, "max_turns", 1, MOST_TURNS, "trinity.max_turns")
    return RunParams(
        max_turns=turns or RunParams().max_turns,
        mode=Mode(mode),
        sampling=sampling,
        reuse=_flag(own, "reuse", "trinity.reuse"),
    )


def _seed(body: Mapping[str, Any]) -> int:
    """The seed of the run's own draws: the request's, or 0."""
    return body.get("seed") or 0


def _refuse_what_cannot_be(body: Mapping[str, Any]) -> None:
    choice = body.get("tool_choice")
    if choice not in (None, "auto", "none"):
        raise ApiError(
            "No tool can be called here. Set tool_choice to auto or none, or leave it out.", param="tool_choice"
        )
    for name in ("logprobs", "top_logprobs"):
        if body.get(name):
            raise ApiError(f"{name} cannot be given for a coordinated answer. Leave it out.", param=name)
    modalities = body.get("modalities")
    if modalities is not None and modalities != ["text"]:
        raise ApiError('Only text can be answered. Set modalities to ["text"], or leave it out.', param="modalities")


def _refuse_format(wanted: Any, name: str) -> None:
    kind = wanted.get("type") if isinstance(wanted, Mapping) else None
    if wanted is not None and kind != "text":
        raise ApiError(
            f"{name} can only be text: a coordinated answer cannot be held to a schema. Leave it out, and ask for "
            "JSON in the question.",
            param=name,
            code="unsupported_parameter",
        )


def _stop(value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(texts, list) or len(texts) > 4 or not all(isinstance(text, str) for text in texts):
        raise ApiError("stop must be a text or a list of at most four texts.", param="stop")
    return tuple(text for text in texts if text)


def _model(body: Mapping[str, Any]) -> str:
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise ApiError('model is missing. Name one, for example "trinity"; GET /v1/models lists them.', param="model")
    return model


def _first_whole(body: Mapping[str, Any], *names: str) -> int | None:
    """The first of the fields that is given; all of them are checked."""
    values = [_whole(body, name, 1, 2**31 - 1) for name in names]
    return next((value for value in values if value is not None), None)


def _whole(body: Mapping[str, Any], name: str, low: int, high: int, shown: str = "") -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ApiError(
            f"{shown or name} must be a whole number from {low} to {high}, not {_named(value)}.", param=shown or name
        )
    return value


def _number(body: Mapping[str, Any], name: str, low: float, high: float) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ApiError(f"{name} must be a number from {low:g} to {high:g}, not {_named(value)}.", param=name)
    return value


def _flag(body: Mapping[str, Any], name: str, shown: str = "") -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise ApiError(f"{shown or name} must be true or false, not {_named(value)}.", param=shown or name)
    return bool(value)


def _text(body: Mapping[str, Any], name: str, shown: str = "") -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise ApiError(f"{shown or name} must be a text, not {_named(value)}.", param=shown or name)
    return value


def _object(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name)
    if value is not None and not isinstance(value, Mapping):
        raise ApiError(f"{name} must be an object, not {_named(value)}.", param=name)
    return value or {}


def _require(body: Mapping[str, Any], name: str) -> None:
    if body.get(name) is None:
        raise ApiError(f"{name} is missing. It holds the conversation, the newest question last.", param=name)


def _list(body: Mapping[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    if not isinstance(value, list):
        raise ApiError(f"{name} must be a list, not {_named(value)}.", param=name)
    if not value:
        raise ApiError(f"{name} is empty, so there is nothing to answer. Add a user message.", param=name)
    return value


def _named(value: Any) -> str:
    """A value in a sentence: short, and nothing of a structure's content."""
    if isinstance(value, str):
        return repr(value[:40])
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)[:40]
    return "a list" if isinstance(value, list) else "an object"
