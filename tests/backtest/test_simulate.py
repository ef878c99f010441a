"""The simulation: dates, drift, fees and listings by hand, what a strategy may see, and how bad input is refused.

By hand at the same close; `test_execution.py` has the same by hand at the next close.
"""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.backtest import STRATEGIES, make_strategy, simulate
from portfolio_sdpo.errors import HistoryError, SettingsError, WeightsError
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.market import Market

at_same_close = partial(simulate, execution="same-close")


class Fixed:
    """The same weights at every decision; remembers what it was shown."""

    name, every = "fixed", 1

    def __init__(self, *weights):
        self.weights = np.array(weights)
        self.seen = []

    def decide(self, history, held):
        self.seen.append((history, held.copy()))
        held[:] = np.nan  # must not reach the track
        return self.weights


def load_frame(columns, cash_rate=0.0):
    frame = pd.DataFrame(columns, dtype=float)
    return Market.from_prices(frame.set_axis(pd.bdate_range("2019-01-02", periods=len(frame))), cash_rate)


def test_by_hand():
    market = load_frame({"A": [100, 110, 99], "B": [50, 50, 60]})
    track = at_same_close(market, Fixed(0.0, 0.5, 0.5), wealth=1000)
    # 1000 → 550 + 500; rebalanced to 525 each → 472.5 + 630.
    np.testing.assert_allclose(track.wealth, [1000, 1050, 1102.5])
    np.testing.assert_allclose(track.held, [[1, 0, 0], [0, 550 / 1050, 500 / 1050], [0, 472.5 / 1102.5, 630 / 1102.5]])
    np.testing.assert_allclose(track.weights, [[0, 0.5, 0.5]] * 2)
    np.testing.assert_allclose(track.turnover, [1, 50 / 1050])
    np.testing.assert_allclose(track.returns, [0.05, 0.05])
    assert track.assets == ("CASH", "A", "B")
    assert [str(day) for day in track.dates] == ["2019-01-02", "2019-01-03", "2019-01-04"]


def test_weights_drift_between_decisions():
    market = load_frame({"A": [100, 110, 99, 99], "B": [50, 50, 60, 60]})
    track = at_same_close(market, Fixed(0.0, 0.5, 0.5), every=2)
    np.testing.assert_allclose(track.wealth, [1, 1.05, 0.495 + 0.6, 1.095])
    np.testing.assert_allclose(track.weights[1], track.held[1])
    np.testing.assert_allclose(track.turnover[1], 0)
    np.testing.assert_allclose(track.weights[2], [0, 0.5, 0.5])


def test_fee_is_paid_on_what_is_traded():
    market = load_frame({"A": [100, 100, 100], "B": [50, 50, 50]})
    track = at_same_close(market, Fixed(0.0, 1.0, 0.0), fee=0.01, wealth=1000)
    assert track.wealth.round(2).tolist() == [1000, 990.10, 990.10]
    np.testing.assert_allclose(track.costs, [1000 - 1000 / 1.01, 0], atol=1e-9)


def test_cash_earns_its_rate():
    track = at_same_close(load_frame({"A": [100, 90, 95]}, cash_rate=0.0252), Fixed(1.0, 0.0))
    np.testing.assert_allclose(track.wealth, [1, 1.0001, 1.0001**2])
    np.testing.assert_allclose(track.cash_returns, 0.0001)


def test_listings_come_and_go():
    market = load_frame({"A": [100, 110, np.nan, np.nan], "B": [np.nan, 50, 55, 55]})
    track = at_same_close(market, Fixed(0.0, 0.5, 0.5))
    # Day 0: half of it in B, which has no price yet, is cash. Day 2: A is paid out at 110, B has gained a tenth.
    np.testing.assert_allclose(track.weights[0], [0.5, 0.5, 0])
    np.testing.assert_allclose(track.wealth, [1, 1.05, 1.05 * 1.05, 1.05 * 1.05])
    np.testing.assert_allclose(track.held[2], [0.5 / 1.05, 0, 0.55 / 1.05])
    np.testing.assert_allclose(track.weights[2], [0.5, 0, 0.5])


def test_limits_are_enforced():
    market = load_frame({"A": [100, 110, 121], "B": [50, 50, 50]})
    track = at_same_close(market, Fixed(0.0, 1.0, 0.0), limits=Limits(max_weight=0.4))
    np.testing.assert_allclose(track.weights, [[0.6, 0.4, 0]] * 2)
    track = at_same_close(market, Fixed(0.0, 1.0, 0.0), limits=Limits(max_turnover=0.25), fee=0.01)
    assert (track.turnover <= 0.25 + 1e-12).all() and track.turnover[0] == pytest.approx(0.25)


