"""Which layout a sheet has, and which of its columns hold dates, tickers and prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.choice import Choice
from portfolio_sdpo.prices.layouts.dates import looks_like_dates
from portfolio_sdpo.prices.layouts.numbers import parse_number
from portfolio_sdpo.prices.layouts.sheet import Sheet
from portfolio_sdpo.prices.layouts.words import DATE, FIELDS, PRICE, TICKER, find, nameless, plain, unnamed

WIDE_COLUMN = "price"
"""What the prices of a wide table are called: its columns are called after tickers."""


@dataclass(frozen=True)
class Candidate:
    """Columns that may hold the prices."""

    name: str
    columns: tuple[int, ...]
    tickers: tuple[str, ...] = ()
    """One per column; empty where a column of the sheet or the name of the file tells."""


@dataclass(frozen=True)
class Plan:
    """How to read a sheet."""

    layout: str
    date: int
    ticker: int | None
    candidates: tuple[Candidate, ...]
    """The preferred one first; the first one that holds any number is used."""


def recognise(sheet: Sheet, choice: Choice) -> Plan:
    """The plan for a sheet; what the user chose is not questioned."""
    date = _date_column(sheet)
    layout = choice.layout or _layout(sheet, date)
    if (layout == "yfinance-download") != (sheet.tickers is not None):
        raise LayoutError(
            f"the header has {'one row' if sheet.tickers is None else 'two rows'}, so it is not {layout}."
        )
    if layout == "wide":
        return Plan(layout, date, None, (_wide_columns(sheet, date),))
    if sheet.tickers is not None:
        return Plan(layout, date, None, _by_field(sheet, sheet.tickers, date, choice))
    ticker = _ticker_column(sheet, choice) if layout == "long" else None
    prices = [column for column in _price_columns(sheet.names, choice) if column not in (date, ticker)]
    if not prices:
        raise LayoutError(f"there is no column of prices such as Close or Adj Close among {_listed(sheet.names)}.")
    return Plan(layout, date, ticker, tuple(Candidate(sheet.names[column], (column,)) for column in prices))


def _layout(sheet: Sheet, date: int) -> str:
    """Recognise the layout by the names of the columns."""
    if sheet.tickers is not None:
        return "yfinance-download"
    names = [name for column, name in enumerate(sheet.names) if column != date and not unnamed(name)]
    spelt = {plain(name) for name in names}
    prices = [names[column] for column in find(names, PRICE)]
    tickers = [column for column in find(sheet.names, TICKER) if column != date]
    if tickers and (prices or _is_text(sheet, tickers[0])):
        return "long"
    # OPEN, LOW and LAST are tickers too: one such name among unknown ones is a ticker, unless it is spelt like a word.
    others = [name for name in names if name not in prices]
    if prices and (not others or spelt & (FIELDS - set(PRICE)) or any(name != name.upper() for name in prices)):
        if "closelast" in spelt:
            return "nasdaq"
        return "yfinance-history" if {"dividends", "stocksplits"} <= spelt else "per-ticker"
    if spelt <= FIELDS:
        raise LayoutError(
            f"there is no column of prices such as Close or Adj Close among {_listed(sheet.names)}; "
            "if these are tickers, say so with the layout `wide`."
        )
    return "wide"


def _date_column(sheet: Sheet) -> int:
    """The first column of dates: by name, then without a name, then by what is in it."""
    named = find(sheet.names, DATE)
    unlabelled = [column for column, name in enumerate(sheet.names) if unnamed(name)]
    others = () if named else range(len(sheet.names))  # a volume can look like a date that it is not
    for column in (*named, *unlabelled, *others):
        if looks_like_dates(_cells(sheet, column)):
            return column
    if named:
        return named[0]  # whose first cell will be refused by name
    raise LayoutError(
        f"none of the columns {_listed(sheet.names)} holds dates, and prices without dates cannot be used; "
        "add a column `Date` with days as YYYY-MM-DD."
    )


def _wide_columns(sheet: Sheet, date: int) -> Candidate:
    columns = []
    for column, name in enumerate(sheet.names):
        if column == date or (unnamed(name) and _counts_rows(_cells(sheet, column), column < date)):
            continue
        if nameless(name):
            raise LayoutError(f"column {column + 1} has no name; write its ticker above it.")
        columns.append(column)
    if not columns:
        raise LayoutError("there is no column of prices beside the dates.")
    return Candidate(WIDE_COLUMN, tuple(columns), tuple(sheet.names[column] for column in columns))


def _counts_rows(cells: Sequence[str], before_dates: bool) -> bool:
    """Whether the cells are 0, 1, 2, ..., or all empty; before the dates also what sorting and filtering leave."""
    filled = [cell for cell in cells if cell]
    if not all(cell.isdecimal() for cell in filled):
        return False
    steps = np.diff([int(cell) for cell in filled])
    return bool((steps == 1).all() or (before_dates and ((steps > 0).all() or (steps < 0).all())))


def _by_field(sheet: Sheet, tickers: Sequence[str], date: int, choice: Choice) -> tuple[Candidate, ...]:
    """One candidate per field of prices (Adj Close, Close) with the columns of all tickers."""
    columns: dict[str, list[int]] = {}
    for column in _price_columns(sheet.names, choice):
        if column != date:
            columns.setdefault(sheet.names[column], []).append(column)
    if not columns:
        raise LayoutError(f"there is no column of prices such as Close or Adj Close among {_listed(sheet.names)}.")
    return tuple(
        Candidate(name, tuple(places), tuple(tickers[place] for place in places)) for name, places in columns.items()
    )


def _ticker_column(sheet: Sheet, choice: Choice) -> int:
    if choice.ticker is not None:
        return _named(sheet.names, choice.ticker)
    columns = find(sheet.names, TICKER)
    if not columns:
        raise LayoutError(
            f"there is no column of tickers among {_listed(sheet.names)}; name it, as in `long:ticker=tic`."
        )
    return columns[0]


def _price_columns(names: Sequence[str], choice: Choice) -> list[int]:
    if choice.price is None:
        return find(names, PRICE)
    first = _named(names, choice.price)
    return [column for column, name in enumerate(names) if name == names[first]]


def _named(names: Sequence[str], name: str) -> int:
    if name not in names:
        raise LayoutError(f"there is no column {name!r} among {_listed(names)}.")
    return names.index(name)


def _cells(sheet: Sheet, column: int) -> list[str]:
    return [row[column] for row in sheet.sample if column < len(row)]


def _is_text(sheet: Sheet, column: int) -> bool:
    return any(parse_number(cell) is None for cell in _cells(sheet, column))


def _listed(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(name or "(no name)" for name in names[:most])
    return shown if len(names) <= most else f"{shown}, ... ({len(names)} columns)"
