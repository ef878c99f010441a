"""The record of a track: by hand, against skfolio, and on tracks of which little can be said."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.backtest import Bootstrap, Track, make_strategy, simulate, summarise
from portfolio_sdpo.backtest.statistics import (
    compute_sharpe,
    deflated_sharpe,
    drawdown_length,
    expected_best_sharpe,
    growth_difference,
    probabilistic_sharpe,
)
from portfolio_sdpo.errors import BacktestError, SettingsError
from portfolio_sdpo.portfolio.market import Market


def track_of(wealth, cash=0.0, costs=0.0, turnover=0.0, sessions_per_year=252):
    wealth = np.asarray(wealth, dtype=float)
    days = len(wealth) - 1
    dates = np.datetime64("2019-01-02") + np.arange(days + 1)
    weights = np.tile([0.0, 1.0], (days + 1, 1))
    return Track(
        name="test",
        assets=("CASH", "S"),
        dates=dates,
        wealth=wealth,
        weights=weights[1:],
        held=weights,
        costs=np.full(days, costs),
        turnover=np.full(days, turnover),
        cash_returns=np.full(days, cash),
        next_weights=weights[0],
        sessions_per_year=sessions_per_year,
    )


def test_by_hand():
    track = track_of([2, 2.2, 1.1, 1.65, 2.475], cash=0.01, costs=0.1, turnover=0.5, sessions_per_year=2)
    record = summarise(track, alpha=0.25, horizon=2)
    assert (record.start, record.end, record.sessions) == ("2019-01-02", "2019-01-06", 4)
    assert record.final_wealth == pytest.approx(1.2375)
    assert record.total_return == pytest.approx(0.2375)
    assert record.cagr == pytest.approx(1.2375**0.5 - 1)
    returns = np.array([0.1, -0.5, 0.5, 0.5])
    assert record.volatility == pytest.approx(returns.std(ddof=1) * math.sqrt(2))
    assert record.sharpe == pytest.approx(0.14 / returns.std(ddof=1) * math.sqrt(2))
    assert record.sortino == pytest.approx(0.14 / math.sqrt(0.51**2 / 4) * math.sqrt(2))
    assert record.max_drawdown == pytest.approx(-0.5)
    assert record.calmar == pytest.approx(record.cagr / 0.5)
    assert (record.max_drawdown_sessions, record.max_drawdown_recovered) == (3, True)
    assert (record.var, record.cvar) == pytest.approx((-0.5, -0.5))
    # Two-day returns: −0.45, −0.25, 1.25; a quarter of three is three quarters of the worst.
    assert (record.var_window, record.cvar_window) == pytest.approx((-0.45, -0.45))
    assert record.hit_rate == 0.75
    assert record.turnover == pytest.approx(1)
    assert record.cost == pytest.approx(0.2)


@pytest.mark.parametrize(
    "returns, expected",
    [
        ([0.1, 0.1], (0, True)),
        ([0.1, -0.1, 0.05], (2, False)),
        ([-0.5, 1.0, 0.1], (2, True)),
        ([-0.1, 0.2, -0.3, 0.1, 0.1, 0.3], (4, True)),
        ([-0.1], (1, False)),
    ],
)
def test_length_of_the_deepest_drawdown(returns, expected):
    assert drawdown_length(np.array(returns)) == expected


def test_probabilistic_sharpe_by_hand():
    # Symmetric, two values: skew 0, kurtosis 1, so the divisor is 1.
    excess = np.array([0.03, -0.01] * 8)
    ratio = 0.01 / excess.std(ddof=1)
    normal = 0.5 * (1 + math.erf(ratio * math.sqrt(15) / math.sqrt(2)))
    assert probabilistic_sharpe(excess) == pytest.approx(normal)
    assert probabilistic_sharpe(excess, benchmark=ratio * math.sqrt(252)) == pytest.approx(0.5)


def test_expected_best_of_two_by_hand():
    # Two trials: Φ⁻¹(1/2) = 0, so only the second term is left, Φ⁻¹(1 − 1/(2e)) = 0.9005.
    assert expected_best_sharpe([0.0, 2.0]) == pytest.approx(math.sqrt(2) * 0.5772157 * 0.900465, rel=1e-4)


def test_sharpe_probabilities_are_skfolios():
    from skfolio.measures import deflated_sharpe_ratio, probabilistic_sharpe_ratio

    rng = np.random.default_rng(3)
    excess = rng.standard_t(4, 250) * 0.01 + 0.001
    trials = rng.normal(0.5, 1.0, 9)
    daily = trials / math.sqrt(252)
    # skfolio's skew and kurtosis correct for the sample's size, ours (as in the papers) do not.
    assert probabilistic_sharpe(excess) == pytest.approx(probabilistic_sharpe_ratio(excess), abs=2e-3)
    assert deflated_sharpe(excess, trials) == pytest.approx(deflated_sharpe_ratio(excess, daily), abs=2e-3)


def test_deflation_only_lowers_and_forgets_what_is_undefined():
    excess = np.random.default_rng(0).normal(0.001, 0.01, 252)
    plain = probabilistic_sharpe(excess)
    assert deflated_sharpe(excess, [1.0]) == plain
    few, many = deflated_sharpe(excess, [0.5, 1.5]), deflated_sharpe(excess, [0.5, 1.5] * 10)
    assert many < few < plain
    assert deflated_sharpe(excess, [0.5, 1.5, math.nan]) == few
    record = summarise(track_of(np.cumprod(1 + np.r_[0, excess])), trials=[0.5, 1.5])
    assert record.deflated_sharpe == pytest.approx(few)
    assert record.probabilistic_sharpe == pytest.approx(plain)


@pytest.mark.parametrize("wealth", [[1, 1.1], [1.0] * 30, 1.0001 ** np.arange(40), [1, 1e200]], ids=range(4))
def test_little_to_say_is_null_in_json(wealth):
    record = summarise(track_of(wealth), trials=[], bootstrap=Bootstrap(draws=5))
    text = json.dumps(record.to_json(), allow_nan=False)
    assert json.loads(text)["sharpe"] is None
    assert json.loads(text)["deflated_sharpe"] is None
    assert json.loads(text)["intervals"]["max_drawdown"] == [0.0, 0.0]


@pytest.mark.parametrize("wealth", [[1.0], [1.0, np.nan], [1.0, np.inf], [1.0, 0.0], [1.0, -1.0]])
def test_what_is_no_track_is_refused(wealth):
    with pytest.raises(BacktestError, match="finite, positive wealth"):
        summarise(track_of(wealth))


def test_wrong_settings_are_refused():
    for settings in ({"alpha": 0.0}, {"alpha": 1.0}, {"horizon": 0}):
        with pytest.raises(SettingsError, match=next(iter(settings))):
            summarise(track_of([1, 1.1]), **settings)


def test_intervals_hold_the_figure_and_repeat(prices):
    track = simulate(Market.from_prices(prices(150)), make_strategy("equal-weight"))
    bootstrap = Bootstrap(draws=300, seed=4)
    record = summarise(track, horizon=5, bootstrap=bootstrap)
    for name in ("final_wealth", "total_return", "volatility", "sharpe", "sortino", "cvar", "cvar_window", "hit_rate"):
        low, high = record.intervals[name]
        assert low < getattr(record, name) < high
    assert record == summarise(track, horizon=5, bootstrap=bootstrap)
    assert record.intervals != summarise(track, horizon=5, bootstrap=Bootstrap(draws=300, seed=5)).intervals


def test_interval_of_the_mean_is_the_textbooks():
    """For independent days the interval of a mean is ±1.96 standard errors."""
    returns = np.random.default_rng(0).normal(0.0, 0.01, 400)
    record = summarise(track_of(np.cumprod(np.r_[1, 1 + returns])), horizon=1, bootstrap=Bootstrap(draws=2000, block=1))
    low, high = np.log(record.intervals["final_wealth"])
    assert high - low == pytest.approx(2 * 1.96 * 0.01 * math.sqrt(400), rel=0.12)


def test_without_arch_a_command_is_named(monkeypatch):
    from portfolio_sdpo.common import plugins
    from portfolio_sdpo.errors import MissingExtraError

    monkeypatch.setattr(plugins, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'portfolio_sdpo\[backtest\]'"):
        summarise(track_of([1, 1.1, 1.2]), bootstrap=Bootstrap())


def test_growth_against_a_rival_is_compared_session_by_session():
    rng = np.random.default_rng(0)
    rival = 0.02 * rng.standard_normal(500)
    ours = np.expm1(np.log1p(rival) + 0.0004)
    figures = growth_difference(ours, rival, Bootstrap(draws=50))
    assert figures["growth"] == pytest.approx(0.0004 * 252)
    # What moves both alike is taken out, and nothing else moves here.
    assert figures["interval"] == pytest.approx([0.0004 * 252] * 2)
    assert growth_difference(ours, rival, None)["interval"] is None
    assert figures["span"] == "year"
    # Of half a year there is no rate per year, but what the difference came to.
    half = growth_difference(ours[:126], rival[:126], None)
    assert half == {"growth": pytest.approx(0.0004 * 126), "interval": None, "span": "track"}


@pytest.mark.parametrize(("ours", "theirs"), [(-1.0, 0.1), (0.1, -1.0), (-1.0, -1.0)])
def test_who_lost_everything_is_not_compared(ours, theirs):
    returns, rival = (np.append(np.full(30, 0.01), last) for last in (ours, theirs))
    assert growth_difference(returns, rival, Bootstrap(draws=5)) == {"growth": None, "interval": None, "span": "track"}


def test_below_a_year_there_is_no_yearly_rate():
    wealth = np.cumprod(np.r_[1, 1 + np.random.default_rng(0).normal(0.002, 0.01, 252)])
    short = summarise(track_of(wealth[:-1]), bootstrap=Bootstrap(draws=20))
    assert math.isnan(short.cagr) and math.isnan(short.calmar)
    assert not {"cagr", "calmar"} & set(short.intervals)
    assert short.total_return == pytest.approx(wealth[-2] - 1)
    assert short.intervals["total_return"][0] < short.total_return < short.intervals["total_return"][1]
    assert summarise(track_of(wealth)).cagr == pytest.approx(wealth[-1] - 1)


def test_what_is_as_good_as_cash_has_no_sharpe_ratio_and_is_no_trial():
    moves = np.random.default_rng(0).normal(0.0005, 0.01, 300)
    nearly_cash = summarise(track_of(np.cumprod(np.r_[1, 1 + 0.0002 * moves])), trials=[1.0, 2.0])
    assert 0 < nearly_cash.volatility < 1e-4
    for figure in ("sharpe", "sortino", "probabilistic_sharpe", "deflated_sharpe"):
        assert math.isnan(getattr(nearly_cash, figure))
    assert math.isnan(compute_sharpe(0.0002 * moves))
    assert compute_sharpe(0.02 * moves) == pytest.approx(float(moves.mean() / moves.std(ddof=1) * math.sqrt(252)))


@pytest.mark.parametrize(
    ("freq", "per_year"),
    [("B", 252), ("D", 365), ("W-FRI", 52), ("ME", 12)],
    ids=["daily", "24/7", "weekly", "monthly"],
)
def test_figures_per_year_are_those_computed_independently(freq, per_year):
    """CAGR from the growth of one year's sessions, spread from sums of squares: nothing of ours is used."""
    years = 6
    index = pd.date_range("2010-01-01", periods=years * per_year + 1, freq=freq)
    moves = np.random.default_rng(7).normal(0.0, 1.0, len(index) - 1)
    moves = 0.1 / per_year + 0.2 / math.sqrt(per_year) * (moves - moves.mean())
    prices = pd.DataFrame({"S": 100 * np.cumprod(np.r_[1.0, 1 + moves])}, index=index)
    market = Market.from_prices(prices, cash_rate=0.03)
    assert market.sessions_per_year == per_year
    track = simulate(market, make_strategy("buy-and-hold"), start=index[0].date(), execution="same-close")
    assert track.cash_returns == pytest.approx(np.full(len(moves), 0.03 / per_year))
    record = summarise(track, horizon=3)
    assert record.sessions_per_year == per_year
    assert 1 + record.cagr == pytest.approx((prices["S"].iloc[-1] / prices["S"].iloc[0]) ** (1 / years))
    squares = float(np.sum((moves - moves.mean()) ** 2))
    spread = math.sqrt(squares / (len(moves) - 1) * per_year)
    assert record.volatility == pytest.approx(spread)
    assert record.sharpe == pytest.approx((0.1 - 0.03) / spread)
    downside = math.sqrt(np.mean(np.minimum(moves - 0.03 / per_year, 0.0) ** 2) * per_year)
    assert record.sortino == pytest.approx((0.1 - 0.03) / downside)
    assert record.turnover == pytest.approx(1 / years)
    rival = growth_difference(track.returns, np.zeros(len(moves)), None, per_year)
    assert rival["growth"] == pytest.approx(np.log1p(record.cagr))


def test_irregular_prices_are_counted():
    days = pd.to_datetime(["2020-01-01", "2020-01-12", "2020-02-20", "2020-03-02", "2020-05-30", "2020-06-18"])
    frame = pd.DataFrame({"S": np.arange(1.0, 7.0)}, index=days)
    assert Market.from_prices(frame).sessions_per_year == pytest.approx(5 / 169 * 365.25)
