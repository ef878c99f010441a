"""Log lines: text or JSON, with the id of the request that they are about."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from portfolio_sdpo_app.api import logs
from portfolio_sdpo_app.api.services import posted_prices

from .helpers import save_snapshot
from .routes.test_weights import body_of


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is logged, as JSON."""
    told: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(self.format(record))

    keeper = Keeper()
    keeper.addFilter(logs._add_request_id)
    keeper.setFormatter(logs.JsonFormatter())
    for name in ("portfolio_sdpo.api", logs.ACCESS):
        logger = logging.getLogger(name)
        monkeypatch.setattr(logger, "handlers", [keeper])
        monkeypatch.setattr(logger, "level", logging.INFO)
    return told


def test_every_request_has_a_line(serve: Callable[..., Any], champion: Callable[..., str], lines: list[str]):
    champion()
    http = serve(access_log=True).http
    http.get("/nowhere?secret=1", headers={"X-Request-ID": "mine-1"})
    http.get("/health")
    deadline = time.monotonic() + 60.0
    while len(lines) < 2:  # logged after the answer
        assert time.monotonic() < deadline
        time.sleep(0.02)
    told = [json.loads(line) for line in lines if json.loads(line)["logger"] == logs.ACCESS]
    (mine,) = (each for each in told if each["request_id"] == "mine-1")
    assert (mine["method"], mine["status"], mine["caller"], mine["level"]) == ("GET", 404, "127.0.0.1", "info")
    assert mine["seconds"] >= 0 and mine["at"].endswith("+00:00") and "secret" not in json.dumps(mine)
    assert [each["route"] for each in told][-1].endswith("/health")


def test_what_a_thread_says_for_a_request_has_its_id(
    serve: Callable[..., Any], champion: Callable[..., str], lines: list[str], monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object) -> None:
        posted_prices_log.error("it is so")
        raise ValueError("broken")

    posted_prices_log = logging.getLogger("portfolio_sdpo.api")
    champion()
    monkeypatch.setattr(posted_prices, "parse_prices", fail)
    body = body_of(save_snapshot("whole", "2021-10-14"))
    answer = serve().http.post("/weights", json=body, headers={"X-Request-ID": "mine-2"})
    assert answer.status_code == 500 and answer.json()["request_id"] == "mine-2"
    deadline = time.monotonic() + 60.0
    while not any("traceback" in line for line in lines):  # logged after the answer
        assert time.monotonic() < deadline
        time.sleep(0.02)
    told = [json.loads(line) for line in lines]
    assert [each["request_id"] for each in told if each["message"] == "it is so"] == ["mine-2"]
    (failed,) = (each for each in told if "traceback" in each)
    assert failed["request_id"] == "mine-2" and "ValueError: broken" in failed["traceback"]


def test_lines_of_text(capsys: pytest.CaptureFixture[str]):
    record = logging.LogRecord("portfolio_sdpo.api", logging.INFO, "", 0, "weights", None, None)
    token = logs.request_id.set("mine-3")
    try:
        assert logs._add_request_id(record)
    finally:
        logs.request_id.reset(token)
    assert logging.Formatter(logs.TEXT).format(record).endswith("INFO weights [mine-3]")
