"""How good a coordinator is, beside what else could be done with the same pool (paper, section 4).

Every task is answered by the coordinator, by each single agent, by random choices and, after the fact, by the best
single agent of that task (a ceiling for choosing one agent). A single agent answers in one turn and may use as many
tokens as K turns would: the same cap for both would hand the coordinator K times the budget.

Invariants: an agent that fails is no wrong answer. A run that failed is tried once more, then counted apart and left
out, with its reason, and a method on which nothing could be scored is a row without numbers, not an error. With
several repeats a task is solved when more than half of its scored runs are right; a tie is not enough. Methods are
compared on the tasks that both were scored on, and what the data cannot tell apart is called inconclusive. Tokens and
dollars are those of the replies that made up the run, whether they were stored before or not.

The best single agent is chosen on the same tasks, which favours it. Not covered: choosing anything by these numbers
(that is what validation tasks are for).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from trinity_core import wire
from trinity_core.agents import prices
from trinity_core.agents.meter import SPECIALISTS
from trinity_core.agents.recall import Recall
from trinity_core.agents.replies import ReplyStore
from trinity_core.coordinator.policy import Policy, RandomPolicy
from trinity_core.errors import AgentError, InputError, TrinityError
from trinity_core.session.loop import Members
from trinity_core.session.methods import SinglePolicy
from trinity_core.tasks.graders import grade, grader_for
from trinity_core.tasks.task import Task
from trinity_core.training.rollout import answer_of, complete, wilson
from trinity_core.training.short import writes
from trinity_core.types import (
    AgentSpec,
    AnyJobEvent,
    Failure,
    JobFinished,
    JobNote,
    JobStarted,
    Mode,
    Progress,
    RunParams,
    Status,
    StopReason,
    TurnFinished,
    Usage,
    Validation,
)

AT_ONCE = 8
"""Runs under way at once where a member is remote. Local models answer one call at a time anyway."""
RESAMPLES = 2000
"""Of the bootstrap."""
LEVEL = 0.05
"""A difference counts when chance alone makes one as large less often than this."""

Verdict = Literal["better", "worse", "inconclusive"]
Told = Callable[[str, int, int], None]
"""Is called with what is being done, how many runs are done and how many there will be."""

COORDINATOR, RANDOM, CEILING, SINGLE = "coordinator", "random policy", "best agent per question", "single "


# --- What comes out -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """One method. Accuracy is the share of the `n` scored tasks that it solved, with a 95 % Wilson interval.

    `failed` counts tasks on which no run could be scored, `reasons` says why with counts. Means are over scored runs;
    `cost_per_100` is in dollars for a hundred questions. A number is None when it is not known, and all are when
    nothing was scored. `families` maps a family to (solved, scored) tasks. `calls` are calls to agents made just now.
    """

    name: str
    n: int
    failed: int
    accuracy: float | None = None
    low: float | None = None
    high: float | None = None
    mean_turns: float | None = None
    mean_tokens: float | None = None
    cost_per_100: float | None = None
    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    reasons: Mapping[str, int] = field(default_factory=dict)
    families: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`first` against `second` on the `n` tasks that both were scored on, with 95 % intervals of a paired bootstrap.

    `reduction` is (error of second - error of first) / error of second: None where the second made no error, and a
    bound is None where it has none. `difference` is in accuracy. `p` is that of an exact two-sided sign test over
    the tasks that one solved and the other did not (McNemar, 1947).
    """

    first: str
    second: str
    n: int
    verdict: Verdict
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    reduction: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None

    def __str__(self) -> str:
        """One or two sentences for the user."""
        if not self.n or self.difference is None:
            return f"{self.first} and {self.second} share no scored question, so nothing can be said: inconclusive."
        said = {
            "better": f"{self.first} is better than {self.second}",
            "worse": f"{self.first} is worse than {self.second}",
            "inconclusive": f"Whether {self.first} or {self.second} is better is inconclusive",
        }[self.verdict]
        points = (
            f"{100 * self.difference:+.1f} points of accuracy, 95 % interval {_signed(self.difference_low)} to "
            f"{_signed(self.difference_high)}, n={self.n}, p={self.p:.2g}"
        )
        if self.reduction is None:
            return f"{said} ({points}). {self.second} made no error here, so there is none to reduce."
        bounds = f"95 % interval {_percent(self.low)} to {_percent(self.high)}"
        return f"{said} ({points}). Relative error reduction: {_percent(self.reduction)} ({bounds})."


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Rows in the order coordinator, single agents, random policy, best agent per question; and what they say.

    `left_out` counts tasks that could not be graded at all, by reason.
    """

    rows: tuple[Row, ...]
    tasks: int
    max_turns: int
    repeats: int
    seed: int
    checkpoint_id: str | None = None
    best_single: str | None = None
    against_single: Comparison | None = None
    against_random: Comparison | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def coordinator(self) -> Row:
        return self.rows[0]

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = wire.plain(self)
        return value

    def notes(self) -> tuple[str, ...]:
        """What was left out, in words."""
        said = [f"{count} task(s) left out: {why}" for why, count in self.left_out.items()]
        for row in self.rows:
            if row.failed:
                why = "; ".join(f"{count} x {reason}" for reason, count in Counter(row.reasons).most_common(3))
                said.append(f"{row.name}: {row.failed} question(s) failed and are left out, not wrong ({why})")
        return tuple(said)

    def sentences(self) -> tuple[str, ...]:
        """The verdicts."""
        if not self.coordinator.n:
            return ("Nothing that the coordinator did could be scored, so there is no verdict.",)
        return tuple(str(found) for found in (self.against_single, self.against_random) if found is not None)

    def table(self) -> str:
        """The rows as text with aligned columns."""
        head = ("method", "accuracy", "95 % interval", "n", "failed", "turns", "tokens", "$ per 100")
        lines = [head, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]

        def text(line: tuple[str, ...]) -> str:
            numbers = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
            return "  ".join((line[0].ljust(widths[0]), *numbers))

        return "\n".join(map(text, lines))


def _cells(row: Row) -> tuple[str, ...]:
    interval = "-" if row.low is None or row.high is None else f"{100 * row.low:.1f} to {100 * row.high:.1f}"
    return (
        row.name,
        _percent(row.accuracy),
        interval,
        str(row.n),
        str(row.failed),
        "-" if row.mean_turns is None else f"{row.mean_turns:.2f}",
        "-" if row.mean_tokens is None else f"{row.mean_tokens:.0f}",
        "unknown" if row.cost_per_100 is None and row.n else "-" if row.cost_per_100 is None else _money(row),
    )


def _money(row: Row) -> str:
    return f"{row.cost_per_100:.4f}" if row.cost_per_100 else "0"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _signed(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:+.1f}"


# --- One run ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Run:
    """One run: graded, or (`correct` None) failed with a reason."""

    correct: bool | None
    reason: str = ""
    turns: int = 0
    tokens: int | None = None
    cost: float | None = None
    usage: Usage = field(default_factory=Usage)
    calls: int = 0


async def _play(task: Task, members: Members, policy: Policy, seed: int, params: RunParams) -> _Run:
    """Run the loop on `task` and grade its answer as `rollout.play` does; a run that failed is tried once more."""
    calls = 0
    outcome = _Run(None)
    for _ in range(2):
        try:
            outcome = await _once(task, members, policy, seed, params)
        except TrinityError as error:  # the question or the grader cannot be used, which no second try changes
            return _Run(None, wire.redact(str(error)), calls=calls)
        calls += outcome.calls
        if outcome.correct is not None or outcome.reason.startswith(_BUDGET):
            break
    return replace(outcome, calls=calls)


_BUDGET = "a budget ended the run before there was an answer"


async def _once(task: Task, members: Members, policy: Policy, seed: int, params: RunParams) -> _Run:
    try:
        last, done = await complete(task, members, policy, seed, params)
    except AgentError as error:
        return _Run(None, wire.redact(str(error)))
    if last.status is not Status.DONE:
        return _Run(None, last.error.message if last.error else f"the run ended as {last.status}", calls=_made(done))
    answer = answer_of(task, last, done)
    if answer is None and last.stop_reason is StopReason.BUDGET:
        return _Run(None, _BUDGET, calls=_made(done))
    specs = {spec.name: spec for spec in members.specs}
    return _Run(
        correct=answer is not None and grade(task, answer).correct,
        turns=last.totals.turns,
        tokens=_total(_tokens(turn, specs[turn.agent]) for turn in done),
        cost=_total(_cost(turn, specs[turn.agent]) for turn in done),
        usage=sum((turn.usage for turn in done), Usage()),
        calls=_made(done),
    )


def _made(done: Iterable[TurnFinished]) -> int:
    """Calls that were made now; a stored reply is none."""
    return sum(turn.calls for turn in done if not turn.reused)


def _tokens(turn: TurnFinished, spec: AgentSpec) -> int | None:
    """Tokens in and out of one call. None when a reply did not tell; of a failed call counts what is known."""
    known = [count for count in (turn.usage.input, turn.usage.output) if count is not None]
    if not known and turn.error is None and spec.kind not in SPECIALISTS and prices.remote(spec):
        return None
    return sum(known)


def _cost(turn: TurnFinished, spec: AgentSpec) -> float | None:
    """Dollars of one call. A stored reply costs what asking for it costs; of a failed call counts what is known."""
    if turn.cost is not None:
        return turn.cost
    return 0.0 if turn.error is not None else prices.price(spec, turn.usage)


def _total(parts: Iterable[Any]) -> Any:
    """The sum, or None when a part is not known."""
    known = list(parts)
    return None if any(part is None for part in known) else sum(known)


# --- Many runs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Method:
    name: str
    policy: Policy
    pool: Members
    params: RunParams
    at_once: int


def _methods(policy: Policy, pool: Members, singles: Members, params: RunParams) -> list[_Method]:
    remote = {spec.name: prices.remote(spec) for spec in pool.specs}
    together = AT_ONCE if any(remote.values()) else 1
    found = [_Method(COORDINATOR, policy, pool, params, together)]
    for spec in singles.specs:
        sampling = params.sampling
        if writes(spec):
            sampling = replace(sampling, max_tokens=sampling.max_tokens * params.max_turns)
        alone = replace(params, max_turns=1, mode=Mode.ARGMAX, sampling=sampling)
        at_once = AT_ONCE if prices.remote(spec) else 1
        found.append(_Method(SINGLE + spec.name, SinglePolicy(spec.name), singles, alone, at_once))
    found.append(_Method(RANDOM, RandomPolicy(), pool, params, together))
    return found


async def _in_turn(work: Iterable[Callable[[], Coroutine[Any, Any, Any]]], at_once: int) -> AsyncIterator[Any]:
    """Results as they come, at most `at_once` under way; closing it cancels what is."""
    waiting, running = deque(work), set[asyncio.Task[Any]]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.add(asyncio.ensure_future(waiting.popleft()()))
            ready, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in ready:
                yield task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Step:
    what: str
    done: int
    total: int


def _graded(tasks: Sequence[Task]) -> tuple[list[Task], dict[str, int]]:
    """The tasks without doubles whose grader is known, and the others' reasons with counts."""
    good: list[Task] = []
    left: Counter[str] = Counter()
    for task in {task.id: task for task in tasks}.values():
        try:
            grader_for(task)
            good.append(task)
        except InputError:
            left[f"the grader {task.grader!r} is not known"] += 1
    return good, dict(left)


