"""Quantiles: the levels at which a distribution is looked at, and the loss by which a critic learns its quantiles.

Levels: a distribution is stood for by its quantiles at the midpoints of strata of [0, 1], each weighing what its
stratum is wide. Strata of equal width serve a mean or a variance. A CVaR of the worst hundredth would be left with a
third of one of 32 atoms; the paper therefore draws its levels from [0, α] (section 5.2). Here half of the strata lie in
the tail that the measure looks at, the narrower the further out:

    edges of the tail    e_k = c (k/K)²,  k = 0 … K,      c such that α is the midpoint of the last stratum,

so that the α-quantile itself is one of the atoms; the rest of [0, 1] is shared equally by the other strata.

Loss: the quantile Huber loss of implicit quantile networks takes O(N log N) here instead of O(N·M) per row. For the
quantile estimates p_1..p_N at levels τ_1..τ_N and the target samples T_1..T_M of one row, the paper's L_IQN is

    L = Σ_i (1/M) Σ_j ξ(τ_i, T_j − p_i),        ξ(τ, δ) = |τ − 1{δ < 0}| · H(δ) / κ,

    H(δ) = δ²/2 where |δ| ≤ κ,  κ(|δ| − κ/2) elsewhere;

a mean over targets, a sum over quantiles (as in IQN; the paper writes both counts as N), and here a mean over rows.

`pairwise_quantile_huber_loss` is that formula as written: it builds the table of all T_j − p_i.
`quantile_huber_loss` does not. Seen from p_i the sorted targets fall into four runs, cut at p_i − κ, p_i and p_i + κ:

            targets      T < p−κ     p−κ ≤ T < p     p ≤ T ≤ p+κ     T > p+κ
            weight         1−τ           1−τ              τ             τ
            ξ / weight   p−T−κ/2      (p−T)²/2κ       (p−T)²/2κ      T−p−κ/2

and the sum over a run needs only its size, Σ T and Σ T²: differences of prefix sums at the three cuts. Since ξ is
continuously differentiable in δ except at 0, where both sides vanish, a target that lies on a cut may be counted on
either side. Prefix sums are kept in double precision and centred per row: a common offset costs no digits.

κ = 0 is the limit of plain quantile regression, ξ(τ, δ) = |τ − 1{δ < 0}| · |δ|: one cut instead of three, and less than
half the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.risk import RiskMeasure

WIDEST = 0.1
"""A tail that is as wide as this needs no levels of its own."""

Tail = tuple[Literal["lower", "upper"], float]
"""A side of the distribution, and the fraction α of it outside of which a measure does not look."""

_BLOCK = 1 << 15
"""Rows are handled in blocks of this many cuts and targets: the scratch memory (about 2 MB) stays in cache, and torch
does not split such small operations over threads, which on busy cores would mostly wait for each other."""


@dataclass(frozen=True)
class Levels:
    """Where quantiles are read."""

    tau: Tensor
    """[N] ascending"""
    weight: Tensor | None
    """[N] what each counts, in total 1; None: all the same"""


def find_tails(measures: Sequence[RiskMeasure]) -> tuple[Tail, ...]:
    """The narrow tails that these measures look at, each once.

    >>> from portfolio_sdpo.risk import CVaR, Variance
    >>> find_tails([Variance(), CVaR(alpha=0.01), CVaR(alpha=0.5)])
    (('lower', 0.01),)
    """
    tails = [measure.narrow_tail for measure in measures]
    return tuple(dict.fromkeys(tail for tail in tails if tail is not None and tail[1] < WIDEST))


def midpoints(count: int) -> Tensor:
    """Levels (k + ½)/count [count]: the quantiles at them, equally weighted, stand for the distribution."""
    return (torch.arange(count) + 0.5) / count


def place_levels(count: int, tails: Sequence[Tail] = ()) -> Levels:
    """`count` levels, half of them in the tails; midpoints where there are none, or too few levels to share out.

    >>> place_levels(4).tau
    tensor([0.1250, 0.3750, 0.6250, 0.8750])
    >>> place_levels(8, [("lower", 0.1)]).tau
    tensor([0.0040, 0.0200, 0.0520, 0.1000, 0.2370, 0.4550, 0.6730, 0.8910])
    """
    each = count // (2 * max(len(tails), 1))
    if not tails or each < 2:
        return Levels(midpoints(count), None)
    low, high, inner = 0.0, 1.0, [torch.tensor([0.0, 1.0], dtype=torch.float64)]
    for side, fraction in tails:
        last = 2 * fraction / (1 + ((each - 1) / each) ** 2)
        own = last * (torch.arange(1, each + 1, dtype=torch.float64) / each).square()
        inner.append(own if side == "lower" else 1 - own)
        low, high = (max(low, last), high) if side == "lower" else (low, min(high, 1 - last))
    edges = [*inner, torch.linspace(low, high, count - each * len(tails) + 1, dtype=torch.float64)]
    every = torch.cat(edges).sort().values.unique_consecutive()  # type: ignore[no-untyped-call]
    return Levels(((every[1:] + every[:-1]) / 2).float(), every.diff().float())


def draw_levels(count: int, tails: Sequence[Tail], generator: torch.Generator) -> Tensor:
    """`count` random levels in ascending order, from [0, 1] and, of each tail, as many as `place_levels` puts there."""
    tau = torch.rand(count, generator=generator)
    each = count // (2 * max(len(tails), 1))
    for index, (side, fraction) in enumerate(tails):
        part = slice(index * each, (index + 1) * each)
        tau[part] = fraction * tau[part] if side == "lower" else 1 - fraction * tau[part]
    return tau.sort().values


def expect(values: Tensor, weight: Tensor | None) -> Tensor:
    """The mean of quantiles [..., N] at levels of these weights [N], [...]."""
    return values.mean(-1) if weight is None else (values * weight.to(values.dtype)).sum(-1)


def quantile_huber_loss(pred: Tensor, tau: Tensor, target: Tensor, kappa: float = 1.0) -> Tensor:
    """The quantile Huber loss []: mean over targets, sum over quantiles, mean over rows. It can be differentiated once.

    Parameters
    ----------
    pred : Tensor [..., N]
        Quantile estimates, in any order; the only argument that receives a gradient.
    tau : Tensor, broadcastable to [..., N]
        The levels in (0, 1] at which `pred` estimates; `[N]` when all rows share one draw.
    target : Tensor [..., M]
        Samples of the distribution to be learned; M may differ from N.
    kappa : float
        Where the Huber loss turns from quadratic to linear; 0 is plain quantile regression.

    Examples
    --------
    >>> pred = torch.tensor([[0.0, 1.0]], requires_grad=True)
    >>> loss = quantile_huber_loss(pred, torch.tensor([0.25, 0.75]), torch.tensor([[0.5, 3.0]]))
    >>> loss.backward()
    >>> loss.item(), pred.grad.tolist()
    (0.90625, [[-0.1875, -0.3125]])
    """
    _check(pred, tau, target, kappa)
    loss: Tensor = _QuantileHuberLoss.apply(pred, tau, target, float(kappa))  # type: ignore[no-untyped-call]
    return loss


def pairwise_quantile_huber_loss(pred: Tensor, tau: Tensor, target: Tensor, kappa: float = 1.0) -> Tensor:
    """The same loss from the table of all differences, [..., N, M]: the reference that tests compare with."""
    _check(pred, tau, target, kappa)
    # [..., N, M]
    delta = target.detach().to(pred.dtype).unsqueeze(-2) - pred.unsqueeze(-1)
    distance = delta.abs()
    weight = (tau.detach().to(pred.dtype).unsqueeze(-1) - (delta < 0).to(pred.dtype)).abs()
    if kappa == 0:
        return (weight * distance).mean(-1).sum(-1).mean()
    huber = torch.where(distance <= kappa, 0.5 * delta.square(), kappa * (distance - 0.5 * kappa))
    return (weight * huber / kappa).mean(-1).sum(-1).mean()


class _QuantileHuberLoss(torch.autograd.Function):
    """Forward computes the gradient as well, from the same run sums as the loss, and saves one tensor [..., N]."""

    @staticmethod
    def forward(ctx: Any, pred: Tensor, tau: Tensor, target: Tensor, kappa: float) -> Tensor:
        n, m = pred.shape[-1], target.shape[-1]
        # [R, N], [R or 1, N], [R, M]
        rows, targets = pred.reshape(-1, n), target.reshape(-1, m)
        levels = tau.reshape(1, -1) if tau.ndim <= 1 else tau.expand(pred.shape).reshape(-1, n)
        gradient = torch.empty_like(rows, memory_format=torch.contiguous_format)
        total = torch.zeros((), dtype=torch.float64, device=pred.device)
        scale = 1.0 / (m * rows.shape[0])
        for block, evaluate in _blocks(rows, targets, kappa):
            level = levels if levels.shape[0] == 1 else levels[block]
            loss, slope = evaluate(rows[block], level, targets[block], kappa)
            total += loss.sum()
            gradient[block] = slope.mul_(scale).to(gradient.dtype)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(gradient.view(pred.shape))
        return total.mul_(scale).to(pred.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad_output, None, None, None


_Evaluation = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]


def _blocks(rows: Tensor, targets: Tensor, kappa: float) -> Iterator[tuple[slice | Tensor, _Evaluation]]:
    """Blocks of rows, and how each is evaluated.

    Where no target of a row is farther than κ from any prediction, the runs outside p ± κ are empty: one cut is enough.
    """
    n, m = rows.shape[-1], targets.shape[-1]
    if kappa == 0:
        step = max(1, 2 * _BLOCK // (n + m))
        for start in range(0, len(rows), step):
            yield slice(start, start + step), _plain_loss_and_slope
        return
    low, high = torch.minimum(rows.amin(-1), targets.amin(-1)), torch.maximum(rows.amax(-1), targets.amax(-1))
    close = high - low <= kappa
    for part, evaluate, cuts in ((close, _square_loss_and_slope, 1), (~close, _loss_and_slope, 3)):
        if part.any():
            for block in torch.split(part.nonzero().squeeze(-1), max(1, _BLOCK // (cuts * n + m))):
                yield block, evaluate


def _loss_and_slope(pred: Tensor, tau: Tensor, target: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
    """Σ_j ξ(τ_i, T_j − p_i) and its derivative in p_i, both [R, N] in double, for pred [R, N] and target [R, M]."""
    m = target.shape[-1]
    t, p, prefix = _centre(pred, target)
    # How many targets lie before each cut, and their sums: [R, 3N] = the cuts p+κ, p−κ, p side by side.
    rank = _ranks(t, p, kappa)
    count_up, count_low, count_mid = rank.double().chunk(3, -1)
    sum_up, sum_low, sum_mid = prefix[0].gather(-1, rank).chunk(3, -1)
    square_up, square_low, square_mid = prefix[1].gather(-1, rank).chunk(3, -1)

    # The two quadratic runs: Σ (p−T) and Σ (p−T)² = p·(Σ (p−T) − Σ T) + Σ T².
    run = sum_mid - sum_low
    slope_low = (count_mid - count_low).mul_(p).sub_(run)
    loss_low = (square_mid - square_low).addcmul_(slope_low - run, p)
    run = sum_up - sum_mid
    slope_up = (count_up - count_mid).mul_(p).sub_(run)
    loss_up = (square_up - square_mid).addcmul_(slope_up - run, p)

    # ... and the two linear ones: Σ (p−T−κ/2) below, Σ (T−p−κ/2) above.
    loss_low.mul_(0.5 / kappa).sub_(sum_low).addcmul_(count_low, p - 0.5 * kappa)
    slope_low.mul_(1.0 / kappa).add_(count_low)
    above = m - count_up
    loss_up.mul_(0.5 / kappa).sub_(sum_up).add_(prefix[0, :, -1:]).addcmul_(above, p + 0.5 * kappa, value=-1.0)
    slope_up.mul_(1.0 / kappa).sub_(above)

    # (1−τ)·low + τ·up
    weight = tau.double().expand_as(p)
    return torch.lerp(loss_low, loss_up, weight), torch.lerp(slope_low, slope_up, weight)


def _square_loss_and_slope(pred: Tensor, tau: Tensor, target: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
    """`_loss_and_slope` where |T_j − p_i| ≤ κ everywhere: (1−τ)·Σ (p−T)²/2κ below p and τ·Σ (p−T)²/2κ above it."""
    t, p, prefix = _centre(pred, target)
    rank = _ranks(t, p)
    run = prefix[0].gather(-1, rank)
    slope_low = rank.double().mul_(p).sub_(run)
    loss_low = prefix[1].gather(-1, rank).addcmul_(slope_low - run, p)
    # Σ over all targets of (p−T) and of (p−T)², of which the run above p is what the run below it leaves.
    total = prefix[0, :, -1:]
    slope = (target.shape[-1] * p).sub_(total)
    loss = (slope - total).mul_(p).add_(prefix[1, :, -1:])
    weight = tau.double().expand_as(p)
    slope = torch.lerp(slope_low, slope.sub_(slope_low), weight)
    loss = torch.lerp(loss_low, loss.sub_(loss_low), weight)
    return loss.mul_(0.5 / kappa), slope.mul_(1.0 / kappa)


def _centre(pred: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sorted targets [R, M] and predictions [R, N] less the targets' median; Σ T, Σ T² of the first k, [2, R, M+1]."""
    m = target.shape[-1]
    t = _sort_rows(target).double()
    centre = t[:, m // 2, None].clone()
    t.sub_(centre)
    prefix = t.new_zeros(2, *t.shape[:-1], m + 1)
    torch.cumsum(t, -1, out=prefix[0, :, 1:])
    torch.cumsum(t.square(), -1, out=prefix[1, :, 1:])
    return t, pred.double() - centre, prefix


def _plain_loss_and_slope(pred: Tensor, tau: Tensor, target: Tensor, kappa: float = 0.0) -> tuple[Tensor, Tensor]:
    """`_loss_and_slope` at κ = 0: Σ_j of (1−τ)(p−T) below p and τ(T−p) above it; the loss may already be the sum."""
    m = target.shape[-1]
    if pred.device.type == "cpu" and pred.dtype == target.dtype == torch.float32 and pred.shape[-1] + m < 1 << 30:
        return _plain_by_sorting(pred, tau, target)
    t, p, prefix = _centre(pred, target)
    # [R, N]: how many targets lie below p, and their sum
    rank = torch.searchsorted(t, p)
    below, sum_below = rank.double(), prefix[0].gather(-1, rank)
    weight = tau.double()
    # (1−τ)·low + τ·up with low = below·p − sum_below and up = low + total − m·p
    loss = (below * p).sub_(sum_below).add_(weight * (prefix[0, :, -1:] - m * p))
    return loss, below.sub_(m * weight)


def _plain_by_sorting(pred: Tensor, tau: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The loss [] and its slope [R, N] from one sort of predictions and targets together, in half the time.

    The slope of a p is the number of targets below it, minus τM. The weight of a T is the number of p that are not
    above it, minus a constant. The loss is the sum of all values times these slopes and weights. Sorting keys hold the
    bits of the float, changed so that they order as integers do, above the value's column: ranks are exact, and of
    equal values p comes first.
    """
    n, m = pred.shape[-1], target.shape[-1]
    width = n + m
    bits = width.bit_length()
    # [R, N+M]; adding 0 clears the sign of −0.0.
    values = np.empty((pred.shape[0], width), dtype=np.float32)
    np.add(pred.detach().numpy(), 0, out=values[:, :n])
    np.add(target.detach().numpy(), 0, out=values[:, n:])
    pattern = values.view(np.int32)
    order = pattern >> 31
    order &= 0x7FFFFFFF
    order ^= pattern
    keys = order.astype(np.int64)
    keys <<= bits
    keys |= np.arange(width)
    keys.sort(axis=-1)
    keys &= (1 << bits) - 1

    # Of the first k values b are targets and c are not: from b − c and b + c = k follows b for every p, c for every T.
    side = (keys >= n).astype(np.int32)
    side <<= 1
    side -= 1
    count = torch.from_numpy(side).cumsum(-1, dtype=torch.int32).numpy()
    count *= side
    np.subtract(np.arange(1, width + 1, dtype=np.int32), count, out=count)
    count >>= 1
    weight = (
        torch.from_numpy(np.empty_like(count)).scatter_(-1, torch.from_numpy(keys), torch.from_numpy(count)).double()
    )
    level = tau.double()
    weight[:, :n] -= m * level
    weight[:, n:] += level.sum(-1, keepdim=True) - n
    return torch.dot(torch.from_numpy(values).double().view(-1), weight.view(-1)), weight[:, :n]


def _sort_rows(values: Tensor) -> Tensor:
    """Each row in ascending order. On the CPU, NumPy's vectorised sort takes a tenth of the time of torch's."""
    if values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(np.sort(values.detach().numpy(), axis=-1))
    return values.detach().double().sort(-1).values


def _ranks(t: Tensor, p: Tensor, kappa: float | None = None) -> Tensor:
    """How many of the sorted t [R, M] lie before each cut: [R, N] for the cuts p, [R, 3N] for p+κ, p−κ and p."""
    bits = (t.shape[-1] + (1 if kappa is None else 3) * p.shape[-1]).bit_length()
    if t.device.type == "cpu" and bits <= 20:
        return _ranks_by_sorting(t, p, kappa, bits)
    return _ranks_by_searching(t, p, kappa)


def _ranks_by_searching(t: Tensor, p: Tensor, kappa: float | None) -> Tensor:
    return torch.searchsorted(t, p if kappa is None else torch.cat([p + kappa, p - kappa, p], -1))


def _ranks_by_sorting(t: Tensor, p: Tensor, kappa: float | None, bits: int) -> Tensor:
    """Ranks from one sort of all targets and cuts together; on the CPU two to three times faster than binary searches.

    A row's values are shifted to be non-negative, where doubles order like the integers made of the same bits, and the
    low mantissa bits are replaced by a label, the value's column, which later says where each rank belongs. At
    N = M = 128 the remaining resolution is 2⁻⁴² of the row's range: closer values may be swapped, which does not change
    the loss noticeably, because it is smooth there.
    """
    n = p.shape[-1]
    cuts = n if kappa is None else 3 * n
    width = cuts + t.shape[-1]
    mask = (1 << bits) - 1
    low, high = t[:, :1], t[:, -1:]
    # [R, 3N+M]: columns p+κ, p−κ, p, t. Cuts beyond the outermost targets move there: a huge κ costs no resolution.
    keys = torch.empty(*t.shape[:-1], width, dtype=torch.float64)
    if kappa is not None:
        torch.minimum(p + kappa, high, out=keys[:, :n])
        torch.maximum(p - kappa, low, out=keys[:, n : 2 * n])
    keys[:, cuts - n : cuts] = p
    keys[:, cuts:] = t
    keys.sub_(torch.minimum(low, p.amin(-1, keepdim=True)))

    # Equal values must be sorted as p−κ, p, t, p+κ, so that a moved cut stays outside: label = column − n, cyclic.
    first = 0 if kappa is None else n
    label = (torch.arange(width) - first) & mask
    unsigned = torch.iinfo(torch.int64).max  # clears the sign of −0.0
    column = keys.view(torch.int64).bitwise_and_(unsigned & ~mask).bitwise_or_(label)
    column.numpy().sort(axis=-1)
    column.add_(first).bitwise_and_(mask)
    before = (column >= cuts).cumsum(-1)
    return torch.empty_like(before).scatter_(-1, column, before)[:, :cuts]


def _check(pred: Tensor, tau: Tensor, target: Tensor, kappa: float) -> None:
    if not (math.isfinite(kappa) and kappa >= 0):
        raise SettingsError(f"kappa: must be finite and not negative (got {kappa!r}).")
    for name, tensor in (("pred", pred), ("target", target)):
        if tensor.ndim == 0 or tensor.numel() == 0:
            raise ValueError(f"{name} needs at least one dimension and one element (got shape {list(tensor.shape)}).")
        if not tensor.is_floating_point():
            raise ValueError(f"{name} must hold floating-point numbers (got {tensor.dtype}).")
    if pred.shape[:-1] != target.shape[:-1]:
        raise ValueError(
            f"pred and target must agree in all dimensions but the last "
            f"(got {list(pred.shape)} and {list(target.shape)})."
        )
    fits = tau.ndim <= pred.ndim and all(
        size in (1, full) for size, full in zip(reversed(tau.shape), reversed(pred.shape), strict=False)
    )
    if not fits:
        raise ValueError(f"tau of shape {list(tau.shape)} does not broadcast to pred of shape {list(pred.shape)}.")
