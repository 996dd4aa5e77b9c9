"""The Train tab in a real browser over a scripted trainer: refresh, pause, a second browser, zoom, deploying."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect

from tests.browser.conftest import no_sideways_scroll, served

Visit = Callable[..., Page]
_ALLOWED = re.compile(r"AbortError|Connection errored out|net::ERR_ABORTED")


@pytest.fixture(scope="module")
def train_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("train-home")


@pytest.fixture(scope="module")
def url(train_home: Path) -> Iterator[str]:
    """A page with two finished trainings and a generation every 0.4 s."""
    command = ["-m", "tests.browser.train_server", "--stored", "2", "--step", "0.4"]
    with served(command, train_home, train_home.parent / "train.log") as address:
        yield address


@pytest.fixture
def visit(browser: Browser, url: str) -> Iterator[Visit]:
    """Opens the Train tab: `visit(width=, theme=, context=)`; nothing may leave the machine or break."""
    contexts: list[BrowserContext] = []
    trouble: list[str] = []

    def said(message: ConsoleMessage) -> None:
        if message.type == "error" and not _ALLOWED.search(message.text):
            trouble.append(message.text)

    def asked(request: Request) -> None:
        if request.url.startswith(("http:", "https:")) and "//127.0.0.1:" not in request.url:
            trouble.append(request.url)

    def opened(width: int = 1400, theme: str = "light", context: BrowserContext | None = None) -> Page:
        if context is None:
            context = browser.new_context()
            contexts.append(context)
            context.on("console", said)
            context.on("request", asked)
            context.on("weberror", lambda error: trouble.append(str(error.error)))
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{url}/?__theme={theme}")
        page.click("#tab-train-button")
        expect(page.locator("#train-status [data-state]")).to_be_visible()
        expect(page.locator("#train-preflight [data-ready]")).to_be_visible()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert trouble == []


def state(page: Page) -> str:
    return page.locator("#train-status [data-state]").get_attribute("data-state") or ""


def showing(page: Page, wanted: str) -> None:
    expect(page.locator("#train-status [data-state]")).to_have_attribute("data-state", wanted)


def set_budget(page: Page, evaluations: int) -> None:
    page.fill("#train-evaluations :is(input, textarea)", str(evaluations))
    page.keyboard.press("Tab")


def start(page: Page, evaluations: int = 64_000) -> None:
    set_budget(page, evaluations)
    expect(page.locator("#train-preflight")).to_contain_text(f"{evaluations:,}")
    page.click("#train-start")
    showing(page, "running")


def stop(page: Page) -> None:
    page.click("#train-stop")
    showing(page, "cancelled")


def generation(page: Page) -> int:
    found = re.search(r"generation (\d+)", page.locator("#train-status").inner_text())
    return int(found.group(1)) if found else 0


def goes_on(page: Page, after: int) -> None:
    """Wait until more than `after` generations are told."""
    page.wait_for_function(
        "(n) => Number(/generation (\\d+)/.exec(document.querySelector('#train-status').innerText)?.[1]) > n",
        arg=after,
    )


def test_problems_refuse_start_and_say_why(visit: Visit) -> None:
    page = visit()
    set_budget(page, 10)
    expect(page.locator("#train-preflight [role=alert]")).to_contain_text("below one generation")
    expect(page.locator("#train-start")).to_be_disabled()
    page.fill("#train-evaluations :is(input, textarea)", "plenty")
    page.keyboard.press("Tab")
    expect(page.locator("#train-preflight [role=alert]")).to_contain_text("Budget")
    set_budget(page, 6400)
    expect(page.locator("#train-preflight [data-ready='1']")).to_be_visible()
    expect(page.locator("#train-start")).to_be_enabled()


def test_start_refresh_pause_resume_and_stop(visit: Visit) -> None:
    page = visit()
    start(page)
    goes_on(page, 1)
    expect(page.locator("#train-status")).to_contain_text(" of 1,000 ")
    page.reload()
    page.click("#tab-train-button")
    showing(page, "running")
    goes_on(page, max(generation(page), 2))
    expect(page.locator("#train-evaluations :is(input, textarea)")).to_have_value("64000")
    expect(page.locator("#train-pause")).to_be_enabled()
    page.click("#train-pause")
    showing(page, "paused")
    at = generation(page)
    expect(page.locator("#train-pause")).to_be_disabled()
    page.click("#train-resume")
    showing(page, "running")
    goes_on(page, at)
    stop(page)
    expect(page.locator("#train-runs tr[data-state=cancelled]").first).to_be_visible()


def test_another_browser_watches_and_cannot_steer(visit: Visit) -> None:
    page = visit()
    start(page)
    other = visit()
    showing(other, "running")
    expect(other.locator("#train-status")).to_contain_text("watch but not steer")
    for name in ("pause", "resume", "stop"):
        expect(other.locator(f"#train-{name}")).to_be_disabled()
    goes_on(other, generation(other))
    other.click("#train-start")
    expect(other.locator("#train-note [role=alert]")).to_contain_text("A training runs already")
    expect(other.locator("#train-runs tr[data-state=running] [data-act=ask-delete]")).to_have_count(0)
    stop(page)
    showing(other, "cancelled")


def test_a_plot_keeps_its_zoom_and_its_node_while_it_grows(visit: Visit) -> None:
    page = visit()
    start(page)
    plot = page.locator("#train-fitness .js-plotly-plot")
    expect(plot).to_be_visible()
    plot.evaluate("""async (node) => {
        node.mark = 1;
        const Plotly = await window.trinity.plotly();
        await Plotly.relayout(node, {"xaxis.range": [0, 1], "yaxis.range": [0.2, 0.5]});
    }""")
    drawn = int(plot.get_attribute("data-drawn") or 0)
    page.wait_for_function(
        "(n) => Number(document.querySelector('#train-fitness .js-plotly-plot').dataset.drawn) >= n + 3", arg=drawn
    )
    assert plot.evaluate("(node) => [node.mark, node.layout.xaxis.range, node.layout.yaxis.range]") == [
        1,
        [0, 1],
        [0.2, 0.5],
    ]
    names = plot.evaluate("(node) => node.data.map((trace) => trace.name)")
    assert {"best so far", "mean", "random policy", "best agent per question"} <= set(names)
    stop(page)


def test_an_idle_page_is_sent_nothing(visit: Visit) -> None:
    page = visit()
    expect(page.locator("#tab-train .js-plotly-plot")).to_have_count(5)
    page.wait_for_timeout(1500)  # until the first drawing is over
    page.evaluate("""() => {
        window.changes = 0;
        new MutationObserver((all) => all.forEach(({ target }) => {
            // Gradio's own progress markers, which are hidden, come and go with every tick.
            const node = target.nodeType === Node.ELEMENT_NODE ? target : target.parentElement;
            if (node?.closest(".tr-hold")) window.changes += 1;
        }))
            .observe(document.getElementById("train-right"), { subtree: true, childList: true, characterData: true });
    }""")
    page.wait_for_timeout(3500)
    assert page.evaluate("window.changes") == 0


def test_choose_overlay_delete(visit: Visit) -> None:
    page = visit()
    rows = page.locator("#train-runs tr[data-state=done]")
    wanted = rows.last.get_attribute("data-job") or ""
    page.click(f'#train-runs tr[data-job="{wanted}"] [data-act=view]')
    chosen = page.locator(f'#train-runs tr[data-job="{wanted}"]')
    expect(chosen.locator("[data-act=view]")).to_have_text("Shown")
    laid = page.locator("#train-runs [data-act=overlay]").first
    laid.click()
    expect(laid).to_have_attribute("aria-pressed", "true")
    page.wait_for_function(
        "document.querySelector('#train-fitness .js-plotly-plot')?.data.some((t) => t.name.endsWith(': best'))"
    )
    start(page, 128)  # a short one, to be deleted
    showing(page, "done")
    fresh = page.locator("#train-runs tr.tr-chosen-run")
    gone = fresh.get_attribute("data-job") or ""
    fresh.locator("[data-act=ask-delete]").click()
    expect(page.locator("#train-note")).to_contain_text("cannot be undone")
    page.click("#train-note [data-act=delete]")
    expect(page.locator(f'#train-runs tr[data-job="{gone}"]')).to_have_count(0)
    expect(page.locator("#train-note")).to_contain_text("deleted")


def test_deploy_compare_and_revert(visit: Visit, train_home: Path) -> None:
    page = visit()
    done = page.locator("#train-runs tr[data-state=done]")
    first, second = (done.nth(n).get_attribute("data-job") for n in (0, 1))
    page.click(f'#train-runs tr[data-job="{first}"] [data-act=view]')
    expect(page.locator("#train-comparison")).to_contain_text("Deploying replaces the head that came with Trinity")
    page.click("#train-deploy")
    expect(page.locator("#train-note")).to_contain_text("it replaced the head that came with Trinity")
    expect(page.locator("#train-comparison [data-verdict=deployed]")).to_be_visible()
    expect(page.locator("#train-deploy")).to_be_disabled()
    assert (train_home / "deployed.txt").read_text().startswith("ck")
    page.click(f'#train-runs tr[data-job="{second}"] [data-act=view]')
    expect(page.locator("#train-comparison [data-verdict=inconclusive]")).to_contain_text("may be chance")
    page.click("#train-revert")
    expect(page.locator("#train-note")).to_contain_text("In use again: the head that came with Trinity")
    assert (train_home / "deployed.txt").read_text().startswith("shipped")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_phone_shows_everything_without_scrolling_sideways(visit: Visit, theme: str) -> None:
    page = visit(width=390, theme=theme)
    expect(page.locator("#train-fitness .js-plotly-plot")).to_be_visible()
    page.click("#train-advanced button")
    expect(page.locator("#train-population")).to_be_visible()
    no_sideways_scroll(page)


def test_names_and_notes_stay_text(visit: Visit) -> None:
    page = visit()
    page.click("#train-runs tr[data-state=done] >> nth=0 >> [data-act=view]")
    expect(page.locator("#train-comparison table")).to_be_visible()
    start(page)
    page.click("#train-status summary")
    expect(page.locator("#train-status li").first).to_have_text("<b>Two</b> tasks were left out.")
    stop(page)


def test_the_empty_state_says_what_to_do_and_starts(browser: Browser, tmp_path: Path) -> None:
    with served(["-m", "tests.browser.train_server", "--step", "0.1"], tmp_path / "empty", tmp_path / "log") as url:
        page = browser.new_context().new_page()
        page.goto(f"{url}/?tab=train")
        expect(page.locator("#train-status")).to_contain_text("Nothing has been trained here yet.")
        expect(page.locator("#train-runs")).to_be_hidden()
        page.click("#train-status [data-act=begin]")
        showing(page, "running")
        page.context.close()
