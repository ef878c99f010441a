"""Download buttons for the files of a backtest; nothing is read before a button is clicked."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from ..data.backtests import OpenBacktest

METRICS, REPORT = "metrics.json", "report.html"


def offer_downloads(run: OpenBacktest) -> None:
    """Figures, report and tables, named after the backtest."""
    from portfolio_sdpo.backtest.record import FOLDERS, OPTIONAL_TABLES, TABLES

    backtest = run.backtest

    def file(name: str) -> Callable[[], bytes]:
        return lambda: FOLDERS.read(backtest.folder, name)

    def csv(name: str) -> Callable[[], bytes]:
        return lambda: getattr(run.record, name).to_csv(index=False).encode()

    with st.container(horizontal=True):
        _button("Metrics", METRICS, backtest.id, "application/json", file(METRICS))
        _button("Report", REPORT, backtest.id, "text/html", file(REPORT))
        for name in (*TABLES, *OPTIONAL_TABLES):
            if getattr(run.record, name) is not None:
                _button(f"{name.capitalize()}, CSV", f"{name}.csv", backtest.id, "text/csv", csv(name))
                parquet = f"{name}.parquet"
                _button(f"{name.capitalize()}, Parquet", parquet, backtest.id, "application/x-parquet", file(parquet))


def _button(label: str, name: str, backtest: str, mime: str, content: Callable[[], bytes]) -> None:
    st.download_button(
        label,
        content,
        file_name=f"{backtest}-{name}",
        mime=mime,
        key=f"download-{name}",
        on_click="ignore",
        icon=":material/download:",
    )
