"""A task: one question with its reference answer, the grader that reads a reply, and the split it belongs to.

Invariants: the id is the hash of what decides right and wrong (question, reference, grader, params), so a label
such as the family can be corrected without making another task. The split is a function of the id alone: adding,
dropping or reordering tasks never moves one from training to test.

Not covered: running or grading a task (`graders`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from trinity_core import wire
from trinity_core.errors import InputError

Split = Literal["train", "validation", "test"]

SHARES: tuple[tuple[Split, float], ...] = (("train", 0.60), ("validation", 0.15), ("test", 0.25))
"""Share of each split (our choice). Fixed for ever: changing it would move test tasks into training."""


def task_id(question: str, reference: str, grader: str, params: Mapping[str, Any]) -> str:
    """24 hexadecimal digits of the content's SHA-256."""
    content = {"question": question, "reference": reference, "grader": grader, "params": dict(params)}
    return wire.digest(content)[:24]


def split_of(id: str) -> Split:
    """The split that a task of this id belongs to."""
    point = int(wire.digest(["split", id])[:8], 16) / 2**32
    for name, share in SHARES:
        if point < share:
            return name
        point -= share
    return SHARES[-1][0]


@dataclass(frozen=True, slots=True)
class Task:
    """One question with its reference.

    `grader` names an entry of `graders.GRADERS`. `params` are that grader's settings, JSON values only: `choices`
    (letter to text), `tolerance` (relative), `accept` (other right answers), `case` (upper and lower case differ).
    `source` says where the task is from ("builtin", a benchmark, a file). Make one with `Task.make`.
    """

    id: str
    question: str
    reference: str
    grader: str
    family: str
    tags: tuple[str, ...]
    split: Split
    source: str
    params: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        question: str,
        reference: str,
        *,
        grader: str = "exact",
        family: str = "",
        tags: Iterable[str] = (),
        source: str = "",
        params: Mapping[str, Any] | None = None,
        split: Split | None = None,
    ) -> Self:
        """A task with its id and split. Name `split` only for a benchmark that comes with one.

        Raises InputError for an empty question or reference.
        """
        if not question.strip() or not reference.strip():
            raise InputError("A task needs a question and a reference answer; one of them is empty.")
        settings = wire.plain(dict(params or {}))
        id = task_id(question, reference, grader, settings)
        return cls(
            id=id,
            question=question,
            reference=reference,
            grader=grader,
            family=family,
            tags=tuple(tags),
            split=split or split_of(id),
            source=source,
            params=settings,
        )


def to_json(task: Task) -> dict[str, Any]:
    """The task as JSON values; `from_json` reads them back."""
    value: dict[str, Any] = wire.plain(task)
    return value


def from_json(value: Any) -> Task:
    """A task from JSON values. `question` and `reference` are needed; the rest may be missing.

    Raises InputError when a field has the wrong type or when an id is given that the content does not have.
    """
    if not isinstance(value, Mapping):
        raise InputError("A task is an object with at least a question and a reference.")
    filled = {"grader": "exact", "family": "", "tags": [], "source": "", "params": {}, **value}
    for name in ("question", "reference"):
        filled.setdefault(name, "")
    task = wire.record(Task, {"id": "", "split": "train", **filled})
    made = Task.make(
        task.question,
        task.reference,
        grader=task.grader,
        family=task.family,
        tags=task.tags,
        source=task.source,
        params=task.params,
        split=task.split if value.get("split") else None,
    )
    if value.get("id") not in (None, "", made.id):
        raise InputError(
            f"Task {value['id']!r} was changed: its content has the id {made.id}. "
            "Remove the id to read it as a new task."
        )
    return made


def to_jsonl(tasks: Iterable[Task]) -> str:
    """One task a line, ended by a newline."""
    return "".join(wire.line(to_json(task)) + "\n" for task in tasks)


def from_jsonl(text: str) -> tuple[Task, ...]:
    """The tasks of a JSONL text; blank lines are skipped. Raises InputError naming the first bad line."""
    tasks = []
    for number, row in enumerate(text.split("\n"), 1):
        if not row.strip():
            continue
        try:
            tasks.append(from_json(json.loads(row)))
        except (json.JSONDecodeError, InputError) as error:
            raise InputError(f"Line {number} is no task: {error}") from None
    return tuple(tasks)
