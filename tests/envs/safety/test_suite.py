"""The suite beside current packages: everything this package computes itself is what the suite would have computed."""

import importlib.util
import logging
import subprocess
import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest

from portfolio_sdpo.envs.safety import ROBOTS, SIGNALS, TASKS, SafetyEnv, suite
from portfolio_sdpo.errors import MissingExtraError

COSTS = {
    "cost": "cost_sum",
    "hazards": "cost_hazards",
    "vases": "cost_vases_contact",
    "buttons": "cost_buttons",
    "gremlins": "cost_gremlins",
    "pillars": "cost_pillars",
}


def own(task):
    """The suite's own environment."""
    robot = next(robot for robot in ROBOTS if task.startswith(robot))
    return suite.build(robot, task.removeprefix(robot))


def actions(shape, count, seed=1):
    """Random ones that go on in a direction for a while."""
    rng, action = np.random.default_rng(seed), np.zeros(shape)
    for _ in range(count):
        action = np.clip(0.9 * action + 0.3 * rng.normal(size=shape), -1, 1)
        yield action.astype(np.float32)


def bring(inner, name, xy):
    """Put an object somewhere."""
    if name in [inner.model.joint(i).name for i in range(inner.model.njnt)]:
        inner.data.joint(name).qpos[:2] = xy
    else:
        inner.model.body(name).pos[:2] = xy
    mujoco.mj_forward(inner.model, inner.data)


def provoke(inner, step):
    """Every tenth step something else comes to the robot: all that it should not meet, and, twice, the goal."""
    robot = inner.agent.pos[:2]
    ahead = inner.agent.mat[:2, 0]
    if step % 10 != 5:
        return
    match step // 10:
        case 0 | 8:
            bring(inner, "hazard1", robot + 0.05)
        case 1:
            if hasattr(inner, "vases"):
                bring(inner, "vase0", robot + 0.15 * ahead)
        case 2:
            if hasattr(inner, "gremlins"):
                # It is tied to a point that leads it, so the tie has to know.
                inner.model.eq("gremlin2mocap").data[3:5] += robot - 0.15 * ahead - inner.gremlins.pos[2][:2]
                bring(inner, "gremlin2obj", robot - 0.15 * ahead)
        case 3:
            if hasattr(inner, "pillars"):
                bring(inner, "pillar0", robot + 0.2 * ahead)
        case 4:
            if hasattr(inner, "buttons"):
                wrong = (inner.buttons.goal_button + 1) % inner.buttons.num
                bring(inner, f"button{wrong}", robot + 0.15 * ahead)
        case 6 | 9:
            if hasattr(inner, "buttons"):
                bring(inner, f"button{inner.buttons.goal_button}", robot - 0.15 * ahead)
            elif hasattr(inner, "push_box"):
                bring(inner, "goal", inner.push_box.pos[:2])
            else:
                bring(inner, "goal", robot)


@pytest.mark.parametrize("task", TASKS)
def test_observations_rewards_and_costs_are_the_suites(task):
    env, reference = SafetyEnv(task, clock=False, scaled=False), own(task)
    observation, info = env.reset(seed=3)
    expected, _ = reference.reset(seed=3)
    np.testing.assert_allclose(observation, expected, rtol=1e-5, atol=1e-5)
    assert info == dict.fromkeys(SIGNALS, 0.0)
    goals, seen = 0, set()
    for step, action in enumerate(actions(env.action_space.shape, 120)):
        provoke(env._inner, step)
        provoke(reference.task, step)
        observation, reward, terminated, truncated, signals = env.step(action)
        expected, gained, cost, ended, _, costs = reference.step(action.astype(np.float64))
        np.testing.assert_allclose(observation, expected, rtol=1e-5, atol=1e-5)
        assert observation in env.observation_space
        assert reward == pytest.approx(gained, abs=1e-9)
        assert signals["cost"] == cost and (terminated, truncated) == (ended, False)
        for name, key in COSTS.items():
            # Absent where the task does not constrain it, and for buttons while none is live.
            if key in costs:
                assert signals[name] == costs[key], (step, name)
        if "Button" in task:
            assert signals["buttons"] == costs.get("cost_buttons", 0.0)
        goals += costs.get("goal_met", False)
        seen |= {name for name, value in signals.items() if value}
    assert goals >= 2
    expected_kinds = {"Goal": {"vases"}, "Button": {"buttons", "gremlins"}, "Push": {"pillars"}}
    kinds = next(found for word, found in expected_kinds.items() if word in task)
    assert {"cost", "hazards", *kinds} <= seen


