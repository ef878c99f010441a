"""From returns to prices: some publish returns only, as Kenneth French does."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import pandas as pd

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.prices.prices import Prices

ReturnUnit = Literal["decimal", "percent", "log", "gross"]
UNITS: tuple[ReturnUnit, ...] = get_args(ReturnUnit)
"""How returns are written: 0.01, 1.0, ln(1.01), 1.01."""
BASE = 100.0
"""The level before the first return."""
_MISSING = (-99.99, -999.0)
"""What Kenneth French's files have in place of a return that is unknown."""


def check_unit(unit: str) -> ReturnUnit:
    """The unit of returns, or a `SettingsError` that names those there are."""
    if unit not in UNITS:
        raise SettingsError(f"returns: must be one of {', '.join(UNITS)} (got {unit!r}).")
    return unit


def accumulate_returns(frame: pd.DataFrame, unit: ReturnUnit) -> pd.DataFrame:
    """Levels that start from 100 before the first return; a missing return leaves its cell empty.

    >>> frame = pd.DataFrame({"A": [1.0, -2.0]}, index=pd.to_datetime(["2020-01-02", "2020-01-03"]))
    >>> accumulate_returns(frame, "percent")["A"].round(4).tolist()
    [101.0, 98.98]
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
    return pd.DataFrame(levels, index=frame.index, columns=frame.columns)


def turn_into_prices(prices: Prices, unit: ReturnUnit) -> Prices:
    """Prices made of what was read as returns, with a note on it."""
    note = f"Returns ({unit}) were turned into levels that start from {BASE:.0f}."
    return replace(prices, frame=accumulate_returns(prices.frame, unit), column="returns", notes=(*prices.notes, note))
