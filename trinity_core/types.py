"""The vocabulary that every part of Trinity shares: enums, frozen records and events.

Nothing here does any work. Records are frozen dataclasses; their JSON forms are made and read only by
`trinity_core.wire`. Names follow the paper (arXiv:2512.04695) and DESIGN terms: a *run* answers the newest
message of a conversation in at most K turns; in each *turn* a policy picks an agent and a role, the agent is
called, and its text is post-processed. A call that errors or returns nothing is an *attempt* of the turn.

Units: times are UTC epoch seconds (float), durations seconds unless the name ends in `_ms`, costs US dollars,
counts tokens. `None` means unknown or not applicable, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Self

SCHEMA: Literal[1] = 1
"""Version of the event vocabulary below."""


class _Parsed(StrEnum):
    """A StrEnum that also accepts its values in any case, with blanks, or as `Class.MEMBER`."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        plain = value.strip().lower().rsplit(".", 1)[-1]
        return next((member for member in cls if member.value == plain), None)


class Role(_Parsed):
    """What an agent is asked to be in a turn. The order is the order of the head's last three rows."""

    WORKER = "worker"
    THINKER = "thinker"
    VERIFIER = "verifier"


class Verdict(_Parsed):
    """What a Verifier turn decided. NONE: no verdict could be parsed; it ends nothing."""

    ACCEPT = "accept"
    REVISE = "revise"
    NONE = "none"


class Status(_Parsed):
    """Life cycle of a run or a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class StopReason(_Parsed):
    """Why a run ended."""

    ACCEPTED = "accepted"
    TURNS_EXHAUSTED = "turns_exhausted"
    CANCELLED = "cancelled"
    FAILED = "failed"
    BUDGET = "budget"


class Finish(_Parsed):
    """How one agent's reply ended. REFUSED: the agent itself declined; it is a turn, but not an answer."""

    STOP = "stop"
    LENGTH = "length"
    REFUSED = "refused"
    BLOCKED = "blocked"
    ERROR = "error"
    EMPTY = "empty"
    INCOMPLETE = "incomplete"


class Mode(_Parsed):
    """How a policy chose: the largest logit, a draw from the softmax, or a rule without logits."""

    ARGMAX = "argmax"
    SAMPLE = "sample"
    FIXED = "fixed"


class Source(_Parsed):
    """Where a run came from."""

    UI = "ui"
    API = "api"
    CLI = "cli"
    TRAIN = "train"


# --- Conversation and turns -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the conversation a run answers."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class TranscriptTurn:
    """A finished turn as the coordinator reads it: post-processed text, no reasoning, no prompts."""

    role: Role
    agent: str
    text: str


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What a Thinker proposed for the next turn; every part may be missing."""

    role: Role | None = None
    agent: str | None = None
    instruction: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call or the sum over several. `input` includes `cached`; `output` includes `reasoning`."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    reasoning: int | None = None

    def __add__(self, other: Usage) -> Usage:
        """Sum what is known; a part unknown on both sides stays unknown."""

        def add(a: int | None, b: int | None) -> int | None:
            return b if a is None else a if b is None else a + b

        return Usage(
            add(self.input, other.input),
            add(self.output, other.output),
            add(self.cached, other.cached),
            add(self.reasoning, other.reasoning),
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it is stored and shown: the kind (see AgentError), the message, whether a retry may help."""

    kind: str
    message: str
    retryable: bool = False


# --- Calling an agent -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """One member of the pool as its file describes it and as a run's snapshot keeps it. It holds no key.

    `kind` selects the implementation: see `agents.pool.KINDS`. `base_url` is where a remote one is reached,
    `key_env` names the environment variable that holds its key. `options` shape a reply and belong to its key in the
    reply store; `service` says how calls are made (timeouts, limits, price) and does not. JSON values only.
    """

    name: str
    kind: str
    model: str | None = None
    description: str = ""
    enabled: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    base_url: str | None = None
    key_env: str | None = None
    service: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Brief:
    """All that a role prompt may depend on (so equal situations give equal requests).

    `plan`, `answer` and `critique` are the latest post-processed texts of a Thinker, Worker and Verifier turn.
    """

    role: Role
    conversation: tuple[Message, ...]
    plan: str | None = None
    answer: str | None = None
    critique: str | None = None

    @property
    def question(self) -> str:
        """The newest user message, or the empty string."""
        return next((m.content for m in reversed(self.conversation) if m.role == "user"), "")


@dataclass(frozen=True, slots=True)
class Sampling:
    """Generation settings. None means: leave the field out of the request."""

    max_tokens: int = 4096
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    effort: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One call to one agent. Language models are sent `messages`; specialists read `brief`, from which
    `session.roles` rendered those messages. `brief` is not part of what is sent. `via` names the Trinity servers
    that the question came through, so that a member which points back at one of them is noticed; at most
    `max_calls` calls may be made for it, first attempt included."""

    agent: AgentSpec
    messages: tuple[Message, ...]
    brief: Brief
    sampling: Sampling = Sampling()
    via: tuple[str, ...] = ()
    max_calls: int | None = None

    def sent(self) -> dict[str, Any]:
        """What reaches the agent, as JSON values: the trace's request and the reply store's key."""
        sampling = {
            name: value
            for name in ("max_tokens", "temperature", "top_p", "seed", "effort")
            if (value := getattr(self.sampling, name)) is not None
        }
        where = {} if self.agent.base_url is None else {"base_url": self.agent.base_url}
        return {
            "agent": self.agent.name,
            "kind": self.agent.kind,
            "model": self.agent.model,
            "options": dict(self.agent.options),
            "messages": [{"role": m.role, "content": m.content} for m in self.messages],
            **where,
            **sampling,
        }


