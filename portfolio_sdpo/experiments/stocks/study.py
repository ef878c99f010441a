"""The study on stocks, walk-forward through one year: makes its backtests, and reads back those that are finished.

Two stages: first one agent with one seed each, whose progress is saved in the data directory
(`portfolio.resume`); then the backtest of every label, from its agents.

<home>/experiments/stocks/
    benchmarks/              a backtest's folder (`backtest.record`): all benchmarks
    <label>-<first seed>/    another: one agent with the seeds that were missing when it was made
    summary.json, stocks.png, stocks.svg

A record in the place of such a folder does for tables and figures (`records`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Unpack

from rich.console import RenderableType

from portfolio_sdpo.backtest.run import simulate_agent
from portfolio_sdpo.errors import RunError
from portfolio_sdpo.experiments.engine.folders import experiment_folder
from portfolio_sdpo.experiments.engine.grid import GridOptions, Outcome, Run, Stage, run_grid
from portfolio_sdpo.experiments.statistics.evidence import Evidence
from portfolio_sdpo.experiments.stocks.declared import BENCHMARKS, SENSITIVITIES, START_DATES, StocksExperiment
from portfolio_sdpo.experiments.stocks.records import BacktestFolder, list_backtests, select_backtests, write_records
from portfolio_sdpo.experiments.study import Choice, FinishedRuns, Study, Summary
from portfolio_sdpo.report.result import run_backtest
from portfolio_sdpo.rl.progress import Board
from portfolio_sdpo.rl.trainer import Watcher


@dataclass(frozen=True)
class StocksRun(Run):
    """Base of the experiment's runs: they leave no folder behind that is not a complete backtest."""

    experiment: StocksExperiment
    label: str
    root: Path

    @property
    def total(self) -> int:
        return 1

    def record_failure(self, error: Exception, **more: Any) -> None:
        """The outcome says it."""

    def clear(self) -> None:
        """What is to be replaced stays until its replacement is complete."""


@dataclass(frozen=True)
class StocksAgentRun(StocksRun):
    """One agent with one seed, walk-forward through the dates."""

    seed: int

    @property
    def name(self) -> str:
        return f"{self.label}-{self.seed}"

    def identity(self) -> dict[str, Any]:
        return {"label": self.label, "seed": self.seed}

    def details(self) -> dict[str, Any]:
        return self.experiment.backtest(self.label, [self.seed]).model_dump(mode="json")

    def is_done(self) -> bool:
        """Only missing runs are created, so none of them is done."""
        return False


@dataclass(frozen=True)
class StocksBacktest(StocksRun):
    """A label with all seeds that are missing, or the benchmarks."""

    seeds: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.label

    @property
    def prerequisites(self) -> Sequence[StocksAgentRun]:
        seeds = () if self.label == BENCHMARKS else self.seeds
        return [StocksAgentRun(self.experiment, self.label, self.root, seed) for seed in seeds]

    def identity(self) -> dict[str, Any]:
        return {"label": self.label}

    def details(self) -> dict[str, Any]:
        return self.experiment.backtest(self.label, self.seeds).model_dump(mode="json")

    def others(self) -> list[BacktestFolder]:
        """Backtests of the label that were made with other settings."""
        found = list_backtests(self.experiment, self.root)
        return [each for each in found if each.label == self.label and not each.matches(self.experiment)]

    def is_done(self) -> bool:
        others = self.others()
        if others:
            raise RunError(
                f"{others[0].folder} holds a run with other settings: add --restart to replace it, "
                "or set PORTFOLIO_SDPO_HOME to keep both."
            )
        return not self.seeds


def count_pending_runs(experiment: StocksExperiment, root: Path | None = None) -> int:
    """How many tracks `run_stocks` would simulate, if need be by replacing others."""
    found = list_backtests(experiment, root)
    agents = sum(len(_find_missing_seeds(experiment, label, found)) for label in experiment.shown)
    return agents + (len(experiment.strategies) if _find_missing_seeds(experiment, BENCHMARKS, found) else 0)


