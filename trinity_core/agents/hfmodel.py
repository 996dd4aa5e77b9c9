"""A causal language model of transformers that writes: loading, prompts, and one reply at a time.

Imported by `hf` when that is first called, for torch takes seconds. All of a `Model` runs in one thread. Invariants:
a stop is heard before every leaf module (a projection, a norm), so within a fraction of a layer, in the prompt as
between tokens; prompts are read in chunks where an experiment at loading shows that this changes nothing. The text of
messages is cut inside whatever looks like a control token before it is tokenised, so only the template's own count.
What was said is the decoded tokens, in whole characters.

Not covered: encoder-decoder models, remote code, quantised checkpoints (they load where transformers can, untested).
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from trinity_core.config import LOADING
from trinity_core.errors import AgentError
from trinity_core.types import Message

CHUNK = 128
"""Most prompt tokens of one forward pass: what holds up a stop on a CPU is one projection of so many."""
_UNKNOWN_CONTEXT = 8192
"""Context assumed for models that state none (recurrent ones)."""
_KEPT = ("repetition_penalty", "no_repeat_ngram_size", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens")
"""Of the generation settings that a model ships with, those that are not about drawing at random."""
_LABELS = {"system": "System", "user": "User", "assistant": "Assistant"}
_LABEL = re.compile(r"^(?=(?:System|User|Assistant):)", re.MULTILINE)
_NEXT_LINES = ("\nUser:", "\nSystem:", "\nAssistant:")
_MOST_PENDING = 8
"""Tokens that are held back as a part of a character; UTF-8 has at most four bytes, so this is no character."""


@dataclass(frozen=True, slots=True)
class Draw:
    """How much may be written and how a token is chosen. No temperature, or 0: always the likeliest."""

    max_tokens: int
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A reply: its text, tokens read and made, and whether the model ended it (not a limit)."""

    text: str
    read: int
    made: int
    ended: bool


@dataclass(frozen=True, slots=True)
class Prompt:
    """Tokens to read. `opening` is the part of the reply that the template has written already, `stops` are texts
    that end a reply."""

    ids: list[int]
    opening: str = ""
    stops: tuple[str, ...] = ()


class _Stopped(Exception):
    """Whoever wanted the reply is gone."""


class _Ended(Exception):
    """The text came to one of the prompt's stops."""


