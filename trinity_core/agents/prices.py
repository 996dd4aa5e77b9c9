"""What a call to a member costs: the provider's own figure, then the pool file's price, then the price list.

The list is `genai-prices`, which carries its data with it: nothing is fetched, ever. It takes some tenths of a second
to import, so that happens on first use; `warm` does it beforehand in a thread. A member is looked up by its address
and model, or, at the address that its kind has by default, by the provider that owns it.

Invariants: what is not known is None, never 0: a model that the list does not know, one it has no price for (to which
the package itself gives 0), a server on this machine, a call whose tokens nobody told. A member that runs inside this
program costs nothing.

Not covered: writing to a provider's cache, tools, images and sound, discounts and taxes.
"""

from __future__ import annotations

import math
import re
import threading
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from trinity_core.agents.remote.service import Price, Service
from trinity_core.types import AgentSpec, Usage

_OWNERS = {"openai": "openai", "anthropic": "anthropic", "gemini": "google"}
"""Remote kinds, and whose the address is that each has by default, by the list's names."""
REMOTE = frozenset(_OWNERS)
"""Kinds of members that somebody else runs, who may charge for a call."""
_MILLION = 1_000_000


def remote(spec: AgentSpec) -> bool:
    """Whether calling the member means calling somebody else, who may charge for it."""
    return spec.kind in REMOTE


def warm() -> None:
    """Import the price list in a thread, so that no call waits for it."""
    threading.Thread(target=_listed, args=("openai", None, "gpt"), name="trinity-prices", daemon=True).start()


def price(spec: AgentSpec, usage: Usage, reported: float | None = None) -> float | None:
    """What a call cost in dollars, or None when that is not known. `reported` is the provider's own figure.

    Raises PoolError when the price in `spec.service` cannot be read.
    """
    if reported is not None and math.isfinite(reported) and reported >= 0:
        return float(reported)
    if not remote(spec):
        return 0.0
    if usage.input is None or usage.output is None or usage.input < 0 or usage.output < 0:
        return None
    cached = min(max(usage.cached or 0, 0), usage.input)
    configured = _configured(spec)
    if configured is None:
        return _list_price(spec, usage.input, cached, usage.output)
    cached_rate = configured.input if configured.cached is None else configured.cached
    fresh = usage.input - cached
    return (fresh * configured.input + cached * cached_rate + usage.output * configured.output) / _MILLION


def rates(spec: AgentSpec) -> Price | None:
    """What the member charges now, in dollars per million tokens, or None when that is not known. Where the list has
    steps for long prompts, the first one."""
    if not remote(spec):
        return Price(0.0, 0.0, 0.0)
    configured = _configured(spec)
    if configured is not None:
        return configured
    listed = _prices(spec)
    if listed is None:
        return None
    cached = listed.cache_read_mtok
    return Price(_rate(listed.input_mtok), _rate(listed.output_mtok), None if cached is None else _rate(cached))


def _configured(spec: AgentSpec) -> Price | None:
    return Service.read(spec).price if spec.service else None


# --- The list ---------------------------------------------------------------------------------------------


def _list_price(spec: AgentSpec, into: int, cached: int, out: int) -> float | None:
    listed = _prices(spec)
    if listed is None:
        return None
    from genai_prices import Usage as Counted

    try:
        counted = Counted(input_tokens=into, cache_read_tokens=cached, output_tokens=out)
        return float(listed.calc_price(counted)["total_price"])
    except (ValueError, ArithmeticError):  # a price in the list that cannot be applied
        return None


def _prices(spec: AgentSpec) -> Any | None:
    """The list's prices for the member at this hour (some vary over the day), or None."""
    if not spec.model:
        return None
    address = None if spec.base_url is None else _address(spec.base_url)
    if spec.base_url is not None and address is None:
        return None
    model = _listed(_OWNERS[spec.kind], address, spec.model.strip().removeprefix("models/"))
    if model is None:
        return None
    found = model.get_prices(datetime.now(UTC))
    return None if found.input_mtok is None or found.output_mtok is None else found


@lru_cache(maxsize=1024)
def _listed(owner: str, address: str | None, model: str) -> Any | None:
    """The list's entry for `model` at `address`, or at the owner's own address when that is None."""
    from genai_prices.data_snapshot import get_snapshot

    snapshot = get_snapshot()
    try:
        if address is None:
            return snapshot.find_provider_model(model, None, owner, None)[1]
        provider = snapshot.find_provider(None, None, address)
        if not _whole_host(provider.api_pattern, address):
            return None
        return snapshot.find_provider_model(model, provider, None, None)[1]
    except LookupError:
        return None


def _address(base_url: str) -> str | None:
    """`base_url` as the list's patterns expect it: scheme and host in lower case, no user, no query."""
    try:
        parts = urlsplit(base_url.strip())
        host = parts.hostname
    except ValueError:
        return None
    return f"{parts.scheme}://{host}{parts.path}" if host else None


def _whole_host(pattern: str, address: str) -> bool:
    """Whether `pattern`, which the list matches from the left only, covers the host of `address` to its end."""
    found = re.match(pattern, address)
    if found is None:
        return False
    rest = address[found.end() :]
    return not rest or rest[0] == "/" or found.group()[-1] in "/."


def _rate(value: Any) -> float:
    return float(value if isinstance(value, Decimal) else value.base)
