"""What PD-CVaR and PD-VAR share: likelihood-ratio ascent on a Lagrangian, whole trajectories, no critic.

    L(θ, λ) = E[Y] − Σ_i λ_i (ρ_i(Y_i) − d_i)          (signs turned for constraints of the form ρ_i ≥ d_i)

Three time scales: the statistic that ρ_i needs (a quantile, moments) is the fastest, θ follows the gradient of L, the
multipliers λ_i rise as long as their constraints are broken. With u_i the influence function of ρ_i at the current law,
the gradient of ρ_i is E[∇ln P(trajectory) · u_i(Y_i)], and

    ∇L = E[Σ_t ∇ln π(a_t | s_t) · (w_t(y) − Σ_i λ_i w_t(u_i))],       w_t(u) = u(Y) − baseline_t.

The baseline may depend on whatever happened before a_t. `batch` is the mean of u(Y) over the batch's episodes.
`history` is the mean of u(c_t + R_t), with c_t what the episode itself has cumulated before t, and R_t what each of the
batch's episodes cumulates from t on: for the expectation, w_t is then the reward-to-go less its mean at the same step,
and other u get the same reduction of variance in the same way.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import torch
from gymnasium import spaces
from pydantic import Field
from torch import Tensor

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.nn.trunk import ObservationCodec
from portfolio_sdpo.risk import Constraint, RiskMeasure
from portfolio_sdpo.rl.advantage import Grid, cumulated_before
from portfolio_sdpo.rl.algorithms.base import Algorithm, AlgorithmSettings, Metrics, Problem, policy_metrics, set_rate
from portfolio_sdpo.rl.risk_advantage import empirical
from portfolio_sdpo.rl.rollout import Rollout

InfluenceFunction = Callable[[Tensor], Tensor]
"""u of a measure at the law that the algorithm's statistic stands for: values of any shape to values of that shape."""
Baseline = Literal["history", "batch"]


class PrimalDualSettings(AlgorithmSettings):
    """Settings of PD-CVaR and PD-VAR; Adam with `actor.learning_rate` makes one step on θ per rollout."""

    multiplier_rate: float = Field(default=0.01, gt=0)
    """Step size of the multipliers, the slowest time scale: how much a unit of violation adds to λ per iteration."""
    multiplier_start: float = Field(default=0.0, ge=0)
    """λ at the first iteration."""
    multiplier_max: float = Field(default=100.0, gt=0)
    """λ is projected onto [0, this]."""
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
        start = torch.full((len(self.keys),), settings.multiplier_start, dtype=torch.float64)
        self.register_buffer("multiplier", start.clamp(0.0, settings.multiplier_max))
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
        rollout = rollout.whole()
        if not rollout.ended.any():
            raise SettingsError(
                f"{self.settings.kind}: learns from whole episodes, but none ends within `steps`: allow more steps."
            )
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
        violation = -torch.tensor(slacks, dtype=torch.float64)
        moved = self.multiplier + self.settings.multiplier_rate * violation
        self.multiplier = moved.clamp(0.0, self.settings.multiplier_max)
        return metrics | policy_metrics(self.policy, rollout)

    def score_weights(
        self, rollout: Rollout, grid: Grid, key: tuple[str, float], influence: InfluenceFunction
    ) -> Tensor:
        """w_t(u) of every transition, [n]: what ∇ln π(a_t | s_t) is multiplied by."""
        signal, discount = key
        # [L, E]: c_t, Y, and whether the episode is still under way at step t.
        before = cumulated_before(grid, rollout, rollout.signals[signal], discount)
        total = rollout.returns(signal, discount).expand_as(before)
        alive = grid.lay_out(torch.ones(len(rollout)))
        count = alive.sum(1, keepdim=True)
        # Without a second episode at that step there is nothing to compare with.
        compared = count > 1
        weight = influence(total)
        if self.settings.baseline == "history":
            ahead = torch.where(compared, total - before, 0.0)
            weight = weight - self.expected(influence, before, ahead, alive)
        weight = weight - torch.where(compared, (alive * weight).sum(1, keepdim=True) / count, 0.0)
        # Each episode is part of its own baseline, which takes 1/count off its weight.
        return grid.flatten(weight * torch.where(compared, count / (count - 1), 1.0))

    def expected(self, influence: InfluenceFunction, before: Tensor, ahead: Tensor, alive: Tensor) -> Tensor:
        """Mean of u(c_t + R_t) over the R_t of the batch's episodes, for every episode's own c_t, all [L, E]."""
        episodes = before.shape[1]
        chosen = torch.linspace(0, episodes - 1, min(self.settings.partners, episodes)).round().long()
        share = alive[:, chosen].clamp_min(1e-6)
        share = share / share.sum(1, keepdim=True)
        mean = torch.zeros_like(before)
        for index, weight in zip(chosen.tolist(), share.unsqueeze(-1).unbind(1), strict=True):
            mean += weight * influence(before + ahead[:, index : index + 1])
        return mean

    def ascend(self, rollout: Rollout, weights: Tensor) -> None:
        """One step along the mean over episodes of Σ_t ∇ln π(a_t | s_t) · weight_t."""
        log_prob = self.policy.head.log_prob(self.policy(rollout.observation), rollout.action)
        loss = -(log_prob * weights).sum() / rollout.episodes
        self.actor_optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.actor_optimiser.step()
