"""Retraining over HTTP, and the jobs that it makes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.retrain import RetrainSettings
from portfolio_sdpo_app.api.services import retrain_jobs
from portfolio_sdpo_app.api.services.retrain_jobs import RetrainJobs

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
    monkeypatch.setattr(retrain_jobs, "MODULE", "stub_job")
    runner = RetrainJobs(registry, None)
    job = runner.start(RetrainSettings())
    while registry.job(job.id).progress != "half":
        time.sleep(0.05)
    if error == "stopped":
        with pytest.raises(Exception, match="is running") as refused:
            runner.start(RetrainSettings())
        assert refused.value.extra == {"job_id": job.id}  # type: ignore[attr-defined]
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
        return running.services.registry.create_job("retrain")

    monkeypatch.setattr(running.services.retraining, "start", start)
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
