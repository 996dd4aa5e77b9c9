"""The first schema: runs, turns, labels, tasks, training, checkpoints, replies, and the search index.

The statements are spelled out, not taken from `storage.schema`: a migration must go on doing what it did.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.sql.type_api import TypeEngine

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _key() -> TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _json() -> TypeEngine[Any]:
    return sa.JSON(none_as_null=True)


def upgrade() -> None:
    _run_tables()
    _training_tables()
    if op.get_bind().dialect.name == "sqlite":
        _fts("runs", ("question", "answer"))
        _fts("turns", ("text",))
    else:
        op.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
        for table, column in (("runs", "question"), ("runs", "answer"), ("turns", "text")):
            op.execute(f"CREATE INDEX trgm_{table}_{column} ON {table} USING gin ({column} gin_trgm_ops)")


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TABLE turns_fts")
        op.execute("DROP TABLE runs_fts")
    for table in (
        "labels",
        "tasks",
        "turns",
        "runs",
        "generations",
        "checkpoints",
        "training_runs",
        "agent_replies",
    ):
        op.drop_table(table)


def _fts(table: str, columns: tuple[str, ...]) -> None:
    """A trigram index over `columns` that triggers keep in step, also when a foreign key deletes the row."""
    names = ", ".join(columns)
    old = ", ".join(f"old.{c}" for c in columns)
    new = ", ".join(f"new.{c}" for c in columns)
    changed = " OR ".join(f"old.{c} IS NOT new.{c}" for c in columns)
    forget = f"INSERT INTO {table}_fts({table}_fts, rowid, {names}) VALUES ('delete', old.n, {old});"
    add = f"INSERT INTO {table}_fts(rowid, {names}) VALUES (new.n, {new});"
    op.execute(
        f"CREATE VIRTUAL TABLE {table}_fts USING fts5"
        f"({names}, content='{table}', content_rowid='n', tokenize='trigram')"
    )
    op.execute(f"CREATE TRIGGER {table}_fts_insert AFTER INSERT ON {table} BEGIN {add} END")
    op.execute(f"CREATE TRIGGER {table}_fts_delete AFTER DELETE ON {table} BEGIN {forget} END")
    op.execute(
        f"CREATE TRIGGER {table}_fts_update AFTER UPDATE OF {names} ON {table} WHEN {changed} "
        f"BEGIN {forget} {add} END"
    )


def _run_tables() -> None:
    op.create_table(
        "runs",
        sa.Column("n", _key(), autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("flag", sa.Text(), nullable=True),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("roles", sa.Text(), nullable=False),
        sa.Column("agents", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("turn_count", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("tokens", sa.BigInteger(), nullable=True),
        sa.Column("cost", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("deleted_at", sa.Double(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("answer_turn", sa.Integer(), nullable=True),
        sa.Column("messages", _json(), nullable=False),
        sa.Column("params", _json(), nullable=False),
        sa.Column("pool", _json(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=True),
        sa.Column("parent_run_id", sa.Text(), nullable=True),
        sa.Column("fork_turn", sa.Integer(), nullable=True),
        sa.Column("checkpoint_id", sa.Text(), nullable=True),
        sa.Column("transcript_version", sa.Text(), nullable=True),
        sa.Column("prompt_version", sa.Text(), nullable=True),
        sa.Column("totals", _json(), nullable=True),
        sa.Column("notes", _json(), nullable=True),
        sa.Column("error", _json(), nullable=True),
        sa.Column("process", sa.Text(), nullable=True),
        sa.Column("heartbeat_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("n", name=op.f("pk_runs")),
        sa.UniqueConstraint("id", name=op.f("uq_runs_id")),
    )
    op.create_index("ix_runs_checkpoint_id", "runs", ["checkpoint_id"], unique=False)
    op.create_index("ix_runs_created_at", "runs", ["created_at", "id"], unique=False)
    op.create_index("ix_runs_deleted_at", "runs", ["deleted_at"], unique=False)
    op.create_index("ix_runs_owner", "runs", ["owner", "created_at"], unique=False)
    op.create_index("ix_runs_status", "runs", ["status"], unique=False)
    op.create_table(
        "turns",
        sa.Column("n", _key(), autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("finish", sa.Text(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("first_token_s", sa.Double(), nullable=True),
        sa.Column("cost", sa.Double(), nullable=True),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("raw", sa.Text(), nullable=False),
        sa.Column("reasoning", sa.Text(), nullable=False),
        sa.Column("decision", _json(), nullable=True),
        sa.Column("request", _json(), nullable=True),
        sa.Column("suggestion", _json(), nullable=True),
        sa.Column("usage", _json(), nullable=True),
        sa.Column("error", _json(), nullable=True),
        sa.Column("hidden", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_turns_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("n", name=op.f("pk_turns")),
        sa.UniqueConstraint("id", name=op.f("uq_turns_id")),
        sa.UniqueConstraint("run_id", "turn", "attempt", name=op.f("uq_turns_run_id_turn_attempt")),
    )
    op.create_index("ix_turns_agent", "turns", ["agent", "run_id"], unique=False)
    op.create_table(
        "labels",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("labeller", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_labels_run_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["turn_id"], ["turns.id"], name=op.f("fk_labels_turn_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_labels")),
    )
    op.create_index("ix_labels_run_id", "labels", ["run_id", "kind"], unique=False)
    op.create_index(
        "uq_labels_run",
        "labels",
        ["run_id", "kind", "labeller"],
        unique=True,
        sqlite_where=sa.text("turn_id IS NULL"),
        postgresql_where=sa.text("turn_id IS NULL"),
    )
    op.create_index(
        "uq_labels_turn",
        "labels",
        ["turn_id", "kind", "labeller"],
        unique=True,
        sqlite_where=sa.text("turn_id IS NOT NULL"),
        postgresql_where=sa.text("turn_id IS NOT NULL"),
    )
    op.create_table(
        "tasks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("grader", sa.Text(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("tags", _json(), nullable=True),
        sa.Column("params", _json(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_tasks_run_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", "owner", name=op.f("pk_tasks")),
    )
    op.create_index("ix_tasks_run_id", "tasks", ["run_id"], unique=False)
    op.create_index("ix_tasks_split", "tasks", ["split", "created_at"], unique=False)


def _training_tables() -> None:
    op.create_table(
        "training_runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=True),
        sa.Column("params", _json(), nullable=False),
        sa.Column("pool", _json(), nullable=False),
        sa.Column("backbone", sa.Text(), nullable=True),
        sa.Column("checkpoint_id", sa.Text(), nullable=True),
        sa.Column("validations", _json(), nullable=True),
        sa.Column("result", _json(), nullable=True),
        sa.Column("error", _json(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("process", sa.Text(), nullable=True),
        sa.Column("heartbeat_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_training_runs")),
    )
    op.create_index("ix_training_runs_created_at", "training_runs", ["created_at"], unique=False)
    op.create_table(
        "generations",
        sa.Column("training_run_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("fitness", _json(), nullable=False),
        sa.Column("sigma", sa.Double(), nullable=True),
        sa.Column("evaluations", sa.BigInteger(), nullable=False),
        sa.Column("agent_calls", sa.BigInteger(), nullable=False),
        sa.Column("failed_calls", sa.BigInteger(), nullable=False),
        sa.Column("usage", _json(), nullable=True),
        sa.Column("cost", sa.Double(), nullable=True),
        sa.Column("agent_shares", _json(), nullable=True),
        sa.Column("role_shares", _json(), nullable=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["training_run_id"], ["training_runs.id"], name=op.f("fk_generations_training_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("training_run_id", "number", name=op.f("pk_generations")),
    )
    op.create_table(
        "checkpoints",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("metadata", _json(), nullable=False),
        sa.Column("training_run_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["training_run_id"],
            ["training_runs.id"],
            name=op.f("fk_checkpoints_training_run_id"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoints")),
    )
    op.create_index("ix_checkpoints_created_at", "checkpoints", ["created_at"], unique=False)
    op.create_index("ix_checkpoints_training_run_id", "checkpoints", ["training_run_id"], unique=False)
    op.create_table(
        "agent_replies",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("sample", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("agent", sa.Text(), nullable=True),
        sa.Column("request", _json(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("finish", sa.Text(), nullable=False),
        sa.Column("reasoning", sa.Text(), nullable=False),
        sa.Column("usage", _json(), nullable=True),
        sa.Column("cost", sa.Double(), nullable=True),
        sa.Column("first_token_s", sa.Double(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("text <> ''", name=op.f("ck_agent_replies_text_not_empty")),
        sa.PrimaryKeyConstraint("key", "sample", name=op.f("pk_agent_replies")),
    )
