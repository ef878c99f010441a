"""What cannot be understood is refused with one sentence that says what to do."""

import gzip
import os
import re

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts import read_prices


def refusal(path, layout=None, dayfirst=None) -> str:
    with pytest.raises(LayoutError) as caught:
        read_prices(path, layout, dayfirst)
    message = str(caught.value)
    assert message.startswith(str(path)) and message.endswith(".") and "\n" not in message
    return message


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the file is empty"),
        (" \n\n", "the file is empty"),
        ("# only a remark\n", "the file is empty"),
        ("Date,AAPL\n", "column names and no rows"),
        ("AAPL,MSFT\n1.5,2.5\n", "none of the columns AAPL, MSFT holds dates"),
        (",AAPL\n0,1.5\n1,1.6\n", "holds dates"),
        ("2020-01-02,1.5\n2020-01-03,1.6\n", "the first row is data"),
        ("AAPL,2020-01-02,1.5\nAAPL,2020-01-03,1.6\n", "the first row is data"),
        ("Ticker,2020-01-02,2020-01-03\nAAPL,1.5,1.6\n", "dates stand in the first row.*turn the table"),
        ("Date\n2020-01-02\n", "no column of prices"),
        ("Date,Close,Volume\n1/2/20,1.5,20100101\n1/3/20,1.6,20110101\n", "'1/2/20' is not a date"),
        ("Date,AAPL\n2020-01-02,1\n0202-01-03,2\n", "'0202-01-03' is not a day"),
        ("Date,AAPL\n03/01/2011,1\n31/01/2201,2\n", "'31/01/2201' is not a day"),
        ("Unnamed: 0,Date,AAPL\n1.5,2020-01-02,1\n1.7,2020-01-03,1\n", "column 1 has no name"),
        ("Date,Open,High,Low,Volume\n2020-01-02,1,2,3,4\n", "no column of prices such as Close"),
        ("Date,ticker,volume\n2020-01-02,AAPL,4\n", "no column of prices such as Close"),
        ("Date,AAPL,MSFT\n2020-01-02,1,2\n2020-01-03,1,two\n", "'two' in column 'MSFT', row 2 of the data"),
        ("Date,AAPL\n2020-01-02,12 apples\n", "'12 apples' in column 'AAPL'"),
        ("Date,AAPL, AAPL\n2020-01-02,1,2\n", "2 columns are called AAPL"),
        ("Date,AAPL,MSFT\n2020-01-02,1\n", "row 1 of the data has 2 cells where the header has 3"),
        ("Date,AAPL\n2020-01-02,1\n2020-01-03,1,2\n", "row 2 of the data has 3 cells where the header has 2"),
        ("Date,AAPL,\n2020-01-02,1,7\n2020-01-03,1,3\n", "column 3 has no name"),
        ("Date,AAPL\n2020-01-02,1\n,2\n", "row 2 of the data has a price and no date"),
        ("Date,AAPL\n2020-01-02,\n2020-01-03,\n", "there is no price under price"),
        ("Date,AAPL\n2020-01-02,1\nTotal,2\n", "'Total' stands in the column of dates and is none"),
        ("Date,AAPL\n2020-01-02 00:00:00-05:00,1\n2020-01-03 00:00:00+09:00,2\n", "different time zones"),
        ("Date,AAPL\n03/01/2011,1\n", r"3 January 2011 \(dayfirst\) or 1 March 2011 \(monthfirst\).*--dayfirst"),
        ("Price,Close,Close\nTicker,AAPL\n2020-01-02,1,2\n", "rows of the header do not have the same number"),
        ("Price,Close,Close\nTicker,AAPL,\n2020-01-02,1,2\n", "no ticker above it"),
        ("date,tic,close\n2020-01-02,A,1\n2020-01-03,,2\n", "row 2 of the data has no ticker"),
    ],
)
def test_text(tmp_path, text, sentence):
    path = tmp_path / "prices.csv"
    path.write_text(text)
    assert re.search(sentence, refusal(path))


