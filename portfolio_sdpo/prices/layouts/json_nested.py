"""JSON in which tickers, dates and fields are keys of objects within objects, as rows of one long table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from portfolio_sdpo.prices.layouts.column_names import DATE, FIELDS, PRICE, normalise_name

Rows = list[list[Any]]
"""A line of names, and the rows below it."""
_WRAPPERS = ("data", "result", "results", "prices", "quotes", "historical", "history", "timeseries", "values")
"""What the object that holds the prices is called in an answer that says other things beside it."""
_LISTS = ("historicalstocklist", *_WRAPPERS)
_OWNERS = ("symbol", "ticker")


def find_nested(document: Any) -> Rows | None:
    """The table in nested objects; None where they are of no known form.

    >>> find_nested({"AAPL": {"2023-01-03": {"close": 125.07}}})
    [['ticker', 'date', 'close'], ['AAPL', '2023-01-03', 125.07]]
    >>> find_nested({"dates": ["2023-01-03"], "prices": {"AAPL": [125.07]}})
    [['date', 'AAPL'], ['2023-01-03', 125.07]]
    """
    if isinstance(document, list):
        return _join_named(document)
    if not isinstance(document, dict) or not document:
        return None
    for form in (_read_levels, _read_columns, _read_shared_dates, _read_series):
        if (found := form(document)) is not None:
            return found
    for key, value in document.items():
        if normalise_name(str(key)) in _LISTS and isinstance(value, list) and (found := _join_named(value)):
            return found
    return None


def unwrap(document: dict[Any, Any]) -> dict[Any, Any] | None:
    """The object of prices in an answer that holds nothing else but single values; None where there is none."""
    inner = [key for key, value in document.items() if isinstance(value, dict)]
    if len(inner) != 1 or any(isinstance(value, list) for value in document.values()):
        return None
    found: dict[Any, Any] = document[inner[0]]
    named = normalise_name(str(inner[0])) in _WRAPPERS and not any(key in document for key in _OWNERS)
    return found if named and found and all(isinstance(value, dict) for value in found.values()) else None


def _read_levels(document: dict[Any, Any]) -> Rows | None:
    """Three levels of keys, in any order: tickers, dates and fields; or dates alone, each with its price."""
    if all(map(_is_number, document.values())) and _are_dates(list(document)):
        return [["date", "price"], *([day, price] for day, price in document.items())]
    cells = list(_walk(document))
    if not cells or any(len(keys) != 3 for keys, _ in cells):
        return None
    levels = [list(dict.fromkeys(keys[level] for keys, _ in cells)) for level in range(3)]
    dates = [level for level in range(3) if _are_dates(levels[level])]
    fields = [level for level in range(3) if all(normalise_name(name) in FIELDS for name in levels[level])]
    if len(dates) != 1 or len(fields) != 1 or dates == fields:
        return None
    [date], [field] = dates, fields
    ticker = 3 - date - field
    records: dict[tuple[str, str], dict[str, Any]] = {}
    for keys, value in cells:
        records.setdefault((keys[ticker], keys[date]), {})[keys[field]] = value
    names = levels[field]
    rows: Rows = [["ticker", "date", *names]]
    rows += [[*key, *map(record.get, names)] for key, record in records.items()]
    return rows if _are_tickers(levels[ticker]) else [row[1:] for row in rows]


def _read_columns(document: dict[Any, Any]) -> Rows | None:
    """A ticker's columns, or its list of records, under its name: `{"AAPL": {"date": [...], "close": [...]}}`."""
    if not all(isinstance(value, dict) for value in document.values()) or not _are_tickers(list(document)):
        return None
    if _name_fields(document):
        return None
    rows: list[dict[str, Any]] = []
    for ticker, table in document.items():
        lists = {str(key): value for key, value in table.items() if isinstance(value, list)}
        records = [value for value in lists.values() if value and all(isinstance(each, dict) for each in value)]
        if len(records) == len(lists) == 1:
            rows += [{"ticker": ticker} | each for each in records[0]]
        elif any(normalise_name(key) in DATE for key in lists) and len(set(map(len, lists.values()))) == 1:
            rows += [
                {"ticker": ticker} | dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)
            ]
        else:
            return None
    return _as_rows(rows)


def _read_shared_dates(document: dict[Any, Any]) -> Rows | None:
    """Dates as one list and the prices of each ticker as another one, within an object that is called after prices."""
    days = [value for key, value in document.items() if normalise_name(str(key)) in DATE and isinstance(value, list)]
    inner = [(normalise_name(str(key)), value) for key, value in document.items() if isinstance(value, dict)]
    if len(days) != 1 or len(inner) != 1 or inner[0][0] not in (*_WRAPPERS, *PRICE):
        return None
    columns = {str(key): value for key, value in inner[0][1].items()}
    if not columns or not all(isinstance(each, list) and len(each) == len(days[0]) for each in columns.values()):
        return None
    return [["date", *columns], *map(list, zip(days[0], *columns.values(), strict=True))]


def _read_series(document: dict[Any, Any]) -> Rows | None:
    """Pairs of a date and a price under each ticker."""
    if not all(isinstance(value, list) and value for value in document.values()):
        return None
    # CoinGecko's `prices` and `market_caps` are of one security.
    if _name_fields(document) or not all(str(key).isupper() for key in document):
        return None
    pairs = [(ticker, pair) for ticker, series in document.items() for pair in series]
    if not all(isinstance(pair, list) and len(pair) == 2 and _is_number(pair[1]) for _, pair in pairs):
        return None
    if not _are_dates([pair[0] for _, pair in pairs]):
        return None
    return [["ticker", "date", "price"], *([ticker, *pair] for ticker, pair in pairs)]


def _join_named(tables: list[Any]) -> Rows | None:
    """Objects that name a ticker, each with one list of records."""
    rows: list[dict[str, Any]] = []
    for table in tables:
        if not isinstance(table, dict):
            return None
        names = [table[key] for key in _OWNERS if isinstance(table.get(key), str)]
        lists = [value for value in table.values() if isinstance(value, list)]
        if len(names) != 1 or len(lists) != 1 or not all(isinstance(each, dict) for each in lists[0]):
            return None
        rows += [{"ticker": names[0]} | each for each in lists[0]]
    return _as_rows(rows)


def _as_rows(records: list[dict[str, Any]]) -> Rows | None:
    names = list(dict.fromkeys(name for record in records for name in record))
    if not records or any(isinstance(value, (list, dict)) for record in records for value in record.values()):
        return None
    return [names, *([record.get(name) for name in names] for record in records)]


def _walk(document: Mapping[Any, Any], keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in document.items():
        if isinstance(value, dict) and len(keys) < 3:
            yield from _walk(value, (*keys, str(key)))
        else:
            yield (*keys, str(key)), None if isinstance(value, (list, dict)) else value


def _are_dates(keys: list[Any]) -> bool:
    from portfolio_sdpo.prices.layouts.dates import looks_like_dates, looks_like_epochs

    texts = [str(key) for key in keys[:20]]
    return looks_like_dates(texts) or looks_like_epochs(texts)


def _are_tickers(keys: list[Any]) -> bool:
    """Whether these may name securities; a single one in small letters is `data` or the like."""
    return len(keys) > 1 or str(keys[0]).isupper()


def _name_fields(document: dict[Any, Any]) -> bool:
    """Whether a key is a field, so that the keys are those of one security: OPEN and LOW are tickers only elsewhere."""
    return any(normalise_name(str(key)) in FIELDS for key in document)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
