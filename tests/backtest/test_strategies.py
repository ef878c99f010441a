"""Benchmarks against closed forms and an independent linear program; who takes part; no look into the future."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog

from portfolio_sdpo.backtest import STRATEGIES, CvarLimit, make_strategy, simulate, strategies
from portfolio_sdpo.backtest.closed_form import maximise_sharpe
from portfolio_sdpo.backtest.lookback import select_stocks
from portfolio_sdpo.common import plugins
from portfolio_sdpo.errors import MissingExtraError, SettingsError
from portfolio_sdpo.portfolio.filtered_shield import largest_share, scenarios
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.return_measures import conditional_value_at_risk

FORMULAS = ("inverse-volatility", "mean-variance", "momentum-12-1")
ESTIMATED = [name for name in STRATEGIES if name not in ("cash", "buy-and-hold", "equal-weight")]


def short(name, lookback=22):
    """The strategy with a lookback that fits the small markets."""
    settings = {"lookback": lookback} if name in ESTIMATED else {}
    if name == "maximum-return":
        settings["limit"] = CvarLimit(horizon=3, alpha=0.1, bound=-0.01)
    return make_strategy(name, **settings)


def uncorrelated(*scales, mean=0.0):
    """A market of stocks whose simple returns are exactly uncorrelated, with the given standard deviations."""
    base = np.random.default_rng(0).normal(size=(200, len(scales)))
    base -= base.mean(axis=0)
    left, _, right = np.linalg.svd(base, full_matrices=False)
    moves = left @ right * np.sqrt(199) * np.array(scales) + mean
    prices = 100 * np.cumprod(np.vstack([np.ones(len(scales)), 1 + moves]), axis=0)
    days = pd.bdate_range("2019-01-02", periods=201)
    return Market.from_prices(pd.DataFrame(prices, index=days, columns=list("ABCDEFG")[: len(scales)]))


def cash_only(assets):
    return np.eye(assets)[0]


@pytest.mark.parametrize("execution", ["next-close", "same-close"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_the_future_changes_no_weight(prices, name, execution):
    """Other prices after close t, or none, change nothing that was decided up to t."""
    frame, strategy = prices(70), short(name)
    t = 52  # the day of a decision: the leak of a single close would show
    other = frame.copy()
    other.iloc[t + 1 :] = frame.iloc[t + 1 :].to_numpy()[::-1] * 1.7
    other.iloc[t + 3 :, 0] = np.nan
    start = frame.index[28].date()
    whole, altered, cut = (
        simulate(Market.from_prices(table), strategy, start=start, every=4, execution=execution)
        for table in (frame, other, frame.iloc[: t + 1])
    )
    decided = t - 28 + 1
    np.testing.assert_array_equal(whole.weights[:decided], altered.weights[:decided])
    np.testing.assert_array_equal(whole.weights[: decided - 1], cut.weights)
    np.testing.assert_array_equal(whole.wealth[:decided], cut.wealth)
    for day, asked in cut.decisions.items():  # that of close t among them
        np.testing.assert_array_equal(asked, whole.decisions[day])
        np.testing.assert_array_equal(asked, altered.decisions[day])
    assert name == "cash" or not np.array_equal(whole.wealth, altered.wealth)


@pytest.mark.parametrize("name", STRATEGIES)
def test_weights_are_on_the_simplex_of_what_can_be_bought(prices, name):
    frame = prices(70)
    market = Market.from_prices(frame, cash_rate=0.02)
    strategy = short(name)
    held = cash_only(5)
    for t in (0, 10, 30, 36, 50, 69):
        weights = strategy.decide(market.until(t), held)
        assert weights.sum() == pytest.approx(1) and (weights >= 0).all()
        assert not weights[~market.listed[t]].any()
        if name in ESTIMATED and t < 22:
            np.testing.assert_array_equal(weights, held)


@pytest.mark.parametrize("name", ESTIMATED)
def test_only_stocks_with_a_full_history_take_part(prices, name):
    frame = prices(70, gaps=False)
    frame.iloc[:30, 1] = np.nan  # listed at session 30
    frame.iloc[50, 2] = np.nan  # suspended
    frame.iloc[:, 3] = 10.0  # stale
    market, strategy = Market.from_prices(frame), short(name)
    assert select_stocks(market.until(51), 22).tolist() == [1]
    assert select_stocks(market.until(52), 22).tolist() == [1, 2]
    weights = strategy.decide(market.until(51), cash_only(5))
    assert weights[0] + weights[1] == pytest.approx(1)
    weights = strategy.decide(market.until(69), cash_only(5))
    assert weights[3] == weights[4] == 0.0


def test_equal_weight_includes_new_listings(prices):
    market = Market.from_prices(prices(60))
    strategy = make_strategy("equal-weight")
    np.testing.assert_allclose(strategy.decide(market.until(0), cash_only(5)), [0, 1 / 3, 0, 1 / 3, 1 / 3])
    np.testing.assert_allclose(strategy.decide(market.until(25), cash_only(5)), [0, 0.25, 0.25, 0.25, 0.25])


def test_buy_and_hold_keeps_its_first_shares(prices):
    frame = prices(90)
    bought = frame[["S0", "S2", "S3"]]
    for execution, day in (("same-close", 0), ("next-close", 1)):
        until = frame.index[40].date()
        track = simulate(Market.from_prices(frame), make_strategy("buy-and-hold"), end=until, execution=execution)
        expected = (bought / bought.iloc[day]).mean(axis=1).to_numpy()[day:41]
        np.testing.assert_allclose(track.wealth[day:], expected)
        np.testing.assert_allclose(np.delete(track.turnover, day), 0, atol=1e-12)
    assert not track.weights[:, 2].any()
    late = simulate(Market.from_prices(frame), make_strategy("buy-and-hold")).held[-1]
    assert late[0] > 0 and late[2] == late[3] == 0.0  # what the delisting and the suspension paid out stays in cash


def test_inverse_volatility_is_skfolios():
    from skfolio.optimization import InverseVolatility

    market = uncorrelated(0.01, 0.02, 0.04)
    weights = make_strategy("inverse-volatility", lookback=150).decide(market, cash_only(4))
    theirs = InverseVolatility().fit(market.gross_returns[-150:, 1:] - 1).weights_
    np.testing.assert_allclose(weights[1:], theirs)


@pytest.mark.parametrize(
    "name, power", [("inverse-volatility", 1), ("risk-parity", 1), ("minimum-variance", 2), ("hrp", 2)]
)
def test_closed_forms_for_two_uncorrelated_stocks(name, power):
    """Equal risk shares are 1/σ, least variance (and HRP's only split) is 1/σ²."""
    scales = np.array([0.01, 0.02])
    weights = make_strategy(name, lookback=200).decide(uncorrelated(*scales), cash_only(3))
    expected = scales**-power / (scales**-power).sum()
    np.testing.assert_allclose(weights, [0, *expected], atol=5e-4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.8])
