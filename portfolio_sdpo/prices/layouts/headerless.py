"""Rows without names: bars of one security, whose columns are known by their order and by what their values show.

MetaTrader, Binance, Kraken, Coinbase, HistData and others write bars without a line of names. Only what the values
prove is named: the high is never below and the low never above the numbers beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from portfolio_sdpo.prices.layouts.dates import looks_like_dates, looks_like_epochs
from portfolio_sdpo.prices.layouts.numbers import parse_number
from portfolio_sdpo.prices.layouts.times import CLOCK

KLINE = ("Open time", "Open", "High", "Low", "Close", "Volume", "Close time", "Quote asset volume", "Number of trades",
         "Taker buy base asset volume", "Taker buy quote asset volume", "Ignore")  # fmt: skip
"""Binance's columns."""
FEWEST_ROWS = 3
_ORDERS = (("Open", "High", "Low", "Close"), ("Low", "High", "Open", "Close"))
"""As nearly all write bars, and as Coinbase does."""


def name_bars(rows: Sequence[Sequence[Any]]) -> list[str] | None:
    """Names for the columns of rows that hold bars; None where the values do not show that they do.

    >>> name_bars([["2023-01-03", "5", "7", "4", "6", "100"], ["2023-01-04", "6", "8", "5", "7", "90"],
    ...            ["2023-01-05", "7", "7", "5", "6", "80"]])
    ['Date', 'Open', 'High', 'Low', 'Close', 'Volume']
    """
    table = [[str(cell).strip() for cell in row] for row in rows]
    width = len(table[0]) if table else 0
    if len(table) < FEWEST_ROWS or any(len(row) != width for row in table):
        return None
    columns = list(zip(*table, strict=True))
    date = next((place for place in range(min(2, width)) if _holds_times(columns[place])), None)
    if date is None:
        return None
    if date == 0 and width == len(KLINE) and looks_like_epochs(columns[6]):
        return list(KLINE) if _is_bar(columns[1:5], _ORDERS[0]) else None
    first = date + 1
    names = ["Ticker"] * date + ["Date"]
    if first < width and all(CLOCK.fullmatch(cell) or _is_clock(cell) for cell in columns[first]):
        names.append("Time")
        first += 1
    if date and any(parse_number(cell) is not None for cell in columns[0]):
        return None  # a number before the date is no ticker
    for order in _ORDERS:
        if _is_bar(columns[first : first + 4], order):
            rest = width - first - 4
            return [*names, *order, *["Volume"][:rest], *["Ignore"] * (rest - 1)]
    return None


def begins_with_time(row: Sequence[str]) -> bool:
    """Whether a row begins like one of bars, and not like one of names."""
    return any(_holds_times([cell]) for cell in row[:2])


def _holds_times(cells: Sequence[str]) -> bool:
    return looks_like_dates(cells) or looks_like_epochs(cells)


def _is_clock(cell: str) -> bool:
    """Whether a cell is a time such as 000000 or 153000."""
    return len(cell) == 6 and cell.isdigit() and int(cell[:2]) < 24 and int(cell[2:4]) < 60


def _is_bar(columns: Sequence[Sequence[str]], order: Sequence[str]) -> bool:
    """Whether four columns of numbers are open, high, low and close in this order."""
    if len(columns) < len(order):
        return False
    numbers = [[parse_number(cell) for cell in column] for column in columns]
    if any(number is None or not number > 0 for column in numbers for number in column):
        return False
    bars = list(zip(*numbers, strict=True))
    high, low = order.index("High"), order.index("Low")
    return all(bar[high] == max(bar) and bar[low] == min(bar) for bar in bars) and any(
        bar[high] > bar[low] for bar in bars
    )
