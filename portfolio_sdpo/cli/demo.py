"""`portfolio-sdpo demo`: the main job on the bundled prices, through a crash, while one watches."""

from typing import Annotated

import typer

from portfolio_sdpo.cli._agent_options import Json
from portfolio_sdpo.cli._examples import examples

START, END = "2020-01-02", "2020-04-30"
RIVALS = ("equal-weight", "inverse-volatility", "mean-variance", "maximum-return", "cash")
NEXT = (
    ("portfolio-sdpo dashboard", "this backtest in a browser"),
    ("portfolio-sdpo data import prices.csv --name mine", "your own prices"),
    ("portfolio-sdpo backtest --snapshot mine", "the same for them"),
    ("portfolio-sdpo retrain --snapshot mine", "a model to serve and trade"),
)
"""What to do next: a command, and what it shows or makes."""


def demo(
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Strategies at a time.")] = 2,
    as_json: Json = False,
) -> None:
    """Backtest SDPO and PPO through the crash of 2020.

    On nine bundled stocks, without a network, beside rivals behind the same shield, in under three minutes. It ends
    with a table, weights, a report and what to do next.
    """
    from rich.console import Console
    from rich.text import Text

    from portfolio_sdpo.cli.backtest import backtest

    console = Console(quiet=as_json)
    console.print(
        Text.assemble(
            ("Nine stocks and cash, January to April 2020", "bold"),
            "\nThe limit: the worst 5 % of 15-session periods may lose 5 % on average. PPO, the control, knows none. "
            "Behind the shield, which scales stocks towards cash before a trade, all have the same limit, so that "
            "their growth can be compared. Takes one to three minutes.\n",
        )
    )
    backtest(
        algo="sdpo,ppo",
        strategies=",".join(RIVALS),
        start=START,
        end=END,
        jobs=jobs,
        as_json=as_json,
    )
    if not as_json:
        # Not wrapped, so that they can be copied.
        typer.echo("\n".join(["\nNext", *(f"  {command:<49} # {what}" for command, what in NEXT)]))


def register(root: typer.Typer) -> None:
    """Add the command to the application."""
    root.command("demo", epilog=examples("demo", "demo --jobs 1 --json"))(demo)
