"""What the shell offers after TAB: existing names, found without importing anything heavy.

Names that are declared in rooms which import torch or pandas are repeated here; a test compares them. Names of
extensions come from the metadata of installed packages, which are not imported either.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from portfolio_sdpo.experiments.catalogue import NAMES

PRESETS = ("default", "lstm", "lstm-same-close", "paper-stocks")
AGENTS = ("sdpo", "ppo")
SOURCES = ("yfinance", "nasdaq-data-link", "quandl", "french", "file", "sample", "sample-skfolio")
LAYOUTS = ("wide", "long", "per-ticker", "yfinance-history", "yfinance-download", "fields", "nasdaq")
STRATEGIES = (
    "cash",
    "equal-weight",
    "buy-and-hold",
    "inverse-volatility",
    "minimum-variance",
    "minimum-cvar",
    "hrp",
    "risk-parity",
    "mean-variance",
    "momentum-12-1",
    "maximum-return",
)


def snapshots(incomplete: str) -> list[str]:
    """Names of snapshots."""
    return _filter(incomplete, _list_folder(_data_directory() / "snapshots" / "names"))


def agents(incomplete: str) -> list[str]:
    """Folders that `train` made in the data directory; elsewhere the shell completes paths by itself."""
    folder = _data_directory() / "agents"
    return _filter(incomplete, [str(folder / name) for name in _list_folder(folder)])


def models(incomplete: str) -> list[str]:
    """Ids of models, and the word `champion`."""
    return _filter(incomplete, ["champion", *_read_ids("models")])


def keys(incomplete: str) -> list[str]:
    """Ids of API keys."""
    return _filter(incomplete, _read_ids("api_keys"))


def presets(incomplete: str) -> list[str]:
    """Names of presets."""
    return _filter(incomplete, PRESETS)


def sources(incomplete: str) -> list[str]:
    """Names of sources of prices, including those of other packages."""
    return _filter(incomplete, [*SOURCES, *_extensions("portfolio_sdpo.sources")])


def layouts(incomplete: str) -> list[str]:
    """Names of file layouts."""
    return _filter(incomplete, LAYOUTS)


def experiments(incomplete: str) -> list[str]:
    """Names of experiments, including those of other packages."""
    return _filter(incomplete, [*NAMES, *_extensions("portfolio_sdpo.studies")])


def agent(incomplete: str) -> list[str]:
    """An agent of a preset."""
    return _filter(incomplete, AGENTS)


def several_agents(incomplete: str) -> list[str]:
    """Agents separated by commas, or `none`."""
    return _complete_list(incomplete, [*AGENTS, "none"])


def strategies(incomplete: str) -> list[str]:
    """Benchmark strategies separated by commas, including those of other packages."""
    return _complete_list(incomplete, [*STRATEGIES, *_extensions("portfolio_sdpo.strategies")])


def _data_directory() -> Path:
    from portfolio_sdpo.common.files import data_directory  # imports what locks and hashes need: not for --help

    return data_directory()


def _filter(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _complete_list(incomplete: str, names: Iterable[str]) -> list[str]:
    """Complete the last word of a list separated by commas; words before it are not offered again."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return [f"{before}{comma}{name}" for name in names if name.startswith(last) and name not in taken]


def _extensions(group: str) -> list[str]:
    from importlib import metadata  # takes a third of the time of --help

    return sorted({entry.name for entry in metadata.entry_points(group=group)})


def _list_folder(folder: Path) -> list[str]:
    try:
        return sorted((path.name for path in folder.iterdir() if not path.name.startswith(".")), reverse=True)
    except OSError:
        return []


def _read_ids(table: str) -> list[str]:
    """Ids in the registry, newest first; none if it is on a server or cannot be read at once."""
    place = os.environ.get("PORTFOLIO_SDPO_REGISTRY") or str(_data_directory() / "registry.db")
    path = place.removeprefix("sqlite:///")
    if "://" in path or not Path(path).expanduser().is_file():
        return []
    address = f"{Path(path).expanduser().absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=0.2)) as database:
            return [str(row[0]) for row in database.execute(f"SELECT id FROM {table} ORDER BY rowid DESC LIMIT 100")]
    except sqlite3.Error:
        return []
