"""The built-in tasks: enough of each family, always the same, and graded as they should be."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date, timedelta

import pytest

from trinity_core import wire
from trinity_core.answers import number_and_unit
from trinity_core.tasks.builtin import FAMILIES, OPERATIONS, builtin_tasks
from trinity_core.tasks.graders import accepted, choices, grade
from trinity_core.tasks.task import Task, split_of
from trinity_core.tasks.two_step import CHAINS

TASKS = builtin_tasks()
DIGEST = "656091d577fd84e7ee807303d00e2c18c37e7a5ea01ca13fd044d84160fc2aa5"
"""Hash of all ids in order. A change here means that stored results are about other questions than before."""


def test_the_set_is_fixed() -> None:
    assert wire.digest([task.id for task in TASKS]) == DIGEST
    builtin_tasks.cache_clear()
    assert builtin_tasks() == TASKS


def test_there_are_enough_of_each_family() -> None:
    families = Counter(task.family for task in TASKS)
    assert set(families) == set(FAMILIES)
    assert len(TASKS) >= 520
    assert min(families.values()) >= 100
    assert max(families.values()) <= 1.4 * min(families.values())
    assert {task.grader for task in TASKS} == {"exact", "contains", "numeric", "choice"}
    held_out = Counter(task.family for task in TASKS if task.split == "test")
    assert min(held_out[family] for family in FAMILIES) >= 15


def test_nothing_is_asked_twice() -> None:
    assert len({task.id for task in TASKS}) == len(TASKS)
    assert len({re.sub(r"\W+", " ", task.question).casefold() for task in TASKS}) == len(TASKS)


def test_splits_follow_from_the_ids() -> None:
    assert all(task.split == split_of(task.id) for task in TASKS)
    assert all(task.source == "builtin" and task.tags for task in TASKS)


@pytest.mark.parametrize("family", FAMILIES)
def test_references_grade_right_and_others_wrong(family: str) -> None:
    for task in (task for task in TASKS if task.family == family):
        for right in accepted(task):
            assert grade(task, f"It took two steps, or 3 of them.\nAnswer: {right}").correct, task
        assert not grade(task, f"It took two steps.\nAnswer: {_wrong(task)}").correct, task
        assert not grade(task, "I cannot say, sorry; it is outside of what I do here.").correct, task


def _wrong(task: Task) -> str:
    if task.grader == "choice":
        return next(letter for letter in choices(task) if letter != task.reference)
    if task.grader == "numeric":
        value = number_and_unit(task.reference)
        assert value is not None
        return str(float(value[0]) * 1.2 + 1)
    return task.reference[::-1] + "x"


@pytest.mark.parametrize("family", sorted(OPERATIONS))
def test_operations_are_worded_in_many_ways(family: str) -> None:
    for operation in OPERATIONS[family]:
        assert len(set(operation.templates)) >= 8, operation.name
    questions = [task.question for task in TASKS if task.family == family]
    assert sum(question.endswith("?") for question in questions) > 0.3 * len(questions)
    assert sum(not question.endswith("?") for question in questions) > 0.2 * len(questions)


def test_each_pair_of_domains_is_there_and_halves_score_nothing() -> None:
    pairs = Counter(task.tags[0] for task in TASKS if task.family == "two_step")
    assert set(pairs) == {chain.name for chain in CHAINS}
    assert len(set(pairs.values())) == 1
    domains = {part for pair in pairs for part in pair.split("_")}
    assert domains == {"arithmetic", "letters", "calendar", "knowledge"}


def test_choices_stand_in_the_question() -> None:
    for task in TASKS:
        if task.grader == "choice":
            assert all(text in task.question for text in choices(task).values())
            assert task.reference in choices(task)


# --- References worked out once more, from the question ----------------------------------------------------------


def _tagged(tag: str) -> list[Task]:
    found = [task for task in TASKS if task.tags[0] == tag]
    assert found
    return found


@pytest.mark.parametrize(
    ("tag", "work"),
    [
        ("add", lambda a, b: a + b),
        ("multiply", lambda a, b: a * b),
        ("power", lambda a, b: a**b),
        ("lcm", lambda a, b: min(n for n in range(1, a * b + 1) if n % a == 0 == n % b)),
        ("gcd", lambda a, b: max(n for n in range(1, a + 1) if a % n == 0 == b % n)),
    ],
)
def test_arithmetic_references(tag: str, work: object) -> None:
    assert callable(work)
    for task in _tagged(tag):
        a, b = (int(n) for n in re.findall(r"\d+", task.question)[:2])
        assert {task.reference} & {str(work(a, b)), str(work(b, a))}, task


def test_letter_references() -> None:
    for task in _tagged("reverse"):
        assert task.reference[::-1] in task.question
    for task in _tagged("length"):
        assert any(len(word) == int(task.reference) for word in re.findall(r"[a-z]+", task.question))


def test_calendar_references() -> None:
    # Zeller's congruence, 0 = Saturday: another way to the weekday than the one that made the references.
    names = ("Saturday", "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
    checked = 0
    for task in _tagged("weekday"):
        if found := re.search(r"(\d{4})-(\d\d)-(\d\d)", task.question):
            y, m, d = (int(part) for part in found.groups())
            y, m = (y - 1, m + 12) if m < 3 else (y, m)
            assert task.reference == names[(d + 13 * (m + 1) // 5 + y + y // 4 - y // 100 + y // 400) % 7]
            checked += 1
    assert checked
    for task in _tagged("between"):
        days = re.findall(r"\d{4}-\d\d-\d\d", task.question)
        if len(days) == 2:
            assert date.fromisoformat(days[1]) - date.fromisoformat(days[0]) == timedelta(int(task.reference))
