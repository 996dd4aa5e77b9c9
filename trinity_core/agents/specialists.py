"""Specialists: members of the pool that compute instead of generating text, in all three roles.

A `Skill` answers one self-contained question of its domain or returns None. `Specialist` turns a skill into an
agent: it splits a question into steps, carries earlier results into later steps, recomputes to verify, and says
briefly when something is outside its domain (finish REFUSED, which is no answer). Texts follow one convention:
a Worker ends with `Answer: v`, or with `Result so far: v` while steps are open, and names what it built on as
`Step k gave v.`; a Verifier ends with a VERDICT line unless it cannot check; a Thinker may end with a NEXT line.
Text of others is only ever quoted on one line and in part, so it cannot write such a line.

Skills run in a process of their own (`agents.child`), which bounds their time; closing the stream ends the work at
once. Usage stays unknown: a specialist has no tokens. Roles follow arXiv:2512.04695, section 3.

Not covered: a question whose parts do not refer to each other ("2+2? And the capital of France?") is one step, and
more than three steps by different agents rely on the texts above being kept word for word.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trinity_core.agents.base import Agent
from trinity_core.agents.child import Overtime, SkillProcess
from trinity_core.agents.steps import refers_back, split_steps, substitute
from trinity_core.answers import (
    AnswerKind,
    clean_value,
    committed_answer,
    extract_answer,
    normal_text,
    number_and_unit,
    partial_result,
    same_value,
    short_value,
)
from trinity_core.errors import PoolError
from trinity_core.types import AgentSpec, Brief, Finish, Piece, Reply, Request, Reset, Role

__all__ = ["Skill", "Solution", "Specialist", "specialist", "split_steps", "substitute"]

SOLVE_LIMIT = 5.0
"""Seconds a skill may work on one step."""
_SKILLS = {
    "symbolic": "trinity_core.agents.skills.symbolic:Symbolic",
    "lexical": "trinity_core.agents.skills.lexical:Lexical",
    "calendar": "trinity_core.agents.skills.calendar:Calendar",
}


@dataclass(frozen=True, slots=True)
class Solution:
    """What a skill found. `value`: the final answer only ("72", "x = 2 or x = 3", "Tuesday").
    `working`: one or two short lines that show how."""

    value: str
    working: str


class Skill(Protocol):
    """One domain. `solve` returns None when the question is outside the domain or not understood; it never
    raises, on any text, and its time is bounded.

    A skill may also have `same(a: str, b: str) -> bool`: whether two answers mean the same in its domain."""

    name: str
    domain: str

    def solve(self, question: str) -> Solution | None: ...


def specialist(spec: AgentSpec) -> Agent:
    """The specialist that `spec.kind` names: symbolic, lexical or calendar. Its skill is imported at the first
    call. Raises PoolError for another kind."""
    if spec.kind not in _SKILLS:
        raise PoolError(f"{spec.kind!r} is no kind of specialist; there are {', '.join(sorted(_SKILLS))}.")
    return Specialist(spec, _SKILLS[spec.kind])


class Specialist:
    """The agent around one skill. `target` is "module:Class" with a no-argument constructor."""

    def __init__(self, spec: AgentSpec, target: str, limit: float = SOLVE_LIMIT) -> None:
        self._spec = spec
        self._limit = limit
        self._skill = SkillProcess(target, limit)

    @property
    def spec(self) -> AgentSpec:
        return self._spec

    async def stream(self, request: Request) -> AsyncIterator[Piece | Reset | Reply]:
        """Yield the reply word by word, then as a whole."""
        began = time.perf_counter()
        brief = request.brief
        try:
            act = {Role.WORKER: self._work, Role.VERIFIER: self._verify, Role.THINKER: self._think}[brief.role]
            text, finish = await act(brief, _problem(brief)), Finish.STOP
        except _Refusal as refusal:
            text, finish = str(refusal), Finish.REFUSED
        except Overtime:
            text, finish = f"I stopped: this takes me longer than {self._limit:g} seconds.", Finish.REFUSED
        first = time.perf_counter() - began
        for word in re.findall(r"\S+\s*", text):
            yield Piece(word)
            await asyncio.sleep(0)
        yield Reply(text, finish, first_token_s=first, seconds=time.perf_counter() - began)

    async def aclose(self) -> None:
        """End the skill's process."""
        self._skill.close()

    # --- Roles ----------------------------------------------------------------------------------------------

    async def _work(self, brief: Brief, problem: _Problem) -> str:
        steps, claim = problem.steps, _read(brief.answer, problem.steps)
        done = await self._longest(problem, claim)
        last = max((k for k, result in enumerate(done) if result.own), default=-1)
        if last < 0:
            raise await self._refusal(problem, len(done))
        gave = " ".join(f"Step {k + 1} gave {_short(r.value)}." for k, r in enumerate(done[:last]))
        working = f"{gave} {done[last].working}".strip()
        if last == len(steps) - 1:
            return f"{working}\nAnswer: {done[last].value}"
        known = claim.covered > last and await self._known(done, claim)
        if known or (claim.complete and not _asks_to_revise(brief.critique)):
            raise await self._refusal(problem, len(done))
        return f"Step {last + 1} of {len(steps)}: {working}\nResult so far: {done[last].value}"

    async def _verify(self, brief: Brief, problem: _Problem) -> str:
        if not (brief.answer or "").strip():
            raise _Refusal("There is no answer to check yet.")
        steps, claim = problem.steps, _read(brief.answer, problem.steps)
        chains = [await self._chain(problem, reading) for reading in claim.stated or ({},)]
        if claim.explicit and (wrong := await self._wrong_step(chains[0], claim)):
            return wrong
        if not claim.complete:
            return _open_step(steps, claim.covered)
        full = [chain for chain in chains if len(chain) == len(steps) and chain[-1].own]
        for chain in full:
            stated = claim.final(chain[-1].value)
            if stated and await self._agrees(chain[-1].value, stated):
                taken = " and ".join(_short(r.value) for r in chain if not r.own)
                note = f" I took {taken} from the text." if taken else ""
                return f"{chain[-1].working} This agrees with the answer.{note}\nVERDICT: ACCEPT"
        if len({chain[-1].value for chain in full}) == 1:
            return await self._reject(steps, claim, full[0])
        return await self._check_in_part(problem, claim, max(chains, key=len))

    async def _wrong_step(self, chain: Sequence[_Result], claim: _Claim) -> str | None:
        """The verdict on a step value that the text states and that is computed differently here."""
        for k, result in enumerate(chain):
            stated = claim.stated[0].get(k)
            if result.own and stated and not await self._agrees(result.value, stated):
                return _not_that(k, result, stated)
        return None

    async def _reject(self, steps: Sequence[str], claim: _Claim, chain: Sequence[_Result]) -> str:
        stated = claim.final(chain[-1].value)
        for k in range(len(chain) - 1):
            if stated and await self._agrees(chain[k].value, stated):
                return _open_step(steps, k + 1)
        wrong = f", not {_short(stated)}" if stated else ""
        return f"{chain[-1].working} The answer should be {_short(chain[-1].value)}{wrong}.\nVERDICT: REVISE"

    async def _check_in_part(self, problem: _Problem, claim: _Claim, done: Sequence[_Result]) -> str:
        """The verdict on a complete answer whose last step is not this skill's, as far as there can be one."""
        at = next((k for k in reversed(range(len(done))) if done[k].own), None)
        if at is None or len(problem.steps) == 1:
            raise await self._refusal(problem, len(done))
        own, stated = done[at].value, claim.final(done[at].value)
        if stated and _yes_or_no(own) is None and await self._agrees(own, stated):
            return _open_step(problem.steps, at + 1)
        values = [reading[0] for reading in claim.stated if 0 in reading]
        missing = not re.search(rf"(?<!\w){re.escape(own)}(?!\w)", claim.text)
        if at == 0 and len(values) == 1 and missing and number_and_unit(own) and number_and_unit(values[0]):
            return _not_that(0, done[0], values[0])
        beyond = problem.steps[min(len(done), len(problem.steps) - 1)]
        raise _Refusal(f"I get {_short(own)} for step {at + 1}, but I cannot check the step “{_short(beyond)}”.")

    async def _think(self, brief: Brief, problem: _Problem) -> str:
        steps, claim = problem.steps, _read(brief.answer, problem.steps)
        done = await self._longest(problem, claim)
        name = self.spec.name
        final = done[-1] if len(done) == len(steps) and done[-1].own else None
        if len(steps) == 1 and not final:
            raise await self._refusal(problem, 0)
        stated = claim.final(final.value if final else "") if claim.complete else None
        lines = [f"Step {k + 1}: {_short(step)}" for k, step in enumerate(steps)] if len(steps) > 1 else []
        if final and stated and not await self._agrees(final.value, stated):
            return "\n".join(
                [*lines, f"The answer {_short(stated)} does not hold.", f"NEXT: worker {name}: {_short(steps[-1])}"]
            )
        if stated and not _asks_to_revise(brief.critique):
            return "\n".join([*lines, f"All is answered: {_short(stated)}.", "NEXT: verifier any: check the answer"])
        covered = 0 if claim.complete else claim.covered
        given = claim.readings[0] if claim.readings else {}
        solved = [f"Step {k + 1} is solved: {_short(given[k])}." for k in range(covered) if k in given]
        step = steps[covered] if covered < len(steps) else steps[-1]
        here = substitute(step, given[covered - 1]) if covered and covered - 1 in given else step
        mine = len(done) > covered and done[covered].own
        status = " ".join([*solved, f"Open: step {covered + 1}."]) if len(steps) > 1 else "One step, still open."
        return "\n".join([*lines, status, f"NEXT: worker {name if mine else 'any'}: {_short(here)}"])

    # --- Computing ------------------------------------------------------------------------------------------

    async def _longest(self, problem: _Problem, claim: _Claim) -> list[_Result]:
        """The chain that gets farthest over the readings of the previous answer."""
        best: list[_Result] = []
        for reading in claim.readings or [{}]:
            chain = await self._chain(problem, reading)
            if len(chain) > len(best) or (len(chain) == len(best) and chain and chain[-1].own > best[-1].own):
                best = chain
        return best

    async def _chain(self, problem: _Problem, stated: Mapping[int, str]) -> list[_Result]:
        """Every step in order, computed where the skill can and taken from `stated` where it cannot, up to the
        first that is neither."""
        done: list[_Result] = []
        before = problem.before
        for k, step in enumerate(problem.steps):
            forms = _forms(step, before, first=k == 0)
            if found := await self._skill.solve(forms) if forms else None:
                done.append(_Result(found[0], found[1], own=True))
            elif k in stated:
                done.append(_Result(stated[k], "", own=False))
            else:
                break
            before = done[-1].value
        return done

    async def _agrees(self, right: str, stated: str) -> bool:
        """Whether a stated value means what was computed."""
        return _same_answer(right, stated) or await self._skill.same(right, stated)

    async def _known(self, done: Sequence[_Result], claim: _Claim) -> bool:
        """Whether the previous answer already states what was computed here."""
        given = claim.readings[0] if claim.readings else {}
        pairs = [(r.value, given[k]) for k, r in enumerate(done) if r.own and k in given]
        return bool(pairs) and all([await self._agrees(right, stated) for right, stated in pairs])

    async def _refusal(self, problem: _Problem, at: int) -> _Refusal:
        _, domain = await self._skill.about()
        if len(problem.steps) == 1:
            return _Refusal(f"I only do {domain}; this is something else.")
        at = min(at, len(problem.steps) - 1)
        return _Refusal(f"I only do {domain}; step {at + 1} (“{_short(problem.steps[at])}”) is something else.")


