"""What the champion has earned, as a sentence and a table."""

from __future__ import annotations

from portfolio_sdpo.common.numbers import number, percent, share
from portfolio_sdpo.portfolio.shield import CvarLimit
from portfolio_sdpo.report.formats import NONE, table

from ..data.earnings import Earnings, EarningsRow


def render_earnings(found: Earnings, limit: CvarLimit) -> str:
    """The distance to the limit, and the champion beside its rivals."""
    return f"<p>{describe_distance(found, limit)}</p>{_render_table(found, limit)}"


def describe_distance(found: Earnings, limit: CvarLimit) -> str:
    """How far the last period was from the limit.

    The limit is about the mean of the worst periods, so a single one beyond it breaks nothing yet.
    """
    if found.recent is None:
        return f"There is no whole period of {limit.horizon} sessions yet to compare with the limit."
    left = (found.recent - limit.bound) * 100
    value = f"<data value='{found.recent!r}' data-name='recent'>{percent(found.recent)}</data>"
    told = f"Over the last {limit.horizon} sessions the champion returned {value}"
    if left >= 0:
        return f"{told}; the limit of {percent(limit.bound)} is {number(left, 1)} points away."
    return (
        f"{told}, <strong class='bad'>{number(-left, 1)} points beyond the limit</strong> of {percent(limit.bound)}, "
        f"which the mean of the worst {share(limit.alpha)} of such periods has to keep."
    )


def _render_table(found: Earnings, limit: CvarLimit) -> str:
    what = "promotion" if found.promoted else "training"
    rows = [_render_row(each) for each in found.rows]
    unit = "a year" if found.span == "year" else "in all"
    caption = (
        f"Net of fees, decided day by day without knowing a later one, from {found.first} to {found.last}. "
        f"CVaR: mean of the worst {share(limit.alpha)} of {limit.horizon}-session periods of both spans. At the same "
        f"risk: log growth of the champion in excess of the rival's, {unit}, once both have the same CVaR; rivals are "
        "1/N and whichever other one is strongest, behind the same shield."
    )
    headings = ["", "Held-out days", f"Since {what}, {found.since}", "CVaR", "Champion ahead at the same risk"]
    return table(caption, headings, rows)


def _render_row(each: EarningsRow) -> str:
    figures = {"held-out": each.held_out, "since": each.since, "realised-cvar": each.cvar, "ahead": each.ahead}
    cells = "".join(f"<td>{_write(name, value)}</td>" for name, value in figures.items())
    return f"<tr data-earned='{each.name}'><th scope='row'>{each.name}</th>{cells}</tr>"


def _write(name: str, value: float | None) -> str:
    return NONE if value is None else f"<data value='{value!r}' data-name='{name}'>{percent(value)}</data>"
