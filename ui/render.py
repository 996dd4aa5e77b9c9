"""HTML of a run, from its `RunView`: the conversation, the lane of turns, the status line.

Pure functions of plain records, so they are tested without a server. Every text that came from a person, a model,
a file or a provider goes through `esc`; nothing is interpreted as Markdown, mathematics or HTML. The one liberty is
that fenced code becomes a block and a final `Answer:` line is set in bold, with the text itself left as it is.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trinity_core.types import (
    Failure,
    Finish,
    Limits,
    Message,
    Note,
    Role,
    Status,
    StopReason,
    Suggestion,
    Usage,
    Verdict,
)
from ui.plots import letter
from ui.view import CallView, RunView

if TYPE_CHECKING:
    from trinity_core.agents.meter import Spent
    from trinity_core.session.loading import CoordinatorStatus

_FENCE = re.compile(r"^```[^\n`]*\n(.*?)(?:^```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_FINAL = re.compile(r"^(Answer:[^\n]*)$", re.MULTILINE)

ROLE_WORDS = {Role.WORKER: "Worker", Role.THINKER: "Thinker", Role.VERIFIER: "Verifier"}
VERDICT_WORDS = {
    Verdict.ACCEPT: ("✓", "Accepted"),
    Verdict.REVISE: ("✗", "Revise"),
    Verdict.NONE: ("?", "No verdict"),
}
STATUS_WORDS = {
    Status.QUEUED: "Waiting",
    Status.RUNNING: "Running",
    Status.DONE: "Done",
    Status.FAILED: "Failed",
    Status.CANCELLED: "Stopped",
    Status.INTERRUPTED: "Interrupted",
}
STOP_WORDS = {
    StopReason.ACCEPTED: "accepted by a Verifier",
    StopReason.TURNS_EXHAUSTED: "all turns used",
    StopReason.CANCELLED: "stopped on request",
    StopReason.FAILED: "could not go on",
    StopReason.BUDGET: "budget reached",
}
FLAG_WORDS = {
    "no_worker_turn": "No Worker answered, so this is the newest other text.",
    "no_answer": "No agent produced an answer.",
}
_NEXT_STEP = {
    "rate_limit": "Wait a little, then run again, or choose another method.",
    "billing": "Check the provider account's credit.",
    "transient": "Run again; the provider had a passing problem.",
    "transport": "Check the network and the member's address, then run again.",
    "timeout": "Run again, or allow fewer tokens.",
    "truncated": "Run again; the reply broke off.",
    "auth": "Check this member's key.",
    "context_length": "Shorten the question or start a new conversation.",
    "empty": "Run again with more tokens, or choose another method.",
    "blocked": "Rephrase the question.",
    "bad_request": "Correct this member in the Pool tab, or choose another method.",
    "protocol": "Check this member's address in the Pool tab, then run again.",
    "resting": "Wait until it is called again, or choose another method.",
    "budget": "Raise the budget in the Pool tab, or wait until the day is over.",
    "attempts": "Choose another method, or enable more members in the pool.",
    "NoAgentError": "Enable more members in the pool, or run again.",
    "BackboneError": "Choose the method random or fixed meanwhile; they need no coordinator model.",
    "CheckpointError": "Choose the method random or fixed meanwhile; they need no trained head.",
}


def esc(text: object) -> str:
    """`text` so that a browser shows exactly its characters, in element content and in quoted attributes."""
    return html.escape(str(text), quote=True)


def prose(text: str) -> str:
    """A model's or a person's text as HTML that keeps every character visible.

    Lines and blanks are kept by the style sheet (`pre-wrap`).
    """
    out, end = [], 0
    for block in _FENCE.finditer(text):
        out.append(_plain(text[end : block.start()]))
        out.append(f"<pre><code>{esc(block.group(1))}</code></pre>")
        end = block.end() + (text[block.end() : block.end() + 1] == "\n")  # the block itself ends the line
    out.append(_plain(text[end:]))
    return f'<div class="prose" dir="auto">{"".join(out)}</div>'


def _plain(text: str) -> str:
    return _FINAL.sub(r'<strong class="final">\1</strong>', esc(text))


def seconds(value: float | None) -> str:
    """A duration in words: 340 ms, 2.1 s, 3 min 5 s."""
    if value is None:
        return ""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 90:
        return f"{value:.1f} s"
    return f"{int(value // 60)} min {int(value % 60)} s"


def tokens(usage: Usage) -> str:
    """Tokens in and out, as far as they are known."""
    if usage.input is None and usage.output is None:
        return ""
    into = "?" if usage.input is None else f"{usage.input:,}"
    out = "?" if usage.output is None else f"{usage.output:,}"
    return f"{into} → {out} tokens"


def money(cost: float | None, unpriced: int = 0) -> str:
    """What was paid: dollars as far as they are known, and how many calls of unknown cost there are besides.

    Nothing at all when nobody charges; what is not known is never shown as 0.
    """
    if cost is None:
        return "cost unknown" if unpriced else ""
    return f"{dollars(cost)} + {_calls(unpriced)} of unknown cost" if unpriced else dollars(cost)


def dollars(cost: float) -> str:
    """An amount to a hundredth of a cent. A smaller one does not read as nothing, and nothing is not so precise."""
    if cost == 0:
        return "$0.00"
    return "under $0.0001" if 0 < cost < 0.00005 else f"${cost:,.4f}"


def _stored(count: int) -> str:
    return f"{count} stored repl{'y' if count == 1 else 'ies'}" if count else ""


def _calls(count: int) -> str:
    return f"{count:,} call{'' if count == 1 else 's'}"


def day_total(spent: Spent, limits: Limits) -> str:
    """One line: what was spent today, and the limits of the day. Empty while nothing is, and nothing is limited."""
    limit = [
        _calls(limits.calls) if limits.calls is not None else "",
        f"{limits.tokens:,} tokens" if limits.tokens is not None else "",
        f"${limits.cost:,.2f}" if limits.cost is not None else "",
    ]
    limit = [part for part in limit if part]
    if not spent.calls and not limit:
        return ""
    used = [_calls(spent.calls)]
    if limits.tokens is not None:
        used.append(f"{spent.tokens:,} tokens")
    if spent.unpriced < spent.calls or spent.cost:
        used.insert(0, f"${spent.cost:,.2f}" if spent.cost >= 0.1 else dollars(spent.cost))
    parts = [", ".join(used)]
    if spent.unpriced:
        whose = "all" if spent.unpriced == spent.calls else f"{spent.unpriced:,}"
        parts.append(f"{whose} of unknown cost")
    if limit:
        parts.append(f"limit {', '.join(limit)}")
    return f'<p class="tr-day" data-testid="day-total">Today: {esc("; ".join(parts))}</p>'


def role_badge(role: Role | None) -> str:
    """Letter, colour and word of a role."""
    if role is None:
        return '<span class="tr-role tr-role-none"><b aria-hidden="true">·</b>Answer</span>'
    mark = f'<b aria-hidden="true">{letter(role)}</b>'
    return f'<span class="tr-role tr-role-{role.value}">{mark}{ROLE_WORDS[role]}</span>'


def verdict_badge(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    sign, word = VERDICT_WORDS[verdict]
    return f'<span class="tr-verdict tr-verdict-{verdict.value}"><b aria-hidden="true">{sign}</b> {word}</span>'


# --- The lane ---------------------------------------------------------------------------------------------


def lane(view: RunView) -> str:
    """The turns as a vertical lane of cards, failed attempts and notes at their place."""
    if not view.calls and view.started is None and view.finished is None:
        return (
            '<div class="tr-empty tr-lane-empty"><p>Each turn appears here as a card: who acts, in which role, what '
            "they said and what it led to.</p></div>"
        )
    items = [_note(note) for note in view.notes if note.turn is None]
    newest = {call.turn: call.attempt for call in view.calls}
    for index, call in enumerate(view.calls):
        items.append(card(call, newest=newest[call.turn] == call.attempt))
        last_of_turn = index + 1 == len(view.calls) or view.calls[index + 1].turn != call.turn
        if last_of_turn:
            items += [_note(note, view.calls) for note in view.notes if note.turn == call.turn]
    seen = {call.turn for call in view.calls}
    items += [_note(note) for note in view.notes if note.turn is not None and note.turn not in seen]
    items.append(_lane_end(view))
    return f'<ol class="tr-lane" aria-label="Turns">{"".join(items)}</ol>'


def card(call: CallView, *, newest: bool = True) -> str:
    """One call. The newest attempt of turn N carries the test id turn-N, earlier ones turn-N-attempt-M."""
    role = call.role.value if call.role else ""
    test_id = f"turn-{call.turn}" if newest else f"turn-{call.turn}-attempt-{call.attempt}"
    words = ROLE_WORDS[call.role] if call.role else "Answer"
    label = f"Turn {call.turn}, {words}, {call.agent}, {STATUS_WORDS[call.status]}"
    verdict = call.verdict if call.error is None else None
    attempt = f'<span class="tr-attempt">attempt {call.attempt}</span>' if call.attempt > 1 or not newest else ""
    return (
        f'<li class="tr-card tr-is-{call.status.value} tr-lane-{role or "none"}" tabindex="0" '
        f'data-testid="{test_id}" data-key="{call.turn}.{call.attempt}" data-turn="{call.turn}" '
        f'data-attempt="{call.attempt}" data-agent="{esc(call.agent)}" data-role="{role}" '
        f'data-verdict="{call.verdict.value if call.verdict else ""}" data-status="{call.status.value}" '
        f'aria-label="{esc(label)}">'
        f'<span class="tr-node" aria-hidden="true">{letter(call.role)}</span>'
        f'<header><span class="tr-turn">Turn {call.turn}</span>{attempt}{role_badge(call.role)}'
        f'<span class="tr-agent">{esc(call.agent)}</span>{verdict_badge(verdict)}'
        f"{_call_state(call)}</header>"
        f"{_suggested(call)}{_reasoning(call)}{_body(call)}{_error(call)}{_suggests(call.suggestion)}{_facts(call)}"
        "</li>"
    )


def _call_state(call: CallView) -> str:
    if call.status is Status.RUNNING:
        return '<span class="tr-state tr-busy"><i aria-hidden="true"></i>working</span>'
    if call.status is Status.DONE:
        return '<span class="tr-state tr-declined">declined</span>' if call.finish is Finish.REFUSED else ""
    return f'<span class="tr-state tr-{call.status.value}">{STATUS_WORDS[call.status].lower()}</span>'


def _body(call: CallView) -> str:
    if text := _said(call):
        return prose(text)
    if call.status is Status.RUNNING:
        return '<div class="tr-waiting">Reading the conversation…</div>'
    return ""


def _said(call: CallView) -> str:
    """What a call said; a Verifier's without the verdict in front, which the badge already shows."""
    if call.role is Role.VERIFIER and call.verdict is not None:
        head, colon, diagnosis = call.text.partition(":")
        if head.strip() == call.verdict.value:
            return diagnosis.strip() if colon else ""
    return call.text


