"""What a training is to do, as one frozen record, and what can be said about it before it starts.

A `Plan` is stored whole with its training run, so that a resumed training is the same training. Defaults are those
that learn on the embedded pool; λ and μ follow the paper (section 3: λ = ⌈4 + 3 ln n⌉, μ = ⌊λ/2⌋) and are always
stored as numbers. One *evaluation* is one candidate on one task (the paper's atomic evaluation), however computed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from trinity_core import wire
from trinity_core.agents.pool import KINDS
from trinity_core.coordinator import transcript
from trinity_core.coordinator.checkpoint import Position
from trinity_core.coordinator.heads import NORMALISATIONS, head_class
from trinity_core.errors import InputError, did_you_mean
from trinity_core.tasks.task import Task
from trinity_core.types import AgentSpec, Limits, Role

Method = Literal["evolve", "random", "reinforce", "sft"]
Estimator = Literal["expectation", "sampled"]
METHODS: tuple[str, ...] = get_args(Method)
ESTIMATORS: tuple[str, ...] = get_args(Estimator)

MIN_TASKS = 8
"""Fewest training tasks: with less, a generation cannot tell a good head from a lucky one."""
LOCAL_KINDS = frozenset(name for name, kind in KINDS.items() if not kind.remote)
"""Kinds of agent that work on this machine, so that a call costs no money."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A training, whole. `population` None means λ = ⌈4 + 3 ln n⌉; `head_params` are those of the head's kind.

    `limits` bounds calls, tokens and dollars spent on agents; `evaluations` bounds candidates times tasks. Fitness is
    accuracy less `turn_cost` a turn, `token_cost` per thousand tokens and `money_cost` per dollar of the replies on
    the path (whether or not they were stored already), plus `entropy` times the agents' entropy in nats (shaping, 0
    is off). `branch` is the probability from which a branch is enumerated; `runs` is the number of independent
    estimates averaged. `warm_start` is a checkpoint's id. `agent_fixed` and `roles_open` serve ablations.
    """

    method: Method = "evolve"
    head: str = "linear"
    head_params: Mapping[str, Any] = field(default_factory=dict)
    svf: bool = False
    seed: int = 1
    evaluations: int = 20_000
    limits: Limits = field(default_factory=Limits)
    population: int | None = None
    sigma: float = 1.0
    tasks_per_candidate: int = 16
    runs: int = 1
    estimator: Estimator = "expectation"
    branch: float = 0.02
    max_turns: int = 3
    local_tokens: int = 64
    remote_tokens: int = 4096
    turn_cost: float = 0.02
    token_cost: float = 0.0
    money_cost: float = 0.0
    entropy: float = 0.0
    normalisation: str = "standardise"
    position: Position = -2
    suffix: str = transcript.SUFFIX
    validate_every: int = 10
    warm_start: str | None = None
    leave_out: str | None = None
    families: tuple[str, ...] = ()
    agent_fixed: str | None = None
    roles_open: tuple[Role, ...] = (Role.WORKER, Role.THINKER, Role.VERIFIER)
    follow_thinker: bool = True

    def __post_init__(self) -> None:
        _one_of("method", self.method, METHODS)
        _one_of("estimator", self.estimator, ESTIMATORS)
        _one_of("normalisation", self.normalisation, NORMALISATIONS)
        head_class(self.head)
        for name, low, high in _WHOLE:
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InputError(f"{name} is {value}; it must be a whole number from {low:,} to {high:,}.")
        for name, least, most in _REAL:
            value = getattr(self, name)
            if not (math.isfinite(value) and least <= value <= most):
                raise InputError(f"{name} is {value}; it must be a number from {least:g} to {most:g}.")
        if self.sigma <= 0:
            raise InputError("sigma is the first step size and must be above 0.")
        if Role.WORKER not in self.roles_open:
            raise InputError("Without the Worker role nobody answers; keep it open.")

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = wire.plain(self)
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Plan:
        """Raises InputError for an unknown field or a value that cannot be."""
        return wire.record(cls, dict(value))


_WHOLE: tuple[tuple[str, int, int], ...] = (
    ("seed", 0, 2**63 - 1),
    ("evaluations", 1, 10**9),
    ("population", 4, 10_000),
    ("tasks_per_candidate", 1, 10_000),
    ("runs", 1, 1_000),
    ("max_turns", 1, 10),
    ("local_tokens", 8, 100_000),
    ("remote_tokens", 8, 1_000_000),
    ("validate_every", 0, 1_000_000),
)
_REAL: tuple[tuple[str, float, float], ...] = (
    ("sigma", 0.0, 1e6),
    ("branch", 0.0, 1.0),
    ("turn_cost", 0.0, 1.0),
    ("token_cost", 0.0, 1e3),
    ("money_cost", 0.0, 1e6),
    ("entropy", 0.0, 10.0),
)


def _one_of(what: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise InputError(f"Unknown {what} {value!r}; there are {', '.join(known)}.{did_you_mean(value, known)}")


def population(dimension: int) -> int:
    """λ = ⌈4 + 3 ln n⌉ for n parameters (paper, section 3; pycma would round down)."""
    return math.ceil(4 + 3 * math.log(dimension))


@dataclass(frozen=True, slots=True)
class Rates:
    """What preflight assumes. `seconds` of one agent call by agent name, `encode_s` of one transcript's forward pass,
    `tokens` and `cost` (None: unknown) of one call by agent name."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    encode_s: float = 0.1
    tokens: Mapping[str, int] = field(default_factory=dict)
    cost: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a training would be. With `problems` it cannot start; `warnings` are worth reading first.

    `calls`, `tokens`, `cost` and `seconds` are upper estimates: every situation that the training could ask about on
    its tasks, none of them stored yet. `cost` is None when a remote member's price is unknown."""

    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    train: int
    validation: int
    families: Mapping[str, int]
    dimension: int
    population: int
    generations: int
    evaluations: int
    calls: int
    tokens: int
    cost: float | None
    seconds: float

    @property
    def ready(self) -> bool:
        return not self.problems


