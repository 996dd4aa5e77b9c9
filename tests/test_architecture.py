"""The import direction, where each heavy library may be used, and what the repository must not contain."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BASE = {"types", "errors", "wire", "config", "answers"}
LAYERS = {
    "base": 0,
    "coordinator": 1,
    "agents": 1,
    "tasks": 1,
    "session": 2,
    "training": 3,
    "analysis": 3,
    "storage": 4,
    "ui": 5,
    "app": 6,
}
CONFINED = {
    "sqlalchemy": {"storage"},
    "alembic": {"storage"},
    "gradio": {"ui"},
    "cma": {"training"},
    "torch": {"coordinator", "hfmodel.py"},
    "transformers": {"coordinator", "hfmodel.py"},
    "xllamacpp": {"agents"},
    "plotly": {"ui"},
}


def sources() -> Iterator[tuple[Path, str, ast.Module]]:
    for path in [
        ROOT / "app.py",
        *sorted(p for d in ("trinity_core", "storage", "ui") for p in (ROOT / d).rglob("*.py")),
    ]:
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield path, layer_of(list(parts)), ast.parse(path.read_text("utf-8"))


def layer_of(parts: list[str]) -> str:
    if parts[0] != "trinity_core":
        return parts[0]
    return "base" if len(parts) < 2 or parts[1] in BASE or parts[1] == "__init__" else parts[1]


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "relative imports hide the layer"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize(("path", "layer", "tree"), list(sources()), ids=lambda v: str(getattr(v, "name", "")))
def test_imports_point_downwards(path: Path, layer: str, tree: ast.Module) -> None:
    for name in imports(tree):
        parts = name.split(".")
        if parts[0] in ("trinity_core", "storage", "ui", "app") and len(parts) > 1:
            target = layer_of(parts)
            if target == "base" and parts[0] == "trinity_core" and parts[1] not in BASE:
                continue
            below = LAYERS[target] < LAYERS[layer] or target == layer
            assert below, f"{path.name} ({layer}) imports {name} ({target})"
        if parts[0] in CONFINED:
            assert {layer, path.name} & CONFINED[parts[0]], f"{path.name} ({layer}) imports {parts[0]}"


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("trinity_core.types", ["pydantic", "torch", "numpy"]),
        ("trinity_core.session.loop", ["torch", "transformers", "xllamacpp", "gradio", "sqlalchemy"]),
        ("trinity_core.session.loading", ["torch", "transformers", "gradio"]),
        ("trinity_core.agents.hf", ["torch", "transformers", "huggingface_hub"]),
        ("storage.store", ["torch", "gradio", "transformers"]),
        ("app", ["torch", "gradio", "sqlalchemy", "transformers"]),
    ],
)
def test_importing_stays_light(module: str, absent: list[str]) -> None:
    code = f"import sys, {module}; print([m for m in {absent!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_every_package_is_named_for_the_wheel() -> None:
    named = (ROOT / "pyproject.toml").read_text("utf-8")
    for init in (p for d in ("trinity_core", "storage", "ui", "assets") for p in (ROOT / d).rglob("__init__.py")):
        assert f'"{".".join(init.relative_to(ROOT).parent.parts)}"' in named
