"""The words and signs that `formula` understands, and text split into them.

`tokens` knows numbers (in digits, in words, with fractions), fixed words and single letters; the first word outside
the table makes the text Unreadable. Nothing here computes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import sympy
from sympy import Integer, Rational

MAX_TOKENS = 160


class Unreadable(ValueError):
    """The text is no formula, is ambiguous, or asks for more than is computed here."""


# --- Words --------------------------------------------------------------------------------------------------

_UNITS = re.findall(
    r"\w+",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen",
)
_TENS = re.findall(r"\w+", "twenty thirty forty fifty sixty seventy eighty ninety")
_SMALL = {w: i for i, w in enumerate(_UNITS)} | {w: 10 * (i + 2) for i, w in enumerate(_TENS)}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_COUNT = rf"(?:{'|'.join([*_TENS, *_UNITS, *_SCALES])})"
_ORDINAL_WORDS = (
    "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
    "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
)
ORDINALS = {word: i for i, word in enumerate(re.findall(r"\w+", _ORDINAL_WORDS))}
_PARTS = {w: i for w, i in ORDINALS.items() if i > 2} | {"half": 2, "halve": 2, "quarter": 4, "hundredth": 100}
_NTH = rf"(?:{'|'.join(ORDINALS)}|\d{{1,3}}(?:st|nd|rd|th))"
_MATHS = "sqrt|cbrt|arcsin|arccos|arctan|asin|acos|atan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|ln|exp|abs"
_LIST_TAIL = (
    r"(?:\s+(?:of|between|among)(?:\s+(?:the|these))?(?:\s+following)?(?:\s+(?:numbers?|values?|integers?|terms?))?"
    r"\s*:?|(?=\s*\())"
)
# (kind, value, pattern), first match wins; every pattern ends at a word's end unless it is a sign.
_LEXICON: tuple[tuple[str, str, str], ...] = (
    ("fn", "sqrt", r"(?:the )?(?:positive |principal )?square root of|sqrt of"),
    ("fn", "cbrt", r"(?:the )?cube root of"),
    ("root", "", rf"(?:the )?(?P<root>{_NTH}) root of"),
    ("fn", "square", r"(?:the )?square of"),
    ("fn", "cube", r"(?:the )?cube of"),
    ("fn", "factorial", r"(?:the )?factorial of"),
    ("fn", "abs", r"(?:the )?(?:absolute value|magnitude) of"),
    ("fn", "reciprocal", r"(?:the )?(?:multiplicative inverse|reciprocal) of"),
    ("fn", "negative", r"negative(?: of)?|(?:the )?(?:opposite|additive inverse) of"),
    ("fn", "ln", r"(?:the )?natural log(?:arithm)? of"),
    ("fn", "sin", r"(?:the )?sine of"),
    ("fn", "cos", r"(?:the )?cosine of"),
    ("fn", "tan", r"(?:the )?tangent of"),
    ("scale", "double", r"twice|double|doubling"),
    ("scale", "triple", r"thrice|triple|tripling"),
    ("scale", "quadruple", r"quadruple"),
    ("scale", "halve", r"halve|halving"),
    (
        "list",
        "gcd",
        rf"(?:the )?(?:(?:greatest|largest|biggest|highest) common (?:divisor|factor)|gcd|gcf|hcf){_LIST_TAIL}",
    ),
    ("list", "lcm", rf"(?:the )?(?:(?:least|lowest|smallest) common multiple|lcm){_LIST_TAIL}"),
    ("list", "mean", rf"(?:the )?(?:arithmetic mean|average|mean)(?: value)?{_LIST_TAIL}"),
    ("list", "median", rf"(?:the )?median{_LIST_TAIL}"),
    ("list", "sum", rf"(?:the )?(?:sum|total){_LIST_TAIL}"),
    ("list", "product", rf"(?:the )?product{_LIST_TAIL}"),
    ("list", "gap", r"(?:the )?(?:absolute |positive )?difference between"),
    ("list", "difference", r"(?:the )?difference of"),
    ("list", "quotient", r"(?:the )?(?:quotient|ratio) of"),
    ("list", "max", rf"(?:the )?(?:largest|greatest|maximum|biggest|highest|max){_LIST_TAIL}"),
    ("list", "min", rf"(?:the )?(?:smallest|least|minimum|lowest|min){_LIST_TAIL}"),
    ("list", "range", rf"(?:the )?range{_LIST_TAIL}"),
    ("post", "nth", rf"(?:raised )?to the (?P<nth>{_NTH})(?: power)?"),
    ("op", "^", r"(?:raised )?to the power(?: of)?|raised to"),
    ("op", "×", r"multiplied (?:by|with)"),
    ("op", "*", r"times"),
    ("op", "/", r"divided by|over"),
    ("op", "+", r"plus|added to"),
    ("op", "-", r"minus|take away"),
    ("op", "from", r"(?:subtracted|taken|deducted)(?: away)? from"),
    ("op", "mod", r"modulo|modulus|mod"),
    ("op", "up", r"increased by"),
    ("op", "down", r"(?:decreased|reduced|lowered|discounted) by"),
    ("op", "more", r"(?:more|greater|larger|higher) than"),
    ("op", "less", r"(?:less|fewer|smaller|lower) than"),
    ("op", "choose", r"choose"),
    ("op", "off", r"off(?: of)?"),
    ("post", "doubled", r"doubled"),
    ("post", "tripled", r"tripled"),
    ("post", "halved", r"halved"),
    ("post", "squared", r"squared"),
    ("post", "cubed", r"cubed"),
    ("post", "!", r"factorial"),
    ("post", "%", r"per ?cent"),
    ("post", "degrees", r"degrees?"),
    (
        "part",
        "",
        rf"(?P<of>a|an|one|two|three|four|five|six|seven|eight|nine|ten|\d{1, 3})[ -](?P<part>{'|'.join(_PARTS)})s?",
    ),
    ("part", "half", r"half|one-half"),
    (
        "words",
        "",
        rf"(?:{_COUNT})(?:(?:[ -]+|(?<=hundred) and |(?<=thousand) and |(?<=million) and ){_COUNT})*"
        rf"(?: and (?:a|one) (?:half|quarter|third))?|(?:a|two|three) dozen|a (?:hundred|thousand|million)",
    ),
    ("log", "", r"log(?:_?(?P<base>\d{1,6})|\s+base\s+(?P<base2>\d{1,6}))?(?:\s+of)?"),
    ("fn", "", rf"(?P<maths>{_MATHS})"),
    ("const", "pi", r"pi"),
    ("mark", "and", r"and"),
    ("mark", "of", r"of"),
    ("skip", "", r"the|number|value"),
    ("sym", "", r"[A-Za-z]"),
    ("syms", "", r"(?P<syms>[abcxyz]{2,3})"),
)
_NUMBER = r"\d+ +\d+/\d+(?![\d.])|\d+(?:\.\d+)?e[+-]?\d{1,3}(?![\w.])|(?:\d+\.\d+|\.\d+|\d+)"
_TOKEN = re.compile(
    rf"(?P<num>{_NUMBER})(?P<scale> (?:hundred|thousand|million|billion|trillion|dozen)(?![a-z]))?|"
    + "|".join(rf"(?P<w{i}>(?:{pattern})(?![A-Za-z]))" for i, (_, _, pattern) in enumerate(_LEXICON))
    + rf"|(?P<glued>(?:{_MATHS})(?=\d)|[A-Za-z](?=(?:{_MATHS})\())|(?P<sign>\*\*|[-+*/^!%(),|°])",
    re.IGNORECASE,
)

# --- Signs --------------------------------------------------------------------------------------------------

_SUPER = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_VULGAR = {
    **{"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5", "⅘": "4/5"},
    **{"⅙": "1/6", "⅚": "5/6", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8"},
}
_SIGNS = str.maketrans(
    {"×": "*", "·": "*", "∙": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-", "—": "-", "∕": "/", "⁄": "/"}
    | {"[": "(", "]": ")", "{": "(", "}": ")", "’": "'", "π": " pi ", "√": " sqrt ", "\u00a0": " ", "\u2009": " "}
)


def normal(text: str) -> str:
    r"""`text` with plain signs only: superscripts, vulgar fractions, Unicode operators, LaTeX, currency signs and
    grouped digits (1,000) resolved. Letters keep their case."""
    text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+", lambda m: f"^({m.group().translate(_SUPER)})", text)
    text = re.sub(r"(\d?)\s*([½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞])", lambda m: f"{m[1]} {_VULGAR[m[2]]} ", text)
    for _ in range(4):  # nested fractions, innermost first
        text = re.sub(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"((\1)/(\2))", text)
    text = re.sub(r"\\sqrt\s*\{([^{}]*)\}", r"sqrt(\1)", text)
    text = re.sub(r"\\(?:left|right|,|;|!|quad)|\\[()\[\]]|[$€£¥]", "", text)
    text = re.sub(r"\\(?:times|cdot)\b", "*", re.sub(r"\\div\b", "/", text))
    text = re.sub(r"\\(sin|cos|tan|ln|log|exp|pi)\b", r"\1 ", text).replace("\\%", "%").translate(_SIGNS)
    text = re.sub(
        r"(?i)\b(gcd|lcm|max|min|mean|mod)\(([^()]*)\)", lambda m: f"{m[1]}({m[2].replace(',', ', ')})", text
    )
    text = re.sub(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])", lambda m: m.group().replace(",", ""), text)
    text = re.sub(r"(?<=\d)\s*[xX]\s*(?=\d)", " * ", text)
    return " ".join(text.split())


# --- Tokens -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # num, part, sym, fn, scale, log, root, list, op, post, mark
    value: Any
    spoken: bool = False


def tokens(text: str) -> list[Token]:
    """The tokens of normalised text. Raises Unreadable at the first word that is none of ours."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        if text[at] == " ":
            at += 1
            continue
        match = _TOKEN.match(text, at)
        if match is None or len(found) > MAX_TOKENS:
            raise Unreadable(f"unknown: {text[at : at + 20]!r}")
        found.extend(_made(match))
        at = match.end()
    return found


