"""Choosing among backtests and their tracks, the same way on every page."""

from __future__ import annotations

from typing import Any

import streamlit as st

from .reading import Backtest, Opened, backtests

RUN = "run"
"""The query parameter with the id of a backtest: its page can be linked to."""


def sound_backtests() -> list[Backtest]:
    """All that can be read, the newest first; the others are named."""
    found = backtests()
    for each in found:
        if each.config is None:
            st.warning(f"The backtest {each.id} is damaged and left out: delete its folder or run it again.")
    return [each for each in found if each.config is not None]


def choose_backtest(found: list[Backtest]) -> Backtest:
    """One of them: the one in the address, or the newest."""
    asked = st.query_params.get(RUN)
    places = {each.id: place for place, each in enumerate(found)}
    if asked is not None and asked not in places:
        st.warning(f"There is no backtest {asked} here any more; this is the newest.")
    chosen = st.selectbox(
        "Backtest",
        found,
        index=places.get(asked or "", 0),
        format_func=lambda each: each.title,
        key="backtest",
        label_visibility="collapsed",
    )
    st.query_params[RUN] = chosen.id
    return chosen


def choose_track(opened: Opened, key: str) -> dict[str, Any]:
    """The record of a strategy, and if it has several seeds of one of these; the main one and the middle at first."""
    names = [group.name for group in opened.groups]
    left, right = st.columns([3, 1])
    name = left.selectbox("Strategy", names, index=names.index(opened.main.name), key=f"{key}-strategy")
    group = opened.groups[names.index(name)]
    if len(group.records) == 1:
        return group.records[0]
    seeds = [record["seed"] for record in group.records]
    middle = seeds.index(group.shown["seed"])
    seed = right.selectbox("Seed", seeds, index=middle, key=f"{key}-seed-{name}", help="The middle one at first.")
    return group.records[seeds.index(seed)]
