"""Models, backtests, jobs and audit as the service tells them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from portfolio_sdpo.backtest.record import home as backtests
from portfolio_sdpo.backtest.record import read_record
from portfolio_sdpo.backtest.run import BacktestSettings
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.retrain import RetrainSettings
from portfolio_sdpo.report.result import run_backtest
from portfolio_sdpo_app.api import retraining
from portfolio_sdpo_app.api.retraining import Retraining

from .helpers import problem


def test_models(serve: Callable[..., Any], champion: Callable[..., str], registry: Registry):
    first, second = champion("a"), champion("b")
    http = serve().http
    listed = http.get("/models").json()
    assert (listed["champion"], listed["total"]) == (second, 2)
    assert {model["id"]: model["champion"] for model in listed["models"]} == {first: False, second: True}
    assert len(http.get("/models", params={"limit": 1, "offset": 1}).json()["models"]) == 1
    shown = http.get(f"/models/{first}").json()
    assert shown["config"] == registry.model(first).config
    assert [entry["model_id"] for entry in shown["promotions"]] == [second, first]
    assert not shown["champion"]


def test_backtests(serve: Callable[..., Any]):
    settings = BacktestSettings(strategies=("equal-weight",), start="2021-08-02", end="2021-08-31", bootstrap=None)
    done = run_backtest(settings)
    (backtests() / "20990101-000000-damaged0").mkdir()
    (backtests() / "20990101-000000-damaged0" / "config.json").write_text("{")
    http = serve().http
    listed = http.get("/backtests").json()
    assert [each["damaged"] for each in listed["backtests"]] == [True, False]
    assert listed["backtests"][1]["strategies"] == ["equal-weight"]
    shown = http.get(f"/backtests/{done.folder.name}").json()
    record = read_record(done.folder)
    assert shown["metrics"] == record.metrics and shown["config"] == record.config
    (track,) = shown["tracks"]
    assert track["dates"] == [str(day.date()) for day in record.equity["date"]]
    assert track["equity"]["wealth"] == record.equity["wealth"].tolist()
    assert track["equity"]["return"][0] is None
    assert next(iter(track["weights"])) == "CASH"
    assert track["weights"]["AAPL"] == record.weights["AAPL"].tolist()
    problem(http.get("/backtests/20990101-000000-damaged0"), 500, "record-damaged")


def test_audit_in_pages(serve: Callable[..., Any], champion: Callable[..., str]):
    model_id = champion()
    running = serve()
    running.settle()
    for number in range(9):
        running.http.get("/weights", headers={"X-Request-ID": f"r{number}"})
    total = len(running.audited(10))
    seen, before = [], None
    while True:
        page = running.http.get("/audit", params={"limit": 4} | ({"before": before} if before else {})).json()
        seen += [row["seq"] for row in page["rows"]]
        before = page["next_before"]
        if before is None:
            break
    assert seen == list(range(total, 0, -1))
    (row,) = running.http.get("/audit", params={"request_id": "r3"}).json()["rows"]
    assert row["model_id"] == model_id and sum(row["weights"].values()) == pytest.approx(1.0)
    assert running.http.get("/audit", params={"model_id": "other"}).json() == {"rows": [], "next_before": None}


STUB = """
import sys, time
from portfolio_sdpo.registry import Registry
registry, job = Registry.open(), sys.argv[1]
assert "seed" in sys.stdin.read()
registry.start_job(job)
registry.advance_job(job, "half", 0.5)
{then}
"""


@pytest.mark.parametrize(
    ("then", "status", "error"),
    [
        ("registry.finish_job(job, {'outcome': 'kept'})", "done", None),
        ("import os; os.kill(os.getpid(), 9)", "failed", "code -9"),
        ("time.sleep(60)", "failed", "stopped"),
    ],
    ids=["done", "killed", "stopped"],
)
def test_a_retrain_is_a_process_whose_job_always_ends(
    registry: Registry, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, then: str, status: str, error: str | None
):
    (tmp_path / "stub_job.py").write_text(STUB.format(then=then))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(retraining, "MODULE", "stub_job")
    runner = Retraining(registry, None)
    job = runner.start(RetrainSettings())
    while registry.job(job.id).progress != "half":
        time.sleep(0.05)
    if error == "stopped":
        with pytest.raises(Exception, match="is at it") as refused:
            runner.start(RetrainSettings())
        assert refused.value.more == {"job_id": job.id}  # type: ignore[attr-defined]
        runner.close()
    deadline = time.monotonic() + 30
    while (found := registry.job(job.id)).status == "running" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert found.status == status and (error is None) == (found.error is None)
    assert error is None or error in str(found.error)


def test_retrain_over_http(serve: Callable[..., Any], champion: Callable[..., str], monkeypatch: pytest.MonkeyPatch):
    champion()
    running = serve()
    running.settle()
    asked: list[RetrainSettings] = []

    def start(settings: RetrainSettings) -> Any:
        asked.append(settings)
        return running.service.registry.create_job("retrain")

    monkeypatch.setattr(running.service.retraining, "start", start)
    told = running.http.post("/retrain", json={"seed": 7})
    assert told.status_code == 202 and asked == [RetrainSettings(seed=7)]
    job = told.json()
    assert told.headers["location"] == f"/api/v1/jobs/{job['id']}"
    assert running.http.get(f"/jobs/{job['id']}").json() == job
    assert [each["id"] for each in running.http.get("/jobs").json()["jobs"]] == [job["id"]]
    assert job["status"] == "queued"


def test_a_service_that_starts_gives_up_the_jobs_of_the_one_before(serve: Callable[..., Any], registry: Registry):
    job = registry.create_job("retrain")
    assert serve().http.get(f"/jobs/{job.id}").json()["status"] == "failed"
