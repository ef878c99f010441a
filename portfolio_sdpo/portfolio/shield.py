"""The shield: the last check between weights and market, separate from what chose the weights.

`shield` makes the CVaR limit hold, and `shield_within` the caps and the limit on turnover as well; backtests, the
service and orders share the latter.

Risky weights are scaled towards cash by one factor κ, so that the CVaR limit holds. There are two forms of the rule:

    calibrated  the default: `calibrated_shield`, made for trading at the next close
    filtered    the first one, on historical scenarios: `filtered_shield`, for reproductions and older models

Whatever history the calibrated form is given, less of it never means less caution, and the last session never widens
risk: κ is at most what it would be without that session.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from portfolio_sdpo.common.numbers import percent, share
from portfolio_sdpo.portfolio.calibrated_shield import (
    LEAST,
    WINDOW,
    forecast_cvar,
    forecast_volatility,
    largest_exposure,
)
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit, ShieldedWeights
from portfolio_sdpo.portfolio.filtered_shield import shield_by_scenarios
from portfolio_sdpo.portfolio.limits import TOLERANCE, Limits, check_weights
from portfolio_sdpo.portfolio.market import SESSIONS_PER_YEAR, Array, Market
from portfolio_sdpo.prices.cleaning.checks import LARGE_MOVE
from portfolio_sdpo.prices.frequency import name_session

__all__ = ["AccountRecord", "CvarLimit", "ShieldForm", "ShieldedWeights", "shield", "shield_within"]

ShieldForm = Literal["calibrated", "filtered"]

YOUNG = 252
"""Assets with fewer sessions of history need not cut short that of the others: their volatilities may be added up."""

SHORT = WINDOW // 2
"""With fewer sessions of history the reader is told: what stands for the rest has more than a quarter of the weight."""


class AccountRecord(Protocol):
    """What the account went through in its last sessions, latest last, up to the close of the decision.

    The shield looks at the limit's horizon of them; where there are fewer, the account was all cash before.
    """

    @property
    def returns(self) -> Array:
        """[n] net returns."""
        ...

    @property
    def weights(self) -> Array:
        """[n, A] weights that each session began with."""
        ...


def shield(
    weights: Array,
    history: Market,
    limit: CvarLimit | None = None,
    *,
    form: ShieldForm = "calibrated",
    record: AccountRecord | None = None,
) -> ShieldedWeights:
    """The weights [A], scaled towards cash so that the limit holds.

    Assets without a price at the last close, or with insufficient price history, move to cash first. Cash is taken to
    earn what it earned in the last session. Without a record, the account counts as one that has held these weights
    all along. The filtered form looks at prices only.

    >>> import pandas as pd
    >>> days = pd.bdate_range("2015-01-02", periods=2000)
    >>> moves = np.random.default_rng(0).normal(0.0, 0.02, 2000)
    >>> market = Market.from_prices(pd.DataFrame({"A": 100 * np.exp(np.cumsum(moves))}, index=days))
    >>> round(shield(np.array([0.0, 1.0]), market).kappa, 2)
    0.22
    """
    limit = limit or CvarLimit()
    if form == "filtered":
        return shield_by_scenarios(weights, history, limit)
    weights = check_weights(weights, (len(history.assets),))
    past = _Past.of(weights, history, limit)
    kept = np.zeros_like(weights)
    kept[past.assets] = weights[past.assets]
    invested, cash = float(kept.sum()), float(history.gross_returns[-1, 0] - 1.0)
    exposure, volatility = past.allow(cash, limit, _believe_record(record, history, limit))
    if invested > 0.0:
        kappa = min(exposure / invested, 1.0)
    else:
        kappa = 0.0 if weights[1:].any() else 1.0
    shielded = kappa * kept
    shielded[0] = max(1.0 - shielded[1:].sum(), 0.0)
    return ShieldedWeights(
        weights=shielded,
        kappa=kappa,
        before=forecast_cvar(invested, volatility, cash, limit),
        after=forecast_cvar(kappa * invested, volatility, cash, limit),
        scenarios=past.sessions,
        removed=tuple(history.assets[i] for i in np.flatnonzero(weights > kept) if i > 0),
        meets=(1.0 + cash) ** limit.horizon - 1.0 >= limit.bound,
        findings=past.describe(),
    )


def shield_within(
    weights: Array,
    history: Market,
    limit: CvarLimit | None = None,
    limits: Limits | None = None,
    *,
    held: Array | None = None,
    form: ShieldForm = "calibrated",
    record: AccountRecord | None = None,
) -> ShieldedWeights:
    """The weights [A] within their caps, behind the shield, and as far as the limit on turnover lets them be traded.

    Caps come first: what is within them stays so when the shield scales it towards cash, so both hold. Then, where the
    account holds `held` [A], a trade beyond the limit on turnover is carried out in part; where what is held breaks a
    cap or the CVaR limit, more is sold than that, since these come first. Without `held` nothing is known to be traded.
    """
    limits = limits or Limits()

    def allow(wanted: Array) -> ShieldedWeights:
        return shield(limits.cap(wanted, None, history.assets), history, limit, form=form, record=record)

    whole = allow(weights)
    if held is None or limits.max_turnover is None:
        return whole
    partly = limits.apply(whole.weights, held, history.listed[-1], assets=history.assets)
    change = float(np.abs(whole.weights - held).sum())
    if change == 0.0 or np.array_equal(partly, whole.weights):
        return whole
    allowed, traded = allow(partly), float(np.abs(partly - held).sum()) / change
    sentence = (
        f"The limit of {share(limits.max_turnover)} on turnover leaves {percent(traded, 0)} of the change that is "
        "wanted; the rest follows at later decisions."
    )
    if np.abs(allowed.weights - partly).max() > TOLERANCE:
        sentence += " What the caps and the shield sell comes on top."
    return replace(
        allowed,
        kappa=whole.kappa,
        before=whole.before,
        removed=whole.removed,
        findings=(*whole.findings, sentence),
        traded=traded,
    )


@dataclass(frozen=True, eq=False)
class _Past:
    """The past of the assets that are to be held: those with a price today and enough history."""

    assets: NDArray[np.intp]
    """[n] their columns in the market."""
    ages: NDArray[np.intp]
    """[n] sessions for which each has had a price without a gap, at most `WINDOW` + 1."""
    mix: Array
    """[n] their weights per unit invested."""
    jumps: NDArray[np.intp]
    """[m] columns with a suspicious rise in that time."""
    history: Market

    @classmethod
    def of(cls, weights: Array, history: Market, limit: CvarLimit) -> Self:
        """Of the risky part of the weights [A]."""
        # One session more than the window, since the rule is applied without the last one, too.
        listed = history.listed[-(WINDOW + 2) :]
        # Of a run of prices up to today the first one has no return yet.
        ages = np.full(len(weights), len(listed) - 1)
        gaps = np.flatnonzero(~listed.all(axis=0))
        ages[gaps] = np.maximum(listed[::-1, gaps].argmin(axis=0) - 1, 0)
        enough = (weights > 0.0) & (ages > max(LEAST, limit.horizon))
        enough[0] = False
        assets = np.flatnonzero(enough)
        mix = weights[assets] / max(float(weights[assets].sum()), np.finfo(float).tiny)
        highest = history.gross_returns[-len(listed) :].max(axis=0)
        return cls(assets, ages[assets], mix, np.flatnonzero(enough & (highest > 1.0 + LARGE_MOVE)), history)

    @property
    def sessions(self) -> int:
        """Sessions of history that all of them have."""
        return min(int(self.ages.min()), WINDOW) if len(self.ages) else 0

    def allow(self, cash: float, limit: CvarLimit, record: Array | None) -> tuple[float, float]:
        """The largest invested share with the last session and without it, and the larger volatility.

        record: believed returns [n] of the account; without one, the mix counts as held all along.
        """
        if not len(self.assets):
            return 0.0, 0.0
        held = self._earn(limit.horizon, self.mix, most=0.0)
        whole, parts = self._measure(self.mix), []
        young = self.ages < YOUNG
        if young.any() and not young.all():
            parts = [self._measure(np.where(part, self.mix, 0.0)) for part in (young, ~young)]
        exposures, volatilities = [], []
        for hidden in (0, 1):
            volatility = self._forecast(whole, hidden)
            if parts:
                volatility = min(volatility, sum(self._forecast(part, hidden) for part in parts))
            of_account = {"mix": held[: len(held) - hidden]}
            if record is not None:
                of_account = {"record": record[: max(len(record) - hidden, 0)]}
            exposures.append(float(largest_exposure(np.array(volatility), np.array(cash), limit, **of_account)))
            volatilities.append(volatility)
        return min(exposures), max(volatilities)

    def _measure(self, weights: Array) -> tuple[float, Array]:
        """What of the mix the weights [n] invest, and its excess returns while all of that have had a price."""
        sessions, invested = int(self.ages[weights > 0.0].min()), float(weights.sum())
        return invested, self._earn(sessions, weights, most=LARGE_MOVE) / invested

    def _earn(self, sessions: int, weights: Array, most: float) -> Array:
        """[sessions] what weights [n] earned in excess of cash in the last ones; suspicious rises count as `most`."""
        columns = np.zeros(len(self.history.assets))
        columns[self.assets] = weights
        columns[0] = -weights.sum()
        gross_returns = self.history.gross_returns[-sessions:]
        excess: Array = gross_returns @ columns
        if len(self.jumps):
            moves = gross_returns[:, self.jumps] - 1.0
            excess = excess - np.where(moves > LARGE_MOVE, moves - most, 0.0) @ columns[self.jumps]
        return excess

    def _forecast(self, part: tuple[float, Array], hidden: int) -> float:
        """What a part of the mix adds to its volatility, without the last `hidden` sessions."""
        invested, excess = part
        # The rule's priors are those of a day of the exchange.
        days = math.sqrt(SESSIONS_PER_YEAR / self.history.sessions_per_year)
        return invested * days * float(forecast_volatility(excess[: len(excess) - hidden] / days))

    def describe(self) -> tuple[str, ...]:
        """Sentences about a short history and about suspicious last moves."""
        if not len(self.assets):
            return ()
        names, unit, found = self.history.assets, name_session(self.history.sessions_per_year), []
        if self.sessions < SHORT:
            youngest = self.assets[int(self.ages.argmin())]
            whose = "" if self.ages.min() == self.ages.max() else f" of {names[youngest]}"
            found.append(
                f"The shield has {self.sessions:,} of {WINDOW:,} {unit}s of history{whose}; the rest is filled by a "
                "cautious prior."
            )
        moves = self.history.gross_returns[-1] - 1.0
        found += [
            f"{names[i]} moved by {percent(moves[i], sign=True)} in the last {unit}, more than {share(LARGE_MOVE)}: "
            "check its price. The shield holds or sells because of it, and does not buy."
            for i in self.assets[np.abs(moves[self.assets]) > LARGE_MOVE]
        ]
        return tuple(found)


def _believe_record(record: AccountRecord | None, history: Market, limit: CvarLimit) -> Array | None:
    """The account's returns over the limit's horizon, in which a suspicious rise of an asset is no gain."""
    if record is None:
        return None
    count = min(len(record.returns), limit.horizon, len(history))
    rows = slice(len(history) - count, None)
    moves, weights = history.gross_returns[rows] - 1.0, record.weights[len(record.weights) - count :]
    returns = record.returns[len(record.returns) - count :]
    growth = 1.0 + np.vecdot(weights, moves)
    believed = 1.0 + np.vecdot(weights, np.where(moves > LARGE_MOVE, 0.0, moves))
    # What is left after the fee is the same share of either growth.
    return (1.0 + returns) * np.divide(believed, growth, out=np.ones(count), where=growth > 0.0) - 1.0
