"""How people word a question to a specialist: politeness, quotation marks, mentions of words, numbers.

`read` cleans a question and takes what stands in quotation marks out of it, each quotation leaving one private
character behind, so that the patterns of a skill see the frame of the question alone. `Reading.mention` turns a
part of that frame back into the words spoken *about*, and refuses parts that speak of a thing ("the postman").

Also here: numbers in and out (`integer`, `cardinal`, `ordinal`, `show`). Everything is pure and linear in the
length of the text, which is bounded by MAX_LENGTH. Not covered: languages other than English.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

MAX_LENGTH = 4000
"""Longest question read, in characters; a longer one is declined."""
MAX_FRAME = 400
"""Longest frame matched against patterns (quotations count one character each)."""


def listed(words: str) -> list[str]:
    """The words of a text: a table of words is easier to read without a mark around each."""
    return words.split()


def _set(words: str) -> frozenset[str]:
    return frozenset(listed(words))


QUOTED = "[\ue000-\ue0ff]"
"""Pattern of the one character that stands for a quotation."""
_FIRST = 0xE000
_MARKS = str.maketrans("“”„«»″‘’‚`´′", '""""""' + "''''''")
_LEAD = re.compile(
    r"(?:(?:hi|hello|hey)(?: there)?[,!.] ?|(?:please|kindly|ok|okay|so|now|and|then|next|finally|quick question"
    r"|question|q)\b[,:!]? ?"
    r"|(?:can|could|would|will) (?:you|u) (?:please |kindly )?(?=\w)|i(?:'d| would) like (?:you )?to (?:know )?"
    r"|i (?:want|need) (?:you )?to (?:know )?|(?:do you know|tell me|let me know|work out|figure out|say) "
    r"(?:exactly )?"
    r"(?=(?:what|how|which|whether|if|the)\b)|help me )",
    re.I,
)
_TAIL = re.compile(
    r"(?:[.?!;,] ?(?:please )?(?:only )?(?:answer|reply|respond|give|state|return|output|show|just"
    r"|write)\b[^.?!]{0,60}"
    r"\b(?:only|just|single|number|word|answer|name|digits?|else)\b[^.?!]{0,40}"
    r"|,? ?(?:please|thanks|thank you|exactly|altogether|in total))[ .!?]*$",
    re.I,
)
# Closing punctuation; after anything but a word or a quotation it may be a message in Morse code.
_END = re.compile(r"(?<=[\w)\]%°\"'\ue000-\ue0ff])[ ?.!,;:]+$")
_NOUN = re.compile(
    r"(?:(?:the|this|these|that|those|a|an|my|all|each)\b ?)*(?:(?:following|given|english|single|whole|entire|two"
    r"|three)"
    r"\b ?)*(?P<noun>words?|names?|phrases?|sentences?|strings?|texts?|terms?|letters?|messages?|quotes?|quotations?|"
    r"titles?|numbers?|numerals?|lists?|items|characters?|expressions?|sequences?|surnames?|passages?|paragraphs?|"
    r"lines?|dates?|symbols?)(?: of (?:words|names|letters|numbers|items))?\b ?:? ?(?P<rest>.+)",
    re.I | re.S,
)
_INSIDE = re.compile(rf"(?:in|of|from) (?={QUOTED})")
_THINGS = _set(
    "the a an this that these those why when where because my your our their his her its it he she they we you i me"
    " them him us each every "
    "some any all most many which what who whose there one's another no somebody someone everyone does do did is are "
    "was were has have can how"
)
_LANGUAGES = _set("english french spanish german italian latin greek russian chinese japanese arabic hindi")
_PRONOUNS = _set("it they them this that these those he she you i we there here what who")
_RELATIVE = _set("of for that which who whose meaning with in from is are was on you i we used people")


_LONG = _set("sentence phrase text message quote quotation title passage paragraph line")
# Words that say what to do rather than belong to what is spoken about, unless that is a whole sentence.
_TALK = re.compile(
    r"\b(?:alphabet\w*|without|separated|backwards?|as a word|as one word|in words|in order|with no|in reverse|sorted"
    r"|(?:end|start|begin|spell(?:ed)?|spelt|written|replaced|changed)s? (?:with|in|by|as|out|to))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Mention:
    """Words spoken about. `strong`: quoted, or announced by a noun ("the word X"), so that hardly another
    reading is possible. `noun` is that noun in the singular or ""; `items` are the parts of a list."""

    text: str
    items: tuple[str, ...]
    strong: bool
    noun: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A question taken apart: its frame, and the quotations that the private characters in it stand for."""

    frame: str
    quotes: tuple[str, ...]

    def plain(self, part: str) -> str:
        """`part` with its quotations put back, without marks."""
        return re.sub(QUOTED, lambda m: self.quotes[ord(m[0]) - _FIRST], part)

    def mention(self, part: str) -> Mention | None:
        """What `part` of the frame mentions, or None when it rather speaks of a thing or mixes both."""
        part = part.strip(" ,;:.!?")
        noun, strong = "", False
        if named := _NOUN.fullmatch(part):
            rest = named["rest"] if part[:4].lower() == "each" else _INSIDE.sub("", named["rest"])
            part, noun, strong = rest.strip(" ,;:.!?"), named["noun"].lower().removesuffix("s"), True
        if not part:
            return None
        quoted = re.findall(QUOTED, part)
        pieces = split(part)
        if quoted:
            if any(not re.fullmatch(QUOTED, piece) for piece in pieces):
                return None
            items = tuple(self.plain(piece) for piece in pieces)
            if len(items) == 1:
                items = split(items[0])
            text = self.plain(part) if len(quoted) == 1 else ", ".join(items)
            return Mention(text, items, True, noun) if text.strip() else None
        if " " in part and noun not in _LONG and _TALK.search(part):
            return None
        first, *_ = words = part.lower().split()
        if not strong and part.lower() in _LANGUAGES:
            return None
        if first in (_RELATIVE if strong else _THINGS) and len(words) > 1:
            return None
        if not strong and (first in _PRONOUNS or re.search(r"'s \w", part) or re.search(r"^[^A-Z].* of ", part)):
            return None
        return Mention(part, pieces, strong, noun)


