"""Where confidence intervals come from: resampled sessions, and for the CVaR of periods simulated markets.

`resample_days` is the stationary block bootstrap of sessions (Politis and Romano, 1994; drawn by `arch`), which all
intervals but one come from. The other, `find_interval` of `draw_true_cvars`, says how far the realised CVaR of periods
may lie from the true one, where volatility comes in clusters.

A bootstrap of blocks rearranges the volatile months of one past, and no past shows how many there could have been:
where volatility stays high or low for a year, its 95 % interval holds the true CVaR in about half of all cases. Here
the distance between estimate and truth is read from simulated markets in which the truth is known:

1. Returns are compared with a grid of GJR-GARCH markets (Glosten, Jagannathan and Runkle, 1993) with Student's t, from
   independent days to clusters of months: for each of them, and each of `_SCALES` by which the track may have been
   calmer or more volatile than it is on average, how likely it makes the track. Because none of them is the real
   market, the likelihood counts only in part (`_TRUST`), so that several always remain.
2. Tracks as long as the real one are drawn from markets in this proportion, and weighed by how likely the real one is
   if it was as much calmer or more volatile than on average as the drawn one: what the track says about that is used.
3. On every drawn track the same estimate is made. By as much as it misses the truth of its market, in proportion to the
   depth of the tail below the mean, the realised CVaR is taken to miss its own.

The market gives only the error's size; the CVaR that it is applied to is that of the track. Grid and trust were chosen
on some simulated markets and judged on others: `benchmarks/interval_coverage.py`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from portfolio_sdpo.common.plugins import require_extra
from portfolio_sdpo.portfolio.market import Array
from portfolio_sdpo.portfolio.return_measures import conditional_value_at_risk, window_returns
from portfolio_sdpo.portfolio.scenarios import politis_white
from portfolio_sdpo.settings import Settings

LEAST_PERIODS = 20
"""Periods of the horizon that do not overlap, below which nothing about periods is tested: the worst 5 % of them would
be less than a single one."""
_PERSISTENCES = (0.5, 0.8, 0.92, 0.96, 0.98, 0.99, 0.995)
"""Share of a session's excess variance that is left after the next."""
_SHOCKS = (0.02, 0.06, 0.10, 0.15, 0.22)
"""Share of a session's variance that the square of the one before moves."""
_ASYMMETRIES = (0.3, 0.9)
"""Share of the shock that only falls cause."""
_DEGREES = (4.5, 8.0, 50.0)
"""Degrees of freedom of Student's t: from heavy tails to none."""
_SCALES = (0.75, 0.87, 1.0, 1.15, 1.33, 1.55, 1.9)
"""True volatility over that of the track; between them the likelihood is interpolated."""
_TRUST = 0.3
"""Power of the likelihood: the track counts as if it were so much shorter."""
_BELOW = 0.3
"""Share of the draws outside the interval that lie below it."""
_TRIES = 3
"""Drawn tracks for every draw that is returned, since many are unlike the real one."""
_BURN_IN = 250
"""Simulated sessions before those that are looked at."""
_TRUE_SESSIONS = 1500
"""Length of the paths from which the true CVaR of a market is read, two for every draw."""
_PRODUCTS = 16
"""Sessions whose factors of the likelihood are multiplied before a logarithm is taken, which costs more."""
_CHUNK = 4_000_000
"""Simulated returns that are held in memory at a time."""

Markets = NDArray[np.float64]
"""[..., 4] persistence, shock, asymmetry, degrees of freedom; the variance of a session is 1."""


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


def find_interval(drawn: Array, level: float) -> tuple[float, float]:
    """The interval at that level of confidence from `draw_true_cvars`; NaN where nothing was drawn.

    A calm past hides a deep tail more often than a volatile one invents it, so that less of what the level leaves out
    lies below the interval than above.
    """
    if not len(drawn):
        return math.nan, math.nan
    outside = 1.0 - level
    low, high = np.quantile(drawn, [_BELOW * outside, 1.0 - (1.0 - _BELOW) * outside])
    return float(low), float(high)


def draw_true_cvars(returns: Array, alpha: float, horizon: int, bootstrap: Bootstrap) -> Array:
    """[draws] values that the true CVaR of periods may have, given the returns [D] of a track; empty if it is constant.

    `find_interval` makes the interval of them; the share at or above a bound is the p-value of "the true CVaR is at
    least the bound".
    """
    return np.array(_draw_true_cvars(np.asarray(returns, dtype=np.float64).tobytes(), alpha, horizon, bootstrap))


@lru_cache(maxsize=4)  # the interval and the test of one track ask for the same draws
def _draw_true_cvars(content: bytes, alpha: float, horizon: int, bootstrap: Bootstrap) -> tuple[float, ...]:
    returns = np.frombuffer(content)
    periods = window_returns(returns, horizon)
    spread = float(returns.std())
    if not len(periods) or spread < 1e-12:
        return ()
    middle, depth = float(periods.mean()), float(periods.mean() - conditional_value_at_risk(periods, alpha))
    rng = np.random.default_rng(bootstrap.seed)
    markets = _list_markets()
    likelihood = _TRUST * _log_likelihood((returns - returns.mean()) / spread, markets, np.array(_SCALES))
    best = likelihood.max(axis=1)
    chances = np.exp(best - best.max())
    drawn = np.sort(rng.choice(len(markets), _TRIES * bootstrap.draws, p=chances / chances.sum()))
    true_depths = _find_true_depths(markets, drawn, alpha, horizon, rng)
    means, depths, spreads = [], [], []
    for rows in np.array_split(drawn, math.ceil(len(drawn) * len(returns) / _CHUNK)):
        tracks = _simulate(markets[rows], len(returns), rng)
        sums = _sum_periods(tracks, horizon)
        means.append(sums.mean(axis=-1))
        depths.append(means[-1] - conditional_value_at_risk(sums, alpha))
        spreads.append(tracks.std(axis=-1))
    scales = 1.0 / np.concatenate(spreads)
    weights = np.exp(_interpolate(likelihood, drawn, scales) - best[drawn])
    values = middle - depth / np.concatenate(depths) * (np.concatenate(means) + true_depths)
    return tuple(_draw_evenly(values, weights, bootstrap.draws).tolist())


