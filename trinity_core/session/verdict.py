"""From a raw reply to what the loop uses: visible text, reasoning, a verdict, a suggestion.

The verdict is fail-safe: only an unambiguous last line accepts, because a false ACCEPT ends a run on a wrong
answer while a missed one costs a turn. An ACCEPT that is quoted, conditional, negated, struck out, part of a menu,
contradicted by the line before, followed by more text, cut off or still inside the model's reasoning is
`Verdict.NONE`, which ends nothing. A REVISE ends nothing either, so it may also be followed by its reasons.

Not covered: a verdict in another language or in other words than ACCEPT and REVISE; both are NONE.
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass

from trinity_core.answers import split_reasoning
from trinity_core.session.roles import SECTIONS
from trinity_core.types import Finish, Reply, Role, Suggestion, Verdict

# --- What a line may be dressed in -----------------------------------------------------------------------------

_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_INVISIBLE = re.compile("[\u200b-\u200f\u2060\ufe0f\ufeff]")
_END_OF_TURN = re.compile(r"(?:<\|\w+\|>|</s>|<end_of_turn>|<eos>)\s*$")
_TAG = re.compile(r"</?(?:b|strong|i|em|u|code|p|span|div|font|h[1-6])(?:\s[^<>]*)?/?>", re.IGNORECASE)
_ELEMENT = re.compile(r"<verdict>\s*([^<>]*?)\s*</verdict>", re.IGNORECASE)
_COMMAND = re.compile(r"\\(?:boxed|fbox|text\w*|math\w+|mbox|emph)\s*\{([^{}]*)\}")
_RULE = re.compile(r"^[\s\-*_=#]*$")  # blank, or a line drawn below the verdict
_FENCE = re.compile(r"^\s*(```+|~~~+)\s*\w*\s*$")
_LONGEST = 400
"""Characters of a line that can be a verdict line; nobody gives a verdict in more, and matching stays fast."""
_QUOTE_MARKS = (">", '"', "'", "\u201c", "\u00ab")

# --- Verdict lines ---------------------------------------------------------------------------------------------

_GOOD, _BAD = "\u2705\u2714\u2713\u2611\U0001f44d", "\u274c\u2717\u2718\u2716\u26a0\U0001f44e"
_MARKUP = rf"[\s*_`#|\[\](){{}}${_GOOD}{_BAD}]*"
_END = r"(?![^\W_])"  # `\\b` would take the underscore of __Verdict__ for a letter
_WORD = rf"(?P<quote>[\"'\u201c])?(?P<word>accept|revise){_END}(?(quote)[\"'\u201d])"
_LABEL = rf"{_MARKUP}(?:(?:my|final|overall|the)\s+)*verdict{_END}{_MARKUP}"
_LEAD = (
    r"(?:(?:so|thus|therefore|hence|overall|finally|conclusion|in\s+(?:conclusion|summary|short)"
    r"|(?:then,?\s+)?on\s+(?:reflection|balance|second\s+thought))\s*[,:]?\s+)?"
)
_LINE = re.compile(
    rf"^\s*(?:[-*+\u2022]\s+|\d+[.)]\s+)?{_LEAD}{_LABEL}(?P<sep>is\b\s*:?|[:=\-\u2013\u2014>\u2192]+)?{_MARKUP}{_WORD}"
    r"(?P<rest>.*)$",
    re.IGNORECASE,
)
_HEADING = re.compile(rf"^{_LABEL}[:=]?{_MARKUP}$", re.IGNORECASE)
_BARE = re.compile(rf"^{_MARKUP}(?P<word>accept|revise){_END}(?P<rest>{_MARKUP}[.!]?{_MARKUP})$", re.IGNORECASE)
_CLOSED = re.compile(rf"^{_MARKUP}(?:\.|!+)?{_MARKUP}$")
_SENTENCE = re.compile(r"(?<=[.!])\s+")
_OR = re.compile(r"^\W*(?:or|and)?\W*$", re.IGNORECASE)
_ALTERNATIVE = re.compile(r"^\W*(?:or\b|and\b)?\W*(?:verdict\W+)?accept\b", re.IGNORECASE)
_OPENS = re.compile(
    rf"<\s*(?P<close>/?)\s*(?:{'|'.join(SECTIONS)}|response|solution|output|candidate|quote|blockquote)\b[^<>]*>",
    re.IGNORECASE,
)
_REPORTED = re.compile(
    r"\b(?:say|says|said|write|writes|wrote|written|end|ends|ended|close|closes|closed|finish|finishes|finished|read"
    r"|reads|state|states|stated|claim|claims|claimed|conclude|concludes|concluded|contain|contains|quot\w+|add|adds"
    r"|added|append\w*|tell|tells|told|ask\w*|instruct\w*|example|format|template|line|words|text)\b",
    re.IGNORECASE,
)
# What may follow ACCEPT on its line: markup and closing punctuation, or an explanation that is set off, says that
# something is right, and holds no word that takes the acceptance back or makes it conditional.
_SET_OFF = re.compile(r"^[\s*_`]*(?:[.,;:!(\u2013\u2014]|-\s|because\b|since\b|as\b)", re.IGNORECASE)
_NO_FAULT = re.compile(r"\bno\s+(?:errors?|mistakes?|issues?|problems?|faults?|flaws?)\b", re.IGNORECASE)
_AFFIRMED = re.compile(
    r"\b(?:correct|correctly|right|verif\w+|match\w*|checks?|checked|same|holds?|agrees?|fine|complete|confirm\w*|good"
    r"|valid|equals?|sound|accurate|consistent|true|properly|satisf\w+|works|ok|okay|perfect|exact|exactly)\b",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"\b(?:if|once|unless|until|when|after|pending|provided|providing|assuming|subject|condition\w*|but|however|yet|still"
    r"|though|although|except|only|or|revise|reject\w*|not|n't|cannot|can't|isn't|doesn't|don't|never|no|nor|wrong"
    r"|incorrect|error|errors|mistake\w*|missing|fix\w*|should|must|need\w*|would|could|might|may|maybe|perhaps|please"
    r"|possibly|probably|likely|seems?|appears?|almost|nearly|partial\w*|half|wait|actually|with|minor|false|flip\w*|off"
    r"|differs?|different|disagree\w*|told|instruct\w*|demand\w*|change|low|otherwise|worker\w*|re-?check\w*"
    r"|\d+\s*(?:of|out\s+of|/)\s*\d+)\b|\d\s*%",
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
    lines = _BREAK.split(_END_OF_TURN.sub("", shown))
    plain = [_plain(line) for line in lines]
    end, last = _last_line(plain)
    if last >= 0:
        for read in (_stated, _below_a_heading, _after_a_sentence, _as_json):
            found = read(lines, plain, end, last)
            if found is not None and (found[0] is Verdict.REVISE or not _borrowed(plain, end)):
                return found
    return _revised(lines, plain) or (Verdict.NONE, shown)


def _plain(line: str) -> str:
    """`line` without presentation that would hide a verdict; only read, never shown."""
    line = _TAG.sub("", _INVISIBLE.sub("", unicodedata.normalize("NFKC", line)))
    return _COMMAND.sub(r"\1", _COMMAND.sub(r"\1", _ELEMENT.sub(r"verdict: \1", line)))


def _last_line(lines: list[str]) -> tuple[int, int]:
    """(where the lines before it end, index of the last line that says something); -1 when that is quoted code.

    A final fence around nothing but one line is formatting; a fence around more is a quotation.
    """
    end = len(lines)
    while end and _RULE.match(lines[end - 1]):
        end -= 1
    fences = [i for i in range(end) if _FENCE.match(lines[i])]
    closed = bool(fences) and fences[-1] == end - 1
    if len(fences) % 2 == closed:
        return end - 1, -1 if closed else end - 1  # a stray fence as the last line, or one that closed before it
    start = fences[-2] if closed else fences[-1]
    inside = [i for i in range(start + 1, end - 1 if closed else end) if lines[i].strip()]
    return start, inside[0] if len(inside) == 1 or (inside and lines[inside[0]].startswith("{")) else -1


Found = tuple[Verdict, str] | None


def _stated(lines: list[str], plain: list[str], end: int, last: int) -> Found:
    """`VERDICT: ACCEPT` in some dress, alone on the last line or with its explanation."""
    line = plain[last]
    match = _verdict_line(line)
    if match is None or not _stands(match, line):
        return None
    rest = "" if _CLOSED.match(match["rest"]) else match["rest"].strip(" \t*_`.,;:!()-\u2013\u2014")
    return Verdict(match["word"]), _joined([*lines[:end], rest])


def _below_a_heading(lines: list[str], plain: list[str], end: int, last: int) -> Found:
    bare = _BARE.match(plain[last][:_LONGEST])
    above = next((i for i in reversed(range(end)) if plain[i].strip()), -1)
    if bare is None or above < 0 or not _HEADING.match(plain[above][:_LONGEST]):
        return None
    return Verdict(bare["word"]), _joined(lines[:above])


def _after_a_sentence(lines: list[str], plain: list[str], end: int, last: int) -> Found:
    """`All steps hold. VERDICT: ACCEPT`: the verdict is the line's last sentence, and nothing follows it."""
    *before, tail = _SENTENCE.split(plain[last].strip())
    said, match = " ".join(before), _verdict_line(tail)
    if not said or said.startswith(_QUOTE_MARKS) or match is None or not _CLOSED.match(match["rest"]):
        return None
    if re.search("verdict", said, re.IGNORECASE) or _REPORTED.search(said) or not _stands(match, tail):
        return None
    return Verdict(match["word"]), _joined([*lines[:end], said])


