"""Names of columns that are no securities: what is computed from prices, and interest rates."""

from __future__ import annotations

import re

_INDICATOR = re.compile(
    r"((close|price|adj)_)?(sma|ema|wma|dma|ma|rsi|macd|atr|cci|adx|dx|boll|bb|stoch|mom|roc|obv|vol|std|zscore)"
    r"[ _.-]?\(?\d+\)?([_ ]\w+)?|close_\d+_(sma|ema)|(macd|boll|bb|stoch|kdj)_\w+|macd"
    r"|[\w^.-]+[ _.](sma|ema|wma|ma|rsi|macd|atr|vol|std|zscore|mom|roc|ret)_?\d+",
    re.IGNORECASE,
)
_SHORT_INDICATOR = re.compile(r"[Ss]ma|[Ee]ma|[Ww]ma|[Rr]si|[Aa]tr|[Cc]ci|[Aa]dx|[Oo]bv|[Ss]toch")
"""Written in capitals they are tickers."""
_RATIO = re.compile(
    r"(p/e|p/b|p/s|cape|pe10|(div(idend)?|earnings) yield)( ratio)?"
    r"|(\w+[ _])?(exposure|leverage|drawdown|turnover)",
    re.IGNORECASE,
)
_RATE = re.compile(
    r"(DGS|DTB|DFII|TB)\d+(MO|MS)?|DFF|FEDFUNDS|SOFR|EFFR|T\d+Y(\d+[YM]|IE|FF)\w*|MORTGAGE\d+US"
    r"|\d{1,2}[ _-]?([Mm]o|[Mm]onth|[Yy]r|[Yy]ear)s?|\d{1,2}Y|(BC|bc)_\d+(MONTH|YEAR|month|year)"
    r"|.*[ _](OAS|YTM)"
)
"""Interest rates and spreads under the names of FRED and of the US treasury: `10 Yr`; 3M is a company."""


def is_indicator(name: str) -> bool:
    """Whether the name is of something that is computed from prices.

    >>> [is_indicator(name) for name in ("SMA_20", "rsi14", "close_30_sma", "P/E", "MA", "AAPL")]
    [True, True, True, True, False, False]
    """
    return any(pattern.fullmatch(name) is not None for pattern in (_INDICATOR, _SHORT_INDICATOR, _RATIO))


def is_rate(name: str) -> bool:
    """Whether the name is that of an interest rate or a spread, such as `DGS10` or `10 Yr`."""
    return _RATE.fullmatch(name) is not None
