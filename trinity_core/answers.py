r"""Reading answers out of text: the reasoning split off, the committed answer, and whether two values agree.

Used by specialists (to read and check an answer), by the loop (to choose the final one) and by graders, so that
all of them read the same text the same way.

Invariants: the *last* explicit commitment counts (`Answer: X`, `\boxed{X}`, `the answer is X`, `#### X`,
`<answer>X</answer>`); an empty, negated or cut-off one does not. `Result so far: X` is no commitment. A value is
compared as a whole, never by a fragment of it: numbers exactly, as rationals; dates as dates; the rest as
normalised text, from which no word is ever dropped. Leading zeros do not change a number ("042" is 42).

Not covered: equality of expressions with radicals, symbols or intervals. These compare as text here; the math
grader works on the values read by `extract_answer(text, AnswerKind.MATH)`.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from enum import StrEnum
from fractions import Fraction
from typing import Literal

from trinity_core.types import Finish, Role, TurnFinished


class AnswerKind(StrEnum):
    """What sort of value a question asks for."""

    TEXT = "text"
    NUMBER = "number"
    MATH = "math"
    CHOICE = "choice"


# --- Reasoning ----------------------------------------------------------------------------------------------

_TAG = re.compile(r"<\s*(?P<close>/?)\s*(?P<name>think(?:ing)?|reasoning)\s*>", re.IGNORECASE)
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_QUOTES = {"`": "`", '"': '"', "'": "'", "“": "”", "‘": "’", "«": "»"}


def split_reasoning(text: str) -> tuple[str, str]:
    """The visible text and the reasoning of a raw reply, in this order, both stripped.

    Reasoning stands in <think>, <thinking> or <reasoning>. An unclosed block swallows the rest; a closing tag
    without an opening one makes everything visible before it reasoning. A tag in quotes or in a code span is a
    mention: plain text. An opening tag inside a block nests only if closing tags for both follow.
    """
    tags = list(_tags(text))
    closers = Counter(tag["name"].lower() for tag in tags if tag["close"])  # those still ahead
    visible: list[str] = []
    hidden: list[str] = []
    start = depth = 0
    name = ""
    for tag in tags:
        closes = bool(tag["close"])
        closers[tag["name"].lower()] -= closes
        if depth == 0:
            piece = text[start : tag.start()]
            if closes:
                hidden, visible = [*hidden, *visible, piece], []
            else:
                visible.append(piece)
                depth, name = 1, tag["name"].lower()
            start = tag.end()
        elif tag["name"].lower() == name:
            if closes:
                depth -= 1
                if depth == 0:
                    hidden.append(text[start : tag.start()])
                    start = tag.end()
            elif closers[name] > depth:
                depth += 1
    (hidden if depth else visible).append(text[start:])
    return _joined(visible, ""), _joined(hidden, "\n")


def _tags(text: str) -> Iterator[re.Match[str]]:
    code = [span.span() for span in _CODE.finditer(text) if not _ends_a_block(span.group())]
    starts = [start for start, _ in code]
    for tag in _TAG.finditer(text):
        before, after = text[: tag.start()][-1:], text[tag.end() :][:1]
        if before in _QUOTES and after == _QUOTES[before]:
            continue
        at = bisect(starts, tag.start()) - 1
        if at < 0 or tag.start() >= code[at][1]:
            yield tag


def _ends_a_block(code: str) -> bool:
    """Whether what looks like code holds a closing tag without its opening one: a block ends there, so it is none."""
    if code.strip("`").strip().startswith("<"):
        return False
    open_tags = 0
    for tag in _TAG.finditer(code):
        open_tags += -1 if tag["close"] else 1
        if open_tags < 0:
            return True
    return False


def _joined(pieces: Iterable[str], glue: str) -> str:
    return glue.join(piece.strip() if glue else piece for piece in pieces if piece.strip()).strip()


# --- Commitments --------------------------------------------------------------------------------------------

_LABEL = re.compile(
    r"(?<![A-Za-z])(?:(?P<adjective>[A-Za-z]{1,20})[ \t]+)?(?<![A-Za-z])answer(?:[ \t]*\([^)\n]{0,40}\))?"
    r"[ \t*_]*[:=：](?P<value>[^\n]*)",
    re.IGNORECASE,
)
_HEADING = re.compile(r"^[ \t]*(?:#{1,6}[ \t]*|\*\*)(?:final[ \t]+)?answer[ \t:*]*$", re.IGNORECASE | re.M)
_SENTENCE = re.compile(
    r"\b(?:the|my|our)[ \t]+(?:(?:final|correct|right|best)[ \t]+)*answer(?:[ \t]+(?:to|for)[ \t]+[^.\n:]{1,80}?)?"
    r"[ \t]+(?:is|was|will be|would be|must be|should be|has to be|comes (?:out )?to|equals)"
    r"(?:[ \t]+(?:therefore|thus|clearly|simply|just|indeed|then|hence|still))?[ \t]*:?(?P<value>[^\n]*)",
    re.IGNORECASE,
)
_HASHES = re.compile(r"^[ \t]*#{4}[ \t]*(?P<value>[^#\n][^\n]*)$", re.M)
_ELEMENT = re.compile(r"<answer>(?P<value>(?:(?!<answer>).){0,1000}?)</answer>", re.IGNORECASE | re.DOTALL)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BLANK_BOX = re.compile(
    r"(?:[\s?._~$…{}\\]|\\[,;:!_ ]|\\(?:q?quad|[lc]?dots|square|[hv]?(?:phantom|space)\s*\{[^{}]*\})(?![A-Za-z]))*"
    r"|(?:(?:your|the|final)\s+)*answer(?:\s+here)?",
    re.IGNORECASE,
)
_PARTIAL = re.compile(r"\bresult so far(?:\*\*)?[ \t]*:(?P<value>[^\n]*)", re.IGNORECASE)

_NOT_THE_ANSWER = re.compile(
    "previous|wrong|incorrect|earlier|old|first|false|given|candidate|your|student|proposed|other|possible",
    re.IGNORECASE,
)
_NEGATED = re.compile(
    r"(?:definitely |certainly |surely |probably )?(?:not|never|neither|n't|cannot be|can't be)\b", re.IGNORECASE
)
_REASON = re.compile(
    r",?\s+(?:because|since|rather than|instead of)\b.*|,\s*(?:as|not|which|given|where)\s.*",
    re.IGNORECASE | re.DOTALL,
)
_PLACEHOLDER = re.compile(r"^(?:<[^<>]*(?:\s|answer)[^<>]*>|\[[^\]]*answer[^\]]*\]|\.{2,}|…)$", re.IGNORECASE)
_ABBREVIATION = re.compile(
    r"(?:^|[\s.(])(?:[A-Z]|mr|mrs|ms|dr|st|mt|prof|vs|jr|sr|approx|e\.g|i\.e|a\.m|p\.m)$", re.IGNORECASE
)
_LONGEST_VALUE = 1000
"""Characters of a committed value that are looked at; what is longer is no short answer, and is cut there."""
_LAST_CHARS = 4000
"""Characters at the end of a text in which an answer without a commitment is looked for."""


def committed_answer(text: str) -> str | None:
    """The value after the last explicit commitment, without its wrappers; None when there is none.

    Arithmetic shown on the line gives its result: "p+q = 211+18 = 229" is "229". An equation such as
    "2x - 5y + 8 = 0" stays whole.
    """
    found = sorted(_commitments(text), key=lambda item: item[0])
    return found[-1][1] if found else None


def partial_result(text: str) -> str | None:
    """The value of the last `Result so far: X` line, without its wrappers; None when there is none."""
    values = [clean_value(match["value"]) for match in _PARTIAL.finditer(text)]
    return next((value for value in reversed(values) if value), None)


def _commitments(text: str) -> Iterator[tuple[int, str]]:
    """Position and value of every commitment that holds a value."""
    raw: list[tuple[int, str, bool]] = []
    for match in _LABEL.finditer(text):
        if not _NOT_THE_ANSWER.fullmatch(match["adjective"] or ""):
            value = match["value"] if match["value"].strip(" \t*_") else _next_line(text, match.end())
            raw.append((match.end() - len(match["value"]), value, False))
    raw += [(match.end(), _next_line(text, match.end()), False) for match in _HEADING.finditer(text)]
    raw += [(match.start("value"), match["value"], True) for match in _SENTENCE.finditer(text)]
    raw += [(match.start("value"), match["value"], False) for match in _HASHES.finditer(text)]
    raw += [(match.start("value"), match["value"], False) for match in _ELEMENT.finditer(text)]
    for position, value, prose in raw:
        if (short := _trimmed(value, prose)) and not _BOX.search(short):
            yield position, short
    for position, value in _boxes(text):
        short = _result_of(clean_value(value))
        if not _BLANK_BOX.fullmatch(short[:_LONGEST_VALUE]):
            yield position, short


def _boxes(text: str) -> Iterator[tuple[int, str]]:
    partners = _partners(text)
    for match in _BOX.finditer(text):
        if (end := partners.get(match.end() - 1)) is not None:
            yield match.end(), text[match.end() : end]


def _before_an_open_box(text: str) -> str:
    """`text` up to a box that never closes: what stands in it may be half a value."""
    partners = _partners(text)
    cut = next((match.start() for match in _BOX.finditer(text) if match.end() - 1 not in partners), len(text))
    return text[:cut]


def _partners(text: str) -> dict[int, int]:
    """Position of the closing brace for every opening one that is closed."""
    open_at: list[int] = []
    partners: dict[int, int] = {}
    for brace in re.finditer(r"(?<!\\)[{}]", text):
        if brace.group() == "{":
            open_at.append(brace.start())
        elif open_at:
            partners[open_at.pop()] = brace.start()
    return partners


def _next_line(text: str, start: int) -> str:
    return next((line for line in text[start:].splitlines() if line.strip()), "")


def _trimmed(value: str, prose: bool) -> str:
    """A commitment's value without the sentence that follows it and without its reason; "" when it holds none."""
    value = re.sub(r"^(?:\*\*|__)(?=\s|$)", "", value.strip()[:_LONGEST_VALUE]).strip()
    value = _first_sentence(value)
    if prose:
        value = value.split(";", 1)[0]
    if _NEGATED.match(value) and prose:
        return ""
    shorter = _REASON.sub("", value, count=1)
    value = clean_value(shorter if shorter.strip() else value)
    return "" if _PLACEHOLDER.match(value) else _result_of(value)


