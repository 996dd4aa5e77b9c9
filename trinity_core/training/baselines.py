"""Supervised fine-tuning of a linear head on measured outcomes (paper section 4, baseline SFT), and a comparison.

Nobody labels anything: every agent of the pool runs every training task, and its reply is graded. In a situation
the *role* target follows from the loop's own state (no right answer yet: Worker; a right one: Verifier), and the
*agent* targets are a softmax over what each agent led to in that role, soft where several do well. Situations are
those that agents lead to from the bare question, then those that the fitted head itself visits (dataset
aggregation: Ross, Gordon and Bagnell, 2011), so that the head is also right after its own mistakes.

The fit is convex: two softmax regressions on standardised hidden states, with L2 chosen on validation tasks by
accuracy less a small cost per turn. Not covered: evolution, which needs no targets (`training.evolve`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_core.agents.recall import Recall
from trinity_core.agents.replies import ReplyStore
from trinity_core.answers import committed_answer
from trinity_core.config import Settings
from trinity_core.coordinator import transcript
from trinity_core.coordinator.backbone import Backbone
from trinity_core.coordinator.checkpoint import Checkpoint, Meta
from trinity_core.coordinator.policy import (
    ROLES,
    Choice,
    Policy,
    PolicySession,
    RandomPolicy,
    Scored,
    decision,
)
from trinity_core.session.loop import Members, Situation
from trinity_core.tasks.graders import grade
from trinity_core.tasks.task import Task
from trinity_core.training.rollout import (
    Played,
    Score,
    best_per_question,
    move,
    play_all,
    play_single,
    score,
)
from trinity_core.types import (
    AnyJobEvent,
    CheckpointSaved,
    Finish,
    JobFinished,
    JobNote,
    JobStarted,
    LoopState,
    Message,
    Mode,
    Progress,
    Role,
    Status,
    TranscriptTurn,
    TurnFinished,
    Validation,
    Verdict,
)
from trinity_core.wire import canonical, new_id, plain

Array = NDArray[np.float64]

DISCOUNT = 0.7
"""Value of being right one turn later (own choice): a detour is worth less than the direct way."""
TEMPERATURE = 0.1
"""τ of the soft targets softmax(value / τ)."""
LOOKAHEAD = 1
"""Further Worker turns looked at after a reply that is not yet right: enough for questions of two steps."""
TURN_COST = 0.02
"""What a turn costs when a penalty is chosen on validation tasks; shown, never part of a reported accuracy."""
MAX_TURNS = 5
PENALTIES = (1e-6, 1e-5, 3e-5, 1e-4)
"""Candidates for the L2 penalty, per example, in units of the standardised features divided by sqrt(d)."""


# --- Measuring ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What each agent led to from one situation in the role that the situation calls for.

    `values` are in [0, 1] by agent name; `after` is where each agent's reply leaves the run, None where it ends.
    """

    role: Role
    values: dict[str, float]
    after: dict[str, Situation | None]


class Measure:
    """Measured outcomes on one pool. Replies come from the reply store, so equal requests are made once."""

    def __init__(self, pool: Members) -> None:
        self._pool = pool

    async def outcomes(self, task: Task, situation: Situation, ahead: int = LOOKAHEAD) -> Outcomes:
        """Run every agent in the role that `situation` calls for and value what it led to."""
        role = role_for(task, situation)
        values: dict[str, float | None] = {}
        after: dict[str, Situation | None] = {}
        for name in self._pool.names:
            done = await move(self._pool, situation, name, role)
            after[name] = None if _ends(situation, done) else situation.after(done)
            values[name] = await self._value(task, situation, role, done, ahead)
        best = max((value for value in values.values() if value is not None), default=0.0)
        # A refusal leaves the briefs as they were: the best of the others is still to be had, a turn later.
        known = {name: DISCOUNT * best if value is None else value for name, value in values.items()}
        return Outcomes(role, known, after)

    async def _value(
        self, task: Task, situation: Situation, role: Role, done: TurnFinished, ahead: int
    ) -> float | None:
        """Value of a reply, or None when it changed nothing that an agent can see."""
        if done.error is not None:
            return 0.0
        if role is Role.VERIFIER:
            return 1.0 if done.verdict is Verdict.ACCEPT else None
        if done.finish is Finish.REFUSED:
            return None
        if grade(task, done.text).correct:
            return 1.0
        if ahead == 0:
            return 0.0
        later = max((await self.outcomes(task, situation.after(done), ahead - 1)).values.values())
        # A wrong reply that claims to be final is worse than an honest first step: a Verifier may accept it.
        return DISCOUNT * later * (DISCOUNT if committed_answer(done.text) is not None else 1.0)


