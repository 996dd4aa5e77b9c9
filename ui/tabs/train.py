"""The Train tab: plan a training, start it, watch it, and put its checkpoint to use.

Handlers only ask and steer the `TrainingManager`; closing or refreshing the page ends no training. Once a second an
open tab asks whether anything changed, and only what changed is sent. Everybody sees all trainings; only whose it is
may steer or delete one. Deploying and reverting change what everybody's new runs use, as the Pool tab does, so
they are open to everybody who can open the page, and Revert undoes both.

Optional numbers are text boxes, because an empty number field becomes 0 when it is mounted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import gradio as gr

from trinity_core.config import Settings
from trinity_core.coordinator.heads import HEADS
from trinity_core.errors import InputError, TrinityError
from trinity_core.session.loading import checkpoint_path, deploy, deployed_id, revert
from trinity_core.training.plan import METHODS, Plan
from trinity_core.types import Limits
from ui import trainplots, trainview
from ui.live import figures, live
from ui.memberform import number_of
from ui.members import notice, problem
from ui.security import owner_of
from ui.training import Record, TrainingManager
from ui.trainview import METHOD_WORDS, InUse

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class TrainServices(Protocol):
        """The part of `ui.build.Services` that is used here."""

        @property
        def settings(self) -> Settings: ...

        @property
        def refit(self) -> Callable[[], None]: ...


Update = list[Any]
_DEFAULTS = Plan()
_DRAFT_KEY, _DRAFT_SECRET = "trinity-train", "trinity-train-v1"  # fixed, so that drafts outlive a restart
_PLOTS = ("train-fitness", "train-sigma", "train-agents", "train-roles", "train-candidates")
_SCREEN = 12
"""How many outputs show a training; see `Handlers.screen`."""


@dataclass(frozen=True, slots=True)
class Field:
    """A setting of the plan that is typed. `empty` says what an empty box means, "" that it may not be empty."""

    name: str
    label: str
    kind: Literal["whole", "real", "text", "list"]
    default: str = ""
    empty: str = ""


def _typed(name: str, label: str, kind: Literal["whole", "real"]) -> Field:
    value = getattr(_DEFAULTS, name)
    return Field(name, label, kind, f"{value:g}" if kind == "real" else str(value))


FIELDS = (
    _typed("evaluations", "Budget (evaluations)", "whole"),
    Field("population", "Candidates λ", "whole", "", "⌈4 + 3 ln n⌉"),
    _typed("sigma", "First step size σ", "real"),
    _typed("tasks_per_candidate", "Tasks per candidate", "whole"),
    _typed("runs", "Runs per task", "whole"),
    _typed("branch", "Smallest branch followed", "real"),
    _typed("max_turns", "Most turns K", "whole"),
    _typed("local_tokens", "Tokens, local members", "whole"),
    _typed("remote_tokens", "Tokens, remote members", "whole"),
    _typed("turn_cost", "Cost of a turn", "real"),
    _typed("validate_every", "Validate every … generations", "whole"),
    _typed("seed", "Seed", "whole"),
    Field("calls", "Limit: calls", "whole", "", "none"),
    Field("tokens", "Limit: tokens", "whole", "", "none"),
    Field("cost", "Limit: dollars", "real", "", "none"),
    Field("warm_start", "Begin from checkpoint", "text", "", "none"),
    Field("leave_out", "Leave out family", "text", "", "none"),
    Field("families", "Only these families", "list", "", "all; several with commas"),
)
CHOICES = ("method", "head", "svf", "estimator")
_LIMITS = ("calls", "tokens", "cost")


def plan_of(values: Sequence[Any]) -> Plan:
    """The plan that the form's values (CHOICES, then FIELDS) describe. Raises InputError naming the field."""
    method, head, svf, estimator = values[: len(CHOICES)]
    given: dict[str, Any] = {"method": method, "head": head, "svf": bool(svf), "estimator": estimator}
    limits: dict[str, Any] = {}
    for field, value in zip(FIELDS, values[len(CHOICES) :], strict=True):
        made = _value(field, "" if value is None else str(value).strip())
        if field.name in _LIMITS:
            limits[field.name] = made
        elif made is not None:
            given[field.name] = made
    return Plan(**given, limits=Limits(**limits))


