"""The calibrated shield's rule: against a naive version, in torch, and for limits that it was not calibrated for."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from portfolio_sdpo.portfolio.calibrated_shield import (
    LEAST,
    SHARE,
    TAIL,
    WINDOW,
    forecast_cvar,
    forecast_volatility,
    largest_exposure,
    largest_exposure_tensors,
)
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.return_measures import normal_cvar

days = st.floats(-0.2, 0.2)
pasts = arrays(np.float64, st.integers(LEAST, 80), elements=days)
records = arrays(np.float64, st.integers(0, 20), elements=st.floats(-0.02, 0.02))


def naive_volatility(excess):
    """The docstring's formula, term by term."""
    x, total = list(excess)[::-1][:WINDOW], 0.0
    for share, decay, prior in ((0.3, 0.94, 0.03), (0.7, 0.998, 0.015)):
        least = math.inf
        for count in range(20, len(x) + 1):
            known = sum((1 - decay) * decay**k * x[k] ** 2 for k in range(count))
            mean = sum(each**2 for each in x[:count]) / count
            least = min(least, known + decay**count * max(prior**2, (1 + 10 / math.sqrt(count)) * mean))
        total += share * least
    return math.sqrt(total)


def naive_exposure(volatility, cash, limit, record):
    multiple, least = 0.8727 * -normal_cvar(limit.alpha), 1.0
    for s in range(limit.horizon):
        earned = math.prod(1 + each for each in record[max(len(record) - s, 0) :]) - 1
        left = limit.horizon - s
        budget = SHARE * -limit.bound + left * cash + min(earned, 0.0)
        least = min(least, budget / (multiple * volatility * math.sqrt(left)))
    return max(least, 0.0)


@settings(max_examples=40, deadline=None)
@given(pasts)
def test_volatility_is_the_formula(excess):
    assert forecast_volatility(excess) == pytest.approx(naive_volatility(excess), rel=1e-12)


@settings(deadline=None)
@given(
    st.floats(0.001, 0.1),
    st.floats(0.0, 0.0005),
    records,
    st.builds(CvarLimit, bound=st.floats(-0.3, 0), alpha=st.floats(0.01, 0.5), horizon=st.integers(1, 40)),
)
def test_exposure_is_the_formula(volatility, cash, record, limit):
    found = largest_exposure(np.array(volatility), np.array(cash), limit, record)
    assert found == pytest.approx(naive_exposure(volatility, cash, limit, record), rel=1e-9, abs=1e-12)


