"""A frame of the wrong kind gets one clear sentence that says what to do; a right one comes back as it is."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.errors import DataQualityError
from portfolio_sdpo.prices.frame_checks import check_prices
from portfolio_sdpo.prices.samples import load_sample

DAYS = pd.bdate_range("2019-01-02", periods=30)


def table(**changes):
    walk = np.exp(np.random.default_rng(0).normal(0, 0.02, (30, 2)).cumsum(0))
    return pd.DataFrame(100 * walk, index=DAYS, columns=["AAPL", "MSFT"]).assign(**changes)


def with_value(value, row=3):
    frame = table()
    frame.iloc[row, 0] = value
    return frame


def with_index(index):
    return table().set_axis(index)


FAULTS = {
    "returns": (table().pct_change().dropna(), "look like returns, not prices"),
    "log returns": (np.log(table()).diff(), "look like returns, not prices"),
    "percent returns": (100 * table().pct_change(), "look like returns, not prices"),
    "gross returns": ((1 + table().pct_change()).dropna(), "look like returns, not prices"),
    "no dates": (table().reset_index(drop=True), r"holds no dates \(its type is int64\).*set_index"),
    "dates as text": (with_index(DAYS.strftime("%Y-%m-%d")), r"pd\.to_datetime\(prices\.index\)"),
    "periods": (with_index(DAYS.to_period("D")), r"to_timestamp"),
    "ticker and date": (table().stack().to_frame("close"), "unstack the tickers"),
    "a row without date": (with_index([pd.NaT, *DAYS[1:]]), "a row without a date"),
    "twice the same day": (with_index([DAYS[0], DAYS[0], *DAYS[2:]]), "2019-01-02 is there more than once"),
    "twice a day": (with_index(DAYS[[0, *range(29)]] + pd.to_timedelta(range(30), "min")), "more than once"),
    "unsorted": (table().iloc[::-1], r"do not ascend; sort them with prices\.sort_index\(\)"),
    "negative": (with_value(-3.5), "AAPL has the price -3.5 on 2019-01-07; prices must be positive"),
    "zero": (with_value(0.0), "AAPL has the price 0 on 2019-01-07"),
    "infinite": (with_value(np.inf), "AAPL has the price inf on 2019-01-07"),
    "strings": (table(NAME="Apple"), "the column NAME holds 'Apple' instead of numbers; convert it with pd.to_numeric"),
    "numbers as text": (table(AAPL="101.5"), "the column AAPL holds '101.5' instead of numbers"),
    "flags": (table(OPEN=True), "the column OPEN holds"),
    "an empty column": (table(GOOG=np.nan), "GOOG has no price at all; drop that column"),
    "no price": (table() * np.nan, "there is no price in the table"),
    "several levels": (pd.concat({"Close": table()}, axis=1), r"several levels; select .* prices\['Close'\]"),
    "a column twice": (table().iloc[:, [0, 0]], "the column AAPL is there more than once"),
    "cash": (table(CASH=1.0), "the column CASH must go, since cash is added by itself"),
    "a series": (table()["AAPL"], r"a Series holds one column only; .*to_frame"),
    "an array": (table().to_numpy(), r"must be a DataFrame .* \(got ndarray\)"),
    "a list": ([1.0, 2.0], r"must be a DataFrame .* \(got list\)"),
    "nothing": (table().iloc[:0], "0 rows and 2 columns"),
    "no column": (table().iloc[:, :0], "30 rows and 0 columns"),
}


@pytest.mark.parametrize(("frame", "told"), FAULTS.values(), ids=FAULTS)
def test_a_wrong_frame_gets_one_sentence(frame, told):
    with pytest.raises(DataQualityError, match=told) as caught:
        check_prices(frame)
    sentence = str(caught.value)
    assert sentence.startswith("prices: ") and sentence.endswith(".") and "\n" not in sentence


def test_real_prices_pass_as_they_are():
    frame = load_sample("sample").frame
    pd.testing.assert_frame_equal(check_prices(frame), frame)
    first_years = frame.loc[:"2018"]  # DOW is listed in 2019
    with pytest.raises(DataQualityError, match="DOW has no price at all"):
        check_prices(first_years)
    assert check_prices(first_years, allow_empty=True)["DOW"].isna().all()


def test_prices_near_one_are_not_taken_for_returns():
    rates = pd.DataFrame({"EURUSD": 1.1 + 0.01 * np.random.default_rng(1).normal(size=300).cumsum() / 10})
    rates.index = pd.bdate_range("2019-01-02", periods=300)
    assert check_prices(rates / rates.iloc[0]).shape == (300, 1)


def test_what_it_gives_is_a_copy_in_canonical_form():
    given = table().astype("float32").tz_localize("America/New_York")
    given.index += pd.Timedelta(hours=16)
    found = check_prices(given)
    assert found.index.equals(DAYS.as_unit("us")) and found.index.name == "date"
    assert (found.dtypes == "float64").all() and found.columns.name == "ticker"
    found.iloc[0, 0] = 1.0
    assert given.iloc[0, 0] != 1.0
    objects = table().astype(object)
    pd.testing.assert_frame_equal(check_prices(objects), check_prices(table()))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=40),
    st.floats(0.1, 1000),
    st.integers(0, 39),
    st.booleans(),
)
def test_positive_prices_pass_and_one_negative_price_never_does(values, scale, place, gap):
    """As long as they are not all near 1 without memory, which is what gross returns are."""
    series = 50.0 + np.array(values)
    frame = pd.DataFrame({"A": series * scale, "B": 100.0}, index=pd.bdate_range("2019-01-02", periods=len(series)))
    if gap and len(series) > 2:
        frame.iloc[place % len(series), 0] = np.nan
    assert check_prices(frame).shape == frame.shape
    frame.iloc[place % len(series), 1] = -1.0
    with pytest.raises(DataQualityError):
        check_prices(frame)
