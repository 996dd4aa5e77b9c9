"""Hidden states of transcripts, each computed once: in memory, and in a store across trainings.

What the backbone makes of a transcript depends on (backbone, revision, tokens, suffix, position) alone, so the key
is the digest of these: all candidates of a generation share a state, and so do two trainings.

Invariant: a state is the same bit for bit whatever was encoded before it, or an interrupted training would not go on
as it would have. Rounding depends on how tokens are split into passes, so a transcript is always fed message by
message from the start, on the backbone's cache of what stands before (those of one group share it), never from the
middle of a message. One that had to be trimmed is read in one go.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trinity_core.coordinator import transcript
from trinity_core.coordinator.backbone import Backbone
from trinity_core.coordinator.checkpoint import Position
from trinity_core.types import Message, TranscriptTurn
from trinity_core.wire import new_id

CHUNK = 16
"""States encoded between two commits: what a crash may cost."""


class StateStore(Protocol):
    """Hidden states by key (hexadecimal digest). May be called from any thread; both methods may block on a disk."""

    def get_states(self, keys: list[str]) -> dict[str, bytes]:
        """Those of `keys` that are stored: h as little-endian float32, 4·d bytes."""
        ...

    def put_states(self, states: dict[str, bytes]) -> None:
        """Commit states. The first one stored under a key stays."""
        ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """A transcript whose state is wanted. `group` names what shares the backbone's cache, such as the task."""

    group: str
    messages: tuple[Message, ...]
    turns: tuple[TranscriptTurn, ...]


@dataclass
class States:
    """Hidden states h (d,) float32 of transcripts, at `position` of the builder's tokens with `suffix`."""

    backbone: Backbone
    store: StateStore | None = None
    suffix: str = transcript.SUFFIX
    position: Position = -2
    builder_id: str = transcript.LINES_V1
    encoded: int = 0
    """Forward passes made."""
    _known: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    async def hidden(
        self, wanted: Sequence[Wanted], tick: Callable[[int], None] = lambda done: None
    ) -> NDArray[np.float32]:
        """h (m, d) of the transcripts. `tick` hears how many of the missing ones are encoded.

        Raises Cancelled when the backbone is closed; an awaiting task that is cancelled stops the forward pass.
        """
        if not wanted:
            return np.zeros((0, self.backbone.hidden_size), np.float32)
        tokens = [self.tokens(one) for one in wanted]
        keys = [self._key(one) for one in tokens]
        missing = [i for i, key in enumerate(keys) if key not in self._known]
        if missing and self.store is not None:
            found = await asyncio.to_thread(self.store.get_states, list({keys[i] for i in missing}))
            size = 4 * self.backbone.hidden_size
            self._known |= {k: np.frombuffer(v, "<f4").astype(np.float32) for k, v in found.items() if len(v) == size}
            missing = [i for i in missing if keys[i] not in self._known]
        # Neighbours share the longest beginnings when they are in the order of their tokens.
        missing.sort(key=lambda i: (wanted[i].group, tokens[i].tokens))
        chains = _Chains(self)
        try:
            for start in range(0, len(missing), CHUNK):
                fresh: dict[str, bytes] = {}
                for i in missing[start : start + CHUNK]:
                    if keys[i] not in self._known:
                        made = await chains.encode(wanted[i], tokens[i])
                        for one, h in made:
                            key = self._key(one)
                            self._known.setdefault(key, h)
                            fresh[key] = h.astype("<f4").tobytes()
                if fresh and self.store is not None:
                    await asyncio.to_thread(self.store.put_states, fresh)
                tick(min(start + CHUNK, len(missing)))
        finally:
            chains.close()
        return np.stack([self._known[key] for key in keys])

    def tokens(self, one: Wanted) -> transcript.Tokens:
        """The ids that the backbone reads."""
        builder = transcript.builder(self.builder_id)
        backbone = self.backbone
        return builder.tokenise(backbone.tokenizer, one.messages, one.turns, backbone.max_tokens, self.suffix)

    def _key(self, tokens: transcript.Tokens) -> str:
        what = f"{self.backbone.id}\n{self.backbone.revision}\n{self.position}\n{len(tokens.tokens)}\n"
        ids = np.asarray([*tokens.tokens, *tokens.suffix], dtype="<i8")
        return hashlib.sha256(what.encode() + ids.tobytes()).hexdigest()


class _Chains:
    """Walks from transcript to transcript of a group on one cache, always by whole messages."""

    def __init__(self, states: States) -> None:
        self._states, self._name = states, f"states-{new_id()}"
        self._group, self._held, self._started = "", list[list[int]](), 0

    @property
    def _run_id(self) -> str:
        return f"{self._name}-{self._started}"

    async def encode(
        self, one: Wanted, whole: transcript.Tokens
    ) -> list[tuple[transcript.Tokens, NDArray[np.float32]]]:
        """The states of `one` and of those of its beginnings that were encoded on the way."""
        if whole.note is not None:
            return [(whole, await self._pass(whole, None))]
        chain = [self._states.tokens(replace(one, turns=one.turns[:n])) for n in range(len(one.turns) + 1)]
        if self._group != one.group:
            self._group, self._held = one.group, []
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1].tokens, zip(self._held, chain, strict=False)))
        if same == 0:
            self._states.backbone.drop(self._run_id)
            self._started += 1
        elif same < len(self._held):
            await self._pass(chain[same - 1], self._run_id)  # crops the cache back to that message's end
        made = [(step, await self._pass(step, self._run_id)) for step in chain[same:]]
        self._held = [step.tokens for step in chain]
        # The very same transcript again, which the cache holds already: its state is that of its own last pass.
        return made or [(whole, await self._pass(whole, self._run_id))]

    async def _pass(self, tokens: transcript.Tokens, run_id: str | None) -> NDArray[np.float32]:
        stop, states = threading.Event(), self._states

        def work() -> NDArray[np.float32]:
            made = states.backbone.encode(
                tokens.tokens, tokens.suffix, run_id=run_id, position=states.position, stop=stop.is_set
            )
            return made.h

        h = await states.backbone.call(work, stop)
        states.encoded += 1
        return h

    def close(self) -> None:
        self._states.backbone.drop(self._run_id)
