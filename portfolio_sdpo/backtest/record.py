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

import hashlib
import io
import json
import os
import secrets
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from portfolio_sdpo import paths
from portfolio_sdpo.errors import RunError
from portfolio_sdpo.files import sync_directory

FORMAT = 1
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
    return paths.home() / "backtests"


def make_id(created: datetime, config: dict[str, Any], metrics: list[dict[str, Any]]) -> str:
    """A name from the time and the content: the same backtest ends in the same eight digits."""
    content = json.dumps([config, metrics], sort_keys=True).encode()
    return f"{created:%Y%m%d-%H%M%S}-{hashlib.sha256(content).hexdigest()[:8]}"


def new_folder(name: str) -> Path:
    """A folder below `home` that is not there yet."""
    folder, again = home() / name, 2
    while folder.exists():
        folder, again = home() / f"{name}-{again}", again + 1
    return folder


def check_free(folder: Path) -> None:
    """Raise a `RunError` unless a backtest can be written to the folder: a new one, or an empty one."""
    try:
        empty = folder.is_dir() and not any(folder.iterdir())
        taken = not empty and (folder.exists() or folder.is_symlink())
        ground = next(parent for parent in folder.absolute().parents if parent.exists())
    except OSError as error:
        raise _unusable(folder, error.strerror) from None
    if taken:
        raise RunError(f"{folder} is there already, and a backtest is never overwritten: choose another folder.")
    if not ground.is_dir() or not os.access(ground, os.W_OK | os.X_OK):
        raise _unusable(folder, f"{ground} is not a folder that can be written to")


def write_record(record: Record, report: str, folder: Path) -> None:
    """Write the record and its report; a failure leaves no folder."""
    check_free(folder)
    config = {"format": FORMAT, **record.config}
    contents = {
        "config.json": _to_json(config),
        "metrics.json": _to_json({"format": FORMAT, "records": record.metrics}),
        REPORT: report.encode(),
    }
    for name in (*TABLES, *OPTIONAL_TABLES):
        table = getattr(record, name)
        if table is not None:
            contents[f"{name}.parquet"] = _to_parquet(table)
    temporary = folder.parent / f".{folder.name}.{secrets.token_hex(4)}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        for name, content in contents.items():
            with (temporary / name).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        sync_directory(temporary)
        # Onto a folder that somebody filled meanwhile this fails, as it should.
        os.rename(temporary, folder)
        sync_directory(folder.parent)
    except OSError as error:
        raise _unusable(folder, error.strerror) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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
    return _from_json(folder, "config.json")


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """`metrics.json`: one record per strategy and seed."""
    records: list[dict[str, Any]] = _from_json(folder, "metrics.json")["records"]
    return records


def read_table(folder: Path, name: str) -> pd.DataFrame:
    """One of the tables: `equity`, `weights`, `trades`, and if there are any `trace` and `shield`."""
    content = _read(folder, f"{name}.parquet")
    try:
        return pd.read_parquet(io.BytesIO(content))
    except Exception as error:
        raise _damaged(folder, f"{name}.parquet", error) from None


def list_records(root: Path | None = None) -> tuple[Path, ...]:
    """The folders of all backtests below `root` (by default `home`), the newest first as far as names tell."""
    try:
        found = [path for path in (root or home()).iterdir() if not path.name.startswith(".")]
    except FileNotFoundError:
        return ()
    return tuple(sorted((path for path in found if (path / "config.json").is_file()), reverse=True))


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(f"{folder} holds no {name}, so it is no backtest: name a folder that `backtest` made.") from None
    except OSError as error:
        raise RunError(f"{folder / name} cannot be read ({error.strerror}): correct its permissions.") from None


def _from_json(folder: Path, name: str) -> dict[str, Any]:
    content = _read(folder, name)
    try:
        value = json.loads(content)
        version = value.pop("format")
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise _damaged(folder, name, error) from None
    if version != FORMAT:
        raise RunError(f"{folder} was written by another version of portfolio_sdpo: install that one.")
    return dict(value)


def _to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()


def _to_parquet(table: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()


def _damaged(folder: Path, name: str, error: Exception) -> RunError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return RunError(f"{folder / name} is damaged ({reason}): run the backtest again.")


def _unusable(folder: Path, reason: str | None) -> RunError:
    return RunError(f"The backtest cannot be written to {folder} ({reason}): make room or name another folder.")
