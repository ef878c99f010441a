"""Prices that come with a request, JSON or CSV, as the market that the champion decides on."""

from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pandas as pd
from pydantic import ValidationError

from portfolio_sdpo.errors import PortfolioSdpoError
from portfolio_sdpo.portfolio.limits import check_weights
from portfolio_sdpo.portfolio.market import CASH, Array, load_latest_frame
from portfolio_sdpo.prices.prices import DATE_UNIT
from portfolio_sdpo.registry import Registry

from .deciding import Answer, UnservableError, age_in_sessions, all_in_cash, answer, decide
from .problems import ProblemError, validation_problem
from .schemas import PricesBody
from .settings import ServeSettings

JSON, CSV = "application/json", "text/csv"
CALENDAR = "XNYS"
EARLIEST = date(1900, 1, 1)


def parse(content: bytes, media_type: str) -> PricesBody:
    """The prices in a body."""
    try:
        if media_type == CSV:
            return PricesBody.model_validate(_from_csv(content))
        return PricesBody.model_validate_json(content)
    except ValidationError as error:
        raise validation_problem(
            [{**each, "loc": ("body", *each["loc"])} for each in error.errors(include_url=False, include_input=False)]
        ) from None


def decide_on(registry: Registry, body: PricesBody, settings: ServeSettings) -> Answer:
    """What the champion decides on the caller's prices; takes as long as its training on takes."""
    promotion = registry.champion()
    if promotion is None:
        raise ProblemError("no-champion", "No model is champion yet: promote one.")
    model = registry.model(promotion.model_id)
    agent = registry.load_agent(model.id)
    frame = _frame(body, model.assets[1:])
    try:
        market, facts = load_latest_frame(frame, model.config["cash"])
        held = None if body.held is None else _held(body.held, model.assets)
        decision = decide(agent, market, facts, held)
    except PortfolioSdpoError as error:
        raise ProblemError("bad-prices", str(error)) from None
    if decision.waiting is not None:
        raise ProblemError("bad-prices", f"There is nothing to decide on ({decision.waiting}): send more prices.")
    age = age_in_sessions(decision.as_of, CALENDAR)
    try:
        return answer(decision, promotion, model, age)
    except UnservableError as error:
        if settings.fail_to_cash:
            return all_in_cash(error.kind, error.detail, promotion, model, decision, age)
        raise ProblemError("limit-not-met-on-prices", error.detail) from None


def _from_csv(content: bytes) -> dict[str, object]:
    try:
        rows = [row for row in csv.reader(io.StringIO(content.decode("utf-8-sig")), strict=True) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ProblemError("invalid", f"The body is no CSV in UTF-8 ({error}): send `date,AAPL,...` rows.") from None
    if len(rows) < 2:
        raise ProblemError("invalid", "The body needs a header `date,AAPL,...` and at least one row.")
    return {
        "dates": [row[0].strip() for row in rows[1:]],
        "tickers": [name.strip() for name in rows[0][1:]],
        "closes": [[cell.strip() or None for cell in row[1:]] for row in rows[1:]],
    }


def _frame(body: PricesBody, tickers: tuple[str, ...]) -> pd.DataFrame:
    """The prices in the order of the champion's stocks."""
    if sorted(body.tickers) != sorted(tickers):
        raise ProblemError("bad-prices", f"tickers: the champion decides on {', '.join(tickers)}; send all of these.")
    if len(body.closes) != len(body.dates) or any(len(row) != len(tickers) for row in body.closes):
        raise ProblemError("bad-prices", "closes: needs a row for every date with a close for every ticker.")
    if min(body.dates) < EARLIEST or max(body.dates) > datetime.now(UTC).date() + timedelta(days=1):
        raise ProblemError("bad-prices", f"dates: must lie between {EARLIEST} and today.")
    values = np.array(body.closes, dtype=np.float64)
    index = pd.DatetimeIndex(body.dates).as_unit(DATE_UNIT)
    return pd.DataFrame(values, index=index, columns=pd.Index(body.tickers)).loc[:, list(tickers)]


def _held(given: dict[str, float], assets: tuple[str, ...]) -> Array:
    unknown = sorted(set(given) - set(assets))
    if unknown:
        raise ProblemError("bad-prices", f"held: {unknown[0][:40]} is neither {CASH} nor a stock of the champion.")
    return check_weights(np.array([given.get(asset, 0.0) for asset in assets]), (len(assets),))