def _reasoning(call: CallView) -> str:
    if not call.reasoning.strip():
        return ""
    return (
        f'<details class="tr-think" data-keep="think"><summary>Reasoning</summary>{prose(call.reasoning)}</details>'
    )


def _suggested(call: CallView) -> str:
    if call.followed is None or call.decision is None or call.decision.suggested is None:
        return ""
    word = "Follows" if call.followed else "Does not follow"
    return f'<p class="tr-aside">{word} the Thinker’s suggestion: {_suggestion(call.decision.suggested)}</p>'


def _suggests(suggestion: Suggestion | None) -> str:
    return "" if suggestion is None else f'<p class="tr-aside">Suggests next: {_suggestion(suggestion)}</p>'


def _suggestion(suggestion: Suggestion) -> str:
    who = " · ".join(
        part for part in (ROLE_WORDS[suggestion.role] if suggestion.role else "", suggestion.agent or "") if part
    )
    what = f": {suggestion.instruction}" if suggestion.instruction else ""
    return f"<b>{esc(who or 'anyone')}</b>{esc(what)}"


def _why(call: CallView) -> str:
    """What went wrong in a call, without the member's name in front."""
    return call.error.message.removeprefix(f"{call.agent}: ") if call.error is not None else ""


def _error(call: CallView) -> str:
    if call.error is None or call.status is Status.CANCELLED:
        return ""
    return f'<p class="tr-error" role="alert">{esc(call.error.message)}</p>'


