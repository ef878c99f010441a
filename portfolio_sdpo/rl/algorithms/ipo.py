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

from portfolio_sdpo.errors import InfeasibleConstraintError
from portfolio_sdpo.nn.trunk import ObservationCodec
from portfolio_sdpo.risk import Barrier, Constraint, suboptimality_bound
from portfolio_sdpo.risk.constraint import slacks_of
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
    settings: IpoSettings

    risk: Tensor
    risk_variance: Tensor
    tracked: Tensor
    best_slack: Tensor
    feasible: Tensor
    began: Tensor
    """The first iteration of phase II, from which schedules of η count."""

    def __init__(
        self, settings: IpoSettings, problem: Problem, codec: ObservationCodec, action_space: spaces.Space[Any]
    ) -> None:
        super().__init__(settings, problem, codec, action_space)
        count = len(problem.constraints)
        self.register_buffer("risk", torch.full((count,), float("nan"), dtype=torch.float64))
        self.register_buffer("risk_variance", torch.zeros(count, dtype=torch.float64))
        self.register_buffer("tracked", torch.zeros((), dtype=torch.int64))
        self.register_buffer("best_slack", torch.tensor(-float("inf"), dtype=torch.float64))
        self.register_buffer("feasible", torch.tensor(settings.phase_one == 0))
        self.register_buffer("began", torch.zeros((), dtype=torch.int64))

    def update(self, rollout: Rollout, iteration: int, generator: torch.Generator) -> Metrics:
        set_rate(self.actor_optimiser, self.settings.actor.rate(iteration))
        grid, objective, risks, metrics = self.observe(rollout, generator)
        slacks, errors = self.track(risks)
        metrics |= self.enter_phase(slacks, iteration)
        prices, priced = self.set_prices(slacks, errors, iteration)
        metrics |= priced
        return metrics | self.improve(rollout, grid, objective, risks, prices, generator)

    def set_prices(self, slacks: list[float], errors: Sequence[float], iteration: int) -> tuple[list[float], Metrics]:
        """What a unit of each risk costs in this iteration, and what the log says of it."""
        prices: list[float] = []
        metrics: Metrics = {}
        elapsed = iteration - int(self.began) if self.feasible else 0
        for index, constraint in enumerate(self.problem.constraints):
            barrier = self.barrier(constraint, elapsed, errors[index])
            prices.append(self.price(barrier, index, slacks))
            metrics[f"slack_{index}"] = slacks[index]
            metrics[f"price_{index}"] = prices[index]
            metrics[f"regime_{index}"] = barrier.regime(slacks[index])
        metrics["suboptimality_bound"] = suboptimality_bound(self.problem.constraints, elapsed)
        return prices, metrics

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
            advantage = advantage - price * constraint.sign * risk.advantage
        return advantage

    def barrier(self, constraint: Constraint, elapsed: int, standard_error: float) -> Barrier:
        """The barrier after so many iterations of phase II; a margin that is not given is one standard error."""
        known = standard_error if math.isfinite(standard_error) else 0.0  # a single episode has none
        margin = constraint.margin or max(known, 1e-3 * abs(constraint.bound), 1e-9)
        return Barrier(eta=constraint.eta_at(elapsed), margin=margin)

    def price(self, barrier: Barrier, index: int, slacks: list[float]) -> float:
        """What a unit of slack is worth; in phase I only the worst constraint counts, and nothing else does."""
        if self.feasible:
            return barrier.price(slacks[index])
        return 1.0 if slacks[index] == min(slacks) else 0.0

    def track(self, risks: list[Assessment]) -> tuple[list[float], list[float]]:
        """Fold the newest estimates into the running ones; slacks after it, and standard errors of those.

        One rollout's estimate of a variance or a CVaR is noisy, the policy moves little between rollouts: the running
        estimate has about a third of the noise at smoothing 0.2. It is a plain mean until its window is full, lest the
        first rollout, on which the critics know least, count for longest.
        """
        self.check_finite(risks)
        self.tracked += 1
        gain = max(self.settings.smoothing, 1.0 / float(self.tracked))
        newest = torch.tensor([risk.estimate for risk in risks], dtype=torch.float64)
        variance = torch.tensor([risk.standard_error**2 for risk in risks], dtype=torch.float64)
        # A single episode has no standard error; the first batch that has one begins the running estimate anew.
        first = self.risk.isnan() | (self.risk_variance.isinf() & variance.isfinite())
        self.risk = torch.where(first, newest, torch.lerp(self.risk, newest, gain))
        self.risk_variance = torch.where(first, variance, (1 - gain) ** 2 * self.risk_variance + gain**2 * variance)
        errors: list[float] = self.risk_variance.sqrt().tolist()
        return self.slacks(errors), errors

    def slacks(self, errors: Sequence[float]) -> list[float]:
        """How far inside its bound each running estimate is."""
        return slacks_of(self.problem.constraints, self.risk.tolist(), errors)

    def enter_phase(self, slacks: list[float], iteration: int) -> Metrics:
        """Phase I ends when every slack is positive; it fails when its iterations are used up before."""
        worst = min(slacks, default=float("inf"))
        self.best_slack = torch.maximum(self.best_slack, torch.tensor(worst, dtype=torch.float64))
        if not self.feasible and worst > 0:
            self.feasible = torch.tensor(True)
            self.began = torch.tensor(iteration)
        if iteration >= self.settings.phase_one:
            self.finish(self.settings.phase_one)
        return {"phase": 2.0 if self.feasible else 1.0}

    def finish(self, iterations: int) -> None:
        if self.feasible:
            return
        slacks = self.slacks(self.risk_variance.sqrt().tolist())
        tightest = self.problem.constraints[slacks.index(min(slacks))]
        raise InfeasibleConstraintError(
            f"phase I did not satisfy '{tightest.name}' in {iterations} iterations (best slack "
            f"{float(self.best_slack):.4g}): relax the bound, allow more iterations or start from a safe policy.",
            best_slack=float(self.best_slack),
        )
