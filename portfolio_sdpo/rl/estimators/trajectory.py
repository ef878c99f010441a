"""The `trajectory` estimator: risks and score weights from whole trajectories, without a critic.

With u the influence function of ρ at the current distribution, the gradient of ρ is E[∇ln P(trajectory) · u(Y)], and

    ∇ρ = E[Σ_t ∇ln π(a_t | s_t) · w_t(u)],       w_t(u) = u(Y) − baseline_t.

The baseline may depend on anything that happened before a_t. `batch` is the mean of u(Y) over the batch's episodes.
`history` is the mean of u(c_t + R_t), with c_t what the episode itself has cumulated before t, and R_t what each of the
batch's episodes cumulates from t on: for the expectation, w_t is then the reward-to-go less its mean at the same step,
and other u get the same reduction of variance in the same way. PD-CVaR and PD-VAR use the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from portfolio_sdpo.risk import RiskMeasure
from portfolio_sdpo.rl.estimators.base import Assessment, Direction, RiskEstimate, ShadowPrices, SignalKey, Valuations
from portfolio_sdpo.rl.estimators.score import LEAST_WEIGHT, combine_advantages, log_risks, whole_episodes
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.rollout import Rollout

if TYPE_CHECKING:
    from portfolio_sdpo.rl.algorithms.base import Problem

InfluenceFunction = Callable[[Tensor], Tensor]
"""u of a measure at the distribution that the algorithm's statistic stands for; values of any shape to that shape."""
Baseline = Literal["history", "batch"]


class TrajectoryEstimator:
    """Risks from the batch's own returns, advantages from whole episodes; no critics."""

    critics: None = None

    def __init__(self, problem: Problem, partners: int) -> None:
        self.problem = problem
        self.partners = partners
        self.budget_keys = problem.budget_keys()

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return []

    def fit_critics(self, rollout: Rollout, generator: torch.Generator) -> tuple[Valuations, LogRow]:
        return {}, {}

    def assess(self, rollout: Rollout, valuations: Valuations) -> Assessment:
        objective = estimate_by_trajectories(
            self.problem.objective, ("reward", self.problem.discount), rollout, self.partners
        )
        risks = [
            estimate_by_trajectories(constraint.measure, key, rollout, self.partners)
            for constraint, key in zip(self.problem.constraints, self.budget_keys, strict=True)
        ]
        return Assessment(objective, risks, log_risks(self.problem, self.budget_keys, rollout, objective, risks))

    def combine(
        self, rollout: Rollout, assessment: Assessment, prices: ShadowPrices, generator: torch.Generator
    ) -> Direction:
        return Direction(combine_advantages(self.problem, rollout, assessment, prices))


def estimate_by_trajectories(measure: RiskMeasure, key: SignalKey, rollout: Rollout, partners: int) -> RiskEstimate:
    """ρ of the batch's returns, and its advantage on the footing of the reward's; none where the batch cuts an episode.

    u is taken at the distribution of the batch's own returns, pooled over initial states.
    """
    whole = whole_episodes(rollout, "estimator trajectory")
    returns = whole.returns(*key)
    risk, error = measure.estimate(returns)
    weights = score_weights(whole, key, measure.influence(returns), "history", partners)
    advantage = torch.zeros(len(rollout), dtype=weights.dtype)
    counted = rollout.ended[rollout.ends][rollout.episode]
    advantage[counted] = weights / (key[1] ** whole.step.to(weights.dtype)).clamp_min(LEAST_WEIGHT)
    return RiskEstimate(risk, error, plug_in=risk, advantage=advantage)


def score_weights(
    rollout: Rollout,
    key: SignalKey,
    influence: InfluenceFunction,
    baseline: Baseline,
    partners: int,
) -> Tensor:
    """w_t(u) of every transition, [n]: what ∇ln π(a_t | s_t) is multiplied by."""
    (signal, discount), grid = key, rollout.grid
    # [L, E]: c_t, Y, and whether the episode is still under way at step t.
    before = grid.sum_before(rollout.signals[signal], discount)
    total = rollout.returns(signal, discount).expand_as(before)
    alive = grid.lay_out(torch.ones(len(rollout)))
    count = alive.sum(1, keepdim=True)
    # Without a second episode at that step there is nothing to compare with.
    compared = count > 1
    weight = influence(total)
    if baseline == "history":
        ahead = torch.where(compared, total - before, 0.0)
        weight = weight - _average_influence(influence, before, ahead, alive, partners)
    weight = weight - torch.where(compared, (alive * weight).sum(1, keepdim=True) / count, 0.0)
    # Each episode is part of its own baseline, which takes 1/count off its weight.
    return grid.flatten(weight * torch.where(compared, count / (count - 1), 1.0))


def _average_influence(
    influence: InfluenceFunction, before: Tensor, ahead: Tensor, alive: Tensor, partners: int
) -> Tensor:
    """Mean of u(c_t + R_t) over the R_t of the batch's episodes, for every episode's own c_t, all [L, E]."""
    episodes = before.shape[1]
    partner = torch.linspace(0, episodes - 1, min(partners, episodes)).round().long()
    share = alive[:, partner].clamp_min(1e-6)
    share = share / share.sum(1, keepdim=True)
    mean = torch.zeros_like(before)
    for index, weight in zip(partner.tolist(), share.unsqueeze(-1).unbind(1), strict=True):
        mean += weight * influence(before + ahead[:, index : index + 1])
    return mean
