"""The tables, as SQLAlchemy Core sees them. `migrations/` builds them; a test keeps the two equal.

Conventions:
- Every id is text (UUIDv7 unless it came with an import). `runs` and `turns` also have an integer key `n`: the
  full-text index points at it, because SQLite renumbers implicit rowids on VACUUM.
- Times are float UTC epoch seconds, durations float seconds, enums their lower-case values.
- What is filtered or sorted on has its own column; JSON columns hold the rest and store None as SQL NULL.
- JSON is the text type on both engines, never jsonb: key order (agents in head order) and float digits survive.
- Rows that belong to a run go with it (ON DELETE CASCADE). A run's parent and checkpoint are names, not keys:
  an imported run may refer to rows that this database does not have.
- What was spent is spent: `spending` belongs to no run, so that deleting runs does not make a day cheaper.
- A column added by a later migration that may not be NULL has a default in the database, for the rows before it.

Not here: the search index. SQLite has two external-content FTS5 tables kept in step by triggers, PostgreSQL has
pg_trgm indexes; both live in the migrations alone (`in_models` keeps them out of comparisons).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
)
from sqlalchemy.sql.type_api import TypeEngine

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

SEARCH_PREFIXES = ("runs_fts", "turns_fts", "trgm_")
"""Names of the search index's tables (SQLite) and indexes (PostgreSQL)."""


def _json() -> TypeEngine[Any]:
    return JSON(none_as_null=True)


def _key() -> TypeEngine[int]:
    # SQLite makes an alias of the rowid only out of a column declared exactly INTEGER PRIMARY KEY.
    return BigInteger().with_variant(Integer(), "sqlite")


