"""The answer that is served now: a thread checks champion and prices, and replaces it when one of them changed.

A request only takes the answer that lies ready. An answer is valid for a lease, which every check renews. When checks
fail, hang or take long (a new champion trains before it decides), the old answer expires: it is never served silently.
The same holds where champion or prices cannot be read: an error that may pass replaces no answer before its lease ends.
Where the registry itself was replaced, the lease ends at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from portfolio_sdpo.errors import RegistryError, RegistryReplacedError
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.database import Identity
from portfolio_sdpo.serving import Answer, ChampionDecisions, Refusal, make_answer
from portfolio_sdpo.serving.answer import CASH_INSTEAD

from ..config import ServeSettings
from ..errors import REPLACED, ProblemError

RETRY = 5.0
"""Seconds until an answer that could not be made is tried again, in case the cause was removed."""

log = logging.getLogger("portfolio_sdpo.api")


class Publisher:
    """Keeps the current answer, or the reason why there is none."""

    def __init__(
        self,
        registry: Registry,
        settings: ServeSettings,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.registry = registry
        self.settings = settings
        self.changes = 0
        """How often the answer was replaced."""
        self._decisions = ChampionDecisions(registry, now)
        self._identity: Identity | None = None
        self._answer: Answer | Refusal = Refusal("starting", "The service has just started: try again in a moment.")
        self._basis: tuple[Any, ...] | None = None
        """Champion, prices and day that the current answer was made for."""
        self._refusal: Refusal | None = None
        """What to say when the lease of the answer has ended, if the last check found out."""
        self._valid_until = float("inf")
        self._retry_at = 0.0
        self._delay = "it takes long"
        """Why the last check has not ended well, for the message when the lease expires."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def start(self) -> None:
        """Refresh the answer now, and from now on regularly."""
        self._thread.start()

    def close(self) -> None:
        """Stop refreshing."""
        self._stop.set()
        self._thread.join(timeout=10.0)

    def get_answer(self) -> Answer:
        """The current answer; a `ProblemError` where there is none."""
        answer = self._answer
        if time.monotonic() > self._valid_until:
            answer = self._refusal or Refusal(
                "unchecked",
                f"Champion and prices could not be confirmed for {self.settings.lease:g} s ({self._delay}): the "
                "service's log gives the details; try again later.",
            )
        if isinstance(answer, Answer):
            return answer
        raise ProblemError(answer.kind, answer.detail, headers={"Retry-After": "5"})

    def refresh(self) -> None:
        """Confirm the current answer, or replace it."""
        began = time.monotonic()
        self._confirm_registry()
        state = self._decisions.read_state()
        basis = self._decisions.list_inputs(state)
        if basis == self._basis and not (self._retry_at and began >= self._retry_at):
            if self._refusal is None:
                self._valid_until = began + self.settings.lease
            return
        answer = make_answer(self._decisions, state, self.settings)
        if isinstance(answer, Refusal):
            log.warning("No weights can be served (%s): %s", answer.kind, answer.detail)
        failed = isinstance(answer, Refusal) or answer.content.fail_safe is not None
        self._retry_at = time.monotonic() + RETRY if failed else 0.0
        self._basis = basis
        if isinstance(answer, Refusal) and answer.kind not in CASH_INSTEAD and self._is_served():
            self._refusal = answer
            return
        self._answer, self._refusal = answer, None
        self.changes += 1
        # Counted from when the check began: what changed during a long one is seen by the next.
        self._valid_until = max(began, time.monotonic() - self.settings.check_every) + self.settings.lease

    def _is_served(self) -> bool:
        """Whether weights are being served, and their lease has not ended."""
        return isinstance(self._answer, Answer) and time.monotonic() <= self._valid_until

    def _confirm_registry(self) -> None:
        """End the lease at once if the registry is not the one that the answer came from."""
        try:
            found = self.registry.look()
        except RegistryReplacedError:
            self._end_lease()
            raise
        if self._identity not in (None, found):
            log.warning("The registry was replaced by another state of itself: the answer is made again from it.")
            self._end_lease()
        self._identity = found
        contradiction = self.registry.note_heads(found)
        if contradiction is not None:
            self._end_lease()
            raise RegistryReplacedError(
                f"The registry was replaced: {contradiction}; `portfolio-sdpo registry verify` repeats this."
            )

    def _end_lease(self) -> None:
        self._refusal, self._basis = Refusal("registry-replaced", REPLACED), None
        self._valid_until = 0.0

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.refresh()
                self._delay = "it takes long"
            except RegistryError as error:
                self._delay = "the registry cannot be read"
                log.error("%s", error)
            except Exception:
                self._delay = "an error in the service"
                log.exception("Checking champion and prices failed.")
            if self._valid_until == float("inf"):
                self._valid_until = 0.0  # the very first check failed
            self._stop.wait(self.settings.check_every)
