"""Time zones by name for the `calendar` skill: fixed offsets, common abbreviations, and IANA names.

Abbreviations are read as their North American or European zone with a fixed offset (EST is UTC-5 all year).
A name with summer time ("New York", "Europe/Paris") is not fixed: it gives an offset only together with a date.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

_PROBED = 2024  # a zone whose offset stays the same through this year is taken as fixed
_HOURS = {
    "utc": 0, "gmt": 0, "z": 0, "zulu": 0, "est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6,
    "pst": -8, "pdt": -7, "wet": 0, "cet": 1, "cest": 2, "eet": 2, "eest": 3, "jst": 9, "aest": 10, "aedt": 11,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone; `fixed` when its offset does not depend on the date."""

    name: str
    info: tzinfo
    fixed: bool


def find_zone(text: str) -> Zone | None:
    """The zone of an abbreviation, an offset ("UTC+5:30") or an IANA name or city; None when unknown."""
    text = re.sub(r"^the | time(?: ?zone)?$", "", text.strip(), flags=re.I)
    if text.lower() in _HOURS:
        return _fixed(text.upper(), 60 * _HOURS[text.lower()])
    if found := re.fullmatch(r"(?:utc|gmt) ?([+\-−]) ?(\d{1,2})(?::?(\d{2}))?", text, re.I | re.A):
        minutes = int(found[2]) * 60 + int(found[3] or 0)
        return _fixed(text, minutes if found[1] == "+" else -minutes) if minutes <= 14 * 60 else None
    name = _cities().get(text.lower().replace(" ", "_"))
    if name is None:
        return None
    info = ZoneInfo(name)
    offsets = {info.utcoffset(datetime(_PROBED, month, 1)) for month in (1, 4, 7, 10)}
    return Zone(name, info, fixed=len(offsets) == 1)


def _fixed(name: str, minutes: int) -> Zone:
    return Zone(name, timezone(timedelta(minutes=minutes)), fixed=True)


@lru_cache(maxsize=1)
def _cities() -> dict[str, str]:
    """IANA names of regions, whole and by their last part, in lower case."""
    table: dict[str, str] = {}
    for name in sorted(available_timezones()):
        if re.match(r"(?:Africa|America|Antarctica|Asia|Atlantic|Australia|Europe|Indian|Pacific)/", name):
            table.setdefault(name.lower(), name)
            table.setdefault(name.rsplit("/", 1)[-1].lower(), name)
    return table
