"""How numbers are written in reports, on the dashboard and in the tables of backtests.

A true minus, a space before the unit, a comma per thousand. The space is one that a line end does not part. Axes of
figures are labelled by plotly, in a form of its own (`5%`).
"""

from __future__ import annotations

from collections.abc import Callable

Format = Callable[[float], str]
NBSP = "\u00a0"


def number(value: float, digits: int = 2, *, sign: bool = False) -> str:
    """`−1.20`, with a true minus and no `−0.00`; with a sign, `+1.20` above zero.

    >>> number(-1234.5), number(-0.001), number(0.5, 1, sign=True), number(0.001, 1, sign=True)
    ('−1,234.50', '0.00', '+0.5', '0.0')
    """
    text = f"{value:,.{digits}f}"
    if not text.strip("-0.,"):
        return text.lstrip("-")
    return ("+" if sign and value > 0 else "") + text.replace("-", "−")


def general(value: float, digits: int = 4, *, sign: bool = False) -> str:
    """As many digits as matter, where the size of a number is not known beforehand.

    >>> general(-0.00012345), general(8.0), general(-12345.5, 9)
    ('−0.0001234', '8', '−12,345.5')
    """
    text = f"{value:,.{digits}g}".replace("-", "−")
    return f"+{text}" if sign and value > 0 else text


def percent(value: float, digits: int = 1, *, sign: bool = False) -> str:
    """`−1.2 %`.

    >>> percent(0.1234), percent(0.02, 0, sign=True)
    ('12.3\\xa0%', '+2\\xa0%')
    """
    return f"{number(value * 100, digits, sign=sign)}{NBSP}%"


def share(value: float, digits: int = 6, *, sign: bool = False) -> str:
    """`5 %`, `2.5 %`: a share with as many digits as it has.

    >>> share(0.025), share(-0.05)
    ('2.5\\xa0%', '−5\\xa0%')
    """
    return f"{general(value * 100, digits, sign=sign)}{NBSP}%"


def times(value: float, digits: int = 2) -> str:
    """`1.20 ×`."""
    return f"{number(value, digits)}{NBSP}×"


def span(low: float, high: float, written: Format) -> str:
    """`[1.10, 1.40] ×`: the unit once.

    >>> span(-0.01, 0.02, percent)
    '[−1.0, 2.0]\\xa0%'
    """
    first, last = written(low), written(high)
    unit = last[last.find(NBSP) :] if NBSP in last else ""
    return f"[{first.removesuffix(unit)}, {last.removesuffix(unit)}]{unit}"
