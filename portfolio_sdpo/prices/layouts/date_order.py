"""Whether 03/01/2011 is in March or in January: the whole column decides.

A field above 12, and if there is none, which of the two readings looks like the dates of prices. If neither does, or
both do, the column is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date

import numpy as np

from portfolio_sdpo.errors import LayoutError

_ORDERS = {True: "dayfirst", False: "monthfirst"}
Pairs = Sequence[tuple[int, int, int]]
"""Two fields whose order is open, and the year."""


def order_days(pairs: Pairs, texts: Sequence[str], dayfirst: bool | None) -> tuple[list[date], tuple[str, ...]]:
    """The days, and a note on how the order of day and month was found."""
    if dayfirst is not None:
        days = _read_pairs(pairs, dayfirst)
        if isinstance(days, int):
            raise LayoutError(f"{texts[days]!r} is not a date in the order {_ORDERS[dayfirst]}; leave the order out.")
        return days, ()
    readings: dict[bool, list[date]] = {}
    failed = 0
    for order in _ORDERS:
        days = _read_pairs(pairs, order)
        if isinstance(days, int):
            failed = max(failed, days)
        else:
            readings[order] = days
    if not readings:
        raise LayoutError(
            f"{texts[failed]!r} fits neither DD/MM/YYYY nor MM/DD/YYYY with the dates before it; correct it."
        )
    if len(readings) == 1:
        order = next(iter(readings))
        return readings[order], (f"Dates were read {_ORDERS[order]}: some of them allow nothing else.",)
    if readings[True] == readings[False]:
        return readings[True], ()
    winners: dict[bool, str] = {}
    for because, holds in _EVIDENCE.items():
        verdict = {order: holds(days) for order, days in readings.items()}
        if verdict[True] != verdict[False]:
            winners.setdefault(verdict[True], because)
    if len(winners) != 1:
        place = next(place for place, (first, second, _) in enumerate(pairs) if first != second)
        day, month = readings[True][place], readings[False][place]
        raise LayoutError(
            f"{texts[place]} can be {_spell(day)} (dayfirst) or {_spell(month)} (monthfirst), and no other date in the "
            "column decides it; say which with --dayfirst or --monthfirst, or in the layout, as in `wide:dayfirst`."
        )
    order, because = winners.popitem()
    return readings[order], (f"Dates were read {_ORDERS[order]}: only so {because}.",)


def _read_pairs(pairs: Pairs, dayfirst: bool) -> list[date] | int:
    """The days in one order, or the place of the first pair that is no date in it."""
    days = []
    for place, (first, second, year) in enumerate(pairs):
        try:
            days.append(date(year, second, first) if dayfirst else date(year, first, second))
        except ValueError:
            return place
    return days


def _on_weekdays(days: Sequence[date]) -> bool:
    """Prices are made from Monday to Friday; series of one day a month are dated without regard to that."""
    return all(day.weekday() < 5 for day in days) or _periodic(days)


def in_order(days: Sequence[date]) -> bool:
    """Whether the days ascend, or descend."""
    steps = [later > earlier for earlier, later in zip(days[:-1], days[1:], strict=True)]
    return all(steps) or not any(steps)


def _evenly_spaced(days: Sequence[date]) -> bool:
    """Sessions follow each other within a week, or come every so many months."""
    ordered = sorted(days)
    return _periodic(days) or all((b - a).days <= 7 for a, b in zip(ordered[:-1], ordered[1:], strict=True))


def _periodic(days: Sequence[date]) -> bool:
    ordered = sorted(days)
    months = [12 * day.year + day.month for day in ordered]
    return len({day.day for day in days}) == 1 and len(set(np.diff(months).tolist())) <= 1


_EVIDENCE: dict[str, Callable[[Sequence[date]], bool]] = {
    "no price falls on a weekend": _on_weekdays,
    "they are in order": in_order,
    "they are evenly spaced": _evenly_spaced,
}


def _spell(day: date) -> str:
    return f"{day.day} {day:%B %Y}"
