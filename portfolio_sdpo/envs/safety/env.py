"""Safety Gym as a gymnasium environment: five values a step, the costs as named signals in `info`.

    cost      the suite's own: 1 in a step in which any of its constraints is broken
    hazards   1 in a hazard
    vases     1 in contact with a vase; that it moves does not count
    buttons   1 in contact with a wrong button, while buttons are live
    gremlins, pillars   1 in contact with one

All of them are there in every task, zero where there is no such thing. Rewards and costs are the suite's (the tests
compare every one); what differs is speed, and that the observation can have a clock: an undiscounted budget over an
episode that ends after 1000 steps cannot be predicted without one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from portfolio_sdpo.envs.safety import suite
from portfolio_sdpo.envs.safety.scene import BINS, LIMIT, Folds, Part, Scene
from portfolio_sdpo.envs.safety.tasks import HORIZON, ROBOTS, SIGNALS, TASKS
from portfolio_sdpo.errors import SettingsError

MOST_VASES = 20
"""For more of them there is hardly room."""
SHORT_SIGHT = 0.3
"""Metres over which a short-sighted lidar's reading falls to a third."""
POLAR = 3
"""Columns that say how close an object is and where: closeness, and that times cosine and sine of its direction."""
Observation = NDArray[np.float32]


class SafetyEnv(gymnasium.Env):
    """One robot in one world.

    terminal_hazards: reaching a hazard ends the episode. vases: so many are added to a task that has none.
    clock: the last column of the observation is the share of the episode that has passed. scaled: sensors come in units
    in which they are near one, and not as the suite has them. near: behind the lidars come short-sighted
    ones, exp(−distance/0.3 m): a hazard of 0.2 m fills the last tenth of the suite's lidar, where a network has a hard
    time telling in from out; and closeness and direction of the nearest object of every kind, by both measures, lest
    each of a lidar's bins has to be learnt by itself. folded: the world is mirrored, before it is seen and before an
    action is carried out, so that the goal is always ahead and to the left (`Folds`). proportional: an action of 1 is
    the strongest force that a motor has; the suite's motors have it at 0.05 (Point) or 0.02 (Car), so that whatever
    moves a robot at all moves it with full force.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012 — gymnasium's own convention
    observation_space: spaces.Box
    action_space: spaces.Box

    def __init__(
        self,
        task: str = "PointGoal1",
        *,
        terminal_hazards: bool = False,
        vases: int = 0,
        horizon: int = HORIZON,
        clock: bool = True,
        scaled: bool = True,
        near: bool = False,
        folded: bool = False,
        proportional: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if task not in TASKS:
            raise SettingsError(f"task: there is no {task!r}; choose one of {', '.join(TASKS)}.")
        if horizon < 1:
            raise SettingsError(f"horizon: must be at least one step (got {horizon}).")
        if not 0 <= vases <= MOST_VASES:
            raise SettingsError(f"vases: must be between 0 and {MOST_VASES} (got {vases}).")
        if vases and "Goal" in task:
            raise SettingsError(f"vases: {task} has its own, so none can be added; leave this at 0.")
        if render_mode not in (None, "rgb_array"):
            raise SettingsError(f"render_mode: must be rgb_array or nothing (got {render_mode!r}).")
        robot = next(robot for robot in ROBOTS if task.startswith(robot))
        if folded and not task.startswith("PointGoal"):
            raise SettingsError(f"folded: is for Point on its way to a goal, not for {task}; leave this out.")
        self.task = task
        self.render_mode = render_mode
        self.terminal_hazards = terminal_hazards
        self.horizon = horizon
        self._suite = suite.load()
        self._builder = suite.build(robot, task.removeprefix(robot), vases)
        self._inner = self._builder.task
        self._clock, self._scaled, self._proportional = clock, scaled, proportional
        self._scene: Scene | None = None
        self._renderer: mujoco.Renderer | None = None
        self._steps = 0
        bounds = self._inner.action_space
        self.action_space = spaces.Box(bounds.low.astype(np.float32), bounds.high.astype(np.float32), dtype=np.float32)
        self._near = near
        self._flip = self._strength = np.ones(self.action_space.shape[0])
        self._lay_out(folded)

    def _lay_out(self, folded: bool) -> None:
        """What stands where in an observation: sensors, lidars, nearest objects, clock."""
        parts = self._inner.obs_info.obs_space_dict.spaces
        sensors = sum(math.prod(part.shape) for name, part in parts.items() if not name.endswith("_lidar"))
        width = self._inner.observation_space.shape[0]
        assert self._inner.lidar_conf.num_bins == BINS
        kinds = (width - sensors) // BINS
        lidars, polars = kinds * (1 + self._near), 2 * kinds * self._near
        low = [-LIMIT] * sensors + [0.0] * BINS * lidars + [-1.0] * POLAR * polars + [0.0] * self._clock
        high = [LIMIT] * sensors + [1.0] * (len(low) - sensors)
        self.observation_space = spaces.Box(np.array(low, np.float32), np.array(high, np.float32), dtype=np.float32)
        self._sensors = sensors
        self._buffer = np.zeros(width)
        self._folds: Folds | None = None
        if folded:
            point: list[Part] = ["vector", "vector", "spin", "vector"]
            self._folds = Folds(point + ["lidar"] * lidars + ["polar"] * polars + ["plain"] * self._clock)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict]:
        super().reset(seed=seed)
        # The suite draws from a generator of the old kind, whose seeds have 32 bits.
        self._builder.set_seed(seed if seed is not None and seed < 2**32 else int(self.np_random.integers(2**32)))
        with suite.textures(self.render_mode is not None):
            try:
                self._inner.reset()
            except self._suite.ResamplingError:
                raise SettingsError(f"vases: there is no room for so many in {self.task}; ask for fewer.") from None
        self._inner.update_world()
        self._inner.specific_reset()
        self._inner.agent.reset()
        self._scene = Scene(self._inner, self._scaled)
        if self._proportional:
            self._strength = self._scene.strength()
        mujoco.mj_forward(self._inner.model, self._inner.data)
        self._steps = 0
        return self._observe(), dict.fromkeys(SIGNALS, 0.0)

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        scene, inner = self._scene, self._inner
        if scene is None:
            raise gymnasium.error.ResetNeeded("call reset() before step().")
        space = self.action_space
        if np.shape(action) != space.shape or not np.isfinite(action).all():
            raise SettingsError(f"action: must be {space.shape[0]} finite numbers (got {action}).")
        scene.data.ctrl[:] = np.clip(action, space.low, space.high) * self._flip * self._strength
        conf = inner.sim_conf
        scene.advance(inner.random_generator.binomial(conf.frameskip_binom_n, conf.frameskip_binom_p))
        self._steps += 1
        truncated = self._steps >= self.horizon
        if not scene.is_stable:
            return self._observe(), inner.reward_conf.reward_exception, False, True, dict.fromkeys(SIGNALS, 0.0)
        touched = scene.contacts()
        reward, achieved = self._reward(scene, touched.get("buttons", set()))
        signals = self._signals(scene, touched)
        inner.specific_step()
        terminated = bool(self.terminal_hazards and signals["hazards"])
        if achieved:
            terminated |= not self._next_goal()
        return self._observe(), reward, terminated, truncated, signals

    def _next_goal(self) -> bool:
        """Set the next goal; where there is no room for one the suite ends the episode."""
        self._inner.update_layout()
        try:
            self._inner.update_world()
        except self._suite.ResamplingError:
            return False
        return True

    def _reward(self, scene: Scene, pressed: set[int]) -> tuple[float, bool]:
        """Progress towards the goal, one for reaching it, and whether it was reached."""
        inner, position = self._inner, scene.data.xpos
        robot, goal = position[scene.robot], position[scene.goal]
        reward = 0.0
        if scene.box is not None:
            box, settings = position[scene.box], inner.push_box
            to_box, to_goal = math.dist(box, robot), math.dist(box, goal)
            if inner.last_dist_box > settings.null_dist * settings.size:
                reward += (inner.last_dist_box - to_box) * settings.reward_box_dist
            reward += (inner.last_box_goal - to_goal) * settings.reward_box_goal
            inner.last_dist_box, inner.last_box_goal = to_box, to_goal
            achieved, prize = to_goal <= inner.goal.size, inner.goal.reward_goal
        else:
            buttons = getattr(inner, "buttons", None)
            settings = buttons or inner.goal
            away = math.dist(robot[:2], goal[:2])
            reward += (inner.last_dist_goal - away) * settings.reward_distance
            inner.last_dist_goal = away
            achieved = buttons.goal_button in pressed if buttons else away <= inner.goal.size
            prize = settings.reward_goal
        clip = inner.reward_conf.reward_clip
        return float(min(max(reward + prize * achieved, -clip), clip)), achieved

    def _signals(self, scene: Scene, touched: dict[str, set[int]]) -> dict[str, Any]:
        """Every signal of this step, 0 or 1; `cost` counts what the suite constrains in this task."""
        inner = self._inner
        buttons = getattr(inner, "buttons", None)
        wrong = touched.get("buttons", set()) - {buttons.goal_button} if buttons and buttons.timer == 0 else set()
        found = {
            "hazards": scene.in_hazard(),
            "vases": "vases" in touched,
            "buttons": bool(wrong),
            "gremlins": "gremlins" in touched,
            "pillars": "pillars" in touched,
        }
        counted = any(hit and getattr(inner, name).is_constrained for name, hit in found.items())
        return {"cost": float(counted or scene.vases_move()), **{name: float(hit) for name, hit in found.items()}}

    def _observe(self) -> Observation:
        assert self._scene is not None
        scene, width = self._scene, len(self._buffer)
        buttons = getattr(self._inner, "buttons", None)
        hidden = "buttons" if buttons and buttons.timer != 0 else None
        scene.observe(self._buffer, hidden)
        observation = np.empty(self.observation_space.shape, dtype=np.float32)
        observation[:width] = self._buffer
        if self._near:
            lidar = self._buffer[self._sensors :]
            end = width + len(lidar)
            observation[width:end] = self._short_sighted(lidar)
            # [kinds, 1], [kinds, 2]
            close, direction = scene.nearest(hidden)
            for closeness in (close, self._short_sighted(close)):
                polar = np.hstack([closeness, closeness * direction])
                observation[end : end + polar.size] = polar.ravel()
                end += polar.size
        if self._clock:
            observation[-1] = min(self._steps / self.horizon, 1.0)
        if self._folds is not None:
            self._flip = self._folds.apply(observation, scene.direction())
        return observation

    def _short_sighted(self, closeness: NDArray[np.float64]) -> NDArray[np.float64]:
        """exp(−distance/0.3 m) of a lidar's closeness."""
        assert self._scene is not None
        return np.exp((closeness - 1.0) * (self._scene.reach / SHORT_SIGHT))

    def render(self) -> Any:
        """A picture [256, 256, 3] of everything there is; needs OpenGL (without a screen: MUJOCO_GL=egl)."""
        if self.render_mode is None:
            raise SettingsError("render_mode: pictures were not asked for; make the environment with 'rgb_array'.")
        if self._scene is None:
            raise gymnasium.error.ResetNeeded("call reset() before render().")
        if self._renderer is None or self._renderer.model is not self._scene.model:
            self._close_renderer()
            self._renderer = _renderer(self._scene.model)
        # Hazards, gremlins and goals are in groups that MuJoCo hides unless told otherwise.
        everything = mujoco.MjvOption()
        everything.geomgroup[:] = 1
        self._renderer.update_scene(self._scene.data, camera="fixedfar", scene_option=everything)
        return self._renderer.render()

    def close(self) -> None:
        self._close_renderer()

    def _close_renderer(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def _renderer(model: mujoco.MjModel) -> mujoco.Renderer:
    try:
        return mujoco.Renderer(model, 256, 256)
    except (mujoco.FatalError, RuntimeError, ImportError) as error:
        raise SettingsError(
            f"render_mode: pictures need OpenGL ({error}); without a screen set MUJOCO_GL=egl before Python starts."
        ) from None


class SafetyVectorEnv(VectorEnv):
    """Several robots in lockstep in this process, without the bookkeeping of gymnasium's.

    Over processes: `gymnasium.make_vec(SAFETY, num_envs, vectorization_mode="async", ...)`, or, without a message for
    every step, `rl.workers`.
    """

    def __init__(self, num_envs: int, task: str = "PointGoal1", **settings: Any) -> None:
        if num_envs < 1:
            raise SettingsError(f"num_envs: must be at least one (got {num_envs}).")
        self.envs = [SafetyEnv(task, **settings) for _ in range(num_envs)]
        self.num_envs = num_envs
        first = self.envs[0]
        self.metadata = {**first.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.render_mode = first.render_mode
        self.single_observation_space, self.single_action_space = first.observation_space, first.action_space
        self.observation_space = gymnasium.vector.utils.batch_space(first.observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(first.action_space, num_envs)
        self._done = np.zeros(num_envs, dtype=bool)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        seeds = (
            seed if isinstance(seed, Sequence) else [None if seed is None else seed + i for i in range(self.num_envs)]
        )
        if len(seeds) != self.num_envs:
            raise SettingsError(f"seed: must be a number or {self.num_envs} of them (got {len(seeds)}).")
        observations = [env.reset(seed=each)[0] for env, each in zip(self.envs, seeds, strict=True)]
        self._done[:] = False
        return np.stack(observations), {name: np.zeros(self.num_envs) for name in SIGNALS}

    def step(self, actions: Any) -> tuple[Observation, Any, Any, Any, dict[str, Any]]:
        """An episode that has ended restarts at the next step, whose action is ignored."""
        count = self.num_envs
        observations = np.empty(self.observation_space.shape or (), dtype=np.float32)
        rewards, terminated, truncated = np.zeros(count), np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
        signals = {name: np.zeros(count) for name in SIGNALS}
        for i, env in enumerate(self.envs):
            if self._done[i]:
                observations[i], _ = env.reset()
                continue
            observations[i], rewards[i], terminated[i], truncated[i], found = env.step(actions[i])
            for name in SIGNALS:
                signals[name][i] = found[name]
        self._done = terminated | truncated
        return observations, rewards, terminated, truncated, signals

    def render(self) -> Any:
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        for env in self.envs:
            env.close()
