"""Plainer wordings of a question: indirect questions made direct, instructions made questions, fillers taken off.

The tables of the specialists know direct questions ("How many days does May 2020 have?"). People also write "Tell me
how many days May 2020 has", "Count the days in May 2020" or "..., yes or no?". `rewordings` turns the second kind
into the first, so that each table need not know every way to ask.

Invariants: the question as asked comes first, so that a rewording only ever answers what was declined before; nothing
that decides the answer is dropped (a sentence is left out only when it is a story whose numbers all return in the
question). Pure functions of strings. Not covered: questions of several sentences that need each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

MAX_CHARS = 600
"""A longer question is not reworded: nobody asks indirectly in so many characters."""
MAX_FORMS = 7
"""The most wordings given, the original included."""

_LEAD = re.compile(
    r"(?:(?:please|kindly|ok(?:ay)?|so|well|now|say|look|hey|hi|hello|right|alright|also|and|then|next|finally"
    r"|quick question|question|just|using the (?:correct )?order of operations)\b[,:!]?\s+(?!['\"]))+",
    re.IGNORECASE,
)
_KNOW = r"(?:know|learn|see|find out|understand|hear|ask(?: you)?|check|determine|figure out|work out|tell me)"
_ASKING = re.compile(
    r"(?:(?:can|could|would|will) (?:you|u|anyone|someone) (?:please |kindly |just |quickly |possibly )*)?"
    r"(?:(?:tell|remind|show) (?:me|us)|let (?:me|us) know|say|state|find(?: out)?|determine|check|test|verify|decide"
    r"|work out|figure out|calculate|compute|explain|count(?: up)?|do you (?:know|happen to know)|any idea|guess"
    rf"|(?:i|we)(?:(?:'d| would) (?:like|love)| (?:want|need|have|wish)|(?:'m| am|'re| are) trying)(?: you)? to"
    rf" {_KNOW}"
    r"|(?:i|we)(?:'m| am|'re| are)? wonder(?:ing)?|help me (?:find out|work out|figure out|see))"
    r"(?: please)?[,:]?\s+(?=(?:exactly |just )?(?:what|which|how|when|whether|if|on|in|at|the)\b)(?:exactly "
    r"|just )?",
    re.IGNORECASE,
)
_TRUE = re.compile(r"is it (?:true|correct|right|the case|so) that (?=\S)", re.IGNORECASE)
_LATE = re.compile(
    r"(?P<of>.+?),? (?:(?P<be>is|are|was)|equals?|makes?|gives?|comes to|has the value) (?:what|how much|how many)"
    r"(?: (?:number|in total|then))?",
    re.IGNORECASE,
)
_COURTESY = re.compile(
    r"(?:(?:can|could|would|will) (?:you|u) (?:please |kindly |just )*(?!be\b)|i(?:'d| would) like you to |help me )"
    r"(?=[a-z]+ )",
    re.IGNORECASE,
)
_CLOSING = (
    r"[\s,.;:?!]+(?:and )?(?:(?:what(?:['’]s| is| will be| would be)|give|tell|state|find|report|write|show|say|name)"
    r"(?: (?:me|us|down))? (?:the|your) (?:final |end |resulting |correct )?(?:result|answer|outcome|output)"
    r"|what (?:do|will|would) (?:you|we|i) (?:get|have|obtain|end up with))(?: then| in the end| now)?"
)
"""A closing request that only asks to say the result."""
_TAILS = tuple(
    re.compile(pattern + r"[\s.?!)]*$", re.IGNORECASE)
    for pattern in (
        _CLOSING,
        r"[\s,.;:?!(]+(?:(?:please )?(?:just )?(?:answer|say|reply|respond|write|state)(?: (?:me|with|by|in|only|just"
        r"|simply|either))* )?(?:a )?(?:simple |clear )?(?:yes|true)(?: or |/)(?:no|false)(?: answer)?",
        r"(?:,? or (?:is it |was it )?(?:not|isn't it|wasn't it))",
        r"(?:[\s,.;:]+(?:and )?(?:give|write|state|express|show) (?:the|your) (?:answer|result)| given|"
        r" expressed)? as an?"
        r" (?:(?:simplified|reduced|simple|proper) )?fraction(?: in (?:lowest|simplest) (?:terms|form))?",
        r",? (?:in total|altogether|all together|in all|all in all|overall|precisely|exactly|in the end|please"
        r"|thanks|thank you)",
        r"[\s,.;:(]+(?:please )?(?:give|show|state|write|answer|reply|respond|return|output|print)(?: (?:me|us))?"
        r"(?: (?:the|your|only|just|with|as|in|final|answer|result|a|an|one|single|simple|plain))*"
        r" (?:number|digits|figures|letter|answer|result|name|date|value)(?: only)?",
    )
)
_WH = r"(?:(?:on|in|at) )?(?:what|which)(?: (?!is\b|are\b|was\b)[a-z]+(?: of the (?:week|year|month))?)?"
_BE = r"is|are|was|were|will be|would be"
_HAVE = {"has": "does", "have": "do", "had": "did"}
_UNITS = "days|weeks|months|years|hours|minutes|seconds"
_IMPERATIVE = re.compile(
    r"(?:name|state|give(?: me| us)?|find(?: me| out)?|tell (?:me|us)|determine|calculate|compute|work out|figure out"
    r"|identify|pick(?: out)?|choose|select|get(?: me)?|take|show(?: me| us)?|report|write(?: down| out)?|return"
    r"|output"
    r"|print|provide|look up|establish|(?:i|we) (?:need|want|am looking for|are looking for)(?: to have)?"
    r"|(?:i'm|we're) looking for|(?:i|we)(?:'d| would) like(?: to have)?|let me have|say)"
    r"(?: please)?:? (?=(?:the|its|their)\b|\d)",
    re.IGNORECASE,
)
_NUMBER_OF = re.compile(
    r"(?:what(?:['’]s| is| was| are)|find|give(?: me)?|calculate|compute|determine|count|state|work out|get|take"
    r"|tell me"
    r"|report|name) (?:up )?(?:the )?(?:total |exact |whole )?(?:number|count|amount) of (?P<rest>.+)",
    re.IGNORECASE,
)
_COUNT = re.compile(
    r"count(?: up)? (?:all (?:of )?)?(?:the )?(?P<what>[a-z]+(?: [a-z]+){0,2}?)(?: there are)? (?P<in>in|of|from"
    r"|between"
    r"|inside|within|until|till) (?P<rest>.+)",
    re.IGNORECASE,
)
_SPAN = re.compile(
    rf"(?:find|give(?: me)?|calculate|compute|determine|count|work out|get|state)(?: the)? (?P<what>{_UNITS})"
    r" (?P<in>between|from|until|till|in) (?P<rest>.+)",
    re.IGNORECASE,
)
_STORY = re.compile(r"(?:I|I'm|I'd|I've|My|We|We're|Our)\b|(?=.*\d)(?:An?|The|[A-Z][a-z]+) [a-z]+ ")
_CONDITION = re.compile(
    r"\b(?:assum\w*|treat\w*|count\w*|ignor\w*|consider\w*|suppos\w*|let|only|not|without|except|every|each|mean\w*"
    r"|call\w*|defin\w*|if|use|using|add\w*|round\w*)\b|n't\b|\?",
    re.IGNORECASE,
)
_REFERS = re.compile(r"\b(?:it|that|this|they|them|those|these|he|she|there|his|her|my|our|i|we)\b", re.IGNORECASE)


_ENDS = re.compile(_CLOSING + r"[\s.?!]*$", re.IGNORECASE)


def without_closing(text: str) -> str:
    """`text` without a last request that only asks to say the result ("What is the result?")."""
    shorter = _ENDS.sub("", text)
    return shorter if len(shorter) > 8 else text


def rewordings(question: str) -> tuple[str, ...]:
    """`question`, then plainer wordings of it, the likeliest first, without duplicates; at most MAX_FORMS."""
    forms = [question]
    if len(question) <= MAX_CHARS:
        text = " ".join(question.replace("’", "'").split())
        for trimmed in dict.fromkeys((_trimmed(text), _own_question(text))):
            if trimmed:
                forms += [trimmed, *_direct(trimmed)]
    return tuple(dict.fromkeys(form for form in forms if form.strip()))[:MAX_FORMS] or (question,)


def _trimmed(text: str) -> str:
    """`text` without courtesies before and fillers after what is asked."""
    text = _LEAD.sub("", text, count=1) if _LEAD.match(text) else text
    for _ in range(2):
        for tail in _TAILS:
            shorter = tail.sub("", text)
            text = shorter if len(shorter) > 8 else text
    text = text.rstrip(" ?!.,;:") if re.search(r"[\w)'\"][ ?!.,;:]+$", text) else text
    return text


def _own_question(text: str) -> str:
    """The last sentence, when the ones before only tell a person's reason to ask; "" otherwise."""
    head, _, last = text.rstrip(" ?!.").rpartition(". ")
    numbers = [set(re.findall(r"\d[\d.,]*(?<=\d)", part)) for part in (head, last)]
    referring = _REFERS.search(re.sub(r"\b(?:(?:is|was|be|will|would) it|it (?:is|was|will|would))\b", "", last))
    plain = _STORY.match(head) and not _CONDITION.search(head) and not re.search(r"['\"“”]\S+['\"“”]", head)
    return last if plain and numbers[1] and numbers[0] <= numbers[1] and not referring else ""


