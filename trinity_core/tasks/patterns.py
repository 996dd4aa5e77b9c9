"""The regex grader: a pattern has to match the answer.

The reference is the pattern, in the syntax of the `regex` package. Params: `where` is "answer" (the committed answer
or the value of a reply of one sentence; the default) or "reply" (the whole text); `flags` are letters of "ims";
`full` asks that the whole of it matches and not a part.

Invariants: matching ends after `SECONDS`, whatever the pattern, and running into that is the task's fault (an error),
never a wrong answer. Not covered: whether a pattern means what its author thinks.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import regex

from trinity_core.answers import AnswerKind, extract_answer
from trinity_core.errors import InputError
from trinity_core.tasks.graders import Grade
from trinity_core.tasks.task import Task

SECONDS = 1.0
"""Time that one match may take."""
MOST_CHARS = 2_000
"""Characters of a pattern."""
MOST_REPEATS = 1_000
"""All counts as in `x{count}` of a pattern multiplied; larger ones are slow to build and to match."""
_FLAGS = {"i": regex.IGNORECASE, "m": regex.MULTILINE, "s": regex.DOTALL}
_WHERE = ("answer", "reply")


def check(task: Task, text: str) -> Grade:
    """Grade `text`. Raises InputError for a pattern that is no pattern, odd params, or a match that is too slow."""
    pattern, where, full = _settings(task)
    searched = text if where == "reply" else extract_answer(text, AnswerKind.TEXT)
    if searched is None:
        return Grade(False, None, "The reply commits to no answer that the pattern could match.")
    match = pattern.fullmatch if full else pattern.search
    try:
        found = match(searched, timeout=SECONDS, concurrent=True)
    except (TimeoutError, MemoryError, RecursionError):
        raise InputError(
            f"The pattern of task {task.id} takes too long on this reply, so it was not graded. Write a simpler "
            "pattern, without repeats inside of repeats."
        ) from None
    shown = searched if where == "answer" else found.group() if found else None
    what = "the whole" if full else "a part"
    if found:
        return Grade(True, shown, f"The pattern {task.reference!r} matches {what} of the {where}: {found.group()!r}.")
    said = f" {searched!r}" if where == "answer" else ""
    return Grade(False, shown, f"The pattern {task.reference!r} does not match {what} of the {where}{said}.")


def trouble(task: Task) -> str | None:
    """Why the task's pattern cannot be used; None when it can."""
    try:
        _settings(task)
    except InputError as error:
        return str(error)
    return None


def _settings(task: Task) -> tuple[Any, str, bool]:
    flags, where, full = (task.params.get(k, d) for k, d in (("flags", ""), ("where", "answer"), ("full", False)))
    letters = (
        flags if isinstance(flags, str) else "".join(map(str, flags)) if isinstance(flags, list | tuple) else "?"
    )
    if not set(letters) <= set(_FLAGS):
        raise InputError(f"Task {task.id}: the flags {flags!r} must be letters of 'ims', such as 'i'.")
    if where not in _WHERE:
        raise InputError(f"Task {task.id}: 'where' is {where!r}; it must be 'answer' or 'reply'.")
    if not isinstance(full, bool):
        raise InputError(f"Task {task.id}: 'full' is {full!r}; it must be true or false.")
    try:
        return _compiled(task.reference, "".join(sorted(set(letters)))), where, full
    except ValueError as error:
        raise InputError(f"Task {task.id} has no usable pattern: {error}. Correct the reference.") from None


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str, letters: str) -> Any:
    """The pattern, ready to match. Raises ValueError with what is wrong."""
    if len(pattern) > MOST_CHARS:
        raise ValueError(f"it has {len(pattern)} characters, and {MOST_CHARS} are the most")
    product = 1
    for least, most in re.findall(r"\{(\d*)(?:,(\d*))?\}", pattern):
        product *= max(1, int(least[:9] or 0), int(most[:9] or 0))
    if product > MOST_REPEATS:
        raise ValueError(f"its counts in braces multiply to more than {MOST_REPEATS}")
    flags = 0
    for letter in letters:
        flags |= _FLAGS[letter]
    try:
        return regex.compile(pattern, flags)
    except (regex.error, RecursionError, OverflowError, MemoryError, KeyError, IndexError, TypeError) as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None
