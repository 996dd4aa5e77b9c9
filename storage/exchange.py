"""Runs as JSONL: export, and the import of such files and of traces made elsewhere.

Export: one run a line with its turns, notes and labels, every field of the schema but those of this database alone
(bin, lease, row numbers, columns derived from others); strict ASCII JSON; oldest first. Export, import into an
empty database and export again gives the same bytes. A run that is still going is written as `interrupted`: the
file holds a snapshot of it, and nobody will ever finish the copy.

Import trusts nothing. Lines end at "\\n" only; a byte-order mark, "\\r\\n" and blank lines are fine; a line that
cannot be used is reported by its number and the others are kept. Known fields are checked and unknown ones
dropped, credentials among them; text is kept as it is (escaping is for whoever shows it). A run whose id is there
already is skipped, so importing twice changes nothing. A record needs only an id, a question or an answer, under
these or a few usual other names. Times are epoch seconds (or milli-, micro- or nanoseconds, told by their size) or
ISO 8601; without an offset they are UTC.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, BinaryIO

from storage.records import Label, RunQuery, StoredNote, StoredRun, StoredTurn
from storage.rows import cut_off, json_value, totals_of, typed
from storage.store import Store
from trinity_core import wire
from trinity_core.errors import InputError
from trinity_core.types import SCHEMA, Failure, Finish, Status, StopReason

MAX_LINE = 64 * 1024 * 1024
"""Bytes of one line; longer ones are skipped without being read into memory."""
MAX_ERRORS = 1000
"""Bad lines that are listed one by one; any more are only counted."""
MAX_DEPTH = 100
MAX_NAME = 300
"""Characters of ids and names, which are indexed."""
_BATCH_RUNS = 100
_BATCH_BYTES = 8 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_UNFINISHED = (Status.QUEUED, Status.RUNNING)
_EPOCH = re.compile(r"-?\d{9,}(\.\d*)?")

# Names that other programs use, in order of preference; the first that is there counts.
_RUN_ALIASES = {
    "id": ("run_id", "trace_id"),
    "answer": ("final_answer", "text", "output", "response"),
    "question": ("prompt", "query", "input"),
    "created_at": ("started_at", "timestamp", "created", "time", "start_time"),
    "finished_at": ("ended_at", "end_time"),
}
_TURN_ALIASES = {"text": ("content", "output"), "agent": ("model",), "started_at": ("at", "timestamp")}
_RUN_TIMES = ("created_at", "finished_at")
_TURN_TIMES = ("started_at", "finished_at")
_SMALL = 2**31 - 1
_YEAR_5000 = 95_617_584_000


@dataclass(frozen=True, slots=True)
class LineError:
    """A line, counted from 1, that was not imported, and why."""

    number: int
    message: str


@dataclass(frozen=True, slots=True)
class ImportReport:
    """`skipped` runs were there already. `errors` lists at most MAX_ERRORS lines, `failed` counts all bad ones."""

    imported: int
    skipped: int
    errors: tuple[LineError, ...] = ()
    failed: int = 0


# --- Export -----------------------------------------------------------------------------------------------


def export_jsonl(store: Store, out: BinaryIO, query: RunQuery) -> int:
    """Write the runs that `query` matches (page and sort apart) to `out`; return how many.

    Memory stays constant. Raises StoreError, and OSError from `out`.
    """
    count = 0
    for run in store.every_run(query):
        out.write(run_line(run))
        count += 1
    return count


def run_line(run: StoredRun) -> bytes:
    """One run as a line of JSONL, newline included."""
    value = wire.plain(_settled(run))
    del value["deleted_at"]
    return (wire.line({"schema": SCHEMA, **value}) + "\n").encode("ascii")


def _settled(run: StoredRun) -> StoredRun:
    if run.status not in _UNFINISHED:
        return run
    error = Failure("interrupted", "The run was still going when it was exported.", retryable=True)

    def settle(turn: StoredTurn) -> StoredTurn:
        if turn.finish is not None:
            return turn
        return replace(cut_off(turn), finish=Finish.INCOMPLETE, text=turn.text or turn.raw, error=error)

    turns = tuple(settle(turn) for turn in run.turns)
    return replace(
        run,
        status=Status.INTERRUPTED,
        stop_reason=StopReason.FAILED,
        error=error,
        turns=turns,
        totals=run.totals if turns == run.turns else totals_of(turns),
    )


# --- Import -----------------------------------------------------------------------------------------------


def import_jsonl(store: Store, lines: BinaryIO, *, owner: str | None = None) -> ImportReport:
    """Store the runs of a JSONL file. `owner` makes them that owner's, whatever the file says; a page that several
    people use must give it.

    Raises StoreError when the database refuses to be written; the batches before stay.
    """
    importer = _Importer(store)
    for number, raw in _lines(lines):
        try:
            if raw is None:
                raise InputError(f"The line is longer than {MAX_LINE // 2**20} MB.")
            run = parse_run(raw)
        except InputError as error:
            importer.fail(number, str(error))
            continue
        if run is not None:
            importer.add(number, replace(run, owner=owner) if owner is not None else run, len(raw))
    importer.flush()
    return importer.report()


class _Importer:
    """Gathers runs into batches, each one transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._batch: list[tuple[int, StoredRun]] = []
        self._bytes = 0
        self._imported = 0
        self._skipped = 0
        self._failed = 0
        self._errors: list[LineError] = []

    def add(self, number: int, run: StoredRun, size: int) -> None:
        self._batch.append((number, run))
        self._bytes += size
        if len(self._batch) >= _BATCH_RUNS or self._bytes >= _BATCH_BYTES:
            self.flush()

    def fail(self, number: int, message: str) -> None:
        self._failed += 1
        if len(self._errors) < MAX_ERRORS:
            self._errors.append(LineError(number, wire.redact(message)))

    def flush(self) -> None:
        if not self._batch:
            return
        outcomes = self._store.add_runs(run for _, run in self._batch)
        for (number, _), outcome in zip(self._batch, outcomes, strict=True):
            if isinstance(outcome, str):
                taken = "unique" in outcome.lower()
                self.fail(number, "Another run has a turn or label with the same id." if taken else outcome)
            elif outcome:
                self._imported += 1
            else:
                self._skipped += 1
        self._batch, self._bytes = [], 0

    def report(self) -> ImportReport:
        in_order = sorted(self._errors, key=lambda error: error.number)
        return ImportReport(self._imported, self._skipped, tuple(in_order), self._failed)


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Lines with their numbers; None for one that is too long."""
    number = 0
    while raw := stream.readline(MAX_LINE + 1):
        number += 1
        if len(raw) > MAX_LINE and not raw.endswith(b"\n"):
            while raw and not raw.endswith(b"\n"):
                raw = stream.readline(MAX_LINE)
            yield number, None
        else:
            yield number, raw


def parse_run(raw: bytes) -> StoredRun | None:
    """The run that a line describes, None for a blank line. Raises InputError naming the bad field."""
    stripped = raw.removeprefix(_BOM).strip(b" \t\r\n")
    if not stripped:
        return None
    try:
        value = json.loads(stripped.decode("utf-8"), parse_constant=lambda _: None)
    except UnicodeDecodeError:
        raise InputError("The line is not UTF-8.") from None
    except (ValueError, RecursionError) as error:
        said = (
            error.msg if isinstance(error, json.JSONDecodeError) else "it is nested too deep or holds a huge number"
        )
        raise InputError(f"The line is not JSON ({said}).") from None
    if not isinstance(value, dict):
        raise InputError("The line is not a JSON object.")
    if _deeper_than(value, MAX_DEPTH):
        raise InputError(f"The line is nested more than {MAX_DEPTH} levels deep.")
    return _run(json_value(value))


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


# --- One record -------------------------------------------------------------------------------------------


def _run(value: dict[str, Any]) -> StoredRun:
    if "event" in value and "seq" in value:
        raise InputError("The line is an event of a run, not a trace. Import a file made by export.")
    _known_schema(value.get("schema"))
    known = _renamed(value, _RUN_ALIASES, [*_names(StoredRun), "question"])
    question = known.pop("question", None)
    if question is not None and not isinstance(question, str):
        raise InputError("question: Input should be a valid string")
    if not known.get("messages") and question:
        known["messages"] = [{"role": "user", "content": question}]
    if not any(known.get(name) for name in ("id", "messages", "answer")):
        raise InputError("The record has no id, no question and no answer.")
    if known.get("id") is None:
        known["id"] = f"import-{wire.digest(value)[:32]}"
    _name(known, "id", "id")
    _times(known, _RUN_TIMES, "")
    _error(known)
    run_id = known["id"]
    known["turns"] = [_turn(t, run_id, i) for i, t in enumerate(_list(known, "turns"))]
    known["notes"] = [_note(n, i) for i, n in enumerate(_list(known, "notes"))]
    known["labels"] = [_label(mark, run_id, i) for i, mark in enumerate(_list(known, "labels"))]
    if "created_at" not in known:
        began = [t["started_at"] for t in known["turns"] if t.get("started_at") is not None]
        known["created_at"] = min(began, default=known.get("finished_at", time.time()))
    run = _checked(known)
    if run.status in _UNFINISHED:
        return _settled(run)
    return run


def _known_schema(schema: Any) -> None:
    """Refuse a later version's record, whose fields may mean something else. Other programs' schemas do not count."""
    try:
        number = float(schema) if isinstance(schema, int | float | str) and not isinstance(schema, bool) else None
    except (ValueError, OverflowError):
        number = math.inf if isinstance(schema, int) else None
    if number is not None and number > SCHEMA:
        raise InputError(f"The line was made by a newer version of Trinity (schema {schema}). Update Trinity.")


def _checked(known: dict[str, Any]) -> StoredRun:
    try:
        run = typed(StoredRun, known)
    except InputError as error:
        raise InputError(str(error).removeprefix("StoredRun: ")) from None
    whole = {"answer_turn": run.answer_turn, "fork_turn": run.fork_turn}
    for i, turn in enumerate(run.turns):
        whole |= {f"turns.{i}.{name}": getattr(turn, name) for name in ("turn", "attempt", "calls", "unpriced")}
    if run.totals is not None:
        whole["totals.unpriced"] = run.totals.unpriced
    for where, number in whole.items():
        if number is not None and not 0 <= number <= _SMALL:
            raise InputError(f"{where}: should be between 0 and {_SMALL}")
    if run.seed is not None and not -(2**63) <= run.seed < 2**63:
        raise InputError("seed: should fit in 64 bits")
    for where in ("owner", "checkpoint_id", "method"):
        if len(getattr(run, where) or "") > MAX_NAME:
            raise InputError(f"{where}: should have at most {MAX_NAME} characters")
    order = sorted(run.turns, key=lambda t: (t.turn, t.attempt))
    for before, turn in pairwise(order):
        if (before.turn, before.attempt) == (turn.turn, turn.attempt):
            raise InputError(f"turns: turn {turn.turn}, attempt {turn.attempt} is there twice")
    known_turns = {turn.id for turn in run.turns}
    for what, ids in (("turns", [turn.id for turn in run.turns]), ("labels", [label.id for label in run.labels])):
        if len(set(ids)) < len(ids):
            raise InputError(f"{what}: two have the same id")
    for i, label in enumerate(run.labels):
        if label.turn_id is not None and label.turn_id not in known_turns:
            raise InputError(f"labels.{i}.turn_id: the run has no such turn")
    return replace(run, turns=tuple(order))


def _turn(value: Any, run_id: str, index: int) -> dict[str, Any]:
    where = f"turns.{index}."
    known = _renamed(_object(value, f"turns.{index}"), _TURN_ALIASES, _names(StoredTurn))
    known.setdefault("turn", index + 1)
    known.setdefault("attempt", 1)
    # Not random, so that the same file makes the same rows everywhere.
    known.setdefault("id", wire.digest([run_id, index])[:32])
    for name in ("id", "agent"):
        if name in known:
            _name(known, name, where + name)
    _times(known, _TURN_TIMES, where)
    _error(known)
    known.setdefault("finish", (Finish.ERROR if known.get("error") else Finish.STOP).value)
    if isinstance(known.get("hidden"), str):
        try:
            known["hidden"] = base64.b64decode(known["hidden"], validate=True)
        except (binascii.Error, ValueError):
            raise InputError(f"{where}hidden: Input should be base64") from None
    return known


def _note(value: Any, index: int) -> dict[str, Any]:
    known = _renamed(_object(value, f"notes.{index}"), {}, _names(StoredNote))
    _times(known, ("at",), f"notes.{index}.")
    known.setdefault("at", 0.0)
    return known


def _label(value: Any, run_id: str, index: int) -> dict[str, Any]:
    where = f"labels.{index}."
    known = _renamed(_object(value, f"labels.{index}"), {}, _names(Label))
    known["run_id"] = run_id
    known.setdefault("id", wire.digest([run_id, "label", index])[:32])
    for name in ("id", "kind", "labeller"):
        if name in known:
            _name(known, name, where + name, empty=name == "labeller")
    _times(known, ("created_at",), where)
    return known


def _names(kind: type[StoredRun | StoredTurn | StoredNote | Label]) -> list[str]:
    return [field.name for field in fields(kind) if field.name != "deleted_at"]


def _renamed(value: Mapping[str, Any], aliases: dict[str, tuple[str, ...]], names: list[str]) -> dict[str, Any]:
    """The known fields of `value` that are not null, under our names."""
    known = {}
    for name in names:
        found = next((value[n] for n in (name, *aliases.get(name, ())) if value.get(n) is not None), None)
        if found is not None:
            known[name] = found
    return known


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: Input should be an object")
    return value


def _list(known: dict[str, Any], name: str) -> list[Any]:
    value = known.get(name, [])
    if not isinstance(value, list):
        raise InputError(f"{name}: Input should be a list")
    return value


def _name(known: dict[str, Any], name: str, where: str, *, empty: bool = False) -> None:
    value = known[name]
    if not isinstance(value, str):
        raise InputError(f"{where}: Input should be a valid string")
    if not value.strip() and not empty:
        raise InputError(f"{where}: should not be empty")
    if len(value) > MAX_NAME:
        raise InputError(f"{where}: should have at most {MAX_NAME} characters")


def _error(known: dict[str, Any]) -> None:
    if isinstance(known.get("error"), str):
        known["error"] = {"kind": "internal", "message": known["error"]}


def _times(known: dict[str, Any], names: tuple[str, ...], where: str) -> None:
    for name in names:
        if name in known:
            known[name] = epoch(known[name], where + name)


def epoch(value: Any, where: str = "time") -> float:
    """UTC epoch seconds from a number or an ISO 8601 text. Raises InputError naming `where`."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return _seconds(float(value), where)
        except OverflowError:
            raise InputError(f"{where}: is too large for a time") from None
    if isinstance(value, str):
        stamp = value.strip()
        if _EPOCH.fullmatch(stamp):
            return _seconds(float(stamp), where)
        try:
            parsed = datetime.fromisoformat(stamp)
            return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            pass
    raise InputError(f"{where}: should be epoch seconds or an ISO 8601 time such as 2026-01-01T00:00:00Z")


def _seconds(value: float, where: str) -> float:
    """Epoch seconds from a number that may count milli-, micro- or nanoseconds, as no trace is from the year 5000."""
    for unit in (1.0, 1e3, 1e6, 1e9):
        if abs(value / unit) < _YEAR_5000:
            return value / unit
    raise InputError(f"{where}: is too large for a time")
