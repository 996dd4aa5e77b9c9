"""Which members the head has rows for, read from its checkpoint, and a head with average rows for new ones.

Rows belong to names. A row that was never trained (the mean of the others) is listed in the checkpoint's training
record. Not covered: training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trinity_core.config import Settings
from trinity_core.coordinator.checkpoint import Checkpoint, Meta
from trinity_core.errors import CheckpointError
from trinity_core.session.loading import deploy, deployed_path

Row = Literal["trained", "untrained", "missing", "unknown"]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of the head in use. `problem`: why they are not known. `backbones`: the one that the head was trained
    on and the one in use, where they differ."""

    trained: frozenset[str] = frozenset()
    untrained: frozenset[str] = frozenset()
    problem: str | None = None
    backbones: tuple[str, str] | None = None

    def of(self, name: str) -> Row:
        if self.problem:
            return "unknown"
        if name in self.trained:
            return "trained"
        return "untrained" if name in self.untrained else "missing"


class HeadRows:
    """Looks into the deployed head, or the shipped one; the file is read again only when it has changed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._read: tuple[tuple[Path, int], Meta] | None = None

    def read(self, backbone: str | None) -> Rows:
        """The rows of now; `backbone` is the id of the one in use, None while it loads. Raises nothing."""
        try:
            path = self._path()
            try:
                stamp = (path, path.stat().st_mtime_ns)
            except OSError:
                raise CheckpointError(f"There is no head at {path}. Train one for this pool.") from None
            if self._read is None or self._read[0] != stamp:
                self._read = (stamp, Checkpoint.load(path).meta)
        except CheckpointError as error:
            return Rows(problem=str(error))
        meta = self._read[1]
        untrained = frozenset(meta.training.get("untrained", ()))
        differ = (meta.backbone_id, backbone) if backbone and backbone != meta.backbone_id else None
        return Rows(frozenset(meta.agents) - untrained, untrained, None, differ)

    def extend(self, agents: Sequence[str]) -> tuple[str, str, tuple[str, ...]]:
        """Deploy the head with an average row for each of `agents` that has none: its id before and after, and whose
        rows are new. Raises CheckpointError, or OSError when the home folder cannot be written."""
        head = Checkpoint.load(self._path())
        longer = head.extended(agents)
        fresh = tuple(name for name in longer.meta.agents if name not in head.meta.agents)
        if fresh:
            longer.save(self._settings.checkpoints)
            deploy(self._settings, longer.id)
        return head.id, longer.id, fresh

    def _path(self) -> Path:
        return deployed_path(self._settings) or self._settings.shipped_head
