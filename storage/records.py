"""What the store takes in and hands out: frozen records. `rows` turns them into rows and back.

Fields have defaults wherever an imported trace may lack them. Dicts appear only where the schema has JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trinity_core.tasks.task import Task
from trinity_core.types import (
    AgentSpec,
    Decision,
    Failure,
    Finish,
    Message,
    Role,
    RunParams,
    Source,
    Status,
    StopReason,
    Suggestion,
    Totals,
    Usage,
    Verdict,
)

QUESTION_CHARS = 80
"""Characters of the question that a list shows."""

SortKey = Literal[
    "created_at",
    "question",
    "roles",
    "agents",
    "verdict",
    "status",
    "stop_reason",
    "source",
    "method",
    "turn_count",
    "seconds",
    "tokens",
    "cost",
]


@dataclass(frozen=True, slots=True)
class StoredNote:
    kind: str
    message: str
    at: float
    turn: int | None = None


@dataclass(frozen=True, slots=True)
class Label:
    """A judgement of a run, or of one of its turns when `turn_id` is set. `labeller` "" is nobody in particular."""

    id: str
    run_id: str
    kind: str
    value: str
    turn_id: str | None = None
    labeller: str = ""
    created_at: float = 0.0


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """One call as `turn_started` and `turn_finished` told it. `finish` is None while the call goes on.

    `hidden` is h as little-endian float16. Failed attempts have `error`. `calls` counts the attempts to get this
    reply, `unpriced` those among them whose cost is not in `cost`; with `reused` nobody was called.
    """

    id: str
    turn: int
    attempt: int = 1
    agent: str = ""
    role: Role | None = None
    verdict: Verdict | None = None
    finish: Finish | None = None
    started_at: float | None = None
    finished_at: float | None = None
    seconds: float | None = None
    first_token_s: float | None = None
    cost: float | None = None
    request_id: str | None = None
    text: str = ""
    raw: str = ""
    reasoning: str = ""
    decision: Decision | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    suggestion: Suggestion | None = None
    usage: Usage = field(default_factory=Usage)
    error: Failure | None = None
    hidden: bytes | None = None
    calls: int = 1
    unpriced: int = 0
    reused: bool = False

    @property
    def counts(self) -> bool:
        """Whether this is the turn itself rather than a failed attempt or a call that goes on."""
        return self.finish is not None and self.error is None


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run with everything in it; turns in order of (turn, attempt).

    `deleted_at` is set while the run is in the bin. It is this store's own affair: never written from here, and
    neither exported nor imported.
    """

    id: str
    owner: str | None = None
    source: Source = Source.CLI
    method: str = "imported"
    status: Status = Status.DONE
    stop_reason: StopReason | None = None
    flag: str | None = None
    messages: tuple[Message, ...] = ()
    answer: str | None = None
    answer_turn: int | None = None
    params: RunParams = field(default_factory=RunParams)
    pool: tuple[AgentSpec, ...] = ()
    seed: int | None = None
    parent_run_id: str | None = None
    fork_turn: int | None = None
    checkpoint_id: str | None = None
    transcript_version: str | None = None
    prompt_version: str | None = None
    totals: Totals | None = None
    error: Failure | None = None
    created_at: float = 0.0
    finished_at: float | None = None
    notes: tuple[StoredNote, ...] = ()
    turns: tuple[StoredTurn, ...] = ()
    labels: tuple[Label, ...] = ()
    deleted_at: float | None = None

    @property
    def question(self) -> str:
        """The newest user message, or the empty string."""
        return next((m.content for m in reversed(self.messages) if m.role == "user"), "")


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One row of the list. `question` is cut to 80 characters; `roles` reads "T·W·V". `cost` is what is known, beside
    `unpriced` calls whose cost is not."""

    id: str
    created_at: float
    question: str
    roles: str
    agents: str
    verdict: Verdict | None
    status: Status
    stop_reason: StopReason | None
    flag: str | None
    source: Source
    method: str
    owner: str | None
    checkpoint_id: str | None
    turn_count: int
    seconds: float | None
    tokens: int | None
    cost: float | None
    unpriced: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    """Newest value of each kind of label on the run itself, cut to 80 characters."""


@dataclass(frozen=True, slots=True)
class RunQuery:
    """What to list. Filters combine with "and"; None does not filter.

    `search` is looked for as it stands, in any case, in question, answer and turn texts. Rows shown are those of
    `owner` and those without an owner; `all_owners` shows everybody's. `since` is inclusive, `until` exclusive.
    `deleted` lists the bin instead. `agent` took part in the run; `roles` is the whole sequence.
    """

    search: str = ""
    owner: str | None = None
    all_owners: bool = False
    status: Status | None = None
    stop_reason: StopReason | None = None
    verdict: Verdict | None = None
    agent: str | None = None
    roles: tuple[Role, ...] | None = None
    source: Source | None = None
    method: str | None = None
    checkpoint_id: str | None = None
    since: float | None = None
    until: float | None = None
    label: str | None = None
    unlabelled: bool = False
    deleted: bool = False
    sort: SortKey = "created_at"
    descending: bool = True
    page: int = 1
    page_size: int = 50


@dataclass(frozen=True, slots=True)
class RunPage:
    """`total` counts all rows that match, `page` counts from 1."""

    rows: tuple[RunSummary, ...]
    total: int
    page: int
    page_size: int


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task and whose it is (None: everybody's). `run_id` is the trace it was made from."""

    task: Task
    owner: str | None = None
    run_id: str | None = None
    created_at: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """Which tasks to list, newest first. Filters combine with "and"; None does not filter, "" is a value.

    `search` is looked for as it stands, in any case, in question and reference. Shown are the tasks of `owner` and
    everybody's; `all_owners` shows all. `page` counts from 1.
    """

    search: str = ""
    owner: str | None = None
    all_owners: bool = False
    family: str | None = None
    split: str | None = None
    grader: str | None = None
    source: str | None = None
    page: int = 1
    page_size: int = 50


