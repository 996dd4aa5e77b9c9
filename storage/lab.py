"""The half of the store that training uses: training runs, generations, checkpoints, replies and hidden states.

Invariant: a training run has one writer (see `lease`). Tasks are in `taskstore`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from storage import lease
from storage.database import Database
from storage.listing import visible
from storage.records import StoredCheckpoint, StoredGeneration, TrainingRun
from storage.rows import failure_value, finite, json_value, optional_text, safe_pool, safe_request, text, typed
from storage.schema import agent_replies, checkpoints, generations, training_runs
from storage.schema import states as state_rows
from storage.taskstore import UNFINISHED, TaskStore, chunks
from trinity_core import wire
from trinity_core.agents.replies import keepable
from trinity_core.errors import InputError, StoreError
from trinity_core.types import Failure, Generation, Reply, Status, Usage, Validation

TRAINING_STALE_S = 3600.0
"""A training run renews its heartbeat with each generation and in between, but one step may be long."""
NOTES = 200
"""Notes that a training run keeps, the newest ones."""


class Lab(TaskStore):
    """Base of `Store`. Methods commit before they return and raise StoreError."""

    # --- Training -------------------------------------------------------------------------------------------

    def create_training_run(self, run: TrainingRun) -> None:
        """Store a training run that this process works on."""
        with self._database.write() as connection:
            connection.execute(insert(training_runs), _training_values(run))

    def begin_training_run(self, run: TrainingRun) -> None:
        """Store a training run, or make this process the writer of the one with this id (resume), which stays as it
        is otherwise.

        Raises StoreError when another process that lives is at work on it.
        """
        t = training_runs.c
        with self._database.write() as connection:
            where = t.id == text(run.id)
            state = select(t.status, t.process, t.heartbeat_at).where(where).with_for_update()
            row = connection.execute(state).first()
            if row is None:
                connection.execute(insert(training_runs), _training_values(run))
                return
            if _busy(*row) and row.process != lease.identity():
                raise StoreError(f"Another process is at work on training run {run.id}. Stop it there first.")
            values = {"status": Status.RUNNING.value, "finished_at": None, "error": None, **_lease(Status.RUNNING)}
            connection.execute(update(training_runs).where(where), values)

    def update_training_run(
        self,
        run_id: str,
        *,
        status: Status | None = None,
        checkpoint_id: str | None = None,
        result: Mapping[str, Any] | None = None,
        error: Failure | None = None,
    ) -> None:
        """Change what is given. RUNNING makes this process its writer (resume); a final status ends it.

        Raises StoreError when there is no such training run.
        """
        values: dict[str, Any] = {}
        if status is not None:
            ended = status.value not in UNFINISHED
            values |= {"status": status.value, "finished_at": time.time() if ended else None, **_lease(status)}
            values["error"] = failure_value(error)
        elif error is not None:
            values["error"] = failure_value(error)
        if checkpoint_id is not None:
            values["checkpoint_id"] = text(checkpoint_id)
        if result is not None:
            values["result"] = json_value(result)
        if values:
            self._update_training(run_id, values)

    def add_validation(self, run_id: str, validation: Validation) -> None:
        """Append a held-out accuracy to the training run's record. After a resume one of the same name and number
        takes the place of the first."""
        same = (validation.name, validation.number) if validation.number is not None else None

        def grown(there: list[Any]) -> list[Any]:
            kept = [one for one in there if same is None or (one.get("name"), one.get("number")) != same]
            return [*kept, json_value(validation)]

        self._grow(run_id, "validations", grown)

    def add_note(self, run_id: str, kind: str, message: str, at: float) -> None:
        """Append to the training run's notes, of which the newest NOTES stay."""
        new = {"kind": kind, "message": message, "at": at}
        self._grow(run_id, "notes", lambda there: _notes([*there, new]))

    def beat(self, run_id: str) -> None:
        """Say that this process is still at work on the training run; one that has ended stays as it is."""
        with self._database.write() as connection:
            _beat(connection, text(run_id))

    def _grow(self, run_id: str, name: str, grown: Callable[[list[Any]], list[Any]]) -> None:
        where, column = training_runs.c.id == text(run_id), training_runs.c[name]
        with self._database.write() as connection:
            row = connection.execute(select(column).where(where).with_for_update()).first()
            if row is None:
                raise StoreError(f"There is no training run {run_id}.")
            connection.execute(update(training_runs).where(where), {name: grown(row[0] or [])})

    def _update_training(self, run_id: str, values: dict[str, Any]) -> None:
        with self._database.write() as connection:
            found = connection.execute(update(training_runs).where(training_runs.c.id == text(run_id)), values)
            if found.rowcount == 0:
                raise StoreError(f"There is no training run {run_id}.")

    def training_run(self, run_id: str, owner: str | None = None, *, all_owners: bool = False) -> TrainingRun | None:
        condition = visible(training_runs, owner, all_owners)
        with self._database.read() as connection:
            statement = select(training_runs).where(training_runs.c.id == text(run_id), *condition)
            row = connection.execute(statement).first()
        return None if row is None else _training(row)

    def training_runs(self, owner: str | None = None, *, all_owners: bool = False) -> tuple[TrainingRun, ...]:
        """Newest first, without their pools and notes, which `training_run` has."""
        listed = [column for column in training_runs.c if column.name not in ("pool", "notes")]
        statement = select(*listed).where(*visible(training_runs, owner, all_owners))
        ordered = statement.order_by(training_runs.c.created_at.desc(), training_runs.c.id.desc())
        with self._database.read() as connection:
            return tuple(_training(row) for row in connection.execute(ordered))

    def delete_training_run(self, run_id: str) -> bool:
        """Delete a training run with its generations; return whether it was there. Its checkpoints stay.

        Applies no owner rule: ask `training_run` first. Raises InputError while a process is at work on it.
        """
        t = training_runs.c
        with self._database.write() as connection:
            where = t.id == text(run_id)
            state = select(t.status, t.process, t.heartbeat_at).where(where).with_for_update()
            row = connection.execute(state).first()
            if row is None:
                return False
            if _busy(*row):
                raise InputError("This training still goes on. Stop it first, then delete it.")
            connection.execute(delete(training_runs).where(where))
        return True

    def append_generation(self, training_run_id: str, generation: Generation, seed: int | None = None) -> None:
        """Store one generation. The same one again is fine, as after a crash; a different one is not.

        `seed` None is the generation's own.

        Raises StoreError for a number that is stored with another seed or fitness, or an unknown training run.
        """
        run_id = text(training_run_id)
        seed = generation.seed if seed is None else seed
        values = _generation_values(run_id, generation, seed)
        with self._database.write() as connection:
            statement = self._database.insert(generations).on_conflict_do_nothing(
                index_elements=["training_run_id", "number"]
            )
            # Asked what it stored, because drivers do not agree on the row count of an INSERT.
            if connection.execute(statement.returning(generations.c.number), values).first() is None:
                same = generations.c.training_run_id == run_id, generations.c.number == generation.number
                row = connection.execute(select(generations).where(*same)).one()
                if (row.seed, row.fitness) != (seed, values["fitness"]):
                    raise StoreError(
                        f"Generation {generation.number} of training run {run_id} is stored with another result. "
                        "Start a new training run instead of overwriting this one."
                    )
            _beat(connection, run_id)

    def generations(self, training_run_id: str) -> tuple[StoredGeneration, ...]:
        """In order of number."""
        statement = select(generations).where(generations.c.training_run_id == text(training_run_id))
        with self._database.read() as connection:
            return tuple(_generation(row) for row in connection.execute(statement.order_by(generations.c.number)))

    # --- Checkpoints ----------------------------------------------------------------------------------------

    def save_checkpoint(self, checkpoint: StoredCheckpoint) -> None:
        """Store where a checkpoint lies. The same content again replaces path and metadata."""
        values = {
            "id": text(checkpoint.id),
            "path": text(checkpoint.path),
            "metadata": json_value(wire.drop_secrets(checkpoint.metadata)),
            "training_run_id": optional_text(checkpoint.training_run_id),
            "created_at": finite(checkpoint.created_at) or time.time(),
        }
        statement = self._database.insert(checkpoints)
        with self._database.write() as connection:
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["id"],
                    set_={"path": statement.excluded.path, "metadata": statement.excluded["metadata"]},
                ),
                values,
            )

    def checkpoint(self, checkpoint_id: str) -> StoredCheckpoint | None:
        with self._database.read() as connection:
            row = connection.execute(select(checkpoints).where(checkpoints.c.id == text(checkpoint_id))).first()
        return None if row is None else wire.record(StoredCheckpoint, dict(row._mapping))

    def checkpoints(self) -> tuple[StoredCheckpoint, ...]:
        """Newest first."""
        ordered = select(checkpoints).order_by(checkpoints.c.created_at.desc(), checkpoints.c.id.desc())
        with self._database.read() as connection:
            return tuple(wire.record(StoredCheckpoint, dict(row._mapping)) for row in connection.execute(ordered))

    # --- Replies (trinity_core.agents.replies.ReplyStore) ------------------------------------------------------

    def get_reply(self, key: str, sample: int) -> Reply | None:
        """The reply stored under (key, sample), as it was received (so not `reused`), or None."""
        where = agent_replies.c.key == text(key), agent_replies.c.sample == sample
        names = [field.name for field in fields(Reply) if field.name != "reused"]
        with self._database.read() as connection:
            row = connection.execute(select(*(agent_replies.c[name] for name in names)).where(*where)).first()
        return None if row is None else typed(Reply, dict(row._mapping))

    def put_reply(self, key: str, sample: int, request_json: Mapping[str, Any], reply: Reply) -> None:
        """Commit a reply. The first one under (key, sample) stays; failed and empty ones are not stored."""
        if sample < 0:
            raise InputError("A reply's sample number counts from 0.")
        if not keepable(reply):
            return
        agent = request_json.get("agent")
        values = {
            "key": text(key),
            "sample": sample,
            "agent": text(agent) if isinstance(agent, str) else None,
            "request": safe_request(request_json),
            "text": text(reply.text),
            "finish": reply.finish.value,
            "reasoning": text(reply.reasoning),
            "usage": None if reply.usage == Usage() else json_value(reply.usage),
            "cost": finite(reply.cost),
            "calls": reply.calls,
            "unpriced": reply.unpriced,
            "warnings": json_value([wire.redact(warning) for warning in reply.warnings]) or None,
            "first_token_s": finite(reply.first_token_s),
            "seconds": finite(reply.seconds) or 0.0,
            "request_id": optional_text(reply.request_id),
            "created_at": time.time(),
        }
        statement = self._database.insert(agent_replies).on_conflict_do_nothing(index_elements=["key", "sample"])
        with self._database.write() as connection:
            connection.execute(statement, values)

    # --- Hidden states (trinity_core.training.states.StateStore) -----------------------------------------------

    def get_states(self, keys: list[str]) -> dict[str, bytes]:
        """Those of `keys` that are stored: h as little-endian float32, 4·d bytes."""
        found: dict[str, bytes] = {}
        stored = state_rows.c
        with self._database.read() as connection:
            for some in chunks([text(key) for key in keys]):
                rows = connection.execute(select(stored.key, stored.hidden).where(stored.key.in_(some)))
                found.update((key, bytes(hidden)) for key, hidden in rows)
        return found

    def put_states(self, states: dict[str, bytes]) -> None:
        """Commit states, all or none. The first one stored under a key stays.

        Raises InputError for bytes that are no float32 vector.
        """
        if wrong := next((key for key, hidden in states.items() if not hidden or len(hidden) % 4), None):
            raise InputError(f"The state {wrong} has {len(states[wrong])} bytes, which are no float32 vector.")
        now = time.time()
        # In one order, so that two transactions never wait for each other on PostgreSQL.
        values = [{"key": text(key), "hidden": states[key], "created_at": now} for key in sorted(states)]
        if values:
            statement = self._database.insert(state_rows).on_conflict_do_nothing(index_elements=["key"])
            with self._database.write() as connection:
                connection.execute(statement, values)


