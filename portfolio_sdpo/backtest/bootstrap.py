"""The stationary block bootstrap of sessions (Politis and Romano, 1994; drawn by `arch`), which intervals come from."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from portfolio_sdpo.common.plugins import require_extra
from portfolio_sdpo.portfolio.market import Array
from portfolio_sdpo.portfolio.scenarios import politis_white
from portfolio_sdpo.settings import Settings

LEAST_PERIODS = 20
"""Periods of the horizon that do not overlap, below which nothing about periods is tested: the worst 5 % of them would
be less than a single one."""


class Bootstrap(Settings):
    """How intervals are drawn; the same settings give the same numbers."""

    draws: int = Field(default=1000, ge=1)
    """Resampled paths."""
    level: float = Field(default=0.95, gt=0, lt=1)
    """Confidence of an interval."""
    block: int | None = Field(default=None, ge=1)
    """Mean length of a block in sessions; None takes Politis and White's choice, at least the horizon looked at."""
    seed: int = Field(default=0, ge=0)

    def interval(self, draws: Array) -> tuple[float, float]:
        """The percentile interval of resampled values; NaN when there is none or one of them is not defined."""
        if not len(draws) or not np.isfinite(draws).all():
            return math.nan, math.nan
        low, high = np.quantile(draws, [(1.0 - self.level) / 2.0, (1.0 + self.level) / 2.0])
        return float(low), float(high)

    def block_length(self, returns: Array, horizon: int = 1) -> int:
        """The mean length of a block for a series [D] of which windows of `horizon` sessions are looked at."""
        return min(self.block or max(math.ceil(politis_white(returns)), horizon), len(returns))


def resample_days(returns: Array, bootstrap: Bootstrap, horizon: int = 1) -> NDArray[np.int64]:
    """[draws, D] indices of days: blocks of random length, mean `block`, the end followed by the start.

    A statistic over windows of `horizon` sessions needs blocks of at least that length to see real windows.
    """
    require_extra("A confidence interval", "arch", "backtest")
    from arch.bootstrap import StationaryBootstrap

    source = StationaryBootstrap(
        bootstrap.block_length(returns, horizon),
        np.arange(len(returns)),
        seed=np.random.default_rng(bootstrap.seed),
    )
    return np.stack([source.update_indices() for _ in range(bootstrap.draws)])
