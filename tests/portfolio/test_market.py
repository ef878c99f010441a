"""The market as arrays: gross_returns, listings, cash, and nothing from the future."""

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.errors import DataQualityError, HistoryError, PortfolioError, SettingsError
from portfolio_sdpo.portfolio.market import Market, load_frame, load_latest, load_market

nan = np.nan
DATES = pd.to_datetime(["2019-01-02", "2019-01-03", "2019-01-04", "2019-01-07", "2019-01-08"])


def frame(**columns):
    return pd.DataFrame(columns, index=DATES[: len(next(iter(columns.values())))])


def same(one, other):
    assert one.tickers == other.tickers
    for name in ("dates", "gross_returns", "listed"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_relatives_and_listings_by_hand():
    market = Market.from_prices(
        frame(ZZ=[10.0, 11.0, 11.0, 5.5, 6.6], LATE=[nan, nan, 7.0, 14.0, 7.0], BACK=[4.0, 8.0, nan, 100.0, 50.0])
    )
    assert market.assets == ("CASH", "ZZ", "LATE", "BACK")  # the frame's order
    np.testing.assert_allclose(
        market.gross_returns, [[1, 1, 1, 1], [1, 1.1, 1, 2], [1, 1, 1, 1], [1, 0.5, 2, 1], [1, 1.2, 0.5, 0.5]]
    )
    np.testing.assert_array_equal(
        market.listed, np.array([[1, 1, 0, 1], [1, 1, 0, 1], [1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]], dtype=bool)
    )
    assert market.dates.dtype == "datetime64[D]" and market.gross_returns.dtype == np.float64


def test_a_split_adjusted_series_does_not_see_the_split():
    """Two for one on the third day: the adjusted prices before it are halved."""
    adjusted = Market.from_prices(frame(S=[50.0, 52.0, 52.0, 53.04]))
    paid_after_it = Market.from_prices(frame(S=[100.0, 104.0, 104.0, 106.08]))
    np.testing.assert_allclose(adjusted.gross_returns, paid_after_it.gross_returns)
    raw = Market.from_prices(frame(S=[100.0, 104.0, 52.0, 53.04]))
    assert (
        raw.gross_returns[2, 1] == 0.5
    )  # what an unadjusted series would do: a loss of half, which the market does not hide


def test_cash_earns_the_last_rate_known_the_day_before():
    prices = frame(S=[1.0, 1.0, 1.0, 1.0, 1.0])
    np.testing.assert_allclose(
        Market.from_prices(prices, 0.0252).gross_returns[:, 0], [1, 1.0001, 1.0001, 1.0001, 1.0001]
    )
    rates = pd.Series([0.252, 0.0252, nan], index=pd.to_datetime(["2019-01-05", "2019-01-03", "2019-01-06"]))
    # Known on the 3rd: earned on the 4th and 7th; known on Saturday the 5th: earned from the 7th to the 8th.
    np.testing.assert_allclose(Market.from_prices(prices, rates).gross_returns[:, 0], [1, 1, 1.0001, 1.0001, 1.001])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 39), st.booleans())
def test_the_past_is_a_slice_of_the_whole(make_prices, seed, stocks, t, with_rates):
    prices = make_prices(seed, stocks)
    rate = pd.Series(np.random.default_rng(seed).uniform(0, 0.1, 40), index=prices.index) if with_rates else 0.01
    whole = Market.from_prices(prices, rate)
    same(whole.until(t), Market.from_prices(prices.iloc[: t + 1], rate))
    changed, other_rate = prices.copy(), rate.copy() if with_rates else rate
    changed.iloc[t + 1 :] = np.random.default_rng(seed + 1).uniform(1, 1000, changed.iloc[t + 1 :].shape)
    if with_rates:
        other_rate.iloc[t + 1 :] = 0.5
    same(whole.until(t), Market.from_prices(changed, other_rate).until(t))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_relatives_rebuild_every_listing(make_prices, seed, stocks):
    prices = make_prices(seed, stocks)
    market = Market.from_prices(prices)
    assert (market.gross_returns > 0).all() and market.listed[:, 0].all()
    assert (market.gross_returns[~market.listed] == 1).all()
    np.testing.assert_array_equal(market.listed[:, 1:], prices.notna())
    for asset, ticker in enumerate(market.tickers, start=1):
        listing = (prices[ticker].isna() | prices[ticker].shift().isna()).cumsum()
        for _, part in prices[ticker].dropna().groupby(listing):
            rows = prices.index.get_indexer(part.index)
            assert market.gross_returns[rows[0], asset] == 1
            np.testing.assert_allclose(part.iloc[0] * market.gross_returns[rows, asset].cumprod(), part)