class _Refusal(Exception):
    """The specialist declines; the message is what it says."""


@dataclass(frozen=True, slots=True)
class _Result:
    """One step's value. `own`: computed here, otherwise taken from the previous answer."""

    value: str
    working: str
    own: bool


@dataclass(frozen=True, slots=True)
class _Problem:
    """The newest question in steps. `before` is the value the conversation had reached, for follow-ups."""

    steps: tuple[str, ...]
    before: str | None


@dataclass(frozen=True, slots=True)
class _Claim:
    """What the previous worker text says.

    `stated`: readings of the values it gives for steps (index to value), best first; several when plain prose does
    not say which value belongs to the first step. `readings`: the same, and before them the committed value taken
    for the first step's. `explicit`: the text numbers its steps itself. `covered`: how many steps it claims to have
    solved; `complete`: all of them.
    """

    text: str
    readings: tuple[Mapping[int, str], ...] = ()
    stated: tuple[Mapping[int, str], ...] = ()
    explicit: bool = False
    covered: int = 0
    complete: bool = False

    def final(self, expected: str) -> str | None:
        """The answer that the text gives; `expected` says what kind of value is looked for in plain prose."""
        value = committed_answer(self.text) or partial_result(self.text)
        if _yes_or_no(expected):  # a yes or no may be said in a sentence
            said = value or self.text
            return _yes_or_no(said) or _yes_or_no(self.text) or ("no" if _DENIES.search(said) else "yes")
        if value:
            return value
        if expected and number_and_unit(expected) and (value := extract_answer(self.text, AnswerKind.NUMBER)):
            return value
        lines = [line for line in self.text.splitlines() if line.strip()]
        return _sole_value(self.text) or (clean_value(lines[-1]) if lines else None)


