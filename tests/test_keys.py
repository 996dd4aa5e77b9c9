"""Keys: where they come from, to whom they belong, and that none is ever shown or told."""

from __future__ import annotations

import asyncio
import html
import json
import random
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError

from trinity_core import wire
from trinity_core.agents import keys as module
from trinity_core.agents.base import Wiring
from trinity_core.agents.keys import SERVICE, Keys, KeyState, Veil, origin, show
from trinity_core.agents.meter import Meter
from trinity_core.agents.remote.agent import RemoteAgent
from trinity_core.agents.remote.openai import OPENAI
from trinity_core.errors import ConfigError
from trinity_core.types import AgentSpec, Brief, Finish, Message, Piece, Reply, Request, Reset, Role

PLANTED = "planted-7Q4v9Zr2Lm8Xk1"
OTHER = "another-3Tb6Wn5Yc0Hd2"
SPEC = AgentSpec("gpt", "openai", "m", base_url="https://api.example.com/v1", key_env="TEST_MEMBER_KEY")


class MemoryKeyring(KeyringBackend):
    """A keyring as a desktop has one."""

    priority = 5

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[tuple[str, str], str] = {}
        self.asked = 0

    def get_password(self, service: str, username: str) -> str | None:
        self.asked += 1
        return self.held.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.held[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if (service, username) not in self.held:
            raise PasswordDeleteError("none")
        del self.held[service, username]


class LockedKeyring(MemoryKeyring):
    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked("locked")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise KeyringLocked(f"cannot store {password}")


class PlainFileKeyring(MemoryKeyring):
    priority = 0.5  # type: ignore[assignment]


class ForgetfulKeyring(MemoryKeyring):
    def set_password(self, service: str, username: str, password: str) -> None:
        pass


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_MEMBER_KEY", raising=False)


@pytest.fixture
def desktop() -> Iterator[MemoryKeyring]:
    before = keyring.get_keyring()
    backend = MemoryKeyring()
    keyring.set_keyring(backend)
    yield backend
    keyring.set_keyring(before)


def use(backend: KeyringBackend) -> None:
    keyring.set_keyring(backend)


def test_the_environment_is_read_and_a_typed_key_goes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Keys(use_keyring=False)
    assert keys.of(SPEC) is None
    assert keys.state(SPEC) == KeyState(False, "none", "", "TEST_MEMBER_KEY")
    monkeypatch.setenv("TEST_MEMBER_KEY", f"  {PLANTED}\n")
    assert keys.of(SPEC) == PLANTED
    assert keys.state(SPEC) == KeyState(True, "environment", "8Xk1", "TEST_MEMBER_KEY")
    keys.put(SPEC, OTHER)
    assert keys.of(SPEC) == OTHER
    assert keys.state(SPEC).where == "memory"
    keys.clear(SPEC)
    assert keys.of(SPEC) == PLANTED
    monkeypatch.setenv("TEST_MEMBER_KEY", "")
    assert keys.state(SPEC).is_set is False


def test_a_member_without_a_variable_reads_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_MEMBER_KEY", PLANTED)
    assert Keys(use_keyring=False).of(AgentSpec("gpt", "openai", base_url=SPEC.base_url)) is None


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (KeyState(True, "environment", "1234", "X_KEY"), "set · …1234 (environment)"),
        (KeyState(True, "memory", "1234"), "set · …1234 (memory)"),
        (KeyState(True, "keyring", ""), "set (keyring)"),
        (KeyState(False, "none", "", "OPENAI_API_KEY"), "not set: put it in OPENAI_API_KEY or type it"),
        (KeyState(False), "not set: type one if the server asks for it"),
    ],
)
def test_a_state_in_words(state: KeyState, words: str) -> None:
    assert show(state) == words