def role_for(task: Task, situation: Situation) -> Role:
    """The role that the loop's state calls for: verify a right answer, otherwise work."""
    if situation.answer is not None and grade(task, situation.answer).correct:
        return Role.VERIFIER
    return Role.WORKER


def _ends(situation: Situation, done: TurnFinished) -> bool:
    return done.verdict is Verdict.ACCEPT and situation.answer is not None


# --- Situations and features --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Visit:
    """A situation of a task, to be turned into one training example."""

    task: Task
    situation: Situation


async def explore(measure: Measure, task: Task, rng: np.random.Generator) -> list[Visit]:
    """The bare question, what each agent makes of it, and from there the best agent's way and one random detour."""
    start = Situation((Message("user", task.question),))
    visits = [Visit(task, start)]
    first = await measure.outcomes(task, start)
    for situation in first.after.values():
        for turn in range(2, MAX_TURNS):
            if situation is None:
                break
            visits.append(Visit(task, situation))
            outcomes = await measure.outcomes(task, situation)
            names = list(outcomes.values)
            if not any(outcomes.values.values()):  # nobody gets anywhere from here
                break
            best = max(names, key=lambda name: outcomes.values[name])
            if turn == 2 and (detour := outcomes.after[names[int(rng.integers(len(names)))]]) is not None:
                visits.append(Visit(task, detour))
            situation = outcomes.after[best]
    return visits


async def follow(policy: Policy, pool: Members, task: Task) -> list[Visit]:
    """The situations that `policy` itself gets into on `task`."""
    situation = Situation((Message("user", task.question),))
    session = policy.session(f"sft-{task.id}", pool.names, mode=Mode.ARGMAX, seed=0)
    visits = []
    try:
        for _ in range(MAX_TURNS):
            visits.append(Visit(task, situation))
            chosen = (await session.decide(situation.state())).decision
            done = await move(pool, situation, chosen.agent, chosen.role)
            if done.error is not None or _ends(situation, done):
                break
            situation = situation.after(done)
    finally:
        session.close()
    return visits


@dataclass
class Features:
    """Hidden states of transcripts, each encoded once, however many heads and rounds ask for it."""

    backbone: Backbone
    _known: dict[str, Array] = field(default_factory=dict)

    async def hidden(self, messages: Sequence[Message], turns: Sequence[TranscriptTurn], run_id: str) -> Array:
        """h (d,) float64 at position -2 of the transcript with the suffix."""
        key = canonical([list(messages), list(turns)])
        if key not in self._known:
            builder, backbone = transcript.builder(transcript.LINES_V1), self.backbone

            def encode() -> Array:
                tokens = builder.tokenise(backbone.tokenizer, messages, turns, backbone.max_tokens, builder.suffix)
                return backbone.encode(tokens.tokens, tokens.suffix, run_id=run_id).h.astype(np.float64)

            self._known[key] = await backbone.call(encode, threading.Event())
        return self._known[key]


class _Candidate:
    """A head under trial as a policy, argmax, on remembered hidden states; decides as `LearnedPolicy` does."""

    name = "learned"
    notice: str | None = None
    transcript_version: str | None = transcript.LINES_V1

    def __init__(self, checkpoint: Checkpoint, features: Features, run_id: str = "") -> None:
        self.checkpoint_id: str | None = None
        self._checkpoint, self._features, self._run_id = checkpoint, features, run_id

    def session(self, run_id: str, agents: Sequence[str], *, mode: Mode, seed: int) -> PolicySession:
        return _Candidate(self._checkpoint, self._features, run_id)

    async def decide(self, state: LoopState) -> Choice:
        agents = self._checkpoint.meta.agents
        h = await self._features.hidden(state.conversation, state.turns, self._run_id)
        logits = self._checkpoint.logits(h)
        made, notes = decision(agents, Scored(logits[: len(agents)], logits[len(agents) :]), state, None)
        return Choice(made, None, notes)

    def close(self) -> None:
        self._features.backbone.drop(self._run_id)


