"""Money: what was spent, and in runs, turns and replies the calls, those of unknown cost, and replies used again.

Columns are only added, with defaults for the rows there are: each of them was one call of a member that charges
nothing. So no table is built anew, and SQLite's search triggers stay as they are.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", _count("unpriced", 0))
    for table in ("turns", "agent_replies"):
        op.add_column(table, _count("calls", 1))
        op.add_column(table, _count("unpriced", 0))
    op.add_column("turns", sa.Column("reused", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("agent_replies", sa.Column("warnings", sa.JSON(none_as_null=True), nullable=True))
    op.create_table(
        "spending",
        sa.Column("n", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("input", sa.BigInteger(), nullable=True),
        sa.Column("output", sa.BigInteger(), nullable=True),
        sa.Column("cost", sa.Double(), nullable=True),
        sa.Column("failed", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("n", name=op.f("pk_spending")),
    )
    op.create_index("ix_spending_at", "spending", ["at"], unique=False)


def downgrade() -> None:
    op.drop_table("spending")
    op.drop_column("agent_replies", "warnings")
    op.drop_column("turns", "reused")
    for table in ("agent_replies", "turns"):
        op.drop_column(table, "unpriced")
        op.drop_column(table, "calls")
    op.drop_column("runs", "unpriced")


def _count(name: str, default: int) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), server_default=str(default), nullable=False)
