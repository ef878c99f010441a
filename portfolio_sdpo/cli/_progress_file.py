"""How far a command is, for whoever started it and looks on: the dashboard sets the variable, the command writes."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

VARIABLE = "PORTFOLIO_SDPO_PROGRESS"
"""The file that progress is written to; without it nothing is."""
SECONDS = 0.25
"""Between two writes."""


class ProgressFile:
    """The share that is done and what is being done; a display and not a record, so nothing waits for the disk."""

    def __init__(self) -> None:
        named = os.environ.get(VARIABLE)
        self._path = Path(named) if named else None
        self._written = -SECONDS

    def write(self, share: float, what: str) -> None:
        """At most a few times a second, and always at the end."""
        now = time.monotonic()
        if self._path is None or (now - self._written < SECONDS and share < 1.0):
            return
        self._written = now
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with suppress(OSError):  # nobody looks any more, or there is no room: no reason to stop
            temporary.write_text(json.dumps([min(max(share, 0.0), 1.0), what]))
            os.replace(temporary, self._path)
