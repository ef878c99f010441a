"""Where no weights are known to be right: a clear error, or all cash with a warning; never a silent old answer."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from portfolio_sdpo.registry import Registry
from portfolio_sdpo_app.api.config import ServeSettings
from portfolio_sdpo_app.api.errors import ProblemError
from portfolio_sdpo_app.api.services.publisher import Publisher

from ..helpers import problem, save_snapshot
from ..routes.test_weights import body_of

ALL = ("CASH", "AAPL", "CSCO", "DOW", "GE", "GS", "JNJ", "JPM", "MMM", "MSFT")


def flip_a_byte(registry: Registry, model_id: str) -> None:
    with registry.database.engine.connect().execution_options(writes=True) as connection, connection.begin():
        connection.exec_driver_sql(
            "UPDATE model_parts SET content = zeroblob(10) WHERE model_id = ? AND name = 'policy.safetensors'",
            (model_id,),
        )


def lose_the_prices(home: Path) -> None:
    for pointer in (home / "snapshots" / "names").iterdir():
        pointer.unlink()


@pytest.mark.parametrize("fail_to_cash", [False, True], ids=["error", "to cash"])
@pytest.mark.parametrize(
    "kind",
    ["no-champion", "champion-withdrawn", "stale-data", "limit-not-met", "model-corrupt", "data-unavailable"],
)
def test_without_an_answer(
    serve: Callable[..., Any],
    champion: Callable[..., str],
    registry: Registry,
    home: Path,
    kind: str,
    fail_to_cash: bool,
):
    settings: dict[str, Any] = {"fail_to_cash": fail_to_cash}
    match kind:
        case "stale-data":
            champion()
            settings["max_age_sessions"] = 1000
        case "limit-not-met":
            champion("unmet")
        case "champion-withdrawn":
            champion()
            registry.withdraw("prices in doubt", by="test")
        case "model-corrupt":
            flip_a_byte(registry, champion())
        case "data-unavailable":
            save_snapshot("until-june", "2021-06-30")
            champion("june")
            lose_the_prices(home)
    running = serve(**settings)
    if not fail_to_cash or kind in ("no-champion", "model-corrupt", "data-unavailable"):  # nothing was verified
        told = running.settle(kind)
        problem(told, 503, kind)
        assert told.headers["retry-after"] == "5"
        problem(running.http.get("/ready"), 503, kind)
        assert running.http.get("/health").status_code == 200
        assert "portfolio_sdpo_ready 0\n" in running.http.get("/metrics").text
        assert registry.audit() == []
        return
    answer = running.settle().json()
    assets = ("CASH",) if kind == "champion-withdrawn" else ALL
    assert answer["weights"] == {asset: float(asset == "CASH") for asset in assets}
    assert answer["fail_safe"].endswith(kind)
    assert "All cash is served instead" in answer["warnings"][0]
    assert (answer["promised_cvar"], answer["past_cvar"], answer["shield_factor"]) == (None, None, 0.0)
    assert running.http.get("/ready").json()["fail_safe"] == answer["fail_safe"]
    assert running.audited(1)[0].entry.warnings == tuple(answer["warnings"])


def test_a_promotion_mends_what_a_damaged_champion_broke(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry
):
    flip_a_byte(registry, champion("a"))
    running = serve()
    running.settle("model-corrupt")
    problem(running.http.post("/weights", json={"dates": [], "tickers": [], "closes": []}), 422, "invalid")
    good = body_of(save_snapshot("whole", "2021-10-14"))
    problem(running.http.post("/weights", json=good), 503, "model-corrupt")
    second = champion("b")
    assert running.settle().json()["model"]["id"] == second


def test_a_shield_that_cannot_meet_the_limit_on_given_prices(serve: Callable[..., Any], champion: Callable[..., str]):
    frame = save_snapshot("whole", "2021-10-14")
    champion("unmet")
    problem(serve().http.post("/weights", json=body_of(frame)), 409, "limit-not-met-on-prices")
    answer = serve(fail_to_cash=True).http.post("/weights", json=body_of(frame)).json()
    assert answer["weights"]["CASH"] == 1.0 and answer["fail_safe"].endswith("limit-not-met")


def test_prices_age_with_the_exchange(registry: Registry, champion: Callable[..., str]):
    champion()  # knows prices up to Thursday 2021-10-14
    now = datetime(2021, 10, 15, 3, tzinfo=UTC)
    publisher = Publisher(registry, ServeSettings(max_age_sessions=1), lambda: now)
    publisher.refresh()
    assert publisher.get_answer().content.data.age_sessions == 0  # type: ignore[union-attr]
    assert not any(" ago" in warning for warning in publisher.get_answer().content.warnings)
    now = datetime(2021, 10, 18, 3, tzinfo=UTC)
    publisher.refresh()
    assert publisher.get_answer().content.data.age_sessions == 1  # type: ignore[union-attr]
    assert "1 session ago" in publisher.get_answer().content.warnings[0]
    now = datetime(2021, 10, 19, 5, tzinfo=UTC)  # Monday is over in New York
    publisher.refresh()
    with pytest.raises(ProblemError, match="2 sessions ago"):
        publisher.get_answer()


def test_an_answer_that_is_not_confirmed_ends(serve: Callable[..., Any], champion: Callable[..., str]):
    champion()
    running = serve(lease=0.5)
    running.settle()
    running.services.registry.last_promotion = lambda: time.sleep(3.0)
    running.settle("unchecked")
    problem(running.http.get("/ready"), 503, "unchecked")
    del running.services.registry.last_promotion
    running.settle()


@pytest.mark.parametrize("audit", ["batched", "strict"])
def test_what_cannot_be_noted_is_not_said(
    serve: Callable[..., Any], champion: Callable[..., str], registry: Registry, home: Path, audit: str
):
    champion()
    running = serve(audit=audit, fail_to_cash=True)
    running.settle()
    running.audited(1)
    other = sqlite3.connect(home / "registry.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # nobody else can write
    said = 1
    while (answer := running.http.get("/weights", headers={"X-Request-ID": f"r{said}"})).status_code == 200:
        assert audit == "batched"
        said += 1
        time.sleep(0.02)
    problem(answer, 503, "audit-unavailable")
    if audit == "batched":
        problem(running.http.get("/ready"), 503, "audit-unavailable")
    other.execute("ROLLBACK")
    other.close()
    running.settle()
    rows = {row.entry.request_id for row in running.audited(said)}
    assert {f"r{number}" for number in range(1, said)} <= rows  # what was said before it was known is noted after all
    assert registry.verify_audit().sound
