"""What providers' failures mean: statuses, codes and bodies of every shape."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trinity_core.agents.remote.faults import duration, fault, in_band, odd_answer, parse_json, read, retry_after
from trinity_core.errors import AgentError
from trinity_core.wire import remember_secret

KINDS = {"rate_limit", "billing", "transient", "auth", "bad_request", "context_length"}


def made(status: int, body: Any, **headers: str) -> AgentError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return fault(status, {k.replace("_", "-"): v for k, v in headers.items()}, data, provider="the server")


def error(message: str = "no", **members: Any) -> dict[str, Any]:
    return {"error": {"message": message, **members}}


@pytest.mark.parametrize(
    ("status", "body", "kind", "retryable"),
    [
        (401, error(code="invalid_api_key"), "auth", False),
        (403, error(), "auth", False),
        (400, error("No connected db.", code="400", type="no_db_connection"), "auth", False),
        (400, [error("API key not valid.", details=[{"reason": "API_KEY_INVALID"}])], "auth", False),
        (402, error(), "billing", False),
        (402, error(code="in_flight_budget_exhausted"), "rate_limit", True),
        (402, error(status="RESOURCE_EXHAUSTED"), "billing", False),
        (429, error(type="insufficient_quota", code="insufficient_quota"), "billing", False),
        (429, error(code="credit_balance_exhausted"), "billing", False),
        (429, error(code="project_spend_limit_exceeded"), "billing", False),
        (429, error(code="organization_usage_limit_exceeded"), "billing", False),
        (
            429,
            {"type": "error", "error": {"details": {"error_code": "enforced_spend_limit_reached"}}},
            "billing",
            False,
        ),
        (400, error("Your credit balance is too low.", type="invalid_request_error"), "billing", False),
        (400, error("Budget has been exceeded", type="budget_exceeded", code="400"), "billing", False),
        (429, error("Insufficient balance. Please recharge.", code="1113"), "billing", False),
        (429, error(code="rate_limit_exceeded"), "rate_limit", True),
        (
            429,
            error("You exceeded your current quota, check your plan", status="RESOURCE_EXHAUSTED"),
            "rate_limit",
            True,
        ),
        (429, error(type="throttling_error", code="429"), "rate_limit", True),
        (429, error("Rate limit exceeded for this model's context tier"), "rate_limit", True),
        (429, b"", "rate_limit", True),
        (408, b"", "transient", True),
        (409, b"", "transient", True),
        (500, b"\xff\xfe\x00", "transient", True),
        (503, error("Service overloaded"), "transient", True),
        (529, {"type": "error", "error": {"type": "overloaded_error"}}, "transient", True),
        (400, error(code="context_length_exceeded"), "context_length", False),
        (400, error(code=400, type="exceed_context_size_error"), "context_length", False),
        (400, error("This model's maximum context length is 8192 tokens."), "context_length", False),
        (400, error("prompt is too long: 214,000 tokens > 200,000 maximum"), "context_length", False),
        (400, error("litellm.ContextWindowExceededError: too much", code="400"), "context_length", False),
        (
            400,
            error("The input token count (9) exceeds the maximum number of tokens allowed (8)"),
            "context_length",
            False,
        ),
        (500, error("the request exceeds the available context size"), "context_length", False),
        (400, error("max_tokens is too large: 100000"), "bad_request", False),
        (413, error("Request too large", code="rate_limit_exceeded"), "bad_request", False),
        (404, error("model not found", code="model_not_found"), "bad_request", False),
        (422, {"detail": [{"msg": "bad", "loc": ["body", "messages"]}]}, "bad_request", False),
        (301, b"", "bad_request", False),
    ],
)
def test_kind_and_whether_to_retry(status: int, body: Any, kind: str, retryable: bool) -> None:
    made_error = made(status, body)
    assert (made_error.kind, made_error.retryable) == (kind, retryable)
    assert str(made_error).startswith(f"HTTP {status} from the server: ")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (error("too many"), "too many"),
        ({"error": "a plain text"}, "a plain text"),
        ({"error": {"message": {"detail": "inner"}}}, "inner"),
        ({"detail": "not here"}, "not here"),
        ({"detail": [{"msg": "wrong", "loc": ["body", "n"]}, {"msg": "bad"}]}, "body.n: wrong; bad"),
        ([error("in a list")], "in a list"),
        ({"message": "at the top", "object": "error"}, "at the top"),
        ({"errors": [{"message": "in errors"}]}, "in errors"),
        ({"odd": {"shape": 1}}, '{"odd": {"shape": 1}}'),
        ("only a text", "only a text"),
        (b"plain words", "plain words"),
        (b"", "no explanation"),
        (b"null", "no explanation"),
        (b"[]", "no explanation"),
        (b"Erreur: mod\xe8le introuvable", "Erreur: mod\ufffdle introuvable"),
        (b"<!DOCTYPE html><title>Anmelden</title>", 'a web page ("Anmelden"), not an API answer'),
        (b"\n <html><body>502</body></html>", "a web page, not an API answer"),
        (error("line one\n\x1b[31mline two"), "line one [31mline two"),
        (error("Provider returned error", metadata={"raw": json.dumps(error("the cause"))}), "the cause"),
    ],
)
def test_words_are_found_in_every_shape(body: Any, words: str) -> None:
    assert f"{words}." in str(made(400, body))


def test_words_are_cut_and_hold_no_key() -> None:
    remember_secret("plain-known-secret")
    message = str(made(401, error("Wrong key sk-abcdefgh12345678 or plain-known-secret " + "x" * 500)))
    assert "sk-abcdefgh" not in message
    assert "plain-known-secret" not in message
    assert message.count("x") < 300
    assert "…" in message
    assert message.endswith("Check the member's key, and that it may use this model.")


def test_a_body_without_words_shows_no_credentials() -> None:
    assert "hunter" not in str(made(400, {"odd": 1, "password": "hunter"}))


@pytest.mark.parametrize(
    ("status", "body", "step"),
    [
        (404, error("no such model"), "base URL (it usually ends in /v1)"),
        (404, b"<html>", "base URL (it usually ends in /v1)"),
        (403, b"<html>", "base URL (it usually ends in /v1)"),
        (400, error("No models loaded."), "Load a model"),
        (413, b"", "Ask something shorter"),
        (302, b"", "final address"),
        (402, b"", "Add credit"),
        (503, b"", "try again later"),
    ],
)
def test_a_message_says_what_to_do(status: int, body: Any, step: str) -> None:
    assert step in str(made(status, body))


@pytest.mark.parametrize(
    ("body", "drop"),
    [
        (error("stop is not supported", param="stop", code="unsupported_parameter"), "stop"),
        (error("Unsupported value", param="temperature", code="unsupported_value"), "temperature"),
        (error("Unsupported value: 'minimal'", param="reasoning.effort", code="unsupported_value"), "reasoning"),
        (
            error("'minimal' is not supported: reasoning_effort", param="***.effort", code="unsupported_value"),
            "reasoning_effort",
        ),
        (error("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."), "max_tokens"),
        (error("Unrecognized request argument supplied: seed"), "seed"),
        (error("temperature: Extra inputs are not permitted"), "temperature"),
        (error("'m' does not support thinking"), "thinking"),
        (error("litellm.UnsupportedParamsError: m does not support parameters: ['top_p']"), "top_p"),
        (error("Unknown name \"seed\" at 'generation_config': Cannot find field."), "seed"),
        ({"detail": [{"type": "extra_forbidden", "loc": ["body", "brand_new"], "msg": "Extra"}]}, "brand_new"),
        (
            error("'messages[0].role' does not support 'system'", param="messages[0].role", code="unsupported_value"),
            None,
        ),
        (error("temperature must be at most 1", param="temperature", code="invalid_value"), None),
        (error("unknown model", param="model", code="unsupported_value"), None),
        (error("something else"), None),
    ],
)
def test_the_field_that_is_not_taken(body: Any, drop: str | None) -> None:
    assert made(400, body).drop == drop


@pytest.mark.parametrize(
    ("headers", "cap", "wait"),
    [
        ({"Retry-After": "7"}, 60, 7.0),
        ({"retry-after": " 1.5 "}, 60, 1.5),
        ({"retry-after": "900"}, 60, 60.0),
        ({"retry-after": "900"}, 1e9, 900.0),
        ({"retry-after": "-3"}, 60, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 60, 0.25),
        ({"retry-after": "Sun, 06 Dec 2026 10:00:45 GMT"}, 60, 45.0),
        ({"retry-after": "Sun, 06 Dec 2026 09:00:00 GMT"}, 60, 0.0),
        ({"retry-after": "Sun, 06 Dec 2026 12:00:00 +0200"}, 60, 0.0),
        ({"retry-after": "Sun Dec  6 10:00:45 2026"}, 60, 45.0),
        ({"retry-after": "2026-12-06T10:00:45Z"}, 60, 45.0),
        ({"retry-after": "2026-12-06T10:00:45"}, 60, 45.0),
        ({"retry-after": "2026-13-06T10:00:45"}, 60, None),
        ({"retry-after": "1m30s"}, 100, 90.0),
        ({"retry-after": "soon"}, 60, None),
        ({"retry-after": "nan"}, 60, None),
        ({"retry-after": ""}, 60, None),
        ({"x-other": "3"}, 60, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], cap: float, wait: float | None) -> None:
    assert retry_after(headers, now=1796551200.0, cap=cap) == wait  # 2026-12-06 10:00:00 UTC


def test_a_date_without_a_zone_is_utc_wherever_this_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert retry_after({"retry-after": "Sun Dec  6 10:00:45 2026"}, now=1796551200.0) == 45.0
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_date_is_compared_with_the_clock() -> None:
    at = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 30))
    assert 28 <= (retry_after({"retry-after": at}) or 0) <= 30


def test_the_wait_goes_with_the_error_in_full_and_the_server_may_forbid_a_retry() -> None:
    assert made(429, b"", retry_after="3600").retry_after == 3600.0
    assert made(503, b"", retry_after="2").retry_after == 2.0
    assert made(401, b"", retry_after="2").retry_after is None
    assert made(429, b"", x_should_retry="false").retryable is False
    assert made(400, b"", x_should_retry="true").retryable is False


@pytest.mark.parametrize(
    ("text", "seconds"), [("17s", 17), ("1m30.5s", 90.5), ("2h", 7200), ("250ms", 0.25), ("5", None), ("", None)]
)
def test_durations(text: str, seconds: float | None) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    ("value", "kind", "retryable"),
    [
        ({"message": "died", "code": 502}, "transient", True),
        ({"message": "died", "type": "server_error"}, "transient", True),
        ({"code": 429, "message": "slow"}, "rate_limit", True),
        ({"type": "rate_limit_error"}, "rate_limit", True),
        ({"type": "overloaded_error"}, "transient", True),
        ({"code": "400", "message": "no"}, "bad_request", False),
        ({"type": "invalid_request_error"}, "bad_request", False),
        ({"code": "insufficient_quota"}, "billing", False),
        ({"code": 401}, "auth", False),
        ({"code": "context_length_exceeded"}, "context_length", False),
        ("upstream went away", "transient", True),
        (["odd"], "transient", True),
        (17, "transient", True),
    ],
)
def test_errors_inside_an_answer(value: Any, kind: str, retryable: bool) -> None:
    found = in_band(value, provider="Groq")
    assert (found.kind, found.retryable) == (kind, retryable)
    assert str(found).startswith("Groq reported an error in its answer: ")


def test_json_is_parsed_with_blanks_and_a_mark_before_it() -> None:
    assert parse_json(b'\xef\xbb\xbf\n\n {"a": 1}\n') == {"a": 1}
    assert parse_json("[1]") == [1]
    assert parse_json('{"a": "\x00\x0b\x0c\x1f\t"}') == {"a": "\x00\x0b\x0c\x1f\t"}


@pytest.mark.parametrize(
    ("data", "words", "retryable"),
    [
        ("<html><title>Sign in</title>", 'a web page ("Sign in")', False),
        (b"<?xml version='1.0'?><Error/>", "a web page", False),
        ('{"cut": ', 'that is no JSON ({"cut":).', True),
        ("", "that is empty", True),
        ("[" * 100_000, "that is no JSON", True),
        (b"\xff\xfe", "that is no JSON", True),
    ],
)
def test_what_is_no_json_is_said_in_words(data: str | bytes, words: str, retryable: bool) -> None:
    with pytest.raises(AgentError) as caught:
        parse_json(data)
    assert (caught.value.kind, caught.value.retryable) == ("protocol", retryable)
    assert words in str(caught.value)
    assert "/v1" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_an_answer_that_is_no_reply() -> None:
    assert (odd_answer("").kind, odd_answer("").retryable) == ("protocol", True)
    assert "Not Found" in str(odd_answer("Not Found"))
    assert odd_answer(None).kind == "truncated"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "type", "param", "loc", "detail", "metadata", "raw"]), inner
        )
    ),
    max_leaves=12,
)


@given(st.integers(300, 599), st.one_of(st.binary(max_size=60), JSON.map(lambda v: json.dumps(v).encode())))
def test_any_body_will_do(status: int, body: bytes) -> None:
    found = fault(status, {}, body, provider="the server")
    assert found.kind in KINDS
    assert len(str(found)) < 500
    read(body)


@given(JSON)
def test_any_value_inside_an_answer_will_do(value: Any) -> None:
    assert in_band(value, provider="it").kind in KINDS


@pytest.mark.timeout(30)
@pytest.mark.parametrize("part", [b"<!---->", b"exceed ", b"context length ", b" ", b"unknown "])
def test_megabytes_are_read_in_linear_time(part: bytes) -> None:
    assert made(400, part * (2**20 // len(part))).kind == "bad_request"


def test_a_server_that_has_tried_again_itself_is_believed() -> None:
    said = {"message": "503: all of them are down", "type": "server_error"}
    assert in_band(said, provider="the server").retryable
    final = in_band({**said, "should_retry": False}, provider="the server")
    assert (final.kind, final.retryable) == ("transient", False)
