"""Orders: known answers by hand, and what holds for any account."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from portfolio_sdpo.errors import OrderError
from portfolio_sdpo.portfolio.limits import GroupLimit
from portfolio_sdpo.portfolio.orders import Account, OrderSettings, OrderSheet, make_orders

CENT = 0.005 + 1e-9


def trades(sheet: OrderSheet) -> dict[str, float]:
    return {order.ticker: order.shares for order in sheet.orders}


class TestKnownAnswers:
    def test_shares_are_whole_and_the_largest_remainder_is_rounded_up(self):
        # 33.33 each: 3.33, 1.67 and 0.83 shares; B and C are rounded up while stocks stay within 1000.
        target = {"CASH": 0.0, "A": 1 / 3, "B": 1 / 3, "C": 1 / 3}
        sheet = make_orders(target, Account({}, 1000.0), {"A": 100.0, "B": 200.0, "C": 400.0})
        assert trades(sheet) == {"A": 3.0, "B": 1.0, "C": 1.0}
        assert sheet.cash_after == 100.0
        assert sheet.weights == {"CASH": 0.1, "A": 0.3, "B": 0.2, "C": 0.4}

    def test_a_sale_pays_for_a_purchase(self):
        sheet = make_orders({"CASH": 0.0, "A": 0.0, "B": 1.0}, Account({"A": 10}, 0.0), {"A": 100.0, "B": 50.0})
        assert trades(sheet) == {"A": -10.0, "B": 20.0}
        assert [order.money for order in sheet.orders] == [-1000.0, 1000.0]

    def test_the_fee_is_paid_before_the_shares(self):
        sheet = make_orders({"CASH": 0.0, "A": 1.0}, Account({}, 1000.0), {"A": 10.0}, OrderSettings(fee_bps=100))
        assert trades(sheet) == {"A": 99.0}  # 990 + 9.90; a hundredth share would cost 1010
        assert (sheet.fees, sheet.cash_after) == (9.9, 0.1)

    def test_an_account_beyond_what_floats_can_count_in_cents_is_refused(self):
        """Its purchases could be reduced for ever without being paid for."""
        half = {"CASH": 0.0, "A": 0.5, "B": 0.5}
        for account in (Account({}, 1e17), Account({"A": 1e300}, 0.0)):
            with pytest.raises(OrderError, match="worth more than 10,000,000,000,000"):
                make_orders(half, account, {"A": 3.7, "B": 71.3}, OrderSettings(fee_bps=5))

    def test_fractions_of_shares(self):
        sheet = make_orders({"CASH": 0.5, "A": 0.5}, Account({}, 100.0), {"A": 30.0}, OrderSettings(lot=0.1))
        assert trades(sheet) == {"A": 1.6}

    def test_an_odd_lot_is_kept_or_sold_in_whole_lots(self):
        sheet = make_orders({"CASH": 1.0, "A": 0.0}, Account({"A": 10.5}, 0.0), {"A": 10.0})
        assert [(each.before, each.after) for each in sheet.orders] == [(10.5, 0.5)]

    def test_a_small_order_is_left_out_and_named(self):
        account = Account({"A": 49, "B": 51}, 0.0)
        sheet = make_orders(
            {"CASH": 0.0, "A": 0.5, "B": 0.5}, account, {"A": 10.0, "B": 10.0}, OrderSettings(threshold=0.02)
        )
        assert sheet.orders == ()
        assert sheet.left_out == ("A", "B")
        assert sheet.weights == pytest.approx({"CASH": 0.0, "A": 0.49, "B": 0.51})

    def test_purchases_shrink_where_the_sale_that_pays_for_them_is_left_out(self):
        account = Account({"A": 26, "B": 70}, 4.0)
        sheet = make_orders(
            {"CASH": 0.0, "A": 0.25, "B": 0.68, "C": 0.07},
            account,
            {"A": 1.0, "B": 1.0, "C": 1.0},
            OrderSettings(threshold=0.025),
        )
        assert trades(sheet) == {"C": 4.0}
        assert sheet.left_out == ("A", "B")
        assert sheet.cash_after == 0.0

    def test_the_cap_keeps_rounding_down(self):
        target = {"CASH": 0.2, "A": 0.4, "B": 0.4}
        closes = {"A": 70.0, "B": 70.0}  # 5.71 shares each
        assert trades(make_orders(target, Account({}, 1000.0), closes)) == {"A": 6.0, "B": 5.0}
        capped = make_orders(target, Account({}, 1000.0), closes, OrderSettings(max_weight=0.4))
        assert trades(capped) == {"A": 5.0, "B": 5.0}

    def test_a_group_is_not_rounded_above_its_cap(self):
        target = {"CASH": 0.2, "A": 0.4, "B": 0.4}
        closes = {"A": 70.0, "B": 70.0}
        pair = GroupLimit(name="pair", tickers=("A", "B"), max_weight=0.8)
        account, loose = Account({}, 1000.0), OrderSettings(groups=[pair])
        assert trades(make_orders(target, account, closes, loose)) == {"A": 6.0, "B": 5.0}
        tight = OrderSettings(groups=[pair.model_copy(update={"max_weight": 0.75})])
        assert trades(make_orders(target, account, closes, tight)) == {"A": 5.0, "B": 5.0}

    def test_nothing_is_bought_of_a_group_whose_sale_is_left_out(self):
        account, closes = Account({"A": 26, "C": 26}, 48.0), {"A": 1.0, "B": 1.0, "C": 1.0}
        target = {"CASH": 0.5, "A": 0.22, "B": 0.06, "C": 0.22}
        three = GroupLimit(name="three", tickers=("A", "B", "C"), max_weight=0.5)
        assert trades(make_orders(target, account, closes, OrderSettings(threshold=0.05))) == {"B": 6.0}
        sheet = make_orders(target, account, closes, OrderSettings(threshold=0.05, groups=[three]))
        assert sheet.orders == () and sheet.left_out == ("A", "B", "C")

    def test_an_odd_lot_above_the_cap_stays_since_it_cannot_be_sold(self):
        sheet = make_orders(
            {"CASH": 0.9, "A": 0.1}, Account({"A": 0.5}, 1.0), {"A": 10.0}, OrderSettings(max_weight=0.1)
        )
        assert sheet.orders == ()

    def test_the_frame_has_a_row_per_order(self):
        frame = make_orders({"CASH": 0.0, "A": 1.0}, Account({}, 100.0), {"A": 10.0}).to_frame()
        assert frame.to_dict("records") == [
            {"ticker": "A", "from": 0.0, "to": 10.0, "shares": 10.0, "price": 10.0, "money": 100.0, "fee": 0.0}
        ]


class TestRefusals:
    def test_a_stock_that_the_weights_do_not_know(self):
        with pytest.raises(OrderError, match=r"^MSTF: is held but not among the weights' stocks \(did you mean 'MSFT'"):
            make_orders({"CASH": 0.5, "MSFT": 0.5}, Account({"MSTF": 1}, 10.0), {"MSFT": 1.0})

    @pytest.mark.parametrize("closes", [{}, {"A": math.nan}, {"A": 0.0}, {"A": -1.0}])
    def test_no_price(self, closes):
        with pytest.raises(OrderError, match=r"^A: there is no price to trade it at"):
            make_orders({"CASH": 0.5, "A": 0.5}, Account({}, 10.0), closes)

    def test_no_price_is_needed_for_what_is_neither_held_nor_wanted(self):
        assert make_orders({"CASH": 1.0, "A": 0.0}, Account({}, 10.0), {}).orders == ()

    def test_nothing_is_owned(self):
        with pytest.raises(OrderError, match="worth nothing"):
            make_orders({"CASH": 1.0, "A": 0.0}, Account({}, 0.0), {"A": 1.0})

    @pytest.mark.parametrize("shares, cash", [({"A": -1.0}, 0.0), ({"A": math.inf}, 0.0), ({}, -1.0), ({}, math.nan)])
    def test_an_account_without_debts(self, shares, cash):
        with pytest.raises(OrderError, match="from 0 on"):
            Account(shares, cash)


@st.composite
def tasks(
    draw,
    fees=(0.0, 1.0, 5.0, 50.0),
    lots=(1.0, 10.0, 0.001),
    thresholds=(0.0, 0.002, 0.05),
    capped=(False, True),
    grouped=(False, True),
):
    """Any target, account, prices and settings."""
    count = draw(st.integers(1, 8))
    tickers = [f"T{i}" for i in range(count)]
    shares = st.lists(st.integers(0, 1000), min_size=count + 1, max_size=count + 1)
    raw = np.array(draw(shares), dtype=float)
    assume(raw.sum() > 0)
    target = dict(zip(["CASH", *tickers], (raw / raw.sum()).tolist(), strict=True))
    closes = {ticker: draw(st.floats(0.01, 5_000.0).map(lambda x: round(x, 2))) for ticker in tickers}
    lot = draw(st.sampled_from(lots))
    owned = {ticker: draw(st.integers(0, 500)) * max(lot, 1.0) for ticker in tickers}  # no odd lots
    cash = draw(st.floats(0.0, 1e6).map(lambda x: round(x, 2)))
    settings_ = OrderSettings(
        fee_bps=draw(st.sampled_from(fees)),
        lot=lot,
        threshold=draw(st.sampled_from(thresholds)),
        max_weight=(max(target[ticker] for ticker in tickers) or 1.0) if draw(st.sampled_from(capped)) else None,
        groups=draw_groups(draw, tickers, target) if draw(st.sampled_from(grouped)) else (),
    )
    account = Account(owned, cash)
    assume(account.cash + sum(owned[t] * closes[t] for t in tickers) > 0)
    return target, account, closes, settings_


def draw_groups(draw, tickers, target):
    """Two groups, which may overlap, whose caps the target reaches and does not break."""
    members = [tuple(sorted(draw(st.sets(st.sampled_from(tickers), min_size=1)))) for _ in range(2)]
    return [
        GroupLimit(name=f"G{number}", tickers=each, max_weight=min(sum(target[t] for t in each) + 1e-9, 1.0))
        for number, each in enumerate(members)
    ]


class TestProperties:
    @given(tasks())
    def test_cash_is_never_negative_and_every_cent_is_accounted_for(self, task):
        target, account, closes, settings = task
        sheet = make_orders(target, account, closes, settings)
        assert sheet.cash_after >= 0.0
        spent = math.fsum(order.money + order.fee for order in sheet.orders)
        assert sheet.cash_after == pytest.approx(account.cash - spent, abs=CENT)
        for order in sheet.orders:
            assert order.after == pytest.approx(order.before + order.shares, abs=1e-8) and order.after >= 0.0
            assert order.money == pytest.approx(order.shares * order.price, abs=CENT)
            assert order.fee == pytest.approx(abs(order.money) * settings.fee_bps / 1e4, abs=CENT)

    @given(tasks())
    def test_orders_are_whole_lots_and_none_is_below_the_threshold(self, task):
        target, account, closes, settings = task
        sheet = make_orders(target, account, closes, settings)
        for order in sheet.orders:
            lots = order.shares / settings.lot
            assert lots == pytest.approx(round(lots), rel=1e-12, abs=1e-6) and round(lots) != 0
            assert abs(order.shares) * order.price >= settings.threshold * sheet.value * (1 - 1e-9)

    @given(tasks(thresholds=(0.0,)))
    def test_every_position_is_within_a_lot_of_its_target(self, task):
        target, account, closes, settings = task
        sheet = make_orders(target, account, closes, settings)
        after = {**account.shares, **{order.ticker: order.after for order in sheet.orders}}
        short = 0.0
        for ticker, close in closes.items():
            # What the fee takes and the rounding of it to cents are beside the lot.
            slack = 3e-4 + 2.0 * settings.fee_bps / 1e4 * sheet.value
            wanted = target[ticker] * sheet.value
            assert abs(after[ticker] * close - wanted) <= close * settings.lot + slack + 0.02 * len(closes)
            short += wanted - after[ticker] * close
        if settings.max_weight is None and not settings.groups and settings.fee_bps == 0.0:
            assert -0.01 * len(closes) <= short <= max(closes.values()) * settings.lot + 0.01 * len(closes)

    @given(tasks(lots=(1.0, 0.001), thresholds=(0.0,), capped=(True,)))
    def test_no_position_is_above_the_cap(self, task):
        target, account, closes, settings = task
        sheet = make_orders(target, account, closes, settings)
        bound = settings.max_weight + 0.02 * len(closes) / sheet.value
        assert max(weight for name, weight in sheet.weights.items() if name != "CASH") <= bound

    @given(tasks(capped=(False,), grouped=(True,)))
    def test_no_group_is_above_its_cap_where_something_of_it_is_bought(self, task):
        """A sale below the threshold, or an odd lot, may leave it above the cap; nothing is added to it then."""
        target, account, closes, settings = task
        sheet = make_orders(target, account, closes, settings)
        bought = {order.ticker for order in sheet.orders if order.shares > 0}
        for each in settings.groups:
            together = sum(sheet.weights[ticker] for ticker in each.tickers)
            whole = settings.threshold == 0.0 and settings.lot <= 1.0
            if whole or bought & set(each.tickers):
                assert together <= each.max_weight + 0.02 * len(closes) / sheet.value

    @given(tasks())
    def test_the_same_input_gives_the_same_orders_in_whatever_order_it_comes(self, task):
        target, account, closes, settings = task
        again = make_orders(
            dict(target), Account(dict(reversed(account.shares.items())), account.cash), closes, settings
        )
        assert again == make_orders(target, account, closes, settings)

    @given(tasks(fees=(0.0,), thresholds=(0.0,)))
    def test_what_was_just_traded_needs_no_second_round(self, task):
        target, account, closes, settings = task
        sheet = make_orders(target, account, closes, settings)
        after = {**account.shares, **{order.ticker: order.after for order in sheet.orders}}
        reached = make_orders(target, Account(after, sheet.cash_after), closes, settings)
        cents = 0.02 * len(closes)
        assert all(abs(order.shares) * order.price <= settings.lot * order.price + cents for order in reached.orders)


@pytest.mark.parametrize("shares", [100.0, 0.01, 1e-4])
def test_a_fee_that_takes_everything_leaves_no_more_than_there_is(shares: float):
    sheet = make_orders(
        {"CASH": 1.0, "A": 0.0}, Account({"A": shares}, 0.0), {"A": 100.0}, OrderSettings(fee_bps=9999.9, lot=1e-6)
    )
    assert sheet.cash_after >= 0.0 and sum(sheet.weights.values()) == pytest.approx(1.0)
    with pytest.raises(OrderError, match="less than a cent"):
        make_orders({"CASH": 1.0, "A": 0.0}, Account({"A": 1e-5}, 0.0), {"A": 100.0})
