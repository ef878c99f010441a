"""*Live*: the weights that the REST service gives, what changed, and what speaks against them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from portfolio_sdpo import cli
from portfolio_sdpo.backtest.shielded import shield_strategy
from portfolio_sdpo.backtest.simulate import simulate
from portfolio_sdpo.backtest.strategies import make_benchmark
from portfolio_sdpo.common.numbers import number, percent
from portfolio_sdpo.errors import HistoryError
from portfolio_sdpo.portfolio.market import all_cash, load_latest
from portfolio_sdpo.portfolio.shield import CvarLimit
from portfolio_sdpo.portfolio.store import today, train_agent
from portfolio_sdpo.registry import Model, Registry
from portfolio_sdpo.registry.retrain import RetrainSettings, retrain
from portfolio_sdpo.serving import AnswerSettings, ChampionDecisions, Refusal
from portfolio_sdpo_app.dashboard.data.earnings import Earnings, find_earnings
from portfolio_sdpo_app.dashboard.pages import live
from portfolio_sdpo_app.dashboard.widgets.earnings import describe_distance

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
    page.locator("tr[data-earned=champion]").wait_for()
    earned = page.locator("tr[data-earned]")
    assert [row.get_attribute("data-earned") for row in earned.all()][:2] == ["champion", "equal-weight + shield"]
    assert page.locator("[data-testid=stMain]").inner_text().count("The last prices are of ") == 1
    page.get_by_role("button", name="Update the prices").wait_for()
    assert page.locator(".cards [data-name=trade_day]").inner_text() == told["trade_day"]
    warned = " ".join(page.locator("[data-testid=stAlert]").all_inner_texts())
    for each in told["warnings"]:
        assert each in warned
    assert page.locator("data[data-name=change]").count() == len(rows)
    changes = [value for name, value in visitor.figures("table") if name == "change"]
    assert sum(changes) == pytest.approx(0.0, abs=1e-3) and any(changes)
    visitor.keep("live-laptop-light")


def test_orders_are_those_of_the_command_and_the_service(
    visit: Callable, filled: str, filled_home: Path, tmp_path: Path
):
    """At the page's own address; figures to the cent, and the CSV to the byte."""
    holdings = tmp_path / "h.csv"
    holdings.write_text("ticker,shares\nAAPL,40\nMSFT,7\n")
    held = [{"ticker": "AAPL", "shares": 40}, {"ticker": "MSFT", "shares": 7}]
    body = {"account": 50_000, "holdings": held, "threshold": 0.001}
    with at_home(filled_home):
        with Registry.open() as registry, serving(registry) as service:
            told = service.http.post("/orders", json=body, timeout=120.0).json()
            as_csv = service.http.post("/orders", json=body, headers={"Accept": "text/csv"}, timeout=120.0).text
        options = ["--account", "50000", "--holdings", str(holdings), "--threshold", "0.001"]
        command = CliRunner().invoke(
            cli.build_app(), ["orders", *options, "--max-age-sessions", "1000000", "--json"], catch_exceptions=False
        )
    assert json.loads(command.stdout) == told and told["orders"]
    visitor = visit()
    page = visitor.open(filled, "live")
    assert page.locator("h1").inner_text() == "Live"
    page.locator(".st-key-holdings input[type=file]").set_input_files(str(holdings))
    for key, text in (("account", "50000"), ("threshold", "0.1")):
        field = page.locator(f".st-key-{key} input")
        field.fill(text)
        field.press("Enter")
        visitor.settle()
    page.get_by_text(f"{told['cash_after']:,.2f}").first.wait_for()
    shown = {
        row.get_attribute("data-order"): [
            float(row.locator(f"data[data-name={name}]").get_attribute("value")) for name in ("money", "fee")
        ]
        for row in page.locator("tr[data-order]").all()
    }
    assert shown == {order["ticker"]: [order["money"], order["fee"]] for order in told["orders"]}
    assert told["explanation"] in page.locator("[data-testid=stMain]").inner_text()
    with page.expect_download() as download:
        page.locator(".st-key-download-orders button").click()
    assert Path(download.value.path()).read_text() == as_csv
    visitor.keep("live-orders")


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
        # Told once, as the reason, beside the button that updates.
        assert not any("sessions ago" in each.value for each in script.warning)
        assert script.button(key="update").label == "Update the prices"
        assert any("data-row='CASH'" in each.body for each in script.main if each.type == "html")


