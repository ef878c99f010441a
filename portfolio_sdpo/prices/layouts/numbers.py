"""Numbers as people write them into files: `179.66`, `$1,179.66`, `(12.5)`, `N/A`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from portfolio_sdpo.errors import LayoutError

NULLS = (
    "",
    "NA",
    "N/A",
    "n/a",
    "#N/A",
    "<NA>",
    "NaN",
    "nan",
    "-nan",
    "NULL",
    "Null",
    "null",
    "None",
    "NaT",
    "-",
    "--",
    ".",
)
"""Cells that mean: no price."""

_NULLS = frozenset(NULLS)
_CELL = re.compile(r"(?P<open>\()?(?P<sign>[+-]?)(?:[$€£¥]\s?(?P<inner>[+-]?))?(?P<digits>[^\s()$€£¥]+)(?(open)\))")
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf|infinity", re.IGNORECASE)
_GROUPED = re.compile(r"\d{1,3}(,\d{3})+(\.\d*)?")
_SWAP = str.maketrans(",.", ".,")


def parse_number(text: str) -> float | None:
    """The number in a cell, correctly rounded; NaN for an empty one, None if it is none.

    >>> [parse_number(text) for text in ("$1,179.66", "(2)", "N/A", "12,5")]
    [1179.66, -2.0, nan, None]
    """
    text = text.strip()
    if text in _NULLS:
        return math.nan
    cell = _CELL.fullmatch(text)
    if cell is None or (cell["sign"] and cell["inner"]):
        return None
    digits = cell["digits"]
    if _GROUPED.fullmatch(digits):
        digits = digits.replace(",", "")
    if not _NUMBER.fullmatch(digits):
        return None
    negative = ("-" in (cell["sign"], cell["inner"])) != bool(cell["open"])
    return -float(digits) if negative else float(digits)


def parse_numbers(columns: Sequence[pd.Series], names: Sequence[str], decimal_comma: bool = False) -> np.ndarray:
    """The columns as float64, rows × columns; a cell that is no number is refused by name.

    decimal_comma: commas are decimal points in all these columns, dots group thousands.
    """
    values = np.empty((len(columns[0]) if columns else 0, len(columns)), order="F")
    for position, (column, name) in enumerate(zip(columns, names, strict=True)):
        if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype):
            values[:, position] = column.to_numpy("float64", na_value=np.nan)
        else:
            values[:, position] = _parse_text(column, name, decimal_comma)
    return values


def _parse_text(column: pd.Series, name: str, decimal_comma: bool) -> np.ndarray:
    values = np.empty(len(column))
    missing = column.isna().to_numpy()
    for row, cell in enumerate(column):
        text = "" if missing[row] else str(cell)
        number = parse_number(text.translate(_SWAP) if decimal_comma else text)
        if number is None:
            raise LayoutError(
                f"{text!r} in column {name!r}, row {row + 1} of the data, is not a number; correct or empty it."
            )
        values[row] = number
    return values
