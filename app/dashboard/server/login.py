"""Logins with an API key of the registry, where others than this machine can reach the dashboard."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from portfolio_sdpo.registry import Registry

COOKIE = "portfolio_sdpo_session"
LIFETIME = 12 * 3600
"""Seconds until a visitor has to log in again."""
CHECK_EVERY = 5.0
"""Seconds for which a key that was found valid counts as valid."""
MAX_SESSIONS = 1_000
"""Sessions in memory; the oldest ends first."""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>portfolio_sdpo</title><style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }}
body {{ display: grid; place-items: center; min-height: 90vh; margin: 0 }}
form {{ display: grid; gap: .8rem; width: min(26rem, 88vw) }}
input, button {{ font: inherit; padding: .5rem }}
.problem {{ color: #c0392b }}
</style></head><body><form method="post" action="./login">
<h1>portfolio_sdpo</h1>{problem}
<label for="key">API key with the scope <code>train</code></label>
<input id="key" name="key" type="password" autocomplete="current-password" required autofocus>
<button>Log in</button></form></body></html>
"""


@dataclass(frozen=True)
class _Session:
    key_id: str
    until: float


class Login:
    """Sessions of visitors who gave a valid key with the scope `train`; they end with the key.

    Pages cannot be opened for reading only: anyone who sees the Run page can start jobs.
    """

    def __init__(self, open_registry: Callable[[], Registry]) -> None:
        self._open_registry = open_registry
        self._sessions: dict[bytes, _Session] = {}
        """By the hash of the cookie."""
        self._valid: frozenset[str] = frozenset()
        self._checked = float("-inf")
        self._lock = threading.Lock()

    def begin(self, form: bytes) -> str | None:
        """The cookie of a new session; None if the form holds no key that opens one."""
        given = parse_qs(form.decode("utf-8", "replace")).get("key", [""])[0].strip()
        key = self._open_registry().check_key(given)
        if key is None or not key.allows("train"):
            return None
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            while len(self._sessions) >= MAX_SESSIONS:
                self._sessions.pop(next(iter(self._sessions)))
            self._sessions[_hash(cookie)] = _Session(key.id, time.monotonic() + LIFETIME)
            self._checked = float("-inf")
        return cookie

    def is_known(self, cookie: str) -> bool:
        """Whether the cookie belongs to a session whose key is still valid."""
        session = self._sessions.get(_hash(cookie))
        if session is None or time.monotonic() > session.until:
            return False
        with self._lock:
            if time.monotonic() - self._checked > CHECK_EVERY:
                keys = self._open_registry().api_keys()
                self._valid = frozenset(key.id for key in keys if key.allows("train"))
                self._checked = time.monotonic()
        return session.key_id in self._valid

    def end(self, cookie: str) -> None:
        """Forget a session."""
        with self._lock:
            self._sessions.pop(_hash(cookie), None)


def render_login(problem: str = "") -> str:
    """The page with the form."""
    return _PAGE.format(problem=f"<p class='problem' role='alert'>{escape(problem)}</p>" if problem else "")


def _hash(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode()).digest()
