"""Prices of several currencies turned into one, at the exchange rates of a file of the user's."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from portfolio_sdpo.errors import LayoutError, SettingsError
from portfolio_sdpo.prices.prices import Prices

HUNDREDTHS = {"GBX": "GBP", "GBp": "GBP", "ZAc": "ZAR", "ILA": "ILS"}
"""Quoted in hundredths of a currency, as prices in London are in pence."""
OLDEST_RATE = pd.Timedelta(days=7)
"""How old the rate of a day may be: over weekends and holidays the last one counts, never a later one."""
_CODE = re.compile(r"[A-Z]{3}")
_PAIR = re.compile(r"([A-Z]{3})[ /_.-]?([A-Z]{3})(=X)?")


def convert_prices(prices: Prices, currency: str, rates: Path | None) -> Prices:
    """The prices, raw closes and dividends in one currency; splits stay.

    rates: a file of exchange rates in any layout of prices, whose columns are pairs such as EURUSD, which says how many
    USD one EUR costs; the inverse pair does as well.
    """
    if not _CODE.fullmatch(currency):
        raise SettingsError(f"--currency: must be a code of three letters such as USD (got {currency!r}).")
    unknown = [ticker for ticker in prices.frame.columns if not prices.currencies.get(ticker)]
    if unknown:
        raise SettingsError(
            f"--currency: nothing says which currency {unknown[0]} is in; add a column `currency` to the file, or the "
            "currency to the name of its column, as in `Close (EUR)`."
        )
    if currency in HUNDREDTHS:
        raise SettingsError(f"--currency: {currency} are hundredths of {HUNDREDTHS[currency]}; give that currency.")
    needed = {prices.currencies[ticker] for ticker in prices.frame.columns} - {currency}
    if not needed:
        return prices
    foreign = sorted(each for each in needed if HUNDREDTHS.get(each) != currency)
    if foreign and rates is None:
        raise SettingsError(
            f"--currency: {', '.join(foreign)} can only be turned into {currency} with exchange rates; name a file of "
            f"them with --rates, whose columns are pairs such as {_spell(foreign[0], currency)}."
        )
    table = pd.DataFrame() if rates is None else _read_rates(rates)
    place = Path() if rates is None else rates
    factors = {each: _find_factor(table, each, currency, pd.DatetimeIndex(prices.frame.index), place)
               for each in sorted(needed)}  # fmt: skip
    companions = {
        kind: frame if kind == "splits" else _multiply(frame, prices, factors)
        for kind, frame in prices.companions.items()
    }
    frame = _multiply(prices.frame, prices, factors)
    _refuse_lost_prices(prices, frame, currency, place)
    source = f" at the rates of {place.name}" if foreign else ""
    return replace(
        prices,
        frame=frame,
        companions=companions,
        currencies=dict.fromkeys(prices.frame.columns, currency),
        notes=(*prices.notes, f"Turned from {', '.join(sorted(needed))} into {currency}{source}."),
    )


def _spell(one: str, other: str) -> str:
    return f"{HUNDREDTHS.get(one, one)}{HUNDREDTHS.get(other, other)}"


def _read_rates(path: Path) -> pd.DataFrame:
    """Day × pair, as `EURUSD`."""
    from portfolio_sdpo.prices.layouts import read_prices

    frame = read_prices(path, exchange_rates=True).frame
    pairs = {name: f"{match[1]}{match[2]}" for name in frame.columns if (match := _PAIR.fullmatch(name.upper()))}
    if not pairs:
        raise SettingsError(
            f"--rates: {path.name} has no column that is called after a pair of currencies such as EURUSD, which is "
            f"how many USD one EUR costs; rename {frame.columns[0]}."
        )
    chosen = frame[list(pairs)].rename(columns=pairs)
    if not chosen.index.is_unique or not chosen.columns.is_unique:
        raise SettingsError(f"--rates: {path.name} has a day or a pair twice; keep one of them.")
    if (chosen <= 0).to_numpy().any():
        raise SettingsError(f"--rates: {path.name} has rates that are not positive; correct them.")
    return chosen


def _find_factor(rates: pd.DataFrame, one: str, other: str, days: pd.DatetimeIndex, path: Path) -> np.ndarray:
    """What a price in one currency is to be multiplied by on each day, NaN where no rate is known by then."""
    whole = HUNDREDTHS.get(one, one)
    scale = 0.01 if one in HUNDREDTHS else 1.0
    if whole == other:
        return np.full(len(days), scale)
    if f"{whole}{other}" in rates:
        rate = rates[f"{whole}{other}"].dropna()
    elif f"{other}{whole}" in rates:
        rate = 1 / rates[f"{other}{whole}"].dropna()
    else:
        raise SettingsError(
            f"--rates: {path.name} has no column {whole}{other} or {other}{whole} (there are "
            f"{', '.join(rates.columns[:5])}); add it."
        )
    return scale * rate.reindex(days.unique(), method="ffill", tolerance=OLDEST_RATE).reindex(days).to_numpy()


def _multiply(frame: pd.DataFrame, prices: Prices, factors: dict[str, np.ndarray]) -> pd.DataFrame:
    result = frame.copy()
    index = pd.DatetimeIndex(prices.frame.index)
    for ticker in frame.columns:
        if (factor := factors.get(prices.currencies[ticker])) is not None:
            by_day = pd.Series(factor, index).groupby(level=0).first()
            result[ticker] = frame[ticker] * by_day.reindex(frame.index).to_numpy()
    return result


def _refuse_lost_prices(prices: Prices, converted: pd.DataFrame, currency: str, path: Path) -> None:
    """A day with a price and without a rate."""
    lost = prices.frame.notna() & converted.isna()
    if lost.to_numpy().any():
        row, column = np.argwhere(lost.to_numpy())[0]
        days = int(lost.any(axis=1).sum())
        raise LayoutError(
            f"--rates: {path.name} has no rate from {prices.currencies[lost.columns[column]]} to {currency} in the "
            f"week up to {lost.index[row]:%Y-%m-%d} ({days} such {'day' if days == 1 else 'days'}); add it, or leave "
            "these days out with --start and --end."
        )
