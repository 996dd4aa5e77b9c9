"""What is known about servers that speak the OpenAI chat format: one table for requests, discovery and the Pool tab.

A server is found from the member's option `server`, else from its base URL: by host, then by port (a model server on
another machine of the house listens where it does on this one). What fits nowhere is `generic`, which gets nothing
but the fields every server takes.

Reasoning effort: unless a member sets one, the lowest is asked for, but only where the server's documentation says
that this model takes it; elsewhere nothing is sent. That is:

    openai, litellm   o-series and codex "low", gpt-5 "minimal", gpt-5.1 to 5.9 "none", gpt-6 and later "low" (some of
                      them refuse "none"); pro and chat models nothing
    openrouter        the same, and gpt-oss "low"; nothing else, since asking would switch reasoning on elsewhere
    deepseek          thinking off, except for deepseek-reasoner, which is chosen for its thinking
    groq              gpt-oss "low", qwen3 "none"
    together          gpt-oss "low"; hybrid models that reason by default: off
    ollama            gpt-oss "low"; qwen3, deepseek-r1 and deepseek-v3.1: "none"
    vllm, lmstudio, llamacpp   gpt-oss "low"

A server that refuses a guess says so with status 400, and the field is left out from then on. Not covered:
Azure's older addresses, one for each deployment, whose key goes into another header.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit, urlunsplit

from trinity_core.types import AgentSpec

Field = Literal["max_tokens", "max_completion_tokens"]
Style = Literal["reasoning_effort", "reasoning", "thinking", "enabled"]
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "default")
"""Words for reasoning effort; every model takes only some of them."""
EFFORT_FIELDS = frozenset(("reasoning_effort", "reasoning", "thinking"))
"""Body fields by which effort is written."""

_O_SERIES = r"^(?!o1-mini)o\d+(?!.*(?:preview|-pro))"
_OPENAI = (
    (_O_SERIES, "low"),
    (r"^gpt-\d.*(?:-pro|chat)", None),
    (r"^gpt-[5-9].*codex", "low"),
    (r"^gpt-5(?!\.)", "minimal"),
    (r"^gpt-5\.", "none"),
    (r"^gpt-(?:[6-9]|\d\d)", "low"),
)
_OSS = (r"gpt-oss", "low")
_REASONS = re.compile(r"^(?:o\d|gpt-(?:[5-9]|\d\d)(?!.*chat))")


@dataclass(frozen=True, slots=True)
class Server:
    """One kind of server. `hosts` are host names (also as endings after a dot), `port` is its usual local port.

    `base_url` is None where only the user can know it. `max_tokens_field` and `system_role` are what it takes;
    `not_taken` are body fields that it refuses or ignores, `stops` the most stop texts it takes. `style` says how
    effort is written, `lowest` lists patterns of model names with the lowest effort each takes (None: send nothing).
    `key_env` are the usual names of its key, `context_setting` is what to change when its context is too short.
    """

    name: str
    label: str
    base_url: str | None = None
    hosts: tuple[str, ...] = ()
    port: int | None = None
    key_env: tuple[str, ...] = ()
    needs_key: bool = False
    max_tokens_field: Field = "max_tokens"
    system_role: str = "system"
    style: Style = "reasoning_effort"
    lowest: tuple[tuple[str, str | None], ...] = ()
    not_taken: frozenset[str] = frozenset()
    stops: int = 4
    context_setting: str = "raise the context length in the server's settings"

    def lowest_effort(self, model: str | None) -> str | None:
        """The lowest effort that is safe to ask of `model`; None: send nothing."""
        name = _bare(model)
        return next((effort for pattern, effort in self.lowest if re.search(pattern, name)), None)

    def effort_fields(self, effort: str) -> dict[str, Any]:
        """`effort` as this server wants it in the body."""
        if self.style == "reasoning":
            return {"reasoning": {"effort": effort}}
        if self.style == "thinking":
            off = {"thinking": {"type": "disabled"}}
            return off if effort == "none" else {"thinking": {"type": "enabled"}, "reasoning_effort": effort}
        if self.style == "enabled" and effort == "none":
            return {"reasoning": {"enabled": False}}
        return {"reasoning_effort": effort}

    def refused(self, model: str | None, effort: str | None) -> frozenset[str]:
        """Body fields that are known not to be taken for `model` at `effort`."""
        name = _bare(model)
        if self.name != "openai" or not _REASONS.search(name):
            return self.not_taken
        # While they reason, these models take no sampling settings; the o-series takes no stop texts either.
        sampling = frozenset(("temperature", "top_p")) if effort != "none" else frozenset()
        stop = frozenset(("stop",)) if name.startswith("o") else frozenset()
        return self.not_taken | sampling | stop


_LOCAL = (
    Server(
        "vllm",
        "vLLM",
        "http://127.0.0.1:8000/v1",
        port=8000,
        key_env=("VLLM_API_KEY",),
        lowest=(_OSS,),
        context_setting="start the server with a larger --max-model-len",
    ),
    Server(
        "ollama",
        "Ollama",
        "http://127.0.0.1:11434/v1",
        hosts=("ollama.com",),
        port=11434,
        key_env=("OLLAMA_API_KEY",),
        lowest=(_OSS, (r"^(?:qwen3(?!.*thinking)|deepseek-(?:r1|v3\.1))", "none")),
        context_setting="start it with a larger OLLAMA_CONTEXT_LENGTH, or set num_ctx in the model's Modelfile",
    ),
    Server(
        "lmstudio",
        "LM Studio",
        "http://127.0.0.1:1234/v1",
        port=1234,
        lowest=(_OSS,),
        context_setting="load the model with a larger Context Length",
    ),
    Server(
        "llamacpp",
        "llama.cpp",
        "http://127.0.0.1:8080/v1",
        port=8080,
        key_env=("LLAMA_API_KEY",),
        lowest=(_OSS,),
        context_setting="start the server with a larger -c (--ctx-size)",
    ),
    Server(
        "litellm",
        "LiteLLM proxy",
        "http://127.0.0.1:4000/v1",
        port=4000,
        key_env=("LITELLM_API_KEY", "LITELLM_MASTER_KEY"),
        lowest=_OPENAI,
        context_setting="raise the context length of the server behind the proxy",
    ),
    Server(
        "trinity",
        "Trinity",
        "http://127.0.0.1:7860/v1",
        port=7860,
        context_setting="ask its pool's members for a larger context",
    ),
)
_HOSTED = (
    Server(
        "openai",
        "OpenAI",
        "https://api.openai.com/v1",
        hosts=("api.openai.com", "openai.azure.com"),
        key_env=("OPENAI_API_KEY",),
        needs_key=True,
        max_tokens_field="max_completion_tokens",
        lowest=_OPENAI,
    ),
    Server(
        "openrouter",
        "OpenRouter",
        "https://openrouter.ai/api/v1",
        hosts=("openrouter.ai",),
        key_env=("OPENROUTER_API_KEY",),
        needs_key=True,
        style="reasoning",
        lowest=(*_OPENAI, _OSS),
    ),
    Server(
        "deepseek",
        "DeepSeek",
        "https://api.deepseek.com",
        hosts=("api.deepseek.com",),
        key_env=("DEEPSEEK_API_KEY",),
        needs_key=True,
        style="thinking",
        lowest=((r"^(?!deepseek-reasoner)", "none"),),
        not_taken=frozenset(("seed",)),
        stops=16,
    ),
    Server(
        "groq",
        "Groq",
        "https://api.groq.com/openai/v1",
        hosts=("api.groq.com",),
        key_env=("GROQ_API_KEY",),
        needs_key=True,
        lowest=(_OSS, (r"^qwen3", "none")),
    ),
    Server(
        "together",
        "Together",
        "https://api.together.ai/v1",
        hosts=("together.ai", "together.xyz"),
        key_env=("TOGETHER_API_KEY",),
        needs_key=True,
        style="enabled",
        lowest=(_OSS, (r"^(?:deepseek-v4|glm-5|kimi-k2\.[5-9]|qwen3\.[5-9]|cogito-v2)", "none")),
    ),
)
GENERIC = Server("generic", "OpenAI-compatible server")
SERVERS: Mapping[str, Server] = {server.name: server for server in (*_HOSTED, *_LOCAL, GENERIC)}
"""Every known server by name."""


def server_at(base_url: str | None) -> Server:
    """The server that `base_url` reaches, as far as host and port tell; without one, OpenAI itself."""
    if base_url is None:
        return SERVERS["openai"]
    parts = _parts(base_url)
    host = (parts.hostname or "").rstrip(".").lower() if parts else ""
    for server in SERVERS.values():
        if any(host == known or host.endswith(f".{known}") for known in server.hosts):
            return server
    port = _port(parts)
    return next((server for server in SERVERS.values() if port is not None and server.port == port), GENERIC)


def server_of(spec: AgentSpec) -> Server:
    """The server of a member: its option `server`, else what its base URL tells."""
    named = SERVERS.get(str(spec.options.get("server", "")))
    return named or server_at(spec.base_url)


def with_version(base_url: str, server: Server | None = None) -> str:
    """`base_url` without a closing slash or endpoint, and with the server's own path where it has none: local
    servers are often given as host and port alone."""
    parts = _parts(base_url)
    if parts is None:
        return base_url.rstrip("/")
    path = parts.path.rstrip("/").removesuffix("/chat/completions").removesuffix("/models").rstrip("/")
    own = (server or server_at(base_url)).base_url
    if not path and own:
        path = urlsplit(own).path
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def endpoint(base_url: str, path: str) -> str:
    """`path` below `base_url`; a query of the base URL stays behind it."""
    parts = _parts(base_url)
    if parts is None:
        return base_url.rstrip("/") + path
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + path, parts.query, ""))


def _parts(url: str) -> SplitResult | None:
    try:
        return urlsplit(url.strip())
    except ValueError:
        return None


def _port(parts: SplitResult | None) -> int | None:
    try:
        return parts.port if parts else None
    except ValueError:
        return None


def _bare(model: str | None) -> str:
    """A model's name without the vendor before it."""
    return (model or "").rsplit("/", 1)[-1].lower()
