"""The coordinator as one model: an OpenAI-compatible endpoint under /v1, served beside the page.

    GET  /v1/models, /v1/models/{id}     `trinity`, and every member of the pool by its name
    POST /v1/chat/completions            whole or as a stream
    POST /v1/responses                   whole or as a stream

Every call is a stored run with source `api`; its id is the answer's `x-request-id`. The whole conversation counts.

Invariants:
- Nothing is loaded and no run begins before the request was checked.
- A client that goes away ends its run at once; a stream ends with its last event or with an error, never silently.
- At most `most` runs of the endpoint go on at a time; the next one is told when to try again (429).
- A question that comes back to this server, or went through too many of them, is refused.

Not covered: calling tools, looking up or deleting stored responses, embeddings and the older completions. Hosts and
origins are `security.Guard`'s affair; the API key is checked here.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import re
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Message as Sent
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketClose

from trinity_core.errors import InputError, TrinityError
from trinity_core.session.loop import RunRequest
from trinity_core.session.methods import SINGLE
from trinity_core.types import AnyRunEvent, Message, Source
from trinity_core.wire import new_id
from ui.api_answer import ChatWriter, ResponsesWriter, Writer
from ui.api_errors import PREFIX, ApiError, coordinator_missing, json_response
from ui.api_request import Asked, parse, read_chat, read_responses
from ui.jobs import RunManager, log_fault

if TYPE_CHECKING:
    from storage.store import Store
    from trinity_core.session.methods import Methods

MODEL = "trinity"
MOST_BYTES = 10_000_000
MOST_RUNS = 64
BODY_S = 60.0
"""How long a request's body may take to come."""
STALL_S = 120.0
"""How long a client may leave a part of its answer unread before it counts as gone."""
MOST_HOPS = 3
"""Servers of this kind a question may have gone through before it is refused here."""
_DRAINED = 10 * MOST_BYTES
"""A body that is too large is read up to here, so that its sender gets to read the answer."""
_VIA = re.compile(r"[A-Za-z0-9._-]{1,64}")
_RESPONSE_ID = re.compile(r"resp_([0-9A-Fa-f-]{1,64})")
_STREAM_START_S = 0.3
"""How long a stream waits for a refusal of its run before it begins."""
_START_S = 2.0

Read = Callable[[Mapping[str, Any]], Asked]
Write = Callable[[Asked, str], Writer]


@dataclass(frozen=True, slots=True)
class Access:
    """Who may call. `key` None: everybody who reaches this server, unless `closed`, where nobody may.

    `owner` is whom the runs belong to. `server_id` names this process to other servers of its kind.
    """

    key: str | None = None
    owner: str = "api"
    server_id: str = ""
    closed: bool = False