@lru_cache(maxsize=1)
def _list_markets() -> Markets:
    """[M, 4] the grid; what a shock moves is part of what lasts, so that it is the smaller of the two."""
    grid = product(_PERSISTENCES, _SHOCKS, _ASYMMETRIES, _DEGREES)
    return np.array(list(grid))


def _coefficients(markets: Markets) -> tuple[Array, Array, Array, Array]:
    """ω, α, γ, β of h' = ω + (α + γ·[x < 0])·x² + β·h, each [M]."""
    persistence, shock, asymmetry, _ = markets.T
    return 1.0 - persistence, shock * (1.0 - asymmetry), 2.0 * shock * asymmetry, persistence - shock


def _log_likelihood(returns: Array, markets: Markets, scales: Array) -> Array:
    """[M, S] of returns [D] with mean 0, in markets whose volatility is `scales` [S]."""
    from scipy.special import gammaln

    constant, rise, fall, decay = (each[:, None] for each in _coefficients(markets))
    degrees = markets[:, 3:]
    half = (degrees + 1.0) / 2.0
    normed = gammaln(half) - gammaln(degrees / 2.0) - 0.5 * np.log(np.pi * (degrees - 2.0))
    variance, factors, tails = np.ones((3, len(markets), len(scales)))
    room = degrees - 2.0
    total = len(returns) * (normed - np.log(scales))
    for number, move in enumerate(returns, start=1):
        square = np.square(move / scales)
        factors *= variance
        tails *= 1.0 + square / (room * variance)
        variance = decay * variance + ((rise + fall if move < 0.0 else rise) * square + constant)
        if number % _PRODUCTS == 0 or number == len(returns):
            total -= 0.5 * np.log(factors) + half * np.log(tails)
            factors[:] = tails[:] = 1.0
    return total


def _interpolate(likelihood: Array, drawn: NDArray[np.intp], scales: Array) -> Array:
    """[N] the likelihood [M, S] of the drawn markets at scales [N], by cubic splines in their logarithm."""
    from scipy.interpolate import CubicSpline

    knots = np.log(_SCALES)
    spline = CubicSpline(knots, likelihood[drawn], axis=1)
    place = np.clip(np.log(scales), knots[0], knots[-1])
    part = np.clip(np.searchsorted(knots, place) - 1, 0, len(knots) - 2)
    return np.asarray((spline.c[:, part, np.arange(len(drawn))] * (place - knots[part]) ** np.c_[3:-1:-1]).sum(axis=0))


def _draw_evenly(values: Array, weights: Array, count: int) -> Array:
    """`count` equally likely values in place of weighted ones: the middles of as many equal parts.

    >>> _draw_evenly(np.array([3.0, 1.0]), np.array([0.25, 0.75]), 4).tolist()
    [1.0, 1.0, 1.0, 3.0]
    """
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    places = np.searchsorted(reached, (np.arange(count) + 0.5) / count * reached[-1])
    return np.asarray(values[order][places])


def _simulate(markets: Markets, sessions: int, rng: np.random.Generator) -> Array:
    """[M, sessions] returns with mean 0 and variance 1, one path per market, which has run for a year before."""
    constant, rise, fall, decay = _coefficients(markets)
    degrees = markets[:, 3]
    scale = np.sqrt((degrees - 2.0) / degrees)
    variance, path = np.ones(len(markets)), np.empty((sessions, len(markets)))
    for session in range(-_BURN_IN, sessions):
        move = np.sqrt(variance) * scale * rng.standard_t(degrees)
        variance = constant + (rise + fall * (move < 0.0)) * move * move + decay * variance
        if session >= 0:
            path[session] = move
    return path.T


def _find_true_depths(
    markets: Markets, drawn: NDArray[np.intp], alpha: float, horizon: int, rng: np.random.Generator
) -> Array:
    """[N] how deep the CVaR of periods lies below their mean of 0 in each drawn market, from long simulations."""
    distinct, place = np.unique(drawn, return_inverse=True)
    repeats = math.ceil(2 * len(drawn) / len(distinct))
    paths = _simulate(np.repeat(markets[distinct], repeats, axis=0), max(_TRUE_SESSIONS, 4 * horizon), rng)
    sums = _sum_periods(paths, horizon).reshape(len(distinct), -1)
    depths: Array = -conditional_value_at_risk(sums, alpha)[place]
    return depths


def _sum_periods(returns: Array, horizon: int) -> Array:
    """[..., D − horizon + 1] sums over every period; at the scale of a market there is nothing to compound."""
    total = np.cumsum(returns, axis=-1)
    total[..., horizon:] -= total[..., :-horizon].copy()
    return total[..., horizon - 1 :]
