"""The days on which an exchange is open, from `exchange_calendars`."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from portfolio_sdpo.errors import SettingsError

Days = NDArray[np.datetime64]
"""Calendar days: datetime64[D], ascending."""

_EARLIEST, _LATEST = 1680, 2250  # years within which a date in nanoseconds is safe


@dataclass(frozen=True)
class Sessions:
    """The sessions of an exchange in a range of dates, as far as its calendar reaches."""

    days: Days
    start: np.datetime64
    """The calendar is silent about dates before this one ..."""
    end: np.datetime64
    """... and after this one."""
    zone: tzinfo | None = None
    """The time zone of the exchange."""

    def covers(self, days: Days) -> NDArray[np.bool_]:
        """Which of the days the calendar knows about."""
        covered: NDArray[np.bool_] = (days >= self.start) & (days <= self.end)
        return covered


def check_calendar(name: str | None) -> None:
    """Raise a `SettingsError` unless there is a calendar of that name; None stands for no calendar."""
    from exchange_calendars import get_calendar_names

    names = get_calendar_names()
    if name is not None and name not in names:
        close = difflib.get_close_matches(name.upper(), names, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "use XNYS for the NYSE, or none."
        raise SettingsError(f"calendar: {name!r} is not a calendar of exchange_calendars; {hint}")


def load_sessions(name: str, first: np.datetime64, last: np.datetime64) -> Sessions:
    """The sessions of the exchange from `first` to `last`, both included.

    >>> load_sessions("XNYS", np.datetime64("2018-12-04"), np.datetime64("2018-12-07")).days.astype(str).tolist()
    ['2018-12-04', '2018-12-06', '2018-12-07']
    """
    decades = first.astype(object).year // 10 * 10, last.astype(object).year // 10 * 10 + 9
    known = _between(name, *decades)
    begin, end = np.searchsorted(known.days, [first, last + np.timedelta64(1, "D")])
    return Sessions(known.days[begin:end], known.start, known.end, known.zone)


def count_sessions_since(last: date, calendar: str | None, now: datetime | None = None) -> int:
    """How many exchange sessions have ended since the session `last`; today's is not counted before the day is over.

    Days end where the exchange is. Without a calendar every weekday is a session, and days end in UTC.

    >>> count_sessions_since(date(2026, 11, 13), "XNYS", datetime(2026, 11, 17, 8, tzinfo=UTC))
    1
    """
    first = np.datetime64(last, "D") + 1
    until = np.datetime64(find_local_date(now or datetime.now(UTC), calendar), "D")
    if until <= first:
        return 0
    if calendar is None:
        return int(np.busday_count(first, until))
    known = load_sessions(calendar, first, until - 1)
    # Past the end of the calendar every weekday counts, or prices would never grow old there.
    beyond = max(first, known.end + 1)
    return len(known.days) + (int(np.busday_count(beyond, until)) if beyond < until else 0)


def find_local_date(now: datetime, calendar: str | None) -> date:
    """The date where the exchange is; without a calendar, in UTC.

    >>> find_local_date(datetime(2026, 11, 17, 3, tzinfo=UTC), "XNYS")
    datetime.date(2026, 11, 16)
    """
    today = now.astimezone(UTC).date()
    if calendar is None:
        return today
    decade = today.year // 10 * 10
    return now.astimezone(_between(calendar, decade, decade + 9).zone).date()


def find_next_session(last: date, calendar: str | None) -> date:
    """The exchange session after the day `last`; without a calendar every weekday is a session.

    >>> find_next_session(date(2026, 11, 25), "XNYS"), find_next_session(date(2026, 11, 25), None)
    (datetime.date(2026, 11, 27), datetime.date(2026, 11, 26))
    """
    day = np.datetime64(last, "D") + 1
    weekday: date = np.busday_offset(day, 0, roll="forward").astype(date)
    if calendar is None:
        return weekday
    # No exchange has been closed for a month in living memory but for wars; beyond that, or its calendar, weekdays.
    known = load_sessions(calendar, day, day + 31).days
    return known[0].astype(date) if len(known) else weekday


@lru_cache(maxsize=32)  # building a calendar takes a third of a second, whatever its length
def _between(name: str, first_year: int, last_year: int) -> Sessions:
    """All sessions of whole years; a year more on either side keeps holidays at the edges."""
    import pandas as pd
    from exchange_calendars import get_calendar

    check_calendar(name)
    start = pd.Timestamp(max(first_year - 1, _EARLIEST), 1, 1)
    end = pd.Timestamp(min(last_year + 1, _LATEST), 12, 31)
    try:
        calendar = get_calendar(name, start=start, end=end) if start < end else None
    except ValueError:
        limits = get_calendar(name)
        start = max(start, limits.bound_min() or start)
        end = min(end, limits.bound_max() or end)
        calendar = get_calendar(name, start=start, end=end) if start < end else None
    days = np.array([], "datetime64[D]") if calendar is None else calendar.sessions.to_numpy().astype("datetime64[D]")
    zone = None if calendar is None else calendar.tz
    return Sessions(days, np.datetime64(start, "D"), np.datetime64(end, "D"), zone)
