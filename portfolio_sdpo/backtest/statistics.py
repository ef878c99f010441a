"""The figures of a backtest: one typed record per track, with confidence intervals when asked for.

Conventions, in one place: returns are simple and net of fees; losses are negative (VaR, CVaR, drawdown); α is the tail
fraction; Sharpe and Sortino are in excess of what cash earned; a year has as many sessions as the prices have in one
(`Track.sessions_per_year`). What is not defined is NaN in the record and null in JSON: a rate per year of a track that
is shorter than a year, ratios to a volatility that is next to nothing, a window longer than the track.

Intervals come from a stationary block bootstrap of the sessions (`resample_days`); those of the CVaR of periods from
simulated markets whose volatility clusters as the track's does (`draw_true_cvars`), since resampled blocks of one past
hardly differ in how volatile they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from portfolio_sdpo.backtest.intervals import LEAST_PERIODS, Bootstrap, draw_true_cvars, find_interval, resample_days
from portfolio_sdpo.backtest.simulate import Track
from portfolio_sdpo.common.files import json_ready
from portfolio_sdpo.errors import BacktestError, SettingsError
from portfolio_sdpo.portfolio import return_measures as measures
from portfolio_sdpo.portfolio.market import SESSIONS_PER_YEAR, Array

LEAST_VOLATILITY = 0.001
"""A track whose returns in excess of cash vary by less than this a year, 0.1 %, is as good as cash: ratios to its
volatility say nothing, and it counts as no trial."""


@dataclass(frozen=True)
class Statistics:
    """What a track comes to; see the module for the conventions."""

    name: str
    start: str
    end: str
    sessions: int
    sessions_per_year: float
    alpha: float
    horizon: int
    final_wealth: float
    """Wealth at the end over wealth at the start."""
    total_return: float
    """`final_wealth` − 1: the return over the whole track, however long it is."""
    cagr: float
    """Compound growth per year; NaN below a year."""
    volatility: float
    sharpe: float
    sortino: float
    calmar: float
    """Yearly growth over the deepest drawdown; NaN below a year."""
    max_drawdown: float
    """Deepest fall from a peak, ≤ 0."""
    max_drawdown_sessions: int
    """Sessions from that peak until wealth is back at it, or until the end."""
    max_drawdown_recovered: bool
    """Whether wealth came back to that peak within the track."""
    var: float
    """α-quantile of the returns of single sessions."""
    cvar: float
    """Mean of the worst fraction α of the returns of single sessions."""
    var_window: float
    """α-quantile of the returns over windows of `horizon` sessions."""
    cvar_window: float
    """Mean of the worst fraction α of those."""
    hit_rate: float
    """Share of sessions that gained."""
    turnover: float
    """Stocks bought and sold in a year, in multiples of wealth."""
    cost: float
    """Fees paid, over the wealth at the start."""
    probabilistic_sharpe: float
    """Probability that the true Sharpe ratio is above 0 (Bailey and López de Prado, 2012)."""
    deflated_sharpe: float
    """The same above the best of as many worthless trials (2014); NaN when no trials were given."""
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Stationary-bootstrap intervals by the name of the figure; empty when not asked for."""

    def to_json(self) -> dict[str, Any]:
        """The fields, with None for what is not defined."""
        return json_ready(asdict(self))


def summarise(
    track: Track,
    *,
    alpha: float = 0.05,
    horizon: int = 15,
    trials: Sequence[float] | None = None,
    bootstrap: Bootstrap | None = None,
) -> Statistics:
    """The figures of a track.

    `trials` are the yearly Sharpe ratios (as in `Statistics.sharpe`) of all strategies and settings that were tried and
    of which this one was picked, itself included; they deflate the Sharpe ratio. `bootstrap` asks for intervals.
    """
    if not 0.0 < alpha < 1.0:
        raise SettingsError(f"alpha: must lie between 0 and 1 (got {alpha}).")
    if horizon < 1:
        raise SettingsError(f"horizon: must be at least one session (got {horizon}).")
    wealth = track.wealth
    if len(wealth) < 2 or not np.isfinite(wealth).all() or not (wealth > 0.0).all():
        raise BacktestError(f"{track.name}: a track needs two days or more of finite, positive wealth to be measured.")
    returns, per_year = check_returns(track.returns), track.sessions_per_year
    undefined = _list_undefined(returns - track.cash_returns, per_year)
    known = {name: figure for name, figure in _figures(alpha, horizon, per_year).items() if name not in undefined}
    figures = {name: float(figure(returns, track.cash_returns)) for name, figure in known.items()}
    length, recovered = drawdown_length(returns)
    excess = returns - track.cash_returns
    return Statistics(
        name=track.name,
        start=str(track.dates[0]),
        end=str(track.dates[-1]),
        sessions=len(returns),
        sessions_per_year=per_year,
        alpha=alpha,
        horizon=horizon,
        max_drawdown_sessions=length,
        max_drawdown_recovered=recovered,
        turnover=float(track.turnover.mean()) * per_year,
        cost=float(track.costs.sum() / wealth[0]),
        probabilistic_sharpe=probabilistic_sharpe(excess, per_year=per_year),
        deflated_sharpe=math.nan if trials is None else deflated_sharpe(excess, trials, per_year),
        intervals={}
        if bootstrap is None
        else _draw_intervals(returns, track.cash_returns, known, alpha, horizon, bootstrap),
        **dict.fromkeys(undefined, math.nan),
        **figures,
    )


