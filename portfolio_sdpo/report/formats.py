"""Numbers, intervals, verdicts and tables in HTML, for the report, the page of `reproduce` and the dashboard alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence

NONE = "<span title='not defined'>–</span>"
Format = Callable[[float], str]


def number(value: float, digits: int = 2) -> str:
    """`−1.20`, with a true minus and no `−0.00`."""
    text = f"{value:,.{digits}f}"
    return text.lstrip("-") if not text.strip("-0.,") else text.replace("-", "−")


def percent(value: float, digits: int = 1) -> str:
    """`−1.2 %`, which a line end does not part.

    >>> percent(0.1234)
    '12.3\\xa0%'
    """
    return f"{number(value * 100, digits)}\u00a0%"


def times(value: float) -> str:
    """`1.20 ×`."""
    return f"{number(value, 2)}\u00a0×"


def share(alpha: float) -> str:
    """`5 %`, `2.5 %`: a tail fraction with as many digits as it has."""
    return f"{alpha * 100:g}\u00a0%"


def span(low: float, high: float, written: Format) -> str:
    """`[1.10, 1.40] ×`: the unit once."""
    first, last = written(low), written(high)
    unit = last[last.find("\u00a0") :] if "\u00a0" in last else ""
    return f"[{first.removesuffix(unit)}, {last.removesuffix(unit)}]{unit}"


def verdict(kept: bool | None) -> str:
    """Whether a limit was kept, in words and colour."""
    if kept is None:
        return NONE
    return f"<span class='{'good' if kept else 'bad'}'>{'✓ yes' if kept else '✗ no'}</span>"


def table(caption: str, headings: Sequence[str], rows: Sequence[str], name: str = "") -> str:
    """Rows below headings, which are HTML already; wide ones can be moved sideways."""
    head = "".join(f"<th scope='col'>{heading}</th>" for heading in headings)
    styled = f" class='{name}'" if name else ""
    return (
        f"<div class='scroll' tabindex='0'><table{styled}><caption><span>{caption}</span></caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
