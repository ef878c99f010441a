"""The names that files of prices give to their columns, in the languages of common vendors.

Names are compared without case, accents, spaces and punctuation: `Adj Close`, `adj_close` and `Adj. Close**` are all
`adjclose`, and `Último` is `ultimo`. Earlier names of a table are preferred to later ones.
"""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from portfolio_sdpo.prices.prices import Adjustment

ADJUSTED = (
    "adjclose", "adjustedclose", "adjusted", "adjcp", "closeadj", "closeadjusted", "adjclosingprice", "adjprice",
    "adjustedprice", "adjustedclosingprice", "adjlast", "totalreturnindex",
    "schlusskursbereinigt", "bereinigterschlusskurs", "cierreajustado", "clotureajustee", "fechamentoajustado",
    "chiusuraaggiustata", "totreturnindexgrossdvds", "adjustmentclose", "adj",
    "调整后收盘价", "調整後終値", "終値調整値",
)  # fmt: skip
_ENGLISH_RAW = (
    "close", "closelast", "closeprice", "closingprice", "settle", "last", "lastprice", "price", "pxlast", "prc",
    "prccd", "prccm", "dlyprc", "mthprc", "nav", "priceclose", "pxclose", "closepx", "tradeclose", "exchangerate",
    "fixing", "navps", "navpershare", "netassetvalue", "indexvalue", "indexlevel", "priceindex", "obsvalue", "trdprc1",
    "cfclose", "cflast", "trpriceclose", "clspric", "lastpric", "rate", "px", "prices", "raw", "value",
)  # fmt: skip
_FOREIGN_RAW = (  # German, Spanish, Portuguese, French, Italian, Dutch, Polish, Nordic, Turkish, Russian, Vietnamese
    "schluss", "schlusskurs", "kurs", "zuletzt", "cierre", "ultimo", "ultima", "precio", "fechamento", "preco",
    "cloture", "dernier", "fermeture", "cours", "chiusura", "prezzo", "slot", "slotkoers", "laatste", "koers",
    "zamkniecie", "kurszamkniecia", "ostatnio", "senaste", "stangning", "sidste", "clot", "son", "simdi", "kapanis",
    "цена", "закрытие", "dongcua", "valor", "wert", "valeur", "siste", "zaviraci", "zavirackurz", "zaroar", "κλεισιμο",
    "coursdecloture", "preciocierre", "preciodecierre", "ultimoprecio", "cotizacion", "cotacao", "prezzorif",
    "prezzodiriferimento", "prezzodichiusura", "precodefechamento", "valeurliquidative", "vl", "rucknahmepreis",
    "varde",
)  # fmt: skip
CRSP = ("prc", "dlyprc", "mthprc")
"""Prices that are negative where they are averages of bid and ask."""
RAW = (
    *_ENGLISH_RAW, *_FOREIGN_RAW, "收盘", "收盘价", "收盤", "收盤價", "单位净值", "基準価額", "基準価額円",
    "終値", "종가",
)  # fmt: skip
WORTH = ("value", "valor", "wert", "valeur")
"""Prices where nothing speaks against it; holdings and kinds of stocks (`US Value`) are called so, too."""
UNADJUSTED = ("closeunadj", "unadjustedclose", "unadjclose", "rawclose", "uclose")
"""Closes as they were traded, where `Close` is adjusted for splits."""
PRICE = ADJUSTED + RAW
_FOREIGN_OPEN = (
    "erster", "eroffnung", "eroffnungskurs", "apertura", "abertura", "ouverture", "otwarcie", "kursotwarcia", "openen",
    "oppning", "oppen", "abning", "eroffn", "ouv", "acilis", "откр", "открытие", "mocua", "apning", "oteviraci",
    "preciodeapertura", "coursdouverture", "prezzodiapertura", "nyitoar", "ανοιγμα",
)  # fmt: skip
OPEN = (
    "open", "adjopen", "openprice", "openingprice", "priceopen", "pxopen", "opening", "openprc", "prcod", "opnpric",
    "cfopen", "trpriceopen", *_FOREIGN_OPEN, "开盘", "开盘价", "開盤", "開盤價", "始値", "시가",
)  # fmt: skip
_FOREIGN_HIGH = (
    "hoch", "tageshoch", "hochst", "hochstkurs", "maximo", "maxima", "haut", "plushaut", "massimo", "najwyzszy",
    "kursmax", "hoog", "hoogste", "hogst", "hoj", "yuksek", "макс", "максимум", "caonhat", "υψηλο", "preciomaximo",
)  # fmt: skip
HIGH = (
    "high", "adjhigh", "highprice", "pricehigh", "pxhigh", "dayhigh", "maximum", "max", "askhi", "prchd", "hghpric",
    "maxpric", "high1", "cfhigh", "trpricehigh", *_FOREIGN_HIGH, "最高", "最高价", "最高價", "高値", "高", "고가",
)  # fmt: skip
_FOREIGN_LOW = (
    "tief", "tagestief", "tiefst", "tiefstkurs", "minimo", "minima", "bas", "plusbas", "najnizszy", "kursmin", "laag",
    "laagste", "lagst", "lav", "dusuk", "мин", "минимум", "thapnhat", "χαμηλο", "preciominimo",
)  # fmt: skip
LOW = (
    "low", "adjlow", "lowprice", "pricelow", "pxlow", "daylow", "minimum", "min", "bidlo", "prcld", "lwpric",
    "minpric", "low1", "cflow", "trpricelow", *_FOREIGN_LOW, "最低", "最低价", "最低價", "安値", "低", "저가",
)  # fmt: skip
VOLUME = (
    "volume", "vol", "adjvolume", "volumen", "umsatz", "umsatze", "stuck", "stucke", "wolumen", "obrot", "obroty",
    "volym", "omsatning", "omsetning", "omzet", "aantal", "cantidad", "quantidade", "quantite", "quantita", "scambi",
    "controvalore",
    "turnover", "amount", "qty", "quantity", "tottrdqty", "tottrdval", "pxvolume", "volumeusd", "volumeusdt",
    "volumebtc", "volumeeth", "basevolume", "quotevolume", "quoteassetvolume", "takerbuybaseassetvolume",
    "takerbuyquoteassetvolume", "tradecount", "numberoftrades", "nooftrades", "trades", "count", "shrout", "sharesout",
    "tickqty", "tickvol", "tickvolume", "dlyvol", "sharesoutstanding", "numberofshares", "wol", "hac", "объем",
    "khoiluong", "acvoluns", "cfvolume", "trvolume", "ttltradgvol", "ttltrdqnty", "cshtrd", "finqt", "transactions",
    "volumefrom", "volumeto", "noofshares", "成交股數", "成交金額", "成交筆數", "成交量", "成交额", "成交金额",
    "交易量", "出来高", "거래량", "거래대금",
)  # fmt: skip
RETURN = (
    "ret", "retx", "return", "returns", "dailyreturn", "logreturn", "pctchange", "change", "change%", "changepercent",
    "chg", "chg%", "%chg", "var", "var%", "variation", "variacao", "variazione", "verand", "verand%", "veranderung",
    "zmiana", "zmiana%", "fark%", "изм%", "variation%", "dlyret", "mthret", "涨跌幅", "涨跌额", "変化率%", "등락률",
    "대비", "漲跌價差", "日增长率",
)  # fmt: skip
OTHER = (
    "dividends", "dividend", "stocksplits", "splits", "capitalgains", "repaired", *UNADJUSTED, "exdividend",
    "divcash", "splitratio", "splitfactor", "factor", "adjfactor", "cfacpr", "dividendamount", "splitcoefficient",
    "vwap", "openint", "openinterest", "per", "day", "marketcap", "mktcap", "currency", "ccy", "exchange", "exch",
    "bid", "ask", "bidsize", "asksize", "spread", "weightedprice", "prevclose", "previousclose", "wahrung", "devise",
    "closetime", "ignore", "series", "timeperiod", "numberofemployees", "weekday", "dayofweek", "year", "month",
    "quarter", "week", "weekofyear", "hour", "label", "iid", "dlyprcflg", "ajexdi", "ajexm", "trfd",
    "avgprice", "tradavrgpric", "prvsclsgpric", "oscnpctg", "wap", "cash", "peratio", "pbratio", "pricetobook",
    "pricetoearnings", "dividendyield", "yield", "earnings", "eps", "beta", "sentiment", "sentimentscore", "score",
    "weight", "weights", "position", "signal", "volatility", "drawdown", "shares", "rank", "rating", "strike",
    "inverse", "inverserate", "actual", "predicted", "prediction", "forecast", "id", "row", "rowid", "rownumber",
    "rownum", "no", "nr", "seq", "sequence", "obs", "recordid", "ausgabepreis", "aof",
    "累计净值", "純資産総額", "純資産総額百万円", "振幅", "换手率", "前收盘", "昨收", "均价", "总市值",
    "流通市值", "市盈率",
)  # fmt: skip
NEVER_PRICES = frozenset(VOLUME + RETURN + OTHER)
NOT_PRICES = frozenset(OPEN + HIGH + LOW) | NEVER_PRICES
FIELDS = frozenset(PRICE) | NOT_PRICES
"""What a column of one security can hold."""
TICKER = (
    "ticker", "tic", "symbol", "tickersymbol", "tckrsymb", "stock", "stocksymbol", "instrument", "tscode", "stockcode",
    "code", "security", "asset", "ric", "secid", "permno", "isin", "figi", "cusip", "sedol", "wkn", "pair",
    "currencypair", "country", "fund", "identifier", "actsymbol", "kod", "papier", "股票代码", "location", "refarea",
    "schemecode", "indexname", "serie", "seriesid", "seriescode", "name", "key", "gvkey",
)  # fmt: skip
WEAK_TICKER = ("name", "key")
"""Names of securities only where the column holds text or several numbers."""
_FOREIGN_DATE = ("datum", "fecha", "handelstag", "dato", "tarih", "дата", "ngay")
DATE = (
    "date", "tradedate", "tradingdate", "datetime", "timestamp", "tradingday", "dtyyyymmdd", "datadate", "dt", "time",
    "dates", "unix", "unixtimestamp", "opentime", "unixtime", "epoch", "caldt", "pricedate", "asofdate",
    "observationdate", "windowstart", "snappedat", "timekey", "dlycaldt", "mthcaldt", "effectivedate", "asof",
    "gmttime", "localtime", "rptdt", "traddt", "bizdt", "date1", "tsevent", *_FOREIGN_DATE, "日期",
    "净值日期", "年月日", "交易日期", "日付", "日付け", "날짜", "일자",
)  # fmt: skip
FOREIGN = frozenset((*_FOREIGN_RAW, *_FOREIGN_OPEN, *_FOREIGN_HIGH, *_FOREIGN_LOW, *_FOREIGN_DATE))
"""Names in languages that write decimal commas; Chinese, Japanese and Korean write points."""
WEAK_DATE = ("data", "day", "t", "index", "timeperiod")
"""Names of dates only where the column holds dates: T is a ticker, too."""
TIME = ("time", "hour", "uhrzeit", "zeit", "heure", "hora", "ora", "godzina", "tid", "timeofday", "bartime")
"""The time of day, where a date stands beside it."""
CURRENCY = ("currency", "ccy", "wahrung", "devise", "curcdd")
QUALIFIERS = frozenset((
    "total", "average", "avg", "mean", "typical", "weighted", "median", "middle", "previous", "prev", "prior", "base",
    "quote", "daily", "24h", "bar", "tick", "estimated", "theoretical", "reference", "settlement",
    "previousday", "totaltraded", "index", "takerbuy", "takerbuybase", "takerbuyquote", "adj", "adjusted",
    "deliverable", "offer", "redemption", "repurchase", "sale", "purchase", "subscription", "rif", "riferimento",
    "ufficiale", "oficial", "medio",
))  # fmt: skip
"""What makes another field of a field, and no security: `Typical Price`, `total_volume`."""
CURRENCIES = frozenset((
    "USD", "EUR", "GBP", "GBX", "GBp", "JPY", "CHF", "CAD", "AUD", "NZD", "CNY", "CNH", "HKD", "SGD", "INR", "KRW",
    "TWD", "BRL", "MXN", "ZAR", "SEK", "NOK", "DKK", "PLN", "CZK", "HUF", "TRY", "RUB", "ILS", "NIS", "SAR", "AED",
    "THB", "IDR", "MYR", "PHP", "VND", "USDT",
))  # fmt: skip
"""What stands in brackets behind a field without being a security: `Close (USD)`."""

