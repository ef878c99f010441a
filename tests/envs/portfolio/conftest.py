"""Random prices with everything that happens to listings."""

import numpy as np
import pandas as pd
import pytest


def random_prices(seed, stocks=3, sessions=40, gaps=True):
    """Wide frame; with gaps, about half of the stocks list late, delist early or are suspended in between."""
    rng = np.random.default_rng(seed)
    prices = 100 * np.exp(np.cumsum(rng.normal(0, 0.03, (sessions, stocks)), axis=0))
    if gaps:
        for column in prices.T:
            first, last = np.sort(rng.integers(0, sessions, 2))
            kind = rng.integers(6)
            if kind == 0:
                column[:first] = np.nan
            elif kind == 1:
                column[last:] = np.nan
            elif kind == 2:
                column[first:last] = np.nan
    dates = pd.bdate_range("2018-12-03", periods=sessions, name="date")
    return pd.DataFrame(prices, index=dates, columns=[f"S{i}" for i in range(stocks)])


@pytest.fixture(scope="session")
def make_prices():
    return random_prices
