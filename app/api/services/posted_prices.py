"""Decisions on prices that are sent with a request, as JSON or CSV."""

from __future__ import annotations

import csv
import hashlib
import io
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
from pydantic import ValidationError

from portfolio_sdpo.errors import PortfolioSdpoError, RegistryError
from portfolio_sdpo.portfolio.limits import check_weights
from portfolio_sdpo.portfolio.market import CASH, Array, load_latest_frame
from portfolio_sdpo.prices.calendar import count_sessions_since
from portfolio_sdpo.prices.prices import DATE_UNIT
from portfolio_sdpo.registry import Model, Promotion, Registry
from portfolio_sdpo.serving import (
    Answer,
    AnswerSettings,
    Decision,
    NotServableError,
    TrainedAgents,
    answer_all_cash,
    answer_decision,
    leave_out_suspicious,
)

from ..errors import ProblemError, to_validation_problem
from ..schemas import PricesBody

JSON, CSV = "application/json", "text/csv"
CALENDAR = "XNYS"
EARLIEST = date(1900, 1, 1)
KNOWN = 64
"""Bodies whose decisions are kept."""


class Abandonment(Exception):
    """Raised amid a training whose result nobody waits for."""


class PostedDecisions:
    """What the champion decides on the prices in a body; used by one thread.

    The decision on a body that was sent before is taken from memory, and so is, for other holdings, an agent that has
    trained on the same prices.
    """

    def __init__(self, registry: Registry, settings: AnswerSettings) -> None:
        self.registry = registry
        self.settings = settings
        self._agents = TrainedAgents(registry)
        self._known: OrderedDict[tuple[Any, ...], Decision] = OrderedDict()

    def answer(self, content: bytes, media_type: str, stop: threading.Event) -> Answer:
        """The answer to a body; where its prices are new to the champion, it trains on them first.

        Ends with an `Abandonment` soon after `stop` is set.
        """
        check = make_check(stop)
        check()
        promotion = self.registry.champion()
        if promotion is None:
            raise ProblemError("no-champion", "No model is champion: promote one.")
        model = self.registry.model(promotion.model_id)
        # What is suspicious depends on the day.
        day = datetime.now(UTC).date()
        key = model.id, day, media_type, hashlib.sha256(content).digest()
        decision = self._known.pop(key, None) or self._decide(model, parse_prices(content, media_type), day, check)
        self._known[key] = decision
        while len(self._known) > KNOWN:
            self._known.popitem(last=False)
        return self._answer(decision, promotion, model)

    def _decide(self, model: Model, body: PricesBody, day: date, check: Callable[[int], None]) -> Decision:
        check(0)
        frame = _make_frame(body, model.assets[1:])
        try:
            market, data = load_latest_frame(frame, model.config["cash"])
            held = None if body.held is None else _make_weights(body.held, model.assets)
            market, remarks = leave_out_suspicious(market, day, self.settings.suspicious, model.as_of)
            last = market.dates[-1]
            if not frame.loc[pd.Timestamp(last)].notna().any():
                # Some agents decide on an empty row: everything would be sold because nothing arrived.
                raise ProblemError("bad-prices", f"closes: no stock has a close on {last}: send those of that day.")
        except (PortfolioSdpoError, NotServableError) as error:
            raise ProblemError("bad-prices", str(error)) from None
        try:
            decision = self._agents.decide(model, market, data, held, check)
        except RegistryError:
            raise
        except PortfolioSdpoError as error:
            reason = str(error).partition(": ")[0].rstrip(".")
            detail = f"The champion cannot decide on these prices ({reason}): look for errors in them."
            raise ProblemError("bad-prices", detail) from None
        if decision.waiting is not None:
            raise ProblemError(
                "bad-prices", f"The prices do not suffice for a decision ({decision.waiting}): send more prices."
            )
        return replace(decision, remarks=remarks)

    def _answer(self, decision: Decision, promotion: Promotion, model: Model) -> Answer:
        age = count_sessions_since(decision.as_of, CALENDAR)
        try:
            return answer_decision(decision, promotion, model, age)
        except NotServableError as error:
            if self.settings.fail_to_cash:
                return answer_all_cash(error, promotion, model, decision, age)
            raise ProblemError("limit-not-met-on-prices", error.detail) from None


def make_check(stop: threading.Event) -> Callable[..., None]:
    """What a training calls after every update: it raises an `Abandonment` once `stop` is set."""

    def check(_: int = 0) -> None:
        if stop.is_set():
            raise Abandonment

    return check


def parse_prices(content: bytes, media_type: str) -> PricesBody:
    """The prices in a body of the given media type."""
    try:
        if media_type == CSV:
            return PricesBody.model_validate(_read_csv(content))
        return PricesBody.model_validate_json(content)
    except ValidationError as error:
        raise to_validation_problem(
            [{**each, "loc": ("body", *each["loc"])} for each in error.errors(include_url=False, include_input=False)]
        ) from None


def _read_csv(content: bytes) -> dict[str, object]:
    try:
        rows = [row for row in csv.reader(io.StringIO(content.decode("utf-8-sig")), strict=True) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ProblemError("invalid", f"The body is not CSV in UTF-8 ({error}): send rows `date,AAPL,...`.") from None
    if len(rows) < 2:
        raise ProblemError("invalid", "The body needs a header `date,AAPL,...` and at least one row.")
    return {
        "dates": [row[0].strip() for row in rows[1:]],
        "tickers": [name.strip() for name in rows[0][1:]],
        "closes": [[cell.strip() or None for cell in row[1:]] for row in rows[1:]],
    }


def _make_frame(body: PricesBody, tickers: tuple[str, ...]) -> pd.DataFrame:
    """The prices with the champion's stocks as columns, in its order."""
    if sorted(body.tickers) != sorted(tickers):
        raise ProblemError(
            "bad-prices", f"tickers: the champion needs prices of {', '.join(tickers)}; send exactly these."
        )
    if len(body.closes) != len(body.dates) or any(len(row) != len(tickers) for row in body.closes):
        raise ProblemError("bad-prices", "closes: send one row for every date with one close for every ticker.")
    if min(body.dates) < EARLIEST or max(body.dates) > datetime.now(UTC).date() + timedelta(days=1):
        raise ProblemError("bad-prices", f"dates: must lie between {EARLIEST} and today.")
    values = np.array(body.closes, dtype=np.float64)
    index = pd.DatetimeIndex(body.dates).as_unit(DATE_UNIT)
    return pd.DataFrame(values, index=index, columns=pd.Index(body.tickers)).loc[:, list(tickers)]


def _make_weights(held: dict[str, float], assets: tuple[str, ...]) -> Array:
    unknown = sorted(set(held) - set(assets))
    if unknown:
        raise ProblemError("bad-prices", f"held: {unknown[0][:40]} is neither {CASH} nor a stock of the champion.")
    return check_weights(np.array([held.get(asset, 0.0) for asset in assets]), (len(assets),))
