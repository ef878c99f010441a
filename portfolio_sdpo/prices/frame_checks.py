"""Is this frame a table of prices? The checks that every frame from a user passes, with one sentence for each fault."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from portfolio_sdpo.errors import DataQualityError
from portfolio_sdpo.prices.prices import DATE_UNIT

CASH_COLUMN = "CASH"
"""The name that weights give to cash, so that no ticker may have it."""

OFTEN_NEGATIVE = 0.2
"""Share of negative values from which on a table holds returns: prices are wrong now and then, not every fifth day."""

ENOUGH_ROWS = 20
"""Rows from which on gross returns can be told from prices that happen to be near 1."""


def check_prices(prices: Any, *, allow_empty: bool = False) -> pd.DataFrame:
    """Return the frame in canonical form, or raise an error that says what is wrong with it and what to do.

    Nothing is repaired, filled or sorted on the way: a table that has to be repaired should be repaired where the
    user can see it.

    Parameters
    ----------
    prices : DataFrame of shape (n_sessions, n_tickers)
        Adjusted closes; dates in the index, ascending, each day once; NaN where a ticker has no price.
    allow_empty : bool, default False
        Whether a ticker may have no price at all, as one that is listed later has in the first years of a table.

    Returns
    -------
    DataFrame of shape (n_sessions, n_tickers)
        The same prices as float64; the index `date` without times and time zones, the columns `ticker` as text.

    Raises
    ------
    DataQualityError
        If the frame holds returns, has no dates, or holds values that cannot be prices.

    Examples
    --------
    >>> days = pd.to_datetime(["2019-01-02", "2019-01-03"])
    >>> check_prices(pd.DataFrame({"AAPL": [100, 110]}, index=days)).dtypes.to_dict()
    {'AAPL': dtype('float64')}
    >>> check_prices(pd.DataFrame({"AAPL": [100, 0]}, index=days))
    Traceback (most recent call last):
        ...
    portfolio_sdpo.errors.DataQualityError: prices: AAPL has the price 0 on 2019-01-03; prices must be positive, so \
