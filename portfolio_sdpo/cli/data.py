"""`portfolio-sdpo data ...`: prices in, snapshots out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from portfolio_sdpo.errors import SettingsError, SnapshotError

if TYPE_CHECKING:
    from portfolio_sdpo.market.cleaning import Repairs
    from portfolio_sdpo.market.snapshots import Snapshot
    from portfolio_sdpo.market.sources import Progress

app = typer.Typer(no_args_is_help=True, help="Bring prices in, keep them as snapshots, check them, hand them out.")

Version = Annotated[str, typer.Argument(metavar="NAME", help="The snapshot; NAME@HASH is an older version of it.")]
NewName = Annotated[str, typer.Option("--name", help="What to call the snapshot; a known name gets a new version.")]
Calendar = Annotated[str, typer.Option("--calendar", help="Calendar of `exchange_calendars`; `none` = do not check.")]
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
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@app.command("fetch")
def fetch(
    source: Annotated[str, typer.Option("--source", help="yfinance, quandl, sample or sample-skfolio.")],
    name: NewName,
    tickers: Annotated[
        str, typer.Option("--tickers", metavar="A,B,...", help="Tickers, or @FILE with them. Samples: all by default.")
    ] = "",
    start: Annotated[str | None, typer.Option("--start", metavar="YYYY-MM-DD", help="The first day.")] = None,
    end: Annotated[str | None, typer.Option("--end", metavar="YYYY-MM-DD", help="The last day, included.")] = None,
    calendar: Calendar = "XNYS",
    repair: RepairOptions = None,
    setting: SettingOptions = None,
    as_json: Json = False,
) -> None:
    """Fetch prices from a source and keep them as a snapshot.

    What arrived is kept even if some tickers failed; these are named, and `data update` asks for them again.
    """
    chosen, first, last = _tickers(tickers), _day("--start", start), _day("--end", end)
    settings = _settings(setting)
    from portfolio_sdpo.market.ingest import fetch_snapshot

    with _progress(as_json) as progress:
        saved = fetch_snapshot(
            source,
            chosen,
            first,
            last,
            name,
            settings=settings,
            calendar=_calendar(calendar),
            repairs=_repairs(repair),
            progress=progress,
        )
    _tell(saved.snapshot, saved.new, as_json)


@app.command("import")
def import_file(
    path: Annotated[Path, typer.Argument(help="A CSV, CSV.gz or Parquet file, or a folder with one per ticker.")],
    name: NewName,
    layout: Annotated[str | None, typer.Option("--layout", help="Overrule the layout that is recognised.")] = None,
    dayfirst: Annotated[
        bool | None,
        typer.Option("--dayfirst/--monthfirst", help="How to read 03/01/2011 where the file does not tell."),
    ] = None,
    calendar: Calendar = "XNYS",
    repair: RepairOptions = None,
    as_json: Json = False,
) -> None:
    """Keep the prices in a file, or a folder of files, as a snapshot."""
    from portfolio_sdpo.market.ingest import import_snapshot

    saved = import_snapshot(
        path, name, layout, dayfirst=dayfirst, calendar=_calendar(calendar), repairs=_repairs(repair)
    )
    _tell(saved.snapshot, saved.new, as_json)


@app.command("update")
def update(
    name: Annotated[str, typer.Argument(help="The snapshot.")],
    repair: RepairOptions = None,
    setting: SettingOptions = None,
    as_json: Json = False,
) -> None:
    """Fetch what is new since the snapshot was made and keep it as its next version.

    Where the source has adjusted its history, everything is fetched again, and the older version stays as it is.
    """
    from portfolio_sdpo.market.update import update_snapshot

    with _progress(as_json) as progress:
        updated = update_snapshot(
            name,
            settings=_settings(setting),
            repairs=_repairs(repair) if repair else None,
            progress=progress,
        )
    more = {"readjusted": list(updated.readjusted), "sentences": list(updated.sentences)}
    _tell(updated.snapshot, updated.new, as_json, more)


@app.command("list")
def list_snapshots(as_json: Json = False) -> None:
    """Name every snapshot, what it holds and where that came from."""
    from portfolio_sdpo.market.snapshots import Store

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


@app.command("show")
def show(name: Version, as_json: Json = False) -> None:
    """Show what a snapshot holds, where it came from, what cleaning found, and its versions."""
    from portfolio_sdpo.market.snapshots import Store

    store = Store()
    snapshot = store.open(name)
    versions = [manifest for _, manifest in store.history(snapshot.manifest.name)]
    if as_json:
        _print_json(_record(snapshot) | {"versions": [_short(each.name, each) for each in versions]})
        return
    from rich.console import Console

    from portfolio_sdpo.cli._data_pages import render

    Console().print(render(snapshot, versions))


@app.command("verify")
def verify(
    name: Annotated[str | None, typer.Argument(help="The snapshot; all of them by default.")] = None,
    as_json: Json = False,
) -> None:
    """Read every version and compare every hash; exit code 1 if a file was changed or is missing."""
    from portfolio_sdpo.market.snapshots import Store

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


@app.command("export")
def export(
    name: Version,
    layout: Annotated[str, typer.Option("--layout", help="How the file is to be laid out.")],
    out: Annotated[Path, typer.Option("--out", help="The file, or for per-ticker layouts the folder, to write.")],
    as_json: Json = False,
) -> None:
    """Write a snapshot's prices to a file; imported again, they make the same snapshot."""
    from portfolio_sdpo.market.layouts import write_prices
    from portfolio_sdpo.market.snapshots import Store

    snapshot = Store().open(name)
    manifest = snapshot.manifest
    # Carried prices would be taken for observed ones, and at the end of a listing carried further.
    write_prices(snapshot.observed(), out, layout, manifest.adjustment, manifest.column)
    if as_json:
        _print_json({"name": manifest.name, "sha256": manifest.sha256, "layout": layout, "out": str(out)})
    else:
        typer.echo(f"Wrote {manifest.name} to {out}.")


