"""What the Train tab shows as markup: status, preflight, the list of trainings, and what deploying would mean.

Pure functions; everything from outside is escaped. Two accuracies are only called different when their 95 %
intervals do not overlap: otherwise the comparison is inconclusive, whichever number is larger.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from trinity_core.training.plan import Preflight
from trinity_core.training.rollout import wilson as score_interval
from trinity_core.types import Validation
from ui.members import notice
from ui.render import dollars, esc
from ui.render import tokens as token_words
from ui.training import BUSY, Record, State, TrainingManager, TrainingStatus
from ui.trainplots import CURVE, FINAL

Verdict = Literal["better", "worse", "inconclusive", "unknown"]

STATE_WORDS: Mapping[State, str] = {
    "idle": "Idle",
    "preparing": "Preparing…",
    "running": "Training",
    "pausing": "Pausing…",
    "paused": "Paused",
    "stopping": "Stopping…",
    "done": "Done",
    "cancelled": "Stopped",
    "failed": "Failed",
    "interrupted": "Interrupted",
}
_DOTS: Mapping[State, str] = {
    "done": "done",
    "failed": "failed",
    "cancelled": "cancelled",
    "paused": "interrupted",
    "interrupted": "interrupted",
    "idle": "idle",
}
METHOD_WORDS = {
    "evolve": "Evolution (sep-CMA-ES)",
    "sft": "Supervised",
    "random": "Random search",
    "reinforce": "REINFORCE",
}


@dataclass(frozen=True, slots=True)
class Held:
    """A held-out accuracy on n tasks with its 95 % interval."""

    accuracy: float
    low: float
    high: float
    n: int


def wilson(accuracy: float, n: int) -> tuple[float, float]:
    """The 95 % score interval (Wilson 1927) of a share measured on n tasks."""
    return score_interval(accuracy * n, n) if n > 0 else (0.0, 1.0)


def held(record: Record) -> Held | None:
    """The accuracy to quote for a training: of its result, else the final one, else the newest of the curve."""
    result = record.result.get("validation")
    if isinstance(result, Mapping) and isinstance(result.get("accuracy"), int | float):
        accuracy, n = float(result["accuracy"]), int(result.get("n") or 0)
        low, high = wilson(accuracy, n)
        return Held(accuracy, float(result.get("low", low)), float(result.get("high", high)), n)
    for name in (FINAL, CURVE):
        found: list[Validation] = [one for one in record.validations if one.name == name]
        if found:
            return Held(found[-1].accuracy, found[-1].low, found[-1].high, found[-1].n)
    return None


def compare(new: Held | None, old: Held | None) -> Verdict:
    """Whether `new` is better than `old`, beyond what chance explains."""
    if new is None or old is None:
        return "unknown"
    if new.low > old.high:
        return "better"
    return "worse" if new.high < old.low else "inconclusive"


def share(value: Held | None) -> str:
    """74.3 % (63.1 to 83.0, n 78)."""
    if value is None:
        return "not measured"
    return f"{value.accuracy:.1%} ({100 * value.low:.1f} to {100 * value.high:.1f}, n {value.n})"


def duration(seconds: float) -> str:
    """Rough words: 45 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


# --- Status -------------------------------------------------------------------------------------------------


def status(now: TrainingStatus, shown: Record | None, mine: bool, at: float | None = None) -> str:
    """The line of the training that is shown, with its last words below it."""
    at = time.time() if at is None else at
    if shown is None:
        if now.busy:
            return _line("preparing", "Preparing…", "The backbone loads and the tasks are read.", now.since, at)
        return _empty(now)
    words = STATE_WORDS[shown.state]
    parts = [METHOD_WORDS.get(shown.method, shown.method)]
    if shown.generations:
        planned = shown.generations_planned
        of = f" of {planned:,}" if planned else ""
        parts.append(f"generation {len(shown.generations):,}{of}")
    budget = shown.plan.get("evaluations")
    parts.append(f"{shown.evaluations:,}{f' of {budget:,}' if isinstance(budget, int) else ''} evaluations")
    calls, failed = (sum(getattr(g, n) for g in shown.generations) for n in ("agent_calls", "failed_calls"))
    parts.append(f"{calls:,} calls made, {failed:,} failed")
    if used := token_words(shown.usage):
        parts.append(used)
    if shown.cost is not None:
        parts.append(dollars(shown.cost))
    progress = shown.progress
    if progress is not None and shown.state in BUSY:
        of = f" of {progress.total:,}" if progress.total else ""
        what = f"{progress.message}: " if progress.message else ""
        parts.append(f"{what}{progress.done:,}{of} {progress.unit}")
    if shown.state in BUSY and (left := eta(shown, at)) is not None:
        parts.append(f"about {duration(left)} left")
    if not mine and shown.state in BUSY:
        parts.append("started by somebody else, so you can watch but not steer it")
    since = shown.since if shown.state in BUSY else None
    body = _line(shown.state, words, " · ".join(parts), since, at)
    if shown.message and shown.state not in BUSY:
        kind: Literal["info", "problem"] = "problem" if shown.state == "failed" else "info"
        body += notice(shown.message, kind=kind)
    if shown.notes:
        body += f'<details class="tr-train-notes"><summary>Notes ({len(shown.notes)})</summary><ul>'
        body += "".join(f"<li>{esc(note)}</li>" for note in reversed(shown.notes)) + "</ul></details>"
    return body


