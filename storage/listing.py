"""From a `RunQuery` to SQL: filters, search and order. Every filter is SQL; no body is loaded to list a run.

Search is for the text as it stands (blanks around it apart), in any case, wherever it occurs in a question, an
answer or a turn's text. Nothing in it is syntax: it is one quoted phrase to FTS5 and an escaped pattern to LIKE.
SQLite's trigram index needs three characters; shorter searches read every row with LIKE, which on SQLite folds
case for ASCII only, so other letters are tried in both cases. PostgreSQL uses ILIKE, helped by pg_trgm.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, column, func, or_, select
from sqlalchemy import text as sql
from sqlalchemy.sql.selectable import Select

from storage.records import QUESTION_CHARS, RunPage, RunQuery, RunSummary
from storage.rows import ROLE_LETTERS, SEPARATOR, text
from storage.schema import labels, runs, turns
from trinity_core import wire
from trinity_core.errors import InputError

TRIGRAM = 3
MAX_SEARCH_CHARS = 1000
MAX_PAGE_SIZE = 1000

_TEXT_SORTS = ("question", "roles", "agents", "verdict", "status", "stop_reason", "source", "method")
_SORTS = ("created_at", *_TEXT_SORTS, "turn_count", "seconds", "tokens", "cost")
_MATCH = sql(
    "SELECT rowid AS n FROM runs_fts WHERE runs_fts MATCH :phrase UNION SELECT runs.n FROM runs "
    "JOIN turns ON turns.run_id = runs.id "
    "WHERE turns.n IN (SELECT rowid FROM turns_fts WHERE turns_fts MATCH :phrase)"
)


def visible(table: Table, owner: str | None, all_owners: bool) -> list[ColumnElement[bool]]:
    """The owner rule: one's own rows and those of nobody; or all of them."""
    if all_owners:
        return []
    if owner is None:
        return [table.c.owner.is_(None)]
    return [or_(table.c.owner == text(owner), table.c.owner.is_(None))]


def conditions(query: RunQuery, sqlite: bool) -> list[ColumnElement[bool]]:
    """All that a row of `runs` must fulfil. Raises InputError for a search that is too long."""
    c = runs.c
    found = visible(runs, query.owner, query.all_owners)
    found.append(c.deleted_at.is_not(None) if query.deleted else c.deleted_at.is_(None))
    for col, value in (
        (c.status, query.status),
        (c.stop_reason, query.stop_reason),
        (c.verdict, query.verdict),
        (c.source, query.source),
        (c.method, query.method),
        (c.checkpoint_id, query.checkpoint_id),
    ):
        if value is not None:
            found.append(col == text(str(value)))
    if query.roles is not None:
        found.append(c.roles == SEPARATOR.join(ROLE_LETTERS[role] for role in query.roles))
    if query.agent is not None:
        # Not a correlated EXISTS: SQLite would walk the agent's turns once for every run.
        found.append(c.id.in_(select(turns.c.run_id).where(turns.c.agent == text(query.agent))))
    if query.since is not None:
        found.append(c.created_at >= query.since)
    if query.until is not None:
        found.append(c.created_at < query.until)
    if query.label is not None or query.unlabelled:
        labelled = select(labels.c.run_id)
        if query.label is not None:
            labelled = labelled.where(labels.c.kind == text(query.label))
        found.append(c.id.not_in(labelled) if query.unlabelled else c.id.in_(labelled))
    if term := text(query.search).strip():
        found.append(_contains(term, sqlite))
    return found


