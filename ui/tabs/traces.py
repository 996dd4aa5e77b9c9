"""The Traces tab: find, read, share, export and delete what was run.

Paging, order, search and filters are the store's SQL; a list never loads bodies, and a trace is loaded when it is
opened. The owner rule holds in every handler: one's own traces and those without an owner (from the command line or
an import); everybody's only when asked for on a server without logins.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, cast, get_args

import gradio as gr

from storage.exchange import export_jsonl
from storage.records import RunQuery, SortKey
from trinity_core.errors import InputError, TrinityError
from trinity_core.types import Source, Status, StopReason, Verdict
from ui import render, trace
from ui.live import live
from ui.security import owner_of

if TYPE_CHECKING:
    from ui.build import Services

Update = list[Any]

_EXPORT_KEPT_S = 300.0
START: dict[str, Any] = {"page": 1, "sort": "created_at", "descending": True, "filters": {}, "open": None}
_DOWNLOAD_JS = "() => setTimeout(() => window.trinity.press('traces-download'), 150)"


def build(page: gr.Blocks, tabs: gr.Tabs, tab: gr.Tab, services: Services, *, login: bool) -> None:
    """Add the tab's components and events to the open Blocks `page`."""
    handlers = _Handlers(services, login)
    state = gr.State(START)
    with gr.Row(elem_id="traces-columns"):
        with gr.Column(scale=6, min_width=320, elem_id="traces-left"):
            with gr.Row(elem_id="traces-top"):
                search = gr.Textbox(
                    label="Search traces",
                    show_label=False,
                    placeholder="Search questions, answers and turns  ( / )",
                    elem_id="traces-search",
                    container=False,
                    scale=5,
                    min_width=200,
                )
                export = gr.Button("Export JSONL", elem_id="traces-export", size="md", scale=0, min_width=140)
            filters = live("html", "traces-filters", handlers.filters({}))
            everybody = gr.Checkbox(
                label="Traces of all browsers", elem_id="traces-all", visible=not login, container=False
            )
            listed = live("html", "traces-table")
            with gr.Row(elem_id="traces-pager"):
                previous = gr.Button("← Newer", elem_id="traces-previous", size="sm", min_width=90)
                following = gr.Button("Older →", elem_id="traces-next", size="sm", min_width=90)
            download = gr.DownloadButton("Download", elem_id="traces-download", visible="hidden")
        with gr.Column(scale=6, min_width=320, elem_id="traces-right"):  # hidden while it is empty
            shown = live("html", "trace-detail")

    private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "concurrency_limit": None}
    asked = [state, search, everybody]
    outputs = [state, listed, shown, previous, following]
    gr.on([search.change, search.submit, everybody.input], handlers.find, asked, outputs,
          trigger_mode="always_last", **private)  # fmt: skip
    gr.on([tab.select], handlers.refresh, asked, outputs, **private)
    listed.pick(handlers.act, asked, [*outputs, search, filters], **private)
    filters.pick(handlers.act, asked, [*outputs, search, filters], **private)
    shown.pick(handlers.act, asked, [*outputs, search, filters], **private)
    previous.click(handlers.previous, asked, outputs, **private)
    following.click(handlers.following, asked, outputs, **private)
    page.load(handlers.link, [state], [*outputs, tabs], **private)
    export.click(handlers.export, asked, [download], **private).success(
        None, None, None, js=_DOWNLOAD_JS, api_visibility="private"
    )