def run_stocks(
    experiment: StocksExperiment,
    *,
    root: Path | None = None,
    board: Board | None = None,
    **options: Unpack[GridOptions],
) -> list[Outcome]:
    """Make the missing backtests; an interrupted one resumes where it stopped. One outcome for each label.

    board: shows the runs while they are made. Everything else is one of the `GridOptions`: `jobs`, `restart`, ...
    """
    root = root or experiment_folder(experiment.name)
    found = list_backtests(experiment, root)
    benchmarks, *labels = [
        StocksBacktest(experiment, label, root, tuple(_find_missing_seeds(experiment, label, found)))
        for label in (BENCHMARKS, *experiment.shown)
    ]
    agents = [run for label in labels if options.get("restart") or not label.others() for run in label.prerequisites]
    stages = [Stage([benchmarks, *agents]), Stage(labels)]
    outcomes = run_grid(stages, make_stocks, board or Board(()), root, **options)
    names = {each.name for each in (benchmarks, *labels)}
    return [outcome for outcome in outcomes if outcome.run in names]


def make_stocks(run: StocksAgentRun | StocksBacktest, watch: Watcher) -> dict[str, Any]:
    """Simulate one agent, or record a label's backtest from its simulated agents."""
    return _simulate(run, watch) if isinstance(run, StocksAgentRun) else _record_backtest(run)


def _simulate(run: StocksAgentRun, watch: Watcher) -> dict[str, Any]:
    """Simulate the agent, from where it was saved last."""
    settings, (agent,) = run.experiment.backtest(run.label, [run.seed]), run.experiment.agents(run.label, [run.seed])
    begun: list[float] = []

    def tell(done: int, total: int) -> None:
        # The first call says where the run resumes.
        begun[:] = begun or [time.monotonic(), done]
        rate = (done - begun[1]) / max(time.monotonic() - begun[0], 1e-9)
        watch({"iteration": done - 1.0, "total": float(total), "steps": 1.0, "steps_per_second": rate})

    track = simulate_agent(settings, agent, tell)
    return {"final_wealth": float(track.wealth[-1]), "updates": len(agent.trace)}


def _record_backtest(run: StocksBacktest) -> dict[str, Any]:
    """Record the backtest of a label, whose agents are simulated, in place of those with other settings."""
    experiment, label, seeds, others = run.experiment, run.label, run.seeds, run.others()
    target = run.root / (label if label == BENCHMARKS else f"{label}-{seeds[0]}")
    # What is to be replaced stays until its replacement is complete.
    folder = run.root / f".{target.name}.new" if others else target
    if others:
        shutil.rmtree(folder, ignore_errors=True)
    result = run_backtest(experiment.backtest(label, seeds), folder, agents=experiment.agents(label, seeds))
    if others:
        _drop(others)
        folder.rename(target)
    return {"folder": target.name, "records": result.record.metrics}


def _find_missing_seeds(experiment: StocksExperiment, label: str, found: Collection[BacktestFolder]) -> list[int]:
    """Seeds that are still to be simulated; benchmarks have none, and are there or not."""
    sound = [each for each in found if each.label == label and each.matches(experiment)]
    if label == BENCHMARKS:
        return [] if sound else [experiment.seeds[0]]
    there = {seed for each in sound for seed in each.seeds}
    return [seed for seed in experiment.seeds if seed not in there]


def _drop(old: Collection[BacktestFolder]) -> None:
    """Remove these backtests, each renamed to a hidden name first, so that no partial one is ever found."""
    for each in old:
        hidden = each.folder.with_name(f".{each.folder.name}.old")
        try:
            shutil.rmtree(hidden, ignore_errors=True)
            moved = each.folder.rename(hidden)
            moved.unlink() if moved.is_file() else shutil.rmtree(moved)  # a record is a file
        except OSError as error:
            raise RunError(f"{each.folder} cannot be replaced ({error.strerror}): remove it and run again.") from None


