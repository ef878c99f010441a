"""CSV files as sheets."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.column_names import DATE, normalise_name
from portfolio_sdpo.prices.layouts.dates import looks_like_dates
from portfolio_sdpo.prices.layouts.headerless import begins_with_time, name_bars
from portfolio_sdpo.prices.layouts.numbers import (
    NULLS,
    decide_decimal,
    is_foreign,
    is_written_like_number,
    parse_number,
    parse_numbers,
    shows_comma,
)
from portfolio_sdpo.prices.layouts.odd_lines import drop_odd_lines, find_currencies, put_in_order
from portfolio_sdpo.prices.layouts.plain_text import HEADS, NOT_TEXT, decode_text, find_header, find_table_end
from portfolio_sdpo.prices.layouts.raw_table import ADJUSTMENTS, SAMPLE_ROWS, Facts, find_field_level

BLOCK = 1 << 22
"""Bytes that are converted at a time: a line must fit, and columns come in pieces of this size."""
_MAY_SHOW_COMMA = re.compile(r",|\..*\.")
_REMARK = re.compile(r"#\s*adjustment:\s*(\S+)\s*")


class CsvTable:
    """Text with separators; only columns that are asked for are converted, straight to float64 where they allow it.

    decimal: `comma` or `point` where the user says which one the numbers have; None = the columns have to show it.
    percent: whether the user says that the numbers are in percent.
    """

    def __init__(self, content: bytes, decimal: str | None = None, percent: bool = False) -> None:
        content, notes = decode_text(content)
        if b"\n" not in content:
            content = content.replace(b"\r", b"\n")
        content = put_in_order(content)
        self._content = content
        self._decimal, self._percent = decimal, percent
        try:
            remarks, start = _skip_remarks(content)
            self._separator, start, skipped = find_header(content, start)
            header = self._header(self._rows(start, 3))
            bare = len(header) == 1 and begins_with_time(header[0])
            bars = name_bars(self._rows(start, SAMPLE_ROWS)) if bare else None
            if bars is not None:
                header = [bars]
                notes.append(f"The file has no line of names; by their order and values the columns are {_join(bars)}.")
            else:
                begin = start
                for _ in header:
                    start = _line_end(content, start) + 1
                content, odd = drop_odd_lines(content, begin, start)
                self._content = content
                notes += odd
            currencies = self._find_currencies(start)
            start = start if currencies is None else _line_end(content, start) + 1
            self._start, self._end = start, find_table_end(content, start, self._separator, len(header[-1]))
            short = self._end < len(content)
            self.sample = self._rows(start, SAMPLE_ROWS, self._end if short else None)
        except (UnicodeDecodeError, csv.Error):
            raise LayoutError(NOT_TEXT) from None
        self.facts = replace(_read_remarks(remarks), currencies=currencies or ())
        notes = [*notes, *([f"Skipped {skipped} line{'s' * (skipped > 1)} above the header."] if skipped else [])]
        if self._end < len(content):
            below = len(content[self._end :].strip().splitlines())
            lines = "one line" if below == 1 else f"{below:,} lines"
            notes.append(f"Only the first table of the file was read, and {lines} below it skipped.")
        self.facts = replace(self.facts, notes=(*self.facts.notes, *notes))
        self._name_columns(header)
        self._check()

    def _rows(self, start: int, count: int, end: int | None = None) -> list[list[str]]:
        content = io.BytesIO(self._content if end is None else self._content[:end])
        content.seek(start)
        text = io.TextIOWrapper(content, encoding="utf-8", newline="")
        rows = (row for row in csv.reader(text, delimiter=self._separator) if row)
        return [[cell.strip() for cell in row] for row in itertools.islice(rows, count)]

    def _header(self, rows: list[list[str]]) -> list[list[str]]:
        """The rows above the data: names; for yfinance's download also tickers; maybe the name of the index alone."""
        if not rows:
            raise LayoutError("the file is empty.")
        above = rows[:2]
        first = normalise_name(above[1][0]) if len(above) == 2 else "-"
        level = find_field_level([row[1:] for row in above])
        header = above if first in HEADS or (first in DATE and level == 1) else rows[:1]
        header = header if level is not None else rows[:1]
        below = rows[len(header)] if len(rows) > len(header) else [""]
        if normalise_name(below[0]) in DATE and not any(below[1:]):
            header = [*header, below]
        return header

    def _find_currencies(self, start: int) -> tuple[str, ...] | None:
        """The currencies of the columns, where the first row below the header holds them."""
        below = self._rows(start, 2)
        return find_currencies(below[0]) if len(below) == 2 else None

    def _name_columns(self, header: list[list[str]]) -> None:
        index = header[-1][0]
        level = find_field_level([row[1:] for row in header[:2]]) if len(header) > 1 and any(header[1][1:]) else None
        self.names = [index, *header[level or 0][1:]]
        if level is None:
            self.tickers: list[str] | None = None
        else:
            head, *tickers = header[1 - level]
            owner = head if level == 1 and normalise_name(head) not in HEADS else ""
            self.tickers = _fill_merged_cells([owner, *tickers]) if owner else ["", *_fill_merged_cells(tickers)]

    def _check(self) -> None:
        dates = [name for name in self.names if looks_like_dates([name])]
        if len(dates) > 1:
            raise LayoutError("dates stand in the first row; turn the table, so that there is one row per date.")
        if dates:
            raise LayoutError(f"the first row is data, since it has the date {dates[0]}; add column names above it.")
        if self.tickers is not None and len(self.tickers) != len(self.names):
            raise LayoutError("the two rows of the header do not have the same number of cells; correct the file.")
        if all(name and parse_number(name) is not None for name in self.names):
            raise LayoutError("the first row is data, since it has numbers only; add column names above it.")
        if not self.sample:
            raise LayoutError("the file has column names and no rows.")
        width, expected = len(self.sample[0]), len(self.names)
        if width == expected + 1 and self.tickers is None:
            if not any(row[-1] for row in self.sample):
                self.names, expected = [*self.names, ""], width  # every row ends with a separator
            elif normalise_name(self.names[0]) not in DATE and looks_like_dates([row[0] for row in self.sample]):
                self.names, expected = ["", *self.names], width  # R writes no name above the names of the rows
        if width != expected:
            raise LayoutError(f"row 1 of the data has {width} cells where the header has {expected}; correct the file.")

    def load(self, texts: Sequence[int], numbers: Sequence[int]) -> tuple[list[pd.Series], np.ndarray]:
        """As `RawTable.load`."""
        words = {column: pa.dictionary(pa.int32(), pa.string()) for column in texts}
        names = [self.names[column] for column in numbers]
        convention = self._decimal
        try:
            # A decimal comma must not meet pyarrow, to which 14.643 is always a little more than fourteen.
            if convention == "comma" or (convention is None and self._is_foreign()):
                table = self._convert(words | dict.fromkeys(numbers, pa.string()))
                values = self._parse([table.column(f"f{column}") for column in numbers], names)
            else:
                table = self._convert(words | dict.fromkeys(numbers, pa.float64()))
                values = np.empty((table.num_rows, len(numbers)), order="F")
                for place, column in enumerate(numbers):
                    values[:, place] = table.column(f"f{column}").to_numpy()
        except pa.ArrowInvalid:  # cells such as `$1,179.66`
            try:
                table = self._convert(words | dict.fromkeys(numbers, pa.string()))
            except pa.ArrowInvalid:
                raise LayoutError(NOT_TEXT) from None
            values = self._parse([table.column(f"f{column}") for column in numbers], names)
        return [table.column(f"f{column}").to_pandas() for column in texts], values

    def _convert(self, types: dict[int, pa.DataType]) -> pa.Table:
        try:
            return self._read(types, threads=True)
        except pa.ArrowInvalid as error:
            if "Expected" not in str(error):
                raise
        # A row with too many or too few cells: only a single thread knows which one.
        bad: list[Any] = []

        def remember(row: Any) -> str:
            bad.append(row)
            return "error"

        try:
            return self._read(types, threads=False, invalid_row_handler=remember)
        except pa.ArrowInvalid:
            if not bad:
                raise
            row = bad[0]
            raise LayoutError(
                f"row {row.number} of the data has {row.actual_columns} cells where the header has "
                f"{row.expected_columns}; correct the file."
            ) from None

    def _read(self, types: dict[int, pa.DataType], threads: bool, **parsing: Any) -> pa.Table:
        return pa.csv.read_csv(
            pa.BufferReader(pa.py_buffer(self._content).slice(self._start, self._end - self._start)),
            read_options=pa.csv.ReadOptions(autogenerate_column_names=True, use_threads=threads, block_size=BLOCK),
            parse_options=pa.csv.ParseOptions(delimiter=self._separator, **parsing),
            convert_options=pa.csv.ConvertOptions(
                column_types={f"f{column}": kind for column, kind in types.items()},
                include_columns=[f"f{column}" for column in types],
                null_values=list(NULLS),
                strings_can_be_null=False,  # NA is a ticker
            ),
        )

    def _is_foreign(self) -> bool:
        """Whether the file may write decimal commas, by what surrounds the prices."""
        if is_foreign(self._separator, self.names, self.sample):
            return True
        # Rows of cells such as 125.07 show no comma and are spared the search.
        return shows_comma(_number_cells([row for row in self.sample if _MAY_SHOW_COMMA.search("\n".join(row))]))

    def _parse(self, columns: Sequence[pa.ChunkedArray], names: Sequence[str]) -> np.ndarray:
        """Columns of text as numbers: the clean ones at once, the others cell by cell."""
        decimal = self._decimal or decide_decimal(columns, _number_cells(self.sample), self._is_foreign())
        decimal_comma = decimal == "comma"
        if decimal_comma:
            note = "Commas were read as decimal points, and points as separators of thousands."
            if note not in self.facts.notes:
                self.facts = replace(self.facts, notes=(*self.facts.notes, note))
        series = []
        for column in columns:
            try:
                series.append(column.to_pandas() if decimal_comma else column.cast(pa.float64()).to_pandas())
            except pa.ArrowInvalid:
                series.append(column.to_pandas())
        return parse_numbers(series, names, decimal_comma, self._percent)


