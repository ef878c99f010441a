"""The real quandl client against a real server on loopback."""

from __future__ import annotations

import logging
import pickle
import socket
import traceback
from dataclasses import replace
from datetime import date

import numpy as np
import pandas as pd
import pytest
import quandl
from quandl.connection import Connection

from portfolio_sdpo.errors import (
    KeyRefusedError,
    NoDataInRangeError,
    RateLimitedError,
    SettingsError,
    SourceError,
    SourceUnreachableError,
    UnknownTickerError,
)
from portfolio_sdpo.prices.sources import Quandl, RetrySettings

DAYS = ["2017-03-01", "2017-03-02", "2017-03-03", "2017-03-06", "2017-03-07"]
START, END = date(2017, 3, 2), date(2017, 3, 6)
NAMES = ["Date", "Open", "Close", "Adj. Close"]
COLUMNS = [("ticker", "String"), ("date", "Date"), ("close", "BigDecimal(34,12)"), ("adj_close", "double")]
AAPL = "/datasets/WIKI/AAPL/data"
SECRET = "s3cr3t-k3y"


@pytest.fixture
def waits():
    return []


@pytest.fixture
def make(data_link, waits):
    """A source for the server with two datasets and a table, no waiting."""
    for ticker, base in (("AAPL", 100.0), ("MSFT", 200.0)):
        rows = [[day, base, base + k, base / 2 + k] for k, day in enumerate(DAYS)]
        data_link.datasets[f"WIKI/{ticker}"] = NAMES, rows
    data_link.tables["WIKI/PRICES"] = (
        COLUMNS,
        [
            [ticker, day, 1.0, base + k]
            for ticker, base in (("AAPL", 50.0), ("MSFT", 100.0))
            for k, day in enumerate(DAYS)
        ],
    )
    retry = RetrySettings(attempts=3, jitter=0, sleep=waits.append)

    def make(**settings):
        return Quandl(api_base=f"{data_link.url}/api/v3", retry=retry, **settings)

    return make


@pytest.mark.parametrize("table", [None, "WIKI/PRICES"])
def test_adjusted_closes_of_the_range_with_both_ends(make, table):
    seen = []
    prices = make(table=table).fetch(["MSFT", "aapl"], START, END, lambda *status: seen.append(status))
    expected = pd.DataFrame({"AAPL": [51.0, 52.0, 53.0], "MSFT": [101.0, 102.0, 103.0]}, index=prices.frame.index)
    pd.testing.assert_frame_equal(prices.frame, expected, check_names=False)
    assert [str(stamp.date()) for stamp in prices.frame.index] == DAYS[1:4]
    assert prices.column == ("Adj. Close" if table is None else "adj_close")
    assert (prices.adjustment, prices.failures, prices.notes) == ("total-return", {}, ())
    assert seen == [("MSFT", "fetching"), ("MSFT", "arrived"), ("AAPL", "fetching"), ("AAPL", "arrived")]


@pytest.mark.parametrize("table", [None, "WIKI/PRICES"])
def test_without_ends_everything_arrives(make, table):
    source = make(table=table)
    assert len(source.fetch(["AAPL"], None, None).frame) == 5
    assert len(source.fetch(["AAPL"], None, END).frame) == 4
    assert len(source.fetch(["AAPL"], START, None).frame) == 4


def test_a_table_comes_page_by_page_and_only_the_columns_needed(make, data_link):
    assert len(make(table="WIKI/PRICES").fetch(["AAPL"], None, None).frame) == 5
    assert [asked.query.get("qopts.cursor_id") for asked in data_link.asked] == [None, "2", "4"]
    assert all(asked.query["qopts.columns[]"] == "adj_close" for asked in data_link.asked)


def test_a_table_that_we_do_not_know_is_searched_for_an_adjusted_close(make, data_link):
    data_link.tables["OWN/PRICES"] = (
        [("date", "Date"), ("ticker", "String"), ("close", "double"), ("closeadj", "double")],
        [["2017-03-02", "X", 1.0, 2.0]],
    )
    prices = make(table="OWN/PRICES").fetch(["X"], START, END)
    assert prices.frame["X"].tolist() == [2.0] and prices.column == "closeadj"
    assert make(table="OWN/PRICES", column="close").fetch(["X"], START, END).adjustment == "unknown"


