"""What the `calendar` skill computes with times of day, time zones, Unix time and quantities.

Each function takes the filled slots of a question and solves it or declines (None). The pattern table that leads
here, and the conventions, are in `calendar`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from trinity_core.agents.skills import measures
from trinity_core.agents.skills.asked import BACK, Asked, delta_of, label, yes
from trinity_core.agents.skills.measures import Quantity, amount_text, duration_text, find_unit
from trinity_core.agents.skills.moments import (
    Clock,
    clock_text,
    long_date,
)
from trinity_core.agents.skills.wording import show
from trinity_core.agents.skills.zones import Zone, find_zone
from trinity_core.agents.specialists import Solution

# --- Times of day ---------------------------------------------------------------------------------------------


def shift_time(asked: Asked) -> Solution | None:
    clock, quantity = asked.clock(), asked.quantity()
    delta = delta_of(quantity)
    if not isinstance(delta, timedelta):
        return None
    back = asked["way"].strip().lower() in BACK
    total = clock.total + (-1 if back else 1) * int(delta.total_seconds())
    days, rest = divmod(total, 86400)
    at = (datetime(2000, 1, 1) + timedelta(seconds=rest)).time()
    value = clock_text(at, bool(clock.half), bool(at.second) or clock.seconds)
    when = (
        ""
        if not days
        else " on the next day"
        if days == 1
        else " on the day before"
        if days == -1
        else f", {days:+d} days"
    )
    return Solution(
        value, f"{clock_text(clock.at, bool(clock.half))} {'-' if back else '+'} {quantity.text} = {value}{when}."
    )


def time_gap(asked: Asked) -> Solution | None:
    start, end = asked.clock(), asked.clock("s")
    unit = find_unit(asked["u"]) if asked["u"] and not re.search(" and ", asked["u"]) else None
    if asked["u"] and unit is None and not re.fullmatch(r"hours? and minutes?|time", asked["u"].strip(), re.I):
        return None
    if unit is not None and (unit.kind != "time" or unit.one in {"year", "leap year"}):
        return None
    first, last, assumed = start.total, end.total, ""
    if end.half and not start.half and first <= 12 * 3600 and start.at.hour and start.at.hour <= 12:
        first = first % 43200 + (43200 if end.half == "pm" else 0)
        first = first if first < last else (first + 43200) % 86400
    if (last == 0 and end.half == "am") or last < first:
        last += 86400
        assumed = " (the end is on the next day)"
    gap = Fraction(last - first)
    value = show(measures.from_base(gap, unit))[0] if unit else duration_text(gap)
    return Solution(value, f"From {_shown(start)} to {_shown(end)}: {duration_text(gap)}{assumed}.")


def _shown(clock: Clock) -> str:
    return clock_text(clock.at, bool(clock.half), clock.seconds)


def clock_form(asked: Asked) -> Solution | None:
    clock, form = asked.clock(), asked["form"].lower()
    twelve = form.startswith(("12", "twelve", "standard"))
    value = clock_text(clock.at, twelve, clock.seconds)
    return Solution(value, f"{_shown(clock)} on the {12 if twelve else 24}-hour clock is {value}.")


def zone_shift(asked: Asked) -> Solution | None:
    """A time in one zone told in another; a zone with summer time needs a date."""
    moment = asked.moment() if asked["d"] else None
    clock = asked.clock() if asked["t"] else None
    one, two = find_zone(asked["from"]), find_zone(asked["to"])
    if one is None or two is None or (clock is None and (moment is None or not moment.timed)):
        return None
    if moment is None and not (one.fixed and two.fixed):
        return None
    at = moment.at if moment else datetime(2000, 1, 3)
    if clock is not None:
        at = datetime.combine(at.date(), clock.at)
    return _in_zone(at, one, two, twelve=bool(clock and clock.half), dated=moment is not None)


def _in_zone(at: datetime, one: Zone, two: Zone, twelve: bool, dated: bool) -> Solution | None:
    try:
        there = at.replace(tzinfo=one.info).astimezone(two.info)
    except (OverflowError, ValueError):
        return None
    days = (there.date() - at.date()).days
    when = "" if not days else " on the next day" if days > 0 else " on the day before"
    time_text = clock_text(there.time(), twelve)
    value = f"{long_date(there.date())}, {time_text}" if dated else time_text
    return Solution(value, f"{clock_text(at.time(), twelve)} {one.name} is {time_text} {two.name}{when}.")


def from_unix(asked: Asked) -> Solution | None:
    stamp = int(asked["stamp"].replace(",", ""))
    millis = len(asked["stamp"].lstrip("-")) >= 13 or asked["ms"].lower().startswith("m")
    try:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=stamp // 1000 if millis else stamp)
    except OverflowError:
        return None
    value = f"{long_date(at.date())}, {clock_text(at.time(), twelve=False, seconds=True)} UTC"
    return Solution(value, f"{stamp} {'milliseconds' if millis else 'seconds'} after 1 January 1970, 00:00 UTC.")


def to_unix(asked: Asked) -> Solution | None:
    moment = asked.moment()
    if moment.yearless:
        return None
    seconds = int((moment.at - datetime(1970, 1, 1)).total_seconds())
    at = "" if moment.timed else " at 00:00"
    return Solution(str(seconds), f"Seconds from 1 January 1970, 00:00 UTC to {label(moment)}{at} UTC.")


# --- Quantities -----------------------------------------------------------------------------------------------


def convert(asked: Asked) -> Solution | None:
    quantity, wanted = asked.quantity(), asked["u"].strip()
    names = re.split(r",? and |, ?", wanted)
    if len(names) > 1:
        return _convert_mixed(quantity, names)
    unit = find_unit(wanted.upper() if quantity.kind == "temperature" and len(wanted) == 1 else wanted)
    if unit is None and quantity.kind == "angle" and re.fullmatch(r"degrees?", wanted):
        unit = measures.spellings()["degree"]
    if unit is None and quantity.kind == "mass" and wanted.lower() == "grammes":
        unit = measures.spellings()["gram"]
    found = measures.convert(quantity, unit) if unit else None
    if found is None:
        return None
    amount, unit = found
    text, exact = show(amount)
    notes = {u.note for u in (unit, *(u for _, u in quantity.parts)) if u.note and u.kind == unit.kind}
    rounded = "" if exact else " (rounded)"
    working = f"{quantity.text} {'=' if exact else '≈'} {amount_text(amount, unit)}{rounded}{_remarks(notes)}."
    return Solution(text, working)


def _remarks(notes: set[str]) -> str:
    return f"; {'; '.join(sorted(notes))}" if notes else ""


def _convert_mixed(quantity: Quantity, names: list[str]) -> Solution | None:
    """Into several units at once: "135 minutes in hours and minutes"."""
    units = [find_unit(name) for name in names]
    known = [unit for unit in units if unit is not None and unit.kind == quantity.kind]
    if len(known) != len(names) or quantity.kind == "temperature":
        return None
    value = measures.mixed_text(quantity.base(), known)
    return Solution(value, f"{quantity.text} = {value}.")


def bare_convert(asked: Asked) -> Solution | None:
    """ "Convert 100 from Fahrenheit to Celsius": the unit stands apart from its number."""
    unit, amount = find_unit(asked["from"]), measures.number(asked["amount"])
    if unit is None or amount is None:
        return None
    quantity = Quantity(((amount, unit),), amount_text(amount, unit))
    target = find_unit(asked["u"])
    found = measures.convert(quantity, target) if target else None
    if found is None:
        return None
    text, exact = show(found[0])
    return Solution(text, f"{quantity.text} {'=' if exact else '≈'} {amount_text(*found)}.")


def combine(asked: Asked) -> Solution | None:
    """Sum or difference of two quantities: durations in hours and minutes, others in the first unit."""
    one, two = asked.quantity(), asked.quantity("r")
    if one.kind != two.kind or one.kind in {"temperature", "months"}:
        return None
    way = asked["way"].lower()
    minus = way in BACK | {"less", "difference"}
    total = one.base() - two.base() if minus else one.base() + two.base()
    if way in {"subtract", "take", "deduct"}:
        total = -total
    total = abs(total) if way == "difference" else total
    value = duration_text(total) if one.kind == "time" else amount_text(measures.from_base(total, one.unit), one.unit)
    return Solution(value, f"{one.text} and {two.text}: {value}.")


def compare(asked: Asked) -> Solution | None:
    one, two, size = asked.quantity(), asked.quantity("r"), asked["size"].lower()
    if one.kind != two.kind:
        return None
    a, b = one.base(), two.base()
    small = size.startswith(("short", "small", "light", "less", "slow", "cold", "cool", "low"))
    equivalent = amount_text(measures.from_base(b, one.unit), one.unit)
    working = f"{two.text} is {equivalent}; {one.text} is {'more' if a > b else 'less' if a < b else 'the same'}."
    if asked["than"]:
        return Solution(yes(a < b if small else a > b), working)
    if a == b:
        return Solution("They are equal", working)
    return Solution(one.text if (a < b) == small else two.text, working)


def same(asked: Asked) -> Solution | None:
    one, two = asked.quantity(), asked.quantity("r")
    if one.kind != two.kind:
        return None
    equivalent = amount_text(measures.from_base(two.base(), one.unit), one.unit)
    return Solution(yes(one.base() == two.base()), f"{two.text} is {equivalent}.")
