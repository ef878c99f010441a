"""How far walks in other processes are: each writes its count to a small file, from which this process reads it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

Tell = Callable[[int, int], None]
"""Called with what is done of a walk, and how much that will be: updates of an agent, decisions of others."""

SECONDS = 0.25
"""Between two looks at the files, and between two writes to one."""


class Meter:
    """A `Tell` that another process can read; a display and not a record, so nothing waits for the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written = -SECONDS

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._written < SECONDS and done < total:
            return
        self._written = now
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps([done, total]))
        os.replace(temporary, self.path)

    def read(self) -> tuple[int, int] | None:
        """What was told last; None before that."""
        try:
            done, total = json.loads(self.path.read_text())
        except FileNotFoundError:
            return None
        return int(done), int(total)


@contextmanager
def followed(meters: Mapping[str, Meter], progress: Callable[[str, int, int], None]) -> Iterator[None]:
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
