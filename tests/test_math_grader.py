"""The math grader: the same value in other words is right, whichever side is the reference; nothing else is."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from fractions import Fraction
from typing import Any

import pytest

from trinity_core.errors import TrinityError
from trinity_core.tasks import mathchild, mathgrade
from trinity_core.tasks.graders import grade, grade_async, trouble
from trinity_core.tasks.mathgrade import compare, stated
from trinity_core.tasks.task import Task


def task(reference: str, **params: Any) -> Task:
    return Task.make("What is it?", reference, grader="math", params=params)


SAME = [
    # numbers and their spellings
    (r"\frac{1}{\sqrt{2}}", r"\dfrac{\sqrt{2}}{2}"),
    ("2 1/3", r"\frac{7}{3}"),
    (r"2\frac13", "7/3"),
    ("3^{5}", "243"),
    ("3**5", "3^5"),
    (r"\left(\frac{2}{5}\right)", r"\frac25"),
    (r"\frac{\pi}{6}", "π/6"),
    (r"4\cos\left(\frac{\pi}{3}t\right)-2", "4*cos(pi*t/3)-2"),
    (r"\sqrt2", r"\sqrt{2}"),
    ("sqrt(8)", r"2\sqrt{2}"),
    ("√8", "2*sqrt(2)"),
    (r"\sqrt[3]{8}", "2"),
    ("1{,}000", "1000"),
    ("1,000", "1000.0"),
    ("1,234", "1,234.0"),
    ("1,2", "1, 2"),
    (r"3\times 10^5", "300000"),
    ("3e5", "300,000"),
    (r"\frac{-1}{2}", "-0.5"),
    (r"0.1\overline{6}", r"\frac16"),
    ("5!", "120"),
    (r"\binom{5}{2}", "10"),
    (r"\log_2 8", "3"),
    ("log(100)", "2"),
    (r"\ln 2", "log(2)"),
    (r"\sin 30^\circ", r"\frac12"),
    ("(1+i)(1-i)", "2"),
    ("2^{100}", "1267650600228229401496703205376"),
    ("5 million", "5,000,000"),
    # units
    (r"75^{\circ}", "75"),
    ("5 cm", "5"),
    (r"5\text{ cm}^2", "5 square centimeters"),
    (r"6\sqrt{3}\text{ cm}", r"6\sqrt3"),
    ("$5.00", "5 dollars"),
    ("50%", r"\frac12"),
    (r"50\%", "50"),
    ("101_2", "101"),
    # expressions
    ("(x+1)^2", "x^2+2x+1"),
    (r"\frac{1}{3}\pi r^2", r"\frac{\pi r^2}{3}"),
    ("|x-1|", "abs(x-1)"),
    (r"\sin^2 x+\cos^2 x", "1"),
    # several values
    (r"\{1, 2, 3\}", r"\left\{3,2,1\right\}"),
    (r"\pm 7", "-7 or 7"),
    (r"2\pm\sqrt{3}", r"2-\sqrt3, 2+\sqrt3"),
    ("(0.5, 1)", r"\left(\frac12, 1\right)"),
    (r"\emptyset", r"\{\}"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\langle 1, 2\rangle"),
    (r"\begin{cases} x=1 \\ y=2\end{cases}", "y = 2, x = 1"),
    ("(1,2), (3,4)", "(3,4),(1,2)"),
    # intervals, inequalities, equations
    (r"(-\infty, 4)", "x < 4"),
    (r"1 < x \le 3", "(1,3]"),
    ("x<-1 or x>2", r"(2,\infty)\cup(-\infty,-1)"),
    ("2x<8", "x<4"),
    (r"x\in[0,1]", "[0, 1]"),
    (r"\{x|x<4\}", "4>x"),
    ("x = 5", "5"),
    ("f(x)=2x", "2x"),
    ("4x+2=2y", "y=2x+1"),
    ("k = 4, 5, 6", "k = 6, 5, 4"),
    (r"x \neq 2", r"\mathbb{R} \setminus \{2\}"),
    (r"\left(-\infty, -3\right] \cup \left[3, \infty\right)", "|x|>=3"),
    ("all real numbers", r"\mathbb{R}"),
    (r"\text{Area}=12", r"12 \mathrm{~cm}^{2}"),
    (r"\int_0^1 x\,dx", r"\frac12"),
    # words
    (r"\text{Tuesday}", "Tuesday"),
    (r"\text{(C)}", "C"),
    ("17:45", "5:45 PM"),
]

DIFFERENT = [
    ("(2, 1)", "(1, 2)"),
    (r"2+\frac{1}{\mathrm{e}}", r"2-\frac{1}{\mathrm{e}}"),
    (r"\pm 7", "7"),
    ("5:00", "11:00"),
    ("1:2", "2:1"),
    ("3^5", "6"),
    ("k = 5, 6, 7", "k = 4, 5, 6"),
    ("2x - 5y + 8 = 0", "2x + 7y - 8 = 0"),
    ("0.333", r"\frac{1}{3}"),
    ("3.14159", r"\pi"),
    (r"6\sqrt(3)", "6"),
    ("(1,2]", "[1,2]"),
    ("(1,2)", "[1,2]"),
    ("x<4", r"x \le 4"),
    ("x<4", "y<4"),
    ("x<4", "x>4"),
    ("x = 5", "y = 5"),
    ("5 cm", "5 m"),
    ("101_2", "101_3"),
    ("2x", "2"),
    ("x^{2}", "2x"),
    (r"\infty", r"-\infty"),
    ("0", r"\emptyset"),
    ("1/0", "0"),
    ("NaN", "NaN"),
    ("1e400", "1e500"),
    ("10^{-20}", r"2\cdot 10^{-20}"),
    ("3 or 4", "3"),
    ("Tuesday", "Wednesday"),
    ("(1,2), (3,4)", "(2,1),(3,4)"),
    (r"\{1,2\}", "(1,2)"),
    ("1,234", "1, 234"),
    (r"\sqrt{4}", r"\pm 2"),
    ("e", "2.718"),
    (r"\overline{AB}", r"\overline{CD}"),
    ("2x+", "2x"),
    ("(x+1", "x+1"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}2\\1\end{pmatrix}"),
    ("1/3)", "1/3 + x"),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_the_same_value_in_another_form(a: str, b: str) -> None:
    assert compare(a, b)[0]
    assert compare(b, a)[0]


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_another_value_is_wrong_either_way_round(a: str, b: str) -> None:
    assert not compare(a, b)[0]
    assert not compare(b, a)[0]


@pytest.mark.parametrize("form", ["{}", "Answer: {}", "So\n\\boxed{{{}}}", "Thus the answer is ${}$.", "\\[ {} \\]"])
@pytest.mark.parametrize(
    ("said", "reference", "correct"),
    [
        (r"\frac{1}{\sqrt{2}}", r"\dfrac{\sqrt{2}}{2}", True),
        (r"(-\infty, 4)", "x < 4", True),
        ("k = 5, 6, 7", "k = 4, 5, 6", False),
        (r"75^{\circ}", "75", True),
        ("2 1/3", r"So it is \boxed{\frac{7}{3}}.", True),
        ("(2, 1)", "(1, 2)", False),
        (r"6\sqrt(3)", "6", False),
    ],
)
def test_values_are_found_in_replies(form: str, said: str, reference: str, correct: bool) -> None:
    outcome = grade(task(reference), form.format(said))
    assert outcome.correct is correct
    assert outcome.extracted


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("the answer is 5 because 2+3=5; also 12 is close", "5"),
        ("The solutions are $x=1$ and $x=2$.", "x=1, x=2"),
        ("We get \\[ x = \\frac{3}{4} \\]", r"x = \frac{3}{4}"),
        ("I think 12", "12"),
        ("Answer: the point (2, 1)", "(2, 1)"),
        ("Answer: the line $y = 2x + 1$", "y = 2x + 1"),
        ("It is 5 cm long.", "5"),
        ("Result so far: 12", None),
        ("$$\\frac{1}{2}$$", r"\frac{1}{2}"),
        ("Answer: 12 square centimetres", "12 square centimetres"),
    ],
)
def test_what_a_reply_states(text: str, value: str | None) -> None:
    assert stated(text) == value


@pytest.mark.parametrize("text", ["", "  ", "no idea what this could be", "the answer is 5, and 12 is close"])
def test_a_reply_without_the_value_is_wrong(text: str) -> None:
    assert not grade(task("12"), text).correct
    assert not grade(task("0"), text).correct


def test_a_tolerance_is_only_for_tasks_that_state_one() -> None:
    assert not grade(task(r"\frac{1}{3}"), "0.333").correct
    assert grade(task(r"\frac{1}{3}", tolerance=0.01), "0.333").correct
    assert grade(task(r"\sqrt{2}", tolerance=0.001), "1.414").correct
    assert not grade(task(r"\sqrt{2}", tolerance=0.001), "1.41").correct
    assert compare("99", "100", Fraction(1, 100))[0]


def test_a_power_tower_ends_and_the_next_question_is_answered() -> None:
    compare("x+1", "1+x")  # the process is warm
    started = time.monotonic()
    outcome = grade(task("10"), "9^{9^{9^{9}}}")
    took = time.monotonic() - started
    assert not outcome.correct
    assert "limits" in outcome.explanation
    assert took < 30  # processor time is limited to 2 s; the rest is for a machine with other work
    assert compare("(x+1)^2", "x^2+2x+1")[0]


def test_a_child_that_somebody_ended_costs_no_answer() -> None:
    assert compare("x+2", "2+x")[0]
    process = mathchild._CHILD._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    assert compare("(x+2)^2", "x^2+4x+4")[0]


def test_what_cannot_be_compared_for_want_of_time_is_not_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    compare("x+1", "1+x")
    monkeypatch.setattr(mathchild, "WALL_SECONDS", 0.2)
    with pytest.raises(TrinityError, match="busy"):
        compare("9^{9^{9^{9}}}", "10")


def test_plain_values_need_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> str:
        raise AssertionError("the process was asked")

    monkeypatch.setattr(mathchild, "ask", never)
    assert compare(r"\frac{\pi}{6}", "π/6")[0]
    assert compare("5 cm", "5")[0]
    assert not compare("5", "6")[0]
    assert not compare("Tuesday", "Wednesday")[0]


async def test_it_works_from_threads_and_many_at_once() -> None:
    pairs = [(f"(x+{n})^2", f"x^2+{2 * n}x+{n * n + n % 2}", n % 2 == 0) for n in range(1, 9)]
    grades = await asyncio.gather(*(grade_async(task(reference), f"Answer: {said}") for said, reference, _ in pairs))
    assert [g.correct for g in grades] == [right for *_, right in pairs]
    assert threading.current_thread() is threading.main_thread()


@pytest.mark.parametrize(
    "value",
    [
        "__import__('os').system('echo')",
        "(" * 900,
        "{" * 450 + "1" + "}" * 450,
        "x" * 5000,
        r"\frac{",
        r"\begin{pmatrix}",
        "^^^",
        "\\",
        "((((((((((1",
        ",,,;",
        "=",
        "= 5 =",
        "\x00\ud7ff",
    ],
)
def test_odd_text_is_only_wrong(value: str) -> None:
    assert not compare(value, "7")[0]
    assert not compare("7", value)[0]


def test_trouble_names_what_to_change() -> None:
    assert trouble(task("7")) is None
    assert "tolerance" in str(trouble(task("7", tolerance="wide")))
    assert "tolerance" in str(trouble(task("7", tolerance=-1)))
    assert "no value" in str(trouble(task("...")))
    assert str(mathgrade.MOST_CHARS) in str(trouble(task("1+" * 600 + "1")))


def test_explanations_say_what_was_compared() -> None:
    assert grade(task("x < 4"), r"Answer: (-\infty, 4)").explanation == r"The value (-\infty, 4) equals x < 4."
    assert "cm is not m" in grade(task("5 m"), "Answer: 5 cm").explanation
