"""The pool: which agents exist, in which order, read from `pool.toml` or, without that file, the embedded four.

    [budget.run]                # optional. A call that could exceed a limit is not made
    calls = 20                  # likewise tokens, and cost in dollars
    [budget.day]                # the same for all remote calls of a calendar day
    cost = 2.5

    [[agents]]
    name = "gpt"                # letters, digits, . _ - (at most 64); it labels the agent's turns
    kind = "openai"             # see KINDS below
    base_url = "https://api.openai.com/v1"      # remote kinds; default: the provider's own
    model = "gpt-5.5"           # the provider's name; kind gguf: the file; kind transformers: the folder or id
    key_env = "OPENAI_API_KEY"  # the environment variable that holds the key
    description = "A frontier model"
    enabled = true              # default
    [agents.options]            # what shapes a reply; each kind has its own, see openai.py, local.py, ...
    effort = "low"
    [agents.service]            # how calls are made: time limits, rates, price; see service.py
    concurrency = 4

The order of the entries is the order of the pool. A disabled entry is checked but takes no part.

Invariants: names are unique whatever their case; `trinity` (the whole system as a model of the API) and `any` (a
Thinker's word for no agent in particular) are no names. No key is accepted anywhere in the file: specs are kept with
every run and shown in the page. Agents are built on first use, so reading a pool loads no model and imports no
solver. Every problem is a PoolError that names the file, the entry and the fix.

Not covered: writing the file (`poolfile`), and watching it for changes. The pool of the paper (section 4) is seven
remote models.
"""

from __future__ import annotations

import asyncio
import importlib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from trinity_core import wire
from trinity_core.agents import prices
from trinity_core.agents.base import Agent, Wiring
from trinity_core.agents.keys import Keys
from trinity_core.agents.meter import Meter
from trinity_core.agents.remote.formats import Format
from trinity_core.config import Settings, secret_from
from trinity_core.errors import PoolError, did_you_mean
from trinity_core.types import AgentSpec, Limits

