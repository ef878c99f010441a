"""Many influence functions as one: the mean of u_j(offset_j + x) over laws j, for every row of points x.

Added up law by law, a mean over J laws costs J evaluations per point. But a sum of parabolas is a parabola, and a sum
of piecewise linear functions is piecewise linear: made once, either is then as cheap as a single law's. Both are kept
in double precision and centred, so that a common offset costs no digits.

Everywhere: offset and share `[J, L]`, shares sum to 1 over J, points x `[L, P]`, and the result is
Σ_j share[j, l] u_j(offset[j, l] + x[l, p]), shape and dtype of x, differentiable in x.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Pooled = Callable[[Tensor], Tensor]
"""Points x `[L, P]` to the mean of u_j(offset_j + x), `[L, P]`."""

_CHUNK = 1 << 15
"""Points that are evaluated at a time: scratch memory stays in cache."""


class LawByLaw:
    """Any u, by evaluating it at every law: the reference."""

    def __init__(self, u: Callable[[Tensor], Tensor], offset: Tensor, share: Tensor) -> None:
        self._u, self._offset, self._share = u, offset.unsqueeze(-1), share.unsqueeze(-1)

    def __call__(self, x: Tensor) -> Tensor:
        # [J, L, 1] + [L, P]
        laws = len(self._offset)
        return _by_columns(lambda part: (self._share * self._u(self._offset + part)).sum(0), x, 64 * _CHUNK // laws)


class Parabola:
    """u_j(y) = (y - centre_j)^2, centre `[J]`."""

    def __init__(self, centre: Tensor, offset: Tensor, share: Tensor) -> None:
        distance, share = offset.double() - centre.double().unsqueeze(-1), share.double()
        mean = (share * distance).sum(0)
        self._mean = mean.unsqueeze(-1)
        self._least = (share * (distance - mean).square()).sum(0).unsqueeze(-1)

    def __call__(self, x: Tensor) -> Tensor:
        return _by_columns(lambda part: (part + self._mean).square() + self._least, x)


class Polyline:
    """u_j through (knots, heights) `[J, M]`, knots sorted, with slopes `[J, M + 1]` before, between and after them."""

    def __init__(self, knots: Tensor, heights: Tensor, slopes: Tensor, offset: Tensor, share: Tensor) -> None:
        knots, heights, slopes = knots.double(), heights.double(), slopes.double()
        # [L, J, 1], and tables [L, J, M] of every law's knots as seen from its offset
        share, offset = share.double().T.unsqueeze(-1), offset.double().T.unsqueeze(-1)
        knots_seen = knots - offset
        self._centre = knots_seen.mean((1, 2)).unsqueeze(-1)
        knots_seen -= self._centre.unsqueeze(-1)

        # At each knot the slope changes and, where knots coincide or heights are rounded, so may the height.
        bend = share * slopes.diff(dim=-1)
        jump = heights.diff(dim=-1) - slopes[:, 1:-1] * knots.diff(dim=-1)
        jump = share * torch.cat([torch.zeros_like(heights[:, :1]), jump], dim=-1)
        # Lines a + b x in order of their pieces: the outermost left one, to which every knot adds.
        leftmost = heights[:, :1] - slopes[:, :1] * knots_seen[..., :1]
        self._knots, order = knots_seen.flatten(1).contiguous().sort(dim=-1)
        self._height = _cumulated(share * leftmost, (jump - bend * knots_seen).flatten(1).gather(-1, order))
        self._slope = _cumulated(share * slopes[:, :1], bend.flatten(1).gather(-1, order))

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


def _cumulated(first: Tensor, increments: Tensor) -> Tensor:
    """Sums of `first` `[L, J, 1]` over J and of the first 0 ... K increments `[L, K]`, `[L, K + 1]`."""
    return torch.cat([first.sum(1), increments], dim=-1).cumsum(-1)
