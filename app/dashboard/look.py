"""How the pages look: one style sheet and one way to draw figures, those of the report, in Streamlit's light and dark.

Colours are Okabe and Ito's, told apart with any kind of colour vision (`backtest.figures`). What must differ between
light and dark follows `color-scheme`, which Streamlit sets, or stands out on both; Python is not told of a change.
"""

from __future__ import annotations

import json
import re
from typing import Any

import streamlit as st

from portfolio_sdpo.backtest.figures import Spec
from portfolio_sdpo.backtest.page import STYLE
from portfolio_sdpo.backtest.sections import number, percent, share, times

from .sketch import STYLE as SKETCH
from .sketch import empty, sketch

__all__ = ["figure", "html", "number", "offer_sample", "percent", "share", "style", "times"]

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
_NEUTRAL = {"ink": "#7d8894", "muted": "#8d99a5", "line": "rgba(128,138,148,0.25)", "cash": "rgba(128,138,148,0.45)"}
"""Greys that stand out on white and on black."""
_SEPARATOR = "rgba(255,255,255,0.55)"
_CONFIG = {
    "displaylogo": False,
    "displayModeBar": "hover",
    # Named one by one: some of plotly's own buttons would send the figure to a server.
    "modeBarButtons": [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
}


SHEET = f"<style>{_COLOURS}.sdpo {{ {STYLE} }}{_FITTED}{SKETCH}</style>"
"""The report's style sheet, within elements of the class `sdpo`."""


def style() -> None:
    """Have whatever `html` shows look like the report."""
    st.html(SHEET)


def html(content: str) -> None:
    """Words and tables of `backtest.sections`, or in their manner; what comes from users must be escaped."""
    st.html(f"<div class='sdpo'>{content}</div>")


def figure(spec: Spec, name: str, alt: str, *, legend: bool = False, log: bool = False, sketched: bool = False) -> None:
    """Draw a specification of `backtest.figures`; `name` is the element's key, `alt` tells what it shows.

    Of one that is sketched (lines over days, with a legend) a picture is there until plotly has drawn it.
    """
    data, layout = prepared(spec, legend=legend, log=log)
    if not sketched:
        _plot(data, layout, name, alt)
        return
    with st.container(key=f"{name}-sketched"):
        html(empty(layout) if log else sketch(data, layout, alt))
        _plot(data, layout, name, alt)


def prepared(spec: Spec, *, legend: bool = False, log: bool = False) -> tuple[list[Spec], Spec]:
    """Traces and layout as they are drawn here: in colours for light and dark, with Streamlit's own words."""
    layout = themed(spec["layout"])
    # Streamlit's theme has its own words for these, in light and in dark.
    for part in ("font", "hoverlabel", "modebar"):
        layout.pop(part, None)
    for axis in ("xaxis", "yaxis", "yaxis2"):
        layout.get(axis, {}).pop("tickcolor", None)
        if layout.get(axis, {}).get("tickformat") == ".0%":
            # Half percents too, where the figure is tall enough for them: no two ticks may read the same.
            layout[axis]["tickformat"] = ".2~%"
    if log:
        layout["yaxis"] |= {"type": "log"}
    data = themed(spec["data"])
    if legend:
        data = _listed(data)
        # At the bottom of the element, below whatever the axis needs: plotly keeps that room free at any width.
        layout |= {
            "showlegend": True,
            "legend": {
                "orientation": "h",
                "yref": "container",
                "y": 0,
                "yanchor": "bottom",
                "x": 0,
                "xanchor": "left",
                "traceorder": "normal",
            },
        }
        layout["height"] += 30 + 7 * sum(trace["showlegend"] for trace in data)
    return data, layout


def themed(part: Any) -> Any:
    """A copy with the style sheet's colours as ones that can be seen on light and dark."""
    text = re.sub(r'"var\(--(\w+)\)"', lambda found: json.dumps(_NEUTRAL.get(found[1], _SEPARATOR)), json.dumps(part))
    return json.loads(text)


def offer_sample(what: str) -> None:
    """Say what is missing, and offer a backtest of benchmarks on the bundled prices."""
    from .frame import page
    from .sample import run_sample

    st.info(what, icon=":material/info:")
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Try it on the bundled sample", type="primary", icon=":material/bolt:", key="sample"):
            run_sample()
            st.rerun()
        st.page_link(page("run"), label="Choose prices and settings")
    st.caption("The sample: nine large US stocks through 2019, benchmark strategies only; a few seconds.")


def _plot(data: list[Spec], layout: Spec, name: str, alt: str) -> None:
    import plotly.graph_objects as go

    st.plotly_chart(go.Figure(data=data, layout=layout), key=name, config=_CONFIG, alt=alt)


def _listed(traces: list[Spec]) -> list[Spec]:
    """Curves with entries in a legend; those that are hidden at first can be asked for there, bands go with them."""
    for trace in traces:
        if "meta" in trace:
            trace["legendgroup"] = trace["meta"]
            trace["visible"] = True if trace.get("visible", True) else "legendonly"
        trace.setdefault("showlegend", "name" in trace)
    return traces
