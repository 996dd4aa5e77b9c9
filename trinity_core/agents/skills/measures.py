"""Quantities with units for the `calendar` skill: reading, converting and writing them, without float noise.

Units come from a fixed list of spellings; text is never given to Pint's parser (it evaluates expressions, and a
huge exponent would hang). Pint supplies each listed unit's definition once, as an exact affine map to its base
unit in fractions (temperatures have offsets), so converting is arithmetic on `Fraction`.

Conventions, said with the answer: gallon, quart, pint, cup and spoons are US customary unless "imperial" or "UK"
is said; ton is the US short ton, tonne the metric one; the acre is the international one (4,046.8564224 square
metres); KB is 1000 bytes, KiB 1024; a calorie is 4.184 J; a year has 365 days, a month is the twelfth of a year
and is not turned into days. Not covered: currencies, fuel economy, temperature differences, unit products.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from trinity_core.agents.skills.wording import INTEGER, integer, listed, show


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: what Pint calls it, its kind, its names for display, and a remark on its meaning."""

    pint: str
    kind: str
    one: str
    many: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One or more amounts of one kind ("5 feet 11 inches"), as read. `text` is the wording."""

    parts: tuple[tuple[Fraction, Unit], ...]
    text: str

    @property
    def unit(self) -> Unit:
        return self.parts[0][1]

    @property
    def kind(self) -> str:
        return self.unit.kind

    def base(self) -> Fraction:
        """The amount in the base unit of its kind."""
        return sum((to_base(amount, unit) for amount, unit in self.parts), Fraction(0))


_US = "US customary measure"
_BASE = {
    "length": "meter",
    "mass": "gram",
    "volume": "liter",
    "area": "meter ** 2",
    "speed": "meter / second",
    "temperature": "kelvin",
    "energy": "joule",
    "power": "watt",
    "pressure": "pascal",
    "data": "byte",
    "angle": "degree",
    "time": "second",
    "months": "month",
    "frequency": "hertz",
}
# One unit a line: Pint's definition | display names | further spellings | remark.
_LISTED = {
    "length": """
        inch|inch,inches|in
        foot|foot,feet|ft
        yard|yard,yards|yd,yds
        mile|mile,miles|mi
        nautical_mile|nautical mile,nautical miles|nmi
        light_year|light-year,light-years|light year,light years,ly
        astronomical_unit|astronomical unit,astronomical units|au,AU
        parsec|parsec,parsecs|pc
        angstrom|angstrom,angstroms|Å,ångström
        6 * foot|fathom,fathoms|
        660 * foot|furlong,furlongs|""",
    "mass": """
        pound|pound,pounds|lb,lbs
        ounce|ounce,ounces|oz
        stone|stone,stone|stones
        metric_ton|tonne,tonnes|metric ton,metric tons|1 tonne = 1000 kg
        2000 * pound|ton,tons|short ton,short tons,US ton,US tons|1 ton = 2000 lb (US short ton)
        2240 * pound|long ton,long tons|imperial ton,imperial tons,UK ton,UK tons
        carat|carat,carats|""",
    "volume": f"""
        gallon|US gallon,US gallons|gallon,gallons,gal|{_US}
        quart|US quart,US quarts|quart,quarts,qt|{_US}
        pint|US pint,US pints|pint,pints,pt|{_US}
        cup|US cup,US cups|cup,cups|{_US}
        fluid_ounce|US fluid ounce,US fluid ounces|fluid ounce,fluid ounces,fl oz,fl. oz,floz|{_US}
        tablespoon|US tablespoon,US tablespoons|tablespoon,tablespoons,tbsp|{_US}
        teaspoon|US teaspoon,US teaspoons|teaspoon,teaspoons,tsp|{_US}
        imperial_gallon|imperial gallon,imperial gallons|UK gallon,UK gallons,British gallon,British gallons
        imperial_gallon / 4|imperial quart,imperial quarts|UK quart,UK quarts
        imperial_pint|imperial pint,imperial pints|UK pint,UK pints,British pint,British pints
        imperial_fluid_ounce|imperial fluid ounce,imperial fluid ounces|UK fluid ounce,UK fluid ounces
        meter ** 3|cubic metre,cubic metres|cubic meter,cubic meters,m3,m³,m^3
        centimeter ** 3|cubic centimetre,cubic centimetres|cubic centimeter,cubic centimeters,cm3,cm³,cm^3,cc
        decimeter ** 3|cubic decimetre,cubic decimetres|cubic decimeter,cubic decimeters,dm3,dm³
        millimeter ** 3|cubic millimetre,cubic millimetres|cubic millimeter,cubic millimeters,mm3,mm³
        inch ** 3|cubic inch,cubic inches|cu in,in3,in³
        foot ** 3|cubic foot,cubic feet|cu ft,ft3,ft³
        yard ** 3|cubic yard,cubic yards|cu yd
        42 * gallon|oil barrel,oil barrels|barrel of oil,barrels of oil""",
    "area": """
        meter ** 2|square metre,square metres|square meter,square meters,sq m,sqm,m2,m²,m^2
        kilometer ** 2|square kilometre,square kilometres|square kilometer,square kilometers,sq km,km2,km²,km^2
        centimeter ** 2|square centimetre,square centimetres|square centimeter,square centimeters,sq cm,cm2,cm²,cm^2
        millimeter ** 2|square millimetre,square millimetres|square millimeter,square millimeters,sq mm,mm2,mm²
        inch ** 2|square inch,square inches|sq in,in²
        foot ** 2|square foot,square feet|sq ft,sqft,ft2,ft²,ft^2
        yard ** 2|square yard,square yards|sq yd,yd²
        mile ** 2|square mile,square miles|sq mi,mi²
        4840 * yard ** 2|acre,acres|
        hectare|hectare,hectares|ha""",
    "speed": """
        meter / second|metre per second,metres per second|meter per second,meters per second,m/s,mps
        kilometer / hour|kilometre per hour,kilometres per hour|kilometer per hour,kilometers per hour,km/h,kph,kmh
        kilometer / second|kilometre per second,kilometres per second|kilometer per second,kilometers per second,km/s
        mile / hour|mile per hour,miles per hour|mph,mi/h
        mile / second|mile per second,miles per second|mi/s
        foot / second|foot per second,feet per second|ft/s,fps
        knot|knot,knots|kn,kt""",
    "temperature": """
        degC|degree Celsius,degrees Celsius|°C,C,Celsius,deg C,degrees C,degree C,centigrade,degrees centigrade,℃
        degF|degree Fahrenheit,degrees Fahrenheit|°F,F,Fahrenheit,deg F,degrees F,degree F,℉
        kelvin|kelvin,kelvin|K,kelvins,degrees Kelvin
        degR|degree Rankine,degrees Rankine|°R,Rankine""",
    "energy": """
        calorie|calorie,calories|cal|1 cal = 4.184 J
        kilocalorie|kilocalorie,kilocalories|kcal,food calorie,food calories|1 kcal = 4184 J
        watt * hour|watt-hour,watt-hours|Wh,watt hour,watt hours
        kilowatt * hour|kilowatt-hour,kilowatt-hours|kWh,kilowatt hour,kilowatt hours
        megawatt * hour|megawatt-hour,megawatt-hours|MWh,megawatt hour,megawatt hours
        electron_volt|electronvolt,electronvolts|eV,electron volt,electron volts
        british_thermal_unit|British thermal unit,British thermal units|BTU,BTUs,Btu""",
    "power": """
        horsepower|horsepower,horsepower|hp|mechanical horsepower, 550 foot-pounds per second""",
    "pressure": """
        bar|bar,bars|
        millibar|millibar,millibars|mbar
        atmosphere|atmosphere,atmospheres|atm
        psi|pound per square inch,pounds per square inch|psi
        mmHg|millimetre of mercury,millimetres of mercury|mmHg,mm Hg,millimeters of mercury
        torr|torr,torr|Torr""",
    "angle": """
        degree|degree,degrees|deg,°
        radian|radian,radians|rad,rads
        arcminute|arcminute,arcminutes|arcmin,minute of arc,minutes of arc
        arcsecond|arcsecond,arcseconds|arcsec,second of arc,seconds of arc
        degree * 9 / 10|gradian,gradians|gon,gons,grad,grads
        turn|turn,turns|revolution,revolutions,full turn,full turns,full rotation,full rotations""",
    "time": """
        second|second,seconds|s,sec,secs
        minute|minute,minutes|min,mins
        hour|hour,hours|h,hr,hrs
        day|day,days|d
        week|week,weeks|wk,wks
        14 * day|fortnight,fortnights|
        365 * day|year,years|yr,yrs,common year,non-leap year|a year of 365 days
        366 * day|leap year,leap years||a leap year has 366 days""",
    "months": """
        month|month,months|mo
        3 * month|quarter,quarters|
        12 * month|year,years|
        120 * month|decade,decades|
        1200 * month|century,centuries|
        12000 * month|millennium,millennia|millenniums""",
}
# Kind, Pint's name and its spellings, symbol, and the prefixes that are in use.
_PREFIXED = (
    ("length", "meter", ("metre", "meter"), "m", "nµmcd_k"),
    ("mass", "gram", ("gram", "gramme"), "g", "nµm_k"),
    ("volume", "liter", ("litre", "liter"), "L", "µmcdh_k"),
    ("volume", "liter", ("litre", "liter"), "l", "µmcdh_k"),
    ("energy", "joule", ("joule",), "J", "m_kMG"),
    ("power", "watt", ("watt",), "W", "m_kMG"),
    ("pressure", "pascal", ("pascal",), "Pa", "h_kMG"),
    ("frequency", "hertz", ("hertz",), "Hz", "_kMG"),
    ("time", "second", ("second",), "s", "nµm"),
    ("data", "byte", ("byte",), "B", "_kMGTPKRSUV"),
    ("data", "bit", ("bit",), "b", "_kMGTKRSU"),
    ("data", "bit", ("bit",), "bit", "kMGT"),
)
_PREFIXES = {
    "n": ("nano", "n"), "µ": ("micro", "µ"), "m": ("milli", "m"), "c": ("centi", "c"), "d": ("deci", "d"),
    "_": ("", ""), "h": ("hecto", "h"), "k": ("kilo", "k"), "M": ("mega", "M"), "G": ("giga", "G"),
    "T": ("tera", "T"), "P": ("peta", "P"), "K": ("kibi", "Ki"), "R": ("mebi", "Mi"), "S": ("gibi", "Gi"),
    "U": ("tebi", "Ti"), "V": ("pebi", "Pi"),
}  # fmt: skip
# Symbols that also have another meaning in another case are looked up exactly; all else in any case too.
_EXACT = frozenset(listed("Mb MB Gb GB kb kB KB Tb TB mPa MPa mW MW mJ MJ"))


@lru_cache(maxsize=1)
def spellings() -> dict[str, Unit]:
    """Every accepted spelling of every unit; a month-like "year" is found by `months`, not here."""
    table: dict[str, Unit] = {}
    for kind, rows in _LISTED.items():
        for row in rows.strip().splitlines():
            definition, names, more, note = [*row.strip().split("|"), "", ""][:4]
            one, many = names.split(",")
            unit = Unit(definition, kind, one, many, note)
            for name in (one, many, *filter(None, more.split(","))):
                table.setdefault(name, unit)
    for kind, pint, names_, symbol, prefixes in _PREFIXED:
        for prefix, sign in (_PREFIXES[p] for p in prefixes):
            one = prefix + names_[0]
            unit = Unit(prefix + pint, kind, one, one if one.endswith("z") else one + "s")
            for name in names_:
                table.setdefault(prefix + name, unit)
                table.setdefault(prefix + name + "s", unit)
            table.setdefault(sign + symbol, unit)
            if sign == "µ":
                table.setdefault("u" + symbol, unit)
    table["KB"] = table["kB"]
    table["kilo"] = table["kilos"] = table["kg"]
    for name, unit in list(table.items()):
        if name not in _EXACT and len(name) > 1:
            table.setdefault(name.lower(), unit)
    return table


def find_unit(text: str) -> Unit | None:
    """The unit of a spelling, or None. Short symbols keep their case; "mb" is read as megabyte."""
    text = re.sub(r"\s+", " ", text.strip().strip(".?!")).removeprefix("the ")
    table = spellings()
    if found := table.get(text) or table.get(text.removeprefix("full ").removeprefix("whole ")):
        return found
    return table.get(text.lower()) or {
        "mb": table["MB"],
        "gb": table["GB"],
        "tb": table["TB"],
        "kb": table["kB"],
    }.get(text.lower())


@lru_cache(maxsize=1)
def _registry() -> Any:
    import pint  # loading its definitions takes a fifth of a second: not at import

    return pint.UnitRegistry(non_int_type=Fraction)


@lru_cache(maxsize=512)
def _affine(definition: str, base: str) -> tuple[Fraction, Fraction]:
    """Scale and offset such that base = scale * amount + offset, as Pint defines the unit."""
    registry = _registry()
    if "*" in definition or "/" in definition:  # a product of ours; offset units are never in one
        quantity = registry.Quantity(1, base)
        amount = registry.parse_expression(definition)
        return Fraction(amount.to(quantity.units).magnitude), Fraction(0)
    zero = Fraction(registry.Quantity(Fraction(0), definition).to(base).magnitude)
    one = Fraction(registry.Quantity(Fraction(1), definition).to(base).magnitude)
    return one - zero, zero


def to_base(amount: Fraction, unit: Unit) -> Fraction:
    """An amount in the base unit of its kind."""
    scale, offset = _affine(unit.pint, _BASE[unit.kind])
    return scale * amount + offset


def from_base(amount: Fraction, unit: Unit) -> Fraction:
    """An amount of the base unit in `unit`."""
    scale, offset = _affine(unit.pint, _BASE[unit.kind])
    return (amount - offset) / scale


def convert(quantity: Quantity, unit: Unit) -> tuple[Fraction, Unit] | None:
    """`quantity` in `unit`, and the unit as understood (a "year" among months counts 12); None across kinds."""
    if quantity.kind != unit.kind:
        months = {"year": Unit("12 * month", "months", "year", "years")}
        if {quantity.kind, unit.kind} != {"time", "months"}:
            return None
        parts = tuple((a, months.get(u.one, u)) for a, u in quantity.parts)
        unit = months.get(unit.one, unit)
        if {u.kind for _, u in parts} | {unit.kind} != {"months"}:
            return _via_years(quantity, unit)
        quantity = Quantity(parts, quantity.text)
    return from_base(quantity.base(), unit), unit


def _via_years(quantity: Quantity, unit: Unit) -> tuple[Fraction, Unit] | None:
    """Decades and longer in years of 365 days, or the other way; a single month has no fixed number of days."""
    year = spellings()["year"]
    long = {"decade", "century", "millennium"}
    if quantity.kind == "months" and {u.one for _, u in quantity.parts} <= long:
        return from_base(to_base(quantity.base() / 12, year), unit), unit
    if unit.one in long:
        return from_base(from_base(quantity.base(), year) * 12, unit), unit
    return None


# --- Reading ---------------------------------------------------------------------------------------------------

_FRACTIONS = {"½": Fraction(1, 2), "¼": Fraction(1, 4), "¾": Fraction(3, 4), "⅓": Fraction(1, 3)}
_DIGITS = (
    r"(?<![\w.,])[-−]?(?:\d{1,3}(?:,\d{3})+|\d{1,24})?(?:(?<=\d)|(?=\.\d))(?:\.\d{1,24})?(?:e[-+]?\d{1,2}(?![\w.]))?"
)
NUMBER = (
    rf"(?:{_DIGITS}(?:(?<=\d)(?: \d{{1,3}}/\d{{1,3}}| ?[½¼¾⅓]|/\d{{1,4}}))?|[½¼¾⅓]|half(?: an?)?|(?:an? |one"
    r" )?quarter of an?"
    rf"|three[- ]quarters of an?|{INTEGER}(?: and a half)?|an?)"
)
"""Pattern of an amount; `number` reads it."""


def number(text: str) -> Fraction | None:
    """An amount in digits ("1,200.5", "1 1/2", "3e8") or words ("two and a half"); None if it is none."""
    text = text.strip().lower().replace("−", "-")
    if text in {"half", "half a", "half an"}:
        return Fraction(1, 2)
    if re.fullmatch(r"(?:(?:an? |one )?quarter of an?)", text):
        return Fraction(1, 4)
    if re.fullmatch(r"three[- ]quarters of an?", text):
        return Fraction(3, 4)
    if text.endswith(" and a half"):
        whole = number(text.removesuffix(" and a half"))
        return None if whole is None else whole + Fraction(1, 2)
    if text[-1:] in _FRACTIONS:
        whole = number(text[:-1]) if text[:-1].strip() else Fraction(0)
        return None if whole is None else whole + _FRACTIONS[text[-1]]
    if mixed := re.fullmatch(r"(?:(-?)(\d+) )?(-?\d+)/(\d+)", text, re.A):
        if not int(mixed[4]):
            return None
        part = Fraction(int(mixed[3]), int(mixed[4]))
        return (-1 if mixed[1] else 1) * (int(mixed[2] or 0) + part)
    if re.fullmatch(r"-?[\d,]*\.?\d+(?:e[-+]?\d{1,2})?", text, re.A):
        return Fraction(text.replace(",", ""))
    whole_number = integer(text)
    return None if whole_number is None else Fraction(whole_number)


@lru_cache(maxsize=1)
def _piece() -> re.Pattern[str]:
    # "in" is a unit only where a conversion follows, or it would swallow the preposition.
    names = [n for n in spellings() if n not in {"in", "C", "F", "K", "AU", "au"}]
    units = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(
        rf"(?P<number>{NUMBER})(?P<gap>[ -]?)(?P<unit>(?:{units})|in(?= (?:to|into|in|as|equals?|is|are|or|and|plus"
        r"|minus|than)\b|\.?$|,)"
        r"|[CFK]|AU)(?![\w²³^/°]|-\w)(?P<half> and a half)?",
        re.I,
    )


def find_quantities(text: str) -> Iterable[tuple[int, int, Quantity]]:
    """The quantities in a text with where they start and end, compounds joined, left to right."""
    found: list[tuple[int, int, Quantity]] = []
    for match in _piece().finditer(text):
        amount, unit = number(match["number"]), find_unit(match["unit"])
        if amount is None or unit is None:
            continue
        if match["number"][0].isalpha() and (len(match["unit"]) < 3 or not match["gap"]):
            continue
        amount += Fraction(1, 2) if match["half"] else 0
        start, end = match.span()
        if found and (joined := _join(found[-1][2], text[found[-1][1] : start], amount, unit, match)):
            start = found.pop()[0]
            found.append((start, end, Quantity(joined, text[start:end])))
        else:
            found.append((start, end, Quantity(((amount, unit),), match[0])))
    return found


def _join(
    before: Quantity, gap: str, amount: Fraction, unit: Unit, match: re.Match[str]
) -> tuple[tuple[Fraction, Unit], ...] | None:
    """The parts of a compound when the next piece continues it with a smaller unit of the same kind."""
    last = before.parts[-1][1]
    if not re.fullmatch(r",? ?(?:and )?", gap) or amount < 0 or before.kind == "temperature":
        return None
    if match["unit"] == "m" and last.one == "hour":
        unit = spellings()["minute"]
    if {last.kind, unit.kind} == {"time", "months"}:
        return (*before.parts, (amount, unit)) if _size(last) > _size(unit) else None
    if last.kind != unit.kind or to_base(Fraction(1), last) <= to_base(Fraction(1), unit):
        return None
    return (*before.parts, (amount, unit))


def _size(unit: Unit) -> int:
    order = [
        "millennium",
        "century",
        "decade",
        "year",
        "quarter",
        "month",
        "fortnight",
        "week",
        "day",
        "hour",
        "minute",
        "second",
    ]
    return -order.index(unit.one) if unit.one in order else -99


# --- Writing ---------------------------------------------------------------------------------------------------


def amount_text(amount: Fraction, unit: Unit) -> str:
    """ "1 mile", "2.5 metres"."""
    return f"{show(amount)[0]} {unit.one if abs(amount) == 1 else unit.many}"


def mixed_text(amount: Fraction, units: Iterable[Unit]) -> str:
    """An amount of the base unit in whole units from large to small, the rest in the last; zeros left out."""
    row = sorted(units, key=lambda u: -to_base(Fraction(1), u))
    sign, amount = ("-" if amount < 0 else ""), abs(amount)
    out = []
    for unit in row:
        size = to_base(Fraction(1), unit)
        part = amount / size if unit is row[-1] else Fraction(amount // size)
        amount -= part * size
        if part:
            out.append(amount_text(part, unit))
    return sign + (" ".join(out) or amount_text(Fraction(0), row[-1]))


def duration_text(seconds: Fraction) -> str:
    """A duration in days, hours, minutes and seconds: "2 hours 35 minutes"."""
    return mixed_text(seconds, (spellings()[name] for name in ("day", "hour", "minute", "second")))
