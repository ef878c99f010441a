"""Influence functions: what one more unit of probability at y does to a risk measure, to first order.

For a law P and a risk measure rho, u(y) = rho(P) + d/de rho((1 - e) P + e delta_y) at e = 0. The shift by rho(P) makes
E_P[u(Y)] = rho(P), and the policy gradient of rho is the policy gradient of the expectation of u (design, section 4).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.risk.pooling import LawByLaw, Parabola, Polyline, Pooled

GRID = 257
"""Points on which the autograd influence is evaluated besides the law's own atoms."""
REACH = 0.25
"""How far that grid reaches beyond the law's range on each side, as a fraction of the range."""
LEAST_REACH = 0.01
"""The same for a law that is (almost) a single point x, as a fraction of 1 + |x|."""

MOST_KNOTS = 1 << 22
"""Pooled, piecewise linear functions keep all their knots for every offset, unless that takes more memory than this."""


class Influence(ABC):
    """The influence function of a risk measure at a batch of laws, detached from any graph.

    Called on y `[*laws, ..., K]` it gives u(y) of the same shape and dtype: the dimensions of the batch of laws come
    first in y (each may also be 1), and every further dimension of y meets the same law. A y with too few dimensions
    for that, such as `[K]`, is met by every law and gives `[*laws, K]`.

    >>> from portfolio_sdpo.risk import Variance
    >>> law = torch.tensor([[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]])  # two laws
    >>> Variance().influence(law)(torch.zeros(2, 100, 32)).shape
    torch.Size([2, 100, 32])
    """

    @abstractmethod
    def __call__(self, y: Tensor) -> Tensor:
        """u(y), shape and dtype of y."""

    def pool(self, offset: Tensor, share: Tensor) -> Pooled:
        """The mean over J laws `[J]`, weighted by `share` `[J, L]`, of u_j(offset + x), as a function of x `[L, P]`."""
        return LawByLaw(self, offset, share)


class ClosedForm(Influence):
    """u(y) = formula(y, *parameters), each parameter `[*laws]`."""

    def __init__(self, formula: Callable[..., Tensor], *parameters: Tensor) -> None:
        self._formula = formula
        self._parameters = [parameter.detach() for parameter in parameters]

    def __call__(self, y: Tensor) -> Tensor:
        return self._formula(y, *(_against(y, parameter) for parameter in self._parameters))


class Quadratic(Influence):
    """u(y) = (y - centre)^2, centre `[*laws]`."""

    def __init__(self, centre: Tensor) -> None:
        self._centre = centre.detach()

    def __call__(self, y: Tensor) -> Tensor:
        return (y - _against(y, self._centre)).square()

    def pool(self, offset: Tensor, share: Tensor) -> Pooled:
        return Parabola(self._centre, offset, share)


class PiecewiseLinear(Influence):
    """Linear between sorted `knots` `[*laws, M]`, where it takes `heights` `[*laws, M]`.

    `slopes` `[*laws, M + 1]` are those left of the first knot, between knots, and right of the last one.
    """

    def __init__(self, knots: Tensor, heights: Tensor, slopes: Tensor) -> None:
        self._knots, self._heights, self._slopes = knots.detach(), heights.detach(), slopes.detach()

    def __call__(self, y: Tensor) -> Tensor:
        laws = self._knots.shape[:-1]
        y = y.reshape((1,) * (len(laws) + 1 - y.dim()) + y.shape)
        laws = broadcast_shape(laws, y.shape[: len(laws)])
        shape = laws + y.shape[len(laws) :]

        # One row per law: knots, heights [B, M], slopes [B, M + 1], points [B, P].
        points = y.expand(shape).reshape(laws.numel(), -1)
        knots, heights, slopes = (
            table.to(y.dtype).expand(*laws, table.shape[-1]).reshape(laws.numel(), -1)
            for table in (self._knots, self._heights, self._slopes)
        )
        piece = torch.searchsorted(knots.contiguous(), points.detach().contiguous(), right=True)
        anchor = (piece - 1).clamp_min_(0)
        climbed = slopes.gather(-1, piece) * (points - knots.gather(-1, anchor))
        return (heights.gather(-1, anchor) + climbed).reshape(shape)

    def pool(self, offset: Tensor, share: Tensor) -> Pooled:
        if self._knots.shape[-1] * offset.numel() > MOST_KNOTS:
            return super().pool(offset, share)
        return Polyline(self._knots, self._heights, self._slopes, offset, share)


def influence_by_autograd(
    measure: Callable[[Tensor, Tensor], Tensor], values: Tensor, weights: Tensor, owner: str
) -> PiecewiseLinear:
    """The influence function of any differentiable measure, interpolated between points of weight zero.

    The law `values`, `weights` `[..., N]` gets `GRID` further atoms of weight 0. The derivative of rho(w / sum(w)) with
    respect to each weight is the Gateaux derivative towards that atom, and its mean under the law is 0.
    """
    low, high = values.amin(-1, keepdim=True), values.amax(-1, keepdim=True)
    least = LEAST_REACH * (1 + torch.maximum(low.abs(), high.abs()))
    reach = torch.maximum(REACH * (high - low), least)
    steps = torch.linspace(0, 1, GRID, dtype=values.dtype, device=values.device)
    grid = (low - reach) + steps * (high - low + 2 * reach)

    # The law's own atoms are knots too, so that the mean of u under the law is rho exactly.
    knots, order = torch.cat([values, grid], dim=-1).detach().sort(dim=-1)
    with torch.enable_grad():
        mass = torch.cat([weights.detach(), torch.zeros_like(grid)], dim=-1).gather(-1, order).requires_grad_()
        risk = measure(knots, mass / mass.sum(-1, keepdim=True))
        derivative = torch.autograd.grad(risk.sum(), mass, allow_unused=True)[0] if risk.requires_grad else None
    if derivative is None:
        raise SettingsError(f"{owner}: the value does not depend on the weights differentiably, so weight each sample.")
    if not derivative.isfinite().all():
        raise SettingsError(f"{owner}: the derivative with respect to a weight of zero must be finite.")

    heights = risk.unsqueeze(-1) + derivative
    width = knots.diff(dim=-1)
    # A piece of width 0, between equal atoms, contains no y: its slope is never read.
    inner = torch.where(width > 0, heights.diff(dim=-1) / width, 0.0)
    return PiecewiseLinear(knots, heights, torch.cat([inner[..., :1], inner, inner[..., -1:]], dim=-1))


def broadcast_shape(*shapes: torch.Size) -> torch.Size:
    """The shape that tensors of these shapes broadcast to."""
    return torch.Size(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]


def _against(y: Tensor, parameter: Tensor) -> Tensor:
    """A parameter `[*laws]` as `[*laws, 1, ..., 1]`, ready to meet y `[*laws, ..., K]`."""
    ones = (1,) * max(1, y.dim() - parameter.dim())
    return parameter.to(y.dtype).reshape(parameter.shape + ones)