# --- Reading ------------------------------------------------------------------------------------------------

_GAVE = re.compile(r"\bstep (\d{1,2}) gave (.+?)\.(?=\s|$)", re.IGNORECASE)
_STEP_OF = re.compile(r"^\W*step (\d{1,2}) of \d{1,2}\b", re.IGNORECASE | re.MULTILINE)
_SECTION = re.compile(r"\bstep (\d{1,2})\s*[:.)]\s*(.+?)(?=\bstep \d{1,2}\s*[:.)]|\n|$)", re.IGNORECASE | re.DOTALL)
_SAYS = re.compile(r"\b(?:is|are|was|were|equals|has|have)\b|=")
_TELLS = re.compile(
    r".*\b(?:is|was|are|were|equals)\s+(?:(?:called|named|known as|usually|also|simply|spelled|about)\s+)*"
    r"(?:(?:the|a) (?:word|number|year|city|language|country|name)\s+)?(?P<value>[^.!?;]{1,60}?)[.!]*$",
    re.IGNORECASE | re.DOTALL,
)
_NUMERIC_STEP = re.compile(
    r"\bhow (?:many|much|long|old|far)\b|^\W*(?:multiply|divide|add|subtract|double|halve|square|cube|count|triple)\b"
    r"|\bnumber of\b|\bsum of\b|\bproduct of\b",
    re.IGNORECASE,
)
_NEEDS_TEXT = re.compile(
    r"\b(?:that|this|the resulting) (?:word|string|name|city|country|capital|phrase|text|sentence|animal|planet"
    r"|person|language|weekday|month)\b|\b(?:spell|vowels?|consonants?|letters?|alphabetical\w*|uppercase|lowercase)\b",
    re.IGNORECASE,
)
_NEEDS_NUMBER = re.compile(
    r"\b(?:that|this|the resulting) (?:number|sum|product|difference|quotient|total|count|many|amount)\b"
    r"|^\W*(?:multiply|divide|double|halve|square|cube|triple)\b",
    re.IGNORECASE,
)
_FOLLOWS_UP = re.compile(r"^\W*(?:and|now|then|next|ok(?:ay)?|so|what about|how about|also)\b", re.IGNORECASE)
_TAKES = re.compile(
    r"^(?:take|find|compute|calculate|determine|get|work out|start with|figure out)\s+(?=the\s|how\s|what\s)",
    re.IGNORECASE,
)
_DENIES = re.compile(r"\b(?:not|no|never|false|composite|cannot)\b|n['’]t\b", re.IGNORECASE)
_REVISE = re.compile(r"\bREVISE\b")