correct it or replace it by NaN.
    """
    frame = _check_table(prices)
    dates = _check_dates(frame.index)
    tickers = _check_tickers(frame.columns)
    values = _check_numbers(frame, tickers)
    _check_values(values, tickers, dates, allow_empty)
    return pd.DataFrame(values, index=dates, columns=pd.Index(tickers, name="ticker"))


def _check_table(prices: Any) -> pd.DataFrame:
    if isinstance(prices, pd.Series):
        raise DataQualityError(
            "prices: a Series holds one column only; give a DataFrame with one column per ticker, such as "
            "prices.to_frame('AAPL')."
        )
    if not isinstance(prices, pd.DataFrame):
        raise DataQualityError(
            f"prices: must be a DataFrame with dates as its index and one column per ticker (got "
            f"{type(prices).__name__}); load_prices reads files and snapshots."
        )
    if prices.empty:
        raise DataQualityError(
            f"prices: the table has {len(prices)} rows and {prices.shape[1]} columns; give at least one session of one "
            "ticker."
        )
    return prices


def _check_dates(index: pd.Index) -> pd.DatetimeIndex:
    """The days of the index, ascending, each once."""
    if not isinstance(index, pd.DatetimeIndex):
        raise DataQualityError(f"prices: the index holds no dates (its type is {index.dtype}); {_date_advice(index)}.")
    if index.hasnans:
        raise DataQualityError("prices: the index has a row without a date; drop that row or give it its date.")
    dates = index.tz_localize(None).normalize().as_unit(DATE_UNIT)  # the exchange's own calendar day, not UTC's
    if not dates.is_unique:
        day = dates[dates.duplicated()][0].date()
        raise DataQualityError(f"prices: {day} is there more than once; keep one row per day.")
    if not dates.is_monotonic_increasing:
        raise DataQualityError("prices: the dates do not ascend; sort them with prices.sort_index().")
    return dates.rename("date")


def _date_advice(index: pd.Index) -> str:
    if isinstance(index, pd.MultiIndex):
        return "unstack the tickers, so that every row is a day and every column a ticker"
    if isinstance(index, pd.PeriodIndex):
        return "convert it with prices.index = prices.index.to_timestamp(how='end')"
    if pd.api.types.is_string_dtype(index.dtype) or index.dtype == object:
        return "convert it with prices.index = pd.to_datetime(prices.index)"
    return "move the column of dates there, such as prices.set_index('date')"


def _check_tickers(columns: pd.Index) -> list[str]:
    if isinstance(columns, pd.MultiIndex):
        raise DataQualityError(
            "prices: the columns have several levels; select the adjusted closes, such as prices['Close'], so that "
            "every column is a ticker."
        )
    tickers = [str(name) for name in columns]
    twice = next((ticker for ticker in tickers if tickers.count(ticker) > 1), None)
    if twice is not None:
        raise DataQualityError(f"prices: the column {twice} is there more than once; rename or drop one of them.")
    if CASH_COLUMN in tickers:
        raise DataQualityError(
            f"prices: the column {CASH_COLUMN} must go, since cash is added by itself; say what it earns with `cash`."
        )
    return tickers


def refuse_cash(tickers: Iterable[str]) -> None:
    """Raise a `DataQualityError` if a ticker has the name of cash, before it is stored and cannot be used."""
    if CASH_COLUMN in tickers:
        raise DataQualityError(
            f"A ticker is called {CASH_COLUMN}, which is the name of cash in every table of weights: rename it in the "
            f"file, such as {CASH_COLUMN}.US, or leave it out with --tickers and the names of the others."
        )


def _check_numbers(frame: pd.DataFrame, tickers: list[str]) -> np.ndarray:
    """[T, N] float64."""
    for ticker, (_, column) in zip(tickers, frame.items(), strict=True):
        if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype):
            continue
        # A column of objects may hold numbers all the same, as after a transposition.
        wrong = [value for value in column if not isinstance(value, int | float | np.number) and not pd.isna(value)]
        if wrong or pd.api.types.is_bool_dtype(column.dtype):
            value = wrong[0] if wrong else column.iloc[0]
            raise DataQualityError(
                f"prices: the column {ticker} holds {value!r} instead of numbers; convert it with pd.to_numeric, or "
                "drop it if it is no ticker."
            )
    return np.array(frame.to_numpy(dtype=np.float64, na_value=np.nan), order="C")


def _check_values(values: np.ndarray, tickers: list[str], dates: pd.DatetimeIndex, allow_empty: bool) -> None:
    known = ~np.isnan(values)
    empty = np.flatnonzero(~known.any(axis=0))
    if len(empty) == len(tickers):
        raise DataQualityError("prices: there is no price in the table; give one with prices.")
    if len(empty) and not allow_empty:
        raise DataQualityError(f"prices: {tickers[empty[0]]} has no price at all; drop that column.")
    if _look_like_returns(values, known):
        raise DataQualityError(
            "prices: these look like returns, not prices; give the adjusted closes themselves, or build them from "
            "simple returns with 100 * (1 + returns).cumprod()."
        )
    wrong = np.argwhere(np.isinf(values) | (values <= 0.0))
    if len(wrong):
        row, column = wrong[0]
        raise DataQualityError(
            f"prices: {tickers[column]} has the price {values[row, column]:g} on {dates[row].date()}; prices must be "
            "positive, so correct it or replace it by NaN."
        )


def _look_like_returns(values: np.ndarray, known: np.ndarray) -> bool:
    """Whether the table holds simple or log returns (often negative) or gross returns (near 1, without memory)."""
    if (values < 0.0).sum() >= OFTEN_NEGATIVE * known.sum():
        return True
    if len(values) < ENOUGH_ROWS or not (np.abs(np.nanmedian(values[:, known.any(axis=0)], axis=0) - 1.0) < 0.05).all():
        return False
    return all(_memory(column[~np.isnan(column)]) < 0.5 for column in values[:, known.any(axis=0)].T)


def _memory(series: np.ndarray) -> float:
    """Correlation of each value with the one before it: near 1 for prices, near 0 for returns."""
    if len(series) < ENOUGH_ROWS or series[1:].std() == 0.0 or series[:-1].std() == 0.0:
        return 1.0
    return float(np.corrcoef(series[1:], series[:-1])[0, 1])
