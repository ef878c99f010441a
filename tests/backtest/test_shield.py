"""The shield: its closed form against a grid and bisection, and what it promises for any weights and scenarios."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from portfolio_sdpo.backtest import CvarLimit, shield
from portfolio_sdpo.backtest.measures import conditional_value_at_risk
from portfolio_sdpo.backtest.shield import largest_share, scenarios
from portfolio_sdpo.envs.portfolio.market import Market
from portfolio_sdpo.errors import SettingsError, WeightsError

returns = arrays(np.float64, st.integers(4, 60), elements=st.floats(-0.5, 0.5))
limits = st.builds(CvarLimit, bound=st.floats(-0.2, 0.0), alpha=st.floats(0.02, 0.9), horizon=st.just(1))
rates = st.floats(-0.002, 0.01)


def bisected(excess, cash, limit):
    """The largest share by halving, knowing only that CVaR is concave in it."""

    def allowed(share):
        return conditional_value_at_risk(cash + share * excess, limit.alpha) >= limit.bound

    if allowed(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low


@settings(deadline=None)
@given(returns, rates, limits)
def test_closed_form_is_what_bisection_finds(excess, cash, limit):
    share, meets = largest_share(excess, cash, limit)
    safe = conditional_value_at_risk(cash + excess, limit.alpha) >= limit.bound + 1e-12
    if cash < limit.bound and not safe:
        assert (share, meets) == (0.0, False) or conditional_value_at_risk(excess, limit.alpha) + cash >= limit.bound
    elif cash > limit.bound + 1e-9:
        assert meets and share == pytest.approx(bisected(excess, cash, limit), rel=1e-6, abs=1e-9)


@settings(deadline=None)
@given(returns, rates, limits)
def test_the_limit_is_met_and_risk_never_grows(excess, cash, limit):
    share, meets = largest_share(excess, cash, limit)
    before, after = (conditional_value_at_risk(cash + kappa * excess, limit.alpha) for kappa in (1.0, share))
    assert 0.0 <= share <= 1.0
    if meets:
        assert after >= limit.bound - 1e-12
        assert after >= before - 1e-12
    else:
        assert after == pytest.approx(cash, abs=1e-15)
    if before >= limit.bound + 1e-12:
        assert share == 1.0


def test_against_a_grid():
    excess = np.random.default_rng(0).normal(0.002, 0.04, 300)
    limit = CvarLimit(bound=-0.03, alpha=0.1)
    grid = np.linspace(0, 1, 100_001)
    allowed = [kappa for kappa in grid[::100] if conditional_value_at_risk(0.001 + kappa * excess, 0.1) >= -0.03]
    share, _ = largest_share(excess, 0.001, limit)
    assert max(allowed) <= share <= max(allowed) + 0.001


def test_by_hand():
    excess = np.array([-0.10, 0.05, 0.02, 0.03])
    assert largest_share(excess, 0.01, CvarLimit(bound=-0.05, alpha=0.25)) == (pytest.approx(0.6), True)
    assert largest_share(excess, 0.0, CvarLimit(bound=0.0, alpha=0.25)) == (0.0, True)
    assert largest_share(excess, -0.01, CvarLimit(bound=0.0, alpha=0.25)) == (0.0, False)
    assert largest_share(np.abs(excess), 0.0, CvarLimit(bound=0.0, alpha=0.25)) == (1.0, True)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 1000),
    arrays(np.float64, 5, elements=st.floats(0, 1)).filter(lambda w: w.sum() > 0.01),
    st.sampled_from([1, 5, 15]),
    st.floats(-0.05, -0.002),
)
def test_shielded_weights_meet_the_limit(prices, seed, weights, horizon, bound):
    market = Market.from_prices(prices(120, seed=seed, gaps=False), cash_rate=0.02)
    limit = CvarLimit(bound=bound, alpha=0.1, horizon=horizon)
    given_weights = weights / weights.sum()
    result = shield(given_weights, market, limit)
    past, complete = scenarios(market, horizon, 504)
    assert complete.all() and len(past) == 119 - horizon + 1
    assert result.scenarios == (len(past) if given_weights[1:].any() else 0)
    past[:, 0] = (1 + 0.02 / 252) ** horizon - 1  # cash is certain
    assert result.before == pytest.approx(conditional_value_at_risk(past @ given_weights, 0.1))
    assert result.after == pytest.approx(conditional_value_at_risk(past @ result.weights, 0.1))
    assert result.after >= bound and result.meets and not result.removed
    assert result.weights.sum() == pytest.approx(1) and (result.weights >= 0).all()
    np.testing.assert_allclose(result.weights[1:], result.kappa * given_weights[1:])
    if result.before < bound:
        assert result.after == pytest.approx(bound)


def test_windows_by_hand(prices):
    frame = prices(6, stocks=4, gaps=False)
    frame.iloc[:2, 1] = np.nan
    past, complete = scenarios(Market.from_prices(frame), 2, 504)
    price = frame.to_numpy()
    np.testing.assert_allclose(past[:, 1], price[2:, 0] / price[:-2, 0] - 1)
    assert complete[:, 2].tolist() == [False, False, True, True]
    assert len(scenarios(Market.from_prices(frame), 2, 3)[0]) == 2
    assert len(scenarios(Market.from_prices(frame), 6, 504)[0]) == 0


def test_what_cannot_be_vouched_for_goes_to_cash(prices):
    frame = prices(120, gaps=False)
    frame.iloc[:100, 1] = np.nan  # 20 sessions old
    frame.iloc[-1, 2] = np.nan  # no price today
    market = Market.from_prices(frame)
    result = shield(np.full(5, 0.2), market, CvarLimit(horizon=15))
    assert result.removed == ("S1", "S2")
    assert result.weights[2] == result.weights[3] == 0.0
    young = shield(np.full(5, 0.2), market.until(20), CvarLimit(horizon=15))
    assert young.weights.tolist() == [1, 0, 0, 0, 0] and young.scenarios == 0 and young.after == 0.0


def test_a_new_listing_hides_no_crash(prices):
    frame = prices(200, stocks=2, gaps=False)
    frame.iloc[50:60, 0] *= np.linspace(0.95, 0.6, 10)
    frame.iloc[60:, 0] *= 0.6
    limit = CvarLimit(horizon=5, bound=-0.02)
    alone = shield(np.array([0.0, 1.0, 0.0]), Market.from_prices(frame), limit)
    frame.iloc[:100, 1] = np.nan
    both = shield(np.array([0.0, 0.9, 0.1]), Market.from_prices(frame), limit)
    assert both.scenarios == alone.scenarios and not both.removed
    assert both.before == pytest.approx(alone.before)


def test_a_wild_new_listing_is_not_diluted(prices):
    frame = prices(200, stocks=2, gaps=False)
    moves = np.random.default_rng(0).normal(0, 0.06, 50)
    frame.iloc[:150, 1] = np.nan
    frame.iloc[150:, 1] = 100 * np.exp(np.cumsum(moves))
    weights, limit = np.array([0.0, 0.6, 0.4]), CvarLimit(horizon=1, bound=-0.01)
    market = Market.from_prices(frame)
    result = shield(weights, market, limit)
    recent = (market.relatives[151:] - 1) @ result.weights
    assert conditional_value_at_risk(recent, 0.05) == pytest.approx(-0.01)


def test_all_cash_that_misses_the_limit_is_flagged(prices):
    market = Market.from_prices(prices(120, gaps=False), cash_rate=-0.01)
    result = shield(np.full(5, 0.2), market, CvarLimit(bound=0.0))
    assert not result.meets and result.weights.tolist() == [1, 0, 0, 0, 0]
    assert result.after < 0.0


def test_the_future_changes_nothing(prices):
    frame = prices(120)
    known = Market.from_prices(frame).until(80)
    frame.iloc[81:] *= 3
    after = shield(np.full(5, 0.2), Market.from_prices(frame).until(80))
    before = shield(np.full(5, 0.2), known)
    np.testing.assert_array_equal(before.weights, after.weights)
    assert before.kappa == after.kappa


def test_bad_input_is_refused(prices):
    market = Market.from_prices(prices(60))
    for weights in ([1.0], [0.5, 0.6, 0, 0, 0], [np.nan, 1, 0, 0, 0], [2.0, -1, 0, 0, 0]):
        with pytest.raises(WeightsError):
            shield(np.array(weights), market)
    with pytest.raises(SettingsError, match="lookback"):
        shield(np.array([1.0, 0, 0, 0, 0]), market, lookback=10)
