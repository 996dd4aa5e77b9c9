"""The Run tab in a real browser: watching, following up, stopping, refreshing, and text that stays text."""

from __future__ import annotations

import json
import sqlite3
import time
import urllib.error
import urllib.request
from pathlib import Path

import gradio as gr
import pytest
from playwright.sync_api import expect

from storage.records import RunQuery
from storage.store import Store
from tests.browser.conftest import KEY, Visit, ask, card, ended, no_sideways_scroll
from tests.browser.server import HOSTILE
from trinity_core.types import Status
from ui.tabs.run import remembered


def test_a_question_is_answered_turn_by_turn(visit: Visit) -> None:
    page = visit()
    ask(page, "What is 6 times 7?")
    ended(page, "accepted")
    shown = [
        [card(page, turn).get_attribute(f"data-{name}") for name in ("role", "agent", "verdict", "status")]
        for turn in (1, 2, 3)
    ]
    assert shown == [
        ["thinker", "calendar", "", "done"],
        ["worker", "symbolic", "", "done"],
        ["verifier", "smollm2", "accept", "done"],
    ]
    expect(page.locator('[data-testid="answer-final"]')).to_contain_text("Answer: 42")
    expect(page.locator('[data-testid="run-state"]')).to_have_attribute("data-status", "done")
    expect(page.locator("#run-query textarea")).to_have_value("")
    expect(page.locator("#run-start")).to_be_enabled()
    expect(page.locator("#run-stop")).to_be_disabled()


def test_an_example_fills_the_question_and_reasoning_is_folded(visit: Visit) -> None:
    page = visit()
    expect(page.locator(".tr-example")).to_have_count(5)
    page.locator(".tr-example").first.click()
    expect(page.locator("#run-query textarea")).to_have_value("What is 17 * 23 + 4?")
    page.click("#run-start")
    ended(page, "accepted")
    think = card(page, 1).locator("details")
    expect(think.locator(".prose")).to_be_hidden()
    think.locator("summary").click()
    expect(think.locator(".prose")).to_have_text("Thinking it over.")


def test_logits_follow_the_chosen_turn_and_keep_their_zoom(visit: Visit) -> None:
    page = visit()
    ask(page, "slow please")
    title = page.locator("#run-agent-logits .tr-plot-title")
    expect(title).to_have_text("Agent logits · Turn 2")
    expect(page.locator("#run-heat .js-plotly-plot")).to_be_visible()
    expect(page.locator("#run-agent-logits")).to_contain_text("chosen")
    plot = page.locator("#run-agent-logits .js-plotly-plot")
    plot.evaluate("node => { node.seenBefore = true }")
    area = plot.locator(".nsewdrag").bounding_box()
    assert area is not None
    page.mouse.move(area["x"] + area["width"] * 0.3, area["y"] + area["height"] / 2)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] * 0.7, area["y"] + area["height"] / 2, steps=5)
    page.mouse.up()
    zoomed = plot.evaluate("node => node.layout.xaxis.range")
    before = card(page, 2).inner_text()
    expect(card(page, 2)).not_to_have_text(before, use_inner_text=True)
    page.click("#run-stop")
    ended(page, "cancelled")
    assert plot.evaluate("node => [node.seenBefore, node.layout.xaxis.range]") == [True, zoomed]
    card(page, 1).click()
    expect(title).to_have_text("Agent logits · Turn 1")
    expect(page.locator("#run-role-logits .tr-plot-title")).to_have_text("Role logits · Turn 1")
    expect(page.locator("#run-role-logits .tr-caption")).to_contain_text("verifier masked: there is no answer")
    page.click("#run-softmax input")
    expect(title).to_have_text("Agent probabilities · Turn 1")


