"""Safety Gym as an environment: what its signals mean, how episodes end, gymnasium's contract, many at once."""

import math
import os
import subprocess
import sys
import warnings

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.envs import SAFETY
from portfolio_sdpo.envs.safety import HORIZON, SIGNALS, TASKS, SafetyEnv, SafetyVectorEnv
from portfolio_sdpo.envs.safety import env as env_module
from portfolio_sdpo.errors import SettingsError

STILL = np.zeros(2, dtype=np.float32)


def place(env, name):
    return env._inner.data.body(name).xpos[:2].copy()


def towards(env, target):
    """The action with which a Point drives to a place: turn there, and go once it lies ahead."""
    x, y = env._inner.agent.mat[:2, :2].T @ (target - place(env, "agent"))
    angle = math.atan2(y, x)
    return np.array([0.8 if abs(angle) < 0.5 else 0.0, np.clip(2 * angle, -1, 1)], dtype=np.float32)


def drive(env, name, steps=150):
    """Follow an object; what every step returned, besides the observation."""
    for _ in range(steps):
        _, *rest = env.step(towards(env, place(env, name)))
        yield rest


def touching(env, word):
    """Whether the robot is in contact with something whose name begins so, as MuJoCo's list of contacts has it."""
    model, data = env._inner.model, env._inner.data
    names = [{model.geom(i).name for i in pair} for pair in data.contact.geom]
    return any({"agent", "pointarrow"} & pair and any(name.startswith(word) for name in pair) for pair in names)


def in_hazard(env):
    hazards = [place(env, f"hazard{i}") for i in range(env._inner.hazards.num)]
    return any(math.dist(place(env, "agent"), hazard) < env._inner.hazards.size for hazard in hazards)


def started(task, seed=0, **options):
    env = SafetyEnv(task, **options)
    env.reset(seed=seed)
    return env


def test_a_drive_into_a_hazard_counts_while_it_lasts():
    env, count = started("PointGoal1"), 0
    for _, terminated, truncated, signals in drive(env, "hazard0"):
        assert signals["hazards"] == signals["cost"] == in_hazard(env)
        assert not terminated and not truncated
        count += signals["hazards"]
    assert count > 5


def test_a_hazard_can_end_the_episode():
    env = started("PointGoal1", terminal_hazards=True)
    for _, terminated, truncated, signals in drive(env, "hazard0"):
        assert terminated == bool(signals["hazards"]) == in_hazard(env) and not truncated
        if terminated:
            break
    else:
        pytest.fail("no hazard was reached")


def test_vases_count_on_contact_only():
    env = started("PointGoal2", seed=1)
    seen = set()
    for _, terminated, _, signals in drive(env, "vase0", 200):
        assert signals["vases"] == touching(env, "vase") and not terminated
        seen.add((signals["vases"], signals["cost"], signals["hazards"]))
    # In contact, and moving on after it: the suite counts both.
    assert {(1.0, 1.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.0)} <= seen


@pytest.mark.parametrize(
    "task, options", [("PointGoal1", {}), ("PointPush1", {"vases": 3}), ("PointButton1", {"vases": 3})]
)
def test_vases_that_the_suite_does_not_constrain_are_counted_but_not_in_cost(task, options):
    env, count = started(task, seed=2, **options), 0
    for _, _, _, signals in drive(env, "vase0", 250):
        assert signals["vases"] == touching(env, "vase")
        if not any(signals[name] for name in ("hazards", "buttons", "gremlins")):
            assert signals["cost"] == 0.0
        count += signals["vases"]
    assert count > 0


def test_added_vases_are_seen():
    plain, env = SafetyEnv("PointPush1"), SafetyEnv("PointPush1", vases=2)
    assert env.observation_space.shape[0] == plain.observation_space.shape[0] + 16
    observation, _ = env.reset(seed=0)
    sensors, row = env._sensors, env._scene.lidars.index("vases")
    lidar = observation[sensors + 16 * row : sensors + 16 * (row + 1)]
    nearest = min(math.dist(place(env, "agent"), place(env, f"vase{i}")) for i in range(2))
    assert lidar.max() == pytest.approx(1 - nearest / 3, abs=0.01)


