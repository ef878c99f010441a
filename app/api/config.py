"""Settings of the service: where it listens, what it refuses, and how often it refreshes its answer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from portfolio_sdpo.common.hosts import is_loopback
from portfolio_sdpo.serving import AnswerSettings

AuditMode = Literal["batched", "strict"]
"""Audit rows are written in batches right after the answers, or before each answer is sent."""


class ServeSettings(AnswerSettings):
    """Everything that `portfolio-sdpo serve` can be told."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    """0: any free port."""
    registry: str | None = None
    """A file or URL; None: the place that `Registry.open` uses by default."""
    audit: AuditMode = "batched"
    rate: float = Field(default=100.0, ge=0)
    """Requests per second for each key or client; 0: no limit."""
    burst: int = Field(default=200, ge=1)
    """Requests that may arrive at once."""
    max_body: int = Field(default=8_000_000, ge=1_000)
    """Bytes of a request's body."""
    max_bodies: int = Field(default=64_000_000, ge=1_000)
    """Bytes of bodies that may be in memory at a time; a quarter of them for each caller."""
    max_connections: int = Field(default=1_000, ge=1)
    """Connections that may be open at a time; fewer where the system's limit of open files is lower."""
    header_timeout: float = Field(default=10.0, gt=0)
    """Seconds that the head of a request may take to arrive."""
    body_timeout: float = Field(default=30.0, gt=0)
    """Seconds that the body of a request may take to arrive."""
    decision_timeout: float = Field(default=60.0, gt=0)
    """Seconds that a decision on posted prices may take, with the time that it waits for its turn."""
    shadow: str | None = None
    """A model that decides beside the champion, is audited, and is not served as weights; see `services.shadow`."""
    access_log: bool = False
    """Log a line for every request."""
    check_every: float = Field(default=0.5, gt=0)
    """Seconds between two checks of champion, prices and keys."""
    lease: float = Field(default=15.0, gt=0)
    """Seconds for which an answer, and what is known of the keys, is valid after the last check that confirmed it."""

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        return is_loopback(self.host)
