"""PD-CVaR (Chow & Ghavamzadeh 2014, algorithm 1): a trajectory-based policy gradient under a bound on CVaR.

CVaR as the value of a problem over the VaR parameter ν (Rockafellar & Uryasev), for the lower tail of a reward

    CVaR_α(Y) = max_ν  ν − E[max(ν − Y, 0)] / α        (upper tail of a cost: min_ν  ν + E[max(Y − ν, 0)] / α)

makes the Lagrangian a saddle-point problem in (ν, θ, λ). With N episodes per iteration and step sizes ζ3 ≫ ζ2 ≫ ζ1

    ν ← ν + ζ3 (1 − #{Y ≤ ν} / αN)
    θ ← θ + ζ2 mean(∇ln P · (Y − λ max(ν − Y, 0) / α))
    λ ← λ + ζ1 (d − ν + mean(max(ν − Y, 0)) / α),      projected onto [0, λ_max].

Two liberties, neither of which moves a fixed point: the step on ν is not multiplied by λ (else ν would stand still
while λ = 0), and it is measured in standard deviations of the batch's returns.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from gymnasium import spaces
from pydantic import Field
from torch import Tensor

from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.risk import Constraint, CVaR
from portfolio_sdpo.rl.algorithms.base import AlgorithmSettings, Problem
from portfolio_sdpo.rl.algorithms.lagrangian import PrimalDual, PrimalDualSettings
from portfolio_sdpo.rl.estimators.trajectory import InfluenceFunction


class PdCvarSettings(PrimalDualSettings):
    """What every primal-dual algorithm has, and the time scale of ν."""

    kind: Literal["pd-cvar"] = "pd-cvar"
    quantile_rate: float = Field(default=0.1, gt=0)
    """Step size of ν, the fastest time scale, in standard deviations of the returns."""


class PdCvar(PrimalDual):
    """Keeps one VaR parameter ν_i for each constraint."""

    settings_type: ClassVar[type[AlgorithmSettings]] = PdCvarSettings
    measure = CVaR

    nu: Tensor

    def __init__(
        self, settings: PdCvarSettings, problem: Problem, codec: ObservationCodec, action_space: spaces.Space[Any]
    ) -> None:
        super().__init__(settings, problem, codec, action_space)
        self.register_buffer("nu", torch.full((len(problem.constraints),), float("nan"), dtype=torch.float64))

    def follow(self, index: int, constraint: Constraint, returns: Tensor) -> tuple[float, InfluenceFunction]:
        measure = constraint.measure
        assert isinstance(measure, CVaR)
        alpha, side = measure.alpha, 1.0 if measure.tail == "lower" else -1.0
        if self.nu[index].isnan():
            self.nu[index] = returns.quantile(alpha if measure.tail == "lower" else 1 - alpha)
        nu = float(self.nu[index])

        def influence(y: Tensor) -> Tensor:
            return nu - side * torch.relu(side * (nu - y)) / alpha

        inside = (side * (nu - returns) >= 0).double().mean()
        spread = returns.std(correction=0)
        self.nu[index] = nu + side * self.settings.quantile_rate * spread * (1 - inside / alpha)
        return influence(returns).mean().item(), influence
