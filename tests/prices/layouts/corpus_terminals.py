# ruff: noqa: E501 (a case is easier to read on few lines)
"""Files of terminals, exchanges and brokers: several rows of names, dates and times apart, footers, units, quotes.

As in `corpus`, values are made up and layouts are real.
"""

from __future__ import annotations

import json
from datetime import timedelta

import numpy as np

from tests.prices.layouts.corpus import (
    AAPL,
    ADJ,
    ADJUSTED,
    CLOSE,
    DAYS,
    HIGH,
    LOW,
    MSFT,
    ONE,
    OPEN,
    POINTS,
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
    utc,
)

EQUITIES = {"AAPL US Equity": closes(), "MSFT US Equity": closes("MSFT")}
LATE = 3
"""Rows by which the second security of a file with dates of its own is shifted."""


def quotes(spell) -> str:
    """Opens and closes of three securities whose names are sides of a quote."""
    names = ",".join(spell(t, f) for t in ("BID", "ASK", "MID") for f in ("Open", "Close"))
    return rows(
        f"Date,{names}", lambda d, k: f"{d}," + ",".join(str(n * AAPL[k][p]) for n in (1, 2, 4) for p in (OPEN, CLOSE))
    )


SIDES = {"BID": closes(), "ASK": [2 * p for p in closes()], "MID": [4 * p for p in closes()]}


def shiller(month: int) -> str:
    """October is the number 0.10 without its last zero."""
    return "1" if month == 10 else f"{month:02d}"


def intraday(line) -> str:
    return "".join(
        line(d, clock, price)
        for d, bar in zip(DAYS, AAPL, strict=True)
        for clock, price in (("16:00", bar[CLOSE]), ("09:30", bar[OPEN]))
    )


def beside(number) -> str:
    """Two prices, and a column of something else."""
    return rows("Date,AAPL,MSFT,FOO", lambda d, k: f"{d},{both(k, (CLOSE,))},{number(k)}")


def as_prices(number) -> dict:
    return {"--layout wide": {**TWO, "FOO": [float(number(k)) for k in range(ROWS)]}}


VOLUMES = {"AAPL": closes(which=VOLUME)}
NOISE = np.random.default_rng(5).normal(0, 0.01, ROWS).round(5).tolist()

