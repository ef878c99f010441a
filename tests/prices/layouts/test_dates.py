"""Every form of date, and the order of day and month."""

from datetime import date

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.dates import looks_like_dates, parse_dates


def days(texts: list[object], dayfirst: bool | None = None) -> list[str]:
    return [str(day) for day in parse_dates(pd.Series(texts), dayfirst).days.astype("datetime64[D]")]


@pytest.mark.parametrize(
    "text",
    [
        "2020-01-02",
        "2020/1/2",
        "2020.01.02",
        " 2020-01-02 ",
        "2020-01-02 00:00:00",
        "2020-01-02T00:00:00.000000000",
        "2020-01-02 16:00",
        "2020-01-02 00:00:00-05:00",
        "2020-01-02T00:00:00+0900",
        "2020-01-02T00:00:00Z",
        "2020-01-02 00:00:00 UTC",
        "20200102",
        20200102,
        20200102.0,
        "02-Jan-2020",
        "2 January 2020",
        "Jan 2, 2020",
        "Jan 02 2020",
        date(2020, 1, 2),
        pd.Timestamp("2020-01-02"),
        pd.Timestamp("2020-01-02 00:00", tz="America/New_York"),
        pd.Timestamp("2020-01-02 00:00", tz="Asia/Tokyo"),
    ],
)
def test_form(text):
    assert days([text]) == ["2020-01-02"]


def test_the_zone_of_the_exchange_is_kept_through_summer_time():
    assert days(["2020-03-06 00:00:00-05:00", "2020-03-09 00:00:00-04:00"]) == ["2020-03-06", "2020-03-09"]
    # A day in UTC would be the day before.
    assert days(["2020-01-06 00:00:00+09:00"]) == ["2020-01-06"]


@pytest.mark.parametrize("other", ["2020-01-03 00:00:00+09:00", "2020-01-03 00:00:00", "2020-01-03"])
def test_mixed_time_zones_are_refused(other):
    with pytest.raises(LayoutError, match="different time zones"):
        days(["2020-01-02 00:00:00-05:00", other])


def test_times_in_utc_are_noted():
    assert "UTC" in parse_dates(pd.Series(["2020-01-02 15:00:00+00:00"])).notes[0]
    assert "UTC" in parse_dates(pd.Series([pd.Timestamp("2020-01-02 15:00", tz="UTC")])).notes[0]
    assert parse_dates(pd.Series(["2020-01-02 00:00:00+00:00"])).notes == ()


def test_empty_cells_are_not_a_time():
    parsed = parse_dates(pd.Series(["2020-01-02", "", None, "NaT", "2020-01-03"]))
    assert np.isnat(parsed.days).tolist() == [False, True, True, True, False]


def test_a_field_above_12_decides():
    assert days(["03/01/2011", "13/01/2011"]) == ["2011-01-03", "2011-01-13"]
    assert days(["03/01/2011", "03/14/2011"]) == ["2011-03-01", "2011-03-14"]
    assert "dayfirst" in parse_dates(pd.Series(["03/01/2011", "13/01/2011"])).notes[0]


def test_weekends_decide():
    # Day first: Monday 3 to Wednesday 12 January 2011. Month first: Sunday 1 May and Saturday 1 October are among them.
    texts = [f"{day:02d}/01/2011" for day in (3, 4, 5, 6, 7, 10, 11, 12)]
    parsed = parse_dates(pd.Series(texts))
    assert parsed.days.astype("datetime64[D]").astype(str).tolist()[0] == "2011-01-03"
    assert "weekend" in parsed.notes[0]
    assert days([f"01/{day:02d}/2011" for day in (3, 4, 5, 6, 7, 10, 11, 12)])[0] == "2011-01-03"


def test_order_decides():
    # Month first they run through spring 2011, day first they jump to and fro; no reading has a weekend.
    assert days(["03/02/2011", "03/03/2011", "04/01/2011"]) == ["2011-03-02", "2011-03-03", "2011-04-01"]


def test_newest_first_is_an_order():
    assert days(["04/01/2011", "03/03/2011", "03/02/2011"]) == ["2011-04-01", "2011-03-03", "2011-03-02"]


def test_spacing_decides():
    # Day first: from Monday 7 to Friday 11 March. Month first: weekdays in order, one month or two apart.
    assert days(["07/03/2016", "08/03/2016", "09/03/2016", "11/03/2016"])[0] == "2016-03-07"


@pytest.mark.parametrize(
    "texts",
    [
        ["03/01/2011"],
        ["03/01/2011", "04/01/2011"],  # 3 and 4 January, or the first of March and of April
        ["03/01/2011", "04/01/2011", "05/01/2011", "06/01/2011"],  # Sunday 1 May is what a monthly series would have
    ],
)
def test_what_nothing_decides_is_refused_with_both_readings(texts):
    with pytest.raises(LayoutError, match=r"3 January 2011 \(dayfirst\) or 1 March 2011 \(monthfirst\).*wide:dayfirst"):
        days(texts)
    assert days(texts, dayfirst=True)[0] == "2011-01-03"
    assert days(texts, dayfirst=False)[0] == "2011-03-01"


def test_equal_readings_need_no_decision():
    assert days(["01/01/2010", "02/02/2010"]) == ["2010-01-01", "2010-02-02"]


def test_an_order_that_does_not_fit_is_refused():
    with pytest.raises(LayoutError, match="'01/13/2011' is not a date in the order dayfirst"):
        days(["01/13/2011"], dayfirst=True)
    with pytest.raises(LayoutError, match="fits neither"):
        days(["01/13/2011", "13/01/2011"])


@pytest.mark.parametrize("texts", [["yesterday"], ["2020-02-30"], ["20201301"], ["1/2/20"], ["2020-01-02", "20200103"]])
def test_what_is_no_date_is_refused_by_name(texts):
    with pytest.raises(LayoutError, match=texts[-1]):
        days(texts)


def test_an_empty_column_is_refused():
    with pytest.raises(LayoutError, match="empty"):
        days(["", ""])


@settings(max_examples=60, deadline=None)
@given(
    st.dates(date(1962, 1, 1), date(2040, 1, 1)),
    st.integers(1, 60),
    st.booleans(),
    st.booleans(),
    st.sampled_from("/-."),
)
def test_sessions_are_read_right_or_refused_never_wrong(start, count, dayfirst, newest_first, mark):
    sessions = pd.bdate_range(start, periods=count)[:: -1 if newest_first else 1]
    texts = sessions.strftime(mark.join(["%d", "%m", "%Y"] if dayfirst else ["%m", "%d", "%Y"])).tolist()
    expected = sessions.strftime("%Y-%m-%d").tolist()
    assert days(texts, dayfirst=dayfirst) == expected
    try:
        unaided = days(texts)
    except LayoutError:
        unaided = None
    assert unaided == expected or (unaided is None and count <= 12)


def test_numbers_do_not_look_like_dates():
    assert looks_like_dates(["2020-01-02", ""]) and looks_like_dates(["20200102"])
    assert not looks_like_dates(["12345678", "99999999"])
    assert not looks_like_dates(["1", "2"]) and not looks_like_dates(["", ""])