def test_a_strategy_sees_the_past_only(prices):
    market = Market.from_prices(prices(30))
    strategy = Fixed(0.2, 0.8, 0.0, 0.0, 0.0)
    track = at_same_close(market, strategy, start="2019-01-12", end="2019-02-03", every=3)
    assert str(track.dates[0]) == "2019-01-14" and str(track.dates[-1]) == "2019-02-01"
    decided = [*range(0, len(track.dates) - 1, 3), -1]  # and at the last close
    assert [history.dates[-1] for history, _ in strategy.seen] == list(track.dates[decided])
    assert all(len(history) == market.index_of(history.dates[-1]) + 1 for history, _ in strategy.seen)
    np.testing.assert_array_equal([held for _, held in strategy.seen], track.held[decided])


def test_the_last_close_is_decided_on_and_changes_no_track():
    market = load_frame({"A": [100, 110, 99], "B": [50, 50, np.nan]})
    track = at_same_close(market, Fixed(0.0, 0.5, 0.5), limits=Limits(max_weight=0.4), fee=0.01)
    np.testing.assert_allclose(track.next_weights, [0.6, 0.4, 0.0])  # within limits, and B is gone
    longer = at_same_close(
        load_frame({"A": [100, 110, 99, 120], "B": [50, 50, np.nan, 60]}), Fixed(0.0, 0.5, 0.5), every=2
    )
    shorter = at_same_close(market, Fixed(0.0, 0.5, 0.5), every=2)
    np.testing.assert_array_equal(longer.wealth[:3], shorter.wealth)
    np.testing.assert_array_equal(longer.weights[2], shorter.next_weights)


def test_where_nothing_is_listed_any_more_there_is_nothing_to_decide():
    strategy = Fixed(0.0, 1.0)
    track = at_same_close(load_frame({"A": [100, 110, np.nan]}), strategy)
    np.testing.assert_array_equal(track.next_weights, [1.0, 0.0])
    assert len(strategy.seen) == 2


def test_warnings_of_a_strategy_become_notes():
    class Doubtful(Fixed):
        def decide(self, history, held):
            warnings.warn("is not sure.", stacklevel=1)
            return self.weights

    track = simulate(load_frame({"A": [100, 110, 99]}), Doubtful(1.0, 0.0))
    assert track.notes == tuple(f"2019-01-0{day}: is not sure." for day in (2, 3, 4))


@pytest.mark.parametrize("weights", [(0.5, 0.6), (1.5, -0.5), (np.nan, 1.0), (1.0,), (0.5, 0.25, 0.25)])
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(WeightsError, match="fixed on 2019-01-02"):
        simulate(load_frame({"A": [100, 110]}), Fixed(*weights))


def test_bad_settings_are_refused():
    market = load_frame({"A": [100, 110, np.nan, np.nan]})
    stay = Fixed(1.0, 0.0)
    for settings, complaint in [
        ({"every": 0}, "every"),
        ({"wealth": 0.0}, "wealth"),
        ({"wealth": np.nan}, "wealth"),
        ({"fee": -0.1}, "fee"),
        ({"start": "2019-01-04", "end": "2019-01-03"}, "start"),
    ]:
        with pytest.raises(SettingsError, match=complaint):
            simulate(market, stay, **settings)
    for settings, complaint in [
        ({"start": "2019-01-03", "end": "2019-01-03"}, "two sessions"),
        ({"start": "2019-01-04"}, "no stock has a price"),
        ({"start": "2018-01-04"}, "outside the prices"),
    ]:
        with pytest.raises(HistoryError, match=complaint):
            simulate(market, stay, **settings)


@pytest.mark.parametrize("execution", ["next-close", "same-close"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_all_strategies_are_accounted_for_in_shares(prices, name, execution):
    """The same orders, kept as a number of shares and a bank account, come to the same wealth."""
    frame, fee = prices(60), 0.002
    market = Market.from_prices(frame, cash_rate=0.03)
    settings = {} if name in ("cash", "buy-and-hold", "equal-weight") else {"lookback": 22}
    if name == "maximum-return":
        settings["limit"] = {"horizon": 2, "alpha": 0.1, "bound": -0.01}
    track = simulate(
        market, make_strategy(name, **settings), start=frame.index[24].date(), fee=fee, every=6, execution=execution
    )
    first = market.index_of(track.dates[0])
    bank, shares = 1.0, np.zeros(len(market.tickers))
    for day, weights in enumerate(track.weights):
        price = frame.to_numpy()[first + day]
        owned = np.nan_to_num(shares * price)
        wealth = bank + owned.sum()
        assert wealth == pytest.approx(track.wealth[day])
        wanted = (wealth - track.costs[day]) * weights[1:]
        assert np.abs(wanted - owned).sum() * fee == pytest.approx(track.costs[day], abs=1e-12)
        bank = (wealth - track.costs[day]) * weights[0] * (1 + 0.03 / 252)
        shares = np.where(wanted > 0, wanted / np.where(np.isnan(price), 1.0, price), 0.0)
        gone = np.isnan(frame.to_numpy()[first + day + 1]) & (wanted > 0)
        bank += wanted[gone].sum()
        shares[gone] = 0.0
    assert (track.wealth > 0).all()
