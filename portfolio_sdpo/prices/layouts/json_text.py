"""JSON and JSON lines as the CSV text of the same table, so that one reader recognises all layouts.

Understood are records, pandas' `columns`, `index` and `split`, rows without names as Binance sends them, and a table
inside an answer: Polygon's `results`, Alpha Vantage's `Time Series`, CoinGecko's `prices`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

from portfolio_sdpo.errors import LayoutError

_NOT_JSON = "the file is not JSON, or it is cut off; fetch it again."
_NO_TABLE = 'the JSON holds no table that is understood; write a list of records such as {"date": ..., "close": ...}.'
_KLINE = ("Open time", "Open", "High", "Low", "Close", "Volume", "Close time", "Quote asset volume", "Number of trades",
          "Taker buy base asset volume", "Taker buy quote asset volume", "Ignore")  # fmt: skip
"""Binance's rows, which come without names."""
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
"""Polygon's names, which are as short as tickers."""


def convert_json(content: bytes, decimal: str | None = None) -> bytes:
    """CSV text (UTF-8) of the table in a JSON document, or in lines with a JSON object each.

    decimal: `comma` where the user says that the text has decimal commas; numbers are then written so, too.
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
    if decimal == "comma":
        rows = [[repr(cell).replace(".", ",") if isinstance(cell, float) else cell for cell in row] for row in rows]
    csv.writer(buffer, lineterminator="\n").writerows(rows)
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
    if isinstance(document, list) and document:
        if all(isinstance(each, dict) for each in document):
            return _records(document)
        if all(isinstance(each, list) for each in document):
            return _bare_rows(document)
    if isinstance(document, dict):
        return _find_in_object(document)
    raise LayoutError(_NO_TABLE)


def _find_in_object(document: dict[Any, Any]) -> list[list[Any]]:
    if isinstance(document.get("columns"), list) and isinstance(document.get("data"), list):
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
    tables: list[Any] = [
        value for key, value in document.items() if isinstance(value, dict) and "time series" in str(key).lower()
    ]
    tables += [value for value in (document.get("data"), document.get("historical")) if isinstance(value, list)]
    if tables:
        inner = tables[0]
        symbol: str | None = document.get("symbol") or next(
            (str(value) for meta in document.values() if isinstance(meta, dict)
             for key, value in meta.items() if "symbol" in str(key).lower()), None)  # fmt: skip
        rows = _by_key(inner) if isinstance(inner, dict) else _find_rows(inner)
        return _with_ticker(rows, symbol)
    values = list(document.values())
    if values and all(isinstance(value, dict) for value in values):
        return _by_key(document)
    if values and all(isinstance(value, list) for value in values) and len({len(value) for value in values}) == 1:
        return [list(document), *map(list, zip(*values, strict=True))]
    raise LayoutError(_NO_TABLE)


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
    if {len(row) for row in rows} == {len(_KLINE)}:
        return [list(_KLINE), *([str(row[0]), *row[1:]] for row in rows)]
    raise LayoutError("the rows of the JSON have no names; add a first row with the names of the columns.")


def _with_ticker(rows: list[list[Any]], ticker: Any) -> list[list[Any]]:
    if not isinstance(ticker, str) or not ticker or "symbol" in rows[0] or "ticker" in rows[0]:
        return rows
    return [["ticker", *rows[0]], *([ticker, *row] for row in rows[1:])]


def _refuse_nested(cells: Iterable[Any]) -> None:
    if any(isinstance(cell, (list, dict)) for cell in cells):
        raise LayoutError(_NO_TABLE)
