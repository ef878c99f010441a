"""The agent that decides with a shared policy: nothing is trained, only its deviation is earned on the prices at hand.

It can do all that `Agent` can: it is trained, stored, registered, served, retrained and resumed in the same way.
"""

from __future__ import annotations

import math
from typing import Any

from portfolio_sdpo.errors import HistoryError
from portfolio_sdpo.portfolio.agent import Agent, AgentSettings
from portfolio_sdpo.portfolio.market import Array, Market
from portfolio_sdpo.portfolio.shared_agent import SharedAgent
from portfolio_sdpo.portfolio.shared_policy import SharedPolicy, SharedPolicySettings
from portfolio_sdpo.prices.frequency import name_session

FEWEST_A_YEAR = 200
"""Sessions a year that daily prices have at least."""


def build_agent(settings: AgentSettings, seed: int = 0, name: str = "sdpo") -> Agent:
    """The agent that the settings describe, before its first decision."""
    kind = SharedPolicyAgent if isinstance(settings.learner, SharedPolicySettings) else Agent
    return kind(settings, seed, name)


class SharedPolicyAgent(Agent):
    """An agent whose learner is a shared policy with the evidence for it; the trace has a row for every decision."""

    learner: Any
    """A `SharedAgent`; None before the first decision."""
    _loaded: SharedPolicy | None = None

    @property
    def policy(self) -> SharedPolicy:
        """The policy that it decides with; once it has decided, whatever becomes of the file that it came from."""
        if self.learner is not None:
            policy: SharedPolicy = self.learner.policy
            return policy
        if self._loaded is None:
            assert isinstance(self.settings.learner, SharedPolicySettings)
            self._loaded = self.settings.learner.load_policy()
        return self._loaded

    @property
    def policy_hash(self) -> str:
        """SHA-256 of the policy's file."""
        return self.policy.sha256

    @property
    def identity(self) -> list[str]:
        """See `Agent.identity`; what the file of the policy is called does not matter."""
        return [*super().identity, self.policy_hash]

    def describe_evidence(self) -> dict[str, Any]:
        """How far the last decision deviates from equal weights and why, and the hash of the policy."""
        found = self.learner.deviation
        figures = {"growth": found.growth, "error": found.error, "years": found.years}
        return {
            "policy_sha256": self.policy_hash,
            "deviation": found.value,
            **{name: value if math.isfinite(value) else None for name, value in figures.items()},
            "sentence": self.learner.explain(),
        }

    def estimate_promise(self, history: Market, paths: int = 4096) -> None:
        """None: it was trained on other universes and promises nothing about this one; the shield keeps the limit."""

    def _check(self, history: Market) -> None:
        if history.sessions_per_year < FEWEST_A_YEAR:
            raise HistoryError(
                f"{self.name} decides with a policy that was trained on daily closes, and a session of these prices is "
                f"a {name_session(history.sessions_per_year)}: give it daily prices, or choose another preset."
            )
        super()._check(history)

    def _build(self, assets: int) -> Any:
        settings = self.settings
        assert isinstance(settings.learner, SharedPolicySettings)
        deviation = settings.learner.deviation
        fixed = None if deviation == "earned" else float(deviation)
        return SharedAgent(SharedPolicy(()), settings.limit, fee=settings.fee, name=self.name, fixed=fixed)

    def _decide(self, history: Market, held: Array) -> Array:
        self._check(history)
        if self.learner is None:
            learner = self._build(len(history.assets))
            learner.policy = self.policy
            self.learner = learner
        new = self.as_of is None or (history.dates[-1] != self.as_of and self.settings.further > 0)
        self.learner.frozen = self.settings.further == 0
        weights: Array = self.learner.decide(history, held)
        self.assets, self.as_of = history.assets, history.dates[-1]
        if new:
            self._note(self.learner.trace[-1])
        return weights

    def _note(self, evidence: dict[str, Any]) -> None:
        """Add the row of a decision to the trace: its evidence, and no risk, since nothing is trained."""
        bound = math.log1p(self.settings.limit.bound)
        training = {"objective": math.nan, "risk": math.nan, "bound": bound, "slack": math.nan, "regime": "none"}
        self.trace.append({**evidence, "iteration": len(self.trace) + 1, **training})
        if self.watch is not None:
            self.watch(len(self.trace))
