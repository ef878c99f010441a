"""Volatility, Sharpe ratio and beta of a track over the sessions before each day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from portfolio_sdpo.backtest.statistics import LEAST_VOLATILITY
from portfolio_sdpo.portfolio import return_measures as measures
from portfolio_sdpo.portfolio.market import SESSIONS_PER_YEAR, Array
from portfolio_sdpo.prices.frequency import name_session
from portfolio_sdpo.report.figures import find_step, make_days, make_layout, round_figures
from portfolio_sdpo.report.looks import Spec

_PANELS = {"volatility": ("volatility a year", ".0%"), "sharpe": ("Sharpe ratio", ".2~f"), "beta": ("beta", ".2~f")}
"""Name and form of the ticks of every panel, by its column."""
_COLOUR = "#0072B2"


def roll_measures(rows: pd.DataFrame, per_year: float | None, index: pd.DataFrame | None) -> pd.DataFrame:
    """`volatility`, `sharpe` and `beta` over `find_window` sessions up to each `date`; empty for a shorter track.

    rows, index: of the equity table, of the track and of what beta is about (None: no beta), over the same days. Sharpe
    ratio and beta are in excess of cash. NaN where one is not defined.
    """
    yearly = per_year or SESSIONS_PER_YEAR
    size, count = find_window(len(rows) - 1, yearly), len(rows) - 1
    if size is None:
        return pd.DataFrame({"date": [], "volatility": [], "sharpe": [], "beta": []})
    ends = np.arange(count, size - 1, -find_step(count))[::-1]
    returns, cash = (rows[name].to_numpy()[1:] for name in ("return", "cash_return"))
    own, excess = _cut_windows(returns, ends, size), _cut_windows(returns - cash, ends, size)
    volatility = measures.volatility(own, yearly)
    sharpe = np.where(volatility < LEAST_VOLATILITY, np.nan, measures.sharpe(excess, yearly))
    beta = np.full(len(ends), np.nan)
    if index is not None and np.array_equal(index["date"].to_numpy(), rows["date"].to_numpy()):
        market = _cut_windows(index["return"].to_numpy()[1:] - cash, ends, size)
        market = market - market.mean(-1, keepdims=True)
        spread = np.square(market).sum(-1)
        beta = np.divide((excess * market).sum(-1), spread, out=beta, where=spread > 0.0)
    return pd.DataFrame(
        {"date": rows["date"].to_numpy()[ends], "volatility": volatility, "sharpe": sharpe, "beta": beta}
    )


def find_window(sessions: int, per_year: float) -> int | None:
    """A year of sessions, or a quarter of one where the track is shorter than two years; None below half a year.

    >>> find_window(1000, 252), find_window(252, 252), find_window(100, 252)
    (252, 63, None)
    """
    year = round(per_year)
    if sessions >= 2 * year:
        return year
    return max(round(per_year / 4), 2) if sessions >= year / 2 else None


def draw_rolling_measures(rows: pd.DataFrame, record: Mapping[str, Any], index: pd.DataFrame | None) -> Spec | None:
    """One below the other, on one axis of time; None for a track that is too short."""
    rolled = roll_measures(rows, record.get("sessions_per_year"), index)
    shown = [name for name in _PANELS if rolled[name].notna().any()]
    if not shown:
        return None
    layout = make_layout(110 + 110 * len(shown), {}, hovermode="x unified")
    layout["margin"] |= {"t": 24}
    plain = layout.pop("yaxis")
    data: list[Spec] = []
    notes: list[Spec] = []
    for place, name in enumerate(shown):
        words, form = _PANELS[name]
        top = 1.0 - place / len(shown)
        axis = "y" if place == 0 else f"y{place + 1}"
        layout[axis.replace("y", "yaxis")] = plain | {
            "tickformat": form,
            "nticks": 5,
            "domain": [top - 0.78 / len(shown), top],
        }
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": words,
                "x": make_days(rolled),
                "y": round_figures(rolled[name].to_numpy(), 4),
                "yaxis": axis,
                "line": {"color": _COLOUR, "width": 1.8},
                "hovertemplate": f"%{{fullData.name}}  %{{y:{'.1%' if form.endswith('%') else '.2f'}}}<extra></extra>",
            }
        )
        notes.append(
            {
                "xref": "paper",
                "yref": "paper",
                "x": 0,
                "y": top,
                "xanchor": "left",
                "yanchor": "bottom",
                "text": words,
                "showarrow": False,
                "font": {"size": 12, "color": "var(--muted)"},
            }
        )
    # The days stand below the lowest of them.
    layout["xaxis"] |= {"anchor": data[-1]["yaxis"]}
    return {"data": data, "layout": layout | {"annotations": notes, "hoversubplots": "axis"}}


def describe_measures(rows: pd.DataFrame, record: Mapping[str, Any], index: str | None) -> str:
    """What stands below `draw_rolling_measures`, in words that hold for every strategy with this index."""
    per_year = record.get("sessions_per_year")
    size = find_window(len(rows) - 1, per_year or SESSIONS_PER_YEAR)
    beta = "" if index is None else f" Beta: how strongly a strategy moves with {index}, which has none itself."
    return f"Over the {size} {name_session(per_year)}s up to each day. Sharpe ratio in excess of cash.{beta}"


def _cut_windows(values: Array, ends: Any, size: int) -> Array:
    """The `size` values before each end: [ends, size]."""
    windows: Array = np.lib.stride_tricks.sliding_window_view(values, size)[ends - size]
    return windows
