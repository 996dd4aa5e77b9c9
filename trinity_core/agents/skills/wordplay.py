"""What the `lexical` skill computes: each function takes the filled slots of a question and solves it or declines.

The pattern table that leads here, and the conventions, are in `lexical`; codes and ciphers are in `ciphers`.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as replace_frame

from trinity_core.agents.skills.ciphers import graphemes
from trinity_core.agents.skills.wording import Mention, Reading, cardinal, integer, place, split
from trinity_core.agents.specialists import Solution

_ALPHABET = string.ascii_lowercase
_CAPITALS = string.ascii_uppercase


@dataclass(frozen=True, slots=True)
class Slots:
    """The filled slots of a matched pattern; an absent slot reads as the empty string.

    `inner` solves a part that is itself a question ("the longest word of ..."), or gives None."""

    reading: Reading
    found: dict[str, str | None]
    inner: Callable[[Reading], Solution | None]

    def __getitem__(self, name: str) -> str:
        """A slot's text with quotations put back."""
        return self.reading.plain(self.found.get(name) or "")

    def mention(self, name: str = "w") -> Mention | None:
        part = (self.found.get(name) or "").strip()
        if re.fullmatch(r"(?:the )?(?:english |latin |modern )*alphabet", part, re.I):
            return Mention(_CAPITALS, (_CAPITALS,), True, "word")
        mention = self.reading.mention(part)
        if mention is None and part.lower().startswith("the "):
            found = self.inner(replace_frame(self.reading, frame=f"what is {part}"))
            mention = Mention(found.value, split(found.value), True, "word") if found else None
        return mention


Run = Callable[[Slots], Solution | None]


def on(text: str, working: str, value: object) -> Solution:
    """A solution; `working` is shown after the text it speaks of."""
    shown = text if len(text) <= 60 else text[:57] + "..."
    return Solution(str(value), f'"{shown}": {working}.')


def yes(truth: bool) -> str:
    """The value of a question with yes or no."""
    return "Yes" if truth else "No"


# --- What a text consists of ----------------------------------------------------------------------------------


def base(sign: str) -> str:
    """The base letter of a sign in lower case: É gives e."""
    return unicodedata.normalize("NFD", sign)[0].lower()


def vowels(text: str) -> list[str]:
    """The vowels of a text."""
    return [c for c in graphemes(text) if base(c) in "aeiou"]


def letters(text: str) -> list[str]:
    """The letters of a text."""
    return [c for c in graphemes(text) if c[0].isalpha()]


def consonants(text: str) -> list[str]:
    """The consonants of a text."""
    return [c for c in letters(text) if base(c) not in "aeiou"]


def words(text: str) -> list[str]:
    """Words without the punctuation around them; hyphens and apostrophes inside belong to the word."""
    stripped = (re.sub(r"^[\W_]+|[\W_]+$", "", word) for word in text.split())
    return [word for word in stripped if word]


def _different(parts: list[str]) -> list[str]:
    return sorted({part.casefold() for part in parts})


KINDS: dict[str, tuple[str, Callable[[str], list[str]]]] = {
    "vowels": (r"vowels?(?: letters?)?", vowels),
    "consonants": (r"consonants?", consonants),
    "capital letters": (
        r"(?:capital|upper ?case|capitali[sz]ed) (?:letters?|characters?)|capitals",
        lambda text: [c for c in graphemes(text) if c[0].isupper()],
    ),
    "lowercase letters": (
        r"(?:small|lower ?case) (?:letters?|characters?)",
        lambda text: [c for c in graphemes(text) if c[0].islower()],
    ),
    "digits": (r"digits?", lambda text: [c for c in text if c.isdecimal()]),
    "different letters": (
        r"(?:unique|distinct|different)(?: \w+)? (?:letters?|characters?)",
        lambda text: _different(letters(text)),
    ),
    "different vowels": (r"(?:unique|distinct|different) vowels?", lambda text: _different(vowels(text))),
    "different words": (r"(?:unique|distinct|different) words?", lambda text: _different(words(text))),
    "letters": (r"(?:\w*alphabetic )?letters?", letters),
    "words": (r"words?", words),
    "characters": (r"(?:characters?|chars?|symbols?)", graphemes),
    "spaces": (r"(?:spaces?|blanks?)", lambda text: [c for c in text if c == " "]),
    "punctuation marks": (
        r"punctuation(?: marks?| characters?| symbols?)?",
        lambda text: [c for c in text if unicodedata.category(c)[0] == "P"],
    ),
    "emoji": (r"emojis?", lambda text: [c for c in graphemes(text) if unicodedata.category(c[0]) == "So"]),
}
"""Kinds that can be counted: name, pattern, and the function that lists them."""

