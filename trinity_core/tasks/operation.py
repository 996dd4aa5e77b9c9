"""What the computed built-in questions share: drafts, operations, word lists, and how values are written.

An `Operation` draws its values from a seeded generator, works the answer out in plain Python, and words the question
in as many ways as it has templates; each template makes one question. Nothing here asks an agent or knows how one
reads a question. The operations themselves stand in `arithmetic`, `letters` and `dates`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from fractions import Fraction
from random import Random
from typing import Any

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_COMMON_WORDS = """
apple banana orange garden window kitchen elephant mountain river planet winter summer bottle candle dragon forest
guitar hammer island jacket ladder market needle octopus pencil rabbit school teacher umbrella village whistle yellow
zebra bridge castle doctor engine flower giraffe harbor jungle lemon mirror number oyster parrot queen ribbon silver
ticket uncle velvet wallet butter carpet desert finger ginger holiday library machine notebook package question
raincoat sandwich telephone universe vacation weather strawberry chocolate butterfly adventure breakfast crocodile
dinosaur education furniture hamburger
"""
WORDS = tuple(_COMMON_WORDS.split())


@dataclass(frozen=True, slots=True)
class Draft:
    """A question before it becomes a task."""

    question: str
    reference: str
    grader: str
    tags: tuple[str, ...]
    params: Mapping[str, Any] = field(default_factory=dict)


Drawn = tuple[dict[str, object], str]
"""The values for a template, and the answer."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing to work out. `draw` gives the values that the templates name, and the answer as text."""

    name: str
    draw: Callable[[Random], Drawn]
    templates: tuple[str, ...]
    grader: str = "numeric"
    params: Mapping[str, Any] = field(default_factory=dict)

    def drafts(self) -> Iterator[Draft]:
        for index, template in enumerate(self.templates):
            values, answer = self.draw(Random(f"{self.name}/{index}"))
            yield Draft(template.format(**values), answer, self.grader, (self.name,), self.params)


def number(value: Fraction | int) -> str:
    """An exact value as people write it: 12, 2.5, or 3/7 where decimals do not end."""
    value = Fraction(value)
    if value.denominator == 1:
        return str(value.numerator)
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return f"{float(value):.10g}" if rest == 1 else f"{value.numerator}/{value.denominator}"


def spoken(day: date, rng: Random) -> str:
    """A date in one of the ways people write it."""
    month = MONTHS[day.month - 1]
    forms = (f"{day.day} {month} {day.year}", f"{month} {day.day}, {day.year}", day.isoformat())
    return rng.choice(forms)


def written(day: date) -> str:
    """A date as references have it, such as 5 March 2024."""
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def any_day(rng: Random, first: int = 1950, last: int = 2030) -> date:
    return date(first, 1, 1) + timedelta(days=rng.randrange(365 * (last - first)))
