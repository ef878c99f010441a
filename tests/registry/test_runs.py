"""The book of runs."""

import pytest

from portfolio_sdpo.errors import NotRegisteredError, SettingsError


def test_a_run_from_start_to_end(registry, ids):
    run = registry.start_run("retrain", "nightly", settings={"first": 5}, data_hash="d", seed=7)
    assert (run.kind, run.status, run.name, run.settings, run.seed) == (
        "retrain",
        "running",
        "nightly",
        {"first": 5},
        7,
    )
    assert registry.run(run.id) == run and run.ended_at is None
    done = registry.end_run(run.id, outcome="promoted", reason="better", model_id=ids[0], data_hash="e")
    assert (done.status, done.outcome, done.reason, done.model_id) == ("done", "promoted", "better", ids[0])
    assert done.data_hash == "e" and done.ended_at >= done.started_at
    with pytest.raises(NotRegisteredError, match="no running run"):
        registry.end_run(run.id)
    with pytest.raises(NotRegisteredError, match="There is no run 'x'"):
        registry.run("x")


def test_filters(registry, ids):
    made = [
        registry.start_run(kind, data_hash=data) for kind, data in (("train", "a"), ("retrain", "a"), ("train", "b"))
    ]
    names = [run.id for run in made]
    registry.end_run(names[0], outcome="kept", model_id=ids[1])
    registry.end_run(names[2], "failed", reason="no prices")
    assert [run.id for run in registry.runs()] == names[::-1]
    assert [run.id for run in registry.runs(limit=1)] == names[2:]
    assert [run.id for run in registry.runs(kind="train")] == [names[2], names[0]]
    assert [run.id for run in registry.runs(kind="train", data_hash="a")] == [names[0]]
    assert [run.id for run in registry.runs(status="failed")] == [names[2]]
    assert [run.id for run in registry.runs(outcome="kept", model_id=ids[1])] == [names[0]]


def test_runs_of_the_dead(registry):
    run, other = registry.start_run("retrain"), registry.start_run("train")
    assert registry.abandon_runs("retrain", "the process is gone") == 1
    assert registry.run(run.id).status == "failed" and registry.run(run.id).reason == "the process is gone"
    assert registry.run(other.id).status == "running"


def test_settings_are_json(registry):
    with pytest.raises(SettingsError, match="settings: must be plain JSON"):
        registry.start_run("train", settings={"when": object()})
