"""`portfolio-sdpo experiment ... safety-...`: Safety Gym, whose runs can collect in worker processes of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from portfolio_sdpo.cli._grid import GridOptions
from portfolio_sdpo.cli._outcomes import end_with, outcomes_record

if TYPE_CHECKING:
    from portfolio_sdpo.experiments.safety.summary import SafetySummary

PREFIX = "safety-"


def run(
    name: str,
    seeds: tuple[int, ...] | None,
    algorithms: tuple[str, ...] | None,
    iterations: int | None,
    workers: int,
    overlap: bool,
    options: GridOptions,
) -> None:
    """Make the runs that are not done yet and sum up what was asked for."""
    from portfolio_sdpo.experiments.safety.declared import find_safety_experiment
    from portfolio_sdpo.experiments.safety.runs import run_safety, safety_runs
    from portfolio_sdpo.experiments.safety.summary import summarise_safety
    from portfolio_sdpo.rl.progress import Board

    declared = find_safety_experiment(name)
    if overlap:
        declared = declared.with_changes(overlap=True)
    experiment = declared.with_changes(iterations=iterations, seeds=seeds, algorithms=algorithms)
    board = Board(experiment.problem.constraints, experiment.title)
    with options.applied(name, board) as means:
        outcomes = run_safety(experiment, workers=workers, board=board, **means)
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    fallen = {outcome.run for outcome in failed}
    sound = [each.name for each in safety_runs(experiment) if each.name not in fallen]
    summary = summarise_safety(declared, only=sound) if sound else None
    if options.as_json:
        typer.echo(json.dumps(outcomes_record(outcomes, summary), indent=2))
    elif summary:
        _print(summary)
    end_with(failed, as_json=options.as_json)


def show(name: str, seeds: tuple[int, ...] | None, algorithms: tuple[str, ...] | None, as_json: bool) -> None:
    """Sum up what is there."""
    from portfolio_sdpo.experiments.safety.declared import find_safety_experiment
    from portfolio_sdpo.experiments.safety.summary import summarise_safety

    summary = summarise_safety(find_safety_experiment(name), only=_names(name, seeds, algorithms))
    if as_json:
        typer.echo(json.dumps(summary.to_json(), indent=2))
    else:
        _print(summary)


def figures(name: str, seeds: tuple[int, ...] | None, algorithms: tuple[str, ...] | None) -> list[Path]:
    """Draw what is there."""
    from portfolio_sdpo.experiments.safety.declared import find_safety_experiment
    from portfolio_sdpo.experiments.safety.figures import make_safety_figures

    return list(make_safety_figures(find_safety_experiment(name), only=_names(name, seeds, algorithms)))


def _names(name: str, seeds: tuple[int, ...] | None, algorithms: tuple[str, ...] | None) -> list[str] | None:
    """Of the runs that were asked for; None if all that are there."""
    from portfolio_sdpo.experiments.safety.declared import find_safety_experiment
    from portfolio_sdpo.experiments.safety.runs import safety_runs

    chosen = find_safety_experiment(name).with_changes(seeds=seeds, algorithms=algorithms)
    return None if seeds is None and algorithms is None else [each.name for each in safety_runs(chosen)]


def _print(summary: SafetySummary) -> None:
    from rich.console import Console

    from portfolio_sdpo.experiments.safety.report import render_safety

    Console().print(render_safety(summary))