def _problem(brief: Brief) -> _Problem:
    """The newest user message in steps, with the last value of the conversation before it."""
    newest = max((k for k, m in enumerate(brief.conversation) if m.role == "user"), default=0)
    earlier = [m.content for m in brief.conversation[:newest] if m.role == "assistant"]
    before = (committed_answer(earlier[-1]) or short_value(earlier[-1])) if earlier else None
    if earlier and before is None:
        before = extract_answer(earlier[-1], AnswerKind.NUMBER)
    return _Problem(split_steps(brief.question), before)


def _forms(step: str, before: str | None, *, first: bool) -> list[str]:
    """Ways to word a step on its own, the likeliest first; none when it needs a value that is not known."""
    refers = refers_back(step)
    plain = [step] if first or not refers else []
    if plain and (asked := _TAKES.match(step)):  # "Take the number of ...": what is it?
        rest = step[asked.end() :]
        plain.append(rest if re.match(r"how|what", rest, re.IGNORECASE) else f"What is {rest}")
    if before is None or not (refers or _FOLLOWS_UP.match(step)):
        return plain
    values = [before]
    number = number_and_unit(before)
    if number and number[1] and (bare := re.search(r"-?\d[\d,]*(?:\.\d+)?(?:/\d+)?", before)):
        values.append(bare.group())
    forms = [substitute(step, value, quote=quote) for value in values for quote in (True, False)]
    return list(dict.fromkeys([*plain, *forms]))


