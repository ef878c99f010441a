"""The words that files of prices use for their columns, as tables.

Spellings are compared without case, spaces and punctuation: `Adj Close`, `adj_close` and `Adj. Close**` are `adjclose`.
Earlier words are preferred to later ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from portfolio_sdpo.prices.prices import Adjustment

ADJUSTED = (
    "adjclose", "adjustedclose", "adjusted", "adjcp", "closeadj", "closeadjusted", "adjclosingprice", "adjprice",
    "adjustedprice", "adjustedclosingprice", "adjlast", "totalreturnindex",
)  # fmt: skip
RAW = (
    "close", "closelast", "closeprice", "closingprice", "last", "lastprice", "price", "settle", "pxlast", "prc",
    "prccd", "nav",
)  # fmt: skip
PRICE = ADJUSTED + RAW
TICKER = (
    "ticker", "tic", "symbol", "tickersymbol", "stock", "stocksymbol", "instrument", "tscode", "stockcode", "code",
    "security", "asset", "ric", "secid", "permno", "name",
)  # fmt: skip
DATE = (
    "date",
    "tradedate",
    "tradingdate",
    "datetime",
    "timestamp",
    "tradingday",
    "dtyyyymmdd",
    "datadate",
    "dt",
    "time",
)
OTHER = (
    "open", "high", "low", "volume", "vol", "dividends", "stocksplits", "capitalgains", "repaired",
    "adjopen", "adjhigh", "adjlow", "adjvolume", "closeunadj", "exdividend", "divcash", "splitratio", "splitfactor",
    "factor", "change", "change%", "changepercent", "turnover", "amount", "vwap", "trades", "openint", "openinterest",
    "per", "day",
)  # fmt: skip
FIELDS = frozenset(PRICE + OTHER)
"""What a column of one ticker can hold."""

_NO_LETTER = re.compile(r"[^a-z0-9%]+")
_NAMELESS = re.compile(r"unnamed\d*(level\d+)?")
_INDEX = re.compile(r"index|indexlevel\d+|level\d+")


def normalise_name(name: str) -> str:
    """The name as these tables spell it."""
    return _NO_LETTER.sub("", name.lower())


def has_no_name(name: str) -> bool:
    """Whether there is no name, or `Unnamed: 0`, which pandas makes of none."""
    return not name.strip() or _NAMELESS.fullmatch(normalise_name(name)) is not None


def is_index_name(name: str) -> bool:
    """Whether the name is one that pandas or R gives to a column of row numbers, which may be none."""
    return has_no_name(name) or _INDEX.fullmatch(normalise_name(name)) is not None


def find_columns(names: Sequence[str], words: Iterable[str]) -> list[int]:
    """The columns that are called by one of the words, the preferred word first."""
    columns: dict[str, list[int]] = {}
    for column, name in enumerate(names):
        columns.setdefault(normalise_name(name), []).append(column)
    return [column for word in words for column in columns.get(word, ())]


def adjustment_from_names(column: str, names: Collection[str]) -> Adjustment:
    """What the prices of `column` are adjusted for, as far as the names of all columns tell."""
    normalised = {normalise_name(name) for name in names}
    if normalise_name(column) in ADJUSTED:
        return "total-return"
    # yfinance gives unadjusted prices with `Adj Close` beside them; qlib's `factor` is what prices were multiplied by.
    adjusts = {"dividends", "stocksplits"} <= normalised or "factor" in normalised
    if normalise_name(column) == "close" and adjusts and normalised.isdisjoint(ADJUSTED):
        return "total-return"
    if normalise_name(column) == "closelast":
        return "splits"  # nasdaq.com restates its history for splits and leaves dividends out
    return "unknown"