_NO_SECURITY = frozenset(("date", "datum", "fecha", "time", "timestamp", "de", "di", "du", "do", "of", "d"))
_SHORT = 5
"""A name in capitals of at most so many letters may be a ticker even if it is in one of the tables: LOW, OPEN, BAS."""
SIDES = ("bid", "ask", "mid", "offer", "buy", "sell")
"""Sides of a quote; BID, ASK and MID are tickers, too."""
_PUNCTUATION = re.compile(r"[^\w%]|_")
_NAMELESS = re.compile(r"unnamed\d*(level\d+)?")
_INDEX = re.compile(r"index|indexlevel\d+|level\d+")
_LETTERS = str.maketrans({"ł": "l", "ß": "ss", "ø": "o", "đ": "d", "ı": "i"})
_UNIT = re.compile(r"(?<=\S)\s*[(\[](" + "|".join(sorted(CURRENCIES)) + r"|c|%|TL|US\$|Rs\.?|shares)[)\]]\s*")
_CODES = "|".join(sorted(CURRENCIES))
_UNIT_BEHIND = re.compile(
    rf"(?P<name>.*[^\W_])(?:\s*[(\[](?P<bracket>{_CODES})[)\]]|[ _](?P<word>{_CODES})"
    r"|_(?P<lower>usd|eur|gbp|jpy|chf|usdt)|(?<=[a-z])(?P<camel>Usd|USD|Eur|EUR|Gbp|GBP))"
)
"""A currency behind a name: `Close (USD)`, `AAPL USD`, `price_usd`, `priceUsd`."""
_TUPLE = re.compile(r"\(\s*['\"].*['\"]\s*,\s*['\"].*['\"]\s*\)")
_TOKEN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\dA-Z_]+|\d+|[^\W_]")
_SEPARATORS = "._-:|/,=>·"
_TICKER_FORM = re.compile(r"\^?([A-Z]{1,6}|\d{4,6})([.\-/=][A-Z]{1,4})?")
_BRACKETS = {"(": ")", "[": "]", "'": "'"}
_CLOSING = (")", "]")
_TOOLTIP = re.compile(r"^((?:Adj )?Close)(?:Adjusted c|C)lose price adjusted for .*")
"""Yahoo's pages, when they are copied, have the explanation of a column in its name."""
_ENUMERATION = re.compile(r"^\d[ab]?\. ")


