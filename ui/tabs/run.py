"""The Run tab: ask, watch the turns as they happen, stop, follow up.

Handlers only start, stop and tail runs of the `RunManager`; closing or refreshing the page ends a handler, never
a run. What a browser remembers (the conversation's newest run, the draft, the settings) is plain data.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import gradio as gr

from storage.replay import events_of
from trinity_core.errors import InputError, TrinityError
from trinity_core.session.loop import RunRequest
from trinity_core.types import Message, Mode, RunParams, Sampling, Source
from ui import plots, render
from ui.jobs import RunManager
from ui.live import figures, live
from ui.security import owner_of
from ui.view import RunView

if TYPE_CHECKING:
    from ui.build import Services

Update = list[Any]

EXAMPLES = (
    ("Arithmetic", "What is 17 * 23 + 4?"),
    ("Letters", "How many times does the letter r occur in strawberry?"),
    ("Dates and units", "How many days are there from 2024-02-10 to 2024-03-15?"),
    ("General knowledge", "What is the capital of France?"),
    ("Two steps", "How many letters are in the word calendar, and what is that number times 12?"),
)
_FRAME_S = 0.1
"""Shortest time between two updates of the page."""
START: dict[str, Any] = {}
"""What a browser remembers at first: nothing. Later the run id, the draft and the settings, never a secret."""
_STATE_KEY = "trinity-run"
_STATE_SECRET = "trinity-run-v1"  # fixed, so that drafts outlive a restart of the server; it protects nothing
_METHOD_WORDS = {"coordinator": "Coordinator", "random": "Random", "fixed": "Thinker → Worker → Verifier"}
_SETTINGS = 8
"""How many settings there are; see `_settings`."""
_SAVE_JS = """(state, draft, method, turns, mode, temperature, tokens, seed, follow, reuse) =>
    ({...(state || {}), draft, params: [method, turns, mode, temperature, tokens, seed, follow, reuse]})"""


def build(page: gr.Blocks, tab: gr.Tab, services: Services, runs: RunManager) -> None:
    """Add the tab's components and events to the open Blocks `page`."""
    state = gr.BrowserState(START, storage_key=_STATE_KEY, secret=_STATE_SECRET)
    with gr.Row(elem_id="run-columns"):
        with gr.Column(scale=5, min_width=320, elem_id="run-left"):
            coordinator = live("html", "run-coordinator")
            answer = live("html", "run-answer")  # hidden while it is empty
            error = live("html", "run-error")
            query = gr.Textbox(
                label="Question",
                elem_id="run-query",
                lines=3,
                max_lines=12,
                placeholder="Ask something. Ctrl+Enter runs it.",
            )
            with gr.Row(elem_id="run-buttons"):
                start = gr.Button("Run", variant="primary", elem_id="run-start", size="md", min_width=90)
                stop = gr.Button(
                    "Stop", variant="stop", elem_id="run-stop", size="md", min_width=90, interactive=False
                )
                fresh = gr.Button("New conversation", elem_id="run-new", size="md", min_width=150)
            status = live("html", "run-status")
            today = live("html", "run-today")  # hidden while nothing was spent
            gr.HTML(_welcome(), elem_id="run-welcome", apply_default_css=False)  # shown while the answer is empty
            settings = _settings(services)
        with gr.Column(scale=5, min_width=320, elem_id="run-middle"):
            lane = live("html", "run-lane", render.lane(RunView()))
        with gr.Column(scale=4, min_width=320, elem_id="run-right"):
            softmax = gr.Checkbox(label="Show probabilities (softmax)", elem_id="run-softmax", container=False)
            agents = live("bars", "run-agent-logits", figures(plots.panel(RunView(), "agent")))
            roles = live("bars", "run-role-logits", figures(plots.panel(RunView(), "role")))
            heat = live("heat", "run-heat", figures(plots.heat(RunView())))
    timer = gr.Timer(1.0)

    handlers = _Handlers(services, runs)
    screen = [start, stop, answer, lane, agents, roles, heat, status, today]
    private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "concurrency_limit": None}
    asked = gr.on(
        [start.click, query.submit], handlers.ask, [state, query, *settings], [query, state, error], **private
    )
    watched = asked.then(handlers.follow, [state], screen, **private)
    opened = page.load(handlers.restore, [state], [query, *settings], **private)
    resumed = opened.then(handlers.follow, [state], screen, **private)
    stop.click(handlers.stop, [state], None, queue=False, **private)
    tab.select(handlers.methods, [settings[0]], [settings[0]], **private)
    tab.select(handlers.coordinator, None, [coordinator, timer], **private)  # the pool may be another one now
    fresh.click(handlers.forget, [state], [state, error, *screen], cancels=[watched, resumed], queue=False, **private)
    timer.tick(handlers.coordinator, None, [coordinator, timer], **private)
    gr.on([page.load, start.click], handlers.coordinator, None, [coordinator, timer], **private)
    softmax.change(None, [softmax], None, js="(on) => window.trinity.softmax(on)", api_visibility="private")
    gr.on(
        # A text box's `input` is not told about pasted text or an example, its `change` is.
        [query.change, *(setting.input for setting in settings)],
        None,
        [state, query, *settings],
        [state],
        js=_SAVE_JS,
        api_visibility="private",
    )


