"""The part of the store that the Tasks page uses: tasks, and the answered runs that wait for a label.

A task belongs to an owner or to everybody ("" in the table), so the same content may be there twice. Shown are one's
own and everybody's. Deleting is for good; `add_stored_tasks` puts back what was handed out before.

Search is for the text as it stands, in any case. On SQLite a function of ours folds case, because SQLite's own does
so for ASCII only; it reads every task, which for tens of thousands of them takes less than a tenth of a second.

Not covered: grading, and making a task of a run (its maker names the run to `add_tasks`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, get_args

from sqlalchemy import ColumnElement, Connection, FromClause, Row, and_, delete, func, or_, select

from storage import listing
from storage.database import Database
from storage.records import (
    LabelPage,
    LabelQuery,
    LabelRow,
    RunQuery,
    StoredTask,
    TaskCount,
    TaskPage,
    TaskQuery,
    Thumb,
)
from storage.rows import finite, json_value, optional_text, text
from storage.schema import labels, runs, tasks
from trinity_core import wire
from trinity_core.errors import InputError
from trinity_core.tasks.task import Task
from trinity_core.types import Source, Status

CHUNK = 500
"""Values in one statement; both engines limit the number of parameters."""
THUMB = "thumb"
"""Kind of the label that says whether an answer is right: `up` or `down`."""

UNFINISHED = (Status.QUEUED.value, Status.RUNNING.value)
"""States of a run or a training that somebody is at work on."""
_FILTERS = ("family", "split", "grader", "source")


class TaskStore:
    """Base of `Lab`. Methods commit before they return and raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # --- Writing --------------------------------------------------------------------------------------------

    def add_tasks(self, new: Iterable[Task], *, owner: str | None = None, run_id: str | None = None) -> int:
        """Store tasks; return how many are new. One that is there already takes over family, tags and source."""
        return self.add_stored_tasks([StoredTask(task, owner, run_id) for task in new])

    def add_stored_tasks(self, stored: Iterable[StoredTask]) -> int:
        """Store tasks with their owner, run and time (0: now), as after a deletion that is undone; return how many
        are new.

        One that is there already takes over family, tags and source. A run that is gone by now is left out.
        """
        values = [_task_values(one) for one in stored]
        if not values:
            return 0
        with self._database.write() as connection:
            return self._insert(connection, values)

    def delete_tasks(self, ids: Iterable[str], owner: str | None = None) -> int:
        """Delete `owner`'s tasks (None: everybody's); return how many there were."""
        wanted = [text(task_id) for task_id in ids]
        gone = 0
        with self._database.write() as connection:
            for some in chunks(wanted):
                where = tasks.c.id.in_(some), tasks.c.owner == text(owner or "")
                gone += connection.execute(delete(tasks).where(*where)).rowcount
        return gone

    def replace_task(self, old_id: str, new: Task, owner: str | None = None) -> StoredTask:
        """Put `new` in the place of `owner`'s task (None: everybody's), whose run and time it keeps; return it.

        Both happen or neither. When `new` is there already the two become one. Raises InputError when there is no
        such task.
        """
        mine = tasks.c.owner == text(owner or "")
        with self._database.write() as connection:
            where = tasks.c.id == text(old_id), mine
            row = connection.execute(select(tasks).where(*where).with_for_update()).first()
            if row is None:
                raise InputError("There is no such task. It was deleted, or it belongs to somebody else.")
            old = _task(row)
            connection.execute(delete(tasks).where(*where))
            self._insert(connection, [_task_values(replace(old, task=new))])
            return _task(connection.execute(select(tasks).where(tasks.c.id == text(new.id), mine)).one())

    def _insert(self, connection: Connection, values: list[dict[str, Any]]) -> int:
        known = _there(connection, {v["run_id"] for v in values if v["run_id"] is not None})
        # In one order, so that two transactions never wait for each other on PostgreSQL.
        values = sorted(values, key=lambda v: (v["id"], v["owner"]))
        for value in values:
            if value["run_id"] not in known:
                value["run_id"] = None
        keys = {(v["id"], v["owner"]) for v in values}
        before = 0
        for owner in {key[1] for key in keys}:
            for some in chunks(sorted(key[0] for key in keys if key[1] == owner)):
                where = tasks.c.owner == owner, tasks.c.id.in_(some)
                before += connection.execute(select(func.count()).select_from(tasks).where(*where)).scalar_one()
        statement = self._database.insert(tasks)
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=["id", "owner"],
                set_={name: statement.excluded[name] for name in ("family", "tags", "source")}
                # A task that was written by hand is worth no less when a run gives it too.
                | {"run_id": func.coalesce(tasks.c.run_id, statement.excluded.run_id)},
            ),
            values,
        )
        return len(keys) - before

    # --- Reading --------------------------------------------------------------------------------------------

    def task(self, task_id: str, owner: str | None = None) -> StoredTask | None:
        """A task of `owner`'s or everybody's; one's own when both have it."""
        shown = tasks.c.owner.in_({"", text(owner or "")})
        statement = select(tasks).where(tasks.c.id == text(task_id), shown).order_by(tasks.c.owner.desc())
        with self._database.read() as connection:
            row = connection.execute(statement).first()
        return None if row is None else _task(row)

    def tasks(
        self,
        owner: str | None = None,
        *,
        all_owners: bool = False,
        split: str | None = None,
        source: str | None = None,
        family: str | None = None,
        grader: str | None = None,
        search: str = "",
    ) -> tuple[StoredTask, ...]:
        """Tasks of `owner` and everybody's that match (see `TaskQuery`), oldest first."""
        query = TaskQuery(search, owner, all_owners, family, split, grader, source)
        with self._database.read() as connection:
            where = self._matching(connection, query)
            ordered = select(tasks).where(*where).order_by(tasks.c.created_at, tasks.c.id, tasks.c.owner)
            return tuple(_task(row) for row in connection.execute(ordered))

    def task_page(self, query: TaskQuery) -> TaskPage:
        """One page of tasks, newest first. Raises InputError for a search that is too long."""
        size, page = min(max(query.page_size, 1), listing.MAX_PAGE_SIZE), max(query.page, 1)
        with self._database.read() as connection:
            where = self._matching(connection, query)
            total = connection.execute(select(func.count()).select_from(tasks).where(*where)).scalar_one()
            keys = (tasks.c.created_at.desc(), tasks.c.id.desc(), tasks.c.owner.desc())
            statement = select(tasks).where(*where).order_by(*keys).limit(size).offset((page - 1) * size)
            return TaskPage(tuple(_task(row) for row in connection.execute(statement)), total, page, size)

    def task_counts(self, query: TaskQuery | None = None) -> tuple[TaskCount, ...]:
        """How many tasks match, by family, split, grader and source, in that order; page and size play no part."""
        by = [tasks.c[name] for name in _FILTERS]
        with self._database.read() as connection:
            where = self._matching(connection, query or TaskQuery())
            rows = connection.execute(select(*by, func.count()).where(*where).group_by(*by)).all()
        return tuple(TaskCount(*row) for row in sorted(tuple(row) for row in rows))

    def _matching(self, connection: Connection, query: TaskQuery) -> list[ColumnElement[bool]]:
        found: list[ColumnElement[bool]] = []
        if not query.all_owners:
            found.append(tasks.c.owner.in_({"", text(query.owner or "")}))
        for name in _FILTERS:
            if (value := getattr(query, name)) is not None:
                found.append(tasks.c[name] == text(value))
        term = text(query.search).strip()
        if len(term) > listing.MAX_SEARCH_CHARS:
            raise InputError(f"Search for at most {listing.MAX_SEARCH_CHARS} characters.")
        if term:
            columns = (tasks.c.question, tasks.c.reference)
            if self._database.sqlite:
                driver: Any = connection.connection.driver_connection
                driver.create_function("trinity_lower", 1, _lower, deterministic=True)
                found.append(or_(*(func.instr(func.trinity_lower(c), term.lower()) > 0 for c in columns)))
            else:
                found.append(or_(*(c.icontains(term, autoescape=True) for c in columns)))
        return found

    # --- Labelling ------------------------------------------------------------------------------------------

    def labelling_queue(self, query: LabelQuery) -> LabelPage:
        """Answered runs to label, newest first, with how many there are of each thumb.

        Raises InputError for an unknown thumb or a search that is too long.
        """
        if query.thumb is not None and query.thumb not in get_args(Thumb):
            raise InputError(f"Unknown thumb {query.thumb!r}; there are {', '.join(get_args(Thumb))}.")
        size, page = min(max(query.page_size, 1), listing.MAX_PAGE_SIZE), max(query.page, 1)
        asked = RunQuery(search=query.search, owner=query.owner, all_owners=query.all_owners)
        where = [
            *listing.conditions(asked, self._database.sqlite),
            runs.c.answer != "",
            runs.c.status.not_in(UNFINISHED),
            runs.c.source != Source.TRAIN.value,
        ]
        seen = [] if query.all_owners else [tasks.c.owner.in_({"", text(query.owner or "")})]
        made = select(tasks.c.id).where(tasks.c.run_id == runs.c.id, *seen).correlate(runs)
        newest = made.order_by(tasks.c.created_at.desc(), tasks.c.id.desc()).limit(1).scalar_subquery()
        if query.without_task:
            where.append(~made.exists())
        marks = _newest_thumbs(query.labeller)
        joined = runs.outerjoin(marks, and_(marks.c.run_id == runs.c.id, marks.c.nth == 1))
        of_thumb: list[ColumnElement[bool]] = []
        if query.thumb is not None:
            of_thumb.append(marks.c.value.is_(None) if query.thumb == "unlabelled" else marks.c.value == query.thumb)
        shown = select(
            runs.c.id.label("run_id"),
            runs.c.created_at,
            runs.c.owner,
            runs.c.question,
            runs.c.answer,
            func.json_array_length(runs.c.messages).label("messages"),
            marks.c.value.label("thumb"),
            newest.label("task_id"),
        ).select_from(joined)
        keys = (runs.c.created_at.desc(), runs.c.id.desc())
        paged = shown.where(*where, *of_thumb).order_by(*keys).limit(size).offset((page - 1) * size)
        tally = select(marks.c.value, func.count()).select_from(joined).where(*where).group_by(marks.c.value)
        with self._database.read() as connection:
            rows = tuple(LabelRow(**row._mapping) for row in connection.execute(paged))
            found = {row[0]: int(row[1]) for row in connection.execute(tally)}
        counts: dict[Thumb, int] = {
            "unlabelled": found.get(None, 0),
            "up": found.get("up", 0),
            "down": found.get("down", 0),
        }
        total = sum(found.values()) if query.thumb is None else counts[query.thumb]
        return LabelPage(rows, total, page, size, counts)


