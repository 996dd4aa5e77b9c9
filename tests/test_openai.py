"""The OpenAI chat format: what is sent to which server, how answers are read, and that the official client agrees."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import openai
import pytest

from tests.capture import capturing, exchange, request_to
from trinity_core.agents.local import weights
from trinity_core.agents.remote.openai import OPENAI, OpenAIOptions, prompt_estimate
from trinity_core.agents.remote.servers import SERVERS, server_at
from trinity_core.errors import AgentError, PoolError
from trinity_core.types import AgentSpec, Finish, Message, Piece, Reply, Reset, Sampling, Usage

KEY = "test-key-1"
LOCAL = "http://127.0.0.1:9/v1"


def member(model: str | None = "m", base_url: str | None = LOCAL, **options: Any) -> AgentSpec:
    return AgentSpec("ada", "openai", model, options=options, base_url=base_url)


def body_of(
    spec: AgentSpec, *messages: tuple[str, str], drop: Sequence[str] = (), sampling: Sampling | None = None
) -> dict[str, Any]:
    return dict(OPENAI.call(request_to(spec, *messages, sampling=sampling), KEY, drop=frozenset(drop)).body or {})


def chunk(delta: Any, finish: Any = None, **members: Any) -> dict[str, Any]:
    return {"id": "c-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **members}


END = chunk({}, "stop")


def stream(*chunks: Any, spec: AgentSpec | None = None, done: bool = True) -> tuple[list[Piece | Reset], Reply]:
    """All pieces and the reply of a stream; the text pieces since the last Reset must be the reply's text."""
    reader = OPENAI.reader(request_to(spec or member()))
    parts: list[Piece | Reset] = []
    for value in (*chunks, "[DONE]") if done else chunks:
        parts += reader.event(value if isinstance(value, str) else json.dumps(value))
    reply = reader.reply()
    last = max((i for i, part in enumerate(parts) if isinstance(part, Reset)), default=-1)
    shown = [part for part in parts[last + 1 :] if isinstance(part, Piece) and part.channel == "text"]
    assert "".join(piece.text for piece in shown) == reply.text
    assert reader.started is bool(parts)
    return parts, reply


def whole(message: Any, finish: Any = "stop", spec: AgentSpec | None = None, **members: Any) -> Reply:
    """The reply to one JSON body with `message`."""
    reader = OPENAI.reader(request_to(spec or member()))
    parts = reader.whole({"choices": [{"message": message, "finish_reason": finish}], **members})
    reply = reader.reply()
    assert "".join(p.text for p in parts if isinstance(p, Piece) and p.channel == "text") == reply.text
    return reply


# --- Options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temprature": 1}, "Did you mean 'temperature'?"),
        ({"zzz": 1}, "unknown option 'zzz'. Known: server"),
        ({"server": "olama"}, "Did you mean 'ollama'?"),
        ({"server": 3}, "must be one of"),
        ({"effort": "hihg"}, "Did you mean 'high'?"),
        ({"max_tokens": 0}, "must be a whole number above 0"),
        ({"max_tokens": True}, "must be a whole number above 0"),
        ({"max_tokens": "9"}, "must be a whole number above 0"),
        ({"seed": 1.5}, "must be a whole number, not 1.5"),
        ({"temperature": -0.1}, "must be a number from 0 to 2"),
        ({"temperature": float("nan")}, "must be a number from 0 to 2"),
        ({"top_p": 1.1}, "must be a number from 0 to 1"),
        ({"stop": "END"}, 'must be a list of texts, such as ["END"]'),
        ({"stop": [""]}, "must be a list of texts"),
        ({"max_tokens_field": "max"}, "must be one of max_tokens, max_completion_tokens"),
        ({"system_role": "System"}, "Did you mean 'system'?"),
        ({"drop_params": ["model"]}, "may not hold 'model'"),
        ({"drop_params": [1]}, "must be a list of texts"),
        ({"extra_body": []}, "must be a table"),
        ({"extra_body": {"messages": []}}, "may not hold 'messages'"),
        ({"extra_body": {"stream": False}}, "may not hold 'stream'"),
        ({"extra_body": {"max_tokens": 9}}, "the option max_tokens"),
        ({"extra_body": {"n": 2}}, "may not hold 'n'"),
        ({"extra_body": {"inner": {"api_key": "x"}}}, "seems to hold a key"),
    ],
)
def test_a_wrong_option_is_named_with_what_would_be_right(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PoolError) as caught:
        OPENAI.check(member(**options))
    assert str(caught.value).startswith("Agent ada: ")
    assert words in str(caught.value)


def test_right_options_pass_and_lists_become_tuples() -> None:
    spec = member(
        server="vllm",
        effort="low",
        max_tokens=5,
        temperature=0,
        top_p=1,
        seed=-1,
        stop=["a"],
        drop_params=[],
        extra_body={},
    )
    OPENAI.check(spec)
    assert OpenAIOptions.read(spec).stop == ("a",)