def test_a_follow_up_continues_the_conversation_and_a_new_one_forgets_it(visit: Visit) -> None:
    page = visit()
    ask(page, "first question")
    ended(page, "accepted")
    ask(page, "second question")
    chat = page.locator("#run-answer")
    expect(chat.locator(".tr-user")).to_have_text(["Youfirst question", "Yousecond question"])
    expect(chat.locator('[data-testid="answer-final"]')).to_contain_text("second question")
    expect(chat.locator(".tr-assistant")).to_have_count(2)
    expect(page.locator("#run-welcome")).to_be_hidden()
    page.click("#run-new")
    expect(page.locator("#run-welcome")).to_be_visible()
    expect(page.locator("#run-answer")).to_be_hidden()
    ask(page, "third question")
    expect(chat.locator('[data-testid="answer-final"]')).to_contain_text("third question")
    expect(chat.locator(".tr-user")).to_have_count(1)


@pytest.mark.parametrize(("width", "height"), [(1360, 950), (390, 844)])
def test_the_first_thing_to_see_is_where_to_type(visit: Visit, width: int, height: int) -> None:
    page = visit(width=width, height=height)
    expect(page.locator(".tr-example").first).to_be_visible()
    tops = {}
    for name in ("#run-query textarea", "#run-start", ".tr-example >> nth=0", ".tr-example >> nth=4"):
        box = page.locator(name).bounding_box()
        assert box is not None
        tops[name] = box["y"]
    assert list(tops.values()) == sorted(tops.values()), tops
    assert tops["#run-query textarea"] < 300
    assert tops[".tr-example >> nth=4"] < height
    ask(page, "now a conversation")
    ended(page, "accepted")
    answer, box = page.locator("#run-answer").bounding_box(), page.locator("#run-query").bounding_box()
    assert answer is not None
    assert box is not None
    assert answer["y"] + answer["height"] <= box["y"], "a conversation stands above the box"


def test_a_uniform_choice_is_told_in_words(visit: Visit) -> None:
    page = visit()
    page.get_by_role("radio", name="Random").check()
    ask(page, "any")
    expect(page.locator('#run-lane [data-testid="run-end"]')).to_be_visible()
    expect(page.locator("#run-agent-logits")).to_contain_text("The choice was uniform")
    expect(page.locator("#run-agent-logits .tr-plot")).to_be_hidden()


def test_a_lost_server_is_told_and_what_was_typed_is_kept(visit: Visit) -> None:
    page = visit()
    page.fill("#run-query textarea", "a long draft")
    page.context.route("**/robots.txt", lambda route: route.abort("aborted"))
    page.evaluate("dispatchEvent(new Event('offline'))")  # asks at once instead of at the next beat
    lost = page.locator("#tr-lost")
    expect(lost).to_contain_text("The server does not answer. What you typed is kept.")
    page.context.unroute("**/robots.txt")
    page.evaluate("dispatchEvent(new Event('online'))")
    expect(lost).to_contain_text("The server answers again")
    lost.get_by_role("button", name="Reconnect").click()
    expect(lost).to_have_count(0)
    expect(page.locator("#run-query textarea")).to_have_value("a long draft")


# Milliseconds in the page itself, so that a slow test machine is not counted.
TIMER = """() => {
    const press = () => { window.pressed ??= performance.now(); };
    addEventListener("click", press, true);
    addEventListener("keydown", press, true);
    const look = () => {
        if (document.querySelector('#run-lane [data-testid="run-end"]')) window.ended ??= performance.now();
    };
    new MutationObserver(look).observe(document.querySelector("#run-lane"), { childList: true, subtree: true });
}"""


@pytest.mark.parametrize("how", ["button", "Escape"])
@pytest.mark.parametrize("question", ["slow please", "stall please"])
def test_stop_takes_effect_within_a_second_and_keeps_what_arrived(visit: Visit, question: str, how: str) -> None:
    page = visit()
    ask(page, question)
    expect(card(page, 2)).to_have_attribute("data-status", "running")
    if "slow" in question:
        expect(card(page, 2)).to_contain_text("step3")
    else:
        page.wait_for_timeout(300)
    page.evaluate(TIMER)
    if how == "button":
        page.click("#run-stop")
    else:
        page.keyboard.press("Escape")
    ended(page, "cancelled")
    assert page.evaluate("window.ended - window.pressed") < 1200
    expect(page.locator('[data-testid="run-state"]')).to_have_attribute("data-status", "cancelled")
    if "slow" in question:
        expect(card(page, 2)).to_contain_text("step3")
        expect(page.locator('[data-testid="answer-final"]')).to_contain_text("step3")