def _tell(snapshot: Snapshot, new: bool, as_json: bool, more: dict[str, Any] | None = None) -> None:
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


@contextmanager
def _progress(quiet: bool) -> Iterator[Progress]:
    """What becomes of each ticker, on stderr: what goes on in a line that changes, what is over in one that stays."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True, quiet=quiet)
    with console.status("") as status:

        def say(ticker: str, what: str) -> None:
            line = escape(f"{ticker}: {what}")
            if what == "fetching":
                status.update(line)
            else:
                console.print(line, style="red" if what.startswith("failed") else "dim")

        yield say


def _tickers(text: str) -> list[str]:
    """`A,B`, or the file in `@file`: tickers with commas, blanks or line ends between them."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).expanduser().read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"--tickers: {text[1:]} cannot be read ({error}); name a text file.") from None
        text = text.replace("\n", ",")
    return [part.strip() for part in text.split(",") if part.strip()]


def _day(option: str, text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise SettingsError(f"{option}: must be a date such as 2021-10-14 (got {text!r}).") from None


def _calendar(text: str) -> str | None:
    return None if text.lower() == "none" else text


def _repairs(pairs: list[str] | None) -> Repairs:
    from portfolio_sdpo.market.cleaning import Repairs

    chosen = dict(_pair("--repair", pair) for pair in pairs or [])
    unknown = [key for key in chosen if key not in Repairs.model_fields]
    if unknown:
        raise SettingsError(f"--repair: there is no {unknown[0]!r}; there are {', '.join(Repairs.model_fields)}.")
    return Repairs(**chosen)


def _settings(pairs: list[str] | None) -> dict[str, Any]:
    """`a=1` as {a: 1}, `retry.a=1` as {retry: {a: 1}}."""
    settings: dict[str, Any] = {}
    for key, value in (_pair("--setting", pair) for pair in pairs or []):
        *groups, last = key.split(".")
        inner = settings
        for group in groups:
            inner = inner.setdefault(group, {})
            if not isinstance(inner, dict):
                raise SettingsError(f"--setting: {key} contradicts {group}, which is given as well; leave one out.")
        inner[last] = value
    return settings


def _pair(option: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise SettingsError(f"{option}: must look like key=value (got {key!r}).")
    return key.strip().replace("-", "_"), value.strip()


def register(root: typer.Typer) -> None:
    """Hang the group onto the application."""
    root.add_typer(app, name="data")
