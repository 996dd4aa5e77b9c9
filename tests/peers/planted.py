"""A planted key: use every feature with it, then look for it everywhere.

The peer is the raw fault server, whose members answer, fail, and say the key back in their error. Three keys are
planted: the members' (an environment variable), the endpoint's own, and, in the browser, one that is typed. They look
like no provider's key, so that only knowing them takes them out of a text.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from tests.peers import Peer
from trinity_core.types import AgentSpec

ENV_KEY, API_KEY, TYPED_KEY = "planted-env/7+Qx9Zb2", "planted-api/4+Wm1Yc8", "planted-typed/3+Rk6Td5"
ENVIRONMENT = {"PLANTED_KEY": ENV_KEY, "OPENAI_API_KEY": ENV_KEY, "PLANTED_API_KEY": API_KEY}
QUESTION = "What is 6 times 7?"
Run = Callable[[list[str]], bytes]
"""Runs one of the program's commands and returns all that it said."""
SERVICE = {"retries": 1, "first_token_s": 1, "between_tokens_s": 1, "total_s": 5, "rest_after": 50}


def members(peer: Peer) -> tuple[AgentSpec, ...]:
    """One that answers, one whose answers break off, and in each format one that says the key back."""

    def one(name: str, kind: str, model: str) -> AgentSpec:
        return AgentSpec(name, kind, model=model, base_url=peer.bases[kind], key_env="PLANTED_KEY", service=SERVICE)

    echoes = [one(f"echo-{kind}", kind, "bad-key") for kind in peer.bases]
    return (one("works", "openai", "ok"), one("breaks", "anthropic", "truncated"), *echoes)


def use_endpoint(url: str, names: Iterable[str]) -> bytes:
    """Ask every model of the endpoint in every way, rightly and wrongly; everything that it answered, headers too."""
    said = bytearray()
    headers = {"authorization": f"Bearer {API_KEY}"}
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:

        def ask(path: str, body: Any = None, given: Mapping[str, str] = headers) -> None:
            answer = client.request("POST" if body else "GET", path, json=body, headers=given)
            said.extend(str(answer.headers).encode() + answer.content)

        ask("/v1/models")
        for name in names:
            for stream in (False, True):
                ask("/v1/chat/completions", _chat(name, stream))
                ask("/v1/responses", {"model": name, "input": QUESTION, "stream": stream})
        ask("/v1/chat/completions", _chat("missing", False))
        ask("/v1/chat/completions", {"model": "works", "messages": "no list"})
        for wrong in (API_KEY + "x", ENV_KEY):
            refused = client.get("/v1/models", headers={"authorization": f"Bearer {wrong}"})
            assert refused.status_code == 401
            said.extend(refused.content)
        for path in ("/", "/config", "/gradio_api/info"):
            ask(path, given={})
    return bytes(said)


def _chat(model: str, stream: bool) -> dict[str, Any]:
    return {"model": model, "stream": stream, "messages": [{"role": "user", "content": QUESTION}]}


def use_commands(run: Run, home: Path, names: Iterable[str]) -> dict[str, bytes]:
    """The command line through `run`: questions that succeed and fail, an export and its import into another home, a
    pool file that holds a key. What was said, and the export."""
    where, other = ["--home", str(home)], ["--home", str(home.parent / "other-home")]
    exported, keyed = home.parent / "export.jsonl", home.parent / "with-a-key.toml"
    said = b"".join(run(["ask", "--json", "--method", f"single:{name}", QUESTION, *where]) for name in names)
    said += run(["ask", "--method", "fixed", QUESTION, *where])
    said += run(["export", str(exported), *where])
    said += run(["import", str(exported), *other])
    entry = f'name = "m"\nkind = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\napi_key = "{ENV_KEY}"\n'
    keyed.write_text(f"[[agents]]\n{entry}", "utf-8")
    refused = run(["ask", "--pool", str(keyed), "--method", "fixed", QUESTION, *where])
    assert b"seems to hold a key" in refused, refused
    return {"commands": said + refused, "export": exported.read_bytes()}


