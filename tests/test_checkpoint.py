"""Checkpoints and heads: files that prove their content, rows that belong to names, and all that is refused."""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import replace
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors
from safetensors.numpy import save_file

from trinity_core.coordinator.checkpoint import Checkpoint, Meta, SvfLayout, SvfMatrix
from trinity_core.coordinator.heads import normalise
from trinity_core.errors import BackboneError, CheckpointError
from trinity_core.types import Role

D = 6
AGENTS = ("a", "b", "c")
META = Meta(
    backbone_id="m",
    backbone_revision="r1",
    hidden_size=D,
    agents=AGENTS,
    population=33,
    seed=42,
    training={"method": "sep-CMA-ES", "generations": 60, "accuracy": 0.89, "curve": [0.1, 0.2], "note": "é"},
)
RNG = np.random.default_rng(5)
WEIGHT = RNG.normal(size=(len(AGENTS) + 3, D))
H = RNG.normal(size=D)


def trained(**changes: Any) -> Checkpoint:
    return Checkpoint(replace(META, **changes), WEIGHT.reshape(-1))


def standardised() -> Checkpoint:
    return Checkpoint(
        replace(META, normalisation="standardise"), WEIGHT.reshape(-1), np.arange(D) / 7.0, np.arange(1, D + 1) / 3.0
    )


def with_svf() -> Checkpoint:
    layout = SvfLayout("block", (SvfMatrix("layers.1.q", 4), SvfMatrix("layers.1.k", 2)), "sequential")
    return Checkpoint(replace(META, svf=layout), np.concatenate([np.arange(6) / 10, WEIGHT.reshape(-1)]))


# --- Files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [trained, standardised, with_svf])
def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path, make: Any) -> None:
    before = make()
    path = before.save(tmp_path / "checkpoints")
    after = Checkpoint.load(path)
    assert after.meta == before.meta
    assert after.theta.dtype == np.float64
    for name in ("theta", "mean", "std"):
        a, b = getattr(before, name), getattr(after, name)
        assert (a is None and b is None) or np.array_equal(a, b)
    assert after.id == before.id
    assert np.array_equal(after.logits(H), before.logits(H))


def test_the_name_is_the_hash_of_the_bytes_and_bytes_are_repeatable(tmp_path: Path) -> None:
    path = standardised().save(tmp_path)
    data = path.read_bytes()
    assert path.name == hashlib.sha256(data).hexdigest() + ".safetensors"
    assert path.stem == standardised().id
    assert standardised().to_bytes() == data == Checkpoint.load(path).to_bytes()
    assert standardised().save(tmp_path) == path
    assert list(tmp_path.iterdir()) == [path]
    assert trained().id != trained(seed=43).id != standardised().id


def test_a_half_written_file_of_the_same_name_is_replaced(tmp_path: Path) -> None:
    path = trained().save(tmp_path)
    path.write_bytes(path.read_bytes()[:50])
    assert Checkpoint.load(trained().save(tmp_path)).id == trained().id


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="could not be written"):
        trained().save(tmp_path / "file")


def test_theta_cannot_be_changed_from_outside() -> None:
    theta = WEIGHT.reshape(-1).copy()
    checkpoint = Checkpoint(META, theta)
    before = checkpoint.id
    theta[0] = 99
    assert checkpoint.theta[0] == WEIGHT[0, 0]
    assert Checkpoint(META, checkpoint.theta).id == before
    with pytest.raises(ValueError, match="read-only"):
        checkpoint.theta[0] = 1


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("own_name", [True, False])
@pytest.mark.parametrize("at", [0, 9, 200, -1, -100])
def test_one_flipped_bit_is_noticed(tmp_path: Path, at: int, own_name: bool) -> None:
    path = trained().save(tmp_path)
    data = path.read_bytes()
    damaged = path if own_name else tmp_path / "renamed.safetensors"
    damaged.write_bytes(flip(data, at % len(data)))
    with pytest.raises(CheckpointError, match=r"damaged|not a Trinity checkpoint"):
        Checkpoint.load(damaged)


