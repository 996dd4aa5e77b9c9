"""Stored replies: read or asked afresh, live streaming, one call for equal requests, and stores that fail."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage.store import Store
from tests.fakes import FakePool, ListedPolicy, ScriptedAgent, collect, finished
from trinity_core.agents import recall
from trinity_core.agents.recall import Recall
from trinity_core.agents.replies import ReplyStore, reply_key
from trinity_core.errors import AgentError, StoreError
from trinity_core.types import (
    AgentSpec,
    Brief,
    Finish,
    Message,
    Piece,
    Reply,
    Request,
    Reset,
    Role,
    RunParams,
    Sampling,
    Usage,
)

SPEC = AgentSpec("a", "scripted")
FULL = Reply("Answer: 42", Finish.STOP, "six sevens", Usage(10, 4, 2, 1), 0.25, 0.1, 3.0, "req-1", 2, 1, ("odd",))
Part = Piece | Reset | Reply


class Shelf(ReplyStore):
    """Replies in a dict, whatever they are; remembers in which threads it was asked, and may fail."""

    def __init__(self, *, reads: Exception | None = None, writes: Exception | None = None) -> None:
        self.known: dict[tuple[str, int], Reply] = {}
        self.reads, self.writes = reads, writes
        self.threads: set[int] = set()
        self.puts = 0

    def get_reply(self, key: str, sample: int) -> Reply | None:
        self.threads.add(threading.get_ident())
        if self.reads:
            raise self.reads
        return self.known.get((key, sample))

    def put_reply(self, key: str, sample: int, request_json: Mapping[str, Any], reply: Reply) -> None:
        self.threads.add(threading.get_ident())
        self.puts += 1
        if self.writes:
            raise self.writes
        self.known.setdefault((key, sample), reply)


class Gated:
    """A member that says a word, waits until `go` is set, and then does what `then` says."""

    def __init__(self, then: Callable[[int], Reply | Exception] = lambda call: FULL) -> None:
        self.spec, self.then, self.go, self.calls, self.closed = SPEC, then, asyncio.Event(), 0, 0

    async def stream(self, request: Request) -> AsyncIterator[Part]:
        self.calls += 1
        call = self.calls
        try:
            yield Piece("first ")
            await self.go.wait()
            made = self.then(call)
            if isinstance(made, Exception):
                raise made
            yield Reset("again")
            yield Piece(made.text)
            yield made
        finally:
            self.closed += 1

    async def aclose(self) -> None:
        pass


def request(question: str = "What is 6 times 7?", **sampling: Any) -> Request:
    message = Message("user", question)
    return Request(SPEC, (message,), Brief(Role.WORKER, (message,)), Sampling(**sampling))


def member(agent: Any, store: ReplyStore, **how: Any) -> Any:
    return Recall(FakePool(agent), store, **how).agent("a")


async def hear(agent: Any, asked: Request | None = None) -> list[Part]:
    return [part async for part in agent.stream(asked or request())]


@pytest.fixture(autouse=True)
def _no_line_is_left() -> Any:
    yield
    assert not any(recall._lines.values()), "nobody asks any more, so nothing may be remembered of it"


# --- The two policies -------------------------------------------------------------------------------------------


async def test_a_stored_reply_is_given_without_calling_the_member() -> None:
    agent, store = ScriptedAgent("a", FULL), Shelf()
    live = await hear(member(agent, store))
    reused = await hear(member(agent, store))
    assert live[-1] == FULL
    assert reused[:-1] == [Piece("six sevens", "reasoning"), Piece("Answer: 42")]
    reply = reused[-1]
    assert isinstance(reply, Reply)
    assert len(agent.requests) == 1
    assert reply.seconds < 1.0
    assert replace(reply, seconds=0.0) == Reply(
        "Answer: 42",
        Finish.STOP,
        "six sevens",
        FULL.usage,
        cost=None,
        first_token_s=None,
        request_id="req-1",
        calls=0,
        unpriced=0,
        reused=True,
    )


async def test_asking_afresh_calls_the_member_and_the_first_reply_stays() -> None:
    agent, store = ScriptedAgent("a", "first", "second", "third"), Shelf()
    said = [(await hear(member(agent, store, read=False)))[-1] for _ in range(2)]
    assert [isinstance(r, Reply) and (r.text, r.reused, r.calls) for r in said] == [
        ("first", False, 1),
        ("second", False, 1),
    ]
    read = (await hear(member(agent, store)))[-1]
    assert isinstance(read, Reply)
    assert (read.text, read.reused) == ("first", True)
    assert agent.queue == ["third"]


@pytest.mark.parametrize("read", [True, False])
async def test_what_is_not_stored_streams_live_and_is_committed_before_the_reply_is_handed_out(read: bool) -> None:
    agent, store = Gated(), Shelf()
    parts = member(agent, store, read=read).stream(request())
    assert await anext(parts) == Piece("first ")  # the member is still waiting
    assert store.known == {}
    agent.go.set()
    assert await anext(parts) == Reset("again")
    assert await anext(parts) == Piece("Answer: 42")
    assert await anext(parts) == FULL
    assert list(store.known.values()) == [FULL]
    with pytest.raises(StopAsyncIteration):
        await anext(parts)


async def test_samples_and_every_field_that_is_sent_have_replies_of_their_own() -> None:
    agent, store = ScriptedAgent("a", *"abcde"), Shelf()
    asked = [request(), request(temperature=0.0), request(temperature=1.0), request(max_tokens=16)]
    heard = [await hear(member(agent, store), one) for one in asked]
    heard.append(await hear(member(agent, store, sample=1)))
    assert [isinstance(parts[-1], Reply) and parts[-1].text for parts in heard] == list("abcde")
    again = [await hear(member(agent, store), one) for one in asked]
    assert [isinstance(parts[-1], Reply) and parts[-1].text for parts in again] == list("abcd")


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize(
    "reply",
    [
        Reply("", Finish.STOP),
        Reply(" \n", Finish.LENGTH),
        Reply("", Finish.EMPTY),
        Reply("half", Finish.INCOMPLETE),
        Reply("half", Finish.ERROR),
        Reply("no", Finish.BLOCKED),
    ],
    ids=lambda reply: f"{reply.finish} {reply.text!r}",
)
async def test_an_empty_or_failed_reply_is_neither_stored_nor_read(reply: Reply, read: bool) -> None:
    agent, store = ScriptedAgent("a", reply, "good"), Shelf()
    assert (await hear(member(agent, store, read=read)))[-1] == reply
    assert store.puts == 0
    store.known[reply_key(request()), 0] = reply  # by a store that does not look
    good = (await hear(member(agent, store, read=read)))[-1]
    assert isinstance(good, Reply)
    assert (good.text, good.reused) == ("good", False)


@pytest.mark.parametrize("read", [True, False])
async def test_a_failed_call_stays_a_failed_call(read: bool) -> None:
    store = Shelf()
    with pytest.raises(AgentError, match="down"):
        await hear(member(ScriptedAgent("a", AgentError("down")), store, read=read))
    assert store.puts == 0


async def test_a_member_that_ends_without_a_reply_is_passed_on_as_it_is() -> None:
    class Silent(ScriptedAgent):
        async def stream(self, request: Request) -> AsyncIterator[Part]:
            yield Piece("half")

    store = Shelf()
    assert await hear(member(Silent("a"), store)) == [Piece("half")]
    assert store.puts == 0


async def test_the_real_store_gives_back_what_it_was_given(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'trinity.db'}")
    agent = ScriptedAgent("a", FULL)
    await hear(member(agent, store, read=False))
    reply = (await hear(member(agent, store)))[-1]
    store.close()
    assert isinstance(reply, Reply)
    assert (reply.text, reply.reasoning, reply.usage, reply.reused) == (FULL.text, "six sevens", FULL.usage, True)
    assert (reply.cost, reply.unpriced, reply.calls, reply.warnings) == (None, 0, 0, ())


# --- The rest of a pool -----------------------------------------------------------------------------------------


async def test_it_is_a_pool_like_the_one_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = FakePool(ScriptedAgent("a"), ScriptedAgent("b"))
    monkeypatch.setattr(pool, "resting", lambda: {"b": "too many failures"}, raising=False)
    remembering = Recall(pool, Shelf())
    assert remembering.names == ("a", "b")
    assert remembering.specs == pool.specs
    assert remembering.resting() == {"b": "too many failures"}
    assert remembering.agent("b").spec == pool.agent("b").spec


@pytest.mark.parametrize(("read", "calls"), [(True, 2), (False, 4)])
async def test_a_run_over_it_is_a_run(read: bool, calls: int) -> None:
    agent, store = ScriptedAgent("a", *["Answer: 42", "Right.\nVERDICT: ACCEPT"] * 2), Shelf()
    for _ in range(2):
        pool = Recall(FakePool(agent), store, read=read)
        policy = ListedPolicy([("a", Role.WORKER), ("a", Role.VERIFIER)])
        events = await collect(pool, policy, params=RunParams(reuse=read))  # type: ignore[arg-type]
        assert [turn.text for turn in finished(events)] == ["Answer: 42", "accept: Right."]
    assert len(agent.requests) == calls
    assert len(store.known) == 2


# --- Equal requests at once -------------------------------------------------------------------------------------


async def _settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0.002)


async def test_equal_requests_at_once_make_one_call_also_of_different_runs() -> None:
    agent, store = Gated(), Shelf()
    waiting = [asyncio.create_task(hear(member(agent, store))) for _ in range(5)]
    other = asyncio.create_task(hear(member(agent, store), request("Something else")))
    await _settle()
    assert agent.calls == 2  # another request does not wait
    agent.go.set()
    replies = [parts[-1] for parts in await asyncio.gather(*waiting)]
    await other
    assert agent.calls == 2
    assert [isinstance(r, Reply) and (r.text, r.reused) for r in replies] == [(FULL.text, i > 0) for i in range(5)]


async def test_asking_afresh_waits_for_nobody() -> None:
    agent, store = Gated(), Shelf()
    waiting = [asyncio.create_task(hear(member(agent, store, read=read))) for read in (True, False, False)]
    await _settle()
    assert agent.calls == 3
    agent.go.set()
    await asyncio.gather(*waiting)


async def test_stores_do_not_wait_for_one_another() -> None:
    agent = Gated()
    waiting = [asyncio.create_task(hear(member(agent, Shelf()))) for _ in range(2)]
    await _settle()
    assert agent.calls == 2
    agent.go.set()
    await asyncio.gather(*waiting)


@pytest.mark.parametrize("first", ["fails", "is cancelled", "is closed", "says nothing"])
async def test_when_the_first_comes_to_nothing_the_second_calls_for_itself(first: str) -> None:
    nothing: dict[str, Reply | Exception] = {"fails": AgentError("down"), "says nothing": Reply("", Finish.EMPTY)}
    agent, store = Gated(lambda call: nothing.get(first, FULL) if call == 1 else FULL), Shelf()
    parts = member(agent, store).stream(request())
    assert await anext(parts) == Piece("first ")
    second = asyncio.create_task(hear(member(agent, store)))
    await _settle()
    assert (agent.calls, second.done()) == (1, False)
    if first == "is closed":
        await parts.aclose()
    elif first == "is cancelled":
        blocked = asyncio.ensure_future(anext(parts))
        await asyncio.sleep(0)
        blocked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await blocked
    agent.go.set()
    if first == "fails":
        with pytest.raises(AgentError):
            await anext(parts)
    elif first == "says nothing":
        assert [part async for part in parts][-1] == Reply("", Finish.EMPTY)
    reply = (await asyncio.wait_for(second, 5))[-1]
    assert isinstance(reply, Reply)
    assert (agent.calls, agent.closed) == (2, 2)
    assert (reply.text, reply.reused) == (FULL.text, False)


async def test_one_who_waits_may_leave() -> None:
    agent, store = Gated(), Shelf()
    waiting = [asyncio.create_task(hear(member(agent, store))) for _ in range(3)]
    await _settle()
    waiting[1].cancel()
    await asyncio.gather(waiting[1], return_exceptions=True)
    agent.go.set()
    await asyncio.gather(waiting[0], waiting[2])
    assert agent.calls == 1


async def test_whoever_takes_a_reply_slowly_keeps_nobody_waiting() -> None:
    agent, store = Gated(), Shelf()
    agent.go.set()
    parts = member(agent, store).stream(request())
    while not isinstance(await anext(parts), Reply):
        pass
    reply = (await asyncio.wait_for(hear(member(agent, store)), 5))[-1]  # `parts` is still open
    assert isinstance(reply, Reply)
    assert reply.reused
    slow = member(agent, store).stream(request())
    assert await anext(slow) == Piece("six sevens", "reasoning")
    await asyncio.wait_for(hear(member(agent, store)), 5)
    await parts.aclose()
    await slow.aclose()
    assert agent.calls == 1


def test_requests_of_different_event_loops_do_not_wait_for_one_another() -> None:
    class Together(ScriptedAgent):
        async def stream(self, request: Request) -> AsyncIterator[Part]:
            await asyncio.to_thread(meeting.wait, 10)
            yield FULL

    meeting, store = threading.Barrier(2), Shelf()
    heard: list[Part] = []

    def work() -> None:
        async def both() -> None:  # the second one makes the lock wait, which ties it to its loop
            agent = Together("a")
            for parts in await asyncio.gather(*(hear(member(agent, store)) for _ in range(2))):
                heard.append(parts[-1])

        asyncio.run(both())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(isinstance(reply, Reply) and reply.reused for reply in heard) == [False, False, True, True]


# --- Stores that are slow or fail -------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [True, False])
async def test_the_event_loop_never_waits_for_the_disk(read: bool) -> None:
    class Slow(Shelf):
        def put_reply(self, key: str, sample: int, request_json: Mapping[str, Any], reply: Reply) -> None:
            time.sleep(0.1)
            super().put_reply(key, sample, request_json, reply)

    store = Slow()
    asked = asyncio.create_task(hear(member(ScriptedAgent("a", FULL), store, read=read)))
    longest, last = 0.0, time.monotonic()
    while not asked.done():
        await asyncio.sleep(0.002)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    assert threading.get_ident() not in store.threads
    assert store.threads
    assert longest < 0.09


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (StoreError("The disk is full. Free some space."), "The disk is full. Free some space)."),
        (OSError(28, "No space left on device"), "No space left on device)."),
        (KeyError("calls"), "KeyError: 'calls')."),
    ],
)
async def test_a_reply_that_cannot_be_stored_goes_on_with_a_warning(
    error: Exception, shown: str, read: bool, caplog: pytest.LogCaptureFixture
) -> None:
    agent, store = ScriptedAgent("a", FULL, FULL), Shelf(writes=error)
    pool = Recall(FakePool(agent), store, read=read)
    for _ in range(2):
        reply = (await hear(pool.agent("a")))[-1]
        assert isinstance(reply, Reply)
        assert replace(reply, warnings=FULL.warnings) == FULL
        assert reply.warnings[0] == "odd"
        assert "could not be stored" in reply.warnings[1]
        assert reply.warnings[1].endswith(shown)
    assert len(caplog.records) == 1, "the log says it once"
    assert (caplog.records[0].exc_info is None) is not isinstance(error, KeyError)


async def test_where_stored_replies_cannot_be_read_the_member_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    store = Shelf(reads=StoreError("The database is locked by key sk-abcdefgh12345678."))
    reply = (await hear(member(ScriptedAgent("a", FULL), store)))[-1]
    assert isinstance(reply, Reply)
    assert (reply.text, reply.reused, reply.calls) == (FULL.text, False, 2)
    assert "could not be read" in reply.warnings[-1]
    assert "sk-abcdefgh" not in reply.warnings[-1] + caplog.text
    assert list(store.known.values()) == [FULL], "without the warning, which is about this look-up"