@pytest.mark.parametrize(("key", "tail"), [("k" * 7 + "1234", ""), ("k" * 8 + "1234", "1234"), ("abc", "")])
def test_a_short_key_shows_no_tail(key: str, tail: str) -> None:
    keys = Keys(use_keyring=False)
    keys.put(SPEC, key)
    assert keys.state(SPEC).tail == tail
    assert (key[-4:] in show(keys.state(SPEC))) == bool(tail)


@pytest.mark.parametrize(
    ("base_url", "same"),
    [
        ("https://api.example.com/v1", True),
        ("https://API.example.com:443/other?x=1", True),
        ("https://user@api.example.com./v2", True),
        ("http://api.example.com/v1", False),
        ("https://api.example.com:8443/v1", False),
        ("https://api.example.com.evil.test/v1", False),
        ("https://evil.test/https://api.example.com/v1", False),
        ("https://api.example.com@evil.test/v1", False),
        ("http://[::1", False),
        (None, False),
    ],
)
def test_a_typed_key_does_not_follow_its_member_to_another_origin(base_url: str | None, same: bool) -> None:
    keys = Keys(use_keyring=False)
    keys.put(SPEC, PLANTED)
    moved = AgentSpec("GPT", "openai", base_url=base_url)
    assert keys.of(moved) == (PLANTED if same else None)
    assert (origin(moved) == origin(SPEC)) is same


def test_without_an_address_the_origin_is_that_of_the_kind() -> None:
    assert origin(AgentSpec("a", "gemini")) != origin(AgentSpec("a", "anthropic"))


def test_a_renamed_member_takes_its_key_along_unless_it_moved_house(desktop: MemoryKeyring) -> None:
    renamed = AgentSpec("gpt-2", "openai", base_url="https://api.example.com/v9")
    elsewhere = AgentSpec("gpt-3", "openai", base_url="https://evil.test/v1")
    for keep in (False, True):
        keys = Keys()
        keys.put(SPEC, PLANTED, keep=keep)
        keys.rename(SPEC, elsewhere)
        assert (keys.of(SPEC), keys.of(elsewhere)) == (PLANTED, None)
        keys.rename(SPEC, renamed)
        assert (keys.of(SPEC), keys.of(renamed)) == (None, PLANTED)
        assert len(desktop.held) == int(keep)
    assert Keys().of(renamed) == PLANTED


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", "empty"),
        (" \n ", "empty"),
        ("OPENAI_API_KEY = sk-x", "a blank"),
        ("two\nlines-of-a-key", "a line break"),
        ("schlüssel-123456", "a character that no key has"),
        ("k" * 9000, "characters"),
    ],
)
def test_what_cannot_be_a_key_is_refused_without_repeating_it(value: str, why: str) -> None:
    keys = Keys(use_keyring=False)
    keys.put(SPEC, PLANTED)
    with pytest.raises(ConfigError, match=why) as caught:
        keys.put(SPEC, value)
    assert not value.strip() or value.strip() not in str(caught.value)
    assert keys.of(SPEC) == PLANTED


def test_every_key_that_was_seen_is_redacted(monkeypatch: pytest.MonkeyPatch, desktop: MemoryKeyring) -> None:
    typed, given, kept = "typed-only-8812-aa", "given-only-8812-bb", "kept-only-8812-cc"
    monkeypatch.setenv("TEST_MEMBER_KEY", given)
    Keys(use_keyring=False).of(SPEC)
    desktop.held[SERVICE, f"gpt {origin(SPEC)}"] = kept
    Keys().of(SPEC)
    Keys().put(SPEC, typed)
    for key in (typed, given, kept):
        assert key not in wire.redact(f"Invalid header value b'Bearer {key}'!")


# --- The keyring --------------------------------------------------------------------------------------------


