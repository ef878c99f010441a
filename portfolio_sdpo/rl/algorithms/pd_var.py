"""PD-VAR (Prashanth & Ghavamzadeh 2016, algorithm 2, without its critics): a policy gradient under a bound on variance.

The published algorithm is for average rewards and has two critics; as in the paper that is reproduced here, the return
Y of a whole episode takes the reward's place, and likelihood ratios that of the critics. With Var(Y) = E[Y²] − E[Y]²
and step sizes ζ3 ≫ ζ2 ≫ ζ1

    µ ← µ + ζ3 (mean(Y) − µ),    m ← m + ζ3 (mean(Y²) − m)         running E[Y] and E[Y²]
    θ ← θ + ζ2 mean(∇ln P · (Y − λ (Y² − 2µY)))
    λ ← λ + ζ1 (m − µ² − d),                                           projected onto [0, λ_max].

Y² − 2µY and u(Y) = (Y − µ)² differ by a constant, which the likelihood ratio does not see. Episodes from all initial
states are pooled, so differences between these count as variance.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from gymnasium import spaces
from pydantic import Field
from torch import Tensor

from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.risk import Constraint, Variance
from portfolio_sdpo.rl.algorithms.base import AlgorithmSettings, Problem
from portfolio_sdpo.rl.algorithms.lagrangian import PrimalDual, PrimalDualSettings
from portfolio_sdpo.rl.estimators.trajectory import InfluenceFunction


class PdVarSettings(PrimalDualSettings):
    """What every primal-dual algorithm has, and the time scale of the moments."""

    kind: Literal["pd-var"] = "pd-var"
    moment_rate: float = Field(default=0.1, gt=0, le=1)
    """Step size of the running moments, the fastest time scale: weight of the newest batch."""


class PdVar(PrimalDual):
    """Keeps running estimates of E[Y_i] and E[Y_i²] for each constraint."""

    settings_type: ClassVar[type[AlgorithmSettings]] = PdVarSettings
    measure = Variance

    moments: Tensor
    """[m, 2] running E[Y_i] and E[Y_i²]"""

    def __init__(
        self, settings: PdVarSettings, problem: Problem, codec: ObservationCodec, action_space: spaces.Space[Any]
    ) -> None:
        super().__init__(settings, problem, codec, action_space)
        self.register_buffer("moments", torch.full((len(problem.constraints), 2), float("nan"), dtype=torch.float64))

    def follow(self, index: int, constraint: Constraint, returns: Tensor) -> tuple[float, InfluenceFunction]:
        newest = torch.stack([returns.mean(), returns.square().mean()])
        if self.moments[index].isnan().any():
            self.moments[index] = newest
        self.moments[index] = torch.lerp(self.moments[index], newest, self.settings.moment_rate)
        mean, second = self.moments[index].tolist()
        return max(second - mean**2, 0.0), lambda y: (y - mean).square()