# "How many words does Hamlet have?" asks about a play, so these kinds need a quotation or "the sentence ...".
_NEED_STRONG = {"words", "different words", "characters", "spaces", "punctuation marks", "emoji"}


def _listing(parts: list[str]) -> str:
    return " ".join([*parts[:30], "..."] if len(parts) > 30 else parts) or "none"


def _written(slots: Slots, text: str) -> str:
    """The text, a number being written in words when the question asks for that."""
    number = integer(text) if slots["so"] and re.fullmatch(r"[\d,]+", text) else None
    return text if number is None else cardinal(number)


def count_kind(name: str) -> Run:
    """How many of a kind of KINDS a text has."""

    def run(slots: Slots) -> Solution | None:
        mention = slots.mention()
        if mention is None or (name in _NEED_STRONG and not mention.strong):
            return None
        text = _written(slots, mention.text)
        if name == "letters" and re.fullmatch(r"\d[\d., ]*", text):
            digits = [c for c in text if c.isdecimal()]
            return on(text, f"no letters; its digits are counted instead: {_listing(digits)}", len(digits))
        if not mention.strong and (name == "digits") != bool(re.search(r"\d", text)):
            return None
        if re.search(
            r"(?:without|not counting|not including|excluding|ignoring)[\w ]* (?:spaces|blanks)", slots["but"]
        ):
            text = text.replace(" ", "")
        parts = KINDS[name][1](text)
        note = " (blanks count)" if name == "characters" and " " in text else ""
        return on(text, f"{name}: {_listing(parts)}{note}", len(parts))

    return run


def count_piece(slots: Slots) -> Solution | None:
    """A letter or a quoted string in a text; a quoted word among several words is counted as a word."""
    mention, piece = slots.mention(), slots["a"]
    if mention is None or not piece.strip() or (not mention.strong and re.search(r"\d", mention.text)):
        return None
    text, case = _written(slots, mention.text), slots["case"].lower()
    if case:
        piece = piece.upper() if case[0] in "uc" else piece.lower()
    fold: Callable[[str], str] = str if case else str.casefold
    if len(graphemes(piece)) == 1:
        signs = [f"[{c}]" if fold(c) == fold(piece) else c for c in graphemes(text)]
        hits = sum(fold(c) == fold(piece) for c in graphemes(text))
        shown = "".join(signs) if len(text) <= 80 else f"{len(signs)} characters"
        return Solution(str(hits), f'"{piece}"{"" if case else " in either case"} in {shown}: {hits}.')
    listed = [fold(word) for word in words(text)]
    if len(listed) > 1 and fold(piece) in listed:
        return on(text, f'the word "{piece}" among its {len(listed)} words', listed.count(fold(piece)))
    hits = len(re.findall(f"(?={re.escape(fold(piece))})", fold(text)))
    return on(text, f'"{piece}" found {hits} times, overlaps included', hits)


def list_kind(name: str) -> Run:
    """The vowels, consonants, ... of a text in their order."""

    def run(slots: Slots) -> Solution | None:
        mention = slots.mention()
        parts = KINDS[name][1](mention.text) if mention and mention.strong else []
        return on(mention.text, f"{len(parts)} {name}", ", ".join(parts)) if mention and parts else None

    return run


