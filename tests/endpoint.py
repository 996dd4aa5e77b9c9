"""The real program's server, page and all, over members that follow a script: for tests of the endpoint under /v1.

Words in the question choose what happens: see `Member`. The coordinator goes Thinker, Worker, Verifier.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from storage.records import StoredRun
from storage.store import Store
from tests.fakes import FakePool, ScriptedAgent
from trinity_core.config import Settings
from trinity_core.coordinator.policy import Choice, Policy
from trinity_core.errors import AgentError, BackboneError
from trinity_core.session.loading import CoordinatorStatus
from trinity_core.session.methods import Methods
from trinity_core.types import Decision, Finish, LoopState, Mode, Piece, Reply, Request, Reset, Role, Usage
from ui.build import Services, launch

AGENTS = ("alpha", "beta", "gamma")
_PLAN = (("beta", Role.THINKER), ("alpha", Role.WORKER), ("gamma", Role.VERIFIER))
LEAK = "401 for https://x.example/v1beta?key=AIza-placeholder-of-a-key"
FAULTS = {
    "broken": AgentError("503: the service at http://10.1.2.3:8000/v1 is down.", kind="transient", retryable=True),
    "crowded": AgentError("429: too many requests.", kind="rate_limit", retryable=True),
    "broke": AgentError("The budget of the day is used up.", kind="budget"),
    "endless": AgentError("The member did not answer in time.", kind="timeout", retryable=True),
    "overlong": AgentError("The context is too long.", kind="context_length"),
    "leaky": RuntimeError(LEAK),
}


class Member(ScriptedAgent):
    """Plays its role at once, or as the newest question says: a word of FAULTS fails every call; `later` streams a
    few words and then fails, from the Worker on; `slow` streams for a long time and `stall` never says a word;
    `cut` reaches the token limit; `decline` is refused; `again` begins its reply twice; `think` thinks aloud.
    """

    async def stream(self, request: Request) -> AsyncIterator[Piece | Reset | Reply]:
        self.requests.append(request)
        question, role = request.brief.question, request.brief.role
        try:
            await self._trouble(question)
            if role is Role.WORKER and "later" in question:
                for word in ("one ", "two ", "three "):
                    yield Piece(word)
                raise AgentError("The connection was lost.", kind="transport", retryable=True)
            if "again" in question:
                yield Piece("void ")
                yield Reset("the connection was lost")
            thought = "Thinking it over." if "think" in question else ""
            if thought:
                yield Piece(thought, "reasoning")
            text = self._text(role, question)
            for word in text.split(" "):
                await asyncio.sleep(0.02 if "slow" in question else 0)
                yield Piece(word + " ")
            finish = Finish.REFUSED if "decline" in question else Finish.STOP
            if "cut" in question and role is Role.WORKER:
                finish = Finish.LENGTH
            yield Reply(text, finish, thought, Usage(100, 20, 40, 5 if thought else None), cost=0.25)
        finally:
            self.closed += 1

    @staticmethod
    async def _trouble(question: str) -> None:
        for word, error in FAULTS.items():
            if word in question.split():
                raise error
        if "stall" in question:
            await asyncio.sleep(3600)

    @staticmethod
    def _text(role: Role, question: str) -> str:
        if "decline" in question:
            return "This is nothing I know about."
        if role is Role.THINKER:
            return "First multiply, then add."
        if role is Role.VERIFIER:
            return "Recomputed.\nVERDICT: REVISE" if "revise" in question else "Recomputed.\nVERDICT: ACCEPT"
        if "slow" in question:
            return " ".join(f"step{number}" for number in range(200)) + "\nAnswer: 42"
        return f"You asked: {question}\nSmørrebrød \u2028 and 👍 for you. STOP here.\nAnswer: 42"


class Rotation:
    """Chooses Thinker, Worker, Verifier in turn, and another agent where one is masked."""

    name = "coordinator"
    checkpoint_id: str | None = "0123456789abcdef"
    transcript_version: str | None = "lines-v1"
    notice: str | None = None

    def session(self, run_id: str, agents: Sequence[str], *, mode: Mode, seed: int) -> Rotation:
        return self

    async def decide(self, state: LoopState) -> Choice:
        agent, role = _PLAN[len(state.turns) % 3]
        if role.value in state.masked_roles:
            role = Role.WORKER
        if agent in state.masked_agents:
            agent = next(name for name in AGENTS if name not in state.masked_agents)
        return Choice(Decision(agent, role, agent, role, Mode.FIXED), None)

    def close(self) -> None:
        pass


@dataclass
class Endpoint:
    """A server under way. `load` may be set to make the coordinator wait or fail."""

    url: str
    port: int
    members: tuple[Member, ...]
    store: Store
    home: Path
    stop: threading.Event
    load: Callable[[], Any] | None = None

    @property
    def base(self) -> str:
        return f"{self.url}/v1"

    def run(self, run_id: str) -> StoredRun:
        found = self.store.run(run_id, all_owners=True)
        assert found is not None
        return found

    def store_files(self) -> list[Path]:
        return [path for path in self.home.rglob("*") if path.is_file()]

    def calls(self) -> int:
        return sum(len(member.requests) for member in self.members)

    def heard(self, part: str) -> list[Request]:
        """The requests whose conversation holds `part`, in any order."""
        every = [request for member in self.members for request in member.requests]
        return [request for request in every if any(part in m.content for m in request.brief.conversation)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(home: Path, **options: Any) -> Iterator[Endpoint]:
    """`launch` in a thread, with `options`, until the block ends."""
    home.mkdir(parents=True, exist_ok=True)
    settings = Settings(home, f"sqlite:///{home / 'trinity.db'}")
    members = tuple(Member(name) for name in AGENTS)
    pool, store, port = FakePool(*members), Store.open(settings.db_url), free_port()
    stop, up = threading.Event(), threading.Event()
    here = Endpoint(f"http://127.0.0.1:{port}", port, members, store, home, stop)

    async def coordinator(agents: Sequence[str]) -> Policy:
        if here.load is not None:
            await here.load()
        return Rotation()

    status = CoordinatorStatus("ready", "The coordinator is ready.", 1.0, "test-backbone", Rotation.checkpoint_id)
    services = Services(Methods(pool, coordinator), store, cast(Any, pool), lambda: status, settings)
    failed: list[BaseException] = []

    def serve() -> None:
        try:
            launch(services, port=port, stop=stop, on_served=lambda url: up.set(), **options)
        except BaseException as error:
            failed.append(error)
            up.set()

    thread = threading.Thread(target=serve, name="endpoint")
    thread.start()
    try:
        assert up.wait(60), "the server did not come up"
        if failed:
            raise failed[0]
        yield here
    finally:
        stop.set()
        thread.join(30)
        store.close()
    assert not thread.is_alive(), "the server did not end"


async def never() -> None:
    await asyncio.sleep(3600)


async def broken_backbone() -> None:
    raise BackboneError("The backbone at /somewhere is half-converted. Delete it and start again.")


def eventually(true: Callable[[], bool], within_s: float = 5.0) -> bool:
    """Whether `true` becomes so in time."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if true():
            return True
        time.sleep(0.02)
    return bool(true())