async def _steps(
    policy: Policy,
    tasks: Sequence[Task],
    pool: Members,
    *,
    params: RunParams,
    seed: int,
    singles: Members | None,
    replies: ReplyStore | None,
    repeats: int,
) -> AsyncIterator[_Step | Row | Evaluation]:
    """Steps as they are done, each row once it is whole, and the evaluation last."""
    if repeats < 1:
        raise InputError(f"repeats is {repeats}; a task must be answered at least once.")
    good, left_out = _graded(tasks)
    if not tasks:
        raise InputError("There are no tasks to evaluate on. Choose another split or family, or add tasks.")
    methods = _methods(policy, pool, singles or pool, params)
    total, count = len(methods) * len(good) * repeats, 0
    rows: dict[str, Row] = {}
    results: dict[str, dict[str, list[_Run]]] = {}
    for method in methods:
        runs: dict[str, list[_Run]] = {task.id: [] for task in good}

        def work(index: int, task: Task, sample: int, method: _Method = method) -> Any:
            members = method.pool if replies is None else Recall(method.pool, replies, sample=sample)
            number = seed + sample * len(good) + index

            async def answered() -> tuple[str, _Run]:
                return task.id, await _play(task, members, method.policy, number % 2**63, method.params)

            return answered

        queue = [work(i, task, sample) for sample in range(repeats) for i, task in enumerate(good)]
        async with aclosing(_in_turn(queue, method.at_once)) as outcomes:  # type: ignore[type-var]
            async for id, outcome in outcomes:
                runs[id].append(outcome)
                count += 1
                yield _Step(method.name, count, total)
        results[method.name] = runs
        rows[method.name] = _row(method.name, good, runs)
        yield rows[method.name]
    one_each = [results[name] for name in results if name.startswith(SINGLE)]
    rows[CEILING] = _row(CEILING, good, {task.id: _ceiling([runs[task.id] for runs in one_each]) for task in good})
    yield rows[CEILING]
    best = _best([row for name, row in rows.items() if name.startswith(SINGLE)])
    solved = {name: _solved_by_task(runs) for name, runs in results.items()}

    def against(other: str | None) -> Comparison | None:
        return None if other is None else compare(COORDINATOR, solved[COORDINATOR], other, solved[other], seed=seed)

    order = [COORDINATOR, *(name for name in rows if name.startswith(SINGLE)), RANDOM, CEILING]
    yield Evaluation(
        rows=tuple(rows[name] for name in order),
        tasks=len(good),
        max_turns=params.max_turns,
        repeats=repeats,
        seed=seed,
        checkpoint_id=policy.checkpoint_id,
        best_single=best,
        against_single=against(best),
        against_random=against(RANDOM),
        left_out=left_out,
    )


