"""What the champion decides on the latest prices, computed by the code that backtests use."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any, Literal

from portfolio_sdpo.errors import ModelCorruptError, PortfolioSdpoError, RegistryError, RegistryUnavailableError
from portfolio_sdpo.portfolio.last_prices import describe_recent_problems, find_suspicion
from portfolio_sdpo.portfolio.market import Array, Market, load_latest
from portfolio_sdpo.prices.calendar import find_local_date
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.registry import Model, Promotion, Registry
from portfolio_sdpo.serving.decision import Decision, TrainedAgents

SAMPLE_CALENDAR = "XNYS"
"""Exchange calendar of the bundled sample."""
CACHE_SIZE = 8
"""Decisions in memory, so that switching back and forth between champions does not train again."""
UNREADABLE_PRICES = "The champion's prices cannot be read: the service's log gives the reason; import or update them."

Suspicious = Literal["hold", "refuse", "serve"]
"""What is done about suspicious last prices: decide at the close before them, refuse, or decide on them with a remark.
Prices dated after tomorrow are never decided on."""

log = logging.getLogger("portfolio_sdpo.serving")


class NotServableError(Exception):
    """No weights can be given that are known to be right.

    `kind` is the last part of the problem type that the REST service reports, such as `stale-data`; `detail` is one
    sentence with the reason and the next step.
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True)
class PriceVersion:
    """Which version of a snapshot is the latest."""

    digest: str
    calendar: str | None
    """Exchange calendar by which the age of the prices is counted; None: every weekday is a session."""


@dataclass(frozen=True, eq=False)
class ChampionState:
    """The champion and its prices at one moment."""

    promotion: Promotion | None
    """None before the first, after the champion was withdrawn, and for a model in shadow."""
    model: Model | None
    prices: PriceVersion | None
    error: NotServableError | None
    """Why there is no champion, or why the model or its prices cannot be read."""


def leave_out_suspicious(
    market: Market, today: date, suspicious: Suspicious, trained: date | None = None
) -> tuple[Market, tuple[str, ...]]:
    """The market up to the last close that can be trusted, and what to say if that is not the last one of all.

    today: in UTC. trained: the close up to which the model knows prices already, before which it cannot decide.
    """
    found = find_suspicion(market, today)
    if found is None:
        return market, ()
    if suspicious == "serve" and not found.future:
        return market, (found.sentence,)
    known = found.trusted - 1
    if suspicious == "refuse" or known < 1 or (trained is not None and market.dates[known].astype(date) < trained):
        raise NotServableError("suspicious-prices", found.sentence)
    return market.until(known), (f"These are the weights of the close {market.dates[known]}. {found.sentence}",)


