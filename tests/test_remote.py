"""A remote member over real sockets: every way a server can fail, retries, deadlines, limits, cancelling, accounts.

The wire format, the keys and the meter are small ones of this file, so that nothing else can make these tests fail.
"""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from tests.fault_server import FAULTS, TEXT, Fault, FaultServer
from trinity_core import wire
from trinity_core.agents.base import Wiring
from trinity_core.agents.keys import Keys, KeyState
from trinity_core.agents.meter import Meter, Ticket, Worst
from trinity_core.agents.pool import format_of
from trinity_core.agents.remote import agent as remote
from trinity_core.agents.remote import exchange
from trinity_core.agents.remote.agent import RemoteAgent
from trinity_core.agents.remote.formats import Call
from trinity_core.errors import AgentError
from trinity_core.types import AgentSpec, Brief, Finish, Message, Piece, Reply, Request, Reset, Role, Sampling, Usage

KEY = "planted-key-0123456789"
QUICK: Mapping[str, Any] = {
    "retries": 1,
    "connect_s": 2,
    "first_token_s": 5,
    "between_tokens_s": 5,
    "total_s": 20,
    "rest_after": 50,
    "price": {"input": 1e6, "output": 1e6},  # a dollar a token
}
QUESTION = (Message("system", "Be brief."), Message("user", "Hello?"))


# --- A format, keys and a meter ---------------------------------------------------------------------------


class MiniReader:
    """Reads OpenAI's chunks, as far as the server says them."""

    def __init__(self) -> None:
        self.usage, self.started = Usage(), False
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._finish: str | None = None

    def event(self, data: str, event: str = "") -> Sequence[Piece | Reset]:
        if data == "[DONE]":
            return ()
        return self.whole(_json(data))

    def whole(self, body: Any) -> Sequence[Piece | Reset]:
        if not isinstance(body, dict):
            raise AgentError("The answer is no object.", kind="protocol", retryable=True)
        if "error" in body:
            raise AgentError(f"The upstream says {body['error']['message']}", kind="transient", retryable=True)
        if counted := body.get("usage"):
            self.usage = Usage(counted["prompt_tokens"], counted["completion_tokens"])
        pieces: list[Piece | Reset] = []
        for choice in body.get("choices", ()):
            self._finish = choice["finish_reason"] or self._finish
            said = choice.get("delta") or choice.get("message") or {}
            if thought := said.get("reasoning_content"):
                self._reasoning.append(thought)
                pieces.append(Piece(thought, "reasoning"))
            self._text.append(said.get("content") or "")
            pieces.append(Piece(self._text[-1]))
        return pieces

    def reply(self) -> Reply:
        if self._finish is None:
            raise AgentError("It ended without a finish reason.", kind="truncated", retryable=True)
        finish = Finish.LENGTH if self._finish == "length" else Finish.STOP
        return Reply("".join(self._text), finish, "".join(self._reasoning), self.usage, warnings=("mind this",))


def _json(data: str) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        raise AgentError("An event is no JSON.", kind="protocol", retryable=True) from None


class MiniFormat:
    kind = "openai"
    default_base_url: str | None = None

    def __init__(self) -> None:
        self.readers: list[MiniReader] = []
        self.wrong: Exception | None = None

    def check(self, spec: AgentSpec) -> None: ...

    def call(self, request: Request, key: str | None, *, drop: frozenset[str] = frozenset()) -> Call:
        body: dict[str, Any] = {"model": request.agent.model, "stream": True}
        body["messages"] = [{"role": m.role, "content": m.content} for m in request.messages]
        if request.sampling.temperature is not None and "temperature" not in drop:
            body["temperature"] = request.sampling.temperature
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return Call(f"{request.agent.base_url}/chat/completions", headers, body)

    def reader(self, request: Request) -> MiniReader:
        if self.wrong:
            raise self.wrong
        self.readers.append(MiniReader())
        return self.readers[-1]

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> AgentError:
        kinds = {401: "auth", 402: "billing", 429: "rate_limit"}
        kind = kinds.get(status, "transient" if status >= 500 else "bad_request")
        if b"context_length" in body:
            kind = "context_length"
        wait = None
        if "retry-after-ms" in headers:
            wait = float(headers["retry-after-ms"]) / 1000
        elif headers.get("retry-after", "").isdigit():
            wait = float(headers["retry-after"])
        drop = "temperature" if b"unsupported_parameter" in body else None
        words = f"HTTP {status}: {body.decode('utf-8', 'replace')[:300]}"
        return AgentError(
            words, kind=kind, retryable=kind in ("rate_limit", "transient"), retry_after=wait, drop=drop
        )

    def models_call(self, base_url: str, key: str | None) -> Call:
        return Call(f"{base_url}/models")

    def model_names(self, body: Any) -> tuple[str, ...]:
        return ()


class MiniKeys:
    def __init__(self, key: str | None = None, where: str = "none") -> None:
        self.key, self.where = key, where

    def of(self, spec: AgentSpec) -> str | None:
        if self.key:
            wire.remember_secret(self.key)
        return self.key

    def state(self, spec: AgentSpec) -> KeyState:
        return KeyState(self.key is not None, cast(Any, self.where))


