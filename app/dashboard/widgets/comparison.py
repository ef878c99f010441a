"""Tables and the figure of the page *Compare*; differences are those of `statistics.growth_difference`."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from portfolio_sdpo.backtest.intervals import Bootstrap
from portfolio_sdpo.backtest.statistics import growth_difference
from portfolio_sdpo.common.numbers import percent, share, span
from portfolio_sdpo.portfolio.market import SESSIONS_PER_YEAR
from portfolio_sdpo.report.formats import NONE, table, verdict
from portfolio_sdpo.report.looks import Spec, line_styles
from portfolio_sdpo.report.sections import COLUMNS, format_figure, format_interval

from ..data.comparison import Line, pair_returns


def render_results(lines: Sequence[Line], *, cut: bool = False) -> str:
    """A row per line: its α and limit, its figures with their intervals, and whether the limit was kept.

    cut: the figures are those of a part of the days, and have no intervals.
    """
    rows = []
    for line in lines:
        record = line.group.median
        promise = record["promise"]
        cells = [f"<td>{share(promise['alpha'])}</td>", f"<td>{percent(promise['bound'])}</td>"]
        for field, _, written, with_interval in COLUMNS:
            interval = format_interval(record, field, written) if with_interval else ""
            spread = line.group.range(field) if field in ("final_wealth", "sharpe", "cvar_window") else None
            text = format_figure(record, field, written) + (f"<small>{interval}</small>" if interval else "")
            text += f"<small>seeds {span(*spread, written)}</small>" if spread else ""
            cells.append(f"<td>{text}</td>")
            if field == "cvar_window":
                cells.append(f"<td>{verdict(promise)}</td>")
        name, title = escape(line.group.name), escape(line.group.title)
        days = f"<small>{escape(record['start'])} to {escape(record['end'])}</small>"
        rows.append(f"<tr data-row='{name}'><th scope='row'>{title}{days}</th>{''.join(cells)}</tr>")
    headings = ["Strategy", "α", "Limit", *(heading for _, heading, _, _ in COLUMNS)]
    headings.insert(headings.index("CVaR") + 1, "Kept")
    caption = (
        "CVaR is the mean of the worst fraction α of the returns over the horizon of each backtest. "
        + ("There are no intervals for a part of the days. " if cut else "Small print: intervals, as in each report. ")
        + "With several seeds, the row shows the middle seed, and “seeds” the range over all of them."
    )
    return table(caption, headings, rows)


def render_differences(lines: Sequence[Line], rival: Line) -> str:
    """By how much each line grew faster than its rival over their common sessions."""
    rows = []
    for line in lines:
        if line is rival:
            continue
        name, title = escape(line.group.name), escape(line.group.title)
        both = pair_returns(line.rows, rival.rows)
        if both is None:
            cells = f"<td>{NONE}</td><td>no common sessions</td><td>0</td>"
        else:
            bootstrap = None if line.bootstrap is None else Bootstrap.model_validate(line.bootstrap)
            found = growth_difference(*both, bootstrap, line.group.median.get("sessions_per_year") or SESSIONS_PER_YEAR)
            low, high = found["interval"] or (None, None)
            interval = "" if low is None or high is None else span(low, high, percent)
            cells = f"<td>{format_figure(found, 'growth', percent)}</td><td>{interval}</td><td>{len(both[0])}</td>"
        rows.append(f"<tr data-row='{name}'><th scope='row'>{title}</th>{cells}</tr>")
    caption = (
        f"Log growth in excess of {escape(rival.group.title)} on the sessions that both have, a year or, below a year, "
        "in all. Both are "
        "resampled together for the interval, so that common moves cancel. With several seeds, the middle seeds "
        "are compared."
    )
    return table(caption, ["Strategy", "Excess growth", "Interval", "Sessions"], rows)


def draw_risk_and_return(lines: Sequence[Line]) -> Spec:
    """Growth over the realised CVaR, with their intervals."""
    styles = line_styles([line.group for line in lines])
    data: list[Spec] = []
    for line in lines:
        record, colour = line.group.median, styles[line.group.name]["color"]
        growth = "total_return" if record["cagr"] is None else "cagr"
        if record["cvar_window"] is None or record.get(growth) is None:
            continue
        point: Spec = {
            "type": "scatter",
            "mode": "markers",
            "name": escape(line.group.title),
            "x": [record["cvar_window"]],
            "y": [record[growth]],
            "marker": {
                "size": 11,
                "color": colour,
                "symbol": _find_symbol(line),
                "line": {"width": 2, "color": colour},
            },
            "hovertemplate": "%{fullData.name}<br>CVaR %{x:.1%}<br>growth %{y:.1%}<extra></extra>",
        }
        for side, field in (("x", "cvar_window"), ("y", growth)):
            low, high = record["intervals"].get(field, (None, None))
            if low is not None and high is not None:
                point[f"error_{side}"] = {
                    "type": "data",
                    "symmetric": False,
                    "array": [high - record[field]],
                    "arrayminus": [record[field] - low],
                    "thickness": 1,
                    "width": 0,
                    "color": colour if colour.startswith("#") else "var(--muted)",
                }
        data.append(point)
    bounds = sorted({line.group.median["promise"]["bound"] for line in lines})
    shapes = [
        {
            "type": "line",
            "x0": bound,
            "x1": bound,
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "line": {"color": "var(--ink)", "width": 1.5, "dash": "dash"},
        }
        for bound in bounds
    ]
    notes = [
        {
            "x": bound,
            "yref": "paper",
            "y": 1.0,
            "yanchor": "bottom",
            "showarrow": False,
            "text": f"limit {percent(bound)}",
        }
        for bound in bounds
    ]
    axis: Spec = {"tickformat": ".0%", "gridcolor": "var(--line)", "automargin": True, "zeroline": False}
    layout = {
        "height": 400,
        "margin": {"l": 48, "r": 20, "t": 30, "b": 40},
        "showlegend": False,
        "hovermode": "closest",
        "xaxis": axis | {"title": {"text": "realised CVaR"}},
        "yaxis": axis | {"title": {"text": "growth a year, or in all below a year"}},
        "shapes": shapes,
        "annotations": notes,
    }
    return {"data": data, "layout": layout}


def _find_symbol(line: Line) -> str:
    """Of a point: agents are round, and whatever is behind the shield is hollow."""
    shape = "square" if line.group.kind == "benchmark" else "circle"
    return f"{shape}-open" if line.group.name.endswith(" + shield") else shape
