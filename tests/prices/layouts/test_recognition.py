"""Files as people have them: what is recognised, which column is used, and what is said about it."""

import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.prices.layouts import read_prices
from portfolio_sdpo.prices.prices import Prices


@pytest.fixture
def read(tmp_path):
    def read(text: str, name: str = "AAPL.csv", layout: str | None = None) -> Prices:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return read_prices(path, layout)

    return read


def table(prices: Prices) -> dict[str, dict[str, float]]:
    """Prices by ticker and date; no price = no entry."""
    return {
        ticker: {f"{day:%Y-%m-%d}": price for day, price in column.dropna().items()}
        for ticker, column in prices.frame.items()
    }


TWO_DAYS = {"2020-01-02": 74.33, "2020-01-03": 73.61}


def test_stacked_without_a_name(read):
    prices = read("""
        Date,,close
        2020-01-02,AAPL,74.33
        2020-01-02,MSFT,158.62
        2020-01-03,AAPL,73.61
        2020-01-03,MSFT,156.57
    """)
    assert table(prices) == {"AAPL": TWO_DAYS, "MSFT": {"2020-01-02": 158.62, "2020-01-03": 156.57}}
    assert "dates from Date, tickers from the column without a name, prices from close" in prices.notes[0]


def test_columns_named_after_currencies_are_read_with_a_warning(read):
    notes = read("""
        Date,EUR,USD
        2020-01-02,1.5,1.6
        2020-01-03,1.6,1.7
    """).notes
    (note,) = [note for note in notes if "currencies" in note]
    assert note.startswith("The columns are named after currencies")
    assert note.endswith("rename the columns to pairs such as EURUSD.")


def test_wide(read):
    prices = read("""
        Date,AAPL,DOW
        2020-01-02,74.33,
        2020-01-03,73.61,48.5
        2020-01-06,,
    """)
    assert table(prices) == {"AAPL": TWO_DAYS, "DOW": {"2020-01-03": 48.5}}
    assert len(prices.frame) == 3  # the holiday is for cleaning to report
    assert (prices.column, prices.adjustment) == ("price", "unknown")
    assert prices.notes == ("Recognised as wide (one row per date, one column per ticker): dates from Date.",)


def test_wide_with_row_numbers_remarks_a_byte_order_mark_and_an_empty_last_column(tmp_path):
    text = "\ufeff# source: somewhere\n#\n\n,Date,AAPL,0700,\r\n0,20200103,73.61,N/A,\r\n1,20200102,74.33,5,\r\n"
    (tmp_path / "p.csv").write_text(text, encoding="utf-8", newline="")
    prices = read_prices(tmp_path / "p.csv")
    assert table(prices) == {"AAPL": TWO_DAYS, "0700": {"2020-01-02": 5.0}}
    assert "Skipped 2 leading # lines." in prices.notes


@pytest.mark.parametrize("numbers", [(1, 0), (3, 8), (8, 3), ("", "")])
@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_wide_with_row_numbers_of_a_table_that_was_sorted_or_filtered(read, tmp_path, name, numbers):
    prices = read(f"{name},Date,AAPL\n{numbers[0]},2020-01-02,74.33\n{numbers[1]},2020-01-03,73.61\n")
    assert table(prices) == {"AAPL": TWO_DAYS}


def test_wide_parquet_whose_rows_were_filtered(tmp_path):
    days = pd.to_datetime([*TWO_DAYS])
    pd.DataFrame({"Date": days, "AAPL": [*TWO_DAYS.values()]}, index=[8, 3]).to_parquet(tmp_path / "p.parquet")
    assert table(read_prices(tmp_path / "p.parquet")) == {"AAPL": TWO_DAYS}


def test_wide_with_an_index_of_the_market(read):
    assert list(read("Date,AAPL,Index\n2020-01-02,74.33,4500\n2020-01-03,73.61,4511\n").frame) == ["AAPL", "Index"]


