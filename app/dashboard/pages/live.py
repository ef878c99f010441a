"""*Live*: the weights to hold today, what changed, what was earned, whether the limit holds, and an account's orders.

The answer is computed by the code behind the REST service. Where the service would refuse to answer, the page says so
first. Weights from prices that are too old are still shown below that message: the page is for information only.
"""

from __future__ import annotations

import sys
import warnings
from datetime import UTC, datetime
from html import escape

import streamlit as st

from portfolio_sdpo.common.numbers import share
from portfolio_sdpo.errors import PortfolioSdpoError
from portfolio_sdpo.portfolio.agent_titles import make_agent_title
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.shield import CvarLimit
from portfolio_sdpo.prices.update import update_snapshot
from portfolio_sdpo.registry import Model, Promotion, Registry
from portfolio_sdpo.serving import (
    Answer,
    AnswerSettings,
    ChampionDecisions,
    ChampionState,
    Decision,
    NotServableError,
    Refusal,
    Weights,
    explain_shield,
    make_answer,
)

from ..data.backtests import Backtest, list_backtests, open_backtest
from ..data.earnings import Earnings, find_earnings
from ..data.job_requests import RetrainRequest, submit
from ..data.registry import open_registry
from ..navigation import get_page
from ..widgets.cards import format_age, percent, render_card
from ..widgets.curves import CURVES_ALT, draw_wealth_and_drawdown, render_summary
from ..widgets.earnings import render_earnings
from ..widgets.figures import show_figure
from ..widgets.orders import show_orders
from ..widgets.pickers import RUN
from ..widgets.style import show_html
from ..widgets.weights import VISIBLE, render_weights, show_bars


def render() -> None:
    """The page."""
    st.title("Live")
    decisions = _open_decisions(open_registry())
    state = decisions.read_state()
    settings = AnswerSettings.from_environment()  # as for the service
    with st.spinner("The champion is computing today's weights. It trains on new prices first."):
        served = make_answer(decisions, state, settings)
        answer = served
        if isinstance(served, Refusal) and served.kind == "stale-data":
            answer = make_answer(decisions, state, settings.model_copy(update={"max_age_sessions": sys.maxsize}))
    if isinstance(served, Refusal) and served.kind != "no-champion":
        st.error(f"The service does not serve weights now. {served.detail}", icon=":material/block:")
    if isinstance(answer, Refusal):
        _offer_next_step(answer)
        return
    _show_age(answer.content, told=isinstance(served, Refusal))
    _show(answer, state, _decide_previous_session(decisions, state, settings))
    _show_earnings(state)
    show_orders(decisions, state, settings, explain_shield(answer))
    with st.expander("Model, prices and shield"):
        show_html(_render_facts(answer.content, state))


def _show(answer: Answer, state: ChampionState, previous: Decision | None) -> None:
    content = answer.content
    for each in content.warnings:
        if each != _describe_age(content):
            st.warning(each, icon=":material/warning:")
    show_html(f"<dl class='cards'>{''.join(_render_cards(content, state))}</dl>")
    st.markdown(explain_shield(answer))
    if caps := _describe_caps(state):
        st.caption(f"Caps of the model: {caps}.")
    before = None
    if previous is not None:
        before = {name: previous.today["shielded"].get(name, 0.0) for name in content.weights}
    since = "" if previous is None else f"since the close of {previous.as_of}"
    st.subheader("Weights")
    wide, narrow = st.columns([3, 2], gap="large")
    with wide:
        show_bars(content.weights, before, since)
    with narrow:
        show_html(render_weights(content.weights, before, since))
        if previous is None:
            st.caption("The decision of the previous session is not available for these stocks, so no change is shown.")


def _describe_age(content: Weights) -> str:
    """What the answer says about the age of its prices, which the page shows once, beside the button that updates."""
    return next((each for each in content.warnings if each.startswith("The last prices are of ")), "")


def _show_age(content: Weights, *, told: bool) -> None:
    """How old the prices are, unless that was told as the reason of a refusal, and a button that fetches new ones."""
    age = _describe_age(content)
    if not age or content.data is None:
        return
    if not told:
        st.warning(age, icon=":material/warning:")
    name = content.data.snapshot
    if name is None:
        st.caption("The bundled prices end there. Retrain on prices of your own to get today's weights.")
    elif st.button("Update the prices", key="update", icon=":material/refresh:"):
        with st.spinner(f"Fetching new prices of {name}"):
            update_snapshot(name)
        st.rerun()


def _show_earnings(state: ChampionState) -> None:
    """What the champion has earned beside its rivals, and how far it is from its limit today."""
    assert state.model is not None and state.promotion is not None and state.prices is not None
    st.subheader("Earnings")
    try:
        with st.spinner("Simulating the champion and its rivals up to the last close"):
            found = _find_earnings(
                state.model.id, state.promotion.seq, state.prices.digest, open_registry(), state.model, state.promotion
            )
    except PortfolioSdpoError as error:
        st.caption(str(error))
        return
    show_html(render_earnings(found, CvarLimit(**state.model.settings["limit"])))