def use_page(url: str, peer: Peer, folder: Path) -> dict[str, bytes]:
    """The page in Chromium: a run, the Pool tab with a typed key that is tested and saved, traces and their export.
    Everything that came over the wire, and all that the browser keeps."""
    from playwright.sync_api import sync_playwright

    kept = dict[str, bytes]()
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        context = browser.new_context(accept_downloads=True)
        page = context.new_page()
        page.set_default_timeout(60_000)
        spoken: list[str] = []
        page.on("console", lambda message: spoken.append(message.text))
        page.goto(url)
        page.click("#tab-pool-button")
        given = {"name": "typed", "base-url": peer.bases["openai"], "model": "bad-key", "key": TYPED_KEY}
        for name, value in given.items():
            page.fill(f"#pool-{name} :is(input, textarea)", value)
        page.click("#pool-test")
        page.locator("#pool-status .tr-notice[data-kind=problem]").wait_for()
        assert "Incorrect API key" in page.inner_text("#pool-status")  # the key was sent, and came back
        page.click("#pool-save")
        page.locator("#pool-table [data-member=typed]").wait_for()
        page.wait_for_function("document.querySelector('#pool-key input').value === ''")
        page.click("#tab-run-button")
        page.fill("#run-query textarea", QUESTION)
        page.click("#run-start")
        page.locator("#run-lane [data-status]").last.wait_for()
        page.wait_for_function("!document.querySelector('#run-start').disabled", timeout=120_000)
        page.click("#tab-traces-button")
        page.locator("#traces-table tr[data-id]").first.click()
        page.locator('[data-testid="trace"]').wait_for()
        with page.expect_download() as waiting:
            page.click("#traces-export")
        waiting.value.save_as(folder / "page-export.jsonl")
        kept["export of the page"] = (folder / "page-export.jsonl").read_bytes()
        kept["console"] = "\n".join(spoken).encode()
        for tab in ("run", "pool", "traces"):
            page.click(f"#tab-{tab}-button")
            kept[f"document with the tab {tab}"] = page.content().encode()
        kept["fields"] = page.evaluate(_FIELDS).encode()
        kept["storage"] = str(context.storage_state(indexed_db=True)).encode()
        kept["session storage"] = page.evaluate("JSON.stringify(sessionStorage)").encode()
        kept["/config"] = page.evaluate("fetch('config').then(answer => answer.text())").encode()
        browser.close()
    return kept


_FIELDS = "[...document.querySelectorAll('input, textarea')].map(box => box.value).join(' ')"


def found(places: Mapping[str, bytes]) -> list[str]:
    """Where a planted key stands, in any of the forms in which it might have got there."""
    hits = []
    for name, data in places.items():
        for key in (ENV_KEY, API_KEY, TYPED_KEY):
            hits += [f"{key} as {form} in {name}" for form, text in _forms(key) if text in data]
    return hits


def _forms(key: str) -> Iterator[tuple[str, bytes]]:
    plain = key.encode()
    yield "it is", plain
    yield "a URL has it", quote(key, safe="").encode()
    yield "JSON may have it", key.replace("/", "\\/").encode()
    yield "UTF-16", key.encode("utf-16-le")
    for shift in range(3):  # base64 of a longer text shows it in one of three ways
        whole = base64.b64encode(b"\0" * shift + plain)
        yield "base64", whole[4 if shift else 0 : len(whole) // 4 * 4 - 4]


def files(folder: Path) -> dict[str, bytes]:
    """Every file below `folder`, but for model weights."""
    inside = (path for path in folder.rglob("*") if path.is_file() and "models" not in path.relative_to(folder).parts)
    read = dict[str, bytes]()
    for path in inside:
        with suppress(FileNotFoundError):  # a journal that was there a moment ago
            read[str(path.relative_to(folder))] = path.read_bytes()
    return read


def seen_redacted(home: Path) -> bool:
    """Whether the key reached the peer and came back: its place is marked in what was stored."""
    return any(b"[redacted]" in data for name, data in files(home).items() if name.startswith("trinity.db"))
