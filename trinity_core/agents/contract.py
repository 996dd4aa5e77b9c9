"""The form of each role's reply, for a small model that does not keep to a form by itself.

A grammar (llama.cpp's GBNF) confines what the model may write, and the rest of the form is put around it:

- Worker: one sentence, then `Answer: ` and the part of that sentence which the question did not hold ("The capital
  of France is Paris." gives "Paris"). A yes/no question gets Yes or No by whether the sentence denies (made
  to begin with one of the two, the model says No to everything). What asks for prose (explain, list, write, why, how)
  gets one paragraph of up to three sentences, on the `Answer:` line itself.
- Thinker: a plan of up to three lines.
- Verifier: the model answers the question itself, without being shown the answer under test, and the two are
  compared: `VERDICT: ACCEPT` where they agree, else REVISE with its own result as the diagnosis. Prose cannot be
  compared, so there it says so and gives no verdict.

Measured with SmolLM2-135M on short questions: as Worker it commits the right answer to 82 of 123; the form loses
none of the answers that its sentence holds, while a form that begins with `Answer:` loses one in ten. As Verifier it
accepts 64 % of right and 3 % of wrong answers. Asked for a verdict outright it prefers the wrong ones (area under the
curve 0.35), because it repeats what it is shown.

Pure functions of the request: equal requests are written alike. Paper section 3 defines the roles.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from trinity_core.answers import committed_answer, mentions, same_value, short_value
from trinity_core.types import Brief, Finish, Message, Request, Role


@dataclass(frozen=True, slots=True)
class Form:
    """What the model reads, what it may write, and what stands before and after it.

    `tail` gets what the model wrote, when it came to its end, and gives how the reply ended and the text to add.
    """

    messages: tuple[Message, ...]
    grammar: str | None = None
    repeat_penalty: float | None = None
    head: str = ""
    tail: Callable[[str], tuple[Finish, str]] | None = None


# A sentence may hold initials and decimals; it never ends in a question mark (small models like to ask back).
_SENTENCE = r"""s ::= [A-Z0-9"] ([^\n.<!?] | " " [A-Z] ". " | [0-9] "." [0-9]){2,240} [.!]"""
ONE_SENTENCE = f"root ::= s\n{_SENTENCE}"
PARAGRAPH = f'root ::= s (" " s){{0,2}}\n{_SENTENCE}'
PLAN = f'root ::= s ("\\n" s){{0,2}}\n{_SENTENCE}'

_PENALTY = 1.15
"""Longer texts of a small model fall into loops without it."""

_PROSE = re.compile(
    r"\s*(?:please\s+|can you\s+|could you\s+|would you\s+|i (?:want|need) you to\s+|help me\s+)*"
    r"(?:write|compose|draft|explain|describe|discuss|outline|suggest|recommend|summari[sz]e|compare|rewrite|translate"
    r"|list|tell me (?:about|how|why|a\b|some)"
    r"|give me (?:a list|an? example|an? idea|some|tips|advice|\w+ (?:tips|ideas|examples|reasons|ways))"
    r"|how (?:do|does|did|can|could|should|would|to|come)\b|why\b"
    r"|what are (?:some|the (?:benefits|advantages|reasons|differences|steps))|what (?:is|are) the difference)",
    re.IGNORECASE,
)
_POLAR = re.compile(
    r"\s*(?:is|are|was|were|am|do|does|did|can|could|will|would|should|has|have|had|may|might)(?:n['’]t)?\s+(?!you\b)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[\w'’%$€£°-]+(?:[.,]\d+)*(?: [A-Z]\.(?= [A-Z]))?")
_FILLER = re.compile(
    r"(?:a|an|the|is|are|was|were|be|been|being|has|have|had|of|in|on|at|to|and|or|it|its|that|this|these|those|as|by|for|with|from"
    r"|called|known|which|what|who|whom|where|when|how|do|does|did|we|you|i|our|your|he|she|they|there|answer|question"
    r"|actually|often|usually|commonly|also|named|located|found|spoken|used|made|considered|referred|type|kind|sort"
    r"|user|asked|asking|process)",
    re.IGNORECASE,
)
_VERB = re.compile(r"\s(?:is|are|was|were)\s|:\s", re.IGNORECASE)
_NEGATED = re.compile(r"\b(?:no|not|never|cannot)\b|n['’]t\b", re.IGNORECASE)
_CLAUSE = re.compile(r",\s+(?:which|who|that|but|and|where|although|though|so)\b|\s+(?:which|but|because)\b", re.I)


def free(request: Request) -> Form:
    """No form: the messages as they are, and whatever the model makes of them."""
    return Form(request.messages)


def contract(request: Request) -> Form:
    """The form of the role that `request` asks for."""
    brief = request.brief
    if brief.role is Role.THINKER:
        return Form(request.messages, PLAN, repeat_penalty=_PENALTY)
    if brief.role is Role.VERIFIER:
        return _verifier(brief)
    question = brief.question
    if asks_for_prose(question):
        return Form(request.messages, PARAGRAPH, _PENALTY, head="Answer: ")
    return Form(request.messages, ONE_SENTENCE, tail=lambda said: _answered(question, said))


def asks_for_prose(question: str) -> bool:
    """Whether the question wants a text rather than a value."""
    return bool(_PROSE.match(_last_sentence(question)))


def _is_polar(question: str) -> bool:
    last = _last_sentence(question)
    return bool(_POLAR.match(last)) and not re.search(r"\bor\b", last)


def _last_sentence(question: str) -> str:
    parts = [part for part in re.split(r"(?<=[.!?])\s+|\n+", question.strip()) if part.strip()]
    asking = [part for part in parts if part.rstrip().endswith("?")]
    return (asking or parts or [""])[-1]


def _answered(question: str, said: str) -> tuple[Finish, str]:
    return Finish.STOP, f"\nAnswer: {value_said(question, said)}"


def value_said(question: str, sentence: str) -> str:
    """The part of `sentence` that answers `question`: what it says beyond the words of the question."""
    if _is_polar(question):
        outright = re.match(r"(yes|no)\b", sentence, re.IGNORECASE)
        return outright.group(1).capitalize() if outright else "No" if _NEGATED.search(sentence) else "Yes"
    clause = _CLAUSE.split(sentence.strip().rstrip(".!"))[0]
    asked = {_stem(word) for word in _WORD.findall(question)}
    verb = _VERB.search(clause)
    sides = [clause[verb.end() :], clause[: verb.start()]] if verb else [clause]
    sides.sort(key=lambda side: sum(_stem(w) in asked and not _FILLER.fullmatch(w) for w in _WORD.findall(side)))
    for side in sides:
        runs = _news(side, asked)
        if runs:
            return runs[0]
    return short_value(sentence) or sentence.strip()


def _news(text: str, asked: set[str]) -> list[str]:
    """The runs of words in `text` that the question did not hold, without filler at either end."""
    runs: list[list[re.Match[str]]] = [[]]
    for word in _WORD.finditer(text):
        if _stem(word.group()) in asked and not _FILLER.fullmatch(word.group()):
            runs.append([])
        else:
            runs[-1].append(word)
    found = []
    for run in runs:
        while run and _FILLER.fullmatch(run[0].group()):
            run = run[1:]
        while run and _FILLER.fullmatch(run[-1].group()):
            run = run[:-1]
        if run:
            found.append(text[run[0].start() : run[-1].end()].split("(")[0].strip(" ,;:\"')"))
    return [run for run in found if run]


def _stem(word: str) -> str:
    """A word without case and the commonest endings, so that "plants absorb" and "plant absorbs" meet."""
    plain = word.lower().replace("’", "'").removesuffix("'s")
    return re.sub(r"(?<=\w{3})(?:es|s|ed|ing)$", "", plain)


# --- Verifier -------------------------------------------------------------------------------------------------

_NO_VERDICT = "I cannot check an answer of this kind."


def _verifier(brief: Brief) -> Form:
    """Work the question out alone, then compare. The answer under test is not shown: a small model repeats it."""
    system = Message("system", "You are a helpful assistant. Answer the newest user message. Be brief.")
    messages = (system, *(m for m in brief.conversation if m.role != "system"))
    return Form(messages, ONE_SENTENCE, None, "My own result: ", lambda said: _compared(brief, said))


def _compared(brief: Brief, said: str) -> tuple[Finish, str]:
    if asks_for_prose(brief.question):
        return Finish.REFUSED, f"\n{_NO_VERDICT}"
    if agrees(brief.question, said, brief.answer or ""):
        return Finish.STOP, " The answer agrees with it.\nVERDICT: ACCEPT"
    return Finish.STOP, " The answer does not agree with it.\nVERDICT: REVISE"


def agrees(question: str, sentence: str, answer: str) -> bool:
    """Whether `answer` (a whole reply) gives the value that `sentence` gives for `question`."""
    claimed = committed_answer(answer) or short_value(answer) or answer.strip()
    own = value_said(question, sentence)
    if not claimed:
        return False
    return same_value(own, claimed) or mentions(own, claimed) or mentions(claimed, own)
