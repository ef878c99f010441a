"""Fees, drift, delistings and limits: by hand, and conserved under any trade."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.accounting import (
    check_fee,
    hold,
    hold_tensors,
    rebalance,
    rebalance_tensors,
    trade,
    turnover,
)
from portfolio_sdpo.portfolio.limits import Limits

CASH, A, B = np.eye(3)
FEES = st.one_of(st.just(0.0), st.floats(1e-6, 0.05), st.floats(0.05, 0.99))


def simplex(rows=4, assets=4):
    """[rows, assets] weights, often with zeros and with equal ones."""
    parts = hnp.arrays(np.float64, (rows, assets), elements=st.sampled_from([0.0, 0.0, 1.0, 2.0]) | st.floats(0, 1))
    return parts.filter(lambda x: (x.sum(-1) > 1e-3).all()).map(lambda x: x / x.sum(-1, keepdims=True))


def bisected(held, target, fee):
    """The root by a method that cannot go wrong."""
    low, high = 0.0, 1.0
    for _ in range(55):
        middle = (low + high) / 2
        if middle + fee * np.abs(middle * target[1:] - held[1:]).sum() > 1:
            high = middle
        else:
            low = middle
    return low


def test_buying_everything_for_1000_dollars_leaves_990_10():
    assert 1000 * trade(CASH, A, 0.01) == pytest.approx(1000 / 1.01)
    assert round(1000 * float(trade(CASH, A, 0.01)), 2) == 990.10


def test_selling_everything_for_cash_leaves_990():
    assert 1000 * trade(A, CASH, 0.01) == pytest.approx(990)


def test_moving_everything_from_one_stock_to_the_other():
    """Sell for $1,000, get $990, buy for 990 / 1.01; $1,980.198 were traded and 1 % of them paid."""
    kept = trade(A, B, 0.01)
    assert 1000 * kept == pytest.approx(990 / 1.01)
    assert turnover(A, B, kept) == pytest.approx(1 + 0.99 / 1.01)


def test_moving_half():
    """$1,000 in A; sell s, buy b so that both hold the same: 1000 − s = b and 0.99 s = 1.01 b, so s = 505, b = 495."""
    kept = trade(A, (A + B) / 2, 0.01)
    assert 1000 * kept == pytest.approx(990)
    assert 1000 * turnover(A, (A + B) / 2, kept) == pytest.approx(505 + 495)


def test_half_into_stocks():
    """$1,000 in cash, half of what is left in A: x + 0.01 x + x = 1000."""
    assert 1000 * trade(CASH, (CASH + A) / 2, 0.01) == pytest.approx(2 * 1000 / 2.01)


def test_no_trade_costs_nothing():
    held = np.array([0.2, 0.3, 0.5])
    assert trade(held, held, 0.01) == 1.0
    assert turnover(held, held, trade(held, held, 0.01)) == 0.0
    assert trade(A, B, 0.0) == 1.0 and turnover(A, B, trade(A, B, 0.0)) == 2.0


def test_a_purchase_that_the_fee_turns_into_a_sale():
    """A's weight rises by so little that, with wealth shrunk by the fee, some of A must be sold."""
    held, target = np.array([0.0, 0.5, 0.5, 0.0]), np.array([0.0, 0.501, 0.0, 0.499])
    kept = trade(held, target, 0.01)
    assert target[1] > held[1] and kept * target[1] < held[1]
    assert kept == pytest.approx(bisected(held, target, 0.01), abs=1e-15)


@settings(max_examples=50, deadline=None)
@given(simplex(), simplex(), FEES)
def test_wealth_is_conserved_under_any_trade(held, target, fee):
    kept, traded = rebalance(held, target, fee)
    np.testing.assert_allclose(kept, 1 - fee * traded, rtol=0, atol=1e-14)
    assert (kept > 0).all() and (kept <= 1).all() and (traded >= 0).all()
    np.testing.assert_allclose(traded, turnover(held, target, kept), rtol=0, atol=1e-14)
    # Each asset by itself: what is in it afterwards is what was in it, plus purchases, less sales; cash pays for all.
    bought = kept[:, None] * target[:, 1:] - held[:, 1:]
    cash = held[:, 0] - bought.sum(-1) - fee * np.abs(bought).sum(-1)
    np.testing.assert_allclose(kept * target[:, 0], cash, rtol=0, atol=1e-14)
    for row in range(len(held)):
        assert kept[row] == pytest.approx(bisected(held[row], target[row], fee), abs=1e-14)
        assert rebalance(held[row], target[row], fee) == (kept[row], traded[row])  # one row is one row of a batch


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1e-4, 0.01, 0.5, 0.99]))
def test_leading_dimensions_and_many_assets(seed, fee):
    held, target = np.random.default_rng(seed).dirichlet(np.ones(60), (2, 5, 3))[:2]
    kept, traded = rebalance(held, target, fee)
    assert kept.shape == (5, 3)
    np.testing.assert_allclose(kept, 1 - fee * traded, rtol=0, atol=1e-13)
    assert trade(held[0, 0], target, fee)[0, 0] == kept[0, 0]  # and they broadcast


