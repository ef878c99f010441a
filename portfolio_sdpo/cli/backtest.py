"""`portfolio-sdpo backtest`: strategies through the same prices, fees and limits, and a report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from portfolio_sdpo.errors import SettingsError

if TYPE_CHECKING:
    from portfolio_sdpo.backtest import Strategy
    from portfolio_sdpo.backtest.run import BacktestSettings, Progress


def backtest(
    snapshot: Annotated[
        str | None, typer.Option("--snapshot", metavar="NAME", help="Prices; the bundled sample by default.")
    ] = None,
    strategies: Annotated[
        str | None, typer.Option("--strategies", metavar="A,B,...", help="Benchmarks; all of them by default.")
    ] = None,
    algo: Annotated[
        str | None, typer.Option("--algo", metavar="sdpo", help="A learning agent to walk forward beside them.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--start", metavar="YYYY-MM-DD", help="First decision; by default after 252 sessions.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--end", metavar="YYYY-MM-DD", help="Last day; the last by default.")
    ] = None,
    fee_bps: Annotated[
        float, typer.Option("--fee-bps", help="Fee on what is traded, in hundredths of a percent.")
    ] = 0.0,
    cash: Annotated[
        str, typer.Option("--cash", metavar="zero|tbill|RATE", help="What cash earns; a rate is yearly, 0.02 = 2 %.")
    ] = "zero",
    alpha: Annotated[float, typer.Option("--alpha", help="Tail fraction of the CVaR limit.")] = 0.05,
    bound: Annotated[float, typer.Option("--bound", help="Lowest CVaR allowed; a loss is negative.")] = -0.05,
    horizon: Annotated[int, typer.Option("--horizon", help="Sessions of a period that the limit is about.")] = 15,
    max_weight: Annotated[float | None, typer.Option("--max-weight", help="Largest weight of a stock.")] = None,
    max_turnover: Annotated[
        float | None, typer.Option("--max-turnover", help="Largest turnover of a decision.")
    ] = None,
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="0,1,...", help="Seeds; the first one also draws the intervals.")
    ] = "0",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="A new folder; one in the data directory by default.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Strategies at a time.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Walk strategies through past prices and report what came of it, and whether the CVaR limit was kept.

    The folder holds report.html, metrics.json and the tables of wealth, weights and trades.
    """
    chosen = _numbers("--seeds", seeds)
    from portfolio_sdpo.backtest.run import BacktestSettings

    settings = BacktestSettings(
        snapshot=snapshot,
        **({} if strategies is None else {"strategies": [part.strip() for part in strategies.split(",")]}),
        start=start,
        end=end,
        fee_bps=fee_bps,
        cash=cash,
        limit={"alpha": alpha, "bound": bound, "horizon": horizon},
        limits={"max_weight": max_weight, "max_turnover": max_turnover},
        seeds=chosen,
        bootstrap={"seed": chosen[0]},
    )
    settings, agents = _with_agents(settings, algo)
    _run(settings, agents, out, jobs, as_json)


def _with_agents(settings: BacktestSettings, algo: str | None) -> tuple[BacktestSettings, Sequence[Strategy]]:
    """The settings with the agent declared in them, and one agent per seed that has the backtest's limit and fee."""
    if algo is None:
        return settings, ()
    if algo != "sdpo":
        raise SettingsError(f"--algo: there is no agent {algo!r}; there is sdpo.")
    from portfolio_sdpo.backtest.agent import Agent, AgentSettings
    from portfolio_sdpo.backtest.run import BacktestSettings, DeclaredAgent

    learning = AgentSettings(limit=settings.limit, fee=settings.fee_bps / 1e4)
    declared = (DeclaredAgent(label=algo, settings=learning.model_dump(mode="json")),)
    settings = BacktestSettings(**{**dict(settings), "agents": declared})
    return settings, [Agent(learning, seed, algo) for seed in settings.seeds]


def _run(settings: BacktestSettings, agents: Sequence[Strategy], out: Path | None, jobs: int, as_json: bool) -> None:
    """Run the backtest with its progress on stderr, and tell what came out."""
    from portfolio_sdpo.backtest.run import run_backtest

    with _progress(as_json) as progress:
        result = run_backtest(settings, out, progress, agents, jobs=jobs)
    if as_json:
        record: dict[str, Any] = {
            "folder": str(result.folder),
            "report": str(result.report),
            "config": result.record.config,
            "records": result.record.metrics,
        }
        typer.echo(json.dumps(record, indent=2, allow_nan=False))
        return
    from rich.console import Console

    from portfolio_sdpo.cli._backtest_pages import render

    Console().print(render(result))
    # Paths are not wrapped, so that they can be clicked and copied.
    typer.echo(f"\nReport   {result.report}")


@contextmanager
def _progress(quiet: bool) -> Iterator[Progress]:
    """A bar per strategy, on stderr and only on a terminal."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, quiet=quiet)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bars: dict[str, Any] = {}
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as board:

        def say(name: str, done: int, total: int) -> None:
            if name not in bars:
                bars[name] = board.add_task(escape(name), total=total)
            board.update(bars[name], completed=done, total=total)

        yield say


def _numbers(option: str, text: str) -> tuple[int, ...]:
    """`0,1,2` as numbers."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = (-1,)
    if min(numbers) < 0:
        raise SettingsError(f"{option}: must be whole numbers with commas between them, none negative (got {text!r}).")
    return numbers


def register(root: typer.Typer) -> None:
    """Hang the command onto the application."""
    root.command("backtest")(backtest)
