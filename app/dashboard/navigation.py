"""The pages of the dashboard: their order, their titles, and how their errors are shown.

A page is a module of `pages` with `def render() -> None`. It is imported when it is first opened, so that no page waits
for what another one needs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

import streamlit as st

from portfolio_sdpo.errors import PortfolioSdpoError

PAGES = {
    "live": ("Live", ":material/monitoring:"),
    "backtest": ("Backtest", ":material/history:"),
    "compare": ("Compare", ":material/compare_arrows:"),
    "training": ("Training", ":material/model_training:"),
    "data": ("Data", ":material/database:"),
    "run": ("Run", ":material/play_circle:"),
}
"""Title and icon by the name of the module, which is also the address; the first page is the default."""

HOME = next(iter(PAGES))
"""The name of the default page."""

ICON = (
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'><path fill='#0072B2' "
    "d='M16 2 4 7v8c0 8 5 13 12 15 7-2 12-7 12-15V7z'/><path fill='none' stroke='#fff' stroke-width='3' "
    "d='m9 18 5-5 4 4 6-7'/></svg>"
)
"""Drawn here: Streamlit would fetch an icon of its own from the internet."""
SIDEBAR = 200
"""Width in pixels: the narrowest that Streamlit allows, so that the tables fit a laptop screen beside it."""


def get_page(name: str) -> st.Page:
    """A page by the name of its module, also for links to it: `st.page_link(get_page("run"))`."""
    title, icon = PAGES[name]
    return st.Page(_make_renderer(name), title=title, icon=icon, url_path=name, default=name == HOME)


def _make_renderer(name: str) -> Callable[[], None]:
    """A function that draws a page; an error of the package is shown as its sentence."""

    def draw() -> None:
        try:
            importlib.import_module(f".pages.{name}", __package__).render()
        except PortfolioSdpoError as error:
            st.error(str(error), icon=":material/error:")

    return draw
