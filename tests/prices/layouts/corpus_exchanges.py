# ruff: noqa: E501 (a case is easier to read on few lines)
"""Files of exchanges, central banks, crypto markets and data services, and the dirt that files collect on their way.

As in `corpus`, values are made up and layouts are real.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np

from tests.prices.layouts.corpus import (
    AAPL,
    ADJ,
    ADJUSTED,
    BARS,
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
    WEEKS,
    Case,
    both,
    closes,
    german,
    ohlcv,
    rows,
    utc,
)

BITCOIN = {"BTCUSDT": closes()}
ONE_ADJUSTED = {"AAPL": closes(which=ADJ)}


def bar(k: int, *places: int, separator: str = ",") -> str:
    return separator.join(str(AAPL[k][place]) for place in places)


def euros(k: int, *places: int) -> str:
    return ";".join(german(AAPL[k][place]) for place in places)


def bare(line: Callable) -> str:
    """Rows without a line of names."""
    return "".join(line(day, k) + "\n" for k, day in enumerate(DAYS))


def between(header: str, line: Callable, odd: str) -> str:
    """A row of another kind after the fifth one."""
    return header + "\n" + bare(lambda d, k: (odd.format(d=d) + "\n" if k == 5 else "") + line(d, k))


def candles() -> list[list]:
    """Time, open, high, low, close and volume, as ccxt, OKX and Bybit send them."""
    return [[utc(d, 1000), *b[:4], b[VOLUME]] for d, b in zip(DAYS, AAPL, strict=True)]


def by_field(separator: str) -> str:
    names = ",".join(
        f"{field}{separator}{ticker}" for field in ("Close", "High", "Volume") for ticker in ("AAPL", "BRK-B")
    )
    return rows(f"Date,{names}", lambda d, k: f"{d},{both(k, (CLOSE, HIGH, VOLUME), True)}")


def by_ticker(separator: str) -> str:
    names = ",".join(
        f"{ticker}{separator}{field}" for ticker in ("aapl", "msft") for field in ("open", "close", "volume")
    )
    return rows(f"date,{names}", lambda d, k: f"{d},{both(k, (OPEN, CLOSE, VOLUME))}")


def three_rows(first: str, second: str, ticker_first: bool) -> str:
    """yfinance's download with names of both levels in either order."""
    fields = ("Adj Close", "Close", "Volume")
    pairs = [(f, t) for t in BARS for f in fields] if ticker_first else [(f, t) for f in fields for t in BARS]
    names = [",".join(f for f, _ in pairs), ",".join(t for _, t in pairs)]
    top, below = reversed(names) if ticker_first else names
    lines = f"{first},{top}\n{second},{below}\nDate{',' * len(pairs)}\n"
    return lines + bare(lambda d, k: f"{d},{both(k, (ADJ, CLOSE, VOLUME), not ticker_first)}")


def share(k: int) -> float:
    return round(0.3 + 0.1 * float(np.sin(7 * k)), 4)


YAHOO = "Date,Open,High,Low,Close,Adj Close,Volume"


def yahoo(d, k: int) -> str:
    return f'"{d:%b %d, %Y}",{bar(k, OPEN, HIGH, LOW, CLOSE, ADJ)},"{AAPL[k][VOLUME]:,}"'