def test_wide_whose_index_has_no_name(read):
    prices = read(",AAPL\n2020-01-02 00:00:00-05:00,74.33\n2020-01-03 00:00:00-05:00,73.61\n")
    assert table(prices) == {"AAPL": TWO_DAYS}


def test_wide_whose_tickers_sound_like_columns(read):
    assert table(read("Date,AAPL,LOW,OPEN\n2020-01-02,74.33,1,2\n2020-01-03,73.61,1,2\n"))["AAPL"] == TWO_DAYS
    assert list(read("Date,LOW\n2020-01-02,120.5\n", layout="wide").frame.columns) == ["LOW"]
    assert list(read("Date,CODE,V\n2020-01-02,120.5,1\n").frame.columns) == ["CODE", "V"]


def test_what_is_left_out_is_said(read):
    prices = read("Date,Open,High,Low,Close,SPY\n2020-01-02,1,2,1,74.33,9\n2020-01-03,1,2,1,73.61,9\n")
    assert any(note.startswith("Left out SPY:") for note in prices.notes)
    prices = read("Date,AAPL_Close,AAPL_RSI\n2020-01-02,74.33,9\n2020-01-03,73.61,9\n")
    assert table(prices) == {"AAPL": TWO_DAYS} and any(note.startswith("Left out AAPL_RSI:") for note in prices.notes)
    prices = read("Date,Close,SPY\n2020-01-02,74.33,9\n2020-01-03,73.61,9\n", layout=":price=Close")
    assert any(note.startswith("Left out SPY:") for note in prices.notes)


def test_separators_and_decimal_commas(read):
    prices = read("Date;AAPL;V\n02.01.2020;74,33;1.180,5\n13.01.2020;73,61;1.181\n")
    assert prices.frame.loc["2020-01-02"].tolist() == [74.33, 1180.5]
    assert prices.frame.loc["2020-01-13"].tolist() == [73.61, 1181.0]
    assert any("decimal points" in note for note in prices.notes)
    assert table(read("Date\tAAPL\n2020-01-02\t74.33\n2020-01-03\t73.61\n")) == {"AAPL": TWO_DAYS}


FINRL = """
    ,date,open,high,low,close,volume,tic,day
    0,2020-01-02,74.06,75.15,73.80,74.33,135480400,AAPL,3
    1,2020-01-02,69.10,69.50,68.90,69.2,1000,NA,3
    2,2020-01-03,74.29,75.14,74.13,73.61,146322800,AAPL,4
"""


def test_long_of_finrl(read):
    prices = read(FINRL)
    assert table(prices) == {"AAPL": TWO_DAYS, "NA": {"2020-01-02": 69.2}}
    assert (prices.column, prices.adjustment) == ("close", "unknown")
    assert prices.notes == (
        "Recognised as long (one row per date and ticker, with a column that names the ticker): "
        "dates from date, tickers from tic, prices from close.",
        "Nothing says whether close is adjusted for dividends and splits.",
    )


@pytest.mark.parametrize("ticker", ["tic", "symbol", "Ticker", "Stock", "ticker", "Symbol", "code", "Name", "<TICKER>"])
@pytest.mark.parametrize(
    "price", ["close", "adjusted", "adjcp", "Adj Close", "adj_close", "Adj. Close", "Close", "price"]
)
def test_long_spellings(read, ticker, price):
    prices = read(f"date,{ticker},{price}\n2020-01-02,700,74.33\n2020-01-03,0700,73.61\n")
    assert table(prices) == {"700": {"2020-01-02": 74.33}, "0700": {"2020-01-03": 73.61}}
    assert prices.column == price
    assert prices.adjustment == ("total-return" if "adj" in price.lower() else "unknown")


