"""What there is of every run: its log, from its folder or from a record of it.

A record is a finished run in a few kilobytes, `<label>-<seed>.json` in the place of the folder of that name. It has the
columns of the log from which every table and figure is made, rounded to five digits, with the version, the settings'
digest and the command, so that results can be kept where run folders cannot:

    portfolio-sdpo experiment summarise safety-b-pointgoal1-short --out docs/evidence
    portfolio-sdpo experiment show safety-b-pointgoal1-short --from docs/evidence
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from portfolio_sdpo.errors import RunError
from portfolio_sdpo.experiments.engine.folders import find_run_folders, missing_runs, read_json, write_content
from portfolio_sdpo.experiments.engine.records import (
    format_record,
    nothing_to_record,
    round_column,
    round_number,
    unreadable_record,
)
from portfolio_sdpo.experiments.safety.experiment import SafetyExperiment
from portfolio_sdpo.experiments.safety.standings import find_standing
from portfolio_sdpo.experiments.safety.study import SafetyRun
from portfolio_sdpo.rl import TrainSettings
from portfolio_sdpo.rl.checkpoint import fingerprint
from portfolio_sdpo.rl.metrics import LogRow, read_config, read_rows

DIGITS = 5
_COUNTED = ("problem", "algorithm", "steps", "count", "lane", "overlap", "environment")
"""Settings by which a run is one that the experiment declares: all but its length and its seed."""


@dataclass(frozen=True)
class RunLog:
    """One run, as far as it is there."""

    name: str
    label: str
    seed: int
    rows: list[LogRow]
    """the columns of `RunRecord.columns` at least; empty before the first checkpoint"""
    finished: bool = False
    steps_per_second: float | None = None
    failure: str | None = None
    digest: str | None = None
    """of its settings, see `hash_settings`; None where it has none yet"""
    version: str = ""


def hash_settings(settings: TrainSettings) -> str:
    """A name for everything about a run but its length, its seed and the version it was made with."""
    unused = settings.find_unused_additions()
    parts = settings.model_dump(mode="json", include=set(_COUNTED), exclude=unused)
    return fingerprint([json.dumps(parts, sort_keys=True)])


def hash_declared(experiment: SafetyExperiment, label: str) -> str:
    """That of the runs that the experiment declares for this label."""
    return hash_settings(SafetyRun(experiment, label, 0, Path()).settings())


def find_runs(experiment: SafetyExperiment, root: Path, only: Collection[str] | None = None) -> list[RunLog]:
    """Every run in the experiment's folder, or `only` those of these names; a `RunError` if there are none.

    A run that has a folder is read from there, whatever record there is of it.
    """
    records = {path.stem: path for path in sorted(root.glob("*-*.json"))}
    if only is not None:
        records = {name: path for name, path in records.items() if name in only}
    try:
        folders = find_run_folders(root, "*-*", experiment.name, only)
    except RunError:
        if not records:
            raise missing_runs(root, experiment.name) from None
        folders = []
    found = {path.name: _read_folder(path) for path in folders}
    found |= {name: _read_record(experiment, path) for name, path in records.items() if name not in found}
    return [found[name] for name in sorted(found)]


def write_records(experiment: SafetyExperiment, root: Path, only: Collection[str] | None, out: Path) -> list[Path]:
    """Records of the finished runs with the declared settings, of any length, into the experiment's folder in `out`."""
    found = [run for run in find_runs(experiment, root, only) if run.finished and run.label in experiment.algorithms]
    chosen = [run for run in found if run.digest == hash_declared(experiment, run.label)]
    if not chosen:
        raise nothing_to_record(root, experiment.name)
    paths = [out / experiment.name / f"{run.name}.json" for run in chosen]
    for run, path in zip(chosen, paths, strict=True):
        write_content(path, format_record(make_record(experiment, run)).encode())
    return paths


def make_record(experiment: SafetyExperiment, run: RunLog) -> dict[str, Any]:
    """A finished run as it is written down."""
    constraints = experiment.problem.constraints
    names = ["episode_return"]
    for index, constraint in enumerate(constraints):
        names += [f"risk_empirical_{index}", f"batch_{constraint.signal}"]
    end = find_standing(constraints, run.rows)
    return {
        "experiment": experiment.name,
        "task": experiment.world.task,
        "label": run.label,
        "seed": run.seed,
        "command": (
            f"portfolio-sdpo experiment run {experiment.name} --algorithms {run.label} --seeds {run.seed} "
            f"--iterations {len(run.rows)}"
        ),
        "version": run.version,
        "settings": run.digest,
        "steps": end.steps,
        "batch": end.steps // len(run.rows),
        "steps_per_second": None if run.steps_per_second is None else round_number(run.steps_per_second, DIGITS),
        "end": {
            "return": round_number(end.episode_return, DIGITS),
            "constraints": {
                constraint.name: {
                    "risk": round_number(risk.risk, DIGITS),
                    "share_over": round_number(risk.breaks, DIGITS),
                    "worst_excess": round_number(risk.worst_excess, DIGITS),
                    "cumulated": round_number(risk.cumulated, DIGITS),
                }
                for constraint, risk in zip(constraints, end.risks, strict=True)
            },
        },
        "columns": {
            name: round_column([float(row[name]) for row in run.rows], DIGITS) for name in dict.fromkeys(names)
        },
    }


def _read_folder(folder: Path) -> RunLog:
    """What a run's folder holds, finished or not."""
    label, _, seed = folder.name.rpartition("-")
    log, config = folder / "metrics.parquet", folder / "config.json"
    version, digest = "", None
    if config.exists():
        record = read_config(config)
        version, digest = str(record.get("version", "")), _digest_of(record["settings"])
    known: dict[str, Any] = {"name": folder.name, "label": label, "seed": int(seed), "version": version}
    known |= {"digest": digest, "rows": read_rows(log) if log.exists() else []}
    if (folder / "failure.json").exists():
        return RunLog(**known, failure=str(read_json(folder / "failure.json")["message"]))
    if (folder / "final.json").exists():
        return RunLog(**known, finished=True, steps_per_second=read_json(folder / "final.json")["steps_per_second"])
    return RunLog(**known)


def _digest_of(settings: dict[str, Any]) -> str:
    """That of settings as a run wrote them down; they may be of a version that had others."""
    try:
        return hash_settings(TrainSettings.model_validate(settings))
    except ValueError:
        return "unknown"


def _read_record(experiment: SafetyExperiment, path: Path) -> RunLog:
    record = read_json(path)
    try:
        columns, batch = record["columns"], float(record["batch"])
        count = len(columns["episode_return"])
        rows: list[LogRow] = [
            {"total_steps": batch * (place + 1), **{name: values[place] for name, values in columns.items()}}
            for place in range(count)
        ]
        if not rows or record["experiment"] != experiment.name:
            raise ValueError(f"it is of {record['experiment']}")
        return RunLog(
            name=f"{record['label']}-{record['seed']}",
            label=str(record["label"]),
            seed=int(record["seed"]),
            rows=rows,
            finished=True,
            steps_per_second=record["steps_per_second"],
            digest=record["settings"],
            version=str(record["version"]),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise unreadable_record(path, "run", experiment.name, error) from None
