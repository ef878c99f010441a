"""Dates as files write them, and whether 03/01/2011 is in March or in January.

A column has one form throughout. Where day and month could be swapped, the whole column decides: a field above 12, and
if there is none, which of the two readings looks like the dates of prices. If neither does, or both do, it is refused.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import pandas as pd

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.column_names import normalise_name
from portfolio_sdpo.prices.prices import DATE_UNIT

_TIME = (
    r"(?:[T ,]\s*(?P<time>\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?: ?[AP]M)?))?(?: ?(?P<zone>Z|UTC|GMT|[+-]\d\d(?::?\d\d)?))?"
)
_MONTHS = {
    name: month
    for month, names in enumerate(
        (
            # English, German, Spanish, Portuguese, French, Italian, Dutch, Polish, Nordic; as short as they are written
            "jan janv ene gen sty", "feb febr fev fevr lut", "mar mrz maa mrt", "apr abr avr kwi",
            "may mai maj mei mag", "jun juin giu cze", "jul juil lug lip", "aug ago aou sie",
            "sep sept set wrz", "oct okt out ott paz", "nov lis", "dec dez dic gru",
        ),
        1,
    )
    for name in names.split()
}  # fmt: skip
_LONGEST = max(map(len, _MONTHS))
_MONTH = r"(?P<name>[^\W\d_]{3,12})\.?"
_YEAR = r"(?P<year>\d{4}|\d\d)"
_FORMS = {
    form: re.compile(pattern, re.IGNORECASE)
    for form, pattern in {
        "YYYY-MM-DD": r"(?P<year>\d{4})([-/.])(?P<month>\d{1,2})\2(?P<day>\d{1,2})\.?" + _TIME,
        "YYYYMMDD": r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)(?:\.0)?" + _TIME,
        "DD/MM/YYYY or MM/DD/YYYY": r"(?P<first>\d{1,2})([-/.])(?P<second>\d{1,2})\2(?P<year>\d{4}|\d\d)" + _TIME,
        "2 Jan 2020": rf"(?P<day>\d{{1,2}})\.?[-/ ]?(?:de )?{_MONTH}[-/, ]*(?:de )?{_YEAR}" + _TIME,
        "Jan 2, 2020": rf"{_MONTH}[- ](?P<day>\d{{1,2}}),? (?P<year>\d{{4}})" + _TIME,
        "YYYY-MM": r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})",
        "Jan 2020": rf"{_MONTH}[-/, ]+(?P<year>\d{{4}})",
    }.items()
}
_ISO_DAYS = re.compile(r"(\d{4}-\d\d-\d\d\n)*\d{4}-\d\d-\d\d", re.ASCII)
_EPOCHS = {10: "s", 13: "ms", 16: "us", 19: "ns"}
"""Digits of an epoch time since 2001, and its unit."""
_EPOCH = re.compile(r"(\d{10}|\d{13}|\d{16}|\d{19})(\.0*)?")
_MONTHLY = re.compile(r"(?:18|19|20|21)\d\d(?:0[1-9]|1[0-2])")
_EMPTY = frozenset(("", "nan", "nat", "none", "null", "<na>"))
_FIRST_DAY, _LAST_DAY = np.datetime64("1800-01-01"), np.datetime64("2199-12-31")
_ORDERS = {True: "dayfirst", False: "monthfirst"}


@dataclass(frozen=True)
class ParsedDates:
    """days: one naive midnight per row, NaT where the cell is empty; notes: what was decided, for the user."""

    days: np.ndarray
    notes: tuple[str, ...] = ()
    times: np.ndarray | None = None
    """Time of day per row as timedelta64, where the file gives any."""


def looks_like_dates(cells: Sequence[str]) -> bool:
    """Whether all these cells are dates of one form, empty ones apart."""
    texts = [cell.strip() for cell in cells if cell.strip().lower() not in _EMPTY]
    return bool(texts) and any(all(_is_day(form.fullmatch(text)) for text in texts) for form in _FORMS.values())


def _is_day(match: re.Match[str] | None) -> bool:
    """Whether there can be such a day, so that a volume of 20,119,999 is none."""
    if match is None:
        return False
    fields = match.groupdict()
    if fields.get("name") is not None and _month_number(fields["name"]) is None:
        return False
    year, month, day = _full_year(fields["year"]), int(fields.get("month") or 1), int(fields.get("day") or 1)
    return 1800 <= year < 2200 and 1 <= month <= 12 and 1 <= day <= 31


def _full_year(text: str) -> int:
    """The year; one of two digits is in the hundred years that end next year.

    >>> _full_year("1987"), _full_year("87"), _full_year("04")
    (1987, 1987, 2004)
    """
    if len(text) == 4:
        return int(text)
    latest = date.today().year + 1
    year = latest // 100 * 100 + int(text)
    return year if year <= latest else year - 100


def _month_number(name: str) -> int | None:
    """The month that a name, or the beginning of one, stands for."""
    lower = normalise_name(name)
    for size in range(min(len(lower), _LONGEST), 2, -1):
        if (month := _MONTHS.get(lower[:size])) is not None:
            return month
    return None


def looks_like_epochs(cells: Sequence[str]) -> bool:
    """Whether all these cells are seconds, milli-, micro- or nanoseconds since 1970, empty ones apart."""
    texts = [cell.strip() for cell in cells if cell.strip().lower() not in _EMPTY]
    return (
        bool(texts)
        and len({len(text.partition(".")[0]) for text in texts}) == 1
        and all(_EPOCH.fullmatch(text) for text in texts)
    )


def looks_like_months(cells: Sequence[str]) -> bool:
    """Whether all these cells are months as YYYYMM."""
    texts = [cell.strip() for cell in cells if cell.strip().lower() not in _EMPTY]
    return len(texts) > 1 and all(_MONTHLY.fullmatch(text) for text in texts)


def parse_dates(column: pd.Series, dayfirst: bool | None = None) -> ParsedDates:
    """The calendar day of each row, in the time zone that the file gives it in.

    dayfirst: whether 03/01/2011 is in January; None = the column has to tell.
    """
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        moments = column.dt.tz_localize(None) if column.dt.tz is not None else column
        notes = () if column.dt.tz is None else _note_utc(str(column.dt.tz) == "UTC", bool((moments.dt.hour > 0).any()))
        days = moments.dt.normalize()
        times = None if (moments == days).all() else (moments - days).to_numpy()
        return ParsedDates(days.to_numpy(f"datetime64[{DATE_UNIT}]"), notes, times)
    codes, found = pd.factorize(column)
    cells = [str(text).strip() for text in found]
    filled = [place for place, cell in enumerate(cells) if cell.lower() not in _EMPTY]
    if not filled:
        raise LayoutError("the column of dates is empty; prices without dates cannot be used.")
    texts = [cells[place] for place in filled]
    days, notes, times = _parse_texts(texts, dayfirst)
    odd = (days < _FIRST_DAY) | (days > _LAST_DAY)
    if odd.any():
        raise LayoutError(f"{texts[int(odd.argmax())]!r} is not a day that prices are from; correct its year.")
    # The last place is for the code -1, a missing cell.
    lookup = np.full(len(cells) + 1, np.datetime64("NaT"), dtype=f"datetime64[{DATE_UNIT}]")
    lookup[filled] = days
    if times is None or not times.astype("int64").any():
        return ParsedDates(lookup[codes], notes)
    clock = np.zeros(len(cells) + 1, dtype="timedelta64[us]")
    clock[filled] = times
    return ParsedDates(lookup[codes], notes, clock[codes])


_Parsed = tuple[np.ndarray, tuple[str, ...], np.ndarray | None]
"""Days, notes, and times of day where there are any."""


def _parse_texts(texts: Sequence[str], dayfirst: bool | None) -> _Parsed:
    """One day per text, notes, and times of day."""
    if _ISO_DAYS.fullmatch("\n".join(texts)):
        with contextlib.suppress(ValueError):  # the long way names the day that is none
            return np.array(texts, dtype="datetime64[D]"), (), None
    if looks_like_epochs(texts):
        return _parse_epochs(texts)
    if looks_like_months(texts):
        texts = [f"{text[:4]}-{text[4:]}" for text in texts]
    form = next((form for form, pattern in _FORMS.items() if _is_day(pattern.fullmatch(texts[0]))), None)
    if form is None:
        form = next((form for form, pattern in _FORMS.items() if pattern.fullmatch(texts[0])), None)
    if form is None:
        raise LayoutError(f"{texts[0]!r} is not a date that is understood; write dates as YYYY-MM-DD.")
    matches = []
    for text in texts:
        match = _FORMS[form].fullmatch(text)
        if match is None:
            raise LayoutError(
                f"the column of dates mixes {texts[0]!r} ({form}) with {text!r}; write all dates as YYYY-MM-DD."
            )
        matches.append(match)
    notes = _check_zones(matches)
    times = _parse_times(matches)
    if "first" in matches[0].groupdict():
        _check_year_last(matches)
        days, note = _order_days(
            [(int(m["first"]), int(m["second"]), _full_year(m["year"])) for m in matches], texts, dayfirst
        )
        return np.array(days, dtype="datetime64[D]"), (*notes, *note), times
    if "day" not in matches[0].groupdict():
        return _parse_months(matches), ("Months were dated at their last day.",), None
    return np.array([_read_day(match) for match in matches], dtype="datetime64[D]"), notes, times


def _read_day(match: re.Match[str]) -> date:
    fields = match.groupdict()
    month = _month_number(fields["name"]) if fields.get("name") else int(fields["month"])
    try:
        return date(_full_year(fields["year"]), month or 0, int(fields["day"]))
    except ValueError:
        raise LayoutError(f"{match.string!r} is not a day of the calendar; correct it.") from None


def _parse_months(matches: Sequence[re.Match[str]]) -> np.ndarray:
    """The last day of each month."""
    months = []
    for match in matches:
        fields = match.groupdict()
        month = _month_number(fields["name"]) if fields.get("name") else int(fields["month"])
        if month is None or not 1 <= month <= 12:
            raise LayoutError(f"{match.string!r} is not a month of the calendar; correct it.")
        months.append(f"{int(fields['year']):04d}-{month:02d}")
    return (np.array(months, dtype="datetime64[M]") + 1).astype("datetime64[D]") - 1


def _parse_epochs(texts: Sequence[str]) -> _Parsed:
    whole = [text.partition(".")[0] for text in texts]
    unit = _EPOCHS[len(whole[0])]
    moments = (
        np.array([int(text) for text in whole], dtype="int64").astype(f"datetime64[{unit}]").astype("datetime64[us]")
    )
    days = moments.astype("datetime64[D]")
    times = (moments - days.astype("datetime64[us]")).astype("timedelta64[us]")
    names = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
    notes = (f"Times were read as {names[unit]} since 1970, and their days are those of UTC.",)
    return days, notes, times


def _parse_times(matches: Sequence[re.Match[str]]) -> np.ndarray | None:
    """The times of day, None where no cell has one."""
    if "time" not in matches[0].groupdict() or not any(match["time"] for match in matches):
        return None
    times = np.zeros(len(matches), dtype="timedelta64[us]")
    for place, match in enumerate(matches):
        if text := match["time"]:
            half = text[-2:].upper() if text[-1:] in "mM" else ""
            hour, minute, *second = text.rstrip("APMapm ").split(":")
            hours = int(hour) % 12 + 12 * (half == "PM") if half else int(hour)
            seconds = 3600 * hours + 60 * int(minute) + float(second[0] if second else 0)
            times[place] = np.timedelta64(round(1e6 * seconds), "us")
    return times


def _check_year_last(matches: Sequence[re.Match[str]]) -> None:
    """Refuse years of two digits that may stand first: 20/01/02 is in 2002 or in 2020."""
    if len(matches[0]["year"]) == 4:
        return
    try:
        days = [date(_full_year(m["first"].zfill(2)), int(m["second"]), int(m["year"])) for m in matches]
    except ValueError:
        return  # no such days: the year stands last
    same_year = len({m["year"] for m in matches}) < len({m["first"] for m in matches})
    if len(matches) > 2 and (same_year or not _in_order(days)):
        return
    raise LayoutError(
        f"{matches[0].string!r} is not a date that can be read in one way only, since its year has two digits; write "
        "all dates as YYYY-MM-DD."
    )


def _check_zones(matches: Sequence[re.Match[str]]) -> tuple[str, ...]:
    """Refuse times of several zones: summer time moves an offset by an hour, anything more is another place."""
    if "zone" not in matches[0].groupdict() or not any(match["zone"] for match in matches):
        return ()
    by_zone = {match["zone"]: match.string for match in matches}
    by_offset = {_offset(zone): text for zone, text in by_zone.items()}
    if by_offset.keys() == {None}:
        return ()
    offsets = sorted(offset for offset in by_offset if offset is not None)
    if None in by_offset or offsets[-1] - offsets[0] > 60:
        one, other = by_offset[offsets[0]], by_offset[None] if None in by_offset else by_offset[offsets[-1]]
        raise LayoutError(
            f"the dates are in different time zones ({one!r} and {other!r}), so their days cannot be compared; "
            "write each exchange's own day as YYYY-MM-DD."
        )
    return _note_utc(offsets == [0], any((match["time"] or "").strip("0:. ") for match in matches))


def _offset(zone: str | None) -> int | None:
    """Minutes east of Greenwich."""
    if zone is None:
        return None
    if zone[0] not in "+-":
        return 0
    minutes = 60 * int(zone[1:3]) + int(zone[3:].lstrip(":") or 0)
    return -minutes if zone[0] == "-" else minutes


def _note_utc(is_utc: bool, has_times: bool) -> tuple[str, ...]:
    if not (is_utc and has_times):
        return ()
    return ("The times are in UTC and their UTC days were kept: check the days if the exchange is east of Greenwich.",)


Pairs = Sequence[tuple[int, int, int]]
"""Two fields whose order is open, and the year."""


def _order_days(pairs: Pairs, texts: Sequence[str], dayfirst: bool | None) -> tuple[list[date], tuple[str, ...]]:
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


def _in_order(days: Sequence[date]) -> bool:
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
    "they are in order": _in_order,
    "they are evenly spaced": _evenly_spaced,
}


def _spell(day: date) -> str:
    return f"{day.day} {day:%B %Y}"
