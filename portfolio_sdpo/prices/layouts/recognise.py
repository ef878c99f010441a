"""Which layout a table has, and which of its columns hold dates, tickers and prices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.column_names import (
    DATE,
    FIELDS,
    HIGH,
    LOW,
    NEVER_PRICES,
    NOT_PRICES,
    OPEN,
    PRICE,
    TICKER,
    VOLUME,
    WEAK_DATE,
    WEAK_TICKER,
    WORTH,
    find_columns,
    has_no_name,
    is_field,
    is_index_name,
    is_quote,
    looks_like_ticker,
    may_be_ticker,
    normalise_name,
)
from portfolio_sdpo.prices.layouts.dates import (
    looks_like_dates,
    looks_like_epochs,
    looks_like_periods,
    looks_like_serials,
)
from portfolio_sdpo.prices.layouts.indicator_names import is_indicator
from portfolio_sdpo.prices.layouts.melted import find_melted
from portfolio_sdpo.prices.layouts.numbers import parse_number
from portfolio_sdpo.prices.layouts.options import LayoutOptions, spell_option
from portfolio_sdpo.prices.layouts.plan import Candidate, Plan
from portfolio_sdpo.prices.layouts.raw_table import RawTable, cells_of
from portfolio_sdpo.prices.layouts.refusals import (
    holds_words,
    join_names,
    refuse_copies,
    refuse_fields,
    refuse_holdings,
    refuse_names_of_fields,
    refuse_price_beside_tickers,
    refuse_text,
    refuse_trades_and_options,
    refuse_without_price,
)
from portfolio_sdpo.prices.layouts.securities import (
    assign_columns,
    is_of_one_security,
    may_be_sides,
    split_names,
    splits_by_security,
)
from portfolio_sdpo.prices.layouts.times import find_time_column

_SHORT_PRICE = 4
WIDE_COLUMN = "price"
"""What the prices of a wide table are called: its columns are called after tickers."""


def recognise(table: RawTable, options: LayoutOptions, tickers: Collection[str] = ()) -> Plan:
    """The plan for a table; what the user chose is not questioned. tickers: those that the user asked for, if any."""
    date = _date_column(table)
    named = options == LayoutOptions(dates=options.dates, decimal=options.decimal) and _are_named(table, date, tickers)
    layout = options.layout or ("wide" if named else _layout(table, date, options))
    if (layout == "yfinance-download") != (table.tickers is not None):
        raise LayoutError(
            f"the header has {'one row' if table.tickers is None else 'two rows'}, so it is not {layout}."
        )
    if options.layout is None and options.price is None:
        refuse_trades_and_options(table, date)
    time = find_time_column(table, date)
    if layout == "wide":
        columns = _wide_columns(table, (date, time) if options.layout is None else (date,))
        if options.layout is None:
            columns, notes = _leave_out_fields(columns)
            return Plan(layout, date, None, (columns,), notes, time)
        return Plan(layout, date, None, (columns,))
    if layout == "fields":
        return Plan(layout, date, None, *assign_columns(table, date, options), time)
    if table.tickers is not None:
        return Plan(layout, date, None, _by_field(table, table.tickers, date, options), time=time)
    melted = find_melted(table, date) if layout == "long" and options.ticker is None else None
    ticker = None if layout != "long" else _ticker_column(table, date, options) if melted is None else melted[0]
    prices = [column for column in _price_columns(table.names, options) if column not in (date, ticker)]
    prices = [melted[1]] if melted is not None and options.price is None else prices
    if not prices:
        raise _without_price(table, date, ticker)
    if options.price is None:
        _refuse_twins([table.names[column] for column in prices], "" if ticker is None else table.names[ticker])
    if options.layout is None and options.price is None:
        refuse_holdings(table.names, table.names[prices[0]], None if ticker is None else table.names[ticker])
    if options.layout is None:
        refuse_names_of_fields(table, [c for c in range(len(table.names)) if c not in (date, ticker, *prices)])
    left_out = _find_ticker_columns(table, date) if ticker is None and options.layout is None else []
    notes = (f"Left out {join_names(left_out)}: the file holds the fields of one security.",) if left_out else ()
    candidates = tuple(Candidate(table.names[column], (column,)) for column in prices)
    return Plan(layout, date, ticker, candidates, notes, time)


def _without_price(table: RawTable, date: int, ticker: int | None) -> LayoutError:
    names = [name for column, name in enumerate(table.names) if column != date and not is_index_name(name)]
    return refuse_without_price(table, date, ticker, ticker is None and may_be_sides(names))


def _refuse_twins(prices: Sequence[str], ticker: str) -> None:
    """Two columns that are called by the same word, such as `Close (USD)` and `Close (EUR)`."""
    word, count = Counter(map(normalise_name, prices)).most_common(1)[0]
    twins = [name for name in prices if normalise_name(name) == word]
    if count > 1 and len(set(twins)) == 1:
        raise LayoutError(f"{count} columns are called {twins[0]}; rename them or keep one.")
    if count > 1:
        layout, options = ("long", {"ticker": ticker}) if ticker else ("per-ticker", {})
        ways = " or ".join(spell_option(layout, **options, price=name) for name in twins)
        raise LayoutError(f"{join_names(twins)} hold the same field; say which one to use with {ways}.")


def _layout(table: RawTable, date: int, options: LayoutOptions) -> str:
    """Recognise the layout by the names of the columns, and by whether they hold text."""
    if table.tickers is not None:
        return "yfinance-download"
    names = [name for column, name in enumerate(table.names) if column != date and not is_index_name(name)]
    if options.price is None and options.layout is None:
        refuse_copies([name for name in names if normalise_name(name) not in NEVER_PRICES])
    parts = split_names(names)
    bare = [name for name in names if name not in parts]
    normalised = set(map(normalise_name, bare))
    prices = [bare[column] for column in find_columns(bare, PRICE)]
    tickers = _named_tickers(table, date)
    if options.ticker is not None or (options.price is None and find_melted(table, date) is not None):
        return "long"
    if tickers and (prices or _is_text(table, tickers[0])):
        return "long"
    # OPEN, LOW and LAST are tickers too: one such name among unknown ones is a ticker, unless it is in lower case.
    others = [name for name in names if name not in prices]
    fields = [name for name in bare if name not in prices and (normalise_name(name) in NOT_PRICES or is_quote(name))]
    certain = [name for name in (*fields, *prices) if not may_be_ticker(name)]
    if prices and (not others or certain or (fields and len(fields) == len(others))):
        if options.price is None and all(map(may_be_ticker, fields)):
            others = [name for name in names if not is_field(name) and name not in parts and name != prices[0]]
            kinds = others if normalise_name(prices[0]) in WORTH and len(others) > 1 else []
            refuse_price_beside_tickers(prices[0], kinds or _find_ticker_columns(table, date, prices[0]))
        if "closelast" in normalised:
            return "nasdaq"
        if splits_by_security(names, parts) and not is_of_one_security(bare):
            return "fields"
        if len(set(filter(None, cells_of(table, date)))) < len(list(filter(None, cells_of(table, date)))):
            refuse_text(table, date, prices[0])
        return "yfinance-history" if {"dividends", "stocksplits"} <= normalised else "per-ticker"
    if splits_by_security(names, parts) or any(normalise_name(field) in PRICE for _, field in parts.values()):
        return "fields"
    if names and len(fields) == len(others) == len(names):
        if options.price is not None:
            return "per-ticker"
        raise _without_price(table, date, None)
    if options.price is not None and options.price in prices:
        return "per-ticker"
    refuse_text(table, date)
    refuse_fields(names, prices, fields)
    return "wide"


def _are_named(table: RawTable, date: int, tickers: Collection[str]) -> bool:
    """Whether the user asked for a ticker that could be a field, `PX` or `BID`, in a table without a certain one."""
    names = [name for column, name in enumerate(table.names) if column != date and not is_index_name(name)]
    doubtful = [name for name in names if normalise_name(name) in FIELDS or is_quote(name)]
    asked = table.tickers is None and any(name in tickers for name in doubtful)
    if not asked or not all(map(may_be_ticker, doubtful)):
        return False
    bar = [words for words in (OPEN, HIGH, LOW, VOLUME) if find_columns(names, words)]
    return not (len(bar) > 1 and find_columns(names, PRICE))


def _find_ticker_columns(table: RawTable, date: int, price: str = "") -> list[str]:
    """Names of columns of numbers that are written like tickers and are no known fields.

    price: what is called like a price; where it could be a ticker in small letters, as `px`, others could be, too.
    """
    others = [name for column, name in enumerate(table.names) if column != date and name != price]
    is_small = len(price) <= _SHORT_PRICE and all(name.islower() and name.isalpha() for name in (price, *others))
    return [
        name
        for column, name in enumerate(table.names)
        if column != date
        and name != price
        and (looks_like_ticker(name) or (is_small and looks_like_ticker(name.upper()) and not is_indicator(name)))
        and not (normalise_name(name) in FIELDS or is_quote(name) or holds_words(cells_of(table, column)))
    ]


def _leave_out_fields(columns: Candidate) -> tuple[Candidate, tuple[str, ...]]:
    """A wide table without columns whose names are fields, such as one `Volume`."""
    keep = [place for place, name in enumerate(columns.tickers) if not is_field(name)]
    if len(keep) == len(columns.tickers):
        return columns, ()
    left_out = [name for name in columns.tickers if is_field(name)]
    if not keep:
        way = spell_option("per-ticker", price=left_out[0])
        raise LayoutError(
            f"there is no column of prices among {join_names(left_out)}; if one of them holds prices, name it as in "
            f"{way}."
        )
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
        if looks_like_dates(cells_of(table, column)):
            return column
    for column in (*named, *weak, *unlabelled):
        if looks_like_epochs(cells_of(table, column)) or looks_like_periods(cells_of(table, column)):
            return column
    for column in named:
        if looks_like_serials(cells_of(table, column)):
            return column
    if named:
        return named[0]  # whose first cell will be refused by name
    for column in range(len(table.names)):
        dated = [looks_like_dates([cell]) for cell in cells_of(table, column)]
        if any(dated):
            first = dated.index(True) + 1
            raise LayoutError(
                f"dates begin in row {first} below the first line of names, and what stands between is not understood; "
                "keep one line of names directly above the first date."
            )
    raise LayoutError(
        f"none of the columns {join_names(table.names)} holds dates, and prices without dates cannot be used; "
        "add a column `Date` with days as YYYY-MM-DD."
    )


def _wide_columns(table: RawTable, times: Sequence[int | None]) -> Candidate:
    """Every column but those of the date (the first of `times`), of the time of day, and of row numbers."""
    columns = []
    for column, name in enumerate(table.names):
        if column in times or (is_index_name(name) and _counts_rows(cells_of(table, column), column < (times[0] or 0))):
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
    columns = _named_tickers(table, date)
    if not columns:
        raise LayoutError(
            f"there is no column of tickers among {join_names(table.names)}; name it, as in `long:ticker=tic`."
        )
    return columns[0]


def _named_tickers(table: RawTable, date: int) -> list[int]:
    """Columns that are called like tickers; a `name` that is one number only, as CoinMarketCap's, is none."""
    return [
        column
        for column in find_columns(table.names, TICKER)
        if column != date
        and (
            normalise_name(table.names[column]) not in WEAK_TICKER
            or _is_text(table, column)
            or len(set(cells_of(table, column))) > 1
        )
    ]


def _price_columns(names: Sequence[str], options: LayoutOptions) -> list[int]:
    if options.price is None:
        return find_columns(names, PRICE)
    first = _find_named(names, options.price)
    return [column for column, name in enumerate(names) if name == names[first]]


def _find_named(names: Sequence[str], name: str) -> int:
    if name not in names:
        raise LayoutError(f"there is no column {name!r} among {join_names(names)}.")
    return names.index(name)


def _is_text(table: RawTable, column: int) -> bool:
    return any(parse_number(cell) is None for cell in cells_of(table, column))
