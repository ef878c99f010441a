"""One thread per test process (make runs two of them on two cores), and the small price tables of many tests."""

import numpy as np
import pandas as pd
import pytest
import torch

from .forks import forking

torch.set_num_threads(1)


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
def forks():
    """Starts commands in processes of their own, without their imports."""
    with forking() as started:
        yield started


@pytest.fixture(scope="session")
def prices():
    return random_prices


def irregular_prices(seed, stocks=3, sessions=40, gaps=True):
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
    return irregular_prices