def test_a_wrong_button_counts_and_the_right_one_pays():
    env = started("PointButton1", seed=4)
    goal = env._inner.buttons.goal_button
    count = 0
    for _, _, _, signals in drive(env, f"button{(goal + 1) % 4}", 200):
        if env._inner.buttons.goal_button != goal:
            break
        wrong = any(touching(env, f"button{i}") for i in range(4) if i != goal)
        assert signals["buttons"] == wrong
        count += signals["buttons"]
    assert count > 0
    env.reset(seed=4)
    rewards = []
    for reward, _, _, signals in drive(env, f"button{goal}", 200):
        rewards.append(reward)
        if reward > 0.9:
            assert signals["buttons"] == 0.0 and env._inner.buttons.timer == 10
            break
    assert max(rewards) > 0.9


@pytest.mark.parametrize(
    "task, name", [("PointButton2", "gremlin0obj"), ("PointPush2", "pillar0"), ("PointPush1", "pillar0")]
)
def test_gremlins_and_pillars_count_on_contact(task, name):
    env, count = started(task, seed=3), 0
    kind = "gremlins" if "gremlin" in name else "pillars"
    for _, _, _, signals in drive(env, name, 250):
        assert signals[kind] == touching(env, kind[:-1])
        count += signals[kind]
        if task == "PointPush1":
            assert signals["cost"] == signals["hazards"]
        elif signals[kind]:
            assert signals["cost"] == 1.0
    assert count > 0


@pytest.mark.parametrize("task", ["PointGoal1", "CarButton2", "DoggoPush2"])
def test_gymnasiums_checker_finds_nothing(task):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(SAFETY, task=task).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_can_be_made_by_name(task):
    env = gymnasium.make(SAFETY, task=task)
    observation, _ = env.reset(seed=0)
    assert observation in env.observation_space
    observation, reward, terminated, truncated, signals = env.step(env.action_space.sample())
    assert observation in env.observation_space and math.isfinite(reward)
    assert tuple(signals) == SIGNALS and not terminated and not truncated


def played(env, seed, steps=30):
    rng = np.random.default_rng(0)
    history = [env.reset(seed=seed)[0]]
    for step in range(steps):
        if step == 20:
            history.append(env.reset()[0])
        history.append(env.step(rng.uniform(-1, 1, env.action_space.shape))[0])
    return np.stack(history)


def test_the_same_seed_gives_the_same_bytes():
    env, other = SafetyEnv("PointGoal2"), SafetyEnv("PointGoal2")
    first = played(env, 7)
    np.testing.assert_array_equal(first, played(other, 7))
    np.testing.assert_array_equal(first, played(env, 7))
    assert not np.array_equal(first, played(env, 8))


@settings(max_examples=8, deadline=None)
@given(st.integers(min_value=0, max_value=2**80))
def test_seeds_of_any_size(seed):
    env = SafetyEnv("PointGoal1")
    first = env.reset(seed=seed)[0]
    np.testing.assert_array_equal(first, env.reset(seed=seed)[0])
    assert not np.array_equal(first, env.reset(seed=seed + 2**32)[0])


def test_episodes_are_truncated_at_the_horizon_and_the_clock_says_how_far_they_are():
    env = SafetyEnv("PointGoal1", horizon=4)
    observation, _ = env.reset(seed=0)
    clocks, truncations = [observation[-1]], []
    for _ in range(4):
        observation, _, terminated, truncated, _ = env.step(STILL)
        clocks.append(observation[-1])
        truncations.append(truncated)
        assert not terminated
    assert clocks == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert truncations == [False, False, False, True]
    assert SafetyEnv("PointGoal1").horizon == HORIZON == 1000


