"""Every adapter against servers that we did not write, over real sockets: plain, streamed, cancelled, and every fault
that they can make; and many runs at once while a third of all answers fails."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

import app
from tests.peers import KEY, Peer, connections, planted
from tests.peers.faults import fault_server
from tests.peers.fixtures import limited_peer, litellm_peer, llama_peer, llmock_peer
from tests.peers.litellm import TEXT
from tests.peers.llmock import LLMock
from tests.peers.situations import KEY_ENV, LIMITED, SITUATIONS, Outcome, Player, Situation, differences
from tests.peers.storm import storm
from tests.peers.trinity import LOG, trinity
from trinity_core.agents.discovery import model_list
from trinity_core.types import AgentSpec

__all__ = ["limited_peer", "litellm_peer", "llama_peer", "llmock_peer"]

Played = Mapping[tuple[str, str, str], Outcome]
PLAYED = {
    name: [situation for situation in SITUATIONS if situation.peer == name]
    for name in ("llmock", LIMITED, "LiteLLM", "llama.cpp")
}


@pytest.fixture(scope="session")
def played(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Played]]:
    """The outcomes of all situations of a peer; they are played side by side when a test first asks for one."""
    done: dict[str, Played] = {}

    def of(name: str) -> Played:
        if name not in done:
            fixture = {"llmock": "llmock_peer", LIMITED: "limited_peer", "LiteLLM": "litellm_peer"}
            peer = request.getfixturevalue(fixture.get(name, "llama_peer"))
            mocks = {name: peer} if isinstance(peer, LLMock) else {}
            peers = {name: peer.peer if isinstance(peer, LLMock) else peer}
            done[name] = asyncio.run(Player(peers, mocks).play_all(PLAYED[name]))
        return done[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_ENV, KEY)
        patch.setenv(KEY_ENV + "_WRONG", "sk-wrong-but-well-formed")
        yield of


@pytest.mark.parametrize(
    ("situation", "kind"),
    [
        pytest.param(situation, kind, id=f"{situation.peer}: {situation.name} ({kind})")
        for situations in PLAYED.values()
        for situation in situations
        for kind in situation.formats
    ],
)
def test_a_call_ends_as_it_must(played: Callable[[str], Played], situation: Situation, kind: str) -> None:
    outcome = played(situation.peer)[situation.peer, situation.name, kind]
    assert differences(situation, outcome) == []


def test_llmock_finds_no_fault_with_how_we_try_again(
    played: Callable[[str], Played], llmock_peer: LLMock, limited_peer: LLMock
) -> None:
    played("llmock")
    played(LIMITED)
    for mock in (llmock_peer, limited_peer):
        found = mock.verdict()
        # Some situations never end well, which llmock calls giving up or accepting; these it must not say of any.
        for code in ("retry_after_ignored", "retried_non_retryable", "retry_storm", "no_read_timeout"):
            assert code not in found, found


def test_a_real_model_says_the_same_streamed_and_bare(played: Callable[[str], Played], llama_peer: Peer) -> None:
    outcome = played("llama.cpp")["llama.cpp", "stream", "openai"]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello."}]
    asked = {"messages": messages, "max_tokens": 12, "temperature": 0.0, "seed": 1}
    answer = httpx.post(llama_peer.bases["openai"] + "/chat/completions", json=asked, timeout=60, trust_env=False)
    body = answer.json()
    assert outcome.reply is not None
    assert outcome.text == body["choices"][0]["message"]["content"]
    assert outcome.reply.usage.output == body["usage"]["completion_tokens"] == 12
    assert outcome.reply.usage.input == body["usage"]["prompt_tokens"]


def test_a_cancelled_reply_frees_the_model(played: Callable[[str], Played], llama_peer: Peer) -> None:
    played("llama.cpp")  # its last calls are cancelled in the middle of 600 tokens
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        slots = httpx.get(llama_peer.url + "/slots", timeout=10, trust_env=False).json()
        if not any(slot["is_processing"] for slot in slots):
            break
        time.sleep(0.05)
    assert not any(slot["is_processing"] for slot in slots)
    assert connections(llama_peer.port) == 0


@pytest.mark.parametrize("kind", ["openai", "anthropic", "gemini"])
def test_official_clients_read_the_same(
    played: Callable[[str], Played], litellm_peer: Peer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    outcome = played("LiteLLM")["LiteLLM", "stream", kind]
    assert outcome.text == _official(kind, litellm_peer, "through") == TEXT


def _official(kind: str, peer: Peer, model: str) -> str:
    """What the provider's own client reads of a stream."""
    asked: list[Any] = [{"role": "user", "content": "Say hello."}]
    if kind == "openai":
        import openai

        with openai.OpenAI(base_url=peer.bases[kind], api_key=KEY) as client:
            stream = client.chat.completions.create(model=model, messages=asked, stream=True)
            return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    if kind == "anthropic":
        import anthropic

        speaker = anthropic.Anthropic(base_url=peer.bases[kind], api_key=KEY)
        with speaker, speaker.messages.stream(model=model, max_tokens=64, messages=asked) as events:
            return "".join(events.text_stream)
    from google import genai
    from google.genai.types import HttpOptions

    options = HttpOptions(base_url=peer.url, api_version="v1beta")
    talker = genai.Client(api_key=KEY, http_options=options)
    pieces = talker.models.generate_content_stream(model=model, contents="Say hello.")
    return "".join(piece.text or "" for piece in pieces)


