"""The `symbolic` specialist: arithmetic and algebra as people word it, computed exactly with SymPy.

A question is matched against tables of wordings (here, in `arithmetic` and in `algebra`); operands go through
`formula`, which never evaluates text as code and bounds every number. What fits no wording is tried as a bare formula
and then as a short story (`stories`). What is understood only in part is declined: an answer is given for the whole
question or not at all.

Not covered: units, dates and letters (other specialists), geometry, matrices, proofs, ambiguous English.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sympy.polys.polyerrors import BasePolynomialError

from trinity_core.agents.skills import algebra, arithmetic, reckoning
from trinity_core.agents.skills.formula import parse
from trinity_core.agents.skills.plain import rewordings
from trinity_core.agents.skills.stories import tell
from trinity_core.agents.skills.tokens import Unreadable, normal
from trinity_core.agents.skills.values import computed, in_decimals, shown, simplified
from trinity_core.agents.specialists import Solution

MAX_CHARS = 1_200
"""Longest question read, in characters."""
_FAILURES = (
    Unreadable,
    ArithmeticError,
    ValueError,
    TypeError,
    NotImplementedError,
    AttributeError,
    RecursionError,
    BasePolynomialError,
)
"""What SymPy raises on input that it cannot handle: the question is declined."""


class Symbolic:
    """Skill: see the module's text."""

    name = "symbolic"
    domain = "arithmetic and algebra"

    def solve(self, question: str) -> Solution | None:
        """The answer, or None. Never raises."""
        texts = [_clean(form) for form in rewordings(question)]
        for text in dict.fromkeys((*texts, *(_MONEY.sub("", text) for text in texts))):
            if text and len(text) <= MAX_CHARS and not _NOT_MATHS.search(text) and (found := _solve(text)):
                return found
        return None

    def same(self, a: str, b: str) -> bool:
        """Whether two answers are equal as numbers, expressions, or sets of solutions, whatever their form."""
        try:
            return len(a) + len(b) <= MAX_CHARS and algebra.same_answers(a, b)
        except _FAILURES:
            return False


def _solve(text: str) -> Solution | None:
    """The answer to a cleaned question by the first rule or reader that understands it."""
    for pattern, handler in _RULES:
        if match := pattern.fullmatch(text):
            try:
                if found := handler(match):
                    return found
            except _FAILURES:
                continue
    for reader in (algebra.equations, _formula, tell):
        try:
            if found := reader(text):
                return found
        except _FAILURES:
            continue
    return None


# --- Reading ------------------------------------------------------------------------------------------------

_MONTH = r"(?:january|february|march|april|june|july|august|september|october|november|december)"
_NOT_MATHS = re.compile(
    rf"(?i:\b{_MONTH} \d|\d(?:st|nd|rd|th)? (?:of )?{_MONTH}\b|\bmay \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}\b"
    r"|\d(?:st|nd|rd|th)? (?:of )?may,? \d{4}\b)|"
    r"\b\d{4}-\d{1,2}-\d{1,2}\b|(?<![\d/.])\d{1,2}/\d{1,2}/\d{2,4}\b(?!/)|\d:\d\d|https?:|[\"`“”]"
    r"|(?<!\w)'|__|\\x|=>|->>"
)
_MONEY = re.compile(r"(?<=\d) (?:dollars?|euros?|pounds|usd|eur|gbp|bucks|cents)\b", re.IGNORECASE)
_POLITE = re.compile(
    r"^(?:(?:hi|hello|hey|please|kindly|can you|could you|would you|will you|tell me|i (?:want|need) to know"
    r"|ok(?:ay)?|so|now|and|then|also|finally|quick question|question|q|do you know)\b[,:!]?\s*)+",
    re.IGNORECASE,
)
_ASK = (
    r"(?:(?:what(?:['’]?s| is| are| was| would be| will be)?|how (?:much|many) (?:is|are)|calculate"
    r"|compute|evaluate|find|work out|"
    r"determine|figure out|give(?: me)?|show(?: me)?|get|take|do|express|write|solve|simplify|the)\s+)?"
    r"(?:(?:what|how (?:much|many))\s+(?:is|are)\s+)?(?:the\s+)?(?:(?:exact |numerical )?(?:value|result"
    r"|answer|outcome)s?\s+(?:of|to|for)\s+)?(?:the\s+)?"
)


def _clean(question: str) -> str:
    """The question on one line without greetings, courtesies and closing marks."""
    text = " ".join(question.replace("\x00", " ").split())[: MAX_CHARS + 50]
    text = _POLITE.sub("", text)
    text = re.sub(r"[,\s]*(?:please|thanks|thank you)[.!?\s]*$", "", text, flags=re.IGNORECASE)
    text = re.sub(r"(?:\s*(?:=|equals?|is equal to|equal to))?[\s?.:]*$", "", text, flags=re.IGNORECASE)
    return re.sub(r"(?<=[A-Za-z ])!+$", "", text).strip()