@dataclass(frozen=True)
class StocksStudy(Study):
    """On stocks."""

    experiment: StocksExperiment
    domain: ClassVar[str] = "stocks"

    def runs(self) -> Sequence[StocksAgentRun]:
        experiment = self.experiment
        return [
            StocksAgentRun(experiment, label, self.root, seed)
            for label in experiment.shown
            for seed in experiment.seeds
        ]

    def run(self, board: Board | None = None, **options: Unpack[GridOptions]) -> list[Outcome]:
        return run_stocks(self.experiment, root=self.root, board=board, **options)

    def successful(self, outcomes: Sequence[Outcome]) -> FinishedRuns:
        sound = [outcome.run for outcome in outcomes if outcome.status != "failed" and outcome.run != BENCHMARKS]
        return FinishedRuns(tuple(sound))

    def finished(self) -> FinishedRuns:
        experiment = self.experiment
        backtests = [each for each in list_backtests(experiment, self.root) if each.label in experiment.shown]
        # A label is replaced as a whole, so it counts as a whole.
        mixed = {each.label for each in backtests if not each.matches(experiment)}
        ours = [each for each in backtests if set(each.seeds) & set(experiment.seeds)]
        labels = dict.fromkeys(each.label for each in ours if each.label not in mixed)
        return FinishedRuns(tuple(labels), sum(len(each.seeds) for each in backtests if each.label in mixed))

    def summarise(self, runs: FinishedRuns | None = None) -> Summary:
        from portfolio_sdpo.experiments.stocks.summary import summarise_stocks

        return summarise_stocks(self.experiment, self.root, *self._filter(runs), out=self.output)

    def render(self, summary: Any) -> RenderableType:
        from portfolio_sdpo.experiments.stocks.report import render_stocks

        return render_stocks(summary)

    def describe(self, members: Sequence[Any]) -> RenderableType:
        from portfolio_sdpo.experiments.stocks.report import describe_stocks

        return describe_stocks(self.experiment)

    def evidence(self, runs: FinishedRuns) -> Evidence:
        from portfolio_sdpo.experiments.stocks.summary import collect_stocks_evidence

        return collect_stocks_evidence(self.experiment, self.root, *self._filter(runs))

    def draw(self, runs: FinishedRuns | None = None) -> list[Path]:
        from portfolio_sdpo.experiments.stocks.figures import make_stocks_figures

        return make_stocks_figures(self.experiment, self.root, *self._filter(runs), out=self.output)

    def record(self, out: Path) -> list[Path]:
        return write_records(self.experiment, self.root, *self._filter(None), out=out)

    def size(self) -> dict[str, str]:
        experiment = self.experiment
        agent = experiment.algorithms[experiment.shown[0]]
        horizon = agent.limit.horizon
        seen = f"the last {horizon} sessions replayed"
        if agent.scenarios == "bootstrap":
            seen = f"{horizon} sessions from anywhere in the last {agent.history}"
        return {
            "runs of each algorithm": str(len(experiment.seeds)),
            "problem": f"nine stocks and cash, {experiment.start} to {experiment.end}, {seen}",
            "batch": f"{agent.episodes * horizon:,} steps",
            "length": f"{experiment.steps} optimiser steps a day",
        }

    def versions(self, runs: FinishedRuns) -> list[str]:
        found = select_backtests(self.experiment, self.root, *self._filter(runs))
        return sorted({str(each.config["package_version"]) for each in found})

    def _apply(self, choice: Choice) -> StocksExperiment:
        return self.experiment.with_changes(
            iterations=choice.iterations, seeds=choice.seeds, algorithms=choice.algorithms
        )

    def _filter(self, runs: FinishedRuns | None) -> tuple[Collection[str] | None, Collection[int] | None]:
        """Labels and seeds to be read; None for all that the folder holds."""
        if runs is not None:
            return runs.names, self.experiment.seeds
        return self.choice.algorithms, self.choice.seeds


STUDIES = {experiment.name: StocksStudy(experiment) for experiment in (*START_DATES, *SENSITIVITIES)}
