"""Retraining over HTTP, to the end: a real process, a real judgement, the champion served after it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from portfolio_sdpo.registry import Registry

from ..helpers import save_snapshot


def test_a_retrain_runs_to_its_end_and_the_champion_of_then_is_served(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry
) -> None:
    before = champion("june")
    save_snapshot("until-june", "2021-07-14")
    running = serve()
    told = running.http.post("/retrain", json={"snapshot": "until-june"})
    assert told.status_code == 202, told.text
    job = _ended(running.http, told.headers["location"].removeprefix("/api/v1"))
    assert job["status"] == "done" and job["error"] is None, job
    result = job["result"]
    assert result["outcome"] in ("promoted", "kept") and result["reason"]
    challenger = registry.model(result["model_id"])
    assert str(challenger.as_of) == "2021-07-14" and challenger.parent == before
    live = registry.champion()
    assert live is not None and live.model_id == result["champion_id"]
    assert (live.model_id == challenger.id) == (result["outcome"] == "promoted")
    assert registry.runs(kind="retrain")[0].outcome == result["outcome"]
    assert registry.verify_promotions().sound

    again = running.http.post("/retrain", json={"snapshot": "until-june"})
    repeated = _ended(running.http, again.headers["location"].removeprefix("/api/v1"))["result"]
    assert repeated["champion_id"] == live.model_id and len(registry.model_ids()) == 2


def _ended(http: Any, place: str, seconds: float = 120.0) -> dict[str, Any]:
    deadline = time.monotonic() + seconds
    while True:
        job: dict[str, Any] = http.get(place).json()
        if job["status"] not in ("queued", "running") or time.monotonic() > deadline:
            return job
        time.sleep(0.2)
