"""Progress of long commands where there is no terminal for a bar: in a log of cron, a container, a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import typer

FIRST, NEXT = 5.0, 30.0
"""Seconds to the first line, so that short commands stay silent, and from one line to the next."""


class ProgressLines:
    """A line on stderr every half minute, with the time that is left at the pace so far."""

    def __init__(self, quiet: bool = False, now: Callable[[], float] = time.monotonic) -> None:
        self._silent = quiet or sys.stderr.isatty()
        self._now = now
        self._start: tuple[float, float] | None = None
        """When the first share was reported, and which: resumed work does not begin at 0."""
        self._due = 0.0

    def write(self, share: float, what: str) -> None:
        """Say what is being done, and how much of it all is done, if a line is due."""
        if self._silent:
            return
        now = self._now()
        if self._start is None:
            self._start, self._due = (now, share), now + FIRST
        if now < self._due or share >= 1.0:
            return
        self._due = now + NEXT
        began, before = self._start
        pace = (share - before) / (now - began) if now > began else 0.0
        left = f", about {describe_seconds((1.0 - share) / pace)} left" if pace > 0.0 else ""
        typer.echo(f"{what} ({share:.0%} done{left})", err=True)


def describe_seconds(seconds: float) -> str:
    """A duration as one would say it.

    >>> describe_seconds(8.2), describe_seconds(90), describe_seconds(5400), describe_seconds(36000)
    ('9 s', '2 min', '1 h 30 min', '10 h')
    """
    if seconds < 60.0:
        return f"{int(seconds) + 1} s"
    minutes = int(seconds / 60.0 + 0.5)
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"
