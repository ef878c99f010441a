"""The content of a snapshot as bytes: its hash, and the Parquet file it is stored in."""

from __future__ import annotations

import hashlib
import io
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from portfolio_sdpo.errors import SnapshotError


def content_hash(frame: pd.DataFrame) -> str:
    """Hash of the prices themselves, whatever library, file layout or day brought them.

    sha256 over: the line `portfolio_sdpo prices 1`; the tickers as a JSON list and a line feed; the dates as days since
    1970-01-01 (int64); the prices ticker by ticker (float64). Numbers are little endian, NaN is 0x7ff8000000000000, and
    −0 counts as 0.
    """
    digest = hashlib.sha256(b"portfolio_sdpo prices 1\n")
    digest.update(json.dumps([str(ticker) for ticker in frame.columns]).encode() + b"\n")
    digest.update(frame.index.to_numpy().astype("datetime64[D]").astype("<i8").tobytes())
    values = frame.to_numpy(dtype="float64").T + 0.0  # −0 + 0 = 0
    values[np.isnan(values)] = np.nan
    digest.update(np.ascontiguousarray(values, dtype="<f8").data)
    return digest.hexdigest()


def encode_parquet(frame: pd.DataFrame) -> bytes:
    """The frame as Parquet that is quick to read: one row group, plain values, nothing compressed, no nulls.

    Prices hardly compress, and columns that cannot be null are read by copying.
    """
    if frame.index.name in frame.columns:
        raise SnapshotError(f"A ticker cannot be called {frame.index.name}; rename that column.")
    # What tells pandas which column is the index; asking for all columns' types would take longer than writing them.
    index = pa.Schema.from_pandas(frame.iloc[:0, :0])
    fields = [*(pa.field(str(ticker), pa.float64()) for ticker in frame.columns), *index]
    schema = pa.schema([field.with_nullable(False) for field in fields], metadata=index.metadata)
    columns = [*(pa.array(column) for column in frame.to_numpy().T), pa.array(frame.index.to_numpy())]
    buffer = io.BytesIO()
    pq.write_table(
        pa.Table.from_arrays(columns, schema=schema),
        buffer,
        row_group_size=max(1, len(frame)),
        use_dictionary=False,
        compression="none",
        write_statistics=False,
    )
    return buffer.getvalue()


def align_companion(table: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    """A companion with the dates and tickers of the prices."""
    table = table[~table.index.duplicated(keep="last")]
    return table.reindex(index=frame.index, columns=frame.columns)


def decode_parquet(content: bytes) -> pd.DataFrame:
    """The frame that `encode_parquet` wrote."""
    table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
    *tickers, _ = table.column_names
    values = np.empty((len(tickers), table.num_rows))
    for row, column in zip(values, table.columns, strict=False):
        row[:] = column.to_numpy()
    dates = pd.DatetimeIndex(table.column(len(tickers)).to_numpy(), name="date")
    return freeze_frame(values.T, dates, pd.Index(tickers, name="ticker"))


def freeze_frame(values: np.ndarray, dates: pd.Index, tickers: pd.Index) -> pd.DataFrame:
    """A frame of these very values: to change prices, change a copy."""
    values.flags.writeable = False
    return pd.DataFrame(values, index=dates, columns=tickers, copy=False)
