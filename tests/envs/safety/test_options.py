"""What can be asked of an environment beyond what the suite has: short-sighted lidars, nearest objects, mirrored
worlds, actions that are shares of a motor's strength."""

import math

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.envs.safety import SafetyEnv, SafetyVectorEnv
from portfolio_sdpo.envs.safety.env import SHORT_SIGHT
from portfolio_sdpo.envs.safety.scene import Folds
from portfolio_sdpo.errors import SettingsError

SUITE = 60
"""Columns of the suite's own observation of PointGoal1: twelve of sensors, three lidars."""
LIDARS = 48
POLARS = 18
KINDS = ("goal", "hazards", "vases")


def parts(observation):
    """The suite's columns, the short-sighted lidars, [measure, kind, closeness and direction] of nearest objects."""
    polars = observation[SUITE + LIDARS : SUITE + LIDARS + POLARS].reshape(2, 3, 3)
    return observation[:SUITE], observation[SUITE : SUITE + LIDARS], polars


def mirrored(seed):
    """A world, and the same with left and right exchanged."""
    envs = [SafetyEnv("PointGoal1", near=True, folded=True) for _ in range(2)]
    for env in envs:
        env.reset(seed=seed)
    image = envs[1]
    model, data = image._inner.model, image._inner.data
    model.body_pos[:, 1] *= -1
    model.body_quat[:, [1, 3]] *= -1  # a turn about x or z goes the other way
    model.opt.magnetic[1] *= -1
    for joint in range(model.njnt):
        if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE:
            first = model.jnt_qposadr[joint]
            data.qpos[[first + 1, first + 4, first + 6]] *= -1
    mujoco.mj_forward(model, data)
    return envs, [env._observe() for env in envs]


def turned(env):
    """Exchange ahead and behind for the robot alone, as it stands."""
    matrix = env._inner.data.xmat[env._scene.robot].reshape(3, 3)
    env._inner.data.xpos[:, 1] *= -1
    matrix = matrix * [[1], [-1], [1]] * [-1, 1, 1]
    env._inner.data.xmat[env._scene.robot] = matrix.ravel()


def test_short_sighted_lidars_follow_the_suites_and_tell_near_from_far() -> None:
    plain, near = SafetyEnv("PointGoal1", clock=False), SafetyEnv("PointGoal1", near=True, clock=False)
    assert near.observation_space.shape == (SUITE + LIDARS + POLARS,)
    ours, both = plain.reset(seed=3)[0], near.reset(seed=3)[0]
    assert near.observation_space.contains(both)
    suite, lidars, _ = parts(both)
    np.testing.assert_array_equal(suite, ours)
    distance = 3.0 * (1.0 - ours[-LIDARS:].astype(np.float64))
    np.testing.assert_allclose(lidars, np.exp(-distance / SHORT_SIGHT), rtol=1e-5)


def test_the_nearest_object_of_every_kind() -> None:
    env = SafetyEnv("PointGoal1", near=True)
    observation, _ = env.reset(seed=5)
    data = env._inner.data
    names = {"goal": ["goal"], "hazards": [f"hazard{i}" for i in range(8)], "vases": ["vase0"]}
    far, short = parts(observation)[2]
    for row, kind in enumerate(KINDS):
        there = [
            data.body("agent").xmat.reshape(3, 3).T @ (data.body(n).xpos - data.body("agent").xpos) for n in names[kind]
        ]
        x, y = min((each[:2] for each in there), key=lambda each: math.hypot(*each))
        away = math.hypot(x, y)
        towards = np.array([1.0, x / away, y / away])
        np.testing.assert_allclose(far[row], max(0.0, 1 - away / 3.0) * towards, atol=1e-6)
        np.testing.assert_allclose(short[row], math.exp(-min(away, 3.0) / SHORT_SIGHT) * towards, atol=1e-6)


