"""Singular-value fine-tuning (paper section 3): a few learned scales change a backbone's matrices.

W' = U diag(σ (1 + δ)) Vᵀ · Σσ / Σσ(1 + δ), with W = U diag(σ) Vᵀ, σ falling, and one δ a singular value; δ = 0 is W.
Two layouts say which matrices: `block`, the seven linear matrices of the second-to-last block, which can be trained;
`released`, these with the embedding before and the language-model head behind, for the paper's released vector.

`patched` gives a view of a backbone with scaled matrices: another model that shares every other weight, with caches
of its own. `Tuner` is the fast way for a population of `block` scales: what enters the tuned block does not depend
on δ, so it is computed once a transcript, and the last block runs only at the position that is read.

Invariants: a backbone's own weights are never written to. δ that are not finite, or make Σσ(1 + δ) not positive, are
refused with CheckpointError, never clipped. Only the smaller side of W is decomposed (W Wᵀ or Wᵀ W, in float64), so
nothing is divided by a small σ. `Tuner` equals the patched model within 1e-4 in float32. Not covered: other blocks,
convolutions, experts and fused matrices (no layout, told as CheckpointError), sliding windows in `Tuner`.
"""

from __future__ import annotations

import copy
import hashlib
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from trinity_core.coordinator import weights
from trinity_core.coordinator.backbone import Backbone, Stop
from trinity_core.coordinator.checkpoint import Position, SvfLayout, SvfMatrix
from trinity_core.errors import CheckpointError
from trinity_core.wire import canonical

Array = NDArray[np.float64]

LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linear matrices of a block, in the order of their scales."""
LM_HEAD = "lm_head.weight"
_ROWS = 8192
"""Rows of a tall matrix that are held in float64 at a time."""


# --- Layouts ------------------------------------------------------------------------------------------------


def block_layout(backbone: Backbone) -> SvfLayout:
    """The layout `block` of this backbone: 7 matrices, as many scales each as its smaller side is long.

    Raises CheckpointError for a model whose second-to-last block has other matrices.
    """
    return SvfLayout("block", _block_matrices(backbone), "apart")


def released_layout(backbone: Backbone) -> SvfLayout:
    """The layout `released`: embedding, the seven of the second-to-last block, language-model head, in state dict
    order; 9 · 1,024 scales for Qwen3-0.6B. `tie` says whether head and embedding are one matrix.

    Raises CheckpointError as `block_layout` does.
    """
    table = backbone.model.get_input_embeddings().weight
    name = next(name for name, parameter in backbone.model.named_parameters() if parameter is table)
    ends = [SvfMatrix(n, min(table.shape)) for n in (name, LM_HEAD)]
    matrices = (ends[0], *_block_matrices(backbone), ends[1])
    return SvfLayout("released", matrices, "sequential" if _tied(backbone) else "apart")


def _tied(backbone: Backbone) -> bool:
    return bool(getattr(weights.text_config(backbone.model.config), "tie_word_embeddings", False))


def _layers(backbone: Backbone) -> list[Any]:
    return weights.decoder_layers(backbone.model, weights.text_config(backbone.model.config))


def _linears(backbone: Backbone) -> list[tuple[str, torch.nn.Linear]]:
    """Path within the block and module of each of LINEARS in the second-to-last block."""
    layers = _layers(backbone)
    found: dict[str, tuple[str, torch.nn.Linear]] = {}
    for path, module in layers[-2].named_modules() if len(layers) > 1 else ():
        name = path.rsplit(".", 1)[-1]
        # Deeper ones belong to experts.
        if name in LINEARS and path.count(".") == 1 and isinstance(module, torch.nn.Linear):
            found[name] = path, module
    if len(found) != len(LINEARS):
        raise CheckpointError(
            f"SVF needs the seven linear matrices {', '.join(LINEARS)} in the second-to-last block; {backbone.id} "
            "has others. Train the head only (SVF off), or choose another backbone."
        )
    return [found[name] for name in LINEARS]


def _block_matrices(backbone: Backbone) -> tuple[SvfMatrix, ...]:
    names = {id(parameter): name for name, parameter in backbone.model.named_parameters()}
    return tuple(SvfMatrix(names[id(module.weight)], min(module.weight.shape)) for _, module in _linears(backbone))


# --- One matrix ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Basis:
    """Singular vectors of the smaller side of a matrix W (out, in), k = min(out, in), float64.

    `vectors` (k, k) in columns: V where W is `tall` (out > in or square), else U. `sigma` (k,) falling.
    """

    vectors: Tensor
    sigma: Tensor
    tall: bool


def decompose(weight: Tensor) -> Basis:
    """The basis of W (out, in), any float type, on its device (on the CPU where that has no float64)."""
    w = _wide_floats(weight)
    tall = w.shape[0] >= w.shape[1]
    if tall:  # by rows, since an embedding in float64 takes over a gigabyte
        gram = torch.zeros(w.shape[1], w.shape[1], dtype=torch.float64, device=w.device)
        for rows in w.split(_ROWS):
            part = rows.double()
            gram += part.T @ part
    else:
        gram = w.double() @ w.double().T
    values, vectors = torch.linalg.eigh(gram)
    return Basis(vectors.flip(-1), values.flip(-1).clamp(min=0).sqrt(), tall)


def _wide_floats(weight: Tensor) -> Tensor:
    return weight.detach().cpu() if weight.device.type == "mps" else weight.detach()


def gains(sigma: Tensor, deltas: Tensor) -> Tensor:
    """What each singular value is multiplied by, (1 + δ) · Σσ / Σσ(1 + δ): sigma (k,), deltas (..., k), float64.

    Raises CheckpointError when a δ is not finite or the sum is not positive.
    """
    total = (sigma * (1 + deltas)).sum(dim=-1, keepdim=True)
    found = (1 + deltas) * (sigma.sum() / total)
    if not bool((total > 0).all() and torch.isfinite(total).all() and torch.isfinite(found).all()):
        raise CheckpointError(
            "SVF scales are refused: they are not finite, or take all of a matrix away. Train again with a smaller "
            "step size."
        )
    return found


def scaled(weight: Tensor, delta: Tensor) -> Tensor:
    """W' of W (out, in) and δ (k,), in W's type and on its device. Raises CheckpointError as `gains` does."""
    basis = decompose(weight)
    w, v = _wide_floats(weight), basis.vectors
    g = gains(basis.sigma, delta.to(v.device, torch.float64))
    middle = (v * g) @ v.T
    if basis.tall:
        made = torch.cat([(rows.double() @ middle).to(w.dtype) for rows in w.split(_ROWS)])
    else:
        made = (middle @ w.double()).to(w.dtype)
    return made.to(weight.device)


# --- A view of a backbone ---------------------------------------------------------------------------------------

_VIEWS: WeakKeyDictionary[Backbone, WeakValueDictionary[str, Backbone]] = WeakKeyDictionary()
_VIEWS_LOCK = threading.Lock()


def patched(backbone: Backbone, layout: SvfLayout, scales: Array) -> Backbone:
    """A view of `backbone` whose matrices of `layout` are scaled by δ = `scales` (layout.size,).

    Equal scales give the same view as long as somebody holds it; scales of zero give `backbone` itself. Only the
    scaled matrices take memory. In an untied model the language-model head does not reach h and is left out; in a
    tied one its patch is applied to the embedding as the embedding's own has left it. Takes a second or two for a
    block, half a minute for an embedding. Raises CheckpointError where layout and backbone do not fit, and as
    `gains` does.
    """
    scales = np.asarray(scales, dtype=np.float64)
    _check(backbone, layout, scales)
    if not np.any(scales):
        return backbone
    key = hashlib.sha256(canonical(layout).encode() + scales.tobytes()).hexdigest()
    with _VIEWS_LOCK:  # also keeps two callers from making the same one
        views = _VIEWS.setdefault(backbone, WeakValueDictionary())
        view = views.get(key)
        if view is None:
            view = backbone.view(_changed(backbone, layout, scales), f"{backbone.revision}+svf:{key[:16]}")
            views[key] = view
        return view


def _check(backbone: Backbone, layout: SvfLayout, scales: Array) -> None:
    if scales.shape != (layout.size,):
        raise CheckpointError(f"The SVF layout has {layout.size} scales, the checkpoint {scales.shape}.")
    tie = "sequential" if _tied(backbone) else "apart"
    if layout.kind == "released" and layout.tie != tie:
        raise CheckpointError(
            f"The SVF layout is for a model whose head and embedding are {_TIES[layout.tie]}; those of {backbone.id} "
            f"are {_TIES[tie]}. Import the vector again with this backbone."
        )
    own = dict(backbone.model.named_parameters())
    for matrix in layout.matrices:
        weight = own.get(_target(backbone, matrix.name) or "")
        if weight is None and matrix.name == LM_HEAD and layout.kind == "released":
            continue
        if weight is None or weight.ndim != 2 or min(weight.shape) != matrix.scales:
            raise CheckpointError(
                f"The SVF layout has {matrix.scales} scales for {matrix.name}; {backbone.id} has no such matrix. Use "
                "the backbone that the checkpoint was trained on."
            )


_TIES = {"sequential": "tied", "apart": "apart"}


def _target(backbone: Backbone, name: str) -> str | None:
    """Name of the parameter that a matrix of a layout stands for; None for a head that does not reach h."""
    if name != LM_HEAD:
        return name
    if not _tied(backbone):
        return None
    table = backbone.model.get_input_embeddings().weight
    return next(name for name, parameter in backbone.model.named_parameters() if parameter is table)


def _changed(backbone: Backbone, layout: SvfLayout, scales: Array) -> dict[str, Tensor]:
    """The scaled matrices by parameter name, patched one after the other."""
    own, changed = dict(backbone.model.named_parameters()), dict[str, Tensor]()
    deltas = torch.from_numpy(scales.copy()).split([matrix.scales for matrix in layout.matrices])
    for matrix, delta in zip(layout.matrices, deltas, strict=True):
        name = _target(backbone, matrix.name)
        if name is not None and bool(delta.any()):
            current = changed[name] if name in changed else own[name]
            changed[name] = scaled(current, delta)
    return changed


# --- Populations ------------------------------------------------------------------------------------------------


class _Scaled(torch.nn.Module):
    """A linear map W' = left diag(gain) right, either by factors or, when `weight` is set, by that matrix."""

    def __init__(self, linear: torch.nn.Linear, shared: bool) -> None:
        super().__init__()
        basis = decompose(linear.weight)
        w, v = _wide_floats(linear.weight).double(), basis.vectors
        left, right = (w @ v, v.T) if basis.tall else (v, v.T @ w)
        device = linear.weight.device
        self.left, self.right = (t.float().to(device).contiguous() for t in (left, right))
        self.sigma, self.bias, self.dtype, self.shared = basis.sigma.cpu(), linear.bias, linear.weight.dtype, shared
        self.weight: Tensor | None = None
        self.gain: Tensor | None = None
        self.inner: Tensor | None = None
        """right x of the transcript at hand, where x is the same for all candidates."""

    def rebuild(self, gain: Tensor) -> None:
        self.weight = ((self.left * gain) @ self.right).to(self.dtype)

    def forward(self, x: Tensor) -> Tensor:
        if self.weight is not None:
            return functional.linear(x, self.weight, self.bias)
        assert self.gain is not None
        inner = functional.linear(x, self.right) if self.inner is None else self.inner
        if self.shared:
            self.inner = inner
        return functional.linear(inner * self.gain, self.left, self.bias)


