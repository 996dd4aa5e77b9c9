"""The real page, pool and store, for `python -m tests.browser.pool_server`: what the Pool tab changes, runs use.

The coordinator is the fixed rotation of roles, so that no backbone loads. The pool begins as two members of this
program, or as what the home folder's pool file says.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from storage.store import Store
from trinity_core.agents.base import Wiring
from trinity_core.agents.keys import Keys
from trinity_core.agents.meter import Meter
from trinity_core.agents.pool import PoolFile, Roster, load_pool
from trinity_core.config import Settings
from trinity_core.coordinator.policy import FixedPolicy, Policy
from trinity_core.session.loading import CoordinatorStatus
from trinity_core.session.methods import Methods
from trinity_core.types import AgentSpec
from ui.build import Services, launch


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--home", required=True)
    given = options.parse_args()
    settings = Settings.load(home=given.home)
    store = Store.open(settings.db_url)
    file = PoolFile((AgentSpec("symbolic", "symbolic"), AgentSpec("lexical", "lexical")))
    meter = Meter(store)
    roster = Roster(load_pool(settings) if settings.pool else file, Wiring(Keys(use_keyring=False), meter))

    async def coordinator(agents: Sequence[str]) -> Policy:
        return FixedPolicy()

    status = CoordinatorStatus("ready", "The coordinator is ready.", 1.0)
    services = Services(Methods(roster, coordinator, store), store, roster, lambda: status, settings)
    try:
        launch(services, port=given.port, grace_s=6)
    finally:
        asyncio.run(roster.aclose())
        meter.close()
        store.close()


if __name__ == "__main__":
    main()
