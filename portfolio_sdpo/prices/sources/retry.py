"""Trying again: exponential back-off with jitter, `Retry-After` honoured, attempts and waiting time bounded."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

from pydantic import Field

from portfolio_sdpo.errors import SourceError
from portfolio_sdpo.settings import Settings

Result = TypeVar("Result")


class RetrySettings(Settings):
    """How often a request is tried again and how long that may take."""

    attempts: int = Field(5, ge=1, le=20)
    """Requests per ticker, the first one included."""
    first_wait: float = Field(1.0, gt=0)
    """Seconds before the second attempt; every further wait is twice as long."""
    longest_wait: float = Field(60.0, gt=0)
    """No wait between two attempts is longer, unless the source asks for it."""
    total_wait: float = Field(180.0, ge=0)
    """Seconds that one fetch, of all its tickers together, may spend waiting."""
    jitter: float = Field(0.5, ge=0, le=1)
    """Share of a wait that is random, so that several users do not come back at the same moment."""
    sleep: Callable[[float], None] = Field(time.sleep, exclude=True, repr=False)
    """Waits the given seconds."""


class TransientFault(Exception):
    """A fault that may be gone at the next attempt, and what to raise if it is not."""

    def __init__(self, error: SourceError, retry_after: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after = retry_after


class Retrier:
    """Calls something until it works; remembers how long one fetch has waited so far."""

    def __init__(self, settings: RetrySettings, chance: Callable[[], float] = random.random) -> None:
        self._settings = settings
        self._chance = chance
        self._left = settings.total_wait

    def call(self, action: Callable[[], Result], on_wait: Callable[[float, SourceError], None]) -> Result:
        """The action's result; when attempts or patience are used up, the error that its last `TransientFault` carries.

        Any other exception passes at once.
        """
        attempt = 1
        while True:
            try:
                return action()
            except TransientFault as fault:
                wait = self._wait(attempt, fault.retry_after)
                if attempt == self._settings.attempts or wait > self._left:
                    raise fault.error from fault.__cause__
                on_wait(wait, fault.error)
            self._left -= wait
            self._settings.sleep(wait)
            attempt += 1

    def _wait(self, attempt: int, retry_after: float | None) -> float:
        settings = self._settings
        wait = min(settings.first_wait * 2 ** (attempt - 1), settings.longest_wait)
        wait *= 1 - settings.jitter * self._chance()
        return max(wait, retry_after or 0.0)


def parse_retry_after(text: str | None) -> float | None:
    """The header `Retry-After` in seconds from now; None when it is absent or makes no sense.

    >>> parse_retry_after("120"), parse_retry_after("soon")
    (120.0, None)
    """
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        if moment.tzinfo is None:  # "-0000" means: UTC, and nobody says from where
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    return max(seconds, 0.0) if math.isfinite(seconds) else None
