"""Heads: from a hidden state to one raw logit per agent and role (paper section 3). NumPy float64, no torch.

A head is a function of features x (d,), which `normalise` makes from h. Rows are the agents in the checkpoint's
order, then the roles in its role order. Kinds register in `HEADS`; each keeps its parameters in one flat float64
vector theta, so that evolution, SVF and checkpoints need to know only its length. None has a bias:

- `linear`: z = W x.
- `low_rank` (`rank`, 20): z = V ELU(U x) with ELU's slope end at -0.1.
- `sparse`: z = s W (x * g), g = 1 for the k features of the largest learned scores and 0 for the others.
- `block_diagonal` (`blocks`, 2): rows and features are each split in blocks; a block of rows sees its own features.

Theta of all zeros is a valid head of every kind and gives logits of zero. `population_logits` evaluates many thetas
at once, for evolution.

Invariants: parameters, features and logits are finite, or CheckpointError or BackboneError says so; nothing is
broadcast or wrapped. Equal thetas give equal heads: ties of scores go to the lower feature. Not covered: masks and
choices (see `policy`), fitting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from trinity_core.errors import BackboneError, CheckpointError

Array = NDArray[np.float64]

NORMALISATIONS = ("none", "l2", "standardise")

DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "linear": {},
    "low_rank": {"rank": 20},
    "sparse": {},
    "block_diagonal": {"blocks": 2},
}
"""The parameters of each kind of head, with the values that hold where none are given. All are whole numbers."""

ELU_ALPHA = 0.1
"""What ELU tends to on the negative side, times -1."""
SCALE_LIMIT = 10.0
"""The log scale of a sparse head counts at most this much, up or down."""


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

    @classmethod
    def population(cls, thetas: Array, rows: int, params: Mapping[str, Any], x: Array) -> Array:
        """Logits (λ, m, rows) of the heads that thetas (λ, size) build. Features x are (m, d), or (λ, m, d) where
        each head has its own."""
        ...

    def logits(self, x: Array) -> Array:
        """Raw logits (..., rows) of features (..., d)."""
        ...

    def select(self, indices: Sequence[int]) -> tuple[str, Mapping[str, Any], Array]:
        """(kind, params, theta) of a head that gives these rows' logits only, in this order. It may be of another
        kind."""
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
        _params("linear", params)
        return rows * features

    @classmethod
    def build(cls, theta: Array, rows: int, features: int, params: Mapping[str, Any]) -> Self:
        return cls(np.array(theta, dtype=np.float64).reshape(rows, features))

    @classmethod
    def population(cls, thetas: Array, rows: int, params: Mapping[str, Any], x: Array) -> Array:
        return _apply(thetas.reshape(len(thetas), rows, x.shape[-1]), x)

    def logits(self, x: Array) -> Array:
        z: Array = x @ self.weight.T
        return z

    def select(self, indices: Sequence[int]) -> tuple[str, Mapping[str, Any], Array]:
        return "linear", {}, self.weight[list(indices)].reshape(-1)


@dataclass(frozen=True, eq=False, slots=True)
class LowRankHead:
    """z = V ELU(U x); theta is U (rank, d), then V (rows, rank), both row-major. ELU(a) = a above 0, else
    0.1 (e^a - 1)."""

    down: Array
    up: Array

    @property
    def rows(self) -> int:
        return int(self.up.shape[0])

    @classmethod
    def size(cls, rows: int, features: int, params: Mapping[str, Any]) -> int:
        return _params("low_rank", params)["rank"] * (features + rows)

    @classmethod
    def build(cls, theta: Array, rows: int, features: int, params: Mapping[str, Any]) -> Self:
        rank = _params("low_rank", params)["rank"]
        flat = np.array(theta, dtype=np.float64)
        return cls(flat[: rank * features].reshape(rank, features), flat[rank * features :].reshape(rows, rank))

    @classmethod
    def population(cls, thetas: Array, rows: int, params: Mapping[str, Any], x: Array) -> Array:
        count, rank, d = len(thetas), _params("low_rank", params)["rank"], x.shape[-1]
        down, up = thetas[:, : rank * d], thetas[:, rank * d :]
        inner = _elu(_apply(down.reshape(count, rank, d), x))
        return _apply(up.reshape(count, rows, rank), inner)

    def logits(self, x: Array) -> Array:
        z: Array = _elu(x @ self.down.T) @ self.up.T
        return z

    def select(self, indices: Sequence[int]) -> tuple[str, Mapping[str, Any], Array]:
        chosen = np.concatenate([self.down.reshape(-1), self.up[list(indices)].reshape(-1)])
        return "low_rank", {"rank": len(self.down)}, chosen


@dataclass(frozen=True, eq=False, slots=True)
class SparseHead:
    """z = e^c W (x * g) with a hard choice g of features.

    theta is W (rows, d) row-major, the scores (d,), then two scalars: f, whose logistic function is the share of
    features kept, and c, the log of a scale on all logits (so that evolution moves how sharp the choice is along one
    coordinate). k = ⌈d / (1 + e^-f)⌉, at least 1; g is 1 at the k largest scores. f = 0 keeps half.
    """

    weight: Array
    tail: Array
    """Scores and the two scalars, as they stand in theta."""
    gate: Array
    """e^c g (d,)."""

    @property
    def rows(self) -> int:
        return int(self.weight.shape[0])

    @classmethod
    def size(cls, rows: int, features: int, params: Mapping[str, Any]) -> int:
        _params("sparse", params)
        return rows * features + features + 2

    @classmethod
    def build(cls, theta: Array, rows: int, features: int, params: Mapping[str, Any]) -> Self:
        flat = np.array(theta, dtype=np.float64)
        weight, tail = flat[: rows * features].reshape(rows, features), flat[rows * features :]
        return cls(weight, tail, _gate(tail))

    @classmethod
    def population(cls, thetas: Array, rows: int, params: Mapping[str, Any], x: Array) -> Array:
        count, d = len(thetas), x.shape[-1]
        gates = np.array([_gate(tail) for tail in thetas[:, rows * d :]])
        return _apply(thetas[:, : rows * d].reshape(count, rows, d) * gates[:, None, :], x)

    def logits(self, x: Array) -> Array:
        z: Array = (x * self.gate) @ self.weight.T
        return z

    def select(self, indices: Sequence[int]) -> tuple[str, Mapping[str, Any], Array]:
        return "sparse", {}, np.concatenate([self.weight[list(indices)].reshape(-1), self.tail])


@dataclass(frozen=True, eq=False, slots=True)
class BlockDiagonalHead:
    """z = W x where W is zero outside its diagonal blocks. Rows and features are each split as evenly as can be, the
    longer parts first (`numpy.array_split`); theta is block after block, each row-major."""

    weight: Array
    """W (rows, d), zeros included."""

    @property
    def rows(self) -> int:
        return int(self.weight.shape[0])

    @classmethod
    def size(cls, rows: int, features: int, params: Mapping[str, Any]) -> int:
        return sum(len(r) * len(f) for r, f in _blocks(rows, features, params))

    @classmethod
    def build(cls, theta: Array, rows: int, features: int, params: Mapping[str, Any]) -> Self:
        flat, weight = np.asarray(theta, dtype=np.float64), np.zeros((rows, features))
        start = 0
        for r, f in _blocks(rows, features, params):
            weight[r.start : r.stop, f.start : f.stop] = flat[start : start + len(r) * len(f)].reshape(len(r), len(f))
            start += len(r) * len(f)
        return cls(weight)

    @classmethod
    def population(cls, thetas: Array, rows: int, params: Mapping[str, Any], x: Array) -> Array:
        parts, start = [], 0
        for r, f in _blocks(rows, x.shape[-1], params):
            block = thetas[:, start : start + len(r) * len(f)].reshape(len(thetas), len(r), len(f))
            parts.append(_apply(block, x[..., f.start : f.stop]))
            start += len(r) * len(f)
        return np.concatenate(parts, axis=-1)

    def logits(self, x: Array) -> Array:
        z: Array = x @ self.weight.T
        return z

    def select(self, indices: Sequence[int]) -> tuple[str, Mapping[str, Any], Array]:
        # Chosen rows no longer make even blocks, so the zeros are written out.
        return "linear", {}, self.weight[list(indices)].reshape(-1)


HEADS: dict[str, type[Head]] = {
    "linear": LinearHead,
    "low_rank": LowRankHead,
    "sparse": SparseHead,
    "block_diagonal": BlockDiagonalHead,
}


def head_class(kind: str) -> type[Head]:
    """The class of this kind. Raises CheckpointError when there is none."""
    try:
        return HEADS[kind]
    except KeyError:
        raise CheckpointError(
            f"Unknown kind of head {kind!r}; this version knows {', '.join(HEADS)}. Use the version of Trinity that "
            "wrote this checkpoint."
        ) from None


def population_logits(kind: str, params: Mapping[str, Any], rows: int, thetas: Array, x: Array) -> Array:
    """Logits (λ, m, rows) float64 of the heads of thetas (λ, n), equal to building each but for rounding.

    Features x are (m, d), the same for all heads, or (λ, m, d), for example with SVF scales in the population. A
    linear population on shared features is one matrix product. Raises CheckpointError for arrays that do not fit.
    """
    thetas, x = np.asarray(thetas, dtype=np.float64), np.asarray(x, dtype=np.float64)
    if thetas.ndim != 2 or x.ndim not in (2, 3) or (x.ndim == 3 and len(x) != len(thetas)):
        raise CheckpointError(f"Heads of shape {thetas.shape} and features of shape {x.shape} do not go together.")
    size = head_class(kind).size(rows, x.shape[-1], params)
    if thetas.shape[1] != size:
        raise CheckpointError(
            f"A {kind} head of {rows} rows and {x.shape[-1]} features has {size} numbers, not {thetas.shape[1]}."
        )
    return head_class(kind).population(thetas, rows, params, x)


# --- Parts --------------------------------------------------------------------------------------------------


def _params(kind: str, params: Mapping[str, Any]) -> dict[str, int]:
    """`params` over the kind's defaults. Raises CheckpointError for unknown names and what is no positive integer."""
    defaults = DEFAULTS[kind]
    if unknown := sorted(map(str, set(params) - set(defaults))):
        known = f"takes {', '.join(defaults)}" if defaults else "has no parameters of its own"
        raise CheckpointError(f"A {kind} head {known}, but {', '.join(unknown)} is given.")
    merged = {**defaults, **params}
    for name, value in merged.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise CheckpointError(f"The {name} of a {kind} head is {value!r}; a whole number from 1 is needed.")
    return merged


