"""Rebuild the bundled sample from the wheel that it was taken from.

    python data/rebuild.py                  downloads the wheel with pip
    python data/rebuild.py --wheel PATH     uses a wheel that is already there
    python data/rebuild.py --out FOLDER     writes somewhere else, to compare

The result has the same bytes as the files here when pyarrow is the version in constraints.txt, and the same content
with any other.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

REQUIREMENT = "portfolio-backtester==0.1.0"
WHEEL = "portfolio_backtester-0.1.0-py3-none-any.whl"
WHEEL_SHA256 = "55eda7fcf6a94f84d348437f3a214ef8ecfe63b4681496675fe38c18020dca0b"
PRICES = "portfolio_backtester/data/SP500 20060901-20211015.csv"
BILLS = "portfolio_backtester/data/T-bills 20020102-20211020.csv"
LICENSE = "portfolio_backtester-0.1.0.dist-info/LICENSE.txt"

TICKERS = ["AAPL", "CSCO", "DOW", "GE", "GS", "JNJ", "JPM", "MMM", "MSFT"]
START, END = "2016-01-04", "2021-10-14"


@dataclass(frozen=True)
class Correction:
    """A dividend that the wheel's adjustment counted the wrong number of times."""

    ticker: str
    date: str
    """Prices before this date are scaled."""
    dividend: float
    close: float
    """The unadjusted close of the session before."""
    counted: int
    """How often the wheel counts the dividend on this date."""
    due: int
    """How often it should."""
    sentence: str

    @property
    def factor(self) -> float:
        """What earlier prices are multiplied by: counting a dividend once is multiplying by 1 − dividend / close."""
        return (1 - self.dividend / self.close) ** (self.due - self.counted)


CORRECTIONS = (
    Correction(
        "JPM",
        "2017-04-05",
        dividend=0.50,
        close=87.31,
        counted=1,
        due=0,
        sentence="The source counts JPM's dividend of $0.50 twice, on its ex-date 2017-04-04 and again on 2017-04-05: "
        "corrected by dividing earlier prices by 1 - 0.50/87.31.",
    ),
    Correction(
        "AAPL",
        "2021-08-06",
        dividend=0.22,
        close=147.06,
        counted=0,
        due=1,
        sentence="The source does not count AAPL's dividend of $0.22 with the ex-date 2021-08-06: "
        "corrected by multiplying earlier prices by 1 - 0.22/147.06.",
    ),
)


def read_prices(wheel: zipfile.ZipFile) -> pd.DataFrame:
    """The nine stocks as date × ticker, without the rows of holidays, corrected."""
    content = io.BytesIO(wheel.read(PRICES))
    frame = pd.read_csv(content, usecols=["Date", *TICKERS], index_col="Date")
    frame = frame.astype("float32").astype("float64")  # they were float32, so no parser's last digit matters
    frame.index = pd.to_datetime(frame.index, format="%Y-%m-%d %H:%M:%S")
    frame = frame.loc[START:END, TICKERS].dropna(how="all")
    for fix in CORRECTIONS:
        frame.loc[frame.index < fix.date, fix.ticker] *= fix.factor
    return frame


def read_bills(wheel: zipfile.ZipFile) -> pd.DataFrame:
    """The 13-week rate as a decimal, on the days for which the Treasury published one."""
    frame = pd.read_csv(io.BytesIO(wheel.read(BILLS)), usecols=["Date", "13 weeks"], index_col="Date")
    frame.index = pd.to_datetime(frame.index, format="%d/%m/%Y")  # 31/12/2018: only the day exceeds 12
    return (frame.loc[START:END] / 100).round(4).dropna().set_axis(["rate"], axis=1)


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """A Parquet file with a plain `date` column: no metadata that names versions or the time of writing."""
    dates = pa.array(frame.index.date, pa.date32())
    columns = {name: pa.array(frame[name].to_numpy(), pa.float64(), from_pandas=True) for name in frame.columns}
    pq.write_table(pa.table({"date": dates, **columns}), path, compression="zstd")


def rebuild(wheel_path: Path, out: Path) -> None:
    """Write the sample, its licence, its provenance and the hashes into the folder."""
    if sha256(wheel_path.read_bytes()) != WHEEL_SHA256:
        sys.exit(f"{wheel_path} is not the wheel that the sample was taken from: its sha256 differs.")
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel_path) as wheel:
        tables = {"prices.parquet": read_prices(wheel), "tbill13w.parquet": read_bills(wheel)}
        for name, frame in tables.items():
            write_table(frame, out / name)
        (out / "LICENSE.portfolio-backtester.txt").write_bytes(wheel.read(LICENSE).replace(b"\r\n", b"\n"))
        provenance: dict[str, Any] = {
            "source": {
                "requirement": REQUIREMENT,
                "wheel": WHEEL,
                "sha256": WHEEL_SHA256,
                "license": "MIT",
                "copyright": "Copyright (c) 2021 PUN Chi Seng, ZHU Dechuan",
                "files": {name: sha256(wheel.read(name)) for name in (PRICES, BILLS)},
            },
            "files": {name: described(frame) for name, frame in tables.items()},
            "corrections": [{**asdict(fix), "factor": fix.factor} for fix in CORRECTIONS],
        }
    (out / "provenance.json").write_text(json.dumps(provenance, indent=2) + "\n", encoding="utf-8")
    hashed = [*tables, "LICENSE.portfolio-backtester.txt", "provenance.json"]
    lines = [f"{sha256((out / name).read_bytes())}  {name}\n" for name in hashed]
    (out / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def described(frame: pd.DataFrame) -> dict[str, Any]:
    """Columns, range and size of a table."""
    first, last = (str(day.date()) for day in (frame.index[0], frame.index[-1]))
    return {"columns": list(frame.columns), "start": first, "end": last, "rows": len(frame)}


def sha256(content: bytes) -> str:
    """The hash as `sha256sum` prints it."""
    return hashlib.sha256(content).hexdigest()


def main() -> None:
    """Entry point of the script."""
    parser = argparse.ArgumentParser(description="Rebuild the bundled sample.")
    parser.add_argument("--wheel", type=Path, help=f"{WHEEL}; without it pip downloads it")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write to")
    arguments = parser.parse_args()
    if arguments.wheel:
        rebuild(arguments.wheel, arguments.out)
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", folder, REQUIREMENT]
        subprocess.run(command, check=True)
        rebuild(Path(folder, WHEEL), arguments.out)


if __name__ == "__main__":
    main()
