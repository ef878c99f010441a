"""Draw `docs/figures/crash.png`, the first picture of the README, from the folder of the demo's backtest.

portfolio-sdpo demo --json > demo.json
python docs/draw_crash.py demo.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.ticker import PercentFormatter

FIGURE = Path(__file__).parent / "figures" / "crash.png"
AGENT = "sdpo + shield"
SHOWN = {
    "equal-weight": ("1/N", "#d55e00", "-"),
    "equal-weight + shield": ("1/N + shield", "#d55e00", "--"),
    AGENT: ("SDPO + shield", "#0072b2", "-"),
}
"""Strategy → how the picture calls it, its colour and its line."""


def main() -> None:
    """Draw the backtest that the demo made."""
    folder = Path(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["folder"])
    equity, weights = (pd.read_parquet(folder / f"{name}.parquet") for name in ("equity", "weights"))
    config, metrics = (json.loads((folder / f"{name}.json").read_text("utf-8")) for name in ("config", "metrics"))
    cvars = {record["strategy"]: record["cvar_window"] for record in metrics["records"]}
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, (wealth, stocks) = plt.subplots(
        2, 1, figsize=(9, 4.6), height_ratios=(5, 3), sharex=True, layout="constrained"
    )
    draw_wealth(wealth, equity, cvars, config["settings"]["limit"])
    draw_stocks(stocks, weights)
    figure.savefig(FIGURE, dpi=160)
    sys.stdout.write(f"{FIGURE}\n")


def draw_wealth(axis: Any, equity: pd.DataFrame, cvars: dict[str, float], limit: dict[str, Any]) -> None:
    """Wealth of each strategy, with its realised CVaR at the end of its line."""
    for strategy, (label, colour, line) in SHOWN.items():
        rows = equity[equity["strategy"] == strategy]
        told = f"{label}: worst periods {100 * cvars[strategy]:.1f} %".replace("-", "−")
        axis.plot(rows["date"], rows["wealth"], line, color=colour, linewidth=2, zorder=3 + ("--" in line), label=told)
    words = (
        f"Wealth after fees. The limit: the worst {limit['alpha']:.0%} of {limit['horizon']}-session periods may lose "
        f"{-limit['bound']:.0%} on average"
    )
    axis.set_title(words, loc="left", fontsize=10)
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, loc="lower left")


def draw_stocks(axis: Any, weights: pd.DataFrame) -> None:
    """How much of wealth is in stocks."""
    for strategy, (_, colour, line) in SHOWN.items():
        rows = weights[weights["strategy"] == strategy]
        invested = 1.0 - rows["CASH"]
        axis.step(rows["date"], invested, line, where="post", color=colour, linewidth=1.6, zorder=3 + ("--" in line))
        if strategy == AGENT:
            axis.fill_between(rows["date"], invested, step="post", color=colour, alpha=0.18, linewidth=0)
    axis.set_title("Share of wealth in stocks", loc="left", fontsize=10)
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    axis.set_ylim(0, 1.05)
    axis.grid(alpha=0.25)
    axis.xaxis.set_major_locator(mpl.dates.MonthLocator())
    axis.xaxis.set_major_formatter(mpl.dates.DateFormatter("%B %Y"))


if __name__ == "__main__":
    main()
