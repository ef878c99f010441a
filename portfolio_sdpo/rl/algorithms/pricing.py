"""What a unit of each risk costs: the log barrier's shadow price 1 / (η_i · slack_i) of eq. 14, or a multiplier.

Prices follow running estimates of the risks. Until every constraint holds (phase I) only the worst one has a price.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from portfolio_sdpo.errors import DivergenceError, InfeasibleConstraintError
from portfolio_sdpo.risk import Barrier, Constraint, suboptimality_bound
from portfolio_sdpo.risk.constraint import compute_slacks
from portfolio_sdpo.rl.algorithms.multiplier import MultiplierSettings
from portfolio_sdpo.rl.estimators.base import RiskEstimate, ShadowPrices
from portfolio_sdpo.rl.metrics import LogRow

HALF_LIFE = 40
"""Iterations of phase II in which the entropy bonus of phase I is halved."""


def check_finite(risks: Sequence[RiskEstimate]) -> None:
    """Refuse to act on estimates that are not numbers; that a standard error is infinite can happen."""
    if not all(math.isfinite(risk.estimate) for risk in risks):
        raise DivergenceError("the estimate of a risk is not finite: lower the critic's learning rate.")


class ConstraintMonitor:
    """Running estimates of the constraints' risks, and whether all of them have held: phase I or II.

    state: the module whose buffers hold all this, so that checkpoints save it.
    smoothing: weight of the newest estimate in the running one.
    phase_one: iterations within which the worst slack has to become positive; 0: the start is feasible.
    entropy: weight of phase I's entropy bonus.
    """

    def __init__(
        self,
        state: nn.Module,
        constraints: Sequence[Constraint],
        smoothing: float,
        phase_one: int = 0,
        entropy: float = 0.0,
    ) -> None:
        self._state: Any = state
        self.constraints = constraints
        self.smoothing = smoothing
        self.phase_one = phase_one
        self.entropy = entropy
        count = len(constraints)
        state.register_buffer("risk", torch.full((count,), float("nan"), dtype=torch.float64))
        state.register_buffer("risk_variance", torch.zeros(count, dtype=torch.float64))
        state.register_buffer("tracked", torch.zeros((), dtype=torch.int64))
        state.register_buffer("best_slack", torch.tensor(-float("inf"), dtype=torch.float64))
        state.register_buffer("feasible", torch.tensor(phase_one == 0))
        # The first iteration of phase II, from which schedules of η count.
        state.register_buffer("began", torch.zeros((), dtype=torch.int64))

    @property
    def feasible(self) -> bool:
        """Whether every constraint has held once: phase II."""
        return bool(self._state.feasible)

    def elapsed(self, iteration: int) -> int:
        """Iterations of phase II before this one."""
        return iteration - int(self._state.began) if self.feasible else 0

    def entropy_bonus(self, iteration: int) -> float:
        """What is left of phase I's entropy bonus at that iteration.

        All of it for the first half of the iterations that phase I may take, then less and less, so that the bonus
        hides no feasible policy; in phase II what is left is halved every `HALF_LIFE` iterations.
        """
        if self.phase_one == 0:
            return 0.0
        searched = int(self._state.began) if self.feasible else iteration
        left = min(1.0, 2 * max(0.0, 1 - searched / self.phase_one))
        return float(self.entropy * left * 0.5 ** (self.elapsed(iteration) / HALF_LIFE))

    def restart(self) -> None:
        """Batches come from another distribution from now on: what was estimated of the old one no longer counts."""
        self._state.risk = torch.full_like(self._state.risk, float("nan"))
        self._state.risk_variance = torch.zeros_like(self._state.risk_variance)
        self._state.tracked = torch.zeros_like(self._state.tracked)

    def track(self, risks: Sequence[RiskEstimate]) -> tuple[list[float], list[float]]:
        """Fold the newest estimates into the running ones; slacks after it, and standard errors of those.

        One rollout's estimate of a variance or a CVaR is noisy, the policy moves little between rollouts: the running
        estimate has about a third of the noise at smoothing 0.2. It is a plain mean until its window is full, lest the
        first rollout, on which the critics know least, count for longest.
        """
        check_finite(risks)
        state = self._state
        state.tracked += 1
        gain = max(self.smoothing, 1.0 / float(state.tracked))
        newest = torch.tensor([risk.estimate for risk in risks], dtype=torch.float64)
        variance = torch.tensor([risk.standard_error**2 for risk in risks], dtype=torch.float64)
        # A single episode has no standard error; the first batch that has one restarts the running estimate.
        first = state.risk.isnan() | (state.risk_variance.isinf() & variance.isfinite())
        state.risk = torch.where(first, newest, torch.lerp(state.risk, newest, gain))
        state.risk_variance = torch.where(first, variance, (1 - gain) ** 2 * state.risk_variance + gain**2 * variance)
        errors: list[float] = state.risk_variance.sqrt().tolist()
        return compute_slacks(self.constraints, state.risk.tolist(), errors), errors

    def enter_phase(self, slacks: Sequence[float], iteration: int) -> LogRow:
        """Phase I ends when every slack is positive; it fails when its iterations are used up before."""
        state = self._state
        worst = min(slacks, default=float("inf"))
        state.best_slack = torch.maximum(state.best_slack, torch.tensor(worst, dtype=torch.float64))
        if not self.feasible and worst > 0:
            state.feasible = torch.tensor(True)
            state.began = torch.tensor(iteration)
        if iteration >= self.phase_one:
            self.finish(self.phase_one)
        return {"phase": 2.0 if self.feasible else 1.0}

    def finish(self, iterations: int) -> None:
        """An `InfeasibleConstraintError` if phase I is not over after so many iterations."""
        if self.feasible:
            return
        errors = self._state.risk_variance.sqrt().tolist()
        slacks = compute_slacks(self.constraints, self._state.risk.tolist(), errors)
        tightest = self.constraints[slacks.index(min(slacks))]
        best = float(self._state.best_slack)
        raise InfeasibleConstraintError(
            f"phase I did not satisfy '{tightest.name}' in {iterations} iterations (best slack {best:.4g}): relax the "
            "bound, allow more iterations or start from a safe policy.",
            best_slack=best,
        )


class BarrierPricing:
    """price_i = 1 / (η_i · slack_i), capped below the margin: the barrier's factor in eq. 14."""

    def __init__(self, monitor: ConstraintMonitor) -> None:
        self.monitor = monitor

    def set_prices(self, risks: Sequence[RiskEstimate], iteration: int) -> ShadowPrices:
        """Prices of this iteration, after the newest estimates of the risks."""
        monitor = self.monitor
        slacks, errors = monitor.track(risks)
        log = monitor.enter_phase(slacks, iteration)
        return price_by_barrier(monitor, slacks, errors, iteration, log)

    def restart(self) -> None:
        """See `ConstraintMonitor.restart`."""
        self.monitor.restart()

    def finish(self, iterations: int) -> None:
        """See `ConstraintMonitor.finish`."""
        self.monitor.finish(iterations)


