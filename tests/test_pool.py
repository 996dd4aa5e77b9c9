"""The pool file: what it accepts, what it refuses and how it says so, and that agents are built on first use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from trinity_core.agents import pool as pools
from trinity_core.agents.pool import KINDS, Kind, Pool, embedded_specs, load_pool, read_pool
from trinity_core.config import Settings
from trinity_core.errors import PoolError
from trinity_core.types import AgentSpec, Finish, Piece, Reply, Request

SYMBOLIC = '[[agents]]\nname = "maths"\nkind = "symbolic"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pool.toml"


def refused(file: Path, text: str) -> str:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(PoolError) as caught:
        read_pool(file)
    assert str(file) in str(caught.value)
    return str(caught.value)


def test_without_a_file_the_pool_is_the_embedded_one(tmp_path: Path) -> None:
    pool = load_pool(Settings(home=tmp_path, db_url="sqlite://"))
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
    pool = load_pool(Settings(home=tmp_path, db_url="sqlite://", pool=file))
    assert pool.specs == (
        AgentSpec("words-2", "lexical"),
        AgentSpec(
            "big.one",
            "gguf",
            model=str(model),
            description="a – dash",
            options={"max_tokens": 200, "contract": True},
        ),
    )
    assert len(pool) == 2


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
        read_pool(file)
    with pytest.raises(PoolError, match="cannot be read"):
        read_pool(tmp_path)
    file.write_text("a = " + "[" * 100_000)
    with pytest.raises(PoolError):
        read_pool(file)


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

    def build(spec: AgentSpec) -> _Fake:
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