def test_long_of_qlib(read):
    prices = read("""
        symbol,date,open,high,low,close,volume,factor
        SH600519,2020-01-02,1,1,1,74.33,5,0.9
        SH600519,2020-01-03,1,1,1,73.61,5,0.9
    """)
    assert table(prices) == {"SH600519": TWO_DAYS}
    assert prices.adjustment == "total-return"


def test_long_of_stooq(read):
    prices = read("""
        <TICKER>,<PER>,<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>,<OPENINT>
        AAPL.US,D,20200102,000000,74.06,75.15,73.80,74.33,135480400,0
        AAPL.US,D,20200103,000000,74.29,75.14,74.13,73.61,146322800,0
    """)
    assert table(prices) == {"AAPL.US": TWO_DAYS}


def test_long_keeps_what_is_there_twice(read):
    prices = read("date,tic,close\n2020-01-02,A,1\n2020-01-02,B,2\n2020-01-02,A,3\n2020-01-03,A,4\n")
    assert prices.frame.index.strftime("%d").tolist() == ["02", "02", "03"]
    np.testing.assert_array_equal(prices.frame.to_numpy(), [[1, 2], [3, np.nan], [4, np.nan]])


def test_other_columns_can_be_named(read):
    text = "date,firm,worth,close\n2020-01-02,A,1,9\n2020-01-03,A,2,9\n"
    prices = read(text, layout="long:ticker=firm,price=worth")
    assert table(prices) == {"A": {"2020-01-02": 1.0, "2020-01-03": 2.0}}
    assert prices.notes[0].startswith("Read as long")


YAHOO = """
    Date,Open,High,Low,Close,Adj Close,Volume
    2020-01-02,74.06,75.15,73.80,75.0875,74.33,135480400
    2020-01-03,74.29,75.14,74.13,74.3575,73.61,146322800
    2020-01-06,null,null,null,null,null,null
"""


def test_per_ticker(read):
    prices = read(YAHOO)
    assert table(prices) == {"AAPL": TWO_DAYS}
    assert (prices.column, prices.adjustment) == ("Adj Close", "total-return")
    assert "ticker from the name of the file" in prices.notes[0]
    assert prices.notes[1] == "Adj Close used, not Close: adjusted prices are preferred."


def test_the_other_column_on_request(read):
    prices = read(YAHOO, layout="per-ticker:price=Close")
    assert prices.frame["AAPL"].iloc[0] == 75.0875
    assert (prices.column, prices.adjustment) == ("Close", "unknown")


def test_an_empty_column_is_not_preferred(read):
    prices = read("Date,Close,Adj Close\n2020-01-02,74.33,\n2020-01-03,73.61,\n", "BRK-B.csv")
    assert table(prices) == {"BRK-B": TWO_DAYS}
    assert "Close used, not Adj Close, which is empty." in prices.notes


def test_history_of_yfinance(read):
    prices = read("""
        Date,Open,High,Low,Close,Volume,Dividends,Stock Splits
        2020-01-02 00:00:00-05:00,74.06,75.15,73.80,74.33,135480400,0.0,0.0
        2020-01-03 00:00:00-05:00,74.29,75.14,74.13,73.61,146322800,0.0,0.0
        2020-07-01 00:00:00-04:00,74.29,75.14,74.13,91.03,146322800,0.0,0.0
    """)
    assert table(prices) == {"AAPL": TWO_DAYS | {"2020-07-01": 91.03}}
    assert (prices.column, prices.adjustment) == ("Close", "total-return")
    assert prices.notes[0].startswith("Recognised as yfinance-history")


def test_nasdaq(read):
    prices = read("""
        Date,Close/Last,Volume,Open,High,Low
        03/02/2020,$1179.66,"73,563,080",$74.06,$75.15,$73.80
        03/01/2020,"$1,180.5","73,563,080",N/A,$75.15,$73.80
    """)
    assert table(prices) == {"AAPL": {"2020-03-01": 1180.5, "2020-03-02": 1179.66}}
    assert (prices.column, prices.adjustment) == ("Close/Last", "splits")
    assert prices.notes[0].startswith("Recognised as nasdaq")


