"""The Anthropic Messages format: what is sent, how answers and errors are read, and that others agree."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.capture import capturing, exchange, read_stream, read_whole, request_to
from trinity_core.agents.remote.anthropic import ANTHROPIC, NEW_VERSION, OLD_VERSION
from trinity_core.agents.remote.turns import OPENING
from trinity_core.errors import AgentError, PoolError
from trinity_core.types import AgentSpec, Finish, Sampling, Usage

KEY = "sk-ant-test-0123456789"


def spec(base_url: str | None = None, **options: Any) -> AgentSpec:
    return AgentSpec("claude", "anthropic", "claude-test", options=options, base_url=base_url)


def body_of(
    member: AgentSpec, *messages: tuple[str, str], drop: tuple[str, ...] = (), **sampling: Any
) -> dict[str, Any]:
    ANTHROPIC.check(member)
    asked = request_to(member, *messages, sampling=Sampling(**sampling))
    return dict(ANTHROPIC.call(asked, KEY, drop=frozenset(drop)).body or {})


def start(**usage: Any) -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "claude-test"}
    return {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}


def delta(kind: str, text: str, index: int = 0) -> dict[str, Any]:
    name = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}[kind]
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, name: text}}


def end(reason: str | None = "end_turn", **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}


STOP = {"type": "message_stop"}
RECORDED: list[dict[str, Any]] = [
    start(input_tokens=12, cache_read_input_tokens=30, cache_creation_input_tokens=5, output_tokens=1),
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "thinking", "thinking": "", "signature": ""},
    },
    {"type": "ping"},
    delta("thinking_delta", "Oslo or "),
    delta("thinking_delta", "Bergen?"),
    delta("signature_delta", "EqQBCgIYAhIM"),
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "c2VjcmV0"}},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}},
    delta("text_delta", "Oslo is ", 2),
    delta("text_delta", "the capital. ✓\u2028", 2),
    {"type": "content_block_stop", "index": 2},
    end(output_tokens=40, output_tokens_details={"thinking_tokens": 9}),
    STOP,
]

# --- Requests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "url"),
    [
        (None, "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/v1/", "https://api.anthropic.com/v1/messages"),
        ("http://127.0.0.1:4040/anthropic", "http://127.0.0.1:4040/anthropic/v1/messages"),
        ("http://127.0.0.1:8080/v1/messages", "http://127.0.0.1:8080/v1/messages"),
        ("http://127.0.0.1:8080/v1beta2", "http://127.0.0.1:8080/v1beta2/messages"),
    ],
)
def test_a_base_url_may_lack_its_version(base: str | None, url: str) -> None:
    assert ANTHROPIC.call(request_to(spec(base)), KEY).url == url
    listed = ANTHROPIC.models_call(base or "https://api.anthropic.com/v1", KEY)
    assert listed.url == url.replace("/messages", "/models?limit=1000")
    assert listed.body is None


def test_the_key_is_in_one_header_only() -> None:
    call = ANTHROPIC.call(request_to(spec()), KEY)
    assert call.headers["x-api-key"] == KEY
    assert KEY not in call.url + json.dumps(call.body) + repr(call)
    assert "x-api-key" not in ANTHROPIC.call(request_to(spec()), None).headers


def test_system_text_stands_apart_wherever_it_was() -> None:
    body = body_of(
        spec(),
        ("system", "Rules."),
        ("user", "one"),
        ("system", "More rules."),
        ("assistant", "two"),
        ("user", "three"),
    )
    assert body["system"] == "Rules.\n\nMore rules."
    assert [(m["role"], m["content"]) for m in body["messages"]] == [
        ("user", "one"),
        ("assistant", "two"),
        ("user", "three"),
    ]
    bare = body_of(spec(stop=[]), ("user", "one"), ("system", "  "))
    assert "system" not in bare
    assert "stop_sequences" not in bare


@pytest.mark.parametrize(
    ("messages", "turns"),
    [
        ([("user", "a"), ("system", "s"), ("user", "b")], [("user", "a\n\nb")]),
        ([("user", "a"), ("assistant", " \n"), ("user", "b")], [("user", "a\n\nb")]),
        ([("assistant", "hello"), ("user", "a")], [("user", OPENING), ("assistant", "hello"), ("user", "a")]),
        ([("system", "s")], [("user", OPENING)]),
        ([("user", "a"), ("assistant", "Answer: \n")], [("user", "a"), ("assistant", "Answer:")]),
        (
            [("user", "a "), ("assistant", "b "), ("user", "c ")],
            [("user", "a "), ("assistant", "b "), ("user", "c ")],
        ),
        ([("user", "half a pair \ud83d")], [("user", "half a pair \ufffd")]),
    ],
)
def test_turns_are_as_the_service_demands(messages: list[tuple[str, str]], turns: list[tuple[str, str]]) -> None:
    assert [(m["role"], m["content"]) for m in body_of(spec(), *messages)["messages"]] == turns


@pytest.mark.parametrize(
    ("options", "sampling", "sent", "version"),
    [
        ({}, {}, {}, NEW_VERSION),
        ({"temperature": 0.0, "top_p": 1.0}, {}, {"temperature": 0.0}, OLD_VERSION),
        ({}, {"temperature": 0.0, "top_p": 0.5}, {"temperature": 0.0}, OLD_VERSION),
        ({"top_p": 0.5}, {}, {"top_p": 0.5}, OLD_VERSION),
        ({"temperature": 0.9}, {"temperature": 0.1}, {"temperature": 0.1}, OLD_VERSION),
        ({"version": NEW_VERSION}, {"temperature": 0.1}, {}, NEW_VERSION),
        ({"version": OLD_VERSION}, {"temperature": 0.1}, {"temperature": 0.1}, OLD_VERSION),
        ({"version": OLD_VERSION}, {"seed": 3}, {}, OLD_VERSION),
        ({"extra_body": {"top_k": 5}}, {}, {"top_k": 5}, OLD_VERSION),
    ],
)
def test_one_sampling_field_at_most_with_a_version_that_takes_it(
    options: dict[str, Any], sampling: dict[str, Any], sent: dict[str, Any], version: str
) -> None:
    member = spec(**options)
    ANTHROPIC.check(member)
    call = ANTHROPIC.call(request_to(member, sampling=Sampling(**sampling)), KEY)
    body = dict(call.body or {})
    assert {name: body[name] for name in ("temperature", "top_p", "top_k", "seed") if name in body} == sent
    assert call.headers["anthropic-version"] == version
    assert body["max_tokens"] == 4096


def test_a_refused_field_is_left_out_and_the_rest_stays() -> None:
    member = spec(temperature=0.2, top_p=0.3, stop="END", effort="high", extra_body={"top_k": 3})
    asked = request_to(member, sampling=Sampling(max_tokens=9))
    whole = ANTHROPIC.call(asked, KEY)
    assert whole.body == {
        "model": "claude-test",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "q"}],
        "stream": True,
        "stop_sequences": ["END"],
        "output_config": {"effort": "high"},
        "temperature": 0.2,
        "top_k": 3,
    }
    less = ANTHROPIC.call(
        asked, KEY, drop=frozenset({"temperature", "top_k", "stop_sequences", "max_tokens", "model"})
    )
    assert set(less.body or {}) == {"model", "max_tokens", "messages", "stream", "output_config"}
    assert less.headers["anthropic-version"] == NEW_VERSION


@pytest.mark.parametrize(("option", "asked", "sent"), [(100, 4096, 100), (4096, 100, 100), (None, 77, 77)])
def test_the_smaller_cap_on_tokens_holds(option: int | None, asked: int, sent: int) -> None:
    member = spec() if option is None else spec(max_tokens=option)
    assert body_of(member, max_tokens=asked)["max_tokens"] == sent


@pytest.mark.parametrize(
    ("option", "asked", "sent"),
    [("max", None, "max"), ("max", "medium", "medium"), (None, "none", "low"), (None, "minimal", "low")],
)
def test_effort(option: str | None, asked: str | None, sent: str) -> None:
    member = spec() if option is None else spec(effort=option)
    assert body_of(member, effort=asked)["output_config"] == {"effort": sent}


def test_an_effort_that_is_no_word_makes_no_call() -> None:
    with pytest.raises(AgentError, match=r"'hihg' is unknown\. Did you mean 'high'") as caught:
        ANTHROPIC.call(request_to(spec(), sampling=Sampling(effort="hihg")), KEY)
    assert (caught.value.kind, caught.value.calls) == ("bad_request", 0)


@pytest.mark.parametrize(("cap", "budget"), [(4096, 2048), (2048, 2047), (1025, 1024), (1024, None), (50, None)])
def test_a_thinking_budget_stays_below_the_cap(cap: int, budget: int | None) -> None:
    body = body_of(spec(thinking={"type": "enabled", "budget_tokens": 2048}), max_tokens=cap)
    assert body.get("thinking", {}).get("budget_tokens") == budget
    assert body_of(spec(thinking={"type": "adaptive"}), max_tokens=cap)["thinking"] == {"type": "adaptive"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temprature": 0.1}, "unknown option 'temprature'. Did you mean 'temperature'?"),
        ({"max_tokens": 0}, "max_tokens must be a whole number of at least 1, not 0"),
        ({"max_tokens": True}, "max_tokens must be a whole number"),
        ({"temperature": 1.5}, "temperature must be a number from 0 to 1, not 1.5"),
        ({"temperature": float("nan")}, "temperature must be a number"),
        ({"top_p": "0.5"}, "top_p must be a number"),
        ({"effort": "hgih"}, "effort must be one of low, medium, high, xhigh, max (Did you mean 'high'?)"),
        ({"effort": "none"}, "effort must be one of low"),
        ({"stop": ["a", " "]}, "stop must be a text or a list of texts that are not blank"),
        ({"stop": 3}, "stop must be a text"),
        ({"thinking": True}, "thinking must be a table"),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 10}},
            "budget_tokens must be a whole number of at least 1024",
        ),
        ({"thinking": {"budget_tokens": 2000}, "max_tokens": 2000}, "must be below max_tokens (2000)"),
        ({"version": "latest"}, "version must be a date in quotes"),
        (
            {"version": NEW_VERSION, "top_p": 0.5},
            f'accepts no top_p. Remove that option, or set version = "{OLD_VERSION}"',
        ),
        ({"extra_body": {"max_tokens": 5}}, "extra_body may not set 'max_tokens'. Use the option max_tokens."),
        ({"extra_body": "x"}, "extra_body must be a table"),
    ],
)
def test_a_wrong_option_is_named_with_its_fix(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PoolError) as caught:
        ANTHROPIC.check(spec(**options))
    assert str(caught.value).startswith("Agent claude: ")
    assert words in str(caught.value)


@pytest.mark.parametrize("model", [None, "", "  "])
def test_a_model_is_needed(model: str | None) -> None:
    with pytest.raises(PoolError, match=r"Agent claude: kind anthropic needs a model\. Add model"):
        ANTHROPIC.check(AgentSpec("claude", "anthropic", model))


# --- Answers ---------------------------------------------------------------------------------------------------


def test_a_recorded_stream() -> None:
    pieces, reply = read_stream(ANTHROPIC, RECORDED)
    assert reply.text == "Oslo is the capital. ✓\u2028" == "".join(p.text for p in pieces if p.channel == "text")
    assert reply.reasoning == "Oslo or Bergen?" == "".join(p.text for p in pieces if p.channel == "reasoning")
    assert (reply.finish, reply.request_id, reply.warnings, reply.cost) == (Finish.STOP, "msg_1", (), None)
    assert reply.usage == Usage(input=12 + 30 + 5, output=40, cached=30, reasoning=9)


def test_pings_unknown_events_and_blocks_are_passed_over() -> None:
    odd: list[Any] = [
        {"type": "ping"},
        start(),
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "h"}},
        {"type": "invented_tomorrow", "delta": {"text": "no"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "text": "no"}},
        {"type": "content_block_delta", "index": 0, "delta": None},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": None}},
        None,
        7,
        delta("text_delta", "i"),
        end(),
        STOP,
    ]
    assert read_stream(ANTHROPIC, odd)[1].text == "hi"
    reader = ANTHROPIC.reader(request_to(spec()))
    assert [list(reader.event(data)) for data in ("", " \n", "[DONE]")] == [[], [], []]
    assert reader.started is False


def test_the_event_name_counts_where_the_data_has_no_type() -> None:
    reader = ANTHROPIC.reader(request_to(spec()))
    reader.event('{"index":0,"delta":{"type":"text_delta","text":"x"}}', "content_block_delta")
    reader.event('{"delta":{"stop_reason":"end_turn"}}', "message_delta")
    assert reader.started
    assert reader.reply().text == "x"


@pytest.mark.parametrize(
    ("usages", "total"),
    [
        ([{"input_tokens": 20, "output_tokens": 1}, {"output_tokens": 7}, {"output_tokens": 11}], Usage(20, 11)),
        ([{"input_tokens": 20}, {"input_tokens": None, "output_tokens": 3}], Usage(20, 3)),
        ([{"input_tokens": 20, "output_tokens": 9}, {"input_tokens": 0, "output_tokens": 9}], Usage(20, 9)),
        ([{"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 25, "output_tokens": 2}], Usage(25, 2)),
        ([{"input_tokens": 4, "cache_read_input_tokens": 6}, {}], Usage(10, None, 6)),
        ([{}, {"output_tokens": "3"}], Usage(None, 3)),
        ([{"input_tokens": -5, "output_tokens": 10**30}, {"output_tokens": True}], Usage()),
        ([None, None], Usage()),
    ],
)
def test_usage_is_cumulative(usages: list[Any], total: Usage) -> None:
    events = [start(), *({"type": "message_delta", "delta": {}, "usage": usage} for usage in usages), end()]
    assert read_stream(ANTHROPIC, events)[1].usage == total


@pytest.mark.parametrize(
    ("reason", "text", "finish", "warning"),
    [
        ("end_turn", "x", Finish.STOP, ""),
        ("stop_sequence", "x", Finish.STOP, ""),
        ("end_turn", " \n", Finish.EMPTY, ""),
        ("max_tokens", "I can", Finish.LENGTH, ""),
        ("max_tokens", "", Finish.LENGTH, ""),
        ("model_context_window_exceeded", "x", Finish.LENGTH, "context window was full"),
        ("refusal", "I can", Finish.REFUSED, "declined"),
        ("refusal", "", Finish.REFUSED, "declined"),
        ("tool_use", "", Finish.EMPTY, "tool_use"),
        ("tool_use", "Let me look.", Finish.INCOMPLETE, "tool_use"),
        ("pause_turn", "x", Finish.INCOMPLETE, "pause_turn"),
        ("invented_tomorrow", "x", Finish.INCOMPLETE, "invented_tomorrow"),
    ],
)
def test_stop_reasons(reason: str, text: str, finish: Finish, warning: str) -> None:
    streamed = read_stream(ANTHROPIC, [start(), delta("text_delta", text), end(reason), STOP])[1]
    whole = read_whole(ANTHROPIC, {"content": [{"type": "text", "text": text}], "stop_reason": reason})
    for reply in (streamed, whole):
        assert (reply.text, reply.finish) == (text, finish)
        assert warning in " ".join(reply.warnings)
        assert bool(reply.warnings) == bool(warning)


def test_why_a_reply_was_refused() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "Not this."}
    reply = read_whole(ANTHROPIC, {"content": [], "stop_reason": "refusal", "stop_details": details})
    assert reply.warnings == ("The provider declined (bio: Not this.).",)


def test_a_whole_answer() -> None:
    body = {
        "id": "msg_2",
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "Par"},
            {"type": "text", "text": None},
            "odd",
            {"type": "tool_use", "name": "f", "input": {}},
            {"type": "text", "text": "is"},
        ],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }
    reply = read_whole(ANTHROPIC, body)
    assert (reply.text, reply.reasoning, reply.usage, reply.request_id) == ("Paris", "hm", Usage(3, 2), "msg_2")
    assert read_whole(ANTHROPIC, [body]).text == "Paris"
    assert read_stream(ANTHROPIC, [body])[1].text == "Paris"
    assert read_whole(ANTHROPIC, {"content": "plain", "stop_reason": "end_turn"}).text == "plain"
    assert read_whole(ANTHROPIC, {"content": None, "stop_reason": "end_turn"}).finish is Finish.EMPTY


@pytest.mark.parametrize("cut", range(len(RECORDED) - 2))
def test_a_stream_that_ends_early_is_no_reply(cut: int) -> None:
    reader = ANTHROPIC.reader(request_to(spec()))
    for value in RECORDED[:cut]:
        reader.event(json.dumps(value))
    with pytest.raises(AgentError) as caught:
        reader.reply()
    assert (caught.value.kind, caught.value.retryable) == ("truncated", True)
    assert reader.usage.input == (47 if cut else None)
    assert reader.started is (cut > 3)


@pytest.mark.parametrize("body", [None, [], {}, "text", 3, [{}, {}], {"choices": [{"message": {"content": "x"}}]}])
def test_another_formats_answer_is_no_message(body: Any) -> None:
    with pytest.raises(AgentError, match="Check the member's kind and base URL") as caught:
        read_whole(ANTHROPIC, body)
    assert (caught.value.kind, caught.value.retryable) == ("protocol", True)
    with pytest.raises(AgentError) as caught:
        read_stream(ANTHROPIC, [{"choices": [{"delta": {"content": "x"}}]}])
    assert caught.value.kind == "protocol"


def test_data_that_is_no_json_is_a_protocol_error() -> None:
    with pytest.raises(AgentError) as caught:
        ANTHROPIC.reader(request_to(spec())).event('{"type": "content_blo')
    assert (caught.value.kind, caught.value.retryable) == ("protocol", True)


# --- Errors ----------------------------------------------------------------------------------------------------


def error_body(kind: str, message: str = "Words.", **details: Any) -> dict[str, Any]:
    inner = {"type": kind, "message": message, **({"details": details} if details else {})}
    return {"type": "error", "error": inner, "request_id": "req_7"}


IN_BAND = [
    ("overloaded_error", "transient", True),
    ("api_error", "transient", True),
    ("timeout_error", "transient", True),
    ("brand_new_error", "transient", True),
    ("rate_limit_error", "rate_limit", True),
    ("billing_error", "billing", False),
    ("authentication_error", "auth", False),
    ("permission_error", "auth", False),
    ("invalid_request_error", "bad_request", False),
    ("not_found_error", "bad_request", False),
    ("request_too_large", "context_length", False),
]


@pytest.mark.parametrize(("kind", "ours", "retryable"), IN_BAND)
def test_an_error_inside_the_answer(kind: str, ours: str, retryable: bool) -> None:
    reader = ANTHROPIC.reader(request_to(spec()))
    reader.event(json.dumps(start(input_tokens=5)))
    reader.event(json.dumps(delta("text_delta", "The ans")))
    with pytest.raises(AgentError) as caught:
        reader.event(json.dumps(error_body(kind)), "error")
    assert (caught.value.kind, caught.value.retryable) == (ours, retryable)
    assert "Words." in str(caught.value)
    assert "(request id req_7)" in str(caught.value)
    assert (reader.usage.input, reader.started) == (5, True)
    with pytest.raises(AgentError) as caught:
        read_whole(ANTHROPIC, error_body(kind))
    assert caught.value.kind == ours


@pytest.mark.parametrize("error", ["boom", {"error": {"message": "boom", "code": "503"}}, {"error": "boom"}])
def test_an_error_of_another_shape_inside_the_answer(error: Any) -> None:
    with pytest.raises(AgentError, match="boom") as caught:
        ANTHROPIC.reader(request_to(spec())).event(json.dumps(error if isinstance(error, dict) else {"error": error}))
    assert (caught.value.kind, caught.value.retryable) == ("transient", True)


TOO_LONG = "prompt is too long: 208656 tokens > 200000 maximum"
TOGETHER = "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length"
LOW_CREDIT = "Your credit balance is too low to access the API."


@pytest.mark.parametrize(
    ("status", "body", "kind", "retryable"),
    [
        (400, error_body("invalid_request_error"), "bad_request", False),
        (400, error_body("invalid_request_error", TOO_LONG), "context_length", False),
        (400, error_body("invalid_request_error", TOGETHER), "context_length", False),
        (400, error_body("invalid_request_error", LOW_CREDIT), "billing", False),
        (401, error_body("authentication_error"), "auth", False),
        (402, error_body("billing_error"), "billing", False),
        (403, error_body("permission_error"), "auth", False),
        (404, error_body("not_found_error", "model: claude-nope"), "bad_request", False),
        (409, error_body("conflict_error"), "transient", True),
        (413, error_body("request_too_large"), "context_length", False),
        (413, None, "context_length", False),
        (429, error_body("rate_limit_error"), "rate_limit", True),
        (429, error_body("rate_limit_error", error_code="ramp_limit_exceeded"), "rate_limit", True),
        (429, error_body("rate_limit_error", error_code="enforced_spend_limit_reached"), "billing", False),
        (429, error_body("rate_limit_error", error_code="contract_spend_limit_reached"), "billing", False),
        (500, error_body("api_error"), "transient", True),
        (504, error_body("timeout_error"), "transient", True),
        (529, error_body("overloaded_error"), "transient", True),
        (502, None, "transient", True),
    ],
)
def test_errors_by_status(status: int, body: dict[str, Any] | None, kind: str, retryable: bool) -> None:
    raw = b"<html><title>Bad Gateway</title></html>" if body is None else json.dumps(body).encode()
    error = ANTHROPIC.fault(status, {"Retry-After": "7"}, raw)
    assert (error.kind, error.retryable) == (kind, retryable)
    assert error.retry_after == (7.0 if retryable else None)
    assert str(error).startswith(f"HTTP {status} from Anthropic: ")
    assert ("(request id req_7)" in str(error)) is (body is not None)


def test_the_request_id_of_the_headers_comes_first_and_no_key_is_shown() -> None:
    body = json.dumps(error_body("authentication_error", f"bad key {KEY}")).encode()
    error = ANTHROPIC.fault(401, {"Request-Id": "req_h"}, body)
    assert "(request id req_h)" in str(error)
    assert KEY not in str(error)


@pytest.mark.parametrize("raw", [b"", b"\xff\xfe", b"null", b"[]", b'"text"', b'{"error": null}', b"[" * 50_000])
def test_any_error_body_will_do(raw: bytes) -> None:
    assert ANTHROPIC.fault(503, {}, raw).kind == "transient"
    assert ANTHROPIC.fault(400, {}, raw).kind == "bad_request"


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("`temperature` is deprecated for this model.", "temperature"),
        ("temperature: Extra inputs are not permitted", "temperature"),
        ("`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.", "temperature"),
        ("`top_p` can only be 1 for this model", "top_p"),
        ("This model does not support the effort parameter.", "output_config"),
        ("output_config.effort 'max' is not supported when thinking is disabled", "output_config"),
        ("adaptive thinking is not supported on this model", "thinking"),
        ("max_tokens is not supported for this model", None),
        ("messages: roles must alternate", None),
    ],
)
def test_a_field_that_the_model_refuses_is_named(message: str, field: str | None) -> None:
    error = ANTHROPIC.fault(400, {}, json.dumps(error_body("invalid_request_error", message)).encode())
    assert (error.kind, error.drop) == ("bad_request", field)


# --- Model lists -----------------------------------------------------------------------------------------------


def test_model_names() -> None:
    body = {"data": [{"id": "claude-a", "type": "model"}, {"id": "claude-b"}, {"id": ""}, {"name": "x"}, 3]}
    assert ANTHROPIC.model_names(body) == ("claude-a", "claude-b")
    others: tuple[Any, ...] = (None, [], {}, {"data": None}, {"data": {"id": "x"}}, "text")
    for odd in others:
        assert ANTHROPIC.model_names(odd) == ()


# --- Others ----------------------------------------------------------------------------------------------------


def test_the_official_client_sends_the_same_and_reads_the_same() -> None:
    from anthropic import Anthropic

    options = {"effort": "low", "stop": ["END"], "thinking": {"type": "adaptive", "display": "summarized"}}
    turns = (("system", "Be brief."), ("user", "one"), ("assistant", "two"), ("user", "three ✓"))
    with capturing(RECORDED, named=True) as server:
        ours = exchange(
            ANTHROPIC, request_to(spec(server.url, **options), *turns, sampling=Sampling(max_tokens=64)), KEY
        )
        with (
            Anthropic(base_url=server.url, api_key=KEY, max_retries=0) as client,
            client.messages.stream(
                model="claude-test",
                max_tokens=64,
                system="Be brief.",
                messages=[
                    {"role": "user", "content": "one"},
                    {"role": "assistant", "content": "two"},
                    {"role": "user", "content": "three ✓"},
                ],
                output_config={"effort": "low"},
                stop_sequences=["END"],
                thinking={"type": "adaptive", "display": "summarized"},
            ) as stream,
        ):
            theirs = stream.get_final_message()
    mine, client_s = server.seen
    assert mine.body == client_s.body
    assert mine.path == client_s.path == "/v1/messages"
    assert mine.headers["anthropic-version"] == client_s.headers["anthropic-version"]
    assert mine.headers["x-api-key"] == KEY
    assert ours.text == "".join(block.text for block in theirs.content if block.type == "text")
    assert ours.reasoning == "".join(block.thinking for block in theirs.content if block.type == "thinking")
    assert ours.usage.output == theirs.usage.output_tokens


def test_against_llmock(llmock: Any) -> None:
    member = spec(llmock.base_url("anthropic"))
    llmock.reply("Oslo is the capital ✓", provider="anthropic")
    reply = exchange(ANTHROPIC, request_to(member, ("system", "s"), ("user", "q")))
    assert (reply.text, reply.finish) == ("Oslo is the capital ✓", Finish.STOP)
    assert reply.usage.output is not None
    for fault, kind in (("truncate", "truncated"), ("corrupt", "protocol")):
        getattr(llmock, fault)(provider="anthropic")
        with pytest.raises(AgentError) as caught:
            exchange(ANTHROPIC, request_to(member))
        assert (caught.value.kind, caught.value.retryable) == (kind, True)
    llmock.rate_limit(retry_after=3.0, provider="anthropic")
    with pytest.raises(AgentError) as caught:
        exchange(ANTHROPIC, request_to(member))
    assert (caught.value.kind, caught.value.retry_after) == ("rate_limit", 3.0)
    llmock.context_overflow(provider="anthropic")
    with pytest.raises(AgentError) as caught:
        exchange(ANTHROPIC, request_to(member))
    assert caught.value.kind == "context_length"


def test_a_keep_alive_in_plain_words_is_skipped_and_an_error_in_plain_words_is_one() -> None:
    reader = ANTHROPIC.reader(request_to(spec()))
    for value in RECORDED:
        assert not reader.event("still here", "ping")
        reader.event(json.dumps(value))
    assert reader.reply().finish is Finish.STOP
    assert not reader.event('{"type": "mess', "message_stop")  # torn after the end
    for event, kind in (("error", "transient"), ("", "protocol"), ("message_delta", "protocol")):
        with pytest.raises(AgentError) as caught:
            ANTHROPIC.reader(request_to(spec())).event("upstream died", event)
        assert (caught.value.kind, caught.value.retryable) == (kind, True)
        assert "upstream died" in str(caught.value)