Figure = Callable[[Array, Array], Array]


def _draw_intervals(
    returns: Array, cash_returns: Array, figures: Mapping[str, Figure], alpha: float, horizon: int, bootstrap: Bootstrap
) -> dict[str, tuple[float, float]]:
    """An interval for figures of returns [D]: percentiles of a stationary bootstrap, where sessions are drawn with
    their cash, and of `draw_true_cvars` for the CVaR of periods, if there are enough of these.
    """
    days = resample_days(returns, bootstrap, min(horizon, len(returns)))
    paths, cash = returns[days], cash_returns[days]
    found = {name: bootstrap.interval(figure(paths, cash)) for name, figure in figures.items() if name != "cvar_window"}
    if len(returns) // horizon < LEAST_PERIODS:
        return found
    return found | {"cvar_window": find_interval(draw_true_cvars(returns, alpha, horizon, bootstrap), bootstrap.level)}


def _list_undefined(excess: Array, per_year: float) -> tuple[str, ...]:
    """Figures that a track of these returns in excess of cash [D] does not have."""
    short = ("cagr", "calmar") if len(excess) < round(per_year) else ()
    return short if varies(excess, per_year) else (*short, "sharpe", "sortino")


def _figures(alpha: float, horizon: int, per_year: float) -> dict[str, Figure]:
    """Every figure that follows from returns and cash returns [..., D] alone."""

    def periods(returns: Array) -> Array:
        return measures.window_returns(returns, horizon)

    return {
        "final_wealth": lambda returns, cash: np.exp(np.log1p(returns).sum(-1)),
        "total_return": lambda returns, cash: np.expm1(np.log1p(returns).sum(-1)),
        "cagr": lambda returns, cash: measures.cagr(returns, per_year),
        "volatility": lambda returns, cash: measures.volatility(returns, per_year),
        "sharpe": lambda returns, cash: measures.sharpe(returns - cash, per_year),
        "sortino": lambda returns, cash: measures.sortino(returns - cash, per_year),
        "calmar": lambda returns, cash: measures.calmar(returns, per_year),
        "max_drawdown": lambda returns, cash: measures.max_drawdown(returns),
        "var": lambda returns, cash: measures.value_at_risk(returns, alpha),
        "cvar": lambda returns, cash: measures.conditional_value_at_risk(returns, alpha),
        "var_window": lambda returns, cash: measures.value_at_risk(periods(returns), alpha),
        "cvar_window": lambda returns, cash: measures.conditional_value_at_risk(periods(returns), alpha),
        "hit_rate": lambda returns, cash: measures.hit_rate(returns),
    }


def drawdown_length(returns: Array) -> tuple[int, bool]:
    """Sessions that the deepest drawdown of returns [D] lasted, from peak to recovery, and whether it recovered.

    >>> drawdown_length(np.array([0.1, -0.5, 0.5, 0.5, 0.1]))
    (3, True)
    """
    falls = measures.drawdowns(returns)
    # Back at a peak is back within rounding: −50 % and then +100 % is a recovery.
    at_peak = falls >= -1e-12
    if at_peak.all():
        return 0, True
    trough = int(falls.argmin())
    peak = int(np.flatnonzero(at_peak[:trough])[-1])
    after = np.flatnonzero(at_peak[trough:])
    end = trough + int(after[0]) if len(after) else len(returns)
    return end - peak, len(after) > 0


def growth_difference(
    returns: Array, rival: Array, bootstrap: Bootstrap | None, per_year: float = SESSIONS_PER_YEAR, horizon: int = 1
) -> dict[str, Any]:
    """By how much log growth exceeds a rival's on the same sessions [D], and its interval if one is asked for.

    `growth` is a rate per year, or the whole difference where the track is shorter than a year: `span` says "year" or
    "track". Sessions are resampled in pairs, in blocks of at least `horizon`: what moves both alike does not blur the
    difference. Not defined where one of them lost everything.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = np.log1p(returns) - np.log1p(rival)
    short = len(difference) < round(per_year)
    factor = len(difference) if short else per_year
    figures: dict[str, Any] = {
        "growth": float(difference.mean() * factor),
        "interval": None,
        "span": "track" if short else "year",
    }
    if bootstrap is not None and len(difference) > 1 and np.isfinite(difference).all():
        drawn = difference[resample_days(difference, bootstrap, horizon)].mean(axis=1) * factor
        figures["interval"] = list(bootstrap.interval(drawn))
    return json_ready(figures)


def check_returns(returns: Array) -> Array:
    """Returns per session [D], finite and above −1."""
    returns = np.asarray(returns, dtype=np.float64)
    if returns.ndim != 1 or not (np.isfinite(returns) & (returns > -1.0)).all():
        raise BacktestError("returns must be one list of finite numbers above -1 (a loss of everything ends a track).")
    return returns


def compute_sharpe(excess: Array, per_year: float = SESSIONS_PER_YEAR) -> float:
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

    ratio = compute_sharpe(excess, per_year) / math.sqrt(per_year)
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