@dataclass(frozen=True, slots=True)
class Piece:
    """A streamed part of a reply."""

    text: str
    channel: Literal["text", "reasoning"] = "text"


@dataclass(frozen=True, slots=True)
class Reset:
    """What was streamed so far is void: the agent starts the reply again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reply:
    """The whole reply, yielded last by `Agent.stream`. `text` is raw: it may still hold <think> sections.

    `cost` is known or None; `unpriced` counts calls that may have cost something nobody told (0 for an agent that
    is part of this program). `calls` counts attempts, `warnings` are sentences for the user, `reused` says that the
    reply was stored before and nobody was called.
    """

    text: str
    finish: Finish
    reasoning: str = ""
    usage: Usage = Usage()
    cost: float | None = None
    first_token_s: float | None = None
    seconds: float = 0.0
    request_id: str | None = None
    calls: int = 1
    unpriced: int = 0
    warnings: tuple[str, ...] = ()
    reused: bool = False


# --- Deciding ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decision:
    """Why this agent in this role: everything needed to draw and to replay one choice.

    Logits are raw and finite, by name in head order, and empty for policies without a head. Probabilities are
    after the masks, one softmax over agents and one over roles; a masked name has probability 0.
    `margin` holds the logit of the policy's own choice minus the best other unmasked one, for "agent" and
    "role"; it lacks the entry when there is no other. `masked` maps "agent:NAME" or "role:NAME" to the reason.
    `own_agent` and `own_role` are the policy's choice before a Thinker's suggestion was followed.
    `draws` are the uniform numbers used in mode sample: agent, then role.
    """

    agent: str
    role: Role
    own_agent: str
    own_role: Role
    mode: Mode
    agent_logits: Mapping[str, float] = field(default_factory=dict)
    role_logits: Mapping[str, float] = field(default_factory=dict)
    agent_probs: Mapping[str, float] = field(default_factory=dict)
    role_probs: Mapping[str, float] = field(default_factory=dict)
    margin: Mapping[str, float] = field(default_factory=dict)
    masked: Mapping[str, str] = field(default_factory=dict)
    suggested: Suggestion | None = None
    draws: tuple[float, ...] = ()
    checkpoint_id: str | None = None
    encode_ms: float = 0.0
    tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class LoopState:
    """What a policy may look at when it decides: the conversation, the finished turns, and the masks.

    `masked_agents` and `masked_roles` map a name to the reason it may not be chosen now.
    """

    conversation: tuple[Message, ...]
    turns: tuple[TranscriptTurn, ...] = ()
    masked_agents: Mapping[str, str] = field(default_factory=dict)
    masked_roles: Mapping[str, str] = field(default_factory=dict)
    suggested: Suggestion | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Budget of one run; a call that would exceed it is not made. None: no limit."""

    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class RunParams:
    """Settings of a run. `max_turns` is the paper's K (1 to 5 in the page, any positive number here).

    `reuse`: a reply that is stored for the same request is read instead of calling the agent again."""

    max_turns: int = 5
    mode: Mode = Mode.ARGMAX
    follow_thinker: bool = True
    sampling: Sampling = Sampling()
    limits: Limits = Limits()
    reuse: bool = False


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a run's calls, failed attempts included. `cost` sums what is known, beside `unpriced` calls whose
    cost is not; reused replies are no calls and cost nothing."""

    turns: int = 0
    calls: int = 0
    usage: Usage = Usage()
    cost: float | None = None
    unpriced: int = 0
    seconds: float = 0.0
    encode_ms: float = 0.0


# --- Events of a run --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEvent:
    """Common to all events of a run. `seq` counts from 0 without gaps; `at` is UTC epoch seconds."""

    run_id: str
    seq: int
    at: float
    schema: Literal[1] = SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStarted(RunEvent):
    messages: tuple[Message, ...]
    method: str
    source: Source
    params: RunParams
    pool: tuple[AgentSpec, ...]
    seed: int
    owner: str | None = None
    parent_run_id: str | None = None
    fork_turn: int | None = None
    checkpoint_id: str | None = None
    transcript_version: str | None = None
    prompt_version: str | None = None
    event: Literal["run_started"] = "run_started"


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnStarted(RunEvent):
    """An agent is about to be called. `hidden` is h as little-endian float16, d numbers, or None.

    Methods without roles or decisions leave `role` and `decision` None."""

    turn: int
    attempt: int
    agent: str
    role: Role | None = None
    decision: Decision | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    hidden: bytes | None = None
    event: Literal["turn_started"] = "turn_started"


@dataclass(frozen=True, kw_only=True, slots=True)
class Delta(RunEvent):
    turn: int
    attempt: int
    text: str
    channel: Literal["text", "reasoning"] = "text"
    event: Literal["delta"] = "delta"


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnReset(RunEvent):
    turn: int
    attempt: int
    reason: str
    event: Literal["turn_reset"] = "turn_reset"


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnFinished(RunEvent):
    """The call ended. With `error` set the attempt failed and `text` is what had arrived.

    `raw` is the reply as received; `text` is post-processed (reasoning taken out; for a Verifier the verdict
    word, then its diagnosis). `verdict` is set for Verifier turns only, `suggestion` for Thinker turns only.
    """

    turn: int
    attempt: int
    agent: str
    role: Role | None = None
    raw: str = ""
    text: str = ""
    reasoning: str = ""
    verdict: Verdict | None = None
    suggestion: Suggestion | None = None
    usage: Usage = Usage()
    finish: Finish = Finish.STOP
    cost: float | None = None
    first_token_s: float | None = None
    seconds: float = 0.0
    request_id: str | None = None
    calls: int = 1
    unpriced: int = 0
    reused: bool = False
    error: Failure | None = None
    event: Literal["turn_finished"] = "turn_finished"


@dataclass(frozen=True, kw_only=True, slots=True)
class Note(RunEvent):
    """Something worth telling. `kind`: trimmed, masked, retried, budget, cleaned, untrained, warning (something odd
    about a reply), suggestion (a part of a Thinker's suggestion was not followed)."""

    kind: str
    message: str
    turn: int | None = None
    event: Literal["note"] = "note"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFinished(RunEvent):
    """`answer` is the post-processed text of turn `answer_turn`. `flag`: no_worker_turn when it is not a
    Worker's, no_answer when there is none."""

    status: Status
    stop_reason: StopReason
    answer: str | None = None
    answer_turn: int | None = None
    flag: str | None = None
    totals: Totals = Totals()
    error: Failure | None = None
    event: Literal["run_finished"] = "run_finished"


# --- Events of a job (training, evaluation, comparison, import) ---------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class JobEvent:
    job_id: str
    seq: int
    at: float
    schema: Literal[1] = SCHEMA


@dataclass(frozen=True, kw_only=True, slots=True)
class JobStarted(JobEvent):
    kind: str
    params: Mapping[str, Any]
    seed: int | None = None
    event: Literal["job_started"] = "job_started"


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress(JobEvent):
    """`done` of `total` steps named by `unit`; total None when not known beforehand."""

    done: int
    total: int | None
    unit: str
    message: str = ""
    event: Literal["progress"] = "progress"


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation(JobEvent):
    """One generation of an optimiser: fitness of its candidates in ask order, sigma, and what it spent.

    `seed` is the training's. `accuracies` are the candidates' expected plain accuracies (no charge for turns), in
    ask order. `spread` is the largest and the smallest standard deviation of a coordinate, sigma included.
    `agent_calls` counts calls that were made, `failed_calls` those of them that gave nothing; `skipped` counts tasks
    left out for all candidates because too many agents failed on them. `status` is flat_fitness when (nearly) all
    fitness is equal.
    """

    number: int
    fitness: tuple[float, ...]
    seed: int = 0
    sigma: float | None = None
    spread: tuple[float, float] | None = None
    accuracies: tuple[float, ...] = ()
    mean_turns: float | None = None
    skipped: int = 0
    status: str = ""
    evaluations: int = 0
    agent_calls: int = 0
    failed_calls: int = 0
    usage: Usage = Usage()
    cost: float | None = None
    agent_shares: Mapping[str, float] = field(default_factory=dict)
    role_shares: Mapping[str, float] = field(default_factory=dict)
    event: Literal["generation"] = "generation"


@dataclass(frozen=True, kw_only=True, slots=True)
class Validation(JobEvent):
    """Plain accuracy on held-out tasks with a 95 % interval, beside turns and spending."""

    name: str
    n: int
    accuracy: float
    low: float
    high: float
    mean_turns: float | None = None
    usage: Usage = Usage()
    cost: float | None = None
    number: int | None = None
    event: Literal["validation"] = "validation"


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointSaved(JobEvent):
    checkpoint_id: str
    path: str
    message: str = ""
    event: Literal["checkpoint"] = "checkpoint"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobNote(JobEvent):
    kind: str
    message: str
    event: Literal["note"] = "note"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPaused(JobEvent):
    reason: str
    event: Literal["job_paused"] = "job_paused"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFinished(JobEvent):
    status: Status
    message: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)
    error: Failure | None = None
    event: Literal["job_finished"] = "job_finished"


AnyRunEvent = RunStarted | TurnStarted | Delta | TurnReset | TurnFinished | Note | RunFinished
AnyJobEvent = JobStarted | Progress | Generation | Validation | CheckpointSaved | JobNote | JobPaused | JobFinished
AnyEvent = AnyRunEvent | AnyJobEvent
