"""Orders: the whole lots to buy and sell so that an account holds target weights.

Weights are wishes; an account has shares and money. Every position becomes a whole number of lots next to its target,
orders below a threshold are left out, and whatever is bought is paid for, fees included, so that cash is never
negative. The same input gives the same orders.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from portfolio_sdpo.errors import OrderError, did_you_mean
from portfolio_sdpo.portfolio.accounting import trade
from portfolio_sdpo.portfolio.limits import GroupLimit, Limits, check_weights
from portfolio_sdpo.portfolio.market import CASH, Array
from portfolio_sdpo.settings import Settings

if TYPE_CHECKING:
    import pandas as pd

Lots = NDArray[np.float64]
"""[N] whole numbers, positive for purchases; as floats, because 1e16 of them do not fit into every integer."""

MOST = 1e13
"""Largest value of an account: beyond it a cent is too small for a float to tell whether an order can be paid for."""
ROUNDING = 1e-9
"""A quotient this close below a whole number of lots is that number: 0.3 / 0.1 is 2.9999999999999996."""


class OrderSettings(Settings):
    """How weights become orders."""

    fee_bps: float = Field(default=0.0, ge=0, lt=10_000)
    """Fee on what is traded, in hundredths of a percent."""
    lot: float = Field(default=1.0, gt=0)
    """Shares that are traded at once; 0.001 where fractions can be traded."""
    threshold: float = Field(default=0.0, ge=0, lt=1)
    """No order below this share of the account's value: such a position stays as it is."""
    max_weight: float | None = Field(default=None, gt=0, le=1)
    """Rounding lifts no position above this share of the account."""
    groups: tuple[GroupLimit, ...] = ()
    """Nor all stocks of a group together above its largest weight."""


@dataclass(frozen=True)
class Account:
    """What is owned: shares by ticker, and money."""

    shares: Mapping[str, float]
    cash: float

    def __post_init__(self) -> None:
        for ticker, count in self.shares.items():
            if not (math.isfinite(count) and count >= 0.0):
                raise OrderError(f"{ticker}: a holding must be a number of shares from 0 on (got {count}).")
        if not (math.isfinite(self.cash) and self.cash >= 0.0):
            raise OrderError(f"{CASH}: the account's money must be a number from 0 on (got {self.cash}).")


@dataclass(frozen=True)
class Order:
    """One purchase or sale."""

    ticker: str
    before: float
    """Shares held before the order."""
    after: float
    """Shares held after it."""
    shares: float
    """Shares bought (positive) or sold (negative)."""
    price: float
    money: float
    """Value of what is bought (positive) or sold (negative), in whole cents."""
    fee: float


@dataclass(frozen=True)
class OrderSheet:
    """The orders that bring an account to its target, and what it holds afterwards."""

    orders: tuple[Order, ...]
    value: float
    """Of the account before the orders."""
    cash_before: float
    cash_after: float
    fees: float
    target: dict[str, float]
    """Weights that were asked for, CASH first."""
    weights: dict[str, float]
    """Weights after the orders, of the value after fees."""
    left_out: tuple[str, ...]
    """Tickers whose position stays as it is because the order would be below the threshold."""

    def to_frame(self) -> pd.DataFrame:
        """One row per order: ticker, from, to, shares, price, money, fee."""
        import pandas as pd

        columns = ["ticker", "from", "to", "shares", "price", "money", "fee"]
        rows = [
            (each.ticker, each.before, each.after, each.shares, each.price, each.money, each.fee)
            for each in self.orders
        ]
        return pd.DataFrame(rows, columns=columns)


