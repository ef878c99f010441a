# ruff: noqa: E501 (a case is easier to read on few lines)
"""Tables that pandas reshaped, JSON in which tickers and dates are keys, and tickers that are written like fields.

As in `corpus`, values are made up and layouts are real.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.prices.layouts.corpus import (
    AAPL,
    CLOSE,
    DAYS,
    HIGH,
    LOW,
    MSFT,
    ONE,
    OPEN,
    TWO,
    VOLUME,
    Case,
    both,
    closes,
    rows,
)

DATES = [str(day) for day in DAYS]
FIELDS = (("open", OPEN), ("high", HIGH), ("low", LOW), ("close", CLOSE), ("volume", VOLUME))


def melted(
    names: Sequence[str],
    header: str = "Date,variable,value",
    by_name: bool = True,
    which: tuple[int, int] = (CLOSE, CLOSE),
) -> str:
    """As `melt` writes it, name by name, or as `stack` does, date by date."""
    cells = [
        (name, day, bars[k][place])
        for name, bars, place in zip(names, (AAPL, MSFT), which, strict=True)
        for k, day in enumerate(DAYS)
    ]
    cells = cells if by_name else sorted(cells, key=lambda cell: cell[1])
    return header + "\n" + "".join(f"{day},{name},{price}\n" for name, day, price in cells)


def numbered(text: str) -> str:
    """With the numbers of rows that `to_csv` writes before them."""
    header, *lines = text.splitlines()
    return f",{header}\n" + "".join(f"{row},{line}\n" for row, line in enumerate(lines))


def bar(k: int, bars=AAPL) -> dict[str, float]:
    return {name: bars[k][place] for name, place in FIELDS}


def prices(bars=AAPL) -> dict[str, float]:
    return {day: bars[k][CLOSE] for k, day in enumerate(DATES)}


def document(name: str, content: object, expected: dict | None = None, refusal: str = "", **others) -> Case:
    return Case(name, json.dumps(content), "q.json", expected or {}, refusal, **others)


def named(ticker: str) -> dict[str, list[float]]:
    return {ticker: closes(), "MSFT": closes("MSFT")}


def wide(*names: str) -> str:
    """Prices of AAPL, of MSFT and of a third one under these names."""
    third = [round(3 * price, 2) for price in closes()[::-1]]
    return rows(
        ",".join(["Date", *names]),
        lambda d, k: ",".join(map(str, [d, AAPL[k][CLOSE], MSFT[k][CLOSE], third[k]][: len(names) + 1])),
    )


_DOUBT = {"--layout long:ticker=variable,price=value": {"OPEN": closes(), "LOW": closes("MSFT")}}
_HEADER = f"00COTAHIST.2023BOVESPA 20240102{'':214}\n"

CASES = [
    # melt and stack
    Case("melted", melted(("AAPL", "MSFT")), "m.csv", TWO),
    Case("melted, as Date, variable, price", melted(("AAPL", "MSFT"), "Date,variable,price"), "m.csv", TWO),
    Case("melted, with numbers of rows", numbered(melted(("AAPL", "MSFT"))), "m.csv", TWO),
    Case("melted, symbols with their exchange", melted(("PETR4.SA", "VALE3.SA")), "m.csv", {"PETR4.SA": closes(), "VALE3.SA": closes("MSFT")}),
    Case("melted, pairs and indices", melted(("BTC-USD", "^GSPC")), "m.csv", {"BTC-USD": closes(), "^GSPC": closes("MSFT")}),
    Case("melted, ISIN", melted(("US0378331005", "US5949181045")), "m.csv", {"US0378331005": closes(), "US5949181045": closes("MSFT")}),
    Case("stacked", melted(("AAPL", "MSFT"), "Date,level_1,0", by_name=False), "m.csv", TWO),
    Case("stacked, with numbers of rows", numbered(melted(("AAPL", "MSFT"), "Date,level_1,0", by_name=False)), "m.csv", TWO),
    Case("stacked, without a name", melted(("AAPL", "MSFT"), "Date,,0", by_name=False), "m.csv", TWO),
    Case("stacked, a series of a name and columns of none", melted(("AAPL", "MSFT"), "Date,,close", by_name=False), "m.csv", TWO),
    *(Case(f"{what} under {called or 'no name'} beside a price", rows(f"Date,{called},close", lambda d, k, flag=flag: f"{d},{flag(d, k)},{AAPL[k][CLOSE]}"), expected=ONE)
      for called in ("", "Unnamed: 1") for what, flag in (
          ("flags", lambda d, k: "XC"[k % 2]), ("few flags", lambda d, k: "" if k % 7 else "X"), ("an exchange", lambda d, k: "NYSE"),
          ("a currency", lambda d, k: "USD"), ("days of the week", lambda d, k: f"{d:%a}".upper()))),
    Case("flags beside a price, the last row twice", rows("Date,,close", lambda d, k: f"{d},{'XC'[k % 2]},{AAPL[k][CLOSE]}") + f"{DAYS[-1]},C,{AAPL[-1][CLOSE]}\n", expected={"AAPL": [*closes(), closes()[-1]]}),
    Case("a blank column before the price", rows("Date,,close", lambda d, k: f"{d},,{AAPL[k][CLOSE]}"), expected=ONE),
    Case("stacked, a series of a name", melted(("AAPL", "MSFT"), "Date,Ticker,Close", by_name=False), "m.csv", TWO),
    Case("melted fields, name by name", melted(("Close", "Volume"), which=(CLOSE, VOLUME)), refusal="'variable' names fields such as 'Close'.*keep the rows of one"),
    Case("melted fields, opens and closes", melted(("Open", "Close"), which=(OPEN, CLOSE)), refusal="'variable' names fields such as 'Open'"),
    Case("stacked fields", melted(("Close", "Volume"), "Date,,0", by_name=False, which=(CLOSE, VOLUME)), refusal="without a name names fields such as 'Close'"),
    Case("melted tickers with fields", melted(("AAPL.Close", "AAPL.Open"), which=(CLOSE, OPEN)), refusal="names a field of a security, such as 'AAPL.Close'"),
    Case("melted, fields before tickers", melted(("Adj Close_AAPL", "Volume_AAPL"), which=(CLOSE, VOLUME)), refusal="names a field of a security, such as 'Adj Close_AAPL'"),
    Case("melted, tickers that are words", melted(("OPEN", "LOW")), "m.csv", refusal="'variable' holds 'OPEN': if it names the securities", ways=_DOUBT),
    Case("melted, names of companies", melted(("Apple", "Microsoft")), "m.csv", refusal="'variable' holds 'Apple': if it names the securities",
         ways={"--layout long:ticker=variable,price=value": {"Apple": closes(), "Microsoft": closes("MSFT")}}),
    # JSON
    document("JSON, dates of tickers", {day: {"AAPL": AAPL[k][CLOSE], "MSFT": MSFT[k][CLOSE]} for k, day in enumerate(DATES)}, TWO),
    document("JSON, tickers of dates", {"AAPL": prices(), "MSFT": prices(MSFT)}, TWO),
    document("JSON, tickers of dates of fields", {"AAPL": {d: bar(k) for k, d in enumerate(DATES)}, "MSFT": {d: bar(k, MSFT) for k, d in enumerate(DATES)}}, TWO),
    document("JSON, dates of tickers of fields", {d: {"AAPL": bar(k), "MSFT": bar(k, MSFT)} for k, d in enumerate(DATES)}, TWO),
    document("JSON, fields of tickers of dates", {"Close": {"AAPL": prices(), "MSFT": prices(MSFT)}, "Volume": {"AAPL": prices(), "MSFT": prices()}}, TWO),
    document("JSON, tickers of fields of dates", {"AAPL": {"Close": prices(), "Open": prices(MSFT)}}, ONE),
    document("JSON, tickers of columns", {"AAPL": {"date": DATES, "close": closes()}, "MSFT": {"date": DATES, "close": closes("MSFT")}}, TWO),
    document("JSON, tickers of pairs", {"AAPL": list(prices().items()), "MSFT": list(prices(MSFT).items())}, TWO),
    document("JSON, dates of prices", prices(), {"q": closes()}),
    document("JSON, under data", {"status": "ok", "data": {"AAPL": prices(), "MSFT": prices(MSFT)}}, TWO),
    document("JSON, dates apart", {"dates": DATES, "prices": {"AAPL": closes(), "MSFT": closes("MSFT")}}, TWO),
    document("JSON, dates apart, under a price", {"dates": DATES, "adj_close": {"AAPL": closes(), "MSFT": closes("MSFT")}}, TWO),
    *(document(f"JSON, dates apart, {key}", {"dates": DATES, key: {"AAPL": closes(), "MSFT": closes("MSFT")}}, refusal="no table that is understood")
      for key in ("high", "volume", "market_cap", "returns")),
    document("JSON, fields of pairs", {name: [(d, AAPL[k][place]) for k, d in enumerate(DATES)] for name, place in (("OPEN", OPEN), ("HIGH", HIGH), ("LOW", LOW), ("CLOSE", CLOSE))},
             refusal="holds dates"),
    document("JSON, fields of columns", {name: {"date": DATES, "value": closes(which=place)} for name, place in (("open", OPEN), ("close", CLOSE))}, refusal="no table that is understood"),
    document("JSON, of one security under data", {"data": {d: bar(k) for k, d in enumerate(DATES)}}, {"q": closes()}),
    document("Twelve Data, several securities", {t: {"meta": {"symbol": t}, "values": [{"datetime": d, "close": str(b[k][CLOSE])} for k, d in enumerate(DATES)], "status": "ok"}
                                                 for t, b in (("AAPL", AAPL), ("MSFT", MSFT))}, TWO),
    document("FMP, several securities", {"historicalStockList": [{"symbol": t, "historical": [{"date": d} | bar(k, b) for k, d in enumerate(DATES)]}
                                                                 for t, b in (("AAPL", AAPL), ("MSFT", MSFT))]}, TWO),
    document("JSON, only highs and lows", {"AAPL": {d: {"high": AAPL[k][HIGH], "low": AAPL[k][LOW]} for k, d in enumerate(DATES)}}, refusal="no column of prices",
             ways={"--layout long:ticker=ticker,price=high": {"AAPL": closes(which=HIGH)}}),
    document("JSON, returns", {"AAPL": {d: {"return": 0.01} for d in DATES}}, refusal="no column of prices"),
    document("JSON, prices without dates", {"AAPL": closes(), "MSFT": closes("MSFT")}, refusal="holds dates"),
    # What is no table of prices
    Case("a list of trades", rows("Date,Ticker,Side,Quantity,Price", lambda d, k: f"{d},{('AAPL', 'MSFT')[k % 2]},{('Buy', 'SELL')[k % 3 // 2]},{10 + k},{(AAPL, MSFT)[k % 2][k][CLOSE]}"),
         "t.csv", refusal="'Side' says what was bought and sold", ways={
             "--layout long:ticker=Ticker,price=Price": {t: [b[k][CLOSE] for k in range(len(DAYS)) if k % 2 == odd] for odd, (t, b) in enumerate((("AAPL", AAPL), ("MSFT", MSFT)))}}),
    Case("a list of trades in one security", rows("Date,Type,Qty,Price", lambda d, k: f"{d},{('Buy', 'Sell')[k % 2]},{10 + k},{AAPL[k][CLOSE]}"), refusal="'Type' says what was bought and sold",
         ways={"--layout per-ticker:price=Price": ONE}),
    Case("signals beside bars", rows("Date,Open,High,Low,Close,Action", lambda d, k: f"{d},{','.join(str(AAPL[k][i]) for i in (OPEN, HIGH, LOW, CLOSE))},{('Buy', '', 'Sell')[k % 3]}"), expected=ONE),
    Case("signals beside bars and volumes", rows("Date,Open,High,Low,Close,Qty,Action", lambda d, k: f"{d},{','.join(str(AAPL[k][i]) for i in (OPEN, HIGH, LOW, CLOSE, VOLUME))},{('Buy', 'Sell')[k % 2]}"), expected=ONE),
    Case("signals beside closes", rows("Date,Close,Type", lambda d, k: f"{d},{AAPL[k][CLOSE]},{('Buy', 'Sell')[k % 2]}"), expected=ONE),
    Case("a chain of options", rows("quote_date,underlying_symbol,expiration,strike,option_type,last", lambda d, k: f"{d},SPY,2023-12-15,{400 + k},C,{AAPL[k][CLOSE]}"), refusal="'strike' shows that the file holds options",
         ways={"--layout per-ticker:price=last": ONE}),
    Case("a chain of options in capitals", rows("DATE,TICKER,EXPIRY,STRIKE,RIGHT,MARK", lambda d, k: f"{d},SPY,20231215,{400 + k},C,{AAPL[k][CLOSE]}"), refusal="'STRIKE' shows that the file holds options",
         ways={"--layout long:ticker=TICKER,price=MARK": {"SPY": closes()}}),
    Case("STRIKE and RIGHT beside a ticker", rows("Date,STRIKE,RIGHT,MSFT", lambda d, k: f"{d},{AAPL[k][OPEN] * 3:.2f},{both(k, (CLOSE,))}"), "w.csv", {"RIGHT": closes(), "MSFT": closes("MSFT")}),
    Case("ticks with their side", rows("timestamp,symbol,side,size,price", lambda d, k: f"{d} 15:59:5{k % 9},AAPL,Buy,7,{AAPL[k][CLOSE]}"), "t.csv", ONE),
    Case("positions by ticker", rows("Date,AAPL_shares,AAPL_value,MSFT_shares,MSFT_value", lambda d, k: f"{d},10,{10 * AAPL[k][CLOSE]:.2f},5,{5 * MSFT[k][CLOSE]:.2f}"), "p.csv",
         refusal="'value' beside 'shares' may be what positions are worth", ways={
             "--layout fields:price=value": {"AAPL": [round(10 * p, 2) for p in closes()], "MSFT": [round(5 * p, 2) for p in closes("MSFT")]}}),
    Case("yields of the treasury", rows("Date,1 Mo,10 Yr", lambda d, k: f"{d},{4.2 + k % 5 / 100:.2f},{3.5 + k % 7 / 100:.2f}"), "y.csv", refusal="'1 Mo' is called like an interest rate",
         ways={"--layout wide": {"1 Mo": [4.2 + k % 5 / 100 for k in range(len(DAYS))], "10 Yr": [3.5 + k % 7 / 100 for k in range(len(DAYS))]}}),
    Case("an index and its ratio", rows("Date,S&P 500,P/E", lambda d, k: f"{d},{AAPL[k][CLOSE]},{20 + k / 10}"), "m.csv", refusal="'P/E' is called like an indicator",
         ways={"--layout wide": {"S&P 500": closes(), "P/E": [20 + k / 10 for k in range(len(DAYS))]}}),
    Case("a price and its total return", rows("Date,AAPL,AAPL TR", lambda d, k: f"{d},{AAPL[k][CLOSE]},{AAPL[k][CLOSE] * 1.02:.4f}"), "m.csv", refusal="'AAPL' and 'AAPL TR' move as one",
         ways={"--layout wide": {"AAPL": closes(), "AAPL TR": [round(p * 1.02, 4) for p in closes()]}}),
    Case("px beside others, all in small letters", rows("date,px,aapl,msft", lambda d, k: f"{d},{AAPL[k][CLOSE]},{MSFT[k][CLOSE]},{AAPL[k][OPEN]}"), "s.csv",
         refusal="'px' is the price of one security, and aapl, msft may be others", ways={
             "--layout per-ticker:price=px": {"s": closes()}, "--layout wide": {"px": closes(), "aapl": closes("MSFT"), "msft": closes(which=OPEN)}}),
    Case("close beside indicators, all in small letters", rows("date,close,rsi,macd,target", lambda d, k: f"{d},{AAPL[k][CLOSE]},{50 + k},0.2,{k % 2}"), expected=ONE),
    Case("last beside bid and volume, all in small letters", rows("date,last,bid,volume", lambda d, k: f"{d},{AAPL[k][CLOSE]},{AAPL[k][LOW]},{AAPL[k][VOLUME]}"), expected=ONE),
    Case("a share of stocks beside a price", rows("Date,SPY,Equity Exposure", lambda d, k: f"{d},{AAPL[k][CLOSE]},{0.5 + k / 100}"), "e.csv", refusal="'Equity Exposure' is called like an indicator",
         ways={"--layout wide": {"SPY": closes(), "Equity Exposure": [0.5 + k / 100 for k in range(len(DAYS))]}}),
    Case("numbers of days beside prices", rows("Date,DayNum,AAPL,MSFT", lambda d, k: f"{d},{k},{both(k, (CLOSE,))}"), "n.csv", refusal="'DayNum' counts the rows",
         ways={"--layout wide": TWO | {"DayNum": [float(k) for k in range(len(DAYS))]}}),
    Case("volatilities of tickers", rows("Date,AAPL_vol20,MSFT_vol20", lambda d, k: f"{d},{0.2 + k / 1000},{0.3 + k / 1000}"), "v.csv", refusal="'AAPL_vol20' is called like an indicator",
         ways={"--layout wide": {"AAPL_vol20": [0.2 + k / 1000 for k in range(len(DAYS))], "MSFT_vol20": [0.3 + k / 1000 for k in range(len(DAYS))]}}),
    Case("spreads of bonds", rows("Date,IG OAS,HY OAS", lambda d, k: f"{d},{130 + k % 7},{450 + k % 11}"), "s.csv", refusal="'IG OAS' is called like an interest rate",
         ways={"--layout wide": {"IG OAS": [130.0 + k % 7 for k in range(len(DAYS))], "HY OAS": [450.0 + k % 11 for k in range(len(DAYS))]}}),
    # Fixed widths
    Case("B3's COTAHIST", _HEADER + "".join(f"01{d:%Y%m%d}02PETR4       010PETROBRAS   PN      N2   R$  {round(100 * AAPL[k][CLOSE]):013d}{'':176}\n" for k, d in enumerate(DAYS)),
         "COTAHIST_A2023.TXT", refusal="B3's COTAHIST.*CODNEG.*PREULT"),
    # Tickers that are written like fields
    *(Case(f"{ticker} beside tickers", wide(ticker, "MSFT", "SAP"), "w.csv", named(ticker) | {"SAP": [round(3 * p, 2) for p in closes()[::-1]]})
      for ticker in ("PX", "BID", "ASK", "MID", "LAST", "OPEN", "LOW", "NAV", "VOL", "KEY", "CASH", "OAS")),
    *(Case(f"{ticker} asked for by the user", wide(ticker, "MSFT"), "w.csv", named(ticker), options={"tickers": [ticker, "MSFT"]})
      for ticker in ("PX", "BID", "MID", "LAST", "CLOSE", "RATE", "OAS")),
    Case("LAST asked for beside a field that is no ticker", rows("Date,LAST,MSFT,VOLUME", lambda d, k: f"{d},{both(k, (CLOSE,))},{AAPL[k][VOLUME]}"), expected=ONE, options={"tickers": ["LAST", "MSFT"]}),
    *(Case(f"{ticker} beside one ticker", wide(ticker, "MSFT"), "w.csv", refusal=f"{ticker!r} may be the price of one security or a ticker",
           ways={f"--layout per-ticker:price={ticker}": {"w": closes()}, "--layout wide": named(ticker)}) for ticker in ("PX", "LAST")),
    Case("BID and ASK asked for by the user", rows("Date,BID,ASK", lambda d, k: f"{d},{both(k, (CLOSE,))}"), "w.csv",
         {"BID": closes(), "ASK": closes("MSFT")}, options={"tickers": ["bid", "ASK"]}),
    Case("BID and ASK", rows("Date,BID,ASK", lambda d, k: f"{d},{both(k, (CLOSE,))}"), "w.csv", refusal="are quotes, and BID, ASK can be read in several ways", ways={
        "--layout per-ticker:price=BID": {"w": closes()}, "--layout per-ticker:price=ASK": {"w": closes("MSFT")},
        "--layout wide": {"BID": closes(), "ASK": closes("MSFT")}}),
    Case("CLOSE is a field beside the others of a bar, whoever asks", rows("Date,OPEN,HIGH,LOW,CLOSE", lambda d, k: f"{d},{','.join(str(AAPL[k][i]) for i in (OPEN, HIGH, LOW, CLOSE))}"),
         expected=ONE, options={"tickers": ["CLOSE"]}),
]  # fmt: skip