async def evaluate(
    policy: Policy,
    tasks: Sequence[Task],
    pool: Members,
    *,
    params: RunParams | None = None,
    seed: int = 0,
    progress: Told = lambda what, done, total: None,
    singles: Members | None = None,
    replies: ReplyStore | None = None,
    repeats: int = 1,
) -> Evaluation:
    """Measure `policy` and what it is compared with on `tasks`.

    `singles` are the same members for the runs of one agent, with the caps of their own (`max_tokens`) raised by the
    number of turns (`short.longer`); without it only the request's cap is. With `replies` every reply is stored once
    and a second evaluation calls nobody. Run i of repeat r has the seed `seed + r * len(tasks) + i`; only sampled
    choices depend on it. Raises InputError when there are no tasks. Agents that fail raise nothing.
    """
    found: Evaluation | None = None
    steps = _steps(
        policy,
        tasks,
        pool,
        params=params or RunParams(),
        seed=seed,
        singles=singles,
        replies=replies,
        repeats=repeats,
    )
    async with aclosing(steps) as events:  # type: ignore[type-var]
        async for step in events:
            if isinstance(step, _Step):
                progress(step.what, step.done, step.total)
            elif isinstance(step, Evaluation):
                found = step
    assert found is not None
    return found


async def evaluation(
    policy: Policy,
    tasks: Sequence[Task],
    pool: Members,
    *,
    params: RunParams | None = None,
    seed: int = 0,
    singles: Members | None = None,
    replies: ReplyStore | None = None,
    repeats: int = 1,
) -> AsyncIterator[AnyJobEvent]:
    """`evaluate` as a job of kind "eval": a Validation a row, and last JobFinished with the Evaluation as its result.

    Where nothing that the coordinator did could be scored, it ends as failed, and still with the whole result.
    """
    params = params or RunParams()
    job_id, numbers = wire.new_id(), iter(range(2**63))

    def head() -> dict[str, Any]:
        return {"job_id": job_id, "seq": next(numbers), "at": time.time()}

    told = {
        "checkpoint_id": policy.checkpoint_id,
        "tasks": len(tasks),
        "max_turns": params.max_turns,
        "repeats": repeats,
    }
    yield JobStarted(**head(), kind="eval", params=told, seed=seed)
    steps = _steps(policy, tasks, pool, params=params, seed=seed, singles=singles, replies=replies, repeats=repeats)
    async with aclosing(steps) as events:  # type: ignore[type-var]
        async for step in events:
            if isinstance(step, _Step):
                yield Progress(**head(), done=step.done, total=step.total, unit="run", message=f"Asking {step.what}")
            elif isinstance(step, Row) and step.accuracy is not None and step.low is not None:
                yield Validation(
                    **head(),
                    name=step.name,
                    n=step.n,
                    accuracy=step.accuracy,
                    low=step.low,
                    high=step.high or 0.0,
                    mean_turns=step.mean_turns,
                    usage=step.usage,
                    cost=None if step.cost_per_100 is None else step.cost_per_100 * step.n / 100,
                )
            elif isinstance(step, Row):
                yield JobNote(**head(), kind="unscored", message=f"{step.name}: nothing could be scored")
            else:
                for note in step.notes():
                    yield JobNote(**head(), kind="left_out", message=note)
                nothing = not step.coordinator.n
                message = " ".join(step.sentences())
                yield JobFinished(
                    **head(),
                    status=Status.FAILED if nothing else Status.DONE,
                    message=message,
                    result=step.to_json(),
                    error=Failure("unscored", message) if nothing else None,
                )


