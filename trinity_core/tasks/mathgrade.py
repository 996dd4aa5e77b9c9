r"""The math grader: whether a reply gives the same mathematical value as the reference.

Formulas are read in LaTeX and in code syntax (`\frac{\pi}{6}`, `pi/6`) on either side. Rules, the same whichever side
is the reference:

- A value is exact: 0.333 is not 1/3. `params["tolerance"]` (relative) allows rounded numbers.
- Ordered pairs keep their order; sets and lists of solutions do not. `\pm 7` is two values.
- An interval equals the inequality that says the same. `(a, b)` is a pair or an open interval, as
  the other side asks.
- Equations are equal up to a factor; `x = 5` equals 5, but not `y = 5`.
- A unit may be missing on one side; two units must agree. 50% is 50 or 1/2. A degree sign may be missing.
- A number with its base as an index equals the same digits without it, not the value they stand for.
- Times, ratios and words compare as text, in which upper and lower case are the same. NaN equals nothing.

Plain cases are settled here; for the rest, structure is compared here and each formula by math-verify, in a process
of its own (`mathchild`) with a limit on processor time and memory: what cannot be shown equal within it is
wrong, with that said. No text is ever evaluated as code. Not covered: equality that needs assumptions on variables,
differential expressions, conversion between units.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from trinity_core.answers import (
    AnswerKind,
    clean_value,
    committed_answer,
    extract_answer,
    number_and_unit,
    partial_result,
    same_value,
)
from trinity_core.errors import InputError
from trinity_core.tasks import mathchild
from trinity_core.tasks.graders import Grade
from trinity_core.tasks.task import Task

MOST_CHARS = 1_000
"""Characters of a value; longer ones are no short answers."""
Tree = list[Any]
"""A value's structure as JSON: a kind and its parts. See `structure`."""


def check(task: Task, text: str) -> Grade:
    """Grade `text`. Raises InputError for an odd tolerance, TrinityError when the machine cannot compare."""
    tolerance = _tolerance(task)
    said = stated(text)
    if said is None:
        return Grade(False, None, f"The reply gives no value; {task.reference} was asked for.")
    wanted = _reference(task)
    verdict, how = compare(said, wanted, tolerance)
    verb = "equals" if verdict else "does not equal"
    return Grade(verdict, said, f"The value {said} {verb} {wanted}{how}.")


def trouble(task: Task) -> str | None:
    """Why the task's reference or tolerance cannot be used; None when they can."""
    try:
        _tolerance(task)
    except InputError as error:
        return str(error)
    wanted = _reference(task)
    if len(wanted) > MOST_CHARS:
        return f"Task {task.id} has a reference of more than {MOST_CHARS} characters. Write the final value only."
    if not re.search(r"\w|∞|∅|\\[A-Za-z]", wanted):
        return f"Task {task.id} has the reference {task.reference!r}, which holds no value. Write one."
    return None


def stated(text: str) -> str | None:
    """The value that a reply gives: what it commits to, or the reply itself when it is nothing but a formula, or its
    last formula between dollar signs or brackets, or its last number."""
    committed = committed_answer(text)
    if committed is None and partial_result(text) is not None:
        return None
    whole = clean_value(_display(text) if committed is None else committed)
    if len(whole) <= MOST_CHARS and whole and "\n" not in whole and not _prose(whole):
        return whole
    if shown := _last_formula(text if committed is None else committed):
        return shown
    if committed is not None and (core := _core(whole)):
        return core
    return extract_answer(text, AnswerKind.MATH)


