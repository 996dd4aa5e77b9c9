"""What the `lexical` skill makes of a text: another text, a code, a number in words.

Each function takes the filled slots of a question and solves it or declines (None). The pattern table that leads
here, and the conventions, are in `lexical`; codes and ciphers themselves are in `ciphers`.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable

from trinity_core.agents.skills import ciphers
from trinity_core.agents.skills.ciphers import graphemes
from trinity_core.agents.skills.wording import QUOTED, cardinal, integer, ordinal
from trinity_core.agents.skills.wordplay import Run, Slots, consonants, on, vowels
from trinity_core.agents.specialists import Solution

_ALPHABET = string.ascii_lowercase
_SIGNS = {
    "asterisk": "*", "star": "*", "dash": "-", "hyphen": "-", "underscore": "_", "space": " ", "dot": ".",
    "nothing": "", "comma": ",",
}  # fmt: skip


# --- Making another text -------------------------------------------------------------------------------------------


def turn(change: Callable[[str], str | None], working: str) -> Run:
    """A text changed by a pure function."""

    def run(slots: Slots) -> Solution | None:
        mention = slots.mention()
        value = change(mention.text) if mention else None
        return on(mention.text, working, value) if mention and value is not None else None

    return run


def reverse(text: str) -> str:
    """The characters from the last to the first."""
    return "".join(reversed(graphemes(text)))


def reverse_words(text: str) -> str:
    """The words from the last to the first."""
    return " ".join(reversed(text.split()))


def title(text: str) -> str:
    """Every word with a capital, the rest in lower case; an apostrophe starts no word."""
    return re.sub(r"\S+", lambda m: m[0][:1].upper() + m[0][1:].lower(), text)


def joined_case(style: str) -> Callable[[str], str | None]:
    """snake, kebab, camel or pascal case."""

    def change(text: str) -> str | None:
        row = [word.lower() for word in re.findall(r"[A-Za-z0-9]+", text)]
        if not row:
            return None
        if style in {"snake", "kebab"}:
            return ("_" if style == "snake" else "-").join(row)
        head = row[0] if style == "camel" else row[0].capitalize()
        return head + "".join(word.capitalize() for word in row[1:])

    return change


def remove(slots: Slots) -> Solution | None:
    """A text without its vowels, a letter, its first letter, ..."""
    mention, what = slots.mention(), slots["what"].lower()
    if mention is None or (not mention.strong and re.fullmatch(r"[\d., ]+", mention.text)):
        return None  # "8 without 3" is arithmetic
    signs = graphemes(mention.text)
    if at := re.fullmatch(r"(first|last)(?: (\w+))? (?:letter|character)s?", what):
        n = (integer(at[2]) if at[2] else 1) or 0
        kept = signs[n:] if at[1] == "first" else signs[: max(0, len(signs) - n)]
    elif what.startswith("first and last"):
        kept = signs[1:-1]
    elif re.match(r"(?:duplicate|repeated)", what):
        kept = list(dict.fromkeys(signs))
    else:
        tests: dict[str, Callable[[str], bool]] = {
            "v": lambda c: bool(vowels(c)),
            "c": lambda c: bool(consonants(c)),
            "s": str.isspace,
            "d": str.isdecimal,
            "n": str.isdecimal,
            "p": lambda c: unicodedata.category(c[0])[0] == "P",
        }
        piece = slots["a"]
        if piece and len(graphemes(piece)) > 1:
            return on(
                mention.text, f'without "{piece}"', re.sub(re.escape(piece), "", mention.text, flags=re.I).strip()
            )
        test = tests[what[0]] if not piece else (lambda c: c.casefold() == piece.casefold())
        kept = [c for c in signs if not test(c)]
    value = "".join(kept)
    return on(mention.text, f"{len(signs) - len(kept)} of {len(signs)} characters taken out", value or "(nothing)")


def replace(slots: Slots) -> Solution | None:
    """Every occurrence of a letter, a string or the vowels replaced; a capital stays a capital."""
    mention, old, new = slots.mention(), slots["a"], slots["b"]
    new = _SIGNS.get(new.lower().removesuffix("s"), new)
    if mention is None or (not old and not slots["what"]):
        return None
    pattern = re.escape(old) if old else "[aeiou]" if slots["what"].lower().startswith("v") else "(?![aeiou])[a-z]"
    found = len(re.findall(pattern, mention.text, re.I))
    if slots["what"].lower().startswith("space"):
        pattern, found = " ", mention.text.count(" ")

    def put(match: re.Match[str]) -> str:
        return new.upper() if match[0].isupper() and len(new) == 1 and not old.isupper() else new

    return on(mention.text, f"{found} replaced", re.sub(pattern, put, mention.text, flags=re.I))


def replace_end(slots: Slots) -> Solution | None:
    """The first or last letter replaced."""
    mention, new = slots.mention(), slots["b"]
    signs = graphemes(mention.text) if mention else []
    if mention is None or not signs:
        return None
    value = new + "".join(signs[1:]) if slots["o"].lower() == "first" else "".join(signs[:-1]) + new
    return on(mention.text, f"its {slots['o'].lower()} letter replaced", value)


def repeat(slots: Slots) -> Solution | None:
    """A text n times: words apart by blanks (unless "no spaces"), other strings joined."""
    mention, n = slots.mention(), {"twice": 2, "thrice": 3}.get(slots["n"].lower()) or integer(slots["n"])
    if mention is None or not n or n * len(mention.text) > 2000:
        return None
    sep = {"s": " ", "c": ", ", "h": "-", "d": "-", "w": ""}[
        (slots["sep"] or ("s" if mention.noun in {"word", "name", "phrase", "sentence"} else "w"))[0].lower()
    ]
    return on(mention.text, f"{n} times", sep.join([mention.text] * n))


def concatenate(slots: Slots) -> Solution | None:
    """Two or more texts joined without a blank, or with what the question names."""
    one, two = slots.mention(), slots.mention("v") if slots["v"] else None
    several = len(re.findall(QUOTED, slots.found.get("w") or "")) > 1 or not slots["v"]
    items = () if one is None else one.items if several else (one.text,)
    items = (*items, two.text) if two else items
    sure = slots["verb"].lower().startswith("concat") or all(m is None or m.strong for m in (one, two))
    if len(items) < 2 or not sure:
        return None
    if slots["end"].lower() in {"end", "back"}:
        items = items[::-1]
    sep = {"s": " ", "h": "-", "d": "-", "u": "_", "c": ","}.get(slots["sep"][:1].lower(), "")
    return Solution(sep.join(items), f"{' + '.join(items)[:80]} joined.")


# --- Codes and numbers ---------------------------------------------------------------------------------------------


def spell(slots: Slots) -> Solution | None:
    """A word letter by letter; a number in words."""
    mention = slots.mention()
    if mention is None or " " in mention.text:
        return None
    if re.search(r"\d", mention.text):
        return number_words(slots)
    return on(mention.text, "letter by letter", "-".join(graphemes(mention.text)))


def number_words(slots: Slots) -> Solution | None:
    """A number or an ordinal in English words."""
    mention = slots.mention()
    text = mention.text if mention else ""
    if found := re.fullmatch(r"(\d{1,6})(?:st|nd|rd|th)", text, re.A):
        return on(text, "as an ordinal in words", ordinal(int(found[1])))
    number = integer(text.removeprefix("-")) if re.fullmatch(r"-?[\d,]+", text, re.A) else None
    if number is None:
        return None
    number = -number if text.startswith("-") else number
    value = ordinal(number) if "ordinal" in slots["form"].lower() and number > 0 else cardinal(number)
    return on(text, 'in words, with the British "and"', value)


def number_digits(slots: Slots) -> Solution | None:
    """A number in digits, from words or a Roman numeral."""
    mention = slots.mention()
    if mention is None or re.search(r"\d", mention.text):
        return None
    roman = ciphers.from_roman(mention.text) if mention.text.isupper() or mention.noun == "numeral" else None
    value = roman if roman is not None else integer(mention.text)
    return None if value is None else on(mention.text, "as a number in digits", value)


def roman_from(slots: Slots) -> Solution | None:
    """The value of a Roman numeral."""
    text = slots["w"].strip()
    if len(text) == 1 and "roman" not in slots.reading.frame.lower():
        return None  # "the value of X" is algebra
    number = ciphers.from_roman(text)
    return None if number is None else on(text, "read as a Roman numeral", number)


def roman_to(slots: Slots) -> Solution | None:
    """A number from 1 to 3999 as a Roman numeral."""
    mention = slots.mention()
    number = integer(mention.text) if mention else None
    value = ciphers.to_roman(number) if number is not None else None
    return on(mention.text, "in Roman numerals", value) if mention and value else None


def alphabet_numbers(text: str) -> str | None:
    """The places of a word's letters in the alphabet."""
    row = [_ALPHABET.find(c) + 1 for c in text.lower() if not c.isspace()]
    return " ".join(map(str, row)) if row and 0 not in row else None


