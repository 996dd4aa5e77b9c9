"""Writing the pool file: whole or not at all, comments kept, never a key, never another's work lost."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path
from typing import Any

import pytest

import assets
from trinity_core import wire
from trinity_core.agents import prices
from trinity_core.agents.pool import PoolFile, embedded_specs, read_pool_file
from trinity_core.agents.poolfile import entry_of, kept_copy, write_pool
from trinity_core.errors import PoolError
from trinity_core.types import AgentSpec, Limits, Usage

REMOTE = AgentSpec(
    "gpt",
    "openai",
    "some/model-1",
    'says "so" \\ and é ✓',
    base_url="http://127.0.0.1:11434/v1",
    key_env="SOME_KEY",
    options={"max_tokens": 100, "temperature": 0.5},
    service={"concurrency": 2, "price": {"input": 1.5, "output": 2}},
)
LEXICAL, CALENDAR = AgentSpec("words", "lexical"), AgentSpec("dates", "calendar", enabled=False)
FILE = PoolFile((REMOTE, LEXICAL, CALENDAR), Limits(calls=5, cost=0.5), Limits(tokens=10_000))

COMMENTED = """\
# ours
[budget.run] # of one run
calls = 3 # three

[[agents]]
name = "words" # the words one
kind = "lexical"

[[agents]]
# asks the server in the cellar
name = "cellar"
kind = "openai"
base_url = "http://10.0.0.7:8000/v1"
model = "m"
[agents.options]
max_tokens = 64 # small
[agents.service]
price = { input = 0, output = 0 } # ours, so free
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "pool.toml"


def test_what_is_written_is_what_is_read(path: Path) -> None:
    write_pool(path, FILE)
    assert read_pool_file(path) == FILE
    assert [p.name for p in path.parent.iterdir()] == ["pool.toml"]
    text = path.read_text("utf-8")
    assert text.startswith("# ")
    assert "enabled" not in text.split("dates")[0], "what has its default is left out"


