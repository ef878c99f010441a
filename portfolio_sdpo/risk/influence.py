"""Influence functions: what one more unit of probability at y does to a risk measure, to first order.

For a distribution P and a risk measure rho, u(y) = rho(P) + d/de rho((1 - e) P + e delta_y) at e = 0. The shift by
rho(P) makes E_P[u(Y)] = rho(P), and the policy gradient of rho is the policy gradient of the expectation of u.

The second half pools many influence functions into one: the mean of u_j(offset_j + x) over distributions j, for every
row of points x. Evaluated one by one, a mean over J distributions costs J evaluations per point. But a sum of parabolas
is a parabola, and a sum of piecewise linear functions is piecewise linear: built once, either is then as cheap as that
of a single distribution. Both are kept in double precision and centred, so that a common offset costs no digits.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from portfolio_sdpo.errors import SettingsError

GRID = 257
"""Points on which the autograd influence is evaluated besides the distribution's own atoms."""
REACH = 0.25
"""How far that grid reaches beyond the distribution's range on each side, as a fraction of the range."""
LEAST_REACH = 0.01
"""The same for a distribution that is (almost) a single point x, as a fraction of 1 + |x|."""

MOST_KNOTS = 1 << 22
"""Pooled, piecewise linear functions keep all their knots for every offset, unless that takes more memory than this."""

Pooled = Callable[[Tensor], Tensor]
"""Points x `[L, P]` to the mean of u_j(offset_j + x), `[L, P]`."""

_CHUNK = 1 << 15
"""Points that are evaluated at a time: scratch memory stays in cache."""


class Influence(ABC):
    """The influence function of a risk measure at a batch of distributions, detached from any graph.

    Called on y `[*batch, ..., K]` it gives u(y) of the same shape and dtype: the dimensions of the batch of
    distributions come first in y (each may also be 1), and every further dimension of y is evaluated under the same
    distribution. A y with too few dimensions for that, such as `[K]`, is evaluated under every distribution and gives
    `[*batch, K]`.

    >>> from portfolio_sdpo.risk import Variance
    >>> distribution = torch.tensor([[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]])  # two distributions
    >>> Variance().influence(distribution)(torch.zeros(2, 100, 32)).shape
    torch.Size([2, 100, 32])
    """

    @abstractmethod
    def __call__(self, y: Tensor) -> Tensor:
        """u(y), shape and dtype of y."""

    def pool(self, offset: Tensor, share: Tensor) -> Pooled:
        """Σ_j share[j, l] u_jl(offset[j, l] + x[l, p]) as a function of points x `[L, P]`, differentiable in x.

        offset, share: `[J, L]`; shares sum to 1 over J. This batch of distributions is `[J, L]`, and either may be 1:
        `[J, 1]` has one u for every j, `[1, L]` one for every row.
        """
        return PooledInfluence(self, offset, share)

    @abstractmethod
    def take(self, index: Tensor) -> Self:
        """Those of the distributions `index`, of any shape, of a batch with one dimension."""


class ClosedForm(Influence):
    """u(y) = formula(y, *parameters), each parameter `[*batch]`."""

    def __init__(self, formula: Callable[..., Tensor], *parameters: Tensor) -> None:
        self._formula = formula
        self._parameters = [parameter.detach() for parameter in parameters]

    def __call__(self, y: Tensor) -> Tensor:
        return self._formula(y, *(_against(y, parameter) for parameter in self._parameters))

    def take(self, index: Tensor) -> Self:
        return type(self)(self._formula, *(parameter[index] for parameter in self._parameters))


class Quadratic(Influence):
    """u(y) = (y - centre)^2, centre `[*batch]`."""

    def __init__(self, centre: Tensor) -> None:
        self._centre = centre.detach()

    def __call__(self, y: Tensor) -> Tensor:
        return (y - _against(y, self._centre)).square()

    def pool(self, offset: Tensor, share: Tensor) -> Pooled:
        return Parabola(self._centre, offset, share)

    def take(self, index: Tensor) -> Self:
        return type(self)(self._centre[index])


