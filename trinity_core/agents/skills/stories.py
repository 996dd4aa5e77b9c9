"""Word problems of the simplest kind: somebody has, gets and gives away; things in boxes, prices, equal shares.

A story is read clause by clause. Each clause holds quantities ("3 boxes with 12 apples each" is one quantity, 36)
and a verb that says what they do: start, gain, lose. The question picks what is asked: what is left, the total, a
difference, a share, a price. Every number of the text must have been used exactly once, and every clause with a
number must have been understood; otherwise the story is declined.

Not covered: unknowns to solve for, rates that change, several kinds of things that are kept apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sympy import Expr, Integer, Rational

from trinity_core.agents.skills.formula import parse
from trinity_core.agents.skills.tokens import Unreadable, normal
from trinity_core.agents.skills.values import answer, shown
from trinity_core.agents.specialists import Solution

_START = (
    "has|have|had|starts? with|started with|begins? with|began with|owns?|owned|there (?:are|is|were|was)|contains?"
    "|contained|holds?|held|costs?|weighs?|is priced at|(?:is|are|was|were) sold for|sells for|earns|keeps|are|is|was"
    "|were"
)
_GAIN = (
    "buys?|bought|gets?|got|finds?|found|receives?|received|earned|picks?(?: up)?|picked(?: up)?|adds?|added|wins?"
    "|won|collects?|collected|makes?|made|bakes?|baked|gains?|gained|(?:is|are|was|were) given|borrows?|borrowed"
    "|plants?|planted|arrives?|arrived|join(?:s|ed)?|come|came|get on|got on|saves?|saved|puts? in|reads?|grows?|grew"
    "|catch(?:es)?|caught"
)
_LOSE = (
    "eats?|ate|gives?(?: away)?|gave(?: away)?|loses?|lost|sells?|sold|spends?|spent|uses?|used|throws? away"
    "|threw away|breaks?|broke|drops?|dropped|donates?|donated|takes? out|took out|removes?|removed|pays?|paid"
    "|drinks?|drank|leave|left|leaves|get off|got off|die|died|fly(?: away)?|flew(?: away)?|pops?|popped|lends?|lent"
    "|sends?|sent|hands? out"
)
_VERB = re.compile(rf"\b(?:(?P<lose>{_LOSE})|(?P<gain>{_GAIN})|(?P<start>{_START}))\b", re.IGNORECASE)
_N = r"(\d+(?:\.\d+)?(?:/\d+)?)"
_EACH = r"(?:\s+each|\s+apiece|\s+a piece|\s+in each(?: \w+)?|\s+per \w+|\s+(?:in|on|for) every \w+)"
_GROUPED = re.compile(
    rf"{_N} (?P<group>[a-z][\w -]*?) (?:with|of|containing|holding|costing|at|for|which (?:each "
    r")?\w+|that (?:each )?\w+"
    rf"|each (?:with|containing|holding|costing))(?: exactly| about)? {_N}(?: (?P<noun>(?!each\b"
    r"|apiece\b|per\b)[a-z]+))?"
    rf"(?:[a-z ]*?{_EACH})?",
    re.IGNORECASE,
)
_PLAIN = re.compile(
    rf"{_N}(?: (?:more|other|extra|new|additional|of (?:them|his|her|their|the)))?"
    r"(?: (?P<noun>[a-z]+(?: [a-z]+)?))?",
    re.IGNORECASE,
)
_NO_NOUN = re.compile(
    r"to|from|of|on|in|and|more|for|at|away|with|each|out|off|is|as|than|do|does|did|will|can|now|left|ones|she"
    r"|he|they|it|i|we",
    re.IGNORECASE,
)
_INEXACT = re.compile(
    r"\b(?:all but|all except|except|at least|at most|fewer than \d|up to|between|nearly|almost|about|around|not"
    r"|never|no|without|instead|some|several|many|few)\b|n't",
    re.IGNORECASE,
)
_CALCULATED = re.compile(
    r"\b(?:divided|multiplied|subtracted|squared|cubed|remainder|quotient|product|modulo|shared|split|distributed|left"
    r" over)\b",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"\b(?:what (?:does|will|would) (?:it|he|she|they|the \w+) (?:now )?(?:cost|pay)|how (?:many|much|far)"
    r"|what(?:['’]s| is| was| will be))\b.*$",
    re.IGNORECASE,
)
_COUNT_WORDS = re.compile(
    r"(?<!each )(?<!every )(?<!this )(?<!that )(?<!which )\b(?:(?:a|two|three|four) dozen|a hundred|a couple of"
    r"|(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|"
    r"seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand)"
    r"(?:[ -](?:one|two|three|four|five|six|seven|eight|nine|hundred|thousand))*)\b",
    re.IGNORECASE,
)


@dataclass
class _Story:
    """What is known so far: who holds how many (the first holder is the main one), and how it came about."""

    holders: dict[str, Expr] = field(default_factory=dict)
    nouns: dict[str, str] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)  # of things that were added up
    subject: str = ""
    used: int = 0
    working: str = ""

    def start(self, value: Expr, text: str) -> None:
        if self.subject in self.holders:
            raise Unreadable("starts twice")
        self.holders[self.subject] = value
        self.working = f"{self.working}; {text}" if self.working and len(self.holders) > 1 else text

    def change(self, sign: str, value: Expr, text: str) -> None:
        if self.subject not in self.holders:
            if sign == "-":
                raise Unreadable("gives before having")
            return self.start(value, text)
        self.holders[self.subject] += value if sign == "+" else -value
        self.working = f"{self.working} {sign} {text}"


def tell(text: str) -> Solution | None:
    """The answer to a story's question, or None. Raises Unreadable when a clause makes no sense here."""
    plain = _COUNT_WORDS.sub(_digits, normal(text))
    plain = re.sub(r"(?<=\d)\s*per ?cent\b", "%", plain)
    asked = _QUESTION.search(plain)
    if not asked or not re.search(r"\d", plain) or len(plain) > 600:
        return None
    told = plain[: asked.start()].strip(" ,.;:")
    told = re.sub(r"(?i)^(?:if|suppose|when)\s+|\b(?:then|so|and)\s*$", "", told).strip(" ,")
    question = asked.group()
    if not re.search(r"\d", told) or re.search(r"(?i)\b(?:all but|except|excluding)\b", told):
        return None
    numbers = re.findall(r"\d+(?:\.\d+)?(?:/\d+)?", plain)
    for reader in (_price, _shared, _rate, _counted):
        if found := reader(told, question, numbers):
            return found
    return None