def _facts(call: CallView) -> str:
    paid = "from stored replies" if call.reused else money(call.cost, call.unpriced)
    facts = [seconds(call.seconds), tokens(call.usage), paid]
    if call.decision is not None:
        decision = call.decision
        if call.agent in decision.agent_probs:
            facts.append(f"p(agent) {decision.agent_probs[call.agent]:.0%}")
        if decision.role.value in decision.role_probs:
            facts.append(f"p(role) {decision.role_probs[decision.role.value]:.0%}")
    if call.finish is Finish.LENGTH:
        facts.append("cut at the token limit")
    known = [esc(fact) for fact in facts if fact]
    return f"<footer>{'<i>·</i>'.join(known)}</footer>" if known else ""


def _note(note: Note, calls: Sequence[CallView] = ()) -> str:
    """A note; why a member is left out is not said again where its card says so."""
    message = note.message
    for call in calls:
        why = _why(call)
        if note.kind == "masked" and why and message.endswith(f": {why}"):
            message = f"{message.removesuffix(f': {why}')}."
            break
    return (
        f'<li class="tr-note" data-kind="{esc(note.kind)}"><span class="tr-node" aria-hidden="true">i</span>'
        f"<b>{esc(note.kind)}</b> {esc(message)}</li>"
    )


def _lane_end(view: RunView) -> str:
    if view.finished is None:
        if view.current is not None:
            return ""
        turn = (view.calls[-1].turn if view.calls else 0) + 1
        return (
            f'<li class="tr-ghost"><span class="tr-node" aria-hidden="true"></span>Turn {turn}: the coordinator '
            "reads the conversation and chooses…</li>"
        )
    finished = view.finished
    paid = money(*view.spent)
    return (
        f'<li class="tr-end tr-end-{finished.status.value}" data-testid="run-end" '
        f'data-stop-reason="{finished.stop_reason.value}"><span class="tr-node" aria-hidden="true"></span>'
        f"<b>{STATUS_WORDS[finished.status]}</b>: {STOP_WORDS[finished.stop_reason]}"
        f"{f' · {paid}' if paid else ''}</li>"
    )


