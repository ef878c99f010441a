"""What is written in any layout, kind of file and form of date is read again bit by bit."""

import tempfile
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from exchange_calendars import get_calendar
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.cleaning import clean
from portfolio_sdpo.prices.layouts import LAYOUTS, read_prices, write_prices
from portfolio_sdpo.prices.layouts.options import DATE_FORMS, FILE_KINDS, ONE_FILE_PER_TICKER
from portfolio_sdpo.prices.prices import Prices, to_wide
from portfolio_sdpo.prices.snapshots import content_hash

TICKERS = ["AAPL", "BRK-B", "BF.B", "^IRX", "600519.SS", "0700", "NA", "EURUSD=X", "BRK/B", ".DJI", "Ünï", "LOW", "a b"]
PRICES = st.one_of(st.floats(1e-6, 1e7), st.floats(5e-324, 1e300), st.sampled_from([0.1, 100.0, 1234.5, 1e16, 1e22]))


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    """Canonical prices: late listings, delistings and gaps, but no row and no column without any price."""
    rows = draw(st.integers(1, 8))
    # LOW alone looks like a column of lows, which a test of recognition is about.
    tickers = ["AAPL", *draw(st.lists(st.sampled_from(TICKERS[1:]), max_size=4, unique=True))]
    sessions = pd.bdate_range(draw(st.dates(date(1990, 1, 1), date(2030, 1, 1))), periods=3 * rows)
    chosen = sorted(draw(st.lists(st.integers(0, 3 * rows - 1), min_size=rows, max_size=rows, unique=True)))
    cells = st.one_of(PRICES, PRICES, st.just(np.nan))
    values = np.array(draw(st.lists(cells, min_size=rows * len(tickers), max_size=rows * len(tickers))))
    frame = pd.DataFrame(values.reshape(rows, -1), index=sessions[chosen], columns=tickers)
    frame["AAPL"] = frame["AAPL"].fillna(7.25)
    return to_wide(frame.dropna(axis=1, how="all"))


