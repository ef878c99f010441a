"""The words and tables of a report, as HTML. Whatever is not written here is escaped.

Every figure stands in a `<data value=...>` with its full precision, so that what is shown can be checked against
`metrics.json`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd

from portfolio_sdpo.backtest.intervals import LEAST_PERIODS
from portfolio_sdpo.backtest.record import Record, StrategyGroup
from portfolio_sdpo.common.numbers import Format, number, percent, share, span, times
from portfolio_sdpo.prices.frequency import describe_sessions, name_session
from portfolio_sdpo.report.comparisons import describe_same_risk, format_excess, select_rivals
from portfolio_sdpo.report.formats import NONE, judge_promise, table, verdict

NOTES_SHOWN = 20
WHOLE = "in all, below a year"
"""What the growth of a short track is about, which has no yearly rate."""


COLUMNS: tuple[tuple[str, str, Format, bool], ...] = (
    ("final_wealth", "Final wealth", times, True),
    ("cagr", "Growth a year", percent, True),
    ("volatility", "Volatility a year", percent, False),
    ("sharpe", "Sharpe", number, True),
    ("max_drawdown", "Max drawdown", percent, True),
    ("cvar_window", "CVaR", percent, True),
    ("turnover", "Turnover a year", lambda value: times(value, 1), False),
    ("cost", "Cost paid", lambda value: percent(value, 2), False),
)
"""Of the headline table: field of a record, heading, how it is written, whether with its interval."""

OVER_SEEDS = ("final_wealth", "sharpe", "cvar_window")
"""Those that are shown with their range over seeds."""

MORE: tuple[tuple[str, str, Format], ...] = (
    ("sortino", "Sortino", number),
    ("calmar", "Calmar", number),
    ("max_drawdown_sessions", "Sessions of the drawdown", lambda value: number(value, 0)),
    ("var", "VaR of a session", lambda value: percent(value, 2)),
    ("cvar", "CVaR of a session", lambda value: percent(value, 2)),
    ("var_window", "VaR of a period", percent),
    ("hit_rate", "Sessions that gained", percent),
    ("probabilistic_sharpe", "Probabilistic Sharpe", lambda value: percent(value, 0)),
    ("deflated_sharpe", "Deflated Sharpe", lambda value: percent(value, 0)),
)


def render_subtitle(record: Record, found: Sequence[StrategyGroup]) -> str:
    """What was traded, when and at which cost."""
    settings, shown = record.config["settings"], found[0].median
    sessions = describe_sessions(shown["sessions"], shown.get("sessions_per_year"))
    if "returns" in record.config:
        return f"{escape(shown['start'])} to {escape(shown['end'])} · {sessions} · {escape(record.config['returns'])}"
    stocks = len(record.config["data"]["tickers"])
    cash = settings["cash"]
    earned = {"zero": "nothing", "tbill": "the 13-week Treasury bill"}.get(cash) or f"{percent(cash, 2)} a year"
    traded = "at the next close" if settings.get("execution") == "next-close" else "at the close of the decision"
    return (
        f"{escape(shown['start'])} to {escape(shown['end'])} · "
        f"{sessions} · {stocks} "
        f"stock{'s' * (stocks != 1)} and cash · traded {traded} · fee {settings['fee_bps']:g} bps · cash earns {earned}"
    )


def render_lead(found: Sequence[StrategyGroup], main: StrategyGroup) -> str:
    """The result in two sentences."""
    shown = main.median
    text = f"<strong>{escape(main.title)}</strong> turned 1 into {number(shown['final_wealth'])}"
    if len(main.records) > 1:
        text += f" (the middle one of {len(main.records)} seeds)"
    for rival in select_rivals(found, main):
        text += f"; {escape(rival.title)} into {number(rival.median['final_wealth'])}"
    promise = shown["promise"]
    if promise["realised"] is not None:
        kept, unit = judge_promise(promise), name_session(shown.get("sessions_per_year"))
        fate = {True: "kept", False: "broken", None: "not tested on so few periods"}[kept]
        text += (
            f". Its worst {share(promise['alpha'])} of {promise['horizon']}-{unit} periods returned "
            f"{percent(promise['realised'])} on average, where the limit is {percent(promise['bound'])}: "
            f"<strong class='{ {True: 'good', False: 'bad', None: 'open'}[kept] }'>{fate}</strong>"
        )
    compared = describe_same_risk(shown, main.title)
    text += f". {escape(compared)}" if compared else ""
    return f"<p class='lead'>{text}.</p>"


def render_cards(main: StrategyGroup, found: Sequence[StrategyGroup]) -> str:
    """The main strategy's figures, large, with those of its rivals."""
    rivals = select_rivals(found, main)
    items = []
    for field, heading, written, _ in COLUMNS[:2] + COLUMNS[3:6]:
        if field == "cvar_window":
            heading = f"CVaR of {describe_periods(main.median)}"
        if _shown_field(main.median, field) != field:
            heading = f"Growth {WHOLE}"
        more = format_interval(main.median, field, written)
        for rival in rivals:
            value = rival.median[_shown_field(rival.median, field)]
            told = NONE if value is None else written(value)
            more += f"<span class='rival'><span>{escape(rival.title)}</span> <span>{told}</span></span>"
        figure = format_figure(main.median, field, written, label=False)
        items.append(
            f"<div class='card'><dt>{heading}</dt><dd><span class='figure'>{figure}</span><br>"
            f"<span class='more'>{more}</span></dd></div>"
        )
    return f"<dl class='cards'>{''.join(items)}</dl>"


