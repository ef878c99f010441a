"""`portfolio-sdpo experiment ...`: the paper's experiments and their variants: run, summarise and draw them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from portfolio_sdpo.cli import _completion
from portfolio_sdpo.cli._agent_options import Json
from portfolio_sdpo.cli._examples import examples
from portfolio_sdpo.cli._registry import Place
from portfolio_sdpo.cli._run_options import (
    AddressOption,
    JobsOption,
    RestartOption,
    RetriesOption,
    RunOptions,
    WhereOption,
    exit_with_failures,
    outcomes_record,
    parse_seeds,
)

if TYPE_CHECKING:
    from portfolio_sdpo.experiments.study import Study

app = typer.Typer(
    no_args_is_help=True,
    help="Run, summarise and draw the declared experiments.",
    epilog=examples("experiment list", "experiment run cmdp-variance-binding --jobs 2", "experiment show stocks"),
)

Name = Annotated[
    str,
    typer.Argument(
        help="Name of the experiment; `experiment list` shows all of them.", autocompletion=_completion.experiments
    ),
]
Seeds = Annotated[
    str | None,
    typer.Option(
        "--seeds",
        metavar="0,1,...",
        help="Seeds of the runs. The run with seed k is on the k-th of the CMDP seeds.",
        show_default="the experiment's",
    ),
]
CmdpSeeds = Annotated[
    str | None,
    typer.Option("--cmdp-seeds", metavar="11,12,...", help="Seeds of the CMDPs.", show_default="the experiment's"),
]
From = Annotated[
    Path | None,
    typer.Option("--from", metavar="FOLDER", help="Read records that `experiment summarise` wrote there."),
]
Algorithms = Annotated[
    str | None,
    typer.Option("--algorithms", metavar="sdpo,ppo,...", help="Only these of the experiment's.", show_default="all"),
]


@app.command("list", epilog=examples("experiment list", "experiment list --json"))
def list_experiments(as_json: Json = False) -> None:
    """List every experiment with its question and its size."""
    from portfolio_sdpo.experiments.catalogue import list_studies

    studies = list_studies()
    if as_json:
        declared = {study.name: study.experiment.model_dump(mode="json") for study in studies}
        typer.echo(json.dumps(declared, indent=2))
        return
    from rich.console import Console

    groups: dict[str, list[Study]] = {}
    for study in studies:
        groups.setdefault(study.group, []).append(study)
    console = Console()
    for members in groups.values():
        console.print(members[0].describe(members))


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
        typer.Option(
            "--iterations",
            help="Iterations of every run; for stocks, updates a day.",
            show_default="those declared",
        ),
    ] = None,
    jobs: JobsOption = None,
    parallel: WhereOption = "local",
    ray_address: AddressOption = None,
    retries: RetriesOption = 2,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=0, help="Number of processes that collect for each run; Safety Gym only."),
    ] = None,
    overlap: Annotated[
        bool,
        typer.Option(
            "--overlap", help="Collect during each update, with the policy before the update; Safety Gym only."
        ),
    ] = False,
    restart: RestartOption = False,
    registry: Place = None,
    as_json: Json = False,
) -> None:
    """Make the runs of an experiment that are not finished yet, and summarise the results.

    An interrupted experiment resumes where it stopped. A run that fails is reported and does not stop the others. The
    results are the same with any number of jobs, here and on a cluster.
    """
    options = RunOptions(jobs, parallel, ray_address, retries, restart, registry, as_json)
    study = _select(name, seeds, cmdp_seeds, algorithms, iterations, workers, overlap)
    outcomes = options.run(study)
    runs = study.successful(outcomes)
    summary = study.summarise(runs) if runs.names else None
    if as_json:
        typer.echo(json.dumps(outcomes_record(outcomes, summary), indent=2))
    elif summary:
        from rich.console import Console

        Console().print(study.render(summary))
    exit_with_failures(outcomes, as_json=as_json)


@app.command(
    "show",
    epilog=examples(
        "experiment show stocks",
        "experiment show cmdp-cvar --seeds 0 --json",
        "experiment show safety-b-pointgoal1-short --from evidence",
    ),
)
def show(
    name: Name,
    seeds: Seeds = None,
    cmdp_seeds: CmdpSeeds = None,
    algorithms: Algorithms = None,
    source: From = None,
    as_json: Json = False,
) -> None:
    """Summarise the runs of an experiment that are there.

    All of them, or those with the seeds and algorithms that are named.
    """
    study = _reading(_select(name, seeds, cmdp_seeds, algorithms), source)
    summary = study.summarise()
    if as_json:
        typer.echo(json.dumps(summary.to_json(), indent=2))
        return
    from rich.console import Console

    Console().print(study.render(summary))


@app.command("figures", epilog=examples("experiment figures stocks", "experiment figures cmdp-cvar --json"))
def figures(
    name: Name,
    seeds: Seeds = None,
    cmdp_seeds: CmdpSeeds = None,
    algorithms: Algorithms = None,
    source: From = None,
    as_json: Json = False,
) -> None:
    """Draw the runs of an experiment that are there, as PNG and SVG files in its folder."""
    paths = _reading(_select(name, seeds, cmdp_seeds, algorithms), source).draw()
    if as_json:
        typer.echo(json.dumps({"experiment": name, "figures": [str(path) for path in paths]}, indent=2))
        return
    for path in paths:
        typer.echo(path)


@app.command("summarise", epilog=examples("experiment summarise safety-b-pointgoal1-short --out evidence"))
def summarise(
    name: Name,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Folder of all records.")],
    seeds: Seeds = None,
    algorithms: Algorithms = None,
    as_json: Json = False,
) -> None:
    """Write a record of every finished run on Safety Gym or stocks: a few kilobytes that `show` and `figures` take."""
    paths = _select(name, seeds, None, algorithms).record(out)
    if as_json:
        typer.echo(json.dumps({"experiment": name, "records": [str(path) for path in paths]}, indent=2))
        return
    for path in paths:
        typer.echo(path)


def _select(
    name: str,
    seeds: str | None,
    cmdp_seeds: str | None,
    algorithms: str | None,
    iterations: int | None = None,
    workers: int | None = None,
    overlap: bool = False,
) -> Study:
    """The study of that name with the runs that the options ask for."""
    from portfolio_sdpo.experiments.catalogue import find_study
    from portfolio_sdpo.experiments.study import Choice

    choice = Choice(
        seeds=None if seeds is None else parse_seeds("--seeds", seeds),
        cmdp_seeds=None if cmdp_seeds is None else parse_seeds("--cmdp-seeds", cmdp_seeds),
        algorithms=None if algorithms is None else tuple(part.strip() for part in algorithms.split(",")),
        iterations=iterations,
        workers=workers,
        overlap=overlap,
    )
    return find_study(name).select(choice)


@app.command(
    "overview",
    epilog=examples("experiment overview --from evidence", "experiment overview --suite --out safety.html"),
)
def overview(
    source: From = None,
    suite: Annotated[
        bool, typer.Option("--suite", help="Of the runs with the suite's own observations and actions.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Also write it as a page with the figure.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show all tasks of Safety Gym at once: results beside PPO's and published ones, and which runs are missing."""
    from portfolio_sdpo.experiments.engine.folders import experiments_folder, write_content
    from portfolio_sdpo.experiments.safety.overview import describe_overview, summarise_tasks
    from portfolio_sdpo.experiments.safety.overview_report import render_overview, render_overview_page

    found = summarise_tasks("suite" if suite else "short", source or experiments_folder())
    if out is not None:
        write_content(out, render_overview_page(found).encode())
    if as_json:
        typer.echo(json.dumps(describe_overview(found), indent=2))
        return
    from rich.console import Console

    Console().print(render_overview(found))


def _reading(study: Study, source: Path | None) -> Study:
    """The study as records in a folder have it; its figures go to where they always go."""
    return study if source is None else replace(study, home=source, output=study.root)


def register(root: typer.Typer) -> None:
    """Add the group to the application."""
    root.add_typer(app, name="experiment")
