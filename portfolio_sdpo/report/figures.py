"""The figures of a report as plotly specifications: plain dictionaries, drawn by the page itself.

A colour `var(--ink)` is looked up in the page's style sheet, so that figures follow its light and dark theme. Names
come from users: they are escaped, since plotly takes text for HTML, and never stand inside a hover template.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from portfolio_sdpo.backtest.record import StrategyGroup
from portfolio_sdpo.common.numbers import percent as write_percent
from portfolio_sdpo.portfolio.market import CASH
from portfolio_sdpo.portfolio.return_measures import window_returns
from portfolio_sdpo.report.looks import DASHARRAYS, Spec, hidden_at_first, line_styles

Tracks = Mapping[tuple[str, int | None], pd.DataFrame]

FILLS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
AREAS = 14
"""Stocks with an area of their own in the picture of weights: each fill plain and hatched."""
POINTS = 1500
"""Dates at most in the picture of weights."""


def draw_curves(tracks: Tracks, found: Sequence[StrategyGroup], column: str, *, percent: bool) -> Spec:
    """A column of the equity table over time: the seed in the middle as a line, all seeds as a band."""
    styles = line_styles(found)
    hidden = set(hidden_at_first(found))
    data: list[Spec] = []
    for group in found:
        style = styles[group.name]
        shared = {
            "type": "scatter",
            "mode": "lines",
            "meta": escape(group.name),
            "visible": group.name not in hidden,
        }
        seeds = [tracks[group.name, record["seed"]] for record in group.records]
        if len(seeds) > 1:
            values = np.stack([rows[column].to_numpy() for rows in seeds])
            edge = shared | {
                "x": make_days(seeds[0]),
                "hoverinfo": "skip",
                "line": {"width": 0, "color": style["color"]},
            }
            data.append(edge | {"y": round_figures(values.min(0))})
            data.append(
                edge | {"y": round_figures(values.max(0)), "fill": "tonexty", "fillcolor": _faint(style["color"])}
            )
        rows = tracks[group.key]
        value = "%{y:.1%}" if percent else "%{y:.3f}"
        data.append(
            shared
            | {
                "name": escape(group.title),
                "x": make_days(rows),
                "y": round_figures(rows[column].to_numpy()),
                "line": style,
                "hovertemplate": f"%{{fullData.name}}  {value}<extra></extra>",
            }
        )
    y = {"tickformat": ".0%"} if percent else {"tickformat": ".2~f"}
    return {"data": data, "layout": make_layout(380 if not percent else 280, y, hovermode="x unified")}


def draw_weights(rows: pd.DataFrame, assets: Sequence[str]) -> tuple[Spec, list[tuple[str, int | None]]]:
    """A stacked area per asset, cash lowest, and the legend: (name, number of the fill, None for cash and the rest)."""
    thinned = rows.iloc[:: find_step(len(rows))]
    stocks = [asset for asset in assets if asset != CASH]
    means = rows[stocks].mean().to_numpy()
    largest = [stocks[i] for i in np.argsort(-means, kind="stable")[:AREAS] if means[i] > 0.0]
    shown = [stock for stock in stocks if stock in largest]
    rest = [stock for stock in stocks if stock not in largest and float(rows[stock].max()) > 0.0]
    areas: list[tuple[str, int | None, Any]] = [(CASH, None, thinned[CASH].to_numpy())]
    # A stock keeps its fill from strategy to strategy as long as there are enough of them.
    order = stocks if len(stocks) <= AREAS else shown
    areas += [(stock, order.index(stock), thinned[stock].to_numpy()) for stock in shown]
    if rest:
        areas.append((f"{len(rest)} others", None, thinned[rest].sum(axis=1).to_numpy()))
    data = []
    for name, number, values in areas:
        colour = "var(--cash)" if name == CASH else "var(--muted)" if number is None else FILLS[number % len(FILLS)]
        trace: Spec = {
            "type": "scatter",
            "mode": "lines",
            "name": escape(name),
            "x": make_days(thinned),
            "y": round_figures(np.maximum(values, 0.0), 5),
            "stackgroup": "weights",
            "fillcolor": colour,
            # Weights change at a close and then hold.
            "line": {"width": 0.4, "color": "var(--card)", "shape": "hv"},
            "hovertemplate": "%{fullData.name}  %{y:.1%}<extra></extra>",
        }
        if number is not None and number >= len(FILLS):
            trace["fillpattern"] = {
                "shape": "/",
                "bgcolor": colour,
                "fgcolor": "var(--card)",
                "size": 6,
                "solidity": 0.25,
            }
        data.append(trace)
    layout = make_layout(340, {"tickformat": ".0%", "range": [0, 1]}, hovermode="x unified")
    return {"data": data, "layout": layout}, [(name, number) for name, number, _ in areas]


def find_step(days: int) -> int:
    """How many days the picture of weights goes on at a time."""
    return math.ceil(days / POINTS)


def find_bin_edges(rows: pd.DataFrame, promise: Mapping[str, Any]) -> Any:
    """Edges of 30 to 60 bins that hold the periods of a track, 0 and the limit among them; None without a period."""
    values = window_returns(_returns(rows), int(promise["horizon"]))
    if not len(values):
        return None
    marks = [0.0, float(promise["bound"])]
    low, high = min(float(values.min()), *marks), max(float(values.max()), *marks)
    raw = max((high - low) / 60, 1e-4)
    width = min(
        size
        for size in (raw_size * 10.0**power for power in range(-5, 3) for raw_size in (1, 2, 2.5, 5))
        if size >= raw
    )
    return np.arange(math.floor(low / width), math.ceil(high / width) + 2) * width


def draw_distribution(rows: pd.DataFrame, promise: Mapping[str, Any], edges: Any) -> Spec:
    """Shares of overlapping windows by their return, those below the limit in another colour, and both CVaRs."""
    values = window_returns(_returns(rows), int(promise["horizon"]))
    middle = (edges[:-1] + edges[1:]) / 2
    bound, realised = float(promise["bound"]), promise["realised"]
    beyond = values < bound
    # A bin that the limit divides has a part of either colour.
    data = [
        {
            "type": "bar",
            "name": name,
            "x": round_figures(middle, 6),
            "y": round_figures(np.histogram(part, edges)[0] / max(len(values), 1), 5),
            "width": float(edges[1] - edges[0]) * 0.92,
            "marker": {"color": colour},
            "hovertemplate": "returns around %{x:.1%}<br>%{y:.1%} of the periods, %{fullData.name}<extra></extra>",
        }
        for name, part, colour in (
            ("beyond the limit", values[beyond], "#D55E00"),
            ("within it", values[~beyond], "#56B4E9"),
        )
    ]
    shapes, notes = [_upright(bound, "dash", "var(--ink)")], []
    right = realised is not None and realised < bound
    notes.append(_beside(bound, f"limit {write_percent(bound)}", right=right, row=1.09))
    if realised is not None:
        if promise["interval"] and None not in promise["interval"]:
            low, high = promise["interval"]
            shapes.append(
                {
                    "type": "rect",
                    "x0": low,
                    "x1": high,
                    "yref": "paper",
                    "y0": 0,
                    "y1": 1,
                    "fillcolor": "#0072B2",
                    "opacity": 0.13,
                    "line": {"width": 0},
                    "layer": "below",
                }
            )
        shapes.append(_upright(realised, "solid", "#0072B2"))
        notes.append(_beside(realised, f"realised {write_percent(realised)}", right=not right, row=1.09))
    layout = make_layout(
        320,
        {"tickformat": ".0%", "title": {"text": "share of periods", "font": {"size": 12}}, "rangemode": "tozero"},
        hovermode="closest",
    )
    layout["margin"] |= {"t": 34}
    reach = [float(edges[0]), float(edges[-1])]
    # Room for the word beside the limit.
    reach = [min(reach[0], bound - 0.15 * (reach[1] - reach[0])), reach[1]]
    layout["xaxis"] |= {"type": "linear", "tickformat": ".0%", "range": reach}
    return {"data": data, "layout": layout | {"shapes": shapes, "annotations": notes, "bargap": 0, "barmode": "stack"}}


def draw_trace(rows: pd.DataFrame) -> Spec:
    """Risk against its bound over the decision days: the last iteration of each, and the range over all of them."""
    days = rows.groupby("date", sort=True)
    last = days.last()
    risk = days["risk"]
    violated = days["regime"].apply(lambda regimes: bool((regimes == "violated").any()))
    x = [str(day.date()) for day in last.index]
    edge: Spec = {"type": "scatter", "mode": "lines", "x": x, "hoverinfo": "skip", "line": {"width": 0}}
    value = "%{fullData.name}  %{y:.4f}<extra></extra>"
    data: list[Spec] = [
        edge | {"y": round_figures(risk.min().to_numpy())},
        edge | {"y": round_figures(risk.max().to_numpy()), "fill": "tonexty", "fillcolor": "rgba(0,114,178,0.18)"},
        {
            "type": "scatter",
            "mode": "lines",
            "name": "estimate after training",
            "x": x,
            "y": round_figures(last["risk"].to_numpy()),
            "line": {"color": "#0072B2", "width": 2},
            "hovertemplate": value,
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "bound",
            "x": x,
            "y": round_figures(last["bound"].to_numpy()),
            "line": {"color": "var(--ink)", "width": 1.5, "dash": "dash"},
            "hovertemplate": value,
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "outside the bound at some iteration",
            "x": [day for day, outside in zip(x, violated, strict=True) if outside],
            "y": round_figures(last["risk"].to_numpy()[violated.to_numpy()]),
            "marker": {"color": "#D55E00", "symbol": "x-thin", "size": 7, "line": {"width": 2, "color": "#D55E00"}},
            "hovertemplate": "%{fullData.name}<extra></extra>",
        },
    ]
    return {"data": data, "layout": make_layout(300, {}, hovermode="x unified")}


def make_layout(height: int, y: Spec, *, hovermode: str) -> Spec:
    """The layout that all figures over days share."""
    axis = {"gridcolor": "var(--line)", "linecolor": "var(--line)", "zeroline": False, "automargin": True}
    return {
        "height": height,
        "margin": {"l": 48, "r": 12, "t": 10, "b": 32},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {
            "family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
            "size": 12,
            "color": "var(--ink)",
        },
        "hoverlabel": {"bgcolor": "var(--card)", "bordercolor": "var(--line)", "font": {"color": "var(--ink)"}},
        "hovermode": hovermode,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "var(--muted)", "activecolor": "var(--ink)"},
        "showlegend": False,
        "xaxis": axis | {"type": "date", "showgrid": False, "ticks": "outside", "tickcolor": "var(--line)"},
        "yaxis": axis | y,
    }


def _upright(x: float, dash: str, colour: str) -> Spec:
    line = {"color": colour, "width": 2, "dash": dash}
    return {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1.04, "line": line}


def _beside(x: float, text: str, *, right: bool, row: float) -> Spec:
    """A word at the top of an upright line, to its right or left."""
    return {
        "x": x,
        "yref": "paper",
        "y": row,
        "yanchor": "middle",
        "xanchor": "left" if right else "right",
        "text": text,
        "showarrow": False,
        "font": {"size": 12, "color": "var(--ink)"},
    }


def _faint(colour: str) -> str:
    """The colour, nearly transparent; grey for one of the style sheet's."""
    if not colour.startswith("#"):
        return "rgba(128,128,128,0.13)"
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.13)"


