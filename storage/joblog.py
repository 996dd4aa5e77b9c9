"""Keeping a training job while it happens, as `recording` keeps a run.

The training run's row carries the job's id and stands before `job_started` is passed on; a generation, a validation
a checkpoint or a note is committed before its event is. Progress is for whoever watches; it only renews, now and
then, the sign that this process is at work. Once the generator has ended the row is closed: as `job_finished` said,
`interrupted` with an error of the kind "paused" after `job_paused`, `cancelled` when the consumer closed or cancelled
it, `failed` when the job raised or just ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

from storage.lab import Lab
from storage.recording import close_inner, failure_of, in_writer
from storage.records import StoredCheckpoint, TrainingRun
from trinity_core import wire
from trinity_core.errors import Cancelled, InputError, StoreError
from trinity_core.types import (
    AgentSpec,
    AnyJobEvent,
    CheckpointSaved,
    Failure,
    Generation,
    JobFinished,
    JobNote,
    JobPaused,
    JobStarted,
    Progress,
    Status,
    Validation,
)

BEAT_S = 30.0
"""Seconds from one sign of life to the next, at least."""


@dataclass(frozen=True, slots=True)
class _Pool:
    agents: tuple[AgentSpec, ...]


async def record_job(
    lab: Lab, writer: Executor, events: AsyncIterator[AnyJobEvent], owner: str | None = None
) -> AsyncGenerator[AnyJobEvent, None]:
    """Pass a job's events through and store them. See `Store.record_job`."""
    started: JobStarted | None = None
    paused: JobPaused | None = None
    finished = False
    beat_at = time.monotonic()
    status, error, failed = Status.CANCELLED, None, True
    try:
        async for event in events:
            if isinstance(event, JobStarted):
                started = event
            elif started is None or event.job_id != started.job_id:
                raise StoreError(f"The event {event.event} belongs to no job that has started.")
            if isinstance(event, Progress):
                if time.monotonic() - beat_at < BEAT_S:
                    yield event
                    continue
                beat_at = time.monotonic()
            if isinstance(event, Generation):
                beat_at = time.monotonic()
            if isinstance(event, JobPaused):
                paused = event
            finished = finished or isinstance(event, JobFinished)
            await in_writer(writer, _work(lab, started, _told(event, paused), owner))
            yield event
        if paused is None:
            status, error = Status.FAILED, Failure("internal", "The job ended without saying how.")
        failed = False
    except GeneratorExit:
        failed = False
        raise
    except (asyncio.CancelledError, Cancelled):
        raise
    except Exception as raised:
        status, error, paused = Status.FAILED, failure_of(raised), None
        raise
    finally:
        try:
            await close_inner(events)
        finally:
            if started is not None and not finished and paused is None:
                # When something else went wrong already, that is what the caller should hear of.
                with contextlib.suppress(StoreError) if failed else contextlib.nullcontext():
                    await in_writer(writer, _ending(lab, started.job_id, status, error))


def _ending(lab: Lab, job_id: str, status: Status, error: Failure | None) -> Callable[[], None]:
    return lambda: lab.update_training_run(job_id, status=status, error=error)


def _told(event: AnyJobEvent, paused: JobPaused | None) -> AnyJobEvent:
    """A job that says after its pause that it is interrupted, and not why, is still a paused one."""
    if paused is None or not isinstance(event, JobFinished):
        return event
    unsaid = event.status is Status.INTERRUPTED and event.error is None
    return replace(event, error=_pause(paused)) if unsaid else event


def _pause(event: JobPaused) -> Failure:
    return Failure("paused", event.reason, retryable=True)


def _run(event: JobStarted, owner: str | None) -> TrainingRun:
    """The row of a job. Its method is the plan's; the pool moves from the params to a field of its own."""
    params = dict(event.params)
    plan = params.get("plan")
    method = plan.get("method") if isinstance(plan, Mapping) else None
    backbone = params.get("backbone")
    pool = _specs(params.get("pool"))
    if pool:
        del params["pool"]
    return TrainingRun(
        event.job_id,
        method if isinstance(method, str) and method else event.kind,
        seed=event.seed,
        params=params,
        pool=pool,
        backbone=backbone if isinstance(backbone, str) else None,
        owner=owner,
        created_at=event.at,
    )


def _specs(value: Any) -> tuple[AgentSpec, ...]:
    """The pool that a job names, or nothing where it is told in another way (such as by names alone)."""
    try:
        return wire.record(_Pool, {"agents": wire.plain(value)}).agents
    except InputError:
        return ()


def _work(lab: Lab, started: JobStarted, event: AnyJobEvent, owner: str | None) -> Callable[[], None]:
    """What to store for `event`."""
    if isinstance(event, JobStarted):
        run = _run(event, owner)
        return lambda: lab.begin_training_run(run)
    if isinstance(event, Progress):
        return lambda: lab.beat(event.job_id)
    if isinstance(event, Generation):
        return lambda: lab.append_generation(event.job_id, event, event.seed or started.seed or 0)
    if isinstance(event, JobNote):
        return lambda: lab.add_note(event.job_id, event.kind, event.message, event.at)
    if isinstance(event, JobPaused):
        return lambda: lab.update_training_run(event.job_id, status=Status.INTERRUPTED, error=_pause(event))
    if isinstance(event, Validation):
        return lambda: lab.add_validation(event.job_id, event)
    if isinstance(event, CheckpointSaved):
        return lambda: _checkpoint(lab, event)
    return lambda: lab.update_training_run(event.job_id, status=event.status, result=event.result, error=event.error)


def _checkpoint(lab: Lab, event: CheckpointSaved) -> None:
    known = lab.checkpoint(event.checkpoint_id)
    metadata = known.metadata if known else {}
    lab.save_checkpoint(StoredCheckpoint(event.checkpoint_id, event.path, metadata, event.job_id, event.at))
    lab.update_training_run(event.job_id, checkpoint_id=event.checkpoint_id)
