"""The portfolio environments: gymnasium's contract, episodes by hand, causality, and one = many step by step."""

import subprocess
import sys

import gymnasium
import numpy as np
import pandas as pd
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.envs import PORTFOLIO
from portfolio_sdpo.envs.portfolio import (
    MAX_LOG,
    RUIN,
    PortfolioEnv,
    PortfolioVectorEnv,
    make_portfolio_env,
    make_portfolio_vector_env,
    observation_slices,
)
from portfolio_sdpo.errors import HistoryError, SettingsError, WeightsError
from portfolio_sdpo.nn.networks import SimplexHead
from portfolio_sdpo.portfolio.limits import Limits, Simplex
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.scenarios import Paths, bootstrap_paths, window_paths
from portfolio_sdpo.rl.rollout import Collector

nan = np.nan
CASH, A, B = np.eye(3)
DATES = pd.to_datetime(["2019-01-02", "2019-01-03", "2019-01-04", "2019-01-07"])


SAME_CLOSE = {"execution": "same-close"}
EXECUTIONS = st.sampled_from(["next-close", "same-close"])


def by_hand():
    """A doubles, halves, doubles; B lists on the second day, rises by a half and is gone on the last."""
    return pd.DataFrame({"A": [1.0, 2.0, 1.0, 2.0], "B": [nan, 2.0, 3.0, nan]}, index=DATES)


def some_weights(rng, *shape):
    """Weights with zeros, from all in one asset to evenly spread."""
    parts = rng.standard_exponential(shape) ** rng.choice([0.1, 1, 10]) * (rng.random(shape) < 0.7)
    parts[..., 0] += 1e-3
    return parts / parts.sum(-1, keepdims=True)


def play(env, actions, **options):
    """Observations, rewards and infos of one episode of the scalar environment."""
    seen, rewards, infos = [env.reset(seed=0, options=options)[0]], [], []
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        seen.append(observation)
        rewards.append(reward)
        infos.append(info)
        if terminated or truncated:
            break
    return np.array(seen), np.array(rewards), infos


# gymnasium's contract.


@pytest.mark.parametrize("scenarios", ["window", "bootstrap"])
def test_gymnasium_accepts_the_environment(make_prices, scenarios):
    prices = make_prices(4, stocks=5)
    prices["S0"] = 100.0 + np.arange(40)
    limits = Limits(max_weight=0.5, max_turnover=0.4)
    env = gymnasium.make(PORTFOLIO, prices=prices, fee_bps=10, cash_rate=0.02, scenarios=scenarios, limits=limits)
    check_env(env.unwrapped)


def test_gymnasium_makes_both_kinds(make_prices):
    settings = {"prices": make_prices(0, gaps=False), "fee_bps": 5, "window": 10, "start": "2018-12-10"}
    scalar, batched = gymnasium.make(PORTFOLIO, **settings), gymnasium.make_vec(PORTFOLIO, num_envs=4, **settings)
    assert isinstance(scalar.unwrapped, PortfolioEnv) and scalar.unwrapped.horizon == 10
    assert isinstance(batched, PortfolioVectorEnv) and batched.horizon == 10
    assert batched.observation_space.shape == (4, 12) and batched.action_space.shape == (4, 4)
    assert isinstance(batched.action_space, Simplex)
    observation, info = batched.reset(seed=1)
    assert observation in batched.observation_space and info["path"].shape == (4,)
    for _ in range(25):
        observation, reward, terminated, truncated, info = batched.step(batched.action_space.sample())
        assert observation in batched.observation_space and observation.dtype == np.float32
        assert reward.shape == terminated.shape == truncated.shape == (4,)
        assert all(info[name].shape == (4,) for name in ("turnover", "drawdown", "wealth"))
    assert scalar.reset(seed=1)[0] in scalar.observation_space


def test_gymnasium_s_own_vectorisation_takes_the_simplex(make_prices):
    env = gymnasium.make_vec(PORTFOLIO, num_envs=2, vectorization_mode="sync", prices=make_prices(0, gaps=False))
    env.reset(seed=0)
    assert env.step(env.action_space.sample())[1].shape == (2,)


