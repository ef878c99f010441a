"""The strategy that decides with a shared policy, as far as it has earned that on the universe at hand.

agent = SharedAgent(load_shipped_policy())
weights = agent.decide(history, held)  # [A], for the shield
print(agent.deviation)                 # how far it deviates from equal weights, and on what evidence
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.deviation import Decisions, Deviation, earn_deviation, explain_deviation
from portfolio_sdpo.portfolio.market import Array, Market
from portfolio_sdpo.portfolio.shared_policy import SharedPolicy

REVIEW = 63
"""Sessions after which the evidence is looked at again: a quarter, the length of one observation of it."""


class SharedAgent:
    """A `Strategy`; without evidence it holds equal weights, and the shield alone decides how much cash."""

    every = 5

    def __init__(
        self,
        policy: SharedPolicy,
        limit: CvarLimit | None = None,
        *,
        fee: float = 0.0005,
        name: str = "sdpo",
        fixed: float | None = None,
    ) -> None:
        """With a `fixed` deviation no evidence is asked for."""
        self.policy = policy
        self.limit = limit or CvarLimit()
        self.fee = fee
        self.name = name
        self.fixed = fixed
        self.frozen = False
        """Whether the deviation of the last decision stays as it is."""
        self.deviation: Deviation | None = None
        """How far the last decision deviates from equal weights; None before the first."""
        self.trace: list[dict[str, Any]] = []
        """One row per decision: date, deviation, growth, error, years."""
        self._decisions: Decisions = {}
        self._assets: tuple[str, ...] = ()
        self._reviewed = 0

    def review(self, history: Market) -> Deviation:
        """How far it may deviate at the last close: what was found in the last review, until that is a quarter old."""
        if self.fixed is not None:
            self.deviation = Deviation(self.fixed, math.nan, math.nan, 0.0)
            return self.deviation
        if self.frozen and self.deviation is not None:
            return self.deviation
        if history.assets != self._assets:
            self._decisions, self._assets, self.deviation = {}, history.assets, None
        if self.deviation is None or not 0 <= len(history) - self._reviewed < REVIEW:
            self.deviation = earn_deviation(self.policy, history, self.limit, fee=self.fee, decisions=self._decisions)
            self._reviewed = len(history)
        return self.deviation

    def explain(self) -> str:
        """How far the last decision deviates from equal weights, and on what evidence, in one sentence."""
        assert self.deviation is not None
        return explain_deviation(self.deviation, fixed=self.fixed is not None)

    def state_dict(self) -> dict[str, Tensor]:
        """What a checkpoint saves: the policy, the last review, and the decisions that the evidence consists of."""
        found = self.deviation
        record = {
            "assets": self._assets,
            "reviewed": self._reviewed,
            "deviation": None if found is None else [found.value, found.growth, found.error, found.years],
        }
        days = np.array(list(self._decisions), dtype="datetime64[D]").astype(np.int64)
        pairs = np.array(list(self._decisions.values()), dtype=np.float64)  # [K, 2, A]
        return {
            "policy": _from_bytes(self.policy.to_bytes()),
            "record": _from_bytes(json.dumps(record).encode()),
            "days": torch.from_numpy(days),
            "decisions": torch.from_numpy(pairs),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Become the agent that was saved."""
        record = json.loads(_to_bytes(state["record"]))
        self.policy = SharedPolicy.from_bytes(_to_bytes(state["policy"]))
        self.deviation = None if record["deviation"] is None else Deviation(*record["deviation"])
        self._assets, self._reviewed = tuple(record["assets"]), int(record["reviewed"])
        days = state["days"].numpy().astype("datetime64[D]")
        pairs = state["decisions"].numpy()
        self._decisions = {day: (ours, theirs) for day, (ours, theirs) in zip(days, pairs, strict=True)}

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        """None, since nothing is trained."""
        return ()

    def decide(self, history: Market, held: Array) -> Array:
        """Weights [A] at the last close; what is held makes no difference."""
        found = self.review(history)
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


def _from_bytes(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _to_bytes(tensor: Tensor) -> bytes:
    return tensor.numpy().tobytes()
