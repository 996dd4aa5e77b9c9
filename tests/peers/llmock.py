"""llmock as a peer: OpenAI, Anthropic and Gemini formats, with scripted faults and real quotas.

    with llmock() as peer:
        peer.script(reply("hello"), fail(429, retry_after=0.1))

Behaviours are queued over its control API and each is used up by the next call that it fits; its record of the calls
tells how many attempts were made. It checks no key and counts tokens as a quarter of the characters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from tests.peers import Peer, answers, child, free_port, python

Behavior = dict[str, Any]
BASES = {"openai": "/v1", "anthropic": "/anthropic", "gemini": "/gemini/v1beta"}


class LLMock:
    """A running llmock and its control API."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        # No connection is kept, so that those which are open are the adapters'.
        once = httpx.Limits(max_keepalive_connections=0)
        self._control = httpx.Client(base_url=peer.url + "/_llmock", timeout=10, trust_env=False, limits=once)

    def reset(self) -> None:
        """Forget calls and what was scripted, refill quotas."""
        self._control.post("/reset").raise_for_status()

    def script(self, *behaviors: Behavior) -> None:
        """Queue behaviours; see `reply`, `fail`, `cut` and `slow`."""
        self._control.post("/scenario", json={"behaviors": behaviors}).raise_for_status()

    def calls(self) -> list[dict[str, Any]]:
        """Every call so far, oldest first: path, status, body, fault, completed, started_at and ended_at (seconds).
        Waits up to two seconds for calls under way."""
        listed: list[dict[str, Any]] = self._control.get("/requests").raise_for_status().json()["requests"]
        return listed

    def verdict(self) -> str:
        """What llmock thinks of the client: its report, or the empty string when nothing is wrong."""
        found = self._control.get("/verdict").raise_for_status().json()["findings"]
        return "\n".join(f"{f['code']}: {f['title']}" for f in found)

    def close(self) -> None:
        self._control.close()


@contextmanager
def llmock(
    *, rpm: int | None = None, tpm: int | None = None, context_window: int | None = None, chunk_delay_ms: int = 0
) -> Iterator[LLMock]:
    """Start one; about two seconds. Quotas are per key and minute, the context window in tokens."""
    limits = {
        "rpm": rpm,
        "tpm": tpm,
        "context-window": context_window,
        "stream-chunk-delay-ms": chunk_delay_ms or None,
    }
    flags = [word for name, value in limits.items() if value for word in (f"--{name}", str(value))]
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [python(), "-m", "llmock.cli", "serve", "--port", str(port), "--log-level", "warning", *flags]
    with child(command, answers(url + "/health"), limit_s=60) as pid:
        server = LLMock(Peer("llmock", url, {kind: url + path for kind, path in BASES.items()}, pid))
        try:
            yield server
        finally:
            server.close()


def reply(text: str, *, finish: str | None = None, times: int | None = 1) -> Behavior:
    """The text of the next answer; `finish` is stop, length, tool_calls or content_filter."""
    return {"type": "reply", "text": text, "finish_reason": finish, "times": times}


def fail(status: int, *, retry_after: float | None = None, times: int | None = 1, **said: str) -> Behavior:
    """An HTTP error; `said` may hold its message and code."""
    return {"type": "fail", "status": status, "retry_after": retry_after, "times": times, **said}


def cut(kind: str, *, after: int = 2, stall_s: float = 30.0, times: int | None = 1) -> Behavior:
    """A fault inside the next stream after `after` events: truncate, disconnect, malformed or stall."""
    return {"type": "stream_fault", "kind": kind, "after_chunks": after, "stall_seconds": stall_s, "times": times}


def slow(seconds: float, *, times: int | None = 1) -> Behavior:
    """Nothing for so long before the first event of the next stream."""
    return {"type": "slow_first_token", "seconds": seconds, "times": times}


def body_of(call: Mapping[str, Any]) -> dict[str, Any]:
    """What one call sent, as JSON."""
    body: dict[str, Any] = call["body"]
    return body