def test_registering_imports_nothing_heavy():
    code = (
        "import sys, portfolio_sdpo.envs\n"
        "heavy = {'pandas', 'arch', 'torch', 'portfolio_sdpo.envs.portfolio'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "import portfolio_sdpo.envs.portfolio\n"
        "heavy = {'pandas', 'arch', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_samples_are_on_the_simplex_and_seeded():
    space = Simplex((3, 5))
    space.seed(1)
    first = space.sample()
    assert first in space and first.shape == (3, 5)
    np.testing.assert_allclose(first.sum(-1), 1)
    space.seed(1)
    np.testing.assert_array_equal(first, space.sample())
    assert first.astype(np.float32) in space and 2 * first not in space and "weights" not in space
    assert Simplex((2,)) == Simplex((2,)) != Simplex((3,))


# Episodes by hand.


def test_an_episode_by_hand():
    env = make_portfolio_env(by_hand(), **SAME_CLOSE, window=3)
    seen, rewards, infos = play(env, [A, (A + B) / 2, B])
    parts = observation_slices(3)
    logs, two = np.log([1.5, 2.0]), np.log(2)
    np.testing.assert_allclose(
        seen[:, parts.gross_returns], [[0, 0, 0], [0, two, 0], [0, -two, logs[0]], [0, two, 0]], rtol=1e-6
    )
    np.testing.assert_array_equal(seen[:, parts.listed], [[1, 1, 0], [1, 1, 1], [1, 1, 1], [1, 1, 0]])
    np.testing.assert_allclose(
        seen[:, parts.held], [CASH, A, [0, 0.25, 0.75], CASH]
    )  # drifted; B is paid out at the end
    np.testing.assert_allclose(rewards, [two, 0, 0], atol=1e-15)  # (0.5 + 1.5) / 2 = 1, and B's last price was 3
    np.testing.assert_allclose([info["turnover"] for info in infos], [1, 1, 0.5])
    assert infos[-1]["wealth"] == pytest.approx(2)


def test_weight_on_an_unlisted_stock_is_cash():
    _, rewards, infos = play(make_portfolio_env(by_hand(), **SAME_CLOSE, window=1), [(A + B) / 2], path=0)
    assert rewards[0] == pytest.approx(np.log(1.5))
    np.testing.assert_allclose(infos[0]["weights"], [0.5, 0.5, 0])
    assert infos[0]["turnover"] == 0.5


def test_the_fee_is_paid_on_what_is_traded_from_drifted_weights():
    env = make_portfolio_env(by_hand(), **SAME_CLOSE, fee_bps=100, window=3)
    _, rewards, infos = play(env, [A, A, CASH])
    np.testing.assert_allclose(rewards, [np.log(2 / 1.01), np.log(0.5), np.log(0.99)])
    assert infos[1]["turnover"] == 0
    held_by_drift = [0.0, 0.25, 0.75]
    _, rewards, infos = play(env, [A, (A + B) / 2, held_by_drift])
    assert infos[2]["turnover"] == pytest.approx(0) and rewards[2] == pytest.approx(np.log(0.25 * 2 + 0.75))


def test_at_the_next_close_a_step_pays_for_the_trade_before_it():
    """Asked for A at 1; bought at 2 for a fee of 1 %, it halves and doubles; the last action is not traded any more."""
    env = make_portfolio_env(by_hand(), fee_bps=100, window=3)
    seen, rewards, infos = play(env, [A, A, CASH])
    np.testing.assert_allclose(np.exp(rewards), [1, 0.5 / 1.01, 2])
    np.testing.assert_allclose([info["turnover"] for info in infos], [0, 1 / 1.01, 0], atol=1e-15)
    np.testing.assert_allclose([info["weights"] for info in infos], [CASH, A, A])
    np.testing.assert_allclose(seen[:, observation_slices(3).held], [CASH, A, A, CASH])


def test_at_the_next_close_what_has_no_price_then_is_not_bought():
    """B can be bought on the second day, when the decision of the first is traded, and is gone on the last."""
    _, rewards, infos = play(make_portfolio_env(by_hand(), window=3), [(A + B) / 2, (A + B) / 2, B])
    np.testing.assert_allclose([info["weights"] for info in infos], [CASH, (A + B) / 2, (A + B) / 2])
    np.testing.assert_allclose(np.exp(rewards), [1, 1, 1.5])


def test_cash_earns_its_rate():
    _, rewards, _ = play(make_portfolio_env(by_hand(), cash_rate=0.0252, window=3), [CASH, CASH, CASH])
    np.testing.assert_allclose(rewards, np.log(1.0001))


def test_drawdown_adds_up_to_the_largest_one():
    prices = pd.DataFrame(
        {"A": [100.0, 120.0, 90.0, 110.0, 80.0, 200.0]}, index=pd.bdate_range("2019-01-02", periods=6)
    )
    _, _, infos = play(make_portfolio_env(prices, window=None), [np.eye(2)[1]] * 5)
    np.testing.assert_allclose([info["drawdown"] for info in infos], [0, 0.25, 0, 1 / 3 - 0.25, 0])


def test_the_end_of_the_window_is_a_truncation():
    env = make_portfolio_env(by_hand(), window=3)
    env.reset()
    flags = [env.step(CASH)[2:4] for _ in range(3)]
    assert flags == [(False, False), (False, False), (False, True)]
    with pytest.raises(gymnasium.error.ResetNeeded, match="episode is over"):
        env.step(CASH)


def test_episodes_start_with_the_weights_that_are_held():
    env = make_portfolio_env(by_hand(), fee_bps=100, window=1)
    observation, _ = env.reset(options={"held": [0.2, 0.3, 0.5], "path": 1})
    np.testing.assert_allclose(observation[6:], [0.2, 0.3, 0.5])
    assert env.step([0.2, 0.3, 0.5])[-1]["turnover"] == 0
    observation, _ = env.reset(options={"held": [0.2, 0.3, 0.5], "path": 0})
    np.testing.assert_allclose(observation[6:], [0.7, 0.3, 0])  # B is not listed yet
    batched = make_portfolio_vector_env(by_hand(), num_envs=2, window=1)
    for held in ([0.2, 0.3, 0.5], [[0.2, 0.3, 0.5]] * 2):
        observation, _ = batched.reset(options={"held": held, "path": [0, 1]})
        np.testing.assert_allclose(observation[:, 6:], [[0.7, 0.3, 0], [0.2, 0.3, 0.5]])


# One and many.


def stepped_alike(make, count, actions, path=None):
    """Step a batch and its episodes one by one, and compare everything that they say."""
    batch, singles = make(count), [make(None) for _ in range(count)]
    options = {} if path is None else {"path": path}
    seen, _ = batch.reset(seed=3, options=options)
    for i, single in enumerate(singles):
        chosen = {"path": int(batch.path[i])} if batch.path[i] >= 0 else {}
        np.testing.assert_array_equal(single.reset(seed=3, options=chosen)[0], seen[i])
    for step in actions:
        seen, reward, terminated, truncated, info = batch.step(step)
        over = terminated | truncated
        for i, single in enumerate(singles):
            observation, *outcome, own = single.step(step[i])
            assert outcome == [reward[i], terminated[i], truncated[i]]
            where = info["final_info"] if over[i] else info
            assert all(np.array_equal(own[name], where[name][i]) for name in own)
            np.testing.assert_array_equal(observation, info["final_obs"][i] if over[i] else seen[i])
            if over[i]:
                chosen = {"path": int(batch.path[i])} if batch.path[i] >= 0 else {}
                np.testing.assert_array_equal(single.reset(options=chosen)[0], seen[i])


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 6),
    st.integers(1, 12),
    st.sampled_from([0, 10, 100, 5000]),
    st.none() | st.floats(0.05, 1),
    st.none() | st.floats(0, 1.5),
    EXECUTIONS,
)
def test_a_batch_is_its_episodes_side_by_side(make_prices, seed, stocks, window, fee, cap, bound, execution):
    prices, limits = make_prices(seed, stocks), Limits(max_weight=cap, max_turnover=bound)
    if prices.isna().all(axis=None):
        return
    settings = {"prices": prices, "fee_bps": fee, "cash_rate": 0.03, "window": window, "limits": limits}
    settings["execution"] = execution

    def make(count):
        return (
            make_portfolio_env(**settings) if count is None else make_portfolio_vector_env(num_envs=count, **settings)
        )

    actions = some_weights(np.random.default_rng(seed), 15, 3, stocks + 1)
    stepped_alike(make, 3, actions)


