"""What the tables of all families share: an algorithm's name, a figure's spread over seeds, the notes below a table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from rich.table import Table
from rich.text import Text

NAMES = {
    "ppo": "PPO",
    "ppo-lagrangian": "PPO-Lagrangian",
    "sdpo": "SDPO",
    "pd-cvar": "PD-CVaR",
    "pd-var": "PD-VAR",
    "ipo": "IPO",
    "cpo": "CPO",
    "pcpo": "PCPO",
    "sdpo-backup": "SDPO, backup",
    "sdpo-trajectory": "SDPO, no critics",
    "pd-sdpo": "PD-SDPO",
    "pd-trajectory": "PD-SDPO, no critics",
    "sdpo-cvar": "SDPO for CVaR",
    "sdpo-mean": "SDPO for the mean",
}
"""Label → name."""


def display_name(label: str) -> str:
    """The name of a label; a number behind a known label is its α, and an unknown label stands for itself.

    >>> display_name("pd-cvar"), display_name("sdpo-0.05"), display_name("mine")
    ('PD-CVaR', 'SDPO α = 0.05', 'mine')
    """
    kind, _, alpha = label.rpartition("-")
    return NAMES.get(label) or (f"{NAMES[kind]} α = {alpha}" if kind in NAMES else label)


LEVEL = 0.95
"""Of the interval of a mean."""


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over runs."""

    mean: float
    sd: float | None
    """sample standard deviation; None for a single run"""

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """The spread of the values that are there; None if there are none.

        >>> Spread.of([1.0, 3.0])
        Spread(mean=2.0, sd=1.4142135623730951)
        """
        numbers = [value for value in values if value is not None]
        if not numbers:
            return None
        return cls(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None)


@dataclass(frozen=True)
class MeanInterval:
    """Mean over seeds with Student's interval at 95 %, and the range of the seeds."""

    mean: float
    low: float | None
    """lower end of the interval of the mean; None for fewer than two seeds"""
    high: float | None
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> MeanInterval | None:
        """None if there is nothing to average, or a value is not defined.

        >>> interval = MeanInterval.of([1.0, 2.0, 3.0])
        >>> interval.mean, round(interval.low, 3), round(interval.high, 3)
        (2.0, -0.484, 4.484)
        """
        numbers = list(values)
        if not numbers or any(value is None or not math.isfinite(value) for value in numbers):
            return None
        array = np.array(numbers, dtype=np.float64)
        mean, low, high = float(array.mean()), None, None
        if len(array) > 1:
            from scipy.stats import t

            half = float(t.ppf(0.5 + LEVEL / 2, len(array) - 1) * array.std(ddof=1) / math.sqrt(len(array)))
            low, high = mean - half, mean + half
        return cls(mean, low, high, float(array.min()), float(array.max()))


NONE = "–"
"""Stands for a figure that is not defined."""


def make_plain_table(title: str | None = None, *, bold: bool = False, gap: int = 1, style: str = "none") -> Table:
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


def describe_failures(failures: Mapping[str, str]) -> list[Text]:
    """A red line for every failed run; run → message."""
    return [Text(f"{run} failed: {message}", style="red") for run, message in failures.items()]


def describe_outdated(outdated: Iterable[str]) -> list[Text]:
    """A yellow line that names the runs whose settings differ from the declared ones, if there are any."""
    names = ", ".join(outdated)
    return [Text(f"made with settings other than those declared now: {names}", style="yellow")] if names else []


def describe_experiment(name: str, title: str, question: str, size: str, *notes: str) -> list[Text]:
    """The lines of an experiment in `experiment list`."""
    lines = [Text.assemble((name, "bold"), f"  {title}"), Text(f"    {question}")]
    return [*lines, *(Text(f"    {note}") for note in notes), Text(f"    {size}", style="dim")]