def test_a_key_is_kept_in_the_keyring_only_when_asked(desktop: MemoryKeyring) -> None:
    keys = Keys()
    keys.put(SPEC, OTHER)
    assert desktop.held == {}
    keys.put(SPEC, PLANTED, keep=True)
    assert desktop.held == {(SERVICE, "gpt https://api.example.com:443"): PLANTED}
    assert keys.state(SPEC).where == "keyring"
    later = Keys()
    assert later.of(SPEC) == PLANTED
    assert later.state(SPEC) == KeyState(True, "keyring", "8Xk1", "TEST_MEMBER_KEY")
    later.clear(SPEC)
    assert desktop.held == {}
    assert Keys().of(SPEC) is None


def test_a_key_that_is_not_to_be_kept_takes_the_place_of_a_kept_one(desktop: MemoryKeyring) -> None:
    Keys().put(SPEC, PLANTED, keep=True)
    Keys().put(SPEC, OTHER)
    assert desktop.held == {}, "the old key would be back after the next start"


def test_the_keyring_is_asked_once_a_member_and_not_at_all_when_off(desktop: MemoryKeyring) -> None:
    keys = Keys()
    for _ in range(5):
        keys.of(SPEC)
    assert desktop.asked == 1
    Keys(use_keyring=False).of(SPEC)
    assert desktop.asked == 1


