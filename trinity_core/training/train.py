"""A training as a job: events out, replies and checkpoints kept, paused and taken up again.

Order of things: `job_started` with the whole plan; calibration (seeded random rollouts give the features' mean and
deviation, kept in checkpoint 0); baselines on the validation tasks; generations; the final pick, re-scored on fresh
runs. A generation is told to the optimiser before its event goes out, and its event is stored before the next one is
asked for, so resuming is replaying the stored fitness through the same optimiser: theta is the same bit for bit.
Tasks and draws of a generation derive from (seed, generation) alone.

Invariants: a budget that is reached in the middle of a generation discards that generation, keeps the last good
checkpoint and ends the job as done; Stop ends it as cancelled, Pause with `job_paused`. Not covered: gradients
(`search`), supervised fitting (`baselines.train_sft`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_core.agents.recall import Recall
from trinity_core.agents.replies import ReplyStore
from trinity_core.coordinator.backbone import Backbone
from trinity_core.coordinator.checkpoint import Checkpoint, Meta
from trinity_core.coordinator.heads import head_class, normalise, population_logits
from trinity_core.errors import CheckpointError, InputError
from trinity_core.session.loop import Members
from trinity_core.tasks.graders import grade_async
from trinity_core.tasks.task import Task
from trinity_core.training.evolve import SepCMA, replay
from trinity_core.training.fitness import BudgetReached, Grading, Logits, Node, Outcomes, Trees, reasons
from trinity_core.training.fitness import Path as Drawn
from trinity_core.training.plan import Plan, population, usable
from trinity_core.training.rollout import wilson
from trinity_core.training.search import RandomSearch
from trinity_core.training.short import Short
from trinity_core.training.states import States, StateStore
from trinity_core.types import (
    AnyJobEvent,
    CheckpointSaved,
    Generation,
    JobFinished,
    JobNote,
    JobPaused,
    JobStarted,
    Progress,
    Role,
    Status,
    Usage,
    Validation,
)
from trinity_core.wire import new_id, plain

Array = NDArray[np.float64]

Search = SepCMA | RandomSearch

CALIBRATION_TASKS = 48
"""Training tasks whose random rollouts give the features' mean and deviation."""


class Control:
    """Pause and Stop of one training; both may be set from any thread and take effect between two steps."""

    def __init__(self) -> None:
        self._pause, self._stop = threading.Event(), threading.Event()

    def pause(self) -> None:
        """End after the current step so that it can be resumed."""
        self._pause.set()

    def stop(self) -> None:
        """End for good, with the last good checkpoint kept."""
        self._stop.set()

    @property
    def wanted(self) -> str | None:
        return "stop" if self._stop.is_set() else "pause" if self._pause.is_set() else None


@dataclass(frozen=True, slots=True)
class Past:
    """What is stored of a training that goes on: fitness of its generations in order, what they spent, the newest
    checkpoint's file."""

    fitness: tuple[tuple[float, ...], ...] = ()
    evaluations: int = 0
    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    checkpoint: Path | None = None


class _Ended(Exception):
    """Pause or Stop was asked for."""


def minibatch(tasks: Sequence[Task], size: int, seed: int, generation: int) -> list[Task]:
    """The tasks of one generation, drawn without replacement: a function of (seed, generation) alone."""
    rng = np.random.default_rng([seed % 2**64, 0x7A5C, generation])
    return [tasks[i] for i in rng.permutation(len(tasks))[: min(size, len(tasks))]]


def head_logits(plan: Plan, rows: int, thetas: Array) -> Logits:
    """Logits (λ, m, rows) of the heads `thetas` (λ, n) at nodes with features."""

    def logits(nodes: Sequence[Node]) -> Array:
        x = np.array([node.x for node in nodes])
        return population_logits(plan.head, plan.head_params, rows, thetas, x)

    return logits


