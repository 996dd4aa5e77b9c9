"""Keeping a training job while it happens, as `recording` keeps a run.

The training run's row carries the job's id and stands before `job_started` is passed on; a generation, a validation
or a checkpoint is committed before its event is. Progress and notes are for whoever watches and are not stored.
Once the generator has ended the row is closed: as `job_finished` said, `cancelled` when the consumer closed or
cancelled it, `failed` when the job raised or just ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import Executor

from storage.lab import Lab
from storage.recording import close_inner, failure_of, in_writer
from storage.records import StoredCheckpoint, TrainingRun
from trinity_core.errors import Cancelled, StoreError
from trinity_core.types import (
    AnyJobEvent,
    CheckpointSaved,
    Failure,
    Generation,
    JobFinished,
    JobStarted,
    Status,
    Validation,
)


async def record_job(
    lab: Lab, writer: Executor, events: AsyncIterator[AnyJobEvent]
) -> AsyncGenerator[AnyJobEvent, None]:
    """Pass a job's events through and store them. See `Store.record_job`."""
    started: JobStarted | None = None
    finished = False
    status, error, failed = Status.CANCELLED, None, True
    try:
        async for event in events:
            if isinstance(event, JobStarted):
                started = event
            elif started is None or event.job_id != started.job_id:
                raise StoreError(f"The event {event.event} belongs to no job that has started.")
            finished = finished or isinstance(event, JobFinished)
            if (work := _work(lab, started, event)) is not None:
                await in_writer(writer, work)
            yield event
        status, error, failed = Status.FAILED, Failure("internal", "The job ended without saying how."), False
    except GeneratorExit:
        failed = False
        raise
    except (asyncio.CancelledError, Cancelled):
        raise
    except Exception as raised:
        status, error = Status.FAILED, failure_of(raised)
        raise
    finally:
        try:
            await close_inner(events)
        finally:
            if started is not None and not finished:
                # When something else went wrong already, that is what the caller should hear of.
                with contextlib.suppress(StoreError) if failed else contextlib.nullcontext():
                    await in_writer(writer, _ending(lab, started.job_id, status, error))


def _ending(lab: Lab, job_id: str, status: Status, error: Failure | None) -> Callable[[], None]:
    return lambda: lab.update_training_run(job_id, status=status, error=error)


def _work(lab: Lab, started: JobStarted, event: AnyJobEvent) -> Callable[[], None] | None:
    """What to store for `event`; None when it is only to be shown."""
    if isinstance(event, JobStarted):
        run = TrainingRun(event.job_id, event.kind, seed=event.seed, params=event.params, created_at=event.at)
        return lambda: lab.begin_training_run(run)
    if isinstance(event, Generation):
        return lambda: lab.append_generation(event.job_id, event, started.seed or 0)
    if isinstance(event, Validation):
        return lambda: lab.add_validation(event.job_id, event)
    if isinstance(event, CheckpointSaved):
        return lambda: _checkpoint(lab, event)
    if isinstance(event, JobFinished):
        return lambda: lab.update_training_run(
            event.job_id, status=event.status, result=event.result, error=event.error
        )
    return None


def _checkpoint(lab: Lab, event: CheckpointSaved) -> None:
    known = lab.checkpoint(event.checkpoint_id)
    metadata = known.metadata if known else {}
    lab.save_checkpoint(StoredCheckpoint(event.checkpoint_id, event.path, metadata, event.job_id, event.at))
    lab.update_training_run(event.job_id, checkpoint_id=event.checkpoint_id)
