"""Background runs: tailing, stopping, owners, unwatched runs, and shutting down."""

from __future__ import annotations

import asyncio
import copy
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from trinity_core.errors import InputError, StoreError, TrinityError
from trinity_core.session.loop import RunRequest
from trinity_core.types import (
    AnyRunEvent,
    Delta,
    Message,
    RunFinished,
    RunParams,
    RunStarted,
    Source,
    Status,
    StopReason,
)
from ui.jobs import RunManager

Events = AsyncGenerator[AnyRunEvent, None]


class Scripted:
    """Answers with `words`, one event each `pause` seconds; counts what it still does."""

    def __init__(self, words: int = 3, pause: float = 0.0, *, deaf: bool = False) -> None:
        self.words, self.pause, self.deaf = words, pause, deaf
        self.sent = 0
        self.closed = threading.Event()

    async def answer(self, request: RunRequest, stop: asyncio.Event) -> Events:
        if not request.messages[-1].content.strip():
            raise InputError("The question is empty.")
        seq = iter(range(10_000))

        def head() -> dict[str, Any]:
            return {"run_id": request.run_id, "seq": next(seq), "at": time.time()}

        try:
            yield RunStarted(
                **head(), messages=request.messages, method="m", source=Source.UI, params=RunParams(), pool=(),
                seed=0, owner=request.owner,
            )  # fmt: skip
            for number in range(self.words):
                if self.pause:
                    if self.deaf:
                        await asyncio.sleep(self.pause)
                    else:
                        await asyncio.wait({asyncio.ensure_future(stop.wait())}, timeout=self.pause)
                if stop.is_set() and not self.deaf:
                    yield RunFinished(**head(), status=Status.CANCELLED, stop_reason=StopReason.CANCELLED)
                    return
                self.sent += 1
                yield Delta(**head(), turn=1, attempt=1, text=f"w{number} ")
            yield RunFinished(**head(), status=Status.DONE, stop_reason=StopReason.ACCEPTED, answer="done")
        finally:
            self.closed.set()


async def passed(events: AsyncIterator[AnyRunEvent]) -> Events:
    async for event in events:
        yield event


def ask(owner: str | None = "ann", text: str = "why?") -> RunRequest:
    return RunRequest((Message("user", text),), owner=owner)


async def everything(manager: RunManager, run_id: str, owner: str | None, after: int = -1) -> list[AnyRunEvent]:
    return [event async for batch in manager.tail(run_id, owner, after) for event in batch]


Make = Callable[..., RunManager]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[RunManager] = []

    def build(methods: Scripted, record: Callable[..., Events] = passed, **times: float) -> RunManager:
        made.append(RunManager(methods, record, **times))
        return made[-1]

    yield build
    for manager in made:
        manager.shutdown()


async def test_a_tail_gets_every_event_once_and_in_order(make: Make) -> None:
    manager = make(Scripted(20, 0.001))
    run_id = await manager.start(ask())
    events = await everything(manager, run_id, "ann")
    assert [event.seq for event in events] == list(range(22))
    assert isinstance(events[-1], RunFinished)
    assert await everything(manager, run_id, "ann") == events, "a second tail sees the same from the start"
    assert await everything(manager, run_id, "ann", after=19) == events[20:]


async def test_two_owners_run_in_parallel_and_see_nothing_of_each_other(make: Make) -> None:
    manager = make(Scripted(5, 0.05))
    first, second = await asyncio.gather(manager.start(ask("ann", "A?")), manager.start(ask("bob", "B?")))
    assert first != second
    assert manager.running() == 2
    mine, other = await asyncio.gather(everything(manager, first, "ann"), everything(manager, second, "bob"))
    assert {event.run_id for event in mine} == {first}
    assert {event.run_id for event in other} == {second}


@pytest.mark.parametrize("stranger", ["bob", "", None])
async def test_a_stranger_can_neither_see_nor_stop_a_run(make: Make, stranger: str | None) -> None:
    manager = make(Scripted(3, 0.05))
    run_id = await manager.start(ask("ann"))
    assert await everything(manager, run_id, stranger) == []
    assert not manager.knows(run_id, stranger)
    assert not manager.stop(run_id, stranger)
    assert (await everything(manager, run_id, "ann"))[-1].status is Status.DONE  # type: ignore[union-attr]


@pytest.mark.parametrize("deaf", [False, True], ids=["obeys", "ignores stop"])
async def test_stop_ends_a_run_within_a_second_and_keeps_what_arrived(make: Make, deaf: bool) -> None:
    methods = Scripted(1000, 0.3, deaf=deaf)
    manager = make(methods)
    run_id = await manager.start(ask())
    await asyncio.sleep(0.4)
    before = time.monotonic()
    assert manager.stop(run_id, "ann")
    events = await everything(manager, run_id, "ann")
    assert time.monotonic() - before < 1.0
    assert events[-1].status is Status.CANCELLED  # type: ignore[union-attr]
    assert [event.text for event in events if isinstance(event, Delta)][:1] == ["w0 "]
    assert methods.closed.wait(1.0)
    assert not manager.stop(run_id, "ann"), "there is nothing left to stop"


async def test_a_run_that_nobody_watches_ends_after_the_grace(make: Make) -> None:
    methods = Scripted(1000, 0.02)
    manager = make(methods, grace_s=0.3)
    run_id = await manager.start(ask())
    async for _ in manager.tail(run_id, "ann"):
        break  # the tab is closed
    assert methods.closed.wait(3.0)
    calls = methods.sent
    await asyncio.sleep(0.2)
    assert methods.sent == calls
    assert (await everything(manager, run_id, "ann"))[-1].status is Status.CANCELLED  # type: ignore[union-attr]


