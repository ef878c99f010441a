"""Every risk measure against known answers, its axioms, and its influence function against finite differences."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from torch import Tensor

from portfolio_sdpo.risk import (
    BadStateProbability,
    Custom,
    CustomDistortion,
    CVaR,
    Entropic,
    Expectation,
    MeanSemideviation,
    Power,
    Spectral,
    Variance,
    Wang,
)
from tests.risk.measure_examples import (
    DISPERSIONS,
    VALUES,
    WEIGHTS,
    Spread,
    every_measure,
    expected_worst_of_two,
    mean_of,
    random_distribution,
    tensor,
    variance_twin,
)

# Known answers -------------------------------------------------------------------------------------------------------

LEVELS = (torch.randperm(100_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5) / 100_000
NORMAL = torch.from_numpy(stats.norm(1.5, 2).ppf(LEVELS))
EXPONENTIAL = torch.from_numpy(stats.expon(scale=2).ppf(LEVELS))


def exponential_wang(shift: float) -> float:
    """E under Phi(Phi^-1(F) + shift), whose quantile at p is the distribution's at Phi(Phi^-1(p) - shift)."""
    return integrate.quad(lambda z: -2 * stats.norm.logsf(z - shift) * stats.norm.pdf(z), -8, 8)[0]


def discrete_wang(shift: float) -> float:
    return float(stats.norm.cdf(stats.norm.ppf([0.1, 0.3, 0.6, 1.0]) + shift) @ [-2, -1, -3, 4])


PHI_0, PHI_Z25 = stats.norm.pdf(0), stats.norm.pdf(stats.norm.ppf(0.25))
DISCRETE_ENTROPIC = -2 * math.log(0.1 * math.exp(1) + 0.2 + 0.3 * math.exp(-0.5) + 0.4 * math.exp(-2))
WORST_OF_TWO = 1.5 - 2 / math.sqrt(math.pi)

# measure, on normal(1.5, 2), on exponential(mean 2), on the discrete distribution above
ANSWERS = [
    (Expectation(), 1.5, 2, 1.7),
    (BadStateProbability(), 1.5, 2, 1.7),
    (CVaR(alpha=0.25), 1.5 - 2 * PHI_Z25 / 0.25, 2 * (0.75 * math.log(0.75) + 0.25) / 0.25, -0.8),
    (CVaR(alpha=0.5, tail="upper"), 1.5 + 2 * PHI_0 / 0.5, 2 * (1 - math.log(0.5)), 3.4),
    (Variance(), 4, 4, 4.21),
    (Custom(function=variance_twin), 4, 4, 4.21),
    (Entropic(beta=-0.5), 1.5 - 0.25 * 4, 2 * math.log(2), DISCRETE_ENTROPIC),
    (Spectral(distortion=Wang(shift=0.5)), 1.5 - 0.5 * 2, exponential_wang(0.5), discrete_wang(0.5)),
    (Spectral(distortion=Wang(shift=-0.5)), 1.5 + 0.5 * 2, exponential_wang(-0.5), discrete_wang(-0.5)),
    (Spectral(distortion=Power(exponent=2)), WORST_OF_TWO, 1, 0.59),
    (Spectral(distortion=CustomDistortion(function=expected_worst_of_two)), WORST_OF_TWO, 1, 0.59),
    (MeanSemideviation(weight=0.5), 1.5 - 0.5 * 2 * PHI_0, 2 - 0.5 * 2 / math.e, 1.24),
    (
        MeanSemideviation(weight=0.5, order=2),
        1.5 - 0.5 * 2 / math.sqrt(2),
        2 - 0.5 * 2 * math.sqrt(1 - 2 / math.e),
        1.7 - 0.5 * math.sqrt(2.094),
    ),
    (
        MeanSemideviation(weight=1, order=2, tail="upper"),
        1.5 + 2 / math.sqrt(2),
        2 + 2 * math.sqrt(2 / math.e),
        1.7 + math.sqrt(2.116),
    ),
]


@pytest.mark.parametrize(("measure", "normal", "exponential", "discrete"), ANSWERS)
def test_known_answers(measure, normal, exponential, discrete):
    assert measure(NORMAL).item() == pytest.approx(normal, rel=1e-3)
    assert measure(EXPONENTIAL).item() == pytest.approx(exponential, rel=1e-3)
    assert measure(VALUES, WEIGHTS).item() == pytest.approx(discrete, rel=1e-12)


