"""`portfolio-sdpo report`: the page of a backtest for returns that were earned elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from portfolio_sdpo.cli._agent_options import Alpha, Bound, Horizon, Json
from portfolio_sdpo.cli._examples import examples
from portfolio_sdpo.errors import SettingsError

if TYPE_CHECKING:
    import pandas as pd


def report(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Returns by day: a CSV with a date and a column for every track.")
    ],
    benchmark: Annotated[
        str | None,
        typer.Option("--benchmark", metavar="FILE|COLUMN", help="What the tracks are compared with."),
    ] = None,
    returns: Annotated[
        str,
        typer.Option(
            "--returns", metavar="decimal|percent|log|gross|levels", help="The numbers: 0.01, 1, ln 1.01, 1.01, wealth."
        ),
    ] = "decimal",
    alpha: Alpha = 0.05,
    bound: Bound = -0.05,
    horizon: Horizon = 15,
    cash: Annotated[float, typer.Option("--cash", metavar="RATE", help="What cash earned a year; 0.02 = 2 %.")] = 0.0,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE.html", help="The page.", show_default="the file's name with -report.html"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Test returns of your own against a CVaR limit, with a report.

    Was the limit kept, year by year and in the crises that the track went through, and how does it compare with a
    benchmark at the same risk? The page is that of a backtest, without weights, which returns do not tell.
    """
    from portfolio_sdpo.portfolio.shield import CvarLimit
    from portfolio_sdpo.report.tear_sheet import measure_levels

    levels, notes = _read(file, returns)
    if benchmark is not None and benchmark not in levels.columns:
        if not Path(benchmark).exists():
            raise SettingsError(
                f"--benchmark: {benchmark} is neither a column of {file} ({', '.join(levels.columns)}) nor a file."
            )
        other, more = _read(Path(benchmark), returns)
        if other.shape[1] != 1:
            raise SettingsError(f"--benchmark: {benchmark} has {other.shape[1]} columns; leave one beside the date.")
        benchmark = str(other.columns[0])
        if benchmark in levels.columns:
            other, benchmark = other.set_axis([f"{benchmark} (benchmark)"], axis=1), f"{benchmark} (benchmark)"
        levels, notes = levels.join(other, how="outer"), [*notes, *more]
    limit = CvarLimit(bound=bound, alpha=alpha, horizon=horizon)
    result = measure_levels(levels, benchmark, limit, cash=cash, bootstrap={}, source=file.name, notes=notes)
    page = result.report(out or Path(f"{file.name.partition('.')[0]}-report.html"))
    if as_json:
        typer.echo(
            json.dumps(
                {"report": str(page), "config": result.record.config, "records": result.record.metrics},
                indent=2,
                allow_nan=False,
            )
        )
        return
    from rich.console import Console

    from portfolio_sdpo.report.terminal import render_backtest

    Console().print(render_backtest(result.record))
    typer.echo(f"Report   {page}")


def _read(file: Path, unit: str) -> tuple[pd.DataFrame, list[str]]:
    """Levels of the tracks in a file, and what there is to say about it."""
    from portfolio_sdpo.prices.frame_checks import check_prices
    from portfolio_sdpo.prices.layouts import read_prices

    prices = read_prices(file, returns=None if unit == "levels" else unit)
    return check_prices(prices.frame), list(prices.notes)


def register(root: typer.Typer) -> None:
    """Add the command to the application."""
    root.command(
        "report",
        epilog=examples(
            "report returns.csv --benchmark SPY",
            "report returns.csv --benchmark index.csv --returns percent",
            "report wealth.csv --returns levels --bound -0.08 --json",
        ),
    )(report)
