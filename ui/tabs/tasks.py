"""The Tasks tab: what training learns from. Find, write, import, add and delete tasks; label answers one by one.

The owner rule holds in every handler: one's own tasks and everybody's are seen, new ones are one's own. Labels are
saved at once; a task is deleted only after a question, and can be brought back. What was typed is never lost to an
error. Grades are shown in words; a judge is not asked here.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Protocol

import gradio as gr

from storage.records import StoredRun, StoredTask
from trinity_core.errors import InputError, TrinityError
from trinity_core.tasks import graders
from trinity_core.tasks.importing import MAX_BYTES, Defaults, columns, read_tasks
from trinity_core.tasks.task import Task, to_jsonl
from trinity_core.types import AgentSpec
from ui import tasklist
from ui.live import live
from ui.members import notice, problem
from ui.render import esc
from ui.security import owner_of
from ui.tasklist import DOWN, FORM, PARAMS, UP, Desk, Query

if TYPE_CHECKING:
    from storage.store import Store

Update = list[Any]

_EXPORT_KEPT_S = 300.0
_DOWNLOAD_JS = "() => setTimeout(() => window.trinity.press('tasks-download'), 150)"
_FILES = [".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt"]
_FILTERS = ("family", "split", "grader", "source", "trains")
START: dict[str, Any] = {"query": Query(), "open": None, "deleted": None, "draft": None}
QUEUE: dict[str, Any] = {"ids": (), "id": None, "done": ()}
_LISTED, _FORMED, _QUEUED = 7, 4 + len(FORM), 5
"""How many outputs the list, the form and the queue have; see `build`."""


class TaskServices(Protocol):
    """What the tab needs of the page's services."""

    @property
    def store(self) -> Store: ...

    @property
    def pool(self) -> tuple[AgentSpec, ...]: ...


def build(page: gr.Blocks, tabs: gr.Tabs, tab: gr.Tab, services: TaskServices) -> None:
    """Add the tab's components and events to the open Blocks `page`."""
    handlers = Handlers(services)
    state = gr.State(START)
    summary = live("html", "tasks-summary")  # these two are hidden while they are empty
    note = live("html", "tasks-note")
    with gr.Tabs(elem_id="tasks-views", selected="list") as views:
        with gr.Tab("All tasks", id="list", elem_id="tasks-list") as list_tab, gr.Row(elem_id="tasks-columns"):
            with gr.Column(scale=7, min_width=320, elem_id="tasks-left"):
                table = _table()
            with gr.Column(scale=5, min_width=320, elem_id="tasks-side"):
                with gr.Column(elem_id="tasks-right"):
                    form = _form(services)
                with gr.Accordion("Import a file", open=True, elem_id="tasks-import-box"):
                    importer = _importer()
                with gr.Accordion("Built-in families", open=True, elem_id="tasks-families-box"):
                    families = live("html", "tasks-families")
        with gr.Tab("Label answers", id="queue", elem_id="tasks-queue", render_children=True) as queue_tab:
            card = _queue()

    private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "concurrency_limit": None}
    listing = [state, summary, table["filters"], table["listed"], table["previous"], table["following"], families]
    fields = [form[name] for name in FORM]
    forming = [form["title"], form["links"], form["status"], form["note"], *fields]

    page.load(handlers.opened, [state], [*listing, tabs], **private)
    gr.on([tab.select, list_tab.select], handlers.refresh, [state], listing, **private)
    search = table["search"]
    gr.on([search.change, search.submit], handlers.find, [state, search], listing,
          trigger_mode="always_last", **private)  # fmt: skip
    table["previous"].click(handlers.previous, [state], listing, **private)
    table["following"].click(handlers.following, [state], listing, **private)
    for panel in (table["filters"], table["listed"], families, form["links"], note):
        panel.pick(handlers.act, [state, *fields], [*listing, *forming, note, search, views], **private)
    table["export"].click(handlers.export, [state], [table["download"]], **private).success(
        None, None, None, js=_DOWNLOAD_JS, api_visibility="private"
    )
    settings = [form[name] for name in PARAMS]
    form["grader"].change(handlers.fit_grader, [form["grader"]], [form["note"], *settings], **private)
    form["save"].click(handlers.save, [state, *fields], [*listing, *forming], **private)
    form["try"].click(handlers.try_it, [state, form["reply"], *fields], [form["graded"]], **private)
    _import_events(handlers, importer, state, listing, private)
    _queue_events(handlers, card, [tab, queue_tab], summary, private)


