"""Fitness of candidates: the expected reward of the policy over what the pool does (paper, section 3: J(θ) = E[R]).

Each task is a tree. A node is a situation of the loop; an edge is an agent in a role, and leads to another
situation or to a graded end. Replies come from `agents.recall`, hidden states from `states`, so nodes and edges are
made once and shared by all candidates of all generations; a candidate is only its logits at the nodes.

`expectation` walks the tree with all candidates at once, level by level: an edge whose path has at least the
probability `branch` is followed; of the others one is drawn and stands for all of them with their whole
probability, or, where that is below `branch`, is kept with probability mass/branch and then stands for `branch`.
Both are unbiased. The draws depend on (seed, generation, run, task, path) alone and are the same for every
candidate. `sampled` draws one path for each candidate and run, on its own.

Invariants: all candidates of a generation see the same tasks, replies and failures. A call that fails is asked for
once more, then its agent is masked below that node for this generation, as the loop would, and for every candidate; a
task on which all agents fail, or whose grader cannot say, is left out for all of them and counted. A failed call is
never scored. Not covered: choosing candidates (`optimisers`), the job (`train`).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trinity_core.agents.meter import worst_case
from trinity_core.answers import final_answer
from trinity_core.coordinator.policy import ROLES, follow
from trinity_core.errors import AgentError, InputError, TrinityError
from trinity_core.session.loop import Members, Situation, finish_turn
from trinity_core.session.roles import render
from trinity_core.tasks.graders import Grade, answer_kind
from trinity_core.tasks.task import Task
from trinity_core.training.plan import Plan
from trinity_core.training.rollout import whole_reply
from trinity_core.training.states import Wanted
from trinity_core.types import Limits, Message, Request, Role, TurnFinished, Usage, Verdict

Array = NDArray[np.float64]

TRIES = 2
"""Calls of one member for one reply before it counts as failed here; members retry on their own besides."""
AT_ONCE = 16
"""Calls under way at once; members have limits of their own."""


class BudgetReached(TrinityError):
    """A limit on calls, tokens or dollars leaves no room for the next call."""


# --- The pool, counted --------------------------------------------------------------------------------------


@dataclass
class Spent:
    """What a training spent on its pool. `made` counts calls that were made, `failed` those without a reply."""

    made: int = 0
    failed: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    reused: int = 0

    def add(self, done: TurnFinished | AgentError) -> None:
        self.made += done.calls
        self.usage = self.usage + (done.usage or Usage())
        if done.cost is not None:
            self.cost = (self.cost or 0.0) + done.cost

    @property
    def tokens(self) -> int:
        return (self.usage.input or 0) + (self.usage.output or 0)


Grading = Callable[[Task, str], Awaitable[Grade]]


@dataclass
class Outcomes:
    """Moves of the pool and their grades: every reply and every grade is asked for once."""

    pool: Members
    grading: Grading
    limits: Limits = field(default_factory=Limits)
    spent: Spent = field(default_factory=Spent)
    _grades: dict[tuple[str, str], Grade] = field(default_factory=dict)
    _aside: list[int] = field(default_factory=lambda: [0, 0])
    _aside_cost: float = 0.0

    async def move(self, situation: Situation, name: str, role: Role) -> TurnFinished | None:
        """What agent `name` does as `role`; None when it failed `TRIES` times. Raises BudgetReached."""
        brief = situation.brief(role)
        agent = self.pool.agent(name)
        request = Request(agent.spec, render(brief), brief)
        for _ in range(TRIES):
            release = self._reserve(request)
            try:
                reply = await whole_reply(agent, request)
            except AgentError as error:
                self.spent.add(error)
                self.spent.failed += 1
                if error.kind in ("resting", "auth", "billing", "bad_request"):
                    break
                continue
            finally:
                release()
            head = {"run_id": "", "seq": 0, "at": 0.0, "turn": len(situation.turns) + 1, "attempt": 1}
            done = finish_turn(head, name, role, reply)
            if done.reused:
                self.spent.reused += 1
            else:
                self.spent.add(done)
            if done.error is None:
                return done
            self.spent.failed += 1
        return None

    def _reserve(self, request: Request) -> Callable[[], None]:
        """Set the most that a call can use aside while it is under way: calls made at once keep the limits."""
        limits, spent = self.limits, self.spent
        if limits == Limits():
            return lambda: None
        worst = worst_case(request)
        if limits.calls is not None and spent.made + self._aside[0] + 1 > limits.calls:
            raise BudgetReached(f"The training may make {limits.calls:,} calls and has made {spent.made:,}.")
        if limits.tokens is not None and spent.tokens + self._aside[1] + worst.tokens > limits.tokens:
            raise BudgetReached(f"The training may use {limits.tokens:,} tokens and has used {spent.tokens:,}.")
        if limits.cost is not None:
            if worst.cost is None:
                raise BudgetReached(f"What {request.agent.name} costs is not known, and a limit in dollars is set.")
            if (spent.cost or 0.0) + self._aside_cost + worst.cost > limits.cost:
                raise BudgetReached(
                    f"The training may cost ${limits.cost:.4f} and has cost ${spent.cost or 0.0:.4f}."
                )
        cost = worst.cost or 0.0
        self._aside[0] += 1
        self._aside[1] += worst.tokens
        self._aside_cost += cost

        def release() -> None:
            self._aside[0] -= 1
            self._aside[1] -= worst.tokens
            self._aside_cost -= cost

        return release

    async def grade(self, task: Task, text: str | None) -> bool:
        """Whether `text` answers the task. Raises InputError when the grader cannot say."""
        if text is None or not text.strip():
            return False
        known = self._grades.get((task.id, text))
        if known is None:
            known = await self.grading(task, text)
            if not known.graded:
                raise InputError(known.explanation)
            self._grades[task.id, text] = known
        return known.correct


# --- Trees --------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Node:
    """A situation of a task. `path` is the way here, (agent index, role index) each; `tokens` and `cost` what its
    replies used. `x` are the features (d,) once they are known; `reward` is 0 or 1 at an end, else None."""

    task: Task
    situation: Situation
    done: tuple[TurnFinished, ...] = ()
    path: tuple[tuple[int, int], ...] = ()
    tokens: float = 0.0
    cost: float = 0.0
    x: Array | None = None
    reward: float | None = None
    children: dict[tuple[int, int], Node] = field(default_factory=dict)


class Featurise(Protocol):
    """Hidden states of transcripts (m, d)."""

    async def hidden(self, wanted: Sequence[Wanted], tick: Callable[[int], None] = ...) -> NDArray[np.float32]: ...


Logits = Callable[[Sequence[Node]], NDArray[np.float64]]
"""Logits (λ, m, L + 3) of all candidates at nodes whose features are known."""


@dataclass(frozen=True, slots=True)
class Fitness:
    """What a generation's candidates were worth; all arrays (λ,), shares by name averaged over candidates.

    `fitness` is expected reward less charges; NaN for a candidate whose logits are not finite. `evaluations` counts
    candidates times tasks times runs. `skipped` are the tasks left out, with the reason.
    """

    fitness: Array
    accuracy: Array
    turns: Array
    agent_shares: dict[str, float]
    role_shares: dict[str, float]
    evaluations: int
    skipped: dict[str, str]


@dataclass(frozen=True, slots=True)
class Step:
    """One decision of a drawn path: features (d,), what was chosen, and what was open."""

    x: Array
    agent: int
    role: int
    agents_open: NDArray[np.bool_]
    roles_open: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Path:
    """A drawn path of one task: its decisions, reward less charges, plain reward and turns."""

    task: Task
    steps: tuple[Step, ...]
    value: float
    correct: bool
    turns: int
    node: Node


@dataclass(eq=False)
class _Walk:
    """One node with the weights (λ,) with which the candidates come here."""

    node: Node
    weights: Array
    masked: frozenset[int]


class Trees:
    """Trees of tasks under one plan and pool, grown as candidates ask for it."""

    def __init__(self, plan: Plan, outcomes: Outcomes, states: Featurise, names: Sequence[str]) -> None:
        self.plan, self.outcomes, self._states = plan, outcomes, states
        self.names = tuple(names)
        self._roots: dict[str, Node] = {}
        self._gate = asyncio.Semaphore(AT_ONCE)
        self.normalise: Callable[[Array], Array] = lambda h: h
        """Features from hidden states (..., d); set once mean and deviation are known."""
        self.ungradable: dict[str, str] = {}
        """Tasks whose grader cannot say, by id, with the reason: left out from then on."""

    def root(self, task: Task) -> Node:
        if task.id not in self._roots:
            self._roots[task.id] = Node(task, Situation((Message("user", task.question),)))
        return self._roots[task.id]

    async def expect(
        self, logits: Logits, candidates: int, tasks: Sequence[Task], generation: int, tell: Callable[[str], None]
    ) -> Fitness:
        """The fitness of `candidates` on `tasks`. Raises BudgetReached."""
        sums = _Sums(candidates, len(self.names))
        skipped: dict[str, str] = {}
        for run in range(self.plan.runs):
            parts = await self._once(logits, candidates, tasks, (generation, run), skipped, tell)
            for part in parts:
                sums.add(part, self.plan.entropy)
        return sums.fitness(self, len(tasks), skipped)

    async def _once(
        self,
        logits: Logits,
        candidates: int,
        tasks: Sequence[Task],
        when: tuple[int, int],
        skipped: dict[str, str],
        tell: Callable[[str], None],
    ) -> list[_Sums]:
        """One estimate for each task that is not left out."""
        skipped |= {task.id: self.ungradable[task.id] for task in tasks if task.id in self.ungradable}
        sums = {task.id: _Sums(candidates, len(self.names)) for task in tasks if task.id not in skipped}
        level = [_Walk(self.root(t), np.ones(candidates), frozenset()) for t in tasks if t.id in sums]
        depth = 0
        while level:
            depth += 1
            level = [walk for walk in level if walk.node.task.id in sums]
            tell(f"Turn {depth}: {len(level)} situations")
            await self.featurise([walk.node for walk in level])
            raw = await asyncio.to_thread(logits, [walk.node for walk in level])
            split = await self._grow(level, raw, when, sums, skipped)
            following: list[_Walk] = []
            for i, (walk, shares) in enumerate(split):
                part = sums.get(walk.node.task.id)
                if part is None:
                    continue
                if self.plan.entropy:
                    part.decide(walk.weights, self._probs(walk, raw[:, i])[0])
                for (agent, role), weight in shares.items():
                    child = walk.node.children[agent, role]
                    part.chosen(agent, role, weight)
                    if child.reward is not None:
                        part.end(weight, self.value(child), child.reward, len(child.done))
                    else:
                        following.append(_Walk(child, weight, walk.masked))
            level = following
        return [sums[task.id] for task in tasks if task.id in sums]

    async def _grow(
        self,
        level: list[_Walk],
        raw: Array,
        when: tuple[int, int],
        sums: dict[str, _Sums],
        skipped: dict[str, str],
    ) -> list[tuple[_Walk, dict[tuple[int, int], Array]]]:
        """The weights (λ,) of the edges that count, all of them made; agents that fail are masked and it is split
        anew. Walks of tasks that turn out to have nobody left, or no grade, lose their task."""
        shares: list[dict[tuple[int, int], Array]] = [{}] * len(level)
        todo = list(range(len(level)))
        while todo:
            made_of = partial(self._split_all, [(level[i], raw[:, i]) for i in todo], when)
            for i, found in zip(todo, await asyncio.to_thread(made_of), strict=True):
                shares[i] = found
            missing = [(i, edge) for i in todo for edge in shares[i] if edge not in level[i].node.children]
            made = await self._all((level[i].node, edge) for i, edge in missing)
            again = set()
            for (i, (agent, _)), failure in zip(missing, made, strict=True):
                walk, task = level[i], level[i].node.task
                if isinstance(failure, str):
                    self.ungradable[task.id] = skipped[task.id] = failure
                    sums.pop(task.id, None)
                elif failure:
                    walk.masked |= {agent}
                    again.add(i)
                    if len(walk.masked) == len(self.names):
                        skipped[task.id] = "Every member of the pool failed on it."
                        sums.pop(task.id, None)
            todo = [i for i in sorted(again) if level[i].node.task.id in sums]
        return list(zip(level, shares, strict=True))

    async def _all(self, work: Iterable[tuple[Node, tuple[int, int]]]) -> list[bool | str]:
        """Await all edges, at most AT_ONCE at a time; the first error stops the others."""

        async def gated(node: Node, edge: tuple[int, int]) -> bool | str:
            async with self._gate:
                return await self._edge(node, edge)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(gated(*one)) for one in work]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _edge(self, node: Node, edge: tuple[int, int]) -> bool | str:
        """Make the child of `node` at `edge`. True: the agent failed; a text: why it cannot be graded."""
        if edge in node.children:
            return False
        name, role = self.names[edge[0]], ROLES[edge[1]]
        done = await self.outcomes.move(node.situation, name, role)
        if done is None:
            return True
        used = 0.0 if done.usage is None else (done.usage.input or 0) + (done.usage.output or 0)
        child = Node(
            node.task,
            node.situation.after(done),
            (*node.done, done),
            (*node.path, edge),
            node.tokens + used,
            node.cost + (done.cost or 0.0),
        )
        accepted = done.verdict is Verdict.ACCEPT and node.situation.answer is not None
        if accepted or len(child.done) >= self.plan.max_turns:
            text = node.situation.answer if accepted else final_answer(child.done, answer_kind(node.task)).text
            try:
                child.reward = float(await self.outcomes.grade(node.task, text))
            except InputError as error:
                return str(error)
        node.children[edge] = child
        return False

    def value(self, end: Node) -> float:
        """Reward of an end less what its turns, tokens and dollars are charged."""
        plan = self.plan
        charged = plan.turn_cost * len(end.done) + plan.token_cost * end.tokens / 1000 + plan.money_cost * end.cost
        return float(end.reward or 0.0) - charged

    async def featurise(self, nodes: Sequence[Node], tick: Callable[[int], None] = lambda done: None) -> None:
        """Fill in `x` where it is missing."""
        missing = [node for node in nodes if node.x is None]
        wanted = [Wanted(n.task.id, n.situation.messages, n.situation.turns) for n in missing]
        features = self.normalise((await self._states.hidden(wanted, tick)).astype(np.float64))
        for node, x in zip(missing, features, strict=True):
            node.x = x

    def forget_features(self) -> None:
        """Drop what `normalise` made, because it changes; hidden states stay known."""
        for root in self._roots.values():
            for node in _walk(root):
                node.x = None

    async def alone(self, task: Task, agent: int) -> bool | None:
        """Whether one Worker turn of `agent` answers the task; None when it failed or cannot be graded."""
        node = self.root(task)
        failure = await self._edge(node, (agent, ROLES.index(Role.WORKER)))
        if failure:
            return None
        child = node.children[agent, ROLES.index(Role.WORKER)]
        try:
            return await self.outcomes.grade(task, final_answer(child.done, answer_kind(task)).text)
        except InputError:
            return None

    # --- The policy at a node -------------------------------------------------------------------------------

    def open_at(self, node: Node, masked: frozenset[int]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Agents (L,) and roles (3,) that may be chosen. A Verifier is masked until there is an answer."""
        agents = np.array([i not in masked for i in range(len(self.names))])
        if self.plan.agent_fixed is not None and (only := self.names.index(self.plan.agent_fixed)) not in masked:
            agents = np.arange(len(self.names)) == only
        roles = np.array([role in self.plan.roles_open for role in ROLES])
        roles &= np.array([role is not Role.VERIFIER or node.situation.answer is not None for role in ROLES])
        return agents, roles

    def _probs(self, walk: _Walk, z: Array) -> tuple[Array, Array]:
        """(λ, L) and (λ, 3) of logits (λ, L + 3) after masks, and after a Thinker's suggestion that is followed."""
        node, count = walk.node, len(self.names)
        agents_open, roles_open = self.open_at(node, walk.masked)
        agent = _softmax(z[:, :count], agents_open)
        role = _softmax(z[:, count:], roles_open)
        if self.plan.follow_thinker and node.situation.suggested is not None:
            masked_agents = {n: "" for n, is_open in zip(self.names, agents_open, strict=True) if not is_open}
            masked_roles = {r.value: "" for r, is_open in zip(ROLES, roles_open, strict=True) if not is_open}
            # Asked with two different own choices: a part that stays the same was suggested.
            first = follow((_NONE, _ROLE_A), node.situation.suggested, self.names, masked_agents, masked_roles)
            second = follow((_NONE, _ROLE_B), node.situation.suggested, self.names, masked_agents, masked_roles)
            if first[0] != _NONE:
                agent = _certain(agent, self.names.index(first[0]))
            if first[1] is second[1]:
                role = _certain(role, ROLES.index(first[1]))
        return agent, role

    def _split_all(
        self, walks: Sequence[tuple[_Walk, Array]], when: tuple[int, int]
    ) -> list[dict[tuple[int, int], Array]]:
        return [self._split(walk, z, when) for walk, z in walks]

    def _split(self, walk: _Walk, z: Array, when: tuple[int, int]) -> dict[tuple[int, int], Array]:
        """The edges of `walk` that count, with the weight (λ,) that each candidate gives them."""
        agent, role = self._probs(walk, z)
        joint = (agent[:, :, None] * role[:, None, :]).reshape(len(z), -1)
        mass = walk.weights[:, None] * joint
        bad = ~np.isfinite(z).all(axis=1)
        mass[bad] = 0.0
        if self.plan.estimator == "sampled":
            u = np.array([self._u(walk.node, when, c) for c in range(len(z))])
            weights = _draw(mass, u)
        else:
            weights = split_mass(mass, self.plan.branch, self._u(walk.node, when, -1), self._u(walk.node, when, -2))
        roles = len(ROLES)
        return {(k // roles, k % roles): weights[:, k] for k in np.flatnonzero((weights > 0).any(axis=0)).tolist()}

    def _u(self, node: Node, when: tuple[int, int], who: int) -> float:
        """A uniform number in [0, 1), a function of (seed, generation, run, task, path, candidate)."""
        what = f"{self.plan.seed}|{when[0]}|{when[1]}|{node.task.id}|{node.path}|{who}".encode()
        return int.from_bytes(hashlib.blake2b(what, digest_size=8).digest(), "big") / 2**64

    # --- One path -------------------------------------------------------------------------------------------

    async def follow_path(self, logits: Logits, task: Task, generation: int | None, draw: int = 0) -> Path | None:
        """The path of one candidate (`logits` give λ = 1): argmax, or drawn when `generation` is given.

        None when the task is left out. Raises BudgetReached.
        """
        if task.id in self.ungradable:
            return None
        node, masked, steps = self.root(task), frozenset[int](), list[Step]()
        while node.reward is None:
            await self.featurise([node])
            z = logits([node])[:, 0]
            if not np.isfinite(z).all():
                return None
            walk = _Walk(node, np.ones(1), masked)
            agent_p, role_p = self._probs(walk, z)
            if generation is None:
                agent, role = int(np.argmax(agent_p[0])), int(np.argmax(role_p[0]))
            else:
                joint = (agent_p[0][:, None] * role_p[0][None, :]).reshape(1, -1)
                picked = int(np.flatnonzero(_draw(joint, np.array([self._u(node, (generation, 0), draw)]))[0])[0])
                agent, role = divmod(picked, len(ROLES))
            failure = await self._edge(node, (agent, role))
            if isinstance(failure, str):
                self.ungradable[task.id] = failure
                return None
            if failure:
                masked |= {agent}
                if len(masked) == len(self.names):
                    return None
                continue
            agents_open, roles_open = self.open_at(node, masked)
            assert node.x is not None
            steps.append(Step(node.x, agent, role, agents_open, roles_open))
            node = node.children[agent, role]
        return Path(task, tuple(steps), self.value(node), node.reward == 1.0, len(node.done), node)


_NONE = "\0none"
_ROLE_A, _ROLE_B = ROLES[0], ROLES[1]


def split_mass(mass: Array, branch: float, u: float, u_keep: float) -> Array:
    """Weights (λ, A) with expectation `mass` (λ, A) over uniform `u` and `u_keep`, most of them 0.

    Entries of at least `branch` stay as they are. Of the rest, with sum R, one is drawn in proportion and gets R;
    where R < branch it is kept with probability R/branch only, and gets `branch`.
    """
    big = mass >= max(branch, 1e-300)
    rest = np.where(big, 0.0, mass)
    total = rest.sum(axis=1)
    drawn = _draw(rest, np.full(len(mass), u))
    small = (total > 0) & (total < branch)
    if branch > 0:
        kept = u_keep * branch < total
        scale = np.where(small, np.where(kept, branch / np.where(total > 0, total, 1.0), 0.0), 1.0)
        drawn = drawn * scale[:, None]
    return np.where(big, mass, drawn)


def _draw(mass: Array, u: Array) -> Array:
    """One entry of each row (λ, A), drawn in proportion with u (λ,), holding the row's whole sum; others 0."""
    total = mass.sum(axis=1)
    edges = np.cumsum(mass, axis=1)
    index = (edges <= (u * total)[:, None]).sum(axis=1)
    # Rounding may point behind the last entry that has any mass.
    last = mass.shape[1] - 1 - np.argmax(mass[:, ::-1] > 0, axis=1)
    index = np.minimum(index, last)
    made = np.zeros_like(mass)
    rows = total > 0
    made[np.flatnonzero(rows), index[rows]] = total[rows]
    return made


def _softmax(z: Array, open_: NDArray[np.bool_]) -> Array:
    """Softmax of (λ, n) over what is open (n,); 0 elsewhere. Rows that are not finite come out uniform."""
    clean = np.where(np.isfinite(z), z, 0.0)
    masked = np.where(open_, clean, -np.inf)
    weights = np.exp(masked - masked.max(axis=1, keepdims=True))
    probs: Array = weights / weights.sum(axis=1, keepdims=True)
    return probs


def _certain(probs: Array, index: int) -> Array:
    made = np.zeros_like(probs)
    made[:, index] = 1.0
    return made


def _walk(node: Node) -> list[Node]:
    found, todo = [], [node]
    while todo:
        one = todo.pop()
        found.append(one)
        todo.extend(one.children.values())
    return found


class _Sums:
    """Weighted sums over paths, per candidate (λ,)."""

    def __init__(self, candidates: int, agents: int) -> None:
        self.value, self.right, self.turns = np.zeros(candidates), np.zeros(candidates), np.zeros(candidates)
        self.entropy, self.visits = np.zeros(candidates), np.zeros(candidates)
        self.agents, self.roles = np.zeros(agents), np.zeros(len(ROLES))
        self.count = 0
        self.tasks = 0
        self.mass = np.zeros(candidates)

    def decide(self, weights: Array, probs: Array) -> None:
        logs = np.where(probs > 0, np.log(np.where(probs > 0, probs, 1.0)), 0.0)
        self.entropy += weights * -(probs * logs).sum(axis=1)
        self.visits += weights

    def chosen(self, agent: int, role: int, weights: Array) -> None:
        self.agents[agent] += weights.mean()
        self.roles[role] += weights.mean()

    def end(self, weights: Array, value: float, reward: float, turns: int) -> None:
        self.value += weights * value
        self.right += weights * reward
        self.turns += weights * turns
        self.mass += weights

    def add(self, part: _Sums, shaping: float) -> None:
        """Take in one task's estimate; `shaping` is worth a nat of the agents' entropy."""
        self.tasks += 1
        shaped = shaping * part.entropy / np.where(part.visits > 0, part.visits, 1.0)
        self.value += part.value + shaped
        for name in ("right", "turns", "mass"):
            getattr(self, name).__iadd__(getattr(part, name))
        self.agents += part.agents
        self.roles += part.roles

    def fitness(self, trees: Trees, tasks: int, skipped: dict[str, str]) -> Fitness:
        n = max(self.tasks, 1)
        fitness = np.where(self.mass > 0, self.value / n, np.nan)
        return Fitness(
            fitness=fitness,
            accuracy=self.right / n,
            turns=self.turns / n,
            agent_shares=_shares(trees.names, self.agents),
            role_shares=_shares([role.value for role in ROLES], self.roles),
            evaluations=len(self.value) * tasks * trees.plan.runs,
            skipped=dict(skipped),
        )


def _shares(names: Sequence[str], counts: Array) -> dict[str, float]:
    total = float(counts.sum()) or 1.0
    return {name: float(count) / total for name, count in zip(names, counts, strict=True)}


def reasons(skipped: dict[str, str]) -> str:
    """The reasons why tasks were left out, most frequent first, in one sentence."""
    counted = Counter(skipped.values()).most_common(3)
    return "; ".join(f"{count} task(s): {why.rstrip('.')}" for why, count in counted)
