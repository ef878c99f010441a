"""`portfolio-sdpo train`: an agent that knows everything up to the last close, and what it would hold today."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from portfolio_sdpo.cli import _completion
from portfolio_sdpo.cli._agent_options import (
    Alpha,
    Bound,
    CashKind,
    Config,
    ExecutionKind,
    FeeBps,
    Groups,
    Horizon,
    Json,
    MaxTurnover,
    MaxWeight,
    PresetName,
    ScenarioKind,
    SnapshotName,
    read_limits,
    resolve_plan,
)
from portfolio_sdpo.cli._examples import examples
from portfolio_sdpo.cli._progress_lines import ProgressLines
from portfolio_sdpo.common.progress import CommandProgress
from portfolio_sdpo.errors import SettingsError

if TYPE_CHECKING:
    from portfolio_sdpo.portfolio.store import TrainedAgent


def train(
    preset: PresetName = "default",
    config: Config = None,
    algo: Annotated[
        str, typer.Option("--algo", metavar="sdpo|ppo", help="The agent.", autocompletion=_completion.agent)
    ] = "sdpo",
    snapshot: SnapshotName = None,
    alpha: Alpha = None,
    bound: Bound = None,
    horizon: Horizon = None,
    scenarios: ScenarioKind = None,
    fee_bps: FeeBps = None,
    cash: CashKind = None,
    execution: ExecutionKind = None,
    max_weight: MaxWeight = None,
    max_turnover: MaxTurnover = None,
    groups: Groups = None,
    seed: Annotated[
        int, typer.Option("--seeds", metavar="N", min=0, help="Seed of the networks and the scenarios.")
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="A new folder.", show_default="one in the data directory"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train one agent up to the last close, and say what it holds.

    The folder holds policy.safetensors, config.json and the trace of the training, metrics.parquet. Ctrl-C saves what
    was learned, and the same command resumes there.
    """
    if algo == "none":
        raise SettingsError("--algo: there is nothing to train without an agent; name one.")
    limits = read_limits(max_weight, max_turnover, groups)
    plan = resolve_plan(
        preset, config, [algo], alpha, bound, horizon, scenarios, fee_bps, cash, execution, limits=limits
    )
    from portfolio_sdpo.portfolio.store import train_agent

    settings = plan.agents[algo]
    with _progress(as_json, algo, settings.first) as progress:
        trained = train_agent(
            settings, snapshot=snapshot, cash=plan.cash, seed=seed, label=algo, folder=out, progress=progress
        )
    if as_json:
        typer.echo(json.dumps({"folder": str(trained.folder), **trained.config}, indent=2, allow_nan=False))
        return
    _tell(trained)


def _tell(trained: TrainedAgent) -> None:
    from rich.console import Console

    from portfolio_sdpo.report.terminal import render_trained_agent

    Console().print(render_trained_agent(trained))
    # Paths are not wrapped, so that they can be clicked and copied.
    typer.echo(f"\nAgent   {trained.folder}")


@contextmanager
def _progress(quiet: bool, name: str, total: int) -> Iterator[Callable[[int], None]]:
    """On stderr a bar with the time it will take, or without a terminal a line every half minute."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, quiet=quiet)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as board:
        bar = board.add_task(escape(name), total=total)
        file, lines = CommandProgress(), ProgressLines(quiet)

        def note(done: int) -> None:
            board.update(bar, completed=done)
            for each in (file, lines):
                each.write(done / max(total, 1), f"{name}: update {done} of {total}")

        yield note


def register(root: typer.Typer) -> None:
    """Add the command to the application."""
    root.command(
        "train",
        epilog=examples(
            "train",
            "train --snapshot mine --out agent --json",
            "train --alpha 0.1 --bound -0.03 --fee-bps 10 --seeds 1",
            "train --max-weight 0.25 --groups sectors.csv",
            "train --preset paper-stocks --algo ppo",
        ),
    )(train)
