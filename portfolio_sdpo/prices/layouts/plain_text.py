"""Text files before they are a table: their encoding, their separator, and where the table begins and ends."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.dates import looks_like_dates, looks_like_epochs, looks_like_months
from portfolio_sdpo.prices.layouts.numbers import parse_number

NOT_TEXT = "the file is not text in UTF-8; save it as CSV (UTF-8)."
SEPARATORS = ",;\t|"
MAX_PREAMBLE = 60
"""Lines above a table that are looked through for its header."""
MAX_LINE = 1 << 20
"""Bytes at the end of a file in which its last line is looked for."""
_QUOTED = re.compile(r'"[^"]*"')
_BOMS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_NOT_WESTERN = re.compile(rb"[\x81\x8d\x8f\x90\x9d\xfe\xff]")
"""What no file in Windows-1252 has; the last two begin a file in UTF-16."""
_BLANK_LINES = (b"\n\n", b"\n\r\n")


def decode_text(content: bytes) -> tuple[bytes, list[str]]:
    """The text as UTF-8 without a byte order mark, and notes on its encoding."""
    content = content.removeprefix(b"\xef\xbb\xbf")
    encoding = next((name for mark, name in _BOMS.items() if content.startswith(mark)), None)
    head = content[:4096]
    if encoding is None and b"\0" in head and len(head) > 3:
        # Western text in UTF-16 has a zero in every other byte.
        zeros = [head[place::2].count(0) / max(1, len(head[place::2])) for place in (0, 1)]
        encoding = "utf-16-le" if zeros[1] > 0.9 > zeros[0] else "utf-16-be" if zeros[0] > 0.9 > zeros[1] else None
    if encoding is not None:
        try:
            return content.decode(encoding).removeprefix("\ufeff").encode(), ["The text was read as UTF-16."]
        except UnicodeDecodeError:
            raise LayoutError(NOT_TEXT) from None
    if b"\0" in head:
        raise LayoutError(NOT_TEXT)
    try:
        content.decode()  # the whole of it: a byte far below the header counts
    except UnicodeDecodeError:
        if _CONTROL.search(content) or _NOT_WESTERN.search(content):
            raise LayoutError(NOT_TEXT) from None
        return content.decode("cp1252").encode(), [
            "The text was read as Windows-1252 (Latin-1), since it is not UTF-8."
        ]
    return content, []


def find_header(content: bytes, start: int) -> tuple[str, int, int]:
    """The separator, where the header begins, and how many lines above it were skipped.

    The first line is the header unless the rows below it have another number of cells: then the header is the line
    above the first rows that begin like data, with a date and a number.
    """
    lines = list(itertools.islice(_lines(content, start), MAX_PREAMBLE))
    if not lines:
        return ",", start, 0
    first = lines[0][1]
    separator = max(SEPARATORS, key=_QUOTED.sub("", first).count)
    if _width(first, separator) > 1 and (len(lines) == 1 or _width(lines[1][1], separator) == _width(first, separator)):
        return separator, start, 0
    if len(lines) > 3 and _width(first, separator) > 1 and _width(lines[2][1], separator) == _width(first, separator):
        return separator, start, 0  # one odd row, which the reader names
    for number in range(1, len(lines) - 1):
        for candidate in SEPARATORS:
            cells = _cells(lines[number][1], candidate)
            above = _cells(lines[number - 1][1], candidate)
            if (
                len(cells) > 1
                and len(above) == len(cells) == len(_cells(lines[number + 1][1], candidate))
                and _begins_like_data(cells)
                and not _begins_like_data(above)
            ):
                skipped = number - 1
                # A second line of names above, as Bloomberg's: tickers over fields.
                two = number > 1 and len(_cells(lines[number - 2][1], candidate)) == len(cells)
                if two and sum(map(bool, _cells(lines[number - 2][1], candidate))) > 1:
                    skipped -= 1
                return candidate, lines[skipped][0], skipped
    return separator, start, 0


def find_table_end(content: bytes, start: int, separator: str) -> int:
    """Where the table ends: at a blank line with text below it that is not data, else at the end of the file."""
    tail = content[-MAX_LINE:].rstrip(b"\r\n")
    last = tail[tail.rfind(b"\n") + 1 :]
    if _begins_like_data(_cells(last.decode(errors="replace"), separator)):
        return len(content)  # nothing stands below the rows: the usual file, and the search is spared
    place = start
    while True:
        found = [at for blank in _BLANK_LINES if (at := content.find(blank, place)) >= 0]
        if not found:
            return len(content)
        below = next(_lines(content, min(found) + 1), None)
        if below is None:
            return len(content)
        if not _begins_like_data(_cells(below[1], separator)):
            return min(found) + 1
        place = below[0]


def _lines(content: bytes, start: int) -> Iterator[tuple[int, str]]:
    """Places and texts of the lines that are not blank."""
    while start < len(content):
        end = content.find(b"\n", start)
        end = len(content) if end < 0 else end
        text = content[start:end].decode().strip("\r\n")
        if text.strip(" \t\r"):
            yield start, text
        start = end + 1


def _cells(line: str, separator: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator), [])]
    except csv.Error:
        return []


def _width(line: str, separator: str) -> int:
    return len(_cells(line, separator))


def _begins_like_data(cells: list[str]) -> bool:
    """Whether one of the first cells is a date, and another cell a number."""
    dated = any(looks_like_dates([cell]) or looks_like_epochs([cell]) or looks_like_months([cell, cell])
                for cell in cells[:3])  # fmt: skip
    return dated and any(cell and parse_number(cell) is not None for cell in cells[1:])