@lru_cache(maxsize=8192)  # asked for many times for each column of a file
def normalise_name(name: str) -> str:
    """The name as these tables write it.

    >>> normalise_name("Adj. Close**"), normalise_name("Último"), normalise_name("Var. %"), normalise_name("Low (USD)")
    ('adjclose', 'ultimo', 'var%', 'low')
    """
    name = _TOOLTIP.sub(r"\1", name)
    if (parts := split_unit(name)) is not None and not may_be_ticker(parts[0]):
        word = normalise_name(parts[0])
        if word in FIELDS:
            return word
    name = _UNIT.sub("", name) if name[-1:] in _CLOSING else name
    lower = _ENUMERATION.sub("", name).lower()  # `4. close`
    if not lower.isascii():
        folded = unicodedata.normalize("NFKD", lower.translate(_LETTERS))
        lower = "".join(letter for letter in folded if not unicodedata.combining(letter))
        lower = unicodedata.normalize("NFC", lower)
    return _PUNCTUATION.sub("", lower)


def split_unit(name: str) -> tuple[str, str] | None:
    """A name and the currency that stands behind it, None where there is none; a pair of currencies is a name.

    >>> split_unit("priceUsd"), split_unit("SAP (EUR)"), split_unit("EUR USD"), split_unit("AAPL")
    (('price', 'USD'), ('SAP', 'EUR'), None, None)
    """
    ends = name[-1:] in _CLOSING or name[-3:].upper() in CURRENCIES or name[-4:].upper() in CURRENCIES
    match = _UNIT_BEHIND.fullmatch(name) if ends else None  # few names end so, and the search is slow
    if match is None or match["name"] in CURRENCIES:
        return None
    code = match["bracket"] or match["word"] or (match["lower"] or match["camel"]).upper()
    return match["name"].removesuffix(" in"), code  # `Kurs in EUR`


