"""The answer that is served: a decision with its model, prices, limit and warnings, or the refusal to give one."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from portfolio_sdpo.common.numbers import percent, share
from portfolio_sdpo.portfolio.accounting import Execution
from portfolio_sdpo.portfolio.market import CASH, Array, Market
from portfolio_sdpo.prices.calendar import count_sessions_since, find_next_session
from portfolio_sdpo.registry import AuditEntry, Model, Promotion
from portfolio_sdpo.serving.champion import (
    SAMPLE_CALENDAR,
    ChampionDecisions,
    ChampionState,
    NotServableError,
    Suspicious,
)
from portfolio_sdpo.serving.decision import Decision
from portfolio_sdpo.settings import Settings

ENVIRONMENT = "PORTFOLIO_SDPO_SERVE_"
"""Prefix of the variables that set what `portfolio-sdpo serve` takes as options."""
PROBLEM_PREFIX = "urn:problem-type:portfolio-sdpo:"
"""Prefix of the problem types that the REST service reports."""
CASH_INSTEAD = frozenset({"champion-withdrawn", "stale-data", "limit-not-met"})
"""Problems for which all cash may be served instead: states that were verified. What could not be read or computed is
not among them, since nobody should sell everything because a file was missing or a service restarts."""

log = logging.getLogger("portfolio_sdpo.serving")


class AnswerSettings(Settings):
    """When weights are refused, and what is served then."""

    max_age_sessions: int = Field(default=2, ge=0)
    """Exchange sessions that may have ended since the last price."""
    suspicious: Suspicious = "hold"
    """What is done about a last price that moved by more than 35 %, or is dated after tomorrow."""
    fail_to_cash: bool = False
    """Serve all cash, with a warning, for a withdrawn champion, stale prices or a limit that no weights meet."""

    @classmethod
    def from_environment(cls) -> Self:
        """The settings that the service would take from its `PORTFOLIO_SDPO_SERVE_…` variables."""
        variables = {name: ENVIRONMENT + name.upper() for name in AnswerSettings.model_fields}
        return cls.model_validate(
            {name: os.environ[variable] for name, variable in variables.items() if variable in os.environ}
        )


class Schema(BaseModel):
    """Base of what is served: the text below a field is its description in the OpenAPI document."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class ModelName(Schema):
    """The model that decided."""

    id: str
    """Derived from the model's content: the same id is the same model, to the last bit."""
    label: str
    trained_up_to: date
    promotion: int | None
    """Number of the promotion that made it champion; None for a model in shadow."""


class Data(Schema):
    """The prices that the decision is based on."""

    sha256: str
    """Hash of the prices themselves, independent of the file they came in."""
    snapshot: str | None
    """None for the bundled sample and for prices that were sent with the request."""
    source: str
    age_sessions: int
    """Exchange sessions that have ended since the last price."""


class Limit(Schema):
    """The mean of the worst fraction `alpha` of returns over `horizon` sessions is at least `bound`."""

    bound: float
    alpha: float
    horizon: int


