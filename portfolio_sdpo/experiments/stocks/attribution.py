"""What an agent's growth is made of: how much it is invested on average, when it is, and in which stocks.

The market is 1/N. Of log growth Σ g_t, with the share s_t that is invested while 1/N grows by m_t,

    exposure    mean(s) · Σ m_t                what that share of 1/N, held all the time, would have earned
    timing      Σ (s_t − mean(s)) · m_t        being in the market when it rises
    choice      the rest                       which stocks

`follows` says whether the share follows the market: its correlation with 1/N's growth over a window that ends on the
day of the decision, or some sessions before. A policy that knows what it was trained on follows today's window; one
whose training takes weeks to arrive follows an older one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from portfolio_sdpo.portfolio.market import Array

LAGS = (0, 10, 20)
"""Sessions between the window's end and the decision."""


@dataclass(frozen=True)
class Attribution:
    """Parts of one track's log growth, and what its invested share follows."""

    exposure: float
    timing: float
    choice: float
    follows: tuple[float | None, ...]
    """by `LAGS`; None where the share never changes or the track is too short"""

    @classmethod
    def of(cls, invested: Array, growth: Array, market: Array, window: int) -> Attribution:
        """invested: [T] share after the trade of each day. growth, market: [T] log growth since, own and 1/N's.

        >>> parts = Attribution.of(np.array([1.0, 0.0]), np.array([0.1, 0.0]), np.array([0.1, -0.1]), 1)
        >>> parts.exposure, parts.timing, parts.choice
        (0.0, 0.1, 0.0)
        """
        mean = float(invested.mean())
        exposure = mean * float(market.sum())
        timing = float(((invested - mean) * market).sum())
        follows = tuple(_correlate(invested, market, window, lag) for lag in LAGS)
        return cls(exposure, timing, float(growth.sum()) - exposure - timing, follows)


def _correlate(invested: Array, market: Array, window: int, lag: int) -> float | None:
    """Correlation of the share with the market's growth over `window` sessions up to `lag` sessions before."""
    first = window + lag
    if len(invested) - first < 2:
        return None
    # What grew up to day t is market[:t]: market[t] is still to come when day t decides.
    total = np.concatenate([[0.0], market.cumsum()])
    days = np.arange(first, len(invested))
    past, share = total[days - lag] - total[days - lag - window], invested[first:]
    if np.ptp(past) < 1e-12 or np.ptp(share) < 1e-12:
        return None
    return float(np.corrcoef(share, past)[0, 1])


def average_follows(found: Sequence[Attribution]) -> tuple[float | None, ...]:
    """The mean of each correlation over tracks that have it."""
    columns = zip(*(each.follows for each in found), strict=True)
    known = ([value for value in column if value is not None] for column in columns)
    return tuple(float(np.mean(values)) if values else None for values in known)
