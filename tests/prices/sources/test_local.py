"""Sources without a network, and finding a source by its name."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.errors import (
    NoDataInRangeError,
    RateLimitedError,
    SettingsError,
    SourceError,
    UnknownTickerError,
)
from portfolio_sdpo.prices.ingest import fetch_snapshot
from portfolio_sdpo.prices.prices import Prices, to_wide
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.prices.sources import SOURCES, File, make_source
from portfolio_sdpo.prices.sources.base import combine_failures, join_series, select
from portfolio_sdpo.prices.update import update_snapshot

DAYS = pd.to_datetime(["2020-01-02", "2020-01-03", "2020-01-06", "2020-01-07"])
FRAME = pd.DataFrame({"A": [1.0, 2.0, 3.0, 4.0], "LATE": [np.nan, np.nan, 5.0, 6.0]}, index=DAYS)
PRICES = Prices(to_wide(FRAME), "close", "splits", notes=("a note",))


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "prices.csv"
    FRAME.rename_axis("Date").to_csv(path)
    return path


def test_a_file_gives_what_it_has(csv):
    prices = make_source("file", path=str(csv)).fetch((), None, None)
    pd.testing.assert_frame_equal(prices.frame, PRICES.frame)
    assert prices.failures == {}


def test_a_part_of_a_file_with_both_ends(csv):
    seen = {}
    prices = File(path=csv).fetch(["LATE", "NOPE", "LATE"], date(2020, 1, 3), date(2020, 1, 6), seen.__setitem__)
    np.testing.assert_array_equal(prices.frame["LATE"], [np.nan, 5.0])
    assert list(prices.frame) == ["LATE"] and isinstance(prices.failures["NOPE"], UnknownTickerError)
    assert str(prices.failures["NOPE"]) == "There is no ticker NOPE in prices.csv: choose from A, LATE."
    assert seen["LATE"] == "arrived" and seen["NOPE"].startswith("failed: There is no ticker")


def test_nothing_arrives_from_a_range_without_prices():
    seen = {}
    with pytest.raises(NoDataInRangeError):
        select(PRICES, "here", [], date(2031, 1, 1), None, seen.__setitem__)
    assert seen == {}


def test_tickers_may_be_written_small():
    assert list(select(PRICES, "here", ["late", "a"], None, None, None).frame) == ["A", "LATE"]
    small = Prices(to_wide(FRAME.rename(columns=str.lower)), "close", "splits")
    assert list(select(small, "here", ["a"], None, None, None).frame) == ["a"]


def test_named_tickers_without_a_price_fail_and_unnamed_ones_stay_for_cleaning():
    early = None, date(2020, 1, 3)
    assert isinstance(select(PRICES, "here", ["A", "LATE"], *early, None).failures["LATE"], NoDataInRangeError)
    everything = select(PRICES, "here", [], *early, None)
    assert list(everything.frame) == ["A", "LATE"] and len(everything.frame) == 2
    assert (everything.column, everything.adjustment, everything.notes) == ("close", "splits", ("a note",))
    with pytest.raises(NoDataInRangeError, match="here knows LATE and has no price of it up to 2020-01-03"):
        select(PRICES, "here", ["LATE"], *early, None)
    with pytest.raises(NoDataInRangeError, match="no price from 2031-01-01 on in here: choose another range"):
        select(PRICES, "here", [], date(2031, 1, 1), None, None)
    with pytest.raises(SettingsError, match="start: 2020-01-03 is after the end"):
        select(PRICES, "here", [], date(2020, 1, 3), date(2020, 1, 2), None)


def test_a_file_is_found_again_from_another_folder(csv, monkeypatch):
    monkeypatch.chdir(csv.parent)
    source = File(path=Path("prices.csv"))
    assert source.settings() == {"path": str(csv)}
    monkeypatch.chdir("/")
    assert len(make_source("file", **source.settings()).fetch(["A"], None, None).frame) == 4


@pytest.mark.parametrize("name, tickers", [("sample", 9), ("sample-skfolio", 20)])
def test_the_samples_are_there_without_a_network(name, tickers):
    source = make_source(name)
    prices = source.fetch((), date(2019, 1, 2), date(2019, 12, 31))
    assert prices.frame.shape[1] == tickers and prices.adjustment == "total-return" and source.settings() == {}
    assert prices.frame.index[0] == pd.Timestamp(2019, 1, 2) and prices.frame.index[-1] == pd.Timestamp(2019, 12, 31)
    assert list(source.fetch(["AAPL"], None, None).frame) == ["AAPL"]


def test_sources_by_name():
    builtin = ["yfinance", "nasdaq-data-link", "quandl", "french", "file", "sample", "sample-skfolio"]
    assert list(SOURCES) == builtin
    assert make_source("yfinance").name == "yfinance"
    with pytest.raises(SettingsError, match="no source 'yahoo'; choose from yfinance, nasdaq-data-link, quandl"):
        make_source("yahoo")
    with pytest.raises(SettingsError, match=r"Yahoo: there is no setting colour .there are: timeout, retry, base_url"):
        make_source("yfinance", colour="red")
    with pytest.raises(SettingsError, match=r"File\.path"):
        make_source("file")


def test_a_date_that_one_ticker_has_twice_stays_twice():
    twice = pd.Series([1.0, 2.0, 3.0], index=DAYS[[0, 0, 1]])
    once = pd.Series([7.0, 8.0], index=DAYS[[0, 2]])
    frame = join_series({"T": twice, "O": once})
    assert frame.index.tolist() == DAYS[[0, 0, 1, 2]].tolist()
    np.testing.assert_array_equal(frame["T"], [1.0, 2.0, 3.0, np.nan])
    np.testing.assert_array_equal(frame["O"], [7.0, np.nan, np.nan, 8.0])


def test_one_failure_is_raised_as_it_is_and_many_of_a_kind_as_that_kind():
    limited, unknown = RateLimitedError("Slow down."), UnknownTickerError("Who is X?")
    assert combine_failures({"A": limited}) is limited
    assert type(combine_failures({"A": limited, "B": RateLimitedError("Too.")})) is RateLimitedError
    both = combine_failures({"A": limited, "X": unknown})
    assert type(both) is SourceError and str(both) == "None of the 2 tickers (A, X) arrived: Slow down. Who is X?"


class Constant:
    """What another package might bring: any class with these members."""

    name = "constant"

    def __init__(self, level: float = 1.0) -> None:
        self.level = float(level)

    def fetch(self, tickers, start, end, progress=None) -> Prices:
        return Prices(to_wide(pd.DataFrame(self.level, index=DAYS, columns=list(tickers))), "close", "none")

    def settings(self) -> dict[str, float]:
        return {"level": self.level}


def test_a_source_of_another_package_needs_no_change_here(monkeypatch, tmp_path):
    monkeypatch.setattr(SOURCES, "_items", dict(SOURCES._items))
    SOURCES.register("constant", Constant)
    store = Store(tmp_path)
    made = fetch_snapshot("constant", ["A"], None, None, "n", settings={"level": "7"}, store=store).snapshot
    assert (made.frame["A"] == 7).all() and made.manifest.request.settings == {"level": 7.0}
    assert not update_snapshot("n", store=store).new
    with pytest.raises(SettingsError, match=r"choose from yfinance.*constant"):
        make_source("nothing")
