"""The grader for code: the reply's code is run against the task's tests, in boxes without network and files.

`params` of a task:

- `tests`: a list, or a string of Python source. In a list each item is one of
  - a string of Python with assertions, `"assert add(2, 3) == 5"`; items share their variables;
  - a call, `{"args": [2, 3], "expected": 5}`, also with `kwargs`; needs `entry`;
  - a run of the whole program, `{"stdin": "21\\n", "stdout": "42"}`, compared line by line without trailing blanks.
  Source may hold assertions, functions `test...()`, `check(candidate)` and classes of `unittest`, and may import from
  the standard library and from `solution`, which stands for the reply. A name that tests neither define nor import
  is the reply's own.
- `entry`: the function or class that is asked for. It may be a method of a class such as `Solution`.
- `seconds`: the time for all tests (for each run of a program), 10 unless said.

Invariants: a reply passes only when its code loaded to its end and each test reported that it ran and passed; an exit
status says nothing. Tests and expected values are never where the reply's code is: it computes values in one box, and
the tests run in another (`code_guest`), or here for the output of a program. Code never runs outside a box: without
one, grading raises an InputError that says what to install.

Not covered: other languages than Python; packages beyond the standard library; a reply that guesses an answer that
can be guessed (a test that only asks yes or no, or that only compares the reply's objects with each other); what a
test itself hands to the reply, as an argument or as `expected in result`, is known to it.
"""

from __future__ import annotations

import ast
import json
import re
import socket
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity_core.errors import InputError
from trinity_core.tasks import sandbox
from trinity_core.tasks.task import Task

if TYPE_CHECKING:
    from trinity_core.tasks.graders import Grade

SECONDS = 10.0
"""Time for the tests of a task that names none (our choice)."""
MOST_SECONDS = 300.0
LONGEST_CODE = 200_000
"""Characters of code; more is no answer."""
SOLUTION = "solution"
"""The module that tests may import the reply's names from."""

_BAD_SOURCE = (SyntaxError, ValueError, RecursionError, MemoryError)


# --- The code in a reply --------------------------------------------------------------------------------------

_OPEN = re.compile(r"(?P<indent>[ \t>]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)")
_PROGRAM_START = re.compile(r"(?:async +def|def|class|import|from|@\w)", re.ASCII)


def fenced_blocks(text: str) -> tuple[tuple[str, str], ...]:
    """The fenced blocks, each as (info string in lower case, content). One that is never closed goes to the end.

    A fence stands at the start of a line and is closed by one of the same sign that is at least as long.
    """
    blocks = []
    opened: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.splitlines():
        match = _OPEN.fullmatch(line)
        if opened is None:
            if match:
                opened, lines = match, []
        elif match and not match["info"].strip() and match["fence"].startswith(opened["fence"]):
            blocks.append((opened["info"].strip().lower(), textwrap.dedent("\n".join(lines)) + "\n"))
            opened = None
        else:
            lines.append(line)
    if opened is not None:
        blocks.append((opened["info"].strip().lower(), textwrap.dedent("\n".join(lines)) + "\n"))
    return tuple(blocks)


def extract_code(text: str, entry: str = "", wanted: Sequence[str] = ()) -> str | None:
    """The Python code of a reply, None when there is none.

    The last fenced block that defines `entry`, or else one of the `wanted` names; earlier blocks that define what it
    lacks come before it. Without such a name, the last block that is Python. Without blocks, the reply itself when
    it is code, or its part from the first definition or import on.
    """
    blocks = [
        code for info, code in fenced_blocks(text) if not info or info.split()[0].startswith(("py", "{", "code"))
    ]
    if not blocks:
        blocks = [code for code in (_bare(text),) if code]
    names = [{entry}, set(wanted)] if entry else [set(wanted)]
    for searched in names:
        for index in range(len(blocks) - 1, -1, -1):
            if searched & _defined(blocks[index]):
                return _with_helpers(blocks, index)
    parsed = [code for code in blocks if _tree(code) is not None]
    chosen = [code for code in (parsed or blocks) if code.strip()]
    return chosen[-1] if chosen else None


