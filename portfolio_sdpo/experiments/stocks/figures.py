"""The paper's figure of question (D): wealth through the year, where each seed ended, the constraint in training."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import dates as mdates
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from portfolio_sdpo.experiments.engine.folders import experiment_folder
from portfolio_sdpo.experiments.stocks.declared import BENCHMARKS, StocksExperiment
from portfolio_sdpo.experiments.stocks.records import Tables, read_tables, select_backtests
from portfolio_sdpo.experiments.style import INK, STYLE, annotate_right, save_figure, stock_agent_colour

REFERENCES = {"equal-weight": "1/N", "maximum-return": "max. return"}
_GREY = "#8C8C8C"
RUNNING = 15
"""Sessions that the running mean of the constraint reaches back over."""


def make_stocks_figures(
    experiment: StocksExperiment,
    root: Path | None = None,
    labels: Collection[str] | None = None,
    seeds: Collection[int] | None = None,
    *,
    out: Path | None = None,
) -> list[Path]:
    """Draw what the experiment's folder holds; returns the files, PNG and SVG, by default in that folder."""
    root = root or experiment_folder(experiment.name)
    found = select_backtests(experiment, root, labels, seeds)
    shown = list(dict.fromkeys(each.label for each in found if each.label != BENCHMARKS))
    out = out or root
    out.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        return save_figure(draw_stocks(read_tables(found, seeds), shown), out / "stocks")


def draw_stocks(tables: Tables, labels: Sequence[str]) -> Figure:
    """Wealth with the spread over seeds, a dot for every seed's end, and the running mean of the learner's CVaR."""
    figure = Figure(figsize=(11.0, 3.9), layout="constrained")
    wealth, ends, constraint = figure.subplots(1, 3, width_ratios=(5, 1.8, 4.2))
    ends.sharey(wealth)
    ends.tick_params(labelleft=False)
    curves = {label: _by_day(tables.equity, label, "wealth") for label in labels}
    _draw_wealth(wealth, tables, curves)
    _draw_ends(ends, tables, curves)
    _draw_constraint(constraint, tables, labels)
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=stock_agent_colour(label), label=_name(label)) for label in labels
    ]
    seeds = max(curve.shape[1] for curve in curves.values())
    if seeds > 1:
        handles.append(Patch(color=INK, alpha=0.15, linewidth=0, label=f"10–90 % of {seeds} seeds"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _draw_wealth(axis: Axes, tables: Tables, curves: dict[str, pd.DataFrame]) -> None:
    for name in REFERENCES:
        track = _by_day(tables.equity, name, "wealth")
        if len(track):
            axis.plot(track.index, track.iloc[:, 0], color=_GREY, linewidth=0.9, zorder=1.5)
    for label, curve in curves.items():
        if curve.shape[1] > 1:
            low, high = curve.quantile(0.1, axis=1), curve.quantile(0.9, axis=1)
            axis.fill_between(curve.index, low, high, color=stock_agent_colour(label), alpha=0.15, linewidth=0)
        axis.plot(curve.index, curve.mean(axis=1), color=stock_agent_colour(label), linewidth=1.6)
    axis.set(title="(a) wealth")
    _months(axis)


def _draw_ends(axis: Axes, tables: Tables, curves: dict[str, pd.DataFrame]) -> None:
    for name, text in REFERENCES.items():
        track = _by_day(tables.equity, name, "wealth")
        if len(track):
            axis.axhline(float(track.iloc[-1, 0]), color=_GREY, linewidth=0.9, zorder=1.5)
            annotate_right(axis, float(track.iloc[-1, 0]), text)
    for place, (label, curve) in enumerate(curves.items()):
        last = curve.iloc[-1].to_numpy(dtype=np.float64)
        # Seeds side by side, in order, so that none hides another.
        across = np.linspace(-0.22, 0.22, len(last)) if len(last) > 1 else np.zeros(1)
        axis.plot(place + across, np.sort(last), ".", color=stock_agent_colour(label), markersize=5, alpha=0.8)
        axis.plot([place - 0.34, place + 0.34], [last.mean()] * 2, color=stock_agent_colour(label), linewidth=1.6)
    axis.set_xticks(range(len(curves)), [_short(label) for label in curves])
    axis.set_xlim(-0.6, len(curves) - 0.4)
    axis.grid(axis="x", visible=False)
    axis.set(title="(b) its end, by seed")


def _draw_constraint(axis: Axes, tables: Tables, labels: Sequence[str]) -> None:
    for label in labels:
        running = _by_day(tables.trace, label, "risk").rolling(RUNNING, min_periods=1).mean()
        axis.plot(running.index, running.mean(axis=1), color=stock_agent_colour(label), linewidth=1.6)
    for bound in sorted(set(tables.trace["bound"])):
        axis.axhline(bound, color=INK, linewidth=1.2, linestyle="--")
        annotate_right(axis, bound, "bound")
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    axis.set(title=f"(c) CVaR estimated in training, mean of {RUNNING} sessions")
    _months(axis)


def _by_day(table: pd.DataFrame, name: str, column: str) -> pd.DataFrame:
    """[days, seeds] of one strategy; of several rows a day their mean."""
    own = table[table["strategy"] == name]
    return own.assign(seed=own["seed"].fillna(0)).pivot_table(index="date", columns="seed", values=column)


def _months(axis: Axes) -> None:
    axis.xaxis.set_major_locator(mdates.AutoDateLocator(minticks=3, maxticks=8))
    axis.xaxis.set_major_formatter(mdates.ConciseDateFormatter(axis.xaxis.get_major_locator()))


def _name(label: str) -> str:
    """`sdpo-0.05` as SDPO, α = 0.05."""
    kind, _, alpha = label.partition("-")
    named = {"ppo": "PPO", "sdpo": "SDPO", "counterfactual": "SDPO, counterfactual"}.get(kind, kind)
    return f"{named}, α = {alpha}" if alpha else named


def _short(label: str) -> str:
    kind, _, alpha = label.partition("-")
    named = {"ppo": "PPO", "sdpo": "α", "counterfactual": "cf."}.get(kind, kind)
    return f"{named}\n{alpha}" if alpha else named
