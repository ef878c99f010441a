"""Snapshots as pages for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from portfolio_sdpo.errors import SnapshotError
from portfolio_sdpo.prices.manifest import Manifest
from portfolio_sdpo.prices.snapshots import Snapshot

SHOWN = 20
"""How many tickers, warnings or findings are shown; `--json` has all of them."""
HASH = 12
"""How much of a hash is shown; enough for `NAME@HASH`."""


def render_list(found: Mapping[str, Manifest | SnapshotError]) -> RenderableType:
    """One line per snapshot."""
    if not found:
        return Text("There is no snapshot yet; make one with `data fetch` or `data import`.")
    table = _table("name", "source", "first day", "last day", "rows", "tickers", "warnings", "sha256")
    problems = []
    for name, entry in found.items():
        if isinstance(entry, Manifest):
            table.add_row(Text(name, style="bold"), *_cells(entry))
        else:
            table.add_row(Text(name, style="bold red"), Text("damaged", style="red"))
            problems.append(Text(str(entry), style="red"))
    return Group(table, *problems)


def render(snapshot: Snapshot, versions: Sequence[Manifest]) -> RenderableType:
    """Everything about one version, and the chain it stands in."""
    manifest = snapshot.manifest
    history = _table("version", "source", "first day", "last day", "rows", "tickers", "warnings", "sha256")
    for number, version in zip(range(len(versions), 0, -1), versions, strict=True):
        shown = version.sha256 == manifest.sha256
        history.add_row(f"{number}", *_cells(version), style="bold" if shown else "")
    return Group(_facts(snapshot), *_remarks(manifest), Text(""), history)


def render_saved(snapshot: Snapshot, new: bool, sentences: Iterable[str] | None) -> RenderableType:
    """What fetch, import or update did; sentences are the update's own."""
    manifest = snapshot.manifest
    if sentences is not None:
        lines = [Text(sentence) for sentence in sentences]
        return Group(*lines, *([_facts(snapshot), *_remarks(manifest)] if new else []))
    if not new:
        return Text(f"{manifest.name} holds exactly these prices already: nothing was stored.")
    return Group(_facts(snapshot), *_remarks(manifest))


def _facts(snapshot: Snapshot) -> RenderableType:
    manifest = snapshot.manifest
    carried = sum(map(len, manifest.carried.values()))
    cells = manifest.rows * len(manifest.tickers)
    facts = {
        "range": f"{manifest.start} to {manifest.end}, {manifest.rows} session{'s' * (manifest.rows != 1)}",
        "tickers": f"{len(manifest.tickers)}: {_some(manifest.tickers)}",
        "prices": f"{manifest.column}, adjustment {manifest.adjustment}"
        + (f", {manifest.currency}" if manifest.currency else "")
        + (f", {carried:,} of {cells:,} cells carried" if carried else ""),
        "source": f"{manifest.source}, {manifest.fetched_at:%Y-%m-%d %H:%M} UTC",
        "sha256": manifest.sha256,
    }
    if manifest.frequency:
        yearly = f", {manifest.periods_per_year:.0f} a year" if manifest.periods_per_year else ""
        facts["frequency"] = f"{manifest.frequency}{yearly}, calendar {manifest.request.calendar or 'none'}"
    if manifest.companions:
        facts["also stored"] = ", ".join(manifest.companions)
    if manifest.survivorship:
        facts["universe"] = manifest.survivorship
    if manifest.parent:
        facts["parent"] = manifest.parent
    table = Table(box=None, show_header=False, pad_edge=False, title=manifest.name, title_justify="left")
    table.title_style = "bold"
    for key, value in facts.items():
        table.add_row(Text(key, style="dim"), Text(value))
    return table


def _remarks(manifest: Manifest) -> list[RenderableType]:
    """Notes, warnings, and findings that are only for information."""
    info = [finding["sentence"] for finding in manifest.report if finding["severity"] == "info"]
    grid = Table.grid(padding=(0, 1))  # a hanging indent for sentences that are longer than a line
    for mark, style, sentences in (("-", "", manifest.notes), ("!", "yellow", manifest.warnings), ("-", "dim", info)):
        for sentence in sentences[:SHOWN]:
            grid.add_row(Text(mark, style=style), Text(sentence, style=style))
        if len(sentences) > SHOWN:
            grid.add_row(Text(mark, style=style), Text(f"{len(sentences) - SHOWN} more, see --json.", style=style))
    return [Text(""), grid] if grid.row_count else []


def _cells(manifest: Manifest) -> tuple[str, ...]:
    return (
        manifest.source,
        str(manifest.start),
        str(manifest.end),
        str(manifest.rows),
        str(len(manifest.tickers)),
        str(len(manifest.warnings)),
        manifest.sha256[:HASH],
    )


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        numeric = column in ("rows", "tickers", "warnings")
        table.add_column(column, justify="right" if numeric else "left", no_wrap=True)
    return table


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
