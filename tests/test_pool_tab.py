"""The Pool tab's handlers as plain functions: saving, testing, undoing, the head's rows, keys that stay here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gradio as gr
import numpy as np
import pytest

from tests.modelserver import HOSTILE, Script, serving
from trinity_core.agents.base import Wiring
from trinity_core.agents.discovery import Offer
from trinity_core.agents.keys import Keys
from trinity_core.agents.meter import Meter, Spent
from trinity_core.agents.pool import KINDS, PoolFile, Roster, embedded_specs, read_pool_file
from trinity_core.config import Settings
from trinity_core.coordinator.checkpoint import Checkpoint, Meta
from trinity_core.errors import PoolError
from trinity_core.session.loading import CoordinatorStatus, deploy, deployed_path
from trinity_core.types import AgentSpec, Brief, Finish, Limits, Message, Reply, Request, Role
from ui import memberform, members
from ui.members import Member
from ui.rows import Rows
from ui.tabs.pool import Handlers

PLANTED = "planted-5Wd8Jt3Gh6Lp9"
LEXICAL, SYMBOLIC = AgentSpec("lexical", "lexical"), AgentSpec("symbolic", "symbolic")
ASKED = cast(gr.Request, SimpleNamespace(query_params={}, username=None, headers={}))


@dataclass
class Services:
    """What the tab is given by the page."""

    roster: Roster
    settings: Settings
    refitted: int = 0
    backbone: str | None = None
    coordinator_status: Any = field(init=False)

    def __post_init__(self) -> None:
        self.coordinator_status = lambda: CoordinatorStatus("ready", "", 1.0, self.backbone)

    def refit(self) -> None:
        self.refitted += 1


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POOL_TEST_KEY", raising=False)


@pytest.fixture
def services(tmp_path: Path) -> Services:
    file = PoolFile((LEXICAL, SYMBOLIC), Limits(calls=9), Limits(calls=1000))
    return Services(
        Roster(file, Wiring(Keys(use_keyring=False), Meter())), Settings(home=tmp_path, db_url="sqlite://")
    )


@pytest.fixture
def tab(services: Services) -> Handlers:
    return Handlers(services)


@pytest.fixture
def server() -> Iterator[Script]:
    with serving() as script:
        yield script


def filled(**values: Any) -> list[Any]:
    """The form with `values`, the rest as in an empty form."""
    form = dict(zip(memberform.NAMES, memberform.blank(), strict=True))
    assert values.keys() <= form.keys()
    return list((form | values).values())


def pressed(act: str, target: str = "") -> gr.EventData:
    return cast(gr.EventData, SimpleNamespace(_data={"act": act, "id": target}))


async def saved(tab: Handlers, editing: str | None = None, key: str = "", keep: bool = False, **values: Any) -> Any:
    """Save the form; table, rows, note, then the form's outputs, then the status."""
    return await tab.save(editing, key, keep, *filled(**values))


async def trial(tab: Handlers, key: str = "", editing: str | None = None, **values: Any) -> list[str]:
    """What a test shows, update by update."""
    updates = [update async for update in tab.test(editing, key, *filled(**values))]
    return [update[0] for update in updates if isinstance(update[0], str)]


def remote(server: Script, **values: Any) -> dict[str, Any]:
    return {"name": "gpt", "base_url": server.url, "model": "model-a", **values}


def names(tab: Handlers) -> list[str]:
    return [spec.name for spec in tab.roster.file.specs]


def skipped(value: Any) -> bool:
    return isinstance(value, dict) and value.get("__type__") == "update" and len(value) == 1


# --- Saving -------------------------------------------------------------------------------------------------


