"""Writing the pool file: whole or not at all, with the comments that somebody put into it.

What is written is read back first, so a file that `read_pool_file` would refuse, or read as something else, never
takes the place of a good one. Comments stay with the members they stand in, by name; where a file cannot be carried
over exactly, it is written afresh. No key is ever written: anything that looks like one is a PoolError.

Not covered: two programs that write the same file at once; the later one wins, whole.
"""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Table

from trinity_core import wire
from trinity_core.agents.pool import PoolFile, read_pool_file, spec_of
from trinity_core.errors import PoolError
from trinity_core.types import AgentSpec, Limits

_HEAD = (
    "The pool of Trinity: its members in order. Written by the Pool tab; you may edit it too.\n"
    "Keys do not belong here: key_env names the environment variable that holds one."
)

_GAP = re.compile(r"\n{3,}")


def write_pool(path: Path, file: PoolFile) -> None:
    """Make `path` say what `file` says, atomically.

    Raises PoolError when a member is not valid, something looks like a key, or the file cannot be written.
    """
    wanted = document_of(file)
    for entry in wanted["agents"]:
        spec_of(entry)
    text = _carried(path, wanted) or _fresh(wanted)
    if wire.redact(text) != text:
        raise PoolError(
            f"{path} is not written: it would hold a key or password, perhaps in a comment. Remove it; keys are "
            "typed into the key field or put into the environment."
        )
    _replace(path, text, file)


def kept_copy(path: Path, expected: PoolFile | None) -> Path | None:
    """Put what stands at `path` aside, unless it says what `expected` says or nothing stands there.

    The copy's path, `pool.toml.1` and so on, or None. To be called before a pool from elsewhere takes its place.
    Raises PoolError when it cannot be copied.
    """
    if not path.exists():
        return None
    try:
        if expected is not None and read_pool_file(path) == expected:
            return None
    except PoolError:
        pass  # unreadable for us, but somebody's work
    try:
        data = path.read_bytes()
        for number in range(1, 1000):
            copy = path.with_name(f"{path.name}.{number}")
            try:
                with copy.open("xb") as out:
                    out.write(data)
                return copy
            except FileExistsError:
                continue
    except OSError as error:
        raise PoolError(f"{path} cannot be put aside ({error.strerror or error}). Move it away yourself.") from None
    raise PoolError(f"There are too many copies beside {path}. Delete those that you do not need.")


def document_of(file: PoolFile) -> dict[str, Any]:
    """The pool file as TOML values; what has its default is left out."""
    budget = {name: limits for name in ("run", "day") if (limits := _limits(getattr(file, name)))}
    return {**({"budget": budget} if budget else {}), "agents": [entry_of(spec) for spec in file.specs]}


def entry_of(spec: AgentSpec) -> dict[str, Any]:
    """One member as an entry of the pool file, such as `spec_of` reads."""
    entry: dict[str, Any] = {"name": spec.name, "kind": spec.kind}
    for name in ("model", "base_url", "key_env", "description"):
        if value := getattr(spec, name):
            entry[name] = value
    if not spec.enabled:
        entry["enabled"] = False
    for name in ("options", "service"):
        if table := getattr(spec, name):
            entry[name] = wire.plain(table)
    return entry


def _limits(limits: Limits) -> dict[str, Any]:
    return {name: value for name in ("calls", "tokens", "cost") if (value := getattr(limits, name)) is not None}


# --- Text ---------------------------------------------------------------------------------------------------


def _fresh(wanted: Mapping[str, Any]) -> str:
    document = tomlkit.document()
    for line in _HEAD.splitlines():
        document.add(tomlkit.comment(line))
    document.add(tomlkit.nl())
    try:
        _merge(document, wanted)
        return tomlkit.dumps(document)
    except (TypeError, ValueError, TOMLKitError):
        raise PoolError(
            "An option holds a value that TOML cannot hold, such as null. Leave that option out."
        ) from None


def _carried(path: Path, wanted: Mapping[str, Any]) -> str | None:
    """The file at `path` with its comments, saying what is `wanted`; None when that does not come out exactly."""
    try:
        document = tomlkit.parse(path.read_bytes().decode("utf-8-sig"))
        _merge(document, wanted)
        text = tomlkit.dumps(document)
        for shown in (_GAP.sub("\n\n", text), text):  # moved tables bring blank lines; a long text may need its own
            if tomllib.loads(shown) == wanted:
                return shown
        return None
    except (OSError, UnicodeDecodeError, TOMLKitError, tomllib.TOMLDecodeError, RecursionError):
        return None
    except (AttributeError, KeyError, TypeError, ValueError):  # tomlkit's own trouble with an unusual layout
        return None


def _merge(document: Any, wanted: Mapping[str, Any]) -> None:
    """Make `document` equal `wanted`, keeping the tables that are there."""
    old = document.get("agents")
    known = {str(t.get("name")): t for t in old.body} if isinstance(old, AoT) else {}
    if "agents" in document:
        document.remove("agents")
    if "budget" in wanted:
        if not isinstance(document.get("budget"), Table):
            document["budget"] = tomlkit.table(is_super_table=True)
        _fill(document["budget"], wanted["budget"])
    elif "budget" in document:
        document.remove("budget")
    agents = tomlkit.aot()
    for entry in wanted["agents"]:
        table = known.pop(entry["name"], None)
        if table is None:
            table = tomlkit.table()
        _fill(table, entry)
        agents.append(table)
    document["agents"] = agents


def _fill(table: Any, wanted: Mapping[str, Any]) -> None:
    for name in [name for name in table if name not in wanted]:
        table.remove(name)
    for name, value in wanted.items():
        there = table.get(name)
        if isinstance(value, dict) and isinstance(there, Table):
            _fill(there, value)
        elif there != value or isinstance(there, bool) != isinstance(value, bool):
            table[name] = value


# --- The file -----------------------------------------------------------------------------------------------


def _replace(path: Path, text: str, file: PoolFile) -> None:
    try:
        target = path.resolve()  # a link stays a link
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".pool-", suffix=".toml")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(text.encode("utf-8"))
                out.flush()
                os.fsync(out.fileno())
            if read_pool_file(temporary) != file:
                raise PoolError(f"{path} is not written: a value in it cannot be written as TOML. Simplify it.")
            if target.exists():
                temporary.chmod(target.stat().st_mode & 0o777)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise PoolError(
            f"{path} cannot be written ({error.strerror or error}). Free some space or fix its permissions; the pool "
            "is as it was."
        ) from None