def _import_events(
    handlers: Handlers, made: dict[str, Any], state: gr.State, listing: Update, private: dict[str, Any]
) -> None:
    file, preview, result = made["file"], made["preview"], made["result"]
    upload = made["upload"]
    gr.on([upload.upload, upload.clear], handlers.look, [upload], [file, preview, result, made["go"]], **private)
    turns = _in_turn(private, "tasks-import")
    preview.pick(handlers.map_column, [file], [file, preview], **turns)
    made["take"].click(handlers.take, [state, file, made["default"]], [*listing, result], **turns)


def _queue_events(
    handlers: Handlers, made: dict[str, Any], opened: Sequence[gr.Tab], summary: gr.HTML, private: dict[str, Any]
) -> None:
    asked = [made["queue"], made["right"], made["how"]]
    outputs = [made["queue"], made["card"], made["right"], made["how"], made["said"]]
    turns = _in_turn(private, "tasks-queue")
    gr.on([tab.select for tab in opened], handlers.queue, [made["queue"]], outputs, **turns)
    made["card"].pick(handlers.judge, asked, [*outputs, summary], **turns)
    gr.on([made["keep"].click, made["right"].submit], handlers.right, asked, [*outputs, summary], **turns)


def _in_turn(private: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Options of events that change one state: none is dropped while another is under way, and each sees what the one
    before it left."""
    return {**private, "concurrency_id": name, "concurrency_limit": 1, "trigger_mode": "multiple"}


def _table() -> dict[str, Any]:
    """The list with search, filters and pages."""
    made: dict[str, Any] = {}
    with gr.Row(elem_id="tasks-top"):
        made["search"] = gr.Textbox(
            label="Search tasks",
            show_label=False,
            placeholder="Search questions, references and tags",
            elem_id="tasks-search",
            container=False,
            scale=5,
            min_width=160,
        )
        made["export"] = gr.Button("Export JSONL", elem_id="tasks-export", size="md", scale=0, min_width=130)
    made["filters"] = live("html", "tasks-filters", tasklist.filters((), Query()))
    made["listed"] = live("html", "tasks-table")
    with gr.Row(elem_id="tasks-pager"):
        made["previous"] = gr.Button("← Newer", elem_id="tasks-previous", size="sm", min_width=90)
        made["following"] = gr.Button("Older →", elem_id="tasks-next", size="sm", min_width=90)
    made["download"] = gr.DownloadButton("Download", elem_id="tasks-download", visible="hidden")
    return made


def _form(services: TaskServices) -> dict[str, Any]:
    """One task: its fields, saving and deleting it, and trying its grader."""
    title = live("html", "task-title", tasklist.form_title(None))
    made = {"title": title, **_fields(services), "status": live("html", "task-status")}
    made["save"] = gr.Button("Save", variant="primary", elem_id="task-save", size="md")
    made["links"] = live("html", "task-links")
    with gr.Accordion("Try it on a reply", open=True, elem_id="task-try-box"):
        made["reply"] = gr.Textbox(
            label="A reply",
            lines=3,
            max_lines=12,
            elem_id="task-try",
            placeholder="Paste what a model might say, such as “Answer: 42”.",
        )
        made["try"] = gr.Button("Grade it", elem_id="task-try-start", size="sm")
        made["graded"] = live("html", "task-try-result")
    return made


def _importer() -> dict[str, Any]:
    """A file, its preview and its columns; the button is shown once there is something to import."""
    made: dict[str, Any] = {"file": gr.State(None)}
    made["upload"] = gr.File(
        label="Drop a JSONL or CSV file (UTF-8)",
        elem_id="tasks-import",
        file_types=_FILES,
        type="filepath",
        height=120,
    )
    made["preview"] = live("html", "tasks-preview")
    with gr.Column(visible=False, elem_id="tasks-import-go") as made["go"]:
        made["default"] = gr.Radio(
            [("By the answer's form", ""), *tasklist.grader_choices()],
            value="",
            label="Grader where the file names none",
            elem_id="tasks-import-grader",
        )
        made["take"] = gr.Button("Import", variant="primary", elem_id="tasks-import-start", size="md")
    made["result"] = live("html", "tasks-import-result")
    return made


def _queue() -> dict[str, Any]:
    """One answer to judge, and its right answer."""
    made: dict[str, Any] = {"queue": gr.State(QUEUE)}
    with gr.Row(elem_id="queue-columns"):
        with gr.Column(scale=7, min_width=320, elem_id="queue-left"):
            made["card"] = live("html", "queue-card")
        with gr.Column(scale=4, min_width=320, elem_id="queue-right"):
            made["right"] = gr.Textbox(
                label="Reference: the right answer (E)",
                lines=1,
                max_lines=6,
                elem_id="queue-reference",
                info="Right (1) makes a task of it. After Wrong (2), type the right answer and press Enter.",
            )
            choices = tasklist.grader_choices()
            made["how"] = gr.Radio(choices, value="exact", label="Grader of the task", elem_id="queue-grader")
            made["keep"] = gr.Button("Save the right answer", variant="primary", elem_id="queue-save", size="md")
            made["said"] = live("html", "queue-note")
    return made


def _fields(services: TaskServices) -> dict[str, Any]:
    """The form's components by name. Settings are shown for the graders that have them."""
    made: dict[str, Any] = {
        "question": gr.Textbox(label="Question", lines=3, max_lines=14, elem_id="task-question"),
        "reference": gr.Textbox(label="Reference: the right answer", lines=1, max_lines=8, elem_id="task-reference"),
        "grader": gr.Radio(tasklist.grader_choices(), value="exact", label="Grader", elem_id="task-grader"),
        "note": live("html", "task-grader-note", tasklist.grader_note("exact")),
    }
    shown = tasklist.shown_params("exact")

    def text(name: str, label: str, lines: int = 1, **options: Any) -> None:
        made[name] = gr.Textbox(
            label=label, lines=lines, max_lines=14, elem_id=f"task-{name}", visible=name in shown, **options
        )

    text("choices", "Options, one a line", 4, placeholder="A) red\nB) blue")
    text("tolerance", "Tolerance, as a share of the answer", placeholder="0.000001, or such as 1 %")
    text("accept", "Also right, one a line", 2)
    made["case"] = gr.Checkbox(label="Upper and lower case differ", elem_id="task-case", visible=True)
    text("flags", "Pattern flags", placeholder="letters of ims: case, lines, dot")
    made["where"] = gr.Checkbox(label="Look in the whole reply", elem_id="task-where", visible=False)
    text("tests", "Tests", 5, placeholder="assert add(2, 3) == 5")
    text("entry", "Function or class that is asked for", placeholder="add")
    names = [spec.name for spec in services.pool]
    made["judge"] = gr.Dropdown(
        names, value=None, label="Judge", elem_id="task-judge", visible=False, allow_custom_value=True
    )
    text("rubric", "What counts (optional)", 2)
    with gr.Row():
        made["family"] = gr.Textbox(label="Family", lines=1, elem_id="task-family", min_width=120)
        made["tags"] = gr.Textbox(label="Tags, with commas between", lines=1, elem_id="task-tags", min_width=120)
    return made


# --- Handlers -----------------------------------------------------------------------------------------------------


class Handlers:
    """The tab's handlers. The list's state: the query, the id of the task in the form, the task deleted last. The
    queue's: ids of the runs, the one that is shown, those that were labelled."""

    def __init__(self, services: TaskServices) -> None:
        self.services = services
        self.desk = Desk(services.store)

    # --- The list

    async def opened(self, request: gr.Request, state: dict[str, Any]) -> Update:
        """The page was opened, perhaps by a link to this tab."""
        linked = dict(request.query_params).get("tab") == "tasks"
        if not linked:
            return [gr.skip()] * (_LISTED + 1)
        return [*await self._list(request, state), gr.Tabs(selected="tasks")]

    async def refresh(self, request: gr.Request, state: dict[str, Any]) -> Update:
        return await self._list(request, state)

    async def find(self, request: gr.Request, state: dict[str, Any], search: str) -> Update:
        """The search changed: show the first page."""
        query = replace(state["query"], search=(search or "")[:1000], page=1)
        return await self._list(request, state | {"query": query})

    async def previous(self, request: gr.Request, state: dict[str, Any]) -> Update:
        return await self._turn(request, state, -1)

    async def following(self, request: gr.Request, state: dict[str, Any]) -> Update:
        return await self._turn(request, state, 1)

    async def _turn(self, request: gr.Request, state: dict[str, Any], by: int) -> Update:
        query = state["query"]
        return await self._list(request, state | {"query": replace(query, page=max(1, query.page + by))})

    async def act(self, request: gr.Request, event: gr.EventData, state: dict[str, Any], *values: Any) -> Update:
        """Something in the list, the filters, the families or below the form was pressed. What was typed into the
        form and not saved is put aside when another task takes its place, and can be brought back."""
        pressed: Mapping[str, Any] = event._data or {}
        what, target = str(pressed.get("act", "")), str(pressed.get("id", ""))
        owner = owner_of(request)
        form: Update = [gr.skip()] * _FORMED
        note: Any = gr.skip()
        search, view = gr.skip(), gr.skip()
        try:
            if what in ("open", "delete"):
                stored = await self._stored(owner, target)
                same = what == "delete" or state["open"] == target
                note = ""
                if not same:
                    state, note = await self._aside(owner, state, values)
                state = state | {"open": target}
                links = tasklist.form_links(stored.task, confirm=what == "delete")
                form = [gr.skip(), links, *[gr.skip()] * (_FORMED - 2)] if same else self._filled(stored.task)
            elif what == "delete-yes":
                gone = await asyncio.to_thread(self.desk.delete, owner, target)
                state = state | {"open": None, "deleted": gone}
                form = self._filled(None)
                note = notice("The task was deleted.", kind="done", buttons=[("undo", gone.task.id, "Undo")])
            elif what == "undo" and isinstance(state["deleted"], StoredTask):
                back = state["deleted"]
                await asyncio.to_thread(self.desk.restore, back)
                state, form = state | {"open": back.task.id, "deleted": None}, self._filled(back.task)
                note = notice("The task is back.", kind="done")
            elif what == "new":
                state, note = await self._aside(owner, state, values)
                state, form = state | {"open": None}, self._filled(None)
            elif what == "draft" and state["draft"]:
                before, typed = state["draft"]
                kept = await asyncio.to_thread(self.desk.task, owner, before) if before else None
                state = state | {"open": before if kept else None, "draft": None}
                form, note = [*self._filled(kept.task if kept else None)[: -len(FORM)], *typed], ""
            elif what == "family-add":
                count = await asyncio.to_thread(self.desk.add_family, owner, target)
                words = f"{count:,} built-in tasks were added." if count else "All of these tasks are there already."
                note = notice(words, kind="done")
            elif what == "family-remove":
                count = await asyncio.to_thread(self.desk.remove_family, owner, target)
                again = [("family-add", target, "Undo")] if count else []
                note = notice(f"{count:,} tasks of {target.replace('_', ' ')} were removed.", buttons=again)
            elif what == "filter":
                name, _, value = target.partition("=")
                if name in _FILTERS:
                    state = state | {"query": replace(state["query"], **{name: value, "page": 1})}
            elif what == "clear":
                state, search = state | {"query": Query()}, ""
            elif what == "label":
                view = gr.Tabs(selected="queue")
        except TrinityError as error:
            note = problem(error)
        return [*await self._list(request, state), *form, note, search, view]

    async def export(self, request: gr.Request, state: dict[str, Any]) -> Any:
        """Write the tasks that match the filters into a file for the browser to fetch."""
        folder = Path(tempfile.mkdtemp(prefix="trinity-export-"))
        forget = threading.Timer(_EXPORT_KEPT_S, rmtree, (folder, True))
        forget.daemon = True
        forget.start()
        path = folder / "trinity-tasks.jsonl"

        def write() -> None:
            path.write_text(to_jsonl(self.desk.matching(owner_of(request), state["query"])), encoding="utf-8")

        try:
            await asyncio.to_thread(write)
        except (TrinityError, OSError) as error:
            raise gr.Error(esc(error), print_exception=False) from None
        return gr.DownloadButton(value=str(path))

    # --- The form

    async def fit_grader(self, grader: str) -> Update:
        """Say what the grader does, and show the settings it has."""
        shown = tasklist.shown_params(grader or "")
        return [tasklist.grader_note(grader or ""), *(gr.update(visible=name in shown) for name in PARAMS)]

    async def save(self, request: gr.Request, state: dict[str, Any], *values: Any) -> Update:
        """Store the form's task, in place of the one that is edited."""
        owner = owner_of(request)
        try:
            old = await self._opened(owner, state)
            task = tasklist.task_of(values, old.task if old else None)
            there = await asyncio.to_thread(self.desk.task, owner, task.id)
            if there is not None and (old is None or there.task.id != old.task.id):
                words = "Saved before: this task is there already, with the same question, answer and grader."
                return [*[gr.skip()] * _LISTED, *self._said(notice(words, buttons=()))]
            if old is None:
                await asyncio.to_thread(self.desk.add, owner, [task])
            else:
                await asyncio.to_thread(self.desk.change, owner, old, task)
        except TrinityError as error:
            return [*[gr.skip()] * _LISTED, *self._said(problem(error))]
        why = tasklist.trouble(task)
        said = notice(f"Saved; it is in the {task.split} split." + (f" It cannot train: {why}" if why else ""),
                      kind="warn" if why else "done")  # fmt: skip
        listed = await self._list(request, state | {"open": task.id})
        head = [tasklist.form_title(task), tasklist.form_links(task), said, gr.skip()]
        return [*listed, *head, *[gr.skip()] * len(FORM)]

    async def try_it(self, request: gr.Request, state: dict[str, Any], reply: str, *values: Any) -> str:
        """Grade a pasted reply by the form's task, saved or not."""
        try:
            old = await self._opened(owner_of(request), state)
            task = tasklist.task_of(values, old.task if old else None)
            if not (reply or "").strip():
                raise InputError("Paste a reply to grade.")
            grade = await asyncio.to_thread(graders.grade, task, reply)
        except TrinityError as error:
            return problem(error)
        return tasklist.graded(task, grade)

    # --- Import

    async def look(self, path: str | None) -> Update:
        """A file was dropped, or taken away again."""
        if not path:
            return [None, "", "", gr.update(visible=False)]
        name = Path(path).name
        try:
            found = await asyncio.to_thread(lambda: columns(_read(path), name))
        except (TrinityError, OSError) as error:
            return [None, "", problem(error), gr.update(visible=False)]
        file = {"path": path, "name": name, "columns": found, "mapping": dict(found.guess)}
        return [file, tasklist.preview(found, found.guess, name), "", gr.update(visible=True)]

    async def map_column(self, event: gr.EventData, file: dict[str, Any] | None) -> Update:
        """Another column was chosen for a field."""
        field, _, column = str((event._data or {}).get("id", "")).partition("=")
        if file is None:
            return [gr.skip(), gr.skip()]
        mapping = {name: value for name, value in file["mapping"].items() if name != field}
        if column:
            mapping[field] = column
        return [file | {"mapping": mapping}, tasklist.preview(file["columns"], mapping, file["name"])]

    async def take(
        self, request: gr.Request, state: dict[str, Any], file: dict[str, Any] | None, grader: str | None
    ) -> Update:
        """Import the file's tasks; say what became of every line."""
        skipped = [gr.skip()] * _LISTED
        if file is None:
            return [*skipped, problem(InputError("Drop a file first."))]
        defaults = Defaults(grader=grader or "", source=file["name"][:80])

        def work() -> str:
            made = read_tasks(_read(file["path"]), file["name"], file["mapping"], defaults)
            return tasklist.imported(made, self.desk.add(owner_of(request), made.tasks))

        try:
            said = await asyncio.to_thread(work)
        except (TrinityError, OSError) as error:
            return [*skipped, problem(error)]
        return [*await self._list(request, state), said]

    # --- The labelling queue

    async def queue(self, request: gr.Request, queue: dict[str, Any]) -> Update:
        """The queue was opened: what is new comes in, and the run that was shown stays."""
        owner = owner_of(request)
        try:
            waiting = await asyncio.to_thread(self.desk.queue, owner)
        except TrinityError as error:
            return [gr.skip(), gr.skip(), gr.skip(), gr.skip(), problem(error)]
        kept = tuple(run_id for run_id in queue["ids"] if run_id in waiting or run_id in queue["done"])
        ids = (*kept, *(run_id for run_id in waiting if run_id not in kept))
        shown = queue["id"] if queue["id"] in ids else next((i for i in ids if i not in queue["done"]), None)
        return await self._shown(owner, queue | {"ids": ids, "id": shown}, "", queue["id"] != shown)

    async def judge(
        self, request: gr.Request, event: gr.EventData, queue: dict[str, Any], reference: str, grader: str | None
    ) -> Update:
        """A button of the card, or its key, was pressed."""
        pressed: Mapping[str, Any] = event._data or {}
        what, run_id = str(pressed.get("act", "")), str(pressed.get("id", ""))
        owner = owner_of(request)
        if what == "reload":
            return [*await self.queue(request, QUEUE), gr.skip()]
        if what in ("next", "previous"):
            return [*await self._shown(owner, _moved(queue, 1 if what == "next" else -1), ""), gr.skip()]
        if what not in ("right", "wrong") or run_id != queue["id"]:
            return [gr.skip()] * (_QUEUED + 1)
        try:
            run = await self._run(owner, run_id)
            if what == "right":
                return await self._learn(owner, queue, run, reference, grader, UP)
            await asyncio.to_thread(self.desk.judge, owner, run, DOWN)
        except TrinityError as error:
            return [*[gr.skip()] * (_QUEUED - 1), problem(error), gr.skip()]
        said = notice("Marked wrong and kept as a negative. Type the right answer and press Enter, or skip.")
        queue = queue | {"done": tuple(dict.fromkeys((*queue["done"], run_id)))}
        return [*await self._shown(owner, queue, said, fill=False), await self._summary(owner)]

    async def right(self, request: gr.Request, queue: dict[str, Any], reference: str, grader: str | None) -> Update:
        """The right answer of the shown run was typed."""
        owner = owner_of(request)
        try:
            if queue["id"] is None:
                raise InputError("There is no answer to label.")
            run = await self._run(owner, queue["id"])
            same = (reference or "").strip() in ((run.answer or "").strip(), tasklist.answer_of(run))
            thumb = tasklist.thumb_of(run, owner)
            if thumb == DOWN and same:
                raise InputError("You marked this answer wrong. Type the right one, or press 1 to mark it right.")
            return await self._learn(owner, queue, run, reference, grader, thumb or (UP if same else DOWN))
        except TrinityError as error:
            return [*[gr.skip()] * (_QUEUED - 1), problem(error), gr.skip()]

    async def _learn(
        self, owner: str, queue: dict[str, Any], run: StoredRun, reference: str, grader: str | None, thumb: str
    ) -> Update:
        """Save thumb and right answer, make the task, show the next run."""
        if not (reference or "").strip():
            raise InputError("The right answer is empty. Press E and type it.")

        def work() -> tuple[Task, bool]:
            self.desk.judge(owner, run, thumb)
            judged = self.desk.run(owner, run.id) or run
            task = tasklist.task_from_run(judged, reference, grader=grader or "")
            return task, self.desk.answer(owner, run, task)

        task, new = await asyncio.to_thread(work)
        why = tasklist.trouble(task)
        said = notice(
            (f"A new task with the answer “{task.reference[:60]}”, in the {task.split} split."
             if new else "Labelled; this task is there already.") + (f" It cannot train: {why}" if why else ""),
            kind="warn" if why else "done",
        )  # fmt: skip
        queue = queue | {"done": tuple(dict.fromkeys((*queue["done"], run.id)))}
        return [*await self._shown(owner, _moved(queue, 1, unlabelled=True), said), await self._summary(owner)]

    async def _shown(self, owner: str, queue: dict[str, Any], said: str, fill: bool = True) -> Update:
        """The queue with its run of now; `fill` puts that run's own answer into the reference field."""
        ids: Sequence[str] = queue["ids"]
        run = None
        if queue["id"] is not None:
            run = await asyncio.to_thread(self.desk.run, owner, queue["id"])
        at = ids.index(queue["id"]) if run is not None else 0
        card = tasklist.card(run, at, len(ids), owner, len(queue["done"]))
        if not fill:
            return [queue, card, gr.skip(), gr.skip(), said]
        if run is None:
            return [queue | {"id": None}, card, "", gr.skip(), said]
        answer = tasklist.right_answer(run, owner)
        return [queue, card, answer, tasklist.grader_of(run, answer), said]

    async def _run(self, owner: str, run_id: str) -> StoredRun:
        run = await asyncio.to_thread(self.desk.run, owner, run_id)
        if run is None:
            raise InputError("There is no such trace any more. Press J for the next one.")
        return run

    async def _summary(self, owner: str) -> str:
        return await asyncio.to_thread(lambda: tasklist.summary(self.desk.tasks(owner)))

    # --- Parts

    async def _list(self, request: gr.Request, state: dict[str, Any]) -> Update:
        """Everything that shows stored tasks."""
        owner = owner_of(request)
        query: Query = state["query"]

        def work() -> Update:
            tasks = self.desk.tasks(owner)
            page = self.desk.page(owner, query)
            return [
                state | {"query": replace(query, page=page.page)},
                tasklist.summary(tasks),
                tasklist.filters(tasks, query),
                tasklist.table(page, query, state["open"]),
                gr.Button(interactive=page.page > 1),
                gr.Button(interactive=page.page < page.last),
                tasklist.families(tasks),
            ]

        try:
            return await asyncio.to_thread(work)
        except TrinityError as error:
            off = gr.Button(interactive=False)
            return [state, "", gr.skip(), problem(error), off, off, gr.skip()]

    async def _stored(self, owner: str, task_id: str) -> StoredTask:
        stored = await asyncio.to_thread(self.desk.task, owner, task_id)
        if stored is None:
            raise InputError("There is no such task here. It was deleted, or it belongs to another browser.")
        return stored

    async def _aside(self, owner: str, state: dict[str, Any], values: Sequence[Any]) -> tuple[dict[str, Any], str]:
        """The state with the form's unsaved values, and a notice that brings them back; as it was without any."""
        old = await self._opened(owner, state)
        shown = tasklist.values_of(old.task if old else None)
        if not values or all(str(a or "") == str(b or "") for a, b in zip(values, shown, strict=True)):
            return state, ""
        words = "What you typed into the form was not saved; it is put aside."
        return state | {"draft": (state["open"], list(values))}, notice(
            words, buttons=[("draft", "", "Bring it back")]
        )

    async def _opened(self, owner: str, state: dict[str, Any]) -> StoredTask | None:
        """The task in the form; one that was deleted meanwhile is saved as a new one."""
        return await asyncio.to_thread(self.desk.task, owner, state["open"]) if state["open"] else None

    @staticmethod
    def _filled(task: Task | None) -> Update:
        """The form for `task`."""
        values = tasklist.values_of(task)
        note = tasklist.grader_note(task.grader if task else "exact")
        return [tasklist.form_title(task), tasklist.form_links(task), "", note, *values]

    @staticmethod
    def _said(message: str) -> Update:
        return [gr.skip(), gr.skip(), message, gr.skip(), *[gr.skip()] * len(FORM)]


def _read(path: str) -> bytes:
    """The bytes of an uploaded file, one more than are allowed at most."""
    with Path(path).open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


def _moved(queue: dict[str, Any], by: int, *, unlabelled: bool = False) -> dict[str, Any]:
    """The queue one run further or back; `unlabelled` goes on to the next one that was not labelled, round about."""
    ids: tuple[str, ...] = queue["ids"]
    if not ids:
        return queue
    at = ids.index(queue["id"]) if queue["id"] in ids else 0
    if unlabelled:
        rest = (*ids[at + 1 :], *ids[: at + 1])
        return queue | {"id": next((run_id for run_id in rest if run_id not in queue["done"]), None)}
    return queue | {"id": ids[min(max(at + by, 0), len(ids) - 1)]}
