"""The look of every figure of the experiments: one matplotlib style, one colour for each algorithm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from portfolio_sdpo.risk import Constraint

# Okabe and Ito's colours, which can be told apart with any kind of colour vision.
COLOURS = {
    "ppo": "#D55E00",
    "sdpo": "#0072B2",
    "pd-cvar": "#009E73",
    "pd-var": "#009E73",
    "ppo-lagrangian": "#000000",
    "ipo": "#CC79A7",
    "cpo": "#009E73",
    "pcpo": "#E69F00",
    "sdpo-trajectory": "#56B4E9",
    "sdpo-backup": "#56B4E9",
    "pd-sdpo": "#009E73",
    "pd-trajectory": "#CC79A7",
    "sdpo-cvar": "#0072B2",
    "sdpo-mean": "#56B4E9",
}
_SPARE = ("#E69F00", "#56B4E9", "#CC79A7", "#000000")
# One hue for the SDPO agents on stocks, darker as more of the tail is averaged.
_STOCK_COLOURS = {
    "ppo": COLOURS["ppo"],
    "sdpo-0.01": "#7CC4EE",
    "sdpo-0.05": COLOURS["sdpo"],
    "sdpo-0.1": "#00304D",
    "counterfactual-0.1": COLOURS["ipo"],
}
_STOCK_SPARE = ("#009E73", "#E69F00", "#000000")
INK = "#333333"
STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.xmargin": 0.0,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "savefig.dpi": 200,
    "svg.hashsalt": "portfolio-sdpo",
    "svg.fonttype": "none",
}


def algorithm_colour(label: str) -> str:
    """The colour of an algorithm, the same in every figure."""
    return COLOURS.get(label) or _SPARE[sum(label.encode()) % len(_SPARE)]


def stock_agent_colour(label: str) -> str:
    """The colour of an agent on stocks, the same in every figure."""
    return _STOCK_COLOURS.get(label) or _STOCK_SPARE[sum(label.encode()) % len(_STOCK_SPARE)]


def annotate_right(axis: Axes, height: float, text: str) -> None:
    """A word to the right of the panel, where no curve can cross it."""
    axis.annotate(text, (1.0, height), (4, 0), ("axes fraction", "data"), "offset points", va="center", fontsize=9)


def draw_bound(axis: Axes, constraint: Constraint) -> None:
    """The bound of a constraint as a dashed line with its value beside it."""
    axis.axhline(constraint.bound, color=INK, linewidth=1.2, linestyle="--")
    annotate_right(axis, constraint.bound, f"{'≤' if constraint.sense == '<=' else '≥'} {constraint.bound:g}")


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write PNG and SVG; the same figure gives the same SVG."""
    files = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    figure.savefig(files[0])
    figure.savefig(files[1], metadata={"Date": None})
    return files