def compare(said: str, wanted: str, tolerance: Fraction = Fraction(0)) -> tuple[bool, str]:
    """Whether two values are the same, and what has to be said about how that was found (may be empty).

    Raises TrinityError when no process can be started or the machine is too busy.
    """
    if not said.strip() or not wanted.strip() or max(len(said), len(wanted)) > MOST_CHARS:
        return False, ""
    if _NOT_A_NUMBER.fullmatch(said.strip()) or _NOT_A_NUMBER.fullmatch(wanted.strip()):
        return False, ""
    lists = all(re.fullmatch(r"[\s\d.,()\[\]-]*,[\s\d.,()\[\]-]*", value) for value in (said, wanted))
    if not lists and same_value(said, wanted):  # as text "1,234" would be "1, 234"
        return True, ""
    if _TIME.search(said) or _TIME.search(wanted):
        return False, ""
    (first, unit), (second, other) = (_without_unit(_unlabelled(value)) for value in (said, wanted))
    if unit and other and unit != other:
        return False, f": {unit} is not {other}"
    percent = "%" in (unit, other) and unit != other
    numbers = _number(first), _number(second)
    if numbers[0] is not None and numbers[1] is not None:
        return _close(numbers[0], numbers[1], tolerance, percent), ""
    if _words(first) or _words(second):
        return same_value(first, second), ""
    try:
        left, right = latex(first), latex(second)
        if _squeezed(left) == _squeezed(right):
            return True, ""
        trees = structure(left), structure(right)
    except (ValueError, RecursionError):
        return False, ": one of them is no formula"
    outcome = mathchild.ask(trees[0], trees[1], str(tolerance))
    notes = {
        "unreadable": ": one of them is no formula that can be read",
        "limit": ", as far as could be shown within the limits on time and memory",
    }
    return outcome == "same", notes.get(outcome, "")


def _unlabelled(value: str) -> str:
    """The value in "Area = 12", and the set of all real numbers as a formula."""
    label, equals, rest = value.partition("=")
    if equals and "=" not in rest and rest.strip() and _words(label) and not re.search(r"[\d<>]", label):
        return rest.strip()
    return (
        r"\mathbb{R}" if re.fullmatch(r"(?:all )?real numbers|all reals|ℝ", value.strip(), re.IGNORECASE) else value
    )


def _tolerance(task: Task) -> Fraction:
    given = task.params.get("tolerance", 0)
    try:
        value = None if isinstance(given, bool) else Fraction(str(given))
    except (ValueError, ZeroDivisionError):
        value = None
    if value is None or not 0 <= value < 1:
        raise InputError(f"Task {task.id}: the tolerance {given!r} must be a number from 0 to below 1, such as 0.01.")
    return value


def _reference(task: Task) -> str:
    return clean_value(committed_answer(task.reference) or task.reference)


def _close(a: Fraction, b: Fraction, tolerance: Fraction, percent: bool) -> bool:
    readings = [(a, b), (a / 100, b), (a, b / 100)] if percent else [(a, b)]
    return any(abs(x - y) <= tolerance * abs(y) for x, y in readings)


# --- What a reply states ------------------------------------------------------------------------------------------