def test_a_model_and_a_base_url_are_needed() -> None:
    with pytest.raises(PoolError, match="needs model"):
        OPENAI.check(member(None))
    with pytest.raises(PoolError, match=r'needs base_url = "https://api\.groq\.com/openai/v1"'):
        OPENAI.check(member(base_url=None, server="groq"))
    with pytest.raises(PoolError, match="needs base_url"):
        OPENAI.check(member(base_url=None, server="generic"))
    OPENAI.check(member(base_url=None))


def test_a_missing_key_is_named_before_anything_is_sent() -> None:
    asked = request_to(member(base_url=None))
    with pytest.raises(AgentError, match="Set OPENAI_API_KEY in the environment") as caught:
        OPENAI.call(asked, None)
    assert (caught.value.kind, caught.value.calls, caught.value.retryable) == ("auth", 0, False)
    assert "Authorization" not in OPENAI.call(request_to(member()), None).headers
    assert OPENAI.call(request_to(member(server="openai")), None).body  # another server behind a known name


# --- Servers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "name"),
    [
        (None, "openai"),
        ("https://api.openai.com/v1", "openai"),
        ("https://eu.api.openai.com/v1", "openai"),
        ("https://me.openai.azure.com/openai/v1", "openai"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://api.deepseek.com", "deepseek"),
        ("https://api.groq.com/openai/v1", "groq"),
        ("https://api.together.xyz/v1", "together"),
        ("http://127.0.0.1:11434/v1", "ollama"),
        ("http://gpu-box.local:8000/v1", "vllm"),
        ("http://[::1]:1234/v1", "lmstudio"),
        ("http://localhost:8080", "llamacpp"),
        ("http://localhost:4000", "litellm"),
        ("http://localhost:7860/v1", "trinity"),
        ("https://notopenrouter.ai/api/v1", "generic"),
        ("https://api.openai.com.evil.example/v1", "generic"),
        ("http://localhost:99999/v1", "generic"),
        ("http://[bad", "generic"),
        ("", "generic"),
    ],
)
def test_a_server_is_known_by_host_then_by_port(base_url: str | None, name: str) -> None:
    assert server_at(base_url).name == name