def test_comments_stay_with_their_members(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(COMMENTED, "utf-8")
    before = read_pool_file(path)
    words, cellar = before.specs
    changed = PoolFile(
        (AgentSpec("cellar", "openai", "m2", base_url=cellar.base_url, options={"max_tokens": 99}), words, LEXICAL_2),
        Limits(calls=9),
        Limits(cost=2.0),
    )
    write_pool(path, changed)
    text = path.read_text("utf-8")
    assert read_pool_file(path) == changed
    for comment in ("ours", "of one run", "three", "the words one", "asks the server in the cellar", "small"):
        assert f"# {comment}" in text
    assert "so free" not in text, "what was removed takes its comment along"
    assert text.index("# asks the server") < text.index("# the words one"), "and they move with their members"
    for _ in range(5):
        write_pool(path, changed)
    assert path.read_text("utf-8") == text, "saving again changes nothing, not even blank lines"


LEXICAL_2 = AgentSpec("letters", "lexical")


def test_blank_lines_inside_a_text_stay(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('[[agents]]\nname = "words"\nkind = "lexical"\ndescription = """a\n\n\n\nb"""\n', "utf-8")
    file = PoolFile((*read_pool_file(path).specs, CALENDAR))
    write_pool(path, file)
    assert read_pool_file(path) == file
    assert '"""a\n\n\n\nb"""' in path.read_text("utf-8")


@pytest.mark.parametrize(
    "layout",
    [
        'agents = [{ name = "words", kind = "lexical" }]\n',
        'budget = { run = { calls = 3 } }\n[[agents]]\nname = "words"\nkind = "lexical"\n',
        'budget.run.calls = 3\n[[agents]]\nname = "words"\nkind = "lexical"\n',
        '[[agents]]\nname = "words"\nkind = "lexical"\n[budget]\nrun = { calls = 3 }\n',
        '\ufeff[[agents]]\r\nname = "words"\r\nkind = "lexical"\r\n',
        '[[agents]]\nname = "words"\nkind = "smollm2"\noptions.max_tokens = 5\n',
        '[[agents]]\nname = "words"\nkind = "lexical"\n[[agents]]\nname = "WORDS"\nkind = "lexical"\n',
        "no toml at all [[",
        "",
    ],
)
def test_whatever_layout_was_there_the_new_pool_is_written(path: Path, layout: str) -> None:
    path.parent.mkdir()
    path.write_bytes(layout.encode("utf-8"))
    write_pool(path, FILE)
    assert read_pool_file(path) == FILE


def test_any_sequence_of_changes_comes_back_exactly(path: Path) -> None:
    draw = random.Random(11)
    members = [
        AgentSpec(f"m{n}", "openai", f"model {n}", draw.choice(["", "x\n\n\n\ny", "# no comment", "'''"]),
                  base_url="http://127.0.0.1:1/v1", options=draw.choice([{}, {"max_tokens": n + 1}, {"seed": n}]),
                  service=draw.choice([{}, {"retries": 0}, {"price": {"input": 0.1, "output": n}}]))
        for n in range(6)
    ]  # fmt: skip
    for _ in range(40):
        specs = draw.sample(members, draw.randint(1, 6))
        limits = [Limits(draw.choice([None, 0, 7]), None, draw.choice([None, 0.25])) for _ in range(2)]
        file = PoolFile(tuple(specs), *limits)
        write_pool(path, file)
        assert read_pool_file(path) == file


@pytest.mark.parametrize(
    "spec",
    [
        AgentSpec("a", "openai", "m", "use sk-abcdefgh12345678", base_url="http://h/v1"),
        AgentSpec("a", "openai", "m", base_url="http://h/v1?key=abcdefgh1234"),
        AgentSpec("a", "openai", "m", base_url="http://h/v1", options={"extra_body": {"api_key": "x"}}),
        AgentSpec("a", "openai", "planted-4411-key-value", base_url="http://h/v1"),
    ],
)
def test_a_key_is_never_written(path: Path, spec: AgentSpec) -> None:
    wire.remember_secret("planted-4411-key-value")
    write_pool(path, FILE)
    with pytest.raises(PoolError, match="key") as caught:
        write_pool(path, PoolFile((spec,)))
    assert "planted-4411" not in str(caught.value)
    assert read_pool_file(path) == FILE


def test_a_key_in_a_comment_is_not_written_again(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(f"# mine is sk-abcdefgh12345678\n{COMMENTED}", "utf-8")
    with pytest.raises(PoolError, match="comment"):
        write_pool(path, FILE)


@pytest.mark.parametrize(
    "spec",
    [
        AgentSpec("a", "openai", "m", base_url="http://h/v1", options={"extra_body": {"x": None}}),
        AgentSpec("a", "nonsense"),
        AgentSpec("a", "openai", "m", base_url="http://169.254.169.254/v1"),
        AgentSpec("trinity", "lexical"),
    ],
)
def test_a_pool_that_could_not_be_read_again_is_not_written(path: Path, spec: AgentSpec) -> None:
    write_pool(path, FILE)
    before = path.read_bytes()
    with pytest.raises(PoolError):
        write_pool(path, PoolFile((spec,)))
    assert path.read_bytes() == before
    assert len(list(path.parent.iterdir())) == 1


def test_a_failure_in_the_middle_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pool(path, FILE)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("trinity_core.agents.poolfile.os.fsync", full)
    with pytest.raises(PoolError, match="No space left"):
        write_pool(path, PoolFile((LEXICAL,)))
    assert read_pool_file(path) == FILE
    assert [p.name for p in path.parent.iterdir()] == ["pool.toml"]


def test_a_link_stays_a_link_and_permissions_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real.toml", tmp_path / "pool.toml"
    write_pool(real, FILE)
    real.chmod(0o644)
    link.symlink_to(real)
    write_pool(link, PoolFile((LEXICAL,)))
    assert link.is_symlink()
    assert read_pool_file(real) == PoolFile((LEXICAL,))
    assert real.stat().st_mode & 0o777 == 0o644


def test_what_somebody_else_wrote_is_put_aside(path: Path) -> None:
    assert kept_copy(path, FILE) is None
    write_pool(path, FILE)
    assert kept_copy(path, FILE) is None
    for number, text in enumerate(("broken [", COMMENTED), 1):
        path.write_text(text, "utf-8")
        copy = kept_copy(path, FILE)
        assert copy == path.with_name(f"pool.toml.{number}")
        assert copy.read_text("utf-8") == text
    assert path.read_text("utf-8") == COMMENTED


# --- The ready pools ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["embedded", "local", "frontier"])
def test_a_ready_pool_can_be_read_and_written(name: str, path: Path) -> None:
    file = read_pool_file(assets.path(f"pools/{name}.toml"))
    write_pool(path, file)
    assert read_pool_file(path) == file
    assert all(spec.description and spec.enabled for spec in file.specs)


def test_the_ready_pools_are_what_they_say() -> None:
    embedded, local, frontier = (
        read_pool_file(assets.path(f"pools/{name}.toml")) for name in ("embedded", "local", "frontier")
    )
    assert embedded == PoolFile(embedded_specs())
    assert len({spec.base_url for spec in local.specs}) == 1
    assert len({spec.model for spec in local.specs}) == len(local.specs) > 2
    assert all(prices.price(spec, Usage(1000, 1000)) == 0 and not spec.key_env for spec in local.specs)
    assert len(frontier.specs) == 7
    assert {spec.kind for spec in frontier.specs} == {"openai", "anthropic", "gemini"}
    assert sum(spec.base_url == "https://openrouter.ai/api/v1" for spec in frontier.specs) == 4
    for spec in frontier.specs:
        cost = prices.price(spec, Usage(1000, 1000))
        assert cost is not None
        assert cost > 0, "every model is in the price list"
    assert frontier.day.cost is not None


def test_an_entry_leaves_out_what_is_not_set() -> None:
    assert entry_of(LEXICAL) == {"name": "words", "kind": "lexical"}
    assert entry_of(CALENDAR)["enabled"] is False
    assert tomllib.loads("x = { input = 1.5, output = 2 }")["x"] == entry_of(REMOTE)["service"]["price"]