CASES = [
    # Rows without names
    Case("MetaTrader 4 without names", bare(lambda d, k: f"{d:%Y.%m.%d},00:00,{ohlcv(k)}"), expected=ONE),
    Case("Binance's archive without names", bare(lambda d, k: f"{utc(d, 1000)},{ohlcv(k)},{utc(d, 1000) + 86399999},9.5,100,1.0,2.0,0"), "BTCUSDT.csv", BITCOIN),
    Case("Binance's archive in microseconds", bare(lambda d, k: f"{utc(d, 10**6)},{ohlcv(k)},{utc(d, 10**6) + 86399999999},9.5,100,1.0,2.0,0"), "BTCUSDT.csv", BITCOIN),
    Case("Kraken's archive without names", bare(lambda d, k: f"{utc(d, 1)},{ohlcv(k)},100"), "BTCUSDT.csv", BITCOIN),
    Case("ASX without names", bare(lambda d, k: f"BHP,{d:%Y%m%d},{ohlcv(k)}"), "x.txt", {"BHP": closes()}),
    Case("HistData without names", bare(lambda d, k: f"{d:%Y%m%d} 170000;{bar(k, OPEN, HIGH, LOW, CLOSE, separator=';')};0"), expected=ONE),
    Case("Kibot without names", bare(lambda d, k: f"{d:%m/%d/%Y},{ohlcv(k)}"), "AAPL.txt", ONE),
    Case("two columns without names", bare(lambda d, k: f"{d},{AAPL[k][CLOSE]}"), refusal="the first row is data.*add column names above it"),
    Case("bars without names in an unknown order", bare(lambda d, k: f"{d},{bar(k, CLOSE, HIGH, OPEN, LOW)}"), refusal="add column names above it"),
    Case("candles of ccxt", json.dumps(candles()), "BTCUSDT.json", BITCOIN),
    Case("Coinbase", json.dumps([[c[0] // 1000, c[3], c[2], c[1], c[4], c[5]] for c in reversed(candles())]), "BTCUSDT.json", BITCOIN),
    Case("OKX", json.dumps({"code": "0", "data": [[str(c[0]), *map(str, c[1:]), "1", "1", "1"] for c in candles()]}), "BTCUSDT.json", BITCOIN),
    Case("Bybit", json.dumps({"retCode": 0, "result": {"symbol": "BTCUSDT", "list": [[str(c[0]), *map(str, c[1:]), "1"] for c in candles()]}}), "b.json", BITCOIN),
    # Answers of services
    Case("Bitstamp", json.dumps({"data": {"ohlc": [{"close": str(c[4]), "open": str(c[1]), "timestamp": str(c[0] // 1000)} for c in candles()], "pair": "BTCUSDT"}}), "b.json", BITCOIN),
    Case("CryptoCompare", json.dumps({"Response": "Success", "Data": {"Aggregated": False, "Data": [{"time": c[0] // 1000, "close": c[4], "volumefrom": 1.5} for c in candles()]}}),
         "BTCUSDT.json", BITCOIN),
    Case("OANDA", json.dumps({"instrument": "EUR_USD", "candles": [{"complete": True, "time": f"{d}T00:00:00.000000000Z", "mid": {"o": str(b[OPEN]), "h": str(b[HIGH]), "l": str(b[LOW]),
         "c": str(b[CLOSE])}} for d, b in zip(DAYS, AAPL, strict=True)]}), "o.json", {"EUR_USD": closes()}),
    Case("CoinCap, the currency in the name", json.dumps({"data": [{"priceUsd": str(c[4]), "time": c[0], "date": f"{d}T00:00:00.000Z"} for d, c in zip(DAYS, candles(), strict=True)]}),
         "BTCUSDT.json", BITCOIN),
    Case("Alpha Vantage, weekly", json.dumps({"Meta Data": {"2. Symbol": "AAPL"}, "Weekly Adjusted Time Series": {str(d): {"4. close": str(b[CLOSE]), "5. adjusted close": str(b[ADJ])}
         for d, b in zip(WEEKS, AAPL, strict=True)}}), "a.json", ONE_ADJUSTED, first="2022-01-07"),
    Case("FMP", json.dumps({"symbol": "AAPL", "historical": [{"date": str(d), "close": b[CLOSE], "adjClose": b[ADJ], "unadjustedVolume": b[VOLUME], "vwap": 1}
         for d, b in zip(DAYS, AAPL, strict=True)]}), "f.json", ONE_ADJUSTED),
    Case("Marketstack", json.dumps({"pagination": {"limit": 100}, "data": [{"close": b[CLOSE], "adj_close": b[ADJ], "symbol": "AAPL", "date": f"{d}T00:00:00+0000"}
         for d, b in zip(DAYS, AAPL, strict=True)]}), "m.json", ONE_ADJUSTED),
    Case("CoinMarketCap, whose name is a number", rows("timeOpen;timeClose;name;open;high;low;close;volume;marketCap;timestamp", lambda d, k:
         f'"{d}T00:00:00.000Z";"{d}T23:59:59.999Z";"2781";{bar(k, OPEN, HIGH, LOW, CLOSE, separator=";")};1.5;2.5;"{d}T23:59:59.999Z"'), "BTCUSDT.csv", BITCOIN),
    Case("EODHD in bulk", rows("Code,Ex,Date,Open,High,Low,Close,Adjusted_close,Volume", lambda d, k: f"AAPL,US,{d},{bar(k, OPEN, HIGH, LOW, CLOSE, ADJ, VOLUME)}"), "e.csv", ONE_ADJUSTED),
    Case("Polygon's flat file", rows("ticker,volume,open,close,high,low,window_start,transactions", lambda d, k:
         f"AAPL,{bar(k, VOLUME, OPEN, CLOSE, HIGH, LOW)},{utc(d, 10**9) + 18000 * 10**9},555"), "p.csv", ONE),
    Case("Databento", rows("ts_event,rtype,publisher_id,instrument_id,open,high,low,close,volume,symbol", lambda d, k: f"{d}T00:00:00.000000000Z,35,2,38,{ohlcv(k)},AAPL"), "d.csv", ONE),
    Case("Refinitiv's raw fields", rows("Date,TRDPRC_1,HIGH_1,LOW_1,OPEN_PRC,ACVOL_UNS", lambda d, k: f"{d},{bar(k, CLOSE, HIGH, LOW, OPEN, VOLUME)}"), expected=ONE),
    Case("Refinitiv's codes", rows("Instrument,Date,TR.PriceClose,TR.Volume", lambda d, k: f"AAPL.O,{d},{bar(k, CLOSE, VOLUME)}"), "r.csv", {"AAPL.O": closes()}),
    Case("Compustat without tickers", rows("gvkey,iid,datadate,conm,prccd", lambda d, k: f"001690,01,{d:%Y%m%d},APPLE INC,{AAPL[k][CLOSE]}"), "g.csv", {"001690": closes()}),
    Case("CRSP with quotes beside the price", rows("PERMNO,date,TICKER,BIDLO,ASKHI,PRC,VOL,RET,BID,ASK,CFACPR,OPENPRC", lambda d, k:
         f"14593,{d},AAPL,{bar(k, LOW, HIGH, CLOSE, VOLUME)},0.01,1,2,1,{AAPL[k][OPEN]}"), "c.csv", ONE),
    Case("funds in India", rows("Scheme Code;ISIN;Net Asset Value;Repurchase Price;Date", lambda d, k: f"119551;INF209KA12Z1;{AAPL[k][CLOSE]};;{d:%d-%b-%Y}"), "a.txt", {"INF209KA12Z1": closes()}),
    Case("an index and its total return", rows("Date,Price Index,Total Return Index", lambda d, k: f"{d},{bar(k, CLOSE, ADJ)}"), expected=ONE_ADJUSTED),
    # Exchanges
    Case("Euronext", '\ufeff"Historical Data"\n"From 2023-01-03 to 2023-02-13"\n"FR0000120271"\n' + rows("Date;Open;High;Low;Last;Close;Number of Shares;Number of Trades;Turnover;vwap",
         lambda d, k: f"{d:%d/%m/%Y};{bar(k, OPEN, HIGH, LOW, OPEN, CLOSE, VOLUME, separator=';')};99;9;1"), expected=ONE),
    Case("Nasdaq Nordic", "sep=;\n" + rows("Date;Bid;Ask;Opening price;High price;Low price;Closing price;Average price;Total volume;Trades;", lambda d, k:
         f"{d};1,00;2,00;{euros(k, OPEN, HIGH, LOW, CLOSE, OPEN)};{AAPL[k][VOLUME]};9;"), expected=ONE),
    Case("B3", rows("RptDt;TckrSymb;ISIN;MinPric;MaxPric;TradAvrgPric;LastPric;OscnPctg", lambda d, k: f"{d};PETR4;BRPETRACNPR6;{euros(k, LOW, HIGH, OPEN, CLOSE)};0,5"), "b.csv", {"PETR4": closes()}),
    Case("NSE's bhavcopy", rows("SYMBOL,SERIES,OPEN,HIGH,LOW,CLOSE,LAST,PREVCLOSE,TOTTRDQTY,TOTTRDVAL,TIMESTAMP,TOTALTRADES,ISIN,", lambda d, k:
         f"INFY,EQ,{bar(k, OPEN, HIGH, LOW, CLOSE, OPEN, OPEN, VOLUME)},1.5,{d:%d-%b-%Y},7,INE009A01021,"), "n.csv", {"INFY": closes()}),
    Case("NSE's bhavcopy by ISO 20022", rows("TradDt,BizDt,Sgmt,FinInstrmId,ISIN,TckrSymb,SctySrs,OpnPric,HghPric,LwPric,ClsPric,LastPric,PrvsClsgPric,TtlTradgVol", lambda d, k:
         f"{d},{d},CM,1,INE009A01021,INFY,EQ,{bar(k, OPEN, HIGH, LOW, CLOSE, OPEN)},1,{AAPL[k][VOLUME]}"), "n.csv", {"INFY": closes()}),
    Case("two series of one share", "SYMBOL,SERIES,TIMESTAMP,CLOSE\n" + bare(lambda d, k: f"INFY,EQ,{d:%d-%b-%Y},{AAPL[k][CLOSE]}\nINFY,N1,{d:%d-%b-%Y},{MSFT[k][CLOSE]}"), "n.csv",
         refusal=r"'INFY' has several prices on 2023-01-03, which the column 'SERIES' tells apart \(EQ, N1\): keep the rows of one"),
    Case("one share on two exchanges", "date,ticker,exchange,close\n" + bare(lambda d, k: f"{d},VOD,LSE,{AAPL[k][CLOSE]}\n{d},VOD,NYSE,{MSFT[k][CLOSE]}"), "v.csv",
         refusal=r"the column 'exchange' tells apart \(LSE, NYSE\)"),
    Case("BSE", rows("Date,Open Price,High Price,Low Price,Close Price,WAP,No.of Shares,No. of Trades,Deliverable Quantity,% Deli. Qty to Traded Qty,Spread High-Low,Spread Close-Open,", lambda d, k:
         f"{d.day}-{d:%B-%Y},{bar(k, OPEN, HIGH, LOW, CLOSE, OPEN, VOLUME)},7,5,50.1,1.1,-1.2,"), expected=ONE),
    Case("Taiwan, years of the republic", rows('"日期","成交股數","開盤價","最高價","最低價","收盤價","漲跌價差","成交筆數",', lambda d, k:
         f'"{d.year - 1911}/{d:%m/%d}","{AAPL[k][VOLUME]:,}",{bar(k, OPEN, HIGH, LOW, CLOSE)},"+1.0","777",'), expected=ONE),
    Case("Moscow", "history\n\n" + rows("BOARDID;TRADEDATE;SHORTNAME;SECID;NUMTRADES;OPEN;LOW;HIGH;WAPRICE;CLOSE;VOLUME", lambda d, k:
         f"TQBR;{d};Sberbank;SBER;777;{bar(k, OPEN, LOW, HIGH, OPEN, CLOSE, VOLUME, separator=';')}"), "m.csv", {"SBER": closes()}),
    Case("Korea", rows("일자,종가,대비,등락률,시가,고가,저가,거래량,상장주식수", lambda d, k: f'"{d:%Y/%m/%d}","{AAPL[k][CLOSE]}","1","0.1",{bar(k, OPEN, HIGH, LOW, VOLUME)},"8"').encode("cp949"), expected=ONE),
    Case("Boursorama", rows("date\touv\thaut\tbas\tclot\tvol\tdevise\t", lambda d, k: f"{d:%d/%m/%Y} 00:00\t{bar(k, OPEN, HIGH, LOW, CLOSE, VOLUME, separator=chr(9))}\tEUR\t"), "AAPL.txt", ONE),
    Case("ECB's reference rates", rows("Date,USD,JPY,BGN,", lambda d, k: f"{d},{both(k, (CLOSE,))},N/A,"), "e.csv", {"USD": closes(), "JPY": closes("MSFT"), "BGN": []}),
    Case("FRED's days without a price", rows("observation_date,SP500", lambda d, k: f"{d},{AAPL[k][CLOSE] if k % 9 else '.'}"), "f.csv", {"SP500": [p for k, p in enumerate(closes()) if k % 9]}),
    Case("Google's table of two securities", "AAPL,,,MSFT,\nDate,Close,,Date,Close\n" + bare(lambda d, k:
         f"{d:%-m/%-d/%Y} 16:00:00,{AAPL[k][CLOSE]},,{d:%-m/%-d/%Y} 16:00:00,{MSFT[k][CLOSE]}"), "g.csv", TWO),
    Case("Bloomberg, the request above the names", "Start Date,01/03/2023\nEnd Date,02/13/2023\n,AAPL US Equity,MSFT US Equity\nDates,Last Price,Last Price\n" + bare(lambda d, k:
         f"{d:%m/%d/%Y},{both(k, (CLOSE,))}"), "b.csv", {"AAPL US Equity": closes(), "MSFT US Equity": closes("MSFT")}),
    Case("Bloomberg's missing values", rows("Date,AAPL,MSFT", lambda d, k: f"{d},{AAPL[k][CLOSE]},{'#N/A N/A' if k < 5 else MSFT[k][CLOSE]}"), "b.csv", {"AAPL": closes(), "MSFT": closes("MSFT")[5:]}),
    # yfinance and R, every way they are saved
    *(Case(f"yfinance flattened by {separator!r}, field first", by_field(separator), "y.csv", {"AAPL": closes(), "BRK-B": closes("MSFT")}) for separator in "_.- |/:"),
    *(Case(f"yfinance flattened by {separator!r}, ticker first", by_ticker(separator), "y.csv", {"aapl": closes(), "msft": closes("MSFT")}) for separator in "_.- |/:"),
    *(Case(f"yfinance in rows of names, {first or 'none'} above {second or 'none'}", three_rows(first, second, ticker_first), "y.csv", ADJUSTED)
      for first, second, ticker_first in (("Price", "Ticker", False), ("Ticker", "Price", True), ("", "", False))),
    Case("R without a name above the dates", rows('"AAPL","MSFT"', lambda d, k: f'"{d}",{both(k, (CLOSE,))}'), "r.csv", TWO),
    Case("columns that are aligned with blanks", "Date        Open    High     Low   Close\n" + bare(lambda d, k:
         f"{d}  " + " ".join(f"{AAPL[k][place]:7.2f}" for place in (OPEN, HIGH, LOW, CLOSE))), "AAPL.txt", ONE),
    Case("Markdown", "| Date | Close |\n|---|:---:|\n" + bare(lambda d, k: f"| {d} | {AAPL[k][CLOSE]} |"), expected=ONE),
    Case("a web page", "<!DOCTYPE html><html><table><tr><th>Date</th><th>Close</th></tr></table></html>", refusal="is a web page.*download the prices as CSV"),
    # Dirt
    Case("Yahoo's page with a dividend", between(YAHOO, yahoo, '"{d:%b %d, %Y}",0.23 Dividend'), expected=ONE_ADJUSTED),
    Case("Yahoo's page with a split in every cell", between(YAHOO, yahoo, '"{d:%b %d, %Y}"' + ",4:1 Stock Split" * 6), expected=ONE_ADJUSTED),
    Case("names that are repeated below", between("Date,AAPL,MSFT", lambda d, k: f"{d},{both(k, (CLOSE,))}", "Date,AAPL,MSFT"), "w.csv", TWO),
    Case("a row of currencies below the names", "Date,AAPL,MSFT\n,USD,USD\n" + bare(lambda d, k: f"{d},{both(k, (CLOSE,))}"), "w.csv", TWO),
    Case("a row of units below the names", "Date,Open,Close,Volume\nyyyy-mm-dd,USD,USD,shares\n" + bare(lambda d, k: f"{d},{bar(k, OPEN, CLOSE, VOLUME)}"), expected=ONE),
    Case("empty rows below", rows("Date,AAPL,MSFT", lambda d, k: f"{d},{both(k, (CLOSE,))}") + ",,\n,,\n", "w.csv", TWO),
    Case("an average below", rows("Date,AAPL,MSFT", lambda d, k: f"{d},{both(k, (CLOSE,))}") + "Average,1,2\n", "w.csv", refusal="'Average' stands in the column of dates.*delete that row"),
    Case("a source below", rows("Date,Close", lambda d, k: f"{d},{AAPL[k][CLOSE]}") + "Source: Exchange,2023\n", refusal="'Source: Exchange' stands in the column of dates"),
    Case("Excel's numbers of days with the hour", rows("Date,Close", lambda d, k: f"{utc(d, 1) // 86400 + 25569}.66666667,{AAPL[k][CLOSE]}"), expected=ONE),
    Case("a day of trade and one of settlement", rows("Trade Date,Settle Date,Close", lambda d, k: f"{d},{d},{AAPL[k][CLOSE]}"), expected=ONE),
    # What must not become a ticker
    Case("a column twice, as pandas writes it", rows("Date,AAPL,MSFT,AAPL.1", lambda d, k: f"{d},{both(k, (CLOSE,))},1"), "w.csv", refusal="'AAPL' and 'AAPL.1' are two columns of one name"),
    Case("closes twice, as pandas writes them", rows("Date,Close,Close.1", lambda d, k: f"{d},{both(k, (CLOSE,))}"), "w.csv", refusal="'Close' and 'Close.1' are two columns of one name.*tickers"),
    Case("closes that were merged by pandas", rows("Date,Close_x,Close_y", lambda d, k: f"{d},{both(k, (CLOSE,))}"), "w.csv", refusal="'Close_x' and 'Close_y' are two columns of one name"),
    *(Case(f"{name} beside tickers", rows(f"Date,AAPL,MSFT,{name}", lambda d, k: f"{d},{both(k, (CLOSE,))},{AAPL[k][OPEN]}"), "w.csv", refusal=f"'{name}' is called like an indicator",
           ways={"--layout wide": {**TWO, name: closes(which=OPEN)}}) for name in ("SMA_20", "rsi14", "boll_ub", "close_30_sma")),
    *(Case(f"{name} beside tickers is left out", rows(f"Date,AAPL,MSFT,{name}", lambda d, k: f"{d},{both(k, (CLOSE,))},{1 + k / 8}"), "w.csv", TWO)
      for name in ("PE Ratio", "Dividend Yield", "Cash", "Sentiment", "Market Cap", "Shares", "Weight")),
    Case("a sum beside tickers", rows("Date,AAPL,MSFT,Total", lambda d, k: f"{d},{both(k, (CLOSE,))},{AAPL[k][CLOSE] + MSFT[k][CLOSE]:.2f}"), "w.csv", refusal="'Total' is in every row the sum or the mean",
         ways={"--layout wide": {**TWO, "Total": [round(a + b, 2) for a, b in zip(closes(), closes("MSFT"), strict=True)]}}),
    Case("weights", rows("Date,AAPL,MSFT", lambda d, k: f"{d},{share(k)},{1 - share(k):.4f}"), "w.csv", refusal="add up to 1, so that they look like weights",
         ways={"--layout wide": {"AAPL": [share(k) for k in range(ROWS)], "MSFT": [round(1 - share(k), 4) for k in range(ROWS)]}}),
    Case("a spread beside an index", rows("DATE,SP500,SLOPE", lambda d, k: f"{d},{AAPL[k][CLOSE]},{-0.5 + k / 100:.2f}"), "f.csv", refusal="'SLOPE' holds mostly negative numbers.*drop the column"),
    Case("prices in brackets", rows("Date,AAPL", lambda d, k: f"{d},({AAPL[k][CLOSE]})"), refusal="'AAPL' holds mostly negative numbers"),
    Case("returns with percent signs", rows("Date,AAPL", lambda d, k: f"{d},{100 * RETURNS[k]:.2f}%"), refusal="in percent and no price.*--returns percent",
         ways={"--returns percent": {"AAPL": [100, *100 * np.cumprod([1 + round(100 * r, 2) / 100 for r in RETURNS])]}}),
]  # fmt: skip
