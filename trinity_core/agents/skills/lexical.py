"""The `lexical` skill: letters, words, sorting, codes and ciphers, computed rather than guessed.

A question is read by `wording.read` (politeness off, quotations masked), brought into one form by `variants`
("In the word W, what is ...?" and "...: W" become "... in W"), and compared with a table of operations. Each
operation is whole-question patterns with slots ({w} and {v} mentions, {a} and {b} a letter or a quotation, {n} a
number, {o} a place in a row) and a function of `wordplay` or `wordcraft`; the tables are `askedwords` and
`madewords`. Nothing matches a mere part of a question, so what is not understood is declined.

Conventions, said in the working where they matter: letters are compared without case unless the question names
one; the vowels are a, e, i, o, u with their accents, y is a consonant; characters are what a reader sees and
include blanks; numbers in words use the British "and"; ties are all given; order is that of the base letters.
Not covered: syllables, rhymes, plurals, meanings, translation, languages other than English.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import islice

from trinity_core.agents.skills.askedwords import ASKED
from trinity_core.agents.skills.madewords import MADE
from trinity_core.agents.skills.plain import rewordings
from trinity_core.agents.skills.wording import INTEGER, ORDINAL, QUOTED, Reading, filled, read, template
from trinity_core.agents.skills.wordplay import Run, Slots
from trinity_core.agents.specialists import Solution

_SLOTS = {
    "{w}": r"(?P<w>.+?)",
    "{v}": r"(?P<v>.+?)",
    "{a}": rf"(?:the |an? )?(?:{{case}}(?:letters? |characters? |words? |string |substring |sequence )?"
    rf"(?P<a>{QUOTED}|[^\W_])(?:'?s|es)?(?: letters?| characters?)?)",
    "{b}": rf"(?:the |an? )?(?:letters? |characters? )?(?P<b>{QUOTED}|\S|asterisks?|stars?|dash(?:es)?|hyphens?|"
    r"underscores?|spaces?|dots?|commas?|nothing)(?:'s)?",
    "{n}": rf"(?P<n>{INTEGER})",
    "{o}": rf"(?P<o>{ORDINAL})",
    "{case}": r"(?:(?P<case>upper ?case|lower ?case|capital|small) )?",
    "{get}": r"(?:(?:what(?:'s| is| are| would be)|which (?:is|are)|give(?: me)?|find(?: me)?|name|write(?: down)?"
    r"|print|return|show(?: me)?|identify|extract|get|output|take|state|tell me|pick(?: out)?|choose|select"
    r"|report|say"
    r"|determine|look up|work out|i (?:need|want))(?: the)?|the)",
    "{there}": r"(?: (?:are|is|do you (?:see|find|get|have)|does one find|can you (?:see|find|count)|do you"
    r" count|can be found|appears?"
    r"|occurs?))?"
    r"(?: there)?(?: (?:are|is))?(?: present| found| used| contained)?",
    "{so}": r"(?P<so>,? (?:when|if|once|as|after)?(?: ?(?:it|they|you)(?:'s)?)?(?: is| are| being)? ?(?:written"
    r"|spelled|spelt|spell|"
    r"write|expressed)(?: it)?(?: out)?(?: (?:in|as|with|using)(?: an?)?(?: english)?(?: words?| full| english|"
    r" letters)?)?)?"
    r"(?P<but>,? \(?(?:excluding|not counting|not including|without(?: counting)?|ignoring|including|counting)(?:"
    r" the| any)? "
    r"(?:spaces|blanks|punctuation|case|hyphens?)(?: (?:and|or) (?:spaces|punctuation))?\)?)?",
    "{abc}": r"(?: (?:in|of|within) the (?:english |latin )?alphabet| alphabetically)",
    "{fmt}": r"(?:,?(?: and)? (?:without|with no|with|no|separated by|using|put|joined by)(?: any| a| single)?"
    r" (?:spaces?|commas?|gaps?|separators?|blanks?)(?: (?:in )?between(?: them)?| only)?"
    r"|,? as (?:one|a single|a|an) (?:word|string|list))*",
    "{place}": r"(?:position|place|number|index|rank|spot|letter number|number letter|alphabetical position)",
    "{a1}": r"(?:,? ?\(?(?:(?:if|where|with|using|when|given) )?a ?(?:=|is|equals) ?1\b.*)?(?: in the alphabet)?",
    "{unit}": r"(?P<unit>letters?|characters?|vowels?|consonants?|digits?|words?|items?|elements?)",
    "{order}": r"(?: (?:alphabetically|in alphabetical order|in (?:the|a|an english) dictionary|in the alphabet|"
    r"lexicographically|in dictionary order|when sorted alphabetically))",
    "{how}": r"(?P<how>(?:(?:in|into|by|from|to|reverse|reversed|alphabetical(?:ly)?|alphabetic|alphabet|descending"
    r"|ascending|"
    r"order|a|z|a-z|z-a|length|increasing|decreasing|lexicographic(?:al|ally)?|numerical(?:ly)?|numeric|dictionary|"
    r"backwards|the|their|of|letters|shortest|longest|smallest|largest|first|last|word)\b,? ?)+)",
    "{shift}": r"(?P<how>(?:(?:using|with|by|of|a|an|the|in|through|under|and|caesar|cipher|cypher|code|shift|shifted"
    r"|shifting|"
    r"key|rotation|right|left|forwards?|backwards?|back|ahead|down|up|to|places?|positions?|steps?|spots?|letters?"
    r"|each|"
    r"letter|alphabet|every|rot|rot\d\d?|-?\d{1,4}|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
    r"\b[ ,()=-]*)+)",
}

_HEAD = (
    r"(?:in|for|given|take|taking|consider|considering|of|out of|among"
    r"|between|from|with|looking at|using|here is|here are|look at)"
)
_ACTION = (
    r"(?:how|what|which|where|is|are|does|do|count|find|reverse|replace|remove|delete|sort|spell|write|give|tell"
    r"|convert|print|"
    r"capitali[sz]e|repeat|arrange|encode|decode|put|identify|change|swap|substitute|drop|take|turn|strip|erase|shift"
    r"|encrypt|order|alphabeti[sz]e|leave)\b"
)
_IT = re.compile(
    r"\b(?:it|them|(?:this|that|the|these|those|each of these|the following|the given|the above)(?: (?:following"
    r"|given))?"
    r" (?:words?|sentences?|phrases?|strings?|lists?|texts?|names?|items|letters|message|numbers?))\b(?! of| in)",
    re.I,
)
_PREFACE = re.compile(
    rf"(?:{_HEAD} )(?P<w>.{{1,200}}?) ?[,.;:-]? (?:and |then )?(?P<rest>(?:{_ACTION}|(?<=[,.;:] )(?:list|name|order"
    r"|at)\b).+)",
    re.I,
)
_LISTED = re.compile(
    rf"(?:(?:here are|these are|you have|i have|given|take|consider)(?: (?:some|the|these|following|three|four"
    rf"|five))* )?"
    rf"(?:words?:? )?(?P<w>[^:.]{{3,160}}?) ?[:.;] (?P<rest>(?:{_ACTION}|order\b|list\b|name\b).+)",
    re.I,
)
_COLON = re.compile(r"(?P<head>[^:]{3,160}?) ?: ?(?P<tail>.+)")
_FOLLOWING = re.compile(
    r"(?:all |each )?\b(?:the |this |these |that |those )?(?:following|these|this|those|below|given)(?:"
    r" \w+)??"
    r"(?: (?P<noun>words?|sentences?|phrases?|strings?|lists?|texts?|names?|items|letters|messages?|numbers?"
    r"|titles?|numerals?))?(?: below)?\b",
    re.I,
)


_RESULT = re.compile(
    r"(?:(?:what|which)(?: (?:word|string|text|result|letters?))? (?:do|would|will|can) (?:you|we|i) (?:get|have"
    r"|obtain|end up with|be left with|form|make)"
    r"(?: (?:if|when|by))?(?: (?:you|we|i))? (?:to )?|what (?:is left|remains|happens|is the result|results)(?:"
    r" of)?(?: (?:if|when))?(?: (?:you|we|i))? )(?P<rest>.+)"
    r"|(?:if|when) (?:you|we|i) (?P<back>.+?),? (?:then )?(?:what|which)(?: .{0,30})? (?:get|left|remains?|result"
    r"|have|it|becomes?|word|appears)",
    re.I,
)


_WHETHER = re.compile(
    r"(?:(?:check|determine|verify|decide|test|find out|is it true)(?: if| whether| that)?|whether) (?P<subject>.+?) "
    r"(?P<verb>is|are|contains?|starts?|ends?|begins?) (?P<rest>.+)",
    re.I,
)


def variants(reading: Reading) -> Iterator[Reading]:
    """The question as asked, then with "...: W" and "In W, ..." brought into the form "... in W"."""
    if found := _COLON.fullmatch(reading.frame):
        head, tail = found["head"].strip(), found["tail"].strip()
        quotes = reading.quotes
        if not re.fullmatch(QUOTED, tail):
            tail_text = (
                tail
                if re.search(QUOTED, tail) is None
                else ", ".join(reading.plain(mark) for mark in re.findall(QUOTED, tail))
            )
            quotes, tail = (*quotes, tail_text), chr(0xE000 + len(quotes))
        if len(quotes) <= 256:
            place = _FOLLOWING.search(head)
            named = f"{place['noun']} {tail}" if place and place["noun"] else tail
            if place:
                yield Reading(head[: place.start()] + named + head[place.end() :], quotes)
            for joint in (" in ", " "):
                yield Reading(head + joint + tail, quotes)
    yield reading
    if found := _WHETHER.fullmatch(reading.frame):
        verb, (subject, rest) = found["verb"].lower(), found.group("subject", "rest")
        asked = f"{verb} {subject}" if verb in {"is", "are"} else f"does {subject} {verb.removesuffix('s')}"
        yield replace(reading, frame=f"{asked} {rest}")
    if found := _RESULT.fullmatch(reading.frame):
        yield replace(reading, frame=found["rest"] or found["back"])
    if found := _LISTED.fullmatch(reading.frame):
        yield replace(reading, frame=_IT.sub(lambda m: found["w"], found["rest"], count=1))
        yield replace(reading, frame=f"{found['rest']} in {found['w']}")
    if found := _PREFACE.fullmatch(reading.frame):
        word, rest = found["w"], found["rest"]
        if _IT.search(rest):
            yield replace(reading, frame=_IT.sub(lambda m: word, rest, count=1))
        for joint in (" in ", " of "):
            yield replace(reading, frame=rest + joint + word)


@lru_cache(maxsize=1)
def _table() -> tuple[tuple[Run, tuple[re.Pattern[str], ...]], ...]:
    return tuple((run, tuple(template(text, _SLOTS) for text in texts)) for run, texts in (*ASKED, *MADE))


class Lexical:
    """Answers questions about letters, words, order and codes; pure and safe to share between threads."""

    name = "lexical"
    domain = "letters and words (counting, sorting, ciphers)"

    def solve(self, question: str) -> Solution | None:
        """The solution of one question, or None when it is outside the domain or not understood. Never raises."""
        for form in rewordings(question):
            reading = read(form)
            if reading is not None and (found := _solve(reading, deep=True)):
                return found
        return None


def _solve(reading: Reading, deep: bool) -> Solution | None:
    """Try every operation on every form of the question; parts that are questions themselves only once deep."""

    def inner(part: Reading) -> Solution | None:
        return _solve(part, deep=False) if deep else None

    for variant in islice(variants(reading), 8):
        for run, patterns in _table():
            for pattern in patterns:
                if (match := pattern.fullmatch(variant.frame)) and (
                    found := run(Slots(variant, filled(match), inner))
                ):
                    return found
    return None
