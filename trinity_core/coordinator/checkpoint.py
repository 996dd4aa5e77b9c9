"""Checkpoints: what was trained, on which backbone, transcript and pool, in one content-addressed file.

A file is safetensors: `theta` (n,) float64, with normalisation also `mean` and `std` (d,) float64, and one metadata
entry of canonical JSON (`Meta`). Its name is the SHA-256 of its bytes, which is also the checkpoint's id; equal
checkpoints give equal bytes. theta holds the SVF scales first (when there are any), then the head, row-major.

Invariants: a `Checkpoint` that exists is finite and of the right shape. Rows belong to names: another pool is mapped
by name or refused with the rows that do not fit; an index never wraps. A checkpoint works with the backbone id and
revision and the transcript builder it was trained with, no other. Not covered: fitting, applying SVF (see `svf`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from trinity_core.coordinator import transcript as transcripts
from trinity_core.coordinator.heads import NORMALISATIONS, Head, head_class, normalise, vector
from trinity_core.errors import CheckpointError, InputError
from trinity_core.types import Role
from trinity_core.wire import canonical, plain, record

Array = NDArray[np.float64]
Position = Literal[-2, -1, "mean"]
"""Which hidden state is read: second to last token, last token, or the mean over all tokens and the suffix."""

FORMAT = 1
MAX_BYTES = 256 * 2**20
_KEY = "trinity"
_HASH_NAME = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class SvfMatrix:
    """One decomposed weight matrix: its name in the state dict and its number of scales."""

    name: str
    scales: int


@dataclass(frozen=True, slots=True)
class SvfLayout:
    """Which matrices carry learned singular-value scales, in the order of their scales in theta.

    `tie`: `sequential` when tied matrices are patched one after the other in place, `apart` when untied.
    """

    kind: Literal["block", "released"]
    matrices: tuple[SvfMatrix, ...]
    tie: Literal["sequential", "apart"] = "apart"

    @property
    def size(self) -> int:
        return sum(matrix.scales for matrix in self.matrices)


@dataclass(frozen=True, slots=True)
class Meta:
    """All of a checkpoint that is not an array. `population` is λ of the evolution that made it."""

    backbone_id: str
    backbone_revision: str
    hidden_size: int
    agents: tuple[str, ...]
    roles: tuple[Role, ...] = (Role.WORKER, Role.THINKER, Role.VERIFIER)
    transcript: str = transcripts.LINES_V1
    suffix: str = transcripts.SUFFIX
    position: Position = -2
    normalisation: str = "none"
    head: str = "linear"
    head_params: Mapping[str, Any] = field(default_factory=dict)
    svf: SvfLayout | None = None
    population: int | None = None
    seed: int | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    format: int = FORMAT
    router_prompt: str = ""
    """The system text of the transcript builder `released`; the others have none."""


class BackboneLike(Protocol):
    """What a checkpoint checks about a backbone."""

    @property
    def id(self) -> str: ...

    @property
    def revision(self) -> str: ...

    @property
    def hidden_size(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A trained coordinator. `theta` (n,), `mean` and `std` (d,) float64; the latter for `standardise` only.

    Raises CheckpointError when the parts do not fit each other or are not finite.
    """

    meta: Meta
    theta: Array
    mean: Array | None = None
    std: Array | None = None

    def __post_init__(self) -> None:
        for name in ("theta", "mean", "std"):
            if (value := getattr(self, name)) is not None:
                array = np.array(value, dtype=np.float64)
                array.flags.writeable = False
                object.__setattr__(self, name, array)
        _check_meta(self.meta)
        _check_arrays(self)

    @cached_property
    def id(self) -> str:
        """SHA-256 of the file's bytes, hexadecimal."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @property
    def svf_size(self) -> int:
        return self.meta.svf.size if self.meta.svf else 0

    @property
    def svf_scales(self) -> Array:
        """The learned δ of all matrices in layout order, (svf_size,)."""
        return self.theta[: self.svf_size]

    @cached_property
    def head(self) -> Head:
        meta = self.meta
        rows = len(meta.agents) + len(meta.roles)
        return head_class(meta.head).build(self.theta[self.svf_size :], rows, meta.hidden_size, meta.head_params)

    def logits(self, h: Any) -> Array:
        """Raw logits (agents + roles,) of a hidden state (d,), NumPy or torch.

        Raises BackboneError for a hidden state of another shape or not finite, CheckpointError on overflow.
        """
        x = normalise(self.meta.normalisation, vector(h, self.meta.hidden_size), self.mean, self.std)
        with np.errstate(over="ignore", invalid="ignore"):  # told below
            z = self.head.logits(x)
        if not np.all(np.isfinite(z)):
            raise CheckpointError("The head's logits overflow. Train it again with a smaller step size.")
        return z

    def for_pool(self, agents: Sequence[str]) -> Checkpoint:
        """This checkpoint for another pool: rows mapped by name, roles in the order worker, thinker, verifier.

        Any order and any part of the trained agents will do. Raises CheckpointError naming the agents without a
        trained row.
        """
        trained = self.meta.agents
        missing = [name for name in agents if name not in trained]
        if missing:
            rows, needed = len(trained) + len(self.meta.roles), len(agents) + len(Role)
            raise CheckpointError(
                f"The checkpoint does not fit this pool: no trained row for {', '.join(missing)}. The checkpoint has "
                f"{rows} rows, the pool of {len(agents)} agents and {len(Role)} roles needs {needed}; it was trained "
                f"for {', '.join(trained)}. Train one for this pool (python app.py train --method sft --deploy), "
                "give new members an average row in the Pool tab, or switch them off."
            )
        roles = tuple(Role)
        wanted = [trained.index(name) for name in agents]
        wanted += [len(trained) + self.meta.roles.index(role) for role in roles]
        kind, params, head = self.head.select(wanted)
        meta = replace(self.meta, agents=tuple(agents), roles=roles, head=kind, head_params=params)
        return Checkpoint(meta, np.concatenate([self.svf_scales, head]), self.mean, self.std)

    def extended(self, agents: Sequence[str]) -> Checkpoint:
        """This checkpoint with a row for each of `agents`: those that have none get the mean of the trained agents'
        rows, behind the others, and are listed in `meta.training["untrained"]`. Itself when none is missing.

        Logits of all other agents and of the roles stay as they are. Raises CheckpointError when there is no trained
        row to take a mean of, or for a kind of head whose rows cannot be averaged.
        """
        meta = self.meta
        missing = [name for name in dict.fromkeys(agents) if name not in meta.agents]
        if not missing:
            return self
        untrained = [name for name in meta.training.get("untrained", ()) if name in meta.agents]
        trained = [row for row, name in enumerate(meta.agents) if name not in untrained]
        if not trained:
            raise CheckpointError("The checkpoint has no trained row to start from. Train a coordinator instead.")
        if meta.head != "linear":
            raise CheckpointError(
                f"Rows of a {meta.head} head cannot be averaged, so it takes no new members. Train a coordinator for "
                "this pool."
            )
        count = len(meta.agents)
        weight = self.theta[self.svf_size :].reshape(count + len(meta.roles), meta.hidden_size)
        fresh = np.tile(weight[trained].mean(axis=0), (len(missing), 1))
        rows = np.concatenate([weight[:count], fresh, weight[count:]])
        training = {**meta.training, "untrained": [*untrained, *missing], "extended_from": self.id}
        longer = replace(meta, agents=(*meta.agents, *missing), training=training)
        return Checkpoint(longer, np.concatenate([self.svf_scales, rows.reshape(-1)]), self.mean, self.std)

    def check_backbone(self, backbone: BackboneLike) -> None:
        """Raises CheckpointError unless this is the backbone, and a transcript builder, that it was trained with."""
        meta = self.meta
        transcripts.builder(meta.transcript, meta.router_prompt)
        if backbone.id != meta.backbone_id:
            raise CheckpointError(
                f"The checkpoint was trained on the backbone {meta.backbone_id}, not on {backbone.id}. Start with "
                "that backbone, or train a coordinator for this one."
            )
        if backbone.revision != meta.backbone_revision:
            raise CheckpointError(
                f"The checkpoint was trained on revision {meta.backbone_revision} of {meta.backbone_id}; the loaded "
                f"one is {backbone.revision}. Load that revision, or train a coordinator for this one."
            )
        if backbone.hidden_size != meta.hidden_size:
            raise CheckpointError(
                f"The checkpoint reads {meta.hidden_size} numbers, the backbone gives {backbone.hidden_size}. "
                "Train a coordinator for this backbone."
            )

    # --- Files ----------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The file's bytes; equal checkpoints give equal bytes."""
        from safetensors.numpy import save

        tensors = {k: v for k in ("theta", "mean", "std") if (v := getattr(self, k)) is not None}
        meta = plain(self.meta)
        if not self.meta.router_prompt:
            del meta["router_prompt"]  # as in files from before there was one, whose bytes are their ids
        # One metadata entry: the writer's order of several is not fixed.
        return save(tensors, {_KEY: canonical({"meta": meta, "content": _content(meta, tensors)})})

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "The checkpoint") -> Checkpoint:
        """Raises CheckpointError, beginning with `name`, for anything that `to_bytes` did not make."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        stored = _metadata(data, name)
        try:
            tensors = load(data)
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            raise _corrupt(name, str(error)) from None
        meta, content = stored.get("meta"), stored.get("content")
        if not isinstance(meta, dict) or "theta" not in tensors:
            raise _foreign(name)
        if meta.get("format") != FORMAT:
            raise CheckpointError(
                f"{name} has format {meta.get('format')!r}; this version reads {FORMAT}. Update Trinity, or export "
                "the checkpoint again."
            )
        if any(array.dtype != np.float64 for array in tensors.values()) or tensors.keys() - {"theta", "mean", "std"}:
            raise _foreign(name)
        if content != _content(meta, tensors):
            raise _corrupt(name, "its content does not match its checksum")
        try:
            return cls(record(Meta, meta), tensors["theta"], tensors.get("mean"), tensors.get("std"))
        except InputError as error:
            raise _corrupt(name, str(error)) from None
        except CheckpointError as error:
            raise CheckpointError(f"{name}: {error}") from None

    def save(self, folder: Path) -> Path:
        """Write `<id>.safetensors` into `folder`, whole or not at all. Raises CheckpointError when it cannot."""
        data = self.to_bytes()
        path = folder / f"{self.id}.safetensors"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if path.is_file() and path.read_bytes() == data:
                return path
            handle, temporary = tempfile.mkstemp(dir=folder, prefix=".checkpoint-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise CheckpointError(
                f"The checkpoint could not be written to {folder} ({error.strerror or error}). Free some space or "
                "fix the folder's permissions."
            ) from None
        return path

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read and verify a file. Raises CheckpointError for a missing, damaged, renamed-over or foreign one."""
        name = f"The checkpoint {path.name}"
        try:
            if path.stat().st_size > MAX_BYTES:
                raise _foreign(name)
            data = path.read_bytes()
        except OSError as error:
            raise CheckpointError(f"{name} cannot be read ({error.strerror or error}). Check the path.") from None
        if _HASH_NAME.fullmatch(path.stem) and hashlib.sha256(data).hexdigest() != path.stem:
            raise _corrupt(name, "its content does not match its name")
        return cls.from_bytes(data, name)