def test_the_closed_form_mix_is_the_optimum_that_a_solver_finds(seed, correlation):
    from scipy.optimize import minimize

    rng = np.random.default_rng(seed)
    mean, spread = rng.normal(0.0004, 0.0006, 7), rng.uniform(0.008, 0.03, 7)
    covariance = np.outer(spread, spread) * (correlation + (1 - correlation) * np.eye(7))
    weights = maximise_sharpe(mean, spread, correlation)

    def negative_sharpe(parts):
        return -(mean @ parts) / math.sqrt(parts @ covariance @ parts)

    found = minimize(
        negative_sharpe,
        np.full(7, 1 / 7),
        bounds=[(0, 1)] * 7,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
    )
    assert weights.min() >= 0 and weights.sum() == pytest.approx(1)
    assert negative_sharpe(weights) <= found.fun + 1e-9


def test_the_mix_of_uncorrelated_stocks_is_mean_over_variance():
    scales, mean = np.array([0.01, 0.02]), 0.001
    market = uncorrelated(*scales, mean=mean)
    weights = make_strategy("mean-variance", lookback=200, shrink=1.0).decide(market, cash_only(3))
    np.testing.assert_allclose(weights, [0, *(scales**-2 / (scales**-2).sum())], atol=1e-9)


def test_the_mix_holds_cash_where_no_stock_earned_more():
    market = uncorrelated(0.01, 0.02, mean=-0.001)
    np.testing.assert_array_equal(
        make_strategy("mean-variance", lookback=200).decide(market, cash_only(3)), cash_only(3)
    )


