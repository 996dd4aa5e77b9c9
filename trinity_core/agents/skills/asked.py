"""A matched question of the `calendar` skill: its filled slots, and what its computations share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

from dateutil.relativedelta import relativedelta

from trinity_core.agents.skills import measures
from trinity_core.agents.skills.measures import Quantity
from trinity_core.agents.skills.moments import (
    Clock,
    Marks,
    Moment,
    clock_text,
    long_date,
)
from trinity_core.agents.specialists import Solution

BACK = frozenset(
    {
        *("before", "earlier", "earlier than", "prior to", "preceding", "precedes", "ago", "-", "minus", "subtract"),
        *("deduct", "take", "before that", "before now", "prior", "in the past", "back", "backward", "backwards"),
    }
)
"""Words of slot `way` that step back in time."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The filled slots of a matched pattern; the accessors take a slot's name."""

    found: dict[str, str | None]
    marks: Marks

    def __getitem__(self, name: str) -> str:
        return self.found.get(name) or ""

    def moment(self, name: str = "d") -> Moment:
        return self.marks.dates[ord(self[name]) - 0xE400]

    def clock(self, name: str = "t") -> Clock:
        return self.marks.times[ord(self[name]) - 0xE440]

    def quantity(self, name: str = "q") -> Quantity:
        return self.marks.quantities[ord(self[name]) - 0xE480]

    def weekday(self) -> int:
        return self.marks.weekdays[ord(self["w"]) - 0xE4C0]

    def month(self) -> tuple[int, int]:
        return self.marks.months[ord(self["m"]) - 0xE500]

    def notes(self) -> str:
        """What was assumed in reading the dates, as a closing sentence."""
        notes = dict.fromkeys(self.moment(n).note for n in ("d", "e") if self[n])
        return "".join(f" ({note})" for note in notes if note)


Run = Callable[[Asked], Solution | None]


def yes(truth: bool) -> str:
    """The value of a question with yes or no."""
    return "Yes" if truth else "No"


def label(moment: Moment) -> str:
    """The date in long form, with the time when it has one and without a year when none was named."""
    text = long_date(moment.day)
    text = text.rsplit(" ", 1)[0] if moment.yearless else text
    return f"{text}, {clock_text(moment.at.time(), twelve=False)}" if moment.timed else text


def moved(moment: Moment, change: relativedelta | timedelta) -> Moment | None:
    """The moment after a step, or None beyond the years 1 to 9999."""
    try:
        at = moment.at + change
    except (OverflowError, ValueError):
        return None
    return Moment(at, moment.timed, moment.note, moment.yearless)


def delta_of(quantity: Quantity) -> relativedelta | timedelta | None:
    """A duration as calendar steps; months and years must be whole."""
    months, seconds = Fraction(0), Fraction(0)
    for amount, unit in quantity.parts:
        if unit.kind == "months" or unit.one == "year":
            factor = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200, "millennium": 12000}[
                unit.one
            ]
            months += amount * factor
        elif unit.kind == "time" and unit.one != "leap year":
            seconds += measures.to_base(amount, unit)
        else:
            return None
    if months.denominator != 1 or seconds.denominator != 1 or abs(months) > 10**6 or abs(seconds) > 10**12:
        return None
    return (
        relativedelta(months=int(months)) + timedelta(seconds=int(seconds))
        if months
        else timedelta(seconds=int(seconds))
    )


def plural(n: int, name: str) -> str:
    """ "1 day", "2 days"."""
    return f"{n} {name}" if abs(n) == 1 else f"{n} {name}s"
