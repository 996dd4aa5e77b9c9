"""The Pool tab: who takes part, how they are reached, what they may spend, and what that means for the head.

Saving checks everything, writes `pool.toml` in the home folder and exchanges the pool in use; runs under way keep
theirs. A table action can be undone; nothing typed is lost to an error. A test asks the member of the form one tiny
question, saved or not, and counts as spending of the day.

Everybody who can open the page may change the pool: it is the operator's, and so is the login. A typed key travels
from the browser to this server only. It is put into `Keys` and never into a component's value, a state or a message;
the field is emptied once the key is saved. A test uses it from the field and leaves it there. What else is typed into
the form is remembered by the browser until it is saved, without anything that looks like a key.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gradio as gr

import assets
from trinity_core import wire
from trinity_core.agents import prices
from trinity_core.agents.base import Agent, Wiring
from trinity_core.agents.discovery import Offer, found_keys, local_servers, model_list
from trinity_core.agents.keys import Keys, origin, show
from trinity_core.agents.pool import KINDS, PoolFile, embedded_specs, limits_of, read_pool_file
from trinity_core.errors import InputError, PoolError, TrinityError
from trinity_core.types import AgentSpec, Limits
from ui import memberform, members
from ui.live import live
from ui.memberform import FIELDS
from ui.members import Member, notice, problem
from ui.pooledit import Editor, PoolServices
from ui.render import esc
from ui.rows import HeadRows
from ui.trial import tried

if TYPE_CHECKING:
    from trinity_core.agents.pool import Roster

Update = list[Any]

READY = {
    "embedded": "Embedded: the four members that need no key (reset)",
    "local": "Local server: several models of one Ollama",
    "frontier": "Frontier: OpenAI, Google, Anthropic, and open models through OpenRouter",
}
"""The ready pools by file name in assets/pools."""
_DRAFT_KEY = "trinity-pool"
_DRAFT_SECRET = "trinity-pool-v1"  # fixed, so that drafts outlive a restart of the server; it protects nothing
_NO_DRAFT: dict[str, Any] = {}
_FORM = 7 + len(FIELDS)
"""How many outputs fill the form; see `Handlers._filled`."""
_BUDGETS = tuple((part, name) for part in ("run", "day") for name in ("calls", "tokens", "cost"))


def build(page: gr.Blocks, tabs: gr.Tabs, tab: gr.Tab, services: PoolServices) -> None:
    """Add the tab's components and events to the open Blocks `page`."""
    handlers = Handlers(services)
    editing, seen, offered = gr.State(None), gr.State(""), gr.State(())
    draft = gr.BrowserState(_NO_DRAFT, storage_key=_DRAFT_KEY, secret=_DRAFT_SECRET)
    with gr.Row(elem_id="pool-columns"):
        with gr.Column(scale=8, min_width=320, elem_id="pool-left"):
            rows = live("html", "pool-rows")  # these three are hidden while they are empty
            note = live("html", "pool-note")
            listed = live("html", "pool-table")
            add = gr.Button("Add a member", elem_id="pool-add", variant="primary", size="md")
            with gr.Accordion("Found here", open=True, elem_id="pool-found"):
                found = live("html", "pool-offers", members.offers((), False))
                look = gr.Button("Look again", elem_id="pool-look", size="sm")
            with gr.Accordion("Budgets", open=False, elem_id="pool-budgets"):
                spent = live("html", "pool-today")
                budgets = memberform.budget_fields()
                keep_budgets = gr.Button("Save budgets", elem_id="pool-budget-save", size="sm")
            with gr.Accordion("Ready pools", open=False, elem_id="pool-ready"):
                ready = live("html", "pool-ready-list", members.ready(READY))
        with gr.Column(scale=5, min_width=320, elem_id="pool-right"):
            title = live("html", "pool-form-title", members.form_title(None))
            form = memberform.form_fields()
            status = live("html", "pool-status")  # hidden while it is empty
    timer = gr.Timer(3.0, active=False)  # until the tab is opened

    private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "concurrency_limit": None}
    fields = [form.by_name[field.name] for field in FIELDS]
    screen = [listed, rows, note, seen]
    filled = [editing, title, form.key, form.keep, form.key_state, form.models, *fields, draft]

    gr.on([page.load], handlers.opened, [editing], [*screen, spent, *budgets, tabs, timer], **private)
    gr.on([page.load], handlers.look_if_linked, None, [offered, found], **private)
    tab.select(handlers.refresh, [editing], [listed, rows, seen, spent, timer], **private).then(
        handlers.look, None, [offered, found], **private
    )
    timer.tick(handlers.tick, [editing, seen], [listed, rows, spent, seen], **private)
    for panel in (listed, rows):
        panel.pick(handlers.act, [editing], [*screen, *filled], **private)
    undone = note.pick(handlers.act, [editing], [*screen, *filled], **private)
    taken = ready.pick(handlers.use_ready, [editing], screen, **private)
    for changed in (undone, taken):
        changed.then(handlers.budgets, None, budgets, **private)
    # The page asks for this where a draft is remembered. Without one nothing may touch what is being typed already.
    title.pick(handlers.restore, [draft], filled, **private)
    add.click(handlers.new, None, [*filled, status], **private)
    look.click(handlers.look, None, [offered, found], **private)
    taken_up = found.pick(handlers.take_offer, [offered], [*filled, status], **private)
    taken_up.then(handlers.key_state, fields, [form.key_state], **private)
    keep_budgets.click(handlers.save_budgets, budgets, [note, spent], **private)

    _form_events(handlers, form, editing, status, [*screen, *filled], private)
    gr.on(
        [form.by_name[field.name].input for field in FIELDS if field.name in ("kind", "enabled")]
        + [form.by_name[field.name].blur for field in FIELDS if field.name not in ("kind", "enabled")],
        handlers.remember, [editing, *fields], [draft], trigger_mode="always_last", **private,
    )  # fmt: skip


