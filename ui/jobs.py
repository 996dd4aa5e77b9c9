"""Runs that live in the server, not in a page's handler.

A `RunManager` owns one event loop in one thread. Each run is a task there that consumes the recorded events of
one answer and keeps them in an append-only list; a page only tails that list, from whatever loop it lives on.

Invariants:
- Whoever is not the owner of a run gets nothing: no events, no Stop, not even whether the run exists.
- A run that nobody has tailed for `grace_s` seconds is stopped; Stop takes effect within a second, by force if
  the method does not end by itself. Whoever gives up waiting for `start` has stopped the run.
- Every run ends with exactly one `RunFinished`, also when the method breaks or is cut off.
- A finished run leaves memory after `keep_s` seconds; from then on only the store knows it.
- What an unforeseen exception says is logged without keys, and never part of an event.

Not covered: training and evaluation jobs, which go on until they are stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from trinity_core.errors import AgentError, Cancelled, TrinityError
from trinity_core.types import AnyRunEvent, Failure, RunFinished, Status, StopReason
from trinity_core.wire import redact

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from trinity_core.session.loop import RunRequest

T = TypeVar("T")
Record = Callable[[AsyncIterator[AnyRunEvent]], AsyncGenerator[AnyRunEvent, None]]

_log = logging.getLogger(__name__)
_FIRST_EVENT_S = 2.0
"""How long `start` waits for a refusal (a question that cannot be used) before it returns."""
_FORCE_S = 0.7
"""A method that has not ended this long after Stop is cut off."""


def log_fault(what: str, error: BaseException) -> None:
    """Log where an unforeseen exception came from, without any key that its text may hold."""
    _log.error("%s broke:\n%s", what, redact("".join(traceback.format_exception(error))))


class Answers(Protocol):
    """What can answer a request: `trinity_core.session.methods.Methods`."""

    def answer(self, request: RunRequest, stop: asyncio.Event) -> AsyncIterator[AnyRunEvent]: ...


@dataclass(eq=False)
class _Waiter:
    """Wakes one tail on its own loop."""

    loop: asyncio.AbstractEventLoop
    ready: asyncio.Event

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # a closed loop: nobody waits there any more
            self.loop.call_soon_threadsafe(self.ready.set)


@dataclass(eq=False)
class _Run:
    run_id: str
    owner: str | None
    stop: asyncio.Event
    seen: float
    events: list[AnyRunEvent] = field(default_factory=list)
    waiters: set[_Waiter] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    task: asyncio.Task[None] | None = None
    refusal: TrinityError | None = None
    ended: float | None = None

    def append(self, event: AnyRunEvent) -> None:
        self.events.append(event)
        self.wake()

    def wake(self) -> None:
        with self.lock:
            waiters = tuple(self.waiters)
        for waiter in waiters:
            waiter.wake()

    @property
    def finished(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], RunFinished)


class RunManager:
    """Starts, tails and stops runs. All methods may be called from any thread or loop."""

    def __init__(self, methods: Answers, record: Record, *, grace_s: float = 30.0, keep_s: float = 600.0) -> None:
        self._methods = methods
        self._record = record
        self._grace_s = grace_s
        self._keep_s = keep_s
        self._runs: dict[str, _Run] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="trinity-runs", daemon=True)
        self._thread.start()
        self._reaper = self._submit(self._reap())

    # --- The public face ----------------------------------------------------------------------------------

    async def start(self, request: RunRequest, *, wait_s: float = _FIRST_EVENT_S) -> str:
        """Begin to answer `request` and return its run id.

        Raises the method's InputError (or another TrinityError) when it refuses the request within `wait_s` seconds,
        and TrinityError while the manager shuts down.
        """
        starting = self._submit(self._start(request, wait_s))
        try:
            return await asyncio.wrap_future(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(TrinityError):
                self._submit(self._abandon(request.run_id))
            raise

    async def tail(
        self, run_id: str, owner: str | None, after_seq: int = -1, *, beat_s: float = 1.0
    ) -> AsyncGenerator[tuple[AnyRunEvent, ...], None]:
        """Batches of the events with `seq` above `after_seq`, until the run has ended.

        An empty batch comes about every `beat_s` seconds while nothing happens, so that a consumer that is gone is
        noticed. An unknown run, or one of another owner, yields nothing.
        """
        run = self._mine(run_id, owner)
        if run is None:
            return
        waiter = _Waiter(asyncio.get_running_loop(), asyncio.Event())
        with run.lock:
            run.waiters.add(waiter)
        try:
            position = after_seq + 1
            while True:
                run.seen = time.monotonic()
                waiter.ready.clear()
                finished = run.finished
                batch = tuple(run.events[position:])
                position += len(batch)
                yield batch
                if finished:
                    return
                if len(run.events) > position:
                    continue
                try:
                    await asyncio.wait_for(waiter.ready.wait(), min(beat_s, self._grace_s / 3))
                except TimeoutError:
                    continue
        finally:
            with run.lock:
                run.waiters.discard(waiter)

    def stop(self, run_id: str, owner: str | None) -> bool:
        """Ask the run to end; True when it is this owner's and still running."""
        run = self._mine(run_id, owner)
        if run is None or run.finished:
            return False
        with contextlib.suppress(TrinityError):  # shutting down, which stops it too
            self._submit(self._stop(run))
        return True

    def knows(self, run_id: str, owner: str | None) -> bool:
        """Whether the run is in memory and belongs to `owner`."""
        return self._mine(run_id, owner) is not None

    def running(self) -> int:
        """How many runs are under way, whoever owns them."""
        return sum(not run.finished for run in tuple(self._runs.values()))

    def spawn(self, work: Coroutine[object, object, T]) -> Future[T]:
        """Run other long work, such as a training, on the manager's loop; to be ended before `shutdown`.

        Raises TrinityError once the manager is shut down.
        """
        return self._submit(work)

    def shutdown(self, timeout_s: float = 5.0) -> None:
        """Stop every run and the loop. Safe to call twice."""
        if self._loop.is_closed():
            return
        try:
            self._submit(self._close()).result(timeout_s)
        except TimeoutError:
            _log.warning("some runs did not end within %.0f s", timeout_s)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout_s)

    # --- On the manager's own loop ------------------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _submit(self, work: Coroutine[object, object, T]) -> Future[T]:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # the loop is closed
            work.close()
            raise TrinityError("Trinity is shutting down. Start it again.") from None

    def _mine(self, run_id: str, owner: str | None) -> _Run | None:
        run = self._runs.get(run_id)
        return run if run is not None and run.owner == owner else None

    async def _start(self, request: RunRequest, wait_s: float) -> str:
        if request.run_id in self._runs:
            raise TrinityError(f"The run {request.run_id} exists already.")
        stop = asyncio.Event()
        events = self._methods.answer(request, stop)
        run = _Run(request.run_id, request.owner, stop, time.monotonic())
        self._runs[run.run_id] = run
        run.task = asyncio.create_task(self._consume(run, events))
        waiter = _Waiter(self._loop, asyncio.Event())
        with run.lock:
            run.waiters.add(waiter)
        if not run.events and run.refusal is None:
            with contextlib.suppress(TimeoutError):  # still getting ready, for example loading a model
                await asyncio.wait_for(waiter.ready.wait(), wait_s)
        with run.lock:
            run.waiters.discard(waiter)
        if run.refusal is not None:
            del self._runs[run.run_id]
            raise run.refusal
        return run.run_id

    async def _consume(self, run: _Run, events: AsyncIterator[AnyRunEvent]) -> None:
        """Drive one run to its end; this is the boundary where whatever broke becomes a failed run."""
        status, reason = Status.FAILED, StopReason.FAILED
        failure: Failure | None = Failure("internal", "The run ended without saying why.")
        try:
            async with contextlib.aclosing(self._record(events)) as recorded:
                async for event in recorded:
                    run.append(event)
        except (asyncio.CancelledError, Cancelled):
            status, reason, failure = Status.CANCELLED, StopReason.CANCELLED, None
        except TrinityError as error:
            if not run.events:
                run.refusal = error
            kind = error.kind if isinstance(error, AgentError) else type(error).__name__
            failure = Failure(kind, redact(str(error)))
        except Exception as error:
            log_fault(f"run {run.run_id}", error)
            failure = Failure("internal", f"Trinity itself failed ({type(error).__name__}); the log has the details.")
        finally:
            run.ended = time.monotonic()
            if not run.finished:
                run.append(
                    RunFinished(
                        run_id=run.run_id,
                        seq=len(run.events),
                        at=time.time(),
                        status=status,
                        stop_reason=reason,
                        error=failure,
                    )
                )
            run.wake()

    async def _stop(self, run: _Run) -> None:
        run.stop.set()
        if run.task is not None and not run.task.done():
            await asyncio.wait({run.task}, timeout=_FORCE_S)
            run.task.cancel()

    async def _abandon(self, run_id: str) -> None:
        run = self._runs.get(run_id)
        if run is not None:
            await self._stop(run)

    async def _reap(self) -> None:
        """Stop what nobody watches and forget what ended long ago."""
        while True:
            await asyncio.sleep(min(1.0, self._grace_s / 4))
            now = time.monotonic()
            for run in tuple(self._runs.values()):
                if run.ended is not None:
                    if now - run.ended > self._keep_s:
                        self._runs.pop(run.run_id, None)
                elif now - run.seen > self._grace_s and not run.stop.is_set():
                    await self._stop(run)

    async def _close(self) -> None:
        self._reaper.cancel()
        live = [run for run in self._runs.values() if run.ended is None]
        await asyncio.gather(*(self._stop(run) for run in live))
        tasks = [run.task for run in live if run.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=2.0)
