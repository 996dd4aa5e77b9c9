"""The form of one member: its fields, what they mean as an entry of the pool file, and back.

`FIELDS` is the order in which the tab's components stand and in which handlers get their values. Fields that a kind
does not take are left out, because they are hidden then; a value that cannot be used is an InputError that names its
field as the form does. The key is no field of the entry.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gradio as gr

from trinity_core.agents.pool import KINDS, spec_of
from trinity_core.agents.remote.service import Service
from trinity_core.errors import InputError, PoolError
from trinity_core.types import AgentSpec
from trinity_core.wire import drop_secrets, plain, redact
from ui.live import live
from ui.members import KIND_WORDS

Place = Literal["entry", "options", "service", "price", "extra"]


@dataclass(frozen=True, slots=True)
class Field:
    """One field: where its value goes in the entry, and its words. `whole` is a number without fraction."""

    name: str
    place: Place
    label: str
    sort: Literal["text", "switch", "whole", "number"] = "text"


FIELDS = (
    Field("name", "entry", "Name"),
    Field("kind", "entry", "Kind"),
    Field("base_url", "entry", "Base URL"),
    Field("model", "entry", "Model"),
    Field("key_env", "entry", "Environment variable with the key"),
    Field("description", "entry", "Description"),
    Field("enabled", "entry", "Takes part", "switch"),
    Field("effort", "options", "Effort"),
    Field("max_tokens", "options", "Most tokens a reply", "whole"),
    Field("concurrency", "service", "Calls at once", "whole"),
    Field("requests_per_minute", "service", "Requests a minute", "whole"),
    Field("tokens_per_minute", "service", "Tokens a minute", "whole"),
    Field("retries", "service", "Retries", "whole"),
    Field("connect_s", "service", "Connect (s)", "number"),
    Field("first_token_s", "service", "First token (s)", "number"),
    Field("between_tokens_s", "service", "Between tokens (s)", "number"),
    Field("total_s", "service", "Whole reply (s)", "number"),
    Field("rest_after", "service", "Rest after failures", "whole"),
    Field("rest_s", "service", "Rest for (s)", "number"),
    Field("input", "price", "Input", "number"),
    Field("output", "price", "Output", "number"),
    Field("cached", "price", "Cached input", "number"),
    Field("extra", "extra", "Further options (JSON)"),
)
NAMES = tuple(field.name for field in FIELDS)
_LOCAL_MODELS = ("gguf", "transformers")
_ASKED = "Type the name that the server knows it by, or press List models and choose one."
_MODELS = {
    "openai": _ASKED,
    "anthropic": _ASKED,
    "gemini": _ASKED,
    "gguf": "Type the path of the .gguf file.",
    "transformers": "Type the folder of a model, or the id of one that was fetched, such as Qwen/Qwen3-0.6B.",
}
"""What to do when a kind that needs a model has none."""
_OPTIONLESS = ("symbolic", "lexical", "calendar")


def shown(kind: str) -> frozenset[str]:
    """The fields that a kind has; the others are hidden and ignored."""
    names = {"name", "kind", "description", "enabled"}
    if kind in KINDS and KINDS[kind].remote:
        return frozenset(NAMES)
    if kind in _LOCAL_MODELS:
        names.add("model")
    if kind not in _OPTIONLESS:
        names |= {"max_tokens", "extra"}
    return frozenset(names)


def blank() -> list[Any]:
    """The values of an empty form."""
    return values_of(AgentSpec("", "openai"))


def values_of(spec: AgentSpec) -> list[Any]:
    """What the form shows for a member, in the order of `FIELDS`."""
    options, service = dict(spec.options), dict(spec.service)
    price = service.get("price")

    def text(number: Any) -> str:
        return "" if number is None else str(number)

    values: list[Any] = []
    for field in FIELDS:
        if field.place == "entry":
            value = getattr(spec, field.name)
            values.append(value if field.sort == "switch" else value or "")
        elif field.place == "options":
            found = options.get(field.name)
            usable = isinstance(found, str if field.sort == "text" else int)
            values.append(text(options.pop(field.name)) if usable else "")
        elif field.place == "service":
            values.append(text(service.get(field.name)))
        elif field.place == "price":
            values.append(text(price.get(field.name)) if isinstance(price, Mapping) else "")
        else:
            values.append(json.dumps(plain(options), ensure_ascii=False, indent=1) if options else "")
    return values


def draft_of(values: Sequence[Any]) -> dict[str, Any]:
    """The entry that the form's values make, not yet checked as a member. Raises InputError naming the field."""
    given = dict(zip(NAMES, values, strict=True))
    usable = shown(str(given["kind"]))
    tables: dict[str, dict[str, Any]] = {"entry": {}, "options": {}, "service": {}, "price": {}}
    for field in FIELDS:
        if field.name not in usable:
            continue
        value = _read(field, given[field.name])
        if field.place == "extra":
            tables["options"].update(_extra(value, tables["options"]))
        elif value is not None:
            tables[field.place][field.name] = value
    entry = tables["entry"]
    if entry.get("enabled") is True:
        del entry["enabled"]
    if tables["price"]:
        if not {"input", "output"} <= tables["price"].keys():
            raise InputError("Price: give both input and output, in dollars per million tokens, or neither.")
        tables["service"]["price"] = tables["price"]
    return entry | {name: tables[name] for name in ("options", "service") if tables[name]}


