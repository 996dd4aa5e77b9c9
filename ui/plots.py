"""Figures as plain Plotly JSON: the logits of one choice, and which agent was chosen in every turn.

No plotly import: the page draws these dicts with the plotly.js that it serves itself. Backgrounds are
transparent and text is mid-grey, so one figure suits light and dark. Names are escaped because plotly.js reads a
few HTML tags in text.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from trinity_core.types import Decision, Mode, Role
from ui.view import CallView, RunView

Figure = dict[str, Any]
Scale = Literal["logits", "probs"]

ROLE_COLOURS: Mapping[str, str] = {"worker": "#3b82f6", "thinker": "#a855f7", "verifier": "#14b8a6"}
_AGENT = "#6366f1"
_MASKED = "rgba(148,163,184,0.35)"
_GREY = "#8492a6"
NO_HEAD = "This choice was made without a head, so there are no logits to show."
_FONT = {"family": "system-ui, -apple-system, Segoe UI, Roboto, sans-serif", "color": _GREY, "size": 12}


def _layout(height: int, **more: Any) -> Figure:
    return {
        "height": height,
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": _FONT,
        "margin": {"l": 8, "r": 16, "t": 8, "b": 28},
        "showlegend": False,
        "uirevision": "keep",
        **more,
    }


def _number(value: float, scale: Scale) -> str:
    return f"{value:+.2f}" if scale == "logits" else f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"


def _rows(decision: Decision, kind: Literal["agent", "role"], scale: Scale) -> list[tuple[str, float]]:
    logits = decision.agent_logits if kind == "agent" else decision.role_logits
    probs = decision.agent_probs if kind == "agent" else decision.role_probs
    values = logits if scale == "logits" else {name: probs.get(name, 0.0) for name in logits}
    return sorted(values.items(), key=lambda pair: -pair[1])


def bars(decision: Decision, kind: Literal["agent", "role"], scale: Scale = "logits") -> Figure | None:
    """Horizontal bars of all agents or roles, largest on top; None where there is nothing to compare (`no_bars`).

    The chosen one has an outline and the word "chosen"; a masked one is grey and names the reason; the policy's
    own choice is annotated with its lead over the runner-up.
    """
    if no_bars(decision, kind) is not None:
        return None
    rows = _rows(decision, kind, scale)
    chosen = decision.agent if kind == "agent" else decision.role.value
    own = decision.own_agent if kind == "agent" else decision.own_role.value
    masked = {name: decision.masked[f"{kind}:{name}"] for name, _ in rows if f"{kind}:{name}" in decision.masked}
    labels, texts, colours, outlines, hovers = [], [], [], [], []
    for name, value in rows:
        plain = html.escape(name)
        labels.append(f"<b>{plain}</b>" if name == chosen else plain)
        words = [_number(value, scale)]
        words += ["chosen"] if name == chosen else []
        words += ["own choice"] if name == own != chosen else []
        words += ["masked"] if name in masked else []
        texts.append(" · ".join(words))
        base = ROLE_COLOURS.get(name, _AGENT) if kind == "role" else _AGENT
        colours.append(_MASKED if name in masked else base)
        outlines.append(2.5 if name == chosen else 0)
        hovers.append(
            f"{plain}: {value:.4f}" + (f"<br>masked: {html.escape(masked[name])}" if name in masked else "")
        )
    low, high = min(0.0, *(v for _, v in rows)), max(0.0, *(v for _, v in rows))
    room = high - low or 1.0  # beside the longest bar, for its number and words
    trace: Figure = {
        "type": "bar",
        "orientation": "h",
        "y": labels,
        "x": [value for _, value in rows],
        "text": texts,
        "textposition": "outside",
        "cliponaxis": False,
        "hovertext": hovers,
        "hoverinfo": "text",
        "marker": {"color": colours, "line": {"color": "#f59e0b", "width": outlines}},
        "customdata": [name == chosen for name, _ in rows],
    }
    layout = _layout(
        56 + 34 * len(rows),
        bargap=0.38,
        yaxis={"autorange": "reversed", "automargin": True, "ticklabelstandoff": 6, "fixedrange": False},
        xaxis={
            "range": [low - (0.3 * room if low < 0 else 0), high + 0.75 * room],
            "zeroline": True,
            "zerolinecolor": "rgba(132,146,166,0.6)",
            "gridcolor": "rgba(132,146,166,0.15)",
            "tickformat": ".0%" if scale == "probs" else "",
            "nticks": 5,
        },
    )
    return {"data": [trace], "layout": layout, "caption": caption(decision, kind)}


def no_bars(decision: Decision, kind: Literal["agent", "role"]) -> str | None:
    """In words, a choice that bars would show nothing of: made by a rule, or with equal logits. None: draw bars."""
    logits = decision.agent_logits if kind == "agent" else decision.role_logits
    own = decision.own_agent if kind == "agent" else decision.own_role.value
    if not logits:
        return NO_HEAD
    if len(logits) < 2 or len(set(logits.values())) > 1:
        return None
    free = [name for name in logits if f"{kind}:{name}" not in decision.masked]
    if len(free) < 2:
        return _sentence(f"only {own} could be chosen", *_apart(decision, kind))
    names = f"{', '.join(free[:-1])} and {free[-1]}"
    how = "was drawn" if decision.mode is Mode.SAMPLE else "was taken"
    uniform = f"the choice was uniform: {names} were equally likely, {1 / len(free):.0%} each, and {own} {how}"
    return _sentence(uniform, *_apart(decision, kind))


def caption(decision: Decision, kind: Literal["agent", "role"]) -> str:
    """A plain-text sentence: how clear the choice was, and why others could not be chosen."""
    logits = decision.agent_logits if kind == "agent" else decision.role_logits
    own = decision.own_agent if kind == "agent" else decision.own_role.value
    free = {name: value for name, value in logits.items() if f"{kind}:{name}" not in decision.masked and name != own}
    first = ""
    if kind in decision.margin and free:
        runner_up, lead = max(free, key=lambda name: free[name]), decision.margin[kind]
        first = f"{own} leads {runner_up} by {lead:.2f}"
        if lead < 0:
            first = f"{own} was drawn, although {runner_up} is ahead by {-lead:.2f}"
    elif len(logits) > 1 and not free:
        first = f"only {own} could be chosen"
    return _sentence(first, *_apart(decision, kind))


def _apart(decision: Decision, kind: Literal["agent", "role"]) -> list[str]:
    """What else decided: a Thinker's suggestion, and masks with their reasons."""
    logits = decision.agent_logits if kind == "agent" else decision.role_logits
    own = decision.own_agent if kind == "agent" else decision.own_role.value
    chosen = decision.agent if kind == "agent" else decision.role.value
    parts = [f"the Thinker's suggestion {chosen} was followed instead of {own}"] if chosen != own else []
    masked = {name: decision.masked.get(f"{kind}:{name}") for name in logits}
    return parts + [f"{name} masked: {reason}" for name, reason in masked.items() if reason is not None]


