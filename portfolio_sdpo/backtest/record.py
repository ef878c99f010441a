"""A backtest on disk: one folder, there as a whole or not at all, never written to again.

config.json       settings, resolved strategies, data with its hash, package version
metrics.json      one record per strategy and seed
equity.parquet    wealth, returns, drawdown, costs      (the tables: see `tables`)
weights.parquet   weights of CASH and every ticker
trades.parquet    every stock bought or sold
trace.parquet     what agents told of their training    (only when they did)
shield.parquet    what the shield did                   (only when it was on)
report.html       the page to look at
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from portfolio_sdpo.common.files import CONFIG, FolderStore, to_json, to_parquet

FOLDERS = FolderStore("backtest", "backtest", "backtests")
REPORT = "report.html"
TABLES = ("equity", "weights", "trades")
OPTIONAL_TABLES = ("trace", "shield")


@dataclass(frozen=True, eq=False)
class Record:
    """Everything that is known of a backtest."""

    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    """One record per strategy and seed: statistics, promise, notes; None for what is not defined."""
    equity: pd.DataFrame
    weights: pd.DataFrame
    trades: pd.DataFrame
    trace: pd.DataFrame | None = None
    shield: pd.DataFrame | None = None


def home() -> Path:
    """Where backtests are kept unless told otherwise."""
    return FOLDERS.home()


def write_record(record: Record, report: str, folder: Path) -> None:
    """Write the record and its report; a failure leaves no folder."""
    contents = {
        CONFIG: to_json(record.config),
        "metrics.json": to_json({"records": record.metrics}),
        REPORT: report.encode(),
    }
    for name in (*TABLES, *OPTIONAL_TABLES):
        table = getattr(record, name)
        if table is not None:
            contents[f"{name}.parquet"] = to_parquet(table)
    FOLDERS.write(folder, contents)


def read_record(folder: Path) -> Record:
    """Everything in the folder of a backtest."""
    optional = {name: read_table(folder, name) for name in OPTIONAL_TABLES if (folder / f"{name}.parquet").exists()}
    return Record(
        read_config(folder),
        read_metrics(folder),
        *(read_table(folder, name) for name in TABLES),
        **optional,
    )


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json`: settings, resolved strategies, data, package version."""
    return FOLDERS.read_json(folder, CONFIG)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """`metrics.json`: one record per strategy and seed."""
    records: list[dict[str, Any]] = FOLDERS.read_json(folder, "metrics.json")["records"]
    return records


def read_table(folder: Path, name: str) -> pd.DataFrame:
    """One of the tables: `equity`, `weights`, `trades`, and if there are any `trace` and `shield`."""
    content = FOLDERS.read(folder, f"{name}.parquet")
    try:
        return pd.read_parquet(io.BytesIO(content))
    except Exception as error:
        raise FOLDERS.damaged(folder, f"{name}.parquet", error) from None


def list_records(root: Path | None = None) -> tuple[Path, ...]:
    """The folders of all backtests below `root` (by default `home`), the newest first as far as names tell."""
    return FOLDERS.list(root)
