"""The learning strategy: before a decision it trains on scenarios of what is known by then, then decides.

Scenarios are drawn anew for every update from trailing history up to the decision day, the policy is the one of the
decision before, trained on. It promises the CVaR limit on its own scenarios; `shield` checks that promise separately.
The limit is on simple returns; training bounds the CVaR of log growth by ln(1 + bound), which is on the safe side: the
mean of a tail's growth is at least the exponential of its mean log growth.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from pydantic import Field

from portfolio_sdpo.backtest.shield import CvarLimit
from portfolio_sdpo.envs.portfolio.market import Array, Market, Mask
from portfolio_sdpo.envs.portfolio.scenarios import Kind, Replay, Resample, Scenarios, window_paths
from portfolio_sdpo.risk import Constraint, CVaR
from portfolio_sdpo.risk.constraint import EtaSchedule
from portfolio_sdpo.rl.algorithms.base import Problem
from portfolio_sdpo.rl.analytic import Analytic, AnalyticSettings
from portfolio_sdpo.rl.rollout import torch_generator
from portfolio_sdpo.settings import Settings


class AgentSettings(Settings):
    """What the agent may risk, what it trains on, and for how long."""

    limit: CvarLimit = CvarLimit()
    """Its horizon is also the length of the scenarios."""
    scenarios: Kind = "bootstrap"
    """`bootstrap` resamples trailing history, `window` replays the last sessions as they were (the paper's)."""
    history: int | None = Field(default=504, ge=2)
    """Sessions that bootstrapped scenarios are drawn from; None: all that there are."""
    block: float | None = Field(default=1.0, ge=1)
    """Mean length of a block of the bootstrap; None: chosen from the data. With blocks a recurrent policy learns the
    days by heart: it recognises one and knows what came after it, in the scenarios and nowhere else."""
    paths: int = Field(default=512, ge=2)
    """Scenarios per update."""
    first: int = Field(default=800, ge=1)
    """Updates before the first decision."""
    further: int = Field(default=20, ge=0)
    """Updates before every further decision."""
    every: int = Field(default=5, ge=1)
    """Sessions from one decision to the next."""
    eta: tuple[float, float] = (500.0, 20_000.0)
    """η at the first update and from the first decision on: 1/η is in units of log growth over the horizon."""
    learner: AnalyticSettings = AnalyticSettings(smoothing=0.3, anneal=800)
    fee: float = Field(default=0.0, ge=0, lt=1)
    """Share of what is traded that training reckons with."""

    def problem(self) -> Problem:
        """Growth under the limit."""
        constraint = Constraint(
            signal="reward",
            measure=CVaR(alpha=self.limit.alpha),
            sense=">=",
            bound=math.log1p(self.limit.bound),
            eta=EtaSchedule(start=self.eta[0], end=self.eta[1], iterations=self.first),
        )
        return Problem(discount=1.0, constraints=(constraint,))


class Agent:
    """A `Strategy` that learns; starts all in cash."""

    def __init__(self, settings: AgentSettings | None = None, seed: int = 0, name: str = "sdpo") -> None:
        self.settings = settings or AgentSettings()
        self.seed = seed
        self.name = name
        self.every = self.settings.every
        self.trace: list[dict[str, Any]] = []
        """A row for every update: date, iteration, objective, risk, bound, slack, regime."""
        self._learner: Analytic | None = None

    def decide(self, history: Market, held: Array) -> Array:
        """Train on what is known, then the weights [A] for what comes."""
        if self._learner is None:
            with torch.random.fork_rng():
                torch.manual_seed(self.seed)
                self._learner = Analytic(
                    self.settings.learner, self.settings.problem(), len(history.assets), self.settings.fee
                )
            updates = self.settings.first
        else:
            updates = self.settings.further
        constraint = self._learner.problem.constraints[0]
        scenarios = self._scenarios(history)
        for number in range(updates):
            draws = np.random.SeedSequence([self.seed, len(history) - 1, number])
            rng = np.random.default_rng(draws)
            rows = scenarios.draw(rng, scenarios.choose(rng, scenarios.paths or self.settings.paths))
            row = self._learner.update(
                *_tensors(scenarios.relatives[rows], scenarios.listed[rows]), torch_generator(draws)
            )
            self.trace.append(
                {
                    "date": str(history.dates[-1]),
                    "iteration": int(self._learner.updates),
                    "objective": row["objective"],
                    "risk": row["risk_0"],
                    "bound": constraint.bound,
                    "slack": row["slack_0"],
                    "regime": row["regime_0"],
                }
            )
        return self._weights(history, held, scenarios.listed[-1])

    def _scenarios(self, history: Market) -> Scenarios:
        """What the updates before a decision draw from."""
        t, window = len(history) - 1, self.settings.limit.horizon
        if self.settings.scenarios == "window":
            return Replay.of_paths(window_paths(history, t, window))
        return Resample.of(history, t, window, self.settings.block, self.settings.history)

    def _weights(self, history: Market, held: Array, known: Mask) -> Array:
        """What the policy holds after the last sessions; stocks that scenarios do not know [A] stay out."""
        assert self._learner is not None
        window = self.settings.limit.horizon
        listed = history.listed[-window:] & known
        relatives = np.where(listed, history.relatives[-window:], 1.0)
        now = torch.as_tensor(held, dtype=torch.float32)
        weights = self._learner.weights(*_tensors(relatives, listed), now).double().numpy()
        return np.asarray(weights / weights.sum())


def _tensors(relatives: Array, listed: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.as_tensor(relatives, dtype=torch.float32), torch.as_tensor(np.array(listed))
