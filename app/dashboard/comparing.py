"""What *Compare* shows: lines of several runs, and their differences by `statistics.growth_difference`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from portfolio_sdpo.backtest.figures import Spec, line_styles
from portfolio_sdpo.backtest.groups import Group
from portfolio_sdpo.backtest.resample import Bootstrap
from portfolio_sdpo.backtest.sections import (
    COLUMNS,
    NONE,
    figure_of,
    interval_of,
    percent,
    share,
    span,
    table,
    verdict,
)
from portfolio_sdpo.backtest.statistics import growth_difference

from .reading import Opened

LEAST = 20
"""Sessions in common that a difference needs."""
SYMBOLS = {"agent": "circle", "shielded": "circle-open", "benchmark": "square"}
"""Of a point, by the kind of strategy."""


@dataclass(frozen=True, eq=False)
class Line:
    """A strategy of a run with its seeds, or one seed of it, under a name of its own."""

    group: Group
    tracks: dict[tuple[str, int | None], pd.DataFrame]
    """Rows of the equity table by that name and seed."""
    bootstrap: dict[str, Any] | None
    """How the run drew its intervals."""

    @property
    def rows(self) -> pd.DataFrame:
        """Of the seed that is shown."""
        return self.tracks[self.group.key]


def lines_of(run: Opened, letter: str, chosen: Sequence[str], every_seed: bool) -> list[Line]:
    """The chosen strategies of a run, which is called by a letter."""
    prefix = f"{letter} · " if letter else ""
    bootstrap = run.record.config["settings"]["bootstrap"]
    found = []
    for group in run.groups:
        if group.name not in chosen:
            continue
        single = every_seed and len(group.records) > 1
        for records in [(record,) for record in group.records] if single else [group.records]:
            name = prefix + group.name
            if single:
                # The seed before the name: who is shielded is known by the end of the name.
                name = f"{prefix}seed {records[0]['seed']} · {group.name}"
            tracks = {(name, record["seed"]): run.equity[group.name, record["seed"]] for record in records}
            found.append(Line(Group(name, group.kind, tuple(records)), tracks, bootstrap))
    return found


def common_span(lines: Sequence[Line]) -> tuple[Any, Any] | None:
    """First and last day that all lines have, where they do not have the same days anyway."""
    edges = [(line.rows["date"].iloc[0], line.rows["date"].iloc[-1]) for line in lines]
    first, last = max(edge[0] for edge in edges), min(edge[1] for edge in edges)
    if len(set(edges)) == 1 or first >= last:
        return None
    return first.date(), last.date()


def from_common_day(lines: Sequence[Line], days: tuple[Any, Any]) -> list[Line]:
    """The lines between two days, each starting at 1."""
    low, high = pd.Timestamp(days[0]), pd.Timestamp(days[1])
    cut = []
    for line in lines:
        tracks = {}
        for key, rows in line.tracks.items():
            inside = rows[rows["date"].between(low, high)]
            tracks[key] = inside.assign(wealth=inside["wealth"] / inside["wealth"].iloc[0])
        cut.append(replace(line, tracks=tracks))
    return cut


def results(lines: Sequence[Line]) -> str:
    """A row per line: its α and limit, its figures with their intervals, whether it kept the limit."""
    rows = []
    for line in lines:
        record = line.group.shown
        promise = record["promise"]
        cells = [f"<td>{share(promise['alpha'])}</td>", f"<td>{percent(promise['bound'])}</td>"]
        for field, _, written, with_interval in COLUMNS:
            interval = interval_of(record, field, written) if with_interval else ""
            spread = line.group.range(field) if field in ("final_wealth", "sharpe", "cvar_window") else None
            text = figure_of(record, field, written) + (f"<small>{interval}</small>" if interval else "")
            text += f"<small>seeds {span(*spread, written)}</small>" if spread else ""
            cells.append(f"<td>{text}</td>")
            if field == "cvar_window":
                cells.append(f"<td>{verdict(promise['kept'])}</td>")
        name = escape(line.group.name)
        days = f"<small>{escape(record['start'])} to {escape(record['end'])}</small>"
        rows.append(f"<tr data-row='{name}'><th scope='row'>{name}{days}</th>{''.join(cells)}</tr>")
    headings = ["Line", "α", "Limit", *(heading for _, heading, _, _ in COLUMNS)]
    headings.insert(headings.index("CVaR") + 1, "Kept")
    caption = (
        "CVaR is the mean of the worst fraction α of the returns over the run's own horizon. Small print: intervals by "
        "stationary block bootstrap of the days; with several seeds, the row is the middle one and “seeds” the range."
    )
    return table(caption, headings, rows)


def against(lines: Sequence[Line]) -> int:
    """Whom the others are compared with at first: 1/N, else another benchmark, else the last."""
    names = [line.group.name.rpartition(" · ")[2] for line in lines]
    kinds = [line.group.kind for line in lines]
    if "equal-weight" in names:
        return names.index("equal-weight")
    return kinds.index("benchmark") if "benchmark" in kinds else len(lines) - 1


def paired(one: pd.DataFrame, other: pd.DataFrame) -> tuple[Any, Any] | None:
    """Returns [D] of both over the sessions that both have; None where they are few or not the same sessions."""
    first, second = one.iloc[1:], other.iloc[1:]
    low = max(first["date"].iloc[0], second["date"].iloc[0])
    high = min(first["date"].iloc[-1], second["date"].iloc[-1])
    first, second = (rows[rows["date"].between(low, high)] for rows in (first, second))
    if len(first) < LEAST or not np.array_equal(first["date"].to_numpy(), second["date"].to_numpy()):
        return None
    return first["return"].to_numpy(), second["return"].to_numpy()


def differences(lines: Sequence[Line], rival: Line) -> str:
    """By how much each line grew faster than the rival, session by session."""
    rows = []
    for line in lines:
        if line is rival:
            continue
        name = escape(line.group.name)
        both = paired(line.rows, rival.rows)
        if both is None:
            cells = f"<td>{NONE}</td><td>no sessions in common</td><td>0</td>"
        else:
            bootstrap = None if line.bootstrap is None else Bootstrap.model_validate(line.bootstrap)
            found = growth_difference(*both, bootstrap)
            low, high = found["interval"] or (None, None)
            interval = "" if low is None or high is None else span(low, high, percent)
            cells = f"<td>{figure_of(found, 'growth', percent)}</td><td>{interval}</td><td>{len(both[0])}</td>"
        rows.append(f"<tr data-row='{name}'><th scope='row'>{name}</th>{cells}</tr>")
    caption = (
        f"Log growth a year in excess of {escape(rival.group.name)}, on the sessions that both have, resampled "
        "in pairs for the interval, so what moves both alike does not blur the difference. With several seeds: the "
        "middle ones."
    )
    return table(caption, ["Line", "Faster a year", "Interval", "Sessions"], rows)


def risk_and_return(lines: Sequence[Line]) -> Spec:
    """Growth a year over the realised CVaR, with their intervals."""
    styles = line_styles([line.group for line in lines])
    data: list[Spec] = []
    for line in lines:
        record, colour = line.group.shown, styles[line.group.name]["color"]
        if record["cvar_window"] is None or record["cagr"] is None:
            continue
        point: Spec = {
            "type": "scatter",
            "mode": "markers",
            "name": escape(line.group.name),
            "x": [record["cvar_window"]],
            "y": [record["cagr"]],
            "marker": {
                "size": 11,
                "color": colour,
                "symbol": SYMBOLS.get(line.group.kind, "circle"),
                "line": {"width": 2, "color": colour},
            },
            "hovertemplate": "%{fullData.name}<br>CVaR %{x:.1%}<br>growth %{y:.1%}<extra></extra>",
        }
        for side, field in (("x", "cvar_window"), ("y", "cagr")):
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
    bounds = sorted({line.group.shown["promise"]["bound"] for line in lines})
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
        "yaxis": axis | {"title": {"text": "growth a year"}},
        "shapes": shapes,
        "annotations": notes,
    }
    return {"data": data, "layout": layout}