async def test_a_watched_run_outlives_the_grace(make: Make) -> None:
    manager = make(Scripted(12, 0.1), grace_s=0.4)
    run_id = await manager.start(ask())
    assert (await everything(manager, run_id, "ann"))[-1].status is Status.DONE  # type: ignore[union-attr]


async def test_a_silent_run_sends_heartbeats_to_its_tail(make: Make) -> None:
    manager = make(Scripted(1, 1.0), grace_s=0.6)
    run_id = await manager.start(ask())
    batches = [batch async for batch in manager.tail(run_id, "ann")]
    assert () in batches


async def test_finished_runs_leave_memory(make: Make) -> None:
    manager = make(Scripted(1), grace_s=0.2, keep_s=0.2)
    run_id = await manager.start(ask())
    await everything(manager, run_id, "ann")
    for _ in range(100):
        if not manager.knows(run_id, "ann"):
            break
        await asyncio.sleep(0.02)
    assert not manager.knows(run_id, "ann")


async def test_a_refused_question_is_an_error_of_start_and_leaves_nothing(make: Make) -> None:
    manager = make(Scripted())
    request = ask(text="   ")
    with pytest.raises(InputError, match="empty"):
        await manager.start(request)
    assert not manager.knows(request.run_id, "ann")


@pytest.mark.parametrize(
    ("error", "shown"),
    [(StoreError("The disk is full."), "The disk is full."), (ZeroDivisionError("secret"), "ZeroDivisionError")],
)
async def test_a_run_that_breaks_still_ends_with_one_finished_event(
    make: Make, error: Exception, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaking(events: AsyncIterator[AnyRunEvent]) -> Events:
        async for event in events:
            yield event
            if event.seq == 1:
                raise error

    caplog.set_level("CRITICAL", "ui.jobs")
    manager = make(Scripted(), breaking)
    run_id = await manager.start(ask())
    events = await everything(manager, run_id, "ann")
    ends = [event for event in events if isinstance(event, RunFinished)]
    assert len(ends) == 1
    assert ends[0].status is Status.FAILED
    assert ends[0].error is not None
    assert shown in ends[0].error.message
    assert "secret" not in ends[0].error.message


async def test_who_gives_up_waiting_for_the_start_has_stopped_the_run(make: Make) -> None:
    class Loading(Scripted):
        async def answer(self, request: RunRequest, stop: asyncio.Event) -> Events:
            try:
                await asyncio.sleep(3600)
                async for event in super().answer(request, stop):
                    yield event
            finally:
                self.closed.set()

    methods = Loading()
    manager = make(methods)
    starting = asyncio.create_task(manager.start(ask()))
    await asyncio.sleep(0.1)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert await asyncio.to_thread(methods.closed.wait, 2.0)


async def test_a_start_waits_as_long_as_it_is_told(make: Make) -> None:
    class Late(Scripted):
        async def answer(self, request: RunRequest, stop: asyncio.Event) -> Events:
            await asyncio.sleep(0.3)
            async for event in super().answer(ask(text=""), stop):
                yield event

    began = time.monotonic()
    manager = make(Late())
    run_id = await manager.start(ask(), wait_s=0.05)
    assert time.monotonic() - began < 0.25
    last = (await everything(manager, run_id, "ann"))[-1]
    assert isinstance(last, RunFinished)
    assert last.error is not None
    assert (last.status, last.error.kind, last.error.message) == (
        Status.FAILED,
        "InputError",
        "The question is empty.",
    )
    with pytest.raises(InputError, match="empty"):
        await manager.start(ask(), wait_s=5.0)


async def test_a_tail_beats_as_often_as_it_is_told(make: Make) -> None:
    manager = make(Scripted(1, 0.3))
    run_id = await manager.start(ask())
    batches = [batch async for batch in manager.tail(run_id, "ann", beat_s=0.02)]
    assert batches.count(()) >= 5


async def test_what_broke_is_logged_without_keys(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    async def breaking(events: AsyncIterator[AnyRunEvent]) -> Events:
        async for event in events:
            yield event
            raise ValueError("400 for https://host/v1beta?key=AIza-placeholder&alt=sse, sk-placeholder-of-a-key")

    caplog.set_level("ERROR", "ui.jobs")
    manager = make(Scripted(), breaking)
    await everything(manager, await manager.start(ask()), "ann")
    assert "ValueError" in caplog.text
    assert "?key=[redacted]&alt=sse" in caplog.text
    assert "placeholder" not in caplog.text


async def test_after_shutdown_nothing_starts_and_the_reason_is_told(make: Make) -> None:
    manager = make(Scripted())
    await asyncio.to_thread(manager.shutdown)
    with pytest.raises(TrinityError, match="shutting down"):
        await manager.start(ask())


async def test_shutdown_ends_every_run_and_can_be_repeated(make: Make) -> None:
    methods = Scripted(1000, 0.05)
    manager = make(methods)
    await manager.start(ask())
    await asyncio.to_thread(manager.shutdown)
    assert methods.closed.is_set()
    await asyncio.to_thread(manager.shutdown)


async def test_a_tail_on_another_loop_is_woken(make: Make) -> None:
    manager = make(Scripted(3, 0.05))
    run_id = await manager.start(ask())
    events = await asyncio.to_thread(lambda: asyncio.run(everything(manager, run_id, "ann")))
    assert isinstance(events[-1], RunFinished)


def test_what_a_page_remembers_is_plain_data() -> None:
    """Page state is deep-copied for every visitor, so a lock or a client in it would break or be shared."""
    from ui.tabs import run, traces

    for state in (traces.START, run.START):
        assert copy.deepcopy(state) == state
        assert all(isinstance(value, str | int | bool | dict | list | None) for value in state.values())