def test_the_table_is_consistent() -> None:
    ports = [server.port for server in SERVERS.values() if server.port]
    assert len(ports) == len(set(ports))
    for name, server in SERVERS.items():
        assert server.name == name
        assert server.base_url is None or server_at(server.base_url) is server
        assert server.key_env or not server.needs_key


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        (None, "https://api.openai.com/v1/chat/completions"),
        ("http://h:1/v1/", "http://h:1/v1/chat/completions"),
        ("http://h:1/v1/chat/completions", "http://h:1/v1/chat/completions"),
        ("http://h:1", "http://h:1/chat/completions"),
        ("http://127.0.0.1:11434", "http://127.0.0.1:11434/v1/chat/completions"),
        ("https://api.deepseek.com/", "https://api.deepseek.com/chat/completions"),
        ("https://openrouter.ai", "https://openrouter.ai/api/v1/chat/completions"),
        ("https://h/v1?api-version=2", "https://h/v1/chat/completions?api-version=2"),
    ],
)
def test_the_address_called(base_url: str | None, url: str) -> None:
    call = OPENAI.call(request_to(member(base_url=base_url)), KEY)
    assert call.url == url
    assert call.headers["Authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(call)


@pytest.mark.parametrize(
    ("server", "model", "effort", "fields"),
    [
        ("openai", "gpt-4o", None, {}),
        ("openai", "gpt-5", None, {"reasoning_effort": "minimal"}),
        ("openai", "gpt-5-mini", None, {"reasoning_effort": "minimal"}),
        ("openai", "gpt-5.1", None, {"reasoning_effort": "none"}),
        ("openai", "gpt-5.1-codex", None, {"reasoning_effort": "low"}),
        ("openai", "gpt-5-pro", None, {}),
        ("openai", "gpt-5-chat-latest", None, {}),
        ("openai", "gpt-6-sol", None, {"reasoning_effort": "low"}),
        ("openai", "o1-mini", None, {}),
        ("openai", "o3-mini", None, {"reasoning_effort": "low"}),
        ("openai", "o3-pro", None, {}),
        ("openai", "gpt-5", "high", {"reasoning_effort": "high"}),
        ("litellm", "openai/gpt-5", None, {"reasoning_effort": "minimal"}),
        ("openrouter", "openai/gpt-5.2", None, {"reasoning": {"effort": "none"}}),
        ("openrouter", "openai/gpt-oss-120b", None, {"reasoning": {"effort": "low"}}),
        ("openrouter", "qwen/qwen3-32b", None, {}),
        ("openrouter", "qwen/qwen3-32b", "high", {"reasoning": {"effort": "high"}}),
        ("deepseek", "deepseek-chat", None, {"thinking": {"type": "disabled"}}),
        ("deepseek", "deepseek-reasoner", None, {}),
        ("deepseek", "deepseek-chat", "high", {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
        ("groq", "openai/gpt-oss-20b", None, {"reasoning_effort": "low"}),
        ("groq", "qwen/qwen3-32b", None, {"reasoning_effort": "none"}),
        ("groq", "llama-3.3-70b-versatile", None, {}),
        ("together", "zai-org/GLM-5.1", None, {"reasoning": {"enabled": False}}),
        ("together", "zai-org/GLM-5.1", "high", {"reasoning_effort": "high"}),
        ("ollama", "qwen3:8b", None, {"reasoning_effort": "none"}),
        ("ollama", "qwen3:4b-thinking", None, {}),
        ("ollama", "llama3.2", None, {}),
        ("vllm", "Qwen/Qwen3-8B", None, {}),
        ("generic", "gpt-5", None, {}),
        ("generic", "x", "low", {"reasoning_effort": "low"}),
    ],
)
def test_effort_is_the_lowest_where_safe_and_written_as_the_server_wants(
    server: str, model: str, effort: str | None, fields: dict[str, Any]
) -> None:
    names = ("reasoning_effort", "reasoning", "thinking")
    options = {"server": server} | ({"effort": effort} if effort else {})
    body = body_of(member(model, **options))
    assert {name: body[name] for name in names if name in body} == fields
    without = body_of(member(model, **options), drop=["reasoning"])
    assert not any(name in without for name in names)


def test_reasoning_models_of_openai_get_no_sampling_while_they_reason() -> None:
    settings: dict[str, Any] = {"temperature": 0.5, "top_p": 0.5, "stop": ["END"], "server": "openai"}
    assert {"temperature", "top_p"}.isdisjoint(body_of(member("gpt-5", **settings)))
    assert {"temperature", "top_p", "stop"}.isdisjoint(body_of(member("o3", **settings)))
    assert body_of(member("gpt-5.1", **settings))["temperature"] == 0.5
    assert "temperature" not in body_of(member("gpt-5.1", effort="high", **settings))
    assert body_of(member("gpt-4o", **settings))["temperature"] == 0.5


# --- The request -------------------------------------------------------------------------------------------------


def test_nothing_is_sent_that_is_not_set() -> None:
    assert body_of(member()) == {
        "model": "m",
        "messages": [{"role": "user", "content": "q"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 4096,
    }


def test_the_request_counts_more_than_the_member_except_for_the_cap() -> None:
    spec = member(temperature=0.1, top_p=0.2, seed=3, effort="low", max_tokens=50)
    body = body_of(spec, sampling=Sampling(80, 0.0, 0.9, 0, "high"))
    assert (body["temperature"], body["top_p"], body["seed"], body["reasoning_effort"]) == (0.0, 0.9, 0, "high")
    assert body["max_tokens"] == 50
    body = body_of(spec, sampling=Sampling(20))
    assert (body["temperature"], body["top_p"], body["seed"], body["reasoning_effort"]) == (0.1, 0.2, 3, "low")
    assert body["max_tokens"] == 20


@pytest.mark.parametrize(
    ("options", "drop", "field"),
    [
        ({}, (), "max_tokens"),
        ({"server": "openai"}, (), "max_completion_tokens"),
        ({"max_tokens_field": "max_completion_tokens"}, (), "max_completion_tokens"),
        ({}, ("max_tokens",), "max_completion_tokens"),
        ({"server": "openai"}, ("max_completion_tokens",), "max_tokens"),
        ({}, ("max_tokens", "max_completion_tokens"), None),
        ({"drop_params": ["max_tokens"]}, (), None),
    ],
)
def test_the_output_cap_goes_into_the_field_that_the_server_takes(
    options: dict[str, Any], drop: tuple[str, ...], field: str | None
) -> None:
    body = body_of(member(**options), drop=drop)
    assert [name for name in ("max_tokens", "max_completion_tokens") if name in body] == ([field] if field else [])


def test_refused_fields_are_left_out_wherever_they_come_from() -> None:
    spec = member(
        stop=["END"], temperature=0.2, extra_body={"min_p": 0.1, "top_k": 5}, drop_params=["stream_options"]
    )
    plain = {name: value for name, value in body_of(member()).items() if name != "stream_options"}
    assert body_of(spec, drop=["stop", "top_k"]) == {**plain, "temperature": 0.2, "min_p": 0.1}


def test_extra_fields_are_put_in_last() -> None:
    body = body_of(member(temperature=0.2, extra_body={"temperature": 0.7, "provider": {"sort": "price"}}))
    assert (body["temperature"], body["provider"]) == (0.7, {"sort": "price"})


MIXED = [("system", "rules"), ("user", "q"), ("system", " "), ("assistant", "a"), ("system", "last"), ("user", "go")]


@pytest.mark.parametrize(
    ("role", "roles", "head"),
    [
        ("system", ["system", "user", "assistant", "user"], "rules\n\nlast"),
        ("developer", ["developer", "user", "assistant", "user"], "rules\n\nlast"),
        ("user", ["user", "assistant", "user"], "rules\n\nlast\n\nq"),
    ],
)
def test_system_messages_become_one_that_stands_first(role: str, roles: list[str], head: str) -> None:
    sent = body_of(member(system_role=role), *MIXED)["messages"]
    assert [message["role"] for message in sent] == roles
    assert sent[0]["content"] == head
    assert [message["content"] for message in sent[-2:]] == ["a", "go"]


def test_a_system_text_without_a_user_message_is_kept() -> None:
    assert body_of(member(system_role="user"), ("system", "only"))["messages"] == [
        {"role": "user", "content": "only"}
    ]


def test_halves_of_characters_are_not_sent() -> None:
    sent = body_of(member(), ("system", "a\ud83d"), ("user", "b\udc00"))["messages"]
    assert [message["content"] for message in sent] == ["a\ufffd", "b\ufffd"]


# --- Answers -----------------------------------------------------------------------------------------------------


def test_a_stream_gives_pieces_reasoning_usage_and_the_id() -> None:
    usage = {
        "prompt_tokens": 30,
        "completion_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 7},
    }
    parts, reply = stream(
        {"choices": [], "prompt_filter_results": []},
        chunk({"role": "assistant", "content": None}),
        chunk({"reasoning_content": "", "content": None}),
        chunk({"reasoning_content": "mull", "content": None}),
        chunk({"content": "Y"}, ""),
        chunk({"content": "es"}, obfuscation="xx"),
        END,
        {"id": "c-2", "choices": [], "usage": usage},
    )
    assert parts == [Piece("mull", "reasoning"), Piece("Y"), Piece("es")]
    assert reply == Reply("Yes", Finish.STOP, "mull", Usage(30, 12, 20, 7), request_id="c-1")


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "Oslo", "reasoning_content": "hm"},
        {"content": "Oslo", "reasoning": "hm"},
        {"content": "Oslo", "reasoning": "hm", "reasoning_content": "hm"},
        {"content": "Oslo", "reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"content": "Oslo", "reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}, {"data": "x"}]},
        {
            "content": [
                {"type": "text", "text": "Os"},
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "lo"},
            ]
        },
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                {"type": "text", "text": "Oslo"},
            ]
        },
        {"content": ["Oslo", {"type": "text", "text": None}, {"type": "new", "text": "?"}, None], "reasoning": "hm"},
        {"content": {"type": "text", "text": "Oslo"}, "reasoning": "hm"},
        {"content": "<think>hm</think>Oslo"},
        {"content": "hm</think>\nOslo"},
    ],
)
def test_content_and_reasoning_are_read_from_every_shape(delta: dict[str, Any]) -> None:
    for reply in (stream(chunk(delta), END)[1], whole(delta)):
        assert (reply.text, reply.reasoning, reply.finish) == ("Oslo", "hm", Finish.STOP)


