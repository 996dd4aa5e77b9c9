"""Files that come with the program: style sheet, script, icon, and trained heads."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent


def path(name: str) -> Path:
    """Where the asset `name` lies; the folder itself for the empty name."""
    return _HERE / name