def _first_sentence(text: str) -> str:
    for match in re.finditer(r"[.!?](?=[\s\"”’')]*\s)", text):
        if not _ABBREVIATION.search(text[: match.start()]):
            return text[: match.start()]
    return text


def _result_of(value: str) -> str:
    """The right-hand side of shown arithmetic or of `x = 5`; any other value as it is."""
    parts = [part.strip() for part in re.split(r"(?<![<>!=:])=(?!=)", re.sub(r"(?<=\d),(?=\d{3}\b)", "", value))]
    if len(parts) < 2 or not parts[-1] or any(re.search(r"[,;]|\b(?:and|or)\b", part) for part in parts):
        return value
    left, right = re.sub(r"(?<=\d)\s*[x×]\s*(?=\d)", "*", parts[0]), clean_value(parts[-1])
    names_a_value = not (re.search(r"\d", left) and re.search(r"[A-Za-z]", left))
    is_value = number_and_unit(right) is not None or _QUANTITY.fullmatch(right) is not None
    if is_value and (names_a_value or len(parts) > 2):
        return clean_value(value.rsplit("=", 1)[-1])
    return value


# --- Cleaning -----------------------------------------------------------------------------------------------

_WRAPPERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("`", "`"), *_QUOTES.items())
_COMMAND = re.compile(
    r"\\(?:boxed|fbox|text(?:bf|it|rm|sf|tt|sc|up|md|normal)?|math(?:rm|bf|it|sf|tt|normal)|mbox|operatorname|emph|bm"
    r"|boldsymbol|underline|(?:text)?color\s*\{[^{}]*\})\s*\{"
)
_SWITCH = re.compile(
    r"\\(?:displaystyle|large|Large|normalsize|small|bf|it|rm|sf|tt|em|bfseries|itshape)(?![A-Za-z])\s*"
)
_EXCLAMATION = re.compile(r"(?<=[^\W\d_]{2})[!?]+$")  # but 5! and n! are factorials
_BOLD = re.compile(r"(?<![\w)*])\*\*(?=\S)(.+?)(?<=\S)\*\*(?![\w(*])")


