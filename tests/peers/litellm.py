"""The LiteLLM proxy as a peer: one process that answers in all formats and translates between them, offline.

Its packages contradict ours, so it lives in an environment of its own that `make setup-test` fills (`litellm.txt` has
the versions); TRINITY_LITELLM_PYTHON names another. It starts in about twenty seconds: one a test session is enough.

What it cannot show: it ends a broken stream of its upstream with a made-up `stop`, answers Gemini calls with errors
in OpenAI's shape, has no reasoning and no Retry-After, and its canned answers do not stream as Anthropic messages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.peers import KEY, Peer, Unavailable, answers, child, free_port

CONFIG = Path(__file__).with_name("litellm.yaml")
ENVIRONMENT = Path(__file__).resolve().parent.parent.parent / ".cache" / "peers" / "litellm"
TEXT = "Grüße ✓ from behind LiteLLM"
"""What the models `canned` and `through` say."""


def interpreter() -> Path:
    """The Python that has litellm. Raises Unavailable."""
    named = os.environ.get("TRINITY_LITELLM_PYTHON")
    path = Path(named) if named else ENVIRONMENT / "bin" / "python"
    if not path.with_name("litellm").is_file():  # its command comes last, so a half-made environment has none
        raise Unavailable(f"{path} has no litellm; `make setup-test` installs it")
    return path


@contextmanager
def litellm(llama_base: str = "http://127.0.0.1:9/v1") -> Iterator[Peer]:
    """Start it; the model `real` is passed on to `llama_base`, an OpenAI-compatible base URL. Raises Unavailable."""
    program = interpreter()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    env = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it asks the network for prices
        "PEER_SELF": url + "/v1",
        "PEER_KEY": KEY,
        "PEER_LLAMA": llama_base,
        "LITELLM_LOG": "ERROR",
    }
    # Its own entry point: `-m litellm` would look into the working directory first.
    boot = "from litellm.proxy.proxy_cli import run_server; run_server()"
    command = [str(program), "-P", "-c", boot, "--config", str(CONFIG), "--host", "127.0.0.1", "--port", str(port)]
    with child(command, answers(url + "/health/readiness"), limit_s=180, env=env) as pid:
        bases = {"openai": url + "/v1", "anthropic": url, "gemini": url + "/v1beta"}
        yield Peer("LiteLLM", url, bases, pid, {"key": KEY})
