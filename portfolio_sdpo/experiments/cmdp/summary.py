"""What a grid has shown, in figures: per run, per algorithm over its runs, and next to what could be had.

A bound counts as broken in an iteration if the risk of that iteration's policy lies beyond it, `sampled` on fresh
episodes or by dynamic programming (see `probe`). Iterations of phase I do not count.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment
from portfolio_sdpo.experiments.cmdp.probe import sharp_kind, sharp_objective
from portfolio_sdpo.experiments.cmdp.references import References, read_references
from portfolio_sdpo.experiments.cmdp.study import START
from portfolio_sdpo.experiments.engine.folders import experiment_folder, find_run_folders, read_json, write_json
from portfolio_sdpo.experiments.statistics.evidence import SCORE, SPEED, Evidence, RunEvidence, SeedStatistics
from portfolio_sdpo.experiments.tables import Spread
from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.metrics import LogRow, read_config, read_rows


@dataclass(frozen=True)
class RunRisk:
    """One constraint in one run."""

    final_sampled: float
    """risk of the final policy on fresh episodes"""
    final_sharp: float | None
    """the same, exact or integrated"""
    breaks_sampled: float | None
    """share of iterations whose sampled risk breaks the bound; None if the run never came to phase II"""
    breaks_sharp: float | None
    worst_excess_sampled: float
    """largest distance beyond the bound of any iteration, 0 if there is none"""
    worst_excess_sharp: float | None


@dataclass(frozen=True)
class RunSummary:
    """One run."""

    label: str
    cmdp_seed: int
    seed: int
    iterations: int
    phase_one: int
    """iterations spent on finding the feasible start, of this run's own and of one that was shared"""
    final_return: float
    """exactly"""
    final_objective: float | None
    """the problem's objective, as sharply as it is known; None where it is the expectation"""
    share_of_gain: float | None
    """of what the optimum within the bounds gains over the uniform policy, in the problem's objective"""
    share_from_start: float | None
    """the same over the policy that phase I found for all algorithms; None where all start from the uniform one"""
    suboptimality_bound: float | None
    """Theorem 1: Σ 1/η_i, at most what the barriers cost at their optimum; None where a barrier ended on its tangent,
    of which the theorem says nothing"""
    risks: tuple[RunRisk, ...]


@dataclass(frozen=True)
class AlgorithmSummary:
    """An algorithm over all of its runs."""

    runs: int
    iterations: tuple[int, ...]
    """of its runs, each number once"""
    final_return: Spread | None
    final_objective: Spread | None
    share_of_gain: Spread | None
    share_from_start: Spread | None
    suboptimality_bound: float | None
    """the largest; None unless all runs have one"""
    risks: tuple[dict[str, Spread | float | None], ...]
    """by constraint; the fields of `RunRisk`, the worst excesses as the worst of all runs"""


