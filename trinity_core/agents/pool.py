"""The pool: which agents exist, in which order, read from `pool.toml` or, without that file, the embedded four.

    [[agents]]
    name = "smollm2"            # letters, digits, . _ - (at most 64); it labels the agent's turns
    kind = "smollm2"            # smollm2 | symbolic | lexical | calendar | gguf
    description = "A small general model"
    enabled = true              # default
    model = "/models/big.gguf"  # kind gguf only: the file
    [agents.options]            # the kind's own settings; smollm2 and gguf: see `local.py`
    max_tokens = 96

The order of the entries is the order of the pool. A disabled entry is checked but left out.

Invariants: names are unique whatever their case; `trinity` (the whole system as a model of the API) and `any` (a
Thinker's word for no agent in particular) are no names. No key is accepted anywhere in the file: specs are kept with
every run and shown in the page. Agents are built on first use, so reading a pool loads no model and imports no
solver. Every problem is a PoolError that names the file, the entry and the fix.

Not covered: writing the file, and watching it for changes. The pool of the paper (section 4) is seven remote models.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from trinity_core import wire
from trinity_core.agents.base import Agent
from trinity_core.config import Settings
from trinity_core.errors import PoolError
from trinity_core.types import AgentSpec

RESERVED = ("trinity", "any")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FIELDS = {"name": str, "kind": str, "description": str, "enabled": bool, "model": str, "options": dict}
_IN_WORDS = {str: "a text in quotes", bool: "true or false", dict: "a table ([agents.options])"}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of agent. `check` looks at a spec without building anything and raises PoolError; `build` imports
    what it needs only when it is called."""

    build: Callable[[AgentSpec], Agent]
    check: Callable[[AgentSpec], None]


def _build_local(spec: AgentSpec) -> Agent:
    from trinity_core.agents.local import LlamaAgent

    return LlamaAgent(spec)


def _check_local(spec: AgentSpec) -> None:
    from trinity_core.agents.local import LlamaOptions, weights

    LlamaOptions.read(spec)
    if spec.kind == "smollm2":
        if spec.model is not None:
            raise PoolError(f'Agent {spec.name}: kind smollm2 takes no model. Use kind = "gguf" for another file.')
    elif spec.enabled or not spec.model:
        weights(spec)


def _build_specialist(spec: AgentSpec) -> Agent:
    from trinity_core.agents.specialists import specialist

    return specialist(spec)


def _check_specialist(spec: AgentSpec) -> None:
    if spec.model is not None or spec.options:
        surplus = "model" if spec.model is not None else "options"
        raise PoolError(f"Agent {spec.name}: kind {spec.kind} takes no {surplus}. Remove it.")


_LOCAL = Kind(_build_local, _check_local)
_SPECIALIST = Kind(_build_specialist, _check_specialist)
KINDS: Mapping[str, Kind] = {
    "smollm2": _LOCAL,
    "symbolic": _SPECIALIST,
    "lexical": _SPECIALIST,
    "calendar": _SPECIALIST,
    "gguf": _LOCAL,
}
"""Every kind of agent by name."""


def embedded_specs() -> tuple[AgentSpec, ...]:
    """The pool that needs no key, no network and no file."""
    return (
        AgentSpec(
            "smollm2",
            "smollm2",
            description="A small general language model (SmolLM2, 135M): common knowledge in English, short texts.",
            options={"contract": True, "decline": True, "max_tokens": 96},
        ),
        AgentSpec(
            "symbolic",
            "symbolic",
            description="Exact mathematics: arithmetic, fractions, equations, calculus, number theory.",
        ),
        AgentSpec(
            "lexical",
            "lexical",
            description="Letters and words: counting, sorting, reversing, anagrams, ciphers.",
        ),
        AgentSpec(
            "calendar",
            "calendar",
            description="Dates, weekdays, durations, time zones and conversions of units.",
        ),
    )


class Pool:
    """The enabled agents in order. Built agents are kept until `aclose`."""

    def __init__(self, specs: tuple[AgentSpec, ...]) -> None:
        """Raises PoolError when there is no spec, a kind is unknown or a name occurs twice."""
        if not specs:
            raise PoolError("The pool has no agent.")
        seen: set[str] = set()
        for spec in specs:
            if spec.kind not in KINDS:
                raise PoolError(f"Agent {spec.name}: {_unknown_kind(spec.kind)}")
            if spec.name.casefold() in seen:
                raise PoolError(f"The pool has two agents called {spec.name!r}. Rename one of them.")
            seen.add(spec.name.casefold())
        self._specs = specs
        self._by_name = {spec.name: spec for spec in specs}
        self._built: dict[str, Agent] = {}
        self._lock = Lock()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._by_name)

    @property
    def specs(self) -> tuple[AgentSpec, ...]:
        """The snapshot that a run keeps. It holds no key."""
        return self._specs

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __len__(self) -> int:
        return len(self._specs)

    def agent(self, name: str) -> Agent:
        """The agent called `name`, built now when it was not yet. Raises PoolError when there is none."""
        spec = self._by_name.get(name)
        if spec is None:
            raise PoolError(f"There is no agent {name!r} in the pool. It has: {', '.join(self.names)}.")
        with self._lock:
            if name not in self._built:
                self._built[name] = KINDS[spec.kind].build(spec)
            return self._built[name]

    async def aclose(self) -> None:
        """Close every agent that was built, each one even if another fails; then raise the first failure."""
        with self._lock:
            built, self._built = list(self._built.values()), {}
        failures = []
        for agent in built:
            try:
                await agent.aclose()
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]


