"""A file as a table: named columns, a sample of rows to recognise the layout by, and whole columns on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, get_args

import numpy as np
import pandas as pd

from portfolio_sdpo.prices.layouts.column_names import DATE, FIELDS, normalise_name
from portfolio_sdpo.prices.prices import Adjustment

SAMPLE_ROWS = 20
MAX_MEGABYTES = 512
"""What the text of a file, or the cells of a Parquet file, may take in memory."""
ADJUSTMENTS: tuple[Adjustment, ...] = get_args(Adjustment)


@dataclass(frozen=True)
class Facts:
    """What a file says about itself beside its table."""

    adjustment: Adjustment | None = None
    column: str | None = None
    notes: tuple[str, ...] = ()
    currencies: tuple[str, ...] = ()
    """One per column, where a row below the header has them; empty where a column has none."""


class RawTable(Protocol):
    """A table whose columns are known by position."""

    names: list[str]
    tickers: list[str] | None
    """One per column where the header has a row of tickers below or above Open, Close, ...; None in other layouts."""
    sample: list[list[str]]
    """The first rows as text."""
    facts: Facts

    def load(self, texts: Sequence[int], numbers: Sequence[int]) -> tuple[list[pd.Series], np.ndarray]:
        """Columns as they are, and columns as float64 (rows × columns)."""
        ...


def find_field_level(rows: Sequence[Sequence[str]]) -> int | None:
    """Which of two header rows holds Open, Close, ... and maybe further dates; None if neither does throughout."""
    for level, row in enumerate(rows):
        names = [normalise_name(name) for name in row]
        if any(name in FIELDS for name in names) and all(not name or name in FIELDS or name in DATE for name in names):
            return level
    return None


def cells_of(table: RawTable, column: int) -> list[str]:
    """The first cells of a column."""
    return [row[column] for row in table.sample if column < len(row)]
