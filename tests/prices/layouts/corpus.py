# ruff: noqa: E501 (a case is easier to read on few lines)
"""Small files in the layouts of vendors and repositories: values made up, layouts real.

Each case has what it is to be read as, ticker → prices of the two first days 2023-01-03 and 2023-01-04 (or other dates
that are given), or the sentence with which it is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date, timedelta

import numpy as np

from portfolio_sdpo.prices.layouts.options import spell_option

ROWS = 30
_RNG = np.random.default_rng(7)


def _sessions(count: int) -> list[date]:
    day, found = date(2023, 1, 3), []
    while len(found) < count:
        if day.weekday() < 5:
            found.append(day)
        day += timedelta(days=1)
    return found


DAYS = _sessions(ROWS)
BASE_DAY = "2022-12-30"
"""The session before the first one: the 2nd of January was a holiday."""


def _bars(start: float, volume: int) -> list[tuple[float, float, float, float, float, int]]:
    """open, high, low, close, adjusted close, volume"""
    close = np.round(start * np.exp(_RNG.normal(0, 0.012, ROWS).cumsum()), 2)
    bars = []
    for price in close:
        opened = round(price * (1 + _RNG.normal(0, 0.004)), 2)
        high, low = round(max(price, opened) * 1.006, 2), round(min(price, opened) * 0.994, 2)
        bars.append((opened, high, low, price, round(price * 0.97, 4), int(volume * np.exp(_RNG.normal(0, 0.4)))))
    return bars


AAPL, MSFT = _bars(125.07, 112_117_500), _bars(239.58, 25_740_000)
BARS = {"AAPL": AAPL, "MSFT": MSFT}
OPEN, HIGH, LOW, CLOSE, ADJ, VOLUME = range(6)


def closes(ticker: str = "AAPL", which: int = CLOSE) -> list[float]:
    return [bar[which] for bar in BARS[ticker]]


@dataclass(frozen=True)
class Case:
    name: str
    content: str | bytes
    file: str = "AAPL.csv"
    expected: dict[str, list[float]] = field(default_factory=dict)
    """All prices of each ticker; empty where the file is refused."""
    refusal: str = ""
    """A regular expression for the sentence."""
    options: dict = field(default_factory=dict)
    first: str = "2023-01-03"
    ways: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """Every option that the refusal names, as on the command line, and what the file is read as with it."""


def rows(header: str, line, separator: str = "\n", days=DAYS) -> str:
    return header + separator + separator.join(line(day, k) for k, day in enumerate(days)) + separator


def german(number: float, digits: int = 2) -> str:
    return f"{number:,.{digits}f}".translate(str.maketrans(",.", ".,"))


def ohlcv(k: int, ticker: str = "AAPL") -> str:
    bar = BARS[ticker][k]
    return f"{bar[OPEN]},{bar[HIGH]},{bar[LOW]},{bar[CLOSE]},{bar[VOLUME]}"


def ohlcva(k: int, ticker: str = "AAPL") -> str:
    bar = BARS[ticker][k]
    return f"{bar[OPEN]},{bar[HIGH]},{bar[LOW]},{bar[CLOSE]},{bar[VOLUME]},{bar[ADJ]}"


ONE, TWO = {"AAPL": closes()}, {"AAPL": closes(), "MSFT": closes("MSFT")}
ADJUSTED = {"AAPL": closes("AAPL", ADJ), "MSFT": closes("MSFT", ADJ)}
QUANTMOD = ",".join(
    ["date", *(f"{t}.{f}" for t in BARS for f in ("Open", "High", "Low", "Close", "Volume", "Adjusted"))]
)
FIELDS = ("Open", "High", "Low", "Close", "Adj Close", "Volume")
PLACES = (OPEN, HIGH, LOW, CLOSE, ADJ, VOLUME)


def both(k: int, places=PLACES, by_field: bool = False) -> str:
    pairs = [(t, p) for p in places for t in BARS] if by_field else [(t, p) for t in BARS for p in places]
    return ",".join(str(BARS[t][k][p]) for t, p in pairs)


def flat(spell, by_field: bool = True) -> str:
    pairs = [(t, f) for f in FIELDS for t in BARS] if by_field else [(t, f) for t in BARS for f in FIELDS]
    names = ",".join(f'"{spell(t, f)}"' for t, f in pairs)
    return rows(f"Date,{names}", lambda day, k: f"{day},{both(k, by_field=by_field)}")


def utc(day: date, scale: int) -> int:
    return int((day - date(1970, 1, 1)).total_seconds()) * scale


WEEKS = [date(2022, 1, 7) + timedelta(days=7 * k) for k in range(ROWS)]
GERMAN_DAY = "{0:%d.%m.%Y}"
RETURNS = np.round(np.diff(np.log(closes()), prepend=np.log(124.0)), 5).tolist()
POINTS = [round(14181.670 * p / 125.07) for p in closes()]


POINTS_FILE = rows("Date;DAX", lambda d, k: f"{d:%d.%m.%Y};{german(POINTS[k], 0)}")
INDEX = {"IBOV": [float(p) for p in POINTS]}
WAYS_OF_POINTS = {"--layout :decimal=comma": {"DAX": [float(p) for p in POINTS]},
                  "--layout :decimal=point": {"DAX": [p / 1000 for p in POINTS]}}  # fmt: skip


def klines() -> list[list]:
    return [
        [utc(d, 1000), *(str(v) for v in b[:4]), str(b[VOLUME]), utc(d, 1000) + 86399999, "1.5", 100, "1.0", "1.0", "0"]
        for d, b in zip(DAYS, AAPL, strict=True)
    ]


def records(name: str = "date") -> list[dict]:
    return [{name: str(d), "open": b[0], "high": b[1], "low": b[2], "close": b[3], "volume": b[5]}
            for d, b in zip(DAYS, AAPL, strict=True)]  # fmt: skip


CASES = [
    # Several securities with several fields in one header
    Case("quantmod", rows(QUANTMOD, lambda d, k: f"{d},{ohlcva(k)},{ohlcva(k, 'MSFT')}"), "q.csv", ADJUSTED),
    Case("quantmod, one ticker", rows("," + ",".join(QUANTMOD.split(",")[1:7]), lambda d, k: f"{d},{ohlcva(k)}"),
         "q.csv", {"AAPL": ADJUSTED["AAPL"]}),
    Case("yfinance flattened, Close_AAPL", flat(lambda t, f: f"{f}_{t}"), "y.csv", ADJUSTED),
    Case("yfinance flattened, AAPL_Close", flat(lambda t, f: f"{t}_{f}"), "y.csv", ADJUSTED),
    Case("yfinance flattened, tuples", flat(lambda t, f: f"('{f}', '{t}')"), "y.csv", ADJUSTED),
    Case("yfinance flattened, spaces", flat(lambda t, f: f"{f} {t}", False), "y.csv", ADJUSTED),
    Case("fields without a separator", flat(lambda t, f: f"{t}{f}", False), "y.csv", ADJUSTED),
    Case("closes only, AAPL_Close", rows("Date,AAPL_Close,MSFT_Close", lambda d, k: f"{d},{both(k, (CLOSE,))}"), "c.csv",
         TWO),
    Case("a price and its volume", rows("Date,AAPL,AAPL Volume", lambda d, k: f"{d},{AAPL[k][CLOSE]},{AAPL[k][VOLUME]}"),
         "c.csv", ONE),
    Case("Bloomberg, one column of dates",
         rows(",AAPL US Equity,MSFT US Equity\nDates,PX_LAST,PX_LAST", lambda d, k: f"{d},{both(k, (CLOSE,))}"), "b.csv",
         {"AAPL US Equity": closes(), "MSFT US Equity": closes("MSFT")}),
    Case("Bloomberg, flat names", rows("Date,AAPL US Equity PX_LAST,AAPL US Equity PX_VOLUME",
         lambda d, k: f"{d},{AAPL[k][CLOSE]},{AAPL[k][VOLUME]}"), "b.csv", {"AAPL US Equity": closes()}),
    # One security, vendors' names
    Case("Yahoo", rows("Date,Open,High,Low,Close,Adj Close,Volume", lambda d, k: f"{d}," + ",".join(map(str, AAPL[k]))),
         expected={"AAPL": ADJUSTED["AAPL"]}),
    Case("Stooq", rows("Date,Open,High,Low,Close,Volume", lambda d, k: f"{d},{ohlcv(k)}"), expected=ONE),
    Case("Stooq in Polish", rows("Data,Otwarcie,Najwyzszy,Najnizszy,Zamkniecie,Wolumen", lambda d, k: f"{d},{ohlcv(k)}"),
         expected=ONE),
    Case("Stooq in bulk, .txt", rows("<TICKER>,<PER>,<DATE>,<TIME>,<OPEN>,<HIGH>,<LOW>,<CLOSE>,<VOL>,<OPENINT>",
         lambda d, k: f"AAPL.US,D,{d:%Y%m%d},000000,{ohlcv(k)},0"), "aapl.us.txt", {"AAPL.US": closes()}),
    Case("ariva.de", rows("Datum;Erster;Hoch;Tief;Schlusskurs;Stuecke;Volumen", lambda d, k: f"{d};" + ";".join(
         german(v) for v in AAPL[k][:4]) + f";{AAPL[k][5]};{AAPL[k][5] * 7}"), expected=ONE),
    Case("Börse Frankfurt", rows("Datum;Eröffnung;Schluss;Tageshoch;Tagestief;Umsatz;Umsatz Stück", lambda d, k:
         f"{d:%d.%m.%Y};" + ";".join(german(AAPL[k][p]) for p in (0, 3, 1, 2)) + f";{german(AAPL[k][5])};{AAPL[k][5]}"),
         expected=ONE),
    Case("Börse Frankfurt, Latin-1", rows("Datum;Eröffnung;Schluss;Tageshoch;Tagestief", lambda d, k:
         f"{d:%d.%m.%Y};" + ";".join(german(AAPL[k][p]) for p in (0, 3, 1, 2))).encode("cp1252"), expected=ONE),
    Case("investing.com", rows('"Date","Price","Open","High","Low","Vol.","Change %"', lambda d, k:
         f'"{d:%m/%d/%Y}","{AAPL[k][3]:,}","{AAPL[k][0]}","{AAPL[k][1]}","{AAPL[k][2]}","112.12M","-0.15%"'), expected=ONE),
    Case("investing.com in Portuguese", rows('"Data","Último","Abertura","Máxima","Mínima","Vol.","Var%"', lambda d, k:
         f'"{d:%d.%m.%Y}","{german(AAPL[k][3])}","{german(AAPL[k][0])}","{german(AAPL[k][1])}","{german(AAPL[k][2])}",'
         '"112,12M","-0,15%"'), expected=ONE),
    Case("investing.com in Portuguese, index points", rows('"Data","Último","Abertura","Vol.","Var%"', lambda d, k:
         f'"{d:%d.%m.%Y}","{german(POINTS[k], 0)}","{german(POINTS[k], 0)}","11,3B","-0,15%"'), "IBOV.csv",
         {"IBOV": [float(p) for p in POINTS]}),
    *(Case(f"index points, comma shown by another column, {name}", rows(f'Data,{name},Var%', lambda d, k:
         f'{d},{german(POINTS[k], 0)},"0,54%"'), "IBOV.csv", INDEX) for name in ("Preço", "Prezzo", "Cours", "Close")),
    Case("index points, points in the volume", rows("Date,Open,High,Low,Close,Volume", lambda d, k:
         f"{d}," + ",".join([german(POINTS[k], 0)] * 4) + ",1.234.567"), "IBOV.csv", INDEX),
    Case("index points, volume in millions", rows("Date,Close,Vol.", lambda d, k: f'{d},{german(POINTS[k], 0)},"1,5M"'),
         "IBOV.csv", INDEX),
    Case("points in the prices outweigh a comma elsewhere", rows("Date,Close,Vol.", lambda d, k:
         f'{d},{AAPL[k][3]},"1,5M"'), expected=ONE),
    Case("a date with a comma is no number", rows("Date,Close", lambda d, k: f'"{d:%b %-d, %Y}",{AAPL[k][3]:.3f}'),
         expected=ONE),
    Case("investing.com in Spanish", rows('"Fecha","Cierre","Apertura","Máximo","Mínimo","Vol.","% var."', lambda d, k:
         f'"{d:%d.%m.%Y}","{german(AAPL[k][3])}","{german(AAPL[k][0])}","{german(AAPL[k][1])}","{german(AAPL[k][2])}",'
         '"1,1M","0,2%"'), expected=ONE),
    Case("French", rows("Date;Ouverture;Plus haut;Plus bas;Clôture;Volume", lambda d, k: f"{d:%d/%m/%Y};" + ";".join(
         german(v) for v in AAPL[k][:4]) + f";{AAPL[k][5]}"), expected=ONE),
    Case("Italian", rows("Data;Apertura;Massimo;Minimo;Chiusura", lambda d, k: f"{d:%d/%m/%Y};" + ";".join(
         german(v) for v in AAPL[k][:4])), expected=ONE),
    Case("Dutch", rows("Datum;Openen;Hoog;Laag;Slot;Aantal", lambda d, k: f"{d:%d-%m-%Y};" + ";".join(
         german(v) for v in AAPL[k][:4]) + f";{AAPL[k][5]}"), expected=ONE),
    Case("Chinese", rows("日期,开盘,最高,最低,收盘,成交量", lambda d, k: f"{d},{ohlcv(k)}"), expected=ONE),
    Case("Japanese", rows("日付,始値,高値,安値,終値,出来高", lambda d, k: f"{d:%Y/%m/%d},{ohlcv(k)}"), expected=ONE),
    Case("Nasdaq", rows("Date,Close/Last,Volume,Open,High,Low", lambda d, k:
         f"{d:%m/%d/%Y},${AAPL[k][3]},{AAPL[k][5]},${AAPL[k][0]},${AAPL[k][1]},${AAPL[k][2]}"), expected=ONE),
    Case("Google Finance", rows("Date,Close", lambda d, k: f"{d:%-m/%-d/%Y} 16:00:00,{AAPL[k][3]}"), expected=ONE),
    Case("MarketWatch", rows("Date,Open,High,Low,Close,Volume", lambda d, k:
         f'{d:%m/%d/%Y},"{AAPL[k][0]}",{AAPL[k][1]},{AAPL[k][2]},{AAPL[k][3]},"{AAPL[k][5]:,}"'), expected=ONE),
    Case("Alpha Vantage", rows("timestamp,open,high,low,close,adjusted_close,volume,dividend_amount,split_coefficient",
         lambda d, k: f"{d},{AAPL[k][0]},{AAPL[k][1]},{AAPL[k][2]},{AAPL[k][3]},{AAPL[k][4]},{AAPL[k][5]},0.0000,1.0"),
         expected={"AAPL": ADJUSTED["AAPL"]}),
    Case("Tiingo", rows("date,close,high,low,open,volume,adjClose,adjHigh,adjLow,adjOpen,adjVolume,divCash,splitFactor",
         lambda d, k: f"{d},{AAPL[k][3]},{AAPL[k][1]},{AAPL[k][2]},{AAPL[k][0]},{AAPL[k][5]},{AAPL[k][4]},1,1,1,1,0.0,1.0"),
         expected={"AAPL": ADJUSTED["AAPL"]}),
    Case("Quandl", rows("Date,Open,High,Low,Close,Volume,Ex-Dividend,Split Ratio,Adj. Open,Adj. Close", lambda d, k:
         f"{d},{ohlcv(k)},0.0,1.0,1.0,{AAPL[k][4]}"), expected={"AAPL": ADJUSTED["AAPL"]}),
    Case("TradingView", rows("time,open,high,low,close,Volume", lambda d, k: f"{utc(d, 1)},{ohlcv(k)}"), expected=ONE),
    Case("Binance", rows("Open time,Open,High,Low,Close,Volume,Close time,Quote asset volume,Number of trades",
         lambda d, k: f"{utc(d, 1000)},{ohlcv(k)},{utc(d, 1000) + 86399999},1.5,100"), "BTCUSDT.csv",
         {"BTCUSDT": closes()}),
    Case("epoch nanoseconds", rows("timestamp,close", lambda d, k: f"{utc(d, 10**9)},{AAPL[k][3]}"), expected=ONE),
    Case("CryptoDataDownload", "https://www.CryptoDataDownload.com\n" + rows(
         "unix,date,symbol,open,high,low,close,Volume BTC,Volume USD", lambda d, k:
         f"{utc(d, 1)},{d} 00:00:00,BTC/USD,{ohlcv(k)},{AAPL[k][5] * 9}"), "b.csv", {"BTC/USD": closes()}),
    Case("preamble of a broker", "Account: 123\nExported on 2023-03-01 10:00\n\n" + rows("Date;Price", lambda d, k:
         f"{d};{AAPL[k][3]}"), expected=ONE),
    Case("NSE India", rows("Date ,series ,OPEN ,HIGH ,LOW ,PREV. CLOSE ,ltp ,close ,vwap ,VOLUME ", lambda d, k:
         f"{d:%d-%b-%Y},EQ,{AAPL[k][0]},{AAPL[k][1]},{AAPL[k][2]},1,1,{AAPL[k][3]},1,{AAPL[k][5]}"), expected=ONE),
    Case("months in letters", rows("Date,Close", lambda d, k: f"{d:%d-%b-%y},{AAPL[k][3]}"), expected=ONE),
    Case("months in German", rows("Datum;Kurs", lambda d, k:
         f"{d.day}. {('Jan', 'Feb')[d.month - 1]}. {d.year};{german(AAPL[k][3])}"), expected=ONE),
    Case("months in French", rows("Date;Cours", lambda d, k:
         f"{d.day} {('janv.', 'févr.')[d.month - 1]} {d.year};{german(AAPL[k][3])}"), expected=ONE),
    Case("SAS", rows("DATE,CLOSE", lambda d, k: f"{d:%d%b%Y},{AAPL[k][3]}".upper()), expected=ONE),
    Case("MetaTrader, .tsv", rows("<DATE>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\t<VOL>\t<SPREAD>", lambda d, k:
         f"{d:%Y.%m.%d}\t" + ohlcv(k).replace(",", "\t") + "\t0\t1"), "AAPL.tsv", ONE),
    Case("UTF-16 with a mark", rows("Date\tClose", lambda d, k: f"{d}\t{AAPL[k][3]}").encode("utf-16"), "AAPL.txt", ONE),
    Case("UTF-16 without a mark", rows("Date,Close", lambda d, k: f"{d},{AAPL[k][3]}").encode("utf-16-le"), expected=ONE),
    Case("Swiss apostrophes", rows("Date;Close", lambda d, k: f"{d};{1e3 * AAPL[k][3]:,.2f}".replace(",", "'")),
         expected={"AAPL": [round(1e3 * p, 2) for p in closes()]}),
    Case("spaces between thousands", rows("Data;Zamknięcie", lambda d, k:
         f"{d};{1e3 * AAPL[k][3]:,.2f}".replace(",", "\u00a0").replace(".", ",")),
         expected={"AAPL": [round(1e3 * p, 2) for p in closes()]}),
    # Long tables
    Case("Refinitiv", rows("Instrument,Date,Price Close", lambda d, k: f"AAPL.O,{d}T00:00:00Z,{AAPL[k][3]}"), "r.csv",
         {"AAPL.O": closes()}),
    Case("ISIN", rows("ISIN;Datum;Kurs", lambda d, k: f"US0378331005;{d:%d.%m.%Y};{german(AAPL[k][3])}"), "r.csv",
         {"US0378331005": closes()}),
    Case("FIGI", rows("figi,date,close", lambda d, k: f"BBG000B9XRY4,{d},{AAPL[k][3]}"), "r.csv", {"BBG000B9XRY4": closes()}),
    Case("exchange rates", rows("Date,Country,Exchange rate", lambda d, k: f"{d},Canada,{AAPL[k][3]}"), "r.csv",
         {"Canada": closes()}),
    Case("CRSP", rows("PERMNO,date,TICKER,PRC,VOL,RET", lambda d, k:
         f"14593,{d:%Y%m%d},AAPL,{-AAPL[k][3] if k % 7 == 3 else AAPL[k][3]},{AAPL[k][5]},0.01"), "r.csv", ONE),
    Case("Compustat", rows("gvkey,datadate,tic,prccd", lambda d, k: f"001690,{d:%Y%m%d},AAPL,{AAPL[k][3]}"), "r.csv", ONE),
    Case("Sharadar", rows("ticker,date,open,high,low,close,volume,closeadj,closeunadj,lastupdated", lambda d, k:
         f"AAPL,{d},{ohlcv(k)},{AAPL[k][4]},{AAPL[k][3]},2023-03-01"), "r.csv", {"AAPL": ADJUSTED["AAPL"]}),
    Case("a text column that can be named", rows("date,firm,worth", lambda d, k: f"{d},Apple,{AAPL[k][3]}"), "r.csv",
         {"Apple": closes()}, options={"layout": "long:ticker=firm,price=worth"}),
    # JSON
    Case("JSON records", json.dumps(records()), "AAPL.json", ONE),
    Case("JSON lines", "\n".join(map(json.dumps, records())), "AAPL.jsonl", ONE),
    Case("JSON of pandas, split", json.dumps({"columns": ["AAPL"], "index": [str(d) for d in DAYS],
         "data": [[p] for p in closes()]}), "p.json", ONE),
    Case("JSON of pandas, columns", json.dumps({"AAPL": dict(zip(map(str, DAYS), closes(), strict=True))}), "p.json", ONE),
    Case("JSON of pandas, columns by milliseconds", json.dumps({"AAPL": {str(utc(d, 1000)): p for d, p in zip(
         DAYS, closes(), strict=True)}}), "p.json", ONE),
    Case("Polygon", json.dumps({"ticker": "AAPL", "queryCount": ROWS, "results": [
         {"v": b[5], "vw": 1.0, "o": b[0], "c": b[3], "h": b[1], "l": b[2], "t": utc(d, 1000) + 18_000_000, "n": 10}
         for d, b in zip(DAYS, AAPL, strict=True)]}), "p.json", ONE),
    Case("Alpha Vantage, JSON", json.dumps({"Meta Data": {"2. Symbol": "AAPL"}, "Time Series (Daily)": {
         str(d): {"1. open": str(b[0]), "2. high": str(b[1]), "3. low": str(b[2]), "4. close": str(b[3]),
                  "5. volume": str(b[5])} for d, b in reversed(list(zip(DAYS, AAPL, strict=True)))}}), "p.json", ONE),
    Case("CoinGecko", json.dumps({"prices": [[utc(d, 1000), p] for d, p in zip(DAYS, closes(), strict=True)]}),
         "AAPL.json", ONE),
    Case("Binance klines", json.dumps(klines()), "AAPL.json", ONE),
    # Wide, and what must not be taken for it
    Case("wide", rows("Date,AAPL,MSFT", lambda d, k: f"{d},{both(k, (CLOSE,))}"), "w.csv", TWO),
    Case("wide with a volume", rows("Date,AAPL,MSFT,Volume", lambda d, k: f"{d},{both(k, (CLOSE,))},{AAPL[k][5]}"), "w.csv",
         TWO),
    Case("wide in pandas' own names", rows("Unnamed: 0,AAPL,MSFT", lambda d, k: f"{d},{both(k, (CLOSE,))}"), "w.csv", TWO),
    Case("weekly", rows("Date,AAPL", lambda d, k: f"{d},{AAPL[k][3]}", days=WEEKS), "w.csv", ONE, first="2022-01-07"),
    Case("months as YYYYMM", rows("Date,AAPL", lambda d, k: f"{2000 + k // 12}{k % 12 + 1:02d},{AAPL[k][3]}"), "w.csv", ONE,
         first="2000-01-31"),
    Case("returns on request", rows("Date,AAPL", lambda d, k: f"{d},{RETURNS[k]}"), "w.csv",
         {"AAPL": [100, *100 * np.exp(np.cumsum(RETURNS))]}, options={"returns": "log"}, first=BASE_DAY),
    Case("Kenneth French", "This file was created by CMPT_IND_RETS_DAILY\n\n  Average Value Weighted Returns -- Daily\n" + rows(
         ",NoDur,Durbl", lambda d, k: f"{d:%Y%m%d},{100 * RETURNS[k]:.3f},-99.99")
         + "\n\n  Average Equal Weighted Returns -- Daily\n,NoDur,Durbl\n20230103,1,1\n\nCopyright 2023\n", "f.csv",
         {"NoDur": [100, *100 * np.cumprod([1 + round(100 * r, 3) / 100 for r in RETURNS])], "Durbl": []},
         options={"returns": "percent"}, first=BASE_DAY),
    Case("intraday on request", rows("Datetime,Close", lambda d, k:
         f"{d} 15:59:00-05:00,{AAPL[k][3]}\n{d} 09:30:00-05:00,{AAPL[k][0]}"), expected=ONE, options={"to_daily": True}),
    # Refused, with the way out
    Case("FXCM", rows("Date,BidOpen,BidHigh,BidLow,BidClose,AskOpen,AskHigh,AskLow,AskClose", lambda d, k:
         f"{d}," + ",".join(map(str, AAPL[k][:4])) + "," + ",".join(str(v + 0.02) for v in AAPL[k][:4])),
         refusal="--layout per-ticker:price=BidClose or --layout per-ticker:price=AskClose",
         ways={"--layout per-ticker:price=BidClose": ONE,
               "--layout per-ticker:price=AskClose": {"AAPL": [p + 0.02 for p in closes()]}}),
    Case("unknown language", rows("Päivä,Avaus,Ylin,Alin,Loppu", lambda d, k: f"{d}," + ",".join(map(str, AAPL[k][:4]))),
         refusal="'Ylin' is never below and 'Alin' never above.*--layout per-ticker:price=Avaus or .*price=Loppu",
         ways={"--layout per-ticker:price=Avaus": {"AAPL": closes(which=OPEN)}, "--layout per-ticker:price=Loppu": ONE,
               "--layout wide": {"Avaus": closes(which=OPEN), "Ylin": closes(which=HIGH), "Alin": closes(which=LOW),
                                 "Loppu": closes()}}),
    Case("index points with decimal signs that could be either", POINTS_FILE,
         refusal=r"can be 14\d\d\d \(decimal comma\) or 14\.\d\d\d .*decimal=comma", ways=WAYS_OF_POINTS),
    *(Case(f"index points under {names} that could be either", rows(f"Date,{names}", lambda d, k:
         f"{d},{german(POINTS[k], 0)}"), "DAX.csv", refusal=r"can be 14\d\d\d .*decimal=comma", ways=WAYS_OF_POINTS)
      for names in ("Preço", "Prezzo", "Cours", "Kurs")),
    Case("JSON with points in text, point", json.dumps([{"Datum": str(d), "Kurs": german(p, 0)} for d, p in zip(
         DAYS, POINTS, strict=True)]), "DAX.json", {"DAX": [p / 1000 for p in POINTS]},
         options={"layout": ":decimal=point"}),
    Case("JSON with points in text", json.dumps([{"Datum": str(d), "Kurs": german(p, 0)} for d, p in zip(
         DAYS, POINTS, strict=True)]), "DAX.json", refusal=r"can be 14\d\d\d \(decimal comma\)", ways=WAYS_OF_POINTS),
    Case("JSON with points in text, comma", json.dumps([{"Datum": str(d), "Kurs": german(p, 0)} for d, p in zip(
         DAYS, POINTS, strict=True)]), "DAX.json", {"DAX": [float(p) for p in POINTS]},
         options={"layout": ":decimal=comma"}),
    Case("JSON with numbers, comma", json.dumps(records()), "AAPL.json", ONE, options={"layout": ":decimal=comma"}),
    Case("returns", rows("Date,AAPL", lambda d, k: f"{d},{RETURNS[k]}"), refusal="look like returns.*--returns decimal",
         ways={"--returns decimal": {"AAPL": [100, *100 * np.cumprod(1 + np.array(RETURNS))]},
               "--layout wide": {"AAPL": RETURNS}}),
    Case("returns in percent", rows("Date,AAPL", lambda d, k: f"{d},{100 * RETURNS[k]:.4f}"), refusal="--returns percent",
         ways={"--returns percent": {"AAPL": [100, *100 * np.cumprod([1 + round(100 * r, 4) / 100 for r in RETURNS])]},
               "--layout wide": {"AAPL": [round(100 * r, 4) for r in RETURNS]}}),
    Case("gross returns", rows("Date,AAPL", lambda d, k: f"{d},{1 + RETURNS[k]:.5f}"), refusal="--returns gross",
         ways={"--returns gross": {"AAPL": [100, *100 * np.cumprod([round(1 + r, 5) for r in RETURNS])]},
               "--layout wide": {"AAPL": [round(1 + r, 5) for r in RETURNS]}}),
    Case("volumes", rows("Date,AAPL", lambda d, k: f"{d},{AAPL[k][5]}"), refusal="'AAPL' holds numbers that jump like volumes",
         ways={"--layout wide": {"AAPL": closes(which=VOLUME)}}),
    Case("volumes under a name", rows("Date,Volume", lambda d, k: f"{d},{AAPL[k][5]}"), refusal="no column of prices"),
    Case("volumes under a name, long", rows("date,ticker,volume,ret", lambda d, k: f"{d},AAPL,{AAPL[k][5]},0.1"),
         refusal="no column of prices such as Close .*; add one to the file"),
    Case("a long table with a name for the prices that is unknown", rows("date,ticker,volume,worth", lambda d, k:
         f"{d},AAPL,{AAPL[k][5]},{AAPL[k][3]}"), refusal="no column of prices",
         ways={"--layout long:ticker=ticker,price=worth": ONE}),
    Case("intraday", rows("Datetime,Close", lambda d, k: f"{d} 09:30:00,{AAPL[k][0]}\n{d} 15:59:00,{AAPL[k][3]}"),
         refusal="intraday, up to 2 a day.*--to-daily", ways={"--to-daily": ONE}),
    Case("an unknown column of text", rows("date,firm,worth", lambda d, k: f"{d},Apple,{AAPL[k][3]}"),
         refusal="--layout long:ticker=firm,price=worth", ways={"--layout long:ticker=firm,price=worth": {"Apple": closes()}}),
    Case("a stray column among fields", rows(QUANTMOD.replace("MSFT.Open", "X"), lambda d, k:
         f"{d},{ohlcva(k)},{ohlcva(k, 'MSFT')}"), refusal="'X' stands beside columns such as 'AAPL.Open'",
         ways={"--layout fields": ADJUSTED}),
    *(Case(f"{price} beside tickers", rows(f"Date,{price},AAPL,MSFT", lambda d, k: f"{d},{AAPL[k][0]},{both(k, (CLOSE,))}"),
         "SPY.csv", refusal=f"{price} alone .* leaves out AAPL, MSFT", ways={
             spell_option("per-ticker", price=price): {"SPY": closes(which=OPEN)},
             "--layout wide": {price: closes(which=OPEN), **TWO}}) for price in ("Close", "Price", "Last", "Adj Close", "nav")),
    Case("an unknown field of each security", rows("Date,AAPL_Close,AAPL_SMA20,MSFT_Close,MSFT_SMA20", lambda d, k:
         f"{d},{AAPL[k][3]},1,{MSFT[k][3]},2"), "s.csv", TWO),
    Case("an unknown field of one security", rows("Date,AAPL_Close,AAPL_RSI", lambda d, k: f"{d},{AAPL[k][3]},50"), "s.csv",
         ONE),
    Case("a bare name beside closes", rows("Date,AAPL.Close,MSFT.Close,VIX", lambda d, k: f"{d},{both(k, (CLOSE,))},20.5"),
         "s.csv", refusal="'VIX' stands beside columns such as 'AAPL.Close'", ways={"--layout fields": TWO}),
    Case("an unknown field beside tickers", rows("Date,AAPL,MSFT,AAPL_mcap", lambda d, k: f"{d},{both(k, (CLOSE,))},20.5"),
         "s.csv", refusal="'AAPL_mcap' is called like something of 'AAPL'",
         ways={"--layout wide": {**TWO, "AAPL_mcap": [20.5] * ROWS}}),
    Case("tickers that begin like others", rows("Date,BRK,BRK.B,BTC,BTC-USD", lambda d, k:
         f"{d},{both(k, (CLOSE,))},{both(k, (OPEN,))}"), "s.csv", {"BRK": closes(), "BRK.B": closes("MSFT"),
         "BTC": closes(which=OPEN), "BTC-USD": closes("MSFT", OPEN)}),
    Case("fields in capitals, with an average", rows("DATE,OPEN,CLOSE,SMA", lambda d, k: f"{d},{AAPL[k][0]},{AAPL[k][3]},9.5"),
         refusal="'CLOSE' may be the price of one security", ways={"--layout per-ticker:price=CLOSE": ONE,
         "--layout wide": {"OPEN": closes(which=OPEN), "CLOSE": closes(), "SMA": [9.5] * ROWS}}),
    Case("a close in capitals, with an indicator", rows("DATE,CLOSE,RSI", lambda d, k: f"{d},{AAPL[k][3]},9.5"),
         refusal="'CLOSE' may be the price of one security", ways={"--layout per-ticker:price=CLOSE": ONE,
         "--layout wide": {"CLOSE": closes(), "RSI": [9.5] * ROWS}}),
    Case("fields of one letter", rows("t,o,c", lambda d, k: f"{d},{AAPL[k][0]},{AAPL[k][3]}"),
         refusal="'c' may be the price", ways={"--layout per-ticker:price=c": ONE,
         "--layout wide": {"o": closes(which=OPEN), "c": closes()}}),
    Case("tuples with a ticker that is a field's name", rows("Date,\"('Close', 'AAPL')\",\"('Close', 'LOW')\"", lambda d, k:
         f"{d},{both(k, (CLOSE,))}"), "s.csv", {"AAPL": closes(), "LOW": closes("MSFT")}),
    Case("JSON without a table", '{"error": "limit reached"}', "AAPL.json", refusal="holds no table"),
]  # fmt: skip
