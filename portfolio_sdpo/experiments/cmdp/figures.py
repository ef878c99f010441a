"""The paper's figures: return and risk over the iterations, and the returns of the trained policies as box plots."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from portfolio_sdpo.errors import RunError
from portfolio_sdpo.experiments.cmdp.experiment import CmdpExperiment
from portfolio_sdpo.experiments.cmdp.references import References, read_references
from portfolio_sdpo.experiments.cmdp.study import START
from portfolio_sdpo.experiments.cmdp.summary import run_folders
from portfolio_sdpo.experiments.engine.folders import experiment_folder, read_json
from portfolio_sdpo.experiments.style import (
    INK,
    STYLE,
    algorithm_colour,
    annotate_right,
    draw_bound,
    save_figure,
)
from portfolio_sdpo.experiments.tables import display_name
from portfolio_sdpo.risk import BadStateProbability, Constraint, CVaR, RiskMeasure, Variance
from portfolio_sdpo.rl.algorithms.base import Problem
from portfolio_sdpo.rl.metrics import LogRow, read_rows

Array = NDArray[np.float64]

WINDOW = 20
"""Iterations over which a learner's own estimate is averaged for the eye."""


@dataclass(frozen=True)
class Curves:
    """All runs of one algorithm."""

    label: str
    logs: list[list[LogRow]]
    returns: Array
    """[runs, episodes] of the final policies"""

    def column(self, *names: str) -> Array | None:
        """[runs, iterations] of the first of these columns that there is, cut to the shortest run."""
        name = next((name for name in names if all(name in log[0] for log in self.logs)), None)
        if name is None:
            return None
        length = min(len(log) for log in self.logs)
        return np.array([[float(row[name]) for row in log[:length]] for log in self.logs])


def make_cmdp_figures(
    experiment: CmdpExperiment, root: Path | None = None, only: Collection[str] | None = None
) -> list[Path]:
    """Draw all figures of an experiment from what its folder holds; returns the files, PNG and SVG."""
    root = root or experiment_folder(experiment.name)
    curves = _read(experiment, root, only)
    seeds = {int(folder.name.split("-")[-2]) for folder in run_folders(experiment, root, only)}
    known = [found for seed, found in read_references(root).items() if seed in seeds]
    with rc_context(STYLE):
        learning = draw_learning(experiment, curves, known)
        boxes = draw_boxes(experiment, curves)
        return [*save_figure(learning, root / "learning"), *save_figure(boxes, root / "evaluation")]


def _running_mean(values: Array) -> Array:
    """[iterations] the mean of the last `WINDOW` of them: a single rollout's estimate would cover the picture."""
    total = np.cumsum(np.concatenate([[0.0], values]))
    last = np.arange(1, len(values) + 1)
    first = np.maximum(last - WINDOW, 0)
    return np.asarray((total[last] - total[first]) / (last - first))


def draw_learning(experiment: CmdpExperiment, curves: Sequence[Curves], known: Sequence[References]) -> Figure:
    """Return, then one panel for each constraint: its true risk, the learner's own estimate and the bound.

    An objective other than the expected return has a panel of its own, the first.
    """
    objective, constraints = experiment.problem.objective, experiment.problem.constraints
    titles = [] if objective.linear else [_measure_name(objective, "reward")]
    titles += ["expected return", *(_measure_name(item.measure, item.signal) for item in constraints)]
    figure = Figure(figsize=(3.6 * len(titles), 3.3), layout="constrained")
    axes: list[Axes] = list(np.atleast_1d(figure.subplots(1, len(titles))))
    for letter, axis, title in zip("abcdefghi", axes, titles, strict=False):
        axis.set(title=f"({letter}) {title}", xlabel="iteration")
    if not objective.linear:
        columns = [f"{kind}_objective" for kind in ("exact", "integrated", "true")]
        _draw_reached(axes.pop(0), curves, columns, _levels(experiment, known, "value"))
    _draw_reached(axes.pop(0), curves, ["exact_return", "true_return"], _levels(experiment, known, "mean"))
    for index, (axis, constraint) in enumerate(zip(axes, constraints, strict=True)):
        for curve in curves:
            estimate = curve.column(f"risk_{index}")
            if estimate is not None:
                axis.plot(
                    _running_mean(estimate.mean(0)), color=algorithm_colour(curve.label), linewidth=0.6, alpha=0.55
                )
        truth = [
            curve.column(*(f"{kind}_risk_{index}" for kind in ("exact", "integrated", "true"))) for curve in curves
        ]
        for curve, risk in zip(curves, truth, strict=True):
            _band(axis, risk, algorithm_colour(curve.label))
        _bound(axis, constraint, [risk for risk in truth if risk is not None])
    handles: list[Any] = [Line2D([], [], color=algorithm_colour(curve.label), label=_name(curve)) for curve in curves]
    handles.append(Line2D([], [], color=INK, linewidth=0.6, alpha=0.6, label="learner's estimate (mean of 20)"))
    runs = max(len(curve.logs) for curve in curves)
    if runs > 1:
        handles.append(Patch(color=INK, alpha=0.15, linewidth=0, label=f"± 1 sd over {runs} runs"))
    # Five fit side by side.
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles) if len(handles) <= 5 else 3)
    return figure


def _levels(experiment: CmdpExperiment, known: Sequence[References], what: str) -> dict[str, list[float]]:
    """Mean or value of the best policy within the bounds and, where that is the start, of the uniform one."""
    levels = {"optimum": [getattr(one.optimum, what) for one in known if one.optimum]}
    if experiment.safe_start is None:
        levels["uniform"] = [getattr(one.uniform, what) for one in known]
    return levels


