"""IPO (Liu et al. 2019): PPO's surrogate plus a log barrier on every expected cost.

The barrier's gradient is −∇ρ / (η · slack) (eq. 11 of the paper), so each iteration maximises the clipped surrogate of
A − Σ_i price_i · A_i, where price_i = 1 / (η_i · slack_i) is the shadow price and A_i the risk advantage (its sign
turned for constraints of the form ρ ≥ bound).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from gymnasium import spaces
from pydantic import Field
from torch import Tensor

from portfolio_sdpo.errors import DivergenceError, InfeasibleConstraintError
from portfolio_sdpo.nn.trunk import ObservationCodec
from portfolio_sdpo.risk import Barrier, Constraint, suboptimality_bound
from portfolio_sdpo.rl.advantage import Grid
from portfolio_sdpo.rl.algorithms.base import Metrics, Problem, set_rate
from portfolio_sdpo.rl.algorithms.ppo import Ppo, PpoSettings
from portfolio_sdpo.rl.risk_advantage import Assessment
from portfolio_sdpo.rl.rollout import Rollout


class IpoSettings(PpoSettings):
    """PPO's, and what the barrier needs."""

    kind: Literal["ipo"] = "ipo"  # type: ignore[assignment]
    smoothing: float = Field(default=0.2, gt=0, le=1)
    """Weight of the newest estimate in the running estimate of each risk that feeds the barrier."""
    phase_one: int = Field(default=0, ge=0)
    """Iterations allowed to drive the worst slack above zero before the objective counts; 0: the start is feasible."""


class Ipo(Ppo):
    """An interior-point method: it starts inside the constraints and pays ever more for coming near them."""

    accepts_nonlinear = False

    risk: Tensor
    risk_variance: Tensor
    best_slack: Tensor
    feasible: Tensor

    def __init__(
        self, settings: IpoSettings, problem: Problem, codec: ObservationCodec, action_space: spaces.Space[Any]
    ) -> None:
        super().__init__(settings, problem, codec, action_space)
        self.barrier_settings = settings
        count = len(problem.constraints)
        self.register_buffer("risk", torch.full((count,), float("nan"), dtype=torch.float64))
        self.register_buffer("risk_variance", torch.zeros(count, dtype=torch.float64))
        self.register_buffer("best_slack", torch.tensor(-float("inf"), dtype=torch.float64))
        self.register_buffer("feasible", torch.tensor(settings.phase_one == 0))

    def update(self, rollout: Rollout, iteration: int, generator: torch.Generator) -> Metrics:
        set_rate(self.actor_optimiser, self.actor_settings.rate(iteration))
        grid = Grid(rollout)
        metrics: Metrics = dict(self.critics.fit(rollout, grid, generator))
        objective, risks = self.assess_all(rollout, grid)
        metrics |= self.risk_metrics(rollout, objective, risks)
        slacks, errors = self.track(risks)
        metrics |= self.enter_phase(slacks, iteration)

        prices = []
        for index, constraint in enumerate(self.problem.constraints):
            barrier = self.barrier(constraint, iteration, errors[index])
            prices.append(self.price(barrier, index, slacks))
            metrics[f"slack_{index}"] = slacks[index]
            metrics[f"price_{index}"] = prices[index]
            metrics[f"regime_{index}"] = barrier.regime(slacks[index])
        metrics["suboptimality_bound"] = suboptimality_bound(self.problem.constraints, iteration)
        return metrics | self.improve(rollout, grid, objective, risks, prices, generator)

    def improve(
        self,
        rollout: Rollout,
        grid: Grid,
        objective: Assessment,
        risks: Sequence[Assessment],
        prices: Sequence[float],
        generator: torch.Generator,
    ) -> Metrics:
        """Ascend eq. 11: the objective's advantage, less every risk advantage at its price."""
        advantage = self.combine(rollout, objective, risks, prices)
        return self.ascend(rollout, advantage, generator)

    def combine(
        self, rollout: Rollout, objective: Assessment, risks: Sequence[Assessment], prices: Sequence[float]
    ) -> Tensor:
        """A − Σ_i price_i · (±A_i), [n]; in phase I the objective does not count."""
        advantage = objective.advantage if self.feasible else torch.zeros(len(rollout))
        for constraint, risk, price in zip(self.problem.constraints, risks, prices, strict=True):
            advantage = advantage - price * direction(constraint) * risk.advantage
        return advantage

    def barrier(self, constraint: Constraint, iteration: int, standard_error: float) -> Barrier:
        """The barrier of this iteration; without a margin of its own, a constraint takes one standard error."""
        known = standard_error if math.isfinite(standard_error) else 0.0  # a single episode has none
        margin = constraint.margin or max(known, 1e-3 * abs(constraint.bound), 1e-9)
        return Barrier(eta=constraint.eta_at(iteration), margin=margin)

    def price(self, barrier: Barrier, index: int, slacks: list[float]) -> float:
        """What a unit of slack is worth; in phase I only the worst constraint counts, and nothing else does."""
        if self.feasible:
            return barrier.price(slacks[index])
        return 1.0 if slacks[index] == min(slacks) else 0.0

    def track(self, risks: list[Assessment]) -> tuple[list[float], list[float]]:
        """Fold the newest estimates into the running ones; slacks after it, and standard errors of those.

        One rollout's estimate of a variance or a CVaR is noisy, the policy moves little between rollouts: the running
        estimate has about a third of the noise at smoothing 0.2.
        """
        gain = self.barrier_settings.smoothing
        newest = torch.tensor([risk.estimate for risk in risks], dtype=torch.float64)
        variance = torch.tensor([risk.standard_error**2 for risk in risks], dtype=torch.float64)
        if newest.isnan().any():
            raise DivergenceError("the estimate of a risk is not finite: lower the critic's learning rate.")
        first = self.risk.isnan()
        self.risk = torch.where(first, newest, torch.lerp(self.risk, newest, gain))
        self.risk_variance = torch.where(first, variance, (1 - gain) ** 2 * self.risk_variance + gain**2 * variance)
        errors = self.risk_variance.sqrt().tolist()
        slacks = [
            constraint.slack(risk, error)
            for constraint, risk, error in zip(self.problem.constraints, self.risk.tolist(), errors, strict=True)
        ]
        return slacks, errors

    def enter_phase(self, slacks: list[float], iteration: int) -> Metrics:
        """Phase I ends when every slack is positive; it fails when its iterations are used up before."""
        worst = min(slacks, default=float("inf"))
        self.best_slack = torch.maximum(self.best_slack, torch.tensor(worst, dtype=torch.float64))
        if not self.feasible and worst > 0:
            self.feasible = torch.tensor(True)
        if not self.feasible and iteration >= self.barrier_settings.phase_one:
            tightest = self.problem.constraints[slacks.index(worst)]
            raise InfeasibleConstraintError(
                f"phase I did not satisfy '{tightest.name}' in {self.barrier_settings.phase_one} iterations (best "
                f"slack {float(self.best_slack):.4g}): relax the bound, allow more of them or start from a safe one.",
                best_slack=float(self.best_slack),
            )
        return {"phase": 2.0 if self.feasible else 1.0}


def direction(constraint: Constraint) -> float:
    """+1 where more of the risk is worse (≤), −1 where less of it is (≥)."""
    return 1.0 if constraint.sense == "<=" else -1.0
