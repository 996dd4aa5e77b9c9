"""Dates and clock times as people write them: reading with strict rules, and writing in one form.

`mask` takes the dates, times, quantities, weekdays and months out of a question and leaves one private character
for each, so that the patterns of the `calendar` skill see the frame alone. Nothing is guessed from a fuzzy parser:
a date has a day, a month and a year (or is "the third Monday of January 2025", "Christmas 2024", "the 100th day
of 2024"); 3/14/2024 with a number above 12 is clear, 3/4/2024 is read as month/day and the working says so.

The calendar is the proleptic Gregorian one, years 1 to 9999. Not covered: BC, other calendars, two-digit years.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from typing import TypeVar

from dateutil.easter import easter

from trinity_core.agents.skills.measures import Quantity, find_quantities
from trinity_core.agents.skills.wording import ORDINAL, listed, place

MONTHS = listed("January February March April May June July August September October November December")
WEEKDAYS = listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
_MONTH = "|".join(f"{m}|{m[:3]}\\.?" for m in MONTHS) + r"|sept\.?"
_WEEKDAY = "(?:" + "|".join(WEEKDAYS) + ")"
_SHORT_WEEKDAY = r"(?:mon|tues?|wed|thu(?:rs?)?|fri|sat|sun)\.?"
_YEAR = r"(?<!\d)[1-9]\d{3}(?!\d|-\d|/\d)"
_HOLIDAYS: dict[str, tuple[int, int]] = {
    "christmas eve": (12, 24),
    "christmas day": (12, 25),
    "christmas": (12, 25),
    "boxing day": (12, 26),
    "new year's eve": (12, 31),
    "new year's day": (1, 1),
    "valentine's day": (2, 14),
    "halloween": (10, 31),
}


class NoSuchDate(ValueError):
    """The wording is a date, but the calendar has no such day."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A date, perhaps with a time of day. `note`: what was assumed in reading it. `yearless`: the question
    names no year at all; the year here is then the common year YEARLESS and must not show in an answer.
    `relative`: it was named from the present ("tomorrow")."""

    at: datetime
    timed: bool = False
    note: str = ""
    yearless: bool = False
    relative: bool = False

    @property
    def day(self) -> date:
        return self.at.date()


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day. `half`: "am", "pm" or "" when it was written without; `seconds`: written with seconds."""

    at: time
    half: str = ""
    seconds: bool = False

    @property
    def total(self) -> int:
        """Seconds since midnight."""
        return self.at.hour * 3600 + self.at.minute * 60 + self.at.second


YEARLESS = 2023


def long_date(day: date) -> str:
    """ "14 March 2024"."""
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def weekday(day: date) -> str:
    """The English name of the day of the week."""
    return WEEKDAYS[day.weekday()]


def days_in(year: int, month: int) -> int:
    """Days of a month."""
    return calendar.monthrange(year, month)[1]


def clock_text(at: time, twelve: bool, seconds: bool = False) -> str:
    """ "14:35" or "2:35 pm"."""
    tail = f":{at.second:02d}" if seconds else ""
    if not twelve:
        return f"{at.hour:02d}:{at.minute:02d}{tail}"
    return f"{at.hour % 12 or 12}:{at.minute:02d}{tail} {'am' if at.hour < 12 else 'pm'}"


def month_number(name: str) -> int | None:
    """1 to 12 of a month's name or its short form."""
    key = name.strip(" .").lower()[:3]
    number = (
        next((n for n, month in enumerate(MONTHS, 1) if month.lower().startswith(key)), None)
        if len(key) == 3
        else None
    )
    return number


def weekday_number(name: str) -> int:
    """0 (Monday) to 6 of a weekday's name, plural or not."""
    return next(n for n, full in enumerate(WEEKDAYS) if name.lower().startswith(full.lower()[:3]))


def nth_weekday(year: int, month: int, number: int, n: int) -> date | None:
    """The nth (from the end when negative) given weekday of a month, or None when the month has no such day."""
    days = [d for d in range(1, days_in(year, month) + 1) if date(year, month, d).weekday() == number]
    return date(year, month, days[n - 1 if n > 0 else n]) if n and abs(n) <= len(days) else None


# --- Reading dates ----------------------------------------------------------------------------------------------