def has_no_name(name: str) -> bool:
    """Whether there is no name, or `Unnamed: 0`, which pandas makes of none."""
    return not name.strip() or _NAMELESS.fullmatch(normalise_name(name)) is not None


@lru_cache(maxsize=8192)
def is_index_name(name: str) -> bool:
    """Whether the name is one that pandas or R gives to a column of row numbers, which may be none."""
    return has_no_name(name) or _INDEX.fullmatch(normalise_name(name)) is not None


def find_columns(names: Sequence[str], words: Iterable[str]) -> list[int]:
    """The columns that are called by one of the words, the preferred word first."""
    columns: dict[str, list[int]] = {}
    for column, name in enumerate(names):
        columns.setdefault(normalise_name(name), []).append(column)
    return [column for word in words for column in columns.get(word, ())]


def may_be_ticker(name: str) -> bool:
    """Whether a name of the tables can be a ticker as well: `LOW` can, `Volume` and `VOLUME` cannot."""
    return name == name.upper() and len(name) <= _SHORT and name.isascii()


def looks_like_ticker(name: str) -> bool:
    """Whether an unknown name is written like a ticker: `AAPL`, `^GSPC`, `BRK.B`, `0700.HK`, and not `SMA20`."""
    return _TICKER_FORM.fullmatch(name) is not None


