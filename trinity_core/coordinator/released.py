"""Import of a released coordinator: one vector of SVF scales and head, as the paper's authors published it.

The vector is a .npy file or a .safetensors file with one array: δ of the layout `released` (9 · 1,024 for
Qwen3-0.6B), then W (10, d) row-major, 19,456 numbers in all. Rows are `AGENTS`, then worker, thinker, verifier. The
coordinator reads the transcript `released` at position -2, without a suffix; its router prompt comes from a text
file. The result is an ordinary checkpoint, for inference only: training has another layout.

Invariant: what is imported is exactly the numbers of the file, widened to float64. Not covered: whether the vector
belongs to this backbone (only the number of values can tell), downloading.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trinity_core.coordinator import transcript
from trinity_core.coordinator.checkpoint import MAX_BYTES, Checkpoint, Meta
from trinity_core.errors import CheckpointError
from trinity_core.types import Role

if TYPE_CHECKING:
    from trinity_core.coordinator.backbone import Backbone

Array = NDArray[np.float64]

AGENTS = (
    "gpt-5",
    "claude-sonnet-4",
    "gemini-2.5-pro",
    "deepseek-r1-distill-qwen-32b",
    "gemma-3-27b-it",
    "qwen3-32b-reasoning",
    "qwen3-32b-direct",
)
"""The agents of the released head, in the order of its rows."""
ROLES = (Role.WORKER, Role.THINKER, Role.VERIFIER)
PROMPT_BYTES = 2**20
"""Longest router prompt file."""


def import_vector(vector: Path, router_prompt: Path, backbone: Backbone) -> Checkpoint:
    """The checkpoint of a released vector (any float type, any shape with one axis longer than 1) on `backbone`.

    `router_prompt` is a UTF-8 text; a line break at its very end, which editors add, is not part of it. Raises
    CheckpointError for a file that cannot be read, is damaged, pickled or of another length, holds other than finite
    floats, or for a backbone whose matrices cannot be scaled.
    """
    from trinity_core.coordinator.svf import released_layout

    layout, d = released_layout(backbone), backbone.hidden_size
    prompt = read_prompt(router_prompt)
    data = _read(vector, MAX_BYTES)
    theta = read_vector(vector, data)
    rows = len(AGENTS) + len(ROLES)
    if theta.size != layout.size + rows * d:
        raise CheckpointError(
            f"{vector.name} has {theta.size:,} numbers; on {backbone.id} a released vector has "
            f"{layout.size + rows * d:,}: {layout.size:,} SVF scales and {rows} rows of {d:,}. Start with the "
            "backbone that the vector was trained on (--backbone Qwen/Qwen3-0.6B)."
        )
    meta = Meta(
        backbone_id=backbone.id,
        backbone_revision=backbone.revision,
        hidden_size=d,
        agents=AGENTS,
        roles=ROLES,
        transcript=transcript.RELEASED,
        suffix="",
        position=-2,
        svf=layout,
        training={"method": "imported", "file": vector.name, "sha256": hashlib.sha256(data).hexdigest()},
        router_prompt=prompt,
    )
    return Checkpoint(meta, theta)


def read_prompt(path: Path) -> str:
    """The router prompt. Raises CheckpointError when the file is missing, empty, too long or no UTF-8 text."""
    try:
        text = _read(path, PROMPT_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise CheckpointError(f"{path.name} is not UTF-8. Save the router prompt as a plain text file.") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text.strip():
        raise CheckpointError(f"{path.name} is empty. It must hold the router prompt that belongs to the vector.")
    return text


def read_vector(path: Path, data: bytes) -> Array:
    """The one array in `data`, the bytes of `path`, as float64 (n,). Raises CheckpointError, see `import_vector`."""
    kind = path.suffix.lower()
    if kind not in (".npy", ".safetensors"):
        raise CheckpointError(f"{path.name} is neither a .npy nor a .safetensors file, and others are not read.")
    array = _from_npy(path.name, data) if kind == ".npy" else _from_safetensors(path.name, data)
    if array.size != max(array.shape, default=0):
        raise CheckpointError(f"{path.name} holds an array of shape {array.shape}; a vector is needed.")
    theta: Array = array.reshape(-1)
    if bad := int(np.count_nonzero(~np.isfinite(theta))):
        raise CheckpointError(
            f"{bad} of the {theta.size:,} numbers in {path.name} are not finite. It is damaged or no trained "
            "coordinator; get it again."
        )
    return theta


def _from_npy(name: str, data: bytes) -> Array:
    try:
        # Unlike numpy.load this never opens an archive or a bare pickle.
        array: NDArray[Any] = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError, TypeError, SyntaxError, MemoryError, OverflowError) as error:
        pickled = "allow_pickle" in str(error)
        why = "it holds Python objects, which could run code" if pickled else f"it is damaged ({error})"
        raise CheckpointError(f"{name} is refused: {why}. Save the vector with numpy.save as floats.") from None
    if array.dtype.kind != "f":
        raise CheckpointError(f"{name} holds {array.dtype}; floats are needed.")
    with np.errstate(over="ignore"):  # what float64 cannot hold becomes infinite and is refused
        return array.astype(np.float64)


def _from_safetensors(name: str, data: bytes) -> Array:
    from safetensors import SafetensorError
    from safetensors.torch import load  # NumPy has no bfloat16

    try:
        tensors: dict[str, Any] = load(data)
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{name} is damaged ({error}). Get it again.") from None
    if len(tensors) != 1:
        raise CheckpointError(f"{name} holds {len(tensors)} arrays; a released vector is a single one.")
    (tensor,) = tensors.values()
    if not tensor.is_floating_point():
        raise CheckpointError(f"{name} holds {tensor.dtype}; floats are needed.")
    array: Array = tensor.double().numpy()
    return array


def _read(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror or error}). Check the path.") from None
    if len(data) > limit:
        raise CheckpointError(f"{path.name} is larger than {limit:,} bytes, so it is not what is asked for here.")
    return data
