"""*Training*: return and risk of a run over its iterations, updated while it trains."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date
from html import escape
from typing import Any

import numpy as np
import streamlit as st

from portfolio_sdpo.common.numbers import number, percent
from portfolio_sdpo.errors import PortfolioSdpoError

from ..data import jobs, training_logs
from ..data.job_requests import BacktestRequest, submit
from ..data.registry import open_registry
from ..navigation import get_page
from ..widgets.cards import format_age
from ..widgets.figures import show_figure
from ..widgets.style import show_html
from ..widgets.training_figures import (
    WINDOW,
    draw_constraint,
    draw_curve,
    draw_evidence,
    draw_objective,
    draw_regimes,
    format_value,
    name_regimes,
)

LOG = "log"
"""The query parameter with the key of a log: its page can be linked to."""
SECONDS = 2.0
"""Seconds between two updates of a run in progress."""
WORDS = {
    "running": (":blue-badge[:material/sync: running]", "running"),
    "finished": (":green-badge[:material/check: finished]", "finished"),
    "failed": (":orange-badge[:material/error: failed]", "failed"),
    "stopped": (":gray-badge[:material/pause: stopped]", "stopped"),
}
"""A badge, and the word in a list."""
SAMPLE = BacktestRequest(
    algos=("sdpo",),
    strategies=("equal-weight", "buy-and-hold", "cash"),
    alpha=0.1,
    start=date(2019, 1, 2),
    end=date(2019, 3, 29),
)
"""What the page offers when nothing has been trained yet: the agent of `portfolio-sdpo demo` on the bundled sample."""


def render() -> None:
    """The page."""
    st.title("Training")
    if message := st.session_state.pop("training-message", None):
        st.success(message, icon=":material/check:")
    found = _entries()
    if not found:
        _offer()
        return
    entry = _choose(found)
    live = entry.state == "running"
    st.fragment(_show_run, run_every=SECONDS if live else None)(entry.key, live)


def _offer() -> None:
    """Offer the sample where nothing has been trained yet; while a job is starting, wait for its log."""
    if any(each.running for each in jobs.list_jobs()):
        st.fragment(_wait, run_every=SECONDS)()
        return
    st.info(
        "Nothing has been trained yet. Start a backtest with an agent, a retrain or an experiment.",
        icon=":material/info:",
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Train on the bundled sample", type="primary", icon=":material/bolt:", key="sample"):
            submit(SAMPLE)
            st.rerun()
        st.page_link(get_page("run"), label="Choose prices and settings")
    st.caption(
        "The sample is a backtest of SDPO (analytic) on nine large US stocks in the first quarter of 2019. It takes a "
        "few minutes."
    )


def _wait() -> None:
    """Show the progress of jobs that have not written a training log yet."""
    running = [each.job for each in jobs.list_jobs() if each.running]
    if not running or _entries():
        st.rerun()
    st.info(
        "A job is running. Its training log appears here after its first decision.", icon=":material/hourglass_top:"
    )
    for job in running:
        st.progress(job.fraction, text=job.progress or "starting")
    st.page_link(get_page("run"), label="Show the job", icon=":material/play_circle:")


def _entries() -> list[training_logs.LogEntry]:
    try:
        known = open_registry()
    except PortfolioSdpoError as error:
        st.warning(f"Models are not listed: {error}")
        known = None
    return training_logs.list_entries(known)


def _choose(found: Sequence[training_logs.LogEntry]) -> training_logs.LogEntry:
    """Let the user select a run: at first the one in the address, or the newest."""
    requested_id = st.query_params.get(LOG)
    places = {entry.key: place for place, entry in enumerate(found)}
    if requested_id is not None and requested_id not in places:
        st.warning(f"The training log {requested_id} no longer exists. The newest one is shown instead.")
    titles = {entry.key: f"{entry.title} · {WORDS[entry.state][1]}" for entry in found}
    key = st.selectbox(
        "Run",
        list(titles),
        index=places.get(requested_id or "", 0),
        format_func=lambda each: titles[each],
        label_visibility="collapsed",
    )
    st.query_params[LOG] = key
    return found[places[key]]


def _show_run(key: str, live: bool) -> None:
    """Show the selected run; it is looked up at every update, since its state changes."""
    try:
        entry = next((each for each in _entries() if each.key == key), None)
        if entry is None:
            # A backtest in progress has finished, or a folder was deleted.
            st.session_state["training-message"] = (
                "The run has ended and its folder no longer exists. The newest run is shown instead."
            )
            if key.startswith("walks/"):
                st.session_state["training-message"] = "The backtest has finished, and its results are saved."
            st.query_params.pop(LOG, None)
            st.rerun()
        if live and entry.state != "running":
            st.rerun()  # the run has ended: end the updates
        _state(entry)
        log = _read(entry)
        if log is None:
            st.info("There is no log yet. A run writes its log together with its checkpoints.", icon=":material/info:")
        else:
            _figures(log, entry.state)
        _facts(entry)
    except PortfolioSdpoError as error:
        st.error(str(error), icon=":material/error:")


def _read(entry: training_logs.LogEntry) -> training_logs.Log | None:
    """The log; it is read again only when its file has changed, and an unreadable file leaves the last one in place."""
    cache: dict[str, Any] = st.session_state.setdefault("training-log", {})
    version = training_logs.read_version(entry)
    if cache.get("key") != (entry.key, version):
        log = training_logs.read_log(entry, open_registry() if entry.file is None else None)
        if log is None and cache.get("key", ("",))[0] == entry.key:
            return cache["log"]
        cache |= {"key": (entry.key, version), "log": log}
    return cache["log"]


def _state(entry: training_logs.LogEntry) -> None:
    """Show whether the run is in progress, and when it last wrote to its log."""
    text = WORDS[entry.state][0]
    ago = format_age(time.time() - entry.changed)
    match entry.state:
        case "running":
            text += f"  Last updated {ago}. This page refreshes every {SECONDS:g} s."
        case "stopped":
            text += (
                f"  Last updated {ago}. No process is running: the run is waiting for other runs of its backtest, or "
                "was stopped. It resumes from its checkpoint when it is started again with the same settings."
            )
        case _:
            text += f"  {ago}"
    st.markdown(text)
    if entry.message:
        st.error(entry.message, icon=":material/error:")


def _figures(log: training_logs.Log, state: training_logs.State) -> None:
    frame = log.frame
    done = len(frame)
    if log.total and done < log.total:
        st.progress(min(done / log.total, 1.0), text=f"{done:,} of {log.total:,} iterations")
    if not log.trained:
        _evidence(log)
        return
    show_html(_cards(log, state))
    st.subheader("Return")
    show_figure(draw_objective(frame, log.percent), "objective", "Return over the iterations.", legend=True)
    what = (
        "mean growth over a period, across all scenarios" if log.percent else "mean return of the episodes in a batch"
    )
    days = "" if "date" not in frame else f" Decisions from {frame['date'].iloc[0]} to {frame['date'].iloc[-1]}."
    st.caption(f"For each iteration: {what}.{days}")
    for index, constraint in enumerate(log.bounds):
        if f"risk_{index}" not in frame:
            continue
        st.subheader(f"Constraint: {constraint.name}" if len(log.bounds) > 1 else "Constraint")
        show_figure(
            draw_constraint(frame, index, constraint),
            f"constraint-{index}",
            f"Estimated {constraint.name} over the iterations against its bound.",
            legend=True,
        )
        st.caption(f"The learner's estimate for each iteration: {constraint.name}. The shaded area violates the bound.")
        _barrier(log, index)
    extra = [name for name in ("kl", "entropy", "critic_loss", "steps_per_second") if name in frame]
    if extra:
        with st.expander("Optimisation details: KL, entropy, loss"):
            for name in extra:
                st.markdown(f"**{name.replace('_', ' ')}**")
                show_figure(draw_curve(frame, name, name), f"extra-{name}", f"{name} over the iterations.")


def _evidence(log: training_logs.Log) -> None:
    """What a policy that was trained beforehand writes down: how far it deviates from equal weights, and why."""
    frame = log.frame
    last = frame.iloc[-1]
    st.info(
        "This policy was trained beforehand, on other prices, and is used as it is. At every decision it measures on "
        "these stocks' own past by how much it would have grown faster than equal weights, and deviates from them as "
        "far as that evidence goes.",
        icon=":material/info:",
    )
    cells = [
        ("decisions", "Decisions", f"{len(frame):,}", f"{frame['date'].iloc[0]} to {last['date']}"),
        ("deviation", "Deviation from equal weights", percent(last["deviation"], 0), "at the last decision"),
    ]
    if np.isfinite(last["growth"]):
        beyond, error = percent(last["growth"]), percent(last["error"])
        cells.append(
            ("growth", "Growth beyond equal weights", beyond, f"a year, standard error {error}, at the same CVaR")
        )
    cells.append(("years", "Evidence", f"{number(last['years'], 1)} years", "of these stocks' past"))
    show_html(_render_cards(cells))
    if frame["growth"].notna().any():
        alt = "Deviation from equal weights, and the growth beyond them that it rests on, by day of the decision."
        show_figure(draw_evidence(frame), "evidence", alt, legend=True)


def _barrier(log: training_logs.Log, index: int) -> None:
    """Regime, slack and price of one constraint."""
    frame = log.frame
    barrier = f"regime_{index}" in frame and frame[f"regime_{index}"].isin(["interior", "margin", "violated"]).any()
    st.markdown("**Regime of the barrier**" if barrier else "**Inside the bound or in violation**")
    show_figure(draw_regimes(frame, index), f"regimes-{index}", "Shares of iterations in each regime.", legend=True)
    unit = ", in log growth" if log.percent else ""
    parts = {
        "slack": f"Slack: how far inside the bound{unit}",
        "price": "Price: the constraint's weight in the objective",
    }
    shown = {name: text for name, text in parts.items() if f"{name}_{index}" in frame}
    for column, (name, text) in zip(st.columns(max(len(shown), 1)), shown.items(), strict=False):
        with column:
            st.markdown(f"**{text}**")
            show_figure(draw_curve(frame, f"{name}_{index}", name), f"{name}-{index}", f"{text}, over the iterations.")


def _cards(log: training_logs.Log, state: training_logs.State) -> str:
    """The headline figures."""
    frame = log.frame
    last = frame.tail(WINDOW)
    made = "in total" if state == "finished" else "so far"
    cells = [("iterations", "Iterations", f"{len(frame):,}", f"of {log.total:,}" if log.total else made)]
    if "return" in frame:
        mean = format_value(float(last["return"].mean()), log.percent)
        cells.append(("return", "Return", mean, f"mean of the last {len(last)}"))
    for index, constraint in enumerate(log.bounds):
        if f"risk_{index}" not in frame:
            continue
        sign = "≤" if constraint.sense == "<=" else "≥"
        risk = format_value(float(last[f"risk_{index}"].mean()), constraint.percent)
        bound = format_value(constraint.bound, constraint.percent)
        name = constraint.name[:1].upper() + constraint.name[1:]
        cells.append((f"risk-{index}", name, risk, f"mean of the last {len(last)}; bound {sign} {bound}"))
        beyond = name_regimes(frame, index) == "violated"
        cells.append(
            (
                f"beyond-{index}",
                "Iterations in violation",
                percent(float(beyond.mean())),
                f"{percent(float(beyond.tail(WINDOW).mean()), 0)} of the last {len(last)}",
            )
        )
    return _render_cards(cells)


def _render_cards(cells: Sequence[tuple[str, str, str, str]]) -> str:
    """Name of the field, heading, value and note of each card."""
    content = "".join(
        f"<div class='card'><dt>{escape(name)}</dt><dd><span class='figure' data-name='{field}'>{escape(value)}</span>"
        f"<br><span class='more'>{escape(note)}</span></dd></div>"
        for field, name, value, note in cells
    )
    return f"<dl class='cards'>{content}</dl>"


def _facts(entry: training_logs.LogEntry) -> None:
    with st.expander("Settings"):
        facts = {name: value for name, value in entry.facts.items() if not isinstance(value, (list, dict))}
        st.markdown("  \n".join(f"{name}: `{value}`" for name, value in facts.items() if value != "") or "–")
        st.caption(entry.key)