def clean_value(value: str) -> str:
    r"""`value` without presentation: $..$, \text{..}, \boxed{..}, bold, quotes, backticks, a final full stop."""
    value = _BOLD.sub(r"\1", value).strip()
    for _ in range(20):  # deeper nesting is no presentation
        before = value
        value = value.strip().strip("*").strip()
        if re.search(r"[^.…]\.$", value) and not re.search(r"\b[A-Za-z]\.[A-Za-z]\.$", value):
            value = value[:-1]
        value = _unwrapped(_EXCLAMATION.sub("", value).rstrip(";,").strip())
        if value == before:
            break
    return value


def _unwrapped(value: str) -> str:
    """`value` without one pair of marks or one LaTeX command around the whole of it."""
    for left, right in _WRAPPERS:
        inner = value[len(left) : len(value) - len(right)]
        around = len(value) > len(left) + len(right) and value.startswith(left) and value.endswith(right)
        if around and inner.strip() and left not in inner and right not in inner:
            return inner
    if switch := _SWITCH.match(value.removeprefix("{")):  # {\bf x}, or \displaystyle before a fraction
        braced = value.startswith("{")
        if not braced or _partners(value).get(0) == len(value) - 1:
            return value[switch.end() + braced : len(value) - braced]
    command = _COMMAND.match(value)
    if command and _partners(value).get(command.end() - 1) == len(value) - 1:
        return value[command.end() : -1]
    return value


