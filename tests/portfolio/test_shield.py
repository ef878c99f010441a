"""What the shield promises on any market: less history and a strange last price never widen risk."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.common.numbers import percent
from portfolio_sdpo.errors import WeightsError
from portfolio_sdpo.portfolio.calibrated_shield import LEAST, WINDOW, forecast_volatility, largest_exposure
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.filtered_shield import shield_by_scenarios
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.shield import shield

EQUAL = np.array([0.0, 0.25, 0.25, 0.25, 0.25])
TIGHT = CvarLimit(bound=-0.02)


def an_account(market, seed=0, sessions=20, size=0.004):
    """An account that began its sessions with equal weights; fees and all are in its returns."""
    rng = np.random.default_rng(seed)
    assets = len(market.assets)
    weights = np.tile(np.r_[0.4, np.full(assets - 1, 0.6 / (assets - 1))], (sessions, 1))
    return SimpleNamespace(returns=rng.normal(0, size, sessions), weights=weights)


def staggered(seed, sessions=400, stocks=4):
    """Stocks of different volatilities that list at different times, one with a gap."""
    rng = np.random.default_rng(seed)
    moves = rng.standard_t(3, (sessions, stocks)) * rng.uniform(0.003, 0.03, stocks)
    prices = 100 * np.exp(np.cumsum(moves, axis=0))
    for column, first in zip(prices.T, rng.integers(0, sessions - 10, stocks), strict=True):
        column[: first * rng.integers(2)] = np.nan
    prices[200:210, rng.integers(stocks)] = np.nan
    return pd.DataFrame(prices, index=pd.bdate_range("2015-01-02", periods=sessions), columns=list("ABCD")[:stocks])


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 399), st.booleans(), st.sampled_from([TIGHT, CvarLimit(horizon=40)]))
def test_cutting_history_off_at_the_front_never_raises_the_factor(seed, cut, recorded, limit):
    frame = staggered(seed)
    whole, part = Market.from_prices(frame, 0.01), Market.from_prices(frame.iloc[cut:].dropna(axis=1, how="all"), 0.01)
    kept = np.array([asset in part.assets for asset in whole.assets])
    weights = np.where(kept, EQUAL, 0.0)
    weights[0] = 1 - weights[1:].sum()
    record = an_account(whole) if recorded else None
    of_part = SimpleNamespace(returns=record.returns, weights=record.weights[:, kept]) if recorded else None
    less, more = shield(weights[kept], part, limit, record=of_part), shield(weights, whole, limit, record=record)
    assert less.kappa <= more.kappa + 1e-12
    assert (less.weights[1:] <= more.weights[kept][1:] + 1e-12).all()


def without_last(market, weights, limit, record):
    """The invested share that the rule alone allows when the last session is taken away."""
    known = market.until(len(market) - 2)
    excess = (known.gross_returns[1:, 1:] - known.gross_returns[1:, :1]) @ weights[1:] / weights[1:].sum()
    cash = market.gross_returns[-1, 0] - 1
    own = {"mix": excess} if record is None else {"record": record.returns[:-1]}
    return float(largest_exposure(np.array(forecast_volatility(excess)), np.array(cash), limit, **own))


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 1000),
    st.sampled_from(["one", "all"]),
    st.floats(-8, 8).map(lambda power: 10.0**power),
    st.booleans(),
)
def test_no_last_close_raises_exposure_above_what_it_was_without_that_session(prices, seed, which, factor, recorded):
    frame = prices(150, seed=seed, gaps=False)
    frame.iloc[-1, slice(0, 1 if which == "one" else None)] *= factor
    market, weights = Market.from_prices(frame, 0.02), np.array([0.1, 0.3, 0.2, 0.2, 0.2])
    record = None
    if recorded:
        record = an_account(market, seed)
        # The last session is in the record as it is in the prices.
        record.returns[-1] = record.weights[-1] @ market.gross_returns[-1] - 1
    result = shield(weights, market, TIGHT, record=record)
    assert result.weights[1:].sum() <= without_last(market, weights, TIGHT, record) + 1e-12
    assert (len(result.findings) > 1) == (np.abs(market.gross_returns[-1, 1:] - 1) > 0.35).any()


@pytest.mark.parametrize("factor", [1e-6, 0.01, 100.0, 1e6])
def test_a_suspicious_close_is_named_and_does_not_sell_everything_of_a_broad_mix(prices, factor):
    frame = prices(300, stocks=50, gaps=False)
    weights = np.r_[0.0, np.full(50, 0.02)]
    before = shield(weights, Market.from_prices(frame))
    frame.iloc[-1, 0] = frame.iloc[-2, 0] * factor
    after = shield(weights, Market.from_prices(frame))
    assert 0.25 * before.kappa < after.kappa <= before.kappa
    told = f"S0 moved by {percent(factor - 1, sign=True)} in the last session"
    assert [told in each for each in after.findings] == [False, True]
    assert "check its price" in after.findings[1]


def test_a_suspicious_rise_is_no_gain_in_the_record(prices):
    frame = prices(300, gaps=False)
    frame.iloc[-3:, 0] *= 5.0
    market = Market.from_prices(frame)
    lost = an_account(market, size=0.0)
    lost.returns[-10] = -0.02
    jumped = SimpleNamespace(returns=lost.returns.copy(), weights=lost.weights)
    jumped.returns[-3] = lost.weights[-3] @ market.gross_returns[-3] - 1
    honest = lost.returns.copy()
    honest[-3] = lost.weights[-3, 1] + np.delete(lost.weights[-3] * market.gross_returns[-3], 1).sum() - 1
    believed = SimpleNamespace(returns=honest, weights=np.zeros_like(lost.weights))
    believed.weights[:, 0] = 1.0
    limit = CvarLimit(bound=-0.04)
    assert 0 < shield(EQUAL, market, limit, record=jumped).kappa < 1
    assert shield(EQUAL, market, limit, record=jumped).kappa == pytest.approx(
        shield(EQUAL, market, limit, record=believed).kappa
    )


def test_the_rule_is_applied_to_the_mix_with_and_without_the_last_session(prices):
    market = Market.from_prices(prices(500, gaps=False), 0.03)
    record, weights = an_account(market, seed=3), np.array([0.2, 0.3, 0.1, 0.2, 0.2])
    excess = (market.gross_returns - market.gross_returns[:, :1])[1:] @ weights / 0.8
    cash = market.gross_returns[-1, 0] - 1
    allowed = [
        float(largest_exposure(np.array(forecast_volatility(excess[:end])), np.array(cash), TIGHT, returns))
        for end, returns in ((None, record.returns), (-1, record.returns[:-1]))
    ]
    result = shield(weights, market, TIGHT, record=record)
    assert result.kappa == pytest.approx(min(allowed) / 0.8)
    np.testing.assert_allclose(result.weights[1:], result.kappa * weights[1:])
    assert result.weights.sum() == pytest.approx(1) and result.meets
    assert result.before <= result.after and result.after >= TIGHT.bound


def test_priors_are_those_of_the_length_of_a_session(prices):
    """Weekly moves are √(252/52) times as large as daily ones, and so is what fills a short history."""
    frame = prices(60, stocks=1, gaps=False)
    daily = Market.from_prices(frame)
    weeks = frame.pct_change().fillna(0.0) * math.sqrt(252 / 52)
    weekly_prices = (100 * (1 + weeks).cumprod()).set_axis(pd.date_range("2018-01-05", periods=60, freq="W-FRI"))
    weekly = Market.from_prices(weekly_prices)
    assert (daily.sessions_per_year, weekly.sessions_per_year) == (252, 52)
    alone, calm = np.array([0.0, 1.0]), SimpleNamespace(returns=np.empty(0), weights=np.empty((0, 2)))
    one, other = (shield(alone, market, TIGHT, record=calm) for market in (daily, weekly))
    assert 0.0 < other.kappa == pytest.approx(one.kappa / math.sqrt(252 / 52))
    assert "59 of 1,260 weeks of history" in other.findings[0]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.floats(0.1, 1.0))
def test_of_a_part_of_the_weights_it_keeps_as_much_as_of_all(prices, seed, share):
    market = Market.from_prices(prices(120, seed=seed, gaps=False))
    whole = shield(EQUAL, market, TIGHT)
    part = shield(np.r_[1 - share, share * EQUAL[1:]], market, TIGHT)
    assert part.weights[1:].sum() == pytest.approx(min(share, whole.weights[1:].sum()))


def test_a_young_asset_is_added_to_the_old_ones(prices):
    frame = prices(800, stocks=4, gaps=False)
    frame.iloc[:760, 3] = np.nan
    market = Market.from_prices(frame)
    moves = market.gross_returns[1:] - 1
    old = 0.9 * forecast_volatility(moves[:, 1:4].mean(axis=1))
    young = 0.1 * forecast_volatility(moves[-39:, 4])
    together = forecast_volatility(moves[-39:] @ np.array([0, 0.3, 0.3, 0.3, 0.1]))
    result = shield(np.array([0, 0.3, 0.3, 0.3, 0.1]), market, TIGHT)
    hidden = 0.9 * forecast_volatility(moves[:-1, 1:4].mean(axis=1)) + 0.1 * forecast_volatility(moves[-39:-1, 4])
    assert old + young < together
    # Volatility alone would allow this; losses of the mix in progress may cut it further.
    most = float(largest_exposure(np.array(max(old + young, hidden)), np.array(0.0), TIGHT, np.empty(0)))
    assert 0.5 * most < result.kappa <= most + 1e-12
    assert result.findings == (
        "The shield has 39 of 1,260 sessions of history of S3; the rest is filled by a cautious prior.",
    )


def test_insufficient_history_moves_to_cash(prices):
    frame = prices(120, gaps=False)
    frame.iloc[: 120 - LEAST - 1, 1] = np.nan
    frame.iloc[-1, 2] = np.nan  # delisted
    market = Market.from_prices(frame)
    result = shield(np.full(5, 0.2), market)
    assert result.removed == ("S1", "S2") and result.weights[2] == result.weights[3] == 0.0
    assert result.weights[1] == result.weights[4] > 0.0


@pytest.mark.parametrize("sessions", [1, 2, LEAST, LEAST + 1])
def test_where_nothing_has_enough_history_all_is_cash(prices, sessions):
    result = shield(EQUAL, Market.from_prices(prices(sessions, gaps=False)))
    assert result.removed == ("S0", "S1", "S2", "S3") and result.weights.tolist() == [1, 0, 0, 0, 0]
    assert (result.kappa, result.after, result.meets, result.scenarios) == (0.0, 0.0, True, 0)


def test_all_cash_stays(prices):
    cash = np.array([1.0, 0, 0, 0, 0])
    for market in (Market.from_prices(prices(120)), Market.from_prices(prices(1))):
        result = shield(cash, market)
        assert (result.kappa, result.after, result.meets, result.findings) == (1.0, 0.0, True, ())
        np.testing.assert_array_equal(result.weights, cash)


def test_all_cash_that_misses_the_limit_is_flagged(prices):
    market = Market.from_prices(prices(120, gaps=False), cash_rate=-0.9)
    result = shield(EQUAL, market)
    assert not result.meets and result.weights.tolist() == [1, 0, 0, 0, 0] and result.after < -0.05
    meets = shield(EQUAL, Market.from_prices(prices(120, gaps=False), cash_rate=-0.1))
    assert meets.meets and 0 < meets.kappa < 1


def test_the_history_is_told(prices):
    long, enough, few, short = (Market.from_prices(prices(n, gaps=False)) for n in (WINDOW + 1, 631, 630, 37))
    assert shield(EQUAL, long).findings == () and shield(EQUAL, long).scenarios == WINDOW
    assert shield(EQUAL, enough).findings == () != shield(EQUAL, few).findings
    told = shield(EQUAL, short)
    assert told.scenarios == 36
    assert told.findings == ("The shield has 36 of 1,260 sessions of history; the rest is filled by a cautious prior.",)


def test_the_future_changes_nothing(prices):
    frame = prices(120)
    known = shield(np.full(5, 0.2), Market.from_prices(frame).until(80))
    frame.iloc[81:] *= 3
    assert known.kappa == shield(np.full(5, 0.2), Market.from_prices(frame).until(80)).kappa


def test_the_filtered_form_is_asked_for_by_name(prices):
    market = Market.from_prices(prices(200))
    named, itself = shield(EQUAL, market, TIGHT, form="filtered"), shield_by_scenarios(EQUAL, market, TIGHT)
    np.testing.assert_array_equal(named.weights, itself.weights)
    assert (named.kappa, named.before, named.after) == (itself.kappa, itself.before, itself.after)
    assert named.kappa != shield(EQUAL, market, TIGHT).kappa


def test_bad_input_is_refused(prices):
    market = Market.from_prices(prices(60))
    for weights in ([1.0], [0.5, 0.6, 0, 0, 0], [np.nan, 1, 0, 0, 0], [2.0, -1, 0, 0, 0]):
        with pytest.raises(WeightsError):
            shield(np.array(weights), market)
