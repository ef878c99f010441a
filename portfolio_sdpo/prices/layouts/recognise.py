"""Which layout a table has, and which of its columns hold dates, tickers and prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.ambiguous_names import join_names, refuse_fields, refuse_price_beside_tickers
from portfolio_sdpo.prices.layouts.column_names import (
    DATE,
    FIELDS,
    NEVER_PRICES,
    NOT_PRICES,
    PRICE,
    TICKER,
    WEAK_DATE,
    find_columns,
    find_owner,
    has_no_name,
    is_field,
    is_index_name,
    is_quote,
    looks_like_ticker,
    may_be_ticker,
    normalise_name,
    split_security,
)
from portfolio_sdpo.prices.layouts.dates import looks_like_dates, looks_like_epochs, looks_like_months
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
    notes: tuple[str, ...] = ()


def recognise(table: RawTable, options: LayoutOptions) -> Plan:
    """The plan for a table; what the user chose is not questioned."""
    date = _date_column(table)
    layout = options.layout or _layout(table, date, options)
    if (layout == "yfinance-download") != (table.tickers is not None):
        raise LayoutError(
            f"the header has {'one row' if table.tickers is None else 'two rows'}, so it is not {layout}."
        )
    if layout == "wide":
        columns = _wide_columns(table, date)
        if options.layout is None:
            columns, notes = _leave_out_fields(columns)
            return Plan(layout, date, None, (columns,), notes)
        return Plan(layout, date, None, (columns,))
    if layout == "fields":
        return Plan(layout, date, None, *_by_security(table, date, options))
    if table.tickers is not None:
        return Plan(layout, date, None, _by_field(table, table.tickers, date, options))
    ticker = _ticker_column(table, date, options) if layout == "long" else None
    prices = [column for column in _price_columns(table.names, options) if column not in (date, ticker)]
    if not prices:
        raise _no_price(table, date, ticker)
    left_out = _find_ticker_columns(table, date) if ticker is None and options.layout is None else []
    notes = (f"Left out {join_names(left_out)}: the file holds the fields of one security.",) if left_out else ()
    candidates = tuple(Candidate(table.names[column], (column,)) for column in prices)
    return Plan(layout, date, ticker, candidates, notes)


def _layout(table: RawTable, date: int, options: LayoutOptions) -> str:
    """Recognise the layout by the names of the columns, and by whether they hold text."""
    if table.tickers is not None:
        return "yfinance-download"
    names = [name for column, name in enumerate(table.names) if column != date and not is_index_name(name)]
    normalised = {normalise_name(name) for name in names}
    prices = [names[column] for column in find_columns(names, PRICE)]
    tickers = [column for column in find_columns(table.names, TICKER) if column != date]
    if options.ticker is not None:
        return "long"
    if tickers and (prices or _is_text(table, tickers[0])):
        return "long"
    # OPEN, LOW and LAST are tickers too: one such name among unknown ones is a ticker, unless it is in lower case.
    others = [name for name in names if name not in prices]
    fields = [name for name in others if normalise_name(name) in NOT_PRICES or is_quote(name)]
    certain = [name for name in (*fields, *prices) if not may_be_ticker(name)]
    if prices and (not others or certain or (fields and len(fields) == len(others))):
        if options.price is None and all(map(may_be_ticker, fields)):
            refuse_price_beside_tickers(prices[0], _find_ticker_columns(table, date))
        if "closelast" in normalised:
            return "nasdaq"
        if _splits_by_security(names):
            return "fields"
        return "yfinance-history" if {"dividends", "stocksplits"} <= normalised else "per-ticker"
    if _splits_by_security(names) or any(map(_is_price_of_security, names)):
        return "fields"
    if names and len(fields) == len(others) == len(names):
        if options.price is not None:
            return "per-ticker"
        raise _no_price(table, date, None)
    if options.price is not None and options.price in prices:
        return "per-ticker"
    _refuse_text(table, date)
    refuse_fields(names, prices, fields)
    return "wide"


def _find_ticker_columns(table: RawTable, date: int) -> list[str]:
    """Names of columns of numbers that are written like tickers and are no known fields."""
    return [
        name
        for column, name in enumerate(table.names)
        if column != date
        and looks_like_ticker(name)
        and not (normalise_name(name) in FIELDS or is_quote(name) or _holds_words(_cells(table, column)))
    ]


def _is_price_of_security(name: str) -> bool:
    parts = None if is_field(name) else split_security(name)
    return parts is not None and normalise_name(parts[1]) in PRICE


def _no_price(table: RawTable, date: int, ticker: int | None) -> LayoutError:
    """No column is called like a price: name those that are sides of a quote, or the way to say which one it is."""
    names = [
        name for column, name in enumerate(table.names) if column not in (date, ticker) and not is_index_name(name)
    ]
    layout = "per-ticker" if ticker is None else f"long:ticker={table.names[ticker]}"
    join = ":" if ticker is None else ","
    quotes = [name for name in names if is_quote(name) and normalise_name(name).endswith(("close", "bid", "ask"))]
    if len(quotes) > 1:
        both = " or ".join(f"--layout {layout}{join}price={name}" for name in quotes[:2])
        return LayoutError(f"the prices are quotes, and {join_names(quotes)} are two readings; say which with {both}.")
    may_hold_prices = [
        name
        for name in names
        if normalise_name(name) not in NEVER_PRICES and not _holds_words(_named_cells(table, name))
    ]
    ways = []
    if may_hold_prices:
        ways.append(f"if one of them holds prices, name it as in --layout {layout}{join}price={may_hold_prices[0]}")
    if ticker is None and names and all(may_be_ticker(name) or not is_field(name) for name in names):
        ways.append("if these are tickers, say so with --layout wide")
    return LayoutError(
        f"there is no column of prices such as Close or Adj Close among {join_names(table.names)}; "
        f"{', or '.join(ways) or 'add one to the file'}."
    )


def _refuse_text(table: RawTable, date: int) -> None:
    """A column of text beside the numbers of a table that would be wide: it names securities, or does not belong."""
    columns = [column for column, name in enumerate(table.names) if column != date and not is_index_name(name)]
    texts = [column for column in columns if _holds_words(_cells(table, column))]
    numbers = [column for column in columns if column not in texts]
    if texts and numbers:
        name, price = table.names[texts[0]], table.names[numbers[0]]
        raise LayoutError(
            f"the column {name!r} holds text: if it names the securities, read the file with "
            f"--layout long:ticker={name},price={price}; otherwise drop it."
        )


def _holds_words(cells: Sequence[str]) -> bool:
    if parse_number(next(filter(None, cells), "")) is not None:
        return False  # most columns: the first cell is a number
    filled = [cell for cell in cells if cell and parse_number(cell) is None]
    return bool(filled) and len(filled) == sum(map(bool, cells)) and not any(map(str.isdigit, "".join(filled)))


def _splits_by_security(names: Sequence[str]) -> bool:
    """Whether the names are of securities and their fields: all of them are, or a security has several fields."""
    known = [name for name in names if not is_field(name)]
    parts = {name: part for name in known if (part := split_security(name)) is not None}
    if not parts:
        return False
    fields: dict[str, set[str]] = {}
    for security, field in parts.values():
        fields.setdefault(security, set()).add(normalise_name(field))
    bare = [name for name in known if name not in parts]
    several = any(len(each) > 1 for each in fields.values())
    return several or len(parts) == len(known) > 0 or any(name in fields for name in bare)


def _by_security(table: RawTable, date: int, options: LayoutOptions) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
    """One candidate per field of prices that every security has, the preferred one first; and notes."""
    columns: dict[str, dict[str, int]] = {}
    securities = {parts[0] for parts in map(split_security, table.names) if parts is not None}
    left_out = []
    for column, name in enumerate(table.names):
        if column == date or is_index_name(name) or is_field(name):
            continue
        if split_security(name) is None and find_owner(name, securities) is not None:
            left_out.append(name)
            continue
        security, field = split_security(name) or (name, "price")
        if column in columns.get(security, {}).values() or field in columns.get(security, {}):
            raise LayoutError(f"two columns hold {field} of {security}; rename them or keep one.")
        columns.setdefault(security, {})[field] = column
    unclear = [name for name, fields in columns.items() if list(fields) == ["price"] and len(columns) > 1]
    with_fields = [name for name in columns if name not in unclear]
    wanted = None if options.price is None else normalise_name(options.price)
    priced = {
        security: {
            normalise_name(field): (field, column)
            for field, column in fields.items()
            if (normalise_name(field) == wanted if wanted else normalise_name(field) in PRICE)
        }
        for security, fields in columns.items()
    }
    if unclear and with_fields and not all(set(map(normalise_name, columns[n])) <= NOT_PRICES for n in with_fields):
        if options.layout is None:
            raise LayoutError(
                f"{unclear[0]!r} stands beside columns such as {next(filter(split_security, table.names))!r}: "
                "it is a ticker or a field, and nothing tells which; leave it out with --layout fields, or rename it "
                f"after its security and field, as in '{unclear[0]}.Close'."
            )
        left_out += [table.names[columns[name]["price"]] for name in unclear]
        priced = {security: fields for security, fields in priced.items() if security not in unclear}
    without = [security for security, fields in priced.items() if not fields]
    having = {security: fields for security, fields in priced.items() if fields}
    if not having:
        quotes = [f for fields in columns.values() for f in fields if is_quote(f)]
        hint = f"--layout fields:price={quotes[0] if quotes else next(iter(next(iter(columns.values()))))}"
        raise LayoutError(
            f"there is no column of prices such as Close or Adj Close among {join_names(table.names)}; name the field "
            f"that holds them, as in {hint}."
        )
    common = [word for word in ((wanted,) if wanted else PRICE) if all(word in fields for fields in having.values())]
    if not common:
        one, other = ((s, next(iter(f.values()))[0]) for s, f in list(having.items())[:: len(having) - 1][:2])
        raise LayoutError(
            f"{one[0]} has {one[1]} and {other[0]} has {other[1]}, but no field of prices is there for all; name the "
            "one to use, as in --layout fields:price=Close, and drop the other securities."
        )
    candidates = tuple(
        Candidate(
            next(iter(having.values()))[word][0],
            tuple(fields[word][1] for fields in having.values()),
            tuple(having),
        )
        for word in common
        if word is not None
    )
    notes = [f"Left out {join_names(without)}, which has no column of prices."] if without else []
    if left_out:
        notes.append(f"Left out {join_names(left_out)}: the name is not that of a field that is known.")
    return candidates, tuple(notes)


def _leave_out_fields(columns: Candidate) -> tuple[Candidate, tuple[str, ...]]:
    """A wide table without columns whose names are fields, such as one `Volume`."""
    keep = [place for place, name in enumerate(columns.tickers) if not is_field(name)]
    if len(keep) == len(columns.tickers):
        return columns, ()
    left_out = [name for name in columns.tickers if is_field(name)]
    if not keep:
        raise LayoutError("there is no column of prices beside the dates.")
    return (
        Candidate(columns.name, tuple(columns.columns[i] for i in keep), tuple(columns.tickers[i] for i in keep)),
        (f"Left out {join_names(left_out)}: the name is that of a field and not of a security.",),
    )


def _date_column(table: RawTable) -> int:
    """The first column of dates: by name, then without a name, then by what is in it."""
    named = find_columns(table.names, DATE)
    weak = find_columns(table.names, WEAK_DATE)
    unlabelled = [column for column, name in enumerate(table.names) if is_index_name(name)]
    others = () if named else range(len(table.names))  # a volume can look like a date that it is not
    for column in (*named, *unlabelled, *weak, *others):
        if looks_like_dates(_cells(table, column)):
            return column
    for column in (*named, *weak, *unlabelled):
        if looks_like_epochs(_cells(table, column)) or looks_like_months(_cells(table, column)):
            return column
    if named:
        return named[0]  # whose first cell will be refused by name
    raise LayoutError(
        f"none of the columns {join_names(table.names)} holds dates, and prices without dates cannot be used; "
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
        raise LayoutError(f"there is no column of prices such as Close or Adj Close among {join_names(table.names)}.")
    return tuple(
        Candidate(name, tuple(places), tuple(tickers[place] for place in places)) for name, places in columns.items()
    )


def _ticker_column(table: RawTable, date: int, options: LayoutOptions) -> int:
    if options.ticker is not None:
        return _find_named(table.names, options.ticker)
    columns = [column for column in find_columns(table.names, TICKER) if column != date]
    if not columns:
        raise LayoutError(
            f"there is no column of tickers among {join_names(table.names)}; name it, as in `long:ticker=tic`."
        )
    return columns[0]


def _price_columns(names: Sequence[str], options: LayoutOptions) -> list[int]:
    if options.price is None:
        return find_columns(names, PRICE)
    first = _find_named(names, options.price)
    return [column for column, name in enumerate(names) if name == names[first]]


def _find_named(names: Sequence[str], name: str) -> int:
    if name not in names:
        raise LayoutError(f"there is no column {name!r} among {join_names(names)}.")
    return names.index(name)


def _named_cells(table: RawTable, name: str) -> list[str]:
    return _cells(table, table.names.index(name))


def _cells(table: RawTable, column: int) -> list[str]:
    return [row[column] for row in table.sample if column < len(row)]


def _is_text(table: RawTable, column: int) -> bool:
    return any(parse_number(cell) is None for cell in _cells(table, column))
