"""SVF: one matrix against its definition, layouts, views side by side, the fast path against whole passes."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.bench_coordinator import embedded_backbone
from tests.test_backbone import CACHED, SMALL, SUFFIX_IDS, UNCACHED, ids, slow, small
from tests.test_transcript import byte_tokenizer
from trinity_core.coordinator.backbone import Backbone
from trinity_core.coordinator.checkpoint import Checkpoint, Meta, SvfLayout, SvfMatrix
from trinity_core.coordinator.policy import LearnedPolicy
from trinity_core.coordinator.svf import Tuner, block_layout, decompose, gains, patched, released_layout, scaled
from trinity_core.coordinator.transcript import builder
from trinity_core.errors import Cancelled, CheckpointError
from trinity_core.types import LoopState, Message, Mode, Role, TranscriptTurn

TUNABLE: dict[str, Any] = {
    "llama": lambda: transformers.LlamaConfig(**SMALL),
    "llama, biases": lambda: transformers.LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True),
    "llama, eager attention": lambda: transformers.LlamaConfig(**SMALL, attn_implementation="eager"),
    "qwen3": lambda: transformers.Qwen3Config(**SMALL, head_dim=8),
    "qwen3, wide heads": lambda: transformers.Qwen3Config(**SMALL, head_dim=16),
    "qwen2, biases": lambda: transformers.Qwen2Config(**SMALL),
}


def reference(weight: Any, delta: Any) -> Any:
    """The formula as it is written, by NumPy's own decomposition."""
    u, s, vt = np.linalg.svd(np.asarray(weight, dtype=np.float64), full_matrices=False)
    t = s * (1 + delta)
    return u @ np.diag(t) @ vt * s.sum() / t.sum()


def randomise_biases(backbone: Backbone) -> Backbone:
    """Biases start as zeros, which would hide that one is left out."""
    torch.manual_seed(5)
    for name, parameter in backbone.model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.2)
    return backbone


def patched_by_hand(backbone: Backbone, scales: Any) -> dict[str, torch.Tensor]:
    """The state dict with the seven matrices of the second-to-last block replaced, by the formula."""
    state = dict(backbone.model.state_dict())
    start = 0
    for matrix in block_layout(backbone).matrices:
        delta = scales[start : start + matrix.scales]
        state[matrix.name] = torch.tensor(reference(state[matrix.name], delta), dtype=torch.float32)
        start += matrix.scales
    return state


def whole_passes(backbone: Backbone, scales: Any, tokens: list[int]) -> Any:
    """All final states (T, d) of the model with these block scales: torch's own way to call with other weights."""
    with torch.inference_mode():
        out = torch.func.functional_call(
            backbone.model,
            patched_by_hand(backbone, scales),
            kwargs={"input_ids": torch.tensor([tokens]), "use_cache": False},
        )
    return out.last_hidden_state[0].numpy()


@pytest.fixture(params=TUNABLE)
def backbone(request: pytest.FixtureRequest) -> Iterator[Backbone]:
    made = randomise_biases(small(TUNABLE[request.param]()))
    yield made
    made.close()


@pytest.fixture
def llama() -> Iterator[Backbone]:
    made = small(CACHED["llama"]())
    yield made
    made.close()


