"""When a decision is traded: by hand at the next close, what is known by then, and what a daily strategy is told.

Known answers of the same close are those of the simulation as it was before there was a choice.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.backtest import make_strategy, simulate
from portfolio_sdpo.backtest.shielded import FilteredShieldStrategy, shield_track
from portfolio_sdpo.backtest.simulate import DecisionReplay
from portfolio_sdpo.backtest.strategies import EqualWeight
from portfolio_sdpo.errors import SettingsError
from portfolio_sdpo.portfolio.agent import Agent
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.presets import preset
from portfolio_sdpo.portfolio.shield import CvarLimit

KNOWN = json.loads((Path(__file__).parent / "known_same_close.json").read_text())
BOTH = ("next-close", "same-close")


class Fixed:
    """The same weights at every decision; remembers what it was shown."""

    name = "fixed"

    def __init__(self, *weights, every=1):
        self.weights, self.every, self.seen = np.array(weights), every, []

    def decide(self, history, held):
        self.seen.append((history.dates[-1], held.copy()))
        return self.weights


class Watcher:
    """Holds `weights` until it loses 5 % in a session, then cash; is asked every session."""

    name, every = "watcher", 5

    def __init__(self, *weights):
        self.weights, self.accounts, self.dates = np.array(weights), [], []

    def decide(self, history, held):
        raise AssertionError("a daily strategy is reviewed")

    def review(self, history, account):
        self.accounts.append(account)
        self.dates.append(history.dates[-1])
        if len(account.returns) and account.returns[-1] < -0.05:
            return np.eye(len(account.held))[0]
        return self.weights if not account.held[1:].any() else account.held


def load_market(columns, cash_rate=0.0):
    frame = pd.DataFrame(columns, dtype=float)
    return Market.from_prices(frame.set_axis(pd.bdate_range("2019-01-02", periods=len(frame))), cash_rate)


def days(track):
    return {str(trade): str(decision) for trade, decision in track.decided_on.items()}


def test_three_sessions_by_hand():
    """Decided on the 2nd, bought at 110 and 50 on the 3rd: 1000 · 1.01 becomes 990.10 invested, which earns 10 %."""
    track = simulate(load_market({"A": [100, 110, 132], "B": [50, 50, 50]}), Fixed(0, 0.5, 0.5), fee=0.01, wealth=1000)
    np.testing.assert_allclose(track.wealth, [1000, 1000, 1000 / 1.01 * 1.1])
    np.testing.assert_allclose(track.weights, [[1, 0, 0], [0, 0.5, 0.5]])
    np.testing.assert_allclose(track.held, [[1, 0, 0], [1, 0, 0], [0, 0.6 / 1.1, 0.5 / 1.1]])
    np.testing.assert_allclose(track.costs, [0, 1000 - 1000 / 1.01])
    np.testing.assert_allclose(track.turnover, [0, 1 / 1.01])
    np.testing.assert_allclose(track.next_weights, [0, 0.5, 0.5])
    assert days(track) == {"2019-01-03": "2019-01-02"}
    assert [str(day) for day in track.decisions] == ["2019-01-02", "2019-01-03", "2019-01-04"]
    assert track.execution == "next-close"


def test_what_is_traded_starts_from_what_has_drifted_until_then():
    """Bought on the 3rd; A doubles by the 4th and again by the 7th, where the decision of the 4th is traded."""
    market = load_market({"A": [1, 1, 2, 4, 4], "B": [1, 1, 1, 1, 1]})
    strategy = Fixed(0, 0.5, 0.5, every=2)
    track = simulate(market, strategy)
    np.testing.assert_allclose(track.wealth, [1, 1, 1.5, 2.5, 2.5])
    np.testing.assert_allclose(track.weights[2], [0, 2 / 3, 1 / 3])  # decided on that day, and nothing traded yet
    np.testing.assert_allclose(track.held[3], [0, 0.8, 0.2])
    np.testing.assert_allclose(track.weights[3], [0, 0.5, 0.5])
    np.testing.assert_allclose(track.turnover[3], 0.6)
    # What it is told that it holds is what it holds at that close, its earlier decisions carried out.
    np.testing.assert_allclose([held for _, held in strategy.seen], [[1, 0, 0], [0, 2 / 3, 1 / 3], [0, 0.5, 0.5]])


def test_a_decision_every_session_is_held_by_the_next_one():
    strategy = Fixed(0, 0.5, 0.5)
    track = simulate(load_market({"A": [1, 1, 2, 1], "B": [1, 1, 1, 1]}), strategy)
    np.testing.assert_allclose([held for _, held in strategy.seen], [[1, 0, 0], *[[0, 0.5, 0.5]] * 3])
    np.testing.assert_allclose(track.weights, [[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]])


def test_what_has_no_price_at_the_trade_is_not_bought():
    """B is suspended when it is to be bought; A, which was to be kept, is paid out before the second trade."""
    market = load_market({"A": [100, 100, 110, np.nan, np.nan], "B": [50, np.nan, 50, 50, 55]})
    track = simulate(market, Fixed(0, 0.5, 0.5))
    np.testing.assert_allclose(track.weights, [[1, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]])
    np.testing.assert_allclose(track.held[3], [0.5, 0, 0.5])
    np.testing.assert_allclose(track.wealth, [1, 1, 1.05, 1.05, 1.05 * 1.05])


def test_what_is_listed_between_decision_and_trade_may_be_bought():
    track = simulate(load_market({"A": [100, 100, 110], "B": [np.nan, 50, 50]}), Fixed(0, 0.5, 0.5))
    np.testing.assert_allclose(track.weights[1], [0, 0.5, 0.5])


def test_limits_are_those_of_the_trade():
    """A quarter of wealth may be traded: of the drifted weights at the trade, not of those at the decision."""
    market = load_market({"A": [1, 1, 4, 4, 4], "B": [1, 1, 1, 1, 1]})
    track = simulate(market, Fixed(0, 0.5, 0.5), limits=Limits(max_turnover=0.25))
    np.testing.assert_allclose(track.turnover, [0, 0.25, 0.25, 0.25])
    np.testing.assert_allclose(track.held[2], [0.75 / 1.375, 0.5 / 1.375, 0.125 / 1.375])
    capped = simulate(market, Fixed(0, 1.0, 0.0), limits=Limits(max_weight=0.4))
    np.testing.assert_allclose(capped.weights, [[1, 0, 0], *[[0.6, 0.4, 0]] * 3])
    np.testing.assert_allclose(capped.next_weights, [0.6, 0.4, 0])


def test_the_last_close_carries_out_the_order_before_it_and_decides_anew():
    strategy = Fixed(0, 0.5, 0.5)
    track = simulate(load_market({"A": [1, 1, 4], "B": [1, 1, 1]}), strategy, limits=Limits(max_turnover=0.25))
    held = np.array([0.75, 0.5, 0.125]) / 1.375
    traded = strategy.seen[-1][1]  # at the last close, after the order of the close before
    assert np.abs(traded - held)[1:].sum() == pytest.approx(0.25)
    assert np.abs(track.next_weights - traded)[1:].sum() == pytest.approx(0.25)
    np.testing.assert_allclose(track.held[-1], held)


def test_held_itself_trades_nothing_but_its_copy_does():
    market = load_market({"A": [1, 1, 4, 2, 2], "B": [1, 1, 1, 1, 1]})

    class Kept(Fixed):
        def decide(self, history, held):
            return self.weights if not held[1:].any() else self.keep(held)

    kept, copied = Kept(0, 0.5, 0.5), Kept(0, 0.5, 0.5)
    kept.keep, copied.keep = (lambda held: held), (lambda held: held.copy())
    np.testing.assert_allclose(simulate(market, kept).turnover, [0, 1, 0, 0], atol=1e-15)
    assert simulate(market, copied).turnover[3] > 0.1  # asked for the weights of a session ago

    def halve(held):
        held *= 0.5
        held[0] += 0.5
        return held

    changed = Kept(0, 0.5, 0.5)
    changed.keep = halve
    assert simulate(market, changed).turnover[2] > 0.1


@pytest.mark.parametrize("execution", BOTH)
def test_a_daily_strategy_is_asked_every_session_and_knows_its_own_account(execution):
    market = load_market({"A": [10, 10, 11, 10, 12, 12]}, cash_rate=0.0252)
    strategy = Watcher(0.0, 1.0)
    track = simulate(market, strategy, fee=0.01, execution=execution)
    assert strategy.dates == list(track.dates)
    for day, account in enumerate(strategy.accounts):
        np.testing.assert_allclose(account.returns, track.returns[:day], atol=1e-15)
        np.testing.assert_array_equal(account.weights, track.weights[:day])
        with pytest.raises(ValueError, match="read-only"):
            account.weights[:] = 0.0
    for day, account in enumerate(strategy.accounts[:-1]):
        np.testing.assert_array_equal(account.held, (track.held if execution == "same-close" else track.weights)[day])
    # The fall of the fourth day is seen at its close: sold there, or one close later.
    sold = 3 if execution == "same-close" else 4
    assert track.weights[sold - 1, 1] == 1.0 and track.weights[sold, 1] == 0.0


def test_an_unknown_execution_is_refused():
    with pytest.raises(SettingsError, match="did you mean 'next-close'"):
        simulate(load_market({"A": [1, 1]}), Fixed(1, 0), execution="next-clos")


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: f"{case['strategy']}-{case['fee']}-{case['seed']}")
def test_at_the_same_close_everything_is_as_it_was(prices, case):
    market = Market.from_prices(prices(120, 5, case["seed"]), 0.02)
    strategy = make_strategy(case["strategy"], **case["settings"])
    common = {"start": market.dates[40], "fee": case["fee"], "limits": Limits(**case["limits"])}
    track = simulate(market, strategy, execution="same-close", **common)
    replay = DecisionReplay(track.name, track.decisions, strategy.every)
    shielded = FilteredShieldStrategy(replay, CvarLimit(bound=-0.01, horizon=5), execution="same-close")
    for name, found in (("track", track), ("shielded", simulate(market, shielded, execution="same-close", **common))):
        known = np.array([float.fromhex(number) for number in case[name]])
        # The last bits are the processor's, by how it sums a dot product: up to one in each of 79 sessions.
        np.testing.assert_array_max_ulp(found.wealth[::10], known, maxulp=79)


@pytest.mark.parametrize(
    ("seed", "same"), [(3, True), (4, False)], ids=["the seed of the known answer", "another seed"]
)
def test_the_agent_of_the_same_close_and_its_shield_are_as_they_were(prices, seed, same):
    """`lstm-same-close` on a rising market: wealth as computed by `default` before there was any other execution.

    Byte for byte on the processor that computed it; training in single precision differs a little on others.
    """
    tiny = {"history": 120, "paths": 16, "first": 60, "further": 2, "limit": {"horizon": 5}}
    learner = {"kind": "analytic", "hidden": [4, 4], "learning_rate": 0.05, "anneal": 40}
    chosen = preset("lstm-same-close", fee_bps=5, config={**tiny, "learner": learner})
    market = Market.from_prices(prices(200, 4, 7, gaps=False).mul(np.exp(0.004 * np.arange(200)), axis=0), 0.02)
    common = {"start": market.dates[150], "fee": chosen.fee, "execution": chosen.execution}
    track = simulate(market, Agent(chosen, seed), **common)
    behind = simulate(market, shield_track(track, chosen.every, chosen.limit, form=chosen.shield_form), **common)
    found = [track.wealth[10], track.wealth[20], track.wealth[-10], behind.wealth[-10]]
    known = [1.0077759703180234, 1.102743549838504, 1.1452761385234917, 1.1448835448698815]
    assert (found == pytest.approx(known, rel=1e-3)) is same


def random_market(seed, sessions=14, stocks=3):
    """Stocks that come, go and are suspended."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        100 * np.exp(np.cumsum(rng.normal(0, 0.1, (sessions, stocks)), axis=0)),
        index=pd.bdate_range("2019-01-02", periods=sessions),
        columns=[f"S{stock}" for stock in range(stocks)],
    )
    frame = frame.mask(rng.random(frame.shape) < 0.15)
    frame.iloc[:, 0] = frame.iloc[:, 0].ffill().fillna(100.0)
    return frame


