"""*Backtest*: wealth, drawdowns and weights of strategies, and whether they kept the promise on risk.

All figures come from `metrics.json` and the tables of the backtest, and are drawn by the functions of the report.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import streamlit as st

from portfolio_sdpo.common.numbers import percent
from portfolio_sdpo.prices.frequency import name_session
from portfolio_sdpo.report import figures, rolling, through_time
from portfolio_sdpo.report.comparisons import (
    find_index,
    render_rivals,
    render_superiority,
    render_years,
    select_rivals,
)
from portfolio_sdpo.report.contributions import describe_contributions, draw_contributions, find_contributions
from portfolio_sdpo.report.looks import hidden_at_first
from portfolio_sdpo.report.periods import find_drawdowns
from portfolio_sdpo.report.sections import (
    describe_periods,
    render_all_figures,
    render_headline,
    render_promises,
    render_provenance,
    render_remarks,
    render_shielding,
    render_today,
)

from ..data.backtests import OpenBacktest, open_backtest
from ..widgets.address import LOG, choose_days, choose_switch, read_choices, write_choice
from ..widgets.curves import CURVES, CURVES_ALT, draw_wealth_and_drawdown, list_usual, render_summary
from ..widgets.downloads import offer_downloads
from ..widgets.figures import show_figure
from ..widgets.pickers import choose_backtest, choose_track, list_readable_backtests
from ..widgets.sample import offer_sample
from ..widgets.style import show_html

if TYPE_CHECKING:
    import pandas as pd

SHOWN = "show"
"""The query parameter with the strategies whose curves are drawn."""


def render() -> None:
    """The page."""
    st.title("Backtest")
    found = list_readable_backtests()
    if not found:
        offer_sample("There is no backtest yet.")
        return
    run = open_backtest(choose_backtest(found))
    record, groups = run.record, run.groups
    show_html(render_summary(run))
    days = _curves(run)
    st.subheader("Results")
    show_html(render_headline(groups, record.config))
    show_html(
        render_all_figures(groups) + render_rivals(groups) + render_superiority(record) + render_shielding(groups)
    )
    _track(run, days)
    _promises(run)
    with st.expander("Weights to hold after the last close"):
        show_html(render_today(groups))
    with st.expander("Limitations of these figures"):
        show_html(render_remarks(record, groups))
    with st.expander("Settings and data"):
        show_html(render_provenance(record))
    st.subheader("Download")
    offer_downloads(run)


def _curves(run: OpenBacktest) -> tuple[date, date]:
    """Wealth and drawdown of the chosen strategies; the days that figures over days show."""
    heading, middle, choice, switch = st.columns([6, 4, 2, 2], vertical_alignment="bottom")
    heading.subheader(CURVES)
    rows = run.equity[run.main.key]["date"]
    days = choose_days(middle, rows.iloc[0].date(), rows.iloc[-1].date(), _days_key(run))
    titles, usual = {group.name: group.title for group in run.groups}, list_usual(run)
    with choice.popover("Strategies", width="stretch"):
        names = st.multiselect(
            "Strategies in this figure",
            list(titles),
            default=read_choices(SHOWN, list(titles), usual),
            format_func=lambda name: titles[name],
            key=f"shown-{run.backtest.id}",
        )
    write_choice(SHOWN, names, usual)
    log = choose_switch(switch, "Logarithmic", LOG)
    drawn = draw_wealth_and_drawdown(run, names)
    show_figure(drawn, "equity", CURVES_ALT, legend=True, log=log, sketched=True, days=days)
    st.caption(
        "Top: wealth after fees, starting at 1. Bottom: drawdown from the highest wealth so far. With several seeds, "
        "the line is the middle seed and the band spans all of them. Cards and tables are about all days."
    )
    return days


def _days_key(run: OpenBacktest) -> str:
    """The key of the days that are chosen."""
    return f"days-{run.backtest.id}"


@st.fragment
def _track(run: OpenBacktest, days: tuple[date, date]) -> None:
    """Weights, returns and months of one strategy."""
    st.subheader("One strategy in detail")
    record = choose_track(run, "track")
    key = record["strategy"], record["seed"]
    title = next(group.title for group in run.groups if group.name == key[0])
    equity = run.equity[key]
    st.markdown("**Weights over time**")
    spec, areas = figures.draw_weights(run.weights[key], run.assets)
    alt = f"Weights of {title} after each day's trade, cash at the bottom."
    show_figure(spec, "weights", alt, legend=True, days=days)
    step = figures.find_step(len(equity))
    st.caption(
        "Weights after each day's trade, with cash at the bottom."
        + (f" Only the {figures.AREAS} largest stocks have their own area." if len(areas) > figures.AREAS + 1 else "")
        + (f" One day in {step} is drawn." if step > 1 else "")
    )
    st.markdown(f"**Returns over {describe_periods(record)}: promised and realised CVaR**")
    _distribution(run, record, equity)
    _course(run, record, title, days)
    st.markdown("**Monthly returns**")
    show_html(through_time.render_months(equity, title))


def _course(run: OpenBacktest, record: dict[str, Any], title: str, days: tuple[date, date]) -> None:
    """One strategy through time: exposure, rolling risk, years, drawdowns, risk by stock, and trading."""
    key = record["strategy"], record["seed"]
    rows, weights, shield = run.equity[key], run.weights[key], run.shield.get(key)
    st.markdown("**Exposure over time**")
    alt = f"The share of wealth that {title} has in stocks over time, and what the shield cut."
    drawn = through_time.draw_exposure(weights, shield)
    show_figure(drawn, "exposure", alt, legend=True, days=days)
    st.caption(through_time.describe_exposure(shield))
    rolled = through_time.draw_rolling_risk(rows, record)
    if rolled is not None:
        st.markdown("**Risk over time, against the limit**")
        alt = f"Returns of {title} over every period of the limit's horizon, and their CVaR, against the limit."
        show_figure(rolled, "rolling", alt, legend=True, days=days)
        st.caption(through_time.describe_risk(record))
    index = find_index(run.groups, key[0])
    measured = rolling.draw_rolling_measures(rows, record, None if index is None else run.equity[index.key])
    if measured is not None:
        st.markdown("**Volatility, Sharpe ratio and beta over time**")
        alt = f"Volatility, Sharpe ratio and beta of {title} over the sessions before each day."
        show_figure(measured, "measures", alt, days=days)
        st.caption(rolling.describe_measures(rows, record, None if index is None else index.title))
    st.markdown("**Calendar years and worst drawdowns**")
    beside = [each for each in (*select_rivals(run.groups, run.main), run.main) if each.name != key[0]]
    rival = (beside[0].title, run.equity[beside[0].key]) if beside else None
    show_html(
        through_time.render_year_table(rows, weights, record, title, rival)
        + through_time.render_drawdowns(rows, title, name_session(record.get("sessions_per_year")))
    )
    _zoom(run, rows, days)
    contributions = find_contributions(rows, weights, run.trades.get(key), record["promise"])
    if contributions is not None:
        st.markdown(f"**What the worst periods of {describe_periods(record)} lost, by stock**")
        alt = f"What each stock contributed to the CVaR of {title}."
        show_figure(draw_contributions(contributions, weights), "contributions", alt)
        st.caption(describe_contributions(record["promise"]))
    st.markdown("**Turnover and cost**")
    alt = f"What {title} traded in each month, and the fees that it has paid so far."
    show_figure(through_time.draw_trading(rows), "trading", alt, legend=True, days=days)
    st.caption(through_time.TRADING_CAPTION)


def _zoom(run: OpenBacktest, rows: pd.DataFrame, days: tuple[date, date]) -> None:
    """Buttons that have all figures over days show one of the drawdowns, or all days again."""
    whole = rows["date"].iloc[0].date(), rows["date"].iloc[-1].date()
    places = {
        f"{number_}: {percent(each.depth)}, {each.peak:%b %Y}": (each.peak, each.recovered or whole[1])
        for number_, each in enumerate(find_drawdowns(rows), 1)
    }
    with st.container(horizontal=True, vertical_alignment="center", key="zooms"):
        st.caption("Show the days of", width="content")
        for number_, (label, place) in enumerate(places.items(), 1):
            _offer_days(run, label, place, f"zoom-{number_}", chosen=place == days)
        _offer_days(run, "all days", whole, "zoom-all", chosen=whole == days)


def _offer_days(run: OpenBacktest, label: str, place: tuple[date, date], key: str, *, chosen: bool) -> None:
    if st.button(label, key=key, disabled=chosen, on_click=_choose_days, args=(_days_key(run), place)):
        st.rerun()  # the curves above are no part of this fragment


def _choose_days(key: str, place: tuple[date, date]) -> None:
    st.session_state[key] = place


def _promises(run: OpenBacktest) -> None:
    """Whether the limit was kept: over the whole track, by calendar year, and in known crises."""
    st.subheader("Promises")
    show_html(render_promises(run.groups))
    hidden = set(hidden_at_first(run.groups))
    by_year = through_time.draw_cvar_by_year([group for group in run.groups if group.name not in hidden])
    if by_year is not None:
        show_figure(by_year, "cvar-years", through_time.CVAR_CAPTION, legend=True)
        st.caption(through_time.CVAR_CAPTION)
    show_html(render_years(run.groups) + through_time.render_stress_table(run.groups, run.equity, run.horizon))


def _distribution(run: OpenBacktest, record: dict[str, Any], equity: Any) -> None:
    edges = figures.find_bin_edges(equity, record["promise"])
    if edges is None:
        st.caption(f"The backtest is shorter than {describe_periods(record)}, so it holds no full period.")
        return
    spec = figures.draw_distribution(equity, record["promise"], edges)
    show_figure(
        spec, "distribution", "Histogram of the returns of all periods, with the limit and the realised CVaR marked."
    )
    st.caption(
        "Returns of all overlapping periods, in orange where a loss exceeds the limit. The limit applies to the mean "
        "of the tail, not to each period. The band is the interval of the realised CVaR."
    )
