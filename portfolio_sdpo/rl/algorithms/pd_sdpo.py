"""PD-SDPO: SDPO's critics, risk advantages and clipped surrogate, but dual ascent in the place of the barrier.

It differs from SDPO in one formula, the price of a unit of risk: not 1 / (η · slack) but a multiplier

    λ_i ← clip(λ_i − rate · slack_i, 0, λ_max),

fed by the same running estimate. So it shows what the barrier contributes and what the critics do: a multiplier learns
of a bound only by breaking it, and needs no feasible start. Not in the paper, whose primal-dual rivals have no critics.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from portfolio_sdpo.rl.algorithms.base import AlgorithmSettings
from portfolio_sdpo.rl.algorithms.multiplier import MultiplierSettings
from portfolio_sdpo.rl.algorithms.pricing import ConstraintMonitor, MultiplierPricing
from portfolio_sdpo.rl.algorithms.sdpo import Pricing, Sdpo, SdpoSettings


class PdSdpoSettings(MultiplierSettings, SdpoSettings):
    """SDPO's, and the time scale of the multipliers; a constraint's η and margin are the barrier's and not read."""

    kind: Literal["pd-sdpo"] = "pd-sdpo"  # type: ignore[assignment]


class PdSdpo(Sdpo):
    """Primal-dual with distributional critics."""

    settings_type: ClassVar[type[AlgorithmSettings]] = PdSdpoSettings

    def make_pricing(self, monitor: ConstraintMonitor) -> Pricing:
        return MultiplierPricing(self, monitor, self.settings)
