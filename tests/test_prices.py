"""What calls cost: the provider's figure, the pool file's price, the price list, and what stays unknown."""

from __future__ import annotations

import math
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from genai_prices.data_snapshot import DataSnapshot, get_snapshot, set_custom_snapshot
from genai_prices.types import ClauseEquals, ModelInfo, ModelPrice, Provider, Tier, TieredPrices

from trinity_core.agents import prices
from trinity_core.agents.remote.service import Price
from trinity_core.errors import PoolError
from trinity_core.types import AgentSpec, Usage

OPENROUTER = "https://openrouter.ai/api/v1"
USED = Usage(1_000_000, 100_000, cached=400_000)


def member(kind: str = "openai", model: str | None = "m", base_url: str | None = None, **service: Any) -> AgentSpec:
    return AgentSpec("a", kind, model, base_url=base_url, service=service)


def priced(**fields: Any) -> AgentSpec:
    return member(base_url="http://127.0.0.1:1234/v1", price={"input": 2.0, "output": 10.0, **fields})


# --- The order: reported, configured, listed --------------------------------------------------------------------


@pytest.mark.parametrize("spec", [priced(), member(model="gpt-4o"), member(base_url="http://127.0.0.1:1/v1")])
@pytest.mark.parametrize("usage", [USED, Usage()])
def test_the_providers_own_figure_comes_first(spec: AgentSpec, usage: Usage) -> None:
    assert prices.price(spec, usage, 0.125) == 0.125
    assert prices.price(spec, usage, 0.0) == 0.0, "the provider says that it is free"


@pytest.mark.parametrize("odd", [-1.0, math.nan, math.inf])
def test_a_reported_figure_that_cannot_be_is_not_used(odd: float) -> None:
    assert prices.price(priced(), USED, odd) == prices.price(priced(), USED)
    assert prices.price(member(base_url="http://127.0.0.1:1/v1"), USED, odd) is None


def test_the_pool_files_price_counts_cached_tokens_once() -> None:
    assert prices.price(priced(cached=0.5), USED) == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.1 * 10)
    assert prices.price(priced(), USED) == pytest.approx(1.0 * 2 + 0.1 * 10), "cached ones cost as much as others"
    assert prices.price(priced(cached=0.0), USED) == pytest.approx(0.6 * 2 + 0.1 * 10)
    assert prices.price(member(price={"input": 0, "output": 0}), USED) == 0.0


def test_the_pool_files_price_comes_before_the_list() -> None:
    spec = member(model="gpt-4o", price={"input": 1.0, "output": 1.0})
    assert prices.price(spec, USED) == pytest.approx(1.1)
    assert prices.price(member(model="gpt-4o", retries=0), USED) == prices.price(member(model="gpt-4o"), USED)


@pytest.mark.parametrize(
    "usage",
    [Usage(), Usage(5), Usage(output=5), Usage(-1, 5), Usage(5, -1), Usage(cached=5)],
)
def test_without_a_count_of_tokens_nothing_is_known(usage: Usage) -> None:
    for spec in (priced(), member(model="gpt-4o")):
        assert prices.price(spec, usage) is None


@pytest.mark.parametrize(("cached", "means"), [(None, 0), (-3, 0), (2000, 1000)])
def test_an_odd_count_of_cached_tokens_is_no_error(cached: int | None, means: int) -> None:
    for spec in (priced(cached=1.0), member(model="gpt-4o")):
        found = prices.price(spec, Usage(1000, 100, cached=cached))
        assert found is not None
        assert found == pytest.approx(prices.price(spec, Usage(1000, 100, cached=means)))


def test_a_price_that_cannot_be_read_names_the_member() -> None:
    with pytest.raises(PoolError, match=r"Agent a.*output"):
        prices.price(member(price={"input": 1.0}), USED)


@pytest.mark.parametrize("kind", ["symbolic", "smollm2", "gguf", "transformers"])
def test_members_of_this_program_cost_nothing(kind: str) -> None:
    spec = AgentSpec("a", kind, "gpt-4o")
    assert (prices.price(spec, USED), prices.rates(spec)) == (0.0, Price(0.0, 0.0, 0.0))
    assert not prices.remote(spec)


# --- The list -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "model", "base_url"),
    [
        ("openai", "gpt-4o", None),
        ("openai", "gpt-4o", "https://api.openai.com/v1"),
        ("openai", " GPT-4o ", "HTTPS://API.OpenAI.com:443/v1/"),
        ("openai", "openai/gpt-4o", OPENROUTER),
        ("openai", "deepseek-chat", "https://api.deepseek.com"),
        ("openai", "deepseek-chat", "https://api.deepseek.com/v1"),
        ("openai", "llama-3.3-70b-versatile", "https://api.groq.com/openai/v1"),
        ("openai", "meta-llama/Llama-3.3-70B-Instruct-Turbo", "https://api.together.xyz/v1"),
        ("anthropic", "claude-opus-5-5", None),
        ("anthropic", "claude-opus-5-5", "https://api.anthropic.com/v1"),
        ("anthropic", "deepseek-chat", "https://api.deepseek.com/anthropic"),
        ("gemini", "gemini-2.5-pro", None),
        ("gemini", "models/gemini-2.5-pro", "https://generativelanguage.googleapis.com/v1beta"),
    ],
)
def test_the_list_knows_the_usual_providers(kind: str, model: str, base_url: str | None) -> None:
    spec = member(kind, model, base_url)
    found, rates = prices.price(spec, Usage(1000, 100)), prices.rates(spec)
    assert found is not None
    assert found > 0
    assert rates is not None
    assert found == pytest.approx((1000 * rates.input + 100 * rates.output) / 1e6)


