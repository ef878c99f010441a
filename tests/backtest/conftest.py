"""Small markets: random walks, with or without a late listing, a delisting and a suspension."""

import numpy as np
import pandas as pd
import pytest


def random_prices(sessions=90, stocks=4, seed=0, gaps=True):
    rng = np.random.default_rng(seed)
    drift = np.linspace(-0.0005, 0.0015, stocks)
    moves = rng.normal(drift, np.linspace(0.008, 0.02, stocks), (sessions, stocks))
    prices = 100.0 * np.exp(np.cumsum(moves, axis=0))
    if gaps:
        prices[: sessions // 3, 1] = np.nan  # listed late
        prices[2 * sessions // 3 :, 2] = np.nan  # delisted
        prices[sessions // 2 : sessions // 2 + 2, 3] = np.nan  # suspended
    days = pd.bdate_range("2019-01-02", periods=sessions)
    return pd.DataFrame(prices, index=days, columns=[f"S{i}" for i in range(stocks)])


@pytest.fixture(scope="session")
def prices():
    return random_prices
