"""All tasks of question (B) at once, in the field's own measures: what is there, what is missing, who is ahead.

Of every task and algorithm, over the seeds that are finished, besides return, cost and violations at the end of the
runs, the three figures of Ray et al. (2019), each a share of what PPO has on the same task at the same steps:

    return       J_r / J_r(PPO)
    violation    max(0, J_c − d) / max(ε, J_c(PPO) − d)
    cost rate    ρ_c / ρ_c(PPO), ρ_c the cost of a step over all of training
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from portfolio_sdpo.envs.safety.tasks import TASKS
from portfolio_sdpo.errors import RunError, SettingsError
from portfolio_sdpo.experiments.safety.declared import SAFETY_EXPERIMENTS, find_safety_experiment
from portfolio_sdpo.experiments.safety.experiment import SafetyExperiment
from portfolio_sdpo.experiments.safety.published import PublicFigure, best_within
from portfolio_sdpo.experiments.safety.records import RunLog, find_runs
from portfolio_sdpo.experiments.safety.standings import Standing, find_standing
from portfolio_sdpo.experiments.safety.summary import AlgorithmStanding, average_standings, evidence_of
from portfolio_sdpo.experiments.statistics.evidence import Evidence, SeedStatistics, merge_evidence

VARIANTS = ("short", "suite")
LABELS = ("ppo", "ppo-lagrangian", "ipo", "cpo", "pcpo", "sdpo")
"""The algorithms of the grid, in the order of its tables."""
AHEAD, BEHIND, BEYOND = "at or above", "below", "beyond the bound"
LEAST = 1e-3
"""By which a violation is divided at least (ε)."""


@dataclass(frozen=True)
class NormalisedFigures:
    """Shares of what PPO has on the same task."""

    episode_return: float
    violation: float
    cost_rate: float


@dataclass(frozen=True)
class TaskResult:
    """One algorithm on one task."""

    label: str
    seeds: tuple[int, ...]
    end: AlgorithmStanding
    normalised: NormalisedFigures | None
    """at the steps that these runs and PPO's all have; None without PPO"""


@dataclass(frozen=True, eq=False)
class TaskOverview:
    """One task."""

    experiment: SafetyExperiment
    runs: dict[str, list[RunLog]]
    """label of the grid → finished runs"""
    results: tuple[TaskResult, ...]
    missing: tuple[str, ...]
    """labels of the grid without a finished run"""
    published: PublicFigure | None
    """the best within the bound"""

    @property
    def verdict(self) -> str | None:
        """How SDPO stands beside the best published figure within the bound; None where one of them is missing."""
        ours = self.runs.get("sdpo")
        if not ours or self.published is None:
            return None
        constraints = self.experiment.problem.constraints
        ends = [find_standing(constraints, run.rows) for run in ours]
        if fmean(end.risks[0].risk for end in ends) > constraints[0].bound:
            return BEYOND
        return AHEAD if fmean(end.episode_return for end in ends) >= self.published.episode_return else BEHIND


@dataclass(frozen=True, eq=False)
class SafetyOverview:
    """All tasks of a variant."""

    variant: str
    tasks: tuple[TaskOverview, ...]
    statistics: SeedStatistics | None
    """of scores as shares of PPO's, on the tasks that have a run of it"""

    @property
    def ahead(self) -> tuple[int, int]:
        """On how many tasks SDPO is within the bound and at or above what is published, and of how many this is known.

        Known: SDPO has a run, and somebody has published a result within the bound.
        """
        verdicts = [task.verdict for task in self.tasks if task.verdict is not None]
        return verdicts.count(AHEAD), len(verdicts)

    @property
    def finished(self) -> int:
        """Number of pairs of task and algorithm with a finished run."""
        return sum(len(task.results) for task in self.tasks)

    @property
    def wanted(self) -> int:
        """Number of all pairs."""
        return len(self.tasks) * len(LABELS)


def find_grid_label(experiment: SafetyExperiment, label: str) -> str | None:
    """The label of the grid that a label of the experiment stands for; None for runs beside the grid.

    On the first task the grid's SDPO has another name, since `sdpo` was run there before it began at rest.
    """
    if "sdpo-backup" in experiment.algorithms and label in ("sdpo", "sdpo-backup"):
        return "sdpo" if label == "sdpo-backup" else None
    return label if label in LABELS else None


