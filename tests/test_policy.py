"""Policies: masks, draws, suggestions, and the learned coordinator from transcript to decision."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.bench_coordinator import embedded_backbone
from tests.test_backbone import CACHED, UNCACHED, slow, small
from trinity_core import wire
from trinity_core.coordinator import policy
from trinity_core.coordinator.backbone import Backbone
from trinity_core.coordinator.checkpoint import Checkpoint, Meta, SvfLayout, SvfMatrix
from trinity_core.coordinator.policy import (
    Choice,
    FixedPolicy,
    LearnedPolicy,
    Policy,
    RandomPolicy,
    Scored,
    decision,
    draw_index,
    follow,
    generator,
    half_bytes,
    masked_softmax,
    pick,
)
from trinity_core.coordinator.transcript import builder
from trinity_core.errors import Cancelled, CheckpointError, InputError, NoAgentError
from trinity_core.types import Decision, LoopState, Message, Mode, Role, Suggestion, TranscriptTurn

AGENTS = ("a", "b", "c")
STATE = LoopState((Message("user", "What is 6 times 7?"),))
WORKED = TranscriptTurn(Role.WORKER, "a", "42")
BOTH = [Mode.ARGMAX, Mode.SAMPLE]


def array(*values: float) -> policy.Array:
    return np.array(values, dtype=np.float64)


# --- Pure functions -----------------------------------------------------------------------------------------


def test_softmax_by_hand() -> None:
    open_ = np.array([True, True, False, True])
    probs = masked_softmax(array(1.0, 2.0, 50.0, 1.0), open_)
    total = 2 * np.e + np.e**2
    assert np.allclose(probs, [np.e / total, np.e**2 / total, 0.0, np.e / total])
    assert probs[2] == 0.0
    assert probs.dtype == np.float64


@pytest.mark.parametrize("logits", [(1000.0, -1000.0), (-1e308, -1e308), (1e308, 1e308), (0.0, 700.0)])
def test_softmax_does_not_overflow(logits: tuple[float, float]) -> None:
    probs = masked_softmax(array(*logits), np.array([True, True]))
    assert np.isclose(probs.sum(), 1.0)
    assert np.all(np.isfinite(probs))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_softmax_wants_finite_logits_and_something_open(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        masked_softmax(array(0.0, bad), np.array([True, True]))
    with pytest.raises(ValueError, match="nothing is open"):
        masked_softmax(array(0.0, 0.0), np.array([False, False]))


@pytest.mark.parametrize(
    ("probs", "u", "index"),
    [
        ((0.25, 0.5, 0.25), 0.0, 0),
        ((0.25, 0.5, 0.25), 0.2499, 0),
        ((0.25, 0.5, 0.25), 0.25, 1),
        ((0.25, 0.5, 0.25), 0.75, 2),
        ((0.25, 0.5, 0.25), 1 - 2**-53, 2),
        ((0.0, 1.0, 0.0), 0.0, 1),
        ((0.0, 1.0, 0.0), 1 - 2**-53, 1),
        ((0.5, 0.0, 0.5), 0.5, 2),
        ((0.1,) * 9 + (0.1 - 1e-9, 0.0), 1 - 2**-53, 9),  # rounding: the sum falls short of u
    ],
)
def test_draws_by_inverse_cdf(probs: tuple[float, ...], u: float, index: int) -> None:
    assert draw_index(array(*probs), u) == index


def test_a_masked_agent_is_never_drawn_however_large_its_logit() -> None:
    rng = np.random.default_rng(0)
    names = [pick(AGENTS, array(0.1, 9.0, 0.2), {"b": "disabled"}, float(rng.random())).name for _ in range(1000)]
    assert Counter(names)["b"] == 0
    assert min(Counter(names)["a"], Counter(names)["c"]) > 400
    chosen = pick(AGENTS, array(0.1, 9.0, 0.2), {"b": "disabled"}, None)
    assert chosen.name == "c"
    assert chosen.probs["b"] == 0.0
    assert chosen.margin is not None
    assert np.isclose(chosen.margin, 0.1)  # to the next open one


def test_draws_follow_the_probabilities() -> None:
    rng = np.random.default_rng(1)
    counts = Counter(pick(AGENTS, array(0, 1, 2), {}, float(rng.random())).name for _ in range(4000))
    expected = masked_softmax(array(0, 1, 2), np.ones(3, dtype=bool))
    for name, p in zip(AGENTS, expected, strict=True):
        assert abs(counts[name] / 4000 - p) < 4 * np.sqrt(p * (1 - p) / 4000)  # four standard errors


def test_margins() -> None:
    assert pick(AGENTS, array(3, 1, 2), {}, None).margin == 1.0
    assert pick(AGENTS, array(3, 1, 2), {}, 0.999).margin == -1.0  # c was drawn
    assert pick(AGENTS, array(3, 1, 2), {"b": "x", "c": "x"}, None).margin is None
    assert pick(AGENTS, array(1, 1, 1), {}, None) == policy.Pick("a", dict.fromkeys(AGENTS, 1 / 3), 0.0)


@pytest.mark.parametrize(
    ("suggested", "expected", "noted"),
    [
        (None, ("a", Role.WORKER), 0),
        (Suggestion(), ("a", Role.WORKER), 0),
        (Suggestion(instruction="be quick"), ("a", Role.WORKER), 0),
        (Suggestion(role=Role.THINKER, agent="b"), ("b", Role.THINKER), 0),
        (Suggestion(role=Role.THINKER), ("a", Role.THINKER), 0),
        (Suggestion(agent="B "), ("b", Role.WORKER), 0),
        (Suggestion(agent="any", role=Role.THINKER), ("a", Role.THINKER), 0),
        (Suggestion(agent="nobody", role=Role.THINKER), ("a", Role.THINKER), 1),
        (Suggestion(agent="c"), ("a", Role.WORKER), 1),
        (Suggestion(role=Role.VERIFIER, agent="b"), ("b", Role.WORKER), 1),
        (Suggestion(role=Role.VERIFIER, agent="c"), ("a", Role.WORKER), 2),
    ],
)
def test_a_suggestion_counts_where_it_is_known_and_open(
    suggested: Suggestion | None, expected: tuple[str, Role], noted: int
) -> None:
    agent, role, notes = follow(
        ("a", Role.WORKER), suggested, AGENTS, {"c": "it failed"}, {"verifier": "no answer yet"}
    )
    assert (agent, role) == expected
    assert len(notes) == noted


def test_a_suggested_name_is_matched_exactly_before_its_case_is_ignored() -> None:
    assert follow(("x", Role.WORKER), Suggestion(agent="M"), ("m", "M", "x"), {}, {})[0] == "M"


def test_every_field_of_a_decision() -> None:
    state = replace(
        STATE,
        masked_agents={"b": "it failed", "gone": "not in this pool"},
        masked_roles={"verifier": "no answer yet"},
        suggested=Suggestion(role=Role.THINKER, agent="c"),
    )
    scored = Scored(array(2, 9, 1), array(1, 0, 5), "id", 12.5, 100, 90)
    made, notes = decision(AGENTS, scored, state, None)
    e = np.exp(-1)
    assert notes == ()
    assert (made.agent, made.role, made.own_agent, made.own_role) == ("c", Role.THINKER, "a", Role.WORKER)
    assert made.mode is Mode.ARGMAX
    assert made.agent_logits == {"a": 2.0, "b": 9.0, "c": 1.0}
    assert made.role_logits == {"worker": 1.0, "thinker": 0.0, "verifier": 5.0}
    assert made.agent_probs == pytest.approx({"a": 1 / (1 + e), "b": 0, "c": e / (1 + e)})
    assert made.role_probs == pytest.approx({"worker": 1 / (1 + e), "thinker": e / (1 + e), "verifier": 0})
    assert made.margin == {"agent": 1.0, "role": 1.0}
    assert made.masked == {"agent:b": "it failed", "role:verifier": "no answer yet"}
    assert made.suggested == state.suggested
    assert made.draws == ()
    assert (made.checkpoint_id, made.encode_ms, made.tokens, made.cached_tokens) == ("id", 12.5, 100, 90)
    assert wire.record(Decision, wire.plain(made)) == made


def test_a_sampled_decision_can_be_replayed_from_its_draws() -> None:
    scored = Scored(array(0.3, 0.1, 0.2), array(0.2, 0.1, 0.0))
    made, _ = decision(AGENTS, scored, STATE, generator(7, 0, 0))
    assert made.mode is Mode.SAMPLE
    assert len(made.draws) == 2
    assert all(0 <= u < 1 for u in made.draws)
    assert draw_index(np.array(list(made.agent_probs.values())), made.draws[0]) == AGENTS.index(made.own_agent)
    roles = list(made.role_probs)
    assert roles[draw_index(np.array(list(made.role_probs.values())), made.draws[1])] == made.own_role.value


def test_draws_depend_on_seed_turn_and_attempt_alone() -> None:
    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 0, 0), (2**70, 3, 0)]
    numbers = {key: generator(*key).random(3).tolist() for key in keys}
    assert len({tuple(row) for row in numbers.values()}) == len(keys)
    assert all(generator(*key).random(3).tolist() == row for key, row in numbers.items())


def test_hidden_bytes_are_little_endian_halves_and_finite() -> None:
    h = np.array([1.0, -2.5, 1e6, -1e6, 1e-9], dtype=np.float32)
    data = half_bytes(h)
    assert data[:4] == b"\x00\x3c\x00\xc1"
    assert np.frombuffer(data, dtype="<f2").tolist() == [1.0, -2.5, 65504.0, -65504.0, 0.0]


def test_policies_need_no_torch_to_be_imported() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['transformers'] = None\n"
        "import trinity_core.coordinator.policy, trinity_core.coordinator.checkpoint\n"
        "trinity_core.coordinator.policy.RandomPolicy()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- Policies without a head ----------------------------------------------------------------------------------


async def decide(made: Policy, state: LoopState, mode: Mode = Mode.ARGMAX, seed: int = 0) -> Choice:
    session = made.session("r", AGENTS, mode=mode, seed=seed)
    try:
        choice: Choice = await session.decide(state)
        return choice
    finally:
        session.close()


@pytest.mark.parametrize("mode", [Mode.ARGMAX, Mode.SAMPLE, Mode.FIXED])
async def test_the_random_policy_draws_uniformly_whatever_the_mode(mode: Mode) -> None:
    choices = [(await decide(RandomPolicy(), STATE, mode, seed)).decision for seed in range(600)]
    assert {d.mode for d in choices} == {Mode.SAMPLE}
    assert all(d.agent_probs == dict.fromkeys(AGENTS, 1 / 3) for d in choices)
    assert all(set(d.agent_logits.values()) | set(d.role_logits.values()) == {0.0} for d in choices)
    for counts in (Counter(d.agent for d in choices), Counter(d.role for d in choices)):
        assert len(counts) == 3
        assert min(counts.values()) > 150  # 200 expected, four standard errors are 46
    assert len({d.draws for d in choices}) == 600


async def test_a_retry_draws_anew_and_a_fork_draws_alike() -> None:
    session = RandomPolicy().session("r", AGENTS, mode=Mode.SAMPLE, seed=3)
    states = [STATE, STATE, replace(STATE, turns=(WORKED,)), replace(STATE, turns=(WORKED, WORKED))]
    draws = [(await session.decide(state)).decision.draws for state in states]
    assert len(set(draws)) == 4
    fork = RandomPolicy().session("another run", AGENTS, mode=Mode.SAMPLE, seed=3)
    assert (await fork.decide(states[2])).decision.draws == draws[2]
    assert (await fork.decide(states[3])).decision.draws == draws[3]


async def test_the_fixed_policy_goes_round() -> None:
    turns = [WORKED] * 5
    made = [(await decide(FixedPolicy(), replace(STATE, turns=tuple(turns[:n])))).decision for n in range(5)]
    assert [d.role for d in made] == [Role.THINKER, Role.WORKER, Role.VERIFIER, Role.THINKER, Role.WORKER]
    assert [d.agent for d in made] == ["a", "b", "c", "a", "b"]
    assert {d.mode for d in made} == {Mode.FIXED}
    assert all(not d.agent_logits and not d.agent_probs and not d.draws and not d.margin for d in made)


async def test_the_fixed_policy_passes_over_what_is_masked() -> None:
    state = replace(
        STATE, turns=(WORKED, WORKED), masked_agents={"c": "failed"}, masked_roles={"verifier": "no answer yet"}
    )
    made = (await decide(FixedPolicy(), state)).decision
    assert (made.role, made.agent) == (Role.THINKER, "a")
    assert made.masked == {"agent:c": "failed", "role:verifier": "no answer yet"}


# --- The learned policy -----------------------------------------------------------------------------------------


def checkpoint_for(backbone: Backbone, **changes: Any) -> Checkpoint:
    rng = np.random.default_rng(11)
    meta = Meta(backbone.id, backbone.revision, backbone.hidden_size, AGENTS)
    return Checkpoint(replace(meta, **changes), rng.normal(size=6 * backbone.hidden_size))


@pytest.fixture
def backbone() -> Iterator[Backbone]:
    made = small(CACHED["llama"]())
    yield made
    made.close()


@pytest.fixture(params=["random", "fixed", "learned"])
def any_policy(request: pytest.FixtureRequest, backbone: Backbone) -> Policy:
    made: dict[str, Policy] = {"random": RandomPolicy(), "fixed": FixedPolicy()}
    return made.get(request.param) or LearnedPolicy(backbone, checkpoint_for(backbone))


async def test_when_all_agents_are_masked_no_model_is_available(any_policy: Policy) -> None:
    masked = {"a": "disabled", "b": "HTTP 500", "c": "answered nothing", "z": "not here"}
    for mode in BOTH:
        with pytest.raises(NoAgentError, match=r"no model available: a: disabled; b: HTTP 500; c: answered nothing$"):
            await decide(any_policy, replace(STATE, masked_agents=masked), mode)
    with pytest.raises(NoAgentError, match="no role available"):
        await decide(any_policy, replace(STATE, masked_roles=dict.fromkeys(Role, "off")))
    with pytest.raises(NoAgentError, match="the pool is empty"):
        await any_policy.session("r", (), mode=Mode.ARGMAX, seed=0).decide(STATE)


@pytest.mark.parametrize("mode", BOTH)
async def test_masks_and_suggestions_hold_for_every_policy(any_policy: Policy, mode: Mode) -> None:
    masked = replace(STATE, masked_agents={"a": "off", "c": "off"}, masked_roles={"WORKER": "off", "verifier": "off"})
    for seed in range(20):
        made = (await decide(any_policy, masked, mode, seed)).decision
        assert (made.agent, made.role, made.own_agent, made.own_role) == ("b", Role.THINKER, "b", Role.THINKER)
    plain = (await decide(any_policy, STATE, mode)).decision
    for agent in AGENTS:
        for role in Role:
            made = (await decide(any_policy, replace(STATE, suggested=Suggestion(role, agent)), mode)).decision
            assert (made.agent, made.role) == (agent, role)
            assert (made.own_agent, made.own_role) == (plain.agent, plain.role)
    refused = await decide(any_policy, replace(masked, suggested=Suggestion(Role.VERIFIER, "a")), mode)
    assert (refused.decision.agent, refused.decision.role) == ("b", Role.THINKER)
    assert len(refused.notes) == 2


async def test_a_closed_session_decides_nothing(any_policy: Policy) -> None:
    session = any_policy.session("r", AGENTS, mode=Mode.ARGMAX, seed=0)
    session.close()
    session.close()
    with pytest.raises(Cancelled):
        await session.decide(STATE)


@pytest.mark.parametrize("normalisation", ["none", "l2"])
@pytest.mark.parametrize("position", [-2, -1, "mean"])
async def test_the_learned_policy_reads_the_hidden_state(
    backbone: Backbone, position: Any, normalisation: str
) -> None:
    checkpoint = checkpoint_for(backbone, position=position, normalisation=normalisation)
    made = LearnedPolicy(backbone, checkpoint)
    assert (made.name, made.checkpoint_id, made.transcript_version) == ("learned", checkpoint.id, "lines-v1")
    state = replace(STATE, turns=(WORKED,))
    choice = await decide(made, state)
    text = builder("lines-v1").tokenise(backbone.tokenizer, state.conversation, state.turns, 2048)
    states = slow(backbone, text.tokens, text.suffix)
    h = states.mean(axis=0) if position == "mean" else states[position]
    x = h / np.linalg.norm(h) if normalisation == "l2" else h
    z = checkpoint.theta.reshape(6, -1) @ x
    found = choice.decision
    assert np.allclose([*found.agent_logits.values(), *found.role_logits.values()], z, atol=1e-4)
    assert found.agent == AGENTS[int(np.argmax(z[:3]))]
    assert found.role is (Role.WORKER, Role.THINKER, Role.VERIFIER)[int(np.argmax(z[3:]))]
    assert found.checkpoint_id == checkpoint.id
    assert found.tokens == len(text.tokens) + len(text.suffix)
    assert found.encode_ms > 0
    assert choice.hidden is not None
    assert np.allclose(np.frombuffer(choice.hidden, dtype="<f2"), h, atol=2e-3, rtol=1e-3)
    assert choice.notes == ()


async def test_a_run_reuses_its_cache_and_gives_it_back(backbone: Backbone) -> None:
    session = LearnedPolicy(backbone, checkpoint_for(backbone)).session("r", AGENTS, mode=Mode.ARGMAX, seed=0)
    first = (await session.decide(STATE)).decision
    second = (await session.decide(replace(STATE, turns=(WORKED,)))).decision
    assert first.cached_tokens == 0
    assert second.cached_tokens == len(builder("lines-v1").parts(STATE.conversation, ())[0])
    assert second.tokens > first.tokens
    assert backbone.cached_bytes > 0
    session.close()
    await backbone.call(lambda: None, threading.Event())
    assert backbone.cached_bytes == 0


async def test_the_pool_may_be_in_another_order(backbone: Backbone) -> None:
    checkpoint = checkpoint_for(backbone)
    made = LearnedPolicy(backbone, checkpoint)
    usual = (await decide(made, STATE)).decision
    session = made.session("r", ("c", "a"), mode=Mode.ARGMAX, seed=0)
    other = (await session.decide(STATE)).decision
    assert list(other.agent_logits) == ["c", "a"]
    assert other.agent_logits == pytest.approx({name: usual.agent_logits[name] for name in ("c", "a")}, abs=1e-5)
    assert other.role_logits == pytest.approx(usual.role_logits, abs=1e-5)
    assert other.checkpoint_id == checkpoint.id
    with pytest.raises(CheckpointError, match="no trained row for d"):
        made.session("r", ("a", "d"), mode=Mode.ARGMAX, seed=0)


def test_a_checkpoint_of_another_backbone_is_refused(backbone: Backbone) -> None:
    for changes in ({"backbone_id": "x"}, {"backbone_revision": "x"}, {"transcript": "x"}):
        with pytest.raises(CheckpointError):
            LearnedPolicy(backbone, checkpoint_for(backbone, **changes))


async def test_learned_scales_change_what_the_head_reads(backbone: Backbone) -> None:
    layout = SvfLayout("block", (SvfMatrix("layers.1.self_attn.q_proj.weight", 32),))
    plain = checkpoint_for(backbone)
    meta = replace(plain.meta, svf=layout)
    usual = (await decide(LearnedPolicy(backbone, plain), STATE)).decision
    zeros = Checkpoint(meta, np.concatenate([np.zeros(32), plain.theta]))
    same = (await decide(LearnedPolicy(backbone, zeros), STATE)).decision
    assert same.agent_logits == usual.agent_logits
    scales = np.linspace(-0.9, 3, 32)
    scaled = Checkpoint(meta, np.concatenate([scales, plain.theta]))
    other = (await decide(LearnedPolicy(backbone, scaled), STATE)).decision
    assert other.agent_logits != usual.agent_logits
    assert other.checkpoint_id == scaled.id
    foreign = replace(meta, svf=SvfLayout("block", (SvfMatrix("layers.7.self_attn.q_proj.weight", 32),)))
    with pytest.raises(CheckpointError, match="SVF"):
        LearnedPolicy(backbone, Checkpoint(foreign, scaled.theta))


def test_mode_fixed_is_not_for_the_learned_policy(backbone: Backbone) -> None:
    with pytest.raises(InputError, match="fixed"):
        LearnedPolicy(backbone, checkpoint_for(backbone)).session("r", AGENTS, mode=Mode.FIXED, seed=0)


async def test_sampling_is_repeatable_and_really_samples(backbone: Backbone) -> None:
    checkpoint = checkpoint_for(backbone, normalisation="l2")
    made = LearnedPolicy(backbone, Checkpoint(checkpoint.meta, checkpoint.theta / 4))
    found = [(await decide(made, STATE, Mode.SAMPLE, seed)).decision for seed in (*range(30), *range(30))]
    assert [(d.agent, d.role, d.draws) for d in found[:30]] == [(d.agent, d.role, d.draws) for d in found[30:]]
    assert len({d.agent for d in found}) == 3
    for d in found:
        assert AGENTS[draw_index(np.array(list(d.agent_probs.values())), d.draws[0])] == d.agent


async def test_a_trimmed_transcript_is_told() -> None:
    backbone = small(CACHED["llama"](), max_tokens=200)
    choice = await decide(
        LearnedPolicy(backbone, checkpoint_for(backbone)),
        replace(STATE, turns=(TranscriptTurn(Role.WORKER, "a", "x" * 300), WORKED)),
    )
    assert choice.decision.tokens <= 200
    assert len(choice.notes) == 1
    assert choice.notes[0][0] == "trimmed"
    assert "1 oldest turn left out" in choice.notes[0][1]
    backbone.close()


async def test_models_without_a_cache_decide_as_well() -> None:
    backbone = small(UNCACHED["qwen3-next, gated delta and attention"]())
    made = LearnedPolicy(backbone, checkpoint_for(backbone))
    session = made.session("r", AGENTS, mode=Mode.ARGMAX, seed=0)
    for turns in ((), (WORKED,)):
        assert (await session.decide(replace(STATE, turns=turns))).decision.cached_tokens == 0
    backbone.close()


def slowed(backbone: Backbone) -> threading.Event:
    """Make each chunk of this backbone take a while; the event is set when the first begins."""
    started = threading.Event()

    def wait(module: Any, args: Any) -> None:
        started.set()
        time.sleep(0.05)

    backbone.model.register_forward_pre_hook(wait)
    return started


LONG = LoopState((Message("user", "x" * 2000),))


async def test_cancelling_a_decision_stops_the_forward_pass(backbone: Backbone) -> None:
    made = LearnedPolicy(backbone, checkpoint_for(backbone))
    expected = (await decide(made, LONG)).decision
    chunks = 0

    def count(module: Any, args: Any) -> None:
        nonlocal chunks
        chunks += 1

    started = slowed(backbone)
    backbone.model.register_forward_pre_hook(count)
    session = made.session("r2", AGENTS, mode=Mode.ARGMAX, seed=0)
    task = asyncio.create_task(session.decide(LONG))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await backbone.call(lambda: None, threading.Event())  # the thread is free again
    assert chunks < 8  # of the eight that 2,000 tokens take
    again = (await session.decide(LONG)).decision  # and what was kept is right
    assert again.cached_tokens > 0
    assert again.agent_logits == pytest.approx(expected.agent_logits, abs=1e-3)
    session.close()


async def test_closing_the_session_stops_the_forward_pass(backbone: Backbone) -> None:
    started = slowed(backbone)
    session = LearnedPolicy(backbone, checkpoint_for(backbone)).session("r", AGENTS, mode=Mode.ARGMAX, seed=0)
    task = asyncio.create_task(session.decide(LONG))
    await asyncio.to_thread(started.wait, 10)
    before = time.monotonic()
    session.close()
    with pytest.raises(Cancelled):
        await task
    assert time.monotonic() - before < 1
    await backbone.call(lambda: None, threading.Event())
    assert backbone.cached_bytes == 0


async def test_the_event_loop_stays_free_during_a_forward_pass(backbone: Backbone) -> None:
    slowed(backbone)
    session = LearnedPolicy(backbone, checkpoint_for(backbone)).session("r", AGENTS, mode=Mode.ARGMAX, seed=0)
    task = asyncio.create_task(session.decide(LONG))
    ticks = 0
    while not task.done():
        await asyncio.sleep(0.005)
        ticks += 1
    assert ticks > 10
    session.close()


async def test_two_runs_decide_side_by_side(backbone: Backbone) -> None:
    made = LearnedPolicy(backbone, checkpoint_for(backbone))
    states = [LoopState((Message("user", f"question {i}"),)) for i in range(4)]
    alone = [(await decide(made, state)).decision for state in states]
    sessions = [made.session(f"r{i}", AGENTS, mode=Mode.ARGMAX, seed=0) for i in range(4)]
    together = await asyncio.gather(*(s.decide(state) for s, state in zip(sessions, states, strict=True)))
    for one, choice in zip(alone, together, strict=True):
        assert choice.decision.agent_logits == pytest.approx(one.agent_logits, abs=1e-4)
    for session in sessions:
        session.close()


async def test_an_error_in_the_backbone_is_not_swallowed(backbone: Backbone) -> None:
    def fail(module: Any, args: Any) -> None:
        raise RuntimeError("the tensors are on different devices")

    made = LearnedPolicy(backbone, checkpoint_for(backbone))
    hook = backbone.model.layers[1].register_forward_pre_hook(fail)
    for mode in BOTH:
        with pytest.raises(RuntimeError, match="different devices"):
            await decide(made, STATE, mode)
    hook.remove()
    assert (await decide(made, STATE)).decision.agent in AGENTS


@pytest.mark.model
async def test_the_embedded_model_decides_a_whole_run() -> None:
    backbone = embedded_backbone()
    made = LearnedPolicy(backbone, checkpoint_for(backbone))
    session = made.session("whole run", AGENTS, mode=Mode.ARGMAX, seed=0)
    turns: tuple[TranscriptTurn, ...] = ()
    for n in range(4):
        choice = await session.decide(replace(STATE, turns=turns))
        found = choice.decision
        text = builder("lines-v1").tokenise(backbone.tokenizer, STATE.conversation, turns, backbone.max_tokens)
        z = checkpoint_for(backbone).logits(slow(backbone, text.tokens, text.suffix)[-2])
        assert np.allclose([*found.agent_logits.values(), *found.role_logits.values()], z, atol=2e-3)
        assert (found.cached_tokens > 0) == (n > 0)
        assert choice.hidden is not None
        assert len(choice.hidden) == 2 * 576
        turns += (TranscriptTurn(found.role, found.agent, f"Step {n}: the answer is 42."),)
    session.close()
