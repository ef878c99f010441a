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

from portfolio_sdpo.experiments.engine.folders import experiment_folder, find_run_folders, read_json, write_json
from portfolio_sdpo.experiments.safety.experiment import SafetyExperiment
from portfolio_sdpo.experiments.safety.runs import SafetyRun
from portfolio_sdpo.experiments.statistics.evidence import SCORE, SPEED, Evidence, RunEvidence, SeedStatistics
from portfolio_sdpo.experiments.tables import Spread
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.metrics import LogRow, read_config, read_rows

LAST = 5
"""Iterations over which return and risk are averaged."""
ROUNDING = 1e-6
"""Share of the bound by which a risk may pass it: logged in single precision, 1 episode of 10 is 0.1000000015."""


@dataclass(frozen=True)
class PublicFigure:
    """A published result on the same task under the same bound of 25."""

    algorithm: str
    episode_return: float
    episode_cost: float
    steps: int
    source: str


_TABLES = "public tables"
_OMNISAFE = "OmniSafe, its defaults, one seed, two cores"
PUBLIC = {
    "PointGoal1": (
        PublicFigure("PPO", 25.4, 55.7, 10_000_000, _TABLES),
        PublicFigure("CPO", 20.5, 28.8, 10_000_000, _TABLES),
        PublicFigure("PCPO", 18.6, 23.0, 10_000_000, _TABLES),
        PublicFigure("TRPO-PID", 19.2, 21.4, 10_000_000, _TABLES),
        PublicFigure("PPO", 22.0, 59.0, 500_000, _OMNISAFE),
        PublicFigure("IPO", 2.6, 19.0, 500_000, _OMNISAFE),
        PublicFigure("CPO", 1.9, 24.0, 500_000, _OMNISAFE),
        PublicFigure("PCPO", 3.0, 37.0, 460_000, _OMNISAFE),
    ),
    "PointGoal2": (PublicFigure("CPO", 2.5, 40.8, 10_000_000, _TABLES),),
}
"""Task → what others report for it."""


@dataclass(frozen=True)
class StandingRisk:
    """One constraint in one run, up to some number of steps."""

    risk: float
    """of the last iterations' episodes"""
    breaks: float
    """share of iterations whose own episodes are beyond the bound"""
    worst_excess: float
    """largest distance beyond the bound of any iteration, 0 if there is none"""
    cumulated: float
    """sum of the signal over all steps"""


@dataclass(frozen=True)
class Standing:
    """Where one run stands after some number of steps."""

    steps: int
    episode_return: float
    """of the last iterations' episodes"""
    risks: tuple[StandingRisk, ...]


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
    """What the experiment's folder holds (or of it `only` the runs of these names), also written to `summary.json`."""
    root = root or experiment_folder(experiment.name)
    constraints = experiment.problem.constraints
    logs: dict[tuple[int, str], list[LogRow]] = {}
    rates: dict[tuple[int, str], float | None] = {}
    unfinished: dict[str, Standing | None] = {}
    failures: dict[str, str] = {}
    found = run_folders(experiment, root, only)
    for folder in found:
        log = folder / "metrics.parquet"
        if (folder / "failure.json").exists():
            failures[folder.name] = str(read_json(folder / "failure.json")["message"])
        elif (folder / "final.json").exists():
            final = read_json(folder / "final.json")
            logs[final["seed"], final["label"]] = read_rows(log)
            rates[final["seed"], final["label"]] = final["steps_per_second"]
        else:
            rows = read_rows(log) if log.exists() else []
            unfinished[folder.name] = find_standing(constraints, rows) if rows else None
    equal = min((int(rows[-1]["total_steps"]) for rows in logs.values()), default=None)
    runs = tuple(
        SafetyRunSummary(
            label=label,
            seed=seed,
            equal=find_standing(constraints, rows, equal),
            end=find_standing(constraints, rows),
            steps_per_second=rates[seed, label],
        )
        for (seed, label), rows in sorted(logs.items())
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
        statistics=SeedStatistics.of(_evidence(experiment, logs)),
        public=() if experiment.world.terminal_hazards else PUBLIC.get(experiment.world.task, ()),
        unfinished=unfinished,
        failures=failures,
        outdated=tuple(folder.name for folder in found if _outdated(experiment, folder)),
    )
    write_json(root / "summary.json", summary.to_json())
    return summary


