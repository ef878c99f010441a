"""Opening a snapshot against plain `pandas.read_parquet` of the very file it is stored in. Prints one JSON object.

python benchmarks/snapshot_open.py [--tickers 500] [--sessions 3500] [--repeats 30]

Opening finds the name, reads and checks the manifest, hashes the Parquet file and decodes it. Both are timed in turns
in one process; the ratio is that of their best times. The table has late listings and gaps, so that the manifest has
cells that were carried. For comparison: the time that the hash alone takes.
"""

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow

from portfolio_sdpo.prices.cleaning import clean
from portfolio_sdpo.prices.manifest import Request
from portfolio_sdpo.prices.prices import Prices, to_wide
from portfolio_sdpo.prices.snapshots import Store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tickers", type=int, default=500)
    parser.add_argument("--sessions", type=int, default=3500)
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        prices = Prices(made_up(options.sessions, options.tickers), "close", "unknown")
        cleaned = clean(prices, calendar=None)
        start = time.perf_counter()
        snapshot = store.save("benchmark", cleaned, prices, Request(source="file", calendar=None)).snapshot
        saved = time.perf_counter() - start
        manifest = snapshot.manifest
        [path] = store.root.rglob("*.parquet")
        pd.testing.assert_frame_equal(pd.read_parquet(path), store.open("benchmark").frame)
        opened, read, hashed = best(
            options.repeats,
            lambda: store.open("benchmark"),
            lambda: pd.read_parquet(path),
            lambda: hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        result = {
            "benchmark": "snapshot_open",
            "pandas": pd.__version__,
            "pyarrow": pyarrow.__version__,
            "tickers": len(manifest.tickers),
            "sessions": manifest.rows,
            "carried": sum(map(len, manifest.carried.values())),
            "megabytes": round(path.stat().st_size / 1e6, 2),
            "open_ms": round(1e3 * opened, 2),
            "read_parquet_ms": round(1e3 * read, 2),
            "hash_ms": round(1e3 * hashed, 2),
            "save_ms": round(1e3 * saved, 1),
            "ratio": round(opened / read, 3),
            "limit": 1.2,
        }
    print(json.dumps(result, indent=2))


def made_up(sessions: int, tickers: int) -> pd.DataFrame:
    """Random walks; a tenth of the tickers lists late, and one price in a thousand is missing."""
    rng = np.random.default_rng(0)
    values = (100 * np.exp(rng.normal(0, 0.01, (sessions, tickers)).cumsum(axis=0))).round(6)
    values[rng.random(values.shape) < 0.001] = np.nan
    for ticker in range(0, tickers, 10):
        values[: rng.integers(1, sessions), ticker] = np.nan
    dates = pd.bdate_range("2008-01-01", periods=sessions)
    return to_wide(pd.DataFrame(values, index=dates, columns=[f"T{number:04d}" for number in range(tickers)]))


def best(repeats: int, *calls: Callable[[], object]) -> list[float]:
    """The shortest time of each call, in seconds."""
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for call, times in zip(calls, seconds, strict=True):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return [min(times) for times in seconds]


if __name__ == "__main__":
    main()
