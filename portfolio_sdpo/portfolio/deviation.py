"""How far a policy may leave equal weights on a universe: a number in [0, 1] that its own past there has to earn.

On every week of the universe's past, the policy (by the vintage of that day) and equal weights are held for a week, net
of fees, one close later than decided, each at the exposure that the limit allows. Both tracks are scaled with cash to
the same realised CVaR, and the difference of their log growth is measured in quarters:

    deviation = clip(t − 1.25, 0, 1),    t = mean of the quarters / its standard error

Without any skill t exceeds 1.35, and the deviation 0.1, in fewer than one of ten universes; at t = 2.25 it is full.
With less than three years of such quarters it is 0.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from portfolio_sdpo.common.numbers import percent
from portfolio_sdpo.portfolio.accounting import hold, trade
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.features import LONG, YEAR
from portfolio_sdpo.portfolio.filtered_shield import daily_excess
from portfolio_sdpo.portfolio.market import SESSIONS_PER_YEAR, Array, Market, all_cash
from portfolio_sdpo.portfolio.return_measures import conditional_value_at_risk, window_returns
from portfolio_sdpo.portfolio.sequences import EVERY, LAG, normal_exposure
from portfolio_sdpo.portfolio.shared_policy import SharedPolicy

QUARTER = 63
"""Sessions whose difference counts as one observation: momentum and volatility do not last much longer."""
LEAST_QUARTERS = 12
SCEPTICISM = 1.25
"""Standard errors that evidence has to exceed."""

Decisions = MutableMapping[np.datetime64, tuple[Array, Array]]
"""Weights [A] of the policy and of equal weights by the day of the decision, to be filled and used again."""


@dataclass(frozen=True)
class Deviation:
    """How far the policy may leave equal weights, and on what evidence."""

    value: float
    """In [0, 1]."""
    growth: float
    """Log growth a year beyond equal weights at the same realised CVaR; NaN without evidence."""
    error: float
    """Standard error of `growth`."""
    years: float
    """Years of evidence."""

    def __str__(self) -> str:
        if not math.isfinite(self.error):
            return (
                f"deviation {percent(self.value, 0)}: {self.years:.1f} years of evidence are too few, "
                f"{LEAST_QUARTERS * QUARTER / SESSIONS_PER_YEAR:.0f} are needed"
            )
        return (
            f"deviation {percent(self.value, 0)}: in {self.years:.1f} years the policy grew "
            f"{percent(self.growth, 2, sign=True)} a year beyond equal weights at the same CVaR, "
            f"standard error {percent(self.error, 2)}"
        )


def earn_deviation(
    policy: SharedPolicy,
    history: Market,
    limit: CvarLimit | None = None,
    *,
    fee: float = 0.0005,
    decisions: Decisions | None = None,
) -> Deviation:
    """The deviation that the policy has earned on this history by its last close.

    `decisions` is filled with what it decided on the way; given again at a later close, only what is new is computed.
    """
    limit = limit or CvarLimit()
    decisions = {} if decisions is None else decisions
    rows = np.arange(YEAR, len(history) - EVERY - LAG, EVERY)
    rows = rows[[policy.vintage_at(history.dates[row]) is not None for row in rows]]
    new = np.array([row for row in rows if history.dates[row] not in decisions], dtype=np.intp)
    if len(new):
        decisions.update(_decide(policy, history, new, limit))
    tracks = [_walk([decisions[history.dates[row]][side] for row in rows], history, rows, fee) for side in (0, 1)]
    sessions = (rows[:, None] + LAG + 1 + np.arange(EVERY)).ravel()
    cash = history.gross_returns[sessions, 0] - 1.0
    return judge(tracks[0], tracks[1], cash, limit)


def judge(returns: Array, base: Array, cash: Array, limit: CvarLimit) -> Deviation:
    """The deviation that daily net returns [D] earn beside those of the base and of cash."""
    years = len(returns) / SESSIONS_PER_YEAR
    quarters = len(returns) // QUARTER
    if quarters < LEAST_QUARTERS:
        return Deviation(0.0, math.nan, math.nan, years)
    least = max(_cvar(returns, limit), _cvar(base, limit))
    difference = np.log1p(_scale(returns, cash, least, limit)) - np.log1p(_scale(base, cash, least, limit))
    means = difference[-quarters * QUARTER :].reshape(quarters, QUARTER).mean(axis=1) * SESSIONS_PER_YEAR
    error = float(means.std(ddof=1) / math.sqrt(quarters))
    growth = float(means.mean())
    value = min(max(growth / error - SCEPTICISM, 0.0), 1.0) if error > 1e-9 else 0.0
    return Deviation(value, growth, error, years)


def explain_deviation(found: Deviation, *, fixed: bool = False) -> str:
    """One sentence for the user.

    >>> explain_deviation(Deviation(0.4, 0.011, 0.0067, 9.0))
    "The policy deviates 0.4 from equal weights: +1.1\\xa0% a year in 9.0 years of this universe's past."
    >>> explain_deviation(Deviation(0.0, math.nan, math.nan, 1.2))
    'The policy does not deviate from equal weights: 1.2 years of evidence are too few, 3 are needed.'
    """
    extent = f"deviates {found.value:.2g}" if found.value > 0.0 else "does not deviate"
    if fixed:
        why = "its settings say so"
    elif not math.isfinite(found.error):
        needed = LEAST_QUARTERS * QUARTER / SESSIONS_PER_YEAR
        why = f"{found.years:.1f} years of evidence are too few, {needed:.0f} are needed"
    else:
        why = f"{percent(found.growth, sign=True)} a year in {found.years:.1f} years of this universe's past"
        if found.value == 0.0:
            why += f", with a standard error of {percent(found.error)}, are not enough"
    return f"The policy {extent} from equal weights: {why}."


def _decide(policy: SharedPolicy, history: Market, rows: NDArray[np.intp], limit: CvarLimit) -> Decisions:
    """What the policy and equal weights hold from these rows on."""
    ours = policy.propose(history, rows)
    equal = policy.propose(history, rows, deviation=0.0)
    return {
        history.dates[row]: (
            _invest(mine, history.until(int(row)), limit),
            _invest(all_alike, history.until(int(row)), limit),
        )
        for row, mine, all_alike in zip(rows, ours, equal, strict=True)
    }


def _invest(shares: Array, history: Market, limit: CvarLimit) -> Array:
    """Weights [A] of a mix [N] at the exposure that the limit allows."""
    cash = float(history.gross_returns[-1, 0] - 1.0)
    recent = history if len(history) <= LONG else history.between(history.dates[-LONG])
    excess = daily_excess(np.concatenate([[0.0], shares]), recent)
    exposure = min(1.0, normal_exposure(excess, cash, limit))
    return np.concatenate([[1.0 - exposure * shares.sum()], exposure * shares])


def _walk(targets: list[Array], history: Market, rows: NDArray[np.intp], fee: float) -> Array:
    """[K · EVERY] daily net returns of holding each of the targets for a week, from cash on."""
    returns = []
    held = all_cash(len(history.assets))
    for target, row in zip(targets, rows, strict=True):
        kept = float(trade(held, target, fee))
        held = target
        for session in range(int(row) + LAG + 1, int(row) + LAG + 1 + EVERY):
            growth, held = hold(held, history.gross_returns[session], history.listed[session])
            returns.append(float(growth * kept) - 1.0)
            kept = 1.0
    return np.array(returns)


def _cvar(returns: Array, limit: CvarLimit) -> float:
    return float(conditional_value_at_risk(window_returns(returns, limit.horizon), limit.alpha))


def _scale(returns: Array, cash: Array, least: float, limit: CvarLimit) -> Array:
    """The returns, mixed with cash until their CVaR is no lower than `least`."""
    low, high = 0.0, 1.0
    if _cvar(returns, limit) >= least:
        return returns
    for _ in range(40):
        share = (low + high) / 2.0
        if _cvar(cash + share * (returns - cash), limit) < least:
            high = share
        else:
            low = share
    return cash + low * (returns - cash)
