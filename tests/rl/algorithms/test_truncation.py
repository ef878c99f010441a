"""Undiscounted budgets in an environment that truncates its episodes: the sum ends where the episode does."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from portfolio_sdpo.risk import Constraint
from portfolio_sdpo.rl.algorithms.base import ActorSettings, Problem
from portfolio_sdpo.rl.algorithms.cpo import Cpo, CpoSettings
from portfolio_sdpo.rl.algorithms.ipo import Ipo, IpoSettings
from portfolio_sdpo.rl.algorithms.sdpo import Sdpo, SdpoSettings
from portfolio_sdpo.rl.critics import CriticSettings

STEPS = 5
CRITIC: dict[str, Any] = {"hidden": (8,), "epochs": 2, "minibatches": 1, "dimension": 8, "atoms": 8}
ACTOR = ActorSettings(hidden=(), learning_rate=0.01)
EACH = pytest.mark.parametrize(
    "algorithm, settings",
    [
        (Ipo, IpoSettings(actor=ACTOR, critic=CriticSettings(kind="mean", **CRITIC))),
        (Cpo, CpoSettings(actor=ACTOR, critic=CriticSettings(kind="mean", **CRITIC))),
        (Sdpo, SdpoSettings(actor=ACTOR, critic=CriticSettings(kind="quantile", **CRITIC), risk_atoms=8)),
    ],
    ids=["ipo", "cpo", "sdpo"],
)


class Clockless(gymnasium.Env[Any, Any]):
    """It is truncated after five steps, of which the observation says nothing. Each step has the cost `toil` 1; in the
    second one it may fall into the bad state, with probability one half: `crash` is 1 there, once."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.clock = 0
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.clock += 1
        crash = float(self.clock == 2 and self.np_random.random() < 0.5)
        return np.ones(1, np.float32), 0.1, False, self.clock == STEPS, {"toil": 1.0, "crash": crash}


@EACH
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_the_risk_is_that_of_the_episode(algorithm, settings, mode, make, train):
    """In every iteration: 5.0, and the share of episodes that crashed; nothing grows with the critic's own promises."""
    env = SyncVectorEnv([Clockless] * 8, autoreset_mode=mode)
    specs = ("expectation of toil <= 20 discount=1", "bad-state-probability of crash <= 0.9")
    problem = Problem(discount=0.9, constraints=tuple(map(Constraint.from_spec, specs)))
    rows = train(make(algorithm, settings, problem, env), env, 25, steps=STEPS)
    assert [row["risk_0"] for row in rows] == pytest.approx([5.0] * 25, abs=1e-3)
    assert [row["risk_1"] for row in rows] == pytest.approx([row["risk_empirical_1"] for row in rows], abs=1e-3)
    assert [row["slack_0"] for row in rows] == pytest.approx([15.0] * 25, abs=1e-3)


@EACH
def test_what_the_batch_cuts_is_made_good_by_the_critic(algorithm, settings, make, train):
    """Seven steps: every second episode is cut after two of its five, and is not taken for a short one."""
    env = SyncVectorEnv([Clockless] * 8, autoreset_mode=AutoresetMode.SAME_STEP)
    problem = Problem(discount=0.9, constraints=(Constraint.from_spec("expectation of toil <= 20 discount=1"),))
    rows = train(make(algorithm, settings, problem, env), env, 60, steps=7)
    assert all(row["risk_empirical_0"] == 5.0 for row in rows)
    assert all(3.5 < row["risk_0"] < 7.0 for row in rows[20:])
