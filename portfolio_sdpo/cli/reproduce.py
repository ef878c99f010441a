"""`portfolio-sdpo reproduce`: the paper's whole evaluation in one command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

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
)

if TYPE_CHECKING:
    from portfolio_sdpo.experiments.paper.reproduce import QuestionResult

Scale = Literal["smoke", "laptop", "paper"]
_STYLES = {"borne out": "green", "not borne out": "red"}


def reproduce(
    scale: Annotated[
        Scale,
        typer.Option("--scale", help="Toys that take minutes, what a laptop runs in hours, or the paper's own size."),
    ] = "smoke",
    question: Annotated[
        str | None, typer.Option("--question", metavar="A,B,C,D", help="Only these questions.", show_default="all four")
    ] = None,
    jobs: JobsOption = None,
    parallel: WhereOption = "local",
    ray_address: AddressOption = None,
    retries: RetriesOption = 2,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FOLDER",
            file_okay=False,
            help="Folder for the pages.",
            show_default="reproduce/<scale> in the data directory",
        ),
    ] = None,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Make no runs, only the pages of those that are there.")
    ] = False,
    restart: RestartOption = False,
    registry: Place = None,
    as_json: Json = False,
) -> None:
    """Run the paper's experiments and say which of its claims hold.

    Questions A (random CMDPs), B and C (Safety Gym under one and two bounds) and D (stocks). Only missing runs are
    made, in the folders of `experiment run`; smoke has folders of its own. Writes one page for each question and an
    index.
    """
    from portfolio_sdpo.experiments.paper.reproduce import default_folder, parse_questions
    from portfolio_sdpo.experiments.paper.reproduce import reproduce as answer

    options = RunOptions(jobs, parallel, ray_address, retries, restart, registry, as_json)
    answers = answer(parse_questions(question), scale, out, None if no_run else options.run)
    index = (out or default_folder(scale)) / "index.html"
    if as_json:
        record = {"scale": scale, "index": str(index), "questions": [each.to_json() for each in answers]}
        typer.echo(json.dumps(record, indent=2, allow_nan=False))
    else:
        _print(answers)
        typer.echo(index)
    failed = [outcome for each in answers for result in each.results for outcome in result.failed]
    exit_with_failures(failed, as_json=as_json)


def _print(answers: list[QuestionResult]) -> None:
    """Every claim with its verdicts."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for answer in answers:
        console.print(Text(f"({answer.question.key}) {answer.question.title}", style="bold"))
        if not answer.judged:
            console.print("    No run is finished yet.")
        for judgements in zip(*(judged.judgements for judged in answer.judged), strict=True):
            console.print(Text(f"  {judgements[0].key} {judgements[0].text}"))
            for judged, judgement in zip(answer.judged, judgements, strict=True):
                verdict = (judgement.verdict, _STYLES.get(judgement.verdict, "yellow"))
                console.print(Text.assemble("      ", verdict, (f"  {judged.where}", "dim")))
        console.print()


def register(root: typer.Typer) -> None:
    """Add the command to the application."""
    epilog = examples(
        "reproduce",
        "reproduce --scale laptop --question A --jobs 2",
        "reproduce --scale laptop --no-run --out pages",
    )
    root.command("reproduce", epilog=epilog)(reproduce)