@dataclass
class MiniMeter:
    """Remembers what it was asked and told. `open` are tickets that nobody has settled."""

    refuse: str | None = None
    open: list[Ticket] = field(default_factory=list)
    settled: list[tuple[Usage, float | None, bool, bool]] = field(default_factory=list)

    def refusal(self, request: Request) -> str | None:
        return self.refuse

    def admit(self, request: Request) -> Ticket:
        if self.refuse:
            raise AgentError(self.refuse, kind="budget", calls=0)
        self.open.append(Ticket(request.agent.name, Worst(1, 0.0)))
        return self.open[-1]

    def settle(
        self, ticket: Ticket, usage: Usage, cost: float | None, *, failed: bool = False, called: bool = True
    ) -> None:
        self.open.remove(ticket)
        self.settled.append((usage, cost, failed, called))


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with FaultServer() as running:
        yield running


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "BACKOFF_S", 0.01)
    monkeypatch.setattr(exchange, "ERROR_BODY_S", 0.1)
    monkeypatch.setattr(exchange, "GRACE_S", 0.1)


@pytest.fixture(autouse=True)
def _known_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_known", set())


class Member:
    """A remote member under test, with what it is wired to."""

    def __init__(self, url: str, model: str = "ok", *, keys: MiniKeys | None = None, **service: Any) -> None:
        self.spec = AgentSpec("ada", "openai", model=model, base_url=url, service={**QUICK, **service})
        self.format, self.meter, self.keys = MiniFormat(), MiniMeter(), keys or MiniKeys()
        self.wiring = Wiring(cast(Any, self.keys), cast(Any, self.meter), "server-1")
        self.agent = RemoteAgent(self.spec, self.format, self.wiring)

    def request(self, **more: Any) -> Request:
        return Request(self.spec, QUESTION, Brief(Role.WORKER, QUESTION[1:]), **more)

    def rested(self) -> None:
        """Ten minutes later, as far as the breaker knows."""
        now = self.agent.breaker._clock()
        self.agent.breaker._clock = lambda: now + 600

    async def items(self, **more: Any) -> list[Piece | Reset | Reply | AgentError]:
        """All that a call yields, its AgentError last."""
        got: list[Piece | Reset | Reply | AgentError] = []
        try:
            async with aclosing(self.agent.stream(self.request(**more))) as parts:  # type: ignore[type-var]
                async for part in parts:
                    got.append(part)
        except AgentError as error:
            got.append(error)
        return got

    async def reply(self, **more: Any) -> Reply:
        last = (await self.items(**more))[-1]
        assert isinstance(last, Reply), last
        return last

    async def error(self, **more: Any) -> AgentError:
        last = (await self.items(**more))[-1]
        assert isinstance(last, AgentError), last
        return last


@pytest.fixture
async def members(server: FaultServer) -> AsyncIterator[Callable[..., Member]]:
    """Makes members of `server`; afterwards everything must be settled and no connection left."""
    made: list[Member] = []

    def make(model: str = "ok", **more: Any) -> Member:
        made.append(Member(more.pop("url", server.url("openai")), model, **more))
        return made[-1]

    yield make
    for member in made:
        await member.agent.aclose()
        assert member.meter.open == [], "an attempt was never settled"
    await until(lambda: server.open_connections == 0, "a connection was left open")


async def until(true: Callable[[], bool], otherwise: str, within_s: float = 1.0) -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, otherwise
        await asyncio.sleep(0.005)


def text_of(items: Sequence[object]) -> str:
    """The text as somebody sees it who follows the stream."""
    text = ""
    for item in items:
        if isinstance(item, Reset):
            text = ""
        elif isinstance(item, Piece) and item.channel == "text":
            text += item.text
    return text


def resets(items: Sequence[object]) -> list[Reset]:
    return [item for item in items if isinstance(item, Reset)]


# --- Every fault ------------------------------------------------------------------------------------------

_SLOW = {"timeout": {"first_token_s": 0.15, "between_tokens_s": 0.15}}
_PASSES = {"timeout": {"first_token_s": 0.4, "between_tokens_s": 0.2}}
_TOTAL = {"text-for-ever": {"total_s": 0.3}, "rate-limit-seconds": {"total_s": 0.6}}


@pytest.mark.parametrize("fault", [f for f in FAULTS.values() if not f.kinds], ids=lambda f: f.name)
async def test_odd_but_whole_answers_give_the_text_intact(members: Callable[..., Member], fault: Fault) -> None:
    member = members(fault.name)
    items = await member.items(sampling=Sampling(temperature=0.5))
    reply = items[-1]
    assert isinstance(reply, Reply), reply
    expected = "a\u2028b\u2029c\u0085d " + TEXT if fault.name == "separators" else TEXT
    assert reply.text == text_of(items) == expected
    assert resets(items) == []
    assert reply.finish is (Finish.LENGTH if fault.name == "length" else Finish.STOP)
    assert reply.calls == (2 if fault.name == "unsupported-temperature" else 1)
    known = fault.name != "no-usage"
    assert (reply.usage, reply.cost) == ((Usage(12, 5), 17.0) if known else (Usage(), None))
    assert reply.unpriced == (0 if known else 1)


@pytest.mark.parametrize("fault", [f for f in FAULTS.values() if f.kinds], ids=lambda f: f.name)
async def test_every_fault_becomes_its_error(
    members: Callable[..., Member], server: FaultServer, fault: Fault
) -> None:
    member = members(fault.name, **_SLOW.get(str(fault.kind), {}), **_TOTAL.get(fault.name, {}))
    items = await member.items()
    error = items[-1]
    assert isinstance(error, AgentError), error
    assert error.kind in fault.kinds, str(error)
    assert error.retryable is fault.retryable
    calls = 2 if fault.retryable and fault.name not in (*_TOTAL, "rate-limit-hour") else 1
    assert error.calls == calls == len(server.requests) == len(member.meter.settled)
    assert len(resets(items)) == (calls - 1 if fault.after_text else 0)
    assert bool(text_of(items)) is fault.after_text
    assert str(error).startswith("ada: ")
    assert (f"tried {calls} times" in str(error)) is (calls > 1)


