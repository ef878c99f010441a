"""PPO (Schulman et al. 2017): the clipped surrogate, no constraint. The unsafe baseline of the paper (eq. 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from gymnasium import spaces
from pydantic import Field

from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.rl.algorithms.ascent import ClippedAscent
from portfolio_sdpo.rl.algorithms.base import (
    ActorCriticSettings,
    Algorithm,
    AlgorithmSettings,
    Problem,
    build_policy,
    refuse_mean_critics,
)
from portfolio_sdpo.rl.estimators.base import Direction
from portfolio_sdpo.rl.estimators.score import ScoreEstimator
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.rollout import Rollout


class PpoSettings(ActorCriticSettings):
    """The clipped surrogate and how long it is ascended."""

    kind: Literal["ppo"] = "ppo"
    clip: float = Field(default=0.2, gt=0, lt=1)
    """ε: how far the ratio of new to old probability may leave 1 before its gradient is cut."""
    epochs: int = Field(default=5, ge=1)
    minibatches: int = Field(default=2, ge=1)
    entropy: float = Field(default=0.0, ge=0)
    """Weight of an entropy bonus."""


class Ppo(Algorithm):
    """Maximise E[min(ω A, clip(ω) A)], ω the ratio of new to old probability."""

    settings_type: ClassVar[type[AlgorithmSettings]] = PpoSettings
    accepts_nonlinear = True  # it logs any constraint and obeys none

    def __init__(
        self, settings: PpoSettings, problem: Problem, codec: ObservationCodec, action_space: spaces.Space[Any]
    ) -> None:
        super().__init__(settings, problem, build_policy(settings.actor, codec, action_space))
        refuse_mean_critics(settings, problem)
        self.estimator = ScoreEstimator(
            problem, codec, settings.critic, gae_lambda=settings.gae_lambda, credit_discount=settings.credit_discount
        )
        self.register_critics(self.estimator)
        self.ascent = ClippedAscent(self.policy, settings)

    def update(self, rollout: Rollout, iteration: int, generator: torch.Generator) -> LogRow:
        valuations, critic_log = self.estimator.fit_critics(rollout, generator)
        assessment = self.estimator.assess(rollout, valuations)
        direction = Direction(assessment.objective.advantage)
        return critic_log | assessment.log | self.ascent.ascend(rollout, direction, iteration, generator)

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return [*self.ascent.optimisers(), *self.estimator.optimisers()]
