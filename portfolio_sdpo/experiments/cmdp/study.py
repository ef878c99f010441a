"""The studies on random CMDPs: their runs, the folders of these, and how one is made.

<home>/experiments/<experiment>/<label>-<CMDP seed>-<run seed>/
    config.json, metrics.parquet, checkpoint-*.safetensors     the trainer's
    final.json                                                 what the trained policy is worth; the run is done
    evaluation.npy                                             its returns on fresh episodes
    failure.json                                               instead of the two above: why it failed

A grid has two stages: first the feasible starts, if the experiment has any, then the algorithms, and after them the
references that their results are measured against.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray
from rich.console import RenderableType

from portfolio_sdpo.envs import Cmdp, RandomCmdpVectorEnv
from portfolio_sdpo.errors import InfeasibleConstraintError, RunError
from portfolio_sdpo.experiments.cmdp.declared import CMDP_EXPERIMENTS
from portfolio_sdpo.experiments.cmdp.experiment import USUAL_FRESH_EPISODES, CmdpExperiment, CmdpSettings
from portfolio_sdpo.experiments.cmdp.probe import Probe
from portfolio_sdpo.experiments.cmdp.references import digest, has_references, make_references
from portfolio_sdpo.experiments.engine.folders import experiment_folder, read_json, write_content
from portfolio_sdpo.experiments.engine.grid import GridOptions, Outcome, Run, Stage, run_grid
from portfolio_sdpo.experiments.statistics.evidence import Evidence
from portfolio_sdpo.experiments.study import Choice, FinishedRuns, Study, Summary
from portfolio_sdpo.rl import Trainer, TrainSettings, checkpoint
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.progress import Board
from portfolio_sdpo.rl.rollout import Purpose
from portfolio_sdpo.rl.trainer import Watcher

START = "start"
"""Label of the runs that find the feasible start."""


@dataclass(frozen=True)
class CmdpRun(Run):
    """One algorithm on one CMDP with one seed; picklable, so that a worker process can run it."""

    experiment: CmdpExperiment
    label: str
    cmdp_seed: int
    seed: int
    root: Path
    """The experiment's folder."""

    @property
    def name(self) -> str:
        return f"{self.label}-{self.cmdp_seed}-{self.seed}"

    @property
    def total(self) -> int:
        safe_start = self.experiment.safe_start
        return safe_start.iterations if safe_start and self.label == START else self.experiment.iterations

    @property
    def prerequisites(self) -> tuple[CmdpRun, ...]:
        return () if self.start is None else (self.start,)

    @property
    def start(self) -> CmdpRun | None:
        """The run that finds this one's feasible start."""
        if self.experiment.safe_start is None or self.label == START:
            return None
        return CmdpRun(self.experiment, START, self.cmdp_seed, self.seed, self.root)

    @property
    def episodes(self) -> int:
        """Per iteration."""
        safe_start = self.experiment.safe_start
        return safe_start.episodes if safe_start and self.label == START else self.experiment.episodes

    def settings(self, cmdp: Cmdp) -> TrainSettings:
        """Everything about the run; the feasible start has to be there already."""
        experiment, safe_start = self.experiment, self.experiment.safe_start
        shared: dict[str, Any] = {
            "steps": experiment.cmdp.horizon,
            "seed": self.seed,
            "environment": self._environment(cmdp),
            "checkpoint_every": experiment.checkpoint_every,
            "tensorboard": experiment.tensorboard,
        }
        if safe_start is not None and self.label == START:
            tight = tuple(
                constraint.model_copy(update={"bound": bound, "name": f"{constraint.name} (phase I: {bound:g})"})
                for constraint, bound in zip(experiment.problem.constraints, safe_start.bounds, strict=True)
            )
            return TrainSettings(
                problem=experiment.problem.model_copy(update={"constraints": tight}),
                algorithm=safe_start.algorithm,
                iterations=safe_start.iterations,
                **shared,
            )
        if self.start is not None:
            found = checkpoint.checkpoints(self.start.folder)
            if not found:
                raise RunError(f"{self.start.folder} has no checkpoint: run the experiment again to make it.")
            shared["start"] = found[-1]
        return TrainSettings(
            problem=experiment.problem_of(self.label),
            algorithm=experiment.algorithms[self.label],
            iterations=experiment.iterations,
            **shared,
        )

    def _environment(self, cmdp: Cmdp) -> str:
        """What makes the log what it is and is in no other setting."""
        tables, safe_start = self.experiment.cmdp, self.experiment.safe_start
        text = (
            f"random_cmdp({tables.states}, {tables.actions}, seed={self.cmdp_seed}, "
            f"noise_scale={tables.noise_scale:g}, horizon={tables.horizon}) x {self.episodes}, tables {digest(cmdp)}"
        )
        if safe_start is not None and self.label == START:
            return f"{text}, tried on {safe_start.fresh_episodes}"
        # The usual number is left out: the fingerprint of a run depends on this text and must not change.
        fresh = self.experiment.fresh_episodes
        return text if fresh == USUAL_FRESH_EPISODES else f"{text}, probed on {fresh}"

    def is_done(self) -> bool:
        if not (self.folder / "config.json").exists() or (self.start is not None and not self.start.is_done()):
            return False
        started = self.has_started(self.settings(_draw(self.experiment.cmdp, self.cmdp_seed)))
        # A start is there for its checkpoint; if that is lost, the run is made again.
        lost = self.label == START and not checkpoint.checkpoints(self.folder)
        return started and (self.folder / "final.json").exists() and not lost

    def record(self, figures: dict[str, float], returns: NDArray[np.float64] | None = None) -> None:
        """Write down what the final policy is worth, which marks the run as done."""
        if returns is not None:
            content = io.BytesIO()
            np.save(content, returns)
            write_content(self.folder / "evaluation.npy", content.getvalue())
        self.mark_done(figures=figures)

    def details(self) -> dict[str, Any]:
        return self.settings(_draw(self.experiment.cmdp, self.cmdp_seed)).model_dump(mode="json")

    def results(self) -> dict[str, Any]:
        return dict(read_json(self.folder / "final.json")["figures"])

    def identity(self) -> dict[str, Any]:
        return {"label": self.label, "cmdp_seed": self.cmdp_seed, "seed": self.seed}