def _direct(text: str) -> Iterator[str]:
    """`text` as a direct question, in every way that fits."""
    asked = text
    if found := _TRUE.match(text):
        if form := _whether(f"whether {text[found.end() :]}"):
            yield form
    elif re.match(r"(?:whether|how (?:many|much|often)|what|which)\b", text, re.IGNORECASE):
        yield from (form for rule in _INDIRECT if (form := rule(text)))
    elif found := _ASKING.match(text):
        asked = text[found.end() :]
        yield from (form for rule in _INDIRECT if (form := rule(asked)))
        yield asked
    elif found := _COURTESY.match(text):
        asked = text[found.end() :]
        yield asked
    if found := _LATE.fullmatch(text):
        yield f"what {found['be'] or 'is'} {found['of']}"
    for form in dict.fromkeys((asked, text)):
        if found := _IMPERATIVE.match(form):
            yield f"What is {form[found.end() :]}"
        if found := _NUMBER_OF.fullmatch(form):
            yield f"How many {found['rest']}"
            yield "How many " + re.sub(r" (?=in |of |between |from |until )", " are ", found["rest"], count=1)
        if found := _COUNT.fullmatch(form) or _SPAN.fullmatch(form):
            place = "in" if found["in"].lower() == "of" else found["in"]
            yield f"How many {found['what']} are {place} {found['rest']}"


