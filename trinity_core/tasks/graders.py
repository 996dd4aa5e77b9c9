"""Graders: whether a reply answers a task, and why, in words that can be shown.

A grader reads the reply with `trinity_core.answers` and compares the value it finds with the reference. Reward is
binary, R in {0, 1} (paper, section 3): a reply without a value is wrong, never an error. Rules:

- exact: the committed answer (or the value of a reply of one sentence) equals the reference as a number, a date or
  normalised text. A word elsewhere in the reply does not count.
- contains: the reference, or one of `params["accept"]`, stands as whole words in the committed answer, or in the
  whole reply when nothing is committed, and is not rejected there ("not Oslo").
- numeric: the numbers differ by at most `params["tolerance"]` (default 1e-6) times the reference's size; against a
  reference of zero only zero is right. Units in the text are tolerated and not compared; a percent sign may be one
  or may mean hundredths. NaN, infinities and truth values are never numbers.
- choice: the one option that is named by its letter or its text. `params["choices"]` maps letters to texts.

Other graders join with `register`. Not covered here: expressions, code, judges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from trinity_core.answers import (
    AnswerKind,
    clean_value,
    committed_answer,
    extract_answer,
    mentions,
    number_and_unit,
    partial_result,
    same_value,
)
from trinity_core.errors import InputError
from trinity_core.tasks.task import Task

DEFAULT_TOLERANCE = Fraction(1, 10**6)
"""Relative tolerance of the numeric grader (our choice)."""


@dataclass(frozen=True, slots=True)
class Grade:
    """The outcome. `extracted` is the value that was compared, None when the reply holds none."""

    correct: bool
    extracted: str | None
    explanation: str


@dataclass(frozen=True, slots=True)
class Grader:
    """A way to grade. `kind` is the sort of value it reads, for choosing among several replies."""

    name: str
    kind: AnswerKind
    check: Callable[[Task, str], Grade]


GRADERS: dict[str, Grader] = {}
"""Every grader by name."""


def register(grader: Grader) -> None:
    """Make `grader` known. Raises ValueError when its name is taken."""
    if grader.name in GRADERS:
        raise ValueError(f"There is already a grader named {grader.name!r}.")
    GRADERS[grader.name] = grader


def grader_for(task: Task) -> Grader:
    """The task's grader. Raises InputError when there is none of that name."""
    try:
        return GRADERS[task.grader]
    except KeyError:
        known = ", ".join(sorted(GRADERS))
        raise InputError(f"Task {task.id} asks for the grader {task.grader!r}; there are {known}.") from None


def answer_kind(task: Task) -> AnswerKind:
    """The sort of value the task asks for."""
    return grader_for(task).kind


def grade(task: Task, text: str | None) -> Grade:
    """Grade a reply (post-processed text; None for a run without an answer). Raises InputError as `grader_for`."""
    grader = grader_for(task)
    if text is None or not text.strip():
        return Grade(False, None, "There is no answer to grade.")
    return grader.check(task, text)


def accepted(task: Task) -> tuple[str, ...]:
    """The reference and the other answers that count as right."""
    return (task.reference, *(str(other) for other in task.params.get("accept", ())))


def choices(task: Task) -> dict[str, str]:
    """The options of a choice task, by letter; a list gets the letters from A on."""
    given = task.params.get("choices", {})
    if isinstance(given, Mapping):
        return {str(letter).upper(): str(text) for letter, text in given.items()}
    return {chr(ord("A") + index): str(text) for index, text in enumerate(given)}


def _exact(task: Task, text: str) -> Grade:
    extracted = extract_answer(text, AnswerKind.TEXT)
    whole = extracted is None or committed_answer(text) is None
    for reference in accepted(task):
        for value in (extracted, text if whole else None):
            if value is not None and _equal(value, reference, bool(task.params.get("case"))):
                return Grade(True, clean_value(value), f'The answer "{clean_value(value)}" equals "{reference}".')
    if extracted is None:
        return Grade(False, None, f'The reply commits to no answer; "{task.reference}" was asked for.')
    return Grade(False, extracted, f'The answer "{extracted}" is not "{task.reference}".')


def _equal(value: str, reference: str, case: bool) -> bool:
    if not same_value(value, reference):
        return False
    return not case or clean_value(value) == clean_value(reference)


def _contains(task: Task, text: str) -> Grade:
    committed = committed_answer(text)
    where = "committed answer" if committed is not None else "reply"
    searched = text if committed is None else committed
    if committed is None and partial_result(text) is not None:
        return Grade(False, None, "The reply is unfinished: it gives an intermediate result and no answer.")
    for reference in accepted(task):
        if mentions(searched, reference) or same_value(searched, reference):
            return Grade(True, committed or reference, f'The {where} names "{reference}".')
    return Grade(False, committed, f'The {where} does not name "{task.reference}", or rejects it.')


def _numeric(task: Task, text: str) -> Grade:
    extracted = extract_answer(text, AnswerKind.NUMBER)
    candidate = number_and_unit(extracted) if extracted is not None else None
    reference = number_and_unit(task.reference)
    if reference is None:
        raise InputError(f"Task {task.id} has the reference {task.reference!r}, which is no number.")
    if candidate is None:
        return Grade(False, extracted, f"The reply gives no number; {task.reference} was asked for.")
    tolerance = Fraction(str(task.params.get("tolerance", DEFAULT_TOLERANCE)))
    close = any(
        abs(a - b) <= tolerance * abs(b)
        for a in _readings(candidate, reference)
        for b in _readings(reference, candidate)
    )
    within = f" within a relative tolerance of {float(tolerance):g}" if "tolerance" in task.params else ""
    verb = "equals" if close else "does not equal"
    return Grade(close, extracted, f"The number {extracted} {verb} {task.reference}{within}.")


def _readings(number: tuple[Fraction, str], other: tuple[Fraction, str]) -> tuple[Fraction, ...]:
    """The values a number may stand for: 50 % is 50 or 0.5, unless the other side has the sign too."""
    value, unit = number
    return (value, value / 100) if unit == "%" != other[1] else (value,)


def _choice(task: Task, text: str) -> Grade:
    options = choices(task)
    letters = "".join(options) or str(task.params.get("letters", "ABCDEFGHIJ"))
    picked = extract_answer(text, AnswerKind.CHOICE, letters=letters, options=options)
    right = extract_answer(task.reference, AnswerKind.CHOICE, letters=letters, options=options)
    if right is None:
        raise InputError(f"Task {task.id} has the reference {task.reference!r}, which names none of its options.")
    if picked is None:
        return Grade(False, None, f"The reply does not settle on one option; {right} was asked for.")
    named = f"{picked} ({options[picked]})" if picked in options else picked
    return Grade(picked == right, picked, f"The reply picks {named}; the right option is {right}.")


for _grader in (
    Grader("exact", AnswerKind.TEXT, _exact),
    Grader("contains", AnswerKind.TEXT, _contains),
    Grader("numeric", AnswerKind.NUMBER, _numeric),
    Grader("choice", AnswerKind.CHOICE, _choice),
):
    register(_grader)
