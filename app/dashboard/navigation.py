"""The frame around the pages: their order, what is imported for which, and how an error is told.

A page is a module of `pages` with `def render() -> None`. It is imported when it is first opened, so that nobody
waits for what another page needs.
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
"""Title and icon by the name of the module, which is also the address; the first one opens by itself."""

ICON = (
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'><path fill='#0072B2' "
    "d='M16 2 4 7v8c0 8 5 13 12 15 7-2 12-7 12-15V7z'/><path fill='none' stroke='#fff' stroke-width='3' "
    "d='m9 18 5-5 4 4 6-7'/></svg>"
)
"""Drawn here: Streamlit would fetch an icon of its own from the internet."""
SIDEBAR = 200
"""Pixels: the narrowest that Streamlit has, so that the tables fit a laptop beside it."""


def show_page() -> None:
    """Draw the page that is asked for."""
    st.set_page_config(page_title="portfolio_sdpo", page_icon=ICON, layout="wide", initial_sidebar_state=SIDEBAR)
    chosen = st.navigation([get_page(name) for name in PAGES])
    from .widgets.style import show_style

    show_style()
    chosen.run()


def get_page(name: str) -> st.Page:
    """A page by the name of its module, also for links to it: `st.page_link(get_page("run"))`."""
    title, icon = PAGES[name]
    return st.Page(_make_renderer(name), title=title, icon=icon, url_path=name, default=name == next(iter(PAGES)))


def _make_renderer(name: str) -> Callable[[], None]:
    """What draws a page; an error that is meant for the user becomes its one sentence."""

    def draw() -> None:
        try:
            importlib.import_module(f".pages.{name}", __package__).render()
        except PortfolioSdpoError as error:
            st.error(str(error), icon=":material/error:")

    return draw
