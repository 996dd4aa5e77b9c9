"""The coordination loop (paper section 3): decide, call, post-process, append, until accepted or out of turns.

`run` is an asynchronous generator of frozen events and the only place where turns are made. Invariants:

- A call that errors or returns nothing is an attempt: it is recorded, its agent is masked for the rest of the
  run, and the policy decides again, until `ATTEMPTS` calls of a turn have failed. Attempts do not use up turns.
- A Verifier cannot act before an answer exists, and only its ACCEPT ends a run.
- A turn whose agent declined (finish refused) stays in the transcript but is no plan, answer or critique.
- `stop` may be set at any moment: what has arrived is kept, and the run ends as cancelled. Closing the generator
  instead stops the work as fast but emits nothing more.

Nothing here stores, prints or retries; agents retry their own calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from trinity_core.agents import prices
from trinity_core.agents.base import Agent
from trinity_core.agents.meter import worst_case
from trinity_core.answers import FinalAnswer, final_answer
from trinity_core.config import MAX_QUESTION_CHARS
from trinity_core.coordinator.policy import Choice, Policy
from trinity_core.errors import AgentError, InputError, NoAgentError, TrinityError
from trinity_core.session.roles import PROMPT_VERSION, render
from trinity_core.session.verdict import Processed, process
from trinity_core.types import (
    AgentSpec,
    AnyRunEvent,
    Brief,
    Delta,
    Failure,
    Finish,
    LoopState,
    Message,
    Note,
    Piece,
    Reply,
    Request,
    Reset,
    Role,
    RunFinished,
    RunParams,
    RunStarted,
    Source,
    Status,
    StopReason,
    Suggestion,
    Totals,
    TranscriptTurn,
    TurnFinished,
    TurnReset,
    TurnStarted,
    Verdict,
)
from trinity_core.wire import clean_text, new_id, redact

ATTEMPTS = 3
"""Most members that fail in one turn before the run does. One that could not even be called does not count."""

T = TypeVar("T")
Events = AsyncGenerator[AnyRunEvent, None]


class Members(Protocol):
    """The pool as the loop needs it."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def specs(self) -> tuple[AgentSpec, ...]: ...
    def agent(self, name: str) -> Agent: ...

    def resting(self) -> Mapping[str, str]:
        """Members that must not be called now, with the reason."""
        ...


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What to answer and how. The newest message is the question; earlier ones are the conversation so far.

    `via` names the Trinity servers that the question came through."""

    messages: tuple[Message, ...]
    method: str = "coordinator"
    source: Source = Source.UI
    params: RunParams = field(default_factory=RunParams)
    seed: int = 0
    owner: str | None = None
    parent_run_id: str | None = None
    fork_turn: int | None = None
    run_id: str = field(default_factory=new_id)
    via: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """Where a run stands between two turns: all that the next decision and the next prompt may depend on.

    The loop and the training code advance it with the same `after`, so both see the same transcripts and
    requests. `plan`, `answer` and `critique` are the latest texts that count as such.
    """

    messages: tuple[Message, ...]
    turns: tuple[TranscriptTurn, ...] = ()
    plan: str | None = None
    answer: str | None = None
    critique: str | None = None
    suggested: Suggestion | None = None

    def after(self, done: TurnFinished) -> Situation:
        """The situation once `done` is over. A failed call changes nothing here (its agent is masked)."""
        if done.error is not None or done.role is None:
            return self
        turns = (*self.turns, TranscriptTurn(done.role, done.agent, done.text))
        moved = replace(self, turns=turns, suggested=done.suggestion)
        if done.finish is Finish.REFUSED:
            return moved
        if done.role is Role.WORKER:
            # A critique is about the answer before it; a new answer makes it void.
            return replace(moved, answer=done.text, critique=None)
        if done.role is Role.THINKER:
            return replace(moved, plan=done.text)
        return replace(moved, critique=done.text)

    def brief(self, role: Role) -> Brief:
        """What an agent playing `role` is told now."""
        return Brief(role, self.messages, self.plan, self.answer, self.critique)

    def state(self, masked_agents: Mapping[str, str] | None = None, *, follow_thinker: bool = True) -> LoopState:
        """What the policy is asked to decide on now. A Verifier is masked until there is an answer."""
        roles = {} if self.answer is not None else {Role.VERIFIER.value: "there is no answer to verify yet"}
        suggested = self.suggested if follow_thinker else None
        return LoopState(self.messages, self.turns, dict(masked_agents or {}), roles, suggested)


class _Stopped(Exception):
    """The run's `stop` was set while something was awaited."""