class Model:
    """A loaded model. `name` is what its user calls it."""

    def __init__(self, name: str, folder: Path, device: str | None, dtype: str | None, context: int | None) -> None:
        """Raises AgentError (internal), naming the fix, when it does not load or does not run."""
        self.name = name
        self.device = _device(name, device)
        kind = getattr(torch, dtype) if dtype else torch.float32 if self.device == "cpu" else torch.bfloat16
        self._stopped: Callable[[], bool] = lambda: False
        self._model, self._tokenizer = _load(name, folder, kind)
        config = self._model.config.get_text_config(decoder=True)
        made_for = _context_of(config)
        self.context = min(context or made_for, made_for)
        own = self._model.generation_config
        self._kept = {key: value for key in _KEPT if (value := getattr(own, key, None)) is not None}
        self._ends = _ids(own.eos_token_id) | _ids(config.eos_token_id) | _ids(self._tokenizer.eos_token_id)
        added = self._tokenizer.added_tokens_decoder
        # Some models mark <think> as special; it belongs to the reply.
        self._unsaid = {i for i, t in added.items() if t.special and "think" not in t.content.lower()} | self._ends
        self._reserved = [t.content for t in added.values() if len(t.content.strip()) > 1]
        # Settings of the model itself would fill in whatever a call leaves open.
        self._model.generation_config = transformers.GenerationConfig()
        try:
            self._model.to(self.device)
            self._chunk = self._experiment()
        except (RuntimeError, MemoryError) as error:  # torch's OutOfMemoryError is a RuntimeError
            raise self._does_not_run(error) from None
        for part in self._model.modules():
            if not any(True for _ in part.children()):
                part.register_forward_pre_hook(self._look)

    def free(self) -> None:
        """Forget the weights."""
        self._model = None
        gc.collect()
        if self.device.startswith("cuda"):
            torch.cuda.empty_cache()

    def write(
        self, messages: Sequence[Message], draw: Draw, say: Callable[[str], None], stopped: Callable[[], bool]
    ) -> Written | None:
        """A reply to `messages`; each bit of its text goes to `say`. None: it was stopped.

        Raises AgentError: context_length for a prompt without room for a reply, bad_request when the chat template
        refuses the messages, internal when memory runs out.
        """
        prompt = self.prompt(messages)
        room = self.context - len(prompt.ids)
        if room < 1:
            raise AgentError(
                f"The prompt has {len(prompt.ids):,} tokens and {self.name} reads at most {self.context:,}, with its "
                "reply. Ask something shorter, or raise the member's option context where the model allows it.",
                kind="context_length",
            )
        writing = _Writing(self._decode, prompt, self._ends, self._unsaid, say)
        choose = [] if not draw.temperature else [_Choose(draw.temperature, draw.top_p, draw.seed)]
        self._stopped = stopped
        try:
            self._generate(prompt.ids, min(draw.max_tokens, room), self._chunk, streamer=writing, choose=choose)
        except _Stopped:
            return None
        except _Ended:
            pass  # the text up to there is the reply
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise self._does_not_run(error) from None
        finally:
            self._stopped = lambda: False
        return writing.whole()

    # --- The prompt -----------------------------------------------------------------------------------------

    def prompt(self, messages: Sequence[Message]) -> Prompt:
        """The tokens that ask for a reply to `messages`. Raises AgentError (bad_request)."""
        mark = next(c for c in map(chr, range(0xE000, 0xF8FF)) if not any(c in m.content for m in messages))
        # A mark after the first character of each control token: the text is cut there before it is tokenised.
        safe = [Message(m.role, self._marked(m.content, mark)) for m in messages]
        if not self._tokenizer.chat_template:
            return Prompt([*self._beginning(), *self._encode(_lines(safe), mark)], "", _NEXT_LINES)
        text = self._templated(safe)
        opening = re.search(r"<think(?:ing)?>\s*$", text)
        return Prompt(self._encode(text, mark), opening.group() if opening else "")

    def _marked(self, text: str, mark: str) -> str:
        found = {match.start() + 1 for token in self._reserved if token in text for match in _all(token, text)}
        return mark.join(text[start:end] for start, end in pairwise([0, *sorted(found), len(text)]))

    def _templated(self, messages: Sequence[Message]) -> str:
        problem: Exception | None = None
        for said in (messages, _merged(messages)):  # some templates take no system message, or only turns in turn
            chat = [{"role": m.role, "content": m.content} for m in said]
            try:
                made: str = self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
                return made
            except Exception as error:  # a template is a program of the model's authors
                problem = problem or error
        raise AgentError(
            f"The chat template of {self.name} refuses the conversation: {_short(problem)}. Use another model, or "
            "correct the template in its folder.",
            kind="bad_request",
        )

    def _encode(self, text: str, mark: str) -> list[int]:
        return [i for part in text.split(mark) for i in self._tokenizer(part, add_special_tokens=False).input_ids]

    def _beginning(self) -> list[int]:
        """The token that begins every text of this model, where it has one."""
        first = self._tokenizer.bos_token_id
        return [first] if first is not None and first in self._tokenizer("a").input_ids else []

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    # --- The model ------------------------------------------------------------------------------------------

    def _look(self, module: Any, given: Any) -> None:
        if self._stopped():
            raise _Stopped

    def _generate(
        self, ids: Sequence[int], tokens: int, chunk: int | None, *, streamer: Any = None, choose: Sequence[Any] = ()
    ) -> Any:
        given = torch.tensor([list(ids)], device=self.device)
        ends = sorted(self._ends)
        config = transformers.GenerationConfig(
            **self._kept,
            max_new_tokens=tokens,
            do_sample=False,
            eos_token_id=ends or None,
            pad_token_id=ends[0] if ends else 0,
            prefill_chunk_size=chunk,
            return_dict_in_generate=True,
            output_logits=streamer is None,
        )
        with torch.inference_mode():
            return self._model.generate(
                given,
                attention_mask=torch.ones_like(given),
                generation_config=config,
                logits_processor=list(choose),
                streamer=streamer,
            )

    def _experiment(self) -> int | None:
        """The size of prompt chunks, or None where the model must read all at once. Raises AgentError for a model
        whose numbers are not finite, and whatever it raises when it does not run at all."""
        most = self._model.get_input_embeddings().weight.shape[0]
        ids = [(7 * i + 3) % most for i in range(8)]
        whole = self._generate(ids, 1, None).logits[0].float()
        if not torch.isfinite(whole).all():
            raise AgentError(
                f"{self.name} gives numbers that are not finite. Fetch it again, or use dtype = float32."
            )
        try:
            parts = self._generate(ids, 1, 3).logits[0].float()
        except (RuntimeError, ValueError, TypeError, AttributeError, IndexError, NotImplementedError):
            return None  # a kind of cache that cannot be filled in parts
        share = 1e-3 if self._model.dtype == torch.float32 else 0.05
        alike = torch.linalg.vector_norm(whole - parts) <= share * torch.linalg.vector_norm(whole) + 1e-6
        return CHUNK if alike else None

    def _does_not_run(self, error: BaseException) -> AgentError:
        return AgentError(
            f"{self.name} does not run on {self.device}: {_short(error)}. Use a smaller model, or another device or "
            "dtype in the member's options."
        )