def test_scaling_divides_sensors_and_leaves_the_rest():
    plain, scaled = SafetyEnv("DoggoGoal1", scaled=False, clock=False), SafetyEnv("DoggoGoal1")
    plain.reset(seed=0)
    scaled.reset(seed=0)
    action = np.full(12, 0.5)
    for _ in range(5):
        raw, *_ = plain.step(action)
        observation, *_ = scaled.step(action)
    units = raw / np.where(observation[:-1] == 0, 1, observation[:-1])
    np.testing.assert_allclose(units[:3], 10.0, rtol=1e-5)  # accelerometer
    np.testing.assert_allclose(units[6:9], 3.0, rtol=1e-5)  # gyro
    np.testing.assert_allclose(units[20:32], 3.0, rtol=1e-5)  # velocities of joints
    np.testing.assert_array_equal(raw[3:6], observation[3:6])
    np.testing.assert_array_equal(raw[32:], observation[32:-1])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"task": "PointRun1"}, "task: there is no 'PointRun1'; choose one of PointGoal1, "),
        ({"horizon": 0}, "horizon: must be at least one step"),
        ({"task": "PointPush1", "vases": -1}, "vases: must be between 0 and 20"),
        ({"task": "PointPush1", "vases": 21}, "vases: must be between 0 and 20"),
        ({"task": "CarGoal2", "vases": 1}, "vases: CarGoal2 has its own"),
        ({"render_mode": "human"}, "render_mode: must be rgb_array or nothing"),
    ],
)
def test_wrong_settings_are_named(options, message):
    with pytest.raises(SettingsError, match=message):
        SafetyEnv(**options)


def test_wrong_calls_are_named():
    env = SafetyEnv("PointGoal1")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(STILL)
    env.reset(seed=0)
    for action in ([0.0], 0.0, [np.nan, 0.0], [0.0, np.inf]):
        with pytest.raises(SettingsError, match="action: must be 2 finite numbers"):
            env.step(action)
    with pytest.raises(SettingsError, match="render_mode: pictures were not asked for"):
        env.render()
    with pytest.raises(SettingsError, match="num_envs: must be at least one"):
        SafetyVectorEnv(0)
    with pytest.raises(SettingsError, match="seed: must be a number or 2 of them"):
        SafetyVectorEnv(2).reset(seed=[1, 2, 3])


def test_a_layout_without_room_is_named(monkeypatch):
    env = SafetyEnv("PointPush1", vases=20)

    def fail():
        raise env._suite.ResamplingError

    monkeypatch.setattr(env._inner, "reset", fail)
    with pytest.raises(SettingsError, match="vases: there is no room for so many in PointPush1; ask for fewer"):
        env.reset(seed=0)


@pytest.mark.parametrize("value", [np.nan, 1e12, -np.inf])
@pytest.mark.parametrize("where", ["qpos", "qvel"])
def test_an_unstable_simulation_truncates_the_episode(value, where):
    env = started("CarGoal1")
    getattr(env._inner.data, where)[0] = value
    observation, reward, terminated, truncated, signals = env.step(STILL)
    assert (reward, terminated, truncated) == (-10.0, False, True)
    assert observation in env.observation_space and not any(signals.values())
    env.reset(seed=0)
    assert env.step(STILL)[2:4] == (False, False)


def test_where_there_is_no_room_for_a_goal_the_episode_ends(monkeypatch):
    env = started("PointGoal1")
    env._inner._set_goal(place(env, "agent"))

    def fail():
        raise env._suite.ResamplingError

    monkeypatch.setattr(env._inner, "update_world", fail)
    _, reward, terminated, truncated, _ = env.step(STILL)
    assert reward > 0.9 and terminated and not truncated


