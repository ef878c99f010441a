"""The figures of statistics across seeds: performance profiles, and violations while learning as a distribution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from portfolio_sdpo.experiments.statistics.evidence import Evidence
from portfolio_sdpo.experiments.statistics.seeds import interquartile_mean, profile
from portfolio_sdpo.experiments.style import INK, STYLE, algorithm_colour, stock_agent_colour
from portfolio_sdpo.experiments.tables import display_name

Array = NDArray[np.float64]
_LEVELS = 400


def make_seeds_figures(evidence: Evidence, stem: Path) -> list[Path]:
    """`<stem>-scores.png`, and `<stem>-violations-<i>.png` for every constraint that was broken."""
    evidence = evidence.align()
    with rc_context(STYLE):
        files = [_save(draw_scores(evidence), stem.with_name(f"{stem.name}-scores.png"))]
        for index in range(len(evidence.constraints)):
            if any(run.excess[index].any() for run in evidence.runs):
                path = stem.with_name(f"{stem.name}-violations-{index}.png")
                files.append(_save(draw_violations(evidence, index), path))
    return files


def draw_scores(evidence: Evidence) -> Figure:
    """(a) every run and the interquartile mean with its interval; (b) share of runs with a score above each level."""
    labels = [label for label in evidence.labels() if evidence.scores(label)]
    figure = Figure(figsize=(7.4, 2.0 + 0.2 * len(labels)), layout="constrained")
    means, profiles = figure.subplots(1, 2, width_ratios=(1, 1.15))
    every = np.concatenate([_flat(evidence.scores(label)) for label in labels])
    room = 0.06 * (float(np.ptp(every)) or abs(float(every[0])) or 1.0)
    levels = np.linspace(every.min() - room, every.max() + room, _LEVELS)
    for place, label in enumerate(reversed(labels)):
        scores, colour = evidence.scores(label), _colour(label)
        found = interquartile_mean(scores)
        means.plot(_flat(scores), np.full(len(_flat(scores)), place), ".", color=colour, alpha=0.45, markersize=6)
        if found.low is not None and found.high is not None:
            means.plot([found.low, found.high], [place, place], color=colour, linewidth=5, alpha=0.35)
        means.plot(found.value, place, "|", color=colour, markersize=14, markeredgewidth=2)
        share, low, high = profile(scores, levels)
        profiles.step(levels, share, color=colour, linewidth=1.6, where="post")
        if low is not None and high is not None:
            profiles.fill_between(levels, low, high, step="post", color=colour, alpha=0.13, linewidth=0)
    _names(means, labels)
    if evidence.to_optimum:
        for axis in (means, profiles):
            axis.axvline(1.0, color=INK, linewidth=0.9, linestyle=":")
    means.margins(x=0.06)
    means.set(title="(a) score: runs, IQM and interval")
    profiles.set(title="(b) share of runs above a score", xlabel="score")
    profiles.yaxis.set_major_formatter(PercentFormatter(1.0))
    profiles.set_ylim(-0.02, 1.04)
    for axis in (means, profiles):
        axis.xaxis.set_major_locator(MaxNLocator(6))
    return figure


def draw_violations(evidence: Evidence, constraint: int) -> Figure:
    """(a) every run's share of iterations beyond the bound; (b) share of all iterations that are further beyond."""
    labels = [label for label in evidence.labels() if evidence.violations(label, constraint)]
    figure = Figure(figsize=(7.4, 2.2 + 0.2 * len(labels)), layout="constrained")
    shares, depths = figure.subplots(1, 2, width_ratios=(1, 1.15))
    excesses = {label: _excesses(evidence, label, constraint) for label in labels}
    deepest = max(float(values.max(initial=0.0)) for values in excesses.values()) or 1.0
    levels = np.linspace(0.0, 1.02 * deepest, _LEVELS)
    for place, label in enumerate(reversed(labels)):
        colour = _colour(label)
        own = np.sort([each.share for runs in evidence.violations(label, constraint).values() for each in runs])
        lower, median, upper = np.quantile(own, [0.25, 0.5, 0.75])
        shares.plot([lower, upper], [place, place], color=colour, linewidth=5, alpha=0.35)
        shares.plot(own, np.full(len(own), place), ".", color=colour, alpha=0.6, markersize=6)
        shares.plot(median, place, "|", color=colour, markersize=14, markeredgewidth=2)
        depths.step(levels, [(excesses[label] > level).mean() for level in levels], color=colour, linewidth=1.6)
    _names(shares, labels)
    shares.set(title="(a) share beyond the bound, by run")
    shares.set_xlim(-0.03, 1.03)
    shares.xaxis.set_major_formatter(PercentFormatter(1.0))
    depths.set(title="(b) share of iterations further beyond", xlabel="distance beyond the bound")
    depths.yaxis.set_major_formatter(PercentFormatter(1.0))
    depths.set_ylim(bottom=0.0)
    handles: list[Any] = [
        Line2D([], [], color=INK, marker=".", linewidth=0, alpha=0.6, label="a run"),
        Line2D([], [], color=INK, marker="|", linewidth=0, markersize=10, markeredgewidth=2, label="median"),
        Line2D([], [], color=INK, linewidth=5, alpha=0.35, label="quartiles"),
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=3, fontsize=8)
    return figure


def _flat(scores: dict[str, list[float]]) -> Array:
    return np.array([score for stratum in scores.values() for score in stratum])


def _excesses(evidence: Evidence, label: str, constraint: int) -> Array:
    """Of all iterations of all runs."""
    return np.concatenate([run.excess[constraint] for run in evidence.runs if run.label == label])


def _names(axis: Axes, labels: list[str]) -> None:
    axis.set_yticks(range(len(labels)), [display_name(label) for label in reversed(labels)])
    for tick, label in zip(axis.get_yticklabels(), reversed(labels), strict=True):
        tick.set_color(_colour(label))
    axis.set_ylim(-0.6, len(labels) - 0.4)
    axis.grid(axis="y", visible=False)


def _colour(label: str) -> str:
    """A stock agent's by its α, anything else's by its name."""
    return stock_agent_colour(label) if label.startswith("sdpo-") else algorithm_colour(label)


def _save(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path
