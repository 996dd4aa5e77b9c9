"""llama.cpp with one model, in a process of its own.

`xllamacpp` holds Python's global lock while it loads weights, which would freeze the page, and llama.cpp ends its
process when it meets a file or a state that it does not expect, which would end the server. The child takes both.
It reads one JSON object a line (its settings; then a chat request, or the number of one to stop) and writes
llama.cpp's chunks, one a line, with an empty line after the last. It ends when its input ends, so it never outlives
its parent.

Invariants: one sequence, no prompt cache, prompt chunks of a fixed size, so equal requests are computed alike (a
cached prefix was seen to change greedy replies). Nothing of llama.cpp reaches the parent's stdout or stderr. It
insists on a port: one on 127.0.0.1 that nobody uses, locked by a random key.

Not covered: isolation from a hostile file beyond what a process gives.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from trinity_core.errors import AgentError

_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from trinity_core.agents.llama import serve; serve()"
)
_CLOSE_LIMIT = 2.0
"""Seconds that a child gets to end by itself."""


@dataclass(frozen=True, slots=True)
class Load:
    """What to load and how. `chunk` is the number of prompt tokens between two looks at the wish to stop."""

    path: str
    context: int
    threads: int
    chunk: int


class Engine:
    """A child with a loaded model. One thread makes it, begins and reads; any may call `stop` and `close`."""

    def __init__(self, load: Load) -> None:
        """Start the child and wait until the weights are loaded. Raises AgentError (kind internal)."""
        # OpenMP threads that spin at barriers gain nothing measurable, and cost a factor of ten as soon as another
        # process wants a core: 13.6 s instead of 1.4 s for a short reply beside two busy processes on two cores.
        quiet = {"OMP_WAIT_POLICY": "passive"} | dict(os.environ)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=quiet,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is for the parent alone
        )
        self._end = weakref.finalize(self, _end, self._process)
        self._number = 0
        self._writing = threading.Lock()
        self._send(asdict(load))
        if problem := json.loads(self._line() or '"llama.cpp ended while it loaded the file."'):
            self.close()
            raise AgentError(str(problem))

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def begin(self, body: dict[str, Any]) -> int:
        """Ask for an answer to `body`, a request of llama.cpp's chat endpoint, and give its number."""
        self._number += 1
        self._send({"number": self._number, "body": body})
        return self._number

    def read(self, number: int, take: Callable[[Any], bool]) -> None:
        """Hand each chunk of the answer begun last to `take`; once that returns True the model is stopped and the
        rest dropped. Raises AgentError (kind transport, retryable) when the child died."""
        stopped = False
        while line := self._line().strip():
            if not stopped and take(json.loads(line)):
                stopped = True
                self.stop(number)

    def stop(self, number: int) -> None:
        """Stop the model at its next token or prompt chunk if it still answers request `number`."""
        self._send({"stop": number})

    def close(self) -> None:
        """End the child and free the weights."""
        self._end()

    def _send(self, value: object) -> None:
        assert self._process.stdin is not None
        with self._writing, contextlib.suppress(OSError, ValueError):  # a dead child shows when it is read from
            self._process.stdin.write(json.dumps(value) + "\n")
            self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line and self._number:
            self.close()  # now, so that the next call finds the process gone
            raise AgentError("llama.cpp ended unexpectedly.", kind="transport", retryable=True)
        return line


def _end(process: subprocess.Popen[str]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError, ValueError):
            process.stdin.close()
    try:
        process.wait(_CLOSE_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


# --- The child ------------------------------------------------------------------------------------------------


def serve() -> None:
    """Run the child: load what the first line names, then answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(2, 1)  # whatever a library prints must not get between the answers

    def say(line: str) -> None:
        answers.write(line + "\n")
        answers.flush()

    try:
        server = _loaded(Load(**json.loads(sys.stdin.readline())))
    except (ImportError, RuntimeError) as error:
        say(json.dumps(str(error)))
        return
    say(json.dumps(None))
    requests = queue.SimpleQueue[dict[str, Any]]()
    stopped = [0]
    threading.Thread(target=_listen, args=(requests, stopped), daemon=True).start()
    while True:
        request = requests.get()

        def take(chunk: str, number: int = request["number"]) -> bool:
            say(chunk)
            return stopped[0] >= number

        server.handle_chat_completions(json.dumps(request["body"]), take)
        say("")


def _listen(requests: queue.SimpleQueue[dict[str, Any]], stopped: list[int]) -> None:
    """Sort the parent's lines; end the process with them, whatever it is doing."""
    for line in sys.stdin:
        message = json.loads(line)
        if "stop" in message:
            stopped[0] = max(stopped[0], message["stop"])
        else:
            requests.put(message)
    os._exit(0)


def _loaded(load: Load) -> Any:
    """A server of xllamacpp. Raises ImportError or RuntimeError with a message for the user."""
    try:
        import xllamacpp
    except ImportError as error:
        raise ImportError(f"llama.cpp is not usable ({error}). Install it with: pip install xllamacpp") from None
    params = xllamacpp.CommonParams()
    params.model.path = load.path
    params.n_ctx = load.context
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = load.chunk
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = load.threads
    params.cache_ram_mib = 0
    params.verbosity = -1
    params.warmup = False
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.api_keys = [secrets.token_hex(32)]
    params.n_threads_http, params.ui, params.endpoint_slots = 1, False, False
    params.cors_origins = ""
    try:
        return xllamacpp.Server(params)
    except RuntimeError:
        raise RuntimeError(
            f"llama.cpp cannot load {load.path}. It is no whole GGUF file, of a newer kind than the installed "
            "xllamacpp, or larger than the free memory."
        ) from None
