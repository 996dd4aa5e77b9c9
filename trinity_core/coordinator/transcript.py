"""The text that the backbone reads, versioned and byte-exact, and its tokens.

`lines-v1`: one text per message, `label: content\\n`. Labels are `system`, `user`, `assistant` for the conversation,
then `{role} {agent}` for each finished turn. Last comes the suffix `\\nNext agent and role:`, whose tokens never
depend on the transcript, so that the position read (-2) always holds the same token (paper section 3).

`released`: what the paper's released vector was trained to read: `system: {router prompt}\nuser: {question}`, then
for the N-th Worker turn `\n<reference_thought_N>{text}</reference_thought_N>`, one joined text without a suffix. The
question is the newest user message; other messages and other roles' turns are not shown.

Invariants: the id of a builder is stored in every checkpoint and run, and what it builds never changes; another text
is another id. No BOS or EOS is added. Text never becomes a special token. Where `joined` is false each message is
tokenised alone, so the tokens of a transcript begin with those of any earlier state of it (the KV cache relies on
that); a joined text gives no such promise. A content cannot imitate a turn: in `lines-v1` every line of it that
begins like one of our labels (in any case, indented or not), or like the suffix, is quoted with `> `; in `released`
the `<` of a reference_thought mark becomes `&lt;`. All other content is kept byte for byte, save unpaired surrogates
(U+FFFD).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from trinity_core.errors import BackboneError, CheckpointError
from trinity_core.types import Message, Role, TranscriptTurn
from trinity_core.wire import clean_text

LINES_V1 = "lines-v1"
RELEASED = "released"
SUFFIX = "\nNext agent and role:"
CUT = "\n[...]\n"
"""Stands where the middle of a text was cut out."""

# Where str.splitlines splits, what does not show at the start of a line, and what a colon may look like.
_BREAKS = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_BLANK = rf"(?:[^\S{_BREAKS}]|[\u200b-\u200f\u2060\ufeff])"
# Agent names may hold blanks and colons: any short run before a colon counts as one.
_LABEL = re.compile(
    rf"(?:\A|(?<=[{_BREAKS}]))(?={_BLANK}*(?:(?:system|user|assistant|next[ \t]+agent[ \t]+and[ \t]+role){_BLANK}*"
    rf"|(?:worker|thinker|verifier){_BLANK}[^{_BREAKS}:：]{{1,100}})[:：])",
    re.IGNORECASE,
)


_THOUGHT = re.compile(rf"<(?={_BLANK}*/?{_BLANK}*reference_thought_)", re.IGNORECASE)


class Tokenizer(Protocol):
    """Turns text into ids, reading every character as plain text."""

    def encode(self, text: str) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class Tokens:
    """A transcript as ids: `tokens` without the suffix, `suffix` apart. `note` says what was trimmed, or is None."""

    tokens: list[int]
    suffix: list[int]
    note: str | None = None


class Builder(Protocol):
    """A versioned way to write a transcript."""

    @property
    def id(self) -> str: ...

    @property
    def suffix(self) -> str: ...

    @property
    def joined(self) -> bool:
        """Whether the text is tokenised at once, so that no cache of an earlier state may be used."""
        ...

    def parts(self, conversation: Sequence[Message], turns: Sequence[TranscriptTurn]) -> list[str]:
        """The transcript in pieces: those that are tokenised one by one, a message each, then a finished turn each.
        Of a joined text the pieces that are joined."""
        ...

    def tokenise(
        self,
        tokenizer: Tokenizer,
        conversation: Sequence[Message],
        turns: Sequence[TranscriptTurn],
        budget: int,
        suffix: str | None = None,
    ) -> Tokens:
        """Ids of at most `budget` tokens, suffix included; `suffix` None means the builder's own.

        Raises ValueError when the budget has no room for more than the suffix.
        """
        ...


def defang(content: str) -> str:
    """`content` with every line that begins like a label quoted by `> `; all else is kept as it is."""
    return _LABEL.sub("> ", clean_text(content))


class LinesV1:
    """The builder `lines-v1`; see the module docstring."""

    id = LINES_V1
    suffix = SUFFIX
    joined = False

    def parts(self, conversation: Sequence[Message], turns: Sequence[TranscriptTurn]) -> list[str]:
        messages = [f"{message.role}: {defang(message.content)}\n" for message in conversation]
        # A name of several lines would otherwise be a way around the quoting.
        return messages + [
            f"{turn.role.value} {' '.join(clean_text(turn.agent).split())}: {defang(turn.text)}\n" for turn in turns
        ]

    def tokenise(
        self,
        tokenizer: Tokenizer,
        conversation: Sequence[Message],
        turns: Sequence[TranscriptTurn],
        budget: int,
        suffix: str | None = None,
    ) -> Tokens:
        tail = tokenizer.encode(self.suffix if suffix is None else suffix)
        parts = [tokenizer.encode(part) for part in self.parts(conversation, turns)]
        kept, note = trim(parts, len(conversation), _newest_question(conversation), budget - len(tail), tokenizer)
        return Tokens([token for part in kept for token in part], tail, note)


@dataclass(frozen=True, slots=True)
class Released:
    """The builder `released` with its router prompt; see the module docstring."""

    prompt: str
    id = RELEASED
    suffix = ""
    joined = True

    def parts(self, conversation: Sequence[Message], turns: Sequence[TranscriptTurn]) -> list[str]:
        index = _newest_question(conversation)
        question = _plain_thoughts(conversation[index].content) if index >= 0 else ""
        thoughts = [turn.text for turn in turns if turn.role is Role.WORKER]
        return [f"system: {clean_text(self.prompt)}\nuser: ", question] + [
            f"\n<reference_thought_{n}>{_plain_thoughts(text)}</reference_thought_{n}>"
            for n, text in enumerate(thoughts, 1)
        ]

    def tokenise(
        self,
        tokenizer: Tokenizer,
        conversation: Sequence[Message],
        turns: Sequence[TranscriptTurn],
        budget: int,
        suffix: str | None = None,
    ) -> Tokens:
        tail = tokenizer.encode(suffix) if suffix else []
        parts = self.parts(conversation, turns)
        whole, room = tokenizer.encode("".join(parts)), budget - len(tail)
        if len(whole) <= room:
            return Tokens(whole, tail)
        # What is cut is no text that the vector was trained on, so the pieces may as well be tokenised apart.
        prompt, *others = [tokenizer.encode(part) for part in parts]
        prompt = _cut_middle(prompt, room // 2, tokenizer.encode(CUT))
        kept, note = trim(others, 1, 0, room - len(prompt), tokenizer)
        return Tokens(prompt + [token for part in kept for token in part], tail, note or _CUT_PROMPT)


def _plain_thoughts(content: str) -> str:
    return _THOUGHT.sub("&lt;", clean_text(content))


_CUT_PROMPT = "The router prompt is longer than half of what the coordinator reads; its middle was left out."


def builder(id: str, prompt: str = "") -> Builder:
    """The builder with this id; `prompt` is the router prompt, for `released` only.

    Raises CheckpointError when there is none, and for a prompt that is missing or has no place.
    """
    if id not in (LINES_V1, RELEASED):
        raise CheckpointError(
            f"Unknown transcript builder {id!r}; this version knows {LINES_V1}, {RELEASED}. Use a checkpoint trained "
            "with one of them, or the version of Trinity that wrote this one."
        )
    if (id == RELEASED) != bool(prompt):
        raise CheckpointError(
            f"The transcript builder {id} has no router prompt. Import the vector again, without one for {id}."
            if prompt
            else f"The transcript builder {id} needs its router prompt. Import the vector again with its file."
        )
    return Released(prompt) if id == RELEASED else LinesV1()


# --- Trimming -----------------------------------------------------------------------------------------------


def _newest_question(conversation: Sequence[Message]) -> int:
    """Index of the newest user message, else of the last message; -1 without any."""
    users = [i for i, message in enumerate(conversation) if message.role == "user"]
    return users[-1] if users else len(conversation) - 1


def trim(
    parts: list[list[int]], messages: int, question: int, budget: int, tokenizer: Tokenizer
) -> tuple[list[list[int]], str | None]:
    """Fit `parts` (token lists; the first `messages` are the conversation, the rest turns) into `budget` tokens.

    The oldest turns go first, never the newest. If that is not enough, the middle of what remains is cut: the other
    messages, oldest first; then the middle of the question and of the newest turn, whose starts and ends stay. The
    question keeps at least half of the room, more when the turn is short. Returns the parts and a note, None when
    nothing was cut. Raises ValueError for a budget that cannot hold anything.
    """
    if budget < 8:
        raise ValueError(f"a budget of {budget} tokens leaves no room for a transcript")
    sizes = [len(part) for part in parts]
    total = sum(sizes)
    if total <= budget:
        return parts, None
    keep = set(range(len(parts)))
    newest = len(parts) - 1 if len(parts) > messages else -1
    turns_dropped = _drop(keep, [i for i in range(messages, len(parts)) if i != newest], sizes, budget)
    others = [i for i in range(messages) if i != question]
    others.sort(key=lambda i: (i == 0, i))  # the first message, often the system's, goes last
    messages_dropped = _drop(keep, others, sizes, budget)
    if over := sum(sizes[i] for i in keep) > budget:
        marker = tokenizer.encode(CUT)
        shares = _shares(sizes[question] if question >= 0 else 0, sizes[newest] if newest >= 0 else 0, budget)
        parts = list(parts)
        for index, share in zip((question, newest), shares, strict=True):
            if index >= 0:
                parts[index] = _cut_middle(parts[index], share, marker)
    kept = [parts[i] for i in sorted(keep)]
    done = [_count(turns_dropped, "oldest turn"), _count(messages_dropped, "earlier message")]
    done.append("the middle of a long text left out" if over else "")
    what = ", ".join(text for text in done if text)
    return kept, f"The transcript of {total} tokens is longer than the coordinator reads ({budget}): {what}."


def _drop(keep: set[int], order: list[int], sizes: list[int], budget: int) -> int:
    dropped = 0
    for index in order:
        if sum(sizes[i] for i in keep) <= budget:
            break
        keep.discard(index)
        dropped += 1
    return dropped


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' if n > 1 else ''} left out" if n else ""


def _shares(question: int, turn: int, budget: int) -> tuple[int, int]:
    """Tokens for question and newest turn: half each, and what one does not need goes to the other."""
    turn_share = min(turn, max(budget // 2, budget - question))
    return min(question, budget - turn_share), turn_share


def _cut_middle(tokens: list[int], room: int, marker: list[int]) -> list[int]:
    """At most `room` tokens: the start, the marker, the end. Without room for the marker, start and end alone."""
    if len(tokens) <= room:
        return tokens
    if room < len(marker) + 4:
        marker = []
    tail = (room - len(marker)) // 2
    head = room - len(marker) - tail
    return [*tokens[:head], *marker, *tokens[len(tokens) - tail :]]


# --- Plain text to tokens ------------------------------------------------------------------------------------


class PlainTokenizer:
    """A Hugging Face tokenizer that knows no special tokens. Safe to share between threads.

    `split_special_tokens=True` is not enough: it is a flag on the shared tokenizer that any other caller may flip,
    and it leaves added tokens with `special=False` (such as `<think>`) whole. So the fast backend is copied
    without its added tokens. Models whose own vocabulary would still match such a token as a word get the text
    cut in two inside the token. Raises BackboneError for a tokenizer without a fast backend.
    """

    def __init__(self, tokenizer: Any) -> None:
        from tokenizers import Tokenizer as Fast

        fast = getattr(tokenizer, "backend_tokenizer", None) or getattr(tokenizer, "_tokenizer", None)
        if isinstance(tokenizer, Fast):
            fast = tokenizer
        if not isinstance(fast, Fast):
            raise BackboneError(
                f"{type(tokenizer).__name__} has no fast tokenizer, so special tokens in a text could not be kept "
                "plain. Use a model that ships a tokenizer.json."
            )
        state = json.loads(fast.to_str())
        added = state.get("added_tokens") or []
        state["added_tokens"], state["post_processor"] = [], None
        state["truncation"] = state["padding"] = None
        self._fast = Fast.from_str(json.dumps(state))
        self.size: int = self._fast.get_vocab_size()
        # Blank runs are ordinary text even where a tokenizer lists them as added tokens.
        self.reserved: dict[int, str] = {t["id"]: t["content"] for t in added if t["content"].strip()}

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, none of them special, without BOS or EOS."""
        ids: list[int] = self._fast.encode(text, add_special_tokens=False).ids
        found = {content for i in ids if (content := self.reserved.get(i)) and content in text}
        if not found:
            return ids
        token = re.compile("|".join(map(re.escape, sorted(found, key=len, reverse=True))))
        cuts = [0, *(match.start() + 1 for match in token.finditer(text)), len(text)]
        pieces = [text[start:end] for start, end in pairwise(cuts)]
        joined = [i for piece in pieces for i in self._fast.encode(piece, add_special_tokens=False).ids]
        return [i for i in joined if self.reserved.get(i) not in found]
