"""Tables that pandas' `melt` and `stack` write: one row per date and column, the column's name beside its number."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.column_names import (
    FIELDS,
    PRICE,
    has_no_name,
    is_field,
    is_quote,
    looks_like_ticker,
    normalise_name,
    split_security,
)
from portfolio_sdpo.prices.layouts.indicator_names import is_indicator
from portfolio_sdpo.prices.layouts.numbers import parse_number
from portfolio_sdpo.prices.layouts.options import spell_option
from portfolio_sdpo.prices.layouts.raw_table import RawTable, cells_of

_NAMES = ("variable", "level1", "column", "columns")
"""What `melt` and `stack` call the names of columns; they may have been tickers or fields."""
IDENTIFIER = re.compile(r"[A-Z]{2}[A-Z0-9]{9}\d|[A-Z0-9&\-]{1,15}[. ][A-Z]{1,4}( Equity| Index| Curncy)?")
"""An ISIN, or a symbol with the suffix of its exchange: `PETR4.SA`, `BAJFINANCE.NS`, `SPY US Equity`."""


def find_melted(table: RawTable, date: int) -> tuple[int, int] | None:
    """The columns of tickers and of prices in such a table; None in any other.

    Names that are not those of securities, or are made of a security and a field, are refused.
    """
    others = [column for column in range(len(table.names)) if column != date]
    counted = [column for column in others if column < date and _are_whole(cells_of(table, column))]
    others = [column for column in others if column not in counted]  # `reset_index` counts rows
    if table.tickers is not None or len(others) != 2:
        return None
    name, value = table.names[others[0]], table.names[others[1]]
    is_melted = normalise_name(name) in _NAMES and (normalise_name(value) in PRICE or value == "0")
    may_be_stacked = has_no_name(name) and (normalise_name(value) in PRICE or value == "0")
    if not (is_melted or may_be_stacked):
        return None
    [days, column], _ = table.load([date, others[0]], [])
    known = [text for each in column.dropna().unique() if (text := str(each).strip())]
    if not is_melted and (len(known) < 2 or not _share_days(days, column)):
        return None  # flags, days of the week or an exchange beside the prices of one security
    if not known or (not _holds_words(cells_of(table, others[0])) and not all(map(_is_security, known))):
        return None  # the numbers of some variable, and no names
    _refuse_fields(table, (others[0], others[1]), known)
    return others[0], others[1]


def _share_days(days: pd.Series, names: pd.Series) -> bool:
    """Whether a day has several names; one row that is there twice has but one."""
    pairs = pd.DataFrame({"day": days.to_numpy(), "name": names.to_numpy()}).drop_duplicates()
    return bool(pairs["day"].duplicated().any())


def _are_whole(cells: Sequence[str]) -> bool:
    return all(map(str.isdecimal, cells))


def _holds_words(cells: Sequence[str]) -> bool:
    """Whether no cell is a number, and not all are empty."""
    return any(cells) and all(parse_number(cell) is None for cell in cells if cell)


def _refuse_fields(table: RawTable, columns: tuple[int, int], known: Sequence[str]) -> None:
    name, price = (table.names[column] for column in columns)
    doubtful = [each for each in known if not _is_security(each)]
    if not doubtful:
        return
    called = f"the column {name!r}" if name.strip() else "the column without a name"
    made = [each for each in known if split_security(each) is not None and not is_indicator(each)]
    if made:
        raise LayoutError(
            f"{called} names a field of a security, such as {made[0]!r}: keep the rows of one field of prices, and "
            "write the ticker alone in this column."
        )
    fields = [each for each in known if is_field(each)]
    if fields:
        raise LayoutError(
            f"{called} names fields such as {fields[0]!r}, so that every row holds another one; keep the rows of one "
            "field of prices, and drop this column."
        )
    way = f"read the file with {spell_option('long', ticker=name, price=price)}" if name.strip() else "name it `ticker`"
    raise LayoutError(
        f"{called} holds {doubtful[0]!r}: if it names the securities, {way}; otherwise keep the rows of one field of "
        "prices, and drop this column."
    )


def _is_security(name: str) -> bool:
    # OPEN, LOW and VOL are tickers, too, but in such a table they are more likely fields.
    is_known = normalise_name(name) in FIELDS or is_quote(name) or is_field(name)
    return not is_known and (looks_like_ticker(name) or IDENTIFIER.fullmatch(name) is not None)
