"""From prices as they came in to the canonical frame, with a report.

A cell of the canonical frame depends only on rows up to its own date: later rows cannot change it, and no policy can
see ahead through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Literal

import numpy as np
import pandas as pd

from portfolio_sdpo.errors import DataQualityError, SettingsError
from portfolio_sdpo.prices.calendar import Sessions, load_sessions
from portfolio_sdpo.prices.cleaning.checks import find_gaps, find_late_listings, find_moves_and_stale_runs
from portfolio_sdpo.prices.cleaning.report import Finding, Report
from portfolio_sdpo.prices.cleaning.table import Mask, Table, format_count, format_days, make_finding
from portfolio_sdpo.prices.plausibility import describe_values
from portfolio_sdpo.prices.prices import Prices
from portfolio_sdpo.settings import Settings

CARRY = 5
"""How many sessions a price is carried over a gap by default."""

ODD_CELLS = 3
"""A column with more numbers that are not positive is looked at closely: it may hold something else than prices."""

MOST_DROPPED = 0.05
"""Share of a ticker's prices from which on leaving out those that are not positive is no repair."""

MANY_REPEATS = 10
"""A ticker with different prices on more dates than this looks intraday, or like several series under one name."""

ERRORS_SHOWN = 3
"""How many findings the message of a `DataQualityError` holds."""


class Repairs(Settings):
    """What may be done about prices that cannot be right; what is not named here stops the import."""

    duplicates: Literal["first", "last"] | None = None
    """Of several different prices for one ticker and date, the one to keep, in the order of the file."""
    non_positive: Literal["drop"] | None = None
    """Take zero, negative and infinite prices as no price."""
    extra_sessions: Literal["drop"] | None = None
    """Leave out dates on which the exchange is closed; otherwise they stay, with a warning."""


@dataclass(frozen=True)
class CleanPrices:
    """Prices in canonical form: unique ascending dates × sorted tickers, float64, every price > 0, NaN = no price."""

    frame: pd.DataFrame
    report: Report
    carried: dict[str, list[date]]
    """The cells of `frame` that hold an earlier price, by ticker."""


NO_REPAIRS = Repairs()


def clean(
    prices: Prices, *, calendar: str | None = "XNYS", repairs: Repairs = NO_REPAIRS, carry: int = CARRY
) -> CleanPrices:
    """Prices in canonical form, and the report on them.

    calendar: a name of `exchange_calendars`; `None` takes every date of the prices as a session. carry: for how many
    sessions a price is carried over a gap. Raises a `DataQualityError` that names the repair if prices cannot be right.
    """
    cleaned = _clean(prices, calendar, repairs, carry)
    if cleaned.report.errors:
        raise DataQualityError(_refusal(cleaned.report.errors, prices.frame))
    return cleaned


def inspect(
    prices: Prices, *, calendar: str | None = "XNYS", repairs: Repairs = NO_REPAIRS, carry: int = CARRY
) -> Report:
    """What `clean` finds, with errors as findings instead of raised."""
    return _clean(prices, calendar, repairs, carry).report


def _clean(prices: Prices, calendar: str | None, repairs: Repairs, carry: int) -> CleanPrices:
    if carry < 0:
        raise SettingsError(f"carry: must not be negative (got {carry}).")
    findings: list[Finding] = []
    table = Table.from_frame(prices.frame)
    findings += _find_future_dates(table)
    findings += _find_other_numbers(table)
    table = _drop_non_positive(table, repairs, findings)
    table = _merge_duplicates(table, repairs, findings)
    known = load_sessions(calendar, table.dates[0], table.dates[-1]) if calendar and len(table.dates) else None
    table = _drop_empty_rows(table, calendar, known, findings)
    if known is not None:
        table = _compare_with_calendar(table, str(calendar), known, repairs, findings)
    table = _drop_empty_columns(table, findings)
    if not table.values.size:
        findings.append(Finding("no-price", "error", None, (), 0, "There is no price in the data."))
        return CleanPrices(table.frame(), Report.from_findings(findings), {})
    findings += find_late_listings(table)
    findings += find_moves_and_stale_runs(table)
    if known is None:
        positions = np.arange(len(table.dates))
    else:
        positions = np.searchsorted(np.union1d(known.days, table.dates), table.dates)
    table, filled = table.carry_forward(positions, carry)
    findings += find_gaps(table, filled, carry)
    carried = {ticker: days.tolist() for ticker, days in table.by_ticker(filled)}
    return CleanPrices(table.frame(), Report.from_findings(findings), carried)


