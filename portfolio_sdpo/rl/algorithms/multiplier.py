"""The dual variable of a constraint: a price that rises while its bound is broken and falls while it is kept."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from portfolio_sdpo.settings import Settings


class MultiplierSettings(Settings):
    """Where λ starts, how fast it moves and how far it may go."""

    multiplier_rate: float = Field(default=0.01, gt=0)
    """Step size of the multipliers, the slowest time scale: how much a unit of violation adds to λ per iteration."""
    multiplier_start: float = Field(default=0.0, ge=0)
    """λ at the first iteration."""
    multiplier_max: float = Field(default=100.0, gt=0)
    """λ is projected onto [0, this]."""

    def first_multipliers(self, count: int) -> Tensor:
        """λ [count] at the first iteration."""
        start = torch.full((count,), self.multiplier_start, dtype=torch.float64)
        return start.clamp(0.0, self.multiplier_max)

    def next_multipliers(self, multiplier: Tensor, slacks: Sequence[float]) -> Tensor:
        """One step of dual ascent: λ_i − rate · slack_i, projected; a slack that is not known (−∞) moves nothing."""
        violation = -torch.tensor(slacks, dtype=torch.float64)
        violation = torch.where(violation.isfinite(), violation, 0.0)
        moved = multiplier + self.multiplier_rate * violation
        return moved.clamp(0.0, self.multiplier_max)
