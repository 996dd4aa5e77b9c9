"""The Tasks tab in a real browser: built-in tasks, import, the form, and labelling with the keyboard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from storage.records import StoredRun, StoredTurn
from storage.store import Store
from tests.browser.conftest import Visit, no_sideways_scroll, served
from tests.browser.server import HOSTILE
from trinity_core.tasks.builtin import builtin_tasks
from trinity_core.types import Finish, Message, Role, Status, StopReason

RUNS = 4
# The tab is added to the page here for as long as the page does not have it itself.
_SERVER = """
import gradio as gr
import ui.build
from ui.tabs import pool, tasks
from tests.browser.server import main

if not hasattr(ui.build, "tasks_tab"):
    pool_build = pool.build

    def build(page, tabs, tab, services):
        pool_build(page, tabs, tab, services)
        with tabs, gr.Tab("Tasks", id="tasks", elem_id="tab-tasks", render_children=True) as own:
            tasks.build(page, tabs, own, services)

    pool.build = build
main()
"""


def _run(number: int) -> StoredRun:
    text = HOSTILE if number == 0 else f"Working it out.\nAnswer: {number * 10}"
    turn = StoredTurn(f"t{number}", 1, agent="symbolic", role=Role.WORKER, finish=Finish.STOP, text=text, raw=text)
    return StoredRun(
        f"run-{number}", None, status=Status.DONE, stop_reason=StopReason.ACCEPTED,
        messages=(Message("user", f"question number {number}?"),), answer=text, answer_turn=1, turns=(turn,),
        created_at=1_750_000_000.0 + number,
    )  # fmt: skip


@pytest.fixture
def served_page(tmp_path: Path) -> Iterator[str]:
    """A page over a store with a few runs that belong to nobody."""
    home = tmp_path / "home"
    home.mkdir()
    store = Store.open(f"sqlite:///{home / 'trinity.db'}")
    store.add_runs(_run(number) for number in range(RUNS))
    store.close()
    with served(["-c", _SERVER], home, tmp_path / "page.log") as address:
        yield address


@pytest.fixture
def url(served_page: str) -> str:
    """In place of the page over scripted members."""
    return served_page


def opened(visit: Visit, **options: Any) -> Page:
    page = visit("&tab=tasks", **options)
    expect(page.locator("#tasks-table .tr-hold > *").first).to_be_visible()
    return page


def rows(page: Page) -> Locator:
    return page.locator("#tasks-table tr[data-id]")


def queue(page: Page) -> Locator:
    page.click("#tasks-queue-button")
    card = page.locator('[data-testid="queue-card"]')
    expect(card).to_be_visible()
    return card


def reference(page: Page) -> Locator:
    return page.locator("#queue-reference :is(textarea, input)")


def test_built_in_tasks_the_form_and_an_import(visit: Visit, tmp_path: Path) -> None:
    page = opened(visit)
    expect(page.locator("#tasks-table")).to_contain_text("There are no tasks yet")
    page.click('#tasks-table [data-act="family-add"]')
    expect(page.locator('[data-testid="tasks-count"]')).to_have_text(f"1–50 of {len(builtin_tasks()):,}")
    page.click("#tasks-next")
    expect(page.locator('[data-testid="tasks-count"]')).to_contain_text("51–100")
    page.select_option("#tasks-filters select[name=family]", "letters")
    expect(rows(page).first).to_contain_text("letters")
    page.click('#tasks-families [data-family="letters"] [data-act="family-remove"]')
    expect(page.locator("#tasks-table")).to_contain_text("No task matches")
    page.click('#tasks-table [data-act="clear"]')

    page.fill("#task-question textarea", "What is 2 + 2?")
    page.fill("#task-reference :is(textarea, input)", "4")
    page.click('#task-grader label:has-text("Number")')
    expect(page.locator("#task-grader-note")).to_contain_text("within the tolerance")
    expect(page.locator("#task-tolerance :is(textarea, input)")).to_be_visible()
    expect(page.locator("#task-accept")).to_be_hidden()
    page.fill("#task-try textarea", "Let me see.\nAnswer: 5")
    page.click("#task-try-start")
    expect(page.locator('[data-testid="task-grade"]')).to_contain_text("does not equal 4")
    page.click("#task-save")
    expect(page.locator("#task-status")).to_contain_text("Saved")
    expect(rows(page).first).to_contain_text("What is 2 + 2?")
    page.fill("#task-question textarea", "What is 3 + 1?")
    page.click("#task-save")
    expect(rows(page).first).to_contain_text("What is 3 + 1?")
    page.fill("#tasks-search :is(textarea, input)", "What is 2 + 2?")
    expect(page.locator("#tasks-table")).to_contain_text("No task matches")
    page.fill("#tasks-search :is(textarea, input)", "What is 3 + 1?")
    expect(rows(page)).to_have_count(1)
    page.click('#task-links [data-act="delete"]')
    page.click('#task-links [data-act="delete-yes"]')
    expect(page.locator("#tasks-table")).to_contain_text("No task matches")
    page.click('#tasks-note [data-act="undo"]')
    expect(rows(page)).to_have_count(1)
    expect(page.locator("#task-question textarea")).to_have_value("What is 3 + 1?")

    text = "frage;antwort;topic\nZebra one?;41;geo\n;2;geo\n<b>Zebra</b> two?;Lima;geo\n"
    file = {"name": "my.csv", "mimeType": "text/csv", "buffer": text.encode("utf-8-sig")}
    page.set_input_files("#tasks-import input[type=file]", file)  # type: ignore[arg-type]
    expect(page.locator("#tasks-preview")).to_contain_text("Zebra one?")
    page.select_option("#tasks-preview select[name=question]", "frage")
    page.select_option("#tasks-preview select[name=reference]", "antwort")  # at once, and importing right after it
    page.click("#tasks-import-start")
    result = page.locator('[data-testid="import-result"]')
    expect(result).to_contain_text("2 new tasks")
    expect(result).to_contain_text("Line 3")
    page.click("#tasks-import-start")
    expect(result).to_contain_text("2 were there already")
    page.fill("#tasks-search :is(textarea, input)", "zebra")
    expect(rows(page)).to_have_count(2)
    expect(page.locator("#tasks-table")).to_contain_text("<b>Zebra</b> two?")
    with page.expect_download() as waiting:
        page.click("#tasks-export")
    target = tmp_path / "tasks.jsonl"
    waiting.value.save_as(target)
    lines = [json.loads(line) for line in target.read_text("utf-8").splitlines()]
    assert {line["question"] for line in lines} == {"Zebra one?", "<b>Zebra</b> two?"}
    other = opened(visit)
    expect(other.locator("#tasks-table")).to_contain_text("There are no tasks yet")


def test_labelling_with_the_keyboard(visit: Visit) -> None:
    page = opened(visit)
    page.click('#tasks-table [data-act="label"]')
    card = page.locator('[data-testid="queue-card"]')
    expect(card).to_have_attribute("data-id", "run-3")
    at = page.locator('[data-testid="queue-at"]')
    expect(at).to_have_text(f"1 of {RUNS}")
    expect(reference(page)).to_have_value("30")
    page.keyboard.press("j")
    expect(card).to_have_attribute("data-id", "run-2")
    page.keyboard.press("j")  # fast presses count each
    page.keyboard.press("k")
    page.keyboard.press("k")
    expect(card).to_have_attribute("data-id", "run-3")
    expect(reference(page)).to_have_value("30")
    page.keyboard.press("1")
    expect(card).to_have_attribute("data-id", "run-2")
    expect(page.locator("#queue-note")).to_contain_text("A new task with the answer “30”")
    expect(page.locator("#tasks-summary")).to_contain_text("1")
    page.keyboard.press("2")
    expect(page.locator('[data-testid="queue-state"]')).to_contain_text("marked wrong")
    expect(reference(page)).to_be_focused()
    expect(reference(page)).to_have_value("20")  # the key itself was not typed into the field
    page.keyboard.type("12k")  # while typing these are letters of the answer
    expect(card).to_have_attribute("data-id", "run-2")
    expect(reference(page)).to_have_value("12k")
    page.keyboard.press("Backspace")
    page.keyboard.press("Enter")
    expect(card).to_have_attribute("data-id", "run-1")
    page.locator("#queue-card h3").first.click()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("e")
    expect(reference(page)).to_be_focused()
    page.click('#queue-card [data-act="next"]')
    expect(card).to_have_attribute("data-id", "run-0")
    for line in HOSTILE.splitlines():
        expect(card).to_contain_text(line)
    assert card.locator("img, script").count() == 0
    page.click("#tasks-list-button")
    expect(rows(page)).to_have_count(2)
    expect(page.locator("#tasks-table")).to_contain_text("question number 2?")
    page.reload()
    page.wait_for_selector("#tasks-table tr[data-id]")
    expect(queue(page)).to_have_attribute("data-id", "run-1")  # labels are kept, and what is left comes back


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_shows_all_without_scrolling_sideways(visit: Visit, theme: str) -> None:
    page = opened(visit, width=390, height=844, theme=theme)
    no_sideways_scroll(page)
    page.click('#tasks-table [data-act="family-add"]')
    expect(rows(page)).to_have_count(50)
    no_sideways_scroll(page)
    rows(page).nth(30).click()
    expect(page.locator("#task-title h2")).to_be_in_viewport()
    queue(page)
    no_sideways_scroll(page)
