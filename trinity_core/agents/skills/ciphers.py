"""Codes and ciphers on plain strings: graphemes, Caesar, Atbash, Morse, binary, Roman numerals, pig latin.

Pure functions; each returns None when the text cannot be written in the code. Letters are A to Z; everything
else passes through a cipher unchanged. Morse is International Morse (ITU-R M.1677-1).
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

from trinity_core.agents.skills.wording import listed

_MORSE = dict(
    zip(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,?'/()\":=+-@",
        listed(
            ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- -..- -.-- "
            "--.. ----- .---- ..--- ...-- ....- ..... -.... --... ---.. ----. .-.-.- --..-- ..--.. .----. -..-. "
            "-.--. -.--.- .-..-. ---... -...- .-.-. -....- .--.-."
        ),
        strict=True,
    )
)
_FROM_MORSE = {code: sign for sign, code in _MORSE.items()}
_ROMAN = tuple(
    zip(
        (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
        listed("M CM D CD C XC L XL X IX V IV I"),
        strict=True,
    )
)
_JOINER = "\u200d"


def graphemes(text: str) -> list[str]:
    """What a reader sees as single characters: marks, variation selectors, skin tones, joined emoji and flags
    stay with their base (a compact form of the rules of UAX 29)."""
    clusters: list[str] = []
    for sign in unicodedata.normalize("NFC", text):
        previous = clusters[-1] if clusters else ""
        extends = (
            unicodedata.category(sign) in {"Mn", "Me", "Mc"}
            or sign == _JOINER
            or 0x1F3FB <= ord(sign) <= 0x1F3FF
            or 0xE0020 <= ord(sign) <= 0xE007F
            or previous.endswith(_JOINER)
            or (_flag(sign) and len(previous) == 1 and _flag(previous))
        )
        if extends and previous:
            clusters[-1] += sign
        else:
            clusters.append(sign)
    return clusters


def _flag(sign: str) -> bool:
    return 0x1F1E6 <= ord(sign) <= 0x1F1FF


def caesar(text: str, shift: int) -> str:
    """Each letter A to Z moved `shift` places along the alphabet, wrapping; case kept."""
    return "".join(chr((ord(c) - base + shift) % 26 + base) if (base := _base(c)) else c for c in text)


def atbash(text: str) -> str:
    """A for Z, B for Y and so on; case kept."""
    return "".join(chr(2 * base + 25 - ord(c)) if (base := _base(c)) else c for c in text)


def _base(sign: str) -> int:
    return 65 if "A" <= sign <= "Z" else 97 if "a" <= sign <= "z" else 0


def to_morse(text: str) -> str | None:
    """Letters apart by a blank, words by " / "."""
    words = [[_MORSE.get(sign) for sign in word] for word in text.upper().split()]
    if not words or any(code is None for word in words for code in word):
        return None
    return " / ".join(" ".join(code for code in word if code) for word in words)


def from_morse(text: str) -> str | None:
    """Capital letters. Takes · • – — _ for dots and dashes, and / or | between words."""
    text = text.translate(str.maketrans("·•∙*–—−_|", "....----/"))
    words = [word.split() for word in text.split("/")]
    if not re.fullmatch(r"[.\-/\s]+", text) or any(c not in _FROM_MORSE for word in words for c in word):
        return None
    return " ".join("".join(_FROM_MORSE[code] for code in word) for word in words).strip()


def to_binary(text: str) -> str | None:
    """ASCII characters as eight binary digits each, apart by blanks."""
    return " ".join(f"{ord(c):08b}" for c in text) if text and text.isascii() else None


def from_binary(text: str) -> str | None:
    """The ASCII text of groups of seven or eight binary digits."""
    packed = re.sub(r"[\s,]+", "", text)
    groups = text.replace(",", " ").split()
    if len(groups) == 1 and len(packed) % 8 == 0:
        groups = [packed[at : at + 8] for at in range(0, len(packed), 8)]
    if not groups or any(not re.fullmatch(r"[01]{7,8}", group) for group in groups):
        return None
    plain = "".join(chr(int(group, 2)) for group in groups)
    return plain if plain.isascii() and plain.isprintable() else None


def to_roman(number: int) -> str | None:
    """1 to 3999 in capitals."""
    if not 1 <= number <= 3999:
        return None
    out = ""
    for value, sign in _ROMAN:
        out += sign * (number // value)
        number %= value
    return out


def from_roman(text: str) -> int | None:
    """The number of a Roman numeral in its usual form; None for "IIII", "VX" or other words."""
    values = dict(zip("IVXLCDM", (1, 5, 10, 50, 100, 500, 1000), strict=True))
    text = text.upper()
    if not text or len(text) > 15 or any(sign not in values for sign in text):
        return None
    row = [values[sign] for sign in text] + [0]
    number = sum(-a if a < b else a for a, b in pairwise(row))
    return number if to_roman(number) == text else None


def pig_latin(text: str) -> str | None:
    """Words beginning with a vowel take "way", others move their leading consonants (qu as one) and take "ay"."""
    if not re.fullmatch(r"[A-Za-z' ,.!?-]+", text):
        return None

    def turn(match: re.Match[str]) -> str:
        word = match[0]
        onset = re.match(r"(?:[^aeiouy]*qu|y?[^aeiouy]*)", word, re.I)
        cut = onset.end() if onset else 0
        head, tail = word[:cut], word[cut:]
        if word.isupper() and len(word) > 1:
            return tail + head + ("AY" if head else "WAY")
        turned = tail + head.lower() + ("ay" if head else "way")
        return turned[0].upper() + turned[1:] if word[0].isupper() else turned

    return re.sub(r"[A-Za-z']+", turn, text)
