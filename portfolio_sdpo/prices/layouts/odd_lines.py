"""Lines of a text that are no rows of its table, and tables that are written for the eye: they are put in order first.

Headers that are repeated where files were joined, dividends and splits between the rows of Yahoo's pages, a row of
currencies below the header, columns that are aligned with blanks, tables in Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.column_names import CURRENCIES

_HTML = re.compile(rb"\s*<(!doctype|html|head|body|table|div|\?xml)\b", re.IGNORECASE)
_COTAHIST = re.compile(rb"00COTAHIST\.\d{4}")
"""How the files of the exchange in Sao Paulo begin."""
_EVENT = re.compile(
    rb"^[^\n]*\d[^\n]*\b(Dividends?|Stock Splits?|Capital Gains?)\b[^\n]*\n?", re.MULTILINE | re.IGNORECASE
)
_DASHES = re.compile(rb"\|?[ \t]*:?-{2,}:?[ \t]*(\|[ \t]*:?-{2,}:?[ \t]*)*\|?[ \t]*")
_OUTER_BARS = re.compile(rb"^[ \t]*\|[ \t]*|[ \t]*\|[ \t]*\r?$", re.MULTILINE)
_UNITS = CURRENCIES | {"%", "pts", "points", "Points", "shares", "Shares", "units", "US$", "$", "€", "£"}
MOST_ALIGNED = 64 << 20
"""Bytes of a text beyond which columns are not sought by blanks."""


def put_in_order(content: bytes) -> bytes:
    """The text with separators, where it has none: tables in Markdown, and columns that are aligned with blanks."""
    if _HTML.match(content):
        raise LayoutError(
            "the file is a web page (HTML) and no table in text; download the prices as CSV, or copy the table into a "
            "text file."
        )
    if _COTAHIST.match(content):
        raise LayoutError(
            "the file is B3's COTAHIST, whose fields have fixed widths and no separators, and is not read; turn it "
            "into CSV with the columns date, ticker (CODNEG) and close (PREULT, which is in hundredths), one row per "
            "date and ticker, and import that."
        )
    lines = [line for line in content[:8192].splitlines()[:21] if line.strip()]
    if len(lines) > 2 and lines[0].lstrip().startswith(b"|") and _DASHES.fullmatch(lines[1].strip()):
        rows = _OUTER_BARS.sub(b"", content)
        return b"\n".join(line for line in rows.split(b"\n") if not _DASHES.fullmatch(line.strip()))
    if _is_aligned(lines[: 20 if len(content) > 8192 else None]) and len(content) <= MOST_ALIGNED:
        return re.sub(rb"(?m)^[ \t]+|[ \t]+(?=\r?$)|([ \t])[ \t]+", lambda match: b" " if match[1] else b"", content)
    return content


def _is_aligned(lines: Sequence[bytes]) -> bool:
    """Whether the lines have no separators and as many words each, with more than one blank between some of them."""
    if len(lines) < 3 or any(mark in line for line in lines for mark in (b",", b";", b"\t", b"|")):
        return False
    widths = {len(line.split()) for line in lines}
    return len(widths) == 1 and widths.pop() > 2 and any(b"  " in line.strip() for line in lines)


def drop_odd_lines(content: bytes, header: int, start: int) -> tuple[bytes, list[str]]:
    """The text without repeated headers and without dividends between its rows; and notes on it.

    header: where the line of names begins. start: where the rows do.
    """
    notes = []
    names = content[header:start].rstrip(b"\r\n")
    if b"\n" not in names and len(names) > 4 and content.find(b"\n" + names, start - 1) >= 0:
        rows, count = re.subn(rb"(?m)^" + re.escape(names) + rb"\r?\n?", b"", content[start:])
        if count:
            content = content[:start] + rows
            notes.append(f"Left out {count} repeated line{'s' * (count > 1)} of names.")
    if b"Adj" in names and b"Close" in names and (b"Dividend" in content or b"Split" in content):
        rows, count = _EVENT.subn(b"", content[start:])
        if count:
            content = content[:start] + rows
            notes.append(f"Left out {count} line{'s' * (count > 1)} with a dividend or a split between the prices.")
    return content, notes


def find_currencies(row: Sequence[str]) -> tuple[str, ...] | None:
    """The currencies of the columns, where a row below the header holds them or other units; else None.

    >>> find_currencies(["", "USD", "EUR"]), find_currencies(["Date", "USD", "shares"]), find_currencies(["x", "NA"])
    (('', 'USD', 'EUR'), ('', 'USD', ''), None)
    """
    filled = [cell for cell in row[1:] if cell]
    if not filled or any(map(str.isdigit, row[0])) or not all(cell in _UNITS for cell in filled):
        return None
    if not any(cell in CURRENCIES for cell in filled):
        return None
    return tuple(cell if cell in CURRENCIES and place else "" for place, cell in enumerate(row))
