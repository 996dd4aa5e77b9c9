"""A local Hugging Face model as a member, through transformers: its options, its thread, its place. See `hfmodel`.

`spec.model` is a folder, or the id of a model in the local Hugging Face cache. Options, all of which may be left out:

    max_tokens   most tokens of one reply; the smaller of it and the request's holds
    temperature  0 to 2; 0, or left out: the likeliest token every time. The request's own goes first
    top_p        draw from the likeliest tokens that together have this probability; the request's own goes first
    seed         of the draws, so that equal requests give equal replies; the request's own goes first
    context      most tokens of prompt and reply together (default, and at most: what the model was made for)
    device       cpu, mps, cuda or cuda:1 (default: the best there is)
    dtype        float32, bfloat16 or float16 (default: float32 on a CPU, else bfloat16)

Invariants: nothing is downloaded. torch and transformers are imported by the first call, which also loads the model,
in the member's one thread; calls queue there. Closing the iterator stops the model between two of its layers' parts,
also while it reads the prompt. Draws come from a generator of the call's own, so no other model changes them. Text of
a message never becomes a control token. <think> stays in the text. The number of torch's threads is left alone: it
belongs to the whole process, the backbone included, and fewer were measured to slow down both.

Of the settings that a model's authors ship, repetition penalties and forbidden tokens are kept; their temperature is
not. Models without a chat template get plain lines, and are stopped where they begin the next one. Not covered:
images, tools, adapters, remote code, several sequences at once, one copy of the weights for two members.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from trinity_core.agents.base import Agent, Wiring
from trinity_core.errors import AgentError, PoolError, did_you_mean
from trinity_core.types import AgentSpec, Finish, Piece, Reply, Request, Usage

if TYPE_CHECKING:
    from trinity_core.agents.hfmodel import Draw, Model

_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_DEVICE = re.compile(r"cpu|mps|cuda(:\d+)?")
_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a member; see the module's docstring."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    context: int | None = None
    device: str | None = None
    dtype: str | None = None

    @classmethod
    def read(cls, spec: AgentSpec) -> Options:
        """The options of `spec`. Raises PoolError for an unknown one or a value that cannot be used."""
        for name, value in spec.options.items():
            if name not in _ALLOWED:
                raise PoolError(
                    f"Agent {spec.name}: unknown option {name!r}.{did_you_mean(name, _ALLOWED)} A transformers "
                    f"member knows: {', '.join(_ALLOWED)}."
                )
            fits, wanted = _ALLOWED[name]
            if isinstance(value, bool) or not fits(value):
                raise PoolError(f"Agent {spec.name}: option {name} must be {wanted}, not {value!r}.")
        return cls(**spec.options)


def _whole(least: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and least <= value < 2**63


_ALLOWED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "max_tokens": (_whole(1), "a whole number above 0"),
    "temperature": (lambda v: isinstance(v, int | float) and 0 <= v <= 2, "a number from 0 to 2"),
    "top_p": (lambda v: isinstance(v, int | float) and 0 < v <= 1, "a number above 0, at most 1"),
    "seed": (_whole(0), "a whole number that is not negative"),
    "context": (_whole(2), "a whole number above 1"),
    "device": (lambda v: isinstance(v, str) and bool(_DEVICE.fullmatch(v)), "cpu, mps, cuda, or cuda: and a number"),
    "dtype": (lambda v: isinstance(v, str) and v in _DTYPES, "float32, bfloat16 or float16"),
}


def build(spec: AgentSpec, wiring: Wiring) -> Agent:
    """The member. Loads and imports nothing. Raises PoolError when its options do not fit."""
    return HFAgent(spec)


def check(spec: AgentSpec) -> None:
    """Raises PoolError, naming the fix, when the options do not fit or there is no such model on this machine (a
    disabled member's may be missing)."""
    Options.read(spec)
    if spec.enabled or not spec.model:
        folder_of(spec)


def folder_of(spec: AgentSpec) -> Path:
    """The folder of `spec.model`. Raises PoolError, naming the fix, when there is none on this machine."""
    who, name = f"Agent {spec.name}", spec.model
    if not name:
        raise PoolError(
            f"{who}: kind transformers needs a model: the folder of one, or the id of one that was fetched, such as "
            'model = "Qwen/Qwen3-0.6B".'
        )
    folder = Path(name).expanduser()
    if folder.is_file():
        fix = 'Use kind = "gguf" for it' if folder.suffix.lower() == ".gguf" else "Name the folder that it lies in"
        raise PoolError(f"{who}: {folder} is a file. {fix}.")
    if not folder.is_dir():
        if not _ID.fullmatch(name) or name.startswith("."):
            raise PoolError(f"{who}: there is no folder {folder}. Correct its model, or set enabled = false.")
        folder = _cached(who, name)
    weights = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
    if not (folder / "config.json").is_file() or not weights:
        raise PoolError(
            f"{who}: {folder} holds no whole model: config.json and safetensors files are needed. Fetch it again, or "
            "set enabled = false."
        )
    return folder


def _cached(who: str, name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    except ImportError as error:
        raise PoolError(
            f"{who}: huggingface_hub is not usable ({error}). Install it with: pip install transformers"
        ) from None
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, OSError):
        raise PoolError(
            f"{who}: {name} is neither a folder nor in the local Hugging Face cache, and nothing is downloaded "
            f"unasked. Fetch it once with `hf download {name}`, name the folder of a copy, or set enabled = false."
        ) from None


class HFAgent:
    """One local model as a member of the pool."""

    def __init__(self, spec: AgentSpec) -> None:
        """Loads nothing. Raises PoolError when the options do not fit; a missing model fails the first call."""
        self._spec, self._options = spec, Options.read(spec)
        self._model: Model | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"hf-{spec.name}")
        self._calls: set[Event] = set()

    @property
    def spec(self) -> AgentSpec:
        return self._spec

    @property
    def calls(self) -> int:
        """Calls that the model works on or that wait for it."""
        return len(self._calls)

    async def stream(self, request: Request) -> AsyncIterator[Piece | Reply]:
        """Stream one reply. Raises AgentError: context_length, bad_request (the chat template) or internal."""
        loop, stopped = asyncio.get_running_loop(), Event()
        items: asyncio.Queue[Piece | Reply | AgentError] = asyncio.Queue()

        def put(item: Piece | Reply | AgentError) -> None:
            try:
                loop.call_soon_threadsafe(items.put_nowait, item)
            except RuntimeError:  # the loop is gone, and with it whoever waited
                stopped.set()

        try:
            working = self._thread.submit(self._work, request, time.perf_counter(), put, stopped)
        except RuntimeError:
            raise AgentError(f"{self._spec.name} was closed.") from None
        self._calls.add(stopped)
        working.add_done_callback(lambda _: self._calls.discard(stopped))
        try:
            while not isinstance(item := await items.get(), Reply):
                if isinstance(item, AgentError):
                    raise item
                yield item
            yield item
        finally:
            stopped.set()
            working.cancel()

    async def aclose(self) -> None:
        """Stop every call, which makes it fail, and free the weights. Calls made later fail."""
        for call in tuple(self._calls):
            call.set()
        try:
            self._thread.submit(self._unload)
        except RuntimeError:
            return  # closed before
        await asyncio.to_thread(self._thread.shutdown, True)

    def _unload(self) -> None:
        model, self._model = self._model, None
        if model is not None:
            model.free()

    def _work(self, request: Request, began: float, put: Callable[[Any], None], stopped: Event) -> None:
        """Runs in the model's thread: load when needed, write, and put pieces and the Reply, or an AgentError."""
        name = self._spec.name
        try:
            put(self._reply(request, began, put, stopped))
        except AgentError as error:
            put(error)
        except PoolError as error:
            put(AgentError(str(error)))
        except Exception as error:  # nobody else would see a bug in this thread, and the run would wait for ever
            put(AgentError(f"{name} failed: {type(error).__name__}: {str(error)[:300]}"))

    def _reply(self, request: Request, began: float, put: Callable[[Any], None], stopped: Event) -> Reply:
        first: list[float] = []

        def say(text: str) -> None:
            if not first:
                first.append(time.perf_counter() - began)
            put(Piece(text))

        if self._model is None and not stopped.is_set():
            self._model = self._load()
        written = None
        if self._model is not None and not stopped.is_set():
            written = self._model.write(request.messages, self._draw(request), say, stopped.is_set)
        if written is None:  # heard only where `aclose` stopped a call that somebody still waits for
            raise AgentError(f"{self._spec.name} was closed.")
        ended = Finish.STOP if written.text.strip() else Finish.EMPTY
        return Reply(
            written.text,
            ended if written.ended else Finish.LENGTH,
            usage=Usage(written.read, written.made),
            first_token_s=first[0] if first else None,
            seconds=time.perf_counter() - began,
        )

    def _load(self) -> Model:
        try:
            from trinity_core.agents.hfmodel import Model
        except ImportError as error:
            raise AgentError(
                f"{self._spec.name} needs torch and transformers, which are not usable here ({error}). Install them "
                "with: pip install torch transformers"
            ) from None
        options = self._options
        return Model(self._spec.model or "", folder_of(self._spec), options.device, options.dtype, options.context)

    def _draw(self, request: Request) -> Draw:
        """How the next token is chosen: the request's own wish, else the member's option."""
        from trinity_core.agents.hfmodel import Draw

        asked, own = request.sampling, self._options
        return Draw(
            min(asked.max_tokens, own.max_tokens or asked.max_tokens),
            own.temperature if asked.temperature is None else asked.temperature,
            own.top_p if asked.top_p is None else asked.top_p,
            own.seed if asked.seed is None else asked.seed,
        )
