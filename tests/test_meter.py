"""The budget of the day: worst cases, what is set aside, what is counted, and that nothing slips through together."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from storage.store import Store
from trinity_core.agents import meter as module
from trinity_core.agents import prices
from trinity_core.agents.meter import FRESH_S, Meter, Spent, Ticket, Worst, midnight, prompt_tokens, worst_case
from trinity_core.errors import AgentError, StoreError
from trinity_core.types import AgentSpec, Brief, Limits, Message, Request, Role, Sampling, Usage

NOON = datetime(2026, 3, 4, 12).timestamp()
LOCAL = "http://127.0.0.1:1234/v1"
PRICE = {"price": {"input": 1.0, "output": 10.0}}


def request(kind: str = "openai", text: str = "hi", *, most: int = 100, **fields: Any) -> Request:
    fields = {"base_url": LOCAL, "service": PRICE} | fields if kind == "openai" else fields
    messages = (Message("user", text),)
    return Request(AgentSpec("a", kind, "m", **fields), messages, Brief(Role.WORKER, messages), Sampling(most))


class Clock:
    """A clock that is set by hand."""

    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class ListLedger:
    """A ledger in a list, which can be made to fail or to wait."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.broken = False
        self.gate = threading.Event()
        self.gate.set()

    def spent(self, since: float) -> Spent:
        self._usable()
        total = Spent()
        for row in self.rows:
            if row["at"] >= since:
                used = (row["usage"].input or 0) + (row["usage"].output or 0)
                total += Spent(1, used, row["cost"] or 0.0, int(row["cost"] is None))
        return total

    def add_spending(self, **row: Any) -> None:
        self._usable()
        self.rows.append(row)

    def _usable(self) -> None:
        self.gate.wait(10)
        if self.broken:
            raise StoreError("The disk is full.")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger() -> ListLedger:
    return ListLedger()


def kept(meter: Meter) -> None:
    """Wait until the meter's thread has done what it was asked for so far."""
    assert meter._books is not None
    meter._books.submit(lambda: None).result(10)


# --- The worst case of a call -----------------------------------------------------------------------------------


def test_the_worst_case_is_the_prompt_and_the_longest_reply() -> None:
    prompt = prompt_tokens((Message("user", "hi"),))
    assert worst_case(request()) == Worst(prompt + 100, (prompt + 100 * 10) / 1e6)
    capped = request(options={"max_tokens": 30})
    assert worst_case(capped).tokens == prompt + 30
    assert worst_case(request(most=20, options={"max_tokens": 30})).tokens == prompt + 20
    assert worst_case(request(service={})) == Worst(prompt + 100, None), "unknown is not nothing"


@pytest.mark.parametrize("kind", ["symbolic", "lexical", "calendar"])
def test_a_specialist_uses_nothing(kind: str) -> None:
    assert worst_case(request(kind)) == Worst(0, 0.0)


@pytest.mark.parametrize("kind", ["gguf", "transformers", "smollm2"])
def test_a_local_model_uses_tokens_and_no_money(kind: str) -> None:
    worst = worst_case(request(kind, most=50))
    assert (worst.tokens, worst.cost) == (prompt_tokens((Message("user", "hi"),)) + 50, 0.0)


def test_the_embedded_model_is_short_by_itself() -> None:
    assert worst_case(request("smollm2", most=4096)).tokens < 200
    assert worst_case(request("smollm2", most=4096, options={"max_tokens": 300})).tokens > 300


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        # What SmolLM2's tokenizer, whose vocabulary is small and English, makes of each.
        ("The coordinator reads the whole conversation and decides who acts next. " * 10, 121),
        ("Die Donaudampfschifffahrtsgesellschaft hat ihre Fahrpläne gründlich überarbeitet. " * 10, 361),
        ("Сегодня утром совет директоров решил пересмотреть расписание. " * 10, 442),
        ("今天早上董事会决定全面修订时间表，以便乘客能够准时到达目的地。" * 10, 510),
        ("إجتمع المجلس هذا الصباح لمراجعة الجداول الزمنية. " * 10, 481),
        ("def worst(request): return Worst(0, 0.0)  # nothing\n" * 10, 200),
    ],
)
def test_prompts_are_not_underestimated(text: str, needed: int) -> None:
    assert needed <= prompt_tokens((Message("user", text),)) <= 4 * needed