def _sentence(*parts: str) -> str:
    """The parts that say something; a name at the start keeps its spelling, words of ours get a capital."""
    text = "; ".join(part for part in parts if part)
    return text[0].upper() + text[1:] if text.startswith(("the ", "only ")) else text


def panel(view: RunView, kind: Literal["agent", "role"]) -> dict[str, Any]:
    """Everything one logits panel may show: both scales of every call, keyed "turn.attempt".

    `latest` is the key to show while the reader has not chosen a card; `words` stand where there are no bars.
    """
    calls: dict[str, Any] = {}
    latest = None
    for call in view.calls:
        key = f"{call.turn}.{call.attempt}"
        latest = key
        if call.decision is not None:
            calls[key] = {
                "title": _title(call),
                "logits": bars(call.decision, kind),
                "probs": bars(call.decision, kind, "probs"),
                "words": no_bars(call.decision, kind),
            }
    return {"calls": calls, "latest": latest, "empty": _empty(view)}


def _title(call: CallView) -> str:
    attempt = f", attempt {call.attempt}" if call.attempt > 1 else ""
    return f"Turn {call.turn}{attempt}"


def _empty(view: RunView) -> str:
    if not view.calls:
        return "The coordinator's logits appear here as soon as it has chosen."
    return NO_HEAD


def heat(view: RunView) -> dict[str, Any]:
    """Agents by turns: each cell the probability the coordinator gave, the chosen cells marked with their role."""
    calls = [call for call in view.calls if call.decision is not None and call.decision.agent_probs]
    if len(calls) < 2:
        return {"figure": None, "empty": "From the second turn on, all choices are compared here."}
    names: list[str] = list(dict.fromkeys(name for call in calls for name in (call.decision or _never()).agent_probs))
    columns = [_column(call) for call in calls]
    grid = [[(call.decision or _never()).agent_probs.get(name) for call in calls] for name in names]
    figure: Figure = {
        "data": [
            {
                "type": "heatmap",
                "x": columns,
                "y": [html.escape(name) for name in names],
                "z": grid,
                "zmin": 0,
                "zmax": 1,
                "xgap": 3,
                "ygap": 3,
                "colorscale": [[0, "rgba(99,102,241,0.06)"], [1, "rgba(99,102,241,0.9)"]],
                "showscale": False,
                "hovertemplate": "%{y} in %{x}: %{z:.1%}<extra></extra>",
            },
            _marks(calls, columns),
        ],
        "layout": _layout(
            64 + 30 * len(names),
            xaxis={"type": "category", "side": "bottom", "fixedrange": True, "showgrid": False},
            yaxis={"type": "category", "autorange": "reversed", "automargin": True, "fixedrange": True,
                   "showgrid": False, "ticklabelstandoff": 6},
        ),
        "caption": "Shade: probability of each agent. Letter: the role of the agent that was chosen.",
        "keys": [f"{call.turn}.{call.attempt}" for call in calls],
    }  # fmt: skip
    return {"figure": figure, "empty": ""}


def _marks(calls: Sequence[CallView], columns: Sequence[str]) -> Figure:
    letters = [letter(call.role) for call in calls]
    colours = [ROLE_COLOURS.get(call.role.value if call.role else "", _GREY) for call in calls]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": list(columns),
        "y": [html.escape(call.agent) for call in calls],
        "text": [f"<b>{mark}</b>" for mark in letters],
        "textfont": {"color": "#ffffff", "size": 12},
        "marker": {"symbol": "circle", "size": 22, "color": colours, "line": {"color": "#f59e0b", "width": 2}},
        "hoverinfo": "skip",
    }


def _column(call: CallView) -> str:
    return f"T{call.turn}" if call.attempt == 1 else f"T{call.turn}·{call.attempt}"


def letter(role: Role | None) -> str:
    """The role's initial, so that colour is never the only sign."""
    return role.value[0].upper() if role else "·"


def _never() -> Decision:
    raise AssertionError("calls without a decision were filtered out")
