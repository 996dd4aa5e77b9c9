"""The regex grader: where it looks, what it takes, and that no pattern runs on for ever."""

from __future__ import annotations

import time
from typing import Any

import pytest

from trinity_core.errors import InputError
from trinity_core.tasks.graders import grade, grade_async, trouble
from trinity_core.tasks.task import Task


def task(pattern: str, **params: Any) -> Task:
    return Task.make("Which one?", pattern, grader="regex", params=params)


@pytest.mark.parametrize(
    ("pattern", "text", "params", "correct"),
    [
        (r"^\d{3}$", "Working: 12.\nAnswer: 123", {}, True),
        (r"^\d{3}$", "Answer: 1234", {}, False),
        (r"\d{3}", "Answer: 1234", {}, True),
        (r"\d{3}", "Answer: 1234", {"full": True}, False),
        ("paris", "Answer: Paris", {}, False),
        ("paris", "Answer: Paris", {"flags": "i"}, True),
        ("Paris", "Paris is nice. I looked at many cities.\nAnswer: Rome", {}, False),
        ("Paris", "Paris is nice. I looked at many cities.\nAnswer: Rome", {"where": "reply"}, True),
        ("^b$", "a\nb\nc", {"where": "reply"}, False),
        ("^b$", "a\nb\nc", {"where": "reply", "flags": "m"}, True),
        ("a.b", "a\nb", {"where": "reply"}, False),
        ("a.b", "a\nb", {"where": "reply", "flags": "sm"}, True),
        ("x", "Here is much text. It settles on nothing. It has an x.", {}, False),
        ("a", "", {}, False),
    ],
)
def test_matching(pattern: str, text: str, params: dict[str, Any], correct: bool) -> None:
    assert grade(task(pattern, **params), text).correct is correct


@pytest.mark.parametrize("pattern", [r"(a|aa)+$", r"(?:a|aa|aaa)+c\b", "(?R)"])
async def test_a_pattern_that_never_ends_is_the_tasks_fault(pattern: str) -> None:
    asked = task(pattern, where="reply")
    started = time.monotonic()
    with pytest.raises(InputError, match="takes too long") as caught:
        await grade_async(asked, "a" * 60 + "!")
    assert asked.id in str(caught.value)
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("pattern", "params", "message"),
    [
        ("[", {}, "pattern"),
        ("(", {}, "pattern"),
        (r"\L<words>", {}, "pattern"),
        ("a" * 3000, {}, "characters"),
        ("(" * 900 + ")" * 900, {}, "pattern"),
        ("(a{1000}){1000}", {}, "counts"),
        ("a", {"flags": "x"}, "ims"),
        ("a", {"flags": 3}, "ims"),
        ("a", {"where": "question"}, "where"),
        ("a", {"full": "yes"}, "full"),
    ],
)
def test_trouble_and_grade_agree_on_bad_tasks(pattern: str, params: dict[str, Any], message: str) -> None:
    asked = task(pattern, **params)
    assert message in str(trouble(asked))
    with pytest.raises(InputError, match=message):
        grade(asked, "Answer: a")


def test_a_good_pattern_has_no_trouble_and_tells_what_matched() -> None:
    asked = task(r"\d+", flags="im", where="reply")
    assert trouble(asked) is None
    outcome = grade(asked, "It has 42 legs")
    assert (outcome.correct, outcome.extracted) == (True, "42")
    assert "'42'" in outcome.explanation
