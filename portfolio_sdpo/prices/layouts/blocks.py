"""Tables side by side in one file, each with dates of its own, as Bloomberg's BDH writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from portfolio_sdpo.prices.layouts.column_names import DATE, has_no_name, normalise_name
from portfolio_sdpo.prices.layouts.dates import looks_like_dates
from portfolio_sdpo.prices.layouts.raw_table import Facts, RawTable, cells_of

_NUMBERED = re.compile(r"\.\d+$")
"""What pandas adds to a name that is there already."""


class Block:
    """Some neighbouring columns of a table, the first of them its dates."""

    def __init__(self, table: RawTable, columns: Sequence[int]) -> None:
        self._table, self._columns = table, columns
        self.names = [_NUMBERED.sub("", table.names[column]) for column in columns]
        self.tickers = None if table.tickers is None else [table.tickers[column] for column in columns]
        rows = [[row[column] if column < len(row) else "" for column in columns] for row in table.sample]
        self.sample = [row for row in rows if row[0]]
        # What yfinance's header would say about adjustment, these tables do not say.
        self.facts: Facts = replace(table.facts, adjustment=table.facts.adjustment or "unknown")

    def load(self, texts: Sequence[int], numbers: Sequence[int]) -> tuple[list[pd.Series], np.ndarray]:
        """As `RawTable.load`."""
        return self._table.load([self._columns[i] for i in texts], [self._columns[i] for i in numbers])


def split_blocks(table: RawTable) -> list[Block]:
    """The tables that stand side by side; none where only one column has dates under the name of the first."""
    word = normalise_name(_NUMBERED.sub("", table.names[0]))
    starts = [
        column
        for column, name in enumerate(table.names)
        if normalise_name(_NUMBERED.sub("", name)) == word in DATE and looks_like_dates(cells_of(table, column))
    ]
    if len(starts) < 2:
        return []
    ends = [*starts[1:], len(table.names)]
    return [
        Block(table, [column for column in range(start, end) if not has_no_name(table.names[column])])
        for start, end in zip(starts, ends, strict=True)
    ]
