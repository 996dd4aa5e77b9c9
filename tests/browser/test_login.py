"""A server that asks for a login: nothing is told or done without it, and traces keep to their user."""

from __future__ import annotations

import http.cookiejar
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from storage.records import StoredRun
from storage.store import Store
from tests.browser.conftest import LOGIN, Visit, ask, ended, served
from trinity_core.types import Message


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page with a login, over a store with a trace of this user, of another, of a browser, and of nobody."""
    home = tmp_path_factory.mktemp("guarded-home")
    store = Store.open(f"sqlite:///{home / 'trinity.db'}")
    owners = {"mine": "user:ann", "theirs": "user:bob", "browser": "0" * 32, "imported": None}
    store.add_runs(
        StoredRun(f"run-{name}", owner, messages=(Message("user", f"a question of {name}"),), created_at=1.75e9)
        for name, owner in owners.items()
    )
    store.close()
    log = home.parent / "guarded.log"
    with served(["-m", "tests.browser.server", "--auth-env", "TEST_LOGIN"], home, log) as address:
        yield address
    assert LOGIN[1] not in log.read_text("utf-8")


def log_in(page: Page, password: str = LOGIN[1]) -> None:
    page.get_by_label("username").fill(LOGIN[0])
    page.get_by_label("password").fill(password)
    page.get_by_role("button", name="Login").click()


def test_a_wrong_password_is_refused_and_the_right_one_opens_the_page(
    visit: Visit, guarded: str, excused: list[str]
) -> None:
    def first_wrong(page: Page) -> None:
        expect(page.get_by_role("button", name="Login")).to_be_visible()
        assert page.locator("#run-query").count() == 0
        log_in(page, "guessed")
        expect(page.locator("body")).to_contain_text("Incorrect Credentials")
        assert not [cookie for cookie in page.context.cookies() if cookie["name"].startswith("access-token")]
        log_in(page)

    excused.append("status of 400")
    page = visit(base=guarded, before=first_wrong)
    ask(page, "asked behind a login")
    ended(page, "accepted")
    page.reload()
    expect(page.locator('[data-testid="answer-final"]')).to_contain_text("asked behind a login")
    page.click('[data-testid="log-out"]')
    expect(page.get_by_role("button", name="Login")).to_be_visible()


def test_a_user_sees_what_is_theirs_or_nobodys(visit: Visit, guarded: str) -> None:
    page = visit("&tab=traces", base=guarded, before=log_in)
    table = page.locator("#traces-table")
    for name, shown in (("mine", 1), ("imported", 1), ("theirs", 0), ("browser", 0)):
        page.fill("#traces-search textarea, #traces-search input", f"question of {name}")
        expect(table.locator("tr[data-id]")).to_have_count(shown)
        if not shown:
            expect(table).to_contain_text("No trace matches")
    expect(page.locator("#traces-all")).to_have_count(0)
    for name, found in (("theirs", False), ("mine", True)):
        page.goto(f"{guarded}/?trace=run-{name}")
        expect(page.locator("#trace-detail")).to_contain_text("a question of mine" if found else "no such trace here")


ENDPOINTS = (
    "/config",
    "/gradio_api/info",
    "/gradio_api/openapi.json",
    "/gradio_api/file=/etc/hostname",
    "/gradio_api/queue/data?session_hash=x",
    "/gradio_api/queue/status",
    "/gradio_api/call/ask/x",
    "/gradio_api/login_check",
    "POST /gradio_api/queue/join",
    "POST /gradio_api/run/predict",
    "POST /gradio_api/api/predict",
    "POST /gradio_api/call/ask",
    "POST /gradio_api/upload",
    "POST /gradio_api/component_server",
)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_without_a_login_nothing_is_told_or_done_even_with_the_pages_token(guarded: str, endpoint: str) -> None:
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    page = browser.open(guarded, timeout=10).read().decode()
    assert "run-query" not in page, "the page itself holds only the login form"
    path = endpoint.removeprefix("POST ")
    body = json.dumps({"data": [], "fn_index": 0, "session_hash": "x", "component_id": 1, "fn_name": "x"}).encode()
    request = urllib.request.Request(
        f"{guarded}{path}", body if endpoint.startswith("POST") else None, {"content-type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        browser.open(request, timeout=10)
    assert refused.value.code == 401
    assert b"run-mine" not in refused.value.read()


def test_a_login_needs_the_pages_token_too(guarded: str) -> None:
    form = urllib.parse.urlencode({"username": LOGIN[0], "password": LOGIN[1]}).encode()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(f"{guarded}/login", form), timeout=10)
    assert refused.value.code == 403
