"""Quantile levels: where a distribution is looked at, and what each look counts.

A distribution is stood for by its quantiles at the midpoints of strata of [0, 1], each weighing what its stratum is
wide. Strata of equal width serve a mean or a variance. A CVaR of the worst hundredth would be left with a third of one
of 32 atoms; the paper therefore draws its levels from [0, α] (section 5.2). Here half of the strata lie in the tail
that the measure looks at, the narrower the further out:

    edges of the tail    e_k = c (k/K)²,  k = 0 … K,      c such that α is the midpoint of the last stratum,

so that the α-quantile itself is one of the atoms; the rest of [0, 1] is shared equally by the other strata.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from portfolio_sdpo.risk import RiskMeasure

WIDEST = 0.1
"""A tail that is as wide as this needs no levels of its own."""

Tail = tuple[Literal["lower", "upper"], float]
"""A side of the distribution, and the fraction α of it outside of which a measure does not look."""


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
