"""The circuit breaker's states, and the settings of a member's service."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from trinity_core.agents.remote.breaker import Breaker
from trinity_core.agents.remote.service import Price, Service
from trinity_core.errors import AgentError, PoolError
from trinity_core.types import AgentSpec


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def failure(kind: str, retry_after: float | None = None) -> AgentError:
    return AgentError(f"a {kind} failure", kind=kind, retryable=True, retry_after=retry_after)


def state(breaker: Breaker) -> str:
    return breaker.state


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(3, 30.0, clock)


def opened(breaker: Breaker) -> Breaker:
    for _ in range(3):
        breaker.failed(failure("timeout"))
    assert state(breaker) == "open"
    return breaker


@pytest.mark.parametrize("kind", ["transient", "transport", "timeout", "truncated", "protocol", "rate_limit"])
def test_opens_after_enough_failures_in_a_row(breaker: Breaker, kind: str) -> None:
    for _ in range(2):
        breaker.failed(failure(kind))
        assert state(breaker) == "closed"
        assert breaker.reason() is None
    breaker.failed(failure(kind))
    assert state(breaker) == "open"
    reason = breaker.reason()
    assert reason is not None
    assert f"a {kind} failure" in reason
    assert "3 times" in reason
    assert "30 s" in reason
    with pytest.raises(AgentError) as caught:
        breaker.admit()
    assert (caught.value.kind, caught.value.calls, caught.value.retry_after) == ("resting", 0, 30.0)


@pytest.mark.parametrize("kind", ["auth", "billing"])
def test_what_would_fail_again_opens_at_once(breaker: Breaker, kind: str) -> None:
    breaker.failed(failure(kind))
    assert state(breaker) == "open"
    assert "failed once" in str(breaker.reason())


@pytest.mark.parametrize("kind", ["bad_request", "context_length"])
def test_an_answer_that_refuses_the_request_ends_the_row(breaker: Breaker, kind: str) -> None:
    for _ in range(3):
        breaker.failed(failure("transient"))
        breaker.failed(failure("transient"))
        breaker.failed(failure(kind))
    assert state(breaker) == "closed"


@pytest.mark.parametrize("kind", ["internal", "budget", "resting"])
def test_failures_of_our_own_neither_count_nor_end_the_row(breaker: Breaker, kind: str) -> None:
    for _ in range(9):
        breaker.failed(failure(kind))
    assert state(breaker) == "closed"
    for _ in range(3):
        breaker.failed(failure("transient"))
        breaker.failed(failure(kind))
    assert state(breaker) == "open"


def test_success_ends_the_row(breaker: Breaker) -> None:
    for _ in range(4):
        breaker.failed(failure("transient"))
        breaker.failed(failure("transient"))
        breaker.succeeded()
    assert state(breaker) == "closed"


def test_half_open_lets_exactly_one_call_through(breaker: Breaker, clock: Clock) -> None:
    opened(breaker)
    clock.now += 29.9
    assert state(breaker) == "open"
    clock.now += 0.2
    assert state(breaker) == "half-open"
    assert breaker.reason() is None
    assert breaker.admit() is True
    assert "being tried" in str(breaker.reason())
    with pytest.raises(AgentError, match="being tried"):
        breaker.admit()


def test_trial_decides(breaker: Breaker, clock: Clock) -> None:
    opened(breaker)
    clock.now += 31
    breaker.admit()
    breaker.failed(failure("transport"))
    assert state(breaker) == "open"
    assert "30 s" in str(breaker.reason())
    clock.now += 31
    breaker.admit()
    breaker.succeeded()
    assert state(breaker) == "closed"
    assert breaker.admit() is False
    breaker.failed(failure("transport"))
    assert state(breaker) == "closed", "the row begins anew"


def test_abandoned_trial_is_offered_again(breaker: Breaker, clock: Clock) -> None:
    opened(breaker)
    clock.now += 31
    assert breaker.admit() is True
    breaker.abandoned()
    assert breaker.reason() is None
    assert breaker.admit() is True


def test_late_failures_do_not_lengthen_the_rest(breaker: Breaker, clock: Clock) -> None:
    opened(breaker)
    clock.now += 20
    breaker.failed(failure("timeout"))
    clock.now += 10.5
    assert state(breaker) == "half-open"


def test_rests_at_least_as_long_as_the_member_asked(breaker: Breaker, clock: Clock) -> None:
    for _ in range(3):
        breaker.failed(failure("rate_limit", retry_after=90))
    clock.now += 89
    assert state(breaker) == "open"
    clock.now += 2
    assert state(breaker) == "half-open"


def test_reset_forgets(breaker: Breaker) -> None:
    opened(breaker).reset()
    assert state(breaker) == "closed"
    assert breaker.reason() is None


def test_one_trial_among_many_threads(breaker: Breaker, clock: Clock) -> None:
    opened(breaker)
    clock.now += 31
    admitted: list[bool] = []
    gate = threading.Barrier(16)

    def ask() -> None:
        gate.wait()
        with suppress(AgentError):
            admitted.append(breaker.admit())

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert admitted == [True]


# --- The settings -----------------------------------------------------------------------------------------


def read(service: Mapping[str, Any]) -> Service:
    return Service.read(AgentSpec("ada", "openai", model="m", service=service))


def test_defaults_hold_where_nothing_is_said() -> None:
    assert read({}) == Service(4, None, None, 10, 120, 60, 600, 3, 5, 30, None)


def test_every_setting_is_read() -> None:
    given = {
        "concurrency": 2,
        "requests_per_minute": 30,
        "tokens_per_minute": 9000,
        "connect_s": 1,
        "first_token_s": 2.5,
        "between_tokens_s": 3,
        "total_s": 4,
        "retries": 0,
        "rest_after": 1,
        "rest_s": 0.5,
        "price": {"input": 1, "output": 2.5, "cached": 0},
    }
    assert set(given) == set(Service.__dataclass_fields__)
    assert read(given) == Service(2, 30, 9000, 1, 2.5, 3, 4, 0, 1, 0.5, Price(1, 2.5, 0))


@pytest.mark.parametrize(
    ("service", "words"),
    [
        ({"retrys": 1}, "service.retrys is unknown. Did you mean 'retries'?"),
        ({"Concurrency": 1}, "Did you mean 'concurrency'?"),
        ({"zzz": 1}, "Known: concurrency, requests_per_minute"),
        ({"concurrency": 0}, "whole number of at least 1, not 0"),
        ({"concurrency": 1.5}, "whole number"),
        ({"retries": -1}, "at least 0"),
        ({"retries": True}, "not True"),
        ({"tokens_per_minute": "9"}, "not '9'"),
        ({"total_s": 0}, "above 0"),
        ({"total_s": float("nan")}, "not nan"),
        ({"total_s": float("inf")}, "not inf"),
        ({"connect_s": "10"}, "not '10'"),
        ({"connect_s": False}, "not False"),
        ({"price": 3}, "must be a table"),
        ({"price": {"input": 1}}, "price.output is missing"),
        ({"price": {"input": 1, "outputs": 1}}, "Did you mean 'output'?"),
        ({"price": {"input": -1, "output": 1}}, "price.input must be dollars"),
        ({"price": {"input": float("nan"), "output": 1}}, "not nan"),
    ],
)
def test_wrong_settings_are_named_with_the_fix(service: Mapping[str, Any], words: str) -> None:
    with pytest.raises(PoolError) as caught:
        read(service)
    assert str(caught.value).startswith("Agent ada: service.")
    assert words in str(caught.value)
