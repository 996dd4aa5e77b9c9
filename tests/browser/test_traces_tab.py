"""The Traces tab in a real browser: finding, opening, linking, deleting and exporting; text that stays text."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from storage.records import StoredRun, StoredTurn
from storage.store import Store
from tests.browser.conftest import Visit, ask, ended, served
from tests.browser.server import HOSTILE
from trinity_core.types import AgentSpec, Finish, Message, Role, Source, Status, StopReason, Totals, Usage, Verdict

MANY = 120
AT = 1_750_000_000.0


def _run(number: int) -> StoredRun:
    accepted = number % 3 == 0
    question = f"question number {number:03d}" + (" about zebras" if number == 7 else "")
    turns = (
        StoredTurn(
            f"t{number}-1", 1, agent="symbolic", role=Role.WORKER, finish=Finish.STOP, text=f"result {number}",
            raw=f"result {number}", usage=Usage(10, number), seconds=1.0,
        ),
        StoredTurn(
            f"t{number}-2", 2, agent="smollm2", role=Role.VERIFIER, finish=Finish.STOP, text="checked",
            verdict=Verdict.ACCEPT if accepted else Verdict.REVISE, usage=Usage(10, 5), seconds=0.5,
        ),
    )  # fmt: skip
    return StoredRun(
        f"run-{number:03d}", None, Source.CLI, "coordinator", Status.DONE,
        StopReason.ACCEPTED if accepted else StopReason.TURNS_EXHAUSTED, messages=(Message("user", question),),
        answer=HOSTILE if number == 5 else f"result {number}", answer_turn=1,
        pool=(AgentSpec("symbolic", "symbolic"),), turns=turns,
        totals=Totals(2, 2, Usage(20, number + 5), None, seconds=1.5), created_at=AT + number,
        finished_at=AT + number + 1.5,
    )  # fmt: skip


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page over a store with 120 traces that belong to nobody, as an import leaves them."""
    home = tmp_path_factory.mktemp("archive-home")
    store = Store.open(f"sqlite:///{home / 'trinity.db'}")
    store.add_runs(_run(number) for number in range(MANY))
    store.close()
    with served(["-m", "tests.browser.server"], home, home.parent / "archive.log") as address:
        yield address


Open = Any


@pytest.fixture
def traces(visit: Visit, archive: str) -> Open:
    def opened(path: str = "&tab=traces", **options: Any) -> Page:
        page = visit(path, base=archive, **options)
        page.wait_for_selector("#traces-table .tr-hold > *")
        return page

    return opened


def rows(page: Page) -> Any:
    return page.locator("#traces-table tr[data-id]")


def test_pages_of_fifty_newest_first(traces: Open) -> None:
    page = traces()
    expect(rows(page)).to_have_count(50)
    expect(page.locator('[data-testid="traces-count"]')).to_have_text("1–50 of 120")
    expect(rows(page).first).to_have_attribute("data-id", "run-119")
    expect(page.locator("#traces-previous")).to_be_disabled()
    page.click("#traces-next")
    expect(rows(page).first).to_have_attribute("data-id", "run-069")
    page.click("#traces-next")
    expect(rows(page)).to_have_count(20)
    expect(page.locator("#traces-next")).to_be_disabled()
    page.click("#traces-previous")
    expect(rows(page).first).to_have_attribute("data-id", "run-069")


def test_search_finds_substrings_in_questions_answers_and_turns(traces: Open) -> None:
    page = traces()
    for text, found in (("ZEBRA", "run-007"), ("result 119", "run-119"), ("<your name", "run-005")):
        page.fill("#traces-search textarea, #traces-search input", text)
        expect(rows(page)).to_have_count(1)
        expect(rows(page)).to_have_attribute("data-id", found)
    page.fill("#traces-search textarea, #traces-search input", "no such text")
    expect(page.locator("#traces-table")).to_contain_text("No trace matches")
    page.click('#traces-table [data-act="clear"]')
    expect(rows(page)).to_have_count(50)
    expect(page.locator("#traces-search textarea, #traces-search input")).to_have_value("")


