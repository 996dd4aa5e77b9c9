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
- regex: a pattern finds something in the answer or the reply (`patterns`).
- math: the answer is the same mathematical value (`mathgrade`).
- code: the program in the reply passes the task's tests (`code`).
- human: a person has labelled this answer. `params["right"]` and `params["wrong"]` list such answers.
- judge: an agent of the pool says so (`judge`); only `grade_async` can ask it.

Invariants: what is wrong with the task, the grader or the machine is an error or `graded=False`, never a wrong
answer. `trouble` says before any reply is there why a task cannot be graded here. Other graders join with
`register`. Not covered here: how patterns, formulas, programs and judges are handled; the modules named say that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from trinity_core.answers import (
    AnswerKind,
    clean_value,
    committed_answer,
    extract_answer,
    mentions,
    normal_text,
    number_and_unit,
    partial_result,
    same_value,
)
from trinity_core.errors import InputError, TrinityError
from trinity_core.tasks.task import Task
from trinity_core.types import Message

Ask = Callable[[str, tuple[Message, ...]], Awaitable[str]]
"""Asks an agent of the pool: its name and the messages go in, the text of its reply comes out."""

DEFAULT_TOLERANCE = Fraction(1, 10**6)
"""Relative tolerance of the numeric grader (our choice)."""
_LETTERS = "ABCDEFGHIJ"


@dataclass(frozen=True, slots=True)
class Grade:
    """The outcome. `extracted` is the value that was compared, None when the reply holds none.

    `graded` is False when nobody can say whether the reply is right; `correct` is False then and means nothing.
    """

    correct: bool
    extracted: str | None
    explanation: str
    graded: bool = True


def _no_trouble(task: Task) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Grader:
    """A way to grade. `kind` is the sort of value it reads, for choosing among several replies.

    A `slow` one belongs in a thread; `judged` ones need an agent. `trouble` tells why a task cannot be graded, or
    not every answer to it, in a sentence that also says what to do; None when all is well.
    """

    name: str
    kind: AnswerKind
    check: Callable[[Task, str], Grade]
    slow: bool = False
    judged: bool = False
    trouble: Callable[[Task], str | None] = _no_trouble


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


def trouble(task: Task) -> str | None:
    """Why `task` cannot be graded here, in a sentence that says what to do; None when it can. Never raises."""
    try:
        return grader_for(task).trouble(task)
    except InputError as error:
        return str(error)
    except Exception as error:  # whatever a grader does with odd settings, it is this task that has trouble
        return str(_broken(task, error))


def grade(task: Task, text: str | None) -> Grade:
    """Grade a reply (post-processed text; None for a run without an answer).

    Raises InputError as `grader_for`, for a task that its grader cannot read, for a judged grader, and, with the
    names of task and grader, for anything unexpected that the grader raises. Other TrinityErrors pass.
    """
    grader = grader_for(task)
    if grader.judged:
        raise InputError(
            f"Task {task.id} is graded by a judge, an agent that has to be asked; that cannot be done here. "
            "Choose another grader for it, or grade it where agents can be called."
        )
    if text is None or not text.strip():
        return _NOTHING
    try:
        return grader.check(task, text)
    except TrinityError:
        raise
    except Exception as error:
        raise _broken(task, error) from error


async def grade_async(task: Task, text: str | None, ask: Ask | None = None) -> Grade:
    """As `grade`, without holding up the event loop. `ask` reaches the agents, for judged graders.

    Raises as `grade`, InputError when a judge is needed and `ask` is None, and whatever TrinityError `ask` raises.
    """
    grader = grader_for(task)
    if not grader.judged:
        return await asyncio.to_thread(grade, task, text) if grader.slow else grade(task, text)
    if ask is None:
        raise InputError(f"Task {task.id} is graded by a judge, and there is no agent to ask. Choose another grader.")
    if text is None or not text.strip():
        return _NOTHING
    from trinity_core.tasks import judge

    try:
        return await judge.judge(task, text, ask)
    except TrinityError:
        raise
    except Exception as error:
        raise _broken(task, error) from error


_NOTHING = Grade(False, None, "There is no answer to grade.")


def _broken(task: Task, error: Exception) -> InputError:
    what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return InputError(
        f"The grader {task.grader!r} failed on task {task.id} ({what}). Check the task's reference and settings, or "
        "choose another grader."
    )


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
    tolerance = _tolerance(task)
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
    letters = "".join(options) or str(task.params.get("letters", _LETTERS))
    picked = extract_answer(text, AnswerKind.CHOICE, letters=letters, options=options)
    right = extract_answer(task.reference, AnswerKind.CHOICE, letters=letters, options=options)
    if right is None:
        raise InputError(f"Task {task.id} has the reference {task.reference!r}, which names none of its options.")
    if picked is None:
        return Grade(False, None, f"The reply does not settle on one option; {right} was asked for.")
    named = f"{picked} ({options[picked]})" if picked in options else picked
    return Grade(picked == right, picked, f"The reply picks {named}; the right option is {right}.")