def chunks(values: Sequence[str]) -> Iterable[Sequence[str]]:
    """`values` in pieces that one statement takes."""
    return (values[start : start + CHUNK] for start in range(0, len(values), CHUNK))


def _newest_thumbs(labeller: str | None) -> FromClause:
    """(run_id, value, nth) of the thumbs on whole runs, the newest of a run having nth 1."""
    by = [] if labeller is None else [labels.c.labeller == text(labeller)]
    newest_first = (labels.c.created_at.desc(), labels.c.id.desc())
    nth = func.row_number().over(partition_by=labels.c.run_id, order_by=newest_first)
    where = labels.c.kind == THUMB, labels.c.turn_id.is_(None), *by
    return select(labels.c.run_id, labels.c.value, nth.label("nth")).where(*where).subquery("thumbs")


def _lower(value: str | None) -> str | None:
    return None if value is None else value.lower()


def _there(connection: Connection, run_ids: Iterable[str]) -> set[str]:
    """Those of the runs that the database has, kept from being purged until the transaction ends."""
    found: set[str] = set()
    for some in chunks(sorted(run_ids)):
        statement = select(runs.c.id).where(runs.c.id.in_(some)).with_for_update(read=True, key_share=True)
        found |= set(connection.execute(statement).scalars())
    return found


def _task_values(stored: StoredTask) -> dict[str, Any]:
    task = stored.task
    return {
        **{name: text(getattr(task, name)) for name in ("id", "question", "reference", "grader", "family", "source")},
        "owner": text(stored.owner or ""),
        "split": task.split,
        "tags": json_value(task.tags) or None,
        "params": json_value(task.params) or None,
        "run_id": optional_text(stored.run_id),
        "created_at": finite(stored.created_at) or time.time(),
    }


def _task(row: Row[Any]) -> StoredTask:
    m = row._mapping
    task = {name: m[name] for name in Task.__dataclass_fields__} | {
        "tags": row.tags or [],
        "params": row.params or {},
    }
    return StoredTask(wire.record(Task, task), row.owner or None, row.run_id, row.created_at)