def make_orders(
    target: Mapping[str, float],
    account: Account,
    closes: Mapping[str, float],
    settings: OrderSettings | None = None,
) -> OrderSheet:
    """Return the orders after which the account holds the target as closely as whole lots allow.

    Parameters
    ----------
    target : mapping
        Weights over CASH and the tickers, which sum to 1, of the account's value after fees.
    account : Account
        What is owned; its tickers are among those of the target.
    closes : mapping
        The price of one share of whatever is owned or wanted: raw closes, not adjusted ones.
    settings : OrderSettings, optional
        Fee, lot, threshold and cap.

    Notes
    -----
    A position becomes the whole number of lots below its target, or the one above it: all are rounded down, then the
    largest remainders are rounded up as long as the stocks together stay within their target and none passes the
    cap. Orders below the threshold are left out. Where purchases then cost more than there is, since a sale was left
    out, all of them are reduced by the same share; where such a sale keeps a group above its cap, nothing of the group
    is bought.

    Examples
    --------
    >>> sheet = make_orders({"CASH": 0.1, "A": 0.9}, Account({}, 1000.0), {"A": 70.0}, OrderSettings(fee_bps=10))
    >>> [(order.ticker, order.shares, order.money, order.fee) for order in sheet.orders], sheet.cash_after
    ([('A', 12.0, 840.0, 0.84)], 159.16)
    """
    settings = settings or OrderSettings()
    tickers = _check_tickers(target, account)
    weights = check_weights([target.get(CASH, 0.0), *(target[ticker] for ticker in tickers)], (len(tickers) + 1,))
    owned = np.array([float(account.shares.get(ticker, 0.0)) for ticker in tickers])
    prices = _read_prices(tickers, (weights[1:] > 0.0) | (owned > 0.0), closes)
    value = account.cash + float(owned @ prices)
    if value <= 0.0:
        raise OrderError("The account is worth nothing: give the shares or the money that it holds.")
    if round(value, 2) <= 0.0:
        raise OrderError("The account is worth less than a cent: correct the shares or the money that it holds.")
    if not value <= MOST:
        raise OrderError(f"The account is worth more than {MOST:,.0f}: correct the shares or the money that it holds.")
    groups = Limits(groups=settings.groups).find_columns((CASH, *tickers))
    members = tuple((columns - 1, group.max_weight) for columns, group in zip(groups, settings.groups, strict=True))
    desk = _Desk(prices, owned, account.cash, value, settings, members)
    wanted = _to_money(weights, np.concatenate([[account.cash], owned * prices]) / value, value, desk.fee)
    nearest = desk.round(wanted)
    lots = desk.afford(desk.leave_out(nearest))
    money, fees = desk.bill(lots)
    after = np.where(lots == 0.0, owned, np.round(owned + lots * settings.lot, 9))
    cash = desk.cash_after(lots)
    total = cash + float(after @ prices)
    # The fee may take what is left of an account.
    shares = [1.0, *np.zeros(len(tickers))] if total <= 0.0 else [cash / total, *(after * prices / total).tolist()]
    return OrderSheet(
        orders=tuple(
            Order(ticker, *figures)
            for ticker, *figures in zip(
                tickers,
                owned.tolist(),
                after.tolist(),
                np.round(lots * settings.lot, 9).tolist(),
                prices.tolist(),
                money,
                fees,
                strict=True,
            )
            if figures[2]
        ),
        value=round(value, 2),
        cash_before=round(account.cash, 2),
        cash_after=cash,
        fees=round(math.fsum(fees), 2),
        target=dict(zip((CASH, *tickers), weights.tolist(), strict=True)),
        weights=dict(zip((CASH, *tickers), shares, strict=True)),
        left_out=tuple(ticker for i, ticker in enumerate(tickers) if nearest[i] and not lots[i]),
    )


