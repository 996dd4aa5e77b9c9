"""Policies: who acts next, and in which role.

A policy sees the conversation and the finished turns and returns a `Choice`. Three are here: `LearnedPolicy` (the
backbone's hidden state through a trained head, paper section 3), `RandomPolicy` (uniform; also what an untrained
coordinator does) and `FixedPolicy` (thinker, worker, verifier in turn). What they share are pure functions on NumPy
float64 arrays: `masked_softmax`, `pick`, `draws`, `follow`.

Invariants: logits are stored raw and finite; a mask becomes -inf before the softmax, so a masked name has
probability exactly 0 and cannot be drawn; when everything is masked NoAgentError is raised, never a default chosen.
Draws depend on (seed, finished turns, attempt) alone, so a fork or a retry replays them. This module imports no
torch. Not covered: calling the agents, and whether a Thinker is listened to (the loop passes `suggested` or None).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from trinity_core.coordinator import transcript
from trinity_core.errors import Cancelled, InputError, NoAgentError
from trinity_core.types import Decision, LoopState, Mode, Role, Suggestion

if TYPE_CHECKING:
    from trinity_core.coordinator.backbone import Backbone, Encoding
    from trinity_core.coordinator.checkpoint import Checkpoint

Array = NDArray[np.float64]

ROLES: tuple[Role, ...] = (Role.WORKER, Role.THINKER, Role.VERIFIER)
"""Roles in the order of a head's last three rows."""

FIXED_ORDER: tuple[Role, ...] = (Role.THINKER, Role.WORKER, Role.VERIFIER)


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision and what it was made from. `hidden` is h as little-endian float16 bytes (2·d of them), or None.

    `notes` are (kind, sentence) worth telling the user, for example that the transcript was trimmed; kinds as in
    `types.Note`."""

    decision: Decision
    hidden: bytes | None
    notes: tuple[tuple[str, str], ...] = ()


class PolicySession(Protocol):
    """A policy at work on one run."""

    async def decide(self, state: LoopState) -> Choice:
        """Raises NoAgentError when every agent or every role is masked, Cancelled after `close`."""
        ...

    def close(self) -> None:
        """Drop what is kept for the run and stop a forward pass under way. May be called twice, from any thread."""
        ...


class Policy(Protocol):
    """Something that decides. `checkpoint_id` and `transcript_version` are stored with each run, or None."""

    @property
    def name(self) -> str: ...

    @property
    def checkpoint_id(self) -> str | None: ...

    @property
    def transcript_version(self) -> str | None: ...

    @property
    def notice(self) -> str | None:
        """What the user should know about these decisions, or None; told once in each run."""
        ...

    def session(self, run_id: str, agents: Sequence[str], *, mode: Mode, seed: int) -> PolicySession: ...


# --- Pure functions -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pick:
    """One name chosen out of several. `probs` are after the mask; `margin` is None when nothing else was open."""

    name: str
    probs: dict[str, float]
    margin: float | None


def masked_softmax(logits: Array, open_: NDArray[np.bool_]) -> Array:
    """Softmax of `logits` (n,) over the entries where `open_` (n,) is True; exactly 0 elsewhere. float64.

    Raises ValueError when a logit is not finite or nothing is open.
    """
    if not np.all(np.isfinite(logits)):
        raise ValueError("logits must be finite; masks are passed apart")
    if not open_.any():
        raise ValueError("nothing is open")
    masked = np.where(open_, logits, -np.inf)
    weights = np.exp(masked - masked.max())
    probs: Array = weights / weights.sum()
    return probs


def draw_index(probs: Array, u: float) -> int:
    """The index that uniform number `u` in [0, 1) selects by inverse CDF; never one of probability 0."""
    index = int(np.searchsorted(np.cumsum(probs), u, side="right"))
    return index if index < len(probs) and probs[index] > 0 else int(np.flatnonzero(probs)[-1])


def pick(names: Sequence[str], logits: Array, masked: Mapping[str, str], u: float | None) -> Pick:
    """The choice among `names` with raw `logits` (n,): the largest open one, or by draw when `u` is given.

    `masked` maps names to reasons. Ties go to the earlier name. Raises NoAgentError when all are masked.
    """
    open_ = np.array([name not in masked for name in names], dtype=bool)
    probs = masked_softmax(logits, open_)
    index = int(np.argmax(np.where(open_, logits, -np.inf))) if u is None else draw_index(probs, u)
    others = open_.copy()
    others[index] = False
    margin = float(logits[index] - logits[others].max()) if others.any() else None
    return Pick(names[index], dict(zip(names, probs.tolist(), strict=True)), margin)


def generator(seed: int, turns: int, attempt: int) -> np.random.Generator:
    """The random numbers of one decision: a function of the run's seed, its finished turns and the attempt."""
    return np.random.default_rng((seed % 2**64, turns, attempt))


