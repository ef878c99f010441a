"""*Backtest*: what strategies earned, how far they fell, what they held, and whether the promise on risk was kept.

All figures are those of `metrics.json` and the tables of the run, drawn by what draws the report.
"""

from __future__ import annotations

from typing import Any

import streamlit as st

from portfolio_sdpo.backtest import figures
from portfolio_sdpo.backtest.sections import (
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
)

from .choosing import choose_backtest, choose_track, sound_backtests
from .downloads import offer_downloads
from .look import figure, html, offer_sample
from .reading import Opened, opened

CURVES = "Wealth and drawdown"
CURVES_ALT = "Wealth over time of every strategy, starting at 1, after fees, and its fall from its highest so far."


def render() -> None:
    """The page."""
    st.title("Backtest")
    found = sound_backtests()
    if not found:
        offer_sample("There is no backtest yet.")
        return
    chosen = opened(choose_backtest(found))
    record, groups = chosen.record, chosen.groups
    html(summary(chosen))
    _curves(chosen)
    st.subheader("Results")
    html(headline(groups, record.config))
    html(all_figures(groups) + against(groups) + shielding(groups))
    _track(chosen)
    st.subheader("Promises")
    html(promises(groups))
    with st.expander("To be held from the last close on"):
        html(today(groups))
    with st.expander("What to hold against these figures"):
        html(remarks(record, groups))
    with st.expander("Settings and data"):
        html(provenance(record))
    st.subheader("Download")
    offer_downloads(chosen)


def summary(chosen: Opened) -> str:
    """What was traded, the result in two sentences, and the headline figures."""
    about = f"<p class='sub'>{subtitle(chosen.record, chosen.groups)}</p>"
    return about + lead(chosen.groups, chosen.main) + cards(chosen.main, chosen.groups)


@st.fragment
def _curves(chosen: Opened) -> None:
    """Wealth and drawdown of all strategies."""
    heading, switch = st.columns([4, 1], vertical_alignment="bottom")
    heading.subheader(CURVES)
    log = switch.toggle("Logarithmic", key="log")
    figure(wealth_and_drawdown(chosen), "equity", CURVES_ALT, legend=True, log=log, sketched=True)
    st.caption(
        "Above: wealth, starting at 1, after fees. Below: its fall from the highest so far. With several seeds: the "
        "middle one, and all of them as a band. Click a name to show or hide it in both."
    )


def wealth_and_drawdown(chosen: Opened) -> figures.Spec:
    """Both on one axis of time and with one legend, which hides a strategy in both."""
    wealth = figures.curves(chosen.equity, chosen.groups, "wealth", percent=False)
    fall = figures.curves(chosen.equity, chosen.groups, "drawdown", percent=True)
    below = [trace | {"yaxis": "y2", "showlegend": False} for trace in fall["data"]]
    layout = wealth["layout"]
    return {
        "data": [*wealth["data"], *below],
        "layout": layout
        | {
            "height": 560,
            "hoversubplots": "axis",
            "xaxis": layout["xaxis"] | {"anchor": "y2"},
            "yaxis": layout["yaxis"] | {"domain": [0.38, 1.0]},
            "yaxis2": fall["layout"]["yaxis"] | {"domain": [0.0, 0.32], "nticks": 5},
        },
    }


@st.fragment
def _track(chosen: Opened) -> None:
    """Weights, returns and months of one strategy."""
    st.subheader("One strategy")
    record = choose_track(chosen, "track")
    key = record["strategy"], record["seed"]
    equity = chosen.equity[key]
    st.markdown("**Weights over time**")
    spec, _ = figures.weights(chosen.weights[key], chosen.assets)
    figure(spec, "weights", f"Weights of {key[0]} after each day's trade, cash at the bottom.", legend=True)
    step = figures.step_of(len(equity))
    st.caption(
        f"After each day's trade, cash at the bottom; one area for each of the {figures.AREAS} largest of many stocks."
        + (f" One day in {step} is drawn." if step > 1 else "")
    )
    st.markdown(f"**Returns over {chosen.horizon} sessions: promised and realised CVaR**")
    _distribution(chosen, record, equity)
    st.markdown("**Months**")
    html(monthly(equity, str(key[0])))


def _distribution(chosen: Opened, record: dict[str, Any], equity: Any) -> None:
    edges = figures.bin_edges(chosen.equity, chosen.groups, chosen.horizon)
    if edges is None:
        st.caption(f"The backtest is shorter than {chosen.horizon} sessions, so there is no such period.")
        return
    spec = figures.distribution(equity, record["promise"], edges)
    figure(spec, "distribution", "Shares of periods by their return, with the limit and the realised CVaR marked.")
    st.caption(
        "Every such period, overlapping; orange where a loss exceeds the limit. The limit binds the mean of the tail, "
        "not each period; the band is the interval of the realised CVaR."
    )
