"""Changes of the pool in use: check, write `pool.toml` in the home folder, exchange the pool, say what was done.

Changes are made one at a time, each from the pool as it is then, so that two browsers do not undo each other's work.
Everything is checked before anything is changed: an error leaves file and pool as they were. What somebody else
wrote into the file meanwhile is put aside, never lost. The newest table action can be undone.

Not covered: who may do this. Everybody who can open the page may; see `ui.security` for the login.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trinity_core import wire
from trinity_core.agents.keys import Keys
from trinity_core.agents.pool import KINDS, PoolFile
from trinity_core.agents.poolfile import kept_copy, write_pool
from trinity_core.config import Settings
from trinity_core.errors import InputError
from trinity_core.types import AgentSpec, Limits
from ui.jobs import log_fault
from ui.members import notice

if TYPE_CHECKING:
    from trinity_core.agents.pool import Roster
    from trinity_core.session.loading import CoordinatorStatus


class PoolServices(Protocol):
    """What this tab needs of `ui.build.Services`."""

    @property
    def roster(self) -> Roster: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def coordinator_status(self) -> Callable[[], CoordinatorStatus]: ...
    @property
    def refit(self) -> Callable[[], None]: ...


class Editor:
    """The one place where the pool is changed. What its methods return is HTML for the page."""

    def __init__(self, services: PoolServices) -> None:
        self.services = services
        self._lock = asyncio.Lock()
        self._before: tuple[str, PoolFile] | None = None
        self._removed: dict[str, AgentSpec] = {}

    @property
    def roster(self) -> Roster:
        return self.services.roster

    @property
    def keys(self) -> Keys:
        return self.roster.wiring.keys

    @property
    def path(self) -> Path:
        """Where the pool is saved."""
        return self.services.settings.home / "pool.toml"

    def member(self, name: str) -> AgentSpec:
        spec = next((s for s in self.roster.file.specs if s.name == name), None)
        if spec is None:
            raise InputError(f"There is no member {name} any more. The table is shown anew.")
        return spec

    def free_name(self, name: str) -> str:
        taken = {spec.name.casefold() for spec in self.roster.file.specs}
        tried = (name if number == 1 else f"{name}-{number}" for number in range(1, len(taken) + 2))
        return next(free for free in tried if free.casefold() not in taken)

    async def save(self, spec: AgentSpec, editing: str | None, key: str, keep: bool) -> str:
        """Put `spec` in the place of the member called `editing`, or behind the others, with a typed key if there is
        one. Raises InputError for a name that is taken, ConfigError for an unusable key, PoolError, OSError."""
        async with self._lock:
            return await self._saved(spec, editing, key, keep)

    async def use(self, file: PoolFile, words: str) -> str:
        """Take another pool in place of this one; where it has no budget, that of now goes on."""
        async with self._lock:
            now = self.roster.file
            run = now.run if file.run == Limits() else file.run
            day = now.day if file.day == Limits() else file.day
            return await self._use(replace(file, run=run, day=day), words)

    async def budgets(self, run: Limits, day: Limits) -> str:
        """What a run and a day may spend."""
        async with self._lock:
            return await self._use(replace(self.roster.file, run=run, day=day), "Budgets saved.")

    async def _saved(self, spec: AgentSpec, editing: str | None, key: str, keep: bool) -> str:
        file = self.roster.file
        old = next((s for s in file.specs if s.name == editing), None)
        twin = next((s for s in file.specs if s.name.casefold() == spec.name.casefold() and s is not old), None)
        if twin is not None:
            raise InputError(f"There is already a member called {twin.name}. Choose another name, or edit that one.")
        specs = tuple(spec if s is old else s for s in file.specs) if old else (*file.specs, spec)
        changed = replace(file, specs=specs)
        typed = bool((key or "").strip())
        if typed:
            await asyncio.to_thread(self.keys.put, spec, key, keep=keep)
        elif old is not None:
            await asyncio.to_thread(self.keys.rename, old, spec)
        try:
            said = await self._use(changed, f"Saved {spec.name}. Runs that begin now use it.", undo=False)
        except BaseException:
            if old is not None and not typed:
                await asyncio.to_thread(self.keys.rename, spec, old)
            raise
        self._removed.pop(spec.name, None)
        return said

    async def change(self, what: str, target: str) -> str:
        """Move, remove, switch on or off."""
        async with self._lock:
            specs = list(self.roster.file.specs)
            spec = self.member(target)
            place = specs.index(spec)
            buttons: tuple[tuple[str, str, str], ...] = ()
            if what == "toggle":
                specs[place] = replace(spec, enabled=not spec.enabled)
                if spec.enabled and not any(s.enabled for s in specs):
                    raise InputError(f"{target} is the only member that takes part. Switch another one on first.")
                words = f"{target} {'no longer takes part' if spec.enabled else 'takes part again'}."
            elif what in ("up", "down"):
                other = place + (1 if what == "down" else -1)
                if not 0 <= other < len(specs):
                    return ""
                specs[place], specs[other] = specs[other], specs[place]
                words = f"{target} moved {what}."
            elif what == "remove":
                del specs[place]
                if not any(s.enabled for s in specs):
                    raise InputError(
                        f"{target} is the last member that takes part. Add or switch on another one first."
                    )
                words = f"Removed {target}."
                if (await asyncio.to_thread(self.keys.state, spec)).where in ("memory", "keyring"):
                    self._removed[target] = spec
                    buttons = (("forget", target, "Forget its typed key too"),)
            else:
                return ""
            return await self._use(replace(self.roster.file, specs=tuple(specs)), words, buttons=buttons)

    async def _use(
        self, file: PoolFile, words: str, *, buttons: Sequence[tuple[str, str, str]] = (), undo: bool = True
    ) -> str:
        """Write `file`, make it the pool in use, and say so. Raises PoolError; then nothing has changed."""
        before = self.roster.file
        copy = await asyncio.to_thread(kept_copy, self.path, before)
        await asyncio.to_thread(write_pool, self.path, file)
        try:
            await self.roster.replace(file)
        except Exception as error:  # the new pool is in use by then; only a member of the old one did not close
            log_fault("closing the pool that was replaced", error)
        self.services.refit()
        self._before = (wire.new_id(), before) if undo else None
        if self._before is not None:
            buttons = (("undo", self._before[0], "Undo"), *buttons)
        if copy is not None:
            words += f" What stood in {self.path.name} before is now in {copy.name}."
        named = self.services.settings.pool
        if named is not None and named != self.path:
            words += f" It is saved in {self.path}; a start with --pool {named} reads that file instead."
        lacking = [spec for spec in file.enabled if KINDS[spec.kind].remote and spec.key_env]
        states = [(spec, await asyncio.to_thread(self.keys.state, spec)) for spec in lacking]
        if unset := [f"{spec.name} ({spec.key_env})" for spec, state in states if not state.is_set]:
            words += f" No key yet for {', '.join(unset)}."
        return notice(words, kind="done", buttons=buttons)

    async def undo(self, token: str) -> str:
        """Go back to before the change that `token` names. Raises InputError when another one came since."""
        async with self._lock:
            if self._before is None or self._before[0] != token:
                raise InputError("The pool was changed since; this step can no longer be undone.")
            return await self._use(self._before[1], "Undone.")

    async def forget(self, name: str) -> str:
        """Forget the typed key of a member that was removed."""
        spec = self._removed.pop(name, None)
        if spec is None:
            raise InputError(f"There is no key of a removed member called {name}.")
        await asyncio.to_thread(self.keys.clear, spec)
        return notice(f"The typed key of {name} is forgotten.", kind="done")
