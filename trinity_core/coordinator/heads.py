"""Heads: from a hidden state to one raw logit per agent and role (paper section 3). NumPy float64, no torch.

A head is a function of features x (d,), which `normalise` makes from h. Rows are the agents in the checkpoint's
order, then the roles in its role order. Kinds register in `HEADS`; each keeps its parameters in one flat float64
vector theta, so that evolution, SVF and checkpoints need to know only its length. Here: `linear`, z = W x, no bias.

Invariants: parameters, features and logits are finite, or CheckpointError or BackboneError says so; nothing is
broadcast or wrapped. Not covered: masks and choices (see `policy`), fitting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from trinity_core.errors import BackboneError, CheckpointError

Array = NDArray[np.float64]

NORMALISATIONS = ("none", "l2", "standardise")


def vector(h: Any, d: int) -> Array:
    """A hidden state as float64 (d,): NumPy or torch, any float type (bfloat16 too), any device.

    Raises BackboneError when its shape is another or it is not finite.
    """
    if hasattr(h, "detach"):  # a torch tensor: NumPy has no bfloat16, and some devices no float64
        h = h.detach().cpu().double().numpy()
    x = np.asarray(h, dtype=np.float64)
    if x.shape != (d,):
        raise BackboneError(f"The hidden state has shape {x.shape}; this checkpoint was trained on ({d},).")
    if not np.all(np.isfinite(x)):
        raise BackboneError("The hidden state is not finite. The backbone's weights are damaged or overflow here.")
    return x


def normalise(kind: str, h: Array, mean: Array | None = None, std: Array | None = None) -> Array:
    """Features from hidden states (..., d). `standardise`: (h - mean) / std / sqrt(d), with mean and std (d,)."""
    if kind == "none":
        return h
    if kind == "l2":
        norm = np.linalg.norm(h, axis=-1, keepdims=True)
        unit: Array = np.divide(h, norm, out=np.zeros_like(h), where=norm > 0)
        return unit
    if kind == "standardise" and mean is not None and std is not None:
        standard: Array = (h - mean) / std / np.sqrt(h.shape[-1])
        return standard
    raise CheckpointError(f"Unknown feature normalisation {kind!r}, or its mean and deviation are missing.")


class Head(Protocol):
    """One kind of head with its parameters. `rows` logits from `features` numbers."""

    @property
    def rows(self) -> int: ...

    @classmethod
    def size(cls, rows: int, features: int, params: Mapping[str, Any]) -> int:
        """Length of theta. Raises CheckpointError for params that this kind cannot have."""
        ...

    @classmethod
    def build(cls, theta: Array, rows: int, features: int, params: Mapping[str, Any]) -> Self:
        """From theta (size,). The array is copied."""
        ...

    def logits(self, x: Array) -> Array:
        """Raw logits (..., rows) of features (..., d)."""
        ...

    def select(self, indices: Sequence[int]) -> tuple[str, Mapping[str, Any], Array]:
        """(kind, params, theta) of a head that gives these rows' logits only, in this order."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class LinearHead:
    """z = W x with W (rows, d), row-major in theta."""

    weight: Array

    @property
    def rows(self) -> int:
        return int(self.weight.shape[0])

    @classmethod
    def size(cls, rows: int, features: int, params: Mapping[str, Any]) -> int:
        if params:
            raise CheckpointError(f"A linear head has no parameters of its own, but {sorted(params)} are given.")
        return rows * features

    @classmethod
    def build(cls, theta: Array, rows: int, features: int, params: Mapping[str, Any]) -> Self:
        return cls(np.array(theta, dtype=np.float64).reshape(rows, features))

    def logits(self, x: Array) -> Array:
        z: Array = x @ self.weight.T
        return z

    def select(self, indices: Sequence[int]) -> tuple[str, Mapping[str, Any], Array]:
        return "linear", {}, self.weight[list(indices)].reshape(-1)


HEADS: dict[str, type[Head]] = {"linear": LinearHead}


def head_class(kind: str) -> type[Head]:
    """The class of this kind. Raises CheckpointError when there is none."""
    try:
        return HEADS[kind]
    except KeyError:
        raise CheckpointError(
            f"Unknown kind of head {kind!r}; this version knows {', '.join(HEADS)}. Use the version of Trinity that "
            "wrote this checkpoint."
        ) from None