def split(text: str) -> tuple[str, ...]:
    """The items of a list: between commas or semicolons, else around and/or/versus, else between blanks."""
    if re.search(r"[,;]", text):
        parts = re.split(r"[,;]", text)
        parts = [*parts[:-1], *re.split(r" (?:and|or) ", " " + parts[-1], maxsplit=1)]
    elif re.search(r" (?:and|or|vs\.?|versus) ", text) and len(text.split()) == 3:
        parts = re.split(r" (?:and|or|vs\.?|versus) ", text)
    else:
        parts = text.split()
    parts = [re.sub(r"^\s*(?:and|or) ", "", part).strip(' .!?:"') for part in parts]
    return tuple(part for part in parts if part)


def read(question: str) -> Reading | None:
    """Clean `question` and mask its quotations. None when it is empty, too long or holds private characters."""
    if not question or len(question) > MAX_LENGTH:
        return None
    text = unicodedata.normalize("NFC", question).translate(_MARKS)
    text = " ".join(re.sub(r"(?<![\w*])\*\*([^*]+)\*\*(?![\w*])", r"\1", text).split())
    if re.search("[\ue000-\uf8ff]", text):
        return None
    frame, quotes = _mask(text)
    for _ in range(3):
        frame = _TAIL.sub("", _END.sub("", frame))
    for _ in range(4):
        frame = _LEAD.sub("", frame, count=1) if _LEAD.match(frame) else frame
    frame = _END.sub("", frame).strip()
    return Reading(frame, quotes) if 0 < len(frame) <= MAX_FRAME else None


def _mask(text: str) -> tuple[str, tuple[str, ...]]:
    """Replace quotations by private characters, left to right, in one pass."""
    out: list[str] = []
    quotes: list[str] = []
    last_single = max((m.start() for m in re.finditer(r"(?<=\S)'(?!\w)", text)), default=-1)
    at = 0
    while at < len(text):
        end = _closing(text, at, last_single) if text[at] in "\"'" and len(quotes) < 256 else -1
        if end < 0:
            out.append(text[at])
            at += 1
            continue
        out.append(chr(_FIRST + len(quotes)))
        quotes.append(text[at + 1 : end])
        at = end + 1
    return "".join(out), tuple(quotes)


def _closing(text: str, at: int, last_single: int) -> int:
    """Where the quotation opened at `at` ends, or -1. An apostrophe inside a word opens and closes nothing."""
    mark = text[at]
    if mark == '"':
        end = text.find('"', at + 1)
        return end if end > at + 1 else -1
    if at and text[at - 1].isalnum():
        return -1
    if re.compile(r"'[^\s']'s?(?!\w)").match(text, at):
        return at + 2
    if at >= last_single or text[at + 1 : at + 2].isspace():
        return -1
    found = re.compile(r"(?<=\S)'(?!\w)").search(text, at + 2)
    return found.start() if found else -1


def template(text: str, slots: Mapping[str, str]) -> re.Pattern[str]:
    """A pattern with its slots put in; groups are numbered, since `re` allows a name only once."""
    for slot in (*slots, *slots):  # twice, as a slot may hold another
        text = text.replace(slot, slots[slot])
    seen: Counter[str] = Counter()

    def numbered(match: re.Match[str]) -> str:
        seen[match[1]] += 1
        return f"(?P<{match[1]}__{seen[match[1]]}>"

    return re.compile(re.sub(r"\(\?P<(\w+)>", numbered, text), re.I)


def filled(match: re.Match[str]) -> dict[str, str | None]:
    """The match's groups by slot name; a slot that a pattern offers at several places has the part found."""
    found: dict[str, str | None] = {}
    for name, part in match.groupdict().items():
        slot = name.partition("__")[0]
        found[slot] = found.get(slot) or part
    return found


# --- Numbers ------------------------------------------------------------------------------------------------

