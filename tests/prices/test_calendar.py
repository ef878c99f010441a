from datetime import UTC, datetime

import numpy as np
import pytest

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.prices.calendar import count_sessions_since, load_sessions


def between(name: str, first: str, last: str) -> list[str]:
    return load_sessions(name, np.datetime64(first), np.datetime64(last)).days.astype(str).tolist()


@pytest.mark.parametrize(
    "first, last, expected",
    [
        ("2001-09-10", "2001-09-17", ["2001-09-10", "2001-09-17"]),  # the attacks of 11 September
        ("2012-10-26", "2012-10-31", ["2012-10-26", "2012-10-31"]),  # hurricane Sandy
        ("2018-12-04", "2018-12-06", ["2018-12-04", "2018-12-06"]),  # mourning for G. H. W. Bush
        ("2022-06-17", "2022-06-21", ["2022-06-17", "2022-06-21"]),  # Juneteenth, first kept in 2022
        ("2021-06-18", "2021-06-18", ["2021-06-18"]),
        ("1963-11-21", "1963-11-26", ["1963-11-21", "1963-11-22", "1963-11-26"]),  # Kennedy's funeral
        ("1999-12-31", "2000-01-03", ["1999-12-31", "2000-01-03"]),  # over the edge of a decade
        ("2039-12-30", "2040-01-03", ["2039-12-30", "2040-01-03"]),  # the future
        ("2021-01-02", "2021-01-03", []),
    ],
)
def test_nyse_sessions(first: str, last: str, expected: list[str]) -> None:
    assert between("XNYS", first, last) == expected


def test_a_range_is_the_same_whatever_it_is_part_of() -> None:
    whole = between("XNYS", "1995-01-01", "2025-12-31")
    assert between("XNYS", "2010-01-01", "2010-12-31") == [day for day in whole if day.startswith("2010")]


def test_aliases_and_other_exchanges() -> None:
    assert between("NYSE", "2020-01-01", "2020-12-31") == between("XNYS", "2020-01-01", "2020-12-31")
    assert between("24/7", "2021-01-01", "2021-01-03") == ["2021-01-01", "2021-01-02", "2021-01-03"]


def test_a_calendar_is_silent_outside_its_bounds() -> None:
    tokyo = load_sessions("XTKS", np.datetime64("1996-12-25"), np.datetime64("1997-01-07"))
    assert tokyo.days.astype(str).tolist() == ["1997-01-06", "1997-01-07"]
    assert tokyo.covers(np.array(["1996-12-25", "1997-01-06"], "datetime64[D]")).tolist() == [False, True]
    hong_kong = load_sessions("XHKG", np.datetime64("2049-12-30"), np.datetime64("2051-01-03"))
    assert hong_kong.days.astype(str).tolist()[-1] <= "2049-12-31"
    assert not hong_kong.covers(np.array(["2051-01-03"], "datetime64[D]"))[0]


@pytest.mark.parametrize("first, last", [("1200-01-03", "1200-01-10"), ("3000-01-03", "3000-01-10")])
def test_dates_no_calendar_reaches(first: str, last: str) -> None:
    found = load_sessions("XNYS", np.datetime64(first), np.datetime64(last))
    assert not len(found.days)
    assert not found.covers(np.array([first, last], "datetime64[D]")).any()


def test_an_unknown_calendar_is_named_with_its_neighbours() -> None:
    with pytest.raises(SettingsError, match=r"'XNYX' is not a calendar .* did you mean XNYS"):
        between("XNYX", "2020-01-01", "2020-01-02")
    with pytest.raises(SettingsError, match="use XNYS"):
        between("tomorrow!", "2020-01-01", "2020-01-02")


@pytest.mark.parametrize(
    ("now", "calendar", "age"),
    [
        ("2021-10-14T23:59", "XNYS", 0),
        ("2021-10-15T12:00", "XNYS", 0),
        ("2021-10-16T04:00", "XNYS", 1),
        ("2021-10-18T12:00", "XNYS", 1),
        ("2021-11-27T05:00", "XNYS", 30),  # without Thanksgiving
        ("2021-11-27T05:00", None, 31),
        ("2021-10-01T00:00", "XNYS", 0),
    ],
)
def test_sessions_since(now: str, calendar: str | None, age: int):
    last = datetime(2021, 10, 14).date()
    assert count_sessions_since(last, calendar, datetime.fromisoformat(now).replace(tzinfo=UTC)) == age
