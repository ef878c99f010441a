"""A challenger in shadow: decided on the same prices, audited, compared, and never served in place of the champion."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.backup import verify_registry

from ..helpers import problem, save_snapshot


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