def test_any_text_can_be_estimated() -> None:
    assert prompt_tokens((Message("user", "\ud800 lone"),)) > 0
    two = (Message("system", "a"), Message("user", "b"))
    assert prompt_tokens(two) == sum(prompt_tokens((message,)) for message in two) > prompt_tokens(()) == 0


# --- Limits -----------------------------------------------------------------------------------------------------


def test_without_limits_everything_is_admitted_and_counted() -> None:
    meter = Meter()
    for cost in (0.25, None):
        assert meter.refusal(request()) is None
        meter.settle(meter.admit(request()), Usage(10, 5), cost)
    assert meter.today() == Spent(2, 30, 0.25, 1)


def test_calls_of_the_day() -> None:
    meter = Meter(day=Limits(calls=2))
    first, second = meter.admit(request()), meter.admit(request())
    with pytest.raises(AgentError, match=r"2 calls.*budget\.day.*tomorrow") as refused:
        meter.admit(request())
    assert (refused.value.kind, refused.value.retryable, refused.value.calls) == ("budget", False, 0)
    meter.settle(first, Usage(), None, called=False)
    assert meter.refusal(request()) is None, "a call that was not made gives its place back"
    meter.settle(second, Usage(1, 1), 0.0, failed=True)
    meter.settle(meter.admit(request()), Usage(1, 1), 0.0)
    assert meter.refusal(request()) is not None
    meter.day = Limits(calls=3)
    assert meter.refusal(request()) is None


def test_tokens_of_the_day_count_what_was_used_and_what_may_be() -> None:
    most = worst_case(request()).tokens
    meter = Meter(day=Limits(tokens=most))
    ticket = meter.admit(request())
    assert meter.refusal(request()) is not None
    meter.settle(ticket, Usage(1, 0), 0.0)
    refusal = meter.refusal(request())
    assert refusal is not None
    assert f"{most:,} tokens" in refusal
    assert "a could use" in refusal
    assert meter.refusal(request(most=99)) is None, "a shorter reply fits"


def test_money_of_the_day_count_what_was_spent_and_what_may_be() -> None:
    most = worst_case(request()).cost
    assert most is not None
    meter = Meter(day=Limits(cost=2 * most))
    first, second = meter.admit(request()), meter.admit(request())
    assert meter.refusal(request()) is not None
    meter.settle(first, Usage(1, 1), most / 4)
    meter.settle(second, Usage(1, 1), most / 4)
    third = meter.admit(request())
    assert meter.refusal(request()) is not None
    meter.settle(third, Usage(1, 1), most)
    refusal = meter.refusal(request())
    assert refusal is not None
    assert "could cost $" in refusal
    assert meter.refusal(request(service={"price": {"input": 0, "output": 0}})) is None, "a free one still may"


@pytest.mark.parametrize("limits", [Limits(calls=0), Limits(tokens=0), Limits(cost=0.0)])
def test_a_limit_of_nothing_lets_nothing_through(limits: Limits) -> None:
    assert Meter(day=limits).refusal(request()) is not None


def test_a_limit_in_money_needs_a_price_and_says_where_it_goes() -> None:
    meter = Meter(day=Limits(cost=5.0))
    refusal = meter.refusal(request(service={}))
    assert refusal is not None
    for part in ("$5.00", "a costs is not known", "service = { price = {", "pool file"):
        assert part in refusal
    with pytest.raises(AgentError, match="price"):
        meter.admit(request(service={}))
    assert Meter(day=Limits(calls=5, tokens=5000)).refusal(request(service={})) is None


