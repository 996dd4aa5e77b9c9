"""Server-sent events, read at byte level: the one framing that all three wire formats share.

Invariants: only CR, LF and CRLF end a line, also when the two bytes of CRLF come apart; bytes may be cut anywhere,
so nothing is decoded before its line is whole; however the bytes are cut, the events are the same. Unlike the
WHATWG standard, an event at the end of the stream counts without its blank line, because servers close early.

Not covered: `id` and `retry` (nobody reconnects to a reply) and any encoding but UTF-8; wrong bytes become U+FFFD.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trinity_core.errors import AgentError

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Most bytes of one event, its unfinished line included: far above any reply, low enough to hold in memory."""
_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its data lines joined by newlines, and its name ("" when it has none)."""

    data: str
    event: str = ""


class Decoder:
    """Turns bytes, fed in order, into events."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._most = max_event_bytes
        self._line = bytearray()
        self._after_cr = False
        self._at_start = True
        self._data: list[str] = []
        self._name = ""
        self._size = 0

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes. Raises AgentError (kind protocol) when one is too long."""
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if not data:
            return []
        self._after_cr = data.endswith(b"\r")
        *complete, rest = _LINE_END.split(data)
        events = []
        for part in complete:
            self._line += part
            self._check()
            line = bytes(self._line)
            self._line.clear()
            if event := self._take(line):
                events.append(event)
        self._line += rest
        self._check()
        return events

    def end(self) -> list[Event]:
        """The event that the end of the stream completes, if any."""
        last = [self._take(bytes(self._line)), self._take(b"")]
        self._line.clear()
        self._after_cr = False
        return [event for event in last if event]

    def _check(self) -> None:
        if self._size + len(self._line) > self._most:
            raise AgentError(
                f"One event of the answer is longer than {self._most:,} bytes. Check that the base URL leads to a "
                "model server.",
                kind="protocol",
            )

    def _take(self, line: bytes) -> Event | None:
        if self._at_start:
            line = line.removeprefix(_BOM)
            self._at_start = False
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._size += len(value) + 1
            self._data.append(value.decode("utf-8", "replace"))
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None

    def _dispatch(self) -> Event | None:
        event = Event("\n".join(self._data), self._name) if self._data else None
        self._data.clear()
        self._name = ""
        self._size = 0
        return event
