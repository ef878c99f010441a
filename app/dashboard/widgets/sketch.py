"""A line chart without JavaScript, which is shown together with the text until plotly has started and replaces it.

It is drawn from the specification that plotly is given, with the same scales and in an element of the same height, so
that the page does not jump. The curves are images that are stretched to the available space; their units are those of
the data: x is the number of days since the first, y the negative value. All text around them is HTML and keeps its
size. The curves are images because Streamlit removes SVG elements from HTML.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from datetime import date
from html import escape
from typing import Any

import numpy as np

from portfolio_sdpo.report.figures import find_step
from portfolio_sdpo.report.looks import DASHARRAYS, Spec

STYLE = """
/* Sketch and figure in one place; the sketch is hidden as soon as plotly has drawn. */
[class*=-sketched] { display: grid; grid-template-columns: minmax(0, 1fr); }
[class*=-sketched] > * { grid-area: 1 / 1; }
[class*=-sketched]:has(.js-plotly-plot .main-svg) .sketch, [class*=-sketched] [data-testid=stSkeleton] {
  visibility: hidden; }
.sdpo .sketch { display: flex; flex-direction: column; margin: 0; padding: 10px 12px 5px 48px; font-size: 12px;
  line-height: 1; }
.sdpo .sketch .panels { display: flex; flex-direction: column; flex: 1; position: relative; }
.sdpo .sketch .panels::before { content: ""; position: absolute; inset: -8px 0 -8px -8px; border: 0 solid var(--line);
  border-width: 0 0 1px 1px; }