@pytest.mark.parametrize("keep", [0, 3, 8, 100, 0.5, 0.99])
def test_a_truncated_file_is_refused(tmp_path: Path, keep: float) -> None:
    data = trained().to_bytes()
    path = tmp_path / "cut.safetensors"
    path.write_bytes(data[: int(keep if keep > 1 else keep * len(data))])
    with pytest.raises(CheckpointError, match=r"damaged.*train a new one"):
        Checkpoint.load(path)


def foreign_files() -> dict[str, bytes]:
    array = {"theta": np.zeros(36)}
    deep = b"[" * 100_000
    return {
        "text": b"this is not a checkpoint at all, only text that goes on",
        "zip": b"PK\x03\x04" + bytes(200),
        "zeros": bytes(100),
        "other safetensors": save_tensors({"weight": np.zeros(3)}),
        "other metadata": save_tensors(array, {"format": "pt"}),
        "our key, no json": save_tensors(array, {"trinity": "{"}),
        "our key, a list": save_tensors(array, {"trinity": "[]"}),
        "our key, no meta": save_tensors(array, {"trinity": "{}"}),
        "deep json": struct.pack("<Q", len(deep)) + deep,
        "no theta": _swapped({"weights": np.zeros(36)}),
        "float32": _swapped({"theta": np.zeros(36, dtype=np.float32)}),
        "one more array": _swapped({"theta": np.zeros(36), "extra": np.zeros(1)}),
    }


def _swapped(tensors: dict[str, Any]) -> bytes:
    """Our metadata over other arrays."""
    data = trained().to_bytes()
    (length,) = struct.unpack_from("<Q", data)
    return save_tensors(tensors, json.loads(data[8 : 8 + length])["__metadata__"])


@pytest.mark.parametrize("kind", foreign_files())
def test_foreign_files_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "foreign.safetensors"
    path.write_bytes(foreign_files()[kind])
    with pytest.raises(CheckpointError, match=r"foreign\.safetensors is not a Trinity checkpoint"):
        Checkpoint.load(path)


def test_a_missing_file_and_a_huge_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        Checkpoint.load(tmp_path / "none.safetensors")
    huge = tmp_path / "huge.safetensors"
    with huge.open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(CheckpointError, match="not a Trinity checkpoint"):
        Checkpoint.load(huge)


def rewritten(change: Any, tensors: dict[str, Any] | None = None) -> bytes:
    """A well-formed file of ours with changed metadata and a fitting checksum."""
    from trinity_core.coordinator import checkpoint as module
    from trinity_core.wire import canonical, plain

    meta = plain(META)
    change(meta)
    arrays = tensors or {"theta": WEIGHT.reshape(-1)}
    return save_tensors(arrays, {"trinity": canonical({"meta": meta, "content": module._content(meta, arrays)})})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(format=2), "format 2; this version reads 1"),
        (lambda m: m.update(format=None), "format None"),
        (lambda m: m.update(agents="abc"), "agents"),
        (lambda m: m.update(agents=["a", "b"]), "checkpoint has 6 rows, the pool of 2 agents and 3 roles needs 5"),
        (lambda m: m.update(agents=["a", "a", "b"]), "listed twice"),
        (lambda m: m.update(roles=["worker", "thinker"]), "each of worker, thinker, verifier"),
        (lambda m: m.update(roles=["worker", "worker", "thinker"]), "each of worker, thinker, verifier"),
        (lambda m: m.update(head="quantum"), "Unknown kind of head 'quantum'"),
        (lambda m: m.update(head_params={"rank": 3}), "rank"),
        (lambda m: m.update(normalisation="cubic"), "normalisation 'cubic'"),
        (lambda m: m.update(normalisation="standardise"), "mean and deviation"),
        (lambda m: m.update(position=-3), "position"),
        (lambda m: m.update(hidden_size=0), "hidden size"),
        (lambda m: m.update(hidden_size=5), "36 numbers"),
        (lambda m: m.pop("backbone_id"), "backbone_id"),
        (lambda m: m.update(svf={"kind": "block", "matrices": [{"name": "q", "scales": 0}]}), "without scales"),
    ],
)
def test_metadata_that_does_not_fit_is_refused(change: Any, message: str) -> None:
    assert Checkpoint.from_bytes(rewritten(lambda m: None)).meta == META
    with pytest.raises(CheckpointError, match=message):
        Checkpoint.from_bytes(rewritten(change))


