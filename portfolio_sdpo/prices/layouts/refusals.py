"""Tables that are refused because they hold no prices or can be read in two ways, each with the way out."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.column_names import (
    FIELDS,
    HIGH,
    LOW,
    NEVER_PRICES,
    OPEN,
    PRICE,
    SIDES,
    TICKER,
    WORTH,
    find_columns,
    find_owner,
    is_field,
    is_index_name,
    is_quote,
    looks_like_ticker,
    may_be_ticker,
    normalise_name,
)
from portfolio_sdpo.prices.layouts.dates import looks_like_dates, looks_like_epochs
from portfolio_sdpo.prices.layouts.indicator_names import is_indicator, is_rate
from portfolio_sdpo.prices.layouts.numbers import parse_number
from portfolio_sdpo.prices.layouts.options import spell_option
from portfolio_sdpo.prices.layouts.plan import Plan
from portfolio_sdpo.prices.layouts.raw_table import RawTable, cells_of

_SHORT_FIELDS = ("o", "h", "l", "c", "v", "vw", "n")
"""What Polygon and others call open, high, low, close, volume, the average price and the number of trades."""
AMOUNTS = ("quantity", "qty", "shares", "cantidad", "quantidade", "quantite", "aantal", "stuck", "stucke")
_SIDES_OF_TRADES = ("side", "action", "type", "transaction", "transactiontype", "buysell", "tradetype", "direction")
_TRADES = {"buy", "sell", "bought", "sold", "buy to open", "sell to close"}
_OPTIONS = (
    "expiration",
    "expiry",
    "expirationdate",
    "expirydate",
    "optiontype",
    "callput",
    "putcall",
    "cpflag",
    "right",
)
_COPY = re.compile(r"(?P<name>.+)\.\d{1,2}")
"""What pandas makes of a name that is there already."""
_SHILLER = {"P", "D", "E", "CPI"}
"""Price, dividend, earnings and consumer prices of Robert Shiller's table; P, D and E are tickers, too."""


def refuse_price_beside_tickers(price: str, tickers: Sequence[str]) -> None:
    """`Close` beside `AAPL` and `MSFT`: prices of the file's security, or of three securities."""
    if tickers:
        raise LayoutError(
            f"{price!r} is the price of one security, and {join_names(tickers)} may be others: read {price} alone with "
            f"{spell_option('per-ticker', price=price)}, which leaves out {join_names(tickers)}, or all columns as "
            "tickers with --layout wide."
        )


def refuse_copies(names: Sequence[str]) -> None:
    """Prices under one name twice, as pandas writes them: `Close` and `Close.1`, or after a merge `Close_x`, `Close_y`.

    names: of prices, or of what may be tickers.
    """
    known = frozenset(names)
    for name in names:
        copied = match["name"] if (match := _COPY.fullmatch(name)) else ""
        if copied in known:
            raise LayoutError(
                f"{copied!r} and {name!r} are two columns of one name, as pandas writes them: rename them after their "
                "tickers, or keep one."
            )
        left = name.removesuffix("_y") + "_x"
        if name.endswith("_y") and left in known:
            raise LayoutError(
                f"{left!r} and {name!r} are two columns of one name, as a merge in pandas writes them: rename them "
                "after their tickers, or keep one."
            )


def refuse_holdings(names: Sequence[str], price: str, ticker: str | None) -> None:
    """`Value` beside `Quantity`: what a position is worth, and no price."""
    amounts = [name for name in names if normalise_name(name) in AMOUNTS]
    is_bar = any(normalise_name(name) in (*OPEN, *HIGH, *LOW) for name in names)
    if amounts and normalise_name(price) in WORTH and not is_bar:
        layout, options = ("per-ticker", {}) if ticker is None else ("long", {"ticker": ticker})
        raise LayoutError(
            f"{price!r} beside {amounts[0]!r} may be what a position is worth and not a price: add a column of prices, "
            f"or read it as one with {spell_option(layout, **options, price=price)}."
        )


def refuse_trades_and_options(table: RawTable, date: int) -> None:
    """A list of the user's trades, or a chain of options: a date has no price of a security in it."""
    words = {normalise_name(name): column for column, name in enumerate(table.names)}
    # A chart has signals to buy and sell beside its bars or its closes, which are no trades.
    may_be_trades = words.keys().isdisjoint((*OPEN, *HIGH, *LOW)) and not words.keys().isdisjoint((*AMOUNTS, *TICKER))
    # Ticks of an exchange say which side they were on, too, and have times.
    has_times = any(":" in cell or looks_like_epochs([cell]) for cell in cells_of(table, date))
    for word in _SIDES_OF_TRADES:
        cells = (
            {cell.lower() for cell in cells_of(table, words[word]) if cell}
            if word in words and may_be_trades and not has_times
            else set()
        )
        if cells and cells <= _TRADES:
            raise LayoutError(
                f"the column {table.names[words[word]]!r} says what was bought and sold, so that the file is a list of "
                f"trades and no table of prices: import the prices of these tickers{_spell_reading(table, date)}."
            )
    found = [words[word] for word in ("strike", *_OPTIONS) if word in words]
    if "strike" in words and len(found) > 1 and not all(_may_be_security(table, column) for column in found):
        raise LayoutError(
            f"{table.names[words['strike']]!r} shows that the file holds options, of which there are many for a "
            f"security and a date: import the prices of what they are written on{_spell_reading(table, date)}."
        )


