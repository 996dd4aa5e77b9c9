"""Clients that know nothing of Trinity, unmodified, against the endpoint: the official `openai` client, the `llm`
command, LiteLLM where it is installed, and requests shaped like Codex's."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response

from tests.endpoint import AGENTS, Endpoint, eventually, serving

ROOT = Path(__file__).resolve().parent.parent
KEY = "a-key-of-this-test-alone"
CONTENT = "Smørrebrød \u2028 and 👍 for you."
LITELLM = Path(os.environ.get("TRINITY_LITELLM_PYTHON") or ROOT / ".cache" / "peers" / "litellm" / "bin" / "python")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    with serving(tmp_path_factory.mktemp("clients"), keepalive_s=0.05, api_key=KEY) as endpoint:
        yield endpoint


@pytest.fixture
def client(served: Endpoint) -> Iterator[OpenAI]:
    with OpenAI(base_url=served.base, api_key=KEY, max_retries=2) as client:
        yield client


@pytest.fixture
def asynchronous(served: Endpoint) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=served.base, api_key=KEY)


# --- The official client ------------------------------------------------------------------------------------


def test_openai_lists_models(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["trinity", *AGENTS]
    assert client.models.retrieve("alpha").id == "alpha"
    with pytest.raises(openai.NotFoundError, match="trinity, alpha"):
        client.models.retrieve("gpt-4")


def test_openai_chat_is_a_typed_completion(served: Endpoint, client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="trinity", messages=[{"role": "user", "content": "Typed?"}], extra_body={"trinity": {"max_turns": 2}}
    )
    made = raw.parse()
    assert CONTENT in (made.choices[0].message.content or "")
    assert made.choices[0].finish_reason == "stop"
    assert made.usage is not None
    assert (made.usage.prompt_tokens, made.usage.completion_tokens, made.usage.total_tokens) == (200, 40, 240)
    assert made.usage.prompt_tokens_details is not None
    assert made.usage.prompt_tokens_details.cached_tokens == 80
    told: Any = made.model_extra
    assert len(told["trinity"]["turns"]) == 2
    assert made.model_dump(warnings="error")["object"] == "chat.completion"
    assert served.run(raw.headers["x-request-id"]).answer == made.choices[0].message.content


def test_openai_chat_streams_thoughts_and_content(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model="trinity",
        messages=[{"role": "user", "content": "think and stream?"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    thought = "".join(getattr(c.choices[0].delta, "reasoning_content", None) or "" for c in chunks if c.choices)
    content = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert "[turn 2] alpha as worker" in thought
    assert content.startswith("You asked: think and stream?")
    assert content.endswith("Answer: 42")
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 360


def test_openai_accumulates_a_streamed_completion(client: OpenAI) -> None:
    with client.chat.completions.stream(model="trinity", messages=[{"role": "user", "content": "Sum up?"}]) as stream:
        stream.until_done()
        final = stream.get_final_completion()
    assert CONTENT in (final.choices[0].message.content or "")


def test_openai_response_is_typed(client: OpenAI) -> None:
    made = client.responses.create(
        model="trinity", input="Typed?", instructions="Be brief.", reasoning={"effort": "low"}
    )
    assert CONTENT in made.output_text
    assert [item.type for item in made.output] == ["reasoning", "message"]
    assert made.usage is not None
    assert made.usage.total_tokens == 360
    Response.model_validate(made.to_dict())
    second = client.responses.create(model="trinity", input="And now?", previous_response_id=made.id)
    assert second.status == "completed"
    body = client.responses.create(
        model="trinity",
        input=[*made.to_dict()["output"], {"role": "user", "content": "On."}],  # type: ignore[misc]
    )
    assert body.status == "completed", "what was answered can be sent back as it is"


def test_openai_response_streams_typed_events(client: OpenAI) -> None:
    with client.responses.stream(model="trinity", input="think and stream?") as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text
    assert CONTENT in text


def test_openai_raises_what_went_wrong(served: Endpoint, client: OpenAI) -> None:
    ask: Any = {"model": "trinity", "messages": [{"role": "user", "content": "broken please"}]}
    calls = served.calls()
    with pytest.raises(openai.InternalServerError, match="upstream error"):
        client.chat.completions.create(**ask)
    assert served.calls() == calls + 3, "the client does not try again what was tried again already"
    with pytest.raises(openai.APIError, match="upstream error"):
        list(client.chat.completions.create(**ask, stream=True))
    with pytest.raises(openai.APIError, match="upstream error"):
        list(client.responses.create(model="trinity", input="broken please", stream=True))
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="trinity", messages=[])
    assert refused.value.param == "messages"
    with pytest.raises(openai.AuthenticationError):
        OpenAI(base_url=served.base, api_key="wrong").models.list()


async def test_openai_asynchronous(served: Endpoint, asynchronous: AsyncOpenAI) -> None:
    async with asynchronous as client:
        chat, response = await asyncio.gather(
            client.chat.completions.create(model="beta", messages=[{"role": "user", "content": "Both?"}]),
            client.responses.create(model="trinity", input="Both?"),
        )
        assert CONTENT in (chat.choices[0].message.content or "")
        assert CONTENT in response.output_text
        events = [
            event.type async for event in await client.responses.create(model="trinity", input="S?", stream=True)
        ]
        assert events[-1] == "response.completed"
        stream = await client.chat.completions.create(
            model="trinity", messages=[{"role": "user", "content": "slow and closed early"}], stream=True
        )
        async for _ in stream:
            break
        await stream.close()
    done = lambda: sum(member.closed for member in served.members) == served.calls()  # noqa: E731
    assert await asyncio.to_thread(eventually, done, 2.0), "closing the stream ends the run"


# --- The llm command ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["chat", "responses"])
@pytest.mark.parametrize("option", [[], ["--no-stream"]], ids=["stream", "whole"])
def test_the_llm_command(served: Endpoint, tmp_path: Path, option: list[str], kind: str) -> None:
    model: dict[str, Any] = {
        "model_id": "ours",
        "model_name": "trinity",
        "api_base": served.base,
        "api_key_name": "ours",
    }
    model |= {"responses": True} if kind == "responses" else {}
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps([model]))
    (tmp_path / "keys.json").write_text(json.dumps({"ours": KEY}))
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "LLM_LOAD_PLUGINS": "", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "llm", "-m", "ours", *option, "--usage", f"{kind} with {option}?"]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr.decode()
    answer = done.stdout.decode()
    assert CONTENT in answer
    assert answer.count("Answer: 42") == 1, "the turns are no part of the answer"
    assert "300 input" in done.stderr.decode()
    if (kind, option) != ("chat", []):
        return
    failing = [*command[:-1], "later please"]
    done = subprocess.run(failing, capture_output=True, env=environment, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode != 0
    assert "upstream error" in done.stderr.decode()


# --- LiteLLM ------------------------------------------------------------------------------------------------

_LITELLM_SCRIPT = """
import json, sys
import litellm
base, key = sys.argv[1:]
common = {"api_base": base, "api_key": key, "num_retries": 0}
found = {}
for provider in ("openai", "hosted_vllm"):
    ask = [{"role": "user", "content": "Through LiteLLM?"}]
    whole = litellm.completion(model=provider + "/trinity", messages=ask, **common)
    stream = litellm.completion(model=provider + "/trinity", messages=ask, stream=True, **common)
    deltas = [chunk.choices[0].delta for chunk in stream]
    thought = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    errors = []
    for streamed in (False, True):
        try:
            bad = [{"role": "user", "content": "later please"}]
            made = litellm.completion(model=provider + "/trinity", messages=bad, stream=streamed, **common)
            list(made)
        except Exception as error:
            errors.append(str(error))
    found[provider] = {
        "whole": whole.choices[0].message.content,
        "reasoning": whole.choices[0].message.reasoning_content,
        "tokens": whole.usage.total_tokens,
        "stream": "".join(delta.content or "" for delta in deltas),
        "thought": thought,
        "errors": errors,
    }
