"""Text files before they are a table: their encoding, their separator, and where the table begins and ends."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.column_names import DATE, FIELDS, TICKER, normalise_name
from portfolio_sdpo.prices.layouts.dates import looks_like_dates, looks_like_epochs, looks_like_periods
from portfolio_sdpo.prices.layouts.numbers import parse_number

NOT_TEXT = "the file is not text in UTF-8; save it as CSV (UTF-8)."
SEPARATORS = ",;\t|"
MAX_PREAMBLE = 60
"""Lines above a table that are looked through for its header."""
MAX_LINE = 1 << 20
"""Bytes at the end of a file in which its last line is looked for."""
LARGE = 4 << 20
"""Bytes from which on a table that ends with data is not searched for another one below it."""
_QUOTED = re.compile(r'"[^"]*"')
_BOMS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_NOT_WESTERN = re.compile(rb"[\x81\x8d\x8f\x90\x9d\xfe\xff]")
"""What no file in Windows-1252 has; the last two begin a file in UTF-16."""
_EASTERN = ("gb18030", "cp932", "cp949", "cp1251")
_WORDS = frozenset(word for word in (*DATE, *FIELDS, *TICKER) if not word.isascii())
HEADS = frozenset(
    ("", "ticker", "tickers", "price", "prices", "symbol", "symbols", "attribute", "attributes", "instrument",
     "instruments", "security", "securities", "field", "fields", "variable")
)  # fmt: skip
"""What stands at the beginning of a row of tickers or fields in a header of two rows."""
_SECURITY = re.compile(r".+ (Equity|Index|Comdty|Curncy|Corp|Govt)")
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
    if content.isascii():  # ten times as quick as decoding
        return content, []
    try:
        content.decode()  # the whole of it: a byte far below the header counts
    except UnicodeDecodeError:
        if (eastern := _find_eastern(content)) is not None:
            return content.decode(eastern).encode(), [f"The text was read as {eastern}, since it is not UTF-8."]
        if _CONTROL.search(content) or _NOT_WESTERN.search(content):
            raise LayoutError(NOT_TEXT) from None
        return content.decode("cp1252").encode(), [
            "The text was read as Windows-1252 (Latin-1), since it is not UTF-8."
        ]
    return content, []


def _find_eastern(content: bytes) -> str | None:
    """The encoding in which one of the first lines has the name of a field in Chinese, Japanese, Korean or Russian."""
    for encoding in _EASTERN:
        try:
            lines = content.decode(encoding)[:4096].splitlines()[:10]
        except UnicodeDecodeError:
            continue
        names = (cell.strip(' "') for line in lines for cell in re.split(f"[{re.escape(SEPARATORS)}]", line))
        if any(normalise_name(name) in _WORDS for name in names):
            return encoding
    return None


def find_header(content: bytes, start: int) -> tuple[str, int, int]:
    """The separator, where the header begins, and how many lines above it were skipped.

    The first line is the header unless the rows below it have another number of cells, or a title or a blank line
    stands above a line that begins with `Date`: then the header is the line above the first rows that begin like data,
    with a date and a number.
    """
    lines = list(itertools.islice(_lines(content, start), MAX_PREAMBLE))
    if not lines:
        return ",", start, 0
    first = lines[0][1]
    separator = max(SEPARATORS, key=_QUOTED.sub("", first).count)
    if (
        separator not in _QUOTED.sub("", first)
        and len(lines) > 1
        and _width(first, " ") == _width(lines[1][1], " ") > 2
    ):
        return " ", start, 0  # as R's write.zoo
    if (below := _find_header_below(content, lines, separator)) is not None:
        return separator, lines[below][0], below
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


def _find_header_below(content: bytes, lines: list[tuple[int, str]], separator: str) -> int | None:
    """The line of names below a title that has as many cells as the table, or below a blank line."""
    rows: list[list[str]] = []
    for _, text in lines:
        rows.append(_cells(text, separator))
        if _begins_like_data(rows[-1]):
            break
    number = len(rows) - 2
    if number < 1 or len(rows[number]) != len(rows[number + 1]) or not (rows[number] and rows[number - 1]):
        return None
    if normalise_name(rows[number][0]) not in DATE:
        return None
    above = rows[number - 1]
    between = content[lines[number - 1][0] : lines[number][0]]
    filled = [cell for cell in above if cell]
    is_title = len(filled) <= 1 and above[0] != "" and not _SECURITY.fullmatch(above[0])
    is_apart = any(blank in between for blank in _BLANK_LINES)
    if number > 1 and len(above) == len(rows[number]) != len(rows[number - 2]) and not is_title and not is_apart:
        return number - 1  # a row of securities above the names, below what Bloomberg says about the request
    return number if len(above) != len(rows[number]) or is_title or is_apart or not filled else None


def find_table_end(content: bytes, start: int, separator: str, width: int) -> int:
    """Where the table ends: at a blank line with text below it that is not data, else above the text of a footer.

    width: cells of the header. A last line with fewer cells is a footer if it begins with words and not with a date.
    """
    last = _last_cells(content, start, len(content), separator)[0]
    # In a large file that ends with data the search for a blank line is spared.
    is_plain = len(content) > LARGE and _begins_like_data(last)
    end = len(content) if is_plain else _find_blank_end(content, start, separator)
    while True:
        cells, begin = _last_cells(content, start, end, separator)
        is_footer = 0 < len(cells) < width and any(map(str.isalpha, cells[0])) and not _begins_like_data(cells)
        if not is_footer or looks_like_dates(cells[:1]) or begin <= start:
            return end
        end = begin


def _last_cells(content: bytes, start: int, end: int, separator: str) -> tuple[list[str], int]:
    """The cells of the last line before `end`, and where it begins."""
    begin = max(start, end - MAX_LINE)
    tail = content[begin:end].rstrip(b"\r\n")
    last = tail.rfind(b"\n") + 1
    return _cells(tail[last:].decode(errors="replace"), separator), begin + last


def _find_blank_end(content: bytes, start: int, separator: str) -> int:
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
    dated = any(looks_like_dates([cell]) or looks_like_epochs([cell]) or looks_like_periods([cell, cell])
                for cell in cells[:3])  # fmt: skip
    return dated and any(cell and parse_number(cell) is not None for cell in cells[1:])