@dataclass(frozen=True)
class CmdpSummary:
    """An experiment's results, as far as they are there."""

    experiment: str
    title: str
    constraints: tuple[str, ...]
    sharp: tuple[str | None, ...]
    """how the sharp risk of each constraint was found"""
    algorithms: dict[str, AlgorithmSummary]
    references: dict[str, dict[str, Spread | None]]
    """uniform, start (that phase I found), optimum, unconstrained → return, objective, risk_i over these runs"""
    runs: tuple[RunSummary, ...]
    statistics: SeedStatistics | None = None
    unfinished: tuple[str, ...] = ()
    failures: dict[str, str] = field(default_factory=dict)
    """run → message"""
    outdated: tuple[str, ...] = ()
    """runs made with other settings than the experiment declares now"""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def summarise_cmdp(
    experiment: CmdpExperiment, root: Path | None = None, only: Collection[str] | None = None
) -> CmdpSummary:
    """What the experiment's folder holds (or of it `only` the runs of these names), also written to `summary.json`."""
    root = root or experiment_folder(experiment.name)
    found = run_folders(experiment, root, only)
    known = read_references(root)
    runs, unfinished, failures = [], [], {}
    for folder in found:
        if (folder / "failure.json").exists():
            failures[folder.name] = str(read_json(folder / "failure.json")["message"])
        elif not (folder / "final.json").exists():
            unfinished.append(folder.name)
        elif not folder.name.startswith(f"{START}-"):
            runs.append(_run(experiment, folder, known))
    runs.sort(key=lambda run: (run.seed, run.cmdp_seed))
    labels = [*experiment.algorithms, *sorted({run.label for run in runs} - set(experiment.algorithms))]
    references = _over_cmdps([known[seed] for seed in dict.fromkeys(run.cmdp_seed for run in runs) if seed in known])
    if starts := _over_starts(experiment, found):
        references["start"] = starts
    summary = CmdpSummary(
        experiment=experiment.name,
        title=experiment.title,
        constraints=tuple(constraint.name for constraint in experiment.problem.constraints),
        sharp=tuple(_sharp_kind(found, index) for index in range(len(experiment.problem.constraints))),
        algorithms={label: _over_runs(own) for label in labels if (own := [run for run in runs if run.label == label])},
        references=references,
        runs=tuple(runs),
        statistics=SeedStatistics.of(collect_cmdp_evidence(experiment, root, only)),
        unfinished=tuple(unfinished),
        failures=failures,
        outdated=tuple(folder.name for folder in found if _outdated(experiment, folder)),
    )
    write_json(root / "summary.json", summary.to_json())
    return summary


def collect_cmdp_evidence(
    experiment: CmdpExperiment, root: Path | None = None, only: Collection[str] | None = None
) -> Evidence:
    """What the finished runs say: every iteration's policy at its exact return and its sharpest known risk.

    Returns are shares of what the optimum gains over the uniform policy, so that CMDPs compare, or plain returns where
    no optimum is known.
    """
    root = root or experiment_folder(experiment.name)
    constraints = experiment.problem.constraints
    known = read_references(root)
    done = [
        folder
        for folder in run_folders(experiment, root, only)
        if (folder / "final.json").exists() and not folder.name.startswith(f"{START}-")
    ]
    records = [read_json(folder / "final.json") for folder in done]
    to_optimum = all(_share(known, int(record["cmdp_seed"]), 0.0) is not None for record in records)
    runs = []
    for folder, record in zip(done, records, strict=True):
        seed, final = int(record["cmdp_seed"]), record["figures"]
        rows = [row for row in read_rows(folder / "metrics.parquet") if row.get("phase") != 1.0]

        def score(value: float, seed: int = seed) -> float:
            share = _share(known, seed, value) if to_optimum else None
            return value if share is None else share

        figures = {SCORE: score(_read_objective(final))}
        if rows:
            figures[SPEED] = score(statistics.fmean(map(_read_objective, rows)))
        excess = []
        for index, constraint in enumerate(constraints):
            column = f"{sharp_kind(final, index) or 'true'}_risk_{index}"
            figures[f"slack_{index}"] = constraint.slack(final[column])
            beyond = np.array([max(-constraint.slack(float(row[column])), 0.0) for row in rows])
            excess.append(beyond)
            if rows:
                figures[f"inside_{index}"] = float((beyond == 0).mean())
        runs.append(RunEvidence(record["label"], f"CMDP {seed}", int(record["seed"]), figures, tuple(excess)))
    order = list(experiment.algorithms)
    runs.sort(key=lambda run: (order.index(run.label) if run.label in order else len(order), run.label, run.seed))
    plain = "return" if experiment.problem.objective.linear else "objective"
    what = "share of the gain of the best policy within the bound over the uniform one" if to_optimum else plain
    return Evidence(
        figures={
            SCORE: f"{what}, final policy",
            SPEED: f"{what}, mean of all iterations",
            **{f"slack_{i}": f"distance inside the bound, final policy ({c.name})" for i, c in enumerate(constraints)},
            **{f"inside_{i}": f"share of iterations inside the bound ({c.name})" for i, c in enumerate(constraints)},
        },
        constraints=tuple(constraint.name for constraint in constraints),
        stratum="CMDP",
        runs=tuple(runs),
        to_optimum=to_optimum and bool(runs),
    )