class MultiplierPricing:
    """price_i = λ_i, moved by dual ascent once the constraints have held; until then as `BarrierPricing`."""

    def __init__(self, state: nn.Module, monitor: ConstraintMonitor, settings: MultiplierSettings) -> None:
        self._state: Any = state
        self.monitor = monitor
        self.settings = settings
        state.register_buffer("multiplier", settings.first_multipliers(len(monitor.constraints)))

    def set_prices(self, risks: Sequence[RiskEstimate], iteration: int) -> ShadowPrices:
        """Prices of this iteration; the multipliers move afterwards, by the slacks of the running estimates."""
        slacks, errors = self.monitor.track(risks)
        log = self.monitor.enter_phase(slacks, iteration)
        if not self.monitor.feasible:
            return price_by_barrier(self.monitor, slacks, errors, iteration, log)
        multiplier: Tensor = self._state.multiplier
        prices: list[float] = multiplier.tolist()
        for index, (slack, price) in enumerate(zip(slacks, prices, strict=True)):
            log |= {f"slack_{index}": slack, f"price_{index}": price}
        self._state.multiplier = self.settings.next_multipliers(multiplier, slacks)
        return ShadowPrices(prices, log=log)

    def restart(self) -> None:
        """See `ConstraintMonitor.restart`."""
        self.monitor.restart()

    def finish(self, iterations: int) -> None:
        """See `ConstraintMonitor.finish`."""
        self.monitor.finish(iterations)


class CappedBarrierPricing:
    """The barrier of estimates that need no further smoothing, from a feasible start.

    highest_price: what a unit of slack may be worth at most, where a constraint names no margin. The barrier's tangent
    must be steeper than the shadow price of the optimum, however large η grows, or the bound is not held.
    """

    def __init__(self, constraints: Sequence[Constraint], highest_price: float = 1.0) -> None:
        self.constraints = constraints
        self.highest_price = highest_price

    def set_prices(self, risks: Sequence[RiskEstimate], iteration: int) -> ShadowPrices:
        """Prices of this iteration."""
        prices: list[float] = []
        log: LogRow = {}
        for index, (constraint, risk) in enumerate(zip(self.constraints, risks, strict=True)):
            eta = constraint.eta_at(iteration)
            barrier = Barrier(eta=eta, margin=constraint.margin or 1 / (self.highest_price * eta))
            slack = constraint.slack(risk.estimate, risk.standard_error)
            prices.append(barrier.price(slack))
            log[f"slack_{index}"] = slack
            log[f"price_{index}"] = prices[index]
            log[f"regime_{index}"] = barrier.regime(slack)
        log["suboptimality_bound"] = suboptimality_bound(self.constraints, iteration)
        return ShadowPrices(prices, log=log)

    def restart(self) -> None:
        """Nothing is tracked here."""

    def finish(self, iterations: int) -> None:
        """There is no phase I that could fail."""


def price_by_barrier(
    monitor: ConstraintMonitor, slacks: Sequence[float], errors: Sequence[float], iteration: int, log: LogRow
) -> ShadowPrices:
    """The barrier's prices and what the log says of them; in phase I the worst constraint has the price 1, others 0."""
    prices: list[float] = []
    elapsed = monitor.elapsed(iteration)
    for index, constraint in enumerate(monitor.constraints):
        barrier = make_barrier(constraint, elapsed, errors[index])
        worst = 1.0 if slacks[index] == min(slacks) else 0.0
        prices.append(barrier.price(slacks[index]) if monitor.feasible else worst)
        log[f"slack_{index}"] = slacks[index]
        log[f"price_{index}"] = prices[index]
        log[f"regime_{index}"] = barrier.regime(slacks[index])
    log["suboptimality_bound"] = suboptimality_bound(monitor.constraints, elapsed)
    return ShadowPrices(prices, monitor.feasible, log)


def make_barrier(constraint: Constraint, elapsed: int, standard_error: float) -> Barrier:
    """The barrier after so many iterations of phase II; a margin that is not given is one standard error."""
    known = standard_error if math.isfinite(standard_error) else 0.0  # a single episode has none
    margin = constraint.margin or max(known, 1e-3 * abs(constraint.bound), 1e-9)
    return Barrier(eta=constraint.eta_at(elapsed), margin=margin)