def _value(field: Field, text: str) -> Any:
    if not text:
        if field.empty:
            return None
        raise InputError(f"{field.label}: a number is needed, for example {field.default}.")
    if field.kind == "text":
        return text
    if field.kind == "list":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    plain = text.replace(" ", "").replace("_", "")
    number = number_of(plain.replace(",", "") if field.kind == "whole" else plain.replace(",", "."), field.label)
    if field.kind == "whole" and not isinstance(number, int):
        raise InputError(f"{field.label}: a whole number is needed, such as 4.")
    if field.name in _LIMITS and number < 0:
        raise InputError(f"{field.label}: a limit cannot be below 0. Leave the field empty for no limit.")
    return float(number) if field.kind == "real" else number


def build(page: gr.Blocks, tabs: gr.Tabs, tab: gr.Tab, services: TrainServices, training: TrainingManager) -> None:
    """Add the tab's components and events to the open Blocks `page`."""
    handlers = Handlers(services, training)
    chosen, overlay, seen = gr.State(None), gr.State(()), gr.State("")
    draft = gr.BrowserState([], storage_key=_DRAFT_KEY, secret=_DRAFT_SECRET)
    with gr.Row(elem_id="train-columns"):
        with gr.Column(scale=4, min_width=320, elem_id="train-left"):
            form = _form()
            start = gr.Button("Start", variant="primary", elem_id="train-start", size="md")
            checked = live("html", "train-preflight")
        with gr.Column(scale=9, min_width=320, elem_id="train-right"):
            note = live("html", "train-note")  # hidden while it is empty
            status = live("html", "train-status")
            with gr.Row(elem_id="train-buttons"):
                pause, resume, stop = (
                    gr.Button(word, elem_id=f"train-{word.lower()}", size="md", min_width=90, interactive=False)
                    for word in ("Pause", "Resume", "Stop")
                )
            plots = [_plot(_PLOTS[0])]
            with gr.Row(elem_classes="tr-train-pair"):
                plots += [_plot(_PLOTS[1]), _plot(_PLOTS[4])]
            with gr.Row(elem_classes="tr-train-pair"):
                plots += [_plot(_PLOTS[2]), _plot(_PLOTS[3])]
            with gr.Column(elem_id="train-checkpoint"):
                comparison = live("html", "train-comparison")
                with gr.Row(elem_id="train-deploy-row"):
                    use = gr.Button("Deploy this checkpoint", elem_id="train-deploy", size="md", interactive=False)
                    back = gr.Button("Revert to the previous one", elem_id="train-revert", size="md")
            listed = live("html", "train-runs")
    timer = gr.Timer(1.0, active=False)  # until the tab is opened

    ordered = [plots[0], plots[1], plots[3], plots[4], plots[2]]  # fitness, σ, agents, roles, candidates
    screen = [status, *ordered, listed, comparison, pause, resume, stop, use]
    private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "concurrency_limit": None}
    looking = [chosen, overlay]
    gr.on([page.load], handlers.linked, None, [tabs, timer], **private)
    opened = tab.select(handlers.opened, looking, [seen, *screen, timer], **private)
    opened.then(handlers.restore, [draft], form, **private).then(
        handlers.check, form, [checked, start], trigger_mode="always_last", **private
    )
    timer.tick(handlers.tick, [*looking, seen], [seen, *screen], **private)
    changed = [one.input if isinstance(one, gr.Radio | gr.Checkbox) else one.blur for one in form]
    gr.on(changed, handlers.check, form, [checked, start], trigger_mode="always_last", **private)
    gr.on(changed, None, form, [draft], js="(...values) => [values]", api_visibility="private")
    begun = [note, chosen, seen, *screen]
    start.click(handlers.start, [*looking, *form], begun, **private)
    status.pick(handlers.start, [*looking, *form], begun, **private)
    pause.click(handlers.pause, looking, begun, **private)
    resume.click(handlers.resume, looking, begun, **private)
    stop.click(handlers.stop, looking, begun, **private)
    use.click(handlers.deploy, looking, begun, **private)
    back.click(handlers.revert, looking, begun, **private)
    for panel in (listed, note):
        panel.pick(handlers.act, looking, [overlay, *begun], **private)


