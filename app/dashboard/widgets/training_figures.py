"""Figures of a training log, as plotly specifications in the style of `report.figures`."""

from __future__ import annotations

import math
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from portfolio_sdpo.common.numbers import general
from portfolio_sdpo.common.numbers import percent as as_percent
from portfolio_sdpo.report.figures import make_layout, round_figures
from portfolio_sdpo.report.looks import Spec

from ..data.training_logs import LogConstraint

POINTS = 1500
"""Points of a curve at most; of more iterations, neighbours are averaged."""
BARS = 60
"""Bars of the figure of regimes at most."""
WINDOW = 20
"""Iterations over which noisy estimates are averaged."""
REGIMES = {
    "interior": ("#0072B2", "inside"),
    "margin": ("#E69F00", "in the margin"),
    "violated": ("#D55E00", "in violation"),
}
"""Colour and label of each regime, from safe to unsafe."""
OUTSIDE = ("exact", "integrated", "true")
"""Prefixes of independent measurements, the best first: `exact_risk_0`, `true_return`."""


def draw_objective(frame: pd.DataFrame, percent: bool) -> Spec:
    """The return over the iterations: the learner's estimate and, where there is one, an independent measurement."""
    data = [*_estimate(frame, "return", "learner's estimate", percent)]
    measured = next((name for kind in OUTSIDE if (name := f"{kind}_return") in frame), None)
    if measured is not None:
        data.append(_line(frame, measured, "independent measurement", "#009E73", percent))
    layout = _layout(frame, percent)
    if percent:
        values = np.array([value for trace in data for value in trace["y"]], dtype=float)
        layout["yaxis"]["tickformat"] = f".{_digits(float(np.ptp(values)) if len(values) else 0.0)}%"
    return {"data": data, "layout": layout}


def draw_constraint(frame: pd.DataFrame, index: int, constraint: LogConstraint) -> Spec:
    """The estimated risk over the iterations against its bound, the unsafe side shaded."""
    data = [*_estimate(frame, f"risk_{index}", "learner's estimate", constraint.percent)]
    measured = next((name for kind in OUTSIDE if (name := f"{kind}_risk_{index}") in frame), None)
    if measured is not None:
        data.append(_line(frame, measured, "independent measurement", "#009E73", constraint.percent))
    layout = _layout(frame, constraint.percent)
    low, high = _reach([np.asarray(trace["y"], dtype=float) for trace in data], constraint.bound)
    unsafe = (constraint.bound, high) if constraint.sense == "<=" else (low, constraint.bound)
    sign = "≤" if constraint.sense == "<=" else "≥"
    layout["yaxis"] |= {"range": [low, high]} | (
        {"tickformat": f".{_digits(high - low)}%"} if constraint.percent else {}
    )
    layout["shapes"] = [
        {
            "type": "rect",
            "xref": "paper",
            "x0": 0,
            "x1": 1,
            "y0": unsafe[0],
            "y1": unsafe[1],
            "fillcolor": "rgba(213,94,0,0.10)",
            "line": {"width": 0},
            "layer": "below",
        },
        {
            "type": "line",
            "xref": "paper",
            "x0": 0,
            "x1": 1,
            "y0": constraint.bound,
            "y1": constraint.bound,
            "line": {"color": "#D55E00", "width": 2, "dash": "dash"},
        },
    ]
    layout["annotations"] = [
        {
            "xref": "paper",
            # On the unsafe side at the left, where a run that starts safely draws nothing.
            "x": 0.005,
            "xanchor": "left",
            "y": constraint.bound,
            "yanchor": "top" if constraint.sense == ">=" else "bottom",
            "text": f"bound {sign} {format_value(constraint.bound, constraint.percent)}",
            "showarrow": False,
            "font": {"size": 12, "color": "#D55E00"},
        }
    ]
    return {"data": data, "layout": layout}


def draw_evidence(frame: pd.DataFrame) -> Spec:
    """How far a ready policy deviates from equal weights, above the growth that it was judged by, by day."""
    rows = frame.reset_index(drop=True)
    line: Spec = {"type": "scatter", "mode": "lines", "x": rows["date"].tolist()}
    value = "%{fullData.name}  %{y:.1%}<extra></extra>"
    growth, error = rows["growth"], rows["error"]
    band = {"hoverinfo": "skip", "line": {"width": 0, "color": "#0072B2"}, "yaxis": "y2"}
    data: list[Spec] = [
        line
        | {
            "name": "deviation from equal weights",
            "y": _round(rows["deviation"]),
            "line": {"color": "#009E73", "width": 2, "shape": "hv"},
            "fill": "tozeroy",
            "fillcolor": "rgba(0,158,115,0.18)",
            "hovertemplate": value,
        },
        line | band | {"y": _round(growth - error)},
        line | band | {"y": _round(growth + error), "fill": "tonexty", "fillcolor": "rgba(0,114,178,0.18)"},
        line
        | {
            "name": "growth a year beyond equal weights, with its standard error",
            "y": _round(growth),
            "line": {"color": "#0072B2", "width": 2},
            "yaxis": "y2",
            "hovertemplate": value,
        },
    ]
    layout = make_layout(400, {"tickformat": ".0%", "domain": [0.56, 1.0], "rangemode": "tozero"}, hovermode="x")
    layout["yaxis2"] = layout["yaxis"] | {"tickformat": ".1~%", "domain": [0.0, 0.46], "rangemode": "normal"}
    layout["xaxis"] |= {"anchor": "y2"}
    return {"data": data, "layout": layout}


