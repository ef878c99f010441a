"""What PD-CVaR and PD-VAR share: likelihood-ratio ascent on a Lagrangian, whole trajectories, no critic.

    L(θ, λ) = E[Y] − Σ_i λ_i (ρ_i(Y_i) − d_i)          (signs turned for constraints of the form ρ_i ≥ d_i)

Three time scales: the statistic that ρ_i needs (a quantile, moments) is the fastest, θ follows the gradient of L, the
multipliers λ_i rise as long as their constraints are broken. With u_i the influence function of ρ_i at the current law,

    ∇L = E[Σ_t ∇ln π(a_t | s_t) · (w_t(y) − Σ_i λ_i w_t(u_i))],

w_t(u) being u(Y) less a baseline (`trajectory.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from pydantic import Field
from torch import Tensor

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.trunk import ObservationCodec
from portfolio_sdpo.risk import Constraint, RiskMeasure
from portfolio_sdpo.rl.advantage import Grid
from portfolio_sdpo.rl.algorithms.base import Algorithm, AlgorithmSettings, Metrics, Problem, policy_metrics, set_rate
from portfolio_sdpo.rl.algorithms.multiplier import MultiplierSettings
from portfolio_sdpo.rl.algorithms.trajectory import Baseline, InfluenceFunction, score_weights, whole_episodes
from portfolio_sdpo.rl.risk_advantage import empirical
from portfolio_sdpo.rl.rollout import Rollout


class PrimalDualSettings(MultiplierSettings, AlgorithmSettings):
    """Settings of PD-CVaR and PD-VAR; Adam with `actor.learning_rate` makes one step on θ per rollout."""

    baseline: Baseline = "history"
    """What is taken off each trajectory's weight: a value predicted from the episode's past, or the batch's mean."""
    partners: int = Field(default=32, ge=1)
    """Episodes whose remaining returns make up the `history` baseline."""


class PrimalDual(Algorithm):
    """Learns from whole episodes: those that the batch cuts do not count."""

    accepts_nonlinear = True
    settings: PrimalDualSettings
    bounds: ClassVar[type[RiskMeasure]]
    """The one kind of measure whose constraints are accepted."""

    multiplier: Tensor

    def __init__(
        self, settings: PrimalDualSettings, problem: Problem, codec: ObservationCodec, action_space: spaces.Space[Any]
    ) -> None:
        super().__init__(settings, problem, codec, action_space)
        if not problem.objective.linear:
            raise SettingsError(f"{settings.kind}: maximises only the expectation, not {problem.objective.label}.")
        for constraint in problem.constraints:
            if not isinstance(constraint.measure, self.bounds):
                raise SettingsError(
                    f"{settings.kind}: bounds only the {self.bounds.model_fields['kind'].default}, not "
                    f"{constraint.measure.label}; use sdpo for this measure."
                )
        self.keys = [(constraint.signal, problem.discount_of(constraint)) for constraint in problem.constraints]
        self.register_buffer("multiplier", settings.first_multipliers(len(self.keys)))
        self.actor_optimiser = torch.optim.Adam(
            self.policy.parameters(), lr=settings.actor.learning_rate, eps=1e-5, foreach=True
        )

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return [self.actor_optimiser]

    @abstractmethod
    def follow(self, index: int, constraint: Constraint, returns: Tensor) -> tuple[float, InfluenceFunction]:
        """ρ_i as this algorithm estimates it and u_i; moves the statistic on the fastest time scale by returns [E]."""

    def update(self, rollout: Rollout, iteration: int, generator: torch.Generator) -> Metrics:
        set_rate(self.actor_optimiser, self.settings.actor.rate(iteration))
        rollout = whole_episodes(rollout, self.settings.kind)
        grid = Grid(rollout)
        discount = self.problem.discount
        objective = rollout.returns("reward", discount).mean().item()
        metrics: Metrics = {"return": objective, "objective": objective}
        weights = self.score_weights(rollout, grid, ("reward", discount), lambda y: y)
        slacks = []
        for index, (constraint, key) in enumerate(zip(self.problem.constraints, self.keys, strict=True)):
            returns = rollout.returns(*key)
            risk, influence = self.follow(index, constraint, returns.double())
            sampled, standard_error = empirical(constraint.measure, returns)
            # Without the constraint's confidence: the multiplier integrates the slack, and noise averages out there.
            slacks.append(constraint.slack(risk))
            price = float(self.multiplier[index])
            away = self.score_weights(rollout, grid, key, influence)
            weights = weights - price * constraint.sign * away
            metrics |= {
                f"risk_{index}": risk,
                f"risk_se_{index}": standard_error,
                f"risk_empirical_{index}": sampled,
                f"slack_{index}": slacks[index],
                f"price_{index}": price,
            }
        self.ascend(rollout, weights)
        self.multiplier = self.settings.next_multipliers(self.multiplier, slacks)
        return metrics | policy_metrics(self.policy, rollout)

    def score_weights(
        self, rollout: Rollout, grid: Grid, key: tuple[str, float], influence: InfluenceFunction
    ) -> Tensor:
        """w_t(u) of every transition, [n]."""
        return score_weights(rollout, grid, key, influence, self.settings.baseline, self.settings.partners)

    def ascend(self, rollout: Rollout, weights: Tensor) -> None:
        """One step along the mean over episodes of Σ_t ∇ln π(a_t | s_t) · weight_t."""
        log_prob = self.policy.head.log_prob(self.policy(rollout.observation), rollout.action)
        loss = -(log_prob * weights).sum() / rollout.episodes
        self.actor_optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.actor_optimiser.step()