def _blocks(rows: int, features: int, params: Mapping[str, Any]) -> list[tuple[range, range]]:
    """Row and feature range of each block."""
    count = _params("block_diagonal", params)["blocks"]
    if count > min(rows, features):
        raise CheckpointError(
            f"A block_diagonal head of {rows} rows and {features} features cannot have {count} blocks. "
            f"Choose at most {min(rows, features)}."
        )
    return list(zip(_split(rows, count), _split(features, count), strict=True))


def _split(n: int, parts: int) -> list[range]:
    """Neighbouring ranges, as even as can be, the longer ones first."""
    each, extra = divmod(n, parts)
    starts = [i * each + min(i, extra) for i in range(parts + 1)]
    return [range(a, b) for a, b in pairwise(starts)]


def _gate(tail: Array) -> Array:
    """e^c g (d,) out of the scores (d,) and the two scalars f and c."""
    scores, f, c = tail[:-2], float(tail[-2]), float(tail[-1])
    share = 1 / (1 + np.exp(-np.clip(f, -500, 500)))
    k = max(1, int(np.ceil(share * len(scores))))
    gate = np.zeros(len(scores))
    gate[np.argsort(-scores, kind="stable")[:k]] = np.exp(np.clip(c, -SCALE_LIMIT, SCALE_LIMIT))
    return gate


def _elu(a: Array) -> Array:
    z: Array = np.where(a > 0, a, ELU_ALPHA * np.expm1(np.minimum(a, 0)))
    return z


def _apply(weights: Array, x: Array) -> Array:
    """(λ, m, r) from weights (λ, r, d) and x (m, d) or (λ, m, d)."""
    if x.ndim == 3:
        each: Array = x @ weights.transpose(0, 2, 1)
        return each
    count, r, d = weights.shape
    # m is often larger than λ·r: this order keeps the product in one call of BLAS without a copy of x.
    flat = weights.reshape(count * r, d) @ x.T
    return flat.reshape(count, r, len(x)).transpose(0, 2, 1)
