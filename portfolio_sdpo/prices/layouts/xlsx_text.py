"""Excel workbooks (.xlsx) as the CSV text of their first sheet with rows, read with openpyxl (the extra `excel`)."""

from __future__ import annotations

import csv
import io
import zipfile
from datetime import date, datetime
from typing import Any

from portfolio_sdpo.common.plugins import missing_extra
from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.numbers import neutral_text

MAX_MEGABYTES = 256
"""What the parts of a workbook may unpack to."""
MAX_CELLS = 4_000_000
"""Cells of a sheet, empty ones between filled ones included; 500 tickers over 30 years of days."""
_MEGABYTE = 1 << 20


def convert_xlsx(content: bytes) -> bytes:
    """CSV text (UTF-8) of the first sheet that has rows; formulas count by the values that were saved with them.

    Numbers are written so that they are the same whether the text beside them has decimal points or commas.
    """
    try:
        import openpyxl
    except ModuleNotFoundError:
        raise missing_extra("Reading .xlsx", "openpyxl", "excel") from None
    _check_size(content)
    try:
        book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
        for sheet in book.worksheets:
            sheet.reset_dimensions()  # what the file claims about its size is not believed
            rows = _read_rows(sheet)
            if rows:
                break
        else:
            raise LayoutError("the workbook has no rows.")
    except LayoutError:
        raise
    except Exception:  # openpyxl raises whatever its parser stumbles over
        raise LayoutError("the file is not an Excel workbook (.xlsx), or it is damaged; save it again.") from None
    width = max(map(len, rows))
    buffer = io.StringIO()
    # Lines above the table stay short, so that its header is found below them.
    begin = next(number for number, row in enumerate(rows) if len(row) == width)
    if begin and _holds_securities(rows[begin - 1], width):
        begin -= 1
    table = [[*row, *[""] * (width - len(row))] for row in rows[begin:]]
    csv.writer(buffer, lineterminator="\n").writerows([*rows[:begin], *table])
    return buffer.getvalue().encode()


def _holds_securities(row: list[str], width: int) -> bool:
    """Whether a row above the names has securities in merged cells, each above its columns, and no title or setting."""
    filled = [cell for cell in row if cell]
    return len(row) > 2 and 2 * len(row) >= width and 1 < len(filled) < len(row)


def _check_size(content: bytes) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(part.file_size for part in archive.infolist())
    except (zipfile.BadZipFile, ValueError, OSError):
        raise LayoutError("the file is not an Excel workbook (.xlsx), or it is damaged; save it again.") from None
    if size > MAX_MEGABYTES * _MEGABYTE:
        raise LayoutError(f"the workbook unpacks to more than {MAX_MEGABYTES} MB; save the sheet as CSV.")


def _read_rows(sheet: Any) -> list[list[str]]:
    rows: list[list[str]] = []
    cells = 0
    for row in sheet.iter_rows(values_only=True):
        cells += len(row) + 1
        if cells > MAX_CELLS:
            raise LayoutError(f"the sheet has more than {MAX_CELLS:,} cells; save it as CSV.")
        texts = [_as_text(cell) for cell in row]
        while texts and not texts[-1]:
            texts.pop()
        if texts:
            rows.append(texts)
    return rows


def _as_text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, datetime):
        return cell.isoformat(" ") if cell.time().isoformat() != "00:00:00" else cell.date().isoformat()
    if isinstance(cell, date):
        return cell.isoformat()
    if isinstance(cell, float):
        return neutral_text(cell)
    return str(cell)
