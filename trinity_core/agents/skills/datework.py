"""What the `calendar` skill computes with dates, years, months and weekdays.

Each function takes the filled slots of a question and solves it or declines (None). The pattern table that leads
here, and the conventions, are in `calendar`.
"""

from __future__ import annotations

import calendar
import re
from datetime import date, timedelta
from fractions import Fraction

from dateutil.relativedelta import relativedelta

from trinity_core.agents.skills import measures, moments
from trinity_core.agents.skills.asked import BACK, Asked, delta_of, label, moved, plural, yes
from trinity_core.agents.skills.measures import Quantity, Unit, duration_text, find_unit
from trinity_core.agents.skills.moments import (
    MONTHS,
    WEEKDAYS,
    Moment,
    days_in,
    long_date,
    weekday,
)
from trinity_core.agents.skills.wording import integer, place, show
from trinity_core.agents.specialists import Solution

# --- Dates --------------------------------------------------------------------------------------------------------


def weekday_of(asked: Asked) -> Solution | None:
    moment = asked.moment()
    if moment.yearless:
        return None
    old = " in the Gregorian calendar reckoned backwards" if moment.day < date(1582, 10, 15) else ""
    return Solution(weekday(moment.day), f"{label(moment)} is a {weekday(moment.day)}{old}.{asked.notes()}")


def is_weekday(asked: Asked) -> Solution | None:
    moment = asked.moment()
    if moment.yearless:
        return None
    name = weekday(moment.day)
    want = asked["part"].lower()
    truth = name == WEEKDAYS[asked.weekday()] if asked["w"] else (moment.day.weekday() >= 5) == ("end" in want)
    return Solution(yes(truth), f"{label(moment)} is a {name}.{asked.notes()}")


def shift_date(asked: Asked) -> Solution | None:
    moment = asked.moment()
    quantity = asked.quantity() if asked["q"] else Quantity(((Fraction(1), measures.spellings()["day"]),), "1 day")
    delta = delta_of(quantity)
    if delta is None:
        return None
    back = asked["way"].lower() in BACK
    hours = quantity.parts[-1][1].one in {"hour", "minute", "second"}
    if hours and not moment.timed and isinstance(delta, timedelta) and delta % timedelta(days=1):
        return None
    result = moved(moment, -delta if back else delta)
    if result is None:
        return None
    sign = "-" if back else "+"
    want = asked["want"].lower()
    name = weekday(result.day)
    if moment.yearless and want not in {"", "date"}:
        return None
    value = name if "week" in want else f"{name}, {label(result)}" if want == "day" else label(result)
    day = "" if moment.yearless else f", a {name}"
    return Solution(value, f"{label(moment)} {sign} {quantity.text} = {label(result)}{day}.{asked.notes()}")


def between(asked: Asked) -> Solution | None:
    """The distance of two dates in a unit, or in years, months and days."""
    one, two = asked.moment(), asked.moment("e")
    if " and " in asked["u"]:
        return _between_mixed(asked)
    unit = find_unit(asked["u"]) if asked["u"] else None
    if asked["u"] and (unit is None or unit.kind not in {"time", "months"}):
        return None
    early, late = sorted((one, two), key=lambda m: m.at)
    if one.yearless and two.yearless and two.at < one.at and not asked["unordered"]:
        early, late = one, Moment(two.at + relativedelta(years=1), two.timed, two.note, True)
    gap = late.at - early.at + (timedelta(days=1) if asked["incl"] else timedelta(0))
    ends = "both ends counted" if asked["incl"] else "one end counted"
    working = f"From {label(early)} to {label(late)}: {_gap_text(gap)}, {ends}.{asked.notes()}"
    if unit is None:
        return Solution(_gap_text(gap), working)
    if unit.kind == "months" or unit.one in {"year", "leap year"}:
        return _whole_months(early, late, unit, working)
    seconds = Fraction(int(gap.total_seconds()))
    amount = measures.from_base(seconds, unit)
    if amount.denominator != 1 and unit.one == "week":
        weeks, days = divmod(gap.days, 7)
        return Solution(f"{plural(weeks, 'week')} {plural(days, 'day')}" if weeks else plural(days, "day"), working)
    return Solution(show(amount)[0], working)


