"""The statistics across seeds as a page for the terminal, below the tables of every kind of experiment."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from portfolio_sdpo.experiments.statistics.evidence import SeedStatistics
from portfolio_sdpo.experiments.statistics.seeds import Estimate, Violations
from portfolio_sdpo.experiments.tables import display_name


def render_statistics(statistics: SeedStatistics | None, form: str = ".2f") -> list[RenderableType]:
    """Interquartile means, violations as a distribution, and who is ahead of whom; fits into 80 columns."""
    if statistics is None:
        return []
    several = max(len(each.violations) for each in statistics.labels.values()) > 1
    gaps = any(each.gap is not None for each in statistics.labels.values())
    table = Table(title="Across seeds", title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("policy", no_wrap=True)
    headers = ["runs", "IQM", *(["gap to\noptimum"] if gaps else []), *(["bound"] if several else [])]
    for header in (*headers, "over: median\nand quartiles", "most, depth\nand worst"):
        table.add_column(header, justify="right", no_wrap=True)
    for label, each in statistics.labels.items():
        first = [Text(display_name(label), style="bold"), str(each.runs), _estimate(each.score, form)]
        first += [_estimate(each.gap, form)] if gaps else []
        for number, found in enumerate(each.violations or [None], 1):
            head = first if number == 1 else [""] * len(first)
            table.add_row(*head, *([str(number)] if several else []), *_violations(found))
    lines: list[RenderableType] = [Text(""), table, Text("")]
    for pair in statistics.comparisons:
        text = f"P({display_name(pair.better)} > {display_name(pair.worse)}) = {pair.probability.value:.2f}"
        if pair.probability.low is not None:
            text += f" [{pair.probability.low:.2f}, {pair.probability.high:.2f}]"
        chance = min(pair.chance, pair.chance_below)
        lines.append(Text(f"{text}, {pair.pairs} pairs; permutation p = {chance:.3f}"))
    return [
        *lines,
        Text(
            f"IQM: interquartile mean of the score ({statistics.score}). {_NOTE} {statistics.resampling}", style="dim"
        ),
    ]


_NOTE = (
    "over: share of a run's iterations beyond the bound; depth: mean distance beyond it where it was, in the risk's "
    "own unit. P: a tie counts half; every run of one with every run of the other on the same problem, unpaired, or "
    "paired where each has one run."
)


def _estimate(found: Estimate | None, form: str) -> str:
    if found is None:
        return "–"
    if found.low is None or found.high is None:
        return f"{found.value:{form}}"
    return f"{found.value:{form}}\n[{found.low:{form}}, {found.high:{form}}]"


def _violations(found: Violations | None) -> list[str]:
    if found is None:
        return ["–", "–"]
    _, lower, median, upper, most = found.quantiles
    depth = "–" if found.depth is None else f"{found.depth:.3g}"
    return [f"{median:.1%}\n[{lower:.1%}, {upper:.1%}]", f"{most:.1%}\n{depth}, {found.worst:.3g}"]
