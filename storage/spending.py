"""Every call to a remote member and what it cost, apart from the runs: the ledger that budgets are held to.

Rows are never changed, and deleting a run leaves them. One statement sums up a day.
"""

from __future__ import annotations

from sqlalchemy import func, insert, select

from storage.database import Database
from storage.rows import finite, optional_text, text
from storage.schema import spending
from trinity_core.agents.meter import Spent
from trinity_core.types import Usage


def spent(database: Database, since: float) -> Spent:
    """See `Store.spent`."""
    c = spending.c
    tokens = func.coalesce(c.input, 0) + func.coalesce(c.output, 0)
    statement = select(
        func.count(), func.coalesce(func.sum(tokens), 0), func.coalesce(func.sum(c.cost), 0.0), func.count(c.cost)
    ).where(c.at >= since)
    with database.read() as connection:
        calls, used, cost, priced = connection.execute(statement).one()
    return Spent(calls, int(used), float(cost), calls - priced)


def add(
    database: Database, *, at: float, agent: str, run_id: str | None, usage: Usage, cost: float | None, failed: bool
) -> None:
    """See `Store.add_spending`."""
    values = {
        "at": at,
        "agent": text(agent),
        "run_id": optional_text(run_id),
        "input": usage.input,
        "output": usage.output,
        "cost": finite(cost),
        "failed": failed,
    }
    with database.write() as connection:
        connection.execute(insert(spending), values)
