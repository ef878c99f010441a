"""From a long table to one column per ticker, without losing a repeated date.

Where a ticker has a date k times, the frame has k rows of that date, and the k-th price is in the k-th of them:
cleaning reports them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.dates import ParsedDates


@dataclass(frozen=True)
class Rows:
    """The rows of a table that are used, and the day of each."""

    keep: np.ndarray | slice
    """Places of the rows in the order in which they are used; all of them where it is a slice."""
    days: np.ndarray
    merged: bool = False
    """Whether later rows of a day stand in for earlier ones."""
    notes: tuple[str, ...] = ()

    def arrange(self, values: np.ndarray, tickers: pd.Series | None, names: Sequence[str]) -> pd.DataFrame:
        """Date × ticker. values: all rows of the table × columns. tickers: one per row in a long table, else None."""
        values = values[self.keep]
        if tickers is not None:
            owners = tickers[self.keep] if isinstance(self.keep, slice) else tickers.iloc[self.keep]
            return pivot(self.days, owners, values[:, 0])
        frame = pd.DataFrame(values, index=pd.DatetimeIndex(self.days), columns=list(names), copy=False)
        return frame.groupby(level=0).last() if self.merged else frame


def select_rows(dates: ParsedDates, dated: np.ndarray, tickers: pd.Series | None, to_daily: bool) -> Rows:
    """The rows with a date; intraday rows are reduced to the last one of each day, or refused.

    dated: (rows,), which rows count. tickers: the ticker of each row in a long table.
    """
    keep = slice(None) if dated.all() else np.flatnonzero(dated)  # mostly all of them, and a copy is spared
    days = dates.days[keep]
    if dates.times is None:
        return Rows(keep, days)
    times = dates.times[keep]
    owners = np.zeros(len(days), int) if tickers is None else pd.factorize(tickers)[0][keep]
    keys = pd.DataFrame({"owner": owners, "day": days, "time": times})
    if not (keys.groupby(["owner", "day"])["time"].nunique() > 1).any():
        return Rows(keep, days)
    if not to_daily:
        most = int(keys.groupby(["owner", "day"]).size().max())
        raise LayoutError(
            f"the prices are intraday, up to {most:,} a day, and snapshots hold one price per day: add --to-daily to "
            "keep the last price of each day."
        )
    order = np.lexsort((times, days))
    if tickers is not None:
        last = ~keys.iloc[order].duplicated(["owner", "day"], keep="last").to_numpy()
        order = order[last]
    places = order if isinstance(keep, slice) else keep[order]
    closes = keys[["owner", "day"]].drop_duplicates()
    note = f"Reduced {len(days):,} intraday rows to {len(closes):,} daily closes, the last price of each day."
    return Rows(places, days[order], merged=tickers is None, notes=(note,))


def pivot(days: np.ndarray, tickers: pd.Series, values: np.ndarray) -> pd.DataFrame:
    """Long to wide; days, tickers and values have one entry per row of the long table."""
    row, dates = pd.factorize(days, sort=True)
    column, names = _tickers(tickers)
    cell = row.astype(np.int64) * len(names) + column
    taken = np.zeros(len(dates) * len(names), dtype=bool)
    taken[cell] = True
    repeat = np.zeros(len(cell), dtype=np.int64)
    if taken.sum() < len(cell):
        repeat = pd.Series(cell).groupby(cell).cumcount().to_numpy()
    copies = np.ones(len(dates), dtype=np.int64)
    np.maximum.at(copies, row, repeat + 1)
    first_row = np.cumsum(copies) - copies
    table = np.full((int(copies.sum()), len(names)), np.nan)
    table[first_row[row] + repeat, column] = values
    return pd.DataFrame(table, index=pd.DatetimeIndex(np.repeat(dates, copies)), columns=names)


def _tickers(tickers: pd.Series) -> tuple[np.ndarray, list[str]]:
    """Which ticker each row is of, and their names."""
    spelling, found = pd.factorize(tickers)
    code, names = pd.factorize(np.array([str(name).strip() for name in found], dtype=object))  # `AAPL ` is AAPL
    column = np.append(code, -1)[spelling]
    blank = (column < 0) | (names == "")[column]
    if blank.any():
        raise LayoutError(f"row {int(blank.argmax()) + 1} of the data has no ticker; add it or drop the row.")
    return column, list(names)
