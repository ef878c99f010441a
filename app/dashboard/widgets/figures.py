"""The report's plotly figures on the pages, in colours that are visible in the light and in the dark theme.

The colours are those of Okabe and Ito, which all kinds of colour vision can distinguish (`report.figures`).
"""

from __future__ import annotations

import json
import re
from datetime import date
from typing import Any

import streamlit as st

from portfolio_sdpo.report.looks import Spec

from .sketch import draw_empty_sketch, draw_sketch
from .style import show_html

_NEUTRAL = {"ink": "#7d8894", "muted": "#8d99a5", "line": "rgba(128,138,148,0.25)", "cash": "rgba(128,138,148,0.45)"}
"""Greys that are visible on white and on black."""
_SEPARATOR = "rgba(255,255,255,0.55)"
_CONFIG = {
    "displaylogo": False,
    "displayModeBar": "hover",
    # Named one by one: some of plotly's own buttons would send the figure to a server.
    "modeBarButtons": [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
}


def show_figure(
    spec: Spec,
    name: str,
    alt: str,
    *,
    legend: bool = False,
    log: bool = False,
    sketched: bool = False,
    days: tuple[date, date] | None = None,
) -> None:
    """Draw a specification of `report.figures`; `name` is the element's key, `alt` says what it shows.

    days: of a figure over days, only these; its axes then fit them. With `sketched` (lines over days, with a legend) a
    static picture is shown until plotly has drawn the figure.
    """
    data, layout = prepare_figure(spec if days is None else cut_to_days(spec, *days), legend=legend, log=log)
    if not sketched:
        _plot(data, layout, name, alt)
        return
    with st.container(key=f"{name}-sketched"):
        show_html(draw_empty_sketch(layout) if log else draw_sketch(data, layout, alt))
        _plot(data, layout, name, alt)


def prepare_figure(spec: Spec, *, legend: bool = False, log: bool = False) -> tuple[list[Spec], Spec]:
    """Traces and layout for the pages: colours for both themes, and Streamlit's fonts."""
    layout = apply_colours(spec["layout"])
    # Streamlit's theme sets these, in light and in dark.
    for part in ("font", "hoverlabel", "modebar"):
        layout.pop(part, None)
    for axis in ("xaxis", "yaxis", "yaxis2"):
        layout.get(axis, {}).pop("tickcolor", None)
        if layout.get(axis, {}).get("tickformat") == ".0%":
            # Half percents too, where the figure is tall enough for them: no two ticks may read the same.
            layout[axis]["tickformat"] = ".2~%"
    if log:
        layout["yaxis"] |= {"type": "log"}
    data = apply_colours(spec["data"])
    if legend:
        data = _add_legend(data)
        # Above the curves, where it is seen with them: plotly keeps that room free at any width.
        layout |= {
            "showlegend": True,
            "legend": {
                "orientation": "h",
                "yref": "container",
                "y": 1,
                "yanchor": "top",
                "x": 0,
                "xanchor": "left",
                "traceorder": "normal",
            },
        }
        layout["height"] += 30 + 7 * sum(trace["showlegend"] for trace in data)
    return data, layout


def cut_to_days(spec: Spec, first: date, last: date) -> Spec:
    """The figure between two days; of a straight line its part in between.

    A bar is that of a month and stands at its first day: it is shown if any day of its month is.

    >>> line = {"x": ["2020-01-01", "2020-01-02", "2020-01-03"], "y": [1, 2, 3]}
    >>> cut_to_days({"data": [line], "layout": {}}, date(2020, 1, 2), date(2020, 1, 3))["data"]
    [{'x': ['2020-01-02', '2020-01-03'], 'y': [2, 3]}]
    """
    low, high = str(first), str(last)

    def cut(trace: Spec) -> Spec:
        days, values, bars = trace["x"], trace["y"], trace.get("type") == "bar"
        if len(days) == 2 and values[0] == values[1] and not bars:
            return trace | {"x": [min(max(day, low), high) for day in days]}
        start = str(first.replace(day=1)) if bars else low
        inside = [(day, value) for day, value in zip(days, values, strict=True) if start <= day <= high]
        return trace | {"x": [day for day, _ in inside], "y": [value for _, value in inside]}

    layout = spec["layout"]
    if "range" in layout.get("xaxis", {}):
        layout = layout | {"xaxis": layout["xaxis"] | {"range": [low, high]}}
    return {"data": [cut(trace) for trace in spec["data"]], "layout": layout}


def apply_colours(part: Any) -> Any:
    """A copy in which the style sheet's colours are replaced by ones that are visible in both themes."""
    text = re.sub(r'"var\(--(\w+)\)"', lambda found: json.dumps(_NEUTRAL.get(found[1], _SEPARATOR)), json.dumps(part))
    return json.loads(text)


def _plot(data: list[Spec], layout: Spec, name: str, alt: str) -> None:
    import plotly.graph_objects as go

    st.plotly_chart(go.Figure(data=data, layout=layout), key=name, config=_CONFIG, alt=alt)


def _add_legend(traces: list[Spec]) -> list[Spec]:
    """Curves with entries in a legend, where a curve that is hidden at first can be shown; bands follow their curve."""
    for trace in traces:
        if "meta" in trace:
            trace["legendgroup"] = trace["meta"]
            trace["visible"] = True if trace.get("visible", True) else "legendonly"
        trace.setdefault("showlegend", "name" in trace)
    return traces