def test_sorting_and_filters(traces: Open) -> None:
    page = traces()
    page.get_by_role("button", name="Question").click()
    expect(rows(page).first).to_have_attribute("data-id", "run-119")
    page.get_by_role("button", name="Question").click()
    expect(rows(page).first).to_have_attribute("data-id", "run-000")
    expect(page.locator("#traces-table th[aria-sort]")).to_have_attribute("aria-sort", "ascending")
    page.select_option("select[name=verdict]", "accept")
    expect(page.locator('[data-testid="traces-count"]')).to_have_text("1–40 of 40")
    page.select_option("select[name=status]", "failed")
    expect(page.locator("#traces-table")).to_contain_text("No trace matches")
    page.select_option("select[name=status]", "")
    page.select_option("select[name=agent]", "symbolic")
    expect(page.locator('[data-testid="traces-count"]')).to_have_text("1–40 of 40")


def test_a_row_opens_its_own_trace_wherever_it_stands(traces: Open) -> None:
    page = traces()
    for order in ("descending", "ascending"):
        page.get_by_role("button", name="Question").click()
        expect(page.locator("#traces-table th[aria-sort]")).to_have_attribute("aria-sort", order)
        expect(page.locator("#traces-table th[aria-sort]")).to_contain_text("Question")
    expect(rows(page).first).to_have_attribute("data-id", "run-000")
    rows(page).nth(3).click()
    detail = page.locator('[data-testid="trace"]')
    expect(detail).to_have_attribute("data-id", "run-003")
    expect(detail).to_contain_text("question number 003")
    expect(rows(page).nth(3)).to_have_attribute("aria-selected", "true")
    call = detail.locator('[data-testid="call-1-1"]')
    call.locator("summary").first.click()
    expect(call).to_contain_text("10 → 3 tokens")
    page.keyboard.press("j")
    expect(detail).to_have_attribute("data-id", "run-004")
    page.keyboard.press("k")
    expect(detail).to_have_attribute("data-id", "run-003")


def test_the_list_is_alone_until_a_trace_is_open(traces: Open) -> None:
    page = traces()
    table, detail = page.locator(".tr-table-box"), page.locator("#trace-detail")
    expect(page.locator("#traces-right")).to_be_hidden()
    wide = table.bounding_box()["width"]
    assert wide > 1300
    heads = page.locator("#traces-table th")
    shown = [heads.nth(i).inner_text().strip(" ↓") for i in range(heads.count())]
    assert shown == ["Started", "Question", "Roles", "Agents", "Verdict", "Ended", "Tokens", "Cost", "Took"]
    heights = [rows(page).nth(i).bounding_box()["height"] for i in range(10)]
    assert max(heights) < 45
    rows(page).first.click()
    expect(detail).to_be_visible()
    assert table.bounding_box()["width"] < 0.6 * wide
    assert table.evaluate("box => box.scrollWidth <= box.clientWidth"), "no column is cut"
    assert detail.bounding_box()["x"] > table.bounding_box()["x"] + table.bounding_box()["width"]
    page.keyboard.press("Escape")
    expect(page.locator("#traces-right")).to_be_hidden()
    expect(rows(page).first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator('[data-testid="trace"]')).to_have_attribute("data-id", "run-119")
    page.click('[data-testid="trace-close"]')
    expect(page.locator("#traces-right")).to_be_hidden()


def test_on_a_phone_the_trace_stands_below_the_list_and_comes_into_view(traces: Open) -> None:
    page = traces(width=390, height=844)
    rows(page).nth(20).click()
    expect(page.locator('[data-testid="trace"] h2')).to_be_in_viewport()
    page.click('[data-testid="trace-close"]')
    expect(rows(page).nth(20)).to_be_in_viewport()


def test_hostile_stored_text_is_shown_as_it_stands(traces: Open) -> None:
    page = traces("&trace=run-005")
    detail = page.locator('[data-testid="trace"]')
    for line in HOSTILE.splitlines():
        expect(detail).to_contain_text(line)
    assert detail.locator("img, script, iframe").count() == 0