def write_and_read(frame: pd.DataFrame, layout: str, kind: str, options: tuple[str, ...] = ()) -> pd.DataFrame:
    """Through a file, with the order of day and month said: few dates need not tell."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("prices" if layout in ONE_FILE_PER_TICKER else f"prices.{kind}")
        spec = f"{layout}:{','.join((*options, f'files={kind}'))}"
        write_prices(frame, path, spec, "total-return", "Adj Close")
        dayfirst = {"dayfirst": True, "monthfirst": False}.get(options[0] if options else "")
        return read_prices(path, dayfirst=dayfirst).frame


def assert_same_bits(frame: pd.DataFrame, expected: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(frame, expected, check_exact=True)
    assert np.array_equal(
        frame.to_numpy().view(np.int64)[frame.notna()], expected.to_numpy().view(np.int64)[expected.notna()]
    )


@pytest.mark.parametrize("kind", FILE_KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(frame=frames())
def test_layout(layout, kind, frame):
    assert_same_bits(write_and_read(frame, layout, kind), frame)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("form", DATE_FORMS)
@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(frame=frames())
def test_dates(layout, form, kind, frame):
    assert_same_bits(write_and_read(frame, layout, kind, (form,)), frame)


@pytest.mark.parametrize("price", ["close", "adjusted", "adjcp", "Adj Close", "adj_close"])
@pytest.mark.parametrize("ticker", ["tic", "symbol", "Ticker", "Stock", "code"])
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(frame=frames())
def test_spellings_of_long(ticker, price, frame):
    assert_same_bits(write_and_read(frame, "long", "csv", (f"ticker={ticker}", f"price={price}")), frame)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_snapshot_hash_is_the_same(tmp_path, layout):
    sessions = get_calendar("XNYS").sessions[-400:-340]  # the calendar reaches a year into the future
    values = np.exp(np.random.default_rng(1).normal(4, 0.01, (60, 4)))
    values[:20, 0] = values[50:, 1] = values[30:33, 2] = values[30:40, 3] = np.nan
    prices = Prices(to_wide(pd.DataFrame(values, index=sessions, columns=TICKERS[:4])), "Adj Close", "total-return")
    path = tmp_path / ("prices" if layout in ONE_FILE_PER_TICKER else "prices.csv")
    write_prices(prices.frame, path, layout, prices.adjustment, prices.column)
    assert content_hash(clean(read_prices(path)).frame) == content_hash(clean(prices).frame)


SMALL = to_wide(
    pd.DataFrame(
        {"AAPL": [1.5, 2.5, np.nan], "MSFT": [np.nan, 1179.66, 3.0]},
        index=pd.DatetimeIndex(["2020-01-02", "2020-01-03", "2020-01-06"]),
    )
)


@pytest.mark.parametrize("adjustment", ["total-return", "splits", "none", "unknown"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_layout_claims_another_adjustment(tmp_path, layout, adjustment):
    folder = layout in ONE_FILE_PER_TICKER
    write_prices(SMALL, tmp_path / ("csv" if folder else "p.csv"), layout, adjustment, "Close")
    read = read_prices(tmp_path / ("csv" if folder else "p.csv"))
    assert read.adjustment in ("unknown", adjustment)
    path = tmp_path / ("parquet" if folder else "p.parquet")
    write_prices(SMALL, path, f"{layout}:files=parquet", adjustment, "Close")
    assert read_prices(path).adjustment == adjustment


def test_what_the_files_look_like(tmp_path):
    write_prices(SMALL, tmp_path / "wide.csv", "wide", "unknown", "price")
    assert (tmp_path / "wide.csv").read_text() == (
        "Date,AAPL,MSFT\n2020-01-02,1.5,\n2020-01-03,2.5,1179.66\n2020-01-06,,3\n"
    )
    write_prices(SMALL, tmp_path / "finrl.csv", "long:ticker=tic,price=close", "unknown", "price")
    assert (tmp_path / "finrl.csv").read_text() == (
        "date,tic,close\n2020-01-02,AAPL,1.5\n2020-01-03,AAPL,2.5\n2020-01-03,MSFT,1179.66\n2020-01-06,MSFT,3\n"
    )
    write_prices(SMALL, tmp_path / "nasdaq", "nasdaq", "splits", "Close/Last")
    assert (tmp_path / "nasdaq" / "MSFT.csv").read_text() == (
        'Date,Close/Last,Volume,Open,High,Low\n01/06/2020,$3.0,,,,\n01/03/2020,"$1,179.66",,,,\n'
    )
    write_prices(SMALL, tmp_path / "download.csv", "yfinance-download", "total-return", "Close")
    assert (tmp_path / "download.csv").read_text() == (
        "Price,Close,Close\nTicker,AAPL,MSFT\nDate,,\n2020-01-02,1.5,\n2020-01-03,2.5,1179.66\n2020-01-06,,3\n"
    )
    write_prices(SMALL, tmp_path / "history", "yfinance-history:zoned", "total-return", "Close")
    assert (tmp_path / "history" / "AAPL.csv").read_text().splitlines()[:2] == [
        "Date,Open,High,Low,Close,Volume,Dividends,Stock Splits",
        "2020-01-02 00:00:00-05:00,,,,1.5,,,",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["wide.csv", "finrl.csv", "nasdaq", "download.csv", "history"]
    )


def test_pandas_reads_the_download_as_yfinance_wrote_it(tmp_path):
    write_prices(SMALL, tmp_path / "d.parquet", "yfinance-download", "total-return", "Close")
    frame = pd.read_parquet(tmp_path / "d.parquet")
    assert frame.columns.names == ["Price", "Ticker"]
    assert frame["Close"]["AAPL"].tolist()[:2] == [1.5, 2.5]


def test_one_ticker_can_be_one_file(tmp_path):
    write_prices(SMALL[["MSFT"]], tmp_path / "MSFT.csv", "nasdaq", "splits", "Close/Last")
    assert read_prices(tmp_path / "MSFT.csv").frame["MSFT"].tolist() == [1179.66, 3.0]


def test_compressed_files_are_the_same_every_time(tmp_path):
    for name in ("a.csv.gz", "b.csv.gz"):
        write_prices(SMALL, tmp_path / name, "wide", "unknown", "price")
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


@pytest.mark.parametrize(
    ("frame", "path", "layout", "sentence"),
    [
        (SMALL, "p.txt", "wide", "must end with"),
        (SMALL, "p.csv", "nasdaq", "give a folder"),
        (SMALL, "p.csv", "widest", r"no layout 'widest' \(did you mean 'wide'\?\): choose one of wide, long"),
        (SMALL, "p.csv", "wide:color=red", "no option 'color'"),
        (SMALL, "p.csv", "wide:sideways", "cannot be 'sideways'"),
        (SMALL, "p.csv", "", "say which layout"),
        (SMALL, "taken", "per-ticker", "not empty"),
        (SMALL, "taken/file/p.csv", "wide", "nothing was written"),
        (SMALL.iloc[:0], "p.csv", "wide", "no prices"),
        (pd.concat([SMALL, SMALL]), "p.csv", "wide", "2020-01-02 twice"),
        (SMALL.set_axis(["A", "A"], axis=1), "p.csv", "wide", "ticker twice"),
        (SMALL.set_axis(["A", "B\n"], axis=1), "p.csv", "wide", "cannot be a ticker"),
    ],
)
def test_refusals(tmp_path, frame, path, layout, sentence):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    with pytest.raises(LayoutError, match=sentence):
        write_prices(frame, tmp_path / path, layout, "unknown", "price")
    assert [file.name for file in tmp_path.rglob("*")] == ["taken", "file"]
