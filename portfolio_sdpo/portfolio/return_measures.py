"""Measures of returns per session, in NumPy, for one path or a batch of them: `[..., D]` to `[...]`.

Written out rather than taken from skfolio, because confidence intervals need thousands of paths at once and a missing
extra should not cost the headline figures; the tests hold each of them against skfolio and the risk measures of the
agent. Returns are simple (0.01 = 1 %), losses are negative throughout: VaR, CVaR and drawdown are numbers ≤ 0 for a
strategy that lost. α is the tail fraction. A year has 252 sessions unless `per_year` says otherwise
(`Market.sessions_per_year`). What is not defined is NaN, never a warning.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from pydantic import Field

from portfolio_sdpo.portfolio.market import SESSIONS_PER_YEAR, Array
from portfolio_sdpo.settings import Settings

_NO_SPREAD = 1e-12
"""A standard deviation below this is rounding: 252 returns of a constant rate have about 1e-17."""


def cagr(returns: Array, per_year: float = SESSIONS_PER_YEAR) -> Array:
    """Compound growth per year.

    >>> float(cagr(np.full(252, 0.0)))
    0.0
    """
    with np.errstate(over="ignore", divide="ignore"):
        grown = np.log1p(returns).sum(-1)
        rate = np.expm1(grown * per_year / max(returns.shape[-1], 1))
    return _defined(rate, returns.shape[-1] > 0)


def volatility(returns: Array, per_year: float = SESSIONS_PER_YEAR) -> Array:
    """Standard deviation (N − 1) of returns per session, times √per_year."""
    return _spread(returns) * math.sqrt(per_year)


def sharpe(excess: Array, per_year: float = SESSIONS_PER_YEAR) -> Array:
    """Mean over standard deviation (N − 1) of returns per session in excess of cash, times √per_year."""
    return _ratio(excess.sum(-1) / max(excess.shape[-1], 1), _spread(excess)) * math.sqrt(per_year)


def sortino(excess: Array, per_year: float = SESSIONS_PER_YEAR) -> Array:
    """Mean over downside deviation, √(mean of min(excess, 0)²) over all sessions, times √per_year."""
    if excess.shape[-1] == 0:
        return np.full(excess.shape[:-1], np.nan)
    downside = np.sqrt(np.square(np.minimum(excess, 0.0)).mean(-1))
    return _ratio(excess.mean(-1), downside) * math.sqrt(per_year)


def drawdowns(returns: Array) -> Array:
    """[..., D + 1] wealth relative to its highest so far, minus 1; the first is the start's 0."""
    with np.errstate(divide="ignore"):
        grown = np.cumsum(np.log1p(returns), axis=-1)
    grown = np.concatenate([np.zeros((*returns.shape[:-1], 1)), grown], axis=-1)
    return np.expm1(grown - np.maximum.accumulate(grown, axis=-1))


def max_drawdown(returns: Array) -> Array:
    """The deepest fall from a peak, ≤ 0: −0.2 is a loss of a fifth."""
    return drawdowns(returns).min(-1)


def calmar(returns: Array, per_year: float = SESSIONS_PER_YEAR) -> Array:
    """Yearly growth over the depth of the deepest drawdown."""
    return _ratio(cagr(returns, per_year), -max_drawdown(returns))


def hit_rate(returns: Array) -> Array:
    """Share of sessions that gained."""
    return _defined((returns > 0.0).sum(-1) / max(returns.shape[-1], 1), returns.shape[-1] > 0)


def window_returns(returns: Array, horizon: int) -> Array:
    """[..., D − horizon + 1] simple returns over every window of `horizon` sessions, overlapping; may be empty.

    >>> window_returns(np.array([0.1, -0.5, 1.0]), 2).round(3)
    array([-0.45,  0.  ])
    """
    if horizon > returns.shape[-1]:
        return np.empty((*returns.shape[:-1], 0))
    if horizon == 1:
        return returns
    with np.errstate(divide="ignore"):
        grown = np.cumsum(np.log1p(returns), axis=-1)
    before = np.concatenate([np.zeros((*returns.shape[:-1], 1)), grown[..., :-horizon]], axis=-1)
    return np.expm1(grown[..., horizon - 1 :] - before)


