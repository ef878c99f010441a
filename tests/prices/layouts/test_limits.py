"""Files that would fill the memory, or are no files: refused, and without taking the memory first."""

import gzip
import io
import os
import subprocess
import sys
import textwrap
import time
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts import read_prices

LIMIT_MEGABYTES = 400
"""What a refusal may take at most, libraries (about 200 MB) included; stated in docs/prices.md."""


def refuse_in_a_process(path) -> str:
    """The sentence of the refusal, from a process whose largest size is measured."""
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from portfolio_sdpo.errors import LayoutError
        from portfolio_sdpo.prices.layouts import read_prices
        try:
            read_prices(Path(sys.argv[1]))
        except LayoutError as error:
            [line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
            print(int(line.split()[1]) // 1024)
            print(error)
    """)
    result = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True, timeout=120
    )
    megabytes, sentence = result.stdout.splitlines()
    assert int(megabytes) < LIMIT_MEGABYTES, f"{megabytes} MB"
    return sentence


def test_csv_gz(tmp_path):
    """Six gigabytes in six megabytes."""
    block = gzip.compress(b"2020-01-02,1.5\n" * 7_000_000, 1)  # 105 MB; gzip members follow each other
    (tmp_path / "p.csv.gz").write_bytes(gzip.compress(b"Date,AAPL\n") + block * 60)
    assert "unpacks to, more than 512 MB" in refuse_in_a_process(tmp_path / "p.csv.gz")


def test_many_gzip_members(tmp_path):
    """Empty members cost no more than their number: below the limit they are read, above it refused."""
    table, empty = gzip.compress(b"Date,AAPL\n2020-01-02,1.5\n"), gzip.compress(b"", 1)
    begin = time.process_time()
    (tmp_path / "p.csv.gz").write_bytes(table + empty * 15_000)
    assert read_prices(tmp_path / "p.csv.gz").frame["AAPL"].tolist() == [1.5]
    (tmp_path / "p.csv.gz").write_bytes(empty * 60_000)
    with pytest.raises(LayoutError, match="more than 20,000 gzip members; pack it again"):
        read_prices(tmp_path / "p.csv.gz")
    assert time.process_time() - begin < 10


def test_parquet_of_constants(tmp_path):
    """Four hundred million cells in a few megabytes."""
    column = pa.array(np.ones(2_000_000))
    table = pa.table({f"T{number}": column for number in range(200)})
    pq.write_table(table, tmp_path / "p.parquet", compression="zstd")
    assert (tmp_path / "p.parquet").stat().st_size < 5e6
    assert "2,000,000 rows and 200 columns" in refuse_in_a_process(tmp_path / "p.parquet")


def test_parquet_of_a_long_text_that_repeats(tmp_path):
    """Ten gigabytes of text as one value and its codes: small in memory, and then refused for having no dates."""
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(10_000, "int32")), pa.array(["x" * 1_000_000]))
    pq.write_table(pa.table({"a": text, "b": np.ones(10_000)}), tmp_path / "p.parquet")
    assert "holds dates" in refuse_in_a_process(tmp_path / "p.parquet")


def test_xlsx(tmp_path):
    """A sheet of zeros that unpacks to a gigabyte."""
    with (
        zipfile.ZipFile(tmp_path / "p.xlsx", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("xl/worksheets/sheet1.xml", "w", force_zip64=True) as part,
    ):
        for _ in range(300):
            part.write(b"0" * (1 << 20))
    assert "unpacks to more than 256 MB" in refuse_in_a_process(tmp_path / "p.xlsx")


def test_xlsx_with_a_cell_far_away(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active["A1"], book.active["B1"] = "Date", "AAPL"
    for row in range(1, 400):
        book.active.cell(row * 1000, 16_384, 1.0)
    book.save(tmp_path / "p.xlsx")
    assert "more than 4,000,000 cells" in refuse_in_a_process(tmp_path / "p.xlsx")


def test_nested_json(tmp_path):
    (tmp_path / "p.json").write_text("[" * 200_000)
    assert "not JSON" in refuse_in_a_process(tmp_path / "p.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_devices_and_pipes(tmp_path):
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.csv")
    for name in ("zero.csv", "pipe.csv"):
        with pytest.raises(LayoutError, match="not an ordinary file"):
            read_prices(tmp_path / name)


def test_xlsx_is_read(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    from datetime import datetime

    book = openpyxl.Workbook()
    book.active.append(["Prices of a broker"])
    book.active.append(["Date", "AAPL", "MSFT"])
    for day in (3, 4, 5):
        book.active.append([datetime(2023, 1, day), 125.07 + day / 4, None if day == 4 else 239])
    buffer = io.BytesIO()
    book.save(buffer)
    (tmp_path / "book.xlsx").write_bytes(buffer.getvalue())
    frame = read_prices(tmp_path / "book.xlsx").frame
    assert frame["AAPL"].tolist() == [125.07 + day / 4 for day in (3, 4, 5)]
    assert frame["MSFT"].dropna().tolist() == [239.0, 239.0]
