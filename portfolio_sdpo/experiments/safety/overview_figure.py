"""The paper's figure for all tasks: return above, cost below, one column for each task of a robot."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from portfolio_sdpo.experiments.safety.figures import Curve, draw_band, draw_cost_bound
from portfolio_sdpo.experiments.safety.overview import LABELS, SafetyOverview, TaskOverview
from portfolio_sdpo.experiments.style import INK, algorithm_colour
from portfolio_sdpo.experiments.tables import display_name

COLUMNS = 6
"""Tasks beside each other: those of a robot."""


def draw_overview(overview: SafetyOverview) -> Figure:
    """Two panels for every task; a task without runs says so."""
    columns = min(COLUMNS, len(overview.tasks))
    blocks = -(-len(overview.tasks) // columns)
    figure = Figure(figsize=(2.4 * columns, 3.6 * blocks + 0.5), layout="constrained")
    axes = figure.subplots(2 * blocks, columns, squeeze=False)
    for place in range(blocks * columns):
        above, below = axes[2 * (place // columns)][place % columns], axes[2 * (place // columns) + 1][place % columns]
        if place < len(overview.tasks):
            _draw_task(above, below, overview.tasks[place])
        else:
            above.set_axis_off()
            below.set_axis_off()
    there = [label for label in LABELS if any(label in task.runs for task in overview.tasks)]
    handles = [
        Line2D([], [], color=algorithm_colour(label), linewidth=1.8, label=display_name(label)) for label in there
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=max(1, len(handles)))
    return figure


def _draw_task(above: Axes, below: Axes, task: TaskOverview) -> None:
    above.set_title(task.experiment.world.task)
    curves = [Curve(label, [run.rows for run in task.runs[label]]) for label in LABELS if label in task.runs]
    if not curves:
        for axis in (above, below):
            axis.set_axis_off()
        above.text(0.5, 0.5, "no runs yet", ha="center", va="center", color=INK, transform=above.transAxes)
        return
    for curve in curves:
        draw_band(above, curve, "episode_return")
        draw_band(below, curve, "risk_empirical_0")
    draw_cost_bound(below, task.experiment.problem.constraints[0])
    longest = max(float(log[-1]["total_steps"]) for curve in curves for log in curve.logs)
    for axis in (above, below):
        axis.set_xlim(0, longest)
        axis.locator_params(axis="x", nbins=3)
        axis.xaxis.set_major_formatter(lambda steps, _: f"{steps / 1e3:g}k")
    above.set_ylabel("return")
    below.set_ylabel("cost")