@pytest.mark.parametrize(
    "name", [f.name for f in FAULTS.values() if f.retryable and f.name not in (*_TOTAL, "rate-limit-hour")]
)
async def test_a_fault_that_passes_costs_an_attempt_and_no_text(
    members: Callable[..., Member], server: FaultServer, name: str
) -> None:
    server.script([name])
    fault = FAULTS[name]
    items = await members("ok", **_PASSES.get(str(fault.kind), {})).items()
    reply = items[-1]
    assert isinstance(reply, Reply), reply
    assert (reply.text, reply.calls, reply.finish) == (TEXT, 2, Finish.STOP)
    assert text_of(items) == TEXT
    assert len(resets(items)) == (1 if fault.after_text else 0)


@pytest.mark.parametrize("status", [500, 503, 529])
async def test_statuses(members: Callable[..., Member], server: FaultServer, status: int) -> None:
    error = await members(f"status-{status}").error()
    assert (error.kind, error.calls) == ("transient", 2)


# --- Retries ----------------------------------------------------------------------------------------------


async def test_silence_and_a_broken_connection_then_an_answer(
    members: Callable[..., Member], server: FaultServer
) -> None:
    server.script(["never", "reset", "ok"])
    reply = await members(retries=4, first_token_s=0.4).reply()
    assert (reply.text, reply.calls) == (TEXT, 3)


async def test_refused_key_is_tried_once(members: Callable[..., Member], server: FaultServer) -> None:
    error = await members("bad-key", retries=4).error()
    assert (error.kind, error.retryable, error.calls, len(server.requests)) == ("auth", False, 1, 1)


async def test_retries_zero_means_one_attempt(members: Callable[..., Member], server: FaultServer) -> None:
    error = await members("rate-limit", retries=0).error()
    assert error.calls == len(server.requests) == 1


async def test_as_many_further_attempts_as_are_set(members: Callable[..., Member], server: FaultServer) -> None:
    error = await members("reset", retries=3).error()
    assert error.calls == len(server.requests) == 4


async def test_run_that_allows_fewer_calls(members: Callable[..., Member], server: FaultServer) -> None:
    error = await members("empty-500", retries=5).error(max_calls=2)
    assert error.calls == len(server.requests) == 2
    assert "budget of the run" in str(error)


async def test_repeating_without_a_field_counts_as_a_call(
    members: Callable[..., Member], server: FaultServer
) -> None:
    error = await members("unsupported-temperature").error(max_calls=1, sampling=Sampling(temperature=1.0))
    assert error.calls == len(server.requests) == 1


async def test_the_time_a_server_asks_for_is_the_least(members: Callable[..., Member], server: FaultServer) -> None:
    server.script(["rate-limit-ms"])
    server.retry_after_s = 0.2
    began = time.monotonic()
    reply = await members().reply()
    assert time.monotonic() - began >= 0.2
    assert reply.calls == 2


@pytest.mark.parametrize("name", ["rate-limit-hour", "rate-limit-seconds"])
async def test_nobody_waits_beyond_the_deadline(members: Callable[..., Member], name: str) -> None:
    error = await members(name, total_s=0.8, retries=5).error()
    assert error.calls == 1
    assert error.retry_after in (1.0, 3600.0)
    assert "after the deadline of 0.8 s" in str(error)


async def test_reset_tells_why_and_comes_before_new_text(members: Callable[..., Member], server: FaultServer) -> None:
    server.script(["stall-mid-stream", "error-in-stream"])
    items = await members(retries=3, between_tokens_s=0.2).items()
    assert [bool(reset.reason) for reset in resets(items)] == [True, True]
    assert "Nothing new for 0.2 s" in resets(items)[0].reason
    assert "upstream died" in resets(items)[1].reason
    assert text_of(items) == TEXT


async def test_pauses_grow_with_full_jitter(members: Callable[..., Member], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "BACKOFF_S", 0.5)
    pauses: list[float] = []
    here, real_sleep = asyncio.get_running_loop(), asyncio.sleep

    async def sleep(seconds: float) -> None:
        if asyncio.get_running_loop() is here:
            pauses.append(seconds)
        else:  # a server of another test file, in a thread of its own
            await real_sleep(seconds)

    for _ in range(40):
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "sleep", sleep)
            await members("reset", retries=6).error()
    by_attempt = [pauses[n::6] for n in range(6)]
    for most, drawn in zip((0.5, 1, 2, 4, 8, 8), by_attempt, strict=True):
        assert 0 <= min(drawn) < 0.3 * most
        assert 0.6 * most < max(drawn) <= most


async def test_refused_field_is_left_out_at_once_and_from_then_on(
    members: Callable[..., Member], server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "BACKOFF_S", 60.0)
    member = members("unsupported-temperature", retries=0)
    first = await member.reply(sampling=Sampling(temperature=0.7))
    assert first.calls == 2
    assert "temperature" in first.warnings[0]
    second = await member.reply(sampling=Sampling(temperature=0.7))
    assert (second.calls, second.warnings) == (1, ("mind this",))
    assert ["temperature" in seen.body for seen in server.requests] == [True, False, False]


