"""From a champion and prices to an answer, by the very code that backtests walk with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import numpy as np

from portfolio_sdpo.portfolio.agent import Agent
from portfolio_sdpo.portfolio.market import CASH, Array, Market, all_cash
from portfolio_sdpo.portfolio.store import today
from portfolio_sdpo.prices.calendar import load_sessions
from portfolio_sdpo.registry import AuditEntry, Model, Promotion

from .schemas import PREFIX, Data, Limit, ModelName, Weights


class UnservableError(Exception):
    """There is no answer that is known to be right; `kind` is one of `problems.KINDS`."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True, eq=False)
class Answer:
    """Weights as the bytes that are sent, made once."""

    content: Weights
    body: bytes
    sha256: str

    @classmethod
    def of(cls, content: Weights) -> Answer:
        """The answer with this content."""
        body = content.model_dump_json().encode()
        return cls(content, body, hashlib.sha256(body).hexdigest())

    @property
    def etag(self) -> str:
        """Strong: other bytes have another."""
        return f'"{self.sha256}"'

    def entry(self, request_id: str, at: datetime) -> AuditEntry:
        """What is noted of having said it."""
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


@dataclass(frozen=True, eq=False)
class Decision:
    """What an agent decides at the last close of a market, whoever asks and whenever."""

    assets: tuple[str, ...]
    as_of: date
    today: Mapping[str, Any]
    """See `backtest.trained.today`."""
    facts: Mapping[str, Any]
    """About the prices."""
    waiting: str | None
    """Why it waits in cash, if it does."""


def decide(agent: Agent, market: Market, facts: Mapping[str, Any], held: Array | None = None) -> Decision:
    """Let a freshly loaded agent decide, from cash unless something is held, and pass the shield."""
    weights = agent.decide(market, all_cash(len(market.assets)) if held is None else held)
    last: date = market.dates[-1].astype(date)
    return Decision(market.assets, last, today(agent, market, weights), facts, agent.waiting)


def answer(decision: Decision, promotion: Promotion, model: Model, age: int) -> Answer:
    """The decision as it is told; an error where the shield did not find the limit met by anything."""
    told, limit = decision.today, Limit(**model.settings["limit"])
    if not told["meets"]:
        raise UnservableError(
            "limit-not-met",
            f"Not even all cash meets the limit of {limit.bound:.2%}: cash loses more; change the limit or the rate of "
            "cash, and train another model.",
        )
    waits = decision.waiting is not None
    return Answer.of(
        Weights(
            as_of=decision.as_of,
            weights={asset: told["shielded"].get(asset, 0.0) for asset in decision.assets},
            model=model_name(promotion, model),
            data=_data(decision.facts, age),
            limit=limit,
            # What waits in cash has not trained on these prices, so it promises nothing about them.
            promised_cvar=None if waits else told["promised"],
            past_cvar=told["past_shielded"],
            shield_factor=told["kappa"],
            removed=told["removed"],
            fail_safe=None,
            warnings=_warnings(decision, limit, age),
        )
    )


def all_in_cash(
    kind: str, detail: str, promotion: Promotion | None, model: Model | None, decision: Decision | None, age: int
) -> Answer:
    """What stands in for an answer where that is asked for."""
    assets = (CASH,) if model is None else model.assets
    return Answer.of(
        Weights(
            as_of=None if decision is None else decision.as_of,
            weights={asset: float(asset == CASH) for asset in assets},
            model=None if promotion is None or model is None else model_name(promotion, model),
            data=None if decision is None else _data(decision.facts, age),
            limit=None if model is None else Limit(**model.settings["limit"]),
            promised_cvar=None,
            past_cvar=None,
            shield_factor=0.0,
            removed=[],
            fail_safe=PREFIX + kind,
            warnings=[f"All cash stands in for a decision. {detail}"],
        )
    )


def model_name(promotion: Promotion, model: Model) -> ModelName:
    """Which model it was."""
    return ModelName(id=model.id, label=model.label, trained_up_to=model.as_of, promotion=promotion.seq)


def age_in_sessions(last: date, calendar: str | None, now: datetime | None = None) -> int:
    """Sessions of the exchange that have ended since the last price; of today nothing is expected yet.

    Days are UTC's, and without a calendar every weekday is a session.

    >>> age_in_sessions(date(2026, 11, 13), "XNYS", datetime(2026, 11, 17, 8, tzinfo=UTC))
    1
    """
    first = np.datetime64(last, "D") + 1
    until = np.datetime64((now or datetime.now(UTC)).astimezone(UTC).date(), "D")
    if until <= first:
        return 0
    if calendar is None:
        return int(np.busday_count(first, until))
    known = load_sessions(calendar, first, until - 1)
    # Past the end of what the calendar knows every weekday counts, or prices would never grow old there.
    beyond = max(first, known.end + 1)
    return len(known.days) + (int(np.busday_count(beyond, until)) if beyond < until else 0)


def too_old(last: date, age: int, allowed: int) -> UnservableError:
    """What is said of stale prices."""
    return UnservableError(
        "stale-data", f"The last prices are of {last}, {age} sessions ago, and {allowed} are allowed: update them."
    )


def _data(facts: Mapping[str, Any], age: int) -> Data:
    return Data(sha256=facts["sha256"], snapshot=facts["snapshot"], source=facts["source"], age_sessions=age)


def _warnings(decision: Decision, limit: Limit, age: int) -> list[str]:
    told, found = decision.today, []
    if age:
        found.append(f"The last prices are of {decision.as_of}, {age} session{'s' * (age > 1)} ago.")
    if decision.waiting is not None:
        found.append(f"The model waits in cash: {decision.waiting}.")
    elif told["promised"] < limit.bound:
        found.append(
            f"On its own scenarios the policy's CVaR is {told['promised']:.2%}, beyond the limit of {limit.bound:.2%}; "
            "the shield judges by the past."
        )
    if told["removed"]:
        found.append(f"The shield moved {', '.join(told['removed'])} to cash: too young to vouch for.")
    return found
