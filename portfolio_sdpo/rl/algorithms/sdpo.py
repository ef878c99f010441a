"""SDPO, the paper's Algorithm 1: PPO's clipped objective, one log barrier per risk constraint, quantile critics.

    for k = 0, 1, …
        B ← run policy π_θ                                   (trainer)
        update the quantile critics by regression on B       `CriticBank.fit`
        ρ_i, ∇ρ_i from the critics' laws                     `assess` (score), `Pathwise`, or without critics
                                                             `assess_counterfactual`, `assess_trajectory`
        θ ← ascend  J_PPO(θ) + Σ_i ln(slack_i(θ)) / η_i      `Ipo.update`

What makes it SDPO and not IPO: the critics carry whole laws, so ρ_i may be any risk measure, also as the objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from gymnasium import spaces
from pydantic import Field

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.trunk import ObservationCodec
from portfolio_sdpo.risk import RiskMeasure
from portfolio_sdpo.rl.advantage import Grid
from portfolio_sdpo.rl.algorithms.base import Metrics, Problem
from portfolio_sdpo.rl.algorithms.counterfactual import assess_counterfactual
from portfolio_sdpo.rl.algorithms.ipo import Ipo, IpoSettings
from portfolio_sdpo.rl.algorithms.pathwise import Pathwise
from portfolio_sdpo.rl.algorithms.ppo import Reading
from portfolio_sdpo.rl.algorithms.trajectory import assess_trajectory
from portfolio_sdpo.rl.critics import CriticSettings, Valuation
from portfolio_sdpo.rl.risk_advantage import Assessment, assess
from portfolio_sdpo.rl.rollout import Rollout


class SdpoSettings(IpoSettings):
    """IPO's, and how laws become risks and gradients."""

    kind: Literal["sdpo"] = "sdpo"  # type: ignore[assignment]
    critic: CriticSettings = CriticSettings(kind="quantile")
    estimator: Literal["score", "pathwise", "counterfactual", "trajectory"] = "score"
    """How ∇ρ of a non-linear measure is estimated: by risk advantages, through critics that see the action, (price
    paths only) against what the policy's most likely action would have earned, or from whole trajectories. The last two
    have no use for critics."""
    risk_lambda: float = Field(default=0.9, ge=0, le=1)
    """λ of the risk advantages."""
    risk_atoms: int = Field(default=32, ge=2)
    """Quantiles by which laws are represented when risks and advantages are computed."""
    partners: int = Field(default=32, ge=1)
    """Episodes over whose cumulated signal a risk advantage is averaged."""
    pooled: bool = True
    """Whether risk advantages are averaged over the batch's cumulated signals or conditioned on each episode's own."""


class Sdpo(Ipo):
    """An interior-point method for any risk measure."""

    accepts_nonlinear = True
    settings: SdpoSettings

    def __init__(
        self, settings: SdpoSettings, problem: Problem, codec: ObservationCodec, action_space: spaces.Space[Any]
    ) -> None:
        super().__init__(settings, problem, codec, action_space)
        self.atoms = settings.risk_atoms
        self.pathwise: Pathwise | None = None
        nonlinear = [index for index, item in enumerate(problem.constraints) if not item.measure.linear]
        if settings.critic.kind == "mean" and nonlinear:
            label = problem.constraints[nonlinear[0]].measure.label
            raise SettingsError(f"{settings.kind}: mean critics know nothing of {label}; use quantile critics.")
        if settings.estimator == "counterfactual" and any(item.signal != "reward" for item in problem.constraints):
            raise SettingsError("estimator: counterfactual knows only the reward of other weights; take score.")
        if settings.estimator in ("counterfactual", "trajectory") and settings.credit_discount is not None:
            raise SettingsError(f"credit_discount: {settings.estimator} has no critics to read it; leave it out.")
        if settings.estimator == "pathwise":
            self.pathwise = Pathwise(self, codec, nonlinear, settings.critic) if nonlinear else None

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return [*super().optimisers(), *([self.pathwise.critics.optimiser] if self.pathwise else [])]

    def observe(self, rollout: Rollout, generator: torch.Generator) -> Reading:
        if self.settings.estimator in ("score", "pathwise"):
            return super().observe(rollout, generator)

        def of(measure: RiskMeasure, key: tuple[str, float]) -> Assessment:
            if self.settings.estimator == "counterfactual":
                return assess_counterfactual(measure, key[1], rollout)
            return assess_trajectory(measure, key, rollout, self.settings.partners)

        objective = of(self.problem.objective, self.objective_key)
        risks = [of(item.measure, key) for item, key in zip(self.problem.constraints, self.keys, strict=True)]
        return Reading(Grid(rollout), objective, risks, self.risk_metrics(rollout, objective, risks))

    def improve(
        self,
        rollout: Rollout,
        grid: Grid,
        objective: Assessment,
        risks: Sequence[Assessment],
        prices: Sequence[float],
        generator: torch.Generator,
    ) -> Metrics:
        if self.pathwise is None:
            return super().improve(rollout, grid, objective, risks, prices, generator)
        by_score = [0.0 if index in self.pathwise.constraints else price for index, price in enumerate(prices)]
        advantage = self.combine(rollout, objective, risks, by_score)
        return self.ascend(rollout, advantage, generator, self.pathwise.barriers(rollout, grid, prices, generator))

    def assess(
        self, measure: RiskMeasure, key: tuple[str, float], rollout: Rollout, grid: Grid, valuation: Valuation
    ) -> Assessment:
        settings, (signal, discount) = self.settings, key
        lam = settings.gae_lambda if measure.linear else settings.risk_lambda
        return assess(
            measure,
            rollout.signals[signal],
            discount,
            rollout,
            grid,
            valuation,
            lam,
            settings.partners,
            settings.pooled,
        )
