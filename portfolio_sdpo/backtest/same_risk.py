"""Growth at the same risk: two tracks, the riskier one scaled with cash until both have the same realised CVaR.

Of two strategies the one that takes more risk mostly grows faster, which says nothing about either. So the riskier one
is mixed with cash: a constant share λ ≤ 1 of wealth stays in it, restored every session, the rest earns what cash
earned. Its fees shrink by the same share; restoring the mix is taken to cost nothing. λ is chosen so that both tracks
have the same CVaR over the same sessions. Nothing is ever scaled up: that would take credit at the rate of cash, which
nobody gets, and risk that nobody has shown to bear. λ is known only afterwards, so this compares and cannot be traded.

The interval is a paired stationary bootstrap: sessions of both tracks and of cash are drawn together, in blocks of at
least the horizon, and λ is found again on every resampled path, since the risks are estimates too.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from portfolio_sdpo.backtest.intervals import Bootstrap, resample_days
from portfolio_sdpo.backtest.statistics import check_returns, varies
from portfolio_sdpo.common.files import json_ready
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.market import SESSIONS_PER_YEAR, Array
from portfolio_sdpo.portfolio.return_measures import conditional_value_at_risk, window_returns

_ROUNDS = 4
"""Steps towards the share: CVaR is nearly linear in it, so that each gains about three digits."""
_CHUNK = 4_000_000
"""Resampled returns that are held in memory at a time."""


@dataclass(frozen=True)
class SameRisk:
    """A track and its reference at the same realised CVaR."""

    growth: float
    """Log growth in excess of the reference's: a year, or over the whole track if it is shorter; NaN where one of them
    is as good as cash or took no risk."""
    interval: tuple[float, float]
    """Of `growth`, by paired bootstrap; NaN when it was not asked for."""
    span: str
    """What `growth` is of: "year" or "track"."""
    cvar: float
    """The CVaR that both have after scaling: the smaller loss of the two."""
    share: float
    """λ of the track."""
    reference_share: float
    """λ of the reference; one of the two shares is 1."""

    def to_json(self) -> dict[str, Any]:
        """The fields, with None for what is not defined."""
        return json_ready(asdict(self))


def compare_at_same_risk(
    returns: Array,
    reference: Array,
    cash_returns: Array,
    limit: CvarLimit,
    bootstrap: Bootstrap | None = None,
    per_year: float = SESSIONS_PER_YEAR,
) -> SameRisk:
    """Compare returns with those of a reference on the same sessions [D], net of fees, and what cash earned in them.

    Of the limit, α and horizon say which CVaR is meant; its bound plays no part.

    >>> calm, cash = np.tile([0.01, -0.008], 200), np.zeros(400)
    >>> found = compare_at_same_risk(2 * calm, calm, cash, CvarLimit(horizon=1))
    >>> round(found.share, 3), round(found.growth, 12)
    (0.5, 0.0)
    """
    pair = np.stack([check_returns(returns), check_returns(reference)])
    cash = check_returns(cash_returns)
    short = len(cash) < round(per_year)
    factor, span = (len(cash), "track") if short else (per_year, "year")
    shares, level = find_shares(pair, cash, limit)
    if not all(varies(track - cash, per_year) for track in pair) or not np.isfinite(shares).all():
        nothing = (math.nan, math.nan)
        return SameRisk(math.nan, nothing, span, math.nan, math.nan, math.nan)
    growth = excess_growth(pair, cash, shares).mean() * factor
    interval = (math.nan, math.nan)
    if bootstrap is not None:
        difference = excess_growth(pair, cash, shares)
        days = resample_days(difference, bootstrap, min(limit.horizon, len(cash)))
        drawn = np.empty(len(days))
        for rows in np.array_split(np.arange(len(days)), math.ceil(days.size / _CHUNK)):
            paths, earned = pair[:, days[rows]], cash[days[rows]]
            found, _ = find_shares(paths, earned, limit, rounds=1)
            # On a path without a loss there is no risk to match, and the shares of the past hold.
            found = np.where(np.isfinite(found), found, shares[:, None])
            drawn[rows] = excess_growth(paths, earned, found).mean(axis=-1) * factor
        interval = bootstrap.interval(drawn)
    return SameRisk(float(growth), interval, span, float(level), float(shares[0]), float(shares[1]))


def scale_with_cash(returns: Array, cash_returns: Array, share: Array | float) -> Array:
    """Returns [..., D] of a constant share [...] in a track and the rest in cash."""
    kept = np.asarray(share)[..., None]
    scaled: Array = cash_returns + kept * (returns - cash_returns)
    return scaled


def find_shares(tracks: Array, cash_returns: Array, limit: CvarLimit, rounds: int = _ROUNDS) -> tuple[Array, Array]:
    """[K, ...] shares λ ≤ 1 at which all tracks have the same CVaR, and that CVaR [...], the smallest loss of them.

    tracks: [K, ..., D] returns; cash_returns: [..., D]. NaN where a track has no loss to scale.
    """
    cvars = _cvar(tracks, limit)
    level = cvars.max(axis=0)
    floor = _cvar(cash_returns, limit)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Between all cash (λ = 0) and the track as it is (λ = 1) the secant's root is the answer up to compounding.
        shares = np.where(cvars == level, 1.0, (floor - level) / (floor - cvars))
        for _ in range(rounds):
            now = _cvar(scale_with_cash(tracks, cash_returns, shares), limit)
            shares = np.where(cvars == level, 1.0, shares * (floor - level) / (floor - now))
    defined = (level < 0.0) & (level < floor)
    return np.where(defined, shares, np.nan), level


def _cvar(returns: Array, limit: CvarLimit) -> Array:
    return conditional_value_at_risk(window_returns(returns, limit.horizon), limit.alpha)


def excess_growth(pair: Array, cash_returns: Array, shares: Array) -> Array:
    """[..., D] log growth of the first of two tracks [2, ..., D] in excess of the second, at their shares [2, ...]."""
    first, second = np.log1p(scale_with_cash(pair, cash_returns, shares))
    excess: Array = first - second
    return excess