def render_headline(found: Sequence[StrategyGroup], config: dict[str, Any]) -> str:
    """One row per strategy with its intervals, and whether it kept the limit."""
    limit, bootstrap = config["settings"]["limit"], config["settings"]["bootstrap"]
    caption = (
        f"CVaR is the mean of the worst {share(limit['alpha'])} of the returns over "
        f"{describe_periods(found[0].median)}; the limit is {percent(limit['bound'])}, and it is tested on "
        f"{LEAST_PERIODS} periods that do not overlap, or more. At the same risk: log growth in excess of the "
        "reference's, after the riskier of the two was mixed with cash until both had the same realised CVaR."
    )
    if bootstrap:
        level = percent(bootstrap["level"], 0)
        caption += (
            f" Small print: {level} interval, stationary block bootstrap; of the CVaR, from simulated markets whose "
            "volatility clusters as the track's does."
        )
    if any(len(group.records) > 1 for group in found):
        caption += " With several seeds, the row is the seed in the middle by final wealth, and “seeds” is the range."
    headings = [heading for _, heading, _, _ in COLUMNS]
    place = headings.index("CVaR")
    headings[place : place + 1] = [
        f"CVaR of {describe_periods(found[0].median)}",
        f"Within {percent(limit['bound'])}",
        "At the same risk",
    ]
    rows = []
    for group in found:
        cells = []
        for field, _, written, with_interval in COLUMNS:
            cell = format_figure(group.median, field, written)
            interval = format_interval(group.median, field, written) if with_interval else ""
            cell += f"<small>{interval}</small>" if interval else ""
            spread = group.range(field)
            cell += f"<small>seeds {span(*spread, written)}</small>" if spread and field in OVER_SEEDS else ""
            cells.append(f"<td>{cell}</td>")
            if field == "cvar_window":
                cells.append(f"<td>{verdict(group.median['promise'])}</td><td>{format_excess(group.median)}</td>")
        seeds = f"<small>{len(group.records)} seeds</small>" if len(group.records) > 1 else ""
        rows.append(f"<tr{_row(group, found)}><th scope='row'>{escape(group.title)}{seeds}</th>{''.join(cells)}</tr>")
    return table(caption, ["Strategy", *headings], rows)


def render_all_figures(found: Sequence[StrategyGroup]) -> str:
    """The other figures of every strategy and seed, folded away."""
    several = any(len(group.records) > 1 for group in found)
    columns = (*((COLUMNS[0][:3], COLUMNS[5][:3]) if several else ()), *MORE)
    headings = ["Strategy", *(["Seed"] if several else []), *(heading for _, heading, _ in columns)]
    rows = []
    for group in found:
        for record in group.records:
            cells = "".join(f"<td>{format_figure(record, field, written)}</td>" for field, _, written in columns)
            seed = f"<td>{NONE if record['seed'] is None else record['seed']}</td>" if several else ""
            rows.append(
                f"<tr data-row='{escape(group.name)}'><th scope='row'>{escape(group.title)}</th>{seed}{cells}</tr>"
            )
    caption = (
        "The probabilistic Sharpe ratio is the probability that the true one is above 0; the deflated one, that it is "
        "above the best of as many worthless strategies as were tried here."
    )
    return f"<details><summary>More figures</summary>{table(caption, headings, rows)}</details>"