def value_at_risk(values: Array, alpha: float) -> Array:
    """The α-quantile: the smallest value at or below which at least the fraction α lies (no interpolation).

    >>> float(value_at_risk(np.array([4.0, 1.0, 3.0, 2.0]), 0.5))
    2.0
    """
    count = values.shape[-1]
    if count == 0:
        return np.full(values.shape[:-1], np.nan)
    last = _tail_size(alpha, count) - 1
    return np.partition(values, last, axis=-1)[..., last]


def conditional_value_at_risk(values: Array, alpha: float) -> Array:
    """Mean of the worst fraction α, the value at its edge counted by the part inside: `risk.CVaR` of equal weights.

    >>> float(conditional_value_at_risk(np.array([4.0, 1.0, 3.0, 2.0]), 0.5))
    1.5
    """
    count = values.shape[-1]
    if count == 0:
        return np.full(values.shape[:-1], np.nan)
    size = _tail_size(alpha, count)
    worst = np.sort(np.partition(values, size - 1, axis=-1)[..., :size], axis=-1)
    inside = np.clip(alpha * count - np.arange(size), 0.0, 1.0)
    return worst @ inside / inside.sum()


def normal_cvar(alpha: float) -> float:
    """CVaR of the standard normal distribution.

    >>> round(normal_cvar(0.05), 4)
    -2.0627
    """
    normal = NormalDist()
    return -normal.pdf(normal.inv_cdf(alpha)) / alpha


class Volatility(Settings):
    """An exponentially weighted volatility, and past days scaled to it.

    Volatility clusters, so days drawn as they were understate a crash that has begun and overstate one that is over.
    Filtered historical simulation (Barone-Adesi, Giannopoulos and Vosper 1999) divides each past day by the volatility
    known the day before and multiplies it by today's. Only falls count here: they predict volatility better than rises.
    """

    decay: float = Field(default=0.85, gt=0, lt=1)
    """Weight of a day relative to that of the day after it: 0.85 has forgotten half within five sessions."""
    floor: float = Field(default=0.5, ge=0, le=1)
    """Volatility never counts as less than this share of the long-run one: a calm can end any day."""

    def estimate(self, returns: Array) -> Array:
        """[T + 1, ...] volatility known before each of the T days of returns [T, ...], and after the last.

        √2 times the root of the weighted mean of min(return, 0)², which is the standard deviation where returns are
        symmetric about 0. The first day has the long-run value, that of all days with equal weights.
        """
        squares = 2.0 * np.square(np.minimum(returns, 0.0))
        longrun = squares.mean(axis=0) if len(squares) else np.zeros(squares.shape[1:])
        # Weights below 1e-9 of the first are dropped; the start is padded by the long-run value.
        reach = math.ceil(math.log(1e-9) / math.log(self.decay))
        weights = (1.0 - self.decay) * self.decay ** np.arange(reach)
        weights /= weights.sum()
        padded = np.concatenate([np.broadcast_to(longrun, (reach, *longrun.shape)), squares])
        columns = padded.reshape(len(padded), -1).T
        smooth = np.stack([np.convolve(column, weights, mode="valid") for column in columns], axis=-1)
        variance = smooth.reshape(-1, *longrun.shape)
        return np.sqrt(np.maximum(variance, self.floor**2 * longrun))

    def scale_to_today(self, returns: Array) -> Array:
        """[T] factors that scale each of the days of a series [T] to the volatility after its last."""
        known = self.estimate(returns)
        return np.divide(known[-1], known[:-1], out=np.ones(len(returns)), where=known[:-1] > 0.0)


def _tail_size(alpha: float, count: int) -> int:
    """How many of `count` values reach into the tail; 0.05 · 100 is 5 and not, by rounding, 6."""
    return max(math.ceil(alpha * count - 1e-9), 1)


def _spread(values: Array) -> Array:
    """Standard deviation (N − 1); NaN for fewer than two values, 0 where only rounding differs."""
    if values.shape[-1] < 2:
        return np.full(values.shape[:-1], np.nan)
    spread = values.std(-1, ddof=1)
    return np.where(spread < _NO_SPREAD, 0.0, spread)


def _ratio(above: Array, below: Array) -> Array:
    """above / below, NaN where the divisor is 0."""
    usable = below > _NO_SPREAD
    return np.where(usable, above / np.where(usable, below, 1.0), np.nan)


def _defined(value: Array, condition: bool) -> Array:
    return value if condition else np.full(np.shape(value), np.nan)
