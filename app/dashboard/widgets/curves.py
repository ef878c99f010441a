"""The first screen of a backtest, wherever it is shown: the result in words and figures, wealth and drawdown."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from portfolio_sdpo.report import figures
from portfolio_sdpo.report.looks import Spec, hidden_at_first
from portfolio_sdpo.report.sections import render_cards, render_lead, render_subtitle

from ..data.backtests import OpenBacktest

CURVES = "Wealth and drawdown"
CURVES_ALT = (
    "Wealth of every strategy over time, after fees and starting at 1, and its drawdown from the highest wealth so far."
)


def render_summary(run: OpenBacktest) -> str:
    """What was traded, the result in two sentences, and the headline figures."""
    about = f"<p class='sub'>{render_subtitle(run.record, run.groups)}</p>"
    return about + render_lead(run.groups, run.main) + render_cards(run.main, run.groups)


def list_usual(run: OpenBacktest) -> list[str]:
    """The strategies that are drawn unless others are asked for."""
    hidden = set(hidden_at_first(run.groups))
    return [group.name for group in run.groups if group.name not in hidden]


def draw_wealth_and_drawdown(run: OpenBacktest, names: Sequence[str] | None = None) -> Spec:
    """Both on one axis of time and with one legend, which hides a strategy in both.

    names: strategies to draw, by default those of `list_usual`; a colour does not depend on which they are.
    """
    wealth = figures.draw_curves(run.equity, run.groups, "wealth", percent=False)
    fall = figures.draw_curves(run.equity, run.groups, "drawdown", percent=True)
    shown = {escape(name) for name in (list_usual(run) if names is None else names)}
    above, below = (
        [trace | {"visible": True} for trace in each["data"] if trace["meta"] in shown] for each in (wealth, fall)
    )
    below = [trace | {"yaxis": "y2", "showlegend": False} for trace in below]
    layout = wealth["layout"]
    return {
        "data": [*above, *below],
        "layout": layout
        | {
            "height": 560,
            "hoversubplots": "axis",
            "xaxis": layout["xaxis"] | {"anchor": "y2"},
            "yaxis": layout["yaxis"] | {"domain": [0.38, 1.0]},
            "yaxis2": fall["layout"]["yaxis"] | {"domain": [0.0, 0.32], "nticks": 5},
        },
    }