# --- One matrix -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5, 5), (9, 4), (4, 9), (1, 6), (6, 1), (20_000, 3)])
def test_the_formula(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    w, delta = rng.normal(size=shape), rng.normal(size=min(shape)) / 3
    got = scaled(torch.tensor(w, dtype=torch.float32), torch.tensor(delta))
    assert got.dtype == torch.float32
    assert np.abs(got.numpy() - reference(w, delta)).max() < 1e-5


def test_singular_values_keep_their_sum_and_their_order() -> None:
    w = torch.tensor(np.random.default_rng(2).normal(size=(6, 4)))
    basis = decompose(w)
    assert torch.allclose(basis.sigma, torch.linalg.svdvals(w), atol=1e-10)
    delta = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    got = torch.linalg.svdvals(scaled(w, delta))
    assert torch.isclose(got.sum(), basis.sigma.sum())
    assert got[0] / got[1] == pytest.approx(float(2 * basis.sigma[0] / basis.sigma[1]), rel=1e-9)


@pytest.mark.parametrize("shape", [(64, 64), (96, 32), (32, 96)])
def test_zero_scales_give_the_matrix_and_equal_scales_cancel(shape: tuple[int, int]) -> None:
    w = torch.randn(*shape, generator=torch.Generator().manual_seed(3))
    for value in (0.0, 0.5, -0.3):
        assert (scaled(w, torch.full((min(shape),), value)) - w).abs().max() < 1e-6


def test_a_matrix_of_low_rank_is_no_trouble() -> None:
    w = torch.outer(torch.arange(1.0, 7.0), torch.arange(1.0, 5.0))
    delta = torch.tensor([0.2, 5.0, -3.0, 1.0])
    assert torch.allclose(scaled(w, delta), w, atol=1e-4)  # one singular value keeps the sum to itself


@pytest.mark.parametrize("bad", [[-3.0, -3.0], [np.nan, 0.0], [np.inf, 0.0], [-np.inf, 0.0], [-1.0, -1.0]])
def test_degenerate_scales_are_refused(bad: list[float]) -> None:
    sigma = torch.tensor([2.0, 1.0], dtype=torch.float64)
    with pytest.raises(CheckpointError, match="refused"):
        gains(sigma, torch.tensor(bad, dtype=torch.float64))
    with pytest.raises(CheckpointError, match="refused"):
        gains(sigma, torch.tensor([[0.1, 0.1], bad], dtype=torch.float64))
    assert gains(sigma, torch.tensor([-1.0, 0.0], dtype=torch.float64)).tolist() == [0.0, 3.0]


# --- Layouts ----------------------------------------------------------------------------------------------------


def test_the_block_layout_of_the_embedded_model() -> None:
    layout = block_layout(embedded_backbone())
    assert (layout.kind, layout.tie) == ("block", "apart")
    assert [(m.name, m.scales) for m in layout.matrices] == [
        ("layers.28.self_attn.q_proj.weight", 576),
        ("layers.28.self_attn.k_proj.weight", 192),
        ("layers.28.self_attn.v_proj.weight", 192),
        ("layers.28.self_attn.o_proj.weight", 576),
        ("layers.28.mlp.gate_proj.weight", 576),
        ("layers.28.mlp.up_proj.weight", 576),
        ("layers.28.mlp.down_proj.weight", 576),
    ]
    assert layout.size == 3264


def true_shape(tied: bool) -> Any:
    """Qwen3-0.6B without its numbers."""
    config = transformers.Qwen3Config(
        vocab_size=151_936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=tied,
    )
    with torch.device("meta"):
        return SimpleNamespace(model=transformers.Qwen3Model(config), id="Qwen3-0.6B")


@pytest.mark.parametrize("tied", [True, False])
def test_the_layouts_of_qwen3(tied: bool) -> None:
    model = true_shape(tied)
    block = block_layout(model)
    assert block.size == 7168
    assert {m.name.split(".")[1] for m in block.matrices} == {"26"}
    released = released_layout(model)
    assert released.size == 9 * 1024
    assert [m.scales for m in released.matrices] == [1024] * 9
    assert released.matrices[1:-1] == block.matrices
    assert (released.matrices[0].name, released.matrices[-1].name) == ("embed_tokens.weight", "lm_head.weight")
    assert released.tie == ("sequential" if tied else "apart")
    with torch.device("meta"):
        whole = transformers.Qwen3ForCausalLM(model.model.config)
    order = [name.removeprefix("model.") for name in whole.state_dict()]
    assert [order.index(m.name) for m in released.matrices] == sorted(order.index(m.name) for m in released.matrices)


@pytest.mark.parametrize("kind", ["gpt2", "mamba, recurrent", "qwen3-next, gated delta and attention"])
def test_models_without_the_seven_matrices_have_no_layout(kind: str) -> None:
    backbone = small((CACHED | UNCACHED)[kind]())
    with pytest.raises(CheckpointError, match="Train the head only"):
        block_layout(backbone)
    backbone.close()


def test_a_model_of_one_block_has_no_layout() -> None:
    backbone = small(transformers.LlamaConfig(**(SMALL | {"num_hidden_layers": 1})))
    with pytest.raises(CheckpointError, match="second-to-last block"):
        block_layout(backbone)
    backbone.close()


# --- Views ------------------------------------------------------------------------------------------------------


def some_scales(backbone: Backbone, seed: int = 0, size: float = 0.3) -> Any:
    return np.random.default_rng(seed).normal(size=block_layout(backbone).size) * size


def test_a_view_is_the_model_with_scaled_matrices(backbone: Backbone) -> None:
    before = {name: tensor.clone() for name, tensor in backbone.model.state_dict().items()}
    layout, scales, text = block_layout(backbone), some_scales(backbone), ids(300)
    view = patched(backbone, layout, scales)
    for length in (20, 290, 300):  # over a chunk's border, on the view's own cache
        got = view.encode(text[:length], SUFFIX_IDS, run_id="r")
        want = whole_passes(backbone, scales, text[:length] + SUFFIX_IDS)[-2]
        assert np.abs(got.h - want).max() < 1e-4
        plain = backbone.encode(text[:length], SUFFIX_IDS, run_id="r")
        assert np.abs(plain.h - slow(backbone, text[:length], SUFFIX_IDS)[-2]).max() < 1e-4
        assert np.abs(plain.h - got.h).max() > 0.01
        assert plain.cached == got.cached
    assert got.cached == 290
    assert all(torch.equal(tensor, before[name]) for name, tensor in backbone.model.state_dict().items())


def test_a_view_shares_all_that_it_does_not_scale(llama: Backbone) -> None:
    layout = block_layout(llama)
    view = patched(llama, layout, some_scales(llama))
    own, theirs = dict(llama.model.named_parameters()), dict(view.model.named_parameters())
    changed = {m.name for m in layout.matrices}
    assert {n for n in own if own[n].data_ptr() != theirs[n].data_ptr()} == changed
    assert {n for n in own if not torch.equal(own[n], theirs[n])} == changed
    assert view.revision != llama.revision
    assert view.lock is llama.lock
    assert view.tokenizer is llama.tokenizer
    hooks = [h for layer in view.model.layers for h in layer._forward_pre_hooks.values()]
    assert hooks == [view._look_at_stop] * len(view.model.layers)


def test_scales_of_zero_need_no_view_and_equal_scales_share_one(llama: Backbone) -> None:
    layout, scales = block_layout(llama), some_scales(llama)
    assert patched(llama, layout, np.zeros(layout.size)) is llama
    first = patched(llama, layout, scales)
    assert patched(llama, layout, scales.copy()) is first
    assert patched(llama, layout, scales + 1e-9) is not first
    number = first._view
    del first
    gc.collect()
    assert patched(llama, layout, scales)._view != number  # nobody held it, so its memory was given back


def test_caches_of_views_have_one_budget_and_their_own_names(llama: Backbone) -> None:
    layout = block_layout(llama)
    one, two = (patched(llama, layout, some_scales(llama, seed)) for seed in (1, 2))
    text = ids(50)
    for each in (llama, one, two):
        assert each.encode(text, SUFFIX_IDS, run_id="r").cached == 0
    size = llama.cached_bytes // 3
    assert one.cached_bytes == two.cached_bytes == llama.cached_bytes == 3 * size
    one.close()
    assert llama.cached_bytes == 2 * size
    assert two.encode(text, SUFFIX_IDS, run_id="r").cached > 0
    two._drop("r")
    assert llama.encode(text, SUFFIX_IDS, run_id="r").cached > 0
    assert one.encode(text, SUFFIX_IDS, run_id="r").cached == 0
    llama.close()
    assert two.cached_bytes == 0
    with pytest.raises(Cancelled):
        two.encode(text, SUFFIX_IDS)


def test_stopping_a_view_leaves_the_others_alone(llama: Backbone) -> None:
    view = patched(llama, block_layout(llama), some_scales(llama))
    with pytest.raises(Cancelled):
        view.below(ids(20), 1, stop=lambda: view._layer_stop is not None)
    assert llama.encode(ids(20), SUFFIX_IDS).tokens == 20 + len(SUFFIX_IDS)


def test_a_layout_of_another_model_is_refused(llama: Backbone) -> None:
    good = block_layout(llama)
    short = SvfLayout("block", (SvfMatrix("layers.1.self_attn.q_proj.weight", 31),))
    for layout in (
        short,
        SvfLayout("block", (SvfMatrix("layers.9.self_attn.q_proj.weight", 32),)),
        SvfLayout("block", (SvfMatrix("norm.weight", 32),)),
        SvfLayout("block", (SvfMatrix("lm_head.weight", 32),)),
    ):
        with pytest.raises(CheckpointError, match="has no such matrix"):
            patched(llama, layout, np.ones(layout.size))
    with pytest.raises(CheckpointError, match="scales"):
        patched(llama, good, np.ones(good.size - 1))
    with pytest.raises(CheckpointError, match="refused"):
        patched(llama, good, np.full(good.size, -1.5))


# --- The released layout ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_the_released_layout_patches_in_sequence(tied: bool) -> None:
    backbone = small(transformers.Qwen3Config(**SMALL, head_dim=8, tie_word_embeddings=tied))
    layout = released_layout(backbone)
    scales = np.random.default_rng(4).normal(size=layout.size) * 0.3
    state = patched_by_hand(backbone, scales[32:-32])
    table = reference(state["embed_tokens.weight"], scales[:32])
    if tied:  # the head is the embedding, as its own patch has left it
        table = reference(table, scales[-32:])
    state["embed_tokens.weight"] = torch.tensor(table, dtype=torch.float32)
    text = ids(40)
    with torch.inference_mode():
        out = torch.func.functional_call(backbone.model, state, kwargs={"input_ids": torch.tensor([text])})
    got = patched(backbone, layout, scales).encode(text, []).h
    assert np.abs(got - out.last_hidden_state[0, -2].numpy()).max() < 1e-4
    without = patched(backbone, layout, np.concatenate([scales[:-32], np.zeros(32)])).encode(text, []).h
    assert bool(np.abs(got - without).max() > 1e-3) is tied
    with pytest.raises(CheckpointError, match="are apart; those" if tied else "are tied; those"):
        patched(backbone, replace(layout, tie="apart" if tied else "sequential"), scales)
    backbone.close()


# --- The fast path ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [-2, -1, "mean"])
@pytest.mark.parametrize("rebuild", [True, False, None])
def test_the_fast_path_equals_whole_passes(backbone: Backbone, position: Any, rebuild: bool | None) -> None:
    tuner = Tuner(backbone)
    deltas = np.stack([some_scales(backbone, seed) for seed in range(3)] + [np.zeros(tuner.layout.size)])
    texts = [ids(n, seed=n) for n in (2, 3, 40, 300)]
    states = [tuner.states(text) for text in texts]
    assert [s.shape for s in states] == [(len(text), backbone.hidden_size) for text in texts]
    got = tuner.hidden(deltas, states, position, rebuild=rebuild)
    assert got.dtype == np.float32
    assert got.shape == (4, 4, backbone.hidden_size)
    for i, delta in enumerate(deltas):
        for j, text in enumerate(texts):
            final = whole_passes(backbone, delta, text)
            want = final.mean(axis=0) if position == "mean" else final[position]
            assert np.abs(got[i, j] - want).max() < 1e-4
    assert np.abs(got[0] - got[1]).max() > 0.01


def test_the_fast_path_equals_whole_passes_on_the_embedded_model() -> None:
    backbone = embedded_backbone()
    tuner = Tuner(backbone, block_layout(backbone))
    texts = [[int(i) for i in np.random.default_rng(n).integers(20, 49_000, size=n)] for n in (30, 130)]
    states = [tuner.states(text) for text in texts]
    deltas = np.stack([some_scales(backbone, seed, 0.2) for seed in range(2)])
    for rebuild in (True, False):
        got = tuner.hidden(deltas, states, rebuild=rebuild)
        for i, delta in enumerate(deltas):
            view = patched(backbone, tuner.layout, delta)
            for j, text in enumerate(texts):
                assert np.abs(got[i, j] - slow(view, text, [])[-2]).max() < 1e-4
                assert np.abs(view.encode(text, []).h - got[i, j]).max() < 1e-4
    plain = tuner.hidden(np.zeros((1, tuner.layout.size)), states)
    for j, text in enumerate(texts):
        assert np.abs(plain[0, j] - backbone.encode(text, []).h).max() < 1e-4


def test_a_population_is_faster_than_whole_passes() -> None:
    backbone = embedded_backbone()
    tuner = Tuner(backbone)
    text = [int(i) for i in np.random.default_rng(0).integers(20, 49_000, size=256)]
    states = [tuner.states(text)]
    deltas = np.stack([some_scales(backbone, seed, 0.1) for seed in range(6)])
    tuner.hidden(deltas[:1], states)
    start = time.perf_counter()
    tuner.hidden(deltas, states)
    fast = time.perf_counter() - start
    start = time.perf_counter()
    backbone.encode(text, [])
    whole = time.perf_counter() - start
    assert fast / len(deltas) < whole / 3


def test_the_cheaper_way_is_taken(llama: Backbone) -> None:
    tuner = Tuner(llama)
    assert not tuner._rebuilds(1)
    assert tuner._rebuilds(1_000_000)


def test_two_tuners_and_views_at_once_do_not_mix(llama: Backbone) -> None:
    tuner, text = Tuner(llama), ids(80)
    states = [tuner.states(text)]
    deltas = np.stack([some_scales(llama, seed) for seed in range(4)])
    want = [whole_passes(llama, delta, text)[-2] for delta in deltas]
    wrong: list[str] = []

    def work(n: int) -> None:
        for k in range(8):
            i = (n + k) % 4
            got = tuner.hidden(deltas[i : i + 1], states, rebuild=bool(k % 2))[0, 0]
            view = patched(llama, tuner.layout, deltas[i]).encode(text, [], run_id=f"{n}").h
            if np.abs(got - want[i]).max() > 1e-4 or np.abs(view - want[i]).max() > 1e-4:
                wrong.append(f"{n} {k}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_in_few_bits_the_fast_path_agrees_with_the_view() -> None:
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(TUNABLE["qwen3"](), dtype=torch.bfloat16)
    backbone = Backbone(model, byte_tokenizer(), id="small", revision="1")
    tuner, text = Tuner(backbone), ids(60)
    deltas = np.stack([some_scales(backbone, seed) for seed in range(2)])
    got = tuner.hidden(deltas, [tuner.states(text)])
    for i, delta in enumerate(deltas):
        want = patched(backbone, tuner.layout, delta).encode(text, []).h
        assert np.linalg.norm(got[i, 0] - want) < 0.02 * np.linalg.norm(want)
    backbone.close()


def test_sliding_windows_have_no_fast_path_but_a_view() -> None:
    for kind in ("mistral, sliding window", "gemma3, some layers sliding"):
        backbone = small(UNCACHED[kind]())
        with pytest.raises(CheckpointError, match=r"cannot be trained on small.*Train the head only"):
            Tuner(backbone)
        scales, text = some_scales(backbone), ids(60)
        got = patched(backbone, block_layout(backbone), scales).encode(text, SUFFIX_IDS, run_id="r").h
        assert np.abs(got - whole_passes(backbone, scales, text + SUFFIX_IDS)[-2]).max() < 1e-4
        backbone.close()


def test_what_does_not_fit_the_tuner_is_refused(llama: Backbone) -> None:
    tuner = Tuner(llama)
    states, deltas = [tuner.states(ids(10))], some_scales(llama)[None]
    with pytest.raises(CheckpointError, match="cannot be trained"):
        Tuner(llama, released_layout(llama))
    with pytest.raises(ValueError, match="scales of shape"):
        tuner.hidden(deltas[:, 1:], states)
    with pytest.raises(ValueError, match="scales of shape"):
        tuner.hidden(deltas[0], states)
    with pytest.raises(ValueError, match="states of shape"):
        tuner.hidden(deltas, [states[0][:1]])
    with pytest.raises(ValueError, match="states of shape"):
        tuner.hidden(deltas, [states[0][:, 1:]])
    with pytest.raises(ValueError, match="tokens"):
        tuner.states([])
    for bad in (np.full_like(deltas, -2.0), np.full_like(deltas, np.nan)):
        with pytest.raises(CheckpointError, match="refused"):
            tuner.hidden(np.vstack([deltas, bad]), states)
    with pytest.raises(Cancelled):
        tuner.hidden(deltas, states, stop=lambda: True)
    with pytest.raises(Cancelled):
        tuner.states(ids(10), stop=lambda: True)
    assert tuner.hidden(deltas, []).shape == (1, 0, llama.hidden_size)
    assert np.abs(tuner.hidden(deltas, states)[0, 0] - whole_passes(llama, deltas[0], ids(10))[-2]).max() < 1e-4


# --- The learned policy -------------------------------------------------------------------------------------------


def checkpoint_for(backbone: Backbone, scales: Any) -> Checkpoint:
    meta = Meta(backbone.id, backbone.revision, backbone.hidden_size, ("a", "b"), svf=block_layout(backbone))
    weight = np.random.default_rng(11).normal(size=5 * backbone.hidden_size)
    return Checkpoint(meta, np.concatenate([scales, weight]))


async def test_two_policies_with_other_scales_run_side_by_side(llama: Backbone) -> None:
    turns = tuple(TranscriptTurn(Role.WORKER, "a", f"{n} " * 40) for n in range(4))
    checkpoints = [checkpoint_for(llama, some_scales(llama, seed) * bool(seed)) for seed in range(3)]
    sessions = [
        LearnedPolicy(llama, c).session("same run", ("a", "b"), mode=Mode.ARGMAX, seed=0) for c in checkpoints
    ]
    for n in range(len(turns) + 1):
        state = LoopState((Message("user", "What is 6 times 7?"),), turns[:n])
        choices = await asyncio.gather(*(session.decide(state) for session in sessions))
        text = builder("lines-v1").tokenise(llama.tokenizer, state.conversation, state.turns, 2048)
        for checkpoint, choice in zip(checkpoints, choices, strict=True):
            h = whole_passes(llama, checkpoint.svf_scales, text.tokens + text.suffix)[-2]
            z = checkpoint.logits(h)
            made = choice.decision
            assert np.allclose([*made.agent_logits.values(), *made.role_logits.values()], z, atol=1e-3)
            assert made.checkpoint_id == checkpoint.id
            assert (made.cached_tokens > 0) is (n > 0)
    for session in sessions:
        session.close()
    await llama.call(lambda: None, threading.Event())
    assert llama.cached_bytes == 0


def test_a_policy_with_scales_that_do_not_fit_is_refused(llama: Backbone) -> None:
    with pytest.raises(CheckpointError, match="SVF scales are refused"):
        LearnedPolicy(llama, checkpoint_for(llama, np.full(block_layout(llama).size, -1.5)))
