"""Which files can be read, how large they may become in memory, and how their names and tickers belong together."""

from __future__ import annotations

import gzip
import io
import os
import stat
import zlib
from pathlib import Path
from urllib.parse import quote, unquote

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.csv_table import CsvTable
from portfolio_sdpo.prices.layouts.json_text import convert_json
from portfolio_sdpo.prices.layouts.options import FILE_KINDS
from portfolio_sdpo.prices.layouts.parquet_table import ParquetTable
from portfolio_sdpo.prices.layouts.raw_table import MAX_MEGABYTES, RawTable
from portfolio_sdpo.prices.layouts.xlsx_text import convert_xlsx

READABLE_KINDS = (*FILE_KINDS, "txt", "tsv", "txt.gz", "tsv.gz", "json", "jsonl", "ndjson", "json.gz", "xlsx")
"""The files that can be read, by the end of their names; `FILE_KINDS` can be written, too."""
ENDINGS = ", ".join(f".{kind}" for kind in READABLE_KINDS)
WRITABLE_ENDINGS = ", ".join(f".{kind}" for kind in FILE_KINDS)
MAX_JSON_MEGABYTES = 128
"""JSON takes about ten times its size in memory."""
MAX_MEMBERS = 20_000
"""Packed files that may follow each other in one; 512 MB in the blocks of 64 KB that bgzip writes are 8,192."""
_MEMBER = b"\x1f\x8b\x08"
"""How each of them begins; by chance it is also in one of 16 MB."""
_MEGABYTE = 1 << 20


def file_kind(path: Path) -> str | None:
    """`csv`, `csv.gz`, `parquet`, ... by the end of the name; None for any other file."""
    name = path.name.lower()
    return next((kind for kind in READABLE_KINDS if name.endswith(f".{kind}")), None)


def writable_kind(path: Path) -> str | None:
    """`csv`, `csv.gz` or `parquet`, the kinds that are written."""
    kind = file_kind(path)
    return kind if kind in FILE_KINDS else None


def ticker_of(path: Path) -> str:
    """The ticker that a file is named after; `%2F` and the like stand for what names of files cannot have.

    >>> ticker_of(Path("BRK-B.csv.gz"))
    'BRK-B'
    """
    return unquote(path.name[: -len(f".{file_kind(path)}")])


def file_name(ticker: str, kind: str) -> str:
    """The name that `ticker_of` turns into the ticker.

    >>> file_name("BRK/B", "csv")
    'BRK%2FB.csv'
    """
    name = quote(ticker, safe="^=+&@$!#,;'()[]{}~ ")
    return f"%2E{name[1:]}.{kind}" if name.startswith(".") else f"{name}.{kind}"


def open_table(path: Path, decimal: str | None = None, percent: bool = False) -> RawTable:
    """The table in a file.

    decimal: `comma` or `point` where the user said which one it has. percent: whether its numbers are in percent.
    """
    kind = file_kind(path)
    content = _read_ordinary_file(path, MAX_JSON_MEGABYTES if kind and "json" in kind else MAX_MEGABYTES)
    if kind is None:
        raise LayoutError(f"files of this kind are not read; give {ENDINGS}, or a folder of them.")
    if kind.endswith(".gz"):
        content = _unpack(content, MAX_JSON_MEGABYTES if "json" in kind else MAX_MEGABYTES)
    if not content or content.isspace():
        raise LayoutError("the file is empty.")
    if kind == "parquet":
        return ParquetTable(content, decimal)
    if kind == "xlsx":
        return CsvTable(convert_xlsx(content), decimal, percent)
    if "json" in kind:
        return CsvTable(convert_json(content), decimal, percent)
    return CsvTable(content, decimal, percent)


def _read_ordinary_file(path: Path, limit: int) -> bytes:
    """The bytes of an ordinary file: no device, no pipe, and no more of it than the limit in megabytes."""
    try:
        # Without blocking: opening a pipe that nobody writes to would wait forever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(descriptor)
            if not stat.S_ISREG(mode.st_mode):
                raise LayoutError("this is not an ordinary file; give a file on disk.")
            if mode.st_size > limit * _MEGABYTE:
                raise _too_large(limit)
            content = file.read(mode.st_size)
    except FileNotFoundError:
        raise LayoutError("there is no such file; check the path.") from None
    except OSError as error:
        raise LayoutError(f"the file cannot be read ({error.strerror}); check its permissions.") from None
    return content


def _unpack(content: bytes, limit: int) -> bytes:
    """What gzip packed; counted first and unpacked afterwards, so that a bomb takes no memory."""
    try:
        if content.count(_MEMBER) > MAX_MEMBERS:
            raise LayoutError(f"the file has more than {MAX_MEMBERS:,} gzip members; pack it again with gzip.")
        # Not `gzip.decompress`, which copies all that follows a member.
        size = 0
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            while size <= limit * _MEGABYTE and (piece := packed.read(_MEGABYTE)):
                size += len(piece)
        if size > limit * _MEGABYTE:
            raise _too_large(limit)
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            return packed.read()
    except (OSError, EOFError, zlib.error):
        raise LayoutError("the file is not gzip, or it is cut off; fetch it again.") from None


def _too_large(limit: int) -> LayoutError:
    return LayoutError(f"the file is, or unpacks to, more than {limit} MB; split it by date or by ticker.")
