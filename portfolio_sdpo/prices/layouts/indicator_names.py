"""Names of columns that are no securities: what is computed from prices, and interest rates."""

from __future__ import annotations

import re

_INDICATOR = re.compile(
    r"((close|price|adj)_)?(sma|ema|wma|dma|ma|rsi|macd|atr|cci|adx|dx|boll|bb|stoch|mom|roc|obv|vol|std|zscore)"
    r"[ _.-]?\(?\d+\)?([_ ]\w+)?|close_\d+_(sma|ema)|(macd|boll|bb|stoch|kdj)_\w+|macd",
    re.IGNORECASE,
)
_SHORT_INDICATOR = re.compile(r"[Ss]ma|[Ee]ma|[Ww]ma|[Rr]si|[Aa]tr|[Cc]ci|[Aa]dx|[Oo]bv|[Ss]toch")
"""Written in capitals they are tickers."""
_RATE = re.compile(r"(DGS|DTB|DFII|TB)\d+(MO|MS)?|DFF|FEDFUNDS|SOFR|EFFR|T\d+Y(\d+[YM]|IE|FF)\w*|MORTGAGE\d+US")
"""Interest rates under the names of FRED."""


def is_indicator(name: str) -> bool:
    """Whether the name is of something that is computed from prices.

    >>> [is_indicator(name) for name in ("SMA_20", "rsi14", "close_30_sma", "MA", "AAPL")]
    [True, True, True, False, False]
    """
    return _INDICATOR.fullmatch(name) is not None or _SHORT_INDICATOR.fullmatch(name) is not None


def is_rate(name: str) -> bool:
    """Whether the name is that of an interest rate or a spread in FRED's database, such as `DGS10`."""
    return _RATE.fullmatch(name) is not None
