"""Small words and cards that several pages use."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from html import escape
from typing import Any

from portfolio_sdpo.backtest.sections import percent, verdict

__all__ = ["ago", "card", "percent", "sessions"]


def sessions(count: int) -> str:
    """
    >>> sessions(1), sessions(3)
    ('1 session', '3 sessions')
    """
    return f"{count:,} session{'s' * (count != 1)}"


def ago(then: datetime, now: datetime) -> str:
    """How long ago, in the largest unit that fits.

    >>> ago(datetime(2026, 11, 13), datetime(2026, 11, 16))
    '3 days ago'
    """
    seconds = max((now - then).total_seconds(), 0.0)
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count:,} {unit}{'s' * (count > 1)} ago"
    return "just now"


def card(
    heading: str,
    value: float | None,
    written: Callable[[float], str],
    name: str,
    more: str = "",
    limit: Any = None,
    *,
    words: str | None = None,
) -> str:
    """A large figure with its full precision beside it, or words; against a limit, whether it is within."""
    if words is not None:
        figure = f"<span class='figure words' data-name='{name}'>{escape(words)}</span>"
    elif value is None:
        figure = f"<span class='figure' data-name='{name}'>–</span>"
    else:
        figure = f"<span class='figure'><data value='{value!r}' data-name='{name}'>{written(value)}</data></span>"
    if limit is not None and value is not None:
        more += f"<br>within the limit: {verdict(value >= limit.bound)}"
    return f"<div class='card'><dt>{heading}</dt><dd>{figure}<br><span class='more'>{more}</span></dd></div>"