async def test_a_new_member_is_written_and_used_at_once(services: Services, tab: Handlers, server: Script) -> None:
    out = await saved(
        tab, **remote(server, max_tokens="64", concurrency="2", input="0.5", output="1", extra='{"seed": 3}')
    )
    expected = AgentSpec(
        "gpt", "openai", "model-a", base_url=server.url,
        options={"max_tokens": 64, "seed": 3}, service={"concurrency": 2, "price": {"input": 0.5, "output": 1}},
    )  # fmt: skip
    assert services.roster.specs == (LEXICAL, SYMBOLIC, expected)
    assert services.refitted == 1
    file = read_pool_file(services.settings.home / "pool.toml")
    assert file == services.roster.file
    assert (file.run, file.day) == (Limits(calls=9), Limits(calls=1000)), "the budgets stay"
    assert 'data-member="gpt"' in out[0]
    assert 'data-kind="done"' in out[-1]
    assert out[4] == "gpt", "the form now edits it"
    assert all(skipped(value) for value in out[10:-2]), "and shows what was typed"
    assert out[-2] == {}, "which the browser need not remember any more"


async def test_what_the_form_shows_makes_the_same_member_again(tab: Handlers, server: Script) -> None:
    spec = AgentSpec(
        "a", "openai", "m", "what it is good at", False, {"effort": "low", "max_tokens": 5, "temperature": 0.5},
        server.url, "POOL_TEST_KEY", {"retries": 0, "total_s": 1.5, "price": {"input": 1, "output": 2}},
    )  # fmt: skip
    assert memberform.spec_from(memberform.values_of(spec)) == spec
    for other in (*embedded_specs(), AgentSpec("b", "gemini", "g")):
        assert memberform.spec_from(memberform.values_of(other)) == other


async def test_editing_changes_one_member_in_its_place(tab: Handlers, server: Script) -> None:
    await saved(tab, **remote(server))
    await tab.act(pressed("up", "gpt"), None)
    assert names(tab) == ["lexical", "gpt", "symbolic"]
    out = await tab.act(pressed("edit", "gpt"), None)
    assert out[4] == "gpt"
    assert list(out[10:-1]) == filled(**remote(server))
    await saved(tab, "gpt", **remote(server, name="gpt-new", model="model-b"))
    assert names(tab) == ["lexical", "gpt-new", "symbolic"]
    assert tab.roster.file.specs[1].model == "model-b"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": ""}, "Name: give the member a name"),
        ({"name": "LEXICAL"}, "already a member called lexical"),
        ({"name": "trinity"}, "reserved"),
        ({"name": "two words"}, "does not fit"),
        ({"name": "<b>x</b>"}, "&lt;b&gt;"),
        ({"model": " "}, "Model is empty"),
        ({"base_url": "localhost:11434"}, "http"),
        ({"base_url": "http://169.254.169.254/v1"}, "refused"),
        ({"base_url": "http://user:secret-word@host/v1"}, "login"),
        ({"key_env": "sk-abcdefgh123456789"}, "key"),
        ({"key_env": "NOT A NAME"}, "environment variable"),
        ({"extra": '{"temprature": 1}'}, "temperature"),
        ({"extra": "{nope"}, "no JSON at line 1, column 2"),
        ({"extra": "[1]"}, "JSON object"),
        ({"extra": '{"api_key": "x"}'}, "key or password"),
        ({"extra": '{"max_tokens": 3}', "max_tokens": "4"}, "twice"),
        ({"extra": '{"extra_body": {"x": null}}'}, "null"),
        ({"model": "", "kind": "gguf"}, "Agent gpt: Model is empty. Type the path"),
        ({"concurrency": "0"}, "Agent gpt: Calls at once must be"),
        ({"concurrency": "many"}, "Calls at once: a number"),
        ({"total_s": "inf"}, "Whole reply (s): a number"),
        ({"concurrency": "1.5"}, "whole number"),
        ({"first_token_s": "-1"}, "First token (s) must be"),
        ({"max_tokens": "-5"}, "Most tokens a reply must be"),
        ({"effort": "hihg"}, "Effort must be one of"),
        ({"input": "1"}, "both input and output"),
        ({"input": "-1", "output": "1"}, "Price, input must be"),
    ],
)
async def test_an_error_names_the_cause_and_changes_nothing(
    services: Services, tab: Handlers, server: Script, values: dict[str, Any], words: str
) -> None:
    out = await saved(tab, key=PLANTED, **remote(server, **values))
    assert 'data-kind="problem"' in out[-1]
    assert words in out[-1]
    assert "<b>x" not in out[-1]
    assert "secret-word" not in out[-1]
    assert PLANTED not in json.dumps(out, default=str)
    assert all(skipped(value) for value in out[:-1]), "nothing typed is lost, the key neither"
    assert services.roster.specs == (LEXICAL, SYMBOLIC)
    assert not (services.settings.home / "pool.toml").exists()
    assert services.refitted == 0
    assert services.roster.wiring.keys.of(AgentSpec("gpt", "openai", base_url=server.url)) is None


