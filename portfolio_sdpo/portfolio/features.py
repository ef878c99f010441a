"""What a policy for any universe sees of a market at a close: slow features of every asset and of the market.

All of them are ratios, of returns to volatility or of one volatility to another, so that they mean the same for a
utility in 1935 and for a young stock today. "The market" is the average of the universe's own assets. Returns are
logarithmic and in excess of cash. The shortest span is a month: in old prices, what moves within a few days is mostly
the trading of illiquid stocks.

Row t depends on closes up to t and on nothing later. What an asset lacks the history for is neutral, as if it were the
average asset.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from portfolio_sdpo.portfolio.market import Array, Market, Mask

MONTH = 21
MONTHS = 12
YEAR = 252
LONG = 1260
"""Sessions of the long-run volatility of the market."""
REACH = LONG
"""Sessions that a row of features depends on, at most."""
LEAST = 63
"""Sessions with a return, of the last 252, from which on an asset has features of its own."""
MOMENTA = (21, 63, 126, 252)
"""Sessions over which momentum is measured."""
BEYOND = 4.0
"""Features are cut off at ± this, about four standard deviations."""

ASSET_FEATURES = (
    *(f"momentum {span}" for span in MOMENTA),
    "volatility",
    "rise of volatility",
    "beta",
    "downside share",
)
"""Columns of `Features.assets`, each relative to the average of the universe."""
MARKET_FEATURES = ("momentum 63", "momentum 252", "rise of volatility", "drawdown", "common share of volatility")
"""Columns of `Features.market`."""


@dataclass(frozen=True, eq=False)
class Features:
    """What is seen at K closes of N assets; cash is not among them."""

    assets: Array
    """[K, N, F] see `ASSET_FEATURES`; 0 = as the average asset."""
    market: Array
    """[K, M] see `MARKET_FEATURES`."""
    months: Array
    """[K, N, 12, 2] the last twelve months, latest last: the asset's return beyond the market's, and the market's, each
    in units of its volatility."""
    log_volatility: Array
    """[K, N] logarithm of daily volatility over the last year."""
    listed: Mask
    """[K, N] can be bought at that close."""


def compute_features(market: Market, rows: NDArray[np.intp]) -> Features:
    """Features at the closes `rows` [K] of a market of N assets."""
    listed, gross_returns = market.listed[:, 1:], market.gross_returns
    valid = listed & np.concatenate([listed[:1], listed[:-1]])
    number = valid.sum(axis=1)
    mean = np.where(valid, gross_returns[:, 1:], 0.0).sum(axis=1) / np.maximum(number, 1)
    common = np.where(number > 0, np.log(np.where(number > 0, mean, 1.0)) - np.log(gross_returns[:, 0]), 0.0)
    whole, whole_squares = _Sums(common[:, None], rows), _Sums(common[:, None] ** 2, rows)

    # Of single assets, a row depends on the last sessions only.
    first = max(int(rows.min()) - YEAR, 0)
    valid, recent_rows, beside = valid[first:], rows - first, common[first:, None]
    returns = np.where(valid, np.log(gross_returns[first:, 1:]) - np.log(gross_returns[first:, :1]), 0.0)
    own, squares = _Sums(returns, recent_rows), _Sums(returns**2, recent_rows)
    sessions = _Sums(valid.astype(np.float64), recent_rows)
    known = sessions.last(YEAR) >= LEAST  # [K, N]
    here = listed[rows]
    counted = known & here
    others = np.maximum(counted.sum(axis=1, keepdims=True), 1)

    def average(values: Array) -> Array:
        """Mean [K, 1] of values [K, N] over the listed assets that have one."""
        return np.asarray(np.where(counted, values, 0.0).sum(axis=1, keepdims=True) / others)

    def relative(values: Array) -> Array:
        """Values [K, N] less their mean, 0 where there is none."""
        return np.where(known, values - average(values), 0.0)

    year = np.maximum(sessions.last(YEAR), 1.0)
    volatility = _root(squares.last(YEAR) / year, known)
    recent = _root(squares.last(63) / np.maximum(sessions.last(63), 1.0), known & (sessions.last(63) > 0))
    market_volatility, market_recent, market_long = (
        _root(whole_squares.last(span) / np.minimum(rows + 1, span)[:, None], True) for span in (YEAR, 63, LONG)
    )
    log_volatility = np.log(volatility)
    typical = np.where(counted.any(axis=1, keepdims=True), average(log_volatility), np.log(market_volatility))

    momenta = [relative(own.last(span) / (volatility * math.sqrt(span))) for span in MOMENTA]
    falls = _Sums(np.minimum(returns, 0.0) ** 2, recent_rows).last(YEAR) / np.maximum(squares.last(YEAR), 1e-12)
    beta = _Sums(returns * beside, recent_rows).last(YEAR) / np.maximum(whole_squares.last(YEAR), 1e-12)
    assets = np.stack(
        [
            *momenta,
            2.0 * relative(log_volatility),
            4.0 * relative(np.log(recent / volatility)),
            np.where(known, 2.0 * (beta - 1.0), 0.0),
            8.0 * relative(falls),
        ],
        axis=-1,
    )
    trends = [whole.last(span) / (market_volatility * math.sqrt(span)) for span in (63, YEAR)]
    market_features = np.concatenate(
        [
            *trends,
            1.5 * np.log(market_recent / market_long),
            _drawdown(common, rows)[:, None] / (market_volatility * math.sqrt(YEAR)),
            4.0 * (np.log(market_volatility) - typical) + 1.0,
        ],
        axis=1,
    )
    return Features(
        assets=assets.clip(-BEYOND, BEYOND),
        market=market_features.clip(-BEYOND, BEYOND),
        months=_months(own, whole, volatility, market_volatility, known).clip(-BEYOND, BEYOND),
        log_volatility=np.where(known, log_volatility, typical),
        listed=here,
    )


class _Sums:
    """Sums of a series [T, ...] over the sessions up to each row."""

    def __init__(self, series: Array, rows: NDArray[np.intp]) -> None:
        self.total = np.concatenate([np.zeros((1, *series.shape[1:])), np.cumsum(series, axis=0)])
        self.rows = rows

    def last(self, span: int, skipped: int = 0) -> Array:
        """[K, ...] over `span` sessions, the latest `skipped` left out; over fewer where there are not as many."""
        end = np.maximum(self.rows + 1 - skipped, 0)
        return np.asarray(self.total[end] - self.total[np.maximum(end - span, 0)])


def _root(variance: Array, known: Mask | bool) -> Array:
    """The volatility, at least 0.01 % a day, and 1 where it is not known."""
    return np.where(known, np.sqrt(np.maximum(variance, 1e-8)), 1.0)


def _drawdown(returns: Array, rows: NDArray[np.intp]) -> Array:
    """[K] log wealth below its peak of the last year, ≤ 0."""
    level = np.cumsum(returns)
    window = np.maximum(rows[:, None] - np.arange(YEAR), 0)
    return np.asarray(level[rows] - level[window].max(axis=1))


def _months(own: _Sums, common: _Sums, volatility: Array, market_volatility: Array, known: Mask) -> Array:
    """[K, N, 12, 2] see `Features.months`."""
    scale = math.sqrt(MONTH)
    steps = []
    for age in reversed(range(MONTHS)):
        skipped = MONTH * age
        whole = common.last(MONTH, skipped)
        beyond = np.where(known, (own.last(MONTH, skipped) - whole) / (volatility * scale), 0.0)
        steps.append(np.stack([beyond, np.broadcast_to(whole / (market_volatility * scale), beyond.shape)], axis=-1))
    return np.stack(steps, axis=2)