@pytest.mark.parametrize(
    ("kind", "model", "base_url"),
    [
        ("openai", "gpt-4o", "http://127.0.0.1:11434/v1"),
        ("openai", "gpt-4o", "http://localhost:1234/v1"),
        ("openai", "gpt-4o", "https://api.openai.com.other.example/v1"),
        ("openai", "gpt-4o", "https://api.openai.community/v1"),
        ("openai", "gpt-4o", "https://other.example/https://api.openai.com/v1"),
        ("anthropic", "claude-opus-5-5", "http://10.0.0.5:4000"),
        ("gemini", "gemini-2.5-pro", "http://127.0.0.1:4040/gemini/v1beta"),
        ("openai", "no-such-model-at-all", None),
        ("openai", "claude-opus-5-5", None),
        ("openai", "", None),
        ("openai", None, None),
        ("openai", "gpt-4o", "https://[broken"),
        ("openai", "gpt-4o", "nonsense"),
    ],
)
def test_what_the_list_does_not_know_is_unknown(kind: str, model: str | None, base_url: str | None) -> None:
    spec = member(kind, model, base_url)
    assert (prices.price(spec, USED), prices.rates(spec)) == (None, None)


def test_no_model_without_prices_in_the_list_reads_as_free() -> None:
    """The package gives such a model a total of 0."""
    provider = next(provider for provider in get_snapshot().providers if provider.id == "openrouter")
    now, bare = datetime.now(UTC), []
    for model in provider.models:
        found = model.get_prices(now)
        if found.input_mtok is None or found.output_mtok is None:
            bare.append(model.id)
    assert bare, "the list has some"
    for name in bare:
        assert prices.price(member(model=name, base_url=OPENROUTER), USED) is None, name


@pytest.fixture
def small_list() -> Any:
    """A list of our own in place of the package's, for prices that no update of it changes."""
    stepped = TieredPrices(Decimal(1), [Tier(200_000, Decimal(2))])
    models = [
        ModelInfo("plain", ClauseEquals("plain"), prices=ModelPrice(input_mtok=Decimal(3), output_mtok=Decimal(15))),
        ModelInfo("stepped", ClauseEquals("stepped"), prices=ModelPrice(
            input_mtok=stepped, output_mtok=Decimal(4), cache_read_mtok=Decimal("0.1"))),
        ModelInfo("half", ClauseEquals("half"), prices=ModelPrice(input_mtok=Decimal(3))),
    ]  # fmt: skip
    provider = Provider("openai", "OpenAI", r"https://api\.openai\.com", models=models)
    set_custom_snapshot(DataSnapshot([provider], from_auto_update=False))
    prices._listed.cache_clear()
    yield
    set_custom_snapshot(None)
    prices._listed.cache_clear()


def test_sums_by_the_list(small_list: Any) -> None:
    assert prices.price(member(model="plain"), Usage(1000, 200, cached=400)) == pytest.approx(0.006)
    assert prices.price(member(model="stepped"), Usage(100_000, 1000)) == pytest.approx(0.104)
    assert prices.price(member(model="stepped"), Usage(300_000, 1000)) == pytest.approx(0.604)
    assert prices.price(member(model="stepped"), Usage(1000, 0, cached=1000)) == pytest.approx(0.0001)
    assert prices.price(member(model="half"), Usage(1000, 200)) is None
    assert prices.rates(member(model="plain")) == Price(3.0, 15.0, None)
    assert prices.rates(member(model="stepped")) == Price(1.0, 4.0, 0.1)
    assert prices.rates(member(model="half")) is None


def test_the_list_is_imported_when_it_is_needed_and_fetches_nothing() -> None:
    code = """
import socket, sys
def refuse(*args): raise AssertionError("network")
socket.socket.connect = socket.getaddrinfo = refuse
from trinity_core.agents import meter, prices
from trinity_core.types import AgentSpec, Usage
assert "genai_prices" not in sys.modules
assert prices.price(AgentSpec("a", "openai", "m", service={"price": {"input": 1, "output": 1}}), Usage(1, 1)) == 2e-6
assert "genai_prices" not in sys.modules
prices.warm()
import threading
for thread in threading.enumerate():
    if thread.name == "trinity-prices":
        thread.join()
assert "genai_prices" in sys.modules
assert prices.price(AgentSpec("a", "openai", "gpt-4o"), Usage(10, 10)) > 0
"""
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