RESERVED = ("trinity", "any")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FIELDS = {
    "name": str,
    "kind": str,
    "description": str,
    "enabled": bool,
    "model": str,
    "base_url": str,
    "key_env": str,
    "options": dict,
    "service": dict,
}
_IN_WORDS = {str: "a text in quotes", bool: "true or false", dict: "a table ([agents.options])"}
_FORMATS = {
    "openai": ("trinity_core.agents.remote.openai", "OPENAI"),
    "anthropic": ("trinity_core.agents.remote.anthropic", "ANTHROPIC"),
    "gemini": ("trinity_core.agents.remote.gemini", "GEMINI"),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of agent. `check` looks at a spec without building anything and raises PoolError; `build` imports
    what it needs only when it is called. `remote`: it is called over the network, in a wire format of that name."""

    build: Callable[[AgentSpec, Wiring], Agent]
    check: Callable[[AgentSpec], None]
    remote: bool = False


def format_of(kind: str) -> Format:
    """The wire format of a remote kind. Raises PoolError for any other."""
    if kind not in _FORMATS:
        raise PoolError(f"Kind {kind} is not called over the network. Remote kinds: {', '.join(_FORMATS)}.")
    module, name = _FORMATS[kind]
    found: Format = getattr(importlib.import_module(module), name)
    return found


def _build_local(spec: AgentSpec, wiring: Wiring) -> Agent:
    from trinity_core.agents.local import LlamaAgent

    return LlamaAgent(spec)


def _check_local(spec: AgentSpec) -> None:
    from trinity_core.agents.local import LlamaOptions, weights

    _is_local(spec)
    LlamaOptions.read(spec)
    if spec.kind == "smollm2":
        if spec.model is not None:
            raise PoolError(f'Agent {spec.name}: kind smollm2 takes no model. Use kind = "gguf" for another file.')
    elif spec.enabled or not spec.model:
        weights(spec)


def _build_specialist(spec: AgentSpec, wiring: Wiring) -> Agent:
    from trinity_core.agents.specialists import specialist

    return specialist(spec)


def _check_specialist(spec: AgentSpec) -> None:
    _is_local(spec)
    if spec.model is not None or spec.options:
        surplus = "model" if spec.model is not None else "options"
        raise PoolError(f"Agent {spec.name}: kind {spec.kind} takes no {surplus}. Remove it.")


def _build_hf(spec: AgentSpec, wiring: Wiring) -> Agent:
    from trinity_core.agents import hf

    return hf.build(spec, wiring)


def _check_hf(spec: AgentSpec) -> None:
    from trinity_core.agents import hf

    _is_local(spec)
    hf.check(spec)


def _is_local(spec: AgentSpec) -> None:
    for name in ("base_url", "key_env", "service"):
        if getattr(spec, name):
            raise PoolError(
                f"Agent {spec.name}: kind {spec.kind} runs on this machine and takes no {name}. Remove it, or "
                f"choose one of the kinds {', '.join(_FORMATS)}."
            )


def _build_remote(spec: AgentSpec, wiring: Wiring) -> Agent:
    from trinity_core.agents.remote.agent import RemoteAgent

    return RemoteAgent(spec, format_of(spec.kind), wiring)


def _check_remote(spec: AgentSpec) -> None:
    from trinity_core.agents.remote.net import check_url
    from trinity_core.agents.remote.service import Service

    form = format_of(spec.kind)
    if not spec.model:
        raise PoolError(f'Agent {spec.name}: model is missing. Add model = "...", as the provider calls it.')
    base_url = spec.base_url or form.default_base_url
    if not base_url:
        raise PoolError(f'Agent {spec.name}: base_url is missing. Add base_url = "http://...", often ending in /v1.')
    try:
        check_url(base_url)
    except PoolError as error:
        raise PoolError(f"Agent {spec.name}: {error}") from None
    if spec.key_env is not None and (not _VARIABLE.fullmatch(spec.key_env) or _is_a_key(spec.key_env)):
        raise PoolError(
            f"Agent {spec.name}: key_env must be the name of an environment variable, for example OPENAI_API_KEY, "
            "not the key itself."
        )
    form.check(spec)
    Service.read(spec)


_LOCAL = Kind(_build_local, _check_local)
_SPECIALIST = Kind(_build_specialist, _check_specialist)
_REMOTE = Kind(_build_remote, _check_remote, remote=True)
KINDS: Mapping[str, Kind] = {
    "smollm2": _LOCAL,
    "symbolic": _SPECIALIST,
    "lexical": _SPECIALIST,
    "calendar": _SPECIALIST,
    "gguf": _LOCAL,
    "transformers": Kind(_build_hf, _check_hf),
    **{name: _REMOTE for name in _FORMATS},
}
"""Every kind of agent by name: the embedded four, local models (a GGUF file, a transformers model), and remote ones
by wire format."""


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


@dataclass(frozen=True, slots=True)
class PoolFile:
    """What a pool file says: every member in order, disabled ones too, and what a run and a day may spend.

    Raises PoolError when there is no member, none is enabled, a kind is unknown or a name occurs twice."""

    specs: tuple[AgentSpec, ...]
    run: Limits = field(default_factory=Limits)
    day: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.specs:
            raise PoolError("The pool has no agent. Add one, or go back to the embedded pool.")
        seen: dict[str, int] = {}
        for number, spec in enumerate(self.specs, 1):
            if spec.kind not in KINDS:
                raise PoolError(f"Agent {spec.name}: {_unknown_kind(spec.kind)}")
            if (twin := seen.setdefault(spec.name.casefold(), number)) != number:
                raise PoolError(
                    f"entry {number}: the name {spec.name!r} is already taken by entry {twin}. Choose another one."
                )
        if not self.enabled:
            raise PoolError("no agent is enabled. Set enabled = true for at least one of them.")

    @property
    def enabled(self) -> tuple[AgentSpec, ...]:
        return tuple(spec for spec in self.specs if spec.enabled)


class Pool:
    """The enabled agents in order. Built agents are kept until `aclose`."""

    def __init__(self, specs: tuple[AgentSpec, ...], wiring: Wiring | None = None) -> None:
        """Raises PoolError as `PoolFile` does. Without `wiring` remote members count no spending."""
        self._specs = PoolFile(specs).specs
        self._wiring = wiring or Wiring(Keys(), Meter())
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
                self._built[name] = KINDS[spec.kind].build(spec, self._wiring)
            return self._built[name]

    def resting(self) -> dict[str, str]:
        """Members that must not be called for a while because they failed too often, with the reason."""
        breakers = self._wiring.breakers
        return {
            name: reason
            for name in self.names
            if name in self._built and name in breakers and (reason := breakers[name].reason()) is not None
        }

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


class Roster:
    """The pool in use, which may be exchanged while runs go on: a run keeps the pool that it began with, and a pool
    that was replaced is closed when its last run has ended."""

    def __init__(self, file: PoolFile, wiring: Wiring | None = None) -> None:
        self.wiring = wiring or Wiring(Keys(), Meter())
        self._lock = Lock()
        self._leases: dict[Pool, int] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._set(file)

    def _set(self, file: PoolFile) -> None:
        if any(KINDS[spec.kind].remote for spec in file.enabled):
            prices.warm()
        self.file = file
        self.wiring.meter.day = file.day
        self._pool = Pool(file.enabled, self.wiring)

    @property
    def names(self) -> tuple[str, ...]:
        return self._pool.names

    @property
    def specs(self) -> tuple[AgentSpec, ...]:
        return self._pool.specs

    @property
    def limits(self) -> Limits:
        """What one run may spend."""
        return self.file.run

    def agent(self, name: str) -> Agent:
        return self._pool.agent(name)

    def resting(self) -> dict[str, str]:
        return self._pool.resting()

    @contextmanager
    def lease(self) -> Iterator[Pool]:
        """The pool of now, which stays open until this context ends. Enter and leave it on an event loop."""
        with self._lock:
            pool = self._pool
            self._leases[pool] = self._leases.get(pool, 0) + 1
        try:
            yield pool
        finally:
            with self._lock:
                self._leases[pool] -= 1
                left = self._leases[pool] or pool is self._pool
                if not self._leases[pool]:
                    del self._leases[pool]
            if not left:
                closing = asyncio.get_running_loop().create_task(pool.aclose())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    async def replace(self, file: PoolFile) -> None:
        """Use the pool of `file` from the next run on."""
        with self._lock:
            old = self._pool
            self._set(file)
            busy = old in self._leases
        self.wiring.breakers.clear()
        if not busy:
            await old.aclose()

    async def aclose(self) -> None:
        await self._pool.aclose()


def load_pool(settings: Settings) -> PoolFile:
    """The pool of `settings.pool`, or the embedded one when that is None. Raises PoolError; see the module."""
    if settings.pool is None:
        return PoolFile(embedded_specs())
    return read_pool_file(settings.pool)


def read_pool_file(path: Path) -> PoolFile:
    """The pool of the file at `path`. Raises PoolError naming the file, the entry and the fix."""
    document = _parsed(path)
    entries = document.get("agents")
    for name in document:
        if name not in ("agents", "budget"):
            raise PoolError(
                f"{path}: unknown entry {name!r}.{did_you_mean(name, ('agents', 'budget'))} Only [[agents]] and "
                "[budget] may stand in a pool file."
            )
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise PoolError(
            f"{path}: there is no [[agents]] entry (mind the two pairs of brackets). Add one, or remove "
            "the file to use the embedded pool."
        )
    specs: list[AgentSpec] = []
    for entry in entries:
        _learn_key(entry)
    for number, entry in enumerate(entries, 1):
        try:
            specs.append(spec_of(entry))
        except PoolError as error:
            raise PoolError(f"{path}, entry {number}: {error}") from None
    try:
        run, day = _budget(document.get("budget", {}))
        return PoolFile(tuple(specs), run, day)
    except PoolError as error:
        raise PoolError(f"{path}: {error}") from None


def _budget(table: Any) -> tuple[Limits, Limits]:
    if not isinstance(table, dict) or not all(isinstance(part, dict) for part in table.values()):
        raise PoolError("the budget must be written as [budget.run] and [budget.day].")
    for name in table:
        if name not in ("run", "day"):
            raise PoolError(f"unknown budget {name!r}.{did_you_mean(name, ('run', 'day'))} Known: run, day.")
    return limits_of(table.get("run", {}), "run"), limits_of(table.get("day", {}), "day")


def limits_of(table: Mapping[str, Any], what: str) -> Limits:
    """The budget of a run or a day from calls, tokens and cost (dollars), each optional. Raises PoolError."""
    known = ("calls", "tokens", "cost")
    for name, value in table.items():
        if name not in known:
            near = did_you_mean(name, known)
            raise PoolError(f"unknown limit {name!r} in budget.{what}.{near} Known: {', '.join(known)}.")
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not (whole or (name == "cost" and isinstance(value, float))) or not 0 <= value < 2**53:
            kind = "a number of dollars" if name == "cost" else "a whole number"
            raise PoolError(f"{name} in budget.{what} must be {kind} of 0 or more, not {value!r}.")
    cost = table.get("cost")
    return Limits(table.get("calls"), table.get("tokens"), None if cost is None else float(cost))


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


def spec_of(entry: Mapping[str, Any]) -> AgentSpec:
    """One entry of a pool file as a spec, checked as far as that goes without calling anybody. Raises PoolError."""
    _learn_key(entry)
    _refuse_keys(entry)
    for name, value in entry.items():
        wanted = _FIELDS.get(name)
        if wanted is None:
            raise PoolError(f"unknown field {name!r}.{did_you_mean(name, _FIELDS)} Known: {', '.join(_FIELDS)}.")
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
    return f"unknown kind {kind!r}.{did_you_mean(kind, KINDS)} Known kinds: {', '.join(KINDS)}."


def _learn_key(entry: Mapping[str, Any]) -> None:
    """Let redaction know the key that an entry names before anything of the file is looked at, kept or told."""
    if isinstance(name := entry.get("key_env"), str) and _VARIABLE.fullmatch(name):
        secret_from(name)


def _is_a_key(name: str) -> bool:
    """Whether the name of a variable that is not set looks like a key: words hold no digits at that length."""
    odd = any(
        len(part) >= 16 and re.search("[0-9]", part) and re.search("[A-Za-z]", part) for part in name.split("_")
    )
    return odd and secret_from(name) is None


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
