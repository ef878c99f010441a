"""JSON and JSON lines as the CSV text of the same table, so that one reader recognises all layouts.

Understood are records, pandas' `columns`, `index` and `split`, rows without names as Binance sends them, and a table
inside an answer: Polygon's `results`, Alpha Vantage's `Time Series`, CoinGecko's `prices`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.headerless import name_bars
from portfolio_sdpo.prices.layouts.json_nested import find_nested, unwrap
from portfolio_sdpo.prices.layouts.numbers import neutral_text
from portfolio_sdpo.prices.layouts.raw_table import SAMPLE_ROWS

_NOT_JSON = "the file is not JSON, or it is cut off; fetch it again."
_NO_TABLE = 'the JSON holds no table that is understood; write a list of records such as {"date": ..., "close": ...}.'
_KRAKEN = ("timestamp", "open", "high", "low", "close", "vwap", "volume", "count")
"""Kraken's rows, which come without names as well."""
_OWNERS = ("symbol", "ticker", "pair", "instrument")
"""Under which of them an answer names the security that its table is of."""
_SHORT = {
    "o": "open",
    "h": "high",
    "l": "low",
    "c": "close",
    "v": "volume",
    "vw": "vwap",
    "n": "trades",
    "t": "timestamp",
}
"""The names of Polygon and Finnhub, which are as short as tickers."""


def convert_json(content: bytes) -> bytes:
    """CSV text (UTF-8) of the table in a JSON document, or in lines with a JSON object each.

    Numbers are written so that they are the same whether the text beside them has decimal points or commas.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise LayoutError(_NOT_JSON) from None
    try:
        rows = _find_rows(_parse(text))
    except RecursionError:
        raise LayoutError(_NOT_JSON) from None
    buffer = io.StringIO()
    texts = ([neutral_text(cell) if isinstance(cell, float) else cell for cell in row] for row in rows)
    csv.writer(buffer, lineterminator="\n").writerows(texts)
    return buffer.getvalue().encode()


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    lines = [line for line in text.splitlines() if line.strip()]
    try:
        return [json.loads(line) for line in lines]
    except ValueError:
        raise LayoutError(_NOT_JSON) from None


def _find_rows(document: Any) -> list[list[Any]]:
    """Header and rows; cells are numbers, text or None."""
    if (nested := find_nested(document)) is not None:
        return nested
    if isinstance(document, list) and document:
        if all(isinstance(each, dict) for each in document):
            return _records(document)
        if all(isinstance(each, list) for each in document):
            return _bare_rows(document)
    if isinstance(document, dict):
        return _find_in_object(document)
    raise LayoutError(_NO_TABLE)


def _find_in_object(document: dict[Any, Any]) -> list[list[Any]]:
    names = document.get("columns", document.get("column_names"))
    if isinstance(names, list) and isinstance(document.get("data"), list):
        document |= {"columns": [name.get("name") if isinstance(name, dict) else name for name in names]}
        index = document.get("index")
        rows = document["data"]
        if isinstance(index, list) and len(index) == len(rows):
            return [["", *document["columns"]], *([key, *row] for key, row in zip(index, rows, strict=True))]
        return [list(document["columns"]), *rows]
    if isinstance(document.get("results"), list) and document["results"]:
        rows = _records([{_SHORT.get(key, key): value for key, value in row.items()} for row in document["results"]
                         if isinstance(row, dict)])  # fmt: skip
        return _with_ticker(rows, document.get("ticker"))
    if isinstance(document.get("prices"), list) and document["prices"] and isinstance(document["prices"][0], list):
        return [["timestamp", "price"], *([str(row[0]), *row[1:2]] for row in document["prices"])]
    if (rows := _find_vendor(document)) is not None:
        return rows
    for key in ("dataset", "datatable", "history"):  # of Quandl, Nasdaq Data Link and the exchange in Moscow
        if isinstance(inner := document.get(key), dict) and isinstance(inner.get("data"), list):
            return _find_in_object(inner)
    for each in (document, document.get("bars")):
        if isinstance(each, dict) and all(isinstance(rows, list) and _are_records(rows) for rows in each.values()):
            return _by_ticker(each)
    if isinstance(document.get("rates"), dict) and all(isinstance(day, dict) for day in document["rates"].values()):
        return _by_key(document["rates"])
    tables: list[Any] = [
        value for key, value in document.items() if isinstance(value, dict) and "time series" in str(key).lower()
    ]
    tables += [document[key] for key in ("data", "historical", "values") if isinstance(document.get(key), list)]
    if tables:
        inner = tables[0]
        symbol: str | None = document.get("symbol") or next(
            (str(value) for meta in document.values() if isinstance(meta, dict)
             for key, value in meta.items() if "symbol" in str(key).lower()), None)  # fmt: skip
        rows = _by_key(inner) if isinstance(inner, dict) else _find_rows(inner)
        return _with_ticker(rows, symbol)
    if (inner := unwrap(document)) is not None:
        return _find_rows(inner)
    values = list(document.values())
    inner_tables = list(_find_inner(document, None))
    if values and all(isinstance(value, dict) for value in values) and not inner_tables:
        return _by_key(document)
    if values and all(isinstance(value, list) for value in values) and len({len(value) for value in values}) == 1:
        return _columns(document)
    if len(inner_tables) == 1:
        found, owner = inner_tables[0]
        return _with_ticker(_find_rows(found), owner)
    raise LayoutError(_NO_TABLE)


def _are_records(rows: list[Any]) -> bool:
    return bool(rows) and all(isinstance(row, dict) for row in rows)


def _by_ticker(tables: dict[Any, list[dict[Any, Any]]]) -> list[list[Any]]:
    """Records under the ticker that they are of; under `data` or the like they are of one that is not named."""
    if len(tables) == 1 and not str(next(iter(tables))).isupper():
        return _find_rows(next(iter(tables.values())))
    return _records(
        [{"ticker": ticker} | {_SHORT.get(key, key): value for key, value in row.items()}
         for ticker, rows in tables.items() for row in rows]
    )  # fmt: skip


def _find_inner(document: dict[Any, Any], owner: Any, depth: int = 4) -> Iterator[tuple[list[Any], Any]]:
    """Lists of records or of rows at any depth of an answer, each with the security that is named beside it."""
    owner = next((document[key] for key in _OWNERS if isinstance(document.get(key), str)), owner)
    for value in document.values():
        if isinstance(value, dict) and depth:
            yield from _find_inner(value, owner, depth - 1)
        elif isinstance(value, list) and len(value) > 1 and all(isinstance(each, dict | list) for each in value):
            yield [_flatten(each) if isinstance(each, dict) else each for each in value], owner


def _flatten(record: dict[Any, Any]) -> dict[Any, Any]:
    """A record whose inner records are part of it, as `mid` in OANDA's candles, if there is one of them only."""
    inner = [value for value in record.values() if isinstance(value, dict)]
    if len(inner) != 1:
        return record
    outer = {key: value for key, value in record.items() if value is not inner[0]}
    return outer | {_SHORT.get(key, key): value for key, value in inner[0].items()}