# --- Summing up ---------------------------------------------------------------------------------------------


def solved(runs: Sequence[bool]) -> bool | None:
    """Whether a task counts as solved by its scored runs: more than half are right. None when there are none."""
    return None if not runs else 2 * sum(runs) > len(runs)


def _scored(runs: Iterable[_Run]) -> list[_Run]:
    return [one for one in runs if one.correct is not None]


def _solved_by_task(runs: Mapping[str, Sequence[_Run]]) -> dict[str, bool]:
    by_task = {id: solved([bool(one.correct) for one in _scored(many)]) for id, many in runs.items()}
    return {id: won for id, won in by_task.items() if won is not None}


def _ceiling(columns: Sequence[Sequence[_Run]]) -> list[_Run]:
    """The runs of the agent that solved the task. Where none did and one failed, nobody knows: that is a failure."""
    known = [column for column in columns if _scored(column)]
    for column in known:
        if solved([bool(one.correct) for one in _scored(column)]):
            return [replace(one, calls=0) for one in column]
    if len(known) < len(columns):
        return [_Run(None, "no agent was right and some failed")]
    return [replace(one, calls=0) for one in known[0]] if known else []


def _row(name: str, tasks: Sequence[Task], runs: Mapping[str, Sequence[_Run]]) -> Row:
    won = _solved_by_task(runs)
    flat = [one for task in tasks for one in _scored(runs[task.id])]
    lost = [runs[task.id] for task in tasks if task.id not in won]
    reasons = Counter(next((one.reason for one in many if one.reason), "it was not run") for many in lost)
    calls = sum(one.calls for many in runs.values() for one in many)
    if not won:
        return Row(name, 0, len(lost), calls=calls, reasons=dict(reasons))
    right = sum(won.values())
    low, high = wilson(right, len(won))
    families: dict[str, tuple[int, int]] = {}
    for task in tasks:
        if task.id in won:
            had = families.get(task.family, (0, 0))
            families[task.family] = (had[0] + won[task.id], had[1] + 1)
    tokens, cost = _total(one.tokens for one in flat), _total(one.cost for one in flat)
    return Row(
        name=name,
        n=len(won),
        failed=len(lost),
        accuracy=right / len(won),
        low=low,
        high=high,
        mean_turns=sum(one.turns for one in flat) / len(flat),
        mean_tokens=None if tokens is None else tokens / len(flat),
        cost_per_100=None if cost is None else 100 * cost / len(flat),
        calls=calls,
        usage=sum((one.usage for one in flat), Usage()),
        reasons=dict(reasons),
        families=families,
    )


