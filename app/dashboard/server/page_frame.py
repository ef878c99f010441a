"""The frame around every page: title, style and the list of pages."""

from __future__ import annotations

import streamlit as st

from ..navigation import ICON, PAGES, SIDEBAR, get_page
from ..widgets.style import show_style


def show_page() -> None:
    """Draw the page at the current address."""
    st.set_page_config(page_title="portfolio_sdpo", page_icon=ICON, layout="wide", initial_sidebar_state=SIDEBAR)
    page = st.navigation([get_page(name) for name in PAGES])
    show_style()
    page.run()
