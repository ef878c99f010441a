"""A backtest as a page for the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from portfolio_sdpo.backtest.groups import Group, groups, main_group
from portfolio_sdpo.backtest.run import Result

SHOWN = 12
"""How many weights are shown; `--json` has all of them."""


def render(result: Result) -> RenderableType:
    """The table of results and the latest weights."""
    found = groups(result.record.metrics)
    main = main_group(found)
    limit = result.record.config["settings"]["limit"]
    shown = main.shown
    title = Text(f"{shown['start']} to {shown['end']}, {shown['sessions']} sessions", style="bold")
    # Fits into 80 columns.
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("strategy", overflow="fold")
    for heading in ("wealth", "CAGR", "vol.", "Sharpe", "drawdown", f"CVaR {limit['horizon']}", "turn.", "cost"):
        table.add_column(heading, justify="right", no_wrap=True)
    for group in found:
        table.add_row(*_cells(group), style="bold" if group is main else "")
    legend = (
        f"CVaR: mean of the worst {limit['alpha'] * 100:g} % of {limit['horizon']}-session returns; "
        f"✓ at or above the limit of {limit['bound']:.1%}."
    )
    if any(len(group.records) > 1 for group in found):
        legend += " Of several seeds, the one in the middle by final wealth."
    return Lines(title, Text(""), table, Text(""), Text(legend, style="dim"), Text(""), *_latest(main))


def _cells(group: Group) -> Iterable[str | Text]:
    record = group.shown
    low, high = record["intervals"].get("sharpe", (None, None))
    sharpe = Text(_written(record["sharpe"], ".2f"))
    if low is not None:
        sharpe.append(f"\n[{low:.2f}, {high:.2f}]", style="dim")
    kept = record["promise"]["kept"]
    cvar = Text(_written(record["cvar_window"], ".1%"))
    if kept is not None:
        cvar.append(" ✓" if kept else " ✗", style="green" if kept else "red")
    name = Text(group.name)
    if len(group.records) > 1:
        name.append(f"\n{len(group.records)} seeds", style="dim")
    return (
        name,
        _written(record["final_wealth"], ".2f"),
        _written(record["cagr"], ".1%"),
        _written(record["volatility"], ".1%"),
        sharpe,
        _written(record["max_drawdown"], ".1%"),
        cvar,
        _written(record["turnover"], ".1f"),
        _written(record["cost"], ".2%"),
    )


def _latest(main: Group) -> list[RenderableType]:
    record = main.shown
    visible = [(asset, weight) for asset, weight in record["final_weights"].items() if weight >= 0.0005]
    ordered = sorted(visible, key=lambda item: -item[1])
    text = "  ".join(f"{asset} {weight:.1%}" for asset, weight in ordered[:SHOWN])
    more = f"  and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
    return [Text(f"Weights of {main.name} at the close of {record['end']}", style="bold"), Text(text + more)]


def _written(value: Any, form: str) -> str:
    return "–" if value is None else format(value, form)
