"""What the service answers."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

PREFIX = "urn:problem-type:portfolio-sdpo:"
"""Of the types of problems."""
HASH = "f2b0c4a97d1e5b8f6a3c2d9e0f7b1a4c5d6e8f90a1b2c3d4e5f60718293a4b5c"


class Schema(BaseModel):
    """Base of all: what is said below a field is its description in the OpenAPI document."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class ModelName(Schema):
    """The model that decided."""

    id: str
    """Names its content: the same id is the same model, to the last bit."""
    label: str
    trained_up_to: date
    promotion: int
    """The number of the promotion that made it champion."""


class Data(Schema):
    """The prices that it decided on."""

    sha256: str
    """Of the prices themselves, whatever file they came in."""
    snapshot: str | None
    """None for the bundled sample and for prices that came with the request."""
    source: str
    age_sessions: int
    """Sessions of the exchange that have ended since the last price."""


class Limit(Schema):
    """The mean of the worst fraction `alpha` of returns over `horizon` sessions is at least `bound`."""

    bound: float
    alpha: float
    horizon: int


class Weights(Schema):
    """What to hold from the close `as_of` on."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "as_of": "2026-11-13",
                    "weights": {"CASH": 0.4, "AAPL": 0.35, "MSFT": 0.25},
                    "model": {
                        "id": "20261113-5f2c9a01",
                        "label": "sdpo",
                        "trained_up_to": "2026-11-13",
                        "promotion": 12,
                    },
                    "data": {"sha256": HASH, "snapshot": "dow", "source": "yahoo", "age_sessions": 0},
                    "limit": {"bound": -0.05, "alpha": 0.05, "horizon": 15},
                    "promised_cvar": -0.049,
                    "past_cvar": -0.05,
                    "shield_factor": 0.87,
                    "removed": [],
                    "fail_safe": None,
                    "warnings": [],
                }
            ]
        }
    )

    as_of: date | None
    """The close that the weights are from; None where there are no prices at all."""
    weights: dict[str, float]
    """CASH first, then every stock of the model; they sum to 1."""
    model: ModelName | None
    data: Data | None
    limit: Limit | None
    promised_cvar: float | None
    """CVaR of the policy before the shield, on the scenarios that it trained on."""
    past_cvar: float | None
    """CVaR of these weights on the past as the shield sees it; at least the limit's bound."""
    shield_factor: float | None
    """The share κ of the policy's stocks that the shield let through; the rest is cash."""
    removed: list[str]
    """Stocks that the shield moved to cash because their history is too short to vouch for."""
    fail_safe: str | None
    """None for a decision of the champion; else why all cash stands in for one."""
    warnings: list[str]


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
    """A row per date with a close per ticker; null = not listed on that day."""
    held: dict[str, float] | None = Field(default=None, max_length=1_001)
    """Weights that are held now and sum to 1; all cash when left out. They matter where trading costs something."""


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
    """Registered models, the newest first."""

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
    """Everything about a model but its content."""

    content_hash: str
    config: dict[str, Any]
    promotions: list[PromotionEntry]


class BacktestBrief(Schema):
    """A backtest that was written."""

    id: str
    created_at: datetime | None
    strategies: list[str]
    data_hash: str | None
    damaged: bool = False


class Backtests(Schema):
    """Backtests, the newest first."""

    total: int
    backtests: list[BacktestBrief]


class BacktestTrack(Schema):
    """What one strategy did with one seed; every list has a value per date."""

    strategy: str
    seed: int | None
    dates: list[date]
    equity: dict[str, list[float | None]]
    """wealth, return, cash_return, drawdown, cost, turnover."""
    weights: dict[str, list[float | None]]
    """After the trade of the date, CASH first."""


class BacktestDetail(Schema):
    """A backtest."""

    id: str
    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    tracks: list[BacktestTrack]


class RetrainBody(Schema):
    """What to retrain on; what is left out is the champion's."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"update": True}]})

    snapshot: str | None = Field(default=None, max_length=100)
    """A snapshot by name; by default the champion's."""
    update: bool = False
    """Whether its source is asked for new prices first."""
    preset: str | None = Field(default=None, max_length=100)
    """default or paper-stocks; by default the champion's own settings."""
    algo: str | None = Field(default=None, max_length=100)
    """sdpo or ppo."""
    seed: int | None = Field(default=None, ge=0, le=2**31 - 1)


class JobState(Schema):
    """Work that the service does on its own."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "20261113-220501-1a2b3c4d",
                    "kind": "retrain",
                    "status": "running",
                    "progress": "trains the challenger",
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
    """Jobs, the newest first."""

    jobs: list[JobState]


class AuditEntryOut(Schema):
    """One answer with weights, as it was given."""

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
    """sha256 of the body; also the ETag."""
    previous_hash: str
    hash: str


class AuditPage(Schema):
    """Rows of the audit, the newest first."""

    rows: list[AuditEntryOut]
    next_before: int | None
    """`before` of the next page; None on the last."""


class Health(Schema):
    """The process answers."""

    status: Literal["ok"]
    version: str


class Ready(Schema):
    """Weights can be asked for."""

    status: Literal["ready"]
    as_of: date | None
    model_id: str | None
    fail_safe: str | None