class _Writing:
    """A reply while it is written, as the streamer that `generate` hands its tokens to."""

    def __init__(
        self,
        decode: Callable[[list[int]], str],
        prompt: Prompt,
        ends: set[int],
        unsaid: set[int],
        say: Callable[[str], None],
    ) -> None:
        self._decode, self._prompt, self._ends, self._unsaid, self._say = decode, prompt, ends, unsaid, say
        self._read: int | None = None
        self._made = 0
        self._ended = False
        self._ids: list[int] = []
        self._from = self._done = 0
        self._held = ""
        self._said: list[str] = []

    def put(self, value: Tensor) -> None:
        """The prompt first, then token by token. Raises _Ended at one of the prompt's stops."""
        if self._read is None:
            self._read = int(value.shape[-1])
            return
        for token in value.flatten().tolist():
            self._made += 1
            self._ended = token in self._ends
            if token not in self._unsaid:
                self._ids.append(token)
                self._take(self._fresh(last=False))

    def end(self) -> None:
        """Nothing more comes."""

    def whole(self) -> Written:
        """The reply, once what was held back is said."""
        with suppress(_Ended):
            self._take(self._fresh(last=True))
        self._speak(self._held)
        return Written("".join(self._said), self._read or 0, self._made, self._ended)

    def _fresh(self, *, last: bool) -> str:
        """Text that the newest tokens add, in whole characters: decoded with those before, for blanks depend on
        them. Half a character waits for its other half, but not for ever."""
        before, now = self._decode(self._ids[self._from : self._done]), self._decode(self._ids[self._from :])
        pending = len(self._ids) - self._done
        if len(now) <= len(before) or (now.endswith("\ufffd") and not last and pending < _MOST_PENDING):
            return ""
        self._from, self._done = self._done, len(self._ids)
        return now[len(before) :]

    def _take(self, text: str) -> None:
        """Say `text`, except what belongs to a stop or may be the beginning of one."""
        self._held += text
        stops = self._prompt.stops
        if (at := min((i for stop in stops if (i := self._held.find(stop)) >= 0), default=-1)) >= 0:
            self._held, self._ended = self._held[:at], True
            raise _Ended
        ready = len(self._held) - max((_overlap(self._held, stop) for stop in stops), default=0)
        self._speak(self._held[:ready])
        self._held = self._held[ready:]

    def _speak(self, text: str) -> None:
        if text:
            text = text if self._said else self._prompt.opening + text
            self._said.append(text)
            self._say(text)


