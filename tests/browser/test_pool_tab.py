"""The Pool tab in a real browser, over scripted model servers: adding, testing, saving, and a planted key."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import KEY, Visit, ask, ended, no_sideways_scroll, served
from tests.modelserver import Script, serving

PLANTED = "planted-3Zc8Vn5Mq1Ty7"


@pytest.fixture(scope="module")
def pool_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pool-home")


@pytest.fixture(scope="module")
def url(pool_home: Path) -> Iterator[str]:
    """In place of the page over scripted members."""
    log = pool_home.parent / "pool.log"
    with served(["-m", "tests.browser.pool_server"], pool_home, log) as address:
        yield address
    assert PLANTED not in log.read_text("utf-8", "replace")


@pytest.fixture(scope="module")
def model_server() -> Iterator[Script]:
    with serving(Script(key=PLANTED)) as script:
        yield script


@pytest.fixture
def pool(visit: Visit) -> Page:
    return opened(visit)


def opened(visit: Visit, width: int = 1400, theme: str = "light") -> Page:
    page = visit(width=width, theme=theme)
    page.click("#tab-pool-button")
    expect(page.locator("#pool-table [data-member]").first).to_be_visible()
    return page


def fill(page: Page, **values: str) -> None:
    for name, value in values.items():
        page.fill(f"#pool-{name.replace('_', '-')} :is(input, textarea)", value)


def row(page: Page, name: str) -> Locator:
    return page.locator(f'#pool-table [data-member="{name}"]')


def status(page: Page, kind: str) -> Locator:
    """The newest message of the form, once it is of this kind."""
    found = page.locator("#pool-status .tr-notice")
    expect(found).to_have_attribute("data-kind", kind)
    return found


def remove(page: Page, name: str) -> None:
    page.click(f'#pool-table [data-member="{name}"] [data-act="remove"]')
    expect(row(page, name)).to_have_count(0)


def test_add_test_save_reload_and_run(visit: Visit, url: str, model_server: Script, pool_home: Path) -> None:
    page = opened(visit)
    page.click("#pool-add")
    fill(page, name="gpt", base_url=model_server.url, model="model-a", key=PLANTED)
    page.click("#pool-test")
    expect(status(page, "done")).to_contain_text("gpt answered in")
    expect(status(page, "done")).to_contain_text("Answer: 42")
    expect(page.locator("#pool-table [data-member]")).to_have_count(2)
    page.click("#pool-save")
    expect(status(page, "done")).to_contain_text("Saved gpt")
    expect(row(page, "gpt")).to_contain_text("set · …1Ty7 (memory)")
    expect(row(page, "gpt")).to_contain_text("none")
    expect(page.locator("#pool-key input")).to_have_value("")
    expect(page.locator("#pool-rows")).to_contain_text("No trained row for gpt")
    page.reload()
    page.click("#tab-pool-button")
    expect(row(page, "gpt")).to_contain_text("set · …1Ty7")
    for name in ("symbolic", "lexical"):
        page.click(f'#pool-table [data-member="{name}"] [role="switch"]')
        expect(row(page, name).locator("[role=switch]")).to_have_attribute("aria-checked", "false")
    page.click("#tab-run-button")
    ask(page, "What is 6 times 7?")
    ended(page, "turns_exhausted")
    expect(page.locator("#run-lane .tr-card").first).to_have_attribute("data-agent", "gpt")
    expect(page.locator('[data-testid="answer-final"]')).to_contain_text("Answer: 42")
    page.click("#tab-traces-button")
    page.locator("#traces-table tr[data-id]").first.click()
    expect(page.locator('[data-testid="trace"]')).to_contain_text("gpt")
    no_key_anywhere(page, url, pool_home)
    page.click("#tab-pool-button")
    for name in ("symbolic", "lexical"):
        page.click(f'#pool-table [data-member="{name}"] [role="switch"]')
        expect(row(page, name).locator("[role=switch]")).to_have_attribute("aria-checked", "true")
    remove(page, "gpt")
    page.click('#pool-note [data-act="undo"]')
    expect(row(page, "gpt")).to_contain_text("set ·")
    remove(page, "gpt")
    page.click('#pool-note [data-act="forget"]')
    expect(page.locator("#pool-note")).to_contain_text("is forgotten")


def no_key_anywhere(page: Page, url: str, home: Path) -> None:
    config = urllib.request.urlopen(f"{url}/config").read().decode()
    stored = page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
    fields = page.evaluate("[...document.querySelectorAll('input, textarea')].map(box => box.value).join(' ')")
    for key in (PLANTED, KEY):
        assert key not in config
        assert key not in stored
        assert key not in page.content()
        assert key not in fields
        for path in home.rglob("*"):
            assert not path.is_file() or key.encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"key": "planted-wrong-key-0000"}, "Check the member's key"),
        ({"base_url": "http://127.0.0.1:9/v1"}, "gpt"),
        ({"model": "no-such-model"}, "does not exist"),
        ({"base_url": "http://169.254.169.254/v1"}, "refused"),
        ({"name": ""}, "Name: give the member a name"),
    ],
)
def test_a_test_says_what_is_wrong_and_keeps_what_was_typed(
    pool: Page, model_server: Script, values: dict[str, str], words: str
) -> None:
    typed = {"name": "gpt", "base_url": model_server.url, "model": "model-a", "key": PLANTED} | values
    fill(pool, **typed)
    pool.click("#pool-test")
    expect(status(pool, "problem")).to_contain_text(words)
    expect(status(pool, "problem")).not_to_contain_text("planted")
    for name, value in typed.items():
        expect(pool.locator(f"#pool-{name.replace('_', '-')} :is(input, textarea)")).to_have_value(value)
    expect(pool.locator("#pool-test")).to_be_enabled()
    expect(pool.locator("#pool-test-stop")).to_be_disabled()


def test_a_web_page_is_no_model_server(pool: Page) -> None:
    with serving(Script(raw=(200, "text/html", b"<!doctype html><title>My shop</title>"))) as shop:
        fill(pool, name="gpt", base_url=shop.url, model="m")
        pool.click("#pool-test")
        expect(status(pool, "problem")).to_contain_text("a web page")
        pool.click("#pool-models")
        expect(status(pool, "problem")).to_contain_text("a web page")


def test_saving_refuses_a_name_that_is_taken_and_an_option_with_a_typo(pool: Page, model_server: Script) -> None:
    fill(pool, name="Symbolic", base_url=model_server.url, model="model-a", key=PLANTED)
    pool.click("#pool-save")
    expect(status(pool, "problem")).to_contain_text("already a member called symbolic")
    fill(pool, name="gpt")
    pool.click("#pool-advanced > button")
    fill(pool, extra='{"temprature": 0.5}')
    pool.click("#pool-save")
    expect(status(pool, "problem")).to_contain_text("temprature")
    expect(status(pool, "problem")).to_contain_text("temperature")
    expect(pool.locator("#pool-key input")).to_have_value(PLANTED)
    expect(pool.locator("#pool-extra textarea")).to_have_value('{"temprature": 0.5}')
    expect(pool.locator("#pool-table [data-member]")).to_have_count(2)


@pytest.mark.parametrize("how", ["click", "Escape"])
def test_a_test_can_be_stopped_and_closes_its_call(pool: Page, how: str) -> None:
    with serving(Script(models=("stall",))) as server:
        fill(pool, name="gpt", base_url=server.url, model="stall")
        pool.click("#pool-test")
        expect(status(pool, "testing")).to_contain_text("Waiting for the first token")
        if how == "click":
            pool.click("#pool-test-stop")
        else:
            pool.keyboard.press("Escape")
        expect(status(pool, "info")).to_contain_text("Test stopped")
        expect(pool.locator("#pool-test")).to_be_enabled()
        assert server.dropped.wait(3)


def test_models_are_listed_and_one_click_takes_one(pool: Page, model_server: Script) -> None:
    fill(pool, name="gpt", base_url=model_server.url, key=PLANTED)
    pool.click("#pool-models")
    expect(status(pool, "info")).to_contain_text("7 models")
    pool.select_option("#pool-model-list select", "model-b")
    expect(pool.locator("#pool-model :is(input, textarea)")).to_have_value("model-b")


def test_a_key_in_the_environment_is_offered_with_one_click(pool: Page) -> None:
    offer = pool.locator("#pool-offers button", has_text="OPENAI_API_KEY is set")
    expect(offer).to_be_visible()
    pool.click("#tab-run-button")
    pool.fill("#run-query textarea", "a question that is not finished")
    pool.click("#tab-pool-button")
    offer.click()
    expect(pool.locator("#pool-name :is(input, textarea)")).to_have_value("gpt")
    expect(pool.locator("#pool-key-env :is(input, textarea)")).to_have_value("OPENAI_API_KEY")
    expect(pool.locator("#pool-key-state")).to_contain_text("(environment)")
    expect(pool.locator("#pool-key input")).to_have_value("")
    assert pool.input_value("#run-query textarea") == "a question that is not finished"


def test_what_a_model_says_is_shown_as_text(pool: Page) -> None:
    with serving(Script()) as server:
        fill(pool, name="gpt", base_url=server.url, model="hostile")
        pool.click("#pool-test")
        expect(status(pool, "done")).to_contain_text('<img src=x onerror="alert(1)">')
        assert pool.locator("#pool-status :is(img, script)").count() == 0


def test_a_kind_shows_only_its_own_fields(pool: Page) -> None:
    for kind, there, gone in (
        ("Mathematics (embedded)", (), ("base-url", "model", "key-env", "key")),
        ("GGUF file", ("model",), ("base-url", "key-env", "key")),
        ("OpenAI-compatible", ("base-url", "model", "key-env", "key"), ()),
    ):
        pool.get_by_label(kind, exact=True).check()
        for name in there:
            expect(pool.locator(f"#pool-{name}")).to_be_visible()
        for name in gone:
            expect(pool.locator(f"#pool-{name}")).to_be_hidden()


def test_editing_another_member_empties_the_key_field(pool: Page) -> None:
    fill(pool, key=PLANTED)
    pool.click('#pool-table [data-member="lexical"] [data-act="edit"]')
    expect(pool.locator("#pool-form-title")).to_have_text("Edit lexical")
    expect(pool.locator("#pool-name :is(input, textarea)")).to_have_value("lexical")
    pool.click("#pool-add")
    expect(pool.locator("#pool-form-title")).to_have_text("New member")
    expect(pool.locator("#pool-key input")).to_have_value("")


def test_what_was_typed_survives_a_reload_but_the_key(pool: Page) -> None:
    fill(pool, name="half", model="some-model", key=PLANTED, key_env="sk-abcdefgh12345678")
    pool.locator("#pool-description :is(input, textarea)").focus()
    pool.wait_for_function("localStorage.getItem('trinity-pool')?.length > 120")
    pool.wait_for_timeout(300)
    pool.reload()
    pool.click("#tab-pool-button")
    expect(pool.locator("#pool-name :is(input, textarea)")).to_have_value("half")
    expect(pool.locator("#pool-model :is(input, textarea)")).to_have_value("some-model")
    expect(pool.locator("#pool-key-env :is(input, textarea)")).to_have_value("")
    expect(pool.locator("#pool-key input")).to_have_value("")
    pool.click("#pool-add")
    expect(pool.locator("#pool-name :is(input, textarea)")).to_have_value("")
    expect(pool.locator("#pool-name :is(input, textarea)")).to_be_focused()


def test_the_keyboard_stays_with_a_member_and_a_double_click_removes_one(pool: Page) -> None:
    order = pool.locator("#pool-table [data-member]")
    row(pool, "symbolic").locator('[data-act="down"]').focus()
    pool.keyboard.press("Enter")
    expect(order.last).to_have_attribute("data-member", "symbolic")
    expect(row(pool, "symbolic").locator('[data-act="edit"]')).to_be_focused()  # it cannot move further
    row(pool, "lexical").locator('[data-act="remove"]').dblclick()
    expect(pool.locator('[data-testid="pool-undo"]')).to_be_focused()
    expect(order).to_have_count(1)
    pool.keyboard.press("Enter")
    expect(order).to_have_count(2)
    row(pool, "symbolic").locator('[data-act="up"]').click()
    expect(order.first).to_have_attribute("data-member", "symbolic")


def test_budgets_are_kept(pool: Page, pool_home: Path) -> None:
    pool.click("#pool-budgets > button")
    expect(pool.locator("#pool-today")).to_contain_text("Spent today")
    pool.fill("#pool-day-cost input", "2.5")
    pool.click("#pool-budget-save")
    expect(pool.locator("#pool-note")).to_contain_text("Budgets saved")
    assert re.search(r"\[budget\.day\]\ncost = 2\.5", (pool_home / "pool.toml").read_text("utf-8"))
    pool.reload()
    pool.click("#tab-pool-button")
    pool.click("#pool-budgets > button")
    expect(pool.locator("#pool-day-cost input")).to_have_value("2.5")
    pool.fill("#pool-day-cost input", "")
    pool.click("#pool-budget-save")
    expect(pool.locator("#pool-note")).to_contain_text("Budgets saved")


def test_a_link_opens_the_tab(visit: Visit) -> None:
    page = visit("&tab=pool")
    expect(page.locator("#pool-table [data-member]")).to_have_count(2)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_on_a_phone_nothing_is_cut_and_dark_is_dark(visit: Visit, theme: str) -> None:
    page = opened(visit, 390, theme)
    no_sideways_scroll(page)
    card = row(page, "symbolic")
    expect(card.locator("[role=switch]")).to_be_in_viewport()
    expect(card.locator('[data-act="edit"]')).to_be_visible()
    card.locator('[data-act="edit"]').click()
    expect(page.locator("#pool-form-title")).to_be_in_viewport()
    no_sideways_scroll(page)
    light = page.evaluate("getComputedStyle(document.querySelector('#pool-table .tr-table-box')).backgroundColor")
    level = sum(int(part) for part in re.findall(r"\d+", light)[:3])
    assert (level < 200) if theme == "dark" else (level > 600)


def test_the_page_tells_nobody_what_this_machine_has(url: str) -> None:
    config = json.loads(urllib.request.urlopen(f"{url}/config").read())
    pool = json.dumps([c for c in config["components"] if str(c["props"].get("elem_id", "")).startswith("pool-")])
    assert "pool-name" in pool
    assert "is set" not in pool, "offers are no part of what everybody gets"
    assert str(Path.home()) not in pool