def _human(task: Task, text: str) -> Grade:
    said = (text, committed_answer(text))
    value = said[1] or clean_value(text)
    right = _labelled(said, (*accepted(task), *_listed(task, "right")))
    wrong = _labelled(said, _listed(task, "wrong"))
    if right and wrong:
        return Grade(False, value, "People disagree: this answer is labelled right and wrong.", graded=False)
    if right:
        return Grade(True, value, "A person labelled this answer right.")
    if wrong:
        return Grade(False, value, "A person labelled this answer wrong.")
    return Grade(False, value, "Nobody has labelled this answer, so it is neither right nor wrong.", graded=False)


def _labelled(said: tuple[str | None, ...], labels: tuple[str, ...]) -> bool:
    plain = {normal_text(label) or label.strip() for label in labels}
    return any((normal_text(text) or text.strip()) in plain for text in said if text)


def _listed(task: Task, name: str) -> tuple[str, ...]:
    """The texts that `params[name]` lists. Raises InputError when it is no list of texts."""
    given = task.params.get(name, ())
    if isinstance(given, str) or not isinstance(given, list | tuple) or not all(isinstance(x, str) for x in given):
        raise InputError(f'Task {task.id}: {name!r} must be a list of texts, such as ["first", "second"].')
    return tuple(given)


# --- Trouble with a task ------------------------------------------------------------------------------------------


def _text_trouble(task: Task) -> str | None:
    _others(task)
    return None


def _others(task: Task) -> None:
    given = task.params.get("accept", ())
    if isinstance(given, str) or not isinstance(given, list | tuple):
        raise InputError(f"Task {task.id}: 'accept' must be a list of other right answers.")


def _numeric_trouble(task: Task) -> str | None:
    if number_and_unit(task.reference) is None:
        return f"Task {task.id} has the reference {task.reference!r}, which is no number. Write one, or choose exact."
    _tolerance(task)
    return None


def _tolerance(task: Task) -> Fraction:
    """The relative tolerance. Raises InputError when it is no number from 0 up to 1."""
    given = task.params.get("tolerance", DEFAULT_TOLERANCE)
    try:
        value = None if isinstance(given, bool) else Fraction(str(given))
    except (ValueError, ZeroDivisionError):
        value = None
    if value is None or not 0 <= value < 1:
        raise InputError(f"Task {task.id}: the tolerance {given!r} must be a number from 0 to below 1, such as 0.01.")
    return value


def _choice_trouble(task: Task) -> str | None:
    given = task.params.get("choices", {})
    if not isinstance(given, Mapping | list | tuple):
        return f"Task {task.id}: 'choices' must map letters to texts, or be a list of texts."
    options = choices(task)
    letters = "".join(options) or str(task.params.get("letters", _LETTERS))
    if any(len(letter) != 1 or not "A" <= letter <= "Z" for letter in options):
        return f"Task {task.id}: every option needs a letter from A to Z, so there are 26 options at most."
    if extract_answer(task.reference, AnswerKind.CHOICE, letters=letters, options=options) is None:
        return (
            f"Task {task.id} has the reference {task.reference!r}, which names none of its options. "
            f"Write one of the letters {', '.join(letters)}."
        )
    return None


def _human_trouble(task: Task) -> str | None:
    for name in ("right", "wrong"):
        _listed(task, name)
    _others(task)
    return (
        f"Task {task.id} is graded by hand: an answer that nobody has labelled cannot be scored, so it cannot train. "
        "Choose another grader for it."
    )


# --- The graders --------------------------------------------------------------------------------------------------
# What the other modules need is imported when it is first used: they import this one, and some bring much along.


def _regex(task: Task, text: str) -> Grade:
    from trinity_core.tasks import patterns

    return patterns.check(task, text)


def _regex_trouble(task: Task) -> str | None:
    from trinity_core.tasks import patterns

    return patterns.trouble(task)


def _math(task: Task, text: str) -> Grade:
    from trinity_core.tasks import mathgrade

    return mathgrade.check(task, text)


def _math_trouble(task: Task) -> str | None:
    from trinity_core.tasks import mathgrade

    return mathgrade.trouble(task)


def _code(task: Task, text: str) -> Grade:
    from trinity_core.tasks import code

    return code.check(task, text)


def _code_trouble(task: Task) -> str | None:
    from trinity_core.tasks import code

    return code.trouble(task)


def _unasked(task: Task, text: str) -> Grade:
    raise InputError(f"Task {task.id} is graded by a judge, an agent that has to be asked.")


def _judge_trouble(task: Task) -> str | None:
    from trinity_core.tasks import judge

    return judge.trouble(task)


for _grader in (
    Grader("exact", AnswerKind.TEXT, _exact, trouble=_text_trouble),
    Grader("contains", AnswerKind.TEXT, _contains, trouble=_text_trouble),
    Grader("numeric", AnswerKind.NUMBER, _numeric, trouble=_numeric_trouble),
    Grader("choice", AnswerKind.CHOICE, _choice, trouble=_choice_trouble),
    Grader("regex", AnswerKind.TEXT, _regex, slow=True, trouble=_regex_trouble),
    Grader("math", AnswerKind.MATH, _math, slow=True, trouble=_math_trouble),
    Grader("code", AnswerKind.TEXT, _code, slow=True, trouble=_code_trouble),
    Grader("human", AnswerKind.TEXT, _human, trouble=_human_trouble),
    Grader("judge", AnswerKind.TEXT, _unasked, judged=True, trouble=_judge_trouble),
):
    register(_grader)
