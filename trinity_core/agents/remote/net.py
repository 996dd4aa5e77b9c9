"""The way out: which addresses may be called, and an HTTP client that keeps to it.

A base URL is typed by a user, and the machine can reach things that its user must not: the metadata service of a
cloud hands out credentials. So link-local, metadata, unspecified and multicast addresses are refused, in whatever
form they are written, as a name that resolves to them, and where a server redirects to. Loopback and private
addresses stay allowed, because local model servers live there.

Invariants: the address that is connected to is the very one that was checked (one lookup, no second answer); TLS
still checks the name. No redirect is followed, so a key goes to no other host. Proxies, certificates and logins that
the environment names are not used. A refused address among several of one name is passed over.

Not covered: HTTP proxies, client certificates, and what a server that may be called does with a request.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import urljoin, urlsplit

import httpcore
import httpx

from trinity_core import wire
from trinity_core.errors import AgentError, PoolError

Address = IPv4Address | IPv6Address
SocketOption = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]

_IDLE_S = 20.0
"""How long an unused connection is kept; longer than the pause between two turns of a run, mostly."""
_METADATA_NAMES = frozenset(
    (
        "metadata",
        "metadata.google.internal",
        "metadata.goog",
        "metadata.azure.internal",
        "metadata.tencentyun.com",
        "metadata.packet.net",
        "metadata.platformequinix.com",
        "instance-data",
        "instance-data.ec2.internal",
        "rancher-metadata",
    )
)
_METADATA = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",
        "168.63.129.16",  # Azure
        "100.100.100.200",  # Alibaba Cloud
        "192.0.0.192",  # Oracle Cloud
        "fd00:ec2::254",  # Amazon
        "fd20:ce::254",  # Google
    )
)
_REFUSED_V4 = tuple(IPv4Network(text) for text in ("0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4"))
_REFUSED_V6 = tuple(IPv6Network(text) for text in ("::/128", "fe80::/10", "ff00::/8"))
_V4_IN_LAST_BYTES = tuple(
    IPv6Network(text) for text in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
)
"""IPv4-compatible, IPv4-mapped, IPv4-translated and NAT64 addresses: the last four bytes are an IPv4 address."""
_OLD_V4 = re.compile(r"(?:0x[0-9a-f]*|\d+)(?:\.(?:0x[0-9a-f]*|\d+)){0,3}")
_HOST = re.compile(r"[A-Za-z0-9.\-:_]{1,253}")
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MOST_IDS = 32


def check_url(url: str) -> None:
    """Raises PoolError, saying what to use instead, when `url` may not be called. Looks nothing up."""
    try:
        parts = urlsplit(url.strip())
        host = parts.hostname
    except ValueError:  # what it says may quote a login, here and below
        raise PoolError("The address cannot be read. Write it as http://host:port/v1.") from None
    if parts.scheme.lower() not in ("http", "https"):
        given = f", not {parts.scheme}://" if parts.scheme else ""
        raise PoolError(f"The address must begin with http:// or https://{given}. Write it as http://host:port/v1.")
    if not host:
        raise PoolError("The address has no host. Write it as http://host:port/v1.")
    if parts.username is not None or parts.password is not None:
        raise PoolError("The address holds a login. Take it out; a key belongs into an environment variable.")
    try:
        _ = parts.port
    except ValueError:
        raise PoolError(
            "The address cannot be read: its port is no number up to 65535. Write it as http://host:port/v1."
        ) from None
    if reason := _refusal(host):
        raise PoolError(reason)


def client(*, connect_s: float) -> httpx.AsyncClient:
    """A client for the running event loop. Only connecting is limited in time: `connect_s` seconds for the name and
    the connection, and as many for TLS. A refused address raises AgentError (kind bad_request)."""
    return httpx.AsyncClient(
        transport=_Transport(),
        timeout=httpx.Timeout(None, connect=connect_s),
        follow_redirects=False,
        trust_env=False,
        headers={"user-agent": "trinity-playground"},
    )


def redirected(response: httpx.Response) -> AgentError:
    """The error that a 3xx answer means. It names only scheme and host of where the server pointed."""
    target = "an address that cannot be read"
    with suppress(ValueError):
        there = urlsplit(urljoin(str(response.url), response.headers.get("location", "")))
        # A host is read in lower case, in which a key that it repeats would not be recognised any more.
        if wire.redact(there.netloc) == there.netloc and _HOST.fullmatch(there.hostname or ""):
            target = f"{there.scheme}://{there.hostname}"
    return AgentError(
        f"HTTP {response.status_code}: the server redirects to {target}. Redirects are not followed, so that the key "
        "goes nowhere else. Put the final address into the member's base URL.",
        kind="bad_request",
    )


def hop_headers(via: Iterable[str], server_id: str) -> dict[str, str]:
    """Headers by which a Trinity notices that a question comes back to it: through which servers it came, this one
    last, and how many those are. Empty when there is none."""
    ids = [each for each in (*via, server_id) if _ID.fullmatch(each)][-_MOST_IDS:]
    return {"x-trinity-depth": str(len(ids)), "x-trinity-via": ",".join(ids)} if ids else {}


# --- Addresses ------------------------------------------------------------------------------------------------


def _refusal(host: str) -> str | None:
    """Why `host`, a name or a literal address, may not be called; None when it may as far as can be seen here."""
    name = unicodedata.normalize("NFKC", host).replace("\u3002", ".").lower().strip("[]").rstrip(".")
    if "%" in name or any(c.isspace() or not c.isprintable() for c in name):
        return "The host of the address holds a character that no host has. Write it as http://host:port/v1."
    address = _literal(name)
    if name in _METADATA_NAMES or (address is not None and _refused(address)):
        return _words(name)
    return None


def _words(name: str) -> str:
    return (
        f"The host {name} is refused: metadata, link-local, unspecified and multicast addresses are no model "
        "servers, and some give away this machine's credentials. Use the address of a model server."
    )


def _literal(name: str) -> Address | None:
    """The address that `name` spells out, also as one number or with octal or hexadecimal parts; None for a name."""
    try:
        return ip_address(name)
    except ValueError:
        pass
    if not _OLD_V4.fullmatch(name):
        return None
    try:
        return IPv4Address(socket.inet_aton(name))
    except OSError:
        return None


def _refused(address: Address) -> bool:
    return any(
        each in _METADATA or any(each in net for net in (_REFUSED_V4 if each.version == 4 else _REFUSED_V6))
        for each in _meant(address)
    )


def _meant(address: Address) -> list[Address]:
    """`address` and the IPv4 addresses that it carries, to which a gateway on the way may lead."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.scope_id is not None:
        address = IPv6Address(int(address))
    if address == IPv6Address("::1"):
        return [address]
    raw, carried = address.packed, []
    if any(address in net for net in _V4_IN_LAST_BYTES) or raw[8:12] in (b"\0\0\x5e\xfe", b"\2\0\x5e\xfe"):  # ISATAP
        carried.append(raw[12:])
    if address.sixtofour is not None:
        carried.append(raw[2:6])
    if address.teredo is not None:
        carried += [part.packed for part in address.teredo]
    return [address, *(IPv4Address(part) for part in carried)]