@dataclass(frozen=True, slots=True)
class TaskPage:
    """`total` counts all tasks that match."""

    rows: tuple[StoredTask, ...]
    total: int
    page: int
    page_size: int


@dataclass(frozen=True, slots=True)
class TaskCount:
    """How many tasks (`n`) have this family, split, grader and source."""

    family: str
    split: str
    grader: str
    source: str
    n: int


Thumb = Literal["unlabelled", "up", "down"]


@dataclass(frozen=True, slots=True)
class LabelQuery:
    """Which answered runs to list for labelling, newest first.

    `thumb` chooses by the newest thumb on the run itself (`labeller` None: anybody's), None does not filter. With
    `without_task` runs that a visible task was made from are left out. The owner rule is that of `RunQuery`, `search`
    too. Runs of trainings are never in it: their questions are tasks already. `page` counts from 1.
    """

    thumb: Thumb | None = None
    without_task: bool = False
    labeller: str | None = None
    search: str = ""
    owner: str | None = None
    all_owners: bool = False
    page: int = 1
    page_size: int = 50


@dataclass(frozen=True, slots=True)
class LabelRow:
    """An answered run. `question` is the newest user message, `messages` the number of messages of the conversation,
    `task_id` the newest visible task made from the run."""

    run_id: str
    created_at: float
    owner: str | None
    question: str
    answer: str
    messages: int
    thumb: str | None
    task_id: str | None


@dataclass(frozen=True, slots=True)
class LabelPage:
    """`total` counts all runs that match, `counts` those of each thumb, whatever `thumb` the query has."""

    rows: tuple[LabelRow, ...]
    total: int
    page: int
    page_size: int
    counts: Mapping[Thumb, int]


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """One optimisation. `validations` are the JSON forms of `Validation` events, oldest first.

    `params` are the job's, without the pool, which has its own field. `notes` are {kind, message, at}, oldest first
    and the newest ones only. A paused training is `interrupted` with an error of the kind "paused".
    """

    id: str
    method: str
    status: Status = Status.RUNNING
    seed: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    pool: tuple[AgentSpec, ...] = ()
    backbone: str | None = None
    checkpoint_id: str | None = None
    owner: str | None = None
    validations: tuple[Mapping[str, Any], ...] = ()
    result: Mapping[str, Any] | None = None
    error: Failure | None = None
    created_at: float = 0.0
    finished_at: float | None = None
    notes: tuple[Mapping[str, Any], ...] = ()

    @property
    def paused(self) -> bool:
        """Whether it ended by a pause, not by a crash."""
        return self.status is Status.INTERRUPTED and self.error is not None and self.error.kind == "paused"


@dataclass(frozen=True, slots=True)
class StoredGeneration:
    """A `Generation` event as it is stored: what replaying it needs (seed, fitness), what it showed and its cost.

    `fitness` and `accuracies` are in ask order, NaN where they were not finite.
    """

    training_run_id: str
    number: int
    seed: int
    fitness: tuple[float, ...]
    sigma: float | None = None
    spread: tuple[float, float] | None = None
    accuracies: tuple[float, ...] = ()
    mean_turns: float | None = None
    skipped: int = 0
    status: str = ""
    evaluations: int = 0
    agent_calls: int = 0
    failed_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float | None = None
    agent_shares: Mapping[str, float] = field(default_factory=dict)
    role_shares: Mapping[str, float] = field(default_factory=dict)
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """Where a checkpoint lies. `id` is the hash of the file's content."""

    id: str
    path: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    training_run_id: str | None = None
    created_at: float = 0.0
