"""`portfolio-sdpo experiment ... stocks`: a walk-forward of agents, so not run like the grids on CMDPs."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from portfolio_sdpo.cli._grid import GridOptions
from portfolio_sdpo.cli._outcomes import end_with, outcomes_record

NAME = "stocks"


def run(
    seeds: tuple[int, ...] | None,
    algorithms: tuple[str, ...] | None,
    iterations: int | None,
    options: GridOptions,
) -> None:
    """Make the walks that are not there yet and sum up what was asked for."""
    from portfolio_sdpo.experiments.stocks.declared import BENCHMARKS, STOCKS
    from portfolio_sdpo.experiments.stocks.runs import run_stocks
    from portfolio_sdpo.experiments.stocks.summary import summarise_stocks
    from portfolio_sdpo.rl.progress import Board

    experiment = STOCKS.with_changes(iterations=iterations, seeds=seeds, algorithms=algorithms)
    board = Board((), experiment.title)
    with options.applied(NAME, board) as means:
        outcomes = run_stocks(experiment, board=board, **means)
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    sound = [each.run for each in outcomes if each not in failed and each.run != BENCHMARKS]
    summary = summarise_stocks(experiment, labels=sound, seeds=experiment.seeds) if sound else None
    if options.as_json:
        typer.echo(json.dumps(outcomes_record(outcomes, summary), indent=2, allow_nan=False))
    elif summary:
        from rich.console import Console

        from portfolio_sdpo.experiments.stocks.report import render_stocks

        Console().print(render_stocks(summary))
    end_with(failed, as_json=options.as_json)


def show(seeds: tuple[int, ...] | None, algorithms: tuple[str, ...] | None, as_json: bool) -> None:
    """Sum up what is there."""
    from portfolio_sdpo.experiments.stocks.declared import STOCKS
    from portfolio_sdpo.experiments.stocks.summary import summarise_stocks

    experiment = STOCKS.with_changes(seeds=seeds, algorithms=algorithms)
    summary = summarise_stocks(experiment, labels=algorithms, seeds=seeds)
    if as_json:
        typer.echo(json.dumps(summary.to_json(), indent=2, allow_nan=False))
        return
    from rich.console import Console

    from portfolio_sdpo.experiments.stocks.report import render_stocks

    Console().print(render_stocks(summary))


def figures(seeds: tuple[int, ...] | None, algorithms: tuple[str, ...] | None) -> list[Path]:
    """Draw what is there."""
    from portfolio_sdpo.experiments.stocks.declared import STOCKS
    from portfolio_sdpo.experiments.stocks.figures import make_stocks_figures

    experiment = STOCKS.with_changes(seeds=seeds, algorithms=algorithms)
    return list(make_stocks_figures(experiment, labels=algorithms, seeds=seeds))