async def test_server_that_refuses_a_field_for_ever(members: Callable[..., Member], server: FaultServer) -> None:
    member = members("unsupported-temperature")
    member.format.call = lambda request, key, *, drop=frozenset(): Call(  # type: ignore[method-assign]
        f"{request.agent.base_url}/chat/completions", {}, {"model": request.agent.model, "temperature": 1}
    )
    error = await member.error()
    assert (error.kind, error.calls, len(server.requests)) == ("bad_request", 2, 2)


# --- Deadlines --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["never", "stall-after-headers", "keep-alive-for-ever", "headers-for-ever"])
async def test_first_token(members: Callable[..., Member], name: str) -> None:
    began = time.monotonic()
    error = await members(name, retries=0, first_token_s=0.15).error()
    assert 0.1 < time.monotonic() - began < 3
    assert "No first token within 0.15 s" in str(error)


@pytest.mark.parametrize("name", ["stall-mid-stream", "keep-alive-mid-stream"])
async def test_between_tokens(members: Callable[..., Member], name: str) -> None:
    began = time.monotonic()
    error = await members(name, retries=0, between_tokens_s=0.15).error()
    assert 0.1 < time.monotonic() - began < 3
    assert "Nothing new for 0.15 s" in str(error)


@pytest.mark.parametrize("name", ["text-for-ever", "never", "keep-alive-mid-stream"])
async def test_total(members: Callable[..., Member], server: FaultServer, name: str) -> None:
    began = time.monotonic()
    error = await members(name, retries=5, total_s=0.3).error()
    assert 0.2 < time.monotonic() - began < 3
    assert (error.kind, error.calls) == ("timeout", 1)
    assert "0.3 s" in str(error)
    assert "total_s" in str(error)


async def test_total_covers_all_attempts(members: Callable[..., Member], server: FaultServer) -> None:
    began = time.monotonic()
    error = await members("never", retries=50, first_token_s=0.1, total_s=0.35).error()
    assert time.monotonic() - began < 3
    assert 2 <= error.calls <= 4


async def test_server_that_keeps_a_finished_stream_open(members: Callable[..., Member]) -> None:
    began = time.monotonic()
    reply = await members("hold-open", between_tokens_s=10).reply()
    assert (reply.text, reply.calls) == (TEXT, 1)
    assert time.monotonic() - began < 5


async def test_slow_reader_is_not_the_servers_fault(members: Callable[..., Member]) -> None:
    member = members(between_tokens_s=0.3, first_token_s=2)
    async with aclosing(member.agent.stream(member.request())) as parts:  # type: ignore[type-var]
        got = [await anext(parts)]
        await asyncio.sleep(0.4)
        got += [part async for part in parts]
    assert text_of(got) == TEXT


@pytest.mark.parametrize(
    ("data", "values"),
    [
        ('{"a": 1}', ['{"a": 1}']),
        ('{"a": 1}\n[DONE]', ['{"a": 1}', "[DONE]"]),
        ('{"a": 1}\n{"a": 2}\n', ['{"a": 1}', '{"a": 2}']),
        ('{"a":\n1}', ['{"a":\n1}']),
        ('{"a": 1}\n{"a"', ['{"a": 1}\n{"a"']),
        ("one\ntwo", ["one\ntwo"]),
        ("", [""]),
    ],
)
def test_events_without_the_blank_line_between_them_are_told_apart(data: str, values: list[str]) -> None:
    assert list(exchange._values(data)) == values


async def test_no_connection(members: Callable[..., Member]) -> None:
    member = members(url="http://127.0.0.1:9/v1")
    error = await member.error()
    assert (error.kind, error.retryable, error.calls, error.unpriced) == ("transport", True, 2, 0)
    assert "connection refused" in str(error)
    assert [called for *_, called in member.meter.settled] == [False, False]


async def test_server_that_does_not_accept(members: Callable[..., Member]) -> None:
    import socket

    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        blockers = [socket.socket() for _ in range(4)]
        for blocker in blockers:
            blocker.setblocking(False)
            with suppress(BlockingIOError):
                blocker.connect(full.getsockname())
        member = members(url=f"http://127.0.0.1:{full.getsockname()[1]}/v1", connect_s=0.15, retries=0)
        error = await member.error()
        for blocker in blockers:
            blocker.close()
    assert error.kind == "timeout"
    assert "No connection within 0.15 s" in str(error)
    assert error.unpriced == 0


@pytest.mark.parametrize("url", ["http://[::1", "nonsense", "ftp://h/v1", "http://bad host/v1", ""])
async def test_addresses_that_cannot_be_called(members: Callable[..., Member], url: str) -> None:
    error = await members(url=url).error()
    assert (error.kind, error.retryable) == ("bad_request", False)
    assert "base URL" in str(error) or "http://host:port/v1" in str(error)


async def test_refused_address(members: Callable[..., Member]) -> None:
    error = await members(url="http://169.254.169.254/v1").error()
    assert (error.kind, error.calls) == ("bad_request", 1)
    assert "is refused" in str(error)


async def test_no_plain_http_where_tls_is_asked_for(members: Callable[..., Member]) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    plain = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with plain:
        error = await members(url=f"https://127.0.0.1:{plain.sockets[0].getsockname()[1]}/v1").error()
    assert (error.kind, error.retryable, error.calls) == ("transport", False, 1)
    assert "Use http://" in str(error)