def test_a_batch_of_one_draws_what_one_draws(make_prices):
    settings = {"prices": make_prices(2, gaps=False), "window": 4, "scenarios": "bootstrap", "block": 3, "fee_bps": 7}

    def make(count):
        return (
            make_portfolio_env(**settings) if count is None else make_portfolio_vector_env(num_envs=count, **settings)
        )

    stepped_alike(make, 1, some_weights(np.random.default_rng(0), 20, 1, 4))


def ruinous():
    """Three paths of three decisions in one stock: it is worthless, nearly worthless in two steps, and steady."""
    moves = np.array([[1, 1, 0, 1], [1, 1e-4, 1e-4, 1], [1, 1, 1, 1.1]])
    gross_returns = np.stack([np.ones((3, 4)), moves], axis=-1)
    return Paths(gross_returns, np.ones(gross_returns.shape, dtype=bool))


def test_ruin_terminates_and_stays_finite():
    stock = np.array([0.0, 1.0])
    for path, rewards in {0: [0, np.log(RUIN)], 1: [np.log(1e-4)] * 2, 2: [0, 0, np.log(1.1)]}.items():
        env = PortfolioEnv.from_paths(ruinous(), **SAME_CLOSE)
        env.reset(options={"path": path})
        for reward in rewards:
            observation, got, terminated, truncated, _ = env.step(stock)
            assert got == pytest.approx(reward) and observation in env.observation_space
        assert terminated == (path < 2) and truncated == (path == 2)
    assert abs(observation).max() <= MAX_LOG


