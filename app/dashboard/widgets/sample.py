"""The backtest of benchmarks on the bundled sample that is offered to users without a backtest."""

from __future__ import annotations

import streamlit as st

from ..navigation import get_page

STRATEGIES = ("equal-weight", "minimum-variance", "minimum-cvar", "maximum-return", "buy-and-hold", "cash")
START, END = "2019-01-02", "2019-12-31"


def run_sample() -> None:
    """Run the backtest, with its progress on the page."""
    from portfolio_sdpo.backtest.run import BacktestSettings
    from portfolio_sdpo.portfolio.presets import PRESETS
    from portfolio_sdpo.report.result import run_backtest

    bar = st.progress(0.0, "Reading the sample")

    def progress(title: str, done: int, total: int) -> None:
        bar.progress((STRATEGIES.index(title) + done / max(total, 1)) / len(STRATEGIES), title)

    usual = PRESETS["default"]
    settings = BacktestSettings(
        strategies=STRATEGIES,
        start=START,
        end=END,
        fee_bps=usual.fee_bps,
        cash=usual.cash,
    )
    run_backtest(settings, progress=progress)


def offer_sample(what: str) -> None:
    """Say what is missing, and offer a backtest of benchmarks on the bundled prices."""
    st.info(what, icon=":material/info:")
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Try it on the bundled sample", type="primary", icon=":material/bolt:", key="sample"):
            run_sample()
            st.rerun()
        st.page_link(get_page("run"), label="Choose prices and settings")
    st.caption("The sample runs benchmark strategies on nine large US stocks in 2019. It takes a few seconds.")