# --- Fitting ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Examples:
    """Training examples in rows: states (n, d), agent targets (n, L), role targets (n, 3), agent weights (n,)."""

    states: Array
    agents: Array
    roles: Array
    weights: Array


async def examples(
    visits: Sequence[Visit], measure: Measure, features: Features, names: Sequence[str], tick: Callable[[], None]
) -> Examples:
    """Encode and measure every visit. An agent target has weight 0 where no agent led to anything."""
    states, agents, roles, weights = [], [], [], []
    for visit in visits:
        outcomes = await measure.outcomes(visit.task, visit.situation)
        values = np.array([outcomes.values[name] for name in names])
        situation = visit.situation
        states.append(await features.hidden(situation.messages, situation.turns, f"sft-{visit.task.id}"))
        agents.append(_softmax(values / TEMPERATURE))
        roles.append([float(role is outcomes.role) for role in ROLES])
        weights.append(float(values.max() > 0))
        tick()
    return Examples(np.array(states), np.array(agents), np.array(roles), np.array(weights))


def fit(data: Examples, penalty: float) -> tuple[Array, Array, Array]:
    """(W (L+3, d), mean (d,), std (d,)): the head that minimises KL to the targets plus `penalty` times |W|².

    Features are standardised over `data` and divided by sqrt(d), as the checkpoint's normalisation does.
    """
    from scipy.optimize import minimize

    mean, std = data.states.mean(axis=0), data.states.std(axis=0)
    std = np.where(std > 1e-6, std, 1.0)
    x = (data.states - mean) / std / np.sqrt(data.states.shape[1])
    blocks = []
    for targets, weights in ((data.agents, data.weights), (data.roles, np.ones(len(x)))):
        shape = (targets.shape[1], x.shape[1])
        total = max(weights.sum(), 1.0)

        def loss(flat: Array, targets: Array = targets, weights: Array = weights, total: float = total) -> Any:
            w = flat.reshape(targets.shape[1], -1)
            z = x @ w.T
            log_probs = z - z.max(axis=1, keepdims=True)
            log_probs -= np.log(np.exp(log_probs).sum(axis=1, keepdims=True))
            cost = -(weights[:, None] * targets * log_probs).sum() / total + penalty * (w * w).sum()
            slope = ((np.exp(log_probs) - targets) * weights[:, None]).T @ x / total + 2 * penalty * w
            return cost, slope.ravel()

        found = minimize(loss, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 500})
        blocks.append(found.x.reshape(shape))
    return np.vstack(blocks), mean, std


def _softmax(z: Array) -> Array:
    weights = np.exp(z - z.max())
    probs: Array = weights / weights.sum()
    return probs


# --- The job ------------------------------------------------------------------------------------------------


class _Clock:
    """Numbers and dates the events of one job."""

    def __init__(self) -> None:
        self.job_id, self._seq = new_id(), 0

    def head(self) -> dict[str, Any]:
        self._seq += 1
        return {"job_id": self.job_id, "seq": self._seq - 1, "at": time.time()}


