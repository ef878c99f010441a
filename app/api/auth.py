"""API keys: reading them from a request, and checking them without asking the registry every time.

A key is checked against the registry in constant time when it is first seen. After that its sha256 identifies it, until
it expires, and as long as the last refresh from the registry, at most one lease ago, found it neither revoked nor
deleted.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from anyio.to_thread import run_sync

from portfolio_sdpo.errors import RegistryError, RegistryReplacedError
from portfolio_sdpo.registry import ApiKey, Registry

from .config import ServeSettings

CACHE_SIZE = 1_000
"""Keys in memory."""
NOTE_EVERY = 60.0
"""Seconds between two notes of when keys were last used."""

log = logging.getLogger("portfolio_sdpo.api")


class KeyCache:
    """Which keys are valid; a thread keeps it up to date."""

    def __init__(self, registry: Registry, settings: ServeSettings) -> None:
        self.registry = registry
        self.settings = settings
        self.loopback = settings.loopback
        self.required = True
        """Whether a request needs a key. It does not where only this machine connects and no key was ever created."""
        self._active: Mapping[str, ApiKey] = {}
        self._ids: dict[bytes, str] = {}
        self._uses: dict[str, float] = {}
        """When keys were last used, until the registry is told."""
        self._valid_until = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keys", daemon=True)

    def start(self) -> None:
        """Read the keys now, and from now on regularly."""
        self._try(self.refresh)
        self._thread.start()

    def close(self) -> None:
        """Stop refreshing."""
        self._stop.set()
        self._thread.join(timeout=10.0)
        self._try(self._note_uses)

    def refresh(self) -> None:
        """Read the keys from the registry; requests run meanwhile, so each attribute is replaced as a whole."""
        began = time.monotonic()
        keys = self.registry.api_keys()
        self._active = {key.id: key for key in keys if key.valid}
        self.required = bool(keys) or not self.loopback
        self._valid_until = began + self.settings.lease

    def find(self, secret: str) -> ApiKey | None:
        """The key with this secret, if it is in the cache and the cache is fresh."""
        if time.monotonic() > self._valid_until:
            return None
        key = self._active.get(self._ids.get(_hash_secret(secret), ""))
        if key is None or not key.valid:
            return None
        self._uses[key.id] = time.time()
        return key

    async def check(self, secret: str) -> ApiKey | None:
        """The key with this secret, according to the registry."""
        check_key: Callable[[str], Any] = self.registry.check_key
        key: ApiKey | None = await run_sync(check_key, secret)
        if key is not None:
            if len(self._ids) >= CACHE_SIZE:
                self._ids.clear()
            self._ids[_hash_secret(secret)] = key.id
            self._uses[key.id] = time.time()
        return key

    def _run(self) -> None:
        noted = time.monotonic()
        while not self._stop.wait(self.settings.check_every):
            self._try(self.refresh)
            if time.monotonic() - noted > NOTE_EVERY:
                noted = time.monotonic()
                self._try(self._note_uses)

    def _note_uses(self) -> None:
        uses, self._uses = self._uses, {}
        if uses:
            self.registry.note_key_uses({key: datetime.fromtimestamp(at, UTC) for key, at in uses.items()})

    def _try(self, step: Callable[[], None]) -> None:
        """Do it and log what goes wrong."""
        try:
            step()
        except RegistryReplacedError as error:
            self._active, self._valid_until = {}, 0.0
            log.error("%s", error)
        except RegistryError as error:
            log.error("%s", error)
        except Exception:
            log.exception("Reading or noting the API keys failed.")


def read_secret(headers: Mapping[bytes, bytes]) -> str | None:
    """The API key of a request: `Authorization: Bearer KEY` or `X-API-Key: KEY`."""
    bearer = headers.get(b"authorization", b"").decode("latin-1")
    scheme, _, token = bearer.partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    key = headers.get(b"x-api-key")
    return None if key is None else key.decode("latin-1")


def _hash_secret(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