def test_cvar_splits_the_atom_at_its_quantile():
    assert CVaR(alpha=0.3)(tensor(0, 1, 2)).item() == pytest.approx(0)
    assert CVaR(alpha=0.5)(tensor(0, 1, 2)).item() == pytest.approx((0 / 3 + 1 * (0.5 - 1 / 3)) / 0.5)
    assert CVaR(alpha=0.999999)(VALUES, WEIGHTS).item() == pytest.approx(1.7, abs=1e-5)


@every_measure
def test_linear_only_for_means(measure):
    assert measure.linear == isinstance(measure, Expectation | BadStateProbability)


# Axioms --------------------------------------------------------------------------------------------------------------

floats = st.floats(-50, 50, allow_subnormal=False)
counted_atoms = st.lists(st.tuples(floats, st.integers(1, 4)), min_size=1, max_size=8)
few = settings(max_examples=25, deadline=None, derandomize=True)


def law_of(atoms: list[tuple[float, int]]) -> tuple[Tensor, Tensor]:
    values, counts = (torch.tensor(column, dtype=torch.float64) for column in zip(*atoms, strict=True))
    return values, counts / counts.sum()


@every_measure
@few
@given(atoms=counted_atoms, order=st.randoms(use_true_random=False))
def test_weights_are_repetitions_in_any_order(measure, atoms, order):
    repeated = [value for value, count in atoms for _ in range(count)]
    order.shuffle(repeated)
    assert measure(*law_of(atoms)).item() == pytest.approx(measure(tensor(*repeated)).item(), rel=1e-9, abs=1e-9)


@every_measure
@few
@given(atoms=counted_atoms, constant=floats, scale=st.floats(0.01, 10))
def test_translation_and_homogeneity(measure, atoms, constant, scale):
    values, weights = law_of(atoms)
    shift = 0.0 if isinstance(measure, DISPERSIONS) else constant
    assert measure(values + constant, weights).item() == pytest.approx(
        measure(values, weights).item() + shift, rel=1e-9, abs=1e-8
    )
    if not isinstance(measure, Entropic):
        degree = 2 if isinstance(measure, Variance | Custom) else 1
        expected = scale**degree * measure(values, weights).item()
        assert measure(scale * values, weights).item() == pytest.approx(expected, rel=1e-9, abs=1e-8)


@every_measure
@few
@given(atoms=counted_atoms, gains=st.lists(st.floats(0, 20), min_size=8, max_size=8))
def test_more_is_never_less(measure, atoms, gains):
    if isinstance(measure, DISPERSIONS):
        return
    values, weights = law_of(atoms)
    assert measure(values + tensor(*gains[: len(atoms)]), weights) >= measure(values, weights) - 1e-9


# Derivatives ---------------------------------------------------------------------------------------------------------


@every_measure
def test_gradient_by_finite_differences(measure):
    values, weights = random_distribution(atoms=7, distributions=(2,))
    values.requires_grad_()
    weights.requires_grad_()
    assert torch.autograd.gradcheck(measure, (values, weights))
    (gradient,) = torch.autograd.grad(measure(values, weights).sum(), values)
    assert (gradient != 0).any(-1).all()


@every_measure
def test_mean_of_influence_is_the_risk(measure):
    values, weights = random_distribution(distributions=(3,))
    risk = measure(values, weights)
    assert torch.allclose(mean_of(measure.influence(values, weights)(values), weights), risk, rtol=1e-12, atol=1e-12)


@every_measure
def test_influence_is_the_gateaux_derivative(measure):
    """(rho((1 - e) P + e Q) - rho(P)) / e against E_Q[u] - rho(P)."""
    values, weights = random_distribution()
    towards, towards_weights = tensor(-0.37, 0.11, 2.3, 3.01), tensor(0.3, 0.2, 0.4, 0.1)
    # Beyond the support the derivative of a distortion that is infinitely steep at 0 or 1 is infinite.
    if not (isinstance(measure, Spectral) and measure.distortion.slope(tensor(0, 1)).isinf().any()):
        towards[0], towards[-1] = values.min() - 0.7, values.max() + 0.4
    epsilon = 1e-6
    mixture = torch.cat([(1 - epsilon) * weights, epsilon * towards_weights])
    difference = (measure(torch.cat([values, towards]), mixture) - measure(values, weights)) / epsilon
    derivative = mean_of(measure.influence(values, weights)(towards), towards_weights) - measure(values, weights)
    by_autograd = isinstance(measure, Custom | Spread)
    assert derivative.item() == pytest.approx(difference.item(), rel=2e-3 if by_autograd else 1e-4)