def render_shielding(found: Sequence[StrategyGroup]) -> str:
    """What the shield did, where it was on."""
    rows = []
    for group in found:
        done = group.median["shield"]
        if done:
            rows.append(
                f"<tr><th scope='row'>{escape(group.title)}</th>"
                f"<td>{done['scaled']} of {done.get('looks', done['decisions'])}</td>"
                f"<td>{NONE if done['mean_kappa'] is None else percent(done['mean_kappa'])}</td>"
                f"<td>{percent(done['lowest_kappa'])}</td><td>{done.get('removed', NONE)}</td>"
                f"<td>{done['unmet']}</td></tr>"
            )
    if not rows:
        return ""
    headings = [
        "Shield",
        "Reviews that scaled",
        "Share of stocks kept, mean",
        "Share of stocks kept, lowest",
        "Reviews that removed a stock",
        "Limit out of reach",
    ]
    caption = (
        "The shield scales stocks towards cash so that the limit holds, and removes those with too little history to "
        "tell; the agent's own decisions are those of the row without it."
    )
    return f"<details open><summary>The shield</summary>{table(caption, headings, rows)}</details>"


def render_today(found: Sequence[StrategyGroup]) -> str:
    """What every strategy would hold from the last close on."""
    asked = [group for group in found if group.median.get("next")]
    if not asked:
        return "<p>Not recorded: an earlier version made this backtest; run it again.</p>"
    rows = []
    for group in asked:
        weights = group.median["next"]["weights"]
        ordered = sorted(weights.items(), key=lambda item: -item[1])
        text = ", ".join(f"{escape(asset)}&nbsp;{percent(weight)}" for asset, weight in ordered if weight >= 0.0005)
        rows.append(
            f"<tr{_row(group, found)}><th scope='row'>{escape(group.title)}</th><td class='words'>{text}</td></tr>"
        )
    as_of = escape(asked[0].median["next"]["as_of"])
    late = asked[0].median["next"].get("execution") == "next-close"
    trade = "to be traded at the next close" if late else "to be traded at that very close"
    caption = f"Decided at the close of {as_of}, the last one here, and {trade}; nothing above knows what comes of it."
    return table(caption, ["Strategy", "To be held from then on"], rows)


def describe_periods(record: dict[str, Any]) -> str:
    """The length of a period, in the words of the prices: 15 sessions, 15 weeks."""
    return describe_sessions(record["horizon"], record.get("sessions_per_year"))


def render_promises(found: Sequence[StrategyGroup]) -> str:
    """Promised against realised CVaR with the tests of coverage."""
    headings = ("Strategy", "Limit", "Realised CVaR", "Kept", "p-value", "Periods below the limit", "p-value of these")
    rows = []
    for group in found:
        promise = group.median["promise"]
        realised = promise["realised"]
        cell = (
            NONE if realised is None else f"<data value='{realised!r}' data-name='realised'>{percent(realised)}</data>"
        )
        low, high = promise["interval"]
        cell += "" if low is None else f"<small>{span(low, high, percent)}</small>"
        rows.append(
            f"<tr{_row(group, found)}><th scope='row'>{escape(group.title)}</th><td>{percent(promise['bound'])}</td>"
            f"<td>{cell}</td><td>{verdict(promise)}</td><td>{_p(promise['p_value'])}</td>"
            f"<td>{promise['breaches']} of {promise['windows']}</td><td>{_p(promise['breach_p_value'])}</td></tr>"
        )
    caption = (
        "A small p-value speaks against the promise; a large one does not prove it. The first tests the CVaR itself, "
        f"on {LEAST_PERIODS} periods that do not overlap or more, the second counts how many of these are below the "
        "limit."
    )
    return table(caption, headings, rows)


def render_training(traced: Sequence[tuple[StrategyGroup, pd.DataFrame]]) -> str:
    """How often training was inside, near and outside the bound."""
    headings = ("Agent", "Iterations", "Inside", "In the margin", "Outside", "Lowest slack")
    rows = []
    for group, trace in traced:
        shares = [float((trace["regime"] == regime).mean()) for regime in ("interior", "margin", "violated")]
        if not any(shares):  # it has no constraint, and so no margin
            outside = float((trace["slack"] <= 0).mean())
            shares = [1.0 - outside, 0.0, outside]
        lowest = trace["slack"].min()
        rows.append(
            f"<tr><th scope='row'>{escape(group.title)}</th><td>{len(trace)}</td>"
            f"{''.join(f'<td>{percent(part)}</td>' for part in shares)}"
            f"<td>{NONE if pd.isna(lowest) else number(float(lowest), 4)}</td></tr>"
        )
    return table(
        "Share of training iterations by where the estimate stood; slack is positive inside the bound.", headings, rows
    )