# --- Numbers, dates, and equality -----------------------------------------------------------------------------


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_DASHES = str.maketrans(dict.fromkeys("−‐‑‒–—﹣－", "-"))
_MINUS = re.compile(r"^[−‐‑‒–﹣－](?=[\d.\\])")
_GROUPED = r"\d{1,3}(?:(?:,|\{,\}|[\u00a0\u2009\u202f])\d{3})+(?!\d)(?:\.\d+)?"
_PLAIN = r"(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
_FRAC = r"\\[cdt]?frac\s*(?:\{\s*-?\d+\s*\}\s*\{\s*-?\d+\s*\}|\d\s*\d)"
_WHOLE_NUMBER = re.compile(
    rf"(?P<sign>[-+])?\s*(?P<currency>[$€£¥₹]|\\\$)?\s*(?P<sign2>[-+])?\s*"
    rf"(?:(?P<whole>\d+)(?:\s*|\s*\+\s*|\s+and\s+)(?P<frac>{_FRAC}|(?<!\d)\d+\s*/\s*\d+)|(?P<only>{_FRAC}|\d+\s*/\s*\d+)"
    rf"|(?P<number>{_GROUPED}|\d{{1,3}}(?: \d{{3}})+(?![\d/])|{_PLAIN}))\s*(?P<unit>.*)",
    re.DOTALL,
)
_UNIT = re.compile(r"(?:[%°]|[^\W\d_]|[²³µ/·^ .'-]|\^\{?[23]\}?)*")
_MAX_EXPONENT = 5000
_CURRENCY = {"dollar": "$", "usd": "$", "euro": "€", "eur": "€", "pound": "£", "gbp": "£", "percent": "%"}
_MONTHS = _words("january february march april may june july august september october november december")
_WEEKDAYS = _words("monday tuesday wednesday thursday friday saturday sunday")
_SHORT_WEEKDAYS = tuple(day[:3] for day in _WEEKDAYS)
_CLOCK = re.compile(r"(?P<h>\d{1,2})(?::(?P<m>\d{2}))?(?::(?P<s>\d{2}))?\s*(?P<half>[ap]\.?m\.?)?", re.IGNORECASE)


def number_and_unit(text: str) -> tuple[Fraction, str] | None:
    r"""The exact value and the unit of a text that is one number as a whole, or None.

    Reads signs (also U+2212), 1,000 and 1{,}000 and 12 000, decimals, 1e5, 3/4, \frac{3}{4}, 2 1/3, a leading
    currency sign, and a trailing unit of a few words. The unit is lower case and singular; "" when there is none;
    "%" for percent, whose value is not divided by 100. Not numbers: 5:00, NaN, True, 3^5, sqrt.
    """
    if len(text) > _LONGEST_VALUE:
        return None
    plain = clean_value(_latex_light(text).translate(_DASHES))
    if plain.startswith("(") and plain.endswith(")"):
        plain = plain[1:-1].strip()
    match = _WHOLE_NUMBER.fullmatch(plain)
    if match is None:
        return None
    unit = _unit(match["unit"])
    if unit is None or (unit and match["currency"] and unit not in ("million", "billion", match["currency"][-1])):
        return None
    fraction = match["frac"] or match["only"]
    try:
        if fraction:
            top, bottom = re.findall(r"-?\d" if re.search(r"frac\s*\d", fraction) else r"-?\d+", fraction)
            value = Fraction(int(top), int(bottom)) + int(match["whole"] or 0)
        else:
            digits = re.sub(r"[,{}\s\u00a0\u2009\u202f]", "", match["number"])
            exponent = re.split(r"[eE]", digits)[1:]
            if exponent and abs(int(exponent[0])) > _MAX_EXPONENT:
                return None
            value = Fraction(digits)
    except (ValueError, ZeroDivisionError):
        return None
    negative = "-" in (match["sign"] or "") + (match["sign2"] or "")
    return (-value if negative else value), unit or (match["currency"] or "")[-1:]


def _latex_light(text: str) -> str:
    text = re.sub(r"\\(?:left|right|,|;|!|:|quad|displaystyle)(?![A-Za-z])", "", text)
    text = re.sub(r"\^\s*\{?\s*\\circ\s*\}?|\\degree\b|º", "°", text).replace(r"\%", "%")
    return re.sub(r"\\(?:text|mathrm|mbox)\s*\{([^{}]*)\}", r"\1", text)