def safety_evidence(
    experiment: SafetyExperiment, root: Path | None = None, only: Collection[str] | None = None
) -> Evidence:
    """What the finished runs say, at the steps that all of them have."""
    logs: dict[tuple[int, str], list[LogRow]] = {}
    for folder in run_folders(experiment, root or experiment_folder(experiment.name), only):
        if (folder / "final.json").exists():
            final = read_json(folder / "final.json")
            logs[final["seed"], final["label"]] = read_rows(folder / "metrics.parquet")
    return _evidence(experiment, logs)


def _evidence(experiment: SafetyExperiment, logs: dict[tuple[int, str], list[LogRow]]) -> Evidence:
    constraints, task = experiment.problem.constraints, experiment.world.task
    equal = min((float(rows[-1]["total_steps"]) for rows in logs.values()), default=0.0)
    order = [*experiment.algorithms, *sorted({label for _, label in logs} - set(experiment.algorithms))]
    runs = []
    for (seed, label), rows in sorted(logs.items(), key=lambda item: (order.index(item[0][1]), item[0][0])):
        counted = [row for row in rows if float(row["total_steps"]) <= equal]
        returns = [float(row["episode_return"]) for row in counted]
        figures = {SCORE: statistics.fmean(returns[-LAST:]), SPEED: statistics.fmean(returns)}
        excess = []
        for index, constraint in enumerate(constraints):
            risks = [float(row[f"risk_empirical_{index}"]) for row in counted]
            end = statistics.fmean(risks[-LAST:])
            beyond = np.array([_excess(constraint, risk) for risk in risks])
            excess.append(beyond)
            figures |= {
                f"slack_{index}": constraint.slack(end),
                f"inside_{index}": float((beyond == 0).mean()),
                f"settled_{index}": -statistics.fmean(abs(risk - end) for risk in risks),
            }
        runs.append(RunEvidence(label, task, seed, figures, tuple(excess)))
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


def run_folders(experiment: SafetyExperiment, root: Path, only: Collection[str] | None = None) -> list[Path]:
    """Folders of runs, finished or not; a `RunError` if there are none."""
    return find_run_folders(root, "*-*", experiment.name, only)


def find_standing(constraints: Sequence[Constraint], rows: Sequence[LogRow], steps: int | None = None) -> Standing:
    """Where a log stands after so many steps, or at its end."""
    counted = [row for row in rows if steps is None or float(row["total_steps"]) <= steps]
    last = counted[-LAST:]
    risks = []
    for index, constraint in enumerate(constraints):
        sampled = [float(row[f"risk_empirical_{index}"]) for row in counted]
        excess = [_excess(constraint, risk) for risk in sampled]
        risks.append(
            StandingRisk(
                risk=statistics.fmean(sampled[-LAST:]),
                breaks=sum(each > 0 for each in excess) / len(excess),
                worst_excess=max(excess),
                cumulated=sum(float(row[f"batch_{constraint.signal}"]) for row in counted),
            )
        )
    return Standing(
        steps=int(counted[-1]["total_steps"]),
        episode_return=statistics.fmean(float(row["episode_return"]) for row in last),
        risks=tuple(risks),
    )


def _excess(constraint: Constraint, risk: float) -> float:
    """How far beyond the bound a risk is, 0 if it is not."""
    beyond = -constraint.slack(risk)
    return beyond if beyond > ROUNDING * abs(constraint.bound) else 0.0


def _summarise_algorithm(runs: Sequence[SafetyRunSummary]) -> SafetyAlgorithmSummary:
    return SafetyAlgorithmSummary(
        seeds=tuple(run.seed for run in runs),
        equal=_average_standings([run.equal for run in runs]),
        end=_average_standings([run.end for run in runs]),
        steps_per_second=Spread.of(run.steps_per_second for run in runs),
    )


def _average_standings(standings: Sequence[Standing]) -> AlgorithmStanding:
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


def _outdated(experiment: SafetyExperiment, folder: Path) -> bool:
    """Whether anything but the length differs from what is declared."""
    label = folder.name.rpartition("-")[0]
    if label not in experiment.algorithms or not (folder / "config.json").exists():
        return False
    found = read_config(folder / "config.json")["settings"]
    declared = SafetyRun(experiment, label, 0, folder.parent).settings().model_dump(mode="json")
    names = ("problem", "algorithm", "steps", "count", "lane", "overlap", "environment")
    return any(found[name] != declared[name] for name in names)
