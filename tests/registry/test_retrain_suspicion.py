"""What a retrain does not promote: suspicious prices, and anything after a champion was withdrawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from portfolio_sdpo.prices.ingest import import_snapshot
from portfolio_sdpo.prices.samples import load_sample
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.retrain import RetrainResult, RetrainSettings, retrain

QUICK: dict[str, Any] = {
    "history": 60,
    "paths": 8,
    "first": 2,
    "further": 1,
    "limit": {"horizon": 5, "alpha": 0.2, "bound": -0.3},
    "learner": {"kind": "analytic", "hidden": (4, 4), "learning_rate": 0.1},
}


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PORTFOLIO_SDPO_REGISTRY", raising=False)
    with Registry.open() as opened:
        yield opened


@pytest.fixture
def retrain_on(registry: Registry, tmp_path: Path) -> Callable[[pd.DataFrame], RetrainResult]:
    def run(frame: pd.DataFrame) -> RetrainResult:
        path = tmp_path / "mine.csv"
        frame.rename_axis("Date").to_csv(path)
        import_snapshot(path, "mine", calendar=None)
        return retrain(RetrainSettings(snapshot="mine", config=QUICK, holdout=21), registry=registry)

    return run


def test_a_slip_is_not_promoted_and_the_right_price_is(registry: Registry, retrain_on: Any):
    frame = load_sample("sample").frame.iloc[-160:, :3]
    first = retrain_on(frame.iloc[:-1])
    assert first.outcome == "promoted"
    slip = frame.copy()
    slip.iloc[-1, 0] *= 100
    for _ in range(2):
        kept = retrain_on(slip)
        assert (kept.outcome, kept.model_id, kept.champion_id) == ("kept", None, first.model_id)
        assert "nothing is trained on suspicious prices" in kept.reason and "check its price" in kept.reason
    right = retrain_on(frame)
    assert right.outcome == "promoted" and registry.champion().model_id == right.model_id != first.model_id


def test_a_future_row_is_not_promoted(registry: Registry, retrain_on: Any, monkeypatch: pytest.MonkeyPatch):
    """Stored by a machine whose clock was right, read by one whose clock is behind."""
    frame = load_sample("sample").frame.iloc[-160:, :3]
    first = retrain_on(frame.iloc[:-5])
    before = datetime(2021, 10, 8, tzinfo=UTC)  # the last row is of October 14th
    monkeypatch.setattr("portfolio_sdpo.registry.retrain.utc_now", lambda: before)
    kept = retrain_on(frame)
    assert (kept.outcome, kept.champion_id) == ("kept", first.model_id) and "after tomorrow" in kept.reason
    monkeypatch.undo()
    monkeypatch.setenv("PORTFOLIO_SDPO_HOME", str(Path(registry.place).parent))
    assert retrain_on(frame).outcome == "promoted"  # the same prices, once the clock is right


def test_a_withdrawn_champion_is_not_replaced_by_night(registry: Registry, retrain_on: Any):
    frame = load_sample("sample").frame.iloc[-160:, :3]
    first = retrain_on(frame.iloc[:-1])
    registry.withdraw("prices in doubt", by="test")
    kept = retrain_on(frame)
    assert kept.outcome == "kept" and "was withdrawn by test (prices in doubt)" in kept.reason
    assert registry.champion() is None
    registry.rollback("checked", by="test")
    done = retrain_on(frame)
    assert done.outcome == "promoted" and done.model_id != first.model_id