class Weights(Schema):
    """The weights decided at the close `as_of`, to be traded at the close of the `trade_day`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "as_of": "2026-11-13",
                    "execution": "next-close",
                    "trade_day": "2026-11-16",
                    "weights": {"CASH": 0.4, "AAPL": 0.35, "MSFT": 0.25},
                    "model": {
                        "id": "20261113-5f2c9a01",
                        "label": "sdpo",
                        "trained_up_to": "2026-11-13",
                        "promotion": 12,
                    },
                    "data": {
                        "sha256": "f2b0c4a97d1e5b8f6a3c2d9e0f7b1a4c5d6e8f90a1b2c3d4e5f60718293a4b5c",
                        "snapshot": "dow",
                        "source": "yahoo",
                        "age_sessions": 0,
                    },
                    "limit": {"bound": -0.05, "alpha": 0.05, "horizon": 15},
                    "promised_cvar": -0.049,
                    "past_cvar": -0.05,
                    "shield_factor": 0.87,
                    "removed": [],
                    "remarks": [],
                    "deviation": None,
                    "fail_safe": None,
                    "warnings": [],
                }
            ]
        }
    )

    as_of: date | None
    """The close at which the weights were decided; None where there are no prices at all."""
    execution: Execution | None
    """When the model expects its weights to be traded: at the close after that of the decision, or at the same."""
    trade_day: date | None
    """The session at whose close they are to be traded, as the exchange's calendar has it."""
    weights: dict[str, float]
    """CASH first, then every stock of the model; they sum to 1."""
    model: ModelName | None
    data: Data | None
    limit: Limit | None
    promised_cvar: float | None
    """CVaR of the policy before the shield, on the scenarios that it was trained on; None for a shared policy."""
    past_cvar: float | None
    """CVaR of these weights on past prices as the shield sees them; at least the limit's bound."""
    shield_factor: float | None
    """The share κ of the policy's risky weights that the shield lets through; the rest is cash."""
    removed: list[str]
    """Stocks that the shield moved to cash because of insufficient price history."""
    remarks: list[str] = Field(default_factory=list)
    """What there is to say about the last sessions: large moves, prices that stand still, missing sessions."""
    deviation: float | None = None
    """How far a shared policy leaves equal weights, from 0 to 1; the remarks say on what evidence."""
    fail_safe: str | None
    """None for a decision of the champion; otherwise the reason why all cash is served instead."""
    warnings: list[str]


@dataclass(frozen=True, eq=False)
class Answer:
    """Weights together with the bytes that are sent, which are made once."""

    content: Weights
    body: bytes
    sha256: str
    decision: Decision | None = None
    """What the champion decided; also where all cash is served instead, if it could decide."""

    @classmethod
    def from_content(cls, content: Weights, decision: Decision | None = None) -> Answer:
        """Serialise the content."""
        return cls.from_body(content, content.model_dump_json().encode(), decision)

    @classmethod
    def from_body(cls, content: Weights, body: bytes, decision: Decision | None = None) -> Answer:
        """Weights that are sent as, or within, these bytes."""
        return cls(content, body, hashlib.sha256(body).hexdigest(), decision)

    @property
    def etag(self) -> str:
        """A strong ETag: different bytes have different tags."""
        return f'"{self.sha256}"'

    def to_audit_entry(self, request_id: str, at: datetime) -> AuditEntry:
        """The row of the audit log that records this answer to a request."""
        content = self.content
        return AuditEntry(
            request_id=request_id,
            weights=content.weights,
            response_hash=self.sha256,
            model_id=None if content.model is None else content.model.id,
            data_hash=None if content.data is None else content.data.sha256,
            as_of=content.as_of,
            shield_factor=content.shield_factor,
            promised_cvar=content.promised_cvar,
            limit=None if content.limit is None else content.limit.bound,
            warnings=content.warnings,
            at=at,
        )


@dataclass(frozen=True)
class Refusal:
    """Why no weights are served; see `NotServableError`."""

    kind: str
    detail: str


def make_answer(
    decisions: ChampionDecisions,
    state: ChampionState,
    settings: AnswerSettings,
    weigh: Callable[[Market], Array] | None = None,
    watch: Callable[[int], None] | None = None,
) -> Answer | Refusal:
    """The answer to give now. Where prices are new to the champion this takes as long as its training on them.

    weigh, watch: see `ChampionDecisions.decide`.
    """
    decision, age = None, 0
    try:
        if state.error is not None:
            raise state.error
        assert state.model is not None and state.prices is not None
        decision = decisions.decide(state.model, settings.suspicious, weigh, watch)
        age = count_sessions_since(decision.as_of, state.prices.calendar, decisions.now())
        if age > settings.max_age_sessions:
            raise NotServableError(
                "stale-data",
                f"The last prices are of {decision.as_of}, {age} sessions ago, and {settings.max_age_sessions} are "
                "allowed: update them.",
            )
        return answer_decision(decision, state.promotion, state.model, age, state.prices.calendar)
    except NotServableError as error:
        if settings.fail_to_cash and error.kind in CASH_INSTEAD:
            log.warning("All cash is served (%s): %s", error.kind, error.detail)
            calendar = SAMPLE_CALENDAR if state.prices is None else state.prices.calendar
            return answer_all_cash(error, state.promotion, state.model, decision, age, calendar)
        return Refusal(error.kind, error.detail)


