"""Progress of work in other processes: small files that the work writes and a display reads.

A status file is for display and not a record: it is replaced as a whole, so it is never read half written, nothing
waits for the disk, and a disk that fails does not stop the work.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

VARIABLE = "PORTFOLIO_SDPO_PROGRESS"
"""Environment variable with the file that a command writes its progress to; without it nothing is written."""
SECONDS = 0.25
"""Between two reads of a file, and between two writes to it."""

Tell = Callable[[int, int], None]
"""Called with what is done and with the total: updates of an agent, decisions of other strategies."""


class StatusFile:
    """A JSON value that one process writes, at most a few times a second, and others read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written = -SECONDS

    def write(self, value: Any, *, final: bool = False) -> None:
        """Replace the value, unless that happened a moment ago; a final value is always written."""
        now = time.monotonic()
        if now - self._written < SECONDS and not final:
            return
        self._written = now
        temporary = self.path.with_name(f".{self.path.name}.{socket.gethostname()}-{os.getpid()}")
        with suppress(OSError):
            temporary.write_text(json.dumps(value))
            os.replace(temporary, self.path)

    def read(self) -> Any:
        """Return the value that was written last; None before the first."""
        try:
            return json.loads(self.path.read_text())
        except OSError:
            return None


class CommandProgress:
    """The progress that a command reports to the dashboard that started it: a share, and a description."""

    def __init__(self) -> None:
        named = os.environ.get(VARIABLE)
        self._file = StatusFile(Path(named)) if named else None

    def write(self, share: float, what: str) -> None:
        if self._file is not None:
            self._file.write([min(max(share, 0.0), 1.0), what], final=share >= 1.0)


class Meter:
    """A `Tell` for another process, whose counts this process reads."""

    def __init__(self, path: Path) -> None:
        self._file = StatusFile(path)

    def __call__(self, done: int, total: int) -> None:
        self._file.write([done, total], final=done >= total)

    def read(self) -> tuple[int, int] | None:
        """Return the latest counts; None before the first."""
        counts = self._file.read()
        return None if counts is None else (int(counts[0]), int(counts[1]))


@contextmanager
def follow_meters(meters: Mapping[str, Meter], progress: Callable[[str, int, int], None]) -> Iterator[None]:
    """Report changes of the meters to `progress` while the block runs, and once more after it."""
    latest: dict[str, tuple[int, int]] = {}
    finished = threading.Event()

    def report() -> None:
        for name, meter in meters.items():
            counts = meter.read()
            if counts is not None and latest.get(name) != counts:
                latest[name] = counts
                progress(name, *counts)

    def follow() -> None:
        while not finished.wait(SECONDS):
            report()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
        report()
