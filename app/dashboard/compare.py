"""*Compare*: runs, strategies, seeds and α's side by side, and differences paired where sessions agree."""

from __future__ import annotations

import streamlit as st

from portfolio_sdpo.backtest import figures
from portfolio_sdpo.backtest.groups import MAIN_BENCHMARKS

from .choosing import sound_backtests
from .comparing import Line, against, common_span, differences, from_common_day, lines_of, results, risk_and_return
from .look import figure, html, offer_sample
from .reading import Backtest, opened

RUNS, SHOWN = 2, 8
"""How many runs and strategies are compared when nobody has chosen yet."""


def render() -> None:
    """The page."""
    st.title("Compare")
    found = sound_backtests()
    if not found:
        offer_sample("There is no backtest to compare yet.")
        return
    runs = st.multiselect("Backtests", found, default=found[:RUNS], format_func=lambda each: each.title, key="runs")
    if not runs:
        st.info("Choose a backtest, or several.", icon=":material/info:")
        return
    lines = _chosen(runs)
    if not lines:
        st.info("Choose a strategy, or several.", icon=":material/info:")
        return
    if len(runs) > 1:
        st.caption(
            "  \n".join(f"**{letter}** is {run.title}" for letter, run in zip(_letters(runs), runs, strict=True))
        )
    _curves(lines)
    st.subheader("Figures")
    html(results(lines))
    figure(
        risk_and_return(lines),
        "risk",
        "Growth a year against the realised CVaR of every line, with intervals.",
        legend=True,
    )
    st.caption(
        "Growth a year against the CVaR that was realised, each with its interval; up and to the right is better."
    )
    _differences(lines)


def _chosen(runs: list[Backtest]) -> list[Line]:
    """The tracks to show, by strategy or by seed."""
    everything = [opened(run) for run in runs]
    names = list(dict.fromkeys(group.name for each in everything for group in each.groups))
    agents = [name for each in everything for name in [g.name for g in each.groups if g.kind != "benchmark"]]
    known = [name for name in MAIN_BENCHMARKS if name in names]
    default = list(dict.fromkeys([*agents, *known]))[:SHOWN]
    left, right = st.columns([4, 1], vertical_alignment="bottom")
    chosen = left.multiselect("Strategies", names, default=default, key="strategies")
    seeds = right.toggle("Every seed", key="seeds", help="A line for every seed instead of the middle one with a band.")
    return [
        line
        for letter, each in zip(_letters(runs), everything, strict=True)
        for line in lines_of(each, letter, chosen, seeds)
    ]


def _curves(lines: list[Line]) -> None:
    heading, switch = st.columns([4, 1], vertical_alignment="bottom")
    heading.subheader("Wealth")
    log = switch.toggle("Logarithmic", key="log")
    span = common_span(lines)
    if span is not None and switch.toggle(
        "Common sessions", key="common", help=f"From {span[0]} to {span[1]}, each starting at 1."
    ):
        lines = from_common_day(lines, span)
    tracks = {key: rows for line in lines for key, rows in line.tracks.items()}
    spec = figures.curves(tracks, [line.group for line in lines], "wealth", percent=False)
    for trace in spec["data"]:
        trace["visible"] = True  # each of them was chosen
    figure(spec, "equity", "Wealth over time of everything that was chosen.", legend=True, log=log)


def _differences(lines: list[Line]) -> None:
    st.subheader("Differences")
    if len(lines) < 2:
        st.caption("Choose two lines or more.")
        return
    names = [line.group.name for line in lines]
    rival = st.selectbox("Against", names, index=against(lines), key="rival")
    html(differences(lines, lines[names.index(rival)]))


def _letters(runs: list[Backtest]) -> list[str]:
    """What the runs are called here; a single one needs no name."""
    return [""] if len(runs) == 1 else [chr(ord("A") + place % 26) + "′" * (place // 26) for place in range(len(runs))]
