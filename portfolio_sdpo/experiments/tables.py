"""What the terminal tables of all families share: how a spread is written, and the notes below a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.table import Table
from rich.text import Text

from portfolio_sdpo.experiments.aggregates import Spread

NONE = "–"
"""Stands for a figure that is not defined."""


def plain_table(title: str | None = None, *, bold: bool = False, gap: int = 1, style: str = "none") -> Table:
    """A table without lines; `gap` is the space between columns."""
    return Table(
        title=title,
        title_justify="left",
        title_style="bold" if bold else "",
        box=None,
        pad_edge=False,
        padding=(0, gap, 0, 0),
        style=style,
    )


def format_spread(value: Spread | float | None, digits: int) -> str:
    """Mean, and the standard deviation on a second line.

    >>> format_spread(Spread(1.0, 0.5), 2)
    '1.00\\n± 0.50'
    """
    if value is None:
        return NONE
    if isinstance(value, float):
        return f"{value:,.{digits}f}"
    return f"{value.mean:,.{digits}f}" + ("" if value.sd is None else f"\n± {value.sd:,.{digits}f}")


def format_percent(value: Spread | float | None, digits: int) -> str:
    """A share as a percentage, and its standard deviation on a second line; only a `Spread` has one.

    >>> format_percent(Spread(0.25, None), 0)
    '25 %'
    """
    if not isinstance(value, Spread):
        return NONE
    return f"{100 * value.mean:.{digits}f} %" + ("" if value.sd is None else f"\n± {100 * value.sd:.{digits}f}  ")


def failure_lines(failures: Mapping[str, str]) -> list[Text]:
    """A red line for every failed run; run → message."""
    return [Text(f"{run} failed: {message}", style="red") for run, message in failures.items()]


def outdated_lines(outdated: Iterable[str]) -> list[Text]:
    """A yellow line that names the runs whose settings differ from the declared ones, if there are any."""
    names = ", ".join(outdated)
    return [Text(f"made with settings other than those declared now: {names}", style="yellow")] if names else []


def describe_experiment(name: str, title: str, question: str, size: str, *notes: str) -> list[Text]:
    """The lines of an experiment in `experiment list`."""
    lines = [Text.assemble((name, "bold"), f"  {title}"), Text(f"    {question}")]
    return [*lines, *(Text(f"    {note}") for note in notes), Text(f"    {size}", style="dim")]
