"""How far work is that runs elsewhere: small files that the work writes and a display reads.

A status file is a display and not a record: it is replaced as a whole and never half read, nothing waits for the disk,
and a disk that fails does not stop the work.
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
"""Names the file that a command writes its progress to; without it nothing is written."""
SECONDS = 0.25
"""Between two looks at a file, and between two writes to one."""

Tell = Callable[[int, int], None]
"""Called with how much is done and how much there is to do: updates of an agent, decisions of other strategies."""


class StatusFile:
    """A JSON value that one process writes, at most a few times a second, and others read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written = -SECONDS

    def write(self, value: Any, *, final: bool = False) -> None:
        """Replace the value, unless that was done just now; a final value is always written."""
        now = time.monotonic()
        if now - self._written < SECONDS and not final:
            return
        self._written = now
        temporary = self.path.with_name(f".{self.path.name}.{socket.gethostname()}-{os.getpid()}")
        with suppress(OSError):
            temporary.write_text(json.dumps(value))
            os.replace(temporary, self.path)

    def read(self) -> Any:
        """The value that was written last; None before the first."""
        try:
            return json.loads(self.path.read_text())
        except OSError:
            return None


class CommandProgress:
    """What a command tells the dashboard that started it: the share that is done, and what is being done."""

    def __init__(self) -> None:
        named = os.environ.get(VARIABLE)
        self._file = StatusFile(Path(named)) if named else None

    def write(self, share: float, what: str) -> None:
        if self._file is not None:
            self._file.write([min(max(share, 0.0), 1.0), what], final=share >= 1.0)


class Meter:
    """A `Tell` in another process, whose counts this process reads."""

    def __init__(self, path: Path) -> None:
        self._file = StatusFile(path)

    def __call__(self, done: int, total: int) -> None:
        self._file.write([done, total], final=done >= total)

    def read(self) -> tuple[int, int] | None:
        """The counts that were told last; None before the first."""
        counts = self._file.read()
        return None if counts is None else (int(counts[0]), int(counts[1]))


@contextmanager
def follow_meters(meters: Mapping[str, Meter], progress: Callable[[str, int, int], None]) -> Iterator[None]:
    """While the block runs, and once more after it, tell `progress` what changes in the meters."""
    told: dict[str, tuple[int, int]] = {}
    over = threading.Event()

    def look() -> None:
        for name, meter in meters.items():
            news = meter.read()
            if news is not None and told.get(name) != news:
                told[name] = news
                progress(name, *news)

    def follow() -> None:
        while not over.wait(SECONDS):
            look()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        look()
