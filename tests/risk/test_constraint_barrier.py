"""The barrier: logarithm inside, tangent below the margin, never NaN."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.risk import Barrier, Constraint, CVaR, EtaSchedule, Variance, suboptimality_bound

BARRIER = Barrier(eta=5, margin=0.4)


def test_logarithm_inside_and_tangent_below():
    slack = torch.tensor([2.0, 0.4, 0.1, 0.0, -3.0], dtype=torch.float64)
    expected = [math.log(2), math.log(0.4), *(math.log(0.4) + (s - 0.4) / 0.4 for s in (0.1, 0.0, -3.0))]
    assert BARRIER(slack).tolist() == pytest.approx([value / 5 for value in expected])


def test_value_and_slope_are_continuous_at_the_margin():
    slack = torch.tensor([0.4 - 1e-9, 0.4 + 1e-9], dtype=torch.float64, requires_grad=True)
    value = BARRIER(slack)
    (slope,) = torch.autograd.grad(value.sum(), slack)
    assert value[0].item() == pytest.approx(value[1].item(), abs=1e-8)
    assert slope.tolist() == pytest.approx([1 / (5 * 0.4)] * 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(deadline=None, derandomize=True)
@given(
    slack=st.floats(allow_nan=False, allow_infinity=False, width=32),
    margin=st.floats(1e-12, 1e6),
    eta=st.floats(1e-6, 1e6),
)
def test_finite_for_every_finite_slack(dtype, slack, margin, eta):
    barrier = Barrier(eta=eta, margin=margin)
    at = torch.tensor(slack, dtype=dtype, requires_grad=True)
    value = barrier(at)
    assert value.isfinite() and barrier.price(at).isfinite() and math.isfinite(barrier.price(slack))
    assert torch.autograd.grad(value, at)[0].isfinite()


def test_price_is_the_slope_as_tensor_and_as_number():
    slack = torch.tensor([3.0, 0.41, 0.2, -1.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(BARRIER(slack).sum(), slack)
    assert torch.allclose(BARRIER.price(slack), slope)
    assert [BARRIER.price(s) for s in slack.tolist()] == pytest.approx(slope.tolist())


def test_the_gradient_reaches_the_samples_with_the_right_size():
    """d barrier / d values = -price * d rho / d values for an upper bound: nothing on the way is detached."""
    constraint = Constraint(signal="reward", measure=Variance(), sense="<=", bound=12)
    values = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64, requires_grad=True)
    slack = constraint.slack(constraint.measure(values))
    (gradient,) = torch.autograd.grad(BARRIER(slack), values)
    expected = -BARRIER.price(slack) * 2 * (values - values.mean()) / 3
    assert torch.allclose(gradient, expected) and (gradient != 0).all()


@pytest.mark.parametrize(
    ("slack", "regime"),
    [
        (1.0, "interior"),
        (0.4, "interior"),
        (0.39, "margin"),
        (0.0, "violated"),
        (-1, "violated"),
        (math.nan, "violated"),
    ],
)
def test_regime(slack, regime):
    assert BARRIER.regime(slack) == regime
    assert BARRIER.regime(torch.tensor(slack, dtype=torch.float64)) == regime


def test_suboptimality_bound_sums_the_weights():
    constraints = [
        Constraint(signal="reward", measure=Variance(), sense="<=", bound=12, eta=20),
        Constraint(
            signal="reward",
            measure=CVaR(alpha=0.1),
            sense=">=",
            bound=51,
            eta=EtaSchedule(start=1, end=100, iterations=10),
        ),
    ]
    assert suboptimality_bound(constraints, iteration=5) == pytest.approx(1 / 20 + 1 / 10)
    assert suboptimality_bound([], iteration=0) == 0


@pytest.mark.parametrize(("field", "value"), [("eta", 0), ("eta", math.inf), ("margin", 0), ("margin", math.nan)])
def test_wrong_settings_name_their_field(field, value):
    with pytest.raises(SettingsError, match=rf"Barrier\.{field}"):
        Barrier(**{"eta": 1, "margin": 1, field: value})
