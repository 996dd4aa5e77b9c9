"""Getting the learned policy ready in the background, and saying how far that is.

The page never waits for it: the server is up first, then the backbone loads (and is converted, once) in a thread.
Which head is used: the deployed checkpoint, else the one that is shipped, else none. Where no head fits the
backbone and the pool, the coordinator is *untrained*: it decides uniformly and says why.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trinity_core.config import Settings
from trinity_core.coordinator.policy import LearnedPolicy, Policy, RandomPolicy
from trinity_core.errors import BackboneError, CheckpointError, TrinityError

if TYPE_CHECKING:
    from trinity_core.coordinator.backbone import Backbone

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CoordinatorStatus:
    """What the page says about the coordinator. `fraction` is the progress of loading, from 0 to 1."""

    state: Literal["loading", "ready", "untrained", "failed"]
    message: str
    fraction: float = 0.0
    backbone: str | None = None
    checkpoint_id: str | None = None


class Coordinator:
    """The learned policy of one pool, loaded once per process.

    `told` is called with the status, in the loading thread, once loading is over.
    """

    def __init__(
        self,
        settings: Settings,
        agents: Sequence[str],
        told: Callable[[CoordinatorStatus], None] = lambda status: None,
    ) -> None:
        self._settings, self._told = settings, told
        self._agents = tuple(agents)
        self._lock = threading.Lock()
        self._policy: Future[Policy] | None = None
        self._status = CoordinatorStatus("loading", "Waiting to load the backbone.")
        self.backbone: Backbone | None = None

    @property
    def status(self) -> CoordinatorStatus:
        return self._status

    def start(self) -> None:
        """Begin loading in a thread, unless that has begun already. A failed load is tried again."""
        with self._lock:
            if self._policy is not None and not (self._policy.done() and self._policy.exception()):
                return
            self._policy = Future()
        threading.Thread(target=self._load, args=(self._policy,), name="coordinator-load", daemon=True).start()

    async def policy(self) -> Policy:
        """The policy, as soon as it is ready. Raises BackboneError when the backbone does not load."""
        self.start()
        assert self._policy is not None
        return await asyncio.shield(asyncio.wrap_future(self._policy))

    def _load(self, promise: Future[Policy]) -> None:
        try:
            promise.set_result(self._policy_now())
        except TrinityError as error:
            self._status = CoordinatorStatus("failed", str(error))
            promise.set_exception(error)
        except Exception as error:
            log.exception("loading the coordinator failed")
            failure = BackboneError(f"The coordinator did not load: {type(error).__name__}: {error}")
            self._status = CoordinatorStatus("failed", str(failure))
            promise.set_exception(failure)
        self._told(self._status)

    def _policy_now(self) -> Policy:
        from trinity_core.coordinator.backbone import Backbone  # torch, a second or two

        def progress(fraction: float, message: str) -> None:
            self._status = CoordinatorStatus("loading", message, fraction)

        progress(0.0, "Loading the backbone.")
        if self.backbone is None:
            self.backbone = Backbone.load(self._settings, progress)
        try:
            policy = learned_policy(self.backbone, self._settings, self._agents)
        except CheckpointError as error:
            notice = f"The coordinator is untrained and decides uniformly: {error}"
            self._status = CoordinatorStatus("untrained", notice, 1.0, self.backbone.id)
            return RandomPolicy(name="untrained", notice=notice)
        self._status = CoordinatorStatus(
            "ready", "The coordinator is ready.", 1.0, self.backbone.id, policy.checkpoint_id
        )
        return policy


def learned_policy(backbone: Backbone, settings: Settings, agents: Sequence[str]) -> LearnedPolicy:
    """The deployed head, or the shipped one, fitted to `agents`. Raises CheckpointError when neither fits.

    A deployed checkpoint that is damaged or does not fit is an error of its own: falling back in silence would
    show decisions of another head than the one that was chosen.
    """
    from trinity_core.coordinator.checkpoint import Checkpoint

    deployed = deployed_path(settings)
    path = deployed or settings.shipped_head
    if deployed and not deployed.is_file():
        raise CheckpointError(
            f"The deployed checkpoint {deployed} is missing. Put it back, or delete {settings.deployed} to use the "
            "shipped head."
        )
    if not path.is_file():
        raise CheckpointError(f"There is no head at {path}. Train one: python app.py train --method sft --deploy")
    checkpoint = Checkpoint.load(path)
    checkpoint.for_pool(agents)  # raises where an agent has no row; the policy maps rows itself and keeps the id
    return LearnedPolicy(backbone, checkpoint)


def deployed_path(settings: Settings) -> Path | None:
    """The checkpoint file chosen for this home folder, or None. Raises CheckpointError for an unreadable choice."""
    if not settings.deployed.is_file():
        return None
    try:
        name = settings.deployed.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        name = ""
    if not re.fullmatch(r"\w[\w.-]{0,200}", name):
        raise CheckpointError(
            f"{settings.deployed} does not name a checkpoint. Delete it to use the shipped head, or deploy another: "
            "python app.py train --method sft --deploy"
        )
    return settings.checkpoints / f"{name}.safetensors"


def deploy(settings: Settings, checkpoint_id: str) -> None:
    """Use `checkpoint_id`, a file in the home folder's checkpoints, from the next start on."""
    temporary = settings.deployed.with_suffix(".tmp")
    temporary.write_text(checkpoint_id + "\n", "utf-8")
    temporary.replace(settings.deployed)
