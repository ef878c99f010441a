"""Whether the promise held: promised against realised CVaR, with tests that say how surprising the difference is.

Losses are negative, as everywhere. A small p-value speaks against the promise; a large one does not prove it. Over a
year of 15-session periods, of which only 16 do not overlap, nothing is tested: what a year realised is stated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portfolio_sdpo.backtest.intervals import LEAST_PERIODS, Bootstrap, draw_true_cvars, find_interval, resample_days
from portfolio_sdpo.backtest.statistics import check_returns
from portfolio_sdpo.common.files import json_ready
from portfolio_sdpo.errors import BacktestError, SettingsError
from portfolio_sdpo.portfolio.market import Array
from portfolio_sdpo.portfolio.return_measures import conditional_value_at_risk, window_returns
from portfolio_sdpo.portfolio.shield import CvarLimit


@dataclass(frozen=True)
class Promise:
    """A CVaR limit beside what came out."""

    bound: float
    alpha: float
    horizon: int
    realised: float
    """CVaR over all windows of `horizon` sessions, overlapping; NaN when the track is shorter than one."""
    interval: tuple[float, float]
    """Of the true CVaR (`intervals.draw_true_cvars`); NaN when it was not asked for or nothing is tested."""
    kept: bool | None
    """Whether realised ≥ bound; None when there is nothing to compare."""
    tested: bool
    """Whether there are `LEAST_PERIODS` windows that do not overlap. With fewer, "kept" is no news: a tail of 5 % is
    less than one of them."""
    p_value: float
    """One-sided test of "the true CVaR is at least the bound"; NaN when it was not asked for or nothing is tested."""
    windows: int
    """Windows that do not overlap, from the first day on."""
    breaches: int
    """How many of those lost more than the bound."""
    breach_p_value: float
    """One-sided binomial test: CVaR ≥ bound implies that a window falls below the bound with probability ≤ α. It is
    exact for any number of windows, so that it is there where `tested` is False, too; NaN without a window."""

    def to_json(self) -> dict[str, Any]:
        """The fields, with None for what is not defined."""
        return json_ready(asdict(self))


@dataclass(frozen=True)
class StatisticalTest:
    """A statistic and how likely one as extreme is when the forecast is right."""

    statistic: float
    p_value: float


def check_promise(returns: Array, limit: CvarLimit, bootstrap: Bootstrap | None = None) -> Promise:
    """Compare returns [D] with the limit; the test and the interval only with `bootstrap`, since they take time."""
    from scipy.stats import binomtest

    returns = check_returns(returns)
    periods = window_returns(returns, limit.horizon)
    realised = float(conditional_value_at_risk(periods, limit.alpha))
    apart = periods[:: limit.horizon]
    breaches = int((apart < limit.bound).sum())
    tested = len(apart) >= LEAST_PERIODS
    interval, p_value = (math.nan, math.nan), math.nan
    if bootstrap is not None and tested:
        drawn = draw_true_cvars(returns, limit.alpha, limit.horizon, bootstrap)
        interval = find_interval(drawn, bootstrap.level)
        p_value = float(np.mean(drawn >= limit.bound)) if len(drawn) else math.nan
    return Promise(
        bound=limit.bound,
        alpha=limit.alpha,
        horizon=limit.horizon,
        realised=realised,
        interval=interval,
        kept=realised >= limit.bound if len(periods) else None,
        tested=tested,
        p_value=p_value,
        windows=len(apart),
        breaches=breaches,
        breach_p_value=(
            float(binomtest(breaches, len(apart), limit.alpha, alternative="greater").pvalue)
            if len(apart)
            else math.nan
        ),
    )


def cvar_by_year(returns: Array, dates: NDArray[np.datetime64], limit: CvarLimit) -> dict[str, float | None]:
    """The realised CVaR of every calendar year's own windows; None for a year shorter than one.

    returns: [D] of the sessions that end at dates [D].
    """
    years = dates.astype("datetime64[Y]")
    found = {
        str(year): float(conditional_value_at_risk(window_returns(returns[years == year], limit.horizon), limit.alpha))
        for year in np.unique(years)
    }
    return {year: None if math.isnan(cvar) else cvar for year, cvar in found.items()}


@dataclass(frozen=True)
class Years:
    """A promise by calendar year."""

    years: int
    """Those that are long enough to have a CVaR."""
    broken: int
    worst: float
    worst_year: str


def count_years(by_year: Mapping[str, float | None], bound: float) -> Years | None:
    """How many of the years of `cvar_by_year` broke the bound, and the worst of them; None where there is none.

    >>> count_years({"2019": -0.02, "2020": -0.08, "2021": None}, -0.05)
    Years(years=2, broken=1, worst=-0.08, worst_year='2020')
    """
    known = {year: cvar for year, cvar in by_year.items() if cvar is not None}
    if not known:
        return None
    worst = min(known, key=lambda year: known[year])
    return Years(len(known), sum(cvar < bound for cvar in known.values()), known[worst], worst)


def kupiec(breaches: int, observations: int, alpha: float) -> StatisticalTest:
    """Kupiec's proportion-of-failures test (1995): are VaR forecasts broken with the frequency α? χ² with one degree.

    >>> kupiec(breaches=5, observations=100, alpha=0.05)
    StatisticalTest(statistic=0.0, p_value=1.0)
    """
    from scipy.special import xlog1py, xlogy
    from scipy.stats import chi2

    if not 0.0 < alpha < 1.0:
        raise SettingsError(f"alpha: must lie between 0 and 1 (got {alpha}).")
    if not 0 <= breaches <= observations or observations < 1:
        raise BacktestError(f"{breaches} breaches in {observations} observations cannot be: give counts of one track.")
    share = breaches / observations
    kept = observations - breaches
    observed = xlog1py(kept, -share) + xlogy(breaches, share) if 0 < breaches < observations else 0.0
    promised = xlog1py(kept, -alpha) + xlogy(breaches, alpha)
    statistic = max(2.0 * float(observed - promised), 0.0)
    return StatisticalTest(statistic, float(chi2.sf(statistic, df=1)))


def acerbi_szekely(
    returns: Array, var: Array | float, cvar: Array | float, alpha: float, bootstrap: Bootstrap
) -> StatisticalTest:
    """Acerbi and Szekely's second test (2014) of forecasts of VaR and CVaR, one per day or one for all.

    Z = 1 − Σ r_t·[r_t < VaR_t] / CVaR_t / (α·D) has mean 0 when the forecasts are right and is negative when losses are
    worse. Its distribution depends on that of the returns, so the p-value comes from a stationary bootstrap of the
    sum's terms.
    """
    returns = check_returns(returns)
    if not len(returns) or not 0.0 < alpha < 1.0:
        raise BacktestError("the test of CVaR forecasts needs at least one return and a tail fraction between 0 and 1.")
    var, cvar = (np.broadcast_to(np.asarray(forecast, dtype=np.float64), returns.shape) for forecast in (var, cvar))
    if not np.isfinite(var).all() or not (cvar < 0.0).all():
        raise BacktestError("forecasts must be finite, and CVaR a loss, that is below 0.")
    terms = 1.0 - np.where(returns < var, returns / cvar, 0.0) / alpha
    statistic = float(terms.mean())
    drawn = terms[resample_days(terms, bootstrap)].mean(-1)
    return StatisticalTest(statistic, float(np.mean(drawn - statistic <= statistic)))