class _Handlers:
    """The tab's handlers. `state` is plain data: page, order, filters, and the open trace's id."""

    def __init__(self, services: Services, login: bool) -> None:
        self.store = services.store
        self.login = login
        self.choices: dict[str, tuple[str, dict[str, str]]] = {
            "status": ("Status", {s.value: render.STATUS_WORDS[s] for s in Status}),
            "verdict": ("Verdict", {v.value: word for v, (_, word) in render.VERDICT_WORDS.items()}),
            "stop_reason": ("Ended because", {r.value: word for r, word in render.STOP_WORDS.items()}),
            "agent": ("Agent", {spec.name: spec.name for spec in services.pool}),
            "method": ("Method", {name: name for name in services.methods.names}),
            "source": ("Source", {s.value: s.value for s in Source}),
        }

    # --- Events -------------------------------------------------------------------------------------------

    async def find(self, request: gr.Request, state: dict[str, Any], search: str, everybody: bool) -> Update:
        """The search or the scope changed: show the first page."""
        return await self._list(request, state | {"page": 1}, search, everybody)

    async def refresh(self, request: gr.Request, state: dict[str, Any], search: str, everybody: bool) -> Update:
        """The tab was opened."""
        return await self._list(request, state, search, everybody)

    async def previous(self, request: gr.Request, state: dict[str, Any], search: str, everybody: bool) -> Update:
        return await self._list(request, state | {"page": max(1, state["page"] - 1)}, search, everybody)

    async def following(self, request: gr.Request, state: dict[str, Any], search: str, everybody: bool) -> Update:
        return await self._list(request, state | {"page": state["page"] + 1}, search, everybody)

    async def link(self, request: gr.Request, state: dict[str, Any]) -> Update:
        """A page was opened, perhaps by a link to a trace or to this tab."""
        asked = dict(request.query_params)
        run_id = asked.get("trace")
        if not run_id:
            tabs = gr.Tabs(selected="traces") if asked.get("tab") == "traces" else gr.skip()
            return [*[gr.skip()] * 5, tabs]
        state = state | {"open": run_id}
        listed = await self._list(request, state, "", False)
        listed[2] = await self._detail(request, run_id, False)
        return [*listed, gr.Tabs(selected="traces")]

    async def act(
        self, request: gr.Request, event: gr.EventData, state: dict[str, Any], search: str, everybody: bool
    ) -> Update:
        """Something in the table, the filters or the detail was pressed; `event` says what, and on which id."""
        pressed: Mapping[str, Any] = event._data or {}
        what, target = str(pressed.get("act", "")), str(pressed.get("id", ""))
        box: Update = [gr.skip(), gr.skip()]
        pane: Any = gr.skip()
        if what in ("open", "delete"):
            state = state | {"open": target}
            pane = await self._detail(request, target, everybody, confirm=what == "delete")
        elif what == "delete-yes":
            await self._in_store(self.store.delete_runs, request, target, everybody)
            state, pane = state | {"open": None}, trace.deleted(target)
        elif what == "undo":
            await self._in_store(self.store.restore_runs, request, target, everybody)
            state = state | {"open": target}
            pane = await self._detail(request, target, everybody)
        elif what == "close":
            state, pane = state | {"open": None}, ""
        elif what == "sort" and target in get_args(SortKey):
            same = state["sort"] == target
            state = state | {"sort": target, "descending": not state["descending"] if same else True, "page": 1}
        elif what == "filter":
            name, _, value = target.partition("=")
            chosen = {**state["filters"], name: value}
            state = state | {"filters": {k: v for k, v in chosen.items() if v and k in self.choices}, "page": 1}
        elif what == "clear":
            state, search = state | {"filters": {}, "page": 1}, ""
            box = ["", self.filters({})]
        listed = await self._list(request, state, search, everybody)
        listed[2] = pane
        return [*listed, *box]

    async def export(self, request: gr.Request, state: dict[str, Any], search: str, everybody: bool) -> Any:
        """Write what the current filters show into a file for the browser to fetch."""
        query = self._query(request, state, search, everybody)
        folder = Path(tempfile.mkdtemp(prefix="trinity-export-"))
        forget = threading.Timer(_EXPORT_KEPT_S, rmtree, (folder, True))
        forget.daemon = True
        forget.start()
        path = folder / "trinity-traces.jsonl"

        def write() -> None:
            with path.open("wb") as out:
                export_jsonl(self.store, out, query)

        try:
            await asyncio.to_thread(write)
        except (TrinityError, OSError) as error:
            raise gr.Error(render.esc(error), print_exception=False) from None
        return gr.DownloadButton(value=str(path))

    # --- Parts --------------------------------------------------------------------------------------------

    def filters(self, chosen: Mapping[str, str]) -> str:
        """The filters as native selects, which keyboards and screen readers know."""
        parts = []
        for name, (word, values) in self.choices.items():
            options = f'<option value="">{word}: any</option>' + "".join(
                f'<option value="{render.esc(value)}"{" selected" if chosen.get(name) == value else ""}>'
                f"{render.esc(label)}</option>"
                for value, label in values.items()
            )
            parts.append(f'<select name="{name}" aria-label="{word}" data-filter="{name}">{options}</select>')
        return f'<div class="tr-filters" role="group" aria-label="Filters">{"".join(parts)}</div>'

    def _query(self, request: gr.Request, state: Mapping[str, Any], search: str, everybody: bool) -> RunQuery:
        chosen = state["filters"]
        return RunQuery(
            search=search or "",
            owner=owner_of(request),
            all_owners=bool(everybody) and not self.login,
            status=Status(chosen["status"]) if "status" in chosen else None,
            verdict=Verdict(chosen["verdict"]) if "verdict" in chosen else None,
            stop_reason=StopReason(chosen["stop_reason"]) if "stop_reason" in chosen else None,
            source=Source(chosen["source"]) if "source" in chosen else None,
            agent=chosen.get("agent"),
            method=chosen.get("method"),
            sort=cast(SortKey, state["sort"]),
            descending=bool(state["descending"]),
            page=int(state["page"]),
        )

    async def _list(self, request: gr.Request, state: dict[str, Any], search: str, everybody: bool) -> Update:
        """The table for `state`, leaving the detail pane alone; a page past the end becomes the last one."""
        try:
            query = self._query(request, state, search, everybody)
            page = await asyncio.to_thread(self.store.list_runs, query)
            last = max(1, -(-page.total // page.page_size))
            if page.page > last:
                query = replace(query, page=last)
                page = await asyncio.to_thread(self.store.list_runs, query)
        except TrinityError as error:
            problem = f'<div class="tr-problem" role="alert">{render.esc(error)}</div>'
            return [state, problem, gr.skip(), gr.Button(interactive=False), gr.Button(interactive=False)]
        state = state | {"page": page.page}
        return [
            state,
            trace.table(page, query, state["open"]),
            gr.skip(),
            gr.Button(interactive=page.page > 1),
            gr.Button(interactive=page.page < last),
        ]

    async def _detail(self, request: gr.Request, run_id: str, everybody: bool, *, confirm: bool = False) -> str:
        all_owners = bool(everybody) and not self.login
        try:
            run = await asyncio.to_thread(self.store.run, run_id, owner_of(request), all_owners=all_owners)
        except TrinityError as error:
            return trace.nothing(str(error))
        if run is None:
            return trace.nothing("There is no such trace here. It was deleted, or it belongs to another browser.")
        return trace.detail(run, confirm=confirm)

    async def _in_store(self, change: Any, request: gr.Request, run_id: str, everybody: bool) -> None:
        try:
            done = await asyncio.to_thread(
                change, [run_id], owner_of(request), all_owners=bool(everybody) and not self.login
            )
            if not done:
                raise InputError("There is no such trace here.")
        except TrinityError as error:
            raise gr.Error(render.esc(error), print_exception=False) from None