def test_tags_cut_anywhere_and_a_missing_opening_tag() -> None:
    parts, reply = stream(
        chunk({"content": "weigh "}), chunk({"content": "it</th"}), chunk({"content": "ink>B"}), END
    )
    assert (reply.text, reply.reasoning) == ("B", "weigh it")
    assert sum(isinstance(part, Reset) for part in parts) == 1
    assert not any(
        isinstance(part, Reset)
        for part in OPENAI.reader(request_to(member())).whole(
            {"choices": [{"message": {"content": "weigh it</think>B"}, "finish_reason": "stop"}]}
        )
    )


def test_what_is_held_back_comes_with_the_end_of_the_reply() -> None:
    for chunks, done in (([chunk({"content": "a <th"}), END], False), ([chunk({"content": "a <th"}, "stop")], False)):
        parts, reply = stream(*chunks, done=done)
        assert reply.text == "a <th"
        assert [part.text for part in parts if isinstance(part, Piece)] == ["a ", "<th"]


@pytest.mark.parametrize(
    ("message", "finish", "expected", "text"),
    [
        ({"content": "x"}, "stop", Finish.STOP, "x"),
        ({"content": "x"}, "eos", Finish.STOP, "x"),
        ({"content": "x"}, "STOP", Finish.STOP, "x"),
        ({"content": "x"}, "length", Finish.LENGTH, "x"),
        ({"content": "", "reasoning": "long"}, "length", Finish.LENGTH, ""),
        ({"content": "", "reasoning": "it is 17"}, "stop", Finish.EMPTY, ""),
        ({"content": None}, "stop", Finish.EMPTY, ""),
        ({"content": " \n"}, "stop", Finish.EMPTY, ""),
        ({}, "stop", Finish.EMPTY, ""),
        (None, "stop", Finish.EMPTY, ""),
        ({"content": 17}, "stop", Finish.EMPTY, ""),
        ({"content": None, "tool_calls": [{"id": "t"}]}, "tool_calls", Finish.EMPTY, ""),
        ({"content": "x", "tool_calls": [{"id": "t"}]}, "tool_calls", Finish.STOP, "x"),
        ({"content": None, "refusal": "I will not."}, "stop", Finish.REFUSED, ""),
        ({"content": [{"type": "refusal", "refusal": "No."}]}, "stop", Finish.REFUSED, ""),
        ({"content": "par"}, "content_filter", Finish.BLOCKED, "par"),
        ({"content": "x"}, "paused_for_tea", Finish.INCOMPLETE, "x"),
    ],
)
def test_how_a_reply_ended(message: Any, finish: str, expected: Finish, text: str) -> None:
    reply = whole(message, finish)
    assert (reply.finish, reply.text) == (expected, text)
    streamed = stream(chunk(message), chunk({}, finish))[1]
    assert (streamed.finish, streamed.text) == (expected, text)


