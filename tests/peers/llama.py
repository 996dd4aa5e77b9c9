"""llama.cpp as a peer: its own HTTP server with the embedded weights, a real model that really generates.

It speaks the OpenAI format under /v1 and Anthropic's under the root. `python -m tests.peers.llama` runs one until it
is killed and prints its address.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.peers import Peer, child, python
from trinity_core.agents.local import weights
from trinity_core.types import AgentSpec

MODEL = "smollm2"
CONTEXT = 1024
_ADDRESS = re.compile(r"^listening on (http://127\.0\.0\.1:\d+)$", re.MULTILINE)
ROOT = Path(__file__).resolve().parent.parent.parent


@contextmanager
def llama() -> Iterator[Peer]:
    """Start one; about two seconds."""
    said: list[str] = []

    def ready(output: str) -> bool:
        said[:] = _ADDRESS.findall(output)
        return bool(said)

    boot = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.peers.llama import serve; serve()"
    with child([python(), "-c", boot], ready, limit_s=60, env={"OMP_WAIT_POLICY": "passive"}) as pid:
        yield Peer("llama.cpp", said[0], {"openai": said[0] + "/v1", "anthropic": said[0]}, pid)


def serve() -> None:
    """Load the weights, print the address and serve until killed."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights(AgentSpec("smollm2", "smollm2")))
    params.model_alias = [MODEL]
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cache_ram_mib = 0
    params.verbosity = -1
    params.warmup = False
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.ui = False
    server = xllamacpp.Server(params)
    print(f"listening on {server.listening_address}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    serve()
