"""The bundled sample, for whoever has nothing yet: benchmarks through 2019, written like any other backtest."""

from __future__ import annotations

import streamlit as st

STRATEGIES = ("equal-weight", "minimum-variance", "minimum-cvar", "maximum-return", "buy-and-hold", "cash")
START, END = "2019-01-02", "2019-12-31"


def run_sample() -> None:
    """Run it, with its progress on the page."""
    from portfolio_sdpo.backtest.run import BacktestSettings, run_backtest

    bar = st.progress(0.0, "Reading the sample")

    def progress(title: str, done: int, total: int) -> None:
        bar.progress((STRATEGIES.index(title) + done / max(total, 1)) / len(STRATEGIES), title)

    run_backtest(BacktestSettings(strategies=STRATEGIES, start=START, end=END), progress=progress)
