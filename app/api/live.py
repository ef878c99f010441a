"""What is served now: a thread looks at champion, prices and keys, and makes the answer anew when one of them changed.

A request only takes what lies ready. An answer stands for a lease that every look renews, so when looking fails, hangs
or takes long (a new champion trains on before it decides), the old answer ends by itself: never a silent old one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from portfolio_sdpo.errors import RegistryError
from portfolio_sdpo.registry import ApiKey, Registry

from .answering import Answers, Refusal
from .deciding import Answer
from .problems import ProblemError
from .settings import ServeSettings

AGAIN = 5.0
"""Seconds until what could not be served is tried again, should it have been mended."""

log = logging.getLogger("portfolio_sdpo.api")


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
        self._answers = Answers(registry, now)
        self._state: Answer | Refusal = Refusal("starting", "The service has just started: try again in a moment.")
        self._until = float("inf")
        self._made: tuple[Any, ...] | None = None
        self._retry_at = 0.0
        self._why = "it takes long"
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
        self._keys(self.registry.api_keys())
        found = self._answers.see()
        seen = (found.promotion, found.version, str(found.error), self._answers.now().date())
        if seen == self._made and not (self._retry_at and began >= self._retry_at):
            self._until = began + self.settings.lease
            return
        settings = self.settings
        state = self._answers.make(found, settings.max_age_sessions, fail_to_cash=settings.fail_to_cash)
        self._publish(state, seen, began)

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
