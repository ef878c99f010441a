"""Times of day: in a column of their own beside the date, and midnights of an exchange that are written in UTC."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.column_names import TIME, normalise_name
from portfolio_sdpo.prices.layouts.raw_table import RawTable, cells_of

CLOCK = re.compile(
    r"(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d(?:\.\d+)?))?(?: ?(?P<half>[AP]M))?", re.IGNORECASE
)
_DIGITS = re.compile(r"\d{1,6}")
_HOUR, _HALF_HOUR = np.timedelta64(60, "m"), np.timedelta64(30, "m")
FEWEST_DAYS = 5
"""With fewer days their weekdays do not show whether they are those of UTC."""


def find_time_column(table: RawTable, date: int) -> int | None:
    """The column beside the dates that holds times of day: 09:30:00, or 930 and 153000 under a name such as Time."""
    for column, name in enumerate(table.names):
        first = next((row[column] for row in table.sample if column < len(row) and row[column]), "")
        if column == date or not (":" in first or normalise_name(name) in TIME):
            continue
        cells = [cell for cell in cells_of(table, column) if cell]
        form = _DIGITS if normalise_name(name) in TIME and _DIGITS.fullmatch(first) else CLOCK
        if cells and all(map(form.fullmatch, cells)):
            return column
    return None


def parse_clock(text: str) -> np.timedelta64:
    """The time since midnight.

    >>> [str(parse_clock(text)) for text in ("4:00 PM", "930", "153000")]
    ['57600000000 microseconds', '34200000000 microseconds', '55800000000 microseconds']
    """
    if text.isdigit():
        digits = text.zfill(4) if len(text) <= 4 else text.zfill(6)
        hour, minute, second = int(digits[:2]), int(digits[2:4]), float(digits[4:] or 0)
    else:
        match = CLOCK.fullmatch(text)
        if match is None:
            raise LayoutError(f"{text!r} is not a time of day; write times as HH:MM.")
        hour, minute, second = int(match["hour"]), int(match["minute"]), float(match["second"] or 0)
        if match["half"]:
            hour = hour % 12 + 12 * (match["half"].upper() == "PM")
    return np.timedelta64(round(1e6 * (3600 * hour + 60 * minute + second)), "us")


def parse_times(column: pd.Series) -> np.ndarray:
    """Times since midnight, one per row; an empty cell is midnight."""
    codes, found = pd.factorize(column)
    clock = [parse_clock(text) if (text := str(cell).strip()) else np.timedelta64(0, "us") for cell in found]
    return np.array([*clock, np.timedelta64(0, "us")], dtype="timedelta64[us]")[codes]


def are_local_midnights(days: np.ndarray, times: np.ndarray) -> bool:
    """Whether days and times in UTC are midnights of an exchange east of Greenwich, whose own days are the next ones.

    All times are one full or half hour of the afternoon or evening, or two in summer and winter, and the days are those
    before the days of a week of trading: Sunday to Thursday, and where the exchange closes on Fridays Saturday to
    Wednesday.

    >>> days = np.array(["2023-01-01", "2023-01-02", "2023-01-03", "2023-01-04", "2023-01-05"], "datetime64[D]")
    >>> are_local_midnights(days, np.full(5, np.timedelta64(23, "h"))), are_local_midnights(days + 1, days - days)
    (True, False)
    """
    known = np.unique(days[~np.isnat(days)]).astype("datetime64[D]")
    clock = np.unique(times[~np.isnat(days)]).astype("timedelta64[us]")
    if len(known) < FEWEST_DAYS or len(clock) > 2 or (clock % _HALF_HOUR).astype("int64").any():
        return False
    if len(clock) == 2 and clock[1] - clock[0] != _HOUR:
        return False
    weekdays = set(((known.astype("int64") + 3) % 7).tolist())  # Monday is 0, and 1970 began on a Thursday
    sunday_to_thursday = 6 in weekdays and weekdays <= {6, 0, 1, 2, 3}
    saturday_to_wednesday = 5 in weekdays and weekdays <= {5, 6, 0, 1, 2}
    return bool((sunday_to_thursday and clock[0] >= 13 * _HOUR) or (saturday_to_wednesday and clock[0] >= 20 * _HOUR))
