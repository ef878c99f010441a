"""What the runs of a Safety Gym experiment have shown: return and cost at equal steps and at the end.

All of it is of the episodes that the learner itself went through, undiscounted, as the public figures are. Return and
risk at a number of steps are means of the last iterations up to it; the share of iterations over the bound, the
worst excess and the cumulated cost are of all iterations up to it.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from portfolio_sdpo.experiments.engine.folders import experiment_folder, write_json
from portfolio_sdpo.experiments.safety.experiment import SafetyExperiment
from portfolio_sdpo.experiments.safety.published import PUBLIC, PublicFigure
from portfolio_sdpo.experiments.safety.records import RunLog, find_runs, hash_declared
from portfolio_sdpo.experiments.safety.standings import LAST, Standing, find_standing, measure_excess
from portfolio_sdpo.experiments.statistics.evidence import SCORE, SPEED, Evidence, RunEvidence, SeedStatistics
from portfolio_sdpo.experiments.tables import Spread


@dataclass(frozen=True)
class SafetyRunSummary:
    """One run that is done."""

    label: str
    seed: int
    equal: Standing
    """at the steps that all runs have"""
    end: Standing
    steps_per_second: float | None


@dataclass(frozen=True)
class AlgorithmStanding:
    """Where an algorithm stands, over its seeds."""

    steps: int
    episode_return: Spread | None
    risks: tuple[dict[str, Spread | float | None], ...]
    """by constraint, the fields of `StandingRisk`; the worst excess is the worst of all seeds"""


@dataclass(frozen=True)
class SafetyAlgorithmSummary:
    """An algorithm over all of its seeds."""

    seeds: tuple[int, ...]
    equal: AlgorithmStanding
    end: AlgorithmStanding
    steps_per_second: Spread | None


@dataclass(frozen=True)
class SafetySummary:
    """An experiment's results, as far as they are there."""

    experiment: str
    title: str
    constraints: tuple[str, ...]
    equal_steps: int | None
    """that all runs have; None if no run is done"""
    algorithms: dict[str, SafetyAlgorithmSummary]
    runs: tuple[SafetyRunSummary, ...]
    statistics: SeedStatistics | None = None
    """at the steps that all runs have"""
    public: tuple[PublicFigure, ...] = ()
    """others' results, for comparison"""
    unfinished: dict[str, Standing | None] = field(default_factory=dict)
    """run → where it stands, None before its first iteration is saved"""
    failures: dict[str, str] = field(default_factory=dict)
    """run → message"""
    outdated: tuple[str, ...] = ()
    """runs made with other settings than the experiment declares now"""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def summarise_safety(
    experiment: SafetyExperiment, root: Path | None = None, only: Collection[str] | None = None
) -> SafetySummary:
    """What the experiment's folder holds (or of it `only` the runs of these names).

    Where there are run folders it is also written to `summary.json` beside them.
    """
    root = root or experiment_folder(experiment.name)
    constraints = experiment.problem.constraints
    found = find_runs(experiment, root, only)
    finished = _finished(found)
    equal = min((int(run.rows[-1]["total_steps"]) for run in finished), default=None)
    runs = tuple(
        SafetyRunSummary(
            label=run.label,
            seed=run.seed,
            equal=find_standing(constraints, run.rows, equal),
            end=find_standing(constraints, run.rows),
            steps_per_second=run.steps_per_second,
        )
        for run in finished
    )
    labels = [*experiment.algorithms, *sorted({run.label for run in runs} - set(experiment.algorithms))]
    summary = SafetySummary(
        experiment=experiment.name,
        title=experiment.title,
        constraints=tuple(constraint.name for constraint in constraints),
        equal_steps=equal,
        algorithms={
            label: _summarise_algorithm(own) for label in labels if (own := [run for run in runs if run.label == label])
        },
        runs=runs,
        statistics=SeedStatistics.of(evidence_of(experiment, finished)),
        public=() if experiment.world.terminal_hazards else PUBLIC.get(experiment.world.task, ()),
        unfinished={
            run.name: find_standing(constraints, run.rows) if run.rows else None
            for run in found
            if not run.finished and run.failure is None
        },
        failures={run.name: run.failure for run in found if run.failure is not None},
        outdated=tuple(run.name for run in found if _outdated(experiment, run)),
    )
    if any((root / run.name).is_dir() for run in found):
        write_json(root / "summary.json", summary.to_json())
    return summary