def test_by_hand():
    """Calm days of 1 %: the slow variance has its prior in 8 %, the fast one none; then κ = 0.86·5 % / (1.8 σ √15)."""
    steady = np.tile([0.01, -0.01], WINDOW // 2)
    rest = 0.998**WINDOW
    sigma = math.sqrt(0.3 * 1e-4 + 0.7 * ((1 - rest) * 1e-4 + rest * 0.015**2))
    assert forecast_volatility(steady) == pytest.approx(sigma, rel=1e-9)
    by_hand = SHARE * 0.05 / (1.8001 * sigma * math.sqrt(15))
    found = largest_exposure(np.array(sigma), np.array(0.0), CvarLimit(), np.empty(0))
    assert found == pytest.approx(by_hand, rel=1e-4)
    assert forecast_cvar(float(found), sigma, 0.0, CvarLimit()) == pytest.approx(-SHARE * 0.05)


@settings(max_examples=60, deadline=None)
@given(arrays(np.float64, 120, elements=days), st.integers(0, 120), st.integers(0, 120))
def test_less_history_never_means_less_volatility(excess, one, other):
    less, more = sorted((one, other))
    assert forecast_volatility(excess[120 - less :]) >= forecast_volatility(excess[120 - more :]) * (1 - 1e-12)


def test_what_lies_before_the_window_does_not_count():
    excess = np.random.default_rng(0).normal(0, 0.01, 2 * WINDOW)
    assert forecast_volatility(excess) == forecast_volatility(excess[-WINDOW:])


def test_too_short_a_past_has_no_volatility():
    assert forecast_volatility(np.full(LEAST - 1, 0.01)) == math.inf
    assert largest_exposure(np.array(math.inf), np.array(0.0), CvarLimit(), np.empty(0)) == 0.0


@settings(max_examples=60, deadline=None)
@given(records, st.floats(-0.05, 0.0))
def test_a_loss_in_progress_never_raises_exposure(record, loss):
    before = largest_exposure(np.array(0.01), np.array(0.0), CvarLimit(), record)
    worse = record.copy()
    worse[-1:] += loss
    assert largest_exposure(np.array(0.01), np.array(0.0), CvarLimit(), worse) <= before


def test_a_gain_earns_no_room_by_itself_and_a_spent_budget_leaves_none():
    allowed = [
        float(largest_exposure(np.array(0.02), np.array(0.0), CvarLimit(), np.array(record)))
        for record in ([], [0.04] * 14, [-0.02, 0.0], [-SHARE * 0.05], [-SHARE * 0.05] + 14 * [0.0])
    ]
    assert allowed[0] == allowed[1] == allowed[4] > allowed[2] > allowed[3] == 0.0


def test_without_a_record_the_mix_counts_as_held_all_along():
    """An account that has always held the share E has lost E times what the mix lost."""
    mix = np.array([-0.03, 0.01, -0.02])
    limit = CvarLimit(horizon=4)
    share = float(largest_exposure(np.array(0.03), np.array(0.0), limit, mix=mix))
    lost = [min(np.prod(1 + mix[3 - s :]) - 1, 0.0) for s in range(4)]
    left = [SHARE * 0.05 + share * loss for loss in lost]
    needed = [TAIL * 2.06271 * share * 0.03 * math.sqrt(4 - s) for s in range(4)]
    assert min(a - b for a, b in zip(left, needed, strict=True)) == pytest.approx(0.0, abs=1e-6)


def test_limits_order_exposure():
    def allowed(**limit):
        return float(largest_exposure(np.array(0.03), np.array(0.0), CvarLimit(**limit), np.empty(0)))

    assert allowed(bound=-0.02) < allowed(bound=-0.05) < allowed(bound=-0.1) < allowed(bound=-0.9) == 1.0
    assert allowed(alpha=0.01) < allowed(alpha=0.05) < allowed(alpha=0.2)
    assert allowed(horizon=60) < allowed(horizon=15) < allowed(horizon=5)
    assert allowed(bound=0.0) == 0.0


def test_cash_counts_as_certain():
    def allowed(cash, bound=-0.05):
        return float(largest_exposure(np.array(0.03), np.array(cash), CvarLimit(bound=bound), np.empty(0)))

    assert allowed(-0.004) == 0.0 < allowed(-0.0001) < allowed(0.0) < allowed(0.0002)
    assert 0.0 < allowed(0.0002, bound=0.0) < allowed(0.0002)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([20, 35, 300, 1500]), st.sampled_from([1, 5, 15]), st.booleans())
def test_torch_is_numpy(seed, sessions, horizon, recorded):
    rng = np.random.default_rng(seed)
    excess, returns = rng.normal(0, 0.02, (3, 2, sessions)), rng.normal(-0.001, 0.01, (3, 2, rng.integers(0, 20)))
    cash, limit = rng.uniform(0, 0.0003, (3, 2)), CvarLimit(horizon=horizon)
    own = {"record" if recorded else "mix": returns}
    volatility = forecast_volatility(excess)
    tensors = {key: torch.from_numpy(each) for key, each in own.items()}
    exposure = largest_exposure_tensors(torch.from_numpy(volatility), torch.from_numpy(cash), limit, **tensors)
    assert exposure.shape == (3, 2)
    np.testing.assert_allclose(
        exposure.numpy(), largest_exposure(volatility, cash, limit, **own), rtol=1e-10, atol=1e-14
    )
