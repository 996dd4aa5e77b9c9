"""A served page and a browser. After every test: no request left this machine, no dialog, no error in the console."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api")

from playwright.sync_api import (  # noqa: E402
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    WebError,
    expect,
)

ROOT = Path(__file__).resolve().parent.parent.parent
KEY = "sk-testkey0123456789abcdef"
LOGIN = ("ann", "a pass:word ✓")
ARGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
# A page that is left or reloaded drops its connections; Gradio reports that, and nothing else is allowed.
_ALLOWED = re.compile(r"AbortError|Connection errored out|net::ERR_ABORTED")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(command: list[str], home: Path, log: Path) -> Iterator[str]:
    """Run `command` with a port and a home folder added, and yield the page's address once it answers.

    The environment variable TEST_LOGIN holds a user and a password, for servers that are told to ask for them.
    """
    url = f"http://127.0.0.1:{(port := _free_port())}"
    env = {
        **os.environ,
        "TRINITY_HOME": str(home),
        "OPENAI_API_KEY": KEY,
        "OMP_NUM_THREADS": "1",
        "TEST_LOGIN": ":".join(LOGIN),
    }
    env.pop("TRINITY_DB_URL", None)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *command, "--port", str(port), "--home", str(home)],
            cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, env=env,
        )  # fmt: skip
        try:
            for _ in range(600):
                if process.poll() is not None:
                    break
                try:
                    urllib.request.urlopen(url, timeout=5).read()  # the one page that needs no login
                    yield url
                    break
                except OSError:
                    time.sleep(0.1)
            else:
                pytest.fail(f"the server did not answer:\n{log.read_text('utf-8', 'replace')}")
        finally:
            process.terminate()
            try:
                code = process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                code = -9
    text = log.read_text("utf-8", "replace")
    assert code == 0, f"the server ended with {code}:\n{text}"
    assert "Traceback" not in text, text


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page-home")


@pytest.fixture(scope="session")
def url(home: Path) -> Iterator[str]:
    """The page over scripted members. A run that nobody watches ends after 6 seconds."""
    with served(["-m", "tests.browser.server", "--grace", "6"], home, home.parent / "page.log") as address:
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        assert not os.environ.get("TRINITY_REQUIRE_CHROMIUM"), "Chromium is not installed"
        pytest.skip("Chromium is not installed")
    expect.set_options(timeout=15_000)
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable, args=ARGS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def profile(browser: Browser) -> Iterator[BrowserContext]:
    """The profile of most tests, which leave it empty: its cache makes opening a page twice as fast."""
    context = browser.new_context()
    yield context
    context.close()


Visit = Callable[..., Page]


@pytest.fixture
def excused() -> list[str]:
    """Patterns of console errors that a test provokes on purpose."""
    return []


@pytest.fixture
def visit(browser: Browser, profile: BrowserContext, url: str, excused: list[str]) -> Iterator[Visit]:
    """Opens the page in a browser profile of its own: `visit(path="", width=..., theme=..., context=...)`.

    `before` is called with the page before it is ready, for example to log in.
    """
    contexts: list[BrowserContext] = []
    foreign: list[str] = []
    trouble: list[str] = []

    def asked(request: Request) -> None:
        address = request.url
        if address.startswith(("http:", "https:", "ws:", "wss:")) and "//127.0.0.1:" not in address:
            foreign.append(address)

    def said(message: ConsoleMessage) -> None:
        allowed = (_ALLOWED, *map(re.compile, excused))
        if message.type == "error" and not any(pattern.search(message.text) for pattern in allowed):
            trouble.append(message.text)

    def opened_dialog(dialog: Dialog) -> None:
        trouble.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def broke(error: WebError) -> None:
        trouble.append(str(error.error))

    listeners: dict[Any, Any] = {"request": asked, "console": said, "dialog": opened_dialog, "weberror": broke}

    def opened(
        path: str = "", *, base: str = "", width: int = 1400, height: int = 900, theme: str = "light",
        context: BrowserContext | None = None, before: Callable[[Page], None] | None = None,
    ) -> Page:  # fmt: skip
        if context is None:
            context = browser.new_context() if contexts else profile
            contexts.append(context)
            for name, listener in listeners.items():
                context.on(name, listener)
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": height})
        page.goto(f"{base or url}/?__theme={theme}{path}")
        if before is not None:
            before(page)
        page.wait_for_selector("#run-query textarea", state="attached")
        expect(page.locator("#run-coordinator [data-state]")).to_be_attached()
        return page

    yield opened
    for context in contexts:
        if context is profile:
            _emptied(profile)
            for name, listener in listeners.items():
                profile.remove_listener(name, listener)
        else:
            context.close()
    assert foreign == [], "the page asked another host"
    assert trouble == []


def _emptied(profile: BrowserContext) -> None:
    profile.unroute_all()
    for page in profile.pages:
        if page.url.startswith("http"):
            page.evaluate("localStorage.clear()")
        page.close()
    profile.clear_cookies()
    profile.clear_permissions()


def ask(page: Page, question: str) -> None:
    """Type a question and run it with the keyboard."""
    page.fill("#run-query textarea", question)
    page.keyboard.press("Control+Enter")


def card(page: Page, turn: int | str) -> Any:
    return page.locator(f'#run-lane [data-testid="turn-{turn}"]')


def ended(page: Page, reason: str) -> None:
    """Wait until the run has ended for `reason`."""
    expect(page.locator('#run-lane [data-testid="run-end"]')).to_have_attribute("data-stop-reason", reason)


def no_sideways_scroll(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