def _made(match: re.Match[str]) -> list[Token]:
    if match["num"]:
        scale = (match["scale"] or "").strip().lower()
        return [Token("num", _literal(match["num"]) * (12 if scale == "dozen" else _SCALES.get(scale, 1)))]
    if word := match["glued"]:
        return [Token("fn", word.lower()) if len(word) > 1 else _symbol(word)]
    if match["sign"]:
        sign = {"**": "^", "°": "degrees"}.get(match["sign"], match["sign"])
        return [Token("post" if sign in ("!", "%", "degrees") else "op", sign)]
    kind, value, _ = _LEXICON[int((match.lastgroup or "w0")[1:])]
    word = match.group().lower()
    if kind == "words":
        return [Token("num", _spoken_number(word))]
    if kind == "part":
        count = Integer(1) if value or match["of"] in ("a", "an") else _spoken_number(match["of"].lower())
        return [Token("part", count / (2 if value else _PARTS[match["part"].lower()]))]
    if kind == "fn" and not value:
        return [Token("fn", word)]
    if kind == "sym":
        return [_symbol(match.group())]
    if kind == "syms":
        return [_symbol(letter) for letter in match["syms"]]
    if kind == "const":
        return [Token("sym", sympy.pi)]
    if kind == "log":
        return [Token("log", int(match["base"] or match["base2"] or 0))]
    if kind == "root":
        return [Token("root", ordinal(match["root"]))]
    if value == "nth":
        return [Token("post", ordinal(match["nth"]))]
    return [] if kind == "skip" else [Token(kind, value, spoken=True)]