def _as_json(lines: list[str], plain: list[str], end: int, last: int) -> Found:
    """An object with a member `verdict` closes the reply, fenced or not; its other texts are the diagnosis."""
    stop = len(plain)
    while stop and (_RULE.match(plain[stop - 1]) or _FENCE.match(plain[stop - 1])):
        stop -= 1
    start = next((i for i in reversed(range(stop)) if plain[i].lstrip().startswith("{")), -1)
    if start < 0:
        return None
    try:
        members = json.loads("\n".join(lines[start:stop]), object_pairs_hook=list)
    except (ValueError, RecursionError):
        return None
    verdicts = [value for name, value in members if name.strip().casefold() == "verdict"]
    if len(verdicts) != 1 or str(verdicts[0]).strip().casefold() not in ("accept", "revise"):
        return None
    texts = [value for name, value in members if isinstance(value, str) and name.strip().casefold() != "verdict"]
    return Verdict(verdicts[0].strip()), _joined([*lines[: min(start, end)], *texts])


def _revised(lines: list[str], plain: list[str]) -> Found:
    """A REVISE that its reasons follow, when it is the last verdict of the text and not quoted."""
    fenced, last = False, -1
    for i, line in enumerate(plain):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and _verdict_line(line):
            last = i
    match = _verdict_line(plain[last]) if last >= 0 else None
    if match is None or Verdict(match["word"]) is not Verdict.REVISE or not _stands(match, plain[last]):
        return None
    return Verdict.REVISE, _joined([*lines[:last], *lines[last + 1 :]])