def _may_be_security(table: RawTable, column: int) -> bool:
    """Whether a column is called like a ticker and holds numbers: STRIKE and RIGHT are tickers, too."""
    cells = cells_of(table, column)
    return looks_like_ticker(table.names[column]) and holds_numbers(cells) and not looks_like_dates(cells)


def _spell_reading(table: RawTable, date: int) -> str:
    """The end of a sentence with the option that reads the table as prices nevertheless."""
    prices = find_columns(table.names, PRICE) or [
        column
        for column, name in enumerate(table.names)
        if column != date
        and normalise_name(name) not in (*NEVER_PRICES, *TICKER, *_OPTIONS)
        and holds_numbers(cells_of(table, column))
    ]
    if not prices:
        return ""
    tickers = [table.names[column] for column in find_columns(table.names, TICKER) if column != date]
    layout, options = ("long", {"ticker": tickers[0]}) if tickers else ("per-ticker", {})
    return f", or read {table.names[prices[0]]} as prices with " + spell_option(
        layout, **options, price=table.names[prices[0]]
    )


def refuse_fields(names: Sequence[str], prices: Sequence[str], fields: Sequence[str]) -> None:
    """Names of a table that would be wide which may as well be fields of one security."""
    lower = {name.lower() for name in names}
    short = (set(names) <= set(_SHORT_FIELDS) and "c" in names and len(names) > 1) or (
        {"o", "h", "l", "c"} <= lower <= set(_SHORT_FIELDS)
    )
    shiller = set(names) >= _SHILLER
    unknown = [name for name in names if name not in prices and name not in fields]
    if short or shiller or (prices and sum(map(looks_like_ticker, unknown)) < 2):
        price = next(name for name in names if name in "cC") if short else "P" if shiller else prices[0]
        raise LayoutError(
            f"{price!r} may be the price of one security or a ticker: read {price} alone with "
            f"{spell_option('per-ticker', price=price)}, or all columns as tickers with --layout wide."
        )
    sides = [name for name in fields if normalise_name(name) in (*OPEN, *HIGH, *LOW) and not may_be_ticker(name)]
    if len(sides) > 1 and unknown:
        raise LayoutError(
            f"{join_names(sides)} are fields of one security, and none of the others is called like a price: name it "
            f"as in {spell_option('per-ticker', price=unknown[0])}, or read all columns as tickers with --layout wide."
        )
    known = frozenset(names)
    for name in unknown:
        bar = [name[:-1] + letter for letter in "OHLV" if name[:-1] + letter in known]
        if len(name) > 2 and name[-1] == "C" and name[-2] in "_. " and bar:
            raise LayoutError(
                f"{bar[0]!r} and {name!r} look like fields of {name[:-2]!r}: rename them, as in "
                f"'{name[:-2]}.Close', or read all columns as tickers with --layout wide."
            )
        if is_rate(name):
            raise LayoutError(
                f"{name!r} is called like an interest rate and not like a ticker: drop it, or read all columns as "
                "tickers with --layout wide."
            )
        if is_indicator(name):
            raise LayoutError(
                f"{name!r} is called like an indicator that is computed from prices: drop it, or read all columns as "
                "tickers with --layout wide."
            )
        # BRK.B and BTC-USD are tickers beside BRK and BTC; AAPL_mcap and `AAPL mcap` are none.
        owner = find_owner(name, known, "_" if name == name.upper() or name.istitle() else "_.-:| ")
        if owner is not None and not name.endswith(f"-{owner}"):  # Kenneth French's Mkt-RF beside RF
            raise LayoutError(
                f"{name!r} is called like something of {owner!r} and not like a ticker: drop it, or read all columns "
                "as tickers with --layout wide."
            )


def refuse_series_of_one_name(table: RawTable, plan: Plan, days: np.ndarray, tickers: pd.Series) -> None:
    """A long table in which a ticker has several prices a day that another column tells apart, such as the exchange."""
    keys = pd.DataFrame({"day": days, "ticker": tickers.to_numpy()})
    first = int(keys.duplicated().to_numpy().argmax())
    for column, name in enumerate(table.names):
        if column in (plan.date, plan.ticker, plan.time) or holds_numbers(cells_of(table, column)):
            continue
        [texts], _ = table.load([column], [])
        if keys.assign(kind=texts.astype("str").to_numpy()).duplicated().any():
            continue
        same = (keys == keys.iloc[first]).all(axis=1).to_numpy()
        kinds = list(dict.fromkeys(texts.astype("str")[same]))
        raise LayoutError(
            f"{tickers.iloc[first]!r} has several prices on {days[first].astype('datetime64[D]')}, which the column "
            f"{name!r} tells apart ({join_names(kinds)}): keep the rows of one of them, or give each its own ticker."
        )