class ChampionDecisions:
    """Reads the champion and its prices, and computes each decision once: the same prices give the same decision."""

    def __init__(self, registry: Registry, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.registry = registry
        self.now = now
        self._agents = TrainedAgents(registry)
        self._cache: OrderedDict[tuple[str, str], Decision] = OrderedDict()
        self._lock = threading.Lock()

    def read_state(self) -> ChampionState:
        """The champion and the latest version of its prices; fast, since nothing is decided."""
        last = self.registry.last_promotion()
        promotion = None if last is None or last.kind == "withdraw" else last
        model, prices = None, None
        try:
            if last is None:
                raise NotServableError("no-champion", "No model is champion yet: promote one.")
            if promotion is None:
                raise NotServableError(
                    "champion-withdrawn",
                    f"The champion {last.model_id} was withdrawn ({last.reason.rstrip('.')}): promote a model.",
                )
            model = self._load_model(promotion.model_id)
            prices = _find_prices(model.config["data"].get("snapshot"))
        except NotServableError as error:
            return ChampionState(promotion, model, prices, error)
        return ChampionState(promotion, model, prices, None)

    def read_model_state(self, model_id: str) -> ChampionState:
        """A registered model, champion or not, and the latest version of its prices."""
        model, prices = None, None
        try:
            model = self._load_model(model_id)
            prices = _find_prices(model.config["data"].get("snapshot"))
        except NotServableError as error:
            return ChampionState(None, model, prices, error)
        return ChampionState(None, model, prices, None)

    def list_inputs(self, state: ChampionState) -> tuple[Any, ...]:
        """Everything that an answer depends on: it is the same answer for as long as these are the same.

        The age of prices changes with the date of their exchange, what is in the future with that in UTC.
        """
        now, calendar = self.now(), None if state.prices is None else state.prices.calendar
        days = find_local_date(now, calendar), now.astimezone(UTC).date()
        return (state.promotion, state.model and state.model.id, state.prices, str(state.error), days)

    def decide(
        self,
        model: Model,
        suspicious: Suspicious = "hold",
        weigh: Callable[[Market], Array] | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> Decision:
        """What the model decides on its latest prices; a second caller waits for the first.

        Suspicious last prices are refused with a `NotServableError`, or left out. weigh: the weights (cash first) that
        are held at the last close of the market on which the model decides; all cash if None. watch: called with the
        number of every update of the training, and may raise.
        """
        with self._lock:
            version, market, data, remarks = self._load_latest(model)
            market, left_out = leave_out_suspicious(market, self.now().astimezone(UTC).date(), suspicious, model.as_of)
            held = None if weigh is None else weigh(market)
            key = model.id, f"{version.digest} until {market.dates[-1]}{_name_held(model, held)}"
            decision = self._look_up(key) or self._compute(model, market, data, held, watch)
            if decision.remarks != (*left_out, *remarks):
                decision = replace(decision, remarks=(*left_out, *remarks))
            self._cache[key] = decision
            return decision

    def decide_previous_session(self, state: ChampionState, suspicious: Suspicious = "hold") -> Decision | None:
        """What the champion of the previous session decided at its close; None where that cannot be known.

        It is the session before the one that `decide` decides at. If today's champion was trained on that one already,
        it is the model that it replaced.
        """
        if state.promotion is None or state.model is None or state.prices is None:
            return None
        market, data = self._load_prices(state.model)
        try:
            market, _ = leave_out_suspicious(market, self.now().astimezone(UTC).date(), suspicious, state.model.as_of)
        except NotServableError:
            return None
        if len(market) < 2:
            return None
        known = market.until(len(market) - 2)
        day = known.dates[-1].astype(date)
        model: Model | None = state.model
        if state.model.as_of > day:
            model = None if state.promotion.previous is None else self.registry.model(state.promotion.previous)
        if model is None or model.as_of > day or model.assets != market.assets:
            return None
        key = model.id, f"{state.prices.digest} until {day}"
        with self._lock:
            decision = self._look_up(key)
            if decision is None:
                decision = self._cache[key] = self._compute(model, known, data)
            return decision

    def _look_up(self, key: tuple[str, str]) -> Decision | None:
        """A decision from the cache, from which the least recently used one is dropped when it is full."""
        while len(self._cache) > CACHE_SIZE:
            self._cache.popitem(last=False)
        if key in self._cache:
            self._cache.move_to_end(key)
        return self._cache.get(key)

    def _load_model(self, model_id: str) -> Model:
        try:
            return self.registry.model(model_id)
        except ModelCorruptError as error:
            raise NotServableError("model-corrupt", str(error)) from None

    def _load_latest(self, model: Model) -> tuple[PriceVersion, Market, dict[str, Any], tuple[str, ...]]:
        """The latest prices with the version that they are, and what there is to say about their last sessions."""
        name = model.config["data"].get("snapshot")
        while True:
            version = _find_prices(name)
            market, data = self._load_prices(model)
            remarks = () if name is None else self._describe_prices(name)
            if _find_prices(name) == version:  # otherwise newer prices came in between
                return version, market, data, remarks

    def _describe_prices(self, name: str) -> tuple[str, ...]:
        try:
            return describe_recent_problems(Store().open(name))
        except PortfolioSdpoError as error:
            log.error("%s", error)
            raise NotServableError("data-unavailable", UNREADABLE_PRICES) from None

    def _load_prices(self, model: Model) -> tuple[Market, dict[str, Any]]:
        try:
            return load_latest(model.config["data"].get("snapshot"), model.config["cash"])
        except PortfolioSdpoError as error:
            log.error("%s", error)
            raise NotServableError("data-unavailable", UNREADABLE_PRICES) from None

    def _compute(
        self,
        model: Model,
        market: Market,
        data: dict[str, Any],
        held: Array | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> Decision:
        try:
            return self._agents.decide(model, market, data, held, watch)
        except RegistryUnavailableError:
            raise
        except RegistryError as error:
            raise NotServableError("model-corrupt", str(error)) from None
        except PortfolioSdpoError as error:
            raise NotServableError("cannot-decide", str(error)) from None


def _name_held(model: Model, held: Array | None) -> str:
    """The part of a decision's key that tells holdings apart; an account in cash is what nothing held is.

    It is not for a model with a limit on turnover, which counts only where it is known what is held.
    """
    limited = model.settings.get("limits", {}).get("max_turnover") is not None
    if held is None or (held[0] == 1.0 and not limited):
        return ""
    return f" holding {hashlib.sha256(held.tobytes()).hexdigest()}"


def _find_prices(snapshot: str | None) -> PriceVersion:
    if snapshot is None:
        return PriceVersion("bundled", SAMPLE_CALENDAR)
    try:
        digest, manifest = Store().find(snapshot)
    except PortfolioSdpoError as error:
        log.error("%s", error)
        raise NotServableError("data-unavailable", UNREADABLE_PRICES) from None
    return PriceVersion(digest, manifest.request.calendar)
