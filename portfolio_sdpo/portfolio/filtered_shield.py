"""The shield's first form, kept for reproductions: κ from historical scenarios.

CVaR is positively homogeneous and cash-additive: with x the scenarios' return in excess of cash and c what cash earns,
CVaR(c + κ·x) = c + κ·CVaR(x), so the largest allowed κ is (c − bound) / −CVaR(x), cut off at 1.

A scenario is the simple return of buying the weights and holding them for the limit's horizon, over every such window
of the past (overlapping): as it was (`scenarios`), or brought from the volatility known when it began to today's
(`Caution`), since a loss depends on today's volatility far more than on the average one.

It was chosen for trading at the close that was just seen, and a short history makes it less cautious:
`calibrated_shield` has neither fault.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit, ShieldedWeights
from portfolio_sdpo.portfolio.limits import check_weights
from portfolio_sdpo.portfolio.market import Array, Market, Mask
from portfolio_sdpo.portfolio.return_measures import Volatility, conditional_value_at_risk, normal_cvar, window_returns
from portfolio_sdpo.settings import Settings


class Caution(Settings):
    """How the shield looks at the past in the light of today's volatility."""

    volatility: Volatility = Volatility()
    margin: float = Field(default=1.15, ge=1)
    """Losses count as this many times as large, for what a limited past has not shown."""
    plain: bool = False
    """Whether the limit must hold on the last `lookback` sessions as they were, too. In the years before 2019 that cost
    growth and kept no loss away."""


DEFAULT_CAUTION = Caution()


def shield_by_scenarios(
    weights: Array,
    history: Market,
    limit: CvarLimit | None = None,
    *,
    lookback: int = 504,
    caution: Caution | None = DEFAULT_CAUTION,
) -> ShieldedWeights:
    """The weights [A], scaled towards cash by the largest κ that meets the limit on every view of the past.

    Assets without a price today, or with insufficient price history, move to cash first.
    With caution, the limit has to hold on `filtered` scenarios of the whole history. On the last `lookback` sessions as
    they were (the only view without caution) it has to hold twice: on the windows that all held assets have been
    through, and on the longer past in which those that were not listed yet count as the average of the rest.
    Cash is taken to earn over the horizon what it earned in the last session.
    """
    limit = limit or CvarLimit()
    if lookback < limit.horizon:
        raise SettingsError(
            f"lookback: must reach over the limit's horizon of {limit.horizon} sessions (got {lookback})."
        )
    weights = check_weights(weights, (len(history.assets),))
    returns, complete = scenarios(history, limit.horizon, lookback)
    risky = np.flatnonzero(weights[1:] > 0.0) + 1
    known = _select_known(risky, complete & history.listed[-1], limit.least_scenarios)
    eligible = np.zeros_like(weights)
    eligible[known] = weights[known]
    cash = float(history.gross_returns[-1, 0] ** limit.horizon - 1.0)
    past = _views(eligible, returns - cash, complete)
    views: tuple[Array, ...] = past
    if caution is not None:
        # Of all cash there is no view but the plain one, which is empty.
        seen = make_scaled_views(daily_excess(eligible, history), limit, caution)
        seen = tuple(eligible.sum() * view for view in seen)
        views = (*past, *seen) if caution.plain else seen or past
    shares = [largest_share(excess, cash, limit) for excess in views]
    kappa, meets = min(share for share, _ in shares), all(found for _, found in shares)

    shielded = kappa * eligible
    shielded[0] = max(1.0 - shielded[1:].sum(), 0.0)
    return ShieldedWeights(
        weights=shielded,
        kappa=kappa,
        before=min(_total(excess, cash, limit) for excess in views),
        after=min(_total(kappa * excess, cash, limit) for excess in views),
        scenarios=len(past[0]) if len(known) else 0,
        removed=tuple(history.assets[i] for i in risky if i not in known),
        meets=meets,
    )


def largest_share(excess: Array, cash: float, limit: CvarLimit) -> tuple[float, bool]:
    """The largest κ in [0, 1] with CVaR(cash + κ·excess) ≥ bound, and whether there is one (else κ is 0).

    excess: [S] scenarios of the return in excess of cash, which earns `cash` for certain.

    >>> largest_share(np.array([-0.10, 0.05, 0.02, 0.03]), 0.0, CvarLimit(bound=-0.05, alpha=0.25))
    (0.5, True)
    """
    if _total(excess, cash, limit) >= limit.bound:
        return 1.0, True
    if cash < limit.bound:
        return 0.0, False
    kappa = (limit.bound - cash) / (_total(excess, cash, limit) - cash)
    # The quotient is rounded; the promise is not.
    while kappa > 0.0 and _total(kappa * excess, cash, limit) < limit.bound:
        kappa = max(kappa * (1.0 - 1e-15) - 1e-18, 0.0)
    return kappa, True


