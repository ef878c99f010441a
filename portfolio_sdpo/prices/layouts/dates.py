"""Dates as files write them; a column has one form throughout."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

import numpy as np
import pandas as pd

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.column_names import normalise_name
from portfolio_sdpo.prices.layouts.date_order import in_order, order_days
from portfolio_sdpo.prices.layouts.times import are_local_midnights, parse_clock
from portfolio_sdpo.prices.prices import DATE_UNIT

_TIME = (
    r"(?:[T ,]\s*(?P<time>\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?: ?[AP]M)?|\d{6}))?"
    r"(?: ?(?P<zone>Z|(?:UTC|GMT)?[+-]\d\d(?::?\d\d)?|UTC|GMT))?"
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
_WEEKDAY = r"(?:[^\W\d_]{2,10}\.?, )?"
_YEAR = r"(?P<year>\d{4}|\d\d)"
_FORMS = {
    form: re.compile(pattern, re.IGNORECASE)
    for form, pattern in {
        "YYYY-MM-DD": r"(?P<year>\d{4})([-/.]) ?(?P<month>\d{1,2})\2 ?(?P<day>\d{1,2})\.?" + _TIME,
        "YYYY年M月D日": r"(?P<year>\d{4}) ?[年년] ?(?P<month>\d{1,2}) ?[月월] ?(?P<day>\d{1,2}) ?[日일]" + _TIME,
        "YYYYMMDD": r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)(?:\.0)?" + _TIME,
        "Taiwan's year/MM/DD": r"(?P<year>1\d\d)[/.-](?P<month>\d\d)[/.-](?P<day>\d\d)",
        "DD/MM/YYYY or MM/DD/YYYY": r"(?P<first>\d{1,2})([-/.])(?P<second>\d{1,2})\2(?P<year>\d{4}|\d\d)" + _TIME,
        "2 Jan 2020": rf"{_WEEKDAY}(?P<day>\d{{1,2}})\.?[-/ ]?(?:de )?{_MONTH}[-/, ]*(?:de )?{_YEAR}" + _TIME,
        "Jan 2, 2020": rf"{_WEEKDAY}{_MONTH}[- ](?P<day>\d{{1,2}})(?:,? |-)(?P<year>\d{{4}})" + _TIME,
        "YYYY-MM": r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})",
        "Jan 2020": rf"{_MONTH}[-/, ]+(?P<year>\d{{4}})",
    }.items()
}
_PLAIN_WORD = re.compile(r"[^\W\d_][^-/, ]*")
"""A letter and nothing that separates, as most tickers are: no form above allows it."""
_ISO_DAYS = re.compile(r"(\d{4}-\d\d-\d\d\n)*\d{4}-\d\d-\d\d", re.ASCII)
_EPOCHS = {10: "s", 13: "ms", 16: "us", 19: "ns"}
"""Digits of an epoch time since 2001, and its unit."""
_EPOCH = re.compile(r"(\d{10}|\d{13}|\d{16}|\d{19})(\.0*)?")
_SERIAL = re.compile(r"[2-7]\d{4}(\.\d+)?")
_FIRST_SERIAL = np.datetime64("1899-12-30")
_PERIODS = {
    "M": re.compile(rf"(?P<year>(?:18|19|20|21)\d\d)(?P<number>0[1-9]|1[0-2])|{_MONTH}-(?P<short>\d\d)", re.IGNORECASE),
    "Q": re.compile(r"(?P<year>\d{4})[-: ]?Q(?P<number>[1-4])|Q(?P<second>[1-4])[-/: ](?P<last>\d{4})", re.IGNORECASE),
    "W": re.compile(r"(?P<year>\d{4})-?W(?P<number>\d\d)", re.IGNORECASE),
}
"""Months as YYYYMM or Jan-18, quarters, weeks."""
_EMPTY = frozenset(("", "nan", "nat", "none", "null", "<na>"))
_FIRST_DAY, _LAST_DAY = np.datetime64("1800-01-01"), np.datetime64("2199-12-31")


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
    if not texts or _PLAIN_WORD.fullmatch(texts[0]):
        return False
    return any(all(_is_day(form.fullmatch(text)) for text in texts) for form in _FORMS.values())


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
    """The year; one of two digits is in the hundred years that end next year, one of three counts as in Taiwan.

    >>> _full_year("1987"), _full_year("87"), _full_year("04")
    (1987, 1987, 2004)
    """
    if len(text) == 4:
        return int(text)
    if len(text) == 3:
        return int(text) + 1911
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


def looks_like_periods(cells: Sequence[str]) -> bool:
    """Whether all these cells are months as YYYYMM or Jan-18, quarters as 2020Q1, or weeks as 2020-W01."""
    texts = [cell.strip() for cell in cells if cell.strip().lower() not in _EMPTY]
    return len(texts) > 1 and _period_form(texts) is not None


def _period_form(texts: Sequence[str]) -> str | None:
    for kind, pattern in _PERIODS.items():
        matches = [pattern.fullmatch(text) for text in texts]
        if all(match and (kind != "M" or not match["name"] or _month_number(match["name"])) for match in matches):
            return kind
    return None


def looks_like_serials(cells: Sequence[str]) -> bool:
    """Whether all these cells are Excel's numbers of days, from 1954 to 2118."""
    texts = [cell.strip() for cell in cells if cell.strip().lower() not in _EMPTY]
    return len(texts) > 1 and all(_SERIAL.fullmatch(text) for text in texts)