@pytest.mark.parametrize(
    ("fixture", "kind", "known"),
    [
        ("llmock_peer", "openai", "gpt-4o"),
        ("llmock_peer", "anthropic", "claude-opus-4-6"),
        ("llmock_peer", "gemini", "gemini-2.5-pro"),
        ("litellm_peer", "openai", "through"),
        ("litellm_peer", "anthropic", "through"),
        ("llama_peer", "openai", "smollm2"),
    ],
)
async def test_the_models_are_listed(request: pytest.FixtureRequest, fixture: str, kind: str, known: str) -> None:
    peer = request.getfixturevalue(fixture)
    peer = peer.peer if isinstance(peer, LLMock) else peer
    assert known in await model_list(AgentSpec("member", kind, base_url=peer.bases[kind]), KEY)


@pytest.mark.parametrize("key", [planted.ENV_KEY, planted.API_KEY, planted.TYPED_KEY])
@pytest.mark.parametrize("form", ["it is", "a URL has it", "JSON may have it", "base64", "UTF-16"])
def test_a_planted_key_would_be_found(key: str, form: str) -> None:
    hidden = {
        "it is": f"x{key}y".encode(),
        "a URL has it": f"?key={quote(key, safe='')}".encode(),
        "JSON may have it": json.dumps(key).replace("/", "\\/").encode(),
        "base64": base64.b64encode(f"Bearer {key} and more".encode()),
        "UTF-16": key.encode("utf-16-le"),
    }
    assert any(f"as {form} " in hit for hit in planted.found({"place": hidden[form]}))
    assert planted.found({"place": b"nothing of that kind"}) == []


def test_a_planted_key_is_nowhere_after_every_feature(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the page, whose own tests look there."""

    def run(words: list[str]) -> bytes:
        app.main(words)
        said = capfd.readouterr()
        return (said.out + said.err).encode()

    home = tmp_path / "key" / "home"
    home.mkdir(parents=True)
    for name, value in planted.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with fault_server() as peer:
        members = planted.members(peer)
        names = [member.name for member in members]
        with trinity(home, members, "--api-key-env", "PLANTED_API_KEY", loaded=False) as served:
            places = {"endpoint": planted.use_endpoint(served.url, names)}
        places |= planted.use_commands(run, home, names)
    places |= planted.files(home)
    assert {"trinity.db", "pool.toml", LOG, "export", "commands"} <= set(places)
    assert planted.seen_redacted(home), "the key never came back, so nothing was tested"
    assert planted.found(places) == []


def test_many_runs_in_a_storm_of_faults() -> None:
    report = storm(100, 50)
    assert report.problems == []
    assert report.sockets == 0
    assert sum(report.ends.values()) == 100
    assert report.turns > 200
    assert sum(report.failures.values()) > 10  # else nothing was tested
