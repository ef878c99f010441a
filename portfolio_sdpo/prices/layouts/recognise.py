"""Which layout a table has, and which of its columns hold dates, tickers and prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.column_names import (
    DATE,
    FIELDS,
    PRICE,
    TICKER,
    find_columns,
    has_no_name,
    is_index_name,
    normalise_name,
)
from portfolio_sdpo.prices.layouts.dates import looks_like_dates
from portfolio_sdpo.prices.layouts.numbers import parse_number
from portfolio_sdpo.prices.layouts.options import LayoutOptions
from portfolio_sdpo.prices.layouts.raw_table import RawTable

WIDE_COLUMN = "price"
"""What the prices of a wide table are called: its columns are called after tickers."""


@dataclass(frozen=True)
class Candidate:
    """Columns that may hold the prices."""

    name: str
    columns: tuple[int, ...]
    tickers: tuple[str, ...] = ()
    """One per column; empty where a column of the table or the name of the file tells."""


@dataclass(frozen=True)
class Plan:
    """How to read a table."""

    layout: str
    date: int
    ticker: int | None
    candidates: tuple[Candidate, ...]
    """The preferred one first; the first one that holds any number is used."""


def recognise(table: RawTable, options: LayoutOptions) -> Plan:
    """The plan for a table; what the user chose is not questioned."""
    date = _date_column(table)
    layout = options.layout or _layout(table, date)
    if (layout == "yfinance-download") != (table.tickers is not None):
        raise LayoutError(
            f"the header has {'one row' if table.tickers is None else 'two rows'}, so it is not {layout}."
        )
    if layout == "wide":
        return Plan(layout, date, None, (_wide_columns(table, date),))
    if table.tickers is not None:
        return Plan(layout, date, None, _by_field(table, table.tickers, date, options))
    ticker = _ticker_column(table, options) if layout == "long" else None
    prices = [column for column in _price_columns(table.names, options) if column not in (date, ticker)]
    if not prices:
        raise LayoutError(f"there is no column of prices such as Close or Adj Close among {_join_names(table.names)}.")
    return Plan(layout, date, ticker, tuple(Candidate(table.names[column], (column,)) for column in prices))


def _layout(table: RawTable, date: int) -> str:
    """Recognise the layout by the names of the columns."""
    if table.tickers is not None:
        return "yfinance-download"
    names = [name for column, name in enumerate(table.names) if column != date and not is_index_name(name)]
    normalised = {normalise_name(name) for name in names}
    prices = [names[column] for column in find_columns(names, PRICE)]
    tickers = [column for column in find_columns(table.names, TICKER) if column != date]
    if tickers and (prices or _is_text(table, tickers[0])):
        return "long"
    # OPEN, LOW and LAST are tickers too: one such name among unknown ones is a ticker, unless it is in lower case.
    others = [name for name in names if name not in prices]
    if prices and (not others or normalised & (FIELDS - set(PRICE)) or any(name != name.upper() for name in prices)):
        if "closelast" in normalised:
            return "nasdaq"
        return "yfinance-history" if {"dividends", "stocksplits"} <= normalised else "per-ticker"
    if normalised <= FIELDS:
        raise LayoutError(
            f"there is no column of prices such as Close or Adj Close among {_join_names(table.names)}; "
            "if these are tickers, say so with the layout `wide`."
        )
    return "wide"


def _date_column(table: RawTable) -> int:
    """The first column of dates: by name, then without a name, then by what is in it."""
    named = find_columns(table.names, DATE)
    unlabelled = [column for column, name in enumerate(table.names) if is_index_name(name)]
    others = () if named else range(len(table.names))  # a volume can look like a date that it is not
    for column in (*named, *unlabelled, *others):
        if looks_like_dates(_cells(table, column)):
            return column
    if named:
        return named[0]  # whose first cell will be refused by name
    raise LayoutError(
        f"none of the columns {_join_names(table.names)} holds dates, and prices without dates cannot be used; "
        "add a column `Date` with days as YYYY-MM-DD."
    )


def _wide_columns(table: RawTable, date: int) -> Candidate:
    columns = []
    for column, name in enumerate(table.names):
        if column == date or (is_index_name(name) and _counts_rows(_cells(table, column), column < date)):
            continue
        if has_no_name(name):
            raise LayoutError(f"column {column + 1} has no name; write its ticker above it.")
        columns.append(column)
    if not columns:
        raise LayoutError("there is no column of prices beside the dates.")
    return Candidate(WIDE_COLUMN, tuple(columns), tuple(table.names[column] for column in columns))


def _counts_rows(cells: Sequence[str], before_dates: bool) -> bool:
    """Whether the cells are 0, 1, 2, ..., or all empty; before the dates also what sorting and filtering leave."""
    filled = [cell for cell in cells if cell]
    if not all(cell.isdecimal() for cell in filled):
        return False
    steps = np.diff([int(cell) for cell in filled])
    return bool((steps == 1).all() or (before_dates and ((steps > 0).all() or (steps < 0).all())))


def _by_field(table: RawTable, tickers: Sequence[str], date: int, options: LayoutOptions) -> tuple[Candidate, ...]:
    """One candidate per field of prices (Adj Close, Close) with the columns of all tickers."""
    columns: dict[str, list[int]] = {}
    for column in _price_columns(table.names, options):
        if column != date:
            columns.setdefault(table.names[column], []).append(column)
    if not columns:
        raise LayoutError(f"there is no column of prices such as Close or Adj Close among {_join_names(table.names)}.")
    return tuple(
        Candidate(name, tuple(places), tuple(tickers[place] for place in places)) for name, places in columns.items()
    )


def _ticker_column(table: RawTable, options: LayoutOptions) -> int:
    if options.ticker is not None:
        return _find_named(table.names, options.ticker)
    columns = find_columns(table.names, TICKER)
    if not columns:
        raise LayoutError(
            f"there is no column of tickers among {_join_names(table.names)}; name it, as in `long:ticker=tic`."
        )
    return columns[0]


def _price_columns(names: Sequence[str], options: LayoutOptions) -> list[int]:
    if options.price is None:
        return find_columns(names, PRICE)
    first = _find_named(names, options.price)
    return [column for column, name in enumerate(names) if name == names[first]]


def _find_named(names: Sequence[str], name: str) -> int:
    if name not in names:
        raise LayoutError(f"there is no column {name!r} among {_join_names(names)}.")
    return names.index(name)


def _cells(table: RawTable, column: int) -> list[str]:
    return [row[column] for row in table.sample if column < len(row)]


def _is_text(table: RawTable, column: int) -> bool:
    return any(parse_number(cell) is None for cell in _cells(table, column))


def _join_names(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(name or "(no name)" for name in names[:most])
    return shown if len(names) <= most else f"{shown}, ... ({len(names)} columns)"
