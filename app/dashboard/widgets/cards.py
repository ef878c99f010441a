"""Cards with one large figure, and counts and ages in words."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from portfolio_sdpo.common.numbers import percent

__all__ = ["format_age", "format_sessions", "percent", "render_card"]


def format_sessions(count: int) -> str:
    """A number of sessions in words.

    >>> format_sessions(1), format_sessions(3)
    ('1 session', '3 sessions')
    """
    return f"{count:,} session{'s' * (count != 1)}"


def format_age(seconds: float) -> str:
    """How long ago something was, in the largest unit that fits.

    >>> format_age(3 * 86400), format_age(12.3)
    ('3 days ago', '12 seconds ago')
    """
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count:,} {unit}{'s' * (count > 1)} ago"
    count = max(int(seconds), 0)
    return f"{count} second{'s' * (count != 1)} ago"


def render_card(
    heading: str,
    value: float | None,
    format_value: Callable[[float], str],
    name: str,
    more: str = "",
    limit: Any = None,
    *,
    words: str | None = None,
) -> str:
    """A large figure with its full precision in a `data` element, or words; with a limit, whether it is met."""
    if words is not None:
        figure = f"<span class='figure words' data-name='{name}'>{escape(words)}</span>"
    elif value is None:
        figure = f"<span class='figure' data-name='{name}'>–</span>"
    else:
        figure = f"<span class='figure'><data value='{value!r}' data-name='{name}'>{format_value(value)}</data></span>"
    if limit is not None and value is not None:
        met = "<span class='good'>✓ yes</span>" if value >= limit.bound else "<span class='bad'>✗ no</span>"
        more += f"<br>within the limit: {met}"
    return f"<div class='card'><dt>{heading}</dt><dd>{figure}<br><span class='more'>{more}</span></dd></div>"
