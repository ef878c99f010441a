"""The simulation that every strategy goes through, so that all share dates, prices, cash, fees and limits.

At close t a strategy sees `market.until(t)` and nothing later. When its weights are traded is the execution:

    next-close  at close t+1, from the weights that have drifted until then (the default: what can be had)
    same-close  at close t itself (the paper's; optimistic, since nobody gets the price that he has just seen)

Listings, limits and the fee are those of the trade. Wealth then grows by the gross returns of the sessions after it. At
the last close the strategy is asked once more what to hold, whether a decision is due or not; the track does not show
what comes of it.

A learning agent is simulated once, since that means training. Its decisions are then replayed through the shield, so
that the two tracks differ by the shield and by nothing else.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from portfolio_sdpo.errors import BacktestError, HistoryError, SettingsError, WeightsError
from portfolio_sdpo.portfolio.accounting import Execution, check_execution, check_fee, hold, trade, turnover
from portfolio_sdpo.portfolio.limits import Limits, check_weights
from portfolio_sdpo.portfolio.market import SESSIONS_PER_YEAR, Array, Day, Market


class Strategy(Protocol):
    """What can be backtested. A warning that `decide` gives becomes a note of the track."""

    @property
    def name(self) -> str:
        """What tables and figures call it."""
        ...

    @property
    def every(self) -> int:
        """Sessions from one decision to the next."""
        ...

    def decide(self, history: Market, held: Array) -> Array:
        """Weights [A] to trade for, after the last session of `history`; `held` [A] itself where nothing is to change.

        `held` is what is held at that close: before this decision's trade and after those of earlier ones.
        """
        ...


@dataclass(frozen=True, eq=False)
class AccountHistory:
    """What a strategy's own account has been through up to a close: S sessions since the start."""

    held: Array
    """[A] weights at the close, drifted; with the next close's execution after the trade of the decision before."""
    weights: Array
    """[S, A] weights that each session began with, after the trade and its fee."""
    returns: Array
    """[S] simple returns of the sessions, net of the fee of the trade that each began with."""


@runtime_checkable
class DailyStrategy(Strategy, Protocol):
    """A strategy that is asked at every close, whatever its rhythm, and is told about its own account."""

    def review(self, history: Market, account: AccountHistory) -> Array:
        """Weights [A] to trade for, or `account.held` itself where nothing is to change."""
        ...