def test_a_refresh_finds_the_run_again_and_can_stop_it(visit: Visit) -> None:
    page = visit()
    ask(page, "slow please")
    expect(card(page, 2)).to_contain_text("step2")
    remembered = page.evaluate("JSON.stringify(localStorage)")
    page.fill("#run-query textarea", "a draft of the next one")
    page.wait_for_function("before => JSON.stringify(localStorage) !== before", arg=remembered)
    page.reload()
    expect(page.locator("#run-query textarea")).to_have_value("a draft of the next one")
    expect(card(page, 2)).to_have_attribute("data-status", "running")
    expect(card(page, 2)).to_contain_text("step2")
    page.click("#run-stop")
    ended(page, "cancelled")
    page.reload()
    ended(page, "cancelled")
    expect(card(page, 2)).to_contain_text("step2")


def test_a_closed_page_ends_its_run_after_the_grace(visit: Visit, home: Path) -> None:
    page = visit()
    ask(page, "slow please, closed")
    expect(card(page, 2)).to_contain_text("step1")
    again = page.context
    page.close()
    store = Store.open(f"sqlite:///{home / 'trinity.db'}")
    for _ in range(150):  # from here, because a page that looks would keep it alive
        found = store.list_runs(RunQuery(search="slow please, closed", all_owners=True)).rows
        if found[0].status is not Status.RUNNING:
            break
        time.sleep(0.1)
    store.close()
    page = visit(context=again)
    ended(page, "cancelled")
    expect(card(page, 2)).not_to_contain_text("step110")


def test_two_browsers_run_at_once_and_see_nothing_of_each_other(visit: Visit) -> None:
    first, second = visit(), visit()
    ask(first, "slow alpha")
    ask(second, "slow beta")
    for page in (first, second):
        expect(card(page, 2)).to_contain_text("step1 ")
        expect(card(page, 2)).to_have_attribute("data-status", "running")
    assert "beta" not in first.locator("#run-columns").inner_text()
    assert "alpha" not in second.locator("#run-columns").inner_text()
    second.click("#run-stop")
    ended(second, "cancelled")
    expect(card(first, 2)).to_have_attribute("data-status", "running")
    second.click("#tab-traces-button")
    expect(second.locator("#traces-table tr[data-id]")).to_have_count(1)
    expect(second.locator("#traces-table")).to_contain_text("slow beta")
    first.click("#run-stop")
    ended(first, "cancelled")


def test_hostile_text_is_shown_as_it_stands(visit: Visit) -> None:
    page = visit()
    ask(page, "hostile <your name here> $1 and $2 <img src=http://other.example/q.png>")
    ended(page, "accepted")
    for line in HOSTILE.splitlines():
        expect(card(page, 2)).to_contain_text(line)
        expect(page.locator('[data-testid="answer-final"]')).to_contain_text(line)
    expect(page.locator("#run-answer .tr-user")).to_contain_text("<your name here> $1 and $2 <img src=")
    assert page.locator("#run-columns img, #run-columns script, #run-columns iframe").count() == 0


def test_a_failed_run_says_who_what_and_what_next(visit: Visit) -> None:
    page = visit()
    ask(page, "broken")
    ended(page, "failed")
    problem = page.locator(".tr-problem")
    for part in ("Turn 2", "The service is down.", "What to do"):
        expect(problem).to_contain_text(part)
    expect(page.locator('#run-lane [data-status="failed"]')).to_have_count(3)
    expect(card(page, "2-attempt-1")).to_have_attribute("data-agent", "symbolic")
    expect(page.locator("#run-lane .tr-note")).to_have_count(3)


