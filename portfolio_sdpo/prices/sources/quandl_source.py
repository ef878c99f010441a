"""Prices from Nasdaq Data Link, formerly Quandl, with the `quandl` package: time series (datasets) and tables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import date
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd
from pydantic import Field, SecretStr, field_validator

from portfolio_sdpo.errors import SettingsError, SourceError, UnknownTickerError
from portfolio_sdpo.prices.prices import Adjustment, Prices, to_wide
from portfolio_sdpo.prices.sources._client_helpers import is_loopback
from portfolio_sdpo.prices.sources.base import NetworkSource, Progress, check_request, join_series, no_data, slice_dates

if TYPE_CHECKING:
    from portfolio_sdpo.prices.sources._quandl_client import Client

KEY_VARIABLES = ("PORTFOLIO_SDPO_QUANDL_KEY", "NASDAQ_DATA_LINK_API_KEY", "QUANDL_API_KEY")
ADJUSTED = ("Adj. Close", "Adj_Close", "Adj Close", "adj_close", "closeadj")
RAW = ("Close", "close")
TABLE_COLUMNS = {
    "WIKI/PRICES": "adj_close",
    "QUOTEMEDIA/PRICES": "adj_close",
    "SHARADAR/SEP": "closeadj",
    "SHARADAR/SFP": "closeadj",
}
"""Tables whose price column is known, so that the other ones need not be sent."""


class Quandl(NetworkSource):
    """Daily closes of Nasdaq Data Link, adjusted ones if there are any."""

    name: ClassVar[str] = "quandl"

    api_base: str = "https://data.nasdaq.com/api/v3"
    """Where the interface is."""
    api_key: SecretStr | None = Field(None, exclude=True)
    """By default from the variable PORTFOLIO_SDPO_QUANDL_KEY, NASDAQ_DATA_LINK_API_KEY or QUANDL_API_KEY."""
    database: str = Field("WIKI", pattern=r"^\w+$")
    """Where the dataset of a ticker is: AAPL is `WIKI/AAPL`. A ticker written as `EOD/AAPL` says so itself."""
    table: str | None = Field(None, pattern=r"^\w+/\w+$")
    """Ask this table, for example `WIKI/PRICES`, in place of datasets."""
    column: str | None = None
    """The price column; by default an adjusted close, else the close."""

    @field_validator("api_key", mode="before")
    @classmethod
    def _hidden(cls, key: Any) -> Any:
        return key if key is None or isinstance(key, SecretStr) else SecretStr(str(key))  # no complaint may quote it

    @field_validator("api_base")
    @classmethod
    def _check_scheme(cls, url: str) -> str:
        if url.startswith("http://") and not is_loopback(url):
            raise ValueError("must start with https://, or the key is sent in the clear")
        return url

    def fetch(
        self, tickers: Sequence[str], start: date | None, end: date | None, progress: Progress | None = None
    ) -> Prices:
        """See `Source.fetch`; all tickers have the same price column, those without it are among the failures."""
        from portfolio_sdpo.prices.sources._quandl_client import Client

        chosen = check_request(tickers, start, end)
        one = self._from_dataset if self.table is None else self._from_table
        with closing(Client(self.api_base, self._key(), self.timeout)) as client:
            arrived, failures = self.fetch_each(chosen, lambda ticker: one(client, ticker, start, end), progress)
        column = min((str(prices.name) for prices in arrived.values()), key=_preference)
        for ticker, prices in arrived.items():
            if prices.name != column:
                failures[ticker] = SourceError(
                    f"{ticker} has no column {column!r} as the other tickers have: fetch it apart, or choose the "
                    f"column {prices.name!r} for all of them."
                )
        frame = to_wide(join_series({ticker: prices for ticker, prices in arrived.items() if ticker not in failures}))
        adjustment = self._adjustment(column)
        notes = () if adjustment == "total-return" else (f"The prices are from the column {column!r}.",)
        return Prices(frame, column, adjustment, failures, notes)

    def _key(self) -> str | None:
        if self.api_key is not None:
            return self.api_key.get_secret_value() or None
        return next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None)

    def _adjustment(self, column: str) -> Adjustment:
        if column in ADJUSTED:
            return "total-return"
        of_wiki = (self.table or self.database).startswith("WIKI")
        return "none" if of_wiki and column in RAW else "unknown"

    def _from_dataset(self, client: Client, ticker: str, start: date | None, end: date | None) -> pd.Series:
        code = ticker if "/" in ticker else f"{self.database}/{ticker}"
        if not re.fullmatch(r"\w+/[\w.\-]+", code):
            raise _unknown(ticker, code)
        params = {"start_date": start, "end_date": end}
        try:
            frame = client.dataset(code, **{name: str(day) for name, day in params.items() if day is not None})
        except UnknownTickerError:
            raise _unknown(ticker, code) from None
        return self._prices(frame, ticker, start, end)

    def _from_table(self, client: Client, ticker: str, start: date | None, end: date | None) -> pd.Series:
        assert self.table is not None
        column = self.column or TABLE_COLUMNS.get(self.table)
        filters: dict[str, Any] = {"ticker": ticker}
        days = {"gte": start, "lte": end}
        if start or end:
            filters["date"] = {name: str(day) for name, day in days.items() if day is not None}
        if column:
            filters["qopts"] = {"columns": ["date", column]}
        try:
            frame = client.table(self.table, **filters)
            # A table answers alike for an unknown ticker and for an empty range.
            if frame.empty and client.table(self.table, paginate=False, ticker=ticker, qopts={"per_page": 1}).empty:
                raise _unknown(ticker, f"{self.table} with ticker {ticker}")
        except UnknownTickerError as error:
            if str(error) == self.table:
                raise SettingsError(f"Quandl.table: Nasdaq Data Link knows no table {self.table}.") from None
            raise
        if "date" not in frame.columns:
            raise SettingsError(f"Quandl.table: {self.table} has no column 'date', so it is not a table of prices.")
        return self._prices(frame.set_index("date"), ticker, start, end)

    def _prices(self, frame: pd.DataFrame, ticker: str, start: date | None, end: date | None) -> pd.Series:
        """The price column, under its own name."""
        if frame.empty:
            raise no_data("Nasdaq Data Link", ticker, start, end)
        column = _choose(frame.columns, self.column, ticker)
        prices = frame[column].astype("float64").set_axis(pd.DatetimeIndex(frame.index))
        prices = slice_dates(prices, start, end)
        if not prices.notna().any():
            raise no_data("Nasdaq Data Link", ticker, start, end)
        return prices.rename(column)


class NasdaqDataLink(Quandl):
    """Nasdaq Data Link under the name it has today: a table of prices, by default that of end-of-day US stocks.

    Quandl's free database WIKI, the default of `quandl`, has not been updated since 2018.
    """

    name: ClassVar[str] = "nasdaq-data-link"

    table: str | None = Field("QUOTEMEDIA/PRICES", pattern=r"^\w+/\w+$")
    """The table to ask, for example `SHARADAR/SEP`; none asks the datasets of `database`."""


def _choose(columns: Iterable[Any], wanted: str | None, ticker: str) -> str:
    names = [str(name) for name in columns]
    candidates = (wanted,) if wanted else (*ADJUSTED, *RAW)
    for name in candidates:
        if name in names:
            return name
    raise SourceError(f"{ticker} has no price column {' or '.join(candidates)}: choose one of {', '.join(names)}.")


def _preference(column: str) -> int:
    order = (*ADJUSTED, *RAW)
    return order.index(column) if column in order else -1


def _unknown(ticker: str, code: str) -> UnknownTickerError:
    return UnknownTickerError(
        f"Nasdaq Data Link does not know {ticker} (asked for {code}): check its spelling, and the database or table."
    )
