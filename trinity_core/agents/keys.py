"""Keys of members: where each one comes from, and how it is shown without being shown.

A key that somebody typed lives in this process's memory or, when asked for, in the operating system's keyring;
otherwise the environment variable that the member names is read. A typed key goes before the environment. It belongs
to a member's name and to the origin (scheme, host, port) of its address: a member that is pointed somewhere else does
not take its key along.

Invariants: no key is written to a file of ours, returned by `state` or `show`, or part of an error; redaction knows
every key from the moment it is seen; what a server says back of its key is hidden in its reply (`Veil`). Only a
keyring that the `keyring` library recommends is used, so that none lands in a plain file. A keyring that does not
answer holds up a call for `PATIENCE_S` seconds, once.

Not covered: rotating keys, and several keys for one member.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from trinity_core import wire
from trinity_core.config import secret_from
from trinity_core.errors import ConfigError
from trinity_core.types import AgentSpec, Piece, Reply, Reset

SERVICE = "trinity-playground"
"""The name under which keys stand in the operating system's keyring."""
PATIENCE_S = 3.0
SHOWN_FROM = 12
"""A shorter key shows no tail: four characters would be too large a part of it."""
_LONGEST = 8192
_PORTS = {"http": 80, "https": 443}

Where = Literal["environment", "memory", "keyring", "none"]


@dataclass(frozen=True, slots=True)
class KeyState:
    """What may be told about a member's key. `tail` is its last four characters, or empty; `variable` the environment
    variable that the member names."""

    is_set: bool
    where: Where = "none"
    tail: str = ""
    variable: str | None = None


def show(state: KeyState) -> str:
    """The state in words, such as `set · …1234 (environment)`."""
    if state.is_set:
        tail = f" · …{state.tail}" if state.tail else ""
        return f"set{tail} ({state.where})"
    if state.variable:
        return f"not set: put it in {state.variable} or type it"
    return "not set: type one if the server asks for it"


def origin(spec: AgentSpec) -> str:
    """Scheme, host and port of a member's address; without an address, the provider's own for its kind."""
    if not spec.base_url:
        return f"{spec.kind}:default"
    try:
        parts = urlsplit(spec.base_url.strip())
        port = parts.port or _PORTS.get(parts.scheme.lower())
        return f"{parts.scheme.lower()}://{(parts.hostname or '').rstrip('.')}:{port}"
    except ValueError:  # no address that could be called either
        return spec.base_url


class Keys:
    """The keys of this process. Safe to use from several threads."""

    def __init__(self, use_keyring: bool = True) -> None:
        self._use_keyring = use_keyring
        self._typed: dict[tuple[str, str], str] = {}
        self._kept: dict[tuple[str, str], str | None] = {}  # what the keyring was found to hold
        self._silent = False
        self._lock = threading.Lock()

    def of(self, spec: AgentSpec) -> str | None:
        """The key to send for this member; None when there is none anywhere."""
        return self._found(spec)[0]

    def state(self, spec: AgentSpec) -> KeyState:
        key, where = self._found(spec)
        if key is None:
            return KeyState(False, variable=spec.key_env)
        return KeyState(True, where, key[-4:] if len(key) >= SHOWN_FROM else "", spec.key_env)

    def put(self, spec: AgentSpec, value: str, *, keep: bool = False) -> None:
        """Take a typed key in place of any earlier one; with `keep` it is also put into the keyring.

        Raises ConfigError when it cannot be a key, or when it is to be kept and no keyring works; then nothing has
        changed. May wait for the keyring, so call it in a thread.
        """
        key = _checked(value)
        wire.remember_secret(key)
        slot = _slot(spec)
        if keep:
            self._keep(slot, key)
        elif self._lookup(slot) is not None:  # else the old key would be back after the next start
            self._forget(slot)
        with self._lock:
            self._typed[slot] = key

    def clear(self, spec: AgentSpec) -> None:
        """Forget a typed key, in memory and in the keyring. What the environment holds stays.

        Raises ConfigError when the keyring holds one and does not let go of it."""
        slot = _slot(spec)
        with self._lock:
            self._typed.pop(slot, None)
        if self._lookup(slot) is not None:
            self._forget(slot)

    def rename(self, old: AgentSpec, new: AgentSpec) -> None:
        """A member got another name: its typed key goes along, unless its address leads elsewhere now."""
        before, after = _slot(old), _slot(new)
        if before == after or before[1] != after[1]:
            return
        kept = self._lookup(before)
        with self._lock:
            key = self._typed.pop(before, None) or kept
        if key is not None:
            self.put(new, key, keep=kept is not None)
        if kept is not None:
            self._forget(before)

    def _found(self, spec: AgentSpec) -> tuple[str | None, Where]:
        slot = _slot(spec)
        with self._lock:
            typed = self._typed.get(slot)
        if typed is not None:
            return typed, "keyring" if self._kept.get(slot) == typed else "memory"
        kept = self._lookup(slot)
        if kept is not None:
            return kept, "keyring"
        given = secret_from(spec.key_env) if spec.key_env else None
        return given, "environment" if given is not None else "none"

    # --- The keyring --------------------------------------------------------------------------------------

    def _lookup(self, slot: tuple[str, str]) -> str | None:
        """What the keyring holds for `slot`; it is asked once. None when no keyring works."""
        with self._lock:
            if not self._use_keyring or slot in self._kept:
                return self._kept.get(slot)
            self._kept[slot] = None  # also what holds when it does not answer in time

        def ask() -> None:
            backend = _backend()
            found = None if backend is None else backend.get_password(SERVICE, _user(slot))
            if found:
                wire.remember_secret(found)
                with self._lock:
                    self._kept[slot] = self._kept.get(slot) or found

        # A keyring that waits for its owner to unlock it would hold up one member after the other.
        self._silent = not _within(0.0 if self._silent else PATIENCE_S, ask)
        with self._lock:
            return self._kept[slot]

    def _keep(self, slot: tuple[str, str], key: str) -> None:
        backend = _backend() if self._use_keyring else None
        if backend is None:
            raise ConfigError(
                "The key cannot be kept: no keyring of the operating system works here. Leave “keep” off to use the "
                "key until the program ends, or put it into an environment variable."
            )
        try:
            backend.set_password(SERVICE, _user(slot), key)
            held = backend.get_password(SERVICE, _user(slot)) == key
        except Exception as error:  # backends raise what their desktop does
            raise ConfigError(
                f"The keyring did not take the key ({_said(error)}). Unlock it and try again, or leave “keep” off."
            ) from None
        if not held:
            raise ConfigError("The keyring did not keep the key. Leave “keep” off, or use an environment variable.")
        with self._lock:
            self._kept[slot] = key

    def _forget(self, slot: tuple[str, str]) -> None:
        backend = _backend()
        try:
            if backend is not None:
                backend.delete_password(SERVICE, _user(slot))
        except Exception as error:
            raise ConfigError(
                f"The keyring did not let go of the key ({_said(error)}). Delete the entry {SERVICE!r} for "
                f"{_user(slot)!r} in the system's keyring."
            ) from None
        with self._lock:
            self._kept[slot] = None


