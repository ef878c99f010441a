"""Portfolios of cash and stocks: the market as arrays, its accounting, and the environments that trade on it.

>>> import pandas as pd
>>> from portfolio_sdpo.envs.portfolio import PortfolioVectorEnv, Market, window_paths
>>> prices = pd.DataFrame({"UP": [100.0, 101.0, 102.0]}, index=pd.date_range("2019-01-02", periods=3))
>>> env = PortfolioVectorEnv.from_paths(window_paths(Market.from_prices(prices), t=2, window=2), num_envs=4)
>>> env.reset(seed=0)[0].shape
(4, 6)
"""

from portfolio_sdpo.envs.portfolio.accounting import hold, trade, turnover
from portfolio_sdpo.envs.portfolio.env import PortfolioEnv, PortfolioVectorEnv, observation_slices
from portfolio_sdpo.envs.portfolio.limits import Limits
from portfolio_sdpo.envs.portfolio.market import CASH, Market
from portfolio_sdpo.envs.portfolio.scenarios import Paths, block_length, bootstrap_paths, window_paths
from portfolio_sdpo.envs.portfolio.simplex import Simplex, on_simplex

__all__ = [
    "CASH",
    "Limits",
    "Market",
    "Paths",
    "PortfolioEnv",
    "PortfolioVectorEnv",
    "Simplex",
    "block_length",
    "bootstrap_paths",
    "hold",
    "observation_slices",
    "on_simplex",
    "trade",
    "turnover",
    "window_paths",
]
