"""`portfolio-sdpo data ...`: prices in, snapshots out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from portfolio_sdpo.cli import _completion
from portfolio_sdpo.cli._agent_options import Json
from portfolio_sdpo.cli._data_options import (
    parse_calendar,
    parse_day,
    parse_membership,
    parse_repairs,
    parse_settings,
    parse_tickers,
    show_progress,
)
from portfolio_sdpo.cli._examples import examples
from portfolio_sdpo.cli._frame import explain_interrupt
from portfolio_sdpo.errors import Interruption, SnapshotError

if TYPE_CHECKING:
    from portfolio_sdpo.prices.snapshots import Snapshot

app = typer.Typer(
    no_args_is_help=True,
    help="Import and fetch prices, store them as snapshots, export them.",
    epilog=examples("data fetch --source sample --name nine", "data import prices.csv --name mine", "data list"),
)

Version = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The snapshot; NAME@HASH is an older version of it.",
        autocompletion=_completion.snapshots,
    ),
]
NewName = Annotated[str, typer.Option("--name", help="Name of the snapshot; an existing one gets a new version.")]
Calendar = Annotated[
    str,
    typer.Option(
        "--calendar",
        help="Calendar of `exchange_calendars`; `auto` = XNYS for daily prices, 24/7 for those of every day; "
        "`none` = no check.",
    ),
]
Membership = Annotated[
    Path | None,
    typer.Option("--membership", help="A file with the columns ticker, from, to: who was in the universe when."),
]
Start = Annotated[
    str | None, typer.Option("--start", metavar="YYYY-MM-DD", help="The first day.", show_default="the first there is")
]
End = Annotated[
    str | None,
    typer.Option("--end", metavar="YYYY-MM-DD", help="The last day, included.", show_default="the last there is"),
]
PARTIAL = 3
"""Exit code of a fetch of which some tickers did not arrive."""
RepairOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--repair",
        metavar="KEY=VALUE",
        help="Allow a repair: duplicates=first|last, non_positive=drop, extra_sessions=drop. Repeatable.",
    ),
]
SettingOptions = Annotated[
    list[str] | None,
    typer.Option("--setting", metavar="KEY=VALUE", help="A setting of the source, e.g. table=WIKI/PRICES. Repeatable."),
]


@app.command(
    "fetch",
    epilog=examples(
        "data fetch --source sample --name nine",
        "data fetch --source yfinance --tickers AAPL,MSFT --name tech",
        "data fetch --source yfinance --tickers @list.txt --name big",
    ),
)
def fetch(
    source: Annotated[
        str,
        typer.Option(
            "--source",
            help="yfinance, nasdaq-data-link, quandl, french, file, sample, sample-skfolio, or one of another package.",
            autocompletion=_completion.sources,
        ),
    ],
    name: NewName,
    tickers: Annotated[
        str,
        typer.Option(
            "--tickers", metavar="A,B,...", help="Tickers, or @FILE with them.", show_default="all of a sample"
        ),
    ] = "",
    start: Start = None,
    end: End = None,
    calendar: Calendar = "auto",
    repair: RepairOptions = None,
    membership: Membership = None,
    setting: SettingOptions = None,
    as_json: Json = False,
) -> None:
    """Fetch prices from a source and store them as a snapshot.

    What arrived is kept even if some tickers failed, or if Ctrl-C came before them; these are named, and `data update`
    asks for them again. Exit code 3 if some tickers failed, 1 if all did.
    """
    chosen, first, last = parse_tickers(tickers), parse_day("--start", start), parse_day("--end", end)
    settings = parse_settings(setting)
    from portfolio_sdpo.prices.ingest import fetch_snapshot

    with (
        explain_interrupt("no ticker has arrived yet, so nothing is saved"),
        show_progress(as_json, keep=True) as progress,
    ):
        done = fetch_snapshot(
            source,
            chosen,
            first,
            last,
            name,
            settings=settings,
            calendar=parse_calendar(calendar),
            repairs=parse_repairs(repair),
            membership=parse_membership(membership),
            progress=progress,
        )
    _report_result(done.snapshot, done.new, as_json)
    if progress.interrupted:
        count = len(done.snapshot.manifest.tickers)
        there = "one ticker" if count == 1 else f"{count} tickers"
        raise Interruption(
            f"{name} holds the {there} that had arrived; `portfolio-sdpo data update {name}` asks for the others"
        )
    if done.snapshot.manifest.failures:
        raise typer.Exit(PARTIAL)


@app.command(
    "import",
    epilog=examples(
        "data import prices.csv --name mine",
        "data import folder --name uk --calendar XLON",
        "data import f.csv --name x --layout long:ticker=tic",
    ),
)
def import_file(
    path: Annotated[
        Path,
        typer.Argument(help="A file (CSV, text, JSON, Excel, Parquet, .gz), or a folder with one per ticker."),
    ],
    name: NewName,
    layout: Annotated[
        str | None,
        typer.Option("--layout", help="The layout.", show_default="as recognised", autocompletion=_completion.layouts),
    ] = None,
    dayfirst: Annotated[
        bool | None,
        typer.Option("--dayfirst/--monthfirst", help="How to read 03/01/2011 if the file does not show it."),
    ] = None,
    tickers: Annotated[
        str,
        typer.Option(
            "--tickers", metavar="A,B,...", help="Only these tickers, or @FILE with them.", show_default="all"
        ),
    ] = "",
    start: Start = None,
    end: End = None,
    returns: Annotated[
        str | None,
        typer.Option("--returns", metavar="UNIT", help="The numbers are returns: decimal, percent, log or gross."),
    ] = None,
    to_daily: Annotated[
        bool, typer.Option("--to-daily", help="Keep the last price of each day of intraday prices.")
    ] = False,
    currency: Annotated[
        str | None,
        typer.Option("--currency", metavar="CODE", help="Turn the prices into this currency.", show_default="as given"),
    ] = None,
    rates: Annotated[
        Path | None,
        typer.Option("--rates", help="A file of exchange rates for --currency; its columns are pairs such as EURUSD."),
    ] = None,
    calendar: Calendar = "auto",
    repair: RepairOptions = None,
    membership: Membership = None,
    as_json: Json = False,
) -> None:
    """Store the prices in a file, or a folder of files, as a snapshot."""
    from portfolio_sdpo.prices.ingest import import_snapshot

    done = import_snapshot(
        path,
        name,
        layout,
        tickers=parse_tickers(tickers),
        start=parse_day("--start", start),
        end=parse_day("--end", end),
        dayfirst=dayfirst,
        returns=returns,
        to_daily=to_daily,
        currency=currency,
        rates=rates,
        calendar=parse_calendar(calendar),
        repairs=parse_repairs(repair),
        membership=parse_membership(membership),
    )
    _report_result(done.snapshot, done.new, as_json)
    if done.snapshot.manifest.failures and tickers:
        raise typer.Exit(PARTIAL)


@app.command("update", epilog=examples("data update mine", "data update mine --json"))
def update(
    name: Annotated[str, typer.Argument(help="The snapshot.", autocompletion=_completion.snapshots)],
    repair: RepairOptions = None,
    setting: SettingOptions = None,
    as_json: Json = False,
) -> None:
    """Fetch what is new and store it as the snapshot's next version.

    Where the source has adjusted its history, everything is fetched again, and the older version stays as it is.
    """
    from portfolio_sdpo.prices.update import update_snapshot

    with explain_interrupt(f"{name} is as it was"), show_progress(as_json) as progress:
        updated = update_snapshot(
            name,
            settings=parse_settings(setting),
            repairs=parse_repairs(repair) if repair else None,
            progress=progress,
        )
    more = {"readjusted": list(updated.readjusted), "sentences": list(updated.sentences)}
    _report_result(updated.snapshot, updated.new, as_json, more)


@app.command("list", epilog=examples("data list", "data list --json"))
def list_snapshots(as_json: Json = False) -> None:
    """Name every snapshot, what it holds and where that came from."""
    from portfolio_sdpo.prices.snapshots import Store

    store = Store()
    found: dict[str, Any] = {}
    for name in store.list():
        try:
            found[name] = store.find(name)[1]
        except SnapshotError as error:
            found[name] = error
    if as_json:
        _print_json({"snapshots": [_short(name, entry) for name, entry in found.items()]})
        return
    from rich.console import Console

    from portfolio_sdpo.cli._data_pages import render_list

    Console().print(render_list(found))


@app.command("show", epilog=examples("data show mine", "data show mine@c46e8a3a --json"))
def show(name: Version, as_json: Json = False) -> None:
    """Show what a snapshot holds, its origin, findings and versions."""
    from portfolio_sdpo.prices.snapshots import Store

    store = Store()
    snapshot = store.open(name)
    versions = [manifest for _, manifest in store.history(snapshot.manifest.name)]
    if as_json:
        _print_json(_record(snapshot) | {"versions": [_short(each.name, each) for each in versions]})
        return
    from rich.console import Console

    from portfolio_sdpo.cli._data_pages import render

    Console().print(render(snapshot, versions))


@app.command("verify", epilog=examples("data verify", "data verify mine --json"))
def verify(
    name: Annotated[
        str | None,
        typer.Argument(help="The snapshot; all of them by default.", autocompletion=_completion.snapshots),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read every version and compare every hash.

    Exit code 1 if a file was changed or is missing.
    """
    from portfolio_sdpo.prices.snapshots import Store

    checks = Store().verify(name)
    problems = [check for check in checks if check.problem]
    if as_json:
        _print_json({"sound": not problems, "checks": [vars(check) for check in checks]})
    else:
        for check in problems:
            typer.secho(check.problem, fg=typer.colors.RED, err=True)
        names = len({check.name for check in checks})
        typer.echo(f"Snapshots: {names}, versions: {len(checks)}, damaged: {len(problems)}.")
    if problems:
        raise typer.Exit(1)


