"""A strategy through time: exposure, risk against the limit, drawdowns, years, crises, trading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from portfolio_sdpo.backtest.record import StrategyGroup
from portfolio_sdpo.common.numbers import percent, share, times
from portfolio_sdpo.portfolio.market import CASH
from portfolio_sdpo.prices.frequency import name_session
from portfolio_sdpo.report.figures import Tracks, find_step, make_days, make_layout, round_figures
from portfolio_sdpo.report.formats import NONE, table
from portfolio_sdpo.report.looks import Spec, line_styles
from portfolio_sdpo.report.periods import find_drawdowns, list_stress, list_years, roll_periods

_STOCKS, _SHIELD, _LOSS = "#0072B2", "#E69F00", "#D55E00"

EXPOSURE_CAPTION = "Share of wealth in stocks after each day's trade"
CUT = 0.05
"""A fall of the shield's factor that is marked."""
SHIELD_CAPTION = (
    "; the line is the share of the stocks that the strategy asked for which the shield lets through, and a triangle "
    f"marks a day on which that fell by {CUT * 100:g} points or more."
)
CVAR_CAPTION = "Realised CVaR of each calendar year against the limit; hatched without the shield."
BAR_DAYS = 22
"""Width of a month's bar."""
TRADING_CAPTION = "Top: what was traded in each month, over wealth. Bottom: fees paid so far, over wealth."


def draw_exposure(weights: pd.DataFrame, shield: pd.DataFrame | None) -> Spec:
    """The share of wealth in stocks; where there is a shield, its factor and the days on which it cut."""
    thinned = weights.iloc[:: find_step(len(weights))]
    data: list[Spec] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "in stocks",
            "x": make_days(thinned),
            "y": round_figures(1.0 - thinned[CASH].to_numpy(), 4),
            "fill": "tozeroy",
            "fillcolor": "rgba(0,114,178,0.25)",
            "line": {"width": 1.2, "color": _STOCKS, "shape": "hv"},
            "hovertemplate": "%{fullData.name}  %{y:.1%}<extra></extra>",
        }
    ]
    if shield is not None and len(shield):
        reviews = shield.iloc[:: find_step(len(shield))]
        cuts = find_cuts(shield)
        data += [
            {
                "type": "scatter",
                "mode": "lines",
                "name": "let through by the shield",
                "x": make_days(reviews),
                "y": round_figures(reviews["kappa"].to_numpy(), 4),
                "line": {"width": 1.6, "color": _SHIELD, "shape": "hv"},
                "hovertemplate": "%{fullData.name}  %{y:.1%}<extra></extra>",
            },
            {
                "type": "scatter",
                "mode": "markers",
                "name": "cut by the shield",
                "x": make_days(cuts),
                "y": round_figures(cuts["kappa"].to_numpy(), 4),
                "marker": {"symbol": "triangle-down", "size": 8, "color": _LOSS},
                "hovertemplate": "%{fullData.name} to %{y:.1%}<extra></extra>",
            },
        ]
    layout = make_layout(260, {"tickformat": ".0%", "range": [-0.04, 1.04]}, hovermode="x unified")
    layout["xaxis"] |= {"range": [data[0]["x"][0], data[0]["x"][-1]]}  # markers would add room at both ends
    return {"data": data, "layout": layout}


def find_cuts(shield: pd.DataFrame) -> pd.DataFrame:
    """The reviews at which the shield let through less than at the one before, by at least `CUT`."""
    factor = shield["kappa"].to_numpy()
    return shield[np.diff(factor, prepend=factor[:1]) <= -CUT]


def draw_rolling_risk(rows: pd.DataFrame, record: Mapping[str, Any]) -> Spec | None:
    """Returns of every period of the limit's horizon, and the CVaR of the last year of them, against the limit."""
    promise = record["promise"]
    rolled = roll_periods(rows, promise, record.get("sessions_per_year"))
    if rolled.empty:
        return None
    shown = rolled.iloc[:: find_step(len(rolled))]
    unit = name_session(record.get("sessions_per_year"))
    line: Spec = {"type": "scatter", "mode": "lines", "x": make_days(shown)}
    value = "%{fullData.name}  %{y:.1%}<extra></extra>"
    data = [
        line
        | {
            "name": f"return of {promise['horizon']} {unit}s",
            "y": round_figures(shown["period"].to_numpy(), 5),
            "line": {"width": 1.2, "color": _STOCKS},
            "hovertemplate": value,
        }
    ]
    if shown["cvar"].notna().any():
        data.append(
            line
            | {
                "name": "CVaR of the last year of them",
                "y": round_figures(shown["cvar"].to_numpy(), 5),
                "line": {"width": 2.2, "color": _LOSS},
                "hovertemplate": value,
            }
        )
    bound = float(promise["bound"])
    x = [data[0]["x"][0], data[0]["x"][-1]]
    data.append(
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"limit {percent(bound)}",
            "x": x,
            "y": [bound, bound],
            "line": {"color": "var(--ink)", "width": 1.5, "dash": "dash"},
            "hoverinfo": "skip",
        }
    )
    return {"data": data, "layout": make_layout(280, {"tickformat": ".0%"}, hovermode="x unified")}