def _what_it_is(asked: str) -> str | None:
    """ "what 5 times 6 is": "what is 5 times 6"."""
    found = re.fullmatch(rf"(?P<wh>{_WH}) (?P<of>.+) (?P<be>{_BE})(?: on| in)?", asked, re.IGNORECASE)
    return f"{found['wh']} {found['be']} {found['of']}" if found else None


def _falls(asked: str) -> str | None:
    """ "what day 3 May 2020 falls on": "what day does 3 May 2020 fall on"."""
    found = re.fullmatch(rf"(?P<wh>{_WH}) (?P<of>.+) (?:falls?|fell|lands?)(?: on)?", asked, re.IGNORECASE)
    return f"{found['wh']} is {found['of']}" if found else None


def _has(asked: str) -> str | None:
    """ "how many days May 2020 has": "how many days does May 2020 have"."""
    found = re.fullmatch(
        r"how many (?P<what>(?:(?:different|distinct|capital|unique) )?[a-z]+) (?P<of>(?!are\b|is\b|there\b).+)"
        r" (?P<verb>has|have|had|contains?)(?: in it)?",
        asked,
        re.IGNORECASE,
    )
    if not found:
        return None
    return f"how many {found['what']} {_HAVE.get(found['verb'].lower(), 'does')} {found['of']} have"


def _there_are(asked: str) -> str | None:
    """ "how many hours there are in 2 days": "how many hours are there in 2 days"."""
    found = re.fullmatch(
        r"(?P<what>how many .+?) there (?P<be>are|were|is|will be)(?P<rest>.*)", asked, re.IGNORECASE
    )
    return f"{found['what']} {found['be']} there{found['rest']}" if found else None


def _measured(asked: str) -> str | None:
    """ "how many meters 4 kilometers are": "how many meters are 4 kilometers"."""
    found = re.fullmatch(
        r"how many (?P<what>[a-z]+) (?P<of>\d.*) (?:is|are|make|makes|equals?)", asked, re.IGNORECASE
    )
    return f"how many {found['what']} are {found['of']}" if found else None


def _occurs(asked: str) -> str | None:
    """ "how often the letter e appears in X": "how often does the letter e appear in X"."""
    found = re.fullmatch(
        r"(?P<what>how (?:often|many times|frequently)) (?P<of>(?!do|is\b).+) (?P<verb>appear|occur|come|show)s?"
        r"(?P<rest>(?: up)? (?:in|inside|within) .+)",
        asked,
        re.IGNORECASE,
    )
    return f"{found['what']} does {found['of']} {found['verb']}{found['rest']}" if found else None


def _whether(asked: str) -> str | None:
    """ "whether 7 is prime": "is 7 prime"; "if X contains an e": "does X contain an e"."""
    found = re.fullmatch(
        r"(?:whether|if) (?:or not )?(?:it is true that )?(?P<of>.+?) (?P<verb>is|are|was|were|will be|has|had"
        r"|contains?"
        r"|starts?|ends?|begins?|comes?|divides?) (?P<rest>.+)",
        asked,
        re.IGNORECASE,
    )
    if not found:
        return None
    verb, of, rest = found["verb"].lower(), found["of"], found["rest"]
    if verb in ("is", "are", "was", "were"):
        return f"{verb} {of} {rest}"
    if verb == "will be":
        return f"will {of} be {rest}"
    return f"{_HAVE.get(verb, 'does')} {of} {'have' if verb in _HAVE else verb.removesuffix('s')} {rest}"


_INDIRECT: tuple[Callable[[str], str | None], ...] = (
    _what_it_is,
    _there_are,
    _measured,
    _occurs,
    _falls,
    _has,
    _whether,
)
