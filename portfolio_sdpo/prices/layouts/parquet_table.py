"""Parquet files as sheets."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pandas as pd

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.numbers import parse_numbers
from portfolio_sdpo.prices.layouts.raw_table import ADJUSTMENTS, SAMPLE_ROWS, Facts, find_field_level


class ParquetTable:
    """A Parquet file; the index that pandas stored in it comes first."""

    def __init__(self, content: bytes) -> None:
        try:
            frame = pd.read_parquet(io.BytesIO(content))
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
        values = parse_numbers([self._columns[i] for i in numbers], [self.names[i] for i in numbers])
        return [self._columns[i] for i in texts], values


def _index_columns(index: pd.Index) -> list[tuple[str, pd.Series]]:
    levels = [index.get_level_values(level).to_series(name=None) for level in range(index.nlevels)]
    return [("" if name is None else str(name), level) for name, level in zip(index.names, levels, strict=True)]


def _as_text(cell: object) -> str:
    return "" if pd.isna(cell) else str(cell)
