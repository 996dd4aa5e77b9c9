"""HTML of the Pool tab: the members, what is offered, the head's rows, and how a test went.

Pure functions of plain records. A key never reaches this module, only its `KeyState`; every text from a person, a
file or a provider goes through `esc`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trinity_core.agents.discovery import Offer
from trinity_core.agents.keys import KeyState, show
from trinity_core.agents.meter import Spent
from trinity_core.agents.pool import KINDS
from trinity_core.types import AgentSpec, Finish, Reply
from trinity_core.wire import redact
from ui.render import dollars, esc, money, prose, seconds, tokens
from ui.rows import Row, Rows

KIND_WORDS = {
    "openai": "OpenAI-compatible",
    "anthropic": "Anthropic",
    "gemini": "Gemini",
    "gguf": "GGUF file",
    "transformers": "Transformers model",
    "smollm2": "SmolLM2 (embedded)",
    "symbolic": "Mathematics (embedded)",
    "lexical": "Letters and words (embedded)",
    "calendar": "Dates and units (embedded)",
}
_ROW_WORDS = {
    "trained": ("✓", "trained", "The head was trained for this member."),
    "untrained": ("~", "average", "The mean of the other rows: not trained yet."),
    "missing": ("✗", "none", "The head has no row for this member."),
    "unknown": ("?", "unknown", "The head could not be read."),
}
_REST_WORDS = {"open": "resting", "half-open": "half-open"}
_REMOTE = ("Model", "Key", "$ per million")
_ASIDE = ' class="tr-local"'
"""Marks what says nothing of a local member, so that a narrow page can leave it out."""


@dataclass(frozen=True, slots=True)
class Member:
    """One row of the table. `price` is in dollars per million tokens, input and output; None: unknown.

    `rest` is None while the member may be called, else "open" or "half-open"; `why` says what happened."""

    spec: AgentSpec
    key: KeyState | None = None
    price: tuple[float, float] | None = None
    row: Row = "unknown"
    rest: str | None = None
    why: str = ""

    @property
    def remote(self) -> bool:
        return KINDS[self.spec.kind].remote


def table(members: Sequence[Member], editing: str | None = None) -> str:
    """Every member in order, with what can be done to it."""
    heads = "".join(
        f'<th scope="col">{head}</th>'
        for head in ("Member", "Model", "Key", "$ per million", "State", "Row", '<span class="tr-sr">Actions</span>')
    )
    rows = "".join(
        _member(member, place, len(members), member.spec.name == editing) for place, member in enumerate(members)
    )
    return (
        '<div class="tr-table-box"><table class="tr-table tr-members"><caption class="tr-sr">Members of the pool'
        f"</caption><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _member(member: Member, place: int, count: int, editing: bool) -> str:
    spec = member.spec
    cells = (
        ("Member", _name(spec)),
        ("Model", _model(spec)),
        ("Key", _key(member)),
        ("$ per million", _price(member)),
        ("State", _state(member)),
        ("Row", _row(member)),
        ("", _actions(spec, place, count)),
    )
    filled = "".join(
        f'<td data-label="{label}"{_ASIDE if not member.remote and label in _REMOTE else ""}>{cell}</td>'
        for label, cell in cells
    )
    marks = (' class="tr-off"' if not spec.enabled else "") + (' aria-selected="true"' if editing else "")
    why = ""
    if spec.enabled and member.rest and member.why:
        why = f'<tr class="tr-why"><td colspan="7">{esc(member.why)}</td></tr>'
    return f'<tr data-member="{esc(spec.name)}"{marks}>{filled}</tr>{why}'


def _name(spec: AgentSpec) -> str:
    kind = esc(KIND_WORDS.get(spec.kind, spec.kind))
    title = f' title="{esc(f"{spec.name}: {spec.description}" if spec.description else spec.name)}"'
    return f'<span{title}><b class="tr-agent">{esc(spec.name)}</b><span class="tr-kind">{kind}</span></span>'


def _model(spec: AgentSpec) -> str:
    where = f'<span class="tr-where">{esc(spec.base_url)}</span>' if spec.base_url else ""
    title = esc("\n".join(part for part in (spec.model, spec.base_url) if part))
    return f'<span title="{title}"><span class="tr-two">{esc(spec.model or "–")}</span>{where}</span>'


def _key(member: Member) -> str:
    if member.key is None:
        return '<span class="tr-dim" title="No key is needed">–</span>'
    words = show(member.key)
    if member.key.is_set:
        return f"<span>{esc(words)}</span>"
    short, _, advice = words.partition(":")
    needed = member.spec.key_env is not None
    return f'<span class="{"tr-warn" if needed else "tr-dim"}" title="{esc(advice.strip())}">{esc(short)}</span>'


def _price(member: Member) -> str:
    if not member.remote:
        return "free"
    if member.price is None:
        return '<span class="tr-warn" title="Set a price under Advanced to count what it costs.">unknown</span>'
    into, out = member.price
    words = [f"{rate:,.4f}".rstrip("0").rstrip(".") for rate in (into, out)]
    return "free" if into == out == 0 else f"{words[0]}&nbsp;in · {words[1]}&nbsp;out"


def _state(member: Member) -> str:
    spec = member.spec
    switch = (
        f'<button type="button" role="switch" class="tr-switch" aria-checked="{str(spec.enabled).lower()}" '
        f'aria-label="{esc(spec.name)} takes part" data-act="toggle" data-id="{esc(spec.name)}"><i></i></button>'
    )
    if not spec.enabled:
        word = '<span class="tr-dim">off</span>'
    elif member.rest in _REST_WORDS:
        word = f'<span class="tr-warn">{_REST_WORDS[member.rest]}</span>'
    else:
        word = "ok"
    return f'<span class="tr-state-cell">{switch}{word}</span>'


def _row(member: Member) -> str:
    sign, word, title = _ROW_WORDS[member.row]
    warn = "" if member.row == "trained" else " tr-warn"
    return f'<span class="tr-row{warn}" title="{title}"><b aria-hidden="true">{sign}</b> {word}</span>'


def _actions(spec: AgentSpec, place: int, count: int) -> str:
    name = esc(spec.name)

    def button(act: str, sign: str, label: str, off: bool = False) -> str:
        return (
            f'<button type="button" class="tr-button" data-act="{act}" data-id="{name}" aria-label="{label} {name}" '
            f'title="{label}"{" disabled" if off else ""}>{sign}</button>'
        )

    return (
        '<span class="tr-actions">'
        + button("edit", "Edit", "Edit")
        + button("up", "↑", "Move up", place == 0)
        + button("down", "↓", "Move down", place == count - 1)
        + button("remove", "✕", "Remove")
        + "</span>"
    )


def rows_notice(members: Sequence[Member], rows: Rows) -> str:
    """What the pool means for the head: members without a trained row, and what can be done about it."""
    if rows.problem:
        return notice(rows.problem, kind="warn")
    if rows.backbones:
        head, used = rows.backbones
        return notice(
            f"The head was trained on the backbone {head}, not on {used}: it does not decide here. Train one: "
            "python app.py train --method sft --deploy",
            kind="warn",
        )
    missing = [m.spec.name for m in members if m.row == "missing" and m.spec.enabled]
    fresh = [m.spec.name for m in members if m.row == "untrained" and m.spec.enabled]
    parts = []
    if missing and not any(m.row in ("trained", "untrained") for m in members if m.spec.enabled):
        parts.append(
            notice(
                "The head knows none of these members, so the coordinator is untrained and decides uniformly. Train "
                "one for this pool: python app.py train --method sft --deploy",
                kind="warn",
            )
        )
    elif missing:
        parts.append(
            notice(
                f"No trained row for {_some(missing)}. Until there is one the coordinator is untrained and "
                "decides uniformly. An average row lets the trained rows decide again; a new member then counts as a "
                "typical one.",
                kind="warn",
                buttons=(("extend", "", "Give new members an average row"),),
            )
        )
    if fresh:
        parts.append(
            notice(
                f"Average rows, not trained yet: {_some(fresh)}. The head cannot tell them apart until it is "
                "trained for this pool: python app.py train --method sft --deploy",
            )
        )
    return "".join(parts)


def _some(names: Sequence[str], most: int = 6) -> str:
    """The names, of many only the first ones; the table marks each."""
    rest = len(names) - most
    return ", ".join(names) if rest < 2 else f"{', '.join(names[:most])} and {rest} others"


def notice(
    text: str, *, kind: Literal["info", "done", "warn", "problem"] = "info",
    buttons: Iterable[tuple[str, str, str]] = (), more: str = "",
) -> str:  # fmt: skip
    """A sentence with buttons (act, id, label) below it. `more` is HTML that is put in as it is."""
    made = "".join(
        f'<button type="button" class="tr-button" data-act="{act}" data-id="{esc(target)}" '
        f'data-testid="pool-{act}">{esc(label)}</button>'
        for act, target, label in buttons
    )
    role = "alert" if kind == "problem" else "status"
    links = f'<div class="tr-links">{made}</div>' if made else ""
    body = f"<p>{esc(text)}</p>{more}{links}"
    return f'<div class="tr-notice tr-notice-{kind}" role="{role}" data-kind="{kind}">{body}</div>'


def problem(error: Exception, name: str = "") -> str:
    """An error for the page, with the member's name before it unless it is there already."""
    text = redact(str(error))
    if name and name not in text.split(":")[0]:
        text = f"{name}: {text}"
    return notice(text, kind="problem")


