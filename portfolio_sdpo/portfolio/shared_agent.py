"""The strategy that decides with a shared policy, as far as it has earned that on the universe at hand.

agent = SharedAgent(load_shipped_policy())
weights = agent.decide(history, held)  # [A], for the shield
print(agent.deviation)                 # how far it deviates from equal weights, and on what evidence
"""

from __future__ import annotations

from typing import Any

from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.deviation import Decisions, Deviation, earn_deviation
from portfolio_sdpo.portfolio.market import Array, Market
from portfolio_sdpo.portfolio.shared_policy import SharedPolicy

REVIEW = 63
"""Sessions after which the evidence is looked at again: a quarter, the length of one observation of it."""


class SharedAgent:
    """A `Strategy`; without evidence it holds equal weights, and the shield alone decides how much cash."""

    every = 5

    def __init__(
        self, policy: SharedPolicy, limit: CvarLimit | None = None, *, fee: float = 0.0005, name: str = "sdpo"
    ) -> None:
        self.policy = policy
        self.limit = limit or CvarLimit()
        self.fee = fee
        self.name = name
        self.deviation: Deviation | None = None
        """How far the last decision deviates from equal weights; None before the first."""
        self.trace: list[dict[str, Any]] = []
        """One row per decision: date, deviation, growth, error, years."""
        self._decisions: Decisions = {}
        self._assets: tuple[str, ...] = ()
        self._reviewed = 0

    def decide(self, history: Market, held: Array) -> Array:
        """Weights [A] at the last close; what is held makes no difference."""
        if history.assets != self._assets:
            self._decisions, self._assets, self.deviation = {}, history.assets, None
        if self.deviation is None or not 0 <= len(history) - self._reviewed < REVIEW:
            self.deviation = earn_deviation(self.policy, history, self.limit, fee=self.fee, decisions=self._decisions)
            self._reviewed = len(history)
        found = self.deviation
        self.trace.append(
            {
                "date": str(history.dates[-1]),
                "deviation": found.value,
                "growth": found.growth,
                "error": found.error,
                "years": found.years,
            }
        )
        return self.policy.allocate(history, found.value)
