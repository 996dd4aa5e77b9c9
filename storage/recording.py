"""Writing one run while it happens.

`record` passes a run's events through. Before it passes one on, the database holds what the event means: the run
at `run_started`, the turn's decision and request at `turn_started`, the whole turn at `turn_finished`. The text of
a running turn stays in memory and is written about once a second, so that a crash keeps a partial; it goes to the
turn's `raw` and `reasoning` columns, which search does not index.

Invariants:
- No database work on the event loop: every write goes to the store's one writer thread, in the order it was asked
  for. A cancelled wait does not cancel the write behind it, so the last word is always the last write.
- Once the generator has ended, by whatever way, its run is not `running` any more: done as `run_finished` said,
  `cancelled` when the consumer closed or cancelled it, `failed` when the inner generator raised. Only a database
  that refuses the write (or a killed process, see `Store.recover`) leaves it open.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, insert, select, update

from storage import lease
from storage.database import Database
from storage.records import StoredNote, StoredRun, StoredTurn
from storage.rows import (
    cut_off,
    failure_value,
    json_value,
    optional_text,
    run_values,
    summary_values,
    text,
    totals_of,
    totals_values,
    turn_of,
    turn_values,
)
from storage.schema import runs, turns
from trinity_core import wire
from trinity_core.errors import AgentError, Cancelled, StoreError
from trinity_core.types import (
    AnyRunEvent,
    Delta,
    Failure,
    Finish,
    Note,
    RunFinished,
    RunStarted,
    Status,
    StopReason,
    Totals,
    TurnFinished,
    TurnReset,
    TurnStarted,
)

FLUSH_S = 1.0

active: set[str] = set()
"""Ids of the runs that this process is recording: `recover` leaves them alone."""

_STOPPED = Failure("cancelled", "The run was stopped during this turn.", retryable=True)
_CLOSED = "The run ended without saying how."


@dataclass(slots=True)
class _Live:
    """A call that goes on, and what has arrived of its reply since it began or was reset."""

    turn: StoredTurn
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    dirty: bool = False

    def partial(self) -> StoredTurn:
        return replace(self.turn, raw="".join(self.text), reasoning="".join(self.reasoning))


@dataclass(frozen=True, slots=True)
class _End:
    status: Status
    stop_reason: StopReason
    error: Failure | None = None


async def record(
    database: Database, writer: Executor, events: AsyncIterator[AnyRunEvent]
) -> AsyncGenerator[AnyRunEvent, None]:
    """Pass `events` through and store them. See the module and `Store.record`."""
    recording = _Recording(database, writer)
    end = _End(Status.CANCELLED, StopReason.CANCELLED)
    failed = True
    try:
        async for event in events:
            await recording.take(event)
            yield event
        end, failed = _End(Status.FAILED, StopReason.FAILED, Failure("internal", _CLOSED)), False
    except GeneratorExit:
        failed = False
        raise
    except (asyncio.CancelledError, Cancelled):
        raise
    except Exception as error:
        end = _End(Status.FAILED, StopReason.FAILED, failure_of(error))
        raise
    finally:
        try:
            await close_inner(events)
        finally:
            # When something else went wrong already, that is what the caller should hear of.
            with contextlib.suppress(StoreError) if failed else contextlib.nullcontext():
                await recording.end(end)


async def close_inner(events: AsyncIterator[Any]) -> None:
    """Close an inner generator, if it is one."""
    close = getattr(events, "aclose", None)
    if close is not None:
        await close()


def failure_of(error: Exception) -> Failure:
    """An exception as it is stored: without keys."""
    kind = error.kind if isinstance(error, AgentError) else "internal"
    retryable = error.retryable if isinstance(error, AgentError) else False
    return Failure(kind, wire.redact(str(error)) or type(error).__name__, retryable)


class _Recording:
    """The state of one run being written. Lives on the event loop; only `_write`'s argument runs elsewhere."""

    def __init__(self, database: Database, writer: Executor) -> None:
        self._database = database
        self._writer = writer
        self._run: StoredRun | None = None
        self._finished = False
        self._done: list[StoredTurn] = []  # without bodies: what the run's summary needs
        self._live: dict[tuple[int, int], _Live] = {}
        self._notes: list[StoredNote] = []
        self._noted = False
        self._heartbeat = 0.0
        self._ticker: asyncio.Task[None] | None = None
        self._trouble: StoreError | None = None  # what the ticker met

    async def take(self, event: AnyRunEvent) -> None:
        if self._trouble is not None:
            raise self._trouble
        if isinstance(event, RunStarted):
            await self._begin(event)
            return
        if self._run is None or event.run_id != self._run.id:
            raise StoreError(f"The event {event.event} belongs to no run that has started.")
        if isinstance(event, TurnStarted):
            await self._turn_started(event)
        elif isinstance(event, Delta):
            self._delta(event)
        elif isinstance(event, TurnReset):
            if live := self._live.get((event.turn, event.attempt)):
                live.text, live.reasoning, live.dirty = [], [], True
        elif isinstance(event, TurnFinished):
            await self._turn_finished(event)
        elif isinstance(event, Note):
            self._notes.append(StoredNote(event.kind, event.message, event.at, event.turn))
            self._noted = True
        else:
            await self._run_finished(event)

    async def end(self, end: _End) -> None:
        """Close the run if `run_finished` did not, and stop the clock."""
        if self._ticker is not None:
            self._ticker.cancel()
        if self._run is None:
            return
        try:
            if not self._finished:
                await self._abandon(self._run, end)
        finally:
            active.discard(self._run.id)

    # --- One event each -------------------------------------------------------------------------------------

    async def _begin(self, event: RunStarted) -> None:
        if self._run is not None:
            raise StoreError(f"The run {self._run.id} was already started.")
        self._run = StoredRun(
            id=event.run_id,
            owner=event.owner,
            source=event.source,
            method=event.method,
            status=Status.RUNNING,
            messages=event.messages,
            params=event.params,
            pool=event.pool,
            seed=event.seed,
            parent_run_id=event.parent_run_id,
            fork_turn=event.fork_turn,
            checkpoint_id=event.checkpoint_id,
            transcript_version=event.transcript_version,
            prompt_version=event.prompt_version,
            created_at=event.at,
        )
        values = run_values(self._run) | {"process": lease.identity(), "heartbeat_at": time.time()}
        self._heartbeat = time.monotonic()
        active.add(self._run.id)
        await self._write(lambda c: c.execute(insert(runs), values))
        self._ticker = asyncio.create_task(self._tick())

    async def _turn_started(self, event: TurnStarted) -> None:
        turn = StoredTurn(
            id=wire.new_id(),
            turn=event.turn,
            attempt=event.attempt,
            agent=event.agent,
            role=event.role,
            started_at=event.at,
            decision=event.decision,
            request=event.request,
            hidden=event.hidden,
        )
        self._live[event.turn, event.attempt] = _Live(turn)
        values = turn_values(event.run_id, turn)
        await self._write(lambda c: c.execute(insert(turns), values))

    def _delta(self, event: Delta) -> None:
        if live := self._live.get((event.turn, event.attempt)):
            (live.text if event.channel == "text" else live.reasoning).append(event.text)
            live.dirty = True

    async def _turn_finished(self, event: TurnFinished) -> None:
        live = self._live.pop((event.turn, event.attempt), None)
        begun = live.turn if live else StoredTurn(id=wire.new_id(), turn=event.turn, attempt=event.attempt)
        turn = replace(
            begun,
            agent=event.agent,
            role=event.role,
            verdict=event.verdict,
            finish=event.finish,
            finished_at=event.at,
            seconds=event.seconds,
            first_token_s=event.first_token_s,
            cost=event.cost,
            request_id=event.request_id,
            calls=event.calls,
            unpriced=event.unpriced,
            reused=event.reused,
            text=event.text,
            raw=event.raw,
            reasoning=event.reasoning,
            suggestion=event.suggestion,
            usage=event.usage,
            error=event.error,
        )
        self._done.append(replace(turn, text="", raw="", reasoning="", request={}, hidden=None))
        row = turn_values(event.run_id, turn)
        # Until run_finished tells its own totals, the list shows the sums so far.
        summary = summary_values(self._done) | totals_values(totals_of(self._done)) | self._new_notes()

        def store(connection: Connection) -> None:
            if live is None:
                connection.execute(insert(turns), row)
            else:
                connection.execute(update(turns).where(turns.c.id == row["id"]), row)
            connection.execute(update(runs).where(runs.c.id == event.run_id), summary)

        await self._write(store)

    async def _run_finished(self, event: RunFinished) -> None:
        values = {
            "status": event.status.value,
            "stop_reason": event.stop_reason.value,
            "answer": optional_text(event.answer),
            "answer_turn": event.answer_turn,
            "flag": optional_text(event.flag),
            "error": failure_value(event.error),
            "finished_at": event.at,
            **self._closed_lease(),
            **totals_values(event.totals),
        }
        self._finished = True
        await self._close_run(event.run_id, values, event.at)

    async def _abandon(self, run: StoredRun, end: _End) -> None:
        self._finished = True
        now = time.time()
        partials = [cut_off(live.turn) for live in self._live.values()]
        totals = totals_of([*self._done, *partials])
        values = {
            "status": end.status.value,
            "stop_reason": end.stop_reason.value,
            "error": failure_value(end.error),
            "finished_at": now,
            **self._closed_lease(),
            **totals_values(replace(totals, seconds=max(0.0, now - run.created_at))),
        }
        await self._close_run(run.id, values, now)

    async def _close_run(self, run_id: str, values: dict[str, Any], at: float) -> None:
        """The last write: the run's end, and what had arrived of calls that never finished."""
        values = values | self._new_notes()
        rows = [unfinished_values(live.partial(), _STOPPED, at) for live in self._live.values()]
        self._live = {}

        def store(connection: Connection) -> None:
            for row in rows:
                connection.execute(update(turns).where(turns.c.id == row["id"]), row)
            connection.execute(update(runs).where(runs.c.id == run_id), values)

        await self._write(store)

    @staticmethod
    def _closed_lease() -> dict[str, Any]:
        return {"process": None, "heartbeat_at": None}

    # --- Once a second --------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            try:
                await self._flush()
            except StoreError as error:
                self._trouble = error
                return

    async def _flush(self) -> None:
        run = self._run
        due = time.monotonic() - self._heartbeat >= lease.HEARTBEAT_S
        dirty = [live for live in self._live.values() if live.dirty]
        if run is None or self._finished or not (due or dirty or self._noted):
            return
        self._heartbeat = time.monotonic()
        rows = []
        for live in dirty:
            live.dirty = False
            turn = live.partial()
            rows.append((turn.id, {"raw": text(turn.raw), "reasoning": text(turn.reasoning)}))
        values = {"heartbeat_at": time.time(), **self._new_notes()}

        def store(connection: Connection) -> None:
            for turn_id, partial in rows:
                connection.execute(update(turns).where(turns.c.id == turn_id), partial)
            connection.execute(update(runs).where(runs.c.id == run.id), values)

        await self._write(store)

    def _new_notes(self) -> dict[str, Any]:
        if not self._noted:
            return {}
        self._noted = False
        return {"notes": json_value(self._notes)}

    async def _write(self, work: Callable[[Connection], object]) -> None:
        """Do `work` in one transaction in the writer thread. Being cancelled here leaves it to be done."""

        def transaction() -> None:
            with self._database.write() as connection:
                work(connection)

        await in_writer(self._writer, transaction)


