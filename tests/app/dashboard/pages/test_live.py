"""*Live*: the weights that the REST service gives, what changed, and what speaks against them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from portfolio_sdpo.portfolio.market import all_cash, load_latest
from portfolio_sdpo.portfolio.store import today, train_agent
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.serving import ChampionDecisions

from ...api.helpers import serving
from ..conftest import QUICK, at_home, save_prices

PAGE = """
import streamlit as st
from portfolio_sdpo_app.dashboard.pages import live
from portfolio_sdpo_app.dashboard.navigation import PAGES, get_page

st.navigation([get_page(name) for name in PAGES])
live.render()
"""


def test_figures_are_those_of_the_service(visit: Callable, filled: str, filled_home: Path):
    with at_home(filled_home), Registry.open() as registry:
        with serving(registry) as service:
            told = service.settle(seconds=120.0).json()
        promotion = registry.champion()
    visitor = visit()
    page = visitor.open(filled, "")
    page.locator(".st-key-weights .main-svg").first.wait_for()
    figures = dict(visitor.figures(".cards"))
    assert figures == {
        "promised_cvar": told["promised_cvar"],
        "past_cvar": told["past_cvar"],
        "cash": told["weights"]["CASH"],
    }
    rows = {
        row.get_attribute("data-row"): float(row.locator("data[data-name=weight]").get_attribute("value"))
        for row in page.locator("table tr[data-row]").all()
    }
    held = {name: weight for name, weight in told["weights"].items() if weight >= 0.00005 or name == "CASH"}
    assert rows.items() >= held.items()
    assert page.locator(".cards [data-name=model]").inner_text() == told["model"]["id"] == promotion.model_id
    assert page.locator(".cards [data-name=as_of]").inner_text() == told["as_of"]
    warned = " ".join(page.locator("[data-testid=stAlert]").all_inner_texts())
    for each in told["warnings"]:
        assert each in warned
    assert page.locator("data[data-name=change]").count() == len(rows)
    changes = [value for name, value in visitor.figures("table") if name == "change"]
    assert sum(changes) == pytest.approx(0.0, abs=1e-3) and any(changes)
    visitor.keep("live-laptop-light")


@pytest.mark.parametrize(("width", "scheme"), [("phone", "light"), ("laptop", "dark")])
def test_it_fits(visit: Callable, filled: str, width: str, scheme: str):
    visitor = visit(width, scheme)
    visitor.open(filled, "").locator(".st-key-weights .main-svg").first.wait_for()
    visitor.no_sideways()
    visitor.keep(f"live-{width}-{scheme}")


def test_old_prices_are_refused_as_by_the_service_and_still_shown(filled_home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PORTFOLIO_SDPO_SERVE_MAX_AGE_SESSIONS", raising=False)
    with at_home(filled_home):
        script = AppTest.from_string(PAGE, default_timeout=300).run()
        assert not script.exception
        assert "sessions ago, and 2 are allowed: update them." in script.error[0].value
        assert "sessions ago." in script.warning[0].value
        assert any("data-row='CASH'" in each.body for each in script.main if each.type == "html")


def test_the_day_before_is_decided_as_it_was_then(filled_home: Path):
    """The champion, trained up to two sessions before the last, decides on the prices of one session less."""
    with at_home(filled_home), Registry.open() as registry:
        decisions = ChampionDecisions(registry)
        state = decisions.read_state()
        before = decisions.decide_previous_session(state)
        market, _ = load_latest("prices", "zero")
        then = market.until(len(market) - 2)
        agent = registry.load_agent(registry.champion().model_id)
        assert before.as_of == then.dates[-1].astype(date)
        assert before.today == today(agent, then, agent.decide(then, all_cash(len(then.assets))))
        assert decisions.decide_previous_session(state) is before  # not decided twice


def test_the_day_before_is_not_made_up(tmp_path: Path):
    """Who has been trained up to the last close cannot tell what it would have decided before."""
    with at_home(tmp_path), Registry.open() as registry:
        save_prices("prices", None)
        for seed in (1, 2):
            model = registry.add_model(train_agent(QUICK, snapshot="prices", seed=seed, label=f"m{seed}").folder)
            registry.promote(model.id, "for the test", by="test")
        decisions = ChampionDecisions(registry)
        assert decisions.decide_previous_session(decisions.read_state()) is None
