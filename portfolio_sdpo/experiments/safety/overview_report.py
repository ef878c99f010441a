"""The tasks of question (B) as one page: for the terminal, and as one HTML file that needs nothing but itself."""

from __future__ import annotations

import base64
from html import escape
from io import BytesIO

from matplotlib import rc_context
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from portfolio_sdpo.experiments.safety.overview import (
    LABELS,
    SafetyOverview,
    TaskOverview,
    TaskResult,
    describe_overview,
)
from portfolio_sdpo.experiments.safety.overview_figure import draw_overview
from portfolio_sdpo.experiments.statistics.report import render_statistics
from portfolio_sdpo.experiments.style import STYLE
from portfolio_sdpo.experiments.tables import NONE, display_name, format_percent, format_spread, make_plain_table
from portfolio_sdpo.report.formats import table
from portfolio_sdpo.report.page import render_document, render_section

_TITLES = {
    "short": "Safety Gym, eighteen tasks, expected cost at most 25: worlds that are easier to learn in",
    "suite": "Safety Gym, expected cost at most 25: the suite's own observations and actions",
}
HEADINGS = (
    "policy",
    "seeds",
    "steps",
    "return",
    "cost",
    "over",
    "worst",
    "sum",
    "return / PPO",
    "violation / PPO",
    "cost rate / PPO",
)
_NOTE = (
    "Return and cost of the last five iterations' own episodes, at the end of the runs. over: share of all iterations "
    "whose episodes are beyond the bound; worst: by how much at most; sum (on the page): cost of all steps. / PPO: Ray "
    "et al.'s normalised return, violation and cost rate, at the steps that both have. Published figures are of "
    "others, after the steps they give, with the suite's own observations and actions."
)


def render_overview(overview: SafetyOverview) -> RenderableType:
    """For the terminal: a table of every task with runs, the statistics over tasks, and what is missing."""
    blocks: list[RenderableType] = [Text(_TITLES[overview.variant], style="bold")]
    for task in overview.tasks:
        if task.results:
            blocks += [
                Text(""),
                _task_table(task),
                Text(f"published within the bound: {_published(task)}{_beside(task)}", style="dim"),
            ]
    return Group(
        *blocks,
        Text(""),
        Text(_NOTE, style="dim"),
        *render_statistics(overview.statistics),
        Text(""),
        Text(_lead(overview)),
        *_gaps(overview),
    )


def render_overview_page(overview: SafetyOverview) -> str:
    """As HTML, with the figure."""
    title = _TITLES[overview.variant]
    summary = f"{_lead(overview)} {_count(overview)}"
    body = [
        f"<header><h1>{escape(title)}</h1><p class='sub'>{escape(summary)}</p></header>",
        render_section("Return and cost while learning", _picture(overview)),
        render_section("Every task", f"<p class='note'>{escape(_NOTE)}</p>" + _html_table(overview)),
        render_section("Over all tasks", _html_statistics(overview)),
        render_section("What is missing", _html_gaps(overview)),
    ]
    return render_document(title, "\n".join(body), describe_overview(overview))


def _task_table(task: TaskOverview) -> Table:
    found = make_plain_table(task.experiment.world.task, bold=True)
    shown = [index for index, heading in enumerate(HEADINGS) if heading != "sum"]  # eighty columns are few
    for index in shown:
        heading = HEADINGS[index]
        found.add_column(heading.replace(" / ", "\n/ "), justify="left" if heading == "policy" else "right")
    for result in task.results:
        cells = _cells(result)
        found.add_row(*(cells[index] for index in shown))
    return found


def _cells(result: TaskResult) -> list[str]:
    risk, shares = result.end.risks[0], result.normalised
    normalised = (
        [NONE] * 3
        if shares is None
        else [f"{each:.2f}" for each in (shares.episode_return, shares.violation, shares.cost_rate)]
    )
    return [
        display_name(result.label),
        str(len(result.seeds)),
        f"{result.end.steps / 1e6:g}M",
        format_spread(result.end.episode_return, 2),
        format_spread(risk["risk"], 1),
        format_percent(risk["breaks"], 0),
        format_spread(risk["worst_excess"], 0),
        format_spread(risk["cumulated"], 0),
        *normalised,
    ]


