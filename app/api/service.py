"""The parts of a running service, and how they start and end together."""

from __future__ import annotations

import asyncio
import logging
import warnings
from dataclasses import dataclass, field

from fastapi import Request

from portfolio_sdpo.errors import RegistryError
from portfolio_sdpo.registry import Registry
from portfolio_sdpo.registry.lock import only_one

from .auditing import Auditor
from .door import Door
from .live import Live
from .metrics import Metrics
from .problems import ProblemError
from .retraining import Retraining
from .settings import ServeSettings

AT_WORK = 1
"""Decisions on callers' prices at a time: each takes a whole core."""
IN_LINE = 16
"""That may wait for their turn."""

log = logging.getLogger("portfolio_sdpo.api")


@dataclass
class Work:
    """Heavy work of requests, a little at a time."""

    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_WORK))
    inside: int = 0

    async def __aenter__(self) -> None:
        if self.inside >= AT_WORK + IN_LINE:
            raise ProblemError("busy", "Too many prices are being decided on: try again.", headers={"Retry-After": "2"})
        self.inside += 1
        try:
            await self.turns.acquire()
        except BaseException:
            self.inside -= 1
            raise

    async def __aexit__(self, *_: object) -> None:
        self.inside -= 1
        self.turns.release()


class Service:
    """Everything that the routes use."""

    def __init__(self, settings: ServeSettings, registry: Registry) -> None:
        self.settings = settings
        self.registry = registry
        self.metrics = Metrics()
        self.door = Door(registry, loopback=settings.loopback)
        self.live = Live(registry, settings, self.door.refresh)
        self.auditor = Auditor(registry, strict=settings.audit == "strict")
        self.retraining = Retraining(registry, settings.registry)
        self.work = Work()

    def start(self) -> None:
        """Begin to look, to write, and to take jobs."""
        # The answer says it; catching it there would change the filters of other threads.
        warnings.filterwarnings("ignore", message="waits in cash")
        try:
            # Where a retrain runs, the jobs may be those of another service.
            with only_one(self.registry.database):
                self.registry.abandon_jobs("The service that was to do it ended before it was done.")
        except RegistryError as error:
            log.error("%s", error)
        self.auditor.start()
        self.live.start()

    def close(self) -> None:
        """Write what waits, and end."""
        self.live.close()
        self.retraining.close()
        lost = self.auditor.close()
        if lost:
            log.critical("%d rows of the audit could not be written and are lost.", lost)


def service_of(request: Request) -> Service:
    """The service that a request came to."""
    found: Service = request.app.state.service
    return found