def _of(year: str, month: int | None, day: str | int, note: str = "") -> Moment:
    try:
        return Moment(datetime(int(year), month or 0, int(day)), note=note)
    except ValueError as error:
        name = MONTHS[month - 1] if month and 1 <= month <= 12 else f"month {month}"
        raise NoSuchDate(f"{int(day)} {name} {year}") from error


def _slashed(match: re.Match[str]) -> Moment:
    a, b, year = int(match["a"]), int(match["b"]), match["y"]
    if match["sep"] == ".":
        return _of(year, b, a, "day.month.year")
    if a > 12 or (b <= 12 and a == b):
        return _of(year, b, a)
    return _of(year, a, b, "" if b > 12 else f"{match[0]} is read as month/day/year")


def _named(match: re.Match[str]) -> Moment | None:
    day = place((match["d"] or match["d2"]).lower().removeprefix("the "))
    return None if day is None else _of(match["y"], month_number(match["m"] or match["m2"]), day)


def _nth(match: re.Match[str]) -> Moment | None:
    n, month, year = place(match["n"]), month_number(match["m"]), int(match["y"])
    if month is None or n is None:
        return None
    if match["w"].lower() == "day":
        last = days_in(year, month)
        return _of(str(year), month, n if n > 0 else last + 1 + n)
    found = nth_weekday(year, month, weekday_number(match["w"]), n)
    if found is None:
        raise NoSuchDate(match[0].removeprefix("the "))
    return Moment(datetime.combine(found, time()))


def _nth_of_year(match: re.Match[str]) -> Moment:
    n, year = place(match["n"] or match["k"]) or 0, int(match["y"])
    length = 366 if calendar.isleap(year) else 365
    n = n if n > 0 else length + 1 + n
    if not 1 <= n <= length:
        raise NoSuchDate(match[0].removeprefix("the "))
    return Moment(datetime(year, 1, 1) + timedelta(days=n - 1))


def _holiday(match: re.Match[str]) -> Moment:
    name, year = match["h"].lower(), int(match["y"])
    if name.startswith("easter"):
        day = easter(year)
        return Moment(
            datetime.combine(day + timedelta(days=1 if "monday" in name else 0), time()), note="Western Easter"
        )
    if name == "good friday":
        return Moment(datetime.combine(easter(year) - timedelta(days=2), time()))
    if name == "thanksgiving":
        found = nth_weekday(year, 11, 3, 4)
        day = found or date(year, 11, 22)
        return Moment(datetime.combine(day, time()), note="Thanksgiving in the US: fourth Thursday of November")
    month, day_ = _HOLIDAYS[name]
    return Moment(datetime(year, month, day_))


