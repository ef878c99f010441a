"""Accounts as people state them: a table of holdings in shares or money, the value of the account, or both."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from portfolio_sdpo.errors import OrderError, did_you_mean
from portfolio_sdpo.portfolio.market import CASH
from portfolio_sdpo.portfolio.orders import Account

TICKER, SHARES, MONEY = "ticker", "shares", "money"
DECIMALS = 9
"""Digits of shares that are computed from money, as fine as orders are."""
CENT = 0.01


@dataclass(frozen=True)
class Holding:
    """One position, or the money in cash where the ticker is CASH; exactly one of shares and money is given."""

    ticker: str
    shares: float | None = None
    money: float | None = None


def read_holdings(text: str) -> tuple[Holding, ...]:
    """The rows of a CSV with a column `ticker` and one of `shares` or `money`; the row CASH is money in cash.

    >>> read_holdings("ticker,shares\\nAAPL,10\\nCASH,250.5\\n")
    (Holding(ticker='AAPL', shares=10.0, money=None), Holding(ticker='CASH', shares=None, money=250.5))
    """
    try:
        rows = [row for row in csv.reader(io.StringIO(text.removeprefix("\ufeff")), strict=True) if any(row)]
    except csv.Error as error:
        raise OrderError(f"The holdings are not CSV ({error}): write rows such as `AAPL,10`.") from None
    header = [name.strip().lower() for name in rows[0]] if rows else []
    if sorted(header) not in (sorted((TICKER, SHARES)), sorted((TICKER, MONEY))):
        raise OrderError(
            f"The holdings have the columns {', '.join(header)[:100] or 'none'}: they need `{TICKER}` and one of "
            f"`{SHARES}` or `{MONEY}`."
        )
    at, unit = header.index(TICKER), header[1 - header.index(TICKER)]
    holdings = []
    for number, row in enumerate(rows[1:], start=1):
        if len(row) != len(header):
            raise OrderError(f"The holdings' row {number} has {len(row)} cells and needs {len(header)}: correct it.")
        ticker, cell = row[at].strip(), row[1 - at].strip()
        try:
            amount = float(cell)
        except ValueError:
            raise OrderError(
                f"The holdings' row {number} ({ticker[:40]}): {cell[:40]!r} is not a number; write it as 1234.56."
            ) from None
        holdings.append(_make_holding(ticker, unit, amount))
    return tuple(holdings)


def open_account(
    holdings: Sequence[Holding], value: float | None, tickers: Sequence[str], closes: Mapping[str, float]
) -> Account:
    """The account that is stated by holdings, by its value, or by both; then cash is the value without the stocks.

    tickers: the stocks that may be held. closes: prices of shares, by which money becomes shares and shares money.

    >>> open_account([Holding("AAPL", shares=10.0)], 5_000.0, ["AAPL"], {"AAPL": 120.0})
    Account(shares={'AAPL': 10.0}, cash=3800.0)
    """
    if value is not None and not (math.isfinite(value) and value > 0.0):
        raise OrderError(f"The account's value must be a number above 0 (got {value:g}).")
    if not holdings and value is None:
        raise OrderError("There is no account: give its value, or its holdings.")
    shares: dict[str, float] = {}
    cash: float | None = None
    for number, holding in enumerate(holdings, start=1):
        where = f"The holdings' row {number} ({holding.ticker[:40]})"
        _check(where, holding, shares, tickers, cash is not None)
        if holding.ticker == CASH:
            cash = holding.money
        elif holding.shares is not None:
            shares[holding.ticker] = holding.shares
        else:
            shares[holding.ticker] = _count_shares(holding, closes)
    if value is None:
        return Account(shares, cash or 0.0)
    stocks = math.fsum(count * _find_price(ticker, closes) for ticker, count in shares.items() if count)
    rest = round(value - stocks, 2)
    if rest < 0.0:
        raise OrderError(
            f"The stocks are worth {stocks:,.2f}, more than the account's {value:,.2f}: correct the value or the "
            "holdings."
        )
    if cash is not None and abs(cash - rest) >= CENT:
        raise OrderError(
            f"The account's {value:,.2f} leaves {rest:,.2f} in cash beside the stocks, and the row {CASH} says "
            f"{cash:,.2f}: leave out one of both."
        )
    return Account(shares, rest)


def _make_holding(ticker: str, unit: str, amount: float) -> Holding:
    if unit == MONEY or ticker == CASH:
        return Holding(ticker, money=amount)
    return Holding(ticker, shares=amount)


def _check(
    where: str, holding: Holding, before: Mapping[str, float], tickers: Sequence[str], cash_is_known: bool
) -> None:
    if (holding.shares is None) == (holding.money is None) or (holding.ticker == CASH and holding.money is None):
        raise OrderError(f"{where}: give either shares or money, of {CASH} money.")
    amount = holding.money if holding.shares is None else holding.shares
    assert amount is not None
    if not math.isfinite(amount) or amount < 0.0:
        raise OrderError(f"{where}: must be a number from 0 on (got {amount:g}); short positions are not supported.")
    if holding.ticker in before or (holding.ticker == CASH and cash_is_known):
        raise OrderError(f"{where}: is listed twice; join both rows.")
    if holding.ticker != CASH and holding.ticker not in tickers:
        raise OrderError(
            f"{where}: is not a stock of the champion{did_you_mean(holding.ticker, tickers)}; leave it out if it is "
            "not part of this account."
        )


def _count_shares(holding: Holding, closes: Mapping[str, float]) -> float:
    assert holding.money is not None
    return round(holding.money / _find_price(holding.ticker, closes), DECIMALS) if holding.money else 0.0


def _find_price(ticker: str, closes: Mapping[str, float]) -> float:
    price = closes.get(ticker, math.nan)
    if not (math.isfinite(price) and price > 0.0):
        raise OrderError(f"{ticker}: there is no price of it, so its value is not known; leave it out.")
    return price