async def test_fields_that_a_kind_does_not_have_are_hidden_and_ignored(tab: Handlers, server: Script) -> None:
    await saved(tab, **remote(server, name="maths", kind="symbolic", effort="low", extra="{nope", concurrency="3"))
    assert tab.roster.file.specs[-1] == AgentSpec("maths", "symbolic")
    shown = await tab.fit_kind("symbolic")
    visible = {n for n, update in zip(memberform.NAMES, shown, strict=False) if update["visible"]}
    assert visible == {"name", "kind", "description", "enabled"}
    assert not shown[-1]["visible"]
    for kind in KINDS:
        assert memberform.shown(kind) >= visible


async def test_a_disk_that_is_full_loses_nothing(
    services: Services, tab: Handlers, server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise PoolError("pool.toml cannot be written (No space left on device).")

    keys = services.roster.wiring.keys
    old = AgentSpec("gpt", "openai", "model-a", base_url=server.url)
    await saved(tab, key=PLANTED, **remote(server))
    monkeypatch.setattr("ui.pooledit.write_pool", full)
    out = await saved(tab, "gpt", **remote(server, name="renamed"))
    assert "No space left" in out[-1]
    assert names(tab)[-1] == "gpt"
    assert keys.of(old) == PLANTED, "the key is still its key"


async def test_the_file_of_somebody_else_is_put_aside(services: Services, tab: Handlers) -> None:
    path = services.settings.home / "pool.toml"
    path.write_text('[[agents]]\nname = "mine"\nkind = "calendar"\n', "utf-8")
    out = await tab.act(pressed("toggle", "lexical"), None)
    assert "pool.toml.1" in out[2]
    assert "mine" in path.with_name("pool.toml.1").read_text("utf-8")
    assert "mine" not in path.read_text("utf-8")
    await tab.act(pressed("toggle", "lexical"), None)
    assert not path.with_name("pool.toml.2").exists()


async def test_two_browsers_do_not_undo_each_others_work(tab: Handlers, server: Script) -> None:
    await asyncio.gather(*(saved(tab, **remote(server, name=f"m{n}")) for n in range(5)))
    assert names(tab) == ["lexical", "symbolic", *(f"m{n}" for n in range(5))]
    assert read_pool_file(tab.editor.path) == tab.roster.file


# --- The table ----------------------------------------------------------------------------------------------


async def test_switching_moving_removing_and_undoing(services: Services, tab: Handlers) -> None:
    before = services.roster.file
    out = await tab.act(pressed("toggle", "symbolic"), None)
    assert services.roster.names == ("lexical",)
    assert 'aria-checked="false"' in out[0]
    refused = await tab.act(pressed("toggle", "lexical"), None)
    assert "only member that takes part" in refused[2]
    refused = await tab.act(pressed("remove", "lexical"), None)
    assert "last member that takes part" in refused[2]
    await tab.act(pressed("toggle", "symbolic"), None)
    await tab.act(pressed("down", "lexical"), None)
    assert names(tab) == ["symbolic", "lexical"]
    await tab.act(pressed("down", "lexical"), None)
    assert names(tab) == ["symbolic", "lexical"], "the last cannot go further"
    await tab.act(pressed("up", "lexical"), None)
    assert services.roster.file == before
    out = await tab.act(pressed("remove", "symbolic"), None)
    token = out[2].split('data-act="undo" data-id="')[1].split('"')[0]
    await tab.act(pressed("undo", token), None)
    assert services.roster.file == before
    out = await tab.act(pressed("undo", token), None)
    assert "can no longer be undone" in out[2]
    assert read_pool_file(tab.editor.path) == before


@pytest.mark.parametrize("act", ["edit", "toggle", "up", "remove", "forget", "undo"])
async def test_a_member_that_is_gone_meanwhile_is_said(tab: Handlers, act: str) -> None:
    out = await tab.act(pressed(act, "<gone>"), None)
    assert 'data-kind="problem"' in out[2]
    assert "<gone>" not in out[2]
    assert names(tab) == ["lexical", "symbolic"]


async def test_ready_pools_and_back_to_the_embedded_one(tab: Handlers) -> None:
    out = await tab.use_ready(pressed("ready", "frontier"), None)
    assert len(names(tab)) == 7
    assert "No key yet for" in out[2]
    assert tab.roster.file.run == Limits(cost=1.0)
    await tab.use_ready(pressed("ready", "local"), None)
    assert tab.roster.file.run == Limits(cost=1.0), "a pool without a budget keeps that of now"
    await tab.use_ready(pressed("ready", "embedded"), None)
    assert tab.roster.file.specs == embedded_specs()
    out = await tab.use_ready(pressed("ready", "../../secrets"), None)
    assert "no such ready pool" in out[2]


async def test_budgets_reach_the_pool_and_the_meter(services: Services, tab: Handlers) -> None:
    await tab.save_budgets("10", "", "0.25", None, " 5000 ", "")
    assert services.roster.limits == Limits(calls=10, cost=0.25)
    assert services.roster.wiring.meter.day == Limits(tokens=5000)
    for wrong in ("2.5", "-1", "many", "nan", "1e999"):
        said, _ = await tab.save_budgets(wrong, "", "", "", "", "")
        assert 'data-kind="problem"' in said
        assert "calls" in said
    assert services.roster.limits == Limits(calls=10, cost=0.25)
    opened = await tab.opened(ASKED, None)
    shown = ["" if skipped(value) else value for value in opened[5:11]]
    assert shown == ["10", "", "0.25", "", "5000", ""]
    assert skipped(opened[6]), "what somebody types already on a fresh page is not wiped"


async def test_the_table_is_sent_again_only_when_it_changed(tab: Handlers) -> None:
    seen = (await tab.opened(ASKED, None))[3]
    assert all(skipped(value) for value in await tab.tick(None, seen))
    await tab.act(pressed("toggle", "symbolic"), None)
    assert isinstance((await tab.tick(None, seen))[0], str)


async def test_a_resting_member_shows_it(services: Services, tab: Handlers, server: Script) -> None:
    server.raw = (500, "text/plain", b"broken")
    await saved(tab, **remote(server, retries="0", rest_after="1", rest_s="60"))
    agent = services.roster.agent("gpt")
    message = Message("user", "hello")
    with pytest.raises(Exception, match="500"):
        async for _ in agent.stream(Request(agent.spec, (message,), Brief(Role.WORKER, (message,)))):
            pass
    table = (await tab.opened(ASKED, None))[0]
    assert ">resting<" in table
    server.raw = None
    assert any('data-kind="done"' in text for text in await trial(tab, **remote(server))), "a test goes ahead"
    await agent.aclose()


async def test_a_key_that_is_refused_is_told_by_its_place(
    tab: Handlers, server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOL_TEST_KEY", PLANTED)
    form = remote(server, model="echo-key", key_env="POOL_TEST_KEY")
    assert "environment variable POOL_TEST_KEY" in (await trial(tab, **form))[-1]
    assert "typed in the Pool tab" in (await trial(tab, PLANTED[::-1], **form))[-1]


def test_a_table_says_each_thing_in_words_and_escapes_it() -> None:
    spec = AgentSpec("x", "openai", "<m>", '"d"', base_url="http://h/<v1>", key_env="A_KEY")
    keys = Keys(use_keyring=False)
    drawn = members.table(
        [
            Member(spec, keys.state(spec), None, "missing", "half-open", "<why>"),
            Member(replace(spec, name="y", enabled=False), None, (0.5, 12345.5), "untrained"),
        ],
        "x",
    )
    for words in (
        "not set",
        "put it in A_KEY",
        "unknown",
        "half-open",
        "0.5&nbsp;in",
        "12,345.5&nbsp;out",
        "average",
        ">off<",
    ):
        assert words in drawn
    assert "<m>" not in drawn
    assert "<v1>" not in drawn
    assert "<why>" not in drawn
    assert '<td colspan="7">&lt;why&gt;</td>' in drawn, "why a member rests can be read without a mouse"
    assert drawn.count("aria-selected") == 1


# --- Keys ---------------------------------------------------------------------------------------------------


async def test_a_typed_key_is_used_shown_by_its_tail_and_never_given_back(
    services: Services, tab: Handlers, server: Script
) -> None:
    server.key = PLANTED
    out = await saved(tab, key=f" {PLANTED} ", **remote(server))
    assert out[6] == "", "the field is emptied"
    assert "set · …6Lp9 (memory)" in out[0]
    shown = [out, await tab.act(pressed("edit", "gpt"), None), await tab.opened(ASKED, None), await tab.look()]
    shown += [
        await trial(tab, editing="gpt", **remote(server)),
        await tab.list_models("gpt", "", *filled(**remote(server))),
    ]
    assert PLANTED not in json.dumps(shown, default=str)
    assert PLANTED not in repr(services.roster.file)
    assert PLANTED not in (services.settings.home / "pool.toml").read_text("utf-8")
    assert 'data-kind="done"' in shown[-2][-1]
    assert {authorization for _, authorization, _ in server.seen} == {f"Bearer {PLANTED}"}
    state, said = await tab.forget_key(*filled(**remote(server)))
    assert 'data-set="0"' in state
    assert "forgotten" in said


async def test_a_key_stays_with_its_member_and_its_origin(tab: Handlers, server: Script) -> None:
    await saved(tab, key=PLANTED, **remote(server))
    await saved(tab, "gpt", **remote(server, name="renamed"))
    assert tab.keys.of(tab.roster.file.specs[-1]) == PLANTED
    with serving() as other:
        assert any("42" in text for text in await trial(tab, editing="renamed", **remote(other, name="renamed")))
        await saved(tab, "renamed", **remote(other, name="renamed"))
        await tab.list_models("renamed", "", *filled(**remote(other, name="renamed")))
    assert {authorization for _, authorization, _ in other.seen} == {None}, "another server never sees it"


async def test_removing_a_member_offers_to_forget_its_key(tab: Handlers, server: Script) -> None:
    await saved(tab, key=PLANTED, **remote(server))
    spec = tab.roster.file.specs[-1]
    out = await tab.act(pressed("remove", "gpt"), None)
    assert 'data-act="forget" data-id="gpt"' in out[2]
    assert tab.keys.of(spec) == PLANTED
    await tab.act(pressed("forget", "gpt"), None)
    assert tab.keys.of(spec) is None


async def test_a_key_that_cannot_be_kept_saves_nothing(tab: Handlers, server: Script) -> None:
    out = await saved(tab, key=PLANTED, keep=True, **remote(server))
    assert "keyring" in out[-1]
    assert names(tab) == ["lexical", "symbolic"]
    out = await saved(tab, key="two words", **remote(server))
    assert "a blank" in out[-1]


# --- Testing ------------------------------------------------------------------------------------------------


async def test_a_test_needs_no_save_and_shows_latency_text_and_cost(
    services: Services, tab: Handlers, server: Script
) -> None:
    server.key = PLANTED
    shown = await trial(tab, PLANTED, **remote(server, input="1", output="2"))
    assert "Waiting for the first token" in shown[0]
    assert "42" in shown[-1]
    for words in ("gpt answered in", "first token after", "11 → 3 tokens", "$0.000017"):
        assert words in shown[-1]
    assert services.roster.specs == (LEXICAL, SYMBOLIC)
    assert tab.keys.of(AgentSpec("gpt", "openai", base_url=server.url)) is None, "nothing is kept"
    assert services.roster.wiring.meter.today().calls == 1
    assert "cost unknown" in (await trial(tab, PLANTED, **remote(server)))[-1]
    path, _, body = server.seen[-1]
    assert path == "/v1/chat/completions"
    assert max(body.get("max_tokens", 0), body.get("max_completion_tokens", 0)) <= 256


@pytest.mark.parametrize(
    ("values", "script", "words"),
    [
        ({}, Script(key="another"), "401"),
        ({"model": "nobody"}, Script(), "does not exist"),
        ({"model": "echo-key"}, Script(), "Incorrect API key"),
        ({}, Script(raw=(200, "text/html", b"<html><title>Shop</title></html>")), "a web page"),
        ({}, Script(raw=(503, "text/plain", b"busy")), "503"),
        ({}, Script(location="http://169.254.169.254/"), "Redirects are not followed"),
    ],
)
async def test_a_failed_test_names_member_cause_and_next_step_once(
    tab: Handlers, values: dict[str, Any], script: Script, words: str
) -> None:
    with serving(script) as server:
        shown = await trial(tab, PLANTED, **remote(server, **values))
    assert 'data-kind="problem"' in shown[-1]
    assert words in shown[-1]
    assert "gpt" in shown[-1]
    assert PLANTED not in "".join(shown)
    assert len(server.seen) == 1, "a test is not tried again"


async def test_nobody_listening_is_said(tab: Handlers, server: Script) -> None:
    shown = await trial(tab, name="gpt", base_url="http://127.0.0.1:1/v1", model="m")
    assert 'data-kind="problem"' in shown[-1]
    shown = await trial(tab, name="gpt", base_url="nonsense", model="m")
    assert shown == [shown[0]]
    assert 'data-kind="problem"' in shown[0]


@pytest.mark.parametrize("model", ["stall", "slow"])
async def test_a_test_that_is_stopped_closes_its_call(tab: Handlers, server: Script, model: str) -> None:
    updates = tab.test(None, "", *filled(**remote(server, model=model)))
    shown = [(await anext(updates))[0] for _ in range(3)]
    assert all('data-kind="testing"' in text for text in shown)
    await cast(Any, updates).aclose()
    assert await asyncio.to_thread(server.dropped.wait, 3)


async def test_what_comes_back_is_text(tab: Handlers, server: Script) -> None:
    shown = await trial(tab, **remote(server, model="hostile"))
    assert "&lt;script&gt;" in shown[-1]
    assert HOSTILE.split()[0] not in "".join(shown)
    assert "<script" not in "".join(shown)


async def test_a_reply_that_is_all_reasoning_is_no_failure(tab: Handlers, server: Script) -> None:
    shown = await trial(tab, **remote(server, model="thinks"))
    assert "said nothing visible" in shown[-1]


@pytest.mark.parametrize("kind", ["symbolic", "lexical", "calendar"])
async def test_members_of_this_program_can_be_tested_too(tab: Handlers, kind: str) -> None:
    shown = await trial(tab, name="tried", kind=kind)
    assert 'data-kind="done"' in shown[-1]
    assert "free" in shown[-1]
    assert "declined" not in shown[-1]


async def test_the_budget_of_the_day_holds_for_tests(services: Services, tab: Handlers, server: Script) -> None:
    services.roster.wiring.meter.day = Limits(calls=0)
    shown = await trial(tab, **remote(server))
    assert "budget of the day" in shown[-1]
    assert server.seen == []


# --- Found here ---------------------------------------------------------------------------------------------


async def test_an_offer_fills_the_form_and_a_model_is_one_click(
    tab: Handlers, server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = AgentSpec("lexical", "openai", base_url=server.url, key_env="POOL_TEST_KEY")

    async def found() -> tuple[Offer, ...]:
        return (Offer(spec, "A server <here>", "2 models", ("a", "b")),)

    monkeypatch.setattr("ui.tabs.pool.local_servers", found)
    monkeypatch.setattr("ui.tabs.pool.found_keys", lambda: ())
    offers, drawn = await tab.look()
    assert "&lt;here&gt;" in drawn
    out = await tab.take_offer(pressed("offer", "0"), offers)
    assert out[0] is None
    assert list(out[6:-2]) == filled(name="lexical-2", base_url=server.url, key_env="POOL_TEST_KEY")
    assert '<option value="b">' in out[5]
    assert await tab.take_model(pressed("filter", "model=b=c")) == "b=c"
    for wrong in ("7", "-", ""):
        assert all(skipped(value) for value in await tab.take_offer(pressed("offer", wrong), offers))


async def test_models_are_listed_with_the_typed_key(tab: Handlers, server: Script) -> None:
    server.key = PLANTED
    listed, said = await tab.list_models(None, PLANTED, *filled(base_url=server.url))
    assert all(f'<option value="{name}">' in listed for name in server.models)
    assert "7 models" in said
    listed, said = await tab.list_models(None, "wrong-key-entirely", *filled(base_url=server.url))
    assert listed == ""
    assert 'data-kind="problem"' in said
    _, said = await tab.list_models(None, "", *filled(kind="symbolic"))
    assert 'data-kind="problem"' in said


# --- The head's rows ----------------------------------------------------------------------------------------


@pytest.fixture
def head(services: Services) -> Checkpoint:
    """A deployed head for `lexical` and another one."""
    meta = Meta("backbone-1", "r", 4, ("lexical", "other"))
    made = Checkpoint(meta, np.random.default_rng(3).normal(size=5 * 4))
    made.save(services.settings.checkpoints)
    deploy(services.settings, made.id)
    return made


async def test_new_members_get_an_average_row_when_asked(services: Services, tab: Handlers, head: Checkpoint) -> None:
    _, rows, *_ = await tab.opened(ASKED, None)
    assert "No trained row for symbolic." in rows
    assert 'data-act="extend"' in rows
    table, rows, note, *_ = await tab.act(pressed("extend"), None)
    assert "symbolic got the mean" in note
    assert "average" in table
    assert "not trained yet: symbolic" in rows
    path = deployed_path(services.settings)
    assert path is not None
    longer = Checkpoint.load(path)
    assert longer.meta.agents == ("lexical", "other", "symbolic")
    assert longer.meta.training["untrained"] == ["symbolic"]
    h = np.arange(4.0)
    assert longer.logits(h)[2] == pytest.approx(head.logits(h)[:2].mean())
    assert services.refitted == 1
    assert "has a row already" in (await tab.act(pressed("extend"), None))[2]
    assert deployed_path(services.settings) == path


async def test_a_head_that_is_missing_or_of_another_backbone_is_said(
    services: Services, tab: Handlers, head: Checkpoint
) -> None:
    services.backbone = "backbone-2"
    _, rows, *_ = await tab.opened(ASKED, None)
    assert "trained on the backbone backbone-1, not on backbone-2" in rows
    assert "extend" not in rows
    (services.settings.checkpoints / f"{head.id}.safetensors").unlink()
    table, rows, *_ = await tab.opened(ASKED, None)
    assert "no head" in rows
    assert "unknown" in table
    assert 'data-kind="problem"' in (await tab.act(pressed("extend"), None))[2]


def test_only_members_that_take_part_call_for_a_row() -> None:
    rows = Rows(frozenset(("lexical",)))
    off = Member(replace(SYMBOLIC, enabled=False), row="missing")
    assert members.rows_notice([Member(LEXICAL, row="trained"), off], rows) == ""


# --- What a browser remembers, and what is said of money -----------------------------------------------------


async def test_a_form_half_filled_comes_back_after_a_reload(tab: Handlers, server: Script) -> None:
    await saved(tab, **remote(server))
    for editing, values in ((None, {"name": "half", "extra": '{"seed": 1}'}), ("gpt", remote(server, retries="x"))):
        draft = json.loads(json.dumps(await tab.remember(editing, *filled(**values))))
        back, title, key, *_, last = out = await tab.restore(draft)
        assert (back, key) == (editing, "")
        assert (editing or "New member") in title
        assert list(out[6:-1]) == filled(**values)
        assert skipped(last)
    gone = await tab.restore({"editing": "nobody", "values": filled(name="half")})
    assert gone[0] is None, "a member that is gone is a new one"


@pytest.mark.parametrize(
    "draft",
    [{}, None, [], {"values": []}, {"values": None}, {"values": [1] * len(memberform.NAMES)}, {"values": ["x"] * 23}],
)
async def test_a_draft_that_is_none_changes_nothing(tab: Handlers, draft: object) -> None:
    assert all(skipped(value) for value in await tab.restore(draft))
    blank = await tab.remember(None, *memberform.blank())
    assert all(skipped(value) for value in await tab.restore(blank))


@pytest.mark.parametrize(
    "values",
    [
        {"key_env": "whatever-7Kd9Qm2Xw4"},
        {"key_env": "sk-abcdefgh12345678"},
        {"description": "sk-abcdefgh12345678"},
        {"base_url": "http://user:whatever-7Kd9Qm2Xw4@host/v1"},
        {"model": PLANTED},
        {"extra": '{"api_key": "whatever-7Kd9Qm2Xw4"}'},
        {"extra": '{"api_key": "whatever-7Kd9Qm2Xw4"'},
    ],
)
async def test_no_key_is_remembered_by_the_browser(tab: Handlers, server: Script, values: dict[str, str]) -> None:
    await saved(tab, key=PLANTED, **remote(server))
    draft = json.dumps(await tab.remember(None, *filled(name="half", **values)))
    assert '"half"' in draft
    for secret in ("whatever", "sk-", PLANTED):
        assert secret not in draft


async def test_budgets_are_named_as_in_the_form_and_follow_the_pool(services: Services, tab: Handlers) -> None:
    for at, value, words in (
        (5, "-1", "One day: cost must be"),
        (1, "lots", "One run: tokens"),
        (0, "1.5", "One run"),
    ):
        fields = [""] * 6
        fields[at] = value
        said = (await tab.save_budgets(*fields))[0]
        assert words in said
        assert "budget." not in said
    assert await tab.budgets() == ["9", "", "", "1000", "", ""]
    services.roster.file = replace(services.roster.file, run=Limits(), day=Limits())
    await tab.use_ready(pressed("ready", "frontier"), None)
    assert (await tab.budgets())[2::3] == ["1.0", "10.0"], "a ready pool brings its own"


def test_what_is_unknown_is_not_shown_as_nothing() -> None:
    assert "cost unknown" in members.today(Spent(2, 10, 0.0, 2))
    assert "$" not in members.today(Spent(2, 10, 0.0, 2))
    assert "$0.00 + 1 call of unknown cost" in members.today(Spent(2, 10, 0.0, 1))
    assert "under $0.0001" in members.today(Spent(2, 10, 1e-6))
    reply = Reply("42", Finish.STOP)
    costs = {None: "cost unknown", 0.0: "$0.00", 1e-9: "under $0.0001", 1.7e-5: "$0.000017", 0.25: "$0.2500"}
    assert {cost: members.cost_words(replace(reply, cost=cost), True) for cost in costs} == costs


def test_a_notice_about_many_members_stays_short() -> None:
    missing = [Member(AgentSpec(f"m{n}", "symbolic"), row="missing") for n in range(25)]
    known = Member(LEXICAL, row="trained")
    said = members.rows_notice([known, *missing], Rows())
    assert "m0, m1, m2, m3, m4, m5 and 19 others" in said
    assert "m6" not in said
    assert "others" not in members.rows_notice([known, *missing[:7]], Rows())
    strange = members.rows_notice(missing, Rows())
    assert "average" not in strange, "a row that is the mean of no row tells nothing"
    assert "python app.py train" in strange


async def test_an_empty_form_does_not_wait_for_the_keyring(tab: Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: Any) -> None:
        raise AssertionError("the keyring was asked")

    monkeypatch.setattr(tab.keys, "state", slow)
    assert list((await tab.new())[6:-2]) == memberform.blank()
    offer = Offer(AgentSpec("ollama", "openai", base_url="http://127.0.0.1:11434/v1"), "Ollama", "1 model", ("m",))
    assert (await tab.take_offer(pressed("offer", "0"), (offer,)))[6] == "ollama"