@pytest.mark.parametrize("kind", ["symbolic", "smollm2", "gguf"])
def test_members_of_this_program_are_not_limited_and_not_counted(kind: str) -> None:
    meter = Meter(day=Limits(calls=0, tokens=0, cost=0.0))
    assert meter.refusal(request(kind)) is None
    meter.settle(meter.admit(request(kind)), Usage(10, 10), None)
    assert meter.today() == Spent()


def test_settling_twice_or_with_a_strange_ticket_changes_nothing() -> None:
    meter = Meter()
    ticket = meter.admit(request())
    meter.settle(ticket, Usage(1, 1), 1.0)
    meter.settle(ticket, Usage(1, 1), 1.0)
    meter.settle(Ticket("a", Worst(1, 1.0)), Usage(1, 1), 1.0)
    assert meter.today() == Spent(1, 2, 1.0)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [(Usage(-5, 2), -1.0), (Usage(10**15, 2), float("nan")), (Usage(None, 2), float("inf"))],
)
def test_figures_that_cannot_be_are_unknown(usage: Usage, cost: float) -> None:
    meter = Meter()
    meter.settle(meter.admit(request()), usage, cost)
    assert meter.today() == Spent(1, 2, 0.0, 1)


def test_what_a_call_left_unknown_stays_set_aside() -> None:
    most = worst_case(request())
    assert most.cost is not None
    money = Meter(day=Limits(cost=1.5 * most.cost))
    money.settle(money.admit(request()), Usage(), None, failed=True)
    assert money.today() == Spent(1, 0, 0.0, 1), "shown as unknown, not as its worst"
    assert money.refusal(request()) is not None
    tokens = Meter(day=Limits(tokens=int(1.5 * most.tokens)))
    tokens.settle(tokens.admit(request()), Usage(), None)
    assert tokens.refusal(request()) is not None
    free = Meter(day=Limits(tokens=int(1.5 * most.tokens)))
    free.settle(free.admit(request()), Usage(), 0.0)
    assert free.refusal(request()) is not None, "free of charge, not of tokens"
    half = Meter(day=Limits(tokens=2 * most.tokens))
    half.settle(half.admit(request()), Usage(5, None), None)
    assert half._unknown_tokens == most.tokens - 5


def test_a_call_that_was_turned_away_uses_nothing() -> None:
    most = worst_case(request())
    assert most.cost is not None
    meter = Meter(day=Limits(tokens=most.tokens, cost=most.cost))
    for _ in range(5):
        meter.settle(meter.admit(request()), Usage(), 0.0, failed=True)
    assert meter.today() == Spent(5, 0, 0.0, 0)


def test_calls_at_the_same_time_do_not_exceed_together() -> None:
    most = worst_case(request())
    assert most.cost is not None
    for limits in (Limits(calls=7), Limits(tokens=7 * most.tokens), Limits(cost=7 * most.cost)):
        meter = Meter(day=limits)
        barrier = threading.Barrier(16)
        made: list[int] = []

        def work(meter: Meter = meter, barrier: threading.Barrier = barrier, made: list[int] = made) -> None:
            barrier.wait()
            for _ in range(5):
                try:
                    ticket = meter.admit(request())
                except AgentError:
                    continue
                made.append(1)
                meter.settle(ticket, Usage(most.tokens, 0), most.cost)

        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 7, limits
        assert meter.today().calls == 7


# --- The day ----------------------------------------------------------------------------------------------------


def test_a_new_day_begins_at_local_midnight(clock: Clock) -> None:
    meter = Meter(day=Limits(calls=1), clock=clock)
    meter.settle(meter.admit(request()), Usage(), None)
    clock.now = datetime(2026, 3, 4, 23, 59, 59).timestamp()
    assert meter.refusal(request()) is not None
    clock.now = datetime(2026, 3, 5).timestamp()
    assert (meter.refusal(request()), meter.today()) == (None, Spent())
    going = meter.admit(request())
    clock.now = datetime(2026, 3, 6, 0, 1).timestamp()
    assert meter.refusal(request()) is not None, "a call that goes on is still set aside"
    meter.settle(going, Usage(1, 1), 1.0)
    assert meter.today() == Spent(1, 2, 1.0), "counted when it ended"


