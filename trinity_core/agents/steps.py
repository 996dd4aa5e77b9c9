"""Questions in several steps: where one step ends, and how an earlier result enters a later one.

A step starts at a request (a question or an instruction) that refers back to an earlier request: by "that word",
"the result", "it", or by leaving its operand out ("then divide by 2"). Everything else stays with the step before
it, so a story and its question remain one step. Text in quotes is never split and never taken for a reference.

Pure functions of strings. Not covered: requests that do not refer to each other stay together as one step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trinity_core.agents.skills.plain import without_closing

MAX_CHARS = 2000
"""A longer question is taken as one step: nobody words steps in so many characters."""

_QUOTE = "\ue000"  # stands for each character of a quoted part in masked text
_DOT = "\ue001"  # stands for the dot of an abbreviation
_SLOT = "\ue002"  # where the value goes

_LEAD = (
    r"(?:(?:please|also|then|next|now|finally|lastly|first(?:ly)?|second(?:ly)?|third(?:ly)?|after that"
    r"|afterwards?|and|so|ok(?:ay)?|well)\b[,:]?\s+)*"
)
_LABEL = r"(?:step\s+\d+\s*[:.)-]\s*)"
_VERBS = (
    "add|alphabeti[sz]e|append|apply|arrange|begin with|calculate|capitali[sz]e|change|check|choose|compute|"
    "concatenate|consider|convert|count|cube|decode|decrease|decrypt|deduct|delete|determine|differentiate|divide|"
    "double|drop|encode|encrypt|evaluate|expand|express|factor|factori[sz]e|figure out|find|get|give|go|halve|"
    "identify|increase|insert|integrate|join|list|look up|lowercase|move|multiply|name|negate|order|output|pick|"
    "prepend|print|"
    "put|quadruple|raise|rearrange|reduce|remove|repeat|replace|report|return|reverse|rewrite|rotate|round|say|shift|"
    "show|simplify|solve|sort|spell|square|start with|start from|state|subtract|swap|take|tell|test|translate|triple|"
    "turn|uppercase|use|work out|write"
)
_ASKS = (
    "what|what['’]s|whats|how|which|when|who|who['’]s|where|why|is|are|was|were|does|did|do|can|could|will|would|has"
    "|have|(?:on|in|at|from|to|for|by) (?:what|which|how)"
)
# Asks what the step before already gives ("Divide 9 by 4. What is the remainder?"): no step of its own.
_NAMING = re.compile(
    rf"{_LEAD}(?:what(?:['’]s| is| was| will be)|give|state|find|name|tell|write|report|say)(?: me| down)?"
    rf" (?:the|its)"
    r" (?:final |resulting )?(?:remainder|rest|quotient|sum|product|difference|total|date|day|weekday|month|time"
    r"|value)"
    r"(?: then| now)?[\s.?!]*"
    rf"|{_LEAD}(?:(?:on|in|at) )?(?:what|which) (?:date|day|weekday|month|time)(?: of the week)? (?:is|was|will"
    rf"|do|does)"
    r" (?:it|you|we|i)(?: (?:be|get|reach|fall on|land on|arrive at))?(?: then)?[\s.?!]*",
    re.IGNORECASE,
)
_REQUEST = re.compile(rf"{_LABEL}?{_LEAD}{_LABEL}?(?:{_VERBS}|{_ASKS})\b", re.IGNORECASE)
_HAS_REQUEST = re.compile(rf"(?:^|[.?!;,:\n]\s*|\b(?:and|then)\s+){_REQUEST.pattern}", re.IGNORECASE)
_BREAK = re.compile(
    r"[.?!]+[\"')\]”’]*\s+|\s*[,;]?\s*(?:\band\s+)?\bthen\s+|\s*;\s*(?:and\s+)?|\s*,\s*(?:and\s+)?|\s+and\s+"
    r"|\s*\n+\s*",
    re.IGNORECASE,
)
_NOUNS = (
    r"number of(?=\s)|many|much|amount of(?=\s)|number|result|answer|value|sum|product|difference|quotient|total|"
    "count|date|day|weekday|month|year|word|string|text|name|city|country|capital|amount|figure|quantity|duration|age|"
    "letter|phrase|sentence|outcome|output|remainder|distance|price|cost|length|percentage|fraction|integer|average|"
    "root|solution|expression|period|list|code|message|one|thing|area|volume|score|person|animal|planet|language"
)
# After a pronoun, not the noun it would belong to.
_NO_NOUN = (
    "is|are|was|were|has|have|had|will|would|can|could|and|or|by|to|from|in|into|of|with|as|for|on|at|than|backwards?|"
    "again|times|plus|minus|divided|multiplied|be|come|fall|contain|back|then|when|if|up|down|twice|alphabetically|"
    "squared|cubed|a|an|the|together|after|before|out|over|modulo|mod|prime|even|odd|exactly|mean|equal"
)
_BEFORE = (
    rf"of|in|to|from|by|with|for|at|on|into|than|between|before|after|does|do|did|is|are|was|has|and|times|plus"
    rf"|minus|"
    rf"{_VERBS}"
)
_QUALIFIER = r"(?:same|resulting|final|previous|last|new|obtained|computed|first|above|earlier)"
_POSSESSED = r"(?:['’]s\s+(?:name|title))?"
_WHICH_PART = (
    r"(?:very|first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|last|final|middle|next[ -]to[ -]last"
    r"|second[ -]to[ -]last|penultimate|and|two|three|four|longest|shortest|most common|\d+(?:st|nd|rd|th))"
)
_PLACES = re.compile(r"(?:position|place|index|spot|slot)$", re.IGNORECASE)
_REFERENCES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?P<ref>(?:that|this|those|these)\s+(?:{_QUALIFIER}\s+)?(?:{_NOUNS})\b{_POSSESSED})",
        rf"\b(?P<ref>the\s+(?:resulting|previous|obtained|computed|earlier)\s+(?:{_NOUNS})\b)",
        r"\b(?P<ref>(?:the\s+(?:final\s+)?(?:result|answer|outcome|output)|your\s+(?:result|answer)"
        r"|what(?:ever)?\s+(?:you|we)\s+(?:get|got|found|obtained))\b)(?!\s+(?:of|when|if|from)\b)",
        r"\b(?P<ref>the\s+(?:number|word|sum|product|difference|quotient|total|count|date|value|name|string|weekday"
        r"|city|country|remainder)\b)(?!\s+(?:of|between|that|which|from|for|to|in|after|before|when|on|at|with|is)\b"
        rf"|\s*[{_QUOTE}\d]|\s+(?-i:[A-Z]))",
        rf"\b(?:{_BEFORE})\s+(?P<ref>(?:that|this)\s+(?!(?:{_NO_NOUN})\b)[a-z]+\b{_POSSESSED})",
        rf"\b(?P<ref>its)\s+(?!(?:position|place|rank|index)\b)(?P<part>(?:{_WHICH_PART}\s+)*\w+)",
        r"\b(?P<ref>it|that|this)\b(?!['’])",
    )
)
_NUMBER = (
    r"(?:[-+]?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty"
    r"|fifty|(?:a|one) hundred)"
)
_END = r"(?P<end>\s*[.?!,;]*)$"
_SO = r"^(?:(?:and|then|now|next|what about|how about|what is|what['’]s|ok(?:ay)?|so)\b,?\s+)*"
_IMPLICIT = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), form)
    for pattern, form in (
        (
            rf"^({_LEAD}(?:multiply|divide|increase|decrease|reduce|raise|shift|rotate))\s+((?:by|to)\s.+)$",
            r"\1 @ \2",
        ),
        (rf"^({_LEAD}add\s+{_NUMBER}){_END}", r"\1 to @\g<end>"),
        (
            rf"^({_LEAD}(?:subtract|take away|take off|take|deduct|remove)\s+{_NUMBER}(?: away| off)?){_END}",
            r"\1 from @\g<end>",
        ),
        (
            rf"^({_LEAD}(?:double|triple|quadruple|halve|square|cube|reverse|negate|sort|alphabeti[sz]e|capitali[sz]e"
            rf"|uppercase|lowercase|simplify|expand|factori[sz]e|factor)){_END}",
            r"\1 @\g<end>",
        ),
        (rf"^({_LEAD}round)\s+(to\s.+)$", r"\1 @ \2"),
        (
            rf"^({_LEAD}(?:take|find|compute|calculate)\s+the (?:square root|cube root|factorial|square|cube)){_END}",
            r"\1 of @\g<end>",
        ),
        (
            _SO + r"((?:(?:multiplied|divided|increased|decreased|reduced) by|plus|minus|times|to the power(?: of)?"
            r"|modulo|mod)\s.+)$",
            r"what is @ \1",
        ),
        (_SO + rf"(squared|cubed){_END}", r"what is @ \1\g<end>"),
    )
)
_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|‘[^’\n]*’|(?<!\w)'[^'\n]*'(?!\w)|`[^`\n]*`")
_ABBREVIATION = re.compile(r"\b(?:mr|mrs|ms|dr|st|vs|prof|e\.g|i\.e|a\.m|p\.m|jr|sr)\.", re.IGNORECASE)
_GIVEN = re.compile(
    rf"^{_LEAD}(?:take|consider|start with|start from|begin with|use)\s+(?:the\s+)?"
    rf"(?:word|number|string|phrase|text|sentence|name|date)?\s*(?P<value>{_QUOTE}+|{_NUMBER})\s*[.?!,;:]*$",
    re.IGNORECASE,
)
_ONE_ASSIGNMENT = re.compile(r"^[A-Za-z]\w*\s*=\s*([^=]+)$")


def split_steps(question: str) -> tuple[str, ...]:
    """The steps of `question` in order, each as the user worded it without its connective; one step when nothing
    refers back. An empty question is one empty step."""
    text = question.strip()
    if len(text) > MAX_CHARS:
        return (text,)
    if _HAS_REQUEST.search(_mask(shorter := without_closing(text))):
        text = shorter
    masked = _mask(text)
    steps: list[str] = []
    start = 0
    for left, right, stop in _clauses(masked):
        clause = masked[right:stop]
        if _NAMING.fullmatch(clause):
            continue
        if _HAS_REQUEST.search(masked[start:left]) and (refers_back(clause) or re.match(_LABEL, clause, re.I)):
            steps.append(_tidy(text[start:left]))
            start = right
    steps.append(_tidy(text[start:]))
    steps = [step for step in steps if step]
    if len(steps) < 2:
        return (text,)
    if given := _GIVEN.match(_mask(steps[0])):  # "Take the word 'dog'": a value, not a step
        value = steps[0][given.start("value") : given.end("value")]
        steps[:2] = [substitute(steps[1], value)]
    return tuple(steps)


def substitute(step: str, value: str, *, quote: bool = True) -> str:
    """`step` with `value` in the place of what refers to an earlier result; text values go in quotes.

    A step that only lacks its operand ("divide by 2") gets it; one that refers to nothing stays as it is.
    """
    shown = _shown(value, quote)
    masked = _mask(step)
    for pattern in _REFERENCES:
        found = list(pattern.finditer(masked))
        if found:
            return _replace(step, found, shown)
    return _supply(step, shown) or step


def refers_back(step: str) -> bool:
    """Whether `step` needs an earlier result."""
    masked = _mask(step)
    return any(pattern.search(masked) for pattern in _REFERENCES) or _supply(step, "") is not None


def _clauses(masked: str) -> Iterator[tuple[int, int, int]]:
    """Where a request begins after a break: (end of what is before, start of the clause, end of the clause)."""
    found = [m for m in _BREAK.finditer(masked) if _REQUEST.match(masked, m.end())]
    stops = [*(m.start() for m in found[1:]), len(masked)]
    for match, stop in zip(found, stops, strict=False):
        closing = re.match(r"[.?!]*", match.group())  # the mark that ends the sentence stays with it
        yield match.start() + (closing.end() if closing else 0), match.end(), stop


def _replace(step: str, found: Sequence[re.Match[str]], shown: str) -> str:
    word = found[0]["ref"].lower()
    if word in ("that", "this"):  # a second bare "that" is more likely a conjunction
        found = found[:1]
    out, at = [], 0
    for match in found:
        out.append(step[at : match.start("ref")])
        at = match.end("ref")
        if word == "its":
            part = match["part"]
            inside = re.search(r"(?i)\b(?:letter|vowel|consonant|digit|character|word)s?$", part)
            out.append(f"the {part} {'in' if inside else 'of'} {shown}")
            at = match.end("part")
        else:  # "the letter at that position": at position 3
            noun = _PLACES.search(match["ref"])
            out.append(f"{noun.group()} {shown}" if noun else shown)
    return "".join([*out, step[at:]])


def _supply(step: str, shown: str) -> str | None:
    """`step` with the operand that it leaves out, or None when it leaves none out."""
    for pattern, form in _IMPLICIT:
        if match := pattern.match(step.strip()):
            return match.expand(form.replace("@", _SLOT)).replace(_SLOT, shown)
    return None


def _shown(value: str, quote: bool) -> str:
    value = " ".join(value.split())
    if assignment := _ONE_ASSIGNMENT.match(value):
        value = assignment[1].strip()
    if not quote or any(c.isdigit() for c in value) or _QUOTED.fullmatch(value):
        return value
    return f'"{value}"' if "'" in value else f"'{value}'"


def _mask(text: str) -> str:
    """Equally long text in which quoted parts are placeholders and abbreviations have no dots."""
    text = _QUOTED.sub(lambda m: _QUOTE * len(m.group()), text)
    return _ABBREVIATION.sub(lambda m: m.group().replace(".", _DOT), text)


def _tidy(step: str) -> str:
    """A step without the words that only connect it, closed by its own mark."""
    step = step.strip().rstrip(",;").strip()
    step = re.sub(rf"^{_LABEL}?{_LEAD}{_LABEL}?", "", step, count=1, flags=re.IGNORECASE)
    return step[:1].upper() + step[1:] if re.match(r"[a-z]{2}", step) else step
