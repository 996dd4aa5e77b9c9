"""The pool file: what it accepts, what it refuses and how it says so, and that agents are built on first use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from trinity_core import wire
from trinity_core.agents import pool as pools
from trinity_core.agents.base import Agent, Wiring
from trinity_core.agents.keys import Keys
from trinity_core.agents.meter import Meter
from trinity_core.agents.pool import KINDS, Kind, Pool, PoolFile, Roster, embedded_specs, load_pool, read_pool_file
from trinity_core.agents.remote.breaker import Breaker
from trinity_core.config import Settings
from trinity_core.errors import AgentError, PoolError
from trinity_core.types import AgentSpec, Finish, Limits, Piece, Reply, Request

REMOTE = '[[agents]]\nname = "a"\nkind = "openai"\nmodel = "m"\n'
SYMBOLIC = '[[agents]]\nname = "maths"\nkind = "symbolic"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pool.toml"


def refused(file: Path, text: str) -> str:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(PoolError) as caught:
        read_pool_file(file)
    assert str(file) in str(caught.value)
    return str(caught.value)


def test_without_a_file_the_pool_is_the_embedded_one(tmp_path: Path) -> None:
    file = load_pool(Settings(home=tmp_path, db_url="sqlite://"))
    pool = Pool(file.enabled)
    assert pool.names == ("smollm2", "symbolic", "lexical", "calendar")
    assert pool.specs == embedded_specs()
    assert all(spec.description and spec.enabled and spec.kind in KINDS for spec in pool.specs)
    assert "symbolic" in pool
    assert "gpt" not in pool


def test_a_file_gives_the_enabled_agents_in_its_order(tmp_path: Path, file: Path) -> None:
    model = tmp_path / "any.gguf"
    model.write_bytes(b"GGUF")
    file.write_text(
        f"""
        [[agents]]
        name = "words-2"
        kind = "lexical"
        [[agents]]
        name = "off"
        kind = "gguf"
        model = "/not/there.gguf"
        enabled = false
        [[agents]]
        name = "big.one"
        kind = "gguf"
        model = '{model}'
        description = "a – dash"
        [agents.options]
        max_tokens = 200
        contract = true
        """,
        encoding="utf-8-sig",
    )
    read = load_pool(Settings(home=tmp_path, db_url="sqlite://", pool=file))
    assert [spec.name for spec in read.specs] == ["words-2", "off", "big.one"]
    assert read.enabled == (
        AgentSpec("words-2", "lexical"),
        AgentSpec(
            "big.one",
            "gguf",
            model=str(model),
            description="a – dash",
            options={"max_tokens": 200, "contract": True},
        ),
    )
    assert len(Pool(read.enabled)) == 2


def test_a_remote_member_and_a_budget(file: Path) -> None:
    file.write_text(
        """
        [budget.run]
        calls = 10
        cost = 1
        [budget.day]
        tokens = 5_000
        [[agents]]
        name = "gpt"
        kind = "openai"
        model = "gpt-5.5"
        base_url = "http://127.0.0.1:11434/v1"
        key_env = "SOME_KEY"
        options = { effort = "low" }
        service = { concurrency = 2 }
        """
    )
    read = read_pool_file(file)
    (spec,) = read.enabled
    assert (spec.base_url, spec.key_env) == ("http://127.0.0.1:11434/v1", "SOME_KEY")
    assert (spec.options, spec.service) == ({"effort": "low"}, {"concurrency": 2})
    assert (read.run, read.day) == (Limits(calls=10, cost=1.0), Limits(tokens=5000))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[[agents]]\nname = \nkind", ("line 2", "TOML")),
        ("", ("[[agents]]",)),
        ('[agents]\nname = "a"\nkind = "lexical"\n', ("[[agents]]", "brackets")),
        ("agents = [1]\n", ("[[agents]]",)),
        ("agents = []\n", ("[[agents]]",)),
        ('version = 1\n[[agents]]\nname = "a"\nkind = "lexical"\n', ("version",)),
        ('[[agents]]\nkind = "symbolic"\n', ("entry 1", "name is missing")),
        ('[[agents]]\nname = ""\nkind = "symbolic"\n', ("entry 1", "name is missing")),
        ('[[agents]]\nname = "a"\n', ("entry 1", "kind is missing")),
        (SYMBOLIC + '[[agents]]\nname = "b"\nkind = "symbolik"\n', ("entry 2", "symbolik", "'symbolic'", "gguf")),
        (SYMBOLIC + 'colour = "red"\n', ("entry 1", "colour", "description")),
        (SYMBOLIC + "enable = true\n", ("entry 1", "'enable'", "'enabled'")),
        (SYMBOLIC + "enabled = 1\n", ("entry 1", "enabled", "true or false")),
        (SYMBOLIC + "description = 5\n", ("entry 1", "description", "quotes")),
        (SYMBOLIC + 'options = "x"\n', ("entry 1", "options", "table")),
        (SYMBOLIC + SYMBOLIC, ("entry 2", "maths", "entry 1")),
        (SYMBOLIC + SYMBOLIC.replace("maths", "MATHS"), ("entry 2", "MATHS", "entry 1")),
        (SYMBOLIC.replace("maths", "Trinity"), ("entry 1", "reserved")),
        (SYMBOLIC.replace("maths", "any"), ("entry 1", "reserved")),
        (SYMBOLIC.replace("maths", "my maths"), ("entry 1", "my maths", "letters")),
        (SYMBOLIC.replace("maths", "a:b"), ("entry 1", "a:b")),
        (SYMBOLIC.replace("maths", "-a"), ("entry 1", "-a")),
        (SYMBOLIC.replace("maths", "a\\n"), ("entry 1", "letters")),
        (SYMBOLIC.replace("maths", "é"), ("entry 1", "letters")),
        (SYMBOLIC.replace("maths", "x" * 65), ("entry 1", "64")),
        (SYMBOLIC + 'model = "x"\n', ("entry 1", "takes no model")),
        ('[[agents]]\nname = "a"\nkind = "gguf"\n', ("entry 1", "model =")),
        ('[[agents]]\nname = "a"\nkind = "gguf"\nmodel = "/no/such.gguf"\n', ("entry 1", "/no/such.gguf")),
        ('[[agents]]\nname = "a"\nkind = "gguf"\nenabled = false\n', ("entry 1", "model =")),
        ('[[agents]]\nname = "a"\nkind = "smollm2"\nmodel = "b"\n', ("entry 1", "gguf")),
        ('[[agents]]\nname = "a"\nkind = "smollm2"\noptions = {max_token = 5}\n', ("max_token", "max_tokens")),
        ('[[agents]]\nname = "a"\nkind = "smollm2"\noptions = {max_tokens = 0}\n', ("max_tokens", "above 0")),
        ('[[agents]]\nname = "a"\nkind = "smollm2"\noptions = {threads = true}\n', ("threads", "whole number")),
        ('[[agents]]\nname = "a"\nkind = "smollm2"\noptions = {contract = 1}\n', ("contract", "true or false")),
        (SYMBOLIC + "enabled = false\n", ("no agent is enabled",)),
        (SYMBOLIC + 'base_url = "http://127.0.0.1/v1"\n', ("entry 1", "takes no base_url", "openai")),
        (SYMBOLIC + 'key_env = "K"\n', ("entry 1", "takes no key_env")),
        (SYMBOLIC + "service = {concurrency = 1}\n", ("entry 1", "takes no service")),
        (REMOTE.replace('model = "m"', ""), ("entry 1", "model is missing")),
        (REMOTE + 'base_url = "file:///etc/passwd"\n', ("entry 1", "Agent a", "http")),
        (REMOTE + 'base_url = "http://169.254.169.254/v1"\n', ("entry 1", "169.254.169.254")),
        (REMOTE + 'key_env = "two words"\n', ("entry 1", "environment variable")),
        (REMOTE + "options = {efort = 'low'}\n", ("entry 1", "efort", "effort")),
        (REMOTE + "service = {concurency = 1}\n", ("entry 1", "concurency", "concurrency")),
        ("[buget]\n" + SYMBOLIC, ("buget", "'budget'")),
        ("[budget]\ncalls = 1\n" + SYMBOLIC, ("[budget.run]",)),
        ("[budget.today]\n" + SYMBOLIC, ("today", "run, day")),
        ("[budget.day]\ntoken = 1\n" + SYMBOLIC, ("budget.day", "token", "'tokens'")),
        ("[budget.day]\ncalls = 1.5\n" + SYMBOLIC, ("budget.day", "calls", "whole number")),
        ("[budget.run]\ncost = -1\n" + SYMBOLIC, ("budget.run", "cost", "dollars")),
        ("[budget.run]\ncost = nan\n" + SYMBOLIC, ("budget.run", "cost", "dollars")),
    ],
)
def test_what_does_not_fit_is_refused_with_the_place_and_the_fix(
    file: Path, text: str, parts: tuple[str, ...]
) -> None:
    message = refused(file, text)
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    "field",
    [
        'description = "uses sk-abcdefghijklmnop"',
        'model = "https://host/v1?api_key=abcdefgh"',
        'api_key = "abc"',
        'options = {headers = {Authorization = "x"}}',
        'options = {list = ["Bearer abcdefghijk"]}',
        "options = {sk-abcdefghijklmnop = 1}",
    ],
)
def test_a_file_with_a_key_is_refused_and_the_key_not_repeated(file: Path, field: str) -> None:
    message = refused(file, f"{SYMBOLIC}{field}\n")
    assert "key" in message
    assert "abcdefgh" not in message


def test_unreadable_files_are_told_apart(tmp_path: Path, file: Path) -> None:
    file.write_bytes(b'[[agents]]\nname = "\xff"')
    with pytest.raises(PoolError, match="UTF-8"):
        read_pool_file(file)
    with pytest.raises(PoolError, match="cannot be read"):
        read_pool_file(tmp_path)
    file.write_text("a = " + "[" * 100_000)
    with pytest.raises(PoolError):
        read_pool_file(file)


class _Fake:
    """An agent that remembers being closed, or fails to close."""

    def __init__(self, spec: AgentSpec) -> None:
        self.spec = spec
        self.closed = False

    async def stream(self, request: Request) -> AsyncIterator[Piece | Reply]:
        yield Reply("", Finish.EMPTY)

    async def aclose(self) -> None:
        self.closed = True
        if self.spec.name == "a":
            raise OSError("no")


async def test_agents_are_built_once_on_first_use_and_all_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[_Fake] = []

    def build(spec: AgentSpec, wiring: Wiring) -> _Fake:
        built.append(_Fake(spec))
        return built[-1]

    monkeypatch.setattr(pools, "KINDS", {"fake": Kind(build, lambda spec: None)})
    pool = Pool(tuple(AgentSpec(name, "fake") for name in "abc"))
    assert built == []
    assert pool.agent("a") is pool.agent("a")
    pool.agent("c")
    assert [fake.spec.name for fake in built] == ["a", "c"]
    with pytest.raises(PoolError, match="a, b, c"):
        pool.agent("d")
    with pytest.raises(OSError, match="no"):
        await pool.aclose()
    assert [fake.closed for fake in built] == [True, True]
    await pool.aclose()


@pytest.mark.parametrize(
    "specs", [(), (AgentSpec("a", "nope"),), (AgentSpec("a", "lexical"), AgentSpec("A", "lexical"))]
)
def test_a_pool_made_in_code_is_checked_too(specs: tuple[AgentSpec, ...]) -> None:
    with pytest.raises(PoolError):
        Pool(specs)


def test_every_embedded_kind_can_be_built() -> None:
    pool = Pool(embedded_specs())
    assert [pool.agent(name).spec for name in pool.names] == list(embedded_specs())


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> list[_Fake]:
    built: list[_Fake] = []

    def build(spec: AgentSpec, wiring: Wiring) -> Agent:
        built.append(_Fake(spec))
        return built[-1]

    monkeypatch.setattr(pools, "KINDS", {"fake": Kind(build, lambda spec: None)})
    return built


def fake_file(*names: str, day: Limits | None = None) -> PoolFile:
    return PoolFile(tuple(AgentSpec(name, "fake") for name in names), day=day or Limits())


async def test_a_run_keeps_its_pool_and_the_old_one_is_closed_when_the_last_run_ends(fakes: list[_Fake]) -> None:
    roster = Roster(fake_file("b"))
    with roster.lease() as first, roster.lease() as second:
        assert first is second
        old = first.agent("b")
        await roster.replace(fake_file("b", "c", day=Limits(calls=3)))
        assert roster.names == ("b", "c")
        assert roster.wiring.meter.day == Limits(calls=3)
        assert first.names == ("b",)
        assert roster.agent("b") is not old
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [fake.closed for fake in fakes] == [True, False]
    await roster.replace(fake_file("c"))
    assert fakes[1].closed


async def test_a_lease_of_the_pool_in_use_closes_nothing(fakes: list[_Fake]) -> None:
    roster = Roster(fake_file("b"))
    with roster.lease() as pool:
        pool.agent("b")
    await asyncio.sleep(0)
    assert not fakes[0].closed
    await roster.aclose()
    assert fakes[0].closed


def test_a_member_whose_breaker_is_open_rests(fakes: list[_Fake]) -> None:
    wiring = Wiring(Keys(), Meter(), breakers={"b": Breaker(1, 30.0)})
    pool = Pool(tuple(AgentSpec(name, "fake") for name in "bc"), wiring)
    wiring.breakers["b"].failed(AgentError("down", kind="transient", retryable=True))
    assert pool.resting() == {}  # not built: that breaker belongs to a member of the same name before
    pool.agent("b")
    assert list(pool.resting()) == ["b"]


@pytest.mark.parametrize(
    "field",
    [
        'description = "the key is planted-7Q4v9Zr2Lm"',
        'base_url = "http://127.0.0.1:9/planted-7Q4v9Zr2Lm/v1"',
        'options = { extra_body = { app = "planted-7Q4v9Zr2Lm" } }',
    ],
)
def test_the_key_that_a_member_names_is_nowhere_in_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    monkeypatch.setattr(wire, "_known", set())
    monkeypatch.setenv("PLANTED_KEY", "planted-7Q4v9Zr2Lm")
    other = '[[agents]]\nname = "first"\nkind = "openai"\nmodel = "m"\n' + field
    named = '[[agents]]\nname = "second"\nkind = "openai"\nmodel = "m"\nkey_env = "PLANTED_KEY"\n'
    file.write_text(f"{other}\n{named}", "utf-8")
    with pytest.raises(PoolError, match="entry 1: it seems to hold a key") as caught:
        read_pool_file(file)
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "taken"),
    [
        ("OPENAI_API_KEY", True),
        ("my_key_2", True),
        ("THE_KEY_OF_THE_SECOND_OF_ALL_PROVIDERS_IN_2026", True),
        ("aB3dEfGh5JkLmN7pQrStUvWx", False),
        ("fw_3ZkLmN7pQrStUvWxYz12", False),
        ("deadbeef0123456789abcdef01234567", False),
    ],
)
def test_a_key_in_place_of_its_variable_is_noticed(file: Path, variable: str, taken: bool) -> None:
    file.write_text(f'[[agents]]\nname = "a"\nkind = "openai"\nmodel = "m"\nkey_env = "{variable}"\n', "utf-8")
    if taken:
        assert read_pool_file(file).specs[0].key_env == variable
        return
    with pytest.raises(PoolError, match="name of an environment variable") as caught:
        read_pool_file(file)
    assert variable not in str(caught.value)