@lru_cache(maxsize=8192)
def is_quote(name: str) -> bool:
    """Whether the name is one side of a quote: `BidClose`, `Ask`, `ask_open`."""
    normalised = normalise_name(name)
    return any(
        normalised == side or (normalised.startswith(side) and normalised.removeprefix(side) in FIELDS)
        or (normalised.endswith(side) and normalised.removesuffix(side) in FIELDS)
        for side in SIDES
    )  # fmt: skip


@lru_cache(maxsize=8192)
def is_field(name: str) -> bool:
    """Whether the name is of something that is known about a security, and cannot be a ticker."""
    if normalise_name(name) in FIELDS or is_quote(name):
        return not may_be_ticker(name)
    if _split_qualifier(name):
        return True
    tokens = [match[0] for match in _TOKEN.finditer(name)]
    if len(tokens) > 1 and any(token.lower() == "date" and not may_be_ticker(token) for token in tokens):
        return True  # `Date Fraction`
    # `Umsatz Stück` is made of two fields, `Settle Date` of a field and of what no security is called.
    return len(tokens) > 1 and _is_made_of_fields(name)


def _is_made_of_fields(name: str) -> bool:
    """Whether every word is a field, or what no security is called: `Cours de`; `Close LOW` may be the close of LOW."""
    if normalise_name(name) in FIELDS or normalise_name(name) in _NO_SECURITY:
        return True
    words = [match[0] for match in _TOKEN.finditer(name)]
    return bool(words) and all(
        (normalise_name(word) in FIELDS or normalise_name(word) in _NO_SECURITY) and not may_be_ticker(word)
        for word in words
    )