def draw_cvar_by_year(found: Sequence[StrategyGroup]) -> Spec | None:
    """Realised CVaR of every calendar year against the limit, a bar for each strategy."""
    measured = [group for group in found if group.median.get("cvar_by_year")]
    known = sorted(
        {year for group in measured for year, cvar in group.median["cvar_by_year"].items() if cvar is not None}
    )
    if not known:
        return None
    styles = line_styles(found)
    data: list[Spec] = [
        {
            "type": "bar",
            "name": escape(group.title),
            "x": known,
            "y": round_figures([_or_nan(group.median["cvar_by_year"].get(year)) for year in known], 5),
            "marker": {"color": styles[group.name]["color"]}
            | ({"pattern": {"shape": "/", "solidity": 0.3}} if not group.name.endswith(" + shield") else {}),
            "hovertemplate": "%{fullData.name}  %{y:.1%}<extra></extra>",
        }
        for group in measured
    ]
    bound = float(found[0].median["promise"]["bound"])
    layout = make_layout(280, {"tickformat": ".0%"}, hovermode="x unified")
    layout["xaxis"] |= {"type": "category"}
    line = {"color": "var(--ink)", "width": 1.5, "dash": "dash"}
    limit = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": bound, "y1": bound, "line": line}
    return {"data": data, "layout": layout | {"barmode": "group", "bargap": 0.25, "shapes": [limit]}}


def draw_trading(rows: pd.DataFrame) -> Spec:
    """What was traded in each month, and the fees paid so far."""
    months = rows.set_index("date")["turnover"].resample("MS").sum()
    paid = (rows["cost"] / rows["wealth"]).cumsum()
    thinned = rows.assign(paid=paid).iloc[:: find_step(len(rows))]
    data: list[Spec] = [
        {
            "type": "bar",
            "name": "traded in the month",
            "x": [str(day.date()) for day in months.index],
            "y": round_figures(months.to_numpy(), 4),
            "width": BAR_DAYS * 24 * 3600 * 1000,  # plotly would make a single month a millisecond wide
            "marker": {"color": _STOCKS},
            "hovertemplate": "%{fullData.name}  %{y:.2f} ×<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "fees paid so far",
            "x": make_days(thinned),
            "y": round_figures(thinned["paid"].to_numpy(), 6),
            "yaxis": "y2",
            "line": {"color": _LOSS, "width": 1.8},
            "hovertemplate": "%{fullData.name}  %{y:.2%}<extra></extra>",
        },
    ]
    layout = make_layout(320, {"tickformat": ".2~f", "domain": [0.5, 1.0], "rangemode": "tozero"}, hovermode="x")
    layout["yaxis2"] = layout["yaxis"] | {"tickformat": ".2~%", "domain": [0.0, 0.42]}
    layout["xaxis"] |= {"anchor": "y2"}
    return {"data": data, "layout": layout}


def render_drawdowns(rows: pd.DataFrame, title: str, unit: str, *, buttons: bool = False) -> str:
    """The deepest drawdowns with their dates; with buttons, which the report's script knows, that show their days."""
    last = rows["date"].iloc[-1].date()
    cells = []
    for number_, each in enumerate(find_drawdowns(rows), 1):
        first = str(number_)
        if buttons:
            days = f"data-from='{each.peak}' data-to='{each.recovered or last}'"
            first = f"<button type='button' class='zoom' {days} aria-pressed='false'>show {number_}</button>"
        cells.append(
            f"<tr><th scope='row'>{first}</th><td>{percent(each.depth)}</td><td>{each.peak}</td><td>{each.trough}</td>"
            f"<td>{each.recovered or 'not yet'}</td><td>{each.sessions}</td></tr>"
        )
    if not cells:
        return "<p>Wealth never fell.</p>"
    headings = ["", "Depth", "Peak", "Trough", "Recovered", f"{unit.capitalize()}s"]
    caption = f"{escape(title)}: the deepest falls of wealth below its highest so far."
    return table(caption + (" A button shows its days in every figure." if buttons else ""), headings, cells)


