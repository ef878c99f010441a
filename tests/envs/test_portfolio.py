"""The portfolio environments: gymnasium's contract, episodes by hand, and what is refused."""

import subprocess
import sys

import gymnasium
import numpy as np
import pandas as pd
import pytest
from gymnasium.utils.env_checker import check_env

from portfolio_sdpo.envs import PORTFOLIO
from portfolio_sdpo.envs.portfolio import (
    PortfolioEnv,
    PortfolioVectorEnv,
    make_portfolio_env,
    make_portfolio_vector_env,
    observation_slices,
)
from portfolio_sdpo.errors import HistoryError, SettingsError, WeightsError
from portfolio_sdpo.portfolio.limits import GroupLimit, Limits, Simplex
from portfolio_sdpo.portfolio.market import Market
from portfolio_sdpo.portfolio.scenarios import window_paths
from tests.envs.portfolio_examples import CASH, SAME_CLOSE, A, B, by_hand, nan, play

# gymnasium's contract.


@pytest.mark.parametrize("scenarios", ["window", "bootstrap"])
def test_gymnasium_accepts_the_environment(make_prices, scenarios):
    prices = make_prices(4, stocks=5)
    prices["S0"] = 100.0 + np.arange(40)
    limits = Limits(max_weight=0.5, max_turnover=0.4)
    env = gymnasium.make(PORTFOLIO, prices=prices, fee_bps=10, cash_rate=0.02, scenarios=scenarios, limits=limits)
    check_env(env.unwrapped)


def test_limits_of_groups_are_refused_before_the_first_step(make_prices):
    limits = Limits(groups=[GroupLimit(name="pair", tickers=("S0", "S1"), max_weight=0.4)])
    with pytest.raises(SettingsError, match="limits: groups are named by tickers, which scenarios do not have"):
        gymnasium.make(PORTFOLIO, prices=make_prices(4, stocks=5), limits=limits)


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
