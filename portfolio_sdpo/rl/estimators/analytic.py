"""The `analytic` estimator: where the reward is a known, smooth function of the actions, gradients go through it.

If what follows does not depend on the actions either (price paths), the return of every episode is differentiable in
the policy's parameters θ, and so is any risk measure of the returns. SDPO then ascends

    E[R(θ)] + Σ_i ln(slack_i(ρ_i(R(θ)))) / η_i

without critics, advantages or exploration. One batch is too few episodes for a tail, so the risk that sets the price is
a running estimate. A plain running mean would lag behind the policy, and the price would swing. Here the policy of the
update before can be evaluated on the same batch, so the running estimate is moved by what the last step changed, and
only its noise is averaged (the recursion of STORM, Cutkosky and Orabona 2019):

    estimate ← ρ(θ) + (1 − smoothing) · (estimate − ρ(θ of the update before)),   both ρ on the newest batch.

That removes the policy's step and not a change of the distribution that batches are drawn from: with another
distribution the estimate has to restart (`restart`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from portfolio_sdpo.errors import DivergenceError
from portfolio_sdpo.rl.estimators.base import Assessment, Direction, RiskEstimate, ShadowPrices, Valuations
from portfolio_sdpo.rl.metrics import LogRow

if TYPE_CHECKING:
    from portfolio_sdpo.rl.algorithms.base import Problem

RewardModel = Callable[[Any, Any], Tensor]
"""A policy and a batch of P episodes of L steps → rewards [P, L], differentiable in the policy's parameters."""


class AnalyticEstimator:
    """Risks, and their gradients, of a policy whose rewards are known in closed form; no critics.

    state: the module whose buffers hold the running estimates, so that checkpoints save them.
    smoothing: weight of the newest batch in the running estimate of each risk.
    """

    critics: None = None

    def __init__(
        self, state: nn.Module, problem: Problem, policy: nn.Module, rewards: RewardModel, smoothing: float
    ) -> None:
        self._state: Any = state
        self.problem = problem
        self.policy = policy
        self.rewards = rewards
        self.smoothing = smoothing
        self.discounts = [discount for _, discount in problem.budget_keys()]
        count = len(problem.constraints)
        state.previous = copy.deepcopy(policy).requires_grad_(False)
        state.register_buffer("risk", torch.zeros(count, dtype=torch.float64))
        state.register_buffer("risk_variance", torch.zeros(count, dtype=torch.float64))
        # Not saved: after a checkpoint comes another day, and with it a restart, or `restart` is told the number.
        self._batches = 0

    def restart(self, batches: int = 0) -> None:
        """Batches come from another distribution from now on, or, after a checkpoint, so many came from this one."""
        self._batches = batches

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return []

    def fit_critics(self, batch: Any, generator: torch.Generator) -> tuple[Valuations, LogRow]:
        return {}, {}

    def assess(self, batch: Any, valuations: Valuations) -> Assessment:
        # [P, L], of the policy with its gradient, and of the policy before the last update
        rewards = self.rewards(self.policy, batch)
        with torch.no_grad():
            before = self.rewards(self._state.previous, batch)
        value = self.problem.objective(sum_rewards(rewards, self.problem.discount))
        # one [P] per constraint
        returns, returns_before = (
            [sum_rewards(each, discount) for discount in self.discounts] for each in (rewards, before)
        )
        errors = self._track(returns, returns_before)
        objective = RiskEstimate(value.item(), math.nan, plug_in=value.item(), advantage=value)
        risks = [
            RiskEstimate(estimate, error, plug_in=estimate, advantage=constraint.measure(each))
            for constraint, each, estimate, error in zip(
                self.problem.constraints, returns, self._state.risk.tolist(), errors, strict=True
            )
        ]
        log: LogRow = {"objective": objective.estimate}
        return Assessment(objective, risks, log | {f"risk_{i}": risk.estimate for i, risk in enumerate(risks)})

    def combine(
        self, batch: Any, assessment: Assessment, prices: ShadowPrices, generator: torch.Generator
    ) -> Direction:
        total = assessment.objective.advantage
        for constraint, risk, price in zip(self.problem.constraints, assessment.risks, prices.values, strict=True):
            total = total + price * constraint.slack(risk.advantage)
        if not math.isfinite(total.item()):
            raise DivergenceError("the return of an episode is not finite: lower the learning rate.")
        torch._foreach_copy_(list(self._state.previous.parameters()), list(self.policy.parameters()))
        return Direction(total)

    def _track(self, returns: Sequence[Tensor], before: Sequence[Tensor]) -> list[float]:
        """Move the running estimates by returns [P] of every constraint; the standard errors after it.

        before: the returns of the policy before the last update, of the same episodes.
        """
        self._batches += 1
        gain = max(self.smoothing, 1.0 / self._batches)
        risks, variance = self._state.risk, self._state.risk_variance
        for index, constraint in enumerate(self.problem.constraints):
            risk, error = constraint.measure.estimate(returns[index].detach())
            then, _ = constraint.measure.estimate(before[index])
            risks[index] = risk + (1 - gain) * (risks[index] - then)
            variance[index] = (1 - gain) ** 2 * variance[index] + gain**2 * error**2
        errors: list[float] = variance.sqrt().tolist()
        return errors


def sum_rewards(rewards: Tensor, discount: float) -> Tensor:
    """Σ_t γ^t reward_t of every episode: [P, L] → [P].

    >>> sum_rewards(torch.ones(2, 3), 0.5)
    tensor([1.7500, 1.7500])
    """
    return (rewards * discount ** torch.arange(rewards.shape[1])).sum(-1)
