"""*Run*: start a backtest or a retrain with checked settings, and follow the jobs."""

from __future__ import annotations

import shlex
from datetime import date
from pathlib import Path
from typing import Any

import streamlit as st

from portfolio_sdpo.backtest.strategies import STRATEGIES
from portfolio_sdpo.errors import PortfolioSdpoError, SettingsError
from portfolio_sdpo.portfolio.agent_titles import make_agent_title
from portfolio_sdpo.portfolio.presets import NO_AGENT, PRESETS
from portfolio_sdpo.prices.snapshots import Store

from ..data import jobs
from ..data.form_errors import RUN_LABELS, describe_error
from ..data.job_requests import CHAMPION_PRICES, SAMPLE, BacktestRequest, RetrainRequest, submit
from ..data.registry import open_registry
from ..navigation import get_page
from ..widgets.address import read_choice, write_choice
from ..widgets.pickers import RUN
from ..widgets.sample import END, START
from ..widgets.sample import STRATEGIES as USUAL

KIND, SNAPSHOT, PRESET = "what", "snapshot", "preset"
"""Query parameters: backtest or retrain, and the prices and the preset of a backtest, which decide what a form says."""
SECONDS = 1.0
"""Seconds between two updates of the list while a job is running."""
MAX_JOBS = 20
"""The newest jobs are listed, up to this number."""
BUTTONS = {"backtest": "Start the backtest", "retrain": "Start the retrain"}
BADGES = {
    "running": ":blue-badge[:material/sync: running]",
    "queued": ":gray-badge[:material/hourglass: queued]",
    "done": ":green-badge[:material/check: done]",
    "failed": ":orange-badge[:material/error: failed]",
}
FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2100, 12, 31)
TOML = "paths = 256          # scenarios per update\nfirst = 300          # updates before the first decision"


def render() -> None:
    """The page."""
    st.title("Run")
    kinds = ["Backtest", "Retrain"]
    asked = read_choice(KIND, [kind.lower() for kind in kinds])
    choice = st.segmented_control(
        "What", kinds, default=kinds[asked or 0], label_visibility="collapsed", required=True, key="kind"
    )
    write_choice(KIND, choice.lower(), "backtest")
    snapshots = Store().list()
    if not snapshots:
        st.info(
            "There are no prices of your own yet, so the bundled sample is used: nine large US stocks, 2016 to 2021. "
            "You can upload your own prices on the Data page.",
            icon=":material/info:",
        )
    request: BacktestRequest | RetrainRequest | None = None
    try:
        request = _retrain_form(snapshots) if choice == "Retrain" else _backtest_form(snapshots)
        if request is not None:
            submit(request)
            st.toast("The job has started. It keeps running when this page is closed.", icon=":material/play_circle:")
    except PortfolioSdpoError as error:
        st.error(describe_error(error, RUN_LABELS), icon=":material/error:")
    st.subheader("Jobs")
    running = any(each.running for each in jobs.list_jobs())
    st.fragment(_jobs, run_every=SECONDS if running else None)(running)


def _backtest_form(snapshots: tuple[str, ...]) -> BacktestRequest | None:
    left, right = st.columns(2)
    sources, presets = [SAMPLE, *snapshots], list(PRESETS)
    prices = left.selectbox(
        RUN_LABELS["snapshot"], sources, index=read_choice(SNAPSHOT, sources) or 0, key="backtest-prices"
    )
    write_choice(SNAPSHOT, prices, SAMPLE)
    preset = right.selectbox(
        RUN_LABELS["preset"],
        presets,
        index=read_choice(PRESET, presets) or 0,
        key="backtest-preset",
        help="The defaults of all settings that you do not change.",
    )
    write_choice(PRESET, preset, presets[0])
    base = PRESETS[preset]
    sample = prices == SAMPLE
    with st.form("backtest", enter_to_submit=False):
        algos = st.multiselect(
            RUN_LABELS["algo"],
            list(base.agents),
            default=list(base.shown),
            format_func=lambda name: make_agent_title(name, base.agents[name].model_dump()),
            key=f"algos-{preset}",
            help="The policy of the preset default is trained already. Others train during the backtest, for minutes.",
        )
        usual = [name for name in USUAL if name in STRATEGIES]
        strategies = st.multiselect(
            RUN_LABELS["strategies"], list(STRATEGIES), default=usual, help="Benchmarks take seconds."
        )
        first, last, seeds = st.columns(3)
        start = _day(first, RUN_LABELS["start"], date.fromisoformat(START) if sample else None, prices)
        end = _day(last, RUN_LABELS["end"], date.fromisoformat(END) if sample else None, prices)
        seed_list = seeds.text_input(
            RUN_LABELS["seeds"], "0", help="Whole numbers separated by commas. Each agent is backtested once per seed."
        )
        limit = _limit(preset, next(iter(base.agents.values())).limit.model_dump())
        fee, cash, shield = st.columns(3, vertical_alignment="bottom")
        fee_bps = fee.number_input(RUN_LABELS["fee_bps"], value=base.fee_bps, step=1.0, key=f"fee-{preset}")
        rate = cash.text_input(RUN_LABELS["cash"], str(base.cash), help="zero, tbill, or an annual rate such as 0.02.")
        use_shield = shield.toggle(
            RUN_LABELS["shield"],
            base.shield,
            key=f"shield-{preset}",
            help="Also show every agent behind the shield, which moves weights to cash until the CVaR limit holds.",
        )
        with st.expander("Caps and more"):
            limits = _limits("backtest", "no limit")
            processes = st.number_input(RUN_LABELS["jobs"], value=1, step=1)
            config = _config("backtest")
        if not st.form_submit_button(BUTTONS["backtest"], type="primary", icon=":material/play_arrow:"):
            return None
    return BacktestRequest(
        snapshot=None if sample else prices,
        preset=preset,
        algos=tuple(algos),
        strategies=tuple(strategies),
        start=start,
        end=end,
        seeds=seed_list,
        **limit,
        fee_bps=_changed(fee_bps, base.fee_bps),
        cash=_changed(rate.strip(), str(base.cash)),
        shield=_changed(use_shield, base.shield),
        **_read_groups(limits),
        jobs=processes,
        config=config,
    )


