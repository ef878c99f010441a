"""The mean of many influence functions, made once, against evaluating each of them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from portfolio_sdpo.risk import Custom, CVaR, Entropic, Expectation, Power, RiskMeasure, Spectral, Variance, Wang
from portfolio_sdpo.risk import influence as influence_module
from portfolio_sdpo.risk.influence import Parabola, Polyline, PooledInfluence


def deviation(values: Tensor, weights: Tensor) -> Tensor:
    """Standard deviation, with a slope where all values are equal too."""
    mean = (weights * values).sum(-1, keepdim=True)
    return ((weights * (values - mean).square()).sum(-1) + 1e-2).sqrt()


MEASURES = {
    CVaR(alpha=0.3): Polyline,
    CVaR(alpha=0.1, tail="upper"): Polyline,
    Variance(): Parabola,
    Spectral(distortion=Wang(shift=0.5)): Polyline,
    Spectral(distortion=Power(exponent=2.5)): Polyline,
    Custom(function=deviation): Polyline,
    Entropic(beta=-0.2): PooledInfluence,
    Expectation(): PooledInfluence,
}
EACH = pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.label)


def draw(
    seed: int, distributions: int, steps: int, points: int, ties: bool, offset: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Distributions [J, 1, 7], offsets and shares [J, L] of which some are 0, and points [L, P]."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        values = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return values.round() if ties else values

    share = torch.rand(distributions, steps, generator=generator, dtype=torch.float64)
    share = torch.where(share < 0.3, 0.0, share)
    share[-1] += 0.1
    return (
        2 * normal(distributions, 1, 7),
        offset + 3 * normal(distributions, steps),
        share / share.sum(0),
        4 * normal(steps, points) - offset,
    )


@EACH
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    distributions=st.integers(1, 6),
    steps=st.integers(1, 5),
    points=st.integers(1, 8),
    ties=st.booleans(),
    offset=st.sampled_from([0.0, -1e3, 1e4]),
)
def test_equals_the_mean_law_by_law(measure: RiskMeasure, seed, distributions, steps, points, ties, offset):
    distribution, offsets, share, x = draw(seed, distributions, steps, points, ties, offset)
    influence = measure.influence(distribution)
    pooled = influence.pool(offsets, share)
    assert type(pooled) is MEASURES[measure]
    reference = PooledInfluence(influence, offsets, share)(x)
    torch.testing.assert_close(pooled(x), reference, rtol=1e-9, atol=1e-9 * max(1.0, abs(offset)))


@EACH
def test_every_row_may_have_its_own_distribution(measure):
    _, offsets, share, x = draw(4, 5, 6, 8, ties=False, offset=2.0)
    distribution = torch.randn(6, 7, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    influence = measure.influence(distribution)
    expected = [
        (share[:, row, None] * measure.influence(distribution[row])(offsets[:, row, None] + x[row])).sum(0)
        for row in range(6)
    ]
    for pooled in (
        influence.take(torch.arange(6).unsqueeze(0)).pool(offsets, share),
        PooledInfluence(influence.take(torch.arange(6).unsqueeze(0)), offsets, share),
    ):
        torch.testing.assert_close(pooled(x), torch.stack(expected), rtol=1e-9, atol=1e-9)


@EACH
def test_single_precision_keeps_its_digits_at_a_large_offset(measure):
    distribution, offsets, share, x = draw(0, 5, 4, 50, ties=False, offset=300.0)
    truth = PooledInfluence(measure.influence(distribution), offsets, share)(x)
    single = measure.influence(distribution.float()).pool(offsets.float(), share.float())(x.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), truth, rtol=1e-3, atol=1e-3)


@EACH
def test_its_derivative_is_the_mean_derivative(measure):
    distribution, offsets, share, x = draw(1, 4, 3, 20, ties=False, offset=0.0)
    influence = measure.influence(distribution)
    slopes = []
    for pooled in (influence.pool(offsets, share), PooledInfluence(influence, offsets, share)):
        leaf = x.clone().requires_grad_()
        slopes.append(torch.autograd.grad(pooled(leaf).sum(), leaf)[0])
    torch.testing.assert_close(*slopes)


def test_many_points_are_taken_in_parts(monkeypatch):
    distribution, offsets, share, x = draw(2, 3, 4, 30, ties=False, offset=0.0)
    for measure in MEASURES:
        pooled = measure.influence(distribution).pool(offsets, share)
        whole = pooled(x)
        monkeypatch.setattr("portfolio_sdpo.risk.influence._CHUNK", 9)
        torch.testing.assert_close(pooled(x), whole)
        monkeypatch.undo()


def test_too_many_knots_are_not_kept(monkeypatch):
    distribution, offsets, share, _ = draw(3, 3, 4, 1, ties=False, offset=0.0)
    monkeypatch.setattr(influence_module, "MOST_KNOTS", 7 * 3 * 4 - 1)
    assert type(Spectral(distortion=Wang(shift=0.5)).influence(distribution).pool(offsets, share)) is PooledInfluence
    assert type(CVaR(alpha=0.3).influence(distribution).pool(offsets, share)) is Polyline
