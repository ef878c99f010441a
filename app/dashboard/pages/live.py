"""*Live*: the weights to hold today, what changed, and whether the CVaR limit holds.

The answer is computed by the code behind the REST service. Where the service would refuse to answer, the page says so
first. Weights from prices that are too old are still shown below that message: the page is for information only.
"""

from __future__ import annotations

import os
import sys
import warnings
from datetime import UTC, datetime
from html import escape

import streamlit as st

from portfolio_sdpo.registry import Registry

from ...api.answering import Answers, Refusal, Sight
from ...api.deciding import Answer, Decision, UnservableError
from ...api.schemas import Weights
from ...api.settings import ServeSettings
from ..data.job_requests import RetrainRequest, submit
from ..data.registry import open_registry
from ..navigation import get_page
from ..widgets.cards import format_age, format_sessions, percent, render_card
from ..widgets.style import show_html
from ..widgets.weights import VISIBLE, render_weights, show_bars

SERVICE = "PORTFOLIO_SDPO_SERVE_"
"""What the service is told by the environment, this page is told too."""


def render() -> None:
    """The page."""
    st.title("Live")
    answers = _answers(open_registry())
    seen = answers.see()
    settings = _settings()
    with st.spinner("The champion is computing today's weights. It trains on new prices first."):
        state = answers.make(seen, settings.max_age_sessions, fail_to_cash=settings.fail_to_cash)
        shown = state
        if isinstance(state, Refusal) and state.kind == "stale-data":
            shown = answers.make(seen, sys.maxsize, fail_to_cash=False)
    if isinstance(state, Refusal) and state.kind != "no-champion":
        st.error(f"The service refuses to give weights. {state.detail}", icon=":material/block:")
    if isinstance(shown, Refusal):
        _offer(shown)
        return
    _show(shown, seen, _before(answers, seen))


def _show(answer: Answer, seen: Sight, before: Decision | None) -> None:
    content = answer.content
    for each in content.warnings:
        st.warning(each, icon=":material/warning:")
    show_html(f"<dl class='cards'>{''.join(_cards(content, seen))}</dl>")
    told = None if before is None else {name: before.today["shielded"].get(name, 0.0) for name in content.weights}
    since = "" if before is None else f"since the close of {before.as_of}"
    st.subheader("Weights")
    wide, narrow = st.columns([3, 2], gap="large")
    with wide:
        show_bars(content.weights, told, since)
    with narrow:
        show_html(render_weights(content.weights, told, since))
        if before is None:
            st.caption("The decision of the previous session is not available for these stocks, so no change is shown.")
    with st.expander("Model, prices and shield"):
        show_html(_facts(content, seen))


def _cards(content: Weights, seen: Sight) -> list[str]:
    """The figures that one looks at first."""
    found = []
    if content.limit is not None:
        horizon, alpha = content.limit.horizon, content.limit.alpha
        meaning = f"worst {alpha * 100:g} % of {horizon} sessions; limit {percent(content.limit.bound)}"
        found.append(
            render_card("Promised CVaR", content.promised_cvar, _fine, "promised_cvar", meaning, content.limit)
        )
        found.append(render_card("CVaR on past prices", content.past_cvar, _fine, "past_cvar", "after the shield"))
    found.append(render_card("Cash", content.weights["CASH"], percent, "cash", f"{_held(content)} stocks held"))
    if content.model is not None and seen.model is not None and seen.promotion is not None:
        found.append(
            render_card(
                "Model",
                None,
                str,
                "model",
                f"trained up to <span class='nobr'>{content.model.trained_up_to}</span>, "
                f"{format_age((_now() - seen.model.created_at).total_seconds())}<br>"
                f"champion since <span class='nobr'>{seen.promotion.at:%Y-%m-%d}</span>",
                words=content.model.id,
            )
        )
    if content.data is not None:
        origin = content.data.snapshot or content.data.source
        age = format_sessions(content.data.age_sessions)
        found.append(
            render_card("Prices up to", None, str, "as_of", f"{escape(origin)}, {age} old", words=str(content.as_of))
        )
    return found


def _facts(content: Weights, seen: Sight) -> str:
    facts = {
        "Model": "none" if content.model is None else f"{content.model.id} ({content.model.label})",
        "Promotion": "none" if seen.promotion is None else f"{seen.promotion.seq}: {seen.promotion.reason}",
        "sha256 of the prices": "none" if content.data is None else content.data.sha256,
        "Let through by the shield": "nothing" if content.shield_factor is None else percent(content.shield_factor),
        "Insufficient price history": ", ".join(content.removed) or "none",
    }
    return (
        "<dl class='facts'>"
        + "".join(f"<dt>{key}</dt><dd>{escape(text)}</dd>" for key, text in facts.items())
        + "</dl>"
    )


def _offer(refusal: Refusal) -> None:
    """What to do where there is nothing to show."""
    if refusal.kind == "no-champion":
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
    else:
        st.page_link(get_page("data"), label="Show the prices", icon=":material/database:")


def _before(answers: Answers, seen: Sight) -> Decision | None:
    try:
        with st.spinner("Computing the decision of the previous session"):
            return answers.day_before(seen)
    except UnservableError:
        return None  # what matters of it was said above


def _fine(value: float) -> str:
    return percent(value, 2)


def _held(content: Weights) -> int:
    return sum(weight >= VISIBLE for name, weight in content.weights.items() if name != "CASH")


def _settings() -> ServeSettings:
    given = {
        name: os.environ[variable]
        for name in ("max_age_sessions", "fail_to_cash")
        if (variable := SERVICE + name.upper()) in os.environ
    }
    return ServeSettings.model_validate(given)


def _now() -> datetime:
    return datetime.now(UTC)


@st.cache_resource(show_spinner=False)
def _answers(_registry: Registry) -> Answers:
    # The answer says it; catching it there would change the filters of other threads.
    warnings.filterwarnings("ignore", message="waits in cash")
    return Answers(_registry)
