"""`portfolio-sdpo experiment ...`: the paper's experiments and their binding variants, run, summed up and drawn."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated

import typer

from portfolio_sdpo.cli import _safety, _stocks
from portfolio_sdpo.cli._outcomes import end_with, outcomes_record
from portfolio_sdpo.errors import SettingsError

if TYPE_CHECKING:
    from portfolio_sdpo.experiments.presets import Experiment

app = typer.Typer(no_args_is_help=True, help="Run, sum up and draw the declared experiments.")

Name = Annotated[str, typer.Argument(help="The experiment; `experiment list` names them.")]
Seeds = Annotated[
    str | None, typer.Option("--seeds", metavar="0,1,...", help="Seeds of the runs. Run k is on the k-th CMDP seed.")
]
CmdpSeeds = Annotated[str | None, typer.Option("--cmdp-seeds", metavar="11,12,...", help="Seeds of the CMDPs.")]
Algorithms = Annotated[
    str | None, typer.Option("--algorithms", metavar="sdpo,ppo,...", help="Only these of the experiment's algorithms.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@app.command("list")
def list_experiments(as_json: Json = False) -> None:
    """Name every experiment, its question and its size."""
    from portfolio_sdpo.experiments.presets import EXPERIMENTS
    from portfolio_sdpo.experiments.safety import SAFETY_EXPERIMENTS
    from portfolio_sdpo.experiments.stocks import STOCKS

    if as_json:
        declared = {**EXPERIMENTS, **SAFETY_EXPERIMENTS, STOCKS.name: STOCKS}
        typer.echo(json.dumps({name: each.model_dump(mode="json") for name, each in declared.items()}, indent=2))
        return
    from rich.console import Console

    from portfolio_sdpo.experiments.report import render_list
    from portfolio_sdpo.experiments.safety_report import render_safety_list
    from portfolio_sdpo.experiments.stocks_report import render_declared

    Console().print(render_list(EXPERIMENTS), render_safety_list(SAFETY_EXPERIMENTS), render_declared(STOCKS), sep="")


@app.command("run")
def run(
    name: Name,
    seeds: Seeds = None,
    cmdp_seeds: CmdpSeeds = None,
    algorithms: Algorithms = None,
    iterations: Annotated[
        int | None,
        typer.Option("--iterations", help="Other than declared, and the same for all; of stocks: updates a day."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Runs at a time.")] = os.cpu_count() or 1,
    workers: Annotated[
        int | None, typer.Option("--workers", min=0, help="Processes that collect for each run; Safety Gym only.")
    ] = None,
    overlap: Annotated[
        bool,
        typer.Option("--overlap", help="Collect while an update is made, by the policy before it; Safety Gym only."),
    ] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Replace runs made with other settings.")] = False,
    as_json: Json = False,
) -> None:
    """Run what is not done yet of an experiment and sum up the results.

    An interrupted experiment goes on where it was. A run that fails is reported and does not stop the others.
    """
    if name.startswith(_safety.PREFIX):
        chosen = _choice(name, seeds, cmdp_seeds, algorithms)
        _safety.run(name, *chosen, iterations, jobs, workers or 0, overlap, restart, as_json)
        return
    if workers is not None or overlap:
        option = "--overlap" if workers is None else "--workers"
        raise SettingsError(f"{option}: {name} collects in the run's own process; leave it out and give --jobs.")
    if name == _stocks.NAME:
        _stocks.run(*_choice(name, seeds, cmdp_seeds, algorithms), iterations, jobs, restart, as_json)
        return
    from rich.console import Console

    from portfolio_sdpo.experiments.cases import cases
    from portfolio_sdpo.experiments.report import render
    from portfolio_sdpo.experiments.runner import run_experiment
    from portfolio_sdpo.experiments.summary import summarise
    from portfolio_sdpo.rl.progress import Board

    experiment = _chosen(name, seeds, cmdp_seeds, algorithms, iterations)
    board = Board(experiment.problem.constraints, experiment.title)
    with board.shown(Console(stderr=True, quiet=as_json)):
        outcomes = run_experiment(experiment, jobs=jobs, board=board, restart=restart)
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    sound = [case for case in cases(experiment) if case.name not in {outcome.run for outcome in failed}]
    summary = summarise(experiment, only=sound) if sound else None
    if as_json:
        typer.echo(json.dumps(outcomes_record(outcomes, summary), indent=2))
    elif summary:
        Console().print(render(summary))
    end_with(failed)


@app.command("show")
def show(
    name: Name,
    seeds: Seeds = None,
    cmdp_seeds: CmdpSeeds = None,
    algorithms: Algorithms = None,
    as_json: Json = False,
) -> None:
    """Sum up the runs that are there: all of them, or those with the given seeds and algorithms."""
    if name.startswith(_safety.PREFIX):
        _safety.show(name, *_choice(name, seeds, cmdp_seeds, algorithms), as_json)
        return
    if name == _stocks.NAME:
        _stocks.show(*_choice(name, seeds, cmdp_seeds, algorithms), as_json)
        return
    from portfolio_sdpo.experiments.cases import cases
    from portfolio_sdpo.experiments.summary import summarise

    experiment = _chosen(name, seeds, cmdp_seeds, algorithms)
    everything = seeds is None and cmdp_seeds is None and algorithms is None
    summary = summarise(experiment, only=None if everything else cases(experiment))
    if as_json:
        typer.echo(json.dumps(summary.to_json(), indent=2))
        return
    from rich.console import Console

    from portfolio_sdpo.experiments.report import render

    Console().print(render(summary))


@app.command("figures")
def figures(name: Name, seeds: Seeds = None, cmdp_seeds: CmdpSeeds = None, algorithms: Algorithms = None) -> None:
    """Draw the runs that are there, as PNG and SVG in the experiment's folder."""
    if name.startswith(_safety.PREFIX):
        _safety.figures(name, *_choice(name, seeds, cmdp_seeds, algorithms))
        return
    if name == _stocks.NAME:
        _stocks.figures(*_choice(name, seeds, cmdp_seeds, algorithms))
        return
    from portfolio_sdpo.experiments.cases import cases
    from portfolio_sdpo.experiments.figures import make_figures

    experiment = _chosen(name, seeds, cmdp_seeds, algorithms)
    everything = seeds is None and cmdp_seeds is None and algorithms is None
    for path in make_figures(experiment, only=None if everything else cases(experiment)):
        typer.echo(path)