def spec_from(values: Sequence[Any]) -> AgentSpec:
    """The member that the form describes. Raises InputError or PoolError, naming the member, what is wrong, and what
    to do."""
    entry = draft_of(values)
    if not entry.get("name"):
        raise InputError("Name: give the member a name, such as gpt. It labels its turns and its row in the head.")
    if not entry.get("model") and (what := _MODELS.get(entry["kind"])):
        raise InputError(f"Agent {entry['name']}: Model is empty. {what}")
    try:
        return spec_of(entry)
    except PoolError as error:
        text = _in_form_words(str(error))
        raise PoolError(text if text.startswith("Agent ") else f"Agent {entry['name']}: {text}") from None


def _in_form_words(text: str) -> str:
    """An error of the pool file with the form's labels in place of the file's names."""
    for field in FIELDS:
        name = {"service": "service.", "price": "service.price.", "options": "option "}.get(field.place, "")
        if name:
            label = f"Price, {field.label.lower()}" if field.place == "price" else field.label
            text = text.replace(f"{name}{field.name} ", f"{label} ")
    return text


def rough_spec(values: Sequence[Any]) -> AgentSpec:
    """The member as far as the form tells, for what needs no complete one: its key's state, its server's models."""
    given = dict(zip(NAMES, values, strict=True))
    text = {name: str(given[name] or "").strip() or None for name in ("model", "base_url", "key_env")}
    if "key_env" not in shown(str(given["kind"])):
        text["key_env"] = text["base_url"] = None
    return AgentSpec(str(given["name"] or "").strip(), str(given["kind"]), **text)  # type: ignore[arg-type]


def without_secrets(values: Sequence[Any]) -> list[Any]:
    """The values with nothing in them that looks like a key: what a browser may keep."""
    given = dict(zip(NAMES, values, strict=True))
    for name, value in given.items():
        if isinstance(value, str) and redact(value) != value:
            given[name] = ""
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", str(given["key_env"] or "").strip()):
        given["key_env"] = ""  # a key that was pasted into the wrong field
    if "@" in str(given["base_url"] or ""):
        given["base_url"] = ""
    try:
        if given["extra"]:
            _extra(given["extra"], {})
    except InputError:
        given["extra"] = ""
    return list(given.values())


def values_from(kept: object) -> list[Any] | None:
    """Values that a browser kept, or None when they are none of this form's."""
    if not isinstance(kept, list) or len(kept) != len(FIELDS) or kept[NAMES.index("kind")] not in KIND_WORDS:
        return None
    sorts = [bool if field.sort == "switch" else str for field in FIELDS]
    return kept if all(isinstance(value, sort) for value, sort in zip(kept, sorts, strict=True)) else None


def _read(field: Field, value: Any) -> Any:
    """One value as the entry wants it; None: not given."""
    if field.sort == "switch":
        return bool(value)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if field.sort == "text":
        return str(value).strip()
    number = number_of(value, field.label)
    if field.sort == "whole" and not isinstance(number, int):
        raise InputError(f"{field.label}: a whole number is needed, not {number:g}.")
    return number


def number_of(value: Any, label: str) -> int | float:
    """A number that was typed, whole where it can be. Raises InputError naming the field."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{label}: a number is needed, such as 4 or 0.5.") from None
    if not math.isfinite(number):
        raise InputError(f"{label}: a number is needed, such as 4 or 0.5.")
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _extra(text: str | None, taken: Mapping[str, Any]) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(
            f'Further options: this is no JSON{where}. Write an object, for example {{"temperature": 0.2}}.'
        ) from None
    if not isinstance(found, dict):
        raise InputError('Further options: write a JSON object, for example {"temperature": 0.2}.')
    if _holds_null(found):
        raise InputError("Further options: null cannot be kept in the pool file. Leave that option out.")
    if drop_secrets(found) != found or redact(text) != text:
        raise InputError(
            "Further options: they seem to hold a key or password. Type a key into the key field, or name its "
            "environment variable."
        )
    if twice := [name for name in found if name in taken]:
        raise InputError(
            f"Further options: {twice[0]} is given twice, here and in its own field. Remove one of them."
        )
    return found


# --- Components -------------------------------------------------------------------------------------------------


def _holds_null(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is None or any(_holds_null(part) for part in parts)


@dataclass(frozen=True, slots=True)
class Form:
    """The form's components; `by_name` are those of `FIELDS`."""

    by_name: dict[str, Any]
    key: gr.Textbox
    keep: gr.Checkbox
    key_state: gr.HTML
    models: gr.HTML
    list_models: gr.Button
    forget: gr.Button
    test: gr.Button
    stop: gr.Button
    save: gr.Button

    @property
    def remote_only(self) -> list[Any]:
        """What only remote members have, besides fields."""
        return [self.key, self.keep, self.key_state, self.models, self.list_models, self.forget]


