"""Who may talk to the server of page and endpoint: hosts, origins, tokens, owners, headers, where it may be bound."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from trinity_core.errors import ConfigError
from ui.security import OWNER_COOKIE, Guard, is_loopback, owner_of

BASE = "http://127.0.0.1:7860"
changed: list[str] = []


async def _change(request: Request) -> PlainTextResponse:
    changed.append(request.method)
    return PlainTextResponse("changed")


async def _page(request: Request) -> PlainTextResponse:
    return PlainTextResponse("page")


def client(host: str = "127.0.0.1", base: str = BASE, names: tuple[str, ...] = (), root_path: str = "") -> TestClient:
    changed.clear()
    app = Starlette(
        routes=[
            Route("/", _page),
            Route("/gradio_api/queue/join", _change, methods=["POST", "PUT", "PATCH", "DELETE"]),
            Route("/file", _page),
            Mount("/v1", Starlette(routes=[Route("/{path:path}", _change, methods=["GET", "POST", "DELETE"])])),
        ],
        middleware=[Middleware(Guard, host=host, port=7860, names=names)],
    )
    return TestClient(app, base_url=base, root_path=root_path)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_change_needs_the_token_that_the_page_hands_out(method: str) -> None:
    browser = client()
    assert browser.request(method, "/gradio_api/queue/join").status_code == 403
    assert changed == []
    browser.get("/")
    assert browser.request(method, "/gradio_api/queue/join").status_code == 200


@pytest.mark.parametrize("value", ["", "x", "ä", "0" * 43])
def test_a_made_up_token_is_refused(value: str) -> None:
    browser = client()
    sent = {b"cookie": f"trinity_token_7860={value}".encode()}
    assert browser.post("/gradio_api/queue/join", headers=sent).status_code == 403
    assert changed == []


def test_a_token_of_another_process_is_refused() -> None:
    first, second = client(), client()
    first.get("/")
    second.cookies = first.cookies
    assert second.post("/gradio_api/queue/join").status_code == 403


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (BASE, 200),
        ("https://127.0.0.1:7860", 200),
        ("http://127.0.0.1:9999", 403),
        ("https://other.example", 403),
        ("https://127.0.0.1:7860.other.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
@pytest.mark.parametrize("method", ["POST", "OPTIONS", "GET"])
def test_a_foreign_origin_is_refused_even_with_the_token(origin: str, status: int, method: str) -> None:
    browser = client()
    browser.get("/")
    path = "/gradio_api/queue/join" if method == "POST" else "/file"
    reply = browser.request(method, path, headers={"origin": origin})
    assert (reply.status_code == 403) is (status == 403)
    assert "access-control-allow-origin" not in reply.headers


# --- The endpoint -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/v1/"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_the_endpoint_needs_no_token(method: str, path: str) -> None:
    assert client().request(method, path).status_code == 200
    assert changed == [method]


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"origin": "https://other.example"}, 403, "origin_refused"),
        ({"origin": "null"}, 403, "origin_refused"),
        ({"host": "evil.example"}, 400, "host_refused"),
        ({"host": "evil.example", "origin": "http://evil.example"}, 400, "host_refused"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_endpoint_keeps_the_rules_of_host_and_origin_and_refuses_in_json(
    headers: dict[str, str], status: int, code: str, method: str
) -> None:
    answer = client().request(method, "/v1/models", headers=headers)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert answer.json()["error"]["code"] == code
    assert changed == []


@pytest.mark.parametrize("path", ["/v1x", "/V1/models", "/gradio_api/v1/models", "/v1;/x", "//v1/models"])
def test_a_path_that_only_looks_like_the_endpoint_needs_the_token(path: str) -> None:
    assert client().request("POST", BASE + path).status_code == 403


@pytest.mark.parametrize(("prefix", "path", "status"), [
    ("/v1", "/v1/gradio_api/queue/join", 403),
    ("/v1", "/v1/v1/models", 200),
    ("/under", "/under/v1/models", 200),
    ("/under", "/under/gradio_api/queue/join", 403),
])  # fmt: skip
def test_behind_a_proxy_the_path_without_its_prefix_counts(prefix: str, path: str, status: int) -> None:
    assert client(root_path=prefix).post(path).status_code == status


@pytest.mark.parametrize(
    ("bound", "host", "served"),
    [
        ("127.0.0.1", "127.0.0.1:7860", True),
        ("127.0.0.1", "localhost", True),
        ("127.0.0.1", "LOCALHOST:7860", True),
        ("127.0.0.1", "[::1]:7860", True),
        ("127.0.0.1", "evil.example", False),
        ("127.0.0.1", "127.0.0.1.evil.example", False),
        ("127.0.0.1", "localhost.evil.example:7860", False),
        ("127.0.0.1", "192.168.1.5", False),
        ("127.0.0.1", "", False),
        ("127.0.0.1", "[::1", False),
        ("127.0.0.1", "[::1]evil.example", False),
        ("127.0.0.1", "127.0.0.1:7860:x", False),
        ("127.0.0.1", "localhost:evil.example", False),
        ("127.0.0.1", "localhost,evil.example", False),
        ("0.0.0.0", "192.168.1.5:7860", True),
        ("0.0.0.0", "evil.example", False),
        ("0.0.0.0", "box.lan:7860", True),
        ("192.168.1.5", "192.168.1.5:7860", True),
    ],
)
def test_only_known_host_names_are_served(bound: str, host: str, served: bool) -> None:
    browser = client(bound, names=("box.lan",))
    assert browser.get("/", headers={"host": host}).status_code == (200 if served else 400)


def test_cookies_are_out_of_reach_of_scripts_and_other_sites() -> None:
    cookies = client().get("/").headers.get_list("set-cookie")
    token = next(cookie for cookie in cookies if cookie.startswith("trinity_token_7860="))
    owner = next(cookie for cookie in cookies if cookie.startswith(OWNER_COOKIE))
    assert "HttpOnly" in token
    assert "SameSite=Strict" in token
    assert "HttpOnly" in owner
    assert "SameSite=Lax" in owner, "a link from elsewhere must not replace the owner"


def test_a_browser_keeps_its_owner_and_token() -> None:
    browser = client()
    browser.get("/")
    assert "set-cookie" not in browser.get("/").headers


def test_only_the_page_hands_out_cookies() -> None:
    assert "set-cookie" not in client().get("/file").headers


def test_the_page_may_load_and_talk_to_this_server_only() -> None:
    headers = client().get("/").headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    for sources in policy.values():
        assert not [s for s in sources.split() if s not in ("'self'", "'none'", "'unsafe-inline'", "'unsafe-eval'",
                                                            "data:", "blob:")]  # fmt: skip
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


# --- Owners -----------------------------------------------------------------------------------------------


@dataclass
class Asking:
    headers: Mapping[str, str] = field(default_factory=dict)
    username: str | None = None


COOKIE = "A" * 43


def test_the_owner_is_stable_and_does_not_reveal_the_cookie() -> None:
    owner = owner_of(Asking({"cookie": f"a=1; {OWNER_COOKIE}={COOKIE}; b=2"}))
    assert owner == owner_of(Asking({"cookie": f"{OWNER_COOKIE}={COOKIE}"}))
    assert COOKIE not in owner
    assert owner != owner_of(Asking({"cookie": f"{OWNER_COOKIE}={'B' * 43}"}))


def test_an_odd_cookie_of_another_program_does_not_hide_ours() -> None:
    assert owner_of(Asking({"cookie": f'x[]="; {OWNER_COOKIE}={COOKIE}'})) != "anonymous"


@pytest.mark.parametrize("cookie", ["", f"{OWNER_COOKIE}=", f"{OWNER_COOKIE}=short", f"{OWNER_COOKIE}={'*' * 43}"])
def test_without_a_proper_cookie_one_is_nobody_in_particular(cookie: str) -> None:
    assert owner_of(Asking({"cookie": cookie})) == "anonymous"


def test_a_login_owns_what_it_runs_in_any_browser() -> None:
    first = owner_of(Asking({"cookie": f"{OWNER_COOKIE}={COOKIE}"}, "ann"))
    assert first == owner_of(Asking({}, "ann")) == "user:ann"


# --- Where the server may be bound ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("localhost", True), ("::1", True), ("[::1]", True),
     ("0.0.0.0", False), ("192.168.0.9", False), ("::", False), ("localhost.evil.example", False), ("", False)],
)  # fmt: skip
def test_what_counts_as_this_machine_only(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.9", "::"])
def test_serving_other_machines_needs_a_login_and_a_key(host: str) -> None:
    from ui.build import launch

    with pytest.raises(ConfigError, match="--auth-env"):
        launch(cast(Any, None), host=host, port=1, api_key="a-key")
    for key in (None, ""):
        with pytest.raises(ConfigError, match="--api-key-env"):
            launch(cast(Any, None), host=host, port=1, auth=("ann", "secret words"), api_key=key)


def test_a_taken_port_names_the_way_out() -> None:
    from ui.build import launch

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="--port"):
            launch(cast(Any, None), port=taken.getsockname()[1])