def _chosen(
    name: str,
    seeds: str | None,
    cmdp_seeds: str | None,
    algorithms: str | None,
    iterations: int | None = None,
) -> Experiment:
    from portfolio_sdpo.experiments.presets import EXPERIMENTS, find_experiment

    if name not in EXPERIMENTS:
        known = ", ".join([*EXPERIMENTS, "safety-b-<task>", "safety-c", _stocks.NAME])
        raise SettingsError(f"there is no experiment {name!r}; choose one of {known}.")
    return find_experiment(name).with_changes(
        iterations=iterations,
        seeds=_numbers("--seeds", seeds),
        cmdp_seeds=_numbers("--cmdp-seeds", cmdp_seeds),
        algorithms=_words(algorithms),
    )


def _choice(
    name: str, seeds: str | None, cmdp_seeds: str | None, algorithms: str | None
) -> tuple[tuple[int, ...] | None, tuple[str, ...] | None]:
    """Seeds and labels of an experiment that is not on CMDPs."""
    if cmdp_seeds is not None:
        where = "stocks" if name == _stocks.NAME else "Safety Gym"
        raise SettingsError(f"--cmdp-seeds: {name} is on {where} and has no CMDP; leave it out.")
    return _numbers("--seeds", seeds), _words(algorithms)


def _words(text: str | None) -> tuple[str, ...] | None:
    """`ppo,sdpo` as words."""
    return None if text is None else tuple(part.strip() for part in text.split(","))


def _numbers(option: str, text: str | None) -> tuple[int, ...] | None:
    """`0,1,2` as numbers."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise SettingsError(f"{option}: must be whole numbers with commas between them (got {text!r}).") from None


def register(root: typer.Typer) -> None:
    """Hang the group onto the application."""
    root.add_typer(app, name="experiment")
