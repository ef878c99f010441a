"""What each stock contributed to the realised CVaR of a track: what it earned and lost in the worst periods.

Within a period wealth changes by what each asset earns and by the fees, so these add up to its return, and over the
worst periods, each weighted as in the CVaR, to the CVaR itself: not a model of risk, but where the losses came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from portfolio_sdpo.backtest.record import KEYS
from portfolio_sdpo.common.numbers import percent, share
from portfolio_sdpo.portfolio.market import CASH, Array
from portfolio_sdpo.portfolio.return_measures import window_returns
from portfolio_sdpo.report.figures import make_layout, round_figures
from portfolio_sdpo.report.looks import Spec

FEES = "fees"
BARS = 15
"""Stocks with a bar of their own: those with the largest contributions, losses or gains."""
_LOSS, _GAIN, _REST = "#D55E00", "#0072B2", "var(--muted)"


def find_contributions(
    rows: pd.DataFrame, weights: pd.DataFrame, trades: pd.DataFrame | None, promise: Mapping[str, Any]
) -> pd.Series | None:
    """Contributions to the realised CVaR by asset, with CASH and FEES, that add up to it; None without a period.

    rows, weights, trades: of one track, from the tables of its backtest (None: nothing was traded).
    """
    horizon, alpha = int(promise["horizon"]), float(promise["alpha"])
    periods = window_returns(rows["return"].to_numpy()[1:], horizon)
    if not len(periods):
        return None
    assets = [str(column) for column in weights.columns if column not in KEYS]
    earned = _find_earned(rows, weights[assets].to_numpy(), _pivot_amounts(rows, trades, assets))
    together = np.concatenate([np.zeros((1, earned.shape[1])), np.cumsum(earned, axis=0)])
    worst = np.argsort(periods, kind="stable")
    part = np.clip(alpha * len(periods) - np.arange(len(periods)), 0.0, 1.0)
    worst, part = worst[part > 0.0], part[part > 0.0]
    wealth = rows["wealth"].to_numpy()[worst]
    inside = (together[worst + horizon] - together[worst]) / wealth[:, None]
    return pd.Series(part @ inside / part.sum(), index=[*assets, FEES])


def _pivot_amounts(rows: pd.DataFrame, trades: pd.DataFrame | None, assets: list[str]) -> Array:
    """What was bought of each asset on each day [days, assets], in units of wealth; a sale is negative."""
    amounts = np.zeros((len(rows), len(assets)))
    if trades is not None and len(trades):
        days = np.searchsorted(rows["date"].to_numpy(), trades["date"].to_numpy())
        columns = pd.Index(assets).get_indexer(trades["ticker"])
        np.add.at(amounts, (days, columns), trades["amount"].to_numpy())
    amounts[:, assets.index(CASH)] -= amounts.sum(axis=1) + rows["cost"].to_numpy()
    return amounts


def _find_earned(rows: pd.DataFrame, weights: Array, amounts: Array) -> Array:
    """What each asset earned from each day to the next, and the fees: [days − 1, assets + 1], in units of wealth."""
    cost = rows["cost"].to_numpy()
    after = weights * (rows["wealth"].to_numpy() - cost)[:, None]
    before = after - amounts
    return np.column_stack([before[1:] - after[:-1], -cost[:-1]])


def draw_contributions(found: pd.Series, weights: pd.DataFrame) -> Spec:
    """A bar for each asset, the largest losses first."""
    ordered = found.drop([CASH, FEES]).sort_values(key=np.abs, ascending=False)
    held = ordered[ordered != 0.0]
    shown, rest = held.iloc[:BARS].sort_values(), held.iloc[BARS:]
    bars = [(str(name), float(value), float(weights[name].mean())) for name, value in shown.items()]
    if len(rest):
        bars.append((f"{len(rest)} others", float(rest.sum()), float(weights[list(rest.index)].sum(axis=1).mean())))
    bars.append((CASH, float(found[CASH]), float(weights[CASH].mean())))
    labels = [escape(name) for name, _, _ in bars] + [FEES]
    values = [value for _, value, _ in bars] + [float(found[FEES])]
    told = [f"{percent(mean)} of wealth on average" for _, _, mean in bars] + ["of what was traded"]
    plain = {escape(CASH), FEES, f"{len(rest)} others"}
    data: Spec = {
        "type": "bar",
        "orientation": "h",
        "y": labels,
        "x": round_figures(values, 6),
        "text": [percent(value, 2) for value in values],
        "textposition": "outside",
        "cliponaxis": False,
        "customdata": told,
        "marker": {
            "color": [
                _REST if name in plain else _LOSS if value < 0 else _GAIN
                for name, value in zip(labels, values, strict=True)
            ]
        },
        "hovertemplate": "%{y}  %{text}<br>%{customdata}<extra></extra>",
    }
    low, high = min(values), max(*values, 0.0)
    room = 0.18 * (high - low or 0.01)
    layout = make_layout(70 + 26 * len(labels), {}, hovermode="closest")
    layout["xaxis"] |= {
        "type": "linear",
        "tickformat": ".1~%",
        "showgrid": True,
        "range": [low - room, high + room],
    }
    layout["yaxis"] |= {"type": "category", "autorange": "reversed", "showgrid": False}
    return {"data": [data], "layout": layout | {"bargap": 0.25}}


def describe_contributions(promise: Mapping[str, Any]) -> str:
    """What stands below `draw_contributions`."""
    return (
        f"What each stock earned in the worst {share(promise['alpha'])} of the periods, on average; with cash and fees "
        f"they add up to the realised CVaR. Blue earned while others lost."
    )