def _each(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_FUNCTIONS = _each(
    "arcsinh arccosh arctanh arcsin arccos arctan arccot sinh cosh tanh asin acos atan sin cos tan "
    "cot sec csc ln log lg exp sqrt cbrt abs min max gcd lcm det floor ceil binom frac"
)
_MATH_WORDS = frozenset(
    (
        *_FUNCTIONS,
        *_each("pi inf infinity oo and or in cup union no solution solutions none"),
    )
)
_COMMANDS = re.compile(r"\\[A-Za-z]+")
_MATH_SPAN = re.compile(r"\$\$(?P<a>[^$]+)\$\$|\\\[(?P<b>.+?)\\\]|\\\((?P<c>.+?)\\\)|\$(?P<d>[^$\n]+)\$", re.DOTALL)
_TIME = re.compile(r"^\D{0,6}\d+\s*:\s*\d+")
_NOT_A_NUMBER = re.compile(r"(?:\\(?:text|mathrm)\{)?nan\}?", re.IGNORECASE)
_BASE = re.compile(r"(?P<digits>[0-9A-Fa-f]+)\s*_\s*\{?\s*(?P<base>\d+)\s*\}?")
_LEAD = re.compile(r"^(?:either|both|approximately|about|equal to|exactly)\s+", re.IGNORECASE)


def _display(text: str) -> str:
    """The one formula that `text` consists of, on one line; `text` itself when it is something else."""
    found = _MATH_SPAN.fullmatch(text.strip().rstrip("."))
    inner = next((g for g in found.groups() if g), "") if found else text
    return " ".join(inner.split()) if found else text.strip()


def _last_formula(text: str) -> str | None:
    """The last formula set apart in `text`; several that only a comma or "and" separates belong together."""
    spans = list(_MATH_SPAN.finditer(text))
    if not spans or re.search(r"\d", text[spans[-1].end() :]):
        return None
    first = len(spans) - 1
    while first and re.fullmatch(r"\s*(?:,|,?\s*(?:and|or))\s*", text[spans[first - 1].end() : spans[first].start()]):
        first -= 1
    parts = [" ".join(next(g for g in span.groups() if g).split()).rstrip(".,;") for span in spans[first:]]
    return clean_value(", ".join(parts)) or None


def _core(value: str) -> str | None:
    """The formula in "the point (2, 1)" and the like: `value` without the words around it, if that is no prose."""
    inner = re.sub(r"^(?:[^\W\d_]{2,}[\s,:]+)+", "", value)
    inner = re.sub(r"(?:[\s,]+[^\W\d_]{2,})+$", "", inner) if _words(inner) else inner
    return (
        inner
        if inner and len(inner) <= MOST_CHARS and re.search(r"\d|\\|[=<>]", inner) and not _prose(inner)
        else None
    )


def _prose(value: str) -> bool:
    return _words(_without_unit(value)[0]) and number_and_unit(value) is None and bool(re.search(r"\d|\\|\s", value))


def _words(value: str) -> bool:
    """Whether `value` holds words that are no mathematics."""
    value = re.sub(r"\\begin\{\w+\*?\}|\\end\{\w+\*?\}", " ", value)
    value = re.sub(r"\\(?:text\w*|mbox|mathrm)\s*\{([^{}]*)\}", r" \1 ", value)
    plain = _COMMANDS.sub(" ", _LEAD.sub("", value))
    found = [word.lower() for word in re.findall(r"[^\W\d_]{2,}", plain)]
    return any(word not in _MATH_WORDS and (len(word) > 3 or word in _SHORT_WORDS) for word in found)


_SHORT_WORDS = frozenset(_each("is it the so we are was has not but for yes if as at to of be an on"))

# --- Units --------------------------------------------------------------------------------------------------------

_ALIASES = {
    alias: names.split()[0]
    for names in (
        "cm centimeter centimetre",
        "mm millimeter millimetre",
        "km kilometer kilometre",
        "m meter metre",
        "in inch inche",
        "ft foot feet",
        "mi mile",
        "kg kilogram",
        "g gram",
        "lb lbs pound",
        "s sec second",
        "min minute",
        "h hr hour",
        "l liter litre",
        "ml milliliter millilitre",
        "$ dollar usd",
        "€ euro eur",
        "¢ cent",
        "% percent",
        "° degree deg",
        "mph mile/hour",
    )
    for alias in names.split()
}
_GLUED = frozenset(["cm", "mm", "km", "kg", "ft", "lb", "lbs", "ml", "mph", "hr", "sec", "deg", "%"])
_TRAILING = re.compile(
    r"(?P<gap>\s*\\(?:text|mathrm|mbox|textrm)\s*\{[\s~]*(?P<boxed>[^{}]+?)[\s~]*\}(?:\s*\^\s*\{?(?P<power>[23])\}?)?"
    r"|\s*(?P<sign>\\?%|°|\^\s*\{?\s*\\circ\s*\}?|\\degree|º)(?:\s*[CF])?"
    r"|(?P<space>\s*)(?P<plain>[A-Za-z][A-Za-z. /-]*?)(?:\s*(?P<raised>\^\s*\{?[23]\}?|[²³]))?)\s*$"
)
_NO_UNITS = frozenset((*_MATH_WORDS, "e", "i"))


def _without_unit(value: str) -> tuple[str, str]:
    """A value and its unit in one spelling, "" for none. Only what follows a number or a formula is a unit."""
    value = _LEAD.sub("", clean_value(value))
    if based := _BASE.fullmatch(value):
        return based["digits"], f"base {based['base']}"
    money = re.match(r"(?P<minus>[-−]?\s*)(?:\\?\$|(?P<sign>[€£¥₹]))\s*(?=[\d.\\])", value)
    if money and "$" not in value[money.end() :]:
        return money["minus"].strip() + value[money.end() :], money["sign"] or "$"
    found = _TRAILING.search(value)
    if not found or not re.search(r"[\d)}\]π]$|\\pi$", value[: found.start()].rstrip()):
        return value, ""
    rest = value[: found.start()].rstrip()
    if found["sign"]:
        unit = "%" if "%" in found["sign"] else "°"
        if unit == "°" and re.search(r"sin|cos|tan|cot|sec|csc", rest):
            return value, ""
        return rest, unit
    name = " ".join((found["boxed"] or found["plain"]).lower().replace(".", "").split())
    if not name or set(name.split()) & _NO_UNITS or not re.fullmatch(r"[a-z][a-z /-]*", name):
        return value, ""
    power = re.sub(r"[^23²³]", "", found["power"] or found["raised"] or "").translate(str.maketrans("²³", "23"))
    for word, number in (("square ", "2"), ("sq ", "2"), ("cubic ", "3")):
        if name.startswith(word):
            name, power = name.removeprefix(word), number
    singular = name[:-1] if len(name) > 3 and name.endswith("s") and not name.endswith("ss") else name
    known = _ALIASES.get(singular) or _ALIASES.get(name)
    apart = bool(found["boxed"] or found["space"])
    if name in ("million", "billion", "thousand", "hundred"):
        return value, ""
    if not (name in _GLUED or (apart and (known or len(singular) >= 4))):
        return value, ""
    return rest, (known or singular) + power


_SCALES = {"hundred": 100, "thousand": 1_000, "million": 10**6, "billion": 10**9}


def _number(value: str) -> Fraction | None:
    read = number_and_unit(value)
    if read is None or (read[1] and read[1] not in _SCALES):
        return None
    return read[0] * _SCALES.get(read[1], 1)


# --- One syntax ---------------------------------------------------------------------------------------------------

_SIGNS = {
    "π": r"\pi ",
    "∞": r"\infty ",
    "×": r"\cdot ",
    "·": r"\cdot ",
    "⋅": r"\cdot ",
    "∗": r"\cdot ",
    "÷": "/",
    "−": "-",
    "–": "-",
    "≤": r"\le ",
    "≥": r"\ge ",
    "≠": r"\ne ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∈": r"\in ",
    "±": r"\pm ",
    "∅": r"\emptyset ",
    "°": r"^{\circ}",
    "θ": r"\theta ",
    "α": r"\alpha ",
    "β": r"\beta ",
    "²": "^{2}",
    "³": "^{3}",
    "½": r"\frac{1}{2}",
    "¼": r"\frac{1}{4}",
    "¾": r"\frac{3}{4}",
    "\u00a0": " ",
    "~": " ",
    "$": " ",
}
_SAME_COMMANDS = {
    **dict.fromkeys(("dfrac", "tfrac", "cfrac"), r"\frac"),
    **dict.fromkeys(("dbinom", "tbinom"), r"\binom"),
    **dict.fromkeys(("leq", "leqslant", "leqq"), r"\le "),
    **dict.fromkeys(("geq", "geqslant", "geqq"), r"\ge "),
    **dict.fromkeys(("times", "ast"), r"\cdot "),
    **dict.fromkeys(("neq",), r"\ne "),
    **dict.fromkeys(("lt",), "<"),
    **dict.fromkeys(("gt",), ">"),
    **dict.fromkeys(("div",), "/"),
    **dict.fromkeys(("lbrace",), r"\{"),
    **dict.fromkeys(("langle",), "("),
    **dict.fromkeys(("rangle",), ")"),
    **dict.fromkeys(("rbrace",), r"\}"),
    **dict.fromkeys(("lvert", "rvert", "vert"), "|"),
    **dict.fromkeys(("varnothing",), r"\emptyset "),
    **dict.fromkeys(("lor", "vee"), " or "),
    **dict.fromkeys(("land", "wedge"), " and "),
    **dict.fromkeys(("lbrack",), "["),
    **dict.fromkeys(("rbrack",), "]"),
    **dict.fromkeys(
        (
            *_each("left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr quad qquad displaystyle textstyle"),
            *["limits", "nolimits", "middle"],
        ),
        " ",
    ),
}
_WORD_COMMANDS = {
    **{name: rf"\{name} " for name in _each("sin cos tan cot sec csc sinh cosh tanh ln log lg min max gcd det pi")},
    **{name: rf"\{name} " for name in ("arcsin", "arccos", "arctan", "arccot")},
    "asin": r"\arcsin ",
    "acos": r"\arccos ",
    "atan": r"\arctan ",
    **dict.fromkeys(("inf", "infinity", "oo"), r"\infty "),
    "cup": r"\cup ",
    "union": r"\cup ",
    "in": r"\in ",
}


def latex(value: str) -> str:
    r"""`value` as LaTeX in one spelling: no sizing, full braces, functions as commands, `*` as `\cdot`."""
    s = _LEAD.sub("", value)
    for sign, command in _SIGNS.items():
        s = s.replace(sign, command)
    s = re.sub(r"√\s*(\d+(?:\.\d+)?|[A-Za-z])", r"\\sqrt{\1}", s).replace("√", r"\sqrt")
    s = re.sub(r"(?<=\d)\{,\}(?=\d{3})", "", s)
    s = re.sub(r"(?<![\d.,])(\d{1,3})((?:,\d{3})+)(?![\d,])", lambda m: m[1] + m[2].replace(",", ""), s)
    s = re.sub(r"(?<!\\)\\[,;!:> ]", " ", s)
    s = _COLUMN.sub(_in_a_row, s)
    s = re.sub(r"(\d*)\.(\d*)\\(?:overline|bar)\s*\{(\d+)\}", _repeating, s)
    s = re.sub(r"\\(?:mathrm|operatorname\*?|mathit|mathbf|mathsf|boldsymbol|text\w*|mbox)\s*\{([^{}]*)\}", _named, s)
    s = _COMMANDS.sub(lambda m: _SAME_COMMANDS.get(m[0][1:], m[0]), s)
    s = s.replace("<=", r"\le ").replace(">=", r"\ge ").replace("!=", r"\ne ").replace("==", "=")
    s = s.replace("**", "^").replace("*", r"\cdot ")
    s = re.sub(r"(?<=[)\]])\s*U\s*(?=[(\[])", r"\\cup ", s)
    s = re.sub(r"(?<![\d.^_/A-Za-z])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\d.])", r"(\1+\\frac{\2}{\3})", s)
    s = re.sub(r"(?<![\\A-Za-z])[A-Za-z]{2,}", lambda m: _word(m[0]), s)
    if re.search(r"\\(?:sin|cos|tan|cot|sec|csc)\b", s):
        s = re.sub(r"(\d+(?:\.\d+)?)\s*\^\s*\{?\s*\\circ\s*\}?", r"(\\frac{\1\\pi}{180})", s)
    s = re.sub(r"\^\s*\{?\s*\\circ\s*\}?|\\degree(?![A-Za-z])", "", s).replace(r"\%", "%")
    return " ".join(_braced(s).split())


_COLUMN = re.compile(r"\\begin\s*\{(?P<kind>cases|[pb]?matrix)\}(?P<rows>[^&]*?)\\end\s*\{(?P=kind)\}")


def _in_a_row(match: re.Match[str]) -> str:
    """A column vector as a tuple, and a system of equations as a list."""
    rows = [row.strip().rstrip(",") for row in match["rows"].split(r"\\") if row.strip()]
    if len(rows) < 2:
        return match[0]
    return ", ".join(rows) if match["kind"] == "cases" else f"({', '.join(rows)})"


def _repeating(match: re.Match[str]) -> str:
    r"""0.1\overline{6} as the fraction it is."""
    whole, once, again = match[1], match[2], match[3]
    bottom = 10 ** len(once) * (10 ** len(again) - 1)
    top = int(whole + once + again) - int(whole + once or "0")
    return rf"\frac{{{top}}}{{{bottom}}}"


def _named(match: re.Match[str]) -> str:
    inner = match[1].strip()
    return f" {inner} " if len(inner) > 1 else inner


def _word(word: str) -> str:
    low = word.lower()
    if low in _WORD_COMMANDS:
        return _WORD_COMMANDS[low]
    return f" \\{low}" if low in ("sqrt", "cbrt", "abs", "exp") else word


def _braced(s: str) -> str:
    r"""`s` with braces around the arguments of \frac, \sqrt and ^, and with \abs, \cbrt and \exp written out."""
    out: list[str] = []
    at = 0
    while at < len(s):
        command = re.compile(r"\\(frac|binom|sqrt|cbrt|abs|exp)(?![A-Za-z])\s*|\^\s*").match(s, at)
        if command is None:
            end = _closing(s, at) if s[at] == "{" and _stands_alone(s[:at]) else None
            if end is not None and "," not in s[at:end]:
                out.append(f"({_braced(s[at + 1 : end])})")
                at = end + 1
            else:
                out.append(s[at])
                at += 1
            continue
        at = command.end()
        name = command[1] or "^"
        root = ""
        if name == "sqrt" and s[at : at + 1] == "[" and (shut := s.find("]", at)) > 0:
            root, at = s[at : shut + 1], shut + 1
        arguments = []
        for _ in range(2 if name in ("frac", "binom") else 1):
            argument, at = _argument(s, at, name)
            arguments.append(_braced(argument))
        if name == "exp":
            out.append(f"e^{{{arguments[0]}}}")
        elif name == "abs":
            out.append(rf"|{arguments[0]}|")
        elif name == "cbrt":
            out.append(rf"\sqrt[3]{{{arguments[0]}}}")
        else:
            out.append(("^" if name == "^" else f"\\{name}{root}") + "".join(f"{{{a}}}" for a in arguments))
    return "".join(out)


def _stands_alone(before: str) -> bool:
    """Whether a brace after `before` only groups, and belongs to no command."""
    return not re.search(r"(?:\\[A-Za-z]+|[_^}\]\\])\s*$", before)


def _argument(s: str, at: int, name: str) -> tuple[str, int]:
    """The argument that starts at `at`, without its braces, and where it ends."""
    while at < len(s) and s[at] == " ":
        at += 1
    if s[at : at + 1] in ("{", "("):
        end = _closing(s, at)
        if end is not None:
            return s[at + 1 : end], end + 1
    pattern = r"-?(?:\d+(?:\.\d+)?|\\[A-Za-z]+|[A-Za-z])" if name == "^" else r"\d|\\[A-Za-z]+|[A-Za-z]"
    found = re.compile(pattern).match(s, at)
    return (found[0], found.end()) if found else ("", at)


def _closing(s: str, at: int) -> int | None:
    """Where the bracket at `at` closes, counting brackets of its own kind."""
    left, right = s[at], {"{": "}", "(": ")", "[": "]"}[s[at]]
    depth = 0
    for index in range(at, len(s)):
        if index and s[index - 1] == "\\":
            continue
        depth += (s[index] == left) - (s[index] == right)
        if depth == 0:
            return index
    return None


def _squeezed(s: str) -> str:
    r"""For equality without any algebra: no blanks, \frac{a}{b} of single things as a/b."""
    s = re.sub(r"\\cdot(?=\s*[\\A-Za-z(])", "", s)
    s = re.sub(r"\\frac\{(\d+|\\pi|\w)\}\{(\d+|\w)\}", r"\1/\2", s)
    return s.replace(" ", "")


# --- Structure ----------------------------------------------------------------------------------------------------

_SEPARATOR = re.compile(r"[,;]|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])")
_CUP = re.compile(r"\\cup(?![A-Za-z])")
_RELATION = re.compile(r"\\(?:le|ge|ne)(?![A-Za-z])|<|>|=")
_BRACKETS = {"(": ")", "[": "]"}


def structure(s: str) -> Tree:
    """The structure of a formula. Kinds: leaf, tuple, list, set, interval, union, and, relation.

    ["leaf", latex]; ["tuple" | "list" | "set" | "union" | "and", [trees]];
    ["interval", left tree, right tree, left open, right open]; ["relation", [latex, ...], [operator, ...]].
    Raises ValueError for what has no value.
    """
    s = s.strip().rstrip(".,;").strip()
    if not s:
        raise ValueError("empty")
    if re.fullmatch(r"\\emptyset|\\\{\s*\\\}|no (?:real )?solutions?", s, re.IGNORECASE):
        return ["set", []]
    parts, glue = _split(s, _CUP)
    if len(parts) > 1:
        return ["union", [structure(part) for part in parts]]
    parts, glue = _split(s, _SEPARATOR)
    if len(parts) > 1:
        return _several([part for part in parts if part.strip()], glue)
    if (inner := _inside(s)) is not None:
        return _bracketed(s, inner)
    parts, _ = _split(s, re.compile(r"\\in(?![A-Za-z])"))
    if len(parts) == 2:
        return structure(parts[1])
    parts, operators = _split(s, _RELATION)
    if len(parts) > 1:
        if not all(part.strip() for part in parts):
            raise ValueError("half a relation")
        if operators[-1] == "=" and r"\pm" in parts[-1] and len(parts) == 2:
            return ["list", [["relation", [parts[0], one], ["="]] for one in _signs(parts[1])]]
        return ["relation", [part.strip() for part in parts], operators]
    if r"\pm" in s:
        return ["list", [["leaf", one] for one in _signs(s)]]
    return ["leaf", s]


def _signs(s: str) -> list[str]:
    plus = re.sub(r"\\pm(?![A-Za-z])", "+", re.sub(r"\\mp(?![A-Za-z])", "-", s))
    minus = re.sub(r"\\pm(?![A-Za-z])", "-", re.sub(r"\\mp(?![A-Za-z])", "+", s))
    return [plus.strip().removeprefix("+"), minus.strip()]


def _several(parts: Sequence[str], glue: Sequence[str]) -> Tree:
    trees = [structure(part) for part in parts]
    if all(tree[0] == "relation" and set(tree[2]) <= {"<", ">", r"\le", r"\ge", r"\ne"} for tree in trees):
        return ["union" if "or" in glue else "and", trees]
    if any(tree[0] in ("interval", "union") for tree in trees) and "or" in glue:
        return ["union", trees]
    first = trees[0]
    if first[0] == "relation" and first[2] == ["="] and all(tree[0] == "leaf" for tree in trees[1:]):
        trees = [first, *(["relation", [first[1][0], tree[1]], ["="]] for tree in trees[1:])]
    flat: list[Tree] = []
    for tree in trees:
        flat += tree[1] if tree[0] == "list" else [tree]
    return ["list", flat]


def _inside(s: str) -> str | None:
    """What stands between the brackets that go around the whole of `s`; None when there are none."""
    if s.startswith(r"\{") and s.endswith(r"\}"):
        return s[2:-2]
    if s[0] == "{" and _closing(s, 0) == len(s) - 1:
        return s[1:-1]
    if s[0] in _BRACKETS and s[-1] in ")]" and len(s) > 2:
        inner, depth = s[1:-1], 0
        for char in inner:
            depth += (char in "([{") - (char in ")]}")
            if depth < 0:
                return None
        return inner if depth == 0 else None
    return None


def _bracketed(s: str, inner: str) -> Tree:
    parts, _ = _split(inner, re.compile(r"[,;]"))
    if s.startswith(r"\{"):
        if re.match(r"\s*\w+\s*(?:\\in[^|:]*)?(?:\||\\mid|:)", inner):
            return structure(re.split(r"\||\\mid|:", inner, maxsplit=1)[1])
        return ["set", [structure(part) for part in parts if part.strip()]]
    if len(parts) == 1:
        return structure(inner) if s[0] in "({" and s[-1] in ")}" else ["tuple", [structure(inner)]]
    trees = [structure(part) for part in parts]
    if s[0] == "{":
        return ["set", trees]
    if len(trees) == 2 and s[0] in _BRACKETS and (s[0] == "[" or s[-1] == "]"):
        return ["interval", *trees, s[0] == "(", s[-1] == ")"]
    if s[0] in _BRACKETS and _BRACKETS[s[0]] != s[-1]:
        raise ValueError("brackets that do not match")
    return ["tuple", trees]


def _split(s: str, pattern: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """`s` cut where `pattern` matches outside of all brackets, and what matched there."""
    parts, glue, start, depth, at = [], [], 0, 0, 0
    while at < len(s):
        environment = re.compile(r"\\(?:begin|end)\{").match(s, at)
        if environment:
            depth += 1 if "begin" in environment[0] else -1
            at = s.find("}", at) + 1 or len(s)
            continue
        if depth == 0 and (found := pattern.match(s, at)) and found.end() > at:
            parts.append(s[start:at])
            glue.append(found[0])
            at = start = found.end()
            continue
        if s[at] == "\\" and s[at + 1 : at + 2] in ("{", "}"):
            depth += 1 if s[at + 1] == "{" else -1
            at += 2
            continue
        depth += (s[at] in "([{") - (s[at] in ")]}")
        at += 1
    parts.append(s[start:])
    return parts, glue