def _form_events(
    handlers: Handlers,
    form: memberform.Form,
    editing: gr.State,
    status: gr.HTML,
    saved: Update,
    private: dict[str, Any],
) -> None:
    """What the form's own controls do; `saved` are the outputs of a save besides `status`."""
    fields = [form.by_name[field.name] for field in FIELDS]
    form.by_name["kind"].change(handlers.fit_kind, [form.by_name["kind"]], [*fields, *form.remote_only], **private)
    gr.on(
        [form.by_name[name].blur for name in ("name", "base_url", "key_env")] + [form.by_name["kind"].input],
        handlers.key_state, fields, [form.key_state], **private,
    )  # fmt: skip
    form.list_models.click(handlers.list_models, [editing, form.key, *fields], [form.models, status], **private)
    form.models.pick(handlers.take_model, None, [form.by_name["model"]], **private)
    form.forget.click(handlers.forget_key, fields, [form.key_state, status], **private)
    under_way = form.test.click(
        handlers.test, [editing, form.key, *fields], [status, form.test, form.stop], **private
    )
    form.stop.click(
        handlers.stopped, None, [status, form.test, form.stop], cancels=[under_way], queue=False, **private
    )
    form.save.click(handlers.save, [editing, form.key, form.keep, *fields], [*saved, status], **private)


def _limits(values: Sequence[Any]) -> tuple[Limits, Limits]:
    """The limits of a run and of a day from the budget fields. Raises InputError or PoolError naming the field."""
    tables: dict[str, dict[str, Any]] = {"run": {}, "day": {}}
    for (part, name), value in zip(_BUDGETS, values, strict=True):
        if str(value or "").strip():
            tables[part][name] = memberform.number_of(value, f"One {part}: {name}")
    try:
        return limits_of(tables["run"], "run"), limits_of(tables["day"], "day")
    except PoolError as error:
        text = str(error)
        for part, name in _BUDGETS:
            text = text.replace(f"{name} in budget.{part}", f"One {part}: {name}")
        raise PoolError(f"{text} Leave a field empty for no limit.") from None


# --- Handlers -----------------------------------------------------------------------------------------------


