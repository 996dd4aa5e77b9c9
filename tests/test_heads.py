"""Kinds of heads: sizes, values by hand, choosing rows, whole populations, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trinity_core.coordinator.checkpoint import Checkpoint, Meta
from trinity_core.coordinator.heads import DEFAULTS, HEADS, head_class, population_logits
from trinity_core.errors import CheckpointError

ROWS, D = 7, 23
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("linear", {}),
    ("low_rank", {"rank": 4}),
    ("low_rank", {}),
    ("sparse", {}),
    ("block_diagonal", {"blocks": 3}),
    ("block_diagonal", {"blocks": 7}),
    ("block_diagonal", {}),
]
RNG = np.random.default_rng(3)


def theta_for(kind: str, params: dict[str, Any], rows: int = ROWS, d: int = D) -> Any:
    return RNG.normal(size=head_class(kind).size(rows, d, params))


@pytest.mark.parametrize(
    ("kind", "params", "size"),
    [
        ("linear", {}, 10_240),
        ("low_rank", {}, 20_680),
        ("low_rank", {"rank": 1}, 1_034),
        ("sparse", {}, 11_266),
        ("block_diagonal", {"blocks": 2}, 5_120),
        ("block_diagonal", {"blocks": 10}, 1_024),
        ("block_diagonal", {"blocks": 1}, 10_240),
    ],
)
def test_sizes_at_the_width_of_the_paper(kind: str, params: dict[str, Any], size: int) -> None:
    assert head_class(kind).size(10, 1024, params) == size
    head = head_class(kind).build(np.arange(size) / size, 10, 1024, params)
    assert head.rows == 10
    assert head.logits(np.ones(1024)).shape == (10,)


def test_every_kind_has_its_defaults() -> None:
    assert set(DEFAULTS) == set(HEADS)
    for kind, params in DEFAULTS.items():
        assert head_class(kind).size(10, 1024, params) == head_class(kind).size(10, 1024, {})


def test_low_rank_by_hand() -> None:
    down, up = np.array([[1.0, 0.0], [0.0, -2.0]]), np.array([[1.0, 1.0], [0.0, 3.0], [2.0, 0.0]])
    head = head_class("low_rank").build(np.concatenate([down.ravel(), up.ravel()]), 3, 2, {"rank": 2})
    inner = np.array([2.0, 0.1 * (np.exp(-2.0) - 1)])
    assert np.allclose(head.logits(np.array([2.0, 1.0])), up @ inner, rtol=1e-14)
    assert np.all(np.isfinite(head.logits(np.array([-1e5, 1e5]))))


def test_sparse_by_hand() -> None:
    w = np.arange(1.0, 9.0).reshape(2, 4)
    x = np.array([1.0, 10.0, 100.0, 1000.0])

    def logits(scores: list[float], f: float, c: float) -> Any:
        return head_class("sparse").build(np.concatenate([w.ravel(), scores, [f, c]]), 2, 4, {}).logits(x)

    half = w @ (x * [0, 1, 0, 1])
    assert np.allclose(logits([0.1, 0.5, -3.0, 0.4], 0.0, 0.0), half)
    assert np.allclose(logits([0.1, 0.5, -3.0, 0.4], 0.0, np.log(3.0)), 3 * half)
    assert np.allclose(logits([0.1, 0.5, -3.0, 0.4], -50.0, 0.0), w[:, 1] * 10)
    assert np.allclose(logits([0.1, 0.5, -3.0, 0.4], -1e9, 0.0), w[:, 1] * 10)
    assert np.allclose(logits([0.1, 0.5, -3.0, 0.4], 1e9, 0.0), w @ x)
    assert np.allclose(logits([0.1, 0.5, -3.0, 0.4], 0.3, 0.0), w @ (x * [1, 1, 0, 1]))
    assert np.all(np.isfinite(logits([0.0] * 4, 0.0, 1e6)))


def test_equal_scores_keep_the_first_features() -> None:
    w = np.ones((1, 6))
    for scores in ([0.0] * 6, [0.0, -0.0, 0.0, -0.0, 0.0, -0.0], [2.5] * 6):
        head = head_class("sparse").build(np.concatenate([w.ravel(), scores, [0.0, 0.0]]), 1, 6, {})
        assert np.array_equal([head.logits(row)[0] for row in np.eye(6)], [1, 1, 1, 0, 0, 0])


def test_block_diagonal_is_its_matrix_with_zeros() -> None:
    theta = theta_for("block_diagonal", {"blocks": 3})
    dense, start = np.zeros((ROWS, D)), 0
    for rows, features in zip(np.array_split(np.arange(ROWS), 3), np.array_split(np.arange(D), 3), strict=True):
        dense[np.ix_(rows, features)] = theta[start : (start := start + rows.size * features.size)].reshape(
            rows.size, features.size
        )
    assert start == theta.size
    x = RNG.normal(size=(5, D))
    head = head_class("block_diagonal").build(theta, ROWS, D, {"blocks": 3})
    assert np.allclose(head.logits(x), x @ dense.T, rtol=1e-13)


@pytest.mark.parametrize(("kind", "params"), KINDS)
@pytest.mark.parametrize("indices", [[0, 1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1, 0], [2], [4, 0, 4], []])
def test_chosen_rows_keep_their_logits(kind: str, params: dict[str, Any], indices: list[int]) -> None:
    head = head_class(kind).build(theta_for(kind, params), ROWS, D, params)
    other, other_params, theta = head.select(indices)
    assert theta.size == head_class(other).size(len(indices), D, other_params)
    chosen = head_class(other).build(theta, len(indices), D, other_params)
    x = RNG.normal(size=(4, D))
    assert np.allclose(chosen.logits(x), head.logits(x)[:, indices], rtol=1e-12, atol=1e-12)
    assert chosen.rows == len(indices)


@pytest.mark.parametrize(("kind", "params"), KINDS)
@pytest.mark.parametrize("own_features", [False, True])
def test_a_population_is_each_of_its_heads(kind: str, params: dict[str, Any], own_features: bool) -> None:
    thetas = np.array([theta_for(kind, params) for _ in range(5)])
    x = RNG.normal(size=(5, 11, D) if own_features else (11, D))
    got = population_logits(kind, params, ROWS, thetas, x)
    assert got.shape == (5, 11, ROWS)
    assert got.dtype == np.float64
    for i, theta in enumerate(thetas):
        head = head_class(kind).build(theta, ROWS, D, params)
        one = x[i] if own_features else x
        assert np.allclose(got[i], head.logits(one), rtol=1e-11, atol=1e-12)
        assert np.allclose(head.logits(one)[3], head.logits(one[3]), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("kind", "params"), KINDS)
def test_zeros_are_a_head_with_logits_of_zero(kind: str, params: dict[str, Any]) -> None:
    size = head_class(kind).size(ROWS, D, params)
    x = RNG.normal(size=(3, D))
    assert not np.any(head_class(kind).build(np.zeros(size), ROWS, D, params).logits(x))
    assert not np.any(population_logits(kind, params, ROWS, np.zeros((2, size)), x))


@pytest.mark.parametrize(("kind", "params"), KINDS)
def test_a_head_keeps_its_own_copy(kind: str, params: dict[str, Any]) -> None:
    theta, x = theta_for(kind, params), RNG.normal(size=D)
    head = head_class(kind).build(theta, ROWS, D, params)
    before = head.logits(x)
    theta[:] = 9
    assert np.array_equal(head.logits(x), before)


@pytest.mark.parametrize(
    ("kind", "params", "message"),
    [
        ("linear", {"rank": 3}, "rank is given"),
        ("sparse", {"k": 3}, "k is given"),
        ("low_rank", {"rank": 0}, "rank of a low_rank head is 0"),
        ("low_rank", {"rank": True}, "rank of a low_rank head is True"),
        ("low_rank", {"rank": 2.0}, "rank of a low_rank head is 2.0"),
        ("low_rank", {"rank": "4"}, "rank of a low_rank head is '4'"),
        ("low_rank", {"blocks": 4}, "blocks is given"),
        ("block_diagonal", {"blocks": 8}, "cannot have 8 blocks. Choose at most 7"),
        ("block_diagonal", {"blocks": -1}, "blocks of a block_diagonal head is -1"),
        ("dense", {}, "Unknown kind of head 'dense'"),
    ],
)
def test_parameters_that_a_kind_cannot_have_are_refused(kind: str, params: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        head_class(kind).size(ROWS, D, params)
    with pytest.raises(CheckpointError, match=message):
        population_logits(kind, params, ROWS, np.zeros((1, 1)), np.zeros((1, D)))


@pytest.mark.parametrize(
    ("thetas", "x"),
    [
        ((2, ROWS * D + 1), (3, D)),
        ((2, ROWS * D - D), (3, D)),
        ((ROWS * D,), (3, D)),
        ((2, ROWS * D), (D,)),
        ((2, ROWS * D), (3, 4, D)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(thetas: tuple[int, ...], x: tuple[int, ...]) -> None:
    with pytest.raises(CheckpointError):
        population_logits("linear", {}, ROWS, np.zeros(thetas), np.zeros(x))


@pytest.mark.parametrize(("kind", "params"), KINDS)
def test_a_checkpoint_of_every_kind_fits_other_pools(tmp_path: Any, kind: str, params: dict[str, Any]) -> None:
    agents = ("a", "b", "c", "d")
    meta = replace(Meta("m", "r", D, agents), head=kind, head_params=params)
    made = Checkpoint.load(Checkpoint(meta, theta_for(kind, params)).save(tmp_path))
    h = RNG.normal(size=D)
    z = made.logits(h)
    for pool in (agents, ("d", "a"), ("c",)):
        mapped = made.for_pool(pool)
        assert np.allclose(mapped.logits(h), [*z[[agents.index(name) for name in pool]], *z[4:]], rtol=1e-11)
        assert Checkpoint.from_bytes(mapped.to_bytes()).id == mapped.id
