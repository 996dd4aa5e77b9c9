"""The built-in tasks: five families of questions that the embedded pool can answer together.

- arithmetic, letters, calendar: one specialist each (`arithmetic`, `letters`, `dates`).
- knowledge: for the language model (`knowledge`, which says how its kinds were chosen).
- two_step: one agent's result is another agent's question (`two_step`); no member answers these alone.

Invariants: the same tasks in the same order everywhere and always (seeded generators and hand-written tables, no
clock, no network), no question twice, every reference worked out here and never by an agent. Splits follow from the
ids (`task.split_of`), so adding questions leaves the others where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain

from trinity_core.tasks.arithmetic import ARITHMETIC
from trinity_core.tasks.dates import CALENDAR
from trinity_core.tasks.knowledge import KINDS
from trinity_core.tasks.letters import LETTERS
from trinity_core.tasks.operation import Draft, Operation
from trinity_core.tasks.task import Task
from trinity_core.tasks.two_step import CHAINS

SOURCE = "builtin"
OPERATIONS: Mapping[str, tuple[Operation, ...]] = {
    "arithmetic": ARITHMETIC,
    "letters": LETTERS,
    "calendar": CALENDAR,
}
FAMILIES = ("arithmetic", "letters", "calendar", "knowledge", "two_step")


@cache
def builtin_tasks() -> tuple[Task, ...]:
    """All built-in tasks, family by family. Made on the first call, the same tuple ever after."""
    return tuple(_unique(_make(family, draft) for family in FAMILIES for draft in _drafts(family)))


def _drafts(family: str) -> Iterable[Draft]:
    if family == "knowledge":
        return chain.from_iterable(kind.drafts() for kind in KINDS)
    if family == "two_step":
        return chain.from_iterable(pair.drafts() for pair in CHAINS)
    return chain.from_iterable(operation.drafts() for operation in OPERATIONS[family])


def _make(family: str, draft: Draft) -> Task:
    return Task.make(
        draft.question,
        draft.reference,
        grader=draft.grader,
        family=family,
        tags=draft.tags,
        source=SOURCE,
        params=draft.params,
    )


def _unique(tasks: Iterable[Task]) -> Iterator[Task]:
    """Tasks whose question was not asked before: draws may coincide."""
    seen: set[str] = set()
    for task in tasks:
        if task.question not in seen:
            seen.add(task.question)
            yield task
