"""The program as it is shipped, in Chromium: the real backbone and head decide, the real embedded agents answer."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import ROOT, Visit, ask, card, ended, served
from tests.conftest import MODEL_CACHE

pytestmark = pytest.mark.model

TWO_STEPS = "How many letters are in the word 'strawberry'? Multiply that number by 7."
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script> </section> $5 and $6 <your name here>"
DONE = '#run-lane [data-testid="run-end"]'


@pytest.fixture(scope="module")
def real_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder with the converted weights and one hostile trace."""
    home = tmp_path_factory.mktemp("real-home")
    MODEL_CACHE.mkdir(parents=True, exist_ok=True)
    (home / "models").symlink_to(MODEL_CACHE, target_is_directory=True)
    trace = json.dumps({"id": "hostile", "question": "Say something hostile.", "final_answer": HOSTILE})
    command = [sys.executable, str(ROOT / "app.py"), "import", "-", "--home", str(home)]
    subprocess.run(command, input=trace.encode(), check=True, capture_output=True)
    return home


@pytest.fixture(scope="module")
def real(real_home: Path) -> Iterator[str]:
    """The address of `app.py serve`."""
    with served(["app.py", "serve"], real_home, real_home.parent / "real.log") as address:
        yield address


@pytest.fixture
def page(visit: Visit, real: str) -> Page:
    """A page whose coordinator is trained and ready."""
    opened = visit(base=real)
    expect(opened.locator("#run-coordinator [data-state]")).to_have_attribute("data-state", "ready", timeout=120_000)
    return opened


def stored(home: Path, sql: str) -> list[Any]:
    with sqlite3.connect(home / "trinity.db") as db:
        return list(db.execute(sql))


def test_the_coordinator_routes_a_question_of_two_steps(page: Page) -> None:
    ask(page, TWO_STEPS)
    ended(page, "accepted")
    expect(card(page, 1)).to_have_attribute("data-agent", "lexical")
    expect(card(page, 1)).to_have_attribute("data-role", "worker")
    expect(card(page, 2)).to_have_attribute("data-agent", "symbolic")
    expect(page.locator(f"{DONE} >> xpath=.")).to_be_visible()
    expect(page.locator('#run-lane [data-verdict="accept"]').last).to_be_visible()
    expect(page.locator('[data-testid="answer-final"]')).to_contain_text("70")
    for plot in ("#run-agent-logits", "#run-role-logits"):
        expect(page.locator(plot)).to_contain_text("chosen")
    expect(page.locator("#run-agent-logits")).to_contain_text(re.compile(r"leads \w+ by \d"))


def test_a_follow_up_uses_the_answer_before_it(page: Page) -> None:
    ask(page, "What is 12 times 12?")
    ended(page, "accepted")
    ask(page, "Now divide that by 9.")
    expect(page.locator('[data-testid="answer-final"]').last).to_contain_text("16", timeout=60_000)


def test_stop_ends_a_real_model_within_a_second(page: Page, real_home: Path) -> None:
    page.get_by_role("radio", name="Thinker → Worker → Verifier").check()
    ask(page, "Explain in detail how rain forms, and why rivers flow to the sea.")
    expect(page.locator("#run-lane [data-status]").first).to_be_visible(timeout=60_000)
    page.locator("#run-stop").click()
    clicked = time.monotonic()
    ended(page, "cancelled")
    assert time.monotonic() - clicked < 1.5  # a second, and the time that the test itself takes to look
    statuses = stored(real_home, "select status, stop_reason from runs where question like 'Explain in detail%'")
    assert statuses == [("cancelled", "cancelled")]


def test_a_refresh_in_the_middle_finds_the_run_again(page: Page, real_home: Path) -> None:
    page.get_by_role("radio", name="Thinker → Worker → Verifier").check()
    ask(page, "Describe the life of a butterfly in three sentences.")
    expect(page.locator("#run-lane [data-status]").first).to_be_visible(timeout=60_000)
    page.reload()
    expect(card(page, 1)).to_be_visible(timeout=30_000)
    expect(page.locator(DONE)).to_be_visible(timeout=120_000)
    assert stored(real_home, "select status from runs where question like 'Describe the life%'") == [("done",)]


def test_two_browsers_run_at_once_without_seeing_each_other(page: Page, visit: Visit, real: str) -> None:
    other = visit(base=real)
    ask(page, "How many times does the letter s occur in mississippi?")
    ask(other, "How many minutes are in 3 hours?")
    expect(page.locator('[data-testid="answer-final"]')).to_contain_text("4", timeout=60_000)
    expect(other.locator('[data-testid="answer-final"]')).to_contain_text("180", timeout=60_000)
    expect(page.locator("body")).not_to_contain_text("3 hours")
    expect(other.locator("body")).not_to_contain_text("mississippi")


def test_hostile_text_from_an_agent_is_text(page: Page) -> None:
    page.get_by_role("radio", name="Only lexical").check()
    ask(page, f'Write "{HOSTILE}" in lower case.')
    ended(page, "turns_exhausted")
    expect(page.locator('[data-testid="answer-final"]')).to_contain_text(
        "<img src=x onerror=alert(1)><script>alert(2)"
    )
    expect(page.locator('[data-testid="answer-final"]')).to_contain_text("$5 and $6 <your name here>")
    assert page.locator("#run-lane img, #run-answer img, #run-lane script, #run-answer script").count() == 0


def test_a_stored_hostile_trace_is_text(visit: Visit, real: str) -> None:
    page = visit("&trace=hostile", base=real)
    expect(page.locator("#trace-detail")).to_contain_text("<your name here>")
    assert page.locator("#trace-detail img, #trace-detail script").count() == 0


@pytest.mark.parametrize("text", ["", "x" * 200_000, "a\x00b"], ids=["empty", "too-long", "binary"])
def test_unusable_questions_are_named_and_kept(page: Page, text: str, real_home: Path) -> None:
    before = stored(real_home, "select count(*) from runs")
    ask(page, text)
    expect(page.get_by_test_id("toast-body").or_(page.locator("[role=alert]")).first).to_be_visible()
    assert len(page.input_value("#run-query textarea")) >= len(text.replace("\x00", ""))
    assert stored(real_home, "select count(*) from runs") == before


def test_a_phone_shows_all_of_it(visit: Visit, real: str) -> None:
    page = visit(base=real, width=390, height=844, theme="dark")
    expect(page.locator("#run-coordinator [data-state]")).to_have_attribute("data-state", "ready", timeout=120_000)
    ask(page, "What is 15% of 80?")
    expect(page.locator('[data-testid="answer-final"]')).to_contain_text("12", timeout=60_000)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