# --- The conversation -------------------------------------------------------------------------------------


def conversation(view: RunView) -> str:
    """The messages so far and what is known of the newest answer, as a log."""
    parts = [_bubble(message) for message in view.messages]
    if view.finished is not None:
        parts.append(_final(view))
    elif view.started is not None:
        parts.append(_streaming(view))
    return f'<div class="tr-chat" role="log" aria-label="Conversation">{"".join(parts)}</div>'


def _bubble(message: Message) -> str:
    who = {"user": "You", "assistant": "Trinity", "system": "System"}[message.role]
    return f'<div class="tr-msg tr-{message.role}"><span class="tr-who">{who}</span>{prose(message.content)}</div>'


def _streaming(view: RunView) -> str:
    call = view.current or (view.calls[-1] if view.calls else None)
    if call is None:
        inner = '<div class="tr-waiting">Choosing who begins…</div>'
    else:
        body = prose(call.text) if call.text else '<div class="tr-waiting">Reading the conversation…</div>'
        inner = f'<div class="tr-by">Turn {call.turn} {role_badge(call.role)} {esc(call.agent)}</div>{body}'
    return (
        '<div class="tr-msg tr-assistant tr-live" data-testid="answer-live"><span class="tr-who">Trinity</span>'
        f"{inner}</div>"
    )


def _final(view: RunView) -> str:
    finished = view.finished
    assert finished is not None
    parts = ['<span class="tr-who">Trinity</span>']
    cut = view.calls[-1] if view.calls and view.calls[-1].status is Status.CANCELLED else None
    partial = cut.text if cut is not None else ""
    if finished.answer and not (partial and finished.flag):
        parts.append(prose(finished.answer))
    if cut is not None and partial:
        parts.append(f'<div class="tr-by">What had arrived from {esc(cut.agent)}</div>{prose(partial)}')
    if finished.error is not None:
        parts.append(_problem(view, finished.error))
    elif not finished.answer and not partial:
        parts.append(f'<p class="tr-aside">{FLAG_WORDS["no_answer"]}</p>')
    parts.append(_origin(view))
    kind = "tr-failed" if finished.status is Status.FAILED else ""
    return f'<div class="tr-msg tr-assistant {kind}" data-testid="answer-final">{"".join(parts)}</div>'


