"""Turn an uploaded file into a snapshot, with the function that `data import` uses.

The file is kept as <home>/uploads/<hash of its content>/<its name>: the manifest of the snapshot points to it, and a
file that is uploaded again is recognised.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import shutil
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from portfolio_sdpo.common.files import data_directory, write_atomically
from portfolio_sdpo.errors import LayoutError, PortfolioSdpoError
from portfolio_sdpo.prices.ingest import import_snapshot
from portfolio_sdpo.prices.layouts.files import ENDINGS, file_kind
from portfolio_sdpo.prices.snapshots import SaveResult, check_name

MAX_MEGABYTES = 200
"""Size limit of an upload, in megabytes."""
MAX_UNPACKED_MEGABYTES = 1024
"""Size limit of a compressed file after decompression, in megabytes."""
_MEGABYTE = 1 << 20
_ODD = re.compile(r"[^A-Za-z0-9._^=+&@$!#,;'()~ %-]")
"""Characters that are replaced in file names; all others may be part of a ticker."""


def import_upload(name_of_file: str, content: bytes, snapshot: str, **options: Any) -> SaveResult:
    """Store the file and create its snapshot, with the options of `import_snapshot`; a failure leaves nothing."""
    check_name(snapshot)
    safe = make_safe_name(name_of_file)
    _check_size(safe, content)
    folder = data_directory() / "uploads" / hashlib.sha256(content).hexdigest()[:16]
    path = folder / safe
    known = path.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not known:
            write_atomically(path, content)
        return import_snapshot(path, snapshot, **options)
    except BaseException as error:
        if not known:
            path.unlink(missing_ok=True)
            if folder.is_dir() and not any(folder.iterdir()):
                shutil.rmtree(folder)
        if isinstance(error, OSError):
            raise LayoutError(
                f"{safe} cannot be stored ({error.strerror}): free some space in {folder.parent}."
            ) from None
        if isinstance(error, PortfolioSdpoError) and str(path) in str(error):
            # The name that the user gave to the file, not its path on this machine.
            raise type(error)(str(error).replace(str(path), safe)) from None
        raise


def make_safe_name(name: str) -> str:
    """The last part of a file name, without characters that are unsafe in a path or on a page.

    >>> make_safe_name("../../etc/pass<wd>.csv")
    'pass_wd_.csv'
    """
    last = PureWindowsPath(PurePosixPath(name).name).name
    safe = _ODD.sub("_", last).strip().lstrip(".")[-120:]
    if file_kind(Path(safe)) is None or safe.lower() in ENDINGS:
        raise LayoutError(f"{safe or 'The file'}: files of this type cannot be read; use {ENDINGS}.")
    return safe


def propose_name(name_of_file: str) -> str:
    """A name for the snapshot, derived from the name of the file.

    >>> propose_name("My prices (2021).csv.gz")
    'My-prices-2021'
    """
    stem = name_of_file
    for ending in (".gz", ".csv", ".parquet"):
        stem = stem[: -len(ending)] if stem.lower().endswith(ending) else stem
    return re.sub(r"[^A-Za-z0-9._]+", "-", stem).strip("-._")[:100] or "prices"


def _check_size(name: str, content: bytes) -> None:
    if len(content) > MAX_MEGABYTES * _MEGABYTE:
        raise LayoutError(f"{name} is larger than {MAX_MEGABYTES} MB: upload fewer years or tickers.")
    if not name.lower().endswith(".gz"):
        return
    size = 0
    try:
        with gzip.open(io.BytesIO(content)) as packed:
            while part := packed.read(_MEGABYTE):
                size += len(part)
                if size > MAX_UNPACKED_MEGABYTES * _MEGABYTE:
                    raise LayoutError(f"{name} unpacks to more than {MAX_UNPACKED_MEGABYTES} MB: use a smaller file.")
    except (OSError, EOFError, zlib.error):
        return  # the reader reports a damaged file
