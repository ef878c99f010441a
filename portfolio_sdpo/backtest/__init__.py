"""Backtests: one simulation for all strategies, benchmarks, statistics, the check of promises, the shield.

The room can be called. `portfolio_sdpo.backtest(prices, strategies, start=..., fee_bps=..., cash=...)` runs strategies
through a frame of prices and returns a `BacktestResult`; its parameters are documented in
`portfolio_sdpo.report.backtest.backtest`.

>>> import portfolio_sdpo
>>> prices = portfolio_sdpo.load_prices("sample")
>>> result = portfolio_sdpo.backtest(prices, ["equal-weight"], start="2021-01-04", intervals=False)
>>> result.wealth.iloc[-1].round(3).to_dict()
{'equal-weight': 1.227}

Its parts, one by one:

>>> import pandas as pd
>>> from portfolio_sdpo.portfolio.market import Market
>>> days = pd.to_datetime(["2019-01-02", "2019-01-03", "2019-01-04"])
>>> market = Market.from_prices(pd.DataFrame({"AAPL": [100.0, 110.0, 99.0], "MSFT": [50.0, 50.0, 55.0]}, index=days))
>>> track = simulate(market, make_strategy("equal-weight", every=1), execution="same-close")
>>> track.wealth.round(4).tolist()  # decided at the first close, traded at the second
[1.0, 1.05, 1.05]
>>> simulate(market, make_strategy("equal-weight", every=1), execution="same-close").wealth.round(4).tolist()
[1.0, 1.05, 1.05]
"""

import sys

from portfolio_sdpo import CallableRoom
from portfolio_sdpo.backtest.intervals import Bootstrap
from portfolio_sdpo.backtest.promise import Promise, acerbi_szekely, check_promise, kupiec
from portfolio_sdpo.backtest.simulate import AccountHistory, DailyStrategy, Strategy, Track, simulate
from portfolio_sdpo.backtest.statistics import Statistics, summarise
from portfolio_sdpo.backtest.strategies import STRATEGIES, make_strategy
from portfolio_sdpo.portfolio.filtered_shield import Caution
from portfolio_sdpo.portfolio.shield import CvarLimit, ShieldedWeights, shield

__all__ = [
    "STRATEGIES",
    "AccountHistory",
    "Bootstrap",
    "Caution",
    "CvarLimit",
    "DailyStrategy",
    "Promise",
    "ShieldedWeights",
    "Statistics",
    "Strategy",
    "Track",
    "acerbi_szekely",
    "check_promise",
    "kupiec",
    "make_strategy",
    "shield",
    "simulate",
    "summarise",
]

sys.modules[__name__].__class__ = CallableRoom