def test_a_refusal_and_a_tool_call_are_explained() -> None:
    assert whole({"refusal": "I  will\nnot."}).warnings == ("The model declined: I will not.",)
    assert "called a tool" in whole({"tool_calls": [{}]}, "tool_calls").warnings[0]
    assert "paused" in whole({"content": "x"}, "paused").warnings[0]
    assert whole({"content": "x"}).warnings == ()


def test_other_choices_and_empty_deltas_are_skipped() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "OTHER"}, "finish_reason": "length"}]}
    _, reply = stream({"choices": [{"delta": None}]}, other, chunk({"content": "mine"}), {"ping": 1}, END, other)
    assert (reply.text, reply.finish) == ("mine", Finish.STOP)


def test_a_message_streamed_whole_is_read_once() -> None:
    one = {"choices": [{"index": 0, "message": {"content": "all"}, "finish_reason": "stop"}]}
    assert stream(one)[1].text == "all"
    assert stream(chunk({"content": "all"}), one)[1].text == "all"


def test_only_one_of_several_choices_is_read_also_where_none_is_numbered() -> None:
    body = {"choices": [{"message": {"content": text}, "finish_reason": "stop"} for text in ("first", "second")]}
    reader = OPENAI.reader(request_to(member()))
    assert reader.whole(body) == (Piece("first"),)
    both = {"choices": [{"delta": {"content": "mine"}}, {"delta": {"content": "OTHER"}, "finish_reason": "length"}]}
    assert stream(both, END)[1].text == "mine"
    quoted = {"choices": [{"index": index, "delta": {"content": index}} for index in ("1", "0")]}
    assert stream(quoted, END)[1].text == "0"


@pytest.mark.parametrize(
    ("finishes", "finish"),
    [
        (("length", "stop"), Finish.LENGTH),
        (("stop", "length"), Finish.LENGTH),
        (("content_filter", "stop"), Finish.BLOCKED),
        (("stop", "stop"), Finish.STOP),
        (("null", "stop"), Finish.STOP),
        (("stop", "null"), Finish.STOP),
    ],
)
def test_a_natural_end_after_another_one_hides_nothing(finishes: tuple[str, str], finish: Finish) -> None:
    assert stream(chunk({"content": "x"}, finishes[0]), chunk({}, finishes[1]))[1].finish is finish


@pytest.mark.parametrize("torn", ['{"id": "c-1", "cho', "[done]", "bye"])
def test_what_is_torn_after_the_end_costs_no_reply(torn: str) -> None:
    assert stream(chunk({"content": "all"}), END, torn, done=False)[1].text == "all"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 1}, Usage(3, 1)),
        ({"prompt_tokens": 3, "completion_tokens": 1, "prompt_cache_hit_tokens": 2}, Usage(3, 1, 2)),
        ({"prompt_tokens": 3, "completion_tokens": 1, "cached_tokens": 2}, Usage(3, 1, 2)),
        ({"input_tokens": 3, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 0}}, Usage(3, 1, 0)),
        ({"prompt_tokens": None, "completion_tokens": 1.0}, Usage(None, 1)),
        ({"prompt_tokens": True, "completion_tokens": -1}, Usage()),
        ({"prompt_tokens": "3", "completion_tokens": float("inf")}, Usage(3)),
        ({"prompt_tokens": "three", "completion_tokens": "-1"}, Usage()),
        ({"prompt_tokens": 10**30, "completion_tokens": 7.0}, Usage(None, 7)),
        ("odd", Usage()),
    ],
)
def test_usage_in_every_shape(usage: Any, expected: Usage) -> None:
    assert whole({"content": "x"}, usage=usage).usage == expected


