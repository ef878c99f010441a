"""One loop that every strategy goes through, so that all share dates, prices, cash, fees and limits.

At close t a strategy sees `market.until(t)` and nothing later, its weights are traded at that close from the drifted
weights, and wealth grows from t to t+1 by the gross returns of t+1. Trading at the close just seen is the convention of
the field, and an optimistic one: nobody gets exactly that price. At the last close it is asked once more, what to hold
from then on, due or not; what comes of that no track knows.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from portfolio_sdpo.errors import HistoryError, SettingsError, WeightsError
from portfolio_sdpo.portfolio.accounting import checked_fee, hold, trade, turnover
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.market import Array, Day, Market
from portfolio_sdpo.portfolio.simplex import on_simplex


class Strategy(Protocol):
    """What can be backtested. A warning that `decide` gives becomes a note of the track."""

    @property
    def name(self) -> str: ...

    def decide(self, history: Market, held: Array) -> Array:
        """Weights [A] to hold from the last session of `history` on; `held` [A] is what drifted there."""
        ...


@dataclass(frozen=True, eq=False)
class Track:
    """What a strategy did: D sessions of growth, the A assets of the market with cash first."""

    name: str
    assets: tuple[str, ...]
    """A names of the columns."""
    dates: NDArray[np.datetime64]
    """[D + 1] the first is the day of the first decision, before anything is earned."""
    wealth: Array
    """[D + 1] after fees and growth."""
    weights: Array
    """[D, A] after the trade at dates[:-1], of the wealth after its fee; the drifted ones where none is due."""
    held: Array
    """[D + 1, A] drifted weights at each date, before its trade."""
    costs: Array
    """[D] fee paid at dates[:-1], in units of wealth."""
    turnover: Array
    """[D] value of the stocks bought and sold at dates[:-1], over the wealth before the trade."""
    cash_returns: Array
    """[D] what cash earned in the same sessions."""
    next_weights: Array
    """[A] to be held from the last date on."""
    notes: tuple[str, ...] = ()
    """Sentences about decisions that did not go as planned, each with its date."""

    @property
    def returns(self) -> Array:
        """[D] simple returns of wealth, net of fees."""
        return self.wealth[1:] / self.wealth[:-1] - 1.0


def simulate(
    market: Market,
    strategy: Strategy,
    *,
    start: Day | None = None,
    end: Day | None = None,
    fee: float = 0.0,
    limits: Limits | None = None,
    every: int | None = None,
    wealth: float = 1.0,
) -> Track:
    """Walk a strategy from the first session on or after `start` to the last on or before `end`, starting in cash.

    `fee` is a share of what is traded (0.001 = 10 bps). `every` is the number of sessions from one decision to the
    next; None takes the strategy's own (its attribute `every`), or 1. Between decisions weights drift and nothing is
    traded.
    """
    fee = checked_fee(fee)
    every = int(getattr(strategy, "every", 1)) if every is None else every
    if every < 1:
        raise SettingsError(f"every: must be at least one session (got {every}).")
    if not 0.0 < wealth < float("inf"):
        raise SettingsError(f"wealth: must be positive and finite (got {wealth}).")
    first, last = market.span(start, end)
    days = last - first
    if days < 1:
        raise HistoryError(
            f"a backtest needs two sessions, and between {start} and {end} there is one: choose a later end."
        )
    if not market.listed[first:last, 1:].any():
        raise HistoryError(
            f"no stock has a price between {market.dates[first]} and {market.dates[last]}: choose other days."
        )
    limits = limits or Limits()

    held = np.zeros((days + 1, len(market.assets)))
    held[0, 0] = 1.0
    weights = np.empty((days, len(market.assets)))
    kept, traded, growth = np.ones(days), np.zeros(days), np.empty(days)
    notes: list[str] = []
    for day in range(days):
        t = first + day
        weights[day] = held[day]
        if day % every == 0:
            wanted = _decided(strategy, market.until(t), held[day], notes)
            weights[day] = limits.apply(wanted, held[day], market.listed[t], fee)
            kept[day] = trade(held[day], weights[day], fee)
            traded[day] = turnover(held[day], weights[day], kept[day])
        growth[day], held[day + 1] = hold(weights[day], market.gross_returns[t + 1], market.listed[t + 1])

    following = held[days]
    if market.listed[last, 1:].any():
        wanted = _decided(strategy, market.until(last), held[days], notes)
        following = limits.apply(wanted, held[days], market.listed[last], fee)

    path = wealth * np.concatenate([[1.0], np.cumprod(kept * growth)])
    return Track(
        name=strategy.name,
        assets=market.assets,
        dates=market.dates[first : last + 1],
        wealth=path,
        weights=weights,
        held=held,
        costs=path[:-1] * (1.0 - kept),
        turnover=traded,
        cash_returns=market.gross_returns[first + 1 : last + 1, 0] - 1.0,
        next_weights=following,
        notes=tuple(notes),
    )


def _decided(strategy: Strategy, history: Market, held: Array, notes: list[str]) -> Array:
    """The strategy's weights, checked; what it warns of is noted with the date, whoever warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # A copy: a strategy that writes into it must not rewrite the track.
        decision = strategy.decide(history, held.copy())
    notes.extend(f"{history.dates[-1]}: {warning.message}" for warning in caught)
    try:
        return on_simplex(decision, held.shape)
    except WeightsError as error:
        raise WeightsError(f"{strategy.name} on {history.dates[-1]}: {error}") from None