def load_pool(settings: Settings) -> Pool:
    """The pool of `settings.pool`, or the embedded one when that is None. Raises PoolError; see the module."""
    if settings.pool is None:
        return Pool(embedded_specs())
    return Pool(read_pool(settings.pool))


def read_pool(path: Path) -> tuple[AgentSpec, ...]:
    """The enabled specs of the file at `path`, in order. Raises PoolError naming the file, the entry and the fix."""
    document = _parsed(path)
    surplus = [name for name in document if name != "agents"]
    entries = document.get("agents")
    if surplus:
        raise PoolError(f"{path}: unknown entry {surplus[0]!r}. Only [[agents]] may stand in a pool file.")
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise PoolError(
            f"{path}: there is no [[agents]] entry (mind the two pairs of brackets). Add one, or remove "
            "the file to use the embedded pool."
        )
    specs: list[AgentSpec] = []
    for number, entry in enumerate(entries, 1):
        try:
            spec = _spec(entry)
            twin = next((i for i, s in enumerate(specs, 1) if s.name.casefold() == spec.name.casefold()), None)
            if twin:
                raise PoolError(f"the name {spec.name!r} is already taken by entry {twin}. Choose another one.")
        except PoolError as error:
            raise PoolError(f"{path}, entry {number}: {error}") from None
        specs.append(spec)
    enabled = tuple(spec for spec in specs if spec.enabled)
    if not enabled:
        raise PoolError(f"{path}: no agent is enabled. Set enabled = true for at least one of them.")
    return enabled


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise PoolError(
            f"{path} cannot be read ({error.strerror or error}). Check the path and its permissions."
        ) from None
    except UnicodeDecodeError as error:
        raise PoolError(f"{path} is not UTF-8 (byte {error.start}). Save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise PoolError(f"{path} is not valid TOML: {wire.redact(str(error))}. Correct that line.") from None
    except RecursionError:
        raise PoolError(f"{path} is nested too deeply. Write it as in the documentation of the pool file.") from None


def _spec(entry: Mapping[str, Any]) -> AgentSpec:
    """One entry as a spec. Raises PoolError without file and number."""
    _refuse_keys(entry)
    for name, value in entry.items():
        wanted = _FIELDS.get(name)
        if wanted is None:
            raise PoolError(f"unknown field {name!r}.{_close(name, _FIELDS)} Known: {', '.join(_FIELDS)}.")
        if not isinstance(value, wanted):
            raise PoolError(f"{name} must be {_IN_WORDS[wanted]}, not {value!r}.")
    for name in ("name", "kind"):
        if not entry.get(name):
            raise PoolError(f'{name} is missing. Add {name} = "...".')
    spec = AgentSpec(**entry)
    if not _NAME.fullmatch(spec.name):
        raise PoolError(
            f"the name {spec.name!r} does not fit. Use 1 to 64 letters, digits, dots, hyphens and underscores, "
            "beginning with a letter or digit."
        )
    if spec.name.casefold() in RESERVED:
        raise PoolError(f"the name {spec.name!r} is reserved. Choose another one.")
    if spec.kind not in KINDS:
        raise PoolError(_unknown_kind(spec.kind))
    KINDS[spec.kind].check(spec)
    return spec


def _unknown_kind(kind: str) -> str:
    return f"unknown kind {kind!r}.{_close(kind, KINDS)} Known kinds: {', '.join(KINDS)}."


def _close(word: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(word.lower(), known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _refuse_keys(entry: Mapping[str, Any]) -> None:
    """Raise PoolError when anything in `entry` looks like a credential. The message does not repeat it."""
    if wire.drop_secrets(entry) != entry or _holds_key(entry):
        raise PoolError(
            "it seems to hold a key or password. Remove it: keys are read from the environment, never from this file."
        )


def _holds_key(value: Any) -> bool:
    if isinstance(value, str):
        return wire.redact(value) != value
    if isinstance(value, Mapping):
        return any(_holds_key(part) for pair in value.items() for part in pair)
    return isinstance(value, list) and any(_holds_key(part) for part in value)