CASES = [
    # Headers of several rows, dates of several columns
    Case("Bloomberg, dates for each security", "AAPL US Equity,,,MSFT US Equity,\nDate,PX_LAST,,Date,PX_LAST\n" + "".join(
         f"{d:%m/%d/%Y},{AAPL[k][CLOSE]},," + (f"{DAYS[k - LATE]:%m/%d/%Y},{MSFT[k - LATE][CLOSE]}\n" if k >= LATE else ",\n")
         for k, d in enumerate(DAYS)), "b.csv", {"AAPL US Equity": closes(), "MSFT US Equity": closes("MSFT")[:-LATE]}),
    Case("tickers, each beside its dates", rows("Date,AAPL,Date,MSFT", lambda d, k: f"{d},{AAPL[k][CLOSE]},{d},{MSFT[k][CLOSE]}"), "b.csv", TWO),
    Case("tickers, each beside its dates, by pandas", rows("Date,AAPL,Date.1,MSFT", lambda d, k:
         f"{d},{AAPL[k][CLOSE]},{d},{MSFT[k][CLOSE]}"), "b.csv", TWO),
    Case("dates for each of two columns that no ticker names", rows("Date,Close,Date,Close", lambda d, k:
         f"{d},{AAPL[k][CLOSE]},{d},{MSFT[k][CLOSE]}"), refusal="2 columns of dates have prices of AAPL; write the ticker above"),
    Case("Bloomberg, a page about one security", "Security,AAPL US Equity\nPeriod,D\nCurrency,USD\n\n" + rows("Date,PX_LAST,PX_VOLUME",
         lambda d, k: f"{d},{AAPL[k][CLOSE]},{AAPL[k][VOLUME]}"), expected=ONE),
    Case("Refinitiv, instruments above fields", "Instrument,AAPL.O,MSFT.O\n" + rows("Date,Price Close,Price Close", lambda d, k:
         f"{d},{both(k, (CLOSE,))}"), "r.csv", {"AAPL.O": closes(), "MSFT.O": closes("MSFT")}),
    Case("pandas-datareader", "Attributes,Adj Close,Adj Close,Close,Close\nSymbols,AAPL,MSFT,AAPL,MSFT\nDate,,,,\n" + "".join(
         f"{d},{both(k, (ADJ, CLOSE), by_field=True)}\n" for k, d in enumerate(DAYS)), "r.csv", ADJUSTED),
    Case("yfinance's download after reset_index", ",Date,Close,Close,Volume,Volume\n,,AAPL,MSFT,AAPL,MSFT\n" + "".join(
         f"{k},{d},{both(k, (CLOSE, VOLUME), by_field=True)}\n" for k, d in enumerate(DAYS)), "r.csv", TWO),
    Case("MSCI, names above and a notice below", '"Index Level :","Net"\n"Currency :","USD"\n\n' + rows('"Date","WORLD"', lambda d, k:
         f'"{d:%b %d, %Y}","{AAPL[k][CLOSE]:,.3f}"') + '\n"Copyright MSCI. All rights reserved."\n', "m.csv", {"WORLD": closes()}),
    Case("Datastream's three rows of names", "Name,APPLE,MICROSOFT\nCode,@AAPL,@MSFT\nCURRENCY,U$,U$\n" + "".join(
         f"{d:%d/%m/%Y},{both(k, (CLOSE,))}\n" for k, d in enumerate(DAYS)), refusal="dates begin in row 3 .*keep one line of names"),
    Case("zoo's write", rows('"Index" "AAPL.Close" "MSFT.Close"', lambda d, k: f"{d} {AAPL[k][CLOSE]} {MSFT[k][CLOSE]}"), "z.txt", TWO),
    # Footers
    Case("Barchart's footer", rows('Time,Open,High,Low,Last,Change,%Chg,Volume,"Open Int"', lambda d, k:
         f'{d:%m/%d/%Y},{",".join(map(str, AAPL[k][:4]))},0.1,0.2%,{AAPL[k][5]},7') + '"Downloaded from Barchart.com as of 03-01-2023"\n', expected=ONE),
    Case("Yahoo's notes below", rows("Date,Close*,Adj Close**", lambda d, k: f'"{d:%b %d, %Y}",{AAPL[k][CLOSE]},{AAPL[k][ADJ]}')
         + "*Close price adjusted for splits.**Adjusted for dividends.\n", expected={"AAPL": closes(which=ADJ)}),
    Case("Yahoo's page, copied", rows("Date\tOpen\tCloseClose price adjusted for splits.\tAdj CloseAdjusted close price adjusted for splits and dividend.\tVolume",
         lambda d, k: f"{d:%b %d, %Y}\t{AAPL[k][OPEN]}\t{AAPL[k][CLOSE]}\t{AAPL[k][ADJ]}\t{AAPL[k][5]:,}"), expected={"AAPL": closes(which=ADJ)}),
    Case("a sum below", rows("Date,AAPL", lambda d, k: f"{d},{AAPL[k][CLOSE]}") + "Total,99\n", refusal="'Total' stands in the column of dates"),
    # Further fields of one security
    Case("a typical price", rows("Date,Open,High,Low,Close,Typical Price", lambda d, k: f"{d},{','.join(map(str, AAPL[k][:4]))},1.5"), expected=ONE),
    Case("averages and other closes", rows("Date,Close,Average Price,Weighted Close,Previous Close", lambda d, k: f"{d},{AAPL[k][CLOSE]},1.5,1.6,1.7"), expected=ONE),
    Case("TradingView with indicators", rows('time,open,high,low,close,Volume,Volume MA,"MSFT · NASDAQ: close"', lambda d, k:
         f"{utc(d, 1)},{ohlcv(k)},1,{MSFT[k][CLOSE]}"), expected=ONE),
    Case("Binance's archive", rows("open_time,open,high,low,close,volume,close_time,quote_volume,count,taker_buy_volume,taker_buy_quote_volume,ignore",
         lambda d, k: f"{utc(d, 1000)},{ohlcv(k)},{utc(d, 1000) + 86399999},1.1,5,1.2,1.3,0"), "BTCUSDT.csv", {"BTCUSDT": closes()}),
    Case("CoinGecko, CSV", rows("snapped_at,price,market_cap,total_volume", lambda d, k: f"{d} 00:00:00 UTC,{AAPL[k][CLOSE]},1e9,{AAPL[k][5]}"), expected=ONE),
    Case("futures with settlements", rows("Date,Open,High,Low,Last,Change,Settle,Volume,Previous Day Open Interest", lambda d, k:
         f"{d},{AAPL[k][OPEN]},{AAPL[k][HIGH]},{AAPL[k][LOW]},{AAPL[k][OPEN]},0.1,{AAPL[k][CLOSE]},{AAPL[k][5]},7"), expected=ONE),
    Case("units in brackets", rows("Date,Open (USD),High (USD),Low (USD),Close (USD),Volume (shares)", lambda d, k: f"{d},{ohlcv(k)}"), expected=ONE),
    Case("tickers in brackets, one of them a currency", rows("Date,Close (AAPL),Close (NOK)", lambda d, k: f"{d},{both(k, (CLOSE,))}"), "f.csv",
         {"AAPL": closes(), "NOK": closes("MSFT")}),
    Case("closes in two currencies", rows("Date,Close (USD),Close (EUR)", lambda d, k: f"{d},{both(k, (CLOSE,))}"), refusal="hold the same field",
         ways={"--layout 'per-ticker:price=Close (USD)'": ONE, "--layout 'per-ticker:price=Close (EUR)'": {"AAPL": closes("MSFT")}}),
    Case("CRSP's new names", rows("PERMNO,DlyCalDt,DlyPrc,DlyRet,DlyVol", lambda d, k: f"14593,{d},{-AAPL[k][CLOSE]},0.01,{AAPL[k][5]}"), "c.csv", {"14593": closes()}),
    Case("OECD", rows("LOCATION,INDICATOR,FREQUENCY,TIME,Value", lambda d, k: f"USA,SHPRICE,D,{d},{AAPL[k][CLOSE]}"), "o.csv", {"USA": closes()}),
    Case("ECB", rows("KEY,FREQ,CURRENCY_DENOM,TIME_PERIOD,OBS_VALUE", lambda d, k: f"EXR.D.USD,D,EUR,{d},{AAPL[k][CLOSE]}"), "e.csv", {"EXR.D.USD": closes()}),
    Case("one row per field", "date,ticker,field,value\n" + "".join(f"{d},AAPL,{f},{v}\n" for k, d in enumerate(DAYS)
         for f, v in (("close", AAPL[k][CLOSE]), ("volume", AAPL[k][5]))), refusal="'field' names fields such as 'close'.*keep the rows of one field"),
    Case("one row per field, melted", "date,variable,value\n" + "".join(f"{d},{f},{v}\n" for k, d in enumerate(DAYS)
         for f, v in (("close", AAPL[k][CLOSE]), ("volume", AAPL[k][5]))), refusal="'variable' names fields such as 'close'"),
    # Tickers that are words
    *(Case(f"sides of a quote as tickers, {form}", quotes(lambda t, f, form=form: form.format(t=t, f=f)), "q.csv",
         refusal="are quotes, and .*--layout fields if these are tickers", ways={
             f"--layout per-ticker:price={form.format(t='BID', f='Close')}": {"q": SIDES["BID"]},
             f"--layout per-ticker:price={form.format(t='ASK', f='Close')}": {"q": SIDES["ASK"]}, "--layout fields": SIDES})
      for form in ("{t}.{f}", "{f}_{t}")),
    Case("BID beside another ticker", rows("Date,AAPL.Close,BID.Close,AAPL.Volume,BID.Volume", lambda d, k: f"{d},{both(k, (CLOSE, VOLUME), by_field=True)}"),
         "q.csv", {"AAPL": closes(), "BID": closes("MSFT")}),
    # Days and times
    Case("times in a column of their own", "Date,Time,Open,Close\n" + intraday(lambda d, t, p: f"{d:%m/%d/%Y},{t},1,{p}\n"),
         refusal="intraday, up to 2 a day.*--to-daily", ways={"--to-daily": ONE}),
    Case("times without a colon", "Date,Time,Open,Close\n" + intraday(lambda d, t, p: f"{d},{t.replace(':', '').lstrip('0')},1,{p}\n"), expected=ONE, options={"to_daily": True}),
    Case("Stooq's hours", "<TICKER>,<PER>,<DATE>,<TIME>,<CLOSE>\n" + intraday(lambda d, t, p: f"AAPL.US,60,{d:%Y%m%d},{t.replace(':', '')}00,{p}\n"),
         "aapl.us.txt", {"AAPL.US": closes()}, options={"to_daily": True}),
    Case("midnights of Berlin in UTC", rows("Date,AAPL", lambda d, k: f"{d - timedelta(days=1)}T23:00:00Z,{AAPL[k][CLOSE]}"), "u.csv", ONE),
    Case("midnights of Hong Kong in UTC", rows("time,close", lambda d, k: f"{utc(d, 1) - 28800},{AAPL[k][CLOSE]}"), expected=ONE),
    Case("closes of New York in UTC", rows("time,close", lambda d, k: f"{d} 21:00:00+00:00,{AAPL[k][CLOSE]}"), expected=ONE),
    Case("Japanese days", rows("日付,終値", lambda d, k: f"{d.year}年{d.month}月{d.day}日,{AAPL[k][CLOSE]}"), expected=ONE),
    Case("Chinese in GB18030", rows("日期,名称,收盘价,成交量", lambda d, k: f"{d},苹果,{AAPL[k][CLOSE]},{AAPL[k][5]}").encode("gb18030"), expected=ONE),
    Case("Japanese in Shift-JIS", rows("日付,終値,出来高", lambda d, k: f"{d},{AAPL[k][CLOSE]},{AAPL[k][5]}").encode("cp932"), expected=ONE),
    Case("days of the week before the days", rows("Date,Close", lambda d, k: f'"{d:%a, %b %d, %Y}",{AAPL[k][CLOSE]}'), expected=ONE),
    Case("Excel's numbers of days", rows("Date,AAPL", lambda d, k: f"{utc(d, 1) // 86400 + 25569},{AAPL[k][CLOSE]}"), "x.csv", ONE),
    Case("quarters", rows("Date,AAPL", lambda d, k: f"{2000 + k // 4}Q{k % 4 + 1},{AAPL[k][CLOSE]}"), "x.csv", ONE, first="2000-03-31"),
    Case("weeks", rows("Date,AAPL", lambda d, k: f"2023-W{k + 1:02d},{AAPL[k][CLOSE]}"), "x.csv", ONE, first="2023-01-06"),
    Case("months as Jan-18", rows("Date,AAPL", lambda d, k: f"{('Jan', 'Feb', 'Mar')[k % 3]}-{k // 3 + 1:02d},{AAPL[k][CLOSE]}"), "x.csv", ONE, first="2001-01-31"),
    Case("Shiller", rows("Date,P,D,E,CPI", lambda d, k: f"{1990 + k // 12}.{shiller(k % 12 + 1)},{AAPL[k][CLOSE]},1,2,3"), "s.csv",
         refusal="'P' may be the price of one security", ways={"--layout per-ticker:price=P": {"s": closes()},
         "--layout wide": {"P": closes(), "D": [1.0] * ROWS, "E": [2.0] * ROWS, "CPI": [3.0] * ROWS}}),
    # Numbers
    Case("dollars of several kinds", rows("Date,AAPL,MSFT", lambda d, k: f"{d},US${AAPL[k][CLOSE]},{MSFT[k][CLOSE]} USD"), "n.csv", TWO),
    Case("lakhs", rows("Date,AAPL", lambda d, k: f'{d},"1,13,{AAPL[k][CLOSE]:06.2f}"'), "n.csv", {"AAPL": [113000 + p for p in closes()]}),
    Case("JSON with decimal commas", json.dumps([{"Datum": f"{d:%d.%m.%Y}", "Schluss": german(b[CLOSE])} for d, b in zip(DAYS, AAPL, strict=True)]),
         "AAPL.json", ONE),
    Case("JSON with numbers beside text", json.dumps([{"date": str(d), "ratio": 14.643, "close": german(p, 0)} for d, p in zip(DAYS, POINTS, strict=True)]),
         "AAPL.json", {"AAPL": [p / 1000 for p in POINTS]}, options={"layout": ":decimal=point"}),
    Case("Kraken", json.dumps({"error": [], "result": {"XXBTZUSD": [[utc(d, 1), *(str(v) for v in AAPL[k][:4]), "1", "2", 3] for k, d in enumerate(DAYS)],
         "last": 5}}), "k.json", {"XXBTZUSD": closes()}),
    Case("Finnhub", json.dumps({"c": closes(), "o": closes(which=OPEN), "s": "ok", "t": [utc(d, 1) for d in DAYS], "v": closes(which=VOLUME)}), "AAPL.json", ONE),
    Case("Yahoo's chart", json.dumps({"chart": {"result": [{"meta": {"symbol": "AAPL"}, "timestamp": [utc(d, 1) + 50000 for d in DAYS],
         "indicators": {"quote": [{"close": closes()}], "adjclose": [{"adjclose": closes(which=ADJ)}]}}]}}), "y.json", {"AAPL": closes(which=ADJ)}),
    Case("Twelve Data", json.dumps({"meta": {"symbol": "AAPL"}, "values": [{"datetime": str(d), "close": str(b[CLOSE])} for d, b in zip(DAYS, AAPL, strict=True)]}),
         "t.json", ONE),
    # Columns that are no prices, each judged by itself
    *(Case(f"{what} beside prices", beside(number), "w.csv", refusal=f"'FOO' {sentence}.*--layout wide", ways=as_prices(number)) for what, number, sentence in (
        ("returns", lambda k: NOISE[k], "holds numbers like returns, and others hold prices"),
        ("gross returns", lambda k: 1 + NOISE[k], "holds numbers like gross returns"),
        ("a volume", lambda k: AAPL[k][VOLUME], "holds numbers that jump like volumes"),
        ("a broken volume", lambda k: AAPL[k][VOLUME] / 7, "holds numbers that jump like volumes"),
        ("flags", lambda k: k % 2, "holds a few whole numbers"),
        ("an interest rate", lambda k: 0.0001, "holds tiny numbers that hardly ever change"))),
    Case("volumes called close", rows("date,close", lambda d, k: f"{d},{AAPL[k][VOLUME]}"), refusal="'AAPL' holds numbers that jump",
         ways={"--layout per-ticker": VOLUMES}),
    Case("volumes called price in a long table", rows("date,ticker,price", lambda d, k: f"{d},AAPL,{AAPL[k][VOLUME]}"), "l.csv",
         refusal="'AAPL' holds numbers that jump like volumes.*drop its rows", ways={"--layout long": VOLUMES}),
    Case("volumes in yfinance's download", "Price,Close\nTicker,AAPL\nDate,\n" + "".join(f"{d},{AAPL[k][VOLUME]}\n" for k, d in enumerate(DAYS)), "d.csv",
         refusal="jump like volumes", ways={"--layout yfinance-download": VOLUMES}),
    Case("gross returns of one ticker of a long table", rows("date,ticker,close", lambda d, k: f"{d},AAPL,{AAPL[k][CLOSE]}\n{d},FOO,{1 + NOISE[k]}"), "l.csv",
         refusal="'FOO' holds numbers like gross returns", ways={"--layout long": {**ONE, "FOO": [1 + each for each in NOISE]}}),
    Case("a day of the week beside tickers", rows("Date,weekday,AAPL,MSFT", lambda d, k: f"{d},{d.weekday()},{both(k, (CLOSE,))}"), "w.csv", TWO),
    Case("Kenneth French's factors", rows(",Mkt-RF,SMB,RF", lambda d, k: f"{d:%Y%m%d},{100 * RETURNS[k]:.2f},{-50 * RETURNS[k]:.2f},0.01"), "f.csv",
         refusal="look like returns in percent", ways={"--returns percent": {name: [100.0, *(100 * np.cumprod([1 + round(s * r, 2) / 100 for r in RETURNS]))]
             if s else [100.0, *(100 * np.cumprod([1.0001] * ROWS))] for name, s in (("Mkt-RF", 100), ("SMB", -50), ("RF", 0))},
             "--layout wide": {name: [round(s * r, 2) if s else 0.01 for r in RETURNS] for name, s in (("Mkt-RF", 100), ("SMB", -50), ("RF", 0))}}),
]  # fmt: skip