.sdpo .sketch .panel { position: relative; flex-basis: 0; }
.sdpo .sketch .panel img { position: absolute; inset: 0; width: 100%; height: 100%; max-width: none; }
.sdpo .sketch .tick { position: absolute; white-space: nowrap; color: light-dark(#808495, #e7ebee); }
.sdpo .sketch .panel .tick { right: calc(100% + 10px); transform: translateY(-50%); }
.sdpo .sketch .days { position: relative; height: 48px; }
.sdpo .sketch .days .tick { top: 19px; transform: translateX(-50%); }
.sdpo .sketch ul { display: grid; list-style: none; margin: 0; padding: 0; }
.sdpo .sketch li { display: flex; align-items: center; gap: 5px; height: 19px; margin: 0; padding: 0 0 0 5px;
  font-size: 12px; white-space: nowrap; }
.sdpo .sketch li img { width: 30px; height: 4px; }
.sdpo .sketch li.hidden { opacity: .5; }
@media (max-width: 640px) { .sdpo .sketch .days .tick:nth-child(even) { display: none; } }
"""

_SVG = "<svg xmlns='http://www.w3.org/2000/svg'"
_ROOM = 1 / 18
"""The margin that plotly leaves above and below curves, as a share of their range."""


def draw_sketch(data: Sequence[Spec], layout: Spec, alt: str) -> str:
    """HTML of lines over days, on one y axis or on two, one above the other; colours must not be `var(...)`."""
    ends = [np.asarray(trace["x"], "datetime64[D]")[[0, -1]] for trace in data if len(trace["x"])]
    if not ends or np.min(ends) == np.max(ends):
        return draw_empty_sketch(layout)
    first, last = np.min(ends), np.max(ends)
    axes = [axis for axis in ("y", "y2") if _key(axis) in layout]
    free = 1 - sum(_share(layout[_key(axis)]) for axis in axes)
    panels = f"<div style='flex-grow:{free:.3g}'></div>".join(
        _panel([trace for trace in data if trace.get("yaxis", "y") == axis], layout, axis, first, last) for axis in axes
    )
    days = f"<div class='days'>{_day_ticks(first.item(), last.item())}</div>"
    return (
        f"<figure class='sketch' {_height(layout)} role='img' aria-label='{escape(alt)}'>"
        f"{_legend(data)}<div class='panels'>{panels}</div>{days}</figure>"
    )


def draw_empty_sketch(layout: Spec) -> str:
    """An empty element of the figure's height."""
    return f"<div class='sketch' {_height(layout)}></div>"


def _panel(data: Sequence[Spec], layout: Spec, name: str, first: Any, last: Any) -> str:
    """All curves of one y axis, with its ticks."""
    axis = layout[_key(name)]
    shown = [trace for trace in data if trace["visible"] is True]
    values = np.concatenate([_numbers(trace["y"]) for trace in shown]) if shown else np.empty(0)
    values = values[np.isfinite(values)] if np.isfinite(values).any() else np.zeros(1)
    low, high = float(values.min()), float(values.max())
    room = (high - low) * _ROOM or 1.0
    low, high = low - room, high + room
    marks = _ticks(low, high, axis.get("nticks") or max(4, min(9, layout["height"] * _share(axis) / 48)) + 1)
    span = int((last - first).astype(int))
    digits = max(0, math.ceil(4 - math.log10(high - low)))
    grid = f"<path stroke='{axis['gridcolor']}' d='{''.join(f'M0,{-mark:.9g}h{span}' for mark in marks)}'/>"
    image = (
        f"{_SVG} viewBox='0 {-high:.9g} {span} {high - low:.9g}' "
        "preserveAspectRatio='none' fill='none' stroke-linejoin='round'>"
        f"<style>path{{vector-effect:non-scaling-stroke}}</style>{grid}{''.join(_paths(shown, first, digits))}</svg>"
    )
    ticks = "".join(
        f"<span class='tick' style='top:{(high - mark) / (high - low):.3%}'>{_label(mark, axis['tickformat'])}</span>"
        for mark in marks
    )
    return f"<div class='panel' style='flex-grow:{_share(axis):.3g}'>{_image(image)}{ticks}</div>"


def _paths(traces: Sequence[Spec], first: Any, digits: int) -> Iterator[str]:
    """Bands and lines; a band is filled down to the curve before it."""
    edge: list[str] = []
    for trace in traces:
        step = find_step(len(trace["x"]))
        days = (np.asarray(trace["x"], "datetime64[D]") - first).astype(int)
        points = [
            "" if math.isnan(value) else f"{day},{-value:.{digits}f}"
            for place, (day, value) in enumerate(zip(days, _numbers(trace["y"]), strict=True))
            if place % step == 0 or place == len(days) - 1
        ]
        line, before, edge = trace["line"], edge, points
        if trace.get("fill") == "tonexty":
            around = " ".join(filter(None, [*points, *before[::-1]]))
            yield f"<path fill='{trace['fillcolor']}' d='M{around}z'/>"
        if line["width"]:
            runs = " ".join(point or "|" for point in points).split("|")
            course = "".join(f"M{run.strip()}" for run in runs if run.strip())
            yield f"<path {_stroke(line)} data-name='{trace.get('name', '')}' d='{course}'/>"


def _legend(data: Sequence[Spec]) -> str:
    """Names as plotly lists them: in columns, and paler for curves that are hidden at first."""
    listed = [trace for trace in data if trace["showlegend"]]
    items = []
    for trace in listed:
        line = f"{_SVG} viewBox='0 0 30 4'><path {_stroke(trace['line'])} d='M0,2h30'/></svg>"
        hidden = "" if trace["visible"] is True else " class='hidden'"
        items.append(f"<li{hidden}>{_image(line)}{trace['name']}</li>")
    wide = 45 + 5.3 * max((len(trace["name"]) for trace in listed), default=0)
    return f"<ul style='grid-template-columns:repeat(auto-fill,{wide:.0f}px)'>{''.join(items)}</ul>"


def _height(layout: Spec) -> str:
    return f"style='height:{layout['height']}px'"


def _stroke(line: Spec) -> str:
    return f"stroke='{line['color']}' stroke-width='{line['width']}' stroke-dasharray='{DASHARRAYS[line['dash']]}'"


def _image(svg: str) -> str:
    return f"<img alt='' src='data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}'>"


def _key(axis: str) -> str:
    """`y2` is called `yaxis2` in a layout."""
    return axis.replace("y", "yaxis", 1)


def _share(axis: Spec) -> float:
    """The share of the height that an axis has."""
    below, above = axis.get("domain", (0.0, 1.0))
    return float(above - below)


def _numbers(values: Sequence[float | None]) -> Any:
    return np.asarray(values, dtype=float)


def _ticks(low: float, high: float, most: float) -> list[float]:
    """Round numbers between `low` and `high`, at steps of 1, 2 or 5 times a power of ten.

    >>> _ticks(0.93, 1.21, 6)
    [0.95, 1.0, 1.05, 1.1, 1.15, 1.2]
    """
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * size for size in (1, 2, 5, 10) if power * size >= rough)
    return [round(number * step, 12) for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _label(value: float, written: str) -> str:
    """A value as plotly writes it with the format `.2~f` or `.2~%`.

    >>> _label(-0.05, ".2~%"), _label(1.2, ".2~f")
    ('−5%', '1.2')
    """
    percent = written.endswith("%")
    text = f"{value * 100 if percent else value:.2f}".rstrip("0").rstrip(".")
    return (text if text != "-0" else "0").replace("-", "−") + "%" * percent


def _day_ticks(first: date, last: date) -> str:
    """About ten ticks: years, months or weeks."""
    span = (last - first).days
    rough = span / 10 / 30.44
    if rough > 0.5:
        step = next((size for size in (1, 2, 3, 6) if size >= rough), 12 * math.ceil(rough / 12))
        months = range(first.year * 12, last.year * 12 + 12, step)
        marks = [(date(month // 12, month % 12 + 1, 1), "%Y" if step >= 12 else "%b %Y") for month in months]
    else:
        step = 7 * math.ceil(span / 70)
        start = first.toordinal() - first.weekday()
        marks = [(date.fromordinal(day), "%b %-d") for day in range(start, last.toordinal() + 1, step)]
    return "".join(
        f"<span class='tick' style='left:{(day - first).days / span:.3%}'>{day.strftime(written)}</span>"
        for day, written in marks
        if first <= day <= last
    )