def _published(task: TaskOverview) -> str:
    best = task.published
    if best is None:
        return "none"
    return f"{best.algorithm} {best.episode_return:g} / {best.episode_cost:g} after {best.steps / 1e6:g}M steps"


def _beside(task: TaskOverview) -> str:
    return "" if task.verdict is None else f"; SDPO: {task.verdict}"


def _lead(overview: SafetyOverview) -> str:
    ahead, known = overview.ahead
    if known == 0:
        return "No task has both a run of SDPO and a published result within the bound."
    return (
        f"SDPO is within the bound and at or above the best published result within it on {ahead} of {known} tasks "
        "where there are both."
    )


def _count(overview: SafetyOverview) -> str:
    return f"{overview.finished} of {overview.wanted} pairs of task and algorithm have a finished run."


def _gaps(overview: SafetyOverview) -> list[Text]:
    lines = [Text(_count(overview))]
    for tasks, missing in _missing(overview).items():
        lines.append(Text(f"missing of {', '.join(tasks)}: {', '.join(missing)}", style="yellow"))
    return lines


def _missing(overview: SafetyOverview) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Tasks that lack the same algorithms, and these algorithms."""
    lacking: dict[tuple[str, ...], list[str]] = {}
    for task in overview.tasks:
        if task.missing:
            names = tuple(display_name(label) for label in task.missing)
            lacking.setdefault(names, []).append(task.experiment.world.task)
    return {tuple(tasks): names for names, tasks in lacking.items()}


def _picture(overview: SafetyOverview) -> str:
    content = BytesIO()
    with rc_context(STYLE):
        draw_overview(overview).savefig(content, format="png", dpi=110)
    caption = "Return (above) and cost (below) of every task over the steps of training; the dashed line is the bound."
    image = base64.b64encode(content.getvalue()).decode()
    return (
        f"<figure><div class='scroll' tabindex='0'><img alt='{escape(caption)}' style='max-width:100%' "
        f"src='data:image/png;base64,{image}'></div><figcaption>{escape(caption)}</figcaption></figure>"
    )


def _html_table(overview: SafetyOverview) -> str:
    rows = []
    for task in overview.tasks:
        name = task.experiment.world.task
        for result in task.results:
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in _cells(result))
            rows.append(f"<tr><th scope='row'>{name}</th>{cells}</tr>")
        if task.published:
            words = f"published: {_published(task)}{_beside(task)}"
            cells = f"<td class='words' colspan='{len(HEADINGS)}'>{escape(words)}</td>"
            rows.append(f"<tr><th scope='row'>{name}</th>{cells}</tr>")
    return table(escape(_count(overview)), ["task", *HEADINGS], rows)


def _html_statistics(overview: SafetyOverview) -> str:
    found = overview.statistics
    if found is None:
        return "<p>No task has a run of PPO and one of another algorithm yet.</p>"
    rows = []
    for label in (each for each in LABELS if each in found.labels):
        score = found.labels[label].score
        width = NONE if score.low is None else f"{score.low:.2f} to {score.high:.2f}"
        rows.append(
            f"<tr><th scope='row'>{escape(display_name(label))}</th><td>{found.labels[label].runs}</td>"
            f"<td>{score.value:.2f}</td><td>{width}</td></tr>"
        )
    pairs = "".join(
        f"<li>P({escape(display_name(pair.better))} &gt; {escape(display_name(pair.worse))}) = "
        f"{pair.probability.value:.2f}{_interval(pair.probability.low, pair.probability.high)}, {pair.pairs} pairs</li>"
        for pair in found.comparisons
    )
    heads = ["policy", "runs", "interquartile mean", "95 % interval"]
    return f"{table(escape(f'{found.score}. {found.resampling}'), heads, rows)}<ul>{pairs}</ul>"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"


def _html_gaps(overview: SafetyOverview) -> str:
    lines = "".join(
        f"<li>{escape(', '.join(tasks))}: {escape(', '.join(missing))}</li>"
        for tasks, missing in _missing(overview).items()
    )
    command = f"portfolio-sdpo experiment run safety-b-&lt;task&gt;-{overview.variant}"
    return f"<ul>{lines}</ul><p><code>{command}</code></p>" if lines else "<p>Nothing.</p>"
