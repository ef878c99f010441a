"""The report of a backtest: one HTML file that needs nothing but itself.

In the order people read: headline figures against benchmarks with intervals, equity, drawdown, weights, what to hold
today, the law of the returns with promised and realised CVaR, the constraint in training, months, settings and data.
Everything is drawn from the record, so a report can be made again from a folder: `render(read_record(folder))`.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from portfolio_sdpo.backtest.record import (
    KEYS,
    Record,
    StrategyGroup,
    group_by_strategy,
    select_main,
    split_by_track,
)
from portfolio_sdpo.common.extras import require_extra
from portfolio_sdpo.report import figures
from portfolio_sdpo.report.page import page
from portfolio_sdpo.report.sections import (
    against,
    all_figures,
    cards,
    headline,
    lead,
    monthly,
    promises,
    provenance,
    remarks,
    shielding,
    subtitle,
    today,
    training,
)


def render(record: Record) -> str:
    """The page."""
    found = group_by_strategy(record.metrics)
    main = select_main(found)
    settings = record.config["settings"]
    horizon = int(settings["limit"]["horizon"])
    tracks, weights = split_by_track(record.equity), split_by_track(record.weights)
    traces = split_by_track(record.trace) if record.trace is not None else {}
    keys = {group.name: f"s{number}" for number, group in enumerate(found)}
    assets = [column for column in record.weights.columns if column not in KEYS]

    title = f"Backtest of {main.name}" if main.kind != "benchmark" else "Backtest of benchmark strategies"

    specs: dict[str, Any] = {
        "equity": figures.curves(tracks, found, "wealth", percent=False),
        "drawdown": figures.curves(tracks, found, "drawdown", percent=True),
        "weights": {},
        "distribution": {},
        "trace": {},
    }
    legends = []
    edges = figures.bin_edges(tracks, found, horizon)
    for group in found:
        key = keys[group.name]
        specs["weights"][key], areas = figures.weights(weights[group.key], assets)
        legends.append(_panel("weights", key, key == keys[main.name], _area_legend(areas)))
        if edges is not None:
            specs["distribution"][key] = figures.distribution(tracks[group.key], group.median["promise"], edges)
        if group.key in traces:
            specs["trace"][key] = figures.trace(traces[group.key])

    body = [
        f"<header><h1>{escape(title)}</h1><p class='sub'>{subtitle(record, found)}</p></header>",
        lead(found, main),
        cards(main, found),
        _section("Results", headline(found, record.config) + all_figures(found) + against(found) + shielding(found)),
        _section(
            "Wealth",
            _line_legend(found) + _figure("equity", "Wealth over time, starting at 1, after fees."),
            "<label><input type='checkbox' id='log'> logarithmic scale</label>",
        ),
        _section("Drawdown", _figure("drawdown", "Fall of wealth from its highest so far.")),
        _section(
            "Weights",
            "".join(legends) + _figure("weights", _weights_caption(found[0].median["sessions"] + 1)),
            _select("weights", found, keys, main),
        ),
        _section("Today’s weights", today(found)),
    ]
    if edges is not None:
        caption = (
            f"Returns over {horizon} sessions, every such period, overlapping; orange where a loss exceeds the limit. "
            "The limit binds the mean of the tail, not each period; the shaded band is the realised CVaR's interval."
        )
        figure = _figure("distribution", caption)
        body.append(
            _section("Promised and realised risk", figure + promises(found), _select("distribution", found, keys, main))
        )
    else:
        body.append(_section("Promised and realised risk", promises(found)))
    if specs["trace"]:
        traced = [group for group in found if keys[group.name] in specs["trace"]]
        caption = (
            "The constrained risk as the agent estimated it, in its own unit, by day of decision; the band spans the "
            "day's iterations, and a cross marks a day on which one of them was outside the bound."
        )
        table = training([(group, traces[group.key]) for group in traced])
        first = main if main in traced else traced[0]
        body.append(
            _section(
                "The constraint in training", _figure("trace", caption) + table, _select("trace", traced, keys, first)
            )
        )
    months = "".join(
        _panel("months", keys[group.name], group is main, monthly(tracks[group.key], group.name)) for group in found
    )
    body += [
        _section("Months", months, _select("months", found, keys, main)),
        _section("Remarks", remarks(record, found)),
        _section("Settings and data", provenance(record)),
    ]
    data = {"config": record.config, "metrics": record.metrics}
    drawn = {"specs": specs, "hidden": [escape(name) for name in figures.hidden_at_first(found)]}
    return page(title, "\n".join(body), drawn, data, _plotly_js())


def _section(title: str, content: str, control: str = "") -> str:
    return f"<section><div class='head'><h2>{escape(title)}</h2>{control}</div>{content}</section>"


def _figure(name: str, caption: str) -> str:
    label = escape(caption, quote=True)
    return (
        f"<figure><div class='plot' data-figure='{name}' role='img' aria-label='{label}'></div>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _weights_caption(days: int) -> str:
    step = figures.step_of(days)
    return "Weights after each day's trade, cash at the bottom" + (
        f"; one day in {step} is drawn." if step > 1 else "."
    )


def _select(part: str, found: Sequence[StrategyGroup], keys: dict[str, str], chosen: StrategyGroup) -> str:
    options = "".join(
        f"<option value='{keys[group.name]}'{' selected' if group is chosen else ''}>{escape(group.name)}</option>"
        for group in found
    )
    return f"<label>Strategy <select data-detail='{part}'>{options}</select></label>"


def _panel(part: str, key: str, shown: bool, content: str) -> str:
    return f"<div data-panel='{part}' data-key='{key}'{'' if shown else ' hidden'}>{content}</div>"


def _line_legend(found: Sequence[StrategyGroup]) -> str:
    """Buttons that show and hide the curves of wealth and drawdown."""
    styles, hidden = figures.line_styles(found), set(figures.hidden_at_first(found))
    items = []
    for group in found:
        style = styles[group.name]
        line = (
            f"<svg width='22' height='10' aria-hidden='true'><line x1='0' y1='5' x2='22' y2='5' "
            f"style='stroke:{style['color']}' stroke-width='{style['width'] + 0.4}' "
            f"stroke-dasharray='{figures.DASHARRAYS[style['dash']]}'/></svg>"
        )
        # The figures know the strategy by its escaped name, so the attribute is escaped twice.
        name = escape(escape(group.name))
        pressed = "false" if group.name in hidden else "true"
        items.append(
            f"<li><button type='button' data-strategy='{name}' aria-pressed='{pressed}'>{line}{escape(group.name)}"
            "</button></li>"
        )
    return f"<ul class='legend' aria-label='Show or hide strategies'>{''.join(items)}</ul>"


def _area_legend(areas: Sequence[tuple[str, int | None]]) -> str:
    items = []
    for position, (name, number) in enumerate(areas):
        if number is None:
            colour, hatched = ("var(--cash)" if position == 0 else "var(--muted)"), ""
        else:
            colour = figures.FILLS[number % len(figures.FILLS)]
            hatched = " hatched" if number >= len(figures.FILLS) else ""
        items.append(
            f"<li><span class='key'><span class='swatch{hatched}' style='background-color:{colour}'></span>"
            f"{escape(name)}</span></li>"
        )
    return f"<ul class='legend'>{''.join(items)}</ul>"


def _plotly_js() -> str:
    require_extra("A report", "plotly", "backtest")
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())
