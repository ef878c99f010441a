"""SDPO where the environment is known and smooth: gradients straight through the reward.

Growth is a smooth function of the weights, and prices do not depend on them. So along given price paths the return of
every path is differentiable in the policy's parameters θ, and so is any risk measure of the returns:

    θ ← ascend  E[R(θ)] + Σ_i ln(slack_i(ρ_i(R(θ)))) / η_i

without critics, advantages or exploration. The barrier's price 1 / (η · slack) comes from a running estimate of ρ_i, as
in `Ipo`: one batch of paths is too few for a tail. Such an estimate would lag behind the policy, and the price would
swing. Here the policy of the update before can be tried on the same paths, so the running estimate is moved by what the
last step changed, and only its noise is averaged (the recursion of STORM, Cutkosky and Orabona 2019):

    estimate ← ρ(θ) + (1 − smoothing) · (estimate − ρ(θ of the update before)),   both ρ on the newest paths.

That takes the policy's step out and not a change of the law that paths are drawn from: with another day's scenarios the
estimate, and the average of the weights that decisions are made with, begin anew (`renew`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from portfolio_sdpo.errors import DivergenceError
from portfolio_sdpo.portfolio.path_learner import PathLearner
from portfolio_sdpo.portfolio.policy_network import Allocation
from portfolio_sdpo.risk import Barrier, suboptimality_bound
from portfolio_sdpo.risk.constraint import slacks_of
from portfolio_sdpo.rl.algorithms.base import Metrics, Problem, set_rate
from portfolio_sdpo.rl.risk_advantage import empirical
from portfolio_sdpo.settings import Settings

HIGHEST_PRICE = 1.0
"""What a unit of slack may be worth at most, where a constraint names no margin. The barrier's tangent must be steeper
than the shadow price of the optimum, however large η grows, or the bound is not held."""


class AnalyticSettings(Settings):
    """How an allocation policy looks and learns by gradients through the reward."""

    kind: Literal["analytic"] = "analytic"
    hidden: tuple[int, int] = (64, 64)
    """Width of the LSTM and of the layer after it."""
    learning_rate: float = Field(default=1e-3, gt=0)
    anneal: int = Field(default=0, ge=0)
    """Iterations over which the learning rate falls linearly to a tenth of itself; 0 keeps it."""
    smoothing: float = Field(default=0.05, gt=0, le=1)
    """Weight of the newest paths in the running estimate of each risk."""
    betas: tuple[float, float] = (0.5, 0.9)
    """Of Adam. Leaving cash, gradients grow a thousandfold within a few updates: with the usual memory of 10 and 1,000
    updates the policy shoots past the bound and then hardly moves."""
    averaging: float = Field(default=0.98, ge=0, lt=1)
    """Decay, per update, of the running average of the weights that decisions are made with; 0 takes the newest."""

    def share(self, iteration: int) -> float:
        """Of the first learning rate, what is left at that iteration."""
        return 1 - 0.9 * min(iteration / self.anneal, 1.0) if self.anneal else 1.0


class Analytic(PathLearner):
    """An allocation policy and the rule by which a batch of price paths improves it."""

    risk: Tensor
    risk_variance: Tensor
    updates: Tensor

    def __init__(self, settings: AnalyticSettings, problem: Problem, assets: int, fee: float = 0.0) -> None:
        super().__init__()
        self.settings = settings
        self.problem = problem
        self.fee = fee
        self.policy = Allocation(assets, settings.hidden, sees_held=fee > 0)
        self.averaged = copy.deepcopy(self.policy).requires_grad_(False)
        self.previous = copy.deepcopy(self.policy).requires_grad_(False)
        # Far from its goal the policy sits in cash, where gradients are as small as the weights of the stocks.
        self.optimiser = torch.optim.Adam(
            self.policy.parameters(), lr=settings.learning_rate, betas=settings.betas, eps=1e-12
        )
        count = len(problem.constraints)
        self.register_buffer("risk", torch.zeros(count, dtype=torch.float64))
        self.register_buffer("risk_variance", torch.zeros(count, dtype=torch.float64))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        # Not saved: whoever goes on from a checkpoint goes on with another day and renews, or says how many there were.
        self._since = 0

    def renew(self) -> None:
        self._since = 0

    def go_on(self, updates: int) -> None:
        self._since = updates

    def update(self, gross_returns: Tensor, listed: Tensor, generator: torch.Generator) -> Metrics:
        """One step; nothing in it is random."""
        iteration = int(self.updates)
        set_rate(self.optimiser, self.settings.learning_rate * self.settings.share(iteration))
        rewards = log_growth(self.policy, gross_returns, listed, self.fee)
        with torch.no_grad():
            before = log_growth(self.previous, gross_returns, listed, self.fee)
        objective = self.problem.objective(_cumulated(rewards, self.problem.discount))
        discounts = [self.problem.discount_of(constraint) for constraint in self.problem.constraints]
        returns, returns_before = ([_cumulated(each, gamma) for gamma in discounts] for each in (rewards, before))
        slacks = self._track(returns, returns_before)
        metrics: Metrics = {"objective": objective.item()}
        total = objective
        for index, constraint in enumerate(self.problem.constraints):
            eta = constraint.eta_at(iteration)
            barrier = Barrier(eta=eta, margin=constraint.margin or 1 / (HIGHEST_PRICE * eta))
            price = barrier.price(slacks[index])
            total = total + price * constraint.slack(constraint.measure(returns[index]))
            metrics[f"risk_{index}"] = float(self.risk[index])
            metrics[f"slack_{index}"] = slacks[index]
            metrics[f"price_{index}"] = price
            metrics[f"regime_{index}"] = barrier.regime(slacks[index])
        metrics["suboptimality_bound"] = suboptimality_bound(self.problem.constraints, iteration)
        if not math.isfinite(total.item()):
            raise DivergenceError("the return of a price path is not finite: lower the learning rate.")
        torch._foreach_copy_(list(self.previous.parameters()), list(self.policy.parameters()))
        self.optimiser.zero_grad()
        (-total).backward()
        self.optimiser.step()
        self._average()
        return metrics

    @torch.no_grad()
    def weights(self, gross_returns: Tensor, listed: Tensor, held: Tensor) -> Tensor:
        logits = self.averaged.logits(gross_returns.unsqueeze(0), listed.unsqueeze(0))[0, -1]
        return self.averaged.weights(logits, held)

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        return [self.optimiser]

    @torch.no_grad()
    def _average(self) -> None:
        # A plain mean of the weights so far until the window is full.
        weight = max(1.0 - self.settings.averaging, 1.0 / self._since)
        torch._foreach_lerp_(list(self.averaged.parameters()), list(self.policy.parameters()), weight)

    def _track(self, returns: Sequence[Tensor], before: Sequence[Tensor]) -> list[float]:
        """Slacks after the newest returns [P] of every constraint, and those of the policy before on the same paths."""
        self.updates += 1
        self._since += 1
        gain = max(self.settings.smoothing, 1.0 / self._since)
        for index, constraint in enumerate(self.problem.constraints):
            risk, error = empirical(constraint.measure, returns[index].detach())
            then, _ = empirical(constraint.measure, before[index])
            self.risk[index] = risk + (1 - gain) * (self.risk[index] - then)
            self.risk_variance[index] = (1 - gain) ** 2 * self.risk_variance[index] + gain**2 * error**2
        errors = self.risk_variance.sqrt().tolist()
        return slacks_of(self.problem.constraints, self.risk.tolist(), errors)


def log_growth(policy: Allocation, gross_returns: Tensor, listed: Tensor, fee: float = 0.0) -> Tensor:
    """Log growth net of fees [P, L] of a policy that starts each path [P, L+1, A] in cash.

    The fee is taken on what is traded at the wealth before it, which is the exact accounting up to fee².
    """
    logits = policy.logits(gross_returns[:, :-1], listed[:, :-1])
    earned, still = gross_returns[:, 1:], listed[:, 1:]
    if fee == 0:
        return (policy.weights(logits) * earned).sum(-1).log()
    held = torch.zeros_like(logits[:, 0])
    held[:, 0] = 1.0
    rewards = []
    for step in range(logits.shape[1]):
        weights = policy.weights(logits[:, step], held)
        kept = 1 - fee * (weights - held)[:, 1:].abs().sum(-1)
        values = weights * earned[:, step]
        growth = values.sum(-1)
        rewards.append((kept * growth).log())
        drifted = values / growth.unsqueeze(-1)
        stays = torch.where(still[:, step], drifted, 0.0)
        paid_out = (drifted - stays).sum(-1)
        held = torch.cat([stays[:, :1] + paid_out.unsqueeze(-1), stays[:, 1:]], -1)
    return torch.stack(rewards, 1)


def _cumulated(rewards: Tensor, discount: float) -> Tensor:
    """Σ_t γ^t reward_t, [P]."""
    return (rewards * discount ** torch.arange(rewards.shape[1])).sum(-1)