def _ranked(parts: list[str], most: bool) -> tuple[list[str], int]:
    counts = Counter(part.casefold() for part in parts)
    best = (max if most else min)(counts.values())
    return [part for part in counts if counts[part] == best], best


def commonest(slots: Slots) -> Solution | None:
    """The letter (or vowel, consonant, word) that appears most often; all of them when tied."""
    mention = slots.mention()
    if mention is None or (slots["unit"] == "word" and not mention.strong):
        return None
    parts = units(slots["unit"].lower(), mention.text)
    if not parts:
        return None
    best, times = _ranked(parts, most=slots["rank"].lower() != "least")
    return on(mention.text, f"{', '.join(best)} appears {times} times", ", ".join(best))


# --- Parts and places -------------------------------------------------------------------------------------------


def units(unit: str, text: str) -> list[str]:
    unit = unit.removesuffix("s")
    split = {"letter": letters, "character": graphemes, "word": words, "vowel": vowels, "consonant": consonants}
    if unit == "letter" and not any(c.isalpha() for c in text):
        return graphemes(text)
    return split[unit](text) if unit in split else [c for c in text if c.isdecimal()]


def nth(slots: Slots) -> Solution | None:
    """The nth (or last, middle, ...) letter, word, vowel, ... of a text."""
    mention, unit = slots.mention(), slots["unit"].lower() or "letter"
    edge = {"st": 1, "be": 1, "fr": 1, "en": -1, "fi": -1}
    at = edge[slots["edge"][:2].lower()] if slots["edge"] else place(slots["o"] or slots["n"])
    if mention is None or at is None or (unit == "word" and not mention.strong):
        return None
    at = -at if slots["end"] else at
    if not mention.strong and unit != "digit" and re.search(r"\d", mention.text):
        return None
    parts = list(mention.items) if unit in {"item", "element"} else units(unit, mention.text)
    if at == 0:
        middle = parts[(len(parts) - 1) // 2 : len(parts) // 2 + 1]
        return on(mention.text, f"the middle of {len(parts)}", "".join(middle)) if middle else None
    if abs(at) > len(parts):
        return on(mention.text, f"it has only {len(parts)} {unit}s", "There is none")
    value = parts[at - 1 if at > 0 else at]
    return on(mention.text, f"{unit} {at if at > 0 else len(parts) + 1 + at} of {len(parts)}", value)


def stretch(slots: Slots) -> Solution | None:
    """The first or last n letters or words."""
    mention, unit, n = slots.mention(), slots["unit"].lower().removesuffix("s"), integer(slots["n"])
    if mention is None or n is None or n < 1 or (unit == "word" and not mention.strong):
        return None
    parts = units(unit, mention.text)
    kept = parts[:n] if slots["o"].lower() == "first" else parts[-n:]
    return on(mention.text, f"the {slots['o'].lower()} {n} {unit}s", (" " if unit == "word" else "").join(kept))


def position(slots: Slots) -> Solution | None:
    """Where a letter (or a word) stands in a text, counted from 1; letters alone are counted."""
    mention, piece = slots.mention(), slots["a"].casefold()
    if mention is None or not piece:
        return None
    text = mention.text
    parts = units("letter" if len(graphemes(piece)) == 1 else "word", text)
    places = [n for n, part in enumerate(parts, 1) if part.casefold() == piece]
    if not places and piece in text.casefold():
        places = [text.casefold().index(piece) + 1]
    if not places:
        return on(text, f'"{piece}" is not in it', "It is not there")
    listed = ", ".join(map(str, places))
    value = listed if slots["all"] else places[-1] if slots["o"].lower() == "last" else places[0]
    return on(text, f'"{slots["a"]}" stands at {listed}, counted from 1', value)


def edge_letters(slots: Slots) -> Solution | None:
    """The first letters of the words. An acronym leaves small joining words out."""
    mention = slots.mention()
    listed = words(mention.text) if mention else []
    if mention is None or len(listed) < 2:
        return None
    if "acronym" in slots["what"].lower():
        listed = [word for word in listed if word not in {"of", "the", "and", "for", "in", "a", "an", "to", "on"}]
    initials = "".join(graphemes(word)[-1 if slots["o"].lower() == "last" else 0] for word in listed)
    value = initials if slots["o"] else initials.upper()
    return on(mention.text, f"one letter of each of {len(listed)} words", value)


# --- Alphabet -----------------------------------------------------------------------------------------------------


def alphabet_place(slots: Slots) -> Solution | None:
    """A = 1 to Z = 26."""
    sign, frame = slots["a"].lower(), slots.reading.frame
    if (
        len(sign) != 1
        or sign not in _ALPHABET
        or not re.search(r"(?i)alphabet|letter|\ba ?(?:=|is) ?1|[\ue000]", frame)
    ):
        return None
    n = _ALPHABET.index(sign) + 1
    n = 27 - n if slots["end"] else n
    return Solution(str(n), f"{sign.upper()} is letter {n} of 26{' from the end' if slots['end'] else ''}.")


def alphabet_letter(slots: Slots) -> Solution | None:
    """The letter at a place of the alphabet, counted from either end."""
    at = place(slots["o"]) if slots["o"] else integer(slots["n"])
    if at is None or not 1 <= abs(at) <= 26:
        return None
    at = at if at > 0 else 27 + at
    return Solution(_CAPITALS[at - 1], f"Letter {at} of 26 is {_CAPITALS[at - 1]}.")


def alphabet_near(slots: Slots) -> Solution | None:
    """The letter n places before or after another; none beyond the ends of the alphabet."""
    sign, n = slots["a"].lower(), integer(slots["n"]) if slots["n"] else 1
    if len(sign) != 1 or sign not in _ALPHABET or n is None:
        return None
    at = _ALPHABET.index(sign) + (-n if slots["way"].lower() in {"before", "precedes"} else n)
    if not 0 <= at < 26:
        return None
    value = _ALPHABET[at] if slots["a"].islower() else _ALPHABET[at].upper()
    return Solution(value, f"{sign.upper()} is letter {_ALPHABET.index(sign) + 1}, so this is letter {at + 1}.")


def alphabet_between(slots: Slots) -> Solution | None:
    """How many letters stand between two letters, neither counted."""
    ends = [_ALPHABET.find(slots[name].lower()) if len(slots[name]) == 1 else -1 for name in "ab"]
    if -1 in ends:
        return None
    inside = _CAPITALS[min(ends) + 1 : max(ends)]
    return Solution(str(len(inside)), f"Between them: {_listing(list(inside))}.")


def letter_sum(slots: Slots) -> Solution | None:
    """The sum of the letters' places in the alphabet."""
    mention = slots.mention()
    values = [_ALPHABET.find(c) + 1 for c in mention.text.lower() if c.isalpha()] if mention else []
    if mention is None or not values or 0 in values:
        return None
    return on(mention.text, f"{' + '.join(map(str, values[:40]))} with A = 1 to Z = 26", sum(values))


def digit_sum(slots: Slots) -> Solution | None:
    """The sum of the digits of a number."""
    mention = slots.mention()
    digits = [int(c) for c in mention.text if c.isdecimal()] if mention else []
    if mention is None or not digits or not re.fullmatch(r"[\d,. ]+", mention.text):
        return None
    return on(mention.text, " + ".join(map(str, digits[:40])), sum(digits))


def vowel_or_consonant(slots: Slots) -> Solution | None:
    """Whether a letter is a vowel."""
    sign = slots["a"]
    if len(graphemes(sign)) != 1 or not sign.isalpha():
        return None
    vowel = bool(vowels(sign))
    kind = "vowel" if vowel else "consonant"
    value = kind if " or " in slots["kind"] else yes(kind in slots["kind"].lower())
    return Solution(value, f"{sign} is a {kind} (the vowels are a, e, i, o, u).")


# --- Questions with yes or no, and comparisons --------------------------------------------------------------------


def _bare(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())


def palindrome(slots: Slots) -> Solution | None:
    """Whether letters and digits read the same both ways."""
    mention = slots.mention()
    key = _bare(mention.text) if mention else ""
    if mention is None or not key:
        return None
    back = "".join(reversed(graphemes(key)))
    return on(mention.text, f"letters backwards: {back[:60]}", yes(back == key))


def pangram(slots: Slots) -> Solution | None:
    """Whether all 26 letters appear."""
    mention = slots.mention()
    if mention is None:
        return None
    missing = [c for c in _ALPHABET if c not in {base(c) for c in mention.text}]
    return on(mention.text, f"missing letters: {_listing(missing)}", yes(not missing))


def isogram(slots: Slots) -> Solution | None:
    """Whether no letter repeats."""
    mention = slots.mention()
    if mention is None:
        return None
    repeated = [c for c, n in Counter(letters(mention.text.casefold())).items() if n > 1]
    return on(mention.text, f"repeated letters: {_listing(repeated)}", yes((not repeated) != bool(slots["repeat"])))


def anagram(slots: Slots) -> Solution | None:
    """Whether two texts have the same letters, each as often, and are not the same word."""
    one = slots.mention()
    items = one.items if one and not slots["v"] else ()
    two = slots.mention("v") if slots["v"] else None
    pair = (one.text, two.text) if one and two else items
    if len(pair) != 2:
        return None
    first, second = (sorted(_bare(text)) for text in pair)
    same = first == second and _bare(pair[0]) != _bare(pair[1])
    return Solution(yes(same), f"Sorted letters: {''.join(first)[:60]} and {''.join(second)[:60]}.")


def affix(slots: Slots) -> Solution | None:
    """Whether a text starts with, ends with or contains a letter or a string."""
    mention, piece, verb = slots.mention(), slots["a"].casefold(), slots["verb"].lower()
    if mention is None or not piece.strip():
        return None
    text = mention.text.casefold()
    if piece in {"vowel", "consonant"}:
        edge = letters(text)[0 if verb[0] in "sb" else -1 :][:1]
        test = bool(vowels("".join(edge)) if piece == "vowel" else consonants("".join(edge)))
        return on(mention.text, f"that letter is {_listing(edge)}", yes(test))
    truth = text.startswith(piece) if verb[0] in "sb" else text.endswith(piece) if verb[0] in "ef" else piece in text
    return on(mention.text, f'"{piece}" is {"" if truth else "not "}there', yes(truth))


def sort_key(text: str) -> tuple[str, str]:
    """Base letters first, then the text itself."""
    return "".join(base(c) for c in text if c.isalnum() or c == " "), text


def longest(slots: Slots) -> Solution | None:
    """The longest or shortest word (by letters) of a list or sentence; all of them when tied."""
    mention, rank = slots.mention(), slots["rank"].lower().removeprefix("the ")
    if mention is None or not (mention.strong or slots["named"] or slots["kind"]):
        return None
    sentence = mention.noun in {"sentence", "phrase"} or not re.search(r"[,;]", mention.text)
    listed = words(mention.text) if sentence and len(mention.items) != 2 else list(mention.items)
    if len(listed) < 2:
        return None
    kind = next(
        (name for name, (pattern, _) in KINDS.items() if re.fullmatch(pattern, slots["kind"], re.I)), "letters"
    )
    sizes = {word: len(KINDS[kind][1](word)) for word in listed}
    best = (max if rank in {"longest", "longer", "most", "more"} else min)(sizes.values())
    value = ", ".join(word for word, size in sizes.items() if size == best)
    return Solution(value, f"{kind.capitalize()}: {', '.join(f'{w} {n}' for w, n in list(sizes.items())[:12])}.")


def compare(slots: Slots) -> Solution | None:
    """Whether one text has more (fewer) letters, vowels, ... than another, or by how many."""
    one, two, kind = slots.mention(), slots.mention("v"), slots["kind"] or "letters"
    if one is None or two is None or not (slots["kind"] or (one.strong and two.strong)):
        return None
    parts = next((parts for pattern, parts in KINDS.values() if re.fullmatch(pattern, kind, re.I)), letters)
    a, b = len(parts(one.text)), len(parts(two.text))
    working = f"{kind.capitalize()}: {one.text[:40]} {a}, {two.text[:40]} {b}."
    more = slots["rank"].lower() in {"more", "longer"}
    if slots["by"]:
        gap = a - b if more else b - a
        return Solution(str(gap), working)
    return Solution(yes(a > b if more else a < b), working)


def alphabetical_end(slots: Slots) -> Solution | None:
    """Which item comes first or last in alphabetical order."""
    mention = slots.mention()
    items = mention.items if mention else ()
    items = tuple(item for item in items if item.lower() not in {"or", "and"})
    if len(items) < 2:
        return None
    row = sorted(items, key=sort_key)
    return Solution(row[-1 if slots["rank"].lower() == "last" else 0], f"In order: {', '.join(row[:20])}.")


def alphabetical_before(slots: Slots) -> Solution | None:
    """Whether one word comes before (after) another."""
    one, two = slots.mention(), slots.mention("v")
    if one is None or two is None:
        return None
    before = sort_key(one.text) < sort_key(two.text)
    row = sorted((one.text, two.text), key=sort_key)
    return Solution(yes(before == (slots["way"].lower() == "before")), f"In order: {', '.join(row)}.")


_RULES = r"alphab|ascend|descend|creas|length|lexico|numeric|a-z|z-a|a to z|z to a|dictionary|\bsort |^order|^rank"
_ORDERS = (
    "revers|backward|alphab|order|ascend|descend|creas|length|lexico|numeric|a to z|z to a|a-z|z-a|est (?:to|first)"
)


def sort_items(slots: Slots) -> Solution | None:
    """A list in alphabetical order, by length, or (all numbers) by size; ascending unless asked otherwise."""
    mention, how = slots.mention(), slots["how"].lower()
    if mention is None or len(mention.items) < 2 or not re.match(rf"$|.*(?:{_ORDERS})", how):
        return None
    if re.search("revers|backward", how) and not re.search(_RULES, f"{how} {slots.reading.frame.lower()}"):
        return None  # the order of the list itself reversed: not a question of sorting
    falling = bool(
        re.search(r"reverse|descend|decreas|z to a|z-a|backward|longest (?:to|first)|largest (?:to|first)", how)
    )
    items = list(mention.items)
    numbers = [float(i) for i in items if re.fullmatch(r"-?\d{1,15}(?:\.\d{1,15})?", i)]
    if len(numbers) == len(items) and "alphabet" not in how:
        row, by = sorted(items, key=float, reverse=falling), "size"
    elif re.search(r"length|longest|shortest", how):
        row, by = sorted(items, key=lambda i: len(graphemes(i)), reverse=falling), "length"
    else:
        row, by = sorted(items, key=sort_key, reverse=falling), "the alphabet"
    listed = re.search(r"[,;]", mention.text) or " " in "".join(items) or len(items) == 2
    return Solution(
        (", " if listed else " ").join(row), f"Sorted by {by}, {'descending' if falling else 'ascending'}."
    )


def sort_letters(slots: Slots) -> Solution | None:
    """The letters of a word in alphabetical order."""
    mention = slots.mention()
    row, how = letters(mention.text) if mention else [], slots["how"].lower()
    if mention is None or not row:
        return None
    if re.search("revers|backward", how) and not re.search(_RULES, f"{how} {slots.reading.frame.lower()}"):
        return None  # "in reverse order": the letters backwards
    falling = bool(re.search(r"reverse|descend|z to a|z-a", how))
    value = "".join(sorted(row, key=sort_key, reverse=falling))
    return on(mention.text, f"its letters sorted, {'descending' if falling else 'ascending'}", value)