_NAMES = "|".join(
    (*_HOLIDAYS, "easter sunday", "easter monday", "easter day", "easter", "good friday", "thanksgiving")
)
_DAY = r"(?:the )?(?:\d{1,2}(?:st|nd|rd|th)?|(?:twenty-|thirty-)?(?:first|second|third|[a-z]{3,9}th))"
_LEAD = rf"(?:(?:{_WEEKDAY}|{_SHORT_WEEKDAY}),? (?:the )?)?"
_DATES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Moment | None]], ...] = tuple(
    (re.compile(pattern, re.I), read)
    for pattern, read in (
        (
            rf"(?:the )?(?P<n>{ORDINAL}) (?P<w>{_WEEKDAY}|day) (?:of|in) (?:the month of )?(?P<m>{_MONTH}),? (?:of"
            rf" )?(?P<y>{_YEAR})",
            _nth,
        ),
        (
            rf"(?:(?:the )?(?P<n>\d{{1,3}}(?:st|nd|rd|th)|first|last|second|third) day|day (?:number )?"
            rf"(?P<k>\d{{1,3}})) of (?:the year )?(?P<y>{_YEAR})",
            _nth_of_year,
        ),
        (rf"(?P<h>{_NAMES})(?: day)?,? (?:in |of )?(?P<y>{_YEAR})", _holiday),
        (
            rf"{_LEAD}(?<![\d-])(?P<y>\d{{4}})-(?P<m>\d{{1,2}})-(?P<d>\d{{1,2}})(?![\d-])",
            lambda m: _of(m["y"], int(m["m"]), m["d"]),
        ),
        (
            r"(?<![\d/])(?P<y>\d{4})/(?P<m>\d{1,2})/(?P<d>\d{1,2})(?![\d/])",
            lambda m: _of(m["y"], int(m["m"]), m["d"]),
        ),
        (r"(?<![\d/.])(?P<a>\d{1,2})(?P<sep>[/.-])(?P<b>\d{1,2})(?P=sep)(?P<y>\d{4})(?![\d/.-]\d)", _slashed),
        (
            rf"{_LEAD}(?<![\d:])(?:(?P<d>{_DAY})(?: day)? ?-?(?:of )?(?P<m>{_MONTH})|(?P<m2>{_MONTH}) ?"
            rf"(?P<d2>{_DAY}))"
            rf"(?:,|-| of)? ?(?:in )?(?P<y>{_YEAR}|(?<=[ ,])\d{{3}}(?= ?ad\b))",
            _named,
        ),
    )
)
_RELATIVE = re.compile(r"\b(today|tomorrow|yesterday)\b(?!'s)", re.I)
_TIMES = re.compile(
    r"(?<![\d:.])(?<!utc[+-])(?<!gmt[+-])(?<!utc [+-])(?<!gmt [+-])(?:(?P<h>\d{1,2})(?:[:.h](?P<m>\d{2}))?(?::"
    r"(?P<s>\d{2}))? ?(?P<half>[ap]\.?m\b\.?|(?:in the|at) (?:morning|afternoon|evening|night)\b)"
    r"|(?P<h2>\d{1,2}):(?P<m2>\d{2})(?::(?P<s2>\d{2}))?(?: ?(?:hours|hrs|h|o'clock)\b)?(?![\d:])"
    r"|(?P<h3>[01]\d|2[0-3])(?P<m3>[0-5]\d) ?(?:hours|hrs)\b|(?P<h4>\d{1,2}) o'clock(?: (?P<half4>[ap]m|in the "
    r"(?:morning|afternoon|evening)))?)"
    r"|\b(?P<name>noon|midday|midnight)\b",
    re.I,
)


def read_clock(match: re.Match[str]) -> Clock | None:
    """The time of day of a match of _TIMES, or None when it is none (25:00, 14:35 pm)."""
    if match["name"]:
        return Clock(
            time(0 if match["name"].lower() == "midnight" else 12),
            "am" if match["name"].lower() == "midnight" else "pm",
        )
    hour = int(match["h"] or match["h2"] or match["h3"] or match["h4"])
    minute, second = int(match["m"] or match["m2"] or match["m3"] or 0), int(match["s"] or match["s2"] or 0)
    said = (match["half"] or match["half4"] or "").lower()
    morning = "morning" in said or bool(re.match(r"a\.?m", said))
    half = "" if not said else "am" if morning else "pm"
    if half and not 1 <= hour <= 12:
        half = "" if hour != 0 and hour <= 23 and said[0] != "a" else "bad"
    if half == "bad" or hour > 24 or (hour == 24 and minute + second) or minute > 59 or second > 59:
        return None
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    return Clock(time(hour % 24, minute, second), half, bool(match["s"] or match["s2"]))


# --- Masking ----------------------------------------------------------------------------------------------------

D, T, Q, W, M = ("[\ue400-\ue43f]", "[\ue440-\ue47f]", "[\ue480-\ue4bf]", "[\ue4c0-\ue4ff]", "[\ue500-\ue53f]")
"""Patterns of the characters that stand for a date, a time, a quantity, a weekday, a month of a year."""
_LIMIT = 64
_Item = TypeVar("_Item")