def summarise_tasks(variant: str, home: Path) -> SafetyOverview:
    """Every task of the variant, from records or run folders in `home`."""
    if variant not in VARIANTS:
        raise SettingsError(f"variant: there is no {variant!r}; choose one of {', '.join(VARIANTS)}.")
    names = [f"safety-b-{task.lower()}-{variant}" for task in TASKS]
    tasks = [_summarise_task(find_safety_experiment(name), home / name) for name in names if name in SAFETY_EXPERIMENTS]
    if not any(task.results for task in tasks):
        raise RunError(f"{home} holds no finished run of any task yet: start with `portfolio-sdpo experiment list`.")
    parts = [_task_evidence(task) for task in tasks if "ppo" in task.runs and len(task.runs) > 1]
    return SafetyOverview(variant, tuple(tasks), SeedStatistics.of(_merge(parts)) if parts else None)


def _summarise_task(experiment: SafetyExperiment, root: Path) -> TaskOverview:
    try:
        found = [run for run in find_runs(experiment, root) if run.finished]
    except RunError:
        found = []
    runs: dict[str, list[RunLog]] = {}
    for run in found:
        if (label := find_grid_label(experiment, run.label)) is not None:
            runs.setdefault(label, []).append(replace(run, label=label))
    results = tuple(_summarise_label(experiment, label, runs) for label in LABELS if label in runs)
    return TaskOverview(
        experiment=experiment,
        runs=runs,
        results=results,
        missing=tuple(label for label in LABELS if label not in runs),
        published=best_within(experiment.world.task),
    )


def _summarise_label(experiment: SafetyExperiment, label: str, runs: dict[str, list[RunLog]]) -> TaskResult:
    constraints = experiment.problem.constraints
    return TaskResult(
        label=label,
        seeds=tuple(run.seed for run in runs[label]),
        end=average_standings([find_standing(constraints, run.rows) for run in runs[label]]),
        normalised=_normalise(experiment, runs[label], runs["ppo"]) if "ppo" in runs else None,
    )


def _normalise(experiment: SafetyExperiment, ours: Sequence[RunLog], ppo: Sequence[RunLog]) -> NormalisedFigures:
    """Of the first constraint, the only one of question (B)."""
    constraints = experiment.problem.constraints
    bound = constraints[0].bound
    steps = min(int(run.rows[-1]["total_steps"]) for run in (*ours, *ppo))
    here, there = ([find_standing(constraints, run.rows, steps) for run in runs] for runs in (ours, ppo))

    def mean(standings: Sequence[Standing], name: str) -> float:
        return fmean(getattr(each.risks[0], name) for each in standings)

    reward = fmean(each.episode_return for each in there)
    return NormalisedFigures(
        episode_return=fmean(each.episode_return for each in here) / (reward if abs(reward) > LEAST else LEAST),
        violation=max(0.0, mean(here, "risk") - bound) / max(LEAST, mean(there, "risk") - bound),
        cost_rate=mean(here, "cumulated") / max(LEAST, mean(there, "cumulated")),
    )


def _task_evidence(task: TaskOverview) -> Evidence:
    finished = [run for label in LABELS for run in task.runs.get(label, ())]
    return evidence_of(task.experiment, finished)


def _merge(parts: Sequence[Evidence]) -> Evidence:
    """Of a single task too as shares of PPO's."""
    return merge_evidence([*parts, replace(parts[0], runs=())])


def describe_overview(overview: SafetyOverview) -> dict[str, Any]:
    """The same for other programs."""
    from dataclasses import asdict

    return {
        "variant": overview.variant,
        "finished": overview.finished,
        "wanted": overview.wanted,
        "tasks": {
            task.experiment.world.task: {
                "experiment": task.experiment.name,
                "results": [asdict(result) for result in task.results],
                "missing": list(task.missing),
                "published": None if task.published is None else asdict(task.published),
                "sdpo_beside_published": task.verdict,
            }
            for task in overview.tasks
        },
        "statistics": None if overview.statistics is None else asdict(overview.statistics),
    }