def test_old_prices_are_shown_under_the_settings_of_the_service(monkeypatch: pytest.MonkeyPatch):
    """But for the age that is allowed."""
    asked: list[AnswerSettings] = []

    def refuse(_: object, __: object, settings: AnswerSettings) -> Refusal:
        asked.append(settings)
        return Refusal("stale-data", "The prices are old.")

    monkeypatch.setenv("PORTFOLIO_SDPO_SERVE_SUSPICIOUS", "serve")
    monkeypatch.setattr(live, "make_answer", refuse)
    monkeypatch.setattr(live, "open_registry", lambda: None)
    monkeypatch.setattr(live, "_open_decisions", lambda _: SimpleNamespace(read_state=lambda: None))
    monkeypatch.setattr(live, "_offer_next_step", lambda _: None)
    live.render()
    assert [each.suspicious for each in asked] == ["serve", "serve"]
    assert asked[1].max_age_sessions > 1_000_000


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


def test_what_was_earned_on_held_out_days_is_what_the_retrain_measured(tmp_path: Path):
    """And what was earned since is what the service would have served, beside rivals on the same days."""
    with at_home(tmp_path), Registry.open() as registry:
        save_prices("prices", -8)
        config = QUICK.model_dump(mode="json", include={"eta", "history", "paths", "first", "further", "learner"})
        settings = RetrainSettings(snapshot="prices", preset="default", config=config, holdout=40)
        done = retrain(settings, registry=registry)
        assert done.outcome == "promoted", done.reason
        model, promotion = registry.model(done.model_id), registry.champion()
        with pytest.raises(HistoryError, match="has earned nothing yet"):
            find_earnings(registry, train_alone(registry), promotion)
        save_prices("prices", None)
        found = find_earnings(registry, model, promotion)
        champion, equal, strongest = found.rows
        assert champion.held_out == pytest.approx(model.metrics["challenger"]["total_return"])
        assert str(found.first) == model.metrics["holdout"]["first"] and found.since == model.as_of
        assert not found.promoted  # that was years after the last close
        assert [each.name for each in (champion, equal)] == ["champion", "equal-weight + shield"]
        assert strongest.name.endswith(" + shield") and strongest.name != equal.name
        assert all(each.since is not None and each.cvar is not None for each in found.rows)
        market, _ = load_latest("prices", "zero")
        limit = CvarLimit(**model.settings["limit"])
        days = {"start": found.first, "end": found.last, "fee": model.settings["fee"]}
        track = simulate(market, shield_strategy(make_benchmark("equal-weight", limit), limit), **days)
        assert (1 + equal.held_out) * (1 + equal.since) == pytest.approx(track.wealth[-1])
        sentence = describe_distance(found, limit)
        assert f"data-name='recent'>{percent(found.recent)}" in sentence
        left = (found.recent - limit.bound) * 100
        assert f"{number(left)[:-1]}" in sentence and "points away" in sentence


def train_alone(registry: Registry) -> Model:
    """A model that was trained up to the last close and never held back."""
    return registry.add_model(train_agent(QUICK, snapshot="prices", seed=9, label="alone").folder)


def test_a_loss_beyond_the_limit_is_told_as_such():
    day = date(2020, 3, 20)
    found = Earnings(day, day, True, day, "track", (), -0.08)
    assert "3.0 points beyond the limit" in describe_distance(found, CvarLimit(bound=-0.05))
    assert "no whole period" in describe_distance(replace(found, recent=None), CvarLimit())


@pytest.fixture
def own_caches() -> Iterator[None]:
    """What the pages have opened belongs to one home."""
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()


@pytest.mark.usefixtures("own_caches")
def test_without_a_champion_the_newest_backtest_is_shown(filled_home: Path, tmp_path: Path):
    shutil.copytree(filled_home / "backtests", tmp_path / "backtests")
    with at_home(tmp_path):
        script = AppTest.from_string(PAGE, default_timeout=300).run()
        assert not script.exception
        assert "No model is champion yet" in script.info[0].value
        assert [each.value for each in script.subheader] == ["The newest backtest"]
        assert any("Final wealth" in each.body for each in script.main if each.type == "html")


def test_the_day_before_is_not_made_up(tmp_path: Path):
    """Who has been trained up to the last close cannot tell what it would have decided before."""
    with at_home(tmp_path), Registry.open() as registry:
        save_prices("prices", None)
        for seed in (1, 2):
            model = registry.add_model(train_agent(QUICK, snapshot="prices", seed=seed, label=f"m{seed}").folder)
            registry.promote(model.id, "for the test", by="test")
        decisions = ChampionDecisions(registry)
        assert decisions.decide_previous_session(decisions.read_state()) is None