@dataclass
class Marks:
    """What was taken out of a question; `wrong` names dates that do not exist."""

    dates: list[Moment] = field(default_factory=list)
    times: list[Clock] = field(default_factory=list)
    quantities: list[Quantity] = field(default_factory=list)
    weekdays: list[int] = field(default_factory=list)
    months: list[tuple[int, int]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def _put(items: list[_Item], item: _Item, base: int) -> str | None:
    if len(items) >= _LIMIT:
        return None
    items.append(item)
    return chr(base + len(items) - 1)


def mask(frame: str, today: Callable[[], date] | None) -> tuple[str, Marks]:
    """The frame with one private character for each date, time, quantity, weekday and month of a year.

    `today` gives the date that "today", "tomorrow" and "yesterday" are; without it they stay words."""
    marks = Marks()
    text = frame
    for pattern, reader in _DATES:
        text = pattern.sub(lambda m, reader=reader: _mask_date(m, reader, marks), text)  # type: ignore[misc]
    if today is not None and not re.match(r"(?:if|suppose|assume|given)\b", text, re.I):
        text = _RELATIVE.sub(lambda m: _mask_relative(m, today, marks), text)
    text = _YEARLESS.sub(lambda m: _mask_yearless(m, marks), text)
    text = _MONTH_YEAR.sub(
        lambda m: _put(marks.months, (int(m["y"]), month_number(m["m"]) or 1), 0xE500) or m[0], text
    )
    text = _TIMES.sub(lambda m: _mask_time(m, marks), text)
    text = re.sub(rf"({D}),? (?:at )?({T})|({T}),? (?:on )?({D})", lambda m: _merge(m, marks), text)
    for start, end, quantity in reversed(list(find_quantities(text))):
        text = text[:start] + (_put(marks.quantities, quantity, 0xE480) or text[start:end]) + text[end:]
    text = re.sub(
        rf"\b{_WEEKDAY}s?\b", lambda m: _put(marks.weekdays, weekday_number(m[0]), 0xE4C0) or m[0], text, flags=re.I
    )
    return text, marks


_YEARLESS = re.compile(
    rf"{_LEAD}(?<![\d:/.-])(?:(?P<d>{_DAY})(?: day)? ?(?:of )?(?P<m>{_MONTH})|(?P<m2>{_MONTH}) ?"
    rf"(?P<d2>{_DAY}))(?![\w:/]|,? ?\d)",
    re.I,
)
_MONTH_YEAR = re.compile(rf"(?:the month of )?\b(?P<m>{_MONTH}),? (?:of )?(?P<y>{_YEAR})", re.I)


def _mask_date(match: re.Match[str], reader: Callable[[re.Match[str]], Moment | None], marks: Marks) -> str:
    try:
        moment = reader(match)
    except NoSuchDate as error:
        marks.wrong.append(str(error))
        moment = Moment(datetime(1, 1, 1))
    return (moment and _put(marks.dates, moment, 0xE400)) or match[0]


def _mask_yearless(match: re.Match[str], marks: Marks) -> str:
    """A date without a year takes that of the next date in the question, or the last, if there is one."""
    month, day = (
        month_number(match["m"] or match["m2"]),
        place((match["d"] or match["d2"]).lower().removeprefix("the ")),
    )
    if month is None or day is None:
        return match[0]
    after, before = (re.findall(D, part) for part in (match.string[match.end() :], match.string[: match.start()]))
    known = marks.dates[ord((after or before[-1:])[0]) - 0xE400] if after or before else None
    year = known.at.year if known else YEARLESS
    if known and known.relative:
        later = (month, day) >= (known.at.month, known.at.day)
        past = re.search(r"\bsince\b", match.string, re.I)
        year += (0 if later else 1) if not past else (-1 if later else 0)
    elif known and after and (month, day) > (known.at.month, known.at.day):
        year -= 1
    note = "" if known else "no year is given, so one without 29 February is assumed"
    try:
        moment = Moment(datetime(year, month, day), note=note, yearless=known is None)
    except ValueError:
        marks.wrong.append(match[0])
        moment = Moment(datetime(1, 1, 1))
    return _put(marks.dates, moment, 0xE400) or match[0]


def _mask_time(match: re.Match[str], marks: Marks) -> str:
    clock = read_clock(match)
    return (clock and _put(marks.times, clock, 0xE440)) or match[0]


def _mask_relative(match: re.Match[str], today: Callable[[], date], marks: Marks) -> str:
    shift = {"today": 0, "tomorrow": 1, "yesterday": -1}[match[1].lower()]
    day = today() + timedelta(days=shift)
    moment = Moment(
        datetime.combine(day, time()), note=f"{match[1].lower()} is taken to be {long_date(day)}", relative=True
    )
    return _put(marks.dates, moment, 0xE400) or match[0]


def _merge(match: re.Match[str], marks: Marks) -> str:
    """A date and a time side by side become one moment, in the date's place."""
    sign = match[1] or match[4]
    at, clock = ord(sign) - 0xE400, marks.times[ord(match[2] or match[3]) - 0xE440]
    moment = marks.dates[at]
    marks.dates[at] = Moment(datetime.combine(moment.day, clock.at), timed=True, note=moment.note)
    return str(sign)
