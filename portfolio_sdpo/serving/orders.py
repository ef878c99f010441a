"""Orders that are served: what an account trades so that it holds the champion's weights.

The command `orders`, the REST service and the *Live* page answer with this code, so they agree to the cent.
"""

from __future__ import annotations

import csv
import io
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import ConfigDict, Field

from portfolio_sdpo.common.numbers import percent
from portfolio_sdpo.errors import OrderError, PortfolioSdpoError, SnapshotError
from portfolio_sdpo.portfolio.account import Holding, open_account
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.market import CASH, Array, Market
from portfolio_sdpo.portfolio.orders import MOST, Account, OrderSettings, OrderSheet, make_orders
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.serving.answer import (
    PROBLEM_PREFIX,
    Answer,
    AnswerSettings,
    Refusal,
    Schema,
    Weights,
    make_answer,
)
from portfolio_sdpo.serving.champion import UNREADABLE_PRICES, ChampionDecisions, ChampionState, NotServableError

SMALLEST_WEIGHT = 1e-6
SMALLEST_LOT = 0.1
"""A weight below this part of a lot is none."""
LAST_SEEN = 10
"""Sessions within which a stock without a close that day has its last price."""
ADJUSTED = "Adjusted closes are used: this snapshot has no raw ones, so counts are not the exchange's."
COLUMNS = ("ticker", "from", "to", "shares", "price", "money", "fee")

log = logging.getLogger("portfolio_sdpo.serving")


class OrderRequest(Schema):
    """An account, by its value, its holdings or both, and how weights become orders."""

    model_config = ConfigDict(
        extra="forbid",
        allow_inf_nan=False,
        json_schema_extra={
            "examples": [
                {
                    "account": 100000,
                    "holdings": [{"ticker": "AAPL", "shares": 100}, {"ticker": "MSFT", "money": 12500.5}],
                    "threshold": 0.002,
                    "lot": 1,
                    "fee_bps": 5,
                }
            ]
        },
    )

    account: float | None = Field(default=None, gt=0, le=MOST)
    """Value of the whole account; with holdings, what is not in stocks is cash."""
    holdings: list[Holding] = Field(default_factory=list, max_length=1_001)
    """What is held, in shares or in money; CASH in money. Nothing but cash if omitted."""
    threshold: float = Field(default=0.0, ge=0, lt=1)
    """No order below this share of the account's value."""
    lot: float = Field(default=1.0, ge=1e-6, le=1e6)
    """Shares that are traded at once; 0.001 where fractions can be traded."""
    fee_bps: float | None = Field(default=None, ge=0, lt=10_000)
    """Fee on what is traded, in hundredths of a percent; the fee that the champion was trained with if omitted."""


class OrderRow(Schema):
    """One purchase or sale."""

    model_config = ConfigDict(populate_by_name=True)

    ticker: str
    before: Annotated[float, Field(alias="from")]
    """Shares held before the order."""
    after: Annotated[float, Field(alias="to")]
    """Shares held after it."""
    shares: float
    """Shares bought (positive) or sold (negative)."""
    price: float
    money: float
    """Value of what is bought (positive) or sold (negative), in whole cents."""
    fee: float


class Orders(Schema):
    """The orders after which an account holds the served weights as closely as whole lots allow."""

    as_of: date
    """The close at which the weights were decided, and whose prices the orders are counted at."""
    trade: str
    """When the orders are meant to be traded."""
    explanation: str
    """What the agent wants, what the shield allows of it, and why."""
    orders: list[OrderRow]
    value: float
    """Of the account before the orders."""
    cash_before: float
    cash_after: float
    fees: float
    left_out: list[str]
    """Tickers whose position stays as it is because the order would be below the threshold."""
    weights_after: dict[str, float]
    """Weights after the orders, CASH first."""
    raw_closes: bool
    """Whether prices are closes as they were traded; otherwise they are adjusted ones."""
    remarks: list[str]
    """What there is to say about the prices of these orders."""
    answer: Weights
    """The answer that the orders follow."""

    def to_csv(self) -> str:
        """One row per order."""
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(COLUMNS)
        rows.writerows(
            (each.ticker, each.before, each.after, each.shares, each.price, each.money, each.fee)
            for each in self.orders
        )
        return text.getvalue()


