"""A Safety Gym experiment as a page for the terminal: its results, and beside them what others report."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from portfolio_sdpo.experiments.cmdp.figures import NAMES
from portfolio_sdpo.experiments.cmdp.summary import Spread
from portfolio_sdpo.experiments.paper.seeds_report import render_statistics
from portfolio_sdpo.experiments.safety.declared import SafetyExperiment
from portfolio_sdpo.experiments.safety.summary import LAST, OverSeeds, SafetySummary, Standing


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


def render_safety_list(experiments: Mapping[str, SafetyExperiment]) -> RenderableType:
    """Every question with its algorithms and size; experiments that differ only in their task share a line."""
    blocks: list[RenderableType] = []
    groups: dict[str, list[SafetyExperiment]] = {}
    for experiment in experiments.values():
        groups.setdefault(experiment.name.replace(experiment.world.task.lower(), "<task>"), []).append(experiment)
    for name, members in groups.items():
        first = members[0]
        alone = len(members) == 1
        title = first.title if alone else first.title.replace(first.world.task, f"{len(members)} tasks")
        names = ", ".join(NAMES.get(label, label) for label in first.algorithms)
        size = f"{first.iterations} iterations of {first.batch:,} steps, {len(first.seeds)} runs each"
        more = "".join(f" ({NAMES.get(label, label)}: {count})" for label, count in first.lengths.items())
        blocks += [
            Text.assemble((first.name if alone else name, "bold"), f"  {title}"),
            Text(f"    {first.question}"),
            *([] if alone else [Text(f"    <task>: {_tasks(members)}")]),
            Text(f"    {names}; {size}{more}", style="dim"),
        ]
    return Group(*blocks)


def _tasks(members: list[SafetyExperiment]) -> str:
    return ", ".join(experiment.world.task.lower() for experiment in members)


_NOTE = (
    "Of the learner's own episodes, undiscounted, mean ± sd over seeds; return and risk of the last "
    f"{LAST} iterations. over: share of all iterations whose own episodes are beyond the bound; worst: by how much at "
    "most; sum: of the signal over all steps. steps/s: training included, as the machine was loaded."
)


def _table(title: str, standings: Mapping[str, OverSeeds], summary: SafetySummary) -> Table:
    table = Table(title=title, title_justify="left", title_style="", box=None, pad_edge=False, padding=(0, 1, 0, 0))
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
                _text(risk["risk"], 2),
                _percent(risk["breaks"]),
                _text(risk["worst_excess"], 2),
                *([_text(risk["cumulated"], 0)] if wide else []),
            ]
        own = summary.algorithms[label]
        table.add_row(
            Text(NAMES.get(label, label), style="bold"),
            str(len(own.seeds)),
            _text(each.episode_return, 2),
            *cells,
            _steps(each.steps),
            _text(own.steps_per_second, 0),
        )
    return table


def _public(summary: SafetySummary) -> Table:
    table = Table(
        title="Others' figures, not measured here (return / cost, bound 25)",
        title_justify="left",
        title_style="",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        style="dim",
    )
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
    lines = [Text(f"{run} failed: {message}", style="red") for run, message in summary.failures.items()]
    for run, stands in summary.unfinished.items():
        lines.append(Text(f"{run} is unfinished{_stands(stands)}", style="yellow"))
    if summary.outdated:
        lines.append(Text(f"made with other settings than declared now: {', '.join(summary.outdated)}", style="yellow"))
    return lines


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


def _text(value: Spread | float | None, digits: int) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.{digits}f}"
    return f"{value.mean:,.{digits}f}" + ("" if value.sd is None else f"\n± {value.sd:,.{digits}f}")


def _percent(value: Spread | float | None) -> str:
    if not isinstance(value, Spread):
        return "–"
    return f"{100 * value.mean:.0f} %" + ("" if value.sd is None else f"\n± {100 * value.sd:.0f}  ")
