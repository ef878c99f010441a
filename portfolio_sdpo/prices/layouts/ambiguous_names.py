"""Names of columns that can be fields of one security as well as tickers: refused with both readings."""

from __future__ import annotations

from collections.abc import Sequence

from portfolio_sdpo.errors import LayoutError
from portfolio_sdpo.prices.layouts.column_names import find_owner, looks_like_ticker

_SHORT_FIELDS = ("o", "h", "l", "c", "v", "vw", "n")
"""What Polygon and others call open, high, low, close, volume, the average price and the number of trades."""


def refuse_price_beside_tickers(price: str, tickers: Sequence[str]) -> None:
    """`Close` beside `AAPL` and `MSFT`: prices of the file's security, or of three securities."""
    if tickers:
        raise LayoutError(
            f"{price!r} is the price of one security, and {join_names(tickers)} may be others: read {price} alone "
            f"with --layout per-ticker:price={price}, which leaves out {join_names(tickers)}, or all columns as "
            "tickers with --layout wide."
        )


def refuse_fields(names: Sequence[str], prices: Sequence[str], fields: Sequence[str]) -> None:
    """Names of a table that would be wide which may as well be fields of one security."""
    short = set(names) <= set(_SHORT_FIELDS) and "c" in names and len(names) > 1
    unknown = [name for name in names if name not in prices and name not in fields]
    if short or (prices and sum(map(looks_like_ticker, unknown)) < 2):
        price = "c" if short else prices[0]
        raise LayoutError(
            f"{price!r} may be the price of one security or a ticker: read {price} alone with "
            f"--layout per-ticker:price={price}, or all columns as tickers with --layout wide."
        )
    known = frozenset(names)
    for name in unknown:
        # BRK.B and BTC-USD are tickers beside BRK and BTC; AAPL_mcap and `AAPL mcap` are none.
        owner = find_owner(name, known, "_" if name == name.upper() or name.istitle() else "_.-:| ")
        if owner is not None:
            raise LayoutError(
                f"{name!r} is called like something of {owner!r} and not like a ticker: drop it, or read all columns "
                "as tickers with --layout wide."
            )


def join_names(names: Sequence[str], most: int = 8) -> str:
    """The first names as a part of a sentence, and how many there are if there are more."""
    shown = ", ".join(name or "(no name)" for name in names[:most])
    return shown if len(names) <= most else f"{shown}, ... ({len(names)} columns)"
