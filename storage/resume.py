"""What the store knows of a training that is to go on."""

from __future__ import annotations

from pathlib import Path

from storage.lab import Lab
from trinity_core.errors import InputError
from trinity_core.training.plan import Plan
from trinity_core.training.train import Past
from trinity_core.types import Status, Usage


def past_of(lab: Lab, run_id: str, *, owner: str | None = None, all_owners: bool = False) -> tuple[Plan, Past]:
    """The plan of a training run and how far it came.

    Raises InputError when there is no such training run, when it is done or still running, or cannot be resumed.
    """
    run = lab.training_run(run_id, owner, all_owners=all_owners)
    if run is None:
        known = ", ".join(r.id for r in lab.training_runs(owner, all_owners=all_owners)[:3]) or "none"
        raise InputError(f"There is no training run {run_id!r}. The newest are: {known}.")
    if run.status is Status.DONE:
        raise InputError(f"Training run {run_id} is done. Start a new one, from its checkpoint if you like.")
    if run.status in (Status.RUNNING, Status.QUEUED):
        raise InputError(f"Training run {run_id} is still running. Stop or pause it first.")
    if not isinstance(run.params.get("plan"), dict):
        raise InputError(f"Training run {run_id} keeps no plan (it was made by another method), so start it anew.")
    rows = lab.generations(run_id)
    if [row.number for row in rows] != list(range(len(rows))):
        raise InputError(f"Generations of training run {run_id} are missing, so it cannot go on. Start a new one.")
    usage, costs = Usage(), [row.cost for row in rows if row.cost is not None]
    for row in rows:
        usage = usage + row.usage
    stored = lab.checkpoint(run.checkpoint_id) if run.checkpoint_id else None
    past = Past(
        fitness=tuple(row.fitness for row in rows),
        evaluations=sum(row.evaluations for row in rows),
        calls=sum(row.agent_calls for row in rows),
        usage=usage,
        cost=sum(costs) if costs else None,
        checkpoint=Path(stored.path) if stored else None,
    )
    return Plan.from_json(run.params["plan"]), past
