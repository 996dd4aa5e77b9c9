"""The Gemini format: what is sent, how answers and errors are read, and that others agree."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.capture import capturing, exchange, read_stream, read_whole, request_to
from trinity_core.agents.remote.gemini import GEMINI
from trinity_core.agents.remote.turns import OPENING
from trinity_core.errors import AgentError, PoolError
from trinity_core.types import AgentSpec, Finish, Piece, Reply, Sampling, Usage

KEY = "AIza-test-0123456789"


def spec(base_url: str | None = None, model: str = "gemini-3-pro", **options: Any) -> AgentSpec:
    return AgentSpec("gem", "gemini", model, options=options, base_url=base_url)


def body_of(
    member: AgentSpec, *messages: tuple[str, str], drop: tuple[str, ...] = (), **sampling: Any
) -> dict[str, Any]:
    GEMINI.check(member)
    asked = request_to(member, *messages, sampling=Sampling(**sampling))
    return dict(GEMINI.call(asked, KEY, drop=frozenset(drop)).body or {})


def chunk(*parts: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return {"candidates": [{**candidate, **({"finishReason": finish} if finish else {})}], **more}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"text": value, **more}


RECORDED: list[dict[str, Any]] = [
    chunk(text("Oslo or ", thought=True), responseId="r-1", usageMetadata={"promptTokenCount": 20}),
    chunk(text("Bergen?", thought=True), text("Oslo is ", thoughtSignature="c2ln")),
    {"usageMetadata": {"promptTokenCount": 20, "cachedContentTokenCount": 8, "thoughtsTokenCount": 9}},
    chunk(text("the capital. "), text("✓\u2028")),
    {
        "candidates": [{"finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 6, "totalTokenCount": 35},
    },
]

# --- Requests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "model", "url"),
    [
        (None, "gemini-3-pro", "https://generativelanguage.googleapis.com/v1beta/models/gemini-3-pro"),
        (None, "models/gemini-3-pro", "https://generativelanguage.googleapis.com/v1beta/models/gemini-3-pro"),
        ("http://127.0.0.1:4040/gemini/v1beta/", "g", "http://127.0.0.1:4040/gemini/v1beta/models/g"),
        ("http://127.0.0.1:4040/v1", "tunedModels/g-1", "http://127.0.0.1:4040/v1/tunedModels/g-1"),
        ("http://127.0.0.1:4040/v1", "team/g?a#b", "http://127.0.0.1:4040/v1/models/team/g%3Fa%23b"),
    ],
)
def test_the_address_asks_for_events_and_holds_no_key(base: str | None, model: str, url: str) -> None:
    call = GEMINI.call(request_to(spec(base, model)), KEY)
    assert call.url == f"{url}:streamGenerateContent?alt=sse"
    assert call.headers["x-goog-api-key"] == KEY
    assert KEY not in call.url + json.dumps(call.body) + repr(call)
    assert "x-goog-api-key" not in GEMINI.call(request_to(spec(base, model)), None).headers
    listed = GEMINI.models_call("http://127.0.0.1:4040/v1beta/", KEY)
    assert (listed.url, listed.body) == ("http://127.0.0.1:4040/v1beta/models?pageSize=1000", None)
    assert listed.headers == {"x-goog-api-key": KEY}


def test_only_two_roles_are_sent_and_system_text_stands_apart() -> None:
    body = body_of(
        spec(), ("system", "Rules."), ("user", "one"), ("assistant", "two"), ("system", "More."), ("user", "three")
    )
    assert body["systemInstruction"] == {"parts": [{"text": "Rules.\n\nMore."}]}
    assert [content["role"] for content in body["contents"]] == ["user", "model", "user"]
    assert body["contents"][2]["parts"] == [{"text": "three"}]
    assert "systemInstruction" not in body_of(spec(), ("user", "one"))


@pytest.mark.parametrize(
    ("messages", "turns"),
    [
        ([("user", "a"), ("system", "s"), ("user", "b")], [("user", "a\n\nb")]),
        ([("user", "a"), ("assistant", "b"), ("assistant", "c")], [("user", "a"), ("model", "b\n\nc")]),
        ([("assistant", "b"), ("user", "a")], [("user", OPENING), ("model", "b"), ("user", "a")]),
        ([("system", "s")], [("user", OPENING)]),
    ],
)
def test_turns_alternate_and_begin_with_the_user(
    messages: list[tuple[str, str]], turns: list[tuple[str, str]]
) -> None:
    sent = body_of(spec(), *messages)["contents"]
    assert [(content["role"], content["parts"]) for content in sent] == [(r, [{"text": t}]) for r, t in turns]


def test_settings_are_sent_where_they_are_set() -> None:
    assert body_of(spec())["generationConfig"] == {"maxOutputTokens": 4096}
    member = spec(
        max_tokens=50, temperature=0.5, top_p=0.5, seed=1, stop=["a", "b"], thoughts=True, thinking_level="low"
    )
    assert body_of(member)["generationConfig"] == {
        "maxOutputTokens": 50,
        "temperature": 0.5,
        "topP": 0.5,
        "seed": 1,
        "stopSequences": ["a", "b"],
        "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "LOW"},
    }
    asked = body_of(member, max_tokens=99, temperature=0.0, top_p=1.0, seed=0, effort="high")["generationConfig"]
    assert (asked["maxOutputTokens"], asked["temperature"], asked["topP"], asked["seed"]) == (50, 0.0, 1.0, 0)
    assert asked["thinkingConfig"] == {"includeThoughts": True, "thinkingLevel": "HIGH"}
    assert body_of(member, max_tokens=9)["generationConfig"]["maxOutputTokens"] == 9
    assert body_of(spec(thinking_budget=-1))["generationConfig"]["thinkingConfig"] == {"thinkingBudget": -1}


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("gemini-3-pro", "none", {"thinkingLevel": "MINIMAL"}),
        ("models/gemini-3.5-flash", "max", {"thinkingLevel": "XHIGH"}),
        ("gemini-flash-latest", "medium", {"thinkingLevel": "MEDIUM"}),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
        ("gemini-2.5-pro", "none", {"thinkingBudget": 128}),
        ("gemini-2.5-flash", "low", {"thinkingBudget": 1024}),
        ("gemini-2.5-pro", "max", {"thinkingBudget": 32_768}),
        ("gemini-2.0-flash", "high", None),
        ("gemini-1.5-pro", "high", None),
    ],
)
def test_each_generation_gets_its_own_field_for_effort(
    model: str, effort: str, thinking: dict[str, Any] | None
) -> None:
    assert body_of(spec(model=model), effort=effort)["generationConfig"].get("thinkingConfig") == thinking


def test_an_effort_that_is_no_word_makes_no_call() -> None:
    with pytest.raises(AgentError, match="'loww' is unknown") as caught:
        GEMINI.call(request_to(spec(), sampling=Sampling(effort="loww")), KEY)
    assert (caught.value.kind, caught.value.calls) == ("bad_request", 0)


@pytest.mark.parametrize(
    ("drop", "left"),
    [
        ("topP", {"temperature", "seed", "stopSequences", "thinkingConfig", "topK"}),
        ("top_p", {"temperature", "seed", "stopSequences", "thinkingConfig", "topK"}),
        ("stop", {"temperature", "topP", "seed", "thinkingConfig", "topK"}),
        ("thinkingLevel", {"temperature", "topP", "seed", "stopSequences", "topK"}),
        ("thinking", {"temperature", "topP", "seed", "stopSequences", "topK"}),
        ("topK", {"temperature", "topP", "seed", "stopSequences", "thinkingConfig"}),
        ("maxOutputTokens", {"temperature", "topP", "seed", "stopSequences", "thinkingConfig", "topK"}),
    ],
)
def test_a_refused_field_is_left_out(drop: str, left: set[str]) -> None:
    extra = {"generationConfig": {"topK": 3}, "safetySettings": []}
    member = spec(temperature=1, top_p=0.5, seed=1, stop="x", effort="low", extra_body=extra)
    body = body_of(member, drop=(drop,))
    assert set(body["generationConfig"]) == left | {"maxOutputTokens"}
    assert set(body) == {"contents", "generationConfig", "safetySettings"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"thinking_levle": "low"}, "unknown option 'thinking_levle'. Did you mean 'thinking_level'?"),
        ({"thinking_level": "LOW"}, "one of minimal, low, medium, high, xhigh (Did you mean 'low'?)"),
        ({"thinking_level": "low", "thinking_budget": 5}, "thinking_level and thinking_budget exclude each other"),
        ({"effort": "low", "thinking_budget": 5}, "effort and thinking_budget exclude each other"),
        ({"thinking_budget": -2}, "a whole number of at least -1, not -2"),
        ({"temperature": 2.5}, "a number from 0 to 2, not 2.5"),
        ({"stop": list("abcdef")}, "a text or a list of at most 5 texts"),
        ({"thoughts": 1}, "true or false, not 1"),
        ({"seed": "one"}, "seed must be a whole number"),
        ({"extra_body": {"contents": []}}, "extra_body may not set 'contents'"),
        ({"extra_body": {"generation_config": {}}}, "Write generationConfig."),
        ({"extra_body": {"generationConfig": {"candidateCount": 2}}}, "extra_body.generationConfig may not set"),
        ({"extra_body": {"generationConfig": {"max_output_tokens": 2}}}, "Use the option max_tokens."),
        ({"extra_body": {"generationConfig": 3}}, "extra_body.generationConfig must be a table, not 3"),
    ],
)
def test_a_wrong_option_is_named_with_its_fix(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PoolError) as caught:
        GEMINI.check(spec(**options))
    assert str(caught.value).startswith("Agent gem: ")
    assert words in str(caught.value)


def test_a_model_is_needed_and_must_think_when_told_how_much() -> None:
    with pytest.raises(PoolError, match="needs a model"):
        GEMINI.check(AgentSpec("gem", "gemini"))
    with pytest.raises(PoolError, match=r"model gemini-2\.0-flash does not think\. Remove effort"):
        GEMINI.check(spec(model="gemini-2.0-flash", effort="low"))


# --- Answers ---------------------------------------------------------------------------------------------------


def test_a_recorded_stream() -> None:
    pieces, reply = read_stream(GEMINI, RECORDED)
    assert reply.text == "Oslo is the capital. ✓\u2028" == "".join(p.text for p in pieces if p.channel == "text")
    assert reply.reasoning == "Oslo or Bergen?" == "".join(p.text for p in pieces if p.channel == "reasoning")
    assert (reply.finish, reply.request_id, reply.warnings, reply.cost) == (Finish.STOP, "r-1", (), None)
    assert reply.usage == Usage(input=20, output=6 + 9, cached=8, reasoning=9)
    assert read_whole(GEMINI, RECORDED) == reply


@pytest.mark.parametrize(
    ("parts", "said", "thought"),
    [
        ([text("weighing", thought=True), text("Answer: 8", thoughtSignature="s")], "Answer: 8", "weighing"),
        ([text("a", thought=False), text("b", thought=None)], "ab", ""),
        ([{"thoughtSignature": "s"}, text("", thoughtSignature="s"), text("x")], "x", ""),
        ([{"text": None}, "odd", None, {"functionCall": {"name": "f"}}, {"executableCode": {"code": "1"}}], "", ""),
        ([text("The "), text("capital")], "The capital", ""),
    ],
)
def test_the_thought_flag_alone_marks_reasoning(parts: list[Any], said: str, thought: str) -> None:
    reply = read_stream(GEMINI, [chunk(*parts, finish="STOP")])[1]
    assert (reply.text, reply.reasoning) == (said, thought)
    assert reply.finish is (Finish.STOP if said else Finish.EMPTY)


def test_chunks_without_parts_candidates_or_content() -> None:
    odd: list[Any] = [
        {},
        {"candidates": None},
        {"candidates": []},
        {"candidates": [None]},
        chunk(text("The "), text("capital")),
        chunk(),
        {"candidates": [{"content": None}]},
        {"candidates": [{"content": {"role": "model"}}]},
        {"candidates": [{"index": 1, "content": {"parts": [text("OTHER")]}, "finishReason": "SAFETY"}]},
        chunk(text(" is Oslo")),
        chunk(finish="STOP"),
        {"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 1}},
    ]
    reply = read_stream(GEMINI, odd)[1]
    assert (reply.text, reply.finish, reply.usage) == ("The capital is Oslo", Finish.STOP, Usage(3, 1))


@pytest.mark.parametrize(
    ("usage", "total"),
    [
        ({"promptTokenCount": 5, "candidatesTokenCount": 2, "thoughtsTokenCount": 3}, Usage(5, 5, None, 3)),
        ({"promptTokenCount": 5, "thoughtsTokenCount": 3, "totalTokenCount": 8}, Usage(5, 3, None, 3)),
        ({"promptTokenCount": 5, "totalTokenCount": 5}, Usage(5, 0)),
        ({"promptTokenCount": 5}, Usage(5)),
        ({"promptTokenCount": 5, "toolUsePromptTokenCount": 2, "totalTokenCount": 10}, Usage(7, 3)),
        ({"promptTokenCount": "5", "candidatesTokenCount": 2.0}, Usage(5, 2)),
        ({"promptTokenCount": "many", "candidatesTokenCount": -2, "thoughtsTokenCount": 10**30}, Usage()),
        (None, Usage()),
    ],
)
def test_usage(usage: Any, total: Usage) -> None:
    assert read_whole(GEMINI, chunk(text("x"), finish="STOP", usageMetadata=usage)).usage == total


FINISHES = [
    ("STOP", "x", Finish.STOP),
    ("STOP", " ", Finish.EMPTY),
    ("stop", "x", Finish.STOP),
    ("MAX_TOKENS", "", Finish.LENGTH),
    ("CONTINUATION", "x", Finish.LENGTH),
    *(
        (name, "x", Finish.BLOCKED)
        for name in ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "SPII", "MODEL_ARMOR")
    ),
    *((name, "", Finish.BLOCKED) for name in ("PROHIBITED_CONTENT", "IMAGE_SAFETY", "ESCALATION", "SAFETY")),
    ("UNEXPECTED_TOOL_CALL", "", Finish.EMPTY),
    ("TOO_MANY_TOOL_CALLS", "x", Finish.INCOMPLETE),
    ("FINISH_REASON_UNSPECIFIED", "x", Finish.INCOMPLETE),
    ("INVENTED_TOMORROW", "x", Finish.INCOMPLETE),
]


@pytest.mark.parametrize(("reason", "said", "finish"), FINISHES)
def test_finish_reasons(reason: str, said: str, finish: Finish) -> None:
    events = [chunk(text(said)), {"candidates": [{"finishReason": reason}]}]
    streamed: Reply = read_stream(GEMINI, events)[1]
    for reply in (streamed, read_whole(GEMINI, chunk(text(said), finish=reason))):
        assert (reply.text, reply.finish) == (said, finish)
        told = reason.upper() in " ".join(reply.warnings)
        assert told is (reason.upper() not in ("STOP", "MAX_TOKENS", "CONTINUATION"))


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "OTHER", "NO_IMAGE"])
def test_a_finish_reason_that_is_a_failure(reason: str) -> None:
    candidate = {"content": {"parts": [text("half")]}, "finishReason": reason, "finishMessage": f"Because {KEY}"}
    with pytest.raises(AgentError, match=f"{reason}.*Because.*Try again") as caught:
        read_whole(GEMINI, {"candidates": [candidate]})
    assert (caught.value.kind, caught.value.retryable) == ("transient", True)
    assert KEY not in str(caught.value)


def test_a_missing_signature_is_not_worth_another_try() -> None:
    with pytest.raises(AgentError) as caught:
        read_whole(GEMINI, chunk(finish="MISSING_THOUGHT_SIGNATURE"))
    assert (caught.value.kind, caught.value.retryable) == ("bad_request", False)


def test_a_later_unspecified_reason_does_not_undo_the_first() -> None:
    events = [chunk(text("x"), finish="FINISH_REASON_UNSPECIFIED"), chunk(text("y"), finish="STOP")]
    assert read_stream(GEMINI, events)[1].finish is Finish.STOP
    assert read_stream(GEMINI, [*events, chunk(finish="FINISH_REASON_UNSPECIFIED")])[1].finish is Finish.STOP


@pytest.mark.parametrize("more", [{}, {"candidates": []}])
def test_a_blocked_prompt(more: dict[str, Any]) -> None:
    body = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}, **more}
    for reply in (read_whole(GEMINI, body), read_stream(GEMINI, [body])[1]):
        assert (reply.text, reply.finish, reply.usage.input) == ("", Finish.BLOCKED, 4)
        assert reply.warnings == ("The provider blocked the prompt (SAFETY).",)
    fine = {"promptFeedback": {"safetyRatings": []}, **chunk(text("x"), finish="STOP")}
    assert read_whole(GEMINI, fine).finish is Finish.STOP


def test_an_array_instead_of_events() -> None:
    body = json.loads(
        '[{"candidates":[{"content":{"parts":[{"text":"hi"}]}}]}\n,'
        '{"candidates":[{"content":{"parts":[{"text":"!"}]},"finishReason":"STOP"}]}]'
    )
    reader = GEMINI.reader(request_to(spec()))
    assert reader.whole(body) == [Piece("hi"), Piece("!")]
    assert (reader.reply().text, reader.reply().finish) == ("hi!", Finish.STOP)
    with pytest.raises(AgentError) as caught:
        read_whole(GEMINI, body[:1])
    assert caught.value.kind == "truncated"


@pytest.mark.parametrize("cut", range(len(RECORDED) - 1))
def test_a_stream_that_ends_early_is_no_reply(cut: int) -> None:
    reader = GEMINI.reader(request_to(spec()))
    for value in RECORDED[:cut]:
        reader.event(json.dumps(value))
    with pytest.raises(AgentError) as caught:
        reader.reply()
    assert (caught.value.kind, caught.value.retryable) == ("truncated", True)
    assert reader.usage.input == (20 if cut else None)
    assert reader.started is (cut > 0)


@pytest.mark.parametrize(
    "body", [None, {}, "text", [3], {"choices": []}, {"usageMetadata": {"promptTokenCount": 12}}]
)
def test_an_answer_without_a_candidate(body: Any) -> None:
    with pytest.raises(AgentError, match="no candidate") as caught:
        read_whole(GEMINI, body)
    assert (caught.value.kind, caught.value.retryable) == ("protocol", True)


def test_a_web_page_is_told_apart_and_the_advice_fits() -> None:
    reader = GEMINI.reader(request_to(spec()))
    with pytest.raises(AgentError, match=r"web page.*/v1beta") as caught:
        reader.event("<html><title>Sign in</title></html>")
    assert (caught.value.kind, caught.value.retryable) == ("protocol", False)
    assert list(reader.event("")) == list(reader.event("[DONE]")) == []


# --- Errors ----------------------------------------------------------------------------------------------------


def error_body(code: int | None, status: str, message: str = "Words.", *details: dict[str, Any]) -> dict[str, Any]:
    inner = {"message": message, "status": status, "details": list(details)}
    return {"error": inner if code is None else {"code": code, **inner}}


def wait(delay: Any) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


def quota(name: str) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": name}]}


BAD_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
TOO_LONG = "The input token count (1091639) exceeds the maximum number of tokens allowed (1048576)."
STATUSES = [
    (400, "INVALID_ARGUMENT", "Words.", (), "bad_request", False),
    (400, "INVALID_ARGUMENT", "Words.", (BAD_KEY,), "auth", False),
    (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", (), "auth", False),
    (400, "INVALID_ARGUMENT", "API key expired. Please renew the API key.", (), "auth", False),
    (400, "INVALID_ARGUMENT", TOO_LONG, (), "context_length", False),
    (401, "UNAUTHENTICATED", "Words.", (), "auth", False),
    (402, "RESOURCE_EXHAUSTED", "Credits are gone.", (), "billing", False),
    (403, "PERMISSION_DENIED", "Words.", (), "auth", False),
    (404, "NOT_FOUND", "models/nope is not found for API version v1beta", (), "bad_request", False),
    (413, "RESOURCE_EXHAUSTED", "Request payload size exceeds the limit.", (), "context_length", False),
    (429, "RESOURCE_EXHAUSTED", "Words.", (), "rate_limit", True),
    (429, "RESOURCE_EXHAUSTED", "Words.", (quota("GenerateRequestsPerMinutePerProject"),), "rate_limit", True),
    (429, "RESOURCE_EXHAUSTED", "Words.", (quota("GenerateRequestsPerDayPerProject"),), "rate_limit", False),
    (500, "INTERNAL", "Words.", (), "transient", True),
    (503, "UNAVAILABLE", "The model is overloaded.", (), "transient", True),
    (504, "DEADLINE_EXCEEDED", "Words.", (), "transient", True),
]


@pytest.mark.parametrize(("code", "status", "message", "details", "kind", "retryable"), STATUSES)
def test_errors_by_status(
    code: int, status: str, message: str, details: tuple[Any, ...], kind: str, retryable: bool
) -> None:
    body = error_body(code, status, message, *details)
    for raw in (json.dumps(body), json.dumps([body])):
        error = GEMINI.fault(code, {}, raw.encode())
        assert (error.kind, error.retryable) == (kind, retryable)
        assert str(error).startswith(f"HTTP {code} from Gemini: {message[:5]}")
    reader = GEMINI.reader(request_to(spec()))
    reader.event(json.dumps(chunk(text("The ans"), usageMetadata={"promptTokenCount": 3})))
    with pytest.raises(AgentError) as caught:
        reader.event(json.dumps(body))
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)
    assert (reader.started, reader.usage.input) == (True, 3)
    with pytest.raises(AgentError) as caught:
        read_whole(GEMINI, [chunk(text("x")), body])
    assert caught.value.kind == kind


def test_the_next_step_for_a_model_that_is_not_there() -> None:
    error = GEMINI.fault(404, {}, json.dumps(error_body(404, "NOT_FOUND", "models/nope is not found")).encode())
    assert "Check the member's model and its base URL (it ends in the API version, as in /v1beta)." in str(error)
    assert "tomorrow" in str(
        GEMINI.fault(
            429, {}, json.dumps(error_body(429, "RESOURCE_EXHAUSTED", "x", quota("RequestsPerDay"))).encode()
        )
    )


@pytest.mark.parametrize(
    ("delay", "header", "seconds"),
    [
        ("17s", None, 17.0),
        ("0.5s", None, 0.5),
        ({"seconds": 17}, None, 17.0),
        ("17s", "40", 40.0),
        ("17s", "3", 17.0),
        (None, "3", 3.0),
        ("soon", None, None),
        (17, None, None),
    ],
)
def test_how_long_to_wait(delay: Any, header: str | None, seconds: float | None) -> None:
    body = error_body(429, "RESOURCE_EXHAUSTED", "Slow down.", wait(delay))
    headers = {} if header is None else {"retry-after": header}
    assert GEMINI.fault(429, headers, json.dumps(body).encode()).retry_after == seconds
    if header is None:
        with pytest.raises(AgentError) as caught:
            read_whole(GEMINI, body)
        assert caught.value.retry_after == seconds


@pytest.mark.parametrize("error", ["boom", {"message": "boom"}, {"message": "boom", "code": "503"}, ["boom"]])
def test_an_error_of_another_shape_inside_the_answer(error: Any) -> None:
    with pytest.raises(AgentError, match="boom") as caught:
        GEMINI.reader(request_to(spec())).event(json.dumps({"error": error}))
    assert (caught.value.kind, caught.value.retryable) == ("transient", True)


@pytest.mark.parametrize("raw", [b"", b"\xff\xfe", b"null", b"[]", b"[3]", b'"text"', b'{"error": null}', b"<html>"])
def test_any_error_body_will_do(raw: bytes) -> None:
    assert GEMINI.fault(503, {}, raw).kind == "transient"
    assert GEMINI.fault(400, {}, raw).kind == "bad_request"


def test_a_key_in_an_error_is_not_shown() -> None:
    body = error_body(400, "INVALID_ARGUMENT", f"API key not valid: {KEY}", BAD_KEY)
    assert KEY not in str(GEMINI.fault(400, {}, json.dumps(body).encode()))


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("Thinking level is not supported for this model.", "thinkingConfig"),
        ("Thinking level MINIMAL is not supported for this model.", "thinkingConfig"),
        ("Thinking budget is not supported for this model.", "thinkingConfig"),
        ("Budget 0 is invalid. This model only works in thinking mode.", "thinkingConfig"),
        ("Unable to submit request because Thinking can't be disabled for this model.", "thinkingConfig"),
        ("Unknown name \"topK\" at 'generation_config': Cannot find field.", "topK"),
        ("Unknown name \"newField\" at 'generation_config': Cannot find field.", "newField"),
        ("Unknown name \"maxOutputTokens\" at 'generation_config': Cannot find field.", None),
        ("Please ensure that multiturn requests alternate between user and model.", None),
    ],
)
def test_a_field_that_the_model_refuses_is_named(message: str, field: str | None) -> None:
    error = GEMINI.fault(400, {}, json.dumps(error_body(400, "INVALID_ARGUMENT", message)).encode())
    assert (error.kind, error.drop) == ("bad_request", field)


# --- Model lists -----------------------------------------------------------------------------------------------


def test_only_models_that_write_text_are_listed() -> None:
    body = {
        "models": [
            {"name": "models/gemini-3-pro", "supportedGenerationMethods": ["generateContent", "countTokens"]},
            {"name": "models/text-embedding", "supportedGenerationMethods": ["embedContent"]},
            {"name": "tunedModels/mine", "supportedGenerationMethods": ["generateContent"]},
            {"name": "models/from-a-gateway"},
            {"name": 3},
            None,
        ]
    }
    assert GEMINI.model_names(body) == ("gemini-3-pro", "tunedModels/mine", "from-a-gateway")
    others: tuple[Any, ...] = (None, [], {}, {"models": None}, {"models": {"name": "x"}}, "text")
    for odd in others:
        assert GEMINI.model_names(odd) == ()


# --- Others ----------------------------------------------------------------------------------------------------


def camel(value: Any) -> Any:
    """`value` with names in one spelling: the official client writes some of its fields as include_thoughts."""
    if isinstance(value, list):
        return [camel(part) for part in value]
    if not isinstance(value, dict):
        return value
    words = {name: name.split("_") for name in value}
    return {w[0] + "".join(x.title() for x in w[1:]): camel(value[name]) for name, w in words.items()}


def test_the_official_client_sends_the_same_and_reads_the_same() -> None:
    from google import genai
    from google.genai import types

    options: dict[str, Any] = {
        "temperature": 0.0,
        "top_p": 0.5,
        "seed": 3,
        "stop": ["END"],
        "thoughts": True,
        "effort": "low",
    }
    turns = (("system", "Be brief."), ("user", "one"), ("assistant", "two"), ("user", "three ✓"))
    with capturing(RECORDED) as server:
        member = spec(f"{server.url}/v1beta", **options)
        ours = exchange(GEMINI, request_to(member, *turns, sampling=Sampling(max_tokens=64)), KEY)
        http = types.HttpOptions(base_url=server.url, api_version="v1beta")
        with genai.Client(api_key=KEY, http_options=http) as client:
            config = types.GenerateContentConfig(
                system_instruction=types.Content(parts=[types.Part(text="Be brief.")]),
                max_output_tokens=64,
                temperature=0.0,
                top_p=0.5,
                seed=3,
                stop_sequences=["END"],
                thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_level=types.ThinkingLevel.LOW),
            )
            contents = [
                types.Content(role="user", parts=[types.Part(text="one")]),
                types.Content(role="model", parts=[types.Part(text="two")]),
                types.Content(role="user", parts=[types.Part(text="three ✓")]),
            ]
            theirs = list(
                client.models.generate_content_stream(model="gemini-3-pro", contents=contents, config=config)
            )
    mine, client_s = server.seen
    assert mine.body == camel(client_s.body)
    assert mine.path == client_s.path == "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse"
    assert mine.headers["x-goog-api-key"] == client_s.headers["x-goog-api-key"] == KEY
    parts = [
        part
        for one in theirs
        for candidate in one.candidates or []
        for part in (candidate.content.parts if candidate.content else None) or []
    ]
    assert ours.text == "".join(part.text or "" for part in parts if not part.thought)
    assert ours.reasoning == "".join(part.text or "" for part in parts if part.thought)


def test_against_llmock(llmock: Any) -> None:
    member = spec(f"{llmock.base_url('gemini')}/v1beta")
    llmock.reply("Oslo is the capital ✓", provider="gemini")
    reply = exchange(GEMINI, request_to(member, ("system", "s"), ("user", "q")))
    assert (reply.text, reply.finish) == ("Oslo is the capital ✓", Finish.STOP)
    assert reply.usage.output is not None
    for fault, kind in (("truncate", "truncated"), ("corrupt", "protocol")):
        llmock.reply("one two three four", provider="gemini")
        getattr(llmock, fault)(provider="gemini")
        with pytest.raises(AgentError) as caught:
            exchange(GEMINI, request_to(member))
        assert (caught.value.kind, caught.value.retryable) == (kind, True)
    llmock.rate_limit(retry_after=3.0, provider="gemini")
    with pytest.raises(AgentError) as caught:
        exchange(GEMINI, request_to(member))
    assert (caught.value.kind, caught.value.retry_after) == ("rate_limit", 3.0)
    llmock.context_overflow(provider="gemini")
    with pytest.raises(AgentError) as caught:
        exchange(GEMINI, request_to(member))
    assert caught.value.kind == "context_length"


def test_a_prompt_that_is_blocked_late_keeps_what_was_written() -> None:
    late = [chunk(text("Well, ")), {"promptFeedback": {"blockReason": "SAFETY"}}]
    reply = read_stream(GEMINI, late)[1]
    assert (reply.text, reply.finish) == ("Well, ", Finish.BLOCKED)
    assert "SAFETY" in reply.warnings[0]
    assert read_stream(GEMINI, [*late, chunk(finish="STOP")])[1].finish is Finish.STOP


def test_only_one_of_several_candidates_is_read_also_where_none_is_numbered() -> None:
    both = [{"content": {"parts": [text(words)]}, "finishReason": "STOP"} for words in ("first", "second")]
    assert read_whole(GEMINI, {"candidates": both}).text == "first"
    assert read_whole(GEMINI, {"candidates": [{**both[1], "index": 1}, both[0]]}).text == "first"


def test_what_is_torn_after_the_end_costs_no_reply() -> None:
    reader = GEMINI.reader(request_to(spec()))
    for value in RECORDED:
        assert not reader.event("still here", "ping")
        reader.event(json.dumps(value))
    assert not reader.event('{"usageMeta')
    assert reader.reply().finish is Finish.STOP


def test_an_empty_array_is_no_answer_and_plain_words_may_be_an_error() -> None:
    with pytest.raises(AgentError) as caught:
        read_whole(GEMINI, [])
    assert caught.value.kind == "protocol"
    with pytest.raises(AgentError, match="upstream died") as caught:
        GEMINI.reader(request_to(spec())).event("upstream died", "error")
    assert (caught.value.kind, caught.value.retryable) == ("transient", True)
