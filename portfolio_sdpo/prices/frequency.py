"""How often prices come (every session, day, week, month), and what a span of them is called.

Where nothing else is said, a session is one row of a price table, whatever time lies between two rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

AUTOMATIC = "auto"
"""The calendar that is chosen by the frequency of the dates."""


@dataclass(frozen=True)
class Frequency:
    """A rhythm of dates: its name, how many dates a year has, and the calendar that they are compared with."""

    name: str
    periods_per_year: float | None
    calendar: str | None
    carry: int
    """For how many periods a price is carried over a gap."""

    def describe(self) -> str:
        """A part of a sentence: `daily, 252 a year`."""
        return self.name if self.periods_per_year is None else f"{self.name}, {self.periods_per_year:.0f} a year"


DAILY = Frequency("daily", 252, "XNYS", 5)
EVERY_DAY = Frequency("24/7", 365, "24/7", 5)
WEEKLY = Frequency("weekly", 52, None, 1)
MONTHLY = Frequency("monthly", 12, None, 1)
QUARTERLY = Frequency("quarterly", 4, None, 1)
YEARLY = Frequency("yearly", 1, None, 1)
IRREGULAR = Frequency("irregular", None, None, 1)
_BY_GAP = ((5, 9, WEEKLY), (26, 33, MONTHLY), (85, 95, QUARTERLY), (350, 380, YEARLY))
_UNITS = {252.0: "session", 365.0: "day", 52.0: "week", 12.0: "month", 4.0: "quarter", 1.0: "year"}
_DAYS_PER_YEAR = 365.25
FEWEST_DATES = 8
"""Fewer dates are taken for daily ones unless they are further apart than over a long weekend."""
_MOST_DAYS = 4


def recognise_frequency(index: pd.DatetimeIndex) -> Frequency:
    """The frequency of the dates, by the gap that most of them have.

    >>> import pandas as pd
    >>> recognise_frequency(pd.bdate_range("2020-01-01", periods=50)).name
    'daily'
    >>> recognise_frequency(pd.date_range("2020-01-31", periods=24, freq="ME")).name
    'monthly'
    """
    days = np.unique(index.to_numpy().astype("datetime64[D]"))
    gaps = np.diff(days).astype(int)
    typical = float(np.median(gaps)) if len(gaps) else 1.0
    if len(days) < FEWEST_DATES and typical <= _MOST_DAYS:
        return DAILY
    if typical <= 3:
        weekend = (days.astype("int64") + 3) % 7 >= 5  # the first of January 1970 was a Thursday
        return EVERY_DAY if typical == 1 and weekend.mean() > 0.2 else DAILY
    for shortest, longest, frequency in _BY_GAP:
        if shortest <= typical <= longest and (gaps >= shortest - 2).mean() > 0.9:
            return frequency
    return IRREGULAR


def count_sessions_per_year(index: pd.DatetimeIndex) -> float:
    """How many dates a year has: 252 daily ones, 365 around the clock, 52 weeks, 12 months; irregular ones are counted.

    >>> import pandas as pd
    >>> count_sessions_per_year(pd.date_range("2020-01-03", periods=100, freq="W-FRI"))
    52.0
    """
    known = recognise_frequency(index).periods_per_year
    if known is not None:
        return float(known)
    days = index.to_numpy().astype("datetime64[D]")
    return float((len(days) - 1) * _DAYS_PER_YEAR / (days[-1] - days[0]).astype(int))


def name_session(sessions_per_year: float | None) -> str:
    """What a session is called where there are so many of them in a year; None is taken for the exchange's 252.

    >>> name_session(52), name_session(87.3)
    ('week', 'session')
    """
    return _UNITS.get(252.0 if sessions_per_year is None else float(sessions_per_year), "session")


def describe_sessions(count: int, sessions_per_year: float | None) -> str:
    """A number of sessions in words.

    >>> describe_sessions(15, 52), describe_sessions(1, 252)
    ('15 weeks', '1 session')
    """
    return f"{count} {name_session(sessions_per_year)}{'s' * (count != 1)}"
