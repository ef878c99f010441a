"""PD-SDPO: SDPO's critics, risk advantages and clipped surrogate, but dual ascent in the place of the barrier.

It differs from SDPO in one formula, the price of a unit of risk: not 1 / (η · slack) but a multiplier

    λ_i ← clip(λ_i − rate · slack_i, 0, λ_max),

fed by the same running estimate. So it shows what the barrier contributes and what the critics do: a multiplier learns
of a bound only by breaking it, and needs no feasible start. Not in the paper, whose primal-dual rivals have no critics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from gymnasium import spaces

from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.rl.algorithms.base import Algorithm, AlgorithmSettings, Problem, build_policy
from portfolio_sdpo.rl.algorithms.multiplier import MultiplierSettings
from portfolio_sdpo.rl.algorithms.pricing import ConstraintMonitor, MultiplierPricing
from portfolio_sdpo.rl.algorithms.sdpo import SdpoSettings, make_estimator
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.rollout import Rollout


class PdSdpoSettings(MultiplierSettings, SdpoSettings):
    """SDPO's, and the time scale of the multipliers; a constraint's η and margin are the barrier's and not read."""

    kind: Literal["pd-sdpo"] = "pd-sdpo"  # type: ignore[assignment]


class PdSdpo(Algorithm):
    """Primal-dual with distributional critics."""

    settings_type: ClassVar[type[AlgorithmSettings]] = PdSdpoSettings
    accepts_nonlinear = True

    def __init__(
        self, settings: PdSdpoSettings, problem: Problem, codec: ObservationCodec, action_space: spaces.Space[Any]
    ) -> None:
        super().__init__(settings, problem, build_policy(settings.actor, codec, action_space))
        self.estimator = make_estimator(settings, problem, codec, self.policy)
        self.register_critics(self.estimator)
        monitor = ConstraintMonitor(self, problem.constraints, settings.smoothing, settings.phase_one)
        self.pricing = MultiplierPricing(self, monitor, settings)
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
