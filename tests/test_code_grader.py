"""The grader for code: what passes, what fails and why, and that a reply cannot give itself a pass."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import pytest

from trinity_core.errors import InputError
from trinity_core.tasks import code, sandbox
from trinity_core.tasks.graders import Grade
from trinity_core.tasks.task import Task


@pytest.fixture
def box() -> None:
    """Skips without bubblewrap, unless TRINITY_REQUIRE_BWRAP is set."""
    missing = sandbox.available()
    if missing and os.environ.get("TRINITY_REQUIRE_BWRAP"):
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)


def task(tests: Any, entry: str = "", seconds: Any = 5) -> Task:
    params = {"tests": tests, "entry": entry, "seconds": seconds}
    return Task.make("Write it.", "the tests", grader="code", params=params)


def fenced(source: str) -> str:
    return f"Here it is.\n\n```python\n{source}\n```\n"


def graded(source: str, tests: Any, entry: str = "f", seconds: float = 5) -> Grade:
    return code.check(task(tests, entry, seconds), fenced(source))


def passes(source: str, tests: Any, entry: str = "f") -> None:
    grade = graded(source, tests, entry)
    assert grade.correct, grade.explanation


def fails(source: str, tests: Any, why: str, entry: str = "f", seconds: float = 5) -> None:
    grade = graded(source, tests, entry, seconds)
    assert not grade.correct
    assert why in grade.explanation, grade.explanation


ADD = ["assert add(2, 3) == 5"]


class TestWithoutABox:
    def test_nothing_is_run_and_the_way_out_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("shutil.which", lambda name: None)
        asked = task(ADD, "add")
        assert "apt install bubblewrap" in (code.trouble(asked) or "")
        with pytest.raises(InputError, match="apt install bubblewrap"):
            code.check(asked, fenced("def add(a, b): return a + b"))


class TestTasks:
    @pytest.mark.parametrize(
        ("tests", "entry", "words"),
        [
            ([], "f", "no tests"),
            (None, "f", "no tests"),
            ("", "f", "no tests"),
            (["x = f()"], "f", "assert nothing"),
            ("def helper(): return 1", "f", "assert nothing"),
            (["assert f( == 1"], "f", "not valid Python"),
            (["import numpy\nassert f() == 1"], "f", "numpy"),
            (["from .x import y\nassert f() == 1"], "f", "standard library"),
            ("def test_a(x):\n    assert f(x)", "f", "needs arguments"),
            ("async def test_a():\n    assert f()", "f", "async"),
            ("def check(candidate):\n    assert candidate()", "", "entry"),
            ([{"args": [], "expected": 1}], "", "entry"),
            ([{"args": 3, "expected": 1}], "f", "args"),
            ([{"args": [], "expected": 1, "expect": 2}], "f", "nothing else"),
            ([{"stdin": 3, "stdout": ""}], "", "text"),
            ([{"stdin": "3"}], "", "neither"),
            ([7], "f", "neither"),
            (ADD, "no name", "no name of a function"),
        ],
    )
    def test_tests_that_cannot_be_used_are_told_before_anything_runs(
        self, tests: Any, entry: str, words: str
    ) -> None:
        asked = task(tests, entry)
        assert words in (code.trouble(asked) or "")
        with pytest.raises(InputError, match="Correct params"):
            code.check(asked, fenced("def f(): return 1"))

    @pytest.mark.parametrize("seconds", [0, -1, True, "5", 1e9, None])
    def test_seconds_must_be_a_sensible_number(self, seconds: Any) -> None:
        assert "seconds" in (code.trouble(task(ADD, "add", seconds)) or "")

    @pytest.mark.usefixtures("box")
    def test_a_good_task_has_no_trouble(self) -> None:
        assert code.trouble(task(ADD, "add")) is None


class TestTheCodeInAReply:
    def test_the_block_that_defines_the_entry_wins_over_a_later_demo(self) -> None:
        text = "Solution:\n```python\ndef rev(s):\n    return s[::-1]\n```\nUsage:\n```python\nprint(rev('abc'))\n```"
        assert code.extract_code(text, "rev") == "def rev(s):\n    return s[::-1]\n"
        assert code.extract_code(text, "", ("rev",)) == "def rev(s):\n    return s[::-1]\n"

    def test_the_last_of_several_attempts_counts(self) -> None:
        assert code.extract_code(fenced("def f(): return 1") + "Better:\n" + fenced("def f(): return 2"), "f") == (
            "def f(): return 2\n"
        )

    def test_a_longer_fence_holds_a_shorter_one(self) -> None:
        assert code.extract_code('````python\ndef fence():\n    return "```"\n````', "fence") == (
            'def fence():\n    return "```"\n'
        )

    def test_backticks_within_a_line_do_not_close(self) -> None:
        assert code.extract_code('```python\ndef fence():\n    return "```"\n```', "fence") == (
            'def fence():\n    return "```"\n'
        )

    def test_other_signs_indented_open_and_foreign_blocks(self) -> None:
        assert code.extract_code("~~~\nf = 1\n~~~", "f") == "f = 1\n"
        assert code.extract_code("1. So:\n   ```py\n   def f():\n       return 1\n   ```", "f") == (
            "def f():\n    return 1\n"
        )
        assert code.extract_code("```python\ndef f():\n    return 1", "f") == "def f():\n    return 1\n"
        assert code.extract_code("```python\ndef f(): pass\n```\n```bash\nf = 3\n```", "f") == "def f(): pass\n"

    def test_helpers_of_earlier_blocks_come_along(self) -> None:
        found = code.extract_code(fenced("import math") + fenced("def f(x):\n    return math.sqrt(x)"), "f")
        assert found == "import math\n\ndef f(x):\n    return math.sqrt(x)\n"

    def test_bare_code_and_code_after_prose(self) -> None:
        assert code.extract_code("def f():\n    return 1", "f") == "def f():\n    return 1\n"
        assert code.extract_code("Sure, here:\n\ndef f():\n    return 1\n\nIt's done.", "f") == (
            "def f():\n    return 1\n\n"
        )

    @pytest.mark.parametrize(
        "text", ["I would sort the list and take the middle element.", "median", "42", "```\n```", ""]
    )
    def test_prose_is_no_code(self, text: str) -> None:
        assert code.extract_code(text, "median") is None

    @pytest.mark.usefixtures("box")
    def test_prose_and_broken_code_are_wrong_and_no_error(self) -> None:
        asked = task(["assert median([3, 1, 2]) == 2"], "median")
        grade = code.check(asked, "I would sort the list and take the middle element.")
        assert grade == Grade(False, None, "The reply holds no Python code.")
        fails("def f(:", ["assert f() == 1"], "not valid Python")


@pytest.mark.usefixtures("box")
class TestRightAndWrong:
    def test_the_explanation_counts_and_tells_values(self) -> None:
        grade = graded(
            "def f(x): return [1, 2] if x < 4 else None", [f"assert f({n}) == [1, 2]" for n in (1, 2, 3, 4)]
        )
        assert grade.explanation == "3 of 4 tests passed; test 4: expected [1, 2], got None."
        assert not grade.correct
        assert graded("def f(x): return x", ["assert f(1) == 1"]).explanation == "1 of 1 test passed."

    def test_recursion_and_helpers_find_themselves(self) -> None:
        passes("def fact(n):\n    return 1 if n < 2 else n * fact(n - 1)", ["assert fact(5) == 120"], "fact")

    def test_fences_within_the_code(self) -> None:
        asked = task(["assert fence() == '`' * 3"], "fence")
        assert code.check(asked, '````python\ndef fence():\n    return "```"\n````').correct

    def test_a_number_is_no_truth_value_in_a_call(self) -> None:
        fails("def f(): return 1", [{"args": [], "expected": True}], "expected True, got 1")
        fails("def f(): return True", [{"args": [], "expected": 1}], "expected 1, got True")

    @pytest.mark.parametrize(
        ("value", "expected"),
        [("(1, 2)", [1, 2]), ("0.1 + 0.2", 0.3), ("3.0", 3), ("{1: 'a'}", {"1": "a"}), ("None", None), ("'é'", "é")],
    )
    def test_values_of_a_call_are_compared_as_json(self, value: str, expected: Any) -> None:
        passes(f"def f(): return {value}", [{"args": [], "expected": expected}])

    def test_a_method_of_a_solution_class(self) -> None:
        passes(
            "class Solution:\n    def twice(self, n):\n        return n * 2", [{"args": [4], "expected": 8}], "twice"
        )

    def test_objects_that_the_reply_defines(self) -> None:
        source = (
            "class Stack:\n    def __init__(self): self.items = []\n    def push(self, x): self.items.append(x)\n"
            "    def pop(self): return self.items.pop()\n    def __len__(self): return len(self.items)"
        )
        tests = [
            "s = Stack()",
            "s.push(3); s.push([1])",
            "assert len(s) == 2 and s.items == [3, [1]]",
            "assert s.pop() == [1] and isinstance(s, Stack)",
            "try:\n    Stack().pop()\n    assert False\nexcept IndexError:\n    pass",
        ]
        passes(source, tests, "Stack")

    def test_operators_between_objects_of_the_reply(self) -> None:
        source = (
            "class V:\n    def __init__(self, x): self.x = x\n    def __mul__(self, k): return V(self.x * k)\n"
            "    __rmul__ = __mul__\n    def __eq__(self, other): return self.x == other.x"
        )
        passes(source, ["assert V(2) * 3 == V(6)", "assert (3 * V(2)).x == 6", "assert V(1) != V(2)"], "V")

    def test_generators_named_tuples_callbacks_and_changes_in_place(self) -> None:
        passes("def f():\n    yield from (1, 2)", ["assert list(f()) == [1, 2]"])
        source = "from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(): return P(1, 2)"
        passes(source, ["assert f() == (1, 2) and f().y == 2 and f() == P(1, 2)"])
        passes("def f(g, x): return g(g(x))", ["assert f(lambda v: v + 1, 3) == 5"])
        passes(
            "def f(x):\n    x.sort()\n    return x", ["a = [3, 1, 2]", "assert f(a) is a", "assert a == [1, 2, 3]"]
        )

    def test_large_numbers_and_all_plain_values_arrive(self) -> None:
        passes("def f(x): return x", "\n".join(f"assert f({v}) == {v}" for v in (10**40, -(2**63), 1.5, "(1, (2,))")))
        passes(
            "def f(x): return x",
            ["assert f({(1, 2): {3}, 'a': b'b', None: 2j}) == {(1, 2): {3}, 'a': b'b', None: 2j}"],
        )
        passes("def f(n): return 10 ** n", ["assert f(6000) == 10 ** 6000"])

    def test_test_functions_check_functions_and_unittest(self) -> None:
        tests = (
            "import unittest\nfrom solution import f\ndef test_a():\n    assert f(2) == 4\n"
            "def check(candidate):\n    assert candidate(1) == 2\n"
            "class T(unittest.TestCase):\n    def test_b(self):\n        self.assertEqual(f(3), {})\n"
        )
        assert graded("def f(x): return 2 * x", tests.format(6)).explanation == "3 of 3 tests passed."
        fails("def f(x): return 2 * x", tests.format(7), "2 of 3 tests passed; test 3: AssertionError: 6 != 7")
        fails("def f(x): return 2", tests.format(6), "expected 4, got 2")

    def test_an_error_of_the_reply_can_be_asked_for(self) -> None:
        tests = ["try:\n    f()\n    assert False, 'no error'\nexcept Mine as e:\n    assert str(e) == 'x'"]
        passes("class Mine(ValueError): pass\ndef f(): raise Mine('x')", tests)
        fails("class Mine(ValueError): pass\ndef f(): return 1", tests, "no error")

    def test_a_failed_step_fails_what_comes_after(self) -> None:
        fails("def f(): 1 / 0", ["x = f()", "assert 1 == 1"], "a step before it failed: it raised ZeroDivisionError")

    def test_a_missing_function(self) -> None:
        fails("def g(): return 1", ["assert f() == 1"], "NameError: name 'f' is not defined")

    def test_programs_are_run_as_main_and_their_output_compared(self) -> None:
        twice = "def main():\n    print(int(input()) * 2)\nif __name__ == '__main__':\n    main()"
        passes(twice, [{"stdin": "21\n", "stdout": "42"}], "")
        passes("import sys\nsys.stdout.buffer.write(b'7\\n')", [{"stdin": "", "stdout": "7"}], "")
        passes("print('a ')\nprint('b')", [{"stdout": "a\nb\n\n"}], "")
        fails(twice, [{"stdin": "2\n", "stdout": "5"}], "expected the output '5', got '4'", "")
        fails("print(5)\n1 / 0", [{"stdout": "5"}], "status 1 (ZeroDivisionError: division by zero)", "")

    def test_in_a_worker_thread(self) -> None:
        got: list[Grade] = []
        thread = threading.Thread(target=lambda: got.append(graded("def add(a, b):\n    return a + b", ADD, "add")))
        thread.start()
        thread.join()
        assert got[0].correct


@pytest.mark.usefixtures("box")
class TestLimits:
    def test_an_endless_loop(self) -> None:
        tests = ["assert f(1) == 1", "assert f(2) == 2", "assert f(3) == 3"]
        source = "def f(x):\n    while x > 1: pass\n    return x"
        fails(
            source, tests, "1 of 3 tests passed; test 2: no result within 0.7 s; test 3: it was not run", seconds=0.7
        )
        fails("while True: pass\ndef f(): pass", ["assert f()"], "did not load (no result within 0.5 s)", seconds=0.5)

    def test_memory_processes_output_and_network(self) -> None:
        fails("def f(): return len(bytearray(10**10))", ["assert f() == 1"], "MemoryError")
        fails("def f(): return 'x' * 10**7", ["assert f() == 1"], "too large to hand over")
        fails("def f():\n    while True: print('x' * 9999)", ["assert f() == 1"], "printed too much")
        fails("import os\ndef f():\n    while True:\n        os.fork()", ["assert f() == 1"], "0 of 1", seconds=1)
        source = "import socket\ndef f(): return socket.create_connection(('1.1.1.1', 80), 1)"
        fails(source, ["assert f() == 1"], "Network is unreachable")

    def test_a_child_that_holds_the_pipe(self) -> None:
        source = (
            "import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        )
        began = time.monotonic()
        fails(source + "time.sleep(60)", [{"stdin": "", "stdout": ""}], "no result within 1 s", "", seconds=1)
        assert time.monotonic() - began < 6

    def test_a_result_that_never_ends(self) -> None:
        source = "def f():\n    while True: yield 1"
        fails(source, ["assert list(f()) == [1]"], "no result within 0.7 s", seconds=0.7)


EQUAL_TO_ALL = """
class All:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __sub__(self, other): return 0.0
    __rsub__ = __add__ = __radd__ = __sub__
    def __abs__(self): return 0.0
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __hash__(self): return hash(5)
    def __bool__(self): return True