def _settings(services: Services) -> list[Any]:
    """Method and parameters, in the order in which handlers take them."""
    names = services.methods.names
    method = gr.Radio(choices(names), value=names[0], label="Method", elem_id="run-method")
    defaults = RunParams()
    with gr.Accordion("Settings", open=False, elem_id="run-params"):
        turns = gr.Slider(1, 5, value=defaults.max_turns, step=1, label="Most turns", elem_id="run-turns")
        mode = gr.Radio(
            [("Largest logit", "argmax"), ("Draw from the softmax", "sample")],
            value=defaults.mode.value,
            label="How the coordinator chooses",
            elem_id="run-mode",
        )
        follow = gr.Checkbox(
            value=defaults.follow_thinker, label="Follow a Thinker's suggestion", elem_id="run-follow"
        )
        reuse = gr.Checkbox(
            value=defaults.reuse,
            label="Reuse stored replies",
            info="An agent that was sent exactly the same before is not called again.",
            elem_id="run-reuse",
        )
        with gr.Row():
            temperature = gr.Textbox(  # an empty number field becomes 0 as soon as the accordion is opened
                label="Temperature (empty: the agent's own)", elem_id="run-temperature", min_width=140
            )
            tokens = gr.Number(
                value=1024, minimum=1, maximum=32768, precision=0, label="Most tokens a turn", elem_id="run-tokens",
                min_width=140,
            )  # fmt: skip
            seed = gr.Number(value=0, minimum=0, precision=0, label="Seed", elem_id="run-seed", min_width=140)
    return [method, turns, mode, temperature, tokens, seed, follow, reuse]


def choices(names: Sequence[str]) -> list[tuple[str, str]]:
    """Methods as the page names them, with their own names."""
    return [(_METHOD_WORDS.get(name, name.replace("single:", "Only ")), name) for name in names]


def _welcome() -> str:
    """What the empty conversation says: examples to click."""
    buttons = "".join(
        f'<button type="button" class="tr-example" data-question="{render.esc(question)}">'
        f"<b>{render.esc(family)}</b> {render.esc(question)}</button>"
        for family, question in EXAMPLES
    )
    return (
        '<div class="tr-hold tr-empty tr-welcome"><p>A coordinator hands your question from agent to agent. '
        f'Some to try:</p><div class="tr-examples">{buttons}</div></div>'
    )


def request_params(
    method: str, turns: float, mode: str, temperature: str | float | None, tokens: float | None, seed: float | None,
    follow: bool, reuse: bool,
) -> tuple[str, RunParams, int]:  # fmt: skip
    """Method, parameters and seed from the settings' values. Raises InputError naming the one that cannot be used."""
    if turns is None or not 1 <= turns <= 5:
        raise InputError("The most turns must be a number from 1 to 5.")
    if tokens is None or not 1 <= tokens <= 32768:
        raise InputError("The most tokens a turn must be a number from 1 to 32,768.")
    warmth = _temperature(temperature)
    if seed is None or not 0 <= seed < 2**63:
        raise InputError("The seed must be a whole number that is not negative.")
    sampling = Sampling(max_tokens=int(tokens), temperature=warmth)
    params = RunParams(
        max_turns=int(turns), mode=Mode(mode), follow_thinker=bool(follow), sampling=sampling, reuse=bool(reuse)
    )
    return method, params, int(seed)


def _temperature(typed: str | float | None) -> float | None:
    """None when the field is empty. A browser that remembers an older page sends a number."""
    text = "" if typed is None else str(typed).strip().replace(",", ".")
    try:
        value = float(text) if text else None
    except ValueError:
        value = -1.0
    if value is not None and not 0 <= value <= 2:
        raise InputError("The temperature must be a number from 0 to 2, or empty.")
    return value


def remembered(saved: object, methods: Sequence[str]) -> Update:
    """The settings that a browser remembers, as updates. What it does not know (there were fewer settings when it
    remembered them) or what cannot be used (another pool's method) is left as it is."""
    unchanged: Update = [gr.skip()] * _SETTINGS
    if not isinstance(saved, list) or not 0 < len(saved) <= _SETTINGS or saved[0] not in methods:
        return unchanged
    return saved + unchanged[len(saved) :]