def render_year_table(
    rows: pd.DataFrame,
    weights: pd.DataFrame | None,
    record: Mapping[str, Any],
    title: str,
    rival: tuple[str, pd.DataFrame] | None,
) -> str:
    """Calendar years: return beside the rival's, exposure, CVaR, turnover, cost."""
    other = {} if rival is None else {each.year: each.growth for each in list_years(rival[1], None)}
    bound, by_year = record["promise"]["bound"], record.get("cvar_by_year", {})
    lines = []
    for each in list_years(rows, weights):
        cells = [percent(each.growth)]
        if rival is not None:
            beside = other.get(each.year)
            cells += [NONE, NONE] if beside is None else [percent(beside), percent(each.growth - beside)]
        cvar = by_year.get(str(each.year))
        written = NONE if cvar is None else percent(cvar)
        cells.append(f"<strong class='bad'>{written}</strong>" if cvar is not None and cvar < bound else written)
        if weights is not None:
            cells += [percent(each.invested, 0), times(each.turnover), percent(each.cost, 2)]
        lines.append(f"<tr><th scope='row'>{each.year}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    headings = ["Year", "Return"]
    if rival is not None:
        headings += [f"{escape(rival[0])}", "Difference"]
    headings += ["CVaR", *([] if weights is None else ["In stocks, mean", "Turnover", "Cost"])]
    caption = (
        f"{escape(title)} by calendar year, net of fees; the first and the last may be part of a year. CVaR in bold "
        "where it is beyond the limit."
    )
    return table(caption, headings, lines)


def render_months(rows: pd.DataFrame, name: str) -> str:
    """Returns by year and month, net of fees."""
    wealth = rows.set_index("date")["wealth"]
    months = wealth.groupby([wealth.index.year, wealth.index.month]).last()
    returns = months / months.shift(1, fill_value=wealth.iloc[0]) - 1.0
    ends = wealth.groupby(wealth.index.year).last()
    years = ends / ends.shift(1, fill_value=wealth.iloc[0]) - 1.0
    names = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    lines = []
    for year, total in years.items():
        cells = "".join(_month(returns.get((year, month))) for month in range(1, 13))
        lines.append(f"<tr><th scope='row'>{year}</th>{cells}<td><strong>{percent(float(total))}</strong></td></tr>")
    caption = f"{escape(name)}: returns by month, net of fees; the first and the last may be part of a month."
    return table(caption, ["Year", *names, "Total"], lines, "monthly")


def render_stress_table(found: Sequence[StrategyGroup], tracks: Tracks, horizon: int) -> str:
    """Every strategy in the known falls of the market that its track contains; nothing where there is none."""
    by_group = {group.name: list_stress(tracks[group.key], horizon) for group in found}
    names = list(dict.fromkeys(name for each in by_group.values() for name in each))
    if not names:
        return ""
    lines = []
    for group in found:
        cells = []
        for name in names:
            each = by_group[group.name].get(name)
            worst = "" if each is None or each.worst is None else f"<small>worst period {percent(each.worst)}</small>"
            cells.append(f"<td>{NONE if each is None else percent(each.growth)}{worst}</td>")
        lines.append(f"<tr><th scope='row'>{escape(group.title)}</th>{''.join(cells)}</tr>")
    caption = (
        f"Return from the peak of the US market to its trough, and the worst {horizon}-session period inside. The days "
        "are those of the market, known only afterwards."
    )
    return table(caption, ["Strategy", *names], lines)


def describe_risk(record: Mapping[str, Any]) -> str:
    """What stands below `draw_rolling_risk`."""
    promise = record["promise"]
    return (
        f"Return of every period, by the day of its end. The limit is about the mean of the worst "
        f"{share(promise['alpha'])} of them, the CVaR; once there is a year of periods, the thick line is that of the "
        "last year."
    )


def describe_exposure(shield: pd.DataFrame | None) -> str:
    """What stands below `draw_exposure`."""
    return EXPOSURE_CAPTION + ("." if shield is None or not len(shield) else SHIELD_CAPTION)


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value


def _month(value: float | None) -> str:
    if value is None:
        return "<td></td>"
    strength = min(abs(value) / 0.1, 1.0) * 0.45
    colour = f"rgba(var(--{'up' if value > 0 else 'down'}),{strength:.2f})"
    return f"<td style='background:{colour}'>{percent(float(value))}</td>"