# --- Shapes and values ----------------------------------------------------------------------------------------


def test_a_head_for_another_pool_is_refused_with_both_sizes() -> None:
    meta = replace(META, agents=("a", "b", "c", "d"))
    with pytest.raises(CheckpointError, match="checkpoint has 6 rows, the pool of 4 agents and 3 roles needs 7"):
        Checkpoint(meta, np.zeros(6 * D))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["theta", "mean", "std"])
def test_a_head_that_is_not_finite_is_refused_in_memory_and_from_a_file(bad: float, where: str) -> None:
    arrays = {"theta": np.zeros(36), "mean": np.zeros(D), "std": np.ones(D)}
    arrays[where][3] = bad
    meta = replace(META, normalisation="standardise")
    with pytest.raises(CheckpointError, match=f"1 of the {arrays[where].size} numbers in {where} are not finite"):
        Checkpoint(meta, **arrays)
    with pytest.raises(CheckpointError, match="not a trained coordinator"):
        Checkpoint.from_bytes(rewritten(lambda m: m.update(normalisation="standardise"), arrays))


@pytest.mark.parametrize(
    "arrays",
    [
        {"theta": np.zeros((6, D))},
        {"theta": np.zeros(36), "mean": np.zeros(D)},
        {"theta": np.zeros(36), "mean": np.zeros(D), "std": np.ones(D - 1)},
        {"theta": np.zeros(36), "mean": np.zeros(D), "std": np.zeros(D)},
        {"theta": np.zeros(35), "mean": np.zeros(D), "std": np.ones(D)},
        {"theta": np.zeros(0), "mean": np.zeros(D), "std": np.ones(D)},
    ],
)
def test_arrays_of_other_shapes_and_deviations_of_zero_are_refused(arrays: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError):
        Checkpoint(replace(META, normalisation="standardise"), **arrays)


def test_normalisation_arrays_without_standardise_are_refused() -> None:
    with pytest.raises(CheckpointError, match="do not fit"):
        Checkpoint(META, WEIGHT.reshape(-1), np.zeros(D), np.ones(D))


# --- Logits ---------------------------------------------------------------------------------------------------


def test_logits_by_hand() -> None:
    assert np.allclose(trained().logits(H), [row @ H for row in WEIGHT])
    assert np.allclose(trained(normalisation="l2").logits(H), WEIGHT @ (H / np.sqrt((H**2).sum())))
    c = standardised()
    assert c.mean is not None
    assert c.std is not None
    assert np.allclose(c.logits(H), WEIGHT @ ((H - c.mean) / c.std / np.sqrt(D)))
    assert np.array_equal(with_svf().logits(H), trained().logits(H))
    assert np.array_equal(with_svf().svf_scales, np.arange(6) / 10)


def test_normalising_many_equals_normalising_each() -> None:
    many = np.vstack([H, np.zeros(D), 2 * H])
    for kind, mean, std in (("none", None, None), ("l2", None, None), ("standardise", H, np.ones(D) * 2)):
        got = normalise(kind, many, mean, std)
        assert np.all(np.isfinite(got))
        for x, row in zip(many, got, strict=True):
            assert np.array_equal(normalise(kind, x, mean, std), row)


@pytest.mark.parametrize(
    ("h", "tolerance"),
    [
        (H.astype(np.float32), 1e-6),
        (torch.tensor(H), 1e-12),
        (torch.tensor(H, dtype=torch.bfloat16), 0.1),
        (torch.tensor(H, dtype=torch.float16), 0.01),
        (torch.tensor(H, dtype=torch.float32, requires_grad=True), 1e-6),
        (list(H), 1e-12),
    ],
    ids=["numpy32", "torch64", "bfloat16", "float16", "grad", "list"],
)
def test_a_hidden_state_may_come_from_any_kind_of_array(h: Any, tolerance: float) -> None:
    assert np.abs(trained().logits(h) - WEIGHT @ H).max() <= tolerance


