"""From returns to prices: some publish returns only, as Kenneth French does."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import pandas as pd

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.prices.calendar import load_sessions
from portfolio_sdpo.prices.frequency import DAILY, MONTHLY, QUARTERLY, YEARLY, recognise_frequency
from portfolio_sdpo.prices.prices import Prices, to_wide

ReturnUnit = Literal["decimal", "percent", "log", "gross"]
UNITS: tuple[ReturnUnit, ...] = get_args(ReturnUnit)
"""How returns are written: 0.01, 1.0, ln(1.01), 1.01."""
BASE = 100.0
"""The level before the first return."""
_MONTHS = {MONTHLY.name: 1, QUARTERLY.name: 3, YEARLY.name: 12}
_MISSING = (-99.99, -999.0)
"""What Kenneth French's files have in place of a return that is unknown."""


def check_unit(unit: str) -> ReturnUnit:
    """The unit of returns, or a `SettingsError` that names those there are."""
    if unit not in UNITS:
        raise SettingsError(f"returns: must be one of {', '.join(UNITS)} (got {unit!r}).")
    return unit


def accumulate_returns(frame: pd.DataFrame, unit: ReturnUnit) -> pd.DataFrame:
    """Levels that start from 100 on the row before the first return; a missing return leaves its cell empty.

    A row is put before the first one, on the last session before it, so that no return is lost.

    >>> frame = pd.DataFrame({"A": [1.0, -2.0]}, index=pd.to_datetime(["2020-01-02", "2020-01-03"]))
    >>> accumulate_returns(frame, "percent")["A"].round(4)
    2019-12-31    100.00
    2020-01-02    101.00
    2020-01-03     98.98
    Name: A, dtype: float64
    """
    values = frame.to_numpy(dtype="float64", copy=True)
    if unit == "percent":
        values[np.isin(values, _MISSING)] = np.nan
    with np.errstate(over="ignore"):
        if unit == "log":
            growth = np.exp(values)
        else:
            growth = values if unit == "gross" else 1 + values / (100 if unit == "percent" else 1)
    empty = np.isnan(growth)
    levels = BASE * np.cumprod(np.where(empty, 1.0, growth), axis=0)
    levels[empty] = np.nan
    levels = np.vstack([np.full((1, levels.shape[1]), np.nan), levels])
    columns = np.flatnonzero(~empty.all(axis=0))
    levels[(~empty).argmax(axis=0)[columns], columns] = BASE
    dates = pd.DatetimeIndex(frame.index)
    return pd.DataFrame(levels, index=dates.insert(0, _find_base_day(dates)), columns=frame.columns)


def _find_base_day(dates: pd.DatetimeIndex) -> pd.Timestamp:
    """The day of the price that the first return starts from."""
    first, frequency = dates[0], recognise_frequency(dates)
    if frequency == DAILY:
        day = first.to_numpy().astype("datetime64[D]")
        sessions = load_sessions("XNYS", day - 10, day - 1).days
        return pd.Timestamp(sessions[-1] if len(sessions) else np.busday_offset(day, -1, roll="forward"))
    if months := _MONTHS.get(frequency.name):
        before = first - pd.DateOffset(months=months)
        return before + pd.offsets.MonthEnd(0) if dates.is_month_end.all() else before
    gaps = np.diff(dates.unique().to_numpy().astype("datetime64[D]")).astype(int)
    return first - pd.Timedelta(days=int(np.median(gaps)) if len(gaps) else 1)


def turn_into_prices(prices: Prices, unit: ReturnUnit) -> Prices:
    """Prices made of what was read as returns, with a note on it."""
    note = f"Returns ({unit}) were turned into levels that start from {BASE:.0f}."
    frame = to_wide(accumulate_returns(prices.frame, unit))
    return replace(prices, frame=frame, column="returns", notes=(*prices.notes, note))
