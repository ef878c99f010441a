"""Which files can be read, and how their names and tickers belong together."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from urllib.parse import quote, unquote

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.csv_table import CsvTable
from portfolio_sdpo.prices.layouts.options import FILE_KINDS
from portfolio_sdpo.prices.layouts.parquet_table import ParquetTable
from portfolio_sdpo.prices.layouts.raw_table import RawTable

ENDINGS = ", ".join(f".{kind}" for kind in FILE_KINDS)


def file_kind(path: Path) -> str | None:
    """`csv`, `csv.gz` or `parquet` by the end of the name; None for any other file."""
    return next((kind for kind in FILE_KINDS if path.name.lower().endswith(f".{kind}")), None)


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


def open_table(path: Path) -> RawTable:
    """The table in a file."""
    kind = file_kind(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise LayoutError("there is no such file; check the path.") from None
    except OSError as error:
        raise LayoutError(f"the file cannot be read ({error.strerror}); check its permissions.") from None
    if kind is None:
        raise LayoutError(f"files of this kind are not read; give {ENDINGS}, or a folder of them.")
    if not content or content.isspace():
        raise LayoutError("the file is empty.")
    if kind == "parquet":
        return ParquetTable(content)
    if kind == "csv.gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            raise LayoutError("the file is not gzip, or it is cut off; fetch it again.") from None
    return CsvTable(content)
