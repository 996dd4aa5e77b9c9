"""Trainings that live in the server: one at a time, watched by any number of pages. No gradio here.

A `TrainingManager` drives one training on the event loop that also runs answers, whoever looks. Pages ask for its
`status`, for the `record` of any training (this process's or a stored one) and for `revision`, which grows with
every change, so that a page redraws only what is new.

Invariants:
- One training at a time in a process; a second start is refused and says what runs.
- Everybody may look. Pause, Resume, Stop and Delete belong to the owner of a training; what nobody owns (begun from
  the command line) belongs to everybody. Stop and Pause never depend on a page being open.
- What is shown comes from the engine's events, which are stored before they arrive; after a crash the stored training
  is interrupted and can be resumed from here, and then tells the same numbers.
- Shutting down pauses; what does not pause in time is cut off and marked interrupted, so that it can be resumed.
- What an unforeseen exception says is logged without keys, and is never part of a status.

Not covered: trainings of other processes on the same database, which are shown but cannot be steered from here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from trinity_core import wire
from trinity_core.errors import Cancelled, InputError, StoreError, TrinityError
from trinity_core.training.plan import Plan, Preflight
from trinity_core.types import (
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
    Usage,
    Validation,
)
from trinity_core.wire import redact
from ui.jobs import log_fault

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from storage.records import StoredGeneration, TrainingRun

T = TypeVar("T")
State = Literal[
    "idle", "preparing", "running", "pausing", "paused", "stopping", "done", "cancelled", "failed", "interrupted"
]
BUSY: frozenset[State] = frozenset({"preparing", "running", "pausing", "stopping"})
"""States in which something is still at work."""

_STORED: Mapping[Status, State] = {
    Status.DONE: "done",
    Status.FAILED: "failed",
    Status.CANCELLED: "cancelled",
    Status.INTERRUPTED: "interrupted",
    Status.QUEUED: "running",
    Status.RUNNING: "running",
}
_log = logging.getLogger(__name__)
_FIRST_EVENT_S = 2.0
"""How long `start` waits for a refusal before it returns."""
_NOTES = 20
"""Notes kept of one training, the newest ones."""


class Switch(Protocol):
    """What steers a training under way: `trinity_core.training.train.Control`. Any thread may call it."""

    def pause(self) -> None: ...

    def stop(self) -> None: ...


class Trainer(Protocol):
    """What trains: `trinity_core.training.train.Trainer`. Events are stored before they are yielded.

    `control` is what the manager's `control` factory makes; `job_id` names the training to go on with."""

    async def preflight(self, plan: Plan, owner: str | None) -> Preflight: ...

    def run(
        self, plan: Plan, owner: str | None, control: Any, *, job_id: str | None = None
    ) -> AsyncIterator[AnyJobEvent]: ...


class Lab(Protocol):
    """The part of `storage.store.Store` that is read here. All methods block on a disk and raise StoreError."""

    def training_run(
        self, run_id: str, owner: str | None = None, *, all_owners: bool = False
    ) -> TrainingRun | None: ...

    def training_runs(self, owner: str | None = None, *, all_owners: bool = False) -> tuple[TrainingRun, ...]: ...

    def generations(self, training_run_id: str) -> tuple[StoredGeneration, ...]: ...

    def update_training_run(
        self, run_id: str, *, status: Status | None = None, error: Failure | None = None
    ) -> None: ...

    def delete_training_run(self, run_id: str) -> bool: ...


class Spawn(Protocol):
    """`RunManager.spawn`."""

    def __call__(self, work: Coroutine[object, object, T]) -> Future[T]: ...


@dataclass(frozen=True, slots=True)
class TrainingStatus:
    """What goes on now. `owner` is whose training it is; `since` is when it was begun or resumed (epoch seconds)."""

    state: State = "idle"
    job_id: str | None = None
    owner: str | None = None
    plan: Plan | None = None
    since: float | None = None
    message: str = ""
    progress: Progress | None = None

    @property
    def busy(self) -> bool:
        return self.state in BUSY


