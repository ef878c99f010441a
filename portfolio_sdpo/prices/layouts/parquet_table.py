"""Parquet files as sheets."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.numbers import parse_numbers
from portfolio_sdpo.prices.layouts.raw_table import ADJUSTMENTS, MAX_MEGABYTES, SAMPLE_ROWS, Facts, find_field_level


class ParquetTable:
    """A Parquet file; the index that pandas stored in it comes first.

    decimal: `comma` where the user says that columns of text have decimal commas.
    """

    def __init__(self, content: bytes, decimal: str | None = None) -> None:
        self._decimal_comma = decimal == "comma"
        try:
            frame = _read_bounded(content)
        except LayoutError:
            raise
        except Exception:  # damaged notes of pandas in the file end in a KeyError, a TypeError, ...
            raise LayoutError("the file is not Parquet, or it is damaged; fetch it again.") from None
        if frame.empty:
            raise LayoutError("the file has no rows of prices.")
        index = [] if isinstance(frame.index, pd.RangeIndex) else _index_columns(frame.index)
        labels = [name for name, _ in index]
        self._columns = [column for _, column in index] + [frame.iloc[:, i] for i in range(frame.shape[1])]
        self.tickers: list[str] | None = None
        if frame.columns.nlevels == 1:
            self.names = labels + [str(name).strip() for name in frame.columns]
        else:
            rows = [[str(name) for name in frame.columns.get_level_values(i)] for i in range(frame.columns.nlevels)]
            level = find_field_level(rows)
            if level is None or len(rows) != 2:
                raise LayoutError("its columns have levels other than Price and Ticker; keep the tickers only.")
            self.names, self.tickers = labels + rows[level], [""] * len(labels) + rows[1 - level]
        first = range(min(SAMPLE_ROWS, len(frame)))
        self.sample = [[_as_text(column.iloc[row]) for column in self._columns] for row in first]
        adjustment, column = frame.attrs.get("adjustment"), frame.attrs.get("column")
        self.facts = Facts(
            adjustment if adjustment in ADJUSTMENTS else None, column if isinstance(column, str) else None
        )

    def load(self, texts: Sequence[int], numbers: Sequence[int]) -> tuple[list[pd.Series], np.ndarray]:
        """As `RawTable.load`."""
        names = [self.names[i] for i in numbers]
        values = parse_numbers([self._columns[i] for i in numbers], names, self._decimal_comma)
        return [self._columns[i] for i in texts], values


def _read_bounded(content: bytes) -> pd.DataFrame:
    """The table; what would not fit into `MAX_MEGABYTES` is refused before it is decoded.

    A constant column takes a few bytes per million rows on disk, so rows × columns count and not the file's size;
    text is kept as codes into its distinct values, so that a long one that repeats is in memory once.
    """
    file = pq.ParquetFile(pa.BufferReader(content))
    schema, rows = file.schema_arrow, file.metadata.num_rows
    groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
    declared = sum(max(group.total_byte_size, 0) for group in groups)
    if max(8 * rows * len(schema.names), declared) > MAX_MEGABYTES << 20:
        raise LayoutError(
            f"the file has {rows:,} rows and {len(schema.names):,} columns, which is more than {MAX_MEGABYTES} MB; "
            "split it by date or by ticker."
        )
    nested = [name for name in schema.names if pa.types.is_nested(schema.field(name).type)]
    if nested:
        raise LayoutError(f"the column {nested[0]!r} holds lists or records; keep columns of numbers, dates and text.")
    texts = [field.name for field in schema if _is_text(field.type)]
    table = pq.ParquetFile(pa.BufferReader(content), read_dictionary=texts).read()
    frame = table.to_pandas()
    frame.attrs = json.loads((table.schema.metadata or {}).get(b"PANDAS_ATTRS", b"{}"))
    return frame


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind)


def _index_columns(index: pd.Index) -> list[tuple[str, pd.Series]]:
    levels = [index.get_level_values(level).to_series(name=None) for level in range(index.nlevels)]
    return [("" if name is None else str(name), level) for name, level in zip(index.names, levels, strict=True)]


def _as_text(cell: object) -> str:
    return "" if pd.isna(cell) else str(cell)
