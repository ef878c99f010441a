"""Files of several securities whose prices are alike: none is taken for the fields of one."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.prices.layouts import read_prices


def walks(
    names: list[str], rows: int, *, volatility: float = 0.01, start: float = 100.0, seed: int = 0
) -> pd.DataFrame:
    """Independent prices that begin alike."""
    steps = volatility * np.random.default_rng(seed).standard_normal((rows, len(names)))
    days = pd.bdate_range("2020-01-02", periods=rows, name="Date")
    return pd.DataFrame(start * np.exp(steps.cumsum(axis=0)), days, names).round(4)


def read(frame: pd.DataFrame, folder: Path) -> pd.DataFrame:
    frame.to_csv(folder / "prices.csv")
    return read_prices(folder / "prices.csv").frame


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "names",
    [
        ["aapl", "msft", "spy", "tlt"],
        ["Apple", "Microsoft", "Amazon"],
        ["BHARTIARTL.NS", "BAJFINANCE.NS", "HINDUNILVR.NS"],
        ["PETR3.SA", "PETR4.SA", "VALE3.SA"],
        ["US0378331005", "US5949181045"],
        ["SPY US Equity", "IVV US Equity"],
    ],
)
@pytest.mark.parametrize("rows", [30, 60])
def test_stocks_of_about_the_same_price(names: list[str], rows: int, seed: int, tmp_path: Path):
    frame = walks(names, rows, volatility=0.005, seed=seed)
    np.testing.assert_allclose(read(frame, tmp_path)[names], frame[names])


@pytest.mark.parametrize(
    "names", [["PETR3.SA", "PETR4.SA"], ["US78462F1030", "US9229083632"], ["SPY US Equity", "IVV US Equity"]]
)
def test_two_securities_that_move_as_one(names: list[str], tmp_path: Path):
    first = walks(names[:1], 60)
    frame = first.assign(**{names[1]: (1.1 * first[names[0]]).round(4)})
    np.testing.assert_allclose(read(frame, tmp_path)[names], frame[names])


def test_two_classes_beside_another_company(tmp_path: Path):
    frame = walks(["goog", "msft"], 60).assign(googl=lambda table: (1.01 * table["goog"]).round(4))
    assert sorted(read(frame, tmp_path).columns, key=str.lower) == ["goog", "googl", "msft"]


def test_funds_on_one_index(tmp_path: Path):
    noise = 1 + 3e-4 * np.random.default_rng(0).standard_normal((250, 3))
    frame = walks(["SPY"], 250, start=300).assign(VOO=0.0, IVV=0.0)
    frame[["SPY", "VOO", "IVV"]] = (frame[["SPY"]].to_numpy() * [1.0, 0.919, 1.004] * noise).round(4)
    np.testing.assert_allclose(read(frame, tmp_path)[list(frame)], frame)
