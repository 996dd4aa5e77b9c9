"""Which addresses may be called, also after a look-up; neither a redirect nor a second answer counts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.fault_server import FaultServer
from trinity_core import wire
from trinity_core.agents.remote.net import check_url, client, hop_headers, redirected
from trinity_core.errors import AgentError, PoolError

METADATA = "169.254.169.254"


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with FaultServer() as running:
        yield running


class Names:
    """Takes the place of name resolution: each look-up of a name gets the next of its answers, the last for ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[str, list[tuple[str, ...]]] = {}
        self.asked: list[str] = []
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._getaddrinfo)

    def _getaddrinfo(self, host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        self.asked.append(name)
        if name not in self.answers:
            return self._real(host, port, *rest, **more)
        answers = self.answers[name]
        found = []
        for address in answers.pop(0) if len(answers) > 1 else answers[0]:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            found.append((family, socket.SOCK_STREAM, 6, "", (address, port)))
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return found


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(monkeypatch)


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest",
        "http://169.254.1.2:8080/v1",
        "http://2852039166/",
        "http://0xA9FEA9FE/",
        "http://0xa9.0xfe.0xa9.0xfe/",
        "http://0251.0376.0251.0376/",
        "http://169.254.43518/",
        "http://169.16689662/",
        "http://１６９.254.169.254/",
        "http://169.254.169.254./",
        "http://169\u3002254\u3002169\u3002254/",
        "http://metadata\uff61google\uff61internal/",
        "http://[::ffff:169.254.169.254]/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://[::169.254.169.254]/",
        "http://[::ffff:0:169.254.169.254]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[64:ff9b:1::a9fe:a9fe]/",
        "http://[2002:a9fe:a9fe::1]/",
        "http://[fe80::5efe:a9fe:a9fe]/",
        "http://[2001:db8::5efe:169.254.169.254]/",
        "http://[fe80::1]/",
        "http://[fe80::1%25eth0]/",
        "http://[fd00:ec2::254]/",
        "http://100.100.100.200/",
        "http://168.63.129.16/",
        "http://192.0.0.192/",
        "http://0.0.0.0:11434/v1",
        "http://0/",
        "http://[::]/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://[ff02::1]/",
        "http://metadata.google.internal/",
        "http://METADATA.google.internal./computeMetadata",
        "http://metadata/",
        "http://instance-data/latest",
        "http://%31%36%39.254.169.254/",
        "file:///etc/passwd",
        "ftp://example.com/",
        "gopher://127.0.0.1/",
        "//example.com/v1",
        "example.com/v1",
        "localhost:11434",
        "",
        "http://",
        "http:///v1",
        "http://host:port/",
        "http://host:99999/",
        "http://[::1/",
        "http://user:pass@example.com/v1",
        "http://sk-abcdefgh@example.com/v1",
        "http://user:pass",
        "http://user:pass@exam\u2100ple.com/v1",
        "http://user:pass@[broken",
    ],
)
def test_refused(url: str) -> None:
    with pytest.raises(PoolError) as caught:
        check_url(url)
    said = str(caught.value)
    assert said.endswith(".")
    assert "pass" not in said
    assert "sk-" not in said


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:11434/v1",
        "http://localhost:1234/v1",
        "http://[::1]:8080/v1",
        "http://[::ffff:127.0.0.1]/v1",
        "http://2130706433/v1",
        "http://10.0.0.7:8000/v1",
        "http://192.168.1.20/v1",
        "http://172.16.0.1/v1",
        "http://[fd12:3456::1]/v1",
        "https://api.example.com/v1",
        "HTTPS://API.EXAMPLE.COM/v1",
        "https://[2606:4700::1111]/v1",
        "http://[64:ff9b::808:808]/v1",
        "http://box.local:8080",
        "http://bücher.example/v1",
        "https://metadata.example.com/v1",
    ],
)
def test_allowed(url: str) -> None:
    check_url(url)


# --- Connecting -------------------------------------------------------------------------------------------


async def get(url: str, connect_s: float = 2.0) -> httpx.Response:
    async with client(connect_s=connect_s) as http:
        return await http.get(url, headers={"authorization": "Bearer secret-key"})


async def test_name_is_looked_up_once_and_that_answer_is_used(server: FaultServer, names: Names) -> None:
    names.answers["ok.example"] = [("127.0.0.1",), (METADATA,)]
    response = await get(f"http://ok.example:{server.port}/v1/models")
    assert response.status_code == 200
    assert names.asked == ["ok.example"]
    assert server.requests[0].headers["host"] == f"ok.example:{server.port}"


@pytest.mark.parametrize("address", [METADATA, "fe80::1", "::ffff:169.254.169.254", "0.0.0.0", "2002:a9fe:a9fe::1"])
async def test_name_that_resolves_to_a_refused_address(names: Names, address: str) -> None:
    names.answers["evil.example"] = [(address,)]
    with pytest.raises(AgentError, match=r"evil\.example is refused") as caught:
        await get("http://evil.example/v1")
    assert (caught.value.kind, caught.value.retryable) == ("bad_request", False)