def _retrain_form(snapshots: tuple[str, ...]) -> RetrainRequest | None:
    champion = open_registry().champion()
    if champion is None:
        st.caption("There is no champion yet. The first model that keeps its limit on the held-out days becomes one.")
    usual = SAMPLE if champion is None else CHAMPION_PRICES
    with st.form("retrain", enter_to_submit=False):
        left, middle, right = st.columns(3, vertical_alignment="bottom")
        prices = left.selectbox(RUN_LABELS["snapshot"], [usual, *snapshots], key="retrain-prices")
        same = "the champion's" if champion is not None else "default"
        preset = middle.selectbox("Settings", [same, *(name for name in PRESETS if name != same)], key="retrain-preset")
        update = right.toggle(RUN_LABELS["update"], help="Fetch new prices from the snapshot's source before training.")
        limit = _limit("retrain", dict.fromkeys(("bound", "alpha", "horizon")))
        one, two = st.columns(2)
        holdout = one.number_input(
            RUN_LABELS["holdout"], value=126, step=1, help="The last sessions, on which models are evaluated."
        )
        seed = two.number_input(RUN_LABELS["seed"], value=None, step=1, placeholder="the champion's, or 0")
        with st.expander("Caps and more"):
            limits = _limits("retrain", "no limit" if champion is None else "the champion's")
            config = _config("retrain")
        if not st.form_submit_button(BUTTONS["retrain"], type="primary", icon=":material/play_arrow:"):
            return None
    return RetrainRequest(
        snapshot=None if prices == usual else prices,
        preset=preset if preset in PRESETS and (champion is not None or preset != "default") else None,
        update=update,
        **limit,
        **_read_groups(limits),
        holdout=holdout,
        seed=seed,
        config=config,
    )


def _limit(key: str, usual: dict[str, Any]) -> dict[str, Any]:
    """The CVaR limit; None for a value that was not changed. The ranges are checked by the settings."""
    bound, alpha, horizon = st.columns(3)
    left = "as in the settings" if usual["bound"] is None else None
    found = {
        "bound": bound.number_input(
            RUN_LABELS["bound"], value=usual["bound"], step=0.01, format="%.3f", key=f"bound-{key}", placeholder=left,
            help="Lowest allowed mean return of the worst periods. A loss is negative.",
        ),
        "alpha": alpha.number_input(
            RUN_LABELS["alpha"], value=usual["alpha"], step=0.01, format="%.3f", key=f"alpha-{key}", placeholder=left,
            help="Share of periods that count as the worst: 0.05 = 5 %.",
        ),
        "horizon": horizon.number_input(
            RUN_LABELS["horizon"], value=usual["horizon"], step=1, key=f"horizon-{key}", placeholder=left
        ),
    }  # fmt: skip
    return {name: _changed(value, usual[name]) for name, value in found.items()}


def _limits(key: str, left: str) -> dict[str, Any]:
    """Caps on stocks and on groups of them, and the limit on turnover; what is left out is as in the settings.

    The file with the groups is still in bytes: an error inside a form would cost it its button.
    """
    weight, turnover = st.columns(2)
    found: dict[str, Any] = {
        "max_weight": weight.number_input(
            RUN_LABELS["max_weight"], value=None, step=0.05, placeholder=left, key=f"max-weight-{key}",
            help="Share of the account, 0.25 = 25 %. What is above it is held in cash.",
        ),
        "max_turnover": turnover.number_input(
            RUN_LABELS["max_turnover"], value=None, step=0.05, placeholder=left, key=f"max-turnover-{key}",
            help="What one decision may buy and sell, over the account: switching all of it to other stocks is 2.",
        ),
    }  # fmt: skip
    file = st.file_uploader(
        RUN_LABELS["groups"],
        type="csv",
        max_upload_size=1,
        key=f"groups-{key}",
        help="Largest weights of groups, such as industries: columns ticker, group and max_weight, 0.4 = 40 %.",
    )
    if file is not None:
        found["groups"] = file.getvalue()
    return found