def _digits(match: re.Match[str]) -> str:
    if match.group().lower() == "a couple of":
        return "2"
    return str(parse(match.group()).expr)


# --- Prices, shares, rates ----------------------------------------------------------------------------------


def _price(told: str, question: str, numbers: list[str]) -> Solution | None:
    """A price with one percentage: off, discount, tax, tip, more."""
    percent = re.search(r"(\d+(?:\.\d+)?)\s*%", told + " " + question)
    if not percent or len(numbers) != 2:
        return None
    rate = Rational(percent[1]) / 100
    price = Rational(next((n for n in numbers if n != percent[1]), numbers[0]))
    after = f"{told} {question}"[f"{told} {question}".index(percent.group()) :]
    if re.search(r"(?i)\b(?:off|discount|reduc|decreas|cheaper|marked down|drop|less|lower)", after + told):
        sign = "-"
    elif re.search(
        r"(?i)\b(?:tax|tip|vat|increas|more|rise|raise|markup|mark-up|interest|service charge|grow)", after + told
    ):
        sign = "+"
    elif re.search(r"(?i)\bof (?:them|the|his|her|its|their)\b|\b(?:are|is|were)\b", after):
        return _portion(price, rate, question)
    else:
        return None
    part = price * rate
    total = price - part if sign == "-" else price + part
    if re.search(
        r"(?i)\b(?:save|saving|discount amount|(?:is|of) the (?:discount|tip|tax|increase|decrease|interest))\b",
        question,
    ):
        return answer(shown(part, True), f"{percent[1]}% of {shown(price, True)} = {shown(part, True)}")
    if not re.search(r"(?i)\b(?:price|cost|pay|total|how much|new|bill|worth|now)\b", question):
        return None
    steps = (
        f"{shown(price, True)} {sign} {percent[1]}% of {shown(price, True)} = {shown(price, True)} "
        f"{sign} {shown(part, True)}"
    )
    return answer(shown(total, True), f"{steps} = {shown(total, True)}")


