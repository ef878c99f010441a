"""IPO (Liu et al. 2019): PPO's surrogate plus a log barrier on every expected cost (eq. 8 of the paper).

The barrier's gradient is −∇ρ / (η · slack), so each iteration maximises the clipped surrogate of A − Σ_i price_i · A_i,
where price_i = 1 / (η · slack_i) is the shadow price and A_i the advantage of cost i (its sign turned for constraints
of the form ρ ≥ bound).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from gymnasium import spaces
from pydantic import Field

from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.rl.algorithms.base import Algorithm, AlgorithmSettings, Problem, build_policy
from portfolio_sdpo.rl.algorithms.ppo import PpoSettings
from portfolio_sdpo.rl.algorithms.pricing import BarrierPricing, ConstraintMonitor
from portfolio_sdpo.rl.estimators.score import ScoreEstimator
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.rollout import Rollout


class IpoSettings(PpoSettings):
    """PPO's, and what the barrier needs."""

    kind: Literal["ipo"] = "ipo"  # type: ignore[assignment]
    smoothing: float = Field(default=0.2, gt=0, le=1)
    """Weight of the newest estimate in the running estimate of each risk that feeds the barrier."""
    phase_one: int = Field(default=0, ge=0)
    """Iterations allowed to drive the worst slack above zero before the objective counts; 0: the start is feasible."""


class Ipo(Algorithm):
    """An interior-point method: it starts inside the constraints and pays ever more for coming near them."""

    settings_type: ClassVar[type[AlgorithmSettings]] = IpoSettings

    def __init__(
        self, settings: IpoSettings, problem: Problem, codec: ObservationCodec, action_space: spaces.Space[Any]
    ) -> None:
        super().__init__(settings, problem, build_policy(settings.actor, codec, action_space))
        self.estimator = ScoreEstimator(
            problem, codec, settings.critic, gae_lambda=settings.gae_lambda, credit_discount=settings.credit_discount
        )
        self.register_critics(self.estimator)
        monitor = ConstraintMonitor(self, problem.constraints, settings.smoothing, settings.phase_one)
        self.pricing = BarrierPricing(monitor)
        self.ascent = settings.make_ascent(self.policy)

    def update(self, rollout: Rollout, iteration: int, generator: torch.Generator) -> LogRow:
        valuations, critic_log = self.estimator.fit_critics(rollout, generator)
        assessment = self.estimator.assess(rollout, valuations)
        prices = self.pricing.set_prices(assessment.risks, iteration)
        direction = self.estimator.combine(rollout, assessment, prices, generator)
        ascent_log = self.ascent.ascend(rollout, direction, iteration, generator)
        return critic_log | assessment.log | prices.log | ascent_log

    def restart_estimates(self) -> None:
        self.pricing.restart()

    def finish(self, iterations: int) -> None:
        self.pricing.finish(iterations)

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return [*self.ascent.optimisers(), *self.estimator.optimisers()]
