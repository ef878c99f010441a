"""PD-SDPO: SDPO's critics, risk advantages and clipped surrogate, but dual ascent in the place of the barrier.

It differs from SDPO in one formula, the price of a unit of risk: not 1 / (η · slack) but a multiplier

    λ_i ← clip(λ_i − rate · slack_i, 0, λ_max),

fed by the same running estimate. So it shows what the barrier contributes and what the critics do: a multiplier learns
of a bound only by breaking it, and needs no feasible start. Not in the paper, whose primal-dual rivals have no critics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from gymnasium import spaces
from torch import Tensor

from portfolio_sdpo.nn.trunk import ObservationCodec
from portfolio_sdpo.rl.algorithms.base import Metrics, Problem
from portfolio_sdpo.rl.algorithms.multiplier import MultiplierSettings
from portfolio_sdpo.rl.algorithms.sdpo import Sdpo, SdpoSettings


class PdSdpoSettings(MultiplierSettings, SdpoSettings):
    """SDPO's, and the time scale of the multipliers; a constraint's η and margin do nothing."""

    kind: Literal["pd-sdpo"] = "pd-sdpo"  # type: ignore[assignment]


class PdSdpo(Sdpo):
    """Primal-dual with distributional critics."""

    settings: PdSdpoSettings
    multiplier: Tensor

    def __init__(
        self, settings: PdSdpoSettings, problem: Problem, codec: ObservationCodec, action_space: spaces.Space[Any]
    ) -> None:
        super().__init__(settings, problem, codec, action_space)
        self.register_buffer("multiplier", settings.first_multipliers(len(problem.constraints)))

    def set_prices(self, slacks: list[float], errors: Sequence[float], iteration: int) -> tuple[list[float], Metrics]:
        if not self.feasible:
            return super().set_prices(slacks, errors, iteration)
        prices: list[float] = self.multiplier.tolist()
        metrics: Metrics = {}
        for index, (slack, price) in enumerate(zip(slacks, prices, strict=True)):
            metrics |= {f"slack_{index}": slack, f"price_{index}": price}
        self.multiplier = self.settings.next_multipliers(self.multiplier, slacks)
        return prices, metrics
