"""The real yfinance against a real server on loopback."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, time, timedelta
from time import time as now

import numpy as np
import pandas as pd
import pytest

from portfolio_sdpo.errors import (
    NoDataInRangeError,
    RateLimitedError,
    SettingsError,
    SourceError,
    SourceUnreachableError,
    UnknownTickerError,
)
from portfolio_sdpo.prices.sources import RetrySettings, Yahoo

DAYS = [date(2021, 3, day) for day in (1, 2, 3, 4, 5, 8)]
START, END = date(2021, 3, 2), date(2021, 3, 4)
CHART = "/v8/finance/chart/"


@pytest.fixture
def waits():
    return []


@pytest.fixture
def source(yahoo, listing, waits):
    """Two known tickers, no waiting."""
    yahoo.listings["AAPL"] = listing({day: (100.0 + k, 90.0 + k) for k, day in enumerate(DAYS)})
    yahoo.listings["MSFT"] = listing({day: (200.0 + k, 180.0 + k) for k, day in enumerate(DAYS)})
    return Yahoo(base_url=yahoo.url, retry=RetrySettings(attempts=3, jitter=0, sleep=waits.append))


def test_adjusted_closes_of_the_range_with_both_ends(source, yahoo):
    seen = []
    prices = source.fetch(["msft", "AAPL", "AAPL"], START, END, lambda *status: seen.append(status))
    expected = pd.DataFrame({"AAPL": [91.0, 92.0, 93.0], "MSFT": [181.0, 182.0, 183.0]}, index=prices.frame.index)
    assert list(prices.frame.index) == [pd.Timestamp(day) for day in DAYS[1:4]]
    pd.testing.assert_frame_equal(prices.frame, expected, check_names=False)
    assert prices.frame.index.unit == "us" and prices.frame.index.tz is None
    assert (prices.column, prices.adjustment, prices.failures) == ("Adj Close", "total-return", {})
    assert seen == [("MSFT", "fetching"), ("MSFT", "arrived"), ("AAPL", "fetching"), ("AAPL", "arrived")]
    # Yahoo divides closes by later splits, and those after the end are not in the answer.
    assert prices.notes == (
        f"Closes as they were traded are not stored: splits after {END} are unknown; leave out --end.",
    )
    assert "close" not in prices.companions and "close" in source.fetch(["AAPL"], START, None).companions


def test_one_cookie_one_crumb_and_one_request_per_ticker(source, yahoo):
    source.fetch(["AAPL", "MSFT"], START, END)
    assert [asked.path for asked in yahoo.asked] == ["/", "/v1/test/getcrumb", CHART + "AAPL", CHART + "MSFT"]


def test_without_ends_everything_arrives(source):
    assert len(source.fetch(["AAPL"], None, None).frame) == len(DAYS)
    assert len(source.fetch(["AAPL"], None, END).frame) == 4
    assert len(source.fetch(["AAPL"], START, None).frame) == 5
    assert len(source.fetch(["AAPL"], START, START).frame) == 1


def test_a_start_beside_the_epoch_is_not_forgotten(source, yahoo, listing):
    """yfinance takes the time stamp 0 for no start at all and then gives a month."""
    yahoo.listings["GE"] = listing({date(1970, 1, 2): (1.0, 1.0), date(1971, 1, 4): (2.0, 2.0)})
    for start in (date(1970, 1, 1), date(1970, 1, 2)):
        assert len(source.fetch(["GE"], start, date(1971, 2, 1)).frame) == 2


@pytest.mark.parametrize(
    "zone, opens",
    [
        ("America/New_York", time(9, 30)),
        ("Australia/Sydney", time(10)),
        ("Asia/Tokyo", time(9)),
        ("Pacific/Auckland", time(0)),
        ("Pacific/Honolulu", time(18)),
        ("UTC", time(0)),
    ],
)
def test_dates_are_the_exchanges_calendar_days(source, yahoo, listing, zone, opens):
    yahoo.listings["X"] = listing({day: (1.0, 1.0 + k) for k, day in enumerate(DAYS)}, zone=zone, opens=opens)
    frame = source.fetch(["X", "AAPL"], START, END).frame
    assert [stamp.date() for stamp in frame.index] == DAYS[1:4]
    assert frame["X"].tolist() == [2.0, 3.0, 4.0]


def test_days_that_only_one_ticker_has_and_empty_bars_stay_empty(source, yahoo, listing):
    yahoo.listings["NEW"] = listing({DAYS[2]: (1.0, 1.0), DAYS[3]: (None, None)})
    column = source.fetch(["NEW", "AAPL"], START, END).frame["NEW"]
    np.testing.assert_array_equal(column, [np.nan, 1.0, np.nan])
    np.testing.assert_array_equal(source.fetch(["NEW"], START, END).frame["NEW"], [1.0, np.nan])


def test_a_session_that_is_not_over_has_no_close(source, yahoo, listing):
    today, yesterday = date.today(), date.today() - timedelta(days=1)
    bars = {yesterday: (1.0, 1.0), today: (2.0, 2.0)}
    yahoo.listings["RUNS"] = listing(bars, zone="UTC", session_ends=int(now()) + 3600)
    yahoo.listings["OVER"] = listing(bars, zone="UTC", session_ends=int(now()) - 3600)
    prices = source.fetch(["RUNS", "OVER"], yesterday, today)
    np.testing.assert_array_equal(prices.frame["RUNS"], [1.0, np.nan])
    np.testing.assert_array_equal(prices.frame["OVER"], [1.0, 2.0])
    assert len(prices.notes) == 1 and "RUNS" in prices.notes[0] and str(today) in prices.notes[0]
    with pytest.raises(NoDataInRangeError):
        source.fetch(["RUNS"], today, today)


def test_a_rate_limit_that_passes_is_waited_for(source, yahoo, answer, waits):
    seen = []
    yahoo.disturb(CHART + "AAPL", answer(429, b"Too Many Requests"), answer(429, b"", {"Retry-After": "7"}))
    prices = source.fetch(["AAPL"], START, END, lambda _, status: seen.append(status))
    assert len(prices.frame) == 3 and waits == [1.0, 7.0]
    assert seen == ["fetching", "waiting 1 s: rate limited", "waiting 7 s: rate limited", "arrived"]


def test_a_rate_limit_part_way_keeps_what_arrived_and_stops(source, yahoo, answer, caplog):
    seen = {}
    yahoo.listings["GE"] = yahoo.listings["AAPL"]
    yahoo.disturb(CHART + "MSFT", *[answer(429, b"Too Many Requests")] * 3)
    prices = source.fetch(["AAPL", "MSFT", "GE", "NOPE"], START, END, seen.__setitem__)
    assert list(prices.frame) == ["AAPL"]
    assert {ticker: type(error) for ticker, error in prices.failures.items()} == dict.fromkeys(
        ("MSFT", "GE", "NOPE"), RateLimitedError
    )
    assert len(yahoo.asked_for("MSFT")) == 3 and not yahoo.asked_for("GE") and not yahoo.asked_for("NOPE")
    assert seen["GE"] == "skipped" and seen["MSFT"].startswith("failed: Yahoo limits requests")
    assert "delisted" not in str(list(prices.failures.values())) + caplog.text


def test_a_rate_limit_from_the_start_is_raised_as_one(source, yahoo, answer, capfd):
    yahoo.disturb(CHART + "AAPL", *[answer(429, b"Too Many Requests")] * 3)
    with pytest.raises(RateLimitedError, match=r"None of the 2 tickers \(AAPL, MSFT\) arrived: Yahoo limits .* later"):
        source.fetch(["AAPL", "MSFT"], START, END)
    assert capfd.readouterr() == ("", "")


def test_a_longer_wait_than_we_have_patience_for_is_said_at_once(source, yahoo, answer, waits):
    yahoo.disturb(CHART + "AAPL", answer(429, b"", {"Retry-After": "3600"}))
    with pytest.raises(RateLimitedError, match="asks to wait 3600 s"):
        source.fetch(["AAPL"], START, END)
    assert waits == [] and len(yahoo.asked_for("AAPL")) == 1


def test_a_rate_limit_in_disguise_is_still_one(source, yahoo, answer):
    yahoo.disturb(CHART + "AAPL", *[answer(200, b"Edge: Too Many Requests")] * 2, answer(999))
    with pytest.raises(RateLimitedError):
        source.fetch(["AAPL"], START, END)


def test_a_limited_crumb_does_not_make_a_ticker_unknown(source, yahoo, answer, caplog):
    """Without a crumb the chart refuses; yfinance then tries the way through the consent page, which works."""
    yahoo.disturb("/getcrumb", answer(429, b"Too Many Requests"))
    assert len(source.fetch(["AAPL"], START, END).frame) == 3
    assert caplog.text == ""


def test_a_cookie_that_has_run_out_is_replaced(source, yahoo, answer):
    def rotate(asked):
        yahoo.cookie, yahoo.crumb = "A3=d=fresh", "crumb.2"
        return yahoo.answer(asked)

    yahoo.disturb(CHART + "MSFT", rotate)
    yahoo.disturb("/consent", answer(200, b"<html>no form here</html>"))
    assert source.fetch(["AAPL", "MSFT"], START, END).failures == {}
    assert len(yahoo.asked_for("/")) == 2


def test_a_session_that_stays_refused_is_not_an_unknown_ticker(source, yahoo, answer):
    error = {"code": "Unauthorized", "description": "Invalid Crumb"}
    yahoo.disturb(CHART + "AAPL", *[answer.json({"finance": {"result": None, "error": error}}, 401)] * 6)
    with pytest.raises(SourceUnreachableError, match="refused the anonymous session, HTTP status 401"):
        source.fetch(["AAPL"], START, END)
    assert len(yahoo.asked_for("AAPL")) == 6  # two kinds of cookies in each of three attempts


def half(server):
    return lambda asked: server.chart(asked).cut


def broken_off(server):
    return lambda asked: server.chart(asked).broken_off


@pytest.mark.parametrize("fault", [500, 502, 503, 504, half, broken_off, b"Will be right back...", b"[]", b"{}"])
def test_a_fault_that_passes_is_tried_again(source, yahoo, answer, waits, fault):
    if isinstance(fault, int):
        bad = answer(fault, b"<html>oops</html>")
    else:
        bad = fault(yahoo) if callable(fault) else answer(200, fault)
    yahoo.disturb(CHART + "AAPL", bad, bad)
    assert len(source.fetch(["AAPL"], START, END).frame) == 3
    assert waits == [1.0, 2.0]


@pytest.mark.parametrize("fault", [500, half, broken_off])
def test_a_fault_that_stays_is_unreachable(source, yahoo, answer, fault):
    bad = answer(fault, b"<html>oops</html>") if isinstance(fault, int) else fault(yahoo)
    yahoo.disturb(CHART + "AAPL", *[bad] * 3)
    prices = source.fetch(["AAPL", "MSFT"], START, END)
    assert list(prices.frame) == ["MSFT"] and isinstance(prices.failures["AAPL"], SourceUnreachableError)
    assert "run the same command again" in str(prices.failures["AAPL"])


def test_a_service_that_names_its_wait_is_given_it(source, yahoo, answer, waits):
    yahoo.disturb(CHART + "AAPL", answer(503, b"", {"Retry-After": "11"}))
    source.fetch(["AAPL"], START, END)
    assert waits == [11.0]


def test_a_timeout_is_tried_again_and_then_unreachable(source, yahoo, waits):
    def late(asked):
        return replace(yahoo.chart(asked), delay=30)

    hasty = source.model_copy(update={"timeout": 0.6})
    yahoo.disturb(CHART + "AAPL", late)
    assert len(hasty.fetch(["AAPL"], START, END).frame) == 3 and waits == [1.0]
    yahoo.disturb(CHART + "AAPL", late, late, late)
    with pytest.raises(SourceUnreachableError):
        hasty.fetch(["AAPL"], START, END)


def test_nobody_there_is_unreachable_and_the_rest_is_not_tried(waits):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        source = Yahoo(base_url=url, retry=RetrySettings(attempts=2, sleep=waits.append))
        with pytest.raises(SourceUnreachableError, match="None of the 4 tickers"):
            source.fetch(["A", "B", "C", "D"], START, END)
    assert len(waits) == 2


def test_an_unknown_ticker_is_named_and_not_asked_for_twice(source, yahoo, waits):
    prices = source.fetch(["AAPL", "NOPE", "EUR/USD", "MSFT"], START, END)
    assert list(prices.frame) == ["AAPL", "MSFT"] and list(prices.failures) == ["NOPE", "EUR/USD"]
    assert all(isinstance(error, UnknownTickerError) for error in prices.failures.values())
    assert "does not know the ticker NOPE" in str(prices.failures["NOPE"])
    assert waits == [] and len(yahoo.asked_for("NOPE")) == 1


@pytest.mark.parametrize("empty_charts", [False, True])
def test_no_data_in_range_is_not_unknown(source, yahoo, empty_charts, waits):
    yahoo.empty_charts = empty_charts
    with pytest.raises(NoDataInRangeError, match=r"no price of it from 2001-01-01 to 2001-02-01: choose another range"):
        source.fetch(["AAPL"], date(2001, 1, 1), date(2001, 2, 1))
    assert waits == []


def test_a_weekend_has_no_data_though_the_days_beside_it_have(source):
    with pytest.raises(NoDataInRangeError):
        source.fetch(["AAPL"], date(2021, 3, 6), date(2021, 3, 7))


def test_a_bar_without_a_price_is_no_data(source, yahoo, listing):
    yahoo.listings["X"] = listing({START: (None, None)})
    with pytest.raises(NoDataInRangeError):
        source.fetch(["X"], START, END)


def test_failures_of_several_kinds_are_summed_up(source):
    with pytest.raises(SourceError) as caught:
        source.fetch(["NOPE", "AAPL"], date(2001, 1, 1), date(2001, 2, 1))
    assert type(caught.value) is SourceError
    assert "does not know the ticker NOPE" in str(caught.value) and "no price of it" in str(caught.value)


@pytest.mark.parametrize(
    "tickers, start, end, field",
    [
        ([], START, END, "tickers"),
        ([""], START, END, "tickers"),
        (["A B"], START, END, "tickers"),
        (["A"], END, START, "start"),
    ],
)
def test_a_request_without_sense_is_refused(source, yahoo, tickers, start, end, field):
    with pytest.raises(SettingsError, match=field):
        source.fetch(tickers, start, end)
    assert yahoo.asked == []


def test_yfinance_is_as_it_was_for_the_rest_of_the_process(source, yahoo, answer):
    import yfinance
    from yfinance import cache
    from yfinance.data import SingletonMeta

    def state():
        return (
            SingletonMeta._instances,
            dict(SingletonMeta._instances),
            yfinance.config.debug.hide_exceptions,
            logging.getLogger("yfinance").disabled,
            cache._TzCacheManager._tz_cache,
            cache._CookieCacheManager._Cookie_cache,
            cache._ISINCacheManager._isin_cache,
        )

    before = state()
    yahoo.disturb(CHART + "MSFT", *[answer(429)] * 3)
    source.fetch(["AAPL", "MSFT"], START, END)
    assert state() == before and before[2] is True and before[3] is False


def test_fetches_in_two_threads_do_not_get_in_each_others_way(source, yahoo, listing, answer):
    tickers = [f"T{k}" for k in range(8)]
    for k, ticker in enumerate(tickers):
        yahoo.listings[ticker] = listing({START: (1.0, float(k))})
        yahoo.disturb(CHART + ticker, answer(503))
    with ThreadPoolExecutor(2) as pool:
        halves = pool.map(lambda some: source.fetch(some, START, END).frame, [tickers[::2], tickers[1::2]])
        assert pd.concat(halves, axis=1).iloc[0].to_dict() == {ticker: k for k, ticker in enumerate(tickers)}


def test_nothing_is_written_to_disk(source, yahoo, tmp_path):
    """In a process of its own: yfinance finds out where its caches are when it is imported."""
    code = f"""
        import sys
        opened = []
        def watch(event, arguments):
            if event == "sqlite3.connect" or (event == "open" and arguments[2] & 3 and arguments[0] != "/dev/null"):
                opened.append((event, arguments))
        sys.dont_write_bytecode = True
        from datetime import date
        from portfolio_sdpo.prices.sources import Yahoo
        import yfinance
        sys.addaudithook(watch)
        prices = Yahoo(base_url={yahoo.url!r}).fetch(["AAPL", "NOPE"], date(2021, 3, 2), date(2021, 3, 4))
        assert prices.frame.shape == (3, 1)
        assert not opened, opened
    """
    home = tmp_path / "home"
    home.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environment |= {"HOME": str(home), "PORTFOLIO_SDPO_HOME": str(home / "ours"), "TMPDIR": str(home)}
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, cwd=home, env=environment)
    assert list(home.iterdir()) == []


def test_settings_for_an_update_make_the_same_source(source):
    assert Yahoo().settings() == {}
    assert source.settings() == {"base_url": source.base_url, "retry": {"attempts": 3, "jitter": 0.0}}
    assert Yahoo(**source.settings()).base_url == source.base_url


@pytest.mark.parametrize("url", ["ftp://example.com", "example.com", "http://"])
def test_a_base_that_is_no_web_address_is_refused(url):
    with pytest.raises(SettingsError, match="base_url: must be a web address"):
        Yahoo(base_url=url)