def _problem(view: RunView, failure: Failure) -> str:
    """Member, turn, cause and next step of a failed run."""
    failed = next((call for call in reversed(view.calls) if call.status is Status.FAILED), None)
    where = f"Turn {failed.turn}, {failed.agent}: " if failed else ""
    several = len({call.agent for call in view.calls if failed and call.turn == failed.turn and call.error}) > 1
    kind = failed.error.kind if failed and failed.error and not several else failure.kind
    step = _NEXT_STEP.get(kind) or _NEXT_STEP.get(failure.kind, "Run again, or choose another method.")
    message = failure.message
    if failed is not None and failed.role is not None and message.count(_why(failed)) > 1:  # also as the only cause
        message = message.replace(f" {failed.agent} as {failed.role.value}: {_why(failed)}", "")
    return (
        f'<div class="tr-problem" role="alert"><b>{esc(where)}the run could not go on.</b> {esc(message)}'
        f'<p class="tr-next">What to do: {esc(step)}</p></div>'
    )


def _origin(view: RunView) -> str:
    finished = view.finished
    assert finished is not None
    words = []
    call = next((c for c in reversed(view.calls) if c.turn == finished.answer_turn and not c.error), None)
    if finished.answer and call is not None:
        role = ROLE_WORDS[call.role] if call.role else "answer"
        words.append(f"from turn {call.turn}, {esc(call.agent)} as {role}")
    words.append(STOP_WORDS[finished.stop_reason])
    if finished.flag in FLAG_WORDS and finished.answer:
        words.append(FLAG_WORDS[finished.flag])
    return f'<p class="tr-origin">{" · ".join(words)}</p>'


# --- The status line --------------------------------------------------------------------------------------


def status_line(view: RunView, now: float) -> str:
    """State, turn, elapsed time and why it ended. While it runs the page's clock goes on from `data-elapsed`."""
    status = view.status
    elapsed = 0.0
    if view.finished is not None:
        elapsed = view.finished.totals.seconds or max(
            0.0, view.finished.at - view.started.at if view.started else 0.0
        )
    elif view.started is not None:
        elapsed = max(0.0, now - view.started.at)
    words = [f"<b>{STATUS_WORDS[status]}</b>"]
    if view.finished is not None:
        totals = view.finished.totals
        words.append(STOP_WORDS[view.finished.stop_reason])
        words.append(f"{totals.turns} turn{'s' if totals.turns != 1 else ''}")
        words += [
            text
            for text in (tokens(totals.usage), money(*view.spent), _stored(sum(call.reused for call in view.calls)))
            if text
        ]
    elif view.started is not None:
        turn = view.calls[-1].turn if view.calls else 1
        words.append(f"turn {turn} of at most {view.started.params.max_turns}")
        if view.current is not None:
            role = f" as {ROLE_WORDS[view.current.role]}" if view.current.role else ""
            words.append(f"{esc(view.current.agent)}{role}")
        words += [text for text in (money(*view.spent),) if text]
    running = status in (Status.RUNNING, Status.QUEUED)
    clock = f'<time class="tr-clock" data-elapsed="{elapsed:.1f}">{seconds(elapsed)}</time>'
    return (
        f'<div class="tr-status tr-status-{status.value}" data-testid="run-state" data-status="{status.value}" '
        f'data-running="{int(running)}"><span class="tr-dot" aria-hidden="true"></span>'
        f'<span role="status">{" · ".join(words)}</span>{clock}</div>'
    )


def coordinator_line(status: CoordinatorStatus) -> str:
    """How the coordinator is doing: loading with its progress, ready, untrained or failed."""
    words = {"loading": "Coordinator loading", "ready": "Coordinator ready", "failed": "Coordinator failed"}
    parts = [f"<b>{words.get(status.state, 'Coordinator untrained')}</b>"]
    if status.state != "ready" and status.message:
        parts.append(esc(status.message))
    if status.backbone:
        parts.append(esc(status.backbone))
    if status.checkpoint_id:
        parts.append(f'<span title="{esc(status.checkpoint_id)}">head {esc(status.checkpoint_id[:10])}</span>')
    bar = ""
    if status.state == "loading":
        bar = f'<progress max="1" value="{min(max(status.fraction, 0.0), 1.0):.2f}" aria-label="Loading"></progress>'
    return (
        f'<div class="tr-coordinator tr-coordinator-{status.state}" data-testid="coordinator" '
        f'data-state="{status.state}"><span class="tr-dot" aria-hidden="true"></span>'
        f'<span role="status" title="{esc(status.message or "")}">{" · ".join(parts)}</span>{bar}</div>'
    )
