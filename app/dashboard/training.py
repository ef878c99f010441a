"""*Training*: what a run earns and risks while it learns, live while it is at it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date
from html import escape
from typing import Any

import streamlit as st

from portfolio_sdpo.errors import PortfolioSdpoError

from . import jobs, logs
from .frame import page
from .look import figure, html
from .orders import BacktestOrder
from .reading import registry
from .training_figures import WINDOW, constraint, curve, objective, regime_words, regimes, written

LOG = "log"
"""The query parameter with the key of a log: its page can be linked to."""
SECONDS = 2.0
"""Between two looks at a run that is going."""
WORDS = {
    "running": (":blue-badge[:material/sync: running]", "running"),
    "finished": (":green-badge[:material/check: finished]", "finished"),
    "failed": (":orange-badge[:material/error: failed]", "failed"),
    "stopped": (":gray-badge[:material/pause: stopped]", "stopped"),
}
"""A badge, and the word in a list."""
SAMPLE = BacktestOrder(
    algos=("sdpo",),
    strategies=("equal-weight", "buy-and-hold", "cash"),
    alpha=0.1,
    start=date(2019, 1, 2),
    end=date(2019, 3, 29),
)
"""What is offered where nothing has trained yet: the agent of `portfolio-sdpo demo` on the bundled prices."""


def render() -> None:
    """The page."""
    st.title("Training")
    if message := st.session_state.pop("training-told", None):
        st.success(message, icon=":material/check:")
    found = _entries()
    if not found:
        _offer()
        return
    entry = _choose(found)
    live = entry.state == "running"
    st.fragment(_shown, run_every=SECONDS if live else None)(entry.key, live)


def _offer() -> None:
    """Nothing has trained yet: say how to begin, and offer the sample; wait for what has only just begun."""
    if any(each.running for each in jobs.started()):
        st.fragment(_wait, run_every=SECONDS)()
        return
    st.info(
        "Nothing has been trained here yet: start a backtest with an agent, a retrain or an experiment.",
        icon=":material/info:",
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Train on the bundled sample", type="primary", icon=":material/bolt:", key="sample"):
            SAMPLE.check()
            jobs.start("backtest", SAMPLE.arguments(), SAMPLE.title)
            st.rerun()
        st.page_link(page("run"), label="Choose prices and settings")
    st.caption("The sample: SDPO walks through nine large US stocks in the first quarter of 2019; a few minutes.")


def _wait() -> None:
    """A job is running, and what it learns is not written down yet."""
    going = [each.job for each in jobs.started() if each.running]
    if not going or _entries():
        st.rerun()
    st.info(
        "A job is running. What it learns is shown here from its first decision on.", icon=":material/hourglass_top:"
    )
    for job in going:
        st.progress(job.fraction, text=job.progress or "starting")
    st.page_link(page("run"), label="Look at the job", icon=":material/play_circle:")


def _entries() -> list[logs.Entry]:
    try:
        known = registry()
    except PortfolioSdpoError as error:
        st.warning(f"Models are left out: {error}")
        known = None
    return logs.entries(known)


def _choose(found: Sequence[logs.Entry]) -> logs.Entry:
    """One of them: the one in the address, or the first."""
    asked = st.query_params.get(LOG)
    places = {entry.key: place for place, entry in enumerate(found)}
    if asked is not None and asked not in places:
        st.warning(f"There is no {asked} here any more; this is the newest.")
    titles = {entry.key: f"{entry.title} · {WORDS[entry.state][1]}" for entry in found}
    key = st.selectbox(
        "Run",
        list(titles),
        index=places.get(asked or "", 0),
        format_func=lambda each: titles[each],
        label_visibility="collapsed",
    )
    st.query_params[LOG] = key
    return found[places[key]]


def _shown(key: str, live: bool) -> None:
    """The chosen run as it stands now; looked for anew each time, since it goes on meanwhile."""
    try:
        entry = next((each for each in _entries() if each.key == key), None)
        if entry is None:
            # A walk under way becomes a backtest, or a folder was deleted.
            st.session_state["training-told"] = "The run has ended and its folder is gone: this is the newest one."
            if key.startswith("walks/"):
                st.session_state["training-told"] = "The walk has ended, and its backtest is written."
            st.query_params.pop(LOG, None)
            st.rerun()
        if live and entry.state != "running":
            st.rerun()  # stop looking
        _state(entry)
        log = _read(entry)
        if log is None:
            st.info("Nothing is written down yet: a run writes its log together with its checkpoints.")
        else:
            _figures(log, entry.state)
        _facts(entry)
    except PortfolioSdpoError as error:
        st.error(str(error), icon=":material/error:")


def _read(entry: logs.Entry) -> logs.Log | None:
    """The log, read again only when its file has changed; while that cannot be read, as it was before."""
    kept: dict[str, Any] = st.session_state.setdefault("training-log", {})
    version = logs.version(entry)
    if kept.get("key") != (entry.key, version):
        log = logs.read(entry, registry() if entry.file is None else None)
        if log is None and kept.get("key", ("",))[0] == entry.key:
            return kept["log"]
        kept |= {"key": (entry.key, version), "log": log}
    return kept["log"]


def _state(entry: logs.Entry) -> None:
    """Whether it runs, and when it was last heard of."""
    told = WORDS[entry.state][0]
    ago = _ago(time.time() - entry.changed)
    match entry.state:
        case "running":
            told += f"  last written {ago}; looked at every {SECONDS:g} s"
        case "stopped":
            told += (
                f"  no process is at it, last written {ago}: it waits for the rest of its backtest, or goes on from "
                "its checkpoint when the same is started again"
            )
        case _:
            told += f"  {ago}"
    st.markdown(told)
    if entry.message:
        st.error(entry.message, icon=":material/error:")


def _figures(log: logs.Log, state: logs.State) -> None:
    frame = log.frame
    done = len(frame)
    if log.total and done < log.total:
        st.progress(min(done / log.total, 1.0), text=f"{done:,} of {log.total:,} iterations")
    html(_cards(log, state))
    st.subheader("Return")
    figure(objective(frame, log.percent), "objective", "Return over the iterations.", legend=True)
    what = "growth over a period, the mean of its scenarios" if log.percent else "the mean of a batch's episodes"
    st.caption(f"Of each iteration: {what}.")
    for index, bounded in enumerate(log.bounds):
        if f"risk_{index}" not in frame:
            continue
        st.subheader(f"Constraint: {bounded.name}" if len(log.bounds) > 1 else "Constraint")
        figure(
            constraint(frame, index, bounded),
            f"constraint-{index}",
            f"Estimated {bounded.name} over the iterations against its bound.",
            legend=True,
        )
        st.caption(f"{bounded.name}: what the learner itself estimates; shaded is what the bound forbids.")
        _barrier(log, index)
    extra = [name for name in ("kl", "entropy", "critic_loss", "steps_per_second") if name in frame]
    if extra:
        with st.expander("For the expert: KL, entropy, loss"):
            for name in extra:
                st.markdown(f"**{name.replace('_', ' ')}**")
                figure(curve(frame, name, name), f"extra-{name}", f"{name} over the iterations.")


def _barrier(log: logs.Log, index: int) -> None:
    """Regime, slack and price of one constraint."""
    frame = log.frame
    barrier = f"regime_{index}" in frame and frame[f"regime_{index}"].isin(["interior", "margin", "violated"]).any()
    st.markdown("**Regime of the barrier**" if barrier else "**Inside or beyond the bound**")
    figure(regimes(frame, index), f"regimes-{index}", "Shares of iterations in each regime.", legend=True)
    unit = ", in log growth" if log.percent else ""
    parts = {
        "slack": f"Slack: how far inside the bound{unit}",
        "price": "Price: the constraint's weight in the objective",
    }
    shown = {name: text for name, text in parts.items() if f"{name}_{index}" in frame}
    for column, (name, text) in zip(st.columns(max(len(shown), 1)), shown.items(), strict=False):
        with column:
            st.markdown(f"**{text}**")
            figure(curve(frame, f"{name}_{index}", name), f"{name}-{index}", f"{text}, over the iterations.")


def _cards(log: logs.Log, state: logs.State) -> str:
    """The newest figures."""
    frame = log.frame
    last = frame.tail(WINDOW)
    made = "in all" if state == "finished" else "so far"
    cells = [("iterations", "Iterations", f"{len(frame):,}", f"of {log.total:,}" if log.total else made)]
    if "return" in frame:
        mean = written(float(last["return"].mean()), log.percent)
        cells.append(("return", "Return", mean, f"mean of the last {len(last)}"))
    for index, bounded in enumerate(log.bounds):
        if f"risk_{index}" not in frame:
            continue
        sign = "≤" if bounded.sense == "<=" else "≥"
        risk = written(float(last[f"risk_{index}"].mean()), bounded.percent)
        bound = written(bounded.bound, bounded.percent)
        name = bounded.name[:1].upper() + bounded.name[1:]
        cells.append((f"risk-{index}", name, risk, f"mean of the last {len(last)}; bound {sign} {bound}"))
        beyond = regime_words(frame, index) == "violated"
        cells.append(
            (
                f"beyond-{index}",
                "Iterations beyond the bound",
                f"{100 * beyond.mean():.1f} %",
                f"{100 * beyond.tail(WINDOW).mean():.0f} % of the last {len(last)}",
            )
        )
    content = "".join(
        f"<div class='card'><dt>{escape(name)}</dt><dd><span class='figure' data-name='{field}'>{escape(value)}</span>"
        f"<br><span class='more'>{escape(note)}</span></dd></div>"
        for field, name, value, note in cells
    )
    return f"<dl class='cards'>{content}</dl>"


def _facts(entry: logs.Entry) -> None:
    with st.expander("Settings"):
        shown = {name: value for name, value in entry.facts.items() if not isinstance(value, (list, dict))}
        st.markdown("  \n".join(f"{name}: `{value}`" for name, value in shown.items() if value != "") or "–")
        st.caption(entry.key)


def _ago(seconds: float) -> str:
    for size, word in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {word}s ago"
    return f"{max(seconds, 0):.0f} seconds ago"