@lru_cache(maxsize=8)
def _draw(tables: CmdpSettings, seed: int) -> Cmdp:
    """The tables of a CMDP, shared by all algorithms that are run on it; they are only read."""
    return tables.draw(seed)


def list_cmdp_runs(experiment: CmdpExperiment, root: Path | None = None) -> list[CmdpRun]:
    """Every run of the grid, seed by seed, so that an interrupted grid has whole comparisons."""
    folder = root or experiment_folder(experiment.name)
    return [
        CmdpRun(experiment, label, cmdp_seed, seed, folder)
        for cmdp_seed, seed in experiment.runs()
        for label in experiment.algorithms
    ]


def run_cmdp(
    experiment: CmdpExperiment,
    *,
    root: Path | None = None,
    board: Board | None = None,
    **options: Unpack[GridOptions],
) -> list[Outcome]:
    """Run what is not done yet, and compute what the results are measured against.

    root: the experiment's folder, by default the user's own. board: shows the runs while they run. Everything else
    is one of the `GridOptions`: `jobs`, `restart`, ...
    """
    folder = root or experiment_folder(experiment.name)
    runs = list_cmdp_runs(experiment, folder)
    starts = list({run.start.name: run.start for run in runs if run.start is not None}.values())
    wanted = dict.fromkeys(run.cmdp_seed for run in runs)
    missing = [seed for seed in wanted if not has_references(experiment, seed, folder)]
    references = [partial(make_references, experiment, seed, folder) for seed in missing]
    board = board or Board(experiment.problem.constraints)
    return run_grid([Stage(starts), Stage(runs, references)], train_cmdp, board, folder, **options)


def train_cmdp(run: CmdpRun, watch: Watcher | None = None) -> dict[str, float]:
    """Train in the run's folder, from its checkpoint if there is one, and record what the policy is worth."""
    experiment = run.experiment
    cmdp = experiment.cmdp.draw(run.cmdp_seed)
    settings, environment = run.settings(cmdp), RandomCmdpVectorEnv(cmdp, run.episodes)
    probe = Probe(cmdp, experiment.problem, run.seed, experiment.fresh_episodes)
    if run.label == START and experiment.safe_start is not None:
        trainer = Trainer(settings, environment, run.folder)
        fresh = Probe(cmdp, settings.problem, run.seed, experiment.safe_start.fresh_episodes, Purpose.PHASE_ONE)
        _phase_one(trainer, fresh, watch)
    else:
        trainer = Trainer(settings, environment, run.folder, probe)
        trainer.run(watch)
    figures, returns = probe.measure(trainer.policy, trainer.iteration)
    run.record(figures, returns)
    return figures


def _phase_one(trainer: Trainer, fresh: Probe, watch: Watcher | None) -> None:
    """Train until the policy is within the (tightened) bounds on fresh episodes."""
    constraints = trainer.settings.problem.constraints

    def worst_slack(figures: Mapping[str, float | str], column: str) -> float:
        return min(constraint.slack(float(figures[f"{column}_{i}"])) for i, constraint in enumerate(constraints))

    def inside() -> bool:
        # Fresh episodes cost time, so only a policy that looks safe on its own few is tried on them.
        looks_safe = bool(trainer.rows) and worst_slack(trainer.rows[-1], "risk_empirical") > 0
        return looks_safe and worst_slack(fresh.sample(trainer.policy, trainer.iteration), "true_risk") > 0

    reached = inside()  # a run that was interrupted after its last iteration

    def watch_for_end(row: LogRow) -> bool:
        nonlocal reached
        if watch:
            watch(row)
        reached = inside()
        return reached

    if not reached:
        trainer.run(watch_for_end)
    if reached:
        return
    best = max(worst_slack(row, "risk_empirical") for row in trainer.rows)
    raise InfeasibleConstraintError(
        f"phase I did not satisfy {' and '.join(repr(constraint.name) for constraint in constraints)} in "
        f"{trainer.settings.iterations} iterations (best slack {best:.4g}): relax the bound or allow more iterations.",
        best_slack=best,
    )


@dataclass(frozen=True)
class CmdpStudy(Study):
    """On random CMDPs."""

    experiment: CmdpExperiment
    domain: ClassVar[str] = "random CMDPs"
    has_cmdps: ClassVar[bool] = True

    def runs(self) -> Sequence[CmdpRun]:
        return list_cmdp_runs(self.experiment, self.root)

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
        from portfolio_sdpo.experiments.cmdp.summary import collect_cmdp_evidence

        return collect_cmdp_evidence(self.experiment, self.root, runs.names)

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