def _unit(text: str) -> str | None:
    """A unit in one spelling, "" for none, None when `text` is no unit."""
    text = " ".join(text.casefold().split()).strip(" .")
    if not text:
        return ""
    if not _UNIT.fullmatch(text) or len(text.split()) > 4 or text.startswith(("-", "/", "^", "'")):
        return None
    if len(text) > 2 and text.endswith("s") and not text.endswith("ss"):
        text = text[:-1]
    return _CURRENCY.get(text, text)


def calendar_date(text: str) -> date | None:
    """The day that a text names as a whole, written 2024-03-05, 5 March 2024, March 5th, 2024 or with a weekday."""
    plain = re.sub(r"[,.()]|\bthe\b|\bof\b", " ", clean_value(text).translate(_DASHES).casefold())
    words = plain.split()
    words = [word for word in words if word not in _WEEKDAYS and word not in _SHORT_WEEKDAYS]
    if len(words) == 1 and (iso := re.fullmatch(r"(\d{4})-(\d{2})-(\d{2})", words[0])):
        parts = [int(part) for part in iso.groups()]
    elif len(words) == 3:
        name = next((word for word in words[:2] if word.isalpha()), "")
        month = next((n for n, full in enumerate(_MONTHS, 1) if len(name) >= 3 and full.startswith(name)), 0)
        day = next((m[1] for word in words[:2] if (m := re.fullmatch(r"(\d{1,2})(?:st|nd|rd|th)?", word))), "0")
        parts = [int(words[2]) if re.fullmatch(r"\d{4}", words[2]) else 0, month, int(day)]
    else:
        return None
    try:
        return date(*parts)
    except ValueError:
        return None