def relevant_masks(agents: Sequence[str], state: LoopState) -> tuple[dict[str, str], dict[str, str]]:
    """The masks of `state` that concern this pool, by name and by role value.

    Raises NoAgentError naming every reason when no agent or no role is left.
    """
    by_agent = {name: state.masked_agents[name] for name in agents if name in state.masked_agents}
    by_role = {Role(name).value: reason for name, reason in state.masked_roles.items()}
    if len(by_agent) == len(agents):
        reasons = "; ".join(f"{name}: {reason}" for name, reason in by_agent.items()) or "the pool is empty"
        raise NoAgentError(f"no model available: {reasons}")
    if len(by_role) == len(ROLES):
        reasons = "; ".join(f"{name}: {reason}" for name, reason in by_role.items())
        raise NoAgentError(f"no role available: {reasons}")
    return by_agent, by_role


def follow(
    own: tuple[str, Role],
    suggested: Suggestion | None,
    agents: Sequence[str],
    masked_agents: Mapping[str, str],
    masked_roles: Mapping[str, str],
) -> tuple[str, Role, tuple[tuple[str, str], ...]]:
    """(agent, role, notes) after a Thinker's suggestion: each part counts where it is known and not masked."""
    agent, role = own
    notes: list[tuple[str, str]] = []
    if suggested is None:
        return agent, role, ()
    if suggested.role is not None:
        if (reason := masked_roles.get(suggested.role.value)) is None:
            role = suggested.role
        else:
            notes.append(("suggestion", f"The Thinker's role {suggested.role.value} was not followed: {reason}"))
    wanted = (suggested.agent or "").strip()
    if wanted and wanted.casefold() != "any":
        exact = [name for name in agents if name == wanted] or [
            name for name in agents if name.casefold() == wanted.casefold()
        ]
        if not exact:
            notes.append(("suggestion", f"The Thinker's agent {wanted!r} was not followed: it is not in the pool"))
        elif (reason := masked_agents.get(exact[0])) is not None:
            notes.append(("suggestion", f"The Thinker's agent {exact[0]} was not followed: {reason}"))
        else:
            agent = exact[0]
    return agent, role, tuple(notes)


@dataclass(frozen=True, slots=True)
class Scored:
    """What a head (or its absence) gave for one state, before masks: raw logits (n,) and (3,), and what they cost."""

    agent_logits: Array
    role_logits: Array
    checkpoint_id: str | None = None
    encode_ms: float = 0.0
    tokens: int = 0
    cached_tokens: int = 0


def decision(
    agents: Sequence[str], scored: Scored, state: LoopState, rng: np.random.Generator | None
) -> tuple[Decision, tuple[tuple[str, str], ...]]:
    """The whole decision from raw logits in pool order and ROLES order; sampled when `rng` is given, else argmax.

    Returns it with the notes about a suggestion that was not followed. Raises NoAgentError.
    """
    masked_agents, masked_roles = relevant_masks(agents, state)
    role_names = [role.value for role in ROLES]
    draws = () if rng is None else (float(rng.random()), float(rng.random()))
    by_agent = pick(agents, scored.agent_logits, masked_agents, draws[0] if draws else None)
    by_role = pick(role_names, scored.role_logits, masked_roles, draws[1] if draws else None)
    own = by_agent.name, Role(by_role.name)
    agent, role, notes = follow(own, state.suggested, agents, masked_agents, masked_roles)
    margins = {"agent": by_agent.margin, "role": by_role.margin}
    made = Decision(
        agent=agent,
        role=role,
        own_agent=own[0],
        own_role=own[1],
        mode=Mode.SAMPLE if draws else Mode.ARGMAX,
        agent_logits=dict(zip(agents, scored.agent_logits.tolist(), strict=True)),
        role_logits=dict(zip(role_names, scored.role_logits.tolist(), strict=True)),
        agent_probs=by_agent.probs,
        role_probs=by_role.probs,
        margin={name: value for name, value in margins.items() if value is not None},
        masked=_masked(masked_agents, masked_roles),
        suggested=state.suggested,
        draws=draws,
        checkpoint_id=scored.checkpoint_id,
        encode_ms=scored.encode_ms,
        tokens=scored.tokens,
        cached_tokens=scored.cached_tokens,
    )
    return made, notes


