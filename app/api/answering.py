"""From the registry and the latest prices to an answer, or why there is none: for the service and the dashboard."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from portfolio_sdpo.errors import ModelCorruptError, PortfolioSdpoError, RegistryError, RegistryUnavailableError
from portfolio_sdpo.portfolio.market import Market, load_latest
from portfolio_sdpo.prices.snapshots import Store
from portfolio_sdpo.registry import Model, Promotion, Registry

from .deciding import Answer, Decision, UnservableError, age_in_sessions, all_in_cash, answer, decide, too_old

CALENDAR = "XNYS"
"""Of the bundled sample."""
TO_CASH = frozenset(
    {"no-champion", "stale-data", "limit-not-met", "model-corrupt", "data-unavailable", "cannot-decide"}
)
"""Where all cash may stand in. Not where waiting helps: nobody should sell everything because a service starts."""
KEPT = 8
"""Decisions that are kept, for going back and forth between champions."""

log = logging.getLogger("portfolio_sdpo.api")


@dataclass(frozen=True)
class Version:
    """Which prices are the latest."""

    digest: str
    calendar: str | None


@dataclass(frozen=True)
class Refusal:
    """Why there is no answer."""

    kind: str
    detail: str


@dataclass(frozen=True, eq=False)
class Sight:
    """What an answer is made of, as it was when somebody looked."""

    promotion: Promotion | None
    model: Model | None
    version: Version | None
    error: UnservableError | None


class Answers:
    """Makes answers, and remembers decisions: a champion on the same prices decides the same."""

    def __init__(self, registry: Registry, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.registry = registry
        self.now = now
        self._decisions: OrderedDict[tuple[str, str], Decision] = OrderedDict()
        self._deciding = threading.Lock()

    def see(self) -> Sight:
        """Champion and prices as they are now."""
        promotion, model, version = self.registry.champion(), None, None
        try:
            model = None if promotion is None else self._model(promotion)
            version = None if model is None else _version(model.config["data"].get("snapshot"))
        except UnservableError as error:
            return Sight(promotion, model, version, error)
        return Sight(promotion, model, version, None)

    def make(self, seen: Sight, max_age_sessions: int, *, fail_to_cash: bool) -> Answer | Refusal:
        """The answer; takes as long as the champion's training on takes where prices are new to it."""
        decision, age = None, 0
        try:
            if seen.error is not None:
                raise seen.error
            if seen.promotion is None or seen.model is None or seen.version is None:
                raise UnservableError("no-champion", "No model is champion yet: promote one.")
            decision = self.decision(seen.model, seen.version)
            age = age_in_sessions(decision.as_of, seen.version.calendar, self.now())
            if age > max_age_sessions:
                raise too_old(decision.as_of, age, max_age_sessions)
            return answer(decision, seen.promotion, seen.model, age)
        except UnservableError as error:
            if fail_to_cash and error.kind in TO_CASH:
                log.warning("All cash is served (%s): %s", error.kind, error.detail)
                return all_in_cash(error.kind, error.detail, seen.promotion, seen.model, decision, age)
            return Refusal(error.kind, error.detail)

    def decision(self, model: Model, version: Version) -> Decision:
        """What the model decides on these prices; whoever asks meanwhile waits for it."""
        key = model.id, version.digest
        with self._deciding:
            found = self._known(key)
            if found is None:
                found = self._decide(model, *self._prices(model))
                # Of newer prices than those it would be kept under, it is not kept; the next look sees them.
                if _version(model.config["data"].get("snapshot")) == version:
                    self._decisions[key] = found
            return found

    def day_before(self, seen: Sight) -> Decision | None:
        """What the champion of the session before decided at its close; None where it cannot be known.

        Where today's champion has already seen the last close, that is the one that it replaced.
        """
        if seen.promotion is None or seen.model is None or seen.version is None:
            return None
        market, facts = self._prices(seen.model)
        if len(market) < 2:
            return None
        known = market.until(len(market) - 2)
        day = known.dates[-1].astype(date)
        model: Model | None = seen.model
        if seen.model.as_of > day:
            model = None if seen.promotion.previous is None else self.registry.model(seen.promotion.previous)
        if model is None or model.as_of > day or model.assets != market.assets:
            return None
        key = model.id, f"{seen.version.digest} until {day}"
        with self._deciding:
            found = self._known(key)
            if found is None:
                found = self._decisions[key] = self._decide(model, known, facts)
            return found

    def _known(self, key: tuple[str, str]) -> Decision | None:
        """A decision that was kept, now the one used last; the one used longest ago makes room."""
        while len(self._decisions) > KEPT:
            self._decisions.popitem(last=False)
        if key in self._decisions:
            self._decisions.move_to_end(key)
        return self._decisions.get(key)

    def _model(self, promotion: Promotion) -> Model:
        try:
            return self.registry.model(promotion.model_id)
        except ModelCorruptError as error:
            raise UnservableError("model-corrupt", str(error)) from None

    def _prices(self, model: Model) -> tuple[Market, dict[str, Any]]:
        try:
            return load_latest(model.config["data"].get("snapshot"), model.config["cash"])
        except PortfolioSdpoError as error:
            log.error("%s", error)
            raise UnservableError("data-unavailable", _UNREADABLE) from None

    def _decide(self, model: Model, market: Market, facts: dict[str, Any]) -> Decision:
        try:
            agent = self.registry.load_agent(model.id)
        except RegistryUnavailableError:
            raise
        except RegistryError as error:
            raise UnservableError("model-corrupt", str(error)) from None
        try:
            return decide(agent, market, facts)
        except PortfolioSdpoError as error:
            raise UnservableError("cannot-decide", str(error)) from None


_UNREADABLE = "The champion's prices cannot be read: the service's log says why; import or update them."


def _version(snapshot: str | None) -> Version:
    if snapshot is None:
        return Version("bundled", CALENDAR)
    try:
        digest, manifest = Store().find(snapshot)
    except PortfolioSdpoError as error:
        log.error("%s", error)
        raise UnservableError("data-unavailable", _UNREADABLE) from None
    return Version(digest, manifest.request.calendar)