response = litellm.responses(model="openai/trinity", input="Through LiteLLM?", **common)
found["response"] = response.output[-1].content[0].text
print("FOUND" + json.dumps(found))
"""


@pytest.mark.skipif(not LITELLM.exists(), reason="LiteLLM has an environment of its own, which is not here")
def test_litellm(served: Endpoint) -> None:
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"}
    command = [str(LITELLM), "-c", _LITELLM_SCRIPT, served.base, KEY]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.split("FOUND")[1])
    assert CONTENT in found["response"]
    for provider in ("openai", "hosted_vllm"):
        one = found[provider]
        assert CONTENT in one["whole"]
        assert one["stream"] == one["whole"]
        assert one["tokens"] == 360
        assert one["thought"].count("[turn 2] alpha as worker") == 1
        assert "[turn 1] beta as thinker" in one["reasoning"]
        assert len(one["errors"]) == 2
        assert all("upstream error" in error for error in one["errors"])


# --- Codex --------------------------------------------------------------------------------------------------


def codex(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A request with the fields and the size of Codex's."""
    text = lambda role, value: {"type": "message", "role": role, "content": [{"type": "input_text", "text": value}]}  # noqa: E731
    tools = [
        {"type": "function", "name": "shell", "strict": False, "parameters": {"type": "object", "properties": {}}},
        {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
        {"type": "web_search", "external_web_access": False},
    ]
    return {
        "model": "trinity",
        "instructions": "You are a coding agent. " * 1500,
        "stream": True,
        "input": [
            text("developer", "<permissions>Sandboxed.</permissions>"),
            text("user", "<environment_context><cwd>/src</cwd></environment_context>"),
            text("user", "Say what 6 times 7 is."),
            *items,
        ],
        "tools": tools,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "xhigh", "summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199",
        "client_metadata": {"x-codex-installation-id": "0"},
        "text": {"verbosity": "medium"},
        **more,
    }


def events_of(served: Endpoint, body: dict[str, Any]) -> list[dict[str, Any]]:
    headers = {"authorization": f"Bearer {KEY}", "accept": "text/event-stream", "originator": "codex_cli_rs"}
    answer = httpx.post(f"{served.base}/responses", json=body, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    return [json.loads(line[6:]) for line in answer.text.split("\n") if line.startswith("data: ")]


def test_a_request_of_codex_ends_in_a_whole_message(served: Endpoint) -> None:
    events = events_of(served, codex())
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == ["reasoning", "message"]
    assert done[1]["content"][0]["type"] == "output_text"
    assert CONTENT in done[1]["content"][0]["text"]
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"]["id"].startswith("resp_")
    run = served.run(events[-1]["response"]["trinity"]["run_id"])
    assert [message.role for message in run.messages] == ["system", "system", "user", "user"]
    assert run.question == "Say what 6 times 7 is."
    assert run.params.sampling.effort == "xhigh"


def test_a_conversation_of_codex_goes_on(served: Endpoint) -> None:
    first = events_of(served, codex())
    answered = [event["item"] for event in first if event["type"] == "response.output_item.done"]
    more = [
        *answered,
        {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "call_1"},
        {"type": "function_call_output", "call_id": "call_1", "output": "\x1b[1ma.py\x1b[0m"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And twice that?"}]},
    ]
    last = events_of(served, codex(*more))[-1]
    assert last["type"] == "response.completed"
    run = served.run(last["response"]["trinity"]["run_id"])
    contents = [message.content for message in run.messages[3:]]
    assert contents[1].startswith("You asked: ")
    assert contents[2:] == [
        'Called the tool shell with: {"command":["ls"]}',
        "Result of the tool shell:\na.py",
        "And twice that?",
    ]


def test_a_failure_reaches_codex_as_a_failed_response(served: Endpoint) -> None:
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "overlong please"}]}
    events = events_of(served, codex(message))
    assert [event["type"] for event in events[-2:]] == ["response.failed", "error"]
    assert events[-2]["response"]["error"]["code"] == "invalid_prompt", "Codex does not send it again"