# --- Cancelling -------------------------------------------------------------------------------------------


async def _cancelled(member: Member, ready: Callable[[], bool], pieces: int = 0) -> float:
    """Begin a call, stop it once `ready`, and say how many seconds that took. Each step runs in a task of its own."""
    parts = member.agent.stream(member.request())
    for _ in range(pieces):
        assert isinstance(await asyncio.ensure_future(anext(parts)), Piece)
    waiting = asyncio.ensure_future(anext(parts))
    await until(ready, "it never came so far")
    await asyncio.sleep(0.02)
    began = time.monotonic()
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    await parts.aclose()  # type: ignore[attr-defined]
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        ("never", 0),
        ("stall-after-headers", 0),
        ("keep-alive-for-ever", 0),
        ("stall-mid-stream", 2),
        ("endless-500", 0),
    ],
)
async def test_stopping_closes_the_socket(
    members: Callable[..., Member], server: FaultServer, name: str, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "ERROR_BODY_S", 5.0)
    member = members(name)
    if pieces:
        server.text = "ab"  # one piece, after which nothing comes
        pieces = 1
    assert await _cancelled(member, lambda: server.busy == 1, pieces) < 0.5
    await until(lambda: server.open_connections == 0, "the server still sees the connection")
    assert server.requests[0].left_after is not None
    assert member.meter.open == []
    assert [failed for _, _, failed, _ in member.meter.settled] == [True]
    cost = 0.0 if name == "endless-500" else None
    assert member.meter.settled[0][1] == cost, "what it may have cost nobody told"


async def test_leaving_the_loop_early_closes_the_socket(members: Callable[..., Member], server: FaultServer) -> None:
    member = members("text-for-ever")
    async with aclosing(member.agent.stream(member.request())) as parts:  # type: ignore[type-var]
        async for _ in parts:
            break
    await until(lambda: server.open_connections == 0, "the server still sees the connection")
    assert len(member.meter.settled) == 1


async def test_stopping_in_a_pause(members: Callable[..., Member], server: FaultServer) -> None:
    server.retry_after_s = 3.0
    member = members("rate-limit-ms")
    assert await _cancelled(member, lambda: len(member.meter.settled) == 1) < 0.5
    assert len(server.requests) == 1
    assert server.busy == 0


async def test_stopping_in_the_queue(members: Callable[..., Member], server: FaultServer) -> None:
    member = members("stall-mid-stream", concurrency=1)
    holding = member.agent.stream(member.request())
    await anext(holding)
    waited: list[float] = []
    assert await _cancelled(member, lambda: not waited.append(0.0)) < 0.5  # type: ignore[func-returns-value]
    await holding.aclose()  # type: ignore[attr-defined]
    server.script(["ok"])
    assert (await member.reply()).text == TEXT, "the slot is free again"
    assert len(server.requests) == 2


async def test_stopping_a_connection_that_is_not_there_yet(members: Callable[..., Member]) -> None:
    async def slow(*_: object, **__: object) -> None:
        await asyncio.sleep(60)

    member = members(url="http://slow.example/v1")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asyncio.get_running_loop(), "getaddrinfo", slow)
        assert await _cancelled(member, lambda: len(member.meter.open) == 1) < 0.5
    assert member.meter.settled == [(Usage(), 0.0, True, False)]


async def test_forgotten_iterator_is_stopped(members: Callable[..., Member], server: FaultServer) -> None:
    member = members("stall-mid-stream")
    parts = member.agent.stream(member.request())
    await anext(parts)
    assert server.busy == 1
    del parts
    gc.collect()
    await until(lambda: server.open_connections == 0, "the call goes on")


async def test_each_step_in_a_task_of_its_own(members: Callable[..., Member], server: FaultServer) -> None:
    server.script(["disconnect-mid-stream"])
    member = members()
    parts, got = member.agent.stream(member.request()), []
    while (part := await asyncio.create_task(_next(parts))) is not None:
        got.append(part)
    assert text_of(got) == TEXT
    assert isinstance(got[-1], Reply)


async def _next(parts: AsyncIterator[Any]) -> Any:
    return await anext(parts, None)


# --- Slots and rates --------------------------------------------------------------------------------------


async def test_no_more_calls_at_once_than_slots(members: Callable[..., Member], server: FaultServer) -> None:
    member = members("stall-mid-stream", concurrency=3, between_tokens_s=0.1, retries=0)
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, server.busy)
            await asyncio.sleep(0.005)

    watching = asyncio.create_task(watch())
    errors = await asyncio.gather(*(member.error() for _ in range(7)))
    watching.cancel()
    assert {error.kind for error in errors} == {"timeout"}
    assert most == 3


async def test_slot_is_free_during_a_pause(members: Callable[..., Member], server: FaultServer) -> None:
    server.retry_after_s = 1.0
    member = members(concurrency=1)
    server.script(["rate-limit-ms", "ok"])
    pausing = asyncio.create_task(member.reply())
    await until(lambda: len(member.meter.settled) == 1, "it was never refused")
    began = time.monotonic()
    assert (await member.reply()).calls == 1
    assert time.monotonic() - began < 0.6
    assert (await pausing).calls == 2


