"""`portfolio-sdpo backtest`: strategies through the same prices, fees and limits, and a report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from portfolio_sdpo.cli._run_options import parse_seeds
from portfolio_sdpo.cli._walk_progress import walk_progress

if TYPE_CHECKING:
    from portfolio_sdpo.backtest import Strategy
    from portfolio_sdpo.backtest.run import BacktestSettings


def backtest(
    preset: PresetName = "default",
    config: Config = None,
    snapshot: SnapshotName = None,
    strategies: Annotated[
        str | None,
        typer.Option(
            "--strategies",
            metavar="A,B,...",
            help="Benchmarks.",
            show_default="all of them",
            autocompletion=_completion.strategies,
        ),
    ] = None,
    algo: Annotated[
        str | None,
        typer.Option(
            "--algo",
            metavar="sdpo,ppo",
            help="Learning agents to backtest beside them; none for none.",
            show_default="sdpo in the preset default",
            autocompletion=_completion.several_agents,
        ),
    ] = None,
    alpha: Alpha = None,
    bound: Bound = None,
    horizon: Horizon = None,
    scenarios: ScenarioKind = None,
    start: Annotated[
        str | None,
        typer.Option("--start", metavar="YYYY-MM-DD", help="First decision.", show_default="after a year of prices"),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--end", metavar="YYYY-MM-DD", help="Last day.", show_default="the last of the prices")
    ] = None,
    fee_bps: FeeBps = None,
    cash: CashKind = None,
    execution: ExecutionKind = None,
    max_weight: MaxWeight = None,
    max_turnover: MaxTurnover = None,
    groups: Groups = None,
    shield: Annotated[
        bool | None,
        typer.Option(
            "--shield/--no-shield",
            help="Show agents and rivals a second time, shielded.",
            show_default="on in the preset default",
        ),
    ] = None,
    shielded: Annotated[
        str | None,
        typer.Option(
            "--shielded",
            metavar="A,B,...",
            help="Benchmarks that the shield is shown on; all, or the strongest.",
            show_default="the best-known",
        ),
    ] = None,
    shield_form: Annotated[
        str | None,
        typer.Option(
            "--shield-form",
            metavar="calibrated|filtered",
            help="The shield's form: calibrated for the next close, or the first one, on historical scenarios.",
            show_default="calibrated in the preset default",
        ),
    ] = None,
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="0,1,...", help="Seeds; the first one also draws the intervals.")
    ] = "0",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="A new folder.", show_default="one in the data directory"),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Strategies at a time.")] = 1,
    restart: Annotated[
        bool, typer.Option("--restart", help="Do not resume the same backtest where it was interrupted.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Backtest agents and benchmarks on past prices, with a report.

    Was the CVaR limit kept? The folder holds report.html, metrics.json and the tables of wealth, weights and trades.
    The same command resumes an interrupted backtest.
    """
    chosen = parse_seeds("--seeds", seeds)
    algos = None if algo is None else [part.strip() for part in algo.split(",")]
    limits = read_limits(max_weight, max_turnover, groups)
    plan = resolve_plan(
        preset, config, algos, alpha, bound, horizon, scenarios, fee_bps, cash, execution, shield, shield_form, limits
    )
    from portfolio_sdpo.backtest.run import BacktestSettings, DeclaredAgent
    from portfolio_sdpo.portfolio.shared_policy_agent import build_agent

    settings = BacktestSettings(
        snapshot=snapshot,
        **({} if strategies is None else {"strategies": [part.strip() for part in strategies.split(",")]}),
        agents=tuple(
            DeclaredAgent(label=label, settings=learning.model_dump(mode="json"))
            for label, learning in plan.agents.items()
        ),
        start=start,
        end=end,
        fee_bps=plan.fee_bps,
        cash=plan.cash,
        execution=plan.execution,
        limit=plan.limit,
        limits=plan.limits,
        shield=plan.shield,
        shield_form=plan.shield_form,
        seeds=chosen,
        **({} if shielded is None else {"shielded": [part.strip() for part in shielded.split(",")]}),
        bootstrap={"seed": chosen[0]},
    )
    agents = [build_agent(learning, seed, label) for label, learning in plan.agents.items() for seed in chosen]
    _run(settings, agents, out, jobs, restart, as_json)


def _run(
    settings: BacktestSettings, agents: Sequence[Strategy], out: Path | None, jobs: int, restart: bool, as_json: bool
) -> None:
    """Run the backtest with its progress on stderr, and tell what came out."""
    from portfolio_sdpo.report.result import run_backtest

    with walk_progress(as_json, len(settings.strategies) + len(agents)) as progress:
        result = run_backtest(settings, out, progress, agents, jobs=jobs, restart=restart)
    if as_json:
        record: dict[str, Any] = {
            "folder": str(result.folder),
            "report": str(result.report_path),
            "config": result.record.config,
            "records": result.record.metrics,
        }
        typer.echo(json.dumps(record, indent=2, allow_nan=False))
        return
    from rich.console import Console

    from portfolio_sdpo.report.terminal import render_backtest

    Console().print(render_backtest(result.record))
    # Paths are not wrapped, so that they can be clicked and copied.
    typer.echo(f"\nReport   {result.report_path}")


def register(root: typer.Typer) -> None:
    """Add the command to the application."""
    root.command(
        "backtest",
        epilog=examples(
            "backtest --start 2019-01-02 --end 2019-12-31",
            "backtest --snapshot mine --algo sdpo,ppo --seeds 0,1 --jobs 2",
            "backtest --preset paper-stocks --alpha 0.1 --json",
            "backtest --algo none --strategies equal-weight,minimum-cvar",
        ),
    )(backtest)