def _share(known: dict[int, References], cmdp_seed: int, value: float) -> float | None:
    return known[cmdp_seed].share_of_gain(value) if cmdp_seed in known else None


def _read_objective(figures: Mapping[str, Any]) -> float:
    """The problem's objective, as sharply as it is known."""
    objective = sharp_objective(figures)
    return float(figures["exact_return"]) if objective is None else objective


def run_folders(experiment: CmdpExperiment, root: Path, only: Collection[str] | None = None) -> list[Path]:
    """Folders of runs, finished or not, with those of their feasible starts; a `RunError` if there are none."""
    if only is not None and experiment.safe_start is not None:
        only = {*only, *(f"{START}-{'-'.join(name.rsplit('-', 2)[1:])}" for name in only)}
    return find_run_folders(root, "*-*-*", experiment.name, only)


def summarise_risk(constraint: Constraint, index: int, rows: Sequence[LogRow], final: LogRow) -> RunRisk:
    """One constraint over the rows of a log, those of phase I left out, and at the final policy."""
    counted = [row for row in rows if row.get("phase") != 1.0]
    kind = sharp_kind(final, index)

    def slacks(column: str) -> list[float]:
        return [constraint.slack(float(row[column])) for row in counted]

    def share(values: list[float]) -> float | None:
        return sum(slack < 0 for slack in values) / len(values) if values else None

    def excess(values: list[float]) -> float:
        return max([0.0, *(-slack for slack in values)])

    sampled = slacks(f"true_risk_{index}")
    sharp = slacks(f"{kind}_risk_{index}") if kind else None
    return RunRisk(
        final_sampled=float(final[f"true_risk_{index}"]),
        final_sharp=float(final[f"{kind}_risk_{index}"]) if kind else None,
        breaks_sampled=share(sampled),
        breaks_sharp=None if sharp is None else share(sharp),
        worst_excess_sampled=excess(sampled),
        worst_excess_sharp=None if sharp is None else excess(sharp),
    )


def _run(experiment: CmdpExperiment, folder: Path, known: dict[int, References]) -> RunSummary:
    rows = read_rows(folder / "metrics.parquet")
    record = read_json(folder / "final.json")
    final = record["figures"]
    seed, cmdp_seed = int(record["seed"]), int(record["cmdp_seed"])
    start = _start_of(folder, record)
    shared = len(read_rows(start / "metrics.parquet")) if experiment.safe_start and start.exists() else 0
    started = _read_start(experiment, start)
    return RunSummary(
        label=record["label"],
        cmdp_seed=cmdp_seed,
        seed=seed,
        iterations=len(rows),
        phase_one=shared + sum(row.get("phase") == 1.0 for row in rows),
        final_return=final["exact_return"],
        final_objective=sharp_objective(final),
        share_of_gain=_share(known, cmdp_seed, _read_objective(final)),
        share_from_start=None
        if started is None or cmdp_seed not in known
        else known[cmdp_seed].share_of_gain(_read_objective(final), _read_objective(started)),
        suboptimality_bound=_suboptimality_bound(rows[-1], len(experiment.problem.constraints)),
        risks=tuple(
            summarise_risk(constraint, index, rows, final)
            for index, constraint in enumerate(experiment.problem.constraints)
        ),
    )


def _suboptimality_bound(row: LogRow, constraints: int) -> float | None:
    """Σ 1/η_i of a log's last row, where the condition of Theorem 1 holds: every barrier is at its logarithm."""
    interior = all(row.get(f"regime_{index}", "interior") == "interior" for index in range(constraints))
    return float(row["suboptimality_bound"]) if interior and "suboptimality_bound" in row else None


