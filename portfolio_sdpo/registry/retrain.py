"""Retraining on new prices: a challenger, a judgement on days that it has not seen, a promotion or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from portfolio_sdpo.registry.registry import Registry
from portfolio_sdpo.settings import Settings

Progress = Callable[[float, str], None]
"""Called with the share that is done, from 0 to 1, and what is being done."""


class RetrainSettings(Settings):
    """All that a retrain depends on besides the package, the prices and the champion."""

    snapshot: str | None = None
    """Name of the snapshot; None: the bundled sample."""
    update: bool = False
    """Whether the snapshot's source is asked for new prices first."""
    preset: str = "default"
    algo: str = "sdpo"
    config: dict[str, Any] = Field(default_factory=dict)
    """Fields of `AgentSettings` that count before the preset's."""
    fee_bps: float | None = Field(default=None, ge=0, lt=10_000)
    cash: str | float | None = None
    seed: int = Field(default=0, ge=0)
    holdout: int = Field(default=126, ge=2)
    """Sessions at the end of the prices that challenger and champion are judged on."""
    confidence: float = Field(default=0.95, gt=0, lt=1)


@dataclass(frozen=True)
class Retrained:
    """What came of a retrain."""

    outcome: Literal["promoted", "kept"]
    reason: str
    model_id: str | None
    """The challenger; None if none was made."""
    champion_id: str | None
    """Who is champion now."""
    run_id: str


def retrain(settings: RetrainSettings, *, registry: Registry, progress: Progress | None = None) -> Retrained:
    """Raises `RetrainBusyError` if another retrain of this registry is running."""
    raise NotImplementedError
