"""Caps on stocks and groups: what they leave, and that they hold together with the CVaR limit."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portfolio_sdpo.common.numbers import share
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.cvar_limit import CvarLimit
from portfolio_sdpo.portfolio.limits import GroupLimit, Limits
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.shield import shield, shield_within

ASSETS = ("CASH", "A", "B", "C", "D")


def group(name, tickers, max_weight):
    return GroupLimit(name=name, tickers=tuple(tickers), max_weight=max_weight)


@st.composite
def weights(draw, shape=(5,)):
    parts = np.array(draw(st.lists(st.integers(0, 50), min_size=5, max_size=5)), dtype=float)
    parts[0] += parts.sum() == 0
    return parts / parts.sum()


@st.composite
def limits(draw):
    """Caps that overlap, contradict nothing, and may bind together."""
    share = st.floats(0.01, 1.0)
    groups = [
        group(f"g{number}", sorted(draw(st.sets(st.sampled_from("ABCD"), min_size=1))), draw(share))
        for number in range(draw(st.integers(0, 3)))
    ]
    return Limits(max_weight=draw(st.none() | share), groups=groups)


def within(found, caps):
    """Every cap holds exactly, not up to a tolerance."""
    columns = dict(zip(ASSETS, range(5), strict=True))
    stocks = caps.max_weight is None or (found[1:] <= caps.max_weight).all()
    return stocks and all(
        np.add.reduce(found[[columns[ticker] for ticker in each.tickers]]) <= each.max_weight for each in caps.groups
    )


@given(weights(), limits())
def test_caps_hold_exactly_and_twice_is_once(target, caps):
    found = caps.cap(target.copy(), assets=ASSETS)
    assert within(found, caps)
    assert (found[1:] <= target[1:]).all() and found.sum() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_array_equal(caps.cap(found, assets=ASSETS), found)
    if within(target, caps):
        np.testing.assert_array_equal(found, target)


@given(weights(), weights(), limits())
def test_rows_at_once_are_rows_one_by_one(one, other, caps):
    both = caps.cap(np.stack([one, other]), assets=ASSETS)
    np.testing.assert_array_equal(both, [caps.cap(one, assets=ASSETS), caps.cap(other, assets=ASSETS)])


def test_the_argument_is_left_alone():
    target = np.array([0.0, 0.5, 0.5, 0.0, 0.0])
    Limits(groups=[group("g", "AB", 0.1)]).cap(target, assets=ASSETS)
    assert target.tolist() == [0.0, 0.5, 0.5, 0.0, 0.0]


def test_both_of_two_sets_of_limits_hold():
    ours = Limits(max_weight=0.5, groups=[group("g", "AB", 0.4)])
    theirs = Limits(max_turnover=0.3, groups=[group("g", "A", 0.1), group("h", "C", 0.2)])
    both = ours.tighten(theirs)
    assert (both.max_weight, both.max_turnover) == (0.5, 0.3)
    assert [each.name for each in both.groups] == ["g", "g (2)", "h"]
    assert ours.tighten(ours) == ours and Limits().tighten(ours) == ours


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([group("tech", ["A", "Z"], 0.5)], r"groups: Z of the group tech is not among the prices' 4 stocks"),
        ([group("tech", ["CASH"], 0.5)], r"groups: CASH of the group tech is not among"),
    ],
)
def test_a_ticker_that_is_not_there_is_refused(groups, message):
    with pytest.raises(SettingsError, match=message):
        Limits(groups=groups).check(ASSETS)


def test_a_name_stands_for_one_group():
    with pytest.raises(SettingsError, match="the group g is there twice"):
        Limits(groups=[group("g", "A", 0.5), group("g", "B", 0.5)])


def a_market(seed=0, sessions=500):
    rng = np.random.default_rng(seed)
    moves = rng.standard_t(4, (sessions, 4)) * np.array([0.004, 0.01, 0.02, 0.03])
    prices = pd.DataFrame(100 * np.exp(moves.cumsum(0)), pd.bdate_range("2015-01-02", periods=sessions), list("ABCD"))
    return Market.from_prices(prices)


TIGHT = CvarLimit(bound=-0.03)


@given(weights(), limits(), st.integers(0, 20))
def test_caps_and_the_cvar_limit_hold_together(target, caps, seed):
    market = a_market(seed)
    found = shield_within(target, market, TIGHT, caps)
    assert within(found.weights * (1 - 1e-12), caps)
    assert shield(found.weights, market, TIGHT).before >= TIGHT.bound - 1e-12
    np.testing.assert_array_equal(shield_within(target, market, TIGHT, caps).weights, found.weights)


@given(weights(), weights(), limits(), st.floats(0.0, 2.0), st.integers(0, 20))
def test_turnover_is_kept_unless_what_is_held_breaks_a_limit(target, held, caps, turnover, seed):
    market = a_market(seed)
    both = caps.model_copy(update={"max_turnover": turnover})
    found = shield_within(target, market, TIGHT, both, held=held)
    assert within(found.weights * (1 - 1e-12), caps)
    assert shield(found.weights, market, TIGHT).before >= TIGHT.bound - 1e-12
    if within(held, caps) and shield(held, market, TIGHT).kappa == 1.0:
        assert np.abs(found.weights - held)[1:].sum() <= turnover + 1e-9
    if found.traded < 1.0:
        assert f"The limit of {share(turnover)} on turnover" in found.findings[-1]
    np.testing.assert_array_equal(
        shield_within(target, market, TIGHT, both).weights, shield_within(target, market, TIGHT, caps).weights
    )


def test_a_breach_is_sold_at_once_whatever_the_limit_on_turnover():
    market = a_market()
    held = np.array([0.0, 0.0, 0.0, 0.0, 1.0])
    found = shield_within(held, market, TIGHT, Limits(max_turnover=0.0), held=held)
    assert found.weights[4] == pytest.approx(shield(held, market, TIGHT).weights[4])
    assert found.findings[-1].endswith("What the caps and the shield sell comes on top.")
