"""The figures of a backtest: one typed record per track, with confidence intervals when asked for.

Conventions, in one place: returns are simple and net of fees; losses are negative (VaR, CVaR, drawdown); α is the tail
fraction; Sharpe and Sortino are in excess of what cash earned; a year has 252 sessions; what is not defined (the Sharpe
ratio of constant wealth, a window longer than the track) is NaN in the record and null in JSON. Intervals come from a
stationary block bootstrap of the days (Politis and Romano, 1994; drawn by `arch`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from portfolio_sdpo.backtest.simulate import Track
from portfolio_sdpo.common.files import json_ready
from portfolio_sdpo.common.plugins import require_extra
from portfolio_sdpo.errors import BacktestError, SettingsError
from portfolio_sdpo.portfolio import return_measures as measures
from portfolio_sdpo.portfolio.market import SESSIONS_PER_YEAR, Array
from portfolio_sdpo.portfolio.scenarios import politis_white
from portfolio_sdpo.settings import Settings


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
        """The percentile interval of resampled values; NaN when one of them is not defined."""
        if not np.isfinite(draws).all():
            return math.nan, math.nan
        low, high = np.quantile(draws, [(1.0 - self.level) / 2.0, (1.0 + self.level) / 2.0])
        return float(low), float(high)


@dataclass(frozen=True)
class Statistics:
    """What a track comes to; see the module for the conventions."""

    name: str
    start: str
    end: str
    sessions: int
    alpha: float
    horizon: int
    final_wealth: float
    """Wealth at the end over wealth at the start."""
    cagr: float
    volatility: float
    sharpe: float
    sortino: float
    calmar: float
    max_drawdown: float
    """Deepest fall from a peak, ≤ 0."""
    max_drawdown_sessions: int
    """Sessions from that peak until wealth is back at it, or until the end."""
    max_drawdown_recovered: bool
    """Whether wealth came back to that peak within the track."""
    var: float
    """α-quantile of daily returns."""
    cvar: float
    """Mean of the worst fraction α of daily returns."""
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
    returns = check_returns(track.returns)
    figures = {name: float(figure(returns, track.cash_returns)) for name, figure in _figures(alpha, horizon).items()}
    length, recovered = drawdown_length(returns)
    excess = returns - track.cash_returns
    return Statistics(
        name=track.name,
        start=str(track.dates[0]),
        end=str(track.dates[-1]),
        sessions=len(returns),
        alpha=alpha,
        horizon=horizon,
        max_drawdown_sessions=length,
        max_drawdown_recovered=recovered,
        turnover=float(track.turnover.mean()) * SESSIONS_PER_YEAR,
        cost=float(track.costs.sum() / wealth[0]),
        probabilistic_sharpe=probabilistic_sharpe(excess),
        deflated_sharpe=math.nan if trials is None else deflated_sharpe(excess, trials),
        intervals={} if bootstrap is None else intervals(returns, track.cash_returns, alpha, horizon, bootstrap),
        **figures,
    )


def intervals(
    returns: Array, cash_returns: Array, alpha: float, horizon: int, bootstrap: Bootstrap
) -> dict[str, tuple[float, float]]:
    """A stationary-bootstrap percentile interval for every figure of returns [D]; days are drawn with their cash."""
    days = resample_days(returns, bootstrap, min(horizon, len(returns)))
    paths, cash = returns[days], cash_returns[days]
    return {name: bootstrap.interval(figure(paths, cash)) for name, figure in _figures(alpha, horizon).items()}


def _figures(alpha: float, horizon: int) -> dict[str, Callable[[Array, Array], Array]]:
    """Every figure that follows from returns and cash returns [..., D] alone."""

    def periods(returns: Array) -> Array:
        return measures.window_returns(returns, horizon)

    return {
        "final_wealth": lambda returns, cash: np.exp(np.log1p(returns).sum(-1)),
        "cagr": lambda returns, cash: measures.cagr(returns),
        "volatility": lambda returns, cash: measures.volatility(returns),
        "sharpe": lambda returns, cash: measures.sharpe(returns - cash),
        "sortino": lambda returns, cash: measures.sortino(returns - cash),
        "calmar": lambda returns, cash: measures.calmar(returns),
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


def growth_difference(returns: Array, rival: Array, bootstrap: Bootstrap | None) -> dict[str, Any]:
    """By how much log growth a year exceeds a rival's on the same sessions [D], and its interval if one is asked for.

    Sessions are resampled in pairs: what moves both alike does not blur the difference. Not defined where one of them
    lost everything.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = np.log1p(returns) - np.log1p(rival)
    figures: dict[str, Any] = {"growth": float(difference.mean() * SESSIONS_PER_YEAR), "interval": None}
    if bootstrap is not None and len(difference) > 1 and np.isfinite(difference).all():
        drawn = difference[resample_days(difference, bootstrap)].mean(axis=1) * SESSIONS_PER_YEAR
        figures["interval"] = list(bootstrap.interval(drawn))
    return json_ready(figures)


def probabilistic_sharpe(excess: Array, benchmark: float = 0.0) -> float:
    """Probability that the true Sharpe ratio exceeds a yearly `benchmark`, given length, skew and kurtosis of [D].

    Φ((SR − SR*)·√(D − 1) / √(1 − γ₃·SR + (γ₄ − 1)/4·SR²)) with ratios per session; NaN for fewer than three sessions
    and for constant returns.
    """
    from scipy.stats import kurtosis, norm, skew

    ratio = float(measures.sharpe(excess)) / math.sqrt(SESSIONS_PER_YEAR)
    if len(excess) < 3 or math.isnan(ratio):
        return math.nan
    spread = 1.0 - skew(excess) * ratio + (kurtosis(excess, fisher=False) - 1.0) / 4.0 * ratio**2
    if not spread > 0.0:
        return math.nan
    distance = (ratio - benchmark / math.sqrt(SESSIONS_PER_YEAR)) * math.sqrt(len(excess) - 1)
    return float(norm.cdf(distance / math.sqrt(spread)))


def deflated_sharpe(excess: Array, trials: Sequence[float]) -> float:
    """`probabilistic_sharpe` against the Sharpe ratio that the best of that many worthless trials would show.

    `trials` are yearly Sharpe ratios; undefined ones (all cash) do not count. Trials that resemble each other count as
    if independent, which makes the figure pessimistic.
    """
    return probabilistic_sharpe(excess, expected_best_sharpe([trial for trial in trials if math.isfinite(trial)]))


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


def resample_days(returns: Array, bootstrap: Bootstrap, horizon: int = 1) -> NDArray[np.int64]:
    """[draws, D] indices of days: blocks of random length, mean `block`, the end followed by the start.

    A statistic over windows of `horizon` sessions needs blocks of at least that length to see real windows.
    """
    require_extra("A confidence interval", "arch", "backtest")
    from arch.bootstrap import StationaryBootstrap

    length = bootstrap.block or max(math.ceil(politis_white(returns)), horizon)
    source = StationaryBootstrap(
        min(length, len(returns)), np.arange(len(returns)), seed=np.random.default_rng(bootstrap.seed)
    )
    return np.stack([source.update_indices() for _ in range(bootstrap.draws)])


def check_returns(returns: Array) -> Array:
    """Daily returns [D], finite and above −1."""
    returns = np.asarray(returns, dtype=np.float64)
    if returns.ndim != 1 or not (np.isfinite(returns) & (returns > -1.0)).all():
        raise BacktestError("returns must be one list of finite numbers above -1 (a loss of everything ends a track).")
    return returns
