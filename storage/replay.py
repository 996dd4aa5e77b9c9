"""A stored run as the events it was made of, so that one reducer draws stored and live runs.

Each turn is `turn_started`, one `delta` a channel with all of its raw text, `turn_finished`; notes stand where
their times put them. `seq` is counted anew. A run that is still going has no `turn_finished` for the call under
way and no `run_finished`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from storage.records import StoredNote, StoredRun, StoredTurn
from storage.rows import totals_of
from trinity_core.types import (
    AnyRunEvent,
    Delta,
    Note,
    RunFinished,
    RunStarted,
    Status,
    StopReason,
    TurnFinished,
    TurnStarted,
)


def events_of(run: StoredRun) -> tuple[AnyRunEvent, ...]:
    """The run's events in order, `seq` from 0 without gaps."""
    return tuple(replace(event, seq=seq) for seq, event in enumerate(_events(run)))


def _events(run: StoredRun) -> Iterator[AnyRunEvent]:
    yield RunStarted(
        run_id=run.id,
        seq=0,
        at=run.created_at,
        messages=run.messages,
        method=run.method,
        source=run.source,
        params=run.params,
        pool=run.pool,
        seed=run.seed or 0,
        owner=run.owner,
        parent_run_id=run.parent_run_id,
        fork_turn=run.fork_turn,
        checkpoint_id=run.checkpoint_id,
        transcript_version=run.transcript_version,
        prompt_version=run.prompt_version,
    )
    notes = list(run.notes)
    for turn in run.turns:
        yield from _turn(run, turn, notes)
    yield from _notes(run, notes, None)
    if run.status not in (Status.QUEUED, Status.RUNNING):
        yield _run_finished(run)


def _turn(run: StoredRun, turn: StoredTurn, notes: list[StoredNote]) -> Iterator[AnyRunEvent]:
    began = turn.started_at if turn.started_at is not None else run.created_at
    ended = turn.finished_at if turn.finished_at is not None else began
    yield from _notes(run, notes, began)
    yield TurnStarted(
        run_id=run.id,
        seq=0,
        at=began,
        turn=turn.turn,
        attempt=turn.attempt,
        agent=turn.agent,
        role=turn.role,
        decision=turn.decision,
        request=turn.request,
        hidden=turn.hidden,
    )
    if turn.reasoning:
        yield Delta(
            run_id=run.id,
            seq=0,
            at=began,
            turn=turn.turn,
            attempt=turn.attempt,
            text=turn.reasoning,
            channel="reasoning",
        )
    if shown := turn.raw or turn.text:
        yield Delta(run_id=run.id, seq=0, at=began, turn=turn.turn, attempt=turn.attempt, text=shown)
    if turn.finish is None:
        return
    yield from _notes(run, notes, ended)
    yield TurnFinished(
        run_id=run.id,
        seq=0,
        at=ended,
        turn=turn.turn,
        attempt=turn.attempt,
        agent=turn.agent,
        role=turn.role,
        raw=turn.raw,
        text=turn.text,
        reasoning=turn.reasoning,
        verdict=turn.verdict,
        suggestion=turn.suggestion,
        usage=turn.usage,
        finish=turn.finish,
        cost=turn.cost,
        first_token_s=turn.first_token_s,
        seconds=turn.seconds or 0.0,
        request_id=turn.request_id,
        calls=turn.calls,
        unpriced=turn.unpriced,
        reused=turn.reused,
        error=turn.error,
    )


def _notes(run: StoredRun, notes: list[StoredNote], until: float | None) -> Iterator[Note]:
    """Take from `notes` those of up to `until` (None: all that is left)."""
    while notes and (until is None or notes[0].at <= until):
        note = notes.pop(0)
        yield Note(run_id=run.id, seq=0, at=note.at, kind=note.kind, message=note.message, turn=note.turn)


def _run_finished(run: StoredRun) -> RunFinished:
    return RunFinished(
        run_id=run.id,
        seq=0,
        at=run.finished_at if run.finished_at is not None else run.created_at,
        status=run.status,
        stop_reason=run.stop_reason or _reason(run),
        answer=run.answer,
        answer_turn=run.answer_turn,
        flag=run.flag,
        totals=run.totals or totals_of(run.turns),
        error=run.error,
    )


def _reason(run: StoredRun) -> StopReason:
    """For imported runs that do not say why they ended."""
    if run.status is Status.CANCELLED:
        return StopReason.CANCELLED
    return StopReason.TURNS_EXHAUSTED if run.status is Status.DONE else StopReason.FAILED