# --- Connecting -----------------------------------------------------------------------------------------------


class _Guard(httpcore.AsyncNetworkBackend):
    """Looks a name up once, checks what it resolves to, and connects to exactly that."""

    def __init__(self) -> None:
        self._sockets = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        if reason := _refusal(host):
            raise AgentError(reason, kind="bad_request")
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                addresses = await _resolve(host, port)
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"looking up {host} took longer than {timeout:g} s") from None
        failure: Exception | None = None
        for place, address in enumerate(addresses):
            # One address that never answers must leave time for the others.
            share = None if deadline is None else max(0.01, deadline - loop.time()) / (len(addresses) - place)
            try:
                return await self._sockets.connect_tcp(str(address), port, share, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        if isinstance(failure, httpcore.ConnectTimeout):
            raise httpcore.ConnectTimeout(f"no connection within {timeout:g} s") from failure
        raise httpcore.ConnectError(_cause(failure)) from failure

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _resolve(host: str, port: int) -> list[Address]:
    """The addresses of `host` that may be called, IPv4 first: where IPv6 is broken, it fails slowly. Raises
    AgentError when none may be, httpcore.ConnectError when there is none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or "not a host name"
        raise httpcore.ConnectError(f"the host {host} was not found ({said})") from error
    known = dict.fromkeys(ip_address(str(entry[4][0]).partition("%")[0]) for entry in found)
    allowed = sorted((each for each in known if not _refused(each)), key=lambda each: each.version)
    if not allowed:
        raise AgentError(_words(host), kind="bad_request")
    return allowed


def _cause(error: BaseException | None) -> str:
    """What the system said about a failed connection."""
    while error is not None:
        if isinstance(error, OSError) and error.errno:
            return os.strerror(error.errno).lower()
        error = error.__cause__ or error.__context__
    return "no connection"


@cache
def _certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


class _Transport(httpx.AsyncHTTPTransport):
    def __init__(self) -> None:
        # The parent's constructor would only build a pool without the guard. Should a later httpx keep its pool
        # elsewhere, the first call fails, instead of going out unguarded.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=_certificates(),
            max_connections=None,
            max_keepalive_connections=16,
            keepalive_expiry=_IDLE_S,
            network_backend=_Guard(),
        )