class Handlers:
    """The tab's handlers. `editing` is the name of the member in the form, None for a new one.

    Changes of the pool are made one at a time, each from the pool as it is then, so that two browsers do not undo
    each other's work.
    """

    def __init__(self, services: PoolServices) -> None:
        self.services = services
        self.editor = Editor(services)
        self.rows = HeadRows(services.settings)

    @property
    def roster(self) -> Roster:
        return self.services.roster

    @property
    def keys(self) -> Keys:
        return self.roster.wiring.keys

    # --- Showing ------------------------------------------------------------------------------------------

    async def opened(self, request: gr.Request, editing: str | None) -> Update:
        """The page was opened, perhaps by a link to this tab."""
        linked = dict(request.query_params).get("tab") == "pool"
        return [
            *await self._screen(editing),
            self._today(),
            # A fresh page's fields are empty; what somebody types already must not be wiped by the same emptiness.
            *(value or gr.skip() for value in await self.budgets()),
            gr.Tabs(selected="pool") if linked else gr.skip(),
            gr.Timer(active=True) if linked else gr.skip(),
        ]

    async def refresh(self, editing: str | None) -> Update:
        """The tab was opened."""
        table, rows, _, seen = await self._screen(editing)
        return [table, rows, seen, self._today(), gr.Timer(active=True)]

    async def tick(self, editing: str | None, seen: str) -> Update:
        """Members rest and come back by themselves, and other browsers change the pool."""
        table, rows, _, now = await self._screen(editing)
        return [gr.skip()] * 4 if now == seen else [table, rows, self._today(), now]

    async def budgets(self) -> Update:
        """The budgets of now, as their fields show them."""
        file = self.roster.file
        limits = [getattr(getattr(file, part), name) for part, name in _BUDGETS]
        return ["" if limit is None else str(limit) for limit in limits]

    async def look_if_linked(self, request: gr.Request) -> Update:
        linked = dict(request.query_params).get("tab") == "pool"
        return await self.look() if linked else [gr.skip(), gr.skip()]

    async def look(self) -> Update:
        """Keys in the environment and servers on this machine, as offers."""
        offers = (*found_keys(), *await local_servers())
        return [offers, members.offers(offers, True)]

    async def fit_kind(self, kind: str) -> Update:
        """Only the fields that this kind has are shown."""
        names = memberform.shown(kind)
        remote = kind in KINDS and KINDS[kind].remote
        return [*(gr.update(visible=name in names) for name in memberform.NAMES), *[gr.update(visible=remote)] * 6]

    async def key_state(self, *values: Any) -> str:
        """Whether the member in the form has a key, and where from."""
        return await self._key_line(memberform.rough_spec(values))

    # --- The table ----------------------------------------------------------------------------------------

    async def act(self, event: gr.EventData, editing: str | None) -> Update:
        """Something in the table or a notice was pressed; `event` says what, and on which member."""
        pressed = event._data or {}
        what, target = str(pressed.get("act", "")), str(pressed.get("id", ""))
        form: Update = [gr.skip()] * _FORM
        said = ""
        try:
            if what == "edit":
                form = await self._filled(self.editor.member(target), target)
                editing = target
            elif what == "extend":
                said = await asyncio.to_thread(self._extend)
            elif what == "forget":
                said = await self.editor.forget(target)
            elif what == "undo":
                said = await self.editor.undo(target)
            else:
                said = await self.editor.change(what, target)
        except (TrinityError, OSError) as error:
            said = problem(error)
        return [*await self._screen(editing, said), *form]

    async def use_ready(self, event: gr.EventData, editing: str | None) -> Update:
        """Take one of the ready pools in place of this one."""
        name = str((event._data or {}).get("id", ""))
        try:
            if name not in READY:
                raise InputError("There is no such ready pool.")
            file = PoolFile(embedded_specs())
            if name != "embedded":
                file = await asyncio.to_thread(read_pool_file, assets.path(f"pools/{name}.toml"))
            said = await self.editor.use(file, f"The pool is now “{READY[name].split(':')[0]}”.")
        except (TrinityError, OSError) as error:
            said = problem(error)
        return await self._screen(editing, said)

    async def save_budgets(self, *values: Any) -> Update:
        """What a run and a day may spend; an empty field is no limit."""
        try:
            said = await self.editor.budgets(*_limits(values))
        except (TrinityError, OSError) as error:
            said = problem(error)
        return [said, self._today()]

    # --- The form -----------------------------------------------------------------------------------------

    async def new(self) -> Update:
        """An empty form."""
        return [*await self._filled(AgentSpec("", "openai"), None), ""]

    async def take_offer(self, event: gr.EventData, offered: Sequence[Offer]) -> Update:
        """Fill the form with something that was found."""
        try:
            offer = offered[int((event._data or {}).get("id", ""))]
        except (ValueError, IndexError):
            return [gr.skip()] * (_FORM + 1)
        spec = replace(offer.spec, name=self.editor.free_name(offer.spec.name))
        form = await self._filled(spec, None, offer.models)  # asking the keyring may take seconds: that comes later
        hint = "Choose a model, then test or save." if spec.model is None else "Test it, or save."
        return [*form, notice(f"{offer.title}: {hint}")]

    async def take_model(self, event: gr.EventData) -> Any:
        name, _, model = str((event._data or {}).get("id", "")).partition("=")
        return model if name == "model" and model else gr.skip()

    async def list_models(self, editing: str | None, key: str, *values: Any) -> Update:
        """Ask the server of the form which models it has."""
        spec = memberform.rough_spec(values)
        try:
            found = await model_list(spec, await self._key_for(spec, editing, key))
        except TrinityError as error:
            return ["", problem(error, spec.name)]
        return [members.models(found, spec.model or ""), notice(f"{len(found)} models. Choose one from the list.")]

    async def forget_key(self, *values: Any) -> Update:
        """Forget the typed key of the member in the form."""
        spec = memberform.rough_spec(values)
        try:
            before = await asyncio.to_thread(self.keys.state, spec)
            await asyncio.to_thread(self.keys.clear, spec)
        except TrinityError as error:
            return [gr.skip(), problem(error, spec.name)]
        words = "The typed key is forgotten." if before.where in ("memory", "keyring") else "There was no typed key."
        return [await self._key_line(spec), notice(words, kind="done")]

    async def save(self, editing: str | None, key: str, keep: bool, *values: Any) -> Update:
        """Check the form, keep its key, write the pool file and use the new pool."""
        try:
            spec = await asyncio.to_thread(memberform.spec_from, values)
            said = await self.editor.save(spec, editing, key, bool(keep))
        except (TrinityError, OSError) as error:
            return [*[gr.skip()] * (4 + _FORM), problem(error)]
        form: Update = [spec.name, members.form_title(spec.name), "", False, await self._key_line(spec), gr.skip()]
        return [*await self._screen(spec.name, ""), *form, *[gr.skip()] * len(FIELDS), _NO_DRAFT, said]

    async def remember(self, editing: str | None, *values: Any) -> dict[str, Any]:
        """The form as the browser keeps it until it is saved. A value that looks like a key is left out."""
        kept = await asyncio.to_thread(memberform.without_secrets, values)
        return {"editing": editing, "values": kept}

    async def restore(self, draft: object) -> Update:
        """When the tab is first opened: what was typed and not saved. The key has to be typed again."""
        values = memberform.values_from(draft.get("values")) if isinstance(draft, dict) else None
        if not isinstance(draft, dict) or values is None or values == memberform.blank():
            return [gr.skip()] * _FORM
        names = {spec.name for spec in self.roster.file.specs}
        editing = draft.get("editing") if draft.get("editing") in names else None
        head = [editing, members.form_title(editing), "", False, await self.key_state(*values), ""]
        return [*head, *values, gr.skip()]

    async def test(self, editing: str | None, key: str, *values: Any) -> AsyncIterator[Update]:
        """Ask the member in the form a tiny question and show what comes back."""
        idle = [gr.Button(interactive=True), gr.Button(interactive=False)]
        try:
            spec = await asyncio.to_thread(memberform.spec_from, values)
            agent, own = await self._agent(spec, editing, key)
        except TrinityError as error:
            yield [problem(error), *idle]
            return
        try:
            buttons = [gr.Button(interactive=False), gr.Button(interactive=True)]
            async with aclosing(tried(agent, spec)) as shown:
                async for text in shown:
                    yield [text, *buttons]
            yield [gr.skip(), *idle]
        finally:
            if own:
                await agent.aclose()

    async def stopped(self) -> Update:
        """A test was stopped; its call is closed by now."""
        return [notice("Test stopped."), gr.Button(interactive=True), gr.Button(interactive=False)]

    # --- Parts --------------------------------------------------------------------------------------------

    def _extend(self) -> str:
        """Deploy the head with a row for every member."""
        before, after, fresh = self.rows.extend([spec.name for spec in self.roster.file.specs])
        if not fresh:
            return notice("Every member has a row already.")
        self.services.refit()
        return notice(
            f"{', '.join(fresh)} got the mean of the trained rows. The head in use is {after[:10]}; it came from "
            f"{before[:10]}, which is untouched.",
            kind="done",
        )

    async def _filled(self, spec: AgentSpec, editing: str | None, models: Sequence[str] = ()) -> Update:
        """The form for `spec`. The key field is emptied: a typed key belongs to the member it was typed for."""
        shown = members.models(models, spec.model or "")
        line = await self._key_line(spec) if editing else ""  # nothing may be typed that a late answer wipes out
        head = [editing, members.form_title(editing), "", False, line, shown]
        return [*head, *memberform.values_of(spec), _NO_DRAFT]

    async def _key_line(self, spec: AgentSpec) -> str:
        if spec.kind not in KINDS or not KINDS[spec.kind].remote:
            return ""
        state = await asyncio.to_thread(self.keys.state, spec)
        words = f"Key: {esc(show(state))}"
        return f'<p class="tr-aside" data-testid="pool-key-state" data-set="{int(state.is_set)}">{words}</p>'

    async def _key_for(self, spec: AgentSpec, editing: str | None, typed: str) -> str | None:
        """The key for a member of the form: the typed one, its own, or that of the member it was made from."""
        if (typed or "").strip():
            fresh = Keys(use_keyring=False)
            fresh.put(spec, typed)
            return fresh.of(spec)
        found = await asyncio.to_thread(self.keys.of, spec)
        old = next((s for s in self.roster.file.specs if s.name == editing), None)
        if found is None and old is not None and origin(old) == origin(spec):
            found = await asyncio.to_thread(self.keys.of, replace(old, key_env=None))
        return found

    async def _agent(self, spec: AgentSpec, editing: str | None, typed: str) -> tuple[Agent, bool]:
        """The agent to test, and whether it was built for that. A local one in use is not loaded twice."""
        wiring = self.roster.wiring
        if not KINDS[spec.kind].remote:
            if spec in self.roster.specs:
                return self.roster.agent(spec.name), False
            return await asyncio.to_thread(KINDS[spec.kind].build, spec, wiring), True
        keys = self.keys  # its own key stays where it is: an error tells where a wrong one came from
        if (typed or "").strip() or not (await asyncio.to_thread(keys.state, spec)).is_set:
            keys = Keys(use_keyring=False)
            if key := await self._key_for(spec, editing, typed):
                keys.put(spec, key)
        # One attempt, and no rest that earlier failures earned: a test is to show the failure itself.
        once = replace(spec, service={**spec.service, "retries": 0})
        return KINDS[spec.kind].build(once, Wiring(keys, wiring.meter, wiring.server_id)), True

    def _today(self) -> str:
        return members.today(self.roster.wiring.meter.today())

    async def _screen(self, editing: str | None, said: str | None = None) -> Update:
        """Table, notice about the head's rows, what was done, and a digest of all that the page shows of now."""
        table, rows = await asyncio.to_thread(self._drawn, editing)
        return [table, rows, gr.skip() if said is None else said, wire.digest([table, rows, self._today()])]

    def _drawn(self, editing: str | None) -> tuple[str, str]:
        rows = self.rows.read(self.services.coordinator_status().backbone)
        resting = self.roster.resting()
        breakers = self.roster.wiring.breakers

        def member(spec: AgentSpec) -> Member:
            remote = KINDS[spec.kind].remote
            rates = prices.rates(spec)
            breaker = breakers.get(spec.name) if remote and spec.enabled else None
            return Member(
                spec,
                self.keys.state(spec) if remote else None,
                None if rates is None else (rates.input, rates.output),
                rows.of(spec.name),
                None if breaker is None or breaker.state == "closed" else breaker.state,
                resting.get(spec.name, ""),
            )

        made = [member(spec) for spec in self.roster.file.specs]
        return members.table(made, editing), members.rows_notice(made, rows)