class _Handlers:
    """The tab's handlers. They hold no state of their own; everything is looked up by run id and owner."""

    def __init__(self, services: Services, runs: RunManager) -> None:
        self.services = services
        self.runs = runs

    async def ask(self, request: gr.Request, state: dict[str, Any] | None, query: str, *settings: Any) -> Update:
        """Start a run that continues the conversation; `follow` then shows it.

        Not one generator with `follow`: the page patches a generator's outputs in place, which would spoil `state`.
        """
        state = dict(state or {})
        owner = owner_of(request)
        try:
            method, params, seed = request_params(*settings)
            history = await self._history(state.get("run_id"), owner)
            message = Message("user", query or "")
            asked = RunRequest(
                (*history, message), method=method, source=Source.UI, params=params, seed=seed, owner=owner
            )
            run_id = await self.runs.start(asked)
        except TrinityError as problem:
            return [gr.skip(), gr.skip(), _problem(problem)]
        return ["", state | {"run_id": run_id, "draft": "", "params": list(settings)}, ""]

    async def restore(self, state: dict[str, Any] | None) -> Update:
        """When a page is opened or refreshed: bring back the draft and the settings; `follow` brings back the run."""
        state = state or {}
        draft = state.get("draft")
        names = self.services.methods.names
        settings = remembered(state.get("params"), names)
        method = settings[0] if settings[0] in names else names[0]
        settings[0] = gr.Radio(choices(names), value=method)  # what was built may belong to an older pool
        return [draft if isinstance(draft, str) and draft else gr.skip(), *settings]

    async def follow(self, state: dict[str, Any] | None, request: gr.Request) -> AsyncIterator[Update]:
        """Show the conversation's newest run until it ends, or once when it has ended."""
        run_id, owner = (state or {}).get("run_id"), owner_of(request)
        if not isinstance(run_id, str):
            yield [gr.skip()] * 9  # a generator that yields nothing would empty its outputs
        elif self.runs.knows(run_id, owner):
            async for update in self._follow(run_id, owner):
                yield update
        elif (view := await self._stored(run_id, owner)) is not None:
            yield [*_buttons(False), *_frame(view), self._today()]
        else:
            yield [gr.skip()] * 9

    async def stop(self, state: dict[str, Any] | None, request: gr.Request) -> None:
        """End the run that this page shows; its tail then shows the end."""
        run_id = (state or {}).get("run_id")
        if isinstance(run_id, str):
            self.runs.stop(run_id, owner_of(request))

    async def forget(self, state: dict[str, Any] | None, request: gr.Request) -> Update:
        """Begin a new conversation; a run under way is stopped."""
        await self.stop(state, request)
        state = dict(state or {})
        state.pop("run_id", None)
        frame = _frame(RunView())
        frame[0] = frame[-1] = ""
        return [state, "", *_buttons(False), *frame, self._today()]

    async def methods(self, chosen: str) -> Any:
        """The methods there are now; the pool may have changed since the page was opened."""
        names = self.services.methods.names
        return gr.Radio(choices(names), value=chosen if chosen in names else names[0])

    def _today(self) -> str:
        meter = self.services.roster.wiring.meter
        return render.day_total(meter.today(), meter.day)

    async def coordinator(self) -> Update:
        """The coordinator's line; once it no longer loads, the timer that asks is switched off."""
        status = self.services.coordinator_status()
        return [render.coordinator_line(status), gr.Timer(active=status.state == "loading")]

    async def _follow(self, run_id: str, owner: str) -> AsyncIterator[Update]:
        """Updates while a run goes on, at most one each `_FRAME_S`; unchanged parts are skipped.

        Not the buttons: a page that is being opened may miss an update, and Stop must not stay disabled.
        """
        view, shown = RunView(), [object()] * 7
        async for batch in self.runs.tail(run_id, owner):
            view.extend(batch)
            frame = [*_frame(view), self._today()] if batch or not view.seq else shown
            parts = [gr.skip() if new == old else new for new, old in zip(frame, shown, strict=True)]
            shown = frame
            yield [*_buttons(view.finished is None), *parts]
            await asyncio.sleep(_FRAME_S)

    async def _history(self, run_id: object, owner: str) -> tuple[Message, ...]:
        """The conversation that the next question continues. Raises InputError while its run goes on."""
        if not isinstance(run_id, str):
            return ()
        if self.runs.knows(run_id, owner):
            async for batch in self.runs.tail(run_id, owner):
                view = RunView.of(batch)
                if view.finished is None:
                    raise InputError("A run of this conversation is under way. Stop it first, or wait until it ends.")
                return view.conversation()
        stored = await self._stored(run_id, owner)
        return stored.conversation() if stored is not None else ()

    async def _stored(self, run_id: str, owner: str) -> RunView | None:
        """A finished run from the store, or None when it is not there or not this owner's."""
        return await asyncio.to_thread(load_view, self.services, run_id, owner)


def load_view(services: Services, run_id: str, owner: str | None) -> RunView | None:
    """The view of a stored run. None: no such run for this owner."""
    stored = services.store.run(run_id, owner)
    return None if stored is None else RunView.of(events_of(stored))


def _frame(view: RunView) -> Update:
    """The values of answer, lane, agent logits, role logits, heat map and status."""
    return [
        render.conversation(view),
        render.lane(view),
        figures(plots.panel(view, "agent")),
        figures(plots.panel(view, "role")),
        figures(plots.heat(view)),
        render.status_line(view, time.time()),
    ]


def _buttons(running: bool) -> Update:
    return [gr.Button(interactive=not running), gr.Button(interactive=running)]


def _problem(error: TrinityError) -> str:
    return f'<div class="tr-problem" role="alert" data-testid="run-problem">{render.esc(error)}</div>'