def join_names(names: Sequence[str], most: int = 8) -> str:
    """The first names as a part of a sentence, and how many there are if there are more."""
    shown = ", ".join(name or "(no name)" for name in names[:most])
    return shown if len(names) <= most else f"{shown}, ... ({len(names)} columns)"


def refuse_without_price(table: RawTable, date: int, ticker: int | None, sides_may_be_tickers: bool) -> LayoutError:
    """No column is called like a price: name those that are sides of a quote, or the way to say which one it is."""
    names = [
        name for column, name in enumerate(table.names) if column not in (date, ticker) and not is_index_name(name)
    ]
    layout, options = ("per-ticker", {}) if ticker is None else ("long", {"ticker": table.names[ticker]})
    quotes = [name for name in names if _is_price_of_quote(name)]
    if len(quotes) > 1 or (quotes and sides_may_be_tickers):
        ways = [spell_option(layout, **options, price=name) for name in quotes[:2]]
        if sides_may_be_tickers:
            ways.append("--layout fields if these are tickers")
        elif all(map(may_be_ticker, names)):
            ways.append("--layout wide if these are tickers")
        return LayoutError(
            f"the prices are quotes, and {join_names(quotes)} can be read in several ways; say which with "
            f"{' or '.join(ways)}."
        )
    may_hold_prices = [
        name
        for name in names
        if normalise_name(name) not in NEVER_PRICES
        and normalise_name(name) not in TICKER
        and holds_numbers(cells_of(table, table.names.index(name)))
    ]
    ways = []
    if may_hold_prices:
        way = spell_option(layout, **options, price=may_hold_prices[0])
        ways.append(f"if one of them holds prices, name it as in {way}")
    if ticker is None and names and all(may_be_ticker(name) or not is_field(name) for name in names):
        ways.append("if these are tickers, say so with --layout wide")
    return LayoutError(
        f"there is no column of prices such as Close or Adj Close among {join_names(table.names)}; "
        f"{', or '.join(ways) or 'add one to the file'}."
    )


def _is_price_of_quote(name: str) -> bool:
    """Whether a name is a side of a quote alone, or its close."""
    normalised = normalise_name(name)
    rests = [normalised.removeprefix(side) for side in SIDES] + [normalised.removesuffix(side) for side in SIDES]
    return is_quote(name) and any(rest != normalised and (not rest or rest in PRICE) for rest in rests)


def refuse_text(table: RawTable, date: int, price: str | None = None) -> None:
    """A column of text beside numbers in a table of no tickers: it names securities, or does not belong.

    price: the column of prices, where one is known.
    """
    columns = [
        column
        for column, name in enumerate(table.names)
        if column != date and not is_index_name(name) and normalise_name(name) not in NEVER_PRICES
    ]
    texts = [column for column in columns if holds_words(cells_of(table, column))]
    if not texts:
        return
    numbers = [column for column in columns if holds_numbers(cells_of(table, column))]
    if numbers:
        refuse_names_of_fields(table, texts)
        name, price = table.names[texts[0]], price or table.names[numbers[0]]
        raise LayoutError(
            f"the column {name!r} holds text: if it names the securities, read the file with "
            f"{spell_option('long', ticker=name, price=price)}; otherwise drop it."
        )


def refuse_names_of_fields(table: RawTable, columns: Sequence[int]) -> None:
    """A column whose cells are `close`, `open`, `volume`: every row holds another field."""
    for column in columns:
        cells = [cell for cell in cells_of(table, column) if cell]
        named = [cell for cell in cells if normalise_name(cell) in FIELDS and not may_be_ticker(cell)]
        if cells and len(named) == len(cells):
            raise LayoutError(
                f"the column {table.names[column]!r} names fields such as {cells[0]!r}, so that every row holds "
                "another one; keep the rows of one field of prices, and drop this column."
            )


def holds_words(cells: Sequence[str]) -> bool:
    """Whether the cells are text without any digit."""
    if parse_number(next(filter(None, cells), "")) is not None:
        return False  # most columns: the first cell is a number
    filled = [cell for cell in cells if cell and parse_number(cell) is None]
    return bool(filled) and len(filled) == sum(map(bool, cells)) and not any(map(str.isdigit, "".join(filled)))


def holds_numbers(cells: Sequence[str]) -> bool:
    """Whether all cells are numbers or empty, and one is a number."""
    return any(cells) and all(not cell or parse_number(cell) is not None for cell in cells)
