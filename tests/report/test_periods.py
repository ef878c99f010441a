"""Drawdowns, years and crises of tracks whose answers are known."""

from datetime import date

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.portfolio.return_measures import conditional_value_at_risk, window_returns
from portfolio_sdpo.report.periods import STRESS, find_drawdowns, list_stress, list_years, roll_periods
from portfolio_sdpo.report.through_time import render_stress_table, render_year_table


def track(wealth, first="2020-01-01"):
    """Rows of the equity table with that wealth, on weekdays."""
    wealth = np.asarray(wealth, dtype=float)
    returns = np.concatenate([[np.nan], wealth[1:] / wealth[:-1] - 1.0])
    zeros = np.zeros(len(wealth))
    days = pd.bdate_range(first, periods=len(wealth))
    return pd.DataFrame({"date": days, "wealth": wealth, "return": returns, "cost": zeros, "turnover": zeros})


def test_drawdowns_are_dated_and_the_deepest_come_first():
    rows = track([1.0, 1.2, 1.08, 1.2, 1.3, 0.65, 0.975, 1.3, 1.4, 1.26])
    first, second, third = find_drawdowns(rows)
    days = [day.date() for day in rows["date"]]
    assert (first.peak, first.trough, first.recovered, first.sessions) == (days[4], days[5], days[7], 3)
    assert [first.depth, second.depth, third.depth] == pytest.approx([-0.5, -0.1, -0.1])
    open_one = next(each for each in (second, third) if each.recovered is None)
    assert (open_one.peak, open_one.trough, open_one.sessions) == (days[8], days[9], 1)
    assert find_drawdowns(rows, most=1) == [first]
    assert find_drawdowns(track([1.0, 1.0, 1.1])) == []


def test_years_multiply_to_the_whole():
    rows = track(np.exp(np.random.default_rng(0).normal(0.0, 0.01, 600).cumsum()), "2018-07-02")
    rows.loc[[0, 10], "turnover"], rows.loc[[0, 10], "cost"] = [1.0, 0.5], [0.01, 0.005]
    weights = pd.DataFrame({"CASH": np.linspace(0.0, 1.0, 600), "S": np.linspace(1.0, 0.0, 600)})
    years = list_years(rows, weights)
    assert [each.year for each in years] == [2018, 2019, 2020]
    assert np.prod([1.0 + each.growth for each in years]) == pytest.approx(rows["wealth"].iloc[-1] / rows["wealth"][0])
    assert years[0].turnover == 1.5
    assert years[0].cost == pytest.approx(0.01 / rows["wealth"][0] + 0.005 / rows["wealth"][10])
    assert sum(each.cost for each in years[1:]) == 0.0
    counts = rows["date"].dt.year.value_counts().sort_index().to_numpy()
    assert np.average([each.invested for each in years], weights=counts) == pytest.approx(0.5)
    assert np.isnan(list_years(rows, None)[0].invested)


def test_only_crises_that_lie_within_the_track_are_told():
    rows = track(np.ones(420), "2019-01-01")
    fall = rows["date"].between("2020-02-20", "2020-03-23")
    rows.loc[fall, "wealth"] = np.linspace(0.98, 0.6, fall.sum())
    rows.loc[rows["date"] > "2020-03-23", "wealth"] = 0.6
    found = list_stress(rows, 5)
    assert list(found) == ["2020"]
    assert found["2020"].growth == pytest.approx(-0.4)
    wealth = np.concatenate([[1.0], rows.loc[fall, "wealth"]])
    assert found["2020"].worst == pytest.approx(min(wealth[5:] / wealth[:-5] - 1.0))
    assert list_stress(rows[rows["date"] > "2020-02-19"], 5) == {}
    assert list_stress(rows, 100)["2020"].worst is None
    assert all(date.fromisoformat(first) < date.fromisoformat(last) for first, last in STRESS.values())


def test_the_rolling_cvar_is_that_of_the_year_before():
    rows = track(np.exp(np.random.default_rng(1).normal(0.0, 0.01, 300).cumsum()))
    promise = {"horizon": 5, "alpha": 0.1, "bound": -0.05}
    rolled = roll_periods(rows, promise, 252)
    returns = rows["return"].to_numpy()[1:]
    assert rolled["period"].to_numpy() == pytest.approx(window_returns(returns, 5))
    assert list(rolled["date"]) == list(rows["date"][5:])
    assert rolled["cvar"].notna().sum() == len(returns) - 252 + 1
    for place in (-1, -20):
        end = len(returns) + place + 1
        expected = conditional_value_at_risk(window_returns(returns[end - 252 : end], 5), 0.1)
        assert rolled["cvar"].iloc[place] == pytest.approx(float(expected))
    assert roll_periods(rows.head(5), promise, 252).empty


def test_tables_say_what_there_is():
    rows, rival = track([1.0, 1.1, 1.21]), track([1.0, 1.0, 1.1])
    record = {"promise": {"bound": -0.05}, "cvar_by_year": {"2020": -0.08}}
    told = render_year_table(rows, None, record, "a<b", ("1/N", rival))
    assert "a&lt;b" in told and "<strong class='bad'>−8.0" in told
    for figure in ("21.0", "10.0", "11.0"):
        assert f">{figure}\u00a0%<" in told
    assert render_stress_table([], {}, 15) == ""
