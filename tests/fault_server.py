"""A model server that fails on purpose: a raw socket server that speaks all three wire formats and breaks them.

    async with FaultServer() as server:
        spec = AgentSpec("ada", "openai", model="stall-mid-stream", base_url=server.url("openai"))

The model's name chooses what happens; `FAULTS` lists every name with what a client must make of it (`Fault.kind` is
None where a whole reply must come). `status-NNN` answers with that status. Any other name is a model that does not
exist (404). Instead of the name, a list can decide, one entry a request, whoever sends it:

    server.script(["never", "reset", "ok"])

or a function, `FaultServer(choose=lambda model, number: "ok")`. The text of a reply is `server.text`, or what
`FaultServer(answer=...)` makes of the request's JSON body. `server.requests` holds what was asked, `open_connections`
counts sockets that are open, `busy` those in the middle of a request. A client that leaves is noticed at once, and
`Seen.left_after` says how many seconds after its request that was.

    python -m tests.fault_server 4060      serves until it is interrupted

Nothing here parses more HTTP than the clients under test send.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, Self

from tests.fault_formats import Frame, error_body, error_frame, frames, listing, whole

TEXT = "Grüße ✓ 🙂, two  blanks\nand a line."
NEVER_S = 3600.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to answer. `kinds` are the kinds of AgentError that a client may make of it, empty where a reply must
    come; `after_text` says that pieces came before it failed."""

    name: str
    says: str
    kinds: tuple[str, ...]
    retryable: bool
    after_text: bool
    play: Callable[[Turn], Awaitable[None]]

    @property
    def kind(self) -> str | None:
        return self.kinds[0] if self.kinds else None