def check_messages(messages: Sequence[Message]) -> tuple[tuple[Message, ...], str | None]:
    """The messages as they can be used, and a note when something had to be replaced.

    Raises InputError for an empty question, one that is too long, or binary data.
    """
    if not messages or messages[-1].role != "user" or not messages[-1].content.strip():
        raise InputError("The question is empty. Type a question and run again.")
    replaced = 0
    clean = []
    for message in messages:
        if len(message.content) > MAX_QUESTION_CHARS:
            raise InputError(
                f"The message has {len(message.content):,} characters; at most {MAX_QUESTION_CHARS:,} can be used. "
                "Shorten it, or ask about one part at a time."
            )
        bad = next((i for i, c in enumerate(message.content) if ord(c) < 32 and c not in "\t\n\r\f\v"), None)
        if bad is not None:
            raise InputError(
                f"The message holds binary data (character {ord(message.content[bad])} at position {bad + 1}). "
                "Paste plain text instead."
            )
        content = clean_text(message.content)
        replaced += sum(a != b for a, b in zip(message.content, content, strict=True))
        clean.append(replace(message, content=content))
    note = f"{replaced} unpaired surrogate(s) in the text were replaced by \ufffd." if replaced else None
    return tuple(clean), note


async def run(request: RunRequest, pool: Members, policy: Policy, stop: asyncio.Event) -> Events:
    """Answer the newest message of `request` by coordinating `pool`; the last event is RunFinished.

    Raises InputError before the first event when the messages cannot be used. Everything that goes wrong later is
    part of the events: a failed call is a turn with an error, a run that cannot go on ends as failed.
    """
    loop = _Run(request, pool, policy, stop)
    async with aclosing(loop.events()) as events:
        async for event in events:
            yield event


