"""From a long table to one column per ticker, without losing a repeated date.

Where a ticker has a date k times, the frame has k rows of that date, and the k-th price is in the k-th of them:
cleaning reports them.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from portfolio_sdpo.errors import LayoutError


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
