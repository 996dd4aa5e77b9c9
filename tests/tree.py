"""The annotated tree of the repository, as the README shows it: `python -m tests.tree --write` renews it there."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BEGIN, END = "<!-- tree -->\n```text\n", "```\n<!-- /tree -->"

OTHERS = {
    ".ci/run": "what must pass before a change lands",
    ".gitattributes": "which files are binary",
    ".gitignore": "what stays out of the repository",
    "CHANGELOG.md": "changes, and facts found on the way",
    "CONTRIBUTING.md": "how the code is written and tested",
    "LICENSE": "Apache-2.0",
    "Makefile": "setup, run, test, lint, bench, head",
    "README.md": "this page",
    "assets/favicon.svg": "the icon",
    "assets/head-embedded.safetensors": "the head trained for the embedded pool",
    "assets/pools/embedded.toml": "ready pool: no key, no network",
    "assets/pools/frontier.toml": "ready pool: frontier and open models, as in the paper",
    "assets/pools/local.toml": "ready pool: several models of one local server",
    "assets/trinity.css": "the look, light and dark",
    "assets/trinity.js": "keys, live plots, re-attaching",
    "constraints.txt": "every version that is tested",
    "docs/RESULTS.md": "measured figures, with date and machine",
    "docs/pool.png": "the picture of the Pool tab",
    "docs/run.png": "the picture above",
    "tests/peers/litellm.txt": "every version of the LiteLLM proxy's environment",
    "tests/peers/litellm.yaml": "what the LiteLLM proxy serves in tests",
    "pyproject.toml": "packages, dependencies, tool settings",
}
FOLDERS = {
    "assets": "what the page and the coordinator ship with",
    "assets/pools": "pools to start from",
    "docs": "results and pictures",
    "storage": "the database: runs, tasks, training, replies",
    "tests": "tests, doubles, benches",
    "tests/browser": "the page in a real Chromium",
    "tests/peers": "servers by others that the adapters are tested against",
    "trinity_core": "everything that needs neither a page nor a database",
    "trinity_core/agents": "members of the pool",
    "trinity_core/agents/remote": "members called over the network",
    "trinity_core/agents/skills": "what the specialists know",
    "trinity_core/coordinator": "transcript, backbone, head, policy",
    "trinity_core/session": "the loop and its roles",
    "trinity_core/tasks": "questions with references, and graders",
    "trinity_core/training": "heads from measured outcomes",
    "ui": "the page",
    "ui/tabs": "its tabs",
}


def tracked() -> list[str]:
    """Paths of all files that git tracks or would track, sorted."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout.split("\n")
    return sorted({path for path in listed if path and (ROOT / path).is_file()})


def note(path: str) -> str:
    """What a file is for: the first sentence of its docstring, or our word for it. Raises KeyError without one."""
    if not path.endswith(".py"):
        return OTHERS[path]
    doc = ast.get_docstring(ast.parse((ROOT / path).read_text("utf-8"))) or ""
    first = doc.split("\n\n")[0].replace("\n", " ").replace("`", "").split(". ")[0].rstrip(".")
    if not first:
        raise KeyError(path)
    return first if len(first) <= 96 else first[:96].rsplit(" ", 1)[0].rstrip(",:;") + " …"


def tree() -> str:
    """The tree, one line for each folder and file; empty `__init__.py` files are left out."""
    lines: list[str] = []
    seen: set[str] = set()
    for path in sorted(tracked(), key=lambda p: ("/" in p, p)):
        if path.endswith("__init__.py") and not (ROOT / path).read_text("utf-8").strip():
            continue
        parts = path.split("/")
        for depth in range(1, len(parts)):
            folder = "/".join(parts[:depth])
            if folder not in seen:
                seen.add(folder)
                lines.append(row("  " * (depth - 1) + parts[depth - 1] + "/", FOLDERS.get(folder, "")))
        lines.append(row("  " * (len(parts) - 1) + parts[-1], note(path)))
    return "\n".join(lines) + "\n"


def row(name: str, text: str) -> str:
    return f"{name:<34}{text}".rstrip()


def shown() -> str:
    """The tree that the README holds now. Raises ValueError when its marks are missing."""
    text = README.read_text("utf-8")
    begin = text.index(BEGIN) + len(BEGIN)
    return text[begin : text.index(END, begin)]


if __name__ == "__main__":
    if "--write" in sys.argv:
        README.write_text(README.read_text("utf-8").replace(shown(), tree()), "utf-8")
    else:
        print(tree(), end="")
