"""The OpenAI chat format, `POST {base}/chat/completions`: kind `openai`, for every server that speaks it.

What differs between servers stands in `servers.py`. Options of a member, all of which may be left out:

    server            one of servers.SERVERS; without it the base URL tells
    effort            reasoning effort, one of servers.EFFORTS; every model takes only some of them. Without it the
                      lowest, where that is safe (see `servers.py`)
    max_tokens        most tokens of one reply; the smaller of it and the request's holds
    temperature, top_p, seed   sampling; what the request sets counts more
    stop              texts that end the reply; four are sent, all of them are cut here
    max_tokens_field  max_tokens or max_completion_tokens
    system_role       system, developer or user (put before the first user message)
    drop_params       body fields to leave out, by name
    extra_body        further body fields, put in last

Invariants: nothing is sent that is not set, except the output cap, `stream` and `stream_options`. System messages
become one first message. OpenAI's reasoning models get no temperature and no top_p while they reason, since they
refuse them. How the answer is read stands in `openai_answer.py`.
Not covered: tools, pictures, several choices (n), log probabilities, and the Responses API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from trinity_core import wire
from trinity_core.agents.remote import faults
from trinity_core.agents.remote.formats import Call, Format, Reader
from trinity_core.agents.remote.openai_answer import OpenAIReader, first, prompt_estimate
from trinity_core.agents.remote.servers import (
    EFFORT_FIELDS,
    EFFORTS,
    SERVERS,
    endpoint,
    server_at,
    server_of,
    with_version,
)
from trinity_core.errors import AgentError, PoolError, did_you_mean
from trinity_core.types import AgentSpec, Message, Request

__all__ = ["OPENAI", "OpenAIOptions", "prompt_estimate"]

_CAPS = ("max_tokens", "max_completion_tokens")
_OWN = ("model", "messages", "stream")
_OTHER_MODELS = ("image", "embedding", "audio", "video", "moderation", "rerank", "transcribe")
"""Types of models in a list that do not chat."""


# --- Options -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenAIOptions:
    """The options of a member; see the module's docstring."""

    server: str | None = None
    effort: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    max_tokens_field: str | None = None
    system_role: str | None = None
    drop_params: tuple[str, ...] = ()
    extra_body: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, spec: AgentSpec) -> OpenAIOptions:
        """The options of `spec`. Raises PoolError for an unknown one or a value that does not fit."""
        known = [field.name for field in fields(cls)]
        for name, value in spec.options.items():
            if name not in known:
                raise PoolError(
                    f"Agent {spec.name}: unknown option {name!r}.{did_you_mean(name, known)} Known: "
                    f"{', '.join(known)}."
                )
            problem = _problem(name, value)
            if problem:
                raise PoolError(f"Agent {spec.name}: option {name} {problem}")
        made: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in spec.options.items()
        }
        return cls(**made)


_CHOICES = {
    "server": tuple(SERVERS),
    "effort": EFFORTS,
    "max_tokens_field": _CAPS,
    "system_role": ("system", "developer", "user"),
}
_NUMBERS = {"temperature": 2.0, "top_p": 1.0}


def _problem(name: str, value: Any) -> str | None:
    """What is wrong with the value of an option, as the end of a sentence."""
    if name in _CHOICES:
        choices = _CHOICES[name]
        if value in choices:
            return None
        near = did_you_mean(value, choices) if isinstance(value, str) else ""
        return f"must be one of {', '.join(choices)}, not {value!r}.{near}"
    if name in _NUMBERS:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _NUMBERS[name]
        return None if fits else f"must be a number from 0 to {_NUMBERS[name]:g}, not {value!r}."
    if name in ("max_tokens", "seed"):
        fits = isinstance(value, int) and not isinstance(value, bool) and (name == "seed" or value > 0)
        return None if fits else f"must be a whole number{'' if name == 'seed' else ' above 0'}, not {value!r}."
    if name == "extra_body":
        return _surplus(value)
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) and text for text in value):
        return f'must be a list of texts, such as ["END"], not {value!r}.'
    held = [text for text in value if name == "drop_params" and text in _OWN]
    return f"may not hold {held[0]!r}: every request needs it." if held else None


