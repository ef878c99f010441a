"""The simulation that every strategy goes through, so that all share dates, prices, cash, fees and limits.

At close t a strategy sees `market.until(t)` and nothing later, its weights are traded at that close from the drifted
weights, and wealth grows from t to t+1 by the gross returns of t+1. Trading at the close just seen is the convention of
the field, and an optimistic one: nobody gets exactly that price. At the last close the strategy is asked once more what
to hold from then on, whether a decision is due or not; the track does not show what comes of it.

A learning agent is simulated once, since that means training. Its decisions are then replayed through the shield, so
that the two tracks differ by the shield and by nothing else.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from portfolio_sdpo.errors import BacktestError, HistoryError, SettingsError, WeightsError
from portfolio_sdpo.portfolio.accounting import check_fee, hold, trade, turnover
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.filtered_shield import DEFAULT_CAUTION, Caution, shield_by_scenarios
from portfolio_sdpo.portfolio.limits import Limits, check_weights
from portfolio_sdpo.portfolio.market import Array, Day, Market


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
    decisions: Mapping[np.datetime64, Array] = field(default_factory=dict)
    """What the strategy asked for [A], before the limits, by the day of the decision; the last close's included."""

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
    on_decision: Callable[[int], None] | None = None,
) -> Track:
    """Simulate a strategy from the first session on or after `start` to the last on or before `end`, starting in cash.

    `fee` is a share of what is traded (0.001 = 10 bps). `every` is the number of sessions from one decision to the
    next; None takes the strategy's own. Between decisions weights drift and nothing is traded. `on_decision` is called
    after every decision with the number of them so far.
    """
    fee = check_fee(fee)
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
    limits = limits or Limits()

    held = np.zeros((days + 1, len(market.assets)))
    held[0, 0] = 1.0
    weights = np.empty((days, len(market.assets)))
    kept, traded, growth = np.ones(days), np.zeros(days), np.empty(days)
    notes: list[str] = []
    decisions: dict[np.datetime64, Array] = {}

    def decide(t: int, drifted: Array) -> Array:
        target = _ask(strategy, market.until(t), drifted, notes, decisions)
        if on_decision is not None:
            on_decision(len(decisions))
        return target

    for day in range(days):
        t = first + day
        weights[day] = held[day]
        if day % every == 0:
            wanted = decide(t, held[day])
            weights[day] = limits.apply(wanted, held[day], market.listed[t], fee)
            kept[day] = trade(held[day], weights[day], fee)
            traded[day] = turnover(held[day], weights[day], kept[day])
        growth[day], held[day + 1] = hold(weights[day], market.gross_returns[t + 1], market.listed[t + 1])

    following = held[days]
    if market.listed[last, 1:].any():
        wanted = decide(last, held[days])
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
        decisions=decisions,
    )


def _ask(
    strategy: Strategy, history: Market, held: Array, notes: list[str], decisions: dict[np.datetime64, Array]
) -> Array:
    """The strategy's weights, checked and added to `decisions`; its warnings are added to `notes` with the date."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            # A copy: a strategy that writes into it must not rewrite the track.
            decision = strategy.decide(history, held.copy())
        notes.extend(f"{history.dates[-1]}: {warning.message}" for warning in caught)
        target = check_weights(decision, held.shape)
    except WeightsError as error:
        raise WeightsError(f"{strategy.name} on {history.dates[-1]}: {error}") from None
    # As it was given: checking it a second time, in a replay, must round it no further.
    decisions[history.dates[-1]] = np.array(decision, dtype=np.float64)
    return target


class DecisionReplay:
    """Decisions that were made before, whatever is held now; a `Strategy` itself.

    decisions: weights [A] by day, as in `Track.decisions`. every: sessions between them; None where they follow no
    rhythm, and then the days without a decision keep what is held.
    """

    def __init__(self, name: str, decisions: Mapping[np.datetime64, Array], every: int | None = None) -> None:
        self.name = name
        self.decisions = decisions
        self.every = every or 1
        self._regular = every is not None

    def decide(self, history: Market, held: Array) -> Array:
        day = history.dates[-1]
        if day in self.decisions:
            return self.decisions[day]
        if self._regular:
            raise BacktestError(f"{self.name} made no decision on {day}: replay it over the days of its own backtest.")
        return held


class ShieldedStrategy:
    """A strategy whose every decision passes the shield, which also looks at what is held every `every` sessions.

    Between the strategy's own decisions the shield only sells: what is held stays as it is, or is scaled towards cash.
    `days` says what it did. Limits of the backtest come after it, at every look: a cap on turnover may keep more risk
    for some sessions than it asks for, and one on weights also cuts what drifted above it between decisions.
    """

    def __init__(
        self,
        inner: Strategy,
        limit: CvarLimit,
        *,
        lookback: int = 504,
        every: int = 1,
        caution: Caution | None = DEFAULT_CAUTION,
    ) -> None:
        if every < 1:
            raise SettingsError(f"every: the shield looks every session or less often (got {every}).")
        self.inner = inner
        self.limit = limit
        self.lookback = lookback
        self.caution = caution
        self.look = min(every, inner.every)
        self.every = math.gcd(self.look, inner.every)
        """Sessions from one call to the next, so that neither a look nor a decision is missed."""
        self.days: list[dict[str, Any]] = []
        self._decided: int | None = None
        self._looked = 0

    @property
    def name(self) -> str:
        return f"{self.inner.name} + shield"

    def decide(self, history: Market, held: Array) -> Array:
        due = self._due(history)
        if not due and len(history) - self._looked < self.look:
            return held
        self._looked = len(history)
        wanted = self.inner.decide(history, held) if due else held
        result = shield_by_scenarios(wanted, history, self.limit, lookback=self.lookback, caution=self.caution)
        self.days.append(
            {
                "date": history.dates[-1],
                "decided": due,
                "kappa": result.kappa,
                "before": result.before,
                "after": result.after,
                "scenarios": result.scenarios,
                "removed": ", ".join(result.removed),
                "meets": result.meets,
            }
        )
        return result.weights

    def _due(self, history: Market) -> bool:
        """Whether the inner strategy is to decide now: its sessions have passed, or a replay has one."""
        now, latest = len(history), self._decided
        due = latest is None or now <= latest or now - latest >= self.inner.every
        if not due and isinstance(self.inner, DecisionReplay):
            return history.dates[-1] in self.inner.decisions
        if due:
            self._decided = now
        return due
