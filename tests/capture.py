"""For tests of wire formats: a server that keeps what it is sent, and the shortest client that a format needs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from trinity_core.agents.remote.formats import Format
from trinity_core.agents.remote.sse import Decoder
from trinity_core.types import AgentSpec, Brief, Message, Piece, Reply, Request, Role, Sampling


def request_to(spec: AgentSpec, *messages: tuple[str, str], sampling: Sampling | None = None) -> Request:
    """A request with (role, text) messages; one question when none is given."""
    asked = tuple(Message(role, text) for role, text in messages or (("user", "q"),))  # type: ignore[arg-type]
    return Request(spec, asked, Brief(Role.WORKER, ()), sampling or Sampling())


def read_stream(format: Format, events: Sequence[Any]) -> tuple[list[Piece], Reply]:
    """The pieces and the reply that a stream of JSON values gives; each is named by its own `type`."""
    reader = format.reader(request_to(AgentSpec("m", format.kind, "m")))
    pieces: list[Piece] = []
    for value in events:
        name = str(value.get("type", "")) if isinstance(value, dict) else ""
        pieces += [part for part in reader.event(json.dumps(value), name) if isinstance(part, Piece)]
    return pieces, reader.reply()


def read_whole(format: Format, body: Any) -> Reply:
    reader = format.reader(request_to(AgentSpec("m", format.kind, "m")))
    reader.whole(body)
    return reader.reply()


def exchange(format: Format, request: Request, key: str | None = "test-key-1") -> Reply:
    """Call, read and return the reply over a real socket. Raises AgentError."""
    call = format.call(request, key)
    reader = format.reader(request)
    with (
        httpx.Client(trust_env=False) as client,
        client.stream("POST", call.url, headers=dict(call.headers), json=call.body) as answer,
    ):
        if answer.status_code >= 400:
            raise format.fault(answer.status_code, answer.headers, answer.read())
        if "event-stream" not in answer.headers["content-type"]:
            reader.whole(json.loads(answer.read()))
            return reader.reply()
        decoder = Decoder()
        for data in answer.iter_raw():
            for event in decoder.feed(data):
                reader.event(event.data, event.event)
        for event in decoder.end():
            reader.event(event.data, event.event)
    return reader.reply()


@dataclass
class Captured:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Capture:
    """`url` of the server, what it was sent, and the events that it answers with."""

    url: str = ""
    events: Sequence[Any] = ()
    named: bool = False
    seen: list[Captured] = field(default_factory=list)

    def answer(self) -> bytes:
        lines = (
            f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" if self.named else f"data: {json.dumps(e)}\n\n"
            for e in self.events
        )
        return "".join(lines).encode()


@contextmanager
def capturing(events: Sequence[Any], *, named: bool = False) -> Iterator[Capture]:
    """A server on a free port that answers every POST with `events` as a stream."""
    capture = Capture(events=events, named=named)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            capture.seen.append(Captured(self.path, headers, body))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(capture.answer())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    capture.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield capture
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
