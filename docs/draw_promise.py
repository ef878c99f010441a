"""Draw `docs/figures/promise.png`, the first picture of the README, from the folder of a backtest.

portfolio-sdpo backtest --preset lstm-same-close --seeds 0 --strategies equal-weight,maximum-return \
    --start 2019-01-02 --end 2021-10-14 --out promise
python docs/draw_promise.py promise
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

FIGURE = Path(__file__).parent / "figures" / "promise.png"
SHOWN = {
    "equal-weight": ("1/N", "#888888"),
    "sdpo": ("SDPO (analytic)", "#d55e00"),
    "sdpo + shield": ("SDPO (analytic) + shield", "#0072b2"),
}
"""Strategy → how the picture calls it, and its colour."""


def main() -> None:
    """Draw the backtest in the folder that the command line names."""
    folder = Path(sys.argv[1])
    records = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["records"]
    equity = pd.read_parquet(folder / "equity.parquet")
    limit = json.loads((folder / "config.json").read_text(encoding="utf-8"))["settings"]["limit"]
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, (wealth, risk) = plt.subplots(1, 2, figsize=(10, 3.8), width_ratios=(3, 2), layout="constrained")
    draw_wealth(wealth, equity)
    draw_risk(risk, records, limit)
    figure.savefig(FIGURE, dpi=160)
    sys.stdout.write(f"{FIGURE}\n")


def draw_wealth(axis: Any, equity: pd.DataFrame) -> None:
    """The wealth of each strategy; of several seeds the middle one, with all of them as a band."""
    for strategy, (label, colour) in SHOWN.items():
        rows = equity[equity["strategy"] == strategy]
        table = rows.pivot_table(index="date", columns="seed", values="wealth", dropna=False)
        axis.plot(table.index, table.median(axis=1), color=colour, linewidth=1.8, label=label)
        axis.fill_between(table.index, table.min(axis=1), table.max(axis=1), color=colour, alpha=0.2, linewidth=0)
    axis.set_title("Wealth after fees, starting at 1", loc="left")
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, loc="upper left")
    axis.xaxis.set_major_locator(mpl.dates.YearLocator())
    axis.xaxis.set_major_formatter(mpl.dates.DateFormatter("%Y"))


def draw_risk(axis: Any, records: list[dict[str, Any]], limit: dict[str, Any]) -> None:
    """The realised CVaR of each calendar year against the limit; of several seeds the worst."""
    years: list[str] = []
    for number, (strategy, (_, colour)) in enumerate(SHOWN.items()):
        by_year = pd.DataFrame([each["cvar_by_year"] for each in records if each["strategy"] == strategy])
        worst = 100 * by_year.min()
        years = list(worst.index)
        axis.bar(np.arange(len(years)) + 0.27 * (number - 1), worst, 0.25, color=colour)
    axis.axhline(100 * limit["bound"], color="black", linestyle="--", linewidth=1.2)
    axis.text(len(years) - 0.55, 100 * limit["bound"] - 0.4, "limit", ha="right", va="top")
    axis.set_xticks(range(len(years)), years)
    axis.axhline(0, color="black", linewidth=0.8)
    axis.set_title(f"Worst {limit['alpha']:.0%} of {limit['horizon']}-session periods, mean, %", loc="left")
    axis.grid(axis="y", alpha=0.25)


if __name__ == "__main__":
    main()