def _form() -> list[Any]:
    """The plan's fields in the order of CHOICES and FIELDS."""
    method = gr.Radio(
        [(METHOD_WORDS.get(name, name), name) for name in METHODS], value=_DEFAULTS.method, label="Method",
        elem_id="train-method",
    )  # fmt: skip
    head = gr.Radio(list(HEADS), value=_DEFAULTS.head, label="Head", elem_id="train-head")
    svf = gr.Checkbox(
        value=_DEFAULTS.svf, label="Adapt the backbone too (SVF)", elem_id="train-svf",
        info="Singular values of some layers are scaled; slower, because stored states do not fit.",
    )  # fmt: skip
    boxes = [_box(FIELDS[0])]
    with gr.Accordion("Advanced", open=False, elem_id="train-advanced"):
        estimator = gr.Radio(
            [("Expectation over branches", "expectation"), ("Sampled runs", "sampled")],
            value=_DEFAULTS.estimator, label="How fitness is estimated", elem_id="train-estimator",
        )  # fmt: skip
        for place in range(1, len(FIELDS), 2):
            with gr.Row():
                boxes += [_box(field) for field in FIELDS[place : place + 2]]
    return [method, head, svf, estimator, *boxes]


def _box(field: Field) -> gr.Textbox:
    return gr.Textbox(
        value=field.default, label=field.label, placeholder=field.empty, min_width=140,
        elem_id=f"train-{field.name.replace('_', '-')}",
    )  # fmt: skip


def _plot(elem_id: str) -> gr.HTML:
    return gr.HTML(
        value=figures({"figure": None, "title": "", "empty": ""}),
        elem_id=elem_id,
        html_template='<div class="tr-hold tr-train-plot"></div>',
        js_on_load="window.trinityTrain.mount(element, props, watch);",
        apply_default_css=False,
    )