def page_of(connection: Connection, query: RunQuery, sqlite: bool) -> RunPage:
    """One page of the list. Raises InputError for an unknown sort column."""
    if query.sort not in _SORTS:
        raise InputError(f"Runs cannot be sorted by {query.sort!r}. Choose one of: {', '.join(_SORTS)}.")
    where = conditions(query, sqlite)
    size = min(max(query.page_size, 1), MAX_PAGE_SIZE)
    page = max(query.page, 1)
    total = connection.execute(select(func.count()).select_from(runs).where(*where)).scalar_one()
    shown = (name for name in RunSummary.__dataclass_fields__ if name not in ("question", "labels"))
    statement = select(
        func.substr(runs.c.question, 1, QUESTION_CHARS).label("question"), *(runs.c[name] for name in shown)
    ).where(*where)
    rows = connection.execute(_ordered(statement, query, sqlite).limit(size).offset((page - 1) * size)).all()
    marks = _labels(connection, [row.id for row in rows])
    return RunPage(tuple(_summary(row, marks.get(row.id, {})) for row in rows), total, page, size)


def _summary(row: Row[Any], marks: dict[str, str]) -> RunSummary:
    return wire.record(RunSummary, {**row._mapping, "labels": marks})


def _ordered(statement: Select[Any], query: RunQuery, sqlite: bool) -> Select[Any]:
    col: ColumnElement[Any] = runs.c[query.sort]
    newest_first = query.descending
    if query.sort == "created_at":
        # Plain, so that the index gives the order.
        keys = (runs.c.created_at, runs.c.id)
        return statement.order_by(*(key.desc() if newest_first else key.asc() for key in keys))
    if query.sort in _TEXT_SORTS and not sqlite:
        col = col.collate("C")  # the same order on every server
    nulls_last = runs.c[query.sort].is_(None)
    return statement.order_by(
        nulls_last, col.desc() if query.descending else col.asc(), runs.c.created_at.desc(), runs.c.id.desc()
    )


def _labels(connection: Connection, ids: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    if ids:
        value = func.substr(labels.c.value, 1, QUESTION_CHARS)
        statement = select(labels.c.run_id, labels.c.kind, value).where(
            labels.c.run_id.in_(ids), labels.c.turn_id.is_(None)
        )
        for run_id, kind, short in connection.execute(statement.order_by(labels.c.created_at, labels.c.id)):
            found.setdefault(run_id, {})[kind] = short
    return found


# --- Search -----------------------------------------------------------------------------------------------


def _contains(term: str, sqlite: bool) -> ColumnElement[bool]:
    if len(term) > MAX_SEARCH_CHARS:
        raise InputError(f"Search for at most {MAX_SEARCH_CHARS} characters.")
    if sqlite and len(term) >= TRIGRAM:
        phrase = '"' + term.replace('"', '""') + '"'
        return runs.c.n.in_(_MATCH.bindparams(phrase=phrase).columns(column("n")))
    texts = select(runs.c.n).join(turns, turns.c.run_id == runs.c.id)
    # Apart, so that each can use its own index.
    return runs.c.n.in_(
        select(runs.c.n)
        .where(_like(runs.c.question, term, sqlite))
        .union(
            select(runs.c.n).where(_like(runs.c.answer, term, sqlite)),
            texts.where(_like(turns.c.text, term, sqlite)),
        )
    )


def _like(col: ColumnElement[Any], term: str, sqlite: bool) -> ColumnElement[bool]:
    if not sqlite:
        return col.ilike(_pattern(term), escape="\\")
    cases = (sorted({char, char.lower(), char.upper()}) if not char.isascii() else [char] for char in term)
    return or_(*(col.like(_pattern("".join(variant)), escape="\\") for variant in product(*cases)))


def _pattern(term: str) -> str:
    escaped = term.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


# --- In order of time --------------------------------------------------------------------------------------


def oldest_first(sqlite: bool) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """The keys to order and to page by: the same order on both engines, whatever a server's collation."""
    return runs.c.created_at, runs.c.id if sqlite else runs.c.id.collate("C")


def after(created_at: float, run_id: str, sqlite: bool) -> ColumnElement[bool]:
    """Rows behind this one in that order."""
    at, key = oldest_first(sqlite)
    return or_(at > created_at, and_(at == created_at, key > run_id))
