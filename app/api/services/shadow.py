"""A challenger in shadow: decided beside the champion on the same terms, audited like it, and never served as weights.

Its answer is made again when its prices or the day change, in a thread of its own. Each of them is a row of the audit
log, with `shadow-` and a number as its request id: with the model and the hash of the prices in both rows, the champion
and the challenger can be compared day by day before one is promoted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from portfolio_sdpo.errors import PortfolioSdpoError
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.serving import Answer, ChampionDecisions, Refusal, make_answer

from ..config import ServeSettings
from ..errors import ProblemError
from .auditor import Auditor

REQUEST_ID = "shadow-"
RETRY = 5.0
"""Seconds until an answer that could not be made is tried again, in case the cause was removed."""

log = logging.getLogger("portfolio_sdpo.api")


class Shadow:
    """Keeps the answer of the model that the settings name, or the reason why there is none."""

    def __init__(
        self,
        registry: Registry,
        settings: ServeSettings,
        auditor: Auditor,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.settings = settings
        self.auditor = auditor
        self.changes = 0
        """How often its answer was made."""
        self._decisions = ChampionDecisions(registry, now)
        self._answer: Answer | Refusal = Refusal("starting", "The shadow has just started: try again in a moment.")
        self._basis: tuple[Any, ...] | None = None
        self._retry_at = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shadow", daemon=True)

    def start(self) -> None:
        """Keep the answer up to date from now on, if a model is named."""
        if self.settings.shadow is not None:
            self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10.0)

    def get_answer(self) -> Answer:
        """The current answer; a `ProblemError` where there is none."""
        if self.settings.shadow is None:
            raise ProblemError("no-shadow", "No model is in shadow: start the service with --shadow MODEL.")
        if isinstance(self._answer, Answer):
            return self._answer
        raise ProblemError(self._answer.kind, self._answer.detail, headers={"Retry-After": "5"})

    def measure_distance(self, champion: Answer) -> float | None:
        """The share of the account that champion and challenger hold differently; None without a challenger."""
        answer = self._answer
        if not isinstance(answer, Answer):
            return None
        ours, theirs = champion.content.weights, answer.content.weights
        return sum(abs(ours.get(name, 0.0) - theirs.get(name, 0.0)) for name in ours.keys() | theirs.keys()) / 2

    def refresh(self) -> None:
        """Make the answer again if its prices, or the day, have changed."""
        state = self._decisions.read_model_state(str(self.settings.shadow))
        basis = self._decisions.list_inputs(state)
        began = time.monotonic()
        if basis == self._basis and not (isinstance(self._answer, Refusal) and began >= self._retry_at):
            return
        answer = make_answer(self._decisions, state, self.settings)
        if isinstance(answer, Refusal):
            log.warning("The model in shadow gives no weights (%s): %s", answer.kind, answer.detail)
        else:
            self.changes += 1
            self.auditor.note(answer, f"{REQUEST_ID}{self.changes}-{answer.sha256[:8]}")
        self._answer, self._basis, self._retry_at = answer, basis, time.monotonic() + RETRY

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.refresh()
            except PortfolioSdpoError as error:
                self._answer = Refusal("unchecked", "The model in shadow could not be checked: see the service's log.")
                log.error("The model in shadow: %s", error)
            except Exception:
                self._answer = Refusal("unchecked", "The model in shadow could not be checked: see the service's log.")
                log.exception("The model in shadow failed.")
            self._stop.wait(self.settings.check_every)