async def in_writer(writer: Executor, work: Callable[[], None]) -> None:
    """Do `work` in the writer thread, after all that was asked for before. Being cancelled here leaves it to be
    done. Raises what `work` raises, and StoreError when the store is closed."""
    try:
        waiting = asyncio.get_running_loop().run_in_executor(writer, work)
    except RuntimeError:  # the executor takes no more work
        raise StoreError("The database is closed; nothing more is stored.") from None
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        # Its failure, if any, shows when the run is closed; asyncio should not also log it.
        waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
        raise


def unfinished_values(turn: StoredTurn, error: Failure, at: float) -> dict[str, Any]:
    """The columns of a call that was cut off: what had arrived becomes its text."""
    return {
        "id": turn.id,
        "text": text(turn.raw),
        "raw": text(turn.raw),
        "reasoning": text(turn.reasoning),
        "finish": Finish.INCOMPLETE.value,
        "finished_at": at,
        "seconds": max(0.0, at - turn.started_at) if turn.started_at is not None else None,
        "unpriced": cut_off(turn).unpriced,
        "error": failure_value(error),
    }


def recover(database: Database) -> int:
    """See `Store.recover`."""
    unfinished = runs.c.status.in_((Status.QUEUED.value, Status.RUNNING.value))
    now, mine = time.time(), lease.identity()
    found = 0
    with database.write() as connection:
        rows = connection.execute(
            select(runs.c.id, runs.c.process, runs.c.heartbeat_at, runs.c.created_at, runs.c.totals).where(unfinished)
        ).all()
        for row in rows:
            at_work = row.id in active if row.process == mine else lease.alive(row.process, row.heartbeat_at, now)
            if at_work:
                continue
            at = row.heartbeat_at or now
            _interrupt(connection, row.id, at, row.created_at)
            found += 1
    return found


def _interrupt(connection: Connection, run_id: str, at: float, created_at: float) -> None:
    error = Failure("interrupted", "The program ended during this run.", retryable=True)
    stored = [
        turn_of(row)
        for row in connection.execute(
            select(turns).where(turns.c.run_id == run_id).order_by(turns.c.turn, turns.c.attempt)
        )
    ]
    for turn in stored:
        if turn.finish is None:
            values = unfinished_values(turn, error, max(at, turn.started_at or at))
            connection.execute(update(turns).where(turns.c.id == turn.id), values)
    ended = [cut_off(turn) if turn.finish is None else turn for turn in stored]
    totals: Totals = replace(totals_of(ended), seconds=max(0.0, at - created_at))
    connection.execute(
        update(runs).where(runs.c.id == run_id),
        {
            "status": Status.INTERRUPTED.value,
            "stop_reason": StopReason.FAILED.value,
            "error": failure_value(error),
            "finished_at": max(at, created_at),
            "process": None,
            "heartbeat_at": None,
            **totals_values(totals),
        },
    )
