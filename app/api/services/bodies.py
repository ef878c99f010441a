"""The bodies that are being received: how many bytes of them are in memory, in all and for each caller."""

from __future__ import annotations

from starlette.exceptions import HTTPException


class BodyBudget:
    """Bytes of request bodies in memory; used by one thread.

    One caller may have a quarter of them, at least one whole body, so that bodies which are sent slowly or never end
    leave room for those of others.
    """

    def __init__(self, most: int, body: int) -> None:
        self.most = max(most, body)
        self.share = max(most // 4, body)
        self.used = 0
        self._by_caller: dict[str, int] = {}

    def take(self, caller: str, size: int) -> None:
        """Count bytes that were received; too many are answered by 429."""
        own = self._by_caller.get(caller, 0) + size
        self.used += size
        self._by_caller[caller] = own
        if own > self.share or self.used > self.most:
            raise HTTPException(429)  # a type that FastAPI lets through while it reads a body

    def give_back(self, caller: str, size: int) -> None:
        """Count bytes that are not needed any more."""
        self.used -= size
        own = self._by_caller.pop(caller, 0) - size
        if own > 0:
            self._by_caller[caller] = own
