"""The experiment's finished backtests, from their folders or from records of them.

A record is a label's finished backtest in some kilobytes a seed, `<label>-<first seed>.json` in the place of the folder
of that name. It has what every table and figure is made from, rounded to six digits, with the configuration and the
command, so that results can be kept where folders cannot:

    portfolio-sdpo experiment summarise stocks --out docs/evidence
    portfolio-sdpo experiment show stocks --from docs/evidence
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from portfolio_sdpo.backtest.record import list_records, read_config, read_table, split_by_track
from portfolio_sdpo.errors import RunError
from portfolio_sdpo.experiments.engine.folders import experiment_folder, missing_runs, read_json, write_content
from portfolio_sdpo.experiments.engine.records import (
    Column,
    format_record,
    nothing_to_record,
    round_column,
    unreadable_record,
)
from portfolio_sdpo.experiments.stocks.declared import BENCHMARKS, StocksExperiment
from portfolio_sdpo.portfolio.agent import AgentSettings
from portfolio_sdpo.prices.prices import DATE_UNIT

DIGITS = 6
RECORDS = "*-*.json"
_COLUMNS = {"equity": ("wealth", "turnover"), "weights": ("CASH",), "trace": ("risk", "bound")}
"""What is kept of each table."""


@dataclass(frozen=True)
class BacktestFolder:
    """A finished backtest in its folder, or the record of one."""

    folder: Path
    """or the record's file"""
    config: dict[str, Any]
    tracks: tuple[dict[str, Any], ...] | None = None
    """of a record"""

    @property
    def label(self) -> str:
        agents = self.config["settings"]["agents"]
        return str(agents[0]["label"]) if agents else BENCHMARKS

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of its agent; none for benchmarks."""
        return () if self.label == BENCHMARKS else tuple(self.config["settings"]["seeds"])

    def matches(self, experiment: StocksExperiment) -> bool:
        """Whether the experiment would make the same, whatever the seeds."""
        if self.label not in (BENCHMARKS, *experiment.algorithms):
            return False
        settings = self.config["settings"]
        declared = experiment.backtest(self.label, settings["seeds"]).model_dump(mode="json")
        try:
            return _complete({**declared, "seeds": settings["seeds"]}) == _complete(settings)
        except ValueError:
            return False  # of a version that had other settings

    def read(self, name: str) -> pd.DataFrame:
        """`equity`, `weights` or, of an agent, `trace`; of a record the columns that are kept."""
        if self.tracks is None:
            return read_table(self.folder, name)
        return pd.concat([_restore(track, name) for track in self.tracks], ignore_index=True)


@dataclass(frozen=True, eq=False)
class Tables:
    """What all backtests tell together, in the columns of `backtest.record`."""

    equity: pd.DataFrame
    weights: pd.DataFrame
    trace: pd.DataFrame


def list_backtests(experiment: StocksExperiment, root: Path | None = None) -> list[BacktestFolder]:
    """Every finished backtest, in the order of the experiment; a folder comes before a record of its name.

    A `RunError` if two of them hold the same seed of a label: it would count twice.
    """
    root = root or experiment_folder(experiment.name)
    found = {folder.name: BacktestFolder(folder, read_config(folder)) for folder in list_records(root)}
    for path in sorted({*root.glob(RECORDS), *root.glob(f"{BENCHMARKS}.json")}):
        if path.stem not in found:
            found[path.stem] = _read_record(experiment, path)
    _check_seeds_are_apart(found.values())
    order = {label: place for place, label in enumerate((BENCHMARKS, *experiment.algorithms))}
    return sorted(found.values(), key=lambda each: (order.get(each.label, len(order)), each.seeds))


def select_backtests(
    experiment: StocksExperiment,
    root: Path | None = None,
    labels: Collection[str] | None = None,
    seeds: Collection[int] | None = None,
) -> list[BacktestFolder]:
    """The finished backtests, of agents only these labels and seeds; a `RunError` if there is no agent among them."""
    found = [
        each
        for each in list_backtests(experiment, root)
        if each.label == BENCHMARKS
        or ((labels is None or each.label in labels) and (seeds is None or not set(seeds).isdisjoint(each.seeds)))
    ]
    if all(each.label == BENCHMARKS for each in found):
        raise missing_runs(root or experiment_folder(experiment.name), experiment.name)
    return found


def read_tables(found: Collection[BacktestFolder], seeds: Collection[int] | None = None) -> Tables:
    """The tables of these backtests, of agents only those with the seeds."""

    def join(name: str, of: Collection[BacktestFolder]) -> pd.DataFrame:
        tables = [each.read(name) for each in of]
        table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["strategy", "seed", "date"])
        return table if seeds is None else table[table["seed"].isna() | table["seed"].isin(list(seeds))]

    return Tables(
        join("equity", found),
        join("weights", found),
        join("trace", [each for each in found if each.label != BENCHMARKS]),
    )


def write_records(
    experiment: StocksExperiment,
    root: Path,
    labels: Collection[str] | None = None,
    seeds: Collection[int] | None = None,
    *,
    out: Path,
) -> list[Path]:
    """Records of the finished backtests with the declared settings, into the experiment's folder in `out`.

    They replace those of the same label there all of whose seeds they hold.
    """
    found = [each for each in select_backtests(experiment, root, labels, seeds) if each.matches(experiment)]
    if all(each.label == BENCHMARKS for each in found):
        raise nothing_to_record(root, experiment.name)
    paths = []
    for each in found:
        name = BENCHMARKS if each.label == BENCHMARKS else f"{each.label}-{each.seeds[0]}"
        paths.append(out / experiment.name / f"{name}.json")
        write_content(paths[-1], format_record(_make_record(experiment, each)).encode())
    _remove_replaced(experiment, out / experiment.name, found, paths)
    return paths


def _check_seeds_are_apart(found: Iterable[BacktestFolder]) -> None:
    holders: dict[tuple[str, int], Path] = {}
    for each in found:
        for seed in each.seeds:
            other = holders.setdefault((each.label, seed), each.folder)
            if other != each.folder:
                raise RunError(f"{other} and {each.folder} both hold seed {seed} of {each.label}: remove one of them.")


def _remove_replaced(
    experiment: StocksExperiment, folder: Path, written: Iterable[BacktestFolder], paths: Collection[Path]
) -> None:
    """Remove the folder's other records of a label that was written, where that has all of their seeds."""
    held: dict[str, set[int]] = {}
    for each in written:
        held.setdefault(each.label, set()).update(each.seeds)
    for path in sorted(set(folder.glob(RECORDS)) - set(paths)):
        old = _read_record(experiment, path)
        if old.seeds and held.get(old.label, set()).issuperset(old.seeds):
            path.unlink()


