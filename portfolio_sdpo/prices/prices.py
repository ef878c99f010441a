"""Prices as they came in: one wide frame and what is known about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from portfolio_sdpo.errors import DataQualityError, SourceError

Adjustment = Literal["total-return", "splits", "none", "unknown"]
"""What the prices are corrected for: dividends and splits, splits only, nothing, or unknown."""

DATE_UNIT = "us"
"""Resolution of every date index, so that equal prices are equal frames."""


@dataclass(frozen=True)
class Prices:
    """What a source or a file gave, before cleaning.

    frame: date × ticker, float64, NaN = no price. Made by `wide`: dates are naive midnights, ascending, and may repeat
    (cleaning reports that); tickers are sorted and unique.
    """

    frame: pd.DataFrame
    column: str
    """The column that the prices are from, as the source spells it: `Adj Close`, `close`; `price` in a wide table."""
    adjustment: Adjustment
    failures: Mapping[str, SourceError] = field(default_factory=dict)
    """Tickers that were asked for and did not arrive, and why."""
    notes: tuple[str, ...] = ()
    """Sentences that the user should read, e.g. which of two price columns was used."""
    companions: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    """Further tables of the same shape, where the source has them: `close` (not adjusted), `dividends`, `splits`."""
    currencies: Mapping[str, str] = field(default_factory=dict)
    """The currency of each ticker, where the source states it."""


def check_currencies(prices: Prices, convertible: bool = False) -> None:
    """Raise a `DataQualityError` if the prices are in several currencies: their returns cannot be compared.

    convertible: whether the user can have them converted by naming exchange rates.
    """
    owners: dict[str, list[str]] = {}
    for ticker in prices.frame.columns:
        if currency := prices.currencies.get(ticker):
            owners.setdefault(currency, []).append(ticker)
    if len(owners) > 1 or any("/" in currency for currency in owners):
        shown = "; ".join(f"{currency}: {', '.join(tickers[:3])}" for currency, tickers in sorted(owners.items()))
        way = (
            "turn them into one with --currency USD --rates FILE, whose columns are pairs such as EURUSD (how many USD "
            "one EUR costs), or "
        )
        raise DataQualityError(
            f"The prices are in several currencies ({shown}): {way if convertible else ''}store each currency as its "
            "own snapshot with --tickers."
        )


def to_wide(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame in the form that `Prices` promises; rows and columns without any price stay for cleaning to report."""
    index = pd.DatetimeIndex(frame.index)
    if index.tz is not None:
        index = index.tz_localize(None)  # the exchange's own calendar day, not UTC's
    index = index.normalize().as_unit(DATE_UNIT)
    index.name = "date"
    result = (
        frame.astype("float64").set_axis(index, axis=0).set_axis([str(name) for name in frame.columns.tolist()], axis=1)
    )
    result.columns.name = "ticker"
    return result.sort_index(axis=0, kind="stable").sort_index(axis=1)


def join_columns(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Frames of different tickers as one; a date that one of them has twice stays twice, for cleaning to report."""
    if all(frame.index.is_unique for frame in frames):
        return pd.concat(frames, axis=1, sort=True)
    numbered = [
        frame.set_axis(pd.MultiIndex.from_arrays([frame.index, frame.groupby(level=0).cumcount()]), axis=0)
        for frame in frames
    ]
    return pd.concat(numbered, axis=1, sort=True).droplevel(1)