class _Keys:
    """The cache that the last block sees when only one position is run: the keys and values before it."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self._keys, self._values = keys, values

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return torch.cat([self._keys, keys], dim=-2), torch.cat([self._values, values], dim=-2)


class Tuner:
    """Hidden states of many candidates for the `block` scales of one backbone.

    `states` gives what enters the tuned block, 4·d bytes a token (2,304 for SmolLM2-135M, 4,096 for Qwen3-0.6B);
    `hidden` runs the last two blocks. Attention, rotary embedding and norms are the model's own modules. All torch
    work is done under the backbone's lock, which is let go after each candidate and transcript. Safe to share between
    threads; calls of `hidden` wait for each other.

    Raises CheckpointError for a layout that is not this backbone's, and where the fast path is not possible: sliding
    windows, caches that cannot be cropped, and blocks built otherwise (found by comparing with a whole pass).
    """

    def __init__(self, backbone: Backbone, layout: SvfLayout | None = None) -> None:
        self.layout = block_layout(backbone)
        if layout is not None and (layout.kind, layout.matrices) != (self.layout.kind, self.layout.matrices):
            raise CheckpointError(
                f"The SVF layout {layout.kind} with {layout.size} scales cannot be trained on {backbone.id}; its own "
                f"layout block has {self.layout.size}."
            )
        self._backbone, self._busy = backbone, threading.Lock()
        layers = _layers(backbone)
        self._block, self._last = len(layers) - 2, layers[-1]
        with backbone.working(lambda: False):
            # As in `Backbone.view`: tensors are shared; the hooks refer to the backbone, which is not copied.
            known: dict[int, Any] = {id(t): t for t in chain(layers[-2].parameters(), layers[-2].buffers())}
            known[id(backbone)] = backbone
            self._tuned = copy.deepcopy(layers[-2], known)
            self._maps: list[_Scaled] = []
            for path, linear in _linears(backbone):
                made = _Scaled(linear, shared=path.rsplit(".", 1)[-1] in LINEARS[:3])
                parent, _, name = path.rpartition(".")
                setattr(self._tuned.get_submodule(parent), name, made)
                self._maps.append(made)
        self._prove()

    def states(self, tokens: Sequence[int], *, stop: Stop | None = None) -> NDArray[np.float32]:
        """The states that enter the tuned block, (T, d) float32, of all tokens (suffix included).

        Raises ValueError for a number of tokens that cannot be read, and Cancelled.
        """
        return self._backbone.below(tokens, self._block, stop=stop)

    def hidden(
        self,
        deltas: Array,
        states: Sequence[NDArray[np.float32]],
        position: Position = -2,
        *,
        stop: Stop | None = None,
        rebuild: bool | None = None,
    ) -> NDArray[np.float32]:
        """h (λ, m, d) float32 at `position` of the m transcripts with `states` (T, d), for δ = `deltas` (λ, size).

        `rebuild` says whether W' is made once a candidate, else x goes through the factors; None takes what costs
        fewer multiplications. Raises CheckpointError as `gains` does and when states overflow, ValueError for arrays
        that do not fit, Cancelled when `stop` says so.
        """
        deltas, d = np.asarray(deltas, dtype=np.float64), self._backbone.hidden_size
        if deltas.ndim != 2 or deltas.shape[1] != self.layout.size:
            raise ValueError(f"scales of shape {deltas.shape}, not (λ, {self.layout.size})")
        needed = 2 if position == -2 else 1
        for array in states:
            if array.ndim != 2 or array.shape[1] != d or len(array) < needed:
                raise ValueError(f"states of shape {array.shape}, not (at least {needed}, {d})")
        # What stands behind the position read has no part in it.
        read = [array if position == "mean" else array[: len(array) + position + 1] for array in states]
        halt = stop or (lambda: False)
        sizes = [matrix.scales for matrix in self.layout.matrices]
        parts = [np.ascontiguousarray(part) for part in np.split(deltas, np.cumsum(sizes)[:-1], axis=1)]
        found = np.zeros((len(deltas), len(states), d), dtype=np.float32)
        with self._busy:
            scales = [
                gains(each.sigma, torch.from_numpy(part)).float().to(each.left.device)
                for each, part in zip(self._maps, parts, strict=True)
            ]
            if self._rebuilds(sum(map(len, read))) if rebuild is None else rebuild:
                order = [(i, j) for i in range(len(deltas)) for j in range(len(read))]
                self._run(order, scales, read, position, halt, found, rebuild=True)
            else:
                order = [(i, j) for j in range(len(read)) for i in range(len(deltas))]
                self._run(order, scales, read, position, halt, found, rebuild=False)
        if not np.all(np.isfinite(found)):
            raise CheckpointError("With these SVF scales the hidden states overflow. Use a smaller step size.")
        return found

    def _run(
        self,
        order: list[tuple[int, int]],
        scales: list[Tensor],
        read: list[NDArray[np.float32]],
        position: Position,
        halt: Stop,
        found: NDArray[np.float32],
        *,
        rebuild: bool,
    ) -> None:
        """Fill `found` (λ, m, d) in an order that changes candidate (rebuilt) or transcript (factors) rarely."""
        candidate = transcript = -1
        x = torch.zeros(0)
        try:
            for i, j in order:
                with self._backbone.working(halt):
                    if i != candidate:
                        for each, gain in zip(self._maps, scales, strict=True):
                            each.gain = gain[i]
                            if rebuild:
                                each.rebuild(gain[i])
                    if j != transcript:
                        model = self._backbone.model
                        x = torch.tensor(read[j], device=self._backbone.device, dtype=model.dtype)[None]
                        for each in self._maps:
                            each.inner = None
                    candidate, transcript = i, j
                    found[i, j] = self._above(x, position).float().cpu().numpy()
        finally:
            for each in self._maps:
                each.weight = each.gain = each.inner = None

    def _above(self, x: Tensor, position: Position) -> Tensor:
        """h (d,) of states (1, T, d) that enter the tuned block, T ending with the position read."""
        from transformers.masking_utils import create_causal_mask

        model, last = self._backbone.model, self._last
        where = torch.arange(x.shape[1], device=x.device)[None]
        cos, sin = model.rotary_emb(x, position_ids=where)
        config = weights.text_config(model.config)
        mask = create_causal_mask(config=config, inputs_embeds=x, attention_mask=None, cache=None, position_ids=where)
        common: dict[str, Any] = {"attention_mask": mask, "position_ids": where, "position_embeddings": (cos, sin)}
        x = self._tuned(x, **common)
        if position == "mean":
            h: Tensor = model.norm(last(x, **common)).float().mean(dim=1)[0]
            return h
        attention = last.self_attn
        before = last.input_layernorm(x[:, :-1])
        keys, values = (
            part(before).unflatten(-1, (-1, attention.head_dim)) for part in (attention.k_proj, attention.v_proj)
        )
        keys = getattr(attention, "k_norm", torch.nn.Identity())(keys).transpose(1, 2)
        rotate = sys.modules[type(attention).__module__].apply_rotary_pos_emb
        keys = rotate(keys, keys, cos[:, :-1], sin[:, :-1])[1]
        # One query that may see everything needs no mask.
        alone = last(
            x[:, -1:],
            attention_mask=None,
            position_ids=where[:, -1:],
            position_embeddings=(cos[:, -1:], sin[:, -1:]),
            **{str(self._backbone.cache_name): _Keys(keys, values.transpose(1, 2))},
        )
        h = model.norm(alone)[0, 0]
        return h

    def _rebuilds(self, tokens: int) -> bool:
        """Whether making W' costs fewer multiplications than `tokens` detours through the factors."""
        if self._backbone.model.dtype != torch.float32:
            return True  # factors in fewer bits than W' itself would not give W'
        plain = sum(each.left.shape[0] * each.right.shape[1] for each in self._maps)
        factors = sum(each.left.numel() + (0 if each.shared else each.right.numel()) for each in self._maps)
        rebuilding = sum(each.left.numel() * each.right.shape[1] for each in self._maps)
        return tokens * factors > tokens * plain + rebuilding

    def _prove(self) -> None:
        """Raises CheckpointError unless δ = 0 gives what a whole pass gives."""
        backbone = self._backbone
        vocabulary = int(backbone.model.get_input_embeddings().weight.shape[0])
        tokens = [(7 * i + 3) % vocabulary for i in range(12)]
        whole = backbone.encode(tokens, []).h
        exact = backbone.model.dtype == torch.float32
        bound = (1e-4 if exact else 0.05) * float(np.linalg.norm(whole))
        why: object = "its hidden states differ" if backbone.croppable else "its cache cannot be cropped"
        for rebuild in (False, True) if exact else (True,):
            try:
                mine = self.hidden(np.zeros((1, self.layout.size)), [self.states(tokens)], rebuild=rebuild)[0, 0]
            except (AttributeError, TypeError, ValueError, RuntimeError, KeyError, NotImplementedError) as error:
                mine, why = np.full_like(whole, np.inf), error
            if not (backbone.croppable and float(np.linalg.norm(mine - whole)) <= bound):
                raise CheckpointError(
                    f"SVF cannot be trained on {backbone.id} ({why}). "
                    "Train the head only (SVF off), or choose another backbone."
                )
