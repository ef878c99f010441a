"""Random constrained Markov decision processes (paper, section 6 and appendix A.1), scalar and batched.

N states, M actions, ⌈ln N⌉ successors for every state-action pair, rewards U[0, 1], episodes of fixed length. In the
noisy variant the reward has a Gaussian noise of standard deviation scale · r(s, a)³: high reward is risky, so that
a bound on variance or CVaR binds at the optimum.

The tables (`Cmdp`) know nothing of gymnasium; `RandomCmdpEnv` (one episode) and `RandomCmdpVectorEnv` (many episodes,
array-backed) step through them and give the same trajectories for the same random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from portfolio_sdpo.errors import SettingsError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Cmdp:
    """A finite-horizon CMDP as tables, N states, M actions, K successors per pair.

    `costs` maps the name of each further signal to its table; a signal that is not stochastic beyond the choice of
    state and action has noise zero, and only the reward may have noise.
    """

    successors: NDArray[np.int64]
    """[N, M, K] indices of the states that can follow."""
    probabilities: Array
    """[N, M, K] their probabilities; the last axis sums to one."""
    reward: Array
    """[N, M] expected reward."""
    noise: Array
    """[N, M] standard deviation of the Gaussian noise on the reward."""
    initial: Array
    """[N] distribution of the first state."""
    horizon: int
    """Steps in an episode."""
    costs: Mapping[str, Array] = field(default_factory=dict)
    """Name → [N, M] table of a further signal."""

    def __post_init__(self) -> None:
        pairs = self.reward.shape
        if self.successors.shape != self.probabilities.shape or self.successors.shape[:2] != pairs:
            raise SettingsError(
                f"Cmdp.successors: shape {self.successors.shape} must be that of probabilities "
                f"{self.probabilities.shape} and begin with that of reward {pairs}."
            )
        if self.horizon < 1:
            raise SettingsError(f"Cmdp.horizon: an episode needs at least one step (got {self.horizon}).")
        if self.successors.size == 0 or self.successors.min() < 0 or self.successors.max() >= self.states:
            raise SettingsError(f"Cmdp.successors: must be states, that is between 0 and {self.states - 1}.")
        if self.initial.shape != (self.states,):
            raise SettingsError(f"Cmdp.initial: must have shape ({self.states},) (got {self.initial.shape}).")
        for name, table in {"probabilities": self.probabilities, "initial": self.initial}.items():
            if not (table >= 0.0).all() or not np.allclose(table.sum(-1), 1.0):
                raise SettingsError(f"Cmdp.{name}: must be probabilities that sum to one.")
        if "reward" in self.costs:
            raise SettingsError("Cmdp.costs: 'reward' is the name of the reward, so a cost needs another one.")
        costs = {f"costs[{name!r}]": table for name, table in self.costs.items()}
        for name, table in {"reward": self.reward, "noise": self.noise, **costs}.items():
            if table.shape != pairs or not np.isfinite(table).all():
                raise SettingsError(f"Cmdp.{name}: must be finite and of shape {pairs}.")
        if (self.noise < 0.0).any():
            raise SettingsError("Cmdp.noise: a standard deviation must not be negative.")

    @property
    def states(self) -> int:
        return int(self.reward.shape[0])

    @property
    def actions(self) -> int:
        return int(self.reward.shape[1])

    def signal(self, name: str) -> Array:
        """[N, M] expected value of a signal, `reward` or a cost."""
        if name != "reward" and name not in self.costs:
            known = ", ".join(["reward", *self.costs])
            raise SettingsError(f"signal: this CMDP has no {name!r}; it emits {known}.")
        return self.reward if name == "reward" else self.costs[name]


def random_cmdp(
    states: int = 1000,
    actions: int = 10,
    *,
    seed: int,
    noise_scale: float = 0.0,
    horizon: int = 100,
    costs: tuple[str, ...] = (),
) -> Cmdp:
    """Draw a CMDP of the paper's kind; `noise_scale` > 0 gives the noisy variant, `costs` adds U[0, 1] signals.

    >>> random_cmdp(50, 4, seed=5).successors.shape
    (50, 4, 4)
    """
    if states < 2 or actions < 1:
        raise SettingsError(f"random_cmdp: needs at least 2 states and 1 action (got {states} and {actions}).")
    if not 0.0 <= noise_scale < math.inf:
        raise SettingsError(f"random_cmdp.noise_scale: must be finite and not negative (got {noise_scale}).")
    rng = np.random.default_rng(seed)
    count = math.ceil(math.log(states))
    successors = np.stack([_distinct(actions, states, count, rng) for _ in range(states)])
    weights = rng.random((states, actions, count))
    reward = rng.random((states, actions))
    return Cmdp(
        successors=successors,
        probabilities=weights / weights.sum(-1, keepdims=True),
        reward=reward,
        noise=noise_scale * reward**3,
        initial=np.full(states, 1.0 / states),
        horizon=horizon,
        costs={name: rng.random((states, actions)) for name in costs},
    )


def _distinct(rows: int, states: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """[rows, count] states, drawn without replacement in each row: those of the `count` smallest of N random keys."""
    keys = rng.random((rows, states))
    smallest = np.argpartition(keys, count - 1, axis=-1)[:, :count]
    # In the order of their keys, so that the tables of a seed do not depend on how the partition is made.
    order = np.take_along_axis(keys, smallest, axis=-1).argsort(axis=-1)
    return np.take_along_axis(smallest, order, axis=-1)


class CmdpDynamics:
    """The dynamics that both environments share: states of B episodes, one stream of random numbers."""

    def __init__(self, cmdp: Cmdp) -> None:
        self.cmdp = cmdp
        pairs, fan = cmdp.states * cmdp.actions, cmdp.successors.shape[-1]
        # Sampling by inversion: successor k is taken when u falls between the (k-1)-th and k-th cumulated probability.
        self._thresholds = np.cumsum(cmdp.probabilities, axis=-1)[..., :-1].reshape(pairs, fan - 1)
        self._successors = cmdp.successors.reshape(pairs, fan)
        self._initial_thresholds = np.cumsum(cmdp.initial)[:-1]
        self._tables = {"reward": cmdp.reward.ravel(), **{name: table.ravel() for name, table in cmdp.costs.items()}}
        self._noise = cmdp.noise.ravel() if cmdp.noise.any() else None

    def first_states(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """[count] draws from the distribution of the first state."""
        return np.searchsorted(self._initial_thresholds, rng.random(count), side="right")

    def step(
        self, states: NDArray[np.int64], actions: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[NDArray[np.int64], dict[str, Array]]:
        """The next states [B] and every signal [B] of taking `actions` [B] in `states` [B]."""
        pairs = states * self.cmdp.actions + actions
        choice = (rng.random(len(pairs))[:, None] >= self._thresholds[pairs]).sum(axis=1)
        signals = {name: table[pairs] for name, table in self._tables.items()}
        if self._noise is not None:
            signals["reward"] = signals["reward"] + self._noise[pairs] * rng.standard_normal(len(pairs))
        return self._successors[pairs, choice], signals


def _observation_space(cmdp: Cmdp) -> spaces.Dict:
    return spaces.Dict({"state": spaces.Discrete(cmdp.states), "time": spaces.Box(0.0, 1.0, (1,), np.float32)})


class RandomCmdpEnv(gymnasium.Env[dict[str, Any], np.int64]):
    """One episode at a time; `info` carries the further signals by name."""

    def __init__(self, cmdp: Cmdp) -> None:
        self.cmdp = cmdp
        self.observation_space = _observation_space(cmdp)
        self.action_space = spaces.Discrete(cmdp.actions)
        self._dynamics = CmdpDynamics(cmdp)
        self._state = 0
        self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self._state = int(self._dynamics.first_states(1, self.np_random)[0])
        self._time = 0
        return self._observation(), {}

    def step(self, action: int | np.int64) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        if not 0 <= action < self.cmdp.actions:
            raise SettingsError(f"action: must be between 0 and {self.cmdp.actions - 1} (got {action}).")
        states, signals = self._dynamics.step(np.array([self._state]), np.array([int(action)]), self.np_random)
        self._state = int(states[0])
        self._time += 1
        reward = float(signals.pop("reward")[0])
        info = {name: float(value[0]) for name, value in signals.items()}
        # The horizon is part of the problem (it is in the observation), so its end is a termination.
        return self._observation(), reward, self._time >= self.cmdp.horizon, False, info

    def _observation(self) -> dict[str, Any]:
        time = np.array([self._time / self.cmdp.horizon], dtype=np.float32)
        return {"state": np.int64(self._state), "time": time}


class RandomCmdpVectorEnv(VectorEnv[dict[str, Any], NDArray[np.int64], NDArray[Any]]):
    """`num_envs` episodes side by side on arrays: the fast path of the random-CMDP experiments.

    All episodes have the same length, so they all end, and start again, in the same step. The `info` of that step
    carries `final_obs`, batched as an observation is, and the signals in `final_info`.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 — gymnasium's own convention

    def __init__(self, cmdp: Cmdp, num_envs: int) -> None:
        if num_envs < 1:
            raise SettingsError(f"RandomCmdpVectorEnv.num_envs: needs at least one episode (got {num_envs}).")
        self.cmdp = cmdp
        self.num_envs = num_envs
        self.single_observation_space = _observation_space(cmdp)
        self.single_action_space = spaces.Discrete(cmdp.actions)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self._dynamics = CmdpDynamics(cmdp)
        self._states = np.zeros(num_envs, dtype=np.int64)
        self._time = 0

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed if not isinstance(seed, list) else seed[0], options=options)
        self._restart()
        return self._observation(), {}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[dict[str, Any], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        if actions.shape != (self.num_envs,) or actions.min() < 0 or actions.max() >= self.cmdp.actions:
            raise SettingsError(
                f"actions: must be {self.num_envs} numbers between 0 and {self.cmdp.actions - 1} (got {actions!r})."
            )
        self._states, signals = self._dynamics.step(self._states, actions, self.np_random)
        self._time += 1
        reward = signals.pop("reward")
        over = self._time >= self.cmdp.horizon
        terminated, truncated = np.full(self.num_envs, over), np.zeros(self.num_envs, dtype=bool)
        if not over:
            return self._observation(), reward, terminated, truncated, signals
        final = {"final_obs": self._observation(), "final_info": signals}
        self._restart()
        return self._observation(), reward, terminated, truncated, final

    def _restart(self) -> None:
        self._states = self._dynamics.first_states(self.num_envs, self.np_random)
        self._time = 0

    def _observation(self) -> dict[str, Any]:
        time = np.full((self.num_envs, 1), self._time / self.cmdp.horizon, dtype=np.float32)
        return {"state": self._states.copy(), "time": time}


def make_random_cmdp_env(
    states: int = 1000,
    actions: int = 10,
    seed: int = 0,
    noise_scale: float = 0.0,
    horizon: int = 100,
    costs: tuple[str, ...] = (),
) -> RandomCmdpEnv:
    """One episode of `random_cmdp(...)`, for `gymnasium.make`; `seed` is that of the tables."""
    return RandomCmdpEnv(random_cmdp(states, actions, seed=seed, noise_scale=noise_scale, horizon=horizon, costs=costs))


def make_random_cmdp_vector_env(
    num_envs: int = 1,
    states: int = 1000,
    actions: int = 10,
    seed: int = 0,
    noise_scale: float = 0.0,
    horizon: int = 100,
    costs: tuple[str, ...] = (),
) -> RandomCmdpVectorEnv:
    """`num_envs` episodes of `random_cmdp(...)`, for `gymnasium.make_vec`; `seed` is that of the tables."""
    cmdp = random_cmdp(states, actions, seed=seed, noise_scale=noise_scale, horizon=horizon, costs=costs)
    return RandomCmdpVectorEnv(cmdp, num_envs)