def _symbol(letter: str) -> Token:
    return Token("sym", sympy.E if letter == "e" else sympy.Symbol(letter))


def _literal(text: str) -> Rational:
    if len(text) > 400:
        raise Unreadable("too large")
    whole, _, part = text.rpartition(" ") if "/" in text else ("", "", text)
    if part.endswith("/0"):
        raise Unreadable("division by zero")
    return (Rational(whole.strip()) if whole else Integer(0)) + Rational(part)


def ordinal(word: str) -> int:
    """3 for "third" and "3rd"."""
    return ORDINALS[word.lower()] if word.lower() in ORDINALS else int(re.sub(r"\D", "", word))


def _spoken_number(text: str) -> Rational:
    """The number in words. Raises Unreadable when the words make none ("five six")."""
    if text.isdigit():
        return _literal(text)
    if text.endswith("dozen"):
        return Integer(12 * {"a": 1, "two": 2, "three": 3}[text.split()[0]])
    if extra := re.search(r" and (?:a|one) (half|quarter|third)$", text):
        return _spoken_number(text[: extra.start()]) + Rational(1, _PARTS[extra[1]])
    total = group = 0
    last = 0  # the size of the previous word, so that "twenty five" adds and "five six" does not
    for word in re.split(r"[ -]+", re.sub(r"^a ", "one ", text).replace(" and ", " ")):
        if word == "hundred" and 0 < group < 100:
            group, last = group * 100, 100
        elif word in _SCALES and word != "hundred" and group and (not total or total % (_SCALES[word] * 1000) == 0):
            total, group, last = total + group * _SCALES[word], 0, 0
        elif word in _SMALL and (not group or last == 100 or (last in range(20, 91, 10) and 0 < _SMALL[word] < 10)):
            group, last = group + _SMALL[word], _SMALL[word]
        else:
            raise Unreadable(f"no number: {text!r}")
    return Integer(total + group)