def recover(database: Database) -> None:
    """Training runs whose process died become interrupted; they can be resumed."""
    now, t = time.time(), training_runs.c
    with database.write() as connection:
        for row in connection.execute(select(t.id, t.process, t.heartbeat_at).where(t.status.in_(UNFINISHED))).all():
            if not lease.alive(row.process, row.heartbeat_at, now, TRAINING_STALE_S):
                error = Failure("interrupted", "The program ended during this training run.", retryable=True)
                values = {
                    "status": Status.INTERRUPTED.value,
                    "error": failure_value(error),
                    "finished_at": row.heartbeat_at or now,
                    **_lease(Status.INTERRUPTED),
                }
                connection.execute(update(training_runs).where(t.id == row.id), values)


def _lease(status: Status) -> dict[str, Any]:
    working = status.value in UNFINISHED
    return {"process": lease.identity() if working else None, "heartbeat_at": time.time() if working else None}


def _training_values(run: TrainingRun) -> dict[str, Any]:
    return {
        "id": text(run.id),
        "owner": optional_text(run.owner),
        "method": text(run.method),
        "status": run.status.value,
        "seed": run.seed,
        "params": json_value(wire.drop_secrets(run.params)),
        "pool": safe_pool(run.pool),
        "backbone": optional_text(run.backbone),
        "checkpoint_id": optional_text(run.checkpoint_id),
        "validations": json_value(run.validations) or None,
        "result": json_value(run.result),
        "error": failure_value(run.error),
        "notes": _notes(run.notes) or None,
        "created_at": finite(run.created_at) or time.time(),
        "finished_at": finite(run.finished_at),
        **_lease(run.status),
    }


