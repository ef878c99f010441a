"""The study on stocks: backtests of agents and benchmarks, walk-forward through one year."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Unpack

from rich.console import RenderableType

from portfolio_sdpo.experiments.engine.grid import GridOptions, Outcome
from portfolio_sdpo.experiments.statistics.evidence import Evidence
from portfolio_sdpo.experiments.stocks.declared import BENCHMARKS, STOCKS, StocksExperiment
from portfolio_sdpo.experiments.stocks.runs import StocksAgentRun, list_backtests, run_stocks, select_backtests
from portfolio_sdpo.experiments.study import Choice, FinishedRuns, Study, Summary, read_versions
from portfolio_sdpo.rl.progress import Board


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

        return summarise_stocks(self.experiment, self.root, *self._filter(runs))

    def render(self, summary: Any) -> RenderableType:
        from portfolio_sdpo.experiments.stocks.report import render_stocks

        return render_stocks(summary)

    def describe(self, members: Sequence[Any]) -> RenderableType:
        from portfolio_sdpo.experiments.stocks.report import describe_stocks

        return describe_stocks(self.experiment)

    def evidence(self, runs: FinishedRuns) -> Evidence:
        from portfolio_sdpo.experiments.stocks.summary import stocks_evidence

        return stocks_evidence(self.experiment, self.root, *self._filter(runs))

    def draw(self, runs: FinishedRuns | None = None) -> list[Path]:
        from portfolio_sdpo.experiments.stocks.figures import make_stocks_figures

        return make_stocks_figures(self.experiment, self.root, *self._filter(runs))

    def size(self) -> dict[str, str]:
        experiment = self.experiment
        agent = experiment.algorithms[experiment.shown[0]]
        horizon = agent.limit.horizon
        return {
            "runs of each algorithm": str(len(experiment.seeds)),
            "problem": f"nine stocks and cash, {experiment.start} to {experiment.end}, the last {horizon} sessions "
            "replayed",
            "batch": f"{agent.episodes * horizon:,} steps",
            "length": f"{agent.further} updates a day",
        }

    def versions(self, runs: FinishedRuns) -> list[str]:
        return read_versions(each.folder for each in select_backtests(self.experiment, self.root, *self._filter(runs)))

    def _apply(self, choice: Choice) -> StocksExperiment:
        return self.experiment.with_changes(
            iterations=choice.iterations, seeds=choice.seeds, algorithms=choice.algorithms
        )

    def _filter(self, runs: FinishedRuns | None) -> tuple[Collection[str] | None, Collection[int] | None]:
        """Labels and seeds to be read; None for all that the folder holds."""
        if runs is not None:
            return runs.names, self.experiment.seeds
        return self.choice.algorithms, self.choice.seeds


STUDIES = {STOCKS.name: StocksStudy(STOCKS)}
