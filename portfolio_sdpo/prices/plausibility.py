"""What numbers look like, whatever their column is called: prices, returns, volumes, or open, high, low and close.

Prices move by small steps along a path; returns scatter around zero (gross returns around one) and volumes are whole
numbers that jump from one day to the next.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
"""Rows × columns, NaN = no value."""
Look = Literal[
    "returns in percent",
    "returns",
    "gross returns",
    "volumes",
    "flags",
    "rates",
    "negative numbers",
    "sums of money",
    "numbers of rows",
]

WINDOW = 250
"""Rows that are looked at, from the middle of the table."""
FEW_ROWS = 4
"""With fewer values nothing is said at all, and with few only about small numbers of both signs."""
MOST_MONEY = 1e10
"""No security has such a price in any currency, and many a company such a value."""
FEWEST_ROWS = 10
TINY_MOVE = 1e-3
"""With fewer values nothing is said about returns and volumes."""
MANY_ROWS = 20
"""With fewer values nothing is said about gross returns, and about volumes that are no whole numbers."""
STILL = 0.002
"""Gross returns of a stock scatter by more than this."""
MOST_OHLC_COLUMNS = 12
"""A wider table of unknown names is not searched for open, high, low and close."""


def describe_values(values: Values) -> list[Look | None]:
    """What each column looks like if not like prices; None for prices, and where nothing tells.

    >>> returns = np.random.default_rng(0).normal(0, 0.01, (50, 1))
    >>> describe_values(returns), describe_values(1 + returns), describe_values(100 * np.exp(returns.cumsum(axis=0)))
    (['returns'], ['gross returns'], [None])
    """
    window = _middle_rows(values)
    window = np.where(np.isinf(window), np.nan, window)
    count = (~np.isnan(window)).sum(axis=0)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without any number
        middle = np.nanmedian if np.isnan(window).any() else np.median
        median = middle(window, axis=0)
        size = middle(np.abs(window), axis=0)
        negative = (window < 0).sum(axis=0) / count
        steps = np.diff(window, axis=0)
        scatter = np.nanvar(steps, axis=0) / np.nanvar(window, axis=0)
        ratios = np.abs(np.diff(np.log(np.where(window > 0, window, np.nan)), axis=0))
        jump = (
            (np.nanmedian if np.isnan(ratios).any() else np.median)(ratios, axis=0)
            if len(ratios)
            else np.full(window.shape[1], np.nan)
        )
        whole = (np.nan_to_num(window) == np.floor(np.nan_to_num(window))).all(axis=0)
        least, most = np.nanmin(window, axis=0), np.nanmax(window, axis=0)
        near_one = (np.abs(median - 1) < 0.05) & (least > 0.2) & (most < 5)
        spread = np.nanstd(window, axis=0)
        still = (steps == 0).sum(axis=0) > 0.5 * count
    enough = count >= FEWEST_ROWS
    below = enough & (negative >= 0.5)
    few = (count >= FEW_ROWS) & ~enough
    returns = (enough & (negative > 0.2) & (negative < 0.9) & (size < 50)) | (few & (negative > 0.2) & (size < 0.5))
    # A stablecoin scatters around one as well, but by less than any stock.
    many = count >= MANY_ROWS
    gross = many & near_one & (scatter > 1.2) & (spread > STILL)
    volumes = (scatter > 0.3) & ((enough & whole & (median >= 100) & (jump > 0.1)) | (many & (jump > 0.25)))
    flags = many & whole & (least == 0) & (most <= 6) & (most > 0)
    rates = many & (least >= 0) & (most < 0.002) & still
    # From 0 or 1 on, one more in every row; no price does that.
    counters = many & (values[:1] <= 1).all(axis=0) & (np.diff(values, axis=0) == 1).all(axis=0)
    looks: list[Look | None] = []
    for column in range(window.shape[1]):
        if returns[column]:
            looks.append("returns in percent" if size[column] > 0.15 else "returns")
        elif gross[column]:
            looks.append("gross returns")
        else:
            kinds: list[tuple[np.ndarray, Look]] = [
                (below, "negative numbers"),
                (many & (median > MOST_MONEY), "sums of money"),
                (counters, "numbers of rows"),
                (volumes, "volumes"),
                (flags, "flags"),
                (rates, "rates"),
            ]
            looks.append(next((look for found, look in kinds if found[column]), None))
    for column in np.flatnonzero(count < FEWEST_ROWS).tolist():  # its numbers stand elsewhere, as after a late listing
        numbers = values[~np.isnan(values[:, column]), column]
        if len(numbers) >= FEWEST_ROWS and len(values) > WINDOW:
            looks[column] = describe_values(numbers[:, None])[0]
    return looks


def find_total(values: Values) -> int | None:
    """The column that is in every row the sum or the mean of all others, None if there is none.

    >>> parts = np.random.default_rng(0).uniform(1, 2, (20, 2))
    >>> find_total(np.hstack([parts, parts.sum(axis=1, keepdims=True)]))
    2
    """
    rows = _middle_rows(values)
    rows = rows[np.isfinite(rows).all(axis=1)]
    width = rows.shape[1]
    if width < 3 or len(rows) < FEWEST_ROWS or np.isclose(rows, rows[:, :1]).all():
        return None
    others = rows.sum(axis=1, keepdims=True) - rows
    for total in (others, others / (width - 1)):
        if len(found := np.flatnonzero(np.isclose(total, rows, rtol=1e-4).all(axis=0))):
            return int(found[0])
    return None


def find_twins(values: Values, columns: Sequence[int]) -> tuple[int, int] | None:
    """Two of the columns that stay close to each other, or in one ratio, in every row: prices of one security.

    >>> prices = 100 + np.arange(20.0)[:, None]
    >>> find_twins(np.hstack([prices, prices[::-1], 2 * prices]), (0, 1, 2))
    (0, 2)
    """
    rows = _middle_rows(values)
    for one, other in itertools.combinations(columns[:MOST_OHLC_COLUMNS], 2):
        pair = rows[:, [one, other]]
        pair = pair[(pair > 0).all(axis=1) & np.isfinite(pair).all(axis=1)]
        if len(pair) >= FEWEST_ROWS:
            ratios = np.log(pair[:, 0] / pair[:, 1])
            levels = np.log(pair[:, 0])
            # Two securities of about the same price drift apart by more than the moves of a few sessions.
            together = ratios.std() < max(np.diff(levels).std(), TINY_MOVE)
            is_close = together and np.abs(ratios).max() < 0.1 and np.median(np.abs(ratios)) < 0.02
            moves = levels.std()
            if is_close or (moves > 0.005 and ratios.std() < 0.05 * moves):
                return one, other
    return None


def are_weights(values: Values) -> bool:
    """Whether every row has the sum 1, as the weights of a portfolio.

    >>> weights = np.random.default_rng(0).dirichlet([1, 1, 1], 20)
    >>> are_weights(weights), are_weights(2 * weights)
    (True, False)
    """
    rows = _middle_rows(values)
    rows = rows[np.isfinite(rows).all(axis=1)]
    return rows.shape[1] > 1 and len(rows) >= FEWEST_ROWS and bool((np.abs(rows.sum(axis=1) - 1) < 1e-3).all())


def _middle_rows(values: Values) -> Values:
    begin = max(0, (len(values) - WINDOW) // 2)
    return values[begin : begin + WINDOW]


def find_open_high_low_close(values: Values) -> tuple[int, int, tuple[int, ...]] | None:
    """Columns of a high, a low, and what lies between them in every row and close to them; None if there are none.

    Prices of three or more securities hardly ever stay within a tenth of each other in the same order.
    """
    if not 3 <= values.shape[1] <= MOST_OHLC_COLUMNS:
        return None
    rows = values[(values > 0).all(axis=1)]  # neither NaN
    if len(rows) < 5:
        return None
    logs = np.log(rows)
    for low in range(rows.shape[1]):
        distance = np.median(np.abs(logs - logs[:, [low]]), axis=0)
        group = np.flatnonzero(distance < 0.1)
        if len(group) < 3 or not (logs[:, group] >= logs[:, [low]]).mean() > 0.999:
            continue
        for high in group:
            others = [int(column) for column in group if column not in (low, high)]
            above = (logs[:, group] <= logs[:, [high]]).mean() > 0.999
            if above and (logs[:, high] > logs[:, low]).mean() > 0.5:
                return int(high), low, tuple(others)
    return None
