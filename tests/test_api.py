"""The endpoint under /v1 over real sockets: what it accepts, refuses, answers and streams, and who may call it."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from starlette.applications import Starlette

from tests.endpoint import AGENTS, FAULTS, Endpoint, Member, Rotation, broken_backbone, eventually, never, serving
from tests.fakes import FakePool
from trinity_core.agents.base import Wiring
from trinity_core.agents.keys import Keys
from trinity_core.agents.meter import Meter
from trinity_core.agents.remote.agent import RemoteAgent
from trinity_core.agents.remote.openai import OPENAI
from trinity_core.errors import AgentError
from trinity_core.session.loop import RunRequest, run
from trinity_core.session.methods import Methods
from trinity_core.types import (
    AgentSpec,
    AnyRunEvent,
    Brief,
    Message,
    Mode,
    Request,
    Role,
    Source,
    Status,
    StopReason,
)
from ui.api import Access, Api
from ui.api_answer import pieces

KEY = "a-key-of-this-test-alone"
Body = dict[str, Any]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with serving(tmp_path_factory.mktemp("api"), keepalive_s=0.05, server_id="this-server") as endpoint:
        yield endpoint


@pytest.fixture
def http_client(served: Endpoint) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=30) as client:
        yield client


def ask(*texts: str, model: str = "trinity", **more: Any) -> Body:
    """A chat request whose messages are the user's and the assistant's by turns."""
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    return {"model": model, "messages": messages, **more}


def chat(client: httpx.Client, body: Any, **more: Any) -> httpx.Response:
    return client.post("/v1/chat/completions", json=body, **more)


def respond(client: httpx.Client, body: Any, **more: Any) -> httpx.Response:
    return client.post("/v1/responses", json=body, **more)


def error_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The error of an answer, which must be the envelope and nothing else."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    assert body["error"]["type"]
    error: dict[str, Any] = body["error"]
    return error


def frames(client: httpx.Client, path: str, body: Body) -> list[str]:
    """The frames of a stream: comments, and the data of events."""
    with client.stream("POST", path, json={**body, "stream": True}) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = b"".join(answer.iter_bytes()).decode("utf-8")
    assert text.endswith("\n\n")
    return text[:-2].split("\n\n")


def data_of(stream: list[str]) -> list[Any]:
    """The JSON of the events, in order; comments and the end marker are left out."""
    lines = [line for frame in stream for line in frame.split("\n") if line.startswith("data: ")]
    return [json.loads(line[6:]) for line in lines if line != "data: [DONE]"]


# --- Models and paths ---------------------------------------------------------------------------------------


def test_the_models_are_the_whole_and_its_members(http_client: httpx.Client) -> None:
    listed = http_client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["trinity", *AGENTS]
    assert all(model["object"] == "model" and isinstance(model["created"], int) for model in listed["data"])
    assert http_client.get("/v1/models/beta").json() == listed["data"][2]


@pytest.mark.parametrize("name", ["gpt-4", "trinity2", "Trinity", "a/b", "single:alpha", "random", ""])
def test_an_unknown_model_is_named_beside_those_there_are(http_client: httpx.Client, name: str) -> None:
    if name:
        error = error_of(http_client.get(f"/v1/models/{name}"), 404)
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        error = error_of(chat(http_client, ask("Hi?", model=name)), 404)
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert all(known in error["message"] for known in ("trinity", *AGENTS))
    else:
        assert error_of(chat(http_client, ask("Hi?", model=name)), 400)["param"] == "model"


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/", "/v1/completions", "/v1/embeddings", "/v1/chat", "/v1/responses/x/y"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_an_unknown_path_answers_in_the_envelope_whatever_the_method(
    http_client: httpx.Client, path: str, method: str
) -> None:
    assert error_of(http_client.request(method, path), 404)["code"] == "not_found"


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/chat/completions"), ("DELETE", "/v1/models")])
def test_another_method_of_a_known_path_names_the_right_one(
    http_client: httpx.Client, method: str, path: str
) -> None:
    answer = http_client.request(method, path)
    error_of(answer, 405)
    assert answer.headers["allow"]


def test_the_page_is_still_served_beside_the_endpoint(http_client: httpx.Client) -> None:
    assert http_client.post("/gradio_api/queue/join", json={}).status_code == 403
    assert "Trinity" in http_client.get("/").text
    assert http_client.get("/v1x").headers["content-type"].startswith(("application/json", "text/"))


# --- What is asked ------------------------------------------------------------------------------------------


def test_the_whole_conversation_reaches_the_members(served: Endpoint, http_client: httpx.Client) -> None:
    answer = chat(http_client, ask("My number is 7.", "Noted, seven.", "Double it."))
    assert answer.status_code == 200
    requests = served.heard("My number is 7.")
    assert requests
    for request in requests:
        sent = "\n".join(message.content for message in request.messages)
        assert all(part in sent for part in ("My number is 7.", "Noted, seven.", "Double it."))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_roles_and_parts_become_one_conversation(served: Endpoint, http_client: httpx.Client, path: str) -> None:
    parts = [{"type": "text", "text": "Use"}, {"type": "input_text", "text": "metres."}]
    refusal = [{"type": "output_text", "text": "Well?"}, {"type": "refusal", "refusal": "No."}]
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": parts},
        {"role": "user", "content": [{"type": "input_text", "text": f"Roles over {path}."}]},
        {"role": "assistant", "content": refusal},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "Go on.", "name": "ann", "some_field": 1},
    ]
    field = "messages" if path.endswith("completions") else "input"
    answer = http_client.post(path, json={"model": "trinity", field: messages, "an_unknown_field": {"a": 1}})
    stored = served.run(answer.headers["x-request-id"])
    assert [(message.role, message.content) for message in stored.messages] == [
        ("system", "Be brief."),
        ("system", "Use\nmetres."),
        ("user", f"Roles over {path}."),
        ("assistant", "Well?\nNo."),
        ("user", "Go on."),
    ]


def test_a_system_message_at_the_end_stands_before_the_question(served: Endpoint, http_client: httpx.Client) -> None:
    messages = [{"role": "user", "content": "Why?"}, {"role": "system", "content": "Be kind."}]
    answer = chat(http_client, {"model": "trinity", "messages": messages})
    assert [m.role for m in served.run(answer.headers["x-request-id"]).messages] == ["system", "user"]


def test_tools_are_left_alone_and_their_results_are_text(served: Endpoint, http_client: httpx.Client) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}}
    messages = [
        {"role": "user", "content": "Do I need a coat?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "\x1b[31m-4 degrees\x1b[0m\x07"},
    ]
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
    answer = chat(http_client, {"model": "trinity", "messages": messages, "tools": tools, "tool_choice": "auto"})
    assert answer.status_code == 200, answer.text
    contents = [message.content for message in served.run(answer.headers["x-request-id"]).messages]
    assert contents[1] == 'Called the tool weather with: {"city":"Oslo"}'
    assert contents[2] == "Result of the tool weather:\n-4 degrees"


def test_a_picture_that_a_tool_gave_becomes_a_note(served: Endpoint, http_client: httpx.Client) -> None:
    output = [
        {"type": "input_text", "text": "The page:"},
        {"type": "input_image", "image_url": "data:image/png;base64,"},
    ]
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What does it show?"}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": output},
    ]
    answer = http_client.post("/v1/responses", json={"model": "trinity", "input": items})
    assert answer.status_code == 200, answer.text
    last = served.run(answer.headers["x-request-id"]).messages[-1]
    assert last.content == "Result of the tool look:\nThe page:\n[input_image: only text can be passed on]"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [{"role": "system", "content": "Reply in French."}]}, "messages"),
        ({"messages": [{"role": "user", "content": "  "}]}, "messages"),
        ({"messages": [{"role": "user", "content": None}]}, "messages"),
        ({"messages": [{"role": "user", "content": "x" * 100_001}]}, "messages"),
        ({"messages": [{"role": "user", "content": "a\x00b"}]}, "messages"),
        ({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}, "messages"),
        ({"messages": ["Hi"]}, "messages[0]"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, "messages[0].role"),
        ({"messages": [{"content": "Hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/"}}]}]},
            "messages[0].content[0]",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0]"),
        ({"n": 2}, "n"),
        ({"n": 0}, "n"),
        ({"n": "1"}, "n"),
        ({"model": None}, "model"),
        ({"model": ["trinity"]}, "model"),
        ({"stream": "yes"}, "stream"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 1.5}, "max_completion_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": "warm"}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"seed": 2**63}, "seed"),
        ({"seed": "x"}, "seed"),
        ({"reasoning_effort": "enormous"}, "reasoning_effort"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logprobs": True}, "logprobs"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"trinity": {"max_turns": 0}}, "trinity.max_turns"),
        ({"trinity": {"mode": "fixed"}}, "trinity.mode"),
        ({"trinity": {"reuse": 1}}, "trinity.reuse"),
        ({"trinity": {"max_turn": 3}}, "trinity.max_turn"),
        ({"trinity": 5}, "trinity"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_cannot_be_used_is_named_before_anything_begins(
    served: Endpoint, http_client: httpx.Client, change: Body, param: str, stream: bool
) -> None:
    calls, loads = served.calls(), []

    async def load() -> None:
        loads.append(1)

    served.load = load
    try:
        answer = chat(http_client, {**ask("Hi?"), "stream": stream, **change})
    finally:
        served.load = None
    error = error_of(answer, 400)
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert answer.headers["x-should-retry"] == "false"
    assert (served.calls(), loads) == (calls, [])


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": ""}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"role": "developer", "content": "Reply in French."}]}, "input"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[0].content[0]",
        ),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
        ({"previous_response_id": "resp_0"}, "previous_response_id"),
        ({"previous_response_id": "' or 1=1"}, "previous_response_id"),
        ({"previous_response_id": 5}, "previous_response_id"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort"),
        ({"background": True}, "background"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_response_that_cannot_be_made_names_the_field(
    served: Endpoint, http_client: httpx.Client, change: Body, param: str
) -> None:
    calls = served.calls()
    assert error_of(respond(http_client, {"model": "trinity", "input": "Hi?", **change}), 400)["param"] == param
    assert served.calls() == calls


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"text"', b"null", b"\xff\xfe{}", b'{"a": NaN}', b"[" * 9999, b'{"a": ' + b"9" * 5000 + b"}"],
    ids=["nothing", "cut", "list", "text", "null", "not UTF-8", "NaN", "deep", "long number"],
)  # fmt: skip
def test_a_body_that_is_no_json_object_says_so(http_client: httpx.Client, body: bytes) -> None:
    answer = http_client.post("/v1/chat/completions", content=body)
    assert error_of(answer, 400)["code"] == "invalid_json"


def test_a_body_that_is_too_large_is_refused_in_words(served: Endpoint, http_client: httpx.Client) -> None:
    calls = served.calls()
    answer = http_client.post("/v1/chat/completions", content=b'{"model": "' + b"x" * 10_000_001 + b'"}')
    assert error_of(answer, 413)["code"] == "request_too_large"
    assert served.calls() == calls


def test_a_json_body_is_read_whatever_its_content_type(http_client: httpx.Client) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = http_client.post("/v1/chat/completions", content=json.dumps(ask("Hi?")), headers=headers)
    assert answer.status_code == 200


def test_unpaired_surrogates_and_odd_characters_do_no_harm(http_client: httpx.Client) -> None:
    raw = b'{"model": "trinity", "messages": [{"role": "user", "content": "half \\ud83d of\\u2028it"}]}'
    content = http_client.post("/v1/chat/completions", content=raw).json()["choices"][0]["message"]["content"]
    assert "half \ufffd of\u2028it" in content
    raw = b'{"model": "\\ud83d", "messages": [{"role": "user", "content": "Hi"}]}'
    assert error_of(http_client.post("/v1/chat/completions", content=raw), 404)["code"] == "model_not_found"


def test_settings_reach_the_members(served: Endpoint, http_client: httpx.Client) -> None:
    body = ask(
        "Settings of a chat?", max_tokens=5, max_completion_tokens=77, temperature=0.5, top_p=0.9, seed=11,
        reasoning_effort="low", trinity={"max_turns": 2, "mode": "sample", "reuse": True},
    )  # fmt: skip
    stored = served.run(chat(http_client, body).headers["x-request-id"])
    sampling = served.heard("Settings of a chat?")[0].sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p) == (77, 0.5, 0.9)
    assert (sampling.seed, sampling.effort) == (11, "low")
    assert (stored.seed, stored.params.max_turns, stored.params.mode, stored.params.reuse) == (
        11,
        2,
        Mode.SAMPLE,
        True,
    )
    assert len(stored.turns) == 2
    body = {
        "model": "alpha", "input": "Settings of a response?", "max_output_tokens": 33, "temperature": None,
        "reasoning": {"effort": "high"}, "store": False, "include": ["reasoning.encrypted_content"],
    }  # fmt: skip
    assert respond(http_client, body).status_code == 200
    sampling = served.heard("Settings of a response?")[0].sampling
    assert (sampling.max_tokens, sampling.effort, sampling.temperature) == (33, "high", None)


# --- What is answered ---------------------------------------------------------------------------------------


def test_a_completion_has_every_standard_field_and_the_run_beside_them(
    served: Endpoint, http_client: httpx.Client
) -> None:
    answer = chat(http_client, ask("A plain question?"))
    body = answer.json()
    assert set(body) >= {"id", "object", "created", "model", "choices", "usage"}
    assert (body["object"], body["model"]) == ("chat.completion", "trinity")
    (choice,) = body["choices"]
    assert (choice["index"], choice["finish_reason"], choice["message"]["role"]) == (0, "stop", "assistant")
    assert choice["message"]["content"].startswith("You asked: A plain question?")
    usage = body["usage"]
    assert all(type(usage[name]) is int for name in ("prompt_tokens", "completion_tokens", "total_tokens"))
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (300, 60, 360)
    assert (usage["cost"], usage["turns"]) == (0.75, 3)
    told = body["trinity"]
    assert (told["status"], told["stop_reason"], told["flag"], told["cost"]) == ("done", "accepted", None, 0.75)
    assert [(turn["turn"], turn["agent"], turn["role"], turn["verdict"]) for turn in told["turns"]] == [
        (1, "beta", "thinker", None),
        (2, "alpha", "worker", None),
        (3, "gamma", "verifier", "accept"),
    ]
    assert told["turns"][0]["input_tokens"] == 100
    stored = served.run(told["run_id"])
    assert (stored.source, stored.owner, stored.method, stored.status) == (
        Source.API,
        "api",
        "coordinator",
        Status.DONE,
    )
    assert stored.answer == choice["message"]["content"]
    assert told["run_id"] == answer.headers["x-request-id"]
    assert told["run_id"] in body["id"]


def test_a_member_answers_alone_under_its_name(served: Endpoint, http_client: httpx.Client) -> None:
    body = chat(http_client, ask("Only you?", model="gamma")).json()
    assert body["model"] == "gamma"
    assert [(turn["agent"], turn["role"]) for turn in body["trinity"]["turns"]] == [("gamma", "worker")]
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["trinity"]["stop_reason"] == "turns_exhausted"
    assert served.run(body["trinity"]["run_id"]).method == "single:gamma"


@pytest.mark.parametrize(
    ("question", "finish", "reason"),
    [("Please revise it", "stop", "turns_exhausted"), ("cut it short", "length", "accepted")],
)
def test_the_finish_reason_tells_a_cut_answer_from_used_up_turns(
    http_client: httpx.Client, question: str, finish: str, reason: str
) -> None:
    body = chat(http_client, ask(question)).json()
    assert (body["choices"][0]["finish_reason"], body["trinity"]["stop_reason"]) == (finish, reason)
    last = data_of(frames(http_client, "/v1/chat/completions", ask(question)))[-1]
    assert last["choices"][0]["finish_reason"] == finish


def test_where_all_decline_the_content_is_what_they_say(http_client: httpx.Client) -> None:
    body = chat(http_client, ask("You will decline")).json()
    assert body["choices"][0]["message"]["content"] == "This is nothing I know about."
    assert body["trinity"]["flag"] == "no_answer"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("stop", "end"), [("STOP", "for you. "), (["zzz", "\nAnswer"], "STOP here."), ("zzz", "42")])
def test_the_answer_ends_before_a_stop_text(
    http_client: httpx.Client, stop: str | list[str], end: str, stream: bool
) -> None:
    body = ask("Where does it end?", stop=stop)
    if stream:
        chunks = data_of(frames(http_client, "/v1/chat/completions", body))
        content = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    else:
        content = chat(http_client, body).json()["choices"][0]["message"]["content"]
    assert content.endswith(end)


def test_a_response_has_reasoning_a_message_and_usage(http_client: httpx.Client) -> None:
    body = respond(http_client, {"model": "trinity", "input": "A response?", "metadata": {"a": "b"}}).json()
    assert (body["object"], body["status"], body["error"]) == ("response", "completed", None)
    assert body["metadata"] == {"a": "b"}
    reasoning, message = body["output"]
    assert reasoning["type"] == "reasoning"
    assert [part["text"].split("\n")[0] for part in reasoning["summary"]] == [
        "[turn 1] beta as thinker",
        "[turn 2] alpha as worker",
        "[turn 3] gamma as verifier",
    ]
    assert (message["type"], message["role"], message["status"]) == ("message", "assistant", "completed")
    assert message["content"][0]["text"].startswith("You asked: A response?")
    usage = body["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (300, 60, 360)
    assert usage["output_tokens_details"]["reasoning_tokens"] == 0
    assert body["trinity"]["stop_reason"] == "accepted"


def test_a_cut_response_is_incomplete(http_client: httpx.Client) -> None:
    body = respond(http_client, {"model": "trinity", "input": "cut it"}).json()
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    last = data_of(frames(http_client, "/v1/responses", {"model": "trinity", "input": "cut it"}))[-1]
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "incomplete")


def test_a_response_can_be_continued(served: Endpoint, http_client: httpx.Client) -> None:
    body = {"model": "trinity", "input": "My number is 9.", "instructions": "Be brief."}
    first = respond(http_client, body).json()
    body = {
        "model": "trinity",
        "input": "Double it.",
        "previous_response_id": first["id"],
        "instructions": "Be long.",
    }
    second = respond(http_client, body).json()
    assert second["previous_response_id"] == first["id"]
    messages = served.run(second["trinity"]["run_id"]).messages
    assert [message.role for message in messages] == ["system", "user", "assistant", "user"]
    assert [messages[0].content, messages[1].content, messages[3].content] == [
        "Be long.",
        "My number is 9.",
        "Double it.",
    ]
    assert messages[2].content == first["output"][-1]["content"][0]["text"]


def test_items_that_mean_nothing_here_are_told(served: Endpoint, http_client: httpx.Client) -> None:
    items = [
        {"role": "user", "content": "Which?"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "a.txt"}]},
        {"type": "custom_tool_call", "call_id": "d", "name": "patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": "done"},
        {"type": "newfangled_item", "x": 1},
        {"type": "message", "role": "user", "content": "Go on."},
    ]
    body = respond(http_client, {"model": "trinity", "input": items}).json()
    assert [m.content for m in served.run(body["trinity"]["run_id"]).messages] == [
        "Which?",
        "Called the tool ls with: {}",
        "Result of the tool ls:\na.txt",
        "Called the tool patch with: *** Begin",
        "Result of the tool patch:\ndone",
        "Go on.",
    ]
    assert [note["kind"] for note in body["trinity"]["notes"]] == ["left_out"]
    assert "newfangled_item" in body["trinity"]["notes"][0]["message"]


# --- Streams ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("usage", [False, True])
def test_a_chat_stream_thinks_then_answers_then_says_how_it_ended(http_client: httpx.Client, usage: bool) -> None:
    options: Body = {"stream_options": {"include_usage": True}} if usage else {}
    stream = frames(http_client, "/v1/chat/completions", ask("think again and stream?", **options))
    assert stream[-1] == "data: [DONE]"
    chunks = data_of(stream)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    if usage:
        last = chunks.pop()
        assert last["choices"] == []
        assert last["usage"]["total_tokens"] == 360
        assert all(chunk["usage"] is None for chunk in chunks)
    else:
        assert chunks[-1]["usage"]["total_tokens"] == 360
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[-2:]] == [None, "stop"]
    assert chunks[-1]["trinity"]["stop_reason"] == "accepted"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[1:]]
    kinds = ["thought" if "reasoning_content" in delta else "content" for delta in deltas if delta]
    assert kinds == sorted(kinds, reverse=True), "all reasoning comes before the answer"
    thought = "".join(delta.get("reasoning_content", "") for delta in deltas)
    assert thought == "".join(delta.get("reasoning", "") for delta in deltas)
    for part in (
        "[turn 1] beta as thinker\n",
        "Thinking it over.\n",
        "[the reply starts again]",
        "[verdict: accept]",
    ):
        assert part in thought
    content = "".join(delta.get("content", "") for delta in deltas)
    assert content == chat(http_client, ask("think again and stream?")).json()["choices"][0]["message"]["content"]
    assert kinds.count("content") > 1


def test_the_role_comes_at_once_and_comments_while_nothing_happens(served: Endpoint) -> None:
    served.load = never
    began = time.monotonic()
    try:
        with httpx.Client(timeout=5) as client:
            body = ask("Are you there?", stream=True)
            with client.stream("POST", f"{served.base}/chat/completions", json=body) as answer:
                parts = answer.iter_text()
                assert '"role":"assistant"' in next(parts)
                assert time.monotonic() - began < 3.0
                text = ""
                while text.count("\n\n") < 3:
                    text += next(parts)
                assert set(text.split("\n\n")) == {": still coordinating", ""}
    finally:
        served.load = None


def test_the_events_of_a_response_stream_are_whole_and_in_order(http_client: httpx.Client) -> None:
    stream = frames(http_client, "/v1/responses", {"model": "trinity", "input": "think and stream?"})
    events = data_of(stream)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    spoken = [frame for frame in stream if not frame.startswith(":")]
    assert all(frame.startswith(f"event: {event['type']}\n") for frame, event in zip(spoken, events, strict=True))
    kinds = [event["type"].removeprefix("response.") for event in events]
    short = [kind for n, kind in enumerate(kinds) if n == 0 or kind != kinds[n - 1]]
    turn = ["reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.done",
            "reasoning_summary_part.done"]  # fmt: skip
    assert short == [
        "created", "in_progress", "output_item.added", *turn * 3, "output_item.done", "output_item.added",
        "content_part.added", "output_text.delta", "output_text.done", "content_part.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    for place in (0, 1, 2):
        mine = [event for event in events if event.get("summary_index") == place]
        deltas = "".join(event["delta"] for event in mine if "delta" in event)
        done = next(event["text"] for event in mine if "text" in event)
        assert deltas.rstrip() == done
    text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    final = events[-1]["response"]
    assert text == final["output"][1]["content"][0]["text"] == events[-2]["item"]["content"][0]["text"]
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == final["output"]
    assert final["usage"]["total_tokens"] == 360


@pytest.mark.parametrize(
    "text", ["", " ", "\n", "one", " one  two\n\nthree ", "word " * 200, "x" * 500, "a\u2028b 👍"]
)
def test_the_pieces_of_an_answer_are_the_answer(text: str) -> None:
    assert "".join(pieces(text)) == text
    assert all(pieces(text))


# --- Failures -----------------------------------------------------------------------------------------------

STATUS = {"broken": 502, "crowded": 429, "broke": 402, "endless": 504, "overlong": 400, "leaky": 502, "later": 502}


@pytest.mark.parametrize(("word", "status"), STATUS.items())
@pytest.mark.parametrize("model", ["trinity", "alpha"])
def test_a_failed_run_has_a_status_that_means_its_cause(
    served: Endpoint, http_client: httpx.Client, word: str, status: int, model: str
) -> None:
    answer = chat(http_client, ask(f"{word} please", model=model))
    error = error_of(answer, status)
    assert answer.headers["x-should-retry"] == "false"
    run_id = answer.headers["x-request-id"]
    assert run_id in error["message"]
    assert served.run(run_id).id == run_id
    if word not in ("broke",):
        assert "upstream error" in error["message"]
        assert "alpha as worker" in error["message"] or "beta as thinker" in error["message"]
    assert (
        error_of(respond(http_client, {"model": model, "input": f"{word} please"}), status)["code"] == error["code"]
    )


@pytest.mark.parametrize("word", sorted(FAULTS))
@pytest.mark.parametrize("path", ["chat/completions", "responses"])
@pytest.mark.parametrize("stream", [False, True])
def test_no_error_tells_a_key_or_an_address(served: Endpoint, word: str, path: str, stream: bool) -> None:
    body = {**ask(f"{word} please"), "input": f"{word} please", "stream": stream}
    text = httpx.post(f"{served.base}/{path}", json=body, timeout=30).text
    for secret in ("AIza", "x.example", "10.1.2.3", "RuntimeError", "Traceback"):
        assert secret not in text
    assert "error" in text


@pytest.mark.parametrize("word", ["later", "broken", "leaky"])
def test_a_chat_stream_that_fails_ends_with_the_error_and_no_end_marker(http_client: httpx.Client, word: str) -> None:
    stream = frames(http_client, "/v1/chat/completions", ask(f"{word} please"))
    last = data_of(stream)[-1]
    assert set(last) == {"error"}
    assert "upstream error" in last["error"]["message"]
    assert last["error"]["should_retry"] is False
    assert stream[-1].startswith('data: {"error"')
    thoughts = "".join(c["choices"][0]["delta"].get("reasoning", "") for c in data_of(stream)[:-1])
    assert "[failed: " in thoughts
    if word == "later":
        assert "one two three" in thoughts, "what had arrived is there"


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("later", "server_error"),
        ("overlong", "invalid_prompt"),
        ("crowded", "rate_limit_exceeded"),
        ("broke", "insufficient_quota"),
    ],
)
def test_a_response_stream_that_fails_says_so_twice(http_client: httpx.Client, word: str, code: str) -> None:
    events = data_of(frames(http_client, "/v1/responses", {"model": "trinity", "input": f"{word} please"}))
    failed, error = events[-2:]
    assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")
    assert failed["response"]["error"]["code"] == code
    assert (error["type"], error["message"]) == ("error", failed["response"]["error"]["message"])
    assert error["error"]["message"] == error["message"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


async def test_a_member_elsewhere_that_failed_after_its_own_attempts_is_asked_once(served: Endpoint) -> None:
    spec = AgentSpec("far", "openai", "trinity", base_url=served.base)
    member = RemoteAgent(spec, OPENAI, Wiring(Keys(use_keyring=False), Meter()))
    question = (Message("user", "later, from another server"),)
    with pytest.raises(AgentError, match="upstream error in turn 2") as caught:
        async for _ in member.stream(Request(spec, question, Brief(Role.WORKER, question))):
            pass
    await member.aclose()
    assert caught.value.calls == 1


class OneBatch:
    """Runs whose events all come at once, as for a reader that was away meanwhile."""

    def __init__(self, *members: Member) -> None:
        self.pool = FakePool(*members)
        self.request: RunRequest | None = None

    async def start(self, request: RunRequest, *, wait_s: float) -> str:
        self.request = request
        return request.run_id

    async def tail(self, run_id: str, owner: str, *, beat_s: float) -> AsyncGenerator[tuple[AnyRunEvent, ...], None]:
        assert self.request is not None
        events = run(self.request, self.pool, Rotation(), asyncio.Event())
        yield tuple([event async for event in events])

    def stop(self, run_id: str, owner: str) -> bool:
        return False


@pytest.mark.parametrize("word", ["later", "hello"])
async def test_no_event_is_lost_when_all_come_at_once(word: str) -> None:
    members = [Member(name) for name in AGENTS]
    runs = OneBatch(*members)
    api = Api(Methods(runs.pool, cast(Any, None)), cast(Any, runs), cast(Any, None), Access())
    transport = httpx.ASGITransport(app=Starlette(routes=api.routes()))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answer = await client.post("/v1/chat/completions", json=ask(word, stream=True))
    for part in ("[turn 1] beta as thinker", "[turn 2] alpha as worker"):
        assert part in answer.text
    assert ("one " in answer.text and '"error"' in answer.text) is (word == "later")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_reads_nothing_does_not_keep_its_place(
    monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setattr("ui.api.STALL_S", 0.05)
    runs = OneBatch(*(Member(name) for name in AGENTS))
    api = Api(Methods(runs.pool, cast(Any, None)), cast(Any, runs), cast(Any, None), Access())
    came: asyncio.Queue[Any] = asyncio.Queue()
    came.put_nowait({"type": "http.request", "body": json.dumps(ask("Hi?", stream=stream)).encode()})
    held: list[int] = []

    async def send(message: Any) -> None:
        held.append(api.live)
        await asyncio.sleep(3600)

    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "root_path": "/v1", "headers": []}
    async with asyncio.timeout(5):
        await api({**scope, "query_string": b""}, came.get, send)
    assert held == [1]
    assert api.live == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_coordinator_that_does_not_load_is_a_503_and_members_still_answer(
    served: Endpoint, http_client: httpx.Client, stream: bool
) -> None:
    served.load = broken_backbone
    try:
        error = error_of(chat(http_client, ask("Hi?", stream=stream)), 503)
        assert error["code"] == "coordinator_unavailable"
        assert "half-converted" in error["message"]
        assert chat(http_client, ask("Hi?", model="beta")).status_code == 200
    finally:
        served.load = None


def test_a_coordinator_that_fails_to_load_late_ends_the_stream_with_an_error(
    served: Endpoint, http_client: httpx.Client
) -> None:
    async def late() -> None:
        await asyncio.sleep(0.5)
        await broken_backbone()

    served.load = late
    try:
        last = data_of(frames(http_client, "/v1/chat/completions", ask("Hi?")))[-1]
    finally:
        served.load = None
    assert last["error"]["code"] == "coordinator_unavailable"


# --- Clients that go away, and many at once -----------------------------------------------------------------


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("word", ["slow", "stall"])
def test_a_client_that_goes_away_ends_its_run_at_once(served: Endpoint, path: str, stream: bool, word: str) -> None:
    question = f"{word} and gone {path} {stream}"
    body = json.dumps({**ask(question), "input": question, "stream": stream})
    connection = http.client.HTTPConnection("127.0.0.1", served.port)
    connection.request("POST", f"/v1/{path}", body, {"content-type": "application/json"})
    assert eventually(lambda: bool(served.heard(question)))
    if stream:
        connection.getresponse().read(20)
    assert connection.sock is not None
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
    closed = lambda: sum(member.closed for member in served.members) == served.calls()  # noqa: E731
    assert eventually(closed, 3.0), "the member's call goes on"
    calls = served.calls()
    time.sleep(0.15)
    assert served.calls() == calls
    runs = [served.run(row.id) for row in served.store.list_runs(_everything()).rows if question in row.question]
    assert eventually(lambda: served.run(runs[0].id).status is Status.CANCELLED)
    assert served.run(runs[0].id).stop_reason is StopReason.CANCELLED


def test_a_client_that_goes_away_while_the_coordinator_loads_leaves_no_run(served: Endpoint) -> None:
    waiting = threading.Event()
    ended = threading.Event()

    async def load() -> None:
        waiting.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    served.load = load
    try:
        with socket.create_connection(("127.0.0.1", served.port)) as connection:
            body = json.dumps(ask("Never mind?")).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            assert waiting.wait(5)
        assert ended.wait(2)
    finally:
        served.load = None


async def test_fifty_streams_at_once_all_end_well(served: Endpoint) -> None:
    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None)) as client:

        async def one(number: int) -> str:
            text = ""
            body = ask(f"Question number {number}?", stream=True)
            async with client.stream("POST", f"{served.base}/chat/completions", json=body) as answer:
                assert answer.status_code == 200
                async for part in answer.aiter_text():
                    text += part
            return text

        texts = await asyncio.gather(*(one(number) for number in range(50)))
    for number, text in enumerate(texts):
        assert text.endswith("data: [DONE]\n\n")
        assert f"Question number {number}?" in text
        assert text.count("Question number ") == text.count(f"Question number {number}?")


async def test_one_run_more_than_are_allowed_is_told_to_wait(served: Endpoint) -> None:
    async with httpx.AsyncClient(timeout=30, limits=httpx.Limits(max_connections=None)) as client:
        url = f"{served.base}/chat/completions"
        tasks = [asyncio.create_task(client.post(url, json=ask(f"stall in a crowd {n}"))) for n in range(64)]
        try:
            assert await asyncio.to_thread(eventually, lambda: len(served.heard("stall in a crowd")) >= 64, 20.0)
            answer = await client.post(url, json=ask("One more?"))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert error_of(answer, 429)["code"] == "too_many_runs"
        assert answer.headers["retry-after"] == "1"
        assert "x-should-retry" not in answer.headers
        for _ in range(200):
            answer = await client.post(url, json=ask("One more?"))
            if answer.status_code == 200:
                break
            await asyncio.sleep(0.02)
        assert answer.status_code == 200, "places are given back"


def _everything() -> Any:
    from storage.store import RunQuery

    return RunQuery(all_owners=True)


# --- Who may call -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"x-trinity-via": "this-server"}, True),
        ({"x-trinity-via": "another, this-server"}, True),
        ({"x-trinity-depth": "3"}, True),
        ({"x-trinity-via": "a,b,c"}, True),
        ({"x-trinity-depth": "99999999999999999999"}, True),
        ({"x-trinity-depth": "1, 3"}, True),
        ({"x-trinity-via": "another", "x-trinity-depth": "1"}, False),
        ({"x-trinity-depth": "many", "x-trinity-via": "a bad name;"}, False),
        ({}, False),
    ],
)
def test_a_question_that_goes_round_is_refused_and_the_others_are_passed_on(
    served: Endpoint, http_client: httpx.Client, headers: dict[str, str], refused: bool
) -> None:
    question = f"Round and round with {headers}?"
    answer = chat(http_client, ask(question), headers=headers)
    if refused:
        error = error_of(answer, 400)
        assert error["code"] == "trinity_loop"
        assert "base_url" in error["message"]
        assert served.heard(question) == []
        return
    assert answer.status_code == 200
    via = ("another",) if "another" in headers.get("x-trinity-via", "") else ()
    assert {request.via for request in served.heard(question)} == {via}


def test_hops_are_counted_over_all_lines_and_without_names(served: Endpoint) -> None:
    question = "How deep is this?"
    lines = [("x-trinity-via", "one"), ("x-trinity-via", "two"), ("x-trinity-via", "three")]
    deep = httpx.post(f"{served.base}/chat/completions", json=ask(question), headers=lines)
    assert error_of(deep, 400)["code"] == "trinity_loop"
    assert served.heard(question) == []
    nameless = httpx.post(f"{served.base}/chat/completions", json=ask(question), headers={"x-trinity-depth": "2"})
    assert nameless.status_code == 200
    assert {len(request.via) for request in served.heard(question)} == {2}, "a depth without names is passed on"


def test_a_body_that_does_not_come_is_not_waited_for_for_ever(
    served: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ui.api.BODY_S", 0.1)
    with socket.create_connection(("127.0.0.1", served.port), timeout=5) as peer:
        peer.sendall(
            f"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1:{served.port}\r\ncontent-length: 99\r\n\r\n{{".encode()
        )
        came = b""
        while part := peer.recv(65536):
            came += part
    assert came.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"request_timeout"' in came


@pytest.mark.parametrize("origin", ["https://other.example", "null", "http://127.0.0.1:1"])
def test_another_site_is_refused_in_the_envelope(served: Endpoint, http_client: httpx.Client, origin: str) -> None:
    calls = served.calls()
    assert error_of(chat(http_client, ask("Hi?"), headers={"origin": origin}), 403)["code"] == "origin_refused"
    assert error_of(http_client.get("/v1/models", headers={"origin": origin}), 403)["code"] == "origin_refused"
    assert error_of(chat(http_client, ask("Hi?"), headers={"host": "evil.example"}), 400)["code"] == "host_refused"
    assert served.calls() == calls


def test_the_api_reads_no_token_and_other_paths_still_need_one(http_client: httpx.Client) -> None:
    for path in ("/v1/../gradio_api/queue/join", "/V1/chat/completions", "//v1/models"):
        answer = http_client.post(httpx.URL(http_client.base_url, raw_path=path.encode()), json={})
        assert answer.status_code in (403, 404)


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    home = tmp_path_factory.mktemp("keyed")
    with serving(home, api_key=KEY, auth=("ann", "correct horse")) as endpoint:
        yield endpoint


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", KEY, f"Basic {KEY}", "Bearer \xe4\xf6"],
)
def test_without_the_key_nobody_is_told_anything(keyed: Endpoint, header: str | None) -> None:
    headers = {} if header is None else {b"authorization": header.encode("latin-1")}
    for method, path in (
        ("GET", "/models"),
        ("POST", "/chat/completions"),
        ("POST", "/responses"),
        ("GET", "/nothing"),
    ):
        answer = httpx.request(method, keyed.base + path, headers=headers, json=ask("Hi?"))
        assert error_of(answer, 401)["code"] == "invalid_api_key"
        assert answer.headers["www-authenticate"] == "Bearer"
        assert KEY not in answer.text
    assert keyed.calls() == 0


def test_with_the_key_the_runs_belong_to_the_login(keyed: Endpoint) -> None:
    headers = {"authorization": f"bearer {KEY}"}
    answer = httpx.post(f"{keyed.base}/chat/completions", json=ask("Whose?"), headers=headers)
    assert answer.status_code == 200
    assert keyed.run(answer.headers["x-request-id"]).owner == "user:ann"
    for file in keyed.store_files():
        assert KEY.encode() not in file.read_bytes()


def test_a_key_of_other_letters_works_as_the_bytes_that_it_is(tmp_path: Path) -> None:
    key = "schlüssel-für-åäö-öäå"
    with serving(tmp_path / "letters", api_key=key) as endpoint:
        right, wrong = (f"Bearer {each}".encode() for each in (key, key.replace("å", "a")))
        assert httpx.get(f"{endpoint.base}/models", headers={b"authorization": right}).status_code == 200
        error_of(httpx.get(f"{endpoint.base}/models", headers={b"authorization": wrong}), 401)


def test_a_login_without_a_key_closes_the_endpoint(tmp_path: Path) -> None:
    with serving(tmp_path / "closed", auth=("ann", "correct horse")) as endpoint:
        error = error_of(httpx.post(f"{endpoint.base}/chat/completions", json=ask("Hi?")), 401)
        assert "--api-key-env" in error["message"]
        error_of(httpx.get(f"{endpoint.base}/models"), 401)


def test_stopping_the_server_ends_an_open_stream_with_an_error(tmp_path: Path) -> None:
    with httpx.Client(timeout=30) as client, serving(tmp_path / "ending") as endpoint:
        request = client.build_request("POST", f"{endpoint.base}/chat/completions", json=ask("stall", stream=True))
        answer = client.send(request, stream=True)
        parts = answer.iter_text()
        assert '"role"' in next(parts)
        assert eventually(lambda: endpoint.calls() > 0)
        began = time.monotonic()
        endpoint.stop.set()
        rest = "".join(parts)
        assert time.monotonic() - began < 3.0
    assert '"code":"run_cancelled"' in rest
    assert "[DONE]" not in rest
