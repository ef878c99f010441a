"""Volatility, Sharpe ratio and beta over time: those of the sessions before each day, and of nothing later."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.backtest.record import StrategyGroup
from portfolio_sdpo.portfolio import return_measures as measures
from portfolio_sdpo.report.comparisons import find_index
from portfolio_sdpo.report.rolling import describe_measures, draw_rolling_measures, roll_measures


def make_rows(returns: np.ndarray, cash: float = 0.0001) -> pd.DataFrame:
    days = pd.bdate_range("2015-01-02", periods=len(returns) + 1)
    start = [np.nan]
    return pd.DataFrame(
        {
            "date": days,
            "return": np.append(start, returns),
            "cash_return": np.append(start, np.full(len(returns), cash)),
        }
    )


def draw_returns(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0004, 0.01, count)


def test_a_value_is_that_of_the_sessions_up_to_its_day():
    returns, market = draw_returns(600), draw_returns(600, 1)
    rows, index = make_rows(returns), make_rows(market)
    rolled = roll_measures(rows, 252, index)
    assert len(rolled) == 600 - 252 + 1 and rolled["date"].iloc[-1] == rows["date"].iloc[-1]
    for place in (0, 100, len(rolled) - 1):
        own, other = returns[place : place + 252] - 0.0001, market[place : place + 252] - 0.0001
        row = rolled.iloc[place]
        assert row["date"] == rows["date"].iloc[place + 252]
        assert row["volatility"] == pytest.approx(float(measures.volatility(returns[place : place + 252])))
        assert row["sharpe"] == pytest.approx(float(measures.sharpe(own)))
        assert row["beta"] == pytest.approx(np.cov(own, other)[0, 1] / other.var(ddof=1))
    # What comes later changes nothing before.
    before = roll_measures(rows.iloc[:551], 252, index.iloc[:551])
    assert before["beta"].to_numpy() == pytest.approx(rolled["beta"].to_numpy()[: len(before)])


def test_half_of_the_market_has_a_beta_of_a_half_and_cash_has_none_to_its_name():
    market = draw_returns(600)
    index = make_rows(market)
    half = roll_measures(make_rows(0.0001 + 0.5 * (market - 0.0001)), 252, index)
    assert half["beta"].to_numpy() == pytest.approx(0.5)
    cash = roll_measures(make_rows(np.full(600, 0.0001)), 252, index)
    assert cash["beta"].to_numpy() == pytest.approx(0.0, abs=1e-12) and cash["sharpe"].isna().all()


def test_a_short_track_is_measured_by_the_quarter_or_not_at_all():
    rows = make_rows(draw_returns(252))
    assert len(roll_measures(rows, 252, None)) == 252 - 63 + 1
    assert "63 sessions" in describe_measures(rows, {"sessions_per_year": 252}, None)
    short = make_rows(draw_returns(100))
    assert roll_measures(short, 252, None).empty
    assert draw_rolling_measures(short, {"sessions_per_year": 252}, None) is None


def test_a_long_track_is_thinned_and_ends_on_its_last_day():
    rows = make_rows(draw_returns(6000))
    rolled = roll_measures(rows, 252, None)
    assert len(rolled) <= 1500 and rolled["date"].iloc[-1] == rows["date"].iloc[-1]
    spec = draw_rolling_measures(rows, {"sessions_per_year": 252}, rows)
    assert [trace["name"] for trace in spec["data"]] == ["volatility a year", "Sharpe ratio", "beta"]
    assert spec["layout"]["xaxis"]["anchor"] == "y3"


def test_beta_is_to_equal_weights_or_the_first_other_benchmark():
    cash, fund, equal = (StrategyGroup(name, "benchmark", ({},)) for name in ("cash", "fund", "equal-weight"))
    agent, shielded = StrategyGroup("sdpo", "agent", ({},)), StrategyGroup("fund + shield", "benchmark", ({},))
    assert find_index([agent, cash, shielded, fund, equal], "sdpo") is equal
    assert find_index([agent, cash, shielded, fund], "sdpo") is fund
    assert find_index([agent, cash, equal], "equal-weight") is None
    assert find_index([agent, cash], "sdpo") is None
