"""Contributions to the CVaR: they add up to the realised one, and each is what its stock lost."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo import backtest, load_prices
from portfolio_sdpo.backtest.record import Record, group_by_strategy, split_by_track
from portfolio_sdpo.portfolio.market import CASH
from portfolio_sdpo.report.contributions import BARS, FEES, draw_contributions, find_contributions

PROMISE = {"horizon": 2, "alpha": 0.5, "bound": -0.05}


@pytest.fixture(scope="module")
def record() -> Record:
    """Drifting, traded now and then, every week, behind the shield; with fees and a rate of cash."""
    prices = load_prices("sample")
    chosen = ["equal-weight", "buy-and-hold", "inverse-volatility", "cash"]
    return backtest(
        prices, chosen, start="2019-01-02", end="2020-12-31", fee_bps=20, cash=0.02, shield=True, intervals=False
    ).record


def test_they_add_up_to_the_cvar_of_the_record(record: Record):
    tracks, weights, trades = map(split_by_track, (record.equity, record.weights, record.trades))
    groups = group_by_strategy(record.metrics, record.config)
    assert any(group.name.endswith(" + shield") for group in groups)
    for group in groups:
        found = find_contributions(
            tracks[group.key], weights[group.key], trades.get(group.key), group.median["promise"]
        )
        assert found is not None
        assert found.sum() == pytest.approx(group.median["cvar_window"], abs=1e-12), group.name
        assert found[FEES] <= 0.0
        if group.name == "cash":
            assert found.drop(CASH).to_numpy() == pytest.approx(0.0, abs=1e-15) and found[CASH] > 0.0


def test_each_is_what_its_stock_lost():
    """A loses a tenth a day, B gains a tenth of it, half of the wealth in each every morning, and no fee."""
    days = pd.bdate_range("2020-01-02", periods=4)
    growth = 1.0 + 0.5 * -0.1 + 0.5 * 0.01
    wealth = growth ** np.arange(4)
    rows = pd.DataFrame(
        {"date": days, "wealth": wealth, "return": [np.nan, *np.full(3, growth - 1)], "cost": np.zeros(4)}
    )
    weights = pd.DataFrame({"strategy": "x", "date": days, CASH: 0.0, "A": 0.5, "B": 0.5})
    # In the evening B is worth more, and half of the difference is moved; on the last day nothing is traded any more.
    drifted = np.array([0.45, 0.505]) / growth
    weights.loc[3, ["A", "B"]] = drifted
    trades = pd.DataFrame(
        [
            {"date": day, "ticker": name, "amount": value * (0.5 - held)}
            for day, value in zip(days[1:3], wealth[1:3], strict=True)
            for name, held in zip("AB", drifted, strict=True)
        ]
    )
    found = find_contributions(rows, weights, trades, PROMISE)
    # Over two days, in units of the wealth at their beginning.
    assert found["A"] == pytest.approx(-0.05 * (1 + growth)) and found["B"] == pytest.approx(0.005 * (1 + growth))
    assert found[CASH] == pytest.approx(0.0) and found[FEES] == 0.0
    assert found.sum() == pytest.approx(growth**2 - 1)
    assert find_contributions(rows.head(2), weights.head(2), None, PROMISE) is None


def test_many_stocks_share_a_bar():
    names = [f"S{place:03}" for place in range(400)]
    found = pd.Series(-np.arange(1.0, 401.0) / 1e5, index=names)
    found[CASH], found[FEES] = 0.001, -0.0002
    weights = pd.DataFrame(np.full((3, 401), 1 / 401), columns=[CASH, *names])
    bars = draw_contributions(found, weights)["data"][0]
    assert len(bars["y"]) == BARS + 3 and bars["y"][0] == "S399" and bars["y"][BARS] == "385 others"
    assert sum(bars["x"]) == pytest.approx(found.sum(), abs=1e-4)