def test_rows_newest_first_and_without_a_price_are_taken_as_they_are(make, data_link):
    rows = [[DAYS[3], 1.0, 1.0, None], [DAYS[2], 1.0, 1.0, 5.0], [DAYS[2], 1.0, 1.0, 6.0], [DAYS[1], 1.0, 1.0, 4.0]]
    data_link.datasets["WIKI/GE"] = NAMES, rows
    frame = make().fetch(["GE", "AAPL"], START, END).frame
    assert [str(stamp.date()) for stamp in frame.index] == [DAYS[1], DAYS[2], DAYS[2], DAYS[3]]
    np.testing.assert_array_equal(frame["GE"], [4.0, 5.0, 6.0, np.nan])
    np.testing.assert_array_equal(frame["AAPL"], [51.0, 52.0, np.nan, 53.0])


def test_a_raw_close_is_only_taken_where_there_is_no_adjusted_one_and_is_never_mixed_in(make, data_link):
    data_link.datasets["WIKI/RAW"] = ["Date", "Close"], [["2017-03-02", 7.0]]
    data_link.datasets["EOD/RAW"] = ["Date", "Close"], [["2017-03-02", 8.0]]
    alone = make().fetch(["RAW"], START, END)
    assert (alone.column, alone.adjustment) == ("Close", "none") and "'Close'" in alone.notes[0]
    assert make(database="EOD").fetch(["RAW"], START, END).adjustment == "unknown"
    mixed = make().fetch(["RAW", "AAPL", "EOD/RAW"], START, END)
    assert list(mixed.frame) == ["AAPL"] and list(mixed.failures) == ["RAW", "EOD/RAW"]
    assert "has no column 'Adj. Close' as the other tickers have" in str(mixed.failures["RAW"])
    assert set(make(column="Close").fetch(["RAW", "AAPL", "EOD/RAW"], START, END).frame) == {"RAW", "AAPL", "EOD/RAW"}


def test_no_price_column_is_said_with_the_columns_there_are(make, data_link):
    data_link.datasets["WIKI/GDP"] = ["Date", "Value"], [["2017-03-02", 7.0]]
    with pytest.raises(SourceError, match="choose one of Value"):
        make().fetch(["GDP"], START, END)
    assert make(column="Value").fetch(["GDP"], START, END).column == "Value"


def test_the_key_is_sent_from_the_setting_or_from_a_variable(make, data_link, monkeypatch):
    data_link.key = SECRET
    assert len(make(api_key=SECRET).fetch(["AAPL"], START, END).frame) == 3
    for name in ("QUANDL_API_KEY", "NASDAQ_DATA_LINK_API_KEY", "PORTFOLIO_SDPO_QUANDL_KEY"):
        monkeypatch.setenv(name, SECRET)  # each goes before the ones already there
        assert len(make().fetch(["AAPL"], START, END).frame) == 3
        monkeypatch.setenv(name, "wrong")
        with pytest.raises(KeyRefusedError):
            make().fetch(["AAPL"], START, END)


@pytest.mark.parametrize("table", [None, "WIKI/PRICES"])
def test_a_missing_key_and_a_refused_one_are_told_apart(make, data_link, table, waits):
    data_link.key = SECRET
    with pytest.raises(KeyRefusedError, match=r"wants a key .* set the variable PORTFOLIO_SDPO_QUANDL_KEY"):
        make(table=table).fetch(["AAPL"], START, END)
    with pytest.raises(KeyRefusedError, match=r"refused the key \(We could not recognize"):
        make(table=table, api_key="wrong").fetch(["AAPL"], START, END)
    assert waits == [] and len(data_link.asked) == 2


def test_a_wrong_key_is_not_tried_on_every_ticker(make, data_link):
    data_link.key = SECRET
    with pytest.raises(KeyRefusedError, match="None of the 4 tickers"):
        make(api_key="wrong").fetch(["A", "B", "C", "D"], START, END)
    assert len(data_link.asked) == 2


def test_a_subscription_that_one_ticker_lacks_does_not_stop_the_others(make, data_link, refuse):
    data_link.disturb(AAPL, refuse("QEPx04", "You do not have permission to view this dataset.", 403))
    prices = make(api_key=SECRET).fetch(["AAPL", "MSFT"], START, END)
    assert list(prices.frame) == ["MSFT"] and isinstance(prices.failures["AAPL"], KeyRefusedError)


