"""Rollouts written down by hand, two problems whose constrained optimum is known, and a loop that trains on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from portfolio_sdpo.envs.random_cmdp import Cmdp, RandomCmdpVectorEnv
from portfolio_sdpo.nn.networks import ObservationCodec
from portfolio_sdpo.rl.algorithms.base import Algorithm, AlgorithmSettings, Problem
from portfolio_sdpo.rl.metrics import LogRow
from portfolio_sdpo.rl.rollout import Collector, Purpose, Rollout, stream, torch_generator


def rollout_of(
    rewards: Sequence[Sequence[float]],
    terminated: Sequence[bool],
    dtype: torch.dtype = torch.float32,
    truncated: Sequence[bool] | None = None,
) -> Rollout:
    """Episodes by their rewards; those that are neither `terminated` nor `truncated` are cut. Observation k of each is
    k, action and log-probability are 0, and the cost `pain` is ten times the reward."""
    lengths = torch.tensor([len(episode) for episode in rewards])
    step = torch.cat([torch.arange(length) for length in lengths.tolist()])
    episode = torch.arange(len(rewards)).repeat_interleave(lengths)
    last = step == lengths[episode] - 1
    reward = torch.tensor([reward for episode in rewards for reward in episode], dtype=dtype)
    return Rollout(
        observation=step.unsqueeze(-1).float(),
        action=torch.zeros(len(step), dtype=torch.int64),
        log_prob=torch.zeros(len(step)),
        signals={"reward": reward, "pain": 10 * reward},
        next_observation=step.unsqueeze(-1).float() + 1,
        terminated=last & torch.tensor(terminated)[episode],
        ended=last & (torch.tensor(terminated) | torch.tensor(truncated or [False] * len(rewards)))[episode],
        last=last,
        episode=episode,
        step=step,
    )


@pytest.fixture(scope="session")
def by_hand() -> Callable[..., Rollout]:
    return rollout_of


class Exposure(VectorEnv[Any, Any, Any]):
    """One step: hold the exposure a, earn a + a²ξ with ξ standard normal, pay the cost `energy` a².

    A policy that always plays m has mean m, variance m⁴, lower 0.1-CVaR m − 1.755 m² and expected cost m².
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.single_action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.ones((self.num_envs, 1), np.float32), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation = np.ones((self.num_envs, 1), np.float32)
        exposure = np.asarray(actions, dtype=np.float64)[:, 0]
        reward = exposure + exposure**2 * self.np_random.standard_normal(self.num_envs)
        info = {"final_obs": observation, "final_info": {"energy": exposure**2}}
        return observation, reward, np.ones(self.num_envs, bool), np.zeros(self.num_envs, bool), info


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Batches are tiny: further threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def exposure() -> Exposure:
    return Exposure(256)


def make_bandit(
    reward: list[float], noise: list[float] | None = None, *, envs: int = 256, **costs: list[float]
) -> RandomCmdpVectorEnv:
    """One state, one step: every action has its mean reward, its noise and its costs."""
    row = np.array([reward])
    cmdp = Cmdp(
        successors=np.zeros((1, len(reward), 1), np.int64),
        probabilities=np.ones((1, len(reward), 1)),
        reward=row,
        noise=np.zeros_like(row) if noise is None else np.array([noise]),
        initial=np.ones(1),
        horizon=1,
        costs={name: np.array([values]) for name, values in costs.items()},
    )
    return RandomCmdpVectorEnv(cmdp, envs)


@pytest.fixture
def bandit() -> Callable[..., RandomCmdpVectorEnv]:
    return make_bandit


def build(
    algorithm: type[Algorithm], settings: AlgorithmSettings, problem: Problem, env: VectorEnv[Any, Any, Any]
) -> Algorithm:
    torch.manual_seed(0)
    return algorithm(settings, problem, ObservationCodec(env.single_observation_space), env.single_action_space)


def run(algorithm: Algorithm, env: VectorEnv[Any, Any, Any], iterations: int, steps: int = 1) -> list[LogRow]:
    """Train; the rows of the log."""
    collector = Collector(env, algorithm.problem.signals(), steps, seed=0)
    return [
        algorithm.update(collector.collect(algorithm.policy, k), k, torch_generator(stream(0, k, Purpose.UPDATE)))
        for k in range(iterations)
    ]


@pytest.fixture
def make() -> Callable[..., Algorithm]:
    return build


@pytest.fixture
def train() -> Callable[..., list[LogRow]]:
    return run


def action_probabilities(algorithm: Algorithm) -> torch.Tensor:
    """[M] of a bandit's only state."""
    with torch.no_grad():
        return torch.softmax(algorithm.policy(torch.zeros(1, 2))[0], -1)


@pytest.fixture
def probabilities() -> Callable[[Algorithm], torch.Tensor]:
    return action_probabilities