def _start_of(folder: Path, record: Mapping[str, Any]) -> Path:
    """The folder of the run that found the start of another run."""
    return folder.parent / f"{START}-{record['cmdp_seed']}-{record['seed']}"


def _read_start(experiment: CmdpExperiment, start: Path) -> dict[str, Any] | None:
    """What the policy that phase I found is worth, if all algorithms start from one."""
    if experiment.safe_start is None or not (start / "final.json").exists():
        return None
    return dict(read_json(start / "final.json")["figures"])


def _over_starts(experiment: CmdpExperiment, folders: Sequence[Path]) -> dict[str, Spread | None]:
    """Return, objective and risks of the starts, each once; empty where there are none."""
    starts = [folder for folder in folders if folder.name.startswith(f"{START}-")]
    figures = [found for folder in starts if (found := _read_start(experiment, folder)) is not None]
    if not figures:
        return {}
    risks = {
        f"risk_{index}": Spread.of(found[f"{sharp_kind(found, index) or 'true'}_risk_{index}"] for found in figures)
        for index in range(len(experiment.problem.constraints))
    }
    objectives = [sharp_objective(found) for found in figures]
    return {
        "return": Spread.of(found["exact_return"] for found in figures),
        "objective": Spread.of(objectives) if None not in objectives else None,
        **risks,
    }


def _outdated(experiment: CmdpExperiment, folder: Path) -> bool:
    label = folder.name.rsplit("-", 2)[0]
    if label not in experiment.algorithms or not (folder / "config.json").exists():
        return False
    settings = read_config(folder / "config.json")["settings"]
    declared = {"algorithm": experiment.algorithms[label], "problem": experiment.problem_of(label)}
    return any(settings[name] != value.model_dump(mode="json") for name, value in declared.items())


def _over_runs(runs: Sequence[RunSummary]) -> AlgorithmSummary:
    bounds = [run.suboptimality_bound for run in runs if run.suboptimality_bound is not None]
    risks: list[dict[str, Spread | float | None]] = []
    for risk in zip(*(run.risks for run in runs), strict=True):
        columns = {name: [getattr(one, name) for one in risk] for name in RunRisk.__dataclass_fields__}
        risks.append(
            {
                name: max((value for value in values if value is not None), default=None)
                if name.startswith("worst")
                else Spread.of(values)
                for name, values in columns.items()
            }
        )
    return AlgorithmSummary(
        runs=len(runs),
        iterations=tuple(sorted({run.iterations for run in runs})),
        final_return=Spread.of(run.final_return for run in runs),
        final_objective=Spread.of(run.final_objective for run in runs),
        share_of_gain=Spread.of(run.share_of_gain for run in runs),
        share_from_start=Spread.of(run.share_from_start for run in runs),
        suboptimality_bound=max(bounds) if len(bounds) == len(runs) else None,
        risks=tuple(risks),
    )


def _over_cmdps(known: Sequence[References]) -> dict[str, dict[str, Spread | None]]:
    table: dict[str, dict[str, Spread | None]] = {}
    for name in ("uniform", "optimum", "unconstrained"):
        given = [reference for one in known if (reference := getattr(one, name)) is not None]
        if given:
            table[name] = {
                "return": Spread.of(reference.mean for reference in given),
                "objective": Spread.of(reference.objective for reference in given),
            }
            for index, risks in enumerate(zip(*(reference.risks for reference in given), strict=True)):
                table[name][f"risk_{index}"] = Spread.of(risks)
    return table


def _sharp_kind(folders: Sequence[Path], index: int) -> str | None:
    for folder in folders:
        if (folder / "final.json").exists():
            return sharp_kind(read_json(folder / "final.json")["figures"], index)
    return None