async def test_waiting_for_a_slot_ends_with_the_total(members: Callable[..., Member], server: FaultServer) -> None:
    member = members(concurrency=1, total_s=0.2, retries=3)
    here = await member.agent._here()
    async with here.slots:
        error = await member.error()
    assert (error.kind, error.calls) == ("timeout", 0)
    assert "concurrency" in str(error)
    assert (member.agent.breaker.reason(), server.requests) == (None, [])
    assert (await member.reply()).text == TEXT, "the slot is free again"


@pytest.mark.parametrize("rate", [{"requests_per_minute": 2}, {"tokens_per_minute": 9000}])
async def test_rates(members: Callable[..., Member], server: FaultServer, rate: Mapping[str, int]) -> None:
    member = members(**rate, total_s=0.3)  # two calls of 4,096 tokens and a little fit into 9,000
    outcomes = [await member.items() for _ in range(3)]
    assert [isinstance(items[-1], Reply) for items in outcomes] == [True, True, False]
    assert len(server.requests) == 2
    assert "rates" in str(outcomes[-1][-1])


async def test_call_larger_than_its_rate_is_still_made(members: Callable[..., Member]) -> None:
    assert (await members(tokens_per_minute=10, total_s=5).reply()).text == TEXT


# --- The breaker and the budget -----------------------------------------------------------------------------


async def test_breaker_opens_rests_and_tries_again(members: Callable[..., Member], server: FaultServer) -> None:
    member = members("empty-500", retries=0, rest_after=2)

    def state() -> str:
        return member.wiring.breakers["ada"].state

    await member.error()
    assert state() == "closed"
    await member.error()
    assert state() == "open"
    resting = await member.error()
    assert (resting.kind, resting.calls, len(server.requests)) == ("resting", 0, 2)
    assert "HTTP 500" in str(resting)
    member.rested()
    assert state() == "half-open"
    server.script(["ok"])
    await member.reply()
    assert state() == "closed"


async def test_half_open_lets_one_of_many_calls_through(members: Callable[..., Member], server: FaultServer) -> None:
    member = members("empty-500", retries=0, rest_after=1)
    await member.error()
    member.rested()
    errors = await asyncio.gather(*(member.error() for _ in range(5)))
    assert sorted(error.kind for error in errors) == ["resting"] * 4 + ["transient"]
    assert len(server.requests) == 2


async def test_retries_end_when_the_breaker_opens(members: Callable[..., Member], server: FaultServer) -> None:
    error = await members("empty-500", retries=8, rest_after=3).error()
    assert (error.kind, error.calls, len(server.requests)) == ("transient", 3, 3)
    assert "rests" in str(error)


async def test_queue_is_turned_away_when_the_breaker_opens(
    members: Callable[..., Member], server: FaultServer
) -> None:
    member = members("never", retries=0, first_token_s=0.15, concurrency=1, rest_after=1)
    errors = await asyncio.gather(*(member.error() for _ in range(8)))
    assert sorted(error.kind for error in errors) == ["resting"] * 7 + ["timeout"]
    assert len(server.requests) == 1


async def test_cancelled_trial_leaves_the_breaker_half_open(
    members: Callable[..., Member], server: FaultServer
) -> None:
    member = members("empty-500", retries=0, rest_after=1)
    await member.error()
    member.rested()
    server.script(["never"])
    await _cancelled(member, lambda: server.busy == 1)
    assert member.agent.breaker.reason() is None
    server.script(["ok"])
    await member.reply()


async def test_refused_trial_leaves_the_breaker_half_open(members: Callable[..., Member]) -> None:
    member = members("empty-500", retries=0, rest_after=1)
    await member.error()
    member.rested()
    member.meter.refusal = lambda request: None  # type: ignore[method-assign]
    member.meter.refuse = "The day is spent."
    assert (await member.error()).kind == "budget"
    assert member.agent.breaker.reason() is None


async def test_another_key_wakes_a_resting_member(members: Callable[..., Member], server: FaultServer) -> None:
    member = members("bad-key")
    await member.error()
    assert member.agent.breaker.state == "open"
    assert (await member.error()).kind == "resting"
    member.keys.key = "another-key-123"
    server.script(["ok"])
    assert (await member.reply()).text == TEXT
    assert server.requests[-1].headers["authorization"] == "Bearer another-key-123"


async def test_spent_budget_makes_no_call(members: Callable[..., Member], server: FaultServer) -> None:
    member = members()
    member.meter.refuse = "The budget of the day is 0 calls."
    error = await member.error()
    assert (error.kind, error.retryable, error.calls) == ("budget", False, 0)
    assert "budget of the day" in str(error)
    assert server.requests == []


async def test_budget_that_ends_between_two_attempts(members: Callable[..., Member], server: FaultServer) -> None:
    member = members("empty-500", retries=5)
    settle = member.meter.settle

    def spend(*args: Any, **more: Any) -> None:
        settle(*args, **more)
        member.meter.refuse = "The day is spent."

    member.meter.settle = spend  # type: ignore[method-assign]
    error = await member.error()
    assert (error.kind, error.calls, len(server.requests)) == ("budget", 1, 1)
    assert "The day is spent." in str(error)
    assert "HTTP 500" in str(error), "why it had to be tried again"


# --- Accounts ---------------------------------------------------------------------------------------------


async def test_reply_carries_times_request_id_and_cost(members: Callable[..., Member]) -> None:
    reply = await members().reply()
    assert reply.request_id == "req-1"
    assert reply.first_token_s is not None
    assert 0 < reply.first_token_s <= reply.seconds < 5
    assert (reply.usage, reply.cost, reply.calls, reply.unpriced) == (Usage(12, 5), 17.0, 1, 0)
    assert reply.warnings == ("mind this",)


