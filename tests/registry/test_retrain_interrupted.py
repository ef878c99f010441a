"""A retrain that is interrupted, killed, overtaken by another champion or by another retrain."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from portfolio_sdpo.errors import ChampionChangedError, RetrainBusyError
from portfolio_sdpo.portfolio.agent import Agent
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.retrain import RetrainSettings, retrain
from portfolio_sdpo.registry.retrain_lock import hold_retrain_lock
from tests.registry.retrain_examples import QUICK, go

pytestmark = pytest.mark.usefixtures("home")


def test_interrupted_after_its_last_step(local: Registry, sample, prices, monkeypatch: pytest.MonkeyPatch):
    """What was promoted is not noted as failed."""
    prices(sample)
    real = Registry.promote

    def promote(self: Registry, *given: Any, **values: Any) -> Any:
        real(self, *given, **values)
        raise KeyboardInterrupt

    monkeypatch.setattr(Registry, "promote", promote)
    with pytest.raises(KeyboardInterrupt):
        go(local, "mine")
    (run,) = local.runs(kind="retrain")
    assert (run.status, run.outcome, run.model_id) == ("done", "promoted", local.champion().model_id)
    assert go(local, "mine").run_id == run.id


def test_champion_changed_meanwhile(local: Registry, sample, prices, folder: Path):
    """Whoever was promoted during the retrain stays, and the next retrain is judged against it."""
    prices(sample)
    other = local.add_model(folder).id

    def meddle(share: float, what: str) -> None:
        if what == "promoting the challenger":
            local.promote(other, "by hand")

    asked = RetrainSettings(snapshot="mine", config=QUICK, holdout=20)
    with pytest.raises(ChampionChangedError):
        retrain(asked, registry=local, progress=meddle)
    assert local.champion().model_id == other
    assert retrain(asked, registry=local).new and "champion" in local.runs(kind="retrain", limit=1)[0].reason


def test_killed_before_and_after_its_last_step(local: Registry, sample, prices, monkeypatch: pytest.MonkeyPatch):
    """What was judged is promoted without being trained again; what was promoted is noted as such."""
    prices(sample)

    def dead(*_: object, **__: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Registry, "promote", dead)
        patch.setattr(Registry, "end_run", dead)
        with pytest.raises(SystemExit):
            go(local, "mine")
    (model,) = local.models()
    (run,) = local.runs(kind="retrain")
    assert run.status == "running" and local.champion() is None
    with monkeypatch.context() as patch:
        patch.setattr(Agent, "decide", dead)
        patch.setattr(Registry, "end_run", _fail_on(Registry.end_run, "promoted"))
        with pytest.raises(SystemExit):
            go(local, "mine")
    assert (
        local.champion().model_id == model.id
        and local.run(run.id).reason == "Its process ended before the retrain did."
    )
    done = go(local, "mine")
    assert (done.outcome, done.model_id, done.new) == ("promoted", model.id, False)
    assert [each.status for each in local.runs(kind="retrain")] == ["done", "failed"]
    assert local.run(done.run_id).outcome == "promoted" and len(local.models()) == len(local.promotions()) == 1


def _fail_on(real: Callable[..., Any], outcome: str) -> Callable[..., Any]:
    def end(self: Registry, run_id: str, status: str = "done", **values: Any) -> Any:
        if values.get("outcome") == outcome or values.get("reason") == "The retrain was interrupted.":
            raise SystemExit
        return real(self, run_id, status, **values)

    return end


HOLD = """
from portfolio_sdpo.registry.retrain_lock import hold_retrain_lock
with hold_retrain_lock(registry.database):
    say(os.getpid()); sys.stdin.readline()
"""


def test_one_at_a_time(registry: Registry, url: str, start: Callable[..., Any]):
    """Across processes; the second is told who is at it, and after a kill the lock is free."""
    process = start(HOLD, url)
    holder = process.stdout.readline().strip()
    with pytest.raises(RetrainBusyError, match=f"process {holder} on .* since 20"):
        go(registry)
    assert registry.runs(kind="retrain") == []
    process.kill()
    process.wait()
    for _ in range(100):  # PostgreSQL takes a moment to see that nobody is there any more
        try:
            with (
                hold_retrain_lock(registry.database),
                pytest.raises(RetrainBusyError, match="process"),
                hold_retrain_lock(registry.database),
            ):
                pass
            break
        except RetrainBusyError:
            time.sleep(0.05)
    with hold_retrain_lock(registry.database):
        pass