def char_code(slots: Slots) -> Solution | None:
    """The ASCII code or the Unicode code point of a character."""
    sign = slots["a"]
    if len(sign) != 1:
        return None
    if "unicode" in slots["code"].lower() or "code point" in slots["code"].lower():
        return on(sign, "its Unicode code point", f"U+{ord(sign):04X}")
    return on(sign, "its ASCII code", ord(sign)) if sign.isascii() else None


def char_from(slots: Slots) -> Solution | None:
    """The printable character of an ASCII code."""
    code = integer(slots["n"])
    if code is None or not 33 <= code <= 126:
        return None
    return Solution(chr(code), f"ASCII code {code} is the character {chr(code)}.")


def caesar(slots: Slots) -> Solution | None:
    """A Caesar shift: forward to encode, back to decode or when the question says left or back."""
    mention, how, verb = slots.mention(), slots["how"].lower(), slots["verb"].lower()
    numbers = [
        n for word in re.findall(r"-?\d+|[a-z]+", how) if (n := integer(word.lstrip("-"))) and word not in {"a", "an"}
    ]
    if mention is None or len(numbers) != 1 or not any(c.isalpha() for c in mention.text):
        return None
    said = re.search("caesar|cipher|letter|crypt|code|apply|use", f"{verb} {how} {slots.reading.frame.lower()}")
    if not (mention.strong or mention.text.isupper() or said):
        return None  # "shift gears by 2"
    back = bool(re.search(r"\b(?:left|back|backwards?|down)\b|-\d", how)) != (verb[:2] in {"de", "un"})
    shift = -numbers[0] if back else numbers[0]
    value = ciphers.caesar(mention.text, shift)
    return on(mention.text, f"every letter moved {shift:+d} places along the alphabet, wrapping", value)


def decode(slots: Slots) -> Solution | None:
    """A quotation, or signs that only a code has, read by the code that the question names."""
    frame = slots.found.get("frame") or ""
    quoted = re.findall(QUOTED, frame)
    signs = re.findall(r"(?:[.\-·•−–—_]+(?:[ /|]+|$)){1,200}|(?:\b[01]{7,8}\b ?){1,99}", re.sub(r"\w-\w", "", frame))
    texts = [slots.reading.plain(q) for q in quoted] or [s.strip() for s in signs if s.strip()]
    if len(texts) != 1:
        return None
    codes: tuple[tuple[str, Callable[[str], str | None]], ...] = (
        ("Morse", ciphers.from_morse),
        ("binary", ciphers.from_binary),
        ("ASCII", ciphers.from_binary),
        ("ROT13", lambda text: ciphers.caesar(text, 13)),
        ("Atbash", ciphers.atbash),
    )
    for name, change in codes:
        if name.lower() in re.sub(r"rot[ -]13", "rot13", frame.lower()) and (value := change(texts[0])) is not None:
            return on(texts[0], f"read as {name}", value)
    return None