@every_measure
def test_autograd_influence_equals_the_closed_form(measure):
    twin = Custom(function=measure.evaluate)
    values, weights = random_distribution(distributions=(2,))
    if isinstance(measure, Entropic):  # ln(weight) has no derivative at weight 0: the same measure without logsumexp
        twin = Custom(function=lambda v, w: mean_of((measure.beta * v).exp(), w).log() / measure.beta)
    y = torch.linspace(0, 1, 50, dtype=torch.float64) * (values.amax() - values.amin()) + values.amin()
    y = y.clamp(values.amin(-1, keepdim=True), values.amax(-1, keepdim=True))
    closed, interpolated = measure.influence(values, weights)(y), twin.influence(values, weights)(y)
    assert torch.allclose(closed, interpolated, atol=5e-3 * float(closed.abs().max()))


def test_influence_beyond_the_support_of_an_infinite_slope_stays_finite():
    for shift, y in ((0.5, -1e3), (-0.5, 1e3)):
        measure = Spectral(distortion=Wang(shift=shift))
        slope = measure.influence(VALUES, WEIGHTS)(tensor(y, 2 * y)).diff() / y
        assert 1 < slope.item() < 5


@every_measure
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_influence_of_a_batch_of_laws(measure, dtype):
    values, weights = (part.to(dtype) for part in random_distribution(distributions=(2, 3)))
    y = torch.randn(2, 3, 5, 7, dtype=dtype, generator=torch.Generator().manual_seed(1), requires_grad=True)
    influence = measure.influence(values.requires_grad_(), weights)
    u = influence(y)
    assert u.shape == y.shape and u.dtype == dtype
    for i in range(2):
        for j in range(3):
            alone = measure.influence(values[i, j], weights[i, j])
            assert torch.allclose(u[i, j], alone(y[i, j]), rtol=1e-4, atol=1e-4)
    assert torch.autograd.grad(u.sum(), values, allow_unused=True)[0] is None, "detached from the distribution"
    for_every_law = influence(y[0, 0, 0])
    assert for_every_law.shape == (2, 3, 7)
    assert torch.allclose(for_every_law, influence(y[0, 0, 0].expand(2, 3, 7)))
    assert torch.allclose(influence(y[:1]), influence(y[:1].expand_as(y)))


@every_measure
def test_a_constant_law_gives_finite_values_and_gradients(measure):
    values = torch.full((2, 16), 0.5, dtype=torch.float32, requires_grad=True)
    risk = measure(values)
    assert torch.allclose(risk, torch.full_like(risk, 0.0 if isinstance(measure, DISPERSIONS) else 0.5), atol=1e-6)
    (gradient,) = torch.autograd.grad(risk.sum(), values)
    assert gradient.isfinite().all()
    y = torch.linspace(0, 1, 11).expand(2, 11)
    assert measure.influence(values)(y).isfinite().all()


@every_measure
def test_atoms_of_weight_zero_change_nothing(measure):
    values, weights = random_distribution()
    padded = torch.cat([values, tensor(-9, 1, 9)]), torch.cat([weights, tensor(0, 0, 0)])
    assert measure(*padded).item() == pytest.approx(measure(values, weights).item(), rel=1e-12)
    y = torch.linspace(-1, 3, 9, dtype=torch.float64)
    assert torch.allclose(measure.influence(*padded)(y), measure.influence(values, weights)(y), atol=5e-3)


def test_weights_broadcast_and_default_to_equal():
    values, weights = random_distribution(distributions=(4,))
    assert torch.equal(Variance()(values, weights[0]), Variance()(values, weights[0].expand_as(values)))
    assert torch.allclose(Variance()(values), values.var(-1, correction=0))


def test_cvar_gradient_spreads_over_equal_values():
    values = torch.zeros(10, requires_grad=True)
    (gradient,) = torch.autograd.grad(CVaR(alpha=0.25)(values), values)
    assert torch.allclose(gradient.sort(descending=True).values[:3], torch.tensor([0.4, 0.4, 0.2]))


def test_entropic_does_not_overflow():
    risk = Entropic(beta=5)(torch.tensor([1000.0, 1001.0]))
    assert risk.item() == pytest.approx(1001 + math.log((1 + math.exp(-5)) / 2) / 5, rel=1e-6)


@pytest.mark.parametrize("values", [torch.tensor(1.0), torch.empty(3, 0), torch.tensor([1, 2])], ids=str)
def test_a_law_needs_floating_point_samples(values):
    with pytest.raises(ValueError, match="floating-point values"):
        Expectation()(values)
