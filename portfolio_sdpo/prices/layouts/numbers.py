"""Numbers as people write them into files: `179.66`, `$1,179.66`, `(12.5)`, `N/A`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.column_names import FOREIGN, normalise_name

NULLS = (
    "",
    "NA",
    "N/A",
    "n/a",
    "#N/A",
    "#N/A N/A",
    "#NA",
    "n.a.",
    "N.A.",
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
_CELL = re.compile(
    r"(?P<open>\()?(?P<sign>[+-]?)(?:(?:[A-Z]{0,2}[$€£¥₹]|[A-Z]{3}(?=[\s\d]))\s?(?P<inner>[+-]?))?"
    r"(?P<digits>[^\s()$€£¥₹]+)(?:\s?[$€£¥₹]|\s[A-Z]{3})?(?(open)\))"
)
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf|infinity", re.IGNORECASE)
_GROUPED = re.compile(r"\d{1,3}(,\d{3})+(\.\d*)?|\d{1,2}(,\d\d)+,\d{3}(\.\d*)?")
"""1,234,567.5, and as in India 12,34,567.5."""
_SPACED = re.compile(r"[+-]?\d{1,3}([ \u00a0\u202f'’]\d{3})+(?!\d)")
"""Thousands with spaces or apostrophes between them."""
_SPACES = str.maketrans("", "", " \u00a0\u202f'’")
_SWAP = str.maketrans(",.", ".,")
_DOTTED_DATE = re.compile(r"\d{1,2}\.\d{1,2}\.\d{2,4}")
# What shows a decimal comma: not three digits behind it, or a point before it; and so for points.
_COMMA_PROOF = r"(^|[^\d,.])0,\d|\d,(\d{1,2}|\d{4,})\D*$|\d\.\d{3},\d|\d\.\d{3}\.\d{3}"
_POINT_PROOF = r"(^|[^\d,.])0\.\d|\d\.(\d{1,2}|\d{4,})\D*$|\d,\d{3}\.\d|\d,\d{3},\d{3}|\d\.\d+[eE]-?\d"
_LIKE_NUMBER = re.compile(r"[^\w.,]*\d[\d.,\s'’]*[^\W\d]{0,3}[^\w.,]*")
_EITHER = r"^\D*\d{1,3}[.,]\d{3}\D*$"


def parse_number(text: str) -> float | None:
    """The number in a cell, correctly rounded; NaN for an empty one, None if it is none.

    >>> [parse_number(text) for text in ("$1,179.66", "(2)", "N/A", "12,5")]
    [1179.66, -2.0, nan, None]
    """
    text = text.strip()
    if text in _NULLS:
        return math.nan
    if _SPACED.match(text):
        text = text.translate(_SPACES)
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


def parse_numbers(
    columns: Sequence[pd.Series], names: Sequence[str], decimal_comma: bool = False, percent: bool = False
) -> np.ndarray:
    """The columns as float64, rows × columns; a cell that is no number is refused by name.

    decimal_comma: commas are decimal points in all these columns, dots group thousands. percent: the numbers are in
    percent, whether they say so (`0.5%`) or not.
    """
    values = np.empty((len(columns[0]) if columns else 0, len(columns)), order="F")
    for position, (column, name) in enumerate(zip(columns, names, strict=True)):
        if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype):
            values[:, position] = column.to_numpy("float64", na_value=np.nan)
        else:
            values[:, position] = _parse_text(column, name, decimal_comma, percent)
    return values


def _parse_text(column: pd.Series, name: str, decimal_comma: bool, percent: bool) -> np.ndarray:
    values = np.empty(len(column))
    missing = column.isna().to_numpy()
    for row, cell in enumerate(column):
        text = "" if missing[row] else str(cell)
        plain = text.rstrip().removesuffix("%") if percent else text
        number = parse_number(plain.translate(_SWAP) if decimal_comma else plain)
        if number is None and text.rstrip().endswith("%"):
            raise LayoutError(
                f"{text!r} in column {name!r} is in percent and no price: if all numbers are returns, add --returns "
                "percent to turn them into prices."
            )
        if number is None:
            raise LayoutError(
                f"{text!r} in column {name!r}, row {row + 1} of the data, is not a number; correct or empty it."
            )
        values[row] = number
    return values


def is_foreign(separator: str, names: Sequence[str], sample: Sequence[Sequence[str]]) -> bool:
    """Whether a file may write decimal commas: by semicolons between its cells, points in its dates, or its names.

    sample: the first rows.
    """
    if separator == ";" or any(_DOTTED_DATE.match(cell) for row in sample[:1] for cell in row[:3]):
        return True
    return any(normalise_name(name) in FOREIGN for name in names)


def is_written_like_number(cell: str) -> bool:
    """Whether a cell is a number with a point or a comma, maybe with a currency or a unit: `-0,15%`, `1,5M`.

    >>> [is_written_like_number(text) for text in ("1.234.567", "0,54%", "1,5M", "Jan 3,2023", "125")]
    [True, True, True, False, False]
    """
    return ("," in cell or "." in cell) and _LIKE_NUMBER.fullmatch(cell) is not None


def shows_comma(cells: Sequence[str]) -> bool:
    """Whether a cell has a comma that can only be a decimal one, or points that can only group thousands.

    >>> shows_comma(["14.674", "1,5M"]), shows_comma(["14.674", "1,500"])
    (True, False)
    """
    return any(re.search(_COMMA_PROOF, cell) for cell in cells)


def decide_decimal(columns: Sequence[pa.ChunkedArray], cells: Sequence[str], foreign: bool) -> str:
    """`comma` or `point`, as the numbers show; what they do not show is refused with both readings.

    columns: the text of the columns of prices. cells: numbers of other columns (a change of `-0,15%`), which count
    where the prices show nothing. foreign: whether the file may write decimal commas.
    """

    def shows(pattern: str) -> bool:
        return any(pa.compute.any(pa.compute.match_substring_regex(column, pattern)).as_py() for column in columns)

    comma, point = shows(_COMMA_PROOF), shows(_POINT_PROOF)
    if not comma and not point and foreign:
        comma, point = shows_comma(cells), any(re.search(_POINT_PROOF, cell) for cell in cells)
    if comma != point:
        return "comma" if comma else "point"
    cell = _first_match(columns, _EITHER)
    if not foreign or cell is None:
        return "point"
    one, other = cell.replace(".", "").replace(",", "."), cell.replace(",", "")
    if "," not in cell:
        one, other = other.replace(".", ""), other
    raise LayoutError(
        f"{cell!r} can be {one} (decimal comma) or {other} (decimal point), and the other numbers do not decide it; "
        "say which with --layout :decimal=comma or --layout :decimal=point."
    )


def neutral_text(number: float) -> str:
    """A number as text that is the same number with decimal points and with decimal commas.

    >>> neutral_text(163.27), neutral_text(-2.0), neutral_text(1e-07)
    ('16327e-2', '-2', '1e-7')
    """
    mantissa, _, exponent = repr(number).partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    power = int(exponent or 0) - len(fraction)
    return f"{whole}{fraction}e{power}" if power else f"{whole}{fraction}"


def _first_match(columns: Sequence[pa.ChunkedArray], pattern: str) -> str | None:
    for column in columns:
        found = column.filter(pa.compute.match_substring_regex(column, pattern))
        if len(found):
            return str(found[0].as_py()).strip()
    return None
