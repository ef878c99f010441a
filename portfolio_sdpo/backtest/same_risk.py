"""Comparisons at the same risk: how much faster a track grew than another, and whether the best of many is luck.

Of two strategies the one that takes more risk mostly grows faster, which says nothing about either. So the riskier one
is mixed with cash: a constant share λ ≤ 1 of wealth stays in it, restored every session, the rest earns what cash
earned. Its fees shrink by the same share; restoring the mix is taken to cost nothing. λ is chosen so that both tracks
have the same CVaR over the same sessions. Nothing is ever scaled up: that would take credit at the rate of cash, which
nobody gets, and risk that nobody has shown to bear. λ is known only afterwards, so this compares and cannot be traded.

The interval is a paired stationary bootstrap: sessions of both tracks and of cash are drawn together, in blocks of at
least the horizon, and λ is found again on every resampled path, since the risks are estimates too.

Who compares many strategies and shows the best one has found a good one or good luck. Two tests (from `arch`) answer
for all of them at once, at the same risk, so that nobody wins by taking more of it; both resample sessions in blocks
and are seeded:

- the test for superior predictive ability (Hansen, 2005) asks whether any strategy grows faster than a reference. A
  small p-value says that the best of them does, even though it was picked afterwards;
- the model confidence set (Hansen, Lunde and Nason, 2011) asks for no reference: it leaves out one strategy after the
  other as long as the rest can be told apart. What stays holds the best one with the stated confidence, and a set that
  holds nearly everything says that the sample is too short to tell them apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from portfolio_sdpo.backtest.intervals import LEAST_PERIODS, Bootstrap, resample_days
from portfolio_sdpo.backtest.statistics import check_returns, varies
from portfolio_sdpo.common.files import json_ready
from portfolio_sdpo.common.plugins import require_extra
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


@dataclass(frozen=True)
class Superiority:
    """What the tests found over strategies at the same risk."""

    reference: str
    """What the others are tested against."""
    best: str
    """The one that grew fastest at the reference's risk, or it at theirs."""
    spa: float
    """p-value (Hansen's consistent one) of "no strategy grows faster than the reference"."""
    confidence_set: tuple[str, ...]
    """Strategies that may be the best, at the bootstrap's level of confidence, in the order given."""
    p_values: Mapping[str, float]
    """Of the model confidence set: a strategy is in it where this is at least 1 − level."""
    left_out: tuple[str, ...]
    """Strategies that are as good as cash, took no risk, or do what one before them does."""

    def to_json(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        return json_ready(asdict(self))


def judge_superiority(
    tracks: Mapping[str, Array],
    reference: str,
    cash_returns: Array,
    limit: CvarLimit,
    bootstrap: Bootstrap,
    per_year: float = SESSIONS_PER_YEAR,
) -> Superiority | None:
    """Test strategies, returns [D] by name, against the reference and against each other.

    None where there is nothing to test: fewer than `LEAST_PERIODS` periods that do not overlap, or fewer than two
    strategies that take risk, the reference among them.
    """
    compared = _select_compared(tracks, reference, cash_returns, per_year)
    left_out = tuple(name for name in tracks if name not in compared)
    if len(cash_returns) // limit.horizon < LEAST_PERIODS or len(compared) < 2 or reference not in compared:
        return None
    paths = np.stack(list(compared.values()))
    shares, _ = find_shares(paths, cash_returns, limit)
    if not np.isfinite(shares).all():
        return None
    require_extra("A test of superiority", "arch", "backtest")
    from arch.bootstrap import MCS, SPA

    growth = dict(zip(compared, np.log1p(scale_with_cash(paths, cash_returns, shares)), strict=True))
    excess = {
        name: _compare_growth(compared[name], compared[reference], cash_returns, limit)
        for name in compared
        if name != reference
    }
    options: dict[str, Any] = {
        "reps": bootstrap.draws,
        "block_size": bootstrap.block_length(np.mean(list(excess.values()), axis=0), limit.horizon),
        "bootstrap": "stationary",
        "seed": bootstrap.seed,
    }
    # Losses are growth with the sign turned; against the reference only differences count.
    spa = SPA(np.zeros(len(cash_returns)), -np.stack(list(excess.values()), axis=1), **options)
    spa.compute()
    models = MCS(-np.stack(list(growth.values()), axis=1), size=1.0 - bootstrap.level, **options)
    models.compute()
    names = list(growth)
    p_values = {names[int(str(row))]: float(value) for row, value in models.pvalues["Pvalue"].items()}
    means = {reference: 0.0} | {name: float(each.mean()) for name, each in excess.items()}
    return Superiority(
        reference=reference,
        best=max(means, key=lambda name: means[name]),
        spa=float(spa.pvalues["consistent"]),
        confidence_set=tuple(names[row] for row in sorted(int(str(row)) for row in models.included)),
        p_values={name: p_values[name] for name in names},
        left_out=left_out,
    )


def _select_compared(
    tracks: Mapping[str, Array], reference: str, cash_returns: Array, per_year: float
) -> dict[str, Array]:
    """Those that take risk and do not repeat one before them; the reference comes before all others."""
    compared: dict[str, Array] = {}
    for name in sorted(tracks, key=lambda name: name != reference):
        repeats = any(np.allclose(tracks[name], other, rtol=0.0, atol=1e-12) for other in compared.values())
        if varies(tracks[name] - cash_returns, per_year) and not repeats:
            compared[name] = tracks[name]
    return {name: compared[name] for name in tracks if name in compared}


def _compare_growth(returns: Array, reference: Array, cash_returns: Array, limit: CvarLimit) -> Array:
    """[D] log growth in excess of the reference's, the riskier of the two scaled down."""
    pair = np.stack([returns, reference])
    return excess_growth(pair, cash_returns, find_shares(pair, cash_returns, limit)[0])
