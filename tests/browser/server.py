"""The real page, loop and store over members that follow a script, for `python -m tests.browser.server`.

Words in the question choose what a Worker does: `slow` streams for a long time, `stall` never says anything,
`broken` fails every call, `hostile` answers with text that must stay text. Everything else is answered at once.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import cast

from storage.store import Store
from tests.fakes import ScriptedAgent
from trinity_core.agents.base import Wiring
from trinity_core.agents.keys import Keys
from trinity_core.agents.meter import Meter
from trinity_core.agents.pool import KINDS, Kind, PoolFile, Roster, load_pool
from trinity_core.config import Settings, login_from
from trinity_core.coordinator.policy import Choice, Policy
from trinity_core.errors import AgentError
from trinity_core.session.loading import CoordinatorStatus
from trinity_core.session.methods import Methods
from trinity_core.types import AgentSpec, Decision, Finish, LoopState, Mode, Piece, Reply, Request, Reset, Role, Usage
from ui.build import Services, launch

AGENTS = ("smollm2", "symbolic", "lexical", "calendar", "general")
HOSTILE = (
    "fill <your name here> please. Rent is $1800 and $250 for heat, while $x^2$ is a square.\n"
    "see [/INST] and [bold] <b>not a tag</b> <|im_end|>\n"
    "<script>alert(1)</script><img src=x onerror=alert(2)> ![pixel](http://other.example/p.png)\n"
    "Answer: <b>4</b>"
)
_PLAN = (("calendar", Role.THINKER), ("symbolic", Role.WORKER), ("smollm2", Role.VERIFIER))


class Member(ScriptedAgent):
    """Plays its role at once, or as the question's words say."""

    async def stream(self, request: Request) -> AsyncIterator[Piece | Reset | Reply]:
        question = request.brief.question
        text = {
            Role.THINKER: "First multiply, then add.",
            Role.VERIFIER: "Recomputed, and it is the same.\nVERDICT: ACCEPT",
            Role.WORKER: f"You asked: {question}\nAnswer: 42",
        }[request.brief.role]
        if request.brief.role is Role.WORKER:
            if "broken" in question:
                raise AgentError("The service is down.", kind="transient", retryable=True)
            if "stall" in question:
                await asyncio.sleep(3600)
            if "hostile" in question:
                text = HOSTILE
            if "slow" in question:
                text = " ".join(f"step{number}" for number in range(120)) + "\nAnswer: 42"
        yield Piece("Thinking it over.", "reasoning")
        for word in text.split(" "):
            await asyncio.sleep(0.1 if "slow" in question and request.brief.role is Role.WORKER else 0.01)
            yield Piece(word + " ")
        yield Reply(text, Finish.STOP, "Thinking it over.", Usage(100, 20))


class HeadLike:
    """Chooses Thinker, Worker, Verifier in rotation, with logits as a head would give them."""

    name = "coordinator"
    checkpoint_id: str | None = "0123456789abcdef"
    transcript_version: str | None = "lines-v1"
    notice: str | None = None

    def session(self, run_id: str, agents: Sequence[str], *, mode: Mode, seed: int) -> HeadLike:
        return self

    async def decide(self, state: LoopState) -> Choice:
        await asyncio.sleep(0.1)
        agent, role = _PLAN[len(state.turns) % 3]
        if agent in state.masked_agents:
            agent = next(name for name in AGENTS if name not in state.masked_agents)
        agents = {name: 2.0 if name == agent else 1.0 - place for place, name in enumerate(AGENTS)}
        roles = {r.value: 1.5 if r is role else 0.2 for r in Role}
        masked = {f"agent:{name}": why for name, why in state.masked_agents.items()}
        masked |= {f"role:{name}": why for name, why in state.masked_roles.items()}
        return Choice(
            Decision(
                agent, role, agent, role, Mode.ARGMAX, agents, roles,
                {name: 0.8 if name == agent else 0.05 for name in AGENTS},
                {name: 0.7 if name == role.value else 0.15 for name in roles},
                {"agent": 1.0, "role": 1.3}, masked, checkpoint_id=self.checkpoint_id, encode_ms=100.0, tokens=40,
            ),
            None,
        )  # fmt: skip

    def close(self) -> None:
        pass


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--home", required=True)
    options.add_argument("--grace", type=float, default=30.0)
    options.add_argument("--auth-env")
    given = options.parse_args()
    settings = Settings.load(home=given.home)
    scripted = Kind(lambda spec, wiring: Member(spec.name), lambda spec: None)
    cast(dict[str, Kind], KINDS)["scripted"] = scripted
    store = Store.open(settings.db_url)
    file = load_pool(settings) if settings.pool else PoolFile(tuple(AgentSpec(name, "scripted") for name in AGENTS))
    pool = Roster(file, Wiring(Keys(), Meter(store, file.day)))

    async def coordinator(agents: Sequence[str]) -> Policy:
        return HeadLike()

    status = CoordinatorStatus("ready", "The coordinator is ready.", 1.0, "test-backbone", HeadLike.checkpoint_id)
    services = Services(Methods(pool, coordinator, store), store, pool, lambda: status, settings)
    try:
        login = login_from(given.auth_env) if given.auth_env else None
        launch(services, port=given.port, auth=login, grace_s=given.grace)
    finally:
        pool.wiring.meter.close()
        store.close()


if __name__ == "__main__":
    main()
