"""How calls to a remote member are made: the table `[agents.service]` of the pool file. It shapes no reply.

    concurrency          calls at once (4)
    requests_per_minute  most requests a minute (no limit)
    tokens_per_minute    most tokens a minute, a request counted with all it may use (no limit)
    connect_s            seconds until a connection stands, and as many again to agree on TLS (10)
    first_token_s        seconds from sending a request to the first text or reasoning (120)
    between_tokens_s     seconds from one piece to the next; comments and pings are none (60)
    total_s              seconds for everything: waiting for a slot, all attempts, all pauses (600)
    retries              further attempts after a failure that may pass (3)
    rest_after           failures in a row after which the member rests (5)
    rest_s               seconds that it rests before one call tries it again (30)
    price                { input = 1.0, output = 2.0, cached = 0.1 }, dollars per million tokens (from the price list)

The rates are those of a bucket that holds one minute's worth, as the providers' own limits are: after a quiet time
that much may go out at once. Slots and rates are counted in each event loop by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trinity_core.errors import PoolError, did_you_mean
from trinity_core.types import AgentSpec

_MOST_SECONDS = 86_400.0
_WHOLE = {"concurrency": 1, "requests_per_minute": 1, "tokens_per_minute": 1, "retries": 0, "rest_after": 1}
"""Settings that are whole numbers, with the least value of each."""


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens. `cached` None: input tokens read from a cache cost as much as others."""

    input: float
    output: float
    cached: float | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """The settings of one member; see the module's docstring. Times in seconds."""

    concurrency: int = 4
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    connect_s: float = 10.0
    first_token_s: float = 120.0
    between_tokens_s: float = 60.0
    total_s: float = 600.0
    retries: int = 3
    rest_after: int = 5
    rest_s: float = 30.0
    price: Price | None = None

    @classmethod
    def read(cls, spec: AgentSpec) -> Service:
        """The settings of `spec`. Raises PoolError naming the member, the setting and the fix."""
        made: dict[str, Any] = {}
        for name, value in spec.service.items():
            where = f"Agent {spec.name}: service.{name}"
            if name not in cls.__dataclass_fields__:
                raise PoolError(_unknown(where, name, cls.__dataclass_fields__))
            if name == "price":
                made[name] = _price(where, value)
            elif name in _WHOLE:
                made[name] = _whole(where, value, _WHOLE[name])
            else:
                made[name] = _seconds(where, value)
        return cls(**made)


def _unknown(where: str, name: str, known: Iterable[str]) -> str:
    names = list(known)
    return f"{where} is unknown.{did_you_mean(name, names)} Known: {', '.join(names)}."


def _whole(where: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise PoolError(f"{where} must be a whole number of at least {least}, not {value!r}.")
    return value


def _seconds(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _MOST_SECONDS:
        raise PoolError(
            f"{where} must be a number of seconds above 0 and at most {_MOST_SECONDS:,.0f}, not {value!r}."
        )
    return float(value)


def _price(where: str, value: Any) -> Price:
    names = Price.__dataclass_fields__
    if not isinstance(value, Mapping):
        raise PoolError(f"{where} must be a table such as {{ input = 1.0, output = 2.0 }}, not {value!r}.")
    for name, rate in value.items():
        if name not in names:
            raise PoolError(_unknown(f"{where}.{name}", name, names))
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not (math.isfinite(rate) and rate >= 0):
            raise PoolError(f"{where}.{name} must be dollars per million tokens, 0 or more, not {rate!r}.")
    for name in ("input", "output"):
        if name not in value:
            raise PoolError(f"{where}.{name} is missing. Give both input and output, in dollars per million tokens.")
    return Price(**{name: float(rate) for name, rate in value.items()})
