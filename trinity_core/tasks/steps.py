"""The steps of which the two-step questions are made, and how each is worded.

A `First` asks for something and yields a value; a `Second` asks for something about "that number", "that word" or
"it". Both have question forms (`ask`, with their question mark) and commands (`do`, without a full stop). Answers are
worked out in plain Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from trinity_core.tasks.knowledge import KINDS
from trinity_core.tasks.operation import MONTHS, WEEKDAYS, WORDS, any_day, spoken, written

Values = dict[str, object]


@dataclass(frozen=True, slots=True)
class First:
    """The first step. `draw` gives the values of its wordings and the intermediate value."""

    draw: Callable[[Random], tuple[Values, str | int]]
    ask: tuple[str, ...]
    do: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Second:
    """The second step. `draw` gets the intermediate value and gives the values of its wordings and the answer, or
    None when the step makes no sense for that value."""

    draw: Callable[[Random, str | int], tuple[Values, str | int] | None]
    ask: tuple[str, ...]
    do: tuple[str, ...]


# --- First steps ------------------------------------------------------------------------------------------------


def _length(rng: Random) -> tuple[Values, int]:
    word = rng.choice(WORDS)
    return {"w": word}, len(word)


def _vowels(rng: Random) -> tuple[Values, int]:
    word = rng.choice([word for word in WORDS if len(word) > 5])
    return {"w": word}, sum(letter in "aeiou" for letter in word)


def _letter(rng: Random) -> tuple[Values, int]:
    word = rng.choice([word for word in WORDS if len(set(word)) < len(word)])
    letter = max(sorted(set(word)), key=word.count)
    return {"w": word, "c": letter}, word.count(letter)


LETTER_COUNTS = (
    First(
        _length,
        (
            "how many letters are in the word '{w}'?",
            "how many letters does '{w}' have?",
            'what\'s the number of letters in "{w}"?',
            "how many letters does the word {w} contain?",
        ),
        (
            "count the letters in the word '{w}'",
            "find the number of letters in '{w}'",
            "count how many letters '{w}' has",
        ),
    ),
    First(
        _vowels,
        (
            "how many vowels are in the word '{w}'?",
            "how many vowels does '{w}' have?",
            'what\'s the number of vowels in "{w}"?',
        ),
        ("count the vowels in '{w}'", "find the number of vowels in the word '{w}'", "count the vowels in {w}"),
    ),
    First(
        _letter,
        (
            "how many times does the letter '{c}' appear in '{w}'?",
            "how often does the letter {c} occur in the word '{w}'?",
        ),
        (
            "count how many times the letter '{c}' appears in '{w}'",
            "find the number of times the letter {c} occurs in the word '{w}'",
        ),
    ),
)


def _between(rng: Random) -> tuple[Values, int]:
    day, days = any_day(rng, 2000), rng.randint(10, 120)
    return {"a": spoken(day, rng), "b": spoken(day + timedelta(days=days), rng)}, days


def _units(rng: Random) -> tuple[Values, int]:
    source, target, factor = rng.choice(
        (("hours", "minutes", 60), ("weeks", "days", 7), ("feet", "inches", 12), ("days", "hours", 24))
    )
    amount = rng.randint(2, 12)
    return {"n": amount, "a": source, "b": target}, amount * factor


def _month_days(rng: Random) -> tuple[Values, int]:
    month, year = rng.randint(1, 11), rng.randint(1995, 2030)
    days = any_day(rng).replace(year=year, month=month + 1, day=1) - timedelta(days=1)
    return {"m": MONTHS[month - 1], "y": year}, days.day


CALENDAR_COUNTS = (
    First(
        _between,
        (
            "how many days are there from {a} to {b}?",
            "how many days are between {a} and {b}?",
            "what is the number of days between {a} and {b}?",
        ),
        ("count the days from {a} to {b}", "find the number of days between {a} and {b}"),
    ),
    First(
        _units,
        ("how many {b} are there in {n} {a}?", "what is {n} {a} in {b}?", "how many {b} are {n} {a}?"),
        ("convert {n} {a} to {b}", "convert {n} {a} into {b}"),
    ),
    First(
        _month_days,
        ("how many days are there in {m} {y}?", "how many days did {m} {y} have?"),
        ("find the number of days in {m} {y}", "count the days in {m} {y}"),
    ),
)


def _weekday(rng: Random) -> tuple[Values, str]:
    day = any_day(rng)
    return {"d": spoken(day, rng)}, WEEKDAYS[day.weekday()]


def _month(rng: Random) -> tuple[Values, str]:
    month, n = rng.randrange(12), rng.randint(2, 11)
    return {"m": MONTHS[month], "n": n}, MONTHS[(month + n) % 12]


def _later(rng: Random) -> tuple[Values, str]:
    index, days = rng.randrange(7), rng.choice([n for n in range(8, 100) if n % 7])
    return {"w": WEEKDAYS[index], "n": days}, WEEKDAYS[(index + days) % 7]


CALENDAR_NAMES = (
    First(
        _weekday,
        (
            "what day of the week was {d}?",
            "which day of the week is {d}?",
            "on what weekday does {d} fall?",
        ),
        ("find the day of the week of {d}", "work out which weekday {d} is", "name the day of the week of {d}"),
    ),
    First(
        _month,
        ("which month comes {n} months after {m}?", "what month is {n} months after {m}?"),
        ("name the month {n} months after {m}", "find the month that comes {n} months after {m}"),
    ),
    First(
        _later,
        (
            "what day of the week is {n} days after {w}?",
            "if today is {w}, what day of the week will it be in {n} days?",
        ),
        ("find the day of the week {n} days after {w}", "name the weekday that comes {n} days after {w}"),
    ),
)


def calculation(low: int, high: int) -> tuple[First, ...]:
    """Sums, products, quotients and equations whose result lies between `low` and `high`."""

    def add(rng: Random) -> tuple[Values, int]:
        total = rng.randint(low, high)
        a = rng.randint(1, total - 1)
        return {"a": a, "b": total - a}, total

    def subtract(rng: Random) -> tuple[Values, int]:
        rest, b = rng.randint(low, high), rng.randint(6, 60)
        return {"a": rest + b, "b": b}, rest

    def multiply(rng: Random) -> tuple[Values, int]:
        pairs = [(a, b) for a in range(2, 13) for b in range(2, 13) if low <= a * b <= high]
        a, b = rng.choice(pairs or [(1, low)])
        return {"a": a, "b": b}, a * b

    def divide(rng: Random) -> tuple[Values, int]:
        result, b = rng.randint(low, high), rng.randint(3, 15)
        return {"a": result * b, "b": b}, result

    def solve(rng: Random) -> tuple[Values, int]:
        a, x, b = rng.randint(2, 9), rng.randint(low, high), rng.randint(2, 20)
        return {"a": a, "b": b, "c": a * x + b}, x

    return (
        First(
            multiply,
            ("what is {a} times {b}?", "what's {a} * {b}?", "how much is {a} x {b}?"),
            ("multiply {a} by {b}", "calculate {a} * {b}"),
        ),
        First(
            add,
            ("what is {a} + {b}?", "what's {a} plus {b}?", "how much is {a} + {b}?"),
            ("add {a} and {b}", "calculate {a} + {b}", "work out {a} + {b}"),
        ),
        First(
            divide,
            ("what is {a} divided by {b}?", "what's {a} / {b}?"),
            ("divide {a} by {b}", "calculate {a} / {b}"),
        ),
        First(
            subtract,
            ("what is {a} minus {b}?", "what's {a} - {b}?"),
            ("subtract {b} from {a}", "calculate {a} - {b}", "compute {a} - {b}"),
        ),
        First(
            solve,
            ("if {a}x + {b} = {c}, what is x?", "what is the solution of {a}x + {b} = {c}?"),
            ("solve {a}x + {b} = {c} for x", "solve the equation {a}x + {b} = {c}"),
        ),
    )


def _facts(kind_name: str, ask: tuple[str, ...], do: tuple[str, ...]) -> First:
    """Facts of a kind of general knowledge that have one answer of one word."""
    facts = {
        subject: answers[0]
        for kind in KINDS
        if kind.name == kind_name
        for subject, answers in kind.pairs()
        if len(answers) == 1 and answers[0].isalpha()
    }

    def draw(rng: Random) -> tuple[Values, str]:
        subject = rng.choice(tuple(facts))
        return {"s": subject}, facts[subject]

    return First(draw, ask, do)


FACT_NAMES = (
    _facts(
        "capital",
        ("what is the capital of {s}?", "what's the capital city of {s}?", "which city is the capital of {s}?"),
        ("name the capital of {s}", "take the capital of {s}"),
    ),
    _facts(
        "country",
        ("which country is {s} the capital of?", "{s} is the capital of which country?"),
        ("name the country whose capital is {s}", "take the country whose capital is {s}"),
    ),
    _facts(
        "opposite",
        ("what is the opposite of {s}?", "what's the opposite of '{s}'?"),
        ("give the opposite of {s}", "name the opposite of '{s}'"),
    ),
    _facts(
        "language",
        ("which language is spoken in {s}?", "what language do most people speak in {s}?"),
        ("name the language that people speak in {s}", "take the main language of {s}"),
    ),
)

_PARTS = (
    ("a spider", "legs", 8),
    ("a dog", "legs", 4),
    ("a cat", "legs", 4),
    ("a horse", "legs", 4),
    ("a triangle", "sides", 3),
    ("a square", "sides", 4),
    ("a pentagon", "sides", 5),
    ("a hexagon", "sides", 6),
)
_EVENTS = (
    ("World War II end", "World War II ended", 1945),
    ("the Titanic sink", "the Titanic sank", 1912),
    ("World War I begin", "World War I began", 1914),
    ("the French Revolution begin", "the French Revolution began", 1789),
    ("people first walk on the Moon", "people first walked on the Moon", 1969),
    ("the Berlin Wall fall", "the Berlin Wall fell", 1989),
    ("Columbus first reach America", "Columbus first reached America", 1492),
    ("the Soviet Union break up", "the Soviet Union broke up", 1991),
)


def _part(rng: Random) -> tuple[Values, int]:
    owner, part, count = rng.choice(_PARTS)
    return {"o": owner, "p": part}, count


def _event(rng: Random) -> tuple[Values, int]:
    infinitive, past, year = rng.choice(_EVENTS)
    return {"i": infinitive, "e": past}, year


FACT_COUNTS = (
    First(
        _part,
        ("how many {p} does {o} have?",),
        ("take the number of {p} that {o} has", "find out how many {p} {o} has"),
    ),
    First(
        _event,
        ("in which year did {i}?", "what year did {i}?"),
        ("take the year in which {e}", "find the year in which {e}"),
    ),
)


# --- Second steps -----------------------------------------------------------------------------------------------


def _on_number(
    work: Callable[[int, int], int], low: int, high: int, largest: int = 3000
) -> Callable[[Random, str | int], tuple[Values, str | int] | None]:
    """Draws for a step on a number up to `largest` with one more number k between `low` and `high`. Results below
    zero are left out."""

    def draw(rng: Random, middle: str | int) -> tuple[Values, str | int] | None:
        k = rng.randint(low, high)
        result = work(int(middle), k)
        return ({"k": k}, result) if int(middle) <= largest and result >= 0 else None

    return draw


def _take_away(rng: Random, middle: str | int) -> tuple[Values, str | int] | None:
    number = int(middle)
    k = rng.randint(1, max(1, min(60, number - 1)))
    return ({"k": k}, number - k) if number > k else None


THEN_ARITHMETIC = (
    Second(
        _on_number(lambda n, k: n * k, 3, 25, 400),
        ("what is that number times {k}?", "what do you get when you multiply that number by {k}?"),
        ("multiply that number by {k}", "multiply the result by {k}", "multiply it by {k}"),
    ),
    Second(
        _on_number(lambda n, k: n + k, 12, 150),
        ("what is that number plus {k}?", "what's the result plus {k}?"),
        ("add {k} to that number", "add {k} to it", "add {k} to the result"),
    ),
    Second(
        _on_number(lambda n, k: k - n, 130, 900),
        ("what is {k} minus that number?", "how much is {k} minus the result?"),
        ("subtract that number from {k}", "subtract it from {k}", "subtract the result from {k}"),
    ),
    Second(
        _take_away,
        ("what is that number minus {k}?", "how much is the result minus {k}?"),
        ("subtract {k} from that number", "subtract {k} from it", "take {k} away from the result"),
    ),
    Second(
        _on_number(lambda n, k: n * n, 0, 0, 100),
        ("what is the square of that number?", "what is that number squared?"),
        ("square that number", "square it", "square the result"),
    ),
)


def _date_after(rng: Random, middle: str | int) -> tuple[Values, str]:
    day = any_day(rng, 1995)
    return {"d": spoken(day, rng)}, written(day + timedelta(days=int(middle)))


def _weekday_after(rng: Random, middle: str | int) -> tuple[Values, str] | None:
    if int(middle) % 7 == 0:
        return None
    index = rng.randrange(7)
    return {"w": WEEKDAYS[index]}, WEEKDAYS[(index + int(middle)) % 7]


def _convert(rng: Random, middle: str | int) -> tuple[Values, int]:
    source, target, factor = rng.choice((("hours", "minutes", 60), ("weeks", "days", 7), ("feet", "inches", 12)))
    return {"a": source, "b": target}, int(middle) * factor


THEN_CALENDAR = (
    Second(
        _date_after,
        ("what date is that many days after {d}?", "which date comes that many days after {d}?"),
        ("find the date that many days after {d}", "add that number of days to {d}", "add that many days to {d}"),
    ),
    Second(
        _weekday_after,
        ("what day of the week is that many days after {w}?", "which weekday is that many days after a {w}?"),
        ("name the day of the week that many days after {w}", "find the weekday that many days after {w}"),
    ),
    Second(
        _convert,
        ("how many {b} are that many {a}?", "what is that many {a} in {b}?"),
        ("convert that many {a} to {b}", "convert that number of {a} into {b}"),
    ),
)

_SMALL = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)


def _in_words(rng: Random, middle: str | int) -> tuple[Values, int] | None:
    return ({}, len(_SMALL[int(middle)])) if int(middle) < len(_SMALL) else None


def _alphabet_letter(rng: Random, middle: str | int) -> tuple[Values, str] | None:
    return ({}, chr(ord("A") + int(middle) - 1)) if 1 <= int(middle) <= 26 else None


def _word_letter(rng: Random, middle: str | int) -> tuple[Values, str] | None:
    words = [word for word in WORDS if len(word) > int(middle)]
    if not words:
        return None
    word = rng.choice(words)
    return {"w": word}, word[int(middle) - 1]


def _roman(rng: Random, middle: str | int) -> tuple[Values, str]:
    rest, signs = int(middle), ""
    for value, sign in ((50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):
        signs, rest = signs + sign * (rest // value), rest % value
    return {}, signs


THEN_NUMBER_LETTERS = (
    Second(
        _in_words,
        (
            "how many letters does that number have when written in words?",
            "how many letters are in that number when it is spelled out?",
        ),
        (
            "write the result as a word and count its letters",
            "count the letters of that number written as a word",
        ),
    ),
    Second(
        _alphabet_letter,
        ("which letter of the alphabet has that position?", "what letter of the alphabet is at that position?"),
        ("give the letter of the alphabet at that position", "name the letter at that position in the alphabet"),
    ),
    Second(
        _word_letter,
        ("which letter of the word '{w}' is at that position?", "what is the letter at that position in '{w}'?"),
        ("give the letter at that position in the word '{w}'", "name the letter of '{w}' at that position"),
    ),
    Second(
        _roman,
        ("what is that number in Roman numerals?", "how do you write that number in Roman numerals?"),
        ("write the result in Roman numerals", "convert that number to Roman numerals"),
    ),
)


def _on_word(
    work: Callable[[str], int | str],
) -> Callable[[Random, str | int], tuple[Values, str | int] | None]:
    def draw(rng: Random, middle: str | int) -> tuple[Values, str | int] | None:
        word = str(middle)
        return ({}, work(word.lower())) if word.isalpha() else None

    return draw


THEN_LETTERS = (
    Second(
        _on_word(lambda word: word[::-1]),
        ("what is that word spelled backwards?", "how do you spell that word backwards?"),
        ("spell that word backwards", "reverse that word", "spell it backwards", "write the answer backwards"),
    ),
    Second(
        _on_word(len),
        ("how many letters does that word have?", "how many letters are in that word?"),
        ("count the letters in that word", "count its letters", "count the letters in the answer"),
    ),
    Second(
        _on_word(lambda word: sum(letter in "aeiou" for letter in word)),
        ("how many vowels are in that word?", "how many vowels does that word have?"),
        ("count the vowels in that word", "count its vowels"),
    ),
    Second(
        _on_word(lambda word: word[-1]),
        ("what is the last letter of that word?", "what's its last letter?"),
        ("give the last letter of that word", "name its last letter"),
    ),
    Second(
        _on_word(lambda word: "".join(sorted(word))),
        ("what do you get when you sort the letters of that word alphabetically?",),
        ("sort the letters of that word alphabetically", "put the letters of that word in alphabetical order"),
    ),
)