def _number(label: str, elem_id: str, **options: Any) -> gr.Textbox:
    """A field for a number that may be empty. Not gr.Number: inside an accordion, an empty one comes back as 0."""
    return gr.Textbox(
        label=label, elem_id=elem_id, lines=1, max_lines=1, min_width=110,
        html_attributes=gr.InputHTMLAttributes(autocomplete="off"), **options,
    )  # fmt: skip


def budget_fields() -> list[Any]:
    """Calls, tokens and dollars of a run, then of a day."""
    fields = []
    for part, words in (("run", "One run"), ("day", "One day")):
        with gr.Row():
            fields += [
                _number(f"{words}: {label}", f"pool-{part}-{name}", placeholder="no limit")
                for name, label in (("calls", "calls"), ("tokens", "tokens"), ("cost", "cost ($)"))
            ]
    return fields


def _field(made: dict[str, Any], name: str, **options: Any) -> None:
    """Add the component of one of `FIELDS` to the open Blocks and to `made`."""
    place = NAMES.index(name)
    spec = FIELDS[place]
    given: dict[str, Any] = {
        "label": spec.label,
        "elem_id": f"pool-{name.replace('_', '-')}",
        "value": blank()[place],
        **options,
    }
    if spec.sort == "switch":
        made[name] = gr.Checkbox(**given, container=False)
    elif spec.sort == "text":
        made[name] = gr.Textbox(**{"lines": 1, "max_lines": 1, **given})
    else:
        made[name] = _number(**given)


def _default(name: str) -> str:
    """What holds while a field under Advanced is empty."""
    if name in ("effort", "max_tokens"):
        return {"effort": "low, medium, high, …", "max_tokens": "as the run says"}[name]
    value = getattr(Service(), name)
    return "no limit" if value is None else f"{value:g}"


def _advanced(made: dict[str, Any]) -> None:
    with gr.Accordion("Advanced", open=False, elem_id="pool-advanced"):
        for group in (
            ("effort", "max_tokens"),
            ("concurrency", "requests_per_minute", "tokens_per_minute"),
            ("connect_s", "first_token_s"),
            ("between_tokens_s", "total_s"),
            ("retries", "rest_after", "rest_s"),
        ):
            with gr.Row():
                for name in group:
                    _field(made, name, placeholder=_default(name))
        gr.HTML('<p class="tr-hold tr-group">Price in dollars per million tokens</p>', apply_default_css=False)
        with gr.Row():
            for name, shown_empty in (("input", "price list"), ("output", "price list"), ("cached", "as input")):
                _field(made, name, elem_id=f"pool-price-{name}", placeholder=shown_empty)
        _field(made, "extra", lines=3, max_lines=12, placeholder='{"temperature": 0.2}')


def form_fields() -> Form:
    """Add the form of one member to the open Blocks."""
    made: dict[str, Any] = {}
    _field(made, "name", placeholder="gpt")
    made["kind"] = gr.Radio(
        [(words, kind) for kind, words in KIND_WORDS.items()], value="openai", label="Kind", elem_id="pool-kind"
    )
    _field(made, "base_url", placeholder="http://127.0.0.1:11434/v1 (empty: the provider's own)")
    with gr.Row(elem_id="pool-model-row"):
        _field(made, "model", placeholder="as the server calls it", scale=4, min_width=160)
        list_models = gr.Button("List models", elem_id="pool-models", size="md", scale=0, min_width=120)
    models = live("html", "pool-model-list")
    _field(made, "key_env", placeholder="OPENAI_API_KEY")
    with gr.Row(elem_id="pool-key-row"):
        key = gr.Textbox(
            label="Or type the key", placeholder="kept in memory until the program ends", type="password",
            elem_id="pool-key", max_lines=1,
            html_attributes=gr.InputHTMLAttributes(autocomplete="new-password", spellcheck=False),
            scale=4, min_width=160,
        )  # fmt: skip
        forget = gr.Button("Forget key", elem_id="pool-key-forget", size="md", scale=0, min_width=120)
    keep = gr.Checkbox(label="Also keep it in the system keyring", elem_id="pool-keep", container=False)
    key_state = live("html", "pool-key-state")
    _field(made, "description", placeholder="What it is good at")
    _field(made, "enabled")
    _advanced(made)
    with gr.Row(elem_id="pool-form-buttons"):
        save = gr.Button("Save", variant="primary", elem_id="pool-save", size="md", min_width=90)
        test = gr.Button("Test", elem_id="pool-test", size="md", min_width=90)
        stop = gr.Button("Stop", variant="stop", elem_id="pool-test-stop", size="md", min_width=90, interactive=False)
    return Form(made, key, keep, key_state, models, list_models, forget, test, stop, save)