def _find_vendor(document: dict[Any, Any]) -> list[list[Any]] | None:
    """The tables of Finnhub, Kraken and of Yahoo's charts; None in other documents."""
    lists = {key: value for key, value in document.items() if isinstance(value, list)}
    if {"t", "c"} <= lists.keys() and lists.keys() <= _SHORT.keys():
        return _columns({_SHORT[key]: value for key, value in lists.items()})
    result = document.get("result")
    if isinstance(result, dict):
        pairs = {key: rows for key, rows in result.items() if isinstance(rows, list)}
        if pairs and all(isinstance(row, list) and len(row) == len(_KRAKEN) for rows in pairs.values() for row in rows):
            return [["pair", *_KRAKEN], *([key, *row] for key, rows in pairs.items() for row in rows)]
    try:
        [chart] = document["chart"]["result"]
        fields = dict(chart["indicators"]["quote"][0])
        if adjusted := chart["indicators"].get("adjclose"):
            fields["adj close"] = adjusted[0]["adjclose"]
        return _with_ticker(_columns({"timestamp": chart["timestamp"]} | fields), chart["meta"].get("symbol"))
    except (KeyError, TypeError, ValueError, IndexError):
        return None


def _columns(columns: dict[str, list[Any]]) -> list[list[Any]]:
    if len(set(map(len, columns.values()))) != 1:
        raise LayoutError(_NOT_JSON)
    return [list(columns), *map(list, zip(*columns.values(), strict=True))]


def _records(records: Sequence[dict[Any, Any]]) -> list[list[Any]]:
    names = list(dict.fromkeys(name for record in records for name in record))
    _refuse_nested(value for record in records for value in record.values())
    return [names, *([record.get(name) for name in names] for record in records)]


def _by_key(table: dict[Any, dict[Any, Any]]) -> list[list[Any]]:
    """pandas' `index` (a date has fields) or `columns` (a field has dates), whichever has the dates outside."""
    from portfolio_sdpo.prices.layouts.dates import looks_like_dates, looks_like_epochs

    keys = list(table)[:20]
    if looks_like_dates(keys) or looks_like_epochs(keys):
        return _records([{"date": key} | fields for key, fields in table.items()])
    days = dict.fromkeys(day for column in table.values() for day in column)
    _refuse_nested(value for column in table.values() for value in column.values())
    return [["date", *table], *([day, *(column.get(day) for column in table.values())] for day in days)]


def _bare_rows(rows: Sequence[list[Any]]) -> list[list[Any]]:
    """Rows without names: the first one may hold them, or they are Binance's."""
    if all(isinstance(cell, str) for cell in rows[0]) and not str(rows[0][0]).replace(".", "").isdigit():
        return [list(row) for row in rows]
    if (names := name_bars(rows[:SAMPLE_ROWS])) is not None:
        return [names, *([str(row[0]), *row[1:]] for row in rows)]
    raise LayoutError("the rows of the JSON have no names; add a first row with the names of the columns.")


def _with_ticker(rows: list[list[Any]], ticker: Any) -> list[list[Any]]:
    if not isinstance(ticker, str) or not ticker or "symbol" in rows[0] or "ticker" in rows[0]:
        return rows
    return [["ticker", *rows[0]], *([ticker, *row] for row in rows[1:])]


def _refuse_nested(cells: Iterable[Any]) -> None:
    if any(isinstance(cell, (list, dict)) for cell in cells):
        raise LayoutError(_NO_TABLE)