def _between_mixed(asked: Asked) -> Solution | None:
    """The distance of two dates in weeks and days, or in years, months and days."""
    early, late = sorted((asked.moment(), asked.moment("e")), key=lambda m: m.at)
    names = tuple(re.sub(r"s$", "", name) for name in re.split(r",? and |, ?", asked["u"].lower().strip()))
    gap, days = relativedelta(late.at, early.at), (late.at - early.at).days
    rows = {
        ("week", "day"): divmod(days, 7),
        ("year", "month"): (gap.years, gap.months),
        ("month", "day"): (12 * gap.years + gap.months, gap.days),
        ("year", "month", "day"): (gap.years, gap.months, gap.days),
    }
    if names not in rows or asked["incl"]:
        return None
    value = " ".join(plural(n, name) for n, name in zip(rows[names], names, strict=True))
    return Solution(
        value, f"From {label(early)} to {label(late)}: {plural(days, 'day')}, one end counted.{asked.notes()}"
    )


def years_between(asked: Asked) -> Solution | None:
    """The difference of two years."""
    first, last = sorted((int(asked["y"]), int(asked["z"])))
    return Solution(str(last - first), f"{last} - {first} = {last - first}.")


def exists(asked: Asked) -> Solution | None:
    """Whether the calendar has a date."""
    wrong = asked.marks.wrong
    return Solution(
        yes(not wrong), f"{wrong[0] if wrong else label(asked.moment())} {'does not exist' if wrong else 'exists'}."
    )


def named_days(asked: Asked) -> Solution | None:
    """ "If yesterday was Monday, what day is tomorrow?" """
    shifts = {"the day before yesterday": -2, "yesterday": -1, "today": 0, "tomorrow": 1, "the day after tomorrow": 2}
    step = shifts[asked["to"].lower()] - shifts[asked["from"].lower()]
    value = WEEKDAYS[(asked.weekday() + step) % 7]
    return Solution(value, f"{WEEKDAYS[asked.weekday()]} and {step:+d} days.")


def _gap_text(gap: timedelta) -> str:
    return plural(gap.days, "day") if gap.seconds == 0 else duration_text(Fraction(int(gap.total_seconds())))


def _whole_months(early: Moment, late: Moment, unit: Unit, working: str) -> Solution | None:
    """Whole years or months; a rest is told in the working for years and in the value for months."""
    gap = relativedelta(late.at, early.at)
    text = (
        " ".join(plural(n, name) for n, name in ((gap.years, "year"), (gap.months, "month"), (gap.days, "day")) if n)
        or "0 days"
    )
    months = gap.years * 12 + gap.months
    if unit.one in {"year", "leap year"}:
        return Solution(str(gap.years), f"{working[:-1]}; {text}.")
    if unit.one != "month":
        return Solution(
            str(
                months
                // int(
                    measures.to_base(Fraction(1), unit) / measures.to_base(Fraction(1), measures.spellings()["month"])
                )
            ),
            working,
        )
    value = str(months) if not gap.days else f"{plural(months, 'month')} {plural(gap.days, 'day')}"
    return Solution(value, f"{working[:-1]}; {text}.")


def age(asked: Asked) -> Solution | None:
    born, at = asked.moment(), asked.moment("e")
    if born.yearless or at.day < born.day:
        return None
    gap = relativedelta(at.at, born.at)
    return Solution(
        str(gap.years),
        f"Born {label(born)}, on {label(at)}: {gap.years} years and {plural(gap.months, 'month')}.{asked.notes()}",
    )