@dataclass(frozen=True, eq=False)
class Track:
    """What a strategy did: D sessions of growth, the A assets of the market with cash first.

    It starts in cash, and at the next close's execution the first session is all cash: its decision is traded at the
    end of it.
    """

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
    """[A] what was decided at the last date and is to be traded: then, or at the next close."""
    notes: tuple[str, ...] = ()
    """Sentences about decisions that did not go as planned, each with its date."""
    decisions: Mapping[np.datetime64, Array] = field(default_factory=dict)
    """What the strategy asked for [A], before the limits, by the day of the decision; the last close's included."""
    unchanged: frozenset[np.datetime64] = frozenset()
    """The days of decisions that left everything as it was: `held` itself was returned, which is in `decisions`."""
    execution: Execution = "next-close"
    decided_on: Mapping[np.datetime64, np.datetime64] = field(default_factory=dict)
    """The day of the decision, by the day on which it was traded."""
    sessions_per_year: float = SESSIONS_PER_YEAR
    """The market's, by which figures are brought to a year."""

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
    execution: Execution = "next-close",
    wealth: float = 1.0,
    on_decision: Callable[[int], None] | None = None,
) -> Track:
    """Simulate a strategy from the first session on or after `start` to the last on or before `end`, starting in cash.

    `fee` is a share of what is traded (0.001 = 10 bps). `every` is the number of sessions from one decision to the
    next; None takes the strategy's own, and a `DailyStrategy` keeps its own. Between decisions weights drift and
    nothing is traded. `on_decision` is called after every decision with the number of them so far.
    """
    fee = check_fee(fee)
    late = check_execution(execution) == "next-close"
    every = strategy.every if every is None else every
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
    limits, daily = limits or Limits(), isinstance(strategy, DailyStrategy)
    limits.check(market.assets)

    held = np.zeros((days + 1, len(market.assets)))
    held[0, 0] = 1.0
    weights = np.empty((days, len(market.assets)))
    kept, traded, growth = np.ones(days), np.zeros(days), np.empty(days)
    notes: list[str] = []
    decisions: dict[np.datetime64, Array] = {}
    unchanged: set[np.datetime64] = set()
    decided_on: dict[np.datetime64, np.datetime64] = {}

    def ask(day: int, now: Array) -> _Order | None:
        """What the strategy wants at that close, where it holds `now` [A]; None between decisions."""
        if day % every and day < days and not daily:
            return None
        account = AccountHistory(now, _read_only(weights[:day]), kept[:day] * growth[:day] - 1.0)
        order = _ask(strategy, market.until(first + day), account, notes, decisions)
        if order.target is None:
            unchanged.add(order.day)
        if on_decision is not None:
            on_decision(len(decisions))
        return order

    def allow(order: _Order | None, now: Array, day: int) -> Array:
        """[A] what an order comes to at that close, where `now` [A] is held."""
        if order is None:
            return now
        target = order.target
        if target is None:
            # What has drifted since is not normalised again, which would trade its rounding error.
            target = now if late else check_weights(now, now.shape)
        return limits.apply(target, now, market.listed[first + day], fee, market.assets)

    order = None
    for day in range(days):
        t = first + day
        if not late:
            order = ask(day, held[day])
        weights[day] = allow(order, held[day], day)
        if order is not None:
            kept[day] = trade(held[day], weights[day], fee)
            traded[day] = turnover(held[day], weights[day], kept[day])
            decided_on[market.dates[t]] = order.day
        if late:
            order = ask(day, weights[day])
        growth[day], held[day + 1] = hold(weights[day], market.gross_returns[t + 1], market.listed[t + 1])

    following = allow(order, held[days], days) if late else held[days]
    if market.listed[last, 1:].any():
        following = allow(ask(days, following), following, days)

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
        decisions=decisions,
        unchanged=frozenset(unchanged),
        execution=execution,
        decided_on=decided_on,
        sessions_per_year=market.sessions_per_year,
    )


class _Order(NamedTuple):
    """What is to be traded."""

    day: np.datetime64
    """Of the decision."""
    target: Array | None
    """[A]; None for what is held at the trade, as far as the limits allow it."""


def _ask(
    strategy: Strategy,
    history: Market,
    account: AccountHistory,
    notes: list[str],
    decisions: dict[np.datetime64, Array],
) -> _Order:
    """The strategy's order, checked and added to `decisions`; its warnings are added to `notes` with the date."""
    today, held = history.dates[-1], account.held
    # A copy: a strategy that writes into it must not rewrite the track.
    given = replace(account, held=held.copy())
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if isinstance(strategy, DailyStrategy):
                decision = strategy.review(history, given)
            else:
                decision = strategy.decide(history, given.held)
        notes.extend(f"{today}: {warning.message}" for warning in caught)
        target = check_weights(decision, held.shape)
    except WeightsError as error:
        raise WeightsError(f"{strategy.name} on {today}: {error}") from None
    # As it was given: checking it a second time, in a replay, must round it no further.
    decisions[today] = np.array(decision, dtype=np.float64)
    unchanged = decision is given.held and np.array_equal(decision, held)
    return _Order(today, None if unchanged else target)


def _read_only(array: Array) -> Array:
    view = array.view()
    view.setflags(write=False)
    return view


class DecisionReplay:
    """Decisions that were made before, whatever is held now; a `Strategy` itself.

    decisions: weights [A] by day, as in `Track.decisions`. every: sessions between them; None where they follow no
    rhythm, and then the days without a decision keep what is held. unchanged: days of decisions that changed nothing,
    and change nothing here.
    """

    def __init__(
        self,
        name: str,
        decisions: Mapping[np.datetime64, Array],
        every: int | None = None,
        unchanged: Collection[np.datetime64] = (),
    ) -> None:
        self.name = name
        self.decisions = decisions
        self.every = every or 1
        self.regular = every is not None
        self.unchanged = unchanged

    def decide(self, history: Market, held: Array) -> Array:
        day = history.dates[-1]
        if day in self.unchanged:
            return held
        if day in self.decisions:
            return self.decisions[day]
        if self.regular:
            raise BacktestError(f"{self.name} made no decision on {day}: replay it over the days of its own backtest.")
        return held