class Random:
    """Weights that depend on the day, what has happened and what is held; sometimes it changes nothing."""

    name = "random"

    def __init__(self, seed, every):
        self.seed, self.every = seed, every

    def decide(self, history, held):
        rng = np.random.default_rng([self.seed, len(history)])
        if rng.random() < 0.2:
            return held
        parts = rng.dirichlet(np.ones(len(held))) * history.gross_returns[-1] + 0.1 * held
        return parts / parts.sum()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.sampled_from(BOTH), st.sampled_from([0.0, 0.003]))
def test_value_is_conserved_and_the_future_changes_nothing(seed, every, execution, fee):
    frame = random_market(seed)
    limits = Limits(max_weight=0.7, max_turnover=0.8)
    options = {"fee": fee, "limits": limits, "execution": execution}
    track = simulate(Market.from_prices(frame, 0.03), Random(seed, every), **options)
    prices, shares, bank = frame.to_numpy(), np.zeros(3), 1.0
    for day, weights in enumerate(track.weights):
        price = prices[day]
        bank += np.nansum(np.where(np.isnan(price), shares * prices[day - 1], 0.0))  # paid out at the last price
        shares = np.where(np.isnan(price), 0.0, shares)
        owned = shares * np.nan_to_num(price)
        assert bank + owned.sum() == pytest.approx(track.wealth[day])
        wanted = (track.wealth[day] - track.costs[day]) * weights[1:]
        assert np.abs(wanted - owned).sum() * fee == pytest.approx(track.costs[day], abs=1e-12)
        assert not wanted[np.isnan(price)].any()
        bank = (track.wealth[day] - track.costs[day]) * weights[0] * (1 + 0.03 / 252)
        shares = wanted / np.where(np.isnan(price), 1.0, price)
        assert track.turnover[day] <= 0.8 + 1e-12
    cut = 7
    other = frame.copy()
    other.iloc[cut + 1 :] = frame.iloc[cut + 1 :].to_numpy()[::-1] * 3.0
    shorter = simulate(Market.from_prices(frame.iloc[: cut + 1], 0.03), Random(seed, every), **options)
    altered = simulate(Market.from_prices(other, 0.03), Random(seed, every), **options)
    for name in ("weights", "costs", "turnover"):
        np.testing.assert_array_equal(getattr(track, name)[:cut], getattr(shorter, name))
        np.testing.assert_array_equal(getattr(track, name)[:cut], getattr(altered, name)[:cut])
    np.testing.assert_array_equal(track.wealth[: cut + 1], shorter.wealth)


