"""Today's weights as bars and as a table, the largest first."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import streamlit as st

from portfolio_sdpo.common.numbers import number, percent
from portfolio_sdpo.portfolio.market import CASH
from portfolio_sdpo.report.formats import table
from portfolio_sdpo.report.looks import COLOURS, Spec

from .figures import show_figure

BARS = 20
"""Stocks with a bar of their own."""
ROWS = 60
"""Stocks with a row of their own."""
VISIBLE = 0.00005
"""Weights below this round to 0.0 % and are not listed."""


def order_assets(weights: Mapping[str, float], before: Mapping[str, float] | None) -> list[str]:
    """Cash, then all stocks that are held or were held before, the largest first."""
    known = before or {}
    held = [name for name in weights if name != CASH and max(weights[name], known.get(name, 0.0)) >= VISIBLE]
    return [CASH, *sorted(held, key=lambda name: (-weights[name], name))]


def show_bars(weights: Mapping[str, float], before: Mapping[str, float] | None, since: str) -> None:
    """A bar per asset, and a mark at its weight of the previous session."""
    names = order_assets(weights, before)
    shown, rest = names[: BARS + 1], names[BARS + 1 :]
    label = f"{len(rest)} others"
    values = [weights[name] for name in shown] + ([sum(weights[name] for name in rest)] if rest else [])
    labels = [escape(name) for name in shown] + ([label] if rest else [])
    colours = ["var(--cash)", *[COLOURS[0]] * (len(shown) - 1), *(["var(--muted)"] if rest else [])]
    data: list[Spec] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": "today",
            "y": labels,
            "x": values,
            "marker": {"color": colours},
            "hovertemplate": "%{y}  %{x:.2%}<extra></extra>",
        }
    ]
    if before is not None:
        past = [before[name] for name in shown] + ([sum(before[name] for name in rest)] if rest else [])
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "previous session",
                "y": labels,
                "x": past,
                "marker": {
                    "symbol": "line-ns",
                    "size": 16,
                    "color": COLOURS[1],
                    "line": {"width": 3, "color": COLOURS[1]},
                },
                "hovertemplate": "%{y} before  %{x:.2%}<extra></extra>",
            }
        )
    layout: Spec = {
        "height": 60 + 30 * len(labels),
        "margin": {"l": 10, "r": 46, "t": 10, "b": 30},
        "xaxis": {"tickformat": ".0%", "rangemode": "tozero", "gridcolor": "var(--line)", "fixedrange": True},
        "yaxis": {"autorange": "reversed", "type": "category", "automargin": True, "fixedrange": True},
        "bargap": 0.3,
        "showlegend": False,
    }
    show_figure(
        {"data": data, "layout": layout},
        "weights",
        "Today's weights as bars, with marks for the weights of the previous session.",
    )
    if before is not None:
        st.caption(f"Orange marks show the weights of the previous session ({escape(since.rpartition(' ')[2])}).")


def render_weights(weights: Mapping[str, float], before: Mapping[str, float] | None, since: str) -> str:
    """A table of weights and their changes, with the full precision in `data` elements."""
    names = order_assets(weights, before)
    rows = []
    for name in names[:ROWS]:
        cells = f"<td>{_figure(weights[name], 'weight', percent(weights[name], 2))}</td>"
        if before is not None:
            change = weights[name] - before[name]
            points = number(change * 100, 2, sign=True)
            cells += f"<td>{_figure(change, 'change', points)}</td>"
        rows.append(f"<tr data-row='{escape(name)}'><th scope='row'>{escape(name)}</th>{cells}</tr>")
    caption = "Weights to hold after the last close" + (f"; change {escape(since)}." if since else ".")
    if len(names) > ROWS:
        caption += f" {len(names) - ROWS} smaller weights are not listed."
    headings = ["Asset", "Weight"] + (["Change, points"] if before is not None else [])
    return table(caption, headings, rows)


def _figure(value: float, name: str, text: str) -> Any:
    return f"<data value='{value!r}' data-name='{name}'>{text}</data>"
