"""Retrains that take a moment."""

from __future__ import annotations

from typing import Any

from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.retrain import RetrainResult, RetrainSettings, retrain

QUICK: dict[str, Any] = {
    "history": 60,
    "paths": 8,
    "first": 6,
    "further": 2,
    "limit": {"horizon": 5, "alpha": 0.2, "bound": -0.3},
    "learner": {"kind": "analytic", "hidden": (4, 4), "learning_rate": 0.1},
}


def go(registry: Registry, snapshot: str | None = None, **changes: Any) -> RetrainResult:
    settings = {"snapshot": snapshot, "config": QUICK, "holdout": 20, **changes}
    return retrain(RetrainSettings(**settings), registry=registry)