async def test_lost_attempts_may_have_cost_something(members: Callable[..., Member], server: FaultServer) -> None:
    server.script(["stall-mid-stream", "disconnect", "rate-limit", "status-504", "ok"])
    member = members(retries=5, between_tokens_s=0.2)
    reply = await member.reply()
    assert (reply.calls, reply.unpriced, reply.cost) == (5, 3, 17.0)
    assert [cost for _, cost, _, _ in member.meter.settled] == [None, None, 0.0, None, 17.0]
    assert [failed for _, _, failed, _ in member.meter.settled] == [True] * 4 + [False]
    assert all(called for *_, called in member.meter.settled)


async def test_unknown_cost_is_not_zero(members: Callable[..., Member], server: FaultServer) -> None:
    server.script(["rate-limit", "no-usage"])
    reply = await members().reply()
    assert (reply.cost, reply.unpriced, reply.usage) == (None, 1, Usage())


async def test_member_without_price_charges_nothing_that_is_known(members: Callable[..., Member]) -> None:
    member = members()
    member.spec = replace(member.spec, service={"retries": 0})
    member.agent = RemoteAgent(member.spec, member.format, member.wiring)
    reply = await member.reply()
    await member.agent.aclose()
    assert (reply.cost, reply.unpriced) == (None, 1)


async def test_free_member_owes_nothing_even_for_lost_attempts(
    members: Callable[..., Member], server: FaultServer
) -> None:
    server.script(["stall-mid-stream"])
    reply = await members(price={"input": 0, "output": 0}, between_tokens_s=0.2).reply()
    assert (reply.calls, reply.unpriced, reply.cost) == (2, 0, 0.0)


async def test_failed_answer_that_was_counted_is_paid(members: Callable[..., Member]) -> None:
    """An answer that came whole and is still no reply was billed, and the bill is known."""
    member = members("ok", retries=0)

    def no_reply(self: MiniReader) -> Reply:
        raise AgentError("There is no candidate.", kind="protocol", retryable=True)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MiniReader, "reply", no_reply)
        error = await member.error()
    assert (error.unpriced, error.usage, error.cost) == (0, Usage(12, 5), 17.0)
    assert member.meter.settled == [(Usage(12, 5), 17.0, True, True)]


async def test_bug_in_a_format_is_told_and_settled(members: Callable[..., Member]) -> None:
    member = members()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MiniReader, "event", lambda *_: 1 / 0)
        error = await member.error()
    assert (error.kind, error.calls) == ("internal", 1)
    assert "ZeroDivisionError" in str(error)
    member.format.wrong = KeyError("x")
    assert (await member.error()).kind == "internal"
    member.format.wrong = None
    assert (await member.reply()).text == TEXT


# --- Keys and headers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "key", "variable", "words"),
    [
        ("environment", KEY, "ADA_KEY", "came from the environment variable ADA_KEY"),
        ("memory", KEY, "ADA_KEY", "typed in the Pool tab"),
        ("keyring", KEY, None, "typed in the Pool tab"),
        ("none", None, "ADA_KEY", "put it into the environment variable ADA_KEY"),
        ("none", None, None, "key_env"),
    ],
)
async def test_refused_key_says_where_it_came_from(
    members: Callable[..., Member], where: str, key: str | None, variable: str | None, words: str
) -> None:
    member = members("bad-key", keys=MiniKeys(key, where))
    member.spec = replace(member.spec, key_env=variable)
    member.agent = RemoteAgent(member.spec, member.format, member.wiring)
    error = await member.error()
    await member.agent.aclose()
    assert words in str(error)
    assert KEY not in str(error)
    assert KEY not in str(member.wiring.breakers["ada"].reason())


@pytest.mark.parametrize("name", sorted(f.name for f in FAULTS.values() if f.kinds and not f.name.startswith("huge")))
async def test_no_error_and_no_reset_holds_the_key(members: Callable[..., Member], name: str) -> None:
    slow = {"first_token_s": 0.05, "between_tokens_s": 0.05, "total_s": 0.5}
    member = members(name, keys=MiniKeys(KEY, "environment"), **slow)
    items = await member.items()
    told = [str(items[-1]), *(reset.reason for reset in resets(items)), str(member.wiring.breakers["ada"].reason())]
    chain: BaseException | None = cast(AgentError, items[-1])
    while chain is not None:
        told.append(str(chain))
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    assert not any(KEY in text for text in told)


@pytest.mark.parametrize("key", ["kéy-with-accents", "key-with\nnewline", "key\x00zero", "ключ-ключ"])
async def test_key_that_no_header_can_hold(members: Callable[..., Member], server: FaultServer, key: str) -> None:
    error = await members(keys=MiniKeys(key, "memory")).error()
    assert (error.kind, error.retryable, server.requests) == ("bad_request", False, [])
    assert "key" in str(error)
    assert key not in str(error)


async def test_key_in_an_address_is_redacted(members: Callable[..., Member]) -> None:
    member = members()
    url = "http://127.0.0.1:9/v1beta/models/m:generateContent?key=AIzaPlaceholder123&alt=sse"

    def bad(*_: object) -> Any:
        raise AgentError(f"HTTP 400 for {url}", kind="bad_request")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MiniReader, "event", bad)
        said = str(await member.error())
    assert "?key=[redacted]&alt=sse" in said
    assert "AIza" not in said


