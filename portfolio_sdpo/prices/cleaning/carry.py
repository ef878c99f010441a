"""Gaps: a price is carried forward for a few sessions, and never backward."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from portfolio_sdpo.prices.cleaning.report import Finding
from portfolio_sdpo.prices.cleaning.table import Mask, Table, format_count, format_days, make_finding


def carry_forward(table: Table, positions: NDArray[np.int64], limit: int) -> tuple[Table, Mask]:
    """The table with gaps filled by the last price observed at most `limit` sessions before, and which cells those are.

    positions: (T,), the number of each date among the sessions, so that a session without a row counts too. What fills
    a cell depends on earlier cells only: the end of a listing is carried like a gap, since on that day both look alike.
    """
    filled = np.zeros(table.values.shape, bool)
    rows = np.flatnonzero(np.isnan(table.values).any(axis=1))
    if limit == 0 or not len(rows):
        return table, filled
    values = table.values[rows]
    missing = np.isnan(values)
    last = np.where(missing, -1, np.arange(values.shape[1], dtype=np.int32))
    np.maximum.accumulate(last, axis=1, out=last)  # the column of the last price observed, -1 before the first
    near = missing & (last >= 0) & (positions - positions[last] <= limit)
    row, column = np.nonzero(near)
    values[row, column] = values[row, last[row, column]]
    result = table.values.copy()
    result[rows], filled[rows] = values, near
    return Table(table.dates, table.tickers, result), filled


def find_gaps(table: Table, filled: Mask, limit: int) -> Iterator[Finding]:
    """What was carried, and who has no price for longer. table: after carrying."""
    for ticker, days in table.by_ticker(filled):
        count = format_count(len(days), "session")
        sentence = f"{ticker} has no price on {count} ({format_days(days)}): its last one is carried."
        yield make_finding("gap", "warning", ticker, days, sentence)
    missing = np.isnan(table.values)
    length = len(table.dates)
    first = (~missing).argmax(axis=1)
    end = length - (~missing[:, ::-1]).argmax(axis=1)  # one past the last price, observed or carried
    column = np.arange(length)
    inside = missing & (column > first[:, None]) & (column < end[:, None])
    starts = inside.copy()
    starts[:, 1:] &= ~inside[:, :-1]
    for row in np.flatnonzero(starts.any(axis=1)):
        days = table.dates[starts[row]]
        resumed = table.dates[np.flatnonzero(inside[row])[-1] + 1]
        often = f" on {len(days)} occasions" if len(days) > 1 else ""
        yield make_finding(
            "suspension",
            "warning",
            table.tickers[row],
            days,
            f"{table.tickers[row]} has no price for more than {format_count(limit, 'session')}{often} and is suspended "
            f"from {format_days(days)} until it trades again{'' if often else f' on {resumed}'}.",
        )
    for row in np.flatnonzero(end < length):
        own = np.flatnonzero(~missing[row] & ~filled[row])[-1]
        day = table.dates[own : own + 1]
        yield make_finding(
            "delisting",
            "warning",
            table.tickers[row],
            day,
            f"{table.tickers[row]} has no price after {day[0]}: delisted, or the source stops there.",
        )