@pytest.mark.parametrize(
    "header",
    [
        "Price,Close,Close,Volume,Volume\nTicker,AAPL,DOW,AAPL,DOW\nDate,,,,\n",
        ",Close,Close,Volume,Volume\n,AAPL,DOW,AAPL,DOW\nDate,,,,\n",
        ",Close,Close,Volume,Volume\n,AAPL,DOW,AAPL,DOW\n",
        "Ticker,AAPL,DOW,AAPL,DOW\nPrice,Close,Close,Volume,Volume\nDate,,,,\n",
    ],
)
def test_download_of_yfinance(read, header):
    prices = read(f"{header}2020-01-02,74.33,,1,0\n2020-01-03,73.61,48.5,1,2\n")
    assert table(prices) == {"AAPL": TWO_DAYS, "DOW": {"2020-01-03": 48.5}}
    assert (prices.column, prices.adjustment) == ("Close", "total-return")


def test_download_with_both_prices(read):
    text = "Price,Adj Close,Close\nTicker,AAPL,AAPL\nDate,,\n2020-01-02,74.33,75.0875\n2020-01-03,73.61,74.3575\n"
    prices = read(text)
    assert table(prices) == {"AAPL": TWO_DAYS}
    assert (prices.column, prices.adjustment) == ("Adj Close", "total-return")
    assert "Adj Close used, not Close: adjusted prices are preferred." in prices.notes
    assert read(text, layout="yfinance-download:price=Close").adjustment == "unknown"


DAYS = pd.DatetimeIndex(["2020-01-02", "2020-01-03"], name="Date")


def parquet(tmp_path: Path, frame: pd.DataFrame, name: str = "AAPL.parquet") -> Prices:
    frame.to_parquet(tmp_path / name)
    return read_prices(tmp_path / name)


@pytest.mark.parametrize("swap", [False, True])
def test_download_as_parquet(tmp_path, swap):
    columns = pd.MultiIndex.from_tuples(
        [("Close", "AAPL"), ("Close", "^IRX"), ("Volume", "AAPL"), ("Volume", "^IRX")], names=["Price", "Ticker"]
    )
    frame = pd.DataFrame([[74.33, 1.5, 10, 0], [73.61, np.nan, 20, 0]], index=DAYS, columns=columns)
    prices = parquet(tmp_path, frame.swaplevel(axis=1) if swap else frame)
    assert table(prices) == {"AAPL": TWO_DAYS, "^IRX": {"2020-01-02": 1.5}}
    assert (prices.column, prices.adjustment) == ("Close", "total-return")


@pytest.mark.parametrize(
    "index",
    [
        DAYS,
        DAYS.rename(None),
        DAYS.tz_localize("America/New_York"),
        DAYS.as_unit("ns"),
        pd.Index([20200102, 20200103], name="Date"),
        pd.Index(["2020-01-02", "2020-01-03"], name="date"),
        pd.Index([day.date() for day in DAYS], name="Date"),
    ],
)
def test_wide_parquet(tmp_path, index):
    prices = parquet(tmp_path, pd.DataFrame({"AAPL": [74.33, 73.61], "700": [1, 2]}, index=index))
    assert table(prices) == {"AAPL": TWO_DAYS, "700": {"2020-01-02": 1.0, "2020-01-03": 2.0}}
    assert prices.frame.index.dtype == "datetime64[us]"


def test_long_parquet_with_dates_and_tickers_in_its_index(tmp_path):
    index = pd.MultiIndex.from_product([DAYS, ["AAPL"]], names=["date", "ticker"])
    assert table(parquet(tmp_path, pd.DataFrame({"close": [74.33, 73.61]}, index=index))) == {"AAPL": TWO_DAYS}