def _best(rows: Sequence[Row]) -> str | None:
    """The single agent with the highest lower bound: with few scored tasks a high accuracy says little."""
    scored = [row for row in rows if row.low is not None]
    return max(scored, key=lambda row: (row.low or 0.0, row.accuracy or 0.0)).name if scored else None


def compare(
    first: str, one: Mapping[str, bool], second: str, other: Mapping[str, bool], *, seed: int = 0
) -> Comparison:
    """Compare two methods by the tasks (ids) that each solved or did not; see `Comparison`.

    "better" and "worse" ask for both a sign test below 0.05 and an interval of the difference without 0.
    """
    shared = sorted(one.keys() & other.keys())
    if not shared:
        return Comparison(first, second, 0, "inconclusive")
    a = np.array([one[id] for id in shared], dtype=np.float64)
    b = np.array([other[id] for id in shared], dtype=np.float64)
    n = len(shared)
    rng = np.random.default_rng((seed % 2**64, n))
    picked = rng.integers(n, size=(RESAMPLES, n))
    right_a, right_b = a[picked].mean(axis=1), b[picked].mean(axis=1)
    difference = float(a.mean() - b.mean())
    low, high = _interval(right_a - right_b)
    p = sign_test(int(((a == 1) & (b == 0)).sum()), int(((a == 0) & (b == 1)).sum()))
    verdict: Verdict = "inconclusive"
    if p < LEVEL and low is not None and high is not None:
        verdict = "better" if low > 0 else "worse" if high < 0 else verdict
    errors = 1.0 - b.mean()
    reduction = None if errors == 0 else float(difference / errors)
    bounds = (None, None) if reduction is None else _interval(_reductions(1 - right_a, 1 - right_b))
    return Comparison(first, second, n, verdict, difference, low, high, reduction, *bounds, p)


def _reductions(first: Any, second: Any) -> Any:
    """Relative error reductions of resampled errors (RESAMPLES,): 0 where neither side made an error, and no bound
    (-inf) where only the first did."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (second - first) / second
    return np.where(second > 0, ratio, np.where(first > 0, -np.inf, 0.0))


def _interval(values: Any) -> tuple[float | None, float | None]:
    """The middle 95 % of `values`; None for a bound that is not finite."""
    ranked = np.sort(values)
    ends = ranked[int(0.025 * len(ranked))], ranked[math.ceil(0.975 * len(ranked)) - 1]
    low, high = (float(end) if np.isfinite(end) else None for end in ends)
    return low, high


def sign_test(wins: int, losses: int) -> float:
    """The two-sided p of `wins` against `losses` under even chances; 1.0 without either."""
    n = wins + losses
    if n == 0:
        return 1.0
    tail = sum(math.comb(n, k) for k in range(min(wins, losses) + 1))
    return min(1.0, 2 * tail / 2**n)
