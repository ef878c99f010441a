"""The shield inside a backtest: the same decisions as without it, scaled towards cash, with what it did every day.

An agent is walked once, since walking may mean training. Its decisions are kept and shown to the shield in a second
walk, so that the two tracks differ by the shield and by nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from portfolio_sdpo.backtest.shield import CvarLimit, shield
from portfolio_sdpo.backtest.simulate import Strategy
from portfolio_sdpo.envs.portfolio.market import Array, Market
from portfolio_sdpo.errors import BacktestError


class Recorded:
    """A strategy whose decisions are kept by day."""

    def __init__(self, inner: Strategy) -> None:
        self.inner = inner
        self.decisions: dict[np.datetime64, Array] = {}
        self.decided: Callable[[int], None] | None = None
        """Called after each decision with their number so far."""

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def every(self) -> int:
        return sessions_between(self.inner)

    def decide(self, history: Market, held: Array) -> Array:
        decision = self.inner.decide(history, held)
        self.decisions[history.dates[-1]] = np.array(decision, dtype=np.float64)
        if self.decided is not None:
            self.decided(len(self.decisions))
        return decision


class Replayed:
    """Decisions that were made before, whatever is held."""

    def __init__(self, recorded: Recorded) -> None:
        self.name = recorded.name
        self.every = recorded.every
        self._decisions = recorded.decisions

    def decide(self, history: Market, held: Array) -> Array:
        day = history.dates[-1]
        if day not in self._decisions:
            raise BacktestError(f"{self.name} made no decision on {day}: replay it over the days that it was walked.")
        return self._decisions[day]


class ShieldedStrategy:
    """A strategy whose every decision passes the shield; `days` says what that did.

    Limits of the backtest come after it: a cap on turnover may keep more risk for some sessions than it asks for.
    """

    def __init__(self, inner: Strategy, limit: CvarLimit, *, lookback: int = 504) -> None:
        self.inner = inner
        self.limit = limit
        self.lookback = lookback
        self.days: list[dict[str, Any]] = []

    @property
    def name(self) -> str:
        return f"{self.inner.name} + shield"

    @property
    def every(self) -> int:
        return sessions_between(self.inner)

    def decide(self, history: Market, held: Array) -> Array:
        result = shield(self.inner.decide(history, held), history, self.limit, lookback=self.lookback)
        self.days.append(
            {
                "date": history.dates[-1],
                "kappa": result.kappa,
                "before": result.before,
                "after": result.after,
                "scenarios": result.scenarios,
                "removed": ", ".join(result.removed),
                "meets": result.meets,
            }
        )
        return result.weights


def sessions_between(strategy: Strategy) -> int:
    """Sessions from one decision of the strategy to the next, as `simulate` counts them."""
    return int(getattr(strategy, "every", 1))