def _find_future_dates(table: Table) -> Iterator[Finding]:
    """Rows dated after tomorrow, which no exchange can have seen (tomorrow has begun east of here)."""
    tomorrow = np.datetime64(date.today()) + 1
    days = np.unique(table.dates[table.dates > tomorrow])
    if len(days):
        sentence = f"{format_count(len(days), 'row')} dated in the future ({format_days(days)})."
        yield make_finding("future-date", "error", None, days, sentence)


def _find_other_numbers(table: Table) -> Iterator[Finding]:
    """Columns that hold returns or volumes in place of prices: taking their zeros as gaps would hide it."""
    suspects = np.flatnonzero((table.values <= 0).sum(axis=1) > ODD_CELLS)
    if not len(suspects):
        return
    for row, look in zip(suspects, describe_values(table.values[suspects].T), strict=True):
        if look is not None:
            days = table.dates[table.values[row] <= 0]
            sentence = f"{table.tickers[row]} holds {look} and not prices."
            yield make_finding("not-prices", "error", table.tickers[row], days, sentence)


def _drop_non_positive(table: Table, repairs: Repairs, findings: list[Finding]) -> Table:
    """Prices that are zero, negative or infinite become no price; an error unless the repair is named."""
    bad = (table.values <= 0) | np.isinf(table.values)
    for ticker, days in table.by_ticker(bad):
        what = f"{ticker} has {format_count(len(days), 'price')} that {'is' if len(days) == 1 else 'are'} not positive"
        if repairs.non_positive == "drop":
            sentence = f"{what} ({format_days(days)}), taken as no price."
            findings.append(make_finding("non-positive", "warning", ticker, days, sentence))
        else:
            sentence = f"{what} ({format_days(days)})."
            findings.append(make_finding("non-positive", "error", ticker, days, sentence))
    table.values[bad] = np.nan
    return table


def _merge_duplicates(table: Table, repairs: Repairs, findings: list[Finding]) -> Table:
    """One row per date; different prices for one ticker and date are an error unless the repair is named."""
    dates, starts, group = np.unique(table.dates, return_index=True, return_inverse=True)
    if len(dates) == len(table.dates):
        return table
    merged = table.values[:, starts]
    conflict = np.zeros(merged.shape, bool)
    turn = np.arange(len(table.dates)) - starts[group]  # 0 for the first row of a date, 1 for its second, ...
    for repeat in range(1, turn.max() + 1):
        rows = np.flatnonzero(turn == repeat)
        at = group[rows]
        old, new = merged[:, at], table.values[:, rows]
        conflict[:, at] |= ~np.isnan(old) & ~np.isnan(new) & (old != new)
        merged[:, at] = np.where(np.isnan(new) | (~np.isnan(old) & (repairs.duplicates != "last")), old, new)
    result = Table(dates, table.tickers, merged)
    for ticker, days in result.by_ticker(conflict):
        what = f"{ticker} has different prices for the same date ({format_days(days)})"
        if repairs.duplicates is None:
            findings.append(make_finding("duplicate", "error", ticker, days, f"{what}."))
        else:
            sentence = f"{what}; the {repairs.duplicates} one is kept."
            findings.append(make_finding("duplicate", "warning", ticker, days, sentence))
    repeated = np.unique(dates[group[turn > 0]])
    agreeing = np.setdiff1d(repeated, dates[conflict.any(axis=0)])
    if len(agreeing):
        sentence = (
            f"{format_count(len(agreeing), 'date')} came more than once with the same prices ({format_days(agreeing)})."
        )
        findings.append(make_finding("duplicate", "warning", None, agreeing, sentence))
    return result


def _drop_empty_rows(table: Table, calendar: str | None, known: Sessions | None, findings: list[Finding]) -> Table:
    """Rows without any price go: holidays of the exchange, or sessions that the source lacks."""
    full: Mask = np.any(~np.isnan(table.values), axis=0)
    empty = table.dates[~full]
    if len(empty):
        sentence = f"{format_count(len(empty), 'row')} without any price left out ({format_days(empty)})"
        if known is not None:
            closed = int((known.covers(empty) & ~np.isin(empty, known.days)).sum())
            sentence += f"; {calendar} was closed on {'all' if closed == len(empty) else closed} of them"
        findings.append(make_finding("empty-row", "info", None, empty, f"{sentence}."))
    return table.rows(full)


