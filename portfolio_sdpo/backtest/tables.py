"""What strategies did, as tables: one row per strategy, seed and date.

The row of a date holds what is known at its close: nothing in it depends on a later price.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from portfolio_sdpo.backtest.simulate import Track
from portfolio_sdpo.errors import BacktestError
from portfolio_sdpo.portfolio.return_measures import drawdowns
from portfolio_sdpo.prices.prices import DATE_UNIT

Kind = Literal["agent", "shielded", "benchmark"]
KEYS = ("strategy", "seed", "date")
TRACE = ("iteration", "objective", "risk", "bound", "slack", "regime")
"""What an agent may tell of its training, beside the date: `slack` is positive inside the bound."""


@dataclass(frozen=True, eq=False)
class Walk:
    """One strategy's way through the market."""

    track: Track
    kind: Kind
    seed: int | None = None
    """None for what has no randomness."""
    trace: Sequence[dict[str, Any]] = ()
    """Rows with `date` and the columns TRACE."""
    shield: Sequence[dict[str, Any]] = ()
    """Rows of `ShieldedStrategy.days`."""


def equity_table(walks: Sequence[Walk]) -> pd.DataFrame:
    """Wealth; the return since the session before and what cash earned in it; drawdown; cost and turnover of the trade.

    On the first date there is no return yet, on the last no trade any more.
    """
    frames = []
    for walk in walks:
        track = walk.track
        columns = {
            "wealth": track.wealth,
            "return": np.concatenate([[np.nan], track.returns]),
            "cash_return": np.concatenate([[np.nan], track.cash_returns]),
            "drawdown": drawdowns(track.returns),
            "cost": np.concatenate([track.costs, [0.0]]),
            "turnover": np.concatenate([track.turnover, [0.0]]),
        }
        frames.append(_keyed(walk, track.dates, columns))
    return pd.concat(frames, ignore_index=True)


def weights_table(walks: Sequence[Walk]) -> pd.DataFrame:
    """Weights of CASH and every ticker after the trade of the date; on the last date, without one, the drifted ones."""
    frames = []
    for walk in walks:
        track = walk.track
        taken = set(KEYS) & set(track.assets)
        if taken:
            raise BacktestError(f"A ticker cannot be called {min(taken)} in a backtest; rename that column.")
        weights = np.concatenate([track.weights, track.held[-1:]])
        frames.append(_keyed(walk, track.dates, dict(zip(track.assets, weights.T, strict=True))))
    return pd.concat(frames, ignore_index=True)


def trades_table(walks: Sequence[Walk], fee: float) -> pd.DataFrame:
    """Every stock bought or sold: weight before and after, amount (a sale is negative) and fee in units of wealth."""
    frames = []
    for walk in walks:
        track = walk.track
        wealth = track.wealth[:-1]
        left = wealth - track.costs
        amounts = left[:, None] * track.weights[:, 1:] - wealth[:, None] * track.held[:-1, 1:]
        # What differs by rounding alone was not traded.
        days, stocks = np.nonzero(np.abs(amounts) > 1e-12 * wealth[:, None])
        amount = amounts[days, stocks]
        columns = {
            "ticker": np.array(track.assets[1:], dtype=object)[stocks],
            "weight_before": track.held[days, stocks + 1],
            "weight_after": track.weights[days, stocks + 1],
            "amount": amount,
            "cost": fee * np.abs(amount),
        }
        frames.append(_keyed(walk, track.dates[days], columns))
    return pd.concat(frames, ignore_index=True).astype({"ticker": "str"})


def trace_table(walks: Sequence[Walk]) -> pd.DataFrame | None:
    """What the agents told of their training, or None when none did."""
    frames = []
    for walk in walks:
        if not walk.trace:
            continue
        rows = pd.DataFrame(list(walk.trace), columns=["date", *TRACE])
        try:
            dates = rows.pop("date").to_numpy().astype("datetime64[D]")
            numbers = rows.astype(dict.fromkeys(TRACE[:-1], "float64"))
        except (TypeError, ValueError) as error:
            raise BacktestError(f"The training trace of {walk.track.name} cannot be read ({error}).") from None
        frames.append(_keyed(walk, dates, {name: numbers[name].to_numpy() for name in TRACE}))
    return pd.concat(frames, ignore_index=True).astype({"regime": "str"}) if frames else None


def shield_table(walks: Sequence[Walk]) -> pd.DataFrame | None:
    """What the shield did at every decision, or None without a shield."""
    frames = []
    for walk in walks:
        if walk.shield:
            rows = pd.DataFrame(list(walk.shield))
            dates = rows.pop("date").to_numpy().astype("datetime64[D]")
            frames.append(_keyed(walk, dates, {str(name): rows[name].to_numpy() for name in rows}))
    return pd.concat(frames, ignore_index=True).astype({"removed": "str"}) if frames else None


def by_track(table: pd.DataFrame) -> dict[tuple[str, int | None], pd.DataFrame]:
    """The rows of each strategy and seed, in the order of the table."""
    groups = table.groupby(["strategy", "seed"], sort=False, dropna=False)
    return {(str(name), None if pd.isna(seed) else int(seed)): rows for (name, seed), rows in groups}


def _keyed(walk: Walk, dates: Any, columns: dict[str, Any]) -> pd.DataFrame:
    days = pd.DatetimeIndex(dates).as_unit(DATE_UNIT)
    seeds = pd.array([walk.seed] * len(days), dtype="Int64")
    keys = {"strategy": pd.array([walk.track.name] * len(days), dtype="str"), "seed": seeds, "date": days}
    return pd.DataFrame({**keys, **columns})
