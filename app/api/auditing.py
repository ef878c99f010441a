"""The audit of what is served, written by a thread in batches, each of them one transaction.

`batched`: the row is queued with the answer, and written some hundredths of a second later; a SIGKILL can lose that.
`strict`: the answer waits for the commit; requests that wait share one. In both, when rows cannot be written no more
weights are served until they are: what is said without being noted is at most what was queued when it began.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime

from portfolio_sdpo.registry import AuditEntry, Registry

from .deciding import Answer
from .problems import ProblemError

BATCH = 1000
"""Rows of one transaction."""
ROOM = 50_000
"""Rows that may wait."""
LINGER = 0.05
"""Seconds that a batch waits for more."""
PATIENCE = 5.0
"""Seconds that a batch may take before no more weights are served."""

log = logging.getLogger("portfolio_sdpo.api")


@dataclass(frozen=True, eq=False)
class _Item:
    answer: Answer
    request_id: str
    at: float
    loop: asyncio.AbstractEventLoop | None = None
    done: asyncio.Future[None] | None = None

    def entry(self) -> AuditEntry:
        return self.answer.entry(self.request_id, datetime.fromtimestamp(self.at, UTC))

    def tell(self, error: Exception | None) -> None:
        """Let the request that waits go on."""
        if self.loop is None or self.done is None:
            return
        try:
            self.loop.call_soon_threadsafe(_settle, self.done, error)
        except RuntimeError:  # the loop has ended, and nobody waits
            return


class Auditor:
    """Notes every answer with weights."""

    def __init__(self, registry: Registry, *, strict: bool = False) -> None:
        self.registry = registry
        self.strict = strict
        self.written = 0
        """Rows so far."""
        self._queue: deque[_Item] = deque()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._failing: str | None = None
        self._busy_since = 0.0
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def start(self) -> None:
        """Write from now on."""
        self._thread.start()

    def close(self, timeout: float = 15.0) -> int:
        """Write what waits, and stop; the number of rows that could not be written."""
        self._stop.set()
        self._wake.set()
        self._thread.join(timeout)
        return len(self._queue)

    @property
    def waiting(self) -> int:
        """Rows that are not written yet."""
        return len(self._queue)

    def check(self) -> None:
        """Raise a `ProblemError` when rows cannot be written, so that nothing is said that is not noted."""
        busy = self._busy_since
        if self._failing is None and len(self._queue) < ROOM and (not busy or time.monotonic() - busy < PATIENCE):
            return
        raise ProblemError(
            "audit-unavailable",
            "What is served cannot be noted in the registry, so nothing is served: the service's log says why.",
            headers={"Retry-After": "5"},
        )

    async def note(self, answer: Answer, request_id: str) -> None:
        """Note an answer before it is sent; in strict mode, return when it is written."""
        self.check()
        if not self.strict:
            self._queue.append(_Item(answer, request_id, time.time()))
            if not self._wake.is_set():
                self._wake.set()
            return
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._queue.append(_Item(answer, request_id, time.time(), loop, done))
        self._wake.set()
        await done

    def _run(self) -> None:
        pause = 0.1
        while True:
            self._wake.wait(timeout=1.0)
            self._wake.clear()
            if not self.strict and not self._stop.is_set():
                time.sleep(LINGER)
            while self._queue:
                if self._write():
                    pause = 0.1
                elif self._stop.wait(pause):
                    return
                else:
                    pause = min(2 * pause, 5.0)
            if self._stop.is_set() and not self._queue:
                return

    def _write(self) -> bool:
        """Write one batch; what fails stays at the head of the queue, unless its request was refused for it."""
        batch = [self._queue[number] for number in range(min(BATCH, len(self._queue)))]
        self._busy_since = time.monotonic()
        error: Exception | None = None
        try:
            self.registry.append_audit([item.entry() for item in batch])
        except Exception as failure:
            error = failure
            log.error("The audit cannot be written: %s", failure)
        if error is None or self.strict:
            for item in batch:
                self._queue.popleft()
                item.tell(error)
        self._failing = None if error is None or self.strict else str(error)
        self._busy_since = 0.0
        if error is None:
            self.written += len(batch)
        return error is None


def _settle(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        detail = "The answer could not be noted in the registry, so it is not given: the service's log says why."
        done.set_exception(ProblemError("audit-unavailable", detail, headers={"Retry-After": "5"}))