def usable(plan: Plan, tasks: Sequence[Task]) -> tuple[list[Task], list[Task]]:
    """(training, validation) tasks of `plan` in a fixed order: family chosen, family not left out."""
    wanted = [
        task
        for task in sorted({task.id: task for task in tasks}.values(), key=lambda task: task.id)
        if task.family != plan.leave_out and (not plan.families or task.family in plan.families)
    ]
    return [t for t in wanted if t.split == "train"], [t for t in wanted if t.split == "validation"]


def preflight(
    plan: Plan,
    tasks: Sequence[Task],
    agents: Sequence[AgentSpec],
    hidden_size: int,
    *,
    svf_scales: int = 0,
    rates: Rates | None = None,
    trouble: Callable[[Task], str | None] = lambda task: None,
) -> Preflight:
    """Say what `plan` would do on these tasks and this pool, and refuse what cannot work.

    `trouble` says why a task cannot be graded here, or None. Such tasks are left out and named in a warning.
    """
    rates = rates or Rates()
    problems: list[str] = []
    warnings: list[str] = []
    found = [(task, trouble(task)) for task in tasks]
    reasons = Counter(why for _, why in found if why is not None)
    for why, count in reasons.most_common():
        warnings.append(f"{count} task(s) are left out: {why}")
    train, validation = usable(plan, [task for task, why in found if why is None])
    names = [spec.name for spec in agents]
    if not train:
        problems.append("There are no training tasks. Add tasks in the Tasks tab, or choose the built-in families.")
    elif len(train) < MIN_TASKS:
        problems.append(f"There are {len(train)} training tasks; at least {MIN_TASKS} are needed. Label some more.")
    if train and len({(task.reference.strip().casefold()) for task in train}) == 1:
        problems.append(
            f"All training tasks have the same reference answer ({train[0].reference[:40]!r}), so there is nothing "
            "to learn from them. Add tasks with other answers."
        )
    if len(validation) < MIN_TASKS:
        warnings.append(
            f"There are {len(validation)} validation tasks, so how good the result is will be uncertain. The split "
            "goes by the hash of a task; more tasks give more of them."
        )
    if not names:
        problems.append("The pool has no members that are switched on. Switch some on in the Pool tab.")
    elif len(names) == 1:
        warnings.append("The pool has one member only, so only the roles can be learned.")
    if plan.agent_fixed is not None and plan.agent_fixed not in names:
        problems.append(f"The fixed agent {plan.agent_fixed!r} is not in the pool.")
    if plan.leave_out and not any(task.family == plan.leave_out for task in tasks):
        known = sorted({task.family for task in tasks})
        problems.append(f"No task has the family {plan.leave_out!r}.{did_you_mean(plan.leave_out, known)}")
    if plan.method in ("reinforce", "sft") and plan.head != "linear":
        problems.append(f"{plan.method} trains linear heads only. Choose evolve or random for {plan.head}.")
    if plan.method in ("reinforce", "sft") and plan.svf:
        problems.append(f"{plan.method} does not train SVF scales. Choose evolve or random, or leave SVF off.")
    rows = len(names) + len(Role)
    dimension = head_class(plan.head).size(rows, hidden_size, plan.head_params) + (svf_scales if plan.svf else 0)
    size = plan.population or population(max(dimension, 1))
    per_task = min(plan.tasks_per_candidate, max(len(train), 1))
    each = size * per_task * plan.runs
    generations = plan.evaluations // each
    if generations == 0:
        problems.append(
            f"The budget of {plan.evaluations:,} evaluations is below one generation ({size} candidates on "
            f"{per_task} tasks, {plan.runs} run(s): {each:,}). Raise the budget, or lower the tasks per candidate."
        )
    seen = min(len(train), generations * per_task) + len(validation)
    calls = seen * _moves(len(names), plan.max_turns)
    tokens = round(calls * _mean([rates.tokens.get(name, 400) for name in names]))
    costs = [rates.cost.get(spec.name, 0.0 if spec.kind in LOCAL_KINDS else None) for spec in agents]
    cost = None if None in costs else calls * _mean([c or 0.0 for c in costs])
    if plan.limits.cost is not None and cost is None:
        problems.append(
            "A limit in dollars is set, but the price of a member is not known. Give its price in the Pool tab, or "
            "lift the limit."
        )
    seconds = calls * (_mean([rates.seconds.get(name, 0.2) for name in names]) + rates.encode_s)
    return Preflight(
        problems=tuple(problems),
        warnings=tuple(warnings),
        train=len(train),
        validation=len(validation),
        families=dict(Counter(task.family or "(none)" for task in train)),
        dimension=dimension,
        population=size,
        generations=generations,
        evaluations=generations * each,
        calls=calls,
        tokens=tokens,
        cost=cost,
        seconds=seconds,
    )


def _moves(agents: int, turns: int) -> int:
    """An upper estimate of the distinct requests of one task: equal situations give equal requests, so an agent in a
    role is asked once for each (answer, plan) that it can meet; beyond the second turn most of them repeat."""
    return agents * 2 + agents * agents * 2 * max(0, turns - 1)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
