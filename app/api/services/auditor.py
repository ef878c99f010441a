"""Writes the audit log of what is served, in a thread and in batches, each of them one transaction.

`batched`: the row is queued with the answer and written some hundredths of a second later; a SIGKILL can lose it.
`strict`: the answer waits for the commit; requests that wait share one. In both modes no weights are served while rows
cannot be written: the answers sent without a row are at most those that were queued when the failure began.
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
from portfolio_sdpo.serving import Answer

from ..errors import ProblemError

BATCH = 1000
"""Rows of one transaction."""
MAX_QUEUED = 50_000
"""Rows that may be queued."""
LINGER = 0.05
"""Seconds that a batch waits for more rows."""
MAX_SECONDS = 5.0
"""Seconds that a batch may take before no more weights are served."""

log = logging.getLogger("portfolio_sdpo.api")


@dataclass(frozen=True, eq=False)
class _QueuedAnswer:
    answer: Answer
    request_id: str
    at: float
    loop: asyncio.AbstractEventLoop | None = None
    done: asyncio.Future[None] | None = None

    def to_audit_entry(self) -> AuditEntry:
        return self.answer.to_audit_entry(self.request_id, datetime.fromtimestamp(self.at, UTC))

    def notify(self, error: Exception | None) -> None:
        """Let the request that waits for the commit continue."""
        if self.loop is None or self.done is None:
            return
        try:
            self.loop.call_soon_threadsafe(_settle, self.done, error)
        except RuntimeError:  # the loop has ended, so no request waits
            return


class Auditor:
    """Records every answer with weights."""

    def __init__(self, registry: Registry, *, strict: bool = False) -> None:
        self.registry = registry
        self.strict = strict
        self.written = 0
        """Rows written so far."""
        self._queue: deque[_QueuedAnswer] = deque()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._failing: str | None = None
        self._busy_since = 0.0
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def start(self) -> None:
        """Start to write."""
        self._thread.start()

    def close(self, timeout: float = 15.0) -> int:
        """Write what is queued, and stop; returns the number of rows that could not be written."""
        self._stop.set()
        self._wake.set()
        self._thread.join(timeout)
        return len(self._queue)

    @property
    def waiting(self) -> int:
        """Rows that are not written yet."""
        return len(self._queue)

    def check(self) -> None:
        """Raise a `ProblemError` while rows cannot be written, so that no answer is sent without a row."""
        busy = self._busy_since
        if (
            self._failing is None
            and len(self._queue) < MAX_QUEUED
            and (not busy or time.monotonic() - busy < MAX_SECONDS)
        ):
            return
        raise ProblemError(
            "audit-unavailable",
            "The audit log cannot be written, so no weights are served: the service's log gives the reason.",
            headers={"Retry-After": "5"},
        )

    async def record(self, answer: Answer, request_id: str) -> None:
        """Record an answer before it is sent; in strict mode, return when the row is committed."""
        self.check()
        if not self.strict:
            self._queue.append(_QueuedAnswer(answer, request_id, time.time()))
            if not self._wake.is_set():
                self._wake.set()
            return
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._queue.append(_QueuedAnswer(answer, request_id, time.time(), loop, done))
        self._wake.set()
        await done

    def note(self, answer: Answer, request_id: str) -> None:
        """Record an answer that nobody waits for."""
        self._queue.append(_QueuedAnswer(answer, request_id, time.time()))
        self._wake.set()

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
        """Write one batch; rows that fail stay queued, except in strict mode, where their requests are refused."""
        batch = [self._queue[number] for number in range(min(BATCH, len(self._queue)))]
        self._busy_since = time.monotonic()
        error: Exception | None = None
        try:
            self.registry.append_audit([item.to_audit_entry() for item in batch])
        except Exception as failure:
            error = failure
            log.error("The audit log cannot be written: %s", failure)
        if error is None or self.strict:
            for item in batch:
                self._queue.popleft()
                item.notify(error)
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
        detail = "The audit log cannot be written, so no weights are served: the service's log gives the reason."
        done.set_exception(ProblemError("audit-unavailable", detail, headers={"Retry-After": "5"}))