def f(): return All()
"""

FORGED = {
    "an early exit": """
def f(): return 0
import sys
sys.exit(0)
""",
    "an early hard exit": """
import os
def f(): return 0
os._exit(0)
""",
    "an exit in the call": """
import os
def f(): os._exit(0)
""",
    "an exit exception in the call": """
import sys
def f(): sys.exit(0)
""",
    "a crash": """
import ctypes
def f(): ctypes.string_at(0)
""",
    "printed success": """
import json
def f():
    for l in ({'plan': 1}, {'load': ''}, {'passed': True, 'why': ''}, {'end': True}):
        print(json.dumps(l), flush=True)
    print('1 passed, 0 failed')
    return -1
""",
    "success written on every descriptor": """
import os
def f():
    for fd in range(64):
        try:
            os.write(fd, b'{"passed": true, "why": ""}\\n{"end": true}\\n')
        except OSError: pass
    return -1
""",
    "a changed driver": """
import sys
def f():
    for n, v in vars(sys.modules['__main__']).items():
        if n in ('check_pair', 'check_true', 'same'):
            sys.modules['__main__'].__dict__[n] = lambda *a: True
    return -1
""",
    "a search of all objects for the tests": """
import gc, sys
def f():
    frame = sys._getframe()
    while frame:
        for v in frame.f_locals.values():
            if isinstance(v, str) and '=' + '= 5' in v: return 5
        frame = frame.f_back
    held = [o for o in gc.get_objects() if isinstance(o, (list, dict)) and 'assert f' + '() ==' in repr(o)[:9999]]
    return 5 if held else -1
