"""What is offered: keys by name only, servers that answer as one does, and lists of models with their failures."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from tests.modelserver import Script, serving
from trinity_core.agents import discovery
from trinity_core.agents.discovery import found_keys, local_servers, model_list
from trinity_core.agents.pool import spec_of
from trinity_core.agents.poolfile import entry_of
from trinity_core.agents.remote.servers import SERVERS
from trinity_core.errors import AgentError, PoolError
from trinity_core.types import AgentSpec

PLANTED = "planted-9Rk2Vb7Ms4Xq0"
VARIABLES = [
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "OPENROUTER_API_KEY",
    "DEEPSEEK_API_KEY",
    "GROQ_API_KEY",
    "TOGETHER_API_KEY",
    "MISTRAL_API_KEY",
    "XAI_API_KEY",
    "FIREWORKS_API_KEY",
    "CEREBRAS_API_KEY",
    "HF_TOKEN",
]


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def member(url: str, **changes: Any) -> AgentSpec:
    return AgentSpec("gpt", "openai", "model-a", base_url=url, **changes)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --- Keys ---------------------------------------------------------------------------------------------------


def test_without_keys_nothing_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "  ")
    assert found_keys() == ()


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_key_is_offered_by_name_and_never_by_value(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, PLANTED)
    (offer,) = found_keys()
    assert offer.spec.key_env == variable
    assert PLANTED not in repr(offer)
    complete = replace(offer.spec, model=offer.spec.model or "some-model")
    assert spec_of(entry_of(complete)) == complete, "what is offered can be saved"


def test_two_names_of_one_key_make_one_offer(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(variable, PLANTED)
    assert [(offer.spec.name, offer.spec.key_env) for offer in found_keys()] == [
        ("gpt", "OPENAI_API_KEY"),
        ("gemini", "GEMINI_API_KEY"),
    ]


# --- Servers ------------------------------------------------------------------------------------------------


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Free ports in place of the usual ones, which may be in use on this machine."""
    moved = {name: free_port() for name, server in SERVERS.items() if server.port}
    table = {n: replace(s, port=moved[n]) if n in moved else s for n, s in SERVERS.items()}
    monkeypatch.setattr(discovery, "SERVERS", table)
    return moved


async def test_servers_that_answer_are_offered_with_their_models(ports: dict[str, int]) -> None:
    with ExitStack() as stack:
        stack.enter_context(serving(Script(models=("a", "b")), port=ports["ollama"]))
        stack.enter_context(serving(Script(models=("only",)), port=ports["llamacpp"]))
        stack.enter_context(serving(Script(key="asked-for"), port=ports["litellm"]))
        found = {offer.spec.name: offer for offer in await local_servers()}
    assert set(found) == {"ollama", "llamacpp", "litellm"}
    assert found["ollama"].models == ("a", "b")
    assert found["ollama"].spec.model is None
    assert found["llamacpp"].spec.model == "only"
    assert found["litellm"].why == "asks for a key"
    assert found["ollama"].spec.base_url == f"http://127.0.0.1:{ports['ollama']}/v1"
    assert "price" not in found["litellm"].spec.service, "what a proxy leads to may cost"
    chosen = replace(found["ollama"].spec, model="a")
    assert spec_of(entry_of(chosen)) == chosen


@pytest.mark.parametrize(
    "script",
    [
        Script(models=("trinity", "gpt")),
        Script(models=()),
        Script(raw=(200, "text/html", b"<!doctype html><title>Hello</title>")),
        Script(raw=(200, "application/json", b'{"hello": [1, 2]}')),
        Script(raw=(200, "application/json", b"[]")),
        Script(raw=(500, "text/plain", b"broken")),
        Script(raw=(404, "application/json", b"{}")),
        Script(location="http://169.254.169.254/"),
    ],
)
async def test_what_is_no_model_server_is_not_offered(ports: dict[str, int], script: Script) -> None:
    with serving(script, port=ports["vllm"]):
        assert await local_servers() == ()
    assert len(script.seen) == 1


async def test_a_server_that_never_answers_holds_nobody_up(
    ports: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "LOOK_S", 0.3)
    with socket.create_server(("127.0.0.1", ports["vllm"])), serving(Script(models=("a",)), port=ports["ollama"]):
        assert [offer.spec.name for offer in await local_servers()] == ["ollama"]


# --- Models -------------------------------------------------------------------------------------------------


async def test_the_models_of_a_server_with_its_key() -> None:
    with serving(Script(key=PLANTED)) as server:
        assert await model_list(member(server.url), PLANTED) == server.models
    assert server.seen == [("/v1/models", f"Bearer {PLANTED}", None)]


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        (Script(key="another"), "auth", "Check the member's key"),
        (Script(raw=(200, "text/html", b"<html><title>Shop</title>")), "protocol", "a web page"),
        (Script(raw=(404, "text/html", b"<html>nothing</html>")), "bad_request", "base URL"),
        (Script(raw=(503, "application/json", b'{"error": "loading"}')), "transient", "loading"),
        (Script(models=()), "protocol", "lists no models"),
        (Script(raw=(200, "application/json", b"{not json")), "protocol", "no JSON"),
        (Script(location="http://169.254.169.254/latest"), "bad_request", "Redirects are not followed"),
    ],
)
async def test_a_failure_has_its_kind_and_a_next_step(script: Script, kind: str, words: str) -> None:
    with serving(script) as server, pytest.raises(AgentError) as caught:
        await model_list(member(server.url), PLANTED)
    assert caught.value.kind == kind
    assert words in str(caught.value)
    assert PLANTED not in str(caught.value)
    assert len(server.seen) == 1


async def test_nobody_there_and_nobody_answering(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AgentError, match="cannot be reached") as caught:
        await model_list(member(f"http://127.0.0.1:{free_port()}/v1"), None)
    assert caught.value.kind == "transport"
    monkeypatch.setattr(discovery, "LIST_S", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as deaf,
        pytest.raises(AgentError, match="did not list its models") as caught,
    ):
        await model_list(member(f"http://127.0.0.1:{deaf.getsockname()[1]}/v1"), None)
    assert caught.value.kind == "timeout"


async def test_a_server_without_tls_is_told_in_words() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as plain:
        port = plain.sockets[0].getsockname()[1]
        with pytest.raises(AgentError, match="Use http:// for a server without TLS"):
            await model_list(member(f"https://127.0.0.1:{port}/v1"), None)


async def test_a_list_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_MOST_BYTES", 1000)
    with (
        serving(Script(models=tuple(f"m{n}" for n in range(500)))) as server,
        pytest.raises(AgentError, match="no end"),
    ):
        await model_list(member(server.url), None)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (member("http://169.254.169.254/v1"), "refused"),
        (member("file:///etc/passwd"), "http"),
        (AgentSpec("a", "symbolic"), "not called over the network"),
    ],
)
async def test_what_may_not_be_called_is_refused_before_any_call(spec: AgentSpec, words: str) -> None:
    with pytest.raises(PoolError, match=words):
        await model_list(spec, PLANTED)


async def test_a_key_that_no_header_can_hold_is_not_quoted() -> None:
    with serving(Script()) as server, pytest.raises(AgentError) as caught:
        await model_list(member(server.url), f"{PLANTED}\n")
    assert PLANTED not in str(caught.value)
