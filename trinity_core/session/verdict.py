"""From a raw reply to what the loop uses: visible text, reasoning, a verdict, a suggestion.

The verdict is fail-safe: only an unambiguous last line counts, because a false ACCEPT ends a run on a wrong
answer while a missed one costs a turn. A verdict that is quoted, conditional, negated, part of a menu, followed
by more text, cut off or still inside the model's reasoning is `Verdict.NONE`, which ends nothing.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from trinity_core.answers import split_reasoning
from trinity_core.types import Finish, Reply, Role, Suggestion, Verdict

_INVISIBLE = re.compile("[\u200b-\u200f\u2060\ufeff]")
_MARKUP = r"[\s*_`#~|\[\](){}]*"
_LABEL = rf"{_MARKUP}(?:(?:my|final|overall|the)\s+)*verdict\b{_MARKUP}"
_LINE = re.compile(
    rf"^\s*(?:[-*+•]\s+)?{_LABEL}(?:is\b\s*:?|[:=\-–—>]+){_MARKUP}(?P<word>accept|revise)\b(?P<rest>.*)$",
    re.IGNORECASE,
)
_JSON = re.compile(r'^\s*\{\s*"verdict"\s*:\s*"(?P<word>accept|revise)"(?P<rest>)\s*\}\s*$', re.IGNORECASE)
_HEADING = re.compile(rf"^{_LABEL}[:=]?{_MARKUP}$", re.IGNORECASE)
_BARE = re.compile(rf"^{_MARKUP}(?P<word>accept|revise)(?P<rest>{_MARKUP}[.!]?{_MARKUP})$", re.IGNORECASE)
_FENCE = re.compile(r"^\s*(```+|~~~+)\s*\w*\s*$")
# What may follow ACCEPT on its line: markup, closing punctuation or a symbol, or a plain explanation set off by
# punctuation. Any word that takes the acceptance back, or makes it conditional, voids it.
_NOTHING = re.compile(r"^[\W_]*$")
_SET_OFF = re.compile(r"^[\s*_`]*(?:[.,;:!(\-–—]|because\b|since\b|as\b)", re.IGNORECASE)
_TAKEN_BACK = re.compile(
    r"\b(if|once|unless|until|when|after|pending|provided|providing|assuming|subject|condition\w*|but|however|"
    r"though|although|except|only|or|and\s+revise|revise|reject\w*|not|n't|cannot|can't|isn't|doesn't|don't|never|"
    r"no|wrong|incorrect|error|errors|mistake\w*|missing|fix\w*|should|must|need\w*|would|could|might|may|maybe|"
    r"almost|nearly|partial\w*|wait|actually|with|minor)\b",
    re.IGNORECASE,
)
_NEXT = re.compile(r"^[\s*_`>#\-]*next[\s*_`]*:[\s*_`]*(?P<rest>.+?)[\s*_`]*$", re.IGNORECASE)
_NAMES = re.compile(
    r"^(?P<role>[A-Za-z]+)(?:[\s,/|@()]+(?P<agent>[A-Za-z0-9][\w.\-]*)\)?)?\s*(?:[:–—-]\s*(?P<what>.*))?$"
)


@dataclass(frozen=True, slots=True)
class Processed:
    """A reply ready for the transcript; see `TurnFinished` for the fields."""

    text: str
    reasoning: str
    verdict: Verdict | None = None
    suggestion: Suggestion | None = None


def process(role: Role | None, reply: Reply) -> Processed:
    """Post-process a reply given in `role`.

    Reasoning is kept apart and not forwarded to any other agent. A Verifier's text becomes its verdict word,
    then its diagnosis.
    """
    text, thought = split_reasoning(reply.text)
    text = text.strip()
    reasoning = "\n".join(part for part in (reply.reasoning.strip(), thought.strip()) if part)
    if role is Role.VERIFIER:
        verdict, diagnosis = parse_verdict(text, reply.finish)
        return Processed(f"{verdict.value}: {diagnosis}".strip(), reasoning, verdict=verdict)
    if role is Role.THINKER:
        return Processed(text, reasoning, suggestion=parse_suggestion(text))
    return Processed(text, reasoning)


def parse_verdict(text: str, finish: Finish = Finish.STOP) -> tuple[Verdict, str]:
    """The verdict that a Verifier's reply ends with, and the reply without that line.

    A reply that was cut off, blocked or refused has none: what looks like a verdict may be half a sentence.
    """
    text, _ = split_reasoning(text)
    shown = text.strip()
    if finish is not Finish.STOP or not shown:
        return Verdict.NONE, shown
    lines = _INVISIBLE.sub("", unicodedata.normalize("NFKC", shown)).split("\n")
    body, last, quoted = _last_line(lines)
    if quoted or last.lstrip().startswith((">", '"', "'", "“", "«")):
        return Verdict.NONE, shown
    found = _LINE.match(last) or _JSON.match(last)
    if found is None and (bare := _BARE.match(last)):
        kept = [line for line in body if line.strip()]
        if kept and _HEADING.match(kept[-1]):
            found, body = bare, body[: len(body) - 1 - body[::-1].index(kept[-1])]
    if found is None:
        return Verdict.NONE, shown
    verdict = Verdict(found["word"])
    if not _stands(verdict, found["rest"]):
        return Verdict.NONE, shown
    explanation = found["rest"].strip(" \t*_`.,;:!()-–—") if not _NOTHING.match(found["rest"]) else ""
    return verdict, "\n".join(part for part in ("\n".join(body).strip(), explanation) if part)


def _last_line(lines: list[str]) -> tuple[list[str], str, bool]:
    """(lines before, the last line that says something, whether it is quoted code).

    A final fence around nothing but one line is formatting; a fence around more is a quotation.
    """
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    fences = [i for i, line in enumerate(lines) if _FENCE.match(line)]
    if not lines or not fences:
        return lines[:-1], lines[-1] if lines else "", False
    closed = fences[-1] == len(lines) - 1
    if closed and len(fences) % 2:  # a stray fence as the last line
        return lines[:-1], "", True
    if not closed and len(fences) % 2 == 0:
        return lines[:-1], lines[-1], False
    start = fences[-2] if closed else fences[-1]
    inside = [line for line in lines[start + 1 : fences[-1] if closed else len(lines)] if line.strip()]
    return lines[:start], inside[0] if len(inside) == 1 else "", len(inside) != 1


def _stands(verdict: Verdict, rest: str) -> bool:
    if _NOTHING.match(rest):
        return not re.search(r"[/|?]\s*$", rest)
    if verdict is Verdict.REVISE:
        return not re.search(r"\baccept\b", rest, re.IGNORECASE) and not rest.startswith(("/", "|"))
    return bool(_SET_OFF.match(rest)) and not _TAKEN_BACK.search(rest)


def parse_suggestion(text: str) -> Suggestion | None:
    """The `NEXT: role agent: instruction` line a Thinker ends with, or None.

    The agent is kept as written, whether or not the pool has it; `any` means none was named.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    found = _NEXT.match(lines[-1]) if lines else None
    names = _NAMES.match(found["rest"].strip()) if found else None
    if names is None:
        return None
    try:
        role = Role(names["role"])
    except ValueError:
        return None
    agent = names["agent"]
    what = (names["what"] or "").strip()
    return Suggestion(role, None if agent is None or agent.lower() == "any" else agent, what or None)
