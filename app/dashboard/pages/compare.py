"""*Compare*: runs, strategies, seeds and α's side by side, and differences paired where sessions agree."""

from __future__ import annotations

import streamlit as st

from portfolio_sdpo.backtest.record import MAIN_BENCHMARKS
from portfolio_sdpo.report import figures

from ..data.backtests import Backtest, open_backtest
from ..data.comparison import Line, choose_rival, cut_to_span, find_common_span, make_lines
from ..widgets.comparison import draw_risk_and_return, render_differences, render_results
from ..widgets.figures import show_figure
from ..widgets.pickers import list_readable_backtests
from ..widgets.sample import offer_sample
from ..widgets.style import show_html

RUNS, SHOWN = 2, 8
"""How many runs and strategies are compared when nobody has chosen yet."""


def render() -> None:
    """The page."""
    st.title("Compare")
    found = list_readable_backtests()
    if not found:
        offer_sample("There is no backtest to compare yet.")
        return
    runs = st.multiselect("Backtests", found, default=found[:RUNS], format_func=lambda each: each.title, key="runs")
    if not runs:
        st.info("Choose one or more backtests.", icon=":material/info:")
        return
    lines = _choose_lines(runs)
    if not lines:
        st.info("Choose one or more strategies.", icon=":material/info:")
        return
    if len(runs) > 1:
        st.caption(
            "  \n".join(f"**{letter}** is {run.title}" for letter, run in zip(_letters(runs), runs, strict=True))
        )
    _curves(lines)
    st.subheader("Figures")
    show_html(render_results(lines))
    show_figure(
        draw_risk_and_return(lines),
        "risk",
        "Annual growth against the realised CVaR of every strategy, with intervals.",
        legend=True,
    )
    st.caption("Annual growth against realised CVaR, with intervals. Points further up and to the right are better.")
    _differences(lines)


def _choose_lines(runs: list[Backtest]) -> list[Line]:
    """The tracks to show, by strategy or by seed."""
    everything = [open_backtest(run) for run in runs]
    names = list(dict.fromkeys(group.name for each in everything for group in each.groups))
    agents = [name for each in everything for name in [g.name for g in each.groups if g.kind != "benchmark"]]
    known = [name for name in MAIN_BENCHMARKS if name in names]
    default = list(dict.fromkeys([*agents, *known]))[:SHOWN]
    left, right = st.columns([4, 1], vertical_alignment="bottom")
    chosen = left.multiselect("Strategies", names, default=default, key="strategies")
    seeds = right.toggle(
        "Every seed", key="seeds", help="Show one line per seed instead of the middle seed with a band."
    )
    return [
        line
        for letter, each in zip(_letters(runs), everything, strict=True)
        for line in make_lines(each, letter, chosen, seeds)
    ]


def _curves(lines: list[Line]) -> None:
    heading, switch = st.columns([4, 1], vertical_alignment="bottom")
    heading.subheader("Wealth")
    log = switch.toggle("Logarithmic", key="log")
    span = find_common_span(lines)
    if span is not None and switch.toggle(
        "Common sessions", key="common", help=f"From {span[0]} to {span[1]}, each starting at 1."
    ):
        lines = cut_to_span(lines, span)
    tracks = {key: rows for line in lines for key, rows in line.tracks.items()}
    spec = figures.curves(tracks, [line.group for line in lines], "wealth", percent=False)
    for trace in spec["data"]:
        trace["visible"] = True  # each of them was chosen
    show_figure(spec, "equity", "Wealth over time of all chosen strategies.", legend=True, log=log)


def _differences(lines: list[Line]) -> None:
    st.subheader("Differences")
    if len(lines) < 2:
        st.caption("Choose at least two strategies.")
        return
    names = [line.group.name for line in lines]
    rival = st.selectbox("Compared with", names, index=choose_rival(lines), key="rival")
    show_html(render_differences(lines, lines[names.index(rival)]))


def _letters(runs: list[Backtest]) -> list[str]:
    """What the runs are called here; a single one needs no name."""
    return [""] if len(runs) == 1 else [chr(ord("A") + place % 26) + "′" * (place // 26) for place in range(len(runs))]
