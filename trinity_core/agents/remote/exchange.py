"""One attempt: one POST to a server, its deadlines, and the answer, read as it comes.

A status of 400 or more is the format's to explain. Otherwise the body is an event stream or one JSON value, whatever
was asked for and, where it can be told from its first bytes, whatever it calls itself. A reply whose finish has come
counts, even if the connection then breaks or stays open in silence.

Invariants: only text or reasoning is progress; comments, pings and blank lines postpone no deadline. However the
attempt ends, cancelled or not, its connection is reusable or closed when `run` returns. No message holds a header.

Not covered: trying again, limits and money; see `remote.py`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence

import httpx

from trinity_core import wire
from trinity_core.agents.remote import faults, net
from trinity_core.agents.remote.formats import Call, Format, Reader
from trinity_core.agents.remote.service import Service
from trinity_core.agents.remote.sse import Decoder, Event
from trinity_core.errors import AgentError
from trinity_core.types import Piece, Reply, Request, Reset

ERROR_BODY_S = 5.0
"""Seconds for the body of an error, which must not hold up a retry."""
GRACE_S = 0.5
"""Seconds that a stream has to end after its last event; a connection that ends in time can be used again."""
_ERROR_BYTES = 64 * 1024
_WHOLE_BYTES = 16 * 1024 * 1024
_STREAM_BYTES = 256 * 1024 * 1024
_EVENT_STARTS = (b"data:", b"event:", b":", b"id:", b"retry:")
_BLANK = b"\xef\xbb\xbf \t\r\n"
_REQUEST_IDS = ("x-request-id", "request-id", "x-goog-request-id")
_MAYBE_BILLED = frozenset((408, 502, 504, 520, 521, 522, 523, 524))
"""Statuses of a gateway that gave up, behind which the model may have worked on. Others charge nothing."""
_CUT = ("peer closed connection", "server disconnected")
_UNSENDABLE = "The request cannot be sent. Check the member's base URL, and its key for blanks and odd characters."
_HEADERS = {"accept": "text/event-stream, application/json", "content-type": "application/json"}


class Exchange:
    """One attempt. `sent`: the request, or a part of it, went out. `first_at`: when the first piece came, in the
    loop's time. `turned_away`: nothing is charged. `ended`: the answer came whole, and with it `reader.usage`."""

    def __init__(
        self, form: Format, request: Request, service: Service, put: Callable[[Piece | Reset], None]
    ) -> None:
        self.reader: Reader = form.reader(request)
        self.sent = self.turned_away = self.ended = False
        self.first_at: float | None = None
        self.request_id: str | None = None
        self._form, self._service, self._put = form, service, put
        self._decoder = Decoder()
        self._streams: bool | None = None
        self._raw = bytearray()
        self._answered = False
        self._refusal: AgentError | None = None
        self._size = 0
        self._events = 0
        self._over = False
        self._total = 0.0
        self._limit = asyncio.timeout(None)

    async def run(self, client: httpx.AsyncClient, call: Call, hops: Mapping[str, str], total: float) -> Reply:
        """The reply, without times and prices. `total` is the deadline for everything, in the loop's time.

        Raises AgentError."""
        loop = asyncio.get_running_loop()
        self._total = total
        broken: AgentError | None = None
        try:
            async with asyncio.timeout_at(min(loop.time() + self._service.first_token_s, total)) as self._limit:
                await self._post(client, self._written(client, call, hops))
                self.ended = True
        except TimeoutError:
            broken = self._late()
        except httpx.HTTPError as error:
            broken = self._broken(error)
        return self._reply(broken)

    def _written(self, client: httpx.AsyncClient, call: Call, hops: Mapping[str, str]) -> httpx.Request:
        headers = {**_HEADERS, **call.headers, **hops}
        body = wire.line(call.body).encode()
        try:
            return client.build_request(
                "POST", call.url, headers=headers, content=body, extensions={"trace": self._trace}
            )
        except (httpx.InvalidURL, ValueError):  # their words may quote a header, the key among them
            raise AgentError(_UNSENDABLE, kind="bad_request") from None

    async def _post(self, client: httpx.AsyncClient, request: httpx.Request) -> None:
        response = await client.send(request, stream=True)
        try:
            await self._read(response)
        finally:
            await response.aclose()

    async def _trace(self, name: str, _: object) -> None:
        self.sent = self.sent or name.endswith("send_request_headers.started")

    # --- Reading ------------------------------------------------------------------------------------------

    async def _read(self, response: httpx.Response) -> None:
        self._answered = True
        self.request_id = next((response.headers[name] for name in _REQUEST_IDS if name in response.headers), None)
        status = response.status_code
        if 300 <= status < 400:
            self.turned_away = True
            raise net.redirected(response)
        if status >= 400:
            raise await self._refused(response)
        if "text/event-stream" in response.headers.get("content-type", "").lower():
            self._streams = True
        async for chunk in response.aiter_bytes():
            self._take(chunk)
        if self._streams:
            self._pass(self._decoder.end())

    async def _refused(self, response: httpx.Response) -> AgentError:
        self.turned_away = response.status_code not in _MAYBE_BILLED
        self._postpone(2 * ERROR_BODY_S)
        self._refusal = self._form.fault(response.status_code, response.headers, b"")
        body = bytearray()
        try:
            async with asyncio.timeout(ERROR_BODY_S):
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) >= _ERROR_BYTES:
                        break
        except (TimeoutError, httpx.HTTPError):
            pass  # the status says enough
        error = self._form.fault(response.status_code, response.headers, bytes(body[:_ERROR_BYTES]))
        if response.headers.get("x-should-retry", "").strip().lower() == "false":
            error.retryable = False
        return error

    def _take(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > (_STREAM_BYTES if self._streams else _WHOLE_BYTES):
            raise AgentError(
                f"The answer is longer than {self._size - 1:,} bytes. Check that the base URL leads to a model "
                "server.",
                kind="protocol",
            )
        if not self._events and len(self._raw) < _WHOLE_BYTES:  # kept until it is clear what this is
            self._raw += chunk
        if self._streams is None:
            head = self._raw.lstrip(_BLANK)
            if len(head) < 6:
                return
            self._streams = head.startswith(_EVENT_STARTS)
            chunk = bytes(self._raw)
        if self._streams:
            self._pass(self._decoder.feed(chunk))

    def _pass(self, events: Sequence[Event]) -> None:
        for event in events:
            for data in _values(event.data):
                if self._over:
                    return
                self._events += 1
                self._raw.clear()
                self._show(self.reader.event(data, event.event))
                if data.strip() == "[DONE]" or event.event == "message_stop":
                    self._over = True
                    self._postpone(GRACE_S)

    def _show(self, pieces: Sequence[Piece | Reset]) -> None:
        for piece in pieces:
            if isinstance(piece, Piece):
                if not piece.text:
                    continue
                now = asyncio.get_running_loop().time()
                self.first_at = self.first_at or now
                if self._streams:
                    self._postpone(self._service.between_tokens_s)
            self._put(piece)

    def _postpone(self, seconds: float) -> None:
        if not self._limit.expired():
            self._limit.reschedule(min(asyncio.get_running_loop().time() + seconds, self._total))

    def _reply(self, broken: AgentError | None) -> Reply:
        """The whole reply, if what has come is one; otherwise why it is not."""
        try:
            if self._is_whole():
                self._streams = False
                self._show(self.reader.whole(faults.parse_json(bytes(self._raw))))
            return self.reader.reply()
        except AgentError:
            if broken:
                raise broken from None
            raise

    def _is_whole(self) -> bool:
        """Whether the body is one value: it is no stream, or it calls itself one and is none."""
        start = bytes(self._raw.lstrip(_BLANK)[:1])
        return not self._streams or (not self._events and start in (b"{", b"[", b"<"))

    # --- What went wrong ----------------------------------------------------------------------------------

    def _late(self) -> AgentError:
        service = self._service
        if self._refusal:
            return self._refusal
        if asyncio.get_running_loop().time() >= self._total:
            words = f"No whole answer within {service.total_s:g} s for all attempts. Raise total_s, or ask for less."
        elif self.first_at is None:
            words = (
                f"No first token within {service.first_token_s:g} s. Check that the server is not overloaded, or "
                "raise first_token_s for a model that thinks long."
            )
        else:
            words = f"Nothing new for {service.between_tokens_s:g} s in the middle of the answer."
        return AgentError(words, kind="timeout", retryable=True)

    def _broken(self, error: httpx.HTTPError) -> AgentError:
        said = wire.redact(str(error))[:200]
        if isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol):
            return AgentError(_UNSENDABLE, kind="bad_request")
        if isinstance(error, httpx.ConnectTimeout):
            words = (
                f"No connection within {self._service.connect_s:g} s. Check the base URL, and that the server runs."
            )
            return AgentError(words, kind="timeout", retryable=True)
        if isinstance(error, httpx.ConnectError):
            return unreachable(error, said)
        if isinstance(error, httpx.DecodingError):
            return AgentError(f"The answer's compression is broken ({said}).", kind="protocol", retryable=True)
        if isinstance(error, httpx.RemoteProtocolError) and not said.lower().startswith(_CUT):
            words = f"The server does not speak HTTP as it should ({said}). Check the base URL."
            return AgentError(words, kind="protocol", retryable=True)
        where = "in the middle of the answer" if self._answered else "before it answered"
        return AgentError(f"The connection broke {where}.", kind="transport", retryable=True)


def _values(data: str) -> Sequence[str]:
    """The values in an event's data: one, unless a server left out the blank line between its events."""
    if "\n" not in data or _is_json(data):
        return (data,)
    lines = [line for line in data.split("\n") if line.strip()]
    return lines if all(line.strip() == "[DONE]" or _is_json(line) for line in lines) else (data,)


def _is_json(text: str) -> bool:
    try:
        faults.parse_json(text)
    except AgentError:
        return False
    return True


def unreachable(error: httpx.ConnectError, said: str) -> AgentError:
    """Why no connection was made, and what to do: a server that is not there, or whose TLS is missing or other."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        words = f"The server cannot be reached: {said}. Check the base URL, and that the server runs."
        return AgentError(words, kind="transport", retryable=True)
    hint = (
        "Its certificate is not accepted."
        if isinstance(cause, ssl.SSLCertVerificationError)
        else "Use http:// for a server without TLS."
    )
    return AgentError(f"No secure connection: {said}. {hint}", kind="transport")