def _tree(code: str) -> ast.Module | None:
    try:
        return ast.parse(code) if len(code) <= LONGEST_CODE else None
    except _BAD_SOURCE:
        return None


def _bare(text: str) -> str | None:
    text = textwrap.dedent(text).strip("\n") + "\n"
    tree = _tree(text)
    if tree is not None:
        # A word or a number is Python too, and no program.
        return text if any(not isinstance(node, ast.Expr) or _calls(node) for node in tree.body) else None
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if _PROGRAM_START.match(line)), None)
    if start is None:
        return None
    for end in range(len(lines), max(start, len(lines) - 200), -1):
        code = "\n".join(lines[start:end]) + "\n"
        if _tree(code) is not None:
            return code
    return None


def _calls(node: ast.Expr) -> bool:
    return isinstance(node.value, ast.Call | ast.Await)


def _bound(nodes: Sequence[ast.stmt]) -> Iterator[str]:
    """Names that statements bind at the top of a module."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
        else:
            for part in ast.walk(node):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    yield part.id
                elif isinstance(part, ast.FunctionDef | ast.ClassDef):
                    yield part.name


def _defined(code: str) -> set[str]:
    """Names that code defines, methods of its classes included. Broken code defines what it looks like defining."""
    tree = _tree(code)
    if tree is None:
        return set(re.findall(r"^\s*(?:async +)?(?:def|class) +(\w+)", code[:LONGEST_CODE], re.MULTILINE))
    methods = (part for node in tree.body if isinstance(node, ast.ClassDef) for part in node.body)
    return {*_bound(tree.body), *(part.name for part in methods if isinstance(part, ast.FunctionDef))}


def _used(tree: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(tree) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}


def _with_helpers(blocks: Sequence[str], index: int) -> str:
    code = blocks[index]
    for earlier in reversed(blocks[:index]):
        tree, before = _tree(code), _tree(earlier)
        if tree is None or before is None:
            continue
        if (_used(tree) - set(_bound(tree.body))) & set(_bound(before.body)):
            code = earlier + "\n" + code
    return code


# --- The tests of a task --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Suite:
    """A task's tests, read. `tests` are source or calls; `runs` are pairs of input and output."""

    entry: str
    seconds: float
    tests: tuple[str | Mapping[str, Any], ...]
    runs: tuple[tuple[str, str], ...]
    names: tuple[str, ...]