def earlier(asked: Asked) -> Solution | None:
    one, two = asked.moment(), asked.moment("e")
    if asked["way"]:
        truth = one.at < two.at if asked["way"].lower() in {"before", "earlier than"} else one.at > two.at
        return Solution(yes(truth), f"{label(min(one, two, key=lambda m: m.at))} is the earlier one.{asked.notes()}")
    first = asked["rank"].lower() in {"earlier", "first", "earliest", "older"}
    found = (min if first else max)((one, two), key=lambda m: m.at)
    return Solution(label(found), f"{label(one)} and {label(two)} compared.{asked.notes()}")


def date_value(asked: Asked) -> Solution | None:
    """A date given by a rule ("third Monday of January 2025") written out."""
    moment = asked.moment()
    if moment.yearless:
        return None
    return Solution(label(moment), f"It is {weekday(moment.day)}, {label(moment)}.{asked.notes()}")


def date_format(asked: Asked) -> Solution | None:
    moment, form = asked.moment(), asked["form"].lower()
    if moment.yearless:
        return None
    styles = {"iso": "%Y-%m-%d", "y": "%Y-%m-%d", "m": "%m/%d/%Y", "d": "%d/%m/%Y", "u": "%m/%d/%Y"}
    style = styles["iso" if form.startswith("iso") else form[0]]
    value = moment.at.strftime(style).rjust(10, "0")
    return Solution(value, f"{label(moment)} written so.{asked.notes()}")


def day_of_year(asked: Asked) -> Solution | None:
    moment = asked.moment()
    if moment.yearless:
        return None
    n, length = moment.day.timetuple().tm_yday, 365 + calendar.isleap(moment.day.year)
    if asked["left"]:
        return Solution(
            str(length - n), f"{label(moment)} is day {n} of {length}; that day is not counted.{asked.notes()}"
        )
    return Solution(str(n), f"{label(moment)} is day {n} of the {length} days of {moment.day.year}.{asked.notes()}")


def week_of(asked: Asked) -> Solution | None:
    moment = asked.moment()
    if moment.yearless:
        return None
    if asked["quarter"]:
        n = (moment.day.month + 2) // 3
        return Solution(f"Q{n}", f"{label(moment)} is in quarter {n} of {moment.day.year}.")
    year, week, _ = moment.day.isocalendar()
    return Solution(str(week), f"{label(moment)} is in ISO week {week} of {year}.{asked.notes()}")


# --- Years, months, weekdays ---------------------------------------------------------------------------------------


def leap(asked: Asked) -> Solution | None:
    month, year = asked.month() if asked["m"] else (0, 0), int(asked["y"] or 0)
    said = asked.quantity().text.lower() if asked["q"] else ""
    if asked["m"]:
        year, number = month
        if number != 2 or said != "29 days":
            return None
    elif said not in {"", "a leap year", "366 days", "29 days"}:
        return None
    rule = (
        "by 400"
        if year % 400 == 0
        else "by 100 but not by 400"
        if year % 100 == 0
        else "by 4"
        if year % 4 == 0
        else ""
    )
    why = f"divisible {rule}" if rule else "not divisible by 4"
    return Solution(yes(calendar.isleap(year)), f"{year} is {why}.") if year else None


def leap_near(asked: Asked) -> Solution | None:
    step = -1 if asked["way"].lower() in BACK else 1
    found = next(
        (y for y in range(int(asked["y"]) + step, int(asked["y"]) + 9 * step, step) if y > 0 and calendar.isleap(y)),
        None,
    )
    return None if found is None else Solution(str(found), f"{found} is the nearest leap year in that direction.")


def leap_count(asked: Asked) -> Solution | None:
    first, last = sorted((int(asked["y"]), int(asked["z"])))
    if not first:
        return None
    years = [y for y in range(first, last + 1) if calendar.isleap(y)]
    return Solution(
        str(len(years)),
        f"From {first} to {last}, both included: {len(years)}" + (f" ({years[0]} to {years[-1]})." if years else "."),
    )


