"""Getting the learned policy ready in the background, and saying how far that is.

The page never waits for it: the server is up first, then the backbone loads (and is converted, once) in a thread.
Which head is used: the deployed checkpoint, else the one that is shipped, else none. Where no head fits the
backbone and the pool, the coordinator is *untrained*: it decides uniformly and says why.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trinity_core.config import Settings
from trinity_core.coordinator.policy import LearnedPolicy, Policy, RandomPolicy
from trinity_core.errors import BackboneError, CheckpointError, InputError, TrinityError

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


SHIPPED = "shipped"
"""Stands for the shipped head where a checkpoint is named."""
_ID = re.compile(r"\w[\w.-]{0,200}")


def deployed_path(settings: Settings) -> Path | None:
    """The checkpoint file chosen for this home folder, or None. Raises CheckpointError for an unreadable choice."""
    name = deployed_id(settings)
    return None if name is None else checkpoint_path(settings, name)


def deployed_id(settings: Settings) -> str | None:
    """The id of the checkpoint chosen for this home folder; None where that is the shipped head.

    Raises CheckpointError for an unreadable choice.
    """
    if not settings.deployed.is_file():
        return None
    now = _choices(settings)[0]
    if not _ID.fullmatch(now):
        raise CheckpointError(
            f"{settings.deployed} does not name a checkpoint. Delete it to use the shipped head, or deploy another: "
            "python app.py train --method sft --deploy"
        )
    return None if now == SHIPPED else now


def checkpoint_path(settings: Settings, checkpoint_id: str) -> Path:
    """Where the home folder keeps the checkpoint of that id."""
    return settings.checkpoints / f"{checkpoint_id}.safetensors"


def deploy(settings: Settings, checkpoint_id: str) -> None:
    """Use `checkpoint_id`, a file in the home folder's checkpoints, from the next start on.

    The one that was used before is kept for `revert`. Raises OSError when the home folder cannot be written.
    """
    now, before = _choices(settings)
    if now != checkpoint_id:
        before = now if _ID.fullmatch(now) else SHIPPED
    _choose(settings, checkpoint_id, before)


def revert(settings: Settings) -> str | None:
    """Use again what was used before the last `deploy` or `revert`; returns its id, or None for the shipped head.

    Raises CheckpointError when that checkpoint is gone or its name cannot be read; the choice then stays as it is.
    Raises OSError when the home folder cannot be written.
    """
    now, before = _choices(settings)
    if not _ID.fullmatch(before):
        raise CheckpointError(
            f"{settings.deployed} does not name the checkpoint from before. Delete the file to use the shipped head."
        )
    if before != SHIPPED and not checkpoint_path(settings, before).is_file():
        raise CheckpointError(
            f"The checkpoint from before, {checkpoint_path(settings, before)}, is missing. Put it back, or delete "
            f"{settings.deployed} to use the shipped head."
        )
    if now != before:
        _choose(settings, before, now if _ID.fullmatch(now) else SHIPPED)
    return None if before == SHIPPED else before


def _choices(settings: Settings) -> tuple[str, str]:
    """The first line of the file (what is used) and the second one (what was used before; where there is none, the
    shipped head). The first is empty when it cannot be read."""
    if not settings.deployed.is_file():
        return SHIPPED, SHIPPED
    try:
        lines = settings.deployed.read_text("utf-8-sig").strip().splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    now, before = (*(line.strip() for line in lines[:2]), "", "")[:2]
    return now, before or SHIPPED


def _choose(settings: Settings, now: str, before: str) -> None:
    """Write the file whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=settings.deployed.parent, prefix=".deployed-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{now}\n{before}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, settings.deployed)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def find_checkpoint(settings: Settings, named: str) -> Path:
    """The checkpoint file that `named` means: `shipped`, `deployed`, a path, an id, or the beginning of one id.

    Raises InputError when there is none, or more than one.
    """
    if named == SHIPPED:
        return settings.shipped_head
    if named == "deployed":
        path = deployed_path(settings)
        if path is None:
            raise InputError(
                f"No checkpoint is deployed in {settings.home}; the shipped head is in use. Name it as: {SHIPPED}"
            )
        if not path.is_file():
            raise InputError(f"The deployed checkpoint {path} is missing. Put it back, or name another one.")
        return path
    try:
        given = Path(named).expanduser()
        if named and given.is_file():
            return given
    except (OSError, RuntimeError, ValueError):  # no such user, a name that is too long, a zero character
        pass
    ids = sorted(path.stem for path in settings.checkpoints.glob("*.safetensors") if path.is_file())
    wanted = named.removesuffix(".safetensors")
    found = [wanted] if wanted in ids else [id for id in ids if wanted and id.startswith(wanted)]
    if len(found) == 1:
        return checkpoint_path(settings, found[0])
    if found:
        listed = ", ".join(id[:16] for id in found[:5])
        raise InputError(f"{len(found)} checkpoints begin with {named!r}: {listed}. Give more of the id.")
    there = f"It holds: {', '.join(id[:16] for id in ids[:5])}" if ids else "It holds none"
    more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
    raise InputError(
        f"There is no checkpoint {named[:100]!r}: no file of that name, and no id in {settings.checkpoints} that "
        f"begins with {named[:100]!r}. {there}{more}. Give a path, an id, deployed or {SHIPPED}."
    )