def eta(record: Record, at: float) -> float | None:
    """Seconds left at the pace since it was begun or resumed; None while there is nothing to go by."""
    budget = record.plan.get("evaluations")
    done_now = sum(g.evaluations for g in record.generations[record.resumed_at :])
    if not isinstance(budget, int) or record.since is None or done_now <= 0:
        return None
    return max(0.0, (budget - record.evaluations) * (at - record.since) / done_now)


def _line(state: State, word: str, text: str, since: float | None, at: float) -> str:
    running = "1" if since is not None else "0"
    clock = ""
    if since is not None:
        passed = max(0.0, at - since)
        clock = f'<span class="tr-clock" data-elapsed="{passed:.1f}">{duration(passed)}</span>'
    return (
        f'<div class="tr-status tr-status-{_DOTS.get(state, "running")} tr-train-line" data-running="{running}" '
        f'data-state="{state}" role="status"><span class="tr-dot"></span>'
        f"<span><b>{esc(word)}</b> {esc(text)}</span>{clock}</div>"
    )


def _empty(now: TrainingStatus) -> str:
    trouble = notice(now.message, kind="problem") if now.state == "failed" and now.message else ""
    return trouble + (
        '<div class="tr-empty tr-train-empty" data-state="idle"><p><b>Nothing has been trained here yet.</b></p>'
        "<p>A training tries many heads on your tasks and keeps the one that answers best. The settings beside this "
        "learn on the built-in tasks; the check below them says what it will take.</p>"
        '<p><button type="button" class="tr-button" data-act="begin" data-id="">Start with these settings</button> '
        '<button type="button" class="tr-button" data-tab="tab-tasks">See the tasks</button></p></div>'
    )


# --- Preflight ----------------------------------------------------------------------------------------------


def preflight(found: Preflight) -> str:
    """What the training would be: problems first, then its size as a small table."""
    cost = "unknown" if found.cost is None else "nothing" if found.cost == 0 else f"at most {dollars(found.cost)}"
    families = ", ".join(f"{name} {count}" for name, count in sorted(found.families.items())) or "none"
    rows = [
        ("Tasks", f"{found.train:,} to train on, {found.validation:,} held out"),
        ("Families", families),
        ("Parameters", f"{found.dimension:,}"),
        ("Candidates (λ)", f"{found.population:,} a generation, {found.generations:,} generations"),
        ("Evaluations", f"{found.evaluations:,}"),
        ("Calls", f"at most {found.calls:,} ({found.tokens:,} tokens)"),
        ("Cost", cost),
        ("Time", f"at most {duration(found.seconds)}"),
    ]
    table = "".join(f'<tr><th scope="row">{esc(a)}</th><td>{esc(b)}</td></tr>' for a, b in rows)
    problems = "".join(notice(one, kind="problem") for one in found.problems)
    warnings = "".join(notice(one, kind="warn") for one in found.warnings)
    ready = "1" if found.ready else "0"
    return (
        f'<div data-ready="{ready}">{problems}<table class="tr-facts">{table}</table>{warnings}'
        "<p class=tr-next>Replies that are stored already are not asked for again, so it is usually less.</p></div>"
    )


# --- The list -----------------------------------------------------------------------------------------------


def runs(records: Sequence[Record], chosen: str | None, overlay: Sequence[str], owner: str | None) -> str:
    """All trainings, newest first, with what may be done to each."""
    if not records:
        return ""
    head = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("When", "Method", "Status", "Held-out accuracy", "Evaluations", "Checkpoint", "")
    )
    return (
        '<div class="tr-scroll"><table class="tr-table tr-train-runs"><caption class="tr-sr">Trainings, newest first'
        f"</caption><thead><tr>{head}</tr></thead><tbody>"
        + "".join(_row(one, chosen, overlay, owner) for one in records)
        + "</tbody></table></div>"
    )


