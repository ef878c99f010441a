"""The `counterfactual` estimator: each action against the policy's most likely one, all else as it was.

Where what follows does not depend on the action (price paths, traded for free) the return with one step's action
replaced by the mode is known exactly. It does not depend on that step's action, so it is an unbiased baseline, and no
critic is needed: the risk advantage of step t is u(R) − u(R − γ^t (r_t − r_t^mode)), with u the influence function of ρ
at the distribution of the batch's returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.risk import RiskMeasure
from portfolio_sdpo.rl.estimators.base import Assessment, Direction, RiskEstimate, ShadowPrices, Valuations
from portfolio_sdpo.rl.estimators.score import LEAST_WEIGHT, combine_advantages, log_risks
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.rollout import Rollout

if TYPE_CHECKING:
    from portfolio_sdpo.rl.algorithms.base import Problem


class CounterfactualEstimator:
    """Risks from the batch's own returns of the reward, advantages against the mode; no critics."""

    critics: None = None

    def __init__(self, problem: Problem) -> None:
        if any(constraint.signal != "reward" for constraint in problem.constraints):
            raise SettingsError("estimator: counterfactual knows only the reward of other weights; choose score.")
        self.problem = problem
        self.budget_keys = problem.budget_keys()

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return []

    def fit_critics(self, rollout: Rollout, generator: torch.Generator) -> tuple[Valuations, LogRow]:
        return {}, {}

    def assess(self, rollout: Rollout, valuations: Valuations) -> Assessment:
        objective = estimate_counterfactual(self.problem.objective, self.problem.discount, rollout)
        risks = [
            estimate_counterfactual(constraint.measure, discount, rollout)
            for constraint, (_, discount) in zip(self.problem.constraints, self.budget_keys, strict=True)
        ]
        return Assessment(objective, risks, log_risks(self.problem, self.budget_keys, rollout, objective, risks))

    def combine(
        self, rollout: Rollout, assessment: Assessment, prices: ShadowPrices, generator: torch.Generator
    ) -> Direction:
        return Direction(combine_advantages(self.problem, rollout, assessment, prices))


def estimate_counterfactual(measure: RiskMeasure, discount: float, rollout: Rollout) -> RiskEstimate:
    """ρ of Σ_t γ^t reward_t over the batch's episodes, and its advantage."""
    if "reward_of_mode" not in rollout.signals:
        raise SettingsError(
            "estimator: counterfactual is for price paths, which tell what other weights would have earned."
        )
    returns = rollout.returns("reward", discount)
    risk, error = measure.estimate(returns)
    # [n]: what the action earned beyond the mode
    gained = rollout.signals["reward"] - rollout.signals["reward_of_mode"]
    advantage = gained
    if not measure.linear:
        weight = discount ** rollout.step.to(gained.dtype)
        utility, total = measure.influence(returns), returns[rollout.episode]
        advantage = (utility(total) - utility(total - weight * gained)) / weight.clamp_min(LEAST_WEIGHT)
    return RiskEstimate(risk, error, plug_in=risk, advantage=advantage)
