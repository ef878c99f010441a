"""A challenger in shadow: decided on the same prices, audited, compared, and never served in place of the champion."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.backup import verify_registry
from portfolio_sdpo_app.api.config import ServeSettings
from portfolio_sdpo_app.api.errors import ProblemError
from portfolio_sdpo_app.api.services.auditor import Auditor
from portfolio_sdpo_app.api.services.shadow import Shadow

from ..helpers import ANY_AGE, problem, save_snapshot


def await_shadow(running: Any, day: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60.0
    while True:
        answer = running.http.get("/shadow")
        if answer.status_code == 200 and answer.json()["as_of"] == day:
            return answer.json()  # type: ignore[no-any-return]
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.02)


def test_a_challenger_beside_the_champion(serve: Callable[..., Any], champion: Callable[..., str], registry: Registry):
    save_snapshot("until-june", "2021-06-30")
    challenger = champion("june", label="challenger")
    chosen = champion("june")
    running = serve(shadow=challenger)
    served = running.settle().json()
    told = await_shadow(running, "2021-06-30")
    assert (served["model"]["id"], told["model"]["id"]) == (chosen, challenger)
    assert told["model"]["promotion"] is None and served["model"]["promotion"] == 2
    assert told["data"] == served["data"] and told["weights"] == served["weights"]  # the same policy by another name
    assert "portfolio_sdpo_shadow_distance 0\n" in running.http.get("/metrics").text

    save_snapshot("until-june", "2021-07-01")
    told = await_shadow(running, "2021-07-01")
    registry.promote(challenger, "it was no worse in shadow", by="test")
    rows = [row.entry for row in running.audited(3) if row.entry.model_id == challenger]
    shadows = [row for row in rows if row.request_id.startswith("shadow-")]
    assert {str(row.as_of) for row in shadows} == {"2021-06-30", "2021-07-01"}
    assert {str(row.as_of): dict(row.weights) for row in shadows}["2021-07-01"] == told["weights"]
    assert verify_registry(registry).sound


def test_its_prices_age_with_the_exchange(registry: Registry, champion: Callable[..., str]):
    model_id = champion()  # knows prices up to Thursday 2021-10-14
    now = datetime(2021, 10, 16, 3, tzinfo=UTC)  # Friday evening in New York
    settings = ServeSettings(max_age_sessions=5, shadow=model_id)
    shadow = Shadow(registry, settings, Auditor(registry), lambda: now)
    shadow.refresh()
    assert shadow.get_answer().content.data.age_sessions == 0  # type: ignore[union-attr]
    now = datetime(2021, 10, 16, 5, tzinfo=UTC)  # the same date in UTC; Friday is over
    shadow.refresh()
    assert shadow.get_answer().content.data.age_sessions == 1  # type: ignore[union-attr]


def test_it_recovers_from_what_passes(
    registry: Registry, champion: Callable[..., str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("portfolio_sdpo_app.api.services.shadow.RETRY", 0.1)
    model_id = champion()
    shadow = Shadow(registry, ServeSettings(max_age_sessions=ANY_AGE, shadow=model_id), Auditor(registry))
    load = type(registry).load_agent

    def fail(*_: Any) -> None:
        raise SettingsError("Too many files are open.")

    monkeypatch.setattr(type(registry), "load_agent", fail)
    shadow.refresh()
    with pytest.raises(ProblemError, match="Too many files"):
        shadow.get_answer()
    monkeypatch.setattr(type(registry), "load_agent", load)
    time.sleep(0.15)
    shadow.refresh()
    assert shadow.get_answer().content.model.id == model_id  # type: ignore[union-attr]


def test_without_one_there_is_nothing_to_compare(serve: Callable[..., Any], champion: Callable[..., str]):
    champion()
    running = serve()
    running.settle()
    problem(running.http.get("/shadow"), 404, "no-shadow")
    assert "shadow_distance" not in running.http.get("/metrics").text


def test_a_shadow_that_cannot_decide_stops_nothing(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry
):
    champion("unmet")
    unmet = registry.champion().model_id  # type: ignore[union-attr]
    champion("a")
    running = serve(shadow=unmet)
    running.settle()
    deadline = time.monotonic() + 60.0
    while running.http.get("/shadow").json()["type"].endswith(":starting") and time.monotonic() < deadline:
        time.sleep(0.02)
    problem(running.http.get("/shadow"), 503, "limit-not-met")
    assert running.http.get("/weights").status_code == 200