def test_usage_may_stand_anywhere_and_the_last_figures_hold() -> None:
    first = {"prompt_tokens": 3, "completion_tokens": 1}
    assert stream(chunk({"content": "x"}, usage=first), END)[1].usage == Usage(3, 1)
    assert stream(chunk({"content": "x"}), chunk({}, "stop", x_groq={"usage": first}))[1].usage == Usage(3, 1)
    later = {"prompt_tokens": 3, "completion_tokens": 9}
    ended = stream(chunk({"content": "x"}, usage=first), END, {"choices": [], "usage": later})[1]
    assert ended.usage == Usage(3, 9)
    nothing = {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}
    assert stream(chunk({"content": "x"}, usage=first), END, nothing)[1].usage == Usage(3, 1)
    assert stream(chunk({"content": "x"}, usage=nothing["usage"]), END)[1].usage == Usage(0, 0)
    assert stream(chunk({"content": "x"}, usage=first), END, {"choices": [], "usage": None})[1].usage == Usage(3, 1)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        ({}, None),
        ({"cost": 0.25}, 0.25),
        ({"cost": 0}, 0.0),
        ({"cost": 0.01, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.5}}, 0.51),
        ({"cost": 0.25, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.25}}, 0.25),
        ({"cost": "0.25"}, 0.25),
        ({"cost": "free"}, None),
        ({"cost": "nan"}, None),
        ({"cost": True}, None),
        ({"cost": -1}, None),
        ({"cost": None}, None),
    ],
)
def test_the_providers_own_price(usage: dict[str, Any], cost: float | None) -> None:
    reply = stream(chunk({"content": "x"}), END, {"choices": [], "usage": usage})[1]
    assert reply.cost == (None if cost is None else pytest.approx(cost))


# --- Errors in an answer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind", "retryable"),
    [
        ({"error": {"type": "server_error", "message": "boom"}}, "transient", True),
        ({"error": "boom"}, "transient", True),
        ({"error": {"code": 502, "message": "boom"}, "choices": []}, "transient", True),
        ({"error": {"code": 429, "message": "boom"}}, "rate_limit", True),
        ({"error": {"code": "400", "message": "boom"}}, "bad_request", False),
        ({"error": {"message": "boom"}, "message": "boom"}, "transient", True),
        ({"object": "error", "message": "boom", "code": 400}, "bad_request", False),
        ([{"error": {"message": "boom"}}], "transient", True),
        (chunk({}, None, x_groq={"error": "boom"}), "transient", True),
        (chunk({"content": ""}, "error", error={"code": 502, "message": "boom"}), "transient", True),
        (
            {
                "choices": [
                    {"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": 403, "message": "boom"}}
                ]
            },
            "auth",
            False,
        ),
    ],
)
def test_an_error_inside_a_stream_is_raised_and_what_came_before_it_is_kept(
    value: Any, kind: str, retryable: bool
) -> None:
    reader = OPENAI.reader(request_to(member()))
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    assert reader.event(json.dumps(chunk({"content": "The ans"}, usage=usage))) == [Piece("The ans")]
    with pytest.raises(AgentError, match="boom") as caught:
        reader.event(json.dumps(value))
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)
    assert (reader.started, reader.usage) == (True, Usage(3, 1))


def test_the_usage_of_a_chunk_with_an_error_counts() -> None:
    reader = OPENAI.reader(request_to(member()))
    with pytest.raises(AgentError):
        reader.event(json.dumps({"error": "boom", "usage": {"prompt_tokens": 3, "completion_tokens": 1}}))
    assert reader.usage == Usage(3, 1)


@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource"])
def test_a_finish_that_means_failure_is_a_passing_error(reason: str) -> None:
    with pytest.raises(AgentError, match=reason) as caught:
        stream(chunk({"content": "x"}), chunk({}, reason))
    assert (caught.value.kind, caught.value.retryable) == ("transient", True)


def test_error_events_are_errors_whatever_they_hold() -> None:
    for data in ('{"message": "boom"}', "boom", '"boom"', '{"error": {"message": "boom"}}'):
        with pytest.raises(AgentError, match="boom"):
            OPENAI.reader(request_to(member())).event(data, "error")


def test_named_events_that_are_unknown_are_skipped() -> None:
    reader = OPENAI.reader(request_to(member()))
    assert [*reader.event("{}", "ping"), *reader.event("not json", "heartbeat"), *reader.event("", "")] == []
    assert reader.event(json.dumps(chunk({"content": "x"})), "message") == [Piece("x")]


@pytest.mark.parametrize(
    "value", ["null", "17", '"text"', "[]", '{"error": null}', '{"error": ""}', '{"choices": 3}']
)
def test_chunks_without_anything_are_skipped(value: str) -> None:
    assert stream(value, chunk({"content": "x"}), END)[1].text == "x"


def test_data_that_is_no_json_is_a_protocol_error() -> None:
    with pytest.raises(AgentError) as caught:
        OPENAI.reader(request_to(member())).event('{"id": "x", ')
    assert (caught.value.kind, caught.value.retryable) == ("protocol", True)


@pytest.mark.parametrize("done", [True, False])
def test_a_reply_without_a_finish_reason_is_cut_off(done: bool) -> None:
    for chunks in ([chunk({"content": "half a sen"})], [chunk({"content": "half"}, "")], [chunk({})]):
        with pytest.raises(AgentError) as caught:
            stream(*chunks, done=done)
        assert (caught.value.kind, caught.value.retryable) == ("truncated", True)
    with pytest.raises(AgentError) as caught:
        whole({"content": "x"}, None)
    assert caught.value.kind == "truncated"