def _returns(rows: pd.DataFrame) -> Any:
    return rows["return"].to_numpy()[1:]


def make_days(rows: pd.DataFrame) -> list[str]:
    """The days of a table's rows."""
    return list(rows["date"].dt.strftime("%Y-%m-%d"))


def round_figures(values: Any, digits: int = 6) -> list[float | None]:
    """Figures to the eye: what cannot be seen only makes the page large."""
    return [
        None if math.isnan(value) else value for value in np.round(np.asarray(values, dtype=float), digits).tolist()
    ]


def render_line_legend(found: Sequence[StrategyGroup]) -> str:
    """Buttons that show and hide the curves of wealth and drawdown."""
    styles, hidden = line_styles(found), set(hidden_at_first(found))
    items = []
    for group in found:
        style = styles[group.name]
        line = (
            f"<svg width='22' height='10' aria-hidden='true'><line x1='0' y1='5' x2='22' y2='5' "
            f"style='stroke:{style['color']}' stroke-width='{style['width'] + 0.4}' "
            f"stroke-dasharray='{DASHARRAYS[style['dash']]}'/></svg>"
        )
        # The figures know the strategy by its escaped name, so the attribute is escaped twice.
        name = escape(escape(group.name))
        pressed = "false" if group.name in hidden else "true"
        items.append(
            f"<li><button type='button' data-strategy='{name}' aria-pressed='{pressed}'>{line}{escape(group.title)}"
            "</button></li>"
        )
    return f"<ul class='legend' aria-label='Show or hide strategies'>{''.join(items)}</ul>"


def render_area_legend(areas: Sequence[tuple[str, int | None]]) -> str:
    """The colours of the areas of `draw_weights`."""
    items = []
    for position, (name, number) in enumerate(areas):
        if number is None:
            colour, hatched = ("var(--cash)" if position == 0 else "var(--muted)"), ""
        else:
            colour = FILLS[number % len(FILLS)]
            hatched = " hatched" if number >= len(FILLS) else ""
        items.append(
            f"<li><span class='key'><span class='swatch{hatched}' style='background-color:{colour}'></span>"
            f"{escape(name)}</span></li>"
        )
    return f"<ul class='legend'>{''.join(items)}</ul>"


def describe_weights(days: int) -> str:
    """What stands below the figure of weights."""
    step = find_step(days)
    return "Weights after each day's trade, cash at the bottom" + (
        f"; one day in {step} is drawn." if step > 1 else "."
    )