async def test_second_look_up_is_checked_again(server: FaultServer, names: Names) -> None:
    names.answers["turns.example"] = [("127.0.0.1",), (METADATA,)]
    url = f"http://turns.example:{server.port}/v1/models"
    assert (await get(url)).status_code == 200
    with pytest.raises(AgentError, match="is refused"):
        await get(url)
    assert server.connections == 1


async def test_refused_address_among_others_is_passed_over(server: FaultServer, names: Names) -> None:
    names.answers["mixed.example"] = [("fe80::1", METADATA, "127.0.0.1")]
    assert (await get(f"http://mixed.example:{server.port}/v1/models")).status_code == 200


@pytest.mark.parametrize("host", [METADATA, "2852039166", "[::ffff:169.254.169.254]", "metadata.google.internal"])
async def test_client_refuses_what_nobody_checked_before(names: Names, host: str) -> None:
    with pytest.raises(AgentError, match="is refused"):
        await get(f"http://{host}/latest")
    assert names.asked == []


async def test_other_addresses_of_a_name_are_tried(server: FaultServer, names: Names) -> None:
    names.answers["two.example"] = [("127.0.0.2", "127.0.0.1")]
    assert (await get(f"http://two.example:{server.port}/v1/models")).status_code == 200


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_redirect_is_not_followed(server: FaultServer, names: Names, scheme: str) -> None:
    server.redirect_to = f"{scheme}://other.example/token?key=abcdef"
    async with client(connect_s=2) as http:
        response = await http.post(f"{server.url('openai')}/chat/completions", json={"model": "redirect"})
    assert len(server.requests) == 1
    assert names.asked.count("other.example") == 0
    error = redirected(response)
    assert f"{scheme}://other.example." in str(error)
    assert "302" in str(error)
    assert "base URL" in str(error)
    assert "abcdef" not in str(error)
    assert (error.kind, error.retryable) == ("bad_request", False)


@pytest.mark.parametrize("location", ["", "http://a b\n<script>/", "http://[", "//" + "x" * 400])
async def test_odd_redirects_are_told_too(location: str) -> None:
    response = httpx.Response(
        301, headers={"location": location}, request=httpx.Request("POST", "http://h.example/v1")
    )
    said = str(redirected(response))
    assert "<script>" not in said
    assert len(said) < 400


async def test_failures_to_connect_say_why(names: Names) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(httpx.ConnectError, match="connection refused"):
        await get(f"http://127.0.0.1:{port}/v1")
    names.answers["nowhere.example"] = [()]
    with pytest.raises(httpx.ConnectError, match=r"nowhere\.example was not found"):
        await get("http://nowhere.example/v1")


async def test_look_up_that_takes_for_ever_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(*_: object, **__: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", slow)
    with pytest.raises(httpx.ConnectTimeout, match="looking up"):
        await get("http://slow.example/v1", connect_s=0.05)


async def test_environment_is_not_used(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert (await get(f"{server.url('openai')}/models")).status_code == 200


async def test_name_is_what_tls_checks(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    names.answers["tls.example"] = [("127.0.0.1",)]
    seen: list[bytes] = []

    async def look(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(1000))
        writer.close()

    listening = await asyncio.start_server(look, "127.0.0.1", 0)
    async with listening:
        with pytest.raises(httpx.ConnectError):
            await get(f"https://tls.example:{listening.sockets[0].getsockname()[1]}/v1")
    assert b"tls.example" in seen[0], "the server name of the handshake"


# --- Headers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("via", "server_id", "expected"),
    [
        ((), "", {}),
        ((), "me", {"x-trinity-depth": "1", "x-trinity-via": "me"}),
        (("a", "b"), "me", {"x-trinity-depth": "3", "x-trinity-via": "a,b,me"}),
        (("a",), "", {"x-trinity-depth": "1", "x-trinity-via": "a"}),
        (("a\r\nx: y", "b,c", "ü", ""), "me", {"x-trinity-depth": "1", "x-trinity-via": "me"}),
    ],
)
def test_hops(via: tuple[str, ...], server_id: str, expected: dict[str, str]) -> None:
    assert hop_headers(via, server_id) == expected


def test_hops_are_bounded_and_keep_the_newest() -> None:
    headers = hop_headers([f"s{n}" for n in range(1000)], "me")
    assert headers["x-trinity-via"].endswith("s999,me")
    assert len(headers["x-trinity-via"]) < 300


@pytest.mark.parametrize("target", ["https://{}.example.com/", "https://u:{}@example.com/", "//{}/"])
def test_a_redirect_to_a_host_that_repeats_the_key_is_not_named(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    key = "Planted7Q4v9Zr2Lm8Xk1"
    monkeypatch.setattr(wire, "_known", set())
    wire.remember_secret(key)
    request = httpx.Request("POST", "https://api.example.com/v1")
    said = str(redirected(httpx.Response(307, headers={"location": target.format(key)}, request=request)))
    assert key.lower() not in said.lower()
    assert "Redirects are not followed" in said
