"""Training: hidden states that are computed once, what a generation showed, and a training run's notes.

Columns are only added, with defaults for the rows there are, so no table is built anew.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.sql.type_api import TypeEngine

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def _json() -> TypeEngine[Any]:
    return sa.JSON(none_as_null=True)


def upgrade() -> None:
    op.add_column("generations", sa.Column("spread", _json(), nullable=True))
    op.add_column("generations", sa.Column("accuracies", _json(), nullable=True))
    op.add_column("generations", sa.Column("mean_turns", sa.Double(), nullable=True))
    op.add_column("generations", sa.Column("skipped", sa.Integer(), server_default="0", nullable=False))
    op.add_column("generations", sa.Column("status", sa.Text(), nullable=True))
    op.add_column("training_runs", sa.Column("notes", _json(), nullable=True))
    op.create_table(
        "states",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("hidden", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_states")),
    )


def downgrade() -> None:
    op.drop_table("states")
    op.drop_column("training_runs", "notes")
    for name in ("status", "skipped", "mean_turns", "accuracies", "spread"):
        op.drop_column("generations", name)