def _complete(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a backtest, its agents' with the fields that were added since they were written down."""
    agents = [
        {**agent, "settings": AgentSettings.model_validate(agent["settings"]).model_dump(mode="json")}
        for agent in settings["agents"]
    ]
    return {**settings, "agents": agents}


def _make_record(experiment: StocksExperiment, backtest: BacktestFolder) -> dict[str, Any]:
    """A finished backtest as it is written down."""
    command = f"portfolio-sdpo experiment run {experiment.name}"
    if backtest.seeds:
        command += f" --algorithms {backtest.label} --seeds {','.join(map(str, backtest.seeds))}"
    names = [name for name in _COLUMNS if name != "trace" or backtest.seeds]
    tables = {name: split_by_track(backtest.read(name)) for name in names}
    tracks, days, updates = [], [], []
    for (strategy, seed), equity in tables["equity"].items():
        track: dict[str, Any] = {"strategy": strategy, "seed": seed}
        # All tracks of a backtest have the same days, and its seeds the same updates.
        days = [str(day.date()) for day in equity["date"]]
        for name in names:
            table = tables[name][strategy, seed]
            track |= {column: round_column(table[column], DIGITS) for column in _COLUMNS[name]}
        if backtest.seeds:
            counts = tables["trace"][strategy, seed].groupby("date").size()
            updates = [int(counts.get(day, 0)) for day in equity["date"]]
            track["bound"] = Column(track["bound"][:1])
        tracks.append(track)
    kept = ("package_version", "data", "settings")
    return {
        "experiment": experiment.name,
        "command": command,
        "config": {name: backtest.config[name] for name in kept},
        "days": Column(days),
        "updates": Column(updates),
        "tracks": tracks,
    }


def _read_record(experiment: StocksExperiment, path: Path) -> BacktestFolder:
    record = read_json(path)
    try:
        calendar = {name: record[name] for name in ("days", "updates")}
        found = BacktestFolder(path, record["config"], tuple({**track, **calendar} for track in record["tracks"]))
        if record["experiment"] != experiment.name:
            raise ValueError(f"it is of {record['experiment']}")
        for name in ("equity", "weights", *(("trace",) if found.seeds else ())):
            found.read(name)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise unreadable_record(path, "backtest", experiment.name, error) from None
    return found


def _restore(track: dict[str, Any], name: str) -> pd.DataFrame:
    """The rows of one track in a table."""
    days = pd.DatetimeIndex(track["days"]).as_unit(DATE_UNIT)
    columns = {column: np.array(track[column], dtype=np.float64) for column in _COLUMNS[name]}
    if name == "trace":
        days = days.repeat(track["updates"])
        columns["bound"] = columns["bound"].repeat(len(days))
    table = pd.DataFrame({"strategy": track["strategy"], "seed": track["seed"], "date": days, **columns})
    if name == "equity":
        table["return"] = table["wealth"].pct_change()
    return table.astype({"seed": "Int64"})