def _busy(status: str, process: str | None, heartbeat_at: float | None) -> bool:
    return status in UNFINISHED and lease.alive(process, heartbeat_at, time.time(), TRAINING_STALE_S)


def _beat(connection: Connection, run_id: str) -> None:
    beat = {"heartbeat_at": time.time(), "process": lease.identity()}
    working = training_runs.c.id == run_id, training_runs.c.status.in_(UNFINISHED)
    connection.execute(update(training_runs).where(*working), beat)


def _notes(notes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The newest ones, fit to be stored."""
    kept: list[dict[str, Any]] = json_value(list(notes[-NOTES:]))
    return [note | {"message": wire.redact(str(note.get("message", "")))} for note in kept]


def _training(row: Row[Any]) -> TrainingRun:
    values = {name: value for name, value in row._mapping.items() if name in TrainingRun.__dataclass_fields__}
    lists = {name: values.get(name) or [] for name in ("validations", "notes", "pool")}
    return wire.record(TrainingRun, values | lists)


def _generation_values(run_id: str, generation: Generation, seed: int) -> dict[str, Any]:
    spread = generation.spread
    return {
        "training_run_id": run_id,
        "number": generation.number,
        "seed": seed,
        "fitness": json_value(generation.fitness),
        "sigma": finite(generation.sigma),
        "spread": list(spread) if spread is not None and all(math.isfinite(s) for s in spread) else None,
        "accuracies": json_value(generation.accuracies) or None,
        "mean_turns": finite(generation.mean_turns),
        "skipped": generation.skipped,
        "status": text(generation.status) or None,
        "evaluations": generation.evaluations,
        "agent_calls": generation.agent_calls,
        "failed_calls": generation.failed_calls,
        "usage": None if generation.usage == Usage() else json_value(generation.usage),
        "cost": finite(generation.cost),
        "agent_shares": json_value(generation.agent_shares),
        "role_shares": json_value(generation.role_shares),
        "at": finite(generation.at) or time.time(),
    }


def _generation(row: Row[Any]) -> StoredGeneration:
    values = dict(row._mapping)
    for name in ("fitness", "accuracies"):
        values[name] = [math.nan if one is None else one for one in values[name] or []]
    return wire.record(StoredGeneration, {k: v for k, v in values.items() if v is not None})