def test_one_close_later_is_another_market():
    """The same decisions a day later: who trades at the close he has seen profits from it, and nobody can."""
    rng = np.random.default_rng(0)
    moves = rng.choice([0.9, 1.1], 200)
    market = load_market({"A": 100 * np.cumprod(np.repeat(moves, 2))})  # every move comes twice

    class Follower(Fixed):
        def decide(self, history, held):
            return np.array([0.0, 1.0]) if history.gross_returns[-1, 1] > 1.0 else np.array([1.0, 0.0])

    later, seen = (simulate(market, Follower(), execution=execution).wealth[-1] for execution in BOTH)
    assert seen > 1000 and later < 10


def test_the_shield_between_decisions_leaves_what_it_does_not_cut(prices):
    market = Market.from_prices(prices(120, gaps=False))
    start = {"start": market.dates[40]}
    wide = CvarLimit(bound=-0.9, horizon=5)
    bare, shielded = (
        simulate(market, each, **start)
        for each in (EqualWeight(every=5), FilteredShieldStrategy(EqualWeight(every=5), wide))
    )
    np.testing.assert_allclose(shielded.turnover, bare.turnover, atol=1e-15)
    tight = FilteredShieldStrategy(EqualWeight(every=5), CvarLimit(bound=-0.01, horizon=5))
    track = simulate(market, tight, **start)
    for number, day in enumerate(tight.days[: len(track.weights) - 1]):
        if not day["decided"] and day["kappa"] < 1.0:
            np.testing.assert_allclose(track.weights[number + 1, 1:], day["kappa"] * track.weights[number, 1:])
