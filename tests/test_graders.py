"""Tasks and the first graders: what counts as right, what is said about it, and what a task is made of."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from trinity_core.answers import AnswerKind
from trinity_core.errors import InputError
from trinity_core.tasks import graders
from trinity_core.tasks.graders import Grade, Grader, answer_kind, grade, grade_async, register, trouble
from trinity_core.tasks.task import Task, from_json, from_jsonl, split_of, to_json, to_jsonl


def task(reference: str, grader: str, **params: Any) -> Task:
    return Task.make("Which one?", reference, grader=grader, params=params)


@pytest.mark.parametrize(
    ("reference", "text", "correct"),
    [
        ("Bergen", "Answer: Bergen", True),
        ("Bergen", "bergen.", True),
        ("Bergen", "The city is Bergen.", True),
        ("Oslo", "It is definitely not Oslo, it is Bergen.", False),
        ("Oslo", "Oslo was my first idea.\nAnswer: Bergen", False),
        ("The", "The", True),
        ("The", "anything else", False),
        ("A", "banana", False),
        ("a, b, c", "Sorted:\nAnswer: a,b,c", True),
        ("19 April 2024", "Answer: Friday, April 19, 2024", True),
        ("19 April 2024", "Answer: 2024-04-20", False),
        ("17:45", "Answer: 5:45 PM", True),
        ("one two three four five six seven", "one two three four five six seven", True),
        ("1000", "Answer: 1,000", True),
        ("12", "Result so far: 12", False),
        ("12", "12 or 13, hard to say. It depends.", False),
    ],
)
def test_exact(reference: str, text: str, correct: bool) -> None:
    assert grade(task(reference, "exact"), text).correct is correct


def test_exact_may_mind_the_case_and_accept_others() -> None:
    assert not grade(task("NASA", "exact", case=True), "Answer: nasa").correct
    assert grade(task("NASA", "exact", case=True), "Answer: NASA.").correct
    assert grade(task("author", "exact", accept=["writer"]), "Answer: writer").correct


@pytest.mark.parametrize(
    ("text", "correct"),
    [
        ("The Eiffel Tower stands in Paris, of course. Many people visit it.", True),
        ("You find it in France.", True),
        ("It is not in Paris but in London.", False),
        ("Paris comes to mind.\nAnswer: London", False),
        ("Answer: Paris, France", True),
        ("Parisians love it", False),
        ("Result so far: Paris", False),
        ("", False),
    ],
)
def test_contains(text: str, correct: bool) -> None:
    assert grade(task("Paris", "contains", accept=["France"]), text).correct is correct


@pytest.mark.parametrize(
    ("reference", "text", "correct", "params"),
    [
        ("105", "10.5", False, {}),
        ("3", "3.0", True, {}),
        ("42", "042", True, {}),
        ("12000", "12\u202f000 km", True, {}),
        ("-7", "The change was −7 degrees", True, {}),
        ("50", "50%", True, {}),
        ("0.5", "50%", True, {}),
        ("50%", "Answer: 0.5", True, {}),
        ("50%", "50", True, {}),
        ("50", "5000%", True, {}),
        ("0", "0.5", False, {"tolerance": 0.05}),
        ("0", "0", True, {"tolerance": 0.05}),
        ("48.28", "Answer: 48.3 km", True, {"tolerance": 0.005}),
        ("48.28", "Answer: 49 km", False, {"tolerance": 0.005}),
        ("0.333333", "1/3", True, {"tolerance": 1e-5}),
        ("1/3", "0.333", False, {}),
        ("1", "True", False, {}),
        ("0", "NaN", False, {}),
        ("1e500", "1e400", False, {}),
        ("0", "infinity", False, {}),
        ("12", "the answer is 5 because 2+3=5; also 12 is close", False, {}),
        ("8", "A spider has eight legs.", True, {}),
        ("11", "It ends at 11:00", False, {}),
        ("0", "", False, {}),
        ("7", "Monday", False, {}),
    ],
)
def test_numeric(reference: str, text: str, correct: bool, params: dict[str, Any]) -> None:
    assert grade(task(reference, "numeric", **params), text).correct is correct


CITIES = {"A": "Lake Superior", "B": "Lake Superior North", "C": "Lake Erie"}


@pytest.mark.parametrize(
    ("reference", "text", "params", "picked", "correct"),
    [
        ("B", "(B)", {"choices": CITIES}, "B", True),
        ("B) Lake Superior North", "b", {"choices": CITIES}, "B", True),
        ("Lake Erie", "Answer: C", {"choices": CITIES}, "C", True),
        ("C", "It must be Lake Erie.", {"choices": ["x", "y", "Lake Erie"]}, "C", True),
        ("B", "It must be Lake Superior North.", {"choices": CITIES}, "B", True),
        ("A", "It must be Lake Superior North.", {"choices": CITIES}, "B", False),
        ("A", "Both A and C look right.", {"choices": CITIES}, None, False),
        ("A", "So the answer is a rise in the boiling point.", {"letters": "ABCD"}, None, False),
        ("D", "Answer: D rather than B", {"letters": "ABCD"}, "D", True),
        ("A", "D", {"choices": CITIES}, None, False),
        ("C", "Answer: C, as I verified by substitution.", {"letters": "ABCDEFGHIJ"}, "C", True),
        ("D", "Answer: cannot be B, so it must be D.", {"letters": "ABCD"}, "D", True),
        ("A", "ANSWER: None of the above", {"letters": "ABCD"}, None, False),
        ("D", "ANSWER: Don't know", {"letters": "ABCD"}, None, False),
        ("C", "Antwort:\n\nAntwort: (C)", {"letters": "ABCD"}, "C", True),
        ("B", "B looks like a sound pick, with a small caveat.", {"letters": "ABCD"}, "B", True),
        ("D", "d", {"letters": "ABCD"}, "D", True),
        ("B) 42 km", "(B)", {"letters": "ABCD"}, "B", True),
        ("D", "Only D and not B is possible.", {"letters": "ABCD"}, "D", True),
    ],
)
def test_choice(reference: str, text: str, params: dict[str, Any], picked: str | None, correct: bool) -> None:
    outcome = grade(task(reference, "choice", **params), text)
    assert (outcome.extracted, outcome.correct) == (picked, correct)


@pytest.mark.parametrize("name", ["exact", "contains", "numeric", "choice"])
@pytest.mark.parametrize("text", [None, "", "  \n", "no idea what this could possibly be, sorry about that"])
def test_a_reply_without_the_answer_is_wrong_and_says_so(name: str, text: str | None) -> None:
    outcome = grade(task("B" if name == "choice" else "41", name, choices=CITIES), text)
    assert not outcome.correct
    assert outcome.explanation.endswith(".")


def test_explanations_name_both_sides() -> None:
    assert grade(task("229", "exact"), "Answer: 211 + 18 = 230").explanation == 'The answer "230" is not "229".'
    assert "230" in grade(task("229", "numeric"), "Answer: 230").explanation
    assert "C (Lake Erie)" in grade(task("A", "choice", choices=CITIES), "Answer: C").explanation


def test_every_grader_tells_the_kind_it_reads() -> None:
    kinds = {name: answer_kind(task("1", name)) for name in ("exact", "contains", "numeric", "choice")}
    assert kinds == {
        "exact": AnswerKind.TEXT,
        "contains": AnswerKind.TEXT,
        "numeric": AnswerKind.NUMBER,
        "choice": AnswerKind.CHOICE,
    }


def test_graders_join_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graders, "GRADERS", dict(graders.GRADERS))
    register(
        Grader("length", AnswerKind.TEXT, lambda t, text: Grade(len(text) == int(t.reference), text, "Counted."))
    )
    assert grade(task("3", "length"), "abc").correct
    with pytest.raises(ValueError, match="already"):
        register(Grader("exact", AnswerKind.TEXT, lambda t, text: Grade(True, text, "")))
    with pytest.raises(InputError, match="nonsense"):
        grade(task("3", "nonsense"), "abc")


@pytest.mark.parametrize(("reference", "name"), [("many", "numeric"), ("Z", "choice")])
def test_a_reference_that_the_grader_cannot_read_is_reported(reference: str, name: str) -> None:
    with pytest.raises(InputError, match=reference):
        grade(task(reference, name, choices=CITIES), "Answer: 3")


def test_a_reference_that_is_no_number_is_never_matched() -> None:
    with pytest.raises(InputError, match="NaN"):
        grade(task("NaN", "numeric"), "NaN")


# --- Trouble, threads and people ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "name", "params", "message"),
    [
        ("many", "numeric", {}, "many"),
        ("NaN", "numeric", {}, "no number"),
        ("5", "numeric", {"tolerance": "wide"}, "tolerance"),
        ("5", "numeric", {"tolerance": -0.1}, "tolerance"),
        ("5", "numeric", {"tolerance": True}, "tolerance"),
        ("5", "numeric", {"tolerance": "nan"}, "tolerance"),
        ("Z", "choice", {"choices": CITIES}, "none of its options"),
        ("A", "choice", {"choices": "abc"}, "choices"),
        ("A", "choice", {"choices": [str(n) for n in range(30)]}, "26"),
        ("A", "choice", {"choices": {"AB": "x", "C": "y"}}, "letter"),
        ("x", "exact", {"accept": "writer"}, "accept"),
        ("x", "contains", {"accept": 3}, "accept"),
        ("x", "human", {}, "nobody has labelled"),
        ("x", "human", {"right": "x"}, "list of texts"),
        ("x", "judge", {}, "judge"),
        ("[", "regex", {}, "pattern"),
        ("...", "math", {}, "no value"),
        ("x", "nonsense", {}, "nonsense"),
    ],
)
def test_trouble_is_told_before_there_is_a_reply(
    reference: str, name: str, params: dict[str, Any], message: str
) -> None:
    told = trouble(task(reference, name, **params))
    assert told is not None
    assert message in told
    assert told.endswith(".")


def test_tasks_without_trouble() -> None:
    for fine in (
        task("x", "exact", accept=["y"]),
        task("x", "contains"),
        task("1/2", "numeric", tolerance=0.01),
        task("B", "choice", choices=CITIES),
        task("Lake Erie", "choice", choices=CITIES),
        task("D", "choice"),
        task(r"\d+", "regex"),
        task("x < 4", "math"),
        task("x", "judge", judge="ada"),
    ):
        assert trouble(fine) is None


def test_a_tolerance_that_is_none_is_no_wrong_answer() -> None:
    with pytest.raises(InputError, match="tolerance"):
        grade(task("5", "numeric", tolerance="wide"), "5")


def _raises(asked: Task, text: str) -> Grade:
    raise ZeroDivisionError("by zero")


def _troubled(asked: Task) -> str | None:
    raise ZeroDivisionError("by zero")


@pytest.mark.parametrize("slow", [False, True])
async def test_a_grader_that_raises_is_never_a_wrong_answer(monkeypatch: pytest.MonkeyPatch, slow: bool) -> None:
    monkeypatch.setattr(graders, "GRADERS", dict(graders.GRADERS))
    register(Grader("broken", AnswerKind.TEXT, _raises, slow=slow, trouble=_troubled))
    asked = task("x", "broken")
    for outcome in (lambda: grade(asked, "x"), lambda: asyncio.run(grade_async(asked, "x"))):
        with pytest.raises(InputError, match="broken") as caught:
            await asyncio.to_thread(outcome)
        assert asked.id in str(caught.value)
        assert "by zero" in str(caught.value)
    assert "broken" in str(trouble(asked))


async def test_slow_graders_run_in_a_thread_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[threading.Thread] = []

    def note(asked: Task, text: str) -> Grade:
        seen.append(threading.current_thread())
        return Grade(True, text, "Noted.")

    monkeypatch.setattr(graders, "GRADERS", dict(graders.GRADERS))
    register(Grader("quick", AnswerKind.TEXT, note))
    register(Grader("slow", AnswerKind.TEXT, note, slow=True))
    assert (await grade_async(task("x", "quick"), "x")).correct
    assert (await grade_async(task("x", "slow"), "x")).correct
    assert [thread is threading.current_thread() for thread in seen] == [True, False]


@pytest.mark.parametrize(
    ("text", "correct", "graded"),
    [
        ("Paris", True, True),
        ("paris.", True, True),
        ("I know it.\nAnswer: Paris", True, True),
        ("The city of  light", True, True),
        ("Lyon", False, True),
        ("Answer: Lyon", False, True),
        ("Not Paris", False, False),
        ("Nice", False, False),
        ("Metz", False, False),
        ("", False, True),
    ],
)
def test_people_label_answers(text: str, correct: bool, graded: bool) -> None:
    asked = task("Paris", "human", right=["the city of light", "Metz"], wrong=["Lyon", "Metz"])
    outcome = grade(asked, text)
    assert (outcome.correct, outcome.graded) == (correct, graded)
    assert outcome.explanation.endswith(".")


# --- Tasks --------------------------------------------------------------------------------------------------------


def test_the_id_follows_what_decides_right_and_wrong() -> None:
    made = Task.make("2+2?", "4", grader="numeric", family="arithmetic", tags=("add",), params={"tolerance": 0.1})
    same = Task.make("2+2?", "4", grader="numeric", family="sums", source="file", params={"tolerance": 0.1})
    assert made.id == same.id
    assert made.split == same.split == split_of(made.id)
    others = [
        Task.make("2+3?", "4", grader="numeric", params={"tolerance": 0.1}),
        Task.make("2+2?", "5", grader="numeric", params={"tolerance": 0.1}),
        Task.make("2+2?", "4", grader="exact", params={"tolerance": 0.1}),
        Task.make("2+2?", "4", grader="numeric"),
    ]
    assert len({made.id, *(other.id for other in others)}) == 5


def test_ids_and_splits_are_fixed_for_ever() -> None:
    made = Task.make("What is 2 + 2?", "4", grader="numeric")
    assert (made.id, made.split) == ("f77311dbf9f0a2d4fc9a1027", "validation")
    assert [split_of(str(n))[:2] for n in range(8)] == ["tr", "tr", "tr", "tr", "va", "te", "te", "tr"]


def test_splits_have_their_shares() -> None:
    names = [split_of(f"task {n}") for n in range(4000)]
    shares = [names.count(name) / 4000 for name in ("train", "validation", "test")]
    assert shares == pytest.approx([0.60, 0.15, 0.25], abs=0.03)


def test_a_benchmark_keeps_its_own_split() -> None:
    splits = {Task.make(f"Q{n}", "1", split="test").split for n in range(20)}
    assert splits == {"test"}


def test_tasks_survive_json() -> None:
    tasks = (
        Task.make("Où?\u2028Là", "«là»", family="f", tags=("x", "y"), source="s"),
        Task.make("Which?", "B", grader="choice", params={"choices": CITIES}, split="validation"),
    )
    assert from_jsonl(to_jsonl(tasks)) == tasks
    assert from_json(json.loads(json.dumps(to_json(tasks[1])))) == tasks[1]
    assert from_json({"question": "Q", "reference": "R"}) == Task.make("Q", "R")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "Line 2"),
        ("[1]", "object"),
        ('{"question": "Q"}', "empty"),
        ('{"question": "Q", "reference": 4}', "reference"),
        ('{"question": "Q", "reference": "4", "split": "exam"}', "split"),
        ('{"id": "0", "question": "Q", "reference": "4"}', "changed"),
    ],
)
def test_bad_tasks_are_refused_by_line(line: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        from_jsonl('{"question": "Q", "reference": "R"}\n' + line)
    assert "Line 2" in str(caught.value)
