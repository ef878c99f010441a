"""The studies on Safety Gym: their runs, the folders of these, and how one is made, if asked for with worker processes.

<home>/experiments/<experiment>/<label>-<seed>/
    config.json, metrics.parquet, checkpoint-*.safetensors     the trainer's
    final.json                                                 the run is done, and how fast it was
    failure.json                                               instead of it: why it failed

What the log of every iteration has besides the algorithm's columns, all of them plain sums without a discount, as
the public figures are:

    episode_return            mean over the episodes that the environment ended, or all if it ended none
    episode_<signal>          the same of every signal that a constraint bounds
    episode_length
    over_<i>                  share of these episodes whose own sum is beyond the bound of constraint i
    batch_<signal>            sum over the whole batch
    total_steps               of the environments since the beginning
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Unpack

from gymnasium.vector import VectorEnv
from rich.console import RenderableType

from portfolio_sdpo.experiments.engine.folders import experiment_folder, read_json
from portfolio_sdpo.experiments.engine.grid import GridOptions, Outcome, Run, Stage, run_grid
from portfolio_sdpo.experiments.safety.declared import SAFETY_EXPERIMENTS
from portfolio_sdpo.experiments.safety.experiment import SafetyExperiment, WorldSettings
from portfolio_sdpo.experiments.statistics.evidence import Evidence
from portfolio_sdpo.experiments.study import Choice, FinishedRuns, Study, Summary
from portfolio_sdpo.rl import Problem, Rollout, Trainer, TrainSettings
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.progress import Board
from portfolio_sdpo.rl.trainer import Watcher, worker_collector


@dataclass(frozen=True)
class SafetyRun(Run):
    """One algorithm with one seed."""

    experiment: SafetyExperiment
    label: str
    seed: int
    root: Path

    @property
    def name(self) -> str:
        return f"{self.label}-{self.seed}"

    @property
    def total(self) -> int:
        return self.experiment.iterations_of(self.label)

    def identity(self) -> dict[str, Any]:
        return {"label": self.label, "seed": self.seed}

    def settings(self) -> TrainSettings:
        """Everything about the run."""
        experiment, world = self.experiment, self.experiment.world
        parts = [world.task, f"horizon={world.horizon}"]
        parts += ["terminal_hazards"] if world.terminal_hazards else []
        parts += [f"vases={world.vases}"] if world.vases else []
        parts += [name for name in ("near", "folded", "proportional") if getattr(world, name)]
        return TrainSettings(
            problem=experiment.problem_of(self.label),
            algorithm=experiment.algorithms[self.label],
            iterations=self.total,
            steps=world.horizon,
            seed=self.seed,
            count=experiment.episodes,
            lane=experiment.lane,
            overlap=experiment.overlap,
            environment=f"safety-gymnasium 1.0.0: {', '.join(parts)}; budgets are undiscounted sums over an episode",
            checkpoint_every=experiment.checkpoint_every,
            tensorboard=experiment.tensorboard,
        )

    def details(self) -> dict[str, Any]:
        return self.settings().model_dump(mode="json")

    def results(self) -> dict[str, Any]:
        record = read_json(self.folder / "final.json")
        return {name: value for name, value in record.items() if name not in self.identity()}

    def is_done(self) -> bool:
        return self.has_started(self.settings()) and (self.folder / "final.json").exists()


def list_safety_runs(experiment: SafetyExperiment, root: Path | None = None) -> list[SafetyRun]:
    """Every run of the grid, seed by seed, so that an interrupted grid has whole comparisons."""
    folder = root or experiment_folder(experiment.name)
    return [SafetyRun(experiment, label, seed, folder) for seed in experiment.seeds for label in experiment.algorithms]


def run_safety(
    experiment: SafetyExperiment,
    *,
    workers: int = 0,
    root: Path | None = None,
    board: Board | None = None,
    **options: Unpack[GridOptions],
) -> list[Outcome]:
    """Run what is not done yet, each run collecting in so many worker processes of its own.

    workers: 0 collects in the run's own process; the result is the same. board: shows the runs while they run.
    Everything else is one of the `GridOptions`: `jobs`, `restart`, ...
    """
    root = root or experiment_folder(experiment.name)
    board = board or Board(experiment.problem.constraints)
    make = partial(train_safety, workers=workers)
    # While its workers collect, the run itself waits.
    return run_grid([Stage(list_safety_runs(experiment, root))], make, board, root, max(1, workers), **options)


def train_safety(run: SafetyRun, watch: Watcher | None = None, workers: int = 0) -> dict[str, Any]:
    """Train in the run's folder, from its checkpoint if there is one, and record how fast it was."""
    settings = run.settings()
    rate = Rate()

    def watch_and_count(row: LogRow) -> None:
        rate.count(row)
        if watch:
            watch(row)

    with worker_collector(settings, make_worlds_factory(run.experiment.world), workers) as collector:
        trainer = Trainer(settings, collector, run.folder, gauge=gauge(run.experiment))
        rate.begin()
        trainer.run(watch_and_count)
    found = {"iterations": trainer.iteration, "workers": workers, "steps_per_second": rate.mean()}
    run.mark_done(**found)
    return {**found, "last": trainer.rows[-1]}


def make_worlds_factory(world: WorldSettings) -> Callable[[int], VectorEnv]:
    """Number of robots → that many worlds in lockstep; picklable."""
    return partial(_make_worlds, world=world)


def _make_worlds(count: int, world: WorldSettings) -> VectorEnv:
    from portfolio_sdpo.envs.safety.env import SafetyVectorEnv  # needs the suite

    return SafetyVectorEnv(count, world.task, **world.options())


def gauge(experiment: SafetyExperiment) -> Callable[[Rollout, int], dict[str, float]]:
    """A function that reads the columns above from a rollout."""
    return partial(_read, problem=experiment.problem, batch=experiment.batch)


def _read(rollout: Rollout, iteration: int, problem: Problem, batch: int) -> dict[str, float]:
    # An episode that the batch's end cut off is no episode; the one that comes instead of it is one that ended early,
    # so where hazards end episodes this counts rather too many of those.
    whole = rollout.whole()
    row = {"episode_return": whole.returns("reward", 1.0).mean().item()}
    for name in problem.signals()[1:]:
        row[f"episode_{name}"] = whole.returns(name, 1.0).mean().item()
        row[f"batch_{name}"] = rollout.signals[name].double().sum().item()
    for index, constraint in enumerate(problem.constraints):
        beyond = constraint.slack(whole.returns(constraint.signal, 1.0)) < 0
        row[f"over_{index}"] = beyond.float().mean().item()
    return row | {"episode_length": len(whole) / whole.episodes, "total_steps": float((iteration + 1) * batch)}


class Rate:
    """Steps per second, updates included; for a run that was interrupted, since it resumed."""

    def __init__(self) -> None:
        self._steps, self._begun, self._ended = 0.0, 0.0, 0.0

    def begin(self) -> None:
        self._begun = time.perf_counter()

    def count(self, row: LogRow) -> None:
        self._steps += float(row["steps"])
        self._ended = time.perf_counter()

    def mean(self) -> float | None:
        """None before the first iteration."""
        return self._steps / (self._ended - self._begun) if self._steps else None


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
        return list_safety_runs(self.experiment, self.root)

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
        from portfolio_sdpo.experiments.safety.summary import collect_safety_evidence

        return collect_safety_evidence(self.experiment, self.root, runs.names)

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