def test_slices_by_date():
    market = Market.from_prices(frame(S=[1.0, 2.0, 3.0, 4.0, 5.0]))
    part = market.between("2019-01-03", "2019-01-07")
    assert part.dates.astype(str).tolist() == ["2019-01-03", "2019-01-04", "2019-01-07"]
    assert part.gross_returns[0, 1] == 2.0  # known at that close, so it stays
    same(market.between("2019-01-05", pd.Timestamp("2019-01-07 16:00")), market.between("2019-01-07", "2019-01-07"))
    same(market.between(), market)
    assert market.index_of(datetime.date(2019, 1, 4)) == market.index_of(DATES[2]) == market.index_of("2019-01-04") == 2
    assert market.span(np.datetime64("2019-01-03")) == (1, 4)


def test_time_zones_are_the_exchange_s():
    prices = frame(S=[1.0, 2.0])
    same(Market.from_prices(prices.tz_localize("America/New_York")), Market.from_prices(prices))


def test_arrays_cannot_be_changed():
    market = Market.from_prices(frame(S=[1.0, 2.0]))
    with pytest.raises(ValueError, match="read-only"):
        market.gross_returns[0, 0] = 2.0


@pytest.mark.parametrize(
    "prices, error, says",
    [
        (frame(S=[1.0, 0.0]), DataQualityError, r"S has the price 0.0 on 2019-01-03"),
        (frame(S=[1.0, -3.0]), DataQualityError, "prices must be positive"),
        (frame(S=[1.0, np.inf]), DataQualityError, "prices must be positive"),
        (frame(S=[1e-300, 1e300]), DataQualityError, "S moves by the factor inf on 2019-01-03"),
        (frame(S=["a", "b"]), DataQualityError, "must hold numbers"),
        (frame(CASH=[1.0, 1.0]), DataQualityError, "none may be called CASH"),
        (frame(S=[1.0, 2.0])[["S", "S"]], DataQualityError, "every ticker must appear once"),
        (frame(S=[1.0, 2.0]).iloc[::-1], DataQualityError, "sessions must ascend"),
        (frame(S=[1.0, 2.0]).reset_index(drop=True), DataQualityError, "index must hold dates"),
        (frame(S=[1.0]).iloc[:0], HistoryError, "at least one session"),
        (frame(S=[1.0])[[]], HistoryError, "one stock"),
    ],
)
def test_prices_that_cannot_be_traded(prices, error, says):
    with pytest.raises(error, match=says):
        Market.from_prices(prices)


@pytest.mark.parametrize("rate", [2.4, nan, pd.Series([2.4], index=DATES[:1])])
def test_a_rate_in_percent_is_refused(rate):
    with pytest.raises(SettingsError, match="decimals"):
        Market.from_prices(frame(S=[1.0, 2.0]), rate)


def test_days_that_are_not_there():
    market = Market.from_prices(frame(S=[1.0, 2.0, 3.0, 4.0]))
    with pytest.raises(
        HistoryError, match=r"start: 2018-06-01 is outside the prices, which run from 2019-01-02 to 2019"
    ):
        market.between("2018-06-01")
    with pytest.raises(HistoryError, match="end: 2020-01-01 is outside"):
        market.between(end="2020-01-01")
    with pytest.raises(SettingsError, match="start: must not be after end"):
        market.between("2019-01-04", "2019-01-03")
    with pytest.raises(HistoryError, match="no session between"):
        market.between("2019-01-05", "2019-01-06")
    with pytest.raises(HistoryError, match="2019-01-05 is not a session: the next one is 2019-01-07"):
        market.index_of("2019-01-05")
    with pytest.raises(SettingsError, match="start: must be a day such as"):
        market.between("soon")
    for t in (-1, 4):
        with pytest.raises(PortfolioError, match=f"session {t} does not exist"):
            market.until(t)


def test_shapes_must_agree():
    with pytest.raises(SettingsError, match="one row per session"):
        Market(DATES.to_numpy().astype("datetime64[D]"), ("S",), np.ones((5, 1)), np.ones((5, 2), dtype=bool))


def test_a_backtest_s_data_say_what_survivorship_does_to_them(make_prices):
    _, _, facts = load_market(None, "zero", None, None)
    assert facts["survivorship"].startswith("All 9 tickers still have prices at the end")
    frame = make_prices(seed=0, stocks=3, sessions=300, gaps=False)
    frame.iloc[-20:, 0] = np.nan
    _, _, facts = load_frame(frame, "zero", None, None)
    assert facts["survivorship"].startswith("1 of 3 tickers end before the last day")
    # A model is known by its content, which this sentence is no part of.
    assert "survivorship" not in load_latest(None, "zero")[1]
