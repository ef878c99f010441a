"""Request and response bodies of the service. Those of the weights are in `portfolio_sdpo.serving.answer`."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Literal

from pydantic import ConfigDict, Field

from portfolio_sdpo.serving.answer import Schema


class PricesBody(Schema):
    """Adjusted closes of the champion's stocks."""

    model_config = ConfigDict(
        extra="forbid",
        allow_inf_nan=False,
        json_schema_extra={
            "examples": [
                {
                    "dates": ["2026-11-12", "2026-11-13"],
                    "tickers": ["AAPL", "MSFT"],
                    "closes": [[269.1, 505.2], [270.4, None]],
                    "held": {"CASH": 0.5, "AAPL": 0.5},
                }
            ]
        },
    )

    dates: list[date] = Field(min_length=1, max_length=20_000)
    """Sessions, ascending."""
    tickers: list[str] = Field(min_length=1, max_length=1_000)
    """All of the champion's stocks, in any order."""
    closes: list[list[float | None]] = Field(min_length=1, max_length=20_000)
    """One row per date with one close per ticker; null: not listed on that day."""
    held: dict[str, float] | None = Field(default=None, max_length=1_001)
    """Weights that are held now and sum to 1; all cash if omitted. They matter where the model accounts for fees."""


class ModelBrief(Schema):
    """A registered model."""

    id: str
    label: str
    champion: bool
    created_at: datetime
    added_at: datetime
    as_of: date
    data_hash: str
    parent: str | None
    limit: dict[str, Any]
    metrics: dict[str, Any] | None


class Models(Schema):
    """Registered models, newest first."""

    champion: str | None
    total: int
    models: list[ModelBrief]


class PromotionEntry(Schema):
    """When and why a model became champion."""

    seq: int
    kind: str
    model_id: str
    previous: str | None
    reason: str
    by: str
    at: datetime


class ModelDetail(ModelBrief):
    """Everything about a model except its parameters."""

    content_hash: str
    config: dict[str, Any]
    promotions: list[PromotionEntry]


class BacktestBrief(Schema):
    """A finished backtest."""

    id: str
    created_at: datetime | None
    strategies: list[str]
    data_hash: str | None
    damaged: bool = False


class Backtests(Schema):
    """Backtests, newest first."""

    total: int
    backtests: list[BacktestBrief]


class BacktestTrack(Schema):
    """The track of one strategy with one seed; every list has one value per date."""

    strategy: str
    seed: int | None
    dates: list[date]
    equity: dict[str, list[float | None]]
    """Columns wealth, return, cash_return, drawdown, cost and turnover."""
    weights: dict[str, list[float | None]]
    """Weights after the trade of the date, CASH first."""


class BacktestDetail(Schema):
    """Settings, metrics and tracks of a backtest."""

    id: str
    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    tracks: list[BacktestTrack]


class RetrainBody(Schema):
    """What to retrain on; whatever is omitted is taken from the champion."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"update": True}]})

    snapshot: str | None = Field(default=None, max_length=100)
    """Name of a snapshot; the champion's by default."""
    update: bool = False
    """Whether to fetch new prices from the snapshot's source first."""
    preset: str | None = Field(default=None, max_length=100)
    """default, lstm, lstm-same-close or paper-stocks; the champion's own settings by default."""
    algo: str | None = Field(default=None, max_length=100)
    """sdpo or ppo."""
    seed: int | None = Field(default=None, ge=0, le=2**31 - 1)


class JobState(Schema):
    """A job that runs in the background."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "20261113-220501-1a2b3c4d",
                    "kind": "retrain",
                    "status": "running",
                    "progress": "training the challenger: update 120",
                    "fraction": 0.4,
                    "created_at": "2026-11-13T22:05:01Z",
                    "started_at": "2026-11-13T22:05:02Z",
                    "ended_at": None,
                    "result": None,
                    "error": None,
                }
            ]
        }
    )

    id: str
    kind: str
    status: Literal["queued", "running", "done", "failed"]
    progress: str
    fraction: float
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    result: dict[str, Any] | None
    """`outcome` (promoted or kept), `reason`, `model_id`, `champion_id`, `run_id`."""
    error: str | None


class Jobs(Schema):
    """Jobs, newest first."""

    jobs: list[JobState]


class AuditEntryOut(Schema):
    """One answer with weights, as it was sent."""

    seq: int
    at: datetime
    request_id: str
    model_id: str | None
    data_hash: str | None
    as_of: date | None
    weights: dict[str, float]
    shield_factor: float | None
    promised_cvar: float | None
    limit: float | None
    warnings: list[str]
    response_hash: str
    """sha256 of the response body, which is also the ETag."""
    previous_hash: str
    hash: str


class AuditPage(Schema):
    """Rows of the audit log, newest first."""

    rows: list[AuditEntryOut]
    next_before: int | None
    """The value of `before` for the next page; None on the last page."""


class Health(Schema):
    """The process is alive."""

    status: Literal["ok"]
    version: str


class Ready(Schema):
    """Weights can be served. The other fields are null where a key is needed and none was sent."""

    status: Literal["ready"]
    as_of: date | None
    model_id: str | None
    fail_safe: str | None
