"""A test of one member: a tiny question, streamed, and what the page shows of it.

The call is closed as soon as nobody listens any more. Whatever goes wrong is a result like any other; what is shown
is redacted and short.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from trinity_core import wire
from trinity_core.agents.base import Agent
from trinity_core.agents.pool import KINDS
from trinity_core.errors import AgentError, TrinityError
from trinity_core.types import AgentSpec, Brief, Message, Piece, Reply, Request, Reset, Role, Sampling
from ui import members
from ui.jobs import log_fault

_QUESTIONS = {
    "lexical": "How many letters are in the word pool?",
    "calendar": "How many days are there from 2024-02-10 to 2024-03-15?",
}
_QUESTION = "What is 6 times 7? Answer with the number only."
_TOKENS = 256  # enough for a little reasoning, little enough to cost next to nothing
_SHOWN = 600
_FRAME_S = 0.1
_BEAT_S = 0.5


async def tried(agent: Agent, spec: AgentSpec) -> AsyncGenerator[str, None]:
    """Ask `agent` and yield what to show, now and then also while nothing comes; closing this closes the call."""
    question = Message("user", _QUESTIONS.get(spec.kind, _QUESTION))
    request = Request(agent.spec, (question,), Brief(Role.WORKER, (question,)), Sampling(max_tokens=_TOKENS))
    came: asyncio.Queue[Piece | Reset | Reply | TrinityError] = asyncio.Queue()
    task = asyncio.create_task(_pumped(agent, request, came))
    began, drawn, text, thought = time.monotonic(), 0.0, "", ""
    try:
        yield members.testing(spec.name, "", 0.0)
        while True:
            try:
                part = await asyncio.wait_for(came.get(), _BEAT_S)
            except TimeoutError:
                yield members.testing(spec.name, text or thought, time.monotonic() - began)
                continue
            if isinstance(part, TrinityError):
                yield members.problem(part, spec.name)
                return
            if isinstance(part, Reply):
                cost = members.cost_words(part, KINDS[spec.kind].remote)
                yield members.tested(spec.name, part, wire.redact(part.text)[:_SHOWN], cost)
                return
            if isinstance(part, Reset):
                text = thought = ""
            elif part.channel == "text":
                text = wire.redact(text + part.text)[:_SHOWN]
            else:
                thought = wire.redact(thought + part.text)[:_SHOWN]
            if time.monotonic() - drawn >= _FRAME_S:
                drawn = time.monotonic()
                yield members.testing(spec.name, text or thought, drawn - began)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _pumped(agent: Agent, request: Request, out: asyncio.Queue[Any]) -> None:
    try:
        async with aclosing(agent.stream(request)) as parts:  # type: ignore[type-var]
            async for part in parts:
                out.put_nowait(part)
                if isinstance(part, Reply):
                    return
        out.put_nowait(AgentError("The reply ended without a finish reason. Test again.", kind="truncated"))
    except TrinityError as error:
        out.put_nowait(error)
    except Exception as error:  # a member's own bug is a result too
        log_fault(f"testing {request.agent.name}", error)
        said = wire.redact(f"{type(error).__name__}: {error}")
        out.put_nowait(AgentError(f"The test itself failed ({said}). The server's log has the details."))
