"""Wordings of the `calendar` skill in which what is known comes first and the question after it.

"It's August now. What month will it be in 11 months?", "A train leaves at 15:25 and arrives 3 hours later. When does
it arrive?", "Go back 176 days from 28 April 2026. What's the date?" The slots are those of `calendar`; a text between
slots ({any}) never holds a date, time, weekday, month name, quantity or digit, so that nothing told is passed over.

Not covered: working days, stories in which a duration is to be found, several people or trips.
"""

from __future__ import annotations

from trinity_core.agents.skills import clockwork as clocks
from trinity_core.agents.skills import datework as dates
from trinity_core.agents.skills.asked import Run

_TURN = (
    r"(?!\b(?:not|except|excluding|without|working|business|school|back\w*|before|earlier|ago|minus|subtract)\b"
    r"|n't\b)"
)
"""Words that would turn round what is asked; a text between slots holds none of them."""
_ONWARD = (
    r"(?!.*\b(?:ends?|ended|arriv\w+|finish\w*|clos\w+|over|due|late)\b(?: \w+){0,3} [\ue440-\ue47f])"
    r"(?!.*\b(?:when|time)\b.*\b(?:start|began|begin|leave|left|depart|set|should|have|had)\w*)"
)
"""A time at which something begins, and a question for its end."""
SLOTS = {
    "{onward}": _ONWARD,
    "{any}": rf"(?:{_TURN}[^\ue400-\ue53f\d]){{0,80}}?",
    "{some}": rf"(?:{_TURN}[^\ue400-\ue53f\d]){{2,80}}?",
    "{stop}": r"[,.;:!]?(?: (?:then|so|and|now))*",
    "{given}": r"(?:(?:if|when|suppose|assume|given|say|let's say|assuming|imagine)(?: that)? )?"
    r"(?:(?:it|today|now|this|the (?:current )?(?:date|day|month)|today's date|the date today|the day|this month"
    r"|the current month)(?:'s| is| was| were)|we(?:'re| are| have)(?: in| at)?|starting|beginning|counting"
    r"|start|begin"
    r"|counted|from|going)"
    r"(?: (?:now|currently|today|in|from|on|at|with|the month of|a|an))*",
    "{now}": r"(?: (?:now|today|at the moment|right now|currently))?",
    "{month?}": r"(?:(?:in |on )?(?:what|which)|{ask}(?: the)?) (?:calendar )?month(?: of the year)?(?: (?:that"
    r"|which))?",
    "{day?}": r"(?:(?:on )?(?:what|which)|{ask}(?: the)?) (?:day(?: of the week)?|weekday)(?: (?:that|which))?",
    "{date?}": r"(?:(?:on )?(?:what|which)|{ask}(?: the)?) (?:calendar )?(?P<want>date|day of the week|weekday|day)"
    r"(?: (?:that|which))?",
    "{be}": r"(?: (?:will|would|is|was|does|do|did|it|that|be|we|have|you|they|there|come|comes|fall|falls"
    r"|falling|lies"
    r"|occurs|reach|get|land on|arrive at|end up (?:on|at|in)|exactly|the date|the day|the month|then|in|after|on))*",
    "{way}": r"(?: (?P<way>later|ago|earlier|before|from now|hence|after|afterwards?|after that|before that|from then"
    r"|from today|from that day|have passed|has passed|pass|passed|prior|in the future|in the past|back|forwards?"
    r"|before now))",
    "{move}": r"(?:{given} )?(?:if (?:you|we|i) )?(?:go|move|count|counting|step|travel|jump|look|going|moving)",
    "{dir}": r"(?: (?P<way>back|backwards?|forwards?|on|ahead))?",
    "{told}": r"(?:[.,;:]? (?:and )?(?:what(?:'s| is| was)|tell me|give|name|find|which|state)"
    r"(?: (?:the|is|resulting|final|new|it|that|date|day|month|weekday|then))*|[.,;:]? (?:to )?(?:where|what|which)"
    r"(?: (?:date|day|weekday|month))?(?: of the week)?{be})?",
}

