"""What every adapter is tried in against every peer, and what must come of it.

A `Situation` is one call: what the peer is told to do, how the member is set up, and the one acceptable outcome,
taken from the providers' documentation and not from our code. `Player` plays it through a real `RemoteAgent` over a
real socket; `differences` compares. The tests assert that there are none, the bench draws the table.

Situations of one peer are played side by side (each has a model name of its own, by which llmock's script and record
tell them apart), except cancelling, which looks at the sockets that are open.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from tests.fault_server import FAULTS
from tests.fault_server import TEXT as FAULT_TEXT
from tests.peers import KEY, Peer, connections
from tests.peers.litellm import TEXT
from tests.peers.llama import MODEL
from tests.peers.llmock import Behavior, LLMock, cut, fail, reply, slow
from trinity_core.agents.base import Wiring
from trinity_core.agents.keys import Keys
from trinity_core.agents.meter import Meter
from trinity_core.agents.remote.agent import RemoteAgent
from trinity_core.agents.remote.anthropic import ANTHROPIC
from trinity_core.agents.remote.formats import Format
from trinity_core.agents.remote.gemini import GEMINI
from trinity_core.agents.remote.openai import OPENAI
from trinity_core.errors import AgentError
from trinity_core.types import AgentSpec, Brief, Finish, Message, Piece, Reply, Request, Reset, Role, Sampling

FORMATS: Mapping[str, Format] = {"openai": OPENAI, "anthropic": ANTHROPIC, "gemini": GEMINI}
KEY_ENV = "TRINITY_PEER_KEY"
"""The environment variable in which the members find their key; whoever plays sets it."""
SAID = "Grüße ✓ two  spaces and\na line"
QUICK: Mapping[str, Any] = {"retries": 2, "first_token_s": 60, "between_tokens_s": 60, "total_s": 80}


_HUNG_S = 90
LIMITED = "llmock, limited"
QUOTA, CONTEXT_WINDOW = 6000, 2000
"""Of the limited llmock: tokens a minute, and tokens of a prompt."""
_WHOLE = ("plain answer to a stream", "json", "json-as-stream", "leading-blanks", "gzip", "slow-headers")
SHORT = Sampling(max_tokens=64)


@dataclass(frozen=True, slots=True)
class Expected:
    """The outcome. `text` None: any text but none; `errors`: the kinds that fit, none where a reply must come;
    `calls`: attempts that reach the peer; `counted`: whether the tokens must be known."""

    text: str | None = SAID
    finish: Finish | None = Finish.STOP
    errors: tuple[str, ...] = ()
    retryable: bool | None = None
    calls: int = 1
    resets: int = 0
    counted: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Situation:
    """One call. `peer` and `formats` say where it can be played, `script` is what llmock is told to do, `first` makes
    another call before it, and `cancel_after` closes it after so many pieces."""

    name: str
    peer: str
    expected: Expected
    formats: tuple[str, ...] = tuple(FORMATS)
    script: tuple[Behavior, ...] = ()
    model: str | None = None
    question: str = "Say hello."
    sampling: Sampling = SHORT
    service: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    key_env: str = KEY_ENV
    first: Sampling | None = None
    cancel_after: int | None = None

    @property
    def sort(self) -> str:
        """Which row of a short table it belongs to."""
        if self.cancel_after is not None:
            return "cancelled: the socket closes"
        if self.expected.errors:
            return f"fails as {self.expected.errors[0]}"
        if self.expected.calls > 1:
            return "fails, is tried again and answers"
        return "answers in one piece" if self.name in _WHOLE else "streams"

    def model_for(self, kind: str) -> str:
        """The model that is asked for; where the peer takes any, one that no other situation uses."""
        return self.model or f"{self.name.replace(' ', '-')}-{kind}"


@dataclass(slots=True)
class Outcome:
    """What came of a call: the text as a reader saw it, its Reply or its error, how often it was begun again, the
    attempts that the peer counted (None: it does not count), and connections left open to it after a cancel."""

    text: str = ""
    reply: Reply | None = None
    error: AgentError | None = None
    resets: int = 0
    counted: int | None = None
    left_open: int = 0
    seconds: float = 0.0
    hung: bool = False

    def told(self) -> str:
        """In a few words, for a table."""
        calls = self.error.calls if self.error else self.reply.calls if self.reply else 1
        what = self.error.kind if self.error else self.reply.finish.value if self.reply else "closed"
        return what if calls == 1 else f"{what}, {calls} calls"


def _error(kind: str, calls: int, retryable: bool | None = False, resets: int = 0) -> Expected:
    return Expected("", None, (kind,), retryable, calls, resets)


_FINAL = {400: "bad_request", 401: "auth", 402: "billing", 403: "auth", 404: "bad_request"}
_FINAL |= {422: "bad_request"}
_PASSING = {408: "transient", 409: "transient", 429: "rate_limit", 500: "transient", 502: "transient"}
_PASSING |= {503: "transient", 504: "transient", 529: "transient"}
_CUT = {"truncate": "truncated", "disconnect": "transport", "malformed": "protocol"}


def _llmock() -> list[Situation]:
    """Plain streams, every status, every break in a stream, slowness; each passing fault once and for ever."""

    def one(name: str, expected: Expected, *script: Behavior, **more: Any) -> Situation:
        return Situation(name, "llmock", expected, script=script, **more)

    ok, again = reply(SAID), Expected(calls=2)
    after_text = Expected(calls=2, resets=1)
    made = [
        one("stream", Expected(), ok),
        one("length", Expected(finish=Finish.LENGTH), reply(SAID, finish="length")),
        one(
            "filtered",
            Expected(finish=Finish.BLOCKED),
            reply(SAID, finish="content_filter"),
            formats=("openai", "gemini"),
        ),
        one("refused", Expected(finish=Finish.REFUSED), reply(SAID, finish="content_filter"), formats=("anthropic",)),
        one("429 with spent credit", _error("billing", 1), fail(429, code="insufficient_quota"), formats=("openai",)),
        one("first token late", again, slow(2), ok, ok, service={"first_token_s": 0.8}),
        one("stall", after_text, cut("stall", after=5, stall_s=2), ok, ok, service={"between_tokens_s": 0.8}),
        one(
            "stall for ever",
            _error("timeout", 3, True, 2),
            ok | {"times": None},
            cut("stall", after=5, stall_s=2, times=None),
            service={"between_tokens_s": 0.8},
        ),
        one("too slow in all", _error("timeout", 1, None), slow(2, times=None), service={"total_s": 0.8}),
        one("cancel", Expected(text=None), ok, cut("stall", after=5, stall_s=1.5), cancel_after=1),
    ]
    made += [one(str(s), _error(kind, 1), fail(s, times=None)) for s, kind in _FINAL.items()]
    # Too large a request is one that can be made smaller: providers say so in either way.
    made.append(one("413", Expected("", None, ("bad_request", "context_length"), False), fail(413, times=None)))
    made += [one(f"{s} once", again, fail(s, retry_after=0.05), ok) for s in _PASSING]
    made += [
        one(f"{s} for ever", _error(k, 3, True), fail(s, retry_after=0.05, times=None)) for s, k in _PASSING.items()
    ]
    made += [one(f"{cut_} once", after_text, cut(cut_, after=5), ok, ok) for cut_ in _CUT]
    made += [
        one(f"{cut_} for ever", _error(kind, 3, True, 2), cut(cut_, after=5, times=None), ok | {"times": None})
        for cut_, kind in _CUT.items()
    ]
    return made


def _limited() -> list[Situation]:
    """llmock with a small context window and a quota, most of which a first call uses up: what is missing for the
    second one is back after three seconds, and that is what it is told to wait."""
    most, some = Sampling(max_tokens=QUOTA - 150), Sampling(max_tokens=QUOTA // 20)
    return [
        Situation("context overflow", LIMITED, _error("context_length", 1), question="word " * 4000),
        Situation("quota, with the true wait", LIMITED, Expected(None, calls=2), sampling=some, first=most),
    ]


def _litellm() -> list[Situation]:
    def one(name: str, expected: Expected, model: str, **more: Any) -> Situation:
        return Situation(name, "LiteLLM", expected, model=model, **more)

    return [
        one("stream", Expected(TEXT), "through"),
        one("plain answer to a stream", Expected(TEXT), "canned", formats=("anthropic",)),
        one("real model", Expected(None, Finish.LENGTH), "real", sampling=Sampling(max_tokens=12, temperature=0.0)),
        one("429 for ever", _error("rate_limit", 2, True), "through-429", service={"retries": 1}),
        one("500 for ever", _error("transient", 2, True), "through-500", service={"retries": 1}),
        one("context overflow", _error("context_length", 1), "through-long"),
        one("no such model", _error("bad_request", 1), "missing"),
        one("wrong key", _error("auth", 1), "through", key_env=KEY_ENV + "_WRONG"),
        one("cancel", Expected(text=None), "real", sampling=Sampling(max_tokens=600), cancel_after=2),
    ]


def _llama() -> list[Situation]:
    def one(name: str, expected: Expected, **more: Any) -> Situation:
        return Situation(name, "llama.cpp", expected, ("openai", "anthropic"), model=MODEL, **more)

    cold = Sampling(max_tokens=12, temperature=0.0, seed=1)
    return [
        one("stream", Expected(None, Finish.LENGTH), sampling=cold),
        one("context overflow", _error("context_length", 1), question="word " * 3000),
        one("cancel", Expected(text=None), sampling=Sampling(max_tokens=600), cancel_after=2),
    ]


_ODD = {
    "length": {"finish": Finish.LENGTH},
    "separators": {"text": "a\u2028b\u2029c\u0085d " + FAULT_TEXT},
    "no-usage": {"counted": False},
}


def _faults() -> list[Situation]:
    """Every way in which the raw fault server answers, without a second try."""
    brief = {"first_token_s": 1.0, "between_tokens_s": 1.0, "total_s": 4.0}
    made = []
    for name, fault in FAULTS.items():
        if fault.kinds:
            expected = Expected("", None, fault.kinds, fault.retryable)
        else:
            expected = replace(Expected(FAULT_TEXT), **_ODD.get(name, {}))  # type: ignore[arg-type]
        service = {"retries": 0, **(brief if "timeout" in fault.kinds else {})}
        made.append(Situation(name, "raw faults", expected, model=name, service=service))
    return made


SITUATIONS: tuple[Situation, ...] = (*_llmock(), *_limited(), *_litellm(), *_llama(), *_faults())


class Player:
    """Plays situations against running peers. `mocks` are the llmocks among them, by the same name."""

    def __init__(self, peers: Mapping[str, Peer], mocks: Mapping[str, LLMock]) -> None:
        self._peers, self._mocks = peers, mocks

    async def play_all(self, chosen: Sequence[Situation] = SITUATIONS) -> dict[tuple[str, str, str], Outcome]:
        """Outcomes by (peer, situation, format). Those that cancel come last, one after another."""
        pairs = [(s, kind) for s in chosen for kind in s.formats if s.peer in self._peers]
        together = [pair for pair in pairs if pair[0].cancel_after is None]
        alone = [pair for pair in pairs if pair[0].cancel_after is not None]
        at_once = asyncio.Semaphore(12)

        async def limited(situation: Situation, kind: str) -> Outcome:
            async with at_once:
                return await self.play(situation, kind)

        outcomes = await asyncio.gather(*(limited(*pair) for pair in together))
        outcomes += [await self.play(*pair) for pair in alone]
        played = dict(zip([*together, *alone], outcomes, strict=True))
        await self._count(played)
        return {(situation.peer, situation.name, kind): out for (situation, kind), out in played.items()}

    async def _count(self, played: Mapping[tuple[Situation, str], Outcome]) -> None:
        """Note the attempts that each llmock saw."""
        for name, mock in self._mocks.items():
            calls = await asyncio.to_thread(mock.calls)
            for (situation, kind), outcome in played.items():
                if situation.peer == name:
                    outcome.counted = sum(call["model"] == situation.model_for(kind) for call in calls)

    async def play(self, situation: Situation, kind: str) -> Outcome:
        """One call, from a member made for it."""
        peer, mock = self._peers[situation.peer], self._mocks.get(situation.peer)
        model = situation.model_for(kind)
        if mock and situation.script:
            await asyncio.to_thread(mock.script, *(_only(behavior, model) for behavior in situation.script))
        spec = AgentSpec(
            "member",
            kind,
            model=model,
            base_url=peer.bases[kind],
            key_env=situation.key_env,
            options=situation.options,
            service={**QUICK, **situation.service},
        )
        messages = (Message("system", "Be brief."), Message("user", situation.question))
        request = Request(spec, messages, Brief(Role.WORKER, messages[1:]), situation.sampling)
        agent = RemoteAgent(spec, FORMATS[kind], Wiring(Keys(use_keyring=False), Meter()))
        outcome, began = Outcome(), time.monotonic()
        try:
            async with asyncio.timeout(_HUNG_S):
                if situation.first is not None:
                    other = replace(spec, model=f"{model}-first")
                    await _read(agent, replace(request, agent=other, sampling=situation.first), Outcome(), None)
                await _read(agent, request, outcome, situation.cancel_after)
            outcome.seconds = time.monotonic() - began
            if situation.cancel_after is not None:
                outcome.left_open = await _left_open(peer.port)
        except TimeoutError:
            outcome.hung = True
        finally:
            await agent.aclose()
        return outcome


def _only(behavior: Behavior, model: str) -> Behavior:
    """The behaviour for this model's calls alone."""
    streamed = {"stream": True} if behavior["type"] in ("stream_fault", "slow_first_token") else {}
    return behavior | {"match": {"model": model, **streamed}}