def parse_dates(column: pd.Series, dayfirst: bool | None = None) -> ParsedDates:
    """The calendar day of each row, in the time zone that the file gives it in.

    dayfirst: whether 03/01/2011 is in January; None = the column has to tell.
    """
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        moments = column.dt.tz_localize(None) if column.dt.tz is not None else column
        days = moments.dt.normalize()
        times = None if (moments == days).all() else (moments - days).to_numpy()
        parsed = ParsedDates(days.to_numpy(f"datetime64[{DATE_UNIT}]"), (), times)
        return _take_local_days(parsed) if str(column.dt.tz) == "UTC" else parsed
    codes, found = pd.factorize(column)
    cells = [str(text).strip() for text in found]
    filled = [place for place, cell in enumerate(cells) if cell.lower() not in _EMPTY]
    if not filled:
        raise LayoutError("the column of dates is empty; prices without dates cannot be used.")
    texts = [cells[place] for place in filled]
    days, notes, times, is_utc = _parse_texts(texts, dayfirst)
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
    parsed = ParsedDates(lookup[codes], notes, clock[codes])
    return _take_local_days(parsed) if is_utc else parsed


def _take_local_days(parsed: ParsedDates) -> ParsedDates:
    """Days that are written as midnights in UTC as the exchange's own; other times in UTC keep their days."""
    if parsed.times is None:
        return parsed
    if are_local_midnights(parsed.days, parsed.times):
        note = (
            "The times are midnights of an exchange east of Greenwich in UTC: its own days, the next ones, were taken."
        )
        return ParsedDates(parsed.days + np.timedelta64(1, "D"), (*parsed.notes, note))
    note = "The times are in UTC and their UTC days were kept: check the days if the exchange is east of Greenwich."
    return replace(parsed, notes=(*parsed.notes, note))


_Parsed = tuple[np.ndarray, tuple[str, ...], np.ndarray | None, bool]
"""Days, notes, times of day where there are any, and whether these are known to be in UTC."""


def _parse_texts(texts: Sequence[str], dayfirst: bool | None) -> _Parsed:
    """One day per text, notes, and times of day."""
    if _ISO_DAYS.fullmatch("\n".join(texts)):
        with contextlib.suppress(ValueError):  # the long way names the day that is none
            return np.array(texts, dtype="datetime64[D]"), (), None, False
    if looks_like_epochs(texts):
        return _parse_epochs(texts)
    if looks_like_periods(texts):
        return _parse_periods(texts)
    if looks_like_serials(texts):
        numbers = np.array([float(text) for text in texts])
        whole = np.floor(numbers)
        times = (np.round(86400 * (numbers - whole)) * 1e6).astype("int64").astype("timedelta64[us]")
        return _FIRST_SERIAL + whole.astype("int64"), ("Dates were read as Excel's numbers of days.",), times, False
    form = next((form for form, pattern in _FORMS.items() if _is_day(pattern.fullmatch(texts[0]))), None)
    if form is None:
        form = next((form for form, pattern in _FORMS.items() if pattern.fullmatch(texts[0])), None)
    if form is None:
        raise LayoutError(f"{texts[0]!r} is not a date that is understood; write dates as YYYY-MM-DD.")
    matches = []
    for text in texts:
        match = _FORMS[form].fullmatch(text)
        if match is None and not any(map(str.isdigit, text)):
            raise LayoutError(f"{text!r} stands in the column of dates and is none; delete that row.")
        if match is None:
            raise LayoutError(
                f"the column of dates mixes {texts[0]!r} ({form}) with {text!r}; write all dates as YYYY-MM-DD."
            )
        matches.append(match)
    is_utc = _check_zones(matches)
    times = _parse_times(matches)
    if "first" in matches[0].groupdict():
        _check_year_last(matches)
        days, note = order_days(
            [(int(m["first"]), int(m["second"]), _full_year(m["year"])) for m in matches], texts, dayfirst
        )
        return np.array(days, dtype="datetime64[D]"), note, times, is_utc
    if "day" not in matches[0].groupdict():
        return _parse_months(matches), ("Months were dated at their last day.",), None, False
    return np.array([_read_day(match) for match in matches], dtype="datetime64[D]"), (), times, is_utc


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
    # Shiller's 1990.1 follows 1990.09: a number that lost its last zero.
    tenths = any(re.fullmatch(r"\d{4}\.\d\d", match.string) for match in matches)
    for match in matches:
        fields = match.groupdict()
        if tenths and fields["month"] == "1":
            fields["month"] = "10"
        month = _month_number(fields["name"]) if fields.get("name") else int(fields["month"])
        if month is None or not 1 <= month <= 12:
            raise LayoutError(f"{match.string!r} is not a month of the calendar; correct it.")
        months.append(f"{int(fields['year']):04d}-{month:02d}")
    return (np.array(months, dtype="datetime64[M]") + 1).astype("datetime64[D]") - 1