def _read(answer: str | None, steps: Sequence[str]) -> _Claim:
    """What the previous worker text claims about the steps."""
    text = answer or ""
    if not text.strip():
        return _Claim("")
    count = len(steps)
    gave = {int(m[1]) - 1: clean_value(m[2]) for m in _GAVE.finditer(text) if 0 < int(m[1]) < count}
    if count > 1 and (partial := _still_partial(text)):
        header = _STEP_OF.findall(text)
        at = int(header[-1]) - 1 if header else max(gave, default=-1) + 1
        at = min(max(at, 0), count - 1)
        gave[at] = partial
        return _Claim(text, (gave,), (gave,), True, at + 1, False)
    if count == 1 or gave:
        readings: tuple[Mapping[int, str], ...] = (gave,) if gave else ()
        return _Claim(text, readings, readings, bool(gave), count, True)
    sections = {int(m[1]) - 1: short_value(" ".join(m[2].split())) for m in _SECTION.finditer(text)}
    known = {k: value for k, value in sections.items() if value and k < count - 1}
    stated: list[Mapping[int, str]] = [known] if known else []
    stated += [{0: value} for value in _first_values(text, steps[0], steps[1])]
    committed = _said(committed_answer(text)) or _said(_sole_value(text))
    first = [{0: committed}] if committed and _fits(steps[1], committed) else []
    whole = not committed or _could_answer(steps[-1], committed)
    return _Claim(text, (*first, *stated), tuple(stated), False, count if whole else 1, whole)


def _still_partial(text: str) -> str | None:
    """The value of `Result so far:` when nothing is committed after it."""
    at = text.lower().rfind("result so far")
    return partial_result(text) if at >= 0 and committed_answer(text[at:]) is None else None


def _sole_value(text: str) -> str | None:
    """The value of a text of one sentence."""
    return None if re.search(r"[.!?]\s+\S|\n\s*\S", text.strip()) else short_value(text)


def _first_values(text: str, asked: str, following: str) -> list[str]:
    """Values that plain prose may give for the step `asked`, which `following` builds on: at most three, from the
    sentences that have most words in common with what was asked."""
    words = set(re.findall(r"\w{4,}", asked.lower()))
    found: list[tuple[int, str]] = []
    for sentence in re.split(r"(?<=[.!?])\s+|\n+", text[:2000]):
        if _SAYS.search(sentence) and committed_answer(sentence) is None:
            value = _said(short_value(sentence.strip())) or _said(sentence)
            if value:
                found.append((len(words & set(re.findall(r"\w{4,}", sentence.lower()))), value))
    most = max((shared for shared, _ in found), default=0)
    fitting = [v for shared, v in found if shared == most and len(v) <= 120 and _fits(following, v)]
    return list(dict.fromkeys(fitting))[:3]