def _surplus(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f"must be a table, not {value!r}."
    if wire.drop_secrets(value) != value:
        return "seems to hold a key. Remove it: keys are read from the environment or typed in the Pool tab."
    reserved = {
        **dict.fromkeys(_OWN, "the request itself"),
        **dict.fromkeys(_CAPS, "the option max_tokens"),
        "n": "nothing: a reply is one text",
    }
    found = next((name for name in value if name in reserved), None)
    return f"may not hold {found!r}. That is set by {reserved[found]}." if found else None


# --- The request -------------------------------------------------------------------------------------------------


def _messages(messages: Sequence[Message], role: str) -> list[dict[str, str]]:
    """The messages as sent: system texts first and as one, because strict chat templates take no other order."""
    system = "\n\n".join(m.content for m in messages if m.role == "system" and m.content.strip())
    rest = [{"role": m.role, "content": wire.clean_text(m.content)} for m in messages if m.role != "system"]
    if not system:
        return rest
    system = wire.clean_text(system)
    if role != "user":
        return [{"role": role, "content": system}, *rest]
    asked = next((m for m in rest if m["role"] == "user"), None)
    if asked is None:
        return [{"role": "user", "content": system}, *rest]
    asked["content"] = f"{system}\n\n{asked['content']}"
    return rest


def _cap(field: str, dropped: frozenset[str], refused: frozenset[str]) -> str | None:
    """The name under which the output cap is sent. A server that refuses one name gets the other."""
    if field in dropped:
        return None
    if field not in refused:
        return field
    other = _CAPS[1 - _CAPS.index(field)]
    return None if other in refused | dropped else other


def _body(request: Request, options: OpenAIOptions, drop: frozenset[str]) -> dict[str, Any]:
    spec, sampling, server = request.agent, request.sampling, server_of(request.agent)
    effort = sampling.effort or options.effort or server.lowest_effort(spec.model)
    no_effort = bool(EFFORT_FIELDS & drop) or not EFFORT_FIELDS.isdisjoint(options.drop_params)
    dropped = frozenset(options.drop_params) | server.refused(spec.model, None if no_effort else effort)
    optional: dict[str, Any] = {
        "temperature": first(sampling.temperature, options.temperature),
        "top_p": first(sampling.top_p, options.top_p),
        "seed": first(sampling.seed, options.seed),
        "stop": list(options.stop[: server.stops]) or None,
        "stream_options": {"include_usage": True},
        **(server.effort_fields(effort) if effort and not no_effort else {}),
    }
    cap = _cap(options.max_tokens_field or server.max_tokens_field, dropped, drop)
    if cap:
        optional[cap] = min(sampling.max_tokens, options.max_tokens or sampling.max_tokens)
    sent = {name: value for name, value in optional.items() if value is not None and name not in dropped}
    # A member's own extra fields count more than drop_params, but less than what the server was found to refuse.
    sent = {name: value for name, value in {**sent, **(options.extra_body or {})}.items() if name not in drop}
    role = options.system_role or server.system_role
    return {"model": spec.model, "messages": _messages(request.messages, role), "stream": True, **sent}


class _OpenAI:
    """`Format` of the OpenAI family. Stateless."""

    kind = "openai"
    default_base_url: str | None = SERVERS["openai"].base_url

    def check(self, spec: AgentSpec) -> None:
        """Raises PoolError when the options, the model or the base URL of `spec` do not fit."""
        OpenAIOptions.read(spec)
        if not spec.model:
            raise PoolError(f'Agent {spec.name}: kind openai needs model = "…", a name from the server\'s list.')
        server = server_of(spec)
        if spec.base_url is None and server.base_url != self.default_base_url:
            example = server.base_url or "http://…/v1"
            raise PoolError(f'Agent {spec.name}: server {server.name} needs base_url = "{example}".')

    def call(self, request: Request, key: str | None, *, drop: frozenset[str] = frozenset()) -> Call:
        """The streaming request. Raises PoolError as `check` does, and AgentError of kind auth when the server
        needs a key and there is none."""
        spec = request.agent
        self.check(spec)
        server, base_url = server_of(spec), spec.base_url or str(self.default_base_url)
        if not key and server.needs_key and server_at(base_url) is server:
            name = spec.key_env or server.key_env[0]
            raise AgentError(
                f"{server.label} needs a key and none is set for {spec.name}. Set {name} in the environment, or type "
                "the key in the Pool tab.",
                kind="auth",
                calls=0,
            )
        body = _body(request, OpenAIOptions.read(spec), drop)
        url = endpoint(with_version(base_url, server), "/chat/completions")
        return Call(url, _headers(key), body)

    def reader(self, request: Request) -> Reader:
        return OpenAIReader(request, server_of(request.agent), OpenAIOptions.read(request.agent).stop)

    def fault(self, status: int, headers: Mapping[str, str], body: bytes) -> AgentError:
        return faults.fault(status, headers, body, provider="the server")

    def models_call(self, base_url: str, key: str | None) -> Call:
        return Call(endpoint(with_version(base_url), "/models"), _headers(key))

    def model_names(self, body: Any) -> tuple[str, ...]:
        if isinstance(body, Mapping):
            body = next((body[name] for name in ("data", "models") if isinstance(body.get(name), list)), ())
        return tuple(dict.fromkeys(_model_names(body)))


def _headers(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _model_names(entries: Any) -> Iterator[str]:
    for entry in entries if isinstance(entries, list) else ():
        name = entry
        if isinstance(entry, Mapping):
            if entry.get("type") in _OTHER_MODELS:
                continue
            name = first(entry.get("id"), entry.get("model"), entry.get("name"))
        if isinstance(name, str) and name:
            yield name


OPENAI: Format = _OpenAI()
"""The format of kind `openai`."""