async def _read(agent: RemoteAgent, request: Request, outcome: Outcome, cancel_after: int | None) -> None:
    pieces = 0
    try:
        async with aclosing(agent.stream(request)) as parts:  # type: ignore[type-var]
            async for part in parts:
                if isinstance(part, Reset):
                    outcome.text, outcome.resets = "", outcome.resets + 1
                elif isinstance(part, Piece):
                    outcome.text += part.text if part.channel == "text" else ""
                    pieces += 1
                else:
                    outcome.reply = part
                if cancel_after is not None and pieces >= cancel_after:
                    return
    except AgentError as error:
        outcome.error = error


async def _left_open(port: int, within_s: float = 1.0) -> int:
    """Connections to `port` that are still open after a second at most."""
    deadline = time.monotonic() + within_s
    while (count := connections(port)) and time.monotonic() < deadline:  # noqa: ASYNC110 - the kernel tells nobody
        await asyncio.sleep(0.02)
    return count


def differences(situation: Situation, outcome: Outcome) -> list[str]:
    """What is not as it must be, in words; empty when all is."""
    if outcome.hung:
        return [f"it has not ended after {_HUNG_S} s"]
    expected, found = situation.expected, list[str]()

    def must(what: str, is_: object, should: object) -> None:
        if is_ != should:
            found.append(f"{what} is {is_!r}, must be {should!r}")

    if outcome.counted is not None:
        must("attempts seen by the peer", outcome.counted, expected.calls)
    must("connections left open", outcome.left_open, 0)
    if situation.cancel_after is not None:
        must("any text before the cancel", bool(outcome.text), True)
        return found + ([f"failed: {outcome.error}"] if outcome.error else [])
    must("resets", outcome.resets, expected.resets)
    kind = outcome.error and outcome.error.kind
    if (kind is None) == bool(expected.errors) or (kind is not None and kind not in expected.errors):
        found.append(f"error is {kind!r}, must be {' or '.join(expected.errors) or None}: {outcome.error}")
    if outcome.error is not None:
        must("attempts told", outcome.error.calls, expected.calls)
        if expected.retryable is not None:
            must("retryable", outcome.error.retryable, expected.retryable)
        must("key in the message", KEY in str(outcome.error), False)
        must("says where", bool(str(outcome.error).strip()), True)
    if outcome.reply is not None:
        must("attempts told", outcome.reply.calls, expected.calls)
        must("finish", outcome.reply.finish, expected.finish)
        must("text of the reply", outcome.reply.text, outcome.text)
        known = None not in (outcome.reply.usage.input, outcome.reply.usage.output)
        must("tokens known", known, expected.counted)
        must("times known", bool(outcome.reply.first_token_s) and bool(outcome.reply.seconds), True)
        if expected.text is None:
            must("any text", bool(outcome.text.strip()), True)
        else:
            must("text", outcome.text, expected.text)
    elif outcome.error is None:
        found.append("neither a reply nor an error")
    return found


__all__ = ["KEY", "KEY_ENV", "SITUATIONS", "Outcome", "Player", "Situation", "differences"]