def test_the_key_is_never_shown(make, data_link, caplog, capfd, monkeypatch):
    """The server repeats the key in its refusal, and quandl writes it into its message about too many pages."""
    caplog.set_level(logging.DEBUG)
    data_link.key = "another"
    source = make(api_key=SECRET)
    texts = [repr(source), str(source), source.model_dump_json(), str(source.settings())]
    with pytest.raises(KeyRefusedError) as refused:
        source.fetch(["AAPL"], START, END)
    data_link.key = None
    monkeypatch.setattr(quandl.ApiConfig, "page_limit", 1)
    with pytest.raises(SourceError, match="shorter range") as too_much:
        make(api_key=SECRET, table="WIKI/PRICES").fetch(["AAPL"], None, None)
    for caught in (refused, too_much):
        texts += ["".join(traceback.format_exception(caught.value)), repr(caught.value)]
    for settings in ({"apikey": SECRET}, {"api_key": SECRET, "timeout": -1}, {"api_key": SECRET, "nonsense": SECRET}):
        with pytest.raises(SettingsError) as wrong:
            Quandl(**settings)
        texts.append(str(wrong.value))
    with pytest.raises(SettingsError) as wrong:
        Quandl(api_key=[SECRET], column=[])
    texts += [str(wrong.value), caplog.text, *capfd.readouterr()]
    assert SECRET not in "\n".join(texts)


def test_the_key_does_not_follow_a_redirect_to_another_server(make, data_link, yahoo, answer):
    elsewhere = yahoo  # any other server will do
    data_link.disturb(AAPL, answer(302, b"", {"Location": f"{elsewhere.url}/trap"}))
    with pytest.raises(SourceError):
        make(api_key=SECRET).fetch(["AAPL"], START, END)
    assert elsewhere.asked and all(SECRET not in str(asked.headers) for asked in elsewhere.asked)


def test_a_key_is_not_sent_in_the_clear():
    with pytest.raises(SettingsError, match="api_base: must start with https://"):
        Quandl(api_base="http://example.com/api/v3")


def test_a_rate_limit_that_passes_is_waited_for(make, data_link, answer, refuse, waits):
    slow = refuse("QELx04", "You have exceeded your 10-minute call limit.", 429)
    data_link.disturb(AAPL, slow, answer(429, b"<html>slow down</html>", {"Retry-After": "7"}))
    assert len(make().fetch(["AAPL"], START, END).frame) == 3
    assert waits == [1.0, 7.0]


def test_a_rate_limit_part_way_keeps_what_arrived_and_stops(make, data_link, answer):
    data_link.disturb("/MSFT/data", *[answer(429)] * 3)
    prices = make().fetch(["AAPL", "MSFT", "GE"], START, END)
    assert list(prices.frame) == ["AAPL"]
    assert [type(error) for error in prices.failures.values()] == [RateLimitedError, RateLimitedError]
    assert len(data_link.asked) == 4


@pytest.mark.parametrize("code", ["QELx01", "QELx02", "QELx03"])
def test_a_limit_per_day_is_not_waited_for(make, data_link, refuse, waits, code):
    data_link.disturb(AAPL, refuse(code, "You have exceeded your daily call limit.", 429))
    with pytest.raises(RateLimitedError, match="tomorrow"):
        make().fetch(["AAPL"], START, END)
    assert waits == [] and len(data_link.asked) == 1


@pytest.mark.parametrize("table", [None, "WIKI/PRICES"])
@pytest.mark.parametrize("fault", [500, 503, "cut", "broken off", b"[]", b"{}"])
def test_a_fault_that_passes_is_tried_again(make, data_link, answer, refuse, waits, fault, table):
    if fault == 503:
        bad = refuse("QEXx01", "Service unavailable.", 503)
    elif isinstance(fault, int):
        bad = answer(fault, b"<html>oops</html>")
    elif isinstance(fault, bytes):
        bad = answer(200, fault)
    else:
        bad = (
            (lambda asked: data_link.answer(asked).cut)
            if fault == "cut"
            else lambda asked: data_link.answer(asked).broken_off
        )
    data_link.disturb(AAPL if table is None else "WIKI/PRICES", bad, bad)
    assert len(make(table=table).fetch(["AAPL"], START, END).frame) == 3
    assert waits == [1.0, 2.0]


