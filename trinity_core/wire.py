"""The JSON edge: how records leave and enter Python, for JSONL, the API, the database and checkpoints.

One serialiser serves everybody, so that a hash made by the writer equals the one made by the reader. Output is
strict JSON: NaN and infinities become null, unpaired surrogates become U+FFFD, bytes become base64.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import json
import math
import re
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar
from urllib.parse import quote

import uuid_utils
from pydantic import TypeAdapter, ValidationError

from trinity_core.errors import InputError
from trinity_core.types import AnyEvent, AnyJobEvent, AnyRunEvent

T = TypeVar("T")

_SURROGATES = re.compile("[\ud800-\udfff]")
_SECRET_NAME = re.compile(
    r"(?i)^(x[-_]?)?(api[-_]?key|apikey|key[-_]?secret|secret([-_]?key)?|client[-_]?secret|password|passwd"
    r"|authorization|proxy[-_]?authorization|auth([-_]?token)?|access[-_]?token|refresh[-_]?token|bearer"
    r"|x[-_]goog[-_]api[-_]key|cookie|set[-_]cookie|credentials?|private[-_]?key|token)$"
)
_SECRET_SHAPE = re.compile(
    r"\b(sk-[A-Za-z0-9_\-]{8,}|AIza[A-Za-z0-9_\-]{8,}|gsk_[A-Za-z0-9]{8,}|xai-[A-Za-z0-9]{8,}|hf_[A-Za-z0-9]{8,}"
    r"|gh[pousr]_[A-Za-z0-9]{16,}|AKIA[A-Z0-9]{12,}|tgp_v1_[A-Za-z0-9_\-]{8,})"
)
_SECRET_HEADER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=\-]{8,}")
_SECRET_QUERY = re.compile(r"(?i)([?&](?:key|api_key|apikey|token|access_token|secret)=)[^&\s\"']+")
REDACTED = "[redacted]"
_NO_KEYS = frozenset(("ollama", "lm-studio", "not-needed", "no-key-required", "placeholder"))
_known: set[str] = set()
"""Keys that this process was given, so that they are taken out of any text whatever their shape."""


def new_id() -> str:
    """A UUIDv7 as text: sorts by creation time, and cannot be guessed."""
    return str(uuid_utils.uuid7())


def clean_text(text: str) -> str:
    """`text` with unpaired surrogates replaced by U+FFFD, so that it encodes as UTF-8 everywhere."""
    return _SURROGATES.sub("\ufffd", text)


def remember_secret(value: str) -> None:
    """From now on `redact` takes `value` out of every text, also as a URL, JSON, HTML or Python writes it. Shorter
    than six characters it is left alone: so short a text occurs by chance; likewise what local servers tell people to
    give where no key is needed."""
    if len(value) < 6 or value.lower() in _NO_KEYS:
        return
    exact = clean_text(value)
    python = (repr(value)[1:-1], repr(exact.encode())[2:-1])
    urls = (quote(exact), quote(exact, safe=""))
    _known.update((value, json.dumps(value)[1:-1], html.escape(value), html.escape(value, False), *python, *urls))


def redact(text: str) -> str:
    """`text` without any key this process was given, and without anything shaped like a key, a bearer token or a key
    in a URL's query."""
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    text = _SECRET_QUERY.sub(rf"\1{REDACTED}", text)
    text = _SECRET_HEADER.sub(rf"\1 {REDACTED}", text)
    return _SECRET_SHAPE.sub(REDACTED, text)


def drop_secrets(value: Any) -> Any:
    """A copy of a JSON value without members whose name says that they hold a credential, at any depth."""
    if isinstance(value, Mapping):
        return {k: drop_secrets(v) for k, v in value.items() if not _SECRET_NAME.match(str(k).strip())}
    if isinstance(value, list | tuple):
        return [drop_secrets(v) for v in value]
    return value


def plain(value: Any) -> Any:
    """`value` as JSON types only. Dataclasses become objects, enums their values, bytes base64.

    Raises TypeError for anything else that JSON cannot hold.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {clean_text(str(k)): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if hasattr(value, "item") and hasattr(value, "dtype"):  # NumPy scalar
        return plain(value.item())
    raise TypeError(f"{type(value).__name__} has no JSON form")


def canonical(value: Any) -> str:
    """The one text form of a JSON value: sorted keys, no blanks, UTF-8 characters as they are."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """SHA-256 of `canonical(value)`, in hexadecimal."""
    return hashlib.sha256(canonical(value).encode("utf-8")).hexdigest()


def line(value: Any) -> str:
    """`value` as one line of JSONL, without the newline. ASCII only, so that no reader splits it elsewhere."""
    return json.dumps(plain(value), separators=(",", ":"), ensure_ascii=True, allow_nan=False)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def record(kind: type[T], value: Any) -> T:
    """The dataclass `kind` from JSON values made by `plain`. Raises InputError naming the first bad field."""
    try:
        made: T = _adapter(kind).validate_python(value)  # type: ignore[arg-type]
        return made
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "value"
        raise InputError(f"{kind.__name__}: {where}: {first['msg']}") from None


def event(value: Mapping[str, Any]) -> AnyEvent:
    """The event that `plain` turned into `value`. Raises InputError when it is none."""
    family = AnyRunEvent if "run_id" in value else AnyJobEvent
    name = value.get("event")
    kind = next((k for k in family.__args__ if k.__dataclass_fields__["event"].default == name), None)
    if kind is None:
        raise InputError(f"unknown event {name!r}")
    fields = dict(value)
    if isinstance(fields.get("hidden"), str):
        fields["hidden"] = base64.b64decode(fields["hidden"])
    made: AnyEvent = record(kind, fields)
    return made