def render_remarks(record: Record, found: Sequence[StrategyGroup]) -> str:
    """What a reader should hold against the figures."""
    late = record.config["settings"].get("execution") == "next-close"
    chance = "One past is one sample: intervals tell how much these figures could have differed by chance."
    general = [
        "Decisions use prices up to a close and are traded at the next one."
        if late
        else "Decisions use prices up to a close and are traded at that very close, which no real order gets exactly.",
        "Fees are paid on what is traded, from the weights as they have drifted; taxes and market impact are left out.",
        chance,
    ]
    if "returns" in record.config:
        general = [
            "Returns are taken as given, net or gross of fees; what was held is not known.",
            chance,
        ]
    items = [f"<li>{text}</li>" for text in general]
    items += [f"<li>Data: {escape(note)}</li>" for note in record.config["data"]["notes"][:NOTES_SHOWN]]
    for group in found:
        notes = group.median["notes"]
        items += [f"<li>{escape(group.title)}, {escape(note)}</li>" for note in notes[:NOTES_SHOWN]]
        if len(notes) > NOTES_SHOWN:
            items.append(
                f"<li>{escape(group.title)}: {len(notes) - NOTES_SHOWN} more in <code>metrics.json</code>.</li>"
            )
    return f"<ul class='notes'>{''.join(items)}</ul>"


def render_provenance(record: Record) -> str:
    """Settings, prices with their hash, version."""
    config = record.config
    data = config["data"]
    facts = {
        "Report" if "returns" in config else "Backtest": config["id"],
        "Made": f"{config['created_at']} with portfolio_sdpo {config['package_version']}",
        "Prices": f"{data['snapshot'] or data['source']}, {data['first']} to {data['last']}, "
        f"{data['sessions']} sessions, adjustment {data.get('adjustment', 'not known')}",
        "Tickers": ", ".join(data["tickers"]),
    }
    if "survivorship" in data:
        facts["Universe"] = data["survivorship"]
    for key, what in (("sha256", "the prices"), ("cash_sha256", "the cash rate")):
        if key in data:
            facts[f"sha256 of {what}"] = data[key]
    items = "".join(f"<dt>{key}</dt><dd>{_hash(key, value)}</dd>" for key, value in facts.items())
    settings = {"settings": config["settings"], "strategies": config["strategies"]}
    text = escape(json.dumps(settings, indent=2, ensure_ascii=False))
    return f"<dl class='facts'>{items}</dl><details><summary>All settings</summary><pre>{text}</pre></details>"


def _hash(key: str, value: str) -> str:
    return f"<code>{escape(value)}</code>" if key.startswith("sha256") else escape(value)


def _row(group: StrategyGroup, found: Sequence[StrategyGroup]) -> str:
    """Attributes of a strategy's row; the first benchmark below agents is set off."""
    benchmarks = [each for each in found if each.kind == "benchmark"]
    names = []
    if group.kind != "benchmark":
        names.append("agent")
    elif group is benchmarks[0] and len(benchmarks) < len(found):
        names.append("first-benchmark")
    styled = f" class='{' '.join(names)}'" if names else ""
    return f"{styled} data-row='{escape(group.name)}'"


def format_figure(record: dict[str, Any], field: str, written: Format, *, label: bool = True) -> str:
    """A figure of a record, with its full precision beside it; "–" where a record, or an older one, has none.

    label: say so where it stands in the place of another figure.
    """
    shown = _shown_field(record, field)
    value = record.get(shown)
    if value is None:
        return NONE
    told = f"<small>{WHOLE}</small>" if label and shown != field else ""
    return f"<data value='{value!r}' data-name='{shown}'>{written(value)}</data>{told}"


def format_interval(record: dict[str, Any], field: str, written: Format) -> str:
    """Its interval, or nothing."""
    low, high = record["intervals"].get(_shown_field(record, field), (None, None))
    return "" if low is None or high is None else span(low, high, written)


def _shown_field(record: dict[str, Any], field: str) -> str:
    """The figure that is shown as `field`: of a track below a year, its whole return in the place of an annual rate."""
    whole = field == "cagr" and record["cagr"] is None and record.get("total_return") is not None
    return "total_return" if whole else field


def _p(value: float | None) -> str:
    if value is None:
        return NONE
    return "&lt;&nbsp;0.001" if value < 0.001 else number(value, 3)