@pytest.mark.parametrize("task", ["PointGoal1", "DoggoGoal2", "PointButton1", "CarPush1", "PointPush2"])
def test_layouts_are_the_suites(task):
    inner = own(task).task
    inner.reset()
    path = Path(sys.modules[suite.PACKAGE].__path__[0], "utils", "random_generator.py")
    spec = importlib.util.spec_from_file_location("untouched", path)
    untouched = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(untouched)
    fast, slow = inner.random_generator, untouched.RandomGenerator()
    slow.set_placements_info(fast.placements, fast.placements_extents, fast.placements_margin)
    for seed in range(2 if "Button" in task else 25):
        fast.set_random_seed(seed)
        slow.set_random_seed(seed)
        ours, theirs = fast.build_layout(), slow.build_layout()
        assert list(ours) == list(theirs)
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])
        assert fast.uniform() == slow.uniform()


def test_added_vases_leave_the_rest_where_it_is():
    with_vases, without = SafetyEnv("PointPush2", vases=6), SafetyEnv("PointPush2")
    for seed in range(5):
        with_vases.reset(seed=seed)
        without.reset(seed=seed)
        layout = with_vases._inner.world_info.reset_layout
        assert sum(name.startswith("vase") for name in layout) == 6
        for name in set(layout) - {f"vase{i}" for i in range(6)}:
            np.testing.assert_array_equal(layout[name], without._inner.world_info.reset_layout[name])


def test_there_is_room_for_many_vases_among_buttons():
    env = SafetyEnv("PointButton1", vases=20)
    env.reset(seed=1)
    places = [place for name, place in env._inner.world_info.reset_layout.items() if name.startswith("vase")]
    assert len(places) == 20


@pytest.mark.parametrize("task", ["CarGoal2"])
def test_textures_are_compiled_only_for_pictures_and_change_nothing(task):
    plain, textured = SafetyEnv(task), SafetyEnv(task, render_mode="rgb_array")
    for env in (plain, textured):
        env.reset(seed=5)
    assert plain._inner.model.ntex == plain._inner.model.nmat == 0 < textured._inner.model.ntex
    for action in actions(plain.action_space.shape, 60):
        (seen, *rest), (also_seen, *others) = plain.step(action), textured.step(action)
        np.testing.assert_array_equal(seen, also_seen)
        assert rest == others


def test_warnings_are_logged_and_not_written_to_a_file(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    env = SafetyEnv("PointGoal1")
    env.reset(seed=0)
    env._inner.data.qvel[0] = np.nan
    with caplog.at_level(logging.INFO, logger=suite.__name__):
        env.step(np.zeros(2))
    assert "unstable" in caplog.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", [suite.PACKAGE, "xmltodict"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"needs {package}: pip install 'portfolio_sdpo\[safety\]' && .*"):
        suite.load.__wrapped__()


def test_without_mujoco_tasks_can_be_listed_and_nothing_else():
    script = """
import sys
sys.modules["mujoco"] = None
import gymnasium
from portfolio_sdpo.envs import SAFETY
from portfolio_sdpo.envs.safety import TASKS
from portfolio_sdpo.errors import MissingExtraError
assert len(TASKS) == 18
for make in (gymnasium.make, gymnasium.make_vec):
    try:
        make(SAFETY)
    except MissingExtraError as error:
        assert "needs the package mujoco: pip install" in str(error), error
    else:
        raise AssertionError
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_registering_the_environment_imports_no_mujoco():
    script = "import sys, portfolio_sdpo.envs, portfolio_sdpo.envs.safety; sys.exit('mujoco' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