def test_momentum_leaves_out_the_last_month():
    days = pd.bdate_range("2019-01-02", periods=260)
    grown = np.ones((260, 4))
    grown[30:, 0] = 2.0  # doubled within the year
    grown[250:, 0] = 1.0  # and fell back in its last month
    grown[30:, 1] = 1.5
    grown[250:, 2] = 9.0  # rose in the last month only
    frame = pd.DataFrame(100 * grown * (1 + 1e-6 * np.arange(260))[:, None], index=days, columns=list("ABCD"))
    frame.iloc[::2] *= 1 + 1e-5  # no price may be stale
    market = Market.from_prices(frame)
    for share, expected in ((0.25, [0, 1, 0, 0, 0]), (0.5, [0, 0.5, 0.5, 0, 0]), (0.3, [0, 0.5, 0.5, 0, 0])):
        np.testing.assert_array_equal(
            make_strategy("momentum-12-1", share=share).decide(market, cash_only(5)), expected
        )


def test_a_year_is_as_long_as_the_prices_say():
    """252 daily sessions, 365 around the clock; of weekly and monthly prices as many as estimates need."""
    for freq, sessions, months in (("B", 252, 252), ("D", 365, 365), ("W-FRI", 60, 52), ("ME", 60, 12)):
        days = pd.date_range("2000-01-01", periods=80, freq=freq)
        market = Market.from_prices(pd.DataFrame({"A": np.linspace(1, 2, 80)}, index=days))
        assert make_strategy("hrp").count_sessions(market) == sessions
        assert make_strategy("momentum-12-1").count_sessions(market) == months


def least_cvar(excess, alpha):
    """Rockafellar and Uryasev's linear program: minimise ν + Σ u / (α S), u ≥ −x·w − ν, w on the simplex."""
    count, stocks = excess.shape
    objective = np.r_[np.zeros(stocks), 1, np.full(count, 1 / (alpha * count))]
    above = np.hstack([-excess, -np.ones((count, 1)), -np.eye(count)])
    whole = np.r_[np.ones(stocks), np.zeros(1 + count)][None]
    bounds = [(0, 1)] * stocks + [(None, None)] + [(0, None)] * count
    return linprog(objective, above, np.zeros(count), whole, [1.0], bounds).fun


def best_mean(excess, alpha, room):
    """The same program turned round: the highest mean with CVaR ≥ −room and at most everything in stocks."""
    count, stocks = excess.shape
    objective = -np.r_[excess.mean(axis=0), np.zeros(1 + count)]
    above = np.hstack([-excess, -np.ones((count, 1)), -np.eye(count)])
    risk = np.r_[np.zeros(stocks), 1, np.full(count, 1 / (alpha * count))]
    most = np.r_[np.ones(stocks), np.zeros(1 + count)]
    bounds = [(0, 1)] * stocks + [(None, None)] + [(0, None)] * count
    return -linprog(objective, np.vstack([above, risk, most]), np.r_[np.zeros(count), room, 1.0], bounds=bounds).fun


def test_minimum_cvar_is_that_of_the_linear_program(prices):
    market = Market.from_prices(prices(130, gaps=False))
    weights = make_strategy("minimum-cvar", lookback=100, alpha=0.1).decide(market, cash_only(5))
    moves = market.gross_returns[-100:, 1:] - 1
    assert weights[0] == pytest.approx(0, abs=1e-9)
    assert conditional_value_at_risk(moves @ weights[1:], 0.1) == pytest.approx(-least_cvar(moves, 0.1), rel=1e-5)


@pytest.mark.parametrize("bound", [-0.002, -0.02, -0.2])
@pytest.mark.parametrize("horizon, rate", [(1, 0.0), (5, 0.05)])
def test_maximum_return_is_that_of_the_linear_program(prices, bound, horizon, rate):
    """As much cash as the limit takes: most of it, some, none."""
    market = Market.from_prices(prices(130, seed=3, gaps=False), cash_rate=rate)
    limit = CvarLimit(bound=bound, alpha=0.1, horizon=horizon)
    weights = make_strategy("maximum-return", lookback=100, limit=limit).decide(market, cash_only(5))
    earned = (1 + rate / 252) ** horizon - 1
    excess = scenarios(market, horizon, 100)[0][:, 1:] - earned
    assert earned + conditional_value_at_risk(excess @ weights[1:], 0.1) >= bound
    gained = float((excess @ weights[1:]).mean())
    assert gained == pytest.approx(best_mean(excess, 0.1, earned - bound), rel=1e-4, abs=1e-8)
    if bound == -0.2:
        assert weights[0] == pytest.approx(0, abs=1e-6)
    if bound == -0.002:
        assert 0.5 < weights[0] < 1.0