def days_in_month(asked: Asked) -> Solution | None:
    unit = find_unit(asked["u"]) if asked["u"] else measures.spellings()["day"]
    if unit is None or unit.kind != "time" or unit.one in {"year", "leap year", "fortnight"}:
        return None
    if asked["m"]:
        in_year, month = asked.month()
        days, name = days_in(in_year, month), f"{MONTHS[month - 1]} {in_year}"
    else:
        number = moments.month_number(asked["month"])
        if number is None:
            return None
        length = _month_length(asked, number)
        if length is None:
            return None
        days, name = length
    value = show(measures.from_base(Fraction(days * 86400), unit))[0]
    return Solution(value, f"{name} has {days} days.")


def _month_length(asked: Asked, number: int) -> tuple[int, str] | None:
    """The days of a month that is named apart from its year, or in a leap year, or without one; and its name."""
    name = MONTHS[number - 1]
    if asked["y"]:
        year = int(asked["y"])
        return (days_in(year, number), f"{name} {year}") if year else None
    if not asked["q"]:
        return days_in(moments.YEARLESS, number), name + (" (29 in a leap year)" if number == 2 else "")
    quantity = asked.quantity()
    if len(quantity.parts) > 1 or quantity.unit.one not in {"year", "leap year"}:
        return None
    return days_in(2024 if quantity.unit.one == "leap year" else moments.YEARLESS, number), name


def days_in_year(asked: Asked) -> Solution | None:
    unit, year = find_unit(asked["u"]), int(asked["y"])
    days = 365 + calendar.isleap(year)
    if unit is None or unit.kind != "time" or unit.one in {"year", "leap year", "fortnight"} or not year:
        return None
    value = show(measures.from_base(Fraction(days * 86400), unit))[0]
    return Solution(value, f"{year} has {days} days.")


def count_weekday(asked: Asked) -> Solution | None:
    if asked["m"]:
        year, month = asked.month()
        start, end, name = (
            date(year, month, 1),
            date(year, month, days_in(year, month)),
            f"{MONTHS[month - 1]} {year}",
        )
    else:
        year = int(asked["y"])
        if not year:
            return None
        start, end, name = date(year, 1, 1), date(year, 12, 31), str(year)
    number = asked.weekday()
    first = (number - start.weekday()) % 7
    n = ((end - start).days - first) // 7 + 1
    return Solution(
        str(n),
        f"The first {WEEKDAYS[number]} of {name} is {long_date(start + timedelta(days=first))}; there are {n}.",
    )


def weekday_shift(asked: Asked) -> Solution | None:
    quantity = asked.quantity() if asked["q"] else None
    delta = delta_of(quantity) if quantity else timedelta(days=1)
    if not isinstance(delta, timedelta) or delta % timedelta(days=1):
        return None
    days = -delta.days if asked["way"].lower() in BACK else delta.days
    value = WEEKDAYS[(asked.weekday() + days) % 7]
    return Solution(
        value, f"{WEEKDAYS[asked.weekday()]} and {days:+d} days: {days:+d} leaves {days % 7} after whole weeks."
    )


def month_shift(asked: Asked) -> Solution | None:
    number = moments.month_number(asked["month"])
    n = integer(asked["n"]) if asked["n"] else 1
    if asked["q"]:
        change = delta_of(asked.quantity())
        whole = isinstance(change, relativedelta) and not (change.days or change.seconds)
        n = 12 * change.years + change.months if isinstance(change, relativedelta) and whole else None
    if number is None or n is None:
        return None
    n = -n if asked["way"].lower() in BACK else n
    return Solution(MONTHS[(number - 1 + n) % 12], f"{MONTHS[number - 1]} and {plural(n, 'month')}.")


def nth_name(asked: Asked) -> Solution | None:
    """The nth month of the year, the nth day of the week (from Monday), or a month's number."""
    if asked["month"]:
        number = moments.month_number(asked["month"])
        return Solution(str(number), f"{MONTHS[number - 1]} is month {number} of 12.") if number else None
    n, row = place(asked["o"]), MONTHS
    if n is None or n == 0 or abs(n) > len(row):
        return None
    return Solution(row[n - 1 if n > 0 else n], f"Month {n if n > 0 else 13 + n} of 12.")
