"""Files of weekly, monthly and 24/7 prices, imported and backtested by command, against figures computed elsewhere."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from skfolio.measures import cvar, semi_deviation, standard_deviation
from typer.testing import CliRunner

from portfolio_sdpo import cli

RATE = 0.02


def weekly():
    """Fridays, and the Thursday before where the Friday is a holiday."""
    days = pd.date_range("2010-01-08", "2019-12-27", freq="W-FRI")
    return days.where(~((days.day == 25) & (days.month == 12)), days - pd.Timedelta(days=1)), 52


def monthly():
    """The last business day of every month."""
    return pd.date_range("2000-01-31", "2019-12-31", freq="BME"), 12


def around_the_clock():
    """Every day but two."""
    return pd.date_range("2017-01-01", "2019-12-31").delete([100, 101]), 365


@pytest.mark.parametrize("rhythm", [weekly, monthly, around_the_clock])
def test_figures_are_those_computed_independently(rhythm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Growth a year by the days between the first date and the last, spread and tails by skfolio."""
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path))
    dates, per_year = rhythm()
    noise = np.random.default_rng(5).normal(0.12 / per_year, 0.2 / math.sqrt(per_year), (len(dates), 2))
    frame = pd.DataFrame(np.round(100 * np.exp(noise.cumsum(axis=0)), 6), index=dates, columns=["ONE", "TWO"])
    frame.to_csv(tmp_path / "prices.csv", index_label="Date")
    call("data", "import", str(tmp_path / "prices.csv"), "--name", "mine")
    asked = ("--snapshot", "mine", "--start", str(dates[0].date()), "--algo", "none", "--strategies", "buy-and-hold")
    record = json.loads(call("backtest", *asked, "--fee-bps", "0", "--cash", str(RATE), "--json"))["records"][0]

    # In cash until the second close; half of the wealth then buys each of the two.
    wealth = (1 + RATE / per_year) * (frame / frame.iloc[1]).iloc[1:].mean(axis=1)
    returns = pd.concat([pd.Series(1.0, dates[:1]), wealth]).pct_change().iloc[1:]
    years = (dates[-1] - dates[0]).days / 365.25
    assert record["sessions_per_year"] == per_year and record["sessions"] == len(returns)
    assert 1 + record["cagr"] == pytest.approx((1 + returns).prod() ** (per_year / len(returns)), rel=1e-9)
    assert record["cagr"] == pytest.approx((1 + returns).prod() ** (1 / years) - 1, rel=0.01)
    spread = standard_deviation(returns.to_numpy()) * math.sqrt(per_year)
    assert record["volatility"] == pytest.approx(spread, rel=1e-9)
    assert record["sharpe"] == pytest.approx((returns.mean() * per_year - RATE) / spread, rel=1e-9)
    downside = semi_deviation(returns.to_numpy(), min_acceptable_return=RATE / per_year) * math.sqrt(per_year)
    assert record["sortino"] == pytest.approx((returns.mean() * per_year - RATE) / downside, rel=0.01)
    assert record["cvar"] == pytest.approx(-cvar(returns.to_numpy(), beta=0.95), rel=1e-9)
    assert record["max_drawdown"] == pytest.approx(float((wealth / wealth.cummax() - 1).min()), rel=1e-9)


def call(*arguments: str) -> str:
    result = CliRunner().invoke(cli.build_app(), list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout
