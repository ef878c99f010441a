"""The shield inside a backtest: the same decisions as without it, scaled towards cash, with what it did every day.

An agent is walked once, since walking may mean training. Its decisions are kept and shown to the shield in a second
walk, so that the two tracks differ by the shield and by nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from portfolio_sdpo.backtest.simulate import Strategy
from portfolio_sdpo.errors import BacktestError, SettingsError
from portfolio_sdpo.portfolio.market import Array, Market
from portfolio_sdpo.portfolio.shield import DEFAULT_CAUTION, Caution, CvarLimit, shield


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

    def decided(self, day: np.datetime64) -> bool:
        """Whether there is a decision of that day."""
        return day in self._decisions

    def decide(self, history: Market, held: Array) -> Array:
        day = history.dates[-1]
        if day not in self._decisions:
            raise BacktestError(f"{self.name} made no decision on {day}: replay it over the days that it was walked.")
        return self._decisions[day]


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
        self.look = min(every, sessions_between(inner))
        self.every = math.gcd(self.look, sessions_between(inner))
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
        result = shield(wanted, history, self.limit, lookback=self.lookback, caution=self.caution)
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
        """Whether the inner strategy is to decide now: its sessions have passed, or it is known that it did."""
        now, latest = len(history), self._decided
        due = latest is None or now <= latest or now - latest >= sessions_between(self.inner)
        if not due and isinstance(self.inner, Replayed):
            return self.inner.decided(history.dates[-1])
        if due:
            self._decided = now
        return due


def sessions_between(strategy: Strategy) -> int:
    """Sessions from one decision of the strategy to the next, as `simulate` counts them."""
    return int(getattr(strategy, "every", 1))