def test_a_link_opens_the_tab_and_the_trace(traces: Open) -> None:
    page = traces("&trace=run-042")
    expect(page.locator("#trace-detail")).to_be_visible()
    expect(page.locator('[data-testid="trace"]')).to_have_attribute("data-id", "run-042")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click('[data-testid="trace-link"]')
    expect(page.locator('[data-testid="trace-link"]')).to_have_text("Copied")
    link = page.evaluate("navigator.clipboard.readText()")
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator('[data-testid="trace"]')).to_have_attribute("data-id", "run-042")
    missing = traces("&trace=no-such-run")
    expect(missing.locator("#trace-detail")).to_contain_text("There is no such trace here")


def test_deleting_asks_first_and_can_be_undone(traces: Open) -> None:
    page = traces("&trace=run-100")
    page.click('[data-testid="trace-delete"]')
    page.get_by_role("button", name="Keep").click()
    expect(page.locator('[data-testid="trace-delete-yes"]')).to_have_count(0)
    page.click('[data-testid="trace-delete"]')
    page.click('[data-testid="trace-delete-yes"]')
    expect(page.locator('[data-testid="traces-count"]')).to_have_text("1–50 of 119")
    expect(page.locator('#traces-table [data-id="run-100"]')).to_have_count(0)
    page.click('[data-testid="trace-undo"]')
    expect(page.locator('[data-testid="traces-count"]')).to_have_text("1–50 of 120")
    expect(page.locator('[data-testid="trace"]')).to_have_attribute("data-id", "run-100")


def test_a_link_to_a_deleted_trace_says_so_and_brings_it_back(traces: Open) -> None:
    page = traces("&trace=run-101")
    page.click('[data-testid="trace-delete"]')
    page.click('[data-testid="trace-delete-yes"]')
    expect(page.locator('[data-testid="trace-undo"]')).to_be_visible()
    page.reload()
    expect(page.locator("#trace-detail")).to_contain_text("“question number 101” was deleted")
    expect(page.locator('[data-testid="trace"]')).to_have_count(0)
    page.click('[data-testid="trace-undo"]')
    expect(page.locator('[data-testid="traces-count"]')).to_have_text("1–50 of 120")
    expect(page.locator('[data-testid="trace"]')).to_have_attribute("data-id", "run-101")


def test_the_export_holds_what_is_filtered(traces: Open, tmp_path: Path) -> None:
    page = traces()
    page.fill("#traces-search textarea, #traces-search input", "zebras")
    expect(rows(page)).to_have_count(1)
    with page.expect_download() as waiting:
        page.click("#traces-export")
    target = tmp_path / "traces.jsonl"
    waiting.value.save_as(target)
    lines = [json.loads(line) for line in target.read_text("utf-8").splitlines()]
    assert "zebras" in json.dumps(lines)
    assert "question number 008" not in json.dumps(lines)


def test_another_browsers_traces_are_shown_only_when_asked_for(visit: Visit, archive: str) -> None:
    mine = visit(base=archive)
    ask(mine, "my own question")
    ended(mine, "accepted")
    mine.click("#tab-traces-button")
    expect(rows(mine).first).to_contain_text("my own question")
    run_id = rows(mine).first.get_attribute("data-id")
    other = visit(f"&trace={run_id}", base=archive)
    expect(other.locator("#trace-detail")).to_contain_text("There is no such trace here")
    expect(other.locator("#traces-table")).not_to_contain_text("my own question")
    other.click("#traces-all input")
    expect(other.locator("#traces-table")).to_contain_text("my own question")
    rows(mine).first.click()
    mine.click('[data-testid="trace-delete"]')
    mine.click('[data-testid="trace-delete-yes"]')
    expect(mine.locator("#traces-table")).not_to_contain_text("my own question")


def test_a_long_run_of_one_browser_does_not_hold_up_the_list_of_another(visit: Visit, archive: str) -> None:
    busy = visit(base=archive)
    ask(busy, "slow please")
    expect(busy.locator("#run-lane .tr-card")).to_have_count(2)
    other = visit("&tab=traces", base=archive)
    began = time.monotonic()
    expect(rows(other)).to_have_count(50)
    assert time.monotonic() - began < 8, "the run takes 12 seconds"
    expect(busy.locator('[data-testid="run-state"]')).to_have_attribute("data-running", "1")
    busy.click("#run-stop")
    ended(busy, "cancelled")