def _masked(agents: Mapping[str, str], roles: Mapping[str, str]) -> dict[str, str]:
    by_agent = {f"agent:{name}": reason for name, reason in agents.items()}
    return by_agent | {f"role:{name}": reason for name, reason in roles.items()}


class _Attempts:
    """Counts decisions made at the same number of finished turns, so that a retry draws anew."""

    def __init__(self) -> None:
        self._at = (-1, -1)

    def next(self, turns: int) -> int:
        last, count = self._at
        self._at = (turns, count + 1 if last == turns else 0)
        return self._at[1]


# --- Policies -----------------------------------------------------------------------------------------------


class RandomPolicy:
    """Every open agent and role equally likely: all logits 0, always sampled, whatever the mode asked for.

    Named otherwise and with a notice it is also the coordinator that has no trained head."""

    checkpoint_id: str | None = None
    transcript_version: str | None = None

    def __init__(self, name: str = "random", notice: str | None = None) -> None:
        self.name, self.notice = name, notice

    def session(self, run_id: str, agents: Sequence[str], *, mode: Mode, seed: int) -> PolicySession:
        return _RandomSession(tuple(agents), seed)


class _RandomSession:
    def __init__(self, agents: tuple[str, ...], seed: int) -> None:
        self._agents, self._seed, self._attempts, self._closed = agents, seed, _Attempts(), False

    async def decide(self, state: LoopState) -> Choice:
        if self._closed:
            raise Cancelled("The run was stopped.")
        turns = len(state.turns)
        rng = generator(self._seed, turns, self._attempts.next(turns))
        scored = Scored(np.zeros(len(self._agents)), np.zeros(len(ROLES)))
        made, notes = decision(self._agents, scored, state, rng)
        return Choice(made, None, notes)

    def close(self) -> None:
        self._closed = True


class FixedPolicy:
    """Thinker, worker, verifier, and again, with mode FIXED and no logits.

    Turn t (from 0) has role t mod 3 of that order and agent t mod L of the pool, so neighbouring turns go to
    different agents. A masked role or agent is passed over for the next one in its cycle.
    """

    name = "fixed"
    checkpoint_id: str | None = None
    transcript_version: str | None = None
    notice: str | None = None

    def session(self, run_id: str, agents: Sequence[str], *, mode: Mode, seed: int) -> PolicySession:
        return _FixedSession(tuple(agents))


class _FixedSession:
    def __init__(self, agents: tuple[str, ...]) -> None:
        self._agents, self._closed = agents, False

    async def decide(self, state: LoopState) -> Choice:
        if self._closed:
            raise Cancelled("The run was stopped.")
        masked_agents, masked_roles = relevant_masks(self._agents, state)
        turn = len(state.turns)
        roles = [FIXED_ORDER[(turn + i) % len(FIXED_ORDER)] for i in range(len(FIXED_ORDER))]
        agents = [self._agents[(turn + i) % len(self._agents)] for i in range(len(self._agents))]
        own_role = next(role for role in roles if role.value not in masked_roles)
        own_agent = next(agent for agent in agents if agent not in masked_agents)
        agent, role, notes = follow((own_agent, own_role), state.suggested, self._agents, masked_agents, masked_roles)
        made = Decision(
            agent=agent,
            role=role,
            own_agent=own_agent,
            own_role=own_role,
            mode=Mode.FIXED,
            masked=_masked(masked_agents, masked_roles),
            suggested=state.suggested,
        )
        return Choice(made, None, notes)

    def close(self) -> None:
        self._closed = True


