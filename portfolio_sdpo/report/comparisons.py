"""How tracks compare, as HTML and sentences: at the same risk, against rivals, all at once, and year by year."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from portfolio_sdpo.backtest.promise import count_years
from portfolio_sdpo.backtest.record import Record, StrategyGroup, select_rival
from portfolio_sdpo.common.numbers import number, percent, span
from portfolio_sdpo.report.formats import NONE, table


def select_rivals(found: Sequence[StrategyGroup], main: StrategyGroup) -> list[StrategyGroup]:
    """What the main strategy is shown beside: behind the shield, 1/N and the strongest rival; else 1/N or another."""
    if not main.name.endswith(" + shield"):
        rival = select_rival(found, main)
        return [] if rival is None else [rival]
    equal = next((group for group in found if group.name == "equal-weight + shield"), None)
    rivals = [group for group in (equal, find_strongest_shielded(found)) if group is not None and group is not main]
    if not rivals:
        rival = select_rival(found, main)
        return [] if rival is None else [rival]
    return list({group.name: group for group in rivals}.values())


def find_index(found: Sequence[StrategyGroup], name: str) -> StrategyGroup | None:
    """What stands for the market, as far as beta goes: 1/N or else the first benchmark; None for itself."""
    plain = [group for group in found if group.kind == "benchmark" and not group.name.endswith(" + shield")]
    moving = [group for group in plain if group.name != "cash"]
    index = next((group for group in moving if group.name == "equal-weight"), moving[0] if moving else None)
    return None if index is None or index.name == name else index


def find_strongest_shielded(found: Sequence[StrategyGroup]) -> StrategyGroup | None:
    """Of the benchmarks behind the shield, the one that grew fastest at the same risk; None where there is none."""
    shielded = [group for group in found if group.kind == "benchmark" and group.name.endswith(" + shield")]
    return max(shielded, key=_same_risk_rank, default=None)


def _same_risk_rank(group: StrategyGroup) -> tuple[float, float]:
    """Growth at the same risk as the reference, which is 0 for itself, and then wealth."""
    record = group.median
    found = record.get("same_risk")
    growth = 0.0 if "same_risk" in record and found is None else (found or {}).get("growth")
    return (-math.inf if growth is None else growth), record["final_wealth"]


def describe_same_risk(record: dict[str, Any], title: str) -> str:
    """How much faster a track grew than the reference at the same risk, in a sentence without its full stop."""
    found = record.get("same_risk")
    if not found or found["growth"] is None:
        return ""
    low, high = found["interval"]
    interval = "" if low is None or high is None else f" {span(low, high, percent)}"
    rate = " a year" if found["span"] == "year" else " in all"
    faster = "more" if found["growth"] >= 0.0 else "less"
    return (
        f"At the same realised CVaR of {percent(found['cvar'])}, {title} grew {percent(abs(found['growth']))}{rate} "
        f"{faster} than {found['reference']}{interval}"
    )


def format_excess(record: dict[str, Any]) -> str:
    """The cell of the headline table: growth in excess of the reference's at the same risk, with its interval."""
    if "same_risk" in record and record["same_risk"] is None:
        return "reference"
    found = record.get("same_risk")
    if not found or found["growth"] is None:
        return NONE
    low, high = found["interval"]
    interval = "" if low is None or high is None else f"<small>{span(low, high, percent)}</small>"
    return f"{percent(found['growth'])}{interval}"


def render_rivals(found: Sequence[StrategyGroup]) -> str:
    """By how much agents grew faster than their rivals."""
    rows = []
    for group in found:
        for other, figures in group.median.get("against", {}).items():
            low, high = figures["interval"] or (None, None)
            interval = "" if low is None or high is None else span(low, high, percent)
            rows.append(
                f"<tr><th scope='row'>{escape(group.title)}</th><td>{escape(other)}</td>"
                f"<td>{NONE if figures['growth'] is None else percent(figures['growth'])}</td><td>{interval}</td></tr>"
            )
    if not rows:
        return ""
    caption = (
        "Log growth in excess of a rival's, a year or over a track that is shorter, whatever risk each took; sessions "
        "are resampled in pairs for the interval."
    )
    headings = ["Agent", "Rival", "Faster", "Interval"]
    return f"<details><summary>Against rivals</summary>{table(caption, headings, rows)}</details>"


def render_superiority(record: Record) -> str:
    """Whether the best of all is better than luck, folded away."""
    found = record.superiority
    if not found:
        return ""
    inside = found["confidence_set"]
    rows = [
        f"<tr><th scope='row'>{escape(name)}</th><td>{number(value, 3)}</td>"
        f"<td>{'may be the best' if name in inside else 'left out'}</td></tr>"
        for name, value in sorted(found["p_values"].items(), key=lambda item: -item[1])
    ]
    luck = "hardly luck" if found["spa"] < 0.05 else "possibly luck"
    caption = (
        f"{escape(found['best'])} grew fastest at the same risk as {escape(found['reference'])}. That the best of "
        f"{len(found['p_values'])} is better is {luck}: p = {number(found['spa'], 3)} (Hansen's SPA). Below, the model "
        f"confidence set: {len(inside)} of {len(found['p_values'])} may be the best one."
    )
    if found["left_out"]:
        caption += f" Not compared, being as good as cash or a copy: {escape(', '.join(found['left_out']))}."
    return f"<details><summary>Better than luck?</summary>{table(caption, ['Strategy', 'p-value', ''], rows)}</details>"


def render_years(found: Sequence[StrategyGroup]) -> str:
    """The realised CVaR of every calendar year, in which the promise is judged; empty for older records."""
    known = sorted({year for group in found for year in group.median.get("cvar_by_year", {})})
    if not known:
        return ""
    rows = []
    for group in found:
        record = group.median
        by_year, bound = record.get("cvar_by_year", {}), record["promise"]["bound"]
        counted = count_years(by_year, bound)
        cells = "".join(_year(by_year.get(year), bound) for year in known)
        broken = NONE if counted is None else f"{counted.broken} of {counted.years}"
        rows.append(f"<tr><th scope='row'>{escape(group.title)}</th><td>{broken}</td>{cells}</tr>")
    caption = (
        "Realised CVaR of each calendar year's own periods, in bold where it is beyond the limit. A year holds too few "
        "periods to test anything: this is what it came to."
    )
    return table(caption, ["Strategy", "Years broken", *known], rows)


def _year(cvar: float | None, bound: float) -> str:
    if cvar is None:
        return f"<td>{NONE}</td>"
    text = percent(cvar)
    return f"<td><strong class='bad'>{text}</strong></td>" if cvar < bound else f"<td>{text}</td>"
