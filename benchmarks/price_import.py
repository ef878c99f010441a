"""Importing a wide CSV of prices against plain `pandas.read_csv` of the same file. Prints one JSON object.

python benchmarks/price_import.py [--tickers 500] [--rows 3500] [--repeats 9]

`read` is `read_prices`, `clean` and `save` are what an import does after it, `import` is all of it in one go. `ratio`
is over `read_csv`.
Everything is timed `--repeats` times in turns, all in one process; the best run counts, since other
work can only slow a run down. `cpu_ratio` is by the process's own time: on a busy machine the longer step is the less
likely to run undisturbed, so that the ratio of wall times is too high there; but it leaves out waiting for the disk.
"""

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import exchange_calendars
import numpy as np
import pandas as pd

from portfolio_sdpo.prices.cleaning import clean
from portfolio_sdpo.prices.ingest import import_snapshot
from portfolio_sdpo.prices.layouts import read_prices, write_prices
from portfolio_sdpo.prices.manifest import Request
from portfolio_sdpo.prices.snapshots import Store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tickers", type=int, default=500)
    parser.add_argument("--rows", type=int, default=3500)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), options.tickers, options.rows, options.repeats), indent=2))


def measure(folder: Path, tickers: int, rows: int, repeats: int) -> dict[str, object]:
    """Seconds of every step, and ratios; each run stores a snapshot of a new store, as a first import does."""
    path = folder / "prices.csv"
    write_prices(random_walks(tickers, rows), path, "wide", "total-return", "price")
    prices = read_prices(path)
    cleaned = clean(prices)
    request = Request(source="file", settings={"path": str(path)})
    stores = (Store(folder / f"store-{number}") for number in itertools.count())
    wall, cpu = best(
        {
            "read_csv": lambda: pd.read_csv(path),
            "read": lambda: read_prices(path),
            "clean": lambda: clean(prices),
            "save": lambda: next(stores).save("prices", cleaned, prices, request),
            "import": lambda: import_snapshot(path, "prices", store=next(stores)),
        },
        repeats,
    )
    return {
        "benchmark": "price_import",
        "tickers": tickers,
        "rows": rows,
        "megabytes": round(path.stat().st_size / 1e6, 1),
        "pandas": pd.__version__,
        "milliseconds": {name: round(1e3 * seconds, 1) for name, seconds in wall.items()},
        "ratio": ratios(wall),
        "cpu_ratio": ratios(cpu),
    }


def ratios(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(seconds[name] / seconds["read_csv"], 2) for name in seconds if name != "read_csv"}


def best(steps: dict[str, Callable[[], object]], repeats: int) -> tuple[dict[str, float], dict[str, float]]:
    """Least seconds of every step by the wall clock, and by the process's own time."""
    wall, cpu = dict.fromkeys(steps, float("inf")), dict.fromkeys(steps, float("inf"))
    for _ in range(repeats):
        for name, step in steps.items():
            begun = time.perf_counter(), time.process_time()
            step()
            wall[name] = min(wall[name], time.perf_counter() - begun[0])
            cpu[name] = min(cpu[name], time.process_time() - begun[1])
    return wall, cpu


def random_walks(tickers: int, rows: int) -> pd.DataFrame:
    """Prices with all their digits on sessions of the NYSE, as adjusted prices come."""
    sessions = exchange_calendars.get_calendar("XNYS", start="1990-01-01", end="2023-12-29").sessions[-rows:]
    steps = np.random.default_rng(0).normal(3e-4, 0.01, (rows, tickers))
    return pd.DataFrame(
        50 * np.exp(steps.cumsum(axis=0)), index=sessions, columns=[f"T{number:03d}" for number in range(tickers)]
    )


if __name__ == "__main__":
    main()