_TELLING = 6
"""Characters of a key's beginning from which a text that broke off there is not shown."""


class Veil:
    """Takes the key that was sent with a call out of the reply to it, which is stored and shown; the reply may come
    in pieces that cut the key anywhere. Only as much as could be its beginning is held back until the next piece.

    A key shorter than `SHOWN_FROM` is left alone: local servers are given words such as `ollama`, which replies hold
    by chance."""

    def __init__(self, key: str | None) -> None:
        self._key = key if key and len(key) >= SHOWN_FROM else None
        self._held = Piece("")

    def over(self, item: Piece | Reset) -> list[Piece | Reset]:
        """What may be shown now that `item` has come."""
        if self._key is None:
            return [item]
        if isinstance(item, Reset):
            self._held = Piece("")
            return [item]
        before: list[Piece | Reset] = list(self.rest()) if item.channel != self._held.channel else []
        text = self._hidden(self._held.text + item.text)
        kept = next(n for n in range(min(len(text), len(self._key) - 1), -1, -1) if text.endswith(self._key[:n]))
        shown, self._held = text[: len(text) - kept], replace(item, text=text[len(text) - kept :])
        return [*before, replace(item, text=shown)] if shown else before

    def rest(self, *, broken: bool = False) -> list[Piece]:
        """What was held back, once the reply has ended: it was not the key. Where the reply broke off in the middle
        of it (`broken`), it may well be the greater part of one."""
        held, self._held = self._held, Piece("")
        if broken and len(held.text) >= _TELLING:
            held = replace(held, text=wire.REDACTED)
        return [held] if held.text else []

    def reply(self, reply: Reply) -> Reply:
        return replace(
            reply,
            text=self._hidden(reply.text),
            reasoning=self._hidden(reply.reasoning),
            request_id=None if reply.request_id is None else self._hidden(reply.request_id),
        )

    def _hidden(self, text: str) -> str:
        return text if self._key is None else text.replace(self._key, wire.REDACTED)


def _slot(spec: AgentSpec) -> tuple[str, str]:
    return spec.name.casefold(), origin(spec)


def _user(slot: tuple[str, str]) -> str:
    return f"{slot[0]} {slot[1]}"


def _checked(value: str) -> str:
    key = value.strip()
    if not key:
        raise ConfigError("The key is empty. Type it, or leave the field alone.")
    if len(key) > _LONGEST:
        raise ConfigError(f"The key has more than {_LONGEST:,} characters. Copy the key alone.")
    if not all(33 <= ord(c) <= 126 for c in key):
        raise ConfigError(
            "The key holds a blank, a line break or a character that no key has. Copy it again, without quotes and "
            "without the name of the variable."
        )
    return key


def _backend() -> Any:
    """A working keyring that does not keep passwords in a plain file; None where there is none."""
    import keyring  # some desktops take a moment

    try:
        backend = keyring.get_keyring()
        return backend if backend.priority >= 1 else None
    except Exception:  # a broken desktop service is no keyring
        return None


def _within(seconds: float, work: Callable[[], object]) -> bool:
    """Do `work` in a thread and say whether it ended within `seconds`; it may end later, its failure is no news."""

    def quietly() -> None:
        with suppress(Exception):  # locked, refused or gone: then there is no key to be had
            work()

    thread = threading.Thread(target=quietly, name="keyring", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def _said(error: Exception) -> str:
    return wire.redact(f"{type(error).__name__}: {error}")[:200]