def _corrupt(name: str, why: str) -> CheckpointError:
    return CheckpointError(f"{name} is damaged: {why}. Copy it again from where it came, or train a new one.")


def _foreign(name: str) -> CheckpointError:
    return CheckpointError(
        f"{name} is not a Trinity checkpoint. Choose a .safetensors file from the checkpoints folder or an export."
    )


def _content(meta: Any, tensors: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over metadata and arrays: tells damage even when the file was renamed."""
    seen = hashlib.sha256(canonical(meta).encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name], dtype="<f8")
        seen.update(f"\n{name}{array.shape}".encode() + array.tobytes())
    return seen.hexdigest()


def _metadata(data: bytes, name: str) -> dict[str, Any]:
    """Our JSON out of the header: 8 bytes of length (little-endian), then JSON with a `__metadata__` object."""
    if len(data) < 8:
        raise _corrupt(name, "the file is too short")
    (length,) = struct.unpack_from("<Q", data)
    if length > len(data) - 8:
        foreign = data[8:9] not in (b"", b"{")  # what begins there is no header
        raise _foreign(name) if foreign else _corrupt(name, "the file ends early")
    try:
        header = json.loads(data[8 : 8 + length].decode("utf-8"))
        stored = json.loads(header["__metadata__"][_KEY])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _foreign(name) from None
    if not isinstance(stored, dict):
        raise _foreign(name)
    return stored


def _check_meta(meta: Meta) -> None:
    if sorted(meta.roles) != sorted(Role):
        raise CheckpointError(f"The roles are {', '.join(meta.roles)}; each of {', '.join(Role)} is needed once.")
    if len(set(meta.agents)) != len(meta.agents):
        raise CheckpointError(f"An agent is listed twice: {', '.join(meta.agents)}. Names must differ.")
    if meta.normalisation not in NORMALISATIONS:
        raise CheckpointError(
            f"Unknown feature normalisation {meta.normalisation!r}; known are {', '.join(NORMALISATIONS)}."
        )
    if meta.hidden_size < 1:
        raise CheckpointError(f"A hidden size of {meta.hidden_size} is impossible.")
    if meta.svf and any(matrix.scales < 1 for matrix in meta.svf.matrices):
        raise CheckpointError("The SVF layout lists a matrix without scales.")


def _check_arrays(checkpoint: Checkpoint) -> None:
    meta, theta = checkpoint.meta, checkpoint.theta
    agents, roles, d = len(meta.agents), len(meta.roles), meta.hidden_size
    needed = agents + roles
    size = head_class(meta.head).size(needed, d, meta.head_params)
    have = theta.size - checkpoint.svf_size
    if theta.ndim != 1 or have != size:
        if meta.head == "linear" and theta.ndim == 1 and have > 0 and have % d == 0:
            raise CheckpointError(
                f"checkpoint has {have // d} rows, the pool of {agents} agents and {roles} roles needs {needed}"
            )
        raise CheckpointError(
            f"checkpoint has {theta.size} numbers in shape {theta.shape}; its {meta.head} head and SVF layout need "
            f"({size + checkpoint.svf_size},)"
        )
    if (meta.normalisation == "standardise") != (checkpoint.mean is not None and checkpoint.std is not None) or (
        (checkpoint.mean is None) != (checkpoint.std is None)
    ):
        raise CheckpointError(f"Normalisation {meta.normalisation} and the stored mean and deviation do not fit.")
    for name, array in (("theta", theta), ("mean", checkpoint.mean), ("std", checkpoint.std)):
        if array is None:
            continue
        if name != "theta" and array.shape != (d,):
            raise CheckpointError(f"checkpoint has {name} of shape {array.shape}, the hidden size {d} needs ({d},)")
        if bad := int(np.count_nonzero(~np.isfinite(array))):
            raise CheckpointError(
                f"checkpoint is refused: {bad} of the {array.size} numbers in {name} are not finite. It is not a "
                "trained coordinator; train it again."
            )
    if checkpoint.std is not None and not np.all(checkpoint.std > 0):
        raise CheckpointError("checkpoint is refused: a deviation in std is not positive")
