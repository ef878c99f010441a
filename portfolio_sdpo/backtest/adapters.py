"""Strategies made of other people's objects: whatever has `decide(history, held)`, and skfolio's optimisers."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pandas as pd

from portfolio_sdpo.backtest.lookback import allocate_or_hold, fit_weights, select_stocks
from portfolio_sdpo.backtest.simulate import AccountHistory, DailyStrategy, Strategy
from portfolio_sdpo.backtest.strategies import make_strategy
from portfolio_sdpo.errors import SettingsError, WeightsError
from portfolio_sdpo.portfolio.limits import TOLERANCE
from portfolio_sdpo.portfolio.market import CASH, Array, Market, count_sessions_of_a_year


class DecisionAdapter:
    """Any object with `decide(history, held)` as a `Strategy`.

    Parameters
    ----------
    inner
        Its `decide` gets the `Market` up to the close of the decision and the drifted weights [A], CASH first. It
        answers with weights [A], or with a Series or a mapping from names of assets to weights; what these leave of 1
        is cash, unless they name CASH.
    name
        What tables call it; None takes `inner.name`, or else the name of its class.
    every
        Sessions from one decision to the next; None takes `inner.every`, or else 1.
    """

    def __init__(self, inner: Any, name: str | None = None, every: int | None = None) -> None:
        self.inner = inner
        self.name = name or str(getattr(inner, "name", type(inner).__name__))
        self.every = _check_every(getattr(inner, "every", 1) if every is None else every)

    @property
    def trace(self) -> Any:
        """The rows of its training, if it keeps any (see `record.TRACE_COLUMNS`)."""
        return getattr(self.inner, "trace", ())

    def decide(self, history: Market, held: Array) -> Array:
        """The weights [A] that the object answers with."""
        return _to_array(self.inner.decide(history, held), history)


class _ReviewAdapter(DecisionAdapter):
    """A `DailyStrategy` under another name, which is still asked at every close and told about its account."""

    def review(self, history: Market, account: AccountHistory) -> Array:
        """The weights [A] that it answers with."""
        return _to_array(self.inner.review(history, account), history)


class OptimiserStrategy:
    """A skfolio optimiser, or anything else with `fit(returns)` and then `weights_`, as a `Strategy`.

    At every decision a copy of the optimiser is fitted to the simple returns of the last `lookback` sessions (None: a
    year of them): a frame of sessions × the stocks that have a price in all of them. What its weights leave of 1 is
    cash. If it has a parameter `previous_weights` that is None, it is told what is held. Where it finds no solution,
    what is held is kept and the track has a note.
    """

    def __init__(self, optimiser: Any, name: str | None = None, *, lookback: int | None = None, every: int = 5) -> None:
        if lookback is not None and lookback < 2:
            raise SettingsError(f"lookback: must be at least two sessions (got {lookback}).")
        self.optimiser = optimiser
        self.name = name or type(optimiser).__name__
        self.lookback = lookback
        self.every = _check_every(every)

    def decide(self, history: Market, held: Array) -> Array:
        """The fitted weights [A], or `held` and a warning where no solution was found."""
        sessions = self.lookback or count_sessions_of_a_year(history)
        stocks = select_stocks(history, sessions)
        returns = pd.DataFrame(
            history.gross_returns[-sessions:, stocks] - 1.0,
            index=pd.DatetimeIndex(history.dates[-sessions:]),
            columns=[history.assets[stock] for stock in stocks],
        )
        model = _clone(self.optimiser)
        if getattr(model, "previous_weights", 0) is None:
            model.previous_weights = held[stocks]
        return allocate_or_hold(lambda: _check_allocation(fit_weights(model, returns), len(stocks)), stocks, held)


def as_strategy(candidate: Any, name: str | None = None, *, every: int | None = None) -> Strategy:
    """The candidate as a `Strategy`: a name, an object with `decide(history, held)`, or an optimiser with `fit`.

    name: what tables call it; None takes the candidate's own. every: sessions between decisions; None takes the
    candidate's own, 1 for an object that has none, 5 for an optimiser.

    >>> as_strategy("equal-weight", "1/N").name
    '1/N'
    """
    if isinstance(candidate, str):
        candidate = make_strategy(candidate)
    if callable(getattr(candidate, "decide", None)):
        complete = hasattr(candidate, "name") and hasattr(candidate, "every")
        if complete and name in (None, candidate.name) and every in (None, candidate.every):
            return cast("Strategy", candidate)
        adapter = _ReviewAdapter if isinstance(candidate, DailyStrategy) else DecisionAdapter
        return adapter(candidate, name, every)
    if callable(getattr(candidate, "fit", None)):
        return OptimiserStrategy(candidate, name, **({} if every is None else {"every": every}))
    raise SettingsError(
        f"strategies: {name or type(candidate).__name__} is neither the name of a strategy, nor an object with "
        "decide(history, held), nor an optimiser with fit(returns); give one of these."
    )


def _check_every(every: Any) -> int:
    try:
        sessions = int(every)
    except (TypeError, ValueError):
        sessions = 0
    if sessions < 1:
        raise SettingsError(f"every: must be a number of sessions, at least one (got {every!r}).")
    return sessions


def _check_allocation(weights: Array, stocks: int) -> Array:
    """An optimiser's weights [n], if they can be held: one per stock, none short, nothing borrowed."""
    if weights.shape != (stocks,):
        raise WeightsError(f"the optimiser gives weights of shape {weights.shape} for {stocks} stocks.")
    if (weights < -TOLERANCE).any() or weights.sum() > 1.0 + TOLERANCE:
        raise WeightsError(
            f"the optimiser's weights go from {weights.min():g} to {weights.max():g} and sum to {weights.sum():g}: "
            "only long positions without leverage can be held; give it min_weights=0 and a budget of at most 1."
        )
    return weights


def _clone(optimiser: Any) -> Any:
    """A copy that can be fitted without a trace in the user's own object."""
    try:
        from sklearn.base import clone
    except ModuleNotFoundError:
        return copy.deepcopy(optimiser)
    return clone(optimiser, safe=False)


def _to_array(weights: Any, history: Market) -> Array:
    """Weights [A] from an array, or by name: assets that are not named have weight 0, cash what the others leave."""
    if isinstance(weights, pd.Series):
        weights = weights.to_dict()
    if not isinstance(weights, Mapping):
        return np.asarray(weights, dtype=np.float64)
    unknown = sorted(str(name) for name in weights if name not in history.assets)
    if unknown:
        raise WeightsError(f"there is no asset {unknown[0]}: name {CASH} or one of the prices' columns.")
    array = np.array([float(weights.get(asset, 0.0)) for asset in history.assets])
    if CASH not in weights:
        array[0] = 1.0 - array[1:].sum()
    return array