def offers(found: Sequence[Offer], looked: bool) -> str:
    """Keys that are there and servers that answer, each of which fills the form with one click."""
    buttons = "".join(
        f'<button type="button" class="tr-example" data-act="offer" data-id="{number}"><b>{esc(offer.title)}</b> '
        f"{esc(offer.why)}</button>"
        for number, offer in enumerate(found)
    )
    if buttons:
        return f'<div class="tr-examples" role="group" aria-label="Found here">{buttons}</div>'
    words = (
        "No key of a known provider is in the environment, and no local server answers on the usual ports. Add a "
        "member by hand, or start a server such as Ollama and look again."
        if looked
        else "Looking for keys and local servers…"
    )
    return f'<p class="tr-aside">{words}</p>'


def form_title(name: str | None) -> str:
    """The heading of the form; the page scrolls to it where it is out of sight."""
    words = f"Edit {esc(name)}" if name else "New member"
    return f'<h2 class="tr-form-title" tabindex="-1">{words}</h2>'


def models(names: Sequence[str], chosen: str) -> str:
    """The models of a server as a native list, which keyboards and screen readers know."""
    if not names:
        return ""
    options = "".join(
        f'<option value="{esc(name)}"{" selected" if name == chosen else ""}>{esc(name)}</option>' for name in names
    )
    return (
        '<div class="tr-filters"><select name="model" data-filter="model" aria-label="Models of this server">'
        f'<option value="">{len(names)} models: choose one</option>{options}</select></div>'
    )