runs = Table(
    "runs",
    metadata,
    Column("n", _key(), primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False),
    Column("owner", Text),
    Column("source", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("stop_reason", Text),
    Column("flag", Text),
    # What the list shows, kept up to date by the writer.
    Column("question", Text, nullable=False),
    Column("roles", Text, nullable=False),  # "T·W·V", one letter a finished turn
    Column("agents", Text, nullable=False),  # names in turn order, joined by " · "
    Column("verdict", Text),  # of the newest Verifier turn
    Column("turn_count", Integer, nullable=False),
    Column("seconds", Double),
    Column("tokens", BigInteger),  # input + output
    Column("cost", Double),
    Column("unpriced", Integer, nullable=False, server_default="0"),  # calls whose cost is not in `cost`
    Column("created_at", Double, nullable=False),
    Column("finished_at", Double),
    Column("deleted_at", Double),
    # Bodies.
    Column("answer", Text),
    Column("answer_turn", Integer),
    Column("messages", _json(), nullable=False),
    Column("params", _json(), nullable=False),
    Column("pool", _json(), nullable=False),
    Column("seed", BigInteger),
    Column("parent_run_id", Text),
    Column("fork_turn", Integer),
    Column("checkpoint_id", Text),
    Column("transcript_version", Text),
    Column("prompt_version", Text),
    Column("totals", _json()),
    Column("notes", _json()),
    Column("error", _json()),
    # Who writes it while it is unfinished: see `lease.py`.
    Column("process", Text),
    Column("heartbeat_at", Double),
    UniqueConstraint("id"),
)
Index("ix_runs_created_at", runs.c.created_at, runs.c.id)
Index("ix_runs_owner", runs.c.owner, runs.c.created_at)
Index("ix_runs_status", runs.c.status)
Index("ix_runs_checkpoint_id", runs.c.checkpoint_id)
Index("ix_runs_deleted_at", runs.c.deleted_at)

turns = Table(
    "turns",
    metadata,
    Column("n", _key(), primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False),
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("turn", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("agent", Text, nullable=False),
    Column("role", Text),
    Column("verdict", Text),
    Column("finish", Text),  # NULL until the call ended
    Column("started_at", Double),
    Column("finished_at", Double),
    Column("seconds", Double),
    Column("first_token_s", Double),
    Column("cost", Double),
    Column("calls", Integer, nullable=False, server_default="1"),
    Column("unpriced", Integer, nullable=False, server_default="0"),
    Column("reused", Boolean, nullable=False, server_default=false()),
    Column("request_id", Text),
    Column("text", Text, nullable=False),
    Column("raw", Text, nullable=False),
    Column("reasoning", Text, nullable=False),
    Column("decision", _json()),
    Column("request", _json()),
    Column("suggestion", _json()),
    Column("usage", _json()),
    Column("error", _json()),
    Column("hidden", LargeBinary),  # little-endian float16
    UniqueConstraint("id"),
    UniqueConstraint("run_id", "turn", "attempt"),
)
Index("ix_turns_agent", turns.c.agent, turns.c.run_id)

labels = Table(
    "labels",
    metadata,
    Column("id", Text, primary_key=True),
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("turn_id", Text, ForeignKey("turns.id", ondelete="CASCADE")),  # NULL: the label is for the run
    Column("kind", Text, nullable=False),
    Column("value", Text, nullable=False),
    Column("labeller", Text, nullable=False),  # "" when nobody in particular
    Column("created_at", Double, nullable=False),
)
Index(
    "uq_labels_run",
    labels.c.run_id,
    labels.c.kind,
    labels.c.labeller,
    unique=True,
    sqlite_where=labels.c.turn_id.is_(None),
    postgresql_where=labels.c.turn_id.is_(None),
)
Index(
    "uq_labels_turn",
    labels.c.turn_id,
    labels.c.kind,
    labels.c.labeller,
    unique=True,
    sqlite_where=labels.c.turn_id.is_not(None),
    postgresql_where=labels.c.turn_id.is_not(None),
)
Index("ix_labels_run_id", labels.c.run_id, labels.c.kind)

tasks = Table(
    "tasks",
    metadata,
    Column("id", Text, primary_key=True),  # hash of the content, so two owners may have the same one
    Column("owner", Text, primary_key=True),  # "" for everybody's
    Column("question", Text, nullable=False),
    Column("reference", Text, nullable=False),
    Column("grader", Text, nullable=False),
    Column("family", Text, nullable=False),
    Column("split", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("tags", _json()),
    Column("params", _json()),
    Column("run_id", Text, ForeignKey("runs.id", ondelete="SET NULL")),  # the trace it was made from
    Column("created_at", Double, nullable=False),
)
Index("ix_tasks_split", tasks.c.split, tasks.c.created_at)
Index("ix_tasks_run_id", tasks.c.run_id)

training_runs = Table(
    "training_runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text),
    Column("method", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("seed", BigInteger),
    Column("params", _json(), nullable=False),
    Column("pool", _json(), nullable=False),
    Column("backbone", Text),
    Column("checkpoint_id", Text),  # the newest one saved
    Column("validations", _json()),
    Column("result", _json()),
    Column("error", _json()),
    Column("notes", _json()),
    Column("created_at", Double, nullable=False),
    Column("finished_at", Double),
    Column("process", Text),
    Column("heartbeat_at", Double),
)
Index("ix_training_runs_created_at", training_runs.c.created_at)

generations = Table(
    "generations",
    metadata,
    Column(
        "training_run_id", Text, ForeignKey("training_runs.id", ondelete="CASCADE"), primary_key=True, nullable=False
    ),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("seed", BigInteger, nullable=False),
    Column("fitness", _json(), nullable=False),  # in ask order; null where it was not finite
    Column("sigma", Double),
    Column("spread", _json()),  # largest and smallest standard deviation of a coordinate
    Column("accuracies", _json()),  # in ask order; null where it was not finite
    Column("mean_turns", Double),
    Column("skipped", Integer, nullable=False, server_default="0"),  # tasks left out for all candidates
    Column("status", Text),
    Column("evaluations", BigInteger, nullable=False),
    Column("agent_calls", BigInteger, nullable=False),
    Column("failed_calls", BigInteger, nullable=False),
    Column("usage", _json()),
    Column("cost", Double),
    Column("agent_shares", _json()),
    Column("role_shares", _json()),
    Column("at", Double, nullable=False),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("id", Text, primary_key=True),  # hash of the file's content
    Column("path", Text, nullable=False),
    Column("metadata", _json(), nullable=False),
    Column("training_run_id", Text, ForeignKey("training_runs.id", ondelete="SET NULL")),
    Column("created_at", Double, nullable=False),
)
Index("ix_checkpoints_created_at", checkpoints.c.created_at)
Index("ix_checkpoints_training_run_id", checkpoints.c.training_run_id)

agent_replies = Table(
    "agent_replies",
    metadata,
    Column("key", Text, primary_key=True),
    Column("sample", Integer, primary_key=True, autoincrement=False),
    Column("agent", Text),
    Column("request", _json(), nullable=False),
    Column("text", Text, nullable=False),
    Column("finish", Text, nullable=False),
    Column("reasoning", Text, nullable=False),
    Column("usage", _json()),
    Column("cost", Double),
    Column("calls", Integer, nullable=False, server_default="1"),
    Column("unpriced", Integer, nullable=False, server_default="0"),
    Column("warnings", _json()),
    Column("first_token_s", Double),
    Column("seconds", Double, nullable=False),
    Column("request_id", Text),
    Column("created_at", Double, nullable=False),
    CheckConstraint("text <> ''", name="text_not_empty"),
)

states = Table(
    "states",
    metadata,
    Column("key", Text, primary_key=True),  # digest of backbone, tokens and position
    Column("hidden", LargeBinary, nullable=False),  # little-endian float32
    Column("created_at", Double, nullable=False),
)

spending = Table(
    "spending",
    metadata,
    Column("n", _key(), primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    Column("agent", Text, nullable=False),
    Column("run_id", Text),  # a name, not a key
    Column("input", BigInteger),
    Column("output", BigInteger),
    Column("cost", Double),  # NULL: not known
    Column("failed", Boolean, nullable=False),
)
Index("ix_spending_at", spending.c.at)


def in_models(obj: Any, name: str | None, kind: str, reflected: bool, compare_to: Any) -> bool:
    """Alembic's `include_object`: everything but the search index, which the models do not describe."""
    return not (reflected and compare_to is None and (name or "").startswith(SEARCH_PREFIXES))
