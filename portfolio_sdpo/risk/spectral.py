"""Spectral risk measures: the mean under a distorted distribution, in which bad outcomes count for more."""

from abc import abstractmethod
from typing import Annotated, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from portfolio_sdpo.risk.importable import ImportableFunction
from portfolio_sdpo.risk.influence import Influence, PiecewiseLinear
from portfolio_sdpo.risk.measures import RiskMeasure
from portfolio_sdpo.settings import Settings


class _Distortion(Settings):
    """An increasing function g of [0, 1] onto itself; where g is steep, values are weighted up.

    Steep at 0 is pessimistic for rewards, steep at 1 for costs.
    """

    kind: str

    @abstractmethod
    def __call__(self, tau: Tensor) -> Tensor:
        """g(tau), elementwise."""

    @abstractmethod
    def slope(self, tau: Tensor) -> Tensor:
        """g'(tau), elementwise; may be infinite at 0 and 1."""

    @property
    def label(self) -> str:
        """Short name with its number, such as `wang[0.5]`."""
        (number,) = (value for _, value in self if isinstance(value, float))
        return f"{self.kind}[{number:.10g}]"


class Wang(_Distortion):
    """g(tau) = Phi(Phi^-1(tau) + shift): a positive shift is pessimistic for rewards, a negative one for costs."""

    kind: Literal["wang"] = "wang"
    shift: float

    def __call__(self, tau: Tensor) -> Tensor:
        distorted: Tensor = torch.special.ndtr(torch.special.ndtri(tau) + self.shift)
        return distorted

    def slope(self, tau: Tensor) -> Tensor:
        return torch.exp(-self.shift * torch.special.ndtri(tau) - self.shift**2 / 2)


class Power(_Distortion):
    """g(tau) = 1 - (1 - tau)^exponent: for a whole exponent n, rho is the expected worst of n independent draws.

    An exponent above 1 is pessimistic for rewards, one below 1 for costs, 1 gives the expectation.
    """

    kind: Literal["power"] = "power"
    exponent: float = Field(gt=0)

    def __call__(self, tau: Tensor) -> Tensor:
        return 1 - (1 - tau).pow(self.exponent)

    def slope(self, tau: Tensor) -> Tensor:
        return self.exponent * (1 - tau).pow(self.exponent - 1)


class CustomDistortion(_Distortion):
    """g as any differentiable elementwise function of tau; files hold it by its import path, "module:name"."""

    kind: Literal["custom"] = "custom"
    function: ImportableFunction

    @field_validator("function")
    @classmethod
    def _is_distortion(cls, function: ImportableFunction) -> ImportableFunction:
        g = function(torch.linspace(0, 1, 257, dtype=torch.float64))
        if g.shape != (257,) or not g.isfinite().all() or (g.diff() < 0).any():
            raise ValueError("must be finite and increasing on [0, 1], elementwise")
        if abs(g[0]) > 1e-6 or abs(g[-1] - 1) > 1e-6:
            raise ValueError("must take 0 to 0 and 1 to 1")
        return function

    def __call__(self, tau: Tensor) -> Tensor:
        return self.function(tau)

    def slope(self, tau: Tensor) -> Tensor:
        with torch.enable_grad():
            tau = tau.detach().requires_grad_()
            return torch.autograd.grad(self.function(tau).sum(), tau)[0]

    @property
    def label(self) -> str:
        return getattr(self.function, "__name__", self.kind)


Distortion = Annotated[Wang | Power | CustomDistortion, Field(discriminator="kind")]
"""Type of a settings field that holds any distortion."""


class Spectral(RiskMeasure):
    """Sum of x_(k) (g(W_k) - g(W_(k-1))) over sorted values x_(k), W_k the weight cumulated up to k, g a distortion.

    Its influence function is piecewise linear with the slope g'(W_k) between x_(k) and x_(k+1).
    """

    kind: Literal["spectral"] = "spectral"
    distortion: Distortion

    def evaluate(self, values: Tensor, weights: Tensor) -> Tensor:
        # Summed by parts: x_(N) - sum of g(W_k) (x_(k+1) - x_(k)), which needs neither W_0 nor W_N.
        ordered, cumulated = _sorted_distribution(values, weights)
        levels = cumulated[..., :-1]
        # At 0 and 1, reached only by atoms of weight 0, g is known, and its gradient may be infinite or NaN.
        inside = (levels > 0) & (levels < 1)
        distorted = torch.where(inside, self.distortion(torch.where(inside, levels, 0.5)), levels)
        return ordered[..., -1] - (distorted * ordered.diff(dim=-1)).sum(-1)

    def differentiate(self, values: Tensor, weights: Tensor) -> Influence:
        ordered, cumulated = _sorted_distribution(values, weights)
        levels = torch.cat([torch.zeros_like(cumulated[..., :1]), cumulated], dim=-1)
        slopes = self._finite_slope(levels)
        climbed = (slopes[..., 1:-1] * ordered.diff(dim=-1)).cumsum(-1)
        heights = torch.cat([torch.zeros_like(ordered[..., :1]), climbed], dim=-1)
        mean = (levels.diff(dim=-1) * heights).sum(-1, keepdim=True)
        return PiecewiseLinear(ordered, heights + self.evaluate(values, weights).unsqueeze(-1) - mean, slopes)

    def _finite_slope(self, levels: Tensor) -> Tensor:
        """g' at each level `[..., N + 1]`.

        Where g' is infinite at 0 or 1, a sample cannot tell how much worse than its worst atom it may get: beyond that
        atom the mean slope of g over the atom's own weight is taken.
        """
        first = torch.where(levels > 0, levels, 1.0).amin(-1, keepdim=True)
        last = torch.where(levels < 1, levels, 0.0).amax(-1, keepdim=True)
        at_0 = self.distortion(first) / first
        at_1 = (1 - self.distortion(last)) / (1 - last)
        slope = self.distortion.slope(levels)
        slope = torch.where((levels == 0) & ~slope.isfinite(), at_0, slope)
        return torch.where((levels == 1) & ~slope.isfinite(), at_1, slope)

    @property
    def label(self) -> str:
        return self.distortion.label


def _sorted_distribution(values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Values in increasing order and the weight cumulated up to each, both `[..., N]`."""
    ordered, order = values.sort(dim=-1)
    cumulated = weights.gather(-1, order).cumsum(-1)
    # Divided by its end so that it ends at exactly 1, also where atoms of weight 0 come last.
    return ordered, cumulated / cumulated[..., -1:]
