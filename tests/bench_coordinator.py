"""How fast the coordinator decides: a transcript of 2,000 tokens grown by 100, with the run's cache and without."""

from __future__ import annotations

import time
from functools import cache

import numpy as np
import torch

from tests.conftest import MODEL_CACHE
from trinity_core.config import Settings
from trinity_core.coordinator.backbone import Backbone


@cache
def embedded_backbone() -> Backbone:
    """The embedded model, loaded once per process; its weights are kept in the shared cache."""
    return Backbone.load(Settings(home=MODEL_CACHE.parent, db_url="", device="cpu"))


def bench() -> list[str]:
    """Lines to print: seconds of both, their ratio, and the largest difference of h. Takes half a minute."""
    backbone = embedded_backbone()
    rng = np.random.default_rng(0)
    text = [int(i) for i in rng.integers(20, 49_000, size=2_000)]
    suffix = backbone.tokenizer.encode("\nNext agent and role:")
    backbone.encode(text[:64], suffix)  # warm up
    allowed, backbone.max_tokens = backbone.max_tokens, 2_200
    try:
        backbone.encode(text, suffix, run_id="bench")
        rows: list[tuple[float, float, float]] = []
        for _ in range(2):
            grown = text + [int(i) for i in rng.integers(20, 49_000, size=100)]
            start = time.perf_counter()
            cached = backbone.encode(grown, suffix, run_id="bench")
            middle = time.perf_counter()
            with torch.inference_mode():  # the baseline: transformers' own forward, everything at once, no cache
                states = backbone.model(input_ids=torch.tensor([grown + suffix]), use_cache=False).last_hidden_state
            full = states[0, -2].float().numpy()
            rows.append((middle - start, time.perf_counter() - middle, float(np.abs(cached.h - full).max())))
    finally:
        backbone.max_tokens = allowed
        backbone.drop("bench")
    cached_s, full_s = (min(row[i] for row in rows) for i in (0, 1))
    return [
        f"coordinator: {len(text):,} tokens grown by 100 on {backbone.device} ({backbone.id})",
        f"  cached decision {cached_s:.2f} s, full pass {full_s:.2f} s, ratio {full_s / cached_s:.1f} (best of 2)",
        f"  max |dh| {max(row[2] for row in rows):.1e} (bound 1e-4 in float32)",
    ]
