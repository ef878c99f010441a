"""How often prices come: every session, every day, every week, every month."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
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
FEWEST_DATES = 8
"""Fewer dates are taken for daily ones unless they are further apart than over a long weekend."""
_MOST_DAYS = 4


def recognise_frequency(index: pd.DatetimeIndex) -> Frequency:
    """The frequency of the dates, by the gap that most of them have.

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