@dataclass(frozen=True)
class _Closes:
    """Prices of one day, by ticker; NaN where there is none."""

    prices: Mapping[str, float]
    raw: bool
    remarks: tuple[str, ...]


def order_champion(
    decisions: ChampionDecisions,
    state: ChampionState,
    settings: AnswerSettings,
    request: OrderRequest,
    watch: Callable[[int], None] | None = None,
) -> Orders | Refusal:
    """The orders to give now, or why no weights are served. A wrong account is an `OrderError`.

    The champion decides as for `GET /weights`, but from what the account holds.
    """
    accounts: list[tuple[Account, _Closes]] = []

    def weigh(market: Market) -> Array:
        try:
            closes = _load_closes(state, market)
        except PortfolioSdpoError as error:
            log.error("%s", error)
            raise NotServableError("data-unavailable", UNREADABLE_PRICES) from None
        account = open_account(request.holdings, request.account, market.tickers, closes.prices)
        accounts.append((account, closes))
        return _weigh(account, market, closes)

    answer = make_answer(decisions, state, settings, weigh, watch)
    if isinstance(answer, Refusal):
        return answer
    content = answer.content
    if not accounts or content.as_of is None:  # all cash is served without any prices to sell at
        kind = (content.fail_safe or "").removeprefix(PROBLEM_PREFIX)
        return Refusal(kind, f"There are no prices to trade at. {' '.join(content.warnings)}")
    ((account, closes),) = accounts
    if content.fail_safe == PROBLEM_PREFIX + "stale-data":
        old = f"These orders are counted at the closes of {content.as_of}, which are not today's: update the prices."
        closes = replace(closes, remarks=(*closes.remarks, old))
    assert state.model is not None
    fee = state.model.settings["fee"] * 1e4 if request.fee_bps is None else request.fee_bps
    caps = Limits.model_validate(state.model.settings.get("limits", {}))
    rules = OrderSettings(
        fee_bps=fee, lot=request.lot, threshold=request.threshold, max_weight=caps.max_weight, groups=caps.groups
    )
    target = _drop_dust(content, account, closes, rules)
    return _describe(answer, make_orders(target, account, closes.prices, rules), closes)


RESERVE = 0.001
"""Of what the shield leaves of the limit, more than this is told."""


def explain_shield(answer: Answer) -> str:
    """One line: what the agent wants, what the shield allows of it, and why."""
    content, decision = answer.content, answer.decision
    if content.fail_safe is not None or decision is None or content.limit is None:
        return "All cash is served instead of a decision."
    if decision.waiting is not None:
        return f"The agent waits in cash: {decision.waiting}."
    today = decision.today
    wanted, allowed = 1.0 - today["weights"].get(CASH, 0.0), 1.0 - content.weights[CASH]
    share = today.get("traded", 1.0)
    if share < 1.0:
        return (
            f"The agent wants {percent(wanted)} in stocks; its limit on turnover leaves {percent(share, 0)} of the "
            f"change that the shield allows, and {percent(allowed)} after it."
        )
    limit, past = f"the limit of {percent(content.limit.bound, 2)}", "CVaR on past prices"
    if allowed >= wanted - SMALLEST_WEIGHT:
        return (
            f"The agent wants {percent(wanted)} in stocks and the shield allows all of it: their {past} is "
            f"{percent(today['past_shielded'], 2)}, within {limit}."
        )
    reasons = []
    if today["past"] < content.limit.bound:
        reasons.append(
            f"as wanted, their {past} would be {percent(today['past'], 2)}, beyond {limit}; as allowed, it is "
            f"{percent(today['past_shielded'], 2)}"
        )
        if not content.removed and today["past_shielded"] > content.limit.bound + RESERVE:
            reasons.append("the rest is kept for moves before the trade and for losses of the periods under way")
    if content.removed:
        reasons.append(f"insufficient price history of {', '.join(content.removed)}")
    why = f": {'; '.join(reasons)}" if reasons else ""
    return f"The agent wants {percent(wanted)} in stocks and the shield allows {percent(allowed)}{why}."