def test_buttons_that_cannot_be_seen_have_no_place() -> None:
    env = SafetyEnv("PointButton1", near=True)
    observation, _ = env.reset(seed=0)
    kinds = env._scene.lidars
    assert env._inner.buttons.timer == 0
    nearest = observation[-1 - 6 * len(kinds) : -1].reshape(2, -1, 3)[:, kinds.index("buttons")]
    assert nearest[0, 0] > 0
    env._inner.buttons.timer = 1
    nearest = env._observe()[-1 - 6 * len(kinds) : -1].reshape(2, -1, 3)[:, kinds.index("buttons")]
    np.testing.assert_allclose(nearest, 0.0, atol=1e-4)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_a_world_and_its_mirror_image_go_the_same_way(seed) -> None:
    """All of what is seen, moving and at rest, and what is earned; until rounding makes a difference."""
    envs, observations = mirrored(seed)
    assert (envs[0]._flip * envs[1]._flip).tolist() == [1, -1]
    actions = np.random.default_rng(seed).uniform(-1, 1, (20, 2))
    for action in actions:
        np.testing.assert_allclose(observations[0], observations[1], atol=1e-4)
        outcomes = [env.step(action) for env in envs]
        observations = [outcome[0] for outcome in outcomes]
        assert outcomes[0][1] == pytest.approx(outcomes[1][1], abs=1e-6)
        if envs[0]._flip[0] != envs[1]._flip[0]:  # the goal is just abeam, and rounding decides
            break


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_a_robot_that_faces_the_other_way_sees_the_same(seed) -> None:
    env = SafetyEnv("PointGoal1", near=True, folded=True)
    before, _ = env.reset(seed=seed)
    flip = env._flip
    turned(env)
    np.testing.assert_allclose(env._observe()[12:], before[12:], atol=1e-5)
    np.testing.assert_array_equal(env._flip, flip * [-1, -1])


def test_the_goal_is_ahead_and_to_the_left_of_a_folded_world() -> None:
    env = SafetyEnv("PointGoal1", near=True, folded=True)
    flips = set()
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        close, cosine, sine = parts(observation)[2][0, 0]
        assert close == 0 or (cosine >= 0 and sine >= 0)
        flips.add(tuple(env._flip))
    assert len(flips) == 4


def test_what_is_done_in_folded_worlds_is_done_in_the_real_ones() -> None:
    """Robots that steer by what they see reach their goals, also after their episodes began anew."""
    envs = SafetyVectorEnv(4, near=True, folded=True, horizon=400)
    observations, _ = envs.reset(seed=0)
    reached = np.zeros((2, 4))
    for step in range(802):
        cosine, sine = np.array([parts(each)[2][0, 0, 1:] for each in observations]).T
        angle = np.arctan2(sine, cosine)
        observations, rewards, *_ = envs.step(np.stack([0.5 * np.cos(angle), np.minimum(2 * angle, 1.0)], 1))
        reached[step // 401] += rewards > 0.9
    assert (reached > 0).all()


def test_vectors_and_spins() -> None:
    folds = Folds(["vector", "spin", "plain"])
    moving = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], dtype=np.float32)
    assert folds.apply(moving, np.array([1.0, -1.0])).tolist() == [1.0, -1.0]
    assert moving.tolist() == [1.0, -2.0, 3.0, -4.0, 5.0, -6.0, 7.0]
    assert folds.apply(moving, np.array([-1.0, -1.0])).tolist() == [-1.0, 1.0]
    assert moving.tolist() == [-1.0, 2.0, 3.0, 4.0, -5.0, -6.0, 7.0]


@pytest.mark.parametrize("task", ["CarGoal1", "PointPush1"])
def test_only_a_point_on_its_way_to_a_goal_is_nearly_alike_on_all_sides(task) -> None:
    with pytest.raises(SettingsError, match=f"folded: is for Point on its way to a goal, not for {task}"):
        SafetyVectorEnv(2, task, folded=True)


@pytest.mark.parametrize("task, strength", [("PointGoal1", [0.05, 1.0]), ("CarGoal1", [0.02, 0.02])])
def test_an_action_of_one_is_the_strongest_force_of_a_motor(task, strength) -> None:
    suite, ours, asked_for_more = SafetyEnv(task), SafetyEnv(task, proportional=True), SafetyEnv(task)
    motors = np.array(strength) < 1
    for env in (suite, ours, asked_for_more):
        env.reset(seed=1)
    for share in (1.0, 0.3, -0.6):
        np.testing.assert_array_equal(suite.step(share * np.array(strength))[0], ours.step(np.full(2, share))[0])
    suite.reset(seed=1)
    full = suite.step(np.where(motors, strength, 0.0))[0]
    np.testing.assert_array_equal(asked_for_more.step(motors.astype(float))[0], full)


def test_motors_without_a_limit_take_all() -> None:
    env = SafetyEnv("DoggoGoal1", proportional=True)
    env.reset(seed=0)
    assert env._strength.tolist() == [1.0] * 12
