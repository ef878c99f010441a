"""Random CMDPs: the tables, gymnasium's contract, and that one episode at a time and many at once are the same walk."""

import math
import tracemalloc
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.envs import RANDOM_CMDP, Cmdp, RandomCmdpEnv, RandomCmdpVectorEnv, random_cmdp
from portfolio_sdpo.errors import SettingsError

SMALL = {"states": 12, "actions": 3, "seed": 1, "noise_scale": 1.0, "horizon": 7, "costs": ("wear", "tear")}


def small(**changes):
    return random_cmdp(**{**SMALL, **changes})


class Replay:
    """A random number generator that plays back given numbers: `uniform` and `normal`, one row per call."""

    def __init__(self, uniform, normal):
        self.uniform, self.normal = iter(uniform), iter(normal)

    def random(self, count):
        return np.asarray(next(self.uniform)).reshape(count)

    def standard_normal(self, count):
        return np.asarray(next(self.normal)).reshape(count)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 60), st.integers(1, 5), st.integers(0, 2**32), st.floats(0, 10))
def test_tables_are_as_the_paper_says(states, actions, seed, scale):
    cmdp = random_cmdp(states, actions, seed=seed, noise_scale=scale, costs=("wear",))
    fan = math.ceil(math.log(states))
    assert cmdp.successors.shape == cmdp.probabilities.shape == (states, actions, fan)
    assert all(len(set(row)) == fan for row in cmdp.successors.reshape(-1, fan).tolist())
    assert cmdp.successors.min() >= 0 and cmdp.successors.max() < states
    assert (cmdp.probabilities > 0).all()
    np.testing.assert_allclose(cmdp.probabilities.sum(-1), 1)
    for table in (cmdp.reward, cmdp.costs["wear"]):
        assert table.min() >= 0 and table.max() <= 1
    np.testing.assert_array_equal(cmdp.noise, scale * cmdp.reward**3)
    np.testing.assert_allclose(cmdp.initial, 1 / states)

    again = random_cmdp(states, actions, seed=seed, noise_scale=scale, costs=("wear",))
    for name in ("successors", "probabilities", "reward", "noise", "initial"):
        np.testing.assert_array_equal(getattr(cmdp, name), getattr(again, name))
    np.testing.assert_array_equal(cmdp.costs["wear"], again.costs["wear"])


def test_successors_are_drawn_uniformly():
    counts = np.bincount(random_cmdp(50, 200, seed=3).successors.ravel(), minlength=50)
    expected = 50 * 200 * 4 / 50
    assert ((counts - expected) ** 2 / expected).sum() < 86  # χ² with 49 degrees of freedom, 0.1 %