def test_per_ticker_parquet(tmp_path):
    frame = pd.DataFrame({"Close": np.array([74.5, 73.25], "float32"), "Volume": [1, 2]}, index=DAYS)
    assert table(parquet(tmp_path, frame)) == {"AAPL": {"2020-01-02": 74.5, "2020-01-03": 73.25}}


def test_folder_of_mixed_files(tmp_path):
    (tmp_path / "AAPL.csv").write_text(textwrap.dedent(YAHOO).lstrip())
    (tmp_path / "BRK-B.csv").write_text("Date,Close/Last\n01/03/2020,$73.61\n01/02/2020,$74.33\n")
    pd.DataFrame({"Close": [74.33, 73.61]}, index=DAYS).to_parquet(tmp_path / "^IRX.parquet")
    (tmp_path / "twice.csv").write_text("Date,Close\n2020-01-02,1\n2020-01-02,2\n2020-01-03,3\n")
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / ".hidden.csv").write_text("rubbish")
    prices = read_prices(tmp_path)
    assert prices.frame.index.strftime("%d").tolist() == ["02", "02", "03", "06"]
    assert prices.frame["twice"].tolist()[:3] == [1, 2, 3]
    assert {ticker: table(prices)[ticker] for ticker in ("AAPL", "BRK-B", "^IRX")} == dict.fromkeys(
        ("AAPL", "BRK-B", "^IRX"), TWO_DAYS
    )
    assert (prices.column, prices.adjustment) == ("Adj Close, Close, Close/Last", "unknown")
    assert "The prices are not adjusted alike: splits, total-return, unknown." in prices.notes
    assert any(note.startswith("Ignored README.md") for note in prices.notes)
    assert any(note.startswith("AAPL.csv: Adj Close used") for note in prices.notes)


def test_folder_of_like_files_says_everything_once(tmp_path):
    for name in ("A", "B", "C"):
        (tmp_path / f"{name}.csv").write_text(textwrap.dedent(YAHOO).lstrip())
    prices = read_prices(tmp_path)
    assert list(prices.frame.columns) == ["A", "B", "C"]
    assert len(prices.notes) == 2 and prices.adjustment == "total-return"


@pytest.mark.parametrize(
    "header",
    [
        "Price,Adj Close,Adj Close,Close,Close,Dividends,Dividends,Stock Splits,Stock Splits\n"
        "Ticker,AAPL,DOW,AAPL,DOW,AAPL,DOW,AAPL,DOW\nDate,,,,,,,,\n",
        "Date,AAPL_Adj Close,DOW_Adj Close,AAPL_Close,DOW_Close,AAPL_Dividends,DOW_Dividends,AAPL_Stock Splits,"
        "DOW_Stock Splits\n",
    ],
)
def test_raw_closes_dividends_and_splits_of_several_tickers_are_kept(read, header):
    prices = read(header + "2020-01-02,1.5,2.5,3,5,0,0.5,0,0\n2020-01-03,1.6,2.6,3.2,5.2,0.25,0,0,2\n")
    assert table(prices)["DOW"] == {"2020-01-02": 2.5, "2020-01-03": 2.6}
    kept = {kind: frame.to_dict("list") for kind, frame in prices.companions.items()}
    assert kept == {
        "close": {"AAPL": [3.0, 3.2], "DOW": [5.0, 5.2]},
        "dividends": {"AAPL": [0.0, 0.25], "DOW": [0.5, 0.0]},
        "splits": {"AAPL": [0.0, 0.0], "DOW": [0.0, 2.0]},
    }
    assert prices.adjustment == "total-return"


def test_closes_as_they_were_traded_are_kept_where_close_is_adjusted_for_splits(read):
    prices = read("ticker,date,close,closeadj,closeunadj\nAAPL,2020-01-02,30,28,120\nAAPL,2020-01-03,31,29,124\n")
    assert prices.frame["AAPL"].tolist() == [28.0, 29.0]
    assert prices.companions["close"]["AAPL"].tolist() == [120.0, 124.0]