def _describe(answer: Answer, sheet: OrderSheet, closes: _Closes) -> Orders:
    content = answer.content
    assert content.as_of is not None and content.trade_day is not None
    return Orders(
        as_of=content.as_of,
        trade=f"At the close of {content.trade_day}; counted at the closes of {content.as_of}.",
        explanation=explain_shield(answer),
        orders=[
            OrderRow(
                ticker=each.ticker,
                before=each.before,
                after=each.after,
                shares=each.shares,
                price=each.price,
                money=each.money,
                fee=each.fee,
            )
            for each in sheet.orders
        ],
        value=sheet.value,
        cash_before=sheet.cash_before,
        cash_after=sheet.cash_after,
        fees=sheet.fees,
        left_out=list(sheet.left_out),
        weights_after=sheet.weights,
        raw_closes=closes.raw,
        remarks=list(closes.remarks),
        answer=content,
    )


def _load_closes(state: ChampionState, market: Market) -> _Closes:
    """The closes of the market's last day: raw ones, or where the snapshot has none, its adjusted ones."""
    assert state.model is not None and state.prices is not None
    name = state.model.config["data"].get("snapshot")
    if name is None:
        from portfolio_sdpo.prices.cleaning import clean
        from portfolio_sdpo.prices.samples import load_sample

        frame, raw = clean(load_sample("sample")).frame, False
    else:
        store = Store()
        _, manifest = store.find(name)
        try:
            frame, raw = store.open_raw_closes(manifest), True
        except SnapshotError:
            if "close" in manifest.companions:  # which is damaged
                raise
            frame, raw = store.open(name).frame, False
    day = pd.Timestamp(market.dates[-1])
    known = frame.loc[:day, list(market.tickers)].tail(LAST_SEEN)
    found = known.ffill().iloc[-1]
    remarks = [] if raw else [ADJUSTED]
    late = [str(ticker) for ticker in known.columns if math.isnan(known[ticker].iloc[-1]) and found[ticker] > 0.0]
    if late:
        remarks.append(f"{', '.join(late)}: has no close on {day.date()}, so the one before it is used.")
    return _Closes({str(ticker): float(price) for ticker, price in found.items()}, raw, tuple(remarks))


def _weigh(account: Account, market: Market, closes: _Closes) -> Array:
    """[1 + N] the share of each asset in what the account is worth, cash first."""
    money = [account.shares[name] * closes.prices[name] if account.shares.get(name) else 0.0 for name in market.tickers]
    held = np.array([account.cash, *money])
    if not math.isfinite(held.sum()) or held.sum() <= 0.0:
        raise OrderError(
            "The account is worth nothing, or holds a stock without a price: correct the holdings or give a value."
        )
    return held / held.sum()


def _drop_dust(content: Weights, account: Account, closes: _Closes, rules: OrderSettings) -> dict[str, float]:
    """The served weights without those that are too small to be traded, which are cash."""
    value = account.cash + math.fsum(count * closes.prices[name] for name, count in account.shares.items() if count)
    target = {}
    for name, weight in content.weights.items():
        lot = closes.prices.get(name, math.nan) * rules.lot
        dust = weight < SMALLEST_WEIGHT or weight * value < SMALLEST_LOT * lot
        target[name] = 0.0 if dust and name != CASH else weight
    target[CASH] = max(1.0 - math.fsum(weight for name, weight in target.items() if name != CASH), 0.0)
    return target