@dataclass(frozen=True)
class _Desk:
    """What can be traded: N stocks at their prices, from what is owned."""

    prices: Array
    owned: Array
    cash: float
    value: float
    settings: OrderSettings
    groups: tuple[tuple[NDArray[np.intp], float], ...] = ()
    """Each group's stocks and their largest weight."""

    @property
    def fee(self) -> float:
        return self.settings.fee_bps / 1e4

    @property
    def unit(self) -> Array:
        """[N] the price of a lot."""
        return self.prices * self.settings.lot

    def bill(self, lots: Lots) -> tuple[list[float], list[float]]:
        """Money and fee of each order, in whole cents."""
        money = np.round(lots * self.unit, 2)
        return money.tolist(), np.round(np.abs(money) * self.fee, 2).tolist()

    def cash_after(self, lots: Lots) -> float:
        money, fees = self.bill(lots)
        return round(self.cash - math.fsum(money) - math.fsum(fees), 2)

    def round(self, wanted: Array) -> Lots:
        """Whole lots next to the orders that lead to `wanted` [N] money in each stock."""
        exact = (wanted - self.owned * self.prices) / self.unit
        lots = np.maximum(np.floor(exact + ROUNDING), self._least)
        remainder = exact - lots
        spare = float(remainder @ self.unit)
        position = self._position(lots)
        room = (self.settings.max_weight or 1.0) * self.value - position
        left = [cap * self.value - float(position[columns].sum()) for columns, cap in self.groups]
        for i in np.argsort(-remainder, kind="stable"):
            price = float(self.unit[i])
            within = [number for number, (columns, _) in enumerate(self.groups) if i in columns]
            fits = price <= min([spare, float(room[i]), *(left[number] for number in within)])
            if remainder[i] > ROUNDING and fits:
                lots[i] += 1.0
                spare -= price
                for number in within:
                    left[number] -= price
        return self.keep_cap(lots)

    def leave_out(self, lots: Lots) -> Lots:
        """Without the orders below the threshold."""
        small = np.abs(lots) * self.unit < self.settings.threshold * self.value
        return np.where(small, 0.0, lots)

    def afford(self, lots: Lots) -> Lots:
        """With purchases that the money suffices for, and the caps of groups whose sales were left out."""
        lots = self.leave_out(self.keep_groups(lots, np.minimum(lots, 0.0)))
        while (missing := -self.cash_after(lots)) > 0.0:
            bought = np.maximum(lots, 0.0)
            cost = float(bought @ self.unit) * (1.0 + self.fee)
            fewer = np.floor(bought * max(1.0 - missing / cost, 0.0))
            if (fewer == bought).all():
                fewer[(bought * self.unit).argmax()] -= 1.0
            lots = self.leave_out(np.where(lots > 0.0, fewer, lots))
        return lots

    def keep_cap(self, lots: Lots) -> Lots:
        """With no position above the cap, of an account that fees have made smaller; an odd lot cannot be sold."""
        cap = self.settings.max_weight
        while cap is not None or self.groups:
            total = self.value - math.fsum(self.bill(lots)[1])
            excess = self._position(lots) - (math.inf if cap is None else cap) * total * (1.0 + ROUNDING)
            fewer = np.maximum(lots - np.ceil(np.maximum(excess, 0.0) / self.unit), self._least)
            fewer = self.keep_groups(fewer, self._least)
            if (fewer == lots).all():
                break
            lots = fewer
        return lots

    def keep_groups(self, lots: Lots, least: Lots) -> Lots:
        """With no group above its cap, as far as lots down to `least` [N] suffice; the largest positions go first."""
        total = self.value - math.fsum(self.bill(lots)[1])
        for columns, cap in self.groups:
            for i in columns[np.argsort(-self._position(lots)[columns], kind="stable")]:
                excess = float(self._position(lots)[columns].sum()) - cap * total * (1.0 + ROUNDING)
                if excess > 0.0:
                    fewer = lots.copy()
                    fewer[i] = max(lots[i] - math.ceil(excess / self.unit[i]), least[i])
                    lots = fewer
        return lots

    @property
    def _least(self) -> Lots:
        """[N] the sale of everything, but for an odd lot."""
        return -np.floor(self.owned / self.settings.lot + ROUNDING)

    def _position(self, lots: Lots) -> Array:
        """[N] the value of each stock after the orders."""
        return (self.owned + lots * self.settings.lot) * self.prices


def _to_money(weights: Array, held: Array, value: float, fee: float) -> Array:
    """[N] money in each stock where `weights` [1 + N] of what the fee leaves are held."""
    return weights[1:] * value * float(trade(held, weights, fee))


def _check_tickers(target: Mapping[str, float], account: Account) -> tuple[str, ...]:
    tickers = tuple(name for name in target if name != CASH)
    for ticker, count in account.shares.items():
        if count and ticker not in tickers:
            raise OrderError(
                f"{ticker}: is held but not among the weights' stocks{did_you_mean(ticker, tickers)}; leave it out of "
                "the holdings if it is not part of this account."
            )
    return tickers


def _read_prices(tickers: tuple[str, ...], needed: NDArray[np.bool_], closes: Mapping[str, float]) -> Array:
    """[N] prices; 1 where there is none and none is needed."""
    prices = np.ones(len(tickers))
    for i, ticker in enumerate(tickers):
        price = float(closes.get(ticker, math.nan))
        if math.isfinite(price) and price > 0.0:
            prices[i] = price
        elif needed[i]:
            raise OrderError(f"{ticker}: there is no price to trade it at; give its last raw close.")
    return prices
