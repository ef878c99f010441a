"""Every measure by hand on tiny series, against the agent's risk measures and skfolio, and batched as singly."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from portfolio_sdpo.portfolio import return_measures as measures
from portfolio_sdpo.risk.measures import CVaR

RETURNS = np.array([0.10, -0.50, 0.50, 0.50, 0.10, -0.20])
"""Wealth 1, 1.1, 0.55, 0.825, 1.2375, 1.36125, 1.089."""

daily = arrays(np.float64, st.integers(1, 40), elements=st.floats(-0.25, 0.25))
tails = st.floats(0.01, 0.99)


def test_growth_by_hand():
    assert measures.cagr(RETURNS) == pytest.approx(1.089**42 - 1)
    assert measures.cagr(np.full(252, 1.1 ** (1 / 252) - 1)) == pytest.approx(0.1)


def test_spread_and_ratios_by_hand():
    excess = np.array([0.02, -0.01, 0.03, -0.02])
    spread = math.sqrt((0.015**2 + 0.015**2 + 0.025**2 + 0.025**2) / 3)
    assert measures.volatility(excess) == pytest.approx(spread * math.sqrt(252))
    assert measures.sharpe(excess) == pytest.approx(0.005 / spread * math.sqrt(252))
    assert measures.sortino(excess) == pytest.approx(0.005 / math.sqrt(0.0005 / 4) * math.sqrt(252))


def test_drawdown_by_hand():
    expected = [0, 0, -0.5, 0.825 / 1.1 - 1, 0, 0, -0.2]
    np.testing.assert_allclose(measures.drawdowns(RETURNS), expected, atol=1e-15)
    assert measures.max_drawdown(RETURNS) == pytest.approx(-0.5)
    assert measures.calmar(RETURNS) == pytest.approx((1.089**42 - 1) / 0.5)
    assert measures.max_drawdown(np.array([-0.25])) == pytest.approx(-0.25)


def test_hit_rate_by_hand():
    assert measures.hit_rate(np.array([0.1, 0.0, -0.1, 0.2])) == 0.5


def test_windows_by_hand():
    np.testing.assert_allclose(measures.window_returns(RETURNS, 3), [-0.175, 0.125, 1.475, 0.32])
    assert measures.window_returns(RETURNS, 7).shape == (0,)


def test_tail_by_hand():
    values = np.array([5.0, -4.0, -1.0, 3.0, -2.0, 0.0, 1.0, 2.0, 4.0, -3.0])
    assert measures.value_at_risk(values, 0.2) == -3.0
    assert measures.value_at_risk(values, 0.21) == -2.0
    assert measures.conditional_value_at_risk(values, 0.2) == pytest.approx(-3.5)
    # The worst two and a half of the third.
    assert measures.conditional_value_at_risk(values, 0.25) == pytest.approx((-4 - 3 - 1) / 2.5)
    assert measures.conditional_value_at_risk(values, 0.01) == -4.0


@settings(deadline=None)
@given(daily, tails)
def test_tail_is_that_of_the_risk_measures(returns, alpha):
    expected = CVaR(alpha=alpha)(torch.from_numpy(returns)).item()
    assert measures.conditional_value_at_risk(returns, alpha) == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(daily, tails)
def test_cvar_is_below_var_and_mean(returns, alpha):
    cvar = measures.conditional_value_at_risk(returns, alpha)
    assert returns.min() - 1e-12 <= cvar <= min(measures.value_at_risk(returns, alpha), returns.mean()) + 1e-12
    assert (returns <= measures.value_at_risk(returns, alpha)).mean() >= alpha - 1e-9


@settings(deadline=None)
@given(arrays(np.float64, (3, 17), elements=st.floats(-0.25, 0.25)))
def test_a_batch_is_its_paths(paths):
    figures = [
        measures.cagr,
        measures.volatility,
        measures.sharpe,
        measures.sortino,
        measures.calmar,
        measures.max_drawdown,
        measures.hit_rate,
        lambda r: measures.value_at_risk(r, 0.1),
        lambda r: measures.conditional_value_at_risk(measures.window_returns(r, 5), 0.1),
    ]
    for figure in figures:
        np.testing.assert_allclose(figure(paths), [figure(path) for path in paths], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("returns", [np.zeros(0), np.zeros(1), np.zeros(5), np.full(9, 0.0001)], ids=len)
def test_what_is_not_defined_is_nan(returns):
    assert np.isnan(measures.sharpe(returns))
    assert np.isnan(measures.calmar(returns))
    assert measures.max_drawdown(returns) == 0.0
    assert np.isnan(measures.volatility(returns)) == (len(returns) < 2)
    for figure in (measures.cagr, measures.hit_rate):
        assert np.isnan(figure(returns)) == (len(returns) == 0)
    assert np.isnan(measures.conditional_value_at_risk(returns, 0.1)) == (len(returns) == 0)
    assert np.isnan(measures.value_at_risk(measures.window_returns(returns, 10), 0.1))


def test_against_skfolio():
    from skfolio import measures as theirs

    returns = np.random.default_rng(1).normal(0.0005, 0.01, 253)
    for alpha in (0.01, 0.05, 0.13):
        assert measures.conditional_value_at_risk(returns, alpha) == pytest.approx(-theirs.cvar(returns, 1 - alpha))
        assert measures.value_at_risk(returns, alpha) == pytest.approx(-theirs.value_at_risk(returns, 1 - alpha))
    assert measures.volatility(returns) == pytest.approx(theirs.standard_deviation(returns) * math.sqrt(252))
    falls = theirs.get_drawdowns(returns, compounded=True)
    assert measures.max_drawdown(returns) == pytest.approx(-theirs.max_drawdown(falls))
    semi = theirs.semi_deviation(returns, min_acceptable_return=0.0, biased=True)
    assert measures.sortino(returns) == pytest.approx(returns.mean() / semi * math.sqrt(252))