def _said(sentence: str | None) -> str | None:
    """What a sentence says at its end ("The capital of Italy is Rome": "Rome"); a value that is none stays."""
    if not sentence:
        return None
    told = _TELLS.match(sentence.strip())
    return clean_value(told["value"]) if told else short_value(sentence)


def _fits(step: str, value: str) -> bool:
    """Whether a value is of the kind that a step refers to."""
    numeric = bool(re.search(r"\d", value)) or _number_word(value)
    if _NEEDS_NUMBER.search(step):
        return numeric
    return not (_NEEDS_TEXT.search(step) and number_and_unit(value))


def _could_answer(step: str, value: str) -> bool:
    """False when a step asks for a number and the value holds none."""
    return not _NUMERIC_STEP.search(step) or bool(re.search(r"\d", value)) or _number_word(value)


def _number_word(value: str) -> bool:
    return extract_answer(value, AnswerKind.NUMBER) is not None


def _asks_to_revise(critique: str | None) -> bool:
    return bool(critique and _REVISE.search(critique))


def _not_that(at: int, right: _Result, stated: str) -> str:
    value, wrong = _short(right.value), _short(stated)
    return f"{right.working} So step {at + 1} gives {value}, not {wrong}.\nVERDICT: REVISE"


def _open_step(steps: Sequence[str], covered: int) -> str:
    at = min(covered, len(steps) - 1)
    return f"Step {at + 1} of {len(steps)} is still open: {_short(steps[at])}\nVERDICT: REVISE"


# --- Comparing ----------------------------------------------------------------------------------------------


def _same_answer(right: str, stated: str) -> bool:
    """Whether a stated answer means the computed one: equal values, equal sets of solutions, a number with or
    without its unit, or the one right word within a short phrase."""
    if same_value(right, stated):
        return True
    ours, theirs = _solutions(right), _solutions(stated)
    if len(ours) == len(theirs) and all(any(same_value(a, b) for b in theirs) for a in ours):
        return True
    a, b = number_and_unit(right), number_and_unit(stated)
    if a and b:
        return a[0] == b[0] and not (a[1] and b[1]) and "%" not in (a[1], b[1])
    if a or b:
        return False
    if (said := _yes_or_no(stated)) and (own := _yes_or_no(right)):
        return said == own
    words, phrase = normal_text(right), normal_text(stated)
    negated = re.search(r"\b(?:not|no|never|neither|nor|or)\b|n't\b", phrase)
    inside = re.search(rf"(?<!\w){re.escape(words)}(?!\w)", phrase) if words else None
    return bool(inside) and not negated and len(phrase.split()) <= len(words.split()) + 5 and " " not in words


def _solutions(value: str) -> list[str]:
    """The values of "x = 2 or x = 3", "x = 2, y = 3", "2 and 3", without their names when there is one name."""
    parts = [p for p in re.split(r"\s*(?:,(?!\d{3}\b)|;|\bor\b|\band\b)\s*", value.strip("{}()[] ")) if p]
    named = [re.match(r"([A-Za-z])\s*=\s*(.+)$", part) for part in parts]
    names = {match[1].lower() for match in named if match}
    return [match[2] if match and len(names) <= 1 else part for match, part in zip(named, parts, strict=True)]


def _yes_or_no(value: str) -> str | None:
    match = re.match(r"\W*(yes|no|true|false)\b", value, re.IGNORECASE)
    return {"yes": "yes", "true": "yes", "no": "no", "false": "no"}[match[1].lower()] if match else None


def _short(text: str, limit: int = 200) -> str:
    """`text` on one line, without words that steer a run, cut after `limit` characters."""
    text = re.sub(r"(?i)\b(verdict|next|answer|result so far)\s*:", r"\1 -", " ".join(text.split()))
    return text if len(text) <= limit else text[: limit - 1] + "…"