def test_many_at_once_are_as_many_one_by_one():
    """Also after an episode is over: the next step resets, whatever the action."""
    options = {"task": "PointGoal2", "horizon": 12, "terminal_hazards": True}
    many, singles = SafetyVectorEnv(3, **options), [SafetyEnv(**options) for _ in range(3)]
    observations, infos = many.reset(seed=11)
    for i, env in enumerate(singles):
        np.testing.assert_array_equal(observations[i], env.reset(seed=11 + i)[0])
    assert all((infos[name] == 0).all() for name in SIGNALS)
    rng, over = np.random.default_rng(0), [False] * 3
    for _ in range(40):
        actions = rng.uniform(-1, 1, (3, 2)).astype(np.float32)
        observations, rewards, terminated, truncated, infos = many.step(actions)
        for i, env in enumerate(singles):
            if over[i]:
                expected = (env.reset()[0], 0.0, False, False, dict.fromkeys(SIGNALS, 0.0))
            else:
                expected = env.step(actions[i])
            np.testing.assert_array_equal(observations[i], expected[0])
            found = (rewards[i], terminated[i], truncated[i], {name: infos[name][i] for name in SIGNALS})
            assert found == expected[1:]
            over[i] = bool(terminated[i] or truncated[i])
    assert observations in many.observation_space


def test_processes_give_what_one_process_gives():
    options = {"num_envs": 2, "task": "CarPush2", "horizon": 8}
    here = gymnasium.make_vec(SAFETY, **options)
    there = gymnasium.make_vec(SAFETY, vectorization_mode="async", vector_kwargs={"context": "spawn"}, **options)
    try:
        assert isinstance(here, SafetyVectorEnv) and here.metadata["autoreset_mode"] == there.metadata["autoreset_mode"]
        np.testing.assert_array_equal(here.reset(seed=5)[0], there.reset(seed=5)[0])
        rng = np.random.default_rng(0)
        for _ in range(20):
            actions = rng.uniform(-1, 1, (2, 2)).astype(np.float32)
            *arrays, infos = here.step(actions)
            *others, other_infos = there.step(actions)
            for ours, theirs in zip(arrays, others, strict=True):
                np.testing.assert_array_equal(ours, theirs)
            for name in SIGNALS:
                np.testing.assert_array_equal(infos[name], other_infos[name])
    finally:
        there.close()
        here.close()


def test_seeds_of_many_can_be_given_one_by_one():
    many = SafetyVectorEnv(2, "PointGoal1")
    observations, _ = many.reset(seed=[9, 9])
    np.testing.assert_array_equal(observations[0], observations[1])
    np.testing.assert_array_equal(observations[0], many.reset(seed=9)[0][0])


def test_pictures_show_hazards_and_goals():
    script = """
import sys
try:
    import mujoco
    mujoco.Renderer(mujoco.MjModel.from_xml_string("<mujoco/>"), 8, 8).close()
except Exception as error:
    sys.exit(f"no OpenGL: {error}")
import numpy as np
from portfolio_sdpo.envs.safety import SafetyEnv
env = SafetyEnv("PointGoal1", render_mode="rgb_array")
env.reset(seed=0)
first = env.render()
assert first.shape == (256, 256, 3) and first.dtype == np.uint8 and first.std() > 10
red, green, blue = np.moveaxis(first.astype(int), -1, 0)
# The floor is bright and the sky is black: blue hazards and a green goal are neither.
assert ((blue > red + 40) & (blue > green + 40)).sum() > 50
assert ((green > red + 20) & (green > blue + 20)).sum() > 50
env.reset(seed=1)
assert (env.render() != first).any()
env.close()
"""
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "MUJOCO_GL": "egl"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "no OpenGL" in run.stderr:
        pytest.skip("no OpenGL without a screen here")
    assert run.returncode == 0, run.stderr


def test_missing_opengl_is_named(monkeypatch):
    def fail(*_):
        raise mujoco.FatalError("an OpenGL platform library has not been loaded into this process")

    monkeypatch.setattr(env_module.mujoco, "Renderer", fail)
    env = started("PointGoal1")
    env.render_mode = "rgb_array"
    with pytest.raises(SettingsError, match=r"render_mode: pictures need OpenGL .*MUJOCO_GL=egl"):
        env.render()