@pytest.mark.parametrize("h", [np.zeros(D + 1), np.zeros((1, D)), np.zeros(0), np.full(D, np.nan), torch.zeros(D, 1)])
def test_a_hidden_state_that_does_not_fit_raises(h: Any) -> None:
    with pytest.raises(BackboneError):
        trained().logits(h)


def test_a_tensor_that_cannot_be_read_raises_instead_of_scoring_zero() -> None:
    with pytest.raises((NotImplementedError, RuntimeError)):
        trained().logits(torch.zeros(D, device="meta"))


def test_an_overflow_raises() -> None:
    with pytest.raises(CheckpointError, match="overflow"):
        Checkpoint(META, np.full(36, 1e308)).logits(np.full(D, 1e3))


# --- Other pools and backbones ----------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", [("a", "b", "c"), ("c", "a", "b"), ("b",), ("c", "a"), ()])
@pytest.mark.parametrize("make", [trained, standardised, with_svf])
def test_rows_follow_names(make: Any, pool: tuple[str, ...]) -> None:
    checkpoint = make()
    z = checkpoint.logits(H)
    mapped = checkpoint.for_pool(pool)
    assert mapped.meta.agents == pool
    assert np.array_equal(mapped.logits(H), np.concatenate([z[[AGENTS.index(n) for n in pool]], z[3:]]))
    assert np.array_equal(mapped.svf_scales, checkpoint.svf_scales)


def test_roles_are_put_into_the_common_order() -> None:
    roles = (Role.VERIFIER, Role.WORKER, Role.THINKER)
    z = WEIGHT @ H
    mapped = trained(roles=roles).for_pool(AGENTS)
    assert mapped.meta.roles == (Role.WORKER, Role.THINKER, Role.VERIFIER)
    assert np.allclose(mapped.logits(H), z[[0, 1, 2, 4, 5, 3]])


@pytest.mark.parametrize(
    ("pool", "names", "rows"),
    [
        (("a", "b", "c", "d"), "d", 7),
        (("x", "y"), "x, y", 5),
        (("A",), "A", 4),
        (("a", "b", "e", "c", "f"), "e, f", 8),
    ],
)
def test_agents_without_a_trained_row_are_named(pool: tuple[str, ...], names: str, rows: int) -> None:
    with pytest.raises(CheckpointError, match=f"no trained row for {names}") as caught:
        trained().for_pool(pool)
    assert f"The checkpoint has 6 rows, the pool of {len(pool)} agents and 3 roles needs {rows}" in str(caught.value)


def test_a_pool_that_names_an_agent_twice_is_refused() -> None:
    with pytest.raises(CheckpointError, match="twice"):
        trained().for_pool(("a", "a"))


@pytest.mark.parametrize("make", [trained, standardised, with_svf])
def test_new_members_get_the_mean_row_and_nobody_else_notices(tmp_path: Path, make: Any) -> None:
    before = make()
    after = Checkpoint.load(before.extended(("x", "b", "y")).save(tmp_path))
    assert after.meta.agents == ("a", "b", "c", "x", "y")
    assert after.meta.training["untrained"] == ["x", "y"]
    assert after.meta.training["extended_from"] == before.id
    assert after.meta.training["curve"] == [0.1, 0.2]
    old, new = before.logits(H), after.logits(H)
    assert new[3] == new[4] == pytest.approx(old[:3].mean(), rel=1e-12)
    kept = [0, 1, 2, 5, 6, 7]
    assert np.array_equal(new[kept], old)
    assert np.array_equal(after.svf_scales, before.svf_scales)
    assert np.array_equal(after.for_pool(("y", "a")).logits(H), new[[4, 0, 5, 6, 7]])