@pytest.mark.parametrize(
    "backend", [LockedKeyring, PlainFileKeyring, ForgetfulKeyring, keyring.backends.fail.Keyring]
)
def test_without_a_keyring_that_works_keeping_is_refused_and_typing_still_works(
    desktop: MemoryKeyring, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(made := backend())
    keys = Keys()
    monkeypatch.setenv("TEST_MEMBER_KEY", OTHER)
    with pytest.raises(ConfigError, match="“keep” off") as caught:
        keys.put(SPEC, PLANTED, keep=True)
    assert PLANTED not in str(caught.value)
    assert caught.value.__cause__ is None
    assert keys.of(SPEC) == OTHER, "a key that was refused is not used either"
    keys.put(SPEC, PLANTED)
    assert keys.of(SPEC) == PLANTED
    assert not getattr(made, "held", None)


def test_a_keyring_that_does_not_answer_holds_nobody_up_twice(
    desktop: MemoryKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    unlocked = threading.Event()

    class Asking(MemoryKeyring):
        def get_password(self, service: str, username: str) -> str | None:
            unlocked.wait(10)
            return PLANTED

    real = threading.Thread.join

    def join(self: threading.Thread, timeout: float | None = None) -> None:
        if self.name == "keyring":
            waits.append(timeout or 0.0)
        real(self, timeout)

    monkeypatch.setattr(threading.Thread, "join", join)
    monkeypatch.setattr(module, "PATIENCE_S", 0.05)
    use(Asking())
    keys = Keys()
    first, second = SPEC, AgentSpec("two", "openai", base_url=SPEC.base_url)
    assert (keys.of(first), keys.of(second)) == (None, None)
    assert waits == [0.05, 0.0]
    unlocked.set()
    for thread in [t for t in threading.enumerate() if t.name == "keyring"]:
        real(thread, 5)
    assert keys.of(first) == keys.of(second) == PLANTED, "what was unlocked later is used from then on"


# --- A key that comes back ------------------------------------------------------------------------------------

ODD = "odd\"Key\\/+Zx&9=Qq<b>'Lm"


@pytest.mark.parametrize(
    "written",
    [
        ODD,
        json.dumps(ODD),
        repr(ODD),
        repr(f"HTTP/1.1 {ODD}".encode()),
        quote(ODD),
        f"https://x.example/?k={quote(ODD, safe='')}",
        html.escape(ODD),
        html.escape(ODD, quote=False),
    ],
)
def test_redaction_knows_a_key_however_it_is_written(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setattr(wire, "_known", set())
    wire.remember_secret(ODD)
    said = wire.redact(f"before {written} after")
    assert "Lm" not in said
    assert wire.REDACTED in said


def _streamed(text: str, key: str, sizes: Iterator[int]) -> str:
    """What is shown of a text that comes in pieces of these sizes."""
    veil, shown, rest = Veil(key), "", text
    while rest:
        size = next(sizes)
        shown += "".join(item.text for item in veil.over(Piece(rest[:size])) if isinstance(item, Piece))
        rest = rest[size:]
    return shown + "".join(piece.text for piece in veil.rest())


def test_a_reply_that_comes_in_pieces_never_shows_the_key() -> None:
    draw = random.Random(7)
    key = "ababababcababab"  # begins again inside itself
    for _ in range(300):
        text = "".join(draw.choice((key, key[:-1], key[:3], "ab", "c", "x", " ")) for _ in range(12))
        shown = _streamed(text, key, iter(lambda: draw.randint(1, 9), 0))
        assert shown == text.replace(key, wire.REDACTED)


def test_only_what_could_be_the_key_waits_for_the_next_piece() -> None:
    veil = Veil(PLANTED)
    assert veil.over(Piece("What a pl")) == [Piece("What a ")]
    assert veil.over(Piece("an. ")) == [Piece("plan. ")]
    assert veil.over(Piece("pla", "reasoning")) == []
    assert veil.over(Piece("y")) == [Piece("pla", "reasoning"), Piece("y")], "another channel ends the waiting"
    assert veil.over(Piece("planted")) == []
    assert veil.over(Reset("once more")) == [Reset("once more")], "what was taken back does not come later"
    assert veil.rest() == []


def test_a_reply_that_breaks_off_in_the_middle_of_the_key_does_not_show_its_beginning() -> None:
    for cut, shown in ((4, PLANTED[:4]), (12, wire.REDACTED), (len(PLANTED) - 1, wire.REDACTED)):
        veil = Veil(PLANTED)
        veil.over(Piece(f"Your key is {PLANTED[:cut]}"))
        assert veil.rest(broken=True) == [Piece(shown)]


def test_a_word_in_place_of_a_key_stays_in_replies() -> None:
    reply = Reply("ollama runs", Finish.STOP, "ollama?", request_id="ollama-1")
    for key in ("ollama", "", None):
        assert Veil(key).over(Piece("ollama")) == [Piece("ollama")]
        assert Veil(key).reply(reply) == reply


async def test_a_server_that_answers_with_the_key_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_known", set())
    monkeypatch.setenv("TEST_MEMBER_KEY", PLANTED)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = head.lower().partition("bearer ")[2].partition("\r\n")[0]
        key = next(part for part in head.split() if part.lower() == key)
        writer.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-request-id: {key}\r\n"
            "connection: close\r\n\r\n".encode()
        )
        deltas = [{name: part} for name in ("reasoning_content", "content") for part in ("I saw ", *key, " here: pl")]
        for delta in deltas:
            choice = {"index": 0, "delta": delta, "finish_reason": None}
            writer.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
        last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        writer.write(f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n".encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    spec = AgentSpec("gpt", "openai", "m", base_url=base_url, key_env="TEST_MEMBER_KEY")
    agent = RemoteAgent(spec, OPENAI, Wiring(Keys(use_keyring=False), Meter()))
    question = (Message("user", "What did you see?"),)
    items = [item async for item in agent.stream(Request(spec, question, Brief(Role.WORKER, question)))]
    await agent.aclose()
    server.close()
    reply = items[-1]
    assert isinstance(reply, Reply)
    assert reply.text == reply.reasoning == f"I saw {wire.REDACTED} here: pl"
    assert reply.request_id == wire.REDACTED
    for channel, whole in (("text", reply.text), ("reasoning", reply.reasoning)):
        assert whole == "".join(item.text for item in items if isinstance(item, Piece) and item.channel == channel)


def test_what_stands_for_no_key_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_known", set())
    monkeypatch.setenv("TEST_MEMBER_KEY", "ollama")
    assert Keys(use_keyring=False).of(SPEC) == "ollama"
    assert wire.redact("ollama: is http://ollama:11434 up?") == "ollama: is http://ollama:11434 up?"
