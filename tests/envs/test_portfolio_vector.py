"""Many episodes side by side: a batch is its episodes one by one, ruin, paths, and what a collector reads."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.envs.portfolio import (
    MAX_LOG,
    RUIN,
    PortfolioEnv,
    PortfolioVectorEnv,
    make_portfolio_env,
    make_portfolio_vector_env,
)
from portfolio_sdpo.nn.heads import SimplexHead
from portfolio_sdpo.portfolio.limits import Limits
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.scenarios import Paths, bootstrap_paths
from portfolio_sdpo.rl.rollout import Collector
from tests.envs.portfolio_examples import EXECUTIONS, SAME_CLOSE, some_weights


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