def answer_decision(
    decision: Decision, promotion: Promotion | None, model: Model, age: int, calendar: str | None = SAMPLE_CALENDAR
) -> Answer:
    """The answer for a decision; raises a `NotServableError` if no weights at all meet the limit."""
    today, limit = decision.today, Limit(**model.settings["limit"])
    if not today["meets"]:
        raise NotServableError(
            "limit-not-met",
            f"Not even all cash meets the limit of {share(limit.bound)}: cash loses more; change the limit or the "
            "rate of cash, and train another model.",
        )
    evidence = today.get("evidence")
    return Answer.from_content(
        Weights(
            as_of=decision.as_of,
            **_describe_trade(decision, model, calendar),
            weights={asset: today["shielded"].get(asset, 0.0) for asset in decision.assets},
            model=_name_model(promotion, model),
            data=_describe_data(decision.data, age),
            limit=limit,
            # An agent that waits in cash has not trained on these prices, so it promises nothing about them.
            promised_cvar=None if decision.waiting is not None else today["promised"],
            past_cvar=today["past_shielded"],
            shield_factor=today["kappa"],
            removed=today["removed"],
            remarks=[*decision.remarks, *([evidence["sentence"]] if evidence else [])],
            deviation=evidence["deviation"] if evidence else None,
            fail_safe=None,
            warnings=_collect_warnings(decision, limit, age),
        ),
        decision,
    )


def answer_all_cash(
    error: NotServableError,
    promotion: Promotion | None,
    model: Model | None,
    decision: Decision | None,
    age: int,
    calendar: str | None = SAMPLE_CALENDAR,
) -> Answer:
    """All cash, with the reason why it is served instead of a decision."""
    assets = (CASH,) if model is None else model.assets
    return Answer.from_content(
        Weights(
            as_of=None if decision is None else decision.as_of,
            **_describe_trade(decision, model, calendar),
            weights={asset: float(asset == CASH) for asset in assets},
            model=None if model is None else _name_model(promotion, model),
            data=None if decision is None else _describe_data(decision.data, age),
            limit=None if model is None else Limit(**model.settings["limit"]),
            promised_cvar=None,
            past_cvar=None,
            shield_factor=0.0,
            removed=[],
            remarks=[] if decision is None else list(decision.remarks),
            fail_safe=PROBLEM_PREFIX + error.kind,
            warnings=[f"All cash is served instead of a decision. {error.detail}"],
        ),
        decision,
    )


def _describe_trade(decision: Decision | None, model: Model | None, calendar: str | None) -> dict[str, Any]:
    """When the weights are to be traded; models from before there was a choice assume the same close."""
    execution = None if model is None else model.settings.get("execution", "same-close")
    if decision is None or execution is None:
        return {"execution": execution, "trade_day": None}
    late = execution == "next-close"
    return {
        "execution": execution,
        "trade_day": find_next_session(decision.as_of, calendar) if late else decision.as_of,
    }


def _name_model(promotion: Promotion | None, model: Model) -> ModelName:
    seq = None if promotion is None else promotion.seq
    return ModelName(id=model.id, label=model.label, trained_up_to=model.as_of, promotion=seq)


def _describe_data(data: Mapping[str, Any], age: int) -> Data:
    return Data(sha256=data["sha256"], snapshot=data["snapshot"], source=data["source"], age_sessions=age)


def _collect_warnings(decision: Decision, limit: Limit, age: int) -> list[str]:
    today, warnings = decision.today, []
    if age:
        warnings.append(f"The last prices are of {decision.as_of}, {age} session{'s' * (age > 1)} ago.")
    if decision.waiting is not None:
        warnings.append(f"The model waits in cash: {decision.waiting}.")
    elif today["promised"] is not None and today["promised"] < limit.bound:
        warnings.append(
            f"On its own scenarios the policy's CVaR is {percent(today['promised'], 2)}, beyond the limit of "
            f"{percent(limit.bound, 2)}; the shield checks the limit on past prices."
        )
    if today["removed"]:
        warnings.append(f"The shield moved {', '.join(today['removed'])} to cash: insufficient price history.")
    warnings += today["findings"]
    return warnings
