"""How much a Sharpe ratio is worth: its probability, given the track's length and shape and the trials before it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from portfolio_sdpo.portfolio import return_measures as measures
from portfolio_sdpo.portfolio.market import SESSIONS_PER_YEAR, Array

LEAST_VOLATILITY = 0.001
"""A track whose returns in excess of cash vary by less than this a year, 0.1 %, is as good as cash: ratios to its
volatility say nothing, and it counts as no trial."""


def defined_sharpe(excess: Array, per_year: float = SESSIONS_PER_YEAR) -> float:
    """The yearly Sharpe ratio of returns in excess of cash [D]; NaN where volatility is next to nothing."""
    return float(measures.sharpe(excess, per_year)) if varies(excess, per_year) else math.nan


def varies(excess: Array, per_year: float = SESSIONS_PER_YEAR) -> bool:
    """Whether returns in excess of cash [D] have more volatility than next to nothing."""
    return bool(measures.volatility(excess, per_year) >= LEAST_VOLATILITY)


def probabilistic_sharpe(excess: Array, benchmark: float = 0.0, per_year: float = SESSIONS_PER_YEAR) -> float:
    """Probability that the true Sharpe ratio exceeds a yearly `benchmark`, given length, skew and kurtosis of [D].

    Φ((SR − SR*)·√(D − 1) / √(1 − γ₃·SR + (γ₄ − 1)/4·SR²)) with ratios per session; NaN for fewer than three sessions
    and where volatility is next to nothing.
    """
    from scipy.stats import kurtosis, norm, skew

    ratio = defined_sharpe(excess, per_year) / math.sqrt(per_year)
    if len(excess) < 3 or math.isnan(ratio):
        return math.nan
    spread = 1.0 - skew(excess) * ratio + (kurtosis(excess, fisher=False) - 1.0) / 4.0 * ratio**2
    if not spread > 0.0:
        return math.nan
    distance = (ratio - benchmark / math.sqrt(per_year)) * math.sqrt(len(excess) - 1)
    return float(norm.cdf(distance / math.sqrt(spread)))


def deflated_sharpe(excess: Array, trials: Sequence[float], per_year: float = SESSIONS_PER_YEAR) -> float:
    """`probabilistic_sharpe` against the Sharpe ratio that the best of that many worthless trials would show.

    `trials` are yearly Sharpe ratios; undefined ones (cash, or next to it) do not count. Trials that resemble each
    other count as if independent, which makes the figure pessimistic.
    """
    hurdle = expected_best_sharpe([trial for trial in trials if math.isfinite(trial)])
    return probabilistic_sharpe(excess, hurdle, per_year)


def expected_best_sharpe(trials: Sequence[float]) -> float:
    """Expected highest Sharpe ratio among that many worthless, independent trials of that spread, in their own unit.

    >>> expected_best_sharpe([1.0])
    0.0
    """
    from scipy.stats import norm

    count = len(trials)
    if count < 2:
        return 0.0
    best = (1.0 - np.euler_gamma) * norm.ppf(1.0 - 1.0 / count) + np.euler_gamma * norm.ppf(
        1.0 - 1.0 / (count * math.e)
    )
    return float(np.std(trials, ddof=1) * best)