def test_a_day_by_hand():
    growth, drifted = hold(np.array([0.2, 0.5, 0.3]), np.array([1.01, 1.2, 0.5]))
    assert growth == pytest.approx(0.952)
    np.testing.assert_allclose(drifted, np.array([0.202, 0.6, 0.15]) / 0.952)


def test_a_delisted_stock_is_paid_out_in_cash_without_a_fee():
    growth, drifted = hold(np.array([0.2, 0.5, 0.3]), np.array([1.0, 1.0, 1.5]), np.array([True, False, True]))
    assert growth == pytest.approx(1.15)
    np.testing.assert_allclose(drifted, np.array([0.7, 0.0, 0.45]) / 1.15)


def test_a_total_loss_leaves_nothing_and_no_nan():
    growth, drifted = hold(np.stack([A, CASH, B]), np.array([1.0, 0.0, 2.0]))
    np.testing.assert_array_equal(growth, [0, 1, 2])
    np.testing.assert_array_equal(drifted, np.stack([CASH, CASH, B]))
    growth, drifted = hold(A, np.array([1.0, 0.0, 2.0]))
    assert growth == 0
    np.testing.assert_array_equal(drifted, CASH)


@settings(max_examples=30, deadline=None)
@given(simplex(), st.integers(0, 2**32))
def test_a_day_conserves_value(weights, seed):
    rng = np.random.default_rng(seed)
    gross_returns, listed = rng.uniform(0.01, 3, weights.shape), rng.random(weights.shape) < 0.7
    listed[:, 0] = True
    before = weights.copy()
    growth, drifted = hold(weights, gross_returns, listed)
    np.testing.assert_array_equal(weights, before)
    np.testing.assert_allclose(growth, (weights * gross_returns).sum(-1))
    np.testing.assert_allclose(drifted.sum(-1), 1)
    assert (drifted[~listed] == 0).all()
    kept = listed[:, 1:]
    np.testing.assert_allclose(
        (growth[:, None] * drifted)[:, 1:][kept], (weights * gross_returns)[:, 1:][kept], atol=1e-15
    )


@pytest.mark.parametrize("fee", [-0.01, 1.0, np.nan])
def test_fees_out_of_range(fee):
    with pytest.raises(SettingsError, match="fee: must be at least 0 and below 1"):
        check_fee(fee)
    with pytest.raises(SettingsError, match="fee_bps: must be at least 0 and below 10000"):
        check_fee(fee * 1e4, "fee_bps", 1e4)


# Limits.


def test_unlisted_weight_and_weight_above_the_cap_go_to_cash():
    target = np.array([0.1, 0.6, 0.3])
    np.testing.assert_allclose(Limits().apply(target, CASH, np.array([True, False, True])), [0.7, 0, 0.3])
    np.testing.assert_allclose(Limits(max_weight=0.25).apply(target, CASH), [0.5, 0.25, 0.25])
    np.testing.assert_array_equal(Limits(max_weight=0.25).apply(CASH, A), CASH)  # cash has no cap
    np.testing.assert_array_equal(Limits().apply(target, CASH), target)


def test_a_large_trade_is_carried_out_in_part():
    limits = Limits(max_turnover=0.5)
    np.testing.assert_allclose(limits.apply(A, CASH), [0.5, 0.5, 0])
    np.testing.assert_allclose(limits.apply(B, A), [0, 0.75, 0.25])
    near = np.array([0.8, 0.1, 0.1])
    np.testing.assert_array_equal(limits.apply(near, CASH), near)
    np.testing.assert_allclose(Limits(max_turnover=0.0).apply(B, A, fee=0.01), A)


