"""Prices as plain arrays while they are cleaned, and how their cells are spoken of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from portfolio_sdpo.prices.calendar import Days
from portfolio_sdpo.prices.cleaning.report import DATES_SHOWN, Finding, Kind, Severity
from portfolio_sdpo.prices.prices import DATE_UNIT

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Table:
    """dates: (T,). tickers: N names. values: (N, T): a row per ticker, since every check runs along its history."""

    dates: Days
    tickers: tuple[str, ...]
    values: NDArray[np.float64]

    @classmethod
    def from_frame(cls, frame: pd.DataFrame) -> Table:
        """A copy of the frame."""
        values = np.array(frame.to_numpy(dtype="float64").T, order="C")
        return cls(frame.index.to_numpy().astype("datetime64[D]"), tuple(frame.columns.tolist()), values)

    def frame(self) -> pd.DataFrame:
        """The table as date × ticker."""
        index = pd.DatetimeIndex(self.dates.astype(f"datetime64[{DATE_UNIT}]"), name="date")
        columns = pd.Index(self.tickers, name="ticker", dtype="str")
        return pd.DataFrame(self.values.T, index=index, columns=columns, copy=False)

    def rows(self, keep: Mask) -> Table:
        """Only these dates."""
        return self if keep.all() else Table(self.dates[keep], self.tickers, self.values[:, keep])

    def columns(self, keep: Mask) -> Table:
        """Only these tickers."""
        if keep.all():
            return self
        return Table(self.dates, tuple(np.array(self.tickers, object)[keep]), self.values[keep])

    def by_ticker(self, cells: Mask) -> Iterator[tuple[str, Days]]:
        """The tickers that have such cells (N, T), and when."""
        for row in np.flatnonzero(cells.any(axis=1)):
            yield self.tickers[row], self.dates[cells[row]]

    def carry_forward(self, positions: NDArray[np.int64], limit: int) -> tuple[Table, Mask]:
        """The table with gaps filled by the last price observed at most `limit` sessions before, and those cells.

        positions: (T,), the number of each date among the sessions, so that a session without a row counts too. What
        fills a cell depends on earlier cells only, and no price is carried backward: the end of a listing is carried
        like a gap, since on that day both look alike.
        """
        filled = np.zeros(self.values.shape, bool)
        rows = np.flatnonzero(np.isnan(self.values).any(axis=1))
        if limit == 0 or not len(rows):
            return self, filled
        values = self.values[rows]
        missing = np.isnan(values)
        last = np.where(missing, -1, np.arange(values.shape[1], dtype=np.int32))
        np.maximum.accumulate(last, axis=1, out=last)  # the column of the last price observed, -1 before the first
        near = missing & (last >= 0) & (positions - positions[last] <= limit)
        row, column = np.nonzero(near)
        values[row, column] = values[row, last[row, column]]
        result = self.values.copy()
        result[rows], filled[rows] = values, near
        return Table(self.dates, self.tickers, result), filled


def make_finding(kind: Kind, severity: Severity, ticker: str | None, days: Days, sentence: str) -> Finding:
    """A finding about these days."""
    return Finding(kind, severity, ticker, tuple(days[:DATES_SHOWN].tolist()), len(days), sentence)


def format_days(days: Days) -> str:
    """The first few days and how many more there are: `2016-01-04, 2016-01-05, 2016-01-06 and 3 more`."""
    shown = ", ".join(days[:DATES_SHOWN].astype(str))
    return shown if len(days) <= DATES_SHOWN else f"{shown} and {len(days) - DATES_SHOWN} more"


def format_count(number: int, noun: str) -> str:
    """`1 session`, `2 sessions`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
