"""Reading answers out of text: tables of texts with the value that must be read from them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trinity_core.answers import (
    AnswerKind,
    FinalAnswer,
    clean_value,
    committed_answer,
    extract_answer,
    final_answer,
    mentions,
    number_and_unit,
    partial_result,
    same_value,
    short_value,
    split_reasoning,
)
from trinity_core.types import Failure, Finish, Role, TurnFinished


@pytest.mark.parametrize(
    ("text", "visible", "reasoning"),
    [
        ("The area is 6.", "The area is 6.", ""),
        ("<think>a long plan</think>The area is 6.", "The area is 6.", "a long plan"),
        ("Before. <THINKING>x</THINKING> After.", "Before.  After.", "x"),
        ("<reasoning>one</reasoning>A<think>two</think>B", "AB", "one\ntwo"),
        ("no opening tag</think>6", "6", "no opening tag"),
        ("Answer: 6\n<think>but wait", "Answer: 6", "but wait"),
        ("<think>never closed", "", "never closed"),
        ("<think>a<think>b</think>c</think>d", "d", "a<think>b</think>c"),
        ("<think>he wrote <think> there</think>d", "d", "he wrote <think> there"),
        ("<thinking>a <think> b</thinking>c", "c", "a <think> b"),
        ("Use the `<think>` tag.", "Use the `<think>` tag.", ""),
        ('The "</think>" mark ends it.', 'The "</think>" mark ends it.', ""),
        ("<think>`</think>` ends it</think>6", "6", "`</think>` ends it"),
        ("```\n<think>x</think>\n```\n6", "```\n<think>x</think>\n```\n6", ""),
        ("an open fence ```py\nx\n</think>\n6\n```py\ny\n```", "6\n```py\ny\n```", "an open fence ```py\nx"),
        ("", "", ""),
    ],
)
def test_reasoning_is_split_off(text: str, visible: str, reasoning: str) -> None:
    assert split_reasoning(text) == (visible, reasoning)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Answer: 42", "42"),
        ("**Answer:** 42", "42"),
        ("**Final Answer**: `42`", "42"),
        ("Final answer: $\\frac{1}{2}$.", "\\frac{1}{2}"),
        ("### Final Answer\n\n7", "7"),
        ("Answer:\n\n42", "42"),
        ("Answer (in cm): 5", "5"),
        ("#### 72", "72"),
        ("<answer>Paris</answer>", "Paris"),
        ("Use induction. The answer would be 12.", "12"),
        ("The answer to 2 + 2 is 4.", "4"),
        ("the answer is 5 because 2+3=5; also 12 is close", "5"),
        ("First \\boxed{3}, no: \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"),
        ("So it is \\boxed{14}. Final: \\boxed{}", "14"),
        ("Then \\boxed{21}. In lowest terms \\boxed{\\frac{2", "21"),
        ("The day is \\boxed{\\text{Tuesday}}", "Tuesday"),
        ("Answer: it depends\n...\nANSWER: copper", "copper"),
        ("Answer: p+q = 211+18 = 229", "229"),
        ("Answer: 3 x 4 = 12 cm", "12 cm"),
        ("Answer: x = 5", "5"),
        ("Answer: total = 1,000 + 234 = 1,234", "1,234"),
        ("Answer: 2x - 5y + 8 = 0", "2x - 5y + 8 = 0"),
        ("Answer: x = 1, y = 2", "x = 1, y = 2"),
        ("Answer: k = 5, 6, 7", "k = 5, 6, 7"),
        ("Answer: 5. I checked it twice.", "5"),
        ("Answer: 3.14.", "3.14"),
        ("Answer: J. K. Rowling", "J. K. Rowling"),
        ("Answer: D rather than B", "D"),
        ("My answer: **Paris**, the capital", "Paris, the capital"),
        ("Answer: 2**3**2", "2**3**2"),
        ("Answer: U.S.A.", "U.S.A."),
        ("Answer: \\textbf{(C)}", "(C)"),
        ("Answer: x=1; y=2", "x=1; y=2"),
        ("Answer: a = \\sqrt{2}", "\\sqrt{2}"),
        ("The day is \\boxed{\\textsc{Tuesday}}", "Tuesday"),
        ("The day is \\boxed{\\large \\text{Tuesday}}", "Tuesday"),
        ("The day is \\boxed{{\\bf Tuesday}}", "Tuesday"),
        ("\\boxed{\\textcolor{red}{42}}", "42"),
        ("\\boxed{\\displaystyle\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{\\boxed{5}}", "5"),
        ("\\boxed{+}", "+"),
    ],
)
def test_the_last_commitment_is_read(text: str, value: str) -> None:
    assert committed_answer(text) == value


@pytest.mark.parametrize(
    "blank", ["", " ", "?", "...", "\\ldots", "\\,", "\\quad", "\\phantom{0}", "\\square", "\\_\\_", "\\text{}", "{}"]
)
def test_a_box_without_a_value_hides_no_answer(blank: str) -> None:
    assert committed_answer(f"So it is \\boxed{{14}}. Final: \\boxed{{{blank}}}") == "14"
    assert extract_answer(f"Final: \\boxed{{{blank}}}", AnswerKind.MATH) in (None, "0")


@pytest.mark.parametrize("kind", ["number", "math", "text"])
def test_half_a_box_is_no_value(kind: str) -> None:
    assert extract_answer("\\boxed{\\frac{2", kind) is None
    assert extract_answer("\\boxed{12", kind) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Result so far: 5",
        "The answer is not 5.",
        "Answer: <the final answer only>",
        "Answer:",
        "The previous answer: 7 was wrong.",
        "Answer: \\boxed{\\frac{2",
        "So 5 it is.",
        "Antwort: (C)",
    ],
)
def test_no_commitment(text: str) -> None:
    assert committed_answer(text) is None


def test_partial_results_are_apart_from_answers() -> None:
    text = "Counting: s-p-i\nResult so far: 3\n**Result so far:** 8."
    assert partial_result(text) == "8"
    assert partial_result("Answer: 3") is None
    assert extract_answer("Result so far: 12", AnswerKind.NUMBER) is None
    assert extract_answer("Result so far: Paris", AnswerKind.TEXT) is None
    assert extract_answer("20 leaves 6 after whole weeks\nResult so far: Monday", AnswerKind.NUMBER) is None
    assert extract_answer("Result so far: 12\nAnswer: 24", AnswerKind.NUMBER) == "24"


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("Hence $\\frac{3}{8}$ of the tank is left.", "math", "\\frac{3}{8}"),
        ("It is 2\\sqrt{3} units.", "math", "2\\sqrt{3}"),
        ("That is $\\frac{\\pi}{6}$.", "math", "\\frac{\\pi}{6}"),
        ("Hence $\\cfrac{3}{8}$ of it.", "math", "\\cfrac{3}{8}"),
        ("There are $\\binom{5}{2}$ ways.", "math", "\\binom{5}{2}"),
        ("That is $1.5\\times10^{-3}$.", "math", "1.5\\times10^{-3}"),
        ("Twelve, then 7, then \\boxed{12", "number", "7"),
        ("Answer: \u22125", "number", "-5"),
        ("So ,, , it is.", "number", None),
        ("Answer: 2x+3", "math", "2x+3"),
        ("That makes 64, counting the spare.", "number", "64"),
        ("It weighs 1,234.5 kg.", "number", "1,234.5"),
        ("The change was −7 degrees", "number", "-7"),
        ("pages 3-5", "number", "5"),
        ("about -$5.50", "number", "-5.50"),
        ("a share of 50%", "number", "50%"),
        ("half, that is 1/2 of it", "number", "1/2"),
        ("It ends at 5:00", "number", "5:00"),
        ("A spider has eight legs.", "number", "8"),
        ("twenty-one of them", "number", "21"),
        ("No one knows, really", "number", None),
        ("one", "number", "1"),
        ("nothing, at all", "number", None),
        ("Answer: about 12 apples, I think", "number", "12"),
        ("Answer: Wednesday", "number", None),
        ("The capital of France is Paris.", "text", "Paris"),
        ("It is definitely not Oslo, it is Bergen.", "text", "Bergen"),
        ("It might be Oslo. It might also be Bergen. Let us see.", "text", None),
        ("The", "text", "The"),
        ("", "text", None),
        ("", "number", None),
    ],
)
def test_values_are_read_by_kind(text: str, kind: str, value: str | None) -> None:
    assert extract_answer(text, kind) == value


@pytest.mark.parametrize(
    ("text", "letters", "value"),
    [
        ("C", "ABCD", "C"),
        ("d", "ABCD", "D"),
        ("(C)", "ABCD", "C"),
        ("C)", "ABCD", "C"),
        ("B) 42 km", "ABCD", "B"),
        ("option C", "ABCD", "C"),
        ("The correct option is C.", "ABCD", "C"),
        ("A is wrong and B too; C is correct.", "ABCD", "C"),
        ("**Answer:** \\boxed{\\text{(B)}}", "ABCD", "B"),
        ("Answer: C, as I verified by substitution.", "ABCDEFGHIJ", "C"),
        ("Answer: cannot be B, so it must be D.", "ABCD", "D"),
        ("Answer: D rather than B", "ABCD", "D"),
        ("B looks like a sound pick, with a small caveat.", "ABCD", "B"),
        ("Antwort:\n\nAntwort: (C)", "ABCD", "C"),
        ("So the answer is a rise in the boiling point.", "ABCD", None),
        ("ANSWER: None of the above", "ABCD", None),
        ("ANSWER: Don't know", "ABCD", None),
        ("Both A and C look right.", "ABCD", None),
        ("I think I can solve it", "ABCDEFGHIJ", None),
        ("E", "ABCD", None),
        ("On reflection the argument of part two is long and subtle.", "ABCD", None),
    ],
)
def test_option_letters_are_told_from_words(text: str, letters: str, value: str | None) -> None:
    assert extract_answer(text, AnswerKind.CHOICE, letters=letters) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("It must be Lake Superior North.", "B"),
        ("It must be Lake Superior.", "A"),
        ("Not Lake Superior North but vitamin C.", "C"),
        ("Answer: Vitamin C", "C"),
        ("Lake Superior or vitamin C", None),
        ("(A) Lake Superior", "A"),
    ],
)
def test_options_are_known_by_their_text(text: str, value: str | None) -> None:
    options = {"A": "Lake Superior", "B": "Lake Superior North", "C": "Vitamin C"}
    assert extract_answer(text, "choice", letters="ABC", options=options) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The capital of France is Paris.", "Paris"),
        ("Paris is the capital of France.", "Paris"),
        ("Paris", "Paris"),
        ("It's Paris.", "Paris"),
        ("The capital is **Paris**, a city on the Seine.", "Paris"),
        ("The capital of France is Paris. It lies on the Seine and is large.", "Paris"),
        ("A baby dog is called a puppy.", "puppy"),
        ("The opposite of 'hot' is 'cold'.", "cold"),
        ("The largest ocean is the Pacific Ocean.", "Pacific Ocean"),
        ("Romeo and Juliet was written by William Shakespeare.", "William Shakespeare"),
        ("A spider has eight legs.", "eight"),
        ("There are 7 days in a week.", "7"),
        ("The date is 5 March 2024.", "5 March 2024"),
        ("It has 1,000 seats", "1,000"),
        ("Answer: 9", "9"),
        ("Result so far: 9", "9"),
        ("Nobody could say for certain what happened there", None),
        ("", None),
    ],
)
def test_short_replies_give_a_value(text: str, value: str | None) -> None:
    assert short_value(text) == value


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("1,000", "1000"),
        ("1000.0", "1{,}000"),
        ("12\u202f000 km", "12000km"),
        ("12 000", "12000"),
        ("042", "42"),
        ("3.0", "3"),
        ("1/2", "0.5"),
        ("\\frac{1}{2}", "50%"),
        ("\\left(\\frac{2}{5}\\right)", "\\frac25"),
        ("2 1/3", "\\dfrac{7}{3}"),
        ("12/3", "4"),
        ("1 and 1/2", "1.5"),
        ("3\\frac{1}{2}", "7/2"),
        ("−7", "-7"),
        ("1e3", "1000"),
        ("$5", "5 dollars"),
        ("-$5", "$-5"),
        ("12 km", "12km"),
        ("3 days", "3 day"),
        ("75^{\\circ}", "75"),
        ("5 March 2024", "2024-03-05"),
        ("Tuesday, March 5th, 2024", "5 Mar 2024"),
        ("5:45 PM", "17:45"),
        ("5 p.m.", "17:00"),
        ("“Hi”", "hi."),
        ("don’t", "Don't"),
        ("a,b , c", "A, B, C"),
        ("The", "the"),
        ("U.S.A.", "U.S.A"),
        ("caf\u00e9", "cafe\u0301"),
        ("\\text{Tuesday}", "tuesday"),
    ],
)
def test_equal_values(a: str, b: str) -> None:
    assert same_value(a, b)
    assert same_value(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("10.5", "105"),
        ("0.333", "1/3"),
        ("1e400", "1e500"),
        ("5:00", "11:00"),
        ("5:45", "17:45"),
        ("1:30", "130"),
        ("12 km", "12"),
        ("12 km", "12 m"),
        ("$5", "5"),
        ("$5", "€5"),
        ("5%", "5"),
        ("True", "1"),
        ("5!", "5"),
        ("3^5", "6"),
        ("\\pm 7", "7"),
        ("6\\sqrt(3)", "6"),
        ("2+\\frac{1}{\\mathrm{e}}", "2-\\frac{1}{\\mathrm{e}}"),
        ("(2, 1)", "(1, 2)"),
        ("2x - 5y + 8 = 0", "2x + 7y - 8 = 0"),
        ("k = 5, 6, 7", "k = 4, 5, 6"),
        ("9^{9^{9^{9}}}", "10"),
        ("5 March 2024", "6 March 2024"),
        ("31 February 2024", "2 March 2024"),
        ("The", "anything else"),
        ("The", "A"),
        ("?", "!"),
        ("", "0"),
        ("", ""),
    ],
)
def test_different_values(a: str, b: str) -> None:
    assert not same_value(a, b)
    assert not same_value(b, a)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-3/4", (Fraction(-3, 4), "")),
        ("12 square metres", (Fraction(12), "square metre")),
        ("50 %", (Fraction(50), "%")),
        ("$1,250.50", (Fraction("1250.5"), "$")),
        ("1/0", None),
        ("NaN", None),
        ("inf", None),
        (",", None),
        ("1e999999999", None),
        ("9" * 9000, None),
        ("7 of 9", None),
        ("12-14", None),
    ],
)
def test_numbers_are_exact(text: str, value: tuple[Fraction, str] | None) -> None:
    assert number_and_unit(text) == value


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("It is Oslo.", True),
        ("I would say: 'Oslo'!", True),
        ("It is not Oslo.", False),
        ("It isn't Oslo, it is Bergen", False),
        ("Oslo is not the place", False),
        ("Bergen rather than Oslo", False),
        ("It is not Oslo. Wait, it is Oslo.", True),
        ("Osloers live there", False),
        ("", False),
    ],
)
def test_a_rejected_phrase_is_not_named(text: str, named: bool) -> None:
    assert mentions(text, "Oslo") is named


@given(st.text(alphabet="Ana swer:iboxd{}\\<>/think`*$0123456789.,%=-() \n", max_size=80))
def test_any_text_can_be_read(text: str) -> None:
    visible, reasoning = split_reasoning(text)
    assert len(visible) + len(reasoning) <= len(text) + text.count("<")
    for kind in AnswerKind:
        value = extract_answer(text, kind)
        assert value is None or value.strip()
    assert clean_value(clean_value(text)) == clean_value(text)
    assert same_value(text, text) is bool(text.strip())


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "piece", ["answer ", "\\boxed{", "<think>", "`", "a", " ", "9", "9 ", "(", "{", "- ", "\\frac{", "**", "= "]
)
def test_long_texts_are_read_in_linear_time(piece: str) -> None:
    text = piece * (60_000 // len(piece))
    split_reasoning(text)
    for kind in AnswerKind:
        extract_answer(text, kind)
        extract_answer("Answer: " + text, kind)
    assert not same_value(text, "5")


# --- The final answer of a run -----------------------------------------------------------------------------------


def turn(number: int, role: Role | None, text: str, **more: Any) -> TurnFinished:
    return TurnFinished(
        run_id="r", seq=number, at=0.0, turn=number, attempt=1, agent="a", role=role, text=text, **more
    )


TWELVE = "The answer would be 12."
W, T, V = Role.WORKER, Role.THINKER, Role.VERIFIER


@pytest.mark.parametrize(
    ("turns", "kind", "expected"),
    [
        ([(W, "Answer: 1"), (V, "REVISE"), (W, "Answer: 2")], None, FinalAnswer("Answer: 2", 3)),
        ([(W, "Answer: C"), (V, "REVISE"), (W, "The argument is subtle.")], "choice", FinalAnswer("Answer: C", 1)),
        ([(W, "Answer: C"), (W, "The argument is subtle.")], None, FinalAnswer("The argument is subtle.", 2)),
        ([(W, "Answer: 4"), (W, "I checked step 2 again.")], "number", FinalAnswer("Answer: 4", 1)),
        ([(W, "Answer: 4"), (W, "Result so far: 9")], "number", FinalAnswer("Answer: 4", 1)),
        ([(W, "about 3"), (W, "roughly 5 or so")], "number", FinalAnswer("roughly 5 or so", 2)),
        ([(W, "well"), (W, "hm, let me see")], "number", FinalAnswer("hm, let me see", 2)),
        ([(T, "The answer would be 12."), (T, "Check n=1.")], None, FinalAnswer(TWELVE, 1, "no_worker_turn")),
        ([(T, "The answer would be 12."), (T, "Check n=1.")], "math", FinalAnswer(TWELVE, 1, "no_worker_turn")),
        ([(T, "First plan"), (T, "Second plan")], None, FinalAnswer("Second plan", 2, "no_worker_turn")),
        ([(V, "ACCEPT")], None, FinalAnswer(None, None, "no_answer")),
        ([], None, FinalAnswer(None, None, "no_answer")),
        ([(None, "Answer: 8")], "number", FinalAnswer("Answer: 8", 1)),
    ],
)  # fmt: skip
def test_final_answer(turns: list[tuple[Role | None, str]], kind: str | None, expected: FinalAnswer) -> None:
    assert final_answer([turn(n, role, text) for n, (role, text) in enumerate(turns, 1)], kind) == expected


@pytest.mark.parametrize(
    "more",
    [
        {"finish": Finish.REFUSED},
        {"finish": Finish.BLOCKED},
        {"finish": Finish.EMPTY},
        {"error": Failure("timeout", "too slow"), "finish": Finish.ERROR},
    ],
)
def test_failed_and_refused_turns_are_no_answers(more: dict[str, Any]) -> None:
    good, bad = turn(1, W, "Answer: 4"), turn(2, W, "Answer: 5", **more)
    assert final_answer([good, bad]) == FinalAnswer("Answer: 4", 1)
    assert final_answer([bad]) == FinalAnswer(None, None, "no_answer")


def test_a_cut_off_answer_is_still_the_newest() -> None:
    assert final_answer([turn(1, W, "Answer: 4"), turn(2, W, "It is 5", finish=Finish.LENGTH)]).turn == 2