@dataclass(slots=True)
class Seen:
    """One request as it came. `format` is openai, anthropic or gemini; `left_after` is set when the client left
    before the answer was over."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    format: str
    model: str
    fault: str
    left_after: float | None = None


FAULTS: dict[str, Fault] = {}


def fault(
    name: str, says: str, *kinds: str, retryable: bool = True, after_text: bool = False
) -> Callable[[Callable[[Turn], Awaitable[None]]], Callable[[Turn], Awaitable[None]]]:
    def add(play: Callable[[Turn], Awaitable[None]]) -> Callable[[Turn], Awaitable[None]]:
        FAULTS[name] = Fault(name, says, kinds, retryable and bool(kinds), after_text, play)
        return play

    return add


class FaultServer:
    """See the module. `huge` is the size in bytes of what is too large, `pause` the seconds between slow steps."""

    def __init__(
        self,
        port: int = 0,
        *,
        answer: Callable[[Any], str] | None = None,
        choose: Callable[[str, int], str] | None = None,
    ) -> None:
        self.text, self.huge, self.pause = TEXT, 17 * 1024 * 1024, 0.01
        self.retry_after_s = 0.05
        self.redirect_to = "http://169.254.169.254/latest/meta-data"
        self.requests: list[Seen] = []
        self.open_connections = self.busy = self.connections = 0
        self._port, self._answer, self._choose = port, answer, choose
        self._script: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, limit=2**20)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def port(self) -> int:
        return self._port

    def url(self, format_: str) -> str:
        """The base URL for members of this kind, as their providers write it."""
        return f"http://127.0.0.1:{self._port}" + {"openai": "/v1", "anthropic": "", "gemini": "/v1beta"}[format_]

    def script(self, outcomes: Iterable[str]) -> None:
        """The next requests get these faults, in order; after that the model's name decides again."""
        self._script = list(outcomes)

    # --- Connections --------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open_connections += 1
        self.connections += 1
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self.open_connections -= 1
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ahead = b""
        while True:
            head = ahead + await reader.readuntil(b"\r\n\r\n")
            seen = await self._read(head, reader)
            self.requests.append(seen)
            turn = Turn(self, seen, writer)
            started = time.monotonic()
            work = asyncio.ensure_future(self._play(turn))
            more = asyncio.ensure_future(reader.read(1))  # ends early only when the client leaves
            again = False
            self.busy += 1
            try:
                await asyncio.wait({work, more}, return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    work.result()
                    again = turn.keep
                else:
                    seen.left_after = time.monotonic() - started
            finally:
                self.busy -= 1
                await _ended(work, *(() if again else (more,)))
            ahead = await more if again else b""
            if not ahead:
                return

    async def _play(self, turn: Turn) -> None:
        seen = turn.seen
        if seen.method == "GET":
            return await turn.whole(200, listing(seen.format, list(FAULTS)))
        if status := re.fullmatch(r"status-(\d{3})", seen.fault):
            return await turn.error(int(status[1]), "server_error", "It failed on purpose.")
        await FAULTS[seen.fault if seen.fault in FAULTS else "unknown-model"].play(turn)

    async def _read(self, head: bytes, reader: asyncio.StreamReader) -> Seen:
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        method, path, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        body = json.loads(raw) if raw else None
        named = re.search(r"/models/([^:/?]+):", path)
        kind = "gemini" if named or "/v1beta" in path else "anthropic" if "/messages" in path else "openai"
        model = named[1] if named else str((body or {}).get("model", ""))
        if self._script and method == "POST":
            chosen = self._script.pop(0)
        else:
            chosen = self._choose(model, len(self.requests)) if self._choose else model
        return Seen(method, path, headers, body, kind, model, chosen)

    def says(self, seen: Seen) -> str:
        return self._answer(seen.body) if self._answer else self.text


@dataclass(slots=True)
class Turn:
    """One answer while it is given. `keep`: the connection may serve another request after it."""

    server: FaultServer
    seen: Seen
    writer: asyncio.StreamWriter
    keep: bool = True
    chunked: bool = field(default=False)

    def frames(self, *, text: str | None = None, **how: Any) -> list[Frame]:
        return frames(self.seen.format, self.server.says(self.seen) if text is None else text, **how)

    def json(self, **how: Any) -> bytes:
        return json.dumps(whole(self.seen.format, self.server.says(self.seen), **how), ensure_ascii=False).encode()

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status: int, **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} Something", "x-request-id: req-" + str(len(self.server.requests))]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.raw(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def whole(self, status: int, body: Any, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content_type": "application/json", "content_length": str(len(data))} | headers
        await self.head(status, **headers)
        await self.raw(data)

    async def error(self, status: int, type_: str, message: str, param: str | None = None, **headers: str) -> None:
        await self.whole(status, error_body(self.seen.format, status, type_, message, param), **headers)

    async def open(self, **headers: str) -> None:
        """Begin a chunked event stream."""
        self.chunked = True
        await self.head(200, **({"content_type": "text/event-stream", "transfer_encoding": "chunked"} | headers))

    async def send(self, data: bytes) -> None:
        """One HTTP chunk."""
        await self.raw(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def events(self, some: Iterable[Frame], end: str = "\n") -> None:
        for frame in some:
            await self.send(frame.wire(end))

    async def finish(self) -> None:
        await self.raw(b"0\r\n\r\n")

    async def stream(self, some: Iterable[Frame], end: str = "\n") -> None:
        await self.open()
        await self.events(some, end)
        await self.finish()

    async def begin(self, **how: Any) -> None:
        """A stream up to the middle of its text."""
        await self.open()
        await self.events(self.some_text(**how))

    def some_text(self, **how: Any) -> list[Frame]:
        """The frames up to the middle of the text."""
        made = self.frames(**how)
        pieces = [place for place, frame in enumerate(made) if frame.part == "piece"]
        return made[: pieces[len(pieces) // 2] + 1]

    async def for_ever(self, data: bytes) -> None:
        """The same chunk again and again, until the client leaves."""
        while True:
            await self.send(data)
            await asyncio.sleep(self.server.pause)

    async def never(self) -> None:
        await asyncio.sleep(NEVER_S)

    def reset(self) -> None:
        """Close so that the client sees a reset instead of an end."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.keep = False
        self.writer.transport.abort()


# --- Whole replies in odd forms -------------------------------------------------------------------------------


@fault("ok", "a stream as the provider documents it")
async def _ok(turn: Turn) -> None:
    await turn.stream(turn.frames())


@fault("json", "one JSON value although a stream was asked for")
async def _json(turn: Turn) -> None:
    await turn.whole(200, turn.json())


@fault("reasoning", "reasoning before the text")
async def _reasoning(turn: Turn) -> None:
    await turn.stream(turn.frames(reasoning="I weigh both."))


@fault("no-usage", "no count of tokens")
async def _no_usage(turn: Turn) -> None:
    await turn.stream(turn.frames(usage=False))


@fault("length", "cut off by the limit on tokens")
async def _length(turn: Turn) -> None:
    await turn.stream(turn.frames(finish="length"))


@fault("crlf", "CRLF line ends")
async def _crlf(turn: Turn) -> None:
    await turn.stream(turn.frames(), "\r\n")


@fault("cr", "CR line ends")
async def _cr(turn: Turn) -> None:
    await turn.stream(turn.frames(), "\r")


@fault("byte-split", "every byte by itself, so that characters and CRLF come apart")
async def _byte_split(turn: Turn) -> None:
    await turn.open()
    data = b"".join(frame.wire("\r\n") for frame in turn.frames())
    for place in range(len(data)):
        await turn.send(data[place : place + 1])
        if place % 64 == 0:
            await asyncio.sleep(0)
    await turn.finish()


@fault("no-space", "no blank after `data:`")
async def _no_space(turn: Turn) -> None:
    await turn.open()
    for frame in turn.frames():
        await turn.send(frame.wire().replace(b"data: ", b"data:", 1))
    await turn.finish()


@fault("bom", "a byte order mark first")
async def _bom(turn: Turn) -> None:
    await turn.open()
    await turn.send(b"\xef\xbb\xbf")
    await turn.events(turn.frames())
    await turn.finish()


@fault("comments", "comments and pings before, between and after")
async def _comments(turn: Turn) -> None:
    await turn.open()
    for frame in turn.frames():
        await turn.send(b": OPENROUTER PROCESSING\n\n: keep-alive\n\n")
        await turn.send(frame.wire())
    await turn.send(b": bye\n\n")
    await turn.finish()


@fault("several-data-lines", "JSON spread over several data lines")
async def _several(turn: Turn) -> None:
    await turn.open()
    for frame in turn.frames():
        await turn.send(frame.wire(indent=True))
    await turn.finish()


@fault("separators", "U+2028, U+2029 and U+0085 unescaped in the JSON")
async def _separators(turn: Turn) -> None:
    await turn.stream(turn.frames(text="a\u2028b\u2029c\u0085d " + turn.server.says(turn.seen)))


@fault("no-last-blank", "the last event without its blank line")
async def _no_last_blank(turn: Turn) -> None:
    await turn.open()
    *most, last = turn.frames()
    await turn.events(most)
    await turn.send(last.wire().rstrip(b"\n"))
    await turn.finish()


@fault("no-terminator", "a finish reason, but no [DONE] or message_stop")
async def _no_terminator(turn: Turn) -> None:
    await turn.stream(frame for frame in turn.frames() if frame.part != "last")


@fault("hold-open", "a whole stream after which the connection stays open, silently")
async def _hold_open(turn: Turn) -> None:
    await turn.open()
    await turn.events(turn.frames())
    await turn.never()


@fault("cut-at-the-end", "a whole stream, then a reset instead of the last chunk")
async def _cut_at_the_end(turn: Turn) -> None:
    await turn.open()
    await turn.events(turn.frames())
    await asyncio.sleep(0.02)
    turn.reset()


@fault("until-close", "a stream without length or chunks: its end is the end of the connection")
async def _until_close(turn: Turn) -> None:
    turn.keep = False
    await turn.head(200, content_type="text/event-stream", connection="close")
    await turn.raw(b"".join(frame.wire() for frame in turn.frames()))


@fault("wrong-type", "a stream that calls itself text/plain")
async def _wrong_type(turn: Turn) -> None:
    await turn.open(content_type="text/plain")
    await turn.events(turn.frames())
    await turn.finish()


@fault("json-as-stream", "one JSON value that calls itself an event stream")
async def _json_as_stream(turn: Turn) -> None:
    await turn.whole(200, turn.json(), content_type="text/event-stream; charset=utf-8")


@fault("leading-blanks", "blank lines, slowly, before the JSON value")
async def _leading_blanks(turn: Turn) -> None:
    await turn.open(content_type="application/json")
    for _ in range(5):
        await turn.send(b"\r\n")
        await asyncio.sleep(turn.server.pause)
    await turn.send(turn.json())
    await turn.finish()


@fault("gzip", "a compressed JSON value")
async def _gzip(turn: Turn) -> None:
    await turn.whole(200, gzip.compress(turn.json()), content_encoding="gzip")


@fault("gzip-stream", "a compressed stream")
async def _gzip_stream(turn: Turn) -> None:
    await turn.open(content_encoding="gzip")
    data = gzip.compress(b"".join(frame.wire() for frame in turn.frames()))
    for place in range(0, len(data), 7):
        await turn.send(data[place : place + 7])
    await turn.finish()


@fault("slow-headers", "headers one byte at a time")
async def _slow_headers(turn: Turn) -> None:
    data = turn.json()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    for byte in head.encode():
        await turn.raw(bytes([byte]))
        await asyncio.sleep(0)
    await turn.raw(data)


# --- Refused by status ------------------------------------------------------------------------------------------


@fault("rate-limit", "429 without a time to wait", "rate_limit")
async def _rate_limit(turn: Turn) -> None:
    await turn.error(429, "rate_limit_error", "Slow down.")


@fault("rate-limit-seconds", "429 with Retry-After: 1", "rate_limit")
async def _rate_limit_seconds(turn: Turn) -> None:
    await turn.error(429, "rate_limit_error", "Slow down.", retry_after="1")


@fault("rate-limit-ms", "429 with retry-after-ms", "rate_limit")
async def _rate_limit_ms(turn: Turn) -> None:
    wait = str(int(turn.server.retry_after_s * 1000))
    await turn.error(429, "rate_limit_error", "Slow down.", retry_after_ms=wait)


@fault("rate-limit-date", "429 with an HTTP date a second ahead", "rate_limit")
async def _rate_limit_date(turn: Turn) -> None:
    await turn.error(429, "rate_limit_error", "Slow down.", retry_after=formatdate(int(time.time()) + 1, usegmt=True))


@fault("rate-limit-hour", "429 with Retry-After: 3600", "rate_limit")
async def _rate_limit_hour(turn: Turn) -> None:
    await turn.error(429, "rate_limit_error", "Slow down.", retry_after="3600")


@fault("no-retry", "503 with x-should-retry: false", "transient", retryable=False)
async def _no_retry(turn: Turn) -> None:
    await turn.error(503, "overloaded_error", "It was tried often enough.", x_should_retry="false")


@fault("bad-key", "401", "auth", retryable=False)
async def _bad_key(turn: Turn) -> None:
    given = turn.seen.headers.get("authorization", turn.seen.headers.get("x-api-key", "nothing"))
    await turn.error(401, "authentication_error", f"Incorrect API key provided: {given}.")


@fault("no-credit", "402", "billing", retryable=False)
async def _no_credit(turn: Turn) -> None:
    await turn.error(402, "billing_error", "Insufficient balance.")


@fault("unknown-model", "404: there is no such model", "bad_request", retryable=False)
async def _unknown_model(turn: Turn) -> None:
    await turn.error(404, "not_found_error", f"The model {turn.seen.model} does not exist.")


@fault("context", "400: the prompt is too long", "context_length", retryable=False)
async def _context(turn: Turn) -> None:
    await turn.error(400, "context_length_exceeded", "This model's maximum context length is 64 tokens.")


@fault("unsupported-temperature", "400 for as long as the request holds a temperature, then a reply")
async def _unsupported(turn: Turn) -> None:
    if "temperature" in turn.seen.body or "temperature" in turn.seen.body.get("generationConfig", {}):
        words = "Unsupported parameter: 'temperature' is not supported with this model."
        return await turn.error(400, "unsupported_parameter", words, "temperature")
    await turn.stream(turn.frames())


@fault("redirect", "302 to another host", "bad_request", retryable=False)
async def _redirect(turn: Turn) -> None:
    await turn.whole(302, b"", location=turn.server.redirect_to)


@fault("string-error", "400 whose error is a text", "bad_request", retryable=False)
async def _string_error(turn: Turn) -> None:
    await turn.whole(400, {"error": "plain words"})


@fault("list-error", "400 whose body is a list", "bad_request", retryable=False)
async def _list_error(turn: Turn) -> None:
    await turn.whole(400, [error_body(turn.seen.format, 400, "invalid_request_error", "in a list")])


@fault("detail-error", "422 with a list of details", "bad_request", retryable=False)
async def _detail_error(turn: Turn) -> None:
    await turn.whole(422, {"detail": [{"loc": ["body", "messages"], "msg": "field required"}]})


@fault("empty-500", "500 without a body", "transient")
async def _empty_500(turn: Turn) -> None:
    await turn.whole(500, b"")


@fault("bytes-500", "500 with a body that is no text", "transient")
async def _bytes_500(turn: Turn) -> None:
    await turn.whole(500, bytes(range(256)))


@fault("html-502", "502 with a web page in another language", "transient")
async def _html_502(turn: Turn) -> None:
    page = "<!DOCTYPE html><html><title>Fehler</title><p>Der Dienst ist überlastet.</html>".encode("latin-1")
    await turn.whole(502, page, content_type="text/html; charset=iso-8859-1")


@fault("endless-500", "500 with a body that never ends", "transient")
async def _endless_500(turn: Turn) -> None:
    await turn.head(500, content_type="text/plain", transfer_encoding="chunked")
    await turn.send(b"It failed")
    await turn.never()


# --- Failed under 200 -------------------------------------------------------------------------------------------


@fault("html-200", "a web page under 200", "protocol", retryable=False)
async def _html_200(turn: Turn) -> None:
    await turn.whole(200, b"<html><title>Sign in</title></html>", content_type="text/html")


@fault("error-200", "an error as JSON under 200", "transient")
async def _error_200(turn: Turn) -> None:
    await turn.whole(200, error_body(turn.seen.format, 502, "server_error", "The upstream died."))


@fault("error-in-stream", "an error in the middle of the stream", "transient", after_text=True)
async def _error_in_stream(turn: Turn) -> None:
    await turn.begin()
    await turn.events([error_frame(turn.seen.format, 502, "overloaded_error", "The upstream died.")])
    await turn.finish()


@fault("malformed", "half a JSON value in the middle of the stream", "protocol", after_text=True)
async def _malformed(turn: Turn) -> None:
    await turn.begin()
    await turn.send(b'data: {"id": "x", \n\n')
    await turn.finish()


@fault("malformed-json", "half a JSON value instead of a whole one", "protocol")
async def _malformed_json(turn: Turn) -> None:
    await turn.whole(200, turn.json()[:-9])


@fault("empty-body", "200 and nothing", "protocol", "truncated")
async def _empty_body(turn: Turn) -> None:
    await turn.whole(200, b"")


@fault("empty-stream", "an event stream without events", "truncated", "protocol")
async def _empty_stream(turn: Turn) -> None:
    await turn.stream([])


@fault("truncated", "a stream that ends without a finish reason", "truncated", after_text=True)
async def _truncated(turn: Turn) -> None:
    await turn.begin()
    await turn.finish()


@fault("huge-event", "one event without end", "protocol", retryable=False)
async def _huge_event(turn: Turn) -> None:
    await turn.open()
    await turn.send(b"data: ")
    for _ in range(turn.server.huge // 65536):
        await turn.send(b"x" * 65536)
    await turn.never()


@fault("huge-body", "a JSON value without end", "protocol", retryable=False)
async def _huge_body(turn: Turn) -> None:
    await turn.open(content_type="application/json")
    await turn.send(b'{"x": "')
    for _ in range(2 * turn.server.huge // 65536):
        await turn.send(b"x" * 65536)
    await turn.never()


@fault("bad-gzip", "called compressed, which it is not", "protocol")
async def _bad_gzip(turn: Turn) -> None:
    await turn.whole(200, turn.json(), content_encoding="gzip")


# --- Broken connections -----------------------------------------------------------------------------------------


@fault("reset", "a reset instead of an answer", "transport")
async def _reset(turn: Turn) -> None:
    turn.reset()


@fault("disconnect", "closed instead of an answer", "transport")
async def _disconnect(turn: Turn) -> None:
    turn.keep = False


@fault("disconnect-in-headers", "closed in the middle of the headers", "transport")
async def _disconnect_in_headers(turn: Turn) -> None:
    turn.keep = False
    await turn.raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/ev")


@fault("no-http", "an answer that is not HTTP", "protocol", "transport")
async def _no_http(turn: Turn) -> None:
    turn.keep = False
    await turn.raw(b"SSH-2.0-OpenSSH_9.9\r\n")


@fault("disconnect-mid-stream", "a reset in the middle of the text", "transport", after_text=True)
async def _disconnect_mid_stream(turn: Turn) -> None:
    await turn.begin()
    await asyncio.sleep(0.02)  # a reset overtakes what the client has not read yet
    turn.reset()


@fault("disconnect-mid-chunk", "closed within an HTTP chunk", "transport", after_text=True)
async def _disconnect_mid_chunk(turn: Turn) -> None:
    turn.keep = False
    await turn.begin()
    await turn.raw(b"ff\r\ndata: {")


@fault("no-last-chunk", "closed without the last HTTP chunk", "transport", after_text=True)
async def _no_last_chunk(turn: Turn) -> None:
    turn.keep = False
    await turn.begin()


@fault("bad-chunk", "a chunk whose length is no number", "protocol", "transport", after_text=True)
async def _bad_chunk(turn: Turn) -> None:
    turn.keep = False
    await turn.begin()
    await turn.raw(b"zz\r\nwhat\r\n")


@fault("short-body", "less than content-length promises", "transport")
async def _short_body(turn: Turn) -> None:
    turn.keep = False
    data = turn.json()
    await turn.whole(200, data[:-9], content_length=str(len(data)))


@fault("long-body", "more than content-length promises", "protocol")
async def _long_body(turn: Turn) -> None:
    turn.keep = False
    data = turn.json()
    await turn.whole(200, data, content_length=str(len(data) - 9))


# --- Silence ----------------------------------------------------------------------------------------------------


@fault("never", "the request is accepted and never answered", "timeout")
async def _never(turn: Turn) -> None:
    await turn.never()


@fault("headers-for-ever", "headers without end", "timeout")
async def _headers_for_ever(turn: Turn) -> None:
    await turn.raw(b"HTTP/1.1 200 OK\r\n")
    for number in range(10**6):
        await turn.raw(f"x-{number % 50}: y\r\n".encode())
        await asyncio.sleep(turn.server.pause * 3)


@fault("stall-after-headers", "headers, then silence", "timeout")
async def _stall_after_headers(turn: Turn) -> None:
    await turn.open()
    await turn.never()


@fault("stall-mid-stream", "silence in the middle of the text", "timeout", after_text=True)
async def _stall_mid_stream(turn: Turn) -> None:
    await turn.begin()
    await turn.never()


@fault("keep-alive-for-ever", "comments without end and no text", "timeout")
async def _keep_alive_for_ever(turn: Turn) -> None:
    await turn.open()
    await turn.for_ever(b": keep-alive\n\n")


@fault("keep-alive-mid-stream", "comments without end in the middle of the text", "timeout", after_text=True)
async def _keep_alive_mid_stream(turn: Turn) -> None:
    await turn.begin()
    await turn.for_ever(b": keep-alive\n\n")


@fault("blanks-for-ever", "blank lines without end instead of a JSON value", "timeout")
async def _blanks_for_ever(turn: Turn) -> None:
    await turn.open(content_type="application/json")
    await turn.for_ever(b"\n")


@fault("text-for-ever", "text without end", "timeout", after_text=True)
async def _text_for_ever(turn: Turn) -> None:
    await turn.begin()
    await turn.for_ever(turn.some_text()[-1].wire())


async def _ended(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError, ConnectionError):
            await task


async def _main(port: int) -> None:
    async with FaultServer(port) as server:
        for format_ in ("openai", "anthropic", "gemini"):
            print(f"{format_:10} {server.url(format_)}")
        print(f"models: {', '.join(FAULTS)}, status-NNN")
        await asyncio.Event().wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(_main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
