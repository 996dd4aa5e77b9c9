"""The `calendar` skill: dates, times of day, durations and units of measure, computed exactly.

A question is read by `wording.read`, its dates, times and quantities are taken out by `moments.mask`, and the
remaining frame is compared whole with a table of operations ({d} a date, {t} a time, {q} a quantity, {w} a weekday,
{m} a month of a year, {u} a unit); what is not understood is declined.

Conventions, said in the working where they matter: a difference of dates counts one end, "inclusive" both; adding
months keeps the day or takes the month's last; numbers are exact up to 12 decimals, else rounded to 6 significant
digits; weeks are ISO 8601; "today" is known only to a skill given a clock; time zones need a fixed offset, or a
date with an IANA name. Units are described in `measures`, dates in `moments`.
Not covered: working days, holidays beyond a few, other calendars, anything about the present without a clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date
from functools import lru_cache

from trinity_core.agents.skills import clockwork as clocks
from trinity_core.agents.skills import datework as dates
from trinity_core.agents.skills import measures, moments
from trinity_core.agents.skills.asked import Asked, Run
from trinity_core.agents.skills.moments import MONTHS
from trinity_core.agents.skills.plain import rewordings
from trinity_core.agents.skills.timetales import SLOTS as STORY_SLOTS
from trinity_core.agents.skills.timetales import STORIES
from trinity_core.agents.skills.wording import INTEGER, MAX_FRAME, MAX_LENGTH, ORDINAL, filled, read, template
from trinity_core.agents.specialists import Solution

_ASK = (
    r"(?:what(?:'s| is| was| will be| would be)|which (?:is|was)|give(?: me)?|find|calculate|determine|compute|state"
    r"|tell me)"
)
_MONTH = "|".join(f"{m}|{m[:3]}" for m in MONTHS)
_SLOTS = {
    "{d}": f"(?:the date )?(?P<d>{moments.D})",
    "{e}": f"(?:the date )?(?P<e>{moments.D})",
    "{t}": f"(?:the time )?(?P<t>{moments.T})",
    "{s}": f"(?P<s>{moments.T})",
    "{q}": f"(?P<q>{moments.Q})",
    "{r}": f"(?P<r>{moments.Q})",
    "{w}": f"(?:a |an |on )?(?P<w>{moments.W})",
    "{m}": f"(?P<m>{moments.M})",
    "{u}": r"(?P<u>[^\ue400-\ue53f]{1,40}?)",
    "{y}": r"(?:the year )?(?P<y>\d{4})",
    "{z}": r"(?:the year )?(?P<z>\d{4})",
    "{n}": rf"(?P<n>{INTEGER})",
    "{o}": rf"(?:the )?(?P<o>{ORDINAL})",
    "{month}": rf"(?:the month of )?(?P<month>{_MONTH})",
    "{is}": r"(?: (?:is|was|are|were|will|would|does|do|did|will it be|would it be|is it|was it|be|fall|falls|fell"
    r"|land|lands|comes?|came|lies|occurs?))*",
    "{on}": r"(?: (?:on|in|at))?",
    "{ask}": _ASK,
    "{what}": r"(?:(?:on )?(?:what|which))",
    "{incl}": r"(?P<incl>,? \(?(?:inclusive(?:ly)?|including (?:both|the (?:start|end|first|last)).{0,25}|counting"
    r" both.{0,20}|"
    r"both (?:dates |days |ends )?(?:included|inclusive))\)?)?",
    "{after}": r"(?: (?P<way>after|before|from|later than|earlier than|prior to|following|past|since|preceding))",
    "{size}": r"(?P<size>longer|shorter|bigger|larger|greater|smaller|heavier|lighter|more|less|faster|slower|hotter"
    r"|warmer|colder|cooler|"
    r"higher|lower|taller|longest|shortest|biggest|largest|heaviest|lightest|fastest|slowest|hottest|coldest"
    r"|smallest|greatest)",
    "{from}": r"(?:degrees )?(?P<from>[^\ue400-\ue53f]{1,40}?)",
    "{kind}": r"(?:the |a )?(?:(?:temperature|length|distance|weight|mass|speed|height|volume|area|duration|time"
    r"|angle|pressure|energy|amount)"
    r"(?: of)? )?",
    "{24}": r"(?P<form>military|standard)(?: (?:time|clock|format|notation|form))*",
}

_DAY_OF_WEEK = r"(?:{what} (?:day(?: of the week)?|weekday)|{ask}(?: the)? (?:day of the week|weekday)(?: of| for)?)"
_GAP = r"(?:(?:have |had )?(?:passed|elapsed|lie|fall|pass))?"
_BETWEEN = r"(?: (?:from|between))? {d},? (?:and|to|until|till|through|-|–|up to) {e}{incl}"
_AGE = r"(?:how old|what age|what (?:is|was|would be) (?:the )?age)"
_NAMED = "(?:yesterday|today|tomorrow|the day before yesterday|the day after tomorrow)"
_WHO = r"(?: ?(?:someone|somebody|a person|a child|a man|a woman|a baby|he|she|i|they|\w{2,20}))??"
_UNIX = r"(?:unix|posix|epoch)(?: epoch)?(?: time)?(?: ?stamp)?"
_STAMP = r"(?P<stamp>-?\d{1,14})(?: ?(?P<ms>milliseconds|ms|seconds|s))?"
_HOLDS = r"(?: (?:in|does|do|equal|make|make up|are|is|=|per|within))*"

_TABLE: tuple[tuple[Run, tuple[str, ...]], ...] = (
    (
        dates.weekday_of,
        (
            _DAY_OF_WEEK + r"{is}{on} {d}{is}{on}",
            _DAY_OF_WEEK + r"{is} (?:it|the date)?{on} ?{d}",
            r"{d} (?:is|was|falls on|fell on|will be)(?: on)? (?:what|which) (?:day(?: of the week)?|weekday)",
            r"(?:the )?(?:day of the week|weekday) (?:of|for|on) {d}",
        ),
    ),
    (
        dates.is_weekday,
        (
            r"(?:is|was|will|does|did) {d}(?: be| fall)?(?: on)? {w}",
            r"(?:is|was|will|does|did) {d}(?: be| fall)?(?: on)? (?:a |the |during the )?(?P<part>weekend(?: day)?"
            r"|weekday|week day|working day)",
        ),
    ),
    (
        dates.shift_date,
        (
            r"{what} (?P<want>date|day(?: of the week)?|weekday){is}(?: exactly)? {q}{after} {d}",
            r"(?:{ask}|{what} )?(?: ?the)? ?(?P<want>date|day of the week|weekday)?(?: that| which| exactly|"
            r" of)?{is} ?{q}{after} {d}",
            r"{what} (?P<want>date|day(?: of the week)?|weekday){is}(?: it)? {d} (?P<way>plus|minus|\+|-) {q}",
            r"(?:{ask} )?(?:the )?(?:date )?{d} (?P<way>plus|minus|\+|-) {q}",
            r"(?P<way>add) {q} to {d}",
            r"(?P<way>subtract|take|deduct) {q} from {d}",
            r"when (?:is|was|will be|will it be){after}? ?{q}{after} {d}",
            r"(?:if|suppose|assume|given that)(?: today|it| the date)?(?: is|'s|was)? {d},? (?:then )?(?:what"
            r"|which) (?P<want>date|day(?: of the week)?|weekday)"
            r"{is}(?: in| after)? {q}(?: (?P<way>ago|from now|later|from today|earlier|before|after|from then))?(?:"
            r" be)?",
            r"{d},? {q} (?P<way>later|earlier)",
            r"(?:if|suppose|assume|given that)(?: today|it| the date)?(?: is|'s|was)? {d},? (?:then )?{ask} the "
            r"(?P<want>date|day of the week|weekday)(?: in| after)? {q}(?: (?P<way>ago|from now|later|from today"
            r"|earlier|before|after))?",
            r"(?:{what}|{ask}) ?(?:the )?(?:date|day)?(?: (?:comes|is|falls|was))?(?: the (?:date|day))?"
            r"(?: right| immediately| directly| just)? (?P<way>after|before|following|preceding|follows|precedes)"
            r" {d}",
        ),
    ),
    (
        dates.between,
        (
            r"how many {u}(?: are| were| is| have| will)?(?: there| it| be)? ?" + _GAP + _BETWEEN,
            r"how many {u}(?: (?:are|were|is))?(?: there| it)?(?: after| from| since) {d} (?:is|was|until|to|till)"
            r" {e}{incl}",
            r"how many {u} (?:before|until|till) {e} (?:is|was|from) {d}{incl}",
            r"how many {u}(?: (?:are|were|is))?(?: there| it)? (?:until|till|to|before) {e} (?:from|after|since"
            r"|starting from|starting on|starting) {d}{incl}",
            r"(?:(?:{ask}|count) )?(?:the )?(?:number of|count) {u}(?: there are)?" + _BETWEEN,
            r"(?:{ask} )?(?:the )?(?:difference|time|gap|interval|span|distance|length of time|duration)(?: in"
            r" {u})?(?: between| from)" + _BETWEEN + r"(?: in {u})?",
            r"how (?:long|far|much time) (?:is|was|are|were)?(?: it| there)?(?: in {u})?"
            + _BETWEEN
            + r"(?: in {u})?",
            r"{u} between {d} and {e}{incl}",
            r"how many {u} old{is}" + _WHO + r"(?: who (?:is|was))? born (?:on )?{d}{is}{on} {e}",
            r"from {d} to {e}{incl}(?:,)? how many {u}(?: is that| are there| is it| pass| have passed)?",
        ),
    ),
    (
        dates.years_between,
        (r"how many years(?: (?:are|were|is|passed|elapsed|lie))?(?: there)?(?: between| from) {y} (?:and|to) {z}",),
    ),
    (
        dates.exists,
        (
            r"(?:is|was|will) {d}(?: be)? (?:a )?(?:valid|real|actual|possible|existing)(?: calendar)?(?: date|"
            r" day)?",
            r"(?:does|did) {d} exist",
        ),
    ),
    (
        dates.named_days,
        (
            r"if (?P<from>" + _NAMED + r") (?:is|was|will be) {w}[,.]? (?:then )?(?:what|which) (?:day|weekday)"
            r"(?: of the week)? (?:is|was|will be|will it be|would be)(?: it)? (?P<to>" + _NAMED + r")(?: be)?",
        ),
    ),
    (
        dates.age,
        (
            _AGE
            + r"{is}(?: of)?"
            + _WHO
            + r"(?: who (?:is|was))?,? ?(?:born )?(?:be )?(?:on )?{d}{is}{on}(?: as of| by)? {e}",
            _AGE
            + r"{is}(?: of)?"
            + _WHO
            + r"(?: be)?(?: on| at)? {e},? (?:if|when|is|was|given)?.{0,30}?born (?:on )?{d}",
            r"(?:if )?"
            + _WHO
            + r"(?: who)? (?:is|was) born (?:on )?{d}[,.]? (?:then )?"
            + _AGE
            + r"{is}"
            + _WHO
            + r"{is}(?: on| at| as of)? {e}",
        ),
    ),
    (
        dates.earlier,
        (
            r"(?:which|what)(?: (?:date|day|one))? (?:is|was|comes|came)(?: the)? (?P<rank>earlier|later|first|last"
            r"|earliest|latest|older)(?: date)?[,:]? {d},? or {e}",
            r"(?:is|was|does|did) {d}(?: come)? (?P<way>before|after|earlier than|later than) {e}",
        ),
    ),
    (
        dates.date_format,
        (
            r"(?:convert|write|express|format|put|change|{ask}) {d} (?:in|to|as|into|using)(?: the)? (?P<form>iso"
            r"(?:[ -]?8601)?|yyyy-mm-dd|mm/dd/yyyy|dd/mm/yyyy|us)"
            r"(?: (?:date )?format| form| date| notation)*",
        ),
    ),
    (
        dates.day_of_year,
        (
            r"{what} (?:day|day number|number day)(?: number)?(?: (?:of|in) (?:the|its|that) year)? {is}?(?: ?the)?"
            r" ?{d}(?: (?:of|in) the year)?",
            r"{what} day(?: number)? of the year{is} {d}",
            r"{ask}(?: the)? (?:day of the year|day number|ordinal date|day-of-year|ordinal day)(?: number)?(?: of|"
            r" for| on)? {d}",
            r"{d} is (?:what|which) day of the year",
            r"how many (?P<left>days)(?: are| will be)?(?: there)? (?:left|remain|remaining|remain in the year)(?:"
            r" in (?:the year|\d{4}))?(?: after| on| from| as of) {d}",
        ),
    ),
    (
        dates.week_of,
        (
            r"{what} (?:iso )?(?:calendar )?week(?: number)?(?: of the year)?(?: (?:is|was|does|will|contains"
            r"|has))? {d}(?: (?:in|fall in|be in|belong to|fall))?(?: in)?",
            r"{ask}(?: the)? (?:iso )?(?:calendar )?week(?: number)? (?:of|for|on) {d}",
            r"{what} (?P<quarter>quarter)(?: of the year)?{is} {d}(?: in| fall in)?",
        ),
    ),
    (
        dates.date_value,
        (
            r"(?:{ask}|{what}|when)(?: the)? ?(?:date|day)?(?: of)?{is}(?: the date of)?{on} ?{d}(?: fall| fall on|"
            r" be)?",
        ),
    ),
    (
        dates.leap,
        (
            r"(?:is|was|will) {y}(?: be)? (?:a leap[ -]year|{q})",
            r"(?:does|did|will) {y} have (?:a leap day|366 days|29 days in february|a february 29(?:th)?)",
        ),
    ),
    (
        dates.leap_near,
        (
            r"(?:{ask}|{what}|when is) ?(?:the )?(?:year is )?(?:the )?(?:next|first|last|previous|nearest) leap"
            r" year{after} {y}",
            r"what leap year comes(?: next| right)?{after} {y}",
        ),
    ),
    (
        dates.leap_count,
        (r"how many leap years(?: are| were| is)?(?: there)?(?: from| between) {y} (?:and|to|through) {z}.{0,20}",),
    ),
    (
        dates.days_in_month,
        (
            r"how many {u}(?: are| were| is)?(?: there)? in {m}",
            r"how many {u} (?:does|did|do|will) {m} (?:have|contain)",
            r"how many {u}(?: are| is)?(?: there)? in {month}(?: (?:in|of|during) {q})?",
            r"how many {u} (?:does|do) {month} (?:have|contain)(?: (?:in|of|during) {q})?",
            r"how long is (?:{m}|{month})",
            r"(?:{ask} )?(?:the )?(?:number of|length in) {u} (?:in|of) (?:{m}|{month})",
        ),
    ),
    (
        dates.days_in_year,
        (
            r"how many {u}(?: are| were| is| will be)?(?: there)? in {y}",
            r"how many {u} (?:does|did|do|will) {y} (?:have|contain)",
            r"(?:{ask} )?the number of {u} in {y}",
        ),
    ),
    (
        dates.count_weekday,
        (
            r"how many {w}(?: are| were| is| fall)?(?: there)? in (?:{m}|{y})",
            r"how many {w} (?:does|did|do|will) (?:{m}|{y}) (?:have|contain)",
        ),
    ),
    (
        dates.weekday_shift,
        (
            r"(?:{what}|{ask})(?: the)?(?: day| weekday)?(?: of the week)?(?: (?:is|comes|falls|was|will it be|will"
            r" be|would be))?(?: it)?(?: exactly)? {q}{after} {w}",
            r"(?:{what}|{ask}) ?(?:the )?(?:day )?(?:of the week )?(?:is |comes |falls )?(?:the day )?(?:right "
            r"|immediately |directly |just )?(?P<way>after|before) {w}",
            r"(?:if|suppose|assume|given that)? ?(?:today|it|the day) (?:is|was|'s)(?: a)? {w}[,.]? (?:then )?"
            r"(?:what|which) (?:day|weekday)(?: of the week)?"
            r"(?: (?:will|was|is|would))?(?: it)?(?: be)?(?: in| after| exactly)? {q}(?: (?P<way>ago|from now|later"
            r"|from today|earlier|before|after|from then))?(?: be)?",
        ),
    ),
    (
        dates.month_shift,
        (
            r"(?:what|which) month (?:comes|is|falls|follows|precedes|will it be)(?: {n} months?)?(?: right|"
            r" immediately| directly)? (?P<way>after|before|from) {month}",
            r"(?:what|which) month (?:comes|is|falls|will it be) {q}{after} {month}",
            r"(?:what|which) month (?P<way>follows|precedes) {month}",
        ),
    ),
    (
        dates.nth_name,
        (
            r"(?:{ask}|{what}) ?(?:the )?{o} month(?: (?:of|in) (?:the|a) year)?",
            r"(?:what|which) month is(?: the)? {o}(?: (?:month )?(?:of|in) the year)?",
            r"(?:what|which) (?:number month|month number|number)(?: of the year)? is {month}",
        ),
    ),
    (
        clocks.shift_time,
        (
            r"(?:what time|what|when)(?: time)?{is}(?: exactly)? ?{q}(?P<way> (?:after|before|past|from|later than"
            r"|earlier than|prior to|following)) {t}",
            r"(?:{ask} )?(?:the time )?{q}(?P<way> (?:after|before|past|later than|earlier than)) {t}",
            r"(?:{ask} )?{t} (?P<way>plus|minus|\+|-) {q}",
            r"(?P<way>add) {q} to {t}",
            r"(?P<way>subtract|deduct) {q} from {t}",
            r"(?:if )?(?:it is|it's|it was|the time is|now it is)(?: now)? {t}(?: now)?[,.]? (?:then )?what"
            r" time{is}(?: it)?(?: be)?(?: in| after)? {q}"
            r"(?: (?P<way>ago|later|from now|earlier|before))?(?: be)?",
            r".{3,80}? (?:starts?|begins?|leaves?|left|departs?|departed|started|began|set off|opens?|sets out"
            r"|depart|begin|start)(?: \w+){0,3}? (?:at )?{t},? ?(?:and )?.{0,60}?"
            r"(?:lasts?|takes?|took|lasted|is|runs?|continues?|for)(?: for)? {q}(?: long)?[.,]? (?:when|(?:at"
            r" )?what time) .{2,60}",
        ),
    ),
    (
        clocks.time_gap,
        (
            r"how many {u}(?: is| are| were| was)?(?: there| it)?(?: from| between)? {t} (?:and|to|until|till|-|–)"
            r" {s}",
            r"(?:{ask} )?(?:the )?(?:number of|difference in) {u} (?:from|between) {t} (?:and|to|until|-|–) {s}",
            r"(?:how (?:long|much time)|{ask} ?(?:the )?(?:difference|time|time difference|duration|interval"
            r"|elapsed time|length of time))"
            r"(?: (?:is|was|are|passes|elapses|has passed|in {u}))*(?: it| there)?(?: from| between)? {t} (?:and|to"
            r"|until|till|-|–) {s}(?: in {u})?",
            r"from {t} (?:to|until|till) {s}(?:,? (?:how long is (?:it|that)|is how (?:long|many {u})))?",
            r".{3,80}? (?:starts?|begins?|leaves?|left|departs?|departed|started|began|opens?|open|from)(?:"
            r" \w+){0,3}? (?:at )?{t},? ?(?:and )?.{0,60}?"
            r"(?:ends?|finish(?:es|ed)?|arrives?|arrived|ended|until|closes?|close|till|to|stops?)(?: \w+){0,3}? "
            r"(?:at )?{s}[.,]? ?(?:how long|how many {u}|what (?:is|was) the (?:duration|length))(?: .{0,60})?",
            r"(?:how long|how many {u}) .{2,80}? {t} .{1,40}? {s}",
        ),
    ),
    (
        clocks.clock_form,
        (
            r"(?:convert|what is|what's|write|express|change|how do you write|show|give|put|how is) ?{t}(?: "
            r"(?:written|expressed))? (?:to|in|into|as|on|using)(?: the| a)? {24}",
            r"{t} (?:in|to) {24}",
        ),
    ),
    (
        clocks.zone_shift,
        (
            r"(?:convert|what is|what's|what time is|change) (?:{t}|{d}) (?:in )?"
            r"(?P<from>[\w+:/−-][\w +:/−-]{0,30}?)(?: time)?,? (?:to|in|into) (?P<to>[\w+:/−-][\w +:/−-]{0,30}?)(?:"
            r" time)?",
            r"what time is it in (?P<to>[\w+:/−-][\w +:/−-]{0,30}?) (?:when|if) it(?: is|'s) (?:{t}|{d}) in "
            r"(?P<from>[\w+:/−-][\w +:/−-]{0,30}?)",
            r"what time is it in (?P<to>[\w+:/−-][\w +:/−-]{0,30}?) (?:when|if|at)(?: it(?: is|'s))? (?:{t}|{d}) "
            r"(?P<from>[\w+:/−-][\w +:/−-]{0,30}?)",
            r"(?:when|if) it(?: is|'s) (?:{t}|{d}) in (?P<from>[\w+:/−-][\w +:/−-]{0,30}?), what time is it in "
            r"(?P<to>[\w+:/−-][\w +:/−-]{0,30}?)",
        ),
    ),
    (
        clocks.from_unix,
        (
            r"(?:convert|what (?:utc )?(?:date|time|date and time|moment) is|what is|what's|what date does"
            rf"|translate|turn)(?: the)? {_UNIX}(?: of)? {_STAMP}"
            r"(?: (?:to|in|as|into|represent|mean)(?: an?| the)?(?: utc)?(?: human[- ]readable)?(?: dates?| time|"
            r" date and time| utc)*)?(?: in utc| \(utc\))?",
            rf"(?:convert|turn) {_STAMP} (?:from )?(?:as )?(?:a )?{_UNIX} (?:to|into)(?: a)? (?:utc )?(?:date|time"
            rf"|utc).{{0,20}}",
            rf"(?:what|which) (?:date|time|date and time|day) (?:is|corresponds to|was) (?:the )?{_UNIX} {_STAMP}"
            r"(?: in utc)?",
        ),
    ),
    (
        clocks.to_unix,
        (
            rf"(?:{_ASK}|convert)(?: the)? {_UNIX} (?:of|for|on|at) {{d}}(?: utc)?(?: in utc)?",
            rf"convert {{d}}(?: utc)? (?:to|into)(?: an?)? {_UNIX}",
        ),
    ),
    (
        clocks.combine,
        (
            r"(?:{ask} |how (?:much|long) is )?{q} (?P<way>plus|minus|\+|-|less) {r}",
            r"(?:add|sum) {q} (?P<way>and|to|with) {r}",
            r"(?:{ask} )?(?:the )?sum of {q} and {r}(?P<way>)",
            r"(?P<way>subtract|take|deduct) {q} from {r}",
            r"(?:{ask} )?(?:the )?(?P<way>difference) between {q} and {r}",
        ),
    ),
    (
        clocks.compare,
        (
            r"(?:which|what)(?: (?:weighs|lasts|takes|goes|one|distance|length|time|duration|temperature|weight"
            r"|speed|is|of these))*(?:"
            r" is)?(?: the)? {size}[,:]? {q},? (?:or|and|vs\.?) {r}",
            r"(?:is|are) {q} (?P<than>{size} than) {r}",
            r"{q} or {r}[,:]? which is(?: the)? {size}",
        ),
    ),
    (clocks.same, (r"(?:is|are|does) {q} (?:equal to|the same as|as (?:long|heavy|much) as|equal) {r}",)),
    (
        clocks.convert,
        (
            r"[^\ue400-\ue53f]{2,80}{q}[^\ue400-\ue53f]{0,40}[.,;] (?:what is (?:that|this|it)|"
            r"how (?:long|tall|heavy|much|far|hot|high|fast) (?:is|am|are|was)"
            r" (?:that|this|it|i|he|she|they|we)) in {u}",
            r"[^\ue400-\ue53f]{2,80}{q}[^\ue400-\ue53f]{0,40}[.,;] how many {u} (?:is|are|does|do) (?:that|this|it"
            r"|they)"
            r"(?: equal| make)?",
            r"how many {u} (?:is|are) (?:a|an|the) \w+ of {q}",
            r"how many {u}" + _HOLDS + r"(?: there)?(?: in)? {q}(?: (?:have|contain|equal|last|make|is|be|total))?",
            r"how many {u} (?:are|is) (?:there )?(?:in|equal to|contained in) {q}",
            r"(?:convert|change|turn|express|write|give|put|transform|translate) (?:from )?{kind}{q} (?:to|into|in"
            r"|as) {u}",
            r"(?:{ask} |how (?:much|long|far|hot|cold|tall|heavy|big|fast|warm|high) is |how (?:much|long) are"
            r" )?{kind}{q},? (?:in|to|as|into|converted to|expressed in|expressed as|measured in) {u}",
            r"{q} (?:is|are|equals?|makes?|=|contains?|has) (?:how many|what in|\?) ?{u}",
            r"(?:{ask} )?(?:the )?(?:number of|equivalent in) {u} (?:in|of) {q}",
            r"in {u},? how (?:long|much|far|hot|heavy|tall|fast) (?:is|are) {q}",
            r"what is {q} (?:equal to )?in {u}",
        ),
    ),
    (
        clocks.bare_convert,
        (
            rf"(?:convert|change) (?P<amount>{measures.NUMBER}) from {{from}} (?:to|into) {{u}}",
            rf"(?:convert|change) (?P<amount>{measures.NUMBER}) {{from}} (?:to|into|in) {{u}}",
        ),
    ),
)


@lru_cache(maxsize=1)
def _table() -> tuple[tuple[Run, tuple[re.Pattern[str], ...]], ...]:
    slots = {**STORY_SLOTS, **_SLOTS}
    return tuple((run, tuple(template(text, slots) for text in texts)) for run, texts in (*_TABLE, *STORIES))


# A frame without any mark, year or month is about something else: do not try the whole table on it.
_RELEVANT = re.compile(rf"[\ue400-\ue53f]|\d{{4}}|\b(?:{_MONTH}|month|leap)\b|\d", re.I)
_TURNED = re.compile(r"(?:in|on|at|for|from) (?P<part>[^,]{1,60}), (?P<rest>(?:how|what|which|when)\b.+)", re.I)


def _variants(frame: str) -> Iterator[str]:
    """The frame, then with what comes before a comma put last: "In 2024, how many days does February have"."""
    yield frame
    if found := _TURNED.fullmatch(frame):
        yield f"{found['rest']} {frame[: frame.index(' ')]} {found['part']}"


_TWELVE = re.compile(
    r"\b(?:24|12|twenty-four|twelve)[ -]?(?:hours?|hr)\b(?= (?:time|clock|format|notation|form)\b)|\bam/pm\b",
    re.I,
)
_CELSIUS = re.compile(r"(?<=\d) ?[cf](?= (?:to|in|into|as) (?:[cfk]\b|celsius|fahrenheit|kelvin))", re.I)
_FEET = re.compile(r"(?<![\w.])(\d{1,3}) ?(?:'|′|’) ?(\d{1,2}(?:\.\d{1,4})?) ?(?:\"|″|”|'')?(?![\w'])")


def _normal(text: str) -> str:
    """Clock formats and lower-case degree letters in the one form that the patterns know."""

    def clock(match: re.Match[str]) -> str:
        twelve = match[0].lower().startswith(("12", "twelve", "am"))
        return "standard" if twelve else "military"

    return _CELSIUS.sub(lambda m: m[0].upper(), _TWELVE.sub(clock, text))


def _anchored(text: str) -> str:
    """Wordings that lean on the present ("10 days ago", "until 1 May 2030") with "today" written out."""
    text = re.sub(r"\btoday's date\b", "today", text, flags=re.I)
    if re.match(r"(?:if|suppose|assume|given)\b", text, re.I):
        return text
    text = re.sub(r"\b(?:from now|from today|later)\b$", "after today", text, flags=re.I)
    text = re.sub(r"\bago\b", "before today", text, flags=re.I)
    text = re.sub(r"^(what (?:date|day)\b.* be) in (.{3,30})$", r"\1 \2 after today", text, flags=re.I)
    if "today" in text.lower() or re.search(r"\bfrom\b", text, re.I):
        return text
    if re.match(r"how (?:many|long)\b.*\b(?:until|till)\b", text, re.I):
        return f"{text} from today"
    return f"{text} until today" if re.match(r"how (?:many|long)\b.*\bsince\b", text, re.I) else text


class Calendar:
    """Answers questions about dates, times, durations and units; pure and safe to share between threads.

    `today` tells the date for "today", "tomorrow" and "yesterday"; without it, questions that need it are declined.
    """

    name = "calendar"
    domain = "dates, durations and units"

    def __init__(self, today: Callable[[], date] | None = None) -> None:
        self._today = today

    def solve(self, question: str) -> Solution | None:
        """The solution of one question, or None when it is outside the domain or not understood. Never raises."""
        return next((found for form in rewordings(question) if (found := self._read(form))), None)

    def _read(self, question: str) -> Solution | None:
        if len(question) > MAX_LENGTH:
            return None
        reading = read(_FEET.sub(r"\1 feet \2 inches", question))
        plain = reading.plain(reading.frame) if reading else ""
        if not 0 < len(plain) <= MAX_FRAME:
            return None
        frame, marks = moments.mask(_normal(_anchored(plain) if self._today else plain), self._today)
        return _solve(frame, marks) if _RELEVANT.search(frame) else None


def _solve(frame: str, marks: moments.Marks) -> Solution | None:
    """Try every operation on every form of the frame; a date that does not exist answers what was understood."""
    for variant in _variants(frame):
        for run, patterns in _table():
            for pattern in patterns:
                match = pattern.fullmatch(variant)
                if match is None:
                    continue
                if marks.wrong and run is not dates.exists:
                    return Solution(f"{marks.wrong[0]} does not exist", "The calendar has no such date.")
                if found := run(Asked(filled(match), marks)):
                    return found
    return None
