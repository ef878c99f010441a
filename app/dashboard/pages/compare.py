"""*Compare*: backtests, strategies, seeds and levels of α side by side, with differences on common sessions."""

from __future__ import annotations

import streamlit as st

from portfolio_sdpo.backtest.record import MAIN_BENCHMARKS
from portfolio_sdpo.report import figures
from portfolio_sdpo.report.comparisons import find_strongest_shielded

from ..data.backtests import Backtest, open_backtest
from ..data.comparison import Line, choose_rival, cut_to_span, find_common_span, find_whole_span, make_lines
from ..widgets.address import LOG, choose_days, choose_switch, read_choice, read_choices, write_choice
from ..widgets.comparison import draw_risk_and_return, render_differences, render_results
from ..widgets.figures import show_figure
from ..widgets.pickers import RUN, STRATEGY, list_readable_backtests
from ..widgets.sample import offer_sample
from ..widgets.style import show_html

RIVAL = "against"
"""The query parameter with the line that the others are compared with."""
RUNS, STRATEGIES = 2, 8
"""How many backtests and strategies are selected when the page is first opened."""


def render() -> None:
    """The page."""
    st.title("Compare")
    found = list_readable_backtests()
    if not found:
        offer_sample("There is no backtest to compare yet.")
        return
    by_id = {run.id: run for run in found}
    usual = list(by_id)[:RUNS]
    ids = st.multiselect(
        "Backtests",
        list(by_id),
        default=read_choices(RUN, list(by_id), usual),
        format_func=lambda each: by_id[each].title,
        key="runs",
    )
    write_choice(RUN, ids, None)  # tomorrow other backtests are the newest
    runs = [by_id[each] for each in ids]
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
    chosen = {line.group.name: line.group.title for line in lines}
    lines, cut = _cut(lines)
    if not lines:
        st.info("None of them has these days: choose others.", icon=":material/info:")
        return
    shown = {line.group.name for line in lines}
    if without := [title for name, title in chosen.items() if name not in shown]:
        st.caption(f"Without these days, and left out: {', '.join(without)}.")
    _curves(lines)
    st.subheader("Figures")
    show_html(render_results(lines, cut=cut))
    show_figure(
        draw_risk_and_return(lines),
        "risk",
        "Annual growth against the realised CVaR of every strategy, with intervals.",
        legend=True,
    )
    st.caption(
        f"Annual growth against realised CVaR{'' if cut else ', with intervals'}. Points further up and to the right "
        "are better; hollow ones are behind the shield."
    )
    _differences(lines)


def _choose_lines(runs: list[Backtest]) -> list[Line]:
    """Let the user select the tracks to show, by strategy or by seed."""
    everything = [open_backtest(run) for run in runs]
    titles: dict[str, dict[str, None]] = {}  # a name may have other titles in other backtests: sets with an order
    for group in (group for each in everything for group in each.groups):
        titles.setdefault(group.name, {})[group.title] = None
    agents = [group.name for each in everything for group in each.groups if group.kind != "benchmark"]
    # Beside agents behind the shield, rivals behind the same one.
    strongest = [find_strongest_shielded(each.groups) for each in everything]
    fair = ["equal-weight + shield", *(group.name for group in strongest if group is not None)] if agents else []
    known = [name for name in (*fair, "equal-weight", *MAIN_BENCHMARKS) if name in titles]
    default = list(dict.fromkeys([*agents, *known]))[:STRATEGIES]
    left, right = st.columns([4, 1], vertical_alignment="bottom")
    names = left.multiselect(
        "Strategies",
        list(titles),
        default=read_choices(STRATEGY, list(titles), default),
        format_func=lambda name: " or ".join(titles[name]),
        key="strategies",
    )
    write_choice(STRATEGY, names, default)
    seeds = choose_switch(
        right, "Every seed", "seeds", help="Show one line per seed instead of the middle seed with a band."
    )
    return [
        line
        for letter, each in zip(_letters(runs), everything, strict=True)
        for line in make_lines(each, letter, names, seeds)
    ]


def _cut(lines: list[Line]) -> tuple[list[Line], bool]:
    """The lines on the chosen days, or on the sessions that all share; whether these are not all that they have."""
    left, right = st.columns([2, 3], vertical_alignment="center")
    first, last = find_whole_span(lines)
    days = choose_days(left, first, last, f"days-{first}-{last}")
    chosen = days != (first, last)
    if chosen:
        lines = cut_to_span(lines, days)
    span = find_common_span(lines) if lines else None
    if span is None:
        return lines, chosen
    told = f"From {span[0]} to {span[1]}, each starting at 1; in every figure and table."
    common = choose_switch(right, "Common sessions only", "common", help=told)
    return (cut_to_span(lines, span) if common else lines), chosen or common


def _curves(lines: list[Line]) -> None:
    heading, switch = st.columns([4, 1], vertical_alignment="bottom")
    heading.subheader("Wealth")
    log = choose_switch(switch, "Logarithmic", LOG)
    tracks = {key: rows for line in lines for key, rows in line.tracks.items()}
    spec = figures.draw_curves(tracks, [line.group for line in lines], "wealth", percent=False)
    for trace in spec["data"]:
        trace["visible"] = True  # the user selected each of them
    show_figure(spec, "equity", "Wealth over time of all selected strategies.", legend=True, log=log)


def _differences(lines: list[Line]) -> None:
    st.subheader("Differences")
    if len(lines) < 2:
        st.caption("Choose at least two strategies.")
        return
    by_name = {line.group.name: line for line in lines}
    names, usual = list(by_name), choose_rival(lines)
    asked = read_choice(RIVAL, names)
    rival = st.selectbox(
        "Compared with",
        names,
        index=usual if asked is None else asked,
        format_func=lambda name: by_name[name].group.title,
        key="rival",
    )
    write_choice(RIVAL, rival, names[usual])
    show_html(render_differences(lines, by_name[rival]))


def _letters(runs: list[Backtest]) -> list[str]:
    """The letters of the backtests on this page; a single backtest needs none."""
    return [""] if len(runs) == 1 else [chr(ord("A") + place % 26) + "′" * (place // 26) for place in range(len(runs))]