def test_what_was_unknown_yesterday_is_free_today(clock: Clock) -> None:
    most = worst_case(request()).cost
    meter = Meter(day=Limits(cost=most), clock=clock)
    meter.settle(meter.admit(request()), Usage(), None)
    assert meter.refusal(request()) is not None
    clock.now += 86_400
    assert meter.refusal(request()) is None


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York", "UTC"])
def test_midnight_is_that_of_the_place(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for hour in (0, 12, 23):
            began = midnight(datetime(2026, 3, 8, hour, 30).timestamp())  # New York's clocks change that night
            assert datetime.fromtimestamp(began) == datetime(2026, 3, 8)
    finally:
        monkeypatch.undo()
        time.tzset()


# --- The ledger -------------------------------------------------------------------------------------------------


def test_what_was_spent_before_counts(clock: Clock, ledger: ListLedger) -> None:
    for at in (midnight(NOON) - 1, midnight(NOON), NOON - 5):
        ledger.add_spending(at=at, agent="a", run_id=None, usage=Usage(1, 1), cost=0.5, failed=False)
    meter = Meter(ledger, Limits(calls=3), clock)
    assert meter.today() == Spent(2, 4, 1.0)
    meter.settle(meter.admit(request(), run_id="r1"), Usage(3, 4, 1, 2), None, failed=True)
    assert meter.refusal(request()) is not None
    meter.close()
    assert ledger.rows[-1] == {
        "at": NOON, "agent": "a", "run_id": "r1", "usage": Usage(3, 4, 1, 2), "cost": None, "failed": True,
    }  # fmt: skip
    assert meter.today() == Spent(3, 11, 1.0, 1)


def test_nobody_waits_for_the_ledger_and_nothing_is_lost_or_doubled(clock: Clock, ledger: ListLedger) -> None:
    meter = Meter(ledger, Limits(calls=4), clock)
    ledger.gate.clear()
    for number in range(3):
        meter.settle(meter.admit(request()), Usage(1, 1), 1.0)
        assert meter.today() == Spent(number + 1, 2 * (number + 1), number + 1.0)
    assert ledger.rows == []
    ledger.gate.set()
    kept(meter)
    kept(meter)
    assert (len(ledger.rows), meter.today()) == (3, Spent(3, 6, 3.0))
    meter.admit(request())
    assert meter.refusal(request()) is not None
    meter.close()


def test_a_ledger_that_fails_is_tried_again(clock: Clock, ledger: ListLedger) -> None:
    meter = Meter(ledger, Limits(calls=3), clock)
    ledger.broken = True
    for _ in range(2):
        meter.settle(meter.admit(request()), Usage(1, 1), 1.0)
        kept(meter)
    assert (ledger.rows, meter.today()) == ([], Spent(2, 4, 2.0))
    ledger.broken = False
    meter.settle(meter.admit(request()), Usage(1, 1), 1.0)
    meter.close()
    assert (len(ledger.rows), meter.today()) == (3, Spent(3, 6, 3.0))
    assert meter.refusal(request()) is not None


def test_spending_of_another_process_is_seen(clock: Clock, ledger: ListLedger) -> None:
    meter = Meter(ledger, Limits(calls=2), clock)
    theirs: dict[str, Any] = {"agent": "b", "run_id": None, "usage": Usage(1, 1), "cost": 1.0, "failed": False}
    ledger.add_spending(at=NOON, **theirs)
    meter.settle(meter.admit(request()), Usage(1, 1), 1.0)
    kept(meter)
    assert meter.today() == Spent(2, 4, 2.0)
    ledger.add_spending(at=NOON, **theirs)
    clock.now += FRESH_S + 1
    meter.today()
    kept(meter)
    assert meter.today() == Spent(3, 6, 3.0)
    meter.close()


def test_what_another_process_spent_counts_before_the_next_call(clock: Clock, ledger: ListLedger) -> None:
    meter = Meter(ledger, Limits(calls=2), clock)
    assert meter.refusal(request()) is None
    theirs: dict[str, Any] = {"agent": "b", "run_id": None, "usage": Usage(1, 1), "cost": 1.0, "failed": False}
    for _ in range(2):
        ledger.add_spending(at=NOON, **theirs)
    assert "2 calls" in (meter.refusal(request()) or "")
    meter.close()


def test_a_ledger_that_does_not_answer_holds_up_no_call_for_long(
    clock: Clock, ledger: ListLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.05)
    meter = Meter(ledger, Limits(calls=1), clock)
    ledger.gate.clear()
    began = time.monotonic()
    assert meter.refusal(request()) is None
    assert time.monotonic() - began < 2
    ledger.gate.set()
    meter.close()
    assert meter.refusal(request()) is None


def test_a_new_day_is_read_from_the_ledger_too(clock: Clock, ledger: ListLedger) -> None:
    meter = Meter(ledger, Limits(calls=1), clock)
    meter.settle(meter.admit(request()), Usage(1, 1), 1.0)
    clock.now += 86_400
    ledger.add_spending(at=clock.now, agent="b", run_id=None, usage=Usage(2, 2), cost=None, failed=False)
    meter.today()
    kept(meter)
    assert meter.today() == Spent(1, 4, 0.0, 1)
    meter.close()


def test_midnight_while_the_ledger_is_busy(clock: Clock, ledger: ListLedger) -> None:
    meter = Meter(ledger, Limits(calls=1), clock)
    ledger.gate.clear()
    meter.settle(meter.admit(request()), Usage(1, 1), 1.0)
    clock.now += 86_400
    assert (meter.today(), meter.refusal(request())) == (Spent(), None)
    meter.settle(meter.admit(request()), Usage(2, 2), 2.0)
    assert meter.today() == Spent(1, 4, 2.0)
    ledger.gate.set()
    kept(meter)
    kept(meter)
    assert (len(ledger.rows), meter.today()) == (2, Spent(1, 4, 2.0))
    meter.close()


def test_a_settlement_after_closing_is_written_too(clock: Clock, ledger: ListLedger) -> None:
    meter = Meter(ledger, clock=clock)
    ticket = meter.admit(request())
    meter.close()
    meter.settle(ticket, Usage(1, 1), 1.0)
    assert len(ledger.rows) == 1


def test_a_ledger_that_cannot_be_read_is_told_at_once(ledger: ListLedger) -> None:
    ledger.broken = True
    with pytest.raises(StoreError, match="full"):
        Meter(ledger)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(f"sqlite:///{tmp_path / 'trinity.db'}")
    yield opened
    opened.close()


def test_the_store_is_a_ledger_that_outlives_the_process(store: Store) -> None:
    limits = Limits(calls=3)
    first = Meter(store, limits)
    threads = [
        threading.Thread(target=lambda: first.settle(first.admit(request()), Usage(10, 5), 0.25)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first.close()
    second = Meter(store, limits)
    assert second.today() == Spent(2, 30, 0.5)
    second.settle(second.admit(request()), Usage(), None, failed=True)
    assert second.refusal(request()) is not None
    second.close()
    assert store.spent(0.0) == Spent(3, 30, 0.5, 1)


def test_a_member_without_service_is_priced_by_the_list() -> None:
    listed = request(base_url="https://api.openai.com/v1", service={})
    listed = replace(listed, agent=replace(listed.agent, model="gpt-4o"))
    worst = worst_case(listed)
    prompt = prompt_tokens(listed.messages)
    assert worst == Worst(prompt + 100, prices.price(listed.agent, Usage(prompt, 100)))
    assert worst.cost
    assert Meter(day=Limits(cost=1.0)).refusal(listed) is None
