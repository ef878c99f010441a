"""The filtered shield: its closed form against a grid and bisection, and what it promises for any weights."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from portfolio_sdpo.backtest import CvarLimit
from portfolio_sdpo.errors import SettingsError, WeightsError
from portfolio_sdpo.portfolio.filtered_shield import (
    Caution,
    daily_excess,
    largest_share,
    make_scaled_views,
    scenarios,
    shield_by_scenarios,
)
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.return_measures import Volatility, conditional_value_at_risk, normal_cvar

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
    result = shield_by_scenarios(given_weights, market, limit, caution=None)
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


def one_stock(moves):
    """The market of one stock that grew by these logs."""
    days = pd.bdate_range("2015-01-02", periods=len(moves) + 1)
    return Market.from_prices(pd.DataFrame({"A": 100 * np.exp(np.cumsum(np.r_[0.0, moves]))}, index=days))


def with_(caution, **changes):
    return Caution(**(dict(caution) | changes))


ALL = np.array([0.0, 1.0])
LIGHT = Caution(margin=1.0)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.floats(1.0, 2.0), st.booleans(), st.floats(-0.05, -0.002))
def test_the_limit_holds_on_every_view(prices, seed, margin, plain, bound):
    market = Market.from_prices(prices(120, seed=seed), cash_rate=0.02)
    limit, caution = CvarLimit(bound=bound, alpha=0.1, horizon=5), Caution(margin=margin, plain=plain)
    result = shield_by_scenarios(np.full(5, 0.2), market, limit, caution=caution)
    cash = (1 + 0.02 / 252) ** 5 - 1
    views = make_scaled_views(daily_excess(result.weights, market), limit, caution)
    assert len(views) == 2
    invested = result.weights[1:].sum()
    risks = [cash + invested * conditional_value_at_risk(view, 0.1) for view in views]
    assert min(risks) >= bound - 1e-12 and result.after >= bound
    alone = shield_by_scenarios(np.full(5, 0.2), market, limit, caution=None)
    if plain:
        assert result.kappa <= alone.kappa
        assert result.kappa == pytest.approx(
            min(
                alone.kappa,
                shield_by_scenarios(np.full(5, 0.2), market, limit, caution=with_(caution, plain=False)).kappa,
            )
        )
    elif result.kappa < 1.0:
        assert min(risks) == pytest.approx(bound)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.floats(0.1, 1.0))
def test_where_it_scales_it_does_not_matter_how_much_was_asked_for(prices, seed, share):
    """κ is homogeneous: of a part of the weights it keeps as much as of all of them."""
    market, limit = Market.from_prices(prices(120, seed=seed)), CvarLimit(bound=-0.001, horizon=5)
    whole = shield_by_scenarios(np.full(5, 0.2), market, limit)
    risky = share * np.r_[0.0, np.full(4, 0.2)]
    part = shield_by_scenarios(np.r_[1 - risky.sum(), risky[1:]], market, limit)
    assert whole.removed == part.removed
    if part.kappa < 1.0:
        np.testing.assert_allclose(part.weights, whole.weights, atol=1e-12)


def test_of_steady_normal_days_all_views_agree():
    market = one_stock(np.random.default_rng(2).normal(0.0, 0.01, 6000))
    caution = Caution(volatility=Volatility(decay=0.999), margin=1.0, plain=False)
    by_hand = 0.05 / (2.0627 * np.sqrt(15) * 0.01)
    plain = shield_by_scenarios(ALL, market, lookback=6000, caution=None)
    wary = shield_by_scenarios(ALL, market, lookback=6000, caution=caution)
    assert plain.kappa == pytest.approx(by_hand, rel=0.15)
    assert wary.kappa == pytest.approx(by_hand, rel=0.1)
    tenth = shield_by_scenarios(ALL, market, caution=with_(caution, margin=1.1))
    assert tenth.kappa == pytest.approx(wary.kappa / 1.1)


def test_the_normal_view_by_hand():
    excess = np.tile([0.01, -0.01], 10)
    limit = CvarLimit(horizon=4)
    (view,) = make_scaled_views(excess, CvarLimit(horizon=4), with_(LIGHT, volatility=Volatility(decay=0.99999)))
    assert view == pytest.approx(normal_cvar(0.05) * 2 * 0.01, rel=1e-3)  # 17 windows are too few for the other
    assert len(make_scaled_views(np.tile(excess, 2), limit, LIGHT)[1]) == 37
    assert make_scaled_views(np.empty(0), limit, LIGHT) == ()
    assert make_scaled_views(np.full(40, 0.01), limit, LIGHT)[0] == 0.0  # nothing ever fell


def test_windows_are_brought_from_the_volatility_they_began_in():
    rng = np.random.default_rng(0)
    excess = np.where(np.arange(600) < 300, 0.004, 0.02) * rng.normal(size=600)
    limit, volatility = CvarLimit(horizon=3), Volatility()
    view = make_scaled_views(excess, limit, LIGHT)[1]
    known = volatility.estimate(excess)
    for start in (0, 17, 299, 597):
        was = np.prod(1 + excess[start : start + 3]) - 1
        assert view[start] == pytest.approx(was * known[-1] / known[start])


def test_a_storm_is_answered_within_days_and_forgotten_within_weeks():
    rng = np.random.default_rng(4)
    sizes = np.r_[np.full(500, 0.006), np.full(10, 0.03), np.full(60, 0.006)]
    market = one_stock(sizes * np.where(np.arange(570) % 2, 1, -1) * np.abs(rng.normal(1, 0.2, 570)))
    kappas = {day: shield_by_scenarios(ALL, market.until(day)).kappa for day in (500, 503, 505, 510, 540)}
    plain = {day: shield_by_scenarios(ALL, market.until(day), caution=None).kappa for day in kappas}
    assert kappas[503] < 0.6 * kappas[500] and kappas[505] < 0.45 * kappas[500]
    assert kappas[510] < 0.4 * kappas[500] and kappas[540] > 2 * kappas[510]
    assert plain[505] > 0.9 * plain[500]


def test_a_slow_slide_is_seen_without_any_volatility():
    """−0.2 % every day: no day is bad, and every fortnight is."""
    slide = one_stock(np.full(300, -0.002))
    result = shield_by_scenarios(ALL, slide, CvarLimit(bound=-0.02), caution=Caution(margin=1.0, plain=False))
    assert result.kappa == pytest.approx(0.02 / (1 - np.exp(-0.002 * 15)), rel=1e-3)


@pytest.mark.parametrize("caution", [None, LIGHT, Caution(plain=False)])
def test_all_cash_stays(prices, caution):
    cash = np.array([1.0, 0, 0, 0, 0])
    for market in (Market.from_prices(prices(120)), Market.from_prices(prices(120)).until(1)):
        result = shield_by_scenarios(cash, market, caution=caution)
        assert (result.kappa, result.after, result.meets) == (1.0, 0.0, True)
        np.testing.assert_array_equal(result.weights, cash)


def test_daily_returns_count_what_has_no_price_as_the_average(prices):
    frame = prices(60, stocks=3, gaps=False)
    frame.iloc[:30, 0] = np.nan
    frame.iloc[:10, 1] = np.nan
    market = Market.from_prices(frame, cash_rate=0.0252)
    weights = np.array([0.2, 0.2, 0.3, 0.3])
    excess = daily_excess(weights, market)
    over = market.gross_returns - market.gross_returns[:, :1]
    assert len(excess) == 59 - 10  # before that, most of it had no price
    np.testing.assert_allclose(excess[-29:], over[31:] @ weights / 0.8)
    np.testing.assert_allclose(excess[:20], (over[11:31, 2] + over[11:31, 3]) / 2)


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
    result = shield_by_scenarios(np.full(5, 0.2), market, CvarLimit(horizon=15))
    assert result.removed == ("S1", "S2")
    assert result.weights[2] == result.weights[3] == 0.0
    young = shield_by_scenarios(np.full(5, 0.2), market.until(20), CvarLimit(horizon=15))
    assert young.weights.tolist() == [1, 0, 0, 0, 0] and young.scenarios == 0 and young.after == 0.0


def test_a_new_listing_hides_no_crash(prices):
    frame = prices(200, stocks=2, gaps=False)
    frame.iloc[50:60, 0] *= np.linspace(0.95, 0.6, 10)
    frame.iloc[60:, 0] *= 0.6
    limit = CvarLimit(horizon=5, bound=-0.02)
    alone = shield_by_scenarios(np.array([0.0, 1.0, 0.0]), Market.from_prices(frame), limit, caution=None)
    frame.iloc[:100, 1] = np.nan
    both = shield_by_scenarios(np.array([0.0, 0.9, 0.1]), Market.from_prices(frame), limit, caution=None)
    assert both.scenarios == alone.scenarios and not both.removed
    assert both.before == pytest.approx(alone.before)


def test_a_wild_new_listing_is_not_diluted(prices):
    frame = prices(200, stocks=2, gaps=False)
    moves = np.random.default_rng(0).normal(0, 0.06, 50)
    frame.iloc[:150, 1] = np.nan
    frame.iloc[150:, 1] = 100 * np.exp(np.cumsum(moves))
    weights, limit = np.array([0.0, 0.6, 0.4]), CvarLimit(horizon=1, bound=-0.01)
    market = Market.from_prices(frame)
    result = shield_by_scenarios(weights, market, limit, caution=None)
    recent = (market.gross_returns[151:] - 1) @ result.weights
    assert conditional_value_at_risk(recent, 0.05) == pytest.approx(-0.01)


def test_all_cash_that_misses_the_limit_is_flagged(prices):
    market = Market.from_prices(prices(120, gaps=False), cash_rate=-0.01)
    result = shield_by_scenarios(np.full(5, 0.2), market, CvarLimit(bound=0.0))
    assert not result.meets and result.weights.tolist() == [1, 0, 0, 0, 0]
    assert result.after < 0.0


def test_the_future_changes_nothing(prices):
    frame = prices(120)
    known = Market.from_prices(frame).until(80)
    frame.iloc[81:] *= 3
    after = shield_by_scenarios(np.full(5, 0.2), Market.from_prices(frame).until(80))
    before = shield_by_scenarios(np.full(5, 0.2), known)
    np.testing.assert_array_equal(before.weights, after.weights)
    assert before.kappa == after.kappa


def test_bad_input_is_refused(prices):
    market = Market.from_prices(prices(60))
    for weights in ([1.0], [0.5, 0.6, 0, 0, 0], [np.nan, 1, 0, 0, 0], [2.0, -1, 0, 0, 0]):
        with pytest.raises(WeightsError):
            shield_by_scenarios(np.array(weights), market)
    with pytest.raises(SettingsError, match="lookback"):
        shield_by_scenarios(np.array([1.0, 0, 0, 0, 0]), market, lookback=10)
