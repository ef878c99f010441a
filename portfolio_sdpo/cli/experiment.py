"""`portfolio-sdpo experiment ...`: the paper's experiments and their binding variants, run, summed up and drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from portfolio_sdpo.cli import _completion, _safety, _stocks
from portfolio_sdpo.cli._agent_options import Json
from portfolio_sdpo.cli._examples import examples
from portfolio_sdpo.cli._grid import AddressOption, GridOptions, JobsOption, RestartOption, RetriesOption, WhereOption
from portfolio_sdpo.cli._outcomes import end_with, outcomes_record
from portfolio_sdpo.cli._registry import Place
from portfolio_sdpo.common.seeds import parse_seeds
from portfolio_sdpo.errors import SettingsError, did_you_mean

if TYPE_CHECKING:
    from portfolio_sdpo.experiments.cmdp.declared import Experiment

app = typer.Typer(
    no_args_is_help=True,
    help="Run, sum up and draw the declared experiments.",
    epilog=examples("experiment list", "experiment run cmdp-variance-binding --jobs 2", "experiment show stocks"),
)

Name = Annotated[
    str,
    typer.Argument(help="The experiment; `experiment list` names them.", autocompletion=_completion.experiments),
]
Seeds = Annotated[
    str | None, typer.Option("--seeds", metavar="0,1,...", help="Seeds of the runs. Run k is on the k-th CMDP seed.")
]
CmdpSeeds = Annotated[str | None, typer.Option("--cmdp-seeds", metavar="11,12,...", help="Seeds of the CMDPs.")]
Algorithms = Annotated[
    str | None, typer.Option("--algorithms", metavar="sdpo,ppo,...", help="Only these of the experiment's algorithms.")
]


@app.command("list", epilog=examples("experiment list", "experiment list --json"))
def list_experiments(as_json: Json = False) -> None:
    """Name every experiment, its question and its size."""
    from portfolio_sdpo.experiments.cmdp.declared import EXPERIMENTS
    from portfolio_sdpo.experiments.safety.declared import SAFETY_EXPERIMENTS
    from portfolio_sdpo.experiments.stocks.declared import STOCKS

    if as_json:
        declared = {**EXPERIMENTS, **SAFETY_EXPERIMENTS, STOCKS.name: STOCKS}
        typer.echo(json.dumps({name: each.model_dump(mode="json") for name, each in declared.items()}, indent=2))
        return
    from rich.console import Console

    from portfolio_sdpo.experiments.cmdp.report import render_list
    from portfolio_sdpo.experiments.safety.report import render_safety_list
    from portfolio_sdpo.experiments.stocks.report import render_declared

    Console().print(render_list(EXPERIMENTS), render_safety_list(SAFETY_EXPERIMENTS), render_declared(STOCKS), sep="")


@app.command(
    "run",
    epilog=examples(
        "experiment run cmdp-variance-binding --jobs 2",
        "experiment run stocks --seeds 0,1 --algorithms ppo --json",
        "experiment run safety-b-pointgoal1-short --jobs 2 --seeds 0,1",
    ),
)
def run(
    name: Name,
    seeds: Seeds = None,
    cmdp_seeds: CmdpSeeds = None,
    algorithms: Algorithms = None,
    iterations: Annotated[
        int | None,
        typer.Option("--iterations", help="Other than declared, and the same for all; of stocks: updates a day."),
    ] = None,
    jobs: JobsOption = None,
    parallel: WhereOption = "local",
    ray_address: AddressOption = None,
    retries: RetriesOption = 2,
    workers: Annotated[
        int | None, typer.Option("--workers", min=0, help="Processes that collect for each run; Safety Gym only.")
    ] = None,
    overlap: Annotated[
        bool,
        typer.Option("--overlap", help="Collect while an update is made, by the policy before it; Safety Gym only."),
    ] = False,
    restart: RestartOption = False,
    registry: Place = None,
    as_json: Json = False,
) -> None:
    """Run what is not done yet of an experiment and sum up the results.

    An interrupted experiment goes on where it was. A run that fails is reported and does not stop the others. The
    results are the same with any number of jobs, here and on a cluster.
    """
    options = GridOptions(jobs, parallel, ray_address, retries, restart, registry, as_json)
    if name.startswith(_safety.PREFIX):
        _safety.run(name, *_choice(name, seeds, cmdp_seeds, algorithms), iterations, workers or 0, overlap, options)
        return
    if workers is not None or overlap:
        option = "--overlap" if workers is None else "--workers"
        raise SettingsError(f"{option}: {name} collects in the run's own process; leave it out and give --jobs.")
    if name == _stocks.NAME:
        _stocks.run(*_choice(name, seeds, cmdp_seeds, algorithms), iterations, options)
        return
    from rich.console import Console

    from portfolio_sdpo.experiments.cmdp.cases import cases
    from portfolio_sdpo.experiments.cmdp.report import render
    from portfolio_sdpo.experiments.cmdp.runs import run_experiment
    from portfolio_sdpo.experiments.cmdp.summary import summarise
    from portfolio_sdpo.rl.progress import Board

    experiment = _chosen(name, seeds, cmdp_seeds, algorithms, iterations)
    board = Board(experiment.problem.constraints, experiment.title)
    with options.applied(name, board) as means:
        outcomes = run_experiment(experiment, board=board, **means)
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    sound = [case for case in cases(experiment) if case.name not in {outcome.run for outcome in failed}]
    summary = summarise(experiment, only=sound) if sound else None
    if as_json:
        typer.echo(json.dumps(outcomes_record(outcomes, summary), indent=2))
    elif summary:
        Console().print(render(summary))
    end_with(failed, as_json=as_json)


@app.command("show", epilog=examples("experiment show stocks", "experiment show cmdp-cvar --seeds 0 --json"))
def show(
    name: Name,
    seeds: Seeds = None,
    cmdp_seeds: CmdpSeeds = None,
    algorithms: Algorithms = None,
    as_json: Json = False,
) -> None:
    """Sum up the runs that are there.

    All of them, or those with the given seeds and algorithms.
    """
    if name.startswith(_safety.PREFIX):
        _safety.show(name, *_choice(name, seeds, cmdp_seeds, algorithms), as_json)
        return
    if name == _stocks.NAME:
        _stocks.show(*_choice(name, seeds, cmdp_seeds, algorithms), as_json)
        return
    from portfolio_sdpo.experiments.cmdp.cases import cases
    from portfolio_sdpo.experiments.cmdp.summary import summarise

    experiment = _chosen(name, seeds, cmdp_seeds, algorithms)
    everything = seeds is None and cmdp_seeds is None and algorithms is None
    summary = summarise(experiment, only=None if everything else cases(experiment))
    if as_json:
        typer.echo(json.dumps(summary.to_json(), indent=2))
        return
    from rich.console import Console

    from portfolio_sdpo.experiments.cmdp.report import render

    Console().print(render(summary))


@app.command("figures", epilog=examples("experiment figures stocks", "experiment figures cmdp-cvar --json"))
def figures(
    name: Name,
    seeds: Seeds = None,
    cmdp_seeds: CmdpSeeds = None,
    algorithms: Algorithms = None,
    as_json: Json = False,
) -> None:
    """Draw the runs that are there, as PNG and SVG in its folder."""
    paths = _drawn(name, seeds, cmdp_seeds, algorithms)
    if as_json:
        typer.echo(json.dumps({"experiment": name, "figures": [str(path) for path in paths]}, indent=2))
        return
    for path in paths:
        typer.echo(path)


def _drawn(name: str, seeds: str | None, cmdp_seeds: str | None, algorithms: str | None) -> Sequence[Path]:
    """The files of the figures."""
    if name.startswith(_safety.PREFIX):
        return _safety.figures(name, *_choice(name, seeds, cmdp_seeds, algorithms))
    if name == _stocks.NAME:
        return _stocks.figures(*_choice(name, seeds, cmdp_seeds, algorithms))
    from portfolio_sdpo.experiments.cmdp.cases import cases
    from portfolio_sdpo.experiments.cmdp.figures import make_figures

    experiment = _chosen(name, seeds, cmdp_seeds, algorithms)
    everything = seeds is None and cmdp_seeds is None and algorithms is None
    return list(make_figures(experiment, only=None if everything else cases(experiment)))


def _chosen(
    name: str,
    seeds: str | None,
    cmdp_seeds: str | None,
    algorithms: str | None,
    iterations: int | None = None,
) -> Experiment:
    from portfolio_sdpo.experiments.cmdp.declared import EXPERIMENTS, find_experiment

    if name not in EXPERIMENTS:
        known = ", ".join([*EXPERIMENTS, "safety-b-<task>", "safety-c", _stocks.NAME])
        hint = did_you_mean(name, _completion.EXPERIMENTS)
        raise SettingsError(f"there is no experiment {name!r}{hint}; choose one of {known}.")
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
    return None if text is None else parse_seeds(option, text)


def register(root: typer.Typer) -> None:
    """Add the command group to the application."""
    root.add_typer(app, name="experiment")