def collect_safety_evidence(
    experiment: SafetyExperiment, root: Path | None = None, only: Collection[str] | None = None
) -> Evidence:
    """What the finished runs say, at the steps that all of them have."""
    return evidence_of(experiment, _finished(find_runs(experiment, root or experiment_folder(experiment.name), only)))


def _finished(found: Sequence[RunLog]) -> list[RunLog]:
    """Seed by seed."""
    return sorted((run for run in found if run.finished), key=lambda run: (run.seed, run.label))


def evidence_of(experiment: SafetyExperiment, finished: Sequence[RunLog]) -> Evidence:
    """What these runs say, at the steps that all of them have."""
    constraints, task = experiment.problem.constraints, experiment.world.task
    equal = min((float(run.rows[-1]["total_steps"]) for run in finished), default=0.0)
    order = [*experiment.algorithms, *sorted({run.label for run in finished} - set(experiment.algorithms))]
    runs = []
    for run in sorted(finished, key=lambda run: (order.index(run.label), run.seed)):
        counted = [row for row in run.rows if float(row["total_steps"]) <= equal]
        returns = [float(row["episode_return"]) for row in counted]
        figures = {SCORE: statistics.fmean(returns[-LAST:]), SPEED: statistics.fmean(returns)}
        excess = []
        for index, constraint in enumerate(constraints):
            risks = [float(row[f"risk_empirical_{index}"]) for row in counted]
            end = statistics.fmean(risks[-LAST:])
            beyond = np.array([measure_excess(constraint, risk) for risk in risks])
            excess.append(beyond)
            figures |= {
                f"slack_{index}": constraint.slack(end),
                f"inside_{index}": float((beyond == 0).mean()),
                f"settled_{index}": -statistics.fmean(abs(risk - end) for risk in risks),
            }
        runs.append(RunEvidence(run.label, task, run.seed, figures, tuple(excess)))
    last = f"last {LAST} iterations"
    named = [(index, constraint.name) for index, constraint in enumerate(constraints)]
    return Evidence(
        figures={
            SCORE: f"return of an episode, {last}",
            SPEED: "return of an episode, mean of all iterations",
            **{f"slack_{i}": f"distance inside the bound, {last} ({name})" for i, name in named},
            **{f"inside_{i}": f"share of iterations inside the bound ({name})" for i, name in named},
            **{f"settled_{i}": f"mean distance from where it ends, less is better ({name})" for i, name in named},
        },
        constraints=tuple(constraint.name for constraint in constraints),
        stratum="task",
        runs=tuple(runs),
    )


def _summarise_algorithm(runs: Sequence[SafetyRunSummary]) -> SafetyAlgorithmSummary:
    return SafetyAlgorithmSummary(
        seeds=tuple(run.seed for run in runs),
        equal=average_standings([run.equal for run in runs]),
        end=average_standings([run.end for run in runs]),
        steps_per_second=Spread.of(run.steps_per_second for run in runs),
    )


def average_standings(standings: Sequence[Standing]) -> AlgorithmStanding:
    """Over seeds; the steps are those of the shortest run."""
    risks: list[dict[str, Spread | float | None]] = [
        {
            "risk": Spread.of(risk.risk for risk in each),
            "breaks": Spread.of(risk.breaks for risk in each),
            "worst_excess": max(risk.worst_excess for risk in each),
            "cumulated": Spread.of(risk.cumulated for risk in each),
        }
        for each in zip(*(standing.risks for standing in standings), strict=True)
    ]
    return AlgorithmStanding(
        steps=min(standing.steps for standing in standings),
        episode_return=Spread.of(standing.episode_return for standing in standings),
        risks=tuple(risks),
    )


def _outdated(experiment: SafetyExperiment, run: RunLog) -> bool:
    """Whether anything but the length differs from what is declared."""
    if run.label not in experiment.algorithms or run.digest is None:
        return False
    return run.digest != hash_declared(experiment, run.label)