def _render_cards(content: Weights, state: ChampionState) -> list[str]:
    """The headline figures."""
    found = []
    if content.limit is not None:
        horizon, alpha = content.limit.horizon, content.limit.alpha
        meaning = (
            f"of these weights: worst {share(alpha)} of {horizon} sessions; limit {_percent2(content.limit.bound)}"
        )
        found.append(
            render_card("CVaR on past prices", content.past_cvar, _percent2, "past_cvar", meaning, content.limit)
        )
    found.append(render_card("Cash", content.weights["CASH"], percent, "cash", _format_held(content)))
    if content.model is not None and state.model is not None and state.promotion is not None:
        found.append(
            render_card(
                "Model",
                None,
                str,
                "model",
                f"trained up to <span class='nobr'>{content.model.trained_up_to}</span>, "
                f"created {format_age((_now() - state.model.created_at).total_seconds())}<br>"
                f"champion since <span class='nobr'>{state.promotion.at:%Y-%m-%d}</span>",
                words=content.model.id,
            )
        )
    if content.data is not None:
        origin = content.data.snapshot or content.data.source
        found.append(render_card("Prices up to", None, str, "as_of", escape(origin), words=str(content.as_of)))
        if content.trade_day is not None:
            due = "at the close of that day; the next decision is due then"
            if content.data.age_sessions:
                due = "was at the close of that day, when the next decision was due: update the prices"
            found.append(render_card("To be traded", None, str, "trade_day", due, words=str(content.trade_day)))
    return found


def _describe_caps(state: ChampionState) -> str:
    """What the model may hold and trade at most, apart from its CVaR limit; empty where that is not limited."""
    settings = {} if state.model is None else state.model.settings
    return Limits.model_validate(settings.get("limits", {})).describe()


def _render_facts(content: Weights, state: ChampionState) -> str:
    facts = {
        "Model": "none" if content.model is None else f"{content.model.id} ({_name_agent(content.model.label, state)})",
        "Promotion": "none" if state.promotion is None else f"{state.promotion.seq}: {state.promotion.reason}",
        "SHA-256 of the prices": "none" if content.data is None else content.data.sha256,
        "CVaR that the policy promised before the shield, on its own scenarios": "none"
        if content.promised_cvar is None
        else _percent2(content.promised_cvar),
        "Risky weights kept by the shield": "none" if content.shield_factor is None else percent(content.shield_factor),
        "Caps": _describe_caps(state) or "none",
        "Insufficient price history": ", ".join(content.removed) or "none",
    }
    return (
        "<dl class='facts'>"
        + "".join(f"<dt>{key}</dt><dd>{escape(text)}</dd>" for key, text in facts.items())
        + "</dl>"
    )


def _name_agent(label: str, state: ChampionState) -> str:
    return label if state.model is None else make_agent_title(label, state.model.settings)


def _offer_next_step(refusal: Refusal) -> None:
    """What to do where there are no weights to show."""
    if refusal.kind == "no-champion":
        newest = next((each for each in list_backtests() if each.config is not None), None)
        st.info(
            "No model is champion yet, so there are no weights to show. Run a retrain: the first model that "
            "stays within its CVaR limit on held-out days becomes the champion.",
            icon=":material/info:",
        )
        with st.container(horizontal=True, vertical_alignment="center"):
            if st.button("Train on the bundled sample", type="primary", icon=":material/bolt:", key="sample"):
                submit(RetrainRequest())
                st.switch_page(get_page("run"))  # where its progress is
            st.page_link(get_page("run"), label="Choose prices and settings")
        st.caption(
            "The sample holds nine large US stocks from 2016 to 2021. Training takes a few minutes in the background."
        )
        if newest is not None:
            _show_backtest(newest)
    else:
        st.page_link(get_page("data"), label="Show the prices", icon=":material/database:")


def _show_backtest(backtest: Backtest) -> None:
    """The newest backtest, where there is nothing else to look at."""
    run = open_backtest(backtest)
    st.subheader("The newest backtest")
    show_html(render_summary(run))
    show_figure(draw_wealth_and_drawdown(run), "equity", CURVES_ALT, legend=True)
    st.page_link(
        get_page("backtest"), label="Open the backtest", query_params={RUN: backtest.id}, icon=":material/history:"
    )


def _decide_previous_session(
    decisions: ChampionDecisions, state: ChampionState, settings: AnswerSettings
) -> Decision | None:
    try:
        with st.spinner("Computing the decision of the previous session"):
            return decisions.decide_previous_session(state, settings.suspicious)
    except NotServableError:
        return None  # the message above gives the reason


def _percent2(value: float) -> str:
    return percent(value, 2)


def _format_held(content: Weights) -> str:
    count = sum(weight >= VISIBLE for name, weight in content.weights.items() if name != "CASH")
    return f"{count} stock{'s' * (count != 1)} held"


def _now() -> datetime:
    return datetime.now(UTC)


@st.cache_resource(show_spinner=False, max_entries=8)
def _find_earnings(
    model_id: str, promotion_seq: int, prices: str, _registry: Registry, _model: Model, _promotion: Promotion
) -> Earnings:
    return find_earnings(_registry, _model, _promotion)


@st.cache_resource(show_spinner=False)
def _open_decisions(_registry: Registry) -> ChampionDecisions:
    # The answer carries this warning; catching it there would change the filters of other threads.
    warnings.filterwarnings("ignore", message="waits in cash")
    return ChampionDecisions(_registry)