def _parse_periods(texts: Sequence[str]) -> _Parsed:
    """The last day of each month or quarter, the Friday of each week."""
    kind = _period_form(texts)
    assert kind is not None
    fields = [match.groupdict() for text in texts if (match := _PERIODS[kind].fullmatch(text))]
    if kind == "W":
        days = [date.fromisocalendar(int(each["year"]), int(each["number"]), 5) for each in fields]
        return np.array(days, dtype="datetime64[D]"), ("Weeks were dated at their Friday.",), None, False
    if kind == "Q":
        pairs = [(int(each["year"] or each["last"]), 3 * int(each["number"] or each["second"])) for each in fields]
    else:
        pairs = [
            (_full_year(each["year"] or each["short"]), int(each["number"] or 0) or _month_number(each["name"]) or 0)
            for each in fields
        ]
    if len(set(pairs)) < len(pairs) and fields[0].get("name"):
        raise LayoutError(f"{texts[0]!r} can be a month or a day without its year; write all dates as YYYY-MM-DD.")
    months = np.array([f"{year:04d}-{month:02d}" for year, month in pairs], dtype="datetime64[M]")
    what = "Quarters" if kind == "Q" else "Months"
    return (months + 1).astype("datetime64[D]") - 1, (f"{what} were dated at their last day.",), None, False


def _parse_epochs(texts: Sequence[str]) -> _Parsed:
    whole = [text.partition(".")[0] for text in texts]
    unit = _EPOCHS[len(whole[0])]
    moments = (
        np.array([int(text) for text in whole], dtype="int64").astype(f"datetime64[{unit}]").astype("datetime64[us]")
    )
    days = moments.astype("datetime64[D]")
    times = (moments - days.astype("datetime64[us]")).astype("timedelta64[us]")
    names = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
    return days, (f"Times were read as {names[unit]} since 1970.",), times, True


def _parse_times(matches: Sequence[re.Match[str]]) -> np.ndarray | None:
    """The times of day, None where no cell has one."""
    if "time" not in matches[0].groupdict() or not any(match["time"] for match in matches):
        return None
    clock = [parse_clock(text.strip()) if (text := match["time"]) else np.timedelta64(0, "us") for match in matches]
    return np.array(clock, dtype="timedelta64[us]")


def _check_year_last(matches: Sequence[re.Match[str]]) -> None:
    """Refuse years of two digits that may stand first: 20/01/02 is in 2002 or in 2020."""
    if len(matches[0]["year"]) == 4:
        return
    try:
        days = [date(_full_year(m["first"].zfill(2)), int(m["second"]), int(m["year"])) for m in matches]
    except ValueError:
        return  # no such days: the year stands last
    same_year = len({m["year"] for m in matches}) < len({m["first"] for m in matches})
    if len(matches) > 2 and (same_year or not in_order(days)):
        return
    raise LayoutError(
        f"{matches[0].string!r} is not a date that can be read in one way only, since its year has two digits; write "
        "all dates as YYYY-MM-DD."
    )


def _check_zones(matches: Sequence[re.Match[str]]) -> bool:
    """Whether all times are in UTC; times of several zones are refused.

    Summer time moves an offset by an hour, anything more is another place.
    """
    if "zone" not in matches[0].groupdict() or not any(match["zone"] for match in matches):
        return False
    by_zone = {match["zone"]: match.string for match in matches}
    by_offset = {_offset(zone): text for zone, text in by_zone.items()}
    if by_offset.keys() == {None}:
        return False
    offsets = sorted(offset for offset in by_offset if offset is not None)
    if None in by_offset or offsets[-1] - offsets[0] > 60:
        one, other = by_offset[offsets[0]], by_offset[None] if None in by_offset else by_offset[offsets[-1]]
        raise LayoutError(
            f"the dates are in different time zones ({one!r} and {other!r}), so their days cannot be compared; "
            "write each exchange's own day as YYYY-MM-DD."
        )
    return offsets == [0]


def _offset(zone: str | None) -> int | None:
    """Minutes east of Greenwich."""
    if zone is None:
        return None
    zone = zone.removeprefix("UTC").removeprefix("GMT") or "Z"
    if zone[0] not in "+-":
        return 0
    minutes = 60 * int(zone[1:3]) + int(zone[3:].lstrip(":") or 0)
    return -minutes if zone[0] == "-" else minutes
