"""The paper's figure of questions (B) and (C): return, and each bounded risk, over the steps of training."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from portfolio_sdpo.errors import RunError
from portfolio_sdpo.experiments.engine.folders import experiment_folder
from portfolio_sdpo.experiments.safety.experiment import SafetyExperiment
from portfolio_sdpo.experiments.safety.records import find_runs
from portfolio_sdpo.experiments.safety.standings import LAST
from portfolio_sdpo.experiments.style import INK, STYLE, algorithm_colour, draw_bound, save_figure
from portfolio_sdpo.experiments.tables import display_name
from portfolio_sdpo.risk import BadStateProbability, Constraint
from portfolio_sdpo.rl.metrics import LogRow

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """All runs of one algorithm, finished or not."""

    label: str
    logs: list[list[LogRow]]

    def until(self, steps: float) -> Curve:
        """The same up to so many steps."""
        return Curve(self.label, [[row for row in log if float(row["total_steps"]) <= steps] for log in self.logs])

    def column(self, name: str) -> tuple[Array, Array]:
        """Steps [n] and values [runs, n], each the mean of the last iterations, cut to the shortest run."""
        length = min(len(log) for log in self.logs)
        steps = np.array([float(row["total_steps"]) for row in self.logs[0][:length]])
        values = np.array([[float(row[name]) for row in log[:length]] for log in self.logs])
        total = np.cumsum(np.pad(values, ((0, 0), (1, 0))), axis=1)
        last = np.arange(1, length + 1)
        first = np.maximum(last - LAST, 0)
        return steps, (total[:, last] - total[:, first]) / (last - first)


def make_safety_figures(
    experiment: SafetyExperiment,
    root: Path | None = None,
    only: Collection[str] | None = None,
    out: Path | None = None,
) -> list[Path]:
    """Draw what the experiment's folder holds, unfinished runs as far as they are; the files, PNG and SVG.

    Where some are longer than others there is a second figure with the steps that all have. out: where the files go,
    by default that folder.
    """
    root = root or experiment_folder(experiment.name)
    out = out or root
    out.mkdir(parents=True, exist_ok=True)
    logs: dict[str, list[list[LogRow]]] = {}
    for run in find_runs(experiment, root, only):
        if run.rows:
            logs.setdefault(run.label, []).append(run.rows)
    if not logs:
        raise RunError(f"no run in {root} has a log yet: wait for their first checkpoints.")
    order = [label for label in experiment.algorithms if label in logs]
    curves = [Curve(label, logs[label]) for label in [*order, *sorted(set(logs) - set(order))]]
    with rc_context(STYLE):
        files = save_figure(draw_safety(experiment, curves), out / "learning")
        ends = [curve.column("total_steps")[0][-1] for curve in curves]
        if min(ends) < max(ends):
            cut = [curve.until(min(ends)) for curve in curves]
            files += save_figure(draw_safety(experiment, cut), out / "equal-steps")
        else:  # one from before, when some were shorter, would be taken for this one's
            for kind in ("png", "svg"):
                (out / f"equal-steps.{kind}").unlink(missing_ok=True)
    return files


def draw_safety(experiment: SafetyExperiment, curves: Sequence[Curve]) -> Figure:
    """Panel (a) return, then one panel for each constraint with its bound."""
    constraints = experiment.problem.constraints
    figure = Figure(figsize=(3.7 * (1 + len(constraints)), 3.3), layout="constrained")
    axes: list[Axes] = list(np.atleast_1d(figure.subplots(1, 1 + len(constraints))))
    for curve in curves:
        draw_band(axes[0], curve, "episode_return")
    axes[0].set_title("(a) return of an episode")
    for index, constraint in enumerate(constraints):
        axis = axes[1 + index]
        for curve in curves:
            draw_band(axis, curve, f"risk_empirical_{index}")
        draw_cost_bound(axis, constraint)
        axis.set_title(f"({'bcdefgh'[index]}) {_risk(constraint)}")
    longest = max(float(log[-1]["total_steps"]) for curve in curves for log in curve.logs)
    unit, word = (1e6, "million ") if longest >= 1e6 else (1e3, "thousand ")
    for axis in axes:
        axis.set_xlim(0, longest)
        axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda steps, _: f"{steps / unit:g}"))
        axis.set_xlabel(f"{word}steps")
    handles: list[Any] = [
        Line2D([], [], color=algorithm_colour(curve.label), linewidth=1.8, label=display_name(curve.label))
        for curve in curves
    ]
    runs = sorted({len(curve.logs) for curve in curves})
    if runs[-1] > 1:
        count = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
        handles.append(
            Patch(color=INK, alpha=0.15, linewidth=0, label=f"mean of {LAST} iterations ± 1 sd over {count} seeds")
        )
    rows = math.ceil(len(handles) / (2 * len(axes)))  # beside each other there is room for two under each panel
    figure.legend(handles=handles, loc="outside lower center", ncols=math.ceil(len(handles) / rows))
    return figure


def draw_band(axis: Axes, curve: Curve, name: str) -> None:
    """Mean over seeds as a line, one standard deviation either side as a band; SDPO above the others."""
    steps, values = curve.column(name)
    mean, colour = values.mean(0), algorithm_colour(curve.label)
    front = 3 if curve.label == "sdpo" else 2
    axis.plot(steps, mean, color=colour, linewidth=1.8, zorder=front)
    if len(values) > 1:
        sd = values.std(0, ddof=1)
        axis.fill_between(steps, mean - sd, mean + sd, color=colour, alpha=0.13, linewidth=0, zorder=front - 1)


def draw_cost_bound(axis: Axes, constraint: Constraint) -> None:
    """As a dashed line; costs begin at zero, and the bound is always in sight."""
    draw_bound(axis, constraint)
    high = max(axis.get_ylim()[1], 1.3 * constraint.bound)
    axis.set_ylim(0, min(high, 1.0) if isinstance(constraint.measure, BadStateProbability) else high)


def _risk(constraint: Constraint) -> str:
    if isinstance(constraint.measure, BadStateProbability):
        return f"probability of reaching {constraint.signal}"
    return f"{constraint.signal} of an episode"