def test_maximum_return_of_one_stock_is_the_shields_share():
    market = uncorrelated(0.02, mean=0.002)
    limit = CvarLimit(bound=-0.01, alpha=0.1, horizon=1)
    weights = make_strategy("maximum-return", lookback=200, limit=limit).decide(market, cash_only(2))
    share, _ = largest_share(market.gross_returns[1:, 1] - 1, 0.0, limit)
    assert weights[1] == pytest.approx(share, rel=1e-6) and 0.1 < share < 0.9


def test_maximum_return_stays_in_cash_when_stocks_fall_or_the_bound_is_zero(prices):
    limit = CvarLimit(bound=-0.05, horizon=1)
    falling = make_strategy("maximum-return", lookback=200, limit=limit).decide(
        uncorrelated(0.01, 0.02, mean=-0.005), cash_only(3)
    )
    np.testing.assert_allclose(falling, [1, 0, 0], atol=1e-6)
    strict = make_strategy("maximum-return", lookback=60, limit=CvarLimit(bound=0.0, horizon=1))
    np.testing.assert_allclose(
        strict.decide(Market.from_prices(prices(90, gaps=False)), cash_only(5)), cash_only(5), atol=1e-6
    )


def test_maximum_return_notes_that_cash_itself_misses_the_limit(prices):
    market = Market.from_prices(prices(60, gaps=False), cash_rate=-0.02)
    strategy = make_strategy("maximum-return", lookback=30, limit=CvarLimit(bound=0.0, horizon=1))
    track = simulate(market, strategy, start=market.dates[50])
    assert (track.weights[:, 0] == 1).all()
    assert "holds all cash, which itself misses the limit" in track.notes[0]


@pytest.mark.parametrize("name", [name for name in ESTIMATED if name not in FORMULAS])
def test_a_failed_optimiser_keeps_what_is_held_and_is_noted(prices, name, monkeypatch):
    def fail(model, returns):
        raise ValueError("no solution.\nMore about it. And more.")

    strategy, market = short(name), Market.from_prices(prices(40, gaps=False))
    monkeypatch.setattr(strategies, "fit_weights", fail)
    held = np.array([0.1, 0.2, 0.3, 0.2, 0.2])
    with pytest.warns(UserWarning, match=r"keeps what it holds \(no solution\)\."):
        np.testing.assert_array_equal(strategy.decide(market, held), held)
    track = simulate(market, strategy, start=market.dates[-2])
    # Once for the decision that was held, and once for what is to be held from the last close on.
    assert [note[:10] for note in track.notes] == [str(day) for day in market.dates[-2:]]


def test_what_skfolio_warns_of_is_noted(prices):
    frame = prices(40, stocks=4, gaps=False)
    frame["S4"] = frame["S0"] * 2  # the covariance is singular
    market = Market.from_prices(frame)
    track = simulate(market, short("minimum-variance"), start=market.dates[-2])
    assert len(track.notes) == 2 and all("not positive definite" in note for note in track.notes)


def test_without_skfolio_a_command_is_named(prices, monkeypatch):
    monkeypatch.setattr(plugins, "find_spec", lambda name: None)
    market = Market.from_prices(prices(40, gaps=False))
    with pytest.raises(MissingExtraError, match=r"hrp needs .* pip install 'portfolio_sdpo\[backtest\]'"):
        short("hrp").decide(market, cash_only(5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert short("inverse-volatility").decide(market, cash_only(5)).sum() == pytest.approx(1)


def test_bad_settings_are_refused():
    with pytest.raises(SettingsError, match=r"there is no 'minimum-risk'.*; there are cash"):
        make_strategy("minimum-risk")
    with pytest.raises(SettingsError, match=r"HierarchicalRiskParity\.every"):
        make_strategy("hrp", every=0)
    with pytest.raises(SettingsError, match="need at least 34 sessions"):
        make_strategy("maximum-return", lookback=20)
    assert math.isclose(make_strategy("maximum-return").limit.bound, -0.05)


def test_names_are_the_registrys():
    assert {name: make_strategy(name).name for name in STRATEGIES} == {name: name for name in STRATEGIES}
