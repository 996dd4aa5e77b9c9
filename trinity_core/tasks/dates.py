"""Built-in questions about dates, times of day and units. References come from `datetime` and exact factors."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from fractions import Fraction
from random import Random

from trinity_core.tasks.operation import MONTHS, WEEKDAYS, Drawn, Operation, any_day, number, spoken, written


def _weekday(rng: Random) -> Drawn:
    day = any_day(rng)
    return {"d": spoken(day, rng)}, WEEKDAYS[day.weekday()]


def _days_after(rng: Random) -> Drawn:
    day, days = any_day(rng, 1990), rng.randint(12, 180)
    return {"d": spoken(day, rng), "n": days}, written(day + timedelta(days=days))


def _days_before(rng: Random) -> Drawn:
    day, days = any_day(rng, 1990), rng.randint(12, 180)
    return {"d": spoken(day, rng), "n": days}, written(day - timedelta(days=days))


def _between(rng: Random) -> Drawn:
    day, days = any_day(rng, 1995), rng.randint(11, 300)
    return {"a": spoken(day, rng), "b": spoken(day + timedelta(days=days), rng)}, str(days)


def _later_weekday(rng: Random) -> Drawn:
    index, days = rng.randrange(7), rng.choice([n for n in range(8, 120) if n % 7])
    return {"w": WEEKDAYS[index], "n": days}, WEEKDAYS[(index + days) % 7]


def _month_length(rng: Random) -> Drawn:
    month, year = rng.randint(1, 12), rng.randint(1980, 2040)
    following = date(year + month // 12, month % 12 + 1, 1)
    return {"m": MONTHS[month - 1], "y": year}, str((following - date(year, month, 1)).days)


def _leap(rng: Random) -> Drawn:
    year = rng.choice((1900, 1996, 2000, 2004, 2023, 2024, 2025, 2030, 2100, 1988, 2002, 2032))
    return {"y": year}, "Yes" if year % 4 == 0 and (year % 100 or year % 400 == 0) else "No"


def _clock(rng: Random) -> Drawn:
    start = datetime(2024, 1, 1, rng.randint(6, 15), 5 * rng.randint(0, 11))
    hours, minutes = rng.randint(2, 5), 5 * rng.randint(1, 11)
    end = start + timedelta(hours=hours, minutes=minutes)
    return {"t": f"{start:%H:%M}", "h": hours, "m": minutes}, f"{end:%H:%M}"


def _month_later(rng: Random) -> Drawn:
    month, n = rng.randrange(12), rng.randint(2, 11)
    return {"m": MONTHS[month], "n": n}, MONTHS[(month + n) % 12]


def _unit_table(*rows: tuple[str, str, str, int, int]) -> Callable[[Random], Drawn]:
    """Draws for conversions: from, to, exact factor, and the range of the amount."""

    def draw(rng: Random) -> Drawn:
        source, target, factor, low, high = rng.choice(rows)
        amount = rng.randint(low, high)
        return {"n": amount, "a": source, "b": target}, number(amount * Fraction(factor))

    return draw


_LENGTHS = _unit_table(
    ("kilometers", "meters", "1000", 2, 60),
    ("meters", "centimeters", "100", 3, 90),
    ("inches", "centimeters", "2.54", 2, 40),
    ("feet", "inches", "12", 3, 40),
    ("miles", "kilometers", "1.609344", 2, 60),
    ("centimeters", "millimeters", "10", 4, 95),
    ("yards", "feet", "3", 5, 80),
)
_TIMES = _unit_table(
    ("hours", "minutes", "60", 3, 40),
    ("days", "hours", "24", 2, 30),
    ("minutes", "seconds", "60", 4, 90),
    ("weeks", "days", "7", 4, 60),
    ("years", "months", "12", 3, 40),
)
_MASSES = _unit_table(
    ("kilograms", "grams", "1000", 2, 70),
    ("pounds", "kilograms", "0.45359237", 4, 120),
    ("pounds", "ounces", "16", 2, 30),
    ("liters", "milliliters", "1000", 2, 40),
    ("grams", "milligrams", "1000", 2, 60),
)


def _celsius(rng: Random) -> Drawn:
    degrees = 5 * rng.randint(-4, 40)
    return {"n": degrees}, number(Fraction(degrees * 9, 5) + 32)


CALENDAR: tuple[Operation, ...] = (
    Operation(
        "weekday",
        _weekday,
        (
            "What day of the week was {d}?",
            "Which day of the week is {d}?",
            "On what weekday does {d} fall?",
            "What weekday is {d}?",
            "{d} - what day of the week is that?",
            "Tell me the day of the week for {d}.",
            "Find the weekday of {d}.",
            "Was {d} a Monday, a Tuesday or what? Name the day of the week.",
        ),
        "exact",
    ),
    Operation(
        "days_after",
        _days_after,
        (
            "What date is {n} days after {d}?",
            "What's the date {n} days after {d}?",
            "Add {n} days to {d}.",
            "Which date comes {n} days after {d}?",
            "If today is {d}, what will the date be in {n} days?",
            "My holiday starts {n} days after {d}. What date is that?",
            "Find the date {n} days from {d}.",
            "Starting on {d}, what is the date {n} days later?",
        ),
        "exact",
    ),
    Operation(
        "days_before",
        _days_before,
        (
            "What date is {n} days before {d}?",
            "What was the date {n} days before {d}?",
            "Subtract {n} days from {d}.",
            "Which date comes {n} days before {d}?",
            "If today is {d}, what was the date {n} days ago?",
            "Find the date that is {n} days earlier than {d}.",
            "Go back {n} days from {d}. What's the date?",
            "Tell me the date {n} days before {d}.",
        ),
        "exact",
    ),
    Operation(
        "between",
        _between,
        (
            "How many days are there between {a} and {b}?",
            "How many days are there from {a} to {b}?",
            "How many days is it from {a} until {b}?",
            "What is the number of days between {a} and {b}?",
            "Count the days from {a} to {b}.",
            "Calculate the days between {a} and {b}.",
            "How many days passed between {a} and {b}?",
            "If it is {a} now, how many days are left until {b}?",
        ),
    ),
    Operation(
        "later_weekday",
        _later_weekday,
        (
            "If today is {w}, what day of the week will it be in {n} days?",
            "What day of the week is {n} days after {w}?",
            "Today is {w}. What weekday will it be {n} days from now?",
            "Which weekday comes {n} days after a {w}?",
            "It's {w}. What day is it in {n} days?",
            "Starting from {w}, which day of the week is it {n} days later?",
            "If a letter is sent on a {w} and arrives {n} days later, on what weekday does it arrive?",
            "Name the day of the week {n} days after {w}.",
        ),
        "exact",
    ),
    Operation(
        "month_length",
        _month_length,
        (
            "How many days are there in {m} {y}?",
            "How many days did {m} {y} have?",
            "What is the number of days in {m} {y}?",
            "How long is {m} {y} in days?",
            "Tell me how many days {m} {y} has.",
            "How many days does {m} have in {y}?",
            "In {y}, how many days are in {m}?",
            "I get paid per day. How many days are there in {m} of {y}?",
        ),
    ),
    Operation(
        "leap",
        _leap,
        (
            "Is {y} a leap year?",
            "Was the year {y} a leap year? Answer yes or no.",
            "Tell me whether {y} is a leap year, yes or no.",
            "{y}: leap year, yes or no?",
            "Does the year {y} have a February 29?",
            "Do you know if {y} is a leap year?",
            "Yes or no: {y} is a leap year.",
            "Is the year {y} a leap year or not? Say yes or no.",
        ),
        "contains",
    ),
    Operation(
        "clock",
        _clock,
        (
            "What time is it {h} hours and {m} minutes after {t}?",
            "It's {t} now. What time will it be in {h} hours and {m} minutes?",
            "A train leaves at {t} and arrives {h} hours and {m} minutes later. When does it arrive?",
            "Add {h} hours and {m} minutes to {t}.",
            "If a film starts at {t} and lasts {h} hours {m} minutes, when does it end?",
            "What's the time {h} hours and {m} minutes after {t}?",
            "The cake goes into the oven at {t} and needs {h} hours and {m} minutes. When is it done?",
            "A meeting begins at {t} and takes {h} hours and {m} minutes. At what time is it over?",
        ),
        "exact",
    ),
    Operation(
        "month_later",
        _month_later,
        (
            "Which month comes {n} months after {m}?",
            "What month is {n} months after {m}?",
            "It's {m} now. What month will it be in {n} months?",
            "Name the month {n} months after {m}.",
            "If it is {m}, which month is it {n} months later?",
            "Starting in {m}, what month is it after {n} months?",
            "A project begins in {m} and takes {n} months. In what month is it {n} months after {m}?",
            "Tell me the month that comes {n} months after {m}.",
        ),
        "exact",
    ),
    Operation(
        "length_units",
        _LENGTHS,
        (
            "Convert {n} {a} to {b}.",
            "How many {b} are in {n} {a}?",
            "What is {n} {a} in {b}?",
            "How much is {n} {a} in {b}?",
            "{n} {a} is how many {b}?",
            "Express {n} {a} in {b}.",
            "What's {n} {a} converted to {b}?",
            "How many {b} is {n} {a}?",
            "Change {n} {a} into {b}, please.",
        ),
        params={"tolerance": 0.005},
    ),
    Operation(
        "time_units",
        _TIMES,
        (
            "Convert {n} {a} to {b}.",
            "How many {b} are there in {n} {a}?",
            "What is {n} {a} in {b}?",
            "How many {b} do {n} {a} have?",
            "{n} {a} is how many {b}?",
            "Express {n} {a} in {b}.",
            "What's {n} {a} converted into {b}?",
            "How many {b} are {n} {a}?",
        ),
    ),
    Operation(
        "mass_units",
        _MASSES,
        (
            "Convert {n} {a} to {b}.",
            "How many {b} are in {n} {a}?",
            "What is {n} {a} in {b}?",
            "How much is {n} {a} in {b}?",
            "{n} {a} equals how many {b}?",
            "Express {n} {a} in {b}.",
            "I have {n} {a} of sugar syrup. How many {b} is that?",
            "What's {n} {a} converted to {b}?",
        ),
        params={"tolerance": 0.005},
    ),
    Operation(
        "temperature",
        _celsius,
        (
            "Convert {n} degrees Celsius to Fahrenheit.",
            "What is {n}°C in Fahrenheit?",
            "How many degrees Fahrenheit is {n} degrees Celsius?",
            "What's {n} °C in °F?",
            "Express {n} degrees Celsius in degrees Fahrenheit.",
            "The thermometer shows {n} degrees Celsius. How much is that in Fahrenheit?",
            "{n} degrees Celsius is how many degrees Fahrenheit?",
            "Change {n} °C to degrees Fahrenheit.",
        ),
    ),
)
