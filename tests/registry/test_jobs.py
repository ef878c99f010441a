"""The book of jobs: forward only."""

import pytest

from portfolio_sdpo.errors import NotRegisteredError, SettingsError


def test_a_job_from_start_to_end(registry):
    job = registry.create_job("retrain")
    assert (job.status, job.progress, job.fraction, job.started_at) == ("queued", "", 0.0, None)
    assert registry.start_job(job.id).status == "running"
    with pytest.raises(NotRegisteredError, match="that is queued"):
        registry.start_job(job.id)
    half = registry.advance_job(job.id, "training", 0.5)
    assert (half.progress, half.fraction) == ("training", 0.5)
    with pytest.raises(SettingsError, match="fraction: must lie between 0 and 1"):
        registry.advance_job(job.id, "too far", 1.5)
    done = registry.finish_job(job.id, {"outcome": "kept"})
    assert registry.job(job.id) == done
    assert (done.status, done.fraction, done.result, done.error) == ("done", 1.0, {"outcome": "kept"}, None)
    assert done.created_at <= done.started_at <= done.ended_at
    for late in (lambda: registry.fail_job(job.id, "x"), lambda: registry.advance_job(job.id, "x", 0.1)):
        with pytest.raises(NotRegisteredError):
            late()
    with pytest.raises(NotRegisteredError, match="There is no job 'x'"):
        registry.job("x")


def test_failures_and_lists(registry):
    one, two, three = (registry.create_job(kind) for kind in ("retrain", "retrain", "other"))
    registry.start_job(one.id)
    assert registry.fail_job(one.id, "no prices").error == "no prices"
    assert [job.id for job in registry.jobs(kind="retrain")] == [two.id, one.id]
    assert [job.id for job in registry.jobs(status="queued", limit=1)] == [three.id]
    assert registry.abandon_jobs("the service was started anew") == 2
    assert {job.status for job in registry.jobs()} == {"failed"}