class Api:
    """The endpoint. `keepalive_s` is how long a stream may be silent before a comment is sent."""

    def __init__(
        self,
        methods: Methods,
        runs: RunManager,
        store: Store,
        access: Access,
        *,
        keepalive_s: float = 10.0,
        most: int = MOST_RUNS,
    ) -> None:
        self.methods, self.runs, self.store, self.access = methods, runs, store, access
        self.keepalive_s, self.most = keepalive_s, most
        self.live = 0
        self._since = int(time.time())
        self._app = Starlette(
            routes=[
                Route("/models", self._models),
                Route("/models/{name:path}", self._model),
                Route("/chat/completions", self._chat, methods=["POST"]),
                Route("/responses", self._responses, methods=["POST"]),
            ],
            exception_handlers={ApiError: _told, HTTPException: _no_route},
        )
        self._app.router.redirect_slashes = False

    def routes(self) -> list[BaseRoute]:
        """Everything under /v1, whatever the path and the method."""
        return [Route(PREFIX, self), Mount(PREFIX, self)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await WebSocketClose()(scope, receive, send)
            return
        began = False

        async def watched(message: Sent) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            self._check_key(Request(scope).headers.get("authorization", ""))
            await self._app(scope, receive, watched)
        except ApiError as error:
            await error.response(new_id())(scope, receive, send)
        except ClientDisconnect:
            pass
        except Exception as error:
            request_id = new_id()
            log_fault(f"request {request_id}", error)
            if not began:
                await _internal(request_id).response(request_id)(scope, receive, send)

    def _check_key(self, given: str) -> None:
        if self.access.closed:
            raise ApiError(
                "This server has a login but no API key, so its endpoint is closed. Start it with --api-key-env.",
                401,
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        if self.access.key is None:
            return
        scheme, _, key = given.partition(" ")
        # Header texts are the bytes that came, one character each.
        right = hmac.compare_digest(key.strip().encode("latin-1", "replace"), self.access.key.encode("utf-8"))
        if scheme.lower() != "bearer" or not right:
            what = "is wrong" if given else "is missing"
            raise ApiError(
                f"The API key {what}. Send it as Authorization: Bearer KEY.",
                401,
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )

    # --- Models ---------------------------------------------------------------------------------------------

    async def _models(self, request: Request) -> Response:
        cards = [self._card(name) for name in (MODEL, *self.methods.pool.names)]
        return json_response({"object": "list", "data": cards}, headers={"x-request-id": new_id()})

    async def _model(self, request: Request) -> Response:
        name = request.path_params["name"]
        self._method(name)
        return json_response(self._card(name), headers={"x-request-id": new_id()})

    def _card(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._since, "owned_by": MODEL}

    def _method(self, model: str) -> str:
        """The method that answers as `model`. Raises ApiError when there is no such model."""
        names = self.methods.pool.names
        if model == MODEL:
            return "coordinator"
        if model in names:
            return SINGLE + model
        raise ApiError(
            f"The model {model[:64]!r} does not exist. There are: {', '.join((MODEL, *names))}.",
            404,
            code="model_not_found",
            param="model",
        )

    # --- Answering ------------------------------------------------------------------------------------------

    async def _chat(self, request: Request) -> Response:
        return await self._answer(request, read_chat, ChatWriter)

    async def _responses(self, request: Request) -> Response:
        return await self._answer(request, read_responses, ResponsesWriter)

    async def _answer(self, request: Request, read: Read, write: Write) -> Response:
        via = self._via(request.headers)
        asked = read(parse(await _body(request)))
        method = self._method(asked.model)
        if asked.previous is not None:
            asked = await self._continued(asked)
        run = RunRequest(
            asked.messages,
            method=method,
            source=Source.API,
            params=asked.params,
            seed=asked.seed,
            owner=self.access.owner,
            via=via,
        )
        try:
            self.methods.check(run)
        except InputError as error:
            raise ApiError(str(error), param=asked.param) from None
        return _Answering(self, run, asked.stream, write(asked, run.run_id))

    def _via(self, headers: Headers) -> tuple[str, ...]:
        """The servers that the question came through. Raises ApiError for one that goes round in a circle."""
        given, depths = _listed(headers, "x-trinity-via"), _listed(headers, "x-trinity-depth")
        # Of a number with more digits the first ones are large enough.
        depth = max((int(each[:9]) for each in depths if re.fullmatch(r"[0-9]+", each)), default=0)
        hops = max(depth, len(given))
        again = bool(self.access.server_id) and self.access.server_id in given
        if again or hops >= MOST_HOPS:
            how = "has come back to the server it came from" if again else f"went through {hops} servers of this kind"
            raise ApiError(
                f"The question {how}: a member of the pool calls this endpoint, which would go round for ever. Point "
                "that member's base_url at another server, or disable it.",
                code="trinity_loop",
            )
        known = tuple(part for part in given if _VIA.fullmatch(part))
        return (*("unnamed",) * (depth - len(known)), *known)  # the depth is passed on, whatever became of the names

    async def _continued(self, asked: Asked) -> Asked:
        """With the conversation of the response that it continues before it. New instructions replace its first
        system message."""
        assert asked.previous is not None
        found = _RESPONSE_ID.fullmatch(asked.previous)
        earlier = await asyncio.to_thread(self.store.run, found[1], self.access.owner) if found else None
        if earlier is None:
            raise ApiError(
                f"There is no response {asked.previous[:80]!r}. Send the whole conversation as input instead.",
                code="previous_response_not_found",
                param="previous_response_id",
            )
        before = earlier.messages
        if asked.instructions is not None and before and before[0].role == "system":
            before = before[1:]
        if earlier.answer is not None:
            before = (*before, Message("assistant", earlier.answer))
        first = 1 if asked.instructions and asked.messages[0].role == "system" else 0
        return replace(asked, messages=(*asked.messages[:first], *before, *asked.messages[first:]))

    def batches(self, run: RunRequest) -> AsyncGenerator[tuple[AnyRunEvent, ...], None]:
        """The run's events; an empty batch is a chance for a sign of life."""
        return self.runs.tail(run.run_id, run.owner, beat_s=min(1.0, self.keepalive_s))


class _Answering(Response):
    """The answer to one request: begins the run, follows it, and ends it when the client has gone."""

    def __init__(self, api: Api, run: RunRequest, stream: bool, writer: Writer) -> None:
        self._api, self._run, self._stream, self._writer = api, run, stream, writer
        self.background = None
        self.status_code = 200

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def read(message: Sent) -> None:
            try:
                async with asyncio.timeout(STALL_S):
                    await send(message)
            except TimeoutError:  # else it would hold one of the runs for as long as it likes
                raise ClientDisconnect from None

        await _while_connected(receive, self._work(scope, receive, read))

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        api, run = self._api, self._run
        if api.live >= api.most:
            full = ApiError(
                f"{api.most} runs are under way, as many as are allowed at a time. Try again soon.",
                429,
                code="too_many_runs",
                headers={"retry-after": "1"},
            )
            await full.response(run.run_id)(scope, receive, send)
            return
        api.live += 1
        try:
            await self._begin()
            if self._stream:
                await self._send_stream(send)
            else:
                await (await self._whole())(scope, receive, send)
        except ApiError as error:
            await error.response(run.run_id)(scope, receive, send)
        finally:
            api.live -= 1
            api.runs.stop(run.run_id, run.owner)

    async def _begin(self) -> None:
        """Start the run. Raises ApiError when it is refused at once."""
        try:
            await self._api.runs.start(self._run, wait_s=_STREAM_START_S if self._stream else _START_S)
        except InputError as error:
            raise ApiError(str(error), param=self._writer.account.asked.param) from None
        except TrinityError as error:
            if type(error).__name__ in ("BackboneError", "CheckpointError"):
                raise coordinator_missing(str(error)) from None
            log_fault(f"run {self._run.run_id}", error)
            raise _internal(self._run.run_id) from None

    async def _whole(self) -> Response:
        account = self._writer.account
        async with contextlib.aclosing(self._api.batches(self._run)) as batches:
            async for batch in batches:
                for event in batch:
                    account.take(event)
        if account.end is None:
            raise _internal(self._run.run_id)
        return json_response(self._writer.whole(), headers={"x-request-id": self._run.run_id})

    async def _send_stream(self, send: Send) -> None:
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            "x-request-id": self._run.run_id,
        }
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        async with contextlib.aclosing(self._frames()) as frames:
            async for frame in frames:
                await send({"type": "http.response.body", "body": frame.encode("ascii"), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _frames(self) -> AsyncGenerator[str, None]:
        writer = self._writer
        failure: ApiError | None = None
        yield writer.begin()
        spoken = time.monotonic()
        async with contextlib.aclosing(self._api.batches(self._run)) as batches:
            async for batch in batches:
                frames, failure = self._written(batch)
                if not frames and time.monotonic() - spoken >= self._api.keepalive_s:
                    frames = ": still coordinating\n\n"
                if frames:
                    yield frames
                    spoken = time.monotonic()
                if failure is not None:
                    break
        if failure is None and writer.account.end is None:
            failure = _internal(self._run.run_id)
        if failure is not None:
            yield writer.fail(failure)

    def _written(self, batch: tuple[AnyRunEvent, ...]) -> tuple[str, ApiError | None]:
        """The frames of some events, and the error that ended them, if any did."""
        frames = []
        try:
            for event in batch:
                frames.append(self._writer.event(event))
        except ApiError as error:
            return "".join(frames), error
        except Exception as error:
            log_fault(f"run {self._run.run_id}", error)
            return "".join(frames), _internal(self._run.run_id)
        return "".join(frames), None


async def _while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do `work`, or cancel it as soon as the client goes away."""
    working = asyncio.ensure_future(work)
    going = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({working, going}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        working.cancel()
        going.cancel()
        await asyncio.gather(working, going, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _listed(headers: Headers, name: str) -> list[str]:
    """The parts of a header that is a list, which may come in several lines."""
    return [part.strip() for line in headers.getlist(name) for part in line.split(",") if part.strip()]


async def _body(request: Request) -> bytes:
    """The whole body. Raises ApiError when it is too large, or does not come."""
    data, size = bytearray(), 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                size += len(part)
                if size <= MOST_BYTES:
                    data += part
                elif size > _DRAINED:
                    break
    except TimeoutError:
        raise ApiError(
            f"The body did not come whole within {BODY_S:.0f} s. Send it again.",
            408,
            code="request_timeout",
            headers={"connection": "close"},
        ) from None
    if size > MOST_BYTES:
        raise ApiError(
            f"The body is larger than {MOST_BYTES // 1_000_000} MB. Shorten the conversation.",
            413,
            code="request_too_large",
        )
    return bytes(data)


def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response(new_id())


def _no_route(request: Request, error: Exception) -> Response:
    """An unknown path, or a known one with another method."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if status == 405:
        message = f"{request.method} is not possible here. Allowed: {headers.get('Allow', 'another method')}."
        return ApiError(message, 405, code="method_not_allowed", headers=headers).response(new_id())
    return ApiError(
        "There is nothing at this path. There are /v1/models, /v1/chat/completions and /v1/responses.",
        404,
        code="not_found",
    ).response(new_id())


def _internal(run_id: str) -> ApiError:
    return ApiError(
        f"Trinity itself failed at {run_id}; its log says how. Try again, or report it.", 500, code="internal_error"
    )
