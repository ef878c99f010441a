"""PPO-Lagrangian (Ray et al. 2019): PPO with a multiplier on every expected cost, the field's usual baseline.

Each iteration maximises the clipped surrogate of A − Σ_i λ_i · A_i, with critics of the mean; afterwards

    λ_i ← clip(λ_i − rate · slack_i, 0, λ_max).

The usual division by 1 + Σ λ_i is not made: the surrogate's advantage is standardised, which no positive factor
changes. It is IPO with a multiplier in the place of the barrier, and PD-SDPO with critics of the mean.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from portfolio_sdpo.rl.algorithms.base import AlgorithmSettings
from portfolio_sdpo.rl.algorithms.ipo import Ipo
from portfolio_sdpo.rl.algorithms.multiplier import MultiplierSettings
from portfolio_sdpo.rl.algorithms.pricing import ConstraintMonitor, MultiplierPricing
from portfolio_sdpo.rl.algorithms.sdpo import BarrierSettings, Pricing


class PpoLagrangianSettings(MultiplierSettings, BarrierSettings):
    """PPO's, and the time scale of the multipliers; a constraint's η and margin are the barrier's and not read."""

    kind: Literal["ppo-lagrangian"] = "ppo-lagrangian"  # type: ignore[assignment]


class PpoLagrangian(Ipo):
    """Primal-dual with critics of the mean."""

    settings_type: ClassVar[type[AlgorithmSettings]] = PpoLagrangianSettings

    def make_pricing(self, monitor: ConstraintMonitor) -> Pricing:
        return MultiplierPricing(self, monitor, self.settings)
