"""`portfolio-sdpo retrain`: the nightly job that trains, evaluates and perhaps promotes a challenger."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

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
    read_limits,
)
from portfolio_sdpo.cli._examples import examples
from portfolio_sdpo.cli._frame import explain_interrupt, print_error
from portfolio_sdpo.cli._progress_lines import ProgressLines
from portfolio_sdpo.cli._registry import Place
from portfolio_sdpo.common.progress import CommandProgress
from portfolio_sdpo.errors import RetrainBusyError

KEPT = 3
BUSY = 4
TERMINATED = 128 + signal.SIGTERM


def retrain(
    snapshot: Annotated[
        str | None,
        typer.Option(
            "--snapshot",
            metavar="NAME",
            help="The snapshot to train on.",
            show_default="the champion's",
            autocompletion=_completion.snapshots,
        ),
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Fetch new prices from the snapshot's source first.")
    ] = False,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            metavar="default|paper-stocks|...",
            help="The settings to start from, of which those given here are changes.",
            show_default="the champion's; default where more than caps is changed",
            autocompletion=_completion.presets,
        ),
    ] = None,
    config: Config = None,
    algo: Annotated[
        str | None,
        typer.Option(
            "--algo",
            metavar="sdpo|ppo",
            help="The agent of the preset.",
            autocompletion=_completion.agent,
            show_default="sdpo",
        ),
    ] = None,
    alpha: Alpha = None,
    bound: Bound = None,
    horizon: Horizon = None,
    fee_bps: FeeBps = None,
    cash: CashKind = None,
    execution: ExecutionKind = None,
    max_weight: MaxWeight = None,
    max_turnover: MaxTurnover = None,
    groups: Groups = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seeds", metavar="N", min=0, help="Seed of networks and scenarios.", show_default="the champion's, or 0"
        ),
    ] = None,
    holdout: Annotated[
        int, typer.Option("--holdout", metavar="N", min=2, help="The last sessions, on which models are evaluated.")
    ] = 126,
    confidence: Annotated[
        float,
        typer.Option("--confidence", min=0.5, max=0.9999, help="Confidence level of the interval of the difference."),
    ] = 0.95,
    place: Place = None,
    as_json: Json = False,
) -> None:
    """Train a challenger, evaluate it, and promote it if it is fit.

    The challenger is trained on the newest prices. It continues from the champion if settings and assets are the same,
    otherwise it starts from scratch. It is promoted if it met the CVaR limit on held-out days and is not clearly worse
    there than the champion. Running it again for the same prices does nothing. It is made for cron: if it is killed,
    the champion stays, and the next run resumes.

    Exit codes: 0 promoted, 3 kept, 4 another retrain is running, 1 failed, 2 wrong command line, 130 Ctrl-C, 143 ended
    by SIGTERM.
    """
    kept = "the champion is unchanged, and the training of the challenger so far is saved"
    with _sigterm(), explain_interrupt(kept), _progress(as_json) as progress:
        from portfolio_sdpo.portfolio.presets import read_config
        from portfolio_sdpo.registry import Registry, to_record
        from portfolio_sdpo.registry.retrain import RetrainSettings
        from portfolio_sdpo.registry.retrain import retrain as run

        changes: dict[str, Any] = {} if config is None else read_config(config)
        given = {"alpha": alpha, "bound": bound, "horizon": horizon}
        limit = {name: value for name, value in given.items() if value is not None}
        if limit:
            changes["limit"] = {**changes.get("limit", {}), **limit}
        if execution is not None:
            changes["execution"] = execution
        if caps := read_limits(max_weight, max_turnover, groups):
            known = changes.get("limits", {})
            changes["limits"] = {**known, **caps} if isinstance(known, dict) else known
        settings = RetrainSettings(
            snapshot=snapshot,
            update=update,
            preset=preset,
            algo=algo,
            config=changes,
            fee_bps=fee_bps,
            cash=cash,
            seed=seed,
            holdout=holdout,
            confidence=confidence,
        )
        with Registry.open(place) as registry:
            try:
                done = run(settings, registry=registry, progress=progress)
            except RetrainBusyError as error:
                print_error(str(error), type(error).__name__, as_json=as_json)
                raise typer.Exit(BUSY) from None
    if as_json:
        typer.echo(json.dumps(to_record(done), indent=2, allow_nan=False))
    else:
        typer.echo(done.reason)
    if done.outcome == "kept":
        raise typer.Exit(KEPT)


@contextmanager
def _sigterm() -> Iterator[None]:
    """SIGTERM as an exception, so that the run is recorded as interrupted and locks are released."""

    def end(*_: object) -> None:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[float, str], None]]:
    """On stderr a bar with the time it will take, or without a terminal a line every half minute."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, quiet=quiet)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as board:
        bar = board.add_task("retrain", total=1.0)
        file, lines = CommandProgress(), ProgressLines(quiet)

        def note(share: float, what: str) -> None:
            board.update(bar, completed=share, description=escape(what))
            file.write(share, what)
            lines.write(share, what)

        yield note


def register(root: typer.Typer) -> None:
    """Add the command to the application."""
    root.command(
        "retrain",
        epilog=examples(
            "retrain --snapshot mine --update",
            "retrain --json",
            "retrain --alpha 0.1 --bound -0.03 --holdout 252",
        ),
    )(retrain)
