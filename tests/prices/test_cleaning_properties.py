"""Cleaning against a naive scalar reference, and against the future."""

from __future__ import annotations

import json
import math
from datetime import date, timedelta

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.prices.cleaning import CleanPrices, Repairs, Report, clean, inspect
from portfolio_sdpo.prices.prices import Prices
from tests.prices.cleaning_examples import CALENDAR, FIRST, NAN, prices


@st.composite
def histories(draw: st.DrawFn) -> Prices:
    """Up to 30 rows of 4 tickers, on and off the calendar, with gaps, late listings, delistings and repeated rows."""
    offsets = draw(st.lists(st.integers(0, 60), min_size=1, max_size=30))
    days = [FIRST + timedelta(days=offset) for offset in sorted(offsets)]
    columns = {}
    for ticker in "ABCD"[: draw(st.integers(1, 4))]:
        start, end = draw(st.integers(0, len(days))), draw(st.integers(0, len(days)))
        gappy = st.sampled_from([NAN, NAN, 1.0, 1.0, 1.25, 2.0])
        level = draw(st.sampled_from([st.just(1.0), gappy, gappy]))
        row = draw(st.lists(level, min_size=len(days), max_size=len(days)))
        columns[ticker] = [value if start <= at <= end else NAN for at, value in enumerate(row)]
    return prices(columns, days)


options = st.fixed_dictionaries(
    {
        "calendar": st.sampled_from(["XNYS", None]),
        "carry": st.integers(0, 6),
        "repairs": st.builds(
            Repairs,
            duplicates=st.sampled_from(["first", "last"]),
            non_positive=st.just("drop"),
            extra_sessions=st.sampled_from([None, "drop"]),
        ),
    }
)


def cleaned_or_none(given_prices: Prices, **chosen: object) -> CleanPrices | None:
    errors = inspect(given_prices, **chosen).errors  # type: ignore[arg-type]
    assert {error.sentence for error in errors} <= {"There is no price in the data."}
    return None if errors else clean(given_prices, **chosen)  # type: ignore[arg-type]


@settings(deadline=None)
@given(histories(), options, st.integers(0, 60))
def test_a_longer_history_never_changes_an_earlier_value(history: Prices, chosen: dict, cut: int) -> None:
    whole = cleaned_or_none(history, **chosen)
    until = pd.Timestamp(FIRST + timedelta(days=cut))
    part = cleaned_or_none(Prices(history.frame.loc[:until], "close", "unknown"), **chosen)
    if part is None:
        assert whole is None or whole.frame.loc[:until].empty
        return
    assert whole is not None
    earlier = whole.frame.loc[:until]
    pd.testing.assert_frame_equal(earlier[part.frame.columns], part.frame)
    assert earlier.drop(columns=part.frame.columns).isna().all(axis=None)
    for ticker, days in part.carried.items():
        assert days == [day for day in whole.carried[ticker] if day <= until.date()]


@settings(deadline=None)
@given(histories(), options)
def test_every_price_was_observed_on_that_day_or_shortly_before(history: Prices, chosen: dict) -> None:
    result = cleaned_or_none(history, **chosen)
    if result is None:
        return
    drops = chosen["calendar"] is not None and chosen["repairs"].extra_sessions == "drop"
    for ticker in result.frame:
        seen = history.frame[ticker].dropna()
        if drops:
            seen = seen[[day.date() in CALENDAR for day in seen.index]]
        for day, price in result.frame[ticker].dropna().items():
            known = seen.loc[:day]
            assert len(known), "a price before the first observation"
            assert price in known[known.index == known.index[-1]].tolist()
            if chosen["calendar"]:
                assert sum(known.index[-1].date() < session <= day.date() for session in CALENDAR) <= chosen["carry"]


@settings(deadline=None)
@given(histories(), options)
def test_batched_equals_the_scalar_reference(history: Prices, chosen: dict) -> None:
    cells, kinds = reference(history, **chosen)
    report = inspect(history, **chosen)
    found = {(finding.kind, finding.ticker, finding.count) for finding in report.findings}
    assert found == kinds
    assert Report.from_json(json.loads(json.dumps(report.to_json()))) == report
    if cells:
        result = clean(history, **chosen)
        stacked = {
            (day.date(), str(ticker)): price
            for ticker in result.frame
            for day, price in result.frame[ticker].dropna().items()
        }
        assert stacked == cells
        assert not result.frame.isna().all(axis=0).any()
        assert result.frame.index.is_unique and result.frame.index.is_monotonic_increasing


def reference(
    history: Prices, calendar: str | None, carry: int, repairs: Repairs
) -> tuple[dict[tuple[date, str], float], set[tuple[str, str | None, int]]]:
    """CleanPrices cells and (kind, ticker, count) of every finding, one cell at a time."""
    kinds: set[tuple[str, str | None, int]] = set()
    tickers = list(history.frame.columns)
    merged: dict[date, dict[str, float]] = {}
    conflicts: set[tuple[date, str]] = set()
    repeated = set()
    for stamp, row in history.frame.iterrows():
        day = stamp.date()
        if day in merged:
            repeated.add(day)
        kept = merged.setdefault(day, {})
        for ticker, price in row.items():
            if math.isnan(price):
                continue
            if ticker in kept and kept[ticker] != price:
                conflicts.add((day, ticker))
            if ticker not in kept or repairs.duplicates == "last":
                kept[ticker] = price
    for ticker in tickers:
        if number := sum(name == ticker for _, name in conflicts):
            kinds.add(("duplicate", ticker, number))
    if agreeing := repeated - {day for day, _ in conflicts}:
        kinds.add(("duplicate", None, len(agreeing)))
    if empty := [day for day, kept in merged.items() if not kept]:
        kinds.add(("empty-row", None, len(empty)))
    days = sorted(day for day, kept in merged.items() if kept)
    counted = list(days)
    if calendar and days:
        inside = [day for day in CALENDAR if days[0] <= day <= days[-1]]
        if missing := set(inside) - set(days):
            kinds.add(("missing-session", None, len(missing)))
        if extra := set(days) - set(CALENDAR):
            kinds.add(("extra-session", None, len(extra)))
            if repairs.extra_sessions:
                days = [day for day in days if day not in extra]
        counted = sorted({*inside, *days})
    cells: dict[tuple[date, str], float] = {}
    for ticker in tickers:
        observed = [day for day in days if ticker in merged[day]]
        if not observed:
            kinds.add(("no-price", ticker, 0))
            continue
        if observed[0] != days[0]:
            kinds.add(("late-listing", ticker, 1))
        run, stale, large, previous = 1, 0, 0, None
        for day in observed:
            price = merged[day][ticker]
            if previous is not None:
                large += abs(price / previous - 1) > 0.35
                run = run + 1 if price == previous else 1
                stale += run == 10
            previous = price
        kinds |= {(kind, ticker, n) for kind, n in (("large-move", large), ("stale-run", stale)) if n}
        filled = suspended = 0
        open_end = was_suspended = False
        last = None
        for day in days:
            if ticker in merged[day]:
                last = day
            if last is None:
                continue
            age = counted.index(day) - counted.index(last)
            if age <= carry or day == last:
                cells[day, ticker] = merged[last][ticker]
                filled += day != last
                open_end = was_suspended = False
            else:
                suspended += not was_suspended
                open_end = was_suspended = True
        if filled:
            kinds.add(("gap", ticker, filled))
        if open_end:
            kinds.add(("delisting", ticker, 1))
        if suspended - open_end:
            kinds.add(("suspension", ticker, suspended - open_end))
    if not cells:
        kinds.add(("no-price", None, 0))
    return cells, kinds
