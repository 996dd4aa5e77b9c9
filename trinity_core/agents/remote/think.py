"""Reasoning that stands inside the text: a splitter for streams.

Servers without a reasoning parser send `<think>…</think>` as content, cut into chunks anywhere, and those whose
template has already written the opening tag send only the closing one. `Splitter` takes content as it comes and gives
pieces of the two channels. When a closing tag shows that what was streamed as text had been reasoning, it gives a
Reset and then the reasoning again, as such. It also ends the text at stop texts, for servers that do not, and joins
the halves of a character that a server cut in two.

Invariants: text and reasoning depend on the content, not on how it was cut into chunks; the text pieces since the
last Reset joined are `text`. A tag in quotes or in code is a mention and stays text. Whatever is doubtful while it
streams stays text too: `answers.split_reasoning` looks at the whole reply later.
Not covered: nesting. The first closing tag of a block's name ends it, and a second one makes reasoning of all before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trinity_core.types import Piece, Reset

_NAMES = ("thinking", "think", "reasoning")
_BLANKS = r"\s{0,4}"
_TAG = re.compile(rf"<{_BLANKS}(?P<close>/?){_BLANKS}(?P<name>{'|'.join(_NAMES)}){_BLANKS}>", re.IGNORECASE)
_BEGINNINGS = sorted({name[:n] for name in _NAMES for n in range(1, len(name) + 1)}, key=len, reverse=True)
_PARTIAL = re.compile(rf"<{_BLANKS}/?{_BLANKS}(?:(?:{'|'.join(_BEGINNINGS)}){_BLANKS})?\Z", re.IGNORECASE)
_LONGEST = 2 + 3 * 4 + max(map(len, _NAMES))
_QUOTES = {"`": "`", '"': '"', "'": "'", "“": "”", "‘": "’", "«": "»"}
_FENCE = re.compile(r"^ {0,3}```", re.MULTILINE)
_SURROGATE = re.compile("[\ud800-\udfff]")

Parts = list[Piece | Reset]


class Splitter:
    """Splits one reply. Feed `content` and `thought` in the order of arrival, then call `end` once."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        """`stops`: the text ends before the one among them that is complete first."""
        self._stops = tuple(stop for stop in stops if stop)
        self._halves = {"text": "", "reasoning": ""}  # first halves of characters, by channel
        self._waiting = ""  # the end of the content, which may be the beginning of a tag
        self._before = ""  # the last character of the content before `_waiting`
        self._block: str | None = None  # the name of the open block
        self._after = False  # a block is over, so blanks at the beginning of the text belong to it
        self._new = False  # a block has begun, and nothing of it has come
        self._raw = ""  # visible content, also what lies beyond a stop text
        self._shown = 0  # how much of it became pieces
        self._searched = 0  # up to where it cannot hold the beginning of a stop text
        self._cut: int | None = None  # where a stop text begins in it
        self._thoughts: list[str] = []

    @property
    def text(self) -> str:
        """The visible text so far."""
        return self._raw[: self._shown]

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return "".join(self._thoughts).strip()

    @property
    def cut(self) -> bool:
        """Whether a stop text has ended the visible text."""
        return self._cut is not None

    def thought(self, text: str) -> Parts:
        """Reasoning that came in a field of its own."""
        return self._think(self._mended("reasoning", text))

    def content(self, text: str) -> Parts:
        """Content, which may hold tags."""
        return self._read(self._waiting + self._mended("text", text))

    def end(self) -> Parts:
        """What was held back, since it was no tag and no stop text after all."""
        rest, thought = ("\ufffd" if self._halves[channel] else "" for channel in ("text", "reasoning"))
        return [
            *self._think(thought),
            *self._read(self._waiting + rest, last=True),
            *self._show(last=True),
        ]

    # --- tags -------------------------------------------------------------------------------------------------

    def _read(self, text: str, *, last: bool = False) -> Parts:
        out: Parts = []
        while tag := _TAG.search(text):
            before, after = text[: tag.start()], text[tag.end() : tag.end() + 1]
            closing_quote = _QUOTES.get(before[-1:] or self._before)
            if closing_quote and not after and not last:
                out += self._take(before)
                self._waiting = text[tag.start() :]
                return out
            out += self._take(before)
            mention = (closing_quote and after == closing_quote) or (self._block is None and self._in_code())
            out += self._take(tag.group()) if mention else self._turn(tag)
            text, self._before = text[tag.end() :], ">"
        partial = None if last else _PARTIAL.search(text, max(0, len(text) - _LONGEST))
        at = partial.start() if partial else len(text)
        self._waiting = text[at:]
        return out + self._take(text[:at])

    def _in_code(self) -> bool:
        """Whether the visible content ends inside a code span. Inside a block that is not asked: reasoning is full of
        unpaired marks, and a block that never ended would swallow the answer."""
        line = self._raw.rsplit("\n", 1)[-1]
        return len(_FENCE.findall(self._raw)) % 2 == 1 or line.count("`") % 2 == 1

    def _turn(self, tag: re.Match[str]) -> Parts:
        """A tag that opens a block, closes it, or shows that one had been open from the beginning."""
        name, closes = tag["name"].lower(), bool(tag["close"])
        if self._block is not None:
            if not closes or name != self._block:
                return self._take(tag.group())
            self._block, self._after = None, True
            return []
        if closes:
            return self._void()
        out = self._show(last=True)
        if not self._shown:
            self._raw, self._searched = "", 0
        self._block, self._new = name, True
        return out

    def _void(self) -> Parts:
        hidden, shown = self._raw.strip(), self._shown
        self._raw, self._shown, self._searched, self._cut, self._after = "", 0, 0, None, True
        self._new = True
        out = self._think(hidden)
        self._new = False
        if not shown:
            return out
        again = self.reasoning
        return [
            Reset("What had come so far was the model's reasoning."),
            *([Piece(again, "reasoning")] if again else []),
        ]

    def _take(self, text: str) -> Parts:
        """Content without tags, of the open block or visible."""
        if not text:
            return []
        self._before = text[-1]
        if self._block is not None:
            return self._think(text.lstrip() if self._new else text)
        # With no other reference to it the text grows in place; else every chunk would copy all before it.
        raw, self._raw = self._raw, ""
        raw += text.lstrip() if self._after and not raw else text
        self._raw = raw
        del raw
        return self._show()

    def _think(self, text: str) -> Parts:
        if not text:
            return []
        if self._new and self._thoughts:
            text = "\n" + text
        self._new = False
        self._thoughts.append(text)
        return [Piece(text, "reasoning")]

    # --- visible text -----------------------------------------------------------------------------------------

    def _show(self, *, last: bool = False) -> Parts:
        """The visible text that has not become a piece; blanks before its first word and what may begin a stop text
        wait, unless it is the `last` chance."""
        self._find_stop()
        end = len(self._raw) if self._cut is None else self._cut
        if self._cut is None and not last:
            end -= self._promised()
        if end <= self._shown or (not self._shown and not self._raw[:end].strip()):
            return []
        piece, self._shown = self._raw[self._shown : end], end
        return [Piece(piece)]

    def _find_stop(self) -> None:
        if self._cut is not None or not self._stops:
            return
        found = [(at + len(stop), at) for stop in self._stops if (at := self._raw.find(stop, self._searched)) >= 0]
        if found:
            self._cut = min(found)[1]
        self._searched = max(0, len(self._raw) - max(map(len, self._stops)) + 1)

    def _promised(self) -> int:
        """Characters at the end of the visible content that may be the beginning of a stop text."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        return next(
            (n for n in range(min(longest, len(self._raw)), 0, -1) if self._ends_in_beginning(n)),
            0,
        )

    def _ends_in_beginning(self, n: int) -> bool:
        tail = self._raw[-n:]
        return any(len(stop) > n and stop.startswith(tail) for stop in self._stops)

    def _mended(self, channel: str, text: str) -> str:
        """`text` with surrogates joined to characters; half a character at its end waits for its other half."""
        text = self._halves[channel] + text
        self._halves[channel] = ""
        if not _SURROGATE.search(text):
            return text
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._halves[channel] = text[:-1], text[-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