def test_an_answer_without_any_choice_is_an_error_and_still_counts() -> None:
    body = {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 0}}
    for feed in (lambda r: r.whole(body), lambda r: r.event(json.dumps(body))):
        reader = OPENAI.reader(request_to(member()))
        assert not feed(reader)
        with pytest.raises(AgentError, match="base URL") as caught:
            reader.reply()
        assert (caught.value.kind, caught.value.retryable) == ("protocol", True)
        assert reader.usage == Usage(12, 0)
    for odd in ({"choices": None}, {"choices": [None, "odd"]}, {"choices": "odd"}):
        reader = OPENAI.reader(request_to(member()))
        reader.whole(odd)
        with pytest.raises(AgentError, match="without any reply") as caught:
            reader.reply()
        assert caught.value.kind == "protocol"
    with pytest.raises(AgentError) as caught:
        OPENAI.reader(request_to(member())).reply()
    assert caught.value.kind == "truncated"


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ({"error": {"message": "died", "code": 502}}, "transient", "died"),
        ([{"error": "died"}], "transient", "died"),
        ({"error": "Model not loaded", "choices": None}, "transient", "Model not loaded"),
        ({"detail": "Not Found"}, "protocol", "Not Found"),
        ({"message": "no such key", "status": 401}, "auth", "no such key"),
        ({"code": "429", "msg": "slow down"}, "rate_limit", "slow down"),
        ({"message": "fine", "status": 200}, "protocol", "fine"),
        ({"hello": 1}, "protocol", "without any reply"),
        ("a text", "protocol", "a text"),
        (None, "protocol", "without any reply"),
        ([], "protocol", "without any reply"),
    ],
)
def test_a_body_that_is_no_reply(body: Any, kind: str, words: str) -> None:
    with pytest.raises(AgentError, match=words) as caught:
        OPENAI.reader(request_to(member())).whole(body)
    assert caught.value.kind == kind


# --- Stop texts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("finish", ["stop", "length", None, "odd"])
def test_the_text_is_cut_at_a_stop_text_that_the_server_did_not_take(finish: str | None) -> None:
    spec = member(stop=["END"])
    chunks = [
        chunk({"content": "one E"}),
        chunk({"content": "ND two"}),
        chunk({"content": " three"}),
        chunk({}, finish),
    ]
    parts, reply = stream(*chunks, spec=spec)
    assert (reply.text, reply.finish) == ("one ", Finish.STOP)
    assert [part.text for part in parts if isinstance(part, Piece)] == ["one "]
    assert whole({"content": "one END two"}, spec=spec).text == "one "
    assert whole({"content": "END two"}, spec=spec).finish is Finish.EMPTY


def test_only_as_many_stop_texts_are_sent_as_the_server_takes() -> None:
    spec = member(stop=list("abcdef"))
    assert body_of(spec)["stop"] == list("abcd")
    assert whole({"content": "xyf!"}, spec=spec).text == "xy"


def test_a_refused_stop_is_named_and_left_out() -> None:
    refused = {"error": {"param": "stop", "code": "unsupported_parameter", "message": "stop not supported"}}
    fault = OPENAI.fault(400, {}, json.dumps(refused).encode())
    assert (fault.kind, fault.retryable, fault.drop) == ("bad_request", False, "stop")
    spec = member(stop=["END"], temperature=0.2)
    body = body_of(spec, drop=[str(fault.drop)])
    assert ("stop" in body, body["temperature"]) == (False, 0.2)


# --- A prompt that the server cut --------------------------------------------------------------------------------

LONG = "The quick brown fox jumps over the lazy dog, and nobody minds. " * 500


