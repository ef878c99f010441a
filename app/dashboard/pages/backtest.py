"""*Backtest*: wealth, drawdowns and weights of strategies, and whether they kept the promise on risk.

All figures come from `metrics.json` and the tables of the backtest, and are drawn by the functions of the report.
"""

from __future__ import annotations

from typing import Any

import streamlit as st

from portfolio_sdpo.prices.frequency import name_session
from portfolio_sdpo.report import figures, through_time
from portfolio_sdpo.report.comparisons import render_rivals, render_superiority, render_years, select_rivals
from portfolio_sdpo.report.looks import hidden_at_first
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
from ..widgets.address import choose_switch
from ..widgets.curves import CURVES, CURVES_ALT, draw_wealth_and_drawdown, render_summary
from ..widgets.downloads import offer_downloads
from ..widgets.figures import show_figure
from ..widgets.pickers import choose_backtest, choose_track, list_readable_backtests
from ..widgets.sample import offer_sample
from ..widgets.style import show_html


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
    _curves(run)
    st.subheader("Results")
    show_html(render_headline(groups, record.config))
    show_html(
        render_all_figures(groups) + render_rivals(groups) + render_superiority(record) + render_shielding(groups)
    )
    _track(run)
    _promises(run)
    with st.expander("Weights to hold after the last close"):
        show_html(render_today(groups))
    with st.expander("Limitations of these figures"):
        show_html(render_remarks(record, groups))
    with st.expander("Settings and data"):
        show_html(render_provenance(record))
    st.subheader("Download")
    offer_downloads(run)


@st.fragment
def _curves(run: OpenBacktest) -> None:
    """Wealth and drawdown of all strategies."""
    heading, switch = st.columns([4, 1], vertical_alignment="bottom")
    heading.subheader(CURVES)
    log = choose_switch(switch, "Logarithmic", "log")
    show_figure(draw_wealth_and_drawdown(run), "equity", CURVES_ALT, legend=True, log=log, sketched=True)
    st.caption(
        "Top: wealth after fees, starting at 1. Bottom: drawdown from the highest wealth so far. With several seeds, "
        "the line is the middle seed and the band spans all of them. Click a name to show or hide it in both."
    )


@st.fragment
def _track(run: OpenBacktest) -> None:
    """Weights, returns and months of one strategy."""
    st.subheader("One strategy in detail")
    record = choose_track(run, "track")
    key = record["strategy"], record["seed"]
    title = next(group.title for group in run.groups if group.name == key[0])
    equity = run.equity[key]
    st.markdown("**Weights over time**")
    spec, _ = figures.draw_weights(run.weights[key], run.assets)
    show_figure(spec, "weights", f"Weights of {title} after each day's trade, cash at the bottom.", legend=True)
    step = figures.find_step(len(equity))
    st.caption(
        f"Weights after each day's trade, with cash at the bottom. Only the {figures.AREAS} largest stocks have "
        "their own area." + (f" One day in {step} is drawn." if step > 1 else "")
    )
    st.markdown(f"**Returns over {describe_periods(record)}: promised and realised CVaR**")
    _distribution(run, record, equity)
    _course(run, record, title)
    st.markdown("**Monthly returns**")
    show_html(through_time.render_months(equity, title))


def _course(run: OpenBacktest, record: dict[str, Any], title: str) -> None:
    """One strategy through time: exposure, rolling risk, years, drawdowns and trading."""
    key = record["strategy"], record["seed"]
    rows, shield = run.equity[key], run.shield.get(key)
    st.markdown("**Exposure over time**")
    alt = f"The share of wealth that {title} has in stocks over time."
    show_figure(through_time.draw_exposure(run.weights[key], shield), "exposure", alt, legend=True)
    st.caption(through_time.describe_exposure(shield))
    rolled = through_time.draw_rolling_risk(rows, record)
    if rolled is not None:
        st.markdown("**Risk over time, against the limit**")
        alt = f"Returns of {title} over every period of the limit's horizon, and their CVaR, against the limit."
        show_figure(rolled, "rolling", alt, legend=True)
        st.caption(through_time.describe_risk(record))
    st.markdown("**Calendar years and worst drawdowns**")
    beside = [each for each in (*select_rivals(run.groups, run.main), run.main) if each.name != key[0]]
    rival = (beside[0].title, run.equity[beside[0].key]) if beside else None
    show_html(
        through_time.render_year_table(rows, run.weights[key], record, title, rival)
        + through_time.render_drawdowns(rows, title, name_session(record.get("sessions_per_year")))
    )
    st.markdown("**Turnover and cost**")
    alt = f"What {title} traded in each month, and the fees that it has paid so far."
    show_figure(through_time.draw_trading(rows), "trading", alt, legend=True)
    st.caption(through_time.TRADING_CAPTION)


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
    edges = figures.find_bin_edges(run.equity, run.groups, run.horizon)
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
