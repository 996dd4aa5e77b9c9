"""How the adapters, the runs and the endpoint behave against real servers. `make bench ARGS=wire`.

    python -m tests.bench_wire [table] [storm] [overhead] [endpoint] [key]     # all of them without arguments

`table` is Markdown for the README. Everything runs on loopback, with fixed seeds; a peer that is missing is named.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
from openai import AsyncOpenAI, OpenAI

from tests.peers import KEY, Peer, Unavailable, planted
from tests.peers.faults import fault_server
from tests.peers.litellm import litellm
from tests.peers.llama import llama
from tests.peers.llmock import LLMock, body_of, llmock, reply, slow
from tests.peers.situations import (
    CONTEXT_WINDOW,
    FORMATS,
    KEY_ENV,
    LIMITED,
    QUOTA,
    SITUATIONS,
    Outcome,
    Player,
    Situation,
    differences,
)
from tests.peers.storm import memory_growth, storm
from tests.peers.trinity import command, trinity
from trinity_core.agents.base import Wiring
from trinity_core.agents.keys import Keys
from trinity_core.agents.meter import Meter
from trinity_core.agents.pool import Pool, embedded_specs
from trinity_core.config import Settings
from trinity_core.coordinator.policy import FixedPolicy, Policy
from trinity_core.session.loop import RunRequest, run
from trinity_core.types import AgentSpec, Message, RunFinished, RunParams

Key = tuple[Situation, str]
RUNS, AT_ONCE = 1000, 50
ROUNDS = 4
TURNS = 5


def bench(parts: Sequence[str] = ()) -> Iterator[str]:
    """The named sections, or all of them, one line a result."""
    for part in parts or SECTIONS:
        began = time.monotonic()
        yield from SECTIONS[part]()
        yield f"({part}: {time.monotonic() - began:.0f} s)"
        yield ""


# --- Adapters × peers × situations ------------------------------------------------------------------------------


def table() -> Iterator[str]:
    """Every situation that a peer can make, through every adapter that it speaks: in short, then a row each."""
    os.environ[KEY_ENV], os.environ[KEY_ENV + "_WRONG"] = KEY, "sk-wrong-but-well-formed"
    with ExitStack() as stack:
        peers, mocks, missing = started(stack)
        yield from missing
        outcomes = asyncio.run(Player(peers, mocks).play_all())
    played = {
        (situation, kind): outcomes[situation.peer, situation.name, kind]
        for situation in SITUATIONS
        for kind in situation.formats
        if situation.peer in peers
    }
    wrong = {key: found for key, outcome in played.items() if (found := differences(key[0], outcome))}
    yield "### Adapters × peers × situations: how many went as they must, of how many"
    yield from _short(played, wrong)
    yield f"{len(played) - len(wrong)} of {len(played)} as they must be"
    yield from (f"WRONG {s.peer}, {s.name}, {kind}: {'; '.join(found)}" for (s, kind), found in wrong.items())
    yield "### Each of them"
    yield from _long(played, wrong)


def _short(played: Mapping[Key, Outcome], wrong: Mapping[Key, Any]) -> Iterator[str]:
    """One row for each sort of situation, one column for each peer and adapter."""
    there = {(situation.peer.partition(",")[0], kind) for situation, kind in played}
    peers = dict.fromkeys(situation.peer.partition(",")[0] for situation, _ in played)
    columns = [(peer, kind) for peer in peers for kind in FORMATS if (peer, kind) in there]
    yield "| | " + " | ".join(f"{peer}<br>{kind}" for peer, kind in columns) + " |"
    yield "|---|" + "---|" * len(columns)
    for sort in sorted(
        {situation.sort for situation, _ in played}, key=lambda sort: (sort.startswith("fails as"), sort)
    ):
        cells = []
        for column in columns:
            here = [k for k in played if k[0].sort == sort and (k[0].peer.partition(",")[0], k[1]) == column]
            cells.append(f"{sum(k not in wrong for k in here)}/{len(here)}" if here else "–")
        yield f"| {sort} | " + " | ".join(cells) + " |"


def _long(played: Mapping[Key, Outcome], wrong: Mapping[Key, Any]) -> Iterator[str]:
    yield "| Peer | Situation | " + " | ".join(FORMATS) + " |"
    yield "|---|---|" + "---|" * len(FORMATS)
    for situation in dict.fromkeys(situation for situation, _ in played):
        cells = []
        for kind in FORMATS:
            outcome = played.get((situation, kind))
            cells.append(f"{'✗' if (situation, kind) in wrong else '✓'} {outcome.told()}" if outcome else "–")
        yield f"| {situation.peer} | {situation.name} | " + " | ".join(cells) + " |"


def started(stack: ExitStack) -> tuple[dict[str, Peer], dict[str, LLMock], list[str]]:
    """All peers that can be started here, the llmocks among them, and a line for each that cannot."""
    mocks = {
        "llmock": stack.enter_context(llmock()),
        LIMITED: stack.enter_context(llmock(tpm=QUOTA, context_window=CONTEXT_WINDOW)),
    }
    peers = {name: mock.peer for name, mock in mocks.items()}
    peers["llama.cpp"] = stack.enter_context(llama())
    peers["raw faults"] = stack.enter_context(fault_server())
    missing = []
    try:
        peers["LiteLLM"] = stack.enter_context(litellm(peers["llama.cpp"].bases["openai"]))
    except Unavailable as reason:
        missing.append(f"LiteLLM is left out: {reason}.")
    return peers, mocks, missing


# --- A thousand runs in a storm of faults -----------------------------------------------------------------------


def stormy() -> Iterator[str]:
    """1,000 runs, 50 at a time, 30 % of all answers failing in every way that the fault server knows."""
    yield f"### {RUNS:,} runs, {AT_ONCE} at a time, 30 % of all answers fail"
    report = storm(RUNS, AT_ONCE)
    yield f"{report.seconds:.0f} s, {report.calls:,} calls, {report.turns:,} turns with a reply"
    yield "ends: " + ", ".join(f"{name} {count}" for name, count in report.ends.most_common())
    yield "failed attempts: " + ", ".join(f"{kind} {count}" for kind, count in report.failures.most_common())
    yield f"answers given {report.answers:,}; whole and yet in no turn {report.lost}; sockets open {report.sockets}"
    listed = ", ".join(f"{mib:.0f}" for mib in report.memory)
    yield f"resident set after each tenth: {listed} MiB ({memory_growth(report):+.1f} from middle to last third)"
    yield "problems: " + ("; ".join(report.problems[:10]) or "none")


# --- What coordinating costs ------------------------------------------------------------------------------------


def overhead() -> Iterator[str]:
    """Five turns against a peer that answers after one second, beside the same five calls made bare."""
    yield f"### Overhead of a run of {TURNS} turns against a peer that answers after 1 s"
    with llmock() as mock:
        mock.script(slow(1.0, times=None), reply("Not yet sure.\nVERDICT: REVISE", times=None))
        pairs = [asyncio.run(_pair(mock)) for _ in range(ROUNDS)]
    bare, runs = (statistics.median(column) for column in zip(*pairs, strict=True))
    yield ", ".join(f"{whole:.3f}/{plain:.3f}" for plain, whole in pairs) + " s (run / bare calls)"
    yield f"medians: run {runs:.3f} s, bare {bare:.3f} s: {100 * (runs / bare - 1):+.2f} % (aim: at most 2)"
    with llmock() as mock:
        mock.script(reply("Not yet sure.\nVERDICT: REVISE", times=None))
        yield from _backbone(mock)


def _specs(mock: LLMock) -> tuple[AgentSpec, ...]:
    """Remote members with the names that the shipped head knows."""
    named = zip(embedded_specs(), cycle(mock.peer.bases.items()), strict=False)
    return tuple(AgentSpec(spec.name, kind, model=f"m-{kind}", base_url=base) for spec, (kind, base) in named)


async def _pair(mock: LLMock) -> tuple[float, float]:
    """Seconds of the bare calls and of a run, with the same bodies, in this order after one run to warm up."""
    mock_calls = await _calls_of_a_run(mock)
    began = time.monotonic()
    await _bare(mock, mock_calls)
    bare = time.monotonic() - began
    return bare, await _run(mock, FixedPolicy())


async def _calls_of_a_run(mock: LLMock) -> Sequence[Mapping[str, Any]]:
    before = len(await asyncio.to_thread(mock.calls))
    await _run(mock, FixedPolicy())
    return (await asyncio.to_thread(mock.calls))[before:]


async def _bare(mock: LLMock, calls: Sequence[Mapping[str, Any]]) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        for call in calls:
            query = "?alt=sse" if call["provider"] == "gemini" else ""
            async with client.stream("POST", mock.peer.url + call["path"] + query, json=body_of(call)) as answer:
                answer.raise_for_status()
                async for _ in answer.aiter_bytes():
                    pass


async def _run(mock: LLMock, policy: Policy) -> float:
    """Seconds of one run of five turns, from the request to its last event."""
    pool = Pool(_specs(mock), Wiring(Keys(use_keyring=False), Meter()))
    request = RunRequest((Message("user", "What is 6 times 7?"),), params=RunParams(max_turns=TURNS))
    began, end = time.monotonic(), None
    try:
        async with aclosing(run(request, pool, policy, asyncio.Event())) as events:
            async for event in events:
                end = event if isinstance(event, RunFinished) else None
        taken = time.monotonic() - began
    finally:
        await pool.aclose()
    if end is None or end.totals.turns != TURNS:
        raise AssertionError(f"the run did not take {TURNS} turns: {end}")
    return taken


def _backbone(mock: LLMock) -> Iterator[str]:
    """What the embedded backbone takes to decide five times, apart."""
    from tests.bench import fresh_home
    from trinity_core.coordinator.backbone import Backbone
    from trinity_core.session.loading import learned_policy

    with fresh_home() as home:
        settings = Settings.load(home=home)
        backbone = Backbone.load(settings)
        policy = learned_policy(backbone, settings, [spec.name for spec in embedded_specs()])

        async def decided() -> float:
            pool = Pool(_specs(mock), Wiring(Keys(use_keyring=False), Meter()))
            request = RunRequest((Message("user", "What is 6 times 7?"),), params=RunParams(max_turns=TURNS))
            async with aclosing(run(request, pool, policy, asyncio.Event())) as events:
                ends = [event async for event in events if isinstance(event, RunFinished)]
            await pool.aclose()
            return ends[0].totals.encode_ms / max(1, ends[0].totals.turns)

        milliseconds = asyncio.run(_twice(decided))
    yield f"apart from that, the embedded backbone: {milliseconds:.0f} ms a decision"


async def _twice(work: Callable[[], Any]) -> float:
    await work()
    taken: float = await work()
    return taken


# --- The endpoint -----------------------------------------------------------------------------------------------

ANSWER = "Six times seven is forty-two, which a second look confirms.\nAnswer: 42\nVERDICT: ACCEPT"


def endpoint() -> Iterator[str]:
    """Fifty streams at once through the official client, and what it reads."""
    from tests.bench import fresh_home

    yield f"### The endpoint: {AT_ONCE} streams at once through the official client"
    with llmock(chunk_delay_ms=20) as mock, fresh_home() as home:
        mock.script(reply(ANSWER, times=None))
        with trinity(home, _specs(mock)) as peer:
            for model in ("smollm2", "trinity"):
                asyncio.run(_streams(peer, model, 2))
                yield _figures(model, asyncio.run(_streams(peer, model, AT_ONCE)))
            yield from _transcript(peer)


async def _streams(peer: Peer, model: str, count: int) -> list[tuple[float, float, str]]:
    """Of each stream: seconds to its first event, seconds to its end, its content."""
    async with AsyncOpenAI(base_url=peer.bases["openai"], api_key="none", max_retries=0, timeout=300) as client:

        async def one(number: int) -> tuple[float, float, str]:
            began, first, text = time.monotonic(), 0.0, ""
            asked: list[Any] = [{"role": "user", "content": f"Number {number}: what is 6 times 7?"}]
            stream = await client.chat.completions.create(model=model, messages=asked, stream=True)
            async for chunk in stream:
                first = first or time.monotonic() - began
                text += "".join(choice.delta.content or "" for choice in chunk.choices)
            return first, time.monotonic() - began, text

        return await asyncio.gather(*(one(number) for number in range(count)))


def _figures(model: str, streams: Sequence[tuple[float, float, str]]) -> str:
    whole = sum("Answer: 42" in text for _, _, text in streams)
    firsts, ends = sorted(first for first, _, _ in streams), sorted(end for _, end, _ in streams)
    return (
        f"{model}: {whole} of {len(streams)} whole; first byte after {statistics.median(firsts):.2f} s (median), "
        f"{firsts[-1]:.2f} s (slowest); last byte after {statistics.median(ends):.1f} s, {ends[-1]:.1f} s"
    )


def _transcript(peer: Peer) -> Iterator[str]:
    """What the official client makes of one question in each of the four ways."""
    with OpenAI(base_url=peer.bases["openai"], api_key="none", max_retries=0) as client:
        asked: list[Any] = [{"role": "user", "content": "What is 6 times 7?"}]
        whole = client.chat.completions.create(model="trinity", messages=asked)
        yield f"chat: {whole.choices[0].message.content!r}, {whole.choices[0].finish_reason}, {_tokens(whole.usage)}"
        chunks = list(client.chat.completions.create(model="trinity", messages=asked, stream=True))
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        thought = "".join(
            getattr(c.delta, "reasoning_content", None) or "" for chunk in chunks for c in chunk.choices
        )
        yield f"chat, streamed: {text!r} in {len(chunks)} chunks; reasoning begins {thought[:60]!r}"
        made = client.responses.create(model="trinity", input="What is 6 times 7?")
        yield f"responses: {made.output_text!r}, {made.status}"
        kinds = [event.type for event in client.responses.create(model="trinity", input="6 times 7?", stream=True)]
        yield f"responses, streamed: {len(kinds)} events, from {kinds[0]} to {kinds[-1]}"


def _tokens(usage: Any) -> str:
    return f"{usage.prompt_tokens} + {usage.completion_tokens} tokens"


# --- A planted key ----------------------------------------------------------------------------------------------


def planted_key() -> Iterator[str]:
    """Every feature with planted keys, then a search of all that was written, shown, sent or kept."""
    from tests.bench import MODELS

    yield "### Planted keys"
    with tempfile.TemporaryDirectory(prefix="trinity-key-") as folder, fault_server() as peer:
        home, members = Path(folder) / "home", planted.members(peer)
        home.mkdir()
        (home / "models").symlink_to(MODELS, target_is_directory=True)
        with trinity(home, members, "--api-key-env", "PLANTED_API_KEY", env=planted.ENVIRONMENT) as served:
            names = ["trinity", *(member.name for member in members)]
            places = {"endpoint": planted.use_endpoint(served.url, names)}
            places |= planted.use_page(served.url, peer, Path(folder))
        run = lambda words: command(words, planted.ENVIRONMENT)  # noqa: E731
        places |= planted.use_commands(run, home, [member.name for member in members])
        places |= planted.files(home)
        size = sum(map(len, places.values())) / 2**20
        yield f"searched {len(places)} places, {size:.1f} MiB: {', '.join(places)}"
        yield f"the key came back from the peer and was taken out: {planted.seen_redacted(home)}"
        yield "found: " + ("; ".join(planted.found(places)) or "nothing")


SECTIONS: dict[str, Callable[[], Iterator[str]]] = {
    "table": table,
    "storm": stormy,
    "overhead": overhead,
    "endpoint": endpoint,
    "key": planted_key,
}


def main(parts: list[str]) -> int:
    if unknown := [part for part in parts if part not in SECTIONS]:
        print(f"unknown section {unknown[0]!r}; there are: {', '.join(SECTIONS)}", file=sys.stderr)
        return 2
    for line in bench(parts):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