class _Run:
    """State of one run under way."""

    def __init__(self, request: RunRequest, pool: Members, policy: Policy, stop: asyncio.Event) -> None:
        self.request = request
        self.params = request.params
        self.pool = pool
        self.policy = policy
        self.stop = stop
        self.messages, self.cleaned = check_messages(request.messages)
        self.seq = 0
        self.finished: list[TurnFinished] = []
        self.masked: dict[str, str] = {}
        self.causes: list[str] = []
        self.situation = Situation(self.messages)
        self.answer: TurnFinished | None = None
        self.totals = Totals()
        self.aside_tokens, self.aside_cost = 0, 0.0  # what calls may have used besides what is known
        self.began = time.monotonic()

    # --- events -------------------------------------------------------------------------------------------

    def _head(self) -> dict[str, Any]:
        self.seq += 1
        return {"run_id": self.request.run_id, "seq": self.seq - 1, "at": time.time()}

    def _note(self, kind: str, message: str, turn: int | None = None) -> Note:
        return Note(**self._head(), kind=kind, message=message, turn=turn)

    async def events(self) -> Events:
        request = self.request
        yield RunStarted(
            **self._head(),
            messages=self.messages,
            method=request.method,
            source=request.source,
            params=self.params,
            pool=self.pool.specs,
            seed=request.seed,
            owner=request.owner,
            parent_run_id=request.parent_run_id,
            fork_turn=request.fork_turn,
            checkpoint_id=self.policy.checkpoint_id,
            transcript_version=self.policy.transcript_version,
            prompt_version=PROMPT_VERSION,
        )
        if self.cleaned:
            yield self._note("cleaned", self.cleaned)
        if self.policy.notice:
            yield self._note("untrained", self.policy.notice)
        try:
            session = self.policy.session(request.run_id, self.pool.names, mode=self.params.mode, seed=request.seed)
        except TrinityError as error:  # a head that does not fit the pool, a mode the policy lacks
            yield self._end(Status.FAILED, StopReason.FAILED, Failure(type(error).__name__, redact(str(error))))
            return
        try:
            for turn in range(1, self.params.max_turns + 1):
                async with aclosing(self._turn(turn, session.decide)) as events:
                    async for event in events:
                        yield event
                if self.finished[-1].verdict is Verdict.ACCEPT and self.answer is not None:
                    yield self._end(Status.DONE, StopReason.ACCEPTED)
                    return
            end = self._end(Status.DONE, StopReason.TURNS_EXHAUSTED)
        except _Stopped:
            end = self._end(Status.CANCELLED, StopReason.CANCELLED)
        except _OverBudget as reached:
            yield self._note("budget", str(reached))
            end = self._end(Status.DONE, StopReason.BUDGET)
        except TrinityError as error:
            causes = "; ".join(self.causes)
            message = f"{error} {causes}".strip() if causes else str(error)
            kind = error.kind if isinstance(error, AgentError) else type(error).__name__
            end = self._end(Status.FAILED, StopReason.FAILED, Failure(kind, redact(message)))
        finally:
            session.close()
        yield end

    def _end(self, status: Status, reason: StopReason, error: Failure | None = None) -> RunFinished:
        if reason is StopReason.ACCEPTED and self.answer is not None:
            final = FinalAnswer(self.answer.text, self.answer.turn)
        else:
            final = final_answer(self.finished)
        self.totals = replace(self.totals, seconds=time.monotonic() - self.began)
        return RunFinished(
            **self._head(),
            status=status,
            stop_reason=reason,
            answer=final.text,
            answer_turn=final.turn,
            flag=final.flag,
            totals=self.totals,
            error=error,
        )

    # --- one turn -----------------------------------------------------------------------------------------

    async def _turn(self, turn: int, decide: Any) -> Events:
        attempt = called = 0
        while called < ATTEMPTS:
            attempt += 1
            choice: Choice = await self._unless_stopped(decide(self._state()))
            self.totals = replace(self.totals, encode_ms=self.totals.encode_ms + choice.decision.encode_ms)
            for kind, message in choice.notes:
                yield self._note(kind, message, turn)
            brief = self.situation.brief(choice.decision.role)
            agent = self.pool.agent(choice.decision.agent)
            request = Request(agent.spec, render(brief), brief, self.params.sampling, self.request.via)
            request = replace(request, max_calls=self._calls_left(request))
            yield TurnStarted(
                **self._head(),
                turn=turn,
                attempt=attempt,
                agent=agent.spec.name,
                role=brief.role,
                decision=choice.decision,
                request=request.sent(),
                hidden=choice.hidden,
            )
            async with aclosing(self._call(turn, attempt, agent, request)) as events:
                async for event in events:
                    yield event
            if self.stop.is_set():
                raise _Stopped
            failure = self.finished[-1].error
            if failure is None:
                return
            if failure.kind == "budget":
                raise _OverBudget(failure.message)
            name, why = agent.spec.name, failure.message.removeprefix(f"{agent.spec.name}: ")
            self.masked[name] = why
            self.causes.append(f"{name} as {brief.role.value}: {why}")
            called += self.finished[-1].calls > 0  # without its key, for example, a member is not called at all
            yield self._note("masked", f"{name} failed and is left out of this run: {why}", turn)
        raise AgentError(f"{ATTEMPTS} members failed in turn {turn}.", kind="attempts")

    async def _call(self, turn: int, attempt: int, agent: Agent, request: Request) -> Events:
        """Stream one reply; ends with TurnFinished, also when it failed or was stopped."""
        began = time.monotonic()
        shown: list[str] = []
        thought: list[str] = []
        reply: Reply | None = None
        failure: Failure | None = None
        spent = Reply("", Finish.ERROR)
        # Agents are asynchronous generators, whose aclose() frees the socket or the decoding slot.
        async with aclosing(agent.stream(request)) as parts:  # type: ignore[type-var]
            while reply is None and failure is None:
                try:
                    part = await self._unless_stopped(_next(parts))
                except _Stopped:
                    failure = Failure("cancelled", "Stopped on request.")
                    spent = replace(spent, unpriced=int(prices.remote(agent.spec)))  # nobody tells what it cost
                    break
                except AgentError as error:
                    failure = Failure(error.kind, redact(str(error)), error.retryable)
                    spent = replace(
                        spent, calls=error.calls, unpriced=error.unpriced, usage=error.usage, cost=error.cost
                    )
                    break
                except TrinityError as error:
                    failure = Failure(type(error).__name__, redact(str(error)))
                    break
                except Exception as error:  # an agent's own bug must not lose the run
                    failure = Failure("internal", redact(f"{type(error).__name__}: {error}"))
                    break
                if isinstance(part, Piece):
                    (shown if part.channel == "text" else thought).append(part.text)
                    yield Delta(**self._head(), turn=turn, attempt=attempt, text=part.text, channel=part.channel)
                elif isinstance(part, Reset):
                    shown.clear()
                    thought.clear()
                    yield TurnReset(**self._head(), turn=turn, attempt=attempt, reason=part.reason)
                elif part is None:
                    failure = Failure("truncated", "The reply ended without a finish reason.", True)
                else:
                    reply = part
        if reply is None:
            stopped = failure is not None and failure.kind == "cancelled"
            finish = Finish.INCOMPLETE if stopped else Finish.ERROR
            reply = replace(spent, text="".join(shown), finish=finish, reasoning="".join(thought))
        head = {**self._head(), "turn": turn, "attempt": attempt}
        if not reply.seconds:
            reply = replace(reply, seconds=time.monotonic() - began)
        done = finish_turn(head, agent.spec.name, request.brief.role, reply, failure)
        self._take(done)
        self._set_aside(request, done)
        yield done
        for warning in reply.warnings:
            yield self._note("warning", redact(f"{agent.spec.name}: {warning}"), turn)

    # --- state --------------------------------------------------------------------------------------------

    def _take(self, done: TurnFinished) -> None:
        """Add a finished call to what the next decision and the next prompt can see."""
        self.finished.append(done)
        totals = self.totals
        if not done.reused:
            cost = totals.cost if done.cost is None else done.cost + (totals.cost or 0.0)
            self.totals = replace(
                totals,
                calls=totals.calls + done.calls,
                usage=totals.usage + done.usage,
                cost=cost,
                unpriced=totals.unpriced + done.unpriced,
            )
        if done.error is not None:
            return
        self.totals = replace(self.totals, turns=self.totals.turns + 1)
        self.situation = self.situation.after(done)
        if done.role is Role.WORKER and done.finish is not Finish.REFUSED:
            self.answer = done

    def _set_aside(self, request: Request, done: TurnFinished) -> None:
        """Keep what a finished call left unknown at its worst: as far as anybody knows, it was used."""
        limits = self.params.limits
        if not done.unpriced or (limits.tokens is None and limits.cost is None):
            return
        worst = worst_case(request)
        counted = done.error is None and done.cost is None and None not in (done.usage.input, done.usage.output)
        # A reply may have told its tokens and still not what it cost, since its price is not known.
        silent = done.unpriced - (counted and worst.cost is None)
        self.aside_tokens += silent * worst.tokens
        self.aside_cost += done.unpriced * (worst.cost or 0.0)

    def _state(self) -> LoopState:
        masked = {**self.pool.resting(), **self.masked}
        if all(name in masked for name in self.pool.names):
            for name, reason in masked.items():
                if name not in self.masked:
                    self.causes.append(f"{name}: {reason.removeprefix(f'{name}: ')}")
            raise NoAgentError("No agent of the pool is available any more.")
        return self.situation.state(masked, follow_thinker=self.params.follow_thinker)

    def _calls_left(self, request: Request) -> int | None:
        """How many calls `request` may make without any chance of exceeding a limit of the run; None: any number.

        Raises _OverBudget when not even one fits."""
        limits, totals = self.params.limits, self.totals
        name, worst, left = request.agent.name, worst_case(request), []
        if limits.calls is not None:
            left.append(limits.calls - totals.calls)
            if left[-1] < 1:
                raise _OverBudget(f"The run may make {limits.calls} call(s) and has made {totals.calls}.")
        if limits.tokens is not None:
            used = (totals.usage.input or 0) + (totals.usage.output or 0) + self.aside_tokens
            left.append((limits.tokens - used) // max(worst.tokens, 1))
            if left[-1] < 1:
                raise _OverBudget(
                    f"The run may use {limits.tokens:,} tokens and has used {used:,}{self._at_most}; the next call, "
                    f"to {name}, could use {worst.tokens:,}. Allow more, or fewer tokens a turn."
                )
        if limits.cost is not None:
            if worst.cost is None:
                raise _OverBudget(
                    f"The run may cost ${limits.cost:.4f}, but what {name} costs is not known. Give its price in the "
                    "pool, or lift the limit."
                )
            spent = (totals.cost or 0.0) + self.aside_cost
            if spent + worst.cost > limits.cost:
                raise _OverBudget(
                    f"The run may cost ${limits.cost:.4f} and has cost ${spent:.4f}{self._at_most}; the next call, "
                    f"to {name}, could cost ${worst.cost:.4f}."
                )
            if worst.cost:
                left.append(int((limits.cost - spent) // worst.cost))
        return max(min(left), 1) if left else None

    @property
    def _at_most(self) -> str:
        unknown = self.aside_tokens or self.aside_cost
        return " at most, for what some calls used is not known" if unknown else ""

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`; cancel it and raise _Stopped as soon as `stop` is set."""
        if self.stop.is_set():
            work.close()
            raise _Stopped
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise _Stopped
        finally:
            stopped.cancel()
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError, TrinityError):
                    await task


def finish_turn(
    head: Mapping[str, Any], agent: str, role: Role | None, reply: Reply, failure: Failure | None = None
) -> TurnFinished:
    """The finished turn that `reply` makes; `head` holds the event's own fields with turn and attempt.

    A reply that is empty, blocked or cut off becomes a failed attempt, also when `failure` is None.
    """
    processed = process(role, reply)
    failure = failure or _unusable(reply, processed)
    empty = failure is not None and reply.finish is Finish.STOP
    return TurnFinished(
        **head,
        agent=agent,
        role=role,
        raw=clean_text(reply.text),
        text=clean_text(processed.text),
        reasoning=clean_text(processed.reasoning),
        verdict=processed.verdict,
        suggestion=processed.suggestion,
        usage=reply.usage,
        finish=Finish.EMPTY if empty else reply.finish,
        cost=reply.cost,
        first_token_s=reply.first_token_s,
        seconds=reply.seconds,
        request_id=reply.request_id,
        calls=reply.calls,
        unpriced=reply.unpriced,
        reused=reply.reused,
        error=failure,
    )


class _OverBudget(Exception):
    """The next call would exceed a limit of the run."""


async def _next(parts: AsyncIterator[Piece | Reset | Reply]) -> Piece | Reset | Reply | None:
    return await anext(parts, None)


def _unusable(reply: Reply, processed: Processed) -> Failure | None:
    """Why a complete reply cannot be a turn, if so: an empty or blocked one is a failed attempt."""
    if reply.finish is Finish.BLOCKED:
        return Failure("blocked", "The provider blocked the reply. Rephrase the question.")
    if reply.finish in (Finish.ERROR, Finish.INCOMPLETE):
        return Failure("truncated", f"The reply ended as {reply.finish.value}.", True)
    if reply.finish is Finish.REFUSED and not reply.text.strip():
        return Failure("refused", "The model declined to answer. Rephrase the question.")
    visible = processed.text if processed.verdict is None else reply.text
    if not visible.strip() or (processed.verdict is Verdict.NONE and processed.text == "none:"):
        spent = " It spent its whole output on reasoning; allow more tokens." if reply.finish is Finish.LENGTH else ""
        return Failure("empty", f"The reply has no visible text.{spent}")
    return None