def test_ruin_of_one_episode_restarts_only_that_one():
    def make(count):
        return (
            PortfolioEnv.from_paths(ruinous())
            if count is None
            else PortfolioVectorEnv.from_paths(ruinous(), count, seed=1)
        )

    stepped_alike(make, 6, np.tile([0.0, 1.0], (20, 6, 1)), path=[0, 1, 2, 2, 1, 0])


def test_paths_are_spread_evenly_and_can_be_chosen(make_prices):
    paths = bootstrap_paths(Market.from_prices(make_prices(1, gaps=False)), 39, 5, count=4, block=3)
    env = PortfolioVectorEnv.from_paths(paths, 8, fee=0.001, seed=5)
    observation, info = env.reset()
    assert np.bincount(info["path"]).tolist() == [2, 2, 2, 2] and (info["path"] == env.path).all()
    np.testing.assert_allclose(observation[:, :4], np.log(paths.gross_returns[info["path"], 0]), rtol=1e-6)
    env.reset(options={"path": 3})
    assert (env.path == 3).all()
    for _ in range(5):
        *_, info = env.step(env.action_space.sample())
    assert np.bincount(info["path"]).tolist() == [2, 2, 2, 2]
    again = PortfolioVectorEnv.from_paths(paths, 8, fee=0.001, seed=5).reset()[1]["path"]
    np.testing.assert_array_equal(again, PortfolioVectorEnv.from_paths(paths, 8, seed=5).reset()[1]["path"])


def test_what_was_returned_is_never_changed(make_prices):
    env = make_portfolio_vector_env(make_prices(3, gaps=False), num_envs=3, fee_bps=10, window=3)
    kept = []
    env.reset(seed=0)
    for _ in range(10):
        observation, reward, *_, info = env.step(env.action_space.sample())
        inner = info.get("final_info", {})
        arrays = [observation, reward, *info.values(), *inner.values()]
        kept += [(array, array.copy()) for array in arrays if isinstance(array, np.ndarray)]
    for array, copy in kept:
        np.testing.assert_array_equal(array, copy)


class Spread:
    """A stand-in for a policy: random logits, which its head turns into weights."""

    def __init__(self, assets):
        self.head = SimplexHead(assets)

    def act(self, observation, generator):
        logits = 3 * torch.randn(len(observation), self.head.size, generator=generator)
        return logits, torch.zeros(len(observation))


def test_the_collector_reads_every_signal(make_prices):
    env = make_portfolio_vector_env(
        make_prices(6, stocks=9, gaps=False), num_envs=5, fee_bps=20, window=7, **SAME_CLOSE
    )
    rollout = Collector(env, ["reward", "turnover", "drawdown"], steps=14, seed=0).collect(Spread(10), 0)
    assert rollout.episodes == 10 and not rollout.terminated.any()
    wealth = rollout.signals["reward"].double().reshape(10, 7).cumsum(1).exp()
    wealth = torch.cat([torch.ones(10, 1), wealth], dim=1)
    largest = (1 - wealth / wealth.cummax(1).values).max(1).values
    torch.testing.assert_close(rollout.returns("drawdown", 1.0).double(), largest, rtol=1e-4, atol=1e-6)
    assert (rollout.signals["turnover"] > 0).all()
    assert (rollout.next_observation[6, -10:] != rollout.observation[7, -10:]).any()  # the final one, not the reset's


# What must hold whatever is traded.


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


# What is refused.