@lru_cache(maxsize=8192)
def split_security(name: str) -> tuple[str, str] | None:
    """The security and the field that a name is made of; None where it has no part that is a field.

    >>> split_security("AAPL.Close"), split_security("Adj Close_BRK-B"), split_security("('Close', 'AAPL')")
    (('AAPL', 'Close'), ('BRK-B', 'Adj Close'), ('AAPL', 'Close'))
    >>> split_security("AAPL") is None
    True
    """
    if _TUPLE.fullmatch(name):
        try:
            parts = [str(part) for part in ast.literal_eval(name)]
        except (ValueError, SyntaxError):
            return None
        fields = [part for part in parts if normalise_name(part) in FIELDS]
        if len(parts) == len(fields) == 2:  # ('Close', 'LOW')
            fields = [part for part in fields if not may_be_ticker(part)]
        if len(parts) == 2 and len(fields) == 1:
            return next(part for part in parts if part != fields[0]), fields[0]
        return None
    tokens = list(_TOKEN.finditer(name))
    for size in (4, 3, 2, 1):
        if len(tokens) <= size:
            continue
        for at_end in (True, False):
            run = tokens[-size:] if at_end else tokens[:size]
            field = name[run[0].start() : run[-1].end()]
            if normalise_name(field) not in FIELDS and not is_quote(field):
                continue
            security = _trim(name[: run[0].start()], 1) if at_end else _trim(name[run[-1].end() :], 0)
            if security and (may_be_ticker(security) or not _is_made_of_fields(security)):
                return None if _is_qualifier(security, field) else (security, field)
    return None


def _is_qualifier(word: str, field: str) -> bool:
    """Whether a word makes another field of a field; `BASE.Close` is the close of BASE."""
    return normalise_name(word) in QUALIFIERS and (not may_be_ticker(word) or field == field.upper())


def _split_qualifier(name: str) -> bool:
    """Whether the name is a field with a word before it that makes another field of it: `Typical Price`."""
    tokens = list(_TOKEN.finditer(name))
    for start in tokens[1:]:
        word, field = name[: start.start()], name[start.start() :]
        if normalise_name(field) in FIELDS and _is_qualifier(word.rstrip(_SEPARATORS + " "), field):
            return True
    return False


def find_owner(name: str, securities: Collection[str], separators: str = _SEPARATORS + " ") -> str | None:
    """The security that a name begins or ends with, as `AAPL` in `AAPL_SMA20`; None where there is none.

    >>> find_owner("AAPL_SMA20", {"AAPL"}), find_owner("BRK.B", {"BRK"}, "_")
    ('AAPL', None)
    """
    for place, letter in enumerate(name):
        if letter in separators:
            for part in (name[:place], name[place + 1 :]):
                if part in securities:
                    return part
    return None


def _trim(text: str, separators: int) -> str:
    """A security without what separates it from its field. separators: how many follow it, 0 = any number before it."""
    text = text.strip()
    if separators and text[-1:] in ("(", "["):
        return text[:-1].rstrip()  # `AAPL (Close)`
    if separators:
        arrow = next((mark for mark in ("->", "=>", "__", "::") if text.endswith(mark)), text[-1:])
        text = (
            text.removesuffix(arrow).rstrip() if arrow[-1:] in _SEPARATORS and text != arrow else text
        )  # `.DJI.Close`
    else:
        text = text.lstrip(_SEPARATORS + " ").removeprefix("of ")
    return text[1:-1] if text[:1] in _BRACKETS and text[-1:] == _BRACKETS[text[0]] else text


def adjustment_from_names(column: str, names: Collection[str]) -> Adjustment:
    """What the prices of `column` are adjusted for, as far as the names of all columns show."""
    normalised = {normalise_name(name) for name in names}
    if normalise_name(column) == "adjustmentclose":
        return "splits"  # of the exchange in Tokyo
    if normalise_name(column) in ADJUSTED:
        return "total-return"
    # yfinance gives unadjusted prices with `Adj Close` beside them; qlib's `factor` is what prices were multiplied by.
    adjusts = {"dividends", "stocksplits"} <= normalised or "factor" in normalised
    if normalise_name(column) == "close" and adjusts and normalised.isdisjoint(ADJUSTED):
        return "total-return"
    if normalise_name(column) == "closelast":
        return "splits"  # nasdaq.com restates its history for splits and leaves dividends out
    return "unknown"
