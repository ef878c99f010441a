"""The studies on random CMDPs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Unpack

from rich.console import RenderableType

from portfolio_sdpo.experiments.cmdp.declared import CMDP_EXPERIMENTS
from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment
from portfolio_sdpo.experiments.cmdp.runs import CmdpRun, cmdp_runs, run_cmdp
from portfolio_sdpo.experiments.engine.grid import GridOptions, Outcome
from portfolio_sdpo.experiments.statistics.evidence import Evidence
from portfolio_sdpo.experiments.study import Choice, FinishedRuns, Study, Summary
from portfolio_sdpo.rl.progress import Board


@dataclass(frozen=True)
class CmdpStudy(Study):
    """On random CMDPs."""

    experiment: CmdpExperiment
    domain: ClassVar[str] = "random CMDPs"
    has_cmdps: ClassVar[bool] = True

    def runs(self) -> Sequence[CmdpRun]:
        return cmdp_runs(self.experiment, self.root)

    def run(self, board: Board | None = None, **options: Unpack[GridOptions]) -> list[Outcome]:
        return run_cmdp(self.experiment, root=self.root, board=board, **options)

    def summarise(self, runs: FinishedRuns | None = None) -> Summary:
        from portfolio_sdpo.experiments.cmdp.summary import summarise_cmdp

        return summarise_cmdp(self.experiment, self.root, self._names(runs))

    def render(self, summary: Any) -> RenderableType:
        from portfolio_sdpo.experiments.cmdp.report import render_cmdp

        return render_cmdp(summary)

    def describe(self, members: Sequence[Any]) -> RenderableType:
        from portfolio_sdpo.experiments.cmdp.report import describe_cmdp

        return describe_cmdp(self.experiment)

    def evidence(self, runs: FinishedRuns) -> Evidence:
        from portfolio_sdpo.experiments.cmdp.summary import cmdp_evidence

        return cmdp_evidence(self.experiment, self.root, runs.names)

    def draw(self, runs: FinishedRuns | None = None) -> list[Path]:
        from portfolio_sdpo.experiments.cmdp.figures import make_cmdp_figures

        return make_cmdp_figures(self.experiment, self.root, self._names(runs))

    def size(self) -> dict[str, str]:
        experiment, cmdp = self.experiment, self.experiment.cmdp
        used = list(dict.fromkeys(cmdp_seed for cmdp_seed, _ in experiment.runs()))
        seeds = ", ".join(map(str, used))
        noise = f", reward noise {cmdp.noise_scale:g} r³" if cmdp.noise_scale else ""
        return {
            "runs of each algorithm": f"{len(experiment.seeds)}, on CMDP{'s' * (len(used) > 1)} {seeds}",
            "problem": f"{cmdp.states} states, {cmdp.actions} actions, {cmdp.horizon} steps{noise}",
            "batch": f"{experiment.episodes * cmdp.horizon:,} steps",
            "length": f"{experiment.iterations} iterations",
        }

    def _apply(self, choice: Choice) -> CmdpExperiment:
        return self.experiment.with_changes(
            iterations=choice.iterations,
            seeds=choice.seeds,
            cmdp_seeds=choice.cmdp_seeds,
            algorithms=choice.algorithms,
        )

    def _names(self, runs: FinishedRuns | None) -> Sequence[str] | None:
        """Names of the runs to be read; None for all that the folder holds."""
        if runs is not None:
            return runs.names
        return [run.name for run in self.runs()] if self.choice.selects else None


STUDIES = {name: CmdpStudy(experiment) for name, experiment in CMDP_EXPERIMENTS.items()}
