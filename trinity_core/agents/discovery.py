"""What could join the pool: providers whose key is in the environment, servers on this machine, models of a server.

An `Offer` is a member that lacks at most its model; nothing here adds it. Only the names of environment variables are
told, never their values. Local servers are looked for on the usual ports of this machine alone, all at once, for
about a second; a server that is Trinity itself is not offered.

Not covered: other machines, and servers on ports of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx

from trinity_core import wire
from trinity_core.agents.pool import RESERVED, format_of
from trinity_core.agents.remote import faults, net
from trinity_core.agents.remote.exchange import unreachable
from trinity_core.agents.remote.formats import Call, Format
from trinity_core.agents.remote.servers import SERVERS, Server
from trinity_core.config import secret_from
from trinity_core.errors import AgentError, PoolError
from trinity_core.types import AgentSpec

LOOK_S = 1.5
"""How long a local server may take to answer."""
LIST_S = 20.0
"""How long a server may take to list its models."""
_CONNECT_S = 0.5
_MOST_BYTES = 16 * 2**20  # a router lists some hundreds of models in a few megabytes
_FREE: Mapping[str, Any] = {"price": {"input": 0, "output": 0}}


@dataclass(frozen=True, slots=True)
class Offer:
    """Something that could be a member. `spec.model` is None where one of `models` is still to be chosen; `title` and
    `why` are for the page."""

    spec: AgentSpec
    title: str
    why: str
    models: tuple[str, ...] = ()


_SUGGESTED = {"openai": ("gpt", "gpt-6-sol"), "openrouter": ("router", None)}
"""By known server: what to call its member, and a model to begin with."""
_OTHERS = (
    (AgentSpec("claude", "anthropic", "claude-opus-5-5"), "Anthropic", ("ANTHROPIC_API_KEY",)),
    (AgentSpec("gemini", "gemini", "gemini-3.8-flash"), "Google Gemini", ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
    (AgentSpec("mistral", "openai", base_url="https://api.mistral.ai/v1"), "Mistral", ("MISTRAL_API_KEY",)),
    (AgentSpec("grok", "openai", base_url="https://api.x.ai/v1"), "xAI", ("XAI_API_KEY",)),
    (
        AgentSpec("fireworks", "openai", base_url="https://api.fireworks.ai/inference/v1"),
        "Fireworks",
        ("FIREWORKS_API_KEY",),
    ),
    (AgentSpec("cerebras", "openai", base_url="https://api.cerebras.ai/v1"), "Cerebras", ("CEREBRAS_API_KEY",)),
    (AgentSpec("hf", "openai", base_url="https://router.huggingface.co/v1"), "Hugging Face", ("HF_TOKEN",)),
)
"""Providers with another format, or without peculiarities of their own."""


def found_keys() -> tuple[Offer, ...]:
    """The known providers whose key is in the environment, by the first variable that is set."""
    known = [
        (AgentSpec(name, "openai", model, base_url=server.base_url), server.label, server.key_env)
        for server in SERVERS.values()
        if server.needs_key
        for name, model in (_SUGGESTED.get(server.name, (server.name, None)),)
    ]
    return tuple(
        Offer(replace(spec, key_env=variable, description=f"{title} model"), title, f"{variable} is set")
        for spec, title, variables in (*known[:1], *_OTHERS[:2], *known[1:], *_OTHERS[2:])
        if (variable := _set_one(variables)) is not None
    )


def _set_one(variables: tuple[str, ...]) -> str | None:
    return next((name for name in variables if secret_from(name)), None)


async def local_servers(client: httpx.AsyncClient | None = None) -> tuple[Offer, ...]:
    """The OpenAI-compatible servers that answer on this machine's usual ports. Never raises for one that does not."""
    if client is None:
        async with net.client(connect_s=_CONNECT_S) as client:
            return await local_servers(client)
    found = await asyncio.gather(
        *(_look(client, server) for server in SERVERS.values() if server.port and server.name != RESERVED[0])
    )
    return tuple(offer for offer in found if offer is not None)


async def model_list(spec: AgentSpec, key: str | None) -> tuple[str, ...]:
    """The models that the member's server offers, in its order.

    Raises PoolError for a kind or an address that cannot be asked, AgentError (with a next step, without the key)
    when the server does not answer, refuses, or sends something else than a list.
    """
    form = format_of(spec.kind)
    base_url = spec.base_url or form.default_base_url
    if not base_url:
        raise PoolError("The base URL is missing. Give one, usually ending in /v1, then list the models.")
    net.check_url(base_url)
    try:
        async with net.client(connect_s=10.0) as client:
            return await _models(client, form, form.models_call(base_url, key), LIST_S)
    except (TimeoutError, httpx.TimeoutException):
        raise AgentError(
            f"{base_url} did not list its models within {LIST_S:.0f} seconds. Check the address, or type the model's "
            "name.",
            kind="timeout",
            retryable=True,
        ) from None
    except httpx.ConnectError as error:
        raise unreachable(error, wire.redact(str(error)) or type(error).__name__) from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        said = wire.redact(str(error)) or type(error).__name__
        raise AgentError(
            f"{base_url} cannot be reached ({said}). Check the base URL, and that the server runs.",
            kind="transport",
            retryable=True,
        ) from None


async def _models(client: httpx.AsyncClient, form: Format, call: Call, within_s: float) -> tuple[str, ...]:
    async with asyncio.timeout(within_s):
        status, headers, body = await _get(client, call)
    if status >= 400:
        raise form.fault(status, headers, body)
    names = form.model_names(faults.parse_json(body))
    if not names:
        raise AgentError(
            "The server lists no models. Load or pull one there, check the base URL (it usually ends in /v1), or "
            "type the model's name.",
            kind="protocol",
        )
    return names


async def _get(client: httpx.AsyncClient, call: Call) -> tuple[int, Mapping[str, str], bytes]:
    async with client.stream("GET", call.url, headers=dict(call.headers)) as answer:
        if answer.has_redirect_location:
            raise net.redirected(answer)
        body = bytearray()
        async for chunk in answer.aiter_bytes():
            body += chunk
            if len(body) > _MOST_BYTES:
                raise AgentError("The server's list of models has no end. Type the model's name.", kind="protocol")
        return answer.status_code, answer.headers, bytes(body)


async def _look(client: httpx.AsyncClient, server: Server) -> Offer | None:
    """The server at the usual port of `server` on this machine as an offer; None when none answers as one does."""
    base_url = f"http://127.0.0.1:{server.port}/v1"
    form = format_of("openai")
    models: tuple[str, ...] = ()
    try:
        models = await _models(client, form, form.models_call(base_url, None), LOOK_S)
        why = f"{len(models)} model{'s' if len(models) != 1 else ''}"
    except AgentError as error:
        if error.kind != "auth":
            return None
        why = "asks for a key"
    except (TimeoutError, httpx.HTTPError, PoolError):
        return None
    if RESERVED[0] in models:  # a Trinity, perhaps this one: it would ask itself
        return None
    spec = AgentSpec(
        server.name,
        "openai",
        model=models[0] if len(models) == 1 else None,
        description=f"A model of the server at port {server.port}",
        base_url=base_url,
        key_env=_set_one(server.key_env),
        service={} if server.name == "litellm" else _FREE,  # a proxy may lead to providers that charge
    )
    return Offer(spec, f"{server.label} (port {server.port})", why, models)