def _compare_with_calendar(
    table: Table, calendar: str, known: Sessions, repairs: Repairs, findings: list[Finding]
) -> Table:
    """Compare the dates with the exchange's sessions; missing ones are reported and not invented."""
    if not len(table.dates):
        return table
    within = (known.days >= table.dates[0]) & (known.days <= table.dates[-1])
    missing = np.setdiff1d(known.days[within], table.dates)
    if len(missing):
        sentence = f"{format_count(len(missing), 'session')} of {calendar} without a price ({format_days(missing)})."
        findings.append(make_finding("missing-session", "warning", None, missing, sentence))
    covered = known.covers(table.dates)
    if not covered.all():
        days = table.dates[~covered]
        sentence = (
            f"{format_count(len(days), 'date')} outside the calendar of {calendar} not checked ({format_days(days)})."
        )
        findings.append(make_finding("unchecked", "warning", None, days, sentence))
    extra = covered & ~np.isin(table.dates, known.days)
    if not extra.any():
        return table
    days = table.dates[extra]
    drop = repairs.extra_sessions == "drop"
    fate = "left out" if drop else "kept; --repair extra_sessions=drop leaves them out"
    sentence = f"{format_count(len(days), 'date')} on which {calendar} was closed ({format_days(days)}), {fate}."
    findings.append(make_finding("extra-session", "warning", None, days, sentence))
    return table.rows(~extra) if drop else table


def _drop_empty_columns(table: Table, findings: list[Finding]) -> Table:
    full: Mask = np.any(~np.isnan(table.values), axis=1)
    for row in np.flatnonzero(~full):
        ticker = table.tickers[row]
        findings.append(Finding("no-price", "warning", ticker, (), 0, f"{ticker} has no price at all and is left out."))
    return table.columns(full)


def _refusal(errors: tuple[Finding, ...], frame: pd.DataFrame) -> str:
    """One sentence with the first errors and the repairs that would let them pass, where these destroy nothing."""
    columns = frame.shape[1]
    shown = "; ".join(error.sentence.rstrip(".") for error in errors[:ERRORS_SHOWN])
    more = f"; and {len(errors) - ERRORS_SHOWN} more tickers" if len(errors) > ERRORS_SHOWN else ""
    kinds = {error.kind for error in errors}
    if "not-prices" in kinds:
        returns = [e for e in errors if e.kind == "not-prices" and "returns" in e.sentence]
        advice = "import columns of prices only" if columns > 1 else "import a column of prices"
        if len(returns) == columns:  # one unit is for all columns, and would spoil prices beside returns
            unit = "percent" if "percent" in returns[0].sentence else "decimal"
            advice += f", or add --returns {unit} to turn returns into prices"
        sentences = "; ".join(e.sentence.rstrip(".") for e in errors if e.kind == "not-prices")
        return f"{sentences}: {advice}."
    if "future-date" in kinds:
        return f"{shown}{more}: correct the dates, or leave these rows out with --end."
    spoilt = [
        error.ticker
        for error in errors
        if error.kind == "non-positive"
        and error.count > max(ODD_CELLS, MOST_DROPPED * frame[str(error.ticker)].count())
    ]
    if spoilt:  # dropping them would leave too little of the ticker
        others = ", or name the others with --tickers" if columns > 1 else ""
        return f"{shown}{more}: too many of the prices of {spoilt[0]} to leave out; correct the source{others}."
    # One price of many days is chosen for the user only where it is known to be the close.
    if any(error.kind == "duplicate" and error.count > MANY_REPEATS for error in errors):
        return (
            f"{shown}{more}: give each series its own ticker if there are several under one name; if they are a day's "
            "course, whose last price is the close, add --repair duplicates=last."
        )
    repairs = [
        repair
        for kind, repair in (("non-positive", "non_positive=drop"), ("duplicate", "duplicates=first (or =last)"))
        if kind in kinds
    ]
    if not repairs:
        return f"{shown}: check the file, or the tickers and the range asked for."
    return f"{shown}{more}: correct the source, or add {' '.join(f'--repair {repair}' for repair in repairs)}."