def test_an_ambiguity_is_settled_by_the_layout_or_the_option(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text("Date,AAPL\n03/01/2011,1\n")
    assert f"{read_prices(path, 'wide:dayfirst').frame.index[0]:%d %b}" == "03 Jan"
    assert f"{read_prices(path, ':monthfirst').frame.index[0]:%d %b}" == "01 Mar"
    assert f"{read_prices(path, dayfirst=True).frame.index[0]:%d %b}" == "03 Jan"


@pytest.mark.parametrize("name", ["p.csv", "p.csv.gz", "p.parquet"])
@pytest.mark.parametrize(
    "content", [bytes(range(256)) * 20, b"PAR1" + b"\xff" * 100 + b"PAR1", b"\x80abc,\xff\n\xfe,1\n"]
)
def test_rubbish(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert "is not" in refusal(tmp_path / name)


def test_rubbish_below_sound_rows(tmp_path):
    rows = b"".join(b"2020-01-02,1.5\n" for _ in range(2000))
    (tmp_path / "p.csv").write_bytes(b"Date,AAPL\n" + rows + b"2020-01-02,\xff\xfe\n")
    assert "UTF-8" in refusal(tmp_path / "p.csv")


def test_cut_off_files(tmp_path):
    content = gzip.compress(b"Date,AAPL\n" + b"2020-01-02,1.5\n" * 100)
    (tmp_path / "p.csv.gz").write_bytes(content[:-20])
    assert "cut off" in refusal(tmp_path / "p.csv.gz")
    pd.DataFrame({"AAPL": [1.0]}, index=pd.DatetimeIndex(["2020-01-02"])).to_parquet(tmp_path / "p.parquet")
    content = (tmp_path / "p.parquet").read_bytes()
    (tmp_path / "p.parquet").write_bytes(content[: len(content) // 2])
    assert "damaged" in refusal(tmp_path / "p.parquet")


def test_parquet_with_damaged_notes_of_pandas(tmp_path):
    path = tmp_path / "p.parquet"
    pd.DataFrame({"AAPL": [1.0]}, index=pd.DatetimeIndex(["2020-01-02"])).to_parquet(path)
    table = pq.read_table(path)
    notes = table.schema.metadata[b"pandas"].replace(b'"pandas_type"', b'"pandas_typo"')
    pq.write_table(table.replace_schema_metadata({b"pandas": notes}), path)
    assert "damaged" in refusal(path)


def test_parquet_without_prices(tmp_path):
    path = tmp_path / "p.parquet"
    pd.DataFrame({"AAPL": [1.0, 2.0]}).to_parquet(path)
    assert "holds dates" in refusal(path)
    pd.DataFrame({"AAPL": []}, index=pd.DatetimeIndex([])).to_parquet(path)
    assert "no rows" in refusal(path)
    columns = pd.MultiIndex.from_tuples([("US", "AAPL"), ("US", "MSFT")])
    pd.DataFrame([[1.0, 2.0]], index=pd.DatetimeIndex(["2020-01-02"]), columns=columns).to_parquet(path)
    assert "levels" in refusal(path)


def test_what_is_not_there_or_not_a_file_of_prices(tmp_path):
    assert "no such file" in refusal(tmp_path / "nowhere.csv")
    (tmp_path / "book.xlsx").write_bytes(b"PK")
    assert "not an Excel workbook" in refusal(tmp_path / "book.xlsx")
    (tmp_path / "book.pdf").write_bytes(b"%PDF")
    assert ".csv, .csv.gz, .parquet" in refusal(tmp_path / "book.pdf")
    (tmp_path / "empty").mkdir()
    assert "folder has no" in refusal(tmp_path / "empty")


@pytest.fixture
def ordinary_user():
    """Root may read everything, so it steps down for the test."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield
    if root:
        os.seteuid(0)


@pytest.fixture
def locked(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("Date,AAPL\n2020-01-02,1\n")
    path.chmod(0)
    return path


def test_no_permission(locked, ordinary_user):
    assert "permissions" in refusal(locked)


def test_a_file_that_the_system_does_not_open(tmp_path):
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    assert "cannot be read" in refusal(tmp_path / "loop.csv")


def test_the_same_ticker_in_two_files(tmp_path):
    (tmp_path / "AAPL.csv").write_text("Date,Close\n2020-01-02,1\n")
    (tmp_path / "all.csv").write_text("Date,AAPL,MSFT\n2020-01-02,1,2\n")
    assert "AAPL.csv and all.csv both have prices of AAPL" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("layout", "sentence"),
    [
        ("yfinance-download", "the header has one row"),
        ("long", "no column of tickers"),
        ("nasdaq", "no column of prices"),
        ("long:ticker=tic", "no column 'tic'"),
        ("per-ticker:price=Close", "no column 'Close'"),
    ],
)
def test_a_layout_that_does_not_fit(tmp_path, layout, sentence):
    path = tmp_path / "prices.csv"
    path.write_text("Date,AAPL,MSFT\n2020-01-02,1,2\n")
    assert sentence in refusal(path, layout)


def test_an_unknown_layout(tmp_path):
    with pytest.raises(LayoutError, match="no layout 'tall': choose one of wide, long, per-ticker"):
        read_prices(tmp_path, "tall")


TEXTS = [
    b"# remark\nDate,AAPL,MSFT\n2020-01-02,1.5,\n2020-01-03,2.5,3\n",
    b",date,tic,close\n0,2020-01-02,AAPL,1.5\n1,2020-01-03,MSFT,2.5\n",
    b'Date,Close/Last,Volume\n01/03/2020,"$1,179.66",5\n01/02/2020,$3.0,"73,563"\n',
    b"Price,Close,Close\nTicker,AAPL,MSFT\nDate,,\n2020-01-02,1.5,\n2020-01-03,2.5,3\n",
    b"Date;AAPL\n13.01.2020;1,5\n14.01.2020;2,5\n",
]


PIECES = [b",", b"\n", b'"', b";", b"-", b"/", b"$", b"#", b"\r", b"\t", b" ", b"0", b"Date", b"Close", b"Ticker"]


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(TEXTS),
    st.lists(st.tuples(st.integers(0, 120), st.integers(0, 12), st.binary(max_size=3) | st.sampled_from(PIECES))),
)
def test_a_damaged_file_is_read_or_refused(tmp_path_factory, content, edits):
    """Whatever happened to a file, nothing but a `LayoutError` comes out."""
    for start, cut, piece in edits:
        content = content[:start] + piece + content[start + cut :]
    path = tmp_path_factory.getbasetemp() / "damaged.csv"
    path.write_bytes(content)
    try:
        frame = read_prices(path).frame
    except LayoutError:
        return
    assert (frame.dtypes == "float64").all() and frame.columns.is_unique and frame.index.notna().all()
