"""Hedging: a loss by chance that the state remembers, and then a choice that cancels or enlarges it.

Every round has two steps. In the first a shock of ±1 is added to the loss, whatever the action. In the second the
action decides how much of a shock is left, and riskier ones pay more:

    action        0 hedge    1 leave    2 amplify
    loss            −shock        0        +shock
    reward             0          1           2

The risk is that of the whole loss, so what a choice adds to it depends on what has been before: an amplified shock
widens the distribution just as much as a hedged one narrows it, and neither can be told from the shock's size or the
choice alone. An average over pasts that do not belong to the state shows no difference between them.
`envs.exact.solve_hedging` has the best policy under a bound.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from portfolio_sdpo.errors import SettingsError

ACTIONS = 3
"""Hedge, leave, amplify; the number is the reward."""


class HedgingVectorEnv(VectorEnv[NDArray[Any], NDArray[np.int64], NDArray[Any]]):
    """`num_envs` episodes of so many rounds side by side; the signal `loss` is in `info`.

    Observed are the share of the episode that is over, the loss so far, and the shock that waits for an answer (0 in
    the first step of a round).

    >>> env = HedgingVectorEnv(num_envs=4, rounds=5)
    >>> env.reset(seed=0)[0][0]
    array([0., 0., 0.], dtype=float32)
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 — gymnasium's own convention

    def __init__(self, num_envs: int, rounds: int = 1) -> None:
        if num_envs < 1 or rounds < 1:
            raise SettingsError(
                f"HedgingVectorEnv: needs at least one episode and one round (got {num_envs} and {rounds})."
            )
        self.num_envs = num_envs
        self.rounds = rounds
        low, high = np.array([0, -2 * rounds, -1], np.float32), np.array([1, 2 * rounds, 1], np.float32)
        self.single_observation_space = spaces.Box(low, high)
        self.single_action_space = spaces.Discrete(ACTIONS)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self._time = 0
        self._total: NDArray[Any] = np.zeros(num_envs)
        self._shock: NDArray[Any] = np.zeros(num_envs)

    @property
    def horizon(self) -> int:
        """Steps of an episode."""
        return 2 * self.rounds

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        super().reset(seed=seed if not isinstance(seed, list) else seed[0], options=options)
        self._restart()
        return self._observation(), {}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        if self._time % 2 == 0:
            self._shock = 2.0 * self.np_random.integers(2, size=self.num_envs) - 1.0
            loss, reward = self._shock, np.zeros(self.num_envs)
        else:
            loss, reward = (actions - 1) * self._shock, actions.astype(np.float64)
            self._shock = np.zeros(self.num_envs)
        self._total = self._total + loss
        self._time += 1
        over = self._time == self.horizon
        terminated, truncated = np.full(self.num_envs, over), np.zeros(self.num_envs, dtype=bool)
        info: dict[str, Any] = {"loss": loss}
        if over:
            info = {"final_obs": self._observation(), "final_info": info}
            self._restart()
        return self._observation(), reward, terminated, truncated, info

    def _restart(self) -> None:
        self._time = 0
        self._total = np.zeros(self.num_envs)
        self._shock = np.zeros(self.num_envs)

    def _observation(self) -> NDArray[Any]:
        return observe(self._time / self.horizon, self._total, self._shock)


def observe(clock: float, total: NDArray[Any], shock: NDArray[Any]) -> NDArray[Any]:
    """[B, 3] what is seen of losses [B] and shocks [B]."""
    return np.stack([np.full_like(total, clock), total, shock], -1).astype(np.float32)