async def test_key_in_an_error_before_the_call_is_redacted(members: Callable[..., Member]) -> None:
    member = members(keys=MiniKeys(KEY, "memory"))

    def bad(*_: object, **__: object) -> Call:
        raise AgentError(f"Nothing can be made of {KEY}.", kind="bad_request", calls=0)

    member.format.call = bad  # type: ignore[method-assign]
    error = await member.error()
    assert (KEY in str(error), error.calls) == (False, 0)


async def test_headers(members: Callable[..., Member], server: FaultServer) -> None:
    member = members(keys=MiniKeys(KEY, "memory"))
    await member.reply(via=("first", "second"))
    headers = server.requests[0].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert headers["x-trinity-via"] == "first,second,server-1"
    assert headers["x-trinity-depth"] == "3"
    assert "text/event-stream" in headers["accept"]
    assert headers["content-type"] == "application/json"


async def test_odd_text_arrives_as_it_was_sent(members: Callable[..., Member], server: FaultServer) -> None:
    member = members()
    odd = 'a\u2028b\x00c "quoted" \\ 🙂'
    request = replace(member.request(), messages=(Message("user", odd + "\ud800"),))
    async with aclosing(member.agent.stream(request)) as parts:  # type: ignore[type-var]
        async for _ in parts:
            pass
    assert server.requests[0].body["messages"][0]["content"] == odd + "\ufffd"


# --- Loops and closing --------------------------------------------------------------------------------------


async def test_connection_is_used_again(members: Callable[..., Member], server: FaultServer) -> None:
    member = members()
    for _ in range(5):
        await member.reply()
    assert server.connections == 1


async def test_closed_member_fails_calls(members: Callable[..., Member], server: FaultServer) -> None:
    member = members("never")
    waiting = asyncio.create_task(member.error())
    await until(lambda: server.busy == 1, "it never called")
    await member.agent.aclose()
    assert "was closed" in str(await waiting)
    assert "was closed" in str(await member.error())
    await until(lambda: server.open_connections == 0, "a connection was left open")
    await member.agent.aclose()


@pytest.fixture
def elsewhere() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


async def test_one_member_in_two_loops(
    members: Callable[..., Member], server: FaultServer, elsewhere: asyncio.AbstractEventLoop
) -> None:
    member = members()
    there = [asyncio.run_coroutine_threadsafe(member.reply(), elsewhere) for _ in range(6)]
    here = await asyncio.gather(*(member.reply() for _ in range(6)))
    replies = [*here, *(await asyncio.gather(*map(asyncio.wrap_future, there)))]
    assert {reply.text for reply in replies} == {TEXT}


async def test_closing_from_another_loop(
    members: Callable[..., Member], server: FaultServer, elsewhere: asyncio.AbstractEventLoop
) -> None:
    member = members("never")
    there = asyncio.run_coroutine_threadsafe(member.error(), elsewhere)
    await until(lambda: server.busy == 1, "it never called")
    await member.agent.aclose()
    told: AgentError = await asyncio.wrap_future(there)
    assert "was closed" in str(told)
    await until(lambda: server.open_connections == 0, "a connection was left open")


async def test_loops_that_ended_leave_no_connection(members: Callable[..., Member], server: FaultServer) -> None:
    member = members()

    def in_a_loop_of_its_own() -> str:
        return asyncio.run(member.reply()).text

    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        for _ in range(3):
            assert await asyncio.to_thread(in_a_loop_of_its_own) == TEXT
            await until(lambda: server.open_connections == 0, "the loop ended and its connection did not")
        gc.collect()
    await member.reply()
    assert len(member.agent._loops) == 1, "ended loops are forgotten"


async def test_many_calls_with_many_faults_lose_and_double_nothing(
    members: Callable[..., Member], server: FaultServer
) -> None:
    names = ["reset", "truncated", "malformed", "error-in-stream", "disconnect-mid-chunk", "empty-500", "short-body"]
    server.script([names[n % 7] if n % 3 == 0 else "ok" for n in range(200)])
    member = members(retries=6, concurrency=20, rest_after=1000)
    outcomes = await asyncio.gather(*(member.items() for _ in range(80)))
    assert all(isinstance(items[-1], Reply) for items in outcomes)
    assert {text_of(items) for items in outcomes} == {TEXT}
    calls = sum(cast(Reply, items[-1]).calls for items in outcomes)
    assert calls == len(server.requests) == len(member.meter.settled)
    assert server.busy == 0


@pytest.mark.parametrize("kind", ["openai", "anthropic", "gemini"])
@pytest.mark.parametrize("key_env", ["TRINITY_TEST_NO_SUCH_KEY", None])
async def test_the_provider_itself_is_not_asked_without_a_key(kind: str, key_env: str | None) -> None:
    spec = AgentSpec("frontier", kind, "some-model", key_env=key_env)
    agent = RemoteAgent(spec, format_of(kind), Wiring(Keys(use_keyring=False), Meter()))
    question = (Message("user", "q"),)
    with pytest.raises(AgentError) as caught:
        async for _ in agent.stream(Request(spec, question, Brief(Role.WORKER, question))):
            pass
    await agent.aclose()
    assert (caught.value.kind, caught.value.calls) == ("auth", 0)
    assert "needs a key and none is set" in str(caught.value)
    assert key_env is None or key_env in str(caught.value)