def today(spent: Spent | None) -> str:
    """What was spent since midnight, as far as it is known."""
    if spent is None:
        return ""
    known = None if spent.unpriced == spent.calls and spent.calls and not spent.cost else spent.cost
    calls = f"{spent.calls:,} call{'' if spent.calls == 1 else 's'}"
    words = (calls, f"{spent.tokens:,} tokens", money(known, spent.unpriced))
    return f'<p class="tr-aside">Spent today: {" · ".join(words)}</p>'


# --- A test ---------------------------------------------------------------------------------------------------


def testing(name: str, text: str, passed: float) -> str:
    """A test under way: the first of what has arrived."""
    body = prose(text) if text else ""
    words = "Answering" if text else "Waiting for the first token"
    return (
        '<div class="tr-notice" role="status" data-kind="testing"><p><span class="tr-busy"><i></i>Testing '
        f"{esc(name)}</span> {words} · {seconds(passed)}</p>{body}</div>"
    )


def tested(name: str, reply: Reply, text: str, cost: str) -> str:
    """A test that ended well: latency, what came, what it cost."""
    words = [f"{name} answered in {seconds(reply.seconds)}"]
    if reply.first_token_s is not None:
        words.append(f"first token after {seconds(reply.first_token_s)}")
    words += [part for part in (tokens(reply.usage), cost) if part]
    more = prose(text) if text.strip() else ""
    if not text.strip():
        spent = " on reasoning" if reply.reasoning or reply.finish is Finish.LENGTH else ""
        words.append(f"it used its tokens{spent} and said nothing visible; runs allow it more")
    elif reply.finish is Finish.REFUSED:
        words.append("it declined this question")
    more += "".join(f'<p class="tr-aside">{esc(warning)}</p>' for warning in reply.warnings)
    return notice(" · ".join(words), kind="done", more=more)


def cost_words(reply: Reply, remote: bool) -> str:
    """What the test cost; unknown is said, not shown as nothing."""
    if not remote:
        return "free"
    if reply.cost is not None:
        tiny = 5e-7 <= reply.cost < 1e-4
        return f"${reply.cost:.6f}".rstrip("0") if tiny else dollars(reply.cost)
    return "cost unknown"


def ready(names: Mapping[str, str]) -> str:
    """The ready pools: one button each, by file name."""
    buttons = "".join(
        f'<button type="button" class="tr-example" data-act="ready" data-id="{esc(name)}">{esc(words)}</button>'
        for name, words in names.items()
    )
    return f'<div class="tr-examples" role="group" aria-label="Ready pools">{buttons}</div>'
