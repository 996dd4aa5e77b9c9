"""A scripted model server over a real socket, in a thread: `with serving(Script()) as server`.

It speaks the OpenAI chat format as far as the Pool tab and discovery need it. The model's name in a request chooses
what happens: `slow` streams for seconds, `stall` never says anything, `thinks` spends all on reasoning, `hostile`
answers with markup, `echo-key` quotes the key in an error; a name that is not listed is answered with 404.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script> **bold** 42'


@dataclass
class Script:
    """What the server does. `key` None: none is asked for. `raw` replaces every answer: status, type, body."""

    models: tuple[str, ...] = ("model-a", "model-b", "slow", "stall", "thinks", "hostile", "echo-key")
    key: str | None = None
    raw: tuple[int, str, bytes] | None = None
    location: str | None = None
    seen: list[tuple[str, str | None, Any]] = field(default_factory=list)
    """Path, Authorization header and body of each request."""
    dropped: threading.Event = field(default_factory=threading.Event)
    """Set once a client closed its connection in the middle of an answer."""
    url: str = ""
    ending: bool = False


class _Handler(BaseHTTPRequestHandler):
    script: ClassVar[Script]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._record(None)
        if not self._refused():
            self._send(200, {"object": "list", "data": [{"id": name} for name in self.script.models]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self._record(body)
        if self._refused():
            return
        model = body["model"]
        if model not in self.script.models:
            self._send(404, {"error": {"message": f"The model `{model}` does not exist.", "code": "model_not_found"}})
        elif model == "echo-key":
            said = f"Incorrect API key provided: {self.headers['authorization'].split()[-1]}"
            self._send(401, {"error": {"message": said, "code": "invalid_api_key"}})
        else:
            try:
                self._stream(model)
            except (BrokenPipeError, ConnectionResetError):
                self.script.dropped.set()

    def _record(self, body: Any) -> None:
        self.script.seen.append((self.path, self.headers.get("authorization"), body))

    def _refused(self) -> bool:
        script = self.script
        if script.location is not None:
            self.send_response(302)
            self.send_header("location", script.location)
            self.send_header("content-length", "0")
            self.end_headers()
            return True
        if script.raw is not None:
            status, kind, body = script.raw
            self._plain(status, kind, body)
            return True
        if script.key is not None and self.headers.get("authorization") != f"Bearer {script.key}":
            self._send(401, {"error": {"message": "Incorrect API key provided.", "code": "invalid_api_key"}})
            return True
        return False

    def _send(self, status: int, value: Any) -> None:
        self._plain(status, "application/json", json.dumps(value).encode())

    def _plain(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, model: str) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        if model == "stall":
            self._idle(60)
        elif model == "thinks":
            self._delta(reasoning_content="I wonder. ")
        else:
            words = {"slow": [f"word{n} " for n in range(100)], "hostile": [HOSTILE]}.get(model, ["Answer: ", "42"])
            for word in words:
                self._delta(content=word)
                if model == "slow":
                    self._idle(0.1)
        finish = "length" if model == "thinks" else "stop"
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        self._event({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 3}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _idle(self, seconds: float) -> None:
        """Wait, noticing when the client is gone."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.script.ending:
            time.sleep(0.02)
            self.wfile.write(b": waiting\n\n")
            self.wfile.flush()

    def _delta(self, **delta: str) -> None:
        self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})

    def _event(self, value: Any) -> None:
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()


@contextmanager
def serving(script: Script | None = None, *, port: int = 0) -> Iterator[Script]:
    """The server at a free port of this machine, or at `port`; `script.url` is its base URL."""
    script = script or Script()
    server = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Handler,), {"script": script}))
    server.daemon_threads = True
    script.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield script
    finally:
        script.ending = True
        server.shutdown()
        server.server_close()
        thread.join(5)
