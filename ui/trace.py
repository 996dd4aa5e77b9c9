"""HTML of stored traces: the table of a page of them, and everything that is known of one.

Pure functions of the store's records. A trace may have come from anywhere, so every text is escaped here too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from storage.records import RunPage, RunQuery, RunSummary, StoredRun, StoredTurn
from storage.replay import events_of
from storage.rows import ROLE_LETTERS, SEPARATOR
from trinity_core.types import Decision, Status
from trinity_core.wire import plain
from ui import render
from ui.render import esc
from ui.view import RunView

COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("created_at", "Started", ""),
    ("question", "Question", ""),
    ("roles", "Roles", "tr-wide"),
    ("agents", "Agents", "tr-wider"),
    ("verdict", "Verdict", ""),
    ("stop_reason", "Ended", "tr-wider"),
    ("tokens", "Tokens", "tr-wider tr-num"),
    ("cost", "Cost", "tr-wider tr-num"),
    ("seconds", "Took", "tr-wider tr-num"),
)
"""Sort key, heading, and the classes by which the style sheet leaves the column out where there is no room."""


_ROLES = {letter: role for role, letter in ROLE_LETTERS.items()}
_CLOSE = '<button type="button" class="tr-button tr-close" data-act="close" data-testid="trace-close">Close</button>'


def moment(at: float | None) -> str:
    """A UTC time with seconds, or the empty string."""
    if at is None:
        return ""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _time(at: float | None) -> str:
    """As `moment`; the page's script shows it in the reader's time zone."""
    if at is None:
        return ""
    iso = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    return f'<time datetime="{iso}" title="{moment(at)} UTC">{moment(at)}</time>'


# --- The list ---------------------------------------------------------------------------------------------


def table(page: RunPage, query: RunQuery, selected: str | None) -> str:
    """One page of traces. Rows carry their id; the headings sort."""
    if not page.rows:
        return _no_rows(query)
    heads = "".join(_head(key, word, width, query) for key, word, width in COLUMNS)
    rows = "".join(_row(row, selected) for row in page.rows)
    first = (page.page - 1) * page.page_size + 1
    last = first + len(page.rows) - 1
    return (
        f'<div class="tr-table-box"><table class="tr-table"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>'
        f'</table></div><p class="tr-count" data-testid="traces-count">{first:,}–{last:,} of {page.total:,}</p>'
    )


def _no_rows(query: RunQuery) -> str:
    if query == RunQuery(
        owner=query.owner, sort=query.sort, descending=query.descending, all_owners=query.all_owners
    ):
        return (
            '<div class="tr-empty tr-lane-empty"><p>There are no traces of this browser yet. Every question you run '
            "is kept here; runs of the command line and of /v1 are among the traces of all browsers.</p>"
            '<p><button type="button" class="tr-button" data-tab="tab-run">Ask a question</button></p></div>'
        )
    return (
        '<div class="tr-empty tr-lane-empty"><p>No trace matches.</p><p><button type="button" class="tr-button" '
        'data-act="clear">Clear search and filters</button></p></div>'
    )


def _head(key: str, word: str, width: str, query: RunQuery) -> str:
    on = key == query.sort
    arrow = ("↓" if query.descending else "↑") if on else ""
    order = f' aria-sort="{"descending" if query.descending else "ascending"}"' if on else ""
    return (
        f'<th scope="col"{order} class="{width}"><button type="button" data-act="sort" data-id="{key}">{word} '
        f'<span aria-hidden="true">{arrow}</span></button></th>'
    )


def _row(row: RunSummary, selected: str | None) -> str:
    verdict = render.verdict_badge(row.verdict) or '<span class="tr-dim">–</span>'
    cells = (
        f'<td class="tr-dim">{_time(row.created_at)}</td>',
        f'<td class="tr-q" dir="auto"><span class="tr-two">{esc(row.question)}</span></td>',
        f'<td class="tr-wide">{_chips(row)}</td>',
        f'<td class="tr-wider tr-agents" title="{esc(row.agents)}">{esc(", ".join(_members(row)))}</td>',
        f"<td>{verdict}</td>",
        f'<td class="tr-wider tr-ended">{_ended(row)}</td>',
        f'<td class="tr-wider tr-dim tr-num">{"" if row.tokens is None else f"{row.tokens:,}"}</td>',
        f'<td class="tr-wider tr-dim tr-num">{render.money(row.cost, row.unpriced)}</td>',
        f'<td class="tr-wider tr-dim tr-num">{render.seconds(row.seconds)}</td>',
    )
    chosen = "true" if row.id == selected else "false"
    return (
        f'<tr data-key="{esc(row.id)}" data-id="{esc(row.id)}" data-act="open" tabindex="0" '
        f'aria-selected="{chosen}">{"".join(cells)}</tr>'
    )


def _agents(row: RunSummary) -> list[str]:
    return row.agents.split(f" {SEPARATOR} ") if row.agents else []


def _members(row: RunSummary) -> list[str]:
    """Who took part, each once, in the order of their first turn."""
    return list(dict.fromkeys(_agents(row)))


def _chips(row: RunSummary) -> str:
    """The roles turn by turn as letters in their colours; each says who played it."""
    letters = row.roles.split(SEPARATOR) if row.roles else []
    agents = _agents(row)
    chips = []
    for turn, letter in enumerate(letters, 1):
        role = _ROLES.get(letter)
        who = f" by {agents[turn - 1]}" if len(agents) == len(letters) else ""
        words = esc(f"Turn {turn}: {render.ROLE_WORDS[role] if role else 'answer'}{who}")
        chips.append(
            f'<i class="tr-chip tr-role-{role.value if role else "none"}" role="img" title="{words}" '
            f'aria-label="{words}">{esc(letter)}</i>'
        )
    return f'<span class="tr-chips">{"".join(chips)}</span>' if chips else '<span class="tr-dim">–</span>'


def _ended(row: RunSummary) -> str:
    """The status, and for a finished run why it ended."""
    status = render.STATUS_WORDS[row.status]
    if row.status is not Status.DONE or row.stop_reason is None:
        return status
    return f"{status}: {render.STOP_WORDS[row.stop_reason]}"


# --- One trace --------------------------------------------------------------------------------------------


def detail(run: StoredRun, *, confirm: bool = False) -> str:
    """Everything that is stored of `run`. `confirm` asks whether it is to be deleted.

    Of a run in the bin it is said only that it is there, with the way back.
    """
    if run.deleted_at is not None:
        return deleted(run.id, f"The trace “{run.question[:80]}” was deleted")
    view = RunView.of(events_of(run))
    turns = "".join(_turn(turn) for turn in run.turns)
    return (
        f'<article class="tr-detail" data-key="{esc(run.id)}" data-testid="trace" data-id="{esc(run.id)}">'
        f'<h2 dir="auto">{esc(run.question[:300])}</h2>{_links(run, confirm)}'
        f"<section><h3>Conversation</h3>{render.conversation(view)}</section>"
        f"<section><h3>Turns</h3>{render.lane(view)}</section>"
        f"<section><h3>Run</h3>{_facts(run)}</section>"
        f"<section><h3>Every call in full</h3>{turns or '<p>No call was made.</p>'}</section>"
        f"<section><h3>Settings and pool</h3>{_fold('Parameters', _json(run.params))}"
        f"{_fold(f'Pool of {len(run.pool)}', _json(run.pool))}</section></article>"
    )


def nothing(message: str) -> str:
    """What the pane says when there is no trace to show."""
    return f'<div class="tr-empty tr-lane-empty"><p>{esc(message)}</p><p class="tr-links">{_CLOSE}</p></div>'


def deleted(run_id: str, message: str = "The trace was deleted") -> str:
    """What the pane says of a deleted trace, with the way back."""
    return (
        f'<div class="tr-empty tr-lane-empty" role="status"><p>{esc(message)}.</p><p class="tr-links">'
        f'<button type="button" class="tr-button" data-act="undo" data-id="{esc(run_id)}" '
        f'data-testid="trace-undo">Undo</button>{_CLOSE}</p></div>'
    )


def _links(run: StoredRun, confirm: bool) -> str:
    run_id = esc(run.id)
    if confirm:
        return (
            '<div class="tr-problem" role="alertdialog" aria-label="Delete this trace?"><b>Delete this trace?</b> '
            'You can undo it right afterwards.<div class="tr-links">'
            f'<button type="button" class="tr-button tr-danger" data-act="delete-yes" '
            f'data-id="{run_id}" data-testid="trace-delete-yes">Delete</button><button '
            f'type="button" class="tr-button" data-act="open" data-id="{run_id}">Keep</button></div></div>'
        )
    return (
        f'<div class="tr-links"><button type="button" class="tr-button" data-copy="?trace={run_id}&amp;tab=traces" '
        f'data-testid="trace-link">Copy link</button><button type="button" class="tr-button" data-act="delete" '
        f'data-id="{run_id}" data-testid="trace-delete">Delete…</button>{_CLOSE}</div>'
    )


def _facts(run: StoredRun) -> str:
    totals = run.totals
    facts: list[tuple[str, str]] = [
        ("Id", esc(run.id)),
        ("Status", render.STATUS_WORDS[run.status]),
        ("Ended because", render.STOP_WORDS[run.stop_reason] if run.stop_reason else ""),
        ("Flag", esc(run.flag or "")),
        ("Method", esc(run.method)),
        ("Source", run.source.value),
        ("Started", _time(run.created_at)),
        ("Ended", _time(run.finished_at)),
        ("Checkpoint", esc(run.checkpoint_id or "none")),
        ("Transcript", esc(run.transcript_version or "")),
        ("Prompts", esc(run.prompt_version or "")),
        ("Seed", "" if run.seed is None else str(run.seed)),
        ("Forked from", esc(run.parent_run_id or "") + (f", turn {run.fork_turn}" if run.fork_turn else "")),
    ]
    if totals is not None:
        facts += [
            ("Turns and calls", f"{totals.turns} turns, {totals.calls} calls"),
            ("Tokens", render.tokens(totals.usage)),
            ("Cost", render.money(totals.cost, totals.unpriced)),
            ("Time taken", render.seconds(totals.seconds)),
            ("Coordinator's part", render.seconds(totals.encode_ms / 1000) if totals.encode_ms else ""),
        ]
    if run.error is not None:
        facts.append(("Error", f"{esc(run.error.kind)}: {esc(run.error.message)}"))
    facts += [(f"Label {esc(label.kind)}", esc(label.value)) for label in run.labels]
    return _list(facts)


def _list(facts: Iterable[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{word}</dt><dd>{value}</dd>" for word, value in facts if value) + "</dl>"


def _turn(turn: StoredTurn) -> str:
    decision = turn.decision
    facts = [
        ("Finish", turn.finish.value if turn.finish else "not finished"),
        ("Verdict", turn.verdict.value if turn.verdict else ""),
        ("Error", f"{esc(turn.error.kind)}: {esc(turn.error.message)}" if turn.error else ""),
        ("Started", _time(turn.started_at)),
        ("Time taken", render.seconds(turn.seconds)),
        ("First token after", render.seconds(turn.first_token_s)),
        ("Tokens", _usage(turn)),
        ("Calls", str(turn.calls) if turn.calls != 1 and not turn.reused else ""),
        ("Cost", "from stored replies" if turn.reused else render.money(turn.cost, turn.unpriced)),
        ("Request id", esc(turn.request_id or "")),
    ]
    parts = [_list(facts)]
    if decision is not None:
        parts.append(_decision(decision))
    messages = turn.request.get("messages")
    for message in messages if isinstance(messages, list) else []:
        if isinstance(message, Mapping):
            parts.append(_fold(f"Sent: {message.get('role', '')} prompt", esc(message.get("content", ""))))
    others = {key: value for key, value in turn.request.items() if key != "messages"}
    parts += [_fold("Sent: settings", _json(others))] if others else []
    parts += [_fold("Raw output", esc(turn.raw))] if turn.raw else []
    parts += [_fold("Reasoning", esc(turn.reasoning))] if turn.reasoning else []
    if turn.hidden:
        parts.append(f'<p class="tr-aside">Hidden state: {len(turn.hidden) // 2} numbers.</p>')
    attempt = f", attempt {turn.attempt}" if turn.attempt > 1 or turn.error else ""
    name = f"Turn {turn.turn}{attempt}"
    return (
        f'<details class="tr-call" data-key="{turn.turn}.{turn.attempt}" '
        f'data-testid="call-{turn.turn}-{turn.attempt}">'
        f"<summary>{name} {render.role_badge(turn.role)} {esc(turn.agent)} "
        f"{render.verdict_badge(turn.verdict if turn.error is None else None)}"
        f"</summary>{''.join(parts)}</details>"
    )


def _usage(turn: StoredTurn) -> str:
    words = [render.tokens(turn.usage)]
    words += [f"{turn.usage.cached:,} cached"] if turn.usage.cached is not None else []
    words += [f"{turn.usage.reasoning:,} reasoning"] if turn.usage.reasoning is not None else []
    return ", ".join(word for word in words if word)


def _decision(decision: Decision) -> str:
    """Logits, probabilities, masks and margins as a table with bars, and whether a suggestion was followed."""
    rows = [
        *_meter("agent", decision.agent_logits, decision.agent_probs, decision.agent, decision.masked),
        *_meter("role", decision.role_logits, decision.role_probs, decision.role.value, decision.masked),
    ]
    facts = [
        ("Chosen by", {"argmax": "largest logit", "sample": "a draw", "fixed": "a rule"}[decision.mode.value]),
        ("Margin", ", ".join(f"{esc(name)} {value:+.3f}" for name, value in decision.margin.items())),
        ("Own choice", f"{esc(decision.own_agent)} as {decision.own_role.value}"),
        ("Suggestion", _suggested(decision)),
        ("Draws", ", ".join(f"{draw:.6f}" for draw in decision.draws)),
        ("Checkpoint", esc(decision.checkpoint_id or "")),
        ("Encoding", f"{decision.encode_ms:.0f} ms, {decision.tokens:,} tokens, {decision.cached_tokens:,} cached"),
    ]
    grid = ""
    if rows:
        grid = (
            '<table class="tr-meter"><thead><tr><th scope="col">Choice</th><th scope="col" class="tr-num">Logit</th>'
            '<th scope="col" class="tr-num">Probability</th><td></td></tr></thead><tbody>' + "".join(rows)
        ) + "</tbody></table>"
    return grid + _list(facts)


def _suggested(decision: Decision) -> str:
    if decision.suggested is None:
        return ""
    asked = decision.suggested
    held = asked.role in (None, decision.role) and asked.agent in (None, decision.agent)
    what = " · ".join(
        esc(part) for part in (asked.role.value if asked.role else "", asked.agent, asked.instruction) if part
    )
    return f"{what} ({'followed' if held else 'not followed'})"


def _meter(
    kind: str, logits: Mapping[str, float], probs: Mapping[str, float], chosen: str, masked: Mapping[str, str]
) -> Iterable[str]:
    for name, logit in sorted(logits.items(), key=lambda pair: -pair[1]):
        reason = masked.get(f"{kind}:{name}")
        prob = probs.get(name, 0.0)
        marks = ("tr-chosen " if name == chosen else "") + ("tr-masked" if reason else "")
        words = " (chosen)" if name == chosen else ""
        words += f" (masked: {esc(reason)})" if reason else ""
        yield (
            f'<tr class="{marks.strip()}"><th scope="row">{esc(name)}{words}</th><td class="tr-num">{logit:+.3f}</td>'
            f'<td class="tr-num">{prob:.1%}</td><td class="tr-bar"><i style="width:{100 * prob:.1f}%"></i></td></tr>'
        )


def _fold(title: str, escaped: str) -> str:
    body = f'<div class="tr-raw" dir="auto">{escaped}</div>'
    return f'<details class="tr-fold"><summary>{esc(title)}</summary>{body}</details>'


def _json(value: Any) -> str:
    return esc(json.dumps(plain(value), indent=2, ensure_ascii=False))
