"""The studies on Safety Gym, whose runs can collect in worker processes of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Unpack

from rich.console import RenderableType

from portfolio_sdpo.experiments.engine.grid import GridOptions, Outcome
from portfolio_sdpo.experiments.safety.declared import SAFETY_EXPERIMENTS
from portfolio_sdpo.experiments.safety.experiment import SafetyExperiment
from portfolio_sdpo.experiments.safety.runs import SafetyRun, run_safety, safety_runs
from portfolio_sdpo.experiments.statistics.evidence import Evidence
from portfolio_sdpo.experiments.study import Choice, FinishedRuns, Study, Summary
from portfolio_sdpo.rl.progress import Board


@dataclass(frozen=True)
class SafetyStudy(Study):
    """On Safety Gym."""

    experiment: SafetyExperiment
    domain: ClassVar[str] = "Safety Gym"
    has_workers: ClassVar[bool] = True

    @property
    def group(self) -> str:
        return self.name.replace(self.experiment.world.task.lower(), "<task>")

    def runs(self) -> Sequence[SafetyRun]:
        return safety_runs(self.experiment, self.root)

    def run(self, board: Board | None = None, **options: Unpack[GridOptions]) -> list[Outcome]:
        workers = self.choice.workers or 0
        return run_safety(self.experiment, workers=workers, root=self.root, board=board, **options)

    def summarise(self, runs: FinishedRuns | None = None) -> Summary:
        from portfolio_sdpo.experiments.safety.summary import summarise_safety

        return summarise_safety(self.experiment, self.root, self._names(runs))

    def render(self, summary: Any) -> RenderableType:
        from portfolio_sdpo.experiments.safety.report import render_safety

        return render_safety(summary)

    def describe(self, members: Sequence[Any]) -> RenderableType:
        from portfolio_sdpo.experiments.safety.report import describe_safety

        return describe_safety([study.experiment for study in members], self.group)

    def evidence(self, runs: FinishedRuns) -> Evidence:
        from portfolio_sdpo.experiments.safety.summary import safety_evidence

        return safety_evidence(self.experiment, self.root, runs.names)

    def draw(self, runs: FinishedRuns | None = None) -> list[Path]:
        from portfolio_sdpo.experiments.safety.figures import make_safety_figures

        return make_safety_figures(self.experiment, self.root, self._names(runs), self.output)

    def record(self, out: Path) -> list[Path]:
        from portfolio_sdpo.experiments.safety.records import write_records

        return write_records(self.experiment, self.root, self._names(None), out)

    def size(self) -> dict[str, str]:
        experiment = self.experiment
        ends = ", hazards end the episode" if experiment.world.terminal_hazards else ""
        steps = experiment.iterations * experiment.batch
        return {
            "runs of each algorithm": str(len(experiment.seeds)),
            "problem": f"{experiment.world.task}, {experiment.world.horizon} steps{ends}",
            "batch": f"{experiment.batch:,} steps",
            "length": f"{experiment.iterations} iterations, {steps:,} steps",
        }

    def _apply(self, choice: Choice) -> SafetyExperiment:
        others = {"overlap": True} if choice.overlap else {}
        return self.experiment.with_changes(
            iterations=choice.iterations, seeds=choice.seeds, algorithms=choice.algorithms, **others
        )

    def _names(self, runs: FinishedRuns | None) -> Sequence[str] | None:
        """Names of the runs to be read; None for all that the folder holds."""
        if runs is not None:
            return runs.names
        return [run.name for run in self.runs()] if self.choice.selects else None


STUDIES = {name: SafetyStudy(experiment) for name, experiment in SAFETY_EXPERIMENTS.items()}