class _Choose:
    """Draws one token: afterwards it is the only possible one. Its generator is its own and on the CPU, so the same
    seed draws alike on every device and beside whatever else draws."""

    def __init__(self, temperature: float, top_p: float | None, seed: int | None) -> None:
        self._temperature, self._top_p = temperature, top_p
        self._generator = torch.Generator()
        if seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(seed)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        z = scores[0].cpu().double()
        probs = torch.softmax((z - z.max()) / self._temperature, dim=-1)
        if self._top_p is not None and self._top_p < 1:
            ordered, places = probs.sort(descending=True)
            surplus = ordered.cumsum(0) - ordered >= self._top_p  # the likeliest always stays
            probs[places[surplus]] = 0
        chosen = int(torch.multinomial(probs, 1, generator=self._generator))
        only = torch.full_like(scores, -torch.inf)
        only[0, chosen] = 0
        return only


def _all(token: str, text: str) -> Iterator[re.Match[str]]:
    """Where `token` stands in `text`, overlapping or not."""
    return re.finditer(f"(?={re.escape(token)})", text)


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of `text` that are the beginning of `stop`."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)


def _lines(messages: Sequence[Message]) -> str:
    """The conversation for a model without a chat template. No line of a message looks like the next message."""
    said = (f"{_LABELS[m.role]}: {_LABEL.sub('> ', m.content)}" for m in messages)
    return "\n\n".join([*said, "Assistant:"])


def _merged(messages: Sequence[Message]) -> list[Message]:
    """Users and assistants in turn: what the system says stands before the first message, neighbours are joined."""
    system = [m.content for m in messages if m.role == "system"]
    turns: list[Message] = [Message("user", "\n\n".join(system))] if system else []
    for m in messages:
        if m.role == "system":
            continue
        if turns and turns[-1].role == m.role:
            turns[-1] = Message(m.role, f"{turns[-1].content}\n\n{m.content}")
        else:
            turns.append(m)
    return turns


# --- Loading --------------------------------------------------------------------------------------------------


def _load(name: str, folder: Path, dtype: Any) -> tuple[Any, Any]:
    """(causal language model on the CPU, tokenizer). Raises AgentError."""
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    # Without a word on remote code, transformers asks for it on the terminal.
    options: Mapping[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        with LOADING:
            logging.disable_progress_bar()
            logging.set_verbosity_error()
            if AutoConfig.from_pretrained(folder, **options).is_encoder_decoder:
                raise AgentError(f"{name} is an encoder-decoder model. Use one that is decoder-only.")
            tokenizer = AutoTokenizer.from_pretrained(folder, **options)
            model, info = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, output_loading_info=True, **options
            )
    except MemoryError:
        raise AgentError(f"{name} is larger than the free memory. Use a smaller model or dtype = bfloat16.") from None
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError, ImportError, TypeError) as error:
        raise AgentError(
            f"{name} does not load: {_short(error)}. Fetch the model again, or use another one that is decoder-only."
        ) from None
    # transformers fills what is missing with random numbers and goes on.
    if missing := sorted(info.get("missing_keys", ())) + sorted(map(str, info.get("mismatched_keys", ()))):
        raise AgentError(
            f"{name} does not load: {len(missing)} weights are missing or of another shape, among them {missing[0]}. "
            "Fetch the model again, or use one that is made for writing text."
        )
    return model.eval().requires_grad_(False), tokenizer


def _device(name: str, wanted: str | None) -> str:
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted is None:
        return next(kind for kind, ok in there.items() if ok)
    number = int(wanted.partition(":")[2] or 0)
    if not there[wanted.partition(":")[0]] or (number and number >= torch.cuda.device_count()):
        usable = ", ".join(kind for kind, ok in there.items() if ok)
        raise AgentError(f"{name}: the device {wanted!r} is not available here. Usable: {usable}.")
    return wanted


def _context_of(config: Any) -> int:
    """Tokens the model was made for."""
    for name in ("max_position_embeddings", "n_positions", "max_sequence_length"):
        if isinstance(value := getattr(config, name, None), int) and value > 0:
            return value
    return _UNKNOWN_CONTEXT


def _ids(value: Any) -> set[int]:
    """Token ids that are given as one, several or none."""
    return set() if value is None else {int(value)} if isinstance(value, int) else {int(i) for i in value}


def _short(error: BaseException | None) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200].rstrip(".")
