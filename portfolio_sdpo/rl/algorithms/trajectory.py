"""Risks and score weights from whole trajectories, without a critic: PD-CVaR's, PD-VAR's, SDPO's `trajectory`.

With u the influence function of ρ at the current law, the gradient of ρ is E[∇ln P(trajectory) · u(Y)], and

    ∇ρ = E[Σ_t ∇ln π(a_t | s_t) · w_t(u)],       w_t(u) = u(Y) − baseline_t.

The baseline may depend on whatever happened before a_t. `batch` is the mean of u(Y) over the batch's episodes.
`history` is the mean of u(c_t + R_t), with c_t what the episode itself has cumulated before t, and R_t what each of the
batch's episodes cumulates from t on: for the expectation, w_t is then the reward-to-go less its mean at the same step,
and other u get the same reduction of variance in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.risk import RiskMeasure
from portfolio_sdpo.rl.advantage import Grid, cumulated_before
from portfolio_sdpo.rl.risk_advantage import LEAST_WEIGHT, Assessment, empirical
from portfolio_sdpo.rl.rollout import Rollout

InfluenceFunction = Callable[[Tensor], Tensor]
"""u of a measure at the law that the algorithm's statistic stands for: values of any shape to values of that shape."""
Baseline = Literal["history", "batch"]


def whole_episodes(rollout: Rollout, name: str) -> Rollout:
    """Only the episodes that the environment ended; `name` is who needs them, for the error where there is none."""
    rollout = rollout.whole()
    if not rollout.ended.any():
        raise SettingsError(f"{name}: learns from whole episodes, but none ends within `steps`: allow more steps.")
    return rollout


def assess_trajectory(measure: RiskMeasure, key: tuple[str, float], rollout: Rollout, partners: int) -> Assessment:
    """ρ of the batch's returns, and its advantage on the footing of the reward's; none where the batch cuts an episode.

    u is taken at the law of the batch's own returns, pooled over initial states.
    """
    whole = whole_episodes(rollout, "estimator trajectory")
    returns = whole.returns(*key)
    risk, error = empirical(measure, returns)
    influence = measure.influence(returns)
    weights = score_weights(whole, Grid(whole), key, influence, "history", partners)
    advantage = torch.zeros(len(rollout), dtype=weights.dtype)
    counted = rollout.ended[rollout.ends][rollout.episode]
    advantage[counted] = weights / (key[1] ** whole.step.to(weights.dtype)).clamp_min(LEAST_WEIGHT)
    return Assessment(risk, error, plug_in=risk, advantage=advantage)


def score_weights(
    rollout: Rollout,
    grid: Grid,
    key: tuple[str, float],
    influence: InfluenceFunction,
    baseline: Baseline,
    partners: int,
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
    if baseline == "history":
        ahead = torch.where(compared, total - before, 0.0)
        weight = weight - _expected(influence, before, ahead, alive, partners)
    weight = weight - torch.where(compared, (alive * weight).sum(1, keepdim=True) / count, 0.0)
    # Each episode is part of its own baseline, which takes 1/count off its weight.
    return grid.flatten(weight * torch.where(compared, count / (count - 1), 1.0))


def _expected(influence: InfluenceFunction, before: Tensor, ahead: Tensor, alive: Tensor, partners: int) -> Tensor:
    """Mean of u(c_t + R_t) over the R_t of the batch's episodes, for every episode's own c_t, all [L, E]."""
    episodes = before.shape[1]
    chosen = torch.linspace(0, episodes - 1, min(partners, episodes)).round().long()
    share = alive[:, chosen].clamp_min(1e-6)
    share = share / share.sum(1, keepdim=True)
    mean = torch.zeros_like(before)
    for index, weight in zip(chosen.tolist(), share.unsqueeze(-1).unbind(1), strict=True):
        mean += weight * influence(before + ahead[:, index : index + 1])
    return mean