def test_the_paper_sized_problem_is_small_in_memory_and_its_tables_are_pinned():
    tracemalloc.start()
    cmdp = random_cmdp(seed=5, noise_scale=1.0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10e6  # all keys at once would take 80 MB
    # Published numbers belong to these tables: another way to draw them must not pass unnoticed.
    assert cmdp.successors[0, 0].tolist() == [204, 88, 540, 31, 888, 550, 811]
    assert cmdp.reward[999, 9] == pytest.approx(0.6288260445335323)


def test_gymnasium_accepts_the_environment():
    check_env(gymnasium.make(RANDOM_CMDP, **SMALL).unwrapped)


def test_gymnasium_makes_both_kinds():
    scalar = gymnasium.make(RANDOM_CMDP, **SMALL)
    batched = gymnasium.make_vec(RANDOM_CMDP, num_envs=4, **SMALL)
    assert isinstance(scalar.unwrapped, RandomCmdpEnv)
    assert isinstance(batched, RandomCmdpVectorEnv)
    assert batched.num_envs == 4
    for env in (scalar.unwrapped, batched):
        np.testing.assert_array_equal(env.cmdp.reward, small().reward)
    observation, _ = batched.reset(seed=1)
    assert observation in batched.observation_space
    assert batched.step(batched.action_space.sample())[0] in batched.observation_space


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_one_episode_and_a_batch_of_one_are_the_same(scale):
    scalar, batched = RandomCmdpEnv(small(noise_scale=scale)), RandomCmdpVectorEnv(small(noise_scale=scale), 1)
    actions = np.random.default_rng(0).integers(3, size=20)
    observation, _ = scalar.reset(seed=9)
    batch, _ = batched.reset(seed=9)
    assert batch["state"][0] == observation["state"]
    for action in actions:
        observation, reward, terminated, truncated, info = scalar.step(action)
        batch, rewards, ends, cuts, infos = batched.step(np.array([action]))
        assert (rewards[0], ends[0], cuts[0]) == (reward, terminated, truncated)
        signals = infos["final_info"] if terminated else infos
        assert {name: values[0] for name, values in signals.items()} == info
        if terminated:
            assert infos["final_obs"]["state"][0] == observation["state"]
            assert infos["final_obs"]["time"][0] == observation["time"] == 1
            observation, _ = scalar.reset()
        assert batch["state"][0] == observation["state"]
        assert batch["time"][0] == observation["time"]


def test_a_batch_is_its_episodes_side_by_side():
    count, cmdp = 5, small()
    rng = np.random.default_rng(0)
    uniform, normal = rng.random((cmdp.horizon + 2, count)), rng.standard_normal((cmdp.horizon, count))
    actions = rng.integers(cmdp.actions, size=(cmdp.horizon, count))

    batched = RandomCmdpVectorEnv(cmdp, count)
    batched.np_random = Replay(uniform, normal)
    states, rewards, wear = [batched.reset()[0]["state"]], [], []
    for row in actions:
        observation, reward, over, _, info = batched.step(row)
        last = info.get("final_obs", observation)
        states.append(last["state"])
        rewards.append(reward)
        wear.append((info["final_info"] if over.all() else info)["wear"])

    for episode in range(count):
        scalar = RandomCmdpEnv(cmdp)
        scalar.np_random = Replay(uniform[:, episode], normal[:, episode])
        assert scalar.reset()[0]["state"] == states[0][episode]
        for t in range(cmdp.horizon):
            observation, reward, over, _, info = scalar.step(actions[t, episode])
            assert observation["state"] == states[t + 1][episode]
            assert (reward, info["wear"]) == (rewards[t][episode], wear[t][episode])
        assert over


def test_steps_follow_the_tables():
    cmdp, count = small(horizon=2, noise_scale=0.5), 40_000
    env = RandomCmdpVectorEnv(cmdp, count)
    observation, _ = env.reset(seed=0)
    np.testing.assert_allclose(np.bincount(observation["state"]) / count, 1 / 12, atol=0.008)
    state, action = 4, 2
    env._states[:] = state
    observation, reward, *_, info = env.step(np.full(count, action))
    frequencies = np.bincount(observation["state"], minlength=12) / count
    expected = np.zeros(12)
    expected[cmdp.successors[state, action]] = cmdp.probabilities[state, action]
    np.testing.assert_allclose(frequencies, expected, atol=0.012)
    assert reward.mean() == pytest.approx(cmdp.reward[state, action], abs=5 * cmdp.noise[state, action] / count**0.5)
    assert reward.std() == pytest.approx(cmdp.noise[state, action], rel=0.02)
    assert (info["wear"] == cmdp.costs["wear"][state, action]).all()


def test_episodes_end_by_termination_and_start_again():
    env = RandomCmdpVectorEnv(small(), 3)
    env.reset(seed=0)
    flags = []
    for _ in range(15):
        observation, _, terminated, truncated, info = env.step(np.zeros(3, dtype=np.int64))
        assert not truncated.any()
        assert ("final_obs" in info) == terminated.all() == terminated.any()
        assert terminated.all() == (observation["time"] == 0).all()
        flags.append(bool(terminated.all()))
    assert np.flatnonzero(flags).tolist() == [6, 13]


def test_what_a_step_returns_is_the_callers_own():
    changed, plain = RandomCmdpVectorEnv(small(), 3), RandomCmdpVectorEnv(small(), 3)
    for env in (changed, plain):
        env.reset(seed=0)
    for _ in range(10):
        ours, theirs = (env.step(np.zeros(3, dtype=np.int64)) for env in (changed, plain))
        np.testing.assert_array_equal(ours[0]["state"], theirs[0]["state"])
        np.testing.assert_array_equal(ours[2], theirs[2])
        ours[0]["state"][:] = 0
        ours[1][:] = np.nan
        ours[2][:] = True


def test_one_successor_is_enough():
    env = RandomCmdpVectorEnv(random_cmdp(2, 2, seed=0), 4)
    env.reset(seed=0)
    observation, *_ = env.step(np.zeros(4, dtype=np.int64))
    assert set(observation["state"]) <= set(env.cmdp.successors[:, 0].ravel())


@pytest.mark.parametrize(
    "arguments, field",
    [
        ({"states": 1}, "states"),
        ({"actions": 0}, "action"),
        ({"noise_scale": -1.0}, "noise_scale"),
        ({"noise_scale": math.nan}, "noise_scale"),
        ({"noise_scale": math.inf}, "noise_scale"),
        ({"horizon": 0}, "horizon"),
        ({"costs": ("reward",)}, "costs"),
    ],
)
def test_bad_settings_are_refused_by_name(arguments, field):
    with pytest.raises(SettingsError, match=field):
        small(**arguments)


@pytest.mark.parametrize(
    "name, change",
    [
        ("successors", lambda table: table + 12),
        ("successors", lambda table: table - 12),
        ("successors", lambda table: table[:, :, :1]),
        ("probabilities", lambda table: 2 * table),
        ("probabilities", lambda table: np.stack([1 - table[..., 0] + 1, table[..., 0] - 1, 0 * table[..., 0]], -1)),
        ("reward", lambda table: table * np.nan),
        ("noise", lambda table: -table),
        ("noise", lambda table: table[:5]),
        ("initial", lambda table: table[:5]),
        ("initial", lambda table: 2 * table),
        ("costs", lambda table: {"wear": table["wear"][:2]}),
    ],
)
def test_bad_tables_are_refused_by_name(name, change):
    cmdp = small()
    tables = {field: getattr(cmdp, field) for field in Cmdp.__dataclass_fields__}
    assert isinstance(Cmdp(**tables), Cmdp)
    tables[name] = change(tables[name])
    with pytest.raises(SettingsError, match="wear" if name == "costs" else name):
        Cmdp(**tables)


def test_a_cost_hides_no_table():
    """A cost may be called noise; both are looked at."""
    cmdp = small()
    costs = {"noise": np.ones_like(cmdp.reward)}
    assert replace(cmdp, costs=costs).signal("noise").all()
    with pytest.raises(SettingsError, match=r"Cmdp\.noise: must be finite"):
        replace(cmdp, noise=cmdp.noise * np.nan, costs=costs)
    with pytest.raises(SettingsError, match=r"Cmdp\.costs\['noise'\]: must be finite"):
        replace(cmdp, costs={"noise": costs["noise"] * np.nan})


def test_unknown_signals_are_refused():
    with pytest.raises(SettingsError, match="it emits reward, wear, tear"):
        small().signal("hazards")


@pytest.mark.parametrize("action", [-1, 3])
def test_actions_out_of_range_are_refused(action):
    scalar, batched = RandomCmdpEnv(small()), RandomCmdpVectorEnv(small(), 2)
    scalar.reset(seed=0)
    batched.reset(seed=0)
    with pytest.raises(SettingsError, match="action"):
        scalar.step(action)
    with pytest.raises(SettingsError, match="actions"):
        batched.step(np.array([0, action]))
    with pytest.raises(SettingsError, match="actions"):
        batched.step(np.array([0]))


def test_a_batch_needs_an_episode():
    with pytest.raises(SettingsError, match="num_envs"):
        RandomCmdpVectorEnv(small(), 0)