@pytest.mark.parametrize(
    "weights, says",
    [
        ([0.5, 0.6, 0.0], r"sum to 1\.1"),
        ([0.5, 0.4999, 0.0], r"sum to 0\.9999"),
        ([1.1, -0.1, 0.0], r"reach down to -0\.1: portfolios are long-only"),
        ([nan, 0.5, 0.5], "not finite"),
        ([np.inf, 0.0, 0.0], "not finite"),
        ([0.5, 0.5], r"have shape \(2,\): it must be \(3,\)"),
        (["a", "b", "c"], "not numbers"),
        (None, "must be"),
    ],
)
def test_weights_off_the_simplex_are_never_mended(weights, says):
    env = make_portfolio_env(by_hand(), **SAME_CLOSE, window=3)
    env.reset(seed=0)
    with pytest.raises(WeightsError, match=says):
        env.step(weights)
    assert env.step(A)[1] == pytest.approx(np.log(2))  # nothing has happened
    batched = make_portfolio_vector_env(by_hand(), num_envs=2, window=3, **SAME_CLOSE)
    batched.reset(seed=0)
    with pytest.raises(WeightsError):
        batched.step([CASH, weights])
    np.testing.assert_allclose(batched.step(np.stack([A, CASH]))[1], [np.log(2), 0])


def test_rounding_is_not_an_error():
    env = make_portfolio_env(by_hand(), window=3)
    env.reset(seed=0)
    assert env.step(np.float32([1 / 3, 2 / 3, -1e-8]))[-1]["weights"].sum() == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize(
    "change, error, says",
    [
        ({"fee_bps": -1}, SettingsError, "fee_bps: must be at least 0"),
        ({"fee_bps": 10_000}, SettingsError, "fee_bps"),
        ({"start": "2019-01-07", "end": "2019-01-02"}, SettingsError, "start: must not be after end"),
        ({"start": "2018-01-01"}, HistoryError, "start: 2018-01-01 is outside"),
        ({"end": "2020-01-01"}, HistoryError, "end: 2020-01-01 is outside"),
        ({"window": 4}, HistoryError, "needs 5 sessions and there are 4"),
        ({"window": 0}, SettingsError, "window"),
        ({"scenarios": "dreams"}, SettingsError, "scenarios: must be"),
        ({"scenarios": "bootstrap", "window": 15}, HistoryError, "shorter than the window"),
        ({"prices": by_hand() * nan}, HistoryError, "no stock is listed"),
        ({"prices": Market.from_prices(by_hand()), "cash_rate": 0.1}, SettingsError, "a Market has its own"),
    ],
)
def test_settings_that_are_refused(change, error, says):
    with pytest.raises(error, match=says):
        make_portfolio_env(**{"prices": by_hand(), "window": 2, **change})
    with pytest.raises(error, match=says):
        make_portfolio_vector_env(**{"prices": by_hand(), "window": 2, **change})


def test_a_market_is_as_good_as_its_prices():
    seen = [play(make_portfolio_env(p, window=3), [A, A, B])[0] for p in (by_hand(), Market.from_prices(by_hand()))]
    np.testing.assert_array_equal(*seen)


@pytest.mark.parametrize("path", [2, -1, 0.5, "first", [0, 1, 0]])
def test_paths_that_do_not_exist(path):
    env = make_portfolio_vector_env(by_hand(), num_envs=2, window=2)
    with pytest.raises(SettingsError, match=r"options\.path: must be from 0 to 1"):
        env.reset(options={"path": path})


def test_options_and_calls_out_of_order():
    env = make_portfolio_env(by_hand(), window=2)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(CASH)
    with pytest.raises(SettingsError, match="options: only path and held are known"):
        env.reset(options={"day": 3})
    with pytest.raises(WeightsError):
        env.reset(options={"held": [1.0, 1.0, 0.0]})
    batched = make_portfolio_vector_env(by_hand(), num_envs=2, window=2)
    with pytest.raises(gymnasium.error.ResetNeeded):
        batched.step(np.stack([CASH, CASH]))
    with pytest.raises(SettingsError, match="num_envs"):
        make_portfolio_vector_env(by_hand(), num_envs=0, window=2)
    with pytest.raises(SettingsError, match="fee: must be"):
        PortfolioVectorEnv.from_paths(window_paths(Market.from_prices(by_hand()), 2, 2), 4, fee=1.5)
    drawn = make_portfolio_env(by_hand(), window=1, scenarios="bootstrap", block=1, end="2019-01-04")
    with pytest.raises(SettingsError, match="absent: paths are drawn"):
        drawn.reset(options={"path": 0})