def test_the_turnover_limit_wins_over_the_cap():
    """The cap asks for 80 % cash and 20 % B, which trades 1.2; a twelfth of that is allowed."""
    target = Limits(max_weight=0.2, max_turnover=0.1).apply(B, A)
    np.testing.assert_allclose(target, [0.8 / 12, 11 / 12, 0.2 / 12])


@settings(max_examples=40, deadline=None)
@given(
    simplex(),
    simplex(),
    FEES,
    st.none() | st.floats(0.01, 1),
    st.none() | st.floats(0, 2),
    hnp.arrays(np.bool_, (4, 4)),
)
def test_whatever_is_asked_for_what_is_traded_is_within_the_limits(held, target, fee, cap, bound, listed):
    listed[:, 0] = True
    held = Limits().apply(held, held, listed)
    limits = Limits(max_weight=cap, max_turnover=bound)
    allowed = limits.apply(target, held, listed, fee)
    assert (allowed >= -1e-15).all() and (allowed[~listed] == 0).all()
    np.testing.assert_allclose(allowed.sum(-1), 1, atol=1e-14)
    executed, kept, traded = limits.execute(target, held, listed, fee)
    np.testing.assert_array_equal(executed, allowed)
    np.testing.assert_allclose(kept, trade(held, allowed, fee), atol=1e-13)
    np.testing.assert_allclose(traded, turnover(held, allowed, kept), atol=1e-13)
    if bound is not None:
        assert (turnover(held, allowed, trade(held, allowed, fee)) <= bound + 1e-12).all()
    elif cap is not None:
        assert (allowed[:, 1:] <= cap).all()
    for row in range(len(held)):
        np.testing.assert_array_equal(limits.apply(target[row], held[row], listed[row], fee), allowed[row])


@pytest.mark.parametrize("field", [{"max_weight": 0.0}, {"max_weight": 1.1}, {"max_turnover": -0.1}])
def test_limits_out_of_range(field):
    with pytest.raises(SettingsError, match=next(iter(field))):
        Limits(**field)


@settings(deadline=None)
@given(simplex(), simplex(), st.just(0.0) | st.floats(1e-6, 0.02))
def test_a_trade_in_torch_is_the_trade_in_numpy(held, target, fee):
    kept, traded = rebalance_tensors(torch.tensor(held), torch.tensor(target), fee)
    expected_kept, expected_traded = rebalance(held, target, fee)
    np.testing.assert_allclose(kept.numpy(), expected_kept, rtol=1e-12)
    np.testing.assert_allclose(traded.numpy(), expected_traded, rtol=1e-9, atol=1e-12)
    # One round, which training takes gradients through, is exact up to the square of the fee.
    roughly, _ = rebalance_tensors(torch.tensor(held), torch.tensor(target), fee, rounds=1)
    np.testing.assert_allclose(roughly.numpy(), expected_kept, atol=2.01 * fee**2 + 1e-12)


@settings(deadline=None)
@given(simplex(), st.integers(0, 2**16))
def test_a_session_in_torch_is_the_session_in_numpy(weights, seed):
    rng = np.random.default_rng(seed)
    gross_returns = rng.uniform(0.2, 3.0, weights.shape)
    listed = rng.random(weights.shape) < 0.7
    listed[..., 0] = True
    growth, drifted = hold_tensors(torch.tensor(weights), torch.tensor(gross_returns), torch.tensor(listed))
    expected_growth, expected_drifted = hold(weights, gross_returns, listed)
    np.testing.assert_allclose(growth.numpy(), expected_growth, rtol=1e-12)
    np.testing.assert_allclose(drifted.numpy(), expected_drifted, rtol=1e-12, atol=1e-15)


def test_gradients_pass_through_a_trade_and_a_session():
    held, logits = torch.tensor([0.2, 0.5, 0.3]).double(), torch.tensor([0.1, -0.3, 0.4]).double().requires_grad_()
    returns, listed = torch.tensor([1.0, 1.1, 0.8]).double(), torch.tensor([True, True, False])

    def wealth(logits):
        target = torch.softmax(logits, -1)
        growth, drifted = hold_tensors(target, returns, listed)
        return rebalance_tensors(held, target, 0.01)[0] * growth * (1 + drifted[1])

    assert torch.autograd.gradcheck(wealth, (logits,))


def test_in_torch_too_a_total_loss_leaves_no_nan():
    growth, drifted = hold_tensors(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]), torch.tensor([True, True]))
    assert growth == 0 and torch.isfinite(drifted).all()