def _number_cells(rows: Sequence[Sequence[str]]) -> list[str]:
    """Cells, in all columns, that are written like numbers and not like dates."""
    return [cell for row in rows for cell in row if is_written_like_number(cell) and not looks_like_dates([cell])]


def _fill_merged_cells(tickers: Sequence[str]) -> list[str]:
    """Tickers of a header in which each stands above the first of its columns only, as merged cells are saved."""
    filled: list[str] = []
    for ticker in tickers:
        filled.append(ticker or (filled[-1] if filled else ""))
    # A blank at the end only is a ticker that is missing.
    return list(tickers) if all(tickers[:-1]) else filled


def _join(names: Sequence[str]) -> str:
    return ", ".join(names)


def _line_end(content: bytes, start: int) -> int:
    end = content.find(b"\n", start)
    return len(content) if end < 0 else end


def _skip_remarks(content: bytes) -> tuple[list[str], int]:
    """Leading `#` lines, and where the first line is that is neither one of them nor blank."""
    remarks = []
    start = 0
    while start < len(content):
        line = content[start : _line_end(content, start)]
        if line.startswith(b"#"):
            remarks.append(line.decode().strip())
        elif line.strip():
            break
        start += len(line) + 1
    return remarks, start


def _read_remarks(remarks: Sequence[str]) -> Facts:
    """What leading `#` lines say; our own may say what the prices are adjusted for."""
    declared = [match[1] for remark in remarks if (match := _REMARK.fullmatch(remark))]
    adjustment = next((known for known in ADJUSTMENTS if known in declared), None)
    others = len(remarks) - len(declared)
    return Facts(adjustment, notes=(f"Skipped {others} leading # line{'s' * (others > 1)}.",) if others else ())
