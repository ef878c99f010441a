"""What happened to a track when: its worst drawdowns, its calendar years, and the known crises that it went through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pandas as pd

from portfolio_sdpo.portfolio.market import CASH, SESSIONS_PER_YEAR, Array
from portfolio_sdpo.portfolio.return_measures import conditional_value_at_risk, window_returns

STRESS = {
    "1929–1932": ("1929-09-03", "1932-06-01"),
    "1973–1974": ("1973-01-11", "1974-10-03"),
    "1987": ("1987-08-25", "1987-12-04"),
    "2000–2002": ("2000-03-24", "2002-10-09"),
    "2008": ("2007-10-09", "2009-03-09"),
    "2018 Q4": ("2018-09-20", "2018-12-24"),
    "2020": ("2020-02-19", "2020-03-23"),
    "2022": ("2022-01-03", "2022-10-12"),
}
"""Falls of the US stock market, from the close of its peak to that of its trough."""
_EVEN = 1e-9
"""A drawdown of less than this is rounding."""


@dataclass(frozen=True)
class Drawdown:
    """A fall of wealth below its highest so far."""

    peak: date
    trough: date
    recovered: date | None
    """The first day at the height of the peak again; None where the track ends before."""
    depth: float
    sessions: int
    """From the peak to the recovery, or to the end of the track."""


@dataclass(frozen=True)
class Year:
    """A calendar year of a track, as far as the track reaches."""

    year: int
    growth: float
    """Return over the year, net of fees."""
    invested: float
    """Mean share of wealth in stocks."""
    turnover: float
    """Value of what was traded, over wealth."""
    cost: float
    """Fees over wealth."""


@dataclass(frozen=True)
class Stress:
    """A track in a fall of the market."""

    growth: float
    worst: float | None
    """The lowest return over a period of the limit's horizon inside it; None where it is shorter."""


def find_drawdowns(rows: pd.DataFrame, most: int = 5) -> list[Drawdown]:
    """The deepest drawdowns of a track, the deepest first.

    rows: `date` and `wealth` of the equity table of one track.
    """
    wealth, days = rows["wealth"].to_numpy(), rows["date"].dt.date.to_numpy()
    below = wealth < np.maximum.accumulate(wealth) * (1.0 - _EVEN)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], below, [False]]).astype(int)))
    found = []
    for first, after in zip(edges[::2], edges[1::2], strict=True):
        peak, trough = first - 1, first + int(wealth[first:after].argmin())
        back = after < len(wealth)
        found.append(
            Drawdown(
                days[peak],
                days[trough],
                days[after] if back else None,
                float(wealth[trough] / wealth[peak] - 1.0),
                int((after if back else after - 1) - peak),
            )
        )
    return sorted(found, key=lambda each: each.depth)[:most]


def list_years(rows: pd.DataFrame, weights: pd.DataFrame | None) -> list[Year]:
    """The calendar years of a track.

    rows: of the equity table; weights: of the table of weights, None where they are not known.
    """
    years = rows["date"].dt.year.to_numpy()
    wealth = rows["wealth"].to_numpy()
    invested = None if weights is None else 1.0 - weights[CASH].to_numpy()
    costs, traded = rows["cost"].to_numpy() / wealth, rows["turnover"].to_numpy()
    found, before = [], float(wealth[0])
    for year in np.unique(years):
        inside = years == year
        last = float(wealth[inside][-1])
        share = float("nan") if invested is None else float(invested[inside].mean())
        found.append(
            Year(int(year), last / before - 1.0, share, float(traded[inside].sum()), float(costs[inside].sum()))
        )
        before = last
    return found


def list_stress(rows: pd.DataFrame, horizon: int) -> dict[str, Stress]:
    """The track in every fall of `STRESS` that lies within it as a whole."""
    days, wealth = rows["date"].to_numpy(), rows["wealth"].to_numpy()
    found = {}
    for name, edges in STRESS.items():
        first, last = (np.datetime64(edge) for edge in edges)
        if not (days[0] <= first and days[-1] >= last):
            continue
        start, end = (int(np.searchsorted(days, edge, side="right")) - 1 for edge in (first, last))
        inside = wealth[start : end + 1]
        periods = window_returns(inside[1:] / inside[:-1] - 1.0, horizon)
        found[name] = Stress(float(inside[-1] / inside[0] - 1.0), float(periods.min()) if len(periods) else None)
    return found


def roll_periods(rows: pd.DataFrame, promise: Mapping[str, Any], per_year: float | None) -> pd.DataFrame:
    """By the day on which a period of the limit's horizon ends: its return, and the CVaR of the year of them before.

    Columns `date`, `period` and `cvar`, NaN until there is a year of sessions; empty for a track without a period.
    """
    returns = rows["return"].to_numpy()[1:]
    periods = window_returns(returns, promise["horizon"])
    size = round(per_year or SESSIONS_PER_YEAR) - promise["horizon"] + 1
    cvar: Array = np.full(len(periods), np.nan)
    if 0 < size <= len(periods):
        trailing = np.lib.stride_tricks.sliding_window_view(periods, size)
        cvar[size - 1 :] = conditional_value_at_risk(trailing, promise["alpha"])
    return pd.DataFrame({"date": rows["date"].to_numpy()[promise["horizon"] :], "period": periods, "cvar": cvar})