_ONES = listed(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = listed("twenty thirty forty fifty sixty seventy eighty ninety")
_SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred"))
_VALUES = (
    {word: n for n, word in enumerate(_ONES)}
    | {word: 10 * n for n, word in enumerate(_TENS, 2)}
    | {word: n for n, word in _SCALES}
    | {"a": 1, "an": 1, "dozen": 12}
)
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fifth": 5, "eighth": 8, "ninth": 9, "twelfth": 12}
_IRREGULAR = {_ONES[n]: word for word, n in _ORDINALS.items()}
_WORDS = "|".join(sorted((w for w in _VALUES if len(w) > 2), key=len, reverse=True))
INTEGER = rf"(?:\d{{1,3}}(?:,\d{{3}})+|\d+|(?:{_WORDS})(?:[ -](?:and )?(?:{_WORDS}))*)"
"""Pattern of a whole number in digits or words; `integer` reads it."""
ORDINAL = (
    r"(?:\d+(?:st|nd|rd|th)|[a-z-]*(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|"
    + (r"twelfth|teenth|tieth)|last|final|middle|(?:second|third|next)(?:[ -]to)?[ -]last|penultimate)")
)
"""Pattern of a place in a row; `place` reads it."""


def integer(text: str) -> int | None:
    """A whole number up to 10**15, in digits ("5,400") or words ("two hundred and five"); None if it is none."""
    text = text.strip().lower()
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+|\d{1,15}", text, re.A):
        return int(text.replace(",", ""))
    total = group = 0
    previous = 0
    words = [word for word in re.split(r"[ -]+", text) if word != "and"]
    for word in words:
        value = _VALUES.get(word)
        if value is None:
            return None
        if value >= 1000:
            total, group = total + max(group, 1) * value, 0
        elif value == 100 or word == "dozen":
            group = max(group, 1) * value
        elif previous and value >= previous and previous < 100:
            return None
        else:
            group += value
        previous = value
    return total + group if words else None


def place(text: str) -> int | None:
    """Where an ORDINAL points: 1 is the first, -1 the last, -2 the one before it, 0 the middle; else None."""
    text = text.strip().lower()
    if digits := re.fullmatch(r"(\d{1,6})(?:st|nd|rd|th)?", text, re.A):
        return int(digits[1]) or None
    if text in {"last", "final"}:
        return -1
    if text == "middle":
        return 0
    if text in {"penultimate"} or re.fullmatch(r"(?:second|next)(?:[ -]to)?[ -]last", text):
        return -2
    if re.fullmatch(r"third(?:[ -]to)?[ -]last", text):
        return -3
    head, _, tail = text.rpartition("-")
    stem = next((w for w in (*_ONES[1:], *_TENS) if _ordinal_word(w) == tail), None)
    number = integer(f"{head} {stem}" if head else stem) if stem else None
    return number or None


def _ordinal_word(word: str) -> str:
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    return word[:-1] + "ieth" if word.endswith("y") else word + "th"


def cardinal(number: int) -> str:
    """`number` in English words with the British "and" ("one hundred and five"); up to 10**15 in size."""
    if number < 0:
        return "minus " + cardinal(-number)
    if number < 20:
        return _ONES[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _TENS[tens - 2] + (f"-{_ONES[ones]}" if ones else "")
    size, name = next((size, name) for size, name in _SCALES if number >= size)
    head, rest = divmod(number, size)
    joint = " and " if rest < 100 else " "
    return f"{cardinal(head)} {name}" + (joint + cardinal(rest) if rest else "")


def ordinal(number: int) -> str:
    """`number` as an ordinal word: 21 is "twenty-first"."""
    text = cardinal(number)
    cut = max(text.rfind(" "), text.rfind("-")) + 1
    return text[:cut] + _ordinal_word(text[cut:])


def show(value: Fraction) -> tuple[str, bool]:
    """`value` as plain decimal digits, and whether they are exact.

    Exact up to 12 decimals; otherwise rounded half to even to 6 significant digits, of which at least two are
    decimals; beyond 10**18 or below 10**-9 in scientific notation.
    """
    if not value:
        return "0", True
    size = abs(value)
    if size >= 10**18 or size < Fraction(1, 10**9):
        text = f"{_scientific(value)}"
        return text, Fraction(text) == value
    places = next((n for n in range(13) if (value * 10**n).denominator == 1), None)
    exact = places is not None
    if places is None:
        whole = len(str(int(size))) if size >= 1 else 1 - len(str(int(1 / size)))
        places = max(2, 6 - whole)
    scaled = round(value * 10**places)
    digits = str(abs(scaled)).rjust(places + 1, "0")
    text = digits[: len(digits) - places] + ("." + digits[len(digits) - places :] if places else "")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return ("-" if scaled < 0 else "") + text, exact


def _scientific(value: Fraction) -> str:
    sign, size, power = ("-" if value < 0 else ""), abs(value), 0
    power = len(str(size.numerator)) - len(str(size.denominator))
    size = size / Fraction(10) ** power
    if size < 1:
        size, power = size * 10, power - 1
    scaled = round(size * 10**5)
    if scaled == 10**6:
        scaled, power = 10**5, power + 1
    digits = str(scaled).rstrip("0")
    return f"{sign}{digits[0]}{'.' + digits[1:] if digits[1:] else ''}e{power:+d}"