class LearnedPolicy:
    """The coordinator of the paper: transcript, backbone, hidden state, head.

    A checkpoint with SVF scales reads from a view of the backbone whose matrices it scales, made here: that takes a
    second or two, half a minute for a released vector. Raises CheckpointError when the checkpoint belongs to another
    backbone or transcript builder or its scales do not fit, and, from `session`, when an agent of the pool has no
    trained row.
    """

    name = "learned"

    def __init__(self, backbone: Backbone, checkpoint: Checkpoint) -> None:
        self.notice: str | None = None
        checkpoint.check_backbone(backbone)
        if checkpoint.meta.svf is not None and np.any(checkpoint.svf_scales != 0):
            from trinity_core.coordinator import svf  # imports torch, which this module does not

            backbone = svf.patched(backbone, checkpoint.meta.svf, checkpoint.svf_scales)
        self._backbone, self._checkpoint = backbone, checkpoint
        self.checkpoint_id: str | None = checkpoint.id
        self.transcript_version: str | None = checkpoint.meta.transcript

    def session(self, run_id: str, agents: Sequence[str], *, mode: Mode, seed: int) -> PolicySession:
        if mode is Mode.FIXED:
            raise InputError(
                "The learned policy decides by argmax or sample; choose the fixed policy for mode fixed."
            )
        pooled = self._checkpoint.for_pool(agents)
        return _LearnedSession(self._backbone, pooled, self.checkpoint_id, run_id, mode, seed)


class _LearnedSession:
    def __init__(
        self, backbone: Backbone, pooled: Checkpoint, checkpoint_id: str | None, run_id: str, mode: Mode, seed: int
    ) -> None:
        self._backbone, self._pooled, self._checkpoint_id = backbone, pooled, checkpoint_id
        self._run_id, self._mode, self._seed = run_id, mode, seed
        self._builder = transcript.builder(pooled.meta.transcript, pooled.meta.router_prompt)
        self._stop = threading.Event()
        self._attempts = _Attempts()

    async def decide(self, state: LoopState) -> Choice:
        agents = self._pooled.meta.agents
        relevant_masks(agents, state)  # nothing left to choose: do not run the backbone first
        stop = threading.Event()
        trimmed, encoding, ms = await self._backbone.call(lambda: self._encode(state, stop), stop, self._stop)
        logits = self._pooled.logits(encoding.h)
        turns = len(state.turns)
        attempt = self._attempts.next(turns)
        rng = generator(self._seed, turns, attempt) if self._mode is Mode.SAMPLE else None
        scored = Scored(
            agent_logits=logits[: len(agents)],
            role_logits=logits[len(agents) :],
            checkpoint_id=self._checkpoint_id,
            encode_ms=ms,
            tokens=encoding.tokens,
            cached_tokens=encoding.cached,
        )
        made, notes = decision(agents, scored, state, rng)
        return Choice(made, half_bytes(encoding.h), ((("trimmed", trimmed),) if trimmed else ()) + notes)

    def _encode(self, state: LoopState, stop: threading.Event) -> tuple[str | None, Encoding, float]:
        """In the backbone's thread: tokenise, then run the forward pass. Returns the note, h and milliseconds."""
        start = time.perf_counter()
        meta = self._pooled.meta
        text = self._builder.tokenise(
            self._backbone.tokenizer, state.conversation, state.turns, self._backbone.max_tokens, meta.suffix
        )
        encoding = self._backbone.encode(
            text.tokens,
            text.suffix,
            run_id=None if self._builder.joined else self._run_id,
            position=meta.position,
            stop=lambda: stop.is_set() or self._stop.is_set(),
        )
        return text.note, encoding, (time.perf_counter() - start) * 1000

    def close(self) -> None:
        self._stop.set()
        self._backbone.drop(self._run_id)


def half_bytes(h: NDArray[np.float32]) -> bytes:
    """h (d,) as little-endian float16, clipped to that type's finite range, 2·d bytes."""
    limit = float(np.finfo(np.float16).max)
    return np.clip(h, -limit, limit).astype("<f2").tobytes()
