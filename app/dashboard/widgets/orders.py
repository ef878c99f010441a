"""Orders for an account: what it holds goes in, a table and a CSV of what it trades come out."""

from __future__ import annotations

from html import escape

import streamlit as st

from portfolio_sdpo.common.numbers import general, number
from portfolio_sdpo.errors import OrderError
from portfolio_sdpo.portfolio.account import read_holdings
from portfolio_sdpo.report.formats import table
from portfolio_sdpo.serving import (
    AnswerSettings,
    ChampionDecisions,
    ChampionState,
    OrderRequest,
    Orders,
    Refusal,
    order_champion,
)

from .address import read_number, write_number
from .style import show_html


def show_orders(
    decisions: ChampionDecisions, state: ChampionState, settings: AnswerSettings, explained: str = ""
) -> None:
    """The account's inputs, and the orders for it or why there are none; what was `explained` is not said again."""
    st.subheader("Orders")
    left, right = st.columns(2, gap="large")
    with left:
        file = st.file_uploader(
            "Holdings, CSV",
            type="csv",
            max_upload_size=1,
            help="A column ticker and one of shares or money; the row CASH is money in cash.",
            key="holdings",
        )
    with right:
        account = st.number_input(
            "Account value",
            min_value=0.01,
            value=read_number("account", 0.01, 1e15),
            help="What is not in stocks is cash.",
            key="account",
        )
        threshold = read_number("threshold", 0.0, 99.0) or 0.0
        share = st.number_input("Smallest order, % of the account", 0.0, 99.0, threshold, step=0.1, key="threshold")
        lots = read_number("lot", 0.000001, 1_000_000.0) or 1.0
        lot = st.number_input("Lot, shares", 0.000001, 1_000_000.0, lots, format="%g", key="lot")
    for name, value, usual in (("account", account, None), ("threshold", share, 0.0), ("lot", lot, 1.0)):
        write_number(name, value, usual)
    if file is None and account is None:
        st.caption("Upload what you hold, or enter the value of an account in cash, to see what to trade.")
        return
    try:
        holdings = [] if file is None else list(read_holdings(file.getvalue().decode("utf-8-sig")))
        request = OrderRequest.model_construct(account=account, holdings=holdings, threshold=share / 100, lot=lot)
        with st.spinner("The champion decides from what the account holds."):
            found = order_champion(decisions, state, settings, request)
    except UnicodeDecodeError:
        st.error("The holdings are not text in UTF-8: save them as CSV in UTF-8.", icon=":material/error:")
    except OrderError as error:
        st.error(str(error), icon=":material/error:")
    else:
        _show(found, explained)


def _show(found: Orders | Refusal, explained: str) -> None:
    if isinstance(found, Refusal):
        st.error(f"There are no orders. {found.detail}", icon=":material/block:")
        return
    for each in found.remarks:
        st.warning(each, icon=":material/warning:")
    if found.explanation != explained:
        st.markdown(found.explanation)
    if found.orders:
        show_html(_render_table(found))
    else:
        st.caption("No orders: the account is as close to the weights as whole lots and the threshold allow.")
    if found.left_out:
        st.caption(f"Below the threshold and left as they are: {', '.join(found.left_out)}.")
    st.caption(
        f"Account {number(found.value)}; cash {number(found.cash_before)} → {number(found.cash_after)}; "
        f"fees {number(found.fees)}."
    )
    st.download_button(
        "Orders, CSV",
        found.to_csv(),
        file_name=f"orders-{found.as_of}.csv",
        mime="text/csv",
        key="download-orders",
        on_click="ignore",
        icon=":material/download:",
    )


def _render_table(found: Orders) -> str:
    rows = [
        f"<tr data-order='{escape(each.ticker)}'><th scope='row'>{escape(each.ticker)}</th>"
        f"<td>{general(each.before, 9)}</td><td>{general(each.after, 9)}</td>"
        f"<td>{general(each.shares, 9, sign=True)}</td>"
        f"<td>{number(each.price)}</td>"
        f"<td><data value='{each.money!r}' data-name='money'>{number(each.money)}</data></td>"
        f"<td><data value='{each.fee!r}' data-name='fee'>{number(each.fee)}</data></td></tr>"
        for each in found.orders
    ]
    return table(escape(found.trade), ["Ticker", "From", "To", "Shares", "Price", "Money", "Fee"], rows)