def _suite(task: Task) -> _Suite:
    """Raises InputError for tests that cannot be used."""
    params = task.params
    entry = params.get("entry") or ""
    if not isinstance(entry, str) or (entry and not entry.isidentifier()):
        raise _bad(task, f"the entry {entry!r} is no name of a function")
    seconds = params.get("seconds", SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MOST_SECONDS:
        raise _bad(task, f"seconds is {seconds!r}, and not a number above 0 and up to {MOST_SECONDS:g}")
    given = params.get("tests")
    items: Sequence[Any] = [given] if isinstance(given, str) else given if isinstance(given, list | tuple) else []
    if not items or given == "":
        raise _bad(task, "it has no tests, so nothing would be checked")
    tests: list[str | Mapping[str, Any]] = []
    runs: list[tuple[str, str]] = []
    names = {entry} if entry else set()
    counted = 0
    for number, item in enumerate(items, 1):
        if isinstance(item, str):
            found, used = _source(task, item, number, entry)
            counted += found
            names |= used
            tests.append(item)
        elif isinstance(item, Mapping) and "expected" in item:
            tests.append(_call(task, item, number, entry))
            counted += 1
        elif isinstance(item, Mapping) and isinstance(item.get("stdout"), str):
            if set(item) - {"stdin", "stdout"} or not isinstance(item.get("stdin", ""), str):
                raise _bad(task, f"test {number} may hold stdin and stdout, both text, and nothing else")
            runs.append((item.get("stdin", ""), item["stdout"]))
        else:
            raise _bad(task, f"test {number} is neither source, nor a call with expected, nor a run with stdout")
    if tests and not counted:
        raise _bad(task, "its tests assert nothing")
    return _Suite(entry, float(seconds), tuple(tests), tuple(runs), tuple(sorted(names)))


def _bad(task: Task, why: str) -> InputError:
    return InputError(f"The code of task {task.id} cannot be graded: {why}. Correct params of the task.")


def _call(task: Task, item: Mapping[str, Any], number: int, entry: str) -> Mapping[str, Any]:
    if not entry:
        raise _bad(task, f"test {number} is a call, and entry does not say of what")
    if set(item) - {"args", "kwargs", "expected"}:
        raise _bad(task, f"test {number} may hold args, kwargs and expected, and nothing else")
    if not isinstance(item.get("args", []), list | tuple) or not isinstance(item.get("kwargs", {}), Mapping):
        raise _bad(task, f"args of test {number} must be a list and kwargs an object")
    return item


def _source(task: Task, source: str, number: int, entry: str) -> tuple[int, set[str]]:
    """How many tests a source holds, and the names it uses."""
    try:
        tree = ast.parse(source)
    except _BAD_SOURCE as error:
        raise _bad(task, f"test {number} is not valid Python ({error})") from None
    counted = 0
    names = _used(tree)
    for part in ast.walk(tree):
        modules: list[str] = []
        if isinstance(part, ast.Import):
            modules = [alias.name for alias in part.names]
        elif isinstance(part, ast.ImportFrom):
            modules = ["." * part.level + (part.module or "")]
            names |= {alias.name for alias in part.names} if part.module == SOLUTION else set()
        elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == SOLUTION:
            names.add(part.attr)
        for module in modules:
            if module.split(".")[0] not in {*sys.stdlib_module_names, SOLUTION}:
                raise _bad(task, f"test {number} imports {module}, which is not in the standard library")
    for node in tree.body:
        if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test"):
            raise _bad(task, f"test {number} holds the function {node.name}, which is async")
        if isinstance(node, ast.FunctionDef):
            needed = len(node.args.posonlyargs) + len(node.args.args) - len(node.args.defaults)
            if node.name.startswith("test") and needed:
                raise _bad(task, f"test {number} holds the function {node.name}, which needs arguments")
            if node.name == "check" and needed == 1 and not entry:
                raise _bad(task, f"test {number} checks a function, and entry does not say which")
            counted += node.name.startswith("test") or (node.name == "check" and needed == 1)
        elif isinstance(node, ast.ClassDef):
            counted += sum(isinstance(m, ast.FunctionDef) and m.name.startswith("test") for m in node.body)
        else:
            counted += any(isinstance(part, ast.Assert) for part in ast.walk(node))
    return counted, names


# --- Grading --------------------------------------------------------------------------------------------------


def trouble(task: Task) -> str | None:
    """Why this task's code cannot be graded here: its tests, or no box to run code in. None when it can."""
    try:
        _suite(task)
    except InputError as error:
        return str(error)
    return sandbox.available()


def check(task: Task, text: str) -> Grade:
    """Run the code of a reply against the task's tests. `extracted` is the code.

    Raises InputError when the tests cannot be used, or no box can be made here.
    """
    from trinity_core.tasks.graders import Grade  # it registers this grader

    suite = _suite(task)
    if missing := sandbox.available():
        raise InputError(missing)
    code = extract_code(text, suite.entry, suite.names)
    if code is None:
        return Grade(False, None, "The reply holds no Python code.")
    try:
        if len(code) > LONGEST_CODE:
            raise ValueError(f"it has more than {LONGEST_CODE} characters")
        ast.parse(code)
    except _BAD_SOURCE as error:
        return Grade(False, code, f"The code of the reply is not valid Python: {error}.")
    results: list[str] = []  # one for each test, empty when it passed
    if suite.tests:
        answer = _run_tests(suite, code)
        if isinstance(answer, str):
            return Grade(False, code, answer)
        results += answer
    results += (_run_program(suite, code, given, wanted) for given, wanted in suite.runs)
    return Grade(not any(results) and bool(results), code, _told(results))


def _told(results: Sequence[str]) -> str:
    passed = sum(not why for why in results)
    noun = "test" if len(results) == 1 else "tests"
    failed = [f"test {number}: {why}" for number, why in enumerate(results, 1) if why]
    more = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
    if not failed:
        return f"{passed} of {passed} {noun} passed."
    return f"{passed} of {len(results)} {noun} passed; {'; '.join(failed[:3])}{more}."


@cache
def _guest() -> str:
    return Path(__file__).with_name("code_guest.py").read_text("utf-8")


def _run_tests(suite: _Suite, code: str) -> list[str] | str:
    """Why each test failed, in their order; or, in one sentence, why none could run."""
    ends = [end.detach() for end in socket.socketpair()]
    for_judge = {"tests": suite.tests, "entry": suite.entry, "names": suite.names}
    for_worker = {"code": code, "entry": suite.entry}
    programs = [
        sandbox.Program(_guest(), json.dumps(given).encode(), (end,))
        for given, end in zip((for_judge, for_worker), ends, strict=True)
    ]
    judge, worker = sandbox.run_together(programs, sandbox.Limits(seconds=suite.seconds))
    report = [json.loads(line) for line in judge.stdout.decode().splitlines(keepends=True) if line.endswith("\n")]
    planned = next((line["plan"] for line in report if "plan" in line), None)
    loaded = next((line["load"] for line in report if "load" in line), None)
    stopped = _stopped(worker, suite) or _stopped(judge, suite)
    if planned is None and not stopped:
        said = judge.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise InputError(f"The tests could not be started: {said[0] if said else 'no words were left'}")
    if loaded or planned is None or (loaded is None and stopped):
        return f"No test ran: the code of the reply did not load ({stopped or loaded})."
    results = [
        str(line["why"]) or ("" if line["passed"] is True else "it failed") for line in report if "passed" in line
    ]
    missing = planned - len(results)
    if missing or not any("end" in line for line in report):
        results += [stopped or "it ended without a result"] + ["it was not run"] * (missing - 1)
    elif stopped in (_OUTPUT, _MEMORY):
        results[-1] = results[-1] or stopped
    if worker.status not in (None, 0) and "ended before" in " ".join(results):
        said = worker.stderr.decode(errors="replace").strip().splitlines()[-1:]
        results[-1] += f" (exit status {worker.status}{': ' + said[0][:200] if said else ''})"
    return results


_OUTPUT = "the program printed too much"
_MEMORY = "the program used too much memory"


def _stopped(outcome: sandbox.Outcome, suite: _Suite) -> str:
    words = {"time": f"no result within {suite.seconds:g} s", "output": _OUTPUT, "memory": _MEMORY}
    return words.get(outcome.stopped, "")


def _run_program(suite: _Suite, code: str, given: str, wanted: str) -> str:
    """Why a run of the program is wrong; empty when it is right."""
    program = sandbox.Program(code, given.encode("utf-8", "surrogatepass"))
    outcome = sandbox.run(program, sandbox.Limits(seconds=suite.seconds))
    if stopped := _stopped(outcome, suite):
        return stopped
    got = outcome.stdout.decode("utf-8", "replace")
    if outcome.status != 0:
        said = outcome.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return f"the program ended with status {outcome.status}" + (f" ({said[0][:300]})" if said else "")
    if _lines(got) == _lines(wanted):
        return ""
    return f"expected the output {_short(wanted)}, got {_short(got)}"


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _short(text: str) -> str:
    shown = repr(text.rstrip())
    return shown if len(shown) <= 200 else shown[:197] + "..."
