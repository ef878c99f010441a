"""`portfolio-sdpo experiment ... stocks`: a walk-forward of agents, so not run like the grids on CMDPs."""

from __future__ import annotations

import json

import typer

from portfolio_sdpo.cli._outcomes import end_with, outcomes_record

NAME = "stocks"


def run(
    seeds: tuple[int, ...] | None,
    algorithms: tuple[str, ...] | None,
    iterations: int | None,
    jobs: int,
    restart: bool,
    as_json: bool,
) -> None:
    """Make the walks that are not there yet and sum up what was asked for."""
    from portfolio_sdpo.cli._walk_progress import walk_progress
    from portfolio_sdpo.experiments.stocks import BENCHMARKS, STOCKS
    from portfolio_sdpo.experiments.stocks_runs import pending_walks, run_stocks
    from portfolio_sdpo.experiments.stocks_summary import summarise_stocks

    experiment = STOCKS.with_changes(iterations=iterations, seeds=seeds, algorithms=algorithms)
    with walk_progress(as_json, pending_walks(experiment)) as progress:
        outcomes = run_stocks(experiment, jobs=jobs, progress=progress, restart=restart)
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    sound = [each.run for each in outcomes if each not in failed and each.run != BENCHMARKS]
    summary = summarise_stocks(experiment, labels=sound, seeds=experiment.seeds) if sound else None
    if as_json:
        typer.echo(json.dumps(outcomes_record(outcomes, summary), indent=2, allow_nan=False))
    elif summary:
        from rich.console import Console

        from portfolio_sdpo.experiments.stocks_report import render_stocks

        Console().print(render_stocks(summary))
    end_with(failed)


def show(seeds: tuple[int, ...] | None, algorithms: tuple[str, ...] | None, as_json: bool) -> None:
    """Sum up what is there."""
    from portfolio_sdpo.experiments.stocks import STOCKS
    from portfolio_sdpo.experiments.stocks_summary import summarise_stocks

    experiment = STOCKS.with_changes(seeds=seeds, algorithms=algorithms)
    summary = summarise_stocks(experiment, labels=algorithms, seeds=seeds)
    if as_json:
        typer.echo(json.dumps(summary.to_json(), indent=2, allow_nan=False))
        return
    from rich.console import Console

    from portfolio_sdpo.experiments.stocks_report import render_stocks

    Console().print(render_stocks(summary))


def figures(seeds: tuple[int, ...] | None, algorithms: tuple[str, ...] | None) -> None:
    """Draw what is there."""
    from portfolio_sdpo.experiments.stocks import STOCKS
    from portfolio_sdpo.experiments.stocks_figures import make_stocks_figures

    experiment = STOCKS.with_changes(seeds=seeds, algorithms=algorithms)
    for path in make_stocks_figures(experiment, labels=algorithms, seeds=seeds):
        typer.echo(path)