def test_an_empty_question_is_an_error_in_place(visit: Visit) -> None:
    page = visit()
    page.click("#run-start")
    expect(page.locator('[data-testid="run-problem"]')).to_contain_text("The question is empty")
    expect(page.locator("#run-lane .tr-card")).to_have_count(0)
    ask(page, "now with words")
    ended(page, "accepted")
    expect(page.locator('[data-testid="run-problem"]')).to_have_count(0)


def test_a_question_that_is_too_long_stays_in_its_box(visit: Visit) -> None:
    page = visit()
    ask(page, "x" * 200_000)
    expect(page.locator('[data-testid="run-problem"]')).to_contain_text("200,000 characters")
    assert len(page.locator("#run-query textarea").input_value()) == 200_000


def test_the_settings_reach_the_run_and_survive_a_refresh(visit: Visit) -> None:
    page = visit()
    page.get_by_role("radio", name="Only lexical").check()
    page.click("#run-params button")
    page.fill("#run-seed input", "7")
    page.keyboard.press("Tab")
    expect(page.locator("#run-reuse input")).not_to_be_checked()
    page.wait_for_timeout(300)
    remembered = page.evaluate("JSON.stringify(localStorage)")
    page.check("#run-reuse input")
    page.wait_for_function("before => JSON.stringify(localStorage) !== before", arg=remembered)
    page.reload()
    expect(page.get_by_role("radio", name="Only lexical")).to_be_checked(timeout=15_000)
    page.click("#run-params button")
    expect(page.locator("#run-reuse input")).to_be_checked()
    ask(page, "one call")
    ended(page, "turns_exhausted")
    expect(page.locator("#run-lane .tr-card")).to_have_count(1)
    expect(card(page, 1)).to_have_attribute("data-agent", "lexical")
    page.click("#tab-traces-button")
    page.locator("#traces-table tr[data-id]").first.click()
    expect(page.locator("#trace-detail dl").first).to_contain_text("7")
    page.get_by_text("Parameters", exact=True).click()
    expect(page.locator("#trace-detail")).to_contain_text('"reuse": true')


def test_settings_that_were_only_looked_at_are_not_sent(visit: Visit, home: Path) -> None:
    page = visit()
    page.click("#run-params button")
    expect(page.locator("#run-temperature input, #run-temperature textarea")).to_have_value("")
    ask(page, "only looked at")
    ended(page, "accepted")
    with sqlite3.connect(home / "trinity.db") as db:
        (params,) = db.execute("SELECT params FROM runs WHERE question LIKE '%only looked at%'").fetchone()
    assert json.loads(params)["sampling"]["temperature"] is None


@pytest.mark.parametrize(
    ("saved", "kept"),
    [
        (["random", 3, "sample", None, 64, 7, False, True], 8),
        (["random", 3, "sample", None, 64, 7, False], 7),  # from a page that had no eighth setting
        (["single:gone", 3, "sample", None, 64, 7, False, True], 0),
        ([], 0),
        (None, 0),
        ("random", 0),
        (["random"] * 9, 0),
    ],
)
def test_what_a_browser_remembers_is_used_as_far_as_it_goes(saved: object, kept: int) -> None:
    got = remembered(saved, ("coordinator", "random"))
    assert isinstance(saved, list) or not kept
    assert got == [*(saved[:kept] if isinstance(saved, list) else ()), *[gr.skip()] * (8 - kept)]