@pytest.mark.parametrize(
    ("text", "read", "cached", "warned"),
    [
        (LONG, 2048, None, True),
        (LONG, 6500, None, False),
        (LONG, 500, 6000, False),
        (LONG, 3, None, False),
        ("short question?", 9, None, False),
        ("a" * 100_000, 300, None, False),
        ("=" * 80 + "\n" * 5000, 300, None, False),
        ("哈" * 50_000, 300, None, False),
        ("中国特色社会主义" * 5000, 300, None, False),
        ("x = [" + "1, " * 4000 + "]", 4000, None, False),
    ],
)
def test_a_prompt_whose_beginning_was_dropped_is_told(text: str, read: int, cached: int | None, warned: bool) -> None:
    reader = OPENAI.reader(request_to(member(base_url="http://127.0.0.1:11434"), ("user", text)))
    usage = {"prompt_tokens": read, "completion_tokens": 1, "cached_tokens": cached}
    reader.whole({"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}], "usage": usage})
    warnings = reader.reply().warnings
    assert bool(warnings) is warned
    if warned:
        assert "OLLAMA_CONTEXT_LENGTH" in warnings[0]
        assert f"{read:,} tokens" in warnings[0]


TEXTS = (
    LONG,
    "def f(x):\n    return {'a': x ** 2, 'b': [i for i in range(x)]}\n" * 40,
    "Zürich, Çeşme и Москва; мир! " * 50,
    "漢字かな交じり文は空白なしで書かれる。" * 30,
    "हिन्दी में लिखा हुआ एक वाक्य। " * 40,
    "3.14159 2,718 1e-9 0x1F\n" * 50,
    "the " * 900,
)


def test_a_script_without_blanks_counts_unless_it_repeats() -> None:
    rng = random.Random(7)
    varied = "".join(chr(rng.randrange(0x4E00, 0x9FA5)) for _ in range(1000))
    assert 300 < prompt_estimate([Message("user", varied)]) < 1000
    assert prompt_estimate([Message("user", varied[:1] * 1000)]) < 20
    assert prompt_estimate([Message("system", "two words"), Message("user", "and three, more")]) == 6


@pytest.mark.model
def test_the_estimate_is_below_what_a_real_tokenizer_counts() -> None:
    from transformers import AutoTokenizer

    file = weights(AgentSpec("s", "smollm2"))
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    for text in TEXTS:
        assert 0 < prompt_estimate([Message("user", text)]) <= len(tokenizer(text)["input_ids"])


# --- Models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"object": "list", "data": [{"id": "b"}, {"id": "a"}, {"id": "b"}]}, ("b", "a")),
        ({"models": [{"name": "qwen3:8b", "model": "qwen3:8b"}, {"name": "x"}]}, ("qwen3:8b", "x")),
        ([{"id": "chat", "type": "chat"}, {"id": "draw", "type": "image"}], ("chat",)),
        (["one", "two", 3, None, ""], ("one", "two")),
        ({"data": "odd"}, ()),
        ({"error": "no"}, ()),
        (None, ()),
        ("text", ()),
    ],
)
def test_models_are_listed_from_every_shape(body: Any, names: tuple[str, ...]) -> None:
    assert OPENAI.model_names(body) == names


def test_the_list_of_models_is_asked_for_below_the_base_url() -> None:
    call = OPENAI.models_call("http://127.0.0.1:11434", KEY)
    assert (call.url, call.body, call.headers) == (
        "http://127.0.0.1:11434/v1/models",
        None,
        {"Authorization": f"Bearer {KEY}"},
    )
    assert OPENAI.models_call("http://h/v1/chat/completions", None).url == "http://h/v1/models"


# --- The official client -----------------------------------------------------------------------------------------

RECORDED = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Grü"}),
    chunk({"content": "ße \u2028✓"}),
    chunk({"content": " two  blanks"}),
    END,
    {"id": "c-1", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}},
]
for value in RECORDED:
    value.update(object="chat.completion.chunk", created=1795955000, model="m")


@pytest.mark.parametrize(
    ("spec_options", "sampling", "same"),
    [
        ({}, {}, {"max_tokens": 4096}),
        (
            {"max_tokens_field": "max_completion_tokens", "stop": ["X", "Y"], "effort": "low"},
            {"max_tokens": 512, "temperature": 0.2, "top_p": 0.9, "seed": 1},
            {
                "max_completion_tokens": 512,
                "temperature": 0.2,
                "top_p": 0.9,
                "seed": 1,
                "stop": ["X", "Y"],
                "reasoning_effort": "low",
            },
        ),
        (
            {"server": "openrouter", "effort": "high", "extra_body": {"provider": {"sort": "price"}}},
            {"max_tokens": 7, "temperature": 0.0},
            {
                "max_tokens": 7,
                "temperature": 0.0,
                "extra_body": {"reasoning": {"effort": "high"}, "provider": {"sort": "price"}},
            },
        ),
        (
            {"server": "deepseek", "effort": "max"},
            {"max_tokens": 9},
            {"max_tokens": 9, "reasoning_effort": "max", "extra_body": {"thinking": {"type": "enabled"}}},
        ),
    ],
)
def test_the_official_client_sends_the_same_and_reads_the_same(
    spec_options: dict[str, Any], sampling: dict[str, Any], same: dict[str, Any]
) -> None:
    messages = [("system", "Be brief."), ("user", "q ✓"), ("assistant", "a"), ("user", "more")]
    with capturing(RECORDED) as server:
        base_url = f"{server.url}/v1"
        spec = member(base_url=base_url, **spec_options)
        reply = exchange(OPENAI, request_to(spec, *messages, sampling=Sampling(**sampling)), KEY)
        client = openai.OpenAI(base_url=base_url, api_key=KEY, max_retries=0)
        with client:
            create: Any = client.chat.completions.create
            answer = create(
                model="m",
                messages=[{"role": role, "content": text} for role, text in messages],
                stream=True,
                stream_options={"include_usage": True},
                **same,
            )
            chunks = list(answer)
    ours, theirs = server.seen
    assert ours.body == theirs.body
    assert ours.path == theirs.path == "/v1/chat/completions"
    assert ours.headers["authorization"] == theirs.headers["authorization"]
    assert reply.text == "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    usage = chunks[-1].usage
    assert usage is not None
    assert reply.usage == Usage(usage.prompt_tokens, usage.completion_tokens)
    assert reply.finish is Finish(
        next(c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason)
    )
