"""Prices from a file or folder of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import ClassVar

from pydantic import field_validator

from portfolio_sdpo.prices.currencies import convert_prices
from portfolio_sdpo.prices.prices import Prices
from portfolio_sdpo.prices.sources.base import Progress, SourceSettings, select


class File(SourceSettings):
    """A CSV or Parquet file, or a folder of per-ticker files, in any layout that `prices.layouts` knows."""

    name: ClassVar[str] = "file"
    reads_everything: ClassVar[bool] = True

    path: Path
    layout: str | None = None
    """Overrules the layout that the file seems to have."""
    dayfirst: bool | None = None
    """Whether 03/01/2011 is in January; None = the file has to show it."""
    returns: str | None = None
    """The unit of the numbers if they are returns: decimal, percent, log or gross."""
    to_daily: bool = False
    """Keep the last price of each day of intraday data."""
    currency: str | None = None
    """Turn prices of several currencies into this one."""
    rates: Path | None = None
    """A file of exchange rates for that."""

    @field_validator("path", "rates")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return path and path.expanduser().absolute()  # an update may run in another folder

    def fetch(
        self, tickers: Sequence[str], start: date | None, end: date | None, progress: Progress | None = None
    ) -> Prices:
        """See `Source.fetch`; no tickers = all that the file has."""
        from portfolio_sdpo.prices.layouts import read_prices

        prices = read_prices(
            self.path, self.layout, self.dayfirst, returns=self.returns, to_daily=self.to_daily, tickers=tickers
        )
        selected = select(prices, self.path.name, tickers, start, end, progress)
        return selected if self.currency is None else convert_prices(selected, self.currency, self.rates)
