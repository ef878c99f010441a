"""What holds whatever is traded: value is conserved, nothing depends on the future, a seed repeats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.envs.portfolio import make_portfolio_env, make_portfolio_vector_env
from portfolio_sdpo.portfolio.limits import Limits
from tests.envs.portfolio_examples import EXECUTIONS, SAME_CLOSE, A, by_hand, nan, play, some_weights


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0, 10, 200, 1000]), st.none() | st.floats(0.05, 1), EXECUTIONS)
def test_value_is_conserved_through_an_episode(make_prices, seed, fee, bound, execution):
    """Count shares and dollars as a broker would, from the prices alone, and arrive at the same wealth."""
    prices = make_prices(seed, stocks=4)
    if prices.isna().all(axis=None):
        return
    limits = Limits(max_turnover=bound)
    env = make_portfolio_env(prices, fee_bps=fee, window=None, limits=limits, execution=execution)
    table, rng = prices.to_numpy(), np.random.default_rng(seed)
    cash, shares, paid = 1000.0, np.zeros(4), 0.0
    env.reset(seed=0)
    growth = 0.0
    for t in range(39):
        close = np.nan_to_num(table[t])
        before = cash + shares @ close
        _, reward, *_, info = env.step(some_weights(rng, 5))
        weights = info["weights"]
        after = before * (1 - fee / 1e4 * info["turnover"])
        bought = np.where(close > 0, after * weights[1:] - shares * close, 0)
        shares = shares + np.divide(bought, close, out=np.zeros(4), where=close > 0)
        cost = fee / 1e4 * np.abs(bought).sum()
        cash, paid = cash - bought.sum() - cost, paid + cost
        assert cash == pytest.approx(after * weights[0], abs=1e-9 * before)
        gone = np.isnan(table[t + 1])
        cash, shares = cash + (shares * close)[gone].sum(), np.where(gone, 0, shares)
        wealth = cash + shares @ np.nan_to_num(table[t + 1])
        assert reward == pytest.approx(np.log(wealth / before), abs=1e-11)
        growth += reward
        assert info["wealth"] == pytest.approx(wealth / 1000) == pytest.approx(np.exp(growth))
        if bound is not None:
            assert info["turnover"] <= bound + 1e-12


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 38), EXECUTIONS)
def test_the_future_changes_nothing_before_it(make_prices, seed, t, execution):
    prices = make_prices(seed, stocks=4)
    prices["S0"] = 100.0 + np.arange(40)
    changed = prices.copy()
    rng = np.random.default_rng(seed)
    changed.iloc[t + 1 :] = rng.uniform(1, 1000, (39 - t, 4)) * np.where(rng.random((39 - t, 4)) < 0.2, nan, 1)
    actions = some_weights(rng, t, 5)
    told = {"fee_bps": 10, "cash_rate": 0.02, "window": None, "execution": execution}
    seen, rewards, infos = play(make_portfolio_env(prices, **told), actions)
    for other in (changed, prices.iloc[: t + 1]):
        others = play(make_portfolio_env(other, **told), actions)
        np.testing.assert_array_equal(others[0], seen)
        np.testing.assert_array_equal(others[1], rewards)
        assert [info["turnover"] for info in others[2]] == [info["turnover"] for info in infos]


def test_a_decision_earns_tomorrow_not_today():
    """Whoever holds what rose today earns tomorrow's fall."""
    env = make_portfolio_env(by_hand(), **SAME_CLOSE, window=1)
    observation, _ = env.reset(options={"path": 1})
    assert observation[1] == pytest.approx(np.log(2))
    assert env.step(A)[1] == pytest.approx(np.log(0.5))


def test_the_same_seed_gives_the_same_episodes(make_prices):
    for scenarios in ("window", "bootstrap"):
        made = [
            make_portfolio_vector_env(make_prices(0, gaps=False), 4, window=5, scenarios=scenarios, block=2)
            for _ in "ab"
        ]
        assert np.array_equal(*(env.reset(seed=7)[0] for env in made))
        action = made[0].action_space.sample()
        for _ in range(12):
            assert np.array_equal(*(env.step(action)[0] for env in made))
        assert not np.array_equal(made[0].reset(seed=8)[0], made[1].reset(seed=9)[0])
