"""Figures of a training as plain Plotly JSON: fitness, step size, shares of agents and roles, candidates.

Pure functions of `ui.training.Record`; no plotly import (see `ui.plots`). Backgrounds are transparent and text is
mid-grey, so that one figure suits light and dark. Numbers that are not finite are left out, because JSON has none.
`uirevision` is the training's id: zoom stays while it grows, and ends when another one is shown.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from trinity_core.types import Generation, Validation
from ui.plots import ROLE_COLOURS
from ui.training import Record

Figure = dict[str, Any]

CURVE = "validation"
FINAL = "final"
"""Names of validations that belong to the trained head; all others are baselines."""
STRIP = 20
"""Generations whose candidates are shown."""
OVERLAY = 5
"""Trainings that may be laid over one another, the chosen one included."""
_GREY = "#8492a6"
_MAIN, _MEAN, _BAND, _HELD = "#6366f1", "#0ea5e9", "rgba(14,165,233,0.18)", "#f59e0b"
_OTHERS = ("#db2777", "#16a34a", "#b45309", "#0891b2")
_BASES = ("#94a3b8", "#a16207", "#be185d", "#4d7c0f", "#7c3aed", "#0f766e", "#b91c1c", "#1d4ed8")
_AGENTS = ("#6366f1", "#f59e0b", "#10b981", "#ec4899", "#0ea5e9", "#a16207", "#8b5cf6", "#64748b")
_FONT = {"family": "system-ui, -apple-system, Segoe UI, Roboto, sans-serif", "color": _GREY, "size": 12}
_GRID = "rgba(132,146,166,0.22)"


def _layout(record: Record, height: int, y: Mapping[str, Any]) -> Figure:
    axis = {"gridcolor": _GRID, "zerolinecolor": _GRID, "automargin": True}
    return {
        "height": height,
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": _FONT,
        "margin": {"l": 46, "r": 12, "t": 8, "b": 36},
        "hovermode": "x unified",
        "hoverlabel": {"font": {"size": 11}},
        "legend": {"orientation": "h", "y": -0.22, "yanchor": "top", "traceorder": "normal", "font": {"size": 11}},
        "uirevision": record.job_id,
        "xaxis": {**axis, "title": {"text": "generation", "standoff": 4}},
        "yaxis": {**axis, **y},
    }


def _line(name: str, x: Sequence[Any], y: Sequence[Any], colour: str, **more: Any) -> Figure:
    return {
        "type": "scatter", "mode": "lines", "name": html.escape(name), "x": list(x), "y": list(y),
        "line": {"color": colour, "width": 2, **more.pop("line", {})}, **more,
    }  # fmt: skip


def _finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def quantile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between the order statistics; `values` must not be empty."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * share
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def best_so_far(generations: Sequence[Generation]) -> list[float | None]:
    """The best fitness of any candidate up to each generation; None while none was finite."""
    best: float | None = None
    found = []
    for generation in generations:
        here = _finite(generation.fitness)
        if here:
            best = max(here) if best is None else max(best, max(here))
        found.append(best)
    return found


def baselines(record: Record) -> list[Validation]:
    """The newest measurement of each baseline, in the order in which they came."""
    found = {one.name: one for one in record.validations if one.name not in (CURVE, FINAL)}
    return list(found.values())


def fitness(record: Record, others: Sequence[Record] = ()) -> dict[str, Any]:
    """Best so far, mean and middle half of each generation, validation with intervals, baselines dashed; of `others`
    best so far and validation alone."""
    if not record.generations:
        return {"figure": None, "title": "Fitness", "empty": _waiting(record)}
    x = [g.number for g in record.generations]
    parts = [_finite(g.fitness) for g in record.generations]
    low = [quantile(part, 0.25) if part else None for part in parts]
    high = [quantile(part, 0.75) if part else None for part in parts]
    mean = [sum(part) / len(part) if part else None for part in parts]
    data: list[Figure] = [
        _line("25 %", x, low, _MEAN, line={"width": 0}, showlegend=False, hoverinfo="skip"),
        _line("middle half", x, high, _MEAN, line={"width": 0}, fill="tonexty", fillcolor=_BAND, hoverinfo="skip"),
        _line("mean", x, mean, _MEAN, hovertemplate="%{y:.3f}"),
        _line("best so far", x, best_so_far(record.generations), _MAIN, line={"shape": "hv"},
              hovertemplate="%{y:.3f}"),
        *_held(record, _HELD, ""),
    ]  # fmt: skip
    ends = [x[0], max(x[-1], x[0] + 1)]
    for place, one in enumerate(baselines(record)):
        colour = _BASES[place % len(_BASES)]
        data.append(
            _line(one.name, ends, [one.accuracy] * 2, colour, line={"dash": "dash", "width": 1.5},
                  hovertemplate="%{y:.1%}")
        )  # fmt: skip
    for place, other in enumerate(others[: OVERLAY - 1]):
        colour, name = _OTHERS[place % len(_OTHERS)], short(other)
        ox = [g.number for g in other.generations]
        data.append(
            _line(f"{name}: best", ox, best_so_far(other.generations), colour, line={"shape": "hv"},
                  hovertemplate="%{y:.3f}")
        )  # fmt: skip
        data.extend(_held(other, colour, f"{name}: "))
    layout = _layout(record, 380, {"title": {"text": "fitness, accuracy", "standoff": 6}})
    return {
        "figure": {"data": data, "layout": layout},
        "title": "Fitness",
        "caption": "Fitness is accuracy less the charge for turns and spending. Dashed: baselines on the validation "
        "tasks. Drag to zoom, double-click to see all.",
    }


def _held(record: Record, colour: str, before: str) -> list[Figure]:
    """Validation points with their 95 % intervals, and the final one as a star at the right end."""
    curve = [one for one in record.validations if one.name == CURVE and one.number is not None]
    found = [_points(f"{before}validation", [one.number for one in curve], curve, colour, "circle")] if curve else []
    final = [one for one in record.validations if one.name == FINAL][-1:]
    if final and record.generations:
        found.append(_points(f"{before}final", [record.generations[-1].number], final, colour, "star"))
    return found


def _points(name: str, x: Sequence[Any], held: Sequence[Validation], colour: str, symbol: str) -> Figure:
    return {
        "type": "scatter", "mode": "markers", "name": html.escape(name), "x": list(x),
        "y": [one.accuracy for one in held],
        "error_y": {
            "type": "data", "symmetric": False, "array": [max(0.0, one.high - one.accuracy) for one in held],
            "arrayminus": [max(0.0, one.accuracy - one.low) for one in held], "color": colour, "thickness": 1.2,
        },
        "marker": {"color": colour, "size": 11 if symbol == "star" else 8, "symbol": symbol},
        "hovertemplate": "%{y:.1%}",
    }  # fmt: skip


def sigma(record: Record) -> dict[str, Any]:
    """The step size σ, with the largest and smallest standard deviation of a coordinate, on a log axis."""
    known = [g for g in record.generations if g.sigma is not None and g.sigma > 0 and math.isfinite(g.sigma)]
    if not known:
        empty = "This method has no step size." if record.generations else _waiting(record)
        return {"figure": None, "title": "Step size", "empty": empty}
    data = [_line("σ", [g.number for g in known], [g.sigma for g in known], _MAIN, hovertemplate="%{y:.3g}")]
    wide = [g for g in known if g.spread is not None and all(math.isfinite(s) and s > 0 for s in g.spread)]
    if wide:
        x, dotted = [g.number for g in wide], {"dash": "dot", "width": 1.5}
        for place, name in enumerate(("largest deviation", "smallest deviation")):
            y = [g.spread[place] for g in wide if g.spread is not None]
            data.append(_line(name, x, y, (_HELD, _MEAN)[place], line=dotted, hovertemplate="%{y:.3g}"))
    layout = _layout(record, 280, {"type": "log", "exponentformat": "power", "dtick": "D2"})
    return {
        "figure": {"data": data, "layout": layout},
        "title": "Step size",
        "caption": "σ and the largest and smallest standard deviation of a coordinate, on a log scale.",
    }


def shares(record: Record, kind: str) -> dict[str, Any]:
    """Stacked shares of the turns per generation: kind "agent" or "role"."""
    title = "Who was called" if kind == "agent" else "In which role"
    rows = [(g.number, g.agent_shares if kind == "agent" else g.role_shares) for g in record.generations]
    rows = [(number, share) for number, share in rows if share]
    if not rows:
        return {"figure": None, "title": title, "empty": _waiting(record)}
    names = list(dict.fromkeys(name for _, share in rows for name in share))
    data = []
    for place, name in enumerate(names):
        colour = ROLE_COLOURS.get(name, _GREY) if kind == "role" else _AGENTS[place % len(_AGENTS)]
        y = [_share(share.get(name)) for _, share in rows]
        data.append(
            _line(name, [number for number, _ in rows], y, colour, stackgroup="one", line={"width": 0.5},
                  fillcolor=colour + "99", hovertemplate="%{y:.1%}")
        )  # fmt: skip
    layout = _layout(record, 280, {"range": [0, 1], "tickformat": ".0%"})
    return {
        "figure": {"data": data, "layout": layout},
        "title": title,
        "caption": f"Share of the turns of each {kind}, over all candidates of a generation.",
    }


def _share(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else 0.0


def candidates(record: Record) -> dict[str, Any]:
    """Every candidate of the last `STRIP` generations as a dot; the best of each is larger."""
    newest = record.generations[-STRIP:]
    x, y, sizes = [], [], []
    for generation in newest:
        found = _finite(generation.fitness)
        for place, value in enumerate(found):
            x.append(generation.number + (0.5 * (place + 0.5) / len(found) - 0.25))  # beside each other, in ask order
            y.append(value)
            sizes.append(9 if value == max(found) else 5)
    if not x:
        return {"figure": None, "title": "Candidates", "empty": _waiting(record)}
    dots: Figure = {
        "type": "scatter", "mode": "markers", "x": x, "y": y, "showlegend": False,
        "marker": {"size": sizes, "color": _MEAN, "opacity": 0.65}, "hovertemplate": "%{y:.3f}<extra></extra>",
    }  # fmt: skip
    layout = _layout(record, 280, {"title": {"text": "fitness", "standoff": 6}})
    layout["hovermode"] = "closest"
    return {
        "figure": {"data": [dots], "layout": layout},
        "title": "Candidates",
        "caption": f"Each dot is one candidate; the last {STRIP} generations. Larger: the best of its generation.",
    }


def all_figures(record: Record | None, others: Sequence[Record] = ()) -> list[dict[str, Any]]:
    """Fitness, step size, agents, roles, candidates."""
    if record is None:
        record = Record("", "", "idle")
    return [fitness(record, others), sigma(record), shares(record, "agent"), shares(record, "role"),
            candidates(record)]  # fmt: skip


def short(record: Record) -> str:
    """A training's name in a legend."""
    return f"{record.method} {record.job_id[-4:]}"


def _waiting(record: Record) -> str:
    if not record.job_id:
        return "Appears as soon as a training runs."
    return "Appears after the first generation." if record.state != "done" else "This training told no generations."
