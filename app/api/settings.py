"""What the service is told when it starts."""

from __future__ import annotations

import ipaddress
import socket
from typing import Literal

from pydantic import Field

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.settings import Settings

Auditing = Literal["batched", "strict"]
"""Rows are written right after the answer, many at once, or before it."""


class ServeSettings(Settings):
    """Where the service listens, what it answers from, and what it refuses."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    """0 = any that is free."""
    registry: str | None = None
    """A file or URL; None = as `Registry.open` finds it."""
    max_age_sessions: int = Field(default=2, ge=0)
    """Sessions of the exchange that may have ended since the last price."""
    fail_to_cash: bool = False
    """Answer all cash with a warning, where there is no answer that is known to be right."""
    audit: Auditing = "batched"
    rate: float = Field(default=100.0, ge=0)
    """Requests a second from each key or client; 0 = as many as they like."""
    burst: int = Field(default=200, ge=1)
    """Requests that may come at once."""
    max_body: int = Field(default=8_000_000, ge=1_000)
    """Bytes of a request's body."""
    check_every: float = Field(default=0.5, gt=0)
    """Seconds from one look at champion, prices and keys to the next."""
    lease: float = Field(default=15.0, gt=0)
    """Seconds that an answer stands without such a look having confirmed it."""

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a host's every address is this machine's own.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        found = {str(address[4][0]) for address in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        raise SettingsError(f"host: {host!r} is not an address of this machine; give one such as 127.0.0.1.") from None
    return bool(found) and all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in found)
