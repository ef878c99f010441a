"""The log barrier on slack, kept finite near and beyond the bound (design, section 4)."""

from collections.abc import Iterable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from portfolio_sdpo.risk.constraint import LEAST_MARGIN, Constraint, Scalar
from portfolio_sdpo.settings import Settings

Regime = Literal["interior", "margin", "violated"]
"""Where a slack is: on the logarithm, on its tangent but inside the bound, or beyond the bound."""


class Barrier(Settings):
    """(1 / eta) ln(slack) from `margin` upwards (eq. prob of the paper), below it the tangent at `margin`.

    The tangent's slope 1 / (eta margin) is the largest shadow price, and it leads back inside after a violation.

    >>> barrier = Barrier(eta=20, margin=0.1)
    >>> barrier.regime(-0.3), barrier.price(-0.3)
    ('violated', 0.5)
    """

    eta: float = Field(gt=0)
    margin: float = Field(ge=LEAST_MARGIN)
    """In the unit of the slack."""

    def __call__(self, slack: Tensor) -> Tensor:
        """The barrier's value, to be maximised, for each slack `[...]`; finite for every finite slack."""
        on_logarithm = slack.clamp_min(self.margin)
        value = (on_logarithm.log() + (slack - on_logarithm) / self.margin) / self.eta
        return value.clamp(*_finite_range(value))

    def price(self, slack: Scalar) -> Scalar:
        """The shadow price d barrier / d slack: what a unit of slack is worth in the objective."""
        if isinstance(slack, Tensor):
            return 1 / (self.eta * slack.clamp_min(self.margin))
        return 1 / (self.eta * max(slack, self.margin))

    def regime(self, slack: Tensor | float) -> Regime:
        """Where a single slack is; NaN counts as violated."""
        if slack >= self.margin:
            return "interior"
        return "margin" if slack > 0 else "violated"


def suboptimality_bound(constraints: Iterable[Constraint], iteration: int) -> float:
    """Most that the barriers can cost in the objective at their optimum: the sum of 1 / eta_i (Theorem 1)."""
    return sum(1 / constraint.eta_at(iteration) for constraint in constraints)


def _finite_range(value: Tensor) -> tuple[float, float]:
    limits = torch.finfo(value.dtype)
    return limits.min, limits.max
