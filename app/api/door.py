"""Who may come in: API keys of the registry, known again without asking it every time.

A key is checked against the registry in constant time when it is first seen. From then on its sha256 stands for it,
as long as the last look at the registry, at most a lease ago, found it neither revoked nor gone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from anyio.to_thread import run_sync

from portfolio_sdpo.registry import ApiKey, Registry

KNOWN = 1_000
"""Keys that are known again."""


class Door:
    """Which key opens what."""

    def __init__(self, registry: Registry, *, loopback: bool) -> None:
        self.registry = registry
        self.loopback = loopback
        self.required = True
        """Whether a key is needed: not where only this machine comes in and no key was ever made."""
        self._active: Mapping[str, ApiKey] = {}
        self._known: dict[bytes, str] = {}

    def refresh(self, keys: list[ApiKey]) -> None:
        """Take over what the registry says; called by another thread, so everything is replaced as a whole."""
        self._active = {key.id: key for key in keys if key.revoked_at is None}
        self.required = bool(keys) or not self.loopback

    def known(self, secret: str) -> ApiKey | None:
        """Whose key this is, if that is known without asking the registry."""
        found = self._known.get(_digest(secret))
        return None if found is None else self._active.get(found)

    async def check(self, secret: str) -> ApiKey | None:
        """Whose key this is, as the registry says."""
        checked: Callable[[str], Any] = self.registry.check_key
        key: ApiKey | None = await run_sync(checked, secret)
        if key is not None:
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[_digest(secret)] = key.id
        return key


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