def _portion(whole: Expr, rate: Expr, question: str) -> Solution | None:
    """ "40 students, 25% of them play chess": how many do, or how many do not."""
    rest = re.search(r"(?i)\b(?:not|n't|left|remain\w*|others?)\b", question)
    value = whole * (1 - rate if rest else rate)
    working = f"{shown(whole * rate, True)} is {shown(rate * 100, True)}% of {shown(whole, True)}"
    return answer(shown(value, True), f"{working}; the rest is {shown(whole - whole * rate, True)}")


_CROWD = (
    r"(?:among|between|with|into|by|in|to)\s+(?:\w+\s+)?{n}\b|\b{n} (?:\w+ )?(?:friends|children|people|kids|students"
    r"|boys|girls|persons|brothers|sisters|pupils|boxes|bags|groups|plates|teams|rows|baskets|jars|shelves)\b"
)


def _shared(told: str, question: str, numbers: list[str]) -> Solution | None:
    """A number of things shared equally."""
    both = f"{told} {question}"
    if len(numbers) != 2 or not re.search(r"(?i)\b(?:shar|split|divid|distribut|equal|evenly)\w*", both):
        return None
    over = bool(re.search(r"(?i)\b(?:left over|leftover|remain|remainder)\b", question))
    if not over and not re.search(r"(?i)\b(?:each|every|per|one)\b", question):
        return None
    crowds = [bool(re.search(_CROWD.format(n=re.escape(n)), both, re.IGNORECASE)) for n in numbers]
    if sum(crowds) != 1 or re.search(r"(?i)\band (?:his |her |their |my )?\d+ ", both):
        return None
    a, b = (Rational(n) for n in (numbers if crowds[1] else reversed(numbers)))
    if b == 0:
        return None
    if over:
        return answer(shown(a % b), f"{shown(a)} = {shown(b)} × {shown(a // b)} + {shown(a % b)}")
    return answer(shown(a / b, True), f"{shown(a)} / {shown(b)} = {shown(a / b, True)}")


def _rate(told: str, question: str, numbers: list[str]) -> Solution | None:
    """One thing costs, holds or goes so much: several of them."""
    if len(numbers) != 2:
        return None
    one = re.search(
        r"(?i)\b(?:an?|each|every|one|1|the) (?P<thing>[a-z]+)\b[^.]*?\b(?:costs?|has|have|holds?|contains?|weighs?"
        rf"|is|makes?|produces?|needs?|earns?)\b[^.\d]*{_N}|{_N} [a-z]+ (?:per|an?|each|every) (?P<unit>[a-z]+)"
        rf"|\b(?P<things>[a-z]+s) costs? {_N} (?:each|apiece)",
        told,
    )
    if not one:
        return None
    each = next(n for n in one.groups() if n and n[0].isdigit())
    thing = (one["thing"] or one["unit"] or one["things"]).lower().rstrip("s")[:4]
    several = re.search(rf"(?i)\b{_N} (?:\w+ )?(?:{thing})", question) or re.search(
        rf"(?i)\b{_N} (?:\w+ )?(?:{thing})", told
    )
    if (
        not several
        or (several.string is told and several.start(1) in (one.start(2), one.start(3)))
        or several[1] not in numbers
    ):
        return None
    value = Rational(each) * Rational(several[1])
    return answer(shown(value, True), f"{several[1]} × {each} = {shown(value, True)}")


# --- Counting -----------------------------------------------------------------------------------------------


