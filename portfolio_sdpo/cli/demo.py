"""`portfolio-sdpo demo`: the main job on the bundled prices, while one watches."""

from typing import Annotated

import typer

from portfolio_sdpo.cli._agent_options import Json
from portfolio_sdpo.cli._examples import examples

START, END = "2019-01-02", "2019-03-29"


def demo(
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Strategies at a time.")] = 2,
    as_json: Json = False,
) -> None:
    """Backtest SDPO and PPO on a quarter of 2019.

    On nine bundled stocks, without a network, against the benchmarks, in under three minutes. It ends with a table,
    weights and a report.
    """
    from rich.console import Console
    from rich.text import Text

    from portfolio_sdpo.cli.backtest import backtest

    Console(quiet=as_json).print(
        Text.assemble(
            ("SDPO and PPO on nine stocks and cash, first quarter of 2019", "bold"),
            "\nBoth start all in cash and learn at every decision from what is known by then. SDPO keeps a limit: the"
            "\nworst 10 % of 15-session periods may lose 5 % on average. The shield checks it again before a trade.\n",
        )
    )
    backtest(algo="sdpo,ppo", alpha=0.1, start=START, end=END, jobs=jobs, as_json=as_json)


def register(root: typer.Typer) -> None:
    """Add the command to the application."""
    root.command("demo", epilog=examples("demo", "demo --jobs 1 --json"))(demo)