def test_a_fault_that_stays_is_unreachable(make, data_link, answer):
    data_link.disturb(AAPL, *[answer(500, b"oops")] * 3)
    prices = make().fetch(["AAPL", "MSFT"], START, END)
    assert list(prices.frame) == ["MSFT"] and isinstance(prices.failures["AAPL"], SourceUnreachableError)


@pytest.mark.parametrize("table", [None, "WIKI/PRICES"])
def test_a_timeout_is_unreachable(make, data_link, table, waits):
    data_link.disturb("", *[lambda asked: replace(data_link.answer(asked), delay=30)] * 3)
    with pytest.raises(SourceUnreachableError, match="Timeout"):
        make(table=table, timeout=0.2).fetch(["AAPL"], START, END)
    assert waits == [1.0, 2.0]


def test_nobody_there_is_unreachable(waits):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        source = Quandl(
            api_base=f"http://127.0.0.1:{free.getsockname()[1]}", retry=RetrySettings(attempts=2, sleep=waits.append)
        )
        with pytest.raises(SourceUnreachableError, match="None of the 3 tickers"):
            source.fetch(["A", "B", "C"], START, END)
    assert len(waits) == 2


def test_a_guard_in_front_of_the_source_is_not_taken_for_it(make, data_link, answer):
    data_link.disturb(AAPL, answer(403, b"<html>Request unsuccessful.</html>"))
    with pytest.raises(SourceUnreachableError, match="HTTP status 403"):
        make().fetch(["AAPL"], START, END)


@pytest.mark.parametrize("table", [None, "WIKI/PRICES"])
def test_unknown_and_out_of_range_are_told_apart(make, table, waits):
    source = make(table=table)
    prices = source.fetch(["AAPL", "NOPE"], START, END)
    assert list(prices.frame) == ["AAPL"] and isinstance(prices.failures["NOPE"], UnknownTickerError)
    with pytest.raises(NoDataInRangeError, match="from 2001-01-01 to 2001-02-01"):
        source.fetch(["AAPL"], date(2001, 1, 1), date(2001, 2, 1))
    assert waits == []


def test_tickers_that_are_no_codes_are_unknown_without_asking(make, data_link):
    with pytest.raises(UnknownTickerError):
        make().fetch(["A/B/C"], START, END)
    assert data_link.asked == []


def test_a_table_that_is_not_there_is_a_wrong_setting(make):
    with pytest.raises(SettingsError, match=r"Quandl.table: .* knows no table NO/TABLE"):
        make(table="NO/TABLE").fetch(["AAPL"], START, END)


def test_a_request_that_the_source_refuses_says_why(make, data_link, refuse):
    data_link.disturb(AAPL, refuse("QESx04", "The column_index is out of bounds.", 422))
    with pytest.raises(SourceError, match="The column_index is out of bounds"):
        make().fetch(["AAPL"], START, END)


def test_an_error_of_an_unknown_form_is_unreachable(make, data_link, refuse):
    data_link.disturb(AAPL, *[refuse("XYZ", "?", 400)] * 3)
    with pytest.raises(SourceUnreachableError):
        make().fetch(["AAPL"], START, END)


def test_quandl_is_as_it_was_for_the_rest_of_the_process(make, data_link, answer, monkeypatch):
    monkeypatch.setattr(quandl.ApiConfig, "api_key", "the user's own")

    def state():
        return {name: value for name, value in vars(quandl.ApiConfig).items() if not name.startswith("__")}

    before, session = state(), vars(Connection)["get_session"]
    data_link.disturb("/MSFT/data", *[answer(429)] * 3)
    make(api_key=SECRET).fetch(["AAPL", "MSFT"], START, END)
    assert state() == before
    assert vars(Connection)["get_session"] is session and isinstance(session, classmethod)


def test_settings_for_an_update_hold_no_key(make):
    source = make(api_key=SECRET, database="EOD")
    settings = source.settings()
    assert settings["database"] == "EOD" and "api_key" not in settings
    assert Quandl(**settings).api_base == source.api_base
    assert pickle.loads(pickle.dumps(Quandl())) == Quandl()
