# ruff: noqa: E501 (a case is easier to read on few lines)
"""Files whose columns may be taken for something that they are not: two prices of one security, holdings, counters.

As in `corpus`, values are made up and layouts are real.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from portfolio_sdpo.prices.layouts.options import spell_option
from tests.prices.layouts.corpus import (
    AAPL,
    CLOSE,
    DAYS,
    HIGH,
    LOW,
    MSFT,
    ONE,
    OPEN,
    RETURNS,
    ROWS,
    TWO,
    VOLUME,
    Case,
    both,
    closes,
    german,
    ohlcv,
    rows,
)

OPENS = closes(which=OPEN)


def short(count: int, number: Callable) -> str:
    """So few rows that little shows what the numbers are."""
    return "Date,AAPL\n" + "".join(f"{d},{number(k)}\n" for k, d in enumerate(DAYS[:count]))


def wide(name: str, number: Callable) -> str:
    return rows(f"Date,AAPL,MSFT,{name}", lambda d, k: f"{d},{both(k, (CLOSE,))},{number(k)}")


def doubtful(name: str, one: str, other: str, refusal: str, wide_too: bool) -> Case:
    """A close and an open under two names, and what each reading gives."""
    content = rows(f"Date,{one},{other}", lambda d, k: f"{d},{AAPL[k][CLOSE]},{AAPL[k][OPEN]}")
    ways = {spell_option("per-ticker", price=one): ONE, spell_option("per-ticker", price=other): {"AAPL": OPENS}}
    ways |= {"--layout wide": {one: closes(), other: OPENS}} if wide_too else {}
    return Case(name, content, refusal=refusal, ways=ways)


CASES = [
    # Two prices of one security
    doubtful("two fixings of a day", "usd_am", "usd_pm", "'usd_am' and 'usd_pm' hardly differ in any row", True),
    doubtful("names in Hindi", "समापन", "शुरुआत", "hardly differ in any row, like two prices of one security", True),
    doubtful("bid and ask", "Bid", "Ask", "the prices are quotes", False),
    doubtful("prices to buy and to sell", "Buy", "Sell", "the prices are quotes", False),
    Case("two share classes", rows("Date,GOOG,GOOGL", lambda d, k: f"{d},{AAPL[k][CLOSE]},{AAPL[k][OPEN]}"), "g.csv", {"GOOG": closes(), "GOOGL": OPENS}),
    Case("what came and what was predicted", rows("Date,Actual,Predicted", lambda d, k: f"{d},{AAPL[k][CLOSE]},{AAPL[k][OPEN]}"), refusal="no column of prices"),
    Case("a prediction beside the close", rows("Date,Close,Prediction", lambda d, k: f"{d},{AAPL[k][CLOSE]},{AAPL[k][OPEN]}"), expected=ONE),
    Case("a rate and its inverse", rows("Date,Rate,Inverse", lambda d, k: f"{d},{AAPL[k][CLOSE]},{1 / AAPL[k][CLOSE]}"), expected=ONE),
    Case("quotes and the last price", rows("Date,Bid,Ask,Last", lambda d, k: f"{d},1,2,{AAPL[k][CLOSE]}"), expected=ONE),
    Case("prices of a fund", rows("Date,NAV,Offer Price,Redemption Price", lambda d, k: f"{d},{AAPL[k][CLOSE]},1,2"), expected=ONE),
    # Fields in other spellings
    Case("Greek", rows("Ημερομηνία,Κλείσιμο,Άνοιγμα,Υψηλό,Χαμηλό", lambda d, k: f"{d},{AAPL[k][CLOSE]},{AAPL[k][OPEN]},{AAPL[k][HIGH]},{AAPL[k][LOW]}"), expected=ONE),
    Case("Norwegian", rows("Time;Siste;Omsetning", lambda d, k: f"{d:%d.%m.%y};{german(AAPL[k][CLOSE])};{AAPL[k][VOLUME]}"), expected=ONE),
    Case("Czech", rows("Datum;Zavírací;Otevírací;Maximum;Minimum", lambda d, k: f"{d:%d.%m.%Y};" + ";".join(german(AAPL[k][p]) for p in (CLOSE, OPEN, HIGH, LOW))), expected=ONE),
    Case("Hungarian", rows("Dátum;Záró ár;Nyitó ár;Maximum;Minimum", lambda d, k: f"{d:%Y.%m.%d};" + ";".join(german(AAPL[k][p]) for p in (CLOSE, OPEN, HIGH, LOW))), expected=ONE),
    Case("a price in a currency", rows("Datum;Kurs in EUR;Stück", lambda d, k: f"{d:%d.%m.%y};{german(AAPL[k][CLOSE])};10"), expected=ONE),
    Case("fields in brackets", rows("Date,AAPL (Close),AAPL (Volume),MSFT (Close),MSFT (Volume)", lambda d, k: f"{d},{both(k, (CLOSE, VOLUME))}"), "f.csv", TWO),
    Case("prices of", rows("Date,Price of AAPL,Price of MSFT", lambda d, k: f"{d},{both(k, (CLOSE,))}"), "f.csv", TWO),
    Case("px before tickers", rows("Date,px_AAPL,px_MSFT", lambda d, k: f"{d},{both(k, (CLOSE,))}"), "f.csv", TWO),
    Case("prices and returns before tickers", rows("Date,prices_AAPL,returns_AAPL", lambda d, k: f"{d},{AAPL[k][CLOSE]},{RETURNS[k]}"), "f.csv", ONE),
    Case("fields of one letter behind tickers", rows("Date,AAPL_O,AAPL_C", lambda d, k: f"{d},{AAPL[k][OPEN]},{AAPL[k][CLOSE]}"), "f.csv", refusal="'AAPL_O' and 'AAPL_C' look like fields of 'AAPL': rename them",
         ways={"--layout wide": {"AAPL_O": OPENS, "AAPL_C": closes()}}),
    Case("fields of one capital letter", rows("Date,O,H,L,C", lambda d, k: f"{d},{ohlcv(k).rpartition(',')[0]}"), refusal="'C' may be the price of one security or a ticker",
         ways={"--layout per-ticker:price=C": ONE, "--layout wide": {"O": OPENS, "H": closes(which=HIGH), "L": closes(which=LOW), "C": closes()}}),
    # Rows and columns that only count, or hold something else
    Case("every row ends with a separator", rows("Date,AAPL,MSFT", lambda d, k: f"{d},{both(k, (CLOSE,))},"), "w.csv", TWO),
    *(Case(f"a counter called {name}", rows(f"{name},Date,AAPL,MSFT", lambda d, k: f"{k + 7},{d},{both(k, (CLOSE,))}"), "w.csv", TWO) for name in ("id", "row", "No", "row_id", "seq")),
    Case("a date as a fraction of the year", rows("Date,Date Fraction,AAPL,MSFT", lambda d, k: f"{d},{2023 + k / 365:.4f},{both(k, (CLOSE,))}"), "w.csv", TWO),
    *(Case(f"an indicator called {name}", wide(name, lambda k: 50 + k), "w.csv", refusal=f"'{name}' is called like an indicator", ways={"--layout wide": {**TWO, name: [50.0 + k for k in range(ROWS)]}})
      for name in ("rsi", "Sma", "MACD")),
    *(Case(f"FRED's {name}", wide(name, lambda k: 3 + k / 100), "w.csv", refusal=f"'{name}' is called like an interest rate", ways={"--layout wide": {**TWO, name: [3 + k / 100 for k in range(ROWS)]}})
      for name in ("DGS10", "DTB3", "FEDFUNDS", "T10Y2Y", "T10YIE")),
    Case("values of companies", rows("Date,AAPL", lambda d, k: f"{d},{AAPL[k][CLOSE] * 1e10:.0f}"), "m.csv", refusal="'AAPL' holds sums of money that no security costs",
         ways={"--layout wide": {"AAPL": [float(f"{p * 1e10:.0f}") for p in closes()]}}),
    Case("holdings", rows("Date,Ticker,Quantity,Value", lambda d, k: f"{d},AAPL,100,{AAPL[k][CLOSE]}"), "h.csv", refusal="'Value' beside 'Quantity' may be what a position is worth",
         ways={"--layout long:ticker=Ticker,price=Value": ONE}),
    Case("holdings with prices", rows("Date,Ticker,Shares,Price,Value", lambda d, k: f"{d},AAPL,100,{AAPL[k][CLOSE]},{MSFT[k][CLOSE]}"), "h.csv", ONE),
    Case("few returns", short(5, lambda k: RETURNS[k]), refusal="look like returns.*--returns decimal", ways={
        "--returns decimal": {"AAPL": [100.0, *(100 * np.cumprod(1 + np.array(RETURNS[:5])))]}, "--layout wide": {"AAPL": RETURNS[:5]}}),
]  # fmt: skip