def _counted(told: str, question: str, numbers: list[str]) -> Solution | None:
    if re.search(r"\d", question) or "%" in told or _CALCULATED.search(f"{told} {question}"):
        return None
    story = _Story()
    verbs = f"{_LOSE}|{_GAIN}|{_START}"
    clauses = re.split(
        (
            rf"[.;!]\s+|,\s*(?:and\s+|then\s+|but\s+|while\s+)*|\s+(?:and|but|while)\s+(?:then\s+)?(?=(?:\w+\s+){{"
            rf"0,3}}?(?:{verbs})\b)|\s+then\s+"
        ),
        told,
        flags=re.IGNORECASE,
    )
    for clause in clauses:
        _take(story, clause.strip())
    told_of = len(numbers) > 1 or re.search(r"\b(?:half|twice|double)\b", told)
    if story.used != len(numbers) or not story.holders or not told_of:
        return None
    return _asked(story, question)


def _take(story: _Story, clause: str) -> None:
    if not re.search(r"\d|\b(?:twice|half|double)\b", clause):
        if re.search(rf"(?i)\b(?:{_LOSE}|{_GAIN})\b", clause) and re.search(
            r"(?i)\b(?:all|some|rest|none|one)\b", clause
        ):
            raise Unreadable("not counted")
        return
    verb = _VERB.search(clause)
    if not verb or (_INEXACT.search(clause) and not re.search(r"\bas many\b", clause)):
        raise Unreadable("no known verb")
    _speaker(story, clause[: verb.start()])
    if relative := re.search(
        (
            rf"(?i){_N} (?P<how>more|fewer|less)(?: \w+)? than (?P<who>[A-Z]\w+)|(?P<times>twice|{_N} "
            r"times) as many(?: \w+)? as (?P<of>[A-Z]\w+)"
        ),
        clause,
    ):
        return _relative(story, relative)
    if re.match(r"(?i)(?:each|every)\b", clause) and story.holders:
        inside = re.search(_N, clause)
        holder = next(reversed(story.holders))
        if not inside or len(re.findall(_N, clause)) != 1:
            raise Unreadable("each of what?")
        story.holders[holder] *= Rational(inside[1])
        story.nouns[holder] = ""
        story.working, story.used = f"{story.working} × {inside[1]}", story.used + 1
        return
    value, text, noun = _quantity(story, clause)
    before = story.nouns.setdefault(story.subject, noun)
    if _differ(noun, before) or "year" in noun or re.search(r"(?i)\b(?:in|since|until|born|by) \d{4}\b", clause):
        raise Unreadable("another kind of thing")
    if verb["start"]:
        return story.start(value, text)
    story.change("-" if verb["lose"] else "+", value, text)
    to = re.search(r"\bto (?:his |her |their )?(?:friend |brother |sister )?([A-Z]\w+)", clause)
    if verb["lose"] and to and to[1].lower() in story.holders:
        story.holders[to[1].lower()] += value


def _speaker(story: _Story, head: str) -> None:
    """Who the clause is about: a name, or who the story was about before."""
    names = [n for n in re.findall(r"\b[A-Z][a-z]+\b", head) if n.lower() not in _NO_NAMES]
    if len(names) > 1:
        raise Unreadable("several people")
    if names:
        story.subject = names[0].lower()
    elif not story.subject:
        story.subject = "it"


_NO_NAMES = re.findall(
    r"\w+",
    "a an the he she they it there if in on at then later after his her each every one yesterday today now i we",
)


def _relative(story: _Story, match: re.Match[str]) -> None:
    other = (match["who"] or match["of"]).lower()
    if other not in story.holders:
        raise Unreadable("nobody known")
    base = story.holders[other]
    if match["who"]:
        n = Rational(match[1])
        value = base + n if match["how"].lower() == "more" else base - n
        text = f"{shown(base)} {'+' if value > base else '-'} {n}"
        story.used += 1
    else:
        n = Integer(2) if match["times"].lower() == "twice" else Rational(re.findall(_N, match["times"])[0])
        value, text = base * n, f"{n} × {shown(base)}"
        story.used += match["times"].lower() != "twice"
    story.start(value, text)


