"""Prices from Yahoo Finance with the `yfinance` package."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from portfolio_sdpo.errors import NoDataInRangeError, UnknownTickerError
from portfolio_sdpo.prices.prices import Prices, to_wide
from portfolio_sdpo.prices.sources.base import NetworkSource, Progress, check_request, join_series, no_data, slice_dates

if TYPE_CHECKING:
    from portfolio_sdpo.prices.sources._yahoo_client import Client

COLUMN = "Adj Close"


class Yahoo(NetworkSource):
    """Daily closes of Yahoo Finance, adjusted for dividends and splits; tickers as Yahoo spells them (`BRK-B`)."""

    name: ClassVar[str] = "yfinance"

    base_url: str | None = None
    """A server to ask in place of Yahoo's, such as a mirror."""

    def fetch(
        self, tickers: Sequence[str], start: date | None, end: date | None, progress: Progress | None = None
    ) -> Prices:
        """See `Source.fetch`; a session that is not over yet has no close and is left out."""
        from portfolio_sdpo.prices.sources._yahoo_client import Client

        chosen = check_request(tickers, start, end)
        running: dict[str, date] = {}
        details: dict[str, pd.DataFrame] = {}
        currencies: dict[str, str] = {}
        with closing(Client(self.base_url, self.timeout)) as client:
            arrived, failures = self.fetch_each(
                chosen, lambda ticker: _one(client, ticker, start, end, running, details, currencies), progress
            )
        notes: tuple[str, ...] = ()
        companions = _join_details(details, list(arrived))
        if end is not None and end < date.today() - timedelta(days=1) and companions.pop("close", None) is not None:
            notes = (f"Closes as they were traded are not stored: splits after {end} are unknown; leave out --end.",)
        if running:
            notes += (
                f"The session of {max(running.values())} is not over, so its price was left out for "
                f"{', '.join(sorted(running))}.",
            )
        return Prices(
            to_wide(join_series(arrived)),
            COLUMN,
            "total-return",
            failures,
            notes,
            companions=companions,
            currencies={ticker: currencies[ticker] for ticker in arrived if ticker in currencies},
        )


def _join_details(details: dict[str, pd.DataFrame], tickers: list[str]) -> dict[str, pd.DataFrame]:
    """Closes as they were traded, dividends and splits, as date × ticker; a table without any entry is left out."""
    tables = {}
    for kind, column in (("close", "Close"), ("dividends", "Dividends"), ("splits", "Stock Splits")):
        found = {ticker: details[ticker][column] for ticker in tickers if column in details.get(ticker, ())}
        if any(bool((series.fillna(0) != 0).any()) for series in found.values()):
            tables[kind] = to_wide(join_series(found))
    return tables


def _one(
    client: Client,
    ticker: str,
    start: date | None,
    end: date | None,
    running: dict[str, date],
    details: dict[str, pd.DataFrame],
    currencies: dict[str, str],
) -> pd.Series:
    """The adjusted closes of one ticker by the exchange's calendar day."""
    unknown = UnknownTickerError(
        f"Yahoo does not know the ticker {ticker}: check its spelling on finance.yahoo.com, or import its prices from "
        "a file if Yahoo has dropped it."
    )
    if "/" in ticker:
        raise unknown
    try:
        bars = client.history(ticker, start, end)
    except UnknownTickerError:
        raise unknown from None
    except NoDataInRangeError:
        raise no_data("Yahoo", ticker, start, end) from None
    prices = bars[COLUMN]
    session = _running_session(client.session.meta)
    if session is not None and len(prices) and prices.index[-1].date() == session:
        prices = prices.iloc[:-1]
        if (start is None or start <= session) and (end is None or session <= end):
            running[ticker] = session
    details[ticker] = slice_dates(_undo_splits(bars.set_axis(bars.index.tz_localize(None).normalize())), start, end)
    if currency := client.session.meta.get("currency"):
        currencies[ticker] = str(currency)
    prices = slice_dates(prices.set_axis(prices.index.tz_localize(None).normalize()), start, end)
    if not prices.notna().any():
        raise no_data("Yahoo", ticker, start, end)
    return prices


def _undo_splits(bars: pd.DataFrame) -> pd.DataFrame:
    """The bars with closes as they were traded: Yahoo divides them by the splits that came later."""
    if "Stock Splits" not in bars:
        return bars
    factors = bars["Stock Splits"].replace(0, 1).fillna(1).to_numpy()
    later = np.append(np.cumprod(factors[::-1])[::-1][1:], 1.0)
    return bars.assign(Close=bars["Close"] * later)


def _running_session(meta: dict[str, Any]) -> date | None:
    """The exchange's calendar day if its session has not ended, judged by what Yahoo says about the session's times."""
    try:
        regular = meta["currentTradingPeriod"]["regular"]
        if time.time() >= regular["end"]:
            return None
        return pd.Timestamp(regular["start"], unit="s", tz=meta["exchangeTimezoneName"]).date()
    except (LookupError, TypeError, ValueError):
        return None  # Yahoo does not state it