def _round(values: pd.Series) -> list[float | None]:
    return round_figures(values.to_numpy(), 5)


def draw_regimes(frame: pd.DataFrame, index: int) -> Spec:
    """The regimes of the barrier, as stacked shares of neighbouring iterations."""
    words = name_regimes(frame, index)
    size = max(1, -(-len(frame) // BARS))
    groups = np.arange(len(frame)) // size
    # Each bar is as wide as the iterations it stands for, so that no gap looks like a regime.
    x, width = frame["iteration"].groupby(groups).mean(), frame["iteration"].groupby(groups).count()
    data = [
        {
            "type": "bar",
            "name": name,
            "x": x.tolist(),
            "width": width.tolist(),
            "y": (words == word).groupby(groups).mean().round(4).tolist(),
            "marker": {"color": colour, "line": {"width": 0}},
            "hovertemplate": f"{name} %{{y:.0%}}<extra></extra>",
        }
        for word, (colour, name) in REGIMES.items()
    ]
    layout = _layout(frame, percent=True, height=170)
    layout["yaxis"] |= {"range": [0, 1], "tickvals": [0, 0.5, 1], "tickformat": ".0%"}
    return {"data": data, "layout": layout | {"barmode": "stack", "bargap": 0}}


def draw_curve(frame: pd.DataFrame, column: str, name: str) -> Spec:
    """Any column over the iterations."""
    data = [_line(frame, column, name, "#0072B2", percent=False)]
    return {"data": data, "layout": _layout(frame, percent=False, height=210)}


def name_regimes(frame: pd.DataFrame, index: int) -> pd.Series[Any]:
    """The regime of every iteration; without a barrier it is interior or violated."""
    slack = frame[f"slack_{index}"] if f"slack_{index}" in frame else pd.Series(np.nan, frame.index)
    plain = pd.Series(np.where(slack.isna(), "", np.where(slack > 0, "interior", "violated")), frame.index)
    if f"regime_{index}" not in frame:
        return plain
    recorded = frame[f"regime_{index}"].astype(object)
    return recorded.where(recorded.isin(list(REGIMES)), plain)


def format_value(value: float, percent: bool) -> str:
    """A value in text."""
    return as_percent(value, 2) if percent else general(value)


def _estimate(frame: pd.DataFrame, column: str, name: str, percent: bool) -> list[Spec]:
    """A noisy column: its values as a faint line, and their running mean."""
    if column not in frame:
        return []
    faint = _line(frame, column, f"{name}, every iteration", "rgba(0,114,178,0.30)", percent)
    faint["line"]["width"] = 1
    smooth = frame[["iteration", *(["date"] if "date" in frame else [])]].assign(
        mean=frame[column].rolling(WINDOW, min_periods=1).mean()
    )
    return [faint, _line(smooth, "mean", f"{name}, mean of {WINDOW} iterations", "#0072B2", percent)]


def _line(frame: pd.DataFrame, column: str, name: str, colour: str, percent: bool) -> Spec:
    thin = frame[["iteration", column]].dropna()
    size = max(1, -(-len(thin) // POINTS))
    if size > 1:
        thin = thin.groupby(np.arange(len(thin)) // size).mean()
    form = ".3%" if percent else ".5g"
    # The day of the decision, where the agent decides on one.
    days = {} if "date" not in frame or size > 1 else {"customdata": frame.loc[thin.index, "date"].tolist()}
    day = ", for %{customdata}" if days else ""
    return days | {
        "type": "scatter",
        "mode": "lines" if len(thin) > 1 else "lines+markers",
        "name": escape(name),
        "x": thin["iteration"].round(2).tolist(),
        "y": [float(f"{value:.6g}") for value in thin[column]],
        "line": {"color": colour, "width": 2},
        "hovertemplate": f"%{{fullData.name}}  %{{y:{form}}}{day}<extra></extra>",
    }


def _reach(values: list[Any], bound: float) -> tuple[float, float]:
    """The range of an axis that holds the bound and every estimate."""
    everything = np.concatenate([*(each[np.isfinite(each)] for each in values), [bound]])
    low, high = float(everything.min()), float(everything.max())
    room = 0.12 * (high - low) or max(abs(bound), 1.0) * 0.1
    return low - room, high + room


def _digits(reach: float) -> int:
    """Digits after the point of a percentage that tell neighbouring ticks apart."""
    return 1 if reach <= 0.0 else min(max(1 - math.floor(math.log10(100 * reach)), 0), 6)


def _layout(frame: pd.DataFrame, percent: bool, height: int = 260) -> Spec:
    axis: Spec = {"gridcolor": "var(--line)", "linecolor": "var(--line)", "zeroline": False, "automargin": True}
    return {
        "height": height,
        "margin": {"l": 48, "r": 12, "t": 10, "b": 36},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "x unified",
        "showlegend": False,
        # Ticks at whole iterations only.
        "xaxis": axis
        | ({"dtick": 1} if len(frame) < 10 else {})
        | {"showgrid": False, "title": {"text": "iteration", "standoff": 10}},
        "yaxis": axis | ({"tickformat": ".1%"} if percent else {}),
    }
