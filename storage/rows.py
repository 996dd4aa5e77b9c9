"""Records to rows and back.

Every text that goes to a column passes through `text`, every JSON value through `json_value`: unpaired surrogates
and NUL characters, which SQLite or PostgreSQL refuse, become U+FFFD, and numbers that are not finite become None.
So no reply is lost over a character, and both engines hold the same. Nothing that looks like a key gets in:
members with a credential's name are dropped from requests, options and pools, and errors are redacted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from sqlalchemy import Row

from storage.records import Label, StoredRun, StoredTurn
from trinity_core import wire
from trinity_core.agents.prices import REMOTE
from trinity_core.types import AgentSpec, Failure, Role, Totals, Usage

T = TypeVar("T")

ROLE_LETTERS = {Role.WORKER: "W", Role.THINKER: "T", Role.VERIFIER: "V"}
SEPARATOR = "·"


# --- Cleaning ---------------------------------------------------------------------------------------------


def text(value: str) -> str:
    return wire.clean_text(value).replace("\x00", "\ufffd")


def optional_text(value: str | None) -> str | None:
    return None if value is None else text(value)


def json_value(value: Any) -> Any:
    """`value` as JSON types that both engines take."""
    return _without_nul(wire.plain(value))


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd")
    if isinstance(value, dict):
        return {_without_nul(k): _without_nul(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_nul(v) for v in value]
    return value


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def safe_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request without credentials. The messages stay as they were sent; the options are also redacted."""
    kept: dict[str, Any] = json_value(wire.drop_secrets(request))
    return {k: v if k == "messages" else _redacted(v) for k, v in kept.items()}


def safe_pool(pool: Iterable[AgentSpec]) -> list[dict[str, Any]]:
    return [_redacted(json_value(wire.drop_secrets(wire.plain(spec)))) for spec in pool]