""",
    "replaced builtins": """
import builtins, operator
builtins.AssertionError = type('X', (BaseException,), {})
builtins.bool = lambda x: True
operator.eq = lambda a, b: True
def f(): return -1
""",
    "a patched unittest": """
import unittest
unittest.TestCase.assertEqual = lambda *a: None
def f(): return -1
""",
    "an int that is equal to all": """
class I(int):
    def __eq__(self, o): return True
    __hash__ = int.__hash__
def f(): return I(-1)
""",
    "a thread that answers for it": """
import threading, os, sys, time
def w():
    while True:
        os.write(int(sys.argv[1]), b'{"end": true}\\n')
threading.Thread(target=w, daemon=True).start()
def f(): return -1
""",
    "a fork that goes on": """
import os
os.fork()
def f(): return -1
""",
    "a raised assertion": """
def f(): raise AssertionError('ok')
""",
    "a skip": """
import unittest
def f(): raise unittest.SkipTest('x')
""",
    "a test that is over": """
def f(): raise StopIteration
""",
}


@pytest.mark.usefixtures("box")
class TestForgery:
    @pytest.mark.parametrize("kind", FORGED)
    def test_no_reply_gives_itself_a_pass(self, kind: str) -> None:
        tests = (
            "import unittest\nassert f() == 5\n"
            "class T(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(f(), 5)"
        )
        grade = graded(FORGED[kind], tests, seconds=3)
        assert not grade.correct, kind
        assert grade.explanation.startswith(("0 of 2 tests passed", "No test ran")), grade.explanation

    @pytest.mark.parametrize(
        "test",
        [
            "assert f() == 5",
            "assert 5 == f()",
            "assert f() in [5]",
            "assert f() in {5: 1}",
            "assert [f(), 1] == [5, 1]",
            "assert f() is True",
            "assert abs(f() - 5) < 1e-6",
            "assert abs(5 - f()) < 1e-6",
            "assert 4 < f() < 6",
            "assert not f() != 5",
            "import math\nassert math.isclose(f(), 5)",
            "import unittest\nclass T(unittest.TestCase):\n    def test_it(self): self.assertAlmostEqual(f(), 5)",
        ],
    )
    def test_an_object_equal_to_everything_equals_nothing(self, test: str) -> None:
        grade = graded(EQUAL_TO_ALL, test)
        assert not grade.correct
        assert grade.explanation.startswith("0 of 1 test passed"), grade.explanation
        passes("def f(): return 5", test.replace("assert f() is True", "assert f() == 5"))

    def test_tests_that_swallow_every_error_do_not_hide_an_exit(self) -> None:
        tests = ["try:\n    f()\nexcept BaseException:\n    pass\nassert True", "assert 1 == 1"]
        fails(
            "import os\ndef f(): os._exit(0)",
            tests,
            "0 of 2 tests passed; test 1: a step before it failed: the program",
        )

    def test_a_loop_over_nothing_proves_nothing(self) -> None:
        fails("def f(): return []", ["for value in f():\n    assert value == 1"], "no assertion was reached")

    def test_a_library_that_the_tests_use_is_the_real_one(self) -> None:
        source = "class math:\n    isclose = staticmethod(lambda *a: True)\ndef f(): return -1"
        fails(source, ["assert math.isclose(f(), 5)"], "0 of 1 test passed")
        fails(
            "def sorted(x): return [1]\ndef f(): return [2]", ["assert sorted(f()) == [1]"], "expected [1], got [2]"
        )

    def test_the_reply_reaches_nothing_but_what_a_test_hands_it(self) -> None:
        source = (
            "def f(g):\n    try:\n        return g.__globals__['__check_pair__'] is None\n"
            "    except TypeError:\n        return 'refused'"
        )
        passes(source, ["assert f(lambda: 1) == 'refused'"])
        source = "def f(node, name):\n    node.value += 1\n    return getattr(node, name)"
        node = "class Node:\n    value = 1\n    _hidden = 2\nn = Node()"
        passes(source, [node, "assert f(n, 'value') == 2", "assert n.value == 2"])
        fails(source, [node, "assert f(n, '_hidden') == 2"], "a way that the grader does not offer")
