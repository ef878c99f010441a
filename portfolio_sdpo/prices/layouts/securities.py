"""Headers in which every name is made of a security and a field: `AAPL.Close`, `Volume_MSFT`, in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.column_names import (
    CURRENCIES,
    DATE,
    HIGH,
    LOW,
    NEVER_PRICES,
    NOT_PRICES,
    OPEN,
    PRICE,
    SIDES,
    VOLUME,
    WEAK_DATE,
    WORTH,
    find_columns,
    find_owner,
    is_field,
    is_index_name,
    is_quote,
    may_be_ticker,
    normalise_name,
    split_security,
)
from portfolio_sdpo.prices.layouts.indicator_names import is_indicator
from portfolio_sdpo.prices.layouts.options import LayoutOptions, spell_option
from portfolio_sdpo.prices.layouts.plan import Candidate
from portfolio_sdpo.prices.layouts.raw_table import RawTable
from portfolio_sdpo.prices.layouts.refusals import AMOUNTS, join_names

Parts = Mapping[str, tuple[str, str]]
"""Names of columns, and the security and the field that each is made of."""


def split_names(names: Sequence[str], sides_are_tickers: bool = False) -> Parts:
    """The names that are made of a security and a field.

    BID, ASK and MID are sides of a quote and tickers as well, and NOK in brackets is a currency and a ticker: they are
    securities beside others of the same fields, and the sides also where the user says so.

    >>> split_names(["AAPL.Close", "BID.Close", "Volume"])
    {'AAPL.Close': ('AAPL', 'Close'), 'BID.Close': ('BID', 'Close')}
    >>> split_names(["BID.Close", "ASK.Close"])
    {}
    """
    found = {name: parts for name in names if (parts := split_security(name)) is not None and not is_indicator(name)}
    whole = [name for name in names if name not in found and not (is_field(name) or is_index_name(name))]
    if any(normalise_name(name) not in (*DATE, *WEAK_DATE) for name in whole):  # `US Value` beside `US Growth`
        found = {name: parts for name, parts in found.items() if normalise_name(parts[1]) not in WORTH}
    certain = {name: parts for name, parts in found.items() if not is_field(name)}
    fields = {normalise_name(field) for _, field in certain.values()}
    return {
        name: (security, field)
        for name, (security, field) in found.items()
        if name in certain
        or (_is_side(security) and (sides_are_tickers or normalise_name(field) in fields))
        or (security in CURRENCIES and normalise_name(field) in fields)
    }


def may_be_sides(names: Sequence[str]) -> bool:
    """Whether all names are fields of BID, ASK and MID, which can be tickers as well."""
    parts = [split_security(name) for name in names]
    return bool(parts) and all(part is not None and _is_side(part[0]) for part in parts)


def _is_side(security: str) -> bool:
    return security.lower() in SIDES and security.isupper()


def is_of_one_security(names: Sequence[str]) -> bool:
    """Whether a price and an open, high, low or volume stand there without any security in their names."""
    kinds = [[names[column] for column in find_columns(names, words)] for words in (PRICE, OPEN, HIGH, LOW, VOLUME)]
    found = [kind for kind in kinds if kind]
    # OPEN and LOW are tickers, too.
    return bool(kinds[0]) and len(found) > (2 if all(may_be_ticker(kind[0]) for kind in found) else 1)


def splits_by_security(names: Sequence[str], parts: Parts) -> bool:
    """Whether the names are of securities and their fields: all of them are, or a security has several fields."""
    known = [name for name in names if name in parts or not is_field(name)]
    fields: dict[str, set[str]] = {}
    for security, field in parts.values():
        fields.setdefault(security, set()).add(normalise_name(field))
    bare = [name for name in known if name not in parts]
    several = any(len(each) > 1 for each in fields.values())
    return several or len(parts) == len(known) > 0 or any(name in fields for name in bare)


def assign_columns(table: RawTable, date: int, options: LayoutOptions) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
    """One candidate per field of prices that every security has, the preferred one first; and notes."""
    columns: dict[str, dict[str, int]] = {}
    parts = split_names(table.names, sides_are_tickers=options.layout == "fields")
    if options.layout is None:
        _refuse_bare_price([name for column, name in enumerate(table.names) if column != date and name not in parts])
    securities = {security for security, _ in parts.values()}
    left_out = []
    for column, name in enumerate(table.names):
        if column == date or is_index_name(name) or (is_field(name) and name not in parts):
            continue
        if name not in parts and find_owner(name, securities) is not None:
            left_out.append(name)
            continue
        security, field = parts.get(name, (name, "price"))
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
            raise _refuse_unclear(unclear, next(iter(parts)), len(with_fields))
        left_out += [table.names[columns[name]["price"]] for name in unclear]
        priced = {security: fields for security, fields in priced.items() if security not in unclear}
    worth = [name for fields in priced.values() for name, _ in fields.values() if normalise_name(name) in WORTH]
    amounts = [name for fields in columns.values() for name in fields if normalise_name(name) in AMOUNTS]
    if worth and amounts and options.layout is None and all(len(fields) == 1 for fields in priced.values() if fields):
        raise LayoutError(
            f"{worth[0]!r} beside {amounts[0]!r} may be what positions are worth and no prices: add columns of prices, "
            f"or read it as one with {spell_option('fields', price=worth[0])}."
        )
    without = [security for security, fields in priced.items() if not fields]
    having = {security: fields for security, fields in priced.items() if fields}
    if not having:
        raise _refuse_without_price(table.names, [field for fields in columns.values() for field in fields])
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


def _refuse_bare_price(names: Sequence[str]) -> None:
    """`close` beside `MSFT: close`: the price of the chart itself, whose security is not named."""
    bare = [name for name in names if normalise_name(name) in PRICE and not may_be_ticker(name)]
    if bare:
        raise LayoutError(
            f"{bare[0]!r} says of no security that it is its price, and others do: read it alone with "
            f"{spell_option('per-ticker', price=bare[0])}, leave it out with --layout fields, or rename it, as in "
            f"'AAPL.{bare[0]}'."
        )


def _refuse_unclear(unclear: Sequence[str], example: str, others: int) -> LayoutError:
    """Names without a field beside names with one: more often a ticker or a field, by what the others are."""
    wide = ", read all columns as tickers with --layout wide" if len(unclear) > others else ""
    return LayoutError(
        f"{unclear[0]!r} stands beside columns such as {example!r}: it is a ticker or a field, and nothing tells "
        f"which; leave it out with --layout fields{wide}, or rename it after its security and field, as in "
        f"'{unclear[0]}.Close'."
    )


def _refuse_without_price(names: Sequence[str], fields: Sequence[str]) -> LayoutError:
    possible = [field for field in fields if is_quote(field)]
    possible += [field for field in fields if normalise_name(field) not in NEVER_PRICES]
    way = (
        f"name the field that holds them, as in {spell_option('fields', price=possible[0])}"
        if possible
        else "add one to the file"
    )
    return LayoutError(f"there is no column of prices such as Close or Adj Close among {join_names(names)}; {way}.")