def make_scaled_views(excess: Array, limit: CvarLimit, caution: Caution) -> tuple[Array, ...]:
    """Views of the past scaled to today's volatility, of daily returns in excess of cash [T], latest last.

    One has the windows of the past, each scaled by today's volatility over the one known when it began; a crash
    that began inside a window stays in it. The other has one value, the CVaR of a normal distribution of today's
    volatility, independent from day to day, which is there when the past is too short or too lucky for the first.
    """
    known = caution.volatility.estimate(excess)
    spread = normal_cvar(limit.alpha) * math.sqrt(limit.horizon) * known[-1]
    views = [np.array([caution.margin * spread])] if len(excess) else []
    windows = window_returns(excess, limit.horizon)
    if len(windows) >= limit.least_scenarios and known[-1] > 0.0:
        # Where volatility was 0 there has been no fall, neither before the window nor in all the past.
        views.append(caution.margin * windows * known[-1] / np.maximum(known[: len(windows)], np.finfo(float).tiny))
    return tuple(views)


def daily_excess(weights: Array, history: Market) -> Array:
    """[T] daily returns in excess of cash of the risky part of the weights [A], per unit invested.

    On every day of the past on which most of it had a price; as in the views of plain windows, what had none counts as
    the average of the rest.
    """
    both = history.listed[1:] & history.listed[:-1]
    gross_returns = history.gross_returns[1:]
    present = np.where(both[:, 1:], weights[1:], 0.0)
    share, total = present.sum(axis=1), weights[1:].sum()
    most = (share >= total / 2.0) & (share > 0.0)
    earned = (present * (gross_returns[:, 1:] - gross_returns[:, :1])).sum(axis=1)
    excess: Array = earned[most] / share[most]
    return excess


def scenarios(history: Market, horizon: int, lookback: int) -> tuple[Array, Mask]:
    """[S, A] simple returns over each window of `horizon` sessions in the last `lookback`, and where they are complete.

    A window is complete where the asset has a price at its start and at every close in it; S may be 0.
    """
    first = max(len(history) - lookback, 1)
    count = len(history) - first - horizon + 1
    if count < 1:
        empty = np.empty((0, len(history.assets)))
        return empty, empty.astype(np.bool_)
    windows = np.lib.stride_tricks.sliding_window_view(history.gross_returns[first:], horizon, axis=0)
    listed = np.lib.stride_tricks.sliding_window_view(history.listed[first - 1 :], horizon + 1, axis=0)
    complete: Mask = np.asarray(listed.all(axis=-1))
    return windows.prod(axis=-1) - 1.0, complete


def _select_known(risky: NDArray[np.intp], complete: Mask, least: int) -> NDArray[np.intp]:
    """Those of the assets that share at least `least` complete windows; the one with the fewest leaves first."""
    known = risky
    while len(known) and complete[:, known].all(axis=1).sum() < least:
        known = np.delete(known, complete[:, known].sum(axis=0).argmin())
    return known


def _views(weights: Array, excess: Array, complete: Mask) -> tuple[Array, Array]:
    """Two lists of scenarios of the weights' excess return: a new listing must neither hide a crash nor dilute it.

    The long one has every window in which most of the risky weight has a price; the others count as the average of
    those. The short one has the windows in which all of them have one. excess, complete: [S, A].
    """
    present = np.where(complete, weights, 0.0)
    share, total = present.sum(axis=1), weights.sum()
    most = share >= total / 2.0
    long = (present * excess).sum(axis=1)[most] * total / np.maximum(share[most], np.finfo(float).tiny)
    return long, (excess @ weights)[complete[:, weights > 0.0].all(axis=1)]


def _total(excess: Array, cash: float, limit: CvarLimit) -> float:
    """CVaR of cash + excess; cash itself is certain, whatever the scenarios."""
    return cash + float(conditional_value_at_risk(excess, limit.alpha)) if len(excess) else cash
