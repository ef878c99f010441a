"""What is served now: a thread looks at champion, prices and keys, and makes the answer anew when one of them changed.

A request only takes what lies ready. An answer stands for a lease that every look renews, so when looking fails, hangs
or takes long (a new champion trains on before it decides), the old answer ends by itself: never a silent old one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from portfolio_sdpo.backtest.load import load_latest
from portfolio_sdpo.errors import ModelCorruptError, PortfolioSdpoError, RegistryError, RegistryUnavailableError
from portfolio_sdpo.market.snapshots import Store
from portfolio_sdpo.registry import ApiKey, Model, Promotion, Registry

from .deciding import Answer, Decision, UnservableError, age_in_sessions, all_in_cash, answer, decide, too_old
from .problems import ProblemError
from .settings import ServeSettings

CALENDAR = "XNYS"
"""Of the bundled sample."""
TO_CASH = frozenset(
    {"no-champion", "stale-data", "limit-not-met", "model-corrupt", "data-unavailable", "cannot-decide"}
)
"""Where all cash may stand in. Not where waiting helps: nobody should sell everything because a service starts."""
KEPT = 8
"""Decisions that are kept, for going back and forth between champions."""
AGAIN = 5.0
"""Seconds until what could not be served is tried again, should it have been mended."""

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


class Live:
    """The current answer, or why there is none."""

    def __init__(
        self,
        registry: Registry,
        settings: ServeSettings,
        keys: Callable[[list[ApiKey]], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.registry = registry
        self.settings = settings
        self.changes = 0
        """How often the answer was made anew."""
        self._keys = keys
        self._now = now
        self._state: Answer | Refusal = Refusal("starting", "The service has just started: try again in a moment.")
        self._until = float("inf")
        self._made: tuple[Any, ...] | None = None
        self._retry_at = 0.0
        self._why = "it takes long"
        self._decisions: OrderedDict[tuple[str, str], Decision] = OrderedDict()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live", daemon=True)

    def start(self) -> None:
        """Look, now and from now on."""
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._stop.set()
        self._thread.join(timeout=10.0)

    def current(self) -> Answer:
        """What to answer now; a `ProblemError` where there is nothing to answer."""
        if time.monotonic() > self._until:
            raise ProblemError(
                "unchecked",
                f"Champion and prices could not be confirmed for {self.settings.lease:g} s ({self._why}): the log of "
                "the service says more; try again later.",
                headers={"Retry-After": "5"},
            )
        state = self._state
        if isinstance(state, Answer):
            return state
        raise ProblemError(state.kind, state.detail, headers={"Retry-After": "5"})

    @property
    def fresh(self) -> bool:
        """Whether the last look is recent enough to rely on."""
        return time.monotonic() <= self._until

    def look(self) -> None:
        """Confirm what is served, or replace it."""
        began = time.monotonic()
        promotion = self.registry.champion()
        self._keys(self.registry.api_keys())
        model, version, error = None, None, None
        try:
            model = None if promotion is None else self._model(promotion)
            version = None if model is None else _version(model.config["data"].get("snapshot"))
        except UnservableError as found:
            error = found
        seen = (promotion, version, str(error), self._now().date())
        if seen == self._made and not (self._retry_at and began >= self._retry_at):
            self._until = began + self.settings.lease
        elif error is not None:
            self._publish(self._refused(error, promotion, model, None, 0), seen, began)
        else:
            self._publish(self._make(promotion, model, version), seen, began)

    def _publish(self, state: Answer | Refusal, seen: tuple[Any, ...], began: float) -> None:
        if isinstance(state, Refusal):
            log.warning("No weights can be served (%s): %s", state.kind, state.detail)
        failed = isinstance(state, Refusal) or state.content.fail_safe is not None
        self._retry_at = time.monotonic() + AGAIN if failed else 0.0
        self._state = state
        self._made = seen
        self.changes += 1
        # From when the look began: what changed during a long one is seen by the next.
        self._until = max(began, time.monotonic() - self.settings.check_every) + self.settings.lease

    def _make(self, promotion: Promotion | None, model: Model | None, version: Version | None) -> Answer | Refusal:
        decision, age = None, 0
        try:
            if promotion is None or model is None or version is None:
                raise UnservableError("no-champion", "No model is champion yet: promote one.")
            decision = self._decision(model, version)
            age = age_in_sessions(decision.as_of, version.calendar, self._now())
            if age > self.settings.max_age_sessions:
                raise too_old(decision.as_of, age, self.settings.max_age_sessions)
            return answer(decision, promotion, model, age)
        except UnservableError as error:
            return self._refused(error, promotion, model, decision, age)

    def _refused(
        self,
        error: UnservableError,
        promotion: Promotion | None,
        model: Model | None,
        decision: Decision | None,
        age: int,
    ) -> Answer | Refusal:
        if self.settings.fail_to_cash and error.kind in TO_CASH:
            log.warning("All cash is served (%s): %s", error.kind, error.detail)
            return all_in_cash(error.kind, error.detail, promotion, model, decision, age)
        return Refusal(error.kind, error.detail)

    def _model(self, promotion: Promotion) -> Model:
        try:
            return self.registry.model(promotion.model_id)
        except ModelCorruptError as error:
            raise UnservableError("model-corrupt", str(error)) from None

    def _decision(self, model: Model, version: Version) -> Decision:
        known = self._decisions.get((model.id, version.digest))
        if known is None:
            known = self._decide(model)
            if _version(model.config["data"].get("snapshot")) != version:
                return known  # of newer prices than those it would be kept under; the next look sees them
            self._decisions[model.id, version.digest] = known
            while len(self._decisions) > KEPT:
                self._decisions.popitem(last=False)
        self._decisions.move_to_end((model.id, version.digest))
        return known

    def _decide(self, model: Model) -> Decision:
        try:
            agent = self.registry.load_agent(model.id)
        except RegistryUnavailableError:
            raise
        except RegistryError as error:
            raise UnservableError("model-corrupt", str(error)) from None
        try:
            market, facts = load_latest(model.config["data"].get("snapshot"), model.config["cash"])
        except PortfolioSdpoError as error:
            log.error("%s", error)
            raise UnservableError("data-unavailable", _UNREADABLE) from None
        try:
            return decide(agent, market, facts)
        except PortfolioSdpoError as error:
            raise UnservableError("cannot-decide", str(error)) from None

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.look()
                self._why = "it takes long"
            except RegistryError as error:
                self._why = "the registry cannot be read"
                log.error("%s", error)
            except Exception:
                self._why = "a mistake in the service"
                log.exception("Looking at champion and prices failed.")
            if self._until == float("inf"):
                self._until = 0.0  # the very first look failed
            self._stop.wait(self.settings.check_every)


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
