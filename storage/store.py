"""The store: everything Trinity keeps, behind one class.

Invariants: a method that returns has committed. Every error of the database is a StoreError that names the fix.
Whatever is handed out is a frozen record. Lists load no bodies. Methods block and may be called from any thread;
`record` alone is for the event loop, and does its work in a thread.

Owners: rows of an owner are seen, changed and deleted by that owner alone, rows without one (command line,
imports) by everybody, and `all_owners=True` sees everything. The default, owner None, sees rows without one.

Deleting is soft: `delete_runs`, then `restore_runs` or `purge_deleted`.

Not covered: access rights beyond that rule, and moving a database from one engine to the other (export, import).
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import Connection, Row, and_, delete, insert, select, update

from storage import joblog, lab, listing, recording, replay, spending
from storage.database import Database
from storage.lab import Lab
from storage.records import (
    Label,
    LabelPage,
    LabelQuery,
    LabelRow,
    RunPage,
    RunQuery,
    RunSummary,
    StoredCheckpoint,
    StoredGeneration,
    StoredNote,
    StoredRun,
    StoredTask,
    StoredTurn,
    TaskCount,
    TaskPage,
    TaskQuery,
    TrainingRun,
)
from storage.rows import label_of, label_values, run_of, run_values, text, turn_values
from storage.schema import labels, runs, turns
from storage.taskstore import UNFINISHED, chunks
from trinity_core import wire
from trinity_core.agents.meter import Spent
from trinity_core.errors import InputError
from trinity_core.types import AnyJobEvent, AnyRunEvent, Usage

__all__ = [
    "Label",
    "LabelPage",
    "LabelQuery",
    "LabelRow",
    "RunPage",
    "RunQuery",
    "RunSummary",
    "Store",
    "StoredCheckpoint",
    "StoredGeneration",
    "StoredNote",
    "StoredRun",
    "StoredTask",
    "StoredTurn",
    "TaskCount",
    "TaskPage",
    "TaskQuery",
    "TrainingRun",
]

_EXPORT_BATCH = 50


class Store(Lab):
    """Runs, turns and labels. `Lab` adds tasks, training, checkpoints, replies and hidden states."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trinity-store")

    @classmethod
    def open(cls, url: str) -> Store:
        """Connect to `url` (see Settings.db_url) and bring the schema up to date.

        Safe when several processes do it at once. Raises StoreError when the database is from a newer version,
        read-only, damaged, locked, on a full disk or out of reach.
        """
        return cls(Database(url))

    def close(self) -> None:
        """Finish the writes under way and let go of the database."""
        self._writer.shutdown(wait=True)
        self._database.close()

    # --- Writing runs ---------------------------------------------------------------------------------------

    def record(self, events: AsyncIterator[AnyRunEvent]) -> AsyncGenerator[AnyRunEvent, None]:
        """Pass the events of one run through, storing them on the way.

        A turn is committed before its `turn_finished` is passed on; the text of a running turn about once a
        second. Closing or cancelling the result closes `events` too and leaves the run `cancelled`; when `events`
        raises, the run is `failed` and the error goes on. Raises StoreError, after closing `events`, when a write
        fails; what was committed stays. Close the result (`contextlib.aclosing`) when not reading to the end.
        """
        return recording.record(self._database, self._writer, events)

    def record_job(
        self, events: AsyncIterator[AnyJobEvent], *, owner: str | None = None
    ) -> AsyncGenerator[AnyJobEvent, None]:
        """Pass the events of one training job through, storing them on the way under the job's id, as `owner`'s.

        A job whose id is there already goes on with its row (resume), whose owner stays. Closing, errors and
        StoreError are as with `record`; StoreError too when another process that lives is at work on that row.
        """
        return joblog.record_job(self, self._writer, events, owner)

    def recover(self) -> int:
        """Mark runs whose process died as interrupted, keeping what had arrived; return how many.

        Runs of processes that live are left alone (see `lease`). Training runs are treated alike, not counted.
        """
        lab.recover(self._database)
        return recording.recover(self._database)

    # --- Spending (trinity_core.agents.meter.Ledger) ----------------------------------------------------------

    def spent(self, since: float) -> Spent:
        """All calls to remote members at `since` (epoch seconds) or later, those of deleted runs too."""
        return spending.spent(self._database, since)

    def add_spending(
        self, *, at: float, agent: str, run_id: str | None, usage: Usage, cost: float | None, failed: bool
    ) -> None:
        """Commit one call to a remote member, or one attempt of it. `cost` in dollars, None when it is not known."""
        spending.add(self._database, at=at, agent=agent, run_id=run_id, usage=usage, cost=cost, failed=failed)

    # --- Reading runs ---------------------------------------------------------------------------------------

    def list_runs(self, query: RunQuery) -> RunPage:
        """One page of runs. Raises InputError for an unknown sort column or an overlong search."""
        with self._database.read() as connection:
            return listing.page_of(connection, query, self._database.sqlite)

    def run(self, run_id: str, owner: str | None = None, *, all_owners: bool = False) -> StoredRun | None:
        """A run with all that belongs to it, also one in the bin; None when the owner rule hides it."""
        statement = select(runs).where(runs.c.id == text(run_id), *listing.visible(runs, owner, all_owners))
        with self._database.read() as connection:
            found = self._whole(connection, connection.execute(statement).all())
        return found[0] if found else None

    def events_of(self, run_id: str) -> tuple[AnyRunEvent, ...]:
        """The run as events, empty when there is none. Applies no owner rule: ask `run` first."""
        stored = self.run(run_id, all_owners=True)
        return replay.events_of(stored) if stored else ()

    def every_run(self, query: RunQuery) -> Iterator[StoredRun]:
        """All runs that match, oldest first, in memory a few at a time. Page and sort are not looked at.

        Each batch is a transaction of its own: a run deleted meanwhile may be missing.
        """
        sqlite = self._database.sqlite
        last: tuple[float, str] | None = None
        while True:
            statement = select(runs).where(*listing.conditions(query, sqlite))
            if last is not None:
                statement = statement.where(listing.after(*last, sqlite))
            statement = statement.order_by(*listing.oldest_first(sqlite)).limit(_EXPORT_BATCH)
            with self._database.read() as connection:
                batch = self._whole(connection, connection.execute(statement).all())
            yield from batch
            if len(batch) < _EXPORT_BATCH:
                return
            last = batch[-1].created_at, batch[-1].id

    def _whole(self, connection: Connection, rows: Sequence[Row[Any]]) -> list[StoredRun]:
        ids = [row.id for row in rows]
        of_turn: dict[str, list[Row[Any]]] = {}
        of_label: dict[str, list[Row[Any]]] = {}
        if ids:
            ordered = select(turns).where(turns.c.run_id.in_(ids)).order_by(turns.c.turn, turns.c.attempt)
            for row in connection.execute(ordered):
                of_turn.setdefault(row.run_id, []).append(row)
            marks = connection.execute(select(labels).where(labels.c.run_id.in_(ids))).all()
            for row in sorted(marks, key=lambda label: (label.created_at, label.id)):
                of_label.setdefault(row.run_id, []).append(row)
        return [run_of(row, of_turn.get(row.id, []), of_label.get(row.id, [])) for row in rows]

    # --- Importing ------------------------------------------------------------------------------------------

    def add_runs(self, batch: Iterable[StoredRun]) -> list[bool | str]:
        """Store whole runs in one transaction. For each: True added, False already there, else why it cannot be.

        A run in the bin with the same id is taken out of it and counts as added.
        """
        outcome: list[bool | str] = []
        with self._database.write() as connection:
            for run in batch:
                with self._database.attempt(connection) as trouble:
                    added = self._add(connection, run)
                outcome.append(trouble[0] if trouble else added)
        return outcome

    def _add(self, connection: Connection, run: StoredRun) -> bool:
        there = connection.execute(select(runs.c.deleted_at).where(runs.c.id == text(run.id))).first()
        if there is not None:
            if there.deleted_at is not None:
                connection.execute(update(runs).where(runs.c.id == text(run.id)), {"deleted_at": None})
            return there.deleted_at is not None
        if self._database.sqlite:  # holds the write lock since before the look
            connection.execute(insert(runs), run_values(run))
        else:
            statement = self._database.insert(runs).on_conflict_do_nothing(index_elements=["id"])
            if connection.execute(statement.returning(runs.c.n), run_values(run)).first() is None:
                return False  # another process was faster
        if run.turns:
            connection.execute(insert(turns), [turn_values(run.id, turn) for turn in run.turns])
        if run.labels:
            connection.execute(insert(labels), [label_values(label) for label in run.labels])
        return True

    # --- Deleting runs --------------------------------------------------------------------------------------

    def delete_runs(self, ids: Iterable[str], owner: str | None = None, *, all_owners: bool = False) -> int:
        """Put runs in the bin; return how many were not there yet."""
        condition = [runs.c.deleted_at.is_(None), *listing.visible(runs, owner, all_owners)]
        return self._set_deleted(ids, condition, time.time())

    def restore_runs(self, ids: Iterable[str], owner: str | None = None, *, all_owners: bool = False) -> int:
        """Take runs out of the bin again; return how many."""
        condition = [runs.c.deleted_at.is_not(None), *listing.visible(runs, owner, all_owners)]
        return self._set_deleted(ids, condition, None)

    def _set_deleted(self, ids: Iterable[str], condition: list[Any], at: float | None) -> int:
        wanted = [text(run_id) for run_id in ids]
        changed = 0
        with self._database.write() as connection:
            for some in chunks(wanted):
                statement = update(runs).where(runs.c.id.in_(some), *condition)
                changed += connection.execute(statement.values(deleted_at=at)).rowcount
        return changed

    def purge_deleted(self, older_than: float) -> int:
        """Delete for good the runs that have been in the bin for `older_than` seconds or longer; return how many.

        Their turns, labels and search entries go with them. A run that is still going stays until it ends.
        """
        with self._database.write() as connection:
            gone = delete(runs).where(runs.c.deleted_at <= time.time() - older_than, runs.c.status.not_in(UNFINISHED))
            return connection.execute(gone).rowcount

    # --- Labels ---------------------------------------------------------------------------------------------

    def set_label(
        self,
        run_id: str,
        kind: str,
        value: str | None,
        *,
        turn_id: str | None = None,
        labeller: str = "",
        owner: str | None = None,
        all_owners: bool = False,
    ) -> Label | None:
        """Label a run, or one of its turns, replacing this labeller's earlier label of that kind; None removes it.

        Raises InputError when there is no such run or turn, or when the owner rule hides it.
        """
        run_id, kind, labeller = text(run_id), text(kind), text(labeller)
        target = labels.c.turn_id.is_(None) if turn_id is None else labels.c.turn_id == text(turn_id)
        label = None
        with self._database.write() as connection:
            self._require(connection, run_id, turn_id, listing.visible(runs, owner, all_owners))
            same = and_(labels.c.run_id == run_id, labels.c.kind == kind, labels.c.labeller == labeller, target)
            connection.execute(delete(labels).where(same))
            if value is not None:
                label = Label(wire.new_id(), run_id, kind, text(value), turn_id, labeller, time.time())
                connection.execute(insert(labels), label_values(label))
        return label

    @staticmethod
    def _require(connection: Connection, run_id: str, turn_id: str | None, condition: list[Any]) -> None:
        # Locked, so that two labellers of one run take turns on PostgreSQL too.
        row = select(runs.c.id).where(runs.c.id == run_id, *condition).with_for_update()
        if connection.execute(row).first() is None:
            raise InputError(f"There is no run {run_id}.")
        if turn_id is not None:
            turn = select(turns.c.id).where(turns.c.id == text(turn_id), turns.c.run_id == run_id)
            if connection.execute(turn).first() is None:
                raise InputError(f"The run {run_id} has no turn {turn_id}.")

    def labels_of(self, run_id: str) -> tuple[Label, ...]:
        """All labels of a run and its turns, oldest first. Applies no owner rule: ask `run` first."""
        statement = select(labels).where(labels.c.run_id == text(run_id)).order_by(labels.c.created_at, labels.c.id)
        with self._database.read() as connection:
            return tuple(label_of(row) for row in connection.execute(statement))
