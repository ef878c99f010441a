"""Makes the backtests of the stocks experiment and reads them back; what is there is not made again.

<home>/experiments/stocks/
    benchmarks/              a backtest's folder (`backtest.record`): all benchmarks
    <label>-<first seed>/    another: one agent with the seeds that were missing when it was made
    summary.json, stocks.png, stocks.svg
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from portfolio_sdpo.backtest.record import list_records, read_config, read_table
from portfolio_sdpo.backtest.run import Progress, run_backtest
from portfolio_sdpo.errors import PortfolioSdpoError, RunError
from portfolio_sdpo.experiments.folders import experiment_folder
from portfolio_sdpo.experiments.grid import Outcome
from portfolio_sdpo.experiments.stocks import BENCHMARKS, StocksExperiment


@dataclass(frozen=True)
class Made:
    """A backtest that is there."""

    folder: Path
    config: dict[str, Any]

    @property
    def label(self) -> str:
        agents = self.config["settings"]["agents"]
        return str(agents[0]["label"]) if agents else BENCHMARKS

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of its agent; none for benchmarks."""
        return () if self.label == BENCHMARKS else tuple(self.config["settings"]["seeds"])

    def declared_by(self, experiment: StocksExperiment) -> bool:
        """Whether the experiment would make the same, whatever the seeds."""
        if self.label not in (BENCHMARKS, *experiment.algorithms):
            return False
        settings = self.config["settings"]
        declared = experiment.backtest(self.label, settings["seeds"]).model_dump(mode="json")
        return bool({**declared, "seeds": settings["seeds"]} == settings)


@dataclass(frozen=True, eq=False)
class Tables:
    """What all backtests tell together, in the columns of `backtest.tables`."""

    equity: pd.DataFrame
    weights: pd.DataFrame
    trace: pd.DataFrame


def made(experiment: StocksExperiment, root: Path | None = None) -> list[Made]:
    """Every backtest that is there, in the order of the experiment."""
    folders = list_records(root or experiment_folder(experiment.name))
    found = [Made(folder, read_config(folder)) for folder in folders]
    order = {label: place for place, label in enumerate((BENCHMARKS, *experiment.algorithms))}
    return sorted(found, key=lambda each: (order.get(each.label, len(order)), each.seeds))


def pending_walks(experiment: StocksExperiment, root: Path | None = None) -> int:
    """How many walks `run_stocks` makes, if need be by replacing others."""
    found = made(experiment, root)
    agents = sum(len(_missing(experiment, label, found)) for label in experiment.shown)
    return agents + (len(experiment.strategies) if _missing(experiment, BENCHMARKS, found) else 0)


def run_stocks(
    experiment: StocksExperiment,
    *,
    jobs: int = 1,
    root: Path | None = None,
    progress: Progress | None = None,
    restart: bool = False,
) -> list[Outcome]:
    """Make what is not there yet, label by label, `jobs` walks at a time; an interrupted walk goes on where it was.

    restart: replace what was made with other settings, instead of reporting it as failed.
    """
    root = root or experiment_folder(experiment.name)
    outcomes = []
    for label in (BENCHMARKS, *experiment.shown):
        try:
            outcomes.append(
                Outcome(label, "finished" if _make(experiment, label, root, jobs, progress, restart) else "skipped")
            )
        except PortfolioSdpoError as error:
            outcomes.append(Outcome(label, "failed", str(error)))
    return outcomes


def read_tables(found: Collection[Made], seeds: Collection[int] | None = None) -> Tables:
    """The tables of these backtests, of agents only those with the seeds."""

    def joined(name: str, of: Collection[Made]) -> pd.DataFrame:
        tables = [read_table(each.folder, name) for each in of]
        table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["strategy", "seed", "date"])
        return table if seeds is None else table[table["seed"].isna() | table["seed"].isin(list(seeds))]

    return Tables(
        joined("equity", found),
        joined("weights", found),
        joined("trace", [each for each in found if each.label != BENCHMARKS]),
    )


def chosen(
    experiment: StocksExperiment,
    root: Path | None = None,
    labels: Collection[str] | None = None,
    seeds: Collection[int] | None = None,
) -> list[Made]:
    """What is there, of agents only these labels and seeds; a `RunError` if there is no agent among it."""
    found = [
        each
        for each in made(experiment, root)
        if each.label == BENCHMARKS
        or ((labels is None or each.label in labels) and (seeds is None or not set(seeds).isdisjoint(each.seeds)))
    ]
    if all(each.label == BENCHMARKS for each in found):
        raise RunError(
            f"{root or experiment_folder(experiment.name)} holds no such runs yet: start them with "
            f"`portfolio-sdpo experiment run {experiment.name}`."
        )
    return found


def _make(
    experiment: StocksExperiment, label: str, root: Path, jobs: int, progress: Progress | None, restart: bool
) -> bool:
    """Make what is missing of a label; False if nothing is."""
    found = made(experiment, root)
    others = [each for each in found if each.label == label and not each.declared_by(experiment)]
    if others and not restart:
        raise RunError(
            f"{others[0].folder} holds a run with other settings: add --restart to replace it, "
            "or set PORTFOLIO_SDPO_HOME to keep both."
        )
    seeds = _missing(experiment, label, found)
    if seeds:
        target = root / (label if label == BENCHMARKS else f"{label}-{seeds[0]}")
        # What is replaced stays until there is something to replace it with.
        folder = root / f".{target.name}.new" if others else target
        if others:
            shutil.rmtree(folder, ignore_errors=True)
        run_backtest(experiment.backtest(label, seeds), folder, progress, experiment.agents(label, seeds), jobs=jobs)
        if others:
            _drop(others)
            folder.rename(target)
    return bool(seeds)


def _missing(experiment: StocksExperiment, label: str, found: Collection[Made]) -> list[int]:
    """Seeds that are still to be walked; benchmarks have none, and are there or not."""
    sound = [each for each in found if each.label == label and each.declared_by(experiment)]
    if label == BENCHMARKS:
        return [] if sound else [experiment.seeds[0]]
    there = {seed for each in sound for seed in each.seeds}
    return [seed for seed in experiment.seeds if seed not in there]


def _drop(old: Collection[Made]) -> None:
    """Remove them, each out of sight first, so that no half of one is ever found."""
    for each in old:
        hidden = each.folder.with_name(f".{each.folder.name}.old")
        try:
            shutil.rmtree(hidden, ignore_errors=True)
            shutil.rmtree(each.folder.rename(hidden))
        except OSError as error:
            raise RunError(f"{each.folder} cannot be replaced ({error.strerror}): remove it and run again.") from None