def failure_value(error: Failure | None) -> dict[str, Any] | None:
    value: dict[str, Any] | None = _redacted(json_value(error))
    return value


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return wire.redact(value)
    if isinstance(value, dict):
        return {k: _redacted(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_redacted(v) for v in value]
    return value


def typed(kind: type[T], value: Any) -> T:
    """The record that `json_value` made `value` of. A null (a number that was not finite) reads as absent."""
    return wire.record(kind, _without_nulls(value))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        # These are free JSON: a null there is somebody's value.
        free = ("options", "service", "request")
        return {k: v if k in free else _without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(v) for v in value if v is not None]
    return value


# --- Rows -------------------------------------------------------------------------------------------------


def summary_values(turns: Iterable[StoredTurn]) -> dict[str, Any]:
    """The columns of a run that its turns decide."""
    done = sorted((t for t in turns if t.counts), key=lambda t: (t.turn, t.attempt))
    roles = [ROLE_LETTERS[t.role] if t.role else "–" for t in done]
    return {
        "roles": SEPARATOR.join(roles) if any(t.role for t in done) else "",
        "agents": text(f" {SEPARATOR} ".join(t.agent for t in done)),
        "verdict": next((t.verdict.value for t in reversed(done) if t.verdict), None),
        "turn_count": len({t.turn for t in done}),
    }


def cut_off(turn: StoredTurn) -> StoredTurn:
    """A call that nobody will ever hear the end of; of a remote member's, nobody knows what it cost."""
    return replace(turn, unpriced=int(turn.request.get("kind") in REMOTE))


def totals_of(turns: Sequence[StoredTurn]) -> Totals:
    """Sums over stored turns, for runs that never said them."""
    usage, cost = Usage(), None
    made = [turn for turn in turns if not turn.reused]
    for turn in made:
        usage += turn.usage
        if turn.cost is not None:
            cost = turn.cost + (cost or 0.0)
    return Totals(
        turns=len({t.turn for t in turns if t.counts}),
        calls=sum(t.calls for t in made),
        usage=usage,
        cost=cost,
        unpriced=sum(t.unpriced for t in made),
        seconds=sum((finite(t.seconds) or 0.0 for t in turns), 0.0),
        encode_ms=sum((finite(t.decision.encode_ms) or 0.0 for t in turns if t.decision), 0.0),
    )


def totals_values(totals: Totals | None) -> dict[str, Any]:
    if totals is None:
        return {"totals": None, "seconds": None, "tokens": None, "cost": None, "unpriced": 0}
    known = [n for n in (totals.usage.input, totals.usage.output) if n is not None]
    return {
        "totals": json_value(totals),
        "seconds": finite(totals.seconds),
        "tokens": sum(known) if known else None,
        "cost": finite(totals.cost),
        "unpriced": totals.unpriced,
    }


def run_values(run: StoredRun) -> dict[str, Any]:
    """A run's row without its turns and labels, which have tables of their own."""
    totals = run.totals or (totals_of(run.turns) if run.turns else None)
    return {
        "id": text(run.id),
        "owner": optional_text(run.owner),
        "source": run.source.value,
        "method": text(run.method),
        "status": run.status.value,
        "stop_reason": run.stop_reason.value if run.stop_reason else None,
        "flag": optional_text(run.flag),
        "question": text(run.question),
        "created_at": finite(run.created_at) or 0.0,
        "finished_at": finite(run.finished_at),
        "answer": optional_text(run.answer),
        "answer_turn": run.answer_turn,
        "messages": json_value(run.messages),
        "params": json_value(run.params),
        "pool": safe_pool(run.pool),
        "seed": run.seed,
        "parent_run_id": optional_text(run.parent_run_id),
        "fork_turn": run.fork_turn,
        "checkpoint_id": optional_text(run.checkpoint_id),
        "transcript_version": optional_text(run.transcript_version),
        "prompt_version": optional_text(run.prompt_version),
        "notes": json_value(run.notes) or None,
        "error": failure_value(run.error),
        **summary_values(run.turns),
        **totals_values(totals),
    }


def turn_values(run_id: str, turn: StoredTurn) -> dict[str, Any]:
    return {
        "id": text(turn.id),
        "run_id": text(run_id),
        "turn": turn.turn,
        "attempt": turn.attempt,
        "agent": text(turn.agent),
        "role": turn.role.value if turn.role else None,
        "verdict": turn.verdict.value if turn.verdict else None,
        "finish": turn.finish.value if turn.finish else None,
        "started_at": finite(turn.started_at),
        "finished_at": finite(turn.finished_at),
        "seconds": finite(turn.seconds),
        "first_token_s": finite(turn.first_token_s),
        "cost": finite(turn.cost),
        "calls": turn.calls,
        "unpriced": turn.unpriced,
        "reused": turn.reused,
        "request_id": optional_text(turn.request_id),
        "text": text(turn.text),
        "raw": text(turn.raw),
        "reasoning": text(turn.reasoning),
        "decision": json_value(turn.decision),
        "request": safe_request(turn.request) or None,
        "suggestion": json_value(turn.suggestion),
        "usage": None if turn.usage == Usage() else json_value(turn.usage),
        "error": failure_value(turn.error),
        "hidden": turn.hidden,
    }


def label_values(label: Label) -> dict[str, Any]:
    return {
        "id": text(label.id),
        "run_id": text(label.run_id),
        "turn_id": optional_text(label.turn_id),
        "kind": text(label.kind),
        "value": text(label.value),
        "labeller": text(label.labeller),
        "created_at": finite(label.created_at) or 0.0,
    }


def turn_of(row: Row[Any]) -> StoredTurn:
    m = row._mapping
    return typed(StoredTurn, {name: m[name] for name in StoredTurn.__dataclass_fields__})


def label_of(row: Row[Any]) -> Label:
    m = row._mapping
    return typed(Label, {name: m[name] for name in Label.__dataclass_fields__})


def run_of(row: Row[Any], turns: Iterable[Row[Any]], labels: Iterable[Row[Any]]) -> StoredRun:
    m = row._mapping
    values = {name: m[name] for name in StoredRun.__dataclass_fields__ if name not in ("turns", "labels")}
    return typed(
        StoredRun,
        values | {"turns": [_plain_turn(t) for t in turns], "labels": [label._asdict() for label in labels]},
    )


def _plain_turn(row: Row[Any]) -> dict[str, Any]:
    m = row._mapping
    return {name: m[name] for name in StoredTurn.__dataclass_fields__}
