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
    """The learned policy, for whatever agents the pool has now. The backbone is loaded once per process.

    `agents` tells the names that the status is about. `told` is called with the status, in the loading thread, once
    loading is over.
    """

    def __init__(
        self,
        settings: Settings,
        agents: Callable[[], Sequence[str]],
        told: Callable[[CoordinatorStatus], None] = lambda status: None,
    ) -> None:
        self._settings, self._agents, self._told = settings, agents, told
        self._lock = threading.Lock()
        self._loading: Future[Backbone] | None = None
        self._policies: dict[tuple[str, ...], Policy] = {}
        self._status = CoordinatorStatus("loading", "Waiting to load the backbone.")
        self.backbone: Backbone | None = None

    @property
    def status(self) -> CoordinatorStatus:
        return self._status

    def start(self) -> None:
        """Begin loading in a thread, unless that has begun already. A failed load is tried again."""
        with self._lock:
            if self._loading is not None and not (self._loading.done() and self._loading.exception()):
                return
            self._loading = Future()
        threading.Thread(target=self._load, args=(self._loading,), name="coordinator-load", daemon=True).start()

    async def policy(self, agents: Sequence[str]) -> Policy:
        """The policy for `agents`, as soon as it is ready. Raises BackboneError when the backbone does not load, and
        CheckpointError when the deployed checkpoint cannot be used at all."""
        self.start()
        assert self._loading is not None
        backbone = await asyncio.shield(asyncio.wrap_future(self._loading))
        return await asyncio.to_thread(self._fitted, backbone, tuple(agents))

    def refit(self) -> None:
        """Look again which head there is for the agents of now: the pool or the deployed checkpoint has changed."""
        with self._lock:
            self._policies.clear()
        if self.backbone is not None:
            self._tell(self.backbone)

    def _load(self, promise: Future[Backbone]) -> None:
        try:
            from trinity_core.coordinator.backbone import Backbone  # torch, a second or two

            def progress(fraction: float, message: str) -> None:
                self._status = CoordinatorStatus("loading", message, fraction)

            progress(0.0, "Loading the backbone.")
            backbone = Backbone.load(self._settings, progress)
            self._tell(backbone)
            self.backbone = backbone
            promise.set_result(backbone)
        except TrinityError as error:
            self._status = CoordinatorStatus("failed", str(error))
            promise.set_exception(error)
        except Exception as error:
            log.exception("loading the coordinator failed")
            failure = BackboneError(f"The coordinator did not load: {type(error).__name__}: {error}")
            self._status = CoordinatorStatus("failed", str(failure))
            promise.set_exception(failure)
        self._told(self._status)

    def _tell(self, backbone: Backbone) -> None:
        """Set the status to what a run of now would get."""
        policy = self._fitted(backbone, tuple(self._agents()))
        state: Literal["ready", "untrained"] = "untrained" if isinstance(policy, RandomPolicy) else "ready"
        message = policy.notice or "The coordinator is ready."
        self._status = CoordinatorStatus(state, message, 1.0, backbone.id, policy.checkpoint_id)

    def _fitted(self, backbone: Backbone, agents: tuple[str, ...]) -> Policy:
        with self._lock:
            policy = self._policies.get(agents)
        if policy is None:
            try:
                policy = learned_policy(backbone, self._settings, agents)
            except CheckpointError as error:
                notice = f"The coordinator is untrained and decides uniformly: {error}"
                policy = RandomPolicy(name="untrained", notice=notice)
            with self._lock:
                self._policies[agents] = policy
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
    policy = LearnedPolicy(backbone, checkpoint)
    fresh = [name for name in checkpoint.meta.training.get("untrained", ()) if name in agents]
    if fresh:
        policy.notice = (
            f"The rows of {', '.join(fresh)} are untrained: each is the mean of the others, so the head cannot yet "
            "tell these members apart. Train a coordinator for this pool."
        )
    return policy


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
