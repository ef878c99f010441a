"""The style sheet of the pages: that of the report, in Streamlit's light and dark.

What must differ between light and dark follows `color-scheme`, which Streamlit sets; Python is not told of a change.
"""

from __future__ import annotations

import streamlit as st

from portfolio_sdpo.report.page import STYLE

from .sketch import STYLE as SKETCH_STYLE

_COLOURS = """
.sdpo { --paper: transparent; --card: light-dark(#ffffff, #12161a); --ink: light-dark(#1d2329, #e7ebee);
  --muted: light-dark(#5f6b76, #9aa6b1); --line: light-dark(#e1e5e9, #2e3740); --cash: light-dark(#c3cad1, #4b5660);
  --accent: light-dark(#0072B2, #56B4E9); --good: light-dark(#00694d, #4fc9a4); --bad: light-dark(#a84300, #f2955a);
  --up: 0,114,178; --down: 213,94,0; color: var(--ink); font-size: 15px; line-height: 1.5; }
"""
_FITTED = """
/* The words above a wide table stay where they can be read: beside the sidebar, or on a phone, which has none. */
.sdpo caption span { max-width: 110ch; white-space: normal; }
@media (max-width: 1180px) { .sdpo caption span { width: calc(100vw - 280px); } }
@media (max-width: 768px) { .sdpo caption span { width: calc(100vw - 32px); } }
.sdpo .lead { margin: 0 0 14px; }
.sdpo .cards { margin: 0; padding: 0; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }
.sdpo .card .figure.words { font-size: 1.05rem; line-height: 1.93; overflow-wrap: anywhere; }
.sdpo details { margin-top: 0; }
.sdpo .nobr { white-space: nowrap; }
/* Streamlit's own grey is 4.3:1 on white, and text of this size needs 4.5:1. */
[data-testid=stCaptionContainer], [data-testid=stCaptionContainer] p { opacity: 1 !important;
  color: light-dark(#5f6b76, #9aa6b1) !important; }
/* One colour of buttons cannot carry white text and be read on black: the chosen one of several has another. */
button[data-selected=true] p { color: light-dark(#005a8c, #7fc4f2) !important; }
/* All that is chosen can be seen, on as many lines as it takes. */
[data-testid=stMultiSelectTagsContainer] { flex-wrap: wrap !important; mask-image: none !important;
  -webkit-mask-image: none !important; height: auto !important; max-height: 9.5rem; overflow: hidden auto !important;
  padding-block: 4px; row-gap: 4px; }
:has(> [data-testid=stMultiSelectTagsContainer]) { height: auto !important; max-height: none !important; }
.js-plotly-plot .modebar { display: none !important; }
@media (hover: hover) { .js-plotly-plot:hover .modebar { display: block !important; } }
.stMainBlockContainer { padding: 3.2rem 2.2rem 4rem; max-width: 1500px; }
@media (max-width: 640px) { .sdpo .cards { grid-template-columns: 1fr 1fr; }
  .sdpo .card { min-width: 0; } .sdpo .facts { grid-template-columns: 1fr; }
  .stMainBlockContainer { padding: 3.2rem .9rem 3rem; } }
"""

SHEET = f"<style>{_COLOURS}.sdpo {{ {STYLE} }}{_FITTED}{SKETCH_STYLE}</style>"
"""The report's style sheet, within elements of the class `sdpo`."""


def show_style() -> None:
    """Load the style sheet, so that what `show_html` shows looks like the report."""
    st.html(SHEET)


def show_html(content: str) -> None:
    """Show text and tables of `report.sections`, or similar ones; the caller escapes what comes from users."""
    st.html(f"<div class='sdpo'>{content}</div>")