def _verdict_line(line: str) -> re.Match[str] | None:
    """The verdict that a line states, unless the line is a quotation."""
    return None if len(line) > _LONGEST or line.lstrip().startswith(_QUOTE_MARKS) else _LINE.match(line)


def _stands(match: re.Match[str], line: str) -> bool:
    """Whether the rest of a verdict line leaves its verdict as it is."""
    rest = match["rest"]
    if match["sep"] is None:  # "Verdict ACCEPT": unmistakable only when that is all
        return bool(_CLOSED.match(rest))
    if Verdict(match["word"]) is Verdict.REVISE:
        return not _ALTERNATIVE.match(rest)
    if any(mark in line for mark in _BAD) or re.search(
        r"[/|]\s*$", rest.strip("|") if line.startswith("|") else rest
    ):
        return False
    if _CLOSED.match(rest):
        return True
    rest = _NO_FAULT.sub("correct", rest)
    return bool(_SET_OFF.match(rest) and _AFFIRMED.search(rest)) and not _TAKEN_BACK.search(rest)


def _borrowed(plain: list[str], end: int) -> bool:
    """Whether what stands before an ACCEPT makes it somebody else's: a quotation, a section left open, a menu."""
    before = [line for line in plain[:end] if line.strip()]
    depth = 0
    for tag in _OPENS.finditer("\n".join(before)):
        depth = max(0, depth + (-1 if tag["close"] else 1))
    spoken = [line for line in before if not _OR.match(line)]
    if depth or not spoken:
        return depth > 0
    other = _verdict_line(spoken[-1])
    if other is not None and Verdict(other["word"]) is not Verdict.ACCEPT and _CLOSED.match(other["rest"]):
        return True
    return spoken[-1].rstrip(" *_").endswith(":") and bool(_REPORTED.search(spoken[-1]))


def _joined(lines: list[str]) -> str:
    return "\n".join(lines).strip()


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
