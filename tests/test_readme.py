"""The README stays true: its tree, its commands, its links, and the results it quotes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import app
from tests.tree import README, ROOT, shown, tree
from trinity_core.agents.pool import read_pool_file

TEXT = README.read_text("utf-8")


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the list of files comes from git")
def test_the_tree_names_every_file_and_says_what_it_is_for() -> None:
    assert shown() == tree(), "run: .venv/bin/python -m tests.tree --write"


def test_every_command_it_shows_can_be_parsed() -> None:
    commands = re.findall(r"^python app\.py (.+?)(?:\s+#.*)?$", TEXT, re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        words = re.sub(r"\[|\]", "", command).replace('"What is 6 times 7?"', "question").split()
        values = {"H": "127.0.0.1", "N": "7860"}
        options = app.parser().parse_args([values.get(word, word) for word in words])
        assert options.command in app.COMMANDS


def test_every_make_target_it_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", TEXT, re.MULTILINE))
    assert {"run", "test", "bench", "head"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert target.startswith("http") or (ROOT / target).exists(), target


def test_quoted_results_stand_in_the_results_file() -> None:
    results = (ROOT / "docs" / "RESULTS.md").read_text("utf-8")
    quoted = re.findall(r"^\| (?:\*\*)?(\w[\w ]+?)(?:\*\*)? \| (?:\*\*)?(\d+\.\d) %", TEXT, re.MULTILINE)
    assert len(quoted) >= 5
    for name, figure in quoted:
        assert re.search(rf"^{re.escape(name)}\s+{re.escape(figure)} %", results, re.MULTILINE), name


def test_the_table_of_peers_stands_in_the_results_file() -> None:
    results = (ROOT / "docs" / "RESULTS.md").read_text("utf-8")
    (total,) = re.findall(r"(\d+ of \d+) in\s+all", TEXT)
    assert f"{total} as they must be" in results
    cells = re.findall(r"(\d+)/(\d+)", TEXT[TEXT.index("<!-- peers -->") : TEXT.index("<!-- /peers -->")])
    assert f"{sum(int(went) for went, _ in cells)} of {sum(int(all_) for _, all_ in cells)}" == total


def test_the_pool_file_it_shows_can_be_read(tmp_path: Path) -> None:
    (shown_file,) = re.findall(r"```toml\n(\[budget.*?)```", TEXT, re.DOTALL)
    weights = tmp_path / "qwen.gguf"
    weights.write_bytes(b"GGUF")
    file = tmp_path / "pool.toml"
    file.write_text(shown_file.replace("/models/qwen.gguf", str(weights)), "utf-8")
    assert [spec.kind for spec in read_pool_file(file).enabled] == ["openai", "gguf"]
