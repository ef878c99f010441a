"""From a wide frame to files in any layout, so that reading them gives the same prices, bit by bit.

Only what is known is written: there is no open, high, low or volume in a frame of prices, so those cells stay empty.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from portfolio_sdpo.common.files import sync_directory, write_atomically
from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.column_names import ADJUSTED, PRICE, normalise_name
from portfolio_sdpo.prices.layouts.files import WRITABLE_ENDINGS, file_name, ticker_of, writable_kind
from portfolio_sdpo.prices.layouts.options import ONE_FILE_PER_TICKER, LayoutOptions, parse_layout
from portfolio_sdpo.prices.layouts.read import infer_adjustment
from portfolio_sdpo.prices.prices import Adjustment, to_wide

ZONE = "America/New_York"
"""Whose midnight `dates=zoned` writes."""

_COLUMNS = {
    "per-ticker": ("Open", "High", "Low", "Close", "Volume"),
    "yfinance-history": ("Open", "High", "Low", "Close", "Volume", "Dividends", "Stock Splits"),
    "nasdaq": ("Close/Last", "Volume", "Open", "High", "Low"),
}
"""Columns of the layouts with one file per ticker, beside the date."""
_PRICES = {"nasdaq": "Close/Last", "yfinance-history": "Close"}
"""Where the column of prices has one name, whatever the prices are adjusted for."""


def write_prices(frame: pd.DataFrame, path: Path, layout: str, adjustment: Adjustment, column: str) -> None:
    """Write prices (date × ticker, NaN = no price); the end of `path` says whether as CSV, CSV.gz or Parquet.

    Layouts with one file per ticker make `path` a folder (`files=parquet` chooses their kind). Options after a colon
    change the names of columns and the form of dates: `long:ticker=tic,price=adjcp,yyyymmdd`. Parquet files keep
    `adjustment` and `column`; a CSV file has them in the name of its column, or in a line `# adjustment:` above the
    header where its layout would claim something else.
    """
    path = Path(path)
    export = _Export(parse_layout(layout), adjustment, column)
    try:
        export.write(_check_frame(frame), path)
    except LayoutError as error:
        raise LayoutError(f"{path}: {error}") from None
    except OSError as error:
        raise LayoutError(f"{path}: nothing was written ({error.strerror}); choose another place.") from None


def _check_frame(frame: pd.DataFrame) -> pd.DataFrame:
    prices = to_wide(frame)
    if prices.empty:
        raise LayoutError("there are no prices to write.")
    if not prices.index.is_unique:
        day = prices.index[prices.index.duplicated()][0]
        raise LayoutError(f"the prices have {day:%Y-%m-%d} twice; clean them before writing.")
    if not prices.columns.is_unique:
        raise LayoutError("the prices have a ticker twice; rename one or drop it.")
    for name in prices.columns:
        if not name or name != name.strip() or not name.isprintable():
            raise LayoutError(f"{name!r} cannot be a ticker in a file: it is empty, padded or unprintable; rename it.")
    return prices


@dataclass(frozen=True)
class _Export:
    """How to write, and what is known about the prices."""

    options: LayoutOptions
    adjustment: Adjustment
    column: str

    @property
    def layout(self) -> str:
        if self.options.layout is None:
            raise LayoutError("say which layout to write.")
        return self.options.layout

    def write(self, prices: pd.DataFrame, path: Path) -> None:
        kind = writable_kind(path)
        single = self.layout not in ONE_FILE_PER_TICKER
        if kind is None and single:
            raise LayoutError(f"the name of the file must end with one of {WRITABLE_ENDINGS}.")
        if kind is None:
            self._write_folder(prices, path)
            return
        if not single and list(prices.columns) != [ticker_of(path)]:
            raise LayoutError(f"the layout {self.layout} has one file per ticker; give a folder.")
        table = self._table(prices, kind) if single else next(self._tables(prices, kind))[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, self._encode(table, kind))

    def _write_folder(self, prices: pd.DataFrame, folder: Path) -> None:
        """The folder appears at once with all its files, or not at all."""
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise LayoutError("the folder is not empty; give a new one.")
        kind = self.options.files or "csv"
        temporary = folder.parent / f".{folder.name}.{secrets.token_hex(4)}"
        temporary.mkdir(parents=True)
        try:
            for ticker, table in self._tables(prices, kind):
                write_atomically(temporary / file_name(ticker, kind), self._encode(table, kind))
            os.replace(temporary, folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_directory(folder.parent)

    # The index of a table is what the file has as dates.

    def _table(self, prices: pd.DataFrame, kind: str) -> pd.DataFrame:
        """All tickers: `wide`, `long`, `fields`, `yfinance-download`."""
        days = self._days(prices.index, kind)
        if self.layout == "wide":
            return prices.set_axis(days.rename("Date"), axis=0)
        if self.layout == "long":
            row, ticker = np.nonzero(prices.notna().to_numpy())
            columns = {
                self.options.ticker or "ticker": prices.columns.to_numpy()[ticker],
                self._price_name("adj_close", "close"): prices.to_numpy()[row, ticker],
            }
            return pd.DataFrame(columns, index=days.take(row).rename("date"))
        if self.layout == "fields":
            field = self._price_name("Adj Close", "Close")
            return prices.set_axis(days.rename("Date"), axis=0).set_axis(
                [f"{ticker}.{field}" for ticker in prices.columns], axis=1
            )
        adjusted = self.adjustment == "total-return" and normalise_name(self.column) in ADJUSTED
        field = self.options.price or ("Adj Close" if adjusted else "Close")
        levels = pd.MultiIndex.from_product([[field], prices.columns], names=["Price", "Ticker"])
        return prices.set_axis(days.rename("Date"), axis=0).set_axis(levels, axis=1)

    def _tables(self, prices: pd.DataFrame, kind: str) -> Iterator[tuple[str, pd.DataFrame]]:
        """One ticker each: `per-ticker`, `yfinance-history`, `nasdaq`; a ticker without any price has none."""
        price = self.options.price or _PRICES.get(self.layout) or self._price_name("Adj Close", "Close")
        names = list(_COLUMNS[self.layout])
        if price not in names:
            names.insert(-1, price)
        for ticker in prices.columns:
            values = prices[ticker].dropna()
            if values.empty:
                continue
            if self.layout == "nasdaq":
                values = values[::-1].map(_dollars)
            days = self._days(values.index, kind)
            table = pd.DataFrame(np.nan, index=days.rename("Date"), columns=names)
            table[price] = values.to_numpy()
            yield ticker, table

    def _price_name(self, adjusted: str, raw: str) -> str:
        """The name that the prices had, if it says what they are adjusted for; else the usual one."""
        if self.options.price is not None:
            return self.options.price
        total = self.adjustment == "total-return"
        if normalise_name(self.column) in PRICE and (normalise_name(self.column) in ADJUSTED) == total:
            return self.column
        return adjusted if total else raw

    def _days(self, index: pd.DatetimeIndex, kind: str) -> pd.Index:
        form = self.options.dates or ("monthfirst" if self.layout == "nasdaq" else "iso")
        if form == "yyyymmdd":
            return pd.Index(index.year * 10000 + index.month * 100 + index.day)
        if form in ("dayfirst", "monthfirst"):
            return index.strftime("%d/%m/%Y" if form == "dayfirst" else "%m/%d/%Y")
        days = index.tz_localize(ZONE) if form == "zoned" else index
        if kind == "parquet":
            return days
        return index.strftime("%Y-%m-%d") if form == "iso" else pd.Index([str(day) for day in days])

    def _encode(self, table: pd.DataFrame, kind: str) -> bytes:
        if kind == "parquet":
            table.attrs = {"adjustment": self.adjustment, "column": self.column}
            buffer = io.BytesIO()
            table.to_parquet(buffer)
            return buffer.getvalue()
        content = self._remark(table) + _csv(table)
        return gzip.compress(content, mtime=0) if kind == "csv.gz" else content

    def _remark(self, table: pd.DataFrame) -> bytes:
        """A line on the adjustment where the layout alone would claim another one."""
        names = [str(name) for name in table.columns.get_level_values(0)]
        price = next(
            (name for name in names if normalise_name(name) in PRICE and table[name].notna().to_numpy().any()), ""
        )
        claimed = infer_adjustment(self.layout, price, names)
        return b"" if claimed in ("unknown", self.adjustment) else f"# adjustment: {self.adjustment}\n".encode()


def _dollars(price: float) -> str:
    """As nasdaq.com writes it, with all the digits there are.

    >>> _dollars(1179.66)
    '$1,179.66'
    """
    return f"${price:,}"


def _csv(table: pd.DataFrame) -> bytes:
    """The table as CSV: the shortest decimals that read back as the same numbers, empty cells for NaN."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    if table.columns.nlevels == 1:
        writer.writerow([table.index.name, *table.columns])
    else:
        for level, name in enumerate(table.columns.names):
            writer.writerow([name, *table.columns.get_level_values(level)])
        writer.writerow([table.index.name, *[""] * table.shape[1]])
    columns = [table.index.to_series(), *(table.iloc[:, place] for place in range(table.shape[1]))]
    arrays = [pa.array(column, from_pandas=True) for column in columns]
    body = io.BytesIO()
    try:
        pa.csv.write_csv(
            pa.table(arrays, names=[str(place) for place in range(len(arrays))]),
            body,
            pa.csv.WriteOptions(include_header=False, quoting_style="none"),
        )
    except pa.ArrowInvalid:  # a cell with a comma or quotes: slower, and quotes only what needs it
        body = io.BytesIO()
        writer.writerows(zip(*(array.to_pylist() for array in arrays), strict=True))
    return lines.getvalue().encode() + body.getvalue()