def _quantity(story: _Story, clause: str) -> tuple[Expr, str, str]:
    """The amount in a clause, how it is written, and what it counts."""
    if grouped := _GROUPED.search(clause):
        each = re.search(rf"(?i){_EACH}|\b(?:of|containing|holding|each|with)\b", grouped.group())
        rest = clause[: grouped.start()] + clause[grouped.end() :]
        if not each or re.search(r"\d", rest):
            raise Unreadable("no group")
        a, b = grouped[1], grouped[3]
        story.used += 2
        return Rational(a) * Rational(b), f"{a} × {b}", (grouped["noun"] or "").lower()
    if half := re.search(r"(?i)\bhalf (?:of )?(?:them|it|the|his|her|their)\b", clause):
        if story.subject not in story.holders or re.search(r"\d", clause.replace(half.group(), "")):
            raise Unreadable("half of what?")
        value = story.holders[story.subject] / 2
        return value, shown(value, True), ""
    parts = list(_PLAIN.finditer(clause))
    if not parts or re.search(r"(?i)\b(?:each|per|every|times|as many|another \w+'s)\b", clause):
        raise Unreadable("how many?")
    story.used += len(parts)
    nouns = {_noun(p["noun"]) for p in parts}
    story.kinds |= nouns if len(nouns) > 1 else set()
    value = sum((Rational(p[1]) for p in parts), Integer(0))
    text = " + ".join(p[1] for p in parts)
    return value, f"({text})" if len(parts) > 1 else text, nouns.pop() if len(nouns) == 1 else ""


def _noun(words: str | None) -> str:
    """What a number counts: the words after it up to a verb or a preposition."""
    kept = []
    for word in (words or "").lower().split():
        if _VERB.fullmatch(word) or _NO_NOUN.fullmatch(word):
            break
        kept.append(word)
    return " ".join(kept)


def _differ(a: str, b: str) -> bool:
    """Whether two descriptions of things have no word in common, singular or plural."""
    stems = [{word.rstrip("s")[:5] for word in text.split()} for text in (a, b)]
    return bool(stems[0] and stems[1] and not stems[0] & stems[1])


def _asked(story: _Story, question: str) -> Solution | None:
    holders = story.holders
    kind = _noun(asked[1]) if (asked := re.match(r"(?i)how many ((?!more|fewer|less)\w+(?: \w+)?)", question)) else ""
    counted = {not _differ(kind, one) for one in story.kinds} if kind else set()
    if counted == {True, False}:  # "3 apples and 4 oranges": how many apples?
        return None
    if not story.kinds and any(_differ(kind, noun) for noun in story.nouns.values()):
        return None
    names = [n.lower() for n in re.findall(r"(?<!^)\b[A-Z][a-z]+\b", question)]
    if not set(names) <= set(holders):
        return None
    values = list(holders.values())
    if re.search(r"(?i)\bhow (?:many|much) (?:more|fewer|less)\b", question):
        if len(holders) != 2:
            return None
        gap = abs(values[0] - values[1])
        return answer(shown(gap, True), f"{shown(max(values))} - {shown(min(values))} = {shown(gap, True)}")
    if re.search(r"(?i)\b(?:together|altogether|in total|in all|total|combined|both)\b", question) or (
        len(holders) > 1 and re.search(r"(?i)\bthey\b", question)
    ):
        value = sum(values, Integer(0))
        return _counted_as(value, " + ".join(shown(v, True) for v in values) if len(values) > 1 else story.working)
    if len(names) == 1:
        return _counted_as(holders[names[0]], story.working if len(holders) == 1 else shown(holders[names[0]]))
    if len(holders) > 1:
        return None
    return _counted_as(values[0], story.working)


def _counted_as(value: Expr, working: str) -> Solution | None:
    if value < 0:
        return None
    text = shown(value, True)
    return answer(text, working if working == text else f"{working} = {text}")