@dataclass(frozen=True, slots=True)
class Record:
    """One training as far as it has come. `resumed_at` is how many generations there were when it was (re)started.

    `message` is why it ended or paused, `finished_at` None while it goes on.
    """

    job_id: str
    method: str
    state: State
    owner: str | None = None
    plan: Mapping[str, Any] = field(default_factory=dict)
    generations: tuple[Generation, ...] = ()
    validations: tuple[Validation, ...] = ()
    notes: tuple[str, ...] = ()
    checkpoint_id: str | None = None
    result: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
    progress: Progress | None = None
    created_at: float = 0.0
    finished_at: float | None = None
    since: float | None = None
    resumed_at: int = 0

    @property
    def evaluations(self) -> int:
        return sum(g.evaluations for g in self.generations)

    @property
    def usage(self) -> Usage:
        """Sums of what is known."""
        return Usage(*(_sum(getattr(g.usage, name) for g in self.generations) for name in ("input", "output")))

    @property
    def cost(self) -> float | None:
        costs = [g.cost for g in self.generations if g.cost is not None]
        return sum(costs) if costs else None

    @property
    def generations_planned(self) -> int | None:
        """How many generations the budget is good for; None while not even one has told what it takes."""
        budget = self.plan.get("evaluations")
        each = self.generations[0].evaluations if self.generations else 0
        return max(int(budget) // each, len(self.generations)) if budget and each else None


@dataclass(frozen=True, slots=True)
class Tail:
    """Events after a position, and the position to ask from next. Progress is only its newest state: see `record`."""

    events: tuple[AnyJobEvent, ...]
    position: int


@dataclass(eq=False)
class _Job:
    """The training that this process works on, or worked on last."""

    plan: Plan
    owner: str | None
    control: Switch
    state: State = "preparing"
    job_id: str | None = None
    since: float = field(default_factory=time.time)
    record: Record | None = None
    events: list[AnyJobEvent] = field(default_factory=list)
    message: str = ""
    refusal: TrinityError | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    driving: Future[None] | None = None


class TrainingManager:
    """Starts, pauses, resumes, stops and shows trainings. All methods may be called from any thread or loop."""

    def __init__(self, trainer: Trainer, store: Lab, spawn: Spawn, control: Callable[[], Switch]) -> None:
        self._trainer = trainer
        self._store = store
        self._spawn = spawn
        self._control = control
        self._lock = threading.RLock()
        self._job: _Job | None = None
        self._revision = 0
        self._closing = False

    # --- Looking ------------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        """Grows whenever a status, a record or the list of trainings may have changed."""
        return self._revision

    @property
    def status(self) -> TrainingStatus:
        with self._lock:
            job = self._job
            if job is None:
                return TrainingStatus()
            progress = job.record.progress if job.record and job.state in BUSY else None
            return TrainingStatus(job.state, job.job_id, job.owner, job.plan, job.since, job.message, progress)

    def tail(self, job_id: str, after: int = 0) -> Tail:
        """The events of the training under way (or the last one) from position `after` on; none for any other."""
        with self._lock:
            job = self._job
            if job is None or job.job_id != job_id:
                return Tail((), after)
            return Tail(tuple(job.events[max(after, 0) :]), len(job.events))

    def record(self, job_id: str) -> Record | None:
        """All that is known of a training, from memory or from the store. Raises StoreError."""
        with self._lock:
            if self._job is not None and self._job.job_id == job_id and self._job.record is not None:
                return replace(self._job.record, state=self._job.state)
        run = self._store.training_run(job_id, all_owners=True)
        return None if run is None else self._stored(run, self._store.generations(job_id))

    def records(self) -> tuple[Record, ...]:
        """All trainings, newest first, without their generations but for the one in memory. Raises StoreError."""
        found = [self._stored(run, ()) for run in self._store.training_runs(all_owners=True)]
        with self._lock:
            live = self._job.record if self._job else None
            if live is not None and self._job is not None:
                live = replace(live, state=self._job.state)
                found = [live if one.job_id == live.job_id else one for one in found]
        return tuple(found)

    @staticmethod
    def may_steer(record: Record | TrainingStatus | _Job, owner: str | None) -> bool:
        """Whether `owner` may pause, resume, stop or delete this training."""
        return record.owner is None or record.owner == owner

    async def preflight(self, plan: Plan, owner: str | None) -> Preflight:
        """What `plan` would be, from the engine's own loop. Raises TrinityError."""
        return await asyncio.wrap_future(self._spawn(self._trainer.preflight(plan, owner)))

    # --- Steering -----------------------------------------------------------------------------------------

    async def start(self, plan: Plan, owner: str | None) -> str | None:
        """Begin to train, and return the training's id as soon as it has one (None: it is still preparing).

        Raises InputError when the preflight finds problems, and TrinityError when another training runs or the
        engine refuses this one at once. A caller that goes away does not end the training.
        """
        return await self._launch(plan, owner, None)

    async def resume(self, job_id: str, owner: str | None) -> str | None:
        """Go on with a paused or interrupted training. Raises as `start` does, and InputError when it cannot."""
        record = await asyncio.to_thread(self._required, job_id, owner)
        if record.state not in ("paused", "interrupted"):
            raise InputError(f"This training is {record.state}; only a paused or interrupted one can be resumed.")
        return await self._launch(Plan.from_json(record.plan), record.owner, record)

    def pause(self, owner: str | None) -> bool:
        """Ask the training under way to end after its current step, to be resumed later; False when none runs.

        Raises InputError when it is somebody else's.
        """
        with self._lock:
            job = self._steered(owner)
            if job is None or job.state == "stopping":
                return False
            job.state = "pausing"
            job.control.pause()
            self._revision += 1
            return True

    def stop(self, owner: str | None) -> bool:
        """Ask the training under way to end for good, keeping its last checkpoint; False when none runs.

        Raises InputError when it is somebody else's.
        """
        with self._lock:
            job = self._steered(owner)
            if job is None:
                return False
            job.state = "stopping"
            job.control.stop()
            self._revision += 1
            return True

    def delete(self, job_id: str, owner: str | None) -> None:
        """Forget a training and its generations; checkpoints stay. Blocks on the disk.

        Raises InputError when it is somebody else's or still goes on, StoreError when the store fails.
        """
        record = self._required(job_id, owner)
        if record.state in BUSY:
            raise InputError("This training still goes on. Stop it first, then delete it.")
        self._store.delete_training_run(job_id)
        with self._lock:
            if self._job is not None and self._job.job_id == job_id:
                self._job = None
            self._revision += 1

    def shutdown(self, timeout_s: float = 20.0) -> None:
        """Pause the training under way and wait for it; cut it off after `timeout_s` seconds. Safe to call twice.

        To be called before the loop of `spawn` ends, and not from that loop.
        """
        with self._lock:
            self._closing = True
            job = self._job
            if job is None or job.state not in BUSY or job.driving is None:
                return
            if job.state != "stopping":
                job.state = "pausing"
                job.control.pause()
            driving = job.driving
        try:
            self._spawn(_settled(driving, timeout_s)).result(timeout_s + 10)
        except (TimeoutError, TrinityError) as error:
            _log.warning("the training did not end in time: %s", error)

    # --- Inside -------------------------------------------------------------------------------------------

    def _steered(self, owner: str | None) -> _Job | None:
        job = self._job
        if job is None or job.state not in BUSY:
            return None
        if not self.may_steer(job, owner):
            raise InputError("This training was started by somebody else; only they can pause or stop it.")
        return job

    def _required(self, job_id: str, owner: str | None) -> Record:
        record = self.record(job_id)
        if record is None:
            raise InputError("There is no such training any more.")
        if not self.may_steer(record, owner):
            raise InputError("This training was started by somebody else; only they can change it.")
        return record

    async def _launch(self, plan: Plan, owner: str | None, resumed: Record | None) -> str | None:
        with self._lock:
            if self._closing:
                raise TrinityError("Trinity is shutting down. Start it again.")
            if self._job is not None and self._job.state in BUSY:
                raise TrinityError(self._occupied(self._job))
            before = self._job
            job = self._job = _Job(plan, owner, self._control())
            if resumed is not None:
                job.job_id = resumed.job_id
                job.record = replace(
                    resumed, state="preparing", since=job.since, resumed_at=len(resumed.generations), message="",
                    finished_at=None, notes=(),
                )  # fmt: skip
            self._revision += 1
            job.driving = self._spawn(self._drive(job, resumed))
        await asyncio.wrap_future(self._spawn(_first(job)))
        if job.refusal is not None:
            with self._lock:
                if self._job is job:
                    self._job = before  # what was shown before is shown again
                self._revision += 1
            raise job.refusal
        return job.job_id

    @staticmethod
    def _occupied(job: _Job) -> str:
        at = f", {len(job.record.generations)} generations so far" if job.record and job.record.generations else ""
        return (
            f"A training runs already ({job.plan.method}, {job.plan.head} head, {job.state}{at}). One at a time: "
            "wait until it has ended, or pause or stop it first."
        )

    async def _drive(self, job: _Job, resumed: Record | None) -> None:
        """Take one training to its end; this is the boundary where whatever broke becomes a failed training."""
        outcome: State = "failed"
        events: AsyncIterator[AnyJobEvent] | None = None
        try:
            if resumed is None:
                found = await self._trainer.preflight(job.plan, job.owner)
                if found.problems:
                    raise InputError("This training cannot start: " + " ".join(found.problems))
            events = self._trainer.run(
                job.plan, job.owner, job.control, job_id=None if resumed is None else resumed.job_id
            )
            message = "The training ended without saying how. The log may tell more."
            async for event in events:
                self._take(job, event)
                job.begun.set()
                if isinstance(event, JobPaused):
                    outcome, message = "paused", event.reason
                elif isinstance(event, JobFinished):
                    outcome, message = _outcome(event)
            job.message = message
        except (asyncio.CancelledError, Cancelled):
            outcome, job.message = "interrupted", "The training was cut off. It can be resumed."
        except TrinityError as error:
            job.message = redact(str(error))
            job.refusal = None if job.begun.is_set() else error
        except Exception as error:
            log_fault("the training", error)
            job.message = f"Trinity itself failed ({type(error).__name__}); the log has the details."
            job.refusal = None if job.begun.is_set() else TrinityError(job.message)
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()
            if outcome == "interrupted" and job.job_id is not None:
                await self._mark_interrupted(job.job_id)
            with self._lock:
                job.state = outcome
                if job.record is not None:
                    job.record = replace(
                        job.record, state=outcome, message=job.message, finished_at=time.time(), progress=None
                    )
                self._revision += 1
            job.begun.set()

    async def _mark_interrupted(self, job_id: str) -> None:
        try:
            await asyncio.to_thread(self._store.update_training_run, job_id, status=Status.INTERRUPTED)
        except StoreError as error:
            _log.warning("the training %s could not be marked interrupted: %s", job_id, error)

    def _take(self, job: _Job, event: AnyJobEvent) -> None:
        with self._lock:
            self._revision += 1
            if job.state == "preparing":
                job.state = "running"
            if job.record is None:
                job.job_id = event.job_id
                job.record = Record(
                    event.job_id, job.plan.method, job.state, job.owner, job.plan.to_json(), created_at=event.at,
                    since=job.since,
                )  # fmt: skip
            job.record = _grown(job.record, event)
            if not isinstance(event, Progress):
                job.events.append(event)

    def _stored(self, run: TrainingRun, generations: Sequence[StoredGeneration]) -> Record:
        plan = run.params.get("plan", run.params)
        return Record(
            run.id,
            str(plan.get("method", run.method)) if isinstance(plan, Mapping) else run.method,
            "paused" if run.paused else _STORED[run.status],
            run.owner,
            plan if isinstance(plan, Mapping) else {},
            tuple(_event(one) for one in generations),
            tuple(wire.record(Validation, dict(one)) for one in run.validations),
            notes=tuple(str(note.get("message", "")) for note in run.notes[-_NOTES:]),
            checkpoint_id=run.checkpoint_id,
            result=run.result or {},
            message=run.error.message if run.error else "",
            created_at=run.created_at,
            finished_at=run.finished_at,
        )


async def _first(job: _Job) -> None:
    """Return with the first event or the end, at the latest after a while. On the loop that drives the job."""
    with contextlib.suppress(TimeoutError):  # still getting ready, for example loading a model
        await asyncio.wait_for(job.begun.wait(), _FIRST_EVENT_S)


async def _settled(driving: Future[None], timeout_s: float) -> None:
    """Wait for the driver; cut it off when it takes longer."""
    waiting = asyncio.wrap_future(driving)
    done, _ = await asyncio.wait({waiting}, timeout=timeout_s)
    if not done:
        driving.cancel()
        await asyncio.sleep(0)


def _outcome(event: JobFinished) -> tuple[State, str]:
    states: dict[Status, State] = {
        Status.DONE: "done", Status.CANCELLED: "cancelled", Status.INTERRUPTED: "interrupted",
    }  # fmt: skip
    return states.get(event.status, "failed"), (event.error.message if event.error else event.message)


def _grown(record: Record, event: AnyJobEvent) -> Record:
    """The record with one more event. A generation or validation told again after a resume replaces the first."""
    if isinstance(event, Generation):
        kept = tuple(g for g in record.generations if g.number != event.number)
        return replace(record, generations=(*kept, event))
    if isinstance(event, Validation):
        kept_ = tuple(v for v in record.validations if (v.name, v.number) != (event.name, event.number))
        return replace(record, validations=(*kept_, event))
    if isinstance(event, CheckpointSaved):
        return replace(record, checkpoint_id=event.checkpoint_id)
    if isinstance(event, JobNote):
        return replace(record, notes=(*record.notes, event.message)[-_NOTES:])
    if isinstance(event, Progress):
        return replace(record, progress=event)
    if isinstance(event, JobStarted):
        plan = event.params.get("plan")
        return replace(record, plan=plan) if isinstance(plan, Mapping) else record
    if isinstance(event, JobFinished):
        best = event.result.get("checkpoint_id")
        return replace(
            record, result=event.result, checkpoint_id=best if isinstance(best, str) else record.checkpoint_id
        )
    return record


def _event(stored: StoredGeneration) -> Generation:
    """A stored generation as the event it came from, as far as it is stored."""
    names = {one.name for one in fields(Generation)} & {one.name for one in fields(stored)}
    return Generation(job_id=stored.training_run_id, seq=0, **{name: getattr(stored, name) for name in names})


def _sum(values: Any) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