@app.command(
    "export", epilog=examples("data export mine --out prices.csv", "data export mine --layout long --out long.csv")
)
def export(
    name: Version,
    out: Annotated[Path, typer.Option("--out", help="The file, or for per-ticker layouts the folder, to write.")],
    layout: Annotated[
        str, typer.Option("--layout", help="How the file is to be laid out.", autocompletion=_completion.layouts)
    ] = "wide",
    as_json: Json = False,
) -> None:
    """Write a snapshot's prices to a file.

    Imported again, they make the same snapshot.
    """
    from portfolio_sdpo.prices.layouts import write_prices
    from portfolio_sdpo.prices.snapshots import Store

    snapshot = Store().open(name)
    manifest = snapshot.manifest
    # Carried prices would be taken for observed ones, and at the end of a listing carried further.
    write_prices(snapshot.observed_prices(), out, layout, manifest.adjustment, manifest.column)
    if as_json:
        _print_json({"name": manifest.name, "sha256": manifest.sha256, "layout": layout, "out": str(out)})
    else:
        typer.echo(f"Wrote {manifest.name} to {out}.")


def _report_result(snapshot: Snapshot, new: bool, as_json: bool, more: dict[str, Any] | None = None) -> None:
    """Say what fetch, import or update did."""
    if as_json:
        _print_json({"new": new} | (more or {}) | _record(snapshot))
        return
    from rich.console import Console

    from portfolio_sdpo.cli._data_pages import render_saved

    Console().print(render_saved(snapshot, new, None if more is None else more["sentences"]))


def _record(snapshot: Snapshot) -> dict[str, Any]:
    return snapshot.manifest.model_dump(mode="json") | {"manifest_sha256": snapshot.digest}


def _short(name: str, entry: Any) -> dict[str, Any]:
    """A manifest in a list of them, or why it cannot be read."""
    if isinstance(entry, SnapshotError):
        return {"name": name, "problem": str(entry)}
    keys = {"name", "sha256", "parent", "source", "start", "end", "rows", "column", "adjustment", "fetched_at"}
    return entry.model_dump(mode="json", include=keys) | {
        "tickers": len(entry.tickers),
        "warnings": len(entry.warnings),
        "problem": None,
    }


def _print_json(record: dict[str, Any]) -> None:
    typer.echo(json.dumps(record, indent=2))


def register(root: typer.Typer) -> None:
    """Add the command group to the application."""
    root.add_typer(app, name="data")