# --- Bare formulas and instructions -------------------------------------------------------------------------


def _formula(text: str) -> Solution | None:
    """The value of a text that is nothing but a formula; an expression with letters when it can be simplified."""
    body = re.sub(rf"^{_ASK}", "", text, count=1, flags=re.IGNORECASE)
    formula = parse(body)
    if formula.trivial:
        return None
    expr = formula.expr
    if expr.is_number:
        return computed(formula.shown, expr, in_decimals(formula))
    simple = simplified(expr)
    bare = re.sub(r"[\s*]", "", formula.shown).lower()
    if re.sub(r"[\s*]", "", shown(simple)).lower() == bare or not re.search(r"[-+*/^]", formula.shown):
        return None  # nothing to compute
    return computed(formula.shown, simple)


def _rule(form: str) -> Callable[[re.Match[str]], Solution | None]:
    """A rule that computes the formula `form`, in which {a} and {b} are the match's operands."""

    def rule(match: re.Match[str]) -> Solution | None:
        given = {name: normal(operand) for name, operand in match.groupdict().items() if operand}
        groups = {name: operand if name in ("list", "nth") else f"({operand})" for name, operand in given.items()}
        formula = parse(form.format(**groups))
        if formula.trivial:
            return None
        neat = re.sub(r"\(([\w.]+%?)\)", r"\1", formula.shown)
        return computed(neat, formula.expr, in_decimals(formula)) if formula.expr.is_number else None

    return rule


_A, _B = r"(?P<a>.+?)", r"(?P<b>.+?)"
_INSTRUCTIONS = tuple(
    (re.compile(pattern, re.IGNORECASE), _rule(form))
    for pattern, form in (
        (rf"add (?:the (?:numbers|fractions) )?{_A} (?:to|and|with) {_B}(?: together)?", "{b} + {a}"),
        (r"(?:add(?: up| together)?|sum|total)\s*:? (?P<list>[^,]+(?:,[^,]+)+)", "the sum of {list}"),
        (rf"(?:subtract|take(?: away)?|deduct|remove) {_A}(?: away)? from {_B}", "{b} - {a}"),
        (rf"multiply {_A} by {_B}", "{a} * {b}"),
        (rf"from {_A},? (?:subtract|take(?: away)?|deduct) {_B}", "{a} - {b}"),
        (rf"(?:what(?:['’]s| is)|how much is) {_A} (?:times|multiplied by) itself", "{a} ^ 2"),
        (
            rf"(?:split|divide|share|cut) {_A} (?:equally |evenly )?(?:into|among|between) {_B} (?:equal"
            rf" )?(?:parts|groups"
            r"|pieces|shares|people)[.,;?]? (?:and )?how (?:big|large|much|many|long) (?:is|are|does|do)(?: in)?"
            r" each.{0,20}",
            "{a} / {b}",
        ),
        (rf"multiply {_A} (?:by|and|with|times) {_B}(?: together)?", "{a} * {b}"),
        (
            rf"divide {_A} (?:by|into|between|among) {_B}(?: (?:equal|even) (?:parts|pieces|groups|shares)|equally)?",
            "{a} / {b}",
        ),
        (rf"raise {_A} to the (?P<nth>\w+) power", "{a} to the {nth} power"),
        (rf"raise {_A} to (?:the power(?: of)? )?{_B}", "{a} ^ {b}"),
        (rf"square {_A}", "{a} ^ 2"),
        (rf"cube {_A}", "{a} ^ 3"),
        (rf"(?:increase|raise) {_A} by {_B}", "{a} increased by {b}"),
        (rf"(?:decrease|reduce|lower|discount) {_A} by {_B}", "{a} decreased by {b}"),
        (rf"(?:negate|change the sign of) {_A}", "-{a}"),
        (
            rf"(?:(?:what(?:['’]s| is)|how much is) )?{_A} (?:shared|split|divided) (?:equally |evenly"
            rf" )?(?:between|among|by) {_B}(?: people)?",
            "{a} / {b}",
        ),
        (rf"what do you get (?:if|when) you (?:add|sum) {_A} (?:to|and) {_B}", "{b} + {a}"),
        (rf"what do you get (?:if|when) you subtract {_A} from {_B}", "{b} - {a}"),
        (rf"what do you get (?:if|when) you multiply {_A} (?:by|and|with) {_B}", "{a} * {b}"),
        (rf"what do you get (?:if|when) you divide {_A} by {_B}", "{a} / {b}"),
        (rf"how much (?:more|bigger|larger|greater) is {_A} than {_B}", "{a} - {b}"),
        (rf"how much less is {_A} than {_B}", "{b} - {a}"),
    )
)
_RULES = (*arithmetic.RULES, *algebra.RULES, *reckoning.RULES, *_INSTRUCTIONS)