async def train_sft(
    settings: Settings,
    pool: Members,
    replies: ReplyStore,
    backbone: Backbone,
    tasks: Sequence[Task],
    *,
    seed: int = 1,
    rounds: int = 1,
) -> AsyncIterator[AnyJobEvent]:
    """Fit a linear head on the training tasks and save it; the last event is JobFinished with the checkpoint id.

    `rounds` times the head's own situations are added and it is fitted anew. Interrupting loses no agent call: the
    next training finds all replies in the store. Raises AgentError when an agent cannot be reached.
    """
    clock = _Clock()
    train = [task for task in tasks if task.split == "train"]
    held = [task for task in tasks if task.split == "validation"]
    params = {"method": "sft", "rounds": rounds, "tasks": len(train), "discount": DISCOUNT, "tau": TEMPERATURE}
    yield JobStarted(**clock.head(), kind="train", params=params, seed=seed)
    recall, rng = Recall(pool, replies), np.random.default_rng(seed)
    measure, features = Measure(recall), Features(backbone)
    visits: list[Visit] = []
    for i, task in enumerate(train):
        visits += await explore(measure, task, rng)
        yield Progress(**clock.head(), done=i + 1, total=len(train), unit="task", message="Measuring agents")
    head = _HeadMaker(backbone, pool.names, seed, params)
    checkpoint: Checkpoint | None = None
    for number in range(rounds + 1):
        if checkpoint is not None:
            policy = _Candidate(checkpoint, features)
            for i, task in enumerate(train):
                visits += await follow(policy, recall, task)
                yield Progress(
                    **clock.head(), done=i + 1, total=len(train), unit="task", message="Following the head"
                )
        visits = list({canonical([v.task.id, v.situation.turns]): v for v in visits}.values())
        rows: list[Examples] = []
        for start in range(0, len(visits), 50):
            rows.append(await examples(visits[start : start + 50], measure, features, pool.names, lambda: None))
            done = min(start + 50, len(visits))
            yield Progress(**clock.head(), done=done, total=len(visits), unit="state", message="Encoding situations")
        data = Examples(*(np.concatenate([getattr(r, n) for r in rows]) for n in Examples.__slots__))
        tried = []
        for penalty in PENALTIES:
            candidate = head.make(*fit(data, penalty), penalty=penalty, states=len(visits))
            played = await play_all(held, recall, _Candidate(candidate, features), seed=seed)
            tried.append((score(f"round {number}, L2 {penalty:g}", played), candidate))
            yield _validation(clock, tried[-1][0], number)
        best, checkpoint = max(tried, key=lambda pair: pair[0].accuracy - TURN_COST * pair[0].mean_turns)
        yield JobNote(**clock.head(), kind="fitted", message=f"{len(visits)} situations; kept {best.name}")
    assert checkpoint is not None
    path = checkpoint.save(settings.checkpoints)
    yield CheckpointSaved(**clock.head(), checkpoint_id=checkpoint.id, path=str(path))
    result = {"checkpoint_id": checkpoint.id, "path": str(path), "validation": plain(best)}
    yield JobFinished(**clock.head(), status=Status.DONE, message=str(best), result=result)


@dataclass(frozen=True)
class _HeadMaker:
    """Makes checkpoints of one training."""

    backbone: Backbone
    agents: tuple[str, ...]
    seed: int
    params: dict[str, Any]

    def make(self, w: Array, mean: Array, std: Array, **record: Any) -> Checkpoint:
        meta = Meta(
            backbone_id=self.backbone.id,
            backbone_revision=self.backbone.revision,
            hidden_size=self.backbone.hidden_size,
            agents=tuple(self.agents),
            normalisation="standardise",
            seed=self.seed,
            training={**self.params, **record},
        )
        return Checkpoint(meta, w.ravel(), mean, std)


def _validation(clock: _Clock, scored: Score, number: int) -> Validation:
    return Validation(
        **clock.head(),
        name=scored.name,
        n=scored.n,
        accuracy=scored.accuracy,
        low=scored.low,
        high=scored.high,
        mean_turns=scored.mean_turns,
        number=number,
    )


async def compare(
    policy: Policy, tasks: Sequence[Task], pool: Members, *, seed: int = 1
) -> dict[str, tuple[Played, ...]]:
    """Outcomes of the coordinator, each single agent, random choices, and the best single agent of each task."""
    played = {"coordinator": await play_all(tasks, pool, policy, seed=seed)}
    singles = {f"single {name}": await play_single(tasks, pool, name) for name in pool.names}
    played |= singles
    played["random policy"] = await play_all(tasks, pool, RandomPolicy(), seed=seed)
    played["best agent per question"] = best_per_question(singles.values())
    return played