class Handlers:
    """The tab's handlers. They hold no state; `chosen` is the training a page shows, None for the newest."""

    def __init__(self, services: TrainServices, training: TrainingManager) -> None:
        self.services = services
        self.training = training

    # --- Showing ------------------------------------------------------------------------------------------

    async def linked(self, request: gr.Request) -> Update:
        """The page was opened, perhaps by a link to this tab."""
        if dict(request.query_params).get("tab") == "train":
            return [gr.Tabs(selected="train"), gr.Timer(active=True)]
        return [gr.skip(), gr.skip()]

    async def opened(self, request: gr.Request, chosen: str | None, overlay: Sequence[str]) -> Update:
        return [*await self._shown(request, chosen, overlay), gr.Timer(active=True)]

    async def tick(self, request: gr.Request, chosen: str | None, overlay: Sequence[str], seen: str) -> Update:
        """Once a second; whatever is the same as before is not sent."""
        if seen == self._key(chosen, overlay):
            return [gr.skip()] * (1 + _SCREEN)
        return await self._shown(request, chosen, overlay)

    async def restore(self, draft: object) -> Update:
        """What was typed here before, as far as it fits the form."""
        count = len(CHOICES) + len(FIELDS)
        if not isinstance(draft, list) or len(draft) != count:
            return [gr.skip()] * count
        fits = draft[0] in METHODS and draft[1] in HEADS
        return list(draft) if fits else [gr.skip()] * count

    async def check(self, request: gr.Request, *values: Any) -> Update:
        """The preflight of what the form says; Start is off while there are problems."""
        try:
            found = await self.training.preflight(plan_of(values), owner_of(request))
        except TrinityError as error:
            return [problem(error), gr.Button(interactive=False)]
        return [trainview.preflight(found), gr.Button(interactive=found.ready)]

    def _key(self, chosen: str | None, overlay: Sequence[str]) -> str:
        """Changes whenever the screen would."""
        return repr((self.training.revision, chosen, tuple(overlay), self._deployed_mark()))

    def _deployed_mark(self) -> float:
        try:
            return self.services.settings.deployed.stat().st_mtime
        except OSError:
            return 0.0

    async def _shown(self, request: gr.Request, chosen: str | None, overlay: Sequence[str]) -> Update:
        key = self._key(chosen, overlay)
        try:
            return [key, *await asyncio.to_thread(self.screen, owner_of(request), chosen, tuple(overlay))]
        except TrinityError as error:
            return [key, problem(error), *[gr.skip()] * (_SCREEN - 1)]

    def screen(self, owner: str | None, chosen: str | None, overlay: Sequence[str]) -> Update:
        """Status, five plots, list, comparison, and the four buttons. Blocks on the disk."""
        now = self.training.status
        records = self.training.records()
        shown = self._chosen(chosen, records)
        others = [one for one in map(self.training.record, overlay) if one is not None and one is not shown]
        busy = now.state in ("preparing", "running")
        steer = now.busy and self.training.may_steer(now, owner)
        live_one = shown is None or shown.job_id == now.job_id
        resumable = shown is not None and shown.state in ("paused", "interrupted") and not now.busy
        used = self._in_use(records, shown)
        deployable = shown is not None and shown.checkpoint_id is not None and shown.checkpoint_id != used.id
        mine = shown is None or self.training.may_steer(shown, owner)
        return [
            trainview.status(now, shown, mine),
            *(figures(one) for one in trainplots.all_figures(shown, others)),
            trainview.runs(records, shown.job_id if shown else None, overlay, owner),
            trainview.deploying(shown, used),
            gr.Button("Pausing…" if now.state == "pausing" and live_one else "Pause", interactive=steer and busy),
            gr.Button(interactive=bool(resumable and mine)),
            gr.Button(
                "Stopping…" if now.state == "stopping" and live_one else "Stop",
                interactive=steer and now.state != "stopping",
            ),
            gr.Button(interactive=bool(deployable)),
        ]

    def _chosen(self, chosen: str | None, records: Sequence[Record]) -> Record | None:
        """The training to show: the chosen one, else the one under way, else the newest."""
        now = self.training.status
        wanted = chosen or now.job_id or (records[0].job_id if records and not now.busy else None)
        found = self.training.record(wanted) if wanted else None
        if found is None and chosen:
            return self._chosen(None, records)
        return found

    def _in_use(self, records: Sequence[Record], shown: Record | None) -> InUse:
        try:
            used = deployed_id(self.services.settings)
        except TrinityError as error:
            return InUse(problem=str(error))
        made = next((one for one in records if used is not None and one.checkpoint_id == used), None)
        if made is None:
            return InUse(used)
        accuracy = trainview.held(made)
        mine = trainview.held(shown) if shown is not None else None
        same = shown is None or trainview.plan_words(shown.plan) == trainview.plan_words(made.plan)
        return InUse(used, accuracy, same_tasks=same and (mine is None or accuracy is None or mine.n == accuracy.n))

    # --- Steering -----------------------------------------------------------------------------------------

    async def start(self, request: gr.Request, chosen: str | None, overlay: Sequence[str], *values: Any) -> Update:
        said = ""
        try:
            await self.training.start(plan_of(values), owner_of(request))
            chosen = None  # whoever starts a training wants to see it
        except TrinityError as error:
            said = problem(error)
        return await self._after(request, said, chosen, overlay)

    async def pause(self, request: gr.Request, chosen: str | None, overlay: Sequence[str]) -> Update:
        return await self._after(request, self._steered(request, self.training.pause), chosen, overlay)

    async def stop(self, request: gr.Request, chosen: str | None, overlay: Sequence[str]) -> Update:
        return await self._after(request, self._steered(request, self.training.stop), chosen, overlay)

    @staticmethod
    def _steered(request: gr.Request, steer: Callable[[str | None], bool]) -> str:
        """Pause or stop; what went wrong, as markup."""
        try:
            steer(owner_of(request))
        except TrinityError as error:
            return problem(error)
        return ""

    async def resume(self, request: gr.Request, chosen: str | None, overlay: Sequence[str]) -> Update:
        said = ""
        try:
            shown = await asyncio.to_thread(self._shown_record, chosen)
            await self.training.resume(shown.job_id, owner_of(request))
        except TrinityError as error:
            said = problem(error)
        return await self._after(request, said, chosen, overlay)

    def _shown_record(self, chosen: str | None) -> Record:
        shown = self._chosen(chosen, self.training.records())
        if shown is None:
            raise InputError("There is no training to choose yet. Start one first.")
        return shown

    # --- Checkpoints and the list -------------------------------------------------------------------------

    async def deploy(self, request: gr.Request, chosen: str | None, overlay: Sequence[str]) -> Update:
        """Use the shown training's checkpoint for all new runs."""
        try:
            said = await asyncio.to_thread(self._deploy, chosen)
        except (TrinityError, OSError) as error:
            said = problem(error)
        return await self._after(request, said, chosen, overlay)

    def _deploy(self, chosen: str | None) -> str:
        shown = self._shown_record(chosen)
        if shown.checkpoint_id is None:
            raise InputError("This training has no checkpoint yet.")
        path = checkpoint_path(self.services.settings, shown.checkpoint_id)
        if not path.is_file():
            raise InputError(
                f"The file {path} is missing, so this checkpoint cannot be used. Put it back, or train again."
            )
        before = InUse(deployed_id(self.services.settings)).words
        deploy(self.services.settings, shown.checkpoint_id)
        self.services.refit()
        words = f"Deployed checkpoint {shown.checkpoint_id[:12]}; it replaced {before}. New runs use it from now on."
        return notice(words, kind="done")

    async def revert(self, request: gr.Request, chosen: str | None, overlay: Sequence[str]) -> Update:
        """Use again what was used before."""
        try:
            said = await asyncio.to_thread(self._revert)
        except (TrinityError, OSError) as error:
            said = problem(error)
        return await self._after(request, said, chosen, overlay)

    def _revert(self) -> str:
        before = deployed_id(self.services.settings)
        now = revert(self.services.settings)
        if now == before:
            return notice("Nothing was deployed before, so there is nothing to go back to.")
        self.services.refit()
        return notice(f"In use again: {InUse(now).words}.", kind="done")

    async def act(
        self, event: gr.EventData, request: gr.Request, chosen: str | None, overlay: Sequence[str]
    ) -> Update:
        """A button in the list or in a notice."""
        pressed: Mapping[str, Any] = event._data or {}
        what, target = str(pressed.get("act", "")), str(pressed.get("id", ""))
        overlay, said = tuple(overlay), ""
        try:
            if what == "view":
                chosen, overlay = target, tuple(one for one in overlay if one != target)
            elif what == "overlay":
                overlay = self._overlaid(overlay, target)
            elif what == "ask-delete":
                said = notice(
                    "Delete this training with its curve? Its checkpoint stays. This cannot be undone.", kind="warn",
                    buttons=(("delete", target, "Delete it"), ("keep", target, "Keep it")),
                )  # fmt: skip
            elif what == "delete":
                await asyncio.to_thread(self.training.delete, target, owner_of(request))
                chosen, overlay = None if chosen == target else chosen, tuple(o for o in overlay if o != target)
                said = notice("The training is deleted.", kind="done")
        except TrinityError as error:
            said = problem(error)
        return [overlay, *await self._after(request, said, chosen, overlay)]

    @staticmethod
    def _overlaid(overlay: tuple[str, ...], target: str) -> tuple[str, ...]:
        if target in overlay:
            return tuple(one for one in overlay if one != target)
        if len(overlay) >= trainplots.OVERLAY - 1:
            raise InputError(f"At most {trainplots.OVERLAY} trainings fit into one plot. Take one out first.")
        return (*overlay, target)

    async def _after(self, request: gr.Request, said: str, chosen: str | None, overlay: Sequence[str]) -> Update:
        return [said, chosen, *await self._shown(request, chosen, overlay)]
