"""Volatility of falls: its recursion, its scale, and days brought to today's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.return_measures import Volatility

moves = st.floats(-0.5, 0.5).map(lambda x: round(x, 6))
batches = arrays(np.float64, array_shapes(max_dims=3, max_side=12), elements=moves)
measures = st.builds(Volatility, decay=st.floats(0.3, 0.95), floor=st.floats(0, 1))


@settings(max_examples=50, deadline=None)
@given(batches, measures)
def test_it_is_the_recursion(returns, volatility):
    """v ← decay·v + (1 − decay)·2·min(r, 0)² from the long-run value on, never below its share of that."""
    squares = 2 * np.minimum(returns, 0) ** 2
    longrun = squares.mean(axis=0)
    variance, expected = longrun, []
    for day in range(len(returns) + 1):
        expected.append(np.maximum(variance, volatility.floor**2 * longrun))
        if day < len(returns):
            variance = volatility.decay * variance + (1 - volatility.decay) * squares[day]
    np.testing.assert_allclose(volatility.estimate(returns) ** 2, expected, rtol=1e-6, atol=1e-8)


@settings(max_examples=50, deadline=None)
@given(
    arrays(np.float64, st.tuples(st.integers(1, 20), st.integers(1, 3)), elements=moves), measures, st.floats(0.1, 5)
)
def test_a_batch_is_its_columns_and_scales_with_returns(returns, volatility, scale):
    batch = volatility.estimate(returns)
    for column in range(returns.shape[1]):
        np.testing.assert_allclose(
            batch[:, column] ** 2, volatility.estimate(returns[:, column]) ** 2, rtol=1e-9, atol=1e-15
        )
    np.testing.assert_allclose(volatility.estimate(scale * returns) ** 2, (scale * batch) ** 2, rtol=1e-9, atol=1e-15)


def test_it_is_the_standard_deviation_of_symmetric_returns():
    returns = np.random.default_rng(0).normal(0, 0.01, 20_000)
    assert np.sqrt(np.mean(Volatility(floor=0).estimate(returns) ** 2)) == pytest.approx(0.01, rel=0.02)


def test_half_is_forgotten_within_five_sessions_and_a_floor_stays():
    returns = np.concatenate([np.zeros(500), [-0.1], np.zeros(100)])
    known = Volatility(floor=0).estimate(returns)
    variance = known**2
    assert variance[501] == pytest.approx(0.15 * 2 * 0.01, rel=0.01)
    assert variance[506] < 0.5 * variance[501] < variance[504]
    assert Volatility(floor=0.5).estimate(returns)[-1] == pytest.approx(0.5 * np.sqrt(0.02 / 601), rel=1e-6)


def test_a_day_is_not_in_the_volatility_known_before_it():
    returns = np.random.default_rng(0).normal(0, 0.01, 50)
    other = returns.copy()
    other[30] = -np.sqrt(2) * 0.02  # the long-run value, which is known today, changes with it
    known, changed = (Volatility(floor=0).estimate(x) ** 2 for x in (returns, other))
    rest = 0.85 ** np.arange(31) * (changed[0] - known[0])
    np.testing.assert_allclose(changed[:31] - known[:31], rest, atol=1e-12)


def test_days_are_brought_to_today():
    rng = np.random.default_rng(0)
    returns = np.concatenate([rng.normal(0, 0.005, 400), rng.normal(0, 0.02, 60)])
    factors = Volatility().scale_to_today(returns)
    assert factors.shape == (460,)
    assert 2 < np.median(factors[:400]) < 6  # a calm day counts for more now, as far as the floor lets it
    assert 0.5 < np.median(factors[420:]) < 2
    np.testing.assert_array_equal(Volatility().scale_to_today(np.full(10, 0.01)), np.ones(10))  # nothing ever fell
    assert Volatility().scale_to_today(np.empty(0)).shape == (0,)


def test_bad_settings_are_refused():
    for wrong in ({"decay": 1.0}, {"decay": 0.0}, {"floor": -0.1}, {"floor": 1.1}):
        with pytest.raises(SettingsError, match=next(iter(wrong))):
            Volatility(**wrong)