def _draw_reached(
    axis: Axes, curves: Sequence[Curves], columns: Sequence[str], levels: Mapping[str, Sequence[float]]
) -> None:
    """What every algorithm reaches in the first of these columns that there is, and what there is to be reached."""
    for curve in curves:
        _band(axis, curve.column(*columns), algorithm_colour(curve.label))
    for text, values in levels.items():
        _level(axis, values, text)


def draw_boxes(experiment: CmdpExperiment, curves: Sequence[Curves]) -> Figure:
    """Returns of the final policies on fresh episodes (the appendix's figure), all runs of an algorithm together."""
    figure = Figure(figsize=(5.4, 0.9 + 0.55 * len(curves)), layout="constrained")
    axis = figure.subplots()
    cvar = _marked_cvar(experiment.problem)
    shown = list(reversed(curves))
    boxes = axis.boxplot(
        [curve.returns.ravel() for curve in shown],
        orientation="horizontal",
        widths=0.5,
        patch_artist=True,
        flierprops={"marker": ".", "markersize": 2, "markeredgewidth": 0, "alpha": 0.35},
        medianprops={"color": "white", "linewidth": 1.5},
    )
    for position, (curve, box) in enumerate(zip(shown, boxes["boxes"], strict=True)):
        colour = algorithm_colour(curve.label)
        box.set(facecolor=colour, edgecolor=colour)
        boxes["fliers"][position].set(markerfacecolor=colour)
        for part in ("whiskers", "caps"):
            for line in boxes[part][2 * position : 2 * position + 2]:
                line.set(color=colour)
        if cvar is not None:
            worst = np.sort(curve.returns, axis=-1)[:, : max(1, round(cvar.alpha * curve.returns.shape[-1]))]
            axis.plot(worst.mean(), position + 1, "D", color="white", markeredgecolor=colour, markersize=5)
    axis.set_yticks(range(1, len(shown) + 1), [_name(curve) for curve in shown])
    axis.grid(axis="y", visible=False)
    axis.margins(x=0.03)
    marked = f" (◇ {cvar.alpha:g}-CVaR)" if cvar else ""
    title = f"returns of the trained policies, {shown[0].returns.shape[-1]:,} episodes of each run"
    axis.set(title=title, xlabel=f"discounted return{marked}")
    return figure


def _marked_cvar(problem: Problem) -> CVaR | None:
    """What the returns themselves show: a lower tail of the reward, discounted as they are, maximised or bounded."""
    if isinstance(problem.objective, CVaR) and problem.objective.tail == "lower":
        return problem.objective
    for constraint in problem.constraints:
        of_returns = constraint.signal == "reward" and problem.discount_of(constraint) == problem.discount
        if of_returns and isinstance(constraint.measure, CVaR) and constraint.measure.tail == "lower":
            return constraint.measure
    return None


def _read(experiment: CmdpExperiment, root: Path, only: Collection[str] | None) -> list[Curves]:
    logs: dict[str, list[list[LogRow]]] = {}
    returns: dict[str, list[Array]] = {}
    for folder in run_folders(experiment, root, only):
        if folder.name.startswith(f"{START}-") or not (folder / "final.json").exists():
            continue
        label = read_json(folder / "final.json")["label"]
        logs.setdefault(label, []).append(read_rows(folder / "metrics.parquet"))
        returns.setdefault(label, []).append(np.load(folder / "evaluation.npy"))
    if not logs:
        raise RunError(f"no run in {root} is finished: continue them with `experiment run {experiment.name}`.")
    order = [label for label in experiment.algorithms if label in logs]
    return [Curves(label, logs[label], np.stack(returns[label])) for label in [*order, *sorted(set(logs) - set(order))]]


def _band(axis: Axes, values: Array | None, colour: str) -> None:
    """Mean over runs as a line, one standard deviation either side as a band; values [runs, iterations]."""
    if values is None:
        return
    mean = values.mean(0)
    axis.plot(mean, color=colour, linewidth=1.6)
    if len(values) > 1:
        sd = values.std(0, ddof=1)
        axis.fill_between(np.arange(len(mean)), mean - sd, mean + sd, color=colour, alpha=0.15, linewidth=0)


def _level(axis: Axes, values: Sequence[float], text: str) -> None:
    """A dotted line across the panel, with its name at its end."""
    if values:
        level = float(np.mean(values))
        axis.axhline(level, color=INK, linewidth=0.9, linestyle=":")
        annotate_right(axis, level, text)


def _bound(axis: Axes, constraint: Constraint, risks: Sequence[Array]) -> None:
    """The bound as a dashed line; the panel shows it and the risks, whatever the estimates do."""
    draw_bound(axis, constraint)
    low = min([constraint.bound, *(float(risk.mean(0).min()) for risk in risks)])
    high = max([constraint.bound, *(float(risk.mean(0).max()) for risk in risks)])
    room = 0.15 * (high - low)
    axis.set_ylim(low - room, high + room)


def _measure_name(measure: RiskMeasure, signal: str) -> str:
    signal = "the return" if signal == "reward" else signal
    match measure:
        case CVaR(alpha=alpha):
            return f"{alpha:g}-CVaR of {signal}"
        case Variance():
            return f"variance of {signal}"
        case BadStateProbability():
            return f"probability of {signal}"
    return f"{measure.label} of {signal}"


def _name(curve: Curves) -> str:
    return display_name(curve.label)
