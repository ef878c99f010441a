"""Accounts as people state them: what is read, and one sentence for what cannot be meant."""

from __future__ import annotations

import pytest

from portfolio_sdpo.errors import OrderError
from portfolio_sdpo.portfolio.account import Holding, open_account, read_holdings
from portfolio_sdpo.portfolio.orders import Account

CLOSES = {"A": 50.0, "B": 20.0, "C": float("nan")}


def state(text: str | None, value: float | None = None) -> Account:
    return open_account(() if text is None else read_holdings(text), value, tuple(CLOSES), CLOSES)


@pytest.mark.parametrize(
    ("text", "value", "account"),
    [
        (None, 1000.0, Account({}, 1000.0)),
        ("ticker,shares\nA,10\nCASH,25.5\n", None, Account({"A": 10.0}, 25.5)),
        ("ticker,shares\nA,10\n", None, Account({"A": 10.0}, 0.0)),
        ("ticker,money\nB,50\nCASH,1\n", None, Account({"B": 2.5}, 1.0)),
        ("\ufeffMoney , TICKER\r\n 100 , A \r\n\r\n", None, Account({"A": 2.0}, 0.0)),
        ("ticker,shares\nA,10\nB,1\n", 1000.0, Account({"A": 10.0, "B": 1.0}, 480.0)),
        ("ticker,shares\nA,10\nCASH,500\n", 1000.0, Account({"A": 10.0}, 500.0)),
        ("ticker,shares\nA,20\n", 1000.0, Account({"A": 20.0}, 0.0)),
        ("ticker,shares\nC,0\n", 10.0, Account({"C": 0.0}, 10.0)),
    ],
)
def test_what_is_stated_is_the_account(text: str | None, value: float | None, account: Account):
    assert state(text, value) == account


@pytest.mark.parametrize(
    ("text", "value", "message"),
    [
        (None, None, "There is no account"),
        (None, 0.0, "must be a number above 0"),
        (None, float("nan"), "must be a number above 0"),
        ("", None, "have the columns none"),
        ("ticker,price\nA,1\n", None, "have the columns ticker, price"),
        ("ticker,shares,money\nA,1,2\n", None, "one of `shares` or `money`"),
        ("ticker,shares\nA,1\nB\n", None, "row 2 has 1 cells and needs 2"),
        ("ticker,shares\nA,1\nB,ten\n", None, r"row 2 \(B\): 'ten' is not a number"),
        ("ticker,shares\nA,-1\n", None, r"row 1 \(A\): must be a number from 0 on \(got -1\)"),
        ("ticker,shares\nA,nan\n", None, r"row 1 \(A\): must be a number from 0 on"),
        ("ticker,money\nCASH,-1\n", None, r"row 1 \(CASH\): must be a number from 0 on"),
        ("ticker,shares\nA,1\nA,2\n", None, r"row 2 \(A\): is listed twice"),
        ("ticker,shares\nCASH,1\nCASH,2\n", None, r"row 2 \(CASH\): is listed twice"),
        ("ticker,shares\na,1\n", None, r"row 1 \(a\): is not a stock of the champion \(did you mean 'A'\?\)"),
        ("ticker,money\nC,1\n", None, "C: there is no price of it"),
        ("ticker,shares\nA,20.01\n", 1000.0, r"worth 1,000.50, more than the account's 1,000.00"),
        ("ticker,shares\nA,10\nCASH,499\n", 1000.0, r"leaves 500.00 in cash .* the row CASH says 499.00"),
        ('ticker,shares\n"A,1\n', None, "are not CSV"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(text: str | None, value: float | None, message: str):
    with pytest.raises(OrderError, match=message) as refused:
        state(text, value)
    assert str(refused.value).endswith(".") and "\n" not in str(refused.value)


@pytest.mark.parametrize("holding", [Holding("A"), Holding("A", 1.0, 2.0), Holding("CASH", shares=1.0)])
def test_a_holding_is_stated_in_one_unit(holding: Holding):
    with pytest.raises(OrderError, match="give either shares or money"):
        open_account([holding], None, tuple(CLOSES), CLOSES)
