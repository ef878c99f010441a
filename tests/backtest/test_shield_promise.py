"""The command that judges the shield: its figures against those worked out by hand."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.backtest import CvarLimit, make_strategy, simulate
from portfolio_sdpo.portfolio.market import Market


@pytest.fixture(scope="module")
def command():
    path = Path(__file__).parents[2] / "benchmarks" / "shield_promise.py"
    spec = importlib.util.spec_from_file_location("shield_promise", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_years_are_judged_by_their_own_periods(command, prices):
    market = Market.from_prices(prices(600, gaps=False))
    track = simulate(market, make_strategy("equal-weight", every=5), fee=0.0005)
    found = command.judge(track, CvarLimit(alpha=0.1, horizon=5))
    frame = pd.Series(track.returns, index=pd.DatetimeIndex(track.dates[1:]))

    def worst_tenth(returns):
        periods = np.array([np.prod(1 + returns[i : i + 5]) - 1 for i in range(len(returns) - 4)])
        size = len(periods) * 0.1
        worst = np.sort(periods)[: int(np.ceil(size))]
        weight = np.minimum(1.0, size - np.arange(len(worst)))
        return worst @ weight / weight.sum()

    years = {str(year): part.to_numpy() for year, part in frame.groupby(frame.index.year) if len(part) >= 126}
    assert found["years"] == pytest.approx({year: worst_tenth(part) for year, part in years.items()})
    assert found["cvar"] == pytest.approx(worst_tenth(track.returns))
    assert found["cagr"] == pytest.approx(track.wealth[-1] ** (252 / len(frame)) - 1)


def test_rows_count_broken_universe_years(command):
    figures = {"cagr": 0.08, "turnover": 3.0, "invested": 0.6}
    one = {"years": {"1990": -0.06, "1991": -0.03}, "cvar": -0.04} | figures
    two = {"years": {"1990": -0.04, "1991": -0.05}, "cvar": -0.03} | figures
    (row,) = command.summarise([("dozens", "1/N", {"none": one}), ("dozens", "1/N", {"none": two})], -0.05)
    assert (row["universe-years"], row["broken"], row["worst"]) == (4, 0.25, -0.06)
    assert row["budget used"] == pytest.approx(0.7)


def test_the_table_is_printed_and_what_is_left_out_is_said(command, prices, monkeypatch, capsys):
    frame = prices(400, stocks=12, gaps=False).set_axis(pd.bdate_range("2008-01-02", periods=400))
    monkeypatch.setattr(command, "load_prices", lambda name, **options: frame)
    arguments = ["--universes", "industries,dozens", "--stocks", "mine", "--dozens", "2"]
    monkeypatch.setattr(sys, "argv", ["shield_promise.py", *arguments])
    command.main()
    told = capsys.readouterr()
    assert "industries: left out, since --industries names no snapshot or file." in told.err
    rows = [line.split(" | ")[2:4] for line in told.out.splitlines()[2:]]
    assert rows == [["calibrated", "4"], ["filtered", "4"], ["none", "4"]]
