"""What stands between the page's server and everybody else.

- Host: only loopback names, the bound host and names given for it are served, so that a foreign name pointed at
  this machine (DNS rebinding) gets 400. A server bound to every interface also accepts IP addresses, which
  cannot be rebound.
- Origin: a request that names another origin gets 403, whatever its method.
- Token: a request that may change something needs the token of this process, which only `GET /` hands out, as a
  cookie that scripts cannot read and that other sites' pages cannot send. Without it: 403. The endpoint under /v1
  needs none: it reads no cookie, so another site's page has nothing to lend, and hosts and origins are checked there
  too. Its refusals are JSON.
- Owner: each browser gets a random, lasting cookie. The owner of runs is a hash of it (or the login's name), so
  a stored or exported trace does not give away the cookie.
- Headers: the page may load and talk to this server only, and cannot be framed.

Not covered: the user name and password, which Gradio checks, the endpoint's key (`api`), and transport encryption.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections.abc import Iterable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trinity_core.wire import new_id
from ui.api_errors import ApiError, is_api

OWNER_COOKIE = "trinity_owner"
_OWNER = re.compile(r"^[A-Za-z0-9_-]{32,64}$")
_HOST = re.compile(r"(?:\[([0-9a-f:.%]+)\]|([a-z0-9._-]+))(?::[0-9]{0,5})?")
"""A Host header in lower case: an IPv6 address in brackets, or a name, and a port."""
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_YEAR_S = 365 * 24 * 3600

POLICY = "; ".join(
    (
        "default-src 'self'",
        # Gradio starts from inline scripts and builds its components' handlers with new Function.
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "media-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "frame-src 'self'",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class HasCookies(Protocol):
    """The part of `gr.Request` that says who is asking."""

    username: str | None

    @property
    def headers(self) -> Mapping[str, str]: ...


def is_loopback(host: str) -> bool:
    """Whether a server bound to `host` can be reached from this machine only."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def owner_of(request: HasCookies) -> str:
    """Who owns the runs of this request: the login's name, or a hash of the browser's cookie.

    A caller without either shares the owner "anonymous", to whom nothing of anybody else belongs.
    """
    if request.username:
        return f"user:{request.username}"
    value = _cookies(dict(request.headers).get("cookie", "")).get(OWNER_COOKIE, "")
    if not _OWNER.match(value):
        return "anonymous"
    return hashlib.sha256(value.encode("ascii")).hexdigest()[:32]


def _cookies(header: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in header.split(";"):  # one by one: a single odd cookie must not hide the others
        try:
            found.update({name: morsel.value for name, morsel in SimpleCookie(part.strip()).items()})
        except CookieError:
            continue
    return found


def _path(scope: Scope) -> str:
    """The path as routes see it: without the prefix under which a proxy serves the page."""
    path, prefix = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(prefix) :] if prefix and path.startswith(prefix + "/") else path


def _refusal(message: str, status: int, code: str, api: bool) -> Response:
    return ApiError(message, status, code=code).response(new_id()) if api else PlainTextResponse(message, status)


class Guard:
    """ASGI middleware for the rules above.

    `host` is what the server is bound to, `names` further host names under which it may be reached.
    """

    def __init__(self, app: ASGIApp, *, host: str, port: int, names: Iterable[str] = ()) -> None:
        self.app = app
        self.names = _LOOPBACK | {host.strip("[]").lower()} | {name.lower() for name in names}
        self.any_address = host in ("0.0.0.0", "::", "[::]")
        self.token = secrets.token_urlsafe(32)
        # Cookies are shared by all ports of a host, so each server keeps its token under its own name.
        self.token_cookie = f"trinity_token_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        cookies = _cookies(headers.get("cookie", ""))
        refused = self._refuse(scope, headers, cookies)
        if refused is not None:
            await refused(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._dress(scope, cookies, MutableHeaders(scope=message))
            await send(message)

        await self.app(scope, receive, guarded)

    def _refuse(self, scope: Scope, headers: Headers, cookies: dict[str, str]) -> Response | None:
        host = headers.get("host", "")
        api = scope["type"] == "http" and is_api(_path(scope))
        if not self._serves(host):
            return _refusal("This server does not answer to that host name.", 400, "host_refused", api)
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return _refusal("Requests from other sites are refused.", 403, "origin_refused", api)
        method = scope.get("method", "WEBSOCKET")
        if api or method in _SAFE_METHODS:
            return None
        sent = cookies.get(self.token_cookie, "")
        if not hmac.compare_digest(sent.encode("utf-8", "replace"), self.token.encode("ascii")):
            return PlainTextResponse("Open the page first: this request lacks its token. Reload the page.", 403)
        return None

    def _serves(self, host: str) -> bool:
        found = _HOST.fullmatch(host.lower())
        if found is None:
            return False
        name = found[1] or found[2]
        if name in self.names:
            return True
        if not self.any_address:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _dress(self, scope: Scope, cookies: dict[str, str], headers: MutableHeaders) -> None:
        for name, value in _HEADERS.items():
            headers[name] = value
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] != "/":
            return
        headers["cache-control"] = "no-store"
        common = "Path=/; HttpOnly"
        if cookies.get(self.token_cookie) != self.token:
            headers.append("set-cookie", f"{self.token_cookie}={self.token}; {common}; SameSite=Strict")
        if not _OWNER.match(cookies.get(OWNER_COOKIE, "")):
            # Lax, not Strict: opening a link to a trace from elsewhere must not replace the owner.
            value = secrets.token_urlsafe(32)
            headers.append("set-cookie", f"{OWNER_COOKIE}={value}; {common}; SameSite=Lax; Max-Age={_YEAR_S}")
