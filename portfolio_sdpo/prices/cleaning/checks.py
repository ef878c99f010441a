"""Checks that only look: late listings, large moves, stale runs, gaps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from portfolio_sdpo.common.numbers import percent, share
from portfolio_sdpo.prices.cleaning.report import DATES_SHOWN, Finding
from portfolio_sdpo.prices.cleaning.table import Mask, Table, format_count, format_days, make_finding

LARGE_MOVE = 0.35
"""A price that is more than this share above or below the one before it is reported."""

STALE_SESSIONS = 10
"""A price that stands still for so many sessions in a row is reported: two weeks without a cent of change."""


def find_late_listings(table: Table) -> Iterator[Finding]:
    """Tickers whose first price comes after the first date of the table."""
    first = (~np.isnan(table.values)).argmax(axis=1)
    for row in np.flatnonzero(first):
        day = table.dates[first[row] : first[row] + 1]
        yield make_finding(
            "late-listing",
            "info",
            table.tickers[row],
            day,
            f"{table.tickers[row]} has no price before {day[0]} and stays empty until then.",
        )


def find_moves_and_stale_runs(table: Table) -> Iterator[Finding]:
    """Large moves and stale runs between prices that follow each other, whatever gap lies between them."""
    observed = ~np.isnan(table.values)
    counts = observed.sum(axis=1)
    flat = table.values.ravel()
    if counts.sum() == flat.size:
        places = np.arange(flat.size)
    else:
        places = np.flatnonzero(observed)
        flat = flat[places]
    last = np.cumsum(counts)[:-1] - 1  # steps from one ticker to the next do not count
    with np.errstate(over="ignore"):
        moves = flat[1:] / flat[:-1]
    moves -= 1
    moves[last] = np.nan
    large = np.flatnonzero((moves > LARGE_MOVE) | (moves < -LARGE_MOVE))
    yield from _large_moves(table, places[large + 1], moves[large])

    # Steps without a change are few: runs are found among them alone.
    still = np.flatnonzero(moves == 0)
    ends = np.flatnonzero(np.diff(still, append=len(flat) + 1) > 1)
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    lengths = ends - starts + 2
    stale = lengths >= STALE_SESSIONS
    first, end = still[starts[stale]], still[ends[stale]] + 1
    yield from _stale_runs(table, places[first], places[end], lengths[stale])


def _large_moves(table: Table, cells: np.ndarray, moves: np.ndarray) -> Iterator[Finding]:
    """One finding per ticker. cells: places of the later prices in the flattened table."""
    rows, columns = np.divmod(cells, len(table.dates))
    for row in np.unique(rows):
        of_ticker = rows == row
        days, sizes = table.dates[columns[of_ticker]], moves[of_ticker]
        shown = ", ".join(
            f"{percent(size, sign=True)} on {day}" for day, size in zip(days[:DATES_SHOWN], sizes, strict=False)
        )
        more = f" and {len(days) - DATES_SHOWN} more" if len(days) > DATES_SHOWN else ""
        sentence = f"{table.tickers[row]} moved by more than {share(LARGE_MOVE)}: {shown}{more}."
        yield make_finding("large-move", "warning", table.tickers[row], days, sentence)


def _stale_runs(table: Table, first: np.ndarray, last: np.ndarray, lengths: np.ndarray) -> Iterator[Finding]:
    """One finding per ticker, which speaks of the longest run. first, last: places in the flattened table."""
    rows, columns = np.divmod(first, len(table.dates))
    for row in np.unique(rows):
        runs = np.flatnonzero(rows == row)
        longest = runs[lengths[runs].argmax()]
        others = f", and in {format_count(len(runs) - 1, 'shorter run')}" if len(runs) > 1 else ""
        yield make_finding(
            "stale-run",
            "warning",
            table.tickers[row],
            table.dates[columns[runs]],
            f"{table.tickers[row]} has the same price {lengths[longest]} times in a row, from "
            f"{table.dates[columns[longest]]} to {table.dates[last[longest] % len(table.dates)]}{others}.",
        )


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
