"""What the strategies share that estimate from the last sessions: who takes part, and what happens in a failure."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from portfolio_sdpo.portfolio.market import Array, Market, all_cash, count_sessions_of_a_year
from portfolio_sdpo.settings import Settings


class LookbackStrategy(Settings):
    """What the strategies share that estimate from the last `lookback` sessions."""

    lookback: int | None = Field(default=None, ge=2)
    """Sessions of returns that are looked at; None = a year of them, and at least 60."""
    every: int = Field(default=5, ge=1)
    """Sessions from one decision to the next."""

    @abstractmethod
    def allocate(self, returns: Array, cash: float) -> Array:
        """[n] weights of the stocks that take part, summing to at most 1; the rest is cash.

        returns: [S, n] what `sample` gave. cash: what cash earned in the last session.
        """

    def count_sessions(self, history: Market) -> int:
        """How many sessions are looked at."""
        return self.lookback or count_sessions_of_a_year(history)

    def sample(self, history: Market) -> Array:
        """[S, A] the returns that are looked at; those of single sessions if not said otherwise."""
        return history.gross_returns[-self.count_sessions(history) :] - 1.0

    def decide(self, history: Market, held: Array) -> Array:
        """The weights [A], or `held` and a warning where no solution was found."""
        stocks = select_stocks(history, self.count_sessions(history))
        cash = float(history.gross_returns[-1, 0] - 1.0)
        return allocate_or_hold(lambda: self.allocate(self.sample(history)[:, stocks], cash), stocks, held)


def select_stocks(history: Market, lookback: int) -> NDArray[np.intp]:
    """Columns of the stocks with a price at each of the last `lookback` + 1 closes, whose price moved in them."""
    if len(history) <= lookback:
        return np.empty(0, dtype=np.intp)
    listed = np.asarray(history.listed[-lookback - 1 :].all(axis=0))
    # A price that never moves is stale, has no correlation with anything, and would pass for cash.
    moved = history.gross_returns[-lookback:].std(axis=0) > 1e-9
    return np.flatnonzero(listed & moved & (np.arange(len(listed)) > 0))


def allocate_or_hold(allocate: Callable[[], Array], stocks: NDArray[np.intp], held: Array) -> Array:
    """Weights [A] from those of the stocks in these columns, the rest in cash; `held` and a warning if that fails."""
    weights = all_cash(len(held))
    if not len(stocks):
        return weights
    try:
        parts = allocate()
    except _failures() as error:
        reason = " ".join(str(error).split()).partition(". ")[0].rstrip(".")
        warnings.warn(f"found no solution and keeps what it holds ({reason}).", stacklevel=3)
        return held
    parts = np.maximum(parts, 0.0)
    weights[stocks] = parts / max(parts.sum(), 1.0)
    weights[0] = max(1.0 - weights[stocks].sum(), 0.0)
    return weights


def fit_weights(model: Any, returns: Any) -> Array:
    """Fit a skfolio optimiser to returns [S, n], an array or a frame; its weights [n]."""
    model.fit(returns)
    return np.asarray(model.weights_, dtype=np.float64)


def _failures() -> tuple[type[Exception], ...]:
    """What an optimiser raises when it finds no solution."""
    if find_spec("skfolio") is None:
        return ()
    from skfolio.exceptions import SkfolioError

    return SkfolioError, ValueError, ArithmeticError, np.linalg.LinAlgError