_MONTH_LATER = (
    r"{month?}{be} {q}{after} {month}",
    r"{given} {month}{now}{stop} {month?}{be} {q}{way}?{be}",
    r"{given} {month}{now}{stop} (?:in|after) {q}{stop} {month?}{be}",
    r"{q}{after} {month}(?: (?:is|comes|it is))? (?:what|which) month",
    r"{q}{after} {month}{stop} {month?}{be}",
    r"(?P<way>add) {q} to {month}{told}",
    r"{month} (?P<way>plus|minus|\+|-) {q}",
    r"{move}{dir} {q}{dir} (?:from|after) {month}{told}",
    r"{any}\b{month}\b{some} {q}{way}{stop}{any} {month?}{any}",
)
_WEEKDAY_LATER = (
    r"{day?}{be} {q}{after} {w}",
    r"{given} {w}{now}{stop} {day?}{be} {q}{way}?{be}",
    r"{given} {w}{now}{stop} (?:in|after) {q}{stop} {day?}{be}",
    r"{q}{after} {w} (?:is|comes|it is) (?:what|which) (?:day|weekday)(?: of the week)?",
    r"{q}{after} {w}{stop} {day?}{be}",
    r"(?P<way>add) {q} to {w}{told}",
    r"{w} (?P<way>plus|minus|\+|-) {q}",
    r"{move}{dir} {q}{dir} from {w}{told}",
    r"{some}{w}{some}{q}{way}{any}{stop} {day?}{any}",
    r"{some}{w}{now}{stop} {day?}{be} {q}{way}{be}",
)
_WEEKDAY_OF = (
    r"{some}{d}{any}{stop} {day?}(?: (?:is|was|will|would))? (?:that|it|this)(?: (?:be|on))?",
    r"{d} (?:is|was|falls on|fell on) (?:what|which) (?:day(?: of the week)?|weekday)",
)
_MEASURED = (
    r"{some}{q}{any}{stop} (?:what is|what's|give|find|what would be|what will be) (?:its|the|his|her|their|that"
    r"|this|it)"
    r"(?: (?:weight|length|height|width|distance|temperature|time|duration|speed|mass|volume|depth|size))?(?: be)? in"
    r" {u}",
    r"what (?:temperature|length|weight|distance|time|height|volume|speed|mass) in {u} (?:is|are|equals) {q}",
)
_DATE_LATER = (
    r"{date?}{be} {q}{after} {d}{be}",
    r"what (?:will|would|is|was) the (?P<want>date|day of the week|weekday|day)(?: be)?(?: exactly)? {q}{after} {d}",
    r"{given} {d}{now}{stop} {date?}{be} {q}{way}?{be}",
    r"{given} {d}{now}{stop} what (?:will|would|is|was) the (?P<want>date|day of the week|weekday)(?: be)?(?: in)?"
    r" {q}{way}?",
    r"{given} {d}{now}{stop} (?:in|after) {q}{stop} {date?}{be}",
    r"{q}{after} {d} (?:is|falls on|comes|it is) (?:what|which) (?P<want>date|day of the week|weekday)",
    r"{some}{q}{after} {d}{any}{stop} {date?}(?: (?:is|was|will|would))?(?: (?:that|it|this))?(?: be)?",
    r"{some}{d}{some}{q}{way}{any}{stop} {date?}{any}",
    r"{some}{q}{after} {d}{any}{stop} when (?:is|was|does|do|will|would|must|should) (?:it|he|she|they|we|i|that"
    r"|the \w+)"
    r"(?: (?:be|due|over|end|start|begin|arrive|open|close|expire|finish|take place|happen))*",
    r"{some}{d}{some}(?:takes|took|needs|needed|arrives after|is delivered after) {q}{any}{stop} (?:when|(?:on"
    r" )?(?:what"
    r"|which) (?:date|day)) (?:does|did|will) (?:it|he|she|they|the \w+) arrive",
    r"{move}{dir} {q}{dir} from {d}{told}",
    r"{date?}{be} (?:if|when|by) (?:you|we|i)?(?: ?go| ?count| ?move| ?add| ?adding| ?counting| ?going){dir} {q}{dir}"
    r" (?:from|to) {d}",
)
_DAYS_APART = (
    r"{given} {d}{now}{stop} how many {u}(?: is| are| have| were)?(?: there| it| left| remain(?:ing)?| to go| must"
    r"| still| we| you| i| wait| need to)* (?:until|till|to|before) {e}{incl}",
    r"{given} {d}{now}{stop} how many {u}(?: have| has| is it| were| are)?(?: passed| elapsed| gone by| it)*"
    r" since {e}",
    r"how many {u} (?:separate|lie between|fall between|pass between|elapse between|pass from|elapse from) {d} (?:and"
    r"|from|to|until) {e}{incl}",
    r"how (?:many {u}|far|long)(?: {u})? apart (?:are|were) (?:the dates )?{d} and {e}(?: in {u})?",
    r"how many {u} (?:later|earlier|after|before)(?: than)? {d} (?:is|was|comes|came|does) {e}(?: come| fall)?",
    r"how many {u} (?:later|earlier) (?:is|was) {d} than {e}",
    r"by how many {u} (?:does|did|is|are) {d} (?:precede|follow|before|after|come before|come after|differ from) {e}",
    r"how many {u} (?:pass|elapse|go by|do you have to wait|must you wait|does it take|will pass|have passed|passed"
    r"|elapsed)(?: there)? (?:from|between) {d} (?:to|and|until|till) {e}{incl}",
    r"(?:from|between) {d} (?:to|until|till|and) {e}{incl}{stop} (?:how many {u}|what is the number of {u})"
    r"(?: (?:are|is|there|it|that|pass|passed|have|elapse|elapsed|do|you|count|lie|in between))*",
    r"how many {u} do (?:you|we|i) (?:get|count|have)(?: when counting)? (?:from|between) {d} (?:to|and|until)"
    r" {e}{incl}",
)
_MONTH_LENGTH = (
    r"how many {u} (?:does|did|do|will) {month} (?:have|had|contain|last) in {y}",
    r"how many {u}(?: are| were| is)?(?: there)? (?:in|during) {month} (?:in|of|during) {y}",
    r"how (?:long|many {u} long) (?:is|was|will) (?:{m}|{month}(?: (?:in|of) {y})?)(?: be)?(?: in {u})?",
    r"(?:{ask} )?(?:the )?length (?:in {u} of|of) (?:{m}|{month}(?: (?:in|of) {y})?)(?: in {u})?",
    r"how many {u} (?:make up|are part of|belong to|fall in) (?:{m}|{month}(?: (?:in|of) {y})?)",
    r"{m} (?:has|had|will have|contains|is) how many {u}(?: long)?",
)
_LEAP = (
    r"{y}(?:[:,-]| -)?(?: is it| was it| is this| is)?(?: a| an)? leap[ -]year",
    r"leap year[:,]? {y}",
    r"(?:does|did|will) {y} (?:count|qualify) as a leap year",
    r"(?:does|did|will) february have (?:a 29th(?: day)?|{q}) in {y}",
    r"(?:is|was|will) (?:there|it) (?:be )?a leap (?:year|day) in {y}",
    r"(?:is|was) {y} leap",
    r"(?:is|was|would|will|did|does|has|had) {y}(?: going to)?(?: (?:be|have|had))? (?:a leap year|{q})",
    r"{y} (?:is|was|will be) (?:a leap year|{q})",
    r"(?:does|did|will) {m} have {q}",
)
_CLOCK_LATER = (
    r"(?:what|which) time (?:is|was|will it be|comes|will be)(?: it)?(?: exactly)? {q}(?P<way> (?:after|before"
    r"|past|later than"
    r"|earlier than)) {t}",
    r"what (?:will|would|is|was) the time(?: be)? {q}(?P<way> (?:after|before|past)) {t}",
    r"{onward}{some}{t}{some}(?:needs|takes|lasts|is on the road for|travels for|runs for) {q}{any}{stop}"
    r" (?:when|(?:at"
    r" )?what time)"
    r"{any}",
    r"{some}{t}{some}{q}{way}{any}{stop} (?:when|(?:at )?what time){any}",
    r"{some}{q}{after} {t}{any}{stop} (?:when|(?:at )?what time){any}",
    r"{some}{t}{now}{stop} what (?:time )?will (?:it|the clock|the watch) (?:show|say|read)(?: in| after)? {q}{way}?",
)

STORIES: tuple[tuple[Run, tuple[str, ...]], ...] = (
    (dates.weekday_of, _WEEKDAY_OF),
    (dates.month_shift, _MONTH_LATER),
    (dates.weekday_shift, _WEEKDAY_LATER),
    (dates.shift_date, _DATE_LATER),
    (dates.between, _DAYS_APART),
    (dates.days_in_month, _MONTH_LENGTH),
    (dates.leap, _LEAP),
    (clocks.shift_time, _CLOCK_LATER),
    (clocks.convert, _MEASURED),
)
"""What is computed, and the wordings that ask for it; tried after the direct questions of `calendar`."""
