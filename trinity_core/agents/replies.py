"""What training asks of a store of agents' replies, so that the core needs no database.

A reply is looked up by the request as it is sent, whole: two requests that differ in any field that reaches the
agent have different keys. An embedded agent is part of this program, so its code belongs to the key too: after an
update it is asked again. `sample` tells several replies to the same request apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from trinity_core import wire
from trinity_core.types import Finish, Reply, Request

KEPT = frozenset({Finish.STOP, Finish.LENGTH, Finish.REFUSED})
"""How a reply must have ended to be kept. Failed, blocked, empty and cut-off ones are asked for again."""


class ReplyStore(Protocol):
    """Replies by key and sample number. May be called from any thread; both methods may block on a disk."""

    def get_reply(self, key: str, sample: int) -> Reply | None:
        """The reply stored first under (key, sample), or None."""
        ...

    def put_reply(self, key: str, sample: int, request_json: Mapping[str, Any], reply: Reply) -> None:
        """Commit `reply` before returning, so that it may be used. The first one stored under a key stays, and
        one that `keepable` rejects is not stored."""
        ...


_EMBEDDED = frozenset({"smollm2", "symbolic", "lexical", "calendar"})
_MODEL_FILES = ("local.py", "llama.py", "contract.py", "declines.py")
_SPECIALIST_FILES = ("specialists.py", "steps.py", "child.py", "skills/*.py")


def reply_key(request: Request) -> str:
    """Digest of everything that reaches the agent and, for an embedded one, of its code, in hexadecimal."""
    sent = request.sent()
    if request.agent.kind in _EMBEDDED:
        sent["implementation"] = _implementation(request.agent.kind == "smollm2")
    return wire.digest(sent)


@cache
def _implementation(model: bool) -> str:
    """Digest of the source of the embedded language model's files, or of the specialists'."""
    folder = Path(__file__).parent
    files = [path for name in (_MODEL_FILES if model else _SPECIALIST_FILES) for path in sorted(folder.glob(name))]
    files.append(folder.parent / "answers.py")
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def keepable(reply: Reply) -> bool:
    """Whether `reply` may be stored: it ended by itself and says something."""
    return reply.finish in KEPT and bool(reply.text.strip())
