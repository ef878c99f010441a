"""The Backtest page as it is seen first, within the document that the server answers with.

Streamlit's document is empty: a browser reads 2 MB of JavaScript, connects and asks before it can show anything. Here
the headline figures and the curves come with the document, look like the page and lie where the page will have them;
when Streamlit has drawn the same, it takes over. Where anything is unusual, the document is Streamlit's own.
"""

from __future__ import annotations

import re
from functools import cache
from html import escape
from pathlib import Path

import streamlit as st

from ..data.backtests import CACHED, Backtest, list_backtests, open_backtest
from ..navigation import PAGES, SIDEBAR
from ..widgets.curves import CURVES, CURVES_ALT, draw_wealth_and_drawdown, render_summary
from ..widgets.figures import prepare_figure
from ..widgets.sketch import draw_sketch
from ..widgets.style import SHEET

_ROOT = '<div id="root"></div>'
_STYLE = f"""
#first {{ position: fixed; inset: 0; z-index: 1000000; overflow: auto; color-scheme: light dark;
  background: light-dark(#ffffff, #12161a); font: 16px/1.5 "Source Sans", sans-serif; }}
#first main {{ padding: 3.2rem 2.2rem 4rem; max-width: 1500px; margin: 0; }}
#first h1 {{ font-size: 44px; line-height: 52.8px; font-weight: 700; margin: 0; padding: 20px 0 16px; }}
#first h3 {{ font-size: 28px; line-height: 33.6px; font-weight: 600; letter-spacing: -.14px; margin: 0;
  padding: 28px 0 16px; }}
#first .choice {{ position: relative; height: 40px; margin-bottom: 16px; padding: 9px 34px 9px 9px;
  border: 1px solid light-dark(#d2d3d4, #47505a); border-radius: 8px; background: light-dark(#f8f8f7, #1f262d);
  font-size: 14px; line-height: 19.6px; white-space: nowrap; }}
#first .choice span {{ display: block; overflow: hidden; }}
#first .choice::after {{ content: ""; position: absolute; right: 14px; top: 13px; width: 7px; height: 7px;
  border: solid; border-width: 0 2px 2px 0; rotate: 45deg; }}
#first nav {{ display: none; position: fixed; inset: 0 auto 0 0; width: {SIDEBAR}px; padding: 75px 29px 0 30px;
  background: light-dark(#f8f8f7, #1f262d); border-right: 1px solid light-dark(#e8e9ea, #38414a); }}
#first nav a {{ display: block; height: 28px; margin: 3px 0 6px; padding-left: 32px; border-radius: 8px; color: inherit;
  font-size: 14px; line-height: 28px; text-decoration: none; }}
#first nav a[aria-current] {{ font-weight: 600; background: light-dark(#e3e3e3, #353c44); }}
@media (min-width: 769px) {{ #first main {{ margin-left: {SIDEBAR}px; }} #first nav {{ display: block; }} }}
@media (max-width: 640px) {{ #first main {{ padding: 3.2rem .9rem 3rem; }} #first h3 {{ padding-bottom: 176px; }} }}
"""
_SCRIPT = """
{
  const first = document.getElementById("first");
  const message = "#root [data-testid=stAlert], #root [data-testid=stException], [role=dialog]";
  // Streamlit fetches each kind of element by itself, and keeps a place of another height for it meanwhile.
  const isAbove = sketch => place => place.compareDocumentPosition(sketch) & Node.DOCUMENT_POSITION_FOLLOWING
    && !place.closest("[class*=-sketched]");
  const isDrawn = sketch => sketch
    && ![...document.querySelectorAll("#root [data-testid=stSkeleton]")].some(isAbove(sketch));
  new MutationObserver((_, watch) => {
    if (!document.querySelector(message) && !isDrawn(document.querySelector("#root .sketch"))) return;
    const main = document.querySelector("[data-testid=stMain]");
    if (main) main.scrollTop = first.scrollTop;
    // Streamlit may insert its copy of the sheet after the page: without one, everything would jump.
    document.head.append(first.querySelector("style"));
    first.remove();
    watch.disconnect();
  }).observe(document.body, {childList: true, subtree: true});
  // The theme that the visitor selected in the menu; last, since a browser may deny access to it.
  const theme = /Light|Dark/.exec(localStorage.getItem(`stActiveTheme-${location.pathname}-v2`));
  if (theme) first.style.colorScheme = theme[0].toLowerCase();
}
"""


def make_document(requested_id: str | None) -> str:
    """Streamlit's document, for a backtest by its id or else the newest one."""
    found = list_backtests()
    run = next((each for each in found if requested_id in (None, each.id)), None)
    # Streamlit's page shows the warning about a damaged or unknown backtest.
    if run is None or any(each.config is None for each in found):
        return read_streamlit_document()
    try:
        first = _make_first_screen(str(run.folder), run.made, run)
    except Exception:  # the page reports the error
        return read_streamlit_document()
    return read_streamlit_document().replace(_ROOT, _ROOT + first)


@st.cache_resource(max_entries=CACHED, show_spinner=False)
def _make_first_screen(folder: str, made: int, _backtest: Backtest) -> str:
    """One div with its own style and the script that removes it."""
    run = open_backtest(_backtest)
    font = re.search(r'href="([^"]*/SourceSans[^"]*)"', read_streamlit_document())
    # Streamlit's font is on its way with the document; until it is there, another one shows the words.
    look = 'font-family: "Source Sans"; font-weight: 200 900; font-display: swap'
    face = f'@font-face {{ {look}; src: url("{font[1]}"); }}' if font else ""
    home = next(iter(PAGES))
    links = "".join(
        f"<a href='./{name * (name != home)}'{' aria-current=page' * (name == 'backtest')}>{title}</a>"
        for name, (title, _) in PAGES.items()
    )
    curves = draw_sketch(*prepare_figure(draw_wealth_and_drawdown(run), legend=True), CURVES_ALT)
    choice = f"<div class='choice'><span>{escape(_backtest.title)}</span></div>"
    page = f"<h1>{PAGES['backtest'][0]}</h1>{choice}{render_summary(run)}<h3>{CURVES}</h3>{curves}"
    return (
        f"<div id='first' class='sdpo'>{SHEET}<style>{face}{_STYLE}</style>"
        f"<nav>{links}</nav><main>{page}</main></div><script>{_SCRIPT}</script>"
    )


@cache
def read_streamlit_document() -> str:
    """Streamlit's own document."""
    return (Path(st.__file__).parent / "static" / "index.html").read_text()