def test_the_keyboard_does_everything(visit: Visit) -> None:
    page = visit()
    ask(page, "keyboard")
    ended(page, "accepted")
    page.locator("body").click(position={"x": 5, "y": 5})
    for key, turn in (("j", "1"), ("j", "2"), ("k", "1")):
        page.keyboard.press(key)
        expect(page.locator('#run-lane [aria-current="true"]')).to_have_attribute("data-turn", turn)
    page.keyboard.press("?")
    expect(page.locator("#tr-help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#tr-help")).to_be_hidden()
    page.keyboard.press("/")
    expect(page.locator("#traces-search textarea, #traces-search input")).to_be_focused()
    page.keyboard.type("j?/")
    expect(page.locator("#traces-search textarea, #traces-search input")).to_have_value("j?/")
    expect(page.locator("#tr-help")).to_be_hidden()
    page.locator("#tab-traces-button").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#run-query")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_scrolls_sideways_on_a_phone(visit: Visit, theme: str) -> None:
    page = visit(width=390, height=844, theme=theme)
    assert page.evaluate("document.body.classList.contains('dark')") is (theme == "dark")
    no_sideways_scroll(page)
    ask(page, "hostile " + "unbreakable" * 60)
    ended(page, "accepted")
    no_sideways_scroll(page)
    expect(page.locator("#run-agent-logits .ytick")).to_have_count(3)
    page.click("#tab-traces-button")
    page.locator("#traces-table tr[data-id]").first.click()
    expect(page.locator('[data-testid="trace"]')).to_be_visible()
    no_sideways_scroll(page)
    heads = page.locator("#traces-table th")
    assert [heads.nth(i).is_visible() for i in range(heads.count())].count(True) == 3


def test_text_can_be_read_in_the_dark(visit: Visit) -> None:
    page = visit(theme="dark")
    ask(page, "contrast")
    ended(page, "accepted")
    luminance = """selector => {
        const node = document.querySelector(selector);
        const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
        const light = (colour) => parts(colour).slice(0, 3).reduce((a, b) => a + b) / 765;
        let back = node;
        while (parts(getComputedStyle(back).backgroundColor)[3] === 0) back = back.parentElement;
        return [light(getComputedStyle(node).color), light(getComputedStyle(back).backgroundColor)];
    }"""
    for selector in (
        "#run-lane .prose",
        "#run-answer .tr-user .prose",
        "#run-answer .tr-assistant .prose",
        ".tr-head h1",
    ):
        text, back = page.evaluate(luminance, selector)
        assert text - back > 0.4, selector


def test_no_secret_reaches_the_page(visit: Visit, url: str, home: Path) -> None:
    page = visit()
    ask(page, "secrets")
    ended(page, "accepted")
    config = urllib.request.urlopen(f"{url}/config").read().decode()
    stored = page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
    cookies = {cookie["name"]: cookie["value"] for cookie in page.context.cookies()}
    for secret in (KEY, *(value for name, value in cookies.items() if name.startswith("trinity_"))):
        assert secret not in config
        assert secret not in stored
        assert secret not in page.content()
    assert str(home) not in config
    assert json.loads(config)["analytics_enabled"] is False


def _status(url: str, path: str, data: bytes | None = None, **headers: str) -> int:
    request = urllib.request.Request(f"{url}{path}", data, {name.title(): value for name, value in headers.items()})
    try:
        return int(urllib.request.urlopen(request, timeout=10).status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(
    "path",
    ["/gradio_api/queue/join", "/gradio_api/run/predict", "/gradio_api/upload", "/gradio_api/call/ask", "/login"],
)
def test_no_event_can_be_called_from_outside_the_page(url: str, path: str) -> None:
    body = json.dumps({"data": [], "fn_index": 0, "session_hash": "x"}).encode()
    assert _status(url, path, body, content_type="application/json") == 403
    assert _status(url, path, body, content_type="application/json", origin="https://other.example") == 403


def test_files_of_the_home_folder_and_foreign_hosts_are_refused(url: str, home: Path) -> None:
    assert _status(url, f"/gradio_api/file={home}/trinity.db") == 403
    assert _status(url, "/gradio_api/file=/etc/passwd") == 403
    assert _status(url, "/", host="evil.example") == 400
    assert _status(url, "/gradio_api/runs") in (403, 404)