async def train(
    plan: Plan,
    tasks: Sequence[Task],
    pool: Members,
    replies: ReplyStore,
    states: StateStore | None,
    backbone: Backbone,
    folder: Path,
    control: Control,
    *,
    job_id: str | None = None,
    past: Past | None = None,
    warm: Checkpoint | None = None,
    grading: Grading = grade_async,
) -> AsyncIterator[AnyJobEvent]:
    """Train as `plan` says (methods evolve and random); the last event is JobFinished or JobPaused.

    Checkpoints go to `folder`. With `past` the training goes on where it was. Raises InputError for a plan that this
    function does not do, CheckpointError when a checkpoint cannot be written.
    """
    job = _Training(plan, tasks, pool, replies, states, backbone, folder, control, job_id, past, warm, grading)
    async for event in job.events():
        yield event


class _Training:
    def __init__(
        self,
        plan: Plan,
        tasks: Sequence[Task],
        pool: Members,
        replies: ReplyStore,
        states: StateStore | None,
        backbone: Backbone,
        folder: Path,
        control: Control,
        job_id: str | None,
        past: Past | None,
        warm: Checkpoint | None,
        grading: Grading,
    ) -> None:
        if plan.method not in ("evolve", "random"):
            raise InputError(f"The method {plan.method} is not one of evolve and random.")
        if plan.svf:
            raise InputError("SVF scales cannot be trained yet. Leave SVF off.")
        self.backbone, self.folder, self.control = backbone, folder, control
        self.train, self.held = usable(plan, tasks)
        if not self.train:
            raise InputError("There are no training tasks. Add some in the Tasks tab, or use the built-in ones.")
        self.names = tuple(pool.names)
        rows = len(self.names) + len(Role)
        self.size = head_class(plan.head).size(rows, backbone.hidden_size, plan.head_params)
        self.plan = plan = replace(plan, population=plan.population or population(self.size))
        self.pool, self.replies, self.warm = pool, replies, warm
        self.past = past or Past()
        short = Short(pool, local_tokens=plan.local_tokens, remote_tokens=plan.remote_tokens)
        self.outcomes = Outcomes(Recall(short, replies), grading, plan.limits)
        spent = self.outcomes.spent
        spent.made, spent.usage, spent.cost = self.past.calls, self.past.usage, self.past.cost
        self.states = States(backbone, states, plan.suffix, plan.position)
        self.trees = Trees(plan, self.outcomes, self.states, self.names)
        self.job_id, self._seq = job_id or new_id(), 0
        self.rows = rows
        self.mean: Array | None = None
        self.std: Array | None = None
        self.checkpoint: Checkpoint | None = None
        self.evaluations = self.past.evaluations
        self.best: tuple[float, int, Array] | None = None

    def _head(self) -> dict[str, Any]:
        self._seq += 1
        return {"job_id": self.job_id, "seq": self._seq - 1, "at": time.time()}

    def _note(self, kind: str, message: str) -> JobNote:
        return JobNote(**self._head(), kind=kind, message=message)

    def _check(self) -> None:
        if self.control.wanted:
            raise _Ended

    async def events(self) -> AsyncIterator[AnyJobEvent]:
        params = {"plan": self.plan.to_json(), "pool": plain(self.pool.specs), "backbone": self.backbone.id}
        yield JobStarted(**self._head(), kind="train", params=params, seed=self.plan.seed)
        number = len(self.past.fitness)
        optimiser: Search | None = None
        try:
            async for event in self._calibrate():
                yield event
            optimiser = self._optimiser()
            replay(optimiser, self.past.fitness)
            async for event in self._baselines():
                yield event
            each = optimiser.population * min(self.plan.tasks_per_candidate, len(self.train)) * self.plan.runs
            if self.evaluations + each > self.plan.evaluations and number == 0:
                yield self._note(
                    "budget", f"The budget of {self.plan.evaluations:,} evaluations is below one generation."
                )
            while self.evaluations + each <= self.plan.evaluations:
                self._check()
                async for event in self._generation(optimiser, number):
                    yield event
                number += 1
                if self.plan.validate_every and number % self.plan.validate_every == 0:
                    async for event in self._validate(optimiser.centre, number):
                        yield event
            async for event in self._finish(optimiser, number, "The budget of evaluations is used."):
                yield event
        except BudgetReached as reached:
            yield self._note("budget", str(reached))
            if self.checkpoint is None:
                yield JobFinished(
                    **self._head(), status=Status.DONE, message=str(reached), result=self._result(number)
                )
                return
            best = self.best[2] if self.best else self.checkpoint.theta
            async for event in self._save(best, number, str(reached)):
                yield event
            yield JobFinished(**self._head(), status=Status.DONE, message=str(reached), result=self._result(number))
        except _Ended:
            if self.control.wanted == "pause":
                yield JobPaused(**self._head(), reason=f"Paused after generation {number}.")
            else:
                said = f"Stopped after generation {number}."
                yield JobFinished(**self._head(), status=Status.CANCELLED, message=said, result=self._result(number))

    def _result(self, number: int, **more: Any) -> dict[str, Any]:
        made = self.checkpoint
        where = {"checkpoint_id": made.id, "path": str(self.folder / f"{made.id}.safetensors")} if made else {}
        return {**where, "generations": number, "evaluations": self.evaluations, **more}

    # --- Features -------------------------------------------------------------------------------------------

    async def _calibrate(self) -> AsyncIterator[AnyJobEvent]:
        """Mean and deviation of the features: of the stored checkpoint, of the warm start, or measured."""
        kept = self.warm
        if self.past.checkpoint is not None:
            kept = self.checkpoint = Checkpoint.load(self.past.checkpoint)
        if kept is not None:
            kept.check_backbone(self.backbone)
            if self.past.checkpoint is None:
                kept = self.warm = self._fits(kept)
            self.mean, self.std = kept.mean, kept.std
        elif self.plan.normalisation == "standardise":
            zero = head_logits(self.plan, self.rows, np.zeros((1, self.size)))
            uniform = zero if self.plan.head == "linear" else self._uniform
            seen: dict[int, Node] = {}
            tasks = minibatch(self.train, CALIBRATION_TASKS, self.plan.seed, -1 % 2**32)
            for i, task in enumerate(tasks):
                self._check()
                path = await self.trees.follow_path(uniform, task, 2**31, 0)
                node = self.trees.root(task)
                seen[id(node)] = node
                for turn in path.node.path if path else ():
                    node = node.children[turn]
                    if node.x is not None:
                        seen[id(node)] = node
                yield Progress(
                    **self._head(), done=i + 1, total=len(tasks), unit="task", message="Measuring hidden states"
                )
            h = np.array([node.x for node in seen.values() if node.x is not None])
            if len(h) < 2:
                raise InputError(
                    "No task could be played, so there are no hidden states to start from. Test the pool."
                )
            self.mean, std = h.mean(axis=0), h.std(axis=0)
            self.std = np.where(std > 1e-6, std, 1.0)
        self.trees.forget_features()
        self.trees.normalise = partial(normalise, self.plan.normalisation, mean=self.mean, std=self.std)
        if self.past.fitness and self.checkpoint is not None:  # the best validated one; its worth is found again
            theta, since = self.checkpoint.theta, int(self.checkpoint.meta.training.get("generation", 0))
            async for event in self._validate(np.array(theta), since, "validation", keep=since > 0, save=False):
                if isinstance(event, Progress):
                    yield event
        if self.checkpoint is None:
            start = self._start()
            async for event in self._save(start, 0, "The start of the training."):
                yield event

    def _uniform(self, nodes: Sequence[Node]) -> Array:
        return np.zeros((1, len(nodes), self.rows))

    def _fits(self, warm: Checkpoint) -> Checkpoint:
        meta, plan = warm.meta, self.plan
        for what, has, wants in (
            ("head", meta.head, plan.head),
            ("suffix", meta.suffix, plan.suffix),
            ("position", meta.position, plan.position),
            ("normalisation", meta.normalisation, plan.normalisation),
            ("transcript", meta.transcript, self.states.builder_id),
        ):
            if has != wants:
                raise CheckpointError(
                    f"The warm start has the {what} {has!r}, this training uses {wants!r}; its numbers would mean "
                    "something else. Choose another checkpoint, or train with its settings."
                )
        return warm.for_pool(self.names)

    def _start(self) -> Array:
        return np.zeros(self.size) if self.warm is None else np.array(self.warm.theta[self.warm.svf_size :])

    def _optimiser(self) -> Search:
        plan = self.plan
        if plan.method == "random":
            return RandomSearch(self.size, plan.seed, plan.population)
        return SepCMA(self._start(), plan.sigma, plan.seed, plan.population)

    # --- Generations ----------------------------------------------------------------------------------------

    async def _generation(self, optimiser: Search, number: int) -> AsyncIterator[AnyJobEvent]:
        plan, spent = self.plan, self.outcomes.spent
        made, failed, usage, cost = spent.made, spent.failed, spent.usage, spent.cost
        tasks = minibatch(self.train, plan.tasks_per_candidate, plan.seed, number)
        thetas = optimiser.ask()
        logits = head_logits(plan, self.rows, thetas)
        said = [""]
        work = asyncio.ensure_future(self.trees.expect(logits, len(thetas), tasks, number, said.append))
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=1.0)
                self._check()  # a generation that is cut off is done anew; its replies and states are kept
                yield Progress(
                    **self._head(),
                    done=self.evaluations,
                    total=plan.evaluations,
                    unit="evaluation",
                    message=f"Generation {number}: {said[-1]}, {spent.made:,} calls, {self.states.encoded:,} encoded",
                )
            found = work.result()
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work})
        sigma, spread = optimiser.sigma, optimiser.spread
        status = optimiser.tell(found.fitness.tolist())
        self.evaluations += found.evaluations
        yield Generation(
            **self._head(),
            number=number,
            fitness=tuple(found.fitness.tolist()),
            seed=plan.seed,
            sigma=sigma,
            spread=spread,
            accuracies=tuple(found.accuracy.tolist()),
            mean_turns=float(found.turns.mean()),
            skipped=len(found.skipped),
            status=status,
            evaluations=found.evaluations,
            agent_calls=spent.made - made,
            failed_calls=spent.failed - failed,
            usage=_less(spent.usage, usage),
            cost=None if spent.cost is None else spent.cost - (cost or 0.0),
            agent_shares=found.agent_shares,
            role_shares=found.role_shares,
        )
        if found.skipped:
            yield self._note("skipped", f"Generation {number} left out {reasons(found.skipped)}.")
        if spent.failed > failed:
            yield self._note("failed_calls", f"{spent.failed - failed} call(s) failed in generation {number}.")
        if status:
            yield self._note(
                "flat_fitness", f"Generation {number}: all candidates are worth the same, so nothing was learned."
            )

    # --- Held-out tasks -------------------------------------------------------------------------------------

    async def _greedy(self, theta: Array) -> list[Drawn]:
        logits = head_logits(self.plan, self.rows, theta[None, :])
        paths = []
        for task in self.held:
            self._check()
            if (path := await self.trees.follow_path(logits, task, None)) is not None:
                paths.append(path)
        return paths

    def _validation(self, name: str, right: int, n: int, turns: float | None, number: int | None) -> Validation:
        low, high = wilson(right, n)
        return Validation(
            **self._head(),
            name=name,
            n=n,
            accuracy=right / n,
            low=low,
            high=high,
            mean_turns=turns,
            number=number,
        )

    async def _validate(
        self, theta: Array, number: int, name: str = "validation", keep: bool = True, save: bool = True
    ) -> AsyncIterator[AnyJobEvent]:
        """Argmax on the validation tasks; the best so far is saved as a checkpoint."""
        paths = await self._greedy(theta)
        if paths:
            right = sum(path.correct for path in paths)
            turns = sum(path.turns for path in paths) / len(paths)
            yield self._validation(name, right, len(paths), turns, number)
            value = right / len(paths) - self.plan.turn_cost * turns
        else:
            value = -np.inf
        if keep and (self.best is None or value >= self.best[0]):
            self.best = (value, number, np.array(theta))
            if not save:
                return
            async for event in self._save(theta, number, f"The best so far, of generation {number}."):
                yield event

    async def _baselines(self) -> AsyncIterator[AnyJobEvent]:
        """Each agent alone as Worker on the validation tasks, and the best of them for each task."""
        if not self.held or self.past.fitness:
            return
        best = np.zeros(len(self.held), dtype=bool)
        done = 0
        for index, name in enumerate(self.names):
            right = []
            for i, task in enumerate(self.held):
                self._check()
                verdict = await self.trees.alone(task, index)
                done += 1
                if verdict is not None:
                    right.append(verdict)
                    best[i] |= verdict
                yield Progress(
                    **self._head(),
                    done=done,
                    total=len(self.held) * len(self.names),
                    unit="question",
                    message="Measuring single agents",
                )
            if right:
                yield self._validation(f"single {name}", sum(right), len(right), 1.0, None)
        yield self._validation("best agent per question", int(best.sum()), len(best), 1.0, None)

    # --- Checkpoints ----------------------------------------------------------------------------------------

    async def _save(self, theta: Array, number: int, message: str) -> AsyncIterator[AnyJobEvent]:
        plan = self.plan
        training = {"plan": plan.to_json(), "job": self.job_id, "generation": number, "evaluations": self.evaluations}
        meta = Meta(
            backbone_id=self.backbone.id,
            backbone_revision=self.backbone.revision,
            hidden_size=self.backbone.hidden_size,
            agents=self.names,
            suffix=plan.suffix,
            position=plan.position,
            normalisation=plan.normalisation,
            head=plan.head,
            head_params=plan.head_params,
            population=plan.population,
            seed=plan.seed,
            training=training,
        )
        made = Checkpoint(meta, np.asarray(theta, dtype=np.float64), self.mean, self.std)
        path = made.save(self.folder)
        self.checkpoint = made
        yield CheckpointSaved(**self._head(), checkpoint_id=made.id, path=str(path), message=message)

    async def _finish(self, optimiser: Search, number: int, message: str) -> AsyncIterator[AnyJobEvent]:
        """Validate the last centre, pick the best validated one, and re-score it on fresh runs."""
        async for event in self._validate(optimiser.centre, number):
            yield event
        assert self.best is not None
        scored: dict[str, Any] = {}
        if self.held:
            short = Short(self.pool, local_tokens=self.plan.local_tokens, remote_tokens=self.plan.remote_tokens)
            outcomes = Outcomes(Recall(short, self.replies, sample=1), self.outcomes.grading, self.plan.limits)
            outcomes.spent = self.outcomes.spent
            used, self.trees = self.trees, Trees(self.plan, outcomes, self.states, self.names)
            self.trees.normalise = used.normalise
            async for event in self._validate(self.best[2], number, "final", keep=False):
                if isinstance(event, Validation):
                    scored = {"validation": plain(event)}
                yield event
        picked = f"{message} The pick is generation {self.best[1]}."
        yield JobFinished(**self._head(), status=Status.DONE, message=picked, result=self._result(number, **scored))


def _less(now: Usage, before: Usage) -> Usage:
    def part(a: int | None, b: int | None) -> int | None:
        return None if a is None else a - (b or 0)

    return Usage(
        part(now.input, before.input),
        part(now.output, before.output),
        part(now.cached, before.cached),
        part(now.reasoning, before.reasoning),
    )
