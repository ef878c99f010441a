"""What can be asked of an environment beyond what the suite has: short-sighted lidars, nearest objects, mirrored
worlds, actions that are shares of a motor's strength."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portfolio_sdpo.envs.safety import SafetyEnv, SafetyVectorEnv
from portfolio_sdpo.envs.safety.env import SHORT_SIGHT
from portfolio_sdpo.envs.safety.folds import Folds
from portfolio_sdpo.errors import SettingsError

SUITE = 60
"""Columns of the suite's own observation of PointGoal1: twelve of sensors, three lidars."""
LIDARS = 48
POLARS = 18
KINDS = ("goal", "hazards", "vases")


def seen(env):
    """The parts of an observation: the suite's, the short-sighted lidars, [measure, kind, closeness and direction]."""
    observation = env._observe()
    polars = observation[SUITE + LIDARS : SUITE + LIDARS + POLARS].reshape(2, 3, 3)
    return observation[:SUITE], observation[SUITE : SUITE + LIDARS], polars


def mirror(env, axis):
    """Put everything in its place across a line, the robot too: mirrored left for right (1) or ahead for behind (0)."""
    data, robot = env._inner.data, env._scene.robot
    data.xpos[:, 1] *= -1
    matrix = data.xmat[robot].reshape(3, 3).copy()
    matrix[1] *= -1
    matrix[:, axis] *= -1  # which of its own axes changes sides, so that this is a rotation again
    data.xmat[robot] = matrix.ravel()


def test_short_sighted_lidars_follow_the_suites_and_tell_near_from_far() -> None:
    plain, near = SafetyEnv("PointGoal1", clock=False), SafetyEnv("PointGoal1", near=True, clock=False)
    assert near.observation_space.shape == (SUITE + LIDARS + POLARS,)
    ours, both = plain.reset(seed=3)[0], near.reset(seed=3)[0]
    assert near.observation_space.contains(both)
    suite, lidars, _ = seen(near)
    np.testing.assert_array_equal(suite, ours)
    distance = 3.0 * (1.0 - ours[-LIDARS:].astype(np.float64))
    np.testing.assert_allclose(lidars, np.exp(-distance / SHORT_SIGHT), rtol=1e-5)


def test_the_nearest_object_of_every_kind() -> None:
    env = SafetyEnv("PointGoal1", near=True)
    env.reset(seed=5)
    data = env._inner.data
    names = {"goal": ["goal"], "hazards": [f"hazard{i}" for i in range(8)], "vases": ["vase0"]}
    far, short = seen(env)[2]
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
    env.reset(seed=0)
    scene = env._scene
    row = scene.lidars.index("buttons")
    assert scene.nearest()[0][row] > 0
    assert scene.nearest("buttons")[0][row] == 0


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), axis=st.sampled_from([0, 1]))
def test_a_world_and_its_mirror_image_look_the_same(seed, axis) -> None:
    env = SafetyEnv("PointGoal1", near=True, folded=True)
    before, _ = env.reset(seed=seed)
    flip = env._flip
    mirror(env, axis)
    env._inner.data.sensordata[:] = 0.0  # at rest, but for gravity and the magnetic field
    after = env._observe()
    np.testing.assert_allclose(after[12:], before[12:], atol=1e-5)
    # Mirrored left for right a robot turns the other way, ahead for behind it also drives the other way.
    np.testing.assert_array_equal(env._flip, flip * ([1, -1] if axis == 1 else [-1, -1]))


def test_the_goal_is_ahead_and_to_the_left_of_a_folded_world() -> None:
    env = SafetyEnv("PointGoal1", near=True, folded=True)
    flips = set()
    for seed in range(20):
        env.reset(seed=seed)
        close, cosine, sine = seen(env)[2][0, 0]
        assert close == 0 or (cosine >= 0 and sine >= 0)
        flips.add(tuple(env._flip))
    assert len(flips) == 4


@pytest.mark.parametrize("seed", range(8))
def test_what_is_done_in_a_folded_world_is_done_in_the_real_one(seed) -> None:
    env = SafetyEnv("PointGoal1", near=True, folded=True)
    env.reset(seed=seed)
    for _ in range(400):
        cosine, sine = seen(env)[2][0, 0, 1:]
        angle = math.atan2(sine, cosine)
        _, reward, *_ = env.step(np.array([0.5 * math.cos(angle), min(2 * angle, 1.0)]))
        if reward > 0.9:
            return
    pytest.fail("the goal was not reached")


def test_vectors_and_spins() -> None:
    folds = Folds(["vector", "spin", "plain"])
    moving = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], dtype=np.float32)
    assert folds.apply(moving, np.array([1.0, -1.0])).tolist() == [1.0, -1.0]
    assert moving.tolist() == [1.0, -2.0, 3.0, -4.0, 5.0, -6.0, 7.0]
    assert folds.apply(moving, np.array([-1.0, -1.0])).tolist() == [-1.0, 1.0]
    assert moving.tolist() == [-1.0, 2.0, 3.0, 4.0, -5.0, -6.0, 7.0]


def test_only_point_is_alike_on_all_sides() -> None:
    with pytest.raises(SettingsError, match="folded: only Point is alike on all sides, Car is not"):
        SafetyVectorEnv(2, "CarGoal1", folded=True)


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
