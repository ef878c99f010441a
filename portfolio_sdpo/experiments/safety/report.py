"""A Safety Gym experiment as a page for the terminal: its results, and beside them what others report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from portfolio_sdpo.experiments.safety.experiment import SafetyExperiment
from portfolio_sdpo.experiments.safety.standings import LAST, Standing
from portfolio_sdpo.experiments.safety.summary import AlgorithmStanding, SafetySummary
from portfolio_sdpo.experiments.statistics.report import render_statistics
from portfolio_sdpo.experiments.tables import (
    describe_experiment,
    describe_failures,
    describe_outdated,
    display_name,
    format_percent,
    format_spread,
    make_plain_table,
)


def render_safety(summary: SafetySummary) -> RenderableType:
    """One table at equal steps, one at the end of runs that are longer, one of others' figures; fits 80 columns."""
    blocks: list[RenderableType] = [Text(summary.title, style="bold")]
    if summary.algorithms:
        equal = {label: each.equal for label, each in summary.algorithms.items()}
        blocks += [Text(""), _table(f"After {summary.equal_steps:,} steps, which all have", equal, summary)]
        longer = {label: each.end for label, each in summary.algorithms.items() if each.end != each.equal}
        if longer:
            blocks += [Text(""), _table("At the end of longer runs", longer, summary)]
        blocks += [Text(""), Text(_NOTE, style="dim"), *render_statistics(summary.statistics)]
    if summary.public:
        blocks += [Text(""), _public(summary)]
    return Group(*blocks, *_troubles(summary))


def describe_safety(members: Sequence[SafetyExperiment], group: str) -> RenderableType:
    """Question, algorithms and size of experiments that differ only in their task; `group` is their common name."""
    first, alone = members[0], len(members) == 1
    title = first.title if alone else first.title.replace(first.world.task, f"{len(members)} tasks")
    names = ", ".join(map(display_name, dict.fromkeys(label for each in members for label in each.algorithms)))
    lengths = sorted({each.iterations for each in members})
    length = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
    size = f"{length} iterations of {first.batch:,} steps, {len(first.seeds)} runs each"
    more = "".join(f" ({display_name(label)}: {count})" for each in members for label, count in each.lengths.items())
    tasks = ", ".join(experiment.world.task.lower() for experiment in members)
    notes = [] if alone else [f"<task>: {tasks}"]
    name = first.name if alone else group
    return Group(*describe_experiment(name, title, first.question, f"{names}; {size}{more}", *notes))


_NOTE = (
    "Of the learner's own episodes, undiscounted, mean ± sd over seeds; return and risk of the last "
    f"{LAST} iterations. over: share of all iterations whose own episodes are beyond the bound; worst: by how much at "
    "most; sum: of the signal over all steps. steps/s: training included, as the machine was loaded."
)


def _table(title: str, standings: Mapping[str, AlgorithmStanding], summary: SafetySummary) -> Table:
    table = make_plain_table(title)
    table.add_column("policy", no_wrap=True)
    headers = ["seeds", "return"]
    wide = len(summary.constraints) == 1
    for name in summary.constraints:
        # `expectation of cost <= 25` as `cost <= 25`; which measure it is the title says.
        headers += [name.partition(" of ")[2].replace(" <=", "\n<="), "over", "worst", *(["sum"] if wide else [])]
    for header in [*headers, "steps", "steps/s"]:
        table.add_column(header, justify="right", no_wrap=True)
    for label, each in standings.items():
        cells = []
        for risk in each.risks:
            cells += [
                format_spread(risk["risk"], 2),
                format_percent(risk["breaks"], 0),
                format_spread(risk["worst_excess"], 2),
                *([format_spread(risk["cumulated"], 0)] if wide else []),
            ]
        own = summary.algorithms[label]
        table.add_row(
            Text(display_name(label), style="bold"),
            str(len(own.seeds)),
            format_spread(each.episode_return, 2),
            *cells,
            _steps(each.steps),
            format_spread(own.steps_per_second, 0),
        )
    return table


def _public(summary: SafetySummary) -> Table:
    table = make_plain_table("Figures of others, not measured here (return / cost, bound 25)", gap=2, style="dim")
    table.add_column("policy")
    for header in ("return", "cost", "steps"):
        table.add_column(header, justify="right")
    table.add_column("source")
    for each in summary.public:
        steps = _steps(each.steps)
        table.add_row(
            each.algorithm, f"{each.episode_return:.1f}", f"{each.episode_cost:.1f}", steps, each.source, style="dim"
        )
    return table


def _troubles(summary: SafetySummary) -> list[Text]:
    lines = describe_failures(summary.failures)
    for run, stands in summary.unfinished.items():
        lines.append(Text(f"{run} is unfinished{_stands(stands)}", style="yellow"))
    return lines + describe_outdated(summary.outdated)


def _stands(stands: Standing | None) -> str:
    if stands is None:
        return ""
    risks = ", ".join(f"{risk.risk:.2f} ({risk.breaks:.0%} over)" for risk in stands.risks)
    return f": {_steps(stands.steps)} steps, return {stands.episode_return:.2f}, risk {risks}"


def _steps(steps: int) -> str:
    """
    >>> _steps(2_010_000), _steps(30_000)
    ('2.01M', '30k')
    """
    return f"{steps / 1e6:.3g}M" if steps >= 1_000_000 else f"{steps / 1e3:.3g}k"
