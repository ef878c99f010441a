"""Selection boxes for backtests and their tracks, the same on every page."""

from __future__ import annotations

from typing import Any

import streamlit as st

from ..data.backtests import Backtest, OpenBacktest, list_backtests
from .address import read_choice, write_choice

RUN, STRATEGY, SEED = "run", "strategy", "seed"
"""Query parameters with the id of a backtest, one of its strategies and a seed: a page can be linked to."""


def list_readable_backtests() -> list[Backtest]:
    """All backtests that can be read, the newest first; a warning names each of the others."""
    found = list_backtests()
    for each in found:
        if each.config is None:
            st.warning(f"The backtest {each.id} is damaged and is not listed: delete its folder, or run it again.")
    return [each for each in found if each.config is not None]


def choose_backtest(found: list[Backtest]) -> Backtest:
    """Let the user select a backtest: at first the one in the address, or the newest."""
    requested_id = st.query_params.get(RUN)
    places = {each.id: place for place, each in enumerate(found)}
    if requested_id is not None and requested_id not in places:
        st.warning(f"The backtest {requested_id} no longer exists. The newest one is shown instead.")
    backtest = st.selectbox(
        "Backtest",
        found,
        index=places.get(requested_id or "", 0),
        format_func=lambda each: each.title,
        key="backtest",
        label_visibility="collapsed",
    )
    st.query_params[RUN] = backtest.id
    return backtest


def choose_track(backtest: OpenBacktest, key: str) -> dict[str, Any]:
    """The record of one strategy and seed; at first the main strategy with its middle seed."""
    groups = {group.name: group for group in backtest.groups}
    left, right = st.columns([3, 1])
    asked = read_choice(STRATEGY, list(groups))
    name = left.selectbox(
        "Strategy",
        list(groups),
        index=list(groups).index(backtest.main.name) if asked is None else asked,
        format_func=lambda each: groups[each].title,
        key=f"{key}-strategy",
    )
    write_choice(STRATEGY, name, backtest.main.name)
    group = groups[name]
    if len(group.records) == 1:
        st.query_params.pop(SEED, None)
        return group.records[0]
    seeds = [record["seed"] for record in group.records]
    middle = seeds.index(group.median["seed"])
    asked = read_choice(SEED, [str(seed) for seed in seeds])
    seed = right.selectbox(
        "Seed",
        seeds,
        index=middle if asked is None else asked,
        key=f"{key}-seed-{name}",
        help="The middle seed is shown first.",
    )
    write_choice(SEED, str(seed), str(group.median["seed"]))
    return group.records[seeds.index(seed)]