class PiecewiseLinear(Influence):
    """Linear between sorted `knots` `[*batch, M]`, where it takes `heights` `[*batch, M]`.

    `slopes` `[*batch, M + 1]` are those left of the first knot, between knots, and right of the last one.
    """

    def __init__(self, knots: Tensor, heights: Tensor, slopes: Tensor) -> None:
        self._knots, self._heights, self._slopes = knots.detach(), heights.detach(), slopes.detach()

    def __call__(self, y: Tensor) -> Tensor:
        batch = self._knots.shape[:-1]
        if len(batch) == 2 and batch[0] == 1 and y.dim() > 2:
            # One function for a whole column of y: more points under it, rather than more copies of its knots.
            return PiecewiseLinear(self._knots[0], self._heights[0], self._slopes[0])(y.transpose(0, 1)).transpose(0, 1)
        y = y.reshape((1,) * (len(batch) + 1 - y.dim()) + y.shape)
        batch = broadcast_shape(batch, y.shape[: len(batch)])
        shape = batch + y.shape[len(batch) :]

        # One row per distribution: knots, heights [B, M], slopes [B, M + 1], points [B, P].
        points = y.expand(shape).reshape(batch.numel(), -1)
        knots, heights, slopes = (
            table.to(y.dtype).expand(*batch, table.shape[-1]).reshape(batch.numel(), -1)
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

    def take(self, index: Tensor) -> Self:
        return type(self)(self._knots[index], self._heights[index], self._slopes[index])


class PooledInfluence:
    """Any u, by evaluating it at every distribution: the reference."""

    def __init__(self, u: Callable[[Tensor], Tensor], offset: Tensor, share: Tensor) -> None:
        self._u, self._offset, self._share = u, offset.unsqueeze(-1), share.unsqueeze(-1)

    def __call__(self, x: Tensor) -> Tensor:
        # [J, L, 1] + [L, P]
        count = len(self._offset)
        return _by_columns(lambda part: (self._share * self._u(self._offset + part)).sum(0), x, 64 * _CHUNK // count)


class Parabola:
    """u(y) = (y - centre)^2, centre `[J, L]`."""

    def __init__(self, centre: Tensor, offset: Tensor, share: Tensor) -> None:
        distance, share = offset.double() - centre.double(), share.double()
        mean = (share * distance).sum(0)
        self._mean = mean.unsqueeze(-1)
        self._least = (share * (distance - mean).square()).sum(0).unsqueeze(-1)

    def __call__(self, x: Tensor) -> Tensor:
        return _by_columns(lambda part: (part + self._mean).square() + self._least, x)


class Polyline:
    """u through (knots, heights) `[J, L, M]`, knots sorted, with slopes `[J, L, M + 1]` before, between and after."""

    def __init__(self, knots: Tensor, heights: Tensor, slopes: Tensor, offset: Tensor, share: Tensor) -> None:
        # [L, J, ·]
        knots, heights, slopes = (table.double().transpose(0, 1) for table in (knots, heights, slopes))
        # [L, J, 1], and tables [L, J, M] of every distribution's knots as seen from its offset
        share, offset = share.double().T.unsqueeze(-1), offset.double().T.unsqueeze(-1)
        knots_seen = knots - offset
        self._centre = knots_seen.mean((1, 2)).unsqueeze(-1)
        knots_seen -= self._centre.unsqueeze(-1)

        # At each knot the slope changes and, where knots coincide or heights are rounded, so may the height.
        bend = share * slopes.diff(dim=-1)
        jump = heights.diff(dim=-1) - slopes[..., 1:-1] * knots.diff(dim=-1)
        jump = share * torch.cat([torch.zeros_like(heights[..., :1]), jump], dim=-1)
        # Lines a + b x in order of their pieces: the outermost left one, to which every knot adds.
        leftmost = heights[..., :1] - slopes[..., :1] * knots_seen[..., :1]
        self._knots, order = knots_seen.flatten(1).contiguous().sort(dim=-1)
        self._height = _cumulate(share * leftmost, (jump - bend * knots_seen).flatten(1).gather(-1, order))
        self._slope = _cumulate(share * slopes[..., :1], bend.flatten(1).gather(-1, order))

    def __call__(self, x: Tensor) -> Tensor:
        return _by_columns(self._lines, x)

    def _lines(self, x: Tensor) -> Tensor:
        x = (x - self._centre).contiguous()
        piece = torch.searchsorted(self._knots, x.detach(), right=True)
        return torch.addcmul(self._height.gather(-1, piece), self._slope.gather(-1, piece), x)


def _by_columns(function: Pooled, x: Tensor, points: int = _CHUNK) -> Tensor:
    """The function of x `[L, P]`, in its dtype, on about so many points at a time."""
    parts = torch.split(x, max(1, points // len(x)), dim=-1)
    return torch.cat([function(part).to(x.dtype) for part in parts], dim=-1)


def _cumulate(first: Tensor, increments: Tensor) -> Tensor:
    """Sums of `first` `[L, J, 1]` over J and of the first 0 ... K increments `[L, K]`, `[L, K + 1]`."""
    return torch.cat([first.sum(1), increments], dim=-1).cumsum(-1)


def influence_by_autograd(
    measure: Callable[[Tensor, Tensor], Tensor], values: Tensor, weights: Tensor, owner: str
) -> PiecewiseLinear:
    """The influence function of any differentiable measure, interpolated between points of weight zero.

    The distribution `values`, `weights` `[..., N]` gets `GRID` further atoms of weight 0. The derivative of
    rho(w / sum(w)) with respect to each weight is the Gateaux derivative towards that atom, and its mean under the
    distribution is 0.
    """
    low, high = values.amin(-1, keepdim=True), values.amax(-1, keepdim=True)
    least = LEAST_REACH * (1 + torch.maximum(low.abs(), high.abs()))
    reach = torch.maximum(REACH * (high - low), least)
    steps = torch.linspace(0, 1, GRID, dtype=values.dtype, device=values.device)
    grid = (low - reach) + steps * (high - low + 2 * reach)

    # The distribution's own atoms are knots too, so that the mean of u under the distribution is rho exactly.
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
    """A parameter `[*batch]` as `[*batch, 1, ..., 1]`, ready to meet y `[*batch, ..., K]`."""
    ones = (1,) * max(1, y.dim() - parameter.dim())
    return parameter.to(y.dtype).reshape(parameter.shape + ones)
