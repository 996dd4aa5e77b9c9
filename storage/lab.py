"""The half of the store that training uses: tasks, training runs, generations, checkpoints and agents' replies."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from storage import lease
from storage.database import Database
from storage.listing import visible
from storage.records import StoredCheckpoint, StoredGeneration, StoredTask, TrainingRun
from storage.rows import failure_value, finite, json_value, optional_text, safe_pool, safe_request, text, typed
from storage.schema import agent_replies, checkpoints, generations, tasks, training_runs
from trinity_core import wire
from trinity_core.agents.replies import keepable
from trinity_core.errors import InputError, StoreError
from trinity_core.tasks.task import Task
from trinity_core.types import Failure, Generation, Reply, Status, Usage, Validation

_UNFINISHED = (Status.QUEUED.value, Status.RUNNING.value)
TRAINING_STALE_S = 3600.0
"""A training run renews its heartbeat with each generation, which may take long."""


class Lab:
    """Base of `Store`. Methods commit before they return and raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # --- Tasks ----------------------------------------------------------------------------------------------

    def add_tasks(self, new: Iterable[Task], *, owner: str | None = None, run_id: str | None = None) -> int:
        """Store tasks; return how many are new. One that is there already takes over family, tags and source."""
        values = [_task_values(task, owner, run_id) for task in new]
        if not values:
            return 0
        mine = tasks.c.owner == text(owner or "")
        with self._database.write() as connection:
            before = set(connection.execute(select(tasks.c.id).where(mine)).scalars())
            statement = self._database.insert(tasks)
            connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["id", "owner"],
                    set_={name: statement.excluded[name] for name in ("family", "tags", "source")},
                ),
                values,
            )
        return len({value["id"] for value in values} - before)

    def tasks(
        self,
        owner: str | None = None,
        *,
        all_owners: bool = False,
        split: str | None = None,
        source: str | None = None,
    ) -> tuple[StoredTask, ...]:
        """Tasks of `owner` and everybody's, oldest first."""
        statement = select(tasks)
        if not all_owners:
            statement = statement.where(tasks.c.owner.in_({"", text(owner or "")}))
        if split is not None:
            statement = statement.where(tasks.c.split == split)
        if source is not None:
            statement = statement.where(tasks.c.source == text(source))
        with self._database.read() as connection:
            ordered = statement.order_by(tasks.c.created_at, tasks.c.id, tasks.c.owner)
            return tuple(_task(row) for row in connection.execute(ordered))

    def delete_tasks(self, ids: Iterable[str], owner: str | None = None) -> int:
        """Delete `owner`'s tasks (None: everybody's); return how many there were."""
        gone = 0
        with self._database.write() as connection:
            for task_id in ids:
                where = tasks.c.id == text(task_id), tasks.c.owner == text(owner or "")
                gone += connection.execute(delete(tasks).where(*where)).rowcount
        return gone

    # --- Training -------------------------------------------------------------------------------------------

    def create_training_run(self, run: TrainingRun) -> None:
        """Store a training run that this process works on."""
        values = {
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
            "created_at": finite(run.created_at) or time.time(),
            "finished_at": finite(run.finished_at),
            **_lease(run.status),
        }
        with self._database.write() as connection:
            connection.execute(insert(training_runs), values)

    def begin_training_run(self, run: TrainingRun) -> None:
        """Store a training run, or make this process the writer of the one with this id (resume)."""
        if self.training_run(run.id, all_owners=True) is None:
            self.create_training_run(run)
        else:
            self.update_training_run(run.id, status=Status.RUNNING)

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
            ended = status.value not in _UNFINISHED
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
        """Append a held-out accuracy to the training run's record."""
        with self._database.write() as connection:
            row = connection.execute(
                select(training_runs.c.validations).where(training_runs.c.id == text(run_id)).with_for_update()
            ).first()
            if row is None:
                raise StoreError(f"There is no training run {run_id}.")
            values = {"validations": [*(row.validations or []), json_value(validation)]}
            connection.execute(update(training_runs).where(training_runs.c.id == text(run_id)), values)

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
        """Newest first."""
        statement = select(training_runs).where(*visible(training_runs, owner, all_owners))
        ordered = statement.order_by(training_runs.c.created_at.desc(), training_runs.c.id.desc())
        with self._database.read() as connection:
            return tuple(_training(row) for row in connection.execute(ordered))

    def append_generation(self, training_run_id: str, generation: Generation, seed: int) -> None:
        """Store one generation. The same one again is fine, as after a crash; a different one is not.

        Raises StoreError for a number that is stored with another seed or fitness, or an unknown training run.
        """
        run_id = text(training_run_id)
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
            beat = {"heartbeat_at": time.time(), "process": lease.identity()}
            working = training_runs.c.id == run_id, training_runs.c.status.in_(_UNFINISHED)
            connection.execute(update(training_runs).where(*working), beat)

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


def recover(database: Database) -> None:
    """Training runs whose process died become interrupted; they can be resumed."""
    now, t = time.time(), training_runs.c
    with database.write() as connection:
        for row in connection.execute(select(t.id, t.process, t.heartbeat_at).where(t.status.in_(_UNFINISHED))).all():
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
    working = status.value in _UNFINISHED
    return {"process": lease.identity() if working else None, "heartbeat_at": time.time() if working else None}


def _task_values(task: Task, owner: str | None, run_id: str | None) -> dict[str, Any]:
    return {
        **{name: text(getattr(task, name)) for name in ("id", "question", "reference", "grader", "family", "source")},
        "owner": text(owner or ""),
        "split": task.split,
        "tags": json_value(task.tags) or None,
        "params": json_value(task.params) or None,
        "run_id": optional_text(run_id),
        "created_at": time.time(),
    }


def _task(row: Row[Any]) -> StoredTask:
    m = row._mapping
    task = {name: m[name] for name in Task.__dataclass_fields__} | {
        "tags": row.tags or [],
        "params": row.params or {},
    }
    return StoredTask(wire.record(Task, task), row.owner or None, row.run_id, row.created_at)


def _training(row: Row[Any]) -> TrainingRun:
    values = {name: row._mapping[name] for name in TrainingRun.__dataclass_fields__}
    return wire.record(TrainingRun, values | {"validations": row.validations or []})


def _generation_values(run_id: str, generation: Generation, seed: int) -> dict[str, Any]:
    return {
        "training_run_id": run_id,
        "number": generation.number,
        "seed": seed,
        "fitness": json_value(generation.fitness),
        "sigma": finite(generation.sigma),
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
    values = dict(row._mapping) | {"fitness": [math.nan if f is None else f for f in row.fitness]}
    return wire.record(StoredGeneration, {k: v for k, v in values.items() if v is not None})