def _read_groups(limits: dict[str, Any]) -> dict[str, Any]:
    """What `_limits` found, with the groups as text."""
    if "groups" not in limits:
        return limits
    try:
        return limits | {"groups": limits["groups"].decode("utf-8-sig")}
    except UnicodeDecodeError:
        raise SettingsError("groups: this is not text in UTF-8; save it as CSV in UTF-8.") from None


def _day(column: Any, label: str, usual: date | None, prices: str) -> date | None:
    day: date | None = column.date_input(
        label,
        usual,
        FIRST_DAY,
        LAST_DAY,
        key=f"{label}-{prices}",
        format="YYYY-MM-DD",
        help="Leave it empty to use all prices.",
    )
    return day


def _config(key: str) -> str:
    return st.text_area(
        RUN_LABELS["config"],
        key=f"config-{key}",
        placeholder=TOML,
        help="Settings of the agents that have no field of their own here, one per line.",
    )


def _changed(value: Any, usual: Any) -> Any:
    return None if value == usual else value


def _jobs(running: bool) -> None:
    """All jobs that were started here, and those of the REST service."""
    found = jobs.list_jobs()
    if running and not any(each.running for each in found):
        st.rerun()  # nothing runs any more: end the updates
    if not found:
        st.caption("No job has been started here yet. Jobs keep running when the page is closed, and are listed here.")
    for each in found[:MAX_JOBS]:
        try:
            _job(each)
        except PortfolioSdpoError as error:
            st.error(str(error), icon=":material/error:")
    _service_jobs()


def _job(each: jobs.DashboardJob) -> None:
    job = each.job
    with st.container(border=True):
        summary, action = st.columns([5, 1], vertical_alignment="center")
        summary.markdown(f"{BADGES[job.status]} **{_plain(each.title) or job.kind}**  \n:small[{_when(each)}]")
        if each.running:
            word = "Terminate" if each.stopping else "Stop"
            if action.button(word, key=f"stop-{job.id}", icon=":material/stop_circle:"):
                jobs.stop(each.folder)
                st.rerun(scope="fragment")
            st.progress(job.fraction, text=_plain(job.progress) or ("stopping" if each.stopping else "starting"))
            if f"--algo={NO_AGENT}" not in each.command:
                st.page_link(get_page("training"), label="Watch the training", icon=":material/model_training:")
        elif action.button(
            "Remove", key=f"forget-{job.id}", type="tertiary", help="Removes the job from this list. Its results stay."
        ):
            jobs.forget(each.folder)
            st.rerun()
        if job.error is not None:
            st.error(_plain(describe_error(job.error, RUN_LABELS)), icon=":material/error:")
        if job.result is not None:
            _result(job.kind, job.result)
        with st.expander("Command and log"):
            st.code(
                shlex.join(["portfolio-sdpo", *each.command[len(jobs.COMMAND) :]]), language="bash", wrap_lines=True
            )
            if log := each.log():
                st.code(log, language=None, wrap_lines=True)


def _result(kind: str, result: dict[str, Any]) -> None:
    """The result of a job, with a link to the page that shows it."""
    if kind == "backtest" and "folder" in result:
        name = Path(result["folder"]).name
        st.page_link(
            get_page("backtest"), label="Open the results", query_params={RUN: name}, icon=":material/history:"
        )
    elif "reason" in result:
        st.markdown(_plain(str(result["reason"])))
        if result.get("outcome") == "promoted":
            st.page_link(get_page("live"), label="Today's weights", icon=":material/monitoring:")


def _service_jobs() -> None:
    """Jobs of the REST service, which keeps them in the registry."""
    try:
        found = open_registry().jobs(limit=MAX_JOBS)
    except PortfolioSdpoError:
        return  # the Live page reports it
    if found:
        with st.expander(f"Jobs of the REST service ({len(found)})"):
            for job in found:
                text = job.error or job.progress
                st.markdown(f"{BADGES[job.status]} {job.kind}, {job.created_at:%Y-%m-%d %H:%M} UTC  \n{_plain(text)}")


def _when(each: jobs.DashboardJob) -> str:
    job = each.job
    text = f"started {job.created_at:%Y-%m-%d %H:%M:%S} UTC"
    if job.ended_at is not None:
        text += f", took {(job.ended_at - job.created_at).total_seconds():.0f} s"
    return text + (", stop requested" if each.running and each.stopping else "")


def _plain(text: str) -> str:
    """Escape what Streamlit would take for Markdown."""
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>#+!|$~:" else letter for letter in text)
