"""`portfolio-sdpo orders`: what to trade so that an account holds the champion's weights."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from portfolio_sdpo.cli._examples import examples
from portfolio_sdpo.cli._registry import Json, Place, open_registry
from portfolio_sdpo.errors import OrderError, SettingsError

if TYPE_CHECKING:
    from portfolio_sdpo.portfolio.account import Holding
    from portfolio_sdpo.serving import ChampionState, Orders, Refusal


def orders(
    account: Annotated[
        float | None,
        typer.Option(
            "--account",
            metavar="MONEY",
            help="Value of the account; what is not in stocks is cash.",
            show_default="that of the holdings",
        ),
    ] = None,
    holdings: Annotated[
        Path | None,
        typer.Option(
            "--holdings",
            metavar="FILE.csv",
            help="What is held: a column `ticker` and one of `shares` or `money`; the row CASH is money.",
        ),
    ] = None,
    threshold: Annotated[
        float,
        typer.Option(
            "--threshold", min=0, max=0.999999, help="No order below this share of the account: 0.002 = 0.2 %."
        ),
    ] = 0.0,
    lot: Annotated[
        float, typer.Option("--lot", min=1e-6, max=1e6, help="Shares that are traded at once; 0.001 for fractions.")
    ] = 1.0,
    fee_bps: Annotated[
        float | None,
        typer.Option(
            "--fee-bps", min=0, max=9_999, help="Fee in hundredths of a percent.", show_default="the champion's own"
        ),
    ] = None,
    to_csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE.csv", help="Write the orders to a file as well.")
    ] = None,
    max_age_sessions: Annotated[
        int,
        typer.Option(
            "--max-age-sessions",
            envvar="PORTFOLIO_SDPO_SERVE_MAX_AGE_SESSIONS",
            min=0,
            help="Exchange sessions that may have ended since the last price.",
        ),
    ] = 2,
    place: Place = None,
    as_json: Json = False,
) -> None:
    """List what to trade to hold the weights of the champion.

    The champion decides as for `serve`, from what the account holds. Orders are whole lots at the last closes, paid for
    with their fees; they are meant for the next close. Nothing is traded or recorded.
    """
    from portfolio_sdpo.common.files import write_atomically
    from portfolio_sdpo.serving import AnswerSettings, ChampionDecisions, OrderRequest, Refusal, order_champion

    if account is None and holdings is None:
        raise SettingsError(
            "There is no account: give its value with --account, its holdings with --holdings, or both."
        )
    request = OrderRequest.model_construct(
        account=account,
        holdings=[] if holdings is None else list(_read(holdings)),
        threshold=threshold,
        lot=lot,
        fee_bps=fee_bps,
    )
    settings = AnswerSettings.from_environment().model_copy(update={"max_age_sessions": max_age_sessions})
    with open_registry(place) as registry:
        decisions = ChampionDecisions(registry)
        state = decisions.read_state()
        found = order_champion(decisions, state, settings, request)
    if isinstance(found, Refusal):
        raise OrderError(_say_what_mends(found, state))
    if to_csv is not None:
        write_atomically(to_csv, found.to_csv().encode())
    if as_json:
        typer.echo(found.model_dump_json(indent=2, by_alias=True))
    else:
        _print(found)


def _read(path: Path) -> tuple[Holding, ...]:
    from portfolio_sdpo.portfolio.account import read_holdings

    try:
        return read_holdings(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        raise OrderError(f"There is no file {path}: name the CSV with the holdings.") from None
    except IsADirectoryError:
        raise OrderError(f"{path} is a folder: name the CSV with the holdings.") from None
    except UnicodeDecodeError:
        raise OrderError(f"{path} is not text in UTF-8: save it as CSV in UTF-8.") from None


def _say_what_mends(refusal: Refusal, state: ChampionState) -> str:
    """The reason of the refusal with the command that ends it."""
    snapshot = None if state.model is None else state.model.config["data"].get("snapshot")
    name = shlex.quote(snapshot) if snapshot else None
    updates = f"portfolio-sdpo data update {name}" if name else "portfolio-sdpo retrain --snapshot NAME"
    commands = {
        "no-champion": "portfolio-sdpo retrain",
        "champion-withdrawn": "portfolio-sdpo models list",
        "stale-data": updates,
        "suspicious-prices": updates,
        "data-unavailable": "portfolio-sdpo data verify",
        "model-corrupt": "portfolio-sdpo models verify",
    }
    command = commands.get(refusal.kind)
    return refusal.detail if command is None else f"{refusal.detail.rstrip('.')} (`{command}`)."


def _print(found: Orders) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for sentence in (found.explanation, *found.answer.warnings, *found.answer.remarks, *found.remarks):
        console.print(Text(sentence))
    console.print()
    if found.orders:
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("ticker")
        for heading in ("from", "to", "shares", "price", "money", "fee"):
            table.add_column(heading, justify="right")
        for each in found.orders:
            table.add_row(
                each.ticker,
                f"{each.before:,.9g}",
                f"{each.after:,.9g}",
                f"{each.shares:+,.9g}",
                *(f"{figure:,.2f}" for figure in (each.price, each.money, each.fee)),
            )
        console.print(table)
    else:
        console.print("No orders: the account is as close to the weights as whole lots and the threshold allow.")
    console.print()
    if found.left_out:
        console.print(Text(f"Below the threshold and left as they are: {', '.join(found.left_out)}."))
    console.print(
        Text(
            f"Account {found.value:,.2f}; cash {found.cash_before:,.2f} → {found.cash_after:,.2f}; "
            f"fees {found.fees:,.2f}; traded {sum(abs(each.money) for each in found.orders):,.2f}."
        )
    )
    console.print(Text(f"To be traded: {found.trade[0].lower()}{found.trade[1:]}"))


def register(root: typer.Typer) -> None:
    """Add the command to the application."""
    root.command(
        "orders",
        epilog=examples(
            "orders --account 100000",
            "orders --account 100000 --holdings h.csv --threshold 0.002",
            "orders --holdings h.csv --lot 0.001 --fee-bps 5 --csv out.csv",
        ),
    )(orders)
