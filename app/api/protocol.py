"""Connections: how many are open at a time, and how long a request may take to arrive.

Who connects and sends nothing holds a connection only until somebody else needs it, or until its time is over. uvicorn
itself closes only connections that were idle after a response.
"""

from __future__ import annotations

import asyncio
import resource
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Literal

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .config import ServeSettings

RESERVED_FILES = 200
"""Open files that are kept for the database, snapshots and connections that are just being closed."""
BACKLOG = 100
"""Connections that the system accepts ahead of the service."""

Phase = Literal["head", "body", "complete"]


@dataclass
class ConnectionLimits:
    """What all connections of one service share."""

    most: int
    header_timeout: float
    body_timeout: float
    free: OrderedDict[Any, None] = field(default_factory=OrderedDict)
    """Connections without a request in work, the longest first: these are closed where others are needed."""

    @classmethod
    def from_settings(cls, settings: ServeSettings) -> ConnectionLimits:
        """As many connections as the settings and the system's limit of open files allow."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = settings.max_connections
        if files != resource.RLIM_INFINITY:
            most = max(min(most, files - RESERVED_FILES), 1)
        return cls(most, settings.header_timeout, settings.body_timeout)


def bound_connections(limits: ConnectionLimits) -> type[HttpToolsProtocol]:
    """uvicorn's protocol with these limits."""

    class BoundedProtocol(HttpToolsProtocol):
        _phase: Phase = "head"
        _timed: Phase | None = None
        """The phase that the timer is for."""
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            limits.free[self] = None
            self._time_phase()
            if len(self.connections) > limits.most:
                # Without a free one it is this connection itself.
                next(iter(limits.free)).transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            limits.free.pop(self, None)
            self._stop_timer()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._phase == "complete" and self.cycle.response_complete and self.timeout_keep_alive_task is None:
                self._phase = "head"  # blank lines after a response stopped uvicorn's own timer
            if self._phase != self._timed:
                self._time_phase()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._phase = "head"

        def on_headers_complete(self) -> None:
            self._phase = "body"
            limits.free.pop(self, None)
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            super().on_message_complete()
            self._phase = "complete"

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if not self.pipeline and not self.transport.is_closing():
                limits.free[self] = None

        def _time_phase(self) -> None:
            """Start the timer of the phase that has begun; a whole request needs none."""
            self._stop_timer()
            self._timed = self._phase
            seconds = {"head": limits.header_timeout, "body": limits.body_timeout, "complete": None}[self._phase]
            if seconds is not None:
                self._timer = self.loop.call_later(seconds, self.transport.abort)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return BoundedProtocol
