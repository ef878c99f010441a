"""A limit on the requests of each caller: a bucket of tokens that is refilled at a steady rate."""

from __future__ import annotations

from collections import OrderedDict

MAX_CALLERS = 10_000
"""Buckets in memory; the least recently used one is dropped first."""


class RateLimiter:
    """One bucket of tokens per caller; used by one thread.

    >>> limiter = RateLimiter(rate=1.0, burst=2)
    >>> [limiter.take("a", 0.0), limiter.take("a", 0.0), limiter.take("a", 0.5), limiter.take("b", 0.5)]
    [0.0, 0.0, 0.5, 0.0]
    """

    def __init__(self, rate: float, burst: int) -> None:
        self.rate = rate
        self.burst = float(burst)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, now: float) -> float:
        """Take one token and return 0, or return the seconds until there is one."""
        if not self.rate:
            return 0.0
        tokens, since = self._buckets.pop(caller, (self.burst, now))
        tokens = min(tokens + (now - since) * self.rate, self.burst)
        wait = 0.0 if tokens >= 1.0 else (1.0 - tokens) / self.rate
        self._buckets[caller] = (tokens if wait else tokens - 1.0, now)
        if len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)
        return wait