def test_an_untrained_row_does_not_enter_the_mean_of_the_next() -> None:
    once = trained().extended(("x",))
    skewed = Checkpoint(
        once.meta, np.concatenate([once.theta[: 3 * D], once.theta[3 * D : 4 * D] * 9, once.theta[4 * D :]])
    )
    twice = skewed.extended(("x", "y", "y"))
    assert twice.meta.agents == ("a", "b", "c", "x", "y")
    assert twice.meta.training["untrained"] == ["x", "y"]
    assert twice.logits(H)[4] == pytest.approx(trained().logits(H)[:3].mean(), rel=1e-12)
    assert twice.extended(("a", "x")) is twice


def test_without_a_trained_row_there_is_nothing_to_extend() -> None:
    with pytest.raises(CheckpointError, match="no trained row"):
        trained(training={"untrained": list(AGENTS)}).extended(("x",))


def test_only_the_backbone_it_was_trained_on_will_do() -> None:
    def backbone(**changes: Any) -> Any:
        return SimpleNamespace(**({"id": "m", "revision": "r1", "hidden_size": D} | changes))

    trained().check_backbone(backbone())
    for changes, message in (
        ({"id": "n"}, "trained on the backbone m, not on n"),
        ({"revision": "r2"}, "revision r1 of m; the loaded one is r2"),
        ({"hidden_size": 9}, "reads 6 numbers, the backbone gives 9"),
    ):
        with pytest.raises(CheckpointError, match=message):
            trained().check_backbone(backbone(**changes))
    with pytest.raises(CheckpointError, match="transcript builder 'other'"):
        trained(transcript="other").check_backbone(backbone())


# --- Roles ------------------------------------------------------------------------------------------------------


class ForeignRole(str, Enum):  # noqa: UP042 (the older way is the point)
    """What another code base might hand in: a string enum whose str() is not its value."""

    WORKER = "WORKER"
    THINKER = "Role.THINKER"


@pytest.mark.parametrize(
    ("value", "role"),
    [
        ("worker", Role.WORKER),
        ("WORKER", Role.WORKER),
        (" Worker ", Role.WORKER),
        ("Role.WORKER", Role.WORKER),
        (Role.WORKER, Role.WORKER),
        (str(Role.WORKER), Role.WORKER),
        (ForeignRole.WORKER, Role.WORKER),
        (str(ForeignRole.WORKER), Role.WORKER),
        (ForeignRole.THINKER, Role.THINKER),
    ],
)
def test_a_role_is_one_value_however_it_is_written(value: Any, role: Role) -> None:
    assert Role(value) is role
    roles = [value, *(r.value.upper() for r in Role if r is not role)]
    assert Checkpoint.from_bytes(rewritten(lambda m: m.update(roles=roles))).meta.roles[0] is role


def test_the_file_is_plain_safetensors(tmp_path: Path) -> None:
    path = standardised().save(tmp_path)
    tensors = load_tensors(path.read_bytes())
    assert {name: (array.dtype, array.shape) for name, array in tensors.items()} == {
        "theta": (np.dtype("float64"), (36,)),
        "mean": (np.dtype("float64"), (D,)),
        "std": (np.dtype("float64"), (D,)),
    }
    save_file(tensors, tmp_path / "copy.safetensors")  # without our metadata it is nobody's
    with pytest.raises(CheckpointError, match="not a Trinity checkpoint"):
        Checkpoint.load(tmp_path / "copy.safetensors")


def test_a_router_prompt_is_kept_and_its_absence_leaves_older_files_as_they_were(tmp_path: Path) -> None:
    shipped = Path(__file__).parent.parent / "assets" / "head-embedded.safetensors"
    assert Checkpoint.load(shipped).to_bytes() == shipped.read_bytes()
    assert b"router_prompt" not in trained().to_bytes()
    with_prompt = trained(transcript="released", suffix="", router_prompt="Choose.\n\u00e9")
    after = Checkpoint.load(with_prompt.save(tmp_path))
    assert after.meta.router_prompt == "Choose.\n\u00e9"
    assert after.for_pool(("b",)).meta.router_prompt == "Choose.\n\u00e9"
    assert after.id != trained(transcript="released", suffix="", router_prompt="Other").id
