"""Benchmarks whose weights are a formula: no solver, no extra, the same result everywhere."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from portfolio_sdpo.backtest.lookback import LookbackStrategy
from portfolio_sdpo.portfolio.market import Array, Market


class InverseVolatility(LookbackStrategy):
    """Weights in proportion to one over the standard deviation of returns."""

    name: Literal["inverse-volatility"] = "inverse-volatility"

    def allocate(self, returns: Array, cash: float) -> Array:
        inverse = 1.0 / returns.std(axis=0, ddof=1)
        return inverse / inverse.sum()


class MeanVariance(LookbackStrategy):
    """The fully invested long-only mix of highest Sharpe ratio, where all pairs of stocks have the same correlation.

    With the average correlation ρ in the place of all of them, the optimum is a formula (Elton, Gruber and Padberg,
    1976): stocks in the order of their ratio of mean excess return to standard deviation σ, as long as the ratio
    exceeds a cut-off C, have the weight (ratio − C) / σ, up to a common factor. So a year of prices is asked for two
    figures per stock and one for all of them, instead of a matrix that it cannot tell. Mean returns are pulled towards
    their average by `shrink`: past winners owe much to luck. Where no stock earned more than cash, it holds cash.
    """

    name: Literal["mean-variance"] = "mean-variance"
    shrink: float = Field(default=0.5, ge=0, le=1)
    """Share by which mean returns are pulled towards that of the average stock."""

    def allocate(self, returns: Array, cash: float) -> Array:
        excess = returns - cash
        mean = excess.mean(axis=0)
        mean = mean + self.shrink * (mean.mean() - mean)
        return maximise_sharpe(mean, excess.std(axis=0, ddof=1), average_correlation(excess))


def average_correlation(returns: Array) -> float:
    """Mean correlation between different columns of returns [S, n], at least 0; 0 for a single one."""
    stocks = returns.shape[1]
    if stocks == 1:
        return 0.0
    correlations = np.corrcoef(returns.T)
    return float(np.clip((correlations.sum() - stocks) / (stocks * (stocks - 1)), 0.0, 0.99))


def maximise_sharpe(mean: Array, spread: Array, correlation: float) -> Array:
    """[n] long-only weights of highest ratio of mean [n] to standard deviation, for one correlation of all pairs.

    >>> maximise_sharpe(np.array([0.02, 0.01, -0.01]), np.array([0.1, 0.1, 0.1]), 0.0).round(3).tolist()
    [0.667, 0.333, 0.0]
    """
    ratio = mean / spread
    order = np.argsort(-ratio, kind="stable")
    best = ratio[order]
    # The cut-off if the first 1, 2, … stocks take part; those take part whose ratio is above their own.
    cut_offs = correlation * np.cumsum(best) / (1.0 - correlation + correlation * np.arange(1, len(best) + 1))
    taking_part = int((best > np.maximum(cut_offs, 0.0)).cumprod().sum())
    weights = np.zeros(len(mean))
    if taking_part:
        chosen = order[:taking_part]
        weights[chosen] = (ratio[chosen] - cut_offs[taking_part - 1]) / spread[chosen]
        weights /= weights.sum()
    return weights


class Momentum(LookbackStrategy):
    """12-1 momentum (Jegadeesh and Titman, 1993): equal parts of the stocks that grew most over the year but its last
    month, which is left out because single stocks tend to turn around within a month.
    """

    name: Literal["momentum-12-1"] = "momentum-12-1"
    share: float = Field(default=0.3, gt=0, le=1)
    """Share of the stocks that is held, rounded up."""

    def count_sessions(self, history: Market) -> int:
        return self.lookback or max(round(history.sessions_per_year), 2)

    def sample(self, history: Market) -> Array:
        """[S, A] returns of the year without its last month (a twelfth of its sessions)."""
        sessions = self.count_sessions(history)
        skipped = max(round(sessions / 12), 1)
        return history.gross_returns[-sessions:-skipped] - 1.0

    def allocate(self, returns: Array, cash: float) -> Array:
        growth = np.log1p(returns).sum(axis=0)
        held = max(int(np.ceil(self.share * len(growth) - 1e-9)), 1)
        weights = np.zeros(len(growth))
        weights[np.argsort(-growth, kind="stable")[:held]] = 1.0 / held
        return weights
