"""Fixtures that every test shares: a home folder of its own, never the user's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Converted weights are kept between test sessions; nothing else is.
MODEL_CACHE = Path(__file__).resolve().parent.parent / ".cache" / "models"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRINITY_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRINITY_DB_URL", raising=False)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder whose `models` is the shared cache, so that weights are converted once per machine."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    MODEL_CACHE.mkdir(parents=True, exist_ok=True)
    (home / "models").symlink_to(MODEL_CACHE, target_is_directory=True)
    return home


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests come last: while Playwright's session lasts, its event loop runs and no other can start."""
    items.sort(key=lambda item: "browser" in item.path.parts)