def clock_time(text: str) -> time | None:
    """The time of day that a text names as a whole: 17:45, 17:45:00, 5:45 PM, 5 p.m.; a bare number is none."""
    match = _CLOCK.fullmatch(clean_value(text))
    if match is None or not (match["m"] or match["half"]):
        return None
    hour = int(match["h"])
    if match["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match["half"][0] in "pP" else 0)
    try:
        return time(hour, int(match["m"] or 0), int(match["s"] or 0))
    except ValueError:
        return None


def normal_text(text: str) -> str:
    """`text` in the one form in which texts are compared: NFKC, case folded, plain quotes and dashes, single
    blanks, no outer quotes, no final punctuation. No word is dropped. "" only for text without any character that
    matters."""
    plain = unicodedata.normalize("NFKC", clean_value(text)).casefold().translate(_DASHES)
    plain = re.sub(r"[‘’ʼ´`]", "'", re.sub(r"[“”«»„]", '"', plain))
    plain = re.sub(r"\s*,\s*", ", ", " ".join(plain.split()))
    return _EXCLAMATION.sub("", plain.strip("\"' ")).rstrip(".,;:? ")


def same_value(a: str, b: str) -> bool:
    r"""Whether two values are the same.

    Numbers compare exactly: 1,000 = 1000.0, 1/2 = 0.5 = \frac{1}{2} = 50 %. Units must agree, a missing one
    included ("12 km" is neither "12" nor "12 m"); only the degree sign may be left out. Dates and times of day
    compare as such, whatever their spelling. The rest compares as `normal_text`. An empty value equals nothing.
    """
    if not a.strip() or not b.strip():
        return False
    first, second = number_and_unit(a), number_and_unit(b)
    if first and second:
        return _same_number(first, second)
    for read in (calendar_date, clock_time):
        moment = read(a)
        if moment is not None and moment == read(b):
            return True
    left, right = normal_text(a), normal_text(b)
    return left == right if left and right else a.strip() == b.strip()


def _same_number(first: tuple[Fraction, str], second: tuple[Fraction, str]) -> bool:
    (a, unit_a), (b, unit_b) = first, second
    if "%" in (unit_a, unit_b) and unit_a != unit_b:
        a, unit_a = (a / 100, "") if unit_a == "%" else (a, unit_a)
        b, unit_b = (b / 100, "") if unit_b == "%" else (b, unit_b)
    if {unit_a, unit_b} == {"°", ""}:
        unit_a = unit_b
    return a == b and unit_a == unit_b


# --- Extraction by kind ---------------------------------------------------------------------------------------

_ONES = _words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = _words("twenty thirty forty fifty sixty seventy eighty ninety")
_WORD_VALUES = {w: n for n, w in enumerate(_ONES)} | {w: 10 * n for n, w in enumerate(_TENS, 2)}
_NUMBER_WORD = re.compile(
    rf"\b(?:(?P<tens>{'|'.join(_TENS)})[- ](?P<ones>{'|'.join(_ONES[1:10])})"
    rf"|(?P<plain>{'|'.join(sorted(_WORD_VALUES, key=len, reverse=True))}))\b(?: (?P<hundred>hundred))?",
    re.IGNORECASE,
)
_GROUPS = r"(?:\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})"
_ATOM = (
    rf"(?:\\[cdt]?frac\s*(?:{_GROUPS}\s*{_GROUPS}|\d\s*\d)|\\[dt]?binom\s*{_GROUPS}\s*{_GROUPS}"
    rf"|\\sqrt\s*(?:\[\d+\])?\s*(?:{_GROUPS}|\d)|\\pi\b|π"
    rf"|\d{{4}}-\d{{2}}-\d{{2}}|\d{{1,2}}:\d{{2}}(?::\d{{2}})?|\d+ \d+/\d+|\d+/\d+|{_GROUPED}|{_PLAIN})"
)
_QUANTITY = re.compile(
    rf"(?<![\w.])(?P<sign>(?<![\w)}}])[-+]\s?)?(?:[$€£¥]|\\\$)?"
    rf"(?P<size>{_ATOM}(?:\^(?:{_GROUPS}|\d+)|{_ATOM})*"
    r"(?:\s?(?:\\times|×)\s?10\^(?:\{\s*-?\d+\s*\}|-?\d+))?\s?(?:\\?%|°)?)"
)


def extract_answer(
    text: str, kind: AnswerKind | str, *, letters: str = "ABCDEFGHIJ", options: Mapping[str, str] | None = None
) -> str | None:
    """The value that `text` gives for a question of this kind, or None. A reply that commits to nothing but a
    `Result so far` gives none.

    The committed answer comes first. Without one: the last number or LaTeX quantity for NUMBER and MATH; the one
    letter that is named and not rejected, or the one option named by its text, for CHOICE (`letters` are those
    offered, `options` maps letters to texts); for TEXT a one-sentence reply as `short_value` reads it.
    """
    committed = committed_answer(text)
    if committed is None and partial_result(text) is not None:
        return None  # the reply itself says that it is unfinished
    text = _before_an_open_box(text[-_LAST_CHARS:])
    if kind == AnswerKind.CHOICE:
        return _choice(text if committed is None else committed, letters, options or {})
    if kind == AnswerKind.TEXT:
        return committed if committed is not None else short_value(text) if _one_sentence(text) else None
    if committed is None:
        return _last_quantity(text)
    committed = _MINUS.sub("-", committed)
    if kind == AnswerKind.MATH and len(re.findall(r"(?<!\\)\b[A-Za-z]{3,}", committed)) < 2:
        return committed
    return committed if number_and_unit(committed) else (_first_quantity(committed) or _math_only(committed, kind))


def _one_sentence(text: str) -> bool:
    line = text.strip()
    return "\n" not in line and len(line) <= _LONGEST_VALUE and len(_first_sentence(line)) >= len(line) - 1


def _math_only(value: str, kind: AnswerKind | str) -> str | None:
    return value if kind == AnswerKind.MATH else None


def _first_quantity(text: str) -> str | None:
    shown = re.search(r"(?:=|\bis\b)(?!.*(?:=|\bis\b))", text)
    part = text[shown.end() :] if shown else text
    found = _QUANTITY.search(part.translate(_DASHES)) or _QUANTITY.search(text.translate(_DASHES))
    return _signed(found) if found else _number_in_words(text)


def _last_quantity(text: str) -> str | None:
    found = list(_QUANTITY.finditer(text.translate(_DASHES)))
    return _signed(found[-1]) if found else _number_in_words(text)


def _signed(quantity: re.Match[str]) -> str:
    return (quantity["sign"] or "").strip() + quantity["size"].strip()


def _number_in_words(text: str) -> str | None:
    """The last number written out, up to 99 or in hundreds. "one" counts only alone, as it is a pronoun too."""
    words = list(_NUMBER_WORD.finditer(text))
    found = [m for m in words if m.group().lower() != "one" or text.strip(" .*").lower() == "one"]
    if not found:
        return None
    last = found[-1]
    value = _WORD_VALUES[(last["plain"] or last["tens"]).lower()] + _WORD_VALUES[(last["ones"] or "zero").lower()]
    return str(value * 100 if last["hundred"] else value)


_COPULA = re.compile(
    r"^(?P<subject>.*?)\b(?P<verb>is|are|was|were|equals|has|have|would be|will be|becomes)\s+"
    r"(?:also |often |usually |commonly |indeed )?"
    r"(?:called |known as |named |spelled |written by |painted by |invented by |made of |located )?(?P<value>.+)$",
    re.IGNORECASE,
)


def short_value(text: str) -> str | None:
    """The value that a short reply gives in its first sentence: "Paris" for "The capital of France is Paris.".

    Reads a commitment or a partial result first, then a bare value of up to four words, one bold span, or what is
    said of the subject (or the subject, in "Paris is the capital of France."). A rejected value ("it is not Oslo")
    is passed over. None when the sentence has none of these forms.
    """
    explicit = committed_answer(text) or partial_result(text)
    if explicit:
        return explicit
    line = _next_line(text, 0)[:_LONGEST_VALUE]
    bold = re.findall(r"\*\*(.+?)\*\*", _first_sentence(line))
    if len(bold) == 1:
        return clean_value(bold[0]) or None
    sentence = clean_value(_first_sentence(line.strip()))
    sentence = re.sub(r"^(?:it|that|this)['’]s\b", "it is", sentence, flags=re.IGNORECASE)
    if not _COPULA.match(sentence):
        return sentence if sentence and len(sentence.split()) <= 4 else None
    for clause in re.split(r",(?!\d)\s*|;\s*|\s+but\s+", sentence):
        match = _COPULA.match(clause)
        if match and not _NEGATED.match(match["value"]):
            return _predicate(match["subject"].strip(), match["verb"].lower(), match["value"])
    return None


def _predicate(subject: str, verb: str, value: str) -> str | None:
    """What a clause says: the subject itself when it is a name that gets described, a count, or the predicate."""
    described = re.match(r"(?:the|an?|one of the)\s.+", value, re.IGNORECASE) and re.match(r"[A-Z0-9]", subject)
    if described and not re.match(r"(?:the|an?|it|that|this|its|my)\b", subject, re.IGNORECASE):
        return clean_value(subject) if len(subject.split()) <= 3 else None
    counted = re.match(r"\d[\d,.]*|" + _NUMBER_WORD.pattern, value, re.IGNORECASE)
    if counted and (verb in ("has", "have") or subject.lower() == "there"):
        return clean_value(counted.group())
    return clean_value(re.sub(r"^(?:in\s+)?(?:(?:the|an?)\s+)?(?=\S)", "", clean_value(value), flags=re.I)) or None


# --- Multiple choice --------------------------------------------------------------------------------------------

_REJECTED = re.compile(
    r"(?:\bnot|n['’]t|\bcannot|\brather than|\binstead of|\bexcept|\bneither|\bnor|\brul\w+ out|\beliminat\w+"
    r"|\breject\w+|\bwrong)\s+(?:be\s+|in\s+|by\s+|called\s+)?(?:the\s+|an?\s+)?(?:option\s+|choice\s+|answer\s+)?[(\"']?$",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"[)\"']?\s+(?:is|was|are|were|does|do|did|would|can|could)(?:n['’]t|\s+(?:\w+ly\s+)?not|\s+wrong)\b",
    re.IGNORECASE,
)
_AS_A_LETTER = {  # what follows a capital A or I that is an option, not the article or the pronoun
    "A": re.compile(
        r"\s+(?:is|was|and|or|nor|because|since|rather|instead|looks?|seems?|must|should|would|cannot|but)\b"
    ),
    "I": re.compile(r"\s+(?:is|and|or|nor|because|since|rather|instead|looks|seems)\b"),
}


def _choice(text: str, letters: str, options: Mapping[str, str]) -> str | None:
    value = clean_value(text)
    words = re.sub(r"\W+", " ", value).strip()
    bare = re.fullmatch(r"(?:(?:option|choice|answer) )?([A-Za-z])", words, re.IGNORECASE)
    if bare:
        return bare[1].upper() if bare[1].upper() in letters else None
    equal = [letter for letter, option in options.items() if same_value(option, value)]
    if len(equal) == 1:
        return equal[0]
    leading = re.match(r"\(?([A-Za-z])(?:\)|[.:,](?=\s|$)|\s+[-–—(])", value)
    if leading and leading[1].upper() in letters and (leading[1].isupper() or leading.group()[-1] in ").:"):
        return leading[1].upper()
    told = _asserted_letters(value, letters)
    if len(told) == 1:
        return told.pop()
    named = _named_options(value, options)
    if len(named) == 1:
        return named.pop()
    mentioned = set() if named else _mentioned_letters(value, letters)
    return mentioned.pop() if len(mentioned) == 1 else None


def _asserted_letters(text: str, letters: str) -> set[str]:
    """Letters called the correct one: "the correct option is C", "C is correct"."""
    letter = rf"\(?\b(?P<letter>[{letters}])\b\)?"
    before = (
        r"\b(?:correct|right|best)\s+(?:option|choice|one|answer)?\s*(?:is|would be|:)\s*(?:option\s+|choice\s+)?"
        rf"{letter}(?!['’\w])"
    )
    after = rf"(?<!['’\w]){letter}\s+(?:is|must be|looks|seems)\s+(?:the\s+)?(?:correct|right|best)\b"
    found = [*re.finditer(before, text), *re.finditer(after, text)]
    return {m["letter"] for m in found if not re.match(r"\s+[a-z]+", text[m.end("letter") :]) or _is_letter(m, text)}


def _is_letter(match: re.Match[str], text: str) -> bool:
    """Whether a capital A or I is an option's letter and not the article or the pronoun."""
    follows = _AS_A_LETTER.get(match["letter"])
    return follows is None or bool(follows.match(text[match.end("letter") :].lstrip(")")))


def _mentioned_letters(text: str, letters: str) -> set[str]:
    found = set()
    for match in re.finditer(r"(?<![\w'’])\(?(?P<letter>[A-Za-z])(?P<mark>\))?(?![\w'’])", text):
        letter, before = match["letter"].upper(), text[: match.start("letter")]
        introduced = match["mark"] or re.search(r"\b(?:option|choice|answer)\s+\(?$", before, re.IGNORECASE)
        if letter not in letters or _rejected(text, match.start("letter"), match.end()):
            continue
        follows_word = bool(re.match(r"\s+\w", text[match.end() :]))
        if introduced or (match["letter"].isupper() and (not follows_word or _is_letter(match, text))):
            found.add(letter)
    return found


def mentions(text: str, phrase: str) -> bool:
    """Whether `text` holds `phrase` as whole words in a place where it is not rejected ("not Oslo", "Oslo isn't")."""
    rest = normal_text(text)
    places = _places(rest, phrase)
    return any(not _rejected(rest, place.start(), place.end()) for place in places)


def _rejected(text: str, start: int, end: int) -> bool:
    return bool(_REJECTED.search(text[max(0, start - 60) : start]) or _DENIED.match(text, end))


def _places(rest: str, phrase: str) -> list[re.Match[str]]:
    plain = normal_text(phrase)
    return list(re.finditer(rf"(?<!\w){re.escape(plain)}(?!\w)", rest)) if plain else []


def _named_options(text: str, options: Mapping[str, str]) -> set[str]:
    """Options whose text stands in `text`, longest first, each place used once; rejected ones left out."""
    rest, found = normal_text(text), set()
    for letter, option in sorted(options.items(), key=lambda item: -len(item[1])):
        for place in _places(rest, option):
            if not _rejected(rest, place.start(), place.end()):
                found.add(letter)
            rest = rest[: place.start()] + "\0" * (place.end() - place.start()) + rest[place.end() :]
    return found


# --- The final answer of a run ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FinalAnswer:
    """What a run answers: the post-processed text of `turn`. `flag` as in `RunFinished`."""

    text: str | None = None
    turn: int | None = None
    flag: Literal["no_worker_turn", "no_answer"] | None = None


_NO_ANSWER = frozenset({Finish.REFUSED, Finish.BLOCKED, Finish.ERROR, Finish.EMPTY})


def final_answer(turns: Sequence[TurnFinished], kind: AnswerKind | str | None = None) -> FinalAnswer:
    """The answer of a run that nobody accepted.

    The newest Worker text; with `kind`, the newest Worker text that settles on a value of that kind, if any does.
    Without any Worker turn the newest text of a Thinker, preferring one that commits an answer, flagged
    `no_worker_turn`. Nothing but Verifier turns: no answer, flagged `no_answer`. Failed, refused, blocked and empty
    turns are passed over; turns without a role count as a Worker's.
    """
    usable = [t for t in reversed(turns) if t.error is None and t.finish not in _NO_ANSWER and t.text.strip()]
    workers = [t for t in usable if t.role in (Role.WORKER, None)]
    if workers:
        best = _newest(workers, kind) if kind is not None else workers[0]
        return FinalAnswer(best.text, best.turn)
    others = [t for t in usable if t.role != Role.VERIFIER]
    if others:
        best = next((t for t in others if committed_answer(t.text) is not None), None) or _newest(others, kind)
        return FinalAnswer(best.text, best.turn, "no_worker_turn")
    return FinalAnswer(flag="no_answer")


def _newest(turns: Sequence[TurnFinished], kind: AnswerKind | str | None) -> TurnFinished:
    """The first of `turns` (newest first) that settles on a value, else the first with any value, else the first."""
    if kind is None:
        return turns[0]
    loose = kind in (AnswerKind.NUMBER, AnswerKind.MATH)  # any number in passing would do for these
    read = [t for t in turns if extract_answer(t.text, kind) is not None]
    settled = [t for t in read if not loose or committed_answer(t.text) is not None or number_and_unit(t.text)]
    return (settled or read or list(turns))[0]