def _row(record: Record, chosen: str | None, overlay: Sequence[str], owner: str | None) -> str:
    when = datetime.fromtimestamp(record.created_at, UTC)
    current = record.job_id == chosen
    method = f"{METHOD_WORDS.get(record.method, record.method)}, {record.plan.get('head', 'linear')}"
    done = record.evaluations or record.result.get("evaluations")
    cells = [
        ("When", f'<time datetime="{when.isoformat()}">{when:%Y-%m-%d %H:%M} UTC</time>'),
        ("Method", esc(method + (", SVF" if record.plan.get("svf") else ""))),
        ("Status", esc(STATE_WORDS[record.state])),
        ("Held-out accuracy", esc(share(held(record)))),
        ("Evaluations", f"{done:,}" if isinstance(done, int) and done else "–"),
        ("Checkpoint", f"<code>{esc(record.checkpoint_id[:12])}</code>" if record.checkpoint_id else "none"),
    ]
    buttons = _button("view", record.job_id, "Shown" if current else "Show", pressed=current)
    if not current:
        laid = record.job_id in overlay
        buttons += _button("overlay", record.job_id, "Overlaid" if laid else "Overlay", pressed=laid)
    if TrainingManager.may_steer(record, owner) and record.state not in BUSY:
        buttons += _button("ask-delete", record.job_id, "Delete")
    body = "".join(f'<td data-label="{name}">{value}</td>' for name, value in cells)
    return (
        f'<tr data-job="{esc(record.job_id)}" data-key="{esc(record.job_id)}" data-state="{record.state}"'
        f'{" class=tr-chosen-run" if current else ""}>{body}<td><span class="tr-actions">{buttons}</span></td></tr>'
    )


def _button(act: str, target: str, label: str, *, pressed: bool = False) -> str:
    return (
        f'<button type="button" class="tr-button" data-act="{act}" data-id="{esc(target)}" '
        f'aria-pressed="{str(pressed).lower()}">{esc(label)}</button>'
    )


# --- Deploying ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InUse:
    """The checkpoint that runs use now; `id` None is the shipped head."""

    id: str | None = None
    accuracy: Held | None = None
    problem: str = ""
    same_tasks: bool = True

    @property
    def words(self) -> str:
        return f"checkpoint {self.id[:12]}" if self.id else "the head that came with Trinity"


def deploying(record: Record | None, used: InUse) -> str:
    """What deploying the shown training's checkpoint would replace, and whether it is known to be better."""
    if used.problem:
        return notice(used.problem, kind="problem")
    if record is None or record.checkpoint_id is None:
        return f"<p class=tr-next>In use: {esc(used.words)}.</p>"
    if record.checkpoint_id == used.id:
        return (
            f'<div data-verdict="deployed"><p>This checkpoint is in use: {esc(share(held(record)))}. Revert brings '
            "back the one from before.</p></div>"
        )
    new = held(record)
    verdict = compare(new, used.accuracy)
    words = {
        "better": "Better: the intervals do not overlap.",
        "worse": "Worse: the intervals do not overlap.",
        "inconclusive": "Inconclusive: the intervals overlap, so the difference may be chance. More held-out tasks "
        "would narrow them.",
        "unknown": "Not comparable: one of the two has no held-out accuracy.",
    }[verdict]
    if verdict in ("better", "worse", "inconclusive") and not used.same_tasks:
        words += " They were measured on different tasks, so even this is only a hint."
    rows = (
        ("This checkpoint", record.checkpoint_id[:12], share(new)),
        ("In use", used.id[:12] if used.id else "shipped", share(used.accuracy)),
    )
    table = "".join(
        f'<tr><th scope="row">{esc(a)}</th><td><code>{esc(b)}</code></td><td>{esc(c)}</td></tr>' for a, b, c in rows
    )
    return (
        f'<div data-verdict="{verdict}"><table class="tr-facts">{table}</table><p><b>{esc(words)}</b></p>'
        f"<p class=tr-next>Deploying replaces {esc(used.words)} for all new runs; Revert brings it back.</p></div>"
    )


def plan_words(plan: Mapping[str, Any]) -> tuple[Any, ...]:
    """What decides which tasks a training is measured on."""
    return plan.get("leave_out"), tuple(sorted(plan.get("families") or ()))
